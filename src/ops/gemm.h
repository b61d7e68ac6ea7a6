/* gemm.h - matrix products on strided memory: BLAS where there is one (blas.h), plain loops elsewhere.
 * BLAS itself runs on one thread; the pool splits the work, so the thread count is Taper's own. */
#ifndef TAPER_GEMM_H
#define TAPER_GEMM_H
#include "tensor/tensor.h"

typedef struct mat { /* element (i, j) lies at p[i * rs + j * cs] */
    void *p;
    int64_t rs, cs;
} mat;

/* c = alpha a b + beta c; a is m x k, b is k x n. f32, f64 and the integer types, gemm also f16 and bf16 (in float); c's memory does not overlap
 * a's or b's. beta 0 ignores what c holds. */
void gemm(dtype dt, int64_t m, int64_t n, int64_t k, double alpha, mat a, mat b, double beta, mat c);
/* The same of f16 or bf16 factors with a result of f32. */
void gemm_wide(dtype dt, int64_t m, int64_t n, int64_t k, double alpha, mat a, mat b, double beta, mat c);
/* One thread, for callers that split the work themselves. */
void gemm_one(dtype dt, int64_t m, int64_t n, int64_t k, double alpha, mat a, mat b, double beta, mat c);
#endif
