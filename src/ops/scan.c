/* scan.c - running reductions and softmax along a dimension. */
#include "ops/red.h"
#include "base/pool.h"
#include <math.h>

enum { BLOCK = 512 };

/* ---- scans ---- */
static bool scan_out(op_call *c, dtype dt)
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    if (!arg_dim(c, 1, t->ndim, &dim))
        return false;
    out_new(c, dt, t->ndim, t->size);
    return true;
}
bool shape_cumsum(op_call *c)
{
    dtype in = (dtype)arg_t(c, 0)->dt;
    return scan_out(c, arg_dt(c, 2, dtype_is_exact(in) ? DT_i64 : in));
}
bool shape_scan_same(op_call *c) { return scan_out(c, (dtype)arg_t(c, 0)->dt); }
bool shape_logcumsumexp(op_call *c)
{
    dtype dt = (dtype)arg_t(c, 0)->dt;
    return scan_out(c, dt) && (dtype_is_float(dt) || no_kernel(c, dt));
}
bool shape_cummax(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    if (!arg_dim(c, 1, t->ndim, &dim))
        return false;
    out_new(c, (dtype)t->dt, t->ndim, t->size); /* values and indices are contiguous */
    out_new(c, DT_i64, t->ndim, t->size);
    return true;
}

typedef struct scan_job {
    lines l; /* 0 input, 1 output, 2 indices or NULL */
    scan_kind kind;
    bool flt;
    conv_fn *in, *out; /* to and from double or int64_t */
    size_t es, oes;
} scan_job;
typedef union acc {
    double f;
    int64_t i;
} acc;

static void scan_f(scan_kind k, int64_t n, const double *a, double *o, double *s, int64_t *idx, int64_t *best,
                   int64_t at)
{
    double v = *s;
    for (int64_t i = 0; i < n; i++) {
        double x = a[i];
        switch (k) {
        case SCAN_sum: v += x; break;
        case SCAN_prod: v *= x; break;
        case SCAN_lse: {
            double hi = x > v ? x : v, lo = x > v ? v : x;
            v = x != x || v != v ? NAN : hi == lo && isinf(hi) ? hi : hi + log1p(exp(lo - hi));
            break;
        }
        case SCAN_max:
            if (x != x || (v == v && x >= v))
                v = x, *best = at + i;
            break;
        default:
            if (x != x || (v == v && x <= v))
                v = x, *best = at + i;
        }
        o[i] = v;
        if (idx)
            idx[i] = *best;
    }
    *s = v;
}
static void scan_i(scan_kind k, int64_t n, const int64_t *a, int64_t *o, int64_t *s, int64_t *idx,
                   int64_t *best, int64_t at)
{
    int64_t v = *s;
    for (int64_t i = 0; i < n; i++) {
        int64_t x = a[i];
        if (k == SCAN_sum)
            v = (int64_t)((uint64_t)v + (uint64_t)x);
        else if (k == SCAN_prod)
            v = (int64_t)((uint64_t)v * (uint64_t)x);
        else if (k == SCAN_max ? x >= v : x <= v)
            v = x, *best = at + i;
        o[i] = v;
        if (idx)
            idx[i] = *best;
    }
    *s = v;
}

static void scan_lines(void *arg, int64_t b, int64_t e)
{
    const scan_job *j = arg;
    const lines *l = &j->l;
    uint64_t in[BLOCK], out[BLOCK], tmp[BLOCK];
    int64_t idx[BLOCK];
    for (; b < e; b++) {
        char *p[LINES_MAX];
        acc s;
        int64_t best = 0;
        lines_at(l, b, p);
        switch (j->kind) {
        case SCAN_sum: s.i = 0; break; /* all bits zero: 0.0 too */
        case SCAN_prod: j->flt ? (s.f = 1) : (s.i = 1, 0); break;
        case SCAN_min: j->flt ? (s.f = INFINITY) : (s.i = INT64_MAX, 0); break;
        default: j->flt ? (s.f = -INFINITY) : (s.i = INT64_MIN, 0);
        }
        for (int64_t at = 0; at < l->n; at += BLOCK) {
            int64_t m = MIN(l->n - at, BLOCK);
            gather_packed(m, tmp, p[0] + at * l->step[0], l->step[0], j->es);
            j->in(m, in, tmp);
            if (j->flt)
                scan_f(j->kind, m, (double *)in, (double *)out, &s.f, p[2] ? idx : NULL, &best, at);
            else
                scan_i(j->kind, m, (int64_t *)in, (int64_t *)out, &s.i, p[2] ? idx : NULL, &best, at);
            j->out(m, tmp, out);
            scatter_packed(m, p[1] + at * l->step[1], l->step[1], tmp, j->oes);
            if (p[2])
                scatter_packed(m, p[2] + at * l->step[2], l->step[2], idx, 8);
        }
    }
}

/* Contiguous tensors of one type: whole lines, or tiles of columns. */
ISA_DECL(scan_line_fn *, scan_line_pick, (scan_kind k, dtype dt));
ISA_DECL(scan_cols_fn *, scan_cols_pick, (scan_kind k, dtype dt));
typedef struct packed_job {
    scan_line_fn *line;
    scan_cols_fn *cols;
    const char *in;
    char *out;
    int64_t *idx;
    around a;
    size_t es;
    int64_t tiles;
} packed_job;
static void scan_packed_lines(void *arg, int64_t b, int64_t e)
{
    const packed_job *j = arg;
    for (; b < e; b++) {
        size_t at = (size_t)(b * j->a.n) * j->es;
        j->line(j->a.n, j->in + at, j->out + at, j->idx ? j->idx + b * j->a.n : NULL);
    }
}
static void scan_packed_cols(void *arg, int64_t b, int64_t e)
{
    const packed_job *j = arg;
    for (; b < e; b++) {
        int64_t k = b % j->tiles * SCAN_COLS, at = b / j->tiles * j->a.n * j->a.inner + k;
        j->cols(j->a.n, MIN(SCAN_COLS, j->a.inner - k), j->in + (size_t)at * j->es,
                j->out + (size_t)at * j->es, j->idx ? j->idx + at : NULL, j->a.inner);
    }
}
static bool scan_packed(tp_tensor *t, tp_tensor *o, tp_tensor *idx, int dim, scan_kind k)
{
    packed_job j = { .a = around_dim(t, dim), .es = dtype_size((dtype)t->dt) };
    j.line = ISA_PICK(scan_line_pick)(k, (dtype)t->dt);
    j.cols = ISA_PICK(scan_cols_pick)(k, (dtype)t->dt);
    if (t->dt != o->dt || (j.a.inner == 1 ? !j.line : !j.cols) || !t->numel || !tensor_is_contiguous(t) ||
        !tensor_is_contiguous(o) || (idx && !tensor_is_contiguous(idx)) || (j.a.inner > 1 && j.a.inner < 8) ||
        j.a.n > INT32_MAX)
        return false;
    j.in = tensor_host(t);
    j.out = tensor_host(o);
    j.idx = idx ? tensor_host(idx) : NULL;
    j.tiles = (j.a.inner + SCAN_COLS - 1) / SCAN_COLS;
    if (j.a.inner == 1)
        pool_for(j.a.outer, MAX(1, 16384 / j.a.n), scan_packed_lines, &j);
    else
        pool_for(j.a.outer * j.tiles, MAX(1, 32768 / (j.a.n * MIN(SCAN_COLS, j.a.inner))), scan_packed_cols,
                 &j);
    return true;
}

/* idx: places, of extremes */
static bool scan_into(op_call *c, scan_kind k, tp_tensor *o, tp_tensor *idx)
{
    tp_tensor *t = arg_t(c, 0), *src = NULL;
    int dim;
    if (!arg_dim(c, 1, t->ndim, &dim))
        return false;
    /* elements are converted first when a type was asked for: a float cumsum asked in int64 truncates each */
    if (dtype_is_float((dtype)t->dt) && !dtype_is_float((dtype)o->dt))
        src = tensor_cast(t, (dtype)o->dt, c->err);
    else
        src = tensor_ref(t);
    if (!src)
        return false;
    if (scan_packed(src, o, idx, dim, k)) {
        tensor_unref(src);
        return true;
    }
    scan_job j = { .kind = k,
                   .flt = dtype_is_float((dtype)src->dt) || dtype_is_float((dtype)o->dt),
                   .es = dtype_size((dtype)src->dt),
                   .oes = dtype_size((dtype)o->dt) };
    dtype wide = j.flt ? DT_f64 : DT_i64;
    j.in = conv_of(wide, (dtype)src->dt);
    j.out = conv_of((dtype)o->dt, wide);
    lines_init(&j.l, 3, (tp_tensor *[]){ src, o, idx }, dim);
    if (j.l.n)
        pool_for(j.l.count, MAX(1, 16384 / j.l.n), scan_lines, &j);
    tensor_unref(src);
    return true;
}
static bool scan(op_call *c, scan_kind k)
{
    return scan_into(c, k, c->res[0], c->nout > 1 ? c->res[1] : NULL);
}
bool eager_cumsum(op_call *c) { return scan(c, SCAN_sum); }
bool eager_cumprod(op_call *c) { return scan(c, SCAN_prod); }
bool eager_logcumsumexp(op_call *c) { return scan(c, SCAN_lse); }
bool eager_cummax(op_call *c) { return scan(c, SCAN_max); }
bool eager_cummin(op_call *c) { return scan(c, SCAN_min); }

/* One of the two results of cummax and cummin, as kernels make them. */
bool shape_cum_place(op_call *c) { return scan_out(c, DT_i64); }
static bool one_of_two(op_call *c, bool place)
{
    tp_tensor *t = arg_t(c, 0), *o = c->res[0], *other;
    scan_kind k = c->arg[2].b ? SCAN_max : SCAN_min;
    other = tensor_new(place ? (dtype)t->dt : DT_i64, t->ndim, t->size, c->err);
    bool ok = other && (place ? scan_into(c, k, other, o) : scan_into(c, k, o, other));
    tensor_unref(other);
    return ok;
}
bool eager_cum_extreme(op_call *c) { return one_of_two(c, false); }
bool eager_cum_place(op_call *c) { return one_of_two(c, true); }

/* ---- softmax ---- */
ISA_DECL(void, softmax_line_f32, (int64_t n, void *o, const void *a, bool log_));
ISA_DECL(void, softmax_line_f64, (int64_t n, void *o, const void *a, bool log_));
ISA_DECL(void, softmax_back_f32, (int64_t n, void *o, const void *g, const void *y, bool log_));
ISA_DECL(void, softmax_back_f64, (int64_t n, void *o, const void *g, const void *y, bool log_));

bool shape_softmax(op_call *c) /* _softmax(self, dim, half_to_float) */
{
    tp_tensor *t = arg_t(c, 0);
    int dim;
    if (!arg_dim(c, 1, t->ndim, &dim))
        return false;
    if (!dtype_is_float((dtype)t->dt) && !sym_eq(t->numel, 0))
        return err_set(c->err, ERR_notimpl, "\"%s_lastdim_kernel_impl\" not implemented for '%s'",
                       c->row->name[1] == 's' ? "softmax" : "log_softmax", dtype_rows[t->dt].gname);
    return out_new(c, (dtype)t->dt, t->ndim, t->size) != NULL;
}

bool shape_softmax_back(op_call *c) /* (grad_output, output, dim, input_dtype) */
{
    tp_tensor *g = arg_t(c, 0), *y = arg_t(c, 1);
    int dim;
    if (!arg_dim(c, 2, g->ndim, &dim))
        return false;
    if (y->ndim != g->ndim || !tensor_same_size(y, g))
        return err_set(c->err, ERR_runtime, "%s: the gradient and the output must be of one size",
                       c->row->name);
    if (!dtype_is_float((dtype)c->arg[3].i) || !dtype_is_float((dtype)g->dt) || !dtype_is_float((dtype)y->dt))
        return err_set(c->err, ERR_runtime,
                       "%s: the gradient, the output and the input must be of floating point types",
                       c->row->name);
    out_new(c, (dtype)g->dt, g->ndim, g->size); /* input_dtype matters where halves are widened on the way */
    return true;
}

typedef struct soft_job {
    lines l; /* 0 first input, 1 second input or NULL, 2 result */
    bool log_, back, wide;
    conv_fn *in[2], *out;
    size_t es[3];
} soft_job;

/* One line packed in the compute type; the memory of work is one line. */
static void *soft_load(const soft_job *j, int k, char *p, void *work, void *raw)
{
    const lines *l = &j->l;
    if (!j->in[k] && l->step[k] == (int64_t)j->es[k])
        return p;
    if (!j->in[k]) {
        gather_packed(l->n, work, p, l->step[k], j->es[k]);
        return work;
    }
    if (l->step[k] != (int64_t)j->es[k]) {
        gather_packed(l->n, raw, p, l->step[k], j->es[k]);
        p = raw;
    }
    j->in[k](l->n, work, p);
    return work;
}

static void soft_lines(void *arg, int64_t b, int64_t e)
{
    const soft_job *j = arg;
    const lines *l = &j->l;
    size_t n = (size_t)l->n * 8;
    char *mem = mem_alloc(n * 4);
    for (; b < e; b++) {
        char *p[LINES_MAX];
        lines_at(l, b, p);
        void *x = soft_load(j, 0, p[0], mem, mem + n * 3);
        void *y = j->back ? soft_load(j, 1, p[1], mem + n, mem + n * 3) : NULL;
        bool direct = !j->out && l->step[2] == (int64_t)j->es[2];
        void *o = direct ? (void *)p[2] : (void *)(mem + n * 2);
        if (j->back)
            (j->wide ? ISA_PICK(softmax_back_f64) : ISA_PICK(softmax_back_f32))(l->n, o, x, y, j->log_);
        else
            (j->wide ? ISA_PICK(softmax_line_f64) : ISA_PICK(softmax_line_f32))(l->n, o, x, j->log_);
        if (direct)
            continue;
        if (j->out) {
            j->out(l->n, mem + n * 3, o);
            o = mem + n * 3;
        }
        scatter_packed(l->n, p[2], l->step[2], o, j->es[2]);
    }
    free(mem);
}

static void soft_run(tp_tensor *x, tp_tensor *y, tp_tensor *o, int dim, bool log_)
{
    soft_job j = { .log_ = log_, .back = y != NULL, .wide = o->dt == DT_f64 || x->dt == DT_f64 };
    dtype ct = j.wide ? DT_f64 : DT_f32;
    tp_tensor *ts[3] = { x, y, o };
    for (int k = 0; k < 3; k++)
        j.es[k] = ts[k] ? dtype_size((dtype)ts[k]->dt) : 0;
    for (int k = 0; k < 2; k++)
        j.in[k] = ts[k] && ts[k]->dt != ct ? conv_of(ct, (dtype)ts[k]->dt) : NULL;
    j.out = o->dt != ct ? conv_of((dtype)o->dt, ct) : NULL;
    lines_init(&j.l, 3, ts, dim);
    if (j.l.n)
        pool_for(j.l.count, MAX(1, 8192 / j.l.n), soft_lines, &j);
}

/* Along a dimension that is not the last one of a contiguous tensor: whole columns, 64 at a time. */
ISA_DECL(void, softmax_cols_f32,
         (int64_t n, int64_t w, void *o, int64_t os, const void *a, int64_t as, bool log_));
ISA_DECL(void, softmax_cols_f64,
         (int64_t n, int64_t w, void *o, int64_t os, const void *a, int64_t as, bool log_));
typedef struct cols_job {
    const char *in;
    char *out;
    size_t es;
    int64_t n, inner, tiles; /* rows, columns, tiles of columns */
    bool log_;
} cols_job;
static void soft_cols(void *arg, int64_t b, int64_t e)
{
    const cols_job *j = arg;
    for (; b < e; b++) {
        int64_t outer = b / j->tiles, c = b % j->tiles * 64;
        size_t at = (size_t)(outer * j->n * j->inner + c) * j->es;
        (j->es == 4 ? ISA_PICK(softmax_cols_f32) : ISA_PICK(softmax_cols_f64))(
            j->n, MIN(64, j->inner - c), j->out + at, j->inner, j->in + at, j->inner, j->log_);
    }
}
static bool soft_by_cols(tp_tensor *x, tp_tensor *o, int dim, bool log_)
{
    if (x->dt != o->dt || (x->dt != DT_f32 && x->dt != DT_f64) || !tensor_is_contiguous(x) ||
        !tensor_is_contiguous(o) || !x->ndim || !x->numel)
        return false;
    cols_job j = { tensor_host(x), tensor_host(o), dtype_size((dtype)x->dt), x->size[dim], 1, 0, log_ };
    int64_t outer = 1;
    for (int d = 0; d < x->ndim; d++)
        *(d < dim ? &outer : &j.inner) *= d == dim ? 1 : x->size[d];
    if (j.inner < 8)
        return false;
    j.tiles = (j.inner + 63) / 64;
    pool_for(outer * j.tiles, MAX(1, 16384 / (j.n * 64)), soft_cols, &j);
    return true;
}

static bool soft(op_call *c, bool log_)
{
    int dim;
    if (!arg_dim(c, 1, arg_t(c, 0)->ndim, &dim))
        return false;
    if (!soft_by_cols(arg_t(c, 0), c->res[0], dim, log_))
        soft_run(arg_t(c, 0), NULL, c->res[0], dim, log_);
    return true;
}
static bool soft_back(op_call *c, bool log_)
{
    int dim;
    if (!arg_dim(c, 2, arg_t(c, 0)->ndim, &dim))
        return false;
    soft_run(arg_t(c, 0), arg_t(c, 1), c->res[0], dim, log_);
    return true;
}
bool eager_softmax(op_call *c) { return soft(c, false); }
bool eager_log_softmax(op_call *c) { return soft(c, true); }
bool eager_softmax_back(op_call *c) { return soft_back(c, false); }
bool eager_log_softmax_back(op_call *c) { return soft_back(c, true); }
