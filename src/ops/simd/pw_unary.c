/* pw_unary.c - the loops of pw_unary.def, once per instruction set. */
#define PW_NAME(nm, t) ISA_NAME(pw_##nm##_##t)
#include "ops/simd/pw_loops.h"
#include "ops/pw_unary.def"

/* sin, cos, tan: libm where an argument of the chunk is too large for the short reduction. */
enum { CHUNK = 256 };
#define TRIG(nm, T, sfx, big)                                                                           \
    void ISA_NAME(pw_##nm##_##sfx)(int64_t n, void *o_, const void *a_, const void *b_, const void *c_, \
                                   const pw_par *par)                                                   \
    {                                                                                                   \
        T *o = o_;                                                                                      \
        const T *a = a_;                                                                                \
        for (int64_t at = 0; at < n; at += CHUNK, o += CHUNK, a += CHUNK) {                             \
            int64_t m = MIN(n - at, CHUNK);                                                             \
            int far = 0;                                                                                \
            for (int64_t k = 0; k < m; k++)                                                             \
                far |= M_abs(a[k]) > (T)VM_TRIG_MAX;                                                    \
            if (far) {                                                                                  \
                for (int64_t k = 0; k < m; k++)                                                         \
                    o[k] = big(a[k]);                                                                   \
            } else {                                                                                    \
                _Pragma("GCC ivdep") for (int64_t k = 0; k < m; k++) o[k] = m_##nm##_##sfx(a[k]);       \
            }                                                                                           \
        }                                                                                               \
    }
TRIG(sin, float, f32, sinf)
TRIG(sin, double, f64, sin)
TRIG(cos, float, f32, cosf)
TRIG(cos, double, f64, cos)
TRIG(tan, float, f32, tanf)
TRIG(tan, double, f64, tan)
