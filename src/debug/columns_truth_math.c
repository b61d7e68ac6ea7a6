/* columns_truth_math.c - what matrix norms and exponentials, alignments of sequences and Fourier transforms mean, by sums written out
 * in float64: shares no code with eager kernels and decompositions. */
#include "debug/truth.h"
#include "debug/truth_loops.h"

typedef bool math_fn(const tp_val *a, int i, tp_tensor *out);
#define MATH(name) static bool math_##name(const tp_val *a, int i, tp_tensor *out)

MATH(prelu) /* one slope, or one for each channel */
{
    const tp_tensor *x = tensor_arg(&a[0]), *w = tensor_arg(&a[1]);
    int64_t inner = 1;
    if (i || !x || !w || x->numel != out->numel || !w->numel)
        return false;
    for (int d = 2; d < x->ndim; d++)
        inner *= x->size[d];
    for (int64_t k = 0; k < x->numel; k++) {
        double v = get(x, k);
        int64_t channel = w->numel == 1 ? 0 : x->ndim < 2 ? k : k / inner % w->numel;
        put(out, k, v > 0 ? v : v * get(w, channel % w->numel));
    }
    return true;
}

/* ---- norms of matrices: sums of columns or rows, the largest or smallest of them; the root of the sum of squares ---- */
static bool matrix_norm(const tp_val *a, double ord, bool frobenius, const tp_val *dims, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int p, q;
    double m = fabs(ord);
    if (!x || x->ndim < 2 || !x->numel || dims->kind != VAL_ints || dims->n != 2 ||
        !dim_wrap(dims->ints[0], x->ndim, &p, NULL) || !dim_wrap(dims->ints[1], x->ndim, &q, NULL) ||
        (!frobenius && m != 1 && !isinf(m)) || out->numel != x->numel / (x->size[p] * x->size[q]))
        return false;
    int line = m == 1 ? q : p; /* there is a sum for each of its places */
    int64_t many = x->size[line], at[TP_MAX_DIMS];
    double *sum = mem_zalloc(sizeof *sum * (size_t)(out->numel * many));
    for (int64_t k = 0; k < x->numel; k++) {
        int64_t to = 0;
        double v = get(x, k);
        index_of(x, k, at);
        for (int d = 0; d < x->ndim; d++)
            to = d == p || d == q ? to : to * x->size[d] + at[d];
        sum[to * many + (frobenius ? 0 : at[line])] += frobenius ? v * v : fabs(v);
    }
    for (int64_t k = 0; k < out->numel; k++) {
        double best = sum[k * many];
        for (int64_t j = 1; j < many && !frobenius; j++)
            best = isnan(best) || isnan(sum[k * many + j]) ? NAN
                   : ord > 0                               ? fmax(best, sum[k * many + j])
                                                           : fmin(best, sum[k * many + j]);
        put(out, k, frobenius ? sqrt(best) : best);
    }
    free(sum);
    return true;
}
MATH(matrix_norm) { return !i && matrix_norm(a, number(&a[1], NAN), false, &a[2], out); }
MATH(matrix_norm_named)
{
    return !i && a[1].kind == VAL_str && !strcmp(a[1].s, "fro") && matrix_norm(a, 2, true, &a[2], out);
}

/* ---- the exponential of a matrix: its series, of a small part of it, squared again ---- */
static void times(int64_t n, const double *x, const double *y, double *z)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++) {
            double s = 0;
            for (int64_t j = 0; j < n; j++)
                s += x[r * n + j] * y[j * n + c];
            z[r * n + c] = s;
        }
}
MATH(matrix_exp)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int64_t n = x && x->ndim > 1 ? x->size[x->ndim - 1] : 0, m = n * n;
    if (i || !n || n > 48 || x->size[x->ndim - 2] != n || out->numel != x->numel)
        return false;
    double *s = mem_alloc(sizeof *s * (size_t)(4 * m)), *part = s + m, *term = s + 2 * m, *next = s + 3 * m;
    for (int64_t base = 0; base < x->numel; base += m) {
        double top = 0;
        int halves = 0;
        for (int64_t k = 0; k < m; k++)
            top = fmax(top, fabs(get(x, base + k)));
        while (ldexp(top * (double)n, -halves) > 0.25 && halves < 60)
            halves++;
        for (int64_t k = 0; k < m; k++) {
            part[k] = ldexp(get(x, base + k), -halves);
            s[k] = term[k] = k / n == k % n;
        }
        for (int t = 1; t <= 18; t++) {
            times(n, term, part, next);
            for (int64_t k = 0; k < m; k++)
                s[k] += term[k] = next[k] / t;
        }
        for (int t = 0; t < halves; t++) {
            times(n, s, s, next);
            memcpy(s, next, sizeof *s * (size_t)m);
        }
        for (int64_t k = 0; k < m; k++)
            put(out, base + k, s[k]);
    }
    free(s);
    return true;
}

/* ---- CTC: how likely it is that a sequence of labels comes of a longer one, blanks and repetitions left out. Here by the number of
 * labels that are there already, and whether the last step was a blank. ---- */
static double log_sum(double x, double y)
{
    double top = fmax(x, y);
    return top == -INFINITY ? top : top + log(exp(x - top) + exp(y - top));
}
MATH(ctc)
{
    const tp_tensor *p = tensor_arg(&a[0]), *t = tensor_arg(&a[1]);
    if (i || !p || !t || p->ndim != 3 || a[2].kind != VAL_ints || a[3].kind != VAL_ints ||
        a[2].n != p->size[1] || a[3].n != p->size[1] || out->numel != p->size[1] || a[4].kind != VAL_int)
        return false;
    int64_t batch = p->size[1], classes = p->size[2], from = 0;
    for (int64_t b = 0; b < batch; b++) {
        int64_t n = a[3].ints[b], base = t->ndim == 2 ? b * t->size[1] : from;
        double *now = mem_alloc(sizeof *now * (size_t)(4 * (n + 1))), *was = now + 2 * (n + 1);
        for (int64_t k = 0; k < 2 * (n + 1); k++)
            now[k] = -INFINITY;
        now[0] =
            0; /* nothing yet, as after a blank; [2 k]: k labels and a blank, [2 k + 1]: the last of k labels */
        for (int64_t s = 0; s < a[2].ints[b]; s++) {
            const int64_t row = (s * batch + b) * classes;
            memcpy(was, now, sizeof *was * (size_t)(2 * (n + 1)));
            for (int64_t k = 0; k <= n; k++) {
                double in = -INFINITY;
                now[2 * k] = log_sum(was[2 * k], was[2 * k + 1]) + get(p, row + a[4].i);
                if (k) {
                    int64_t label = (int64_t)get(t, base + k - 1);
                    bool twice = k > 1 && (int64_t)get(t, base + k - 2) == label;
                    in = log_sum(was[2 * k + 1], was[2 * (k - 1)]);
                    in = twice || k == 1 ? in : log_sum(in, was[2 * (k - 1) + 1]);
                    in += get(p, row + label);
                }
                now[2 * k + 1] = in;
            }
        }
        double loss = -log_sum(now[2 * n], now[2 * n + 1]);
        put(out, b, a[5].b && isinf(loss) ? 0 : loss);
        from += n;
        free(now);
    }
    return true;
}

static math_fn *const maths[OP_COUNT] = {
    [OP_prelu] = math_prelu,
    [OP_linalg_matrix_norm] = math_matrix_norm,
    [OP_linalg_matrix_norm_str_ord] = math_matrix_norm_named,
    [OP_linalg_matrix_exp] = math_matrix_exp,
    [OP__ctc_loss] = math_ctc,
};
/* The gradient of CTC is that of numbers that stay the logarithms of chances, whose sum is 1: not of each of them alone. */
static const uint8_t agreed[OP_COUNT] = {
    [OP__ctc_loss] = 1, [OP_ctc_loss_IntList] = 1, [OP_ctc_loss_Tensor] = 1
};
bool truth_slope_agreed(op_id op) { return agreed[op]; }

bool truth_math(op_id op, const tp_val *arg, int i, tp_tensor *out)
{
    return maths[op] && maths[op](arg, i, out);
}

/* ---- Fourier transforms: every frequency summed on its own, one dimension after the other ---- */
static void complex_at(const tp_tensor *t, int64_t k, double v[2])
{
    if (dtype_is_complex((dtype)t->dt))
        elem_get_c((dtype)t->dt, tensor_elem(t, k), v);
    else
        v[0] = get(t, k), v[1] = 0;
}
/* z (numel pairs, sizes of t) along dimension d. sign: -1 forward. */
static void transformed(const tp_tensor *t, int d, double sign, double *z)
{
    lines l;
    if (!lines_of(t, &vI(d), &l))
        return;
    double *line = mem_alloc(sizeof *line * (size_t)(2 * l.n));
    for (int64_t k = 0; k < l.outer * l.inner; k++) {
        int64_t first = k / l.inner * l.n * l.inner + k % l.inner;
        for (int64_t f = 0; f < l.n; f++) {
            double re = 0, im = 0;
            for (int64_t j = 0; j < l.n; j++) {
                double by = sign * 2 * M_PI * (double)(f * j % l.n) / (double)l.n, c = cos(by), s = sin(by);
                const double *v = &z[2 * (first + j * l.inner)];
                re += v[0] * c - v[1] * s;
                im += v[0] * s + v[1] * c;
            }
            line[2 * f] = re, line[2 * f + 1] = im;
        }
        for (int64_t f = 0; f < l.n; f++)
            memcpy(&z[2 * (first + f * l.inner)], &line[2 * f], 2 * sizeof *line);
    }
    free(line);
}

/* Half a spectrum along dimension d, and behind it the conjugates of what lies opposite; what has no opposite is real. */
static double *other_half(const tp_tensor *x, const tp_tensor *whole, int d, const double *half)
{
    double *z = mem_alloc(2 * sizeof *z * (size_t)MAX(whole->numel, 1));
    int64_t at[TP_MAX_DIMS], n = whole->size[d];
    for (int64_t k = 0; k < whole->numel; k++) {
        index_of(whole, k, at);
        bool other = at[d] >= x->size[d], own = at[d] * 2 % n == 0;
        at[d] = other ? n - at[d] : at[d];
        const double *v = &half[2 * element(x, at)];
        z[2 * k] = v[0];
        z[2 * k + 1] = own ? 0 : other ? -v[1] : v[1];
    }
    return z;
}

/* (self, dim, normalization: 1 by the root, 2 by the count, forward | onesided | last_dim_size) */
static const uint8_t fourier[OP_COUNT] = { [OP__fft_c2c] = 1, [OP__fft_r2c] = 2, [OP__fft_c2r] = 3 };

tp_tensor *truth_complex(op_id op, const tp_val *a, int i, const tp_tensor *like)
{
    enum { MOST = 1 << 14 };
    tp_tensor *pair = i ? NULL : truth_pair(op, a, like);
    if (pair)
        return pair;
    int kind = fourier[op], dim[TP_MAX_DIMS], n = 0;
    const tp_tensor *x = kind ? tensor_arg(&a[0]) : NULL;
    if (i || !x || a[1].kind != VAL_ints || !a[1].n || x->ndim != like->ndim ||
        MAX(x->numel, like->numel) > MOST || (like->dt != DT_c128 && like->dt != DT_f64))
        return NULL;
    for (; n < a[1].n; n++)
        if (!dim_wrap(a[1].ints[n], x->ndim, &dim[n], NULL))
            return NULL;
    const tp_tensor *whole = kind == 3 ? like : x;
    int last = dim[n - 1];
    int64_t full = whole->size[last];
    if (kind == 3 && x->size[last] != full / 2 + 1)
        return NULL;
    double *z = mem_alloc(2 * sizeof *z * (size_t)MAX(x->numel, 1)), count = 1,
           sign = kind == 2 || (kind == 1 && a[3].b) ? -1 : 1;
    for (int64_t k = 0; k < x->numel; k++)
        complex_at(x, k, &z[2 * k]);
    for (int d = 0; d < n; d++) {
        count *= (double)whole->size[dim[d]];
        if (kind != 3 || dim[d] != last)
            transformed(x, dim[d], sign, z);
    }
    if (kind == 3) {
        double *half = z;
        z = other_half(x, whole, last, half);
        free(half);
        transformed(whole, last, sign, z);
    }
    double by = a[2].i == 1 ? 1 / sqrt(count) : a[2].i == 2 ? 1 / count : 1;
    int64_t at[TP_MAX_DIMS];
    tp_tensor *r = tensor_new((dtype)like->dt, like->ndim, like->size, NULL);
    for (int64_t k = 0; r && k < like->numel; k++) {
        index_of(like, k, at);
        int64_t from = element(whole, at);
        double v[2] = { by * z[2 * from], by * z[2 * from + 1] };
        if (like->dt == DT_c128)
            elem_set_c(DT_c128, tensor_elem(r, k), v);
        else
            put(r, k, v[0]);
    }
    free(z);
    return r;
}
