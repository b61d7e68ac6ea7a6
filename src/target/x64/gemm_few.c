/* gemm_few.c - products of few rows with a matrix that is read once: dot products along k, where narrow numbers lie. */
#include "target/x64/gemm_int.h"
#include "vir/math/vnum.h"
#if defined(__x86_64__)
#include <immintrin.h>

#define BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

/* 16 sums of a vector each: their totals, in order. */
#define TOTALS(name, target, V, T, reduce)                   \
    target static inline void name(const V *s, int n, T *to) \
    {                                                        \
        for (int i = 0; i < n; i++)                          \
            to[i] = reduce(s[i]);                            \
    }
TOTALS(totals_f32, BF16, __m512, float, _mm512_reduce_add_ps)
TOTALS(totals_i32, VNNI, __m512i, int32_t, _mm512_reduce_add_epi32)

/* sum[c][r]: row r of a with row c of b, four columns and `rows` rows at a time; rows is a constant for the compiler. */
BF16 static inline __attribute__((always_inline)) void block_bf16(const uint16_t *a, int64_t a_row,
                                                                  const uint16_t *b, int64_t b_row, int rows,
                                                                  int cols, int64_t k, float *sum)
{
    __m512 s[16];
    for (int i = 0; i < 16; i++)
        s[i] = _mm512_setzero_ps();
    for (int64_t x = 0; x < k; x += 32) {
        __mmask32 m = k - x >= 32 ? 0xffffffff : (1u << (k - x)) - 1;
        __m512i v[4];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            v[r] = _mm512_maskz_loadu_epi16(m, a + r * a_row + x);
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            __m512i w = _mm512_maskz_loadu_epi16(m, b + MIN(c, cols - 1) * b_row + x);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                s[c * rows + r] = _mm512_dpbf16_ps(s[c * rows + r], (__m512bh)v[r], (__m512bh)w);
        }
    }
    totals_f32(s, cols * rows, sum);
}
VNNI static inline __attribute__((always_inline)) void block_i8(const int8_t *a, int64_t a_row,
                                                                const int8_t *b, int64_t b_row, int rows,
                                                                int cols, int64_t k, int32_t *sum)
{
    __m512i s[16], flip = _mm512_set1_epi8((char)0x80);
    for (int i = 0; i < 16; i++)
        s[i] = _mm512_setzero_si512();
    for (int64_t x = 0; x < k; x += 64) {
        __mmask64 m = k - x >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (k - x)) - 1;
        __m512i v[4];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            v[r] = _mm512_maskz_loadu_epi8(m, a + r * a_row + x);
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            __m512i w = _mm512_maskz_loadu_epi8(m, b + MIN(c, cols - 1) * b_row + x);
            w = _mm512_xor_si512(w, flip);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                s[c * rows + r] = _mm512_dpbusd_epi32(s[c * rows + r], w, v[r]);
        }
    }
    totals_i32(s, cols * rows, sum);
}

#define BY_ROWS(fn)                                                     \
    switch (rows) {                                                     \
    case 1: fn(a, a_row, b + c * b_row, b_row, 1, cols, k, to); break;  \
    case 2: fn(a, a_row, b + c * b_row, b_row, 2, cols, k, to); break;  \
    case 3: fn(a, a_row, b + c * b_row, b_row, 3, cols, k, to); break;  \
    default: fn(a, a_row, b + c * b_row, b_row, 4, cols, k, to); break; \
    }

BF16 void gemm_few_bf16(const uint16_t *a, int64_t a_row, const uint16_t *b, int64_t b_row, int rows,
                        int64_t lo, int64_t hi, int64_t k, float *out, int64_t out_row)
{
    for (int64_t c = lo; c < hi; c += 4) {
        int cols = (int)MIN(4, hi - c);
        float to[16];
        BY_ROWS(block_bf16)
        for (int i = 0; i < cols; i++)
            for (int r = 0; r < rows; r++)
                out[r * out_row + c - lo + i] = to[i * rows + r];
    }
}
VNNI void gemm_few_i8(const int8_t *a, int64_t a_row, const int8_t *b, int64_t b_row, int rows, int64_t lo,
                      int64_t hi, int64_t k, int32_t *out, int64_t out_row)
{
    int32_t less[4] = { 0 };
    for (int r = 0; r < rows; r++)
        less[r] = 128 * gemm_sum_bytes(a + r * a_row, k);
    for (int64_t c = lo; c < hi; c += 4) {
        int cols = (int)MIN(4, hi - c);
        int32_t to[16];
        BY_ROWS(block_i8)
        for (int i = 0; i < cols; i++)
            for (int r = 0; r < rows; r++)
                out[r * out_row + c - lo + i] = to[i * rows + r] - less[r];
    }
}
#else
void gemm_few_bf16(const uint16_t *a, int64_t a_row, const uint16_t *b, int64_t b_row, int rows, int64_t lo,
                   int64_t hi, int64_t k, float *out, int64_t out_row)
{
}
void gemm_few_i8(const int8_t *a, int64_t a_row, const int8_t *b, int64_t b_row, int rows, int64_t lo,
                 int64_t hi, int64_t k, int32_t *out, int64_t out_row)
{
}
#endif
