/* decomp_pw.c - pointwise operators that are defined by simpler ones. */
#include "ops/op.h"

static bool give(bld *b, tp_tensor *t, tp_val *out)
{
    if (!t || b->failed)
        return false;
    *out = vT(tensor_ref(t));
    return true;
}

bool decomp_relu6(bld *b, const tp_val *arg, tp_val *out)
{
    return give(b, b_op(b, hardtanh, arg[0], vI(0), vI(6)), out);
}
bool decomp_selu(bld *b, const tp_val *arg, tp_val *out)
{
    return give(
        b, b_op(b, elu, arg[0], vF(1.6732632423543772848170429916717), vF(1.0507009873554804934193349852946)),
        out);
}
bool decomp_celu(bld *b, const tp_val *arg, tp_val *out)
{
    double a = val_as_f(&arg[1]);
    if (a == 0)
        return err_set(b->err, ERR_runtime, "ZeroDivisionError: alpha cannot be 0 for CELU");
    return give(b, b_op(b, elu, arg[0], vF(a), vI(1), vF(1 / a)), out);
}
bool decomp_ldexp(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[0].t, *p = b_op(b, pow_Tensor_Tensor, vF(2), arg[1]);
    if (p && dtype_is_float((dtype)x->dt) && !dtype_is_float((dtype)arg[1].t->dt) && p->dt != x->dt)
        p = b_op(b, to_dtype, vT(p), vDT(x->dt)); /* a whole exponent does not widen the result */
    return give(b, b_op(b, mul_Tensor, arg[0], vT(p)), out);
}
static tp_val as_f64(bld *b, tp_val v)
{
    if (v.kind != VAL_tensor)
        return vF(val_as_f(&v));
    return v.t->dt == DT_f64 ? v : vT(b_op(b, to_dtype, v, vDT(DT_f64)));
}
static bool is_complex(const tp_val *v)
{
    return v->kind == VAL_complex || (v->kind == VAL_tensor && dtype_is_complex((dtype)v->t->dt));
}
bool decomp_float_power(bld *b, const tp_val *arg, tp_val *out)
{
    if (is_complex(&arg[0]) || is_complex(&arg[1])) {
        tp_val x[2];
        for (int i = 0; i < 2; i++)
            x[i] = arg[i].kind == VAL_tensor ? vT(b_op(b, to_dtype, arg[i], vDT(DT_c128))) : arg[i];
        return give(b, b_op(b, pow_Tensor_Tensor, x[0], x[1]), out);
    }
    return give(b, b_op(b, pow_Tensor_Tensor, as_f64(b, arg[0]), as_f64(b, arg[1])), out);
}

/* |a - b| <= atol + rtol |b|; equal infinities are close; NaNs only when asked. */
bool decomp_isclose(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[0].t, *y = arg[1].t;
    double rtol = val_as_f(&arg[2]), atol = val_as_f(&arg[3]);
    if (x->dt != y->dt)
        return err_set(b->err, ERR_runtime, "%s did not match %s", dtype_rows[x->dt].gname,
                       dtype_rows[y->dt].gname);
    if (rtol < 0)
        return err_set(b->err, ERR_runtime, "rtol must be greater than or equal to zero, but got %g", rtol);
    if (atol < 0)
        return err_set(b->err, ERR_runtime, "atol must be greater than or equal to zero, but got %g", atol);
    tp_tensor *close = b_op(b, eq_Tensor, vT(x), vT(y));
    bool flt = dtype_has_grad((dtype)x->dt);
    if (flt && arg[4].b)
        close = b_op(b, logical_or, vT(close),
                     vT(b_op(b, logical_and, vT(b_op(b, isnan, vT(x))), vT(b_op(b, isnan, vT(y))))));
    if (rtol == 0 && atol == 0)
        return give(b, close, out);
    if (x->dt == DT_bool) { /* differences of bools are not defined: compare as numbers */
        x = b_op(b, to_dtype, vT(x), vDT(DT_i64));
        y = b_op(b, to_dtype, vT(y), vDT(DT_i64));
    }
    tp_tensor *scaled = b_op(b, abs, vT(b_op(b, mul_Tensor, vT(y), vF(rtol))));
    tp_tensor *allowed = b_op(b, add_Tensor, vT(scaled), vF(atol));
    tp_tensor *actual = b_op(b, abs, vT(b_op(b, sub_Tensor, vT(x), vT(y))));
    tp_tensor *in = b_op(b, logical_and, vT(b_op(b, isfinite, vT(actual))),
                         vT(b_op(b, le_Tensor, vT(actual), vT(allowed))));
    return give(b, b_op(b, logical_or, vT(close), vT(in)), out);
}

bool decomp_gammainc(bld *b, const tp_val *arg, tp_val *out)
{
    return give(b, b_op(b, igamma, arg[0], arg[1]), out);
}
bool decomp_gammaincc(bld *b, const tp_val *arg, tp_val *out)
{
    return give(b, b_op(b, igammac, arg[0], arg[1]), out);
}
