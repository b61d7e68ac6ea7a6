/* vmath.h - branch-free mathematics that the compiler turns into vector code, for float and double.
 * Every function is plain C on one element; loops over it vectorise because there is no call and no branch.
 * Errors are 1 to 2 units in the last place. float versions of the less used functions compute in double.
 * m_ functions take any argument; v_ functions are shorter and good in a range, which pw_loops.h keeps them to. */
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
#define VM_TRIG_MAX      500000.0
#define M_copysign(x, y) _Generic((x), float : __builtin_copysignf, double : __builtin_copysign)(x, y)

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

/* Horner's rule, highest coefficient first: POLYF(z, c2, c1, c0) = (c2 z + c1) z + c0. */
#define H2_(F, z, a, b)                                                           F(a, z, b)
#define H3_(F, z, a, b, ...)                                                      H2_(F, z, F(a, z, b), __VA_ARGS__)
#define H4_(F, z, a, b, ...)                                                      H3_(F, z, F(a, z, b), __VA_ARGS__)
#define H5_(F, z, a, b, ...)                                                      H4_(F, z, F(a, z, b), __VA_ARGS__)
#define H6_(F, z, a, b, ...)                                                      H5_(F, z, F(a, z, b), __VA_ARGS__)
#define H7_(F, z, a, b, ...)                                                      H6_(F, z, F(a, z, b), __VA_ARGS__)
#define H8_(F, z, a, b, ...)                                                      H7_(F, z, F(a, z, b), __VA_ARGS__)
#define H9_(F, z, a, b, ...)                                                      H8_(F, z, F(a, z, b), __VA_ARGS__)
#define H10_(F, z, a, b, ...)                                                     H9_(F, z, F(a, z, b), __VA_ARGS__)
#define H11_(F, z, a, b, ...)                                                     H10_(F, z, F(a, z, b), __VA_ARGS__)
#define H12_(F, z, a, b, ...)                                                     H11_(F, z, F(a, z, b), __VA_ARGS__)
#define H13_(F, z, a, b, ...)                                                     H12_(F, z, F(a, z, b), __VA_ARGS__)
#define H14_(F, z, a, b, ...)                                                     H13_(F, z, F(a, z, b), __VA_ARGS__)
#define HAT_(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, H, ...) H
#define HORNER_(F, z, ...)                                                                              \
    HAT_(__VA_ARGS__, H14_, H13_, H12_, H11_, H10_, H9_, H8_, H7_, H6_, H5_, H4_, H3_, H2_, none, none) \
    (F, z, __VA_ARGS__)
#define POLYF(z, ...) HORNER_(FMAF, z, __VA_ARGS__)
#define POLYD(z, ...) HORNER_(FMA, z, __VA_ARGS__)

/* Adding this constant rounds to an integer and leaves it in the low mantissa bits. */
#define RND_F 0x1.8p23f
#define RND_D 0x1.8p52

/* ---- exp: x = n ln2 + r, e^r by polynomial ---- */
VM_INL float pow2_f(int32_t n) { return float_b((uint32_t)(n + 127) << 23); } /* n in [-126, 127] */
VM_INL double pow2_d(int64_t n) { return double_b((uint64_t)(n + 1023) << 52); }
/* p 2^n with n as rounding left it in t, while the result is a normal number */
VM_INL float scale_f(float p, float t) { return float_b(bits_f(p) + (bits_f(t) << 23)); }
VM_INL double scale_d(double p, double t) { return double_b(bits_d(p) + (bits_d(t) << 52)); }
/* the same for every n, in two factors so that subnormal results come out */
VM_INL float scale_far_f(float p, float t)
{
    int32_t k = (int32_t)(bits_f(t) - bits_f(RND_F)), h = k >> 1;
    return p * pow2_f(h) * pow2_f(k - h);
}
VM_INL double scale_far_d(double p, double t)
{
    int64_t k = (int64_t)(bits_d(t) - bits_d(RND_D)), h = k >> 1;
    return p * pow2_d(h) * pow2_d(k - h);
}
#define LN2_HI 6.93147180369123816490e-01
#define LN2_LO 1.90821492927058770002e-10
VM_INL float exp_split_f(float x, float *t) /* r */
{
    float n = (*t = FMAF(x, 1.44269504f, RND_F)) - RND_F;
    return FMAF(n, -1.42860677e-6f, FMAF(n, -0.693145751953125f, x));
}
VM_INL double exp_split_d(double x, double *t)
{
    double n = (*t = FMA(x, 1.4426950408889634, RND_D)) - RND_D;
    return FMA(n, -LN2_LO, FMA(n, -LN2_HI, x));
}
/* (e^r - 1 - r) / r^2 for |r| <= ln2 / 2 */
VM_INL float exp_q_f(float r)
{
    return POLYF(r, 0x1.6dbcb6p-10f, 0x1.124148p-7f, 0x1.555454p-5f, 0x1.555486p-3f, 0.5f);
}
VM_INL double exp_q_d(double r)
{
    return POLYD(r, 2.09147553258932022e-9, 2.51053127296221018e-8, 2.75572734787185805e-7,
                 2.75572551700008874e-6, 0.0000248015873256774619, 0.000198412698750022788,
                 0.00138888888888837112, 0.00833333333332608312, 0.0416666666666666698, 0.16666666666666671,
                 0.5);
}
VM_INL float exp_r_f(float r) { return FMAF(FMAF(exp_q_f(r), r, 1.0f), r, 1.0f); }
VM_INL double exp_r_d(double r) { return FMA(r * r, exp_q_d(r), r) + 1.0; }
VM_INL float v_exp_f32(float x) /* |x| <= 87 */
{
    float t, r = exp_split_f(x, &t);
    return scale_f(exp_r_f(r), t);
}
VM_INL double v_exp_f64(double x) /* |x| <= 708 */
{
    double t, r = exp_split_d(x, &t);
    return scale_d(exp_r_d(r), t);
}
VM_INL float m_exp_f32(float x)
{
    float c = x > 89.0f ? 89.0f : x, t;
    c = c < -104.0f ? -104.0f : c;
    float r = exp_split_f(c, &t);
    return scale_far_f(exp_r_f(r), t);
}
VM_INL double m_exp_f64(double x)
{
    double c = x > 710.0 ? 710.0 : x, t;
    c = c < -746.0 ? -746.0 : c;
    double r = exp_split_d(c, &t);
    return scale_far_d(exp_r_d(r), t);
}
/* e^x in double to 1e-10, for float results; |x| <= 700. */
VM_INL double exp_mid(double c)
{
    double t, r = exp_split_d(c, &t);
    double q = POLYD(r, 0.0000248596943947520718, 0.000198993901836792308, 0.0013888853909945039,
                     0.00833329834402309204, 0.041666666719295685, 0.166666667193124809, 0.5);
    return scale_d(FMA(r * r, q, r) + 1.0, t);
}
/* 2^r for |r| <= 1/2 */
VM_INL float exp2_r_f(float r)
{
    return POLYF(r, 0x1.4497e6p-13f, 0x1.5f50aep-10f, 0x1.3b299ep-7f, 0x1.c6aebep-5f, 0x1.ebfbe0p-3f,
                 0x1.62e430p-1f, 1.0f);
}
VM_INL double exp2_r_d(double r)
{
    return POLYD(r, 0x1.ea1f1c4fdd5c3p-32, 0x1.e6235e371d3f5p-28, 0x1.b524c94d4b58cp-24,
                 0x1.62bfc3156e05ap-20, 0x1.ffcbfc7e867d5p-17, 0x1.4309131096314p-13, 0x1.5d87fe78a06a3p-10,
                 0x1.3b2ab6fb9f8c7p-7, 0x1.c6b08d704a0d9p-5, 0x1.ebfbdff82c5a7p-3, 0x1.62e42fefa39efp-1, 1.0);
}
VM_INL float v_exp2_f32(float x) /* |x| <= 125 */
{
    float t = x + RND_F;
    return scale_f(exp2_r_f(x - (t - RND_F)), t);
}
VM_INL double v_exp2_f64(double x) /* |x| <= 1021 */
{
    double t = x + RND_D;
    return scale_d(exp2_r_d(x - (t - RND_D)), t);
}
VM_INL float m_exp2_f32(float x)
{
    float c = x > 129.0f ? 129.0f : x;
    c = c < -151.0f ? -151.0f : c;
    float t = c + RND_F;
    return scale_far_f(exp2_r_f(c - (t - RND_F)), t);
}
VM_INL double m_exp2_f64(double x)
{
    double c = x > 1025.0 ? 1025.0 : x;
    c = c < -1077.0 ? -1077.0 : c;
    double t = c + RND_D;
    return scale_far_d(exp2_r_d(c - (t - RND_D)), t);
}
/* e^x - 1 = 2 (h (e^r - 1) + (h - 1/2)), h = 2^(n-1) */
VM_INL float m_expm1_f32(float x)
{
    float c = x > 89.0f ? 89.0f : x, t;
    c = c < -30.0f ? -30.0f : c;
    float r = exp_split_f(c, &t), h = scale_f(0.5f, t);
    float y = FMAF(h, FMAF(r * r, exp_q_f(r), r), h - 0.5f);
    return copysignf(y + y, x);
}
VM_INL double m_expm1_f64(double x)
{
    double c = x > 710.0 ? 710.0 : x, t;
    c = c < -60.0 ? -60.0 : c;
    double r = exp_split_d(c, &t), h = scale_d(0.5, t);
    double y = FMA(h, FMA(r * r, exp_q_d(r), r), h - 0.5);
    return copysign(y + y, x);
}

/* ---- log: x = 2^k (1 + f), 1 + f in [2/3, 4/3) for float and [sqrt(1/2), sqrt(2)) for double ---- */
VM_INL float log_split_f(float x, float *k) /* x > 0, normal and finite */
{
    int32_t e = (int32_t)(bits_f(x) - 0x3f2aaaabu) >> 23;
    *k = (float)e;
    return float_b(bits_f(x) - ((uint32_t)e << 23)) - 1.0f;
}
VM_INL double log_split_d(double x, double *k)
{
    uint64_t ix = bits_d(x) - 0x3fe6a09e667f3bcdull;
    /* the exponent through the mantissa trick: 64-bit integer to double needs no instruction of its own */
    uint64_t e = (ix >> 52) ^ 0x800; /* biased by 2048, sign folded in */
    *k = double_b(e | 0x4330000000000000ull) - (4503599627370496.0 + 2048.0);
    return double_b((ix & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull) - 1.0;
}
/* log(1 + f) - f */
VM_INL float log_rest_f(float f)
{
    float p = POLYF(f, 0x1.fa1ee0p-4f, -0x1.071652p-3f, 0x1.b4b57ep-4f, -0x1.f38786p-4f, 0x1.25203ap-3f,
                    -0x1.55991ep-3f, 0x1.9995fap-3f, -0x1.ffff0ep-3f, 0x1.555558p-2f, -0.5f);
    return f * f * p;
}
VM_INL double log_rest_d(double f)
{
    double s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
    double p = POLYD(z, 0.146300313641228605, 0.153306173067433049, 0.181829225135159416,
                     0.222222106742385152, 0.285714286288109956, 0.399999999998932218, 0.666666666666666991);
    return s * FMA(z, p, h) - h;
}
/* the three logarithms of x = 2^k (1 + f); large parts last, each product with k exact */
VM_INL float ln_join_f(float k, float f)
{
    return FMAF(k, 0x1.62e4p-1f, f + FMAF(k, 0x1.7f7d1cp-20f, log_rest_f(f)));
}
VM_INL double ln_join_d(double k, double f) { return FMA(k, LN2_HI, FMA(k, LN2_LO, log_rest_d(f)) + f); }
VM_INL float lb_join_f(float k, float f)
{
    return k + FMAF(f, 0x1.715476p+0f, FMAF(f, 0x1.4ae0c0p-26f, log_rest_f(f) * 0x1.715476p+0f));
}
VM_INL double lb_join_d(double k, double f)
{
    return k +
           FMA(f, 0x1.71547652b82fep+0, FMA(f, 0x1.777d0ffda0d24p-56, log_rest_d(f) * 0x1.71547652b82fep+0));
}
VM_INL float lg_join_f(float k, float f)
{
    float r = FMAF(f, -0x1.5b235ep-27f, FMAF(log_rest_f(f), 0x1.bcb7b2p-2f, k * 0x1.3509f8p-18f));
    return FMAF(k, 0x1.344p-2f, FMAF(f, 0x1.bcb7b2p-2f, r));
}
VM_INL double lg_join_d(double k, double f)
{
    double r = FMA(log_rest_d(f), 0x1.bcb7b1526e50ep-2, k * 0x1.ef3fde623e256p-35);
    r = FMA(f, 0x1.95355baaafad3p-57, r);
    return FMA(k, 0x1.34413509p-2, FMA(f, 0x1.bcb7b1526e50ep-2, r));
}
/* v_: normal positive numbers; m_: all */
#define LOGS(T, sfx, fd, least, up, ups)                                  \
    VM_INL T log_all_##fd(T x, T *k)                                      \
    {                                                                     \
        bool tiny = x < least;                                            \
        T f = log_split_##fd(tiny ? x * up : x, k);                       \
        *k -= tiny ? (T)ups : (T)0;                                       \
        return f;                                                         \
    }                                                                     \
    VM_INL T log_special_##fd(T x, T r)                                   \
    {                                                                     \
        r = x < (T)INFINITY ? r : x; /* inf and NaN stay what they are */ \
        r = x == 0 ? -(T)INFINITY : r;                                    \
        return x < 0 ? (T)NAN : r;                                        \
    }                                                                     \
    LOG3(T, sfx, fd, log, ln) LOG3(T, sfx, fd, log2, lb) LOG3(T, sfx, fd, log10, lg)
#define LOG3(T, sfx, fd, name, join)                        \
    VM_INL T v_##name##_##sfx(T x)                          \
    {                                                       \
        T k, f = log_split_##fd(x, &k);                     \
        return join##_join_##fd(k, f);                      \
    }                                                       \
    VM_INL T m_##name##_##sfx(T x)                          \
    {                                                       \
        T k, f = log_all_##fd(x, &k);                       \
        return log_special_##fd(x, join##_join_##fd(k, f)); \
    }
LOGS(float, f32, f, 0x1p-126f, 0x1p23f, 23)
LOGS(double, f64, d, 0x1p-1022, 0x1p54, 54)
VM_INL double log_mid(double x) /* float accuracy, x > 0 and normal */
{
    double k, f = log_split_d(x, &k), z = f * f;
    double p = POLYD(f, 0.0697161147145117783, -0.114797338466376356, 0.116854199234867393,
                     -0.124256873314511061, 0.142490576456974804, -0.166678023195012541, 0.200007157488921017,
                     -0.24999996957950882, 0.333333311800300481);
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
VM_INL double v_log1p_f64(double x) /* -1 < x < 1e30, as v_log1p_f32 */
{
    double u = 1.0 + x, lost = x - (u - 1.0);
    uint64_t e = (bits_d(u) - 0x3fe6a09e667f3bcdull) & 0xfff0000000000000ull;
    double f = FMA(lost, double_b(0x3ff0000000000000ull - e), double_b(bits_d(u) - e) - 1.0);
    double k = double_b(((e >> 52) ^ 0x800) | 0x4330000000000000ull) - (4503599627370496.0 + 2048.0);
    return copysign(ln_join_d(k, f), x);
}
VM_INL float v_log1p_f32(float x) /* -1 < x < 1e30: what u = 1 + x lost is added in f's scale */
{
    float u = 1.0f + x, lost = x - (u - 1.0f);
    uint32_t e = (bits_f(u) - 0x3f2aaaabu) & 0xff800000u;
    float f = float_b(bits_f(u) - e) - 1.0f;
    f = FMAF(lost, float_b(0x3f800000u - e), f);
    return copysignf(ln_join_f((float)((int32_t)e >> 23), f), x);
}
VM_INL float m_log1p_f32(float x)
{
    float r = v_log1p_f32(x < 1e30f ? x : 1e30f);
    r = x < 1e30f ? r : m_log_f32(x);
    r = x == -1.0f ? -INFINITY : r;
    return x < -1.0f ? NAN : r;
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
    double p = POLYD(z, 1.59167261938893374e-10, -2.50511122725732437e-8, 2.75573160081715511e-6,
                     -0.00019841269836575709, 0.008333333333330827, -0.166666666666666645);
    return FMA(r * z, p, r);
}
VM_INL double cos_poly(double z)
{
    double p = POLYD(z, -1.13817546536629368e-11, 2.08761340240901462e-9, -2.75573172126865901e-7,
                     0.0000248015872986512916, -0.00138888888888873212, 0.0416666666666666653);
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
    double s = POLYD(z, 2.72468687228779445e-6, -0.000198400630408041169, 0.00833333183062942836,
                     -0.166666666637413677);
    double c = POLYD(z, 0.0000245454190783532953, -0.00138882913005569332, 0.0416666645988279801);
    s = FMA(r * z, s, r);
    c = FMA(z * z, c, FMA(z, -0.5, 1.0));
    double v = q & 1 ? c : s;
    return double_b(bits_d(v) ^ ((q & 2) << 62));
}
/* A pair of normal numbers (Box and Muller). a and b: 24 (53) bits each; 1 - a 2^-24 is a radius, b an angle that begins at 0
 * and counts quarters of a turn in its top bits, so that nothing of it is rounded away. */
VM_INL void normal_pair_f32(int32_t a, int32_t b, float *o0, float *o1)
{
    float r = __builtin_sqrtf(-2.0f * v_log_f32((float)(0x1000000 - a) * 0x1p-24f));
    int32_t q = (b + 0x200000) >> 22;
    float f = (float)(b - (q << 22)) * 0x1p-22f, z = f * f;
    float s = f * POLYF(z, -0x1.2d9302p-8f, 0x1.465e92p-4f, -0x1.4abbbap-1f, 0x1.921fb6p+0f);
    float c = POLYF(z, 0x1.d99f54p-11f, -0x1.55c4eap-6f, 0x1.03c1dap-2f, -0x1.3bd3ccp+0f, 1.0f);
    bool odd = q & 1;
    *o0 = r * float_b(bits_f(odd ? s : c) ^ (uint32_t)(q + 1) >> 1 << 31);
    *o1 = r * float_b(bits_f(odd ? c : s) ^ (uint32_t)q >> 1 << 31);
}
VM_INL void normal_pair_f64(int64_t a, int64_t b, double *o0, double *o1)
{
    double r = __builtin_sqrt(-2.0 * v_log_f64((double)(0x20000000000000 - a) * 0x1p-53));
    int64_t q = (b + 0x4000000000000) >> 51;
    double f = (double)(b - (q << 51)) * 0x1p-51, z = f * f;
    double s = f * POLYD(z, 0x1.e3eed5c67a376p-25, -0x1.e30063a00c5e9p-19, 0x1.50782fca388fcp-13,
                         -0x1.32d2cce2d535dp-8, 0x1.466bc67758700p-4, -0x1.4abbce625be41p-1,
                         0x1.921fb54442d18p+0);
    double c = POLYD(z, -0x1.b2586b8a6d927p-28, 0x1.f9cc15d4e1ee7p-22, -0x1.a6d1ec3d47beep-16,
                     0x1.e1f5068303f1fp-11, -0x1.55d3c7e3c8d5cp-6, 0x1.03c1f081b5aaap-2,
                     -0x1.3bd3cc9be45dep+0, 1.0);
    bool odd = q & 1;
    *o0 = r * double_b(bits_d(odd ? s : c) ^ (uint64_t)(q + 1) >> 1 << 63);
    *o1 = r * double_b(bits_d(odd ? c : s) ^ (uint64_t)q >> 1 << 63);
}
VM_INL double v_sin_f64(double x) { return x == 0 ? x : sincos_d(x, 0); }
VM_INL double v_cos_f64(double x) { return sincos_d(x, 1); }
VM_INL double v_tan_f64(double x)
{
    uint64_t q;
    double r = trig_reduce(x, &q), z = r * r, s = sin_poly(r, z), c = cos_poly(z);
    double v = q & 1 ? -c / s : s / c;
    return x == 0 ? x : v;
}
#ifdef __FMA__
#define VM_TRIG_F32 30000.0
/* Three pieces of pi/2, which only a fused multiplication takes off exactly. */
VM_INL float trig_reduce_f(float x, uint32_t *q)
{
    float t = FMAF(x, 0x1.45f306p-1f, RND_F), n = t - RND_F;
    *q = bits_f(t);
    return FMAF(n, 0x1.ee59dap-50f, FMAF(n, 0x1.777a5cp-25f, FMAF(n, -0x1.921fb6p+0f, x)));
}
VM_INL float sincos_f(float x, uint32_t shift)
{
    uint32_t q;
    float r = trig_reduce_f(x, &q), z = r * r;
    q += shift;
    float s = POLYF(z, 0x1.6da930p-19f, -0x1.a01366p-13f, 0x1.11110ep-7f, -0x1.555556p-3f);
    float c = POLYF(z, 0x1.9bc344p-16f, -0x1.6c12acp-10f, 0x1.555554p-5f, -0.5f);
    bool odd = q & 1;
    float v = FMAF(odd ? z : r * z, odd ? c : s, odd ? 1.0f : r);
    return float_b(bits_f(v) ^ ((q & 2) << 30));
}
VM_INL float v_sin_f32(float x) { return x == 0 ? x : sincos_f(x, 0); }
VM_INL float v_cos_f32(float x) { return sincos_f(x, 1); }
VM_INL float v_tan_f32(float x)
{
    float t = FMAF(x, 0x1.45f306p-1f, RND_F), n = t - RND_F;
    float first = FMAF(n, -0x1.921fb6p+0f, x), m = n * 0x1.777a5cp-25f, r = first + m;
    float lost = ((first - r) + m) + FMAF(n, 0x1.777a5cp-25f, -m); /* of r, by rounding */
    lost = FMAF(n, 0x1.ee59dap-50f, lost);
    float z = r * r, w = r * z;
    float c = POLYF(z, 0x1.0152dap-8f, 0x1.0fe680p-10f, 0x1.49aad0p-7f, 0x1.61bf4cp-6f, 0x1.ba5b4cp-5f,
                    0x1.11106cp-3f, 0x1.555556p-2f);
    float p = FMAF(w, c, r);
    p = r + FMAF(w, c, lost * FMAF(p, p, 1.0f)); /* the derivative is 1 + p^2 */
    return x == 0 ? x : bits_f(t) & 1 ? -1.0f / p : p;
}
#else
#define VM_TRIG_F32 VM_TRIG_MAX
VM_INL float v_sin_f32(float x) { return x == 0 ? x : (float)sincos_mid((double)x, 0); }
VM_INL float v_cos_f32(float x) { return (float)sincos_mid((double)x, 1); }
VM_INL float v_tan_f32(float x) { return (float)v_tan_f64((double)x); }
#endif

/* ---- inverse trigonometric ---- */
VM_INL float atan_small_f(float b) /* 0 <= b <= 1 */
{
    float z = b * b;
    float p = POLYF(z, -0x1.48cde6p-9f, 0x1.caa2fcp-7f, -0x1.2c671cp-5f, 0x1.02cb4cp-4f, -0x1.63e734p-4f,
                    0x1.c44820p-4f, -0x1.247250p-3f, 0x1.999880p-3f, -0x1.555554p-2f);
    return FMAF(b * z, p, b);
}
VM_INL float m_atan_f32(float x)
{
    float a = fabsf(x);
    bool inv = a > 1.0f;
    float p = atan_small_f((inv ? 1.0f : a) / (inv ? a : 1.0f));
    return copysignf(inv ? 0x1.921fb6p+0f - (p + 0x1.777a5cp-25f) : p, x);
}
VM_INL double m_atan_f64(double x)
{
    double a = fabs(x);
    bool big = a > 2.414213562373095, mid = a > 0.4142135623730950;
    double num = big ? -1.0 : mid ? a - 1.0 : a, den = big ? a : mid ? a + 1.0 : 1.0, t = num / den;
    double base = big ? 1.5707963267948966 : mid ? 0.78539816339744831 : 0.0;
    double lo = big ? 6.123233995736766e-17 : mid ? 3.061616997868383e-17 : 0.0;
    double z = t * t;
    double p = POLYD(z, 0.0161482285467718696, -0.0344458444235773849, 0.0454671950955516654,
                     -0.0522938047378184059, 0.0587878246944398118, -0.0666641207772527434,
                     0.0769229565832787351, -0.0909090872858745904, 0.111111111046522548,
                     -0.142857142856546389, 0.199999999999997838, -0.333333333333333332);
    return copysign(base + (FMA(t * z, p, t) + lo), x);
}
/* asin(s) - s where s is a itself or, beyond 1/2, sqrt((1 - a) / 2) */
VM_INL float asin_rest_f(float a, float *s)
{
    bool big = a > 0.5f;
    float z = big ? 0.5f - 0.5f * a : a * a;
    *s = big ? __builtin_sqrtf(z) : a;
    return *s * z *
           POLYF(z, 0.0336908472f, 0.0171492384f, 0.0311006627f, 0.0445994015f, 0.0750009454f, 0.166666663f);
}
VM_INL float m_asin_f32(float x)
{
    float a = fabsf(x), s, p = asin_rest_f(a, &s);
    float far = (1.57079637f - 2.0f * s) - FMAF(2.0f, p, 4.37113883e-8f);
    return copysignf(a > 0.5f ? far : s + p, x);
}
VM_INL float m_acos_f32(float x)
{
    float a = fabsf(x), s, p = asin_rest_f(a, &s), r = s + p, t = copysignf(r, x);
    float near = 1.57079637f - (t + 4.37113883e-8f), far = r + r;
    far = x < 0 ? 3.14159274f - (far + 8.74227766e-8f) : far;
    return a > 0.5f ? far : near;
}
VM_INL double asin_rest_d(double a, double *s)
{
    bool big = a > 0.5;
    double z = big ? 0.5 - 0.5 * a : a * a;
    *s = big ? __builtin_sqrt(z) : a;
    return *s * z *
           POLYD(z, 0x1.d1a579af33512p-6, -0x1.6b821a3504824p-7, 0x1.0a0f49302905ap-6, 0x1.faebfa82078a3p-8,
                 0x1.8598fc0a132cap-7, 0x1.c862ad163622bp-7, 0x1.1c59e86fdc3dbp-6, 0x1.6e8b2212fed14p-6,
                 0x1.f1c71fddef045p-6, 0x1.6db6db67b7247p-5, 0x1.3333333337501p-4, 0x1.555555555554ep-3);
}
VM_INL double m_asin_f64(double x)
{
    double a = fabs(x), s, p = asin_rest_d(a, &s);
    double far = (0x1.921fb54442d18p+0 - 2.0 * s) - FMA(2.0, p, -0x1.1a62633145c07p-54);
    return copysign(a > 0.5 ? far : s + p, x);
}
VM_INL double m_acos_f64(double x)
{
    double a = fabs(x), s, p = asin_rest_d(a, &s), r = s + p, t = copysign(r, x);
    double near = 0x1.921fb54442d18p+0 - (t - 0x1.1a62633145c07p-54), far = r + r;
    far = x < 0 ? 0x1.921fb54442d18p+1 - (far - 0x1.1a62633145c07p-53) : far;
    return a > 0.5 ? far : near;
}

/* ---- hyperbolic ---- */
VM_INL float m_tanh_f32(float x)
{
    float a = fabsf(x), z = a * a, c = a > 10.0f ? 10.0f : a;
    float p = POLYF(z, 0x1.2cebeep-9f, -0x1.118630p-7f, 0x1.64aebap-6f, -0x1.ba092cp-5f, 0x1.1110eap-3f,
                    -0x1.555556p-2f);
    float near = FMAF(a * z, p, a), far = 1.0f - 2.0f / (v_exp_f32(c + c) + 1.0f);
    return copysignf(a >= 0.625f ? far : near, x); /* NaN: near */
}
VM_INL double m_tanh_f64(double x)
{
    double a = fabs(x), t = m_expm1_f64(a > 30.0 ? 60.0 : 2 * a);
    return x != x ? x : copysign(t / (t + 2.0), x);
}
VM_INL float v_sinh_f32(float x) /* |x| <= 87 */
{
    float a = fabsf(x), z = a * a;
    float p = POLYF(z, 0x1.78a7c2p-19f, 0x1.a008fcp-13f, 0x1.11111ep-7f, 0x1.555556p-3f);
    float near = FMAF(a * z, p, a), e = 0.5f * v_exp_f32(a), far = e - 0.25f / e;
    return copysignf(a < 1.0f ? near : far, x);
}
VM_INL double m_sinh_f64(double x)
{
    double a = fabs(x), h = m_exp_f64(0.5 * a), e = m_expm1_f64(a > 30 ? 30.0 : a);
    double small = 0.5 * (e + e / (e + 1.0)), big = (0.5 * h) * h;
    return copysign(a < 22.0 ? small : big, x);
}
VM_INL float m_sinh_f32(float x) { return (float)m_sinh_f64((double)x); }
VM_INL float v_cosh_f32(float x) /* |x| <= 87 */
{
    float e = 0.5f * v_exp_f32(fabsf(x));
    return e + 0.25f / e;
}
VM_INL double m_cosh_f64(double x)
{
    double h = m_exp_f64(0.5 * fabs(x)), e = h * h;
    return fabs(x) < 22.0 ? 0.5 * (e + 1.0 / e) : (0.5 * h) * h;
}
VM_INL float m_cosh_f32(float x) { return (float)m_cosh_f64((double)x); }
VM_INL double m_asinh_f64(double x)
{
    double a = fabs(x), z = a * a, r = m_log1p_f64(a + z / (1.0 + sqrt(1.0 + z)));
    double big = m_log_f64(a) + 0.69314718055994531;
    return copysign(a > 1e8 ? big : r, x);
}
VM_INL double m_acosh_f64(double x)
{
    double t = x - 1.0, r = m_log1p_f64(t + sqrt(2.0 * t + t * t));
    r = x < 1.0 ? NAN : r;
    return x > 1e8 ? m_log_f64(x) + 0.69314718055994531 : r;
}
VM_INL double m_atanh_f64(double x)
{
    double a = fabs(x);
    return copysign(0.5 * m_log1p_f64(2.0 * a / (1.0 - a)), x);
}
VM_INL float v_asinh_f32(float xf) /* |x| < 1e18 */
{
    double a = fabs((double)xf), z = a * a, r = log_mid(a + __builtin_sqrt(z + 1.0));
    return (float)copysign(a < 1e-3 ? FMA(a * z, -1.0 / 6, a) : r, (double)xf);
}
VM_INL float m_asinh_f32(float x) { return (float)m_asinh_f64((double)x); }
VM_INL float v_acosh_f32(float xf) /* 1.0001 < x < 1e18 */
{
    double x = (double)xf;
    return (float)log_mid(x + __builtin_sqrt(FMA(x, x, -1.0)));
}
VM_INL float m_acosh_f32(float x) { return (float)m_acosh_f64((double)x); }
VM_INL float m_atanh_f32(float x)
{
    double a = fabs((double)x), r = 0.5 * log_mid((1.0 + a) / (1.0 - a));
    r = a < 1e-3 ? FMA(a * a * a, 1.0 / 3, a) : r;
    r = a == 1.0 ? INFINITY : r;
    return (float)copysign(a > 1.0 || a != a ? NAN : r, (double)x);
}

/* ---- logistic and error functions ---- */
VM_INL float v_sigmoid_f32(float x) { return 1.0f / (1.0f + v_exp_f32(-x)); } /* |x| <= 87 */
VM_INL double v_sigmoid_f64(double x) { return 1.0 / (1.0 + v_exp_f64(-x)); }
VM_INL float m_sigmoid_f32(float x)
{
    float e = m_exp_f32(-fabsf(x));
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}
VM_INL double m_sigmoid_f64(double x)
{
    double e = m_exp_f64(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}
/* erfc of a >= 0: polynomial over (1 + 2a), one division for both quotients; e^(-a^2) with what the rounded square
 * lost, 2^64 too large until the end so that subnormal results come out. Zero beyond 10.06. */
VM_INL float erfc_pos_f(float a)
{
    float d = FMAF(2.0f, a, 1.0f), n = a + 3.75f, r = 1.0f / (n * d), t = (a - 3.75f) * d * r;
    float p = POLYF(t, 0.00107694313f, 0.00224628023f, -0.00999150458f, 0.0280328933f, -0.0587076739f,
                    0.0923704207f, -0.108794356f, 0.082271694f, 0.00358475087f, -0.140240486f, 1.23751264f);
    float c = a > 10.06f ? 10.06f : a, q = c * c, w;
#ifdef __FMA__
    float lost = FMAF(c, c, -q);
#else
    float lost = (float)((double)c * (double)c - (double)q);
#endif
    float u = exp_split_f(-q, &w) - lost, e = scale_f(exp_r_f(u), w + 64.0f);
    return a > 10.06f ? 0 : p * (n * r) * e * 0x1p-64f;
}
VM_INL float erf_near_f(float a) /* a <= 1 */
{
    float z = a * a;
    return a * POLYF(z, -9.66704457e-6f, 0.00011265959f, -0.000848408041f, 0.00522103181f, -0.0268654307f,
                     0.112837825f, -0.376126385f, 1.12837917f);
}
VM_INL float m_erf_f32(float x) /* beyond 0.9277 by the logarithm of erfc */
{
    float a = fabsf(x), z = a * a, c = a > 3.95f ? 3.95f : a;
    float p = POLYF(z, 0x1.5e9f22p-14f, -0x1.aad026p-11f, 0x1.54d928p-8f, -0x1.b81072p-6f, 0x1.ce2e22p-4f,
                    -0x1.812744p-2f, 0x1.06eba8p-3f);
    float l = POLYF(c, -0x1.648daap-16f, 0x1.c97584p-12f, -0x1.11ec6ap-8f, 0x1.9beda2p-6f, -0x1.bba864p-4f,
                    -0x1.4441f0p-1f, -0x1.2128e6p+0f, 0x1.7500acp-13f);
    float r = a >= 0.9277f ? 1.0f - v_exp_f32(l) : FMAF(a, p, a);
    return copysignf(r, x);
}
VM_INL double erf_near_d(double x)
{
    double z = x * x;
    return x * POLYD(z, 5.9571761477489114e-11, -1.13728488567916737e-9, 1.46597752740474358e-8,
                     -1.6350312701054695e-7, 1.6461000484121368e-6, -0.0000149255952668311816,
                     0.000120553311116427109, -0.000854832698083378991, 0.00522397762481801447,
                     -0.0268661706450767932, 0.112837916709548787, -0.376126389031837481,
                     1.12837916709551257);
}
/* a >= 1: polynomial over (1 + 2a), with one division for both quotients; and -a^2, with what its rounding lost */
VM_INL double erfc_poly_d(double a, double *q, double *lost)
{
    double d = FMA(2.0, a, 1.0), n = a + 3.75, r = 1.0 / (n * d), t = (a - 3.75) * d * r;
    double w = t * t; /* two chains, half as long */
    double p = FMA(t,
                   POLYD(w, 2.86600989577748691e-8, -7.17712287669197841e-8, -9.62032801928181785e-7,
                         0.0000223795048168861967, -0.000290152934213910196, 0.00175562568358572332,
                         0.0283622774339562519, 0.0923043211596344522, 0.0822767384901626535,
                         -0.140240598585547089),
                   POLYD(w, 1.45902396908281783e-8, -2.27909464246685837e-7, 1.73300107840187379e-6,
                         -0.0000114378525843465845, 0.0000516478625285469469, 0.000293713800815718055,
                         -0.00974657956444952033, -0.0586933985897417523, -0.108803930141727999,
                         0.0035854154854639112, 1.23751263083782758));
    *q = a * a;
#ifdef __FMA__
    *lost = FMA(a, a, -*q);
#else
    double hi = double_b(bits_d(a) & 0xfffffffff8000000ull), lo = a - hi;
    *lost = ((hi * hi - *q) + 2.0 * hi * lo) + lo * lo;
#endif
    return p * (n * r);
}
VM_INL double erfc_pos_d(double a)
{
    double q, lost, w, p = erfc_poly_d(a, &q, &lost), r = exp_split_d(-q, &w) - lost;
    return p * scale_far_d(exp_r_d(r), w);
}
VM_INL double erfc_near_d(double a) /* a <= 26, where it is a normal number */
{
    double q, lost, w, p = erfc_poly_d(a, &q, &lost), r = exp_split_d(-q, &w) - lost;
    return p * scale_d(exp_r_d(r), w);
}
VM_INL double m_erf_f64(double x)
{
    double a = fabs(x), r = a < 1.0 ? erf_near_d(a) : 1.0 - erfc_near_d(a > 8.0 ? 8.0 : a);
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
/* erfinv(y) / y: a polynomial in w = -log(1 - y^2), or in its root beyond w = 5 */
VM_INL float m_erfinv_f32(float y)
{
    float a = fabsf(y), w = -v_log_f32((1.0f - a) * (1.0f + a)), t = w - 0.8f,
          s = __builtin_sqrtf(w) - 3.125f;
    float p = POLYF(t, -8.79206929e-9f, 1.57751828e-7f, -7.64513345e-7f, -3.50186383e-6f, 4.30044311e-5f,
                    5.95745405e-5f, -0.00244070357f, 0.00569741568f, 0.245844558f, 1.07799697f);
    float q = POLYF(s, 0.00012982955f, -0.00017320934f, -0.0003240768f, 0.0013099649f, -0.0025205181f,
                    0.0037819361f, -0.005301121f, 0.007049013f, 1.0037187f, 2.9583201f);
    float r = y * (w < 5.0f ? p : q);
    r = a < 1.0f ? r : y * INFINITY;
    return a <= 1.0f ? r : NAN;
}
/* Good to 4e-8; the root is -log(1 - a^2) again. */
VM_INL double erfinv_start(double a)
{
    double w = -log_mid((1.0 - a) * (1.0 + a)), t = w - 2.5, s = __builtin_sqrt(w) - 4.15;
    double p = POLYD(t, -2.12035651318190039e-11, 1.23028889731208042e-10, 8.32700082103081304e-10,
                     -1.08543970931123768e-8, 1.36914960151991517e-8, 4.78644824340027128e-7,
                     -3.41711523274501038e-6, -4.99588144876005954e-6, 0.000218250649399950023,
                     -0.00125270808362228086, -0.00417731781014003476, 0.246640276785267755,
                     1.50140935111079192);
    double q = POLYD(s, -3.64345170058774425e-7, 9.0242708908304294e-7, 3.20040589350005503e-6,
                     -0.0000118359191859089488, 8.13603187342484209e-6, -1.5859752356572542e-6,
                     0.0000314077648371353203, -0.0000954254000271294872, 0.000248553998895527769,
                     -0.000692726864724642566, 0.000908266503010297787, 1.00981569277910623,
                     3.99123336978068421);
    return a * (w < 5.0 ? p : q);
}
VM_INL double m_erfinv_f64(double y) /* one step of Halley's iteration triples the digits */
{
    double a = fabs(y), x = erfinv_start(a), near = erf_near_d(x), tail = erfc_near_d(x < 1.0 ? 1.0 : x);
    double e = a > 0.5 ? (1.0 - a) - (x < 1.0 ? 1.0 - near : tail) : near - a;
    double u = e / (1.12837916709551257390 * v_exp_f64(-x * x));
    double r = x - u / FMA(x, u, 1.0);
    r = a < 1.0 ? r : INFINITY;
    return copysign(a <= 1.0 ? r : NAN, y);
}
/* x Phi(x) = max(x, 0) - |x| Phi(-|x|): from the tail, so that no digits cancel on the negative side */
VM_INL float gelu_tail_f(float a) /* a Phi(-a), 0 <= a <= 13.1 */
{
    float t = 1.0f / FMAF(a, 0.25f, 1.0f);
    float p = POLYF(t, 0.02970171757f, -0.1722137771f, 0.3363922027f, -0.2521244046f, 0.2340290132f,
                    0.01903120434f, 0.1073541579f, 0.09800137903f, 0.09982850094f);
    float q = -0.5f * a * a, w = FMAF(q, 1.44269504f, RND_F), r = FMAF(w - RND_F, -0.693147181f, q);
    float e = scale_f(
        POLYF(r, 0.001394110843f, 0.008375126398f, 0.0416663529f, 0.1666641551f, 0.5000000047f, 1.0f, 1.0f),
        w);
    return a * t * p * e;
}
VM_INL float v_gelu_f32(float x) { return (x < 0 ? -0.0f : x) - gelu_tail_f(fabsf(x)); }
VM_INL float m_gelu_f32(float x)
{
    float a = fabsf(x), near = v_gelu_f32(copysignf(a > 13.1f ? 13.1f : a, x));
    return a > 13.1f ? (x > 0 ? x : x * 0.0f) : near; /* -0, and NaN of -inf: what x / 2 (1 + erf) gives */
}
VM_INL double m_gelu_f64(double x) { return x * 0.5 * (1.0 + m_erf_f64(x * 0.70710678118654752440)); }

/* ---- gamma functions, float: shifted up past 8, then Stirling's series; reflected below 1/2 ---- */
VM_INL float m_lgamma_f32(float xf)
{
    double x = (double)xf, v = x < 0.5 ? 1.0 - x : x, c = v > 8.0 ? 8.0 : v;
    double prod = ((c * (c + 1.0)) * ((c + 2.0) * (c + 3.0))) *
                  (((c + 4.0) * (c + 5.0)) * ((c + 6.0) * (c + 7.0)));
    prod = v < 8.0 ? prod : 1.0;
    double y = v < 8.0 ? v + 8.0 : v, i = 1.0 / y, z = i * i;
    double p = POLYD(z, 1.0 / 156, -691.0 / 360360, 1.0 / 1188, -1.0 / 1680, 1.0 / 1260, -1.0 / 360,
                     1.0 / 12);
    double s = FMA(y - 0.5, v_log_f64(y), FMA(p, i, 0.91893853320467274178 - y));
    double turn = fabs(sincos_d((x - __builtin_rint(x)) * 3.14159265358979323846, 0));
    double q = v_log_f64(x < 0.5 ? 3.14159265358979323846 * prod / turn : prod);
    double r = x < 0.5 ? q - s : s - q;
    r = (x - 1.0) * (x - 2.0) == 0 ? 0.0 : r;
    r = x <= 0 ? (turn == 0 ? INFINITY : r) : r;
    return (float)(fabs(x) == INFINITY ? INFINITY : r);
}
VM_INL double m_lgamma_f64(double x) { return lgamma(x); }
VM_INL double m_digamma_f64(double x)
{
    double v = x < 0.5 ? 1.0 - x : x, c = v > 8.0 ? 8.0 : v, f = c, d = 1.0;
    for (int k = 1; k < 8; k++) { /* the product of eight factors and its derivative */
        d = FMA(d, c + (double)k, f);
        f *= c + (double)k;
    }
    double y = v < 8.0 ? v + 8.0 : v, i = 1.0 / y, z = i * i;
    double p = POLYD(z, 3617.0 / 8160, -1.0 / 12, 691.0 / 32760, -1.0 / 132, 1.0 / 240, -1.0 / 252, 1.0 / 120,
                     -1.0 / 12);
    double s = v_log_f64(y) + FMA(z, p, -0.5 * i) - (v < 8.0 ? d / f : 0.0);
    double frac = x - __builtin_rint(x),
           turn = 3.14159265358979323846 / v_tan_f64(frac * 3.14159265358979323846);
    double r = x < 0.5 ? s - turn : s;
    r = x < 0 ? (frac == 0 ? NAN : r) : r;
    r = x == INFINITY ? INFINITY : r;
    return x == 0 ? copysign(INFINITY, -x) : r;
}
VM_INL float m_digamma_f32(float x) { return (float)m_digamma_f64((double)x); }

/* ---- remainders: exact while the quotient has few bits (m_quot_big tells the caller) ---- */
VM_INL float m_fmod_f32(float x, float y)
{
    double a = fabs((double)x), b = fabs((double)y), r = a - b * __builtin_trunc(a / b);
    r = r < 0 ? r + b : r;
    r = r >= b ? r - b : r;
    return (float)copysign(r, (double)x);
}
VM_INL int m_quot_big(float x, float y) /* also NaN, and an infinite y, which times zero is none */
{
    return !(fabs((double)x) < fabs((double)y) * 0x1p28) | (fabsf(y) == INFINITY);
}
/* The quotient may be one too large where it was rounded up; its remainder is exact all the same. */
VM_INL double m_fmod_f64(double x, double y)
{
    double a = fabs(x), b = fabs(y), r = FMA(-__builtin_trunc(a / b), b, a);
    return copysign(r < 0 ? r + b : r, x);
}
VM_INL int64_t m_quot_big_d(double x, double y)
{
    return !(fabs(x) < fabs(y) * 0x1p52) | (fabs(y) == INFINITY) | !(fabs(y) > 1e-290);
}
VM_INL float m_hypot_f32(float x, float y)
{
    double a = (double)x, b = (double)y, r = __builtin_sqrt(a * a + b * b);
    r = fabs(a) == INFINITY ? INFINITY : r;
    return (float)(fabs(b) == INFINITY ? INFINITY : r);
}
VM_INL float v_hypot_f32(float x, float y) { return m_hypot_f32(x, y); }
VM_INL double v_hypot_f64(double x, double y) { return __builtin_sqrt(FMA(x, x, y * y)); }
/* One step of the bits, towards y. */
#define NEXT(T, U, sfx, of, from)                               \
    VM_INL T m_nextafter_##sfx(T x, T y)                        \
    {                                                           \
        U b = of(x), away = (x < y) == (x > 0) ? b + 1 : b - 1; \
        T r = x == 0 ? M_copysign(from(1), y) : from(away);     \
        r = x == y ? y : r;                                     \
        return x != x || y != y ? x + y : r;                    \
    }
NEXT(float, uint32_t, f32, bits_f, float_b)
NEXT(double, uint64_t, f64, bits_d, double_b)
/* atan2 of finite numbers, not both zero */
VM_INL float v_atan2_f32(float y, float x)
{
    float ay = fabsf(y), ax = fabsf(x);
    bool steep = ay > ax;
    float b = (steep ? ax : ay) / (steep ? ay : ax), p = atan_small_f(b);
    p = steep ? 0x1.921fb6p+0f - (p + 0x1.777a5cp-25f) : p;
    p = (int32_t)bits_f(x) < 0 ? 0x1.921fb6p+1f - (p + 0x1.777a5cp-24f) : p;
    return copysignf(p, y);
}
VM_INL double v_atan2_f64(double y, double x)
{
    double r = m_atan_f64(fabs(y) / fabs(x));
    r = (int64_t)bits_d(x) < 0 ? 0x1.921fb54442d18p+1 - (r - 0x1.1a62633145c07p-53) : r;
    return copysign(r, y);
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
#ifdef __FMA__
/* x normal and positive, |y| <= 1e15. The logarithm in two doubles: what 700 times its error may be is then still below
 * the last place. With s = f / (2 + f), log(1 + f) = 2 s + s u, where u = z (2/3 + z Q), z = s^2. */
VM_INL double v_pow_f64(double x, double y)
{
    double k, f = log_split_d(x, &k), den = 2.0 + f, i = 1.0 / den, s = f * i;
    double sl = (FMA(-s, den, f) - s * (f - (den - 2.0))) * i;
    double z = s * s, zl = FMA(s, s, -z) + 2.0 * s * sl;
    double q = POLYD(z, 2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9,
                     2.0 / 7, 2.0 / 5);
    double zq = z * q, p = 0x1.5555555555555p-1 + zq,
           pl = (0x1.5555555555555p-1 - p) + zq + 0x1.5555555555555p-55;
    double u = z * p, ul = FMA(z, p, -u) + FMA(z, pl, zl * p);
    double v = s * u, vl = FMA(s, u, -v) + FMA(s, ul, sl * u);
    double hi = FMA(2.0, s, v), lo = (FMA(2.0, s, -hi) + v) + FMA(2.0, sl, vl);
    double big = k * LN2_HI, l = big + hi, back = l - big; /* k has 11 bits, LN2_HI 32: exact */
    double ll = ((big - (l - back)) + (hi - back)) + FMA(k, LN2_LO, lo);
    double e = y * l, el = FMA(y, l, -e) + y * ll, t;
    el = e > 710.0 ? 0 : e < -746.0 ? 0 : el;
    e = e > 710.0 ? 710.0 : e;
    e = e < -746.0 ? -746.0 : e;
    double r = exp_split_d(e, &t) + el;
    return scale_far_d(exp_r_d(r), t);
}
VM_INL double v_pow_any_f64(double x, double y) /* the same for |x| */
{
    double r = v_pow_f64(fabs(x), y), half = y * 0.5;
    double turned = __builtin_trunc(y) != y ? NAN : __builtin_trunc(half) != half ? -r : r;
    return x < 0 ? turned : r;
}
#endif
/* x normal and positive, |y| <= 1e6: the logarithm and its product with y in double, all else in float */
VM_INL float v_pow_f32(float x, float y)
{
    float k, f = log_split_f(x, &k);
    double g = (double)f;
    double l = POLYD(g, 0.15749108449438709, -0.16610733670292638, 0.12357978346915161, -0.13746053557547175,
                     0.16088909658821138, -0.18080611996396465, 0.20607609685332662, -0.24043365801941752,
                     0.28853943850441355, -0.36067397865600564, 0.48089834399252446, -0.72134751956912091,
                     1.4426950408922827);
    double e = (double)y * FMA(g, l, (double)k);
    e = e > 129.0 ? 129.0 : e;
    e = e < -151.0 ? -151.0 : e;
    double n = (e + RND_D) - RND_D;
    return scale_far_f(exp2_r_f((float)(e - n)), (float)n + RND_F);
}

#define NAN_TO_NUM(T, sfx)                                \
    VM_INL T m_nan_to_num_##sfx(T x, T nan, T top, T low) \
    {                                                     \
        T r = x == (T)INFINITY ? top : x;                 \
        r = x == -(T)INFINITY ? low : r;                  \
        return x != x ? nan : r;                          \
    }
NAN_TO_NUM(float, f32)
NAN_TO_NUM(double, f64)

/* in double the short way is the whole way */
VM_INL double v_sinh_f64(double x) { return m_sinh_f64(x); }
VM_INL double v_cosh_f64(double x) { return m_cosh_f64(x); }
VM_INL double v_asinh_f64(double x) { return m_asinh_f64(x); }
VM_INL double v_acosh_f64(double x) { return m_acosh_f64(x); }
VM_INL double v_gelu_f64(double x) { return m_gelu_f64(x); }

#define M1(fn, x)     _Generic((x), float : fn##_f32, double : fn##_f64)(x)
#define M2(fn, x, y)  _Generic((x), float : fn##_f32, double : fn##_f64)(x, y)
#define V_exp(x)      M1(v_exp, x)
#define V_exp2(x)     M1(v_exp2, x)
#define V_log(x)      M1(v_log, x)
#define V_log2(x)     M1(v_log2, x)
#define V_log10(x)    M1(v_log10, x)
#define V_log1p(x)    M1(v_log1p, x)
#define V_sin(x)      M1(v_sin, x)
#define V_cos(x)      M1(v_cos, x)
#define V_tan(x)      M1(v_tan, x)
#define V_sinh(x)     M1(v_sinh, x)
#define V_cosh(x)     M1(v_cosh, x)
#define V_asinh(x)    M1(v_asinh, x)
#define V_acosh(x)    M1(v_acosh, x)
#define V_sigmoid(x)  M1(v_sigmoid, x)
#define V_gelu(x)     M1(v_gelu, x)
#define V_atan2(y, x) M2(v_atan2, y, x)
#define V_hypot(x, y) M2(v_hypot, x, y)
#define M_exp(x)      M1(m_exp, x)
#define M_exp2(x)     M1(m_exp2, x)
#define M_expm1(x)    M1(m_expm1, x)
#define M_log(x)      M1(m_log, x)
#define M_log2(x)     M1(m_log2, x)
#define M_log10(x)    M1(m_log10, x)
#define M_log1p(x)    M1(m_log1p, x)
#define M_asin(x)     M1(m_asin, x)
#define M_acos(x)     M1(m_acos, x)
#define M_atan(x)     M1(m_atan, x)
#define M_sinh(x)     M1(m_sinh, x)
#define M_cosh(x)     M1(m_cosh, x)
#define M_tanh(x)     M1(m_tanh, x)
#define M_asinh(x)    M1(m_asinh, x)
#define M_acosh(x)    M1(m_acosh, x)
#define M_atanh(x)    M1(m_atanh, x)
#define M_sigmoid(x)  M1(m_sigmoid, x)
#define M_erf(x)      M1(m_erf, x)
#define M_erfc(x)     M1(m_erfc, x)
#define M_nan_to_num(x, n, t, l) \
    _Generic((x), float : m_nan_to_num_f32, double : m_nan_to_num_f64)(x, n, t, l)
#define M_erfinv(x)       M1(m_erfinv, x)
#define M_lgamma(x)       M1(m_lgamma, x)
#define M_digamma(x)      M1(m_digamma, x)
#define M_gelu(x)         M1(m_gelu, x)
#define M_nextafter(x, y) M2(m_nextafter, x, y)
#define M_hypot(x, y)     _Generic((x), float : m_hypot_f32, double : hypot)(x, y)
#define M_pow(x, y)       M2(m_pow, x, y)
#define LIBM2(fn, x, y)   _Generic((x), float : fn##f, double : fn)(x, y)
#define LIBM(fn, x)       _Generic((x), float : fn##f, double : fn)(x)
#define M_sqrt(x)         _Generic((x), float : __builtin_sqrtf, double : __builtin_sqrt)(x)
#define M_floor(x)        _Generic((x), float : __builtin_floorf, double : __builtin_floor)(x)
#define M_ceil(x)         _Generic((x), float : __builtin_ceilf, double : __builtin_ceil)(x)
#define M_trunc(x)        _Generic((x), float : __builtin_truncf, double : __builtin_trunc)(x)
#define M_rint(x)         _Generic((x), float : __builtin_rintf, double : __builtin_rint)(x)
#define M_abs(x)          _Generic((x), float : __builtin_fabsf, double : __builtin_fabs)(x)
#endif
