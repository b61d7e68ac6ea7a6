/* lower.c - the value of an expression at an index: read from memory, taken from the group, or computed by the lowering of
 * its operator. A dry run gathers what is read and where; otherwise instructions are emitted. */
#include "loop/internal.h"

/* Computed element by element from its operands: no loop of its own. */
bool is_inline(planner *pl, ir_node *n)
{
    if (n->kind != IR_call || n->val.kind != VAL_tensor)
        return false;
    return known_view(pl, n) || pl->in[n->id].folds || is_fill(n) || is_copy(n) || is_tri(n) ||
           is_arange(n) || is_cat(n) || is_pad(n) || is_scatter(n) || covered(pl, n);
}

vir_ref under_mask(walk *w, vir_ref m, ir_node *n, const lin *idx) /* eval where m holds */
{
    vir_ref old = w->mask;
    if (!w->dry)
        w->mask = old ? vir_and(w->k, old, m) : m;
    vir_ref v = eval(w, n, idx);
    w->mask = old;
    return v;
}

static bool at_home(walk *w, ir_node *n, const lin *idx)
{
    lin home[TP_MAX_DIMS];
    bool dry = w->dry;
    w->dry = true; /* computing the home index emits nothing */
    size_t keep = w->seen.n;
    int sv = w->split_var;
    w->split_var = 0;
    member_index(w, n, home);
    w->seen.n = keep;
    w->split_var = sv;
    w->dry = dry;
    for (int d = 0; d < ir_type(n)->ndim; d++)
        if (!lin_equal(&home[d], &idx[d]) && ir_type(n)->size[d] != 1)
            return false;
    return true;
}

vir_ref eval(walk *w, ir_node *n, const lin *idx)
{
    info *f = &w->pl->in[n->id];
    if (n == w->self && f->put)
        return eval(w, n->arg[0].node, idx);
    if (n != w->self) {
        if (f->g && f->g == w->g && !f->ext) {
            if (!at_home(w, n, idx)) {
                w->fail = true;
                return 0;
            }
            if (w->dry) {
                w->level = MAX(w->level, f->outer ? f->level + 1 : f->level);
                w->inner |= !f->outer;
                return 0;
            }
            return member_value(w, n);
        }
        if (f->sched || f->memview || n->kind == IR_placeholder || n->kind == IR_const ||
            n->kind == IR_getitem)
            return emit_load(w, n, idx);
    }
    /* none of these is part of this frame, which deep expressions have a hundred of */
    if (known_view(w->pl, n))
        return eval_view(w, n, idx);
    if (f->folds && (n->op == OP_gather || n->op == OP_index_select || n->op == OP_index_Tensor))
        return eval_gather(w, n, idx);
    if (f->folds && is_mirror(n))
        return eval_mirror(w, n, idx);
    if (f->folds && is_draw(n))
        return eval_draw(w, n, idx);
    if (f->folds &&
        (n->op == OP_max_pool2d || n->op == OP_avg_pool2d || n->op == OP_upsample_nearest2d_backward))
        return eval_pool(w, n, idx);
    if (f->folds && (n->op == OP_upsample_nearest2d || n->op == OP__max_pool2d_offsets_backward))
        return eval_spread(w, n, idx);
    if (is_fill(n) || is_copy(n) || is_tri(n) || is_arange(n) || is_cat(n) || is_pad(n) || is_scatter(n))
        return eval_special(w, n, idx);
    return eval_pointwise(w, n, idx);
}
