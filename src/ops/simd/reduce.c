/* reduce.c - inner loops of reductions and of softmax, once per instruction set.
 * Rows accumulate in many lanes, sums of floats in double: as fast as memory, and accurate whatever the
 * length. */
#include "ops/red.h"
#include "ops/simd/vmath.h"
#pragma GCC diagnostic ignored "-Wpsabi" /* inlined: no vector is passed */
#ifdef __AVX512F__
#include <immintrin.h>
#endif

enum { PIECE = 4096 };
#define LOWEST  (-INFINITY)
#define HIGHEST INFINITY
#define ABS(x)  ((x) < 0 ? -(x) : (x))
#define K       (par->k)

/* |x|^k in double, good enough for a norm */
VM_INL double abs_pow(double x, double k) { return m_exp_f64(k * m_log_f64(x)); }

/* All lanes into one: down to eight a vector at a time, those in registers. */
#define TREE(A, to, lanes, n, combine)            \
    {                                             \
        A v8[8];                                  \
        for (int j = 0; j < 8; j++) {             \
            A s = (lanes)[j];                     \
            for (int i_ = 8; i_ < (n); i_ += 8) { \
                const A t = (lanes)[j + i_];      \
                s = (A)(combine);                 \
            }                                     \
            v8[j] = s;                            \
        }                                         \
        A v4[4], v2[2];                           \
        for (int j = 0; j < 4; j++) {             \
            const A s = v8[j], t = v8[j + 4];     \
            v4[j] = (A)(combine);                 \
        }                                         \
        for (int j = 0; j < 2; j++) {             \
            const A s = v4[j], t = v4[j + 2];     \
            v2[j] = (A)(combine);                 \
        }                                         \
        const A s = v2[0], t = v2[1];             \
        to = (A)(combine);                        \
    }

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
            enum { LANES = sizeof(A) == 4 ? 64 : 32 };                                            \
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
            A one;                                                                                \
            TREE(A, one, lanes, LANES, combine)                                                   \
            {                                                                                     \
                const ACC s = total, t = (ACC)one;                                                \
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

/* ---- quick forms for float ---- */
/* Sums, the commonest reduction: eight elements are added in float before they meet the 32 double lanes, which stay in
 * registers until they become one (vectors by name: arrays would go through memory for every row). */
typedef float f32x8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef double f64x8 __attribute__((vector_size(64)));
typedef double f64x4 __attribute__((vector_size(32)));
typedef double f64x2 __attribute__((vector_size(16)));
typedef union split8 { /* vectors in halves, without going through memory */
    f64x8 v;
    f64x4 h[2];
} split8;
typedef union split4 {
    f64x4 v;
    f64x2 h[2];
} split4;
#define ONE_OF(to, l0, l1, l2, l3, op)                \
    {                                                 \
        const split8 v_ = { ((l0 op l1)op l2)op l3 }; \
        const split4 w_ = { v_.h[0] op v_.h[1] };     \
        const f64x2 x_ = w_.h[0] op w_.h[1];          \
        to = x_[0] op x_[1];                          \
    }
#ifdef __AVX512F__ /* the compiler makes two halves of one instruction */
#define WIDE(x) ((f64x8)_mm512_cvtps_pd((__m256)(x)))
/* The last n < 8 elements of a row, before copies of fill. */
VM_INL f32x8 end8(int64_t n, const float *a, float fill)
{
    return (f32x8)_mm256_mask_loadu_ps(_mm256_set1_ps(fill), (__mmask8)((1 << n) - 1), a);
}
#else
#define WIDE(x) __builtin_convertvector(x, f64x8)
VM_INL f32x8 end8(int64_t n, const float *a, float fill)
{
    f32x8 v = { fill, fill, fill, fill, fill, fill, fill, fill };
    for (int64_t i = 0; i < n; i++)
        v[i] = a[i];
    return v;
}
#endif
#define QUICK_SUM(nm, VAL)                                                                  \
    static void row_##nm##_quick(int64_t n, const void *a_, void *acc, const red_par *par)  \
    {                                                                                       \
        enum { Q = 32 };                                                                    \
        const float *a = a_;                                                                \
        int64_t i = 0;                                                                      \
        f64x8 l0 = { 0 }, l1 = { 0 }, l2 = { 0 }, l3 = { 0 };                               \
        for (; i + 8 * Q <= n; i += 8 * Q) {                                                \
            const f32x8 *p = (const f32x8 *)(a + i);                                        \
            l0 += WIDE(EIGHT(VAL, p));                                                      \
            l1 += WIDE(EIGHT(VAL, p + 1));                                                  \
            l2 += WIDE(EIGHT(VAL, p + 2));                                                  \
            l3 += WIDE(EIGHT(VAL, p + 3));                                                  \
        }                                                                                   \
        for (; i + Q <= n; i += Q) { /* what is left of a row is often a good part of it */ \
            const f32x8 *p = (const f32x8 *)(a + i);                                        \
            l0 += WIDE((VAL(p[0]) + VAL(p[1])) + (VAL(p[2]) + VAL(p[3])));                  \
        }                                                                                   \
        for (; i + 8 <= n; i += 8)                                                          \
            l0 += WIDE(VAL(*(const f32x8 *)(a + i)));                                       \
        if (i < n)                                                                          \
            l1 += VAL##_end(end8(n - i, a + i, 0));                                         \
        double one;                                                                         \
        ONE_OF(one, l0, l1, l2, l3, +)                                                      \
        *(double *)acc += one;                                                              \
    }
#define EIGHT(V, p)                                         \
    (((V((p)[0]) + V((p)[4])) + (V((p)[8]) + V((p)[12]))) + \
     ((V((p)[16]) + V((p)[20])) + (V((p)[24]) + V((p)[28]))))
#define VAL_any(x)      (x)
#define VAL_any_end(x)  WIDE(x)
#define VAL_num8_end(x) WIDE(VAL_num8(x))
#define VAL_num(x)      ((x) != (x) ? 0.0f : (x))
typedef int32_t i32x8 __attribute__((vector_size(32)));
#define VAL_num8(x) ((f32x8)((i32x8)(x) & (i32x8)((x) == (x))))
QUICK_SUM(sum, VAL_any)
QUICK_SUM(nansum, VAL_num8)

#define row_sumsq_near_f32 row_sumsq_f32
#define VAL_square(x)      ((x) * (x))
#define VAL_square_end(x)  WIDE((x) * (x))
QUICK_SUM(sumsq_near, VAL_square)
static __attribute__((noinline, cold)) double sumsq_far(int64_t n, const float *a)
{
    double part = 0;
    row_sumsq_f32(n, a, &part, NULL);
    return part;
}
static void row_sumsq_quick(int64_t n, const void *a, void *acc, const red_par *par)
{
    double part = 0;
    row_sumsq_near_quick(n, a, &part, par);
    if (TP_UNLIKELY(!(part > 1e-25 && part < 1e37))) /* squares that float does not hold */
        part = sumsq_far(n, a);
    *(double *)acc += part;
}

/* Eight factors: pairs within 2^62 of one either way multiply in float, the two halves in double. PAIR_FAR is above
 * PAIR_MOST for others (for smaller ones, because it wraps around). */
#define PAIR_FAR(p)  (bits_f(__builtin_fabsf(p)) - bits_f(0x1p-62f))
#define PAIR_MOST    (bits_f(0x1p62f) - bits_f(0x1p-62f))
#define LARGER(m, v) (m) = (v) > (m) ? (v) : (m)
typedef float f32x16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
/* Bit 30 is set unless the exponent begins with two different bits: 2^-63 <= |p| < 2^65. */
#define FAR16(p) (~((u32x16)(p) ^ ((u32x16)(p) << 1)))
typedef union split16 {
    f32x16 v;
    f32x8 h[2];
} split16;
/* Eight vectors of factors into the lanes; the top bits of far say that some pair is out of bounds. */
#define PROD8(even, odd, far, p)                                                                         \
    {                                                                                                    \
        const f32x16 w = (p)[0] * (p)[1], x = (p)[2] * (p)[3], y = (p)[4] * (p)[5], z = (p)[6] * (p)[7]; \
        far |= FAR16(w) | FAR16(x) | FAR16(y) | FAR16(z);                                                \
        const split16 wx = { w * x }, yz = { y * z };                                                    \
        even *= WIDE(wx.h[0]) * WIDE(yz.h[0]);                                                           \
        odd *= WIDE(wx.h[1]) * WIDE(yz.h[1]);                                                            \
    }
/* Apart, so that short rows do not pay for its registers. */
static __attribute__((noinline, cold)) void prod_far(int64_t n, const float *a, double *acc)
{
    row_prod_f32(n, a, acc, NULL);
}
static void row_prod_quick(int64_t n, const void *a_, void *acc, const red_par *par)
{
    enum { Q = 32 };
    for (const float *a = a_; n > 0; a += PIECE, n -= PIECE) {
        int64_t m = MIN(n, PIECE), i = 0;
        f64x8 l0 = { 1, 1, 1, 1, 1, 1, 1, 1 }, l1 = l0, l2 = l0, l3 = l0;
        u32x16 far = { 0 };
        uint32_t some = 0;
        for (; i + 8 * Q <= m; i += 8 * Q) {
            const f32x16 *p = (const f32x16 *)(a + i);
            PROD8(l0, l1, far, p)
            PROD8(l2, l3, far, p + 8)
        }
#ifdef __AVX512F__
        some = _mm512_test_epi32_mask((__m512i)far, _mm512_set1_epi32(1 << 30)) ? 1u << 30 : 0;
#else
        for (int j = 0; j < 16; j++)
            some |= far[j];
#endif
        for (; i + 16 <= m; i += 16) { /* short rows, and the ends of others */
            l0 *= WIDE(*(const f32x8 *)(a + i));
            l1 *= WIDE(*(const f32x8 *)(a + i + 8));
        }
        if (i + 8 <= m) {
            l2 *= WIDE(*(const f32x8 *)(a + i));
            i += 8;
        }
        if (i < m)
            l3 *= WIDE(end8(m - i, a + i, 1));
        double one;
        ONE_OF(one, l0, l1, l2, l3, *)
        if (TP_UNLIKELY(some >> 30 & 1 || !(one - one == 0))) { /* two pairs may be too large together */
            prod_far(m, a, acc);
            continue;
        }
        *(double *)acc *= one;
    }
}

/* Extremes: plain comparisons, which pass over NaN, and a question about NaN for every two elements. */
#define PICK8(op, to, x)                                     \
    {                                                        \
        const i32x8 m_ = (i32x8)((x)op(to));                 \
        to = (f32x8)(((i32x8)(x)&m_) | ((i32x8)(to) & ~m_)); \
    }
#define QUICK_EXTREME(nm, op, start)                                                                \
    VM_INL float short_##nm(int64_t n, const float *a) /* a few hundred elements at most */         \
    {                                                                                               \
        const f32x8 none = { start, start, start, start, start, start, start, start };              \
        f32x8 u = none, v = none;                                                                   \
        i32x8 odd = { 0 };                                                                          \
        int64_t i = 0;                                                                              \
        for (; i + 16 <= n; i += 16) {                                                              \
            const f32x8 x = *(const f32x8 *)(a + i), y = *(const f32x8 *)(a + i + 8);               \
            PICK8(op, u, x)                                                                         \
            PICK8(op, v, y)                                                                         \
            odd |= (i32x8)(x != x) | (i32x8)(y != y);                                               \
        }                                                                                           \
        if (i + 8 <= n) {                                                                           \
            const f32x8 x = *(const f32x8 *)(a + i);                                                \
            PICK8(op, u, x)                                                                         \
            odd |= (i32x8)(x != x);                                                                 \
            i += 8;                                                                                 \
        }                                                                                           \
        if (i < n) {                                                                                \
            const f32x8 y = end8(n - i, a + i, start);                                              \
            PICK8(op, v, y)                                                                         \
            odd |= (i32x8)(y != y);                                                                 \
        }                                                                                           \
        PICK8(op, u, v)                                                                             \
        float r = TOP(op, TOP(op, TOP(op, u[0], u[4]), TOP(op, u[2], u[6])),                        \
                      TOP(op, TOP(op, u[1], u[5]), TOP(op, u[3], u[7])));                           \
        int any = (odd[0] | odd[4] | odd[2] | odd[6]) | (odd[1] | odd[5] | odd[3] | odd[7]);        \
        return any ? NAN : r;                                                                       \
    }                                                                                               \
    static __attribute__((noinline)) double long_##nm(int64_t n, const float *a)                    \
    {                                                                                               \
        enum { Q = 64 };                                                                            \
        float best[Q], one;                                                                         \
        int bad[Q] = { 0 }, any = 0;                                                                \
        for (int j = 0; j < Q; j++)                                                                 \
            best[j] = a[j];                                                                         \
        int64_t i = 0;                                                                              \
        for (; i + 2 * Q <= n; i += 2 * Q)                                                          \
            for (int j = 0; j < Q; j++) {                                                           \
                const float x = a[i + j], y = a[i + j + Q], z = x op y ? x : y;                     \
                best[j] = z op best[j] ? z : best[j];                                               \
                bad[j] |= __builtin_isunordered(x, y);                                              \
            }                                                                                       \
        TREE(float, one, best, Q, s op t ? s : t)                                                   \
        for (int j = 0; j < Q; j++)                                                                 \
            any |= bad[j];                                                                          \
        const float rest = short_##nm(n - i, a + i);                                                \
        return any || rest != rest ? NAN : (double)TOP(op, rest, one);                              \
    }                                                                                               \
    static void row_##nm##_quick(int64_t n, const void *a, void *acc, const red_par *par)           \
    {                                                                                               \
        const double s0 = *(double *)acc, t = n < 256 ? (double)short_##nm(n, a) : long_##nm(n, a); \
        *(double *)acc = (t op s0 || t != t) ? t : s0;                                              \
    }
#define TOP(op, x, y) ((x)op(y) ? (x) : (y))
QUICK_EXTREME(max, >, -INFINITY)
QUICK_EXTREME(min, <, INFINITY)

/* The same for columns: eight rows `step` bytes apart. */
#define COL8(nm, ...)                                                                       \
    static void col8_##nm(int64_t n, const char *p, int64_t step, double *o)                \
    {                                                                                       \
        const float *a = (const float *)p, *b = (const float *)(p + step),                  \
                    *c = (const float *)(p + 2 * step), *d = (const float *)(p + 3 * step), \
                    *e = (const float *)(p + 4 * step), *f = (const float *)(p + 5 * step), \
                    *g = (const float *)(p + 6 * step), *h = (const float *)(p + 7 * step); \
        _Pragma("GCC ivdep") for (int64_t k = 0; k < n; k++) { __VA_ARGS__ }                \
    }
#define ADD8(V)                                                    \
    o[k] += (double)(((V(a[k]) + V(b[k])) + (V(c[k]) + V(d[k]))) + \
                     ((V(e[k]) + V(f[k])) + (V(g[k]) + V(h[k]))));
#define TOP8(op)                                                                            \
    const float q = TOP(op, a[k], b[k]), r = TOP(op, c[k], d[k]), s = TOP(op, e[k], f[k]),  \
                t = TOP(op, g[k], h[k]), u = TOP(op, q, r), v = TOP(op, s, t);              \
    const int bad = __builtin_isunordered(a[k], b[k]) | __builtin_isunordered(c[k], d[k]) | \
                    __builtin_isunordered(e[k], f[k]) | __builtin_isunordered(g[k], h[k]);  \
    const double m = (double)(bad ? NAN : TOP(op, u, v)), w = o[k];                         \
    o[k] = m op w || m != m ? m : w;
static void col8_prod(int64_t n, const char *p, int64_t step, double *o)
{
    enum { Q = 256 };
    const float *r[8];
    for (int i = 0; i < 8; i++)
        r[i] = (const float *)(p + i * step);
    for (int64_t at = 0; at < n; at += Q) {
        const int64_t m = MIN(n - at, Q);
        const float *a = r[0] + at, *b = r[1] + at, *c = r[2] + at, *d = r[3] + at, *e = r[4] + at,
                    *f = r[5] + at, *g = r[6] + at, *h = r[7] + at;
        double v[Q];
        uint32_t some = 0;
        for (int64_t k = 0; k < m; k++) {
            const float w = a[k] * b[k], x = c[k] * d[k], y = e[k] * f[k], z = g[k] * h[k];
            LARGER(some, PAIR_FAR(w));
            LARGER(some, PAIR_FAR(x));
            LARGER(some, PAIR_FAR(y));
            LARGER(some, PAIR_FAR(z));
            v[k] = (double)(w * x) * (double)(y * z);
        }
        if (some > PAIR_MOST)
            for (int64_t k = 0; k < m; k++)
                v[k] = ((double)a[k] * (double)b[k]) * ((double)c[k] * (double)d[k]) *
                       (((double)e[k] * (double)f[k]) * ((double)g[k] * (double)h[k]));
        for (int64_t k = 0; k < m; k++)
            o[at + k] *= v[k];
    }
}
COL8(sum, ADD8(VAL_any))
COL8(nansum, ADD8(VAL_num))
COL8(max, TOP8(>))
COL8(min, TOP8(<))
red_col8 *ISA_NAME(red_col8_of)(red_id id)
{
    switch (id) {
    case RED_sum: return col8_sum;
    case RED_prod: return col8_prod;
    case RED_nansum: return col8_nansum;
    case RED_max: return col8_max;
    case RED_min: return col8_min;
    default: return NULL;
    }
}
static red_row *quick_row(red_id id)
{
    switch (id) {
    case RED_sum: return row_sum_quick;
    case RED_nansum: return row_nansum_quick;
    case RED_max: return row_max_quick;
    case RED_min: return row_min_quick;
    case RED_prod: return row_prod_quick;
    case RED_sumsq: return row_sumsq_quick;
    default: return NULL;
    }
}
red_row *ISA_NAME(red_quick_of)(red_id id) { return quick_row(id); }
#define sum_line_f32 row_sum_quick
#define max_line_f32 row_max_quick
#define sum_line_f64 row_sum_f64
#define max_line_f64 row_max_f64

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
        max_line_##sfx(n, a, &top, NULL);                                                             \
        const T m = (T)top == -(T)INFINITY ? (T)top : (T)top;                                         \
        for (int64_t at = 0; at < n; at += PIECE) {                                                   \
            int64_t w = MIN(n - at, PIECE);                                                           \
            T part[PIECE], *e = log_ ? part : o + at;                                                 \
            const T *x = a + at;                                                                      \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < w; i++) e[i] = M_exp(x[i] - m);              \
            sum_line_##sfx(w, e, &sum, NULL);                                                         \
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
            sum_line_##sfx(n, g, &sum, NULL);                                                         \
            const T s = (T)sum;                                                                       \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) o[i] = g[i] - M_exp(y[i]) * s;       \
            return;                                                                                   \
        }                                                                                             \
        for (int64_t at = 0; at < n; at += PIECE) {                                                   \
            int64_t w = MIN(n - at, PIECE);                                                           \
            T part[PIECE];                                                                            \
            for (int64_t i = 0; i < w; i++)                                                           \
                part[i] = g[at + i] * y[at + i];                                                      \
            sum_line_##sfx(w, part, &sum, NULL);                                                      \
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
