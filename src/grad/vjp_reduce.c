/* vjp_reduce.c - derivatives of reductions and scans. */
#include "grad/vjp.h"

const char vjp_file_reduce;

/* Which dimensions a dim argument (int, list or none) names. */
static uint32_t dim_mask(const tp_val *v, int ndim)
{
    uint32_t m = 0;
    if (v->kind == VAL_int)
        return ndim ? 1u << vh_dim(v, ndim) : 0;
    if (v->kind == VAL_none || v->n == 0)
        return ~0u;
    for (int i = 0; i < v->n; i++)
        m |= ndim ? 1u << (v->ints[i] < 0 ? v->ints[i] + ndim : v->ints[i]) : 0;
    return m;
}

/* t, reduced over `dims` of a tensor shaped m, seen with those dimensions as 1. */
static tp_val unreduce(vjp *g, tp_val t, const tp_tensor *m, const tp_val *dims, bool keepdim)
{
    symint size[TP_MAX_DIMS];
    if (t.kind == VAL_none || keepdim)
        return t;
    uint32_t mask = dim_mask(dims, m->ndim);
    for (int i = 0; i < m->ndim; i++)
        size[i] = mask >> i & 1 ? 1 : m->size[i];
    return vT(vh_reshape(B, t.t, m->ndim, size));
}

static tp_val expand_to(vjp *g, tp_val t, const tp_tensor *m) { return V(expand, t, vIs(m->size, m->ndim)); }

/* How many elements were reduced into one. */
static symint reduced_count(const tp_tensor *m, const tp_val *dims)
{
    symint n = 1;
    uint32_t mask = dim_mask(dims, m->ndim);
    for (int i = 0; i < m->ndim; i++)
        if (mask >> i & 1)
            n = sym_mul(n, m->size[i]);
    return n;
}

/* dim and keepdim of rows shaped (self, dim, keepdim, ...); whole reductions have neither. */
static const tp_val *the_dims(const vjp *g)
{
    static const tp_val all = { .kind = VAL_none };
    const op_schema *s = &g->row->schema;
    return s->nparam > 1 && !strcmp(s->param[1].name, "dim") ? ARG(1) : &all;
}
static bool the_keepdim(const vjp *g)
{
    const op_schema *s = &g->row->schema;
    for (int i = 1; i < s->nparam; i++)
        if (!strcmp(s->param[i].name, "keepdim"))
            return ARG(i)->b;
    return false;
}
#define SPREAD(t) unreduce(g, t, INM(0), the_dims(g), the_keepdim(g))

VJP(sum, "")
{
    DXV(0, expand_to(g, SPREAD(DYV), INM(0)));
    return true;
}

VJP(mean, "")
{
    symint n = reduced_count(INM(0), the_dims(g));
    DXV(0, DIV(expand_to(g, SPREAD(DYV), INM(0)), vI(n))); /* dense: it may be written in place */
    return true;
}

VJP(nansum, "0")
{
    DXV(0, MUL(SPREAD(DYV), V(logical_not, V(isnan, X))));
    return true;
}

VJP(nanmean, "0")
{
    tp_val ok = V(logical_not, V(isnan, X));
    tp_val n = V(sum_dim_IntList, ok, *the_dims(g), vB(true));
    DXV(0, DIV(MUL(SPREAD(DYV), ok), n));
    return true;
}

/* Shared between all elements that reach the extreme. */
VJP(amax, "0 r")
{
    tp_val hit = EQ(X, SPREAD(R));
    tp_val n = V(sum_dim_IntList, hit, *the_dims(g), vB(true));
    DXV(0, DIV(MUL(SPREAD(DYV), hit), n));
    return true;
}

VJP(aminmax, "0 r r1")
{
    tp_val sum = vNone, dims = *the_dims(g);
    symint one = dims.i;
    if (dims.kind == VAL_int)
        dims = vIs(&one, 1);
    for (int i = 0; i < 2; i++) {
        if (!DY(i))
            continue;
        tp_val hit = EQ(X, SPREAD(vT(OUT(i))));
        tp_val n = V(sum_dim_IntList, hit, dims, vB(true));
        tp_val d = DIV(MUL(SPREAD(vT(DY(i))), hit), n);
        sum = sum.kind == VAL_none ? d : ADD(sum, d);
    }
    DXV(0, sum);
    return true;
}

/* One value was chosen per line by index: max.dim, min.dim, median.dim, mode, kthvalue (dim at `at`). */
static bool chosen(vjp *g, int at, bool keepdim)
{
    if (!DY(0) || !NEED(0))
        return true;
    tp_val d = DYV, i = vT(OUT(1));
    if (!INM(0)->ndim)
        DXV(0, d);
    else {
        if (!keepdim) {
            d = V(unsqueeze, d, *ARG(at));
            i = V(unsqueeze, i, *ARG(at));
        }
        DXV(0, V(scatter_add, vh_zeros(B, INM(0)), *ARG(at), i, d));
    }
    return true;
}

VJP(max_dim, "r1") { return chosen(g, 1, ARG(2)->b); }
VJP(kthvalue, "r1") { return chosen(g, 2, ARG(3)->b); }

/* Values moved along a dimension, all kept: sort, topk, cummax, cummin. */
static bool moved(vjp *g, int at)
{
    if (!DY(0) || !NEED(0))
        return true;
    if (!INM(0)->ndim)
        DXV(0, DYV);
    else
        DXV(0, V(scatter_add, vh_zeros(B, INM(0)), *ARG(at), vT(OUT(1)), DYV));
    return true;
}
VJP(cummax, "r1") { return moved(g, 1); }
VJP(sort, "r1") { return moved(g, 1); }
VJP(sort_stable, "r1") { return moved(g, 2); }
VJP(topk, "r1") { return moved(g, 2); }

/* median of all elements: shared between equal ones */
VJP(median, "0 r")
{
    tp_val hit = EQ(X, R);
    DXV(0, DIV(MUL(DYV, hit), V(sum, hit)));
    return true;
}

/* Products of all others: divide where nothing is zero; in general, two exclusive running products. */
VJP(prod, "0")
{
    bool all = the_dims(g)->kind == VAL_none;
    tp_val x = X, dy = DYV;
    int dim = 0;
    symint shift[1];
    if (!INM(0)->ndim) {
        DXV(0, DYV);
        return true;
    }
    if (all) {
        symint flat[1] = { INM(0)->numel };
        x = vT(vh_reshape(B, x.t, 1, flat));
        symint one[1] = { 1 };
        dy = vT(vh_reshape(B, dy.t, 1, one));
    } else {
        dim = vh_dim(ARG(1), INM(0)->ndim);
        dy = SPREAD(DYV);
    }
    (void)shift;
    symint n = x.t ? x.t->size[all ? 0 : dim] : 0;
    if (sym_eq(n, 0)) {
        DXV(0, vh_zeros(B, INM(0)));
        return true;
    }
    symint pad[2 * TP_MAX_DIMS] = { 0 };
    int k = (x.t->ndim - 1 - dim) * 2; /* pads are listed from the last dimension */
    tp_val d = vI(dim), rev = vIs(&(symint){ dim }, 1);
    pad[k] = 1, pad[k + 1] = -1;
    tp_val before = V(cumprod, V(constant_pad_nd, x, vIs(pad, k + 2), vI(1)), d);
    tp_val after = V(flip, V(cumprod, V(constant_pad_nd, V(flip, x, rev), vIs(pad, k + 2), vI(1)), d), rev);
    tp_val r = MUL(dy, MUL(before, after));
    DXV(0, all ? vT(vh_reshape(B, r.t, INM(0)->ndim, INM(0)->size)) : r);
    return true;
}

/* ---- spread ---- */
/* args: self, dim, correction, keepdim; 2 (x - mean) / (n - correction) */
static tp_val var_slope(vjp *g, tp_val dy)
{
    tp_val m = V(mean_dim, X, *ARG(1), vB(true));
    symint n = reduced_count(INM(0), ARG(1));
    double c = ARG(2)->kind == VAL_none ? 1 : val_as_f(ARG(2));
    tp_val d = MUL(SUB(X, m), unreduce(g, dy, INM(0), ARG(1), ARG(3)->b));
    if (sym_is_expr(n))
        return MUL(DIV(d, vI(sym_max(sym_sub(n, (symint)c), 0))), vI(2));
    return MUL(d, vF(2 / MAX((double)n - c, 0)));
}

VJP(var, "0")
{
    DXV(0, var_slope(g, DYV));
    return true;
}

VJP(std, "0 r") /* d std = d var / (2 std); flat where std is 0 */
{
    tp_val half = DIV(DYV, MUL(R, vI(2)));
    DXV(0, var_slope(g, WHERE(EQ(R, vI(0)), vI(0), half)));
    return true;
}

static tp_val mean_part(vjp *g)
{
    tp_val d = DIV(vT(DY(1)), vI(reduced_count(INM(0), ARG(1))));
    return expand_to(g, unreduce(g, d, INM(0), ARG(1), ARG(3)->b), INM(0));
}
static bool two_parts(vjp *g, tp_val a, tp_val b)
{
    DXV(0, a.kind == VAL_none ? b : b.kind == VAL_none ? a : ADD(a, b));
    return true;
}
VJP(var_mean, "0") { return two_parts(g, DY(0) ? var_slope(g, DYV) : vNone, DY(1) ? mean_part(g) : vNone); }
VJP(std_mean, "0 r")
{
    tp_val a = vNone;
    if (DY(0))
        a = var_slope(g, WHERE(EQ(R, vI(0)), vI(0), DIV(DYV, MUL(R, vI(2)))));
    return two_parts(g, a, DY(1) ? mean_part(g) : vNone);
}

/* linalg_vector_norm(self, ord, dim, keepdim) */
VJP(vector_norm, "0 r")
{
    double p = val_as_f(ARG(1));
    const tp_val *dims = ARG(2);
    tp_val dy = unreduce(g, DYV, INM(0), dims, ARG(3)->b), r = unreduce(g, R, INM(0), dims, ARG(3)->b);
    tp_val d;
    if (p == 0) /* a count: no gradient, as PyTorch has it */
        return true;
    if (p == 1)
        d = MUL(V(sgn, X), dy);
    else if (p == 2)
        d = MUL(dy, WHERE(EQ(r, vI(0)), vI(0), DIV(X, r)));
    else if (__builtin_isinf(p)) {
        tp_val hit = EQ(V(abs, X), r);
        d = MUL(MUL(V(sgn, X), hit), DIV(dy, V(sum_dim_IntList, hit, *dims, vB(true))));
    } else {
        tp_val a = V(pow_Tensor_Scalar, V(abs, X), vF(p - 1));
        tp_val scale = DIV(dy, V(pow_Tensor_Scalar, r, vF(p - 1)));
        d = MUL(MUL(V(sgn, X), a), scale);
        d = WHERE(p < 1 ? EQ(X, vI(0)) : EQ(r, vI(0)), vI(0), d);
    }
    DXV(0, d);
    return true;
}

/* ---- softmax ---- */
VJP(softmax, "r") /* y (dy - sum(dy y)) */
{
    if (!PLAIN)
        DXV(0, V(_softmax_backward_data, DYV, R, *ARG(1), vDT(INM(0)->dt)));
    else {
        tp_val p = MUL(DYV, R);
        symint d = ARG(1)->i;
        DXV(0, SUB(p, MUL(R, V(sum_dim_IntList, p, vIs(&d, 1), vB(true)))));
    }
    return true;
}

VJP(log_softmax, "r")
{
    if (!PLAIN)
        DXV(0, V(_log_softmax_backward_data, DYV, R, *ARG(1), vDT(INM(0)->dt)));
    else {
        symint d = ARG(1)->i;
        DXV(0, SUB(DYV, MUL(V(exp, R), V(sum_dim_IntList, DYV, vIs(&d, 1), vB(true)))));
    }
    return true;
}

/* ---- scans ---- */
static tp_val reversed_sum(vjp *g, tp_val t) /* sum of t from here to the end */
{
    if (!INM(0)->ndim)
        return t;
    symint d = vh_dim(ARG(1), INM(0)->ndim);
    tp_val dim = vIs(&d, 1);
    return V(flip, V(cumsum, V(flip, t, dim), vI(d)), dim);
}

VJP(cumsum, "")
{
    DXV(0, reversed_sum(g, DYV));
    return true;
}

VJP(cumprod, "0 r") /* sum over later outputs of dy * out, divided by x; zeros handled apart */
{
    tp_val w = MUL(DYV, R);
    tp_val zero = EQ(X, vI(0));
    if (!INM(0)->ndim) {
        DXV(0, DYV);
        return true;
    }
    symint d = vh_dim(ARG(1), INM(0)->ndim);
    tp_val plain = DIV(reversed_sum(g, w), WHERE(zero, vI(1), X));
    /* At the first zero of a line, later outputs become products without that factor. */
    tp_val seen = V(cumsum, V(to_dtype, zero, vDT(dtype_real_of((dtype)INM(0)->dt))), vI(d));
    tp_val first = V(logical_and, zero, EQ(seen, vI(1)));
    tp_val omit = V(cumprod, WHERE(first, vI(1), X), vI(d));
    tp_val from = WHERE(GE(seen, vI(1)), MUL(DYV, omit), vI(0));
    tp_val at_zero = WHERE(first, reversed_sum(g, from), vI(0));
    DXV(0, WHERE(EQ(seen, vI(0)), plain, at_zero));
    return true;
}

/* log of the reversed cumulative sum of exp(t) */
static tp_val reversed_lse(vjp *g, tp_val t)
{
    symint d = vh_dim(ARG(1), INM(0)->ndim);
    return V(flip, V(logcumsumexp, V(flip, t, vIs(&d, 1)), vI(d)), vIs(&d, 1));
}
VJP(logcumsumexp,
    "0 r") /* exp(x) * reversed cumulative sum of dy exp(-out): in logarithms, by the sign of dy */
{
    if (!INM(0)->ndim) {
        DXV(0, DYV);
        return true;
    }
    tp_val l = V(log, V(abs, DYV)), sum = vNone;
    double low = INM(0)->dt == DT_f64 ? -1e308 : INM(0)->dt == DT_f16 ? -65504 : -3e38;
    for (int neg = 0; neg < 2; neg++) {
        tp_val t = WHERE(neg ? LT(DYV, vI(0)) : GT(DYV, vI(0)), l, vF(low));
        t = V(exp, ADD(reversed_lse(g, SUB(t, R)), X));
        sum = neg ? SUB(sum, t) : t;
    }
    DXV(0, sum);
    return true;
}
