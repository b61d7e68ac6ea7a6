/* columns_truth.c - what pointwise operators and reductions mean, by the C library in float64: a column that shares no code with
 * eager kernels, lowerings and generated code, so that a fault which all of them share is seen. */
#include "debug/truth.h"
#include <math.h>

/* x: the tensor operands in order, at one element; a: all arguments */
typedef double truth_fn(const double *x, const tp_val *a);
#define TRUTH(name) static double truth_##name(const double *x, const tp_val *a)
#define ONE(name, formula) \
    TRUTH(name) { return formula; }
#define NUM(i) num(&a[i])

static double num(const tp_val *v) { return val_is_number(v) || v->kind == VAL_bool ? val_as_f(v) : NAN; }
static double or_else(const tp_val *v, double none) { return v->kind == VAL_none ? none : num(v); }
static double sigm(double v) { return 1 / (1 + exp(-v)); }
static double softp(double v) { return v > 0 ? v + log1p(exp(-v)) : log1p(exp(v)); }
static double keep_nan(double v, double r) { return isnan(v) ? v : r; }

ONE(exp, exp(x[0]))
ONE(exp2, exp2(x[0]))
ONE(expm1, expm1(x[0]))
ONE(log, log(x[0]))
ONE(log2, log2(x[0]))
ONE(log10, log10(x[0]))
ONE(log1p, log1p(x[0]))
ONE(sqrt, sqrt(x[0]))
ONE(rsqrt, 1 / sqrt(x[0]))
ONE(reciprocal, 1 / x[0])
ONE(sin, sin(x[0]))
ONE(cos, cos(x[0]))
ONE(tan, tan(x[0]))
ONE(asin, asin(x[0]))
ONE(acos, acos(x[0]))
ONE(atan, atan(x[0]))
ONE(sinh, sinh(x[0]))
ONE(cosh, cosh(x[0]))
ONE(tanh, tanh(x[0]))
ONE(asinh, asinh(x[0]))
ONE(acosh, acosh(x[0]))
ONE(atanh, atanh(x[0]))
ONE(erf, erf(x[0]))
ONE(erfc, erfc(x[0]))
ONE(lgamma, lgamma(x[0]))
ONE(sigmoid, sigm(x[0]))
ONE(sinc, x[0] == 0 ? 1 : sin(M_PI * x[0]) / (M_PI * x[0]))
ONE(ndtr, 0.5 * erfc(-x[0] * M_SQRT1_2))
ONE(entr, x[0] > 0 ? -x[0] * log(x[0]) : x[0] == 0 ? 0 : isnan(x[0]) ? x[0] : -INFINITY)
ONE(deg2rad, x[0] * (M_PI / 180))
ONE(rad2deg, x[0] * (180 / M_PI))
TRUTH(logit)
{
    double e = or_else(&a[1], -1), v = e < 0 ? x[0] : x[0] < e ? e : x[0] > 1 - e ? 1 - e : x[0];
    return log(v / (1 - v));
}
ONE(abs, fabs(x[0]))
ONE(sign, (double)(x[0] > 0) - (double)(x[0] < 0)) /* of a NaN: 0 */
ONE(floor, floor(x[0]))
ONE(ceil, ceil(x[0]))
ONE(trunc, trunc(x[0]))
ONE(frac, x[0] - trunc(x[0]))
ONE(round, rint(x[0]))
ONE(square, x[0] * x[0])
ONE(neg, -x[0])
ONE(add, x[0] + NUM(2) * x[1])
ONE(sub, x[0] - NUM(2) * x[1])
ONE(mul, x[0] * x[1])
ONE(div, x[0] / x[1])
ONE(pow, pow(x[0], x[1]))
ONE(pow_scalar, pow(x[0], NUM(1)))
ONE(maximum, isnan(x[0]) ? x[0] : isnan(x[1]) ? x[1] : fmax(x[0], x[1]))
ONE(minimum, isnan(x[0]) ? x[0] : isnan(x[1]) ? x[1] : fmin(x[0], x[1]))
ONE(fmax, fmax(x[0], x[1]))
ONE(fmin, fmin(x[0], x[1]))
ONE(atan2, atan2(x[0], x[1]))
ONE(hypot, hypot(x[0], x[1]))
ONE(copysign, copysign(x[0], x[1]))
ONE(logaddexp, x[0] == x[1] ? x[0] + M_LN2 : fmax(x[0], x[1]) + log1p(exp(-fabs(x[0] - x[1]))))
ONE(logaddexp2, x[0] == x[1] ? x[0] + 1 : fmax(x[0], x[1]) + log1p(exp2(-fabs(x[0] - x[1]))) / M_LN2)
ONE(xlogy, x[0] == 0 && !isnan(x[1]) ? 0 : x[0] * log(x[1]))
ONE(xlog1py, x[0] == 0 && !isnan(x[1]) ? 0 : x[0] * log1p(x[1]))
TRUTH(clamp)
{
    double lo = or_else(&a[1], -INFINITY), hi = or_else(&a[2], INFINITY), v = x[0] < lo ? lo : x[0];
    return v > hi ? hi : v;
}
ONE(clamp_min, keep_nan(x[0], fmax(x[0], NUM(1))))
ONE(clamp_max, keep_nan(x[0], fmin(x[0], NUM(1))))
ONE(lerp_scalar, x[0] + NUM(2) * (x[1] - x[0]))
ONE(addcmul, x[0] + NUM(3) * x[1] * x[2])
ONE(addcdiv, x[0] + NUM(3) * x[1] / x[2])
ONE(rsub, x[1] - NUM(2) * x[0])
ONE(lerp, x[0] + x[2] * (x[1] - x[0]))
ONE(masked_fill, x[1] != 0 ? NUM(2) : x[0])
ONE(where, x[0] != 0 ? x[1] : x[2])
ONE(relu, x[0] > 0 || isnan(x[0]) ? x[0] : 0)
ONE(leaky_relu, x[0] > 0 ? x[0] : x[0] * NUM(1))
ONE(threshold, x[0] > NUM(1) || isnan(x[0]) ? x[0] : NUM(2))
ONE(elu, x[0] > 0 ? x[0] * NUM(2) : NUM(1) * NUM(2) * expm1(x[0] * NUM(3)))
TRUTH(gelu)
{
    bool rough = a[1].kind == VAL_str && !strcmp(a[1].s, "tanh");
    return rough ? 0.5 * x[0] * (1 + tanh(M_SQRT2 * M_2_SQRTPI / 2 * (x[0] + 0.044715 * x[0] * x[0] * x[0])))
                 : 0.5 * x[0] * erfc(-x[0] * M_SQRT1_2);
}
ONE(silu, x[0] * sigm(x[0]))
ONE(mish, x[0] * tanh(softp(x[0])))
ONE(softplus, x[0] * NUM(1) > NUM(2) ? x[0] : softp(x[0] * NUM(1)) / NUM(1))
ONE(log_sigmoid, -softp(-x[0]))
ONE(hardtanh, keep_nan(x[0], fmin(fmax(x[0], NUM(1)), NUM(2))))
ONE(hardsigmoid, keep_nan(x[0], fmin(fmax(x[0] + 3, 0), 6) / 6))
ONE(hardswish, x[0] * fmin(fmax(x[0] + 3, 0), 6) / 6)
ONE(hardshrink, fabs(x[0]) <= NUM(1) ? 0 : x[0])
ONE(softshrink, x[0] > NUM(1) ? x[0] - NUM(1) : x[0] < -NUM(1) ? x[0] + NUM(1) : x[0] * 0)
ONE(silu_backward, x[0] * sigm(x[1]) * (1 + x[1] * (1 - sigm(x[1]))))
ONE(sigmoid_backward, x[0] * x[1] * (1 - x[1]))
ONE(tanh_backward, x[0] * (1 - x[1] * x[1]))
ONE(threshold_backward, x[1] <= NUM(2) ? 0 : x[0])
ONE(relu6, keep_nan(x[0], fmin(fmax(x[0], 0), 6)))
ONE(selu, 1.0507009873554805 * (x[0] > 0 ? x[0] : 1.6732632423543772 * expm1(x[0])))
ONE(celu, x[0] > 0 ? x[0] : NUM(1) * expm1(x[0] / NUM(1)))
ONE(log_sigmoid_backward, x[0] * sigm(-x[1]))

ONE(eq, x[0] == x[1])
ONE(ne, x[0] != x[1])
ONE(lt, x[0] < x[1])
ONE(le, x[0] <= x[1])
ONE(gt, x[0] > x[1])
ONE(ge, x[0] >= x[1])
ONE(isnan, isnan(x[0]))
ONE(isinf, isinf(x[0]) != 0)
ONE(isfinite, isfinite(x[0]) != 0)
ONE(logical_and, x[0] != 0 && x[1] != 0)
ONE(logical_or, x[0] != 0 || x[1] != 0)
ONE(logical_xor, (x[0] != 0) != (x[1] != 0))
ONE(logical_not, x[0] == 0)
ONE(floor_divide, floor(x[0] / x[1]))
ONE(remainder, x[0] - x[1] * floor(x[0] / x[1]))
ONE(bitwise_and, (double)((int64_t)x[0] & (int64_t)x[1]))
ONE(bitwise_or, (double)((int64_t)x[0] | (int64_t)x[1]))
ONE(bitwise_xor, (double)((int64_t)x[0] ^ (int64_t)x[1]))
TRUTH(isclose) /* NaN, which is not compared: too near to say */
{
    double off = fabs(x[0] - x[1]), may = NUM(3) + NUM(2) * fabs(x[1]);
    if (x[0] == x[1])
        return 1;
    if (isnan(x[0]) || isnan(x[1]))
        return isnan(x[0]) && isnan(x[1]) && a[4].b;
    return isinf(off) ? 0 : fabs(off - may) <= 1e-4 * may ? NAN : off <= may;
}
static truth_fn *const pointwise[OP_COUNT] = {
    [OP_exp] = truth_exp,
    [OP_exp2] = truth_exp2,
    [OP_expm1] = truth_expm1,
    [OP_log] = truth_log,
    [OP_log2] = truth_log2,
    [OP_log10] = truth_log10,
    [OP_log1p] = truth_log1p,
    [OP_sqrt] = truth_sqrt,
    [OP_rsqrt] = truth_rsqrt,
    [OP_reciprocal] = truth_reciprocal,
    [OP_sin] = truth_sin,
    [OP_cos] = truth_cos,
    [OP_tan] = truth_tan,
    [OP_asin] = truth_asin,
    [OP_acos] = truth_acos,
    [OP_atan] = truth_atan,
    [OP_sinh] = truth_sinh,
    [OP_cosh] = truth_cosh,
    [OP_tanh] = truth_tanh,
    [OP_asinh] = truth_asinh,
    [OP_acosh] = truth_acosh,
    [OP_atanh] = truth_atanh,
    [OP_erf] = truth_erf,
    [OP_erfc] = truth_erfc,
    [OP_lgamma] = truth_lgamma,
    [OP_sigmoid] = truth_sigmoid,
    [OP_sinc] = truth_sinc,
    [OP_special_ndtr] = truth_ndtr,
    [OP_special_entr] = truth_entr,
    [OP_deg2rad] = truth_deg2rad,
    [OP_rad2deg] = truth_rad2deg,
    [OP_logit] = truth_logit,
    [OP_abs] = truth_abs,
    [OP_sign] = truth_sign,
    [OP_sgn] = truth_sign,
    [OP_floor] = truth_floor,
    [OP_ceil] = truth_ceil,
    [OP_trunc] = truth_trunc,
    [OP_frac] = truth_frac,
    [OP_round] = truth_round,
    [OP_square] = truth_square,
    [OP_neg] = truth_neg,
    [OP_add_Tensor] = truth_add,
    [OP_sub_Tensor] = truth_sub,
    [OP_mul_Tensor] = truth_mul,
    [OP_div_Tensor] = truth_div,
    [OP_pow_Tensor_Tensor] = truth_pow,
    [OP_pow_Tensor_Scalar] = truth_pow_scalar,
    [OP_maximum] = truth_maximum,
    [OP_minimum] = truth_minimum,
    [OP_fmax] = truth_fmax,
    [OP_fmin] = truth_fmin,
    [OP_atan2] = truth_atan2,
    [OP_hypot] = truth_hypot,
    [OP_copysign_Tensor] = truth_copysign,
    [OP_logaddexp] = truth_logaddexp,
    [OP_logaddexp2] = truth_logaddexp2,
    [OP_xlogy_Tensor] = truth_xlogy,
    [OP_special_xlog1py] = truth_xlog1py,
    [OP_clamp] = truth_clamp,
    [OP_clamp_min] = truth_clamp_min,
    [OP_clamp_max] = truth_clamp_max,
    [OP_lerp_Scalar] = truth_lerp_scalar,
    [OP_addcmul] = truth_addcmul,
    [OP_addcdiv] = truth_addcdiv,
    [OP_rsub_Tensor] = truth_rsub,
    [OP_lerp_Tensor] = truth_lerp,
    [OP_masked_fill_Scalar] = truth_masked_fill,
    [OP_where_self] = truth_where,
    [OP_relu] = truth_relu,
    [OP_leaky_relu] = truth_leaky_relu,
    [OP_threshold] = truth_threshold,
    [OP_elu] = truth_elu,
    [OP_gelu] = truth_gelu,
    [OP_silu] = truth_silu,
    [OP_mish] = truth_mish,
    [OP_softplus] = truth_softplus,
    [OP_log_sigmoid] = truth_log_sigmoid,
    [OP_hardtanh] = truth_hardtanh,
    [OP_hardsigmoid] = truth_hardsigmoid,
    [OP_hardswish] = truth_hardswish,
    [OP_hardshrink] = truth_hardshrink,
    [OP_softshrink] = truth_softshrink,
    [OP_silu_backward] = truth_silu_backward,
    [OP_sigmoid_backward] = truth_sigmoid_backward,
    [OP_tanh_backward] = truth_tanh_backward,
    [OP_threshold_backward] = truth_threshold_backward,
    [OP_log_sigmoid_backward] = truth_log_sigmoid_backward,
    [OP_relu6] = truth_relu6,
    [OP_selu] = truth_selu,
    [OP_celu] = truth_celu,
    [OP_eq_Tensor] = truth_eq,
    [OP_ne_Tensor] = truth_ne,
    [OP_lt_Tensor] = truth_lt,
    [OP_le_Tensor] = truth_le,
    [OP_gt_Tensor] = truth_gt,
    [OP_ge_Tensor] = truth_ge,
    [OP_isclose] = truth_isclose,
    [OP_isnan] = truth_isnan,
    [OP_isinf] = truth_isinf,
    [OP_isfinite] = truth_isfinite,
    [OP_logical_and] = truth_logical_and,
    [OP_logical_or] = truth_logical_or,
    [OP_logical_xor] = truth_logical_xor,
    [OP_logical_not] = truth_logical_not,
    [OP_floor_divide] = truth_floor_divide,
    [OP_remainder_Tensor] = truth_remainder,
    [OP_bitwise_and_Tensor] = truth_bitwise_and,
    [OP_bitwise_or_Tensor] = truth_bitwise_or,
    [OP_bitwise_xor_Tensor] = truth_bitwise_xor,
};

/* ---- losses: point by point, then reduced as argument 2 says ---- */
ONE(mse_loss, (x[0] - x[1]) * (x[0] - x[1]))
ONE(l1_loss, fabs(x[0] - x[1]))
TRUTH(smooth_l1_loss)
{
    double d = fabs(x[0] - x[1]), beta = NUM(3);
    return d < beta ? 0.5 * d * d / beta : d - 0.5 * beta;
}
TRUTH(huber_loss)
{
    double d = fabs(x[0] - x[1]), delta = NUM(3);
    return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
}
static truth_fn *const losses[OP_COUNT] = {
    [OP_mse_loss] = truth_mse_loss,
    [OP_l1_loss] = truth_l1_loss,
    [OP_smooth_l1_loss] = truth_smooth_l1_loss,
    [OP_huber_loss] = truth_huber_loss,
};

/* ---- reductions ---- */
typedef enum {
    NO_REDUCTION,
    BY_sum,
    BY_mean,
    BY_max,
    BY_min,
    BY_prod,
    BY_logsumexp,
    BY_count,
    BY_any,
    BY_all,
    BY_argmax,
    BY_argmin
} by;
static const uint8_t reductions[OP_COUNT] = {
    [OP_sum] = BY_sum,
    [OP_sum_dim_IntList] = BY_sum,
    [OP_mean] = BY_mean,
    [OP_mean_dim] = BY_mean,
    [OP_amax] = BY_max,
    [OP_amin] = BY_min,
    [OP_prod] = BY_prod,
    [OP_prod_dim_int] = BY_prod,
    [OP_logsumexp] = BY_logsumexp,
    [OP_count_nonzero] = BY_count,
    [OP_count_nonzero_dim_IntList] = BY_count,
    [OP_argmax] = BY_argmax,
    [OP_argmin] = BY_argmin,
    [OP_any] = BY_any,
    [OP_any_dim] = BY_any,
    [OP_any_dims] = BY_any,
    [OP_all] = BY_all,
    [OP_all_dim] = BY_all,
    [OP_all_dims] = BY_all,
};

/* Which dimensions the call reduces. */
static uint32_t reduced(const tp_val *dim, int nd)
{
    uint32_t mask = 0;
    int d;
    if (dim->kind == VAL_int && dim_wrap(dim->i, nd, &d, NULL))
        mask = 1u << d;
    for (int i = 0; dim->kind == VAL_ints && i < dim->n; i++)
        if (dim_wrap(dim->ints[i], nd, &d, NULL))
            mask |= 1u << d;
    return mask ? mask : (1u << nd) - 1;
}

static void reduce(by how, const tp_tensor *x, uint32_t mask, double *out, int64_t n)
{
    int64_t each = n ? x->numel / n : 0, at[TP_MAX_DIMS] = { 0 };
    for (int64_t i = 0; i < n; i++)
        out[i] = how == BY_max ? -INFINITY : how == BY_min ? INFINITY : how == BY_prod || how == BY_all;
    for (int64_t k = 0; k < x->numel; k++) {
        int64_t to = 0;
        for (int d = 0; d < x->ndim; d++)
            if (!(mask >> d & 1))
                to = to * x->size[d] + at[d];
        double v = *(const double *)tensor_elem(x, k), *o = &out[to];
        if (how == BY_max || how == BY_min)
            *o = isnan(v) || isnan(*o) ? NAN : how == BY_max ? fmax(*o, v) : fmin(*o, v);
        else if (how >= BY_count)
            *o = how == BY_count ? *o + (v != 0) : how == BY_any ? *o != 0 || v != 0 : *o != 0 && v != 0;
        else
            *o = how == BY_prod ? *o * v : *o + v;
        for (int d = x->ndim - 1; d >= 0 && ++at[d] == x->size[d]; d--)
            at[d] = 0;
    }
    for (int64_t i = 0; how == BY_mean && i < n; i++)
        out[i] /= (double)each;
}

/* Where the largest or smallest is: the first of equal ones, or the first NaN; along one dimension, or through all of them. */
static void places(bool min, const tp_tensor *x, const tp_val *dim, double *out, int64_t n)
{
    int d = -1;
    int64_t at[TP_MAX_DIMS] = { 0 };
    double *best = mem_alloc(sizeof *best * (size_t)MAX(n, 1));
    if (dim->kind == VAL_int)
        dim_wrap(dim->i, x->ndim, &d, NULL);
    for (int64_t i = 0; i < n; i++)
        out[i] = -1;
    for (int64_t k = 0; k < x->numel; k++) {
        int64_t to = 0;
        for (int e = 0; e < x->ndim && d >= 0; e++)
            if (e != d)
                to = to * x->size[e] + at[e];
        double v = *(const double *)tensor_elem(x, k);
        if (out[to] < 0 || (!isnan(best[to]) && (isnan(v) || (min ? v < best[to] : v > best[to])))) {
            best[to] = v;
            out[to] = (double)(d >= 0 ? at[d] : k);
        }
        for (int e = x->ndim - 1; e >= 0 && ++at[e] == x->size[e]; e--)
            at[e] = 0;
    }
    free(best);
}

/* log of the sum of exponentials: those of the distance to the largest. */
static void logsumexp(const tp_tensor *x, uint32_t mask, double *out, int64_t n)
{
    double *top = mem_alloc(sizeof *top * (size_t)MAX(n, 1));
    tp_tensor *e = tensor_new(DT_f64, x->ndim, x->size, NULL);
    reduce(BY_max, x, mask, top, n);
    int64_t at[TP_MAX_DIMS] = { 0 };
    for (int64_t k = 0; e && k < x->numel; k++) {
        int64_t to = 0;
        for (int d = 0; d < x->ndim; d++)
            if (!(mask >> d & 1))
                to = to * x->size[d] + at[d];
        *(double *)tensor_elem(e, k) = exp(*(const double *)tensor_elem(x, k) - top[to]);
        for (int d = x->ndim - 1; d >= 0 && ++at[d] == x->size[d]; d--)
            at[d] = 0;
    }
    if (e)
        reduce(BY_sum, e, mask, out, n);
    for (int64_t i = 0; i < n; i++)
        out[i] = isfinite(top[i]) ? top[i] + log(out[i]) : top[i];
    tensor_unref(e);
    free(top);
}

/* softmax: exp(x - logsumexp) along a dimension, or that difference itself */
static bool softmax(const tp_val *a, bool log_, tp_tensor *out)
{
    const tp_tensor *x = a[0].kind == VAL_tensor ? a[0].t : NULL;
    int d;
    if (!x || x->dt != DT_f64 || !x->ndim || !x->numel || a[1].kind != VAL_int ||
        !dim_wrap(a[1].i, x->ndim, &d, NULL) || !tensor_same_size(x, out))
        return false;
    int64_t inner = 1, n = x->numel / x->size[d];
    double *line = mem_alloc(sizeof *line * (size_t)n);
    logsumexp(x, 1u << d, line, n);
    for (int i = d + 1; i < x->ndim; i++)
        inner *= x->size[i];
    for (int64_t k = 0; k < x->numel; k++) {
        double v = *(const double *)tensor_elem(x, k) - line[k / (inner * x->size[d]) * inner + k % inner];
        *(double *)tensor_elem(out, k) = log_ ? v : exp(v);
    }
    free(line);
    return true;
}

/* ---- one call ---- */
enum { OPERANDS = 3 };

/* Element k of `like` in an operand that is spread over it. */
int64_t truth_spread(const tp_tensor *t, const tp_tensor *like, int64_t k)
{
    int64_t to = 0, step = 1;
    for (int d = like->ndim - 1; d >= 0; d--) {
        int e = d - (like->ndim - t->ndim);
        int64_t i = k % like->size[d];
        k /= like->size[d];
        if (e < 0)
            continue;
        to += (t->size[e] == 1 ? 0 : i) * step;
        step *= t->size[e];
    }
    return to;
}

bool truth_spreads(const tp_tensor *t, const tp_tensor *like)
{
    if (t->ndim > like->ndim)
        return false;
    for (int e = 0; e < t->ndim; e++)
        if (t->size[e] != 1 && t->size[e] != like->size[e + like->ndim - t->ndim])
            return false;
    return true;
}

static bool point_by_point(truth_fn *fn, const op_row *row, const tp_val *arg, tp_tensor *out)
{
    const tp_val *operand[OPERANDS];
    int n = 0;
    for (int i = 0; i < row->schema.nparam; i++) {
        if (row->schema.param[i].type != PT_tensor)
            continue;
        bool fits = arg[i].kind == VAL_tensor ? arg[i].t && truth_spreads(arg[i].t, out)
                                              : val_is_number(&arg[i]);
        if (n == OPERANDS || !fits)
            return false;
        operand[n++] = &arg[i];
    }
    for (int64_t k = 0; k < out->numel; k++) {
        double x[OPERANDS] = { 0 };
        for (int i = 0; i < n; i++) {
            const tp_tensor *t = operand[i]->kind == VAL_tensor ? operand[i]->t : NULL;
            x[i] = t ? elem_get_f((dtype)t->dt, tensor_elem(t, truth_spread(t, out, k))) : num(operand[i]);
        }
        *(double *)tensor_elem(out, k) = fn(x, arg);
    }
    return true;
}

/* All elements, or their sum or mean in one. */
static bool loss_of(truth_fn *fn, const op_row *row, const tp_val *arg, tp_tensor *out)
{
    if (!arg[2].i)
        return point_by_point(fn, row, arg, out);
    const tp_tensor *x = arg[0].kind == VAL_tensor ? arg[0].t : NULL,
                    *y = arg[1].kind == VAL_tensor ? arg[1].t : NULL;
    tp_tensor *each = x && y && x->numel && tensor_same_size(x, y)
                          ? tensor_new(DT_f64, x->ndim, x->size, NULL)
                          : NULL;
    bool ok = each && each->ndim && out->numel == 1 && point_by_point(fn, row, arg, each);
    if (ok)
        reduce(arg[2].i == 1 ? BY_mean : BY_sum, each, (1u << each->ndim) - 1, tensor_elem(out, 0), 1);
    tensor_unref(each);
    return ok;
}

tp_tensor *truth_of(op_id op, const tp_val *arg, int i, const tp_tensor *like)
{
    const op_row *row = op_row_of(op);
    by how = (by)reductions[op];
    bool soft = op == OP_softmax_int || op == OP_log_softmax_int;
    const tp_tensor *x = arg[0].kind == VAL_tensor ? arg[0].t : NULL;
    bool plain = !i && (pointwise[op] || losses[op] || how || soft);
    tp_tensor *out = tensor_new(DT_f64, like->ndim, like->size, NULL);
    bool ok = out != NULL;
    if (!plain)
        ok = ok && (truth_nn(op, arg, i, out) || truth_index(op, arg, i, out) ||
                    truth_shape(op, arg, i, false, out) || truth_move(op, arg, i, out) ||
                    truth_math(op, arg, i, out) || truth_parts(op, arg, i, out));
    else if (how) {
        ok = ok && x && x->dt == DT_f64 && x->ndim && x->numel;
        if (ok && how >= BY_argmax)
            places(how == BY_argmin, x, &arg[1], tensor_elem(out, 0), out->numel);
        else if (ok && how == BY_logsumexp)
            logsumexp(x, reduced(&arg[1], x->ndim), tensor_elem(out, 0), out->numel);
        else if (ok)
            reduce(how, x, reduced(&arg[1], x->ndim), tensor_elem(out, 0), out->numel);
    } else if (soft)
        ok = ok && softmax(arg, op == OP_log_softmax_int, out);
    else if (losses[op])
        ok = ok && loss_of(losses[op], row, arg, out);
    else
        ok = ok && point_by_point(pointwise[op], row, arg, out);
    if (!ok) {
        tensor_unref(out);
        out = NULL;
    }
    return out;
}

/* A number, or a float without dimensions, takes the type of one that has some before it is compared with it. */
static void take_type(const op_row *row, const tp_val *arg, tp_tensor *const *own, tp_val *wide)
{
    dtype to = DT_none;
    for (int k = 0; k < row->schema.nparam; k++)
        if (own[k] && arg[k].t->ndim && dtype_is_float((dtype)arg[k].t->dt))
            to = (dtype)arg[k].t->dt;
    bool sized = to != DT_none;
    for (int k = 0; to == DT_none && k < row->schema.nparam; k++) /* none has: numbers take that */
        if (own[k] && dtype_is_float((dtype)arg[k].t->dt))
            to = (dtype)arg[k].t->dt;
    for (int k = 0; to != DT_none && k < row->schema.nparam; k++)
        if (sized && own[k] && !arg[k].t->ndim && dtype_is_float((dtype)arg[k].t->dt)) {
            uint64_t room = 0;
            elem_set_f(to, &room, *(double *)tensor_elem(own[k], 0));
            *(double *)tensor_elem(own[k], 0) = elem_get_f(to, &room);
        } else if (arg[k].kind == VAL_float && row->schema.param[k].type == PT_tensor) {
            uint64_t room = 0;
            elem_set_f(to, &room, arg[k].f);
            wide[k] = vF(elem_get_f(to, &room));
        }
}

tp_tensor *truth_whole(op_id op, const tp_val *arg, int i, const tp_tensor *like)
{
    const op_row *row = op_row_of(op);
    tp_val wide[OP_MAX_PARAMS];
    tp_tensor *own[OP_MAX_PARAMS] = { 0 }, *out = NULL;
    bool plain = !i && (pointwise[op] || reductions[op]), ok = true;
    for (int k = 0; ok && k < row->schema.nparam; k++) {
        wide[k] = arg[k];
        if (arg[k].kind == VAL_tensors ||
            (arg[k].kind == VAL_tensor && dtype_is_complex((dtype)arg[k].t->dt)))
            ok = false;
        else if (arg[k].kind == VAL_tensor) {
            own[k] = tensor_new(DT_f64, arg[k].t->ndim, arg[k].t->size, NULL);
            ok = own[k] && tensor_copy(own[k], arg[k].t, NULL);
            wide[k] = vT(own[k]);
        }
    }
    for (int k = 0; plain && ok && k < row->schema.nparam; k++) /* -1 is 255 beside bytes without a sign */
        if (val_is_number(&arg[k]) && val_as_f(&arg[k]) < 0)
            for (int q = 0; q < row->schema.nparam; q++) {
                if (!own[q] || arg[q].t->dt != DT_u8)
                    continue;
                bool meets = arg[k].kind == VAL_int && row->schema.param[k].type == PT_tensor;
                ok &= meets;
                wide[k] = meets ? vI(arg[k].i & 255) : wide[k];
            }
    if (ok && plain) {
        take_type(row, arg, own, wide);
        out = truth_of(op, wide, 0, like);
    } else if (ok && (out = tensor_new(DT_f64, like->ndim, like->size, NULL)) &&
               !truth_places(op, wide, i, out) && !truth_shape(op, wide, i, true, out) &&
               !truth_pooled_places(op, wide, i, out)) {
        tensor_unref(out);
        out = NULL;
    }
    for (int k = 0; k < row->schema.nparam; k++)
        tensor_unref(own[k]);
    return out;
}
