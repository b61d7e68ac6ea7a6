/* gemm_int.h - shared by target/x64/gemm*.c only. */
#ifndef TAPER_GEN_GEMM_INT_H
#define TAPER_GEN_GEMM_INT_H
#include "target/x64/gemm.h"

/* One register tile: mr rows, nv vectors wide. */
typedef struct gemm_tile {
    uint8_t isa, wide; /* gen_isa; f64 */
    uint8_t mr, nv;
    uint8_t last;         /* lanes of the last vector, 0: all */
    uint8_t mode;         /* 0: C = P, 1: C = C + P, 2: C = beta C + P, 3: C = P + a row that ab points to */
    uint8_t scaled;       /* P is multiplied by alpha */
    uint8_t unit;         /* gemm_unit: what multiplies; a k is four bytes, on tiles 64 */
    int32_t a_row, a_col; /* bytes between rows and columns of A */
    int32_t b_row;        /* bytes between rows of B */
} gemm_tile;

/* acc over k of a[i][k] * b[k][j]; ab: {alpha, beta} in the type. c_row in bytes. */
typedef void (*gemm_micro)(const void *a, const void *b, void *c, int64_t k, int64_t c_row, const void *ab);
gemm_micro gemm_tile_get(const gemm_tile *t, tp_err *err); /* from a process-wide cache */

/* The same on AMX tiles: mr 16 or 32, nv 1 or 2, k counts steps of 64 bytes, C has whole tiles. */
gemm_micro gemm_amx_get(const gemm_tile *t, tp_err *err);
typedef struct gemm_amx_config {
    uint8_t palette, start, none[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} gemm_amx_config;
typedef struct gemm_amx { /* the tiles of the calling thread */
    void (*on)(const gemm_amx_config *c);
    void (*off)(void);
} gemm_amx;
extern const gemm_amx_config gemm_amx_all;
bool gemm_amx_state(gemm_amx *s, tp_err *err);
/* For tests where there are no tiles: runs emitted code instead of the processor. */
typedef void gemm_interpret(gemm_micro code, const void *a, const void *b, void *c, int64_t k, int64_t c_row,
                            const void *ab);
extern gemm_interpret *gemm_amx_instead;

/* dst[g][width]: group g of row r, `per` elements of k from src[r][per * g] on, xor flip; zero beyond k and rows. Floats are
 * rounded to bf16. groups >= k / per. */
void gemm_pack_groups(vir_mem type, int per, uint32_t flip, const void *src, int64_t row, int64_t col,
                      int rows, int width, int64_t k, int64_t groups, void *dst);
/* dst[step][mr][64 bytes]: a step is 16 groups. */
void gemm_pack_tiles(vir_mem type, int per, const void *src, int64_t row, int64_t col, int rows, int mr,
                     int64_t k, void *dst);
int32_t gemm_sum_bytes(const int8_t *x, int64_t n);
void gemm_narrow_row(vir_mem type, gen_isa isa, const float *src, int64_t n, uint16_t *dst);
void gemm_widen_row(vir_mem type, gen_isa isa, const uint16_t *src, int64_t n, float *dst);

/* dst[k][mr] = a[i][k] for i < rows (zero beyond), widened to f32 (f64). */
void gemm_pack_a(vir_mem type, gen_isa isa, const void *a, int64_t row, int64_t col, int rows, int mr,
                 int64_t k, void *dst);
/* dst[k][width] = b[k][j] for j < cols (zero beyond). */
void gemm_pack_b(vir_mem type, gen_isa isa, const void *b, int64_t row, int64_t col, int cols, int width,
                 int64_t k, void *dst);

/* Up to four rows of a with rows lo..hi of b, both along k: out[r][c - lo]. For AVX512-BF16 and VNNI. */
void gemm_few_bf16(const uint16_t *a, int64_t a_row, const uint16_t *b, int64_t b_row, int rows, int64_t lo,
                   int64_t hi, int64_t k, float *out, int64_t out_row);
void gemm_few_i8(const int8_t *a, int64_t a_row, const int8_t *b, int64_t b_row, int rows, int64_t lo,
                 int64_t hi, int64_t k, int32_t *out, int64_t out_row);

/* dst[c * dstride + r] = src[r * row + c] */
void gemm_turn_f32(gen_isa isa, const float *src, int64_t row, int rows, int64_t cols, int64_t dstride,
                   float *dst);
#endif
