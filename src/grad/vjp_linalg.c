/* vjp_linalg.c - derivatives of matrix products, factorisations and solvers. */
#include "grad/vjp.h"

const char vjp_file_linalg;
#define MT(a)     V(transpose_int, a, vI(-2), vI(-1))
#define MM(a, b_) V(matmul, a, b_)

static tp_val times(vjp *g, tp_val t, const tp_val *by) { return val_is(by, 1) ? t : MUL(t, *by); }
static tp_val column(vjp *g, tp_val t) { return V(unsqueeze, t, vI(-1)); }
static tp_val row_of(vjp *g, tp_val t) { return V(unsqueeze, t, vI(-2)); }

/* ---- products ---- */
/* A transposed matrix gets its gradient transposed too, so that the gradient of a weight used as W' lies as W. */
static bool lies_transposed(const tp_tensor *m)
{
    int d = m->ndim - 2;
    return m->stride[d] == 1 && m->stride[d + 1] == m->size[d];
}

static tp_val left_grad(vjp *g, const tp_tensor *m, tp_val right) /* of a in a @ right */
{
    return lies_transposed(m) ? V(t, V(mm, right, V(t, DYV))) : V(mm, DYV, V(t, right));
}
static tp_val right_grad(vjp *g, const tp_tensor *m, tp_val left) /* of b in left @ b */
{
    return lies_transposed(m) ? V(t, V(mm, V(t, DYV), left)) : V(mm, V(t, left), DYV);
}

static tp_val left_grads(vjp *g, const tp_tensor *m, tp_val right) /* the same for a batch */
{
    return lies_transposed(m) ? MT(V(bmm, right, MT(DYV))) : V(bmm, DYV, MT(right));
}
static tp_val right_grads(vjp *g, const tp_tensor *m, tp_val left)
{
    return lies_transposed(m) ? MT(V(bmm, MT(DYV), left)) : V(bmm, MT(left), DYV);
}

VJP(mm, "1?0 0?1")
{
    if (NEED(0))
        DXV(0, left_grad(g, INM(0), Y));
    if (NEED(1))
        DXV(1, right_grad(g, INM(1), X));
    return true;
}

VJP(bmm, "1?0 0?1")
{
    if (NEED(0))
        DXV(0, left_grads(g, INM(0), Y));
    if (NEED(1))
        DXV(1, right_grads(g, INM(1), X));
    return true;
}

/* The gradient of the scores of attention is rounded to the type of the factors, as theirs will be. */
VJP(bmm_wide, "1?0 0?1")
{
    const tp_val dy = V(to_dtype, DYV, vDT((dtype)INM(0)->dt));
    if (NEED(0))
        DXV(0, V(bmm, dy, MT(Y)));
    if (NEED(1))
        DXV(1, lies_transposed(INM(1)) ? MT(V(bmm, MT(dy), X)) : V(bmm, MT(X), dy));
    return true;
}

VJP(addmm, "2?1 1?2")
{
    DXV(0, times(g, DYV, ARG(3)));
    if (NEED(1))
        DXV(1, times(g, left_grad(g, INM(1), *ARG(2)), ARG(4)));
    if (NEED(2))
        DXV(2, times(g, right_grad(g, INM(2), *ARG(1)), ARG(4)));
    return true;
}

VJP(baddbmm, "2?1 1?2")
{
    DXV(0, times(g, DYV, ARG(3)));
    if (NEED(1))
        DXV(1, times(g, left_grads(g, INM(1), *ARG(2)), ARG(4)));
    if (NEED(2))
        DXV(2, times(g, right_grads(g, INM(2), *ARG(1)), ARG(4)));
    return true;
}

VJP(mv, "1?0 0?1")
{
    if (NEED(0))
        DXV(0, MUL(column(g, DYV), Y));
    if (NEED(1))
        DXV(1, V(mv, V(t, X), DYV));
    return true;
}

VJP(addmv, "2?1 1?2")
{
    DXV(0, times(g, DYV, ARG(3)));
    if (NEED(1))
        DXV(1, times(g, MUL(column(g, DYV), *ARG(2)), ARG(4)));
    if (NEED(2))
        DXV(2, times(g, V(mv, V(t, *ARG(1)), DYV), ARG(4)));
    return true;
}

VJP(dot, "1?0 0?1")
{
    DXV(0, MUL(DYV, Y));
    DXV(1, MUL(DYV, X));
    return true;
}

/* ---- inverse, determinants, solvers ---- */
static tp_val inverse(vjp *g, tp_val a) { return V(linalg_inv_ex, a); }

VJP(inv_ex, "r")
{
    tp_val t = MT(R);
    DXV(0, NEG(MM(t, MM(DYV, t))));
    return true;
}

VJP(det, "0 r ~r1") /* det A^-T; a singular A has no such gradient and gives inf or nan */
{
    if (DY(0))
        DXV(0, MUL(column(g, column(g, MUL(DYV, R))), MT(inverse(g, X))));
    return true;
}

VJP(slogdet, "0 ~r2") /* the sign is constant almost everywhere */
{
    if (DY(1))
        DXV(0, MUL(column(g, column(g, vT(DY(1)))), MT(inverse(g, X))));
    return true;
}

/* A X = B (left) or X A = B. Vectors are columns. */
VJP(solve_ex, "0 r ~r1")
{
    if (!DY(0))
        return true;
    bool left = ARG(2)->b, vec = INM(1)->ndim == 1 || INM(1)->ndim == INM(0)->ndim - 1;
    tp_val dx = vec ? column(g, DYV) : DYV, x = vec ? column(g, R) : R;
    tp_val db = V(_linalg_solve_ex, MT(X), dx, vB(left), vB(false));
    if (NEED(0))
        DXV(0, NEG(left ? MM(db, MT(x)) : MM(MT(x), db)));
    DXV(1, vec ? V(squeeze_dim, db, vI(-1)) : db);
    return true;
}

/* ---- LU: A = P L U, with L and U in one matrix ---- */
static tp_val low(vjp *g, tp_val t) { return V(tril, t, vI(-1)); }
static tp_val cut(vjp *g, tp_val t, int dim, symint from, symint n)
{
    return V(narrow, t, vI(dim), vI(from), vI(n));
}
static tp_val over_l(vjp *g, tp_val l, tp_val t) /* L^-T t */
{
    return V(linalg_solve_triangular, MT(l), t, vB(true), vB(true), vB(true));
}
static tp_val over_u(vjp *g, tp_val u, tp_val t) /* t U^-T */
{
    return V(linalg_solve_triangular, MT(u), t, vB(false), vB(false), vB(false));
}
VJP(lu_factor_ex, "r r1 ~r1 ~r2")
{
    int nd = INM(0)->ndim;
    symint m = INM(0)->size[nd - 2], n = INM(0)->size[nd - 1], k = sym_min(m, n);
    tp_tensor *r[3];
    if (!DY(0) || !b_opn(B, lu_unpack, r, 3, R, vT(OUT(1))))
        return !B->failed;
    tp_val l = vT(r[1]), u = vT(r[2]), dl = low(g, cut(g, DYV, -1, 0, k)),
           du = V(triu, cut(g, DYV, -2, 0, k));
    tp_val l1 = cut(g, l, -2, 0, k), u1 = cut(g, u, -1, 0, k);
    tp_val ml = MM(MT(l1), cut(g, dl, -2, 0, k)), mu = MM(cut(g, du, -1, 0, k), MT(u1)), rest = vNone, d;
    if (sym_gt(m, n)) { /* rows of L below the square part */
        tp_val d2 = cut(g, dl, -2, k, sym_sub(m, k));
        mu = SUB(mu, MM(MT(cut(g, l, -2, k, sym_sub(m, k))), d2));
        rest = over_u(g, u1, d2);
    } else if (sym_gt(n, m)) { /* columns of U beyond it */
        tp_val d2 = cut(g, du, -1, k, sym_sub(n, k));
        ml = SUB(ml, MM(d2, MT(cut(g, u, -1, k, sym_sub(n, k)))));
        rest = over_l(g, l1, d2);
    }
    d = over_u(g, u1, over_l(g, l1, ADD(low(g, ml), V(triu, mu))));
    if (rest.kind != VAL_none)
        d = V(cat, vTs(((tp_tensor *[]){ d.t, rest.t }), 2), vI(sym_gt(m, n) ? -2 : -1));
    DXV(0, MM(vT(r[0]), d));
    return true;
}

/* X A = B is A' X' = B', so there are two cases: P L U X = B, and U' L' P' X = B. */
VJP(lu_solve, "0 1 r")
{
    bool left = ARG(3)->b, adjoint = ARG(4)->b == left;
    DXV(2, V(linalg_lu_solve, X, Y, DYV, *ARG(3), vB(!ARG(4)->b)));
    if (!NEED(0))
        return true;
    tp_tensor *r[3];
    if (!b_opn(B, lu_unpack, r, 3, X, Y))
        return false;
    tp_val p = vT(r[0]), l = vT(r[1]), u = vT(r[2]), x = left ? R : MT(R), dx = left ? DYV : MT(DYV), dl, du;
    if (!adjoint) {
        tp_val w = V(linalg_solve_triangular, MT(u), dx, vB(false), vB(true), vB(false));
        du = MM(w, MT(x));
        dl = MM(over_l(g, l, w), MT(MM(u, x)));
    } else {
        tp_val z = MM(MT(p), x),
               w = V(linalg_solve_triangular, l, MM(MT(p), dx), vB(false), vB(true), vB(true));
        dl = MM(z, MT(w));
        du = MM(MM(MT(l), z), MT(V(linalg_solve_triangular, u, w, vB(true), vB(true), vB(false))));
    }
    DXV(0, NEG(ADD(low(g, dl), V(triu, du))));
    return true;
}

/* ---- pseudo-inverse and least squares ---- */
/* P = pinv(A): dP = -P dA P + P P' dA' (I - A P) + (I - P A) dA' P' P */
static tp_val pinv_grad(vjp *g, tp_val a, tp_val p, tp_val d)
{
    tp_val dt = MT(d), x = MM(dt, MM(p, MT(p))), y = MM(MM(MT(p), p), dt);
    tp_val r = NEG(MM(MT(p), MM(d, MT(p))));
    r = ADD(r, SUB(x, MM(a, MM(p, x))));
    return ADD(r, SUB(y, MM(MM(y, p), a)));
}
VJP(pinv, "0 r")
{
    if (NEED(0))
        DXV(0, pinv_grad(g, X, R, DYV));
    return true;
}
VJP(lstsq, "0 1 r ~r2 ~r3") /* X = pinv(A) B; the residuals are the column sums of (A X - B)^2 */
{
    bool vec = INM(1)->ndim == INM(0)->ndim - 1;
    tp_val p = V(linalg_pinv_atol_rtol_tensor, X), b = vec ? column(g, Y) : Y, x = vec ? column(g, R) : R;
    tp_val da = vNone, db = vNone;
    if (DY(0)) {
        tp_val d = vec ? column(g, DYV) : DYV;
        da = pinv_grad(g, X, p, MM(d, MT(b)));
        db = MM(MT(p), d);
    }
    if (DY(1) && !sym_eq(OUTM(1)->numel, 0)) {
        tp_val e = MUL(MUL(SUB(MM(X, x), b), vI(2)), row_of(g, vT(DY(1))));
        tp_val a1 = MM(e, MT(x));
        da = da.kind == VAL_none ? a1 : ADD(da, a1);
        db = db.kind == VAL_none ? NEG(e) : SUB(db, e);
    }
    if (da.kind == VAL_none)
        return true;
    DXV(0, da);
    DXV(1, vec ? V(squeeze_dim, db, vI(-1)) : db);
    return true;
}

/* exp of [[A', G], [0, A']] holds the gradient in its upper right block. */
VJP(matrix_exp, "0")
{
    int nd = INM(0)->ndim;
    symint n = INM(0)->size[nd - 1];
    if (!NEED(0))
        return true;
    tp_val at = MT(X), zero = vh_zeros(B, INM(0));
    tp_val top = V(cat, vTs(((tp_tensor *[]){ at.t, DY(0) }), 2), vI(-1));
    tp_val low_ = V(cat, vTs(((tp_tensor *[]){ zero.t, at.t }), 2), vI(-1));
    tp_val e = V(linalg_matrix_exp, V(cat, vTs(((tp_tensor *[]){ top.t, low_.t }), 2), vI(-2)));
    DXV(0, cut(g, cut(g, e, -2, 0, n), -1, n, n));
    return true;
}

VJP(solve_triangular, "0 r")
{
    bool upper = ARG(2)->b, left = ARG(3)->b, uni = ARG(4)->b;
    tp_val db = V(linalg_solve_triangular, MT(X), DYV, vB(!upper), vB(left), vB(uni));
    if (NEED(0)) {
        tp_val d = NEG(left ? MM(db, MT(R)) : MM(MT(R), db));
        DXV(0, upper ? V(triu, d, vI(uni)) : V(tril, d, vI(-(int)uni)));
    }
    DXV(1, db);
    return true;
}

/* A = L L'. With P = tril(L' dL), its diagonal halved: dA = sym(L^-T P L^-1). */
VJP(cholesky, "r")
{
    if (!DY(0))
        return true;
    bool upper = ARG(1)->b;
    tp_val l = upper ? MT(R) : R, dl = upper ? MT(DYV) : DYV;
    tp_val p = V(tril, MM(MT(l), dl));
    tp_val half = MUL(ADD(p, V(tril, p, vI(-1))), vF(0.5)); /* strict part whole, diagonal half */
    tp_val s = V(linalg_solve_triangular, MT(l), half, vB(true), vB(true), vB(false));
    s = V(linalg_solve_triangular, l, s, vB(false), vB(false), vB(false));
    DXV(0, MUL(ADD(s, MT(s)), vF(0.5)));
    return true;
}

VJP(cholesky_solve, "1 r")
{
    bool upper = ARG(2)->b;
    tp_val db = V(cholesky_solve, DYV, Y, vB(upper));
    DXV(0, db);
    if (NEED(1)) {
        tp_val c = MM(db, MT(R));
        c = ADD(c, MT(c));
        DXV(1, NEG(upper ? V(triu, MM(Y, c)) : V(tril, MM(c, Y))));
    }
    return true;
}

VJP(cholesky_inverse, "0 r")
{
    tp_val c = MM(R, MM(ADD(DYV, MT(DYV)), R));
    DXV(0, NEG(ARG(1)->b ? V(triu, MM(X, c)) : V(tril, MM(c, X))));
    return true;
}

/* ---- QR, SVD, eigenvalues ---- */
VJP(qr, "r r1")
{
    tp_val q = R, r = vT(OUT(1)), m = vNone;
    int nd = INM(0)->ndim;
    if (strcmp(ARG(1)->s, "reduced") || sym_lt(INM(0)->size[nd - 2], INM(0)->size[nd - 1]))
        return err_set(
            B->err, ERR_runtime,
            "the derivative for 'linalg_qr' is implemented for mode='reduced' and matrices with at "
            "least as many rows as columns");
    if (DY(1))
        m = MM(r, MT(vT(DY(1))));
    if (DY(0)) {
        tp_val qq = MM(MT(DYV), q);
        m = DY(1) ? SUB(m, qq) : NEG(qq);
    }
    if (m.kind == VAL_none)
        return true;
    tp_val c = ADD(V(tril, m), MT(V(tril, m, vI(-1)))); /* the lower triangle, mirrored */
    tp_val d = MM(q, c);
    if (DY(0))
        d = ADD(DYV, d);
    DXV(0, V(linalg_solve_triangular, MT(r), d, vB(false), vB(false), vB(false)));
    return true;
}

/* x_j - x_i off the diagonal, 1 on it: the gaps that eigenvectors divide by. */
static tp_val gaps(vjp *g, tp_val x)
{
    tp_val e = SUB(row_of(g, x), column(g, x));
    tp_val one = V(diag_embed, V(ones, vIs(x.t->size, x.t->ndim), vDT(x.t->dt)));
    return ADD(e, one);
}

static tp_val skew(vjp *g, tp_val a) { return SUB(a, MT(a)); }

VJP(svd, "r r1 r2")
{
    tp_val u = R, s = vT(OUT(1)), vh = vT(OUT(2)), inner = vNone, d;
    int nd = INM(0)->ndim;
    symint m = INM(0)->size[nd - 2], n = INM(0)->size[nd - 1];
    if (DY(1))
        inner = V(diag_embed, vT(DY(1)));
    if (!DY(0) && !DY(2)) {
        if (inner.kind != VAL_none)
            DXV(0, MM(u, MM(inner, vh)));
        return true;
    }
    if (ARG(1)->b && !sym_eq(m, n))
        return err_set(B->err, ERR_runtime,
                       "the derivative of the singular vectors needs full_matrices=False");
    tp_val e = gaps(g, SQR(s));
    if (DY(0)) {
        d = MUL(DIV(skew(g, MM(MT(u), DYV)), e), row_of(g, s));
        inner = inner.kind == VAL_none ? d : ADD(inner, d);
    }
    if (DY(2)) {
        d = MUL(DIV(skew(g, MM(vh, MT(vT(DY(2))))), e), column(g, s));
        inner = inner.kind == VAL_none ? d : ADD(inner, d);
    }
    d = MM(u, MM(inner, vh));
    if (DY(0) && sym_gt(m, n)) { /* the part of dU outside the span of U */
        tp_val w = DIV(DYV, row_of(g, s));
        d = ADD(d, MM(SUB(w, MM(u, MM(MT(u), w))), vh));
    }
    if (DY(2) && sym_gt(n, m)) {
        tp_val w = DIV(vT(DY(2)), column(g, s));
        d = ADD(d, MM(u, SUB(w, MM(MM(w, MT(vh)), vh))));
    }
    DXV(0, d);
    return true;
}

VJP(eigh, "r r1")
{
    tp_val l = R, v = vT(OUT(1)), inner = vNone;
    if (DY(0))
        inner = V(diag_embed, DYV);
    if (DY(1)) {
        tp_val a = MM(MT(v), vT(DY(1)));
        a = DIV(SUB(a, V(diag_embed, V(diagonal, a, vI(0), vI(-2), vI(-1)))), gaps(g, l));
        inner = inner.kind == VAL_none ? a : ADD(inner, a);
    }
    if (inner.kind != VAL_none)
        DXV(0, MM(v, MM(inner, MT(v))));
    return true;
}
