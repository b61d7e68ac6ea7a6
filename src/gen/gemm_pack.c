/* gemm_pack.c - operands of a matrix product laid out for the register tile, widened on the way. */
#include "gen/gemm_int.h"
#include "loop/vnum.h"
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
/* Eight rows of eight floats, turned. */
__attribute__((target("avx2"))) static inline void turn8(const float *s, int64_t row, float *d,
                                                         int64_t dstride)
{
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++)
        r[i] = _mm256_loadu_ps(s + i * row);
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

/* Source columns contiguous: 8 x 8 blocks, then what is left one by one. */
__attribute__((target("avx2"))) static void turn_f32(const float *s, int64_t row, int rows, int64_t cols,
                                                     int64_t dstride, float *d)
{
    int r = 0;
    for (; r + 8 <= rows; r += 8) {
        int64_t c = 0;
        for (; c + 8 <= cols; c += 8)
            turn8(s + r * row + c, row, d + c * dstride + r, dstride);
        move_f32(s + r * row + c, row, 1, 8, cols - c, dstride, d + c * dstride + r);
    }
    for (; r + 4 <= rows; r += 4) { /* four rows of four */
        int64_t c = 0;
        for (; c + 4 <= cols; c += 4) {
            const float *p = s + r * row + c;
            __m128 a = _mm_loadu_ps(p), b = _mm_loadu_ps(p + row), e = _mm_loadu_ps(p + 2 * row),
                   f = _mm_loadu_ps(p + 3 * row);
            _MM_TRANSPOSE4_PS(a, b, e, f);
            float *q = d + c * dstride + r;
            _mm_storeu_ps(q, a), _mm_storeu_ps(q + dstride, b), _mm_storeu_ps(q + 2 * dstride, e),
                _mm_storeu_ps(q + 3 * dstride, f);
        }
        move_f32(s + r * row + c, row, 1, 4, cols - c, dstride, d + c * dstride + r);
    }
    move_f32(s + r * row, row, 1, rows - r, cols, dstride, d + r);
}

/* Source rows contiguous: copies. */
__attribute__((target("avx2"))) static void copy_f32(const float *s, int64_t col, int rows, int64_t cols,
                                                     int64_t dstride, float *d)
{
    for (int64_t c = 0; c < cols; c++) {
        const float *p = s + c * col;
        float *q = d + c * dstride;
        int r = 0;
        for (; r + 8 <= rows; r += 8)
            _mm256_storeu_ps(q + r, _mm256_loadu_ps(p + r));
        for (; r < rows; r++)
            q[r] = p[r];
    }
}
#endif

static void zero_rest(bool wide, void *dst, int rows, int width, int64_t cols)
{
    size_t e = wide ? 8 : 4;
    if (rows < width)
        for (int64_t c = 0; c < cols; c++)
            memset((char *)dst + ((size_t)c * (size_t)width + (size_t)rows) * e, 0,
                   (size_t)(width - rows) * e);
}

static void pack(vir_mem type, bool avx2, const void *src, int64_t row, int64_t col, int rows, int width,
                 int64_t cols, void *dst)
{
    switch (type) {
    case VM_f64: move_f64(src, row, col, rows, cols, width, dst); break;
    case VM_f16: move_f16(src, row, col, rows, cols, width, dst); break;
    case VM_bf16: move_bf16(src, row, col, rows, cols, width, dst); break;
    default:
#if defined(__x86_64__)
        if (avx2 && col == 1) {
            turn_f32(src, row, rows, cols, width, dst);
            break;
        }
        if (avx2 && row == 1) {
            copy_f32(src, col, rows, cols, width, dst);
            break;
        }
#endif
        move_f32(src, row, col, rows, cols, width, dst);
    }
    zero_rest(type == VM_f64, dst, rows, width, cols);
}

void gemm_pack_a(vir_mem type, bool avx2, const void *a, int64_t row, int64_t col, int rows, int mr,
                 int64_t k, void *dst)
{
    pack(type, avx2, a, row, col, rows, mr, k, dst);
}
void gemm_pack_b(vir_mem type, bool avx2, const void *b, int64_t row, int64_t col, int cols, int width,
                 int64_t k, void *dst)
{
    pack(type, avx2, b, col, row, cols, width, k, dst);
}
