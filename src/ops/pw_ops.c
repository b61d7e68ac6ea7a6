/* pw_ops.c - shape rules of pointwise operators, and kernels that need more than their loop. */
#include "ops/pw.h"
#include "ops/lowered.h"
#include <float.h>
#include <math.h>

/* ---- shape rules ---- */
typedef enum { RES_promote, RES_float, RES_bool, RES_first } res_rule;
/* Scalar parameters promote too; the first tensor does not; the order of dimensions comes from the last tensor first */
enum { JOIN_SCALARS = 1, SKIP_FIRST = 2, LAST_FIRST = 4 };

/* Broadcast and promote all tensor and number arguments in Tensor positions. */
static bool pointwise(op_call *c, res_rule rule, int how)
{
    const op_schema *s = &c->row->schema;
    dtype_join j = DTYPE_JOIN_INIT;
    tp_tensor *in[OP_MAX_PARAMS];
    symint size[TP_MAX_DIMS];
    int nin = 0, ndim = 0;
    bool numbers = false; /* as operands: a number has no dimensions */

    for (int i = 0; i < s->nparam; i++) {
        const tp_val *v = &c->arg[i];
        if (v->kind == VAL_none ||
            (s->param[i].type != PT_tensor && !(how & JOIN_SCALARS && s->param[i].type == PT_scalar)))
            continue;
        if (v->kind == VAL_tensor) {
            tp_tensor *t = v->t;
            if (nin || !(how & SKIP_FIRST))
                dtype_join_add(&j, (dtype)t->dt, t->ndim, t->flags & TF_wrapped);
            if (!nin) {
                ndim = t->ndim;
                memcpy(size, t->size, sizeof(symint) * (size_t)ndim);
            } else if (!shape_broadcast(&ndim, size, t->ndim, t->size, c->err))
                return false;
            in[nin++] = t;
        } else {
            dtype_join_add(&j, val_number_dtype(v, c->cx->default_dtype), 0, true);
            numbers |= s->param[i].type == PT_tensor;
        }
    }
    dtype dt = rule == RES_first ? (dtype)in[0]->dt : dtype_join_result(&j);
    if (rule == RES_float && dtype_is_exact(dt))
        dt = c->cx->default_dtype;
    op_out *o = out_new(c, rule == RES_bool ? DT_bool : dt, ndim, size);
    if (how & LAST_FIRST && nin == 2)
        in[2] = in[0], in[0] = in[1], in[1] = in[2];
    if (numbers && ndim)
        in[nin++] = NULL;
    if (ndim > 1)
        shape_pointwise_strides(ndim, size, nin, in, o->stride);
    return true;
}

bool shape_pw(op_call *c) { return pointwise(c, RES_promote, 0); }
bool shape_pw_float(op_call *c) { return pointwise(c, RES_float, 0); }
bool shape_pw_bool(op_call *c) { return pointwise(c, RES_bool, 0); }
bool shape_pw_scalars(op_call *c) { return pointwise(c, RES_promote, JOIN_SCALARS); }

static bool alpha_ok(op_call *c)
{
    dtype dt = (dtype)c->out[0].dt;
    const tp_val *a = &c->arg[2];
    if (a->kind == VAL_bool && dt != DT_bool)
        return err_set(c->err, ERR_runtime, "Boolean alpha only supported for Boolean results.");
    if (a->kind == VAL_complex && !dtype_is_complex(dt))
        return err_set(c->err, ERR_runtime,
                       "For non-complex input tensors, argument alpha must not be a complex number.");
    if (dtype_is_exact(dt) && a->kind == VAL_float)
        return err_set(c->err, ERR_runtime,
                       "For integral input tensors, argument alpha must not be a floating point number.");
    return true;
}

/* A power of a number is contiguous. */
bool shape_pw_pow(op_call *c)
{
    if (!pointwise(c, RES_promote, 0))
        return false;
    if (c->arg[0].kind != VAL_tensor)
        shape_contiguous_strides(c->out[0].ndim, c->out[0].size, c->out[0].stride);
    return true;
}
/* As empty_like of the first argument. */
bool shape_pw_dense(op_call *c) { return out_dense(c, arg_t(c, 0), (dtype)arg_t(c, 0)->dt) != NULL; }

bool shape_pw_add(op_call *c) { return pointwise(c, RES_promote, 0) && alpha_ok(c); }

static bool is_bool(const tp_val *v)
{
    return v->kind == VAL_bool || (v->kind == VAL_tensor && v->t->dt == DT_bool);
}

static bool subtraction(op_call *c, int how)
{
    if (is_bool(&c->arg[0]) && is_bool(&c->arg[1]))
        return err_set(
            c->err, ERR_runtime,
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead.");
    if (is_bool(&c->arg[0]) || is_bool(&c->arg[1]))
        return err_set(
            c->err, ERR_runtime,
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert "
            "a mask, use the `~` or `logical_not()` operator instead.");
    return pointwise(c, RES_promote, how) && alpha_ok(c);
}
bool shape_pw_sub(op_call *c) { return subtraction(c, 0); }
bool shape_pw_rsub(op_call *c) { return subtraction(c, LAST_FIRST); }
bool shape_pw_mish_back(op_call *c) /* (grad_output, self): of self's type */
{
    if (!pointwise(c, RES_promote, 0))
        return false;
    dtype dt = (dtype)arg_t(c, 1)->dt, got = (dtype)c->out[0].dt;
    if (!dtype_can_cast(got, dt))
        return err_set(c->err, ERR_runtime, "result type %s can't be cast to the desired output type %s",
                       dtype_rows[got].gname, dtype_rows[dt].gname);
    c->out[0].dt = dt;
    return true;
}
bool shape_pw_threshold_back(op_call *c) { return pointwise(c, RES_promote, LAST_FIRST); }

bool shape_pw_neg(op_call *c)
{
    if (arg_t(c, 0)->dt == DT_bool)
        return err_set(
            c->err, ERR_runtime,
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
            "mask, use the `~` or `logical_not()` operator instead.");
    return pointwise(c, RES_promote, 0);
}

bool shape_pw_positive(op_call *c)
{
    if (arg_t(c, 0)->dt == DT_bool)
        return err_set(c->err, ERR_runtime, "The `+` operator, on a bool tensor is not supported.");
    return shape_alias(c);
}

bool shape_pw_div_mode(op_call *c)
{
    const tp_val *m = &c->arg[2];
    if (m->kind == VAL_none)
        return pointwise(c, RES_float, 0);
    if (strcmp(m->s, "trunc") && strcmp(m->s, "floor"))
        return err_set(c->err, ERR_runtime,
                       "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '%.60s'",
                       m->s);
    return pointwise(c, RES_promote, 0);
}

bool shape_where(op_call *c)
{
    tp_tensor *m = arg_t(c, 0);
    if (!m)
        return err_set(c->err, ERR_type, "where(): argument 'condition' (position 1) must be Tensor");
    if (m->dt != DT_bool && m->dt != DT_u8)
        return err_set(c->err, ERR_runtime,
                       "where expected condition to be a boolean tensor, but got a tensor with dtype %s",
                       dtype_rows[m->dt].gname);
    return pointwise(c, RES_promote, SKIP_FIRST);
}

bool shape_clamp(op_call *c)
{
    if (c->arg[1].kind == VAL_none && c->arg[2].kind == VAL_none)
        return err_set(c->err, ERR_runtime, "torch.clamp: At least one of 'min' or 'max' must not be None");
    return pointwise(c, RES_promote, JOIN_SCALARS);
}

bool shape_masked_fill(op_call *c)
{
    tp_tensor *m = arg_t(c, 1), *v = arg_t(c, 2);
    c->sharing = SHARE_SELF | SHARE_VALUE;
    if (m->dt != DT_bool)
        return err_set(c->err, ERR_runtime,
                       "masked_fill_ only supports boolean masks, but got mask with dtype %s",
                       dtype_name((dtype)m->dt));
    if (v && v->ndim)
        return err_set(c->err, ERR_runtime,
                       "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with %d "
                       "dimension(s).",
                       v->ndim);
    if (v && dtype_category(v->dt) > MAX(dtype_category(arg_t(c, 0)->dt), 1))
        return err_set(c->err, ERR_runtime, "value cannot be converted to type %s without overflow",
                       dtype_name((dtype)arg_t(c, 0)->dt));
    if (!pointwise(c, RES_first, 0))
        return false;
    op_out *o = &c->out[0]; /* a plain copy that is then filled, whatever the order of the dimensions was */
    return shape_memfmt_strides(MF_contiguous, o->ndim, o->size, o->stride, c->err);
}

bool shape_same_types(op_call *c) /* lerp: all tensors of one floating type */
{
    const op_schema *s = &c->row->schema;
    tp_tensor *a = arg_t(c, 0);
    for (int i = 1; i < s->nparam; i++) {
        tp_tensor *t = arg_t(c, i);
        if (t && t->dt != a->dt)
            return err_set(c->err, ERR_runtime, "expected dtype %s for `%s` but got dtype %s",
                           dtype_name((dtype)a->dt), s->param[i].name, dtype_name((dtype)t->dt));
    }
    return pointwise(c, RES_promote, 0);
}

bool shape_addcdiv(op_call *c)
{
    if (dtype_is_exact((dtype)arg_t(c, 1)->dt) && dtype_is_exact((dtype)arg_t(c, 2)->dt))
        return err_set(
            c->err, ERR_runtime,
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will "
            "perform a true division of tensor1 and tensor2. The historic addcdiv behavior can be "
            "implemented as (input + value * torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer "
            "inputs and as (input + value * tensor1 / tensor2) for float inputs. The future addcdiv behavior "
            "is just the latter implementation: (input + value * tensor1 / tensor2), for all dtypes.");
    return pointwise(c, RES_promote, 0);
}

bool shape_frexp(op_call *c)
{
    if (!dtype_is_float((dtype)arg_t(c, 0)->dt))
        return err_set(c->err, ERR_runtime, "torch.frexp() only supports floating-point dtypes");
    if (!pointwise(c, RES_promote, 0))
        return false;
    op_out *e = out_add(c);
    *e = c->out[0];
    e->dt = DT_i32;
    return true;
}

bool shape_square(op_call *c) /* as pow(x, 2): the number makes an integer of a bool */
{
    if (!pointwise(c, RES_promote, 0))
        return false;
    if (c->out[0].dt == DT_bool)
        c->out[0].dt = DT_i64;
    return true;
}

bool shape_log_sigmoid(op_call *c) /* contiguous whatever the input's strides */
{
    tp_tensor *t = arg_t(c, 0);
    return pointwise(c, RES_promote, 0) &&
           (shape_contiguous_strides(t->ndim, t->size, c->out[0].stride), true);
}

bool shape_hardtanh(op_call *c)
{
    if (val_as_f(&c->arg[1]) > val_as_f(&c->arg[2]))
        return err_set(c->err, ERR_value, "min_val cannot be greater than max_val");
    if (arg_t(c, 0)->dt == DT_u8 && (val_as_f(&c->arg[1]) < 0 || val_as_f(&c->arg[2]) < 0))
        return err_set(c->err, ERR_runtime, "cannot do hardtanh on an unsigned type with negative limits");
    return pointwise(c, RES_promote, 0);
}

bool shape_heaviside(op_call *c)
{
    if (arg_t(c, 0)->dt != arg_t(c, 1)->dt)
        return err_set(c->err, ERR_runtime,
                       "heaviside is not yet implemented for tensors with different dtypes.");
    return pointwise(c, RES_promote, 0);
}

bool shape_softshrink(op_call *c)
{
    double l = val_as_f(&c->arg[1]);
    if (!(l >= 0))
        return err_set(c->err, ERR_runtime, "lambda must be greater or equal to 0, but found to be %g.", l);
    return pointwise(c, RES_promote, 0);
}

bool shape_pow_scalar(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    if (t && dtype_is_exact((dtype)t->dt) && c->arg[1].kind == VAL_int && c->arg[1].i < 0)
        return err_set(c->err, ERR_runtime, "Integers to negative integer powers are not allowed.");
    return pointwise(c, RES_promote, JOIN_SCALARS);
}

/* ---- kernels ---- */
static bool add_like(op_call *c, pw_id general, pw_id plain)
{
    pw_par p = { { val_as_f(&c->arg[2]) }, { val_as_i(&c->arg[2]) } };
    bool one = p.f[0] == 1 && c->out[0].dt != DT_bool;
    return pw_run(c, one ? plain : general, &p);
}
bool eager_add_alpha(op_call *c) { return add_like(c, PW_add, PW_add1); }
bool eager_sub_alpha(op_call *c) { return add_like(c, PW_sub, PW_sub1); }
bool eager_rsub(op_call *c)
{
    pw_par p = { { val_as_f(&c->arg[2]) }, { val_as_i(&c->arg[2]) } };
    pw_in in[2] = { { arg_t(c, 1), &c->arg[1], false }, { arg_t(c, 0), &c->arg[0], false } };
    return pw_apply(c, p.f[0] == 1 ? PW_sub1 : PW_sub, (dtype)c->out[0].dt, c->res[0], in, 2, &p);
}

bool int_has_zero(const tp_tensor *t)
{
    for (int64_t k = 0; k < t->numel; k++)
        if (!elem_get_i((dtype)t->dt, tensor_elem(t, k)))
            return true;
    return false;
}

/* Integer division by zero is refused as a whole. */
static bool divisor_ok(op_call *c)
{
    if (dtype_is_float((dtype)c->out[0].dt))
        return true;
    tp_tensor *d = arg_t(c, 1);
    int64_t number = 0;
    if (!d) /* as the type has it: 256 is 0 beside uint8 */
        elem_set_i((dtype)c->out[0].dt, &number, val_as_i(&c->arg[1]));
    if (d ? int_has_zero(d) : !elem_get_i((dtype)c->out[0].dt, &number))
        return err_set(c->err, ERR_runtime, "ZeroDivisionError");
    return true;
}
bool eager_fmod_checked(op_call *c) { return divisor_ok(c) && pw_run(c, PW_fmod, NULL); }
bool eager_remainder_checked(op_call *c) { return divisor_ok(c) && pw_run(c, PW_remainder, NULL); }
bool eager_floor_divide(op_call *c) { return divisor_ok(c) && pw_run(c, PW_div_floor, NULL); }
bool eager_div_mode(op_call *c)
{
    const tp_val *m = &c->arg[2];
    if (m->kind == VAL_none)
        return pw_run(c, PW_div, NULL);
    if (!divisor_ok(c))
        return false;
    if (*m->s == 't' && (c->out[0].dt == DT_f16 || c->out[0].dt == DT_bf16)) {
        /* the quotient is rounded to the narrow type before it is truncated */
        pw_in q = { c->res[0], NULL, false };
        return pw_run(c, PW_div, NULL) && pw_apply(c, PW_trunc, (dtype)c->res[0]->dt, c->res[0], &q, 1, NULL);
    }
    return pw_run(c, *m->s == 't' ? PW_div_trunc : PW_div_floor, NULL);
}

bool eager_clamp(op_call *c)
{
    pw_in in = { arg_t(c, 0), NULL, false };
    pw_par p = { { 0 }, { 0 } };
    int n = 0;
    bool lo = c->arg[1].kind != VAL_none, hi = c->arg[2].kind != VAL_none;
    for (int i = 1; i < 3; i++)
        if (c->arg[i].kind != VAL_none) {
            p.f[n] = val_as_f(&c->arg[i]);
            p.i[n++] = val_as_i(&c->arg[i]);
        }
    if ((lo && p.f[0] != p.f[0]) || (lo && hi && p.f[1] != p.f[1])) { /* a NaN bound wins */
        p.f[0] = NAN;
        pw_in nan = { NULL, &vF(NAN), false };
        return pw_apply(c, PW_maximum, (dtype)c->out[0].dt, c->res[0], (pw_in[]){ nan, in }, 2, &p);
    }
    return pw_apply(c,
                    lo && hi ? PW_clamp2
                    : lo     ? PW_clamp_lo
                             : PW_clamp_hi,
                    (dtype)c->out[0].dt, c->res[0], &in, 1, &p);
}

bool eager_clamp_tensor(op_call *c)
{
    pw_in in[3] = { { arg_t(c, 0), NULL, false } };
    int n = 1;
    bool lo = c->arg[1].kind != VAL_none, hi = c->arg[2].kind != VAL_none;
    for (int i = 1; i < 3; i++)
        if (c->arg[i].kind != VAL_none)
            in[n++] = (pw_in){ arg_t(c, i), &c->arg[i], false };
    return pw_apply(c,
                    lo && hi ? PW_clamp_t
                    : lo     ? PW_maximum
                             : PW_minimum,
                    (dtype)c->out[0].dt, c->res[0], in, n, NULL);
}

bool eager_where(op_call *c)
{
    pw_in in[3] = { { arg_t(c, 0), NULL, true },
                    { arg_t(c, 1), &c->arg[1], false },
                    { arg_t(c, 2), &c->arg[2], false } };
    return pw_apply(c, PW_where, (dtype)c->out[0].dt, c->res[0], in, 3, NULL);
}

bool eager_masked_fill(op_call *c)
{
    pw_in in[3] = { { arg_t(c, 1), NULL, true },
                    { arg_t(c, 2), &c->arg[2], false },
                    { arg_t(c, 0), NULL, false } };
    return pw_apply(c, PW_where, (dtype)c->out[0].dt, c->res[0], in, 3, NULL);
}

/* Exponents whose powers are products, quotients and roots; PW_COUNT: the others. */
static pw_id simple_power(double e, bool is_float)
{
    if (e == 2)
        return PW_square;
    if (e == 3)
        return PW_cube;
    if (!is_float)
        return PW_COUNT;
    return e == 0.5    ? PW_sqrt
           : e == -1   ? PW_reciprocal
           : e == -0.5 ? PW_rsqrt
           : e == -2   ? PW_inv_square
                       : PW_COUNT;
}

bool eager_pow_scalar(op_call *c)
{
    double e = val_as_f(&c->arg[1]);
    dtype dt = (dtype)c->out[0].dt;
    pw_in in[2] = { { arg_t(c, 0), NULL, false }, { NULL, &c->arg[1], false } };
    pw_id id = simple_power(e, dtype_is_float(dt));
    if (dt == DT_bool)
        return no_kernel(c, dt);
    if (id != PW_COUNT)
        return pw_apply(c, id, dt, c->res[0], in, 1, NULL);
    if (!dtype_is_float(dt))
        return pw_apply(c, PW_pow, dt, c->res[0], in, 2, NULL);
    return e == 1 ? tensor_copy(c->res[0], arg_t(c, 0), c->err) : lowered_run(c);
}

bool eager_pow_tensor(op_call *c) /* either may be a number */
{
    return dtype_is_float((dtype)c->out[0].dt) ? lowered_run(c) : pw_run(c, PW_pow, NULL);
}

/* The type whose limits stand in for infinities. */
bool eager_nan_to_num_any(op_call *c)
{
    dtype dt = (dtype)c->out[0].dt;
    if (!dtype_is_float(dt))
        return tensor_copy(c->res[0], arg_t(c, 0), c->err);
    double max = dt == DT_f64   ? DBL_MAX
                 : dt == DT_f32 ? FLT_MAX
                 : dt == DT_f16 ? 65504
                                : 3.3895313892515355e38;
    pw_par p = { { arg_f(c, 1, 0), arg_f(c, 2, max), arg_f(c, 3, -max) }, { 0 } };
    return pw_run(c, PW_nan_to_num, &p);
}

static bool approximates(op_call *c, const tp_val *v)
{
    return !strcmp(v->s, "tanh") || !strcmp(v->s, "none") ||
           err_set(c->err, ERR_runtime, "approximate argument must be either none or tanh.");
}
bool eager_gelu(op_call *c) { return approximates(c, &c->arg[1]) && lowered_run(c); }
bool eager_gelu_b(op_call *c) { return approximates(c, &c->arg[2]) && lowered_run(c); }

bool shape_polygamma(op_call *c)
{
    if (c->arg[0].i < 0)
        return err_set(c->err, ERR_runtime, "polygamma(n, x) does not support negative n.");
    return shape_pw_float(c);
}
bool eager_polygamma_n(op_call *c) /* polygamma(n, self) */
{
    pw_par p = { { (double)c->arg[0].i }, { 0 } };
    return pw_run(c, PW_polygamma, &p);
}

bool eager_round_decimals(op_call *c)
{
    pw_par p = { { (double)arg_i(c, 1, 0) }, { 0 } };
    return pw_run(c, PW_round_dec, &p);
}

bool eager_frexp(op_call *c)
{
    pw_in in = { arg_t(c, 0), NULL, false };
    dtype dt = (dtype)arg_t(c, 0)->dt;
    return pw_apply(c, PW_frexp_m, dt, c->res[0], &in, 1, NULL) &&
           pw_apply(c, PW_frexp_e, dt, c->res[1], &in, 1, NULL);
}

bool eager_positive(op_call *c) { return true; }
bool shape_logit_backward(op_call *c)
{
    dtype dt = (dtype)arg_t(c, 1)->dt;
    return shape_pw(c) && (dtype_is_float(dt) || no_kernel(c, dt));
}
bool eager_logit_b(op_call *c) /* grad, self, eps */
{
    double eps = arg_f(c, 2, -1);
    bld b;
    bld_init(&b, c->cx, c->err);
    tp_tensor *g = arg_t(c, 0), *x = arg_t(c, 1);
    tp_tensor *d = b_op(&b, mul_Tensor, vT(x), vT(b_op(&b, rsub_Tensor, vT(x), vF(1))));
    tp_tensor *r = b_op(&b, div_Tensor, vT(g), vT(d));
    double lo = eps < 0 ? 0 : eps;
    tp_tensor *in = b_op(&b, logical_and, vT(b_op(&b, ge_Tensor, vT(x), vF(lo))),
                         vT(b_op(&b, le_Tensor, vT(x), vF(1 - lo))));
    r = b_op(&b, where_self, vT(in), vT(r), vF(eps < 0 ? NAN : 0));
    bool ok = r && tensor_copy(c->res[0], r, c->err);
    bld_end(&b);
    return ok;
}
