/* conv_half.h - convolutions of bf16 on units for bf16. Knows geometry and bytes. May not know tensors.
 * Contiguous images and weights, one group. False: not such a case, or out of memory. */
#ifndef TAPER_GEN_CONV_HALF_H
#define TAPER_GEN_CONV_HALF_H
#include "ops/conv.h"

bool half_forward(const conv_geom *g, const void *x, const void *w, const void *bias, void *y);
bool half_grad_input(const conv_geom *g, const void *dy, const void *w, void *dx);
bool half_grad_weight(const conv_geom *g, const void *x, const void *dy, void *dw);
#endif
