/* vjp_index.c - derivatives of gather, scatter and indexing. */
#include "grad/vjp.h"

const char vjp_file_index;

VJP(gather, "2")
{
    if (NEED(0))
        DXV(0, V(scatter_add, vh_zeros(B, INM(0)), *ARG(1), *ARG(2), DYV));
    return true;
}

VJP(scatter, "2") /* scatter.src and scatter.value */
{
    if (NEED(0))
        DXV(0, V(scatter_value, DYV, *ARG(1), *ARG(2), vI(0)));
    if (INM(3))
        DXV(3, V(gather, DYV, *ARG(1), *ARG(2)));
    return true;
}

VJP(scatter_add, "2")
{
    DXV(0, DYV);
    DXV(3, V(gather, DYV, *ARG(1), *ARG(2)));
    return true;
}

/* scatter_reduce and index_reduce differ only in how places are found: spread adds v at the places of `index`, pick
 * reads them, cleared sets them to zero, product multiplies into them. */
static tp_val spread(vjp *g, bool slices, tp_val to, tp_val v)
{
    return slices ? V(index_add, to, *ARG(1), *ARG(2), v) : V(scatter_add, to, *ARG(1), *ARG(2), v);
}
static tp_val pick(vjp *g, bool slices, tp_val from)
{
    if (!slices)
        return V(gather, from, *ARG(1), *ARG(2));
    tp_val r = V(index_select, from, *ARG(1), *ARG(2));
    return vT(vh_reshape(B, r.t, INM(3)->ndim, INM(3)->size));
}
static tp_val cleared(vjp *g, bool slices, tp_val t)
{
    return slices ? V(index_fill_int_Scalar, t, *ARG(1), *ARG(2), vI(0))
                  : V(scatter_value, t, *ARG(1), *ARG(2), vI(0));
}
static tp_val product(vjp *g, bool slices, tp_val to, tp_val src, bool self)
{
    return slices ? V(index_reduce, to, *ARG(1), *ARG(2), src, vS("prod"), vB(self))
                  : V(scatter_reduce_two, to, *ARG(1), *ARG(2), src, vS("prod"), vB(self));
}
static bool reduce_grad(vjp *g, bool slices, const char *how, bool self)
{
    tp_val src = *ARG(3), d0 = DYV, d1 = vNone;
    dtype dt = (dtype)INM(0)->dt;
    if (!strcmp(how, "sum")) {
        d1 = pick(g, slices, DYV);
    } else if (!strcmp(
                   how,
                   "prod")) { /* the product of the others; a lone zero gets it computed without the zero */
        tp_val whole = V(masked_fill_Scalar, X, EQ(X, vI(0)), vI(1));
        d0 = DIV(MUL(DYV, product(g, slices, whole, src, self)), whole);
        tp_val zero = EQ(src, vI(0)), n = spread(g, slices, vh_zeros(B, INM(0)), V(to_dtype, zero, vDT(dt)));
        tp_val lone = V(logical_and, zero, EQ(pick(g, slices, n), vI(1)));
        tp_val without = product(g, slices, X, V(masked_fill_Scalar, src, lone, vI(1)), self);
        d1 = WHERE(lone, pick(g, slices, MUL(DYV, without)),
                   DIV(pick(g, slices, MUL(DYV, R)), V(masked_fill_Scalar, src, zero, vI(1))));
    } else if (!strcmp(how, "mean")) {
        tp_val one = V(ones, vIs(INM(3)->size, INM(3)->ndim), vDT(dt));
        tp_val n = self ? V(ones, vIs(INM(0)->size, INM(0)->ndim), vDT(dt)) : vh_zeros(B, INM(0));
        n = spread(g, slices, n, one);
        d0 = DIV(DYV, WHERE(EQ(n, vI(0)), vI(1), n));
        d1 = pick(g, slices, d0);
    } else { /* amax, amin: shared between all that reach the bound */
        tp_val hit0 = V(to_dtype, EQ(X, R), vDT(dt));
        tp_val hit1 = V(to_dtype, EQ(src, pick(g, slices, R)), vDT(dt));
        tp_val n = spread(g, slices, self ? hit0 : vh_zeros(B, INM(0)), hit1);
        tp_val share = DIV(DYV, WHERE(EQ(n, vI(0)), vI(1), n));
        d0 = MUL(share, hit0);
        d1 = MUL(pick(g, slices, share), hit1);
    }
    if (!self) /* what was written over does not count */
        d0 = cleared(g, slices, !strcmp(how, "amax") || !strcmp(how, "amin") ? DYV : d0);
    DXV(0, d0);
    DXV(3, d1);
    return true;
}
VJP(scatter_reduce, "0 2 3 r") { return reduce_grad(g, false, ARG(4)->s, ARG(5)->b); }
VJP(index_reduce, "0 2 3 r") { return reduce_grad(g, true, ARG(4)->s, ARG(5)->b); }
VJP(scatter_named, "0 2 3 r") /* scatter.reduce: add or multiply */
{
    return reduce_grad(g, false, ARG(4)->s[0] == 'a' ? "sum" : "prod", true);
}
VJP(scatter_value_named, "2")
{
    if (ARG(4)->s[0] == 'a') {
        DXV(0, DYV);
        return true;
    }
    tp_val one = V(ones, vIs(INM(0)->size, INM(0)->ndim), vDT(INM(0)->dt));
    DXV(0, MUL(DYV, V(scatter_value_reduce, one, *ARG(1), *ARG(2), *ARG(3), *ARG(4))));
    return true;
}

VJP(index_select, "2")
{
    if (NEED(0))
        DXV(0, V(index_add, vh_zeros(B, INM(0)), *ARG(1), *ARG(2), DYV));
    return true;
}

VJP(index_add, "2")
{
    DXV(0, DYV);
    if (NEED(3)) {
        tp_val d = V(index_select, DYV, *ARG(1), *ARG(2));
        d = vT(vh_reshape(B, d.t, INM(3)->ndim, INM(3)->size));
        DXV(3, val_is(ARG(4), 1) ? d : MUL(d, *ARG(4)));
    }
    return true;
}

VJP(index_copy, "2")
{
    DXV(0, V(index_fill_int_Scalar, DYV, *ARG(1), *ARG(2), vI(0)));
    if (NEED(3))
        DX(3, vh_reshape(B, V(index_select, DYV, *ARG(1), *ARG(2)).t, INM(3)->ndim, INM(3)->size));
    return true;
}

VJP(index_fill, "2")
{
    DXV(0, V(index_fill_int_Scalar, DYV, *ARG(1), *ARG(2), vI(0)));
    if (INM(3) && NEED(3))
        DXV(3, V(sum, SUB(DYV, V(index_fill_int_Scalar, DYV, *ARG(1), *ARG(2), vI(0)))));
    return true;
}

VJP(index, "1")
{
    if (NEED(0))
        DXV(0, V(index_put, vh_zeros(B, INM(0)), *ARG(1), DYV, vB(true)));
    return true;
}

VJP(index_put, "1")
{
    if (NEED(0))
        DXV(0, ARG(3)->b ? DYV : V(index_put, DYV, *ARG(1), vh_zeros(B, INM(2)), vB(false)));
    DXV(2, V(index_Tensor, DYV, *ARG(1)));
    return true;
}

VJP(take, "1")
{
    if (NEED(0))
        DXV(0, V(put, vh_zeros(B, INM(0)), Y, DYV, vB(true)));
    return true;
}

VJP(put, "1")
{
    if (NEED(0))
        DXV(0, ARG(3)->b ? DYV : V(put, DYV, Y, vh_zeros(B, INM(2)), vB(false)));
    if (NEED(2))
        DX(2, vh_reshape(B, V(take, DYV, Y).t, INM(2)->ndim, INM(2)->size));
    return true;
}

VJP(masked_scatter, "1")
{
    DXV(0, WHERE(Y, vI(0), DYV));
    DXV(2, V(masked_scatter_backward, DYV, Y, vIs(INM(2)->size, INM(2)->ndim)));
    return true;
}

VJP(masked_scatter_backward, "1")
{
    if (NEED(0))
        DXV(0, V(masked_scatter, vh_zeros(B, INM(0)), Y, DYV));
    return true;
}

VJP(embedding, "1")
{
    if (NEED(0))
        DXV(0, V(embedding_dense_backward, DYV, Y, vI(INM(0)->size[0]), *ARG(2), *ARG(3)));
    return true;
}

VJP(embedding_dense_backward, "1")
{
    tp_val d = V(embedding, DYV, Y);
    if (!sym_is_expr(ARG(3)->i) && ARG(3)->i >= 0) {
        symint size[TP_MAX_DIMS];
        tp_val pad = NEG(V(to_dtype, EQ(Y, *ARG(3)), vDT(INM(0)->dt)));
        memcpy(size, INM(1)->size, sizeof(symint) * INM(1)->ndim);
        size[INM(1)->ndim] = 1;
        d = MUL(d, ADD(vT(vh_reshape(B, pad.t, INM(1)->ndim + 1, size)), vI(1)));
    }
    DXV(0, d);
    return true;
}
