/* pw_loops.h - expands rows of a pw .def file into loops. Included by the files that hold loops; PW_NAME says
 * how a loop is called. */
#include "ops/pw.h"
#include "ops/simd/vmath.h"

#define P(k)       ((T)par_[k])
#define BITS       ((int)sizeof(T) * 8)
#define DIVI(x, y) ((y) == 0 ? 0 : (y) == -1 ? (T)(0 - (UT)(x)) : (x) / (y))
#define POWI(x, y) ((T)pow_int((x), (y)))

#define IN_1
#define IN_2 const T y = b[k];
#define IN_3 const T y = b[k], z = c[k];

/* One loop, which the compiler vectorises: iterations are independent, o may be exactly a. */
#define LOOP(fname, nin, C, U, O, pa, expr)                                                                  \
    void fname(int64_t n, void *o_, const void *a_, const void *b_, const void *c_, const pw_par *par)       \
    {                                                                                                        \
        typedef C T;                                                                                         \
        typedef U UT TP_UNUSED;                                                                              \
        const __typeof__(par->pa[0]) par_[4] TP_UNUSED = { par->pa[0], par->pa[1], par->pa[2], par->pa[3] }; \
        O *o = o_;                                                                                           \
        const T *a = a_, *b TP_UNUSED = b_, *c TP_UNUSED = c_;                                               \
        _Pragma("GCC ivdep") for (int64_t k = 0; k < n; k++)                                                 \
        {                                                                                                    \
            const T x TP_UNUSED = a[k];                                                                      \
            IN_##nin o[k] = (O)(expr);                                                                       \
        }                                                                                                    \
    }

/* The same in chunks, with a short way for chunks of which no element is `far` (its top bit is set). */
enum { PW_CHUNK = 512 };
#define RANGED(fname, nin, C, near, all, far)                                                          \
    void fname(int64_t n, void *o_, const void *a_, const void *b_, const void *c_, const pw_par *par) \
    {                                                                                                  \
        typedef C T;                                                                                   \
        const double par_[4] TP_UNUSED = { par->f[0], par->f[1], par->f[2], par->f[3] };               \
        T *o = o_;                                                                                     \
        const T *a = a_, *b TP_UNUSED = b_, *c TP_UNUSED = c_;                                         \
        for (int64_t at = 0; at < n; at += PW_CHUNK) {                                                 \
            const int64_t end = MIN(n, at + PW_CHUNK);                                                 \
            BITS_TYPE some = 0;                                                                        \
            for (int64_t k = at; k < end; k++) {                                                       \
                const T x TP_UNUSED = a[k];                                                            \
                IN_##nin some |= (far);                                                                \
            }                                                                                          \
            if (TP_UNLIKELY(some >> (BITS - 1))) {                                                     \
                _Pragma("GCC ivdep") for (int64_t k = at; k < end; k++)                                \
                {                                                                                      \
                    const T x TP_UNUSED = a[k];                                                        \
                    IN_##nin o[k] = (all);                                                             \
                }                                                                                      \
            } else {                                                                                   \
                _Pragma("GCC ivdep") for (int64_t k = at; k < end; k++)                                \
                {                                                                                      \
                    const T x TP_UNUSED = a[k];                                                        \
                    IN_##nin o[k] = (near);                                                            \
                }                                                                                      \
            }                                                                                          \
        }                                                                                              \
    }
/* Far or not, as a number whose top bit says so: what vectors can gather with one instruction. */
#define BITS_OF(v)         _Generic((v), float : bits_f, double : bits_d)(v)
#define BITS_TYPE          __typeof__(BITS_OF((T)0))
#define BY_SIZE(f, d)      ((T)(sizeof(T) == 4 ? (f) : (d)))
#define WITHOUT(v, lo, hi) ((BITS_OF(v) - BITS_OF(lo)) | (BITS_OF(hi) - BITS_OF(v))) /* 0 < lo <= v <= hi */
#define OUTSIDE(v, f, d)   (BITS_OF(BY_SIZE(f, d)) - BITS_OF(M_abs(v)))              /* also NaN */
#define NOT_LOG(v)         WITHOUT(v, BY_SIZE(0x1p-126, 0x1p-1022), BY_SIZE(0x1.fffffep127, 0x1.fffffffffffffp1023))

#define OUT_S(C) C
#define OUT_B(C) uint8_t
#define LOOPS_F(nm, nin, res, fe, ie, be)                              \
    LOOP(PW_NAME(nm, f32), nin, float, float, OUT_##res(float), f, fe) \
    LOOP(PW_NAME(nm, f64), nin, double, double, OUT_##res(double), f, fe)
#define LOOPS_I(nm, nin, res, fe, ie, be)                                     \
    LOOP(PW_NAME(nm, i32), nin, int32_t, uint32_t, OUT_##res(int32_t), i, ie) \
    LOOP(PW_NAME(nm, i64), nin, int64_t, uint64_t, OUT_##res(int64_t), i, ie)
#define LOOPS_B(nm, nin, res, fe, ie, be) LOOP(PW_NAME(nm, b8), nin, uint8_t, uint8_t, uint8_t, i, be)
#define LOOPS_R(nm, nin, res, near, all, far)            \
    RANGED(PW_NAME(nm, f32), nin, float, near, all, far) \
    RANGED(PW_NAME(nm, f64), nin, double, near, all, far)
#define LOOPS_FI(...)                       LOOPS_F(__VA_ARGS__) LOOPS_I(__VA_ARGS__)
#define LOOPS_IB(...)                       LOOPS_I(__VA_ARGS__) LOOPS_B(__VA_ARGS__)
#define LOOPS_FIB(...)                      LOOPS_F(__VA_ARGS__) LOOPS_I(__VA_ARGS__) LOOPS_B(__VA_ARGS__)
#define PW(nm, nin, res, types, fe, ie, be) LOOPS_##types(nm, nin, res, fe, ie, be)
