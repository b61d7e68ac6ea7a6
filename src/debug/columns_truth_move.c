/* columns_truth_move.c - what parts of a tensor, orders of dimensions and indices mean, by plain loops in float64; what only moves its
 * elements; which type operands of several types give. Shares no code with eager kernels, decompositions and shape rules. */
#include "debug/truth.h"
#include "debug/truth_loops.h"

typedef bool move_fn(const tp_val *a, int i, tp_tensor *out);
#define MOVE(name) static bool move_##name(const tp_val *a, int i, tp_tensor *out)

/* ---- dimensions in another order ---- */
/* Dimension p of the operand is dimension to[p] of the result. */
static bool turned(const tp_tensor *x, const int *to, tp_tensor *out)
{
    int64_t at[TP_MAX_DIMS], from[TP_MAX_DIMS];
    bool fits = out->numel == x->numel && out->ndim == x->ndim;
    for (int p = 0; p < x->ndim && fits; p++)
        fits = out->size[to[p]] == x->size[p];
    for (int64_t k = 0; k < out->numel; k++) {
        if (!fits) { /* there is no such result */
            put(out, k, NAN);
            continue;
        }
        index_of(out, k, at);
        for (int p = 0; p < x->ndim; p++)
            from[p] = at[to[p]];
        put(out, k, get(x, element(x, from)));
    }
    return true;
}
static bool moved(const tp_val *a, const symint *src, const symint *dst, int n, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int to[TP_MAX_DIMS], p, q;
    bool taken[TP_MAX_DIMS] = { false };
    if (!x || !x->ndim)
        return false;
    for (int d = 0; d < x->ndim; d++)
        to[d] = -1;
    for (int i = 0; i < n; i++) {
        if (!dim_wrap(src[i], x->ndim, &p, NULL) || !dim_wrap(dst[i], x->ndim, &q, NULL))
            return false;
        to[p] = q;
        taken[q] = true;
    }
    for (int d = 0, next = 0; d < x->ndim; d++) {
        while (to[d] < 0 && next < x->ndim && taken[next])
            next++;
        to[d] = to[d] < 0 ? next++ : to[d];
    }
    return turned(x, to, out);
}
MOVE(movedim)
{
    return !i && a[1].kind == VAL_ints && a[2].kind == VAL_ints && a[1].n == a[2].n &&
           moved(a, a[1].ints, a[2].ints, a[1].n, out);
}
MOVE(movedim_one)
{
    return !i && a[1].kind == VAL_int && a[2].kind == VAL_int && moved(a, &a[1].i, &a[2].i, 1, out);
}
MOVE(last_two) { return !i && moved(a, (symint[]){ -2, -1 }, (symint[]){ -1, -2 }, 2, out); }
MOVE(reversed)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    int to[TP_MAX_DIMS];
    for (int d = 0; x && d < x->ndim; d++)
        to[d] = x->ndim - 1 - d;
    return !i && x && turned(x, to, out);
}
MOVE(same)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    for (int64_t k = 0; !i && x && x->numel == out->numel && k < x->numel; k++)
        put(out, k, get(x, k));
    return !i && x && x->numel == out->numel;
}

/* ---- parts along a dimension ---- */
static bool part(const tp_val *a, const tp_val *dim, int64_t from, bool drops, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    lines l;
    if (!lines_of(x, dim, &l) || !out->numel || from < 0 || out->numel % (l.outer * l.inner))
        return false;
    int64_t n = out->numel / (l.outer * l.inner);
    if (from + n > l.n || (drops && n != 1))
        return false;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, get(x, (k / (n * l.inner) * l.n + from + k / l.inner % n) * l.inner + k % l.inner));
    return true;
}
static int64_t size_in(const tp_val *a, const tp_val *dim)
{
    lines l;
    return lines_of(tensor_arg(&a[0]), dim, &l) ? l.n : 0;
}
static bool section(const tp_val *a, int64_t many, const tp_val *dim, int i, tp_tensor *out)
{
    int64_t n = size_in(a, dim);
    return many > 0 && part(a, dim, n / many * i + MIN(i, n % many), false, out);
}
static bool between(const tp_val *a, const tp_val *dim, int i, tp_tensor *out)
{
    int64_t n = size_in(a, dim), at = i && a[1].kind == VAL_ints && i <= a[1].n ? a[1].ints[i - 1] : 0;
    return a[1].kind == VAL_ints && i <= a[1].n && part(a, dim, MIN(at < 0 ? at + n : at, n), false, out);
}
MOVE(chunk)
{
    int64_t n = size_in(a, &a[2]);
    return a[1].i > 0 && part(a, &a[2], (n + a[1].i - 1) / a[1].i * i, false, out);
}
MOVE(sections) { return section(a, a[1].i, &a[2], i, out); }
MOVE(indices) { return between(a, &a[2], i, out); }
MOVE(vsplit) { return section(a, a[1].i, &vI(0), i, out); }
MOVE(vsplit_at) { return between(a, &vI(0), i, out); }
MOVE(hsplit) { return tensor_arg(&a[0]) && section(a, a[1].i, &vI(a[0].t->ndim > 1), i, out); }
MOVE(hsplit_at) { return tensor_arg(&a[0]) && between(a, &vI(a[0].t->ndim > 1), i, out); }
MOVE(split) { return a[1].kind == VAL_int && part(a, &a[2], a[1].i * i, false, out); }
MOVE(split_sizes)
{
    int64_t from = 0;
    for (int k = 0; a[1].kind == VAL_ints && k < i && k < a[1].n; k++)
        from += a[1].ints[k];
    return a[1].kind == VAL_ints && part(a, &a[2], from, false, out);
}
MOVE(unbind) { return part(a, &a[1], i, true, out); }

/* ---- indices ---- */
/* The element of x that element k of x[indices] is; -1: it is not said (masks, several indices apart from each other). */
static int64_t indexed(const tp_tensor *x, const tp_val *ix, const tp_tensor *out, int64_t k)
{
    int first = -1, last = -1, nb = 0;
    int64_t at[TP_MAX_DIMS], from[TP_MAX_DIMS], spread[TP_MAX_DIMS] = { 0 };
    tp_tensor shape = { .size = spread };
    for (int d = 0; d < ix->n; d++) {
        const tp_tensor *n = ix->ts[d];
        if (!n)
            continue;
        if (!dtype_is_int((dtype)n->dt) || n->dt == DT_u8 || (last >= 0 && last != d - 1))
            return -1;
        first = first < 0 ? d : first;
        last = d;
        nb = MAX(nb, n->ndim);
    }
    if (first < 0 || out->ndim != x->ndim - (last - first + 1) + nb)
        return -1;
    index_of(out, k, at);
    shape.ndim = (uint8_t)nb;
    for (int d = 0; d < nb; d++)
        spread[d] = out->size[first + d];
    for (int d = 0; d < x->ndim; d++) {
        if (d < first || d > last) {
            from[d] = at[d < first ? d : d - (last - first + 1) + nb];
        } else {
            if (!truth_spreads(ix->ts[d], &shape))
                return -1;
            from[d] = (int64_t)get(ix->ts[d], truth_spread(ix->ts[d], &shape, element(&shape, at + first)));
            from[d] += from[d] < 0 ? x->size[d] : 0;
        }
        if (from[d] < 0 || from[d] >= x->size[d])
            return -1;
    }
    return element(x, from);
}
MOVE(index)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    if (i || !x || !x->ndim || a[1].kind != VAL_tensors || a[1].n > x->ndim)
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        int64_t from = indexed(x, &a[1], out, k);
        if (from < 0)
            return false;
        put(out, k, get(x, from));
    }
    return true;
}
MOVE(masked_scatter)
{
    const tp_tensor *x = tensor_arg(&a[0]), *m = tensor_arg(&a[1]), *src = tensor_arg(&a[2]);
    int64_t next = 0;
    if (i || !x || !m || !src || !tensor_same_size(x, out) || !truth_spreads(m, out))
        return false;
    for (int64_t k = 0; k < out->numel; k++) {
        bool in = get(m, truth_spread(m, out, k)) != 0;
        if (in && next == src->numel)
            return false;
        put(out, k, in ? get(src, next++) : get(x, k));
    }
    return true;
}
/* Every element so often as repeats says: one number, one for all, or one each. */
static bool repeated(const tp_val *a, const tp_tensor *n, int64_t all, const tp_val *dim, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    if (!x || !x->ndim)
        return false;
    lines l = { 1, x->numel, 1 }; /* of all elements in a row */
    if (dim->kind == VAL_int && !lines_of(x, dim, &l))
        return false;
    int64_t many = out->numel / MAX(l.outer * l.inner, 1), at = 0;
    for (int64_t j = 0; j < l.n; j++) {
        int64_t times = n ? (int64_t)get(n, n->numel == 1 ? 0 : j) : all;
        if (at + times > many)
            return false;
        for (int64_t q = 0; q < times; q++, at++)
            for (int64_t k = 0; k < l.outer * l.inner; k++)
                put(out, (k / l.inner * many + at) * l.inner + k % l.inner,
                    get(x, (k / l.inner * l.n + j) * l.inner + k % l.inner));
    }
    return at == many && (!n || n->numel == 1 || n->numel == l.n);
}
MOVE(repeat_each) { return !i && tensor_arg(&a[1]) && repeated(a, a[1].t, 0, &a[2], out); }
MOVE(repeat_all) { return !i && a[1].kind == VAL_int && repeated(a, NULL, a[1].i, &a[2], out); }

/* ---- reductions to places ---- */
typedef enum { TO_sum, TO_prod, TO_mean, TO_max, TO_min, TO_none } to_kind;
static to_kind kind_of(const tp_val *v)
{
    static const char *const names[] = { "sum", "prod", "mean", "amax", "amin" };
    for (int k = 0; v->kind == VAL_str && k < TO_none; k++)
        if (!strcmp(v->s, names[k]))
            return (to_kind)k;
    return TO_none;
}
static double joined(to_kind how, double was, double v)
{
    if (how == TO_max || how == TO_min)
        return isnan(was) || isnan(v) ? NAN : how == TO_max ? fmax(was, v) : fmin(was, v);
    return how == TO_prod ? was * v : was + v;
}
/* lines: one place for each slice of src along the dimension, else one for each of its elements. */
static bool gathered(const tp_val *a, bool by_line, tp_tensor *out)
{
    const tp_tensor *x = tensor_arg(&a[0]), *n = tensor_arg(&a[2]), *src = tensor_arg(&a[3]);
    to_kind how = kind_of(&a[4]);
    bool with_self = a[5].kind != VAL_bool || a[5].b;
    int d;
    int64_t at[TP_MAX_DIMS];
    if (!x || !x->ndim || !n || !src || src->ndim != x->ndim || how == TO_none || !tensor_same_size(x, out) ||
        n->ndim != (by_line ? 1 : x->ndim) || a[1].kind != VAL_int || !dim_wrap(a[1].i, x->ndim, &d, NULL))
        return false;
    double *count = mem_zalloc(sizeof *count * (size_t)MAX(out->numel, 1));
    bool ok = true;
    for (int64_t k = 0; k < out->numel; k++)
        put(out, k, get(x, k));
    const tp_tensor *walk = by_line ? src : n;
    for (int64_t k = 0; k < walk->numel && ok; k++) {
        index_of(walk, k, at);
        double v = get(src, element(src, at));
        at[d] = (int64_t)get(n, by_line ? at[d] : k);
        at[d] += at[d] < 0 ? x->size[d] : 0;
        ok = at[d] >= 0 && at[d] < x->size[d];
        int64_t to = ok ? element(out, at) : 0;
        put(out, to, count[to] || with_self ? joined(how, get(out, to), v) : v);
        count[to]++;
    }
    for (int64_t k = 0; ok && how == TO_mean && k < out->numel; k++)
        put(out, k, count[k] ? get(out, k) / (count[k] + with_self) : get(out, k));
    free(count);
    return ok;
}
MOVE(scatter_reduce) { return !i && gathered(a, false, out); }
MOVE(index_reduce) { return !i && gathered(a, true, out); }

static move_fn *const moves[OP_COUNT] = {
    [OP_movedim_intlist] = move_movedim,
    [OP_movedim_int] = move_movedim_one,
    [OP_mT] = move_last_two,
    [OP_numpy_T] = move_reversed,
    [OP_flatten_using_ints] = move_same,
    [OP_unflatten_int] = move_same,
    [OP_ravel] = move_same,
    [OP_squeeze_dims] = move_same,
    [OP_chunk] = move_chunk,
    [OP_tensor_split_sections] = move_sections,
    [OP_tensor_split_indices] = move_indices,
    [OP_vsplit_int] = move_vsplit,
    [OP_vsplit_array] = move_vsplit_at,
    [OP_hsplit_int] = move_hsplit,
    [OP_hsplit_array] = move_hsplit_at,
    [OP_split_Tensor] = move_split,
    [OP_split_with_sizes] = move_split_sizes,
    [OP_split_sizes] = move_split_sizes,
    [OP_unbind_int] = move_unbind,
    [OP_masked_scatter] = move_masked_scatter,
    [OP_repeat_interleave_self_Tensor] = move_repeat_each,
    [OP_repeat_interleave_self_int] = move_repeat_all,
    [OP_scatter_reduce_two] = move_scatter_reduce,
    [OP_index_reduce] = move_index_reduce,
    [OP_index_Tensor] = move_index,
};

bool truth_move(op_id op, const tp_val *arg, int i, tp_tensor *out)
{
    return moves[op] && moves[op](arg, i, out);
}
bool truth_move_known(op_id op) { return moves[op] != NULL; }

/* ---- what only moves or converts ---- */
static const uint8_t keeps[OP_COUNT] = {
    [OP_to_dtype] = 1, [OP_clone] = 1,  [OP_cat] = 1,    [OP_stack] = 1,        [OP_flip] = 1,
    [OP_roll] = 1,     [OP_repeat] = 1, [OP_gather] = 1, [OP_index_Tensor] = 1, [OP_index_select] = 1,
};
bool truth_moves(op_id op) { return keeps[op]; }

/* ---- the type of results ---- */
/* Rows whose result has the type of its two operands together. */
static const uint8_t joins[OP_COUNT] = {
    [OP_add_Tensor] = 1, [OP_sub_Tensor] = 1,       [OP_mul_Tensor] = 1,
    [OP_maximum] = 1,    [OP_minimum] = 1,          [OP_fmax] = 1,
    [OP_fmin] = 1,       [OP_remainder_Tensor] = 1, [OP_fmod_Tensor] = 1,
};
static int rank_of(dtype t) { return dtype_is_complex(t) ? 3 : dtype_is_float(t) ? 2 : t != DT_bool; }
static dtype wider(dtype a, dtype b)
{
    if (a == DT_none || b == DT_none || a == b)
        return a == DT_none ? b : a;
    size_t n = dtype_size(a), m = dtype_size(b);
    int p = rank_of(a), q = rank_of(b);
    if (p == 3 || q == 3)
        return a == DT_c128 || b == DT_c128 || a == DT_f64 || b == DT_f64 ? DT_c128 : DT_c64;
    if (p != q)
        return p > q ? a : b;
    if (p == 2 && n == m)
        return DT_f32;
    if (p == 1 && n == m)
        return DT_i16; /* of a byte with a sign and one without */
    return n > m ? a : b;
}
/* Sums and products of whole numbers are int64, unless the call names a type. */
static const uint8_t sums[OP_COUNT] = {
    [OP_sum] = 1,          [OP_sum_dim_IntList] = 1, [OP_prod] = 1,
    [OP_prod_dim_int] = 1, [OP_cumsum] = 1,          [OP_cumprod] = 1,
};
static dtype summed(op_id op, const tp_val *arg)
{
    const op_schema *s = &op_row_of(op)->schema;
    const tp_tensor *t = tensor_arg(&arg[0]);
    for (int i = 0; i < s->nparam; i++)
        if (!strcmp(s->param[i].name, "dtype") && arg[i].kind != VAL_none)
            return arg[i].kind == VAL_dtype ? (dtype)arg[i].i : DT_none;
    return !t || t->dt > DT_c128 ? DT_none : rank_of((dtype)t->dt) < 2 ? DT_i64 : (dtype)t->dt;
}
dtype truth_dtype(op_id op, const tp_val *arg)
{
    if (sums[op])
        return summed(op, arg);
    dtype sized = DT_none, single = DT_none;
    for (int i = 0; joins[op] && i < 2; i++) {
        const tp_tensor *t = tensor_arg(&arg[i]);
        if (!t || t->dt > DT_c128 || t->flags & TF_wrapped)
            return DT_none;
        dtype *of = t->ndim ? &sized : &single;
        *of = wider(*of, (dtype)t->dt);
    }
    if (sized == DT_none || single == DT_none)
        return sized == DT_none ? single : sized;
    if (rank_of(single) == 3 && rank_of(sized) == 2)
        return DT_none;
    return rank_of(single) > rank_of(sized) ? single : sized;
}
