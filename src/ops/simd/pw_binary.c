/* pw_binary.c - the loops of pw_binary.def, once per instruction set. */
#define PW_NAME(nm, t) ISA_NAME(pw_##nm##_##t)
#include "ops/simd/pw_loops.h"

/* Integer power; negative exponents give 0 except for bases 1 and -1. */
static inline int64_t pow_int(int64_t x, int64_t y)
{
    if (y < 0)
        return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    uint64_t r = 1, b = (uint64_t)x;
    for (; y; y >>= 1, b *= b)
        if (y & 1)
            r *= b;
    return (int64_t)r;
}
#include "ops/pw_binary.def"

/* where(mask, y, z): the first input is bool */
#define WHERE(T, sfx)                                                                                  \
    void ISA_NAME(pw_where_##sfx)(int64_t n, void *o_, const void *a_, const void *b_, const void *c_, \
                                  const pw_par *par)                                                   \
    {                                                                                                  \
        T *o = o_;                                                                                     \
        const uint8_t *m = a_;                                                                         \
        const T *y = b_, *z = c_;                                                                      \
        _Pragma("GCC ivdep") for (int64_t k = 0; k < n; k++) o[k] = m[k] ? y[k] : z[k];                \
    }
WHERE(float, f32)
WHERE(double, f64)
WHERE(int32_t, i32)
WHERE(int64_t, i64)
WHERE(uint8_t, b8)

/* loops in chunks: libm where an operand of the chunk is out of the short way's reach */
enum { CHUNK = 256 };
#define GUARDED(nm, T, F, reach, fast, slow)                                                           \
    void ISA_NAME(pw_##nm##_fast)(int64_t n, void *o_, const void *a_, const void *b_, const void *c_, \
                                  const pw_par *par)                                                   \
    {                                                                                                  \
        T *o = o_;                                                                                     \
        const T *a = a_, *b = b_;                                                                      \
        for (int64_t at = 0; at < n; at += CHUNK, o += CHUNK, a += CHUNK, b += CHUNK) {                \
            int64_t m = MIN(n - at, CHUNK);                                                            \
            F far = 0;                                                                                 \
            for (int64_t k = 0; k < m; k++) {                                                          \
                const T x = a[k], y = b[k];                                                            \
                far |= (reach);                                                                        \
            }                                                                                          \
            if (far) {                                                                                 \
                slow(m, o, a, b, NULL, par);                                                           \
                continue;                                                                              \
            }                                                                                          \
            _Pragma("GCC ivdep") for (int64_t k = 0; k < m; k++)                                       \
            {                                                                                          \
                const T x = a[k], y = b[k];                                                            \
                o[k] = fast(x, y);                                                                     \
            }                                                                                          \
        }                                                                                              \
    }
pw_loop pw_fmod_f32, pw_remainder_f32, pw_div_floor_f32, pw_div_floor_i64;
pw_loop pw_fmod_f64, pw_remainder_f64, pw_div_floor_f64;
#define REMAINDER(T, name, rest)                                                     \
    VM_INL T name(T x, T y)                                                          \
    {                                                                                \
        T m = rest(x, y), up = m + y, one = 1;                                       \
        m = m != 0 ? ((m < 0 ? one : -one) * (y < 0 ? one : -one) < 0 ? up : m) : m; \
        return m;                                                                    \
    }
REMAINDER(float, remainder_fast, m_fmod_f32)
REMAINDER(double, remainder_fast_d, m_fmod_f64)
GUARDED(fmod, float, int, m_quot_big(x, y), m_fmod_f32, pw_fmod_f32)
GUARDED(remainder, float, int, m_quot_big(x, y), remainder_fast, pw_remainder_f32)
VM_INL float floor_div_fast(float xf, float yf)
{
    double x = (double)xf, y = (double)yf, m = (double)m_fmod_f32(xf, yf);
    double d = __builtin_rint((x - m) / y); /* x - m is a whole multiple of y */
    d = m * y < 0 ? d - 1.0 : d;
    return (float)(d == 0 ? copysign(0.0, x * y) : d);
}
GUARDED(div_floor, float, int, m_quot_big(x, y), floor_div_fast, pw_div_floor_f32)
#ifdef __FMA__
VM_INL double floor_div_fast_d(double x, double y)
{
    double m = m_fmod_f64(x, y), d = __builtin_rint((x - m) / y), way = copysign(1.0, y);
    d = m * way < 0 ? d - 1.0 : d;
    return d == 0 ? copysign(0.0, copysign(1.0, x) * way) : d;
}
GUARDED(fmod_f64, double, int64_t, m_quot_big_d(x, y), m_fmod_f64, pw_fmod_f64)
GUARDED(remainder_f64, double, int64_t, m_quot_big_d(x, y), remainder_fast_d, pw_remainder_f64)
GUARDED(div_floor_f64, double, int64_t, m_quot_big_d(x, y), floor_div_fast_d, pw_div_floor_f64)
#else /* only a fused multiplication is exact enough */
#define SLOW(nm)                                                                                       \
    void ISA_NAME(pw_##nm##_f64_fast)(int64_t n, void *o, const void *a, const void *b, const void *c, \
                                      const pw_par *par)                                               \
    {                                                                                                  \
        pw_##nm##_f64(n, o, a, b, c, par);                                                             \
    }
SLOW(fmod)
SLOW(remainder)
SLOW(div_floor)
#endif

/* Floor division of whole numbers below 2^52 through double, which holds quotients and remainders exactly. */
VM_INL int64_t floor_div_near(int64_t x, int64_t y)
{
    return (int64_t)__builtin_floor((double)x / (double)y);
}
void ISA_NAME(pw_div_floor_whole)(int64_t n, void *o_, const void *a_, const void *b_, const void *c_,
                                  const pw_par *par)
{
    const int64_t *a = a_, *b = b_;
    int64_t *o = o_;
    const uint64_t top = 1ull << 52;
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t end = MIN(n, at + CHUNK);
        uint64_t some = 0;
        for (int64_t k = at; k < end; k++) { /* the top bit: beyond 2^52 either way, or divided by zero */
            const uint64_t x = (uint64_t)a[k], y = (uint64_t)b[k];
            some |= (x + top) | (top - x) | (y + top) | (top - y) | (y == 0 ? 1ull << 63 : 0);
        }
        if (some >> 63)
            pw_div_floor_i64(end - at, o + at, a + at, b + at, NULL, par);
        else
            _Pragma("GCC ivdep") for (int64_t k = at; k < end; k++) o[k] = floor_div_near(a[k], b[k]);
    }
}
