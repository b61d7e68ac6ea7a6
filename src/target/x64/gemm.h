/* gemm.h - matrix products: C = alpha A B + beta C, emitted for the shape, with a row-wise epilogue.
 * Knows matrices, strides and threads. May not know graphs or tensors.
 *
 * A plan holds the machine code for one shape and may run many times, from several threads. Any strides; the sum over k is split into the same blocks whatever the thread count, so
 * results do not depend on it. */
#ifndef TAPER_GEN_GEMM_H
#define TAPER_GEN_GEMM_H
#include "target/x64/x64.h"

/* What multiplies. fma: floats, f16 and bf16 widened while they are packed. dpbf16 and tiles16: pairs of bf16, summed in
 * float; dpbusd and tiles8: bytes, summed in 32 bits. */
typedef enum { GEMM_best, GEMM_fma, GEMM_dpbf16, GEMM_tiles16, GEMM_dpbusd, GEMM_tiles8 } gemm_unit;

typedef struct gemm_mat {
    vir_mem type;            /* f32, f64, f16, bf16; i8 for both factors with a result of i32 */
    int64_t row, col, batch; /* strides in elements; batch 0: the same matrix for all */
} gemm_mat;

typedef struct gemm_desc {
    int64_t m, n, k, batch; /* C is m x n, A m x k, B k x n; batch >= 1 */
    gemm_mat a, b, c;
    double alpha, beta; /* beta 0: C is not read */
    int64_t bias;       /* 1: a row of n elements of C's type is added to every row of C; alpha 1, beta 0 */
    int64_t nv;         /* vectors a register tile is wide; 0: as the shape suggests */
    int64_t rough;      /* 1: f32 factors may be rounded to bf16 */
    int64_t unit;       /* gemm_unit; GEMM_best: as the machine and the types suggest */
    int64_t share; /* threads: 1 each packs what it needs, 2 they pack together; 0: whichever costs less */
} gemm_desc;

/* Applied to finished rows while they are in cache: an ordinary kernel, step i of whose parallel loop needs row i; the
 * rows of a batch are counted through. */
typedef struct gemm_epilogue {
    vir_fn fn;
    void *const *bufs;
    const int64_t *ints;
    const double *flts;
    int64_t first; /* what row 0 counts as */
} gemm_epilogue;

typedef struct gemm_plan gemm_plan;
gemm_plan *gemm_plan_new(const gemm_desc *d, gen_isa isa, tp_err *err);
void gemm_plan_free(gemm_plan *p);
/* bias: as the plan says, or NULL. */
bool gemm_run(const gemm_plan *p, const void *a, const void *b, const void *bias, void *c,
              const gemm_epilogue *e, tp_err *err);
/* The same on the calling thread alone, with a B that serves several products: laid out once, in gemm_packed_bytes (0: it is
 * read where it lies). Only where gemm_packs; the first of a batch, and no row to add. */
enum { GEMM_WIDEST = 8 };
bool gemm_packs(const gemm_plan *p);
size_t gemm_packed_bytes(const gemm_plan *p);
void gemm_pack_all(const gemm_plan *p, const void *b, void *to);
/* Of the rows only the first `rows` and of the columns the first `cols`, or some more; of the sums over k only the first
 * `depth` terms. */
bool gemm_run_packed(const gemm_plan *p, const void *a, const void *b, void *packed, void *c, int64_t rows,
                     int64_t cols, int64_t depth, const gemm_epilogue *e);
void gemm_describe(const gemm_plan *p, strbuf *out); /* tile, blocking, packing: for logs */
#endif
