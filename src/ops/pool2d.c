/* pool2d.c - max, average and adaptive pooling over one to three spatial dimensions (as three with leading ones). */
#include "ops/decomp.h"
#include "ops/rowstat.h"
#include "base/pool.h"
#include <math.h>
#include <stdio.h>

typedef struct win {
    int64_t planes;
    int64_t in[3], out[3], k[3], s[3], p[3], d[3];
    bool adaptive, count_pad;
    int64_t divisor; /* 0: the window decides */
} win;

static int64_t volume(const int64_t v[3]) { return v[0] * v[1] * v[2]; }

/* Input range of output position o on axis a: [lo, hi) in steps of d; *full counts padding too. */
static void window(const win *w, int a, int64_t o, int64_t *lo, int64_t *hi, int64_t *full)
{
    if (w->adaptive) {
        *lo = o * w->in[a] / w->out[a];
        *hi = ((o + 1) * w->in[a] + w->out[a] - 1) / w->out[a];
        *full = *hi - *lo;
        return;
    }
    int64_t b = o * w->s[a] - w->p[a], e = b + (w->k[a] - 1) * w->d[a] + 1;
    *full = MIN(e, w->in[a] + w->p[a]) - b;
    if (b < 0)
        b += (-b + w->d[a] - 1) / w->d[a] * w->d[a];
    *lo = b;
    *hi = MIN(e, w->in[a]);
}

/* ---- sizes ---- */
static symint val_at(const tp_val *v, int i) { return v->ints[v->n == 1 ? 0 : i]; }

static bool list_ok(op_call *c, const tp_val *v, int nd, const char *what, bool empty_ok)
{
    static const char *const num[] = { "", "one int", "two ints", "three ints" };
    if (v->n == nd || v->n == 1 || (empty_ok && v->n == 0))
        return true;
    return err_set(c->err, ERR_runtime, "%s: %s must either be %sa single int, or a tuple of %s",
                   c->row->name, what, empty_ok ? "omitted, " : "", num[nd]);
}

/* kernel, stride, padding, dilation (NULL: 1) of the call -> output sizes of the last nd dimensions */
static bool pooled(op_call *c, tp_tensor *x, int nd, const tp_val *k, const tp_val *s, const tp_val *p,
                   const tp_val *d, bool ceil_mode, symint *size)
{
    size_text t;
    if (!list_ok(c, k, nd, "kernel_size", false) || !list_ok(c, s, nd, "stride", true) ||
        !list_ok(c, p, nd, "padding", false) || (d && !list_ok(c, d, nd, "dilation", false)))
        return false;
    if (x->ndim != nd + 1 && x->ndim != nd + 2)
        return err_set(c->err, ERR_runtime, "non-empty %dD or %dD (batch mode) tensor expected for input",
                       nd + 1, nd + 2);
    int first = x->ndim - nd;
    for (int i = x->ndim == nd + 2; i < x->ndim; i++)
        if (sym_eq(x->size[i], 0))
            return err_set(c->err, ERR_runtime,
                           "Expected %dD or %dD (batch mode) tensor with optional 0 dim batch size for "
                           "input, but got:%s",
                           nd + 1, nd + 2, sizes_str(&t, x->ndim, x->size));
    memcpy(size, x->size, sizeof(symint) * x->ndim);
    bool small = false;
    for (int i = 0; i < nd; i++) {
        symint kk = val_at(k, i), ss = s->n ? val_at(s, i) : kk, pp = val_at(p, i), dd = d ? val_at(d, i) : 1;
        symint in = x->size[first + i], eff = sym_add(sym_mul(dd, sym_sub(kk, 1)), 1);
        if (sym_eq(ss, 0))
            return err_set(c->err, ERR_runtime, "stride should not be zero");
        if (sym_le(kk, 0))
            return err_set(c->err, ERR_runtime,
                           "kernel size should be greater than zero, but got kernel size %lld",
                           (long long)kk);
        if (sym_lt(ss, 0))
            return err_set(c->err, ERR_runtime, "stride should be greater than zero, but got stride %lld",
                           (long long)ss);
        if (sym_le(dd, 0))
            return err_set(c->err, ERR_runtime, "dilation should be greater than zero, but got dilation %lld",
                           (long long)dd);
        if (sym_lt(pp, 0))
            return err_set(c->err, ERR_runtime, "pad must be non-negative, but got pad: %lld", (long long)pp);
        if (sym_gt(pp, sym_floordiv(eff, 2)))
            return err_set(
                c->err, ERR_runtime,
                "pad should be at most half of effective kernel size, but got pad=%lld, kernel_size=%lld and "
                "dilation=%lld",
                (long long)pp, (long long)kk, (long long)dd);
        symint room = sym_sub(sym_add(in, sym_mul(2, pp)), eff);
        symint o = sym_add(sym_floordiv(ceil_mode ? sym_add(room, sym_sub(ss, 1)) : room, ss), 1);
        if (ceil_mode && sym_ge(sym_mul(sym_sub(o, 1), ss), sym_add(in, pp)))
            o = sym_sub(o, 1); /* the last window must start inside the input or its left padding */
        small |= sym_lt(o, 1);
        size[first + i] = o;
    }
    if (small) {
        strbuf a = { 0 }, b = { 0 };
        for (int i = first - 1; i < x->ndim; i++) {
            strbuf_addf(&a, "%s%lld", i >= first ? "x" : "", (long long)x->size[i]);
            strbuf_addf(&b, "%s%lld", i >= first ? "x" : "", (long long)MAX(size[i], 0));
        }
        err_set(c->err, ERR_runtime,
                "Given input size: (%s). Calculated output size: (%s). Output size is too small",
                strbuf_str(&a), strbuf_str(&b));
        strbuf_free(&a);
        strbuf_free(&b);
        return false;
    }
    return true;
}

/* The format of x survives in planes, and in volumes where the largest is taken. */
static bool out_pool(op_call *c, tp_tensor *x, dtype dt, const symint *size)
{
    op_out *o = out_new(c, dt, x->ndim, size);
    if (strstr(c->row->name, "3d") && (x->ndim == 4 || strncmp(c->row->name, "max_pool", 8)))
        return true;
    return shape_memfmt_strides(tensor_suggest_memfmt(x), x->ndim, size, o->stride, c->err);
}
static bool no_window(op_call *c, const tp_tensor *x, bool ints, const char *name)
{
    if (x->dt == DT_bool || (!ints && !dtype_is_float((dtype)x->dt)))
        return err_set(c->err, ERR_notimpl, "\"%s\" not implemented for '%s'", name, dtype_rows[x->dt].gname);
    return true;
}

static bool max_shape(op_call *c, int nd)
{
    tp_tensor *x = arg_t(c, 0);
    symint size[8];
    return no_window(c, x, true, nd == 3 ? "max_pool3d" : "max_pool2d") &&
           pooled(c, x, nd, &c->arg[1], &c->arg[2], &c->arg[3], &c->arg[4], arg_b(c, 5, false), size) &&
           out_pool(c, x, (dtype)x->dt, size) && out_pool(c, x, DT_i64, size);
}
bool shape_max_pool2d(op_call *c) { return max_shape(c, 2); }
bool shape_max_pool3d(op_call *c) { return max_shape(c, 3); }

static bool avg_shape(op_call *c, int nd)
{
    tp_tensor *x = arg_t(c, 0);
    symint size[8];
    if (c->arg[6].kind != VAL_none && c->arg[6].i == 0)
        return err_set(c->err, ERR_runtime, "divisor must be not zero");
    return no_window(c, x, true, nd == 3 ? "avg_pool3d" : "avg_pool2d") &&
           pooled(c, x, nd, &c->arg[1], &c->arg[2], &c->arg[3], NULL, arg_b(c, 4, false), size) &&
           out_pool(c, x, (dtype)x->dt, size);
}
bool shape_avg_pool2d(op_call *c) { return avg_shape(c, 2); }
bool shape_avg_pool3d(op_call *c) { return avg_shape(c, 3); }

static bool adaptive_shape(op_call *c, int nd, bool max)
{
    tp_tensor *x = arg_t(c, 0);
    const tp_val *v = &c->arg[1];
    symint size[8];
    size_text t;
    char name[40];
    snprintf(name, sizeof name, "adaptive_%s_pool%dd", max ? "max" : "avg", nd);
    if (v->n != nd)
        return err_set(c->err, ERR_runtime, "%s: output_size must be %d", name, nd);
    if (x->ndim != nd + 1 && x->ndim != nd + 2)
        return err_set(c->err, ERR_runtime, "%s(): Expected %dD or %dD tensor, but got %s", name, nd + 1,
                       nd + 2, sizes_str(&t, x->ndim, x->size));
    memcpy(size, x->size, sizeof(symint) * x->ndim);
    for (int i = 0; i < nd; i++) {
        int d = x->ndim - nd + i;
        if (sym_lt(v->ints[i], 0))
            return err_set(
                c->err, ERR_runtime,
                "%s: elements of output_size must be greater than or equal to 0 but received {%lld, %lld}",
                name, (long long)v->ints[0], (long long)v->ints[nd - 1]);
        if (sym_eq(x->size[d], 0))
            return err_set(
                c->err, ERR_runtime,
                "%s(): Expected input to have non-zero size for non-batch dimensions, but input has sizes %s "
                "with dimension %d being empty",
                name, sizes_str(&t, x->ndim, x->size), d);
        size[d] = v->ints[i];
    }
    if (!no_window(c, x, false, name))
        return false;
    return out_pool(c, x, (dtype)x->dt, size) && (!max || out_pool(c, x, DT_i64, size));
}
bool shape_adaptive_avg2d(op_call *c) { return adaptive_shape(c, 2, false); }
bool shape_adaptive_avg3d(op_call *c) { return adaptive_shape(c, 3, false); }
bool shape_adaptive_max2d(op_call *c) { return adaptive_shape(c, 2, true); }
bool shape_adaptive_max3d(op_call *c) { return adaptive_shape(c, 3, true); }
bool shape_pool_backward(op_call *c) /* (grad_output, self, ...) */
{
    tp_tensor *dy = arg_t(c, 0), *x = arg_t(c, 1), *ix = NULL;
    int n = c->row->schema.nparam, nd = strstr(c->row->name, "3d") ? 3 : 2;
    if (c->row->schema.param[n - 1].type == PT_tensor && n > 2)
        ix = arg_t(c, n - 1);
    if (strstr(c->row->name, "adaptive")) { /* any output size will do */
        bool ok = (x->ndim == nd + 1 || x->ndim == nd + 2) && dy->ndim == x->ndim;
        for (int d = 0; d < x->ndim && ok; d++)
            ok = d < x->ndim - nd ? sym_eq(dy->size[d], x->size[d]) : !sym_eq(x->size[d], 0);
        if (!ok)
            return err_set(c->err, ERR_runtime, "%s: expected a gradient of the input's batch and channels",
                           c->row->name);
        if (!grad_is(c, dy, dy->ndim, dy->size))
            return false;
    } else if (!grad_fits(c, dy, &c->arg[1], n - 1 - (ix != NULL)))
        return false;
    if (ix && (ix->dt != DT_i64 || !tensor_same_size(ix, dy)))
        return err_set(c->err, ERR_runtime, "%s: expected int64 indices of the gradient's size",
                       c->row->name);
    return out_pool(c, x, (dtype)x->dt, x->size);
}

/* ---- loops ---- */
static win win_of(const tp_tensor *x, const tp_tensor *y, int nd)
{
    win w = { .in = { 1, 1, 1 }, .out = { 1, 1, 1 }, .k = { 1, 1, 1 }, .s = { 1, 1, 1 }, .d = { 1, 1, 1 } };
    w.planes = 1;
    for (int d = 0; d < x->ndim; d++) {
        int a = d - (x->ndim - nd);
        if (a < 0)
            w.planes *= x->size[d];
        else {
            w.in[3 - nd + a] = x->size[d];
            w.out[3 - nd + a] = y->size[d];
        }
    }
    return w;
}
static void win_args(win *w, int nd, const tp_val *k, const tp_val *s, const tp_val *p, const tp_val *d)
{
    for (int i = 0; i < nd; i++) {
        int a = 3 - nd + i;
        w->k[a] = val_at(k, i);
        w->s[a] = s->n ? val_at(s, i) : w->k[a];
        w->p[a] = val_at(p, i);
        w->d[a] = d ? val_at(d, i) : 1;
    }
}

typedef struct job {
    const win *w;
    dtype dt;
    void *x, *y; /* input side, output side */
    int64_t *ix;
} job;

#define MAX_PLANE(T, name)                                                        \
    static void name(const win *w, const T *x, T *y, int64_t *ix)                 \
    {                                                                             \
        int64_t lo[3], hi[3], f, o = 0;                                           \
        for (int64_t a = 0; a < w->out[0]; a++) {                                 \
            window(w, 0, a, &lo[0], &hi[0], &f);                                  \
            for (int64_t b = 0; b < w->out[1]; b++) {                             \
                window(w, 1, b, &lo[1], &hi[1], &f);                              \
                for (int64_t c = 0; c < w->out[2]; c++, o++) {                    \
                    window(w, 2, c, &lo[2], &hi[2], &f);                          \
                    int64_t best = (lo[0] * w->in[1] + lo[1]) * w->in[2] + lo[2]; \
                    T m = -(T)INFINITY;                                           \
                    for (int64_t i = lo[0]; i < hi[0]; i += w->d[0])              \
                        for (int64_t j = lo[1]; j < hi[1]; j += w->d[1])          \
                            for (int64_t k = lo[2]; k < hi[2]; k += w->d[2]) {    \
                                int64_t at = (i * w->in[1] + j) * w->in[2] + k;   \
                                if (x[at] > m || x[at] != x[at]) {                \
                                    m = x[at];                                    \
                                    best = at;                                    \
                                }                                                 \
                            }                                                     \
                    y[o] = m;                                                     \
                    ix[o] = best;                                                 \
                }                                                                 \
            }                                                                     \
        }                                                                         \
    }
MAX_PLANE(float, max_any_f32)
MAX_PLANE(double, max_f64)

/* One window of a plane, cut at the edges of the image. */
static void max_one(const win *w, const float *x, int64_t b, int64_t c, float *y, int64_t *ix)
{
    int64_t lo[2], hi[2], f;
    window(w, 1, b, &lo[0], &hi[0], &f);
    window(w, 2, c, &lo[1], &hi[1], &f);
    int64_t best = lo[0] * w->in[2] + lo[1];
    float m = -INFINITY;
    for (int64_t j = lo[0]; j < hi[0]; j += w->d[1])
        for (int64_t k = lo[1]; k < hi[1]; k += w->d[2]) {
            float v = x[j * w->in[2] + k];
            if (v > m || v != v) {
                m = v;
                best = j * w->in[2] + k;
            }
        }
    *y = m;
    *ix = best;
}

/* Row by row: with vectors where windows lie inside the image's columns, one by one over its edges. */
static void max_f32(const win *w, const float *x, float *y, int64_t *ix)
{
    if (w->adaptive || w->k[0] != 1 || w->in[0] != 1 || w->out[0] != 1 ||
        w->in[1] * w->in[2] >= INT32_MAX / 2 || w->s[2] >= 1 << 20) {
        max_any_f32(w, x, y, ix);
        return;
    }
    int64_t n = w->out[2],
            reach = w->in[2] + w->p[2] - (w->k[2] - 1) * w->d[2]; /* starts below it end inside */
    int64_t from = MIN(n, (w->p[2] + w->s[2] - 1) / w->s[2]),
            to = reach > 0 ? MIN(n, (reach + w->s[2] - 1) / w->s[2]) : 0;
    to = MAX(from, to);
    for (int64_t b = 0; b < w->out[1]; b++, y += n, ix += n) {
        int64_t lo, hi, f;
        window(w, 1, b, &lo, &hi, &f);
        for (int64_t c = 0; c < from; c++)
            max_one(w, x, b, c, y + c, ix + c);
        int64_t at = lo * w->in[2] + from * w->s[2] - w->p[2];
        if (to > from)
            ISA_PICK(rs_max_row)
        (to - from, hi > lo ? (hi - lo + w->d[1] - 1) / w->d[1] : 0, w->k[2], x + at, at, w->d[1] * w->in[2],
         w->d[2], w->s[2], y + from, ix + from);
        for (int64_t c = to; c < n; c++)
            max_one(w, x, b, c, y + c, ix + c);
    }
}

/* back: spreads the gradient y over x instead of averaging x into y */
#define AVG_PLANE(T, name)                                                                        \
    static void name(const win *w, T *x, T *y, bool back)                                         \
    {                                                                                             \
        int64_t lo[3], hi[3], f[3], o = 0;                                                        \
        for (int64_t a = 0; a < w->out[0]; a++) {                                                 \
            window(w, 0, a, &lo[0], &hi[0], &f[0]);                                               \
            for (int64_t b = 0; b < w->out[1]; b++) {                                             \
                window(w, 1, b, &lo[1], &hi[1], &f[1]);                                           \
                for (int64_t c = 0; c < w->out[2]; c++, o++) {                                    \
                    window(w, 2, c, &lo[2], &hi[2], &f[2]);                                       \
                    int64_t n = (hi[0] - lo[0]) * (hi[1] - lo[1]) * (hi[2] - lo[2]);              \
                    if (hi[0] <= lo[0] || hi[1] <= lo[1] || hi[2] <= lo[2]) {                     \
                        if (!back)                                                                \
                            y[o] = 0;                                                             \
                        continue;                                                                 \
                    }                                                                             \
                    T div = (T)(w->divisor ? w->divisor : w->count_pad ? f[0] * f[1] * f[2] : n); \
                    T sum = 0, part = back ? y[o] / div : 0;                                      \
                    for (int64_t i = lo[0]; i < hi[0]; i++)                                       \
                        for (int64_t j = lo[1]; j < hi[1]; j++) {                                 \
                            T *r = x + (i * w->in[1] + j) * w->in[2];                             \
                            if (back)                                                             \
                                for (int64_t k = lo[2]; k < hi[2]; k++)                           \
                                    r[k] += part;                                                 \
                            else                                                                  \
                                for (int64_t k = lo[2]; k < hi[2]; k++)                           \
                                    sum += r[k];                                                  \
                        }                                                                         \
                    if (!back)                                                                    \
                        y[o] = sum / div;                                                         \
                }                                                                                 \
            }                                                                                     \
        }                                                                                         \
    }
AVG_PLANE(float, avg_f32)
AVG_PLANE(double, avg_f64)

static void max_planes(void *arg, int64_t b, int64_t e)
{
    job *j = arg;
    int64_t X = volume(j->w->in), Y = volume(j->w->out);
    for (int64_t p = b; p < e; p++)
        if (j->dt == DT_f32)
            max_f32(j->w, (float *)j->x + p * X, (float *)j->y + p * Y, j->ix + p * Y);
        else
            max_f64(j->w, (double *)j->x + p * X, (double *)j->y + p * Y, j->ix + p * Y);
}
static void avg_run(job *j, int64_t b, int64_t e, bool back)
{
    int64_t X = volume(j->w->in), Y = volume(j->w->out);
    for (int64_t p = b; p < e; p++)
        if (j->dt == DT_f32)
            avg_f32(j->w, (float *)j->x + p * X, (float *)j->y + p * Y, back);
        else
            avg_f64(j->w, (double *)j->x + p * X, (double *)j->y + p * Y, back);
}
static void avg_planes(void *arg, int64_t b, int64_t e) { avg_run(arg, b, e, false); }
static void avg_back_planes(void *arg, int64_t b, int64_t e) { avg_run(arg, b, e, true); }
static void max_back_planes(void *arg, int64_t b, int64_t e)
{
    job *j = arg;
    int64_t X = volume(j->w->in), Y = volume(j->w->out);
    for (int64_t p = b; p < e; p++)
        for (int64_t o = 0; o < Y; o++) {
            int64_t at = j->ix[p * Y + o];
            if (at < 0 || at >= X)
                continue;
            if (j->dt == DT_f32)
                ((float *)j->x)[p * X + at] += ((float *)j->y)[p * Y + o];
            else
                ((double *)j->x)[p * X + at] += ((double *)j->y)[p * Y + o];
        }
}

static dtype pool_type(dtype dt) { return dtype_is_float(dt) && dt != DT_f64 ? DT_f32 : DT_f64; }
static int64_t grain(const win *w)
{
    return MAX(1, 16384 / MAX(1, volume(w->out) * (w->adaptive ? 4 : volume(w->k))));
}

static bool run_max(op_call *c, win *w, tp_tensor *x)
{
    scratch s = { .err = c->err };
    dtype t = pool_type((dtype)x->dt);
    tp_tensor *xi = scratch_in(&s, x, t), *y = scratch_out(&s, c->res[0], t),
              *ix = scratch_out(&s, c->res[1], DT_i64);
    if (!xi || !y || !ix)
        return scratch_end(&s, false);
    job j = { w, t, tensor_host(xi), tensor_host(y), tensor_host(ix) };
    pool_for(w->planes, grain(w), max_planes, &j);
    return scratch_end(&s, true);
}
static bool run_avg(op_call *c, win *w, tp_tensor *x)
{
    scratch s = { .err = c->err };
    dtype t = pool_type((dtype)x->dt);
    tp_tensor *xi = scratch_in(&s, x, t), *y = scratch_out(&s, c->res[0], t);
    if (!xi || !y)
        return scratch_end(&s, false);
    job j = { w, t, tensor_host(xi), tensor_host(y), NULL };
    pool_for(w->planes, grain(w), avg_planes, &j);
    return scratch_end(&s, true);
}
/* (grad_output, self, ...): dx from dy */
static bool run_back(op_call *c, win *w, tp_tensor *index)
{
    scratch s = { .err = c->err };
    dtype t = pool_type((dtype)c->res[0]->dt);
    tp_tensor *dy = scratch_in(&s, arg_t(c, 0), t), *dx = scratch_out(&s, c->res[0], t);
    tp_tensor *ix = scratch_in(&s, index, DT_i64);
    if (!dy || !dx || s.failed)
        return scratch_end(&s, false);
    if (dx->numel)
        memset(tensor_host(dx), 0, (size_t)dx->numel * dtype_size(t));
    job j = { w, t, tensor_host(dx), tensor_host(dy), ix ? tensor_host(ix) : NULL };
    pool_for(w->planes, grain(w), ix ? max_back_planes : avg_back_planes, &j);
    return scratch_end(&s, true);
}

static bool max_nd(op_call *c, int nd)
{
    win w = win_of(arg_t(c, 0), c->res[0], nd);
    win_args(&w, nd, &c->arg[1], &c->arg[2], &c->arg[3], &c->arg[4]);
    return run_max(c, &w, arg_t(c, 0));
}
bool eager_max_pool2d(op_call *c) { return max_nd(c, 2); }
bool eager_max_pool3d(op_call *c) { return max_nd(c, 3); }
/* Offsets: which element of its window was the largest, in one byte. */
static void index_to_offset(const win *w, const int64_t *ix, int8_t *of)
{
    int64_t row = w->d[1] * w->in[2], k = w->k[2];
    /* a row of the window is less than one of the image, and floats divide exactly enough */
    bool quick = (k - 1) * w->d[2] < w->in[2] && w->d[2] == 1 && row * w->k[1] < 1 << 22;
    float inv = 1 / (float)row;
    for (int64_t a = 0; a < w->out[1]; a++) {
        int64_t i0 = a * w->s[1] - w->p[1], at = i0 * w->in[2] - w->p[2];
        for (int64_t b = 0; b < w->out[2]; b++, ix++, of++)
            if (quick) {
                int32_t t = (int32_t)(*ix - at - b * w->s[2]), i = (int32_t)(((float)t + 0.5f) * inv);
                *of = (int8_t)(i * (int32_t)k + t - i * (int32_t)row);
            } else {
                int64_t i = (*ix / w->in[2] - i0) / w->d[1],
                        j = (*ix % w->in[2] - (b * w->s[2] - w->p[2])) / w->d[2];
                *of = (int8_t)(i * k + j);
            }
    }
}
static void max_offset_planes(void *arg, int64_t b, int64_t e)
{
    job *j = arg;
    int64_t X = volume(j->w->in), Y = volume(j->w->out), *ix = mem_alloc(sizeof *ix * (size_t)MAX(Y, 1));
    for (int64_t p = b; p < e; p++) {
        if (j->dt == DT_f32)
            max_f32(j->w, (float *)j->x + p * X, (float *)j->y + p * Y, ix);
        else
            max_f64(j->w, (double *)j->x + p * X, (double *)j->y + p * Y, ix);
        index_to_offset(j->w, ix, (int8_t *)j->ix + p * Y);
    }
    free(ix);
}
static void max_offset_back_planes(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    const win *w = j->w;
    int64_t X = volume(w->in), Y = volume(w->out), di[128], dk[128];
    for (int64_t of = 0; of < 128; of++) {
        di[of] = of / w->k[2] * w->d[1] - w->p[1];
        dk[of] = of % w->k[2] * w->d[2] - w->p[2];
    }
    for (int64_t p = lo; p < hi; p++) {
        const int8_t *of = (int8_t *)j->ix + p * Y;
        for (int64_t a = 0, o = p * Y; a < w->out[1]; a++)
            for (int64_t b = 0; b < w->out[2]; b++, o++, of++) {
                int64_t i = a * w->s[1] + di[*of & 127], k = b * w->s[2] + dk[*of & 127];
                if (*of < 0 || i < 0 || k < 0 || i >= w->in[1] || k >= w->in[2])
                    continue;
                if (j->dt == DT_f32)
                    ((float *)j->x)[p * X + i * w->in[2] + k] += ((float *)j->y)[o];
                else
                    ((double *)j->x)[p * X + i * w->in[2] + k] += ((double *)j->y)[o];
            }
    }
}
bool shape_max_pool2d_offsets(op_call *c)
{
    tp_tensor *x = arg_t(c, 0);
    symint size[8];
    if (!no_window(c, x, true, "max_pool2d") ||
        !pooled(c, x, 2, &c->arg[1], &c->arg[2], &c->arg[3], &c->arg[4], arg_b(c, 5, false), size))
        return false;
    if (sym_gt(sym_mul(val_at(&c->arg[1], 0), val_at(&c->arg[1], 1)), 127))
        return err_set(c->err, ERR_runtime, "_max_pool2d_with_offsets: a window has at most 127 elements");
    return out_pool(c, x, (dtype)x->dt, size) && out_pool(c, x, DT_i8, size);
}
bool eager_max_pool2d_offsets(op_call *c)
{
    tp_tensor *x = arg_t(c, 0);
    win w = win_of(x, c->res[0], 2);
    scratch s = { .err = c->err };
    dtype t = pool_type((dtype)x->dt);
    win_args(&w, 2, &c->arg[1], &c->arg[2], &c->arg[3], &c->arg[4]);
    tp_tensor *xi = scratch_in(&s, x, t), *y = scratch_out(&s, c->res[0], t),
              *of = scratch_out(&s, c->res[1], DT_i8);
    if (!xi || !y || !of)
        return scratch_end(&s, false);
    job j = { &w, t, tensor_host(xi), tensor_host(y), tensor_host(of) };
    pool_for(w.planes, grain(&w), max_offset_planes, &j);
    return scratch_end(&s, true);
}
/* (grad_output, offsets, input_size, kernel_size, stride, padding, dilation) */
bool shape_max_pool2d_offsets_backward(op_call *c)
{
    tp_tensor *dy = arg_t(c, 0), *of = arg_t(c, 1);
    const tp_val *in = &c->arg[2];
    bool ok = dtype_is_float((dtype)dy->dt) && of->dt == DT_i8 && tensor_same_size(of, dy) &&
              in->n == dy->ndim && (in->n == 3 || in->n == 4);
    for (int d = 0; ok && d < in->n; d++)
        ok = sym_ge(in->ints[d], d < in->n - 2 ? 0 : 1) &&
             (d >= in->n - 2 || sym_eq(in->ints[d], dy->size[d]));
    for (int i = 0; ok && i < 2; i++)
        ok = sym_gt(val_at(&c->arg[3], i), 0) && sym_gt(val_at(&c->arg[6], i), 0);
    if (!ok)
        return err_set(
            c->err, ERR_runtime,
            "_max_pool2d_offsets_backward: expected int8 offsets of the gradient's size, the input's "
            "size and positive windows");
    op_out *o = out_new(c, (dtype)dy->dt, in->n, in->ints);
    return o && shape_memfmt_strides(tensor_suggest_memfmt(dy), in->n, in->ints, o->stride, c->err);
}
bool eager_max_pool2d_offsets_backward(op_call *c)
{
    win w = win_of(c->res[0], arg_t(c, 0), 2);
    scratch s = { .err = c->err };
    dtype t = pool_type((dtype)c->res[0]->dt);
    win_args(&w, 2, &c->arg[3], &c->arg[4], &c->arg[5], &c->arg[6]);
    tp_tensor *dy = scratch_in(&s, arg_t(c, 0), t), *of = scratch_in(&s, arg_t(c, 1), DT_i8),
              *dx = scratch_out(&s, c->res[0], t);
    if (!dy || !of || !dx)
        return scratch_end(&s, false);
    if (dx->numel)
        memset(tensor_host(dx), 0, (size_t)dx->numel * dtype_size(t));
    job j = { &w, t, tensor_host(dx), tensor_host(dy), tensor_host(of) };
    pool_for(w.planes, grain(&w), max_offset_back_planes, &j);
    return scratch_end(&s, true);
}
static bool avg_nd(op_call *c, int nd)
{
    win w = win_of(arg_t(c, 0), c->res[0], nd);
    win_args(&w, nd, &c->arg[1], &c->arg[2], &c->arg[3], NULL);
    w.count_pad = arg_b(c, 5, true);
    w.divisor = arg_i(c, 6, 0);
    return run_avg(c, &w, arg_t(c, 0));
}
bool eager_avg_pool2d(op_call *c) { return avg_nd(c, 2); }
bool eager_avg_pool3d(op_call *c) { return avg_nd(c, 3); }

static bool max_back_nd(op_call *c, int nd)
{
    win w = win_of(arg_t(c, 1), arg_t(c, 0), nd);
    return run_back(c, &w, arg_t(c, 7));
}
bool eager_max_pool2d_backward(op_call *c) { return max_back_nd(c, 2); }
bool eager_max_pool3d_backward(op_call *c) { return max_back_nd(c, 3); }
static bool avg_back_nd(op_call *c, int nd)
{
    win w = win_of(arg_t(c, 1), arg_t(c, 0), nd);
    win_args(&w, nd, &c->arg[2], &c->arg[3], &c->arg[4], NULL);
    w.count_pad = arg_b(c, 6, true);
    w.divisor = arg_i(c, 7, 0);
    return run_back(c, &w, NULL);
}
bool eager_avg_pool2d_backward(op_call *c) { return avg_back_nd(c, 2); }
bool eager_avg_pool3d_backward(op_call *c) { return avg_back_nd(c, 3); }

static bool adaptive(op_call *c, int nd, bool max)
{
    win w = win_of(arg_t(c, 0), c->res[0], nd);
    w.adaptive = true;
    return max ? run_max(c, &w, arg_t(c, 0)) : run_avg(c, &w, arg_t(c, 0));
}
bool eager_adaptive_avg2d(op_call *c) { return adaptive(c, 2, false); }
bool eager_adaptive_avg3d(op_call *c) { return adaptive(c, 3, false); }
bool eager_adaptive_max2d(op_call *c) { return adaptive(c, 2, true); }
bool eager_adaptive_max3d(op_call *c) { return adaptive(c, 3, true); }
static bool adaptive_back(op_call *c, int nd, tp_tensor *index)
{
    win w = win_of(arg_t(c, 1), arg_t(c, 0), nd);
    w.adaptive = true;
    return run_back(c, &w, index);
}
bool eager_adaptive_avg2d_backward(op_call *c) { return adaptive_back(c, 2, NULL); }
bool eager_adaptive_avg3d_backward(op_call *c) { return adaptive_back(c, 3, NULL); }
bool eager_adaptive_max2d_backward(op_call *c) { return adaptive_back(c, 2, arg_t(c, 2)); }
bool eager_adaptive_max3d_backward(op_call *c) { return adaptive_back(c, 3, arg_t(c, 2)); }

/* ---- composites: one dimension as two, values without indices ---- */
static bool line_ok(bld *b, const tp_tensor *x, const char *who)
{
    size_text t;
    return x->ndim == 2 || x->ndim == 3 ||
           err_set(b->err, ERR_runtime,
                   "%s: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but "
                   "got:%s",
                   who, sizes_str(&t, x->ndim, x->size));
}
static tp_val as_row(const tp_val *v, symint *buf, symint lead) /* k -> (lead, k) */
{
    if (v->n == 0)
        return *v;
    buf[0] = lead;
    buf[1] = v->ints[0];
    return vIs(buf, 2);
}
static bool max_1d(bld *b, const tp_val *arg, tp_tensor **r)
{
    tp_tensor *x = val_t(&arg[0]);
    symint k[2], s[2], p[2], d[2];
    if (!line_ok(b, x, "max_pool1d"))
        return false;
    x = b_op(b, unsqueeze, vT(x), vI(-2));
    return b_opn(b, max_pool2d_with_indices, r, 2, vT(x), as_row(&arg[1], k, 1), as_row(&arg[2], s, 1),
                 as_row(&arg[3], p, 0), as_row(&arg[4], d, 1), arg[5]);
}
bool decomp_max_pool1d(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    return max_1d(b, arg, r) && comp_ret(b, b_op(b, squeeze_dim, vT(r[0]), vI(-2)), out);
}
bool decomp_max_pool1d_with_indices(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    if (!max_1d(b, arg, r))
        return false;
    r[0] = b_op(b, squeeze_dim, vT(r[0]), vI(-2));
    r[1] = b_op(b, squeeze_dim, vT(r[1]), vI(-2));
    return comp_ret_n(b, r, 2, out);
}
/* Windows that lie side by side and fill the image: every element of a window takes the gradient or zero. */
bool decomp_max_pool2d_offsets_backward(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *dy = arg[0].t, *of = arg[1].t;
    int nd = dy->ndim;
    symint k[2], one[TP_MAX_DIMS], at[TP_MAX_DIMS];
    bool exact = true;
    if (!device_ops_of(tensor_device(dy))->host && tensor_device(dy).kind != DEV_meta)
        return offsets_on_device(b, arg, out);
    for (int i = 0; i < 2; i++) {
        k[i] = val_at(&arg[3], i);
        symint s = arg[4].n ? val_at(&arg[4], i) : k[i];
        exact = exact && s == k[i] && val_at(&arg[5], i) == 0 && val_at(&arg[6], i) == 1 &&
                sym_known(SYM_eq, arg[2].ints[nd - 2 + i], sym_mul(dy->size[nd - 2 + i], k[i]));
    }
    if (!exact)
        return err_set(b->err, ERR_notimpl, "windows overlap or leave something over");
    if (sym_is_expr(k[1]) || k[1] < 16)
        return err_set(b->err, ERR_notimpl,
                       "rows of a window are shorter than a vector: loops would be slower");
    for (int d = 0; d < nd + 2; d++) { /* [..., rows, k, columns, k] */
        int i = d - (nd - 2);
        one[d] = i < 0 ? dy->size[d] : i & 1 ? 1 : dy->size[nd - 2 + i / 2];
        at[d] = i >= 0 && (i & 1) ? k[i / 2] : 1;
    }
    tp_tensor *place = b_op(b, arange, vI(k[0] * k[1]), vDT(DT_i8), vNone, vDev(tensor_device(dy)));
    place = b_op(b, reshape, vT(place), vIs(at, nd + 2));
    tp_tensor *here = b_op(b, eq_Tensor, vT(b_op(b, reshape, vT(of), vIs(one, nd + 2))), vT(place));
    tp_tensor *r = b_op(b, where_self, vT(here), vT(b_op(b, reshape, vT(dy), vIs(one, nd + 2))), vI(0));
    r = b_op(b, reshape, vT(r), arg[2]);
    return comp_ret(b, r && r->dt != dy->dt ? b_op(b, to_dtype, vT(r), vDT(dy->dt)) : r, out);
}
bool decomp_max_pool2d(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    return b_callvn(b, OP_max_pool2d_with_indices, OPV_fn, arg, 6, r, 2) && comp_ret(b, r[0], out);
}
bool decomp_max_pool3d(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    return b_callvn(b, OP_max_pool3d_with_indices, OPV_fn, arg, 6, r, 2) && comp_ret(b, r[0], out);
}
bool decomp_avg_pool1d(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]);
    symint k[2], s[2], p[2];
    if (x->ndim != 2 && x->ndim != 3)
        return err_set(b->err, ERR_runtime,
                       "Expected 2 to 3 dimensions, but got %d-dimensional tensor for argument #1 'self' "
                       "(while checking "
                       "arguments for avg_pool1d)",
                       x->ndim);
    x = b_op(b, unsqueeze, vT(x), vI(-2));
    x = b_op(b, avg_pool2d, vT(x), as_row(&arg[1], k, 1), as_row(&arg[2], s, 1), as_row(&arg[3], p, 0),
             arg[4], arg[5]);
    return comp_ret(b, b_op(b, squeeze_dim, vT(x), vI(-2)), out);
}
bool decomp_adaptive_avg_pool1d(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]);
    symint o[2];
    if (x->ndim != 2 && x->ndim != 3)
        return err_set(b->err, ERR_runtime,
                       "Expected 2 to 3 dimensions, but got %d-dimensional tensor for argument #1 'self' "
                       "(while checking "
                       "arguments for adaptive_avg_pool1d)",
                       x->ndim);
    x = b_op(b, unsqueeze, vT(x), vI(-2));
    x = b_op(b, _adaptive_avg_pool2d, vT(x), as_row(&arg[1], o, 1));
    return comp_ret(b, b_op(b, squeeze_dim, vT(x), vI(-2)), out);
}
bool decomp_adaptive_max_pool1d(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]), *r[2];
    symint o[2];
    if (x->ndim != 2 && x->ndim != 3)
        return err_set(b->err, ERR_runtime,
                       "Expected 2 to 3 dimensions, but got %d-dimensional tensor for argument #1 'self' "
                       "(while checking "
                       "arguments for adaptive_max_pool1d)",
                       x->ndim);
    x = b_op(b, unsqueeze, vT(x), vI(-2));
    if (!b_opn(b, adaptive_max_pool2d, r, 2, vT(x), as_row(&arg[1], o, 1)))
        return false;
    r[0] = b_op(b, squeeze_dim, vT(r[0]), vI(-2));
    r[1] = b_op(b, squeeze_dim, vT(r[1]), vI(-2));
    return comp_ret_n(b, r, 2, out);
}
static bool adaptive_avg(bld *b, const tp_val *arg, tp_val *out, int nd, op_id row)
{
    const tp_val *v = &arg[1];
    bool ones = v->n == nd && (val_t(&arg[0])->ndim == nd + 1 || val_t(&arg[0])->ndim == nd + 2);
    symint dims[3] = { -1, -2, -3 };
    for (int i = 0; i < v->n && ones; i++)
        ones = sym_eq(v->ints[i], 1);
    if (ones && dtype_is_float((dtype)val_t(&arg[0])->dt))
        return comp_ret(b, b_op(b, mean_dim, arg[0], vIs(dims, nd), vB(true)), out);
    return comp_ret(b, b_callv(b, row, OPV_fn, arg, 2), out);
}
bool decomp_adaptive_avg_pool2d(bld *b, const tp_val *arg, tp_val *out)
{
    return adaptive_avg(b, arg, out, 2, OP__adaptive_avg_pool2d);
}
bool decomp_adaptive_avg_pool3d(bld *b, const tp_val *arg, tp_val *out)
{
    return adaptive_avg(b, arg, out, 3, OP__adaptive_avg_pool3d);
}
