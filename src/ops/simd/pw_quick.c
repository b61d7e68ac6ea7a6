/* pw_quick.c - short ways of the four arithmetic operators, once per instruction set: 16-bit operands converted in
 * registers, and an operand that is one number. */
#include "ops/pw.h"
#if defined(__F16C__)
#include <immintrin.h>
#endif

#define QUICK(nm, ...)                                                                                     \
    static void nm(int64_t n, void *o_, const void *a_, const void *b_, const void *c_, const pw_par *par) \
    {                                                                                                      \
        __VA_ARGS__                                                                                        \
    }
#define EACH _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)

#if defined(__AVX512F__)
enum { LANES = 16 };
typedef __m512 vec;
#define UP(p)      _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p)))
#define DOWN(p, v) _mm256_storeu_si256((void *)(p), _mm512_cvtps_ph(v, 0))
#elif defined(__F16C__)
enum { LANES = 8 };
typedef __m256 vec;
#define UP(p)      _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p)))
#define DOWN(p, v) _mm_storeu_si128((void *)(p), _mm256_cvtps_ph(v, 0))
#else
enum { LANES = 1 };
typedef float vec;
#define UP(p)      f16_to_f32(*(p))
#define DOWN(p, v) *(p) = f32_to_f16(v)
#endif

#define FORMS(nm, op)                                                                                 \
    QUICK(                                                                                            \
        nm##_f16, uint16_t *o = o_, x[LANES] = { 0 }, y[LANES] = { 0 }, r[LANES];                     \
        const uint16_t *a = a_, *b = b_; int64_t i = 0; for (; i + LANES <= n; i += LANES) {          \
            vec v = UP(a + i) op UP(b + i);                                                           \
            DOWN(o + i, v);                                                                           \
        } if (i < n) {                                                                                \
            memcpy(x, a + i, (size_t)(n - i) * 2);                                                    \
            memcpy(y, b + i, (size_t)(n - i) * 2);                                                    \
            vec v = UP(x) op UP(y);                                                                   \
            DOWN(r, v);                                                                               \
            memcpy(o + i, r, (size_t)(n - i) * 2);                                                    \
        })                                                                                            \
    QUICK(nm##_bf16, uint16_t *o = o_; const uint16_t *a = a_, *b = b_;                               \
          EACH o[i] = f32_to_bf16(bf16_to_f32(a[i]) op bf16_to_f32(b[i]));)                           \
    QUICK(nm##_x, float *o = o_; const float *b = b_, x = *(const float *)a_; EACH o[i] = x op b[i];) \
    QUICK(nm##_y, float *o = o_; const float *a = a_, y = *(const float *)b_; EACH o[i] = a[i] op y;) \
    static const pw_quick_row nm##_row = { nm##_f16, nm##_bf16, nm##_x, nm##_y };
FORMS(add, +)
FORMS(sub, -)
FORMS(mul, *)
FORMS(div, /)

const pw_quick_row *ISA_NAME(pw_quick)(pw_id id)
{
    switch (id) {
    case PW_add1: return &add_row;
    case PW_sub1: return &sub_row;
    case PW_mul: return &mul_row;
    case PW_div: return &div_row;
    default: return NULL;
    }
}
