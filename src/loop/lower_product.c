/* lower_product.c - matrix products and convolutions whose memory the plan holds. */
#include "loop/internal.h"

/* addmm(x, a, b) where x is the result of a product that nobody else wants: it is added to in place. */
static bool adds_to_product(const ir_node *n)
{
    if (n->kind != IR_call || n->op != OP_addmm || n->arg[0].kind != VAL_node)
        return false;
    const ir_node *x = n->arg[0].node;
    return x->nuse == 1 && ir_type(x) && ir_type(x)->ndim == 2 && is_product(x) &&
           same_sizes(2, ir_type(x)->size, 2, ir_type(n)->size) &&
           same_sizes(2, ir_type(x)->stride, 2, ir_type(n)->stride);
}

bool is_product(const ir_node *n)
{
    if (n->kind != IR_call || n->variant != OPV_fn || n->val.kind != VAL_tensor)
        return false;
    int a = n->op == OP_addmm;
    if (n->op != OP_mm && n->op != OP_bmm && !a)
        return false;
    const tp_tensor *t = ir_type(n);
    if ((t->dt != DT_f32 && t->dt != DT_f64) || n->arg[a].kind != VAL_node ||
        n->arg[a + 1].kind != VAL_node || ir_type(n->arg[a].node)->dt != t->dt ||
        ir_type(n->arg[a + 1].node)->dt != t->dt)
        return false;
    if (!a)
        return true;
    const tp_tensor *row = n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL;
    bool fits = row && row->dt == t->dt && row->ndim == 1 && sym_known(SYM_eq, row->size[0], t->size[1]);
    return row && row->dt == t->dt && (fits || adds_to_product(n)) && is_known_number(&n->arg[3]) &&
           is_known_number(&n->arg[4]) && val_as_f(&n->arg[3]) == 1 && val_as_f(&n->arg[4]) == 1;
}

bool is_packed(const tp_tensor *t)
{
    symint want[TP_MAX_DIMS];
    shape_contiguous_strides(t->ndim, t->size, want);
    return same_sizes(t->ndim, t->stride, t->ndim, want);
}

/* Convolutions whose memory the plan can hold: one type, everything where it lies. */
bool is_convolution(const ir_node *n)
{
    if (n->kind != IR_call || n->variant != OPV_fn || n->op != OP_convolution || n->val.kind != VAL_tensor ||
        n->arg[6].kind != VAL_bool || n->arg[6].b)
        return false;
    const tp_tensor *t = ir_type(n);
    if ((t->dt != DT_f32 && t->dt != DT_f64) || t->ndim < 3 || !is_packed(t))
        return false;
    for (int i = 0; i < 3; i++) {
        const tp_tensor *x = n->arg[i].kind == VAL_node ? ir_type(n->arg[i].node) : NULL;
        if (x ? x->dt != t->dt || !is_packed(x) : i < 2)
            return false;
    }
    return true;
}

/* Elements that are finished together: a row of a product, a plane of a convolution. */
symint row_of_product(const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    symint len = t->size[t->ndim - 1];
    for (int d = 2; n->op == OP_convolution && d < t->ndim - 1; d++)
        len = sym_mul(len, t->size[d]);
    return len;
}

bool has_tiles(const ir_node *n)
{
    return n->kind == IR_call &&
           (n->op == OP_mm || n->op == OP_bmm || n->op == OP_addmm || n->op == OP_baddbmm ||
            n->op == OP_convolution || n->op == OP_convolution_backward);
}

bool is_plain_bmm(planner *pl, const ir_node *n)
{
    return n && n->kind == IR_call && n->op == OP_bmm && pl->in[n->id].product &&
           n->arg[0].kind == VAL_node && n->arg[1].kind == VAL_node;
}
