/* ondevice.c - see ondevice.h. Tensors are brought into rows without gaps, and results from there to where they belong. */
#include "ops/ondevice.h"

static const own_kernels *owners[DEV_COUNT];
void ops_own_kernels(dev_kind k, const own_kernels *own) { owners[k] = own; }

const own_kernels *ops_owner(tp_device d) { return owners[d.kind]; }
static const own_kernels *owner_of(const op_call *c) { return ops_owner(tensor_device(arg_t(c, 0))); }

/* --- rows ------------------------------------------------------------------------------------------- */
/* t with dimension dim last, or as one element of one dimension. */
static tp_tensor *last_dim(const tp_tensor *t, int dim)
{
    symint size[TP_MAX_DIMS] = { 1 }, stride[TP_MAX_DIMS] = { 1 };
    int k = 0;
    for (int d = 0; d < t->ndim; d++)
        if (d != dim)
            size[k] = t->size[d], stride[k++] = t->stride[d];
    if (t->ndim)
        size[k] = t->size[dim], stride[k] = t->stride[dim];
    return tensor_on(t->storage, (dtype)t->dt, MAX(t->ndim, 1), size, stride, t->offset);
}

/* The last dimension of t from `at` on, n of it; n < 0: one, and the dimension is dropped. */
static tp_tensor *part_of(const tp_tensor *t, int64_t at, int64_t n)
{
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    int last = t->ndim - 1;
    memcpy(size, t->size, sizeof(symint) * t->ndim);
    memcpy(stride, t->stride, sizeof(symint) * t->ndim);
    size[last] = n;
    return tensor_on(t->storage, (dtype)t->dt, n < 0 ? last : t->ndim, size, stride,
                     t->offset + at * stride[last]);
}

/* Sorted rows of `keep` elements, as last_dim has them, in *values and *indices where those are not NULL (owned). */
static own_result sort_rows(op_call *c, int dim, bool descending, int64_t keep, tp_tensor **values,
                            tp_tensor **indices)
{
    const own_kernels *own = owner_of(c);
    tp_device dev = tensor_device(arg_t(c, 0));
    tp_tensor *rows = last_dim(arg_t(c, 0), dim), *in = tensor_contiguous(rows, c->err);
    own_result r = OWN_failed;
    symint size[TP_MAX_DIMS];
    memcpy(size, rows->size, sizeof(symint) * rows->ndim);
    int last = rows->ndim - 1;
    size[last] = keep;
    if (values)
        *values = tensor_new_strided((dtype)rows->dt, rows->ndim, size, NULL, dev, c->err);
    if (indices)
        *indices = tensor_new_strided(DT_i64, rows->ndim, size, NULL, dev, c->err);
    if (in && (!values || *values) && (!indices || *indices)) {
        int64_t n = rows->size[last];
        own_sort s = { .dt = (dtype)in->dt,
                       .in = tensor_data(in),
                       .rows = n ? in->numel / n : 0,
                       .n = n,
                       .keep = keep,
                       .descending = descending,
                       .values = values ? tensor_data(*values) : NULL,
                       .indices = indices ? tensor_data(*indices) : NULL };
        r = own->sort(dev, &s, c->err);
    }
    tensor_unref(in);
    tensor_unref(rows);
    if (r != OWN_done) {
        tensor_unref(values ? *values : NULL);
        tensor_unref(indices ? *indices : NULL);
        if (values)
            *values = NULL;
        if (indices)
            *indices = NULL;
    }
    return r;
}

/* Result i is made of `from`: its memory where the layout is the same, else a copy. dim: where the last dimension of `from` belongs. */
static bool give(op_call *c, int i, tp_tensor *from, int dim)
{
    tp_tensor *to = c->res[i], *rows = last_dim(to, dim);
    bool ok = true;
    if (tensor_is_contiguous(rows) && to->refs == 1 && to != c->into && tensor_is_contiguous(from) &&
        !from->offset && c->variant == OPV_fn) {
        tp_tensor *r = tensor_on(from->storage, (dtype)from->dt, to->ndim, to->size, to->stride, 0);
        r->flags |= to->flags & TF_inference;
        tensor_unref(to);
        c->res[i] = r;
    } else
        ok = tensor_copy(rows, from, c->err);
    tensor_unref(rows);
    return ok;
}

/* values, indices: numbers of the results, -1: there is none. */
static own_result sort_to(op_call *c, int dim, bool descending, int64_t keep, int values, int indices)
{
    tp_tensor *v = NULL, *x = NULL;
    own_result r = sort_rows(c, dim, descending, keep, values < 0 ? NULL : &v, indices < 0 ? NULL : &x);
    if (r == OWN_done && ((v && !give(c, values, v, dim)) || (x && !give(c, indices, x, dim))))
        r = OWN_failed;
    tensor_unref(v);
    tensor_unref(x);
    return r;
}

/* --- rows of the table ------------------------------------------------------------------------------ */
#define DEVICE(id, token) op_device_fn device_##token;
#include "ops/ops.def"

static own_result sort_by(op_call *c, int dim_at, int descending_at, int values, int indices)
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    if (!arg_dim(c, dim_at, t->ndim, &dim))
        return OWN_failed;
    return sort_to(c, dim, c->arg[descending_at].b, t->ndim ? t->size[dim] : 1, values, indices);
}
own_result device_sort(op_call *c) { return sort_by(c, 1, 2, 0, 1); }
own_result device_sort_stable(op_call *c) { return sort_by(c, 2, 3, 0, 1); }
own_result device_argsort(op_call *c) { return sort_by(c, 1, 2, -1, 0); }
own_result device_argsort_stable(op_call *c) { return sort_by(c, 2, 3, -1, 0); }

own_result device_topk(op_call *c)
{
    int dim;
    if (!arg_dim(c, 2, arg_t(c, 0)->ndim, &dim))
        return OWN_failed;
    return sort_to(c, dim, c->arg[3].b, c->arg[1].i, 0, 1);
}

own_result device_kthvalue(op_call *c)
{
    int dim;
    tp_tensor *out[2] = { 0 };
    if (!arg_dim(c, 2, arg_t(c, 0)->ndim, &dim))
        return OWN_failed;
    own_result r = sort_rows(c, dim, false, c->arg[1].i, &out[0], &out[1]);
    for (int i = 0; i < 2 && r == OWN_done; i++) {
        tp_tensor *to = c->res[i]->ndim == arg_t(c, 0)->ndim ? last_dim(c->res[i], dim)
                                                             : tensor_ref(c->res[i]);
        tp_tensor *one = part_of(out[i], c->arg[1].i - 1, to->ndim == out[i]->ndim ? 1 : -1);
        if (!tensor_copy(to, one, c->err))
            r = OWN_failed;
        tensor_unref(one);
        tensor_unref(to);
    }
    tensor_unref(out[0]);
    tensor_unref(out[1]);
    return r;
}

/* Medians of sorted rows: which element it is depends on how many NaN come last. dim: last, or -1: of all elements. */
static own_result median(op_call *c, int dim, bool skip_nan)
{
    tp_tensor *v = NULL, *x = NULL;
    own_result r = sort_rows(c, dim, false, arg_t(c, 0)->ndim ? arg_t(c, 0)->size[dim] : 1, &v, &x);
    if (r != OWN_done)
        return r;
    bld b;
    bld_init(&b, c->cx, c->err);
    symint last = -1;
    int64_t n = v->size[v->ndim - 1];
    tp_tensor *nans = b_op(&b, sum_dim_IntList, vT(b_op(&b, isnan, vT(v))), vIs(&last, 1), vB(true), vNone);
    tp_tensor *left = b_op(&b, sub_Tensor, vT(b_op(&b, mul_Tensor, vT(nans), vI(-1))), vI(1 - n));
    tp_tensor *at = b_op(&b, floor_divide, vT(left), vI(2)); /* of the numbers */
    if (skip_nan)
        at = b_op(&b, clamp_min, vT(at), vI(0));
    else /* the first NaN, where there is one */
        at = b_op(&b, where_self, vT(b_op(&b, gt_Tensor, vT(nans), vI(0))),
                  vT(b_op(&b, sub_Tensor, vI(n), vT(nans))), vT(at));
    tp_tensor *from[2] = { v, x };
    for (int i = 0; i < c->nout && r == OWN_done; i++) {
        tp_tensor *got = b_op(&b, gather, vT(from[i]), vI(-1), vT(at));
        tp_tensor *to = c->res[i]->ndim == v->ndim ? last_dim(c->res[i], dim) : tensor_ref(c->res[i]);
        tp_tensor *one = !got ? NULL : to->ndim == got->ndim ? tensor_ref(got) : part_of(got, 0, -1);
        if (!one || !tensor_copy(to, one, c->err))
            r = OWN_failed;
        tensor_unref(one);
        tensor_unref(to);
    }
    bld_end(&b);
    tensor_unref(v);
    tensor_unref(x);
    return r;
}
static own_result median_along(op_call *c, bool skip_nan)
{
    int dim;
    return arg_dim(c, 1, arg_t(c, 0)->ndim, &dim) ? median(c, dim, skip_nan) : OWN_failed;
}
own_result device_median_dim(op_call *c) { return median_along(c, false); }
own_result device_nanmedian_dim(op_call *c) { return median_along(c, true); }

/* --- selecting -------------------------------------------------------------------------------------- */
/* Scratch of a selection of n elements, and how many there are. NULL: see *r. */
static tp_tensor *selected(op_call *c, own_select *s, own_result *r)
{
    tp_device dev = tensor_device(arg_t(c, 0));
    symint room = owner_of(c)->select_room(s->n);
    tp_tensor *t = tensor_new_strided(DT_u8, 1, &room, NULL, dev, c->err);
    *r = OWN_failed;
    if (!t)
        return NULL;
    s->room = tensor_data(t);
    *r = owner_of(c)->select_count(dev, s, c->err);
    if (*r == OWN_done)
        return t;
    tensor_unref(t);
    return NULL;
}

own_result device_nonzero(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *in = tensor_contiguous(t, c->err);
    own_result r = OWN_failed;
    if (!in)
        return r;
    own_select s = { .dt = (dtype)t->dt, .in = tensor_data(in), .n = t->numel, .ndim = t->ndim };
    memcpy(s.size, t->size, sizeof *s.size * t->ndim);
    tp_tensor *room = selected(c, &s, &r), *o = NULL;
    if (room) {
        o = tensor_new_strided(DT_i64, 2, (symint[]){ s.found, t->ndim }, (symint[]){ 1, s.found },
                               tensor_device(t), c->err);
        s.positions = o ? tensor_data(o) : NULL;
        if (!o || (s.found && t->ndim && !owner_of(c)->select_write(tensor_device(t), &s, c->err)))
            r = OWN_failed;
    }
    if (r == OWN_done)
        c->res[0] = o;
    else
        tensor_unref(o);
    tensor_unref(room);
    tensor_unref(in);
    return r;
}

/* Runs of `in`, which are the elements of the argument in this order (NULL: in their own). */
static own_result runs(op_call *c, tp_tensor *in, const tp_tensor *order, bool inverse, bool counts)
{
    tp_tensor *t = arg_t(c, 0);
    tp_device dev = tensor_device(t);
    symint none = 0;
    own_result r;
    own_select s = { .dt = (dtype)in->dt,
                     .in = tensor_data(in),
                     .n = in->numel,
                     .runs = true,
                     .order = order ? tensor_data(order) : NULL };
    tp_tensor *room = selected(c, &s, &r);
    if (!room)
        return r;
    symint found = s.found;
    tp_tensor *v = tensor_new_strided((dtype)in->dt, 1, &found, NULL, dev, c->err),
              *i = inverse ? tensor_new_strided(DT_i64, t->ndim, t->size, NULL, dev, c->err)
                           : tensor_new_strided(DT_i64, 1, &none, NULL, dev, c->err),
              *n = tensor_new_strided(DT_i64, 1, counts ? &found : &none, NULL, dev, c->err);
    bool ok = v && i && n;
    if (ok) {
        s.values = tensor_data(v);
        s.group = inverse ? tensor_data(i) : NULL;
        s.lengths = counts ? tensor_data(n) : NULL;
        ok = owner_of(c)->select_write(dev, &s, c->err);
    }
    if (ok)
        c->res[0] = v, c->res[1] = i, c->res[2] = n;
    else {
        tensor_unref(v);
        tensor_unref(i);
        tensor_unref(n);
    }
    tensor_unref(room);
    return ok ? OWN_done : OWN_failed;
}

own_result device_unique(op_call *c) /* self, sorted, inverse, counts */
{
    tp_tensor *flat = tensor_contiguous(arg_t(c, 0), c->err), *v = NULL, *x = NULL;
    if (!flat)
        return OWN_failed;
    tp_device dev = tensor_device(flat);
    v = tensor_new_strided((dtype)flat->dt, 1, &flat->numel, NULL, dev, c->err);
    x = tensor_new_strided(DT_i64, 1, &flat->numel, NULL, dev, c->err);
    own_result r = OWN_failed;
    if (v && x) {
        own_sort s = { .dt = (dtype)flat->dt,
                       .in = tensor_data(flat),
                       .rows = 1,
                       .n = flat->numel,
                       .keep = flat->numel,
                       .values = tensor_data(v),
                       .indices = c->arg[2].b ? tensor_data(x) : NULL };
        r = owner_of(c)->sort(dev, &s, c->err);
    }
    if (r == OWN_done)
        r = runs(c, v, c->arg[2].b ? x : NULL, c->arg[2].b, c->arg[3].b);
    tensor_unref(v);
    tensor_unref(x);
    tensor_unref(flat);
    return r;
}
op_device_fn device_unique_consecutive_dim;      /* ondevice_rows.c */
own_result device_unique_consecutive(op_call *c) /* self, inverse, counts, dim */
{
    if (c->arg[3].kind != VAL_none)
        return device_unique_consecutive_dim(c);
    tp_tensor *flat = tensor_contiguous(arg_t(c, 0), c->err);
    own_result r = flat ? runs(c, flat, NULL, c->arg[1].b, c->arg[2].b) : OWN_failed;
    tensor_unref(flat);
    return r;
}

/* --- the DEVICE column ------------------------------------------------------------------------------ */
#define DEVICE(id, token) [OP_##id] = device_##token,
static op_device_fn *const functions[OP_COUNT] = {
#include "ops/ops.def"
};

bool ops_may_own(const op_call *c)
{
    tp_tensor *t = functions[c->op] && !c->special ? arg_t(c, 0) : NULL;
    return t && owner_of(c) && t->numel;
}

own_result ops_run_own(op_call *c) { return ops_may_own(c) ? functions[c->op](c) : OWN_declined; }
