/* lower_pointwise.c - pointwise operators in terms of the vector IR, one line each. */
#include "loop/internal.h"
#include "ir/planted.h"
#include <float.h>
#include <math.h>

vir_mem loop_mem(dtype dt)
{
    static const vir_mem m[DT_COUNT] = {
        [DT_bool] = VM_bool, [DT_u8] = VM_u8,   [DT_i8] = VM_i8,     [DT_i16] = VM_i16, [DT_i32] = VM_i32,
        [DT_i64] = VM_i64,   [DT_f16] = VM_f16, [DT_bf16] = VM_bf16, [DT_f32] = VM_f32, [DT_f64] = VM_f64
    };
    return m[dt];
}
vir_type loop_type(dtype dt) { return vir_mem_type(loop_mem(dt)); }

/* Value conversion as the eager copy does it. Narrow integers wrap. */
vir_ref loop_convert(vir *k, vir_ref v, dtype from, dtype to)
{
    if (from == to)
        return v;
    vir_type a = loop_type(from), b = loop_type(to);
    if (a != b) {
        if (b == VT_mask)
            v = vir_ne(k, v, vir_imm(k, a, 0));
        else if ((a == VT_f32 || a == VT_f64) && b == VT_i32) /* through 64 bits: wraps like the eager copy */
            v = vir_cvt(k, VT_i32, vir_cvt(k, VT_i64, v));
        else
            v = vir_cvt(k, b, v);
    }
    if (dtype_is_int(to) && dtype_size(to) < 4)
        v = vir_narrow(k, loop_mem(to), v);
    return v;
}

#define K      (l->k)
#define X      (l->x[0])
#define Y      (l->x[1])
#define Z      (l->x[2])
#define T      vir_type_of(l->k, l->x[0])
#define FL     (T == VT_f32 || T == VT_f64)
#define C(v)   num(l, (v))
#define ARG(i) (&l->n->arg[i])

static vir_ref num_as(lower_in *l, vir_type t, double v)
{
    return t == VT_f32 || t == VT_f64 ? vir_flt(l->k, t, v) : vir_imm(l->k, t, (int64_t)v);
}
static vir_ref num(lower_in *l, double v) { return num_as(l, loop_type(l->dt), v); }
/* The product of two number arguments of the node, or one of them where they are the same, in the compute type. */
static vir_ref arg_product(lower_in *l, int i, int j)
{
    vir_type t = loop_type(l->dt);
    int at = 0;
    if (!l->alone)
        return vir_flt(l->k, t, val_as_f(ARG(i)) * (i == j ? 1 : val_as_f(ARG(j))));
    while (at < l->alone->nflt && (l->alone->flt[at].a != i || l->alone->flt[at].b != j))
        at++;
    assert(at < LOWERED_FLTS);
    if (at == l->alone->nflt) {
        l->alone->flt[l->alone->nflt].a = (uint8_t)i;
        l->alone->flt[l->alone->nflt++].b = (uint8_t)j;
        l->flt[at] = vir_float_arg(l->k, t, row_of(l->n)->schema.param[i].name);
    }
    return l->flt[at];
}
/* A number argument of the node, in the compute type. */
static vir_ref arg_num(lower_in *l, int i)
{
    const tp_val *a = ARG(i);
    vir_type t = loop_type(l->dt);
    if (t == VT_f32 || t == VT_f64)
        return arg_product(l, i, i);
    return vir_imm(l->k, t, t == VT_mask ? val_as_f(a) != 0 : val_as_i(a));
}
static vir_ref rounded(lower_in *l, vir_ref v) /* as memory would hold it */
{
    return dtype_is_float(l->dt) && dtype_size(l->dt) < 4 ? vir_narrow(l->k, loop_mem(l->dt), v) : v;
}
static bool is_one(const tp_val *a) { return val_as_f(a) == 1; }
static vir_ref wrap(lower_in *l, vir_ref v) /* narrow integers wrap after arithmetic */
{
    return dtype_is_int(l->dt) && dtype_size(l->dt) < 4 ? vir_narrow(l->k, loop_mem(l->dt), v) : v;
}

static bool number_fits(dtype dt, int64_t v) /* as it is, without wrapping */
{
    return dtype_size(dt) == 8 || (v >= (dt == DT_u8 ? 0 : -(1ll << (8 * dtype_size(dt) - 1))) &&
                                   v < 1ll << (8 * dtype_size(dt) - (dt != DT_u8)));
}

static vir_ref pointwise_at(walk *w, ir_node *n, const lin *idx);
/* ---- attention: conditions on places, and what is known beyond their diagonal ---- */
static const ir_node *not_band(const ir_node *n, bool *flip)
{
    *flip = !*flip;
    return ir_type(n)->dt == DT_bool ? operand(n, 0) : NULL;
}
static const ir_node *ne_band(const ir_node *n, bool *flip)
{
    return is_known_number(&n->arg[1]) && val_as_f(&n->arg[1]) == 0 ? operand(n, 0) : NULL;
}
static const ir_node *eq_band(const ir_node *n, bool *flip)
{
    *flip = !*flip;
    return ne_band(n, flip);
}

static known_mask known_plain(known_mask all) { return all < KNOWN_free ? KNOWN_nothing : KNOWN_free; }
static known_mask known_mul(known_mask x, known_mask y, known_mask all)
{
    return (x == KNOWN_zero || y == KNOWN_zero) && all >= KNOWN_finite ? KNOWN_zero : all;
}
static known_mask known_div(known_mask x, known_mask y, known_mask all)
{
    return y < KNOWN_free ? known_plain(all) : x == KNOWN_zero ? x : all;
}
static known_mask known_sum(known_mask x, known_mask y, known_mask all)
{
    return x == y && x == KNOWN_zero ? x : x == KNOWN_lowest && y == KNOWN_free ? x : all;
}
static known_mask known_exp(known_mask x, known_mask y, known_mask all)
{
    return x == KNOWN_lowest ? KNOWN_zero : known_plain(all);
}
static known_mask known_neg(known_mask x, known_mask y, known_mask all)
{
    return x != KNOWN_lowest ? x : known_plain(all);
}

/* Is it x less the largest of the x it is compared with? Rounding keeps the sign of a difference. */
static bool below_maximum(const ir_node *n)
{
    if (n->arg[0].kind != VAL_node || n->arg[1].kind != VAL_node || !val_is_number(&n->arg[2]) ||
        val_as_f(&n->arg[2]) != 1)
        return false;
    const ir_node *top = n->arg[1].node;
    if (lower_row(top) != &lower_amax)
        return false;
    bool keeps = top->arg[2].kind == VAL_bool && top->arg[2].b;
    return top->arg[0].kind == VAL_node && top->arg[0].node == n->arg[0].node &&
           (keeps || ir_type(top)->ndim == 0);
}

/* ---- one operator each ---- */
/* The record of a token and its body; what else the record says follows the name. */
#define LOWER(name, ...)                                                        \
    static lower_fn l_##name;                                                   \
    const lowering lower_##name = {                                             \
        .fits = covered, .value = pointwise_at, .scalar = l_##name, __VA_ARGS__ \
    };                                                                          \
    static vir_ref l_##name(lower_in *l)
LOWER(add, .known = known_sum, .rewrite = rewrite_accumulate, .pass = REWRITE_accumulate)
{
    if (T == VT_mask)
        return vir_or(K, X, Y);
    return wrap(l, vir_add(K, X, is_one(ARG(2)) ? Y : wrap(l, vir_mul(K, arg_num(l, 2), Y))));
}
LOWER(sub, .known = known_sum, .is_low = below_maximum)
{
    return wrap(l, vir_sub(K, X, is_one(ARG(2)) ? Y : wrap(l, vir_mul(K, arg_num(l, 2), Y))));
}
LOWER(rsub) { return wrap(l, vir_sub(K, Y, is_one(ARG(2)) ? X : wrap(l, vir_mul(K, arg_num(l, 2), X)))); }
LOWER(mul, .known = known_mul, .scales = true)
{
    return T == VT_mask ? vir_and(K, X, Y) : wrap(l, vir_mul(K, X, Y));
}
LOWER(div, .known = known_div, .scales = true) { return vir_div(K, X, Y); }
LOWER(neg, .known = known_neg) { return wrap(l, vir_neg(K, X)); }
LOWER(abs) { return T == VT_mask ? X : wrap(l, vir_abs(K, X)); }
LOWER(square) { return T == VT_mask ? X : wrap(l, vir_mul(K, X, X)); }
LOWER(positive) { return X; }
#define MATH(name) \
    LOWER(name) { return vir_##name(K, X); }
LOWER(exp, .known = known_exp, .wants_low = true) { return l->low ? vir_expn(K, X) : vir_exp(K, X); }
MATH(exp2)
MATH(expm1)
MATH(log)
MATH(log2)
MATH(log10)
MATH(log1p)
LOWER(sqrt, .divides = true) { return vir_sqrt(K, X); }
LOWER(rsqrt, .divides = true) { return vir_rsqrt(K, X); }
MATH(sin)
MATH(cos)
MATH(tan)
MATH(asin)
MATH(acos)
MATH(atan)
MATH(sinh)
MATH(cosh)
MATH(tanh)
MATH(asinh)
MATH(acosh)
MATH(atanh)
MATH(erf)
MATH(erfc)
MATH(sigmoid)
LOWER(reciprocal, .divides = true) { return vir_div(K, C(1), X); }
LOWER(floor) { return FL ? vir_floor(K, X) : X; }
LOWER(ceil) { return FL ? vir_ceil(K, X) : X; }
LOWER(trunc) { return FL ? vir_trunc(K, X) : X; }
LOWER(round) { return FL ? vir_round(K, X) : X; }
LOWER(frac) { return vir_sub(K, X, vir_trunc(K, X)); }
LOWER(sign)
{
    if (T == VT_mask)
        return X;
    vir_ref r = vir_select(K, vir_gt(K, X, C(0)), C(1), vir_select(K, vir_lt(K, X, C(0)), C(-1), C(0)));
    return r;
}
const lowering lower_sgn = { .fits = covered, .value = pointwise_at, .scalar = l_sign };
LOWER(isnan) { return FL ? vir_ne(K, X, X) : vir_imm(K, VT_mask, 0); }
LOWER(isinf) { return FL ? vir_eq(K, vir_abs(K, X), C(INFINITY)) : vir_imm(K, VT_mask, 0); }
LOWER(isfinite) { return FL ? vir_lt(K, vir_abs(K, X), C(INFINITY)) : vir_imm(K, VT_mask, 1); }
/* What is compared is what memory would hold: a value computed here again equals the one that was stored elsewhere, as the
 * gradient of a maximum needs. */
#define CMP(name, ...)                                                          \
    LOWER(name, __VA_ARGS__)                                                    \
    {                                                                           \
        if (T == VT_mask)                                                       \
            return vir_##name(K, vir_cvt(K, VT_i32, X), vir_cvt(K, VT_i32, Y)); \
        return vir_##name(K, rounded(l, X), rounded(l, Y));                     \
    }
CMP(eq, .same_band = eq_band)
CMP(ne, .same_band = ne_band)
CMP(lt)
CMP(le)
CMP(gt)
CMP(ge)
LOWER(logical_not, .same_band = not_band) { return vir_not(K, loop_convert(K, X, l->dt, DT_bool)); }
LOWER(logical_and)
{
    return vir_and(K, loop_convert(K, X, l->dt, DT_bool), loop_convert(K, Y, l->dt, DT_bool));
}
LOWER(logical_or)
{
    return vir_or(K, loop_convert(K, X, l->dt, DT_bool), loop_convert(K, Y, l->dt, DT_bool));
}
LOWER(logical_xor)
{
    return vir_xor(K, loop_convert(K, X, l->dt, DT_bool), loop_convert(K, Y, l->dt, DT_bool));
}
LOWER(bitwise_not, .same_band = not_band) { return wrap(l, vir_not(K, X)); }
LOWER(bitwise_and) { return vir_and(K, X, Y); }
LOWER(bitwise_or) { return vir_or(K, X, Y); }
LOWER(bitwise_xor) { return vir_xor(K, X, Y); }
LOWER(maximum) { return T == VT_mask ? vir_or(K, X, Y) : vir_max(K, X, Y); }
LOWER(minimum) { return T == VT_mask ? vir_and(K, X, Y) : vir_min(K, X, Y); }
/* of zeros of two signs the first */
LOWER(fmax) { return FL ? vir_fmax(K, Y, X) : T == VT_mask ? vir_or(K, X, Y) : vir_max(K, X, Y); }
LOWER(fmin) { return FL ? vir_fmin(K, Y, X) : T == VT_mask ? vir_and(K, X, Y) : vir_min(K, X, Y); }
LOWER(atan2) { return vir_atan2(K, X, Y); }
LOWER(hypot) { return vir_hypot(K, X, Y); }
LOWER(copysign) { return vir_copysign(K, X, Y); }
LOWER(pow) { return FL ? vir_pow(K, X, Y) : 0; }
LOWER(pow_scalar)
{
    double e = val_as_f(ARG(1));
    if (!FL)
        return e == 2 && T != VT_mask ? wrap(l, vir_mul(K, X, X)) : 0;
    if (e == 2)
        return vir_mul(K, X, X);
    if (e == 3)
        return vir_mul(K, vir_mul(K, X, X), X);
    if (e == 1)
        return X;
    if (e == 0.5)
        return vir_sqrt(K, X);
    if (e == -1)
        return vir_div(K, C(1), X);
    if (e == -2)
        return vir_div(K, C(1), vir_mul(K, X, X));
    if (e == -0.5)
        return vir_div(K, C(1), vir_sqrt(K, X));
    return vir_pow(K, X, rounded(l, arg_num(l, 1)));
}
LOWER(where, .chooses = true, .cond = 0, .yes = 1, .no = 2) { return vir_select(K, X, Y, Z); }
LOWER(masked_fill, .chooses = true, .cond = 1, .yes = 2, .no = 0)
{
    vir_ref v = l->nx > 2 ? Z : arg_num(l, 2);
    return vir_select(K, Y, v, X);
}
LOWER(clamp)
{
    vir_ref v = X;
    if (T == VT_mask)
        return 0;
    /* NaN stays NaN; the lower bound is applied first; of zeros of two signs the value's own stays */
    if (ARG(1)->kind != VAL_none)
        v = vir_max(K, arg_num(l, 1), v);
    if (ARG(2)->kind != VAL_none)
        v = vir_min(K, arg_num(l, 2), v);
    return v;
}
LOWER(clamp_min) { return T == VT_mask ? 0 : vir_max(K, arg_num(l, 1), X); }
LOWER(clamp_max) { return T == VT_mask ? 0 : vir_min(K, arg_num(l, 1), X); }
static vir_ref lerp(lower_in *l, vir_ref w)
{
    vir_ref d = vir_sub(K, Y, X), one = C(1);
    vir_ref low = vir_add(K, X, vir_mul(K, w, d)), high = vir_sub(K, Y, vir_mul(K, d, vir_sub(K, one, w)));
    return vir_select(K, vir_lt(K, vir_abs(K, w), C(0.5)), low, high);
}
LOWER(lerp_scalar) { return lerp(l, arg_num(l, 2)); }
LOWER(lerp_tensor) { return lerp(l, Z); }
LOWER(addcmul)
{
    vir_ref p = vir_mul(K, Y, Z);
    return wrap(l, vir_add(K, X, is_one(ARG(3)) ? p : vir_mul(K, vir_mul(K, arg_num(l, 3), Y), Z)));
}
LOWER(addcdiv)
{
    return FL ? vir_add(K, X, is_one(ARG(3)) ? vir_div(K, Y, Z) : vir_mul(K, arg_num(l, 3), vir_div(K, Y, Z)))
              : 0;
}
static uint8_t act_relu(const ir_node *n) { return ACT_relu; }
LOWER(relu, .act = act_relu) { return T == VT_mask ? 0 : vir_select(K, vir_le(K, X, C(0)), C(0), X); }
LOWER(leaky_relu) { return vir_select(K, vir_gt(K, X, C(0)), X, vir_mul(K, X, arg_num(l, 1))); }
LOWER(threshold) { return vir_select(K, vir_le(K, X, arg_num(l, 1)), arg_num(l, 2), X); }
LOWER(threshold_backward) { return vir_select(K, vir_le(K, Y, arg_num(l, 2)), C(0), X); }
LOWER(sigmoid_backward) { return vir_mul(K, vir_mul(K, X, Y), vir_sub(K, C(1), Y)); }
LOWER(tanh_backward) { return vir_mul(K, X, vir_sub(K, C(1), vir_mul(K, Y, Y))); }
LOWER(silu) { return vir_div(K, X, vir_add(K, C(1), vir_exp(K, vir_neg(K, X)))); }
LOWER(silu_backward)
{
    vir_ref s = vir_sigmoid(K, Y);
    return vir_mul(K, vir_mul(K, X, s), vir_add(K, C(1), vir_mul(K, Y, vir_sub(K, C(1), s))));
}
static bool is_tanh(const tp_val *a) { return a->kind == VAL_str && !strcmp(a->s, "tanh"); }
static uint8_t act_gelu(const ir_node *n) { return is_tanh(&n->arg[1]) ? ACT_gelu_tanh : ACT_none; }
LOWER(gelu, .act = act_gelu)
{
    if (is_tanh(ARG(1))) {
        vir_ref x3 = vir_mul(K, vir_mul(K, X, X), X);
        vir_ref in = vir_mul(K, C(0.7978845608028654), vir_add(K, X, vir_mul(K, C(0.044715), x3)));
        return vir_mul(K, vir_mul(K, C(0.5), X), vir_add(K, C(1), vir_tanh(K, in)));
    }
    return vir_mul(K, vir_mul(K, X, C(0.5)),
                   vir_add(K, C(1), vir_erf(K, vir_mul(K, X, C(0.7071067811865476)))));
}
LOWER(gelu_backward)
{
    if (is_tanh(ARG(2))) {
        vir_ref y2 = vir_mul(K, Y, Y), y3 = vir_mul(K, y2, Y);
        vir_ref in = vir_mul(K, C(0.7978845608028654), vir_add(K, Y, vir_mul(K, C(0.044715), y3)));
        vir_ref t = vir_tanh(K, in), left = vir_mul(K, C(0.5), Y), right = vir_add(K, C(1), t);
        vir_ref dl = vir_mul(K, C(0.5), right), dt = vir_sub(K, C(1), vir_mul(K, t, t));
        vir_ref di = vir_mul(K, C(0.7978845608028654), vir_add(K, C(1), vir_mul(K, C(3 * 0.044715), y2)));
        return vir_mul(K, X, vir_add(K, dl, vir_mul(K, left, vir_mul(K, dt, di))));
    }
    vir_ref cdf = vir_mul(K, C(0.5), vir_add(K, C(1), vir_erf(K, vir_mul(K, Y, C(0.7071067811865476)))));
    vir_ref pdf = vir_mul(K, C(0.3989422804014327), vir_expn(K, vir_mul(K, vir_mul(K, Y, Y), C(-0.5))));
    return vir_mul(K, X, vir_add(K, cdf, vir_mul(K, Y, pdf)));
}
LOWER(softplus)
{
    vir_ref b = arg_num(l, 1), bx = vir_mul(K, X, b);
    return vir_select(K, vir_gt(K, bx, arg_num(l, 2)), X, vir_div(K, vir_log1p(K, vir_exp(K, bx)), b));
}
LOWER(hardtanh) { return vir_min(K, arg_num(l, 2), vir_max(K, arg_num(l, 1), X)); }
LOWER(hardsigmoid) { return vir_div(K, vir_min(K, vir_max(K, vir_add(K, X, C(3)), C(0)), C(6)), C(6)); }
LOWER(hardswish)
{
    return vir_div(K, vir_mul(K, X, vir_min(K, vir_max(K, vir_add(K, X, C(3)), C(0)), C(6))), C(6));
}

/* ---- more activations and their gradients ---- */
static vir_ref below(lower_in *l, vir_ref x, double v) { return vir_lt(K, x, C(v)); }
LOWER(elu)
{
    vir_ref neg = vir_mul(K, vir_expm1(K, vir_mul(K, X, arg_num(l, 3))), arg_product(l, 1, 2));
    return vir_select(K, vir_gt(K, X, C(0)), vir_mul(K, X, arg_num(l, 2)), neg);
}
LOWER(elu_backward) /* alpha, scale, input_scale, is_result are arguments 1 to 4 */
{
    vir_ref in = arg_num(l, 3), gx = vir_mul(K, X, in), sc = arg_num(l, 2);
    vir_ref neg = ARG(4)->b ? vir_mul(K, gx, vir_add(K, Y, arg_product(l, 1, 2)))
                            : vir_mul(K, vir_mul(K, vir_mul(K, gx, arg_num(l, 1)), sc),
                                      vir_exp(K, vir_mul(K, Y, in)));
    return vir_select(K, vir_le(K, Y, C(0)), neg, vir_mul(K, X, sc));
}
static vir_ref tanh_softplus(lower_in *l, vir_ref x)
{
    vir_ref lim = C(T == VT_f64 ? 30 : 20);
    vir_ref e = vir_expn(K, vir_select(K, vir_gt(K, x, lim), lim, x)), n = vir_mul(K, e, vir_add(K, e, C(2)));
    return vir_div(K, n, vir_add(K, n, C(2)));
}
LOWER(mish) { return vir_mul(K, X, tanh_softplus(l, X)); }
LOWER(mish_backward)
{
    vir_ref t = tanh_softplus(l, Y), s = vir_sigmoid(K, Y);
    vir_ref rest = vir_mul(K, vir_mul(K, Y, s), vir_sub(K, C(1), vir_mul(K, t, t)));
    return vir_mul(K, X, vir_add(K, t, rest));
}
LOWER(softplus_backward)
{
    vir_ref by = vir_mul(K, Y, arg_num(l, 2));
    return vir_select(K, vir_gt(K, by, arg_num(l, 3)), X, vir_mul(K, X, vir_sigmoid(K, by)));
}
LOWER(log_sigmoid)
{
    vir_ref low = vir_select(K, below(l, X, 0), X, C(0));
    return vir_sub(K, low, vir_log1p(K, vir_expn(K, vir_neg(K, vir_abs(K, X)))));
}
LOWER(log_sigmoid_backward) { return vir_mul(K, X, vir_sigmoid(K, vir_neg(K, Y))); }
LOWER(leaky_relu_backward) { return vir_select(K, vir_gt(K, Y, C(0)), X, vir_mul(K, X, arg_num(l, 2))); }
LOWER(hardtanh_backward)
{
    vir_ref out = vir_or(K, vir_le(K, Y, arg_num(l, 2)), vir_ge(K, Y, arg_num(l, 3)));
    return FL ? vir_select(K, out, C(0), X) : 0;
}
LOWER(hardsigmoid_backward)
{
    vir_ref in = vir_and(K, vir_gt(K, Y, C(-3)), vir_lt(K, Y, C(3)));
    return vir_select(K, in, vir_div(K, X, C(6)), C(0));
}
LOWER(hardswish_backward)
{
    vir_ref mid = vir_mul(K, X, vir_add(K, vir_div(K, Y, C(3)), C(0.5)));
    return vir_select(K, vir_le(K, Y, C(-3)), C(0), vir_select(K, vir_lt(K, Y, C(3)), mid, X));
}
static vir_ref within(lower_in *l, vir_ref x, int arg) /* -lambd <= x <= lambd */
{
    double v = val_as_f(ARG(arg));
    return vir_and(K, vir_ge(K, x, C(-v)), vir_le(K, x, C(v)));
}
LOWER(hardshrink) { return FL ? vir_select(K, within(l, X, 1), C(0), X) : 0; }
LOWER(hardshrink_backward) { return FL ? vir_select(K, within(l, Y, 2), C(0), X) : 0; }
const lowering lower_softshrink_backward = { .fits = covered,
                                             .value = pointwise_at,
                                             .scalar = l_hardshrink_backward };
LOWER(softshrink)
{
    double v = val_as_f(ARG(1));
    vir_ref low = vir_select(K, below(l, X, -v), vir_add(K, X, C(v)), vir_mul(K, X, C(0)));
    return FL ? vir_select(K, vir_gt(K, X, C(v)), vir_sub(K, X, C(v)), low) : 0;
}
LOWER(logit)
{
    vir_ref x = X;
    if (ARG(1)->kind != VAL_none) {
        vir_ref eps = arg_num(l, 1), hi = vir_sub(K, C(1), eps);
        x = vir_select(K, vir_lt(K, x, eps), eps, vir_select(K, vir_gt(K, x, hi), hi, x));
    }
    return vir_log(K, vir_div(K, x, vir_sub(K, C(1), x)));
}

/* ---- more of two numbers ---- */
LOWER(xlogy)
{
    vir_ref v = vir_select(K, vir_eq(K, X, C(0)), C(0), vir_mul(K, X, vir_log(K, Y)));
    return vir_select(K, vir_ne(K, Y, Y), Y, v);
}
LOWER(special_xlog1py)
{
    vir_ref v = vir_select(K, vir_eq(K, X, C(0)), C(0), vir_mul(K, X, vir_log1p(K, Y)));
    return vir_select(K, vir_ne(K, Y, Y), Y, v);
}
static vir_ref log_add(lower_in *l, bool two)
{
    vir_ref far = vir_neg(K, vir_abs(K, vir_sub(K, X, Y)));
    vir_ref r = vir_log1p(K, two ? vir_exp2(K, far) : vir_expn(K, far));
    vir_ref same = vir_and(K, vir_eq(K, vir_abs(K, X), C(INFINITY)), vir_eq(K, X, Y));
    r = vir_add(K, vir_select(K, vir_lt(K, X, Y), Y, X), two ? vir_mul(K, r, C(1.4426950408889634)) : r);
    return vir_select(K, same, X, r);
}
LOWER(logaddexp) { return FL ? log_add(l, false) : 0; }
LOWER(logaddexp2) { return FL ? log_add(l, true) : 0; }
LOWER(heaviside)
{
    if (T == VT_mask)
        return vir_or(K, X, Y);
    vir_ref v = vir_select(K, vir_eq(K, X, C(0)), Y, vir_select(K, vir_gt(K, X, C(0)), C(1), C(0)));
    return FL ? vir_select(K, vir_ne(K, X, X), X, v) : v;
}
/* A whole number to divide by that is known and not 0; dividing by 0 is an error that no kernel can raise. */
static bool safe_divisor(lower_in *l)
{
    const tp_val *d = ARG(1);
    return T != VT_mask && (d->kind == VAL_int || d->kind == VAL_bool) &&
           !(d->kind == VAL_int && sym_is_expr(d->i)) && val_as_i(d) != 0 && number_fits(l->dt, val_as_i(d));
}
static vir_ref rem_float(lower_in *l, vir_ref m) /* of the divisor's sign */
{
    vir_ref other = vir_xor(K, below(l, Y, 0), below(l, m, 0));
    return vir_select(K, vir_and(K, vir_ne(K, m, C(0)), other), vir_add(K, m, Y), m);
}
static vir_ref floor_float(lower_in *l)
{
    vir_ref m = vir_call(K, "fmod", X, Y), d = vir_div(K, vir_sub(K, X, m), Y), q = vir_div(K, X, Y);
    vir_ref other = vir_xor(K, below(l, Y, 0), below(l, m, 0));
    d = vir_select(K, vir_and(K, vir_ne(K, m, C(0)), other), vir_sub(K, d, C(1)), d);
    vir_ref fl = vir_floor(K, d);
    fl = vir_select(K, vir_gt(K, vir_sub(K, d, fl), C(0.5)), vir_add(K, fl, C(1)), fl);
    fl = vir_select(K, vir_eq(K, d, C(0)), vir_copysign(K, C(0), q), fl);
    return vir_select(K, vir_eq(K, Y, C(0)), q, fl);
}
LOWER(fmod) { return FL ? vir_call(K, "fmod", X, Y) : safe_divisor(l) ? wrap(l, vir_modt(K, X, Y)) : 0; }
LOWER(remainder)
{
    return FL ? rem_float(l, vir_call(K, "fmod", X, Y)) : safe_divisor(l) ? wrap(l, vir_modf(K, X, Y)) : 0;
}
LOWER(floor_divide) { return FL ? floor_float(l) : safe_divisor(l) ? wrap(l, vir_divf(K, X, Y)) : 0; }
LOWER(div_mode)
{
    if (ARG(2)->kind == VAL_none)
        return vir_div(K, X, Y);
    bool down = !strcmp(ARG(2)->s, "floor");
    if (!FL)
        return !safe_divisor(l) ? 0 : wrap(l, down ? vir_divf(K, X, Y) : vir_divt(K, X, Y));
    return down ? floor_float(l) : vir_trunc(K, rounded(l, vir_div(K, X, Y)));
}
LOWER(clamp_tensor)
{
    vir_ref v = X;
    int at = 1;
    if (T == VT_mask)
        return 0;
    if (ARG(1)->kind != VAL_none)
        v = vir_max(K, l->x[at++], v);
    return ARG(2)->kind != VAL_none ? vir_min(K, l->x[at], v) : v;
}

/* ---- more of one number ---- */
LOWER(deg2rad) { return FL ? vir_mul(K, X, C(0.017453292519943295769)) : 0; }
LOWER(rad2deg) { return FL ? vir_mul(K, X, C(57.29577951308232088)) : 0; }
LOWER(isposinf) { return FL ? vir_eq(K, X, C(INFINITY)) : vir_imm(K, VT_mask, 0); }
LOWER(isneginf) { return FL ? vir_eq(K, X, C(-INFINITY)) : vir_imm(K, VT_mask, 0); }
LOWER(signbit)
{
    if (T == VT_mask)
        return vir_imm(K, VT_mask, 0);
    return below(l, FL ? vir_copysign(K, C(1), X) : X, 0);
}
LOWER(nan_to_num)
{
    if (!FL)
        return X;
    double max = l->out == DT_f64   ? DBL_MAX
                 : l->out == DT_f32 ? FLT_MAX
                 : l->out == DT_f16 ? 65504
                                    : 3.3895313892515355e38;
    vir_ref hi = ARG(2)->kind == VAL_none ? C(max) : arg_num(l, 2);
    vir_ref lo = ARG(3)->kind == VAL_none ? C(-max) : arg_num(l, 3);
    vir_ref v = vir_select(K, vir_eq(K, X, C(INFINITY)), hi,
                           vir_select(K, vir_eq(K, X, C(-INFINITY)), lo, X));
    return vir_select(K, vir_ne(K, X, X), ARG(1)->kind == VAL_none ? C(0) : arg_num(l, 1), v);
}
LOWER(sinc)
{
    if (!FL)
        return 0;
    vir_ref w = vir_mul(K, vir_cvt(K, VT_f64, X), vir_flt(K, VT_f64, 3.14159265358979323846));
    vir_ref v = vir_cvt(K, T, vir_div(K, vir_sin(K, w), w));
    return vir_select(K, vir_eq(K, X, C(0)), C(1), v);
}
LOWER(special_entr)
{
    vir_ref v = vir_select(K, vir_eq(K, X, C(0)), C(0), C(-INFINITY));
    v = vir_select(K, vir_gt(K, X, C(0)), vir_mul(K, vir_neg(K, X), vir_log(K, X)), v);
    return vir_select(K, vir_ne(K, X, X), X, v);
}
LOWER(special_ndtr)
{
    return vir_mul(K, C(0.5), vir_erfc(K, vir_mul(K, vir_neg(K, X), C(0.7071067811865476))));
}
#undef X
#undef Y
#undef Z
#undef K
#undef T
#undef FL
#undef C
#undef ARG

/* ---- from a node to its lowering ---- */
static bool sym_has_hint(symint v);

static bool keeps_mask(const ir_node *n, int operand) /* a bool operand that is a condition */
{
    return lower_row(n)->chooses && operand == lower_row(n)->cond;
}

static dtype compute_dtype(const ir_node *n)
{
    const op_schema *s = &row_of(n)->schema;
    dtype out = (dtype)ir_type(n)->dt;
    if (out != DT_bool || lower_row(n)->chooses)
        return out;
    dtype_join j = DTYPE_JOIN_INIT;
    for (int i = 0; i < s->nparam; i++) {
        if (s->param[i].type != PT_tensor)
            continue;
        if (n->arg[i].kind == VAL_node) {
            const tp_tensor *t = ir_type(n->arg[i].node);
            dtype_join_add(&j, (dtype)t->dt, t->ndim, t->flags & TF_wrapped);
        } else if (val_is_number(&n->arg[i]))
            dtype_join_add(&j, val_number_dtype(&n->arg[i], DT_f32), 0, true);
    }
    return dtype_join_result(&j);
}

vir_ref number(vir *k, const tp_val *v, dtype dt)
{
    vir_type t = loop_type(dt);
    if (t == VT_f32 || t == VT_f64)
        return vir_flt(k, t, val_as_f(v));
    if (t == VT_mask)
        return vir_imm(k, t, val_as_f(v) != 0);
    int64_t i = val_as_i(v);
    if (dt == DT_u8)
        i = (uint8_t)i;
    else if (dt == DT_i8)
        i = (int8_t)i;
    else if (dt == DT_i16)
        i = (int16_t)i;
    return vir_imm(k, t, i);
}

/* The same where it may be symbolic: an argument of the kernel. */
vir_ref number_now(walk *w, const tp_val *v, dtype dt)
{
    if (v->kind != VAL_int || !sym_is_expr(v->i))
        return number(w->k, v, dt);
    return loop_convert(w->k, emit_int(w, v->i), DT_i64, dt);
}

static vir_ref pointwise_at(walk *w, ir_node *n, const lin *idx)
{
    const op_schema *s = &row_of(n)->schema;
    const tp_tensor *t = ir_type(n);
    lower_in l = { .k = w->k,
                   .n = n,
                   .dt = compute_dtype(n),
                   .out = (dtype)t->dt,
                   .low = w->pl->in[n->id].low,
                   .err = w->pl->c->err };
    for (int i = 0; i < s->nparam; i++) {
        if (s->param[i].type != PT_tensor || n->arg[i].kind == VAL_none)
            continue;
        if (n->arg[i].kind != VAL_node) {
            if (!w->dry) {
                l.x[l.nx] = number_now(w, &n->arg[i], keeps_mask(n, i) ? DT_bool : l.dt);
                if (!keeps_mask(n, i) &&
                    !(row_of(n)->flags & OPF_WIDENUM)) /* it has the type of the tensors it meets */
                    l.x[l.nx] = rounded(&l, l.x[l.nx]);
            }
            l.nx++;
            continue;
        }
        ir_node *a = n->arg[i].node;
        const tp_tensor *at = ir_type(a);
        lin sub[TP_MAX_DIMS];
        int off = t->ndim - at->ndim;
        for (int d = 0; d < at->ndim; d++)
            if (is_spread(at->size[d], t->size[d + off]))
                lin_set_const(&sub[d], 0);
            else
                lin_set(&sub[d], &idx[d + off]);
        vir_ref v = eval(w, a, sub);
        if (w->fail)
            return 0;
        if (!w->dry)
            v = loop_convert(w->k, v, (dtype)at->dt, keeps_mask(n, i) ? DT_bool : l.dt);
        l.x[l.nx++] = v;
    }
    if (w->dry)
        return 0;
    vir_note(w->k, ir_place(n));
    vir_ref v = lower_of((op_id)n->op)(&l);
    return TP_LIKELY(fault_state == 0) ? v : plant(w, n, v);
}

bool lower_alone(vir *k, lowered *e, tp_err *err)
{
    const lowered_key *key = &e->key;
    tp_val arg[LOWERED_ARGS];
    ir_node n = { .op = key->op, .arg = arg, .narg = LOWERED_ARGS };
    lower_in l = {
        .k = k, .n = &n, .dt = (dtype)key->dt, .out = (dtype)key->dt, .nx = key->nin, .err = err, .alone = e
    };
    lower_fn *fn = lower_of((op_id)key->op);
    for (int i = 0; i < LOWERED_ARGS; i++) {
        arg[i] = (tp_val){ .kind = key->kind[i], .f = NAN };
        if (arg[i].kind == VAL_bool)
            arg[i].b = key->set >> i & 1;
        else if (arg[i].kind == VAL_str)
            arg[i].s = key->text;
    }
    int y = vir_buffer(k, loop_mem((dtype)key->to), VIR_OUT, "y"), x[LOWERED_IN];
    for (int i = 0; i < key->nin; i++)
        x[i] = vir_buffer(k, loop_mem((dtype)key->in[i]), VIR_IN, "x");
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), vir_int_arg(k, "n"));
    for (int p = 0; p < key->nin; p++) {
        vir_ref v = vir_load(k, x[p], key->one >> p & 1 ? vir_int(k, 0) : i, 0);
        l.x[p] = loop_convert(k, v, (dtype)key->in[p], l.dt);
    }
    vir_ref v = fn ? fn(&l) : 0;
    if (!v)
        return err_set(err, ERR_notimpl, "'%s' has no loop for '%s'", op_row_of((op_id)key->op)->full,
                       dtype_name(l.dt));
    vir_store(k, y, i, loop_convert(k, v, l.out, (dtype)key->to), 0);
    vir_end(k);
    return vir_finish(k, err);
}

/* All that a lowering looks at; 0 bytes where that is more than a few numbers. */
static size_t lowering_key(const ir_node *n, dtype dt, int64_t *key, size_t cap)
{
    size_t k = 0;
    key[k++] = n->op | (int64_t)dt << 16 | (int64_t)ir_type(n)->dt << 24 | (int64_t)n->narg << 32;
    for (int i = 0; i < n->narg && k + 2 <= cap; i++) {
        const tp_val *v = &n->arg[i];
        key[k++] = v->kind;
        switch (v->kind) {
        case VAL_none:
        case VAL_node: break;
        case VAL_int:
        case VAL_dtype: key[k++] = v->i; break;
        case VAL_bool: key[k++] = v->b; break;
        case VAL_float: memcpy(&key[k++], &v->f, sizeof v->f); break;
        default: return 0;
        }
    }
    return k + 2 <= cap ? k * sizeof *key : 0;
}

static bool lowers(const ir_node *n, lower_fn *fn, dtype dt) /* tried on a scratch kernel */
{
    const op_row *r = row_of(n);
    arena a = { 0 };
    vir *k = vir_make(&a, "try");
    lower_in l = { .k = k, .n = n, .dt = dt, .out = (dtype)ir_type(n)->dt };
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), vir_int(k, 64));
    bool ok = true;
    for (int p = 0; p < r->schema.nparam; p++) {
        if (r->schema.param[p].type != PT_tensor || n->arg[p].kind == VAL_none)
            continue;
        dtype want = keeps_mask(n, p) ? DT_bool : dt;
        if (l.nx < 6)
            l.x[l.nx++] = vir_load(k, vir_buffer(k, loop_mem(want), VIR_IN, "x"), i, 0);
    }
    for (int p = 0; p < n->narg; p++) /* lowerings look at the other numbers */
        if (n->arg[p].kind == VAL_int && sym_is_expr(n->arg[p].i) &&
            (r->schema.param[p].type != PT_tensor || !sym_has_hint(n->arg[p].i)))
            ok = false;
    vir_ref v = ok ? fn(&l) : 0;
    ok = v && !k->err && vir_type_of(k, v) == loop_type((dtype)ir_type(n)->dt);
    arena_free(&a);
    return ok;
}

/* Does the lowering cover this node's types? Tried once for all that are alike. */
bool covered(planner *pl, const ir_node *n)
{
    info *f = &pl->in[n->id];
    if (f->tested)
        return f->covered;
    f->tested = true;
    lower_fn *fn = lower_row(n)->scalar;
    const op_row *r = row_of(n);
    if (!fn || !(r->flags & OPF_PW) || r->schema.nret != 1)
        return false;
    int64_t key[32];
    dtype dt = compute_dtype(n);
    size_t nkey = lowering_key(n, dt, key, COUNT(key));
    intptr_t had = nkey ? (intptr_t)map_getn(&pl->lowers, key, nkey) : 0;
    f->covered = had ? had == 2 : lowers(n, fn, dt);
    if (nkey && !had)
        map_putn(&pl->lowers, key, nkey, (void *)(intptr_t)(1 + f->covered));
    return f->covered;
}

static bool sym_has_hint(symint v)
{
    bool ok = true;
    sym_hint(v, &ok);
    return ok;
}

bool number_is_ready(const tp_val *v) /* what data decides is known to the calls alone */
{
    return v->kind != VAL_int || !sym_is_expr(v->i) || sym_has_hint(v->i);
}

bool is_known_number(const tp_val *v)
{
    return val_is_number(v) && !(v->kind == VAL_int && sym_is_expr(v->i));
}

void find_low(planner *pl)
{
    IR_EACH (n, pl->g) {
        const ir_node *x = lower_row(n)->wants_low ? operand(n, 0) : NULL;
        if (x && lower_row(x)->is_low && lower_row(x)->is_low(x))
            pl->in[n->id].low = decide(pl->c, DECIDE_range, n);
    }
}
