/* norm.c - batch, layer, group and RMS normalisation: kernels with double accumulators, their backward forms, and the
 * decompositions that say the same in simpler rows. */
#include "ops/decomp.h"
#include "ops/rowstat.h"
#include "base/pool.h"
#include <math.h>

#define RET(t)    comp_ret(b, (t), out)
#define LIST(...) vIs(((symint[]){ __VA_ARGS__ }), (int)(sizeof((symint[]){ __VA_ARGS__ }) / sizeof(symint)))

/* All kernels see f32 or f64; this reads either. */
static inline double get(const void *p, bool f, int64_t i)
{
    return f ? ((const float *)p)[i] : ((const double *)p)[i];
}
static inline void put(void *p, bool f, int64_t i, double v)
{
    if (f)
        ((float *)p)[i] = (float)v;
    else
        ((double *)p)[i] = v;
}
static void *data_or_null(tp_tensor *t) { return t ? tensor_host(t) : NULL; }

/* Sum and sum of squared deviations of n elements, in two passes: the mean first, then what is left. */
static void moments(const void *x, bool f, int64_t n, double *mean, double *var)
{
    double s = 0, q = 0;
    if (f) {
        *mean = ISA_PICK(rs_sum)(n, x) / (double)n;
        q = ISA_PICK(rs_square)(n, x, *mean);
    } else {
        const double *p = x;
        for (int64_t i = 0; i < n; i++)
            s += p[i];
        *mean = s / (double)n;
        for (int64_t i = 0; i < n; i++)
            q += (p[i] - *mean) * (p[i] - *mean);
    }
    *var = q / (double)n;
}

/* ---- layer norm and group norm: rows of n values, scaled by weight[i / per] of the row's channels ---- */
typedef struct row_job {
    bool f;
    int64_t n; /* values in a row */
    int64_t per,
        channels; /* values per weight element; weight elements in a row: n / per (group norm repeats them) */
    int64_t groups; /* weight blocks: row r uses block r % groups */
    double eps;
    const char *x, *w, *b, *dy;
    char *y, *mean, *rstd;
} row_job;

static void norm_rows(void *arg, int64_t lo, int64_t hi)
{
    const row_job *j = arg;
    int64_t es = j->f ? 4 : 8;
    for (int64_t r = lo; r < hi; r++) {
        double m, v, s;
        const char *x = j->x + r * j->n * es;
        char *y = j->y + r * j->n * es;
        int64_t w0 = r % j->groups * j->channels;
        moments(x, j->f, j->n, &m, &v);
        s = 1 / sqrt(v + j->eps);
        put(j->mean, j->f, r, m);
        put(j->rstd, j->f, r, s);
        if (j->f && j->per == 1 && j->groups == 1) { /* the common layer norm */
            ISA_PICK(rs_affine)
            (j->n, (const float *)x, (float)m, (float)s, (const float *)j->w, (const float *)j->b,
             (float *)y);
            continue;
        }
        for (int64_t c = 0; c < j->channels; c++) {
            double a = s * (j->w ? get(j->w, j->f, w0 + c) : 1),
                   o = (j->b ? get(j->b, j->f, w0 + c) : 0) - m * a;
            if (j->f)
                ISA_PICK(rs_scale)
            (j->per, (const float *)x + c * j->per, (float)a, (float)o, (float *)y + c * j->per);
            else for (int64_t i = c * j->per; i < (c + 1) * j->per; i++)
                put(y, j->f, i, get(x, j->f, i) * a + o);
        }
    }
}

/* dx of a row: rstd (g - mean(g) - xhat mean(g xhat)), where g = dy w */
static void float_row_back(const row_job *j, const float *x, const float *dy, int64_t w0, double m, double s,
                           float *dx)
{
    const float *w = j->w ? (const float *)j->w + w0 : NULL;
    double g1 = 0, g2 = 0;
    if (j->per == 1)
        ISA_PICK(rs_wdots)(j->n, dy, w, x, m, &g1, &g2);
    else
        for (int64_t c = 0; c < j->channels; c++) {
            double a = 0, b = 0;
            ISA_PICK(rs_dots)(j->per, dy + c * j->per, x + c * j->per, m, &a, &b);
            g1 += a * (w ? w[c] : 1);
            g2 += b * (w ? w[c] : 1);
        }
    float k = (float)(-s * s * s * g2 / (double)j->n), o = (float)(-s * g1 / (double)j->n), mf = (float)m,
          sf = (float)s;
    if (j->per == 1)
        ISA_PICK(rs_wback)(j->n, dy, w, x, mf, sf, k, o, dx);
    else
        for (int64_t c = 0; c < j->channels; c++)
            ISA_PICK(rs_back)
    (j->per, dy + c * j->per, x + c * j->per, mf, sf * (w ? w[c] : 1), k, o, dx + c * j->per);
}
static void norm_rows_back(void *arg, int64_t lo, int64_t hi)
{
    const row_job *j = arg;
    int64_t es = j->f ? 4 : 8;
    for (int64_t r = lo; r < hi; r++) {
        const char *x = j->x + r * j->n * es, *dy = j->dy + r * j->n * es;
        char *dx = j->y + r * j->n * es;
        double m = get(j->mean, j->f, r), s = get(j->rstd, j->f, r), g1 = 0, g2 = 0;
        int64_t w0 = r % j->groups * j->channels;
        if (j->f) {
            float_row_back(j, (const float *)x, (const float *)dy, w0, m, s, (float *)dx);
            continue;
        }
        for (int64_t c = 0; c < j->channels; c++) {
            double w = j->w ? get(j->w, j->f, w0 + c) : 1;
            for (int64_t i = c * j->per; i < (c + 1) * j->per; i++) {
                double g = get(dy, j->f, i) * w;
                g1 += g;
                g2 += g * (get(x, j->f, i) - m) * s;
            }
        }
        g1 /= (double)j->n;
        g2 /= (double)j->n;
        for (int64_t c = 0; c < j->channels; c++) {
            double w = j->w ? get(j->w, j->f, w0 + c) : 1;
            for (int64_t i = c * j->per; i < (c + 1) * j->per; i++)
                put(dx, j->f, i, s * (get(dy, j->f, i) * w - g1 - (get(x, j->f, i) - m) * s * g2));
        }
    }
}

/* dw, db: sums over all rows; one pass per block of weights so that threads never share a sum. */
typedef struct col_job {
    const row_job *j;
    int64_t rows;
    void *dw, *db;
} col_job;
static void norm_cols_back(void *arg, int64_t lo, int64_t hi)
{
    const col_job *k = arg;
    const row_job *j = k->j;
    int64_t es = j->f ? 4 : 8;
    double *dw = mem_zalloc(sizeof(double) * (size_t)MAX(hi - lo, 1)),
           *db = mem_zalloc(sizeof(double) * (size_t)MAX(hi - lo, 1));
    for (int64_t r = 0; r < k->rows; r++) {
        const char *x = j->x + r * j->n * es, *dy = j->dy + r * j->n * es;
        double m = get(j->mean, j->f, r), s = get(j->rstd, j->f, r);
        int64_t w0 = r % j->groups * j->channels;
        int64_t c0 = MAX(lo - w0, 0), c1 = MIN(hi - w0, j->channels);
        if (j->f && j->per == 1) {
            if (c0 < c1)
                ISA_PICK(rs_cols)
            (c1 - c0, (const float *)dy + c0, (const float *)x + c0, (float)m, (float)s, dw + w0 + c0 - lo,
             db + w0 + c0 - lo);
            continue;
        }
        for (int64_t c = c0; c < c1; c++) {
            if (j->f) {
                double p = 0;
                ISA_PICK(rs_dots)
                (j->per, (const float *)dy + c * j->per, (const float *)x + c * j->per, m, &db[w0 + c - lo],
                 &p);
                dw[w0 + c - lo] += p * s;
                continue;
            }
            for (int64_t i = c * j->per; i < (c + 1) * j->per; i++) {
                double g = get(dy, j->f, i);
                db[w0 + c - lo] += g;
                dw[w0 + c - lo] += g * (get(x, j->f, i) - m) * s;
            }
        }
    }
    for (int64_t c = lo; c < hi; c++) {
        if (k->dw)
            put(k->dw, j->f, c, dw[c - lo]);
        if (k->db)
            put(k->db, j->f, c, db[c - lo]);
    }
    free(dw);
    free(db);
}

static bool rows_forward(op_call *c, tp_tensor *x, tp_tensor *w, tp_tensor *b, row_job j, int64_t rows)
{
    scratch s = { .err = c->err };
    dtype t = work_type((dtype)x->dt);
    tp_tensor *xi = scratch_in(&s, x, t), *wi = scratch_in(&s, w, t), *bi = scratch_in(&s, b, t);
    tp_tensor *y = scratch_out(&s, c->res[0], t), *m = scratch_out(&s, c->res[1], t),
              *r = scratch_out(&s, c->res[2], t);
    if (!xi || !y || !m || !r || s.failed)
        return scratch_end(&s, false);
    j.f = t == DT_f32;
    j.x = tensor_host(xi);
    j.w = data_or_null(wi);
    j.b = data_or_null(bi);
    j.y = tensor_host(y);
    j.mean = tensor_host(m);
    j.rstd = tensor_host(r);
    if (j.n)
        pool_for(rows, MAX(1, 16384 / j.n), norm_rows, &j);
    else
        for (int64_t i = 0; i < rows; i++) {
            put(j.mean, j.f, i, NAN);
            put(j.rstd, j.f, i, NAN);
        }
    return scratch_end(&s, true);
}

static bool rows_backward(op_call *c, tp_tensor *dy, tp_tensor *x, tp_tensor *mean, tp_tensor *rstd,
                          tp_tensor *w, row_job j, int64_t rows)
{
    scratch s = { .err = c->err };
    dtype t = work_type((dtype)x->dt);
    tp_tensor *dyi = scratch_in(&s, dy, t), *xi = scratch_in(&s, x, t), *wi = scratch_in(&s, w, t);
    tp_tensor *m = scratch_in(&s, mean, t), *r = scratch_in(&s, rstd, t);
    tp_tensor *dx = scratch_out(&s, c->res[0], t), *dw = scratch_out(&s, c->res[1], t),
              *db = scratch_out(&s, c->res[2], t);
    if (!dyi || !xi || !m || !r || s.failed)
        return scratch_end(&s, false);
    j.f = t == DT_f32;
    j.dy = tensor_host(dyi);
    j.x = tensor_host(xi);
    j.w = data_or_null(wi);
    j.mean = tensor_host(m);
    j.rstd = tensor_host(r);
    if (dx && j.n) {
        j.y = tensor_host(dx);
        pool_for(rows, MAX(1, 16384 / j.n), norm_rows_back, &j);
    }
    if (dw || db) {
        col_job k = { &j, rows, data_or_null(dw), data_or_null(db) };
        pool_for(j.channels * j.groups, MAX(16, 16384 / MAX(1, rows * j.per)), norm_cols_back, &k);
    }
    return scratch_end(&s, true);
}

/* ---- layer norm ---- */
static bool layer_check(op_call *c, tp_tensor *x, const tp_val *ns, tp_tensor *w, tp_tensor *b, int *axis)
{
    size_text s, t;
    if (ns->n < 1)
        return err_set(c->err, ERR_runtime,
                       "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
                       "one element, but "
                       "got normalized_shape = %s",
                       sizes_str(&s, ns->n, ns->ints));
    tp_tensor *par[2] = { w, b };
    for (int i = 0; i < 2; i++)
        if (par[i] &&
            !tensor_same_size(par[i], &(tp_tensor){ .ndim = (uint8_t)ns->n, .size = (symint *)ns->ints }))
            return err_set(c->err, ERR_runtime,
                           "Expected %s to be of same shape as normalized_shape, but got %s of shape %s and "
                           "normalized_shape = %s",
                           i ? "bias" : "weight", i ? "bias" : "weight",
                           sizes_str(&s, par[i]->ndim, par[i]->size), sizes_str(&t, ns->n, ns->ints));
    *axis = x->ndim - ns->n;
    bool fits = *axis >= 0;
    for (int i = 0; i < ns->n && fits; i++)
        fits = sym_eq(x->size[*axis + i], ns->ints[i]);
    if (!fits) {
        strbuf m = { 0 };
        for (int i = 0; i < ns->n; i++)
            strbuf_addf(&m, ", %lld", (long long)ns->ints[i]);
        err_set(c->err, ERR_runtime,
                "Given normalized_shape=%s, expected input with shape [*%s], but got input of size%s",
                sizes_str(&s, ns->n, ns->ints), strbuf_str(&m), sizes_str(&t, x->ndim, x->size));
        strbuf_free(&m);
    }
    return fits;
}

bool shape_layer_norm(op_call *c)
{
    tp_tensor *x = arg_t(c, 0);
    symint size[TP_MAX_DIMS];
    int axis = 0;
    if (!layer_check(c, x, &c->arg[1], arg_t(c, 2), arg_t(c, 3), &axis))
        return false;
    if (!dtype_is_float((dtype)x->dt))
        return err_set(c->err, ERR_notimpl, "\"LayerNormKernelImpl\" not implemented for '%s'",
                       dtype_rows[x->dt].gname);
    for (int i = 0; i < x->ndim; i++)
        size[i] = i < axis ? x->size[i] : 1;
    dtype st = arg_t(c, 2) && arg_t(c, 2)->dt == DT_f32 ? DT_f32
                                                        : (dtype)x->dt; /* mixed: f32 parameters keep f32 */
    return out_new(c, (dtype)x->dt, x->ndim, x->size) && out_new(c, st, x->ndim, size) &&
           out_new(c, st, x->ndim, size);
}
static row_job layer_job(const tp_tensor *x, const tp_val *ns, int64_t *rows)
{
    int64_t n = shape_numel(ns->n, ns->ints);
    *rows = shape_numel(x->ndim - ns->n, x->size);
    return (row_job){ .n = n, .per = 1, .channels = n, .groups = 1 };
}
bool eager_layer_norm(op_call *c)
{
    int64_t rows;
    row_job j = layer_job(arg_t(c, 0), &c->arg[1], &rows);
    j.eps = val_as_f(&c->arg[4]);
    return rows_forward(c, arg_t(c, 0), arg_t(c, 2), arg_t(c, 3), j, rows);
}
/* (grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask) */
bool shape_layer_norm_backward(op_call *c)
{
    tp_tensor *x = arg_t(c, 1);
    const tp_val *ns = &c->arg[2];
    const bool *m = c->arg[7].bools;
    int axis = 0;
    if (!layer_check(c, x, ns, arg_t(c, 5), arg_t(c, 6), &axis) || !grad_is(c, arg_t(c, 0), x->ndim, x->size))
        return false;
    for (int i = 3; i < 5; i++)
        if (!sym_eq(arg_t(c, i)->numel, shape_numel(axis, x->size)))
            return err_set(c->err, ERR_runtime,
                           "native_layer_norm_backward: mean and rstd need one value per row");
    op_out *o = out_new(c, (dtype)x->dt, x->ndim, x->size);
    if (!m[0])
        o->kind = OUT_none;
    for (int i = 1; i < 3; i++) {
        tp_tensor *p = arg_t(c, 4 + i);
        o = out_new(c, p ? (dtype)p->dt : (dtype)x->dt, ns->n, ns->ints);
        if (!m[i] || !p)
            o->kind = OUT_none;
    }
    return true;
}
bool eager_layer_norm_backward(op_call *c)
{
    int64_t rows;
    row_job j = layer_job(arg_t(c, 1), &c->arg[2], &rows);
    return rows_backward(c, arg_t(c, 0), arg_t(c, 1), arg_t(c, 3), arg_t(c, 4), arg_t(c, 5), j, rows);
}
bool decomp_layer_norm(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[3];
    return b_opn(b, native_layer_norm, r, 3, arg[0], arg[1], arg[2], arg[3], arg[4]) && RET(r[0]);
}

/* x in f32 when it is a narrow float */
static tp_tensor *widen(bld *b, tp_tensor *x)
{
    return x && (x->dt == DT_f16 || x->dt == DT_bf16) ? b_op(b, to_dtype, vT(x), vDT(DT_f32)) : x;
}
static tp_tensor *to_type(bld *b, tp_tensor *x, dtype dt)
{
    return x && x->dt != dt ? b_op(b, to_dtype, vT(x), vDT(dt)) : x;
}
/* (x - mean) rstd over dims; mean and rstd keep those dims */
static tp_tensor *standard(bld *b, tp_tensor *x, const symint *dims, int n, double eps, tp_tensor **mean,
                           tp_tensor **rstd)
{
    tp_tensor *vm[2];
    if (!b_opn(b, var_mean_correction, vm, 2, vT(x), vIs(dims, n), vI(0), vB(true)))
        return NULL;
    *rstd = b_op(b, rsqrt, vT(b_op(b, add_Tensor, vT(vm[0]), vF(eps))));
    *mean = vm[1];
    return b_op(b, mul_Tensor, vT(b_op(b, sub_Tensor, vT(x), vT(*mean))), vT(*rstd));
}
static tp_tensor *affine(bld *b, tp_tensor *y, tp_tensor *w, tp_tensor *bias)
{
    if (w)
        y = b_op(b, mul_Tensor, vT(y), vT(w));
    if (bias)
        y = b_op(b, add_Tensor, vT(y), vT(bias));
    return y;
}
/* What a backward form returns: those of dx, dw, db that the mask asks for, in the types of x and of the weight. */
static bool ret_masked(bld *b, tp_tensor *const *r, const bool *want, const tp_tensor *x, const tp_tensor *w,
                       tp_val *out)
{
    if (b->failed)
        return false;
    for (int i = 0; i < 3; i++) {
        tp_tensor *t = want[i] ? to_type(b, r[i], (dtype)(i && w ? w : x)->dt) : NULL;
        if (want[i] && !t)
            return false;
        out[i] = t ? vT(tensor_ref(t)) : vNone;
    }
    return true;
}
/* dx of y = (x - mean) rstd where mean and rstd depend on x: the parts of g along 1 and along y leave it. */
static tp_tensor *unstandard(bld *b, tp_tensor *g, tp_tensor *y, tp_tensor *rstd, const symint *dims, int n)
{
    tp_tensor *m = b_op(b, mean_dim, vT(g), vIs(dims, n), vB(true)),
              *p = b_op(b, mean_dim, vT(b_op(b, mul_Tensor, vT(g), vT(y))), vIs(dims, n), vB(true));
    tp_tensor *r = b_op(b, sub_Tensor, vT(b_op(b, sub_Tensor, vT(g), vT(m))),
                        vT(b_op(b, mul_Tensor, vT(y), vT(p))));
    return b_op(b, mul_Tensor, vT(r), vT(rstd));
}
static tp_tensor *standard_by(bld *b, tp_tensor *x, tp_tensor *mean, tp_tensor *rstd)
{
    return b_op(b, mul_Tensor, vT(b_op(b, sub_Tensor, vT(x), vT(mean))), vT(rstd));
}

/* (grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask) */
bool decomp_layer_norm_backward(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[1].t, *dy = widen(b, arg[0].t), *w = val_t(&arg[5]), *r[3] = { 0 };
    const bool *want = arg[7].bools;
    int n = arg[2].n, lead = x->ndim - n;
    symint rows[TP_MAX_DIMS], dims[TP_MAX_DIMS], outer[TP_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++)
        rows[i] = i < lead ? x->size[i] : 1;
    for (int i = 0; i < n; i++)
        dims[i] = lead + i;
    for (int i = 0; i < lead; i++)
        outer[i] = i;
    tp_tensor *mean = b_op(b, reshape, vT(widen(b, arg[3].t)), vIs(rows, x->ndim)),
              *rstd = b_op(b, reshape, vT(widen(b, arg[4].t)), vIs(rows, x->ndim));
    tp_tensor *y = standard_by(b, widen(b, x), mean, rstd);
    if (want[0])
        r[0] = unstandard(b, w ? b_op(b, mul_Tensor, vT(dy), vT(widen(b, w))) : dy, y, rstd, dims, n);
    if (want[1])
        r[1] = b_op(b, mul_Tensor, vT(dy), vT(y));
    if (want[2])
        r[2] = dy;
    for (int i = 1; i < 3; i++)
        if (want[i])
            r[i] = lead ? b_op(b, sum_dim_IntList, vT(r[i]), vIs(outer, lead), vB(false))
                        : b_op(b, clone, vT(r[i]));
    return ret_masked(b, r, want, x, w, out);
}

/* (grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask) */
bool decomp_group_norm_backward(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[1].t, *w = val_t(&arg[4]), *r[3] = { 0 };
    symint N = arg[5].i, C = arg[6].i, hw = arg[7].i, g = arg[8].i, in = sym_floordiv(C, g);
    const bool *want = arg[9].bools;
    static const symint inner[2] = { 2, 3 }, across[2] = { 0, 3 };
    tp_tensor *dy = b_op(b, reshape, vT(widen(b, arg[0].t)), LIST(N, g, in, hw)),
              *xv = b_op(b, reshape, vT(widen(b, x)), LIST(N, g, in, hw)),
              *mean = b_op(b, reshape, vT(widen(b, arg[2].t)), LIST(N, g, 1, 1)),
              *rstd = b_op(b, reshape, vT(widen(b, arg[3].t)), LIST(N, g, 1, 1));
    tp_tensor *y = standard_by(b, xv, mean, rstd), *gw = dy;
    if (w)
        gw = b_op(b, mul_Tensor, vT(dy), vT(b_op(b, reshape, vT(widen(b, w)), LIST(1, g, in, 1))));
    if (want[0])
        r[0] = b_op(b, reshape, vT(unstandard(b, gw, y, rstd, inner, 2)), vIs(x->size, x->ndim));
    if (want[1])
        r[1] = b_op(b, sum_dim_IntList, vT(b_op(b, mul_Tensor, vT(dy), vT(y))), vIs(across, 2), vB(false));
    if (want[2])
        r[2] = b_op(b, sum_dim_IntList, vT(dy), vIs(across, 2), vB(false));
    for (int i = 1; i < 3; i++)
        if (want[i])
            r[i] = b_op(b, reshape, vT(r[i]), LIST(C));
    return ret_masked(b, r, want, x, w, out);
}

bool decomp_native_layer_norm(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[0].t, *r[3];
    symint dims[TP_MAX_DIMS];
    int n = arg[1].n;
    for (int i = 0; i < n; i++)
        dims[i] = x->ndim - n + i;
    tp_tensor *y = standard(b, widen(b, x), dims, n, val_as_f(&arg[4]), &r[1], &r[2]);
    r[0] = to_type(b, affine(b, y, val_t(&arg[2]), val_t(&arg[3])), (dtype)x->dt);
    dtype st = val_t(&arg[2]) && val_t(&arg[2])->dt == DT_f32 ? DT_f32 : (dtype)x->dt;
    r[1] = to_type(b, r[1], st);
    r[2] = to_type(b, r[2], st);
    return comp_ret_n(b, r, 3, out);
}

/* N C HxW describe x, C splits into groups, parameters have C elements. */
static bool group_check(op_call *c, tp_tensor *x, tp_tensor *w, tp_tensor *b, symint N, symint C, symint hw,
                        symint g)
{
    if (sym_le(g, 0) || sym_lt(N, 0) || sym_lt(C, 0) || sym_lt(hw, 0) || !sym_eq(sym_mod(C, g), 0) ||
        !sym_eq(x->numel, sym_mul(sym_mul(N, C), hw)))
        return err_set(
            c->err, ERR_runtime,
            "%s: N, C and HxW must describe the input, and C must be divisible by the number of groups",
            c->row->name);
    if ((w && !sym_eq(w->numel, C)) || (b && !sym_eq(b->numel, C)))
        return err_set(c->err, ERR_runtime, "%s: weight and bias need one element per channel", c->row->name);
    return true;
}

/* ---- group norm: (input, weight, bias, N, C, HxW, group, eps) ---- */
bool shape_group_norm(op_call *c)
{
    tp_tensor *x = arg_t(c, 0);
    symint st[2] = { c->arg[3].i, c->arg[6].i };
    if (!group_check(c, x, arg_t(c, 1), arg_t(c, 2), c->arg[3].i, c->arg[4].i, c->arg[5].i, c->arg[6].i))
        return false;
    dtype dt = arg_t(c, 1) && arg_t(c, 1)->dt == DT_f32 ? DT_f32 : (dtype)x->dt;
    if (!dtype_is_float((dtype)x->dt))
        return err_set(c->err, ERR_notimpl, "\"GroupNormKernelImpl\" not implemented for '%s'",
                       dtype_rows[x->dt].gname);
    op_out *o = out_new(c, (dtype)x->dt, x->ndim, x->size);
    return shape_memfmt_strides(tensor_suggest_memfmt(x), x->ndim, x->size, o->stride, c->err) &&
           out_new(c, dt, 2, st) && out_new(c, dt, 2, st);
}
static row_job group_job(int64_t C, int64_t hw, int64_t groups)
{
    return (row_job){ .n = C / groups * hw, .per = hw, .channels = C / groups, .groups = groups };
}
bool eager_group_norm(op_call *c)
{
    row_job j = group_job(c->arg[4].i, c->arg[5].i, c->arg[6].i);
    j.eps = val_as_f(&c->arg[7]);
    return rows_forward(c, arg_t(c, 0), arg_t(c, 1), arg_t(c, 2), j, c->arg[3].i * c->arg[6].i);
}
/* (grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask) */
bool shape_group_norm_backward(op_call *c)
{
    tp_tensor *x = arg_t(c, 1), *w = arg_t(c, 4);
    const bool *m = c->arg[9].bools;
    if (!group_check(c, x, w, NULL, c->arg[5].i, c->arg[6].i, c->arg[7].i, c->arg[8].i) ||
        !grad_is(c, arg_t(c, 0), x->ndim, x->size))
        return false;
    for (int i = 2; i < 4; i++)
        if (!sym_eq(arg_t(c, i)->numel, sym_mul(c->arg[5].i, c->arg[8].i)))
            return err_set(c->err, ERR_runtime,
                           "native_group_norm_backward: mean and rstd need one value per group");
    op_out *o = out_new(c, (dtype)x->dt, x->ndim, x->size);
    if (!shape_memfmt_strides(tensor_suggest_memfmt(x), x->ndim, x->size, o->stride, c->err))
        return false;
    if (!m[0])
        o->kind = OUT_none;
    for (int i = 1; i < 3; i++) {
        o = out_new(c, w ? (dtype)w->dt : (dtype)x->dt, 1, &c->arg[6].i);
        if (!m[i])
            o->kind = OUT_none;
    }
    return true;
}
bool eager_group_norm_backward(op_call *c)
{
    row_job j = group_job(c->arg[6].i, c->arg[7].i, c->arg[8].i);
    return rows_backward(c, arg_t(c, 0), arg_t(c, 1), arg_t(c, 2), arg_t(c, 3), arg_t(c, 4), j,
                         c->arg[5].i * c->arg[8].i);
}
bool decomp_native_group_norm(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[0].t, *w = val_t(&arg[1]), *bias = val_t(&arg[2]), *r[3];
    symint N = arg[3].i, C = arg[4].i, hw = arg[5].i, g = arg[6].i;
    symint dims[1] = { 2 }, full[3] = { 1, C, 1 };
    tp_tensor *v = b_op(b, reshape, vT(widen(b, x)), LIST(N, g, sym_mul(sym_floordiv(C, g), hw)));
    tp_tensor *y = standard(b, v, dims, 1, val_as_f(&arg[7]), &r[1], &r[2]);
    y = b_op(b, reshape, vT(y), LIST(N, C, hw));
    if (w)
        w = b_op(b, reshape, vT(w), vIs(full, 3));
    if (bias)
        bias = b_op(b, reshape, vT(bias), vIs(full, 3));
    y = b_op(b, reshape, vT(affine(b, y, w, bias)), vIs(x->size, x->ndim));
    dtype st = val_t(&arg[1]) && val_t(&arg[1])->dt == DT_f32 ? DT_f32 : (dtype)x->dt;
    r[0] = to_type(b, y, (dtype)x->dt);
    r[1] = to_type(b, b_op(b, squeeze_dim, vT(r[1]), vI(2)), st);
    r[2] = to_type(b, b_op(b, squeeze_dim, vT(r[2]), vI(2)), st);
    return comp_ret_n(b, r, 3, out);
}
bool decomp_group_norm(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[0].t, *r[3], *w = val_t(&arg[2]), *bias = val_t(&arg[3]);
    symint g = arg[1].i, hw = 1;
    size_text s, t;
    if (x->ndim < 2)
        return err_set(b->err, ERR_runtime, "Expected at least 2 dimensions for input tensor but received %d",
                       x->ndim);
    if (sym_le(g, 0))
        return err_set(b->err, ERR_runtime, "Expected num groups to be greater than 0, got %lld",
                       (long long)g);
    if (!sym_eq(sym_mod(x->size[1], g), 0))
        return err_set(b->err, ERR_runtime,
                       "Expected number of channels in input to be divisible by num_groups, but got input of "
                       "shape %s and "
                       "num_groups=%lld",
                       sizes_str(&s, x->ndim, x->size), (long long)g);
    tp_tensor *par[2] = { w, bias };
    for (int i = 0; i < 2; i++)
        if (par[i] && (par[i]->ndim != 1 || !sym_eq(par[i]->size[0], x->size[1])))
            return err_set(
                b->err, ERR_runtime,
                "Expected %s to be a vector of size equal to the number of channels in input, but got %s of "
                "shape %s and input of shape %s",
                i ? "bias" : "weight", i ? "bias" : "weight", sizes_str(&s, par[i]->ndim, par[i]->size),
                sizes_str(&t, x->ndim, x->size));
    for (int i = 2; i < x->ndim; i++)
        hw = sym_mul(hw, x->size[i]);
    memfmt f = tensor_suggest_memfmt(x);
    tp_tensor *xc = b_op(b, contiguous, vT(x), vMF(f));
    return b_opn(b, native_group_norm, r, 3, vT(xc), arg[2], arg[3], vI(x->size[0]), vI(x->size[1]), vI(hw),
                 vI(g), arg[4]) &&
           RET(r[0]);
}

/* ---- batch norm: statistics over everything but the channel ---- */
typedef struct bn_job {
    bool f, train;
    int64_t N, C, L;
    double eps, momentum;
    const char *x, *w, *b, *dy;
    char *y, *mean, *inv, *rm, *rv; /* rm, rv: running statistics in f64 */
    char *dw, *db;
} bn_job;

static void bn_channels(void *arg, int64_t lo, int64_t hi)
{
    const bn_job *j = arg;
    int64_t es = j->f ? 4 : 8;
    double count = (double)(j->N * j->L);
    for (int64_t c = lo; c < hi; c++) {
        double m = 0, v = 0, inv;
        if (j->train) {
            for (int64_t n = 0; n < j->N; n++) {
                const char *x = j->x + (n * j->C + c) * j->L * es;
                double s = j->f ? ISA_PICK(rs_sum)(j->L, (const float *)x) : 0;
                for (int64_t i = 0; i < j->L && !j->f; i++)
                    s += get(x, j->f, i);
                m += s;
            }
            m /= count;
            for (int64_t n = 0; n < j->N; n++) {
                const char *x = j->x + (n * j->C + c) * j->L * es;
                double s = j->f ? ISA_PICK(rs_square)(j->L, (const float *)x, m) : 0;
                for (int64_t i = 0; i < j->L && !j->f; i++) {
                    double d = get(x, j->f, i) - m;
                    s += d * d;
                }
                v += s;
            }
            inv = 1 / sqrt(v / count + j->eps);
            put(j->mean, j->f, c, m);
            put(j->inv, j->f, c, inv);
            if (j->rm)
                ((double *)j->rm)[c] = (1 - j->momentum) * ((double *)j->rm)[c] + j->momentum * m;
            if (j->rv)
                ((double *)j->rv)[c] = (1 - j->momentum) * ((double *)j->rv)[c] +
                                       j->momentum * v / (count - 1);
        } else {
            m = ((double *)j->rm)[c];
            inv = 1 / sqrt(((double *)j->rv)[c] + j->eps);
        }
        double a = inv * (j->w ? get(j->w, j->f, c) : 1), o = (j->b ? get(j->b, j->f, c) : 0) - m * a;
        for (int64_t n = 0; n < j->N; n++) {
            const char *x = j->x + (n * j->C + c) * j->L * es;
            char *y = j->y + (n * j->C + c) * j->L * es;
            if (j->f)
                ISA_PICK(rs_scale)(j->L, (const float *)x, (float)a, (float)o, (float *)y);
            else
                for (int64_t i = 0; i < j->L; i++)
                    ((double *)y)[i] = ((const double *)x)[i] * a + o;
        }
    }
}

static void bn_channels_back(void *arg, int64_t lo, int64_t hi)
{
    const bn_job *j = arg;
    int64_t es = j->f ? 4 : 8;
    double count = (double)(j->N * j->L);
    for (int64_t c = lo; c < hi; c++) {
        double m, inv, s = 0, p = 0;
        if (j->train) {
            m = get(j->mean, j->f, c);
            inv = get(j->inv, j->f, c);
        } else {
            m = ((double *)j->rm)[c];
            inv = 1 / sqrt(((double *)j->rv)[c] + j->eps);
        }
        for (int64_t n = 0; n < j->N; n++) {
            int64_t at = (n * j->C + c) * j->L * es;
            if (j->f)
                ISA_PICK(rs_dots)(j->L, (const float *)(j->dy + at), (const float *)(j->x + at), m, &s, &p);
            for (int64_t i = 0; i < j->L && !j->f; i++) {
                double g = get(j->dy + at, j->f, i);
                s += g;
                p += g * (get(j->x + at, j->f, i) - m);
            }
        }
        if (j->dw)
            put(j->dw, j->f, c, p * inv);
        if (j->db)
            put(j->db, j->f, c, s);
        if (!j->y)
            continue;
        double w = j->w ? get(j->w, j->f, c) : 1, k = p * inv * inv / count, gm = s / count;
        for (int64_t n = 0; n < j->N; n++) {
            int64_t at = (n * j->C + c) * j->L * es;
            if (j->f) {
                double a = inv * w;
                ISA_PICK(rs_back)
                (j->L, (const float *)(j->dy + at), (const float *)(j->x + at), (float)m, (float)a,
                 (float)(j->train ? -k * a : 0), (float)(j->train ? -gm * a : 0), (float *)(j->y + at));
                continue;
            }
            for (int64_t i = 0; i < j->L; i++) {
                double g = get(j->dy + at, j->f, i);
                put(j->y + at, j->f, i,
                    j->train ? (g - gm - (get(j->x + at, j->f, i) - m) * k) * inv * w : g * inv * w);
            }
        }
    }
}

static bool bn_check(op_call *c, tp_tensor *x, tp_tensor *const *par, bool train)
{
    static const char *const names[] = { "weight", "bias", "running_mean", "running_var" };
    size_text s;
    if (!dtype_is_float((dtype)x->dt))
        return err_set(c->err, ERR_notimpl, "\"batch_norm\" not implemented for '%s'",
                       dtype_rows[x->dt].gname);
    if (x->ndim < 2)
        return err_set(c->err, ERR_runtime, "batch_norm: expected input to have at least 2 dimensions");
    for (int i = 0; i < 4; i++)
        if (par[i] && !sym_eq(par[i]->numel, x->size[1]))
            return err_set(c->err, ERR_runtime, "%s should contain %s elements not %lld", names[i],
                           size_str(&s, x->size[1]), (long long)par[i]->numel);
    if (!train && !par[2])
        return err_set(c->err, ERR_runtime, "running_mean must be defined in evaluation mode");
    if (!train && !par[3])
        return err_set(c->err, ERR_runtime, "running_var must be defined in evaluation mode");
    if (train && sym_known(SYM_eq, x->numel, 0))
        return err_set(c->err, ERR_runtime,
                       "input tensor must have at least one element, but got input_sizes = %s",
                       sizes_str(&s, x->ndim, x->size));
    return true;
}

static bool bn_outputs(op_call *c, tp_tensor *x, tp_tensor *w, bool train)
{
    symint n = train ? x->size[1] : 0;
    dtype st = w && w->dt == DT_f32 ? DT_f32 : (dtype)x->dt;
    op_out *o = out_new(c, (dtype)x->dt, x->ndim, x->size);
    return shape_memfmt_strides(tensor_suggest_memfmt(x), x->ndim, x->size, o->stride, c->err) &&
           out_new(c, st, 1, &n) && out_new(c, st, 1, &n);
}
/* (input, weight, bias, running_mean, running_var, training, momentum, eps) */
bool shape_batch_norm(op_call *c)
{
    tp_tensor *par[4] = { arg_t(c, 1), arg_t(c, 2), arg_t(c, 3), arg_t(c, 4) };
    bool train = arg_b(c, 5, false);
    return bn_check(c, arg_t(c, 0), par, train) && bn_outputs(c, arg_t(c, 0), par[0], train);
}
/* As above, with new running statistics as results 4 and 5. */
bool shape_batch_norm_functional(op_call *c)
{
    return shape_batch_norm(c) && out_like(c, arg_t(c, 3), (dtype)arg_t(c, 3)->dt) &&
           out_like(c, arg_t(c, 4), (dtype)arg_t(c, 4)->dt);
}

static bool batch_norm(op_call *c, tp_tensor *rm_out, tp_tensor *rv_out)
{
    scratch s = { .err = c->err };
    tp_tensor *x = arg_t(c, 0);
    dtype t = work_type((dtype)x->dt);
    bool train = arg_b(c, 5, false);
    tp_tensor *xi = scratch_in(&s, x, t), *w = scratch_in(&s, arg_t(c, 1), t),
              *b = scratch_in(&s, arg_t(c, 2), t);
    tp_tensor *y = scratch_out(&s, c->res[0], t), *m = scratch_out(&s, c->res[1], t),
              *v = scratch_out(&s, c->res[2], t);
    tp_tensor *rm = NULL, *rv = NULL;
    symint C = x->size[1];
    if (arg_t(c, 3) && (rm = scratch_new(&s, DT_f64, 1, &C)))
        tensor_copy(rm, arg_t(c, 3), c->err);
    if (arg_t(c, 4) && (rv = scratch_new(&s, DT_f64, 1, &C)))
        tensor_copy(rv, arg_t(c, 4), c->err);
    if (!xi || !y || s.failed)
        return scratch_end(&s, false);
    int64_t N = x->size[0];
    bn_job j = { .f = t == DT_f32,
                 .train = train,
                 .N = N,
                 .C = C,
                 .L = x->numel ? x->numel / (N * C) : 0,
                 .eps = val_as_f(&c->arg[7]),
                 .momentum = val_as_f(&c->arg[6]),
                 .x = tensor_host(xi),
                 .w = data_or_null(w),
                 .b = data_or_null(b),
                 .y = tensor_host(y),
                 .mean = tensor_host(m),
                 .inv = tensor_host(v),
                 .rm = data_or_null(rm),
                 .rv = data_or_null(rv) };
    pool_for(C, MAX(1, 16384 / MAX(1, N * j.L)), bn_channels, &j);
    bool ok = true;
    if (rm_out)
        ok = tensor_copy(rm_out, rm, c->err);
    if (rv_out)
        ok = ok && tensor_copy(rv_out, rv, c->err);
    return scratch_end(&s, ok);
}
/* Called by name with running statistics in training mode, this row writes them, as PyTorch's does. */
bool eager_batch_norm(op_call *c)
{
    bool train = arg_b(c, 5, false);
    tp_tensor *rm = train ? arg_t(c, 3) : NULL, *rv = train ? arg_t(c, 4) : NULL;
    if (!batch_norm(c, rm, rv))
        return false;
    if (rm)
        tensor_bump(rm);
    if (rv)
        tensor_bump(rv);
    return true;
}
bool eager_batch_norm_functional(op_call *c) { return batch_norm(c, c->res[3], c->res[4]); }

/* (grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask) */
bool shape_batch_norm_backward(op_call *c)
{
    tp_tensor *x = arg_t(c, 1), *w = arg_t(c, 2);
    const bool *m = c->arg[9].bools;
    bool train = arg_b(c, 7, false);
    tp_tensor *par[4] = { w, NULL, arg_t(c, 3), arg_t(c, 4) }, *save[2] = { arg_t(c, 5), arg_t(c, 6) };
    if (!bn_check(c, x, par, train) || !grad_is(c, arg_t(c, 0), x->ndim, x->size))
        return false;
    for (int i = 0; i < 2 && train; i++)
        if (!save[i] || !sym_eq(save[i]->numel, x->size[1]))
            return err_set(c->err, ERR_runtime,
                           "native_batch_norm_backward: the saved statistics need one value per channel");
    op_out *o = out_new(c, (dtype)x->dt, x->ndim, x->size);
    if (!shape_memfmt_strides(tensor_suggest_memfmt(x), x->ndim, x->size, o->stride, c->err))
        return false;
    if (!m[0])
        o->kind = OUT_none;
    for (int i = 1; i < 3; i++) {
        o = out_new(c, w ? (dtype)w->dt : (dtype)x->dt, 1, &x->size[1]);
        if (!m[i])
            o->kind = OUT_none;
    }
    return true;
}
bool eager_batch_norm_backward(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *x = arg_t(c, 1);
    dtype t = work_type((dtype)x->dt);
    bool train = arg_b(c, 7, false);
    symint C = x->size[1];
    tp_tensor *dy = scratch_in(&s, arg_t(c, 0), t), *xi = scratch_in(&s, x, t),
              *w = scratch_in(&s, arg_t(c, 2), t);
    tp_tensor *m = train ? scratch_in(&s, arg_t(c, 5), t) : NULL,
              *v = train ? scratch_in(&s, arg_t(c, 6), t) : NULL;
    tp_tensor *dx = scratch_out(&s, c->res[0], t), *dw = scratch_out(&s, c->res[1], t),
              *db = scratch_out(&s, c->res[2], t);
    tp_tensor *rm = NULL, *rv = NULL;
    if (!train) {
        rm = scratch_in(&s, arg_t(c, 3), DT_f64);
        rv = scratch_in(&s, arg_t(c, 4), DT_f64);
    }
    if (!dy || !xi || s.failed || (train ? !m || !v : !rm || !rv))
        return scratch_end(&s, false);
    int64_t N = x->size[0];
    bn_job j = { .f = t == DT_f32,
                 .train = train,
                 .N = N,
                 .C = C,
                 .L = x->numel ? x->numel / (N * C) : 0,
                 .eps = val_as_f(&c->arg[8]),
                 .x = tensor_host(xi),
                 .w = data_or_null(w),
                 .dy = tensor_host(dy),
                 .y = data_or_null(dx),
                 .mean = data_or_null(m),
                 .inv = data_or_null(v),
                 .rm = data_or_null(rm),
                 .rv = data_or_null(rv),
                 .dw = data_or_null(dw),
                 .db = data_or_null(db) };
    pool_for(C, MAX(1, 16384 / MAX(1, N * j.L)), bn_channels_back, &j);
    return scratch_end(&s, true);
}

static tp_tensor *per_channel(bld *b, tp_tensor *v, int nd) /* [C] -> [1, C, 1, ...] */
{
    symint size[TP_MAX_DIMS];
    for (int i = 0; i < nd; i++)
        size[i] = i == 1 && v ? v->size[0] : 1;
    return v ? b_op(b, reshape, vT(v), vIs(size, nd)) : NULL;
}
/* (grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask) */
bool decomp_batch_norm_backward(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[1].t, *dy = widen(b, arg[0].t), *w = val_t(&arg[2]), *r[3] = { 0 };
    const bool *want = arg[9].bools;
    bool train = arg[7].b;
    symint dims[TP_MAX_DIMS], count = 1;
    int n = 0, nd = x->ndim;
    for (int i = 0; i < nd; i++)
        if (i != 1) {
            dims[n++] = i;
            count = sym_mul(count, x->size[i]);
        }
    tp_tensor *mean = per_channel(b, widen(b, train ? arg[5].t : arg[3].t), nd),
              *inv = per_channel(
                  b,
                  train ? widen(b, arg[6].t)
                        : b_op(b, rsqrt, vT(b_op(b, add_Tensor, vT(widen(b, arg[4].t)), arg[8]))),
                  nd);
    /* 1 / std joins once a channel, not once an element: one rounding fewer */
    tp_tensor *d = b_op(b, sub_Tensor, vT(widen(b, x)), vT(mean)), *g = dy, *sum[3] = { 0 };
    bool dx = want[0] && train;
    if (want[1] || dx) {
        tp_tensor *dot = b_op(b, sum_dim_IntList, vT(b_op(b, mul_Tensor, vT(dy), vT(d))), vIs(dims, n),
                              vB(true));
        sum[1] = b_op(b, mul_Tensor, vT(dot), vT(inv));
    }
    if (want[2] || dx)
        sum[2] = b_op(b, sum_dim_IntList, vT(dy), vIs(dims, n), vB(true));
    if (dx) { /* the parts of dy along 1 and along the deviations leave it */
        tp_tensor *along = b_op(b, mul_Tensor, vT(b_op(b, div_Tensor, vT(sum[1]), vI(count))), vT(inv));
        g = b_op(b, sub_Tensor, vT(g), vT(b_op(b, div_Tensor, vT(sum[2]), vI(count))));
        g = b_op(b, sub_Tensor, vT(g), vT(b_op(b, mul_Tensor, vT(d), vT(along))));
    }
    if (want[0]) {
        tp_tensor *scale = w ? b_op(b, mul_Tensor, vT(inv), vT(per_channel(b, widen(b, w), nd))) : inv;
        r[0] = b_op(b, mul_Tensor, vT(g), vT(scale));
    }
    for (int i = 1; i < 3; i++)
        if (want[i])
            r[i] = b_op(b, squeeze_dims, vT(sum[i]), vIs(dims, n));
    return ret_masked(b, r, want, x, w, out);
}
/* The sum of squared deviations of x over dims, which stay, and the mean. The pass for the squares also sums the
 * deviations, which shows how far rounding took the first mean: the error falls to one rounding. */
static tp_tensor *spread(bld *b, tp_tensor *x, const symint *dims, int n, symint count, tp_tensor **mean)
{
    tp_tensor *m = b_op(b, mean_dim, vT(x), vIs(dims, n), vB(true));
    tp_tensor *d = b_op(b, sub_Tensor, vT(x), vT(m));
    tp_tensor *sum = b_op(b, sum_dim_IntList, vT(d), vIs(dims, n), vB(true)),
              *squares = b_op(b, sum_dim_IntList, vT(b_op(b, mul_Tensor, vT(d), vT(d))), vIs(dims, n),
                              vB(true));
    tp_tensor *off = b_op(b, div_Tensor, vT(sum), vI(count));
    *mean = b_op(b, add_Tensor, vT(m), vT(off));
    return b_op(b, sub_Tensor, vT(squares), vT(b_op(b, mul_Tensor, vT(sum), vT(off))));
}
/* y, mean, invstd, and the new running statistics (the old ones in evaluation) into r. */
static bool batch_norm_parts(bld *b, const tp_val *arg, tp_tensor **r)
{
    tp_tensor *x = arg[0].t, *w = val_t(&arg[1]), *bias = val_t(&arg[2]), *rm = val_t(&arg[3]),
              *rv = val_t(&arg[4]);
    bool train = arg[5].b;
    double mom = val_as_f(&arg[6]), eps = val_as_f(&arg[7]);
    symint dims[TP_MAX_DIMS], count = 1;
    int n = 0, nd = x->ndim;
    for (int i = 0; i < nd; i++)
        if (i != 1) {
            dims[n++] = i;
            count = sym_mul(count, x->size[i]);
        }
    tp_tensor *wide = widen(b, x), *d, *inv;
    dtype st = w && w->dt == DT_f32 ? DT_f32 : (dtype)x->dt;
    r[3] = rm;
    r[4] = rv;
    if (train) {
        tp_tensor *mean = NULL, *squares = spread(b, wide, dims, n, count, &mean);
        inv = b_op(b, rsqrt,
                   vT(b_op(b, add_Tensor, vT(b_op(b, div_Tensor, vT(squares), vI(count))), vF(eps))));
        d = b_op(b, sub_Tensor, vT(wide), vT(mean));
        r[1] = b_op(b, squeeze_dims, vT(mean), vIs(dims, n));
        r[2] = b_op(b, squeeze_dims, vT(inv), vIs(dims, n));
        if (rm)
            r[3] = to_type(b,
                           b_op(b, add_Tensor, vT(b_op(b, mul_Tensor, vT(r[1]), vF(mom))),
                                vT(b_op(b, mul_Tensor, vT(rm), vF(1 - mom)))),
                           (dtype)rm->dt);
        if (rv) { /* the running variance is the unbiased one */
            tp_tensor *var = b_op(b, squeeze_dims,
                                  vT(b_op(b, div_Tensor, vT(squares), vI(sym_max(sym_sub(count, 1), 0)))),
                                  vIs(dims, n));
            r[4] = to_type(b,
                           b_op(b, add_Tensor, vT(b_op(b, mul_Tensor, vT(var), vF(mom))),
                                vT(b_op(b, mul_Tensor, vT(rv), vF(1 - mom)))),
                           (dtype)rv->dt);
        }
        r[1] = to_type(b, r[1], st);
        r[2] = to_type(b, r[2], st);
    } else {
        d = b_op(b, sub_Tensor, vT(wide), vT(per_channel(b, rm, nd)));
        inv = per_channel(b, b_op(b, rsqrt, vT(b_op(b, add_Tensor, vT(rv), vF(eps)))), nd);
        r[1] = r[2] = b_op(b, zeros, LIST(0), vDT(st));
    }
    r[0] = to_type(b, affine(b, d, affine(b, inv, per_channel(b, w, nd), NULL), per_channel(b, bias, nd)),
                   (dtype)x->dt);
    return !b->failed;
}
bool decomp_batch_norm_functional(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[5];
    return batch_norm_parts(b, arg, r) && comp_ret_n(b, r, 5, out);
}
bool decomp_native_batch_norm(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[5];
    return batch_norm_parts(b, arg, r) && comp_ret_n(b, r, 3, out);
}

static tp_tensor *detached(bld *b, tp_tensor *t) { return b_op(b, detach, vT(t)); }

/* Training writes the running statistics by explicit copies, so that a trace sees them. */
static tp_tensor *normalised(bld *b, tp_tensor *x, tp_tensor *const *par, bool train, const tp_val *mom,
                             const tp_val *eps, tp_tensor **stats)
{
    tp_tensor *r[5];
    stats[0] = stats[1] = NULL;
    if (train && sym_known(SYM_eq, x->numel, 0)) { /* no statistics; gradients are zeros, not absent */
        tp_tensor *y = b_op(b, clone, vT(x));
        for (int i = 0; i < 2 && y; i++)
            if (par[i] && !sym_known(SYM_eq, par[i]->numel, 0)) {
                tp_tensor *one = b_op(b, select_int, vT(par[i]), vI(0), vI(0));
                y = to_type(b, i ? b_op(b, add_Tensor, vT(y), vT(one)) : b_op(b, mul_Tensor, vT(y), vT(one)),
                            (dtype)x->dt);
            }
        return y;
    }
    if (!train || !par[2] || !par[3])
        return b_opn(b, native_batch_norm, r, 3, vT(x), vT(par[0]), vT(par[1]), vT(train ? NULL : par[2]),
                     vT(train ? NULL : par[3]), vB(train), *mom, *eps)
                   ? r[0]
                   : NULL;
    if (!b_opn(b, _native_batch_norm_legit_functional, r, 5, vT(x), vT(par[0]), vT(par[1]), vT(par[2]),
               vT(par[3]), vB(true), *mom, *eps))
        return NULL;
    stats[0] = detached(b, r[3]);
    stats[1] = detached(b, r[4]);
    return r[0];
}

bool decomp_batch_norm(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *par[4] = { val_t(&arg[1]), val_t(&arg[2]), val_t(&arg[3]), val_t(&arg[4]) }, *st[2];
    if (arg[0].t->ndim == 1 && sym_known(SYM_eq, arg[0].t->numel, 0)) /* nothing to normalise */
        return RET(b_op(b, clone, arg[0]));
    tp_tensor *y = normalised(b, arg[0].t, par, arg[5].b, &arg[6], &arg[7], st);
    for (int i = 0; i < 2; i++)
        if (st[i])
            b_op(b, copy_, vT(par[2 + i]), vT(st[i]));
    return RET(y);
}

/* Every image's channels become channels of one image. */
bool decomp_instance_norm(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[0].t, *st[2];
    symint size[TP_MAX_DIMS];
    bool use = arg[5].b;
    tp_tensor *par[4] = { val_t(&arg[1]), val_t(&arg[2]), val_t(&arg[3]), val_t(&arg[4]) };
    if (!use && (!par[2] || !par[3]))
        return err_set(b->err, ERR_runtime,
                       "Expected running_mean and running_var to be defined when use_input_stats is false");
    if (x->ndim < 2)
        return err_set(b->err, ERR_runtime, "instance_norm: expected input to have at least 2 dimensions");
    symint N = x->size[0], C = x->size[1];
    for (int i = 0; i < 4; i++)
        if (par[i])
            par[i] = b_op(b, repeat, vT(par[i]), LIST(N));
    memcpy(size, x->size, sizeof(symint) * x->ndim);
    size[0] = 1;
    size[1] = sym_mul(N, C);
    tp_tensor *v = b_op(b, view, vT(b_op(b, contiguous, vT(x))), vIs(size, x->ndim));
    tp_tensor *y = v ? normalised(b, v, par, use, &arg[6], &arg[7], st) : NULL;
    for (int i = 0; i < 2 && y; i++) /* running statistics are the means over the images */
        if (st[i]) {
            tp_tensor *mean = b_op(b, mean_dim, vT(b_op(b, view, vT(st[i]), LIST(N, C))), LIST(0), vB(false));
            b_op(b, copy_, arg[i + 3], vT(mean));
        }
    return RET(y ? b_op(b, view, vT(y), vIs(x->size, x->ndim)) : NULL);
}

/* ---- RMS norm ---- */
bool decomp_rms_norm(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[0].t, *w = val_t(&arg[2]);
    symint dims[TP_MAX_DIMS];
    int n = arg[1].n;
    size_text s, t;
    bool fits = n >= 1 && x->ndim >= n;
    for (int i = 0; i < n && fits; i++) {
        dims[i] = x->ndim - n + i;
        fits = sym_eq(x->size[dims[i]], arg[1].ints[i]);
    }
    if (!fits)
        return err_set(b->err, ERR_runtime,
                       "Given normalized_shape=%s, expected input with shape [*, %s, but got input of size%s",
                       sizes_str(&s, n, arg[1].ints), s.s + 1, sizes_str(&t, x->ndim, x->size));
    double eps = arg[3].kind != VAL_none ? val_as_f(&arg[3])
                 : x->dt == DT_f64       ? 2.220446049250313e-16
                                         : 1.1920928955078125e-07;
    tp_tensor *wide = widen(b, b_op(b, contiguous, vT(x), vMF(tensor_suggest_memfmt(x))));
    tp_tensor *ms = b_op(b, mean_dim, vT(b_op(b, mul_Tensor, vT(wide), vT(wide))), vIs(dims, n), vB(true));
    tp_tensor *inv = b_op(b, rsqrt, vT(b_op(b, add_Tensor, vT(ms), vF(eps))));
    tp_tensor *y = b_op(b, mul_Tensor, vT(wide), vT(inv));
    if (w)
        y = b_op(b, mul_Tensor, vT(y), vT(w));
    return RET(to_type(b, y, (dtype)x->dt));
}
