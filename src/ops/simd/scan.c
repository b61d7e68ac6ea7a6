/* scan.c - running reductions along packed lines and down packed columns, and the place of column extremes, once
 * per instruction set. Sums and products of floats run in double. */
#include "ops/red.h"
#include "ops/simd/vmath.h"

#define BETTER_max(x, v) ((x) != (x) || ((v) == (v) && (x) >= (v)))
#define BETTER_min(x, v) ((x) != (x) || ((v) == (v) && (x) <= (v)))
#define ADD_f(v, x)      ((v) + (x))
#define MUL_f(v, x)      ((v) * (x))
#define ADD_i(v, x)      ((int64_t)((uint64_t)(v) + (uint64_t)(x)))
#define MUL_i(v, x)      ((int64_t)((uint64_t)(v) * (uint64_t)(x)))

/* T element, A accumulator */
#define FOLD_LINE(nm, sfx, T, A, first, op)                                          \
    static void line_##nm##_##sfx(int64_t n, const void *a_, void *o_, int64_t *idx) \
    {                                                                                \
        const T *a = a_;                                                             \
        T *o = o_;                                                                   \
        A v = first;                                                                 \
        for (int64_t i = 0; i < n; i++) {                                            \
            v = op(v, (A)a[i]);                                                      \
            o[i] = (T)v;                                                             \
        }                                                                            \
    }
#define FOLD_COLS(nm, sfx, T, A, first, op)                                                                  \
    static void cols_##nm##_##sfx(int64_t n, int64_t w, const void *a_, void *o_, int64_t *idx, int64_t row) \
    {                                                                                                        \
        const T *a = a_;                                                                                     \
        T *o = o_;                                                                                           \
        A v[SCAN_COLS];                                                                                      \
        for (int64_t k = 0; k < w; k++)                                                                      \
            v[k] = first;                                                                                    \
        for (int64_t r = 0; r < n; r++, a += row, o += row) {                                                \
            _Pragma("GCC ivdep") for (int64_t k = 0; k < w; k++)                                             \
            {                                                                                                \
                v[k] = op(v[k], (A)a[k]);                                                                    \
                o[k] = (T)v[k];                                                                              \
            }                                                                                                \
        }                                                                                                    \
    }
#define FOLD(...) FOLD_LINE(__VA_ARGS__) FOLD_COLS(__VA_ARGS__)
FOLD(sum, f32, float, double, 0, ADD_f)
FOLD(sum, f64, double, double, 0, ADD_f)
FOLD(sum, i64, int64_t, int64_t, 0, ADD_i)
FOLD(prod, f32, float, double, 1, MUL_f)
FOLD(prod, f64, double, double, 1, MUL_f)
FOLD(prod, i64, int64_t, int64_t, 1, MUL_i)

/* log(e^v + e^x); equal infinities stay what they are */
VM_INL double log_add(double v, double x)
{
    double hi = x > v ? x : v, lo = x > v ? v : x, r = hi + m_log1p_f64(m_exp_f64(lo - hi));
    r = hi == lo ? (fabs(hi) == INFINITY ? hi : r) : r;
    return x != x || v != v ? NAN : r;
}
FOLD_COLS(lse, f32, float, double, -INFINITY, log_add)
FOLD_COLS(lse, f64, double, double, -INFINITY, log_add)

/* I counts rows in the width of T, so that masks have one width */
#define EXTREME(nm, sfx, T, I)                                                                               \
    static void line_##nm##_##sfx(int64_t n, const void *a_, void *o_, int64_t *idx)                         \
    {                                                                                                        \
        const T *a = a_;                                                                                     \
        T *o = o_, v = a[0];                                                                                 \
        int64_t best = 0;                                                                                    \
        enum { Q = 64 };                                                                                     \
        for (int64_t i = 0; i < n;) {                                                                        \
            const int64_t end = MIN(n, i + Q);                                                               \
            int some = end - i <                                                                             \
                       Q; /* most blocks of most data hold nothing better: copies of what there is */        \
            if (!some)                                                                                       \
                for (int64_t k = i; k < i + Q; k++)                                                          \
                    some |= BETTER_##nm(a[k], v);                                                            \
            if (!some)                                                                                       \
                for (int64_t k = i; k < i + Q; k++)                                                          \
                    o[k] = v, idx[k] = best;                                                                 \
            else                                                                                             \
                for (int64_t k = i; k < end; k++) {                                                          \
                    const T x = a[k];                                                                        \
                    if (TP_UNLIKELY(BETTER_##nm(x, v)))                                                      \
                        v = x, best = k;                                                                     \
                    o[k] = v;                                                                                \
                    idx[k] = best;                                                                           \
                }                                                                                            \
            i = end;                                                                                         \
        }                                                                                                    \
    }                                                                                                        \
    static void cols_##nm##_##sfx(int64_t n, int64_t w, const void *a_, void *o_, int64_t *idx, int64_t row) \
    {                                                                                                        \
        const T *a = a_;                                                                                     \
        T *o = o_, v[SCAN_COLS];                                                                             \
        I best[SCAN_COLS] = { 0 };                                                                           \
        memcpy(v, a, sizeof(T) * (size_t)w);                                                                 \
        for (int64_t r = 0; r < n; r++, a += row, o += row, idx += row) {                                    \
            const I at = (I)r;                                                                               \
            _Pragma("GCC ivdep") for (int64_t k = 0; k < w; k++)                                             \
            {                                                                                                \
                const T x = a[k], y = v[k];                                                                  \
                const bool up = BETTER_##nm(x, y);                                                           \
                o[k] = v[k] = up ? x : y;                                                                    \
                best[k] = up ? at : best[k];                                                                 \
            }                                                                                                \
            for (int64_t k = 0; k < w; k++)                                                                  \
                idx[k] = (int64_t)best[k];                                                                   \
        }                                                                                                    \
    }
#define EXTREMES(sfx, T, I) \
    EXTREME(max, sfx, T, I) \
    EXTREME(min, sfx, T, I)
EXTREMES(f32, float, int32_t)
EXTREMES(f64, double, int64_t)
EXTREMES(i64, int64_t, int64_t)

static int type_of(dtype dt) { return dt == DT_f32 ? 0 : dt == DT_f64 ? 1 : dt == DT_i64 ? 2 : 3; }
#define TYPES(how, nm)                                             \
    {                                                              \
        how##_##nm##_f32, how##_##nm##_f64, how##_##nm##_i64, NULL \
    }
#define FLOATS(how, nm)                                \
    {                                                  \
        how##_##nm##_f32, how##_##nm##_f64, NULL, NULL \
    }
#define KINDS(how, lse_)                                                                 \
    {                                                                                    \
        [SCAN_sum] = TYPES(how, sum), [SCAN_prod] = TYPES(how, prod), [SCAN_lse] = lse_, \
        [SCAN_max] = TYPES(how, max), [SCAN_min] = TYPES(how, min)                       \
    }
static scan_line_fn *const lines_of[][4] = KINDS(line,
                                                 { NULL }); /* one line of logarithms: libm is quicker */
static scan_cols_fn *const cols_of[][4] = KINDS(cols, FLOATS(cols, lse));
scan_line_fn *ISA_NAME(scan_line_pick)(scan_kind k, dtype dt) { return lines_of[k][type_of(dt)]; }
scan_cols_fn *ISA_NAME(scan_cols_pick)(scan_kind k, dtype dt) { return cols_of[k][type_of(dt)]; }

/* ---- the extreme of each column and its row ---- */
#define PLACE(nm, sfx, T, I, op)                                                                \
    static void place_##nm##_##sfx(int64_t n, int64_t w, const void *a_, int64_t row, void *o_, \
                                   int64_t *idx)                                                \
    {                                                                                           \
        const T *a = a_;                                                                        \
        T v[SCAN_COLS];                                                                         \
        I best[SCAN_COLS] = { 0 };                                                              \
        memcpy(v, a, sizeof(T) * (size_t)w);                                                    \
        for (int64_t r = 1; r < n; r++) {                                                       \
            const I at = (I)r;                                                                  \
            a += row;                                                                           \
            _Pragma("GCC ivdep") for (int64_t k = 0; k < w; k++)                                \
            {                                                                                   \
                const T x = a[k], y = v[k];                                                     \
                const bool up = x op y || (x != x && y == y);                                   \
                v[k] = up ? x : y;                                                              \
                best[k] = up ? at : best[k];                                                    \
            }                                                                                   \
        }                                                                                       \
        if (o_)                                                                                 \
            memcpy(o_, v, sizeof(T) * (size_t)w);                                               \
        for (int64_t k = 0; k < w; k++)                                                         \
            idx[k] = (int64_t)best[k];                                                          \
    }
#define PLACES(sfx, T, I)    \
    PLACE(max, sfx, T, I, >) \
    PLACE(min, sfx, T, I, <)
PLACES(f32, float, int32_t)
PLACES(f64, double, int64_t)
PLACES(i64, int64_t, int64_t)
place_cols_fn *ISA_NAME(place_cols_pick)(bool min, dtype dt)
{
    static place_cols_fn *const of[2][4] = { TYPES(place, max), TYPES(place, min) };
    return of[min][type_of(dt)];
}

/* ---- the extreme of a packed block and its place: -1 unless it is the first block or beats best; NaN beats all ---- */
#define SEEK(nm, sfx, T, op)                                                             \
    static int64_t seek_##nm##_##sfx(int64_t n, const void *a_, void *best_, bool first) \
    {                                                                                    \
        enum { Q = 256 / sizeof(T) };                                                    \
        const T *a = a_;                                                                 \
        T *best = best_, lane[Q], top = a[0];                                            \
        int64_t i = 0, bad = 0;                                                          \
        if (n >= 2 * Q) {                                                                \
            T odd[Q];                                                                    \
            for (int j = 0; j < Q; j++)                                                  \
                lane[j] = a[j], odd[j] = 0;                                              \
            for (; i + Q <= n; i += Q)                                                   \
                for (int j = 0; j < Q; j++) {                                            \
                    const T x = a[i + j];                                                \
                    lane[j] = x op lane[j] ? x : lane[j];                                \
                    odd[j] = x != x ? (T)1 : odd[j];                                     \
                }                                                                        \
            for (int j = 0; j < Q; j++) {                                                \
                top = lane[j] op top ? lane[j] : top;                                    \
                bad |= odd[j] != 0;                                                      \
            }                                                                            \
        }                                                                                \
        for (; i < n; i++) {                                                             \
            top = a[i] op top ? a[i] : top;                                              \
            bad |= a[i] != a[i];                                                         \
        }                                                                                \
        if (bad) {                                                                       \
            if (!first && *best != *best)                                                \
                return -1;                                                               \
            for (i = 0; a[i] == a[i]; i++)                                               \
                ;                                                                        \
            *best = a[i];                                                                \
            return i;                                                                    \
        }                                                                                \
        if (!first && !(top op * best))                                                  \
            return -1;                                                                   \
        *best = top;                                                                     \
        for (i = 0; a[i] != top; i++)                                                    \
            ;                                                                            \
        return i;                                                                        \
    }
#define SEEKS(sfx, T)    \
    SEEK(max, sfx, T, >) \
    SEEK(min, sfx, T, <)
SEEKS(f32, float)
SEEKS(f64, double)
SEEKS(i32, int32_t)
SEEKS(i64, int64_t)
SEEKS(b8, uint8_t)
seek_fn *ISA_NAME(seek_pick)(bool min, ctype ct)
{
#define EACH(nm)                                                                            \
    {                                                                                       \
        [CT_f32] = seek_##nm##_f32, [CT_f64] = seek_##nm##_f64, [CT_i32] = seek_##nm##_i32, \
        [CT_i64] = seek_##nm##_i64, [CT_b8] = seek_##nm##_b8                                \
    }
    static seek_fn *const of[2][CT_COUNT] = { EACH(max), EACH(min) };
    return of[min][ct];
}
