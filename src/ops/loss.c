/* loss.c - negative log likelihood and binary cross entropy: kernels and backward forms. */
#include "ops/decomp.h"
#include <math.h>

/* ---- nll: self is [C], [N, C] or [N, C, H, W]; target without the class dimension ---- */
typedef struct nll {
    int64_t n, c, l;
} nll;
static nll nll_of(const tp_tensor *x)
{
    nll v = { 1, x->size[x->ndim == 1 ? 0 : 1], 1 };
    if (x->ndim > 1)
        v.n = x->size[0];
    for (int d = 2; d < x->ndim; d++)
        v.l *= x->size[d];
    return v;
}

static bool nll_check(op_call *c, tp_tensor *x, tp_tensor *t, tp_tensor *w)
{
    size_text a, b;
    bool two = !strncmp(c->row->name, "nll_loss2d", 10);
    if (t->dt != DT_i64 && !(t->dt == DT_u8))
        return err_set(c->err, ERR_runtime, "expected target dtype to be Long or Byte, but got %s",
                       dtype_rows[t->dt].gname);
    if (!dtype_is_float((dtype)x->dt))
        return err_set(c->err, ERR_notimpl, "\"nll_loss_out_frame\" not implemented for '%s'",
                       dtype_rows[x->dt].gname);
    if (two) {
        if (t->ndim != 3)
            return err_set(
                c->err, ERR_runtime,
                "only batches of spatial targets supported (3D tensors) but got targets of dimension: %d",
                t->ndim);
        if (x->ndim != 4)
            return err_set(
                c->err, ERR_runtime,
                "only batches of spatial inputs supported (4D tensors), but got input of dimension: %d",
                x->ndim);
        if (!sym_eq(x->size[0], t->size[0]) || !sym_eq(x->size[2], t->size[1]) ||
            !sym_eq(x->size[3], t->size[2]))
            return err_set(c->err, ERR_runtime, "size mismatch (got input: %s , target: %s",
                           sizes_str(&a, x->ndim, x->size), sizes_str(&b, t->ndim, t->size));
    } else {
        if (x->ndim < 1 || x->ndim > 2)
            return err_set(c->err, ERR_runtime, "input tensor should be 1D or 2D");
        if (t->ndim > 1)
            return err_set(c->err, ERR_runtime,
                           "0D or 1D target tensor expected, multi-target not supported");
        bool no_batch = x->ndim == 1 && t->ndim == 0;
        if (!no_batch && !(x->ndim == 2 && t->ndim == 1 && sym_eq(x->size[0], t->size[0])) &&
            !(x->ndim == 1 && t->ndim == 1 && sym_eq(t->size[0], 1)))
            return err_set(c->err, ERR_runtime, "size mismatch (got input: %s, target: %s)",
                           sizes_str(&a, x->ndim, x->size), sizes_str(&b, t->ndim, t->size));
    }
    symint C = x->size[x->ndim == 1 ? 0 : 1];
    if (w && (w->ndim != 1 || !sym_eq(w->size[0], C)))
        return err_set(c->err, ERR_runtime,
                       "weight tensor should be defined either for all %s classes or no classes but got "
                       "weight tensor of "
                       "shape: %s",
                       size_str(&a, C), sizes_str(&b, w->ndim, w->size));
    return true;
}

bool shape_nll(op_call *c) /* (self, target, weight, reduction, ignore_index) */
{
    tp_tensor *x = arg_t(c, 0), *t = arg_t(c, 1);
    if (!nll_check(c, x, t, arg_t(c, 2)))
        return false;
    if (c->arg[3].i == 0 && x->ndim > 1)
        out_new(c, (dtype)x->dt, t->ndim, t->size);
    else
        out_new(c, (dtype)x->dt, 0, NULL);
    return out_new(c, (dtype)x->dt, 0, NULL) != NULL;
}

static bool class_ok(op_call *c, int64_t k, int64_t C)
{
    return (k >= 0 && k < C) || err_set(c->err, ERR_index, "Target %lld is out of bounds.", (long long)k);
}

bool eager_nll(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *x = arg_t(c, 0);
    dtype w = work_type((dtype)x->dt);
    tp_tensor *xi = scratch_in(&s, x, w), *t = scratch_in(&s, arg_t(c, 1), DT_i64),
              *wt = scratch_in(&s, arg_t(c, 2), DT_f64);
    tp_tensor *y = scratch_out(&s, c->res[0], w);
    if (!xi || !t || !y || s.failed)
        return scratch_end(&s, false);
    nll v = nll_of(x);
    int64_t red = c->arg[3].i, ignore = c->arg[4].i;
    bool each = red == 0 && x->ndim > 1, f = w == DT_f32;
    double sum = 0, total = 0;
    for (int64_t n = 0; n < v.n; n++)
        for (int64_t l = 0; l < v.l; l++) {
            int64_t k = ((int64_t *)tensor_host(t))[n * v.l + l], at = (n * v.c + k) * v.l + l;
            double loss = 0;
            if (k != ignore) {
                if (!class_ok(c, k, v.c))
                    return scratch_end(&s, false);
                double cw = wt ? ((double *)tensor_host(wt))[k] : 1;
                loss = -cw * (f ? ((float *)tensor_host(xi))[at] : ((double *)tensor_host(xi))[at]);
                total += cw;
            }
            sum += loss;
            if (each) {
                if (f)
                    ((float *)tensor_host(y))[n * v.l + l] = (float)loss;
                else
                    ((double *)tensor_host(y))[n * v.l + l] = loss;
            }
        }
    if (!each)
        elem_set_f(w, tensor_host(y), red == 1 ? sum / total : sum);
    elem_set_f((dtype)c->res[1]->dt, tensor_host(c->res[1]), each ? 0 : total);
    return scratch_end(&s, true);
}

bool shape_nll_backward(
    op_call *c) /* (grad_output, self, target, weight, reduction, ignore_index, total_weight) */
{
    tp_tensor *x = arg_t(c, 1), *t = arg_t(c, 2);
    bool each = c->arg[4].i == 0 && x->ndim > 1;
    if (!nll_check(c, x, t, arg_t(c, 3)) || !grad_is(c, arg_t(c, 0), each ? t->ndim : 0, t->size))
        return false;
    if (!sym_eq(arg_t(c, 6)->numel, 1))
        return err_set(c->err, ERR_runtime, "Expected a single element total_weight tensor.");
    return out_new(c, (dtype)x->dt, x->ndim, x->size) != NULL;
}
bool eager_nll_backward(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *x = arg_t(c, 1), *dy = scratch_in(&s, arg_t(c, 0), DT_f64),
              *t = scratch_in(&s, arg_t(c, 2), DT_i64);
    tp_tensor *wt = scratch_in(&s, arg_t(c, 3), DT_f64), *dx = c->res[0];
    dtype dt = (dtype)dx->dt;
    if (!dy || !t || s.failed)
        return scratch_end(&s, false);
    nll v = nll_of(x);
    int64_t red = c->arg[4].i, ignore = c->arg[5].i;
    bool each = red == 0 && x->ndim > 1;
    double total = elem_get_f((dtype)arg_t(c, 6)->dt, tensor_host(arg_t(c, 6)));
    size_t es = dtype_size(dt);
    if (dx->numel)
        memset(tensor_host(dx), 0, (size_t)dx->numel * es);
    for (int64_t n = 0; n < v.n; n++)
        for (int64_t l = 0; l < v.l; l++) {
            int64_t k = ((int64_t *)tensor_host(t))[n * v.l + l];
            if (k == ignore)
                continue;
            if (!class_ok(c, k, v.c))
                return scratch_end(&s, false);
            double g = ((double *)tensor_host(dy))[each ? n * v.l + l : 0] *
                       (wt ? ((double *)tensor_host(wt))[k] : 1);
            elem_set_f(dt, (char *)tensor_host(dx) + (size_t)((n * v.c + k) * v.l + l) * es,
                       -g / (red == 1 ? total : 1));
        }
    return scratch_end(&s, true);
}

/* ---- binary cross entropy: logarithms stop at -100, so that a confident mistake stays finite ---- */
static bool bce_check(op_call *c, tp_tensor *x, tp_tensor *t)
{
    size_text a, b;
    if (!tensor_same_size(x, t))
        return err_set(
            c->err, ERR_value,
            "Using a target size (torch.Size(%s)) that is different to the input size (torch.Size(%s)) is "
            "deprecated. Please ensure they have the same size.",
            sizes_str(&a, t->ndim, t->size), sizes_str(&b, x->ndim, x->size));
    if (x->dt != t->dt)
        return err_set(c->err, ERR_runtime, "Found dtype %s but expected %s", dtype_rows[t->dt].gname,
                       dtype_rows[x->dt].gname);
    if (!dtype_is_float((dtype)x->dt))
        return err_set(c->err, ERR_notimpl, "\"binary_cross_entropy\" not implemented for '%s'",
                       dtype_rows[x->dt].gname);
    return true;
}
/* A broadcast weight, written out. */
static tp_tensor *weight_as(scratch *s, tp_tensor *w, const tp_tensor *x, dtype dt)
{
    tp_tensor *r = w ? scratch_new(s, dt, x->ndim, x->size) : NULL;
    if (r && !tensor_copy(r, w, s->err))
        s->failed = true;
    return r;
}
/* Every number but those of the mean and the sum asks for the losses themselves. */
static bool is_one_number(int64_t reduction) { return reduction == 1 || reduction == 2; }
bool shape_bce(op_call *c) /* (self, target, weight, reduction) */
{
    tp_tensor *x = arg_t(c, 0);
    if (!bce_check(c, x, arg_t(c, 1)) || (arg_t(c, 2) && !shape_fits(x, arg_t(c, 2), c->err)))
        return false;
    return !is_one_number(c->arg[3].i) ? out_like(c, x, (dtype)x->dt) != NULL
                                       : out_new(c, (dtype)x->dt, 0, NULL) != NULL;
}
bool eager_bce(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *x = arg_t(c, 0);
    tp_tensor *xi = scratch_in(&s, x, DT_f64), *t = scratch_in(&s, arg_t(c, 1), DT_f64),
              *w = weight_as(&s, arg_t(c, 2), x, DT_f64);
    int64_t red = c->arg[3].i;
    bool each = !is_one_number(red);
    tp_tensor *y = each ? scratch_out(&s, c->res[0], DT_f64) : c->res[0];
    if (!xi || !t || !y || s.failed)
        return scratch_end(&s, false);
    double sum = 0;
    bool single = x->dt == DT_f32;
    for (int64_t i = 0; i < x->numel; i++) {
        double p = ((double *)tensor_host(xi))[i], q = ((double *)tensor_host(t))[i];
        if (!(p >= 0 && p <= 1)) {
            err_set(c->err, ERR_runtime, "all elements of input should be between 0 and 1");
            return scratch_end(&s, false);
        }
        double l0 = single ? (double)logf((float)p) : log(p),
               l1 = single ? (double)log1pf((float)-p) : log1p(-p);
        double l = (q - 1) * fmax(l1, -100) - q * fmax(l0, -100);
        l *= w ? ((double *)tensor_host(w))[i] : 1;
        sum += l;
        if (each)
            ((double *)tensor_host(y))[i] = l;
    }
    if (!each)
        elem_set_f((dtype)y->dt, tensor_host(y), red == 1 ? sum / (double)x->numel : sum);
    return scratch_end(&s, true);
}
bool shape_bce_backward(op_call *c) /* (grad_output, self, target, weight, reduction) */
{
    tp_tensor *x = arg_t(c, 1);
    bool each = c->arg[4].i == 0;
    return bce_check(c, x, arg_t(c, 2)) && (!arg_t(c, 3) || shape_fits(x, arg_t(c, 3), c->err)) &&
           grad_is(c, arg_t(c, 0), each ? x->ndim : 0, x->size) && out_like(c, x, (dtype)x->dt);
}
bool eager_bce_backward(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *x = arg_t(c, 1);
    tp_tensor *dy = scratch_in(&s, arg_t(c, 0), DT_f64), *xi = scratch_in(&s, x, DT_f64),
              *t = scratch_in(&s, arg_t(c, 2), DT_f64);
    tp_tensor *w = weight_as(&s, arg_t(c, 3), x, DT_f64), *dx = scratch_out(&s, c->res[0], DT_f64);
    int64_t red = c->arg[4].i;
    if (!dy || !xi || !t || !dx || s.failed)
        return scratch_end(&s, false);
    for (int64_t i = 0; i < x->numel; i++) {
        double p = ((double *)tensor_host(xi))[i], q = ((double *)tensor_host(t))[i];
        double g = ((double *)tensor_host(dy))[dy->numel == 1 ? 0 : i] * (p - q) / fmax((1 - p) * p, 1e-12);
        g *= w ? ((double *)tensor_host(w))[i] : 1;
        ((double *)tensor_host(dx))[i] = red == 1 ? g / (double)x->numel : g;
    }
    return scratch_end(&s, true);
}
