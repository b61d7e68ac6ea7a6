/* reduce.c - combining the elements of several ranks, by type and operation. */
#include "comm/comm.h"

const char *const comm_red_names[CRED_COUNT] = { "sum", "avg", "prod", "min", "max", "band", "bor", "bxor" };

bool comm_red_fits(dtype dt, comm_red op, tp_err *err)
{
    if (!dtype_is_plain(dt))
        return err_set(err, ERR_notimpl, "%s of elements of type %s is not supported between ranks",
                       comm_red_names[op], dtype_name(dt));
    if (op >= CRED_band && dtype_is_float(dt))
        return err_set(err, ERR_runtime, "%s is an operation on bits and does not fit elements of type %s",
                       comm_red_names[op], dtype_name(dt));
    return true;
}

/* Minimum and maximum keep NaN, as the operators do. */
#define LOOP(e)                     \
    for (int64_t i = 0; i < n; i++) \
        acc[i] = (e);               \
    break
#define ARITHMETIC(T, less, greater)           \
    case CRED_sum:                             \
    case CRED_avg: LOOP((T)(acc[i] + x[i]));   \
    case CRED_prod: LOOP((T)(acc[i] * x[i]));  \
    case CRED_min: LOOP(less ? acc[i] : x[i]); \
    case CRED_max:                             \
        LOOP(greater ? acc[i] : x[i])
#define INTEGERS(name, T)                                                                   \
    static void reduce_##name(comm_red op, T *restrict acc, const T *restrict x, int64_t n) \
    {                                                                                       \
        switch (op) {                                                                       \
            ARITHMETIC(T, acc[i]<x[i], acc[i]> x[i]);                                       \
        case CRED_band: LOOP(acc[i] & x[i]);                                                \
        case CRED_bor: LOOP(acc[i] | x[i]);                                                 \
        case CRED_bxor: LOOP(acc[i] ^ x[i]);                                                \
        default: break;                                                                     \
        }                                                                                   \
    }
#define FLOATS(name, T)                                                                       \
    static void reduce_##name(comm_red op, T *restrict acc, const T *restrict x, int64_t n)   \
    {                                                                                         \
        switch (op) {                                                                         \
            ARITHMETIC(T, acc[i]<x[i] || acc[i] != acc[i], acc[i]> x[i] || acc[i] != acc[i]); \
        default: break;                                                                       \
        }                                                                                     \
    }
INTEGERS(u8, uint8_t)
INTEGERS(i8, int8_t)
INTEGERS(i16, int16_t)
INTEGERS(i32, uint32_t) /* sums and products wrap; order is looked at below */
INTEGERS(i64, uint64_t)
FLOATS(f32, float)
FLOATS(f64, double)

#define SIGNED(name, T)                                                                    \
    static void order_##name(comm_red op, T *restrict acc, const T *restrict x, int64_t n) \
    {                                                                                      \
        for (int64_t i = 0; i < n; i++)                                                    \
            acc[i] = (op == CRED_min) == (acc[i] < x[i]) ? acc[i] : x[i];                  \
    }
SIGNED(i32, int32_t)
SIGNED(i64, int64_t)

static void reduce_bool(comm_red op, uint8_t *acc, const uint8_t *x, int64_t n)
{
    static const comm_red as[CRED_COUNT] = { CRED_bor, CRED_band, CRED_band, CRED_band,
                                             CRED_bor, CRED_band, CRED_bor,  CRED_bxor };
    reduce_u8(as[op], acc, x, n);
}

static float load16(dtype dt, uint16_t v) { return dt == DT_f16 ? f16_to_f32(v) : bf16_to_f32(v); }
static uint16_t store16(dtype dt, float v) { return dt == DT_f16 ? f32_to_f16(v) : f32_to_bf16(v); }
enum { BLOCK = 512 };

static void reduce_narrow(dtype dt, comm_red op, uint16_t *acc, const uint16_t *x, int64_t n)
{
    float a[BLOCK], b[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = MIN(BLOCK, n - at);
        for (int64_t i = 0; i < m; i++)
            a[i] = load16(dt, acc[at + i]), b[i] = load16(dt, x[at + i]);
        reduce_f32(op, a, b, m);
        for (int64_t i = 0; i < m; i++)
            acc[at + i] = store16(dt, a[i]);
    }
}

void comm_reduce(dtype dt, comm_red op, void *acc, const void *x, int64_t n)
{
    bool orders = op == CRED_min || op == CRED_max;
    switch (dt) {
    case DT_bool: reduce_bool(op, acc, x, n); break;
    case DT_u8: reduce_u8(op, acc, x, n); break;
    case DT_i8: reduce_i8(op, acc, x, n); break;
    case DT_i16: reduce_i16(op, acc, x, n); break;
    case DT_i32: orders ? order_i32(op, acc, x, n) : reduce_i32(op, acc, x, n); break;
    case DT_i64: orders ? order_i64(op, acc, x, n) : reduce_i64(op, acc, x, n); break;
    case DT_f16:
    case DT_bf16: reduce_narrow(dt, op, acc, x, n); break;
    case DT_f32: reduce_f32(op, acc, x, n); break;
    case DT_f64: reduce_f64(op, acc, x, n); break;
    default: assert(!"a dtype that tensors have");
    }
}

static void all_narrow(dtype dt, comm_red op, uint16_t *out, const void *const *x, int nx, int64_t n)
{
    float a[BLOCK], b[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = MIN(BLOCK, n - at);
        for (int r = 0; r < nx; r++) {
            const uint16_t *p = (const uint16_t *)x[r] + at;
            float *to = r ? b : a;
            for (int64_t i = 0; i < m; i++)
                to[i] = load16(dt, p[i]);
            if (r)
                reduce_f32(op, a, b, m);
        }
        for (int64_t i = 0; i < m; i++)
            out[at + i] = store16(dt, op == CRED_avg ? a[i] / (float)nx : a[i]);
    }
}

#define DIVIDE(T)                               \
    for (int64_t i = 0; i < n; i++)             \
        ((T *)p)[i] = (T)(((T *)p)[i] / (T)nx); \
    break
void comm_divide(dtype dt, void *p, int nx, int64_t n)
{
    switch (dt) {
    case DT_f32: DIVIDE(float);
    case DT_f64: DIVIDE(double);
    case DT_u8: DIVIDE(uint8_t);
    case DT_i8: DIVIDE(int8_t);
    case DT_i16: DIVIDE(int16_t);
    case DT_i32: DIVIDE(int32_t);
    case DT_i64: DIVIDE(int64_t);
    case DT_f16:
    case DT_bf16:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)p)[i] = store16(dt, load16(dt, ((uint16_t *)p)[i]) / (float)nx);
        break;
    default: break; /* the average of bools is their sum */
    }
}

void comm_reduce_all(dtype dt, comm_red op, void *out, const void *const *x, int nx, int64_t n)
{
    size_t size = dtype_size(dt);
    if (dt == DT_f16 || dt == DT_bf16) {
        all_narrow(dt, op, out, x, nx, n);
        return;
    }
    /* In pieces that stay in the cache while the ranks are added to them. */
    for (int64_t at = 0; at < n; at += 4096) {
        int64_t m = MIN(4096, n - at);
        char *to = (char *)out + (size_t)at * size;
        memcpy(to, (const char *)x[0] + (size_t)at * size, (size_t)m * size);
        for (int r = 1; r < nx; r++)
            comm_reduce(dt, op, to, (const char *)x[r] + (size_t)at * size, m);
        if (op == CRED_avg)
            comm_divide(dt, to, nx, m);
    }
}
