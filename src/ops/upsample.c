/* upsample.c - interpolation: nearest through axis maps, linear and cubic one axis after the other. */
#include "ops/decomp.h"
#include "ops/axmap.h"
#include "base/pool.h"
#include <math.h>

/* ---- shapes: (self, output_size, [align_corners,] scales...) ---- */
static bool up_shape(op_call *c, int nd)
{
    tp_tensor *x = arg_t(c, 0);
    const tp_val *o = &c->arg[1];
    symint size[8];
    size_text s;
    if (o->n != nd)
        return err_set(c->err, ERR_runtime, "It is expected output_size equals to %d, but got size %d", nd,
                       o->n);
    if (x->ndim != nd + 2)
        return err_set(c->err, ERR_runtime, "It is expected input_size equals to %d, but got size %d", nd + 2,
                       x->ndim);
    for (int i = 1; i < x->ndim; i++)
        if (sym_eq(x->size[i], 0))
            return err_set(c->err, ERR_runtime,
                           "Non-empty %dD data tensor expected but got a tensor with sizes %s", nd + 2,
                           sizes_str(&s, x->ndim, x->size));
    memcpy(size, x->size, sizeof(symint) * x->ndim);
    for (int i = 0; i < nd; i++) {
        if (sym_le(o->ints[i], 0))
            return err_set(
                c->err, ERR_runtime,
                "Input and output sizes should be greater than 0, but got input (%lld) output (%lld)",
                (long long)x->size[i + 2], (long long)o->ints[i]);
        size[i + 2] = o->ints[i];
    }
    op_out *out = out_new(c, (dtype)x->dt, x->ndim, size);
    return shape_memfmt_strides(tensor_suggest_memfmt(x), x->ndim, size, out->stride, c->err);
}
bool shape_upsample1d(op_call *c) { return up_shape(c, 1); }
bool shape_upsample2d(op_call *c) { return up_shape(c, 2); }
bool shape_upsample3d(op_call *c) { return up_shape(c, 3); }
/* (grad_output, output_size, input_size, ...) */
bool shape_upsample_backward(op_call *c)
{
    tp_tensor *dy = arg_t(c, 0);
    const tp_val *in = &c->arg[2], *o1 = &c->arg[1];
    int nd = c->row->schema.param[1].list_n;
    symint size[8];
    if (o1->n != nd || in->n != nd + 2)
        return err_set(c->err, ERR_runtime, "It is expected input_size equals to %d, but got size %d", nd + 2,
                       in->n);
    for (int i = 0; i < nd + 2; i++) {
        size[i] = i < 2 ? in->ints[i] : o1->ints[i - 2];
        if (i >= 2 && (sym_le(size[i], 0) || sym_le(in->ints[i], 0)))
            return err_set(c->err, ERR_runtime, "Input and output sizes should be greater than 0");
    }
    if (!shape_check_sizes(in->n, in->ints, c->err) || !grad_is(c, dy, nd + 2, size))
        return false;
    op_out *o = out_new(c, (dtype)dy->dt, in->n, in->ints);
    return shape_memfmt_strides(tensor_suggest_memfmt(dy), in->n, in->ints, o->stride, c->err);
}

/* ---- nearest ---- */
static void nearest_axis(axmap *m, int d, int64_t in, int64_t out, const tp_val *scale, bool exact)
{
    int64_t *at = axmap_axis(m, d, out);
    /* PyTorch computes this in single precision, and the result is a place: so do we. */
    float f = scale->kind != VAL_none && val_as_f(scale) > 0 ? (float)(1.0 / val_as_f(scale))
                                                             : (float)in / (float)out;
    for (int64_t i = 0; i < out; i++) {
        int64_t k;
        if (exact)
            k = (int64_t)floorf(((float)i + 0.5f) * f);
        else if (out == in)
            k = i;
        else if (out == 2 * in)
            k = i / 2;
        else
            k = (int64_t)floorf((float)i * f);
        at[i] = MIN(MAX(k, 0), in - 1);
    }
}

static bool nearest(op_call *c, bool exact)
{
    tp_tensor *x = arg_t(c, 0), *y = c->res[0];
    axmap m = { 0 };
    for (int d = 2; d < x->ndim; d++)
        nearest_axis(&m, d, x->size[d], y->size[d], &c->arg[d], exact);
    axmap_copy(&m, y, x);
    axmap_free(&m);
    return true;
}
bool eager_upsample_nearest(op_call *c) { return nearest(c, false); }
bool eager_upsample_nearest_exact(op_call *c) { return nearest(c, true); }

static bool nearest_back(op_call *c, bool exact)
{
    scratch s = { .err = c->err };
    dtype w = work_type((dtype)c->res[0]->dt);
    tp_tensor *dx = scratch_out(&s, c->res[0], w), *dy = scratch_in(&s, arg_t(c, 0), w);
    axmap m = { 0 };
    if (!dx || !dy)
        return scratch_end(&s, false);
    if (dx->numel)
        memset(tensor_host(dx), 0, (size_t)dx->numel * dtype_size(w));
    for (int d = 2; d < dx->ndim; d++)
        nearest_axis(&m, d, dx->size[d], dy->size[d], &c->arg[d + 1], exact);
    axmap_put(&m, RED_add, dx, dy);
    axmap_free(&m);
    return scratch_end(&s, true);
}
bool eager_upsample_nearest_backward(op_call *c) { return nearest_back(c, false); }
bool eager_upsample_nearest_exact_backward(op_call *c) { return nearest_back(c, true); }

/* ---- linear and cubic: every output place of an axis is a weighted sum of a few input places ---- */
typedef enum {
    BY_linear,
    BY_cubic,
    BY_linear_aa,
    BY_cubic_aa
} filter; /* aa: as wide as what one place stands for */
typedef struct taps {
    int n; /* per output place, at most */
    int64_t *at;
    double *w;
    int *count; /* how many of them; NULL: all */
} taps;
static void taps_free(taps *t)
{
    free(t->at);
    free(t->w);
    free(t->count);
}

static double cubic_by(double x, double a) /* Keys' kernel */
{
    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double cubic(double x) { return cubic_by(x, -0.75); }

/* The filter is stretched by the step where the result is smaller, so that every input place counts; weights sum to 1.
 * The other value of Keys' a is that of image libraries, which this form follows. */
static taps taps_wide(int64_t in, int64_t out, double f, bool is_cubic)
{
    double reach = (is_cubic ? 2 : 1) * MAX(f, 1), inv = f >= 1 ? 1 / f : 1;
    taps t = { (int)ceil(reach) * 2 + 1, NULL, NULL, NULL };
    t.at = mem_alloc(sizeof(int64_t) * (size_t)(out * t.n));
    t.w = mem_zalloc(sizeof(double) * (size_t)(out * t.n));
    t.count = mem_alloc(sizeof(int) * (size_t)out);
    for (int64_t i = 0; i < out; i++) {
        double at = f * ((double)i + 0.5), sum = 0;
        int64_t lo = MAX((int64_t)(at - reach + 0.5), 0), hi = MIN((int64_t)(at + reach + 0.5), in);
        int n = (int)MIN(MAX(hi - lo, 0), t.n);
        for (int k = 0; k < t.n; k++) {
            double x = ((double)(lo + k) - at + 0.5) * inv;
            t.at[i * t.n + k] = MIN(lo + k, in - 1);
            if (k < n)
                sum += t.w[i * t.n + k] = is_cubic ? cubic_by(x, -0.5) : MAX(1 - fabs(x), 0);
        }
        for (int k = 0; k < n && sum != 0; k++)
            t.w[i * t.n + k] /= sum;
        t.count[i] = n;
    }
    return t;
}

static taps taps_of(int64_t in, int64_t out, bool align, const tp_val *scale, filter by, bool single)
{
    bool is_cubic = by == BY_cubic || by == BY_cubic_aa;
    double f = align ? (out > 1 ? (double)(in - 1) / (double)(out - 1) : 0)
               : scale->kind != VAL_none && val_as_f(scale) > 0 ? 1 / val_as_f(scale)
                                                                : (double)in / (double)out;
    if (single)
        f = (double)(float)f;
    if (by == BY_linear_aa || by == BY_cubic_aa)
        return taps_wide(in, out, f, is_cubic);
    taps t = { is_cubic ? 4 : 2, NULL, NULL, NULL };
    t.at = mem_alloc(sizeof(int64_t) * (size_t)(out * t.n));
    t.w = mem_alloc(sizeof(double) * (size_t)(out * t.n));
    for (int64_t i = 0; i < out; i++) {
        double x = align ? f * (double)i : f * ((double)i + 0.5) - 0.5;
        if (!is_cubic && x < 0)
            x = 0;
        int64_t k = (int64_t)floor(x);
        double r = x - (double)k;
        if (is_cubic)
            for (int j = 0; j < 4; j++) {
                t.at[i * 4 + j] = MIN(MAX(k - 1 + j, 0), in - 1);
                t.w[i * 4 + j] = cubic(r + 1 - j);
            }
        else {
            k = MIN(k, in - 1);
            t.at[i * 2] = k;
            t.at[i * 2 + 1] = MIN(k + 1, in - 1);
            t.w[i * 2] = 1 - r;
            t.w[i * 2 + 1] = r;
        }
    }
    return t;
}

typedef struct axis_job {
    const taps *t;
    bool f, back;
    int64_t in, out, inner;
    char *x, *y; /* outer in inner; outer out inner */
} axis_job;

#define AXIS(T)                                                                        \
    for (int64_t o = lo; o < hi; o++)                                                  \
        for (int64_t i = 0; i < j->out; i++) {                                         \
            T *y = (T *)j->y + (o * j->out + i) * j->inner;                            \
            for (int64_t k = 0; k < j->inner && !j->back; k++)                         \
                y[k] = 0;                                                              \
            for (int p = 0; p < (j->t->count ? j->t->count[i] : j->t->n); p++) {       \
                T w = (T)j->t->w[i * j->t->n + p];                                     \
                T *x = (T *)j->x + (o * j->in + j->t->at[i * j->t->n + p]) * j->inner; \
                if (j->back)                                                           \
                    for (int64_t k = 0; k < j->inner; k++)                             \
                        x[k] += w * y[k];                                              \
                else                                                                   \
                    for (int64_t k = 0; k < j->inner; k++)                             \
                        y[k] += w * x[k];                                              \
            }                                                                          \
        }
static void axis_run(void *arg, int64_t lo, int64_t hi)
{
    const axis_job *j = arg;
    if (j->f)
        AXIS(float)
    else
        AXIS(double)
}

/* Forward, the axes grow one after the other from x's sizes to y's; backward, they shrink from y's to x's. */
static bool separable(op_call *c, tp_tensor *x, tp_tensor *y, bool align, const tp_val *scales, filter by,
                      bool back)
{
    int nd = x->ndim - 2;
    scratch s = { .err = c->err };
    dtype w = work_type((dtype)x->dt);
    tp_tensor *cur = scratch_in(&s, back ? y : x, w), *end = scratch_out(&s, back ? x : y, w);
    if (!cur || !end)
        return scratch_end(&s, false);
    for (int i = 0; i < nd; i++) {
        int d = back ? 2 + i : x->ndim - 1 - i;
        symint size[8];
        memcpy(size, cur->size, sizeof(symint) * cur->ndim);
        size[d] = back ? x->size[d] : y->size[d];
        tp_tensor *next = i == nd - 1 ? end : scratch_new(&s, w, cur->ndim, size);
        if (!next)
            return scratch_end(&s, false);
        if (back && next->numel)
            memset(tensor_host(next), 0, (size_t)next->numel * dtype_size(w));
        taps t = taps_of(x->size[d], y->size[d], align, &scales[d - 2], by, w == DT_f32);
        axis_job j = { &t,
                       w == DT_f32,
                       back,
                       x->size[d],
                       y->size[d],
                       1,
                       tensor_host(back ? next : cur),
                       tensor_host(back ? cur : next) };
        int64_t outer = 1;
        for (int k = 0; k < d; k++)
            outer *= cur->size[k];
        for (int k = d + 1; k < cur->ndim; k++)
            j.inner *= cur->size[k];
        pool_for(outer, MAX(1, 16384 / MAX(1, j.out * j.inner)), axis_run, &j);
        taps_free(&t);
        cur = next;
    }
    return scratch_end(&s, true);
}
/* Images of bytes: weights are whole numbers of 15 bits, and every axis ends in bytes again. */
static void byte_axis(const taps *t, int64_t outer, int64_t in, int64_t out, int64_t inner, const uint8_t *x,
                      uint8_t *y)
{
    double top = 0;
    int shift = 0;
    for (int64_t i = 0; i < out; i++) /* places that fall together at an edge are one */
        for (int p = t->n - 1; p > 0; p--)
            if (t->at[i * t->n + p] == t->at[i * t->n + p - 1]) {
                t->w[i * t->n + p - 1] += t->w[i * t->n + p];
                t->w[i * t->n + p] = 0;
            }
    for (int64_t i = 0; i < out * t->n; i++)
        top = fmax(top, t->w[i]);
    while (shift < 22 && (int)(0.5 + top * (double)(1 << (shift + 1))) < (1 << 15))
        shift++;
    int16_t *w = mem_alloc(sizeof *w * (size_t)(out * t->n));
    for (int64_t i = 0; i < out * t->n; i++) {
        double v = t->w[i] * (double)(1 << shift);
        w[i] = (int16_t)(v < 0 ? v - 0.5 : v + 0.5);
    }
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < out; i++)
            for (int64_t k = 0; k < inner; k++) {
                int64_t sum = shift ? (int64_t)1 << (shift - 1) : 0;
                for (int p = 0; p < t->n; p++)
                    sum += (int64_t)w[i * t->n + p] * x[(o * in + t->at[i * t->n + p]) * inner + k];
                sum >>= shift;
                y[(o * out + i) * inner + k] = (uint8_t)MIN(MAX(sum, 0), 255);
            }
    free(w);
}
static bool byte_image(op_call *c, tp_tensor *x, tp_tensor *y, bool align, const tp_val *scales, filter by)
{
    scratch s = { .err = c->err };
    tp_tensor *cur = scratch_in(&s, x, DT_u8), *end = scratch_out(&s, y, DT_u8);
    tp_tensor *mid = scratch_new(&s, DT_u8, 4, (symint[]){ x->size[0], x->size[1], x->size[2], y->size[3] });
    if (!cur || !end || !mid)
        return scratch_end(&s, false);
    int64_t nc = x->size[0] * x->size[1], h = x->size[2], w = x->size[3];
    taps t = taps_of(w, y->size[3], align, &scales[1], by, false);
    byte_axis(&t, nc * h, w, y->size[3], 1, tensor_host(cur), tensor_host(mid));
    taps_free(&t);
    t = taps_of(h, y->size[2], align, &scales[0], by, false);
    byte_axis(&t, nc, h, y->size[2], y->size[3], tensor_host(mid), tensor_host(end));
    taps_free(&t);
    return scratch_end(&s, true);
}
static bool forward(op_call *c, filter by)
{
    if (arg_t(c, 0)->dt == DT_u8 && arg_t(c, 0)->ndim == 4)
        return byte_image(c, arg_t(c, 0), c->res[0], arg_b(c, 2, false), &c->arg[3], by);
    return separable(c, arg_t(c, 0), c->res[0], arg_b(c, 2, false), &c->arg[3], by, false);
}
static bool backward(op_call *c, filter by)
{
    return separable(c, c->res[0], arg_t(c, 0), arg_b(c, 3, false), &c->arg[4], by, true);
}
bool eager_upsample_linear(op_call *c) { return forward(c, BY_linear); }
bool eager_upsample_cubic(op_call *c) { return forward(c, BY_cubic); }
bool eager_upsample_linear_aa(op_call *c) { return forward(c, BY_linear_aa); }
bool eager_upsample_cubic_aa(op_call *c) { return forward(c, BY_cubic_aa); }
bool eager_upsample_linear_backward(op_call *c) { return backward(c, BY_linear); }
bool eager_upsample_cubic_backward(op_call *c) { return backward(c, BY_cubic); }
bool eager_upsample_linear_aa_backward(op_call *c) { return backward(c, BY_linear_aa); }
bool eager_upsample_cubic_aa_backward(op_call *c) { return backward(c, BY_cubic_aa); }
