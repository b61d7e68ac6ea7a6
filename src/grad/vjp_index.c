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

/* scatter_reduce: sum, mean, amax, amin; prod where nothing is zero. */
VJP(scatter_reduce, "0 2 3 r")
{
    tp_val dim = *ARG(1), index = *ARG(2), src = *ARG(3);
    const char *how = ARG(4)->s;
    bool self = ARG(5)->b;
    tp_val d0 = DYV, d1 = V(gather, DYV, dim, index);
    if (!strcmp(how, "sum")) {
        ;
    } else if (!strcmp(how, "prod")) {
        d0 = DIV(MUL(DYV, R), X);
        d1 = V(gather, MUL(DYV, R), dim, index);
        d1 = DIV(d1, src);
    } else if (!strcmp(how, "mean")) {
        tp_val one = V(ones, vIs(INM(3)->size, INM(3)->ndim), vDT(INM(3)->dt));
        tp_val n = self ? V(ones, vIs(INM(0)->size, INM(0)->ndim), vDT(INM(0)->dt)) : vh_zeros(B, INM(0));
        n = V(scatter_add, n, dim, index, one);
        n = WHERE(EQ(n, vI(0)), vI(1), n);
        d0 = DIV(DYV, n);
        d1 = V(gather, d0, dim, index);
    } else { /* amax, amin: shared between all that reach the bound */
        tp_val hit0 = V(to_dtype, EQ(X, R), vDT(INM(0)->dt));
        tp_val hit1 = V(to_dtype, EQ(src, V(gather, R, dim, index)), vDT(INM(0)->dt));
        tp_val n = V(scatter_add, self ? hit0 : vh_zeros(B, INM(0)), dim, index, hit1);
        tp_val share = DIV(DYV, WHERE(EQ(n, vI(0)), vI(1), n));
        d0 = MUL(share, hit0);
        d1 = MUL(V(gather, share, dim, index), hit1);
    }
    if (!self) /* what was scattered over does not count */
        d0 = V(scatter_value, d0, dim, index, vI(0));
    DXV(0, d0);
    DXV(3, d1);
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
        DXV(3, val_as_f(ARG(4)) == 1 ? d : MUL(d, *ARG(4)));
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
        DXV(3, V(sum, V(index_select, DYV, *ARG(1), *ARG(2))));
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
