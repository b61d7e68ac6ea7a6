/* columns_truth_parts.c - what operators mean that eager runs as several others: products of two operands, distances, shuffles of
 * channels. By plain loops in float64; shares no code with decompositions and eager kernels. */
#include "debug/truth.h"
#include "debug/truth_loops.h"

typedef bool parts_fn(const tp_val *a, tp_tensor *out);
#define PARTS(name) static bool parts_##name(const tp_val *a, tp_tensor *out)

/* ---- products ---- */
PARTS(outer)
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]);
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, get(x, k / y->numel) * get(y, k % y->numel));
    return true;
}
PARTS(addr)
{
    const tp_tensor *s = tensor_arg(&a[0]), *x = tensor_arg(&a[1]), *y = tensor_arg(&a[2]);
    double beta = number(&a[3], 1), alpha = number(&a[4], 1);
    if (!truth_spreads(s, out))
        return false;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k,
            (beta == 0 ? 0 : beta * get(s, truth_spread(s, out, k))) +
                alpha * get(x, k / y->numel) * get(y, k % y->numel));
    return true;
}
PARTS(addmv)
{
    const tp_tensor *s = tensor_arg(&a[0]), *m = tensor_arg(&a[1]), *v = tensor_arg(&a[2]);
    double beta = number(&a[3], 1), alpha = number(&a[4], 1);
    if (!truth_spreads(s, out))
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        double sum = 0;
        for (int64_t j = 0; j < v->numel; j++)
            sum += get(m, k * v->numel + j) * get(v, j);
        put(out, k, (beta == 0 ? 0 : beta * get(s, truth_spread(s, out, k))) + alpha * sum);
    }
    return true;
}
PARTS(addbmm)
{
    const tp_tensor *s = tensor_arg(&a[0]), *x = tensor_arg(&a[1]), *y = tensor_arg(&a[2]);
    double beta = number(&a[3], 1), alpha = number(&a[4], 1);
    int64_t n = x->size[1], m = x->size[2], p = y->size[2];
    if (!truth_spreads(s, out))
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        double sum = 0;
        for (int64_t b = 0; b < x->size[0]; b++)
            for (int64_t j = 0; j < m; j++)
                sum += get(x, (b * n + k / p) * m + j) * get(y, (b * m + j) * p + k % p);
        put(out, k, (beta == 0 ? 0 : beta * get(s, truth_spread(s, out, k))) + alpha * sum);
    }
    return true;
}
PARTS(trace)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    double sum = 0;
    for (int64_t i = 0; i < MIN(x->size[0], x->size[1]); i++)
        sum += get(x, i * x->size[1] + i);
    put(out, 0, sum);
    return true;
}
PARTS(vdot)
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]);
    double sum = 0;
    for (int64_t i = 0; i < x->numel; i++)
        sum += get(x, i) * get(y, i);
    put(out, 0, sum);
    return true;
}
PARTS(inner) /* of the last dimensions, all with all */
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]);
    int64_t n = x->ndim ? x->size[x->ndim - 1] : 0, many = n ? y->numel / n : 0;
    if (!n || !y->ndim || !many)
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += get(x, k / many * n + j) * get(y, k % many * n + j);
        put(out, k, sum);
    }
    return true;
}
PARTS(vecdot)
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]);
    lines l;
    if (!tensor_same_size(x, y) || !lines_of(x, &a[2], &l))
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        double sum = 0;
        for (int64_t j = 0; j < l.n; j++) {
            int64_t e = (k / l.inner * l.n + j) * l.inner + k % l.inner;
            sum += get(x, e) * get(y, e);
        }
        put(out, k, sum);
    }
    return true;
}
PARTS(kron)
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]);
    int64_t at[TP_MAX_DIMS], in[2][TP_MAX_DIMS];
    int n = out->ndim;
    for (int64_t k = 0; k < out->numel; k++) {
        index_of(out, k, at);
        for (int d = 0; d < n; d++) {
            int dx = d - (n - x->ndim), dy = d - (n - y->ndim);
            int64_t q = dy >= 0 ? y->size[dy] : 1;
            if (dx >= 0)
                in[0][dx] = at[d] / q;
            if (dy >= 0)
                in[1][dy] = at[d] % q;
        }
        put(out, k, get(x, element(x, in[0])) * get(y, element(y, in[1])));
    }
    return true;
}
static bool cross_along(const tp_val *a, int d, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]);
    int64_t at[TP_MAX_DIMS];
    if (!tensor_same_size(x, y) || !tensor_same_size(x, out) || x->size[d] != 3)
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        index_of(out, k, at);
        int64_t i = at[d];
        at[d] = (i + 1) % 3;
        int64_t p = element(x, at);
        at[d] = (i + 2) % 3;
        int64_t q = element(x, at);
        put(out, k, get(x, p) * get(y, q) - get(x, q) * get(y, p));
    }
    return true;
}
PARTS(cross)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int d = 0;
    if (a[2].kind == VAL_none)
        while (d < x->ndim && x->size[d] != 3)
            d++;
    else if (!dim_wrap(a[2].i, x->ndim, &d, NULL))
        return false;
    return d < x->ndim && cross_along(a, d, out);
}
PARTS(bilinear)
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]), *w = tensor_arg(&a[2]),
                    *bias = tensor_arg(&a[3]);
    int64_t o = w->size[0], p = w->size[1], q = w->size[2];
    for (int64_t k = 0; k < out->numel; k++) {
        double sum = bias ? get(bias, k % o) : 0;
        for (int64_t i = 0; i < p; i++)
            for (int64_t j = 0; j < q; j++)
                sum += get(x, k / o * p + i) * get(w, (k % o * p + i) * q + j) * get(y, k / o * q + j);
        put(out, k, sum);
    }
    return true;
}

/* ---- distances ---- */
static double norm_of(double p, double n, double v) /* one more difference; n: those before */
{
    v = fabs(v);
    return p == 0 ? n + (v != 0) : isinf(p) ? fmax(n, v) : n + pow(v, p);
}
static double norm_end(double p, double n) { return p == 0 || isinf(p) ? n : pow(n, 1 / p); }
PARTS(cdist)
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]);
    double p = number(&a[2], 2);
    if (x->ndim < 2 || x->ndim != y->ndim || p < 0)
        return false;
    int64_t r = x->size[x->ndim - 2], s = y->size[y->ndim - 2], m = x->size[x->ndim - 1];
    if (!r || !s || x->numel * s != y->numel * r) /* batches that are spread: not here */
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        double n = 0;
        for (int64_t j = 0; j < m; j++)
            n = norm_of(p, n, get(x, k / s * m + j) - get(y, (k / (r * s) * s + k % s) * m + j));
        put(out, k, norm_end(p, n));
    }
    return true;
}
PARTS(pdist)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    double p = number(&a[1], 2);
    int64_t k = 0, m = x->size[1];
    for (int64_t r = 0; r < x->size[0] && p >= 0; r++)
        for (int64_t s = r + 1; s < x->size[0]; s++) {
            double n = 0;
            for (int64_t j = 0; j < m; j++)
                n = norm_of(p, n, get(x, r * m + j) - get(x, s * m + j));
            put(out, k++, norm_end(p, n));
        }
    return p >= 0;
}
PARTS(pairwise_distance)
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]);
    double p = number(&a[2], 2), eps = number(&a[3], 1e-6);
    int64_t m = x->ndim ? x->size[x->ndim - 1] : 0;
    if (!m || !tensor_same_size(x, y) || p < 0)
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        double n = 0;
        for (int64_t j = 0; j < m; j++)
            n = norm_of(p, n, get(x, k * m + j) - get(y, k * m + j) + eps);
        put(out, k, norm_end(p, n));
    }
    return true;
}
PARTS(dist)
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]);
    double p = number(&a[2], 2), n = 0;
    if (!tensor_same_size(x, y) || p < 0)
        return false;
    for (int64_t k = 0; k < x->numel; k++)
        n = norm_of(p, n, get(x, k) - get(y, k));
    put(out, 0, norm_end(p, n));
    return true;
}
PARTS(cosine_similarity)
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]);
    double eps = number(&a[3], 1e-8);
    lines l;
    if (!tensor_same_size(x, y) || !lines_of(x, &a[2], &l))
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        double xy = 0, xx = 0, yy = 0;
        for (int64_t j = 0; j < l.n; j++) {
            int64_t e = (k / l.inner * l.n + j) * l.inner + k % l.inner;
            xy += get(x, e) * get(y, e);
            xx += get(x, e) * get(x, e);
            yy += get(y, e) * get(y, e);
        }
        put(out, k, xy / (fmax(sqrt(xx), eps) * fmax(sqrt(yy), eps)));
    }
    return true;
}

/* ---- what only moves ---- */
PARTS(pixel_shuffle)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int64_t r = a[1].i, at[TP_MAX_DIMS];
    int d = x->ndim - 3;
    if (d < 0 || out->ndim != x->ndim || r < 1)
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        index_of(out, k, at);
        at[d] = (at[d] * r + at[d + 1] % r) * r + at[d + 2] % r;
        at[d + 1] /= r;
        at[d + 2] /= r;
        put(out, k, get(x, element(x, at)));
    }
    return true;
}
PARTS(pixel_unshuffle)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int64_t r = a[1].i, at[TP_MAX_DIMS];
    int d = x->ndim - 3;
    if (d < 0 || out->ndim != x->ndim || r < 1)
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        index_of(out, k, at);
        at[d + 1] = at[d + 1] * r + at[d] / r % r;
        at[d + 2] = at[d + 2] * r + at[d] % r;
        at[d] /= r * r;
        put(out, k, get(x, element(x, at)));
    }
    return true;
}
PARTS(channel_shuffle)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int64_t g = a[1].i, at[TP_MAX_DIMS];
    if (x->ndim < 3 || g < 1 || !tensor_same_size(x, out))
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        index_of(out, k, at);
        at[1] = at[1] % g * (x->size[1] / g) + at[1] / g;
        put(out, k, get(x, element(x, at)));
    }
    return true;
}
PARTS(tile)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int64_t at[TP_MAX_DIMS];
    int lead = out->ndim - x->ndim;
    for (int64_t k = 0; k < out->numel; k++) {
        index_of(out, k, at);
        for (int d = 0; d < x->ndim; d++)
            at[d] = at[d + lead] % x->size[d];
        put(out, k, get(x, element(x, at)));
    }
    return x->numel != 0;
}
PARTS(rot90)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int p, q;
    int64_t turns = ((a[1].i % 4) + 4) % 4, at[TP_MAX_DIMS];
    if (a[2].kind != VAL_ints || a[2].n != 2 || !dim_wrap(a[2].ints[0], x->ndim, &p, NULL) ||
        !dim_wrap(a[2].ints[1], x->ndim, &q, NULL) || out->ndim != x->ndim)
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        index_of(out, k, at);
        int64_t i = at[p], j = at[q];
        at[p] = turns == 0 ? i : turns == 1 ? j : turns == 2 ? x->size[p] - 1 - i : x->size[p] - 1 - j;
        at[q] = turns == 0 ? j : turns == 1 ? x->size[q] - 1 - i : turns == 2 ? x->size[q] - 1 - j : i;
        put(out, k, get(x, element(x, at)));
    }
    return true;
}

/* ---- normalisation of each channel of each image ---- */
PARTS(instance_norm)
{
    const tp_tensor *x = tensor_arg(&a[0]), *w = tensor_arg(&a[1]), *b = tensor_arg(&a[2]);
    bool own = a[5].kind == VAL_bool && a[5].b;
    int64_t c = x->ndim > 1 ? x->size[1] : 0, n = c && x->size[0] ? x->numel / (x->size[0] * c) : 0;
    if (!own || !n || !tensor_same_size(x, out))
        return false;
    for (int64_t k = 0; k < x->numel; k += n) {
        double mean = 0, var = 0;
        for (int64_t j = 0; j < n; j++)
            mean += get(x, k + j) / (double)n;
        for (int64_t j = 0; j < n; j++)
            var += (get(x, k + j) - mean) * (get(x, k + j) - mean) / (double)n;
        for (int64_t j = 0; j < n; j++)
            put(out, k + j,
                (get(x, k + j) - mean) / sqrt(var + number(&a[7], 1e-5)) * (w ? get(w, k / n % c) : 1) +
                    (b ? get(b, k / n % c) : 0));
    }
    return true;
}

static parts_fn *const parts[OP_COUNT] = {
    [OP_outer] = parts_outer,
    [OP_addr] = parts_addr,
    [OP_addmv] = parts_addmv,
    [OP_addbmm] = parts_addbmm,
    [OP_trace] = parts_trace,
    [OP_vdot] = parts_vdot,
    [OP_inner] = parts_inner,
    [OP_linalg_vecdot] = parts_vecdot,
    [OP_kron] = parts_kron,
    [OP_cross] = parts_cross,
    [OP_linalg_cross] = parts_cross,
    [OP_bilinear] = parts_bilinear,
    [OP_cdist] = parts_cdist,
    [OP_pdist] = parts_pdist,
    [OP_pairwise_distance] = parts_pairwise_distance,
    [OP_dist] = parts_dist,
    [OP_cosine_similarity] = parts_cosine_similarity,
    [OP_pixel_shuffle] = parts_pixel_shuffle,
    [OP_pixel_unshuffle] = parts_pixel_unshuffle,
    [OP_channel_shuffle] = parts_channel_shuffle,
    [OP_tile] = parts_tile,
    [OP_rot90] = parts_rot90,
    [OP_instance_norm] = parts_instance_norm,
};

/* Formulas of large operands take long. */
static bool small(op_id op, const tp_val *a, const tp_tensor *out)
{
    double work = (double)out->numel;
    for (int i = 0; i < op_row_of(op)->schema.nparam; i++)
        if (a[i].kind == VAL_tensor && a[i].t && i < 3)
            work = fmax(work, (double)out->numel * (double)MIN(a[i].t->numel, 4096));
    return work < 1 << 26;
}

bool truth_parts(op_id op, const tp_val *a, int i, tp_tensor *out)
{
    if (i || !parts[op] || !small(op, a, out))
        return false;
    for (int k = 0; k < op_row_of(op)->schema.nparam; k++) /* other types of operands have other rules */
        if (a[k].kind == VAL_tensor && a[k].t && a[k].t->dt != DT_f64)
            return false;
    return tensor_arg(&a[0]) && parts[op](a, out);
}

/* ---- complex numbers made of real ones ---- */
tp_tensor *truth_pair(op_id op, const tp_val *a, const tp_tensor *like)
{
    const tp_tensor *x = tensor_arg(&a[0]), *y = tensor_arg(&a[1]);
    if ((op != OP_polar && op != OP_complex) || !x || !y || x->dt != DT_f64 || y->dt != DT_f64 ||
        like->dt != DT_c128 || !truth_spreads(x, like) || !truth_spreads(y, like))
        return NULL;
    tp_tensor *r = tensor_new(DT_c128, like->ndim, like->size, NULL);
    for (int64_t k = 0; r && k < like->numel; k++) {
        double p = get(x, truth_spread(x, like, k)), q = get(y, truth_spread(y, like, k));
        double v[2] = { op == OP_polar ? p * cos(q) : p, op == OP_polar ? p * sin(q) : q };
        elem_set_c(DT_c128, tensor_elem(r, k), v);
    }
    return r;
}

/* ---- where fractional pooling finds its maxima ---- */
/* The start of window i of n along a dimension of `in`. */
static int64_t start_of(double sample, int64_t in, int64_t n, int64_t width, int64_t i)
{
    double step = n > 1 ? (double)(in - width) / (double)(n - 1) : 0;
    return i == n - 1 ? in - width
                      : (int64_t)floor(((double)i + sample) * step) - (int64_t)floor(sample * step);
}
/* Whether element e lies in the window of out element k and is the first of the largest, or the first NaN: then 1. */
bool truth_pooled_places(op_id op, const tp_val *a, int i, tp_tensor *out)
{
    const tp_tensor *x = op == OP__fractional_places ? tensor_arg(&a[0]) : NULL,
                    *u = x ? tensor_arg(&a[3]) : NULL;
    if (i || !x || !u || a[1].n != 2 || x->ndim < 2)
        return false;
    int64_t h = x->size[x->ndim - 2], w = x->size[x->ndim - 1], oh = a[2].ints[0], ow = a[2].ints[1];
    for (int64_t k = 0; k < out->numel; k++) {
        int64_t plane = k / (oh * ow), best = -1;
        int64_t top = start_of(get(u, plane * 2 + 1), h, oh, a[1].ints[0], k / ow % oh),
                left = start_of(get(u, plane * 2), w, ow, a[1].ints[1], k % ow);
        for (int64_t p = 0; p < a[1].ints[0] * a[1].ints[1]; p++) {
            int64_t e = (top + p / a[1].ints[1]) * w + left + p % a[1].ints[1];
            double v = get(x, plane * h * w + e), most = best < 0 ? 0 : get(x, plane * h * w + best);
            if (best < 0 || v > most || isnan(v)) /* the last NaN */
                best = e;
        }
        put(out, k, (double)best);
    }
    return true;
}
