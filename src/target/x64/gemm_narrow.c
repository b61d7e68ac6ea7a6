/* gemm_narrow.c - operands and results of products of narrow numbers: groups of four bytes along k, rows of tiles, and rows
 * of results from and to float. */
#include "target/x64/gemm_int.h"
#include "vir/math/vnum.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static int bytes_of(vir_mem t) { return t == VM_f32 ? 4 : t == VM_bf16 ? 2 : 1; }

/* One group: elements k .. k + per of a row, zero from `end` on. */
static uint32_t group(vir_mem type, int per, const char *src, int64_t col, int64_t k, int64_t end)
{
    uint32_t g = 0;
    for (int i = 0; i < per && k + i < end; i++) {
        int64_t at = (k + i) * col;
        uint32_t v = type == VM_f32    ? vnum_to_bf16(((const float *)(const void *)src)[at])
                     : type == VM_bf16 ? ((const uint16_t *)(const void *)src)[at]
                                       : (uint8_t)src[at];
        g |= v << (i * (32 / per));
    }
    return g;
}

#if defined(__x86_64__)
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
/* As vnum_to_bf16, in the low halves. */
AVX512 static inline __m512i rounded(__m512 v)
{
    __m512i u = _mm512_castps_si512(v), one = _mm512_set1_epi32(1);
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)),
                                 _mm512_and_si512(_mm512_srli_epi32(u, 16), one));
    return _mm512_mask_mov_epi32(_mm512_srli_epi32(r, 16), _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q),
                                 _mm512_set1_epi32(0x7fc0));
}
AVX512 static inline __m512i pairs_of(__m512i lo, __m512i hi)
{
    return _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16));
}
/* 32 floats in a row become 16 pairs. */
AVX512 static inline __m512i pairs_in_row(const float *p)
{
    __m256i a = _mm512_cvtepi32_epi16(rounded(_mm512_loadu_ps(p))),
            b = _mm512_cvtepi32_epi16(rounded(_mm512_loadu_ps(p + 16)));
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

/* Elements of one k lie together: two rows of them are put into each other. */
AVX512 static void interleave(vir_mem type, const char *src, int64_t col, int rows, int width, int64_t pairs,
                              uint32_t *dst)
{
    for (int64_t g = 0; g < pairs; g++)
        for (int r = 0; r < rows; r += 16) {
            __mmask16 m = (__mmask16)(rows - r >= 16 ? 0xffff : (1 << (rows - r)) - 1);
            __m512i v[2];
            for (int i = 0; i < 2; i++) {
                const char *p = src + ((2 * g + i) * col + r) * bytes_of(type);
                v[i] = type == VM_f32 ? rounded(_mm512_maskz_loadu_ps(m, p))
                                      : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p));
            }
            _mm512_mask_storeu_epi32(dst + g * width + r, m, pairs_of(v[0], v[1]));
        }
}

/* Floats, those of a row together: sixteen groups of every row are rounded, then turned. */
AVX512 static void round_and_turn(const float *src, int64_t row, int rows, int width, int64_t pairs,
                                  uint32_t *dst)
{
    uint32_t part[GEMM_WIDEST * 16][16];
    for (int64_t g = 0; g + 16 <= pairs; g += 16) {
        for (int r = 0; r < rows; r++)
            _mm512_storeu_si512(part[r], pairs_in_row(src + r * row + 2 * g));
        gemm_turn_f32(ISA_avx512, (const float *)(const void *)part, 16, rows, 16, width,
                      (float *)(void *)(dst + g * width));
    }
}

/* How many groups were made; the others are made one by one. */
static int64_t groups_fast(vir_mem type, int per, const char *src, int64_t row, int64_t col, int rows,
                           int width, int64_t whole, uint32_t *dst)
{
    if (row == 1 && per == 2 && rows > 1) {
        interleave(type, src, col, rows, width, whole, dst);
        return whole;
    }
    if (col != 1)
        return 0;
    if (type == VM_f32) {
        round_and_turn((const float *)(const void *)src, row, rows, width, whole, dst);
        return whole / 16 * 16;
    }
    if (row % per)
        return 0;
    gemm_turn_f32(ISA_avx512, (const float *)(const void *)src, row / per, rows, whole, width,
                  (float *)(void *)dst);
    return whole;
}

AVX512 static int64_t flip_fast(uint32_t *p, int64_t n, uint32_t flip)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_si512(p + i, _mm512_xor_si512(_mm512_loadu_si512(p + i), _mm512_set1_epi32((int)flip)));
    return i;
}
/* With the sign turned round they are sums of differences from zero, 128 too much each. */
__attribute__((target("avx2"))) static int64_t sum_fast(const int8_t *x, int64_t n, int32_t *sum)
{
    __m256i s = _mm256_setzero_si256(), zero = s, flip = _mm256_set1_epi8((char)0x80);
    int64_t i = 0, part[4];
    for (; i + 32 <= n; i += 32) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + i));
        s = _mm256_add_epi64(s, _mm256_sad_epu8(_mm256_xor_si256(v, flip), zero));
    }
    _mm256_storeu_si256((__m256i *)(void *)part, s);
    *sum = (int32_t)(part[0] + part[1] + part[2] + part[3] - 128 * i);
    return i;
}

AVX512 static void row_of_tile(vir_mem type, const char *src, int64_t n, char *dst)
{
    if (type == VM_f32 && n >= 32) {
        _mm512_storeu_si512(dst, pairs_in_row((const float *)(const void *)src));
    } else if (type == VM_f32) {
        for (int i = 0; i < 16; i++)
            ((uint32_t *)(void *)dst)[i] = group(type, 2, src, 1, 2 * i, n);
    } else {
        int64_t bytes = MIN(n * bytes_of(type), 64);
        __mmask64 m = bytes == 64 ? ~(__mmask64)0 : ((__mmask64)1 << bytes) - 1;
        _mm512_storeu_si512(dst, _mm512_maskz_loadu_epi8(m, src));
    }
}
#else
static int64_t groups_fast(vir_mem type, int per, const char *src, int64_t row, int64_t col, int rows,
                           int width, int64_t whole, uint32_t *dst)
{
    return 0;
}
static int64_t flip_fast(uint32_t *p, int64_t n, uint32_t flip) { return 0; }
static int64_t sum_fast(const int8_t *x, int64_t n, int32_t *sum) { return *sum = 0; }
static void row_of_tile(vir_mem type, const char *src, int64_t n, char *dst)
{
    int per = type == VM_i8 ? 4 : 2;
    for (int i = 0; i < 16; i++)
        ((uint32_t *)(void *)dst)[i] = group(type, per, src, 1, per * i, n);
}
#endif

void gemm_pack_groups(vir_mem type, int per, uint32_t flip, const void *src, int64_t row, int64_t col,
                      int rows, int width, int64_t k, int64_t groups, void *to)
{
    uint32_t *dst = to;
    const char *s = src;
    int64_t done = groups_fast(type, per, s, row, col, rows, width, k / per, dst);
    for (int64_t g = done; g < groups; g++)
        for (int r = 0; r < rows; r++)
            dst[g * width + r] = group(type, per, s + r * row * bytes_of(type), col, g * per, k);
    for (int64_t g = 0; g < groups && rows < width; g++)
        memset(dst + g * width + rows, 0, sizeof *dst * (size_t)(width - rows));
    for (int64_t i = flip ? flip_fast(dst, groups * width, flip) : groups * width; i < groups * width; i++)
        dst[i] ^= flip;
}

int32_t gemm_sum_bytes(const int8_t *x, int64_t n)
{
    int32_t sum;
    for (int64_t i = sum_fast(x, n, &sum); i < n; i++)
        sum += x[i];
    return sum;
}

void gemm_pack_tiles(vir_mem type, int per, const void *src, int64_t row, int64_t col, int rows, int mr,
                     int64_t k, void *to)
{
    char *dst = to;
    const char *s = src;
    int64_t each = 16 * per;
    for (int64_t at = 0; at < k; at += each, dst += mr * 64) {
        const char *from = s + at * col * bytes_of(type);
        int64_t n = MIN(each, k - at);
        if (col == 1) {
            for (int r = 0; r < rows; r++)
                row_of_tile(type, from + r * row * bytes_of(type), n, dst + r * 64);
        } else {
            uint32_t part[16][32];
            gemm_pack_groups(type, per, 0, from, row, col, rows, mr, n, 16, part);
            for (int r = 0; r < rows; r++)
                for (int g = 0; g < 16; g++)
                    ((uint32_t *)(void *)dst)[r * 16 + g] = ((uint32_t *)part)[g * mr + r];
        }
        memset(dst + rows * 64, 0, (size_t)(mr - rows) * 64);
    }
}

/* --- rows of results ---------------------------------------------------------------------------------------------------- */
#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,f16c")))
AVX2 static int64_t narrow_fast(vir_mem type, const float *src, int64_t n, uint16_t *dst)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(src + i);
        __m128i h;
        if (type == VM_f16) {
            h = _mm256_cvtps_ph(v, 0);
        } else {
            __m256i u = _mm256_castps_si256(v);
            __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
            u = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
            u = _mm256_blendv_epi8(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x7fc0),
                                   _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
            h = _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1));
        }
        _mm_storeu_si128((__m128i *)(void *)(dst + i), h);
    }
    return i;
}
AVX2 static int64_t widen_fast(vir_mem type, const uint16_t *src, int64_t n, float *dst)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
        _mm256_storeu_ps(dst + i, type == VM_f16
                                      ? _mm256_cvtph_ps(h)
                                      : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)));
    }
    return i;
}
#else
static int64_t narrow_fast(vir_mem type, const float *src, int64_t n, uint16_t *dst) { return 0; }
static int64_t widen_fast(vir_mem type, const uint16_t *src, int64_t n, float *dst) { return 0; }
#endif

void gemm_narrow_row(vir_mem type, gen_isa isa, const float *src, int64_t n, uint16_t *dst)
{
    for (int64_t i = isa == ISA_none ? 0 : narrow_fast(type, src, n, dst); i < n; i++)
        dst[i] = type == VM_f16 ? vnum_to_f16(src[i]) : vnum_to_bf16(src[i]);
}
void gemm_widen_row(vir_mem type, gen_isa isa, const uint16_t *src, int64_t n, float *dst)
{
    for (int64_t i = isa == ISA_none ? 0 : widen_fast(type, src, n, dst); i < n; i++)
        dst[i] = type == VM_f16 ? vnum_from_f16(src[i]) : vnum_from_bf16(src[i]);
}
