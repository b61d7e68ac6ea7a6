/* fft.c - Fourier transforms: plans of lines, and the rows over them. Lines are shared out to threads. */
#include "ops/fft.h"
#include "base/pool.h"
#include "ops/complex.h"
#include "ops/decomp.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

enum { MAX_FACTOR = 31, PLANS = 16 }; /* larger primes: a chirp */
struct fft_plan {
    atomic_int refs;
    int64_t n;
    bool wide;
    int nfactor;
    int64_t factor[64];
    void *roots, *chirp;
    fft_plan *inner; /* of the convolution with the chirp; NULL: none */
};

#define T    float
#define N(n) f32_##n
#include "ops/fft_loops.h"
#define T    double
#define N(n) f64_##n
#include "ops/fft_loops.h"

/* ---- plans ---- */
static fft_plan *plan_new(int64_t n, bool wide)
{
    fft_plan *p = mem_zalloc(sizeof *p);
    static const int64_t first[] = { 4, 2, 3, 5 };
    int64_t rest = n;
    p->refs = 1;
    p->n = n;
    p->wide = wide;
    for (size_t i = 0; i < COUNT(first); i++)
        for (; rest % first[i] == 0 && rest > 1; rest /= first[i])
            p->factor[p->nfactor++] = first[i];
    for (int64_t f = 7; f <= MAX_FACTOR; f += 2)
        for (; rest % f == 0; rest /= f)
            p->factor[p->nfactor++] = f;
    if (rest > 1) {
        int64_t big = 1;
        while (big < 2 * n - 1)
            big *= 2;
        p->inner = plan_new(big, wide);
    }
    if (wide)
        f64_tables(p);
    else
        f32_tables(p);
    return p;
}

void fft_plan_unref(fft_plan *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) != 1)
        return;
    fft_plan_unref(p->inner);
    free(p->roots);
    free(p->chirp);
    free(p);
}

/* The last lengths are kept, the most recent first. */
fft_plan *fft_plan_get(int64_t n, bool wide)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static fft_plan *kept[PLANS];
    pthread_mutex_lock(&lock);
    int at = 0;
    while (at < PLANS - 1 && kept[at] && (kept[at]->n != n || kept[at]->wide != wide))
        at++;
    fft_plan *p = kept[at];
    if (!p || p->n != n || p->wide != wide) {
        fft_plan_unref(p);
        p = plan_new(n, wide);
    }
    memmove(kept + 1, kept, sizeof *kept * (size_t)at);
    kept[0] = p;
    atomic_fetch_add(&p->refs, 1);
    pthread_mutex_unlock(&lock);
    return p;
}

int64_t fft_plan_room(const fft_plan *p) { return p->inner ? 2 * p->inner->n : p->n; }

void fft_run(const fft_plan *p, void *x, void *room, bool forward)
{
    if (p->wide)
        f64_run(p, x, room, forward ? 1 : -1);
    else
        f32_run(p, x, room, forward ? 1.0f : -1.0f);
}

/* ---- all lines along one dimension ---- */
typedef struct lines {
    const fft_plan *plan;
    char *data;        /* a contiguous complex tensor */
    int64_t es, n, in; /* bytes of a number, length, and numbers between two of a line */
    bool forward;
    double scale;
} lines;

static void scale_line(void *x, int64_t n, bool wide, double by)
{
    if (by == 1)
        return;
    for (int64_t i = 0; i < 2 * n; i++)
        if (wide)
            ((double *)x)[i] *= by;
        else
            ((float *)x)[i] *= (float)by;
}

static void run_lines(void *arg, int64_t b, int64_t e)
{
    const lines *l = arg;
    int64_t room = fft_plan_room(l->plan);
    char *buf = mem_alloc((size_t)((room + l->n) * l->es)), *work = buf + l->n * l->es;
    for (; b < e; b++) {
        char *at = l->data + (b / l->in * l->n * l->in + b % l->in) * l->es, *x = at;
        if (l->in > 1) {
            x = buf;
            for (int64_t i = 0; i < l->n; i++)
                memcpy(buf + i * l->es, at + i * l->in * l->es, (size_t)l->es);
        }
        fft_run(l->plan, x, work, l->forward);
        scale_line(x, l->n, l->plan->wide, l->scale);
        for (int64_t i = 0; l->in > 1 && i < l->n; i++)
            memcpy(at + i * l->in * l->es, buf + i * l->es, (size_t)l->es);
    }
    free(buf);
}

/* In place; t is contiguous. */
static void transform(tp_tensor *t, int dim, bool forward, double scale)
{
    lines l = { .data = tensor_host(t), .es = (int64_t)dtype_size((dtype)t->dt), .n = t->size[dim], .in = 1 };
    if (!t->numel)
        return;
    for (int d = dim + 1; d < t->ndim; d++)
        l.in *= t->size[d];
    fft_plan *p = fft_plan_get(l.n, t->dt == DT_c128);
    l.plan = p;
    l.forward = forward;
    l.scale = scale;
    pool_for(t->numel / l.n, MAX(1, 4096 / l.n), run_lines, &l);
    fft_plan_unref(p);
}

/* ---- shape rules ---- */
static bool dims_of(op_call *c, int *dim, int *n)
{
    const tp_val *v = &c->arg[1];
    tp_tensor *t = arg_t(c, 0);
    uint32_t seen = 0;
    *n = v->n;
    if (v->n && !t->ndim)
        return err_set(c->err, ERR_index, "Dimension specified as %lld but tensor has no dimensions",
                       (long long)v->ints[0]);
    if (v->n > t->ndim)
        return err_set(c->err, ERR_runtime, "FFT dims must be unique");
    for (int i = 0; i < v->n; i++) {
        if (!dim_wrap(v->ints[i], t->ndim, &dim[i], c->err))
            return false;
        if (seen >> dim[i] & 1)
            return err_set(c->err, ERR_runtime, "FFT dims must be unique");
        seen |= 1u << dim[i];
        if (sym_lt(t->size[dim[i]], 1))
            return err_set(c->err, ERR_runtime, "Invalid number of data points (0) specified");
    }
    return v->n > 0 || err_set(c->err, ERR_runtime, "FFT requires at least one dimension");
}

bool shape_fft_c2c(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int dim[TP_MAX_DIMS], n;
    if (!dtype_is_complex((dtype)t->dt))
        return err_set(c->err, ERR_runtime, "_fft_c2c: expected a complex tensor, got %s",
                       dtype_name((dtype)t->dt));
    return dims_of(c, dim, &n) && out_new(c, (dtype)t->dt, t->ndim, t->size) != NULL;
}
bool shape_fft_r2c(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int dim[TP_MAX_DIMS], n;
    if (t->dt != DT_f32 && t->dt != DT_f64)
        return err_set(c->err, ERR_runtime, "Unsupported dtype %s", dtype_rows[t->dt].gname);
    if (!dims_of(c, dim, &n))
        return false;
    op_out *o = out_new(c, dtype_complex_of((dtype)t->dt), t->ndim, t->size);
    if (c->arg[3].b) {
        o->size[dim[n - 1]] = sym_add(sym_floordiv(t->size[dim[n - 1]], 2), 1);
        shape_contiguous_strides(o->ndim, o->size, o->stride);
    }
    return true;
}
bool shape_fft_c2r(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    int dim[TP_MAX_DIMS], n;
    if (!dtype_is_complex((dtype)t->dt))
        return err_set(c->err, ERR_runtime, "_fft_c2r: expected a complex tensor, got %s",
                       dtype_name((dtype)t->dt));
    if (!dims_of(c, dim, &n))
        return false;
    if (sym_lt(c->arg[3].i, 1))
        return err_set(c->err, ERR_runtime, "Invalid number of data points (%lld) specified",
                       (long long)c->arg[3].i);
    op_out *o = out_new(c, dtype_real_of((dtype)t->dt), t->ndim, t->size);
    o->size[dim[n - 1]] = c->arg[3].i;
    shape_contiguous_strides(o->ndim, o->size, o->stride);
    return true;
}

/* ---- kernels ---- */
static double scale_of(int64_t normalization, double n)
{
    return normalization == 1 ? 1 / sqrt(n) : normalization == 2 ? 1 / n : 1;
}
static void all_dims(tp_tensor *t, const int *dim, int n, bool forward, double scale)
{
    for (int i = n - 1; i >= 0; i--)
        transform(t, dim[i], forward, i ? 1 : scale);
}
/* Contiguous, of this type, and its own memory. */
static tp_tensor *copy_of(tp_tensor *t, dtype dt, tp_err *err)
{
    tp_tensor *r = tensor_new(dt, t->ndim, t->size, err);
    if (r && !tensor_copy(r, t, err)) {
        tensor_unref(r);
        r = NULL;
    }
    return r;
}

bool eager_fft_c2c(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *w = copy_of(t, (dtype)t->dt, c->err);
    int dim[TP_MAX_DIMS], n;
    double count = 1;
    bool ok = w && dims_of(c, dim, &n);
    for (int i = 0; ok && i < n; i++)
        count *= (double)t->size[dim[i]];
    if (ok)
        all_dims(w, dim, n, c->arg[3].b, scale_of(c->arg[2].i, count));
    ok = ok && tensor_copy(c->res[0], w, c->err);
    tensor_unref(w);
    return ok;
}

/* The last dimension first: half of its result is the conjugate of the other half, and need not be transformed further. */
bool eager_fft_r2c(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *w = copy_of(t, dtype_complex_of((dtype)t->dt), c->err), *half = NULL;
    int dim[TP_MAX_DIMS], n;
    double count = 1;
    bool ok = w && dims_of(c, dim, &n);
    for (int i = 0; ok && i < n; i++)
        count *= (double)t->size[dim[i]];
    if (ok) {
        int last = dim[n - 1];
        transform(w, last, true, scale_of(c->arg[2].i, count));
        tp_tensor *v = view_slice(w, last, 0, c->out[0].size[last], 1);
        half = copy_of(v, (dtype)w->dt, c->err);
        tensor_unref(v);
        ok = half != NULL;
    }
    if (ok && n > 1)
        all_dims(half, dim, n - 1, true, 1);
    ok = ok && tensor_copy(c->res[0], half, c->err);
    tensor_unref(w);
    tensor_unref(half);
    return ok;
}

/* The missing half of each line is the conjugate of what is there; what was given of it otherwise is not looked at. */
static void mirror(tp_tensor *full, const tp_tensor *half, int dim)
{
    int64_t in = 1, n = full->size[dim], h = half->size[dim];
    dtype dt = (dtype)full->dt;
    int64_t es = (int64_t)dtype_size(dt);
    for (int d = dim + 1; d < full->ndim; d++)
        in *= full->size[d];
    char *o = tensor_host(full);
    const char *s = tensor_host(half);
    for (int64_t k = 0; k < full->numel / n; k++) {
        int64_t outer = k / in, q = k % in;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = i <= n / 2 ? i : n - i;
            double v[2] = { 0, 0 };
            if (at < h)
                elem_get_c(dt, s + (outer * h * in + at * in + q) * es, v);
            if (i > n / 2)
                v[1] = -v[1];
            if (i == 0 || 2 * i == n)
                v[1] = 0;
            elem_set_c(dt, o + (outer * n * in + i * in + q) * es, v);
        }
    }
}

bool eager_fft_c2r(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *w = copy_of(t, (dtype)t->dt, c->err), *full = NULL, *re = NULL;
    int dim[TP_MAX_DIMS], n;
    bool ok = w && dims_of(c, dim, &n);
    if (ok) {
        int last = dim[n - 1];
        double count = (double)c->arg[3].i;
        for (int i = 0; i < n - 1; i++)
            count *= (double)t->size[dim[i]];
        if (n > 1)
            all_dims(w, dim, n - 1, false, 1);
        full = tensor_new((dtype)t->dt, t->ndim, c->out[0].size, c->err);
        ok = full != NULL;
        if (ok && full->numel) {
            mirror(full, w, last);
            transform(full, last, false, scale_of(c->arg[2].i, count));
        }
    }
    re = ok ? complex_part(full, 0) : NULL;
    ok = ok && tensor_copy(c->res[0], re, c->err);
    tensor_unref(re);
    tensor_unref(w);
    tensor_unref(full);
    return ok;
}
