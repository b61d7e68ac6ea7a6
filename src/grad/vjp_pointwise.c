/* vjp_pointwise.c - derivatives of pointwise operators.
 * A rule may return a gradient in the broadcast shape: the tape sums it to the argument's own. */
#include "grad/vjp.h"

const char vjp_file_pointwise;
#define B          (g->b)
#define T          vT
#define dy0        vT(DY(0))
#define MUL(a, b_) b_op(B, mul_Tensor, a, b_)

static tp_tensor *scaled(vjp *g, tp_tensor *t, const tp_val *by) /* t * by, or t itself for 1 */
{
    return val_as_f(by) == 1 ? t : b_op(B, mul_Tensor, vT(t), *by);
}

VJP(add, "")
{
    DX(0, DY(0));
    DX(1, scaled(g, DY(0), ARG(2)));
    return true;
}

VJP(sub, "")
{
    DX(0, DY(0));
    DX(1, b_op(B, neg, vT(scaled(g, DY(0), ARG(2)))));
    return true;
}

VJP(mul, "1?0 0?1")
{
    DX(0, MUL(dy0, *ARG(1)));
    DX(1, MUL(dy0, *ARG(0)));
    return true;
}

VJP(div, "1 0?1")
{
    DX(0, b_op(B, div_Tensor, dy0, *ARG(1)));
    if (NEED(1)) { /* -dy * (x / y) / y */
        tp_tensor *q = b_op(B, div_Tensor, T(b_op(B, div_Tensor, *ARG(0), *ARG(1))), *ARG(1));
        DX(1, MUL(T(b_op(B, neg, dy0)), T(q)));
    }
    return true;
}

VJP(neg, "")
{
    DX(0, b_op(B, neg, dy0));
    return true;
}

VJP(exp, "r")
{
    DX(0, MUL(dy0, T(OUT(0))));
    return true;
}

VJP(sin, "0")
{
    DX(0, MUL(dy0, T(b_op(B, cos, *ARG(0)))));
    return true;
}

VJP(cos, "0")
{
    DX(0, MUL(dy0, T(b_op(B, neg, T(b_op(B, sin, *ARG(0)))))));
    return true;
}

VJP(relu, "r")
{
    DX(0, MUL(dy0, T(b_op(B, gt_Tensor, T(OUT(0)), vI(0)))));
    return true;
}
