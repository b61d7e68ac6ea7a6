/* vjp_nn.c - derivatives of convolutions, pooling, normalisation, resizing and losses. */
#include "grad/vjp.h"
#include "ops/attention.h"

const char vjp_file_nn;
#define MASK(a, b_, c) ((tp_val){ .kind = VAL_bools, .n = 3, .bools = (const bool[]){ (a), (b_), (c) } })

/* ---- convolution ---- */
/* stride .. groups are arguments `at` .. `at` + 5 */
#define CONV_ARGS(at) *ARG(at), *ARG(at + 1), *ARG(at + 2), *ARG(at + 3), *ARG(at + 4), *ARG(at + 5)

VJP(convolution, "0 1")
{
    tp_tensor *d[3];
    tp_val bias = INM(2) ? vIs(INM(2)->size, 1) : vNone;
    b_opn(B, convolution_backward, d, 3, DYV, X, Y, bias, CONV_ARGS(3), MASK(NEED(0), NEED(1), NEED(2)));
    for (int i = 0; i < 3; i++)
        DX(i, d[i]);
    return true;
}

VJP(convolution_backward, "0 1 2") /* convolution is linear in the input and in the weight */
{
    tp_val go = X, in = *ARG(1), w = *ARG(2), sum = vNone;
    tp_tensor *d[3];
    if (NEED(0)) {
        if (DY(0))
            sum = V(convolution, vT(DY(0)), w, vNone, CONV_ARGS(4));
        if (DY(1)) {
            tp_val t = V(convolution, in, vT(DY(1)), vNone, CONV_ARGS(4));
            sum = sum.kind == VAL_none ? t : ADD(sum, t);
        }
        if (DY(2)) {
            symint size[TP_MAX_DIMS];
            for (int i = 0; i < INM(0)->ndim; i++)
                size[i] = 1;
            size[1] = INM(0)->size[1];
            tp_val t = V(expand, vT(vh_reshape(B, DY(2), INM(0)->ndim, size)),
                         vIs(INM(0)->size, INM(0)->ndim));
            sum = sum.kind == VAL_none ? t : ADD(sum, t);
        }
        DXV(0, sum);
    }
    if (NEED(1) && DY(1)) {
        b_opn(B, convolution_backward, d, 3, go, in, vT(DY(1)), vNone, CONV_ARGS(4),
              MASK(true, false, false));
        DX(1, d[0]);
    }
    if (NEED(2) && DY(0)) {
        b_opn(B, convolution_backward, d, 3, go, vT(DY(0)), w, vNone, CONV_ARGS(4), MASK(false, true, false));
        DX(2, d[1]);
    }
    return true;
}

VJP(im2col, "")
{
    symint hw[2] = { INM(0)->size[INM(0)->ndim - 2], INM(0)->size[INM(0)->ndim - 1] };
    DXV(0, V(col2im, DYV, vIs(hw, 2), *ARG(1), *ARG(2), *ARG(3), *ARG(4)));
    return true;
}

VJP(col2im, "")
{
    DXV(0, V(im2col, DYV, *ARG(2), *ARG(3), *ARG(4), *ARG(5)));
    return true;
}

/* ---- pooling ---- */
/* dy goes to the flat positions `index` of the last k dimensions of the input. */
static tp_val unpool(vjp *g, tp_val index, int k)
{
    const tp_tensor *in = INM(0), *out = OUTM(0);
    int lead = in->ndim - k;
    symint size[TP_MAX_DIMS];
    memcpy(size, in->size, sizeof(symint) * (size_t)lead);
    size[lead] = shape_numel(k, out->size + lead);
    tp_val d = vT(vh_reshape(B, DY(0), lead + 1, size));
    tp_val i = vT(vh_reshape(B, index.t, lead + 1, size));
    size[lead] = shape_numel(k, in->size + lead);
    tp_val z = V(zeros, vIs(size, lead + 1), vDT(in->dt), vNone, vDev(tensor_device(in)));
    tp_val r = V(scatter_add, z, vI(lead), i, d);
    return vT(vh_reshape(B, r.t, in->ndim, in->size));
}

#define MAX_POOL(k)                                                                                       \
    VJP(max_pool##k##d, "0 r1")                                                                           \
    {                                                                                                     \
        tp_val i = vT(OUT(1));                                                                            \
        if (DY(0))                                                                                        \
            DXV(0, PLAIN ? unpool(g, i, k)                                                                \
                         : V(max_pool##k##d_with_indices_backward, DYV, X, *ARG(1), *ARG(2), *ARG(3),     \
                             *ARG(4), *ARG(5), i));                                                       \
        return true;                                                                                      \
    }                                                                                                     \
    VJP(adaptive_max##k##d, "0 r1")                                                                       \
    {                                                                                                     \
        tp_val i = vT(OUT(1));                                                                            \
        if (DY(0))                                                                                        \
            DXV(0, PLAIN ? unpool(g, i, k) : V(adaptive_max_pool##k##d_backward, DYV, X, i));             \
        return true;                                                                                      \
    }                                                                                                     \
    VJP(avg_pool##k##d, "0")                                                                              \
    {                                                                                                     \
        DXV(0, V(avg_pool##k##d_backward, DYV, X, *ARG(1), *ARG(2), *ARG(3), *ARG(4), *ARG(5), *ARG(6))); \
        return true;                                                                                      \
    }                                                                                                     \
    VJP(avg_pool##k##d_backward, "")                                                                      \
    {                                                                                                     \
        DXV(0, V(avg_pool##k##d, DYV, *ARG(2), *ARG(3), *ARG(4), *ARG(5), *ARG(6), *ARG(7)));             \
        return true;                                                                                      \
    }                                                                                                     \
    VJP(adaptive_avg##k##d, "0")                                                                          \
    {                                                                                                     \
        DXV(0, V(_adaptive_avg_pool##k##d_backward, DYV, X));                                             \
        return true;                                                                                      \
    }                                                                                                     \
    VJP(adaptive_avg##k##d_backward, "")                                                                  \
    {                                                                                                     \
        DXV(0, V(_adaptive_avg_pool##k##d, DYV, vIs(INM(0)->size + INM(0)->ndim - k, k)));                \
        return true;                                                                                      \
    }
MAX_POOL(2)
MAX_POOL(3)

/* ---- normalisation ---- */
/* Gradients of y = (x - mean) / sqrt(var + eps) * w + b, where statistics are taken over `dims`, w and b have shape
 * w_shape against x (broadcast), written with operators that have derivatives. */
static void norm_plain(vjp *g, tp_val x, tp_val dy, tp_val w, const symint *dims, int n, double eps,
                       tp_val *dx, tp_val *xhat)
{
    tp_val list = vIs(dims, n);
    tp_val c = SUB(x, V(mean_dim, x, list, vB(true)));
    tp_val rstd = V(rsqrt, ADD(V(mean_dim, SQR(c), list, vB(true)), vF(eps)));
    *xhat = MUL(c, rstd);
    tp_val gw = w.kind == VAL_none ? dy : MUL(dy, w);
    tp_val inner = SUB(SUB(gw, V(mean_dim, gw, list, vB(true))),
                       MUL(*xhat, V(mean_dim, MUL(gw, *xhat), list, vB(true))));
    *dx = MUL(rstd, inner);
}

VJP(layer_norm, "0 2 3 r1 r2 ~r1 ~r2")
{
    if (!PLAIN) {
        tp_tensor *d[3];
        b_opn(B, native_layer_norm_backward, d, 3, DYV, X, *ARG(1), vT(OUT(1)), vT(OUT(2)), *ARG(2), *ARG(3),
              MASK(NEED(0), NEED(2), NEED(3)));
        DX(0, d[0]);
        DX(2, d[1]);
        DX(3, d[2]);
        return true;
    }
    int k = ARG(1)->n, lead = INM(0)->ndim - k;
    symint dims[TP_MAX_DIMS];
    for (int i = 0; i < k; i++)
        dims[i] = lead + i;
    tp_val dx, xhat;
    norm_plain(g, X, DYV, *ARG(2), dims, k, val_as_f(ARG(4)), &dx, &xhat);
    DXV(0, dx);
    DXV(2, MUL(DYV, xhat));
    DXV(3, DYV);
    return true;
}

VJP(group_norm, "0 1 r1 r2 ~r1 ~r2")
{
    if (!PLAIN) {
        tp_tensor *d[3];
        b_opn(B, native_group_norm_backward, d, 3, DYV, X, vT(OUT(1)), vT(OUT(2)), *ARG(1), *ARG(3), *ARG(4),
              *ARG(5), *ARG(6), MASK(NEED(0), NEED(1), NEED(2)));
        for (int i = 0; i < 3; i++)
            DX(i, d[i]);
        return true;
    }
    symint n = ARG(3)->i, c = ARG(4)->i, group = ARG(6)->i, hw = ARG(5)->i;
    symint shape[4] = { n, group, sym_floordiv(c, group), hw }, wshape[4] = { 1, group, shape[2], 1 };
    symint dims[2] = { 2, 3 }, lead[2] = { 0, 3 };
    tp_val x = vT(vh_reshape(B, X.t, 4, shape)), dy = vT(vh_reshape(B, DY(0), 4, shape)), dx, xhat;
    tp_val w = ARG(1)->kind == VAL_none ? vNone : vT(vh_reshape(B, ARG(1)->t, 4, wshape));
    norm_plain(g, x, dy, w, dims, 2, val_as_f(ARG(7)), &dx, &xhat);
    DX(0, vh_reshape(B, dx.t, INM(0)->ndim, INM(0)->size));
    if (NEED(1))
        DX(1, vh_reshape(B, V(sum_dim_IntList, MUL(dy, xhat), vIs(lead, 2)).t, 1, &c));
    if (NEED(2))
        DX(2, vh_reshape(B, V(sum_dim_IntList, dy, vIs(lead, 2)).t, 1, &c));
    return true;
}

/* The running statistics are read when not training; in training they change with every call. */
VJP(batch_norm, "0 1 3!5 4!5 r1 r2 ~r1 ~r2 ~r3 ~r4")
{
    bool train = ARG(5)->b;
    if (!PLAIN) {
        tp_tensor *d[3];
        b_opn(B, native_batch_norm_backward, d, 3, DYV, X, *ARG(1), *ARG(3), *ARG(4), vT(OUT(1)), vT(OUT(2)),
              vB(train), *ARG(7), MASK(NEED(0), NEED(1), NEED(2)));
        for (int i = 0; i < 3; i++)
            DX(i, d[i]);
        return true;
    }
    int nd = INM(0)->ndim, n = 0;
    symint dims[TP_MAX_DIMS], shape[TP_MAX_DIMS];
    for (int i = 0; i < nd; i++) {
        shape[i] = i == 1 ? INM(0)->size[1] : 1;
        if (i != 1)
            dims[n++] = i;
    }
    tp_val w = ARG(1)->kind == VAL_none ? vNone : vT(vh_reshape(B, ARG(1)->t, nd, shape)), dx, xhat;
    if (train)
        norm_plain(g, X, DYV, w, dims, n, val_as_f(ARG(7)), &dx, &xhat);
    else {
        tp_val m = vT(vh_reshape(B, ARG(3)->t, nd, shape)), v = vT(vh_reshape(B, ARG(4)->t, nd, shape));
        tp_val rstd = V(rsqrt, ADD(v, *ARG(7)));
        xhat = MUL(SUB(X, m), rstd);
        dx = MUL(w.kind == VAL_none ? DYV : MUL(DYV, w), rstd);
    }
    DXV(0, dx);
    if (NEED(1))
        DXV(1, V(sum_dim_IntList, MUL(DYV, xhat), vIs(dims, n)));
    if (NEED(2))
        DXV(2, V(sum_dim_IntList, DYV, vIs(dims, n)));
    return true;
}

/* ---- resizing: linear, so the backward of backward is forward ---- */
#define SIZES vIs(INM(0)->size, INM(0)->ndim)
#define RESIZE(name, F, BK)  \
    VJP(name, "")            \
    {                        \
        DXV(0, BK);          \
        return true;         \
    }                        \
    VJP(name##_backward, "") \
    {                        \
        DXV(0, F);           \
        return true;         \
    }
RESIZE(upsample_nearest1d, V(upsample_nearest1d, DYV, *ARG(1), *ARG(3)),
       V(upsample_nearest1d_backward, DYV, *ARG(1), SIZES, *ARG(2)))
RESIZE(_upsample_nearest_exact1d, V(_upsample_nearest_exact1d, DYV, *ARG(1), *ARG(3)),
       V(_upsample_nearest_exact1d_backward, DYV, *ARG(1), SIZES, *ARG(2)))
RESIZE(upsample_nearest2d, V(upsample_nearest2d, DYV, *ARG(1), *ARG(3), *ARG(4)),
       V(upsample_nearest2d_backward, DYV, *ARG(1), SIZES, *ARG(2), *ARG(3)))
RESIZE(_upsample_nearest_exact2d, V(_upsample_nearest_exact2d, DYV, *ARG(1), *ARG(3), *ARG(4)),
       V(_upsample_nearest_exact2d_backward, DYV, *ARG(1), SIZES, *ARG(2), *ARG(3)))
RESIZE(upsample_nearest3d, V(upsample_nearest3d, DYV, *ARG(1), *ARG(3), *ARG(4), *ARG(5)),
       V(upsample_nearest3d_backward, DYV, *ARG(1), SIZES, *ARG(2), *ARG(3), *ARG(4)))
RESIZE(_upsample_nearest_exact3d, V(_upsample_nearest_exact3d, DYV, *ARG(1), *ARG(3), *ARG(4), *ARG(5)),
       V(_upsample_nearest_exact3d_backward, DYV, *ARG(1), SIZES, *ARG(2), *ARG(3), *ARG(4)))
RESIZE(upsample_linear1d, V(upsample_linear1d, DYV, *ARG(1), *ARG(3), *ARG(4)),
       V(upsample_linear1d_backward, DYV, *ARG(1), SIZES, *ARG(2), *ARG(3)))
RESIZE(upsample_bilinear2d, V(upsample_bilinear2d, DYV, *ARG(1), *ARG(3), *ARG(4), *ARG(5)),
       V(upsample_bilinear2d_backward, DYV, *ARG(1), SIZES, *ARG(2), *ARG(3), *ARG(4)))
RESIZE(upsample_trilinear3d, V(upsample_trilinear3d, DYV, *ARG(1), *ARG(3), *ARG(4), *ARG(5), *ARG(6)),
       V(upsample_trilinear3d_backward, DYV, *ARG(1), SIZES, *ARG(2), *ARG(3), *ARG(4), *ARG(5)))
RESIZE(upsample_bicubic2d, V(upsample_bicubic2d, DYV, *ARG(1), *ARG(3), *ARG(4), *ARG(5)),
       V(upsample_bicubic2d_backward, DYV, *ARG(1), SIZES, *ARG(2), *ARG(3), *ARG(4)))
RESIZE(_upsample_bilinear2d_aa, V(_upsample_bilinear2d_aa, DYV, *ARG(1), *ARG(3), *ARG(4), *ARG(5)),
       V(_upsample_bilinear2d_aa_backward, DYV, *ARG(1), SIZES, *ARG(2), *ARG(3), *ARG(4)))
RESIZE(_upsample_bicubic2d_aa, V(_upsample_bicubic2d_aa, DYV, *ARG(1), *ARG(3), *ARG(4), *ARG(5)),
       V(_upsample_bicubic2d_aa_backward, DYV, *ARG(1), SIZES, *ARG(2), *ARG(3), *ARG(4)))

/* ---- sampling at places of a grid ---- */
#define SAMPLE(name)                                                                              \
    VJP(name, "0 1")                                                                              \
    {                                                                                             \
        tp_tensor *d[2];                                                                          \
        tp_val mask = { .kind = VAL_bools, .n = 2, .bools = (const bool[]){ NEED(0), NEED(1) } }; \
        b_opn(B, name##_backward, d, 2, DYV, X, Y, *ARG(2), *ARG(3), *ARG(4), mask);              \
        DX(0, d[0]);                                                                              \
        DX(1, d[1]);                                                                              \
        return true;                                                                              \
    }
SAMPLE(grid_sampler_2d)
SAMPLE(grid_sampler_3d)

/* ---- losses ---- */
#define NLL(name)                                                                           \
    VJP(name, "0 1 2 r1 ~r1")                                                               \
    {                                                                                       \
        DXV(0, V(name##_backward, DYV, X, *ARG(1), *ARG(2), *ARG(3), *ARG(4), vT(OUT(1)))); \
        return true;                                                                        \
    }                                                                                       \
    VJP(name##_backward, "2 3") /* the loss is linear in its input */                       \
    {                                                                                       \
        DXV(0, V(name##_forward, DYV, *ARG(2), *ARG(3), *ARG(4), *ARG(5)));                 \
        return true;                                                                        \
    }
NLL(nll_loss)
NLL(nll_loss2d)

/* reduction: 0 none, 1 mean, 2 sum */
static tp_val per_element(vjp *g, const tp_tensor *in, int64_t reduction)
{
    if (reduction == 0)
        return DYV;
    return reduction == 1 ? DIV(DYV, vI(in->numel)) : DYV;
}

VJP(bce, "0 1 2")
{
    tp_val w = *ARG(2), t = *ARG(1);
    if (NEED(0)) {
        if (!PLAIN)
            DXV(0, V(binary_cross_entropy_backward, DYV, X, t, w, *ARG(3)));
        else {
            tp_val d = MUL(per_element(g, INM(0), ARG(3)->i),
                           DIV(SUB(X, t), V(clamp_min, MUL(X, V(rsub_Tensor, X, vI(1))), vF(1e-12))));
            DXV(0, w.kind == VAL_none ? d : MUL(d, w));
        }
    }
    if (NEED(1)) { /* logs are clamped at -100 as in the forward */
        tp_val l1 = V(clamp_min, V(log1p, NEG(X)), vI(-100)), l0 = V(clamp_min, V(log, X), vI(-100));
        tp_val d = MUL(per_element(g, INM(0), ARG(3)->i), SUB(l1, l0));
        DXV(1, w.kind == VAL_none ? d : MUL(d, w));
    }
    return true;
}

VJP(ctc_loss, "0 1 r r1 ~r1")
{
    if (DY(0))
        DXV(0, V(_ctc_loss_backward, DYV, X, Y, *ARG(2), *ARG(3), R, vT(OUT(1)), *ARG(4), *ARG(5)));
    return true;
}

/* ---- attention in one kernel ---- */
VJP(flash, "0 1 2 3 4 r0 r1 ~r1")
{
    tp_tensor *d[4] = { NULL };
    if (PLAIN || NEED(3)) {
        attention_args a = attention_of(ARG(0));
        const bool want[4] = { NEED(0), NEED(1), NEED(2), NEED(3) };
        if (!attention_gradient(B, &a, DY(0), want, d))
            return false;
    } else {
        tp_tensor *rows[2];
        tp_val stats = vT(OUT(1));
        if (!b_opn(B, _flash_grad_query, rows, 2, DYV, X, Y, *ARG(2), *ARG(3), *ARG(4), *ARG(5), *ARG(6),
                   *ARG(7), stats, R))
            return false;
        d[0] = rows[0];
        if ((NEED(1) || NEED(2)) && !b_opn(B, _flash_grad_key, d + 1, 2, DYV, X, Y, *ARG(2), *ARG(3), *ARG(4),
                                           *ARG(5), *ARG(6), *ARG(7), stats, vT(rows[1])))
            return false;
    }
    for (int i = 0; i < 4; i++)
        DX(i, d[i]);
    return true;
}
