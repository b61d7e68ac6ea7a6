/* grid.c - grid_sample in two dimensions: bilinear and nearest, with its backward form. */
#include "ops/decomp.h"
#include "base/pool.h"
#include <math.h>

enum { PAD_zeros, PAD_border, PAD_reflection };

typedef struct job {
    bool f, nearest, align;
    int pad;
    int64_t n, c, h, w, oh, ow;
    const void *x, *grid, *dy;
    void *y, *dx, *dgrid;
} job;

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

/* A grid coordinate in [-1, 1] as a place on an axis of n elements; *d is its derivative. */
static double place(const job *j, double g, int64_t n, double *d)
{
    double x, top = (double)(n - 1);
    *d = j->align ? top / 2 : (double)n / 2;
    x = j->align ? (g + 1) / 2 * top : ((g + 1) * (double)n - 1) / 2;
    if (j->pad == PAD_reflection)
        x = j->align ? reflect(x, 0, 2 * top, d) : reflect(x, -1, 2 * (double)n - 1, d);
    if (j->pad != PAD_zeros) {
        if (x <= 0 || x >= top)
            *d = 0;
        x = fmin(fmax(x, 0), top);
    }
    return isfinite(x) && fabs(x) < 1e9 ? x : -100; /* NaN and far away read as outside */
}

static bool inside(const job *j, int64_t y, int64_t x) { return y >= 0 && y < j->h && x >= 0 && x < j->w; }

static void image(const job *j, int64_t n, bool back)
{
    int64_t hw = j->h * j->w, ohw = j->oh * j->ow;
    for (int64_t o = 0; o < ohw; o++) {
        int64_t ga = (n * ohw + o) * 2;
        double dxm, dym, ix = place(j, get(j->grid, j->f, ga), j->w, &dxm),
                         iy = place(j, get(j->grid, j->f, ga + 1), j->h, &dym), gx = 0, gy = 0;
        if (j->nearest) {
            int64_t x = (int64_t)nearbyint(ix), y = (int64_t)nearbyint(iy);
            bool in = inside(j, y, x);
            for (int64_t c = 0; c < j->c; c++) {
                int64_t at = (n * j->c + c) * hw + y * j->w + x, oa = (n * j->c + c) * ohw + o;
                if (!back)
                    put(j->y, j->f, oa, in ? get(j->x, j->f, at) : 0);
                else if (in && j->dx)
                    add(j->dx, j->f, at, get(j->dy, j->f, oa));
            }
        } else {
            int64_t x0 = (int64_t)floor(ix), y0 = (int64_t)floor(iy);
            double fx = ix - (double)x0, fy = iy - (double)y0;
            for (int64_t c = 0; c < j->c; c++) {
                int64_t base = (n * j->c + c) * hw, oa = (n * j->c + c) * ohw + o;
                double sum = 0, g = back ? get(j->dy, j->f, oa) : 0;
                for (int k = 0; k < 4; k++) {
                    int64_t x = x0 + (k & 1), y = y0 + (k >> 1);
                    if (!inside(j, y, x))
                        continue;
                    double wx = k & 1 ? fx : 1 - fx, wy = k >> 1 ? fy : 1 - fy,
                           v = get(j->x, j->f, base + y * j->w + x);
                    if (!back) {
                        sum += v * wx * wy;
                        continue;
                    }
                    if (j->dx)
                        add(j->dx, j->f, base + y * j->w + x, g * wx * wy);
                    gx += g * v * wy * (k & 1 ? 1 : -1);
                    gy += g * v * wx * (k >> 1 ? 1 : -1);
                }
                if (!back)
                    put(j->y, j->f, oa, sum);
            }
        }
        if (back && j->dgrid) {
            put(j->dgrid, j->f, ga, gx * dxm);
            put(j->dgrid, j->f, ga + 1, gy * dym);
        }
    }
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
    if (x->ndim != 4 || g->ndim != 4)
        return err_set(c->err, ERR_runtime,
                       "grid_sampler(): expected 4D input and grid with same number of dimensions, but got "
                       "input with sizes %s "
                       "and grid with sizes %s",
                       sizes_str(&a, x->ndim, x->size), sizes_str(&b, g->ndim, g->size));
    if (!sym_eq(x->size[0], g->size[0]))
        return err_set(c->err, ERR_runtime,
                       "grid_sampler(): expected grid and input to have same batch size, but got input with "
                       "sizes %s and grid "
                       "with sizes %s",
                       sizes_str(&a, x->ndim, x->size), sizes_str(&b, g->ndim, g->size));
    if (!sym_eq(g->size[3], 2))
        return err_set(c->err, ERR_runtime,
                       "grid_sampler(): expected grid to have size 2 in last dimension, but got grid with "
                       "sizes %s",
                       sizes_str(&b, g->ndim, g->size));
    if (sym_eq(x->size[2], 0) || sym_eq(x->size[3], 0))
        return err_set(
            c->err, ERR_runtime,
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes %s",
            sizes_str(&a, x->ndim, x->size));
    if (x->dt != g->dt || !dtype_is_float((dtype)x->dt))
        return err_set(c->err, ERR_runtime, "expected scalar type %s but found %s", dtype_rows[x->dt].gname,
                       dtype_rows[g->dt].gname);
    if (mode->i != 0 && mode->i != 1)
        return err_set(c->err, ERR_notimpl,
                       "grid_sampler(): only bilinear and nearest interpolation are implemented");
    return true;
}
static job job_of(const tp_val *a, const tp_tensor *x, const tp_tensor *g)
{
    return (job){ .f = x->dt == DT_f32,
                  .nearest = a[0].i == 1,
                  .pad = (int)a[1].i,
                  .align = val_b(&a[2], false),
                  .n = x->size[0],
                  .c = x->size[1],
                  .h = x->size[2],
                  .w = x->size[3],
                  .oh = g->size[1],
                  .ow = g->size[2],
                  .x = tensor_data(x),
                  .grid = tensor_data(g) };
}
bool shape_grid_sampler(op_call *c)
{
    tp_tensor *x = arg_t(c, 0), *g = arg_t(c, 1);
    return grid_check(c, x, g, &c->arg[2]) &&
           out_new(c, (dtype)x->dt, 4, (symint[]){ x->size[0], x->size[1], g->size[1], g->size[2] });
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
    j.y = tensor_data(y);
    pool_for(j.n, 1, images, &j);
    return scratch_end(&s, true);
}
/* (grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask) */
bool shape_grid_sampler_backward(op_call *c)
{
    tp_tensor *x = arg_t(c, 1), *g = arg_t(c, 2);
    const bool *m = c->arg[6].bools;
    if (!grid_check(c, x, g, &c->arg[3]) ||
        !grad_is(c, arg_t(c, 0), 4, (symint[]){ x->size[0], x->size[1], g->size[1], g->size[2] }))
        return false;
    op_out *o = out_new(c, (dtype)x->dt, 4, x->size);
    if (!m[0])
        o->kind = OUT_none;
    o = out_new(c, (dtype)g->dt, 4, g->size);
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
    j.dy = tensor_data(dy);
    if (dx) {
        j.dx = tensor_data(dx);
        if (dx->numel)
            memset(j.dx, 0, (size_t)dx->numel * dtype_size(w));
    }
    j.dgrid = dg ? tensor_data(dg) : NULL;
    pool_for(j.n, 1, images_back, &j);
    return scratch_end(&s, true);
}
bool decomp_grid_sampler(bld *b, const tp_val *arg, tp_val *out)
{
    return comp_ret(b, b_callv(b, OP_grid_sampler_2d, OPV_fn, arg, 5), out);
}

/* ---- affine_grid: base coordinates times theta' ---- */
bool decomp_affine_grid(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *th = arg[0].t;
    const tp_val *sz = &arg[1];
    bool align = val_b(&arg[2], false);
    if (sz->n != 4 || th->ndim != 3)
        return err_set(b->err, ERR_notimpl,
                       "affine_grid_generator needs a 4d size and theta of size N x 2 x 3");
    symint h = sz->ints[2], w = sz->ints[3];
    tp_tensor *axis[3];
    for (int i = 0; i < 2; i++) { /* x along the width, y along the height, each in [-1, 1] */
        symint n = i ? h : w;
        bool ok = true;
        double len = (double)sym_hint(n, &ok), step = align ? (len > 1 ? 2 / (len - 1) : 0) : 2 / len;
        double first = align ? (len > 1 ? -1 : 0) : -1 + 1 / len;
        tp_tensor *t = b_op(b, arange, vI(n), vDT(th->dt));
        t = b_op(b, add_Tensor, vT(b_op(b, mul_Tensor, vT(t), vF(step))), vF(first));
        t = b_op(b, reshape, vT(t), vIs(i ? ((symint[]){ n, 1 }) : ((symint[]){ 1, n }), 2));
        axis[i] = b_op(b, expand, vT(t), vIs(((symint[]){ h, w }), 2));
    }
    axis[2] = b_op(b, ones, vIs(((symint[]){ h, w }), 2), vDT(th->dt));
    if (b->failed)
        return false;
    tp_tensor *base = b_op(b, reshape, vT(b_op(b, stack, vTs(axis, 3), vI(-1))),
                           vIs(((symint[]){ sym_mul(h, w), 3 }), 2));
    tp_tensor *g = b_op(b, matmul, vT(base), vT(b_op(b, transpose_int, vT(th), vI(1), vI(2))));
    return comp_ret(b, b_op(b, reshape, vT(g), vIs(((symint[]){ sz->ints[0], h, w, 2 }), 4)), out);
}
