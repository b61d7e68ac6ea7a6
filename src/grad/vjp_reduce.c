/* vjp_reduce.c - derivatives of reductions and scans. */
#include "grad/vjp.h"

const char vjp_file_reduce;

/* t, a result reduced over the dimensions in list v of a tensor shaped m, seen with those dimensions as 1. */
static tp_tensor *unreduce(vjp *g, tp_tensor *t, const tp_tensor *m, const tp_val *v, bool keepdim)
{
    symint size[TP_MAX_DIMS];
    uint32_t mask = 0;
    if (!t || keepdim)
        return t;
    if (v->kind == VAL_int)
        mask = m->ndim ? 1u << (v->i < 0 ? v->i + m->ndim : v->i) : 0;
    else if (v->kind == VAL_none || v->n == 0)
        mask = ~0u;
    else
        for (int i = 0; i < v->n; i++)
            mask |= m->ndim ? 1u << (v->ints[i] < 0 ? v->ints[i] + m->ndim : v->ints[i]) : 0;
    for (int i = 0; i < m->ndim; i++)
        size[i] = mask >> i & 1 ? 1 : m->size[i];
    return vh_reshape(B, t, m->ndim, size);
}

static tp_tensor *expand_to(vjp *g, tp_tensor *t, const tp_tensor *m)
{
    return b_op(B, expand, vT(t), vIs(m->size, m->ndim));
}

VJP(sum, "") /* sum: dtype last; sum.dim_IntList: dim, keepdim */
{
    bool all = g->row->schema.nparam == 2;
    tp_tensor *d = DY(0);
    if (!all)
        d = unreduce(g, d, INM(0), ARG(1), ARG(2)->b);
    DX(0, expand_to(g, d, INM(0)));
    return true;
}
