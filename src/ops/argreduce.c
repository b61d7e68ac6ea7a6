/* argreduce.c - reductions that also say where: argmax, argmin, max and min along a dimension. */
#include "ops/red.h"
#include "base/pool.h"
#include <math.h>

enum { BLOCK = 512 };

/* ---- shapes ---- */
static bool along(op_call *c, tp_tensor *t, int dim, bool keep, dtype dt)
{
    symint size[TP_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < t->ndim; d++)
        if (d != dim)
            size[n++] = t->size[d];
        else if (keep)
            size[n++] = 1;
    out_new(c, dt, n, size);
    return true;
}

static bool dim_not_empty(op_call *c, tp_tensor *t, int dim)
{
    if (t->ndim && sym_eq(t->size[dim], 0))
        return err_set(c->err, ERR_index, "%s(): Expected reduction dim %d to have non-zero size.",
                       c->row->name, dim);
    return true;
}

bool shape_argmax(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    bool keep = arg_b(c, 2, false);
    if (t->dt == DT_bool)
        return err_set(c->err, ERR_runtime, "%s(): does not support bool input", c->row->name);
    if (c->arg[1].kind == VAL_none) {
        if (sym_eq(t->numel, 0))
            return err_set(c->err, ERR_index,
                           "%s(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                           "reduction dim with the 'dim' argument.",
                           c->row->name);
        symint ones[TP_MAX_DIMS];
        for (int d = 0; d < t->ndim; d++)
            ones[d] = 1;
        out_new(c, DT_i64, keep ? t->ndim : 0, ones);
        return true;
    }
    int dim;
    return arg_dim(c, 1, t->ndim, &dim) && dim_not_empty(c, t, dim) && along(c, t, dim, keep, DT_i64);
}

bool shape_max_dim(op_call *c) /* values, indices along dim; also median, mode, kthvalue */
{
    tp_tensor *t = arg_t(c, 0);
    const op_schema *s = &c->row->schema;
    int di = !strcmp(s->param[1].name, "dim") ? 1 : 2, dim;
    bool keep = arg_b(c, di + 1, false);
    return arg_dim(c, di, t->ndim, &dim) && dim_not_empty(c, t, dim) &&
           along(c, t, dim, keep, (dtype)t->dt) && along(c, t, dim, keep, DT_i64);
}

/* ---- kernels ---- */
typedef struct arg_job {
    lines l; /* 0 input, 1 values or NULL, 2 indices */
    dtype dt;
    conv_fn *conv;
    bool min;
} arg_job;

ISA_DECL(seek_fn *, seek_pick, (bool min, ctype ct));

static void arg_lines(void *arg, int64_t b, int64_t e)
{
    const arg_job *j = arg;
    const lines *l = &j->l;
    ctype ct = (ctype)ctype_of[j->dt];
    size_t es = dtype_size(j->dt);
    seek_fn *seek = ISA_PICK(seek_pick)(j->min, ct);
    uint64_t buf[BLOCK], tmp[BLOCK], best = 0;
    for (; b < e; b++) {
        char *p[LINES_MAX];
        int64_t where = 0;
        lines_at(l, b, p);
        bool packed = l->step[0] == (int64_t)es && !j->conv;
        for (int64_t at = 0; at < l->n; at += packed ? 8192 : BLOCK) {
            int64_t m = MIN(l->n - at, packed ? 8192 : BLOCK), hit;
            const void *a = p[0] + at * l->step[0];
            if (l->step[0] != (int64_t)es) {
                void *to = j->conv ? (void *)tmp : (void *)buf;
                gather_packed(m, to, a, l->step[0], es);
                a = to;
            }
            if (j->conv) {
                j->conv(m, buf, a);
                a = buf;
            }
            hit = seek(m, a, &best, !at);
            if (hit >= 0)
                where = at + hit;
        }
        if (p[1])
            memcpy(p[1], p[0] + where * l->step[0], es);
        if (p[2])
            *(int64_t *)p[2] = where;
    }
}

/* A view of a result with the reduced dimension put back (size 1), so that lines can walk it. */
static tp_tensor *with_dim(tp_tensor *r, const tp_tensor *t, int dim)
{
    if (r->ndim == t->ndim)
        return tensor_alias(r);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    for (int d = 0, k = 0; d < t->ndim; d++) {
        size[d] = d == dim ? 1 : r->size[k];
        stride[d] = d == dim ? 1 : r->stride[k];
        k += d != dim;
    }
    return tensor_on(r->storage, (dtype)r->dt, t->ndim, size, stride, r->offset);
}

/* Contiguous tensors along a dimension that is not the last: whole columns. */
ISA_DECL(place_cols_fn *, place_cols_pick, (bool min, dtype dt));
typedef struct cols_job {
    place_cols_fn *fn;
    const char *in;
    char *values;
    int64_t *indices, tiles;
    around a;
    size_t es;
} cols_job;
static void arg_cols(void *arg, int64_t b, int64_t e)
{
    const cols_job *j = arg;
    for (; b < e; b++) {
        int64_t k = b % j->tiles * SCAN_COLS, at = b / j->tiles * j->a.inner + k;
        j->fn(j->a.n, MIN(SCAN_COLS, j->a.inner - k),
              j->in + (size_t)(b / j->tiles * j->a.n * j->a.inner + k) * j->es, j->a.inner,
              j->values ? j->values + (size_t)at * j->es : NULL, j->indices + at);
    }
}
static bool arg_by_cols(tp_tensor *t, int dim, tp_tensor *values, tp_tensor *indices, bool min)
{
    cols_job j = { .a = around_dim(t, dim), .es = dtype_size((dtype)t->dt) };
    j.fn = ISA_PICK(place_cols_pick)(min, (dtype)t->dt);
    if (!j.fn || !t->numel || j.a.inner < 8 || j.a.n > INT32_MAX || !tensor_is_contiguous(t) ||
        !tensor_is_contiguous(indices) || (values && !tensor_is_contiguous(values)))
        return false;
    j.in = tensor_host(t);
    j.values = values ? tensor_host(values) : NULL;
    j.indices = tensor_host(indices);
    j.tiles = (j.a.inner + SCAN_COLS - 1) / SCAN_COLS;
    pool_for(j.a.outer * j.tiles, MAX(1, 32768 / (j.a.n * MIN(SCAN_COLS, j.a.inner))), arg_cols, &j);
    return true;
}

static void arg_run(tp_tensor *t, int dim, tp_tensor *values, tp_tensor *indices, bool min)
{
    if (arg_by_cols(t, dim, values, indices, min))
        return;
    arg_job j = { .dt = (dtype)t->dt, .min = min };
    dtype cdt = (dtype)ctype_dtype[ctype_of[t->dt]];
    tp_tensor *v = values ? with_dim(values, t, dim) : NULL, *i = with_dim(indices, t, dim);
    j.conv = t->dt == cdt ? NULL : conv_of(cdt, (dtype)t->dt);
    lines_init(&j.l, 3, (tp_tensor *[]){ t, v, i }, dim);
    if (j.l.n)
        pool_for(j.l.count, MAX(1, 32768 / j.l.n), arg_lines, &j);
    tensor_unref(v);
    tensor_unref(i);
}

static bool arg_any(op_call *c, bool min)
{
    tp_tensor *t = arg_t(c, 0);
    int dim = 0;
    if (c->arg[1].kind != VAL_none) {
        if (!arg_dim(c, 1, t->ndim, &dim))
            return false;
        arg_run(t, dim, NULL, c->res[0], min);
        return true;
    }
    tp_tensor *flat = tensor_contiguous(t, c->err);
    if (!flat)
        return false;
    tp_tensor *line = tensor_on(flat->storage, (dtype)flat->dt, 1, &flat->numel, NULL, flat->offset);
    tp_tensor *one = tensor_on(c->res[0]->storage, DT_i64, 1, (symint[]){ 1 }, NULL, c->res[0]->offset);
    arg_run(line, 0, NULL, one, min);
    tensor_unref(one);
    tensor_unref(line);
    tensor_unref(flat);
    return true;
}
bool eager_argmax(op_call *c) { return arg_any(c, false); }
bool eager_argmin(op_call *c) { return arg_any(c, true); }

static bool extreme_dim(op_call *c, bool min)
{
    int dim;
    if (!arg_dim(c, 1, arg_t(c, 0)->ndim, &dim))
        return false;
    arg_run(arg_t(c, 0), dim, c->res[0], c->res[1], min);
    return true;
}
bool eager_max_dim(op_call *c) { return extreme_dim(c, false); }
bool eager_min_dim(op_call *c) { return extreme_dim(c, true); }
