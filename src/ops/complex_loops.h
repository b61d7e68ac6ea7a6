/* complex_loops.h - loops over complex numbers of one width. Included once a width by complex_pw.c, which defines
 * T (the parts), C (the number), F(f) (the function of libm for it) and N(name). */
static inline C N(mk)(T re, T im)
{
    union {
        T p[2];
        C z;
    } u = { { re, im } };
    return u.z;
}
static inline T N(re)(C z) { return ((const T *)&z)[0]; }
static inline T N(im)(C z) { return ((const T *)&z)[1]; }
static inline C N(times)(C a, C b)
{
    T ar = N(re)(a), ai = N(im)(a), br = N(re)(b), bi = N(im)(b);
    return N(mk)(ar * br - ai * bi, ar * bi + ai * br);
}
/* The larger part of the divisor is divided out first, so that no square overflows. */
static inline C N(over)(C x, C y)
{
    T a = N(re)(x), b = N(im)(x), c = N(re)(y), d = N(im)(y);
    if (F(fabs)(c) >= F(fabs)(d)) {
        if (c == 0 && d == 0)
            return N(mk)(a / F(fabs)(c), b / F(fabs)(d));
        T r = d / c, s = 1 / (c + d * r);
        return N(mk)((a + b * r) * s, (b - a * r) * s);
    }
    T r = c / d, s = 1 / (c * r + d);
    return N(mk)((a * r + b) * s, (b * r - a) * s);
}
static inline C N(scale)(C z, T s) { return N(mk)(N(re)(z) * s, N(im)(z) * s); }
static inline C N(conj)(C z) { return N(mk)(N(re)(z), -N(im)(z)); }
static inline C N(par)(const double *p) { return N(mk)((T)p[0], (T)p[1]); }
static inline bool N(is0)(C z) { return N(re)(z) == 0 && N(im)(z) == 0; }
static inline C N(sgn)(C z)
{
    T m = F(hypot)(N(re)(z), N(im)(z));
    return m == 0 ? N(mk)(0, 0) : N(mk)(N(re)(z) / m, N(im)(z) / m);
}
static inline C N(power)(C z, C w)
{
    if (N(is0)(w))
        return N(mk)(1, 0);
    if (N(is0)(z))
        return N(re)(w) > 0 ? N(mk)(0, 0) : F(cpow)(z, w);
    if (N(im)(w) == 0 && N(re)(w) == 2)
        return N(times)(z, z);
    if (N(im)(w) == 0 && N(re)(w) == 3)
        return N(times)(z, N(times)(z, z));
    if (N(im)(w) == 0 && N(re)(w) == (T)0.5)
        return F(csqrt)(z);
    if (N(im)(w) == 0 && N(re)(w) == -1)
        return N(over)(N(mk)(1, 0), z);
    return F(cpow)(z, w);
}
/* log(1 + z) without the rounding of 1 + x where z is small */
static inline C N(log1p)(C z)
{
    T x = N(re)(z), y = N(im)(z);
    if (F(fabs)(x) < (T)0.5 && F(fabs)(y) < (T)0.5)
        return N(mk)((T)0.5 * F(log1p)(x * (2 + x) + y * y), F(atan2)(y, 1 + x));
    return F(clog)(N(mk)(x + 1, y));
}
static inline C N(expm1)(C z)
{
    T x = N(re)(z), y = N(im)(z), h = F(sin)(y / 2), m = F(expm1)(x);
    return N(mk)(m * F(cos)(y) - 2 * h * h, (m + 1) * F(sin)(y));
}
static inline C N(sinc)(C z)
{
    if (N(is0)(z))
        return N(mk)(1, 0);
    C p = N(scale)(z, (T)M_PI);
    return N(over)(F(csin)(p), p);
}
static inline T N(clean)(T v, const double *p) /* nan, inf and -inf as p says */
{
    return isnan(v) ? (T)p[0] : isinf(v) ? (v > 0 ? (T)p[1] : (T)p[2]) : v;
}

#define LOOP(name, OT, ...)                                                                  \
    static void N(name)(int64_t n, void *o_, const void *a_, const void *b_, const void *c_, \
                        const double *p)                                                     \
    {                                                                                        \
        OT *o = o_;                                                                          \
        const C *a = a_, *b = b_, *c = c_;                                                   \
        (void)a, (void)b, (void)c, (void)p;                                                  \
        for (int64_t i = 0; i < n; i++)                                                      \
            o[i] = __VA_ARGS__;                                                              \
    }
LOOP(pw_add, C, N(mk)(N(re)(a[i]) + N(re)(b[i]), N(im)(a[i]) + N(im)(b[i])))
LOOP(pw_sub, C, N(mk)(N(re)(a[i]) - N(re)(b[i]), N(im)(a[i]) - N(im)(b[i])))
LOOP(pw_axpy, C, a[i] + N(times)(N(par)(p), b[i]))
LOOP(pw_rsub, C, b[i] - N(times)(N(par)(p), a[i]))
LOOP(pw_mul, C, N(times)(a[i], b[i]))
LOOP(pw_div, C, N(over)(a[i], b[i]))
LOOP(pw_pow, C, N(power)(a[i], b[i]))
LOOP(pw_pow_number, C, N(power)(a[i], N(par)(p)))
LOOP(pw_number_pow, C, N(power)(N(par)(p), a[i]))
LOOP(pw_neg, C, N(mk)(-N(re)(a[i]), -N(im)(a[i])))
LOOP(pw_conj, C, N(conj)(a[i]))
LOOP(pw_square, C, N(times)(a[i], a[i]))
LOOP(pw_reciprocal, C, N(over)(N(mk)(1, 0), a[i]))
LOOP(pw_sgn, C, N(sgn)(a[i]))
LOOP(pw_exp, C, F(cexp)(a[i]))
LOOP(pw_exp2, C, F(cexp)(N(scale)(a[i], (T)M_LN2)))
LOOP(pw_expm1, C, N(expm1)(a[i]))
LOOP(pw_log, C, F(clog)(a[i]))
LOOP(pw_log2, C, N(scale)(F(clog)(a[i]), (T)(1 / M_LN2)))
LOOP(pw_log10, C, N(scale)(F(clog)(a[i]), (T)(1 / M_LN10)))
LOOP(pw_log1p, C, N(log1p)(a[i]))
LOOP(pw_sqrt, C, F(csqrt)(a[i]))
LOOP(pw_rsqrt, C, N(over)(N(mk)(1, 0), F(csqrt)(a[i])))
LOOP(pw_sin, C, F(csin)(a[i]))
LOOP(pw_cos, C, F(ccos)(a[i]))
LOOP(pw_tan, C, F(ctan)(a[i]))
LOOP(pw_asin, C, F(casin)(a[i]))
LOOP(pw_acos, C, F(cacos)(a[i]))
LOOP(pw_atan, C, F(catan)(a[i]))
LOOP(pw_sinh, C, F(csinh)(a[i]))
LOOP(pw_cosh, C, F(ccosh)(a[i]))
LOOP(pw_tanh, C, F(ctanh)(a[i]))
LOOP(pw_asinh, C, F(casinh)(a[i]))
LOOP(pw_acosh, C, F(cacosh)(a[i]))
LOOP(pw_atanh, C, F(catanh)(a[i]))
LOOP(pw_sinc, C, N(sinc)(a[i]))
LOOP(pw_sigmoid, C, N(over)(N(mk)(1, 0), N(mk)(1, 0) + F(cexp)(N(mk)(-N(re)(a[i]), -N(im)(a[i])))))
LOOP(pw_nan_to_num, C, N(mk)(N(clean)(N(re)(a[i]), p), N(clean)(N(im)(a[i]), p)))
LOOP(pw_tanh_b, C, N(times)(a[i], N(conj)(N(mk)(1, 0) - N(times)(b[i], b[i]))))
LOOP(pw_sigmoid_b, C, N(times)(a[i], N(conj)(N(times)(b[i], N(mk)(1, 0) - b[i]))))
LOOP(pw_lerp, C, a[i] + N(times)(c[i], b[i] - a[i]))
LOOP(pw_lerp_number, C, a[i] + N(times)(N(par)(p), b[i] - a[i]))
LOOP(pw_addcmul, C, a[i] + N(times)(N(par)(p), N(times)(b[i], c[i])))
LOOP(pw_addcdiv, C, a[i] + N(over)(N(times)(N(par)(p), b[i]), c[i]))
LOOP(pw_abs, T, F(hypot)(N(re)(a[i]), N(im)(a[i])))
LOOP(pw_isnan, uint8_t, isnan(N(re)(a[i])) || isnan(N(im)(a[i])))
LOOP(pw_isinf, uint8_t, isinf(N(re)(a[i])) || isinf(N(im)(a[i])))
LOOP(pw_isfinite, uint8_t, isfinite(N(re)(a[i])) && isfinite(N(im)(a[i])))
LOOP(pw_eq, uint8_t, N(re)(a[i]) == N(re)(b[i]) && N(im)(a[i]) == N(im)(b[i]))
LOOP(pw_ne, uint8_t, N(re)(a[i]) != N(re)(b[i]) || N(im)(a[i]) != N(im)(b[i]))
LOOP(pw_not, uint8_t, N(is0)(a[i]))
LOOP(pw_and, uint8_t, !N(is0)(a[i]) && !N(is0)(b[i]))
LOOP(pw_or, uint8_t, !N(is0)(a[i]) || !N(is0)(b[i]))
LOOP(pw_xor, uint8_t, N(is0)(a[i]) != N(is0)(b[i]))
LOOP(pw_where, C, ((const uint8_t *)a_)[i] ? b[i] : c[i])
#undef LOOP
#undef T
#undef C
#undef F
#undef N
