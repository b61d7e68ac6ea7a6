/* distinct.c - operators whose result size depends on the data, and searches: unique, nonzero, bincount,
 * histc, searchsorted, isin, equal, item. */
#include "ops/order.h"
#include "ops/ondevice.h"
#include "ops/mask.h"
#include "ops/move.h"
#include "base/pool.h"
#include "sym/env.h"
#include <math.h>

/* A size only the running program knows. */
static bool unknown_size(op_call *c, symint *n)
{
    *n = 0;
    if (!c->cx->env)
        return err_set(
            c->err, ERR_datadep,
            "%s: the size of the result depends on the values of the input, which a fake tensor does "
            "not have",
            c->row->name);
    *n = sym_env_unbacked_size(c->cx->env, SYM_OO);
    return true;
}
static bool is_real(const op_call *c)
{
    for (int i = 0; i < c->row->schema.nparam; i++)
        if (arg_t(c, i) && tensor_is_fake(arg_t(c, i)))
            return false;
    return true;
}

/* ---- nonzero ---- */
bool shape_nonzero(op_call *c)
{
    symint n;
    tp_tensor *t = arg_t(c, 0);
    if (is_real(c))
        return true;
    if (!unknown_size(c, &n))
        return false;
    op_out *o = out_new(c, DT_i64, 2, (symint[]){ n, t->ndim });
    o->stride[0] = 1;
    o->stride[1] = n;
    return true;
}
bool eager_nonzero(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *flat = tensor_new(DT_bool, t->ndim, t->size, c->err), *r = NULL;
    bool ok = flat && tensor_copy(flat, t, c->err);
    if (ok) {
        const uint8_t *m = tensor_host(flat);
        int64_t n = mask_count(m, t->numel), *to[TP_MAX_DIMS];
        r = tensor_new_strided(DT_i64, 2, (symint[]){ n, t->ndim }, (symint[]){ 1, n }, DEVICE_CPU, c->err);
        ok = r != NULL;
        for (int d = 0; ok && d < t->ndim; d++)
            to[d] = (int64_t *)tensor_host(r) + d * n;
        if (ok && n)
            mask_where(m, t->ndim, t->size, to);
    }
    tensor_unref(flat);
    c->res[0] = r;
    return ok;
}

/* ---- unique ---- */
/* Sizes or strides with dimension `dim` in front -> in the order of the input. */
static void from_front(int ndim, int dim, const symint *front, symint *out)
{
    for (int d = 0; d < ndim; d++)
        out[d] = front[d == dim ? 0 : d < dim ? d + 1 : d];
}
static bool unique_fake(op_call *c, int dim, bool inverse, bool counts)
{
    tp_tensor *t = arg_t(c, 0);
    symint n, size[TP_MAX_DIMS];
    if (!unknown_size(c, &n))
        return false;
    if (dim < 0)
        out_new(c, (dtype)t->dt, 1, &n);
    else {
        size[0] = n;
        for (int d = 0, k = 1; d < t->ndim; d++)
            if (d != dim)
                size[k++] = t->size[d];
        op_out *o = out_new(c, (dtype)t->dt, t->ndim, size);
        symint stride[TP_MAX_DIMS];
        memcpy(stride, o->stride, sizeof stride);
        from_front(t->ndim, dim, size, o->size);
        from_front(t->ndim, dim, stride, o->stride);
    }
    if (!inverse)
        out_new(c, DT_i64, 1, (symint[]){ 0 });
    else if (dim < 0)
        out_new(c, DT_i64, t->ndim, t->size);
    else
        out_new(c, DT_i64, 1, &t->size[dim]);
    out_new(c, DT_i64, 1, counts ? &n : (symint[]){ 0 });
    return true;
}
bool shape_unique(op_call *c) /* self, sorted, inverse, counts */
{
    return is_real(c) || unique_fake(c, -1, c->arg[2].b, c->arg[3].b);
}
bool shape_unique_dim(op_call *c) /* self, dim, sorted, inverse, counts */
{
    int dim;
    return arg_dim(c, 1, arg_t(c, 0)->ndim, &dim) &&
           (is_real(c) || unique_fake(c, dim, c->arg[3].b, c->arg[4].b));
}
bool shape_unique_consecutive(op_call *c) /* self, inverse, counts, dim */
{
    int dim = -1;
    if (c->arg[3].kind != VAL_none && !arg_dim(c, 3, arg_t(c, 0)->ndim, &dim))
        return false;
    return is_real(c) || unique_fake(c, dim, c->arg[1].b, c->arg[2].b);
}

/* Groups of n entries: group[i] is the group of entry i, first[g] the entry that stands for group g. */
typedef struct groups {
    int64_t n, count;
    int64_t *group, *first, *size;
} groups;
static void groups_alloc(groups *g, int64_t n)
{
    g->n = n;
    g->count = 0;
    g->group = tmp_alloc((int64_t)sizeof(int64_t) * MAX(n, 1) * 3);
    g->first = g->group + n;
    g->size = g->first + n;
}
static void groups_put(groups *g, int64_t entry, bool fresh)
{
    if (fresh) {
        g->first[g->count] = entry;
        g->size[g->count++] = 0;
    }
    g->group[entry] = g->count - 1;
    g->size[g->count - 1]++;
}

static void group_sorted(groups *g, const tp_tensor *flat)
{
    int64_t n = flat->numel;
    dtype dt = (dtype)flat->dt;
    int64_t room = (int64_t)sizeof(keyed) * MAX(n, 1) * 2;
    int place;
    keyed *o = tmp_alloc(room);
    const uint64_t *w = dtype_is_float(dt) ? NULL
                                           : words_sort(dt, n, tensor_host(flat), (int64_t)dtype_size(dt),
                                                        false, (uint64_t *)o, &place);
    if (w) {
        for (int64_t i = 0; i < n; i++)
            groups_put(g, (int64_t)(w[i] & ((1ull << place) - 1)), !i || w[i] >> place != w[i - 1] >> place);
        tmp_free(o, room);
        return;
    }
    keys_load(dt, n, tensor_host(flat), (int64_t)dtype_size(dt), o);
    keys_sort(n, o, o + n, key_bits(dt));
    for (int64_t i = 0; i < n; i++) /* no NaN equals another */
        groups_put(g, o[i].i, !i || o[i].k != o[i - 1].k || (dtype_is_float(dt) && o[i].k == key_nan(dt)));
    tmp_free(o, room);
}
static void group_runs(groups *g, const tp_tensor *flat)
{
    int64_t n = flat->numel;
    dtype dt = (dtype)flat->dt;
    keyed *o = mem_alloc(sizeof *o * (size_t)MAX(n, 1));
    keys_load(dt, n, tensor_host(flat), (int64_t)dtype_size(dt), o);
    for (int64_t i = 0; i < n; i++)
        groups_put(g, i, !i || o[i].k != o[i - 1].k || (dtype_is_float(dt) && o[i].k == key_nan(dt)));
    free(o);
}

static int compare_rows(const keyed *a, const keyed *b, int64_t w)
{
    for (int64_t i = 0; i < w; i++)
        if (a[i].k != b[i].k)
            return a[i].k < b[i].k ? -1 : 1;
    return 0;
}
/* Rows of w keys, in order when `sort`: a stable merge of row numbers. */
static void merge_rows(int64_t n, int64_t *row, int64_t *spare, const keyed *k, int64_t w)
{
    if (n < 2)
        return;
    int64_t h = n / 2, a = 0, b = h, o = 0;
    merge_rows(h, row, spare, k, w);
    merge_rows(n - h, row + h, spare + h, k, w);
    memcpy(spare, row, sizeof *row * (size_t)h);
    while (a < h && b < n)
        row[o++] = compare_rows(k + row[b] * w, k + spare[a] * w, w) < 0 ? row[b++] : spare[a++];
    while (a < h)
        row[o++] = spare[a++];
}
static void group_rows(groups *g, const tp_tensor *rows, int64_t w, bool sort)
{
    int64_t n = g->n;
    dtype dt = (dtype)rows->dt;
    keyed *k = mem_alloc(sizeof *k * (size_t)MAX(n * w, 1));
    int64_t *row = mem_alloc(sizeof *row * (size_t)MAX(n, 1) * 2);
    keys_load(dt, n * w, tensor_host(rows), (int64_t)dtype_size(dt), k);
    for (int64_t i = 0; i < n; i++)
        row[i] = i;
    if (sort)
        merge_rows(n, row, row + n, k, w);
    for (int64_t i = 0; i < n; i++)
        groups_put(g, row[i], !i || compare_rows(k + row[i] * w, k + row[i - 1] * w, w) != 0);
    free(row);
    free(k);
}

/* Results from groups: entries of `src` along dim (src is flat for dim < 0). */
static bool unique_out(op_call *c, tp_tensor *src, int dim, const groups *g, bool inverse, bool counts)
{
    tp_tensor *t = arg_t(c, 0);
    symint size[TP_MAX_DIMS], zero = 0;
    memcpy(size, src->size, sizeof(symint) * src->ndim);
    size[0] = g->count; /* src has the dimension in front */
    c->res[0] = tensor_new((dtype)src->dt, src->ndim, size, c->err);
    if (dim >= 0 && c->res[0]) { /* the rows found, with the dimension seen where it was */
        size_t row = (size_t)(src->size[0] ? src->numel / src->size[0] : 0) * dtype_size((dtype)src->dt);
        for (int64_t i = 0; i < g->count; i++)
            memcpy((char *)tensor_host(c->res[0]) + (size_t)i * row,
                   (char *)tensor_host(src) + (size_t)g->first[i] * row, row);
        tp_tensor *r = c->res[0];
        symint fin[TP_MAX_DIMS], stride[TP_MAX_DIMS];
        from_front(t->ndim, dim, r->size, fin);
        from_front(t->ndim, dim, r->stride, stride);
        c->res[0] = tensor_on(r->storage, (dtype)r->dt, t->ndim, fin, stride, 0);
        tensor_unref(r);
    } else if (c->res[0]) {
        size_t es = dtype_size((dtype)src->dt);
        for (int64_t i = 0; i < g->count; i++)
            memcpy((char *)tensor_host(c->res[0]) + (size_t)i * es,
                   (char *)tensor_host(src) + (size_t)g->first[i] * es, es);
    }
    if (!inverse)
        c->res[1] = tensor_new(DT_i64, 1, &zero, c->err);
    else if (dim < 0)
        c->res[1] = tensor_new(DT_i64, t->ndim, t->size, c->err);
    else
        c->res[1] = tensor_new(DT_i64, 1, &g->n, c->err);
    c->res[2] = tensor_new(DT_i64, 1, counts ? &g->count : &zero, c->err);
    if (!c->res[0] || !c->res[1] || !c->res[2])
        return false;
    if (inverse && g->n)
        memcpy(tensor_host(c->res[1]), g->group, sizeof(int64_t) * (size_t)g->n);
    if (counts && g->count)
        memcpy(tensor_host(c->res[2]), g->size, sizeof(int64_t) * (size_t)g->count);
    return true;
}

static bool unique_flat(op_call *c, bool sort, bool inverse, bool counts)
{
    tp_tensor *t = tensor_contiguous(arg_t(c, 0), c->err);
    if (!t)
        return false;
    tp_tensor *flat = tensor_on(t->storage, (dtype)t->dt, 1, &t->numel, NULL, t->offset);
    groups g;
    groups_alloc(&g, t->numel);
    (sort ? group_sorted : group_runs)(&g, flat);
    bool ok = unique_out(c, flat, -1, &g, inverse, counts);
    tmp_free(g.group, (int64_t)sizeof(int64_t) * MAX(g.n, 1) * 3);
    tensor_unref(flat);
    tensor_unref(t);
    return ok;
}
static bool unique_along(op_call *c, int at, bool sort, bool inverse, bool counts)
{
    tp_tensor *t = arg_t(c, 0), *front;
    int dim;
    if (!arg_dim(c, at, t->ndim, &dim))
        return false;
    if (!t->ndim)
        return unique_flat(c, sort, inverse, counts);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    size[0] = t->size[dim];
    stride[0] = t->stride[dim];
    for (int d = 0, k = 1; d < t->ndim; d++)
        if (d != dim) {
            size[k] = t->size[d];
            stride[k++] = t->stride[d];
        }
    tp_tensor *v = tensor_on(t->storage, (dtype)t->dt, t->ndim, size, stride, t->offset);
    front = tensor_contiguous(v, c->err);
    tensor_unref(v);
    if (!front)
        return false;
    int64_t n = size[0], w = n ? front->numel / n : 0;
    groups g;
    groups_alloc(&g, n);
    group_rows(&g, front, w, sort);
    bool ok = unique_out(c, front, dim, &g, inverse, counts);
    tmp_free(g.group, (int64_t)sizeof(int64_t) * MAX(g.n, 1) * 3);
    tensor_unref(front);
    return ok;
}
bool eager_unique(op_call *c) { return unique_flat(c, true, c->arg[2].b, c->arg[3].b); }
bool eager_unique_dim(op_call *c) { return unique_along(c, 1, true, c->arg[3].b, c->arg[4].b); }
bool eager_unique_consecutive(op_call *c)
{
    return c->arg[3].kind == VAL_none ? unique_flat(c, false, c->arg[1].b, c->arg[2].b)
                                      : unique_along(c, 3, false, c->arg[1].b, c->arg[2].b);
}

/* ---- bincount, histc ---- */
bool shape_bincount(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *w = arg_t(c, 1);
    symint n;
    if (!dtype_is_int((dtype)t->dt) && t->dt != DT_bool)
        return no_kernel(c, (dtype)t->dt);
    if (t->ndim != 1)
        return err_set(c->err, ERR_runtime, "bincount only supports 1-d non-negative integral inputs.");
    if (c->arg[2].i < 0)
        return err_set(c->err, ERR_runtime, "minlength should be >= 0");
    if (w && (w->ndim != 1 || !sym_eq(w->size[0], t->size[0])))
        return err_set(c->err, ERR_runtime, "weights should be 1-d and have the same length as input");
    if (is_real(c))
        return true;
    return unknown_size(c, &n) && out_new(c, !w ? DT_i64 : w->dt == DT_f32 ? DT_f32 : DT_f64, 1, &n) != NULL;
}
/* Four counts a number, for neighbours: a number that comes twice in a row does not wait for its own count. */
static void count_few(int64_t n, const int64_t *v, int64_t bins, int64_t *o)
{
    size_t bytes = sizeof(int64_t) * (size_t)bins * 3;
    int64_t *p = memset(mem_alloc(bytes), 0, bytes), *q = p + bins, *r = q + bins, i = 0;
    for (; i + 4 <= n; i += 4) {
        o[v[i]]++;
        p[v[i + 1]]++;
        q[v[i + 2]]++;
        r[v[i + 3]]++;
    }
    for (; i < n; i++)
        o[v[i]]++;
    for (i = 0; i < bins; i++)
        o[i] += p[i] + q[i] + r[i];
    free(p);
}
static bool bincount(op_call *c, tp_tensor *t, tp_tensor *w) /* t: packed int64 */
{
    const int64_t *v = tensor_host(t);
    int64_t n = c->arg[2].i, top = moves()->largest(t->numel, v), i;
    if (top == -2)
        return err_set(c->err, ERR_runtime, "bincount only supports 1-d non-negative integral inputs.");
    n = MAX(n, top + 1);
    dtype dt = !w ? DT_i64 : w->dt == DT_f32 ? DT_f32 : DT_f64;
    tp_tensor *r = c->res[0] = tensor_new(dt, 1, &n, c->err);
    if (!r)
        return false;
    if (n)
        memset(tensor_host(r), 0, (size_t)n * dtype_size(dt));
    char *o = tensor_host(r);
    if (!w && n && n <= 4096 && n * 4 <= t->numel)
        count_few(t->numel, v, n, (int64_t *)o);
    else if (!w)
        for (i = 0; i < t->numel; i++)
            ((int64_t *)o)[v[i]]++;
    else
        for (i = 0; i < t->numel; i++) {
            void *p = o + (size_t)v[i] * dtype_size(dt);
            elem_set_f(dt, p, elem_get_f(dt, p) + elem_get_f((dtype)w->dt, tensor_elem(w, i)));
        }
    return true;
}
bool eager_bincount(op_call *c)
{
    tp_tensor *t = tensor_cast(arg_t(c, 0), DT_i64, c->err);
    tp_tensor *line = t ? tensor_contiguous(t, c->err) : NULL;
    bool ok = line && bincount(c, line, arg_t(c, 1));
    tensor_unref(line);
    tensor_unref(t);
    return ok;
}

bool shape_histc(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    if (!dtype_is_float((dtype)t->dt))
        return no_kernel(c, (dtype)t->dt);
    if (c->arg[1].i <= 0)
        return err_set(c->err, ERR_runtime,
                       "torch.histogram(): bins must be > 0, but got %lld for dimension 0",
                       (long long)c->arg[1].i);
    double lo = val_as_f(&c->arg[2]), hi = val_as_f(&c->arg[3]);
    if (lo > hi)
        return err_set(c->err, ERR_runtime,
                       "torch.histogramdd: min should not exceed max, but got min %g max %g for dimension 0",
                       lo, hi);
    return out_new(c, (dtype)t->dt, 1, &c->arg[1].i) != NULL;
}
bool eager_histc(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *o = c->res[0];
    int64_t bins = c->arg[1].i, *count = mem_zalloc(sizeof *count * (size_t)bins);
    double lo = val_as_f(&c->arg[2]), hi = val_as_f(&c->arg[3]);
    bool ok = true;
    if (lo == hi && t->numel) {
        lo = INFINITY, hi = -INFINITY;
        for (int64_t i = 0; i < t->numel; i++) {
            double v = elem_get_f((dtype)t->dt, tensor_elem(t, i));
            lo = v < lo || v != v ? v : lo;
            hi = v > hi || v != v ? v : hi;
        }
    }
    if (lo == hi)
        lo -= 1, hi += 1;
    if (!isfinite(lo) || !isfinite(hi))
        ok = err_set(c->err, ERR_runtime, "torch.histogramdd: dimension 0's range [%g, %g] is not finite", lo,
                     hi);
    for (int64_t i = 0; ok && i < t->numel; i++) {
        double v = elem_get_f((dtype)t->dt, tensor_elem(t, i));
        if (v >= lo && v <= hi) {
            int64_t b = (int64_t)((v - lo) / (hi - lo) * (double)bins);
            count[MIN(b, bins - 1)]++;
        }
    }
    for (int64_t i = 0; i < bins; i++)
        elem_set_i((dtype)o->dt, (char *)tensor_host(o) + (size_t)i * dtype_size((dtype)o->dt), count[i]);
    free(count);
    return ok;
}

/* ---- searches ---- */
static bool search_right(op_call *c, int right, int side, bool *out)
{
    *out = c->arg[right].b;
    if (side >= 0 && c->arg[side].kind == VAL_str) {
        const char *s = c->arg[side].s;
        if (strcmp(s, "left") && strcmp(s, "right"))
            return err_set(c->err, ERR_runtime,
                           "torch.searchsorted(): side can only be 'left' or 'right' but got %.40s", s);
        if (*s == 'l' && c->arg[right].b)
            return err_set(
                c->err, ERR_runtime,
                "torch.searchsorted(): side and right can't be set to opposites, got side of left while "
                "right was True");
        *out = *s == 'r';
    }
    return true;
}
bool shape_searchsorted(op_call *c) /* sorted_sequence, self, out_int32, right, side, sorter */
{
    tp_tensor *s = arg_t(c, 0), *v = arg_t(c, 1), *sorter = arg_t(c, 5);
    bool right;
    if (!search_right(c, 3, 4, &right))
        return false;
    if (!v && s->ndim > 1)
        return err_set(
            c->err, ERR_runtime,
            "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension "
            "is 1, but we got boundaries tensor dim(%d)",
            s->ndim);
    if (!s->ndim)
        return err_set(
            c->err, ERR_runtime,
            "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension");
    if (v && s->ndim > 1) {
        bool same = s->ndim == v->ndim;
        for (int d = 0; same && d < s->ndim - 1; d++)
            same = sym_eq(s->size[d], v->size[d]);
        if (!same) {
            strbuf a = { 0 }, b = { 0 };
            shape_print(&a, s->ndim, s->size);
            shape_print(&b, v->ndim, v->size);
            err_set(
                c->err, ERR_runtime,
                "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions "
                "of "
                "boundaries tensor and input value tensor must match, but we got boundaries tensor %s and "
                "input value tensor %s",
                strbuf_str(&a), strbuf_str(&b));
            strbuf_free(&a);
            strbuf_free(&b);
            return false;
        }
    }
    if (sorter && (!tensor_same_size(sorter, s) || sorter->dt != DT_i64))
        return err_set(
            c->err, ERR_runtime,
            "torch.searchsorted(): boundary and sorter must have the same size, and the sorter must be "
            "a tensor of long dtype");
    return out_new(c, c->arg[2].b ? DT_i32 : DT_i64, v ? v->ndim : 0, v ? v->size : NULL) != NULL;
}
bool shape_bucketize(op_call *c) /* self, boundaries, out_int32, right */
{
    tp_tensor *v = arg_t(c, 0), *s = arg_t(c, 1);
    if (s->ndim != 1)
        return err_set(c->err, ERR_runtime,
                       "bucketize(): boundaries tensor must be 1 dimension, but got dim(%d)", s->ndim);
    return out_new(c, c->arg[2].b ? DT_i32 : DT_i64, v ? v->ndim : 0, v ? v->size : NULL) != NULL;
}

/* Packed copy of t (or of one number) in a type both sides compare in. */
/* v packed, in type dt; own: a copy that may be written to */
static tp_tensor *packed_as(op_call *c, const tp_val *v, dtype dt, bool own)
{
    if (v->kind != VAL_tensor)
        return tensor_scalar(dt, val_as_f(v), val_as_i(v), c->err);
    if (!own && v->t->dt == dt && tensor_is_contiguous(v->t))
        return tensor_ref(v->t);
    tp_tensor *r = tensor_new(dt, v->t->ndim, v->t->size, c->err);
    if (r && !tensor_copy(r, v->t, c->err)) {
        tensor_unref(r);
        r = NULL;
    }
    return r;
}
static dtype common_type(op_call *c, const tp_val *a, const tp_val *b)
{
    dtype_join j = DTYPE_JOIN_INIT;
    const tp_val *v[2] = { a, b };
    for (int i = 0; i < 2; i++)
        if (v[i]->kind == VAL_tensor)
            dtype_join_add(&j, (dtype)v[i]->t->dt, v[i]->t->ndim, v[i]->t->flags & TF_wrapped);
        else
            dtype_join_add(&j, val_number_dtype(v[i], c->cx->default_dtype), 0, true);
    dtype dt = dtype_join_result(&j);
    bool narrow = dt == DT_f32; /* exact only where nothing is rounded on the way */
    for (int i = 0; i < 2; i++)
        narrow = narrow && v[i]->kind == VAL_tensor && v[i]->t->dt == DT_f32;
    return narrow ? DT_f32 : dtype_is_float(dt) ? DT_f64 : DT_i64;
}

typedef struct search_job {
    const void *bounds, *values;
    char *out;
    int64_t n, per; /* boundaries in a line; values for a line, 0: one line for all */
    dtype dt;
    bool right, narrow;
} search_job;
/* Halves the range without a branch: where a value goes cannot be foreseen. NaN lies after everything. */
#define SEARCH(T, go_right, go_left)                                               \
    {                                                                              \
        const T *v = j->values, *lines = j->bounds;                                \
        for (; b < e; b++) {                                                       \
            const T *line = j->per ? lines + b / j->per * j->n : lines, *p = line; \
            const T y = v[b];                                                      \
            int64_t len = j->n;                                                    \
            while (len > 1) {                                                      \
                int64_t half = len / 2;                                            \
                const T m = p[half - 1];                                           \
                p += half & -(int64_t)(right ? (go_right) : (go_left));            \
                len -= half;                                                       \
            }                                                                      \
            if (len) {                                                             \
                const T m = *p;                                                    \
                p += (right ? (go_right) : (go_left));                             \
            }                                                                      \
            if (j->narrow)                                                         \
                ((int32_t *)j->out)[b] = (int32_t)(p - line);                      \
            else                                                                   \
                ((int64_t *)j->out)[b] = p - line;                                 \
        }                                                                          \
        break;                                                                     \
    }
#define SEARCH_BOTH(T, go_right, go_left) \
    if (j->right) {                       \
        const bool right = true;          \
        SEARCH(T, go_right, go_left)      \
    } else {                              \
        const bool right = false;         \
        SEARCH(T, go_right, go_left)      \
    }
static void search_span(void *arg, int64_t b, int64_t e)
{
    const search_job *j = arg;
    switch (j->dt) {
    case DT_f32: SEARCH_BOTH(float, !(m > y), !(m >= y))
    case DT_f64: SEARCH_BOTH(double, !(m > y), !(m >= y))
    default: SEARCH_BOTH(int64_t, m <= y, m < y)
    }
}

/* The boundaries in their order, by a sorter for each line of them. */
static bool sorted_by(op_call *c, tp_tensor *s, const tp_tensor *order)
{
    int64_t n = s->size[s->ndim - 1], es = (int64_t)dtype_size((dtype)s->dt);
    const int64_t *at = tensor_host(order);
    char *line = tensor_host(s), *copy = mem_alloc((size_t)MAX(n * es, 1));
    bool ok = true;
    for (int64_t i = 0; ok && n && i < s->numel; i += n, line += n * es) {
        memcpy(copy, line, (size_t)(n * es));
        for (int64_t k = 0; ok && k < n; k++)
            if (at[i + k] < 0 || at[i + k] >= n)
                ok = err_set(c->err, ERR_runtime, "torch.searchsorted(): sorter index out of range");
            else
                memcpy(line + k * es, copy + at[i + k] * es, (size_t)es);
    }
    free(copy);
    return ok;
}

static bool search(op_call *c, const tp_val *bound, const tp_val *val, tp_tensor *sorter, bool right)
{
    dtype dt = common_type(c, bound, val);
    tp_tensor *s = packed_as(c, bound, dt, sorter), *v = packed_as(c, val, dt, false), *so = NULL,
              *o = c->res[0];
    tp_val order = vT(sorter);
    bool ok = s && v && (!sorter || ((so = packed_as(c, &order, DT_i64, false)) && sorted_by(c, s, so)));
    if (ok) {
        search_job j = { .bounds = tensor_host(s),
                         .values = tensor_host(v),
                         .out = tensor_host(o),
                         .n = s->size[s->ndim - 1],
                         .per = s->ndim > 1 ? v->size[v->ndim - 1] : 0,
                         .dt = dt,
                         .right = right,
                         .narrow = o->dt == DT_i32 };
        pool_for(v->numel, 4096, search_span, &j);
    }
    tensor_unref(s);
    tensor_unref(v);
    tensor_unref(so);
    return ok;
}
bool eager_searchsorted(op_call *c)
{
    bool right;
    return search_right(c, 3, 4, &right) && search(c, &c->arg[0], &c->arg[1], arg_t(c, 5), right);
}
bool eager_bucketize(op_call *c) { return search(c, &c->arg[1], &c->arg[0], NULL, c->arg[3].b); }

/* The same on a device. */
static tp_tensor *packed_on(op_call *c, tp_tensor *t, dtype dt, tp_device dev)
{
    tp_tensor *here = tensor_to(t, dev, c->err), *as = here ? tensor_cast(here, dt, c->err) : NULL,
              *r = as ? tensor_contiguous(as, c->err) : NULL;
    tensor_unref(here);
    tensor_unref(as);
    return r;
}
op_device_fn device_searchsorted, device_bucketize;
static own_result search_on(op_call *c, int bound, int val, bool right)
{
    tp_tensor *o = c->res[0];
    if (!arg_t(c, bound) || !arg_t(c, val) || !arg_t(c, bound)->numel || !tensor_is_contiguous(o))
        return OWN_declined;
    dtype dt = common_type(c, &c->arg[bound], &c->arg[val]);
    tp_device dev = tensor_device(o);
    tp_tensor *s = packed_on(c, arg_t(c, bound), dt, dev), *v = packed_on(c, arg_t(c, val), dt, dev);
    own_result r = OWN_failed;
    if (s && v) {
        own_search j = { .dt = dt,
                         .bounds = tensor_data(s),
                         .values = tensor_data(v),
                         .n = s->size[s->ndim - 1],
                         .per = s->ndim > 1 ? v->size[v->ndim - 1] : 0,
                         .values_n = v->numel,
                         .right = right,
                         .narrow = o->dt == DT_i32,
                         .out = tensor_data(o) };
        r = ops_owner(dev)->search(dev, &j, c->err);
    }
    tensor_unref(s);
    tensor_unref(v);
    return r;
}
own_result device_searchsorted(op_call *c)
{
    bool right;
    return arg_t(c, 5)                     ? OWN_declined
           : search_right(c, 3, 4, &right) ? search_on(c, 0, 1, right)
                                           : OWN_failed;
}
own_result device_bucketize(op_call *c) { return search_on(c, 1, 0, c->arg[3].b); }

bool shape_isin(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    for (int i = 0; i < 2; i++)
        if (arg_t(c, i) ? arg_t(c, i)->dt == DT_bool : c->arg[i].kind == VAL_bool)
            return err_set(c->err, ERR_runtime, "Unsupported input type encountered for isin(): Bool");
    return out_new(c, DT_bool, t ? t->ndim : 0, t ? t->size : NULL) != NULL;
}
bool eager_isin(op_call *c) /* elements, test_elements, assume_unique, invert */
{
    dtype dt = common_type(c, &c->arg[0], &c->arg[1]);
    dt = dtype_is_float(dt) ? DT_f64 : DT_i64;
    tp_tensor *e = packed_as(c, &c->arg[0], dt, false), *t = packed_as(c, &c->arg[1], dt, false);
    bool ok = e && t, inv = c->arg[3].b;
    if (ok) {
        int64_t n = t->numel, m = e->numel;
        keyed *o = mem_alloc(sizeof *o * (size_t)MAX(n, 1) * 2),
              *q = mem_alloc(sizeof *q * (size_t)MAX(m, 1));
        uint8_t *r = tensor_host(c->res[0]);
        keys_load(dt, n, tensor_host(t), 8, o);
        keys_sort(n, o, o + n, 64);
        keys_load(dt, m, tensor_host(e), 8, q);
        for (int64_t i = 0; i < m; i++) {
            int64_t lo = 0, hi = n;
            while (lo < hi) {
                int64_t mid = lo + (hi - lo) / 2;
                if (o[mid].k < q[i].k)
                    lo = mid + 1;
                else
                    hi = mid;
            }
            bool in = lo < n && o[lo].k == q[i].k && !(dt == DT_f64 && q[i].k == key_nan(dt));
            r[i] = in != inv;
        }
        free(o);
        free(q);
    }
    tensor_unref(e);
    tensor_unref(t);
    return ok;
}

/* ---- numbers from tensors ---- */
static op_out *number(op_call *c)
{
    op_out *o = out_add(c);
    o->kind = OUT_num;
    return o;
}
bool shape_equal(op_call *c)
{
    number(c);
    if (!is_real(c))
        return err_set(c->err, ERR_datadep, "%s: a fake tensor has no values to compare", c->row->name);
    return true;
}
bool eager_equal(op_call *c)
{
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 1);
    bool same = tensor_same_size(a, b), ok = true;
    if (same && a->numel) {
        dtype dt = dtype_is_float((dtype)a->dt) || dtype_is_float((dtype)b->dt) ? DT_f64 : DT_i64;
        if (a->dt == b->dt && !dtype_is_float((dtype)a->dt) && tensor_is_contiguous(a) &&
            tensor_is_contiguous(b))
            same = !memcmp(tensor_host(a), tensor_host(b), (size_t)a->numel * dtype_size((dtype)a->dt));
        else {
            tp_tensor *x = packed_as(c, &c->arg[0], dt, false), *y = packed_as(c, &c->arg[1], dt, false);
            ok = x && y;
            for (int64_t i = 0; ok && same && i < a->numel; i++)
                same = dt == DT_f64 ? ((double *)tensor_host(x))[i] == ((double *)tensor_host(y))[i]
                                    : ((int64_t *)tensor_host(x))[i] == ((int64_t *)tensor_host(y))[i];
            tensor_unref(x);
            tensor_unref(y);
        }
    }
    c->out[0].num = vB(same);
    return ok;
}

bool eager_allclose(op_call *c)
{
    bld b;
    bld_init(&b, c->cx, c->err);
    tp_tensor *r = b_op(&b, isclose, c->arg[0], c->arg[1], c->arg[2], c->arg[3], c->arg[4]);
    r = b_op(&b, all, vT(r));
    if (r)
        c->out[0].num = vB(*(uint8_t *)tensor_host(r));
    bld_end(&b);
    return r != NULL;
}

bool shape_item(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    if (!sym_eq(t->numel, 1)) {
        strbuf b = { 0 };
        if (sym_is_expr(t->numel))
            sym_print(&b, t->numel);
        else
            strbuf_addf(&b, "%lld", (long long)t->numel);
        err_set(c->err, ERR_runtime, "a Tensor with %s elements cannot be converted to Scalar",
                strbuf_str(&b));
        strbuf_free(&b);
        return false;
    }
    op_out *o = number(c);
    if (!is_real(c)) { /* an integer the program will know */
        if (!c->cx->env || dtype_is_float((dtype)t->dt))
            return err_set(c->err, ERR_datadep, "item(): a fake tensor has no value");
        static const int64_t
            lo[] = { [DT_u8] = 0, [DT_i8] = INT8_MIN, [DT_i16] = INT16_MIN, [DT_i32] = INT32_MIN },
            hi[] = { [DT_u8] = 255, [DT_i8] = INT8_MAX, [DT_i16] = INT16_MAX, [DT_i32] = INT32_MAX };
        bool wide = t->dt >= COUNT(lo) || !hi[t->dt];
        if (t->dt == DT_bool)
            o->num = vI(sym_env_unbacked(c->cx->env, 0, 1));
        else
            o->num = vI(
                sym_env_unbacked(c->cx->env, wide ? INT64_MIN : lo[t->dt], wide ? INT64_MAX : hi[t->dt]));
    }
    return true;
}

/* What the program stated about a value that only its run knows (taper._check). kind: an err_kind. */
/* An assert statement about a tensor: what it says is for plain execution to say. */
bool shape_assert_async(op_call *c)
{
    return sym_eq(arg_t(c, 0)->numel, 1) ||
           err_set(c->err, ERR_runtime, "Boolean value of Tensor with more than one value is ambiguous");
}
bool eager_assert_async(op_call *c)
{
    const tp_tensor *x = arg_t(c, 0);
    const char *p = tensor_host(x);
    bool holds = false;
    for (size_t i = 0; i < (size_t)dtype_size((dtype)x->dt); i++)
        holds |= dtype_is_float((dtype)x->dt) ? elem_get_f((dtype)x->dt, p) != 0 : p[i] != 0;
    return holds || err_set(c->err, ERR_runtime, "Expected Tensor with single nonzero value, but got zero");
}
bool shape_check_scalar(op_call *c) { return true; }
bool eager_check_scalar(op_call *c)
{
    if (val_as_f(&c->arg[0]) != 0)
        return true;
    int64_t kind = c->arg[2].i;
    return err_set(c->err, kind > ERR_none && kind < ERR_COUNT ? (err_kind)kind : ERR_runtime, "%s",
                   c->arg[1].s);
}
bool eager_item(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    const void *p = tensor_host(t);
    dtype dt = (dtype)t->dt;
    c->out[0].num = dt == DT_bool        ? vB(elem_get_i(dt, p))
                    : dtype_is_float(dt) ? vF(elem_get_f(dt, p))
                                         : vI(elem_get_i(dt, p));
    return true;
}
