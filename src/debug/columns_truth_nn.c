/* columns_truth_nn.c - what losses with weights, normalisation, moves, windows, products and orders mean, in float64 by plain loops
 * over indices: shares no code with eager kernels, decompositions and lowerings. */
#include "debug/truth.h"
#include "debug/truth_loops.h"
#include <math.h>
#include <stdlib.h>

/* Result i of a call, into out; false: this form of it is not known here. */
typedef bool whole_fn(const tp_val *a, int i, tp_tensor *out);
#define WHOLE(name) static bool whole_##name(const tp_val *a, int i, tp_tensor *out)

/* ---- losses ---- */
typedef double loss_fn(double x, double t, double w, const tp_val *a);
static double log_sigm(double v) { return v > 0 ? -log1p(exp(-v)) : v - log1p(exp(v)); }
/* w: argument `weight` at that element, 1 without; then reduced as argument `how` says */
static bool loss(loss_fn *fn, const tp_val *a, int weight, int how, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]), *t = tensor_arg(&a[1]),
                    *w = weight ? tensor_arg(&a[weight]) : NULL;
    int64_t red = a[how].i;
    if (!x || !t || !x->numel || !tensor_same_size(x, t) || (w && !truth_spreads(w, x)) ||
        out->numel != (red ? 1 : x->numel))
        return false;
    double sum = 0;
    for (int64_t k = 0; k < x->numel; k++) {
        double v = fn(get(x, k), get(t, k), w ? get(w, truth_spread(w, x, k)) : 1, a);
        sum += v;
        if (!red)
            put(out, k, v);
    }
    if (red)
        put(out, 0, red == 1 ? sum / (double)x->numel : sum);
    return true;
}
static double bce(double x, double t, double w, const tp_val *a)
{
    return -w * (t * fmax(log(x), -100) + (1 - t) * fmax(log1p(-x), -100));
}
WHOLE(bce) { return !i && loss(bce, a, 2, 3, out); }
static double bce_logits(double x, double t, double w, const tp_val *a) /* w: of positive ones */
{
    return -(w * t * log_sigm(x) + (1 - t) * log_sigm(-x));
}
WHOLE(bce_logits) { return !i && !tensor_arg(&a[2]) && loss(bce_logits, a, 3, 4, out); }
static double kl_div(double x, double t, double w, const tp_val *a)
{
    return a[3].b ? exp(t) * (t - x) : (t > 0 ? t * log(t) : t == 0 ? 0 : NAN) - t * x;
}
WHOLE(kl_div) { return !i && loss(kl_div, a, 0, 2, out); }
static double soft_margin(double x, double t, double w, const tp_val *a) { return log1p(exp(-t * x)); }
WHOLE(soft_margin) { return !i && loss(soft_margin, a, 0, 2, out); }
static double hinge(double x, double t, double w, const tp_val *a)
{
    return t == 1 ? x : t == -1 ? fmax(0, number(&a[2], NAN) - x) : x + fmax(0, number(&a[2], NAN) - x);
}
WHOLE(hinge) { return !i && loss(hinge, a, 0, 3, out); }
static double ranking(double x, double y, double t, const tp_val *a)
{
    return fmax(0, -t * (x - y) + number(&a[3], NAN));
}
WHOLE(ranking) { return !i && loss(ranking, a, 2, 4, out); }
static double poisson(double x, double t, double w, const tp_val *a)
{
    double v = a[2].b ? exp(x) - t * x : x - t * log(x + number(&a[4], NAN));
    return a[3].b && t > 1 ? v + t * log(t) - t + 0.5 * log(2 * M_PI * t) : v;
}
WHOLE(poisson) { return !i && loss(poisson, a, 0, 5, out); }

/* x (N, C, ...) or (C), numbers of classes; log_: x are scores, not logarithms of probabilities */
static bool classes(const tp_val *a, bool log_, double smooth, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]), *t = tensor_arg(&a[1]), *w = tensor_arg(&a[2]);
    lines l;
    if (!x || !t || !x->numel || dtype_is_float((dtype)t->dt) || !lines_of(x, &vI(x->ndim > 1), &l) ||
        t->numel != l.outer * l.inner || (w && w->numel != l.n) || out->numel != (a[3].i ? 1 : t->numel))
        return false;
    double sum = 0, weights = 0;
    for (int64_t k = 0; k < t->numel; k++) {
        int64_t c = (int64_t)get(t, k), first = k / l.inner * l.n * l.inner + k % l.inner;
        double top = -INFINITY, s = 0, all = 0, v = 0;
        if (c != a[4].i && (c < 0 || c >= l.n))
            return false;
        for (int64_t j = 0; j < l.n; j++)
            top = fmax(top, get(x, first + j * l.inner));
        for (int64_t j = 0; j < l.n; j++)
            s += exp(get(x, first + j * l.inner) - top);
        double base = log_ ? top + log(s) : 0, wc = c == a[4].i ? 0 : w ? get(w, c) : 1;
        for (int64_t j = 0; j < l.n && smooth; j++)
            all -= (w ? get(w, j) : 1) * (get(x, first + j * l.inner) - base);
        if (c != a[4].i)
            v = -wc * (1 - smooth) * (get(x, first + c * l.inner) - base) + smooth / (double)l.n * all;
        sum += v;
        weights += wc;
        if (!a[3].i)
            put(out, k, v);
    }
    if (a[3].i)
        put(out, 0, a[3].i == 1 ? sum / weights : sum);
    return true;
}
WHOLE(cross_entropy) { return !i && classes(a, true, number(&a[5], 0), out); }
WHOLE(nll) { return !i && classes(a, false, 0, out); }

/* ---- normalisation ---- */
/* Rows of n elements each, a channel of `inner` elements having one weight; result i is the values, the mean, 1 / sqrt(var + eps). */
static bool normal_rows(const tp_tensor *x, int64_t n, int64_t inner, int64_t channels, const tp_tensor *w,
                        const tp_tensor *b, double eps, bool centred, int i, tp_tensor *out)
{
    if (!x || !n || !x->numel || x->numel % n || out->numel != (i ? x->numel / n : x->numel) ||
        (w && w->numel != channels) || (b && b->numel != channels))
        return false;
    for (int64_t r = 0; r < x->numel / n; r++) {
        double mean = 0, var = 0;
        for (int64_t k = 0; k < n && centred; k++)
            mean += get(x, r * n + k) / (double)n;
        for (int64_t k = 0; k < n; k++)
            var += (get(x, r * n + k) - mean) * (get(x, r * n + k) - mean) / (double)n;
        double inv = 1 / sqrt(var + eps);
        if (i)
            put(out, r, i == 1 ? mean : inv);
        for (int64_t k = 0; k < n && !i; k++) {
            int64_t c = (r * n + k) / inner % channels;
            put(out, r * n + k, (get(x, r * n + k) - mean) * inv * (w ? get(w, c) : 1) + (b ? get(b, c) : 0));
        }
    }
    return true;
}
WHOLE(layer_norm)
{
    int64_t n = a[1].kind == VAL_ints ? shape_numel(a[1].n, a[1].ints) : 0;
    return normal_rows(tensor_arg(&a[0]), n, 1, n, tensor_arg(&a[2]), tensor_arg(&a[3]), number(&a[4], NAN),
                       true, i, out);
}
WHOLE(rms_norm)
{
    int64_t n = a[1].kind == VAL_ints ? shape_numel(a[1].n, a[1].ints) : 0;
    return !i && a[3].kind != VAL_none &&
           normal_rows(tensor_arg(&a[0]), n, 1, n, tensor_arg(&a[2]), NULL, number(&a[3], NAN), false, 0,
                       out);
}
WHOLE(group_norm)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    if (!x || x->ndim < 2 || !x->numel || a[1].i < 1 || x->size[1] % a[1].i)
        return false;
    int64_t inner = x->numel / (x->size[0] * x->size[1]);
    return !i && normal_rows(x, x->size[1] / a[1].i * inner, inner, x->size[1], tensor_arg(&a[2]),
                             tensor_arg(&a[3]), number(&a[4], NAN), true, 0, out);
}
/* (input, weight, bias, running_mean, running_var, training, momentum, eps): the values, then the statistics written */
WHOLE(batch_norm)
{
    const tp_tensor *x = tensor_arg(&a[0]), *w = tensor_arg(&a[1]), *b = tensor_arg(&a[2]),
                    *rm = tensor_arg(&a[3]), *rv = tensor_arg(&a[4]);
    lines l;
    bool train = a[5].b;
    if (!lines_of(x, &vI(1), &l) || x->ndim < 2 || !x->numel || (!train && (!rm || !rv)) || i > 2 ||
        (i && !rm))
        return false;
    if (out->numel != (i ? l.n : x->numel) || (w && w->numel != l.n) || (b && b->numel != l.n))
        return false;
    double count = (double)(l.outer * l.inner), mom = number(&a[6], NAN);
    for (int64_t c = 0; c < l.n; c++) {
        double mean = 0, var = 0;
        for (int64_t k = 0; k < l.outer * l.inner; k++)
            mean += get(x, (k / l.inner * l.n + c) * l.inner + k % l.inner) / count;
        for (int64_t k = 0; k < l.outer * l.inner; k++) {
            double v = get(x, (k / l.inner * l.n + c) * l.inner + k % l.inner) - mean;
            var += v * v;
        }
        if (i) {
            put(out, c,
                i == 1 ? (1 - mom) * get(rm, c) + mom * mean
                       : (1 - mom) * get(rv, c) + mom * var / (count - 1));
            continue;
        }
        double m = train ? mean : get(rm, c), s = train ? var / count : get(rv, c),
               g = (w ? get(w, c) : 1) / sqrt(s + number(&a[7], NAN));
        for (int64_t k = 0; k < l.outer * l.inner; k++) {
            int64_t at = (k / l.inner * l.n + c) * l.inner + k % l.inner;
            put(out, at, (get(x, at) - m) * g + (b ? get(b, c) : 0));
        }
    }
    return true;
}

WHOLE(native_batch_norm) /* also the mean and 1 / sqrt(var + eps) of each channel */
{
    const tp_tensor *x = tensor_arg(&a[0]);
    lines l;
    if (!i || i > 2)
        return whole_batch_norm(a, i ? i - 2 : 0, out);
    if (!a[5].b || !lines_of(x, &vI(1), &l) || x->ndim < 2 || !x->numel || out->numel != l.n)
        return false;
    double count = (double)(l.outer * l.inner);
    for (int64_t c = 0; c < l.n; c++) {
        double mean = 0, var = 0;
        for (int64_t k = 0; k < l.outer * l.inner; k++)
            mean += get(x, (k / l.inner * l.n + c) * l.inner + k % l.inner) / count;
        for (int64_t k = 0; k < l.outer * l.inner; k++) {
            double v = get(x, (k / l.inner * l.n + c) * l.inner + k % l.inner) - mean;
            var += v * v / count;
        }
        put(out, c, i == 1 ? mean : 1 / sqrt(var + number(&a[7], NAN)));
    }
    return true;
}

/* ---- spread and norms: over the dimensions of a list ---- */
static uint32_t dims_of(const tp_val *dim, int nd)
{
    uint32_t mask = 0;
    int d;
    for (int k = 0; dim->kind == VAL_ints && k < dim->n; k++)
        if (dim_wrap(dim->ints[k], nd, &d, NULL))
            mask |= 1u << d;
    return mask ? mask : (1u << nd) - 1;
}
static int64_t kept(const tp_tensor *x, uint32_t mask, int64_t k)
{
    int64_t at[TP_MAX_DIMS], to = 0;
    index_of(x, k, at);
    for (int d = 0; d < x->ndim; d++)
        if (!(mask >> d & 1))
            to = to * x->size[d] + at[d];
    return to;
}
static bool variance(const tp_val *a, const tp_val *dim, double less, bool root, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    if (!x || !x->ndim || !x->numel || !out->numel)
        return false;
    uint32_t mask = dims_of(dim, x->ndim);
    double each = (double)(x->numel / out->numel), *mean = mem_zalloc(sizeof *mean * (size_t)out->numel);
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, 0);
    for (int64_t k = 0; k < x->numel; k++)
        mean[kept(x, mask, k)] += get(x, k) / each;
    for (int64_t k = 0; k < x->numel; k++) {
        int64_t to = kept(x, mask, k);
        put(out, to, get(out, to) + (get(x, k) - mean[to]) * (get(x, k) - mean[to]));
    }
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, root ? sqrt(get(out, k) / fmax(each - less, 0)) : get(out, k) / fmax(each - less, 0));
    free(mean);
    return true;
}
WHOLE(var) { return !i && variance(a, &a[1], number(&a[2], 1), false, out); }
WHOLE(std) { return !i && variance(a, &a[1], number(&a[2], 1), true, out); }
WHOLE(var_all) { return !i && variance(a, &vNone, number(&a[1], 1), false, out); }
WHOLE(std_all) { return !i && variance(a, &vNone, number(&a[1], 1), true, out); }
WHOLE(norm)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    double p = number(&a[1], 2);
    if (i || !x || !x->ndim || !x->numel || !out->numel)
        return false;
    uint32_t mask = dims_of(&a[2], x->ndim);
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, isinf(p) && p < 0 ? INFINITY : 0);
    for (int64_t k = 0; k < x->numel; k++) {
        int64_t to = kept(x, mask, k);
        double v = fabs(get(x, k)), o = get(out, to);
        put(out, to,
            isnan(v) || isnan(o) ? NAN
            : isinf(p)           ? (p > 0 ? fmax(o, v) : fmin(o, v))
                                 : o + (p ? pow(v, p) : v != 0));
    }
    for (int64_t k = 0; k < out->numel && !isinf(p) && p; k++)
        put(out, k, pow(get(out, k), 1 / p));
    return true;
}

/* ---- along a dimension ---- */
static bool scan(const tp_val *a, bool product, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    lines l;
    if (!lines_of(x, &a[1], &l) || out->numel != x->numel)
        return false;
    for (int64_t k = 0; k < l.outer * l.inner; k++) {
        double s = product;
        for (int64_t j = 0; j < l.n; j++) {
            int64_t at = (k / l.inner * l.n + j) * l.inner + k % l.inner;
            s = product ? s * get(x, at) : s + get(x, at);
            put(out, at, s);
        }
    }
    return true;
}
WHOLE(cumsum) { return !i && scan(a, false, out); }
WHOLE(cumprod) { return !i && scan(a, true, out); }

typedef enum { ORDER_all, ORDER_top, ORDER_middle, ORDER_often, ORDER_max, ORDER_min } order_kind;
/* The first results of sort, topk (which: how many), median, mode: `keep` of each sorted line. */
static bool ordered(const tp_val *a, const tp_val *dim, order_kind what, bool down, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    lines l;
    if (!lines_of(x, dim, &l) || !x->numel)
        return false;
    int64_t keep = what == ORDER_all ? l.n : what == ORDER_top ? a[1].i : 1;
    double *v = mem_alloc(sizeof *v * (size_t)l.n);
    bool ok = keep >= 0 && keep <= l.n && out->numel == l.outer * l.inner * keep;
    for (int64_t k = 0; ok && k < l.outer * l.inner; k++) {
        for (int64_t j = 0; j < l.n; j++)
            v[j] = get(x, (k / l.inner * l.n + j) * l.inner + k % l.inner);
        qsort(v, (size_t)l.n, sizeof *v, rising);
        int64_t at = what == ORDER_middle ? (isnan(v[l.n - 1]) ? l.n - 1 : (l.n - 1) / 2)
                     : what == ORDER_max  ? l.n - 1
                     : what == ORDER_min  ? (isnan(v[l.n - 1]) ? l.n - 1 : 0)
                                          : 0;
        for (int64_t j = 0, run = 0, most = 0; what == ORDER_often && j < l.n; j++) {
            run = j && v[j] == v[j - 1] ? run + 1 : 1;
            if (run > most)
                most = run, at = j;
        }
        for (int64_t j = 0; j < keep; j++)
            put(out, (k / l.inner * keep + j) * l.inner + k % l.inner, v[down ? l.n - 1 - j : at + j]);
    }
    free(v);
    return ok;
}
WHOLE(sort) { return !i && ordered(a, &a[1], ORDER_all, a[2].b, out); }
WHOLE(topk) { return !i && a[4].b && ordered(a, &a[2], ORDER_top, a[3].b, out); }
WHOLE(mode) { return !i && ordered(a, &a[1], ORDER_often, false, out); }
WHOLE(median_dim) { return !i && ordered(a, &a[1], ORDER_middle, false, out); }
WHOLE(max_dim) { return !i && ordered(a, &a[1], ORDER_max, false, out); }
WHOLE(min_dim) { return !i && ordered(a, &a[1], ORDER_min, false, out); }

/* ---- moves: the element of the first argument that lies at an index of the result; -1: `fill` does ---- */
typedef int64_t source_fn(const tp_val *a, const tp_tensor *x, const tp_tensor *out, int64_t *at);
static bool moved(source_fn *from, const tp_val *a, double fill, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int64_t at[TP_MAX_DIMS];
    if (!x)
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        index_of(out, k, at);
        int64_t s = from(a, x, out, at);
        if (s < -1 || s >= x->numel)
            return false;
        put(out, k, s < 0 ? fill : get(x, s));
    }
    return true;
}
static int64_t from_flip(const tp_val *a, const tp_tensor *x, const tp_tensor *out, int64_t *at)
{
    uint32_t mask = a[1].n ? dims_of(&a[1], x->ndim) : 0;
    for (int d = 0; d < x->ndim; d++)
        at[d] = mask >> d & 1 ? x->size[d] - 1 - at[d] : at[d];
    return element(x, at);
}
WHOLE(flip) { return !i && moved(from_flip, a, 0, out); }
static int64_t from_roll(const tp_val *a, const tp_tensor *x, const tp_tensor *out, int64_t *at)
{
    int d;
    if (!a[2].n)
        return ((element(x, at) - a[1].ints[0]) % x->numel + x->numel) % x->numel;
    for (int k = 0; k < a[2].n; k++)
        if (dim_wrap(a[2].ints[k], x->ndim, &d, NULL))
            at[d] = ((at[d] - a[1].ints[k]) % x->size[d] + x->size[d]) % x->size[d];
    return element(x, at);
}
WHOLE(roll) { return !i && a[1].n && moved(from_roll, a, 0, out); }
static int64_t from_repeat(const tp_val *a, const tp_tensor *x, const tp_tensor *out, int64_t *at)
{
    int off = out->ndim - x->ndim;
    for (int d = 0; d < x->ndim; d++)
        at[d] = at[d + off] % x->size[d];
    return element(x, at);
}
WHOLE(repeat) { return !i && moved(from_repeat, a, 0, out); }
static int64_t from_pad(const tp_val *a, const tp_tensor *x, const tp_tensor *out, int64_t *at)
{
    for (int d = 0, q; d < x->ndim; d++) {
        q = (x->ndim - 1 - d) * 2;
        at[d] -= q < a[1].n ? a[1].ints[q] : 0;
        if (at[d] < 0 || at[d] >= x->size[d])
            return -1;
    }
    return element(x, at);
}
WHOLE(pad) { return !i && moved(from_pad, a, number(&a[2], NAN), out); }
static int64_t from_mirror(const tp_val *a, const tp_tensor *x, const tp_tensor *out, int64_t *at)
{
    for (int d = 0, q; d < x->ndim; d++) {
        q = (x->ndim - 1 - d) * 2;
        int64_t v = llabs(at[d] - (q < a[1].n ? a[1].ints[q] : 0)), end = x->size[d] - 1;
        at[d] = v > end ? 2 * end - v : v;
    }
    return element(x, at);
}
WHOLE(mirror) { return !i && moved(from_mirror, a, 0, out); }
static int64_t from_edge(const tp_val *a, const tp_tensor *x, const tp_tensor *out, int64_t *at)
{
    for (int d = 0, q; d < x->ndim; d++) {
        q = (x->ndim - 1 - d) * 2;
        at[d] = MIN(MAX(at[d] - (q < a[1].n ? a[1].ints[q] : 0), 0), x->size[d] - 1);
    }
    return element(x, at);
}
WHOLE(edge) { return !i && moved(from_edge, a, 0, out); }
static int64_t from_tril(const tp_val *a, const tp_tensor *x, const tp_tensor *out, int64_t *at)
{
    return at[x->ndim - 1] - at[x->ndim - 2] <= a[1].i ? element(x, at) : -1;
}
static int64_t from_triu(const tp_val *a, const tp_tensor *x, const tp_tensor *out, int64_t *at)
{
    return at[x->ndim - 1] - at[x->ndim - 2] >= a[1].i ? element(x, at) : -1;
}
WHOLE(tril) { return !i && moved(from_tril, a, 0, out); }
WHOLE(triu) { return !i && moved(from_triu, a, 0, out); }
static int64_t from_gather(const tp_val *a, const tp_tensor *x, const tp_tensor *out, int64_t *at)
{
    int d;
    if (!tensor_arg(&a[2]) || !x->ndim || !dim_wrap(a[1].i, x->ndim, &d, NULL))
        return -2;
    at[d] = (int64_t)get(a[2].t, element(out, at));
    return element(x, at);
}
WHOLE(gather) { return !i && moved(from_gather, a, 0, out); }
static int64_t from_select(const tp_val *a, const tp_tensor *x, const tp_tensor *out, int64_t *at)
{
    int d;
    if (!tensor_arg(&a[2]) || !x->ndim || !dim_wrap(a[1].i, x->ndim, &d, NULL))
        return -2;
    at[d] = (int64_t)get(a[2].t, at[d]);
    return element(x, at);
}
WHOLE(index_select) { return !i && moved(from_select, a, 0, out); }
WHOLE(embedding)
{
    const tp_tensor *w = tensor_arg(&a[0]), *n = tensor_arg(&a[1]);
    if (i || !w || !n || w->ndim != 2 || out->numel != n->numel * w->size[1])
        return false;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, get(w, (int64_t)get(n, k / w->size[1]) * w->size[1] + k % w->size[1]));
    return true;
}
static bool joined(const tp_val *a, bool stacked, tp_tensor *out)
{
    lines l, p;
    int64_t from = 0;
    if (a[0].kind != VAL_tensors || !lines_of(out, &a[1], &l))
        return false;
    for (int q = 0; q < a[0].n; q++) {
        const tp_tensor *x = a[0].ts[q];
        if (!x || (!stacked && x->ndim != out->ndim))
            return false;
        p = (lines){ l.outer, l.outer > 0 && l.inner > 0 ? x->numel / (l.outer * l.inner) : 0, l.inner };
        for (int64_t k = 0; k < x->numel; k++) {
            int64_t o = k / (p.n * p.inner), j = k / p.inner % p.n;
            if (from + j >= l.n)
                return false;
            put(out, (o * l.n + from + j) * l.inner + k % l.inner, get(x, k));
        }
        from += p.n;
    }
    return from == l.n;
}
WHOLE(cat) { return !i && joined(a, false, out); }
WHOLE(stack) { return !i && joined(a, true, out); }

/* ---- windows: (self, kernel, stride, padding, ...) of images ---- */
static int64_t pair(const tp_val *v, int d, int64_t none)
{
    return v->kind != VAL_ints || !v->n ? none : v->ints[v->n == 1 ? 0 : d];
}
static bool windows(const tp_val *a, bool max, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int nd = out->ndim;
    if (!x || x->ndim != nd || nd < 3)
        return false;
    int64_t k[2], step[2], pad[2], gap[2], h = x->size[nd - 2], w = x->size[nd - 1];
    for (int d = 0; d < 2; d++) {
        k[d] = pair(&a[1], d, 0), step[d] = pair(&a[2], d, k[d]), pad[d] = pair(&a[3], d, 0);
        gap[d] = max ? pair(&a[4], d, 1) : 1;
    }
    bool all = max || a[5].b;
    for (int64_t e = 0; e < out->numel; e++) {
        int64_t c = e % out->size[nd - 1], r = e / out->size[nd - 1] % out->size[nd - 2],
                plane = e / (out->size[nd - 1] * out->size[nd - 2]), count = 0;
        double v = max ? -INFINITY : 0;
        for (int64_t q = 0; q < k[0] * k[1]; q++) {
            int64_t y = r * step[0] - pad[0] + q / k[1] * gap[0],
                    z = c * step[1] - pad[1] + q % k[1] * gap[1];
            bool in = y >= 0 && y < h && z >= 0 && z < w;
            count += in || (all && y < h + pad[0] && z < w + pad[1]);
            double s = in ? get(x, (plane * h + y) * w + z) : 0;
            v = !in ? v : !max ? v + s : isnan(s) || isnan(v) ? NAN : fmax(v, s);
        }
        put(out, e, max ? v : v / (a[6].kind == VAL_int ? (double)a[6].i : (double)count));
    }
    return true;
}
WHOLE(max_pool2d) { return !i && windows(a, true, out); }
WHOLE(avg_pool2d) { return !i && windows(a, false, out); }

/* ---- products ---- */
enum { MOST_PRODUCTS = 1 << 21 };
/* out = beta c + alpha x y of matrices in batches, y turned where asked */
static bool products(const tp_tensor *x, const tp_tensor *y, bool turned, const tp_tensor *c, double alpha,
                     double beta, tp_tensor *out)
{
    if (!x || !y || x->ndim < 2 || y->ndim < 2 || out->ndim < 2 || !x->numel || !y->numel)
        return false;
    int64_t m = out->size[out->ndim - 2], n = out->size[out->ndim - 1], k = x->size[x->ndim - 1],
            batch = out->numel / MAX(m * n, 1), by = y->numel / (k * n);
    if (y->size[y->ndim - (turned ? 1 : 2)] != k || x->numel != batch * m * k || (by != 1 && by != batch) ||
        batch * m * n * k > MOST_PRODUCTS || (c && !truth_spreads(c, out)))
        return false;
    for (int64_t e = 0; e < out->numel; e++) {
        int64_t b = e / (m * n), r = e / n, q = e % n;
        double s = 0;
        for (int64_t j = 0; j < k; j++)
            s += get(x, r * k + j) * get(y, (by == 1 ? 0 : b) * k * n + (turned ? q * k + j : j * n + q));
        put(out, e, alpha * s + (c ? beta * get(c, truth_spread(c, out, e)) : 0));
    }
    return true;
}
WHOLE(mm) { return !i && products(tensor_arg(&a[0]), tensor_arg(&a[1]), false, NULL, 1, 0, out); }
WHOLE(linear)
{
    return !i && products(tensor_arg(&a[0]), tensor_arg(&a[1]), true, tensor_arg(&a[2]), 1, 1, out);
}
WHOLE(addmm)
{
    return !i && products(tensor_arg(&a[1]), tensor_arg(&a[2]), false, tensor_arg(&a[0]), number(&a[4], 1),
                          number(&a[3], 1), out);
}
/* (query, key, value, mask, dropout, causal, scale) */
WHOLE(attention)
{
    const tp_tensor *q = tensor_arg(&a[0]), *k = tensor_arg(&a[1]), *v = tensor_arg(&a[2]),
                    *mask = tensor_arg(&a[3]);
    if (i || !q || !k || !v || q->ndim < 3 || k->ndim != q->ndim || v->ndim != q->ndim ||
        number(&a[4], 0) != 0 || mask)
        return false;
    int nd = q->ndim;
    int64_t m = q->size[nd - 2], e = q->size[nd - 1], n = k->size[nd - 2], f = v->size[nd - 1],
            batch = q->numel / MAX(m * e, 1);
    if (k->numel != batch * n * e || v->numel != batch * n * f || out->numel != batch * m * f ||
        batch * m * n * (e + f) > MOST_PRODUCTS || !n)
        return false;
    double scale = number(&a[6], 1 / sqrt((double)e)), *p = mem_alloc(sizeof *p * (size_t)n);
    for (int64_t r = 0; r < batch * m; r++) {
        int64_t b = r / m, last = a[5].b ? MIN(r % m + 1, n) : n;
        double top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < last; j++) {
            p[j] = 0;
            for (int64_t d = 0; d < e; d++)
                p[j] += get(q, r * e + d) * get(k, (b * n + j) * e + d) * scale;
            top = fmax(top, p[j]);
        }
        for (int64_t j = 0; j < last; j++)
            sum += p[j] = exp(p[j] - top);
        for (int64_t d = 0; d < f; d++) {
            double s = 0;
            for (int64_t j = 0; j < last; j++)
                s += p[j] / sum * get(v, (b * n + j) * f + d);
            put(out, r * f + d, s);
        }
    }
    free(p);
    return true;
}
WHOLE(glu)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    lines l;
    if (i || !lines_of(x, &a[1], &l) || l.n % 2 || out->numel * 2 != x->numel)
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        int64_t at = k / (l.n / 2 * l.inner) * l.n * l.inner + k % (l.n / 2 * l.inner);
        put(out, k, get(x, at) / (1 + exp(-get(x, at + l.n / 2 * l.inner))));
    }
    return true;
}

static whole_fn *const whole[OP_COUNT] = {
    [OP_binary_cross_entropy] = whole_bce,
    [OP_binary_cross_entropy_with_logits] = whole_bce_logits,
    [OP_kl_div] = whole_kl_div,
    [OP_soft_margin_loss] = whole_soft_margin,
    [OP_hinge_embedding_loss] = whole_hinge,
    [OP_margin_ranking_loss] = whole_ranking,
    [OP_poisson_nll_loss] = whole_poisson,
    [OP_cross_entropy_loss] = whole_cross_entropy,
    [OP_nll_loss_nd] = whole_nll,
    [OP_nll_loss] = whole_nll,
    [OP_layer_norm] = whole_layer_norm,
    [OP_native_layer_norm] = whole_layer_norm,
    [OP_rms_norm] = whole_rms_norm,
    [OP_group_norm] = whole_group_norm,
    [OP_batch_norm] = whole_batch_norm,
    [OP_native_batch_norm] = whole_native_batch_norm,
    [OP_var_correction] = whole_var,
    [OP_var_dim] = whole_var,
    [OP_var] = whole_var_all,
    [OP_std_correction] = whole_std,
    [OP_std_dim] = whole_std,
    [OP_std] = whole_std_all,
    [OP_linalg_vector_norm] = whole_norm,
    [OP_norm_ScalarOpt_dim] = whole_norm,
    [OP_cumsum] = whole_cumsum,
    [OP_cumprod] = whole_cumprod,
    [OP_sort] = whole_sort,
    [OP_topk] = whole_topk,
    [OP_mode] = whole_mode,
    [OP_median_dim] = whole_median_dim,
    [OP_max_dim] = whole_max_dim,
    [OP_min_dim] = whole_min_dim,
    [OP_flip] = whole_flip,
    [OP_roll] = whole_roll,
    [OP_repeat] = whole_repeat,
    [OP_constant_pad_nd] = whole_pad,
    [OP_reflection_pad1d] = whole_mirror,
    [OP_reflection_pad2d] = whole_mirror,
    [OP_replication_pad1d] = whole_edge,
    [OP_replication_pad2d] = whole_edge,
    [OP_tril] = whole_tril,
    [OP_triu] = whole_triu,
    [OP_gather] = whole_gather,
    [OP_index_select] = whole_index_select,
    [OP_embedding] = whole_embedding,
    [OP_cat] = whole_cat,
    [OP_stack] = whole_stack,
    [OP_max_pool2d] = whole_max_pool2d,
    [OP_avg_pool2d] = whole_avg_pool2d,
    [OP_mm] = whole_mm,
    [OP_bmm] = whole_mm,
    [OP_matmul] = whole_mm,
    [OP_linear] = whole_linear,
    [OP_addmm] = whole_addmm,
    [OP_baddbmm] = whole_addmm,
    [OP_scaled_dot_product_attention] = whole_attention,
    [OP_glu] = whole_glu,
};

bool truth_nn(op_id op, const tp_val *arg, int i, tp_tensor *out)
{
    return whole[op] && whole[op](arg, i, out);
}
