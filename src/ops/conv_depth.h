/* conv_depth.h - convolutions of float where every channel has a window of its own (depthwise), and their two gradients.
 * Lanes hold places along a row, or channels where those lie side by side. Results do not depend on the thread count. */
#ifndef TAPER_CONV_DEPTH_H
#define TAPER_CONV_DEPTH_H
#include "ops/conv.h"

/* False: declined, nothing was written. */
bool conv_depth_forward(dtype dt, const conv_geom *g, const void *x, const void *w, const void *bias,
                        void *y);
bool conv_depth_grad_input(dtype dt, const conv_geom *g, const void *dy, const void *w, void *dx);
bool conv_depth_grad_weight(dtype dt, const conv_geom *g, const void *x, const void *dy, void *dw);

#endif
