/* matfun.c - functions of matrices that need no LAPACK: exponential, parts of an LU factorisation, products of
 * Householder reflectors, equations between tensors. */
#include "ops/decomp.h"
#include <math.h>

#define T(i)      val_t(&arg[i])
#define RET(t)    comp_ret(b, (t), out)
#define FAIL(...) err_set(b->err, ERR_runtime, __VA_ARGS__)
#define LIST(...) vIs(((symint[]){ __VA_ARGS__ }), (int)(sizeof((symint[]){ __VA_ARGS__ }) / sizeof(symint)))
#define ROWS(t)   ((t)->size[(t)->ndim - 2])
#define COLS(t)   ((t)->size[(t)->ndim - 1])

static tp_tensor *mt(bld *b, tp_tensor *t) { return b_op(b, transpose_int, vT(t), vI(-2), vI(-1)); }
static tp_tensor *cut(bld *b, tp_tensor *t, int dim, symint n)
{
    return b_op(b, narrow, vT(t), vI(dim), vI(0), vI(n));
}

/* ---- exponential: Taylor's series of A / 2^s, squared s times ---- */
bool shape_matrix_exp(op_call *c)
{
    tp_tensor *a = arg_t(c, 0);
    size_text x, y;
    if (a->ndim < 2)
        return err_set(c->err, ERR_runtime,
                       "linalg.matrix_exp: The input tensor A must have at least 2 dimensions.");
    if (!dtype_is_float((dtype)a->dt))
        return err_set(c->err, ERR_runtime,
                       "linalg.matrix_exp: Expected a floating point or complex tensor as input. Got %s",
                       dtype_rows[a->dt].gname);
    if (!sym_eq(ROWS(a), COLS(a)))
        return err_set(
            c->err, ERR_runtime,
            "linalg.matrix_exp: A must be batches of square matrices, but they are %s by %s matrices",
            size_str(&x, ROWS(a)), size_str(&y, COLS(a)));
    return out_new(c, (dtype)a->dt, a->ndim, a->size) != NULL;
}
static void product(int64_t n, const double *x, const double *y, double *z)
{
    memset(z, 0, sizeof(double) * (size_t)(n * n));
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++)
            for (int64_t j = 0; j < n; j++)
                z[i * n + j] += x[i * n + k] * y[k * n + j];
}
static void exponential(int64_t n, double *a, double *term, double *tmp, double *sum)
{
    double norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double row = 0;
        for (int64_t j = 0; j < n; j++)
            row += fabs(a[i * n + j]);
        norm = row > norm || row != row ? row : norm;
    }
    int s = isfinite(norm) && norm > 0.5 ? (int)ceil(log2(norm / 0.5)) : 0;
    for (int64_t i = 0; i < n * n; i++) {
        a[i] = ldexp(a[i], -s);
        sum[i] = term[i] = i % (n + 1) == 0;
    }
    for (int k = 1; k <= 18; k++) { /* 0.5^19 / 19! is below half a unit of the last place */
        product(n, term, a, tmp);
        for (int64_t i = 0; i < n * n; i++)
            sum[i] += term[i] = tmp[i] / k;
    }
    for (; s > 0; s--) {
        product(n, sum, sum, tmp);
        memcpy(sum, tmp, sizeof(double) * (size_t)(n * n));
    }
}
bool eager_matrix_exp(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *x = scratch_in(&s, arg_t(c, 0), DT_f64), *y = scratch_out(&s, c->res[0], DT_f64);
    if (!x || !y)
        return scratch_end(&s, false);
    int64_t n = COLS(x), w = n * n;
    double *tmp = mem_alloc(sizeof(double) * (size_t)MAX(3 * w, 1));
    for (int64_t i = 0; w && i < x->numel / w; i++) {
        memcpy(tmp, (double *)tensor_host(x) + i * w, sizeof(double) * (size_t)w);
        exponential(n, tmp, tmp + w, tmp + 2 * w, (double *)tensor_host(y) + i * w);
    }
    free(tmp);
    return scratch_end(&s, true);
}
bool decomp_matrix_exp(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(b_op(b, linalg_matrix_exp, arg[0]));
}

/* ---- LU: which row of A each row of L U is ---- */
bool shape_lu_permutation(op_call *c) /* pivots (..., k), counted from 1; m rows */
{
    tp_tensor *p = arg_t(c, 0);
    symint size[TP_MAX_DIMS];
    if (p->dt != DT_i32)
        return err_set(c->err, ERR_runtime,
                       "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of "
                       "torch.int32 dtype.\nNote: this function is intended to be used with the "
                       "output produced by torch.linalg.lu_factor");
    if (p->ndim < 1)
        return err_set(c->err, ERR_runtime, "torch.lu_unpack: LU_pivots must have at least one dimension");
    memcpy(size, p->size, sizeof(symint) * p->ndim);
    size[p->ndim - 1] = c->arg[1].i;
    return out_new(c, DT_i64, p->ndim, size) != NULL;
}
bool eager_lu_permutation(op_call *c)
{
    tp_tensor *p = tensor_contiguous(arg_t(c, 0), c->err), *o = c->res[0];
    if (!p)
        return false;
    int64_t k = p->size[p->ndim - 1], m = o->size[o->ndim - 1], nb = m ? o->numel / m : 0;
    bool ok = true;
    for (int64_t i = 0; i < nb && ok; i++) {
        int64_t *perm = (int64_t *)tensor_host(o) + i * m;
        const int32_t *piv = (const int32_t *)tensor_host(p) + i * k;
        for (int64_t j = 0; j < m; j++)
            perm[j] = j;
        for (int64_t j = 0; j < k && ok; j++) {
            int64_t q = piv[j] - 1;
            if (q < 0 || q >= m || j >= m) {
                ok = err_set(c->err, ERR_runtime,
                             "torch.lu_unpack: pivot %lld is out of range for a matrix of %lld rows",
                             (long long)piv[j], (long long)m);
                break;
            }
            int64_t t = perm[j];
            perm[j] = perm[q];
            perm[q] = t;
        }
    }
    tensor_unref(p);
    return ok;
}
bool decomp_lu_unpack(bld *b, const tp_val *arg, tp_val *out) /* (LU, pivots, unpack_data, unpack_pivots) */
{
    tp_tensor *lu = T(0), *r[3];
    symint none = 0, size[TP_MAX_DIMS];
    if (lu->ndim < 2)
        return FAIL("torch.lu_unpack: The input tensor LU_data must have at least 2 dimensions.");
    symint m = ROWS(lu), n = COLS(lu), k = sym_min(m, n);
    r[0] = r[1] = r[2] = b_op(b, zeros, vIs(&none, 1), vDT(lu->dt));
    if (val_b(&arg[3], true)) { /* column i of P has its one where row i of L U came from */
        tp_tensor *p = b_op(b, _lu_permutation, arg[1], vI(m));
        memcpy(size, lu->size, sizeof(symint) * lu->ndim);
        size[lu->ndim - 1] = m;
        tp_tensor *z = b_op(b, zeros, vIs(size, lu->ndim), vDT(lu->dt));
        r[0] = b_op(b, scatter_value, vT(z), vI(-2), vT(b_op(b, unsqueeze, vT(p), vI(-2))), vI(1));
    }
    if (val_b(&arg[2], true)) {
        tp_tensor *l = b_op(b, tril, vT(sym_eq(m, k) && sym_eq(n, k) ? lu : cut(b, lu, -1, k)), vI(-1));
        tp_tensor *one = l ? b_op(b, diag_embed, vT(b_op(b, ones, vIs(&k, 1), vDT(lu->dt)))) : NULL;
        if (one && sym_gt(m, k)) { /* ones on the diagonal of a tall L */
            symint rest[2] = { sym_sub(m, k), k };
            tp_tensor *z = b_op(b, zeros, vIs(rest, 2), vDT(lu->dt));
            one = b_op(b, cat, vTs(((tp_tensor *[]){ one, z }), 2), vI(0));
        }
        r[1] = b_op(b, add_Tensor, vT(l), vT(one));
        r[2] = b_op(b, triu, vT(sym_gt(m, k) ? cut(b, lu, -2, k) : lu));
    }
    return comp_ret_n(b, r, 3, out);
}
bool decomp_linalg_lu(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *f[3], *r[3];
    return b_opn(b, linalg_lu_factor_ex, f, 3, arg[0], arg[1]) &&
           b_opn(b, lu_unpack, r, 3, vT(f[0]), vT(f[1])) && comp_ret_n(b, r, 3, out);
}
bool decomp_old_lu_solve(bld *b, const tp_val *arg, tp_val *out) /* (B, LU, pivots) */
{
    return RET(b_op(b, linalg_lu_solve, arg[1], arg[2], arg[0]));
}
bool decomp_triangular_solve(bld *b, const tp_val *arg,
                             tp_val *out) /* (B, A, upper, transpose, unitriangular) */
{
    tp_tensor *r[2], *a = T(1), *x = T(0);
    bool upper = val_b(&arg[2], true);
    if (x->ndim < 2 || a->ndim < 2)
        return FAIL(
            "torch.triangular_solve: Expected %s to have at least 2 dimensions, but it has %d dimensions "
            "instead",
            x->ndim < 2 ? "b" : "A", x->ndim < 2 ? x->ndim : a->ndim);
    tp_tensor *m = val_b(&arg[3], false) ? mt(b, a) : a;
    r[0] = b_op(b, linalg_solve_triangular, vT(m), vT(x), vB(upper != val_b(&arg[3], false)), vB(true),
                arg[4]);
    r[1] = mt(b, b_op(b, clone, vT(mt(b, a)), vMF(MF_contiguous)));
    return comp_ret_n(b, r, 2, out);
}

/* ---- reflectors: Q = H1 H2 ... Hk, Hi = I - tau_i v_i v_i', v_i below the diagonal of `v` ---- */
static bool reflectors_ok(bld *b, const char *who, tp_tensor *v, tp_tensor *tau, bool tall)
{
    if (v->ndim < 2)
        return FAIL("%s: input must have at least 2 dimensions.", who);
    if (tall && sym_lt(ROWS(v), COLS(v)))
        return FAIL("%s: input.shape[-2] must be greater than or equal to input.shape[-1]", who);
    if (tau->ndim != v->ndim - 1)
        return FAIL(
            "%s: Expected tau to have one dimension less than input, but got tau.ndim equal to %d and "
            "input.ndim is equal to %d",
            who, tau->ndim, v->ndim);
    if (sym_lt(COLS(v), tau->size[tau->ndim - 1]))
        return FAIL("%s: input.shape[-1] must be greater than or equal to tau.shape[-1]", who);
    if (v->dt != tau->dt)
        return FAIL("%s: tau dtype %s does not match input dtype %s", who, dtype_rows[tau->dt].gname,
                    dtype_rows[v->dt].gname);
    return true;
}
/* Q x, or Q' x */
static tp_tensor *reflect(bld *b, tp_tensor *v, tp_tensor *tau, tp_tensor *x, bool transpose)
{
    symint ks = tau->size[tau->ndim - 1];
    int64_t k = sym_is_expr(ks) ? sym_specialize(ks) : ks;
    symint eye[2] = { ROWS(v), COLS(v) };
    tp_tensor *one = b_op(b, eye_m, vI(eye[0]), vI(eye[1]), vDT(v->dt));
    v = b_op(b, add_Tensor, vT(b_op(b, tril, vT(v), vI(-1))), vT(one));
    for (int64_t i = 0; i < k && x; i++) {
        int64_t at = transpose ? i : k - 1 - i;
        tp_tensor *c = b_op(b, narrow, vT(v), vI(-1), vI(at), vI(1));
        tp_tensor *t = b_op(b, unsqueeze, vT(b_op(b, narrow, vT(tau), vI(-1), vI(at), vI(1))), vI(-1));
        tp_tensor *p = b_op(b, matmul, vT(mt(b, c)), vT(x));
        x = b_op(b, sub_Tensor, vT(x), vT(b_op(b, mul_Tensor, vT(t), vT(b_op(b, matmul, vT(c), vT(p))))));
    }
    return x;
}
bool decomp_householder_product(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *v = T(0), *tau = T(1);
    if (!reflectors_ok(b, "torch.linalg.householder_product", v, tau, true))
        return false;
    tp_tensor *one = b_op(b, eye_m, vI(ROWS(v)), vI(COLS(v)), vDT(v->dt));
    tp_tensor *q = reflect(b, v, tau, b_op(b, expand, vT(one), vIs(v->size, v->ndim)), false);
    if (q && sym_known(SYM_eq, tau->numel, 0)) /* constant, but a function of v */
        q = b_op(b, add_Tensor, vT(q), vT(b_op(b, mul_Tensor, vT(v), vI(0))));
    /* column-major, as LAPACK would write it */
    return RET(q ? mt(b, b_op(b, clone, vT(mt(b, q)), vMF(MF_contiguous))) : NULL);
}
bool decomp_ormqr(bld *b, const tp_val *arg, tp_val *out) /* (v, tau, other, left, transpose) */
{
    tp_tensor *v = T(0), *tau = T(1), *x = T(2);
    bool left = val_b(&arg[3], true), tr = val_b(&arg[4], false);
    if (v->ndim < 2 || x->ndim < 2)
        return FAIL("torch.ormqr: %s must have at least 2 dimensions.", v->ndim < 2 ? "input" : "other");
    if (sym_lt(left ? ROWS(x) : COLS(x), tau->size[tau->ndim - 1]))
        return FAIL("torch.ormqr: other.shape[%d] must be greater than or equal to tau.shape[-1]",
                    left ? -2 : -1);
    if (!sym_eq(left ? ROWS(x) : COLS(x), ROWS(v)))
        return FAIL("torch.ormqr: other.shape[%d] must be equal to input.shape[-2]", left ? -2 : -1);
    if (!reflectors_ok(b, "torch.ormqr", v, tau, false))
        return false;
    tp_tensor *q = reflect(b, v, tau, left ? x : mt(b, x), left ? tr : !tr); /* x Q = (Q' x')' */
    return RET(q ? mt(b, b_op(b, clone, vT(left ? mt(b, q) : q), vMF(MF_contiguous))) : NULL);
}

/* ---- equations between tensors ---- */
bool decomp_tensorinv(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *a = T(0);
    int64_t ind = arg[1].i;
    symint rows = 1, cols = 1, size[TP_MAX_DIMS];
    int n = 0;
    if (ind <= 0)
        return FAIL("Expected a strictly positive integer for 'ind'.");
    for (int d = 0; d < a->ndim; d++)
        if (d < ind)
            rows = sym_mul(rows, a->size[d]);
        else
            cols = sym_mul(cols, size[n++] = a->size[d]);
    for (int d = 0; d < MIN(ind, a->ndim); d++)
        size[n++] = a->size[d];
    if (!sym_eq(rows, cols))
        return FAIL(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but "
            "got %lld != %lld",
            (long long)cols, (long long)rows);
    tp_tensor *m = b_op(b, reshape, vT(a), LIST(rows, cols));
    return RET(b_op(b, reshape, vT(b_op(b, linalg_inv, vT(m))), vIs(size, n)));
}
bool decomp_tensorsolve(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *a = T(0), *y = T(1);
    const tp_val *dims = &arg[2];
    if (dims->kind == VAL_ints && dims->n) { /* these go to the end */
        symint to[TP_MAX_DIMS];
        for (int i = 0; i < dims->n; i++)
            to[i] = a->ndim - dims->n + i;
        a = b_op(b, movedim_intlist, vT(a), *dims, vIs(to, dims->n));
        if (!a)
            return false;
    }
    symint rows = y->numel, cols = 1;
    int n = a->ndim - y->ndim;
    for (int d = y->ndim; d < a->ndim; d++)
        cols = sym_mul(cols, a->size[d]);
    if (!sym_eq(rows, cols) || !sym_eq(a->numel, sym_mul(rows, cols)))
        return FAIL("Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
                    "prod(self.shape[:other.ndim]), but got %lld != %lld",
                    (long long)cols, (long long)rows);
    tp_tensor *m = b_op(b, reshape, vT(a), LIST(rows, cols)), *v = b_op(b, reshape, vT(y), LIST(rows));
    return RET(b_op(b, reshape, vT(b_op(b, linalg_solve, vT(m), vT(v))), vIs(a->size + y->ndim, MAX(n, 0))));
}
bool decomp_linalg_vander(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(0);
    symint size[TP_MAX_DIMS];
    if (x->dt == DT_bool)
        return FAIL("linalg.vander supports floating point, complex, and integer tensors, but got Bool");
    if (x->ndim == 0)
        x = b_op(b, unsqueeze, vT(x), vI(-1));
    symint n = arg[1].kind == VAL_none ? x->size[x->ndim - 1] : arg[1].i;
    if (!sym_is_expr(n) && n <= 1)
        return FAIL("N must be greater than 1.");
    memcpy(size, x->size, sizeof(symint) * x->ndim);
    size[x->ndim] = sym_sub(n, 1);
    tp_tensor *e = b_op(b, expand, vT(b_op(b, unsqueeze, vT(x), vI(-1))), vIs(size, x->ndim + 1));
    e = b_op(b, cumprod, vT(e), vI(-1));
    if (!e)
        return false;
    size[x->ndim] = 1;
    tp_tensor *one = b_op(b, ones, vIs(size, x->ndim + 1), vDT(e->dt));
    return RET(b_op(b, cat, vTs(((tp_tensor *[]){ one, e }), 2), vI(-1)));
}
