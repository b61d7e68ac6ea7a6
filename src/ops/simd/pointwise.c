/* pointwise.c - pointwise inner loops, compiled once per instruction set. Plain C that the compiler
 * vectorises. */
#include "ops/pw.h"
#include <math.h>

#define M_exp(x) (sizeof(x) == 4 ? (__typeof__(x))expf((float)(x)) : (__typeof__(x))exp((double)(x)))
#define M_sin(x) (sizeof(x) == 4 ? (__typeof__(x))sinf((float)(x)) : (__typeof__(x))sin((double)(x)))
#define M_cos(x) (sizeof(x) == 4 ? (__typeof__(x))cosf((float)(x)) : (__typeof__(x))cos((double)(x)))

#define P(k)    ((T)par_[k])
#define NO      (T)0 /* never reached: the shape rule refuses the type */
#define SAME(v) (v)

/* S storage type, C compute type, O result type, ld/sto conversions, pa which parameter array.
 * Contiguous operands get their own loop so that the compiler sees unit strides. */
#define LOOP1(fname, S, C, O, ld, sto, pa, expr)                                       \
    static void fname(int64_t n, char *const *p, const int64_t *st, const pw_par *par) \
    {                                                                                  \
        typedef C T TP_UNUSED;                                                         \
        const __typeof__(par->pa[0]) *par_ TP_UNUSED = par->pa;                        \
        if (st[0] == (int64_t)sizeof(O) && st[1] == (int64_t)sizeof(S)) {              \
            O *o = (O *)p[0];                                                          \
            const S *a = (const S *)p[1];                                              \
            for (int64_t k = 0; k < n; k++) {                                          \
                const C x TP_UNUSED = (C)ld(a[k]);                                     \
                o[k] = (O)sto(expr);                                                   \
            }                                                                          \
        } else                                                                         \
            for (int64_t k = 0; k < n; k++) {                                          \
                const C x TP_UNUSED = (C)ld(*(const S *)(p[1] + k * st[1]));           \
                *(O *)(p[0] + k * st[0]) = (O)sto(expr);                               \
            }                                                                          \
    }
#define LOOP2(fname, S, C, O, ld, sto, pa, expr)                                       \
    static void fname(int64_t n, char *const *p, const int64_t *st, const pw_par *par) \
    {                                                                                  \
        typedef C T TP_UNUSED;                                                         \
        const __typeof__(par->pa[0]) *par_ TP_UNUSED = par->pa;                        \
        const int64_t z = (int64_t)sizeof(S);                                          \
        O *o = (O *)p[0];                                                              \
        const S *a = (const S *)p[1], *b = (const S *)p[2];                            \
        if (st[0] == (int64_t)sizeof(O) && st[1] == z && st[2] == z) {                 \
            for (int64_t k = 0; k < n; k++) {                                          \
                const C x TP_UNUSED = (C)ld(a[k]), y TP_UNUSED = (C)ld(b[k]);          \
                o[k] = (O)sto(expr);                                                   \
            }                                                                          \
        } else if (st[0] == (int64_t)sizeof(O) && st[1] == z && st[2] == 0) {          \
            const C y TP_UNUSED = (C)ld(b[0]);                                         \
            for (int64_t k = 0; k < n; k++) {                                          \
                const C x TP_UNUSED = (C)ld(a[k]);                                     \
                o[k] = (O)sto(expr);                                                   \
            }                                                                          \
        } else                                                                         \
            for (int64_t k = 0; k < n; k++) {                                          \
                const C x TP_UNUSED = (C)ld(*(const S *)(p[1] + k * st[1]));           \
                const C y TP_UNUSED = (C)ld(*(const S *)(p[2] + k * st[2]));           \
                *(O *)(p[0] + k * st[0]) = (O)sto(expr);                               \
            }                                                                          \
    }

#define ALL_TYPES(LOOP, nm, fe, ie, be)                                         \
    LOOP(nm##_f32, float, float, float, SAME, SAME, f, fe)                      \
    LOOP(nm##_f64, double, double, double, SAME, SAME, f, fe)                   \
    LOOP(nm##_f16, uint16_t, float, uint16_t, f16_to_f32, f32_to_f16, f, fe)    \
    LOOP(nm##_bf16, uint16_t, float, uint16_t, bf16_to_f32, f32_to_bf16, f, fe) \
    LOOP(nm##_u8, uint8_t, uint8_t, uint8_t, SAME, SAME, i, ie)                 \
    LOOP(nm##_i8, int8_t, int8_t, int8_t, SAME, SAME, i, ie)                    \
    LOOP(nm##_i16, int16_t, int16_t, int16_t, SAME, SAME, i, ie)                \
    LOOP(nm##_i32, int32_t, int32_t, int32_t, SAME, SAME, i, ie)                \
    LOOP(nm##_i64, int64_t, int64_t, int64_t, SAME, SAME, i, ie)                \
    LOOP(nm##_bool, uint8_t, uint8_t, uint8_t, SAME, SAME, i, be)
#define PW1(nm, fe, ie, be) ALL_TYPES(LOOP1, nm, fe, ie, be)
#define PW2(nm, fe, ie, be) ALL_TYPES(LOOP2, nm, fe, ie, be)
#define PWC(nm, e)                                                      \
    LOOP2(nm##_f32, float, float, uint8_t, SAME, SAME, f, e)            \
    LOOP2(nm##_f64, double, double, uint8_t, SAME, SAME, f, e)          \
    LOOP2(nm##_f16, uint16_t, float, uint8_t, f16_to_f32, SAME, f, e)   \
    LOOP2(nm##_bf16, uint16_t, float, uint8_t, bf16_to_f32, SAME, f, e) \
    LOOP2(nm##_u8, uint8_t, uint8_t, uint8_t, SAME, SAME, i, e)         \
    LOOP2(nm##_i8, int8_t, int8_t, uint8_t, SAME, SAME, i, e)           \
    LOOP2(nm##_i16, int16_t, int16_t, uint8_t, SAME, SAME, i, e)        \
    LOOP2(nm##_i32, int32_t, int32_t, uint8_t, SAME, SAME, i, e)        \
    LOOP2(nm##_i64, int64_t, int64_t, uint8_t, SAME, SAME, i, e)        \
    LOOP2(nm##_bool, uint8_t, uint8_t, uint8_t, SAME, SAME, i, e)
#include "ops/pw.def"

#define ROW(nm)                                                                                          \
    [PW_##nm] = { [DT_f32] = nm##_f32, [DT_f64] = nm##_f64,  [DT_f16] = nm##_f16, [DT_bf16] = nm##_bf16, \
                  [DT_u8] = nm##_u8,   [DT_i8] = nm##_i8,    [DT_i16] = nm##_i16, [DT_i32] = nm##_i32,   \
                  [DT_i64] = nm##_i64, [DT_bool] = nm##_bool },
#define PW1(nm, fe, ie, be) ROW(nm)
#define PW2(nm, fe, ie, be) ROW(nm)
#define PWC(nm, e)          ROW(nm)
#define PASTE_(a, b)        a##b
#define PASTE(a, b)         PASTE_(a, b)
const pw_table PASTE(pw_loops_, TP_ISA) = {
#include "ops/pw.def"
};
