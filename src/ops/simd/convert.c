/* convert.c - packed conversion between every pair of element types, once per instruction set.
 * Float to integer truncates; out of range follows the machine. */
#include "ops/pw.h"

#if defined(__F16C__)
#include <immintrin.h>
static inline float half_up(uint16_t h) { return _cvtsh_ss(h); }
static inline uint16_t half_down(float f) { return _cvtss_sh(f, 0); }
#else
#define half_up   f16_to_f32
#define half_down f32_to_f16
#endif

enum { DT_b8 = DT_bool }; /* `bool` is a macro and would expand */
typedef uint8_t C_b8, C_u8;
typedef int8_t C_i8;
typedef int16_t C_i16;
typedef int32_t C_i32;
typedef int64_t C_i64;
typedef uint16_t C_f16, C_bf16;
typedef float C_f32;
typedef double C_f64;
#define LD_b8(v)   ((v) != 0)
#define LD_u8(v)   (v)
#define LD_i8(v)   (v)
#define LD_i16(v)  (v)
#define LD_i32(v)  (v)
#define LD_i64(v)  (v)
#define LD_f16(v)  half_up(v)
#define LD_bf16(v) bf16_to_f32(v)
#define LD_f32(v)  (v)
#define LD_f64(v)  (v)
#define ST_b8(v)   ((v) != 0)
#define ST_u8(v)   ((uint8_t)(int64_t)(v))
#define ST_i8(v)   ((int8_t)(int64_t)(v))
#define ST_i16(v)  ((int16_t)(int64_t)(v))
#define ST_i32(v)  ((int32_t)(int64_t)(v))
#define ST_i64(v)  ((int64_t)(v))
#define ST_f16(v)  half_down((float)(v))
#define ST_bf16(v) f32_to_bf16((float)(v))
#define ST_f32(v)  ((float)(v))
#define ST_f64(v)  ((double)(v))

#define CONV(d, s)                                                                                       \
    __attribute__((no_sanitize("float-cast-overflow"))) static void conv_##d##_##s(int64_t n, void *dst, \
                                                                                   const void *src)      \
    {                                                                                                    \
        C_##d *o = dst;                                                                                  \
        const C_##s *a = src;                                                                            \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[i] = ST_##d(LD_##s(a[i]));                \
    }
#define FOR_TYPES(X, d) \
    X(d, b8) X(d, u8) X(d, i8) X(d, i16) X(d, i32) X(d, i64) X(d, f16) X(d, bf16) X(d, f32) X(d, f64)
#define ROW(d, s) [DT_##s] = conv_##d##_##s,
#define TABLE(d)  [DT_##d] = { FOR_TYPES(ROW, d) },
#define ALL(X)    X(b8) X(u8) X(i8) X(i16) X(i32) X(i64) X(f16) X(bf16) X(f32) X(f64)
#define CONVS(d)  FOR_TYPES(CONV, d)
ALL(CONVS)

#if defined(__AVX512F__) && defined(__GNUC__)
/* The common narrow conversions by hand: the compiler does not vectorise the scalar intrinsics. */
static void f16_up(int64_t n, void *dst, const void *src)
{
    float *o = dst;
    const uint16_t *a = src;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(o + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(a + i))));
    for (; i < n; i++)
        o[i] = half_up(a[i]);
}
static void f16_down(int64_t n, void *dst, const void *src)
{
    uint16_t *o = dst;
    const float *a = src;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(o + i), _mm512_cvtps_ph(_mm512_loadu_ps(a + i), 0));
    for (; i < n; i++)
        o[i] = half_down(a[i]);
}
#elif defined(__F16C__)
static void f16_up(int64_t n, void *dst, const void *src)
{
    float *o = dst;
    const uint16_t *a = src;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(o + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(a + i))));
    for (; i < n; i++)
        o[i] = half_up(a[i]);
}
static void f16_down(int64_t n, void *dst, const void *src)
{
    uint16_t *o = dst;
    const float *a = src;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(o + i), _mm256_cvtps_ph(_mm256_loadu_ps(a + i), 0));
    for (; i < n; i++)
        o[i] = half_down(a[i]);
}
#else
#define f16_up   conv_f32_f16
#define f16_down conv_f16_f32
#endif

static conv_fn *const table[DT_COUNT][DT_COUNT] = { ALL(TABLE) };
conv_fn *ISA_NAME(conv_pick)(dtype d, dtype s)
{
    if (d == DT_f32 && s == DT_f16)
        return f16_up;
    if (d == DT_f16 && s == DT_f32)
        return f16_down;
    return table[d][s];
}

/* n copies of one element */
void ISA_NAME(fill_packed)(int64_t n, void *buf, const void *v, size_t es)
{
#define FILL(T)                         \
    {                                   \
        const T x = *(const T *)v;      \
        T *o = buf;                     \
        for (int64_t i = 0; i < n; i++) \
            o[i] = x;                   \
        break;                          \
    }
    switch (es) {
    case 1: FILL(uint8_t)
    case 2: FILL(uint16_t)
    case 4: FILL(uint32_t)
    case 16: FILL(wide_elem)
    default: FILL(uint64_t)
    }
}
