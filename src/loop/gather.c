/* gather.c - operators that read or write where an index tensor points: which dimension of the source each index decides.
 * A kernel goes there without looking; so the plan has the index checked first (STEP_check). */
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

/* Sizes are those of `of`, what is written (scatter: as far as its index reaches). */
static bool scatter_along(const ir_node *n, loop_gather *g, bool same_rank, bool adds)
{
    const tp_val *src = &n->arg[3];
    const tp_tensor *x = src->kind == VAL_node ? ir_type(src->node) : NULL, *of = x;
    int dim;
    if (n->arg[1].kind != VAL_int || n->arg[2].kind != VAL_node || !is_index(n->arg[2].node) || !g->n ||
        (!x && !same_rank) || (x && (x->ndim != g->n || x->dt != ir_type(n)->dt)) ||
        !dim_wrap(n->arg[1].i, g->n, &dim, NULL))
        return false;
    if (same_rank)
        of = ir_type(n->arg[2].node);
    if (same_rank ? of->ndim != g->n : ir_type(n->arg[2].node)->ndim != 1)
        return false;
    for (int d = 0; d < g->n; d++)
        g->d[d].from = d;
    g->d[dim].index = n->arg[2].node;
    g->d[dim].from = same_rank ? 0 : dim;
    g->writes = true;
    g->adds = adds;
    g->src = 3;
    g->nd = g->n;
    memcpy(g->size, of->size, sizeof *g->size * (size_t)g->nd);
    g->serial = 1u << dim;
    return true;
}

/* Arguments of index and index_put: the sizes of what is read or written follow from the indices. */
static bool gather_advanced(const ir_node *n, loop_gather *g)
{
    const tp_tensor *s = ir_type(n->arg[0].node);
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
    if (!count || s->ndim - count + nb > TP_MAX_DIMS)
        return false;
    g->nd = s->ndim - count + nb;
    int start = last - first + 1 == count ? first
                                          : 0; /* indices that stand apart: their dimensions come first */
    for (int d = 0; d < g->nd; d++)
        g->size[d] = 1;
    for (int d = 0; d < s->ndim; d++) {
        g->d[d].index = d < v->n ? v->nodes[d] : NULL;
        if (g->d[d].index) {
            const tp_tensor *x = ir_type(g->d[d].index);
            g->d[d].from = start + nb - x->ndim;
            for (int k = 0; k < x->ndim; k++)
                if (g->size[g->d[d].from + k] == 1)
                    g->size[g->d[d].from + k] = x->size[k];
            continue;
        }
        at = at == start ? start + nb : at;
        g->size[at] = s->size[d];
        g->d[d].from = at++;
    }
    g->wrap = true;
    g->serial = ((1u << nb) - 1) << start;
    return true;
}

static bool put_advanced(const ir_node *n, loop_gather *g)
{
    const tp_tensor *x = n->arg[2].kind == VAL_node ? ir_type(n->arg[2].node) : NULL;
    if (!x || x->dt != ir_type(n)->dt || !gather_advanced(n, g) || x->ndim > g->nd)
        return false;
    g->writes = true;
    g->adds = n->arg[3].kind == VAL_bool && n->arg[3].b;
    g->src = 2;
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
    case OP_index_Tensor: return gather_advanced(n, g) && g->nd == ir_type(n)->ndim;
    case OP_scatter_src:
    case OP_scatter_value: return scatter_along(n, g, true, false);
    case OP_scatter_add: return scatter_along(n, g, true, true);
    case OP_index_copy: return scatter_along(n, g, false, false);
    case OP_index_add:
        return n->arg[4].kind == VAL_int && n->arg[4].i == 1 && scatter_along(n, g, false, true);
    case OP_index_put: return put_advanced(n, g);
    default: return false;
    }
}

bool loop_check_fail(const ir_node *n, int dim, int64_t index, int64_t size, tp_err *err)
{
    if (n->op == OP_index_select)
        return err_set(err, ERR_index, "index out of range in self");
    bool plain = n->op == OP_index_Tensor || n->op == OP_index_put || n->op == OP_index_copy;
    return err_set(err, plain ? ERR_index : ERR_runtime,
                   "%sindex %lld is out of bounds for dimension %d with size %lld",
                   n->op == OP_index_copy ? "index_copy_(): " : "", (long long)index, dim, (long long)size);
}
