/* provide.h - offers the emitted products and convolutions to the eager kernels (ops/provider.h). */
#ifndef TAPER_GEN_PROVIDE_H
#define TAPER_GEN_PROVIDE_H
#include "target/x64/gemm.h"
#include "ops/conv.h"
#include "ops/gemm.h"

/* c = a b (+ c, where add; + bias, a row for all rows), batch times, then e on its rows; nv as gemm_desc has it. False: declined, nothing was written. */
bool gen_product(dtype dt, dtype to, int64_t m, int64_t n, int64_t k, mat a, mat b, bool add, mat c,
                 int64_t batch, int64_t sa, int64_t sb, int64_t sc, const void *bias, int nv,
                 const gemm_epilogue *e);
/* y = x correlated with w (+ bias), then e on its planes. False: declined, nothing was written. */
bool gen_convolution(dtype dt, const conv_geom *g, const void *x, const void *w, const void *bias, void *y,
                     const gemm_epilogue *e);
/* The plan of one product, added to what is there or not, kept for good; NULL: there is none, BLAS does such products. */
const gemm_plan *gen_product_plan(dtype dt, dtype to, int64_t m, int64_t n, int64_t k, mat a, mat b, bool add,
                                  mat c);
#endif
