/* decomp_nn.c - composite operators of neural networks: losses, dropout, attention, shuffles, distances. */
#include "ops/attention.h"
#include "ops/decomp.h"
#include "ops/provider.h"
#include "ops/pw.h"
#include <math.h>

#define T(i)      val_t(&arg[i])
#define RET(t)    comp_ret(b, (t), out)
#define FAIL(...) err_set(b->err, ERR_runtime, __VA_ARGS__)
#define LIST(...) vIs(((symint[]){ __VA_ARGS__ }), (int)(sizeof((symint[]){ __VA_ARGS__ }) / sizeof(symint)))
#define ADD(x, y) b_op(b, add_Tensor, x, y)
#define SUB(x, y) b_op(b, sub_Tensor, x, y)
#define MUL(x, y) b_op(b, mul_Tensor, x, y)
#define DIV(x, y) b_op(b, div_Tensor, x, y)

/* ---- losses ---- */
enum { RED_NONE, RED_MEAN, RED_SUM };
static tp_tensor *reduced(bld *b, tp_tensor *x, int64_t how)
{
    if (!x)
        return NULL;
    return how == RED_MEAN ? b_op(b, mean, vT(x)) : how == RED_SUM ? b_op(b, sum, vT(x)) : x;
}
/* The type a result is stored in where PyTorch computes in place: refused when that would change its category. */
static tp_tensor *stored_as(bld *b, tp_tensor *x, dtype dt)
{
    if (!x || x->dt == dt)
        return x;
    if (!dtype_can_cast((dtype)x->dt, dt)) {
        FAIL("result type %s can't be cast to the desired output type %s", dtype_rows[x->dt].gname,
             dtype_rows[dt].gname);
        return NULL;
    }
    return b_op(b, to_dtype, vT(x), vDT(dt));
}
static tp_tensor *in_format(bld *b, tp_tensor *x, memfmt f)
{
    return x && f != MF_contiguous ? b_op(b, contiguous, vT(x), vMF(f)) : x;
}
static tp_tensor *where(bld *b, tp_tensor *c, tp_val x, tp_val y) { return b_op(b, where_self, vT(c), x, y); }

bool decomp_mse_loss(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(reduced(b, b_op(b, square, vT(SUB(arg[0], arg[1]))), arg[2].i));
}
bool decomp_l1_loss(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(reduced(b, b_op(b, abs, vT(SUB(arg[0], arg[1]))), arg[2].i));
}
bool decomp_smooth_l1_loss(bld *b, const tp_val *arg, tp_val *out)
{
    double beta = val_as_f(&arg[3]);
    if (beta < 0)
        return FAIL("smooth_l1_loss does not support negative values for beta.");
    tp_tensor *d = SUB(arg[0], arg[1]), *a = b_op(b, abs, vT(d));
    if (beta == 0)
        return RET(reduced(b, a, arg[2].i));
    tp_tensor *q = MUL(vT(b_op(b, square, vT(d))), vF(0.5 / beta)), *l = SUB(vT(a), vF(0.5 * beta));
    return RET(reduced(b, where(b, b_op(b, lt_Tensor, vT(a), vF(beta)), vT(q), vT(l)), arg[2].i));
}
bool decomp_huber_loss(bld *b, const tp_val *arg, tp_val *out)
{
    double delta = val_as_f(&arg[3]);
    if (!(delta > 0))
        return FAIL("huber_loss does not support non-positive values for delta.");
    tp_tensor *d = SUB(arg[0], arg[1]), *a = b_op(b, abs, vT(d));
    tp_tensor *q = MUL(vT(b_op(b, square, vT(d))), vF(0.5)),
              *l = MUL(vT(SUB(vT(a), vF(0.5 * delta))), vF(delta));
    l = where(b, b_op(b, le_Tensor, vT(a), vF(delta)), vT(q), vT(l));
    return RET(reduced(b, stored_as(b, l, (dtype)T(0)->dt), arg[2].i));
}
bool decomp_bce(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *l0 = b_op(b, clamp_min, vT(b_op(b, log, arg[0])), vI(-100));
    tp_tensor *l1 = b_op(b, clamp_min, vT(b_op(b, log1p, vT(b_op(b, neg, arg[0])))), vI(-100));
    tp_tensor *l = SUB(vT(MUL(vT(SUB(arg[1], vI(1))), vT(l1))), vT(MUL(arg[1], vT(l0))));
    if (T(2))
        l = MUL(vT(l), arg[2]);
    return RET(reduced(b, l, arg[3].i));
}
bool decomp_bce_with_logits(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(0), *t = T(1);
    size_text s, u;
    if (!tensor_same_size(x, t))
        return err_set(b->err, ERR_value,
                       "Target size (torch.Size(%s)) must be the same as input size (torch.Size(%s))",
                       sizes_str(&s, t->ndim, t->size), sizes_str(&u, x->ndim, x->size));
    tp_tensor *ls = b_op(b, log_sigmoid, vT(x)), *one = b_op(b, rsub_Tensor, vT(t), vI(1));
    if (T(3)) {
        tp_tensor *lw = ADD(vT(MUL(vT(SUB(arg[3], vI(1))), vT(t))), vI(1));
        ls = MUL(vT(lw), vT(ls));
    }
    tp_tensor *l = stored_as(b, SUB(vT(MUL(vT(one), vT(x))), vT(ls)), (dtype)t->dt);
    if (T(2))
        l = MUL(vT(l), arg[2]);
    return RET(reduced(b, l, arg[4].i));
}
bool decomp_kl_div(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *l;
    if (val_b(&arg[3], false))
        l = MUL(vT(b_op(b, exp, arg[1])), vT(SUB(arg[1], arg[0])));
    else
        l = SUB(vT(b_op(b, xlogy_Tensor, arg[1], arg[1])), vT(MUL(arg[1], arg[0])));
    return RET(reduced(b, l, arg[2].i));
}
bool decomp_soft_margin_loss(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *z = b_op(b, exp, vT(MUL(vT(b_op(b, neg, arg[1])), arg[0])));
    return RET(reduced(b, stored_as(b, b_op(b, log1p, vT(z)), (dtype)T(0)->dt), arg[2].i));
}
bool decomp_hinge_embedding_loss(bld *b, const tp_val *arg, tp_val *out)
{
    double m = val_as_f(&arg[2]); /* whole numbers take a whole margin */
    tp_val margin = dtype_is_float((dtype)T(0)->dt) || !(fabs(m) < 0x1p62) ? arg[2] : vI((int64_t)m);
    tp_tensor *far = b_op(b, clamp_min, vT(b_op(b, rsub_Tensor, arg[0], margin)), vI(0));
    tp_tensor *p = where(b, b_op(b, ne_Tensor, arg[1], vI(1)), vT(far), vI(0));
    tp_tensor *n = where(b, b_op(b, ne_Tensor, arg[1], vI(-1)), arg[0], vI(0));
    return RET(reduced(b, ADD(vT(p), vT(n)), arg[3].i));
}
bool decomp_margin_ranking_loss(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *d = MUL(vT(b_op(b, neg, arg[2])), vT(SUB(arg[0], arg[1])));
    return RET(reduced(b, b_op(b, clamp_min, vT(ADD(vT(d), arg[3])), vI(0)), arg[4].i));
}
bool decomp_poisson_nll_loss(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *l;
    if (val_b(&arg[2], true))
        l = SUB(vT(b_op(b, exp, arg[0])), vT(MUL(arg[1], arg[0])));
    else
        l = SUB(arg[0], vT(MUL(arg[1], vT(b_op(b, log, vT(ADD(arg[0], arg[4])))))));
    if (val_b(&arg[3], false)) { /* Stirling's term, for targets above 1 */
        tp_tensor *st = SUB(vT(MUL(arg[1], vT(b_op(b, log, arg[1])))), arg[1]);
        st = ADD(vT(st), vT(MUL(vT(b_op(b, log, vT(MUL(arg[1], vF(2 * 3.141592653589793))))), vF(0.5))));
        l = ADD(vT(l), vT(where(b, b_op(b, le_Tensor, arg[1], vI(1)), vI(0), vT(st))));
    }
    return RET(reduced(b, l, arg[5].i));
}

/* (self N C or C, target, p, margin, weight, reduction): every other class should be `margin` below the target's */
bool decomp_multi_margin_loss(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(0), *t = T(1), *w = T(4);
    double p = val_as_f(&arg[2]);
    size_text s, u;
    bool one = x->ndim < 2;
    if (p != 1 && p != 2)
        return FAIL("only p == 1 and p == 2 supported");
    if (x->ndim > 2 || (x->ndim == 2 && sym_eq(x->size[1], 0)) || (one && sym_eq(x->numel, 0)))
        return FAIL("Expected non-empty vector or matrix with optional 0-dim batch size, but got: %s",
                    sizes_str(&s, x->ndim, x->size));
    symint n = one ? 1 : x->size[0], c = one ? x->numel : x->size[1];
    if (t->ndim > 1 || !sym_eq(t->numel, n))
        return FAIL("inconsistent target size, expected %s but got %s", size_str(&s, n),
                    sizes_str(&u, t->ndim, t->size));
    if (w && (w->ndim > 1 || !sym_eq(w->numel, c)))
        return FAIL("inconsistent weight size, expected %s but got %s", size_str(&s, c),
                    sizes_str(&u, w->ndim, w->size));
    x = b_op(b, reshape, vT(x), LIST(n, c));
    t = b_op(b, reshape, vT(t), LIST(n, 1));
    tp_tensor *own = b_op(b, gather, vT(x), vI(1), vT(t));
    tp_tensor *z = b_op(b, clamp_min, vT(ADD(vT(SUB(vT(x), vT(own))), arg[3])), vI(0));
    if (p == 2)
        z = b_op(b, square, vT(z));
    if (w)
        z = MUL(vT(z),
                vT(b_op(b, gather, vT(b_op(b, expand, vT(b_op(b, reshape, vT(w), LIST(1, c))), LIST(n, c))),
                        vI(1), vT(t))));
    tp_tensor *mine = b_op(b, scatter_value, vT(b_op(b, zeros, LIST(n, c), vDT(DT_bool))), vI(1), vT(t),
                           vB(true));
    z = DIV(vT(b_op(b, sum_dim_IntList, vT(where(b, mine, vI(0), vT(z))), LIST(1))), vI(c));
    if (arg[5].i == RED_NONE && one && z && T(1)->ndim == 0)
        return RET(b_op(b, squeeze_dim, vT(z), vI(0)));
    return RET(reduced(b, z, arg[5].i));
}
/* (self N C or C, target, reduction): labels up to the first -1 should be 1 above all others; also gives which are
 * labels */
static tp_tensor *multilabel(bld *b, const tp_val *arg, tp_tensor **labels)
{
    tp_tensor *x = T(0), *t = T(1);
    size_text s;
    bool one = x->ndim < 2;
    if (x->ndim > 2 || (x->ndim == 2 && sym_eq(x->size[1], 0)) || (one && sym_eq(x->numel, 0)))
        return FAIL("Expected non-empty vector or matrix with optional 0-dim batch size, but got: %s",
                    sizes_str(&s, x->ndim, x->size)),
               NULL;
    symint n = one ? 1 : x->size[0], c = one ? x->numel : x->size[1];
    dtype dt = (dtype)x->dt;
    if (!sym_eq(t->numel, x->numel) || t->ndim != x->ndim)
        return FAIL("inconsistent target size: %s", sizes_str(&s, t->ndim, t->size)), NULL;
    if (!dtype_is_float(dt) && !sym_eq(x->numel, 0))
        return err_set(b->err, ERR_notimpl,
                       "\"multilabel_margin_loss_forward_out_frame\" not implemented for '%s'",
                       dtype_rows[dt].gname),
               NULL;
    x = b_op(b, reshape, vT(x), LIST(n, c));
    t = b_op(b, reshape, vT(t), LIST(n, c));
    tp_tensor *valid = b_op(b, cumprod, vT(b_op(b, to_dtype, vT(b_op(b, ge_Tensor, vT(t), vI(0))), vDT(dt))),
                            vI(1));
    tp_tensor *safe = b_op(b, clamp_min, vT(t), vI(0));
    tp_tensor *hit = b_op(b, scatter_add, vT(b_op(b, zeros, LIST(n, c), vDT(dt))), vI(1), vT(safe),
                          vT(valid));
    *labels = b_op(b, to_dtype, vT(b_op(b, gt_Tensor, vT(hit), vI(0))), vDT(dt));
    tp_tensor *own = b_op(b, gather, vT(x), vI(1), vT(safe)); /* n c: score of the k-th label */
    tp_tensor *z = SUB(vT(b_op(b, unsqueeze, vT(x), vI(1))), vT(b_op(b, unsqueeze, vT(own), vI(2))));
    z = b_op(b, clamp_min, vT(ADD(vT(z), vI(1))), vI(0)); /* n labels classes */
    z = MUL(vT(z), vT(b_op(b, unsqueeze, vT(valid), vI(2))));
    z = MUL(vT(z), vT(b_op(b, unsqueeze, vT(b_op(b, rsub_Tensor, vT(*labels), vI(1))), vI(1))));
    z = DIV(vT(b_op(b, sum_dim_IntList, vT(z), LIST(1, 2))), vI(c));
    z = z && z->dt != dt ? b_op(b, to_dtype, vT(z), vDT(dt)) : z;
    return one && z ? b_op(b, squeeze_dim, vT(z), vI(0)) : z;
}
bool decomp_multilabel_margin_loss(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *is;
    return RET(reduced(b, multilabel(b, arg, &is), arg[2].i));
}

/* ---- max_unpool: values go back to where pooling found them ---- */
static bool unpool(bld *b, const tp_val *arg, tp_val *out, int nd)
{
    tp_tensor *x = T(0), *ix = T(1);
    const tp_val *o = &arg[2];
    size_text s, u;
    symint size[TP_MAX_DIMS], flat = 1, n = 1;
    int lead = x->ndim - nd;
    if (ix->dt != DT_i64)
        return FAIL("elements in indices should be type int64 but got: %s", dtype_rows[ix->dt].gname);
    if (lead != 1 && lead != 2)
        return FAIL(
            "Input to max_unpooling%dd should be a %dd or %dd Tensor, but got a tensor with %d dimensions",
            nd, nd + 1, nd + 2, x->ndim);
    if (o->n != nd)
        return FAIL("There should be exactly %d elements in output_size, but got %d elements.", nd, o->n);
    if (!tensor_same_size(x, ix))
        return FAIL("Expected shape of indices to be same as that of the input tensor (%s) but got indices "
                    "tensor with "
                    "shape: %s",
                    sizes_str(&s, x->ndim, x->size), sizes_str(&u, ix->ndim, ix->size));
    for (int i = lead ? 1 : 0; i < x->ndim; i++)
        if (lead == 2 && sym_eq(x->size[i], 0))
            return FAIL("max_unpooling%dd(): Expected input to have non-zero size for non-batch dimensions, "
                        "but got %s "
                        "with dimension %d being empty.",
                        nd, sizes_str(&s, x->ndim, x->size), i);
    memcpy(size, x->size, sizeof(symint) * (size_t)lead);
    for (int i = 0; i < nd; i++) {
        flat = sym_mul(flat, size[lead + i] = o->ints[i]);
        n = sym_mul(n, x->size[lead + i]);
    }
    const tp_tensor *places = tensor_is_fake(ix) ? NULL : bld_host(b, ix);
    if (!places && !tensor_is_fake(ix))
        return false;
    if (places) /* a wrong place would be written to silently */
        for (int64_t i = 0; i < places->numel; i++) {
            int64_t v = *(int64_t *)tensor_elem(places, i);
            if (v < 0 || v >= flat)
                return FAIL("Found an invalid max index: %lld (output volumes are of size %s", (long long)v,
                            sizes_str(&s, nd, o->ints));
        }
    symint in[3] = { x->size[0], lead == 2 ? x->size[1] : n, n },
           to[3] = { x->size[0], lead == 2 ? x->size[1] : flat, flat };
    tp_tensor *v = b_op(b, reshape, vT(x), vIs(in, lead + 1)),
              *at = b_op(b, reshape, vT(ix), vIs(in, lead + 1));
    tp_tensor *z = b_op(b, zeros, vIs(to, lead + 1), vDT(x->dt));
    tp_tensor *r = b_op(b, view, vT(b_op(b, scatter_src, vT(z), vI(-1), vT(at), vT(v))),
                        vIs(size, lead + nd));
    memfmt mf = nd == 2 ? tensor_suggest_memfmt(x) : MF_contiguous;
    return RET(mf == MF_contiguous ? r : b_op(b, contiguous, vT(r), vMF(mf)));
}
bool decomp_max_unpool2d(bld *b, const tp_val *arg, tp_val *out) { return unpool(b, arg, out, 2); }
bool decomp_max_unpool3d(bld *b, const tp_val *arg, tp_val *out) { return unpool(b, arg, out, 3); }

/* ---- fractional pooling: the places of the maxima, then a gather ---- */
bool decomp_fractional_max_pool(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(0), *r[2];
    const tp_val *o = &arg[2];
    int nd = o->n, lead = x->ndim - nd;
    symint size[TP_MAX_DIMS], flat = 1, n = 1;
    tp_tensor *ix = b_op(b, _fractional_places, arg[0], arg[1], arg[2], arg[3]);
    if (!ix)
        return false;
    memcpy(size, x->size, sizeof(symint) * (size_t)lead);
    for (int i = 0; i < nd; i++) {
        flat = sym_mul(flat, x->size[lead + i]);
        n = sym_mul(n, o->ints[i]);
    }
    size[lead] = flat;
    tp_tensor *v = b_op(b, reshape, vT(x), vIs(size, lead + 1));
    size[lead] = n;
    tp_tensor *g = b_op(b, gather, vT(v), vI(-1), vT(b_op(b, reshape, vT(ix), vIs(size, lead + 1))));
    r[0] = g ? b_op(b, view, vT(g), vIs(ix->size, ix->ndim)) : NULL;
    r[1] = ix;
    return comp_ret_n(b, r, 2, out);
}

bool decomp_pairwise_distance(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *d = ADD(vT(SUB(arg[0], arg[1])), arg[3]);
    return RET(b_op(b, linalg_vector_norm, vT(d), arg[2], LIST(-1), arg[4]));
}
bool decomp_triplet_margin_loss(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *p = b_op(b, pairwise_distance, arg[0], arg[1], arg[4], arg[5]);
    tp_tensor *n = b_op(b, pairwise_distance, arg[0], arg[2], arg[4], arg[5]);
    if (val_b(&arg[6], false))
        n = b_op(b, minimum, vT(n), vT(b_op(b, pairwise_distance, arg[1], arg[2], arg[4], arg[5])));
    return RET(reduced(b, b_op(b, clamp_min, vT(SUB(vT(ADD(vT(p), arg[3])), vT(n))), vI(0)), arg[7].i));
}
bool decomp_cosine_similarity(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x[2] = { T(0), T(1) };
    symint size[TP_MAX_DIMS];
    int nd = x[0]->ndim, d;
    dtype_join j = DTYPE_JOIN_INIT;
    memcpy(size, x[0]->size, sizeof(symint) * (size_t)nd);
    if (!shape_broadcast(&nd, size, x[1]->ndim, x[1]->size, b->err))
        return false;
    if (!dim_wrap(val_i(&arg[2], 1), nd, &d, b->err))
        return false;
    for (int i = 0; i < 2; i++)
        dtype_join_add(&j, (dtype)x[i]->dt, nd, false); /* as expanded: none is a mere number */
    dtype dt = dtype_join_result(&j);
    if (!dtype_is_float(dt))
        return FAIL("expected common dtype to be floating point, yet common dtype is %s",
                    dtype_rows[dt].gname);
    for (int i = 0; i < 2; i++) {
        if (x[i]->dt != dt)
            x[i] = b_op(b, to_dtype, vT(x[i]), vDT(dt));
        x[i] = b_op(b, expand, vT(x[i]), vIs(size, nd));
        tp_tensor *n = b_op(b, linalg_vector_norm, vT(x[i]), vI(2), LIST(d), vB(true));
        x[i] = DIV(vT(x[i]), vT(b_op(b, clamp_min, vT(n), arg[3])));
    }
    return RET(b_op(b, sum_dim_IntList, vT(MUL(vT(x[0]), vT(x[1]))), LIST(d)));
}
bool decomp_cosine_embedding_loss(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(0), *y = T(1), *t = T(2);
    size_text s, u;
    if (t->ndim > 1)
        return FAIL("0D or 1D target tensor expected, multi-target not supported");
    if (x->ndim != t->ndim + 1 || y->ndim != t->ndim + 1)
        return FAIL("%dD target tensor expects %dD input tensors, but found inputs with sizes %s and %s.",
                    t->ndim, t->ndim + 1, sizes_str(&s, x->ndim, x->size), sizes_str(&u, y->ndim, y->size));
    tp_val d = LIST(-1), eps = vF(1e-12);
    tp_tensor *dot = b_op(b, sum_dim_IntList, vT(MUL(vT(x), vT(y))), d);
    tp_tensor *nx = ADD(vT(b_op(b, sum_dim_IntList, vT(MUL(vT(x), vT(x))), d)), eps);
    tp_tensor *ny = ADD(vT(b_op(b, sum_dim_IntList, vT(MUL(vT(y), vT(y))), d)), eps);
    tp_tensor *cos = DIV(vT(dot), vT(b_op(b, sqrt, vT(MUL(vT(nx), vT(ny))))));
    tp_tensor *near = b_op(b, rsub_Tensor, vT(cos), vI(1));
    tp_tensor *far = b_op(b, clamp_min, vT(SUB(vT(cos), arg[3])), vI(0));
    tp_tensor *p = where(b, b_op(b, eq_Tensor, arg[2], vI(1)), vT(near), vI(0));
    tp_tensor *n = where(b, b_op(b, eq_Tensor, arg[2], vI(-1)), vT(far), vI(0));
    return RET(reduced(b, ADD(vT(p), vT(n)), arg[4].i));
}
bool decomp_cdist(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(0), *y = T(1);
    if (x->ndim < 2 || y->ndim < 2)
        return FAIL("cdist only supports at least 2D tensors, X%d got: %dD", x->ndim < 2 ? 1 : 2,
                    x->ndim < 2 ? x->ndim : y->ndim);
    if (!sym_eq(x->size[x->ndim - 1], y->size[y->ndim - 1]))
        return FAIL("X1 and X2 must have the same number of columns. X1: %lld X2: %lld",
                    (long long)x->size[x->ndim - 1], (long long)y->size[y->ndim - 1]);
    tp_tensor *d = SUB(vT(b_op(b, unsqueeze, vT(x), vI(-2))), vT(b_op(b, unsqueeze, vT(y), vI(-3))));
    return RET(b_op(b, linalg_vector_norm, vT(d), arg[2], LIST(-1)));
}

/* ---- negative log likelihood and cross entropy ---- */
bool decomp_nll_loss(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    return b_callvn(b, OP_nll_loss_forward, OPV_fn, arg, 5, r, 2) && RET(r[0]);
}
bool decomp_nll_loss2d(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    return b_callvn(b, OP_nll_loss2d_forward, OPV_fn, arg, 5, r, 2) && RET(r[0]);
}
bool decomp_nll_loss_nd(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(0), *t = T(1);
    size_text s;
    if (x->ndim < 1)
        return err_set(b->err, ERR_value, "Expected 1 or more dimensions (got %d)", x->ndim);
    if (x->ndim > 1 && (t->ndim < 1 || !sym_eq(x->size[0], t->size[0])))
        return err_set(b->err, ERR_value,
                       "Expected input batch_size (%lld) to match target batch_size (%lld).",
                       (long long)x->size[0], (long long)(t->ndim ? t->size[0] : 0));
    if (x->ndim <= 2)
        return RET(b_op(b, nll_loss, arg[0], arg[1], arg[2], arg[3], arg[4]));
    if (x->ndim == 4)
        return RET(b_op(b, nll_loss2d, arg[0], arg[1], arg[2], arg[3], arg[4]));
    symint n = x->size[0], c = x->size[1], l = 1;
    bool same = t->ndim == x->ndim - 1;
    for (int d = 2; d < x->ndim; d++) {
        l = sym_mul(l, x->size[d]);
        same = same && sym_eq(t->size[d - 1], x->size[d]);
    }
    if (!same) {
        symint want[TP_MAX_DIMS];
        want[0] = n;
        memcpy(want + 1, x->size + 2, sizeof(symint) * (size_t)(x->ndim - 2));
        size_text u;
        return FAIL("Expected target size %s, got %s", sizes_str(&s, x->ndim - 1, want),
                    sizes_str(&u, t->ndim, t->size));
    }
    tp_tensor *xi = b_op(b, reshape, vT(x), LIST(n, c, 1, l)), *ti = b_op(b, reshape, vT(t), LIST(n, 1, l));
    tp_tensor *r = b_op(b, nll_loss2d, vT(xi), vT(ti), arg[2], arg[3], arg[4]);
    return RET(arg[3].i == RED_NONE && r ? b_op(b, view, vT(r), vIs(t->size, t->ndim)) : r);
}
/* (grad_output, self, target, weight, reduction, ignore_index, total_weight): minus the gradient where the class is the
 * target, nothing elsewhere. */
bool decomp_nll_backward(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *g = T(0), *x = T(1), *t = T(2), *w = T(3);
    int cd = x->ndim < 2 ? 0 : 1;
    symint classes[TP_MAX_DIMS], at[TP_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++) {
        classes[d] = d == cd ? x->size[cd] : 1;
        at[d] = d == cd ? 1 : x->size[d];
    }
    t = b_op(b, reshape, vT(t), vIs(at, x->ndim));
    g = b_op(b, neg, vT(g));
    if (arg[4].i == RED_MEAN)
        g = b_op(b, div_Tensor, vT(g), vT(b_op(b, reshape, vT(T(6)), vIs(NULL, 0))));
    if (g && g->ndim)
        g = b_op(b, reshape, vT(g), vIs(at, x->ndim));
    if (w)
        g = MUL(vT(g), vT(b_op(b, reshape, vT(w), vIs(classes, x->ndim))));
    tp_tensor *i = b_op(b, arange, vI(x->size[cd]), vDT(DT_i64), vNone, vDev(tensor_device(x)));
    i = b_op(b, reshape, vT(i), vIs(classes, x->ndim));
    tp_tensor *here = b_op(b, logical_and, vT(b_op(b, eq_Tensor, vT(i), vT(t))),
                           vT(b_op(b, ne_Tensor, vT(t), arg[5])));
    tp_tensor *r = where(b, here, vT(g), vI(0));
    if (r && r->dt != x->dt)
        r = b_op(b, to_dtype, vT(r), vDT(x->dt));
    return RET(
        r && !tensor_same_size(r, x) ? b_op(b, clone, vT(b_op(b, expand, vT(r), vIs(x->size, x->ndim)))) : r);
}
/* (grad_output, self, target, weight, reduction) */
bool decomp_bce_backward(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(1), *w = T(3);
    tp_tensor *rest = b_op(b, rsub_Tensor, vT(x), vI(1));
    tp_tensor *den = b_op(b, clamp_min, vT(MUL(vT(rest), vT(x))), vF(1e-12));
    tp_tensor *r = b_op(b, div_Tensor, vT(MUL(arg[0], vT(b_op(b, sub_Tensor, vT(x), arg[2])))), vT(den));
    if (w)
        r = MUL(vT(r), vT(w));
    if (arg[4].i == RED_MEAN)
        r = b_op(b, div_Tensor, vT(r), vI(x->numel));
    return RET(r);
}
/* The same in simpler rows: gather the target's entry, weigh, mask, reduce. */
bool decomp_nll_forward(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(0), *t = T(1), *w = T(2), *r[2];
    int cd = x->ndim < 2 ? 0 : 1;
    int64_t red = arg[3].i;
    symint ones[TP_MAX_DIMS];
    tp_tensor *keep = b_op(b, ne_Tensor, vT(t), arg[4]);
    tp_tensor *safe = where(b, keep, vT(t), vI(0));
    if (w) {
        for (int d = 0; d < x->ndim; d++)
            ones[d] = d == cd ? x->size[cd] : 1;
        w = b_op(b, expand, vT(b_op(b, reshape, vT(w), vIs(ones, x->ndim))), vIs(x->size, x->ndim));
        x = MUL(vT(x), vT(w));
    }
    tp_tensor *ix = b_op(b, unsqueeze, vT(safe), vI(cd));
    if (x->ndim == 1 && t->ndim == 1)
        ix = safe;
    tp_tensor *g = b_op(b, neg, vT(b_op(b, gather, vT(x), vI(cd), vT(ix))));
    if (ix != safe)
        g = b_op(b, squeeze_dim, vT(g), vI(cd));
    g = where(b, keep, vT(g), vI(0));
    if (red == RED_NONE && x->ndim > 1) {
        r[0] = g;
        r[1] = b_op(b, zeros, vIs(NULL, 0), vDT(x->dt));
        return comp_ret_n(b, r, 2, out);
    }
    if (w) {
        tp_tensor *gw = b_op(b, gather, vT(w), vI(cd), vT(ix));
        if (ix != safe)
            gw = b_op(b, squeeze_dim, vT(gw), vI(cd));
        r[1] = b_op(b, sum, vT(where(b, keep, vT(gw), vI(0))));
    } else
        r[1] = b_op(b, to_dtype, vT(b_op(b, sum, vT(keep))), vDT(x->dt));
    r[0] = b_op(b, sum, vT(g));
    if (red == RED_MEAN)
        r[0] = DIV(vT(r[0]), vT(r[1]));
    return comp_ret_n(b, r, 2, out);
}

static tp_tensor *class_weights(bld *b, tp_tensor *w, int nd, int cd)
{
    symint size[TP_MAX_DIMS];
    for (int d = 0; d < nd; d++)
        size[d] = d == cd ? w->numel : 1;
    return b_op(b, reshape, vT(w), vIs(size, nd));
}

/* How many predictions x holds. */
static symint positions(const tp_tensor *x, int cd)
{
    symint n = 1;
    for (int i = 0; i < x->ndim; i++)
        if (i != cd)
            n = sym_mul(n, x->size[i]);
    return n;
}

tp_val val_over(bld *b, double a, symint n, dtype dt)
{
    if (!sym_is_expr(n))
        return vF(a / (double)n);
    tp_tensor *q = DIV(vT(b_op(b, scalar_tensor, vF(a), vDT(DT_f64))), vI(n));
    return vT(b_op(b, to_dtype, vT(q), vDT(dt)));
}

bool decomp_cross_entropy(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(0), *t = T(1), *w = T(2);
    int64_t red = arg[3].i;
    double eps = val_as_f(&arg[5]);
    int cd = x->ndim == 1 ? 0 : 1;
    if (x->ndim < 1)
        return FAIL("Expected 1 or more dimensions (got %d)", x->ndim);
    symint classes = x->size[cd];
    tp_tensor *lp = b_op(b, log_softmax_int, vT(x), vI(cd));
    if (tensor_same_size(x, t)) { /* probabilities */
        if (!dtype_is_float((dtype)t->dt))
            return FAIL("Expected floating point type for target with class probabilities, got %s",
                        dtype_rows[t->dt].gname);
        if (arg[4].i >= 0)
            return FAIL("ignore_index is not supported for floating point target");
        if (eps > 0)
            t = ADD(vT(MUL(vT(t), vF(1 - eps))), val_over(b, eps, classes, (dtype)x->dt));
        tp_tensor *p = MUL(vT(lp), vT(t));
        if (w)
            p = MUL(vT(p), vT(class_weights(b, w, x->ndim, cd)));
        if (red == RED_NONE)
            return RET(b_op(b, neg, vT(b_op(b, sum_dim_IntList, vT(p), LIST(cd)))));
        tp_tensor *s = b_op(b, neg, vT(b_op(b, sum, vT(p))));
        if (red == RED_MEAN)
            s = DIV(vT(s), x->ndim == 1 ? vI(1) : vI(positions(x, cd)));
        return RET(s);
    }
    tp_tensor *nl = b_op(b, nll_loss_nd, vT(lp), vT(t), arg[2], arg[3], arg[4]);
    if (!(eps > 0))
        return RET(nl);
    tp_tensor *sm = w ? MUL(vT(lp), vT(class_weights(b, w, x->ndim, cd))) : lp;
    tp_tensor *keep = b_op(b, ne_Tensor, vT(t), arg[4]);
    sm = where(b, keep, vT(b_op(b, neg, vT(b_op(b, sum_dim_IntList, vT(sm), LIST(cd))))), vI(0));
    if (red != RED_NONE)
        sm = b_op(b, sum, vT(sm));
    if (red == RED_MEAN) {
        tp_tensor *total;
        if (w) {
            tp_tensor *safe = where(b, keep, vT(t), vI(0));
            tp_tensor *tw = b_op(b, index_select, vT(w), vI(0), vT(b_op(b, reshape, vT(safe), LIST(-1))));
            total = b_op(b, sum, vT(where(b, b_op(b, reshape, vT(keep), LIST(-1)), vT(tw), vI(0))));
        } else
            total = b_op(b, sum, vT(keep));
        sm = DIV(vT(sm), vT(total));
    }
    return RET(ADD(vT(MUL(vT(nl), vF(1 - eps))), vT(MUL(vT(sm), val_over(b, eps, classes, (dtype)x->dt)))));
}

/* ---- dropout ---- */
static bool chance(bld *b, double p)
{
    return (p >= 0 && p <= 1) || FAIL("dropout probability has to be between 0 and 1, but got %g", p);
}
/* 1 where an element stays, with a probability of 1 - p. Numbers are drawn in the order in which a value of x's layout lies in
 * memory, whether its strides are numbers or symbols. */
static tp_tensor *stays(bld *b, tp_tensor *x, double p)
{
    symint order[TP_MAX_DIMS], back[TP_MAX_DIMS], size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    if (tensor_is_contiguous(x))
        return b_op(b, bernoulli_p, vT(x), vF(1 - p));
    shape_pointwise_strides(x->ndim, x->size, 1, &x, stride);
    for (int d = 0; d < x->ndim; d++)
        order[d] = d;
    for (int i = 1; i < x->ndim; i++) /* the largest stride first */
        for (int k = i; k && sym_lt(stride[order[k - 1]], stride[order[k]]); k--) {
            symint was = order[k];
            order[k] = order[k - 1];
            order[k - 1] = was;
        }
    for (int d = 0; d < x->ndim; d++) {
        back[order[d]] = d;
        size[d] = x->size[order[d]];
    }
    tp_tensor *like = b_op(b, empty_memory_format, vIs(size, x->ndim), vDT(x->dt));
    return b_op(b, permute, vT(b_op(b, bernoulli_p, vT(like), vF(1 - p))), vIs(back, x->ndim));
}
static double rounded_to(dtype dt, double v) /* a 16-bit float, back as a double */
{
    uint16_t h;
    double r;
    conv_of(dt, DT_f64)(1, &h, &v);
    conv_of(DT_f64, dt)(1, &r, &h);
    return r;
}
/* (output, mask): kept elements are scaled so that the mean stays. */
static bool dropped(bld *b, tp_tensor *x, double p, double scale, tp_tensor **r)
{
    r[1] = b_op(b, to_dtype, vT(stays(b, x, p)), vDT(DT_bool));
    r[0] = MUL(vT(MUL(vT(x), vT(r[1]))), vF(scale));
    return r[0] != NULL;
}
bool decomp_native_dropout(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(0), *r[2];
    double p = val_as_f(&arg[1]);
    bool train = val_b(&arg[2], true);
    if (!chance(b, p))
        return false;
    if (!train || p == 0 || sym_eq(x->numel, 0)) {
        r[0] = b_op(b, clone, vT(x));
        r[1] = b_op(b, ones, vIs(x->size, x->ndim), vDT(DT_bool));
    } else {
        if (!dropped(b, x, p, p == 1 ? 0 : 1 / (1 - p), r))
            return false;
    }
    return comp_ret_n(b, r, 2, out);
}
bool decomp_dropout(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *r[2];
    double p = val_as_f(&arg[1]);
    if (!chance(b, p))
        return false;
    if (!val_b(&arg[2], true) || p == 0 || sym_eq(T(0)->numel, 0))
        return RET(T(0));
    double scale = p == 1 ? 0 : T(0)->dt == DT_f64 ? 1 / (1 - p) : (double)(1 / (float)(1 - p));
    if (T(0)->dt == DT_f16 || T(0)->dt == DT_bf16) /* as the noise of PyTorch has it */
        scale = rounded_to((dtype)T(0)->dt, scale);
    return dropped(b, T(0), p, scale, r) && RET(r[0]);
}
static tp_tensor *kept(bld *b, tp_tensor *x, double p,
                       bool feature) /* 1 where an element (or a channel) stays */
{
    symint size[TP_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++)
        size[d] = feature && d >= 2 ? 1 : x->size[d];
    tp_tensor *like = feature ? b_op(b, empty_memory_format, vIs(size, x->ndim), vDT(x->dt)) : x;
    tp_tensor *k = stays(b, like, p);
    return b_op(b, to_dtype, vT(b_op(b, to_dtype, vT(k), vDT(DT_bool))), vDT(x->dt)); /* without a gradient */
}
static bool drop(bld *b, const tp_val *arg, tp_val *out, bool feature, bool alpha)
{
    tp_tensor *x = T(0);
    double p = val_as_f(&arg[1]);
    if (!chance(b, p))
        return false;
    if (!val_b(&arg[2], true) || p == 0 || sym_eq(x->numel, 0))
        return RET(x);
    if (feature && x->ndim < 2)
        return FAIL("Feature dropout requires at least 2 dimensions in the input");
    if (p == 1)
        return RET(MUL(vT(x), vI(0)));
    tp_tensor *k = kept(b, x, p, feature);
    if (!alpha)
        return RET(MUL(vT(x), vT(DIV(vT(k), vF(1 - p)))));
    const double al = -1.7580993408473766; /* SELU's limit */
    double a = 1 / sqrt((al * al * p + 1) * (1 - p));
    tp_tensor *gap = MUL(vT(b_op(b, rsub_Tensor, vT(k), vI(1))), vF(al));
    return RET(ADD(vT(MUL(vT(ADD(vT(MUL(vT(x), vT(k))), vT(gap))), vF(a))), vF(-al * a * p)));
}
bool decomp_feature_dropout(bld *b, const tp_val *arg, tp_val *out) { return drop(b, arg, out, true, false); }
bool decomp_alpha_dropout(bld *b, const tp_val *arg, tp_val *out) { return drop(b, arg, out, false, true); }
bool decomp_feature_alpha_dropout(bld *b, const tp_val *arg, tp_val *out)
{
    return drop(b, arg, out, true, true);
}
bool decomp_native_dropout_backward(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(MUL(vT(MUL(arg[0], arg[1])), arg[2]));
}

/* ---- shuffles ---- */
static bool shuffle(bld *b, const tp_val *arg, tp_val *out, bool up)
{
    tp_tensor *x = T(0);
    int64_t f = arg[1].i;
    int n = x->ndim - 3;
    symint mid[TP_MAX_DIMS], perm[TP_MAX_DIMS], end[TP_MAX_DIMS];
    const char *who = up ? "pixel_shuffle" : "pixel_unshuffle";
    if (n < 0)
        return FAIL("%s expects input to have at least 3 dimensions, but got input with %d dimension(s)", who,
                    x->ndim);
    if (f <= 0)
        return FAIL("%s expects a positive %s, but got %lld", who, up ? "upscale_factor" : "downscale_factor",
                    (long long)f);
    if (n + 5 > TP_MAX_DIMS)
        return FAIL("tensor has too many (>%d) dims", TP_MAX_DIMS);
    symint c = x->size[n], h = x->size[n + 1], w = x->size[n + 2];
    if (up && !sym_eq(sym_mod(c, f * f), 0))
        return FAIL("pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                    "upscale_factor, "
                    "but input.size(-3)=%lld is not divisible by %lld",
                    (long long)c, (long long)(f * f));
    if (!up && (!sym_eq(sym_mod(h, f), 0) || !sym_eq(sym_mod(w, f), 0)))
        return FAIL("pixel_unshuffle expects %s to be divisible by downscale_factor, but input.size(%d)=%lld "
                    "is not divisible "
                    "by %lld",
                    sym_eq(sym_mod(h, f), 0) ? "width" : "height", sym_eq(sym_mod(h, f), 0) ? -1 : -2,
                    (long long)(sym_eq(sym_mod(h, f), 0) ? w : h), (long long)f);
    for (int d = 0; d < n; d++) {
        mid[d] = end[d] = x->size[d];
        perm[d] = d;
    }
    if (up) {
        symint oc = sym_floordiv(c, f * f), m[5] = { oc, f, f, h, w };
        int p[5] = { 0, 3, 1, 4, 2 };
        for (int i = 0; i < 5; i++)
            mid[n + i] = m[i], perm[n + i] = n + p[i];
        end[n] = oc;
        end[n + 1] = sym_mul(h, f);
        end[n + 2] = sym_mul(w, f);
    } else {
        symint oh = sym_floordiv(h, f), ow = sym_floordiv(w, f), m[5] = { c, oh, f, ow, f };
        int p[5] = { 0, 2, 4, 1, 3 };
        for (int i = 0; i < 5; i++)
            mid[n + i] = m[i], perm[n + i] = n + p[i];
        end[n] = sym_mul(c, f * f);
        end[n + 1] = oh;
        end[n + 2] = ow;
    }
    tp_tensor *v = b_op(b, permute, vT(b_op(b, reshape, vT(x), vIs(mid, n + 5))), vIs(perm, n + 5));
    v = b_op(b, clone, vT(v), vMF(MF_contiguous));
    v = v ? b_op(b, view, vT(v), vIs(end, n + 3)) : NULL;
    return RET(in_format(b, v, tensor_suggest_memfmt(x)));
}
bool decomp_pixel_shuffle(bld *b, const tp_val *arg, tp_val *out) { return shuffle(b, arg, out, true); }
bool decomp_pixel_unshuffle(bld *b, const tp_val *arg, tp_val *out) { return shuffle(b, arg, out, false); }
bool decomp_channel_shuffle(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(0);
    symint g = arg[1].i, size[TP_MAX_DIMS];
    if (x->ndim <= 2 || x->ndim + 1 > TP_MAX_DIMS)
        return FAIL("channel_shuffle expects input with > 2 dims, but got input with %d dims", x->ndim);
    if (sym_le(g, 0) || !sym_eq(sym_mod(x->size[1], g), 0))
        return FAIL("Number of channels must be divisible by groups. Got %lld channels and %lld groups.",
                    (long long)x->size[1], (long long)g);
    size[0] = x->size[0];
    size[1] = g;
    size[2] = sym_floordiv(x->size[1], g);
    memcpy(size + 3, x->size + 2, sizeof(symint) * (size_t)(x->ndim - 2));
    tp_tensor *v = b_op(b, transpose_int, vT(b_op(b, reshape, vT(x), vIs(size, x->ndim + 1))), vI(1), vI(2));
    v = b_op(b, view, vT(b_op(b, clone, vT(v), vMF(MF_contiguous))), vIs(x->size, x->ndim));
    return RET(in_format(b, v, tensor_suggest_memfmt(x)));
}

/* ---- gated linear unit ---- */
bool decomp_glu(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = T(0);
    int d;
    if (x->ndim == 0)
        return FAIL("glu does not support 0-dimensional tensors");
    if (!dim_wrap(val_i(&arg[1], -1), x->ndim, &d, b->err))
        return false;
    if (!sym_eq(sym_mod(x->size[d], 2), 0))
        return FAIL("Halving dimension must be even, but dimension %d is size %lld", d,
                    (long long)x->size[d]);
    symint h = sym_floordiv(x->size[d], 2);
    tp_tensor *l = b_op(b, narrow, vT(x), vI(d), vI(0), vI(h)),
              *r = b_op(b, narrow, vT(x), vI(d), vI(h), vI(h));
    return RET(MUL(vT(l), vT(b_op(b, sigmoid, vT(r)))));
}

/* ---- attention ---- */
/* softmax over the last dimension where rows without any allowed key give zeros instead of NaN */
static tp_tensor *safe_softmax(bld *b, tp_tensor *s)
{
    tp_tensor *p = b_op(b, softmax_int, vT(s), vI(-1));
    tp_tensor *none = b_op(b, all_dim, vT(b_op(b, eq_Tensor, vT(s), vF(-INFINITY))), vI(-1), vB(true));
    return where(b, none, vI(0), vT(p));
}

/* Batches of matrices: all but the last two dimensions as one, or NULL. */
static tp_tensor *as_batch(bld *b, tp_tensor *x)
{
    symint size[3] = { 1, x->size[x->ndim - 2], x->size[x->ndim - 1] };
    for (int d = 0; d < x->ndim - 2; d++)
        size[0] = sym_mul(size[0], x->size[d]);
    return b_op(b, reshape, vT(x), vIs(size, 3));
}
static bool same_batch(const tp_tensor *x, const tp_tensor *y)
{
    bool same = x->ndim == y->ndim && x->ndim > 2;
    for (int d = 0; same && d < x->ndim - 2; d++)
        same = sym_eq(x->size[d], y->size[d]);
    return same;
}

/* Narrow floats where products of them are fast: factors stay as they are, the scores are float, and probabilities are rounded for their product. */
static tp_tensor *narrow_attention(bld *b, tp_tensor *q, tp_tensor *k, tp_tensor *v, tp_tensor *mask,
                                   double scale, double p, bool causal)
{
    symint size[TP_MAX_DIMS], L = q->size[q->ndim - 2], S = k->size[k->ndim - 2];
    int n = q->ndim;
    dtype dt = (dtype)q->dt;
    tp_tensor *r[2], *kt = b_op(b, transpose_int, vT(as_batch(b, k)), vI(-2), vI(-1));
    memcpy(size, q->size, sizeof *size * (size_t)n);
    size[n - 1] = S;
    tp_tensor *s = b_op(b, view, vT(b_op(b, _bmm_wide, vT(as_batch(b, q)), vT(kt))), vIs(size, n));
    s = MUL(vT(s), vF(scale));
    if (causal) {
        tp_tensor *tri = b_op(b, tril,
                              vT(b_op(b, ones, LIST(L, S), vDT(DT_bool), vNone, vDev(tensor_device(q)))));
        s = where(b, tri, vT(s), vF(-INFINITY));
    } else if (mask && mask->dt == DT_bool)
        s = where(b, mask, vT(s), vF(-INFINITY));
    else if (mask)
        s = ADD(vT(s), vT(b_op(b, to_dtype, vT(mask), vDT(DT_f32))));
    s = mask ? safe_softmax(b, s) : b_op(b, softmax_int, vT(s), vI(-1));
    if (p > 0) {
        if (!b_opn(b, native_dropout, r, 2, vT(s), vF(p), vB(true)))
            return NULL;
        s = r[0];
    }
    s = b_op(b, to_dtype, vT(s), vDT(dt));
    size[n - 1] = v->size[n - 1];
    return s ? b_op(b, view, vT(b_op(b, bmm, vT(as_batch(b, s)), vT(as_batch(b, v)))), vIs(size, n)) : NULL;
}

/* (query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa) */
bool decomp_attention(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *q = T(0), *k = T(1), *v = T(2), *mask = T(3), *r[2];
    double p = val_as_f(&arg[4]);
    bool causal = val_b(&arg[5], false), gqa = val_b(&arg[7], false);
    if (q->ndim < 2 || k->ndim < 2 || v->ndim < 2)
        return FAIL("scaled_dot_product_attention: Expected query, key, and value to all be  at least 2 "
                    "dimensional, but got "
                    "query.dim(): %d, key.dim(): %d and value.dim(): %d instead.",
                    q->ndim, k->ndim, v->ndim);
    if (q->dt != k->dt || q->dt != v->dt)
        return FAIL("Expected query, key, and value to have the same dtype, but got query.dtype: %s "
                    "key.dtype: %s and "
                    "value.dtype: %s instead.",
                    dtype_name((dtype)q->dt), dtype_name((dtype)k->dt), dtype_name((dtype)v->dt));
    if (mask && causal)
        return FAIL(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True");
    if (mask && mask->dt != DT_bool && mask->dt != q->dt)
        return FAIL(
            "Expected attn_mask dtype to be bool or to match query dtype, but got attn_mask.dtype: %s and "
            "query.dtype: %s instead.",
            dtype_name((dtype)mask->dt), dtype_name((dtype)q->dt));
    dtype dt = (dtype)q->dt;
    bool thin = dt == DT_f16 || dt == DT_bf16;
    symint e = q->size[q->ndim - 1];
    if (thin && !sym_is_expr(e)) {
        attention_args a = { .q = q, .k = k, .v = v, .mask = mask, .p = p, .causal = causal };
        a.scale = arg[6].kind != VAL_none ? val_as_f(&arg[6]) : 1 / sqrt((double)e);
        tp_tensor *one = attention_in_one(b, &a, gqa);
        if (one || b->failed)
            return RET(one);
    }
    if (gqa && q->ndim >= 3 && k->ndim >= 3) { /* every key head serves several query heads */
        symint nq = q->size[q->ndim - 3];
        tp_tensor **kv[2] = { &k, &v };
        for (int i = 0; i < 2; i++) {
            symint nk = (*kv[i])->size[(*kv[i])->ndim - 3];
            if (sym_eq(nk, 0) || !sym_eq(sym_mod(nq, nk), 0))
                return FAIL("Number of heads in key and value must divide the number of heads in query");
            if (!sym_eq(nk, nq))
                *kv[i] = b_op(b, repeat_interleave_self_int, vT(*kv[i]), vI(sym_floordiv(nq, nk)), vI(-3));
            if (!*kv[i])
                return false;
        }
    }
    bool fast = tensor_device(q).kind != DEV_cpu || (dt == DT_bf16 && p == 0 && ops_provided_bf16());
    if (thin && fast && same_batch(q, k) && same_batch(q, v) && !sym_is_expr(e)) {
        double by = arg[6].kind != VAL_none ? val_as_f(&arg[6]) : 1 / sqrt((double)e);
        return RET(narrow_attention(b, q, k, v, mask, by, p, causal));
    }
    if (thin) { /* scores of narrow floats are kept in float */
        tp_tensor **in[4] = { &q, &k, &v, &mask };
        for (int i = 0; i < 4; i++)
            if (*in[i] && (*in[i])->dt == dt && !(*in[i] = b_op(b, to_dtype, vT(*in[i]), vDT(DT_f32))))
                return false;
    }
    symint L = q->size[q->ndim - 2], S = k->size[k->ndim - 2];
    /* half of the factor on each side keeps narrow floats in range; keys that are many (a cache) are not written again for it */
    bool few = !thin && !sym_is_expr(L) && !sym_is_expr(S) && L <= S / 8;
    bool given = arg[6].kind != VAL_none, open = !given && sym_is_expr(e);
    double scale = given ? val_as_f(&arg[6]) : open ? 1 : 1 / sqrt((double)e), root = sqrt(fabs(scale));
    tp_val half = vF(few && !open ? fabs(scale) : root);
    if (open)
        half = vT(b_op(b, sqrt, vT(b_op(b, rsqrt, vT(b_op(b, scalar_tensor, vI(e), vDT(DT_f64)))))));
    tp_tensor *qs = MUL(vT(q), scale < 0 ? vF(-half.f) : half);
    /* keys are laid out before they are turned: the product reads them either way, a copy that turns is slower */
    tp_tensor *ks = b_op(b, contiguous, vT(few && !open ? k : MUL(vT(k), half)));
    ks = b_op(b, transpose_int, vT(ks), vI(-2), vI(-1));
    tp_tensor *s = b_op(b, matmul, vT(qs), vT(ks));
    if (causal) {
        tp_tensor *tri = b_op(b, tril, vT(b_op(b, ones, LIST(L, S), vDT(DT_bool))));
        s = where(b, tri, vT(s), vF(-INFINITY));
    } else if (mask && mask->dt == DT_bool)
        s = where(b, mask, vT(s), vF(-INFINITY));
    else if (mask)
        s = ADD(vT(s), vT(mask));
    s = mask ? safe_softmax(b, s) : b_op(b, softmax_int, vT(s), vI(-1));
    if (p > 0) {
        if (!b_opn(b, native_dropout, r, 2, vT(s), vF(p), vB(true)))
            return false;
        s = r[0];
    }
    tp_tensor *y = b_op(b, matmul, vT(s), vT(v));
    return RET(y && y->dt != dt ? b_op(b, to_dtype, vT(y), vDT(dt)) : y);
}
