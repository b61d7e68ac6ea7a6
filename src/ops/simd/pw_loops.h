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

#define OUT_S(C) C
#define OUT_B(C) uint8_t
#define LOOPS_F(nm, nin, res, fe, ie, be)                              \
    LOOP(PW_NAME(nm, f32), nin, float, float, OUT_##res(float), f, fe) \
    LOOP(PW_NAME(nm, f64), nin, double, double, OUT_##res(double), f, fe)
#define LOOPS_I(nm, nin, res, fe, ie, be)                                     \
    LOOP(PW_NAME(nm, i32), nin, int32_t, uint32_t, OUT_##res(int32_t), i, ie) \
    LOOP(PW_NAME(nm, i64), nin, int64_t, uint64_t, OUT_##res(int64_t), i, ie)
#define LOOPS_B(nm, nin, res, fe, ie, be)   LOOP(PW_NAME(nm, b8), nin, uint8_t, uint8_t, uint8_t, i, be)
#define LOOPS_FI(...)                       LOOPS_F(__VA_ARGS__) LOOPS_I(__VA_ARGS__)
#define LOOPS_IB(...)                       LOOPS_I(__VA_ARGS__) LOOPS_B(__VA_ARGS__)
#define LOOPS_FIB(...)                      LOOPS_F(__VA_ARGS__) LOOPS_I(__VA_ARGS__) LOOPS_B(__VA_ARGS__)
#define PW(nm, nin, res, types, fe, ie, be) LOOPS_##types(nm, nin, res, fe, ie, be)
