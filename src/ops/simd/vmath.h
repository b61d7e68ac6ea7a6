/* vmath.h - branch-free mathematics that the compiler turns into vector code, for float and double.
 * Every function is plain C on one element; loops over it vectorise because there is no call and no branch.
 * Errors are 1 to 2 units in the last place. m_ functions take any argument; v_ functions are shorter and good in a range.
 * Reductions, scans and drawn numbers use it, and operators that have no lowering; what has one is vir/math. */
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
/* the logarithm of x = 2^k (1 + f); large parts last, each product with k exact */
VM_INL float ln_join_f(float k, float f)
{
    return FMAF(k, 0x1.62e4p-1f, f + FMAF(k, 0x1.7f7d1cp-20f, log_rest_f(f)));
}
VM_INL double ln_join_d(double k, double f) { return FMA(k, LN2_HI, FMA(k, LN2_LO, log_rest_d(f)) + f); }
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
    VM_INL T v_log_##sfx(T x)                                             \
    {                                                                     \
        T k, f = log_split_##fd(x, &k);                                   \
        return ln_join_##fd(k, f);                                        \
    }                                                                     \
    VM_INL T m_log_##sfx(T x)                                             \
    {                                                                     \
        T k, f = log_all_##fd(x, &k);                                     \
        return log_special_##fd(x, ln_join_##fd(k, f));                   \
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

/* ---- sin, cos, tan: quadrant by rounding x 2/pi; valid for |x| <= 500000 ---- */
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
VM_INL double v_tan_f64(double x)
{
    uint64_t q;
    double r = trig_reduce(x, &q), z = r * r, s = sin_poly(r, z), c = cos_poly(z);
    double v = q & 1 ? -c / s : s / c;
    return x == 0 ? x : v;
}
/* ---- error functions ---- */
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
VM_INL double erfc_near_d(double a) /* a <= 26, where it is a normal number */
{
    double q, lost, w, p = erfc_poly_d(a, &q, &lost), r = exp_split_d(-q, &w) - lost;
    return p * scale_d(exp_r_d(r), w);
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
#define M_log(x)     M1(m_log, x)
#define M_nan_to_num(x, n, t, l) \
    _Generic((x), float : m_nan_to_num_f32, double : m_nan_to_num_f64)(x, n, t, l)
#define M_erfinv(x)       M1(m_erfinv, x)
#define M_lgamma(x)       M1(m_lgamma, x)
#define M_digamma(x)      M1(m_digamma, x)
#define M_nextafter(x, y) M2(m_nextafter, x, y)
#define LIBM2(fn, x, y)   _Generic((x), float : fn##f, double : fn)(x, y)
#define M_sqrt(x)         _Generic((x), float : __builtin_sqrtf, double : __builtin_sqrt)(x)
#define M_floor(x)        _Generic((x), float : __builtin_floorf, double : __builtin_floor)(x)
#define M_ceil(x)         _Generic((x), float : __builtin_ceilf, double : __builtin_ceil)(x)
#define M_trunc(x)        _Generic((x), float : __builtin_truncf, double : __builtin_trunc)(x)
#define M_rint(x)         _Generic((x), float : __builtin_rintf, double : __builtin_rint)(x)
#define M_abs(x)          _Generic((x), float : __builtin_fabsf, double : __builtin_fabs)(x)
#endif
