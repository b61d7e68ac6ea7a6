/* vjp_linalg.c - derivatives of matrix products, factorisations and solvers. */
#include "grad/vjp.h"

const char vjp_file_linalg;
#define MT(a)     V(transpose_int, a, vI(-2), vI(-1))
#define MM(a, b_) V(matmul, a, b_)

static tp_val times(vjp *g, tp_val t, const tp_val *by) { return val_as_f(by) == 1 ? t : MUL(t, *by); }
static tp_val column(vjp *g, tp_val t) { return V(unsqueeze, t, vI(-1)); }

/* ---- products ---- */
/* A transposed matrix gets its gradient transposed too, so that the gradient of a weight used as W' lies as W. */
static bool lies_transposed(const tp_tensor *m) { return m->stride[0] == 1 && m->stride[1] == m->size[0]; }

static tp_val left_grad(vjp *g, const tp_tensor *m, tp_val right) /* of a in a @ right */
{
    return lies_transposed(m) ? V(t, V(mm, right, V(t, DYV))) : V(mm, DYV, V(t, right));
}
static tp_val right_grad(vjp *g, const tp_tensor *m, tp_val left) /* of b in left @ b */
{
    return lies_transposed(m) ? V(t, V(mm, V(t, DYV), left)) : V(mm, V(t, left), DYV);
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
        DXV(0, V(bmm, DYV, MT(Y)));
    if (NEED(1))
        DXV(1, V(bmm, MT(X), DYV));
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
        DXV(1, times(g, V(bmm, DYV, MT(*ARG(2))), ARG(4)));
    if (NEED(2))
        DXV(2, times(g, V(bmm, MT(*ARG(1)), DYV), ARG(4)));
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

VJP(slogdet, "0 ~r ~r2")
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

VJP(lu_solve, "0 1")
{
    if (NEED(0))
        return err_set(B->err, ERR_runtime,
                       "the derivative for 'linalg_lu_solve' with respect to LU is not implemented");
    DXV(2, V(linalg_lu_solve, X, Y, DYV, *ARG(3), vB(!ARG(4)->b)));
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

static tp_val row_of(vjp *g, tp_val t) { return V(unsqueeze, t, vI(-2)); }

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
