/* columns_truth_shape.c - what views, conversions, convolutions and matrix functions mean, by plain loops over indices in float64: shares
 * no code with eager kernels, shape rules, decompositions and lowerings. */
#include "debug/truth.h"
#include "debug/truth_loops.h"

typedef bool shape_fn(const tp_val *a, int i, tp_tensor *out);
#define SHAPE(name) static bool shape_##name(const tp_val *a, int i, tp_tensor *out)

/* ---- views: the element of the first argument that an index of the result shows; -1: none ---- */
typedef int64_t seen_fn(const tp_val *a, const tp_tensor *x, const tp_tensor *out, const int64_t *at);
static bool seen(seen_fn *from, const tp_val *a, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int64_t at[TP_MAX_DIMS];
    if (!x)
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        index_of(out, k, at);
        int64_t s = from(a, x, out, at);
        if (s < 0 || s >= x->numel)
            return false;
        put(out, k, get(x, s));
    }
    return true;
}
static int dim_of(const tp_val *v, int nd)
{
    int d;
    return v->kind == VAL_int && dim_wrap(v->i, nd, &d, NULL) ? d : -1;
}
static int64_t wrapped(int64_t i, int64_t n) { return i < 0 ? i + n : i; }

static int64_t seen_same(const tp_val *a, const tp_tensor *x, const tp_tensor *out, const int64_t *at)
{
    return x->numel == out->numel ? element(out, at) : -1;
}
static int64_t seen_expand(const tp_val *a, const tp_tensor *x, const tp_tensor *out, const int64_t *at)
{
    return truth_spreads(x, out) ? truth_spread(x, out, element(out, at)) : -1;
}
static int64_t seen_permute(const tp_val *a, const tp_tensor *x, const tp_tensor *out, const int64_t *at)
{
    int64_t to[TP_MAX_DIMS] = { 0 };
    int d;
    for (int k = 0; k < x->ndim; k++) {
        if (a[1].kind != VAL_ints || a[1].n != x->ndim || !dim_wrap(a[1].ints[k], x->ndim, &d, NULL))
            return -1;
        to[d] = at[k];
    }
    return element(x, to);
}
static int64_t swapped(const tp_tensor *x, int p, int q, const int64_t *at)
{
    int64_t to[TP_MAX_DIMS];
    memcpy(to, at, sizeof to);
    if (p < 0 || q < 0)
        return -1;
    to[p] = at[q], to[q] = at[p];
    return element(x, to);
}
static int64_t seen_transpose(const tp_val *a, const tp_tensor *x, const tp_tensor *out, const int64_t *at)
{
    return swapped(x, dim_of(&a[1], x->ndim), dim_of(&a[2], x->ndim), at);
}
static int64_t seen_t(const tp_val *a, const tp_tensor *x, const tp_tensor *out, const int64_t *at)
{
    return x->ndim < 2 ? element(x, at) : swapped(x, 0, 1, at);
}
static int64_t seen_select(const tp_val *a, const tp_tensor *x, const tp_tensor *out, const int64_t *at)
{
    int64_t to[TP_MAX_DIMS];
    int d = dim_of(&a[1], x->ndim);
    for (int k = 0; k < x->ndim && d >= 0; k++)
        to[k] = k == d ? wrapped(a[2].i, x->size[d]) : at[k - (k > d)];
    return d < 0 ? -1 : element(x, to);
}
static int64_t from_start(const tp_val *a, const tp_tensor *x, const int64_t *at, int64_t start, int64_t step)
{
    int64_t to[TP_MAX_DIMS];
    int d = dim_of(&a[1], x->ndim);
    memcpy(to, at, sizeof to);
    if (d < 0)
        return -1;
    to[d] = MIN(MAX(wrapped(start, x->size[d]), 0), x->size[d]) + at[d] * step;
    return to[d] < x->size[d] ? element(x, to) : -1;
}
static int64_t seen_slice(const tp_val *a, const tp_tensor *x, const tp_tensor *out, const int64_t *at)
{
    return from_start(a, x, at, a[2].kind == VAL_int ? a[2].i : 0, a[4].kind == VAL_int ? a[4].i : 1);
}
static int64_t seen_narrow(const tp_val *a, const tp_tensor *x, const tp_tensor *out, const int64_t *at)
{
    return a[2].kind == VAL_int ? from_start(a, x, at, a[2].i, 1) : -1;
}
static int64_t seen_diagonal(const tp_val *a, const tp_tensor *x, const tp_tensor *out, const int64_t *at)
{
    int64_t to[TP_MAX_DIMS], off = a[1].kind == VAL_int ? a[1].i : 0, last = at[out->ndim - 1];
    int p = dim_of(&a[2], x->ndim), q = dim_of(&a[3], x->ndim), n = 0;
    for (int k = 0; k < x->ndim && p >= 0 && q >= 0; k++)
        to[k] = k == p ? last + (off < 0 ? -off : 0) : k == q ? last + (off > 0 ? off : 0) : at[n++];
    return p < 0 || q < 0 || to[p] >= x->size[p] || to[q] >= x->size[q] ? -1 : element(x, to);
}
static int64_t seen_unfold(const tp_val *a, const tp_tensor *x, const tp_tensor *out, const int64_t *at)
{
    int64_t to[TP_MAX_DIMS];
    int d = dim_of(&a[1], x->ndim);
    memcpy(to, at, sizeof to);
    if (d < 0)
        return -1;
    to[d] = at[d] * a[3].i + at[x->ndim];
    return to[d] < x->size[d] ? element(x, to) : -1;
}
SHAPE(same) { return !i && seen(seen_same, a, out); }
SHAPE(expand) { return !i && seen(seen_expand, a, out); }
SHAPE(permute) { return !i && seen(seen_permute, a, out); }
SHAPE(transpose) { return !i && seen(seen_transpose, a, out); }
SHAPE(t) { return !i && seen(seen_t, a, out); }
SHAPE(select) { return !i && seen(seen_select, a, out); }
SHAPE(slice) { return !i && seen(seen_slice, a, out); }
SHAPE(narrow) { return !i && seen(seen_narrow, a, out); }
SHAPE(diagonal) { return !i && seen(seen_diagonal, a, out); }
SHAPE(unfold) { return !i && seen(seen_unfold, a, out); }

/* ---- conversion to integers: towards 0, where it fits ---- */
SHAPE(to_whole)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    dtype to = a[1].kind == VAL_dtype ? (dtype)a[1].i : DT_none;
    if (i || !x || x->numel != out->numel || to == DT_none)
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        double v = get(x, k), top = ldexp(1, (int)dtype_size(to) * 8 - 1) - 1;
        put(out, k,
            to == DT_bool                       ? v != 0
            : to == DT_u8 && (v < 0 || v > 255) ? NAN
            : to != DT_u8 && !(fabs(v) < top)   ? NAN
                                                : trunc(v));
    }
    return true;
}

/* ---- convolutions of any number of dimensions, not transposed ---- */
enum { MOST_PRODUCTS = 1 << 22 };
static int64_t of_side(const tp_val *v, int d, int64_t none)
{
    return v->kind == VAL_ints && v->n ? v->ints[v->n == 1 ? 0 : d] : v->kind == VAL_int ? v->i : none;
}
static bool convolved(const tp_val *a, int64_t groups, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]), *w = tensor_arg(&a[1]), *b = tensor_arg(&a[2]);
    int nd = out->ndim;
    if (!x || !w || x->ndim != nd || w->ndim != nd || nd < 3 || groups < 1 || !w->numel ||
        x->size[1] % groups || w->size[1] * groups != x->size[1] || w->size[0] != out->size[1] ||
        w->size[0] % groups || out->numel * (w->numel / w->size[0]) > MOST_PRODUCTS)
        return false;
    int64_t per = w->numel / w->size[0], at[TP_MAX_DIMS], tap[TP_MAX_DIMS], from[TP_MAX_DIMS];
    for (int64_t k = 0; k < out->numel; k++) {
        index_of(out, k, at);
        double s = b ? get(b, at[1]) : 0;
        for (int64_t j = 0; j < per; j++) {
            bool in = true;
            index_of(w, at[1] * per + j, tap);
            from[0] = at[0];
            from[1] = at[1] / (w->size[0] / groups) * w->size[1] + tap[1];
            for (int d = 2; d < nd; d++) {
                from[d] = at[d] * of_side(&a[3], d - 2, 1) - of_side(&a[4], d - 2, 0) +
                          tap[d] * of_side(&a[5], d - 2, 1);
                in &= from[d] >= 0 && from[d] < x->size[d];
            }
            s += in ? get(x, element(x, from)) * get(w, at[1] * per + j) : 0;
        }
        put(out, k, s);
    }
    return true;
}
SHAPE(convolution) { return !i && !a[6].b && convolved(a, a[8].i, out); }
SHAPE(conv) { return !i && a[4].kind == VAL_ints && convolved(a, a[6].kind == VAL_int ? a[6].i : 1, out); }

/* (input, grid, interpolation: 0 linear, 1 nearest, padding: 0 zeros, 1 the edge, align_corners): pixels at places of a grid */
SHAPE(grid_sampler)
{
    const tp_tensor *x = tensor_arg(&a[0]), *g = tensor_arg(&a[1]);
    if (i || !x || !g || x->ndim != 4 || g->ndim != 4 || g->size[3] != 2 || a[2].i > 1 || a[3].i > 1 ||
        !x->numel || g->size[0] != x->size[0])
        return false;
    int64_t n[2] = { x->size[3], x->size[2] }, places = g->size[1] * g->size[2];
    for (int64_t k = 0; k < out->numel; k++) {
        int64_t plane = k / places, at = plane / x->size[1] * places + k % places;
        double to[2], sum = 0;
        for (int d = 0; d < 2; d++) {
            double u = get(g, at * 2 + d);
            to[d] = a[4].b ? (u + 1) / 2 * (double)(n[d] - 1) : ((u + 1) * (double)n[d] - 1) / 2;
            to[d] = a[3].i ? fmin(fmax(to[d], 0), (double)(n[d] - 1)) : to[d];
            if (!isfinite(to[d]) || (a[2].i && fabs(to[d] - floor(to[d]) - 0.5) < 1e-3))
                return false; /* rounding decides which is the nearest */
        }
        for (int q = 0; q < 4; q++) {
            double w = 1;
            int64_t pixel[2];
            for (int d = 0; d < 2; d++) {
                double low = a[2].i ? rint(to[d]) : floor(to[d]), part = to[d] - low;
                bool up = q >> d & 1;
                pixel[d] = (int64_t)low + up;
                w *= a[2].i ? !up : up ? part : 1 - part;
            }
            if (w != 0 && pixel[0] >= 0 && pixel[0] < n[0] && pixel[1] >= 0 && pixel[1] < n[1])
                sum += w * get(x, (plane * n[1] + pixel[1]) * n[0] + pixel[0]);
        }
        put(out, k, sum);
    }
    return true;
}

/* ---- matrices: elimination with the largest pivot of each column ---- */
/* m (n x n) becomes the identity, r (n x k) is taken along; its determinant. */
static double eliminated(int64_t n, double *m, int64_t k, double *r)
{
    double det = 1;
    for (int64_t c = 0; c < n; c++) {
        int64_t top = c;
        for (int64_t q = c; q < n; q++)
            top = fabs(m[q * n + c]) > fabs(m[top * n + c]) ? q : top;
        for (int64_t j = 0; j < n && top != c; j++) {
            double t = m[c * n + j];
            m[c * n + j] = m[top * n + j], m[top * n + j] = t;
        }
        for (int64_t j = 0; j < k && top != c; j++) {
            double t = r[c * k + j];
            r[c * k + j] = r[top * k + j], r[top * k + j] = t;
        }
        double p = m[c * n + c];
        det *= top != c ? -p : p;
        if (p == 0)
            return 0;
        for (int64_t q = 0; q < n; q++) {
            double f = q == c ? 0 : m[q * n + c] / p;
            for (int64_t j = 0; j < n && f != 0; j++)
                m[q * n + j] -= f * m[c * n + j];
            for (int64_t j = 0; j < k && f != 0; j++)
                r[q * k + j] -= f * r[c * k + j];
        }
        for (int64_t j = 0; j < n; j++)
            m[c * n + j] /= p;
        for (int64_t j = 0; j < k; j++)
            r[c * k + j] /= p;
    }
    return det;
}
typedef enum { MAT_det, MAT_sign, MAT_log, MAT_inverse, MAT_solve } mat_kind;
static bool matrices(const tp_val *a, mat_kind what, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]), *b = what == MAT_solve ? tensor_arg(&a[1]) : NULL;
    int64_t n = x && x->ndim > 1 ? x->size[x->ndim - 1] : 0, k = what == MAT_inverse ? n : 0;
    bool ok = n && n <= 64 && x->size[x->ndim - 2] == n, scalar = what < MAT_inverse;
    int64_t batch = ok ? x->numel / (n * n) : 0;
    if (b) {
        k = b->ndim == x->ndim - 1 ? 1 : b->size[b->ndim - 1];
        ok &= b->numel == batch * n * k;
    }
    if (!ok || (what == MAT_solve && !b) || out->numel != (scalar ? batch : batch * n * k))
        return false;
    double *m = mem_alloc(sizeof *m * (size_t)(n * n)), *r = mem_zalloc(sizeof *r * (size_t)(n * MAX(k, 1)));
    for (int64_t q = 0; q < batch && ok; q++) {
        for (int64_t j = 0; j < n * n; j++)
            m[j] = get(x, q * n * n + j);
        for (int64_t j = 0; j < n * k; j++)
            r[j] = b ? get(b, q * n * k + j) : j / k == j % k;
        double det = eliminated(n, m, k, r);
        ok = scalar || det != 0;
        if (scalar)
            put(out, q, what == MAT_det ? det : what == MAT_sign ? (det > 0) - (det < 0) : log(fabs(det)));
        for (int64_t j = 0; j < n * k && !scalar; j++)
            put(out, q * n * k + j, r[j]);
    }
    free(m);
    free(r);
    return ok;
}
SHAPE(det) { return !i && matrices(a, MAT_det, out); }
SHAPE(slogdet) { return i < 2 && matrices(a, i ? MAT_log : MAT_sign, out); }
SHAPE(inverse) { return !i && matrices(a, MAT_inverse, out); }
SHAPE(solve) { return !i && a[2].kind == VAL_bool && a[2].b && matrices(a, MAT_solve, out); }
SHAPE(cholesky)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int64_t n = x && x->ndim > 1 ? x->size[x->ndim - 1] : 0;
    bool upper = a[1].kind == VAL_bool && a[1].b;
    if (i || !n || x->size[x->ndim - 2] != n || out->numel != x->numel)
        return false;
    for (int64_t base = 0; base < x->numel; base += n * n)
        for (int64_t r = 0; r < n; r++)
            for (int64_t c = 0; c < n; c++) {
                double s = c > r ? 0 : upper ? get(x, base + c * n + r) : get(x, base + r * n + c);
#define L(p, q) get(out, base + (upper ? (q)*n + (p) : (p)*n + (q)))
                for (int64_t j = 0; j < c && c <= r; j++)
                    s -= L(r, j) * L(c, j);
                if (r == c && !(s > 0))
                    return false;
                s = c > r ? 0 : r == c ? sqrt(s) : s / L(c, c);
                put(out, base + (upper ? c * n + r : r * n + c), s);
            }
    return true;
}

/* ---- sizes that depend on the data ---- */
SHAPE(nonzero)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int64_t n = 0, at[TP_MAX_DIMS];
    if (i || !x || !x->ndim || out->ndim != 2 || out->size[1] != x->ndim)
        return false;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, -1); /* more rows than there are */
    for (int64_t k = 0; k < x->numel; k++) {
        if (get(x, k) == 0)
            continue;
        index_of(x, k, at);
        for (int d = 0; d < x->ndim && n < out->size[0]; d++)
            put(out, n * x->ndim + d, (double)at[d]);
        n++;
    }
    if (n > out->size[0] && out->numel) /* fewer */
        put(out, 0, -1);
    return true;
}
SHAPE(bincount)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    if (i || !x || tensor_arg(&a[1]) || x->ndim != 1)
        return false;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, 0);
    for (int64_t k = 0; k < x->numel; k++) {
        int64_t c = (int64_t)get(x, k);
        if (c < 0 || c >= out->numel)
            return false;
        put(out, c, get(out, c) + 1);
    }
    return true;
}

/* The place of each element, so often as it is to be repeated. */
SHAPE(repeats)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int64_t k = 0;
    if (i || !x || x->ndim != 1)
        return false;
    for (int64_t j = 0; j < x->numel; j++)
        for (int64_t times = (int64_t)get(x, j); times > 0 && k < out->numel; times--)
            put(out, k++, (double)j);
    return k == out->numel;
}

static shape_fn *const floats[OP_COUNT] = {
    [OP_view] = shape_same,
    [OP_reshape] = shape_same,
    [OP_squeeze] = shape_same,
    [OP_squeeze_dim] = shape_same,
    [OP_unsqueeze] = shape_same,
    [OP_clone] = shape_same,
    [OP_to_dtype] = shape_same,
    [OP_expand] = shape_expand,
    [OP_permute] = shape_permute,
    [OP_transpose_int] = shape_transpose,
    [OP_t] = shape_t,
    [OP_select_int] = shape_select,
    [OP_slice_Tensor] = shape_slice,
    [OP_narrow] = shape_narrow,
    [OP_diagonal] = shape_diagonal,
    [OP_unfold] = shape_unfold,
    [OP_convolution] = shape_convolution,
    [OP_conv1d] = shape_conv,
    [OP_conv2d] = shape_conv,
    [OP_grid_sampler_2d] = shape_grid_sampler,
    [OP__linalg_det] = shape_det,
    [OP__linalg_slogdet] = shape_slogdet,
    [OP_linalg_inv_ex] = shape_inverse,
    [OP__linalg_solve_ex] = shape_solve,
    [OP_linalg_cholesky_ex] = shape_cholesky,
};
static shape_fn *const places[OP_COUNT] = {
    [OP_to_dtype] = shape_to_whole,
    [OP_nonzero] = shape_nonzero,
    [OP_bincount] = shape_bincount,
    [OP_repeat_interleave_Tensor] = shape_repeats,
};

bool truth_shape(op_id op, const tp_val *arg, int i, bool whole, tp_tensor *out)
{
    shape_fn *fn = (whole ? places : floats)[op];
    return fn && fn(arg, i, out);
}
bool truth_of_view(op_id op) { return floats[op] || truth_move_known(op); }

/* Bits of the results that have several right answers. */
static const uint8_t free_results[OP_COUNT] = {
    [OP__linalg_svd] = 5, [OP_linalg_svd] = 5, [OP_svd] = 5, [OP__linalg_eigh] = 2, [OP_linalg_eigh] = 2,
};
bool truth_is_free(op_id op, int i) { return i < 8 && (free_results[op] >> i & 1); }
