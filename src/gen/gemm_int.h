/* gemm_int.h - shared by gen/gemm*.c only. */
#ifndef TAPER_GEN_GEMM_INT_H
#define TAPER_GEN_GEMM_INT_H
#include "gen/gemm.h"

/* One register tile: mr rows, nv vectors wide. */
typedef struct gemm_tile {
    uint8_t isa, wide; /* gen_isa; f64 */
    uint8_t mr, nv;
    uint8_t last;   /* lanes of the last vector, 0: all */
    uint8_t mode;   /* 0: C = P, 1: C = C + P, 2: C = beta C + P */
    uint8_t scaled; /* P is multiplied by alpha */
    uint8_t pad;
    int32_t a_row, a_col; /* bytes between rows and columns of A */
    int32_t b_row;        /* bytes between rows of B */
} gemm_tile;

/* acc over k of a[i][k] * b[k][j]; ab: {alpha, beta} in the type. c_row in bytes. */
typedef void (*gemm_micro)(const void *a, const void *b, void *c, int64_t k, int64_t c_row, const void *ab);
gemm_micro gemm_tile_get(const gemm_tile *t, tp_err *err); /* from a process-wide cache */

/* dst[k][mr] = a[i][k] for i < rows (zero beyond), widened to f32 (f64). */
void gemm_pack_a(vir_mem type, bool avx2, const void *a, int64_t row, int64_t col, int rows, int mr,
                 int64_t k, void *dst);
/* dst[k][width] = b[k][j] for j < cols (zero beyond). */
void gemm_pack_b(vir_mem type, bool avx2, const void *b, int64_t row, int64_t col, int cols, int width,
                 int64_t k, void *dst);

/* A product whose right operand exists only as packed panels: dst[k][width] for k0 <= row < k0 + k and columns from n0,
 * zero beyond cols. */
typedef void gemm_pack_fn(void *arg, int64_t batch, int64_t k0, int64_t k, int64_t n0, int cols, int width,
                          void *dst);
gemm_plan *gemm_plan_packed(const gemm_desc *d, gen_isa isa, gemm_pack_fn *pack, tp_err *err);
/* first: number of the first batch entry, for the epilogue. */
bool gemm_run_packed(const gemm_plan *p, const void *a, void *c, const gemm_epilogue *e, int64_t first,
                     void *arg, tp_err *err);
#endif
