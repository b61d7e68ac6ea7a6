/* sort.c - operators that order a dimension: sort, topk, kthvalue, median, mode. */
#include "ops/order.h"
#include "base/pool.h"
#include <math.h>

op_shape_fn shape_max_dim;

static int find_param(const op_call *c, const char *name)
{
    for (int i = 0; i < c->row->schema.nparam; i++)
        if (!strcmp(c->row->schema.param[i].name, name))
            return i;
    return -1;
}

typedef enum { ORD_sort, ORD_topk, ORD_kth, ORD_median, ORD_nanmedian, ORD_mode } ord_kind;
typedef struct ord_job {
    lines l; /* 0 input, 1 values or NULL, 2 indices or NULL */
    dtype dt;
    ord_kind kind;
    bool flip, sorted;
    int64_t k;
} ord_job;

static void emit(const ord_job *j, char **p, int64_t to, int64_t from)
{
    const lines *l = &j->l;
    if (p[1])
        memcpy(p[1] + to * l->step[1], p[0] + from * l->step[0], dtype_size(j->dt));
    if (p[2])
        *(int64_t *)(p[2] + to * l->step[2]) = from;
}

/* A whole line in the order of w's low `place` bits. */
static void emit_all(const ord_job *j, char **p, int64_t n, const uint64_t *w, int place)
{
    const lines *l = &j->l;
    const uint64_t low = place == 64 ? UINT64_MAX : (1ull << place) - 1;
#define EMIT(T)                     \
    for (int64_t i = 0; i < n; i++) \
    *(T *)(p[1] + i * l->step[1]) = *(const T *)(p[0] + (int64_t)(w[i] & low) * l->step[0])
    if (p[1])
        switch (dtype_size(j->dt)) {
        case 1: EMIT(uint8_t); break;
        case 2: EMIT(uint16_t); break;
        case 4: EMIT(uint32_t); break;
        default: EMIT(uint64_t);
        }
    if (p[2])
        for (int64_t i = 0; i < n; i++)
            *(int64_t *)(p[2] + i * l->step[2]) = (int64_t)(w[i] & low);
}

static void sort_line(const ord_job *j, char **p, keyed *o)
{
    int64_t n = j->l.n;
    int bits = key_bits(j->dt), place;
    const uint64_t *w = words_sort(j->dt, n, p[0], j->l.step[0], j->flip, (uint64_t *)o, &place);
    if (!w) {
        keys_load(j->dt, n, p[0], j->l.step[0], o);
        if (j->flip)
            keys_flip(n, o, bits);
        keys_sort(n, o, o + n, bits);
        uint64_t *at = (uint64_t *)(o + n);
        for (int64_t i = 0; i < n; i++)
            at[i] = (uint64_t)o[i].i;
        w = at;
        place = 64;
    }
    if (p[1] == p[0] && p[1]) { /* in place: read all before writing */
        char *from = p[0], *copy = mem_alloc((size_t)n * 8);
        int64_t es = (int64_t)dtype_size(j->dt);
        for (int64_t i = 0; i < n; i++)
            memcpy(copy + i * es, from + i * j->l.step[0], (size_t)es);
        ord_job packed = *j;
        packed.l.step[0] = es;
        emit_all(&packed, (char *[]){ copy, p[1], p[2] }, n, w, place);
        free(copy);
        return;
    }
    emit_all(j, p, n, w, place);
}

/* Where in a sorted order the lower median of the numbers is; NaNs come last. */
static int64_t median_at(const ord_job *j, int64_t n, const keyed *o)
{
    int64_t nans = 0, first = -1;
    if (dtype_is_float(j->dt))
        for (int64_t i = 0; i < n; i++)
            if (o[i].k == key_nan(j->dt)) {
                nans++;
                if (first < 0)
                    first = o[i].i;
            }
    if (j->kind == ORD_median && nans)
        return ~first; /* that very NaN */
    return nans == n ? 0 : (n - nans - 1) / 2;
}

static int64_t mode_of(int64_t n, const keyed *o) /* sorted keys -> position of the most frequent */
{
    int64_t best = 0, most = 0;
    for (int64_t i = 0, run = 0; i < n; i++) {
        run++;
        if (i + 1 == n || o[i + 1].k != o[i].k) {
            if (run > most) {
                most = run;
                best = o[i].i;
            }
            run = 0;
        }
    }
    return best;
}

/* The k best of long lines, k small: a sorted list of them, and a look at each element whether it belongs in it. */
enum { FEW = 64, LOOK = 256 };
static void few_lines(void *arg, int64_t b, int64_t e)
{
    const ord_job *j = arg;
    int64_t n = j->l.n, k = j->k;
    int bits = key_bits(j->dt);
    for (; b < e; b++) {
        char *p[LINES_MAX];
        keyed best[FEW + 1], o[LOOK];
        int64_t have = 0;
        uint64_t worst = UINT64_MAX;
        lines_at(&j->l, b, p);
        for (int64_t at = 0; at < n; at += LOOK) {
            int64_t m = MIN(n - at, LOOK);
            keys_load(j->dt, m, p[0] + at * j->l.step[0], j->l.step[0], o);
            if (j->flip)
                keys_flip(m, o, bits);
            for (int64_t i = 0; i < m; i++) {
                if (TP_LIKELY(have == k && o[i].k >= worst))
                    continue;
                int64_t w = have;
                for (; w > 0 && best[w - 1].k > o[i].k; w--)
                    best[w] = best[w - 1];
                best[w] = (keyed){ o[i].k, at + i };
                have = MIN(have + 1, k);
                worst = best[have - 1].k;
            }
        }
        for (int64_t i = 0; i < k; i++)
            emit(j, p, i, best[i].i);
    }
}

static void ord_lines(void *arg, int64_t b, int64_t e)
{
    const ord_job *j = arg;
    int64_t n = j->l.n;
    int bits = key_bits(j->dt);
    int64_t room = (int64_t)sizeof(keyed) * n *
                   (j->kind == ORD_sort || j->kind == ORD_topk || j->kind == ORD_mode ? 2 : 1);
    keyed *o = tmp_alloc(room), *spare = o + n;
    for (; b < e; b++) {
        char *p[LINES_MAX];
        lines_at(&j->l, b, p);
        if (j->kind == ORD_sort) {
            sort_line(j, p, o);
            continue;
        }
        keys_load(j->dt, n, p[0], j->l.step[0], o);
        if (j->flip)
            keys_flip(n, o, bits);
        switch (j->kind) {
        case ORD_topk:
            if (j->k < n)
                keys_select(n, o, j->k);
            /* the first k are the right ones in any order: back to their positions, then a stable sort */
            for (int64_t i = 0; i < j->k; i++)
                spare[i] = (keyed){ (uint64_t)o[i].i, i };
            if (j->sorted) {
                keyed *tmp = mem_alloc(sizeof *tmp * (size_t)MAX(j->k, 1) * 2), *more = tmp + j->k;
                keys_sort(j->k, spare, more, 64);
                for (int64_t i = 0; i < j->k; i++)
                    tmp[i] = o[spare[i].i];
                keys_sort(j->k, tmp, more, bits);
                memcpy(o, tmp, sizeof *o * (size_t)j->k);
                free(tmp);
            }
            for (int64_t i = 0; i < j->k; i++)
                emit(j, p, i, o[i].i);
            break;
        case ORD_kth: emit(j, p, 0, keys_nth(n, o, j->k - 1, bits).i); break;
        case ORD_median:
        case ORD_nanmedian: {
            int64_t at = median_at(j, n, o);
            emit(j, p, 0, at < 0 ? ~at : keys_nth(n, o, at, bits).i);
            break;
        }
        default: keys_sort(n, o, spare, bits); emit(j, p, 0, mode_of(n, o));
        }
    }
    tmp_free(o, room);
}

/* r with dimension dim put back as size 1 when it was dropped */
static tp_tensor *with_dim(tp_tensor *r, const tp_tensor *t, int dim)
{
    if (!r || r->ndim == t->ndim)
        return r ? tensor_alias(r) : NULL;
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    for (int d = 0, k = 0; d < t->ndim; d++) {
        size[d] = d == dim ? 1 : r->size[k];
        stride[d] = d == dim ? 1 : r->stride[k];
        k += d != dim;
    }
    return tensor_on(r->storage, (dtype)r->dt, t->ndim, size, stride, r->offset);
}

static void ord_run(ord_job *j, tp_tensor *t, int dim, tp_tensor *values, tp_tensor *indices)
{
    tp_tensor *v = with_dim(values, t, dim), *i = with_dim(indices, t, dim);
    j->dt = (dtype)t->dt;
    lines_init(&j->l, 3, (tp_tensor *[]){ t, v, i }, dim);
    bool few = j->kind == ORD_topk && j->k <= FEW && j->k * 4 <= j->l.n;
    if (j->l.n && j->l.count)
        pool_for(j->l.count, MAX(1, 4096 / j->l.n), few ? few_lines : ord_lines, j);
    tensor_unref(v);
    tensor_unref(i);
}

/* ---- sort ---- */
bool shape_sort(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    if (!arg_dim(c, find_param(c, "dim"), t->ndim, &dim))
        return false;
    out_dense(c, t, (dtype)t->dt);
    out_dense(c, t, DT_i64);
    return true;
}
bool eager_sort(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    ord_job j = { .kind = ORD_sort, .flip = c->arg[find_param(c, "descending")].b };
    if (!arg_dim(c, find_param(c, "dim"), t->ndim, &dim))
        return false;
    ord_run(&j, t, dim, c->res[0], c->res[1]);
    return true;
}
bool shape_argsort(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    if (!arg_dim(c, find_param(c, "dim"), t->ndim, &dim))
        return false;
    out_dense(c, t, DT_i64);
    return true;
}
bool eager_argsort(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    ord_job j = { .kind = ORD_sort, .flip = c->arg[find_param(c, "descending")].b };
    if (!arg_dim(c, find_param(c, "dim"), t->ndim, &dim))
        return false;
    ord_run(&j, t, dim, NULL, c->res[0]);
    return true;
}

/* ---- topk, kthvalue ---- */
bool shape_topk(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    symint size[TP_MAX_DIMS], k = c->arg[1].i;
    if (!arg_dim(c, 2, t->ndim, &dim))
        return false;
    if (t->dt == DT_bool)
        return err_set(c->err, ERR_runtime, "topk does not support bool dtypes on CPU");
    if (!sym_ge(k, 0) || !sym_le(k, t->ndim ? t->size[dim] : 1))
        return err_set(c->err, ERR_runtime, "selected index k out of range");
    memcpy(size, t->size, sizeof(symint) * t->ndim);
    if (t->ndim)
        size[dim] = k;
    out_new(c, (dtype)t->dt, t->ndim, size);
    out_new(c, DT_i64, t->ndim, size);
    return true;
}
bool eager_topk(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    ord_job j = { .kind = ORD_topk, .flip = c->arg[3].b, .sorted = c->arg[4].b, .k = c->arg[1].i };
    if (!arg_dim(c, 2, t->ndim, &dim))
        return false;
    if (j.k)
        ord_run(&j, t, dim, c->res[0], c->res[1]);
    return true;
}
bool shape_kthvalue(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    if (!arg_dim(c, 2, t->ndim, &dim))
        return false;
    symint k = c->arg[1].i, n = t->ndim ? t->size[dim] : 1;
    if (sym_eq(n, 0))
        return err_set(c->err, ERR_index, "kthvalue(): Expected reduction dim %d to have non-zero size.",
                       dim);
    if (!sym_ge(k, 1) || !sym_le(k, n))
        return err_set(c->err, ERR_runtime, "kthvalue(): selected number k out of range for dimension %d",
                       dim);
    if (t->dt == DT_bool)
        return no_kernel(c, DT_bool);
    return shape_max_dim(c);
}
static bool one_along(op_call *c, ord_kind kind, int at, int64_t k)
{
    int dim;
    ord_job j = { .kind = kind, .k = k };
    if (!arg_dim(c, at, arg_t(c, 0)->ndim, &dim))
        return false;
    ord_run(&j, arg_t(c, 0), dim, c->res[0], c->res[1]);
    return true;
}
bool eager_kthvalue(op_call *c) { return one_along(c, ORD_kth, 2, c->arg[1].i); }
bool eager_median_dim(op_call *c) { return one_along(c, ORD_median, 1, 0); }
bool eager_nanmedian_dim(op_call *c) { return one_along(c, ORD_nanmedian, 1, 0); }
bool eager_mode(op_call *c) { return one_along(c, ORD_mode, 1, 0); }

bool shape_median_dim(op_call *c)
{
    return shape_max_dim(c) && (arg_t(c, 0)->dt != DT_bool || no_kernel(c, DT_bool));
}
bool shape_median(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    return t->dt == DT_bool && !sym_eq(t->numel, 0) ? no_kernel(c, DT_bool)
                                                    : out_new(c, (dtype)t->dt, 0, NULL) != NULL;
}
static bool median_all(op_call *c, ord_kind kind)
{
    tp_tensor *t = tensor_contiguous(arg_t(c, 0), c->err), *o = c->res[0];
    if (!t)
        return false;
    if (!t->numel) {
        dtype_is_float((dtype)o->dt)
            ? elem_set_f((dtype)o->dt, tensor_host(o), NAN)
            : elem_set_i((dtype)o->dt, tensor_host(o), o->dt == DT_i32 ? INT32_MIN : INT64_MIN);
    } else {
        tp_tensor *line = tensor_on(t->storage, (dtype)t->dt, 1, &t->numel, NULL, t->offset);
        tp_tensor *one = tensor_on(o->storage, (dtype)o->dt, 1, (symint[]){ 1 }, NULL, o->offset);
        ord_job j = { .kind = kind };
        ord_run(&j, line, 0, one, NULL);
        tensor_unref(one);
        tensor_unref(line);
    }
    tensor_unref(t);
    return true;
}
bool eager_median(op_call *c) { return median_all(c, ORD_median); }
bool eager_nanmedian(op_call *c) { return median_all(c, ORD_nanmedian); }
