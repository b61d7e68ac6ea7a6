/* grid.c - grid_sample of images and volumes: linear, nearest and cubic, with its backward form; affine grids. */
#include "ops/decomp.h"
#include "base/pool.h"
#include <math.h>

enum { PAD_zeros, PAD_border, PAD_reflection };

enum { MODE_linear, MODE_nearest, MODE_cubic };

typedef struct job {
    bool f, align;
    int mode, pad, nd;
    int64_t n, c, in[3], out[3]; /* depth (1 for images), height, width */
    const void *x, *grid, *dy;
    void *y, *dx, *dgrid;
} job;

/* Where one output place reads along an axis: at is -1 outside; d is the derivative of the weight by the place. */
typedef struct axis {
    int n;
    int64_t at[4];
    double w[4], d[4], scale; /* scale: of the place by the grid's coordinate */
} axis;

static inline double get(const void *p, bool f, int64_t i)
{
    return f ? ((const float *)p)[i] : ((const double *)p)[i];
}
static inline void add(void *p, bool f, int64_t i, double v)
{
    if (f)
        ((float *)p)[i] += (float)v;
    else
        ((double *)p)[i] += v;
}
static inline void put(void *p, bool f, int64_t i, double v)
{
    if (f)
        ((float *)p)[i] = (float)v;
    else
        ((double *)p)[i] = v;
}

/* Mirrors x into [lo/2, hi/2]; *d becomes -*d for an odd number of reflections. */
static double reflect(double x, double lo2, double hi2, double *d)
{
    if (lo2 == hi2) {
        *d = 0;
        return 0;
    }
    double lo = lo2 / 2, span = (hi2 - lo2) / 2;
    x -= lo;
    if (x < 0) {
        x = -x;
        *d = -*d;
    }
    double extra = fmod(x, span), flips = floor(x / span);
    if (fmod(flips, 2) == 0)
        return extra + lo;
    *d = -*d;
    return span - extra + lo;
}

/* x as PyTorch's padding modes move it; *d is scaled by the derivative of that. */
static double padded(const job *j, double x, int64_t n, double *d)
{
    double top = (double)(n - 1);
    if (j->pad == PAD_reflection)
        x = j->align ? reflect(x, 0, 2 * top, d) : reflect(x, -1, 2 * (double)n - 1, d);
    if (j->pad != PAD_zeros) {
        if (x <= 0 || x >= top)
            *d = 0;
        x = fmin(fmax(x, 0), top);
    }
    return x;
}
static double placeable(double x)
{
    return isfinite(x) && fabs(x) < 1e9 ? x : -100;
} /* NaN and far: outside */
static void tap(axis *a, int64_t at, int64_t n, double w, double d)
{
    a->at[a->n] = at >= 0 && at < n ? at : -1;
    a->w[a->n] = w;
    a->d[a->n++] = d;
}

/* Keys' kernel with a = -0.75, and its derivative by x. */
static double cubic(double x, double *d)
{
    const double a = -0.75;
    double s = x < 0 ? -1 : 1;
    x = fabs(x);
    if (x <= 1) {
        *d = s * (3 * (a + 2) * x - 2 * (a + 3)) * x;
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    }
    *d = s * ((3 * a * x - 10 * a) * x + 8 * a);
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

/* The places a coordinate in [-1, 1] reads on an axis of n elements. */
static axis axis_at(const job *j, double g, int64_t n)
{
    axis a = { .n = 0, .scale = j->align ? (double)(n - 1) / 2 : (double)n / 2 };
    double x = j->align ? (g + 1) / 2 * (double)(n - 1) : ((g + 1) * (double)n - 1) / 2;
    if (j->mode != MODE_cubic)
        x = padded(j, x, n, &a.scale);
    x = placeable(x);
    if (j->mode == MODE_nearest) {
        tap(&a, (int64_t)nearbyint(x), n, 1, 0);
        return a;
    }
    int64_t k = (int64_t)floor(x);
    double r = x - (double)k;
    if (j->mode == MODE_linear) {
        tap(&a, k, n, 1 - r, -1);
        tap(&a, k + 1, n, r, 1);
        return a;
    }
    for (int i = 0; i < 4; i++) { /* here it is the places read that are padded */
        double d, none = 1, w = cubic(r + 1 - i, &d);
        double at = padded(j, (double)(k - 1 + i), n, &none);
        tap(&a, (int64_t)placeable(at), n, w, d);
    }
    return a;
}

static void point(const job *j, int64_t n, int64_t o, bool back)
{
    int64_t hw = j->in[1] * j->in[2], dhw = j->in[0] * hw, odhw = j->out[0] * j->out[1] * j->out[2];
    int64_t ga = (n * odhw + o) * j->nd;
    axis ax[3] = { { .n = 1,
                     .w = { 1 } } }; /* depth, height, width; the grid holds them the other way round */
    double dg[3] = { 0 };
    for (int i = 0; i < j->nd; i++)
        ax[2 - i] = axis_at(j, get(j->grid, j->f, ga + i), j->in[2 - i]);
    for (int64_t c = 0; c < j->c; c++) {
        int64_t base = (n * j->c + c) * dhw, oa = (n * j->c + c) * odhw + o;
        double sum = 0, g = back ? get(j->dy, j->f, oa) : 0;
        for (int z = 0; z < ax[0].n; z++)
            for (int y = 0; y < ax[1].n; y++)
                for (int x = 0; x < ax[2].n; x++) {
                    if (ax[0].at[z] < 0 || ax[1].at[y] < 0 || ax[2].at[x] < 0)
                        continue;
                    int64_t at = base + ax[0].at[z] * hw + ax[1].at[y] * j->in[2] + ax[2].at[x];
                    double wz = ax[0].w[z], wy = ax[1].w[y], wx = ax[2].w[x], v = get(j->x, j->f, at);
                    if (!back) {
                        sum += v * wx * wy * wz;
                        continue;
                    }
                    if (j->dx)
                        add(j->dx, j->f, at, g * wx * wy * wz);
                    dg[0] += g * v * ax[0].d[z] * wy * wx;
                    dg[1] += g * v * wz * ax[1].d[y] * wx;
                    dg[2] += g * v * wz * wy * ax[2].d[x];
                }
        if (!back)
            put(j->y, j->f, oa, sum);
    }
    for (int i = 0; back && j->dgrid && i < j->nd; i++)
        put(j->dgrid, j->f, ga + i, dg[2 - i] * ax[2 - i].scale);
}
static void image(const job *j, int64_t n, bool back)
{
    int64_t odhw = j->out[0] * j->out[1] * j->out[2];
    for (int64_t o = 0; o < odhw; o++)
        point(j, n, o, back);
}
static void images(void *arg, int64_t b, int64_t e)
{
    for (int64_t n = b; n < e; n++)
        image(arg, n, false);
}
static void images_back(void *arg, int64_t b, int64_t e)
{
    for (int64_t n = b; n < e; n++)
        image(arg, n, true);
}

/* ---- rows: (input, grid, interpolation_mode, padding_mode, align_corners) ---- */
static bool grid_check(op_call *c, tp_tensor *x, tp_tensor *g, const tp_val *mode)
{
    size_text a, b;
    int nd = strstr(c->row->name, "3d") ? 3 : 2;
    if (x->ndim != nd + 2 || g->ndim != nd + 2)
        return err_set(c->err, ERR_runtime,
                       "grid_sampler(): expected %dD input and grid with same number of dimensions, but got "
                       "input with sizes %s and grid with sizes %s",
                       nd + 2, sizes_str(&a, x->ndim, x->size), sizes_str(&b, g->ndim, g->size));
    if (!sym_eq(x->size[0], g->size[0]))
        return err_set(c->err, ERR_runtime,
                       "grid_sampler(): expected grid and input to have same batch size, but got input with "
                       "sizes %s and grid with sizes %s",
                       sizes_str(&a, x->ndim, x->size), sizes_str(&b, g->ndim, g->size));
    if (!sym_eq(g->size[nd + 1], nd))
        return err_set(c->err, ERR_runtime,
                       "grid_sampler(): expected grid to have size %d in last dimension, but got grid with "
                       "sizes %s",
                       nd, sizes_str(&b, g->ndim, g->size));
    for (int i = 2; i < x->ndim; i++)
        if (sym_eq(x->size[i], 0))
            return err_set(
                c->err, ERR_runtime,
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
                "sizes %s with dimension %d being empty",
                sizes_str(&a, x->ndim, x->size), i);
    if (x->dt != g->dt || !dtype_is_float((dtype)x->dt))
        return err_set(c->err, ERR_runtime, "expected scalar type %s but found %s", dtype_rows[x->dt].gname,
                       dtype_rows[g->dt].gname);
    if (mode->i < 0 || mode->i > MODE_cubic || mode[1].i < 0 || mode[1].i > PAD_reflection)
        return err_set(c->err, ERR_runtime, "grid_sampler(): unknown interpolation or padding mode");
    if (nd == 3 && mode->i == MODE_cubic)
        return err_set(c->err, ERR_runtime, "grid_sampler(): bicubic interpolation only supports 4D input");
    return true;
}
static job job_of(const tp_val *a, const tp_tensor *x, const tp_tensor *g)
{
    job j = { .f = x->dt == DT_f32,
              .mode = (int)a[0].i,
              .pad = (int)a[1].i,
              .align = val_b(&a[2], false),
              .nd = x->ndim - 2,
              .n = x->size[0],
              .c = x->size[1],
              .in = { 1 },
              .out = { 1 },
              .x = tensor_host(x),
              .grid = tensor_host(g) };
    for (int i = 0; i < j.nd; i++) {
        j.in[3 - j.nd + i] = x->size[2 + i];
        j.out[3 - j.nd + i] = g->size[1 + i];
    }
    return j;
}
static void sampled_size(const tp_tensor *x, const tp_tensor *g, symint *size)
{
    size[0] = x->size[0];
    size[1] = x->size[1];
    memcpy(size + 2, g->size + 1, sizeof(symint) * (size_t)(x->ndim - 2));
}
bool shape_grid_sampler(op_call *c)
{
    tp_tensor *x = arg_t(c, 0), *g = arg_t(c, 1);
    symint size[TP_MAX_DIMS];
    if (!grid_check(c, x, g, &c->arg[2]))
        return false;
    sampled_size(x, g, size);
    return out_new(c, (dtype)x->dt, x->ndim, size) != NULL;
}
bool eager_grid_sampler(op_call *c)
{
    scratch s = { .err = c->err };
    dtype w = work_type((dtype)c->res[0]->dt);
    tp_tensor *x = scratch_in(&s, arg_t(c, 0), w), *g = scratch_in(&s, arg_t(c, 1), w),
              *y = scratch_out(&s, c->res[0], w);
    if (!x || !g || !y)
        return scratch_end(&s, false);
    job j = job_of(&c->arg[2], x, g);
    j.y = tensor_host(y);
    pool_for(j.n, 1, images, &j);
    return scratch_end(&s, true);
}
/* (grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask) */
bool shape_grid_sampler_backward(op_call *c)
{
    tp_tensor *x = arg_t(c, 1), *g = arg_t(c, 2);
    const bool *m = c->arg[6].bools;
    symint size[TP_MAX_DIMS];
    if (!grid_check(c, x, g, &c->arg[3]))
        return false;
    sampled_size(x, g, size);
    if (!grad_is(c, arg_t(c, 0), x->ndim, size))
        return false;
    op_out *o = out_new(c, (dtype)x->dt, x->ndim, x->size);
    if (!m[0])
        o->kind = OUT_none;
    o = out_new(c, (dtype)g->dt, g->ndim, g->size);
    if (!m[1])
        o->kind = OUT_none;
    return true;
}
bool eager_grid_sampler_backward(op_call *c)
{
    scratch s = { .err = c->err };
    dtype w = work_type((dtype)arg_t(c, 1)->dt);
    tp_tensor *dy = scratch_in(&s, arg_t(c, 0), w), *x = scratch_in(&s, arg_t(c, 1), w),
              *g = scratch_in(&s, arg_t(c, 2), w);
    tp_tensor *dx = scratch_out(&s, c->res[0], w), *dg = scratch_out(&s, c->res[1], w);
    if (!dy || !x || !g || s.failed)
        return scratch_end(&s, false);
    job j = job_of(&c->arg[3], x, g);
    j.dy = tensor_host(dy);
    if (dx) {
        j.dx = tensor_host(dx);
        if (dx->numel)
            memset(j.dx, 0, (size_t)dx->numel * dtype_size(w));
    }
    j.dgrid = dg ? tensor_host(dg) : NULL;
    pool_for(j.n, 1, images_back, &j);
    return scratch_end(&s, true);
}
bool decomp_grid_sampler(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[0].t, *g = arg[1].t;
    size_text s, t;
    if ((x->ndim != 4 && x->ndim != 5) || g->ndim != x->ndim)
        return err_set(
            b->err, ERR_runtime,
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got "
            "input with sizes %s and grid with sizes %s",
            sizes_str(&s, x->ndim, x->size), sizes_str(&t, g->ndim, g->size));
    return comp_ret(b, b_callv(b, x->ndim == 5 ? OP_grid_sampler_3d : OP_grid_sampler_2d, OPV_fn, arg, 5),
                    out);
}

/* ---- affine_grid: base coordinates times theta' ---- */
bool decomp_affine_grid(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *th = arg[0].t;
    const tp_val *sz = &arg[1];
    bool align = val_b(&arg[2], false);
    int nd = sz->n - 2;
    if ((nd != 2 && nd != 3) || th->ndim != 3)
        return err_set(
            b->err, ERR_notimpl,
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. "
            "Got a size of %d numbers.",
            sz->n);
    tp_tensor *axis[4];
    symint points = 1, size[5];
    for (int i = 0; i < nd; i++)
        points = sym_mul(points, sz->ints[2 + i]);
    for (int i = 0; i < nd; i++) { /* x along the width, y along the height, ..., each in [-1, 1] */
        symint n = sz->ints[1 + nd - i], one[3] = { 1, 1, 1 };
        tp_tensor *t = b_op(b, arange, vI(n), vDT(th->dt));
        if (sym_is_expr(n)) { /* at least 2 */
            t = b_op(b, mul_Tensor, vT(t), val_over(b, 2, align ? sym_sub(n, 1) : n, (dtype)th->dt));
            t = b_op(b, add_Tensor, vT(b_op(b, sub_Tensor, vT(t), vF(1))),
                     align ? vF(0) : val_over(b, 1, n, (dtype)th->dt));
        } else {
            double len = (double)n, step = align ? (len > 1 ? 2 / (len - 1) : 0) : 2 / len;
            double first = align ? (len > 1 ? -1 : 0) : -1 + 1 / len;
            t = b_op(b, add_Tensor, vT(b_op(b, mul_Tensor, vT(t), vF(step))), vF(first));
        }
        one[nd - 1 - i] = n;
        t = b_op(b, reshape, vT(t), vIs(one, nd));
        axis[i] = b_op(b, expand, vT(t), vIs(sz->ints + 2, nd));
    }
    axis[nd] = b_op(b, ones, vIs(sz->ints + 2, nd), vDT(th->dt));
    if (b->failed)
        return false;
    tp_tensor *base = b_op(b, reshape, vT(b_op(b, stack, vTs(axis, nd + 1), vI(-1))),
                           vIs(((symint[]){ points, nd + 1 }), 2));
    tp_tensor *g = b_op(b, matmul, vT(base), vT(b_op(b, transpose_int, vT(th), vI(1), vI(2))));
    size[0] = sz->ints[0];
    memcpy(size + 1, sz->ints + 2, sizeof(symint) * (size_t)nd);
    size[nd + 1] = nd;
    return comp_ret(b, b_op(b, reshape, vT(g), vIs(size, nd + 2)), out);
}
