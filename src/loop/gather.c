/* gather.c - operators that read where an index tensor points: which dimension of the source each index decides.
 * A kernel reads there without looking; so the plan has the index checked first (STEP_check). */
#include "loop/loop.h"

static bool is_index(const ir_node *n)
{
    const tp_tensor *t = n ? ir_type(n) : NULL;
    return t && (t->dt == DT_i64 || t->dt == DT_i32);
}

static bool gather_along(const ir_node *n, loop_gather *g, bool same_rank)
{
    const tp_tensor *s = ir_type(n->arg[0].node), *t = ir_type(n);
    int dim;
    if (n->arg[1].kind != VAL_int || n->arg[2].kind != VAL_node || !is_index(n->arg[2].node) ||
        t->ndim != s->ndim || !s->ndim || !dim_wrap(n->arg[1].i, s->ndim, &dim, NULL))
        return false;
    if (same_rank ? ir_type(n->arg[2].node)->ndim != s->ndim : ir_type(n->arg[2].node)->ndim > 1)
        return false;
    for (int d = 0; d < s->ndim; d++)
        g->d[d].from = d;
    g->d[dim].index = n->arg[2].node;
    g->d[dim].from = same_rank ? 0 : dim;
    return true;
}

static bool gather_advanced(const ir_node *n, loop_gather *g)
{
    const tp_tensor *s = ir_type(n->arg[0].node), *t = ir_type(n);
    const tp_val *v = &n->arg[1];
    int count = 0, first = -1, last = -1, nb = 0, at = 0;
    if (v->kind != VAL_nodes || v->n > s->ndim)
        return false;
    for (int d = 0; d < v->n; d++) {
        if (!v->nodes[d])
            continue;
        if (!is_index(v->nodes[d]))
            return false;
        first = first < 0 ? d : first;
        last = d;
        nb = MAX(nb, ir_type(v->nodes[d])->ndim);
        count++;
    }
    if (!count || t->ndim != s->ndim - count + nb)
        return false;
    int start = last - first + 1 == count ? first
                                          : 0; /* indices that stand apart: their dimensions come first */
    for (int d = 0; d < s->ndim; d++) {
        g->d[d].index = d < v->n ? v->nodes[d] : NULL;
        if (g->d[d].index) {
            g->d[d].from = start + nb - ir_type(g->d[d].index)->ndim;
            continue;
        }
        at = at == start ? start + nb : at;
        g->d[d].from = at++;
    }
    g->wrap = true;
    return true;
}

bool loop_gather_of(const ir_node *n, loop_gather *g)
{
    memset(g, 0, sizeof *g);
    if (n->kind != IR_call || n->variant != OPV_fn || n->val.kind != VAL_tensor ||
        n->arg[0].kind != VAL_node || !ir_type(n->arg[0].node))
        return false;
    g->n = ir_type(n->arg[0].node)->ndim;
    switch ((op_id)n->op) {
    case OP_gather: return gather_along(n, g, true);
    case OP_index_select: return gather_along(n, g, false);
    case OP_index_Tensor: return gather_advanced(n, g);
    default: return false;
    }
}

bool loop_check_fail(const ir_node *n, int dim, int64_t index, int64_t size, tp_err *err)
{
    if (n->op == OP_index_select)
        return err_set(err, ERR_index, "index out of range in self");
    return err_set(err, n->op == OP_gather ? ERR_runtime : ERR_index,
                   "index %lld is out of bounds for dimension %d with size %lld", (long long)index, dim,
                   (long long)size);
}
