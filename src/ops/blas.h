/* blas.h - the functions of BLAS and LAPACK that kernels call, as pointers.
 * They are linked in where the build found OpenBLAS, and looked for when first needed otherwise: a package that was built
 * elsewhere cannot know where this machine has one. BLAS runs on one thread; the pool splits the work. */
#ifndef TAPER_BLAS_H
#define TAPER_BLAS_H
#include "base/base.h"

bool blas_ready(void); /* false: there is none on this machine */

/* F(name, (arguments)) for each function; s: the letter of its type T */
#define BLAS_FUNCTIONS(F, s, T)                                                                              \
    F(s##gemm,                                                                                               \
      (const char *ta, const char *tb, const int *m, const int *n, const int *k, const T *alpha, const T *a, \
       const int *lda, const T *b, const int *ldb, const T *beta, T *c, const int *ldc))                     \
    F(s##gemv, (const char *t, const int *m, const int *n, const T *alpha, const T *a, const int *lda,       \
                const T *x, const int *incx, const T *beta, T *y, const int *incy))                          \
    F(s##getrf, (const int *m, const int *n, T *a, const int *lda, int *piv, int *info))                     \
    F(s##getri, (const int *n, T *a, const int *lda, const int *piv, T *work, const int *lw, int *info))     \
    F(s##getrs, (const char *t, const int *n, const int *nrhs, const T *a, const int *lda, const int *piv,   \
                 T *b, const int *ldb, int *info))                                                           \
    F(s##potrf, (const char *uplo, const int *n, T *a, const int *lda, int *info))                           \
    F(s##potrs, (const char *uplo, const int *n, const int *nrhs, const T *a, const int *lda, T *b,          \
                 const int *ldb, int *info))                                                                 \
    F(s##potri, (const char *uplo, const int *n, T *a, const int *lda, int *info))                           \
    F(s##geqrf,                                                                                              \
      (const int *m, const int *n, T *a, const int *lda, T *tau, T *work, const int *lw, int *info))         \
    F(s##orgqr, (const int *m, const int *n, const int *k, T *a, const int *lda, const T *tau, T *work,      \
                 const int *lw, int *info))                                                                  \
    F(s##sytrf,                                                                                              \
      (const char *uplo, const int *n, T *a, const int *lda, int *piv, T *work, const int *lw, int *info))   \
    F(s##sytrs, (const char *uplo, const int *n, const int *nrhs, const T *a, const int *lda,                \
                 const int *piv, T *b, const int *ldb, int *info))                                           \
    F(s##gesdd, (const char *job, const int *m, const int *n, T *a, const int *lda, T *sv, T *u,             \
                 const int *ldu, T *vt, const int *ldvt, T *work, const int *lw, int *iw, int *info))        \
    F(s##syevd, (const char *job, const char *uplo, const int *n, T *a, const int *lda, T *w, T *work,       \
                 const int *lw, int *iw, const int *liw, int *info))                                         \
    F(s##trsm, (const char *side, const char *uplo, const char *t, const char *diag, const int *m,           \
                const int *n, const T *alpha, const T *a, const int *lda, T *b, const int *ldb))             \
    F(s##gelsy, (const int *m, const int *n, const int *nrhs, T *a, const int *lda, T *b, const int *ldb,    \
                 int *piv, const T *rcond, int *rank, T *work, const int *lw, int *info))                    \
    F(s##gelsd, (const int *m, const int *n, const int *nrhs, T *a, const int *lda, T *b, const int *ldb,    \
                 T *sv, const T *rcond, int *rank, T *work, const int *lw, int *iw, int *info))

#define BLAS_DECLARE(name, args) extern void(*blas_##name) args;
BLAS_FUNCTIONS(BLAS_DECLARE, s, float)
BLAS_FUNCTIONS(BLAS_DECLARE, d, double)
#undef BLAS_DECLARE
#endif
