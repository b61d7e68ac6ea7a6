/* create.c - tensors from nothing: empty, full, ranges, identity, triangles. */
#include "ops/move.h"
#include "ops/pw.h"
#include "base/pool.h"
#include <math.h>

/* ---- uninitialised ---- */
bool eager_empty(op_call *c) { return true; }

static int param(const op_call *c, const char *name)
{
    for (int i = 0; i < c->row->schema.nparam; i++)
        if (!strcmp(c->row->schema.param[i].name, name))
            return i;
    return -1;
}
static bool format(op_call *c, op_out *o)
{
    int f = param(c, "memory_format");
    if (f < 0 || c->arg[f].kind == VAL_none)
        return true;
    if (c->arg[f].i == MF_preserve)
        return err_set(c->err, ERR_runtime,
                       "torch.preserve_format is only supported with the *_like operators, use "
                       "torch.contiguous_format or torch.channels_last");
    return shape_memfmt_strides((memfmt)c->arg[f].i, o->ndim, o->size, o->stride, c->err);
}
bool shape_empty(op_call *c) /* size first */
{
    dtype dt = arg_dt(c, param(c, "dtype"), c->cx->default_dtype);
    return format(c, out_new(c, dt, c->arg[0].n, c->arg[0].ints));
}
static bool strided(op_call *c, int at, dtype dt)
{
    const tp_val *sz = &c->arg[at], *st = &c->arg[at + 1];
    if (sz->n != st->n)
        return err_set(c->err, ERR_runtime,
                       "dimensionality of sizes (%d) must match dimensionality of strides (%d)", sz->n,
                       st->n);
    for (int i = 0; i < st->n; i++)
        if (!sym_is_expr(st->ints[i]) && st->ints[i] < 0) {
            strbuf a = { 0 }, b = { 0 };
            shape_print(&a, sz->n, sz->ints);
            shape_print(&b, st->n, st->ints);
            err_set(c->err, ERR_runtime, "Storage size calculation overflowed with sizes=%s and strides=%s",
                    strbuf_str(&a), strbuf_str(&b));
            strbuf_free(&a);
            strbuf_free(&b);
            return false;
        }
    op_out *o = out_new(c, dt, sz->n, sz->ints);
    if (sz->n)
        memcpy(o->stride, st->ints, sizeof(symint) * (size_t)sz->n);
    return true;
}
bool shape_empty_strided(op_call *c) { return strided(c, 0, arg_dt(c, 2, c->cx->default_dtype)); }
bool shape_new_empty_strided(op_call *c) { return strided(c, 1, arg_dt(c, 3, (dtype)arg_t(c, 0)->dt)); }
bool shape_empty_permuted(op_call *c) /* size, physical_layout */
{
    const tp_val *sz = &c->arg[0], *perm = &c->arg[1];
    if (sz->n != perm->n)
        return err_set(c->err, ERR_runtime,
                       "Number of dimensions in size does not match the length of the physical_layout; i.e. "
                       "len(size) = %d is not equal to len(physical_layout) = %d",
                       sz->n, perm->n);
    op_out *o = out_new(c, arg_dt(c, 2, c->cx->default_dtype), sz->n, sz->ints);
    symint s = 1;
    uint32_t seen = 0;
    for (int i = sz->n - 1; i >= 0; i--) {
        int64_t d = perm->ints[i];
        if (d < 0 || d >= sz->n)
            return err_set(c->err, ERR_runtime,
                           "Dimension out of range (expected to be between 0 and %d, but got %lld at index "
                           "%d).  NB: negative dims not currently supported; file an issue if you want it.",
                           sz->n - 1, (long long)d, i);
        if (seen >> d & 1)
            return err_set(c->err, ERR_runtime, "Duplicate dim not allowed");
        seen |= 1u << d;
        o->stride[d] = s;
        s = sym_mul(s, sym_max(o->size[d], 1));
    }
    return true;
}

/* ---- like another tensor ---- */
bool shape_like(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int f = param(c, "memory_format");
    dtype dt = arg_dt(c, param(c, "dtype"), (dtype)t->dt);
    memfmt mf = (memfmt)arg_i(c, f, MF_preserve);
    op_out *o = out_dense(c, t, dt);
    int d = param(c, "device");
    if (c->arg[d].kind == VAL_device)
        o->dev = c->arg[d].dev;
    return mf == MF_preserve || shape_memfmt_strides(mf, o->ndim, o->size, o->stride, c->err);
}
bool shape_new_like(op_call *c) /* new_zeros(self, size, ...) */
{
    op_out *o = out_new(c, arg_dt(c, param(c, "dtype"), (dtype)arg_t(c, 0)->dt), c->arg[1].n, c->arg[1].ints);
    int d = param(c, "device");
    if (c->arg[d].kind == VAL_device)
        o->dev = c->arg[d].dev;
    return true;
}

/* ---- filled ---- */
bool fill_value_ok(dtype dt, const tp_val *v, tp_err *err)
{
    static const char *const name[] = { "bool", "uint8_t", "int8_t", "int16_t", "int", "int64_t" };
    static const double lo[] = { 0, -255, -128, -32768, -2147483648.0, -9.2233720368547758e18 };
    static const double hi[] = { 0, 255, 127, 32767, 2147483647.0, 9.2233720368547758e18 };
    if (v->kind == VAL_complex && v->floats[1] != 0 && !dtype_is_complex(dt))
        return err_set(err, ERR_runtime, "value cannot be converted to type %s without overflow",
                       dt == DT_f32   ? "float"
                       : dt == DT_f64 ? "double"
                                      : dtype_name(dt));
    if (dt == DT_bool || dt >= DT_f16 || (v->kind == VAL_int && (sym_is_expr(v->i) || dt == DT_i64)))
        return true;
    double f = val_as_f(v);
    if (!(f >= lo[dt] && f <= hi[dt]) || (dt == DT_i64 && f == 0x1p63) ||
        (dt == DT_u8 && f < 0 && v->kind == VAL_float))
        return err_set(err, ERR_runtime, "value cannot be converted to type %s without overflow", name[dt]);
    return true;
}
static void zero_span(void *arg, int64_t b, int64_t e) { memset((char *)arg + b, 0, (size_t)(e - b)); }
bool storage_zero(tp_tensor *t)
{
    if (t->numel)
        pool_for((int64_t)t->storage->nbytes, 1 << 17, zero_span, t->storage->data);
    return true;
}
static bool fill_with(tp_tensor *t, const tp_val *v, tp_err *err)
{
    if (tensor_is_dense(t) && t->numel && val_as_f(v) == 0 && !signbit(val_as_f(v)) &&
        v->kind != VAL_complex) {
        pool_for(t->numel * (int64_t)dtype_size((dtype)t->dt), 1 << 17, zero_span, tensor_host(t));
        return true;
    }
    tp_tensor *s = tensor_scalar((dtype)t->dt, val_as_f(v), val_as_i(v), err);
    if (s && v->kind == VAL_complex)
        elem_set_c((dtype)t->dt, tensor_host(s), v->floats);
    bool ok = s && tensor_copy(t, s, err);
    tensor_unref(s);
    return ok;
}
bool eager_fill(op_call *c) { return fill_with(arg_t(c, 0), &c->arg[1], c->err); }
bool eager_fill_fn(op_call *c) { return fill_with(c->res[0], &c->arg[1], c->err); }
bool eager_zero_(op_call *c) { return fill_with(arg_t(c, 0), &vI(0), c->err); }
bool eager_full(op_call *c) { return fill_with(c->res[0], &c->arg[param(c, "fill_value")], c->err); }
bool eager_zeros(op_call *c) { return fill_with(c->res[0], &vI(0), c->err); }
bool eager_ones(op_call *c) { return fill_with(c->res[0], &vI(1), c->err); }
bool eager_scalar_tensor(op_call *c) { return fill_with(c->res[0], &c->arg[0], c->err); }
bool shape_fill_tensor(op_call *c)
{
    tp_tensor *v = arg_t(c, 1);
    if (v && v->ndim)
        return err_set(c->err, ERR_runtime,
                       "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.",
                       v->ndim);
    if (tensor_overlaps_itself(arg_t(c, 0)))
        return ops_overlap_err(true, c->err);
    return out_self(c, 0) != NULL;
}
bool eager_fill_tensor(op_call *c)
{
    return arg_t(c, 1) ? tensor_copy(arg_t(c, 0), arg_t(c, 1), c->err) : eager_fill(c);
}

bool shape_full(op_call *c)
{
    dtype dt = arg_dt(c, 2, val_number_dtype(&c->arg[1], c->cx->default_dtype));
    return out_new(c, dt, c->arg[0].n, c->arg[0].ints) != NULL;
}
bool shape_zeros(op_call *c)
{
    return out_new(c, arg_dt(c, 1, c->cx->default_dtype), c->arg[0].n, c->arg[0].ints) != NULL;
}
bool shape_scalar_tensor(op_call *c)
{
    return out_new(c, arg_dt(c, 1, c->cx->default_dtype), 0, NULL) != NULL;
}

/* ---- ranges ---- */
typedef struct range {
    tp_val start, end, step;
    dtype dt;
    symint n;
} range;

static bool range_of(op_call *c, range *r)
{
    int np = param(c, "dtype"); /* numbers before it: end | start end | start end step */
    r->start = np >= 2 ? c->arg[0] : vI(0);
    r->end = np >= 2 ? c->arg[1] : c->arg[0];
    r->step = np >= 3 ? c->arg[2] : vI(1);
    bool whole = r->start.kind != VAL_float && r->end.kind != VAL_float && r->step.kind != VAL_float;
    r->dt = arg_dt(c, np, whole ? DT_i64 : c->cx->default_dtype);
    symint a = whole ? (r->start.kind == VAL_bool ? r->start.b : r->start.i) : 0;
    symint b = whole ? (r->end.kind == VAL_bool ? r->end.b : r->end.i) : 0;
    symint s = whole ? (r->step.kind == VAL_bool ? r->step.b : r->step.i) : 0;
    if (whole ? sym_eq(s, 0) : val_as_f(&r->step) == 0)
        return err_set(c->err, ERR_runtime, "step must be nonzero");
    bool up = whole ? sym_gt(s, 0) : val_as_f(&r->step) > 0;
    if (!whole) {
        double fa = val_as_f(&r->start), fb = val_as_f(&r->end);
        if (!isfinite(fa) || !isfinite(fb))
            return err_set(c->err, ERR_runtime, "unsupported range: %g -> %g", fa, fb);
        if (up ? fb < fa : fb > fa)
            return err_set(c->err, ERR_runtime, "upper bound and lower bound inconsistent with step sign");
        if (r->dt != DT_i64) {
            double n = ceil((fb - fa) / val_as_f(&r->step));
            if (n >= 4e18)
                return err_set(c->err, ERR_runtime, "invalid size, possible overflow?");
            r->n = (symint)n;
        } else { /* int64 results: bounds are truncated first */
            int64_t ia = (int64_t)fa, ib = (int64_t)fb, is = (int64_t)val_as_f(&r->step);
            r->n = is ? sym_floordiv(ib - ia + (is > 0 ? is - 1 : is + 1), is) : 0;
            if (!is)
                return err_set(c->err, ERR_runtime, "step must be nonzero");
        }
        return true;
    }
    if (up ? sym_lt(b, a) : sym_gt(b, a))
        return err_set(c->err, ERR_runtime, "upper bound and lower bound inconsistent with step sign");
    if (!sym_is_expr(a) && !sym_is_expr(b) &&
        !sym_is_expr(s)) { /* all of 64 bits; step * n stays within them */
        __int128 d = up ? (__int128)b - a : (__int128)a - b, by = up ? s : -(__int128)s,
                 n = (d + by - 1) / by;
        r->n = (symint)MIN(n, SYM_LIMIT - 1);
        return true;
    }
    symint len = up ? sym_sub(b, a) : sym_sub(a, b), st = up ? s : sym_sub(0, s);
    r->n = !sym_is_expr(st) && st == 1 ? len : sym_floordiv(sym_add(len, sym_sub(st, 1)), st);
    return true;
}
bool shape_arange(op_call *c)
{
    range r;
    if (!range_of(c, &r))
        return false;
    if (r.dt == DT_bool)
        return no_kernel(c, DT_bool);
    return out_new(c, r.dt, 1, &r.n) != NULL;
}

typedef struct ramp_job {
    char *data;
    dtype dt;
    bool whole, by_end; /* linspace walks back from its end in the second half */
    double a, step, end, base;
    int64_t ia, is, n;
} ramp_job;
static void ramp_span(void *arg, int64_t b, int64_t e)
{
    enum { STEP = 512 };
    const ramp_job *j = arg;
    size_t es = dtype_size(j->dt);
    for (int64_t n; b < e; b += n) {
        int64_t iv[STEP], mid = j->by_end ? j->n / 2 : j->n;
        double fv[STEP];
        char *o = j->data + (size_t)b * es;
        n = MIN(e - b, STEP);
        if (j->whole) {
            int64_t *to = j->dt == DT_i64 ? (int64_t *)o : iv;
            moves()->ramp_int(n, to, j->ia, j->is, b);
            if (to == iv)
                conv_of(j->dt, DT_i64)(n, o, iv);
            continue;
        }
        if (b < mid) { /* a + k step */
            n = MIN(n, mid - b);
            moves()->ramp_float(n, fv, j->a, j->step, b);
        } else /* end - (n - 1 - k) step */
            moves()->ramp_float(n, fv, j->end, j->step, b - (j->n - 1));
        if (j->base > 0)
            for (int64_t i = 0; i < n; i++)
                fv[i] = pow(j->base, fv[i]);
        conv_of(j->dt, DT_f64)(n, o, fv);
    }
}

bool eager_arange(op_call *c)
{
    range r;
    if (!range_of(c, &r))
        return false;
    tp_tensor *t = c->res[0];
    ramp_job j = { .data = tensor_host(t),
                   .dt = (dtype)t->dt,
                   .n = t->numel,
                   .a = val_as_f(&r.start),
                   .step = val_as_f(&r.step),
                   .ia = val_as_i(&r.start),
                   .is = val_as_i(&r.step) };
    j.whole = !dtype_is_float(j.dt) || (r.start.kind != VAL_float && r.step.kind != VAL_float);
    pool_for(t->numel, 16384, ramp_span, &j);
    return true;
}

bool shape_linspace(op_call *c)
{
    if (!sym_is_expr(c->arg[2].i) && c->arg[2].i < 0)
        return err_set(c->err, ERR_runtime, "number of steps must be non-negative");
    for (int i = 0; i < 2; i++)
        if (arg_t(c, i) && arg_t(c, i)->ndim)
            return err_set(c->err, ERR_runtime, "%s only supports 0-dimensional start and end tensors",
                           c->row->name);
    return out_new(c, arg_dt(c, param(c, "dtype"), c->cx->default_dtype), 1, &c->arg[2].i) != NULL;
}
static double bound(const tp_val *v)
{
    return v->kind == VAL_tensor ? elem_get_f((dtype)v->t->dt, tensor_host(v->t)) : val_as_f(v);
}
static bool spaced(op_call *c, double base)
{
    tp_tensor *t = c->res[0];
    double a = bound(&c->arg[0]), b = bound(&c->arg[1]);
    int64_t n = t->numel;
    if (!dtype_is_float((dtype)t->dt))
        a = trunc(a), b = trunc(b);
    ramp_job j = { .data = tensor_host(t),
                   .dt = (dtype)t->dt,
                   .by_end = n > 1,
                   .a = a,
                   .end = b,
                   .step = n > 1 ? (b - a) / (double)(n - 1) : 0,
                   .n = n,
                   .base = base };
    pool_for(n, 16384, ramp_span, &j);
    return true;
}
bool eager_linspace(op_call *c) { return spaced(c, 0); }
bool eager_logspace(op_call *c) { return spaced(c, val_as_f(&c->arg[3])); }

/* ---- matrices ---- */
bool shape_eye(op_call *c)
{
    bool two = !strcmp(c->row->schema.param[1].name, "m");
    symint n = c->arg[0].i, m = two ? c->arg[1].i : n;
    if (!sym_is_expr(n) && n < 0)
        return err_set(c->err, ERR_runtime, "n must be greater or equal to 0, got %lld", (long long)n);
    if (!sym_is_expr(m) && m < 0)
        return err_set(c->err, ERR_runtime, "m must be greater or equal to 0, got %lld", (long long)m);
    return out_new(c, arg_dt(c, two ? 2 : 1, c->cx->default_dtype), 2, (symint[]){ n, m }) != NULL;
}
bool eager_eye(op_call *c)
{
    tp_tensor *t = c->res[0];
    size_t es = dtype_size((dtype)t->dt);
    char *p = tensor_host(t);
    if (!t->numel)
        return true;
    memset(p, 0, (size_t)t->numel * es);
    for (int64_t i = 0; i < MIN(t->size[0], t->size[1]); i++)
        elem_set_i((dtype)t->dt, p + (size_t)(i * t->size[1] + i) * es, 1);
    return true;
}

/* Number of entries (r, c) with c - r <= off (lower) or >= off (upper), and their coordinates when o is
 * given. */
static int64_t triangle(int64_t rows, int64_t cols, int64_t off, bool upper, int64_t *o, int64_t total)
{
    int64_t n = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t b = upper ? MAX(0, MIN(cols, r + off)) : 0, e = upper ? cols : MAX(0, MIN(cols, r + off + 1));
        if (!o) {
            n += MAX(0, e - b);
            continue;
        }
        for (int64_t k = b; k < e; k++, n++) {
            o[n] = r;
            o[total + n] = k;
        }
    }
    return n;
}
bool shape_tri_indices(op_call *c)
{
    int64_t row = c->arg[0].i, col = c->arg[1].i;
    if (row < 0)
        return err_set(c->err, ERR_runtime, "row must be non-negative, got%lld", (long long)row);
    if (col < 0)
        return err_set(c->err, ERR_runtime, "col must be non-negative, got%lld", (long long)col);
    dtype dt = arg_dt(c, 3, DT_i64);
    symint n = triangle(row, col, c->arg[2].i, c->row->name[3] == 'u', NULL, 0);
    return out_new(c, dt, 2, (symint[]){ 2, n }) != NULL;
}
bool eager_tri_indices(op_call *c)
{
    tp_tensor *t = c->res[0];
    int64_t n = t->size[1], *v = mem_alloc(sizeof *v * (size_t)MAX(2 * n, 1));
    triangle(c->arg[0].i, c->arg[1].i, c->arg[2].i, c->row->name[3] == 'u', v, n);
    if (n)
        conv_of((dtype)t->dt, DT_i64)(2 * n, tensor_host(t), v);
    free(v);
    return true;
}
