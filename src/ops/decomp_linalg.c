/* decomp_linalg.c - composite matrix operators: matmul, linear, einsum and their relatives. */
#include "ops/decomp.h"
#include <ctype.h>

#define RET(t)    comp_ret(b, (t), out)
#define FAIL(...) err_set(b->err, ERR_runtime, __VA_ARGS__)
#define LIST(...) vIs(((symint[]){ __VA_ARGS__ }), (int)(sizeof((symint[]){ __VA_ARGS__ }) / sizeof(symint)))

static tp_tensor *reshape(bld *b, tp_tensor *t, const symint *size, int n)
{
    return t ? b_op(b, reshape, vT(t), vIs(size, n)) : NULL;
}
static tp_tensor *mt(bld *b, tp_tensor *t) { return b_op(b, transpose_int, vT(t), vI(-2), vI(-1)); }

/* ---- matmul ---- */
/* The leading dimensions of the larger factor are one run, so that it is a plain matrix product. */
static bool folds(const tp_tensor *t)
{
    if (sym_eq(t->numel, 0))
        return true;
    for (int i = 0; i < t->ndim - 2; i++)
        if (!sym_eq(t->stride[i], sym_mul(t->stride[i + 1], t->size[i + 1])))
            return false;
    return true;
}

static tp_tensor *folded(bld *b, tp_tensor *x, tp_tensor *y) /* x: 3 or more dimensions, y: 1 or 2 */
{
    symint size[TP_MAX_DIMS], rows = 1;
    int n = x->ndim - 1;
    for (int i = 0; i < n; i++)
        rows = sym_mul(rows, size[i] = x->size[i]);
    tp_tensor *f = b_op(b, reshape, vT(x), LIST(rows, x->size[n]));
    if (y->ndim == 1)
        return b_op(b, view, vT(b_op(b, mv, vT(f), vT(y))), vIs(size, n));
    size[n] = y->size[1];
    return b_op(b, view, vT(b_op(b, mm, vT(f), vT(y))), vIs(size, n + 1));
}

static tp_tensor *batched(bld *b, tp_tensor *x, tp_tensor *y)
{
    symint batch[TP_MAX_DIMS], sx[TP_MAX_DIMS], sy[TP_MAX_DIMS], so[TP_MAX_DIMS];
    int dx = x->ndim, dy = y->ndim, nb = 0, no;
    symint n = dx > 1 ? x->size[dx - 2] : 1, k = x->size[dx - 1];
    symint k2 = dy > 1 ? y->size[dy - 2] : y->size[0], p = dy > 1 ? y->size[dy - 1] : 1;
    if (!shape_broadcast(&nb, batch, MAX(dx - 2, 0), x->size, b->err) ||
        !shape_broadcast(&nb, batch, MAX(dy - 2, 0), y->size, b->err)) {
        b->failed = true;
        return NULL;
    }
    memcpy(sx, batch, sizeof batch);
    memcpy(sy, batch, sizeof batch);
    memcpy(so, batch, sizeof batch);
    sx[nb] = n;
    sx[nb + 1] = k;
    sy[nb] = k2;
    sy[nb + 1] = p;
    no = nb;
    if (dx > 1)
        so[no++] = n;
    if (dy > 1)
        so[no++] = p;
    symint count = shape_numel(nb, batch);
    if (dx == 1)
        x = b_op(b, unsqueeze, vT(x), vI(0));
    if (dy == 1)
        y = b_op(b, unsqueeze, vT(y), vI(1));
    x = b_op(b, expand, vT(x), vIs(sx, nb + 2));
    y = b_op(b, expand, vT(y), vIs(sy, nb + 2));
    x = b_op(b, reshape, vT(x), LIST(count, n, k));
    y = b_op(b, reshape, vT(y), LIST(count, k2, p));
    return b_op(b, view, vT(b_op(b, bmm, vT(x), vT(y))), vIs(so, no));
}

static tp_tensor *matmul(bld *b, tp_tensor *x, tp_tensor *y)
{
    if (!x || !y)
        return NULL;
    int dx = x->ndim, dy = y->ndim;
    if (dx == 0 || dy == 0) {
        b->failed = true;
        err_set(b->err, ERR_runtime,
                "both arguments to matmul need to be at least 1D, but they are %dD and %dD", dx, dy);
        return NULL;
    }
    if (dx == 1 && dy == 1)
        return b_op(b, dot, vT(x), vT(y));
    if (dx == 2 && dy == 1)
        return b_op(b, mv, vT(x), vT(y));
    if (dx == 1 && dy == 2)
        return b_op(b, squeeze_dim, vT(b_op(b, mm, vT(b_op(b, unsqueeze, vT(x), vI(0))), vT(y))), vI(0));
    if (dx == 2 && dy == 2)
        return b_op(b, mm, vT(x), vT(y));
    if (dx >= 3 && dy <= 2 && folds(x))
        return folded(b, x, y);
    if (dx == 1 && dy >= 3) { /* (y' x)' without the transpose of a vector */
        tp_tensor *t = mt(b, y);
        if (t && folds(t))
            return folded(b, t, x);
    }
    return batched(b, x, y);
}
bool decomp_matmul(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(matmul(b, val_t(&arg[0]), val_t(&arg[1])));
}

/* ---- linear ---- */
bool decomp_linear(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]), *w = val_t(&arg[1]), *bias = val_t(&arg[2]);
    if (w->ndim != 1 && w->ndim != 2)
        return FAIL("linear(): weight must be 1D or 2D, but got %dD", w->ndim);
    tp_tensor *wt = b_op(b, t, vT(w));
    if (bias && x->ndim == 2 && w->ndim == 2)
        return RET(b_op(b, addmm, vT(bias), vT(x), vT(wt)));
    if (bias && x->ndim >= 3 && w->ndim == 2) { /* a copy of x costs less than a product per batch */
        symint size[TP_MAX_DIMS], rows = 1;
        int n = x->ndim - 1;
        for (int i = 0; i < n; i++)
            rows = sym_mul(rows, size[i] = x->size[i]);
        size[n] = w->size[0];
        tp_tensor *f = b_op(b, reshape, vT(x), LIST(rows, x->size[n]));
        f = b_op(b, addmm, vT(bias), vT(f), vT(wt));
        return RET(b_op(b, view, vT(f), vIs(size, n + 1)));
    }
    tp_tensor *y = matmul(b, x, wt);
    return RET(bias ? b_op(b, add_Tensor, vT(y), vT(bias)) : y);
}

bool decomp_bilinear(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]), *y = val_t(&arg[1]), *w = val_t(&arg[2]), *bias = val_t(&arg[3]);
    symint size[TP_MAX_DIMS], rows = 1;
    size_text s, t;
    int n = x->ndim - 1;
    if (x->ndim != y->ndim)
        return FAIL("bilinear(): input dimensions do not match: got %d and %d", x->ndim, y->ndim);
    for (int i = 0; i < n; i++) {
        if (!sym_eq(x->size[i], y->size[i]))
            return FAIL("bilinear(): input batch dimensions do not match at dim %d: got %s and %s", i,
                        size_str(&s, x->size[i]), size_str(&t, y->size[i]));
        rows = sym_mul(rows, size[i] = x->size[i]);
    }
    if (w->ndim != 3 || !sym_eq(x->size[n], w->size[1]))
        return FAIL("bilinear(): input1 size does not match weight size: got %s but expected %s",
                    size_str(&s, x->size[n]), size_str(&t, w->ndim > 1 ? w->size[1] : 0));
    if (!sym_eq(y->size[n], w->size[2]))
        return FAIL("bilinear(): input2 size does not match weight size: got %s but expected %s",
                    size_str(&s, y->size[n]), size_str(&t, w->size[2]));
    if (bias && !sym_eq(bias->size[0], w->size[0]))
        return FAIL("bilinear(): bias size does not match weight size: got %s but expected %s",
                    size_str(&s, bias->size[0]), size_str(&t, w->size[0]));
    symint o = w->size[0], p = w->size[1], q = w->size[2];
    tp_tensor *xf = b_op(b, reshape, vT(x), LIST(rows, p)), *yf = b_op(b, reshape, vT(y), LIST(rows, q, 1));
    tp_tensor *wp = b_op(b, reshape, vT(b_op(b, permute, vT(w), LIST(1, 0, 2))), LIST(p, sym_mul(o, q)));
    tp_tensor *m = b_op(b, view, vT(b_op(b, mm, vT(xf), vT(wp))), LIST(rows, o, q));
    size[n] = o;
    tp_tensor *r = reshape(b, b_op(b, bmm, vT(m), vT(yf)), size, n + 1);
    return RET(bias ? b_op(b, add_Tensor, vT(r), vT(bias)) : r);
}

/* ---- small ones ---- */
bool decomp_vdot(bld *b, const tp_val *arg, tp_val *out)
{
    bool z = dtype_is_complex((dtype)val_t(&arg[0])->dt);
    return RET(b_op(b, dot, z ? vT(b_op(b, conj_physical, arg[0])) : arg[0], arg[1]));
}
bool decomp_outer(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]), *y = val_t(&arg[1]);
    if (x->ndim != 1 || y->ndim != 1)
        return FAIL("outer: Expected 1-D argument %s, but got %d-D", x->ndim != 1 ? "self" : "vec2",
                    x->ndim != 1 ? x->ndim : y->ndim);
    return RET(b_op(b, mul_Tensor, vT(b_op(b, unsqueeze, vT(x), vI(1))), vT(y)));
}

/* beta self + alpha t, where beta 0 drops self altogether */
static tp_tensor *blend(bld *b, tp_tensor *self, const tp_val *beta, tp_tensor *t, const tp_val *alpha)
{
    if (!val_is(alpha, 1))
        t = b_op(b, mul_Tensor, vT(t), *alpha);
    if (val_is(beta, 0))
        return t;
    if (!val_is(beta, 1))
        self = b_op(b, mul_Tensor, vT(self), *beta);
    return b_op(b, add_Tensor, vT(self), vT(t));
}
bool decomp_addr(bld *b, const tp_val *arg, tp_val *out)
{
    tp_val o = vNone;
    if (val_t(&arg[1])->ndim != 1 || val_t(&arg[2])->ndim != 1)
        return FAIL("addr: Expected 1-D argument vec1, but got %d-D", val_t(&arg[1])->ndim);
    for (int i = 3; i < 5; i++)
        if (arg[i].kind == VAL_float && dtype_is_exact((dtype)val_t(&arg[0])->dt))
            return FAIL("For integral input tensors, argument %s must not be a floating point number.",
                        i == 3 ? "beta" : "alpha");
    if (!decomp_outer(b, arg + 1, &o))
        return false;
    tp_tensor *o2 = bld_keep(b, o.t), *r = blend(b, val_t(&arg[0]), &arg[3], o2, &arg[4]);
    bool truth = val_t(&arg[0])->dt == DT_bool && o2->dt == DT_bool;
    return RET(truth && r && r->dt != DT_bool ? b_op(b, ne_Tensor, vT(r), vI(0)) : r);
}
bool decomp_addbmm(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[1]), *y = val_t(&arg[2]), *p;
    size_text s, t;
    if (x->ndim != 3 || y->ndim != 3)
        return FAIL("batch%d must be a 3D tensor", x->ndim != 3 ? 1 : 2);
    if (x->dt != y->dt)
        return FAIL("batch1 and batch2 must have the same dtype, but got %s and %s", dtype_rows[x->dt].gname,
                    dtype_rows[y->dt].gname);
    if (!sym_eq(x->size[0], y->size[0]))
        return FAIL("batch1 and batch2 must have same number of batches, got %s and %s",
                    size_str(&s, x->size[0]), size_str(&t, y->size[0]));
    if (!sym_eq(x->size[2], y->size[1]))
        return FAIL("Incompatible matrix sizes for bmm (%s and %s)", sizes_str(&s, 2, x->size + 1),
                    sizes_str(&t, 2, y->size + 1));
    /* the sum of the products is one product of the batches laid side by side */
    symint k = sym_mul(x->size[0], x->size[2]);
    p = b_op(b, mm,
             vT(b_op(b, reshape, vT(b_op(b, transpose_int, vT(x), vI(0), vI(1))), LIST(x->size[1], k))),
             vT(b_op(b, reshape, vT(y), LIST(k, y->size[2]))));
    tp_val beta = arg[3], alpha = arg[4];
    if (!dtype_has_grad((dtype)val_t(&arg[0])->dt)) { /* whole factors for whole numbers */
        beta = vI(val_as_i(&arg[3]));
        alpha = vI(val_as_i(&arg[4]));
    }
    return RET(blend(b, val_t(&arg[0]), &beta, p, &alpha));
}
bool decomp_trace(bld *b, const tp_val *arg, tp_val *out)
{
    if (val_t(&arg[0])->ndim != 2)
        return FAIL("trace: expected a matrix, but got tensor with dim %d", val_t(&arg[0])->ndim);
    return RET(b_op(b, sum, vT(b_op(b, diagonal, arg[0]))));
}

static tp_tensor *chain(bld *b, tp_tensor *const *m, int n)
{
    tp_tensor *r = m[0];
    for (int i = 1; i < n; i++)
        r = matmul(b, r, m[i]);
    return r;
}
bool decomp_chain_matmul(bld *b, const tp_val *arg, tp_val *out)
{
    if (arg[0].n == 0)
        return FAIL("chain_matmul(): Expected one or more matrices");
    for (int i = 0; i < arg[0].n; i++)
        if (arg[0].ts[i]->ndim != 2)
            return FAIL("Tensor dimension is %d, expected 2 instead.", arg[0].ts[i]->ndim);
    return RET(arg[0].n == 1 ? b_op(b, clone, vT(arg[0].ts[0])) : chain(b, arg[0].ts, arg[0].n));
}
bool decomp_multi_dot(bld *b, const tp_val *arg, tp_val *out)
{
    const tp_val *v = &arg[0];
    if (v->n < 2)
        return FAIL("multi_dot(): expected at least 2 tensors but got %d", v->n);
    for (int i = 0; i < v->n; i++) {
        bool end = i == 0 || i == v->n - 1;
        if (v->ts[i]->ndim != 2 && !(end && v->ts[i]->ndim == 1))
            return FAIL("multi_dot(): tensor %d must be %s but got %dD", i, end ? "1D or 2D" : "2D",
                        v->ts[i]->ndim);
    }
    return RET(chain(b, v->ts, v->n));
}

bool decomp_kron(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]), *y = val_t(&arg[1]);
    int n = MAX(x->ndim, y->ndim);
    symint sx[TP_MAX_DIMS], sy[TP_MAX_DIMS], so[TP_MAX_DIMS];
    if (2 * n > TP_MAX_DIMS)
        return FAIL("tensor has too many (>%d) dims", TP_MAX_DIMS);
    for (int i = 0; i < n; i++) {
        int ix = i - (n - x->ndim), iy = i - (n - y->ndim);
        sx[2 * i] = ix >= 0 ? x->size[ix] : 1;
        sx[2 * i + 1] = 1;
        sy[2 * i] = 1;
        sy[2 * i + 1] = iy >= 0 ? y->size[iy] : 1;
        so[i] = sym_mul(sx[2 * i], sy[2 * i + 1]);
    }
    tp_tensor *p = b_op(b, mul_Tensor, vT(reshape(b, x, sx, 2 * n)), vT(reshape(b, y, sy, 2 * n)));
    return RET(reshape(b, p, so, n));
}

/* dim_wrap lets 0 and -1 name the missing dimension of a scalar; here there must be a real one. */
static bool has_dim(bld *b, const tp_tensor *t, int64_t d)
{
    return t->ndim || err_set(b->err, ERR_index, "Dimension specified as %lld but tensor has no dimensions",
                              (long long)d);
}

static bool cross(bld *b, tp_tensor *x, tp_tensor *y, int d, tp_val *out)
{
    symint size[TP_MAX_DIMS];
    int n = x->ndim;
    if (n == 0)
        return err_set(b->err, ERR_index, "Dimension specified as -1 but tensor has no dimensions");
    if (!sym_eq(x->size[d], 3) || !sym_eq(y->size[d], 3))
        return FAIL("linalg.cross: inputs dimension %d must have length 3. Got %lld and %lld", d,
                    (long long)x->size[d], (long long)y->size[d]);
    memcpy(size, x->size, sizeof(symint) * (size_t)n);
    if (!shape_broadcast(&n, size, y->ndim, y->size, b->err))
        return false;
    tp_tensor *x1 = b_op(b, roll, vT(x), LIST(-1), LIST(d)), *x2 = b_op(b, roll, vT(x), LIST(-2), LIST(d));
    tp_tensor *y1 = b_op(b, roll, vT(y), LIST(-1), LIST(d)), *y2 = b_op(b, roll, vT(y), LIST(-2), LIST(d));
    tp_tensor *r = b_op(b, sub_Tensor, vT(b_op(b, mul_Tensor, vT(x1), vT(y2))),
                        vT(b_op(b, mul_Tensor, vT(x2), vT(y1))));
    return RET(b_op(b, contiguous, vT(r)));
}
bool decomp_linalg_cross(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]), *y = val_t(&arg[1]);
    int d;
    if (x->ndim != y->ndim)
        return FAIL("linalg.cross: inputs must have the same number of dimensions.");
    return has_dim(b, x, val_i(&arg[2], -1)) && dim_wrap(val_i(&arg[2], -1), x->ndim, &d, b->err) &&
           cross(b, x, y, d, out);
}
bool decomp_cross(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]), *y = val_t(&arg[1]);
    int d = -1;
    if (x->ndim != y->ndim)
        return FAIL("linalg.cross: inputs must have the same number of dimensions.");
    if (arg[2].kind != VAL_none)
        return has_dim(b, x, arg[2].i) && dim_wrap(arg[2].i, x->ndim, &d, b->err) && cross(b, x, y, d, out);
    for (int i = 0; i < x->ndim && d < 0; i++)
        if (sym_eq(x->size[i], 3))
            d = i;
    if (d < 0)
        return FAIL("no dimension of size 3 in input");
    return cross(b, x, y, d, out);
}

bool decomp_vecdot(bld *b, const tp_val *arg, tp_val *out)
{
    bool z = dtype_is_complex((dtype)val_t(&arg[0])->dt);
    tp_tensor *p = b_op(b, mul_Tensor, z ? vT(b_op(b, conj_physical, arg[0])) : arg[0], arg[1]);
    return RET(b_op(b, sum_dim_IntList, vT(p), LIST(val_i(&arg[2], -1))));
}

static tp_tensor *eye_like(bld *b, tp_tensor *a)
{
    tp_tensor *one = b_op(b, ones, vIs(a->size + a->ndim - 1, 1), vDT(a->dt));
    tp_tensor *e = b_op(b, diag_embed, vT(one));
    return b_op(b, contiguous, vT(b_op(b, expand, vT(e), vIs(a->size, a->ndim))));
}
bool decomp_matrix_power(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *a = val_t(&arg[0]), *r = NULL;
    int64_t n = arg[1].i;
    if (a->ndim < 2)
        return FAIL("linalg.matrix_power: The input tensor A must have at least 2 dimensions.");
    if (!sym_eq(a->size[a->ndim - 1], a->size[a->ndim - 2]))
        return FAIL(
            "linalg.matrix_power: A must be batches of square matrices, but they are %lld by %lld matrices",
            (long long)a->size[a->ndim - 2], (long long)a->size[a->ndim - 1]);
    if (n == 0) /* a constant, but still a function of a */
        return RET(b_op(b, add_Tensor, vT(b_op(b, mul_Tensor, vT(b_op(b, zeros_like, vT(a))), vT(a))),
                        vT(eye_like(b, a))));
    if (n < 0) {
        tp_tensor *inv[1];
        b_opn(b, linalg_inv_ex, inv, 1, vT(a), vB(true));
        a = inv[0];
        n = -n;
    }
    if (n == 1)
        return RET(b_op(b, clone, vT(a)));
    for (tp_tensor *p = a; n; n >>= 1) {
        if (n & 1)
            r = r ? matmul(b, r, p) : p;
        if (n > 1)
            p = matmul(b, p, p);
    }
    return RET(r);
}

/* ---- contraction of two tensors over shared dimensions ---- */
bool decomp_tensordot(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]), *y = val_t(&arg[1]);
    const tp_val *dx = &arg[2], *dy = &arg[3];
    symint px[TP_MAX_DIMS], py[TP_MAX_DIMS], size[TP_MAX_DIMS], k = 1, m = 1, n = 1;
    uint32_t mx = 0, my = 0;
    int no = 0, a = 0, c = 0;
    size_text s, t;
    if (x->dt != y->dt)
        return FAIL("both inputs should have same dtype");
    if (dx->n != dy->n)
        return FAIL("both dimension lists should have same length");
    tp_tensor *sx = x, *sy = y;
    if (dx->n && (x->ndim == 0 || y->ndim == 0))
        return err_set(b->err, ERR_index, "Dimension specified as 0 but tensor has no dimensions");
    for (int i = 0; i < dx->n; i++) {
        int p, q;
        if (!has_dim(b, x, dx->ints[i]) || !has_dim(b, y, dy->ints[i]) ||
            !dim_wrap(dx->ints[i], x->ndim, &p, b->err) || !dim_wrap(dy->ints[i], y->ndim, &q, b->err))
            return false;
        if ((mx >> p & 1) || (my >> q & 1))
            return FAIL("dim %d appears multiple times in the list of dims", mx >> p & 1 ? p : q);
        mx |= 1u << p;
        my |= 1u << q;
        if (!sym_eq(x->size[p], y->size[q])) { /* a size of 1 stretches: sum the other side first */
            if (sym_eq(x->size[p], 1))
                sy = b_op(b, sum_dim_IntList, vT(sy), LIST(q), vB(true), vDT(y->dt));
            else if (sym_eq(y->size[q], 1))
                sx = b_op(b, sum_dim_IntList, vT(sx), LIST(p), vB(true), vDT(x->dt));
            else
                return FAIL("contracted dimensions need to match, but first has size %s in dim %lld and "
                            "second has size "
                            "%s in dim %lld",
                            size_str(&s, x->size[p]), (long long)dx->ints[i], size_str(&t, y->size[q]),
                            (long long)dy->ints[i]);
        }
        if (!sx || !sy)
            return false;
        k = sym_mul(k, sx->size[p]);
    }
    for (int d = 0; d < x->ndim; d++)
        if (!(mx >> d & 1)) {
            px[a++] = d;
            m = sym_mul(m, x->size[d]);
            size[no++] = x->size[d];
        }
    for (int i = 0; i < dx->n; i++) {
        int p = 0, q = 0;
        dim_wrap(dx->ints[i], x->ndim, &p, b->err);
        dim_wrap(dy->ints[i], y->ndim, &q, b->err);
        px[a++] = p;
        py[c++] = q;
    }
    for (int d = 0; d < y->ndim; d++)
        if (!(my >> d & 1)) {
            py[c++] = d;
            n = sym_mul(n, y->size[d]);
            size[no++] = y->size[d];
        }
    sx = b_op(b, reshape, vT(b_op(b, permute, vT(sx), vIs(px, a))), LIST(m, k));
    sy = b_op(b, reshape, vT(b_op(b, permute, vT(sy), vIs(py, c))), LIST(k, n));
    return RET(reshape(b, b_op(b, mm, vT(sx), vT(sy)), size, no));
}

bool decomp_inner(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *x = val_t(&arg[0]), *y = val_t(&arg[1]);
    size_text s, t;
    if (x->dt != y->dt)
        return FAIL("inner() requires the tensors to have the same dtype, but got %s and %s",
                    dtype_rows[x->dt].gname, dtype_rows[y->dt].gname);
    if (x->ndim == 0 || y->ndim == 0)
        return RET(b_op(b, mul_Tensor, vT(x), vT(y)));
    if (!sym_eq(x->size[x->ndim - 1], y->size[y->ndim - 1]))
        return FAIL("inner() the last dimension must match on both input tensors but got shapes %s and %s",
                    sizes_str(&s, x->ndim, x->size), sizes_str(&t, y->ndim, y->size));
    return RET(b_op(b, tensordot, vT(x), vT(y), LIST(-1), LIST(-1)));
}

/* ---- einsum ---- */
enum { LABELS = 52, ELL = 52, SLOTS = 53 };

static int label_of(char c)
{
    return isupper((unsigned char)c) ? c - 'A' : islower((unsigned char)c) ? c - 'a' + 26 : -1;
}
static char name_of(int l) { return (char)(l < 26 ? 'A' + l : 'a' + l - 26); }

/* One operand's labels, ellipsis as ELL. */
typedef struct term {
    int n;
    int8_t label[TP_MAX_DIMS + 2];
} term;

static bool read_term(bld *b, const char **p, term *t, int which, const char *stop)
{
    bool seen = false;
    t->n = 0;
    for (; **p && !strchr(stop, **p); (*p)++) {
        char ch = **p;
        if (ch == ' ')
            continue;
        if (ch == '-' && (*p)[1] == '>')
            return true;
        if (t->n > TP_MAX_DIMS)
            return FAIL(
                "einsum(): the number of subscripts in the equation is more than the number of dimensions");
        if (ch == '.') {
            if (seen)
                return FAIL("einsum(): found '.' for operand %d for which an ellipsis was already found",
                            which);
            if ((*p)[1] != '.' || (*p)[2] != '.')
                return FAIL("einsum(): found '.' for operand %d that is not part of any ellipsis", which);
            *p += 2;
            seen = true;
            t->label[t->n++] = ELL;
            continue;
        }
        int l = label_of(ch);
        if (l < 0)
            return FAIL(
                "einsum(): invalid subscript given at index %d in the equation string, subscripts must be in "
                "[a-zA-Z]",
                which);
        t->label[t->n++] = (int8_t)l;
    }
    return true;
}

/* a and b hold the same dimensions (size 1 where absent); sums over `gone`, which keep size 1. */
static tp_tensor *sum_product(bld *b, tp_tensor *x, tp_tensor *y, uint64_t gone)
{
    symint lro[TP_MAX_DIMS], lo[TP_MAX_DIMS], ro[TP_MAX_DIMS], sm[TP_MAX_DIMS];
    symint px[TP_MAX_DIMS], py[TP_MAX_DIMS], so[TP_MAX_DIMS], back[TP_MAX_DIMS];
    symint nb = 1, nl = 1, nr = 1, ns = 1;
    int cb = 0, cl = 0, cr = 0, cs = 0, n = x->ndim, k = 0;
    for (int d = 0; d < n; d++) {
        bool sx = !sym_eq(x->size[d], 1), sy = !sym_eq(y->size[d], 1);
        if (gone >> d & 1) {
            if (sx && sy) {
                if (!sym_eq(x->size[d], y->size[d])) {
                    b->failed = true;
                    err_set(b->err, ERR_runtime, "non-broadcast dimensions must match");
                    return NULL;
                }
                sm[cs++] = d;
                ns = sym_mul(ns, x->size[d]);
            } else if (sx)
                x = b_op(b, sum_dim_IntList, vT(x), LIST(d), vB(true));
            else if (sy)
                y = b_op(b, sum_dim_IntList, vT(y), LIST(d), vB(true));
        } else if (sx == sy) { /* both, or neither: a dimension of size 1 decides nothing about the order */
            lro[cb++] = d;
            nb = sym_mul(nb, x->size[d]);
        } else if (sx) {
            lo[cl++] = d;
            nl = sym_mul(nl, x->size[d]);
        } else {
            ro[cr++] = d;
            nr = sym_mul(nr, y->size[d]);
        }
        if (!x || !y)
            return NULL;
    }
    if (b->failed)
        return NULL;
    if (!cs) /* nothing to contract */
        return b_op(b, mul_Tensor, vT(x), vT(y));
    if (cl && cr && lo[0] > ro[0]) /* the order of the result's dimensions says which side comes first */
        return sum_product(b, y, x, gone);
    /* results come as [lro, lo, ro, sum (1)] and go back in place */
    for (int i = 0; i < cb; i++, k++)
        px[k] = py[k] = lro[i], so[k] = x->size[lro[i]], back[lro[i]] = k;
    for (int i = 0; i < cl; i++, k++)
        px[k] = lo[i], so[k] = x->size[lo[i]], back[lo[i]] = k;
    for (int i = 0; i < cr; i++, k++)
        so[k] = y->size[ro[i]], back[ro[i]] = k;
    int j = cb + cl, q = cb;
    for (int i = 0; i < cs; i++)
        px[j++] = sm[i], py[q++] = sm[i];
    for (int i = 0; i < cr; i++)
        px[j++] = ro[i], py[q++] = ro[i];
    for (int i = 0; i < cl; i++)
        py[q++] = lo[i];
    for (int d = 0; d < n; d++) /* summed dimensions, shared or not, stay with size 1 */
        if (gone >> d & 1) {
            bool shared = false;
            for (int i = 0; i < cs; i++)
                shared |= sm[i] == d;
            if (!shared)
                px[j++] = d, py[q++] = d;
            so[k] = 1;
            back[d] = k++;
        }
    x = b_op(b, reshape, vT(b_op(b, permute, vT(x), vIs(px, n))), LIST(nb, nl, ns));
    y = b_op(b, reshape, vT(b_op(b, permute, vT(y), vIs(py, n))), LIST(nb, ns, nr));
    tp_tensor *r = reshape(b, b_op(b, bmm, vT(x), vT(y)), so, n);
    return r ? b_op(b, permute, vT(r), vIs(back, n)) : NULL;
}

/* An equation of einsum over n operands. Labels have positions in a common order of dimensions: those of the result first. */
typedef struct einsum {
    int n, nd, nout;  /* operands; dimensions in the common order; those of the result */
    int count[SLOTS]; /* how often each label occurs */
    int place[SLOTS]; /* its position in the common order, or -1 */
    int ell;          /* dimensions under the ellipsis */
    bool has_ell;
    term *t;
    tp_tensor *op[TP_MAX_DIMS * 4]; /* operands with all dimensions, in the common order */
    symint size[TP_MAX_DIMS];
    int last[TP_MAX_DIMS]; /* the last operand that has the dimension */
} einsum;

static bool einsum_read(bld *b, einsum *e, const char **text, const tp_val *v)
{
    const char *p = *text;
    for (int i = 0; i < v->n; i++) {
        if (!read_term(b, &p, &e->t[i], i, ","))
            return false;
        bool more = *p == ',';
        if (more)
            p++;
        if (more != (i + 1 < v->n)) {
            return FAIL("einsum(): %s operands were provided than specified in the equation",
                        more ? "fewer" : "more");
        }
        bool dots = false;
        int labels = 0;
        for (int k = 0; k < e->t[i].n; k++) {
            if (e->t[i].label[k] == ELL)
                dots = true;
            else
                labels++, e->count[e->t[i].label[k]]++;
        }
        if (labels > v->ts[i]->ndim || (!dots && labels != v->ts[i]->ndim)) {
            return FAIL(
                "einsum(): the number of subscripts in the equation (%d) %s the number of dimensions (%d) "
                "for operand "
                "%d%s",
                labels, dots ? "is more than" : "does not match", v->ts[i]->ndim, i,
                dots ? "" : " and no ellipsis was given");
        }
        if (dots)
            e->ell = MAX(e->ell, v->ts[i]->ndim - labels);
        e->has_ell |= dots;
    }
    *text = p;
    return true;
}
static bool einsum_result(bld *b, einsum *e, const char *p)
{
    bool is_out[SLOTS] = { false };
    term o = { 0 };
    bool arrow = p[0] == '-' && p[1] == '>';
    if (arrow) {
        p += 2;
        if (!read_term(b, &p, &o, e->n, ""))
            return false;
    } else { /* ellipsis first, then the labels that occur once, in order */
        if (e->has_ell)
            o.label[o.n++] = ELL;
        for (int l = 0; l < LABELS; l++)
            if (e->count[l] == 1)
                o.label[o.n++] = (int8_t)l;
    }
    for (int l = 0; l < SLOTS; l++)
        e->place[l] = -1;
    for (int k = 0; k < o.n; k++) {
        int l = o.label[k];
        if (is_out[l]) {
            return FAIL(l == ELL ? "einsum(): found '.' for output but an ellipsis (...) was already found"
                                 : "einsum(): output subscript %c appears more than once in the output",
                        name_of(l));
        }
        if (l != ELL && !e->count[l]) {
            return FAIL("einsum(): output subscript %c does not appear in the equation for any input operand",
                        name_of(l));
        }
        is_out[l] = true;
        e->place[l] = e->nd;
        e->nd += l == ELL ? e->ell : 1;
    }
    e->nout = e->nd;
    if (!is_out[ELL]) {
        e->place[ELL] = e->nd;
        e->nd += e->ell;
    }
    for (int l = 0; l < LABELS; l++)
        if (e->count[l] && e->place[l] < 0)
            e->place[l] = e->nd++;
    if (e->nd > TP_MAX_DIMS) {
        return FAIL("tensor has too many (>%d) dims", TP_MAX_DIMS);
    }
    return true;
}
/* The label of dimension d of the operands, or ELL. */
static int label_at(const einsum *e, int d)
{
    int l = 0;
    while (l < LABELS && !(e->count[l] && e->place[l] == d))
        l++;
    return l < LABELS ? l : ELL;
}
static bool einsum_operand(bld *b, einsum *e, int i, tp_tensor *x)
{
    int at[SLOTS], dim = 0, labels = 0;
    symint perm[TP_MAX_DIMS];
    for (int k = 0; k < e->t[i].n; k++)
        labels += e->t[i].label[k] != ELL;
    int mine = x->ndim - labels; /* dimensions under this operand's ellipsis */
    for (int d = 0; d < e->nd; d++)
        perm[d] = -1;
    for (int l = 0; l < SLOTS; l++)
        at[l] = -1;
    for (int k = 0; k < e->t[i].n; k++) {
        int l = e->t[i].label[k];
        if (l == ELL) {
            for (int j = 0; j < mine; j++)
                perm[e->place[ELL] + e->ell - mine + j] = dim++;
            continue;
        }
        if (at[l] < 0) {
            at[l] = dim;
            perm[e->place[l]] = dim++;
            continue;
        }
        size_text s1, s2; /* repeated: take the diagonal, which moves to the end; move it back */
        if (!sym_eq(x->size[dim], x->size[at[l]])) {
            return FAIL(
                "einsum(): subscript %c is repeated for operand %d but the sizes don't match, %s != %s",
                name_of(l), i, size_str(&s1, x->size[dim]), size_str(&s2, x->size[at[l]]));
        }
        x = b_op(b, diagonal, vT(x), vI(0), vI(at[l]), vI(dim));
        x = b_op(b, movedim_int, vT(x), vI(-1), vI(at[l]));
        if (!x)
            return false;
    }
    for (int d = 0; d < e->nd; d++)
        if (perm[d] < 0) {
            x = b_op(b, unsqueeze, vT(x), vI(x->ndim));
            if (!x)
                return false;
            perm[d] = x->ndim - 1;
        }
    e->op[i] = b_op(b, permute, vT(x), vIs(perm, e->nd));
    if (!e->op[i])
        return false;
    for (int d = 0; d < e->nd; d++)
        if (!sym_eq(e->op[i]->size[d], 1)) {
            size_text s1, s2;
            if (!sym_eq(e->size[d], 1) && !sym_eq(e->size[d], e->op[i]->size[d])) {
                int l = label_at(e, d);
                return l == ELL
                           ? FAIL(
                                 "einsum(): dimension %d covered by ellipsis in operand %d has size %s which "
                                 "does not broadcast with previously seen ellipsis with size %s for the "
                                 "respective dimension",
                                 d - e->place[ELL], i, size_str(&s1, e->op[i]->size[d]),
                                 size_str(&s2, e->size[d]))
                           : FAIL(
                                 "einsum(): subscript %c has size %s for operand %d which does not broadcast "
                                 "with previously seen size %s",
                                 name_of(l), size_str(&s1, e->op[i]->size[d]), i, size_str(&s2, e->size[d]));
            }
            e->size[d] = e->op[i]->size[d];
            e->last[d] = i;
        }
    return true;
}
static tp_tensor *einsum_sum(bld *b, einsum *e)
{
    tp_tensor *r = e->op[0];
    for (int i = 0; i < e->n && r; i++) {
        uint64_t gone = 0;
        if (i == 0 && e->n > 1)
            for (int d = e->nout; d < e->nd;
                 d++) { /* a dimension that only the first operand has is summed at once */
                if (e->last[d] == 0 && !sym_eq(r->size[d], 1))
                    r = b_op(b, sum_dim_IntList, vT(r), LIST(d), vB(true));
                if (!r)
                    return NULL;
            }
        for (int d = e->nout; d < e->nd; d++)
            if (i && e->last[d] == i)
                gone |= (uint64_t)1 << d;
        if (i)
            r = sum_product(b, r, e->op[i], gone);
    }
    if (!r)
        return NULL;
    if (e->n == 1 && e->nd > e->nout) {
        symint dims[TP_MAX_DIMS];
        for (int d = e->nout; d < e->nd; d++)
            dims[d - e->nout] = d;
        r = b_op(b, sum_dim_IntList, vT(r), vIs(dims, e->nd - e->nout));
    } else
        for (int d = e->nd - 1; d >= e->nout && r; d--)
            r = b_op(b, squeeze_dim, vT(r), vI(d));
    return r;
}
bool decomp_einsum(bld *b, const tp_val *arg, tp_val *out)
{
    const char *p = arg[0].s;
    const tp_val *v = &arg[1];
    einsum e = { .n = v->n };
    if (v->n == 0)
        return FAIL("einsum(): must provide at least one operand");
    if (v->n > (int)COUNT(e.op))
        return FAIL("einsum(): too many operands");
    e.t = mem_zalloc(sizeof *e.t * (size_t)v->n);
    bool ok = einsum_read(b, &e, &p, v) && einsum_result(b, &e, p);
    for (int d = 0; ok && d < e.nd; d++)
        e.size[d] = 1;
    for (int i = 0; ok && i < v->n; i++)
        ok = einsum_operand(b, &e, i, v->ts[i]);
    tp_tensor *r = ok ? einsum_sum(b, &e) : NULL;
    ok = r && RET(r);
    free(e.t);
    return ok;
}
