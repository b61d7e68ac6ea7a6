/* vjp_pointwise.c - derivatives of pointwise operators.
 * A rule may return a gradient in the broadcast shape: the tape sums it to the argument's own. */
#include "grad/vjp.h"
#include <math.h>

const char vjp_file_pointwise;

/* A number whose value is known: a symbolic one has another in the next call. */
static bool is_fixed(const tp_val *v)
{
    return val_is_number(v) && !(v->kind == VAL_int && sym_is_expr(v->i));
}

/* A symbolic number as a tensor beside t; anything else as it is. */
static tp_val as_value(vjp *g, const tp_val *v, tp_val t)
{
    return val_is_number(v) && !is_fixed(v) ? V(full_like, t, *v) : *v;
}

static tp_val scaled(vjp *g, tp_val t, const tp_val *by) /* t * by, or t itself for 1 */
{
    return is_fixed(by) && val_is(by, 1) ? t : MUL(t, *by);
}

/* y = f(x), dx = dy * f'(x). */
#define UNARY(name, saves, slope) \
    VJP(name, saves)              \
    {                             \
        DXV(0, slope);            \
        return true;              \
    }

/* ---- arithmetic ---- */
VJP(add, "")
{
    DXV(0, DYV);
    DXV(1, scaled(g, DYV, ARG(2)));
    return true;
}

VJP(sub, "")
{
    DXV(0, DYV);
    DXV(1, NEG(scaled(g, DYV, ARG(2))));
    return true;
}

VJP(rsub, "")
{
    DXV(0, NEG(scaled(g, DYV, ARG(2))));
    DXV(1, DYV);
    return true;
}

VJP(mul, "1?0 0?1")
{
    DXV(0, MUL(DYV, Y));
    DXV(1, MUL(DYV, X));
    return true;
}

VJP(div, "1 0?1")
{
    DXV(0, DIV(DYV, Y));
    if (NEED(1)) /* -dy * (x / y) / y */
        DXV(1, MUL(NEG(DYV), DIV(DIV(X, Y), Y)));
    return true;
}

VJP(div_mode, "1 0?1")
{
    if (ARG(2)->kind == VAL_none)
        return vjp_div(g);
    if (NEED(0))
        DXV(0, vh_zeros(B, INM(0)));
    if (NEED(1))
        DXV(1, vh_zeros(B, INM(1)));
    return true;
}

VJP(zero, "") /* steps and roundings: the slope is 0 wherever it exists */
{
    for (int i = 0; i < g->row->schema.nparam; i++)
        if (NEED(i) && INM(i))
            DXV(i, vh_zeros(B, INM(i)));
    return true;
}

VJP(constant, "~r ~r1") { return true; } /* only shapes and types of the arguments matter */

VJP(fmod, "0?1 1?1")
{
    DXV(0, DYV);
    if (NEED(1))
        DXV(1, MUL(NEG(DYV), V(div_Tensor_mode, X, Y, vS("trunc"))));
    return true;
}

VJP(remainder, "0?1 1?1")
{
    DXV(0, DYV);
    if (NEED(1))
        DXV(1, MUL(NEG(DYV), V(div_Tensor_mode, X, Y, vS("floor"))));
    return true;
}

VJP(pow_scalar, "0")
{
    if (ARG(1)->kind == VAL_complex) {
        double less[2] = { ARG(1)->floats[0] - 1, ARG(1)->floats[1] };
        DXV(0, MUL(DYV, MUL(V(pow_Tensor_Scalar, X, vC(less)), *ARG(1))));
        return true;
    }
    double e = val_as_f(ARG(1));
    if (e == 0)
        DXV(0, vh_zeros(B, INM(0)));
    else if (e == 1)
        DXV(0, DYV);
    else if (e == 2)
        DXV(0, MUL(DYV, MUL(X, vI(2))));
    else {
        tp_val less = ARG(1)->kind == VAL_int ? vI(ARG(1)->i - 1) : vF(e - 1);
        DXV(0, MUL(DYV, MUL(V(pow_Tensor_Scalar, X, less), *ARG(1))));
    }
    return true;
}

VJP(pow, "0 1 r?1")
{
    if (val_is_number(ARG(1)))
        return vjp_pow_scalar(g);
    if (NEED(0)) {
        tp_val p = MUL(Y, V(pow_Tensor_Tensor, X, SUB(Y, vI(1))));
        DXV(0, WHERE(EQ(Y, vI(0)), vI(0), MUL(DYV, p)));
    }
    if (NEED(1)) {
        bool z = dtype_is_complex((dtype)OUTM(0)->dt);
        if (z) {
            tp_val x = val_is_number(ARG(0)) ? V(full_like, R, *ARG(0)) : X;
            tp_val re = dtype_is_complex((dtype)INM(1)->dt) ? V(real, Y) : Y;
            tp_val zero = V(logical_and, EQ(x, vI(0)), GE(re, vI(0)));
            tp_val lx = V(log, dtype_is_complex((dtype)x.t->dt) ? x : V(to_dtype, x, vDT(OUTM(0)->dt)));
            DXV(1, MUL(DYV, WHERE(zero, vI(0), MUL(R, lx))));
        } else if (is_fixed(ARG(0))) {
            double base = val_as_f(ARG(0));
            tp_val d = MUL(DYV, MUL(R, vF(log(base))));
            DXV(1, base == 0 ? WHERE(GE(Y, vI(0)), vI(0), d) : d);
        } else {
            tp_val x = as_value(g, ARG(0), Y), zero = V(logical_and, EQ(x, vI(0)), GE(Y, vI(0)));
            DXV(1, MUL(DYV, WHERE(zero, vI(0), MUL(R, V(log, x)))));
        }
    }
    return true;
}

UNARY(neg, "", NEG(DYV))
UNARY(pass, "", DYV)
UNARY(square, "0", MUL(DYV, MUL(X, vI(2))))
UNARY(abs, "0", MUL(DYV, V(sgn, X)))

/* ---- exponentials, logarithms, roots ---- */
UNARY(exp, "r", MUL(DYV, R))
UNARY(exp2, "r", MUL(DYV, MUL(R, vF(M_LN2))))
UNARY(expm1, "r", MUL(DYV, ADD(R, vI(1))))
UNARY(log, "0", DIV(DYV, X))
UNARY(log2, "0", DIV(DYV, MUL(X, vF(M_LN2))))
UNARY(log10, "0", DIV(DYV, MUL(X, vF(M_LN10))))
UNARY(log1p, "0", DIV(DYV, ADD(X, vI(1))))
UNARY(sqrt, "r", DIV(DYV, MUL(R, vI(2))))
UNARY(rsqrt, "r", MUL(MUL(DYV, vF(-0.5)), MUL(R, SQR(R))))
UNARY(reciprocal, "r", MUL(NEG(DYV), SQR(R)))

/* ---- trigonometry ---- */
UNARY(sin, "0", MUL(DYV, V(cos, X)))
UNARY(cos, "0", MUL(DYV, NEG(V(sin, X))))
UNARY(tan, "r", MUL(DYV, ADD(SQR(R), vI(1))))
UNARY(asin, "0", MUL(DYV, V(rsqrt, V(rsub_Tensor, SQR(X), vI(1)))))
UNARY(acos, "0", MUL(NEG(DYV), V(rsqrt, V(rsub_Tensor, SQR(X), vI(1)))))
UNARY(atan, "0", DIV(DYV, ADD(SQR(X), vI(1))))
UNARY(sinh, "0", MUL(DYV, V(cosh, X)))
UNARY(cosh, "0", MUL(DYV, V(sinh, X)))
UNARY(tanh, "r", PLAIN_SLOPE ? MUL(DYV, V(rsub_Tensor, SQR(R), vI(1))) : V(tanh_backward, DYV, R))
UNARY(asinh, "0", MUL(DYV, V(rsqrt, ADD(SQR(X), vI(1)))))
UNARY(acosh, "0", MUL(DYV, V(rsqrt, SUB(SQR(X), vI(1)))))
UNARY(atanh, "0", DIV(DYV, V(rsub_Tensor, SQR(X), vI(1))))
UNARY(deg2rad, "", MUL(DYV, vF(M_PI / 180)))
UNARY(rad2deg, "", MUL(DYV, vF(180 / M_PI)))

VJP(sinc, "0")
{
    tp_val px = MUL(X, vF(M_PI));
    tp_val under = MUL(px, X); /* 0 for small numbers, too */
    tp_val d = DIV(SUB(MUL(V(cos, px), px), V(sin, px)), under);
    DXV(0, MUL(DYV, WHERE(EQ(under, vI(0)), vI(0), d)));
    return true;
}

/* ---- special functions ---- */
UNARY(erf, "0", MUL(DYV, MUL(V(exp, NEG(SQR(X))), vF(M_2_SQRTPI))))
UNARY(erfc, "0", MUL(DYV, MUL(V(exp, NEG(SQR(X))), vF(-M_2_SQRTPI))))
UNARY(erfinv, "r", MUL(DYV, MUL(V(exp, SQR(R)), vF(1 / M_2_SQRTPI))))
UNARY(erfcx, "0 r", MUL(DYV, SUB(MUL(MUL(X, R), vI(2)), vF(M_2_SQRTPI))))
UNARY(ndtri, "r", MUL(DYV, MUL(V(exp, MUL(SQR(R), vF(0.5))), vF(sqrt(2 * M_PI)))))
UNARY(ndtr, "0", MUL(DYV, MUL(V(exp, MUL(SQR(X), vF(-0.5))), vF(1 / sqrt(2 * M_PI)))))
UNARY(log_ndtr, "0", MUL(DIV(DYV, V(special_erfcx, MUL(X, vF(-M_SQRT1_2)))), vF(sqrt(M_2_PI))))
UNARY(entr, "0", MUL(NEG(DYV), ADD(V(log, X), vI(1))))
UNARY(lgamma, "0", MUL(DYV, V(digamma, X)))
UNARY(digamma, "0", MUL(DYV, V(polygamma, vI(1), X)))
UNARY(i0, "0", MUL(DYV, V(special_i1, X)))
UNARY(i0e, "0 r", MUL(DYV, SUB(V(special_i1e, X), MUL(V(sgn, X), R))))

VJP(i1, "0 r")
{
    tp_val zero = EQ(X, vI(0)), safe = WHERE(zero, vI(1), X);
    DXV(0, MUL(DYV, WHERE(zero, vF(0.5), SUB(V(i0, X), DIV(R, safe)))));
    return true;
}

VJP(i1e, "0 r")
{
    tp_val zero = EQ(X, vI(0)), safe = WHERE(zero, vI(1), X);
    tp_val d = SUB(V(special_i0e, X), MUL(R, ADD(V(sgn, X), V(reciprocal, safe))));
    DXV(0, MUL(DYV, WHERE(zero, vF(0.5), d)));
    return true;
}

VJP(polygamma, "1")
{
    DXV(1, MUL(DYV, V(polygamma, vI(ARG(0)->i + 1), Y)));
    return true;
}

VJP(zeta, "0 1")
{
    if (NEED(0))
        return err_set(B->err, ERR_runtime,
                       "the derivative for 'special_zeta' with respect to its first "
                       "argument is not implemented");
    tp_val next = val_is_number(ARG(0)) ? vF(val_as_f(ARG(0)) + 1) : ADD(X, vI(1));
    tp_val minus = val_is_number(ARG(0)) ? vF(-val_as_f(ARG(0))) : NEG(X);
    DXV(1, MUL(MUL(DYV, V(special_zeta, next, Y)), minus));
    return true;
}

VJP(logit, "0")
{
    if (!PLAIN)
        DXV(0, V(logit_backward, DYV, X, Y));
    else {
        tp_val d = DIV(DYV, MUL(X, V(rsub_Tensor, X, vI(1))));
        if (ARG(1)->kind != VAL_none) {
            tp_val in = V(logical_and, GE(X, Y), LE(X, vF(1 - val_as_f(ARG(1)))));
            d = WHERE(in, d, vI(0));
        }
        DXV(0, d);
    }
    return true;
}

VJP(nan_to_num, "0")
{
    DXV(0, MUL(DYV, V(isfinite, X)));
    return true;
}

VJP(frexp, "r1")
{
    DXV(0, DIV(DYV, V(exp2, V(to_dtype, vT(OUT(1)), vDT(INM(0)->dt)))));
    return true;
}

/* ---- two inputs ---- */
/* Where x and y tie, the gradient is shared. */
static tp_val half_at_ties(vjp *g) { return WHERE(EQ(X, Y), MUL(DYV, vF(0.5)), DYV); }

VJP(maximum, "0 1")
{
    tp_val d = half_at_ties(g);
    DXV(0, WHERE(LT(X, Y), vI(0), d));
    DXV(1, WHERE(GT(X, Y), vI(0), d));
    return true;
}

VJP(minimum, "0 1")
{
    tp_val d = half_at_ties(g);
    DXV(0, WHERE(GT(X, Y), vI(0), d));
    DXV(1, WHERE(LT(X, Y), vI(0), d));
    return true;
}

VJP(fmax, "0 1")
{
    tp_val first = V(logical_or, GE(X, Y), V(isnan, Y));
    DXV(0, WHERE(first, DYV, vI(0)));
    DXV(1, WHERE(first, vI(0), DYV));
    return true;
}

VJP(fmin, "0 1")
{
    tp_val first = V(logical_or, LE(X, Y), V(isnan, Y));
    DXV(0, WHERE(first, DYV, vI(0)));
    DXV(1, WHERE(first, vI(0), DYV));
    return true;
}

VJP(atan2, "0 1")
{
    tp_val d = DIV(DYV, ADD(SQR(X), SQR(Y)));
    DXV(0, MUL(d, Y));
    DXV(1, MUL(d, NEG(X)));
    return true;
}

VJP(hypot, "0 1 r")
{
    DXV(0, MUL(DYV, DIV(X, R)));
    DXV(1, MUL(DYV, DIV(Y, R)));
    return true;
}

VJP(copysign, "0 r")
{
    DXV(0, MUL(DYV, WHERE(EQ(X, vI(0)), vI(0), DIV(R, X))));
    if (NEED(1))
        DXV(1, vh_zeros(B, INM(1)));
    return true;
}

VJP(logaddexp, "0 1")
{
    DXV(0, MUL(DYV, V(sigmoid, SUB(X, Y))));
    DXV(1, MUL(DYV, V(sigmoid, SUB(Y, X))));
    return true;
}

VJP(logaddexp2, "0 1")
{
    DXV(0, MUL(DYV, V(sigmoid, MUL(SUB(X, Y), vF(M_LN2)))));
    DXV(1, MUL(DYV, V(sigmoid, MUL(SUB(Y, X), vF(M_LN2)))));
    return true;
}

VJP(xlogy, "0 1")
{
    if (NEED(0)) {
        bool fixed = is_fixed(ARG(1));
        tp_val y = as_value(g, ARG(1), X), l = fixed ? vF(log(val_as_f(ARG(1)))) : V(log, y);
        tp_val le = fixed ? vB(val_as_f(ARG(1)) <= 0) : LE(y, vI(0));
        if (le.kind == VAL_bool)
            DXV(0, le.b ? WHERE(EQ(X, vI(0)), vI(0), MUL(DYV, l)) : MUL(DYV, l));
        else
            DXV(0, WHERE(V(logical_and, EQ(X, vI(0)), le), vI(0), MUL(DYV, l)));
    }
    if (NEED(1))
        DXV(1, MUL(DYV, DIV(X, Y)));
    return true;
}

VJP(xlog1py, "0 1")
{
    if (NEED(0)) {
        tp_val y = as_value(g, ARG(1), X);
        if (is_fixed(ARG(1)))
            DXV(0, MUL(DYV, vF(log1p(val_as_f(ARG(1))))));
        else
            DXV(0, WHERE(V(logical_and, EQ(X, vI(0)), LE(y, vI(-1))), vI(0), MUL(DYV, V(log1p, y))));
    }
    if (NEED(1))
        DXV(1, MUL(DYV, DIV(X, ADD(Y, vI(1)))));
    return true;
}

/* ---- bounds and selection ---- */
VJP(clamp, "0")
{
    tp_val lo = *ARG(1), hi = *ARG(2), in;
    if (lo.kind == VAL_none && hi.kind == VAL_none)
        in = vNone;
    else if (lo.kind == VAL_none)
        in = LE(X, hi);
    else if (hi.kind == VAL_none)
        in = GE(X, lo);
    else
        in = V(logical_and, GE(X, lo), LE(X, hi));
    DXV(0, in.kind == VAL_none ? DYV : WHERE(in, DYV, vI(0)));
    return true;
}

VJP(clamp_tensor, "0 1 2")
{
    tp_val lo = *ARG(1), hi = *ARG(2);
    if (lo.kind != VAL_none && hi.kind != VAL_none) {
        DXV(0, WHERE(V(logical_and, GE(X, lo), LE(X, hi)), DYV, vI(0)));
        if (NEED(1))
            DXV(1, WHERE(V(logical_and, LT(lo, hi), LT(X, lo)), DYV, vI(0)));
        if (NEED(2))
            DXV(2, WHERE(V(logical_or, LT(hi, lo), GT(X, hi)), DYV, vI(0)));
    } else if (lo.kind != VAL_none) {
        DXV(0, WHERE(GE(X, lo), DYV, vI(0)));
        DXV(1, WHERE(LT(X, lo), DYV, vI(0)));
    } else if (hi.kind != VAL_none) {
        DXV(0, WHERE(LE(X, hi), DYV, vI(0)));
        DXV(2, WHERE(GT(X, hi), DYV, vI(0)));
    } else
        DXV(0, DYV);
    return true;
}

VJP(clamp_min, "0 1")
{
    DXV(0, WHERE(GE(X, Y), DYV, vI(0)));
    if (NEED(1))
        DXV(1, WHERE(LT(X, Y), DYV, vI(0)));
    return true;
}

VJP(clamp_max, "0 1")
{
    DXV(0, WHERE(LE(X, Y), DYV, vI(0)));
    if (NEED(1))
        DXV(1, WHERE(GT(X, Y), DYV, vI(0)));
    return true;
}

VJP(where, "0")
{
    DXV(1, WHERE(X, DYV, vI(0)));
    DXV(2, WHERE(X, vI(0), DYV));
    return true;
}

VJP(masked_fill, "1")
{
    DXV(0, WHERE(Y, vI(0), DYV));
    if (NEED(2))
        DXV(2, WHERE(Y, DYV, vI(0)));
    return true;
}

/* ---- fused arithmetic ---- */
VJP(lerp_scalar, "")
{
    double w[2], rest[2];
    val_as_c(ARG(2), w);
    rest[0] = 1 - w[0];
    rest[1] = -w[1];
    bool z = w[1] != 0;
    DXV(0, MUL(DYV, z ? vC(rest) : vF(rest[0])));
    DXV(1, MUL(DYV, z ? vC(w) : vF(w[0])));
    return true;
}

VJP(lerp, "2 0?2 1?2")
{
    DXV(0, MUL(DYV, V(rsub_Tensor, *ARG(2), vI(1))));
    DXV(1, MUL(DYV, *ARG(2)));
    if (NEED(2))
        DXV(2, MUL(DYV, SUB(Y, X)));
    return true;
}

VJP(addcmul, "2?1 1?2")
{
    DXV(0, DYV);
    if (NEED(1))
        DXV(1, MUL(DYV, scaled(g, *ARG(2), ARG(3))));
    if (NEED(2))
        DXV(2, MUL(DYV, scaled(g, *ARG(1), ARG(3))));
    return true;
}

VJP(addcdiv, "2 1?2")
{
    DXV(0, DYV);
    if (NEED(1))
        DXV(1, scaled(g, DIV(DYV, *ARG(2)), ARG(3)));
    if (NEED(2))
        DXV(2, scaled(g, MUL(NEG(DYV), DIV(*ARG(1), SQR(*ARG(2)))), ARG(3)));
    return true;
}

/* ---- activations ---- */
#define SIGMOID(a)      V(sigmoid, a)
#define ONE_MINUS(a)    V(rsub_Tensor, a, vI(1))
#define BETWEEN(lo, hi) V(logical_and, GT(X, lo), LT(X, hi))

UNARY(sigmoid, "r", PLAIN_SLOPE ? MUL(DYV, MUL(R, ONE_MINUS(R))) : V(sigmoid_backward, DYV, R))
UNARY(relu, "r", V(threshold_backward, DYV, R, vI(0)))
UNARY(threshold, "0", V(threshold_backward, DYV, X, Y))
UNARY(leaky_relu, "0", V(leaky_relu_backward, DYV, X, Y, vB(false)))
UNARY(silu, "0",
      PLAIN ? MUL(DYV, MUL(SIGMOID(X), ADD(MUL(X, ONE_MINUS(SIGMOID(X))), vI(1)))) : V(silu_backward, DYV, X))
UNARY(log_sigmoid, "0", PLAIN ? MUL(DYV, SIGMOID(NEG(X))) : V(log_sigmoid_backward, DYV, X))
UNARY(hardtanh, "0", V(hardtanh_backward, DYV, X, *ARG(1), *ARG(2)))
UNARY(hardsigmoid, "0", V(hardsigmoid_backward, DYV, X))
UNARY(hardswish, "0",
      PLAIN
          ? WHERE(GE(X, vI(3)), DYV, WHERE(LE(X, vI(-3)), vI(0), MUL(DYV, ADD(MUL(X, vF(1.0 / 3)), vF(0.5)))))
          : V(hardswish_backward, DYV, X))
UNARY(hardshrink, "0", V(hardshrink_backward, DYV, X, Y))
UNARY(softshrink, "0", V(softshrink_backward, DYV, X, Y))

/* Slopes of pieces of lines: linear in dy, constant in x. The gradient of x is zeros, not missing. */
#define LINEAR_IN_DY(name, again)        \
    VJP(name, "1")                       \
    {                                    \
        DXV(0, again);                   \
        if (NEED(1))                     \
            DXV(1, vh_zeros(B, INM(1))); \
        return true;                     \
    }
LINEAR_IN_DY(threshold_backward, V(threshold_backward, DYV, Y, *ARG(2)))
LINEAR_IN_DY(leaky_relu_backward, V(leaky_relu_backward, DYV, Y, *ARG(2), *ARG(3)))
LINEAR_IN_DY(hardtanh_backward, V(hardtanh_backward, DYV, Y, *ARG(2), *ARG(3)))
LINEAR_IN_DY(hardsigmoid_backward, V(hardsigmoid_backward, DYV, Y))
LINEAR_IN_DY(hardshrink_backward, V(hardshrink_backward, DYV, Y, *ARG(2)))
LINEAR_IN_DY(softshrink_backward, V(softshrink_backward, DYV, Y, *ARG(2)))

VJP(elu, "0")
{
    tp_val alpha = *ARG(1), scale = *ARG(2), in = *ARG(3);
    if (!PLAIN)
        DXV(0, V(elu_backward, DYV, alpha, scale, in, vB(false), X));
    else {
        double k = val_as_f(&alpha) * val_as_f(&scale) * val_as_f(&in);
        tp_val below = NEG(V(relu, NEG(X))); /* what is above must not overflow */
        tp_val low = MUL(DYV, MUL(V(exp, MUL(below, in)), vF(k)));
        tp_val at0 = WHERE(EQ(X, vI(0)), MUL(DYV, vF(k)), low); /* where the slope breaks it is constant */
        DXV(0, WHERE(GT(X, vI(0)), MUL(DYV, scale), at0));
    }
    return true;
}

VJP(gelu, "0")
{
    if (!PLAIN)
        DXV(0, V(gelu_backward, DYV, X, Y));
    else if (!strcmp(ARG(1)->s, "tanh")) {
        double c = sqrt(M_2_PI);
        tp_val in = MUL(ADD(X, MUL(MUL(X, SQR(X)), vF(0.044715))), vF(c)), t = V(tanh, in);
        tp_val inner = MUL(ADD(MUL(SQR(X), vF(3 * 0.044715)), vI(1)), vF(c));
        tp_val d = ADD(MUL(ADD(t, vI(1)), vF(0.5)), MUL(MUL(MUL(X, vF(0.5)), ONE_MINUS(SQR(t))), inner));
        DXV(0, MUL(DYV, d));
    } else {
        tp_val cdf = MUL(ADD(V(erf, MUL(X, vF(M_SQRT1_2))), vI(1)), vF(0.5));
        tp_val pdf = MUL(V(exp, MUL(SQR(X), vF(-0.5))), vF(1 / sqrt(2 * M_PI)));
        DXV(0, MUL(DYV, ADD(cdf, MUL(X, pdf))));
    }
    return true;
}

VJP(mish, "0")
{
    if (!PLAIN)
        DXV(0, V(mish_backward, DYV, X));
    else {
        tp_val t = V(tanh, V(softplus, X));
        DXV(0, MUL(DYV, ADD(t, MUL(MUL(X, SIGMOID(X)), ONE_MINUS(SQR(t))))));
    }
    return true;
}

VJP(softplus, "0")
{
    if (!PLAIN)
        DXV(0, V(softplus_backward, DYV, X, *ARG(1), *ARG(2)));
    else {
        tp_val z = MUL(X, *ARG(1));
        DXV(0, WHERE(GT(z, *ARG(2)), DYV, MUL(DYV, SIGMOID(z))));
    }
    return true;
}

/* ---- ranges between tensors ---- */
/* (start, end, steps, ...): element i is start + (end - start) i / (steps - 1). */
VJP(linspace, "")
{
    tp_val steps = *ARG(2), dt = vDT(OUTM(0)->dt);
    if (INM(0) && NEED(0))
        DXV(0, V(dot, DYV, V(linspace, vI(1), vI(0), steps, dt)));
    if (INM(1) && NEED(1))
        DXV(1, V(dot, DYV, V(linspace, vI(0), vI(1), steps, dt)));
    return true;
}

VJP(logspace, "r")
{
    tp_val steps = *ARG(2), dt = vDT(OUTM(0)->dt);
    tp_val d = MUL(MUL(DYV, R), vF(log(val_as_f(ARG(3)))));
    if (INM(0) && NEED(0))
        DXV(0, V(dot, d, V(linspace, vI(1), vI(0), steps, dt)));
    if (INM(1) && NEED(1))
        DXV(1, V(dot, d, V(linspace, vI(0), vI(1), steps, dt)));
    return true;
}

VJP(nextafter, "0 1")
{
    tp_val same = EQ(X, Y);
    DXV(0, WHERE(same, vI(0), DYV));
    DXV(1, WHERE(same, DYV, vI(0)));
    return true;
}

/* Both are known only by their second argument: dP/dx = exp(-x) x^(a-1) / Gamma(a), dQ/dx = -dP/dx. */
static bool igamma_grad(vjp *g, bool upper)
{
    if (NEED(0))
        return err_set(B->err, ERR_runtime, "the derivative for '%s: input' is not implemented",
                       g->row->name);
    tp_val d = MUL(DYV, V(exp, SUB(SUB(MUL(SUB(X, vI(1)), V(log, Y)), Y), V(lgamma, X))));
    DXV(1, upper ? NEG(d) : d);
    return true;
}
VJP(igamma, "0 1") { return igamma_grad(g, false); }
VJP(igammac, "0 1") { return igamma_grad(g, true); }
