/* views.c - shape rules of operators that only change how bytes are looked at. */
#include "ops/decomp.h"

/* Replaces one -1 by what is left; false with PyTorch's message when it does not fit. */
bool view_infer(const tp_tensor *t, int n, const symint *want, symint *size, tp_err *err)
{
    int hole = -1;
    symint known = 1;
    for (int i = 0; i < n; i++) {
        size[i] = want[i];
        if (!sym_is_expr(want[i]) && want[i] == -1) {
            if (hole >= 0)
                return err_set(err, ERR_runtime, "only one dimension can be inferred");
            hole = i;
        } else if (!sym_is_expr(want[i]) && want[i] < 0) {
            strbuf b = { 0 };
            shape_print(&b, n, want);
            err_set(err, ERR_runtime, "invalid shape dimension %lld at index %d of shape %s",
                    (long long)want[i], i, strbuf_str(&b));
            strbuf_free(&b);
            return false;
        } else
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
    if (!view_infer(t, n, c->arg[1].ints, size, c->err))
        return false;
    if (!view_strides(t, n, size, stride))
        return err_set(
            c->err, ERR_runtime,
            "view size is not compatible with input tensor's size and stride (at least one dimension spans "
            "across two contiguous subspaces). Use .reshape(...) instead.");
    return out_view(c, 0, n, size, stride, t->offset) != NULL;
}

static bool numel_fits(int n, const symint *size, tp_err *err)
{
    symint all = 1;
    for (int i = 0; i < n; i++)
        all = sym_mul(all, size[i]);
    for (int i = 0; i < n && all == SYM_LIMIT - 1; i++)
        if (sym_eq(size[i], 0))
            return true;
    return all != SYM_LIMIT - 1 || err_set(err, ERR_runtime, "numel: integer multiplication overflow");
}

bool shape_expand(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int n = c->arg[1].n, off = n - t->ndim;
    const symint *want = c->arg[1].ints;
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    strbuf b = { 0 };
    if (off < 0 || n > TP_MAX_DIMS) {
        strbuf_addf(&b, "expand(%s.%sTensor{", "torch", dtype_rows[t->dt].gname);
        shape_print(&b, t->ndim, t->size);
        strbuf_add(&b, "}, size=");
        shape_print(&b, n, want);
        err_set(
            c->err, ERR_runtime,
            "%s): the number of sizes provided (%d) must be greater or equal to the number of dimensions in "
            "the tensor (%d)",
            strbuf_str(&b), n, t->ndim);
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
        if (!keep && sym_lt(w, 0))
            return err_set(
                c->err, ERR_runtime,
                "The expanded size of the tensor (%lld) isn't allowed: it is negative, in dimension %d",
                (long long)w, i);
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
    return numel_fits(n, size, c->err) && out_view(c, 0, n, size, stride, t->offset) != NULL;
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

/* ---- fewer and more dimensions ---- */
static bool squeeze_mask(op_call *c, uint32_t mask)
{
    tp_tensor *t = arg_t(c, 0);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < t->ndim; d++)
        if (!(mask >> d & 1) || !sym_eq(t->size[d], 1)) {
            size[n] = t->size[d];
            stride[n++] = t->stride[d];
        }
    return out_view(c, 0, n, size, stride, t->offset) != NULL;
}

bool shape_squeeze(op_call *c) { return squeeze_mask(c, ~0u); }
bool shape_squeeze_dim(op_call *c)
{
    int d;
    return arg_dim(c, 1, arg_t(c, 0)->ndim, &d) && squeeze_mask(c, 1u << d);
}
bool shape_squeeze_dims(op_call *c)
{
    uint32_t mask;
    return arg_dims(c, 1, arg_t(c, 0)->ndim, false, &mask) && squeeze_mask(c, mask);
}

bool shape_unsqueeze(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    int d, n = 0;
    if (t->ndim + 1 > TP_MAX_DIMS)
        return err_set(c->err, ERR_runtime, "tensor has too many (>%d) dims", TP_MAX_DIMS);
    if (!arg_dim(c, 1, t->ndim + 1, &d))
        return false;
    for (int i = 0; i <= t->ndim; i++) {
        if (i == d) {
            size[n] = 1;
            stride[n++] = d < t->ndim ? sym_mul(t->size[d], t->stride[d]) : 1;
        }
        if (i < t->ndim) {
            size[n] = t->size[i];
            stride[n++] = t->stride[i];
        }
    }
    return out_view(c, 0, n, size, stride, t->offset) != NULL;
}

bool shape_t(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    if (t->ndim > 2)
        return err_set(c->err, ERR_runtime, "t() expects a tensor with <= 2 dimensions, but self is %dD",
                       t->ndim);
    op_out *o = out_view(c, 0, t->ndim, t->size, t->stride, t->offset);
    if (t->ndim == 2) {
        o->size[0] = t->size[1];
        o->size[1] = t->size[0];
        o->stride[0] = t->stride[1];
        o->stride[1] = t->stride[0];
    }
    return true;
}

/* ---- parts ---- */
bool shape_select(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS], i = c->arg[2].i;
    int d, n = 0;
    if (t->ndim == 0)
        return err_set(c->err, ERR_index, "select() cannot be applied to a 0-dim tensor.");
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    if (sym_lt(i, sym_sub(0, t->size[d])) || sym_ge(i, t->size[d])) {
        size_text a, b;
        return err_set(c->err, ERR_index,
                       "select(): index %s out of range for tensor of size %s at dimension %d",
                       size_str(&a, i), sizes_str(&b, t->ndim, t->size), d);
    }
    if (sym_lt(i, 0))
        i = sym_add(i, t->size[d]);
    for (int k = 0; k < t->ndim; k++)
        if (k != d) {
            size[n] = t->size[k];
            stride[n++] = t->stride[k];
        }
    return out_view(c, 0, n, size, stride, sym_add(t->offset, sym_mul(i, t->stride[d]))) != NULL;
}

/* Python's slice rules for one dimension: bounds wrap once, then clamp. INT64_MAX (which could be mistaken
 * for an expression) means "to the end". */
static void slice_bounds(symint n, const tp_val *vs, const tp_val *ve, symint step, symint *start,
                         symint *len)
{
    symint s = vs->kind == VAL_none ? 0 : vs->i == INT64_MAX ? n : vs->i;
    symint e = ve->kind == VAL_none || ve->i == INT64_MAX ? n : ve->i;
    if (sym_lt(s, 0))
        s = sym_add(s, n);
    if (sym_lt(s, 0))
        s = 0;
    else if (sym_gt(s, n))
        s = n;
    if (e != n) {
        if (sym_lt(e, 0))
            e = sym_add(e, n);
        if (sym_gt(e, n))
            e = n;
    }
    if (sym_lt(e, s))
        e = s;
    *start = s;
    *len = step == 1 ? sym_sub(e, s) : sym_floordiv(sym_add(sym_sub(e, s), sym_sub(step, 1)), step);
}

bool shape_slice(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint step = arg_i(c, 4, 1), start, len;
    int d;
    if (t->ndim == 0)
        return err_set(c->err, ERR_index, "slice() cannot be applied to a 0-dim tensor.");
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    if (sym_le(step, 0))
        return err_set(c->err, ERR_runtime, "slice step must be positive");
    slice_bounds(t->size[d], &c->arg[2], &c->arg[3], step, &start, &len);
    op_out *o = out_view(c, 0, t->ndim, t->size, t->stride, sym_add(t->offset, sym_mul(start, t->stride[d])));
    o->size[d] = len;
    o->stride[d] = sym_mul(t->stride[d], step);
    return true;
}

bool shape_narrow(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint start = c->arg[2].i, len = c->arg[3].i;
    size_text a, b, e;
    int d;
    if (t->ndim == 0)
        return err_set(c->err, ERR_runtime, "narrow() cannot be applied to a 0-dim tensor.");
    if (sym_lt(len, 0))
        return err_set(c->err, ERR_runtime, "narrow(): length must be non-negative.");
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    symint n = t->size[d];
    if (sym_lt(start, sym_sub(0, n)) || sym_gt(start, n))
        return err_set(c->err, ERR_index,
                       "start out of range (expected to be in range of [-%s, %s], but got %s)",
                       size_str(&a, n), a.s, size_str(&b, start));
    if (sym_lt(start, 0))
        start = sym_add(start, n);
    if (sym_gt(sym_add(start, len), n))
        return err_set(c->err, ERR_runtime, "start (%s) + length (%s) exceeds dimension size (%s).",
                       size_str(&a, start), size_str(&b, len), size_str(&e, n));
    op_out *o = out_view(c, 0, t->ndim, t->size, t->stride, sym_add(t->offset, sym_mul(start, t->stride[d])));
    o->size[d] = len;
    return true;
}

bool pieces_fit(int64_t n, tp_err *err)
{
    return n <= 1 << 24 || err_set(err, ERR_runtime, "%lld pieces of one tensor are too many (at most %d)",
                                   (long long)n, 1 << 24);
}

static void add_part(op_call *c, int d, symint start, symint len)
{
    tp_tensor *t = arg_t(c, 0);
    op_out *o = out_view(c, 0, t->ndim, t->size, t->stride, sym_add(t->offset, sym_mul(start, t->stride[d])));
    o->size[d] = len;
}

bool shape_split(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint part = c->arg[1].i;
    size_text a;
    int d;
    if (t->ndim == 0)
        return err_set(c->err, ERR_runtime, "split expects at least a 1-dimensional tensor");
    if (sym_lt(part, 0))
        return err_set(c->err, ERR_runtime, "split expects split_size be non-negative, but got split_size=%s",
                       size_str(&a, part));
    if (!arg_dim(c, 2, t->ndim, &d))
        return false;
    symint n = t->size[d];
    if (sym_eq(part, 0)) {
        if (!sym_eq(n, 0))
            return err_set(c->err, ERR_runtime,
                           "split_size can only be 0 if dimension size is 0, but got dimension size of %s",
                           size_str(&a, n));
        add_part(c, d, 0, 0);
        return true;
    }
    symint nparts = sym_max(sym_floordiv(sym_sub(sym_add(n, part), 1), part), 1);
    int64_t k = sym_is_expr(nparts) ? sym_specialize(nparts) : nparts;
    if (!pieces_fit(k, c->err))
        return false;
    for (int64_t i = 0; i < k; i++) {
        symint at = sym_mul(part, i);
        add_part(c, d, at, i < k - 1 ? part : sym_sub(n, at));
    }
    return true;
}

bool shape_split_sizes(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    const tp_val *v = &c->arg[1];
    symint sum = 0;
    size_text a, b;
    int d;
    if (t->ndim == 0)
        return err_set(c->err, ERR_runtime, "split expects at least a 1-dimensional tensor");
    if (!arg_dim(c, 2, t->ndim, &d))
        return false;
    for (int i = 0; i < v->n; i++) {
        if (sym_lt(v->ints[i], 0))
            return err_set(
                c->err, ERR_runtime,
                "split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes=%s",
                sizes_str(&a, v->n, v->ints));
        sum = sym_add(sum, v->ints[i]);
    }
    if (!sym_eq(sum, t->size[d]))
        return err_set(c->err, ERR_runtime,
                       "split_with_sizes expects split_sizes to sum exactly to %s (input tensor's size at "
                       "dimension %d), but got split_sizes=%s",
                       size_str(&b, t->size[d]), d, sizes_str(&a, v->n, v->ints));
    symint at = 0;
    for (int i = 0; i < v->n; i++) {
        add_part(c, d, at, v->ints[i]);
        at = sym_add(at, v->ints[i]);
    }
    return true;
}

bool shape_unbind(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    int d, n = 0;
    if (t->ndim == 0)
        return err_set(c->err, ERR_index, "Dimension specified as %lld but tensor has no dimensions",
                       (long long)arg_i(c, 1, 0));
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    int64_t len = sym_is_expr(t->size[d]) ? sym_specialize(t->size[d]) : t->size[d];
    if (!pieces_fit(len, c->err))
        return false;
    for (int k = 0; k < t->ndim; k++)
        if (k != d) {
            size[n] = t->size[k];
            stride[n++] = t->stride[k];
        }
    for (int64_t i = 0; i < len; i++)
        out_view(c, 0, n, size, stride, sym_add(t->offset, sym_mul(i, t->stride[d])));
    return true;
}

/* ---- arbitrary geometry ---- */
bool shape_as_strided(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    const tp_val *sz = &c->arg[1], *st = &c->arg[2];
    symint off = c->arg[3].kind == VAL_none ? t->offset : c->arg[3].i, bytes;
    size_text a, b;
    if (sz->n != st->n)
        return err_set(c->err, ERR_runtime, "mismatch in length of strides and shape");
    if (sz->n > TP_MAX_DIMS)
        return err_set(c->err, ERR_runtime, "tensor has too many (>%d) dims", TP_MAX_DIMS);
    for (int i = 0; i < st->n; i++)
        if (sym_lt(st->ints[i], 0))
            return err_set(c->err, ERR_runtime,
                           "as_strided: Negative strides are not supported at the moment, got strides: %s",
                           sizes_str(&a, st->n, st->ints));
    if (sym_lt(off, 0))
        return err_set(c->err, ERR_runtime, "Tensor: invalid storage offset %s", size_str(&a, off));
    if (!shape_check_sizes(sz->n, sz->ints, c->err) ||
        !shape_storage_bytes((dtype)t->dt, sz->n, sz->ints, st->ints, off, &bytes, c->err))
        return false;
    if (!sym_is_expr(bytes) && !sym_is_expr(t->storage->nbytes) && bytes > t->storage->nbytes)
        return err_set(c->err, ERR_runtime,
                       "setStorage: sizes %s, strides %s, storage offset %lld, and itemsize %d requiring a "
                       "storage size of %lld are out of bounds for storage of size %lld",
                       sizes_str(&a, sz->n, sz->ints), sizes_str(&b, st->n, st->ints), (long long)off,
                       (int)dtype_size((dtype)t->dt), (long long)bytes, (long long)t->storage->nbytes);
    return numel_fits(sz->n, sz->ints, c->err) && out_view(c, 0, sz->n, sz->ints, st->ints, off) != NULL;
}

bool shape_diagonal(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS], off = arg_i(c, 1, 0), len, at = t->offset;
    int a, b, n = 0;
    if (!arg_dim(c, 2, t->ndim, &a) || !arg_dim(c, 3, t->ndim, &b))
        return false;
    if (a == b)
        return err_set(c->err, ERR_runtime, "diagonal dimensions cannot be identical %lld, %lld",
                       (long long)c->arg[2].i, (long long)c->arg[3].i);
    if (sym_ge(off, 0))
        len = sym_max(sym_min(t->size[a], sym_sub(t->size[b], off)), 0);
    else
        len = sym_max(sym_min(sym_add(t->size[a], off), t->size[b]), 0);
    if (!sym_eq(len, 0)) /* an empty diagonal must not point outside the storage */
        at = sym_ge(off, 0) ? sym_add(at, sym_mul(off, t->stride[b]))
                            : sym_sub(at, sym_mul(off, t->stride[a]));
    for (int k = 0; k < t->ndim; k++)
        if (k != a && k != b) {
            size[n] = t->size[k];
            stride[n++] = t->stride[k];
        }
    size[n] = len;
    stride[n++] = sym_add(t->stride[a], t->stride[b]);
    return out_view(c, 0, n, size, stride, at) != NULL;
}

bool shape_unfold(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint win = c->arg[2].i, step = c->arg[3].i;
    size_text a, b;
    int d;
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    symint max = t->ndim ? t->size[d] : 1;
    if (sym_gt(win, max))
        return err_set(c->err, ERR_runtime, "maximum size for tensor at dimension %d is %s but size is %s", d,
                       size_str(&a, max), size_str(&b, win));
    if (sym_lt(win, 0))
        return err_set(c->err, ERR_runtime, "size is %s but must be >= 0", size_str(&a, win));
    if (sym_le(step, 0))
        return err_set(c->err, ERR_runtime, "step is %s but must be > 0", size_str(&a, step));
    if (t->ndim + 1 > TP_MAX_DIMS)
        return err_set(c->err, ERR_runtime, "tensor has too many (>%d) dims", TP_MAX_DIMS);
    op_out *o = out_view(c, 0, t->ndim, t->size, t->stride, t->offset);
    o->ndim++;
    o->size[t->ndim] = win;
    o->stride[t->ndim] = t->ndim ? t->stride[d] : 1;
    if (t->ndim) {
        o->size[d] = sym_add(sym_floordiv(sym_sub(max, win), step), 1);
        o->stride[d] = sym_mul(step, t->stride[d]);
    }
    return true;
}

/* The same bytes as another type: the last dimension grows or shrinks with the element size. */
bool shape_view_dtype(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    dtype to = (dtype)c->arg[1].i, from = (dtype)t->dt;
    int64_t es = (int64_t)dtype_size(from), ns = (int64_t)dtype_size(to);
    const char *fn = dtype_rows[from].gname, *tn = dtype_rows[to].gname;
    op_out *o = out_view(c, 0, t->ndim, t->size, t->stride, t->offset);
    size_text a;
    int last = t->ndim - 1;
    o->dt = (uint8_t)to;
    if (es == ns)
        return true;
    if (t->ndim == 0)
        return err_set(c->err, ERR_runtime,
                       "self.dim() cannot be 0 to view %s as %s (different element sizes)", fn, tn);
    if (es > ns) {
        int64_t r = es / ns;
        if (!sym_eq(t->stride[last], 1))
            return err_set(c->err, ERR_runtime,
                           "self.stride(-1) must be 1 to view %s as %s (different element sizes), but got %s",
                           fn, tn, size_str(&a, t->stride[last]));
        for (int d = 0; d < last; d++)
            o->stride[d] = sym_mul(t->stride[d], r);
        o->size[last] = sym_mul(t->size[last], r);
        o->offset = sym_mul(t->offset, r);
        return true;
    }
    int64_t r = ns / es;
    if (!sym_eq(sym_mod(t->size[last], r), 0))
        return err_set(
            c->err, ERR_runtime,
            "self.size(-1) must be divisible by %lld to view %s as %s (different element sizes), but "
            "got %s",
            (long long)r, fn, tn, size_str(&a, t->size[last]));
    if (!sym_eq(sym_mod(t->offset, r), 0))
        return err_set(c->err, ERR_runtime,
                       "self.storage_offset() must be divisible by %lld to view %s as %s (different element "
                       "sizes), but got %s",
                       (long long)r, fn, tn, size_str(&a, t->offset));
    for (int d = 0; d < last; d++) {
        if (!sym_eq(sym_mod(t->stride[d], r), 0))
            return err_set(c->err, ERR_runtime,
                           "self.stride(%d) must be divisible by %lld to view %s as %s (different element "
                           "sizes), but got %s",
                           d, (long long)r, fn, tn, size_str(&a, t->stride[d]));
        o->stride[d] = sym_floordiv(t->stride[d], r);
    }
    if (!sym_eq(t->stride[last], 1))
        return err_set(c->err, ERR_runtime,
                       "self.stride(-1) must be 1 to view %s as %s (different element sizes), but got %s", fn,
                       tn, size_str(&a, t->stride[last]));
    o->size[last] = sym_floordiv(t->size[last], r);
    o->offset = sym_floordiv(t->offset, r);
    return true;
}

/* ---- in place: the header of the first argument changes, its bytes stay ---- */
static bool apply_header(op_call *c)
{
    op_out *o = &c->out[0];
    tp_tensor *t = arg_t(c, 0);
    return tensor_reset(t, t->storage, (dtype)t->dt, o->ndim, o->size, o->stride, o->offset, c->err);
}

/* The view rule has described the new header in out[0]; fake tensors change at once, real ones in the kernel.
 */
static bool as_header(op_call *c, bool ok)
{
    if (!ok)
        return false;
    c->out[0].kind = OUT_self;
    c->out[0].alias = 0;
    return !tensor_is_fake(arg_t(c, 0)) || apply_header(c);
}

bool eager_header(op_call *c) { return apply_header(c); }
bool shape_header_squeeze(op_call *c) { return as_header(c, shape_squeeze(c)); }
bool shape_header_squeeze_dim(op_call *c) { return as_header(c, shape_squeeze_dim(c)); }
bool shape_header_squeeze_dims(op_call *c) { return as_header(c, shape_squeeze_dims(c)); }
bool shape_header_unsqueeze(op_call *c) { return as_header(c, shape_unsqueeze(c)); }
bool shape_header_transpose(op_call *c) { return as_header(c, shape_transpose(c)); }
bool shape_header_t(op_call *c) { return as_header(c, shape_t(c)); }
bool shape_header_as_strided(op_call *c) { return as_header(c, shape_as_strided(c)); }

static bool resized(op_call *c, int n, const symint *size, memfmt f)
{
    tp_tensor *t = arg_t(c, 0);
    if (!shape_check_sizes(n, size, c->err))
        return false;
    op_out *o = out_new(c, (dtype)t->dt, n, size);
    if (f != MF_preserve && !shape_memfmt_strides(f, n, size, o->stride, c->err))
        return false;
    o->offset = t->offset;
    if (n == t->ndim && !memcmp(size, t->size, sizeof(symint) * (size_t)n) && f == MF_preserve)
        memcpy(o->stride, t->stride, sizeof(symint) * (size_t)n);
    return as_header(c, true);
}

bool shape_resize(op_call *c)
{
    return resized(c, c->arg[1].n, c->arg[1].ints, (memfmt)arg_i(c, 2, MF_preserve));
}
bool shape_resize_as(op_call *c)
{
    tp_tensor *t = arg_t(c, 1);
    memfmt f = (memfmt)arg_i(c, 2, MF_contiguous);
    return resized(c, t->ndim, t->size, f == MF_preserve ? tensor_suggest_memfmt(t) : f);
}

/* Grows the storage when the new sizes need more; old bytes are kept, new ones are undefined. The storage
 * object stays the same, so that views of it stay views. */
bool eager_resize(op_call *c)
{
    op_out *o = &c->out[0];
    tp_tensor *t = arg_t(c, 0);
    tp_storage *s = t->storage;
    symint bytes;
    if (!shape_storage_bytes((dtype)t->dt, o->ndim, o->size, o->stride, o->offset, &bytes, c->err))
        return false;
    if (bytes > s->nbytes) {
        if (s->release || s->flags & ST_readonly)
            return err_set(c->err, ERR_runtime, "Trying to resize storage that is not resizable");
        tp_storage *n = storage_new(bytes, s->device, c->err);
        if (!n)
            return false;
        if (!device_copy(s->device, n->data, s->device, s->data, s->nbytes, c->err)) {
            storage_unref(n);
            return false;
        }
        void *p = s->data;
        int64_t old = s->nbytes;
        s->data = n->data;
        s->nbytes = bytes;
        n->data = p;
        n->nbytes = old;
        storage_unref(n);
    }
    return apply_header(c);
}
