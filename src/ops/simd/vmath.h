/* vmath.h - branch-free mathematics that the compiler turns into vector code, for float and double.
 * Every function is plain C on one element; loops over it vectorise because there is no call and no branch.
 * Errors are 1 to 2 units in the last place. float versions of the less used functions compute in double.
 * Arguments of sin, cos and tan beyond VM_TRIG_MAX must be sent to libm by the caller (m_big asks). */
#ifndef TAPER_VMATH_H
#define TAPER_VMATH_H
#include "base/base.h"
#include <math.h>

#define VM_INL static inline __attribute__((always_inline, unused))
#ifdef __FMA__
#define FMA(a, b, c)  __builtin_fma(a, b, c)
#define FMAF(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA(a, b, c)  ((a) * (b) + (c))
#define FMAF(a, b, c) ((a) * (b) + (c))
#endif
#define VM_TRIG_MAX 500000.0

VM_INL uint32_t bits_f(float x)
{
    union {
        float f;
        uint32_t u;
    } v = { x };
    return v.u;
}
VM_INL float float_b(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } v = { u };
    return v.f;
}
VM_INL uint64_t bits_d(double x)
{
    union {
        double f;
        uint64_t u;
    } v = { x };
    return v.u;
}
VM_INL double double_b(uint64_t u)
{
    union {
        uint64_t u;
        double f;
    } v = { u };
    return v.f;
}

/* Adding this constant rounds to an integer and leaves it in the low mantissa bits. */
#define RND_F 0x1.8p23f
#define RND_D 0x1.8p52

/* ---- exp: x = n ln2 + r, e^r by polynomial, 2^n in two factors so that subnormal results come out ---- */
VM_INL float pow2_f(int32_t n) { return float_b((uint32_t)(n + 127) << 23); } /* n in [-126, 127] */
VM_INL double pow2_d(int64_t n) { return double_b((uint64_t)(n + 1023) << 52); }

VM_INL float exp_tail_f(float r) /* e^r for |r| <= ln2 / 2 */
{
    float q = FMAF(r, 0.00139262508f, 0.00836323288f);
    q = FMAF(q, r, 0.0416665542f);
    q = FMAF(q, r, 0.166665767f);
    q = FMAF(q, r, 0.5f);
    return FMAF(r * r, q, r) + 1.0f;
}
VM_INL float m_exp_f32(float x)
{
    float c = x > 89.0f ? 89.0f : x;
    c = c < -104.0f ? -104.0f : c;
    float t = FMAF(c, 1.44269504f, RND_F), n = t - RND_F;
    int32_t k = (int32_t)(bits_f(t) - bits_f(RND_F)), h = k >> 1;
    float r = FMAF(n, -0.693145751953125f, c);
    r = FMAF(n, -1.42860677e-6f, r);
    return exp_tail_f(r) * pow2_f(h) * pow2_f(k - h);
}
VM_INL double exp_q_d(double r) /* (e^r - 1 - r) / r^2 */
{
    double q = FMA(r, 2.09147553258932022e-9, 2.51053127296221018e-8);
    q = FMA(q, r, 2.75572734787185805e-7);
    q = FMA(q, r, 2.75572551700008874e-6);
    q = FMA(q, r, 0.0000248015873256774619);
    q = FMA(q, r, 0.000198412698750022788);
    q = FMA(q, r, 0.00138888888888837112);
    q = FMA(q, r, 0.00833333333332608312);
    q = FMA(q, r, 0.0416666666666666698);
    q = FMA(q, r, 0.16666666666666671);
    return FMA(q, r, 0.5);
}
#define LN2_HI 6.93147180369123816490e-01
#define LN2_LO 1.90821492927058770002e-10
VM_INL double m_exp_f64(double x)
{
    double c = x > 710.0 ? 710.0 : x;
    c = c < -746.0 ? -746.0 : c;
    double t = FMA(c, 1.4426950408889634, RND_D), n = t - RND_D;
    int64_t k = (int64_t)(bits_d(t) - bits_d(RND_D)), h = k >> 1;
    double r = FMA(n, -LN2_HI, c);
    r = FMA(n, -LN2_LO, r);
    return (FMA(r * r, exp_q_d(r), r) + 1.0) * pow2_d(h) * pow2_d(k - h);
}
/* e^x in double to 1e-10, for float results; |x| <= 700. */
VM_INL double exp_mid(double c)
{
    double t = FMA(c, 1.4426950408889634, RND_D), n = t - RND_D;
    int64_t k = (int64_t)(bits_d(t) - bits_d(RND_D));
    double r = FMA(n, -LN2_HI, c), q;
    r = FMA(n, -LN2_LO, r);
    q = FMA(r, 0.0000248596943947520718, 0.000198993901836792308);
    q = FMA(q, r, 0.0013888853909945039);
    q = FMA(q, r, 0.00833329834402309204);
    q = FMA(q, r, 0.041666666719295685);
    q = FMA(q, r, 0.166666667193124809);
    q = FMA(q, r, 0.5);
    return (FMA(r * r, q, r) + 1.0) * pow2_d(k);
}
VM_INL float m_exp2_f32(float x)
{
    float c = x > 129.0f ? 129.0f : x;
    c = c < -151.0f ? -151.0f : c;
    float t = c + RND_F, n = t - RND_F;
    int32_t k = (int32_t)(bits_f(t) - bits_f(RND_F)), h = k >> 1;
    return exp_tail_f((c - n) * 0.693147181f) * pow2_f(h) * pow2_f(k - h);
}
VM_INL double m_exp2_f64(double x)
{
    double c = x > 1025.0 ? 1025.0 : x;
    c = c < -1077.0 ? -1077.0 : c;
    double t = c + RND_D, n = t - RND_D, f = c - n;
    int64_t k = (int64_t)(bits_d(t) - bits_d(RND_D)), h = k >> 1;
    double r = FMA(f, LN2_HI, f * LN2_LO);
    return (FMA(r * r, exp_q_d(r), r) + 1.0) * pow2_d(h) * pow2_d(k - h);
}
/* e^x - 1 = 2 (s (e^r - 1) + (s - 1/2)), s = 2^(n-1) */
VM_INL double m_expm1_f64(double x)
{
    double c = x > 710.0 ? 710.0 : x;
    c = c < -60.0 ? -60.0 : c;
    double t = FMA(c, 1.4426950408889634, RND_D), n = t - RND_D;
    int64_t k = (int64_t)(bits_d(t) - bits_d(RND_D));
    double r = FMA(n, -LN2_HI, c);
    r = FMA(n, -LN2_LO, r);
    double em = FMA(r * r, exp_q_d(r), r), s = pow2_d(k - 1);
    double y = 2 * (FMA(s, em, s - 0.5));
    return k == 0 ? (c == 0 ? x : em) : y;
}
VM_INL float m_expm1_f32(float x)
{
    double c = x > 100.0f ? 100.0 : (double)x;
    c = c < -60.0 ? -60.0 : c;
    double r = (double)x, e = exp_mid(c) - 1;
    double p = r * FMA(r, FMA(r, FMA(r, 1.0 / 24, 1.0 / 6), 0.5), 1.0);
    return (float)(fabs(r) < 1e-3 ? p : e);
}

/* ---- log: x = 2^e m, m in [sqrt(1/2), sqrt(2)) ---- */
VM_INL float m_log_f32(float x)
{
    bool tiny = x < 1.17549435e-38f;
    float y = tiny ? x * 8388608.0f : x;
    uint32_t ix = bits_f(y) - 0x3f3504f3u;
    int32_t e = ((int32_t)ix >> 23) - (tiny ? 23 : 0);
    float f = float_b((ix & 0x7fffffu) + 0x3f3504f3u) - 1.0f, k = (float)e;
    float p = FMAF(f, -0.0790274377f, 0.126223198f);
    p = FMAF(p, f, -0.129981838f);
    p = FMAF(p, f, 0.142144959f);
    p = FMAF(p, f, -0.166412815f);
    p = FMAF(p, f, 0.200010451f);
    p = FMAF(p, f, -0.250003064f);
    p = FMAF(p, f, 0.333333307f);
    float z = f * f, r = FMAF(z * f, p, k * -2.12194440e-4f);
    r = FMAF(z, -0.5f, r) + f;
    r = FMAF(k, 0.693359375f, r);
    r = x == INFINITY ? INFINITY : r;
    r = x == 0 ? -INFINITY : r;
    return x < 0 || x != x ? NAN : r;
}
/* log of m 2^e: the fraction part's logarithm, and e, left to the caller to add */
VM_INL double log_frac_d(double x, double *k)
{
    bool tiny = x < 2.2250738585072014e-308;
    double y = tiny ? x * 0x1p54 : x;
    uint64_t ix = bits_d(y) - 0x3fe6a09e667f3bcdull;
    /* the exponent through the mantissa trick: 64-bit integer to double needs no instruction of its own */
    uint64_t e = (ix >> 52) ^ 0x800; /* biased by 2048, sign folded in */
    *k = (double_b(e | 0x4330000000000000ull) - 4503599627370496.0) - (tiny ? 2048.0 + 54 : 2048.0);
    return double_b((ix & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull) - 1.0;
}
VM_INL double log_r_d(double f, double s)
{
    double z = s * s, p = FMA(z, 0.146300313641228605, 0.153306173067433049);
    p = FMA(p, z, 0.181829225135159416);
    p = FMA(p, z, 0.222222106742385152);
    p = FMA(p, z, 0.285714286288109956);
    p = FMA(p, z, 0.399999999998932218);
    p = FMA(p, z, 0.666666666666666991);
    double h = 0.5 * f * f;
    return s * FMA(z, p, h) - h; /* log(1 + f) - f */
}
VM_INL double log_special_d(double x, double r)
{
    r = x == INFINITY ? INFINITY : r;
    r = x == 0 ? -INFINITY : r;
    return x < 0 || x != x ? NAN : r;
}
VM_INL double m_log_f64(double x)
{
    double k, f = log_frac_d(x, &k), s = f / (2.0 + f);
    double r = FMA(k, LN2_LO, log_r_d(f, s)) + f;
    return log_special_d(x, FMA(k, LN2_HI, r));
}
VM_INL double log_normal(double x) /* x > 0, normal and finite */
{
    uint64_t ix = bits_d(x) - 0x3fe6a09e667f3bcdull, e = (ix >> 52) ^ 0x800;
    double k = double_b(e | 0x4330000000000000ull) - (4503599627370496.0 + 2048.0);
    double f = double_b((ix & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull) - 1.0, s = f / (2.0 + f);
    return FMA(k, LN2_HI, FMA(k, LN2_LO, log_r_d(f, s)) + f);
}
VM_INL double m_log2_f64(double x)
{
    double k, f = log_frac_d(x, &k), s = f / (2.0 + f), d = log_r_d(f, s);
    /* (f + d) / ln2 with the constant split so that small results keep their bits */
    double r = FMA(f, 1.4426950408889634, FMA(f, 2.0355273740931033e-17, d * 1.4426950408889634));
    return log_special_d(x, k + r);
}
VM_INL float m_log2_f32(float x) { return (float)m_log2_f64((double)x); }
VM_INL float m_log10_f32(float x) { return (float)(m_log_f64((double)x) * 0.43429448190325182765); }
VM_INL double m_log10_f64(double x) { return log10(x); }
VM_INL double log_mid(double x) /* float accuracy, x > 0 and normal */
{
    uint64_t ix = bits_d(x) - 0x3fe6a09e667f3bcdull, e = (ix >> 52) ^ 0x800;
    double k = double_b(e | 0x4330000000000000ull) - (4503599627370496.0 + 2048.0);
    double f = double_b((ix & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull) - 1.0, z = f * f;
    double p = FMA(f, 0.0697161147145117783, -0.114797338466376356);
    p = FMA(p, f, 0.116854199234867393);
    p = FMA(p, f, -0.124256873314511061);
    p = FMA(p, f, 0.142490576456974804);
    p = FMA(p, f, -0.166678023195012541);
    p = FMA(p, f, 0.200007157488921017);
    p = FMA(p, f, -0.24999996957950882);
    p = FMA(p, f, 0.333333311800300481);
    return FMA(k, 0.69314718055994531, FMA(z * f, p, FMA(z, -0.5, f)));
}
VM_INL double m_log1p_f64(double x)
{
    double u = 1.0 + x, c = (u - 1.0) - x;
    double l = m_log_f64(u), r = l - (c / u);
    r = u == 1.0 ? x : r;
    r = x == INFINITY ? INFINITY : r;
    return x == -1.0 ? -INFINITY : r;
}
VM_INL float m_log1p_f32(float x) /* log(u) plus what u = 1 + x lost */
{
    float u = 1.0f + x, c = x - (u - 1.0f), r = m_log_f32(u) + c / u;
    r = u == 0 ? -INFINITY : r;
    return u == INFINITY ? INFINITY : r;
}

/* ---- sin, cos, tan: quadrant by rounding x 2/pi; valid for |x| <= VM_TRIG_MAX ---- */
VM_INL double trig_reduce(double x, uint64_t *q)
{
    double t = FMA(x, 0.63661977236758134308, RND_D), n = t - RND_D;
    *q = bits_d(t);
    double r = FMA(n, -1.57079632673412561417e+00, x);
    r = FMA(n, -6.07710050630396597660e-11, r);
    return FMA(n, -2.02226624879595063154e-21, r);
}
VM_INL double sin_poly(double r, double z)
{
    double p = FMA(z, 1.59167261938893374e-10, -2.50511122725732437e-8);
    p = FMA(p, z, 2.75573160081715511e-6);
    p = FMA(p, z, -0.00019841269836575709);
    p = FMA(p, z, 0.008333333333330827);
    p = FMA(p, z, -0.166666666666666645);
    return FMA(r * z, p, r);
}
VM_INL double cos_poly(double z)
{
    double p = FMA(z, -1.13817546536629368e-11, 2.08761340240901462e-9);
    p = FMA(p, z, -2.75573172126865901e-7);
    p = FMA(p, z, 0.0000248015872986512916);
    p = FMA(p, z, -0.00138888888888873212);
    p = FMA(p, z, 0.0416666666666666653);
    return 1.0 - (0.5 * z - z * z * p);
}
VM_INL double sincos_d(double x, uint64_t shift)
{
    uint64_t q;
    double r = trig_reduce(x, &q), z = r * r;
    q += shift;
    double v = q & 1 ? cos_poly(z) : sin_poly(r, z);
    return double_b(bits_d(v) ^ ((q & 2) << 62));
}
VM_INL double sincos_mid(double x, uint64_t shift) /* float accuracy */
{
    uint64_t q;
    double r = trig_reduce(x, &q), z = r * r;
    q += shift;
    double s = FMA(z, 2.72468687228779445e-6, -0.000198400630408041169);
    s = FMA(s, z, 0.00833333183062942836);
    s = FMA(s, z, -0.166666666637413677);
    s = FMA(r * z, s, r);
    double c = FMA(z, 0.0000245454190783532953, -0.00138882913005569332);
    c = FMA(c, z, 0.0416666645988279801);
    c = FMA(z * z, c, FMA(z, -0.5, 1.0));
    double v = q & 1 ? c : s;
    return double_b(bits_d(v) ^ ((q & 2) << 62));
}
VM_INL double m_sin_f64(double x) { return x == 0 ? x : sincos_d(x, 0); }
VM_INL double m_cos_f64(double x) { return sincos_d(x, 1); }
VM_INL float m_sin_f32(float x) { return x == 0 ? x : (float)sincos_mid((double)x, 0); }
VM_INL float m_cos_f32(float x) { return (float)sincos_mid((double)x, 1); }
VM_INL double m_tan_f64(double x)
{
    uint64_t q;
    double r = trig_reduce(x, &q), z = r * r, s = sin_poly(r, z), c = cos_poly(z);
    double v = q & 1 ? -c / s : s / c;
    return x == 0 ? x : v;
}
VM_INL float m_tan_f32(float x) { return (float)m_tan_f64((double)x); }

/* ---- inverse trigonometric ---- */
VM_INL double m_atan_f64(double x)
{
    double a = fabs(x), base = 0, lo = 0, t = a;
    bool big = a > 2.414213562373095, mid = a > 0.4142135623730950;
    double num = big ? -1.0 : mid ? a - 1.0 : a, den = big ? a : mid ? a + 1.0 : 1.0;
    t = num / den;
    base = big ? 1.5707963267948966 : mid ? 0.78539816339744831 : 0.0;
    lo = big ? 6.123233995736766e-17 : mid ? 3.061616997868383e-17 : 0.0;
    double z = t * t, p = FMA(z, 0.0161482285467718696, -0.0344458444235773849);
    p = FMA(p, z, 0.0454671950955516654);
    p = FMA(p, z, -0.0522938047378184059);
    p = FMA(p, z, 0.0587878246944398118);
    p = FMA(p, z, -0.0666641207772527434);
    p = FMA(p, z, 0.0769229565832787351);
    p = FMA(p, z, -0.0909090872858745904);
    p = FMA(p, z, 0.111111111046522548);
    p = FMA(p, z, -0.142857142856546389);
    p = FMA(p, z, 0.199999999999997838);
    p = FMA(p, z, -0.333333333333333332);
    return copysign(base + (FMA(t * z, p, t) + lo), x);
}
VM_INL float m_atan_f32(float x) { return (float)m_atan_f64((double)x); }
VM_INL double m_asin_f64(double x)
{
    double a = fabs(x), r = m_atan_f64(a / sqrt((1.0 - a) * (1.0 + a)));
    return copysign(x == 0 ? a : r, x);
}
VM_INL float m_asin_f32(float x) /* beyond 1/2 by the half angle */
{
    float a = fabsf(x), z = a > 0.5f ? 0.5f - 0.5f * a : a * a;
    float s = a > 0.5f ? __builtin_sqrtf(z) : a, p = FMAF(z, 0.0336908472f, 0.0171492384f);
    p = FMAF(p, z, 0.0311006627f);
    p = FMAF(p, z, 0.0445994015f);
    p = FMAF(p, z, 0.0750009454f);
    p = FMAF(p, z, 0.166666663f);
    float r = FMAF(s * z, p, s), h = FMAF(-2.0f * s, z * p, (1.57079637f - 2.0f * s) - 4.37113883e-8f);
    return copysignf(a > 0.5f ? h : r, x);
}
VM_INL double m_acos_f64(double x) { return 2.0 * m_atan_f64(sqrt((1.0 - x) / (1.0 + x))); }
VM_INL float m_acos_f32(float x) { return (float)m_acos_f64((double)x); }

/* ---- hyperbolic ---- */
VM_INL double m_tanh_f64(double x)
{
    double a = fabs(x), t = m_expm1_f64(a > 30.0 ? 60.0 : 2 * a);
    return x != x ? x : copysign(t / (t + 2.0), x);
}
VM_INL float m_tanh_f32(float x)
{
    double c = x > 20.0f ? 20.0 : (double)x;
    c = c < -20.0 ? -20.0 : c;
    double v = 1.0 - 2.0 / (exp_mid(c + c) + 1.0), s = c * (1.0 - c * c * (1.0 / 3));
    return fabs(c) < 2e-4 ? (float)s : (float)v;
}
VM_INL double m_sinh_f64(double x)
{
    double a = fabs(x), h = m_exp_f64(0.5 * a), e = m_expm1_f64(a > 30 ? 30.0 : a);
    double small = 0.5 * (e + e / (e + 1.0)), big = (0.5 * h) * h;
    return copysign(a < 22.0 ? small : big, x);
}
VM_INL float m_sinh_f32(float x)
{
    double a = fabs((double)x), z = a * a;
    a = a > 90.0 ? 90.0 : a;
    double e = exp_mid(a), r = 0.5 * (e - 1.0 / e), s = a * (1.0 + z * (1.0 / 6 + z * (1.0 / 120)));
    return (float)copysign(a < 0.05 ? s : r, (double)x);
}
VM_INL double m_cosh_f64(double x)
{
    double h = m_exp_f64(0.5 * fabs(x)), e = h * h;
    return fabs(x) < 22.0 ? 0.5 * (e + 1.0 / e) : (0.5 * h) * h;
}
VM_INL float m_cosh_f32(float x)
{
    double a = fabs((double)x);
    a = a > 90.0 ? 90.0 : a;
    double e = exp_mid(a);
    return (float)(0.5 * (e + 1.0 / e));
}
VM_INL double m_asinh_f64(double x)
{
    double a = fabs(x), z = a * a, r = m_log1p_f64(a + z / (1.0 + sqrt(1.0 + z)));
    double big = m_log_f64(a) + 0.69314718055994531;
    return copysign(a > 1e8 ? big : r, x);
}
VM_INL float m_asinh_f32(float x) { return (float)m_asinh_f64((double)x); }
VM_INL double m_acosh_f64(double x)
{
    double t = x - 1.0, r = m_log1p_f64(t + sqrt(2.0 * t + t * t));
    r = x < 1.0 ? NAN : r;
    return x > 1e8 ? m_log_f64(x) + 0.69314718055994531 : r;
}
VM_INL float m_acosh_f32(float x) { return (float)m_acosh_f64((double)x); }
VM_INL double m_atanh_f64(double x)
{
    double a = fabs(x);
    return copysign(0.5 * m_log1p_f64(2.0 * a / (1.0 - a)), x);
}
VM_INL float m_atanh_f32(float x)
{
    double a = fabs((double)x), r = 0.5 * log_mid((1.0 + a) / (1.0 - a));
    r = a < 1e-3 ? FMA(a * a * a, 1.0 / 3, a) : r;
    r = a == 1.0 ? INFINITY : r;
    return (float)copysign(a > 1.0 || a != a ? NAN : r, (double)x);
}

/* ---- logistic and error functions ---- */
VM_INL float m_sigmoid_f32(float x) { return 1.0f / (1.0f + m_exp_f32(-x)); }
VM_INL double m_sigmoid_f64(double x) { return 1.0 / (1.0 + m_exp_f64(-x)); }
/* erfc of a >= 0: polynomial over (1 + 2a), one division for both quotients. Zero beyond 9.3, where it leaves
 * the normal numbers; e^(-a^2) with what the rounded square lost. */
VM_INL float erfc_pos_f(float a)
{
    float d = FMAF(2.0f, a, 1.0f), n = a + 3.75f, r = 1.0f / (n * d), t = (a - 3.75f) * d * r;
    float p = FMAF(t, 0.00107694313f, 0.00224628023f);
    p = FMAF(p, t, -0.00999150458f);
    p = FMAF(p, t, 0.0280328933f);
    p = FMAF(p, t, -0.0587076739f);
    p = FMAF(p, t, 0.0923704207f);
    p = FMAF(p, t, -0.108794356f);
    p = FMAF(p, t, 0.082271694f);
    p = FMAF(p, t, 0.00358475087f);
    p = FMAF(p, t, -0.140240486f);
    p = FMAF(p, t, 1.23751264f);
    float c = a > 9.3f ? 9.3f : a, q = c * c;
#ifdef __FMA__
    float lost = FMAF(c, c, -q);
#else
    float lost = (float)((double)c * (double)c - (double)q);
#endif
    float w = FMAF(q, -1.44269504f, RND_F), k = w - RND_F;
    float u = FMAF(k, -0.693145751953125f, -q);
    u = FMAF(k, -1.42860677e-6f, u) - lost;
    float e = exp_tail_f(u) * float_b((bits_f(w) << 23) + 0x3f800000u);
    return a > 9.3f ? 0 : p * (n * r) * e;
}
VM_INL float erf_near_f(float a) /* a <= 1 */
{
    float z = a * a, p = FMAF(z, -9.66704457e-6f, 0.00011265959f);
    p = FMAF(p, z, -0.000848408041f);
    p = FMAF(p, z, 0.00522103181f);
    p = FMAF(p, z, -0.0268654307f);
    p = FMAF(p, z, 0.112837825f);
    p = FMAF(p, z, -0.376126385f);
    return a * FMAF(p, z, 1.12837917f);
}
VM_INL float m_erf_f32(float x)
{
    float a = fabsf(x), r = a < 1.0f ? erf_near_f(a) : 1.0f - erfc_pos_f(a);
    return x != x ? x : copysignf(r, x);
}
VM_INL double erf_near_d(double x)
{
    double z = x * x, p = FMA(z, 5.9571761477489114e-11, -1.13728488567916737e-9);
    p = FMA(p, z, 1.46597752740474358e-8);
    p = FMA(p, z, -1.6350312701054695e-7);
    p = FMA(p, z, 1.6461000484121368e-6);
    p = FMA(p, z, -0.0000149255952668311816);
    p = FMA(p, z, 0.000120553311116427109);
    p = FMA(p, z, -0.000854832698083378991);
    p = FMA(p, z, 0.00522397762481801447);
    p = FMA(p, z, -0.0268661706450767932);
    p = FMA(p, z, 0.112837916709548787);
    p = FMA(p, z, -0.376126389031837481);
    return x * FMA(p, z, 1.12837916709551257);
}
VM_INL double erfc_pos_d(double a) /* a >= 1 */
{
    double t = (a - 3.75) / (a + 3.75), p = FMA(t, 1.45902396908281783e-8, 2.86600989577748691e-8);
    p = FMA(p, t, -2.27909464246685837e-7);
    p = FMA(p, t, -7.17712287669197841e-8);
    p = FMA(p, t, 1.73300107840187379e-6);
    p = FMA(p, t, -9.62032801928181785e-7);
    p = FMA(p, t, -0.0000114378525843465845);
    p = FMA(p, t, 0.0000223795048168861967);
    p = FMA(p, t, 0.0000516478625285469469);
    p = FMA(p, t, -0.000290152934213910196);
    p = FMA(p, t, 0.000293713800815718055);
    p = FMA(p, t, 0.00175562568358572332);
    p = FMA(p, t, -0.00974657956444952033);
    p = FMA(p, t, 0.0283622774339562519);
    p = FMA(p, t, -0.0586933985897417523);
    p = FMA(p, t, 0.0923043211596344522);
    p = FMA(p, t, -0.108803930141727999);
    p = FMA(p, t, 0.0822767384901626535);
    p = FMA(p, t, 0.0035854154854639112);
    p = FMA(p, t, -0.140240598585547089);
    p = FMA(p, t, 1.23751263083782758);
    /* a^2 to more bits than a double holds: high half squared exactly, the rest as a correction */
    double hi = double_b(bits_d(a) & 0xfffffffff8000000ull), lo = (a - hi) * (a + hi);
    return p / (1.0 + 2.0 * a) * m_exp_f64(-hi * hi) * m_exp_f64(-lo);
}
VM_INL double m_erf_f64(double x)
{
    double a = fabs(x), r = a < 1.0 ? erf_near_d(a) : 1.0 - erfc_pos_d(a > 8.0 ? 8.0 : a);
    return x != x ? x : copysign(r, x);
}
VM_INL double m_erfc_f64(double x)
{
    double a = fabs(x), e = erfc_pos_d(a > 28.0 ? 28.0 : a < 1.0 ? 1.0 : a);
    double r = x < 0 ? 2.0 - e : e;
    return x != x ? x : a < 1.0 ? 1.0 - erf_near_d(x) : r;
}
VM_INL float m_erfc_f32(float x)
{
    float a = fabsf(x), e = a < 0.6f ? 1.0f - erf_near_f(a) : erfc_pos_f(a);
    return x < 0 ? 2.0f - e : e;
}
/* erfinv: a polynomial in w = -log(1 - y^2), or in its root further out; good to 4e-8 */
VM_INL double erfinv_start(double a)
{
    double w = -log_mid((1.0 - a) * (1.0 + a)), t = w - 2.5, s = __builtin_sqrt(w) - 4.15;
    double p = FMA(t, -2.12035651318190039e-11, 1.23028889731208042e-10);
    p = FMA(p, t, 8.32700082103081304e-10);
    p = FMA(p, t, -1.08543970931123768e-8);
    p = FMA(p, t, 1.36914960151991517e-8);
    p = FMA(p, t, 4.78644824340027128e-7);
    p = FMA(p, t, -3.41711523274501038e-6);
    p = FMA(p, t, -4.99588144876005954e-6);
    p = FMA(p, t, 0.000218250649399950023);
    p = FMA(p, t, -0.00125270808362228086);
    p = FMA(p, t, -0.00417731781014003476);
    p = FMA(p, t, 0.246640276785267755);
    p = FMA(p, t, 1.50140935111079192);
    double q = FMA(s, -3.64345170058774425e-7, 9.0242708908304294e-7);
    q = FMA(q, s, 3.20040589350005503e-6);
    q = FMA(q, s, -0.0000118359191859089488);
    q = FMA(q, s, 8.13603187342484209e-6);
    q = FMA(q, s, -1.5859752356572542e-6);
    q = FMA(q, s, 0.0000314077648371353203);
    q = FMA(q, s, -0.0000954254000271294872);
    q = FMA(q, s, 0.000248553998895527769);
    q = FMA(q, s, -0.000692726864724642566);
    q = FMA(q, s, 0.000908266503010297787);
    q = FMA(q, s, 1.00981569277910623);
    q = FMA(q, s, 3.99123336978068421);
    return a * (w < 5.0 ? p : q);
}
VM_INL double erfinv_ends(double y, double a, double r)
{
    r = a == 1.0 ? INFINITY : r;
    return copysign(a > 1.0 || a != a ? NAN : r, y);
}
VM_INL float m_erfinv_f32(float y)
{
    double a = fabs((double)y);
    return (float)erfinv_ends((double)y, a, erfinv_start(a));
}
VM_INL double m_erfinv_f64(double y) /* one step of Halley's iteration triples the digits */
{
    double a = fabs(y), x = erfinv_start(a);
    double e = a > 0.5 ? (1.0 - a) - m_erfc_f64(x) : m_erf_f64(x) - a;
    double u = e / (1.12837916709551257390 * m_exp_f64(-x * x));
    return erfinv_ends(y, a, x - u / FMA(x, u, 1.0));
}
/* x Phi(x) = max(x, 0) - |x| Phi(-|x|): from the tail, so that no digits cancel on the negative side */
VM_INL float m_gelu_f32(float x)
{
    float a = fabsf(x);
    a = a > 13.1f ? 13.1f : a;
    float t = 1.0f / FMAF(a, 0.25f, 1.0f), p = FMAF(t, 0.02970171757f, -0.1722137771f);
    p = FMAF(p, t, 0.3363922027f);
    p = FMAF(p, t, -0.2521244046f);
    p = FMAF(p, t, 0.2340290132f);
    p = FMAF(p, t, 0.01903120434f);
    p = FMAF(p, t, 0.1073541579f);
    p = FMAF(p, t, 0.09800137903f);
    p = FMAF(p, t, 0.09982850094f);
    float q = -0.5f * a * a, w = FMAF(q, 1.44269504f, RND_F), r = FMAF(w - RND_F, -0.693147181f, q);
    float e = FMAF(r, 0.001394110843f, 0.008375126398f);
    e = FMAF(e, r, 0.0416663529f);
    e = FMAF(e, r, 0.1666641551f);
    e = FMAF(e, r, 0.5000000047f);
    e = FMAF(FMAF(e, r, 1.0f), r, 1.0f) * float_b((bits_f(w) << 23) + 0x3f800000u);
    return (x > 0 ? x : 0.0f) - a * t * p * e;
}
VM_INL double m_gelu_f64(double x) { return x * 0.5 * (1.0 + m_erf_f64(x * 0.70710678118654752440)); }

/* ---- gamma functions, float: shifted up past 8, then Stirling's series; reflected below 1/2 ---- */
VM_INL float m_lgamma_f32(float xf)
{
    double x = (double)xf, v = x < 0.5 ? 1.0 - x : x, c = v > 8.0 ? 8.0 : v;
    double prod = ((c * (c + 1.0)) * ((c + 2.0) * (c + 3.0))) *
                  (((c + 4.0) * (c + 5.0)) * ((c + 6.0) * (c + 7.0)));
    prod = v < 8.0 ? prod : 1.0;
    double y = v < 8.0 ? v + 8.0 : v, i = 1.0 / y, z = i * i, p = FMA(z, 1.0 / 156, -691.0 / 360360);
    p = FMA(p, z, 1.0 / 1188);
    p = FMA(p, z, -1.0 / 1680);
    p = FMA(p, z, 1.0 / 1260);
    p = FMA(p, z, -1.0 / 360);
    p = FMA(p, z, 1.0 / 12);
    double s = FMA(y - 0.5, log_normal(y), FMA(p, i, 0.91893853320467274178 - y));
    double turn = fabs(sincos_d((x - __builtin_rint(x)) * 3.14159265358979323846, 0));
    double q = log_normal(x < 0.5 ? 3.14159265358979323846 * prod / turn : prod);
    double r = x < 0.5 ? q - s : s - q;
    r = (x - 1.0) * (x - 2.0) == 0 ? 0.0 : r;
    r = x <= 0 ? (turn == 0 ? INFINITY : r) : r;
    return (float)(fabs(x) == INFINITY ? INFINITY : r);
}
VM_INL double m_lgamma_f64(double x) { return lgamma(x); }
VM_INL float m_digamma_f32(float xf)
{
    double x = (double)xf, v = x < 0.5 ? 1.0 - x : x, c = v > 8.0 ? 8.0 : v, f = c, d = 1.0;
    for (int k = 1; k < 8; k++) { /* the product of eight factors and its derivative */
        d = FMA(d, c + (double)k, f);
        f *= c + (double)k;
    }
    double y = v < 8.0 ? v + 8.0 : v, i = 1.0 / y, z = i * i, p = FMA(z, -1.0 / 12, 691.0 / 32760);
    p = FMA(p, z, -1.0 / 132);
    p = FMA(p, z, 1.0 / 240);
    p = FMA(p, z, -1.0 / 252);
    p = FMA(p, z, 1.0 / 120);
    p = FMA(p, z, -1.0 / 12);
    double s = log_normal(y) + FMA(z, p, -0.5 * i) - (v < 8.0 ? d / f : 0.0);
    double frac = x - __builtin_rint(x),
           turn = 3.14159265358979323846 / m_tan_f64(frac * 3.14159265358979323846);
    double r = x < 0.5 ? s - turn : s;
    r = x < 0 ? (frac == 0 ? NAN : r) : r;
    r = x == INFINITY ? INFINITY : r;
    return (float)(x == 0 ? copysign(INFINITY, -x) : r);
}
double slow_digamma(double x); /* pw_slow.c */
VM_INL double m_digamma_f64(double x) { return slow_digamma(x); }

/* ---- remainders: exact while the quotient has few bits (m_quot_big tells the caller) ---- */
VM_INL float m_fmod_f32(float x, float y)
{
    double a = fabs((double)x), b = fabs((double)y), r = a - b * __builtin_trunc(a / b);
    r = r < 0 ? r + b : r;
    r = r >= b ? r - b : r;
    return (float)copysign(r, (double)x);
}
VM_INL int m_quot_big(float x, float y) { return !(fabs((double)x) < fabs((double)y) * 0x1p28); }
VM_INL float m_hypot_f32(float x, float y)
{
    double a = (double)x, b = (double)y, r = __builtin_sqrt(a * a + b * b);
    r = fabs(a) == INFINITY ? INFINITY : r;
    return (float)(fabs(b) == INFINITY ? INFINITY : r);
}
VM_INL float m_atan2_f32(float yf, float xf) /* finite, not both zero */
{
    double y = (double)yf, x = (double)xf, ay = fabs(y), ax = fabs(x);
    double r = m_atan_f64(ay / ax);
    r = bits_d(x) >> 63 ? 3.14159265358979323846 - r : r;
    return (float)copysign(r, y);
}

/* ---- powers ---- */
/* All in double: masks of one width keep the loop vectorisable. */
VM_INL float m_pow_f32(float xf, float yf)
{
    double x = (double)xf, y = (double)yf, a = fabs(x), e = y * m_log_f64(a), half = y * 0.5;
    e = e > 700.0 ? 700.0 : e;
    e = e < -700.0 ? -700.0 : e; /* NaN stays */
    double r = exp_mid(e);
    double odd = __builtin_trunc(y) == y ? (__builtin_trunc(half) != half ? 1.0 : 0.0) : 0.0;
    double z = odd * copysign(1.0, x) < 0 ? -r : r;
    double bad = x < 0 ? (__builtin_trunc(y) != y ? 1.0 : 0.0) : 0.0;
    z = bad * (a < INFINITY ? 1.0 : 0.0) > 0 ? NAN : z;
    z = a == 1.0 ? (fabs(y) == INFINITY ? 1.0 : z) : z;
    z = y == 0 ? 1.0 : z;
    return (float)(x == 1.0 ? 1.0 : z);
}
VM_INL double m_pow_f64(double x, double y) { return pow(x, y); }

#define NAN_TO_NUM(T, sfx)                                \
    VM_INL T m_nan_to_num_##sfx(T x, T nan, T top, T low) \
    {                                                     \
        T r = x == (T)INFINITY ? top : x;                 \
        r = x == -(T)INFINITY ? low : r;                  \
        return x != x ? nan : r;                          \
    }
NAN_TO_NUM(float, f32)
NAN_TO_NUM(double, f64)

#define M1(fn, x)    _Generic((x), float : fn##_f32, double : fn##_f64)(x)
#define M2(fn, x, y) _Generic((x), float : fn##_f32, double : fn##_f64)(x, y)
#define M_exp(x)     M1(m_exp, x)
#define M_exp2(x)    M1(m_exp2, x)
#define M_expm1(x)   M1(m_expm1, x)
#define M_log(x)     M1(m_log, x)
#define M_log2(x)    M1(m_log2, x)
#define M_log10(x)   M1(m_log10, x)
#define M_log1p(x)   M1(m_log1p, x)
#define M_sin(x)     M1(m_sin, x)
#define M_cos(x)     M1(m_cos, x)
#define M_tan(x)     M1(m_tan, x)
#define M_asin(x)    M1(m_asin, x)
#define M_acos(x)    M1(m_acos, x)
#define M_atan(x)    M1(m_atan, x)
#define M_sinh(x)    M1(m_sinh, x)
#define M_cosh(x)    M1(m_cosh, x)
#define M_tanh(x)    M1(m_tanh, x)
#define M_asinh(x)   M1(m_asinh, x)
#define M_acosh(x)   M1(m_acosh, x)
#define M_atanh(x)   M1(m_atanh, x)
#define M_sigmoid(x) M1(m_sigmoid, x)
#define M_erf(x)     M1(m_erf, x)
#define M_erfc(x)    M1(m_erfc, x)
#define M_nan_to_num(x, n, t, l) \
    _Generic((x), float : m_nan_to_num_f32, double : m_nan_to_num_f64)(x, n, t, l)
#define M_erfinv(x)      M1(m_erfinv, x)
#define M_lgamma(x)      M1(m_lgamma, x)
#define M_digamma(x)     M1(m_digamma, x)
#define M_gelu(x)        M1(m_gelu, x)
#define M_hypot(x, y)    _Generic((x), float : m_hypot_f32, double : hypot)(x, y)
#define M_pow(x, y)      M2(m_pow, x, y)
#define LIBM(fn, x)      _Generic((x), float : fn##f, double : fn)(x)
#define M_sqrt(x)        _Generic((x), float : __builtin_sqrtf, double : __builtin_sqrt)(x)
#define M_floor(x)       _Generic((x), float : __builtin_floorf, double : __builtin_floor)(x)
#define M_ceil(x)        _Generic((x), float : __builtin_ceilf, double : __builtin_ceil)(x)
#define M_trunc(x)       _Generic((x), float : __builtin_truncf, double : __builtin_trunc)(x)
#define M_rint(x)        _Generic((x), float : __builtin_rintf, double : __builtin_rint)(x)
#define M_abs(x)         _Generic((x), float : __builtin_fabsf, double : __builtin_fabs)(x)
#define M_copysign(x, y) _Generic((x), float : __builtin_copysignf, double : __builtin_copysign)(x, y)
#endif
