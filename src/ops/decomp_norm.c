/* decomp_norm.c - matrix norms, rank, pseudo-inverse and condition number, from singular values and reductions. */
#include "ops/decomp.h"
#include <math.h>

#define RET(t)    comp_ret(b, (t), out)
#define FAIL(...) err_set(b->err, ERR_runtime, __VA_ARGS__)
#define LIST(...) vIs(((symint[]){ __VA_ARGS__ }), (int)(sizeof((symint[]){ __VA_ARGS__ }) / sizeof(symint)))

static tp_tensor *singular_values(bld *b, tp_tensor *a) { return b_op(b, linalg_svdvals, vT(a)); }

/* Two dimensions of a moved to the end; keepdim puts ones back in their places afterwards. */
static tp_tensor *to_end(bld *b, tp_tensor *a, int p, int q)
{
    return b_op(b, movedim_intlist, vT(a), LIST(p, q), LIST(-2, -1));
}
static tp_tensor *put_back(bld *b, tp_tensor *r, int p, int q, bool keep)
{
    if (!keep || !r)
        return r;
    r = b_op(b, unsqueeze, vT(r), vI(MIN(p, q)));
    return b_op(b, unsqueeze, vT(r), vI(MAX(p, q)));
}

/* ord: a number, or NULL name; name: "fro" or "nuc". */
static tp_tensor *matrix_norm(bld *b, tp_tensor *a, const char *name, double ord, const tp_val *dim,
                              bool keep, const tp_val *dt)
{
    int p, q;
    if (a->ndim < 2 || dim->n != 2 || !dim_wrap(dim->ints[0], a->ndim, &p, b->err) ||
        !dim_wrap(dim->ints[1], a->ndim, &q, b->err)) {
        err_set(b->err, ERR_runtime,
                a->ndim < 2 ? "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."
                            : "linalg.matrix_norm: dim must be a 2-tuple.");
        goto fail;
    }
    if (p == q) {
        err_set(b->err, ERR_runtime, "linalg.matrix_norm: dims must be different. Got (%d, %d)", p, q);
        goto fail;
    }
    if (!dtype_has_grad((dtype)a->dt)) {
        err_set(b->err, ERR_runtime,
                "linalg.matrix_norm: Expected a floating point or complex tensor as input. Got %s",
                dtype_rows[a->dt].gname);
        goto fail;
    }
    if (dt->kind != VAL_none && (dtype)dt->i != (dtype)a->dt)
        a = b_op(b, to_dtype, vT(a), *dt);
    if (name && !strcmp(name, "fro"))
        return b_op(b, linalg_vector_norm, vT(a), vI(2), LIST(p, q), vB(keep));
    if (name && !strcmp(name, "nuc")) {
        tp_tensor *s = singular_values(b, to_end(b, a, p, q));
        return put_back(b, b_op(b, sum_dim_IntList, vT(s), LIST(-1)), p, q, keep);
    }
    if (name) {
        err_set(b->err, ERR_runtime, "linalg.matrix_norm: Order %s not supported.", name);
        goto fail;
    }
    double m = fabs(ord);
    bool largest = ord > 0;
    if (m == 2) {
        tp_tensor *s = singular_values(b, to_end(b, a, p, q));
        if (largest && s && sym_known(SYM_eq, s->size[s->ndim - 1], 0)) /* of nothing */
            return put_back(b, b_op(b, sum_dim_IntList, vT(s), LIST(-1)), p, q, keep);
        s = largest ? b_op(b, amax, vT(s), LIST(-1)) : b_op(b, amin, vT(s), LIST(-1));
        return put_back(b, s, p, q, keep);
    }
    if (m == 1 || isinf(m)) { /* the largest (smallest) absolute column or row sum */
        int over = m == 1 ? p : q, pick = m == 1 ? q : p;
        tp_tensor *s = b_op(b, linalg_vector_norm, vT(a), vI(1), LIST(over), vB(true));
        if (largest && sym_known(SYM_eq, a->size[pick], 0)) /* of nothing */
            s = b_op(b, sum_dim_IntList, vT(s), LIST(pick), vB(true));
        else
            s = largest ? b_op(b, amax, vT(s), LIST(pick), vB(true))
                        : b_op(b, amin, vT(s), LIST(pick), vB(true));
        return keep ? s : b_op(b, squeeze_dims, vT(s), LIST(p, q));
    }
    err_set(b->err, ERR_runtime, "linalg.matrix_norm: Order %g not supported.", ord);
fail:
    b->failed = true;
    return NULL;
}

/* (self, ord, dim, keepdim, dtype) */
bool decomp_matrix_norm(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(matrix_norm(b, arg[0].t, NULL, val_as_f(&arg[1]), &arg[2], val_b(&arg[3], false), &arg[4]));
}
bool decomp_matrix_norm_str(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(matrix_norm(b, arg[0].t, arg[1].s, 0, &arg[2], val_b(&arg[3], false), &arg[4]));
}

bool decomp_linalg_norm(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *a = arg[0].t;
    bool named = arg[1].kind == VAL_str, keep = val_b(&arg[3], false);
    const tp_val *dim = &arg[2];
    if (dim->kind == VAL_none && arg[1].kind == VAL_none) { /* of all elements as one vector */
        tp_tensor *f = b_op(b, linalg_vector_norm, vT(a), vI(2), vNone, vB(keep), arg[4]);
        return RET(f);
    }
    if (dim->kind == VAL_none && a->ndim != 1 && a->ndim != 2)
        return FAIL("linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got %dD.",
                    a->ndim);
    int nd = dim->kind == VAL_none ? a->ndim : dim->n;
    if (nd == 2 && arg[1].kind != VAL_none) {
        tp_val d = dim->kind == VAL_none ? LIST(0, 1) : *dim;
        return RET(
            matrix_norm(b, a, named ? arg[1].s : NULL, named ? 0 : val_as_f(&arg[1]), &d, keep, &arg[4]));
    }
    if (named)
        return FAIL("linalg.norm: If ord is '%s', the input must be a matrix", arg[1].s);
    return RET(
        b_op(b, linalg_vector_norm, vT(a), arg[1].kind == VAL_none ? vI(2) : arg[1], *dim, vB(keep), arg[4]));
}

/* Singular values (or absolute eigenvalues), largest first or not: only their size matters here. */
static tp_tensor *spectrum(bld *b, tp_tensor *a, bool hermitian)
{
    return hermitian ? b_op(b, abs, vT(b_op(b, linalg_eigvalsh, vT(a)))) : singular_values(b, a);
}
static tp_val default_rtol(bld *b, const tp_tensor *a)
{
    double eps = a->dt == DT_f64 ? 2.220446049250313e-16 : 1.1920928955078125e-07;
    symint most = sym_max(a->size[a->ndim - 2], a->size[a->ndim - 1]);
    if (!sym_is_expr(most))
        return vF(eps * (double)most);
    return vT(b_op(b, mul_Tensor, vT(b_op(b, scalar_tensor, vF(eps), vDT(DT_f64))), vI(most)));
}
static bool matrix_ok(bld *b, const tp_tensor *a, const char *who)
{
    if (a->ndim < 2)
        return FAIL("%s: The input tensor %s must have at least 2 dimensions.", who, "input");
    if (!dtype_is_float((dtype)a->dt))
        return FAIL("%s: Expected a floating point or complex tensor as input. Got %s", who,
                    dtype_rows[a->dt].gname);
    return true;
}

/* A bound per matrix as a tensor of a's type, or NULL for none: numbers become scalars. */
static tp_tensor *bound_of(bld *b, const tp_val *v, const tp_tensor *a)
{
    if (v->kind == VAL_none)
        return NULL;
    return v->kind == VAL_tensor ? v->t : b_op(b, full, vIs(NULL, 0), *v, vDT(a->dt));
}
/* max(atol, rtol * the largest value), per matrix; keeps a last dimension of 1. Without rtol it is a default, which an
 * atol above zero switches off. */
static tp_tensor *threshold(bld *b, tp_tensor *a, tp_tensor *s, const tp_val *atol, const tp_val *rtol)
{
    tp_tensor *at = bound_of(b, atol, a), *rt = bound_of(b, rtol, a);
    tp_val dflt = default_rtol(b, a);
    tp_tensor *top = b_op(b, amax, vT(s), LIST(-1), vB(true));
    if (at)
        at = b_op(b, unsqueeze, vT(at), vI(-1));
    if (rt)
        top = b_op(b, mul_Tensor, vT(b_op(b, unsqueeze, vT(rt), vI(-1))), vT(top));
    else if (at) {
        tp_tensor *r = b_op(b, mul_Tensor, vT(top), dflt);
        top = b_op(b, where_self, vT(b_op(b, gt_Tensor, vT(at), vI(0))), vI(0), vT(r));
    } else
        top = b_op(b, mul_Tensor, vT(top), dflt);
    return at ? b_op(b, maximum, vT(top), vT(at)) : top;
}

static bool rank(bld *b, tp_tensor *a, const tp_val *atol, const tp_val *rtol, bool hermitian, tp_val *out)
{
    if (!matrix_ok(b, a, "torch.linalg.matrix_rank"))
        return false;
    if (sym_eq(a->numel, 0))
        return RET(b_op(b, zeros, vIs(a->size, a->ndim - 2), vDT(DT_i64)));
    tp_tensor *s = spectrum(b, a, hermitian);
    tp_tensor *t = s ? threshold(b, a, s, atol, rtol) : NULL;
    return RET(b_op(b, sum_dim_IntList, vT(b_op(b, gt_Tensor, vT(s), vT(t))), LIST(-1)));
}
bool decomp_matrix_rank(bld *b, const tp_val *arg, tp_val *out) /* (self, atol, rtol, hermitian) */
{
    return rank(b, arg[0].t, &arg[1], &arg[2], val_b(&arg[3], false), out);
}
bool decomp_matrix_rank_tol(bld *b, const tp_val *arg, tp_val *out) /* (self, tol, hermitian) */
{
    return rank(b, arg[0].t, &arg[1], &vI(0), val_b(&arg[2], false), out);
}

/* (self, atol, rtol, hermitian): the row with a derivative; the other spellings lead here */
bool shape_pinv(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    bld b = { .err = c->err };
    symint size[TP_MAX_DIMS];
    size_text s, t;
    if (!matrix_ok(&b, a, "linalg.pinv"))
        return false;
    if (arg_b(c, 3, false) && !sym_eq(a->size[a->ndim - 1], a->size[a->ndim - 2]))
        return err_set(c->err, ERR_runtime,
                       "linalg.pinv: A must be batches of square matrices, but they are %s by %s matrices",
                       size_str(&s, a->size[a->ndim - 2]), size_str(&t, a->size[a->ndim - 1]));
    if ((a->dt == DT_f16 || a->dt == DT_bf16) && !sym_eq(a->numel, 0))
        return err_set(c->err, ERR_runtime, "linalg.%s: Low precision dtypes not supported. Got %s",
                       arg_b(c, 3, false) ? "eigh" : "svd", dtype_rows[a->dt].gname);
    for (int i = 1; i < 3; i++) { /* bounds are per matrix */
        tp_tensor *tol = arg_t(c, i);
        int nd = a->ndim - 2;
        bool fits = true;
        if (!tol)
            continue;
        memcpy(size, a->size, sizeof(symint) * (size_t)nd);
        if (!shape_broadcast(&nd, size, tol->ndim, tol->size, c->err))
            return false;
        for (int d = 0; d < nd && nd == a->ndim - 2; d++)
            fits = fits && sym_eq(size[d], a->size[d]);
        if (nd != a->ndim - 2 || !fits)
            return err_set(c->err, ERR_runtime, "linalg.pinv: %s of size %s does not fit matrices of size %s",
                           i == 1 ? "atol" : "rtol", sizes_str(&s, tol->ndim, tol->size),
                           sizes_str(&t, a->ndim, a->size));
    }
    memcpy(size, a->size, sizeof(symint) * a->ndim);
    size[a->ndim - 1] = a->size[a->ndim - 2];
    size[a->ndim - 2] = a->size[a->ndim - 1];
    return out_new(c, (dtype)a->dt, a->ndim, size) != NULL;
}
static tp_tensor *pinv(bld *b, const tp_val *arg)
{
    tp_tensor *a = arg[0].t, *r[3];
    if (val_b(&arg[3], false)) {
        if (!b_opn(b, linalg_eigh, r, 2, vT(a)))
            return NULL;
        tp_tensor *ab = b_op(b, abs, vT(r[0]));
        tp_tensor *keep = b_op(b, gt_Tensor, vT(ab), vT(threshold(b, a, ab, &arg[1], &arg[2])));
        tp_tensor *inv = b_op(b, where_self, vT(keep), vT(b_op(b, reciprocal, vT(r[0]))), vI(0));
        tp_tensor *v = b_op(b, mul_Tensor, vT(r[1]), vT(b_op(b, unsqueeze, vT(inv), vI(-2))));
        return b_op(b, matmul, vT(v), vT(b_op(b, transpose_int, vT(r[1]), vI(-2), vI(-1))));
    }
    if (!b_opn(b, linalg_svd, r, 3, vT(a), vB(false)))
        return NULL;
    tp_tensor *keep = b_op(b, gt_Tensor, vT(r[1]), vT(threshold(b, a, r[1], &arg[1], &arg[2])));
    tp_tensor *inv = b_op(b, where_self, vT(keep), vT(b_op(b, reciprocal, vT(r[1]))), vI(0));
    tp_tensor *v = b_op(b, transpose_int, vT(r[2]), vI(-2), vI(-1));
    v = b_op(b, mul_Tensor, vT(v), vT(b_op(b, unsqueeze, vT(inv), vI(-2))));
    return b_op(b, matmul, vT(v), vT(b_op(b, transpose_int, vT(r[0]), vI(-2), vI(-1))));
}
bool eager_pinv(op_call *c)
{
    bld b;
    if (!c->res[0]->numel)
        return true;
    bld_init(&b, c->cx, c->err);
    tp_tensor *r = pinv(&b, c->arg);
    bool ok = r && !b.failed && tensor_copy(c->res[0], r, c->err);
    bld_end(&b);
    return ok;
}
static bool pinv_call(bld *b, tp_tensor *a, const tp_val *atol, const tp_val *rtol, bool hermitian,
                      tp_val *out)
{
    return RET(b_op(b, linalg_pinv_atol_rtol_tensor, vT(a), vT(bound_of(b, atol, a)),
                    vT(bound_of(b, rtol, a)), vB(hermitian)));
}
bool decomp_pinv(bld *b, const tp_val *arg, tp_val *out) /* (self, atol, rtol, hermitian) */
{
    return pinv_call(b, arg[0].t, &arg[1], &arg[2], val_b(&arg[3], false), out);
}
bool decomp_pinv_rcond(bld *b, const tp_val *arg, tp_val *out) /* (self, rcond, hermitian) */
{
    return pinv_call(b, arg[0].t, &vI(0), &arg[1], val_b(&arg[2], false), out);
}
bool decomp_pinverse(bld *b, const tp_val *arg, tp_val *out) /* (self, rcond) */
{
    return pinv_call(b, arg[0].t, &vI(0), &arg[1], false, out);
}

static bool cond(bld *b, tp_tensor *a, const char *name, const tp_val *p, tp_val *out)
{
    double ord = p && p->kind != VAL_none ? val_as_f(p) : 2;
    tp_tensor *r[2];
    tp_val d = LIST(-2, -1);
    if (!matrix_ok(b, a, "linalg.cond"))
        return false;
    if (!name && fabs(ord) == 2) {
        tp_tensor *s = singular_values(b, a);
        tp_tensor *hi = b_op(b, amax, vT(s), LIST(-1)), *lo = b_op(b, amin, vT(s), LIST(-1));
        return RET(ord > 0 ? b_op(b, div_Tensor, vT(hi), vT(lo)) : b_op(b, div_Tensor, vT(lo), vT(hi)));
    }
    if (!b_opn(b, linalg_inv_ex, r, 2, vT(a)))
        return false;
    tp_tensor *n = matrix_norm(b, a, name, ord, &d, false, &vNone),
              *m = matrix_norm(b, r[0], name, ord, &d, false, &vNone);
    tp_tensor *c = b_op(b, mul_Tensor, vT(n), vT(m));
    /* a singular matrix has no inverse: its condition is infinite */
    return RET(b_op(b, where_self, vT(b_op(b, eq_Tensor, vT(r[1]), vI(0))), vT(c), vF(INFINITY)));
}
bool decomp_cond(bld *b, const tp_val *arg, tp_val *out) { return cond(b, arg[0].t, NULL, &arg[1], out); }
bool decomp_cond_str(bld *b, const tp_val *arg, tp_val *out)
{
    return cond(b, arg[0].t, arg[1].s, NULL, out);
}

bool decomp_logdet(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    if (!b_opn(b, linalg_slogdet, r, 2, arg[0]))
        return false;
    /* log of the sign: 0 for 1, NaN for -1, -inf for 0, where the other part is -inf already */
    return RET(b_op(b, where_self, vT(b_op(b, lt_Tensor, vT(r[0]), vI(0))), vF(NAN), vT(r[1])));
}
bool decomp_old_svd(bld *b, const tp_val *arg, tp_val *out) /* (self, some, compute_uv): U, S, V */
{
    tp_tensor *r[3], *a = arg[0].t;
    if (!b_opn(b, linalg_svd, r, 3, arg[0], vB(!val_b(&arg[1], true))))
        return false;
    r[2] = b_op(b, transpose_int, vT(r[2]), vI(-2), vI(-1));
    if (!val_b(&arg[2], true)) {
        symint size[TP_MAX_DIMS];
        for (int i = 0; i < 2; i++) {
            memcpy(size, a->size, sizeof(symint) * a->ndim);
            size[a->ndim - 2] = size[a->ndim - 1] = a->size[a->ndim - (i ? 1 : 2)];
            r[i ? 2 : 0] = b_op(b, zeros, vIs(size, a->ndim), vDT(a->dt));
        }
    }
    return comp_ret_n(b, r, 3, out);
}

/* ---- prelu: one slope, or one per channel ---- */
bool decomp_prelu(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[0].t, *w = arg[1].t;
    symint size[TP_MAX_DIMS];
    if (x->dt != w->dt)
        return FAIL("prelu: Type promoting not supported. Got %s and %s", dtype_rows[x->dt].gname,
                    dtype_rows[w->dt].gname);
    if (!sym_eq(w->numel, 1)) {
        if (x->ndim == 0)
            return FAIL("Not allow zero-dim input tensor.");
        symint channels = x->ndim >= 2 ? x->size[1] : 1;
        if (!sym_eq(channels, w->numel))
            return FAIL("Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                        "%lld and channel "
                        "size = %lld.",
                        (long long)w->numel, (long long)channels);
    }
    if (w->ndim > 1)
        return FAIL("prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = %d", w->ndim);
    for (int d = 0; d < x->ndim; d++)
        size[d] = d == 1 && w->ndim == 1 ? w->numel : 1;
    if (x->ndim == 1 && w->ndim == 1)
        size[0] = w->numel;
    w = b_op(b, reshape, vT(w), vIs(size, x->ndim));
    return RET(b_op(b, where_self, vT(b_op(b, gt_Tensor, vT(x), vI(0))), vT(x),
                    vT(b_op(b, mul_Tensor, vT(w), vT(x)))));
}

/* ---- distances within one set: the upper triangle of cdist ---- */
bool decomp_pdist(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = arg[0].t;
    if (x->ndim != 2)
        return FAIL("pdist only supports 2D tensors, got: %dD", x->ndim);
    int64_t n = sym_is_expr(x->size[0]) ? sym_specialize(x->size[0]) : x->size[0];
    tp_tensor *ix = b_op(b, triu_indices, vI(n), vI(n), vI(1));
    tp_tensor *i = b_op(b, select_int, vT(ix), vI(0), vI(0)), *j = b_op(b, select_int, vT(ix), vI(0), vI(1));
    tp_tensor *d = b_op(b, sub_Tensor, vT(b_op(b, index_select, vT(x), vI(0), vT(i))),
                        vT(b_op(b, index_select, vT(x), vI(0), vT(j))));
    return RET(b_op(b, linalg_vector_norm, vT(d), arg[1], LIST(-1)));
}
