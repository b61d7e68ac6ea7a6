/* pw_slow.c - the loops of pw_slow.def: special functions, scalar code. */
#include "ops/pw.h"
#include <math.h>
#define LIBM2(fn, x, y) _Generic((x), float : fn##f, double : fn)(x, y)

static double slow_digamma(double x)
{
    if (x == 0)
        return copysign(INFINITY, -x);
    if (x < 0) {
        if (x == trunc(x))
            return NAN;
        double fr = x - trunc(x); /* reflection */
        return slow_digamma(1 - x) - M_PI / tan(M_PI * fr);
    }
    double r = 0;
    for (; x < 10; x++)
        r -= 1 / x;
    if (x == 10)
        return r + 2.25175258906672110764;
    double y = 0;
    if (x < 1e17) {
        double z = 1 / (x * x);
        y = z * (1.0 / 12 -
                 z * (1.0 / 120 -
                      z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
    }
    return r + log(x) - 0.5 / x - y;
}

static double trigamma(double x)
{
    double sign = 1, r = 0;
    if (x < 0.5) {
        sign = -1;
        double s = sin(M_PI * x);
        r -= M_PI * M_PI / (s * s);
        x = 1 - x;
    }
    for (int i = 0; i < 6; i++) {
        r += 1 / (x * x);
        x += 1;
    }
    double z = 1 / (x * x);
    r += (1 + 1 / (2 * x) + z * (1.0 / 6 - z * (1.0 / 30 - z * (1.0 / 42 - z * (1.0 / 30))))) / x;
    return sign * r;
}

/* sum over k of (k + q)^-x, by Euler and Maclaurin */
static double hurwitz_zeta(double x, double q)
{
    static const double b2k[] = { 1.0 / 6,       -1.0 / 30,       1.0 / 42,       -1.0 / 30,
                                  5.0 / 66,      -691.0 / 2730,   7.0 / 6,        -3617.0 / 510,
                                  43867.0 / 798, -174611.0 / 330, 854513.0 / 138, -236364091.0 / 2730 };
    if (x == 1)
        return INFINITY;
    if (x < 1)
        return NAN;
    if (q <= 0) {
        if (q == floor(q))
            return INFINITY;
        if (x != floor(x))
            return NAN;
    }
    double s = pow(q, -x), a = q, t;
    for (int i = 0; i < 9 || a <= 9; i++) {
        a += 1;
        t = pow(a, -x);
        s += t;
        if (fabs(t) < 1e-17 * fabs(s))
            return s;
    }
    t = pow(a, -x);
    s += t * a / (x - 1) - 0.5 * t;
    double fac = x * t / a, f = 2; /* x (x+1) ... / (2k)! a^-(x+2k-1) */
    for (int k = 0; k < (int)COUNT(b2k); k++) {
        double d = b2k[k] * fac / f;
        s += d;
        if (fabs(d) < 1e-17 * fabs(s))
            break;
        double m = x + 2 * k + 1;
        fac *= m * (m + 1) / (a * a);
        f *= (2 * k + 3) * (2 * k + 4);
    }
    return s;
}

static double polygamma(double n, double x)
{
    if (n == 0)
        return slow_digamma(x);
    if (n == 1)
        return trigamma(x);
    return (fmod(n, 2) ? 1 : -1) * exp(lgamma(n + 1)) * hurwitz_zeta(n + 1, x);
}

/* Rational start (Giles 2010 style), then Newton steps on erf in double. */
static double erfinv(double y)
{
    if (y <= -1 || y >= 1 || y != y)
        return y == 1 ? INFINITY : y == -1 ? -INFINITY : NAN;
    if (y == 0)
        return y;
    double a = fabs(y), w = -log1p(-a * a), x;
    if (w < 5) { /* single-precision start, three Newton steps double the digits each */
        w -= 2.5;
        x = 1.50140941 +
            w * (0.246640727 + w * (-0.00417768164 +
                                    w * (-0.00125372503 +
                                         w * (0.00021858087 + w * (-4.39150654e-06 + w * -3.5233877e-06)))));
    } else {
        w = sqrt(w) - 3;
        x = 2.83297682 +
            w * (1.00167406 +
                 w * (0.00943887047 +
                      w * (-0.0076224613 + w * (0.00573950773 + w * (-0.00367342844 + w * 0.00134934322)))));
    }
    x *= a;
    for (int i = 0; i < 3; i++) {
        double e = a > 0.5 ? (1 - a) - erfc(x) : erf(x) - a;
        double d = 1.12837916709551257390 * exp(-x * x);
        if (d == 0)
            break;
        double u = e / d;
        x -= u / (1 + x * u); /* Halley */
    }
    return copysign(x, y);
}

static double bessel_i(int nu, double x) /* series for small, asymptotic for large arguments */
{
    double a = fabs(x);
    if (a <= 30) {
        double q = a * a / 4, t = nu ? a / 2 : 1, s = t;
        for (int k = 1; k < 200; k++) {
            t *= q / ((double)k * (k + nu));
            s += t;
            if (t < 1e-18 * s)
                break;
        }
        return nu && x < 0 ? -s : s;
    }
    if (isinf(a))
        return nu && x < 0 ? -INFINITY : INFINITY;
    double mu = 4.0 * nu * nu, t = 1, s = 1;
    for (int k = 1; k < 40; k++) {
        double n = t * -(mu - (2.0 * k - 1) * (2.0 * k - 1)) / (k * 8 * a);
        if (fabs(n) > fabs(t))
            break;
        t = n;
        s += t;
        if (fabs(t) < 1e-18)
            break;
    }
    double h = exp(a / 2), r = h * (h / sqrt(2 * M_PI * a)) * s;
    return nu && x < 0 ? -r : r;
}
static double bessel_i0(double x) { return bessel_i(0, x); }
static double bessel_i1(double x) { return bessel_i(1, x); }

static double erfcx(double x)
{
    if (x < 25)
        return exp(x * x) * erfc(x);
    double z = 1 / (x * x); /* asymptotic */
    return 0.56418958354775628695 / x * (1 - z / 2 * (1 - 1.5 * z * (1 - 2.5 * z * (1 - 3.5 * z))));
}

static double log_ndtr(double x)
{
    double t = x * 0.70710678118654752440;
    return x < -1 ? log(erfcx(-t) / 2) - t * t : log1p(-erfc(t) / 2);
}

static double round_decimals(double x, double d)
{
    double p = pow(10, fabs(d));
    return d < 0 ? rint(x / p) * p : rint(x * p) / p;
}

/* ---- incomplete gamma: P by its series, Q by its continued fraction ---- */
static double gamma_factor(double a, double x) /* x^a e^-x / Gamma(a) */
{
    return exp(a * log(x) - x - lgamma(a));
}
static double gamma_series(double a, double x)
{
    double t = 1 / a, s = t;
    for (int k = 1; k < 100000; k++) {
        t *= x / (a + k);
        s += t;
        if (t < s * 1e-17)
            break;
    }
    return s * gamma_factor(a, x);
}
static double gamma_fraction(double a, double x) /* Lentz */
{
    double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int k = 1; k < 100000; k++) {
        double an = -k * (k - a);
        b += 2;
        d = an * d + b;
        d = 1 / (fabs(d) < 1e-300 ? 1e-300 : d);
        c = b + an / c;
        c = fabs(c) < 1e-300 ? 1e-300 : c;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-16)
            break;
    }
    return h * gamma_factor(a, x);
}
static double igamma(double a, double x, bool upper)
{
    if (!(x >= 0) || !(a >= 0) || (a == 0 && x == 0) || (isinf(a) && isinf(x)))
        return NAN;
    if (a == 0 || isinf(x))
        return !upper;
    if (x == 0 || isinf(a))
        return upper;
    bool series = x < a + 1;
    double p = series ? gamma_series(a, x) : gamma_fraction(a, x);
    return series == upper ? 1 - p : p;
}

/* ---- K_nu(x) = integral of exp(-x cosh t) cosh(nu t): the trapezoid rule converges exponentially ---- */
static double bessel_k(double nu, double x, bool scaled)
{
    if (!(x > 0))
        return x == 0 ? INFINITY : NAN;
    const double h = 0.125;
    double s = 0.5 * (scaled ? 1 : exp(-x));
    for (int i = 1; i < 400; i++) {
        double t = i * h, e = x * (scaled ? 2 * sinh(t / 2) * sinh(t / 2) : cosh(t));
        if (e > 745 + nu * t)
            break;
        s += exp(-e) * cosh(nu * t);
    }
    return s * h;
}
static double airy(double x)
{
    if (x != x || isinf(x))
        return x != x ? x : 0;
    if (x > 1) {
        double z = 2.0 / 3 * x * sqrt(x);
        return sqrt(x / 3) * bessel_k(1.0 / 3, z, false) / M_PI;
    }
    if (x > -9) { /* Taylor's series of y'' = x y, from Ai(0) and Ai'(0) */
        long double f = 1, g = x, tf = 1, tg = x, c = (long double)x * x * x;
        for (int k = 1; k < 120; k++) {
            tf *= c / ((3.0L * k - 1) * (3.0L * k));
            tg *= c / ((3.0L * k) * (3.0L * k + 1));
            f += tf;
            g += tg;
        }
        return (double)(0.355028053887817239260063186004183L * f - 0.258819403792806798405183560189204L * g);
    }
    double y = -x, z = 2.0 / 3 * y * sqrt(y), p = 1, q = 0, u = 1;
    for (int k = 1; k < 30; k++) { /* asymptotic: even terms to the cosine, odd ones to the sine */
        double n = u * (6.0 * k - 5) * (6.0 * k - 3) * (6.0 * k - 1) / ((2.0 * k - 1) * 216 * k * z);
        if (fabs(n) > fabs(u))
            break;
        u = n;
        *(k & 1 ? &q : &p) += (k / 2) & 1 ? -u : u;
    }
    return (cos(z - M_PI_4) * p + sin(z - M_PI_4) * q) / (sqrt(M_PI) * sqrt(sqrt(y)));
}
static double sph_bessel_j0(double x)
{
    if (isinf(x))
        return 0;
    return fabs(x) < 1e-4 ? 1 - x * x / 6 : sin(x) / x;
}

/* ---- orthogonal polynomials, by their recurrences ---- */
typedef enum { POLY_t, POLY_u, POLY_v, POLY_w, POLY_h, POLY_he, POLY_l, POLY_p } poly;
static double polynomial(poly kind, double x, double degree)
{
    if (!(degree > -1) || x != x) /* degrees are truncated */
        return x != x ? x : 0;
    int64_t n = degree < 1e6 ? (int64_t)degree : 1000000;
    double odd = n & 1 ? -1 : 1, w = 2 * (double)n + 1;
    if (kind <= POLY_w && fabs(x) == 1)
        switch (kind) {
        case POLY_t: return x > 0 ? 1 : odd;
        case POLY_u: return (x > 0 ? 1 : odd) * ((double)n + 1);
        case POLY_v: return x > 0 ? 1 : odd * w;
        default: return x > 0 ? w : odd;
        }
    if (kind <= POLY_w && n > 8 && fabs(x) < 1) { /* no error grows in the closed form */
        double a = acos(x);
        switch (kind) {
        case POLY_t: return cos((double)n * a);
        case POLY_u: return sin(((double)n + 1) * a) / sin(a);
        case POLY_v: return cos(((double)n + 0.5) * a) / cos(a / 2);
        default: return sin(((double)n + 0.5) * a) / sin(a / 2);
        }
    }
    double first[] = { [POLY_t] = x,     [POLY_u] = 2 * x, [POLY_v] = 2 * x - 1, [POLY_w] = 2 * x + 1,
                       [POLY_h] = 2 * x, [POLY_he] = x,    [POLY_l] = 1 - x,     [POLY_p] = x };
    double p = 1, q = first[kind];
    if (!n)
        return 1;
    for (int64_t k = 1; k < n; k++) {
        double m = (double)k, r;
        switch (kind) {
        case POLY_h: r = 2 * x * q - 2 * m * p; break;
        case POLY_he: r = x * q - m * p; break;
        case POLY_l: r = ((2 * m + 1 - x) * q - m * p) / (m + 1); break;
        case POLY_p: r = ((2 * m + 1) * x * q - m * p) / (m + 1); break;
        default: r = 2 * x * q - p;
        }
        p = q;
        q = r;
        if (q != q)
            break;
    }
    return q;
}

#define FLOATS(T, f)                                     \
    static inline T rem_float_##T(T x, T y)              \
    {                                                    \
        T m = f(x, y);                                   \
        return m != 0 && (y < 0) != (m < 0) ? m + y : m; \
    }                                                    \
    static inline T floor_div_##T(T x, T y)              \
    {                                                    \
        if (y == 0)                                      \
            return x / y;                                \
        T m = f(x, y), d = (x - m) / y;                  \
        if (m != 0 && (y < 0) != (m < 0))                \
            d -= 1;                                      \
        if (d == 0)                                      \
            return (T)copysign(0.0, (double)(x / y));    \
        T fl = (T)floor((double)d);                      \
        return d - fl > (T)0.5 ? fl + 1 : fl;            \
    }                                                    \
    static inline T frexp_man_##T(T x)                   \
    {                                                    \
        int e;                                           \
        return (T)frexp((double)x, &e);                  \
    }                                                    \
    static inline T frexp_exp_##T(T x)                   \
    {                                                    \
        int e = 0;                                       \
        if (isfinite(x))                                 \
            frexp((double)x, &e);                        \
        return (T)e;                                     \
    }
FLOATS(float, fmodf)
FLOATS(double, fmod)
#define rem_float(x, y) _Generic((x), float : rem_float_float, double : rem_float_double)(x, y)
#define floor_div(x, y) _Generic((x), float : floor_div_float, double : floor_div_double)(x, y)
#define frexp_man(x)    _Generic((x), float : frexp_man_float, double : frexp_man_double)(x)
#define frexp_exp(x)    _Generic((x), float : frexp_exp_float, double : frexp_exp_double)(x)

static inline int64_t rem_int(int64_t x, int64_t y)
{
    if (y == 0 || y == -1)
        return 0;
    int64_t m = x % y;
    return m != 0 && (y < 0) != (m < 0) ? m + y : m;
}
static inline int64_t floor_int(int64_t x, int64_t y)
{
    if (y == 0)
        return 0;
    if (y == -1)
        return (int64_t)(0 - (uint64_t)x);
    int64_t q = x / y;
    return x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}
static inline uint64_t mag(int64_t x) { return x < 0 ? 0 - (uint64_t)x : (uint64_t)x; }
static inline uint64_t gcd_int(int64_t x, int64_t y)
{
    uint64_t a = mag(x), b = mag(y);
    while (a) {
        uint64_t t = b % a;
        b = a;
        a = t;
    }
    return b;
}
static inline uint64_t lcm_int(int64_t x, int64_t y)
{
    uint64_t g = gcd_int(x, y);
    return g ? mag((int64_t)(mag(x) / g * mag(y))) : 0;
}

#define PW_NAME(nm, t) pw_##nm##_##t
#include "ops/simd/pw_loops.h"
#include "ops/pw_slow.def"
