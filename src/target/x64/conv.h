/* conv.h - convolution and its two gradients without a patch matrix.
 * Vector lanes hold channels: each element of the padded image is broadcast and multiplied with a row of packed weights
 * (for the weight gradient: of the transposed output gradient). Or, where windows step by one, they hold places along a
 * row: each weight is broadcast and multiplied with a piece of the image. Whichever costs less for the shape. Results do not depend on the thread count. */
#ifndef TAPER_GEN_CORR_H
#define TAPER_GEN_CORR_H
#include "target/x64/gemm.h"
#include "ops/conv.h"

/* As conv_forward and its siblings (ops/conv.h). False: declined, nothing was written; shapes with few channels are
 * better served by others. */
/* e: NULL, or a kernel to run on the planes of y (image times channel) as they are finished. */
bool corr_forward(gen_isa isa, dtype dt, const conv_geom *g, const void *x, const void *w, const void *bias,
                  void *y, const gemm_epilogue *e);
bool corr_grad_input(gen_isa isa, dtype dt, const conv_geom *g, const void *dy, const void *w, void *dx);
bool corr_grad_weight(gen_isa isa, dtype dt, const conv_geom *g, const void *x, const void *dy, void *dw);
#endif
