/* reduce.c - inner loops of reductions and of softmax, once per instruction set.
 * Rows accumulate in many lanes, sums of floats in double: as fast as memory, and accurate whatever the
 * length. */
#include "ops/red.h"
#include "ops/simd/vmath.h"

enum { LANES = 64, PIECE = 4096 };
#define LOWEST  (-INFINITY)
#define HIGHEST INFINITY
#define ABS(x)  ((x) < 0 ? -(x) : (x))
#define K       (par->k)

/* T element, L lane and A accumulator type. */
#define ROW(nm, sfx, T, L, ACC, start, combine, step)                                             \
    __attribute__((unused, no_sanitize("signed-integer-overflow"))) static void row_##nm##_##sfx( \
        int64_t n, const void *a_, void *acc, const red_par *par)                                 \
    {                                                                                             \
        const T *a = a_;                                                                          \
        ACC total = *(ACC *)acc;                                                                  \
        const ACC mean TP_UNUSED = par && par->centre ? (ACC)par->centre[0] : 0;                  \
        while (n > 0) {                                                                           \
            int64_t m_ = MIN(n, PIECE), i = 0;                                                    \
            typedef L A;                                                                          \
            const A m TP_UNUSED = (A)mean;                                                        \
            A lanes[LANES];                                                                       \
            for (int j = 0; j < LANES; j++)                                                       \
                lanes[j] = (A)(start);                                                            \
            for (; i + LANES <= m_; i += LANES)                                                   \
                for (int j = 0; j < LANES; j++) {                                                 \
                    const A s = lanes[j], x = (A)a[i + j];                                        \
                    lanes[j] = (A)(step);                                                         \
                }                                                                                 \
            for (int j = 0; i < m_; i++, j++) {                                                   \
                const A s = lanes[j], x = (A)a[i];                                                \
                lanes[j] = (A)(step);                                                             \
            }                                                                                     \
            for (int w = LANES / 2; w; w /= 2)                                                    \
                for (int j = 0; j < w; j++) {                                                     \
                    const A s = lanes[j], t = lanes[j + w];                                       \
                    lanes[j] = (A)(combine);                                                      \
                }                                                                                 \
            {                                                                                     \
                const ACC s = total, t = (ACC)lanes[0];                                           \
                total = (ACC)(combine);                                                           \
            }                                                                                     \
            a += m_;                                                                              \
            n -= m_;                                                                              \
        }                                                                                         \
        *(ACC *)acc = total;                                                                      \
    }
#define COL(nm, sfx, T, A_, step)                                                          \
    static void col_##nm##_##sfx(int64_t n, const void *a_, void *acc, const red_par *par) \
    {                                                                                      \
        typedef A_ A;                                                                      \
        const T *a = a_;                                                                   \
        A *o = acc;                                                                        \
        const double *c = par ? par->centre : NULL;                                        \
        if (c) {                                                                           \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                           \
            {                                                                              \
                const A s = o[i], x = (A)a[i], m TP_UNUSED = (A)c[i];                      \
                o[i] = (A)(step);                                                          \
            }                                                                              \
        } else {                                                                           \
            const A m TP_UNUSED = 0;                                                       \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                           \
            {                                                                              \
                const A s = o[i], x = (A)a[i];                                             \
                o[i] = (A)(step);                                                          \
            }                                                                              \
        }                                                                                  \
    }
#define MIX(nm, sfx, A, combine)                                                          \
    __attribute__((no_sanitize("signed-integer-overflow"))) static void mix_##nm##_##sfx( \
        int64_t n, void *acc, const void *more)                                           \
    {                                                                                     \
        A *o = acc;                                                                       \
        const A *b = more;                                                                \
        for (int64_t i = 0; i < n; i++) {                                                 \
            const A s = o[i], t = b[i];                                                   \
            o[i] = (A)(combine);                                                          \
        }                                                                                 \
    }
#define PARTS_F(nm, lane, start, combine, fs, is)            \
    ROW(nm, f32, float, lane, double, start, combine, fs)    \
    ROW(nm, f64, double, double, double, start, combine, fs) \
    COL(nm, f32, float, double, fs) COL(nm, f64, double, double, fs) MIX(nm, d, double, combine)
#define PARTS_I(nm, start, combine, fs, is)                     \
    ROW(nm, i64, int64_t, int64_t, int64_t, start, combine, is) \
    COL(nm, i64, int64_t, int64_t, is) MIX(nm, i, int64_t, combine)

/* The start of an integer minimum is not infinite. */
#define RED(nm, types, lane, start, combine, f, i) PARTS_F(nm, lane, start, combine, f, i)
#include "ops/red.def"
#undef LOWEST
#undef HIGHEST
#define LOWEST  INT64_MIN
#define HIGHEST INT64_MAX
#define PICK_F(...)
#define PICK_FI(...)                               PARTS_I(__VA_ARGS__)
#define RED(nm, types, lane, start, combine, f, i) PICK_##types(nm, start, combine, f, i)
#include "ops/red.def"

/* Sums of floats, the commonest reduction: four elements are added in float before they meet the double lanes. */
static void row_sum_quick(int64_t n, const void *a_, void *acc, const red_par *par)
{
    enum { Q = 32 };
    const float *a = a_;
    int64_t i = 0;
    double lanes[Q] = { 0 };
    for (; i + 4 * Q <= n; i += 4 * Q)
        for (int j = 0; j < Q; j++) {
            const float *p = a + i + j;
            lanes[j] += (double)((p[0] + p[Q]) + (p[2 * Q] + p[3 * Q]));
        }
    for (; i + Q <= n; i += Q)
        for (int j = 0; j < Q; j++)
            lanes[j] += (double)a[i + j];
    for (int j = 0; i < n; i++, j++)
        lanes[j] += (double)a[i];
    for (int w = Q / 2; w; w /= 2)
        for (int j = 0; j < w; j++)
            lanes[j] += lanes[j + w];
    *(double *)acc += lanes[0];
}
/* The same for columns: four rows `step` bytes apart. */
void ISA_NAME(col4_sum)(int64_t n, const char *a_, int64_t step, double *o)
{
    const float *a = (const float *)a_, *b = (const float *)(a_ + step), *c = (const float *)(a_ + 2 * step),
                *d = (const float *)(a_ + 3 * step);
    _Pragma("GCC ivdep") for (int64_t k = 0; k < n; k++) o[k] += (double)((a[k] + b[k]) + (c[k] + d[k]));
}
#define row_sum_f32 row_sum_quick

#define ENTRY_F(nm) \
    { row_##nm##_f32, row_##nm##_f64, NULL }, { col_##nm##_f32, col_##nm##_f64, NULL }, { mix_##nm##_d, NULL }
#define ENTRY_FI(nm)                                                                                        \
    { row_##nm##_f32, row_##nm##_f64, row_##nm##_i64 }, { col_##nm##_f32, col_##nm##_f64, col_##nm##_i64 }, \
    {                                                                                                       \
        mix_##nm##_d, mix_##nm##_i                                                                          \
    }
#define START_I_0       0
#define START_I_1       1
#define START_I_LOWEST  INT64_MIN
#define START_I_HIGHEST INT64_MAX
#undef LOWEST
#undef HIGHEST
#define LOWEST_F        (-INFINITY)
#define HIGHEST_F       INFINITY
#define START_F_0       0
#define START_F_1       1
#define START_F_LOWEST  (-INFINITY)
#define START_F_HIGHEST INFINITY
static const red_kernel kernels[RED_COUNT] = {
#define RED(nm, types, lane, start, combine, f, i) \
    [RED_##nm] = { ENTRY_##types(nm), START_F_##start, START_I_##start },
#include "ops/red.def"
};
const red_kernel *ISA_NAME(red_kernels)(void) { return kernels; }

/* ---- softmax of one packed line: o = exp(a - max) / sum, or its logarithm ---- */
#define SOFTMAX(sfx, T)                                                                               \
    void ISA_NAME(softmax_line_##sfx)(int64_t n, void *o_, const void *a_, bool log_)                 \
    {                                                                                                 \
        T *o = o_;                                                                                    \
        const T *a = a_;                                                                              \
        double top = -INFINITY, sum = 0;                                                              \
        row_max_##sfx(n, a, &top, NULL);                                                              \
        const T m = (T)top == -(T)INFINITY ? (T)top : (T)top;                                         \
        for (int64_t at = 0; at < n; at += PIECE) {                                                   \
            int64_t w = MIN(n - at, PIECE);                                                           \
            T part[PIECE], *e = log_ ? part : o + at;                                                 \
            const T *x = a + at;                                                                      \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < w; i++) e[i] = M_exp(x[i] - m);              \
            row_sum_##sfx(w, e, &sum, NULL);                                                          \
        }                                                                                             \
        if (log_) {                                                                                   \
            const T ls = (T)log(sum);                                                                 \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[i] = a[i] - m - ls;                \
        } else {                                                                                      \
            const T inv = (T)(1 / sum);                                                               \
            for (int64_t i = 0; i < n; i++)                                                           \
                o[i] *= inv;                                                                          \
        }                                                                                             \
    }                                                                                                 \
    /* softmax: o = (g - sum(g y)) y; log_softmax: o = g - exp(y) sum(g) */                           \
    void ISA_NAME(softmax_back_##sfx)(int64_t n, void *o_, const void *g_, const void *y_, bool log_) \
    {                                                                                                 \
        T *o = o_;                                                                                    \
        const T *g = g_, *y = y_;                                                                     \
        double sum = 0;                                                                               \
        if (log_) {                                                                                   \
            row_sum_##sfx(n, g, &sum, NULL);                                                          \
            const T s = (T)sum;                                                                       \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[i] = g[i] - M_exp(y[i]) * s;       \
            return;                                                                                   \
        }                                                                                             \
        for (int64_t at = 0; at < n; at += PIECE) {                                                   \
            int64_t w = MIN(n - at, PIECE);                                                           \
            T part[PIECE];                                                                            \
            for (int64_t i = 0; i < w; i++)                                                           \
                part[i] = g[at + i] * y[at + i];                                                      \
            row_sum_##sfx(w, part, &sum, NULL);                                                       \
        }                                                                                             \
        const T s = (T)sum;                                                                           \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[i] = (g[i] - s) * y[i];                \
    }
SOFTMAX(f32, float)
SOFTMAX(f64, double)

/* softmax down w packed columns of n rows; strides in elements */
#define SOFTCOLS(sfx, T)                                                                          \
    void ISA_NAME(softmax_cols_##sfx)(int64_t n, int64_t w, void *o_, int64_t os, const void *a_, \
                                      int64_t as, bool log_)                                      \
    {                                                                                             \
        T top[64], sum[64];                                                                       \
        for (int64_t k = 0; k < w; k++)                                                           \
            top[k] = -(T)INFINITY, sum[k] = 0;                                                    \
        for (int64_t r = 0; r < n; r++) {                                                         \
            const T *a = (const T *)a_ + r * as;                                                  \
            _Pragma("GCC ivdep") for (int64_t k = 0; k < w; k++)                                  \
                top[k] = a[k] > top[k] || a[k] != a[k] ? a[k] : top[k];                           \
        }                                                                                         \
        for (int64_t r = 0; r < n; r++) {                                                         \
            const T *a = (const T *)a_ + r * as;                                                  \
            T *o = (T *)o_ + r * os, d[64], e[64];                                                \
            _Pragma("GCC ivdep") for (int64_t k = 0; k < w; k++) d[k] = a[k] - top[k];            \
            _Pragma("GCC ivdep") for (int64_t k = 0; k < w; k++) e[k] = M_exp(d[k]);              \
            _Pragma("GCC ivdep") for (int64_t k = 0; k < w; k++) sum[k] += e[k];                  \
            memcpy(o, log_ ? d : e, sizeof(T) * (size_t)w);                                       \
        }                                                                                         \
        for (int64_t k = 0; k < w; k++)                                                           \
            sum[k] = log_ ? M_log(sum[k]) : 1 / sum[k];                                           \
        for (int64_t r = 0; r < n; r++) {                                                         \
            T *o = (T *)o_ + r * os;                                                              \
            _Pragma("GCC ivdep") for (int64_t k = 0; k < w; k++) o[k] = log_ ? o[k] - sum[k]      \
                                                                             : o[k] * sum[k];     \
        }                                                                                         \
    }
SOFTCOLS(f32, float)
SOFTCOLS(f64, double)
