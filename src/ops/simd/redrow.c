/* redrow.c - see ops/redrow.h; once per instruction set. */
#include "ops/redrow.h"

#define LD_id(x)    (x)
#define ST_id(T, v) ((T)(v))
#define LD_h(x)     f16_to_f32(x)
#define ST_h(T, v)  f32_to_f16(v)
#define LD_bh(x)    bf16_to_f32(x)
#define ST_bh(T, v) f32_to_bf16(v)
#define WRAP(op)    ((int64_t)((uint64_t)x op(uint64_t) y))

#define ROW(name, dt, T, A, LD, ST, e)                                                                       \
    static void name##_##dt(int64_t n, char *dst, const int64_t *m, int64_t ds, const char *src, int64_t ss) \
    {                                                                                                        \
        T *d = (T *)dst;                                                                                     \
        const T *s = (const T *)src;                                                                         \
        if (m)                                                                                               \
            for (int64_t i = 0; i < n; i++) {                                                                \
                A x = LD(d[m[i]]), y = LD(s[i * ss]);                                                        \
                (void)x, d[m[i]] = ST(T, e);                                                                 \
            }                                                                                                \
        else if (ds == 1 && ss == 1) {                                                                       \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                             \
            {                                                                                                \
                A x = LD(d[i]), y = LD(s[i]);                                                                \
                (void)x, d[i] = ST(T, e);                                                                    \
            }                                                                                                \
        } else if (ds == 1 && ss == 0) {                                                                     \
            const A y = LD(*s);                                                                              \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                             \
            {                                                                                                \
                A x = LD(d[i]);                                                                              \
                (void)x, d[i] = ST(T, e);                                                                    \
            }                                                                                                \
        } else                                                                                               \
            for (int64_t i = 0; i < n; i++) {                                                                \
                A x = LD(d[i * ds]), y = LD(s[i * ss]);                                                      \
                (void)x, d[i * ds] = ST(T, e);                                                               \
            }                                                                                                \
    }
#define INT(dt, T)                                        \
    ROW(set, dt, T, int64_t, LD_id, ST_id, y)             \
    ROW(add, dt, T, int64_t, LD_id, ST_id, WRAP(+))       \
    ROW(mul, dt, T, int64_t, LD_id, ST_id, WRAP(*))       \
    ROW(max, dt, T, int64_t, LD_id, ST_id, x > y ? x : y) \
    ROW(min, dt, T, int64_t, LD_id, ST_id, x < y ? x : y)
#define FLT(dt, T, A, LD, ST)                             \
    ROW(set, dt, T, A, LD, ST, y)                         \
    ROW(add, dt, T, A, LD, ST, x + y)                     \
    ROW(mul, dt, T, A, LD, ST, x *y)                      \
    ROW(max, dt, T, A, LD, ST, (x > y || x != x) ? x : y) \
    ROW(min, dt, T, A, LD, ST, (x < y || x != x) ? x : y)
ROW(set, b8, uint8_t, int, LD_id, ST_id, y)
ROW(add, b8, uint8_t, int, LD_id, ST_id, x | y)
ROW(mul, b8, uint8_t, int, LD_id, ST_id, x &y)
ROW(max, b8, uint8_t, int, LD_id, ST_id, x | y)
ROW(min, b8, uint8_t, int, LD_id, ST_id, x &y)
INT(u8, uint8_t)
INT(i8, int8_t)
INT(i16, int16_t)
INT(i32, int32_t)
INT(i64, int64_t)
FLT(f16, uint16_t, float, LD_h, ST_h)
FLT(bf16, uint16_t, float, LD_bh, ST_bh)
FLT(f32, float, float, LD_id, ST_id)
FLT(f64, double, double, LD_id, ST_id)

enum { DT_b8 = DT_bool };
#define OPS(dt)                         \
    [DT_##dt] = { [RED_set] = set_##dt, \
                  [RED_add] = add_##dt, \
                  [RED_mul] = mul_##dt, \
                  [RED_max] = max_##dt, \
                  [RED_min] = min_##dt },
static redrow_fn *const table[DT_COUNT][RED_COUNT] = { OPS(b8) OPS(u8) OPS(i8) OPS(i16) OPS(i32) OPS(i64)
                                                           OPS(f16) OPS(bf16) OPS(f32) OPS(f64) };

redrow_fn *ISA_NAME(redrow_of)(red_op op, dtype dt) { return table[dt][op]; }
