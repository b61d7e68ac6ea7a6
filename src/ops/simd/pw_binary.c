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
