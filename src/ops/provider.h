/* provider.h - who computes matrix products and convolutions.
 * A later stage that can emit machine code registers its functions here; each may decline a call (false, nothing
 * written), and then BLAS or plain loops do it. So eager and compiled programs use the same kernels, and the two can
 * be compared: TAPER_PRODUCTS=blas declines everything. */
#ifndef TAPER_OPS_PROVIDER_H
#define TAPER_OPS_PROVIDER_H
#include "ops/conv.h"
#include "ops/gemm.h"

typedef struct ops_provider {
    const char *name;
    /* batch products of factors of dt, sa, sb, sc elements apart; c is of type `to`: dt, or f32 of narrow factors; bias: NULL, or
     * a row added to every row of c (then alpha 1, beta 0) */
    bool (*gemm)(dtype dt, dtype to, int64_t m, int64_t n, int64_t k, double alpha, mat a, mat b, double beta,
                 mat c, int64_t batch, int64_t sa, int64_t sb, int64_t sc, const void *bias);
    bool (*conv_forward)(dtype dt, const conv_geom *g, const void *x, const void *w, const void *bias,
                         void *y);
    bool (*conv_grad_input)(dtype dt, const conv_geom *g, const void *dy, const void *w, void *dx);
    bool (*conv_grad_weight)(dtype dt, const conv_geom *g, const void *x, const void *dy, void *dw);
    /* y (m x n) = x (m x k) times w (n x k) transposed: rows of x become bytes as int8_row says */
    bool (*linear_int8)(int64_t m, int64_t n, int64_t k, const float *x, const int8_t *w, const float *scale,
                        const float *bias, float *y);
    int (*isa)(void);   /* the instruction set of this machine, one of ops/pw.h */
    bool (*bf16)(void); /* does this machine multiply bf16 faster than f32? */
} ops_provider;
/* A row as bytes, its largest element as 127; returns what one of them is worth (NaN where the row has one). */
float int8_row(const float *x, int64_t k, int8_t *q);

void ops_provide(const ops_provider *p);    /* once, before the first call */
int ops_provided_isa(void);                 /* 0 where nobody knows, also when products are switched off */
bool ops_provided_bf16(void);               /* false where nobody knows; the same all the time */
const ops_provider *ops_provider_now(void); /* NULL: none, or switched off */
unsigned ops_provider_asked(void);          /* how often this thread asked, whatever the answer */
bool ops_provider_skip(bool on);            /* the same for the calling thread alone, true: off */
/* May products of float round their factors to bf16? (set_float32_matmul_precision("medium")) */
bool ops_rough_products(void);
void ops_set_rough_products(bool on);
bool ops_provider_use(bool on); /* for tests and benchmarks; returns what it was */
#endif
