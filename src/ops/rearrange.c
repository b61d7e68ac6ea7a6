/* rearrange.c - operators that copy elements to new places: cat, repeat, flip, roll, triangles, padding,
 * scatter into a view, and the backward forms of views. */
#include "sym/env.h"
#include "ops/decomp.h"
#include "ops/axmap.h"
#include "ops/iter.h"
#include "base/pool.h"

/* ---- cat ---- */
static bool skipped(const tp_tensor *t) /* 1-d empty tensors are ignored, whatever the others are */
{
    return t->ndim == 1 && sym_eq(t->size[0], 0);
}

bool shape_cat(op_call *c)
{
    const tp_val *v = &c->arg[0];
    tp_tensor *first = NULL;
    dtype_join j = DTYPE_JOIN_INIT;
    symint size[TP_MAX_DIMS], sum = 0;
    size_text a, b;
    memfmt f = MF_contiguous;
    int d = 0;
    if (v->n == 0)
        return err_set(c->err, ERR_value, "torch.cat(): expected a non-empty list of Tensors");
    for (int i = 0; i < v->n; i++) {
        tp_tensor *t = v->ts[i];
        if (t->ndim == 0)
            return err_set(c->err, ERR_runtime,
                           "zero-dimensional tensor (at position %d) cannot be concatenated", i);
        dtype_join_add(&j, (dtype)t->dt, t->ndim, false);
        if (!skipped(t) && !first) {
            first = t;
            f = tensor_suggest_memfmt(t);
        }
    }
    dtype dt = dtype_join_result(&j);
    if (!first)
        return dim_wrap(c->arg[1].i, 1, &d, c->err) && out_new(c, dt, 1, v->ts[0]->size);
    if (!arg_dim(c, 1, first->ndim, &d))
        return false;
    for (int i = 0; i < v->n; i++) {
        tp_tensor *t = v->ts[i];
        if (skipped(t))
            continue;
        if (t->ndim != first->ndim)
            return err_set(c->err, ERR_runtime, "Tensors must have same number of dimensions: got %d and %d",
                           first->ndim, t->ndim);
        for (int k = 0; k < t->ndim; k++)
            if (k != d && !sym_eq(t->size[k], first->size[k]))
                return err_set(c->err, ERR_runtime,
                               "Sizes of tensors must match except in dimension %d. Expected size %s but got "
                               "size %s for tensor number %d in the list.",
                               d, size_str(&a, first->size[k]), size_str(&b, t->size[k]), i);
        sum = sym_add(sum, t->size[d]);
        if (tensor_suggest_memfmt(t) != f)
            f = MF_contiguous;
    }
    memcpy(size, first->size, sizeof(symint) * first->ndim);
    size[d] = sum;
    op_out *o = out_new(c, dt, first->ndim, size);
    return shape_memfmt_strides(f, first->ndim, size, o->stride, c->err);
}

bool eager_cat(op_call *c)
{
    const tp_val *v = &c->arg[0];
    tp_tensor *out = c->res[0];
    int64_t at = 0;
    int d = 0;
    if (out->numel == 0)
        return true;
    if (!arg_dim(c, 1, out->ndim, &d))
        return false;
    for (int i = 0; i < v->n; i++) {
        tp_tensor *t = v->ts[i];
        if (skipped(t))
            continue;
        tp_tensor *part = view_slice(out, d, at, t->size[d], 1);
        at += t->size[d];
        bool ok = tensor_copy(part, t, c->err);
        tensor_unref(part);
        if (!ok)
            return false;
    }
    return true;
}

/* ---- repeat, flip, roll ---- */
bool shape_repeat(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    const tp_val *r = &c->arg[1];
    symint size[TP_MAX_DIMS];
    int off = r->n - t->ndim;
    if (off < 0)
        return err_set(
            c->err, ERR_runtime,
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
    if (r->n > TP_MAX_DIMS)
        return err_set(c->err, ERR_runtime, "tensor has too many (>%d) dims", TP_MAX_DIMS);
    for (int i = 0; i < r->n; i++)
        size[i] = i < off ? r->ints[i] : sym_mul(r->ints[i], t->size[i - off]);
    return out_new(c, (dtype)t->dt, r->n, size) != NULL;
}

/* t with leading dimensions of size 1 up to rank n. Owned. */
static tp_tensor *with_rank(tp_tensor *t, int n)
{
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    int off = n - t->ndim;
    for (int i = 0; i < n; i++) {
        size[i] = i < off ? 1 : t->size[i - off];
        stride[i] = i < off ? 0 : t->stride[i - off];
    }
    return tensor_on(t->storage, (dtype)t->dt, n, size, stride, t->offset);
}

bool eager_repeat(op_call *c)
{
    tp_tensor *out = c->res[0], *in = with_rank(arg_t(c, 0), out->ndim);
    axmap m = { 0 };
    for (int d = 0; d < out->ndim; d++)
        if (out->size[d] != in->size[d]) {
            int64_t *p = axmap_axis(&m, d, out->size[d]), n = in->size[d];
            for (int64_t i = 0, k = 0; i < out->size[d]; i++, k = k + 1 == n ? 0 : k + 1)
                p[i] = k;
        }
    axmap_copy(&m, out, in);
    axmap_free(&m);
    tensor_unref(in);
    return true;
}

bool shape_flip(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    uint32_t mask;
    return arg_dims(c, 1, t->ndim, false, &mask) && out_dense(c, t, (dtype)t->dt);
}

bool eager_flip(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *out = c->res[0];
    uint32_t mask;
    if (!arg_dims(c, 1, t->ndim, false, &mask))
        return false;
    axmap m = { 0 };
    for (int d = 0; d < t->ndim; d++)
        if (mask >> d & 1) {
            int64_t *p = axmap_axis(&m, d, t->size[d]);
            for (int64_t i = 0; i < t->size[d]; i++)
                p[i] = t->size[d] - 1 - i;
        }
    axmap_copy(&m, out, t);
    axmap_free(&m);
    return true;
}

bool shape_roll(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    const tp_val *s = &c->arg[1], *d = &c->arg[2];
    if (s->n == 0)
        return err_set(c->err, ERR_runtime, "`shifts` required");
    for (int i = 0; i < s->n; i++) /* the front end stops larger ones there */
        if (s->ints[i] == SYM_LIMIT - 1 || s->ints[i] == -SYM_LIMIT)
            return err_set(c->err, ERR_runtime, "roll(): shifts of 2**62 and more are not supported");
    if (s->n != d->n && !(d->n == 0 && s->n == 1))
        return err_set(c->err, ERR_runtime, "shifts and dimensions must align. shifts: %d, dims:%d", s->n,
                       d->n);
    if (t->ndim == 0 && d->n)
        return err_set(c->err, ERR_index, "Dimension specified as %lld but tensor has no dimensions",
                       (long long)d->ints[0]);
    memfmt f = d->n ? tensor_suggest_memfmt(t) : MF_contiguous;
    for (int i = 0; i < d->n && !sym_eq(t->numel, 0); i++) {
        int k;
        if (!dim_wrap(d->ints[i], t->ndim, &k, c->err))
            return false;
        /* Two pieces joined: one that is empty has no format, and then the result has none. */
        if (f != MF_contiguous && sym_eq(sym_mod(s->ints[i], t->size[k]), 0))
            f = MF_contiguous;
    }
    op_out *o = out_new(c, (dtype)t->dt, t->ndim, t->size);
    return shape_memfmt_strides(f, t->ndim, t->size, o->stride, c->err);
}

bool eager_roll(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *out = c->res[0];
    const tp_val *s = &c->arg[1], *dims = &c->arg[2];
    int64_t shift[TP_MAX_DIMS] = { 0 };
    scratch sc = { .err = c->err };
    axmap m = { 0 };
    if (t->numel == 0)
        return true;
    if (dims->n == 0) { /* over the flattened tensor */
        t = scratch_in(&sc, t, (dtype)t->dt);
        if (!t)
            return scratch_end(&sc, false);
        t = scratch_take(&sc, tensor_on(t->storage, (dtype)t->dt, 1, &t->numel, NULL, t->offset));
        out = scratch_take(&sc, tensor_on(out->storage, (dtype)out->dt, 1, &out->numel, NULL, 0));
        shift[0] = s->ints[0];
    } else
        for (int i = 0; i < dims->n; i++) {
            int d;
            if (!dim_wrap(dims->ints[i], t->ndim, &d, c->err))
                return scratch_end(&sc, false);
            shift[d] += s->ints[i];
        }
    for (int d = 0; d < t->ndim; d++)
        if (shift[d] && t->size[d]) {
            int64_t n = t->size[d], *p = axmap_axis(&m, d, n), k = ((-shift[d]) % n + n) % n;
            for (int64_t i = 0; i < n; i++, k = k + 1 == n ? 0 : k + 1)
                p[i] = k;
        }
    axmap_copy(&m, out, t);
    axmap_free(&m);
    return scratch_end(&sc, true);
}

/* ---- triangles ---- */
bool shape_tri(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    c->sharing = SHARE_SELF;
    if (t->ndim < 2)
        return err_set(c->err, ERR_runtime, "%s: input tensor must have at least 2 dimensions", c->row->name);
    return out_new(c, (dtype)t->dt, t->ndim, t->size) != NULL;
}

typedef struct tri_job {
    tp_tensor *out;
    int64_t diag;
    bool lower;
} tri_job;

static void tri_rows(void *arg, int64_t b, int64_t e)
{
    tri_job *j = arg;
    tp_tensor *t = j->out;
    int64_t rows = t->size[t->ndim - 2], cols = t->size[t->ndim - 1];
    size_t es = dtype_size((dtype)t->dt);
    for (int64_t r = b; r < e; r++) {
        char *p = (char *)tensor_host(t) + (size_t)(r * cols) * es;
        int64_t cut = r % rows + j->diag + (j->lower ? 1 : 0); /* first column on the right side */
        cut = MAX(0, MIN(cut, cols));
        if (j->lower)
            memset(p + (size_t)cut * es, 0, (size_t)(cols - cut) * es);
        else
            memset(p, 0, (size_t)cut * es);
    }
}

static bool tri(op_call *c, bool lower)
{
    tp_tensor *out = c->res[0];
    tri_job j = { out, arg_i(c, 1, 0), lower };
    if (!tensor_copy(out, arg_t(c, 0), c->err))
        return false;
    if (out->numel)
        pool_for(out->numel / out->size[out->ndim - 1], MAX(1, 32768 / out->size[out->ndim - 1]), tri_rows,
                 &j);
    return true;
}
bool eager_tril(op_call *c) { return tri(c, true); }
bool eager_triu(op_call *c) { return tri(c, false); }

/* ---- writing into a view of a fresh tensor ---- */
/* Calls a view row on t at once. Owned, or NULL. */
static tp_tensor *view_of(op_call *c, op_id op, const tp_val *arg, int narg)
{
    tp_val full[OP_MAX_PARAMS], out = vNone;
    if (!op_fill_defaults(op_row_of(op), arg, narg, full, c->err) ||
        !ops_call(c->cx, op, OPV_fn, full, &out, c->err))
        return NULL;
    return out.t;
}
#define VIEW_OF(c, id, ...) view_of(c, OP_##id, B_ARGS(__VA_ARGS__))

static bool copy_into(tp_tensor *view, tp_tensor *src, tp_err *err)
{
    bool ok = view && tensor_copy(view, src, err);
    tensor_unref(view);
    return ok;
}

/* The shape rule of a *_scatter row runs the view's own rule, then asks for src to have that size. */
static bool scatter_shape(op_call *c, op_id view, const tp_val *arg, int narg)
{
    tp_tensor *t = arg_t(c, 0), *src = arg_t(c, 1);
    tp_val full[OP_MAX_PARAMS], out = vNone;
    size_text a, b;
    if (!op_fill_defaults(op_row_of(view), arg, narg, full, c->err) ||
        !ops_fake(c->cx, view, OPV_fn, full, &out, c->err))
        return false;
    bool same = tensor_same_size(out.t, src);
    if (!same)
        err_set(c->err, ERR_runtime,
                "expected src to have a size equal to the slice of self. src size = %s, slice size = %s",
                sizes_str(&a, src->ndim, src->size), sizes_str(&b, out.t->ndim, out.t->size));
    val_clear(&out);
    if (!same)
        return false;
    op_out *o = out_like(c, t, (dtype)t->dt);
    if (!tensor_overlaps_itself(t) &&
        t->ndim) /* even gaps between rows are kept, so that it stands in for self */
        memcpy(o->stride, t->stride, sizeof(symint) * t->ndim);
    return true;
}

bool shape_select_scatter(op_call *c)
{
    return scatter_shape(c, OP_select_int, B_ARGS(c->arg[0], c->arg[2], c->arg[3]));
}
bool eager_select_scatter(op_call *c)
{
    return tensor_copy(c->res[0], arg_t(c, 0), c->err) &&
           copy_into(VIEW_OF(c, select_int, vT(c->res[0]), c->arg[2], c->arg[3]), arg_t(c, 1), c->err);
}
bool shape_slice_scatter(op_call *c)
{
    return scatter_shape(c, OP_slice_Tensor, B_ARGS(c->arg[0], c->arg[2], c->arg[3], c->arg[4], c->arg[5]));
}
bool eager_slice_scatter(op_call *c)
{
    return tensor_copy(c->res[0], arg_t(c, 0), c->err) &&
           copy_into(VIEW_OF(c, slice_Tensor, vT(c->res[0]), c->arg[2], c->arg[3], c->arg[4], c->arg[5]),
                     arg_t(c, 1), c->err);
}
bool shape_diagonal_scatter(op_call *c)
{
    return scatter_shape(c, OP_diagonal, B_ARGS(c->arg[0], c->arg[2], c->arg[3], c->arg[4]));
}
bool eager_diagonal_scatter(op_call *c)
{
    return tensor_copy(c->res[0], arg_t(c, 0), c->err) &&
           copy_into(VIEW_OF(c, diagonal, vT(c->res[0]), c->arg[2], c->arg[3], c->arg[4]), arg_t(c, 1),
                     c->err);
}
bool shape_as_strided_scatter(op_call *c)
{
    return scatter_shape(c, OP_as_strided, B_ARGS(c->arg[0], c->arg[2], c->arg[3], c->arg[4]));
}
bool eager_as_strided_scatter(op_call *c)
{
    return tensor_copy(c->res[0], arg_t(c, 0), c->err) &&
           copy_into(VIEW_OF(c, as_strided, vT(c->res[0]), c->arg[2], c->arg[3], c->arg[4]), arg_t(c, 1),
                     c->err);
}

/* Backward forms: zeros of input_sizes with the gradient in the view's place. */
bool shape_view_backward(op_call *c) /* (grad, input_sizes, the view's own arguments) */
{
    const tp_val *sz = &c->arg[1];
    tp_val a[OP_MAX_PARAMS];
    int n = c->row->schema.nparam - 1;
    if (!shape_check_sizes(sz->n, sz->ints, c->err))
        return false;
    tp_tensor *self = tensor_new_fake((dtype)arg_t(c, 0)->dt, sz->n, sz->ints, NULL, DEVICE_CPU);
    a[0] = vT(self);
    for (int i = 1; i < n; i++)
        a[i] = c->arg[i + 1];
    bool ok = grad_fits(c, arg_t(c, 0), a, n);
    tensor_unref(self);
    return ok && out_new(c, (dtype)arg_t(c, 0)->dt, sz->n, sz->ints);
}
bool eager_select_backward(op_call *c)
{
    return storage_zero(c->res[0]) &&
           copy_into(VIEW_OF(c, select_int, vT(c->res[0]), c->arg[2], c->arg[3]), arg_t(c, 0), c->err);
}
bool eager_slice_backward(op_call *c)
{
    return storage_zero(c->res[0]) &&
           copy_into(VIEW_OF(c, slice_Tensor, vT(c->res[0]), c->arg[2], c->arg[3], c->arg[4], c->arg[5]),
                     arg_t(c, 0), c->err);
}
bool eager_diagonal_backward(op_call *c)
{
    return storage_zero(c->res[0]) &&
           copy_into(VIEW_OF(c, diagonal, vT(c->res[0]), c->arg[2], c->arg[3], c->arg[4]), arg_t(c, 0),
                     c->err);
}

/* Windows may overlap, so they add up. */
static void add_f32(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    for (int64_t i = 0; i < n; i++)
        *(float *)(p[0] + i * st[0]) += *(float *)(p[1] + i * st[1]);
}
static void add_f64(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    for (int64_t i = 0; i < n; i++)
        *(double *)(p[0] + i * st[0]) += *(double *)(p[1] + i * st[1]);
}

/* dst, perhaps overlapping itself, += src; both of work type. */
static void accumulate(tp_tensor *dst, tp_tensor *src)
{
    iter it;
    iter_init(&it, 2, (tp_tensor *[]){ dst, src });
    iter_run(&it, dst->dt == DT_f32 ? add_f32 : add_f64, NULL, INT64_MAX);
}

bool eager_unfold_backward(op_call *c)
{
    scratch s = { .err = c->err };
    dtype w = work_type((dtype)c->res[0]->dt);
    tp_tensor *out = scratch_out(&s, c->res[0], w), *dy = scratch_in(&s, arg_t(c, 0), w);
    if (!out || !dy)
        return scratch_end(&s, false);
    storage_zero(out);
    tp_tensor *v = scratch_take(&s, VIEW_OF(c, unfold, vT(out), c->arg[2], c->arg[3], c->arg[4]));
    if (v)
        accumulate(v, dy);
    return scratch_end(&s, true);
}

bool eager_as_strided_backward(op_call *c) /* (grad, input_sizes, size, stride, offset) */
{
    scratch s = { .err = c->err };
    dtype w = work_type((dtype)c->res[0]->dt);
    tp_tensor *out = scratch_out(&s, c->res[0], w), *dy = scratch_in(&s, arg_t(c, 0), w);
    if (!out || !dy)
        return scratch_end(&s, false);
    storage_zero(out);
    tp_tensor *v = scratch_take(&s, VIEW_OF(c, as_strided, vT(out), c->arg[2], c->arg[3], c->arg[4]));
    if (v)
        accumulate(v, dy);
    return scratch_end(&s, true);
}

bool shape_diag_embed(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint size[TP_MAX_DIMS], n, off = arg_i(c, 1, 0);
    int a, b, nd = t->ndim + 1, k = 0;
    if (nd > TP_MAX_DIMS)
        return err_set(c->err, ERR_runtime, "tensor has too many (>%d) dims", TP_MAX_DIMS);
    if (!arg_dim(c, 2, nd, &a) || !arg_dim(c, 3, nd, &b))
        return false;
    if (a == b)
        return err_set(c->err, ERR_runtime, "diagonal dimensions cannot be identical %lld, %lld",
                       (long long)c->arg[2].i, (long long)c->arg[3].i);
    n = sym_add(t->ndim ? t->size[t->ndim - 1] : 1,
                sym_is_expr(off) ? sym_max(off, sym_sub(0, off)) : llabs(off));
    for (int d = 0; d < nd; d++)
        size[d] = d == a || d == b ? n : t->size[k++];
    return out_new(c, (dtype)t->dt, nd, size) != NULL;
}
bool eager_diag_embed(op_call *c)
{
    return storage_zero(c->res[0]) &&
           copy_into(VIEW_OF(c, diagonal, vT(c->res[0]), c->arg[1], c->arg[2], c->arg[3]), arg_t(c, 0),
                     c->err);
}

bool shape_fill_diagonal(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    if (t->ndim < 2)
        return err_set(c->err, ERR_runtime, "dimensions must larger than 1");
    for (int d = 1; d < t->ndim && t->ndim > 2; d++)
        if (!sym_eq(t->size[d], t->size[0]))
            return err_set(c->err, ERR_runtime, "all dimensions of input must be of equal length");
    return out_self(c, 0) != NULL;
}
bool eager_fill_diagonal(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    bool wrap = arg_b(c, 2, false);
    int64_t n = t->size[0], step = 0;
    for (int d = 0; d < t->ndim; d++) {
        n = MIN(n, t->size[d]);
        step += t->stride[d];
    }
    size_t es = dtype_size((dtype)t->dt);
    char *p = tensor_host(t);
    if (wrap && t->ndim == 2 && t->size[0] > t->size[1] + 1) /* the diagonal restarts after each full block */
        n = (t->size[0] * t->size[1] + t->size[1]) / (t->size[1] + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i * step;
        if (wrap && t->ndim == 2) {
            int64_t r = i + i / t->size[1], col = i % t->size[1];
            if (r >= t->size[0])
                break;
            at = r * t->stride[0] + col * t->stride[1];
        }
        if (dtype_is_float((dtype)t->dt) || t->dt == DT_bool)
            elem_set_f((dtype)t->dt, p + at * (int64_t)es, val_as_f(&c->arg[1]));
        else
            elem_set_i((dtype)t->dt, p + at * (int64_t)es, val_as_i(&c->arg[1]));
    }
    return true;
}

/* ---- padding ---- */
bool shape_constant_pad(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    const tp_val *p = &c->arg[1];
    symint size[TP_MAX_DIMS];
    size_text a, b;
    if (p->n % 2)
        return err_set(c->err, ERR_runtime, "Length of pad must be even but instead it equals %d", p->n);
    if (p->n / 2 > t->ndim)
        return err_set(
            c->err, ERR_runtime,
            "Length of pad should be no more than twice the number of dimensions of the input. Pad "
            "length is %d while the input has %d dimensions.",
            p->n, t->ndim);
    memcpy(size, t->size, sizeof(symint) * t->ndim);
    for (int i = 0; i < p->n / 2; i++) {
        int d = t->ndim - 1 - i;
        size[d] = sym_add(sym_add(size[d], p->ints[2 * i]), p->ints[2 * i + 1]);
        if (sym_lt(size[d], 0))
            return err_set(c->err, ERR_runtime,
                           "The input size %s, plus negative padding %s and %s resulted in a negative output "
                           "size, which is invalid. Check dimension %d of your input.",
                           size_str(&a, t->size[d]), size_str(&b, p->ints[2 * i]), "the other", d);
    }
    if (!p->n) /* a copy */
        return out_like(c, t, (dtype)t->dt) != NULL;
    op_out *o = out_new(c, (dtype)t->dt, t->ndim, size);
    return shape_memfmt_strides(tensor_suggest_memfmt(t), t->ndim, size, o->stride, c->err);
}

bool eager_constant_pad(op_call *c)
{
    tp_tensor *src = tensor_ref(arg_t(c, 0)), *dst = tensor_ref(c->res[0]), *s;
    const tp_val *p = &c->arg[1];
    bool any = false, ok;
    for (int i = 0; i < p->n; i++)
        any |= p->ints[i] > 0;
    ok = true;
    if (any) {
        s = tensor_scalar((dtype)dst->dt, val_as_f(&c->arg[2]), val_as_i(&c->arg[2]), c->err);
        ok = s && tensor_copy(dst, s, c->err);
        tensor_unref(s);
    }
    for (int i = 0; i < p->n / 2; i++) { /* a negative pad cuts the source, a positive one the destination */
        int d = src->ndim - 1 - i;
        int64_t lo = p->ints[2 * i], hi = p->ints[2 * i + 1];
        int64_t len = src->size[d] + MIN(lo, 0) + MIN(hi, 0);
        len = MAX(len, 0);
        s = view_slice(src, d, lo < 0 ? -lo : 0, len, 1);
        tensor_unref(src);
        src = s;
        s = view_slice(dst, d, lo > 0 ? lo : 0, len, 1);
        tensor_unref(dst);
        dst = s;
    }
    ok = ok && (src->numel == 0 || tensor_copy(dst, src, c->err));
    tensor_unref(src);
    tensor_unref(dst);
    return ok;
}

/* Rows *_pad{1,2,3}d: the number of padded dimensions is half of the pad list. */
static bool mirror_shape(op_call *c, tp_tensor *t, const tp_val *p, bool reflect, symint *size)
{
    int nd = p->n / 2;
    size_text a;
    if (t->ndim != nd + 1 && t->ndim != nd + 2)
        return err_set(
            c->err, ERR_runtime,
            "Expected %dD or %dD (batch mode) tensor with possibly 0 batch size and other non-zero "
            "dimensions for input, but got: %s",
            nd + 1, nd + 2, sizes_str(&a, t->ndim, t->size));
    memcpy(size, t->size, sizeof(symint) * t->ndim);
    for (int i = 0; i < nd; i++) {
        int d = t->ndim - 1 - i;
        symint lo = p->ints[2 * i], hi = p->ints[2 * i + 1];
        size_text l, h;
        if (sym_le(t->size[d], 0))
            return err_set(c->err, ERR_runtime,
                           "Expected %dD or %dD (batch mode) tensor with possibly 0 batch size and other "
                           "non-zero dimensions for input, but got: %s",
                           nd + 1, nd + 2, sizes_str(&a, t->ndim, t->size));
        if (reflect && (sym_ge(lo, t->size[d]) || sym_ge(hi, t->size[d])))
            return err_set(
                c->err, ERR_runtime,
                "Argument #%d: Padding size should be less than the corresponding input dimension, "
                "but got: padding (%s, %s) at dimension %d of input %s",
                4 + 2 * i, size_str(&l, lo), size_str(&h, hi), d, sizes_str(&a, t->ndim, t->size));
        size[d] = sym_add(sym_add(t->size[d], lo), hi);
        if (sym_lt(size[d], 1))
            return err_set(c->err, ERR_runtime, "input (size: %s) is too small for the padding (%s, %s)",
                           size_str(&a, t->size[d]), size_str(&l, lo), size_str(&h, hi));
    }
    return true;
}

static bool mirror_out(op_call *c, bool reflect)
{
    tp_tensor *t = arg_t(c, 0);
    symint size[TP_MAX_DIMS];
    if (!mirror_shape(c, t, &c->arg[1], reflect, size))
        return false;
    op_out *o = out_new(c, (dtype)t->dt, t->ndim, size);
    return c->arg[1].n < 4 ||
           shape_memfmt_strides(tensor_suggest_memfmt(t), t->ndim, size, o->stride, c->err);
}
bool shape_reflection_pad(op_call *c) { return mirror_out(c, true); }
bool shape_replication_pad(op_call *c) { return mirror_out(c, false); }
bool shape_mirror_backward(op_call *c)
{
    tp_tensor *x = arg_t(c, 1);
    if (!grad_fits(c, arg_t(c, 0), &c->arg[1], 2))
        return false;
    op_out *o = out_new(c, (dtype)x->dt, x->ndim, x->size);
    return c->arg[2].n < 4 ||
           shape_memfmt_strides(tensor_suggest_memfmt(x), x->ndim, x->size, o->stride, c->err);
}

static void mirror_map(axmap *m, const tp_tensor *in, const tp_val *p, bool reflect)
{
    for (int i = 0; i < p->n / 2; i++) {
        int d = in->ndim - 1 - i;
        int64_t lo = p->ints[2 * i], n = in->size[d], out = n + lo + p->ints[2 * i + 1];
        int64_t *at = axmap_axis(m, d, out);
        for (int64_t k = 0; k < out; k++) {
            int64_t j = k - lo;
            if (reflect)
                j = j < 0 ? -j : j >= n ? 2 * (n - 1) - j : j;
            at[k] = MAX(0, MIN(j, n - 1));
        }
    }
}

static bool mirror(op_call *c, bool reflect)
{
    axmap m = { 0 };
    mirror_map(&m, arg_t(c, 0), &c->arg[1], reflect);
    axmap_copy(&m, c->res[0], arg_t(c, 0));
    axmap_free(&m);
    return true;
}
bool eager_reflection_pad(op_call *c) { return mirror(c, true); }
bool eager_replication_pad(op_call *c) { return mirror(c, false); }

static bool mirror_backward(op_call *c, bool reflect) /* (grad, self, padding) */
{
    scratch s = { .err = c->err };
    dtype w = work_type((dtype)c->res[0]->dt);
    tp_tensor *dx = scratch_out(&s, c->res[0], w), *dy = scratch_in(&s, arg_t(c, 0), w);
    axmap m = { 0 };
    if (!dx || !dy)
        return scratch_end(&s, false);
    storage_zero(dx);
    mirror_map(&m, dx, &c->arg[2], reflect);
    axmap_put(&m, RED_add, dx, dy);
    axmap_free(&m);
    return scratch_end(&s, true);
}
bool eager_reflection_pad_backward(op_call *c) { return mirror_backward(c, true); }
bool eager_replication_pad_backward(op_call *c) { return mirror_backward(c, false); }

/* ---- repeat_interleave by a tensor of counts: the sum of the counts is data ---- */
bool shape_repeat_interleave(op_call *c)
{
    tp_tensor *r = arg_t(c, 0);
    if (r->ndim != 1)
        return err_set(c->err, ERR_runtime, "repeat_interleave only accept 1D vector as repeat");
    if (r->dt != DT_i64 && r->dt != DT_i32)
        return err_set(c->err, ERR_runtime, "repeats has to be Long or Int tensor");
    if (tensor_is_fake(r)) {
        symint n = c->arg[1].kind == VAL_none && c->cx->env ? sym_env_unbacked_size(c->cx->env, SYM_OO)
                                                            : c->arg[1].i;
        if (c->arg[1].kind == VAL_none && !c->cx->env)
            return err_set(
                c->err, ERR_datadep,
                "repeat_interleave: the output size depends on the values of repeats; pass output_size=");
        return out_new(c, (dtype)r->dt, 1, &n) != NULL;
    }
    return true;
}

bool eager_repeat_interleave(op_call *c)
{
    tp_tensor *r = arg_t(c, 0);
    dtype dt = (dtype)r->dt;
    int64_t total = 0;
    for (int64_t i = 0; i < r->numel; i++) {
        int64_t k = elem_get_i(dt, tensor_elem(r, i));
        if (k < 0)
            return err_set(c->err, ERR_runtime, "repeats can not be negative");
        total += k;
    }
    if (c->arg[1].kind == VAL_int && c->arg[1].i != total)
        return err_set(c->err, ERR_runtime, "allocated size does not match required size");
    tp_tensor *o = c->res[0] = tensor_new(dt, 1, &total, c->err);
    if (!o)
        return false;
    char *p = tensor_host(o);
    for (int64_t i = 0; i < r->numel; i++)
        for (int64_t k = elem_get_i(dt, tensor_elem(r, i)); k > 0; k--, p += dtype_size(dt))
            elem_set_i(dt, p, i);
    return true;
}
