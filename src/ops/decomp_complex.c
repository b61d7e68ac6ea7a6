/* decomp_complex.c - complex tensors as pairs of real numbers: the two views, and what is made of them. */
#include "ops/decomp.h"
#include <math.h>

#define RET(t) comp_ret(b, (t), out)

/* ---- views ---- */
bool shape_view_as_real(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    if (!dtype_is_complex((dtype)t->dt))
        return err_set(c->err, ERR_runtime, "view_as_real is only supported for complex tensors");
    if (t->ndim == TP_MAX_DIMS)
        return err_set(c->err, ERR_runtime, "view_as_real: too many dimensions");
    for (int d = 0; d < t->ndim; d++) {
        size[d] = t->size[d];
        stride[d] = sym_mul(t->stride[d], 2);
    }
    size[t->ndim] = 2;
    stride[t->ndim] = 1;
    op_out *o = out_view(c, 0, t->ndim + 1, size, stride, sym_mul(t->offset, 2));
    o->dt = (uint8_t)dtype_real_of((dtype)t->dt);
    return true;
}

bool shape_view_as_complex(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint stride[TP_MAX_DIMS];
    int last = t->ndim - 1;
    if (t->dt != DT_f32 && t->dt != DT_f64)
        return err_set(
            c->err, ERR_runtime,
            "view_as_complex is only supported for half, float and double tensors, but got a tensor of "
            "scalar type: %s",
            dtype_rows[t->dt].gname);
    if (last < 0)
        return err_set(c->err, ERR_runtime, "Input tensor must have one or more dimensions");
    if (!sym_eq(t->size[last], 2))
        return err_set(c->err, ERR_runtime, "Tensor must have a last dimension of size 2");
    if (!sym_eq(t->stride[last], 1))
        return err_set(c->err, ERR_runtime, "Tensor must have a last dimension with stride 1");
    for (int d = 0; d < last; d++) {
        if (!sym_eq(sym_mod(t->stride[d], 2), 0))
            return err_set(c->err, ERR_runtime,
                           "Tensor must have a stride divisible by 2 for all but last dimension");
        stride[d] = sym_floordiv(t->stride[d], 2);
    }
    if (!sym_eq(sym_mod(t->offset, 2), 0))
        return err_set(c->err, ERR_runtime, "Tensor must have a storage_offset divisible by 2");
    op_out *o = out_view(c, 0, last, t->size, stride, sym_floordiv(t->offset, 2));
    o->dt = (uint8_t)dtype_complex_of((dtype)t->dt);
    return true;
}

/* ---- parts ---- */
static tp_tensor *part(bld *b, const tp_val *x, int which)
{
    tp_tensor *r = b_op(b, view_as_real, *x);
    return b_op(b, select_int, vT(r), vI(-1), vI(which));
}
static bool is_complex(const tp_val *v) { return dtype_is_complex((dtype)val_t(v)->dt); }

bool decomp_real(bld *b, const tp_val *arg, tp_val *out)
{
    if (!is_complex(&arg[0]))
        return RET(arg[0].t);
    return RET(part(b, &arg[0], 0));
}
bool decomp_imag(bld *b, const tp_val *arg, tp_val *out)
{
    if (!is_complex(&arg[0]))
        return err_set(b->err, ERR_runtime, "imag is not implemented for tensors with non-complex dtypes.");
    return RET(part(b, &arg[0], 1));
}
bool decomp_conj(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(is_complex(&arg[0]) ? b_op(b, conj_physical, arg[0]) : arg[0].t);
}

/* The angle of a real number is 0 or pi, and that of NaN is NaN. */
bool decomp_angle(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[0].t;
    if (is_complex(&arg[0])) {
        tp_tensor *re = part(b, &arg[0], 0), *im = part(b, &arg[0], 1);
        tp_tensor *none = b_op(b, eq_Tensor, vT(x), vI(0)); /* there its gradient is 0 */
        re = b_op(b, where_self, vT(none), vT(b_op(b, detach, vT(re))), vT(re));
        im = b_op(b, where_self, vT(none), vT(b_op(b, detach, vT(im))), vT(im));
        return RET(b_op(b, atan2, vT(im), vT(re)));
    }
    dtype dt = dtype_is_float((dtype)x->dt) ? (dtype)x->dt : b->cx->default_dtype;
    if (x->dt == DT_bool)
        return RET(b_op(b, zeros_like, vT(x), vDT(dt)));
    tp_tensor *f = (dtype)x->dt == dt ? x : b_op(b, to_dtype, vT(x), vDT(dt));
    tp_tensor *zero = b_op(b, zeros_like, vT(f));
    tp_tensor *neg = b_op(b, where_self, vT(b_op(b, lt_Tensor, vT(f), vI(0))), vF(M_PI), vT(zero));
    return RET(b_op(b, where_self, vT(b_op(b, isnan, vT(f))), vT(f), vT(neg)));
}
bool decomp_isreal(bld *b, const tp_val *arg, tp_val *out)
{
    if (!is_complex(&arg[0]))
        return RET(b_op(b, ones_like, arg[0], vDT(DT_bool)));
    return RET(b_op(b, eq_Tensor, vT(part(b, &arg[0], 1)), vI(0)));
}

static bool pair_ok(bld *b, const char *name, const tp_val *arg)
{
    tp_tensor *x = val_t(&arg[0]), *y = val_t(&arg[1]);
    if (!dtype_is_float((dtype)x->dt) || !dtype_is_float((dtype)y->dt) || x->dt == DT_bf16)
        return err_set(b->err, ERR_runtime,
                       "Expected both inputs to be Half, Float or Double tensors but got %s and %s",
                       dtype_rows[x->dt].gname, dtype_rows[y->dt].gname);
    if (x->dt != y->dt)
        return err_set(b->err, ERR_runtime,
                       "Expected object of scalar type %s but got scalar type %s for second argument",
                       dtype_rows[x->dt].gname, dtype_rows[y->dt].gname);
    if (x->dt == DT_f16)
        return err_set(b->err, ERR_notimpl, "%s(): tensors of type complex32 are not supported", name);
    return true;
}
static tp_tensor *pair(bld *b, tp_tensor *re, tp_tensor *im)
{
    tp_tensor *both[2] = { 0 };
    if (!re || !im)
        return NULL;
    if (!tensor_same_size(re, im)) {
        if (!b_opn(b, broadcast_tensors, both, 2, vTs(((tp_tensor *[]){ re, im }), 2)))
            return NULL;
        re = both[0];
        im = both[1];
    }
    symint at[TP_MAX_DIMS];
    int64_t order[TP_MAX_DIMS], back[TP_MAX_DIMS];
    int nd = re->ndim;
    bool turned = false;
    if (nd > 1) { /* it lies in memory as a pointwise result does */
        shape_pointwise_strides(nd, re->size, 2, (tp_tensor *[]){ re, im }, at);
        for (int i = 0; i < nd; i++) {
            int k = i;
            for (; k > 0 && (sym_lt(at[order[k - 1]], at[i]) ||
                             (at[order[k - 1]] == at[i] && re->size[order[k - 1]] == 1 && re->size[i] != 1));
                 k--) /* of equal strides, that of one element is the inner one */
                order[k] = order[k - 1];
            order[k] = i;
        }
        for (int i = 0; i < nd; i++) {
            back[order[i]] = i;
            turned |= order[i] != i;
        }
    }
    if (turned) {
        re = b_op(b, permute, vT(re), vIs(order, nd));
        im = b_op(b, permute, vT(im), vIs(order, nd));
    }
    tp_tensor *s = b_op(b, stack, vTs(((tp_tensor *[]){ re, im }), 2), vI(-1));
    symint row[TP_MAX_DIMS];
    if (s)
        shape_contiguous_strides(s->ndim, s->size, row);
    if (s && memcmp(row, s->stride, sizeof *row * (size_t)s->ndim)) /* pairs lie side by side */
        s = b_op(b, clone, vT(s), vMF(MF_contiguous));
    s = b_op(b, view_as_complex, vT(s));
    return turned ? b_op(b, permute, vT(s), vIs(back, nd)) : s;
}
bool decomp_complex(bld *b, const tp_val *arg, tp_val *out)
{
    return pair_ok(b, "complex", arg) && RET(pair(b, arg[0].t, arg[1].t));
}
bool decomp_polar(bld *b, const tp_val *arg, tp_val *out)
{
    if (!pair_ok(b, "polar", arg))
        return false;
    tp_tensor *re = b_op(b, mul_Tensor, arg[0], vT(b_op(b, cos, arg[1])));
    tp_tensor *im = b_op(b, mul_Tensor, arg[0], vT(b_op(b, sin, arg[1])));
    return RET(pair(b, re, im));
}
