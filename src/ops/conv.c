/* conv.c - convolution: patches of the input as a matrix (im2col), then a matrix product per group. */
#include "ops/conv.h"
#include "ops/decomp.h"
#include "ops/gemm.h"
#include "ops/provider.h"
#include "ops/rowstat.h"
#include "base/pool.h"
#include <stdio.h>

#define T    float
#define S(x) x##_f32
#include "ops/conv_loops.h"
#undef T
#undef S
#define T    double
#define S(x) x##_f64
#include "ops/conv_loops.h"
#undef T
#undef S

#define T    uint16_t
#define S(f) f##_u16
#define ONLY_PATCHES
#include "ops/conv_loops.h"
#undef ONLY_PATCHES
#undef T
#undef S

void conv_im2col(dtype dt, const conv_geom *g, int64_t channels, const void *x, void *col, int64_t ld,
                 int64_t l0, int64_t l1)
{
    if (dt == DT_f16 || dt == DT_bf16)
        im2col_u16(g, channels, x, col, ld, l0, l1);
    else if (dt == DT_f32)
        im2col_f32(g, channels, x, col, ld, l0, l1);
    else
        im2col_f64(g, channels, x, col, ld, l0, l1);
}
void conv_col2im(dtype dt, const conv_geom *g, int64_t channels, const void *col, int64_t ld, void *x)
{
    dt == DT_f32 ? col2im_f32(g, channels, col, ld, x) : col2im_f64(g, channels, col, ld, x);
}

static int64_t volume(const int64_t v[3]) { return v[0] * v[1] * v[2]; }

/* A kernel of one element with stride 1 and no padding reads the input as it is. */
static bool pointwise(const conv_geom *g)
{
    return volume(g->k) == 1 && volume(g->s) == 1 && !g->p[0] && !g->p[1] && !g->p[2];
}

/* ---- forward ---- */
typedef struct fwd_job {
    dtype dt;
    const conv_geom *g;
    const char *x, *w, *bias;
    char *y;
    int64_t chunk, chunks; /* output positions per task, tasks per image and group */
} fwd_job;

static void add_bias(dtype dt, char *y, int64_t rows, int64_t ld, int64_t n, const char *bias)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            if (dt == DT_f32)
                ((float *)y)[r * ld + i] = bias ? ((const float *)bias)[r] : 0;
            else
                ((double *)y)[r * ld + i] = bias ? ((const double *)bias)[r] : 0;
        }
}

static void forward_tasks(void *arg, int64_t b, int64_t e)
{
    const fwd_job *j = arg;
    const conv_geom *g = j->g;
    int64_t es = (int64_t)dtype_size(j->dt), cg = g->c / g->groups, og = g->o / g->groups, L = volume(g->out);
    int64_t rows = cg * volume(g->k), X = volume(g->in);
    bool flat = pointwise(g);
    char *col = flat ? NULL : mem_alloc((size_t)(MAX(rows, 1) * j->chunk * es));
    for (int64_t t = b; t < e; t++) {
        int64_t part = t % j->chunks, gi = t / j->chunks % g->groups, n = t / j->chunks / g->groups;
        int64_t l0 = part * j->chunk, len = MIN(j->chunk, L - l0);
        const char *x = j->x + (n * g->c + gi * cg) * X * es, *w = j->w + gi * og * rows * es;
        char *y = j->y + ((n * g->o + gi * og) * L + l0) * es;
        add_bias(j->dt, y, og, L, len, j->bias ? j->bias + gi * og * es : NULL);
        if (!flat)
            conv_im2col(j->dt, g, cg, x, col, len, l0, l0 + len);
        mat a = { (void *)w, rows, 1 }, m = { flat ? (void *)(x + l0 * es) : col, flat ? X : len, 1 };
        gemm_one(j->dt, og, len, rows, 1, a, m, 1, (mat){ y, L, 1 });
    }
    free(col);
}

static void direct_tasks(void *arg, int64_t b, int64_t e)
{
    const fwd_job *j = arg;
    const conv_geom *g = j->g;
    int64_t es = (int64_t)dtype_size(j->dt), cg = g->c / g->groups, og = g->o / g->groups;
    for (int64_t t = b; t < e; t++) {
        int64_t o = t % g->o, n = t / g->o;
        const char *x = j->x + (n * g->c + o / og * cg) * volume(g->in) * es,
                   *w = j->w + o * cg * volume(g->k) * es;
        char *y = j->y + t * volume(g->out) * es;
        if (j->dt == DT_f32)
            direct_f32(g, cg, (const float *)x, (const float *)w, j->bias ? ((const float *)j->bias)[o] : 0,
                       (float *)y);
        else
            direct_f64(g, cg, (const double *)x, (const double *)w,
                       j->bias ? ((const double *)j->bias)[o] : 0, (double *)y);
    }
}

void conv_forward(dtype dt, const conv_geom *g, const void *x, const void *w, const void *bias, void *y)
{
    int64_t L = volume(g->out), cg = g->c / g->groups, og = g->o / g->groups, rows = cg * volume(g->k);
    fwd_job j = { dt, g, x, w, bias, y, 0, 0 };
    const ops_provider *own = ops_provider_now();
    if (g->n * g->o * L == 0 || (own && own->conv_forward(dt, g, x, w, bias, y)))
        return;
    if (cg == 1 && og <= 4 && g->groups > 1) { /* too thin for a matrix product */
        pool_for(g->n * g->o, MAX(1, 65536 / (L * volume(g->k))), direct_tasks, &j);
        return;
    }
    /* The patch matrix of a task stays in the second-level cache. */
    j.chunk = pointwise(g) ? MAX(1024, L / 8) : MAX(64, (1 << 17) / MAX(rows, 1));
    j.chunk = MIN((j.chunk + 63) & ~(int64_t)63, L);
    j.chunks = (L + j.chunk - 1) / j.chunk;
    pool_for(g->n * g->groups * j.chunks, MAX(1, (1 << 18) / MAX(1, rows * og * j.chunk)), forward_tasks, &j);
}

/* ---- gradients ---- */
typedef struct bwd_job {
    dtype dt;
    const conv_geom *g;
    const char *dy, *w;
    char *dx;
} bwd_job;

static void input_tasks(void *arg, int64_t b, int64_t e)
{
    const bwd_job *j = arg;
    const conv_geom *g = j->g;
    int64_t es = (int64_t)dtype_size(j->dt), cg = g->c / g->groups, og = g->o / g->groups, L = volume(g->out);
    int64_t rows = cg * volume(g->k), X = volume(g->in);
    bool flat = pointwise(g);
    char *col = flat ? NULL : mem_alloc((size_t)(MAX(rows * L, 1) * es));
    for (int64_t t = b; t < e; t++) {
        int64_t gi = t % g->groups, n = t / g->groups;
        char *dx = j->dx + (n * g->c + gi * cg) * X * es;
        mat w = { (void *)(j->w + gi * og * rows * es), 1, rows }; /* transposed */
        mat dy = { (void *)(j->dy + (n * g->o + gi * og) * L * es), L, 1 };
        gemm_one(j->dt, rows, L, og, 1, w, dy, 0, (mat){ flat ? dx : col, L, 1 });
        if (!flat) {
            memset(dx, 0, (size_t)(cg * X * es));
            conv_col2im(j->dt, g, cg, col, L, dx);
        }
    }
    free(col);
}

void conv_grad_input(dtype dt, const conv_geom *g, const void *dy, const void *w, void *dx)
{
    bwd_job j = { dt, g, dy, w, dx };
    const ops_provider *own = ops_provider_now();
    if (g->n * g->c * volume(g->in) == 0 || (own && own->conv_grad_input(dt, g, dy, w, dx)))
        return;
    if (volume(g->out) == 0 || g->o == 0) {
        memset(dx, 0, (size_t)(g->n * g->c * volume(g->in)) * dtype_size(dt));
        return;
    }
    pool_for(g->n * g->groups, 1, input_tasks, &j);
}

typedef struct col_job {
    dtype dt;
    const conv_geom *g;
    const char *x;
    char *col;
} col_job;
static void col_tasks(void *arg, int64_t b, int64_t e)
{
    const col_job *j = arg;
    int64_t es = (int64_t)dtype_size(j->dt), X = volume(j->g->in), L = volume(j->g->out), K = volume(j->g->k);
    conv_im2col(j->dt, j->g, e - b, j->x + b * X * es, j->col + b * K * L * es, L, 0, L);
}

void conv_grad_weight(dtype dt, const conv_geom *g, const void *x, const void *dy, void *dw)
{
    int64_t es = (int64_t)dtype_size(dt), cg = g->c / g->groups, og = g->o / g->groups, L = volume(g->out);
    int64_t rows = cg * volume(g->k), X = volume(g->in);
    bool flat = pointwise(g);
    const ops_provider *own = ops_provider_now();
    if (own && own->conv_grad_weight(dt, g, x, dy, dw))
        return;
    memset(dw, 0, (size_t)(g->o * rows * es));
    if (g->n * L == 0)
        return;
    char *col = flat ? NULL : mem_alloc((size_t)(MAX(rows * L, 1) * es));
    for (int64_t n = 0; n < g->n; n++)
        for (int64_t gi = 0; gi < g->groups; gi++) {
            const char *xs = (const char *)x + (n * g->c + gi * cg) * X * es;
            if (!flat) {
                col_job j = { dt, g, xs, col };
                pool_for(cg, MAX(1, 32768 / MAX(1, L * volume(g->k))), col_tasks, &j);
            }
            mat d = { (char *)dy + (n * g->o + gi * og) * L * es, L, 1 };
            mat c = { flat ? (void *)xs : col, 1, L }; /* transposed */
            gemm(dt, og, rows, L, 1, d, c, 1, (mat){ (char *)dw + gi * og * rows * es, rows, 1 });
        }
    free(col);
}

/* ---- the rows ---- */
static const char *cname(const tp_tensor *t)
{
    static const char *const names[DT_COUNT] = {
        [DT_bool] = "bool", [DT_u8] = "unsigned char", [DT_i8] = "signed char", [DT_i16] = "short",
        [DT_i32] = "int",   [DT_i64] = "long",         [DT_f16] = "c10::Half",  [DT_bf16] = "c10::BFloat16",
        [DT_f32] = "float", [DT_f64] = "double"
    };
    return names[t->dt];
}

static bool list_ok(op_call *c, const tp_val *v, int nd, const char *name)
{
    size_text a;
    return v->n == nd || v->n == 1 ||
           err_set(c->err, ERR_runtime,
                   "expected %s to be a single integer value or a list of %d values to match the convolution "
                   "dimensions, but got %s=%s",
                   name, nd, name, sizes_str(&a, v->n, v->ints));
}
static symint at(const tp_val *v, int i) { return v->ints[v->n == 1 ? 0 : i]; }

/* (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups) from argument `a` on;
 * fills the sizes of the output. */
/* The numbers of a convolution: stride, padding, dilation, output padding and groups. */
static bool conv_numbers_ok(op_call *c, int nd, const tp_val *a)
{
    const tp_val *st = &a[0], *pd = &a[1], *dl = &a[2], *op = &a[4];
    symint groups = a[5].i;
    if (nd < 1 || nd > 3)
        return err_set(c->err, ERR_runtime, "weight should have at least three dimensions and at most five");
    if (!list_ok(c, st, nd, "stride") || !list_ok(c, pd, nd, "padding") || !list_ok(c, dl, nd, "dilation") ||
        !list_ok(c, op, nd, "output_padding"))
        return false;
    if (sym_le(groups, 0))
        return err_set(c->err, ERR_runtime, "non-positive groups is not supported");
    for (int i = 0; i < nd; i++) {
        if (sym_lt(at(pd, i), 0))
            return err_set(c->err, ERR_runtime, "negative padding is not supported");
        if (sym_lt(at(op, i), 0))
            return err_set(c->err, ERR_runtime, "negative output_padding is not supported");
        if (sym_le(at(st, i), 0))
            return err_set(c->err, ERR_runtime, "non-positive stride is not supported");
        if (sym_le(at(dl, i), 0))
            return err_set(c->err, ERR_runtime, "non-positive dilation is not supported");
    }
    return true;
}
static bool conv_operands_ok(op_call *c, tp_tensor *x, tp_tensor *w, tp_tensor *bias, bool tr, symint groups,
                             symint outs)
{
    size_text s, t;
    if (x->ndim != w->ndim)
        return err_set(c->err, ERR_runtime,
                       "Expected %d-dimensional input for %d-dimensional weight %s, but got %d-dimensional "
                       "input of size "
                       "%s instead",
                       w->ndim, w->ndim, sizes_str(&s, w->ndim, w->size), x->ndim,
                       sizes_str(&t, x->ndim, x->size));
    if (sym_lt(w->size[0], groups))
        return err_set(c->err, ERR_runtime,
                       "Given groups=%lld, expected weight to be at least %lld at dimension 0, but got "
                       "weight of size %s "
                       "instead",
                       (long long)groups, (long long)groups, sizes_str(&s, w->ndim, w->size));
    if (!sym_eq(sym_mod(w->size[0], groups), 0))
        return err_set(c->err, ERR_runtime,
                       "Given groups=%lld, expected weight to be divisible by %lld at dimension 0, but got "
                       "weight of size "
                       "[%s] instead",
                       (long long)groups, (long long)groups, sizes_str(&s, w->ndim, w->size));
    symint chans = tr ? w->size[0] : sym_mul(w->size[1], groups);
    size_text u, v;
    if (!sym_eq(x->size[1], chans)) {
        char head[40];
        snprintf(head, sizeof head, tr ? "transposed=1" : "groups=%lld", (long long)groups);
        return err_set(
            c->err, ERR_runtime,
            "Given %s, weight of size %s, expected input%s to have %s channels, but got %s channels instead",
            head, sizes_str(&s, w->ndim, w->size), sizes_str(&t, x->ndim, x->size), size_str(&u, chans),
            size_str(&v, x->size[1]));
    }
    if (bias && (bias->ndim != 1 || !sym_eq(bias->size[0], outs)))
        return err_set(
            c->err, ERR_runtime,
            "Given %sweight of size %s, expected bias to be 1-dimensional with %s elements, but got bias of "
            "size %s instead",
            tr ? "transposed=1, " : "", sizes_str(&s, w->ndim, w->size), size_str(&u, outs),
            sizes_str(&t, bias->ndim, bias->size));
    if (x->dt != w->dt)
        return err_set(
            c->err, ERR_runtime,
            "Input type (torch.%sTensor) and weight type (torch.%sTensor) should be the same or input should "
            "be a MKLDNN tensor and weight is a dense tensor",
            dtype_rows[x->dt].gname, dtype_rows[w->dt].gname);
    if (bias && bias->dt != x->dt)
        return err_set(c->err, ERR_runtime, "Input type (%s) and bias type (%s) should be the same", cname(x),
                       cname(bias));
    return true;
}
static bool conv_no_output(op_call *c, int nd, const tp_tensor *x, const symint *size)
{
    strbuf a1 = { 0 }, b1 = { 0 };
    for (int i = 0; i < nd; i++) {
        strbuf_addf(&a1, "%s%lld", i ? " x " : "", (long long)x->size[i + 2]);
        strbuf_addf(&b1, "%s%lld", i ? " x " : "", (long long)size[i + 2]);
    }
    err_set(c->err, ERR_runtime,
            "Given input size per channel: (%s). Calculated output size per channel: (%s). Output size is "
            "too small",
            strbuf_str(&a1), strbuf_str(&b1));
    strbuf_free(&a1);
    strbuf_free(&b1);
    return false;
}
static bool conv_window_too_large(op_call *c, int nd, const tp_tensor *x, const tp_tensor *w,
                                  const tp_val *pd, const tp_val *dl)
{
    strbuf a1 = { 0 }, b1 = { 0 };
    for (int i = 0; i < nd; i++) {
        strbuf_addf(&a1, "%s%lld", i ? " x " : "", (long long)sym_add(x->size[i + 2], sym_mul(2, at(pd, i))));
        strbuf_addf(&b1, "%s%lld", i ? " x " : "",
                    (long long)sym_add(sym_mul(at(dl, i), sym_sub(w->size[i + 2], 1)), 1));
    }
    err_set(c->err, ERR_runtime,
            "Calculated padded input size per channel: (%s). Kernel size: (%s). Kernel size can't be "
            "greater than "
            "actual input size",
            strbuf_str(&a1), strbuf_str(&b1));
    strbuf_free(&a1);
    strbuf_free(&b1);
    return false;
}
static bool conv_sizes(op_call *c, tp_tensor *x, tp_tensor *w, tp_tensor *bias, const tp_val *a, symint *size)
{
    int nd = w->ndim - 2;
    const tp_val *st = &a[0], *pd = &a[1], *dl = &a[2], *op = &a[4];
    bool tr = val_b(&a[3], false), small = false, none = false;
    symint groups = a[5].i;
    if (!conv_numbers_ok(c, nd, a))
        return false;
    symint outs = tr ? sym_mul(w->size[1], groups) : w->size[0];
    if (!conv_operands_ok(c, x, w, bias, tr, groups, outs))
        return false;
    size[0] = x->size[0];
    size[1] = outs;
    for (int i = 0; i < nd; i++) {
        symint in = x->size[i + 2], k = w->size[i + 2], eff = sym_add(sym_mul(at(dl, i), sym_sub(k, 1)), 1);
        if (tr) {
            symint m = sym_sub(sym_mul(sym_sub(in, 1), at(st, i)), sym_mul(2, at(pd, i)));
            size[i + 2] = sym_add(sym_add(m, eff), at(op, i));
            none |= sym_lt(size[i + 2], 1);
            if (sym_ge(at(op, i), at(st, i)) && sym_ge(at(op, i), at(dl, i)))
                return err_set(
                    c->err, ERR_runtime,
                    "output padding must be smaller than either stride or dilation, but got output_padding: "
                    "%lld stride: %lld dilation: %lld",
                    (long long)at(op, i), (long long)at(st, i), (long long)at(dl, i));
        } else {
            symint room = sym_add(in, sym_mul(2, at(pd, i)));
            small |= sym_lt(room, eff);
            size[i + 2] = sym_add(sym_floordiv(sym_sub(room, eff), at(st, i)), 1);
        }
    }
    if (none)
        return conv_no_output(c, nd, x, size);
    if (x->numel == 0 && x->size[0] != 0 && x->size[1] != 0) {
        size_text s;
        return err_set(c->err, ERR_runtime,
                       "Only zero batch or zero channel inputs are supported, but got input shape: %s",
                       sizes_str(&s, x->ndim, x->size));
    }
    if (small)
        return conv_window_too_large(c, nd, x, w, pd, dl);
    return true;
}

memfmt conv_format(const tp_tensor *x, const tp_tensor *w)
{
    memfmt f = tensor_suggest_memfmt(x);
    return f == MF_contiguous ? tensor_suggest_memfmt(w) : f;
}

bool shape_convolution(op_call *c)
{
    tp_tensor *x = arg_t(c, 0), *w = arg_t(c, 1);
    symint size[8];
    if (!conv_sizes(c, x, w, arg_t(c, 2), &c->arg[3], size))
        return false;
    op_out *o = out_new(c, (dtype)x->dt, x->ndim, size);
    return shape_memfmt_strides(conv_format(x, w), x->ndim, size, o->stride, c->err);
}

/* i: the image, o: with a place for each window. */
static conv_geom geom_of(const tp_tensor *i, const tp_tensor *w, const tp_tensor *o, const tp_val *stride,
                         const tp_val *padding, const tp_val *dilation, int64_t groups)
{
    conv_geom g = { .n = i->size[0],
                    .c = i->size[1],
                    .o = o->size[1],
                    .groups = groups,
                    .in = { 1, 1, 1 },
                    .out = { 1, 1, 1 },
                    .k = { 1, 1, 1 },
                    .s = { 1, 1, 1 },
                    .p = { 0, 0, 0 },
                    .d = { 1, 1, 1 } };
    int nd = w->ndim - 2;
    for (int d = 0; d < nd; d++) {
        int k = 3 - nd + d;
        g.in[k] = i->size[d + 2];
        g.out[k] = o->size[d + 2];
        g.k[k] = w->size[d + 2];
        g.s[k] = at(stride, d);
        g.p[k] = at(padding, d);
        g.d[k] = at(dilation, d);
    }
    return g;
}

/* For a transposed convolution the roles of input and output trade places: x is the output side. */
conv_geom conv_geom_of(const tp_tensor *x, const tp_tensor *w, const tp_tensor *y, const tp_val *a)
{
    bool tr = val_b(&a[3], false);
    return geom_of(tr ? y : x, w, tr ? x : y, &a[0], &a[1], &a[2], a[5].i);
}

static dtype conv_type(dtype dt) { return dt == DT_f64 || !dtype_is_float(dt) ? DT_f64 : DT_f32; }

static void bias_planes(tp_tensor *y, const tp_tensor *bias)
{
    int64_t planes = y->size[0] * y->size[1], L = planes ? y->numel / planes : 0;
    for (int64_t i = 0; i < planes; i++)
        for (int64_t l = 0; l < L; l++) {
            if (y->dt == DT_f32)
                ((float *)tensor_host(y))[i * L + l] += ((float *)tensor_host(bias))[i % y->size[1]];
            else
                ((double *)tensor_host(y))[i * L + l] += ((double *)tensor_host(bias))[i % y->size[1]];
        }
}

/* Channels lie side by side, and do so in one order alone. */
static bool is_side(const tp_tensor *t)
{
    return (t->ndim == 4 || t->ndim == 5) && t->numel && !tensor_is_contiguous(t) &&
           tensor_is_contiguous_as(t, t->ndim == 4 ? MF_channels_last : MF_channels_last_3d);
}
static tp_tensor *side_in(scratch *s, tp_tensor *t)
{
    symint stride[TP_MAX_DIMS];
    if (s->failed || is_side(t))
        return t;
    if (!shape_memfmt_strides(t->ndim == 4 ? MF_channels_last : MF_channels_last_3d, t->ndim, t->size, stride,
                              s->err))
        return NULL;
    tp_tensor *r = tensor_new_strided((dtype)t->dt, t->ndim, t->size, stride, DEVICE_CPU, s->err);
    if (!scratch_take(s, r))
        return NULL;
    if (!tensor_copy(r, t, s->err))
        s->failed = true;
    return r;
}

static void bias_side(tp_tensor *y, const tp_tensor *bias)
{
    int64_t C = y->size[1];
    for (int64_t i = 0; i < y->numel / C; i++)
        for (int64_t k = 0; k < C; k++) {
            if (y->dt == DT_f32)
                ((float *)tensor_host(y))[i * C + k] += ((float *)tensor_host(bias))[k];
            else
                ((double *)tensor_host(y))[i * C + k] += ((double *)tensor_host(bias))[k];
        }
}

bool conv_forward_side(tp_tensor *y, const tp_tensor *x, const tp_tensor *w, const tp_tensor *bias,
                       const tp_val *arg)
{
    const ops_provider *own = ops_provider_now();
    dtype dt = (dtype)y->dt;
    if (!own || (dt != DT_f32 && dt != DT_f64) || x->dt != dt || w->dt != dt || (bias && bias->dt != dt) ||
        !is_side(y) || !is_side(x) || !(is_side(w) || tensor_is_contiguous(w)) ||
        (bias && !tensor_is_contiguous(bias)))
        return false;
    conv_geom g = conv_geom_of(x, w, y, arg);
    const void *add = bias ? tensor_host(bias) : NULL;
    g.last = 1;
    g.w_last = is_side(w);
    if (!val_b(&arg[3], false))
        return own->conv_forward(dt, &g, tensor_host(x), tensor_host(w), add, tensor_host(y));
    if (!own->conv_grad_input(dt, &g, tensor_host(x), tensor_host(w), tensor_host(y)))
        return false;
    if (bias)
        bias_side(y, bias);
    return true;
}

/* All of bf16 and contiguous, and somebody multiplies such numbers. */
static const ops_provider *takes_half(const tp_tensor *a, const tp_tensor *b, const tp_tensor *y,
                                      const tp_tensor *bias)
{
    const tp_tensor *all[] = { a, b, y, bias };
    for (size_t i = 0; i < COUNT(all); i++)
        if (all[i] && (all[i]->dt != DT_bf16 || !tensor_is_contiguous(all[i])))
            return NULL;
    return ops_provider_now();
}

bool eager_convolution(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *res = c->res[0];
    dtype w = conv_type((dtype)res->dt);
    const ops_provider *own = takes_half(arg_t(c, 0), arg_t(c, 1), res, arg_t(c, 2));
    if (own && res->numel && !val_b(&c->arg[6], false)) {
        const tp_tensor *b = arg_t(c, 2);
        conv_geom g = conv_geom_of(arg_t(c, 0), arg_t(c, 1), res, &c->arg[3]);
        if (own->conv_forward(DT_bf16, &g, tensor_host(arg_t(c, 0)), tensor_host(arg_t(c, 1)),
                              b ? tensor_host(b) : NULL, tensor_host(res)))
            return true;
    }
    if (is_side(res) && is_side(arg_t(c, 0)) && res->dt == w) {
        tp_tensor *wt = arg_t(c, 1), *b = scratch_in(&s, arg_t(c, 2), w);
        wt = is_side(wt) ? wt : scratch_in(&s, wt, w);
        if (s.failed || conv_forward_side(res, arg_t(c, 0), wt, b, &c->arg[3]))
            return scratch_end(&s, true);
    }
    tp_tensor *x = scratch_in(&s, arg_t(c, 0), w), *wt = scratch_in(&s, arg_t(c, 1), w);
    tp_tensor *bias = scratch_in(&s, arg_t(c, 2), w), *y = scratch_out(&s, res, w);
    if (!x || !wt || !y || s.failed)
        return scratch_end(&s, false);
    conv_geom g = conv_geom_of(x, wt, y, &c->arg[3]);
    if (val_b(&c->arg[6], false)) {
        conv_grad_input(w, &g, tensor_host(x), tensor_host(wt), tensor_host(y));
        if (bias)
            bias_planes(y, bias);
    } else
        conv_forward(w, &g, tensor_host(x), tensor_host(wt), bias ? tensor_host(bias) : NULL, tensor_host(y));
    return scratch_end(&s, true);
}

/* (grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask) */
bool shape_convolution_backward(op_call *c)
{
    tp_tensor *x = arg_t(c, 1), *w = arg_t(c, 2);
    const bool *m = c->arg[10].bools;
    tp_val a[9] = { c->arg[1], c->arg[2], vNone };
    for (int i = 3; i < 9; i++)
        a[i] = c->arg[i + 1];
    if (!grad_fits(c, arg_t(c, 0), a, 9))
        return false;
    memfmt f = conv_format(x, w);
    tp_tensor *like[2] = { x, w };
    for (int i = 0; i < 2; i++) {
        op_out *o = out_new(c, (dtype)x->dt, like[i]->ndim, like[i]->size);
        if (!shape_memfmt_strides(f, o->ndim, o->size, o->stride, c->err))
            return false;
        if (!m[i])
            o->kind = OUT_none;
    }
    symint outs = val_b(&c->arg[7], false) ? sym_mul(w->size[1], c->arg[9].i) : w->size[0];
    op_out *o = out_new(c, (dtype)x->dt, 1, &outs);
    if (!m[2])
        o->kind = OUT_none;
    return true;
}

typedef struct plane_job {
    const tp_tensor *dy;
    tp_tensor *db;
} plane_job;
static void sum_channels(void *arg, int64_t lo, int64_t hi)
{
    const tp_tensor *dy = ((plane_job *)arg)->dy;
    tp_tensor *db = ((plane_job *)arg)->db;
    int64_t C = dy->size[1], planes = dy->size[0] * C, L = planes ? dy->numel / planes : 0;
    for (int64_t k = lo; k < hi; k++) {
        double sum = 0;
        for (int64_t n = 0; n < dy->size[0]; n++)
            if (dy->dt == DT_f32)
                sum += ISA_PICK(rs_sum)(L, (float *)tensor_host(dy) + (n * C + k) * L);
            else
                for (int64_t l = 0; l < L; l++)
                    sum += ((double *)tensor_host(dy))[(n * C + k) * L + l];
        elem_set_f((dtype)db->dt, (char *)tensor_host(db) + (size_t)k * dtype_size((dtype)db->dt), sum);
    }
}
static void sum_side(void *arg, int64_t lo, int64_t hi)
{
    const tp_tensor *dy = ((plane_job *)arg)->dy;
    tp_tensor *db = ((plane_job *)arg)->db;
    int64_t C = dy->size[1], L = dy->numel / C;
    for (int64_t k = lo; k < hi; k += 16) {
        double sum[16] = { 0 };
        int64_t n = MIN(16, hi - k);
        for (int64_t l = 0; l < L; l++)
            for (int64_t i = 0; i < n; i++)
                sum[i] += dy->dt == DT_f32 ? (double)((float *)tensor_host(dy))[l * C + k + i]
                                           : ((double *)tensor_host(dy))[l * C + k + i];
        for (int64_t i = 0; i < n; i++)
            elem_set_f((dtype)db->dt, (char *)tensor_host(db) + (size_t)(k + i) * dtype_size((dtype)db->dt),
                       sum[i]);
    }
}
static void sum_planes(const tp_tensor *dy, tp_tensor *db)
{
    int64_t C = dy->size[1];
    plane_job j = { dy, db };
    if (is_side(dy))
        pool_for(C, MAX(16, (32768 * C / MAX(1, dy->numel) + 15) & ~(int64_t)15), sum_side, &j);
    else
        pool_for(C, MAX(1, 32768 * C / MAX(1, dy->numel)), sum_channels, &j);
}

/* The gradients with channels side by side, as far as a provider takes them so: bit i of what is left. */
static int backward_side(op_call *c, scratch *s, dtype t)
{
    const ops_provider *own = ops_provider_now();
    int left = (c->res[0] != NULL) | (c->res[1] != NULL) << 1 | (c->res[2] != NULL) << 2;
    tp_tensor *x = arg_t(c, 1);
    if (!own || x->dt != t || arg_t(c, 0)->dt != t || !is_side(x) || (c->res[0] && !is_side(c->res[0])))
        return left;
    tp_tensor *dy = side_in(s, arg_t(c, 0)), *w = arg_t(c, 2), *dw = c->res[1];
    w = is_side(w) && w->dt == t ? w : scratch_in(s, w, t);
    dw = dw && (!is_side(dw) || dw->dt != t) ? scratch_out(s, dw, t) : dw;
    if (!dy || !w || s->failed || !is_side(dy))
        return left;
    bool tr = val_b(&c->arg[7], false);
    conv_geom g = conv_geom_of(x, w, dy, &c->arg[4]);
    g.last = 1;
    g.w_last = is_side(w);
    if (c->res[0] &&
        (tr ? own->conv_forward(t, &g, tensor_host(dy), tensor_host(w), NULL, tensor_host(c->res[0]))
            : own->conv_grad_input(t, &g, tensor_host(dy), tensor_host(w), tensor_host(c->res[0]))))
        left &= ~1;
    g.w_last = dw && is_side(dw);
    if (dw &&
        own->conv_grad_weight(t, &g, tensor_host(tr ? dy : x), tensor_host(tr ? x : dy), tensor_host(dw)))
        left &= ~2;
    if (c->res[2])
        sum_planes(dy, c->res[2]);
    return left & 3;
}

/* The gradients that can be made of bf16 as it is: which of the wanted are left. */
static int backward_half(op_call *c, int left)
{
    tp_tensor *dy = arg_t(c, 0), *x = arg_t(c, 1), *w = arg_t(c, 2), *dx = c->res[0], *dw = c->res[1];
    const ops_provider *own = takes_half(dy, x, w, NULL);
    if (!own || !dy->numel || !x->numel || val_b(&c->arg[7], false))
        return left;
    conv_geom g = conv_geom_of(x, w, dy, &c->arg[4]);
    if ((left & 1) && tensor_is_contiguous(dx) &&
        own->conv_grad_input(DT_bf16, &g, tensor_host(dy), tensor_host(w), tensor_host(dx)))
        left &= ~1;
    if ((left & 2) && tensor_is_contiguous(dw) &&
        own->conv_grad_weight(DT_bf16, &g, tensor_host(x), tensor_host(dy), tensor_host(dw)))
        left &= ~2;
    return left;
}

bool eager_convolution_backward(op_call *c)
{
    scratch s = { .err = c->err };
    dtype t = conv_type((dtype)arg_t(c, 1)->dt);
    int left = backward_half(c, backward_side(c, &s, t));
    if (!left || s.failed)
        return scratch_end(&s, true);
    tp_tensor *dy = scratch_in(&s, arg_t(c, 0), t);
    if (left == 4) {
        if (dy)
            sum_planes(dy, c->res[2]);
        return scratch_end(&s, dy != NULL);
    }
    tp_tensor *x = scratch_in(&s, arg_t(c, 1), t), *w = scratch_in(&s, arg_t(c, 2), t);
    if (!dy || !x || !w)
        return scratch_end(&s, false);
    bool tr = val_b(&c->arg[7], false);
    conv_geom g = conv_geom_of(x, w, dy, &c->arg[4]);
    if (left & 1) {
        tp_tensor *dx = scratch_out(&s, c->res[0], t);
        if (!dx)
            return scratch_end(&s, false);
        if (tr)
            conv_forward(t, &g, tensor_host(dy), tensor_host(w), NULL, tensor_host(dx));
        else
            conv_grad_input(t, &g, tensor_host(dy), tensor_host(w), tensor_host(dx));
    }
    if (left & 2) {
        tp_tensor *dw = scratch_out(&s, c->res[1], t);
        if (!dw)
            return scratch_end(&s, false);
        conv_grad_weight(t, &g, tensor_host(tr ? dy : x), tensor_host(tr ? x : dy), tensor_host(dw));
    }
    if (left & 4)
        sum_planes(dy, c->res[2]);
    return scratch_end(&s, true);
}

/* ---- the three convolutions of a device, a row each ---- */
static conv_offer *offers[DEV_COUNT];
void conv_on_device(dev_kind k, conv_offer *offer) { offers[k] = offer; }
bool conv_offered(conv_kind k, dtype dt, const conv_geom *g, tp_device d)
{
    return offers[d.kind] && offers[d.kind](k, dt, g, d);
}

conv_geom conv_geom_row(conv_kind k, tp_tensor *res, const tp_val *arg, tp_tensor *t[3])
{
    const tp_val *a = &arg[k == CONV_forward ? 2 : 3];
    t[0] = k == CONV_forward ? arg[0].t : k == CONV_grad_input ? res : arg[1].t;
    t[1] = k == CONV_grad_weight ? res : arg[1].t;
    t[2] = k == CONV_forward ? res : arg[0].t;
    return geom_of(t[0], t[1], t[2], &a[0], &a[1], &a[2], a[3].i);
}

/* (input, weight, numbers) or (grad_output, other, sizes of the result, numbers). */
static bool shape_conv_row(op_call *c, conv_kind k)
{
    static const symint zero = 0;
    const tp_val *v = &c->arg[k == CONV_forward ? 2 : 3], *to = &c->arg[2];
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 1), *made = NULL, *x = a, *w = b;
    tp_val num[6] = { v[0], v[1], v[2], vB(false), vIs(&zero, 1), v[3] };
    symint size[8];
    if (k != CONV_forward) {
        if (to->n != a->ndim || b->ndim != a->ndim)
            return err_set(c->err, ERR_runtime, "%s: expected %d sizes of the result, but got %d",
                           c->row->name, a->ndim, to->n);
        made = tensor_new_fake((dtype)b->dt, to->n, to->ints, NULL, tensor_device(b));
        x = k == CONV_grad_input ? made : b;
        w = k == CONV_grad_input ? b : made;
    }
    bool ok = conv_sizes(c, x, w, NULL, num, size), fits = true;
    for (int i = 0; ok && made && i < a->ndim; i++)
        fits = fits && sym_eq(a->size[i], size[i]);
    if (!fits)
        err_set(c->err, ERR_runtime, "%s: the gradient does not have the sizes of the result", c->row->name);
    op_out *o = ok && fits ? out_new(c, (dtype)a->dt, a->ndim, made ? made->size : size) : NULL;
    ok = o && shape_memfmt_strides(conv_format(a, b), o->ndim, o->size, o->stride, c->err);
    tensor_unref(made);
    return ok;
}
bool shape_conv_forward(op_call *c) { return shape_conv_row(c, CONV_forward); }
bool shape_conv_grad_input(op_call *c) { return shape_conv_row(c, CONV_grad_input); }
bool shape_conv_grad_weight(op_call *c) { return shape_conv_row(c, CONV_grad_weight); }

static bool eager_conv_row(op_call *c, conv_kind k)
{
    scratch s = { .err = c->err };
    dtype dt = conv_type((dtype)c->res[0]->dt);
    tp_tensor *a = scratch_in(&s, arg_t(c, 0), dt), *b = scratch_in(&s, arg_t(c, 1), dt),
              *o = scratch_out(&s, c->res[0], dt), *t[3];
    if (!a || !b || !o || s.failed)
        return scratch_end(&s, false);
    tp_val arg[7];
    memcpy(arg, c->arg, sizeof *arg * (size_t)c->row->schema.nparam);
    arg[0].t = a, arg[1].t = b;
    conv_geom g = conv_geom_row(k, o, arg, t);
    void *x = tensor_host(t[0]), *w = tensor_host(t[1]), *y = tensor_host(t[2]);
    if (k == CONV_forward)
        conv_forward(dt, &g, x, w, NULL, y);
    else if (k == CONV_grad_input)
        conv_grad_input(dt, &g, y, w, x);
    else
        conv_grad_weight(dt, &g, x, y, w);
    return scratch_end(&s, true);
}
bool eager_conv_forward(op_call *c) { return eager_conv_row(c, CONV_forward); }
bool eager_conv_grad_input(op_call *c) { return eager_conv_row(c, CONV_grad_input); }
bool eager_conv_grad_weight(op_call *c) { return eager_conv_row(c, CONV_grad_weight); }

/* ---- im2col and col2im as rows: unfold and fold ---- */
/* (self, kernel_size, dilation, padding, stride); spatial sizes from `sp`. */
static bool blocks(op_call *c, const tp_val *a, const symint *sp, symint *out, const char *who)
{
    for (int i = 0; i < 4; i++)
        if (a[i].n != 2)
            return err_set(c->err, ERR_runtime, "It is expected %s equals to 2, but got size %d",
                           ((const char *[]){ "kernel_size", "dilation", "padding", "stride" })[i], a[i].n);
    for (int i = 0; i < 2; i++) {
        if (sym_le(a[0].ints[i], 0) || sym_le(a[3].ints[i], 0) || sym_le(a[1].ints[i], 0))
            return err_set(c->err, ERR_runtime, "%s should be greater than zero",
                           sym_le(a[0].ints[i], 0)   ? "kernel size"
                           : sym_le(a[3].ints[i], 0) ? "stride"
                                                     : "dilation");
        if (sym_lt(a[2].ints[i], 0))
            return err_set(c->err, ERR_runtime, "padding should be non-negative");
        symint room = sym_sub(sym_add(sp[i], sym_mul(2, a[2].ints[i])),
                              sym_add(sym_mul(a[1].ints[i], sym_sub(a[0].ints[i], 1)), 1));
        out[i] = sym_add(sym_floordiv(room, a[3].ints[i]), 1);
        if (sym_lt(out[i], 1))
            return err_set(
                c->err, ERR_runtime,
                "Given input with spatial size (%lld, %lld), calculated shape of the array of sliding blocks "
                "is too small (non-positive)",
                (long long)sp[0], (long long)sp[1]);
    }
    return true;
}

bool shape_im2col(op_call *c)
{
    tp_tensor *x = arg_t(c, 0);
    symint out[2], size[3];
    size_text s;
    int b = x->ndim - 3;
    if (b != 0 && b != 1)
        return err_set(c->err, ERR_runtime,
                       "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
                       "dimensions for "
                       "input, but got: %s",
                       sizes_str(&s, x->ndim, x->size));
    if (!blocks(c, &c->arg[1], x->size + b + 1, out, "im2col"))
        return false;
    size[0] = x->size[0];
    size[b] = sym_mul(x->size[b], sym_mul(c->arg[1].ints[0], c->arg[1].ints[1]));
    size[b + 1] = sym_mul(out[0], out[1]);
    return out_new(c, (dtype)x->dt, b + 2, size) != NULL;
}

static conv_geom block_geom(const tp_val *a, int64_t h, int64_t w)
{
    conv_geom g = { .n = 1,
                    .groups = 1,
                    .in = { 1, h, w },
                    .out = { 1, 1, 1 },
                    .k = { 1, a[0].ints[0], a[0].ints[1] },
                    .s = { 1, a[3].ints[0], a[3].ints[1] },
                    .p = { 0, a[2].ints[0], a[2].ints[1] },
                    .d = { 1, a[1].ints[0], a[1].ints[1] } };
    for (int i = 1; i < 3; i++)
        g.out[i] = (g.in[i] + 2 * g.p[i] - g.d[i] * (g.k[i] - 1) - 1) / g.s[i] + 1;
    return g;
}

bool eager_im2col(op_call *c)
{
    scratch s = { .err = c->err };
    dtype t = conv_type((dtype)c->res[0]->dt);
    tp_tensor *x = scratch_in(&s, arg_t(c, 0), t), *y = scratch_out(&s, c->res[0], t);
    if (!x || !y)
        return scratch_end(&s, false);
    conv_geom g = block_geom(&c->arg[1], x->size[x->ndim - 2], x->size[x->ndim - 1]);
    int64_t X = volume(g.in), L = volume(g.out), C = x->size[x->ndim - 3], N = x->ndim == 4 ? x->size[0] : 1;
    size_t es = dtype_size(t);
    for (int64_t n = 0; n < N; n++)
        conv_im2col(t, &g, C, (char *)tensor_host(x) + (size_t)(n * C * X) * es,
                    (char *)tensor_host(y) + (size_t)(n * C * volume(g.k) * L) * es, L, 0, L);
    return scratch_end(&s, true);
}

/* (self, output_size, kernel_size, dilation, padding, stride) */
bool shape_col2im(op_call *c)
{
    tp_tensor *x = arg_t(c, 0);
    const tp_val *o = &c->arg[1];
    symint out[2], size[4];
    size_text s, t;
    int b = x->ndim - 2;
    if (b != 0 && b != 1)
        return err_set(c->err, ERR_runtime,
                       "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
                       "non-zero dimensions "
                       "for input, but got: %s",
                       sizes_str(&s, x->ndim, x->size));
    if (o->n != 2)
        return err_set(c->err, ERR_runtime, "It is expected output_size equals to 2, but got size %d", o->n);
    if (!blocks(c, &c->arg[2], o->ints, out, "col2im"))
        return false;
    symint k = sym_mul(c->arg[2].ints[0], c->arg[2].ints[1]);
    if (!sym_eq(sym_mod(x->size[b], k), 0))
        return err_set(
            c->err, ERR_runtime,
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
            "input.size(1)=%s and kernel_size=(%lld, %lld).",
            size_str(&s, x->size[b]), (long long)c->arg[2].ints[0], (long long)c->arg[2].ints[1]);
    if (!sym_eq(x->size[b + 1], sym_mul(out[0], out[1])))
        return err_set(
            c->err, ERR_runtime,
            "Given output_size=(%lld, %lld), kernel_size=(%lld, %lld), dilation=(%lld, %lld), padding=(%lld, "
            "%lld), stride=(%lld, %lld), expected size of input's dimension 2 to match the calculated number "
            "of sliding blocks %s * %s = %lld, but got input.size(2)=%lld.",
            (long long)o->ints[0], (long long)o->ints[1], (long long)c->arg[2].ints[0],
            (long long)c->arg[2].ints[1], (long long)c->arg[3].ints[0], (long long)c->arg[3].ints[1],
            (long long)c->arg[4].ints[0], (long long)c->arg[4].ints[1], (long long)c->arg[5].ints[0],
            (long long)c->arg[5].ints[1], size_str(&s, out[0]), size_str(&t, out[1]),
            (long long)sym_mul(out[0], out[1]), (long long)x->size[b + 1]);
    size[0] = x->size[0];
    size[b] = sym_floordiv(x->size[b], k);
    size[b + 1] = o->ints[0];
    size[b + 2] = o->ints[1];
    return out_new(c, (dtype)x->dt, b + 3, size) != NULL;
}
bool eager_col2im(op_call *c)
{
    scratch s = { .err = c->err };
    dtype t = conv_type((dtype)c->res[0]->dt);
    tp_tensor *x = scratch_in(&s, arg_t(c, 0), t), *y = scratch_out(&s, c->res[0], t);
    if (!x || !y)
        return scratch_end(&s, false);
    conv_geom g = block_geom(&c->arg[2], y->size[y->ndim - 2], y->size[y->ndim - 1]);
    int64_t X = volume(g.in), L = volume(g.out), C = y->size[y->ndim - 3], N = y->ndim == 4 ? y->size[0] : 1;
    size_t es = dtype_size(t);
    if (y->numel)
        memset(tensor_host(y), 0, (size_t)y->numel * es);
    for (int64_t n = 0; n < N; n++)
        conv_col2im(t, &g, C, (char *)tensor_host(x) + (size_t)(n * C * volume(g.k) * L) * es, L,
                    (char *)tensor_host(y) + (size_t)(n * C * X) * es);
    return scratch_end(&s, true);
}

/* ---- composites: conv1d .. conv_transpose3d ---- */
/* (input, weight, bias, stride, padding, dilation, groups) or (..., stride, padding, output_padding, groups, dilation) */
static bool conv_nd(bld *b, const tp_val *arg, tp_val *out, int nd, bool tr)
{
    tp_tensor *x = val_t(&arg[0]);
    const symint zero = 0;
    size_text s;
    bool single = x->ndim == nd + 1;
    if (!single && x->ndim != nd + 2)
        return err_set(
            b->err, ERR_runtime,
            "Expected %dD (unbatched) or %dD (batched) input to conv%s%dd, but got input of size: %s", nd + 1,
            nd + 2, tr ? "_transpose" : "", nd, sizes_str(&s, x->ndim, x->size));
    if (single)
        x = b_op(b, unsqueeze, vT(x), vI(0));
    tp_tensor *y = tr ? b_op(b, convolution, vT(x), arg[1], arg[2], arg[3], arg[4], arg[7], vB(true), arg[5],
                             arg[6])
                      : b_op(b, convolution, vT(x), arg[1], arg[2], arg[3], arg[4], arg[5], vB(false),
                             vIs(&zero, 1), arg[6]);
    if (single)
        y = b_op(b, squeeze_dim, vT(y), vI(0));
    return comp_ret(b, y, out);
}
bool decomp_conv1d(bld *b, const tp_val *arg, tp_val *out) { return conv_nd(b, arg, out, 1, false); }
bool decomp_conv2d(bld *b, const tp_val *arg, tp_val *out) { return conv_nd(b, arg, out, 2, false); }
bool decomp_conv3d(bld *b, const tp_val *arg, tp_val *out) { return conv_nd(b, arg, out, 3, false); }
bool decomp_conv_transpose1d(bld *b, const tp_val *arg, tp_val *out) { return conv_nd(b, arg, out, 1, true); }
bool decomp_conv_transpose2d(bld *b, const tp_val *arg, tp_val *out) { return conv_nd(b, arg, out, 2, true); }
bool decomp_conv_transpose3d(bld *b, const tp_val *arg, tp_val *out) { return conv_nd(b, arg, out, 3, true); }

/* padding="valid" or "same"; an odd total for "same" puts the extra element at the end. */
static bool conv_named(bld *b, const tp_val *arg, tp_val *out, int nd)
{
    const char *mode = arg[4].s;
    tp_tensor *x = val_t(&arg[0]), *w = val_t(&arg[1]);
    symint pad[3] = { 0 }, extra[6] = { 0 };
    tp_val a[7];
    bool uneven = false, same = !strcmp(mode, "same");
    memcpy(a, arg, sizeof a);
    if (!same && strcmp(mode, "valid"))
        return err_set(b->err, ERR_runtime, "Invalid padding string: '%s'", mode);
    for (int i = 0; i < nd && same; i++) {
        if (!sym_eq(at(&arg[3], i), 1))
            return err_set(b->err, ERR_runtime, "padding='same' is not supported for strided convolutions");
        symint total = sym_mul(at(&arg[5], i), sym_sub(w->ndim == nd + 2 ? w->size[i + 2] : 1, 1));
        pad[i] = sym_floordiv(total, 2);
        if (!sym_eq(sym_mod(total, 2), 0)) {
            uneven = true;
            extra[2 * (nd - 1 - i) + 1] = 1;
        }
    }
    if (uneven)
        a[0] = vT(b_op(b, constant_pad_nd, vT(x), vIs(extra, 2 * nd), vI(0)));
    if (b->failed)
        return false;
    a[4] = vIs(pad, nd);
    return conv_nd(b, a, out, nd, false);
}
bool decomp_conv1d_padding(bld *b, const tp_val *arg, tp_val *out) { return conv_named(b, arg, out, 1); }
bool decomp_conv2d_padding(bld *b, const tp_val *arg, tp_val *out) { return conv_named(b, arg, out, 2); }
bool decomp_conv3d_padding(bld *b, const tp_val *arg, tp_val *out) { return conv_named(b, arg, out, 3); }
