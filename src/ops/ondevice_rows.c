/* ondevice_rows.c - rows that a device computes by other rows, where the CPU has loops of its own: modes, medians of all elements, counts,
 * unique slices, draws of categories. What a result's size or an error depends on is asked for once. */
#include "ops/decomp.h"
#include "ops/ondevice.h"
#include <math.h>

#define DEVICE(id, token) op_device_fn device_##token;
#include "ops/ops.def"

enum { MOST_COLUMNS = 256 }; /* of slices that are sorted by one column after the other */

static tp_tensor *items(bld *b, tp_tensor *t, int dim, symint from, symint n)
{
    return b_op(b, narrow, vT(t), vI(dim), vI(from), vI(n));
}
static tp_tensor *numbers(bld *b, symint n, tp_device d) /* 0, 1, ... */
{
    return b_op(b, arange, vI(n), vDT(DT_i64), vNone, vDev(d));
}
static tp_tensor *filled(bld *b, op_id op, symint n, dtype dt, tp_device d) /* ones, zeros */
{
    return b_callv(b, op, OPV_fn, (tp_val[]){ vIs(&n, 1), vDT(dt), vNone, vDev(d) }, 4);
}
static tp_tensor *joined(bld *b, tp_tensor *x, tp_tensor *y, int dim)
{
    tp_tensor *both[2] = { x, y };
    return x && y ? b_op(b, cat, vTs(both, 2), vI(dim)) : NULL;
}
/* Where neighbours along the last dimension (or the first) differ, NaN being equal to NaN. */
static tp_tensor *differ(bld *b, tp_tensor *t, int dim, symint n)
{
    tp_tensor *x = items(b, t, dim, 1, n - 1), *y = items(b, t, dim, 0, n - 1),
              *ne = b_op(b, ne_Tensor, vT(x), vT(y));
    if (!t || !dtype_is_float((dtype)t->dt))
        return ne;
    tp_tensor *nan = b_op(b, logical_and, vT(b_op(b, isnan, vT(x))), vT(b_op(b, isnan, vT(y))));
    return b_op(b, logical_and, vT(ne), vT(b_op(b, logical_not, vT(nan))));
}
/* n numbers on the host. */
static bool told(bld *b, tp_tensor *t, int n, double *out)
{
    tp_tensor *h = t ? bld_host(b, t) : NULL;
    for (int i = 0; h && i < n; i++)
        out[i] = elem_get_f((dtype)h->dt, (char *)tensor_host(h) + (size_t)i * dtype_size((dtype)h->dt));
    return h != NULL;
}
static tp_tensor *pair(bld *b, tp_tensor *x, tp_tensor *y)
{
    tp_tensor *both[2] = { x, y };
    return x && y ? b_op(b, stack, vTs(both, 2), vI(0)) : NULL;
}
static own_result ended(bld *b, bool ok)
{
    ok = ok && !b->failed;
    bld_end(b);
    return ok ? OWN_done : OWN_failed;
}

/* --- orders ----------------------------------------------------------------------------------------- */
static own_result median_of_all(op_call *c, bool skip_nan)
{
    static const symint all = -1;
    bld b;
    tp_tensor *r[2] = { NULL };
    bld_init(&b, c->cx, c->err);
    tp_tensor *line = b_op(&b, reshape, vT(arg_t(c, 0)), vIs(&all, 1));
    bool ok = skip_nan ? b_opn(&b, nanmedian_dim, r, 2, vT(line), vI(0), vB(false))
                       : b_opn(&b, median_dim, r, 2, vT(line), vI(0), vB(false));
    return ended(&b, ok && tensor_copy(c->res[0], r[0], c->err));
}
own_result device_median(op_call *c) { return median_of_all(c, false); }
own_result device_nanmedian(op_call *c) { return median_of_all(c, true); }

/* The longest run of equal elements in sorted order, the first of several; its last element stands for it. */
own_result device_mode(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *r[2], *top[2];
    int dim;
    if (!arg_dim(c, 1, t->ndim, &dim))
        return OWN_failed;
    symint n = t->ndim ? t->size[dim] : 1;
    if (n < 2)
        return OWN_declined;
    bld b;
    bld_init(&b, c->cx, c->err);
    tp_tensor *x = b_op(&b, transpose_int, vT(t), vI(dim), vI(-1));
    bool ok = b_opn(&b, sort_stable, r, 2, vT(x), vB(true), vI(-1), vB(false));
    tp_tensor *at = numbers(&b, n, tensor_device(t));
    tp_tensor *from = ok ? b_op(&b, where_self, vT(differ(&b, r[0], -1, n)), vT(items(&b, at, 0, 1, n - 1)),
                                vI(0))
                         : NULL;
    from = from ? joined(&b, b_op(&b, mul_Tensor, vT(items(&b, r[1], -1, 0, 1)), vI(0)), from, -1) : NULL;
    ok = from && b_opn(&b, cummax, top, 2, vT(from), vI(-1));
    tp_tensor *longest = ok ? b_op(&b, argmax, vT(b_op(&b, sub_Tensor, vT(at), vT(top[0]))), vI(-1), vB(true))
                            : NULL;
    for (int i = 0; i < 2 && longest; i++) {
        tp_tensor *got = b_op(&b, transpose_int, vT(b_op(&b, gather, vT(r[i]), vI(-1), vT(longest))), vI(dim),
                              vI(-1));
        if (got && c->res[i]->ndim != got->ndim)
            got = b_op(&b, select_int, vT(got), vI(dim), vI(0));
        ok = ok && got && tensor_copy(c->res[i], got, c->err);
    }
    return ended(&b, ok && longest);
}

/* --- counts ----------------------------------------------------------------------------------------- */
own_result device_bincount(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *w = arg_t(c, 1);
    double ends[2];
    bld b;
    bld_init(&b, c->cx, c->err);
    tp_tensor *at = b_op(&b, to_dtype, vT(t), vDT(DT_i64));
    if (!told(&b, pair(&b, b_op(&b, min, vT(at)), b_op(&b, max, vT(at))), 2, ends))
        return ended(&b, false);
    if (ends[0] < 0) {
        err_set(c->err, ERR_runtime, "bincount only supports 1-d non-negative integral inputs.");
        return ended(&b, false);
    }
    symint n = MAX(c->arg[2].i, (int64_t)ends[1] + 1);
    dtype dt = !w ? DT_i64 : w->dt == DT_f32 ? DT_f32 : DT_f64;
    tp_tensor *what = w ? b_op(&b, to_dtype, vT(w), vDT(dt))
                        : filled(&b, OP_ones, t->numel, dt, tensor_device(t));
    tp_tensor *r = b_op(&b, scatter_add, vT(filled(&b, OP_zeros, n, dt, tensor_device(t))), vI(0), vT(at),
                        vT(what));
    c->res[0] = r ? tensor_ref(r) : NULL;
    return ended(&b, r != NULL);
}

own_result device_histc(op_call *c)
{
    static const symint all = -1;
    tp_tensor *t = arg_t(c, 0);
    double ends[2] = { val_as_f(&c->arg[2]), val_as_f(&c->arg[3]) };
    int64_t bins = c->arg[1].i;
    bld b;
    bld_init(&b, c->cx, c->err);
    tp_tensor *v = b_op(&b, to_dtype, vT(b_op(&b, reshape, vT(t), vIs(&all, 1))), vDT(DT_f64));
    if (ends[0] == ends[1] && !told(&b, pair(&b, b_op(&b, min, vT(v)), b_op(&b, max, vT(v))), 2, ends))
        return ended(&b, false);
    if (ends[0] == ends[1])
        ends[0] -= 1, ends[1] += 1;
    if (!isfinite(ends[0]) || !isfinite(ends[1])) {
        err_set(c->err, ERR_runtime, "torch.histogramdd: dimension 0's range [%g, %g] is not finite", ends[0],
                ends[1]);
        return ended(&b, false);
    }
    tp_tensor *in = b_op(&b, logical_and, vT(b_op(&b, ge_Tensor, vT(v), vF(ends[0]))),
                         vT(b_op(&b, le_Tensor, vT(v), vF(ends[1]))));
    tp_tensor *x = b_op(&b, div_Tensor, vT(b_op(&b, sub_Tensor, vT(v), vF(ends[0]))), vF(ends[1] - ends[0]));
    x = b_op(&b, mul_Tensor, vT(x), vF((double)bins));
    x = b_op(&b, clamp_max,
             vT(b_op(&b, to_dtype, vT(b_op(&b, where_self, vT(in), vT(x), vF(0))), vDT(DT_i64))),
             vI(bins - 1));
    tp_tensor *r = b_op(&b, scatter_add, vT(filled(&b, OP_zeros, bins, DT_i64, tensor_device(t))), vI(0),
                        vT(x), vT(b_op(&b, to_dtype, vT(in), vDT(DT_i64))));
    return ended(&b, r && tensor_copy(c->res[0], r, c->err));
}

/* --- unique slices ---------------------------------------------------------------------------------- */
/* The order of the rows of front [n, w]: by the last column first, each sort keeping the order of the ones before. */
static tp_tensor *sorted_rows(bld *b, tp_tensor *front, symint w)
{
    tp_tensor *order = NULL;
    for (int64_t i = w - 1; i >= 0; i--) {
        tp_tensor *key = b_op(b, select_int, vT(front), vI(1), vI(i));
        if (order)
            key = b_op(b, index_select, vT(key), vI(0), vT(order));
        tp_tensor *by = b_op(b, argsort_stable, vT(key), vB(true), vI(0), vB(false));
        order = order ? b_op(b, index_select, vT(order), vI(0), vT(by)) : by;
        if (!order)
            return NULL;
    }
    return order;
}

static own_result unique_slices(op_call *c, int at, bool sort, bool inverse, bool counts)
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    if (!arg_dim(c, at, t->ndim, &dim))
        return OWN_failed;
    symint n = t->ndim ? t->size[dim] : 1, w = n ? t->numel / n : 0, none = 0;
    if (!t->ndim || n < 2 || w < 1 || (sort && w > MOST_COLUMNS))
        return OWN_declined;
    tp_device d = tensor_device(t);
    bld b;
    bld_init(&b, c->cx, c->err);
    tp_tensor *moved = b_op(&b, movedim_int, vT(t), vI(dim), vI(0));
    tp_tensor *front = b_op(&b, reshape, vT(moved), vIs(((symint[]){ n, w }), 2));
    tp_tensor *order = sort && front ? sorted_rows(&b, front, w) : NULL;
    tp_tensor *rows = order ? b_op(&b, index_select, vT(front), vI(0), vT(order)) : front;
    tp_tensor *first = joined(&b, filled(&b, OP_ones, 1, DT_bool, d),
                              b_op(&b, any_dim, vT(differ(&b, rows, 0, n)), vI(1), vB(false)), 0);
    tp_tensor *where = b_op(&b, nonzero, vT(first)); /* waits for the count */
    tp_tensor *from = where ? b_op(&b, select_int, vT(where), vI(1), vI(0)) : NULL;
    bool ok = from && !b.failed && (!sort || order);
    if (ok) {
        symint found = from->size[0], size[TP_MAX_DIMS] = { found };
        memcpy(size + 1, moved->size + 1, sizeof *size * (size_t)(moved->ndim - 1));
        tp_tensor *v = b_op(&b, reshape, vT(b_op(&b, index_select, vT(rows), vI(0), vT(from))),
                            vIs(size, moved->ndim));
        v = b_op(&b, movedim_int, vT(v), vI(0), vI(dim));
        tp_tensor *group = filled(&b, OP_zeros, none, DT_i64, d), *many = group;
        if (inverse) {
            tp_tensor *g = b_op(&b, cumsum, vT(b_op(&b, to_dtype, vT(first), vDT(DT_i64))), vI(0));
            g = b_op(&b, sub_Tensor, vT(g), vI(1));
            group = order ? b_op(&b, scatter_src, vT(g), vI(0), vT(order), vT(g)) : g;
        }
        if (counts) {
            tp_tensor *next = found > 1 ? items(&b, from, 0, 1, found - 1)
                                        : filled(&b, OP_zeros, none, DT_i64, d);
            next = joined(&b, next, b_op(&b, mul_Tensor, vT(filled(&b, OP_ones, 1, DT_i64, d)), vI(n)), 0);
            many = b_op(&b, sub_Tensor, vT(next), vT(from));
        }
        ok = v && group && many;
        if (ok)
            c->res[0] = tensor_ref(v), c->res[1] = tensor_ref(group), c->res[2] = tensor_ref(many);
    }
    return ended(&b, ok);
}
own_result device_unique_dim(op_call *c) { return unique_slices(c, 1, true, c->arg[3].b, c->arg[4].b); }
own_result device_unique_consecutive_dim(op_call *c)
{
    return unique_slices(c, 3, false, c->arg[1].b, c->arg[2].b);
}

/* --- draws of categories ---------------------------------------------------------------------------- */
own_result device_multinomial(op_call *c) /* self, num_samples, replacement, generator */
{
    tp_tensor *t = arg_t(c, 0), *r[2] = { NULL };
    int64_t k = c->arg[1].i;
    bool race = !c->arg[2].b || k == 1;
    double fine[2];
    if (c->arg[3].kind == VAL_gen && c->arg[3].gen)
        return OWN_declined;
    bld b;
    bld_init(&b, c->cx, c->err);
    dtype dt = t->dt == DT_f64 ? DT_f64 : DT_f32;
    tp_tensor *w = b_op(&b, to_dtype, vT(t), vDT(dt));
    tp_tensor *good = b_op(&b, logical_and, vT(b_op(&b, ge_Tensor, vT(w), vF(0))),
                           vT(b_op(&b, isfinite, vT(w))));
    tp_tensor *sums = b_op(&b, sum_dim_IntList, vT(b_op(&b, to_dtype, vT(w), vDT(DT_f64))),
                           vIs(((symint[]){ -1 }), 1), vB(false), vNone);
    tp_tensor *some = b_op(&b, all, vT(b_op(&b, gt_Tensor, vT(sums), vF(0))));
    if (!told(&b, pair(&b, b_op(&b, all, vT(good)), some), 2, fine))
        return ended(&b, false);
    if (!fine[0] || !fine[1]) {
        err_set(c->err, ERR_runtime, "%s",
                fine[0] ? "invalid multinomial distribution (sum of probabilities <= 0)"
                        : "probability tensor contains either `inf`, `nan` or element < 0");
        return ended(&b, false);
    }
    if (race) { /* the largest of p / q, where q is exponential */
        tp_tensor *x = b_op(&b, div_Tensor, vT(w), vT(b_op(&b, exponential, vT(w), vF(1))));
        if (k == 1)
            r[1] = b_op(&b, argmax, vT(x), vI(-1), vB(true));
        else
            b_opn(&b, topk, r, 2, vT(x), vI(k), vI(-1), vB(true), vB(true));
    } else { /* where numbers fall among the sums so far, of which the last is 1 */
        tp_tensor *at = b_op(&b, cumsum, vT(w), vI(-1));
        at = b_op(&b, div_Tensor, vT(at), vT(items(&b, at, -1, t->size[t->ndim - 1] - 1, 1)));
        tp_tensor *u = b_op(&b, rand, vIs(c->res[0]->size, c->res[0]->ndim), vNone, vDT(DT_f64), vNone,
                            vDev(tensor_device(t)));
        r[1] = b_op(&b, searchsorted_Tensor, vT(b_op(&b, to_dtype, vT(at), vDT(DT_f64))), vT(u));
    }
    return ended(&b, r[1] && tensor_copy(c->res[0], r[1], c->err));
}
