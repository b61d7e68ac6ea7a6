/* ondevice.c - see ondevice.h. Tensors are brought into rows without gaps, and results from there to where they belong. */
#include "ops/ondevice.h"

static const own_kernels *owners[DEV_COUNT];
void ops_own_kernels(dev_kind k, const own_kernels *own) { owners[k] = own; }

static const own_kernels *owner_of(const op_call *c) { return owners[tensor_device(arg_t(c, 0)).kind]; }

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
typedef own_result op_device_fn(op_call *c);

static own_result sort_by(op_call *c, int dim_at, int descending_at, int values, int indices)
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    if (!arg_dim(c, dim_at, t->ndim, &dim))
        return OWN_failed;
    return sort_to(c, dim, c->arg[descending_at].b, t->ndim ? t->size[dim] : 1, values, indices);
}
static own_result device_sort(op_call *c) { return sort_by(c, 1, 2, 0, 1); }
static own_result device_sort_stable(op_call *c) { return sort_by(c, 2, 3, 0, 1); }
static own_result device_argsort(op_call *c) { return sort_by(c, 1, 2, -1, 0); }
static own_result device_argsort_stable(op_call *c) { return sort_by(c, 2, 3, -1, 0); }

static own_result device_topk(op_call *c)
{
    int dim;
    if (!arg_dim(c, 2, arg_t(c, 0)->ndim, &dim))
        return OWN_failed;
    return sort_to(c, dim, c->arg[3].b, c->arg[1].i, 0, 1);
}

static own_result device_kthvalue(op_call *c)
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

/* --- the DEVICE column ------------------------------------------------------------------------------ */
#define DEVICE(id, token) [OP_##id] = device_##token,
static op_device_fn *const functions[OP_COUNT] = {
#include "ops/ops.def"
};

own_result ops_run_own(op_call *c)
{
    op_device_fn *fn = functions[c->op];
    tp_tensor *t = fn && !c->special ? arg_t(c, 0) : NULL;
    return t && owner_of(c) && t->numel ? fn(c) : OWN_declined;
}
