/* rowstat.c - see rowstat.h. */
#include "ops/rowstat.h"
#include <math.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif
#pragma GCC diagnostic ignored "-Wpsabi" /* inlined: no vector is passed */

/* Eight floats at a time, widened: a sum in double costs no more than the loads. */
typedef float f8 __attribute__((vector_size(32)));
typedef double d8 __attribute__((vector_size(64)));

static inline d8 wide(const float *p)
{
#ifdef __AVX512F__ /* the compiler makes two halves of this instruction */
    return (d8)_mm512_cvtps_pd(_mm256_loadu_ps(p));
#else
    f8 v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, d8);
#endif
}
static inline double fold(const d8 *p)
{
    d8 a = *p;
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

double ISA_NAME(rs_sum)(int64_t n, const float *x)
{
    d8 a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a += wide(x + i);
        b += wide(x + i + 8);
        c += wide(x + i + 16);
        d += wide(x + i + 24);
    }
    a = (a + b) + (c + d);
    double s = fold(&a);
    for (; i < n; i++)
        s += x[i];
    return s;
}

double ISA_NAME(rs_square)(int64_t n, const float *x, double m)
{
    d8 a = { 0 }, b = { 0 };
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        d8 u = wide(x + i) - m, v = wide(x + i + 8) - m;
        a += u * u;
        b += v * v;
    }
    a += b;
    double s = fold(&a);
    for (; i < n; i++)
        s += (x[i] - m) * (x[i] - m);
    return s;
}

void ISA_NAME(rs_dots)(int64_t n, const float *g, const float *x, double m, double *s, double *p)
{
    d8 a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        d8 u = wide(g + i), v = wide(g + i + 8);
        a += u;
        b += v;
        c += u * (wide(x + i) - m);
        d += v * (wide(x + i + 8) - m);
    }
    a += b;
    c += d;
    double sum = fold(&a), dot = fold(&c);
    for (; i < n; i++) {
        sum += g[i];
        dot += g[i] * (x[i] - m);
    }
    *s += sum;
    *p += dot;
}

void ISA_NAME(rs_wdots)(int64_t n, const float *g, const float *w, const float *x, double m, double *s,
                        double *p)
{
    if (!w) {
        ISA_NAME(rs_dots)(n, g, x, m, s, p);
        return;
    }
    d8 a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        d8 u = wide(g + i) * wide(w + i), v = wide(g + i + 8) * wide(w + i + 8);
        a += u;
        b += v;
        c += u * (wide(x + i) - m);
        d += v * (wide(x + i + 8) - m);
    }
    a += b;
    c += d;
    double sum = fold(&a), dot = fold(&c);
    for (; i < n; i++) {
        double u = (double)g[i] * w[i];
        sum += u;
        dot += u * (x[i] - m);
    }
    *s += sum;
    *p += dot;
}

void ISA_NAME(rs_scale)(int64_t n, const float *x, float a, float b, float *y)
{
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = x[i] * a + b;
}
void ISA_NAME(rs_affine)(int64_t n, const float *x, float m, float a, const float *w, const float *b,
                         float *y)
{
    if (w && b) {
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * a * w[i] + b[i];
    } else if (w) {
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * a * w[i];
    } else {
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * a + (b ? b[i] : 0);
    }
}
void ISA_NAME(rs_back)(int64_t n, const float *g, const float *x, float m, float a, float b, float c,
                       float *y)
{
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = g[i] * a + (x[i] - m) * b + c;
}
void ISA_NAME(rs_wback)(int64_t n, const float *g, const float *w, const float *x, float m, float a, float b,
                        float c, float *y)
{
    if (!w) {
        ISA_NAME(rs_back)(n, g, x, m, a, b, c, y);
        return;
    }
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = g[i] * w[i] * a + (x[i] - m) * b + c;
}
void ISA_NAME(rs_cols)(int64_t n, const float *g, const float *x, float m, float s, double *dw, double *db)
{
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)
    {
        db[i] += g[i];
        dw[i] += g[i] * ((x[i] - m) * s);
    }
}

#ifdef __clang__
#define PICK(I, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(I, a, b, ...) __builtin_shuffle(a, b, (I){ __VA_ARGS__ })
#endif
/* V windows at a time, all their elements in registers; the last V may overlap the ones before. Steps of 1 and 2. */
#define MAX_WINDOWS(V, ...)                                                                                  \
    typedef float mf##V __attribute__((vector_size(4 * V)));                                                 \
    typedef int32_t mi##V __attribute__((vector_size(4 * V)));                                               \
    typedef int64_t ml##V __attribute__((vector_size(8 * V)));                                               \
    static inline mf##V elements##V(const float *p, int64_t step)                                            \
    {                                                                                                        \
        mf##V a, b;                                                                                          \
        memcpy(&a, p, sizeof a);                                                                             \
        if (step == 1)                                                                                       \
            return a;                                                                                        \
        memcpy(&b, p + V - 1, sizeof b); /* not a float further than asked for */                            \
        return PICK(mi##V, a, b, __VA_ARGS__);                                                               \
    }                                                                                                        \
    static inline void windows##V(int64_t n, int64_t kh, int64_t kw, const float *x, int64_t at, int64_t dh, \
                                  int64_t dw, int64_t step, float *y, int64_t *ix)                           \
    {                                                                                                        \
        ml##V lane;                                                                                          \
        for (int i = 0; i < V; i++)                                                                          \
            lane[i] = i * step + at;                                                                         \
        for (int64_t q = 0; q < n; q += V) {                                                                 \
            int64_t i = MIN(q, n - V);                                                                       \
            mf##V m = (mf##V){ 0 } - INFINITY;                                                               \
            mi##V best = { 0 }; /* relative to the window's first element */                                 \
            for (int64_t h = 0; h < kh; h++)                                                                 \
                for (int64_t k = 0; k < kw; k++) {                                                           \
                    mf##V v = elements##V(x + i * step + h * dh + k * dw, step);                             \
                    mi##V more = (v > m) | (v != v);                                                         \
                    m = (mf##V)(((mi##V)v & more) | ((mi##V)m & ~more));                                     \
                    best = (((mi##V){ 0 } + (int32_t)(h * dh + k * dw)) & more) | (best & ~more);            \
                }                                                                                            \
            ml##V where = __builtin_convertvector(best, ml##V) + lane + i * step;                            \
            memcpy(y + i, &m, sizeof m);                                                                     \
            memcpy(ix + i, &where, sizeof where);                                                            \
        }                                                                                                    \
    }
MAX_WINDOWS(16, 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31)
MAX_WINDOWS(8, 0, 2, 4, 6, 9, 11, 13, 15)
MAX_WINDOWS(4, 0, 2, 5, 7)

void ISA_NAME(rs_max_row)(int64_t n, int64_t kh, int64_t kw, const float *x, int64_t at, int64_t dh,
                          int64_t dw, int64_t step, float *y, int64_t *ix)
{
    if (step <= 2 && n >= 16) {
        windows16(n, kh, kw, x, at, dh, dw, step, y, ix);
        return;
    }
    if (step <= 2 && n >= 8) {
        windows8(n, kh, kw, x, at, dh, dw, step, y, ix);
        return;
    }
    if (step <= 2 && n >= 4) {
        windows4(n, kh, kw, x, at, dh, dw, step, y, ix);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float m = -INFINITY;
        int64_t best = 0;
        for (int64_t h = 0; h < kh; h++)
            for (int64_t k = 0; k < kw; k++) {
                float v = x[i * step + h * dh + k * dw];
                int more = (v > m) | (v != v);
                m = more ? v : m;
                best = more ? h * dh + k * dw : best;
            }
        y[i] = m;
        ix[i] = at + i * step + best;
    }
}
