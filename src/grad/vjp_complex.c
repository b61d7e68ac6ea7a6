/* vjp_complex.c - derivatives of views of complex memory and of Fourier transforms.
 * The gradient of a real loss L to z = x + iy is dL/dx + i dL/dy. Of a function that is complex differentiable this is
 * conj(f') dy = conj(f' conj(dy)): the tape conjugates what goes into a rule of a complex result and what comes out
 * (grad/step.c), so the rules are those of real numbers. Rules marked `c` take gradients as they are. */
#include "grad/vjp.h"

const char vjp_file_complex;

VJP(view_as_real, "c")
{
    tp_val dy = DYV;
    if (NEED(0) && dy.kind == VAL_tensor) {
        tp_tensor *t = dy.t;
        bool fits = sym_eq(t->stride[t->ndim - 1], 1) && sym_eq(sym_mod(t->offset, 2), 0);
        for (int d = 0; fits && d < t->ndim - 1; d++)
            fits = sym_eq(sym_mod(t->stride[d], 2), 0);
        if (!fits)
            dy = V(clone, dy, vMF(MF_contiguous));
        DXV(0, V(view_as_complex, dy));
    }
    return true;
}

VJP(view_as_complex, "c")
{
    DXV(0, V(view_as_real, DYV));
    return true;
}

VJP(conj, "c")
{
    DXV(0, V(conj_physical, DYV));
    return true;
}

/* z / |z|: what is across z, over its length */
VJP(sgn, "c 0 r")
{
    if (!dtype_is_complex((dtype)INM(0)->dt)) {
        DXV(0, vh_zeros(B, INM(0)));
        return true;
    }
    tp_val len = V(abs, X), none = EQ(len, vI(0)), safe = WHERE(none, vI(1), len);
    tp_val along = V(real, MUL(DYV, V(conj_physical, R)));
    tp_val d = DIV(SUB(DYV, MUL(R, along)), safe);
    DXV(0, WHERE(none, vI(0), d));
    return true;
}

/* The matrix of a transform is symmetric. */
VJP(fft_c2c, "")
{
    DXV(0, V(_fft_c2c, DYV, *ARG(1), *ARG(2), *ARG(3)));
    return true;
}

VJP(fft_r2c, "")
{
    tp_val dy = DYV;
    const tp_val *dims = ARG(1);
    int last = (int)dims->ints[dims->n - 1], nd = INM(0)->ndim;
    last = last < 0 ? last + nd : last;
    if (ARG(3)->b) { /* the half that was left out had no part in the loss */
        symint pad[2 * TP_MAX_DIMS] = { 0 };
        pad[2 * (nd - 1 - last) + 1] = sym_sub(INM(0)->size[last], DY(0)->size[last]);
        dy = V(constant_pad_nd, dy, vIs(pad, 2 * nd), vI(0));
    }
    DXV(0, V(_fft_c2c, dy, *dims, *ARG(2), vB(true)));
    return true;
}

/* Each number of the half stands for itself and its conjugate, but for the first and, where it has one, the middle. */
VJP(fft_c2r, "c")
{
    const tp_val *dims = ARG(1);
    int nd = INM(0)->ndim, last = (int)dims->ints[dims->n - 1];
    last = last < 0 ? last + nd : last;
    tp_val gx = V(_fft_r2c, DYV, *dims, *ARG(2), vB(true));
    if (!gx.t)
        return false;
    symint half = gx.t->size[last], twice = sym_sub(ARG(3)->i, half);
    if (sym_gt(twice, 0)) {
        symint rest = sym_sub(sym_sub(half, 1), twice);
        tp_tensor *p[3] = { V(narrow, gx, vI(last), vI(0), vI(1)).t,
                            MUL(V(narrow, gx, vI(last), vI(1), vI(twice)), vI(2)).t,
                            V(narrow, gx, vI(last), vI(sym_add(twice, 1)), vI(rest)).t };
        gx = V(cat, vTs(p, 3), vI(last));
    }
    symint have = INM(0)->size[last];
    if (!sym_eq(have, half)) { /* elements that were not looked at, or that were taken for 0 */
        symint pad[2 * TP_MAX_DIMS] = { 0 };
        pad[2 * (nd - 1 - last) + 1] = sym_sub(have, half);
        gx = V(constant_pad_nd, gx, vIs(pad, 2 * nd), vI(0));
    }
    DXV(0, gx);
    return true;
}
