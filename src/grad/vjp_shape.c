/* vjp_shape.c - derivatives of views and other changes of shape. */
#include "grad/vjp.h"

const char vjp_file_shape;
#define B   (g->b)
#define T   vT
#define dy0 vT(DY(0))

VJP(alias, "")
{
    DX(0, DY(0));
    return true;
}

VJP(clone, "")
{
    DX(0, DY(0));
    return true;
}

VJP(to_copy, "") /* the tape converts the dtype back */
{
    DX(0, DY(0));
    return true;
}

VJP(copy_, "")
{
    DX(1, DY(0));
    return true;
}

VJP(fill_, "") { return true; }

VJP(expand, "") /* the tape sums what was expanded */
{
    DX(0, DY(0));
    return true;
}

VJP(view, "")
{
    DX(0, vjp_reshape(B, DY(0), INM(0)->ndim, INM(0)->size));
    return true;
}

VJP(permute, "")
{
    symint inv[TP_MAX_DIMS];
    int n = ARG(1)->n;
    for (int i = 0; i < n; i++)
        inv[ARG(1)->ints[i] < 0 ? ARG(1)->ints[i] + n : ARG(1)->ints[i]] = i;
    DX(0, b_op(B, permute, dy0, vIs(inv, n)));
    return true;
}

VJP(transpose, "")
{
    DX(0, b_op(B, transpose_int, dy0, *ARG(1), *ARG(2)));
    return true;
}
