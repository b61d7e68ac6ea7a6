/* rowstat.c - see rowstat.h. */
#include "ops/rowstat.h"
#include <math.h>
#pragma GCC diagnostic ignored "-Wpsabi" /* inlined: no vector is passed */

/* Eight floats at a time, widened: a sum in double costs no more than the loads. */
typedef float f8 __attribute__((vector_size(32)));
typedef double d8 __attribute__((vector_size(64)));

static inline d8 wide(const float *p)
{
    f8 v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, d8);
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

enum { WINDOWS = 128 };
void ISA_NAME(rs_max_row)(int64_t n, int64_t kh, int64_t kw, const float *x, int64_t at, int64_t dh,
                          int64_t dw, int64_t step, float *y, int64_t *ix)
{
    float m[WINDOWS];
    int32_t best[WINDOWS]; /* relative to the window's first element */
    for (; n > 0; n -= WINDOWS, x += WINDOWS * step, at += WINDOWS * step, y += WINDOWS, ix += WINDOWS) {
        int len = (int)MIN(n, WINDOWS);
        for (int i = 0; i < len; i++)
            m[i] = -INFINITY, best[i] = 0;
        for (int64_t h = 0; h < kh; h++)
            for (int64_t k = 0; k < kw; k++) {
                const float *p = x + h * dh + k * dw;
                int32_t here = (int32_t)(h * dh + k * dw);
                if (step == 2)
                    for (int i = 0; i < len; i++) {
                        bool more = p[i * 2] > m[i] || p[i * 2] != p[i * 2];
                        m[i] = more ? p[i * 2] : m[i];
                        best[i] = more ? here : best[i];
                    }
                else
                    for (int i = 0; i < len; i++) {
                        float v = p[i * step];
                        bool more = v > m[i] || v != v;
                        m[i] = more ? v : m[i];
                        best[i] = more ? here : best[i];
                    }
            }
        for (int i = 0; i < len; i++) {
            y[i] = m[i];
            ix[i] = at + i * step + best[i];
        }
    }
}
