/* decomp_shape.c - composite shape operators, each written as simpler rows. */
#include "ops/decomp.h"

#define T0        val_t(&arg[0])
#define RET(t)    comp_ret(b, (t), out)
#define FAIL(...) err_set(b->err, ERR_runtime, __VA_ARGS__)

/* ---- reshape and its family ---- */
static tp_tensor *reshape(bld *b, tp_tensor *t, const symint *size, int n)
{
    return b_op(b, reshape, vT(t), vIs(size, n));
}

bool decomp_reshape(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = T0;
    int n = arg[1].n;
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    if (n > TP_MAX_DIMS)
        return FAIL("tensor has too many (>%d) dims", TP_MAX_DIMS);
    if (!view_infer(t, n, arg[1].ints, size, b->err))
        return false;
    if (view_strides(t, n, size, stride))
        return RET(b_op(b, view, vT(t), vIs(size, n)));
    tp_tensor *c = b_op(b, clone, vT(t), vMF(MF_contiguous));
    return RET(b_op(b, view, vT(c), vIs(size, n)));
}

bool decomp_view_as(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(b_op(b, view, arg[0], vIs(arg[1].t->size, arg[1].t->ndim)));
}
bool decomp_reshape_as(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(reshape(b, T0, arg[1].t->size, arg[1].t->ndim));
}
bool decomp_expand_as(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(b_op(b, expand, arg[0], vIs(arg[1].t->size, arg[1].t->ndim)));
}
bool decomp_broadcast_to(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(b_op(b, expand, arg[0], arg[1]));
}

bool decomp_contiguous(bld *b, const tp_val *arg, tp_val *out)
{
    memfmt f = (memfmt)val_i(&arg[1], MF_contiguous);
    if (f == MF_preserve)
        return FAIL("preserve memory format is unsupported by the contiguous operator");
    if (tensor_is_contiguous_as(T0, f))
        return RET(T0);
    return RET(b_op(b, clone, arg[0], vMF(f)));
}

bool decomp_flatten(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = T0;
    symint size[TP_MAX_DIMS], prod = 1;
    int s, e, n = 0;
    if (!dim_wrap(val_i(&arg[1], 0), t->ndim, &s, b->err) ||
        !dim_wrap(val_i(&arg[2], -1), t->ndim, &e, b->err))
        return false;
    if (s > e)
        return FAIL("flatten() has invalid args: start_dim cannot come after end_dim");
    if (t->ndim == 0)
        return RET(reshape(b, t, (symint[]){ 1 }, 1));
    if (s == e)
        return RET(t);
    for (int d = 0; d < t->ndim; d++) {
        if (d < s || d > e)
            size[n++] = t->size[d];
        else {
            prod = sym_mul(prod, t->size[d]);
            if (d == e)
                size[n++] = prod;
        }
    }
    return RET(reshape(b, t, size, n));
}

bool decomp_ravel(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *c = b_op(b, contiguous, arg[0]);
    return RET(c ? b_op(b, view, vT(c), vIs((symint[]){ -1 }, 1)) : NULL);
}

bool decomp_unflatten(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = T0;
    const tp_val *v = &arg[2];
    symint size[TP_MAX_DIMS], known = 1;
    int d, hole = -1, n = 0;
    size_text a, s;
    if (v->n == 0)
        return FAIL("unflatten: sizes must be non-empty");
    if (!dim_wrap(arg[1].i, t->ndim, &d, b->err))
        return false;
    if (t->ndim == 0)
        return FAIL(
            "unflatten got an unexpected error:\nDimension specified as %lld but tensor has no dimensions",
            (long long)arg[1].i);
    if (t->ndim - 1 + v->n > TP_MAX_DIMS)
        return FAIL("tensor has too many (>%d) dims", TP_MAX_DIMS);
    symint have = t->ndim ? t->size[d] : 1;
    for (int i = 0; i < v->n; i++) {
        if (!sym_is_expr(v->ints[i]) && v->ints[i] == -1) {
            if (hole >= 0)
                return FAIL("unflatten got an unexpected error:\nonly one dimension can be inferred");
            hole = i;
        } else
            known = sym_mul(known, v->ints[i]);
    }
    if (hole < 0 ? !sym_eq(known, have) : sym_eq(known, 0) || !sym_eq(sym_mod(have, known), 0))
        return FAIL(
            "unflatten: Provided sizes %s don't multiply up to the size of dim %d (%s) in the input tensor",
            sizes_str(&a, v->n, v->ints), d, size_str(&s, have));
    for (int k = 0; k < MAX(t->ndim, 1); k++) {
        if (k != d)
            size[n++] = t->size[k];
        else
            for (int i = 0; i < v->n; i++)
                size[n++] = i == hole ? sym_floordiv(have, known) : v->ints[i];
    }
    return RET(b_op(b, view, vT(t), vIs(size, n)));
}

/* ---- order of dimensions ---- */
static bool movedim(bld *b, tp_tensor *t, const symint *src, int ns, const symint *dst, int nd, tp_val *out)
{
    symint perm[TP_MAX_DIMS], s0[TP_MAX_DIMS] = { 0 }, d0[TP_MAX_DIMS] = { 0 };
    uint32_t sm = 0, dm = 0;
    size_text x, y;
    if (ns != nd)
        return FAIL(
            "movedim: Invalid source or destination dims: source (%s dims) should contain the same number "
            "of dims as destination (%s dims)",
            sizes_str(&x, ns, src), sizes_str(&y, nd, dst));
    for (int i = 0; i < TP_MAX_DIMS; i++)
        perm[i] = -1;
    for (int i = 0; i < ns; i++) {
        int a, c;
        if (!dim_wrap(src[i], t->ndim, &a, b->err) || !dim_wrap(dst[i], t->ndim, &c, b->err))
            return false;
        s0[i] = a;
        d0[i] = c;
        if (sm >> a & 1)
            return FAIL("movedim: repeated dim in `source` (%s)", sizes_str(&x, ns, src));
        if (dm >> c & 1)
            return FAIL("movedim: repeated dim in `destination` (%s)", sizes_str(&x, nd, dst));
        sm |= 1u << a;
        dm |= 1u << c;
    }
    if (t->ndim == 0)
        return RET(b_op(b, alias, vT(t)));
    for (int i = 0; i < ns; i++)
        perm[d0[i]] = s0[i];
    for (int d = 0, k = 0; d < t->ndim; d++) {
        if (perm[d] >= 0)
            continue;
        while (sm >> k & 1)
            k++;
        perm[d] = k++;
    }
    return RET(b_op(b, permute, vT(t), vIs(perm, t->ndim)));
}
bool decomp_movedim(bld *b, const tp_val *arg, tp_val *out)
{
    return movedim(b, T0, arg[1].ints, arg[1].n, arg[2].ints, arg[2].n, out);
}
bool decomp_movedim_int(bld *b, const tp_val *arg, tp_val *out)
{
    return movedim(b, T0, &arg[1].i, 1, &arg[2].i, 1, out);
}

bool decomp_numpy_T(bld *b, const tp_val *arg, tp_val *out)
{
    symint perm[TP_MAX_DIMS];
    int n = T0->ndim;
    for (int d = 0; d < n; d++)
        perm[d] = n - 1 - d;
    return RET(b_op(b, permute, arg[0], vIs(perm, n)));
}
static bool matrix_t(bld *b, const tp_val *arg, tp_val *out, const char *who)
{
    if (T0->ndim == 0)
        return RET(b_op(b, alias, arg[0]));
    if (T0->ndim < 2)
        return FAIL("%s is only supported on matrices or batches of matrices. Got %d-D tensor.", who,
                    T0->ndim);
    return RET(b_op(b, transpose_int, arg[0], vI(-2), vI(-1)));
}
bool decomp_mT(bld *b, const tp_val *arg, tp_val *out) { return matrix_t(b, arg, out, "tensor.mT"); }
/* x, or its conjugate where it is complex */
static tp_val conjugate(bld *b, const tp_val *x)
{
    return dtype_is_complex((dtype)val_t(x)->dt) ? vT(b_op(b, conj_physical, *x)) : *x;
}
bool decomp_mH(bld *b, const tp_val *arg, tp_val *out)
{
    tp_val z = conjugate(b, &arg[0]);
    return z.t && matrix_t(b, &z, out, "tensor.mH");
}
bool decomp_adjoint(bld *b, const tp_val *arg, tp_val *out)
{
    tp_val z = conjugate(b, &arg[0]);
    return z.t && matrix_t(b, &z, out, "tensor.adjoint()");
}
bool decomp_matrix_H(bld *b, const tp_val *arg, tp_val *out)
{
    int n = T0->ndim;
    if (n == 0)
        return RET(b_op(b, alias, arg[0]));
    if (n != 2)
        return FAIL("tensor.H is only supported on matrices (2-D tensors). Got %d-D tensor.%s", n,
                    n > 2 ? " For batches of matrices, consider using tensor.mH" : "");
    return RET(b_op(b, transpose_int, conjugate(b, &arg[0]), vI(0), vI(1)));
}

/* ---- splitting ---- */
static bool list_of(bld *b, const tp_tensor *t, int d, op_id op, const tp_val *arg, int narg, tp_val *out)
{
    tp_val full[OP_MAX_PARAMS];
    if (b->failed || !op_fill_defaults(op_row_of(op), arg, narg, full, b->err))
        return false;
    return b->call(b, op, OPV_fn, full, out);
}

bool decomp_split_sizes(bld *b, const tp_val *arg, tp_val *out)
{
    return list_of(b, T0, 0, OP_split_with_sizes, arg, 3, out);
}

bool decomp_chunk(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = T0;
    int64_t k = arg[1].i;
    int d;
    if (t->ndim == 0)
        return FAIL("chunk expects at least a 1-dimensional tensor");
    if (k <= 0)
        return FAIL("chunk expects `chunks` to be greater than 0, got: %lld", (long long)k);
    if (!dim_wrap(arg[2].i, t->ndim, &d, b->err))
        return false;
    symint n = t->size[d], part = sym_floordiv(sym_sub(sym_add(n, k), 1), k);
    if (sym_eq(part, 0) && !pieces_fit(k, b->err))
        return false;
    if (sym_eq(part, 0)) { /* an empty dimension still gives the asked number of chunks */
        symint *z = mem_zalloc(sizeof(symint) * (size_t)k);
        bool ok = list_of(b, t, d, OP_split_with_sizes, B_ARGS(arg[0], vIs(z, (int)k), vI(d)), out);
        free(z);
        return ok;
    }
    return list_of(b, t, d, OP_split_Tensor, B_ARGS(arg[0], vI(part), vI(d)), out);
}

static bool split_at(bld *b, tp_tensor *t, const symint *at, int n, int d, tp_val *out)
{
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)(n + 1));
    bool ok = true;
    for (int i = 0; i <= n && ok; i++) {
        ts[i] = b_op(b, slice_Tensor, vT(t), vI(d), i ? vI(at[i - 1]) : vI(0), i < n ? vI(at[i]) : vNone);
        ok = ts[i] != NULL;
    }
    ok = ok && comp_list(b, ts, n + 1, out);
    free(ts);
    return ok;
}

static bool sections(bld *b, tp_tensor *t, symint k, int d, tp_val *out)
{
    size_text a;
    if (sym_le(k, 0))
        return FAIL("number of sections must be larger than 0, got %s", size_str(&a, k));
    int64_t n = sym_is_expr(k) ? sym_specialize(k) : k;
    if (!pieces_fit(n, b->err))
        return false;
    symint *at = mem_alloc(sizeof(symint) * (size_t)n), q = sym_floordiv(t->size[d], n),
           r = sym_mod(t->size[d], n);
    for (int64_t i = 1; i < n; i++)
        at[i - 1] = sym_add(sym_mul(q, i), sym_min(r, i));
    bool ok = split_at(b, t, at, (int)n - 1, d, out);
    free(at);
    return ok;
}

static bool split_dim(bld *b, tp_tensor *t, const tp_val *v, int *d)
{
    if (t->ndim == 0)
        return FAIL("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims");
    return dim_wrap(val_i(v, 0), t->ndim, d, b->err);
}
bool decomp_tensor_split(bld *b, const tp_val *arg, tp_val *out)
{
    int d;
    return split_dim(b, T0, &arg[2], &d) && sections(b, T0, arg[1].i, d, out);
}
bool decomp_tensor_split_indices(bld *b, const tp_val *arg, tp_val *out)
{
    int d;
    return split_dim(b, T0, &arg[2], &d) && split_at(b, T0, arg[1].ints, arg[1].n, d, out);
}
bool decomp_tensor_split_tensor(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *ix = arg[1].t;
    int d;
    if (!split_dim(b, T0, &arg[2], &d))
        return false;
    if (ix->dt != DT_i64)
        return FAIL("tensor_split expected tensor_indices_or_sections to have dtype of long, but got %s",
                    dtype_rows[ix->dt].gname);
    if (ix->ndim > 1)
        return FAIL(
            "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional "
            "tensor, but got a tensor with %d dims",
            ix->ndim);
    if (tensor_is_fake(ix))
        return err_set(b->err, ERR_datadep, "tensor_split: the result depends on the values of a tensor");
    if (!(ix = bld_host(b, ix)))
        return false;
    if (ix->ndim == 0)
        return sections(b, T0, *(int64_t *)tensor_host(ix), d, out);
    symint *at = mem_alloc(sizeof(symint) * (size_t)MAX(ix->numel, 1));
    for (int64_t i = 0; i < ix->numel; i++)
        at[i] = *(int64_t *)tensor_elem(ix, i);
    bool ok = split_at(b, T0, at, (int)ix->numel, d, out);
    free(at);
    return ok;
}

/* A start that is no number: PyTorch takes integers of no dimension. */
bool decomp_narrow_tensor(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *s = arg[2].t;
    if (s->ndim || dtype_is_float((dtype)s->dt) || s->dt == DT_bool)
        return FAIL("start must be an 0-dim integral Tensor.");
    if (tensor_is_fake(s))
        return err_set(b->err, ERR_datadep, "narrow: the result depends on the values of a tensor");
    if (!(s = bld_host(b, s)))
        return false;
    return RET(b_op(b, narrow, arg[0], arg[1], vI(elem_get_i((dtype)s->dt, tensor_host(s))), arg[3]));
}

static bool xsplit(bld *b, const tp_val *arg, tp_val *out, const char *who, int least, int dim)
{
    tp_tensor *t = T0;
    size_text a, s;
    if (t->ndim < least)
        return FAIL(
            "torch.%s requires a tensor with at least %d dimension, but got a tensor with %d dimensions!",
            who, least, t->ndim);
    if (arg[1].kind == VAL_ints)
        return split_at(b, t, arg[1].ints, arg[1].n, dim, out);
    if (sym_eq(arg[1].i, 0) || !sym_eq(sym_mod(t->size[dim], arg[1].i), 0))
        return FAIL("torch.%s attempted to split along dimension %d, but the size of the dimension %s is not "
                    "divisible by the split_size %s!",
                    who, dim, size_str(&a, t->size[dim]), size_str(&s, arg[1].i));
    return sections(b, t, arg[1].i, dim, out);
}
bool decomp_hsplit(bld *b, const tp_val *arg, tp_val *out)
{
    return xsplit(b, arg, out, "hsplit", 1, T0->ndim == 1 ? 0 : 1);
}
bool decomp_vsplit(bld *b, const tp_val *arg, tp_val *out) { return xsplit(b, arg, out, "vsplit", 2, 0); }
bool decomp_dsplit(bld *b, const tp_val *arg, tp_val *out) { return xsplit(b, arg, out, "dsplit", 3, 2); }

/* ---- joining ---- */
typedef tp_tensor *each_fn(bld *b, tp_tensor *t);
static tp_tensor *cat_each(bld *b, const tp_val *v, each_fn *f, int dim)
{
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(v->n, 1)), *r = NULL;
    bool ok = true;
    for (int i = 0; i < v->n && ok; i++) {
        ts[i] = f ? f(b, v->ts[i]) : v->ts[i];
        ok = ts[i] != NULL;
    }
    if (ok)
        r = b_op(b, cat, vTs(ts, v->n), vI(dim));
    free(ts);
    return r;
}

bool decomp_stack(bld *b, const tp_val *arg, tp_val *out)
{
    const tp_val *v = &arg[0];
    size_text a, s;
    int d;
    if (v->n == 0)
        return FAIL("stack expects a non-empty TensorList");
    if (!dim_wrap(arg[1].i, v->ts[0]->ndim + 1, &d, b->err))
        return false;
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)v->n), *r = NULL;
    bool ok = true;
    for (int i = 0; i < v->n && ok; i++) {
        if (!tensor_same_size(v->ts[i], v->ts[0]))
            ok = FAIL("stack expects each tensor to be equal size, but got %s at entry 0 and %s at entry %d",
                      sizes_str(&a, v->ts[0]->ndim, v->ts[0]->size),
                      sizes_str(&s, v->ts[i]->ndim, v->ts[i]->size), i);
        else
            ok = d < v->ts[i]->ndim || (ts[i] = b_op(b, unsqueeze, vT(v->ts[i]), vI(d))) != NULL;
    }
    if (ok && d == v->ts[0]->ndim)
        r = b_op(b, cat, vTs(ts, v->n), vI(d));
    else if (ok && (r = b_op(b, cat, *v,
                             vI(d)))) { /* joined along d, which then falls into pieces; keeps the format */
        symint size[TP_MAX_DIMS];
        memcpy(size, v->ts[0]->size, sizeof *size * (size_t)d);
        memcpy(size + d + 1, v->ts[0]->size + d, sizeof *size * (size_t)(v->ts[0]->ndim - d));
        size[d] = v->n;
        r = b_op(b, view, vT(r), vIs(size, v->ts[0]->ndim + 1));
    }
    free(ts);
    return ok && RET(r);
}

static tp_tensor *at_least(bld *b, tp_tensor *t, int n)
{
    symint *s = t->size;
    if (t->ndim >= n)
        return t;
    if (n == 1)
        return reshape(b, t, (symint[]){ 1 }, 1);
    if (n == 2)
        return t->ndim == 0 ? reshape(b, t, (symint[]){ 1, 1 }, 2) : b_op(b, unsqueeze, vT(t), vI(0));
    if (t->ndim == 0)
        return reshape(b, t, (symint[]){ 1, 1, 1 }, 3);
    if (t->ndim == 1)
        return reshape(b, t, (symint[]){ 1, s[0], 1 }, 3);
    return b_op(b, unsqueeze, vT(t), vI(-1));
}
static tp_tensor *at_least_1(bld *b, tp_tensor *t) { return at_least(b, t, 1); }
static tp_tensor *at_least_2(bld *b, tp_tensor *t) { return at_least(b, t, 2); }
static tp_tensor *at_least_3(bld *b, tp_tensor *t) { return at_least(b, t, 3); }
static tp_tensor *as_column(bld *b, tp_tensor *t)
{
    return t->ndim <= 1 ? reshape(b, t, (symint[]){ t->numel, 1 }, 2) : t;
}

static bool each(bld *b, const tp_val *v, each_fn *f, tp_val *out)
{
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(v->n, 1));
    bool ok = true;
    for (int i = 0; i < v->n && ok; i++)
        ok = (ts[i] = f(b, v->ts[i])) != NULL;
    ok = ok && comp_list(b, ts, v->n, out);
    free(ts);
    return ok;
}
bool decomp_atleast_1d(bld *b, const tp_val *arg, tp_val *out) { return RET(at_least(b, T0, 1)); }
bool decomp_atleast_2d(bld *b, const tp_val *arg, tp_val *out) { return RET(at_least(b, T0, 2)); }
bool decomp_atleast_3d(bld *b, const tp_val *arg, tp_val *out) { return RET(at_least(b, T0, 3)); }
bool decomp_atleast_1d_seq(bld *b, const tp_val *arg, tp_val *out)
{
    return each(b, &arg[0], at_least_1, out);
}
bool decomp_atleast_2d_seq(bld *b, const tp_val *arg, tp_val *out)
{
    return each(b, &arg[0], at_least_2, out);
}
bool decomp_atleast_3d_seq(bld *b, const tp_val *arg, tp_val *out)
{
    return each(b, &arg[0], at_least_3, out);
}

bool decomp_hstack(bld *b, const tp_val *arg, tp_val *out)
{
    if (arg[0].n == 0)
        return FAIL("hstack expects a non-empty TensorList");
    return RET(cat_each(b, &arg[0], at_least_1, arg[0].ts[0]->ndim <= 1 ? 0 : 1));
}
bool decomp_vstack(bld *b, const tp_val *arg, tp_val *out)
{
    if (arg[0].n == 0)
        return FAIL("vstack expects a non-empty TensorList");
    return RET(cat_each(b, &arg[0], at_least_2, 0));
}
bool decomp_dstack(bld *b, const tp_val *arg, tp_val *out)
{
    if (arg[0].n == 0)
        return FAIL("dstack expects a non-empty TensorList");
    return RET(cat_each(b, &arg[0], at_least_3, 2));
}
bool decomp_column_stack(bld *b, const tp_val *arg, tp_val *out)
{
    if (arg[0].n == 0)
        return FAIL("column_stack expects a non-empty TensorList");
    return RET(cat_each(b, &arg[0], as_column, 1));
}

bool decomp_block_diag(bld *b, const tp_val *arg, tp_val *out)
{
    const tp_val *v = &arg[0];
    symint rows = 0, cols = 0, at = 0;
    dtype_join j = DTYPE_JOIN_INIT;
    if (v->n == 0)
        return RET(b_op(b, zeros, vIs(((symint[]){ 1, 0 }), 2)));
    for (int i = 0; i < v->n; i++) {
        tp_tensor *t = v->ts[i];
        if (t->ndim > 2)
            return FAIL(
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input %d has %d dimensions",
                i, t->ndim);
        rows = sym_add(rows, t->ndim == 2 ? t->size[0] : 1);
        cols = sym_add(cols, t->ndim ? t->size[t->ndim - 1] : 1);
        dtype_join_add(&j, (dtype)t->dt, t->ndim, false);
    }
    dtype dt = dtype_join_result(&j);
    tp_tensor **row = mem_zalloc(sizeof *row * (size_t)v->n), *r = NULL;
    bool ok = true;
    for (int i = 0; i < v->n && ok; i++) { /* one row of blocks: zeros, block, zeros */
        tp_tensor *t = at_least(b, v->ts[i], 2);
        ok = t != NULL;
        if (!ok)
            break;
        symint w = t->size[1], right = sym_sub(sym_sub(cols, at), w);
        if (t->dt != dt)
            t = b_op(b, to_dtype, vT(t), vDT(dt));
        row[i] = b_op(b, constant_pad_nd, vT(t), vIs(((symint[]){ at, right }), 2));
        ok = row[i] != NULL;
        at = sym_add(at, w);
    }
    if (ok)
        r = b_op(b, cat, vTs(row, v->n), vI(0));
    free(row);
    return ok && RET(r);
}

/* ---- repetition ---- */
bool decomp_tile(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = T0;
    symint r[TP_MAX_DIMS];
    int n = MAX(arg[1].n, t->ndim), off = n - arg[1].n;
    if (n > TP_MAX_DIMS)
        return FAIL("tensor has too many (>%d) dims", TP_MAX_DIMS);
    for (int i = 0; i < n; i++)
        r[i] = i < off ? 1 : arg[1].ints[i - off];
    return RET(b_op(b, repeat, vT(t), vIs(r, n)));
}

bool decomp_repeat_interleave_int(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = T0;
    symint k = arg[1].i, size[TP_MAX_DIMS];
    int d = 0;
    if (sym_lt(k, 0))
        return FAIL("Repeats must be non-negative");
    if (arg[2].kind == VAL_none)
        t = b_op(b, flatten_using_ints, vT(t));
    else if (t->ndim == 0)
        return err_set(b->err, ERR_index,
                       "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
    if (!t)
        return false;
    if (arg[2].kind != VAL_none && !dim_wrap(arg[2].i, t->ndim, &d, b->err))
        return false;
    tp_tensor *u = b_op(b, unsqueeze, vT(t), vI(d + 1));
    if (!u)
        return false;
    memcpy(size, u->size, sizeof(symint) * u->ndim);
    size[d + 1] = k;
    u = b_op(b, expand, vT(u), vIs(size, u->ndim));
    u = b_op(b, clone, vT(u), vMF(MF_contiguous));
    return RET(b_op(b, flatten_using_ints, vT(u), vI(d), vI(d + 1)));
}

bool decomp_repeat_interleave_tensor(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = T0, *r = arg[1].t;
    symint one[1];
    size_text x, y;
    int d = 0;
    if (arg[2].kind == VAL_none)
        t = b_op(b, flatten_using_ints, vT(t));
    else if (t->ndim == 0)
        return err_set(b->err, ERR_index, "Dimension specified as %lld but tensor has no dimensions",
                       (long long)arg[2].i);
    if (!t || (arg[2].kind != VAL_none && !dim_wrap(arg[2].i, t->ndim, &d, b->err)))
        return false;
    if (r->ndim > 1)
        return FAIL("repeats must be 0-dim or 1-dim tensor");
    if (r->ndim == 0 || sym_eq(r->size[0], 1)) {
        one[0] = t->size[d];
        r = b_op(b, reshape, vT(r), vIs(((symint[]){ 1 }), 1));
        r = b_op(b, expand, vT(r), vIs(one, 1));
    } else if (!sym_eq(r->size[0], t->size[d]))
        return FAIL("repeats must have the same size as input along dim, but got repeats.size(0) = %s and "
                    "input.size(%d) = %s",
                    size_str(&x, r->size[0]), d, size_str(&y, t->size[d]));
    tp_tensor *ix = b_op(b, repeat_interleave_Tensor, vT(r), arg[3]);
    return RET(b_op(b, index_select, vT(t), vI(d), vT(ix)));
}

/* ---- flips ---- */
bool decomp_fliplr(bld *b, const tp_val *arg, tp_val *out)
{
    if (T0->ndim < 2)
        return FAIL("Input must be >= 2-d.");
    return RET(b_op(b, flip, arg[0], vIs(((symint[]){ 1 }), 1)));
}
bool decomp_flipud(bld *b, const tp_val *arg, tp_val *out)
{
    if (T0->ndim < 1)
        return FAIL("Input must be >= 1-d.");
    return RET(b_op(b, flip, arg[0], vIs(((symint[]){ 0 }), 1)));
}

bool decomp_rot90(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = T0;
    const tp_val *v = &arg[2];
    int64_t k = ((val_i(&arg[1], 1) % 4) + 4) % 4;
    int a, c;
    if (v->n != 2)
        return FAIL("expected total rotation dims == 2, but got dims = %d", v->n);
    if (t->ndim < 2)
        return FAIL("expected total dims >= 2, but got total dims = %d", t->ndim);
    if (v->ints[0] == v->ints[1] || llabs(v->ints[0] - v->ints[1]) == t->ndim)
        return FAIL("expected rotation dims to be different, but got dim0 = %lld and dim1 = %lld",
                    (long long)v->ints[0], (long long)v->ints[1]);
    if (!dim_wrap(v->ints[0], t->ndim, &a, b->err) || !dim_wrap(v->ints[1], t->ndim, &c, b->err))
        return false;
    if (k == 1 || k == 3) {
        tp_tensor *f = b_op(b, flip, vT(t), vIs(((symint[]){ k == 1 ? c : a }), 1));
        return RET(b_op(b, transpose_int, vT(f), vI(a), vI(c)));
    }
    if (k == 2)
        return RET(b_op(b, flip, vT(t), vIs(((symint[]){ a, c }), 2)));
    return RET(b_op(b, clone, vT(t), vMF(MF_contiguous)));
}

/* ---- diagonals ---- */
bool decomp_diag(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = T0;
    if (t->ndim == 1)
        return RET(b_op(b, diag_embed, vT(t), vI(val_i(&arg[1], 0))));
    if (t->ndim != 2)
        return FAIL("diag(): Supports 1D or 2D tensors. Got %dD", t->ndim);
    tp_tensor *d = b_op(b, diagonal, vT(t), vI(val_i(&arg[1], 0)));
    return RET(b_op(b, clone, vT(d), vMF(MF_contiguous)));
}
bool decomp_diagflat(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *f = b_op(b, flatten_using_ints, arg[0]);
    return RET(b_op(b, diag_embed, vT(f), arg[1]));
}
bool decomp_linalg_diagonal(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(b_op(b, diagonal, arg[0], arg[1], arg[2], arg[3]));
}

/* ---- padding ---- */
bool decomp_pad_circular(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = T0;
    const tp_val *p = &arg[1];
    for (int i = 0; i < p->n / 2; i++) {
        symint lo = p->ints[2 * i], hi = p->ints[2 * i + 1];
        int d = t->ndim - 1 - i, k = 0;
        symint n = t->size[d];
        if (sym_gt(lo, n) || sym_gt(hi, n))
            return FAIL("Padding value causes wrapping around more than once.");
        if (sym_lt(sym_add(sym_add(n, lo), hi), 0))
            return FAIL("Negative padding value is resulting in an empty dimension");
        tp_tensor
            *part[3]; /* the middle is cut by negative pads first; the wrapped ends come from the middle */
        symint from = sym_lt(lo, 0) ? sym_sub(0, lo) : 0, to = sym_lt(hi, 0) ? sym_add(n, hi) : n;
        tp_tensor *mid = b_op(b, slice_Tensor, vT(t), vI(d), vI(from), vI(to));
        symint len = sym_sub(to, from);
        if (sym_gt(lo, 0))
            part[k++] = b_op(b, slice_Tensor, vT(mid), vI(d), vI(sym_sub(len, lo)), vI(len));
        part[k++] = mid;
        if (sym_gt(hi, 0))
            part[k++] = b_op(b, slice_Tensor, vT(mid), vI(d), vI(0), vI(hi));
        if (b->failed)
            return false;
        t = k == 1 ? part[0] : b_op(b, cat, vTs(part, k), vI(d));
        if (!t)
            return false;
    }
    return RET(p->n ? b_op(b, contiguous, vT(t)) : b_op(b, clone, vT(t), vMF(MF_contiguous)));
}

bool decomp_pad(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = T0;
    const tp_val *p = &arg[1];
    const char *mode = arg[2].kind == VAL_str ? arg[2].s : "constant";
    if (p->n % 2)
        return FAIL("Padding length must be divisible by 2");
    if (p->n > 2 * t->ndim)
        return FAIL(
            "Padding length should be less than or equal to two times the input dimension but got padding "
            "length %d and input of dimension %d",
            p->n, t->ndim);
    if (!strcmp(mode, "constant"))
        return RET(b_op(b, constant_pad_nd, vT(t), *p, arg[3].kind == VAL_none ? vF(0) : arg[3]));
    if (arg[3].kind != VAL_none && val_as_f(&arg[3]) != 0)
        return FAIL("Padding mode \"%s\" doesn't take in value argument", mode);
    bool circ = !strcmp(mode, "circular"), refl = !strcmp(mode, "reflect"), repl = !strcmp(mode, "replicate");
    if (!circ && !refl && !repl)
        return err_set(b->err, ERR_notimpl, "Unrecognised padding mode %s", mode);
    int nd = p->n / 2;
    if (nd < 1 || nd > 3 || (t->ndim != nd + 1 && t->ndim != nd + 2))
        return err_set(b->err, ERR_notimpl, "Padding size %d is not supported for %dD input tensor.", p->n,
                       t->ndim);
    if (circ)
        return RET(b_op(b, _pad_circular, vT(t), *p));
    static const op_id rows[2][3] = { { OP_reflection_pad1d, OP_reflection_pad2d, OP_reflection_pad3d },
                                      { OP_replication_pad1d, OP_replication_pad2d, OP_replication_pad3d } };
    return RET(b_callv(b, rows[repl][nd - 1], OPV_fn, B_ARGS(vT(t), *p)));
}

/* ---- several tensors together ---- */
bool decomp_broadcast_tensors(bld *b, const tp_val *arg, tp_val *out)
{
    const tp_val *v = &arg[0];
    symint size[TP_MAX_DIMS];
    int nd = 0;
    for (int i = 0; i < v->n; i++)
        if (!shape_broadcast(&nd, size, v->ts[i]->ndim, v->ts[i]->size, b->err))
            return false;
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(v->n, 1));
    bool ok = true;
    for (int i = 0; i < v->n && ok; i++)
        ok = (ts[i] = b_op(b, expand, vT(v->ts[i]), vIs(size, nd))) != NULL;
    ok = ok && comp_list(b, ts, v->n, out);
    free(ts);
    return ok;
}

static bool meshgrid(bld *b, const tp_val *v, bool xy, tp_val *out)
{
    symint size[TP_MAX_DIMS], one[TP_MAX_DIMS];
    tp_tensor *ts[TP_MAX_DIMS];
    int n = v->n;
    xy = xy && n >= 2;
    if (n == 0)
        return FAIL("meshgrid expects a non-empty TensorList");
    if (n > TP_MAX_DIMS)
        return FAIL("tensor has too many (>%d) dims", TP_MAX_DIMS);
    for (int i = 0; i < n; i++) {
        if (v->ts[i]->ndim > 1)
            return FAIL("torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got a %dD tensor",
                        v->ts[i]->ndim);
        if (v->ts[i]->dt != v->ts[0]->dt)
            return FAIL("meshgrid expects all tensors to have the same dtype");
        int d = xy && i < 2 ? 1 - i : i;
        size[d] = v->ts[i]->numel;
        one[i] = 1;
    }
    for (int i = 0; i < n;
         i++) { /* in xy order the first two dimensions trade places, as memory and as view */
        int d = i;
        symint sz[TP_MAX_DIMS], full[TP_MAX_DIMS];
        memcpy(sz, one, sizeof(symint) * (size_t)n);
        memcpy(full, size, sizeof(symint) * (size_t)n);
        if (xy) {
            d = i < 2 ? 1 - i : i;
        }
        sz[d] = v->ts[i]->numel;
        ts[i] = b_op(b, view, vT(v->ts[i]), vIs(sz, n));
        ts[i] = ts[i] ? b_op(b, expand, vT(ts[i]), vIs(full, n)) : NULL;
        if (!ts[i])
            return false;
    }
    return comp_list(b, ts, n, out);
}
bool decomp_meshgrid(bld *b, const tp_val *arg, tp_val *out) { return meshgrid(b, &arg[0], false, out); }
bool decomp_meshgrid_indexing(bld *b, const tp_val *arg, tp_val *out)
{
    const char *s = arg[1].s;
    if (strcmp(s, "xy") && strcmp(s, "ij"))
        return FAIL("torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: %s", s);
    return meshgrid(b, &arg[0], !strcmp(s, "xy"), out);
}

bool decomp_cartesian_prod(bld *b, const tp_val *arg, tp_val *out)
{
    const tp_val *v = &arg[0];
    size_text a;
    tp_val grid = vNone;
    for (int i = 0; i < v->n; i++)
        if (v->ts[i]->ndim != 1)
            return FAIL("Expect a 1D vector, but got shape %s",
                        sizes_str(&a, v->ts[i]->ndim, v->ts[i]->size));
    if (v->n == 1)
        return RET(v->ts[0]);
    if (!meshgrid(b, v, false, &grid))
        return false;
    for (int i = 0; i < grid.n; i++) {
        tp_tensor *g = grid.ts[i];
        grid.ts[i] = bld_keep(b, g);
    }
    tp_tensor **ts = grid.ts, *r = NULL;
    bool ok = true;
    for (int i = 0; i < v->n && ok; i++)
        ok = (ts[i] = b_op(b, flatten_using_ints, vT(ts[i]))) != NULL;
    if (ok)
        r = b_op(b, stack, vTs(ts, v->n), vI(1));
    free(ts);
    return ok && RET(r);
}

/* The gradient of a part of a tensor: zeros with the part in its place. */
static tp_tensor *zeros_like_of(bld *b, const tp_val *sizes, const tp_tensor *g)
{
    return b_op(b, zeros, *sizes, vDT(g->dt), vNone, vDev(tensor_device(g)));
}
bool decomp_select_backward(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(b_op(b, select_scatter, vT(zeros_like_of(b, &arg[1], arg[0].t)), arg[0], arg[2], arg[3]));
}
bool decomp_slice_backward(bld *b, const tp_val *arg, tp_val *out)
{
    return RET(b_op(b, slice_scatter, vT(zeros_like_of(b, &arg[1], arg[0].t)), arg[0], arg[2], arg[3], arg[4],
                    arg[5]));
}
