/* columns_truth_index.c - what orders, searches, scatters, resizing and rows that make tensors of numbers mean, by plain loops over
 * indices in float64: shares no code with eager kernels, decompositions and lowerings. */
#include "debug/truth.h"
#include "debug/truth_loops.h"

/* Result i of a call, into out; false: this form of it is not known here. In integers NaN: that element is not said. */
typedef bool index_fn(const tp_val *a, int i, tp_tensor *out);
#define INDEX(name) static bool index_##name(const tp_val *a, int i, tp_tensor *out)

/* ---- orders: where the elements of a sorted line come from ---- */
typedef struct keyed {
    double v;
    int64_t at;
} keyed;
static int by_value(const void *p, const void *q)
{
    const keyed *x = p, *y = q;
    int c = rising(&x->v, &y->v);
    return c ? c : (x->at > y->at) - (x->at < y->at);
}
static int by_value_down(const void *p, const void *q)
{
    const keyed *x = p, *y = q;
    int c = rising(&y->v, &x->v);
    return c ? c : (x->at > y->at) - (x->at < y->at);
}
static bool same_value(double x, double y) { return x == y || (isnan(x) && isnan(y)); }

/* The first `keep` of each sorted line from `from` on; equal ones stand in their order where that is promised. */
static bool places_of(const tp_tensor *x, const tp_val *dim, bool down, int64_t from, int64_t keep,
                      bool stable, tp_tensor *out)
{
    lines l;
    if (!lines_of(x, dim, &l) || !x->numel || from < 0 || keep < 0 || from + keep > l.n ||
        out->numel != l.outer * l.inner * keep)
        return false;
    keyed *v = mem_alloc(sizeof *v * (size_t)l.n);
    for (int64_t k = 0; k < l.outer * l.inner; k++) {
        for (int64_t j = 0; j < l.n; j++)
            v[j] = (keyed){ get(x, (k / l.inner * l.n + j) * l.inner + k % l.inner), j };
        qsort(v, (size_t)l.n, sizeof *v, down ? by_value_down : by_value);
        for (int64_t j = from; j < from + keep; j++) {
            bool tie = (j && same_value(v[j].v, v[j - 1].v)) ||
                       (j + 1 < l.n && same_value(v[j].v, v[j + 1].v));
            put(out, (k / l.inner * keep + j - from) * l.inner + k % l.inner,
                tie && !stable ? NAN : (double)v[j].at);
        }
    }
    free(v);
    return true;
}
static int64_t line_size(const tp_val *a, const tp_val *dim)
{
    lines l;
    return lines_of(tensor_arg(&a[0]), dim, &l) ? l.n : -1;
}
INDEX(sort)
{
    return i == 1 && places_of(tensor_arg(&a[0]), &a[1], a[2].b, 0, line_size(a, &a[1]), false, out);
}
INDEX(sort_stable)
{
    bool stable = a[1].kind == VAL_bool && a[1].b;
    return i == 1 && places_of(tensor_arg(&a[0]), &a[2], a[3].b, 0, line_size(a, &a[2]), stable, out);
}
INDEX(argsort)
{
    return !i && places_of(tensor_arg(&a[0]), &a[1], a[2].b, 0, line_size(a, &a[1]), false, out);
}
INDEX(argsort_stable)
{
    return !i && places_of(tensor_arg(&a[0]), &a[2], a[3].b, 0, line_size(a, &a[2]), a[1].b, out);
}
INDEX(topk) { return i == 1 && a[4].b && places_of(tensor_arg(&a[0]), &a[2], a[3].b, 0, a[1].i, false, out); }
INDEX(max_dim) { return i == 1 && places_of(tensor_arg(&a[0]), &a[1], true, 0, 1, false, out); }
INDEX(kthvalue) { return i == 1 && places_of(tensor_arg(&a[0]), &a[2], false, a[1].i - 1, 1, false, out); }

/* The values of the same, which are always said. */
static bool values_of(const tp_tensor *x, const tp_val *dim, bool down, int64_t from, tp_tensor *out)
{
    lines l;
    bool ok = places_of(x, dim, down, from,
                        lines_of(x, dim, &l) ? out->numel / MAX(l.outer * l.inner, 1) : -1, true, out);
    int64_t keep = ok ? out->numel / (l.outer * l.inner) : 0;
    for (int64_t k = 0; ok && k < out->numel; k++)
        put(out, k, get(x, (k / (keep * l.inner) * l.n + (int64_t)get(out, k)) * l.inner + k % l.inner));
    return ok;
}
INDEX(sort_stable_values) { return !i && values_of(tensor_arg(&a[0]), &a[2], a[3].b, 0, out); }
INDEX(kth) { return !i && values_of(tensor_arg(&a[0]), &a[2], false, a[1].i - 1, out); }
/* of all elements */
static bool of_all(const tp_val *a, int64_t which, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    double *v = x && x->numel && out->numel == 1 ? mem_alloc(sizeof *v * (size_t)x->numel) : NULL;
    for (int64_t k = 0; v && k < x->numel; k++)
        v[k] = get(x, k);
    if (v)
        qsort(v, (size_t)x->numel, sizeof *v, rising);
    if (v && isnan(v[x->numel - 1])) /* NaN wins */
        which = x->numel - 1;
    if (v)
        put(out, 0, v[which]);
    free(v);
    return v != NULL;
}
static int64_t count_of(const tp_val *a) { return tensor_arg(&a[0]) ? a[0].t->numel : 0; }
INDEX(max_all) { return !i && of_all(a, count_of(a) - 1, out); }
INDEX(min_all) { return !i && of_all(a, 0, out); }
INDEX(median) { return !i && of_all(a, (count_of(a) - 1) / 2, out); }

/* ---- running extremes ---- */
static bool running(const tp_val *a, bool max, bool where, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    lines l;
    if (!lines_of(x, &a[1], &l) || out->numel != x->numel)
        return false;
    for (int64_t k = 0; k < l.outer * l.inner; k++) {
        double best = 0;
        int64_t from = 0;
        for (int64_t j = 0; j < l.n; j++) {
            int64_t at = (k / l.inner * l.n + j) * l.inner + k % l.inner;
            double v = get(x, at);
            if (!j || isnan(v) || (!isnan(best) && (max ? v >= best : v <= best)))
                best = v, from = j;
            put(out, at, where ? (double)from : best);
        }
    }
    return true;
}
INDEX(cummax) { return !i && running(a, true, false, out); }
INDEX(cummin) { return !i && running(a, false, false, out); }
INDEX(cummax_at) { return i == 1 && running(a, true, true, out); }
INDEX(cummin_at) { return i == 1 && running(a, false, true, out); }
INDEX(logcumsumexp)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    lines l;
    if (i || !lines_of(x, &a[1], &l) || out->numel != x->numel)
        return false;
    for (int64_t k = 0; k < l.outer * l.inner; k++) {
        double s = -INFINITY;
        for (int64_t j = 0; j < l.n; j++) {
            int64_t at = (k / l.inner * l.n + j) * l.inner + k % l.inner;
            double v = get(x, at), top = fmax(s, v);
            s = isinf(top) ? top : top + log(exp(s - top) + exp(v - top));
            put(out, at, isnan(v) ? s = v : s);
        }
    }
    return true;
}
INDEX(nansum)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    uint32_t mask = 0;
    int d;
    if (i || !x || !x->ndim || !out->numel)
        return false;
    for (int k = 0; a[1].kind == VAL_ints && k < a[1].n; k++)
        if (dim_wrap(a[1].ints[k], x->ndim, &d, NULL))
            mask |= 1u << d;
    mask = mask ? mask : (1u << x->ndim) - 1;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, 0);
    for (int64_t k = 0; k < x->numel; k++) {
        int64_t at[TP_MAX_DIMS], to = 0;
        index_of(x, k, at);
        for (int e = 0; e < x->ndim; e++)
            to = mask >> e & 1 ? to : to * x->size[e] + at[e];
        if (to >= out->numel)
            return false;
        put(out, to, get(out, to) + (isnan(get(x, k)) ? 0 : get(x, k)));
    }
    return true;
}

/* ---- searches ---- */
/* How many elements of a sorted line of n lie before v. */
static int64_t before(const tp_tensor *s, int64_t first, int64_t n, double v, bool right)
{
    int64_t k = 0;
    while (k < n && (right ? get(s, first + k) <= v : get(s, first + k) < v))
        k++;
    return isnan(v) ? n : k;
}
static bool searched(const tp_tensor *s, const tp_val *of, bool right, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(of);
    int64_t n = s && s->ndim ? s->size[s->ndim - 1] : 0, rows = n ? s->numel / n : 0;
    if (!rows || (x && x->numel != out->numel) || out->numel % rows)
        return false;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k,
            (double)before(s, s->ndim > 1 ? k / (out->numel / rows) * n : 0, n,
                           x ? get(x, k) : number(of, NAN), right));
    return true;
}
INDEX(searchsorted)
{
    bool right = a[3].kind == VAL_bool && a[3].b;
    if (a[4].kind == VAL_str)
        right = !strcmp(a[4].s, "right");
    return !i && !tensor_arg(&a[5]) && searched(tensor_arg(&a[0]), &a[1], right, out);
}
INDEX(bucketize) { return !i && searched(tensor_arg(&a[1]), &a[0], a[3].kind == VAL_bool && a[3].b, out); }
INDEX(isin)
{
    const tp_tensor *x = tensor_arg(&a[0]), *t = tensor_arg(&a[1]);
    if (i || (x && x->numel != out->numel) || (!t && !val_is_number(&a[1])))
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        double v = x ? get(x, k) : number(&a[0], NAN);
        bool in = !t && v == number(&a[1], NAN);
        for (int64_t j = 0; t && j < t->numel && !in; j++)
            in = get(t, j) == v;
        put(out, k, in != (a[3].kind == VAL_bool && a[3].b));
    }
    return true;
}
INDEX(histc)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    double lo = number(&a[2], 0), hi = number(&a[3], 0);
    if (i || !x || !x->numel || lo >= hi || out->numel != a[1].i)
        return false;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, 0);
    for (int64_t k = 0; k < x->numel; k++) {
        double v = get(x, k), at = (v - lo) / (hi - lo) * (double)out->numel;
        if (!(v >= lo && v <= hi))
            continue;
        if (fabs(at - rint(at)) < 1e-4 && rint(at) > 0 && rint(at) < (double)out->numel)
            return false; /* too near to an edge to say */
        int64_t b = MIN((int64_t)at, out->numel - 1);
        put(out, b, get(out, b) + 1);
    }
    return true;
}

/* ---- scatters: where several elements go to one place, nothing is said unless they are summed ---- */
typedef enum { PUT_over, PUT_add } put_kind;
/* Element k of src goes to the element of out at the same index, its place in `dim` by index. lines: index has one place a line. */
static bool scattered(const tp_val *a, const tp_val *from, put_kind how, bool by_line, double times,
                      tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]), *n = tensor_arg(&a[2]), *src = tensor_arg(from);
    int d;
    int64_t at[TP_MAX_DIMS];
    if (!x || !x->ndim || !n || x->numel != out->numel || a[1].kind != VAL_int ||
        !dim_wrap(a[1].i, x->ndim, &d, NULL) || (!src && !val_is_number(from)) ||
        (by_line ? n->ndim != 1 || (src && src->ndim != x->ndim) : n->ndim != x->ndim))
        return false;
    uint8_t *hit = mem_zalloc((size_t)MAX(out->numel, 1));
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, get(x, k));
    const tp_tensor *walk = by_line && src ? src : n;
    bool ok = !by_line || src;
    for (int64_t k = 0; ok && k < walk->numel; k++) {
        index_of(walk, k, at);
        int64_t from_at = src ? element(src, at) : 0, to = (int64_t)get(n, by_line ? at[d] : k);
        to += to < 0 ? x->size[d] : 0;
        ok = to >= 0 && to < x->size[d] && (!src || from_at < src->numel);
        at[d] = to;
        if (!ok)
            break;
        int64_t e = element(out, at);
        double v = times * (src ? get(src, from_at) : number(from, NAN)), was = get(out, e);
        ok = how == PUT_add || !hit[e] || was == v; /* else the last of them, whichever that is */
        put(out, e, how == PUT_add ? was + v : v);
        hit[e] = 1;
    }
    free(hit);
    return ok;
}
INDEX(scatter) { return !i && scattered(a, &a[3], PUT_over, false, 1, out); }
INDEX(scatter_add) { return !i && scattered(a, &a[3], PUT_add, false, 1, out); }
INDEX(index_add) { return !i && scattered(a, &a[3], PUT_add, true, number(&a[4], 1), out); }
INDEX(index_copy) { return !i && scattered(a, &a[3], PUT_over, true, 1, out); }
INDEX(index_fill)
{
    const tp_tensor *x = tensor_arg(&a[0]), *n = tensor_arg(&a[2]);
    lines l;
    if (i || !lines_of(x, &a[1], &l) || !n || !val_is_number(&a[3]) || out->numel != x->numel)
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        bool in = false;
        for (int64_t j = 0; j < n->numel && !in; j++)
            in = ((int64_t)get(n, j) + l.n) % l.n == k / l.inner % l.n;
        put(out, k, in ? number(&a[3], NAN) : get(x, k));
    }
    return true;
}
INDEX(take)
{
    const tp_tensor *x = tensor_arg(&a[0]), *n = tensor_arg(&a[1]);
    if (i || !x || !n || n->numel != out->numel || !x->numel)
        return false;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, get(x, ((int64_t)get(n, k) + x->numel) % x->numel));
    return true;
}
/* One index, of the first dimension, or a mask is not said: sizes depend on it. */
static const tp_tensor *only_index(const tp_val *v, const tp_tensor *x)
{
    const tp_tensor *n = v->kind == VAL_tensors && v->n >= 1 ? v->ts[0] : NULL;
    for (int k = 1; n && k < v->n; k++)
        n = v->ts[k] ? NULL : n;
    return n && x && x->ndim && dtype_is_int((dtype)n->dt) && n->dt != DT_u8 ? n : NULL;
}
INDEX(index)
{
    const tp_tensor *x = tensor_arg(&a[0]), *n = only_index(&a[1], x);
    int64_t row = n && x->size[0] ? x->numel / x->size[0] : 0;
    if (i || !row || out->numel != n->numel * row)
        return false;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, get(x, ((int64_t)get(n, k / row) + x->size[0]) % x->size[0] * row + k % row));
    return true;
}
INDEX(index_put)
{
    const tp_tensor *x = tensor_arg(&a[0]), *n = only_index(&a[1], x), *v = tensor_arg(&a[2]);
    int64_t row = n && x->size[0] ? x->numel / x->size[0] : 0;
    if (i || !row || !v || (v->numel != 1 && v->numel != n->numel * row) || out->numel != x->numel)
        return false;
    uint8_t *hit = mem_zalloc((size_t)MAX(out->numel, 1));
    bool said = true;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, get(x, k));
    for (int64_t k = 0; k < n->numel * row; k++) {
        int64_t e = ((int64_t)get(n, k / row) + x->size[0]) % x->size[0] * row + k % row;
        double is = get(v, v->numel == 1 ? 0 : k), was = get(out, e);
        said &= a[3].b || !hit[e] || was == is;
        put(out, e, a[3].b ? was + is : is);
        hit[e] = 1;
    }
    free(hit);
    return said;
}
INDEX(mv)
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]);
    int64_t k = y && y->ndim == 1 ? y->numel : 0;
    if (i || !x || !k || x->numel != out->numel * k)
        return false;
    for (int64_t r = 0; r < out->numel; r++) {
        double s = 0;
        for (int64_t j = 0; j < k; j++)
            s += get(x, r * k + j) * get(y, j);
        put(out, r, s);
    }
    return true;
}

/* ---- resizing: each result element is a weighted sum of a few elements along each side ---- */
typedef enum { BY_nearest, BY_exact, BY_line, BY_cube } resize_kind;
static double keys_cubic(double x) /* with a = -3/4, by its definition in pieces */
{
    x = fabs(x);
    return x <= 1  ? 1.25 * x * x * x - 2.25 * x * x + 1
           : x < 2 ? -0.75 * x * x * x + 3.75 * x * x - 6 * x + 3
                   : 0;
}
/* Taps of result place p of a side: at most 4, their places and weights. */
static int taps(resize_kind how, int64_t in, int64_t n, int64_t p, bool align, const tp_val *scale,
                int64_t *at, double *w)
{
    double by = number(scale, 0) > 0 ? 1 / number(scale, 0) : (double)in / (double)n;
    if (how == BY_nearest || how == BY_exact) {
        double x = ((double)p + (how == BY_exact ? 0.5 : 0)) * by;
        if (fabs(x - rint(x)) < 1e-4 && x > 0.5 && by != rint(by) && by * (double)n != (double)in)
            return 0; /* rounding of places decides */
        at[0] = MIN(MAX((int64_t)floor(x + 1e-6), 0), in - 1);
        w[0] = 1;
        return 1;
    }
    double x = align ? (n > 1 ? (double)p * (double)(in - 1) / (double)(n - 1) : 0)
                     : ((double)p + 0.5) * by - 0.5;
    if (how == BY_line && x < 0)
        x = 0;
    int64_t k = (int64_t)floor(x);
    double r = x - (double)k;
    int64_t lo = how == BY_line ? k : k - 1;
    int many = how == BY_line ? 2 : 4;
    for (int j = 0; j < many; j++) {
        at[j] = MIN(MAX(lo + j, 0), in - 1);
        w[j] = how == BY_line ? (j ? r : 1 - r) : keys_cubic(r + 1 - j);
    }
    return many;
}
/* (self, output_size, [align_corners,] scales): the last one or two dimensions */
static bool resized(const tp_val *a, resize_kind how, int nd, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    bool aligned = how == BY_line || how == BY_cube;
    if (!x || x->ndim != nd + 2 || out->ndim != nd + 2 || !x->numel)
        return false;
    int64_t h = nd == 2 ? x->size[2] : 1, w = x->size[nd + 1], H = nd == 2 ? out->size[2] : 1,
            W = out->size[nd + 1];
    const tp_val *scale = &a[2 + aligned];
    for (int64_t k = 0; k < out->numel; k++) {
        int64_t plane = k / (H * W), at[2][4] = { { 0 }, { 0 } };
        double by[2][4] = { { 1 }, { 1 } }, sum = 0;
        bool align = aligned && a[2].b;
        int n = nd == 2 ? taps(how, h, H, k / W % H, align, scale, at[0], by[0]) : 1,
            m = taps(how, w, W, k % W, align, nd == 2 ? scale + 1 : scale, at[1], by[1]);
        for (int p = 0; p < n; p++)
            for (int q = 0; q < m; q++)
                sum += by[0][p] * by[1][q] * get(x, (plane * h + at[0][p]) * w + at[1][q]);
        if (!n || !m)
            return false;
        put(out, k, sum);
    }
    return true;
}
INDEX(nearest1d) { return !i && resized(a, BY_nearest, 1, out); }
INDEX(nearest2d) { return !i && resized(a, BY_nearest, 2, out); }
INDEX(exact2d) { return !i && resized(a, BY_exact, 2, out); }
INDEX(linear1d) { return !i && resized(a, BY_line, 1, out); }
INDEX(bilinear2d) { return !i && resized(a, BY_line, 2, out); }
INDEX(bicubic2d) { return !i && resized(a, BY_cube, 2, out); }
INDEX(adaptive_avg2d)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int nd = out->ndim;
    if (i || !x || nd < 3 || x->ndim != nd || !x->numel)
        return false;
    int64_t h = x->size[nd - 2], w = x->size[nd - 1], H = out->size[nd - 2], W = out->size[nd - 1];
    for (int64_t k = 0; k < out->numel; k++) {
        int64_t r = k / W % H, c = k % W, top = r * h / H, end = ((r + 1) * h + H - 1) / H, left = c * w / W,
                last = ((c + 1) * w + W - 1) / W;
        double s = 0;
        for (int64_t y = top; y < end; y++)
            for (int64_t z = left; z < last; z++)
                s += get(x, (k / (H * W) * h + y) * w + z);
        put(out, k, s / (double)((end - top) * (last - left)));
    }
    return true;
}

/* ---- made of numbers ---- */
static bool counted(double first, double step, tp_tensor *out)
{
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, first + (double)k * step);
    return !isnan(first) && !isnan(step);
}
INDEX(arange) { return !i && counted(0, 1, out); }
INDEX(arange_start) { return !i && counted(number(&a[0], NAN), 1, out); }
INDEX(arange_step) { return !i && counted(number(&a[0], NAN), number(&a[2], 1), out); }
INDEX(linspace)
{
    double from = number(&a[0], NAN), to = number(&a[1], NAN);
    return !i && !isnan(from) && !isnan(to) &&
           counted(from, out->numel > 1 ? (to - from) / (double)(out->numel - 1) : 0, out);
}
INDEX(eye)
{
    if (i || out->ndim != 2)
        return false;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, k / out->size[1] == k % out->size[1]);
    return true;
}
INDEX(full)
{
    double v = number(&a[1], NAN);
    return !i && !isnan(v) && counted(v, 0, out);
}
INDEX(zeros) { return !i && counted(0, 0, out); }
INDEX(ones) { return !i && counted(1, 0, out); }

/* Results of integers, counted among all. */
static index_fn *const places[OP_COUNT] = {
    [OP_sort] = index_sort,
    [OP_sort_stable] = index_sort_stable,
    [OP_argsort] = index_argsort,
    [OP_argsort_stable] = index_argsort_stable,
    [OP_topk] = index_topk,
    [OP_max_dim] = index_max_dim,
    [OP_kthvalue] = index_kthvalue,
    [OP_cummax] = index_cummax_at,
    [OP_cummin] = index_cummin_at,
    [OP_searchsorted_Tensor] = index_searchsorted,
    [OP_searchsorted_Scalar] = index_searchsorted,
    [OP_bucketize_Tensor] = index_bucketize,
    [OP_bucketize_Scalar] = index_bucketize,
    [OP_isin_Tensor_Tensor] = index_isin,
    [OP_isin_Tensor_Scalar] = index_isin,
    [OP_scatter_add] = index_scatter_add,
    [OP_index_add] = index_index_add,
    [OP_arange] = index_arange,
    [OP_arange_start] = index_arange_start,
    [OP_arange_start_step] = index_arange_step,
    [OP_eye] = index_eye,
    [OP_full] = index_full,
    [OP_zeros] = index_zeros,
    [OP_ones] = index_ones,
};
/* Results of floats, counted among those. */
static index_fn *const floats[OP_COUNT] = {
    [OP_sort_stable] = index_sort_stable_values,
    [OP_kthvalue] = index_kth,
    [OP_max] = index_max_all,
    [OP_min] = index_min_all,
    [OP_median] = index_median,
    [OP_cummax] = index_cummax,
    [OP_cummin] = index_cummin,
    [OP_logcumsumexp] = index_logcumsumexp,
    [OP_nansum] = index_nansum,
    [OP_histc] = index_histc,
    [OP_scatter_src] = index_scatter,
    [OP_scatter_value] = index_scatter,
    [OP_scatter_add] = index_scatter_add,
    [OP_index_add] = index_index_add,
    [OP_index_copy] = index_index_copy,
    [OP_index_fill_int_Scalar] = index_index_fill,
    [OP_index_Tensor] = index_index,
    [OP_index_put] = index_index_put,
    [OP_take] = index_take,
    [OP_mv] = index_mv,
    [OP_dot] = index_mv,
    [OP_upsample_nearest1d] = index_nearest1d,
    [OP_upsample_nearest2d] = index_nearest2d,
    [OP__upsample_nearest_exact2d] = index_exact2d,
    [OP_upsample_linear1d] = index_linear1d,
    [OP_upsample_bilinear2d] = index_bilinear2d,
    [OP_upsample_bicubic2d] = index_bicubic2d,
    [OP__adaptive_avg_pool2d] = index_adaptive_avg2d,
    [OP_arange] = index_arange,
    [OP_arange_start] = index_arange_start,
    [OP_arange_start_step] = index_arange_step,
    [OP_linspace] = index_linspace,
    [OP_eye] = index_eye,
    [OP_eye_m] = index_eye,
    [OP_full] = index_full,
    [OP_zeros] = index_zeros,
    [OP_ones] = index_ones,
};

bool truth_places(op_id op, const tp_val *arg, int i, tp_tensor *out)
{
    return places[op] && places[op](arg, i, out);
}
bool truth_index(op_id op, const tp_val *arg, int i, tp_tensor *out)
{
    return floats[op] && floats[op](arg, i, out);
}
