/* vjp_shape.c - derivatives of views and other changes of shape. */
#include "grad/vjp.h"

const char vjp_file_shape;
#define IN_SIZES vIs(INM(0)->size, INM(0)->ndim)

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
    DX(0, b_op(g->b, zeros_like, vT(DY(0)))); /* what was there has no influence any more */
    DX(1, DY(0));
    return true;
}

VJP(fill_, "")
{
    DX(0, b_op(g->b, zeros_like, vT(DY(0))));
    if (g->row->schema.nparam == 2 && INM(1)) /* fill_.Tensor */
        DX(1, DY(0));
    return true;
}

VJP(expand, "") /* the tape sums what was expanded */
{
    DX(0, DY(0));
    return true;
}

VJP(view, "") /* and every view that only regroups elements in order */
{
    DX(0, vh_reshape(B, DY(0), INM(0)->ndim, INM(0)->size));
    return true;
}

VJP(permute, "")
{
    symint inv[TP_MAX_DIMS];
    int n = ARG(1)->n;
    for (int i = 0; i < n; i++)
        inv[ARG(1)->ints[i] < 0 ? ARG(1)->ints[i] + n : ARG(1)->ints[i]] = i;
    DXV(0, V(permute, DYV, vIs(inv, n)));
    return true;
}

VJP(transpose, "")
{
    DXV(0, V(transpose_int, DYV, *ARG(1), *ARG(2)));
    return true;
}

VJP(t, "")
{
    DXV(0, V(t, DYV));
    return true;
}

VJP(select, "")
{
    DXV(0, V(select_backward, DYV, IN_SIZES, *ARG(1), *ARG(2)));
    return true;
}

VJP(select_backward, "")
{
    DXV(0, V(select_int, DYV, *ARG(2), *ARG(3)));
    return true;
}

/* start and end of a slice with None filled in. */
static void bounds(const tp_val *start, const tp_val *end, tp_val *s, tp_val *e)
{
    *s = start->kind == VAL_none ? vI(0) : *start;
    *e = end->kind == VAL_none ? vI(INT64_MAX >> 2) : *end;
}

VJP(slice, "")
{
    tp_val s, e;
    bounds(ARG(2), ARG(3), &s, &e);
    DXV(0, V(slice_backward, DYV, IN_SIZES, *ARG(1), s, e, *ARG(4)));
    return true;
}

VJP(slice_backward, "")
{
    DXV(0, V(slice_Tensor, DYV, *ARG(2), *ARG(3), *ARG(4), *ARG(5)));
    return true;
}

VJP(narrow, "")
{
    int d = vh_dim(ARG(1), INM(0)->ndim);
    symint start = ARG(2)->i;
    if (!sym_is_expr(start) && start < 0)
        start = sym_add(start, INM(0)->size[d]);
    DXV(0, V(slice_backward, DYV, IN_SIZES, vI(d), vI(start), vI(sym_add(start, ARG(3)->i)), vI(1)));
    return true;
}

/* The pieces of a split put together again; missing ones are zero. */
static bool joined(vjp *g, int dim, int n, bool new_dim)
{
    tp_tensor **part = mem_alloc(sizeof *part * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++) {
        part[i] = DY(i) ? DY(i) : vh_zeros(B, OUTM(i)).t;
        if (new_dim)
            part[i] = V(unsqueeze, vT(part[i]), vI(dim)).t;
    }
    if (n)
        DXV(0, V(cat, vTs(part, n), vI(dim)));
    free(part);
    return true;
}

static int count(const vjp *g, int dim)
{
    if (g->row->schema.ret_list)
        return g->nout;
    return g->row->schema.nret;
}

VJP(split, "") /* split and split_with_sizes: dim is the third argument */
{
    int d = vh_dim(ARG(2), INM(0)->ndim);
    return joined(g, d, count(g, d), false);
}

VJP(unbind, "")
{
    int d = vh_dim(ARG(1), INM(0)->ndim);
    return joined(g, d, count(g, d), true);
}

/* Memory that holds both the input and the view of it, counted in elements from the start of the storage. */
static symint spanned(const tp_tensor *in, const tp_val *size, const tp_val *stride, symint offset)
{
    symint a = sym_add(in->offset, 1), b = sym_add(offset, 1);
    for (int d = 0; d < in->ndim; d++)
        a = sym_add(a, sym_mul(sym_max(sym_sub(in->size[d], 1), 0), in->stride[d]));
    for (int d = 0; d < size->n; d++)
        b = sym_add(b, sym_mul(sym_max(sym_sub(size->ints[d], 1), 0), stride->ints[d]));
    return sym_max(a, b);
}
static bool lies_plainly(const tp_tensor *t) /* contiguous and at the start of its storage */
{
    symint n = 1;
    if (!sym_eq(t->offset, 0))
        return false;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (!sym_eq(t->size[d], 1) && !sym_eq(t->stride[d], n))
            return false;
        n = sym_mul(n, t->size[d]);
    }
    return true;
}

/* Gradients are sent to memory and looked at through the input's own layout; places that several elements of the
 * input share are shared between them. */
VJP(as_strided, "")
{
    const tp_tensor *in = INM(0);
    symint offset = ARG(3)->kind == VAL_none ? in->offset : ARG(3)->i;
    if (lies_plainly(in)) {
        DXV(0, V(as_strided_backward, DYV, IN_SIZES, *ARG(1), *ARG(2), vI(offset)));
        return true;
    }
    symint n = spanned(in, ARG(1), ARG(2), offset);
    tp_val flat = V(as_strided_backward, DYV, vIs(&n, 1), *ARG(1), *ARG(2), vI(offset));
    bool shares = false;
    for (int d = 0; d < in->ndim; d++)
        shares = shares || (sym_eq(in->stride[d], 0) && !sym_eq(in->size[d], 1));
    if (shares) {
        tp_val one = V(ones, vIs(in->size, in->ndim), vDT(in->dt));
        tp_val many = V(as_strided_backward, one, vIs(&n, 1), vIs(in->size, in->ndim),
                        vIs(in->stride, in->ndim), vI(in->offset));
        flat = DIV(flat, V(clamp_min, many, vI(1)));
    }
    tp_val dx = V(as_strided, flat, vIs(in->size, in->ndim), vIs(in->stride, in->ndim), vI(in->offset));
    DXV(0,
        sym_eq(in->offset, 0) ? dx : V(clone, dx, vNone)); /* a gradient begins where its own memory begins */
    return true;
}

VJP(as_strided_backward, "")
{
    /* as_strided counts in the memory of its argument, and the gradient may be expanded or a part of something */
    DXV(0, V(as_strided, V(clone, DYV, vMF(MF_contiguous)), *ARG(2), *ARG(3), *ARG(4)));
    return true;
}

VJP(diagonal, "")
{
    DXV(0, V(diagonal_backward, DYV, IN_SIZES, *ARG(1), *ARG(2), *ARG(3)));
    return true;
}

VJP(diagonal_backward, "")
{
    DXV(0, V(diagonal, DYV, *ARG(2), *ARG(3), *ARG(4)));
    return true;
}

VJP(unfold, "")
{
    DXV(0, V(unfold_backward, DYV, IN_SIZES, *ARG(1), *ARG(2), *ARG(3)));
    return true;
}

VJP(unfold_backward, "")
{
    DXV(0, V(unfold, DYV, *ARG(2), *ARG(3), *ARG(4)));
    return true;
}

VJP(cat, "")
{
    int n = g->nlist, dim = -1;
    symint at = 0;
    for (int i = 0; i < n; i++) {
        const tp_tensor *m = g->list_meta[i];
        if (m->ndim == 1 && OUTM(0)->ndim != 1 &&
            sym_eq(m->size[0], 0)) { /* the empty tensor fits anywhere */
            g->dlist[i] = vh_zeros(B, m).t;
            continue;
        }
        if (dim < 0)
            dim = vh_dim(ARG(1), m->ndim);
        symint end = sym_add(at, m->size[dim]);
        g->dlist[i] = V(slice_Tensor, DYV, vI(dim), vI(at), vI(end), vI(1)).t;
        at = end;
    }
    return true;
}

VJP(repeat, "") /* seen as (r0, n0, r1, n1, ...), the repetitions are summed */
{
    symint size[2 * TP_MAX_DIMS] = { 0 }, dims[TP_MAX_DIMS];
    int n = ARG(1)->n, lead = n - INM(0)->ndim, k = 0, m = 0;
    if (2 * n > TP_MAX_DIMS)
        return err_set(B->err, ERR_runtime, "repeat: too many dimensions to differentiate");
    for (int i = 0; i < n; i++) {
        dims[m++] = k;
        size[k++] = ARG(1)->ints[i];
        if (i >= lead)
            size[k++] = INM(0)->size[i - lead];
    }
    tp_tensor *d = vh_reshape(B, DY(0), k, size);
    DXV(0, m ? V(sum_dim_IntList, vT(d), vIs(dims, m)) : vT(d));
    return true;
}

VJP(roll, "")
{
    symint back[TP_MAX_DIMS];
    for (int i = 0; i < ARG(1)->n; i++)
        back[i] = sym_sub(0, ARG(1)->ints[i]);
    DXV(0, V(roll, DYV, vIs(back, ARG(1)->n), *ARG(2)));
    return true;
}

VJP(flip, "")
{
    DXV(0, V(flip, DYV, *ARG(1)));
    return true;
}

VJP(tril, "")
{
    DXV(0, V(tril, DYV, *ARG(1)));
    return true;
}

VJP(triu, "")
{
    DXV(0, V(triu, DYV, *ARG(1)));
    return true;
}

VJP(diag_embed, "")
{
    DXV(0, V(diagonal, DYV, *ARG(1), *ARG(2), *ARG(3)));
    return true;
}

VJP(fill_diagonal_, "")
{
    DXV(0, V(fill_diagonal_, V(clone, DYV), vI(0), *ARG(2)));
    return true;
}

VJP(constant_pad, "")
{
    symint back[2 * TP_MAX_DIMS];
    for (int i = 0; i < ARG(1)->n; i++)
        back[i] = sym_sub(0, ARG(1)->ints[i]);
    DXV(0, V(constant_pad_nd, DYV, vIs(back, ARG(1)->n), vI(0)));
    return true;
}

#define PAD(name)                                    \
    VJP(name, "0")                                   \
    {                                                \
        DXV(0, V(name##_backward, DYV, X, *ARG(1))); \
        return true;                                 \
    }                                                \
    VJP(name##_backward, "")                         \
    {                                                \
        DXV(0, V(name, DYV, *ARG(2)));               \
        return true;                                 \
    }
PAD(reflection_pad1d)
PAD(reflection_pad2d)
PAD(reflection_pad3d)
PAD(replication_pad1d)
PAD(replication_pad2d)
PAD(replication_pad3d)

VJP(select_scatter, "")
{
    if (NEED(0))
        DXV(0, V(select_scatter, DYV, vh_zeros(B, INM(1)), *ARG(2), *ARG(3)));
    DXV(1, V(select_int, DYV, *ARG(2), *ARG(3)));
    return true;
}

VJP(slice_scatter, "")
{
    if (NEED(0))
        DXV(0, V(slice_scatter, DYV, vh_zeros(B, INM(1)), *ARG(2), *ARG(3), *ARG(4), *ARG(5)));
    DXV(1, V(slice_Tensor, DYV, *ARG(2), *ARG(3), *ARG(4), *ARG(5)));
    return true;
}

VJP(diagonal_scatter, "")
{
    if (NEED(0))
        DXV(0, V(diagonal_scatter, DYV, vh_zeros(B, INM(1)), *ARG(2), *ARG(3), *ARG(4)));
    DXV(1, V(diagonal, DYV, *ARG(2), *ARG(3), *ARG(4)));
    return true;
}

/* The result is laid out as self was, from the start of its own storage (as shape_as_strided_scatter has it). */
VJP(as_strided_scatter, "")
{
    const tp_tensor *in = OUTM(0);
    symint offset = ARG(4)->kind == VAL_none ? 0 : ARG(4)->i, n = spanned(in, ARG(2), ARG(3), offset);
    tp_val size = vIs(in->size, in->ndim), stride = vIs(in->stride, in->ndim);
    tp_val d = V(as_strided_backward, DYV, vIs(&n, 1), size, stride, vI(0));
    if (NEED(0))
        DXV(0, V(as_strided, V(as_strided_scatter, d, vh_zeros(B, INM(1)), *ARG(2), *ARG(3), vI(offset)),
                 size, stride, vI(0)));
    DXV(1, V(as_strided, d, *ARG(2), *ARG(3), vI(offset)));
    return true;
}
