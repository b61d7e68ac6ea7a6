/* gather.c - gather and scatter along one dimension; selection and update of whole slices by an index vector.
 */
#include "ops/mask.h"
#include "ops/decomp.h"
#include "ops/axmap.h"
#include "ops/iter.h"
#include "ops/move.h"
#include "base/pool.h"

static bool is_index(const tp_tensor *t) { return t->dt == DT_i64 || t->dt == DT_i32; }

static symint size_at(const tp_tensor *t, int d) { return t->ndim ? t->size[d] : 1; }

/* index fits into t apart from dimension d (-1: in every dimension). */
static bool fits(const tp_tensor *index, const tp_tensor *t, int d)
{
    for (int k = 0; k < MAX(index->ndim, 1); k++)
        if (k != d && sym_gt(size_at(index, k), size_at(t, k)))
            return false;
    return true;
}

/* ---- gather ---- */
bool shape_gather(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *ix = arg_t(c, 2);
    size_text a, b;
    int d;
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    if (sym_eq(ix->numel, 0)) {
        return out_new(c, (dtype)t->dt, ix->ndim, ix->size) != NULL;
    }
    if (!is_index(ix))
        return err_set(c->err, ERR_runtime, "gather(): Expected dtype int32/int64 for index");
    if (MAX(t->ndim, 1) != MAX(ix->ndim, 1))
        return err_set(c->err, ERR_runtime,
                       "Index tensor must have the same number of dimensions as input tensor");
    for (int k = 0; k < MAX(t->ndim, 1); k++)
        if (k != d && sym_gt(size_at(ix, k), size_at(t, k)))
            return err_set(
                c->err, ERR_runtime,
                "Size does not match at dimension %d expected index %s to be no larger than self %s "
                "apart from dimension %d",
                k, sizes_str(&a, ix->ndim, ix->size), sizes_str(&b, t->ndim, t->size), d);
    return out_new(c, (dtype)t->dt, ix->ndim, ix->size) != NULL;
}

typedef struct along {
    int64_t size, step; /* of the indexed dimension; step in bytes */
    int64_t bad;        /* the first index found out of range, or size - 1 */
    bool failed;
    size_t es;
    redrow_fn *red;
    const char *base; /* take */
} along;

enum { BLOCK = 256 };
static bool places(along *a, int64_t n, const char *ix, int64_t st, int64_t step, int64_t next, int64_t *at)
{
    if (moves()->places(n, ix, st, a->size, false, step, next, at))
        return true;
    for (int64_t i = 0; i < n && !a->failed; i++) {
        a->bad = *(const int64_t *)(ix + i * st);
        a->failed = a->bad < 0 || a->bad >= a->size;
    }
    return false;
}

/* p: result, index, base of the indexed tensor */
static void gather_run(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    along *a = arg;
    int64_t at[BLOCK];
    for (int64_t b = 0; b < n; b += BLOCK) {
        int64_t m = MIN(n - b, BLOCK);
        if (!places(a, m, p[1] + b * st[1], st[1], a->step, st[2], at))
            return;
        moves()->fetch(m, p[0] + b * st[0], st[0], p[2] + b * st[2], at, a->es);
    }
}

/* p: index, other operand, base of the indexed tensor */
static void scatter_run(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    along *a = arg;
    int64_t at[BLOCK], es = (int64_t)a->es, step = a->step / es, next = st[2] / es;
    for (int64_t b = 0; b < n; b += BLOCK) {
        int64_t m = MIN(n - b, BLOCK);
        if (!places(a, m, p[0] + b * st[0], st[0], step, next, at))
            return;
        a->red(m, p[2] + b * st[2], at, 1, p[1] + b * st[1], st[1] / es);
    }
}

/* t seen with index's sizes, standing still along d. Owned. */
static tp_tensor *still(tp_tensor *t, const tp_tensor *index, int d, bool stop)
{
    symint stride[TP_MAX_DIMS];
    for (int k = 0; k < index->ndim; k++)
        stride[k] = (stop && k == d) || t->ndim == 0 ? 0 : t->stride[k];
    return tensor_on(t->storage, (dtype)t->dt, index->ndim, index->size, stride, t->offset);
}

static along along_of(const tp_tensor *t, int d)
{
    size_t es = dtype_size((dtype)t->dt);
    return (along){ .size = size_at(t, d), .step = t->ndim ? t->stride[d] * (int64_t)es : 0, .es = es };
}

static bool along_ok(const op_call *c, const along *a, int d)
{
    return !a->failed ||
           err_set(c->err, ERR_runtime, "index %lld is out of bounds for dimension %d with size %lld",
                   (long long)a->bad, d, (long long)a->size);
}

bool eager_gather(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *t = arg_t(c, 0), *out = c->res[0];
    int d;
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    if (out->numel == 0)
        return true;
    tp_tensor *ix = arg_t(c, 2)->dt == DT_i64 ? arg_t(c, 2) : scratch_in(&s, arg_t(c, 2), DT_i64);
    if (!ix)
        return scratch_end(&s, false);
    tp_tensor *base = scratch_take(&s, still(t, ix, d, true));
    along a = along_of(t, d);
    iter it;
    iter_init(&it, 3, (tp_tensor *[]){ out, ix, base });
    iter_run(&it, gather_run, &a, 0);
    return scratch_end(&s, along_ok(c, &a, d));
}

/* ---- scatter ---- */
static bool scatter_check(op_call *c, tp_tensor *src)
{
    tp_tensor *t = arg_t(c, 0), *ix = arg_t(c, 2);
    size_text a, b, e;
    int d;
    c->sharing = SHARE_NONE;
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    if (!is_index(ix) && !(sym_eq(ix->numel, 0)))
        return err_set(c->err, ERR_runtime, "scatter(): Expected dtype int32/int64 for index");
    if (src && src->dt != t->dt)
        return err_set(c->err, ERR_runtime, "scatter(): Expected self.dtype to be equal to src.dtype");
    if (!sym_eq(ix->numel, 0)) {
        if (MAX(ix->ndim, 1) != MAX(t->ndim, 1))
            return err_set(c->err, ERR_runtime,
                           "Index tensor must have the same number of dimensions as self tensor");
        if (src && MAX(src->ndim, 1) != MAX(ix->ndim, 1))
            return err_set(c->err, ERR_runtime,
                           "Index tensor must have the same number of dimensions as src tensor");
        if (!fits(ix, t, d) || (src && !fits(ix, src, -1))) {
            sizes_str(&a, ix->ndim, ix->size);
            sizes_str(&b, t->ndim, t->size);
            if (src)
                return err_set(
                    c->err, ERR_runtime,
                    "Expected index %s to be no larger than self %s apart from dimension %d and to be "
                    "no larger size than src %s",
                    a.s, b.s, d, sizes_str(&e, src->ndim, src->size));
            return err_set(c->err, ERR_runtime,
                           "Expected index %s to be no larger than self %s apart from dimension %d", a.s, b.s,
                           d);
        }
    }
    return out_new(c, (dtype)t->dt, t->ndim, t->size) != NULL;
}
bool shape_scatter(op_call *c) { return scatter_check(c, arg_t(c, 3)); }
bool shape_scatter_reduce(op_call *c)
{
    const char *r = c->arg[4].s;
    static const char *const ok[] = { "sum", "prod", "mean", "amax", "amin" };
    for (size_t i = 0; i < COUNT(ok); i++)
        if (!strcmp(ok[i], r))
            return scatter_check(c, arg_t(c, 3));
    return err_set(c->err, ERR_runtime,
                   "reduce argument must be either sum, prod, mean, amax or amin, got %s", r);
}

/* Indices that differ in another dimension than d never meet: threads share the longest of those. */
typedef struct scatter_job {
    along *a;
    tp_tensor *ix, *src, *base;
    int split;
} scatter_job;
static tp_tensor *part(const tp_tensor *t, int d, int64_t b, int64_t e)
{
    symint size[TP_MAX_DIMS];
    memcpy(size, t->size, sizeof(symint) * t->ndim);
    size[d] = e - b;
    return tensor_on(t->storage, (dtype)t->dt, t->ndim, size, t->stride, t->offset + b * t->stride[d]);
}
static void scatter_part(void *arg, int64_t b, int64_t e)
{
    const scatter_job *j = arg;
    tp_tensor *op[3] = { part(j->ix, j->split, b, e), part(j->src, j->split, b, e),
                         part(j->base, j->split, b, e) };
    iter it;
    iter_init(&it, 3, op);
    iter_run(&it, scatter_run, j->a, INT64_MAX); /* places may repeat: one thread */
    for (int i = 0; i < 3; i++)
        tensor_unref(op[i]);
}

/* dst op= src at index along d. src NULL: the number v. */
static bool scatter(op_call *c, tp_tensor *dst, tp_tensor *src, const tp_val *v, red_op op)
{
    scratch s = { .err = c->err };
    tp_tensor *ix = arg_t(c, 2);
    int d;
    if (!arg_dim(c, 1, dst->ndim, &d))
        return false;
    if (ix->numel == 0)
        return true;
    if (ix->dt != DT_i64 && !(ix = scratch_in(&s, ix, DT_i64)))
        return scratch_end(&s, false);
    tp_tensor *num = NULL;
    if (!src) {
        num = scratch_take(&s, tensor_scalar((dtype)dst->dt, val_as_f(v), val_as_i(v), c->err));
        if (!num)
            return scratch_end(&s, false);
    }
    src = scratch_take(&s, still(src ? src : num, ix, d, false));
    tp_tensor *base = scratch_take(&s, still(dst, ix, d, true));
    along a = along_of(dst, d);
    a.red = redrow(op, (dtype)dst->dt);
    scatter_job j = { &a, ix, src, base, -1 };
    for (int k = 0; k < ix->ndim; k++)
        if (k != d && ix->size[k] > 1 && (j.split < 0 || ix->size[k] > ix->size[j.split]))
            j.split = k;
    if (j.split >= 0)
        pool_for(ix->size[j.split], MAX(1, 32768 * ix->size[j.split] / ix->numel), scatter_part, &j);
    else {
        iter it;
        iter_init(&it, 3, (tp_tensor *[]){ ix, src, base });
        iter_run(&it, scatter_run, &a, INT64_MAX);
    }
    return scratch_end(&s, along_ok(c, &a, d));
}

static bool scatter_op(op_call *c, red_op op)
{
    return tensor_copy(c->res[0], arg_t(c, 0), c->err) && scatter(c, c->res[0], arg_t(c, 3), &c->arg[3], op);
}
bool eager_scatter(op_call *c) { return scatter_op(c, RED_set); }
bool eager_scatter_add(op_call *c) { return scatter_op(c, RED_add); }
bool eager_scatter_named(op_call *c) /* reduce= "add" or "multiply" */
{
    const char *r = c->arg[4].s;
    bool add = !strcmp(r, "add");
    if (!add && strcmp(r, "multiply"))
        return err_set(c->err, ERR_runtime, "reduce argument must be either add or multiply.");
    return scatter_op(c, add ? RED_add : RED_mul);
}

static red_op reduce_named(const char *r)
{
    return !strcmp(r, "prod")   ? RED_mul
           : !strcmp(r, "amax") ? RED_max
           : !strcmp(r, "amin") ? RED_min
                                : RED_add;
}

/* The value that leaves the other side unchanged. */
static tp_tensor *neutral(dtype dt, red_op op, tp_err *err)
{
    static const int64_t top[] = { 1, 255, 127, 32767, 2147483647, INT64_MAX };
    static const int64_t low[] = { 0, 0, -128, -32768, -2147483648LL, INT64_MIN };
    bool real = dtype_is_float(dt); /* a bool is true where either number is not 0 */
    switch (op) {
    case RED_mul: return tensor_scalar(dt, 1, 1, err);
    case RED_max: return tensor_scalar(dt, real ? -__builtin_inf() : 0, real ? 0 : low[dt], err);
    case RED_min: return tensor_scalar(dt, real ? __builtin_inf() : 0, real ? 0 : top[dt], err);
    default: return tensor_scalar(dt, 0, 0, err);
    }
}

static bool fill_with(tp_tensor *t, tp_tensor *value, tp_err *err)
{
    bool ok = value && tensor_copy(t, value, err);
    tensor_unref(value);
    return ok;
}

/* x / n where n > 0; integers round down, as PyTorch's mean does. */
static void divide(tp_tensor *x, const tp_tensor *n)
{
    dtype dt = (dtype)x->dt;
    for (int64_t i = 0; i < x->numel; i++) {
        void *p = tensor_elem(x, i);
        int64_t k = *(int64_t *)tensor_elem(n, i);
        if (dtype_is_float(dt))
            elem_set_f(dt, p, elem_get_f(dt, p) / (double)k);
        else {
            int64_t v = elem_get_i(dt, p);
            elem_set_i(dt, p, sym_floordiv(v, k));
        }
    }
}

/* Writes only where an index points; `self` takes part when include_self says so, stays elsewhere. */
bool eager_scatter_reduce(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *t = arg_t(c, 0), *out = c->res[0];
    const char *r = c->arg[4].s;
    bool include = arg_b(c, 5, true), mean = !strcmp(r, "mean");
    red_op op = reduce_named(r);
    tp_val one = vI(1);
    if (!tensor_copy(out, t, c->err))
        return false;
    if (!include) { /* start from the neutral element in the places that are written */
        tp_tensor *n = scratch_take(&s, neutral((dtype)t->dt, op, c->err));
        if (!n)
            return scratch_end(&s, false);
        tp_tensor *ix = arg_t(c, 2); /* as a tensor: the largest int64 is no number an argument can be */
        tp_tensor *wide = scratch_take(
            &s, tensor_on(n->storage, (dtype)t->dt, ix->ndim, ix->size, (symint[TP_MAX_DIMS]){ 0 }, 0));
        if (!wide || !scatter(c, out, wide, NULL, RED_set))
            return scratch_end(&s, false);
    }
    if (!scatter(c, out, arg_t(c, 3), NULL, op))
        return scratch_end(&s, false);
    if (mean) {
        tp_tensor *n = scratch_new(&s, DT_i64, t->ndim, t->size);
        if (!n || !fill_with(n, tensor_scalar(DT_i64, 0, include, c->err), c->err) ||
            !scatter(c, n, NULL, &one, RED_add))
            return scratch_end(&s, false);
        if (!include)
            for (int64_t i = 0; i < n->numel; i++)
                ((int64_t *)tensor_host(n))[i] = MAX(((int64_t *)tensor_host(n))[i], 1);
        divide(out, n);
    }
    return scratch_end(&s, true);
}

/* ---- whole slices by an index vector ---- */
/* Reads the index into an axis table of t along d; which: the text of the range error. */
enum { RANGE_self, RANGE_index, RANGE_index_wrap, RANGE_copy, RANGE_add };
static bool read_index(op_call *c, axmap *m, tp_tensor *ix, int axis, int64_t size, int d, int which)
{
    int64_t *at = axmap_axis(m, axis, ix->numel);
    if (ix->dt == DT_i64 && tensor_is_contiguous(ix) &&
        moves()->places(ix->numel, tensor_host(ix), 8, size, which == RANGE_index_wrap, 1, 0, at))
        return true;
    for (int64_t i = 0; i < ix->numel; i++) { /* any other index; and which one is wrong */
        int64_t k = elem_get_i((dtype)ix->dt, tensor_elem(ix, i)), was = k;
        if (which == RANGE_index_wrap && k < 0)
            k += size;
        if (k < 0 || k >= size) {
            if (which == RANGE_self)
                return err_set(c->err, ERR_index, "index out of range in self");
            return err_set(c->err, which == RANGE_add ? ERR_runtime : ERR_index,
                           "%sindex %lld is out of bounds for dimension %d with size %lld",
                           which == RANGE_copy ? "index_copy_(): " : "", (long long)was, d, (long long)size);
        }
        at[i] = k;
    }
    return true;
}

/* A 0-dim tensor as a 1-dim one. Owned. */
static tp_tensor *as_1d(tp_tensor *t)
{
    return t->ndim ? tensor_ref(t)
                   : tensor_on(t->storage, (dtype)t->dt, 1, (symint[]){ 1 }, (symint[]){ 1 }, t->offset);
}

bool shape_index_select(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *ix = arg_t(c, 2);
    symint size[TP_MAX_DIMS];
    int d;
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    if (ix->ndim > 1)
        return err_set(c->err, ERR_index, "index_select(): Index is supposed to be a vector");
    if (!is_index(ix))
        return err_set(c->err, ERR_runtime, "index_select(): Expected dtype int32 or int64 for index");
    if (t->ndim == 0 && !sym_eq(ix->numel, 1))
        return err_set(c->err, ERR_runtime,
                       "index_select(): Index to scalar can have only 1 value, got %lld value(s)",
                       (long long)ix->numel);
    if (t->ndim > 1 && t->size[d] == 0 && sym_gt(ix->numel, 0))
        return err_set(c->err, ERR_runtime, "index_select(): self indexing axis dim should be positive");
    memcpy(size, t->size, sizeof(symint) * t->ndim);
    if (t->ndim)
        size[d] = ix->numel;
    return out_new(c, (dtype)t->dt, t->ndim, size) != NULL;
}

bool eager_index_select(op_call *c)
{
    tp_tensor *t = as_1d(arg_t(c, 0)), *out = as_1d(c->res[0]);
    axmap m = { 0 };
    int d;
    bool ok = arg_dim(c, 1, t->ndim, &d) && read_index(c, &m, arg_t(c, 2), d, t->size[d], d, RANGE_self);
    if (ok)
        axmap_copy(&m, out, t);
    axmap_free(&m);
    tensor_unref(t);
    tensor_unref(out);
    return ok;
}

static bool slices_agree(const tp_tensor *t, const tp_tensor *src, int d)
{
    if (MAX(t->ndim, 1) != MAX(src->ndim, 1))
        return false;
    for (int k = 0; k < t->ndim; k++)
        if (k != d && !sym_eq(size_at(t, k), size_at(src, k)))
            return false;
    return true;
}

bool shape_index_add(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *ix = arg_t(c, 2), *src = arg_t(c, 3);
    size_text a, b;
    int d;
    c->sharing = SHARE_NONE;
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    if (ix->ndim > 1)
        return err_set(c->err, ERR_index,
                       "index_add_(): Index is supposed to be a vector, but got dim: %d with type: %s",
                       ix->ndim, dtype_rows[ix->dt].gname);
    if (!is_index(ix))
        return err_set(c->err, ERR_runtime, "index_add_(): Expected dtype int32/int64 for index but got: %s",
                       dtype_rows[ix->dt].gname);
    if (t->dt != src->dt)
        return err_set(c->err, ERR_runtime,
                       "index_add_(): self (%s) and source (%s) must have the same scalar type",
                       dtype_rows[t->dt].gname, dtype_rows[src->dt].gname);
    if (MAX(t->ndim, 1) != MAX(src->ndim, 1))
        return err_set(
            c->err, ERR_runtime,
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got "
            "self.shape = %s source.shape = %s",
            sizes_str(&a, t->ndim, t->size), sizes_str(&b, src->ndim, src->size));
    if (!sym_eq(ix->numel, size_at(src, d)))
        return err_set(
            c->err, ERR_runtime,
            "index_add_(): Number of indices (%s) should be equal to source.size(dim): (%s), for dim: %d",
            size_str(&a, ix->numel), size_str(&b, size_at(src, d)), d);
    if (!slices_agree(t, src, d))
        return err_set(
            c->err, ERR_runtime,
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got "
            "self.shape = %s source.shape = %s",
            sizes_str(&a, t->ndim, t->size), sizes_str(&b, src->ndim, src->size));
    return out_new(c, (dtype)t->dt, t->ndim, t->size) != NULL;
}

bool shape_index_copy(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *ix = arg_t(c, 2), *src = arg_t(c, 3);
    size_text a, b;
    int d;
    c->sharing = SHARE_NONE;
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    if (ix->ndim >= 2)
        return err_set(c->err, ERR_index, "index_copy_(): Index should have dimension 1 or 0 (got %d)",
                       ix->ndim);
    if (src->ndim == 0 && !sym_eq(ix->numel, 1))
        return err_set(c->err, ERR_index,
                       "index_copy_(): When source is scalar, index should have one element (got %s)",
                       size_str(&a, ix->numel));
    if (src->ndim && t->ndim && src->ndim != t->ndim)
        return err_set(
            c->err, ERR_index,
            "index_copy_(): When source and destination are not scalars, their dimensionality must match. "
            "Source dimensionality (%d), destination dimensionality (%d)",
            src->ndim, t->ndim);
    if (ix->dt != DT_i64)
        return err_set(c->err, ERR_runtime, "index_copy_(): Expected a long tensor for index, but got %s",
                       dtype_rows[ix->dt].gname);
    if (t->dt != src->dt)
        return err_set(c->err, ERR_runtime,
                       "index_copy_(): self and source expected to have the same dtype, but got (self) %s "
                       "and (source) %s",
                       dtype_rows[t->dt].gname, dtype_rows[src->dt].gname);
    if (!slices_agree(t, src, d))
        return err_set(
            c->err, ERR_runtime,
            "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice "
            "shape: %s at dimension %d and source slice shape: %s at dimension %d.",
            sizes_str(&a, t->ndim, t->size), d, sizes_str(&b, src->ndim, src->size), d);
    if (src->ndim && !sym_eq(ix->numel, src->size[d]))
        return err_set(c->err, ERR_index,
                       "index_copy_(): Number of indices (%s) should be equal to source.size(dim) (%s)",
                       size_str(&a, ix->numel), size_str(&b, src->size[d]));
    return out_new(c, (dtype)t->dt, t->ndim, t->size) != NULL;
}

static bool put_slices(op_call *c, tp_tensor *dst, tp_tensor *src, red_op op, int which)
{
    tp_tensor *o = as_1d(dst), *s = as_1d(src);
    axmap m = { 0 };
    int d;
    bool ok = arg_dim(c, 1, o->ndim, &d) && read_index(c, &m, arg_t(c, 2), d, o->size[d], d, which);
    if (ok)
        axmap_put(&m, op, o, s);
    axmap_free(&m);
    tensor_unref(o);
    tensor_unref(s);
    return ok;
}

bool eager_index_copy(op_call *c)
{
    return tensor_copy(c->res[0], arg_t(c, 0), c->err) &&
           put_slices(c, c->res[0], arg_t(c, 3), RED_set, RANGE_copy);
}

bool eager_index_add(op_call *c)
{
    tp_tensor *src = tensor_ref(arg_t(c, 3));
    const tp_val *al = &c->arg[4];
    bool ok = tensor_copy(c->res[0], arg_t(c, 0), c->err);
    if (ok && !(val_as_f(al) == 1)) {
        tp_val out = vNone;
        ok = ops_call(c->cx, OP_mul_Tensor, OPV_fn, (tp_val[]){ vT(src), *al }, &out, c->err);
        tensor_unref(src);
        src = NULL;
        if (ok) {
            src = tensor_cast(out.t, (dtype)c->res[0]->dt, c->err);
            ok = src != NULL;
            tensor_unref(out.t);
        }
    }
    ok = ok && put_slices(c, c->res[0], src, RED_add, RANGE_add);
    tensor_unref(src);
    return ok;
}

bool shape_index_fill(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *ix = arg_t(c, 2), *v = arg_t(c, 3);
    int d;
    c->sharing = SHARE_SELF | SHARE_VALUE | SHARE_NONE;
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    if (ix->dt != DT_i64)
        return err_set(c->err, ERR_index, "index_fill_(): Expected dtype int64 for index.");
    if (ix->ndim > 1)
        return err_set(c->err, ERR_index, "Index has to be a vector/scalar");
    if (v && v->ndim)
        return err_set(
            c->err, ERR_runtime,
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).",
            v->ndim);
    return out_like(c, t, (dtype)t->dt) != NULL;
}
bool eager_index_fill(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *out = c->res[0], *v = arg_t(c, 3), *ix = arg_t(c, 2);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS] = { 0 };
    int d;
    if (!tensor_copy(out, arg_t(c, 0), c->err) || !arg_dim(c, 1, out->ndim, &d))
        return false;
    if (out->numel == 0) /* whatever the index says */
        return true;
    if (v)
        v = scratch_in(&s, v, (dtype)out->dt);
    else
        v = scratch_take(&s,
                         tensor_scalar((dtype)out->dt, val_as_f(&c->arg[3]), val_as_i(&c->arg[3]), c->err));
    if (!v)
        return scratch_end(&s, false);
    memcpy(size, out->size, sizeof(symint) * out->ndim);
    size[d] = ix->numel;
    tp_tensor *src = scratch_take(
        &s, tensor_on(v->storage, (dtype)v->dt, MAX(out->ndim, 1), size, stride, v->offset));
    return scratch_end(&s, put_slices(c, out, src, RED_set, RANGE_index_wrap));
}

bool shape_index_reduce(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *ix = arg_t(c, 2), *src = arg_t(c, 3);
    const char *r = c->arg[4].s;
    int d;
    c->sharing = SHARE_NONE;
    if (strcmp(r, "prod") && strcmp(r, "mean") && strcmp(r, "amax") && strcmp(r, "amin"))
        return err_set(c->err, ERR_runtime,
                       "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got %s.",
                       r);
    if (!arg_dim(c, 1, t->ndim, &d))
        return false;
    if (ix->ndim > 1)
        return err_set(c->err, ERR_index, "index_reduce_(): Index is supposed to be a vector");
    if (!is_index(ix))
        return err_set(c->err, ERR_index, "index_reduce_(): Expected dtype int32/int64 for index");
    if (t->dt != src->dt)
        return err_set(c->err, ERR_runtime,
                       "index_reduce_(): self and source must have the same scalar type");
    if (MAX(t->ndim, 1) != MAX(src->ndim, 1))
        return err_set(c->err, ERR_runtime,
                       "index_reduce_(): self and source must have the same number of dimensions");
    if (!sym_eq(ix->numel, size_at(src, d)))
        return err_set(c->err, ERR_index,
                       "index_reduce_(): Number of indices should be equal to self.size(dim)");
    return slices_agree(t, src, d) ? out_new(c, (dtype)t->dt, t->ndim, t->size) != NULL
                                   : err_set(c->err, ERR_runtime, "index_reduce_(): slice shapes must match");
}
bool eager_index_reduce(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *out = c->res[0], *src = arg_t(c, 3);
    const char *r = c->arg[4].s;
    bool include = arg_b(c, 5, true), mean = !strcmp(r, "mean");
    red_op op = reduce_named(r);
    symint zeros[TP_MAX_DIMS] = { 0 };
    if (!tensor_copy(out, arg_t(c, 0), c->err))
        return false;
    if (!include) {
        tp_tensor *n = scratch_take(&s, neutral((dtype)out->dt, op, c->err));
        if (!n)
            return scratch_end(&s, false);
        n = scratch_take(&s, tensor_on(n->storage, (dtype)n->dt, src->ndim, src->size, zeros, 0));
        if (!put_slices(c, out, n, RED_set, RANGE_self))
            return scratch_end(&s, false);
    }
    if (!put_slices(c, out, src, op, RANGE_self))
        return scratch_end(&s, false);
    if (mean) {
        tp_tensor *n = scratch_new(&s, DT_i64, out->ndim, out->size),
                  *one = scratch_take(&s, tensor_scalar(DT_i64, 1, 1, c->err));
        if (!n || !one || !fill_with(n, tensor_scalar(DT_i64, 0, include, c->err), c->err))
            return scratch_end(&s, false);
        one = scratch_take(&s, tensor_on(one->storage, DT_i64, src->ndim, src->size, zeros, 0));
        if (!put_slices(c, n, one, RED_add, RANGE_self))
            return scratch_end(&s, false);
        for (int64_t i = 0; i < n->numel; i++)
            ((int64_t *)tensor_host(n))[i] = MAX(((int64_t *)tensor_host(n))[i], 1);
        divide(out, n);
    }
    return scratch_end(&s, true);
}

/* ---- flat positions: take and put ---- */
static bool flat_index(op_call *c, tp_tensor *t, tp_tensor *ix, axmap *m)
{
    int64_t *at = axmap_axis(m, 0, ix->numel), n = t->numel;
    bool packed = tensor_is_contiguous(ix), flat = tensor_is_contiguous(t);
    const int64_t *all = tensor_host(ix);
    for (int64_t i = 0; i < ix->numel; i++) {
        int64_t k = packed ? all[i] : *(int64_t *)tensor_elem(ix, i);
        if (k < -n || k >= n)
            return err_set(c->err, ERR_index,
                           "out of range: tried to access index %lld on a tensor of %lld elements.",
                           (long long)k, (long long)n);
        k = k < 0 ? k + n : k;
        if (flat) {
            at[i] = k;
            continue;
        }
        int64_t off = 0;
        for (int d = t->ndim - 1; d >= 0; d--) {
            off += k % t->size[d] * t->stride[d];
            k /= t->size[d];
        }
        at[i] = off;
    }
    return true;
}

/* t's memory from its first element as one line. Owned. */
static tp_tensor *as_line(tp_tensor *t)
{
    return tensor_on(t->storage, (dtype)t->dt, 1, &t->numel, (symint[]){ 1 }, t->offset);
}

bool shape_take(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *ix = arg_t(c, 1);
    if (ix->dt != DT_i64)
        return err_set(c->err, ERR_runtime, "take(): Expected a long tensor for index, but got %s",
                       dtype_rows[ix->dt].gname);
    if (sym_eq(t->numel, 0) && !sym_eq(ix->numel, 0))
        return err_set(c->err, ERR_index, "take(): tried to take from an empty tensor");
    return out_new(c, (dtype)t->dt, ix->ndim, ix->size) != NULL;
}
/* p: result, index. Contiguous tensors: no table is needed. */
static void take_run(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    along *a = arg;
    int64_t at[BLOCK];
    for (int64_t b = 0; b < n; b += BLOCK) {
        int64_t m = MIN(n - b, BLOCK);
        if (!moves()->places(m, p[1] + b * st[1], st[1], a->size, true, (int64_t)a->es, 0, at)) {
            a->failed = true;
            return;
        }
        moves()->fetch(m, p[0] + b * st[0], st[0], a->base, at, a->es);
    }
}
bool eager_take(op_call *c)
{
    if (tensor_is_contiguous(arg_t(c, 0))) {
        along a = { .size = arg_t(c, 0)->numel, .es = dtype_size((dtype)arg_t(c, 0)->dt) };
        a.base = tensor_host(arg_t(c, 0));
        iter it;
        iter_init(&it, 2, (tp_tensor *[]){ c->res[0], arg_t(c, 1) });
        iter_run(&it, take_run, &a, 0);
        if (!a.failed)
            return true; /* else the slow way says which index it was */
    }
    axmap m = { 0 };
    tp_tensor *in = as_line(arg_t(c, 0)), *out = as_line(c->res[0]);
    bool ok = flat_index(c, arg_t(c, 0), arg_t(c, 1), &m);
    if (ok)
        axmap_copy(&m, out, in);
    axmap_free(&m);
    tensor_unref(in);
    tensor_unref(out);
    return ok;
}

bool shape_put(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *ix = arg_t(c, 1), *src = arg_t(c, 2);
    size_text a, b;
    if (ix->dt != DT_i64)
        return err_set(c->err, ERR_runtime, "put_(): Expected a long tensor for index, but got %s",
                       dtype_rows[ix->dt].gname);
    if (t->dt != src->dt)
        return err_set(c->err, ERR_runtime,
                       "put_(): self and source expected to have the same dtype, but got self.dtype = %s and "
                       "source.dtype = %s",
                       dtype_rows[t->dt].gname, dtype_rows[src->dt].gname);
    if (!sym_eq(ix->numel, src->numel))
        return err_set(c->err, ERR_index,
                       "put_(): Expected source and index to have the same number of elements, but got "
                       "source.numel() = %s, index.numel() = %s",
                       size_str(&a, src->numel), size_str(&b, ix->numel));
    if (sym_eq(t->numel, 0) && !sym_eq(ix->numel, 0))
        return err_set(c->err, ERR_index, "put_(): Tried to put elements into an empty tensor");
    return out_like(c, t, (dtype)t->dt) != NULL;
}
bool eager_put(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *out = c->res[0], *src = scratch_in(&s, arg_t(c, 2), (dtype)out->dt);
    axmap m = { 0 };
    if (!src || !tensor_copy(out, arg_t(c, 0), c->err))
        return scratch_end(&s, false);
    bool ok = flat_index(c, out, arg_t(c, 1), &m);
    if (ok)
        axmap_put(&m, arg_b(c, 3, false) ? RED_add : RED_set, scratch_take(&s, as_line(out)),
                  scratch_take(&s, as_line(src)));
    axmap_free(&m);
    return scratch_end(&s, ok);
}

/* ---- embedding ---- */
bool shape_embedding(op_call *c)
{
    tp_tensor *w = arg_t(c, 0), *ix = arg_t(c, 1);
    symint size[TP_MAX_DIMS];
    if (w->ndim != 2)
        return err_set(c->err, ERR_runtime, "'weight' must be 2-D");
    if (!is_index(ix))
        return err_set(
            c->err, ERR_runtime,
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, "
            "Int; but got torch.%sTensor instead (while checking arguments for embedding)",
            dtype_rows[ix->dt].gname);
    if (ix->ndim + 1 > TP_MAX_DIMS)
        return err_set(c->err, ERR_runtime, "tensor has too many (>%d) dims", TP_MAX_DIMS);
    if (w->size[0] == 0 && sym_gt(ix->numel, 0)) /* rows are selected of a table that has none */
        return err_set(c->err, ERR_runtime, "index_select(): self indexing axis dim should be positive");
    memcpy(size, ix->size, sizeof(symint) * ix->ndim);
    size[ix->ndim] = w->size[1];
    return out_new(c, (dtype)w->dt, ix->ndim + 1, size) != NULL;
}
bool eager_embedding(op_call *c)
{
    tp_tensor *w = arg_t(c, 0), *ix = arg_t(c, 1), *o = c->res[0];
    axmap m = { 0 };
    tp_tensor *rows = tensor_on(o->storage, (dtype)o->dt, 2, (symint[]){ ix->numel, w->size[1] }, NULL, 0);
    bool ok = read_index(c, &m, ix, 0, w->size[0], 0, RANGE_self);
    if (ok)
        axmap_copy(&m, rows, w);
    axmap_free(&m);
    tensor_unref(rows);
    return ok;
}
bool decomp_embedding(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *w = arg[0].t, *ix = arg[1].t;
    symint size[TP_MAX_DIMS];
    tp_tensor *flat = b_op(b, reshape, vT(ix), vIs(((symint[]){ -1 }), 1));
    tp_tensor *r = b_op(b, index_select, vT(w), vI(0), vT(flat));
    memcpy(size, ix->size, sizeof(symint) * ix->ndim);
    size[ix->ndim] = w->size[1];
    return comp_ret(b, b_op(b, reshape, vT(r), vIs(size, ix->ndim + 1)), out);
}

bool shape_embedding_dense_backward(op_call *c)
{
    tp_tensor *dy = arg_t(c, 0), *ix = arg_t(c, 1);
    symint size[TP_MAX_DIMS];
    if (!is_index(ix) || dy->ndim < 1 || ix->ndim + 1 > TP_MAX_DIMS)
        return err_set(c->err, ERR_runtime,
                       "embedding_dense_backward: expected integer indices and a gradient of rows");
    memcpy(size, ix->size, sizeof(symint) * ix->ndim);
    size[ix->ndim] = dy->size[dy->ndim - 1];
    return grad_is(c, dy, ix->ndim + 1, size) &&
           out_new(c, (dtype)dy->dt, 2, (symint[]){ c->arg[2].i, dy->size[dy->ndim - 1] });
}
bool eager_embedding_dense_backward(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *ix = arg_t(c, 1);
    dtype w = work_type((dtype)c->res[0]->dt);
    tp_tensor *dw = scratch_out(&s, c->res[0], w), *dy = scratch_in(&s, arg_t(c, 0), w);
    int64_t pad = c->arg[3].i, n = c->arg[2].i;
    bool freq = arg_b(c, 4, false);
    if (!dw || !dy)
        return scratch_end(&s, false);
    storage_zero(dw);
    axmap m = { 0 };
    tp_tensor *rows = scratch_take(
        &s, tensor_on(dy->storage, w, 2, (symint[]){ ix->numel, dw->size[1] }, NULL, dy->offset));
    bool ok = read_index(c, &m, ix, 0, n, 0, RANGE_self);
    if (ok)
        axmap_put(&m, RED_add, dw, rows);
    if (ok && freq) { /* each row is the mean over its uses */
        int64_t *count = mem_zalloc(sizeof(int64_t) * (size_t)MAX(n, 1));
        for (int64_t i = 0; i < ix->numel; i++)
            count[m.at[0][i]]++;
        for (int64_t r = 0; r < n; r++)
            for (int64_t j = 0; j < dw->size[1] && count[r] > 1; j++) {
                if (w == DT_f32)
                    ((float *)tensor_host(dw))[r * dw->size[1] + j] /= (float)count[r];
                else
                    ((double *)tensor_host(dw))[r * dw->size[1] + j] /= (double)count[r];
            }
        free(count);
    }
    if (ok && pad >= 0 && pad < n && dw->size[1])
        memset((char *)tensor_host(dw) + (size_t)(pad * dw->size[1]) * dtype_size(w), 0,
               (size_t)dw->size[1] * dtype_size(w));
    axmap_free(&m);
    return scratch_end(&s, ok);
}

/* Rows are added in the order of the indices; sums of 16-bit floats are kept in f32 and rounded once. */
bool decomp_embedding_dense_backward(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *dy = arg[0].t, *ix = arg[1].t;
    symint pad = arg[3].i, n = arg[2].i, cols = dy->size[dy->ndim - 1];
    dtype w = work_type((dtype)dy->dt);
    tp_val dev = vDev(tensor_device(dy)), dt = vDT(w);
    if (sym_is_expr(pad))
        return err_set(b->err, ERR_notimpl, "a padding index that is not known yet");
    if (dy->numel == 0)
        return comp_ret(b, b_op(b, zeros, vIs(((symint[]){ n, cols }), 2), vDT(dy->dt), vNone, dev), out);
    tp_tensor *flat = b_op(b, reshape, vT(ix), vIs(((symint[]){ ix->numel }), 1));
    tp_tensor *rows = w == dy->dt ? dy : b_op(b, to_dtype, vT(dy), dt);
    rows = b_op(b, reshape, vT(rows), vIs(((symint[]){ ix->numel, cols }), 2));
    if (pad >= 0) { /* its rows add nothing */
        tp_tensor *is = b_op(b, reshape, vT(b_op(b, eq_Tensor, vT(flat), vI(pad))),
                             vIs(((symint[]){ ix->numel, 1 }), 2));
        rows = b_op(b, masked_fill_Scalar, vT(rows), vT(is), vI(0));
    }
    tp_tensor *dw = b_op(b, zeros, vIs(((symint[]){ n, cols }), 2), dt, vNone, dev);
    dw = b_op(b, index_add, vT(dw), vI(0), vT(flat), vT(rows), vI(1));
    if (arg[4].kind == VAL_bool && arg[4].b) { /* each row is the mean over its uses */
        tp_tensor *one = b_op(b, ones, vIs(((symint[]){ ix->numel, 1 }), 2), dt, vNone, dev);
        tp_tensor *uses = b_op(b, zeros, vIs(((symint[]){ n, 1 }), 2), dt, vNone, dev);
        uses = b_op(b, index_add, vT(uses), vI(0), vT(flat), vT(one), vI(1));
        dw = b_op(b, div_Tensor, vT(dw), vT(b_op(b, clamp_min, vT(uses), vI(1))));
    }
    return comp_ret(b, w == dy->dt ? dw : b_op(b, to_dtype, vT(dw), vDT(dy->dt)), out);
}

/* ---- masked_scatter ---- */
bool shape_masked_scatter(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *mask = arg_t(c, 1), *src = arg_t(c, 2);
    symint size[TP_MAX_DIMS];
    int nd = t->ndim;
    if (t->dt != src->dt)
        return err_set(c->err, ERR_runtime,
                       "masked_scatter: expected self and source to have same dtypes but got%s and %s",
                       dtype_rows[t->dt].gname, dtype_rows[src->dt].gname);
    if (mask->dt != DT_bool)
        return err_set(c->err, ERR_runtime,
                       "masked_scatter_ only supports boolean masks, but got mask with dtype %s",
                       dtype_rows[mask->dt].gname);
    memcpy(size, t->size, sizeof(symint) * (size_t)nd);
    if (!shape_broadcast(&nd, size, mask->ndim, mask->size, c->err))
        return false;
    return out_new(c, (dtype)t->dt, nd, size) != NULL;
}

/* A view of t broadcast to o's sizes. Owned. */
static tp_tensor *spread(tp_tensor *t, const tp_tensor *o)
{
    symint stride[TP_MAX_DIMS];
    int off = o->ndim - t->ndim;
    for (int d = 0; d < o->ndim; d++)
        stride[d] = d < off || t->size[d - off] == 1 ? 0 : t->stride[d - off];
    return tensor_on(t->storage, (dtype)t->dt, o->ndim, o->size, stride, t->offset);
}

bool eager_masked_scatter(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *out = c->res[0], *src = scratch_in(&s, arg_t(c, 2), (dtype)out->dt);
    tp_tensor *mask = scratch_in(&s, scratch_take(&s, spread(arg_t(c, 1), out)), DT_bool);
    if (!src || !mask || !tensor_copy(out, arg_t(c, 0), c->err))
        return scratch_end(&s, false);
    size_t es = dtype_size((dtype)out->dt);
    const uint8_t *m = tensor_host(mask);
    int64_t used = mask_count(m, out->numel);
    if (used > src->numel) {
        err_set(c->err, ERR_runtime, "Number of elements of source < number of ones in mask");
        return scratch_end(&s, false);
    }
    if (tensor_is_contiguous(out)) {
        mask_put(m, out->numel, (int64_t)es, tensor_host(out), tensor_host(src));
        return scratch_end(&s, true);
    }
    for (int64_t i = 0, k = 0; i < out->numel; i++)
        if (m[i])
            memcpy(tensor_elem(out, i), (char *)tensor_host(src) + (size_t)k++ * es, es);
    return scratch_end(&s, true);
}

/* The source elements that were used, zeros for the rest. */
bool shape_masked_scatter_backward(op_call *c)
{
    tp_tensor *dy = arg_t(c, 0), *mask = arg_t(c, 1);
    symint size[TP_MAX_DIMS];
    int nd = dy->ndim;
    memcpy(size, dy->size, sizeof(symint) * (size_t)nd);
    return shape_broadcast(&nd, size, mask->ndim, mask->size, c->err) && grad_is(c, dy, nd, size) &&
           out_new(c, (dtype)dy->dt, c->arg[2].n, c->arg[2].ints);
}
bool eager_masked_scatter_backward(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *dy = arg_t(c, 0), *out = c->res[0];
    tp_tensor *mask = scratch_in(&s, scratch_take(&s, spread(arg_t(c, 1), dy)), DT_bool);
    if (!mask)
        return scratch_end(&s, false);
    storage_zero(out);
    size_t es = dtype_size((dtype)out->dt);
    const uint8_t *m = tensor_host(mask);
    int64_t used = 0;
    for (int64_t i = 0; i < dy->numel && used < out->numel; i++)
        if (m[i])
            memcpy((char *)tensor_host(out) + (size_t)used++ * es, tensor_elem(dy, i), es);
    return scratch_end(&s, true);
}
