/* vfunc.c - vector math: each function as a polynomial with its special cases, in the operations of the IR.
 * Coefficients are minimax fits made for these intervals; errors measured over the whole range stand in
 * docs/numerics.md (tools/numerics.c writes the table). */
#include "vir/math/vmath.h"
#include <math.h>

typedef struct fn {
    vir *k;
    vir_type t;
    bool d; /* f64 */
} fn;

static vir_ref c(fn f, double v) { return vir_flt(f.k, f.t, v); }
static vir_ref pick(fn f, double f32, double f64) { return vir_flt(f.k, f.t, f.d ? f64 : f32); }
static vir_ref add(fn f, vir_ref x, vir_ref y) { return vir_add(f.k, x, y); }
static vir_ref sub(fn f, vir_ref x, vir_ref y) { return vir_sub(f.k, x, y); }
static vir_ref mul(fn f, vir_ref x, vir_ref y) { return vir_mul(f.k, x, y); }
static vir_ref fma_(fn f, vir_ref x, vir_ref y, vir_ref z) { return vir_fma(f.k, x, y, z); }
static vir_ref sel(fn f, vir_ref m, vir_ref x, vir_ref y) { return vir_select(f.k, m, x, y); }
static fn as_f64(fn f) { return (fn){ f.k, VT_f64, true }; }

/* Horner's rule from the highest coefficient down. */
static vir_ref poly(fn f, vir_ref z, const double *co, int n)
{
    vir_ref r = c(f, co[n - 1]);
    for (int i = n - 2; i >= 0; i--)
        r = fma_(f, r, z, c(f, co[i]));
    return r;
}
#define POLY(f, z, name) \
    ((f).d ? poly(f, z, name##_d, (int)COUNT(name##_d)) : poly(f, z, name##_f, (int)COUNT(name##_f)))

/* x with the sign of s, for x >= 0 or NaN. */
static vir_ref with_sign(fn f, vir_ref x, vir_ref s) { return vir_copysign(f.k, x, s); }
/* x with its sign turned where s is negative (also -0). */
static vir_ref turn_sign(fn f, vir_ref x, vir_ref s)
{
    vir_type it = f.d ? VT_i64 : VT_i32;
    vir_ref bit = vir_imm(f.k, it, f.d ? INT64_MIN : INT32_MIN);
    vir_ref sb = vir_and(f.k, vir_bitcast(f.k, it, s), bit);
    return vir_bitcast(f.k, f.t, vir_xor(f.k, vir_bitcast(f.k, it, x), sb));
}

/* --- exponentials
 * ---------------------------------------------------------------------------------------------- */
/* (exp(r) - 1 - r) / r**2 on |r| <= ln(2) / 2 */
static const double exp_f[] = { 0x1.0000000000000p-1, 0x1.5554860000000p-3, 0x1.5554540000000p-5,
                                0x1.1241480000000p-7, 0x1.6dbcb60000000p-10 };
static const double exp_d[] = { 0x1.000000000000dp-1,  0x1.5555555555562p-3,  0x1.555555554f93ap-5,
                                0x1.111111110d122p-7,  0x1.6c16c18734dd9p-10, 0x1.a01a01bc984ffp-13,
                                0x1.a01992482487ep-16, 0x1.71dddbffe8fc0p-19, 0x1.28b453cd250fdp-22,
                                0x1.af8b80d987bc3p-26 };

/* n = round(x / ln 2), and exp(x - n ln 2) - 1. */
static vir_ref exp_reduced(fn f, vir_ref x, vir_ref *n)
{
    *n = vir_round(f.k, mul(f, x, pick(f, 0x1.715476p+0, 0x1.71547652b82fep+0)));
    vir_ref r = fma_(f, *n, pick(f, -0x1.62e430p-1, -0x1.62e42fefa39efp-1), x);
    r = fma_(f, *n, pick(f, 0x1.05c610p-29, -0x1.abc9e3b39803fp-56), r);
    return fma_(f, mul(f, r, r), POLY(f, r, exp), r);
}

/* exp(x) * 2**shift for x in [-105, 90] ([-747, 711]) or NaN */
static vir_ref exp_clamped(fn f, vir_ref x, int shift)
{
    vir_ref n, p = add(f, exp_reduced(f, x, &n), c(f, 1));
    return vir_scale2(f.k, p, shift ? add(f, n, c(f, shift)) : n);
}

/* exp(x) * 2**shift */
static vir_ref exp_shifted(fn f, vir_ref x, int shift)
{
    return exp_clamped(f, vir_max(f.k, pick(f, -105, -747), vir_min(f.k, pick(f, 90, 711), x)), shift);
}

/* exp: 2**(j / 16 + 64) as bits, less j << 19: adding n << 19 then gives 2**(n / 16 + 64) for n = 16 q + j, since q lands
 * in the exponent. The 2**64 keep what becomes subnormal in range until the last step.
 * erf, tanh: the coefficients of f(j C + t), t = -C / 2 to C / 2, one table a power of t; for j = 0 of f(t) - t. C was
 * chosen so that f(C) is nearly a float. */
const int32_t vir_tables[VIR_TABLE_COUNT][16] = {
    [VIR_TABLE_exp] = { 0x5f800000, 0x5f7daac3, 0x5f7b95c2, 0x5f79c3d3, 0x5f7837f0, 0x5f76f532, 0x5f75fed7,
                        0x5f75583f, 0x5f7504f3, 0x5f7508a4, 0x5f75672a, 0x5f76248c, 0x5f7744fd, 0x5f78ccdf,
                        0x5f7ac0c7, 0x5f7d257d },
    [VIR_TABLE_erf + 0] = { 0x00000000, 0x3e90cb02, 0x3f07fb8d, 0x3f3908b1, 0x3f5a4490, 0x3f6e0b58,
                            0x3f78615c, 0x3f7d1fef, 0x3f7f0994, 0x3f7fb6f0, 0x3f7fecd8, 0x3f7ffb90,
                            0x3f7fff18, 0x3f7fffd6, 0x3f7ffff9, 0x3f7fffff },
    [VIR_TABLE_erf + 1] = { 0x3e0375d4, 0x3f874334, 0x3f5e3348, 0x3f20119d, 0x3eca442e, 0x3e6029e7,
                            0x3dd9e320, 0x3d39bf5e, 0x3c8ae13d, 0x3bb6245b, 0x3ad182b5, 0x39d35ca2,
                            0x38bb035d, 0x37912007, 0x36458bbf, 0x34ebd72b },
    [VIR_TABLE_erf + 2] = { 0x346f87cc, -0x41756e93, -0x411c5e3e, -0x410a067f, -0x4130c90e, -0x41707808,
                            -0x41d8959b, -0x42597e31, -0x42f1b929, -0x43ae15dd, -0x4479dd8c, -0x456b2952,
                            -0x46705a8f, -0x478e8522, -0x48cf0bbc, -0x4a1db87b },
    [VIR_TABLE_erf + 3] = { -0x413f6a9d, -0x41634fb5, -0x41f33388, 0x3d1a431e, 0x3e14328b, 0x3e2a5882,
                            0x3e0731bd, 0x3da80d21, 0x3d2b32c2, 0x3c921d62, 0x3bd395de, 0x3b02fc5b,
                            0x3a0b66a4, 0x38ffffbb, 0x37cb5e0b, 0x368c113a },
    [VIR_TABLE_erf + 4] = { 0x398a02fe, 0x3e037a17, 0x3e3a92b8, 0x3e148d01, 0x3d79a158, -0x43b2a835,
                            -0x42c187b8, -0x42c2732a, -0x42fffc0b, -0x4379f7ef, -0x441bb5c8, -0x44de1572,
                            -0x45be1a0f, -0x46ba468a, -0x47d34ad2, -0x48fe3b71 },
    [VIR_TABLE_erf + 5] = { 0x3de37121, 0x3da016a7, 0x3b7aa9c7, -0x429c3837, -0x4274cab6, -0x42cf3d17,
                            -0x43cdb1e9, 0x3c0c2c93, 0x3c54ee82, 0x3c1e3c8c, 0x3ba8cf37, 0x3b0da0a5,
                            0x3a422408, 0x395dd247, 0x3855d6e4, 0x372f547b },
    [VIR_TABLE_tanh + 0] = { 0x00000000, 0x3f074aa7, 0x3f538281, 0x3f7165de, 0x3f7b67a2, 0x3f7e92d7,
                             0x3f7f8f23, 0x3f7fdd29, 0x3f7ff540, 0x3f7ffcaf, 0x3f7ffefa, 0x3f7fffaf,
                             0x3f7fffe7, 0x3f7ffff8, 0x3f7ffffe, 0x3f800000 },
    [VIR_TABLE_tanh + 1] = { 0x2ffe5d62, 0x3f38802e, 0x3ea27f39, 0x3de2f85a, 0x3d11b9d7, 0x3c36123b,
                             0x3b6188dc, 0x3a8b509b, 0x39abf874, 0x38d43a0e, 0x3802f169, 0x37219420,
                             0x3647615b, 0x35760674, 0x3497ca8e, 0x341652e8 },
    [VIR_TABLE_tanh + 2] = { -0x4bdae81f, -0x413cfd30, -0x4179be40, -0x4229f9f4, -0x42f0e3d0, -0x43caf178,
                             -0x449eda8d, -0x4574c256, -0x46540ebe, -0x472bc8aa, -0x47fd0f19, -0x48de6c0d,
                             -0x49b89eb1, -0x4a89f98b, -0x4b68356f, 0x00000000 },
    [VIR_TABLE_tanh + 3] = { -0x4155566a, -0x42e07812, 0x3de308ee, 0x3d7c5194, 0x3cb7ee99, 0x3beeb70a,
                             0x3b15948c, 0x3a397500, 0x39652e67, 0x388d768c, 0x37ae9520, 0x36d76f62,
                             0x3604eb6d, 0x35240440, 0x344a6364, 0x00000000 },
    [VIR_TABLE_tanh + 4] = { -0x46d41ad9, 0x3e171786, -0x44779d72, -0x4341728e, -0x43d58995, -0x4496a56f,
                             -0x456b7674, -0x4646f3ff, -0x471afd44, -0x47f29405, -0x48d171ad, -0x49a896a3,
                             -0x4a7b17d6, -0x4b5bff9a, -0x4c35a14c, 0x00000000 },
    [VIR_TABLE_tanh + 5] = { 0x3e0a1593, -0x42b7c72e, -0x432734ad, 0x3b7ccd8a, 0x3b66ea40, 0x3ab234a3,
                             0x39ea6027, 0x391369ac, 0x3836f9b2, 0x3762313b, 0x368ba206, 0x35ac545a,
                             0x34d4a831, 0x340334bd, 0x3321e6f9, 0x00000000 },
    [VIR_TABLE_tanh + 6] = { -0x4420548e, -0x42fd2f12, 0x3c8b6066, 0x3afe10ad, -0x45bb00a8, -0x4627a70b,
                             -0x46e68f1b, -0x47bad38f, -0x4889afe4, -0x496774e2, -0x4a438ce4, -0x4b176128,
                             -0x4bf0769d, -0x4ccee08d, -0x4da56ff2, 0x00000000 },
    [VIR_TABLE_tanh + 7] = { -0x42d7edf7, 0x3ced6229, -0x44a283c4, -0x450a2bc6, -0x49387200, 0x38c34c93,
                             0x3824a80b, 0x375cc6ca, 0x368b9c3d, 0x35ad920e, 0x34d6ac0a, 0x34048a94,
                             0x332395c3, 0x3249de7b, 0x317919e6, 0x00000000 },
};

/* exp(x) for x in [-132.39, 40] or NaN, in f32: x = n ln(2) / 16 + r. Adding 1.5 * 2**23 rounds and leaves n in the low
 * bits. */
static vir_ref exp_by_table(fn f, vir_ref x, bool scaled)
{
    vir_ref magic = c(f, 0x1.8p23), m = fma_(f, x, c(f, 0x1.715476p+4), magic), n = sub(f, m, magic);
    vir_ref r = fma_(f, n, c(f, -0x1.62e430p-5), x), bits = vir_bitcast(f.k, VT_i32, m);
    r = fma_(f, n, c(f, 0x1.05c610p-33), r);
    vir_ref p = fma_(f, fma_(f, c(f, 0x1.5555560000000p-3), r, c(f, 0x1.0002300000000p-1)), r, c(f, 1));
    vir_ref up = vir_shl(f.k, bits, vir_imm(f.k, VT_i32, 19));
    vir_ref t = vir_bitcast(f.k, f.t, vir_add(f.k, vir_table(f.k, VIR_TABLE_exp, bits), up));
    t = fma_(f, t, mul(f, p, r), t); /* the powers are 2**64 too large, so that they do not underflow */
    return scaled ? t : mul(f, t, c(f, 0x1p-64));
}

/* exp(x) for x <= 40 or NaN; scaled: 2**64 times that */
static vir_ref expn(fn f, vir_ref x, bool scaled)
{
    if (f.d && scaled)
        return mul(f, expn(f, x, false), c(f, 0x1p64));
    if (f.d)
        return exp_clamped(f, vir_max(f.k, c(f, -747), x), 0);
    /* -191 ln 2: there the exponent of the power in the table becomes 0, and with it the power. What is masked by -inf costs
     * no underflow, which processors are slow at. */
    return exp_by_table(f, vir_max(f.k, c(f, -0x1.08c838p+7), x), scaled);
}

/* (2**r - 1) / r on |r| <= 1/2 */
static const double exp2_f[] = { 0x1.62e4300000000p-1, 0x1.ebfbe00000000p-3,  0x1.c6aebe0000000p-5,
                                 0x1.3b299e0000000p-7, 0x1.5f50ae0000000p-10, 0x1.4497e60000000p-13 };
static const double exp2_d[] = { 0x1.62e42fefa39efp-1,  0x1.ebfbdff82c5a7p-3,  0x1.c6b08d704a0d9p-5,
                                 0x1.3b2ab6fb9f8c7p-7,  0x1.5d87fe78a06a3p-10, 0x1.4309131096314p-13,
                                 0x1.ffcbfc7e867d5p-17, 0x1.62bfc3156e05ap-20, 0x1.b524c94d4b58cp-24,
                                 0x1.e6235e371d3f5p-28, 0x1.ea1f1c4fdd5c3p-32 };
static vir_ref exp2_(fn f, vir_ref x)
{
    x = vir_max(f.k, pick(f, -152, -1077), vir_min(f.k, pick(f, 129, 1025), x));
    vir_ref n = vir_round(f.k, x), r = sub(f, x, n);
    return vir_scale2(f.k, fma_(f, r, POLY(f, r, exp2), c(f, 1)), n);
}

static vir_ref expm1_(fn f, vir_ref x)
{
    vir_ref n, y = vir_max(f.k, pick(f, -30, -60), vir_min(f.k, pick(f, 89, 710), x));
    vir_ref p = exp_reduced(f, y, &n);
    /* half of 2**n, so that n = 128 (1024) stays finite; the last step doubles */
    vir_ref h = vir_scale2(f.k, c(f, 1), sub(f, n, c(f, 1)));
    vir_ref r = fma_(f, h, p, sub(f, h, c(f, 0.5)));
    return sel(f, vir_eq(f.k, x, c(f, 0)), x, add(f, r, r));
}

/* exp of a non-positive number only, so that small results keep their digits; the quotient is corrected by
 * what 1 + e and the division rounded away. */
static vir_ref sigmoid(fn f, vir_ref x)
{
    vir_ref one = c(f, 1), a = vir_max(f.k, pick(f, -105, -747), vir_neg(f.k, vir_abs(f.k, x)));
    vir_ref e = exp_clamped(f, a, 0), d = add(f, one, e);
    vir_ref lost = add(f, sub(f, one, d), e), num = sel(f, vir_lt(f.k, x, c(f, 0)), e, one);
    vir_ref r = vir_div(f.k, one, d), q = mul(f, num, r), nq = vir_neg(f.k, q);
    return fma_(f, fma_(f, nq, lost, fma_(f, nq, d, num)), r, q);
}

/* An odd function f, for x in f32: about the nearest multiple of C to |x| <= top, f(top) = 1, a polynomial of n coefficients
 * whose tables start at `table`. by: 1 / C. */
static vir_ref odd_by_table(fn f, vir_ref x, int table, int n, double by, double C, double top)
{
    vir_ref a = vir_min(f.k, c(f, top), vir_abs(f.k, x)), magic = c(f, 0x1.8p23),
            m = fma_(f, a, c(f, by), magic);
    vir_ref j = sub(f, m, magic), t = fma_(f, j, c(f, -C), a), at = vir_bitcast(f.k, VT_i32, m), co[8];
    for (int i = 0; i < n; i++)
        co[i] = vir_bitcast(f.k, f.t, vir_table(f.k, table + i, at));
    vir_ref r = co[n - 1];
    for (int i = n - 2; i > 0; i--)
        r = fma_(f, r, t, co[i]);
    r = fma_(f, r, t, sel(f, vir_eq(f.k, j, c(f, 0)), a, co[0]));
    return with_sign(f, r, x);
}

static vir_ref tanh_(fn f, vir_ref x)
{
    if (!f.d)
        return odd_by_table(f, x, VIR_TABLE_tanh, 8, 0x1.b358a2p+0, 0x1.2d1348p-1, 9.05);
    vir_ref a = vir_abs(f.k, x), two = c(f, 2), t = expm1_(f, mul(f, two, vir_min(f.k, c(f, 20), a)));
    return with_sign(f, vir_div(f.k, t, add(f, t, two)), x);
}

/* (sinh(x) - x) / x**3 over z = x**2, |x| <= 1 */
static const double sinh_f[] = { 0x1.5555560000000p-3, 0x1.11111e0000000p-7, 0x1.a008fc0000000p-13,
                                 0x1.78a7c20000000p-19 };
static const double sinh_d[] = { 0x1.5555555555555p-3,  0x1.1111111111111p-7,  0x1.a01a01a01a001p-13,
                                 0x1.71de3a556f972p-19, 0x1.ae64567929dedp-26, 0x1.612467cd22731p-33,
                                 0x1.ae777be550101p-41, 0x1.99f097c2719f8p-49 };
static vir_ref sinh_(fn f, vir_ref x)
{
    vir_ref a = vir_abs(f.k, x), z = mul(f, a, a), small = fma_(f, mul(f, a, z), POLY(f, z, sinh), a);
    vir_ref e = exp_shifted(f, a, -1), big = sub(f, e, vir_div(f.k, c(f, 0.25), e));
    return with_sign(f, sel(f, vir_lt(f.k, a, c(f, 1)), small, big), x);
}
static vir_ref cosh_(fn f, vir_ref x)
{
    vir_ref e = exp_shifted(f, vir_abs(f.k, x), -1);
    return add(f, e, vir_div(f.k, c(f, 0.25), e));
}

/* --- logarithms
 * ------------------------------------------------------------------------------------------------- */
/* (log(1 + f) - f + f**2 / 2) / f**3 on |f| <= 1/3; and for f64 (2 atanh(s) - 2 s) / s**3 over s**2, s = f /
 * (2 + f) */
static const double log_f[] = { 0x1.5555580000000p-2,  -0x1.ffff0e0000000p-3, 0x1.9995fa0000000p-3,
                                -0x1.55991e0000000p-3, 0x1.25203a0000000p-3,  -0x1.f387860000000p-4,
                                0x1.b4b57e0000000p-4,  -0x1.0716520000000p-3, 0x1.fa1ee00000000p-4 };
static const double log_d[] = { 0x1.5555555555555p-1, 0x1.999999999a004p-2, 0x1.24924923c4e08p-2,
                                0x1.c71c730003f03p-3, 0x1.745ca267b0d49p-3, 0x1.3b2b54806b474p-3,
                                0x1.0e6ee785e0f3ep-3, 0x1.177b6d7e1b3a1p-3 };

/* log(1 + f) - f for 1 + f in [2/3, 4/3] */
static vir_ref log_rest(fn f, vir_ref x)
{
    if (!f.d)
        return mul(f, mul(f, x, x), fma_(f, x, poly(f, x, log_f, (int)COUNT(log_f)), c(f, -0.5)));
    vir_ref s = vir_div(f.k, x, add(f, c(f, 2), x)), z = mul(f, s, s), h = mul(f, c(f, 0.5), mul(f, x, x));
    vir_ref r = mul(f, z, poly(f, z, log_d, (int)COUNT(log_d)));
    return sub(f, mul(f, s, add(f, h, r)), h);
}

/* x = 2**e (1 + m), 1 + m in [2/3, 4/3), for positive normal x. ei: e as an integer. */
static vir_ref log_split(fn f, vir_ref x, vir_ref *e, vir_ref *ei)
{
    vir_type it = f.d ? VT_i64 : VT_i32;
    vir_ref bits = vir_bitcast(f.k, it, x), sh = vir_imm(f.k, it, f.d ? 52 : 23);
    vir_ref at = vir_sub(f.k, bits, vir_imm(f.k, it, f.d ? 0x3fe5555555555555LL : 0x3f2aaaab));
    *ei = vir_sra(f.k, at, sh);
    *e = vir_cvt(f.k, f.t, vir_cvt(f.k, VT_i32, *ei));
    vir_ref m = vir_bitcast(f.k, f.t, vir_sub(f.k, bits, vir_shl(f.k, *ei, sh)));
    return sub(f, m, c(f, 1));
}
/* The same for subnormal numbers too. */
static vir_ref log_split_all(fn f, vir_ref x, vir_ref *e)
{
    vir_ref ei, tiny = vir_lt(f.k, x, pick(f, 0x1p-126, 0x1p-1022));
    vir_ref m = log_split(f, sel(f, tiny, mul(f, x, pick(f, 0x1p23, 0x1p54)), x), e, &ei);
    *e = sel(f, tiny, sub(f, *e, pick(f, 23, 54)), *e);
    return m;
}
static vir_ref log_special(fn f, vir_ref x, vir_ref r, double zero_at)
{
    vir_ref z = c(f, zero_at);
    r = sel(f, vir_eq(f.k, x, z), c(f, -INFINITY), r);
    r = sel(f, vir_lt(f.k, x, z), c(f, NAN), r);
    return sel(f, vir_lt(f.k, x, c(f, INFINITY)), r, x); /* inf and NaN are their own logarithm */
}
static vir_ref log_join(fn f, vir_ref e, vir_ref m)
{
    vir_ref r = add(f, m, fma_(f, e, pick(f, 0x1.7f7d1cp-20, 0x1.a39ef35793c76p-33), log_rest(f, m)));
    return fma_(f, e, pick(f, 0x1.62e4p-1, 0x1.62e42feep-1), r); /* e times this is exact */
}
static vir_ref log_(fn f, vir_ref x)
{
    vir_ref e, m = log_split_all(f, x, &e);
    return log_special(f, x, log_join(f, e, m), 0);
}
static vir_ref log2_(fn f, vir_ref x)
{
    vir_ref e, m = log_split_all(f, x, &e), hi = pick(f, 0x1.715476p+0, 0x1.71547652b82fep+0);
    vir_ref r = fma_(f, m, pick(f, 0x1.4ae0c0p-26, 0x1.777d0ffda0d24p-56), mul(f, log_rest(f, m), hi));
    return log_special(f, x, add(f, e, fma_(f, m, hi, r)), 0);
}
static vir_ref log10_(fn f, vir_ref x)
{
    vir_ref e, m = log_split_all(f, x, &e), hi = pick(f, 0x1.bcb7b2p-2, 0x1.bcb7b1526e50ep-2);
    vir_ref r = fma_(f, log_rest(f, m), hi, mul(f, e, pick(f, 0x1.3509f8p-18, 0x1.ef3fde623e256p-35)));
    r = fma_(f, m, pick(f, -0x1.5b235ep-27, 0x1.95355baaafad3p-57), r);
    return log_special(f, x, fma_(f, e, pick(f, 0x1.344p-2, 0x1.34413509p-2), fma_(f, m, hi, r)), 0);
}
static vir_ref log1p_(fn f, vir_ref x)
{
    vir_type it = f.d ? VT_i64 : VT_i32;
    vir_ref one = c(f, 1), u = add(f, one, x), e, ei;
    vir_ref lost = sel(f, vir_lt(f.k, vir_abs(f.k, x), one), sub(f, x, sub(f, u, one)),
                       sub(f, one, sub(f, u, x)));
    vir_ref m = log_split(f, u, &e, &ei);
    /* what rounding 1 + x lost, in m's scale; beyond 2**100 it no longer matters how much that is */
    vir_ref bias = vir_sub(f.k, vir_imm(f.k, it, f.d ? 1023 : 127), vir_min(f.k, ei, vir_imm(f.k, it, 100)));
    vir_ref scale = vir_bitcast(f.k, f.t, vir_shl(f.k, bias, vir_imm(f.k, it, f.d ? 52 : 23)));
    m = fma_(f, lost, scale, m);
    vir_ref r = log_special(f, x, log_join(f, e, m), -1);
    return sel(f, vir_eq(f.k, x, c(f, 0)), x, r);
}

/* --- circular functions
 * -------------------------------------------------------------------------------------------- */
/* (sin(r) - r) / r**3 and (cos(r) - 1 + r**2 / 2) / r**4 over r**2, |r| <= pi/4 */
static const double sin_f[] = { -0x1.5555560000000p-3, 0x1.11110e0000000p-7, -0x1.a013660000000p-13,
                                0x1.6da9300000000p-19 };
static const double sin_d[] = { -0x1.5555555555555p-3, 0x1.1111111111110p-7,   -0x1.a01a01a019881p-13,
                                0x1.71de3a544a86ep-19, -0x1.ae6453ecd336ap-26, 0x1.6121614295d9dp-33,
                                -0x1.ab06707bd3316p-41 };
static const double cos_f[] = { 0x1.5555540000000p-5, -0x1.6c12ac0000000p-10, 0x1.9bc3440000000p-16 };
static const double cos_d[] = { 0x1.5555555555555p-5,   -0x1.6c16c16c16c16p-10, 0x1.a01a01a019cb9p-16,
                                -0x1.27e4fb7709059p-22, 0x1.1eed8ddab52c7p-29,  -0x1.93949f8b67b94p-37,
                                0x1.ab68e1b002c41p-45 };

/* a = q pi/2 + r for a >= 0 below the limit where three pieces of pi/2 are enough; beyond it libm does the
 * lane. */
static vir_ref circle(fn f, vir_ref a, vir_ref *q, vir_ref *far)
{
    vir_ref n = vir_round(f.k, mul(f, a, pick(f, 0x1.45f306p-1, 0x1.45f306dc9c883p-1)));
    vir_ref r = fma_(f, n, pick(f, -0x1.921fb6p+0, -0x1.921fb54442d18p+0), a);
    r = fma_(f, n, pick(f, 0x1.777a5cp-25, -0x1.1a62633145c07p-54), r);
    r = fma_(f, n, pick(f, 0x1.ee59dap-50, 0x1.f1976b7ed8fbcp-110), r);
    *q = vir_cvt(f.k, VT_i32, n);
    *far = vir_not(f.k, vir_le(f.k, a, pick(f, 30000, 1e6)));
    return r;
}
/* The same with what rounding took from r. */
static vir_ref circle_exact(fn f, vir_ref a, vir_ref *q, vir_ref *far, vir_ref *lo)
{
    circle(f, a, q, far);
    vir_ref n = vir_round(f.k, mul(f, a, pick(f, 0x1.45f306p-1, 0x1.45f306dc9c883p-1)));
    vir_ref p2 = pick(f, 0x1.777a5cp-25, -0x1.1a62633145c07p-54);
    vir_ref first = fma_(f, n, pick(f, -0x1.921fb6p+0, -0x1.921fb54442d18p+0), a); /* exact */
    vir_ref t = mul(f, n, p2), tl = fma_(f, n, p2, vir_neg(f.k, t)), r = add(f, first, t);
    *lo = add(f, add(f, sub(f, first, r), t), tl);
    *lo = fma_(f, n, pick(f, 0x1.ee59dap-50, 0x1.f1976b7ed8fbcp-110), *lo);
    return r;
}
static vir_ref sin_piece(fn f, vir_ref r, vir_ref z) { return fma_(f, mul(f, r, z), POLY(f, z, sin), r); }
static vir_ref cos_piece(fn f, vir_ref z)
{
    vir_ref h = mul(f, c(f, 0.5), z), w = sub(f, c(f, 1), h);
    vir_ref lost = sub(f, sub(f, c(f, 1), w), h); /* what 1 - z/2 dropped */
    return add(f, w, fma_(f, mul(f, z, z), POLY(f, z, cos), lost));
}
static vir_ref bit_set(fn f, vir_ref q, int bit)
{
    return vir_ne(f.k, vir_and(f.k, q, vir_imm(f.k, VT_i32, bit)), vir_imm(f.k, VT_i32, 0));
}
static vir_ref sin_cos(fn f, vir_ref x, bool cosine)
{
    vir_ref q, far, a = vir_abs(f.k, x), r = circle(f, a, &q, &far), z = mul(f, r, r);
    if (cosine)
        q = vir_add(f.k, q, vir_imm(f.k, VT_i32, 1));
    vir_ref v = sel(f, bit_set(f, q, 1), cos_piece(f, z), sin_piece(f, r, z));
    v = sel(f, bit_set(f, q, 2), vir_neg(f.k, v), v);
    if (!cosine)
        v = turn_sign(f, v, x);
    return vir_call_where(f.k, cosine ? "cos" : "sin", x, 0, far, v);
}
/* (tan(r) - r) / r**3 over r**2 */
static const double tan_f[] = { 0x1.5555560000000p-2, 0x1.11106c0000000p-3, 0x1.ba5b4c0000000p-5,
                                0x1.61bf4c0000000p-6, 0x1.49aad00000000p-7, 0x1.0fe6800000000p-10,
                                0x1.0152da0000000p-8 };
static vir_ref tan_(fn f, vir_ref x)
{
    vir_ref q, far, lo, a = vir_abs(f.k, x), r = circle_exact(f, a, &q, &far, &lo), z = mul(f, r, r), v;
    vir_ref odd = bit_set(f, q, 1);
    if (f.d) {
        vir_ref s = sin_piece(f, r, z), co = cos_piece(f, z);
        v = vir_div(f.k, sel(f, odd, co, s), sel(f, odd, vir_neg(f.k, s), co));
    } else {
        vir_ref t = mul(f, r, z), cube = poly(f, z, tan_f, (int)COUNT(tan_f)), p = fma_(f, t, cube, r);
        p = add(f, r, fma_(f, t, cube, mul(f, lo, fma_(f, p, p, c(f, 1))))); /* lo times the derivative */
        v = sel(f, odd, vir_div(f.k, c(f, -1), p), p);
    }
    return vir_call_where(f.k, "tan", x, 0, far, turn_sign(f, v, x));
}

/* (asin(x) - x) / x**3 over z = x**2 <= 1/4; (atan(x) - x) / x**3 over z = x**2, x <= 1 (f32) or tan(pi/8)
 * (f64) */
static const double asin_f[] = { 0x1.55555e0000000p-3, 0x1.3326320000000p-4, 0x1.70cf5e0000000p-5,
                                 0x1.b1049a0000000p-6, 0x1.3a0fac0000000p-5 };
static const double asin_d[] = { 0x1.555555555554ep-3, 0x1.3333333337501p-4,  0x1.6db6db67b7247p-5,
                                 0x1.f1c71fddef045p-6, 0x1.6e8b2212fed14p-6,  0x1.1c59e86fdc3dbp-6,
                                 0x1.c862ad163622bp-7, 0x1.8598fc0a132cap-7,  0x1.faebfa82078a3p-8,
                                 0x1.0a0f49302905ap-6, -0x1.6b821a3504824p-7, 0x1.d1a579af33512p-6 };
static const double atan_f[] = { -0x1.5555540000000p-2, 0x1.9998800000000p-3,  -0x1.2472500000000p-3,
                                 0x1.c448200000000p-4,  -0x1.63e7340000000p-4, 0x1.02cb4c0000000p-4,
                                 -0x1.2c671c0000000p-5, 0x1.caa2fc0000000p-7,  -0x1.48cde60000000p-9 };
static const double atan_d[] = { -0x1.5555555555555p-2, 0x1.9999999999279p-3,  -0x1.249249242b015p-3,
                                 0x1.c71c717e0dc1ap-4,  -0x1.745d09fe4d4a9p-4, 0x1.3b12477f2dae3p-4,
                                 -0x1.10f8eef47d739p-4, 0x1.dfcb5f57fce60p-5,  -0x1.a00bbd29ea33fp-5,
                                 0x1.3fc6b9e846c65p-5,  -0x1.363cdea42775ap-6 };
#define PI2_HI(f) pick(f, 0x1.921fb6p+0, 0x1.921fb54442d18p+0)
#define PI2_LO(f) pick(f, -0x1.777a5cp-25, 0x1.1a62633145c07p-54)

/* asin(s) - s where s is x itself (|x| <= 1/2) or sqrt((1 - |x|) / 2), with what the square root rounded away
 */
static vir_ref asin_core(fn f, vir_ref a, vir_ref *big, vir_ref *s)
{
    *big = vir_gt(f.k, a, c(f, 0.5));
    vir_ref z = sel(f, *big, mul(f, c(f, 0.5), sub(f, c(f, 1), a)), mul(f, a, a)), zero = c(f, 0);
    vir_ref root = vir_sqrt(f.k, z),
            lost = vir_div(f.k, fma_(f, vir_neg(f.k, root), root, z), add(f, root, root));
    lost = sel(f, vir_and(f.k, *big, vir_gt(f.k, root, zero)), lost, zero);
    *s = sel(f, *big, root, a);
    return fma_(f, mul(f, *s, z), POLY(f, z, asin), lost);
}
static vir_ref asin_(fn f, vir_ref x)
{
    vir_ref big, s, p = asin_core(f, vir_abs(f.k, x), &big, &s);
    vir_ref far = sub(f, sub(f, PI2_HI(f), add(f, s, s)), sub(f, add(f, p, p), PI2_LO(f)));
    return with_sign(f, sel(f, big, far, add(f, s, p)), x);
}
static vir_ref acos_(fn f, vir_ref x)
{
    vir_ref big, s, p = asin_core(f, vir_abs(f.k, x), &big, &s), neg = vir_lt(f.k, x, c(f, 0)), two;
    p = add(f, s, p);
    two = add(f, p, p);
    vir_ref near = sub(f, PI2_HI(f), sub(f, turn_sign(f, p, x), PI2_LO(f)));
    vir_ref left = sub(f, mul(f, c(f, 2), PI2_HI(f)), sub(f, two, mul(f, c(f, 2), PI2_LO(f))));
    return sel(f, big, sel(f, neg, left, two), near);
}
/* atan of a >= 0 */
static vir_ref atan_core(fn f, vir_ref a)
{
    vir_ref one = c(f, 1);
    if (!f.d) {
        vir_ref inv = vir_gt(f.k, a, one), b = vir_div(f.k, sel(f, inv, one, a), sel(f, inv, a, one)),
                z = mul(f, b, b);
        vir_ref p = fma_(f, mul(f, b, z), POLY(f, z, atan), b);
        return sel(f, inv, sub(f, PI2_HI(f), sub(f, p, PI2_LO(f))), p);
    }
    vir_ref big = vir_gt(f.k, a, c(f, 2.414213562373095)), mid = vir_gt(f.k, a, c(f, 0.41421356237309503));
    vir_ref num = sel(f, big, c(f, -1), sel(f, mid, sub(f, a, one), a)),
            den = sel(f, big, a, sel(f, mid, add(f, a, one), one));
    vir_ref b = vir_div(f.k, num, den), z = mul(f, b, b), p = fma_(f, mul(f, b, z), POLY(f, z, atan), b);
    vir_ref hi = sel(f, big, c(f, 0x1.921fb54442d18p+0), sel(f, mid, c(f, 0x1.921fb54442d18p-1), c(f, 0)));
    vir_ref lo = sel(f, big, c(f, 0x1.1a62633145c07p-54), sel(f, mid, c(f, 0x1.1a62633145c07p-55), c(f, 0)));
    return add(f, hi, add(f, p, lo));
}
static vir_ref atan_(fn f, vir_ref x)
{
    vir_ref a = vir_abs(f.k, x);
    vir_ref r = atan_core(f, a);
    if (f.d) /* inf / inf inside: -1 / inf is fine, but (inf - 1) / (inf + 1) is chosen away after it is
                computed */
        r = sel(f, vir_eq(f.k, a, c(f, INFINITY)), c(f, 0x1.921fb54442d18p+0), r);
    return with_sign(f, r, x);
}
static vir_ref atan2_(fn f, vir_ref y, vir_ref x)
{
    vir_ref ay = vir_abs(f.k, y), ax = vir_abs(f.k, x), inf = c(f, INFINITY), zero = c(f, 0);
    vir_ref both0 = vir_and(f.k, vir_eq(f.k, ay, zero), vir_eq(f.k, ax, zero));
    vir_ref bothi = vir_and(f.k, vir_eq(f.k, ay, inf), vir_eq(f.k, ax, inf));
    vir_ref q = sel(f, both0, zero, sel(f, bothi, c(f, 1), vir_div(f.k, ay, ax)));
    vir_ref r = sel(f, vir_eq(f.k, q, inf), c(f, 0x1.921fb54442d18p+0), atan_core(f, q));
    vir_ref left = vir_lt(f.k, vir_copysign(f.k, c(f, 1), x), zero); /* -0 counts as left */
    r = sel(f, left, sub(f, c(f, 0x1.921fb54442d18p+1), sub(f, r, c(f, 0x1.1a62633145c07p-53))), r);
    vir_ref nan = vir_or(f.k, vir_ne(f.k, x, x), vir_ne(f.k, y, y));
    return sel(f, nan, c(f, NAN), with_sign(f, r, y));
}

/* --- error function
 * -------------------------------------------------------------------------------------------------- */
/* erf(x) / x - 1 over z = x**2; erfc(x) exp(x**2) (1 + 2 x) over t = (x - 2)
 * / (x + 2) */
static const double erf_d[] = { 0x1.06eba8214db69p-3,  -0x1.812746b0379dep-2,  0x1.ce2f21a041f3dp-4,
                                -0x1.b82ce31217eddp-6, 0x1.565bccee79254p-8,   -0x1.c02da99958be2p-11,
                                0x1.f9a1163c75388p-14, -0x1.f4913332b9198p-17, 0x1.b50555b118023p-20,
                                -0x1.2ae38622e4960p-23 };
static const double erfcx_10[] = { 0x1.46e80e526afcfp+0,   -0x1.7bf5fe0193e97p-4, -0x1.540846bb3236bp-3,
                                   0x1.4ffb0abc7757ep-3,   -0x1.bc0b442b21425p-5, -0x1.07911dd206b84p-7,
                                   0x1.1b01ff03b9683p-7,   0x1.4cac986143336p-10, -0x1.4868f3d57677ap-10,
                                   -0x1.78eed82fab49ap-12, 0x1.e682adbdbb19ap-16 };
static const double erfcx_22[] = { 0x1.46e80e2277954p+0,   -0x1.7bf5ec1700894p-4,  -0x1.5407bebf326bdp-3,
                                   0x1.4ffa1e14ea8f1p-3,   -0x1.bc2b956173164p-5,  -0x1.07423414b17b1p-7,
                                   0x1.1dd2ec816d18fp-7,   0x1.4d4624a83475ep-10,  -0x1.7de51a4d053d1p-10,
                                   -0x1.dc6a282b59c0dp-12, 0x1.b0c6c47dd2975p-13,  0x1.3cca409c790d8p-13,
                                   -0x1.907a8a7829227p-20, -0x1.320685ad64cb3p-15, -0x1.c6e06ceab56c3p-17,
                                   0x1.00f6f65200c86p-18,  0x1.688ff08c07495p-18,  0x1.6b4fc3fc1fbdcp-20,
                                   -0x1.f094143ebdc95p-21, -0x1.8890d7b93531dp-21, -0x1.4d4a32eeb22f3p-25,
                                   0x1.07ad63d621c96p-23,  0x1.3284475c115e3p-25 };

/* erfc of a >= 0 in f64; short: enough digits for an f32 result */
static vir_ref erfc_core(fn f, vir_ref a, bool brief)
{
    a = vir_min(f.k, c(f, brief ? 10.3 : 28), a);
    vir_ref t = vir_div(f.k, sub(f, a, c(f, 2)), add(f, a, c(f, 2)));
    vir_ref p = brief ? poly(f, t, erfcx_10, (int)COUNT(erfcx_10))
                      : poly(f, t, erfcx_22, (int)COUNT(erfcx_22));
    vir_ref h = mul(f, a, a), lost = fma_(f, a, a, vir_neg(f.k, h)); /* a**2 = h + lost */
    vir_ref e = exp_shifted(f, vir_neg(f.k, h), 0);
    e = fma_(f, vir_neg(f.k, lost), e, e);
    return vir_div(f.k, mul(f, p, e), fma_(f, c(f, 2), a, c(f, 1)));
}
static vir_ref erf_(fn f, vir_ref x)
{
    if (!f.d)
        return odd_by_table(f, x, VIR_TABLE_erf, 6, 0x1.f3c654p+1, 0x1.06431ep-2, 3.95);
    vir_ref a = vir_abs(f.k, x), z = mul(f, a, a),
            small = fma_(f, a, poly(f, z, erf_d, (int)COUNT(erf_d)), a);
    vir_ref big = sub(f, c(f, 1), erfc_core(f, a, false));
    return with_sign(f, sel(f, vir_lt(f.k, a, c(f, 0.6)), small, big), x);
}
static vir_ref erfc_(fn f, vir_ref x, bool brief)
{
    vir_ref r = erfc_core(f, vir_abs(f.k, x), brief);
    return sel(f, vir_lt(f.k, x, c(f, 0)), sub(f, c(f, 2), r), r);
}

/* --- powers, and f32 functions that are simplest in f64
 * ---------------------------------------------------------------- */
static vir_ref pow_f32(fn f, vir_ref x32, vir_ref y32)
{
    fn d = as_f64(f);
    vir_ref x = vir_cvt(f.k, VT_f64, x32), y = vir_cvt(f.k, VT_f64, y32), a = vir_abs(f.k, x), one = c(d, 1),
            inf = c(d, INFINITY);
    vir_ref r = exp2_(d, mul(d, y, log2_(d, a)));
    vir_ref whole = vir_eq(f.k, vir_trunc(f.k, y), y), half = mul(d, y, c(d, 0.5));
    vir_ref odd = vir_and(f.k, whole, vir_ne(f.k, vir_trunc(f.k, half), half));
    r = sel(d, odd, vir_copysign(f.k, r, x), r);
    vir_ref neg = vir_and(f.k, vir_lt(f.k, x, c(d, 0)), vir_gt(f.k, x, c(d, -INFINITY)));
    r = sel(d, vir_and(f.k, neg, vir_not(f.k, whole)), c(d, NAN), r);
    vir_ref unit = vir_and(f.k, vir_eq(f.k, a, one), vir_eq(f.k, vir_abs(f.k, y), inf));
    unit = vir_or(f.k, unit, vir_or(f.k, vir_eq(f.k, x, one), vir_eq(f.k, y, c(d, 0))));
    return vir_cvt(f.k, VT_f32, sel(d, unit, one, r));
}

static vir_ref via_f64(fn f, vir_op op, vir_ref x32, vir_ref y32)
{
    fn d = as_f64(f);
    vir_ref x = vir_cvt(f.k, VT_f64, x32), a = vir_abs(f.k, x), z = mul(d, x, x), one = c(d, 1), r, y,
            inf = c(d, INFINITY);
    switch (op) {
    case VIR_asinh:
        r = log_(d, add(d, a, vir_sqrt(f.k, add(d, z, one))));
        r = sel(d, vir_lt(f.k, a, c(d, 1e-3)), fma_(d, mul(d, a, z), c(d, -1.0 / 6), a), r);
        r = with_sign(d, r, x);
        break;
    case VIR_acosh:
        r = log_(d, add(d, x, vir_sqrt(f.k, sub(d, z, one))));
        r = sel(d, vir_lt(f.k, x, one), c(d, NAN), r);
        break;
    case VIR_atanh:
        r = mul(d, c(d, 0.5), log_(d, vir_div(f.k, add(d, one, a), sub(d, one, a))));
        r = sel(d, vir_lt(f.k, a, c(d, 1e-3)), fma_(d, mul(d, a, z), c(d, 1.0 / 3), a), r);
        r = with_sign(d, r, x);
        break;
    case VIR_cbrt: r = with_sign(d, exp2_(d, mul(d, log2_(d, a), c(d, 1.0 / 3))), x); break;
    case VIR_erfc: r = erfc_(d, x, true); break;
    case VIR_atan2: r = atan2_(d, x, vir_cvt(f.k, VT_f64, y32)); break;
    default: /* hypot */
        y = vir_cvt(f.k, VT_f64, y32);
        r = vir_sqrt(f.k, fma_(d, y, y, z));
        r = sel(d, vir_or(f.k, vir_eq(f.k, a, inf), vir_eq(f.k, vir_abs(f.k, y), inf)), inf, r);
        break;
    }
    return vir_cvt(f.k, VT_f32, r);
}

/* --- normal numbers
 * ---------------------------------------------------------------------------------------------- */
/* sin(pi / 2 f) / f and cos(pi / 2 f) by f**2, |f| <= 1/2: those of the eager kernels (ops/simd/vmath.h), in their order */
static const double quarter_sin_f[] = { 0x1.921fb60000000p+0, -0x1.4abbba0000000p-1, 0x1.465e920000000p-4,
                                        -0x1.2d93020000000p-8 };
static const double quarter_sin_d[] = { 0x1.921fb54442d18p+0,  -0x1.4abbce625be41p-1, 0x1.466bc67758700p-4,
                                        -0x1.32d2cce2d535dp-8, 0x1.50782fca388fcp-13, -0x1.e30063a00c5e9p-19,
                                        0x1.e3eed5c67a376p-25 };
static const double quarter_cos_f[] = { 1, -0x1.3bd3cc0000000p+0, 0x1.03c1da0000000p-2, -0x1.55c4ea0000000p-6,
                                        0x1.d99f540000000p-11 };
static const double quarter_cos_d[] = { 1,
                                        -0x1.3bd3cc9be45dep+0,
                                        0x1.03c1f081b5aaap-2,
                                        -0x1.55d3c7e3c8d5cp-6,
                                        0x1.e1f5068303f1fp-11,
                                        -0x1.a6d1ec3d47beep-16,
                                        0x1.f9cc15d4e1ee7p-22,
                                        -0x1.b2586b8a6d927p-28 };

void vmath_normal(vir *k, vir_ref a, vir_ref b, vir_ref out[2])
{
    vir_type it = vir_type_of(k, a);
    fn f = { k, it == VT_i64 ? VT_f64 : VT_f32, it == VT_i64 };
    int bits = f.d ? 53 : 24, top = bits - 2;
    vir_ref drop = vir_imm(k, it, f.d ? 11 : 8), one = vir_imm(k, it, 1);
    vir_ref left = vir_sub(k, vir_imm(k, it, 1LL << bits), vir_shr(k, a, drop)), angle = vir_shr(k, b, drop);
    vir_ref e, ei, u = mul(f, vir_cvt(k, f.t, left), c(f, f.d ? 0x1p-53 : 0x1p-24));
    vir_ref m = log_split(f, u, &e, &ei), r = vir_sqrt(k, mul(f, c(f, -2), log_join(f, e, m)));
    vir_ref q = vir_shr(k, vir_add(k, angle, vir_imm(k, it, 1LL << (top - 1))), vir_imm(k, it, top));
    vir_ref rest = vir_sub(k, angle, vir_shl(k, q, vir_imm(k, it, top)));
    vir_ref x = mul(f, vir_cvt(k, f.t, rest), c(f, f.d ? 0x1p-51 : 0x1p-22)), z = mul(f, x, x);
    vir_ref s = mul(f, x, POLY(f, z, quarter_sin)), co = POLY(f, z, quarter_cos);
    vir_ref odd = vir_ne(k, vir_and(k, q, one), vir_imm(k, it, 0));
    for (int i = 0; i < 2; i++) { /* cosine, sine */
        vir_ref at = i ? q : vir_add(k, q, one), v = i ? sel(f, odd, co, s) : sel(f, odd, s, co);
        vir_ref turn = vir_shl(k, vir_shr(k, at, one), vir_imm(k, it, f.d ? 63 : 31));
        out[i] = mul(f, r, vir_bitcast(k, f.t, vir_xor(k, vir_bitcast(k, it, v), turn)));
    }
}

vir_ref vmath_build(vir *k, vir_op op, vir_ref x, vir_ref y)
{
    fn f = { k, vir_type_of(k, x), vir_type_of(k, x) == VT_f64 };
    switch (op) {
    case VIR_recip: return vir_div(k, c(f, 1), x);
    case VIR_rsqrt: return vir_div(k, c(f, 1), vir_sqrt(k, x));
    case VIR_exp: return exp_shifted(f, x, 0);
    case VIR_expn: return expn(f, x, false);
    case VIR_expns: return expn(f, x, true);
    case VIR_exp2: return exp2_(f, x);
    case VIR_expm1: return expm1_(f, x);
    case VIR_sigmoid: return sigmoid(f, x);
    case VIR_tanh: return tanh_(f, x);
    case VIR_sinh: return sinh_(f, x);
    case VIR_cosh: return cosh_(f, x);
    case VIR_log: return log_(f, x);
    case VIR_log2: return log2_(f, x);
    case VIR_log10: return log10_(f, x);
    case VIR_log1p: return log1p_(f, x);
    case VIR_sin: return sin_cos(f, x, false);
    case VIR_cos: return sin_cos(f, x, true);
    case VIR_tan: return tan_(f, x);
    case VIR_asin: return asin_(f, x);
    case VIR_acos: return acos_(f, x);
    case VIR_atan: return atan_(f, x);
    case VIR_erf: return erf_(f, x);
    case VIR_erfc: return f.d ? erfc_(f, x, false) : via_f64(f, op, x, y);
    case VIR_pow: return f.d ? 0 : pow_f32(f, x, y);
    case VIR_atan2: return f.d ? atan2_(f, x, y) : via_f64(f, op, x, y);
    case VIR_asinh:
    case VIR_acosh:
    case VIR_atanh:
    case VIR_cbrt:
    case VIR_hypot: return f.d ? 0 : via_f64(f, op, x, y);
    default: return 0;
    }
}
