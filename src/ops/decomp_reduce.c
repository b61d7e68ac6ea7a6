/* decomp_reduce.c - reductions in terms of sum, amax, any and pointwise operators. */
#include "ops/op.h"
#include <math.h>

static bool give(bld *b, tp_tensor *t, tp_val *out)
{
    if (!t || b->failed)
        return false;
    *out = vT(tensor_ref(t));
    return true;
}

/* The value of dim (list, int or None) as a mask. */
static bool mask_of(bld *b, tp_tensor *t, const tp_val *dim, uint32_t *mask)
{
    *mask = t->ndim ? (t->ndim >= 32 ? ~0u : (1u << t->ndim) - 1) : 0;
    if (!dim || dim->kind == VAL_none || (dim->kind == VAL_ints && !dim->n))
        return true;
    *mask = 0;
    const symint *v = dim->kind == VAL_ints ? dim->ints : &dim->i;
    int n = dim->kind == VAL_ints ? dim->n : 1, d;
    for (int i = 0; i < n; i++) {
        if (!dim_wrap(v[i], t->ndim, &d, b->err))
            return false;
        if (t->ndim)
            *mask |= 1u << d;
    }
    return true;
}

static symint count_of(const tp_tensor *t, uint32_t mask)
{
    symint n = 1;
    for (int d = 0; d < t->ndim; d++)
        if (mask >> d & 1)
            n = sym_mul(n, t->size[d]);
    return n;
}

static tp_val as_list(const tp_val *dim, symint *one) /* a single dim as a list of one */
{
    if (dim && dim->kind == VAL_int) {
        *one = dim->i;
        return vIs(one, 1);
    }
    return dim ? *dim : vNone;
}

/* t without its reduced dimensions, which have size 1. */
static tp_tensor *drop_dims(bld *b, tp_tensor *t, uint32_t mask, bool keep)
{
    if (keep || !t || !t->ndim)
        return t;
    symint size[TP_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < t->ndim; d++)
        if (!(mask >> d & 1))
            size[n++] = t->size[d];
    return b_op(b, view, vT(t), vIs(size, n));
}

static tp_tensor *to_type(bld *b, tp_tensor *t, dtype dt)
{
    return !t || t->dt == dt ? t : b_op(b, to_dtype, vT(t), vDT(dt));
}

/* A sum of narrow floats leaves their range long before what is made of it does. */
static tp_tensor *widened(bld *b, tp_tensor *t)
{
    return t && (t->dt == DT_f16 || t->dt == DT_bf16) ? to_type(b, t, DT_f32) : t;
}

static tp_tensor *sum_over(bld *b, tp_tensor *t, tp_val dim, bool keep)
{
    return b_op(b, sum_dim_IntList, vT(t), dim, vB(keep));
}

/* ---- means ---- */
bool decomp_mean(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = arg[0].t;
    bool all = !arg[1].kind || arg[1].kind == VAL_dtype; /* mean(self, *, dtype) or mean.dim */
    bool dims = arg[1].kind == VAL_ints;
    uint32_t mask;
    if (!mask_of(b, t, dims ? &arg[1] : NULL, &mask))
        return false;
    const tp_val *dt = dims || !all ? &arg[3] : &arg[1];
    if (dt->kind == VAL_dtype)
        t = to_type(b, t, (dtype)dt->i);
    if (!t)
        return false;
    tp_tensor *s = sum_over(b, widened(b, t), dims ? arg[1] : vNone, dims && arg[2].b);
    return give(b, to_type(b, b_op(b, div_Tensor, vT(s), vI(count_of(t, mask))), (dtype)t->dt), out);
}
bool decomp_nansum(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = arg[0].t;
    if (dtype_is_float((dtype)t->dt))
        t = b_op(b, where_self, vT(b_op(b, isnan, vT(t))), vI(0), vT(t));
    return give(b, b_op(b, sum_dim_IntList, vT(t), arg[1], arg[2], arg[3]), out);
}
bool decomp_nanmean(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = arg[0].t;
    tp_tensor *good = b_op(b, logical_not, vT(b_op(b, isnan, vT(t))));
    tp_tensor *n = sum_over(b, good, arg[1], arg[2].b), *s = b_op(b, nansum, arg[0], arg[1], arg[2], arg[3]);
    return give(b, b_op(b, div_Tensor, vT(s), vT(n)), out);
}

/* ---- extremes ---- */
bool decomp_max_all(bld *b, const tp_val *arg, tp_val *out) { return give(b, b_op(b, amax, arg[0]), out); }
bool decomp_min_all(bld *b, const tp_val *arg, tp_val *out) { return give(b, b_op(b, amin, arg[0]), out); }
bool decomp_max_other(bld *b, const tp_val *arg, tp_val *out)
{
    return give(b, b_op(b, maximum, arg[0], arg[1]), out);
}
bool decomp_min_other(bld *b, const tp_val *arg, tp_val *out)
{
    return give(b, b_op(b, minimum, arg[0], arg[1]), out);
}
bool decomp_aminmax(bld *b, const tp_val *arg, tp_val *out)
{
    symint one;
    tp_val dim = arg[1].kind == VAL_none ? vIs(NULL, 0) : as_list(&arg[1], &one);
    return give(b, b_op(b, amin, arg[0], dim, arg[2]), &out[0]) &&
           give(b, b_op(b, amax, arg[0], dim, arg[2]), &out[1]);
}
/* All are true where none is false. */
static bool all_of(bld *b, tp_tensor *t, const tp_val *dim, const tp_val *keep, tp_val *out)
{
    symint one;
    tp_tensor *no = b_op(b, logical_not, vT(t));
    tp_tensor *any = dim ? b_op(b, any_dims, vT(no), as_list(dim, &one), *keep) : b_op(b, any, vT(no));
    tp_tensor *r = b_op(b, logical_not, vT(any));
    return give(b, t->dt == DT_u8 ? to_type(b, r, DT_u8) : r, out);
}
bool decomp_all(bld *b, const tp_val *arg, tp_val *out) { return all_of(b, arg[0].t, &arg[1], &arg[2], out); }
bool decomp_all_whole(bld *b, const tp_val *arg, tp_val *out) { return all_of(b, arg[0].t, NULL, NULL, out); }
bool decomp_count_nonzero(bld *b, const tp_val *arg, tp_val *out)
{
    symint one;
    tp_tensor *nz = b_op(b, ne_Tensor, arg[0], vI(0));
    return give(b, b_op(b, sum_dim_IntList, vT(nz), as_list(&arg[1], &one)), out);
}

/* ---- spread ---- */
static tp_tensor *variance(bld *b, const tp_val *arg, bool root, tp_tensor **mean)
{
    tp_tensor *t = arg[0].t;
    uint32_t mask;
    if (!mask_of(b, t, &arg[1], &mask)) {
        b->failed = true;
        return NULL;
    }
    bool keep = arg[3].b;
    double corr = arg[2].kind == VAL_none ? 1 : val_as_f(&arg[2]);
    symint n = count_of(t, mask);
    dtype dt = (dtype)t->dt;
    t = widened(b, t);
    tp_tensor *m = b_op(b, div_Tensor, vT(sum_over(b, t, arg[1], true)), vI(n));
    tp_tensor *d = b_op(b, sub_Tensor, vT(t), vT(m));
    tp_tensor *s = sum_over(b, b_op(b, mul_Tensor, vT(d), vT(d)), arg[1], keep);
    tp_val dof = corr == floor(corr) ? vI(sym_max(sym_sub(n, (symint)corr), 0))
                                     : vF(sym_is_expr(n) ? 0 : MAX((double)n - corr, 0));
    tp_tensor *v = b_op(b, div_Tensor, vT(s), dof);
    if (mean)
        *mean = to_type(b, drop_dims(b, m, mask, keep), dt);
    return to_type(b, root ? b_op(b, sqrt, vT(v)) : v, dt);
}
bool decomp_var(bld *b, const tp_val *arg, tp_val *out)
{
    return give(b, variance(b, arg, false, NULL), out);
}
bool decomp_std(bld *b, const tp_val *arg, tp_val *out) { return give(b, variance(b, arg, true, NULL), out); }
static bool variance_mean(bld *b, const tp_val *arg, tp_val *out, bool root)
{
    tp_tensor *m = NULL, *v = variance(b, arg, root, &m);
    return give(b, v, &out[0]) && give(b, m, &out[1]);
}
bool decomp_var_mean(bld *b, const tp_val *arg, tp_val *out) { return variance_mean(b, arg, out, false); }
bool decomp_std_mean(bld *b, const tp_val *arg, tp_val *out) { return variance_mean(b, arg, out, true); }

/* The older spellings: unbiased instead of correction. */
#define SPELL(nm, op)                                                           \
    bool decomp_##nm##_dim(bld *b, const tp_val *arg, tp_val *out)              \
    {                                                                           \
        return give(b, b_op(b, op, arg[0], arg[1], vI(arg[2].b), arg[3]), out); \
    }                                                                           \
    bool decomp_##nm##_all(bld *b, const tp_val *arg, tp_val *out)              \
    {                                                                           \
        return give(b, b_op(b, op, arg[0], vNone, vI(arg[1].b)), out);          \
    }
SPELL(var, var_correction)
SPELL(std, std_correction)
#define SPELL2(nm, op)                                                                               \
    bool decomp_##nm##_dim(bld *b, const tp_val *arg, tp_val *out)                                   \
    {                                                                                                \
        tp_tensor *r[2];                                                                             \
        return b_opn(b, op, r, 2, arg[0], arg[1], vI(arg[2].b), arg[3]) && give(b, r[0], &out[0]) && \
               give(b, r[1], &out[1]);                                                               \
    }                                                                                                \
    bool decomp_##nm##_all(bld *b, const tp_val *arg, tp_val *out)                                   \
    {                                                                                                \
        tp_tensor *r[2];                                                                             \
        return b_opn(b, op, r, 2, arg[0], vNone, vI(arg[1].b)) && give(b, r[0], &out[0]) &&          \
               give(b, r[1], &out[1]);                                                               \
    }
SPELL2(var_mean, var_mean_correction)
SPELL2(std_mean, std_mean_correction)

/* ---- norms ---- */
bool decomp_vector_norm(bld *b, const tp_val *arg, tp_val *out) /* self, ord, dim, keepdim, dtype */
{
    tp_tensor *t = arg[0].t, *r;
    double p = val_as_f(&arg[1]);
    if (arg[4].kind == VAL_dtype)
        t = to_type(b, t, (dtype)arg[4].i);
    if (!t)
        return false;
    dtype dt = (dtype)t->dt;
    t = widened(b, t);
    tp_val dim = arg[2].kind == VAL_none ? vIs(NULL, 0) : arg[2];
    tp_tensor *a = b_op(b, abs, vT(t));
    if (p == INFINITY)
        r = b_op(b, amax, vT(a), dim, arg[3]);
    else if (p == -INFINITY)
        r = b_op(b, amin, vT(a), dim, arg[3]);
    else if (p == 0)
        r = to_type(b, sum_over(b, b_op(b, ne_Tensor, vT(t), vI(0)), dim, arg[3].b), (dtype)t->dt);
    else if (p == 1)
        r = sum_over(b, a, dim, arg[3].b);
    else if (p == 2)
        r = b_op(b, sqrt, vT(sum_over(b, b_op(b, mul_Tensor, vT(t), vT(t)), dim, arg[3].b)));
    else {
        if (p < 0 || p > 4) /* 0.01 to the power of -41 is more than float32 can hold */
            a = to_type(b, a, DT_f64);
        r = b_op(b, pow_Tensor_Scalar,
                 vT(sum_over(b, b_op(b, pow_Tensor_Scalar, vT(a), vF(p)), dim, arg[3].b)), vF(1 / p));
    }
    return give(b, to_type(b, r, dt), out);
}
static bool norm(bld *b, const tp_val *arg, tp_val dt, tp_val *out)
{
    tp_val dim = arg[2].n ? arg[2] : vNone;
    tp_tensor *t = arg[0].t;
    if (!dtype_has_grad((dtype)t->dt) && dt.kind == VAL_none)
        return err_set(b->err, ERR_runtime,
                       "linalg.vector_norm: Expected a floating point or complex tensor as input. Got %s",
                       dtype_rows[t->dt].gname);
    return give(
        b, b_op(b, linalg_vector_norm, arg[0], arg[1].kind == VAL_none ? vI(2) : arg[1], dim, arg[3], dt),
        out);
}
bool decomp_norm(bld *b, const tp_val *arg, tp_val *out) { return norm(b, arg, vNone, out); }
bool decomp_norm_dtype(bld *b, const tp_val *arg, tp_val *out) { return norm(b, arg, arg[4], out); }
bool decomp_dist(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *d = b_op(b, sub_Tensor, arg[0], arg[1]);
    return give(b, b_op(b, linalg_vector_norm, vT(d), arg[2]), out);
}

/* ---- log-sum-exp and softmax ---- */
bool decomp_logsumexp(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = to_type(b, arg[0].t,
                           dtype_is_float((dtype)arg[0].t->dt) ? (dtype)arg[0].t->dt : b->cx->default_dtype);
    uint32_t mask;
    if (!t || !mask_of(b, t, &arg[1], &mask))
        return false;
    dtype dt = (dtype)t->dt;
    t = widened(b, t);
    if (sym_known(SYM_eq, t->numel, 0)) {
        tp_tensor *s = sum_over(b, b_op(b, exp, vT(t)), arg[1], arg[2].b);
        return give(b, to_type(b, b_op(b, log, vT(s)), dt), out);
    }
    tp_tensor *m = b_op(b, amax, vT(t), arg[1], vB(true));
    m = b_op(b, where_self, vT(b_op(b, isinf, vT(m))), vI(0), vT(m)); /* inf - inf would be NaN */
    m = b_op(b, detach, vT(m));
    tp_tensor *s = sum_over(b, b_op(b, exp, vT(b_op(b, sub_Tensor, vT(t), vT(m)))), arg[1], arg[2].b);
    tp_tensor *r = b_op(b, add_Tensor, vT(b_op(b, log, vT(s))), vT(drop_dims(b, m, mask, arg[2].b)));
    return give(b, to_type(b, r, dt), out);
}

static tp_tensor *soft_input(bld *b, const tp_val *arg)
{
    return arg[2].kind == VAL_dtype ? to_type(b, arg[0].t, (dtype)arg[2].i) : arg[0].t;
}
bool decomp_softmax_int(bld *b, const tp_val *arg, tp_val *out)
{
    return give(b, b_op(b, _softmax, vT(soft_input(b, arg)), arg[1], vB(false)), out);
}
bool decomp_log_softmax_int(bld *b, const tp_val *arg, tp_val *out)
{
    return give(b, b_op(b, _log_softmax, vT(soft_input(b, arg)), arg[1], vB(false)), out);
}
static bool soft_parts(bld *b, const tp_val *arg, tp_val *out, bool log_)
{
    tp_tensor *t = arg[0].t;
    dtype dt = (dtype)t->dt;
    symint d = arg[1].i;
    if (t->numel == 0) /* nothing has no maximum */
        return give(b, b_op(b, clone, vT(t)), out);
    t = widened(b, t);
    tp_tensor *x = b_op(b, sub_Tensor, vT(t), vT(b_op(b, amax, vT(t), vIs(&d, 1), vB(true))));
    tp_tensor *e = b_op(b, exp, vT(x)), *s = sum_over(b, e, vIs(&d, 1), true);
    tp_tensor *r = log_ ? b_op(b, sub_Tensor, vT(x), vT(b_op(b, log, vT(s))))
                        : b_op(b, mul_Tensor, vT(e), vT(b_op(b, reciprocal, vT(s)))); /* once a row */
    return give(b, to_type(b, r, dt), out);
}
bool decomp_softmax(bld *b, const tp_val *arg, tp_val *out) { return soft_parts(b, arg, out, false); }
bool decomp_log_softmax(bld *b, const tp_val *arg, tp_val *out) { return soft_parts(b, arg, out, true); }
bool decomp_softmax_back(bld *b, const tp_val *arg, tp_val *out)
{
    symint d = arg[2].i;
    tp_tensor *gy = b_op(b, mul_Tensor, arg[0], arg[1]), *s = sum_over(b, gy, vIs(&d, 1), true);
    tp_tensor *r = b_op(b, sub_Tensor, vT(gy), vT(b_op(b, mul_Tensor, arg[1], vT(s))));
    return give(b, to_type(b, r, (dtype)arg[0].t->dt), out);
}
bool decomp_log_softmax_back(bld *b, const tp_val *arg, tp_val *out)
{
    symint d = arg[2].i;
    tp_tensor *s = sum_over(b, arg[0].t, vIs(&d, 1), true);
    tp_tensor *r = b_op(b, sub_Tensor, arg[0], vT(b_op(b, mul_Tensor, vT(b_op(b, exp, arg[1])), vT(s))));
    return give(b, to_type(b, r, (dtype)arg[0].t->dt), out);
}

bool decomp_msort(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    return b_opn(b, sort, r, 2, arg[0], vI(0)) && give(b, r[0], out);
}

/* ---- quantiles: order statistics around q (n - 1) of sorted lines ---- */
static bool quantile_ok(bld *b, const tp_val *arg, const char *nm)
{
    tp_tensor *t = arg[0].t, *q = arg[1].kind == VAL_tensor ? arg[1].t : NULL;
    static const char *const names[] = { "linear", "lower", "higher", "midpoint", "nearest" };
    bool known = false;
    if (t->dt != DT_f32 && t->dt != DT_f64)
        return err_set(b->err, ERR_runtime, "%s() input tensor must be either float or double dtype", nm);
    if (sym_eq(t->numel, 0))
        return err_set(b->err, ERR_runtime, "%s() input tensor must be non-empty", nm);
    if (q && q->ndim > 1)
        return err_set(b->err, ERR_runtime, "%s() q must be a scalar or 1D tensor", nm);
    if (q && q->dt != t->dt)
        return err_set(b->err, ERR_runtime, "%s() q tensor must be same dtype as the input tensor", nm);
    for (int i = 0; i < 5; i++)
        known |= !strcmp(arg[4].s, names[i]);
    if (!known)
        return err_set(
            b->err, ERR_runtime,
            "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but "
            "got %.40s",
            arg[4].s);
    if (!q && !(val_as_f(&arg[1]) >= 0 && val_as_f(&arg[1]) <= 1))
        return err_set(b->err, ERR_runtime, "%s() q must be in the range [0, 1] but got %g", nm,
                       val_as_f(&arg[1]));
    if (q && !tensor_is_fake(q) && !(q = bld_host(b, (tp_tensor *)q)))
        return false;
    for (int64_t i = 0; q && !tensor_is_fake(q) && i < q->numel; i++) {
        double v = elem_get_f((dtype)q->dt, tensor_elem(q, i));
        if (!(v >= 0 && v <= 1))
            return err_set(b->err, ERR_runtime, "%s() q values must be in the range [0, 1]", nm);
    }
    return true;
}
/* (self, q, dim, keepdim, interpolation) */
static bool quantile(bld *b, const tp_val *arg, tp_val *out, bool skip_nan)
{
    tp_tensor *t = arg[0].t, *sorted[2], *rank;
    const char *how = arg[4].s;
    bool keep = arg[3].b, all = arg[2].kind == VAL_none, many = arg[1].kind == VAL_tensor && arg[1].t->ndim;
    int dim = 0, nd = t->ndim;
    if (!quantile_ok(b, arg, skip_nan ? "nanquantile" : "quantile"))
        return false;
    if (!all && !dim_wrap(arg[2].i, nd, &dim, b->err))
        return false;
    if (all) { /* one line, with a dimension of 1 for each that keepdim keeps */
        symint size[TP_MAX_DIMS + 1];
        int n = 0;
        for (int d = 0; keep && d < nd; d++)
            size[n++] = 1;
        size[n++] = t->numel;
        t = b_op(b, reshape, vT(t), vIs(size, n));
    } else if (!nd)
        t = b_op(b, unsqueeze, vT(t), vI(0));
    else {
        t = b_op(b, transpose_int, vT(b_op(b, unsqueeze, vT(t), vI(-1))), vI(dim), vI(-1));
        if (!keep)
            t = b_op(b, squeeze_dim, vT(t), vI(dim));
    }
    if (!b_opn(b, sort, sorted, 2, vT(t), vI(-1)))
        return false;
    symint last = sym_sub(t->size[t->ndim - 1], 1);
    tp_val q = arg[1].kind == VAL_tensor ? arg[1] : vT(b_op(b, full, vIs(NULL, 0), arg[1], vDT(t->dt)));
    tp_tensor *bad = b_op(b, isnan, vT(sorted[0]));
    if (skip_nan) { /* ranks among those that are numbers */
        symint d = -1;
        tp_tensor *n = b_op(b, sum_dim_IntList, vT(b_op(b, logical_not, vT(bad))), vIs(&d, 1), vB(true));
        n = b_op(b, clamp_min, vT(b_op(b, sub_Tensor, vT(n), vI(1))), vI(0));
        rank = b_op(b, mul_Tensor, q, vT(n));
    } else { /* a NaN sorts last and is the answer of its line */
        symint d = -1;
        tp_tensor *any = b_op(b, any_dims, vT(bad), vIs(&d, 1), vB(true));
        rank = b_op(b, masked_fill_Scalar, vT(b_op(b, mul_Tensor, q, vI(last))), vT(any), vI(last));
    }
    if (!strcmp(how, "lower"))
        rank = b_op(b, floor, vT(rank));
    else if (!strcmp(how, "higher"))
        rank = b_op(b, ceil, vT(rank));
    else if (!strcmp(how, "nearest"))
        rank = b_op(b, round, vT(rank));
    tp_tensor *low = b_op(b, to_dtype, vT(rank), vDT(DT_i64));
    tp_tensor *r = b_op(b, gather, vT(sorted[0]), vI(-1), vT(low));
    if (!strcmp(how, "linear") || !strcmp(how, "midpoint")) {
        tp_tensor *high = b_op(b, to_dtype, vT(b_op(b, ceil, vT(rank))), vDT(DT_i64));
        high = b_op(b, gather, vT(sorted[0]), vI(-1), vT(high));
        r = how[0] == 'm' ? b_op(b, lerp_Scalar, vT(r), vT(high), vF(0.5))
                          : b_op(b, lerp_Tensor, vT(r), vT(high), vT(b_op(b, sub_Tensor, vT(rank), vT(low))));
    }
    if (many) /* the quantiles are the first dimension of the result */
        r = b_op(b, transpose_int, vT(b_op(b, unsqueeze, vT(r), vI(0))), vI(0), vI(-1));
    return give(b, b_op(b, squeeze_dim, vT(r), vI(-1)), out);
}
bool decomp_quantile(bld *b, const tp_val *arg, tp_val *out) { return quantile(b, arg, out, false); }
bool decomp_nanquantile(bld *b, const tp_val *arg, tp_val *out) { return quantile(b, arg, out, true); }
