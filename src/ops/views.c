/* views.c - shape rules of operators that only change how bytes are looked at. */
#include "ops/op.h"

/* Replaces one -1 by what is left; false with PyTorch's message when it does not fit. */
static bool infer_size(const tp_tensor *t, int n, const symint *want, symint *size, tp_err *err)
{
    int hole = -1;
    symint known = 1;
    for (int i = 0; i < n; i++) {
        size[i] = want[i];
        if (!sym_is_expr(want[i]) && want[i] == -1) {
            if (hole >= 0)
                return err_set(err, ERR_runtime, "only one dimension can be inferred");
            hole = i;
        } else if (!sym_is_expr(want[i]) && want[i] < 0)
            return err_set(err, ERR_runtime, "invalid shape dimension %lld", (long long)want[i]);
        else
            known = sym_mul(known, want[i]);
    }
    bool fits = hole < 0 ? sym_eq(known, t->numel) : !sym_eq(known, 0) && sym_eq(sym_mod(t->numel, known), 0);
    if (fits) {
        if (hole >= 0)
            size[hole] = sym_floordiv(t->numel, known);
        return true;
    }
    strbuf b = { 0 };
    shape_print(&b, n, want);
    if (hole >= 0 && sym_eq(known, 0))
        err_set(err, ERR_runtime,
                "cannot reshape tensor of 0 elements into shape %s because the unspecified dimension size -1 "
                "can be "
                "any value and is ambiguous",
                strbuf_str(&b));
    else {
        strbuf s = { 0 };
        sym_is_expr(t->numel) ? sym_print(&s, t->numel) : strbuf_addf(&s, "%lld", (long long)t->numel);
        err_set(err, ERR_runtime, "shape '%s' is invalid for input of size %s", strbuf_str(&b),
                strbuf_str(&s));
        strbuf_free(&s);
    }
    strbuf_free(&b);
    return false;
}

/* Strides of `size` over t's memory, or false when no view can have that shape. */
bool view_strides(const tp_tensor *t, int n, const symint *size, symint *stride)
{
    if (sym_eq(t->numel, 0)) {
        shape_contiguous_strides(n, size, stride);
        return true;
    }
    if (tensor_is_contiguous(t)) {
        shape_contiguous_strides(n, size, stride);
        return true;
    }
    int v = n - 1;
    symint base = t->ndim ? t->stride[t->ndim - 1] : 1, chunk = 1, done = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        chunk = sym_mul(chunk, t->size[d]);
        if (d > 0 && (sym_eq(t->size[d - 1], 1) || sym_eq(t->stride[d - 1], sym_mul(chunk, base))))
            continue;
        while (v >= 0 && (sym_lt(done, chunk) || sym_eq(size[v], 1))) {
            stride[v] = sym_mul(done, base);
            done = sym_mul(done, size[v]);
            v--;
        }
        if (!sym_eq(done, chunk))
            return false;
        if (d > 0) {
            base = t->stride[d - 1];
            chunk = done = 1;
        }
    }
    return v < 0;
}

bool shape_view(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int n = c->arg[1].n;
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    if (n > TP_MAX_DIMS)
        return err_set(c->err, ERR_runtime, "tensor has too many (>%d) dims", TP_MAX_DIMS);
    if (!infer_size(t, n, c->arg[1].ints, size, c->err))
        return false;
    if (!view_strides(t, n, size, stride))
        return err_set(
            c->err, ERR_runtime,
            "view size is not compatible with input tensor's size and stride (at least one dimension spans "
            "across two contiguous subspaces). Use .reshape(...) instead.");
    return out_view(c, 0, n, size, stride, t->offset) != NULL;
}

bool shape_expand(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int n = c->arg[1].n, off = n - t->ndim;
    const symint *want = c->arg[1].ints;
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    strbuf b = { 0 };
    if (off < 0 || n > TP_MAX_DIMS) {
        shape_print(&b, n, want);
        err_set(c->err, ERR_runtime,
                "expand: the number of sizes provided (%d) must be greater or equal to the number of "
                "dimensions in "
                "the tensor (%d)",
                n, t->ndim);
        strbuf_free(&b);
        return false;
    }
    for (int i = 0; i < n; i++) {
        symint have = i >= off ? t->size[i - off] : 1, w = want[i];
        bool keep = !sym_is_expr(w) && w == -1;
        if (keep && i < off)
            return err_set(
                c->err, ERR_runtime,
                "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension %d",
                i);
        size[i] = keep ? have : w;
        stride[i] = i >= off ? t->stride[i - off] : 0;
        if (!sym_eq(have, size[i])) {
            if (!sym_eq(have, 1)) {
                strbuf tgt = { 0 };
                shape_print(&tgt, n, want);
                shape_print(&b, t->ndim, t->size);
                err_set(c->err, ERR_runtime,
                        "The expanded size of the tensor (%lld) must match the existing size (%lld) at "
                        "non-singleton "
                        "dimension %d.  Target sizes: %s.  Tensor sizes: %s",
                        (long long)size[i], (long long)have, i, strbuf_str(&tgt), strbuf_str(&b));
                strbuf_free(&b);
                strbuf_free(&tgt);
                return false;
            }
            stride[i] = 0;
        } else if (i < off)
            stride[i] = 0;
    }
    return out_view(c, 0, n, size, stride, t->offset) != NULL;
}

bool shape_permute(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    uint32_t seen = 0;
    if (c->arg[1].n != t->ndim)
        return err_set(
            c->err, ERR_runtime,
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
            "desired ordering of dimensions i.e. input.dim() = %d is not equal to len(dims) = %d",
            t->ndim, c->arg[1].n);
    for (int i = 0; i < t->ndim; i++) {
        int d;
        if (!dim_wrap(c->arg[1].ints[i], t->ndim, &d, c->err))
            return false;
        if (seen >> d & 1)
            return err_set(c->err, ERR_runtime, "permute(): duplicate dims are not allowed.");
        seen |= 1u << d;
        size[i] = t->size[d];
        stride[i] = t->stride[d];
    }
    return out_view(c, 0, t->ndim, size, stride, t->offset) != NULL;
}

bool shape_transpose(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int a, b;
    if (!arg_dim(c, 1, t->ndim, &a) || !arg_dim(c, 2, t->ndim, &b))
        return false;
    op_out *o = out_view(c, 0, t->ndim, t->size, t->stride, t->offset);
    if (t->ndim) {
        symint s = o->size[a], r = o->stride[a];
        o->size[a] = o->size[b];
        o->stride[a] = o->stride[b];
        o->size[b] = s;
        o->stride[b] = r;
    }
    return true;
}

bool shape_alias(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    return out_view(c, 0, t->ndim, t->size, t->stride, t->offset) != NULL;
}
