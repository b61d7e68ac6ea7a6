/* gemm_pack.c - operands of a matrix product laid out for the register tile, widened on the way. */
#include "target/x64/gemm_int.h"
#include "vir/math/vnum.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* dst[c * dstride + r] = src[r * row + c * col] for r < rows, c < cols: one loop for every type. */
#define PLAIN(name, S, D, conv)                                                                       \
    static void name(const S *src, int64_t row, int64_t col, int rows, int64_t cols, int64_t dstride, \
                     D *dst)                                                                          \
    {                                                                                                 \
        for (int64_t c = 0; c < cols; c++)                                                            \
            for (int r = 0; r < rows; r++)                                                            \
                dst[c * dstride + r] = conv(src[r * row + c * col]);                                  \
    }
PLAIN(move_f32, float, float, )
PLAIN(move_f64, double, double, )
PLAIN(move_f16, uint16_t, float, vnum_from_f16)
PLAIN(move_bf16, uint16_t, float, vnum_from_bf16)

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,f16c")))
AVX2 static inline __m256 load_f32(const float *p) { return _mm256_loadu_ps(p); }
AVX2 static inline __m256 load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
AVX2 static inline __m256 load_bf16(const uint16_t *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}

/* Eight registers as rows become columns, stored dstride apart. */
AVX2 static inline void turn8(__m256 *r, float *d, int64_t dstride)
{
    __m256 t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(d + i * dstride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(d + (i + 4) * dstride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}
/* Up to four rows, n of them wanted: eight columns of n. */
AVX2 static inline void turn4(__m256 *r, int n, float *d, int64_t dstride)
{
    for (int h = 0; h < 2; h++) {
        __m128 q[4];
        for (int i = 0; i < 4; i++)
            q[i] = h ? _mm256_extractf128_ps(r[i], 1) : _mm256_castps256_ps128(r[i]);
        _MM_TRANSPOSE4_PS(q[0], q[1], q[2], q[3]);
        for (int i = 0; i < 4; i++) {
            float *to = d + (4 * h + i) * dstride;
            if (n == 4)
                _mm_storeu_ps(to, q[i]);
            else if (n > 1)
                _mm_storel_pi((__m64 *)(void *)to, q[i]);
            if (n % 2)
                _mm_store_ss(to + n - 1, n == 1 ? q[i] : _mm_movehl_ps(q[i], q[i]));
        }
    }
}

/* turn_: source columns contiguous. All rows of eight columns, then the next eight: what is written lies together, in a panel
 * that the first cache does not hold. Sixteen are read ahead of their turn, because so many rows hide from the hardware.
 * copy_: rows contiguous. */
#define WITH_AVX2(type, S)                                                                                   \
    AVX2 static void turn_##type(const S *s, int64_t row, int rows, int64_t cols, int64_t dstride, float *d) \
    {                                                                                                        \
        int64_t c = 0;                                                                                       \
        for (; c + 8 <= cols; c += 8) {                                                                      \
            int r = 0;                                                                                       \
            for (; r + 8 <= rows; r += 8) {                                                                  \
                __m256 v[8];                                                                                 \
                for (int i = 0; i < 8; i++) {                                                                \
                    v[i] = load_##type(s + (r + i) * row + c);                                               \
                    _mm_prefetch((const char *)(s + (r + i) * row + c + 16), _MM_HINT_T0);                   \
                }                                                                                            \
                turn8(v, d + c * dstride + r, dstride);                                                      \
            }                                                                                                \
            for (; r < rows; r += 4) {                                                                       \
                __m256 v[4];                                                                                 \
                int n = MIN(rows - r, 4);                                                                    \
                for (int i = 0; i < 4; i++)                                                                  \
                    v[i] = load_##type(s + (r + MIN(i, n - 1)) * row + c);                                   \
                turn4(v, n, d + c * dstride + r, dstride);                                                   \
            }                                                                                                \
        }                                                                                                    \
        move_##type(s + c, row, 1, rows, cols - c, dstride, d + c * dstride);                                \
    }                                                                                                        \
    AVX2 static void copy_##type(const S *s, int64_t col, int rows, int64_t cols, int64_t dstride, float *d) \
    {                                                                                                        \
        for (int64_t c = 0; c < cols; c++) {                                                                 \
            int r = 0;                                                                                       \
            for (; r + 8 <= rows; r += 8)                                                                    \
                _mm256_storeu_ps(d + c * dstride + r, load_##type(s + c * col + r));                         \
            move_##type(s + c * col + r, 1, 0, rows - r, 1, 0, d + c * dstride + r);                         \
        }                                                                                                    \
    }
WITH_AVX2(f32, float)
WITH_AVX2(f16, uint16_t)
WITH_AVX2(bf16, uint16_t)

/* Floats with AVX-512. Sixteen rows (n of them wanted) by sixteen columns: quarters of four rows are put side by side as they
 * are read, a row's line at a time, and two rounds of shuffles are left. */
#define AVX512 __attribute__((target("avx512f")))
AVX512 static inline __m512 quarters(const float *p, const float *q, const float *r, const float *s)
{
    __m512 v = _mm512_insertf32x4(_mm512_castps128_ps512(_mm_loadu_ps(p)), _mm_loadu_ps(q), 1);
    return _mm512_insertf32x4(_mm512_insertf32x4(v, _mm_loadu_ps(r), 2), _mm_loadu_ps(s), 3);
}
AVX512 static inline void put16(float *d, __m512 v, int n)
{
    if (n == 16)
        _mm512_storeu_ps(d, v);
    else
        _mm512_mask_storeu_ps(d, (__mmask16)((1u << n) - 1), v);
}
AVX512 static inline __attribute__((always_inline)) void turn16(const float *s, int64_t row, int n, float *d,
                                                                int64_t dstride)
{
    __m512 g[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const float *p = s + MIN(i, n - 1) * row, *q = s + MIN(i + 4, n - 1) * row,
                    *r = s + MIN(i + 8, n - 1) * row, *t = s + MIN(i + 12, n - 1) * row;
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            g[i][j] = quarters(p + 4 * j, q + 4 * j, r + 4 * j, t + 4 * j);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++, d += 4 * dstride) {
        __m512 a = _mm512_unpacklo_ps(g[0][j], g[1][j]), b = _mm512_unpackhi_ps(g[0][j], g[1][j]);
        __m512 e = _mm512_unpacklo_ps(g[2][j], g[3][j]), f = _mm512_unpackhi_ps(g[2][j], g[3][j]);
        put16(d, _mm512_shuffle_ps(a, e, 0x44), n);
        put16(d + dstride, _mm512_shuffle_ps(a, e, 0xee), n);
        put16(d + 2 * dstride, _mm512_shuffle_ps(b, f, 0x44), n);
        put16(d + 3 * dstride, _mm512_shuffle_ps(b, f, 0xee), n);
    }
}
AVX512 static void turn_wide(const float *s, int64_t row, int rows, int64_t cols, int64_t dstride, float *d)
{
    enum {
        AHEAD = 64
    }; /* so many rows are more than the processor foresees; into the second cache, as rows that lie a
                          * power of two apart share few places of the first */
    int64_t c = 0;
    for (; c + 16 <= cols; c += 16) {
        int r = 0;
        if (c + AHEAD < cols)
            for (int i = 0; i < rows; i++)
                __builtin_prefetch(s + i * row + c + AHEAD, 0, 2);
        for (; r + 16 <= rows; r += 16)
            turn16(s + r * row + c, row, 16, d + c * dstride + r, dstride);
        if (r < rows)
            turn16(s + r * row + c, row, rows - r, d + c * dstride + r, dstride);
    }
    move_f32(s + c, row, 1, rows, cols - c, dstride, d + c * dstride);
}
AVX512 static void copy_wide(const float *s, int64_t col, int rows, int64_t cols, int64_t dstride, float *d)
{
    __mmask16 m = (__mmask16)((1u << rows % 16) - 1);
    for (int64_t c = 0; c < cols; c++, s += col, d += dstride) {
        int r = 0;
        for (; r + 16 <= rows; r += 16)
            _mm512_storeu_ps(d + r, _mm512_loadu_ps(s + r));
        if (m)
            _mm512_mask_storeu_ps(d + r, m, _mm512_maskz_loadu_ps(m, s + r));
    }
}

static bool pack_wide(const float *src, int64_t row, int64_t col, int rows, int64_t width, int64_t cols,
                      float *dst)
{
    if (col == 1)
        turn_wide(src, row, rows, cols, width, dst);
    else if (row == 1)
        copy_wide(src, col, rows, cols, width, dst);
    return col == 1 || row == 1;
}

static bool pack_avx2(vir_mem type, const void *src, int64_t row, int64_t col, int rows, int64_t width,
                      int64_t cols, void *dst)
{
#define CASE(type)                                         \
    case VM_##type:                                        \
        if (col == 1)                                      \
            turn_##type(src, row, rows, cols, width, dst); \
        else                                               \
            copy_##type(src, col, rows, cols, width, dst); \
        return true
    if (col != 1 && row != 1)
        return false;
    switch (type) {
        CASE(f32);
        CASE(f16);
        CASE(bf16);
    default: return false;
    }
}

static bool pack_vectors(vir_mem type, gen_isa isa, const void *src, int64_t row, int64_t col, int rows,
                         int64_t width, int64_t cols, void *dst)
{
    if (isa == ISA_avx512 && type == VM_f32 && rows > 4 && rows != 8) /* those are as fast in halves */
        return pack_wide(src, row, col, rows, width, cols, dst);
    return isa != ISA_none && pack_avx2(type, src, row, col, rows, width, cols, dst);
}
#else
static bool pack_vectors(vir_mem type, gen_isa isa, const void *src, int64_t row, int64_t col, int rows,
                         int64_t width, int64_t cols, void *dst)
{
    return false;
}
#endif

void gemm_turn_f32(gen_isa isa, const float *src, int64_t row, int rows, int64_t cols, int64_t dstride,
                   float *dst)
{
    if (!pack_vectors(VM_f32, isa, src, row, 1, rows, dstride, cols, dst))
        move_f32(src, row, 1, rows, cols, dstride, dst);
}

static void zero_rest(bool wide, void *dst, int rows, int width, int64_t cols)
{
    size_t e = wide ? 8 : 4;
    if (rows < width)
        for (int64_t c = 0; c < cols; c++)
            memset((char *)dst + ((size_t)c * (size_t)width + (size_t)rows) * e, 0,
                   (size_t)(width - rows) * e);
}

static void pack(vir_mem type, gen_isa isa, const void *src, int64_t row, int64_t col, int rows, int width,
                 int64_t cols, void *dst)
{
    if (!pack_vectors(type, isa, src, row, col, rows, width, cols, dst))
        switch (type) {
        case VM_f64: move_f64(src, row, col, rows, cols, width, dst); break;
        case VM_f16: move_f16(src, row, col, rows, cols, width, dst); break;
        case VM_bf16: move_bf16(src, row, col, rows, cols, width, dst); break;
        default: move_f32(src, row, col, rows, cols, width, dst); break;
        }
    zero_rest(type == VM_f64, dst, rows, width, cols);
}

void gemm_pack_a(vir_mem type, gen_isa isa, const void *a, int64_t row, int64_t col, int rows, int mr,
                 int64_t k, void *dst)
{
    pack(type, isa, a, row, col, rows, mr, k, dst);
}
void gemm_pack_b(vir_mem type, gen_isa isa, const void *b, int64_t row, int64_t col, int cols, int width,
                 int64_t k, void *dst)
{
    pack(type, isa, b, col, row, cols, width, k, dst);
}
