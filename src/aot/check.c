/* check.c - what holds of every unit when the autograd stage ends, whatever the graph and whoever cut it. Costs a look at
 * each node, so all builds do it. */
#include "aot/aot.h"

/* Nothing that others see is written: rows without a pure form write into a copy of their own (functional.c). */
static bool pure(const ir_graph *g, tp_err *err)
{
    IR_EACH (n, g) {
        const ir_node *to = ir_node_writes(n) && n->narg && n->arg[0].kind == VAL_node ? n->arg[0].node
                                                                                       : NULL;
        if (to && (to->kind != IR_call || (op_row_of((op_id)to->op)->flags & OPF_VIEW)))
            return err_set(err, ERR_internal, "node '%s' of graph '%s' writes into the memory of '%s'",
                           n->name, g->name, to->name);
    }
    return true;
}

static bool same_kind(const tp_tensor *a, const tp_tensor *b)
{
    return a && b && a->dt == b->dt && a->ndim == b->ndim;
}

static const tp_tensor *result_type(const ir_graph *g, int i)
{
    const tp_val *v = &g->output->arg[i];
    return v->kind == VAL_node ? ir_type(v->node) : NULL;
}

/* A value that lies in the memory of an input although the program made it elsewhere: a copy went that a view looked at. */
static bool lost_copy(const ir_node *n)
{
    const ir_node *made = n;
    while (made->kind != IR_placeholder) {
        made = made->kind == IR_getitem ? made->arg[0].node : made;
        if (made->kind != IR_call || !(op_row_of((op_id)made->op)->flags & OPF_VIEW) ||
            made->arg[0].kind != VAL_node)
            return false;
        made = made->arg[0].node;
    }
    return made != n && ir_type(n) && ir_type(made) && ir_type(n)->storage != ir_type(made)->storage;
}

static const char *forward_wrong(const aot_unit *u)
{
    int nfw = u->nvalue + u->nmut;
    if ((int)u->fw->inputs.n != u->nin)
        return "forward does not take the inputs";
    if (!u->fw->output || u->fw->output->narg != nfw + u->nsaved)
        return "forward does not return the values, the written inputs and what is saved";
    for (int i = 0; i < u->nmut; i++)
        if (u->mut[i] < 0 || u->mut[i] >= u->nin ||
            !same_kind(result_type(u->fw, u->nvalue + i), ir_type(u->fw->inputs.at[u->mut[i]])))
            return "the new value of an input is of another type than the input";
    for (int i = 0; i < u->nvalue; i++)
        if (u->fw->output->arg[i].kind == VAL_node && lost_copy(u->fw->output->arg[i].node))
            return "a new value lies in the memory of an input";
    for (int i = 0; i < u->nout; i++) {
        int most = u->out[i].kind == AOT_value || u->out[i].kind == AOT_result_view ? nfw : u->nin;
        if (u->out[i].kind != AOT_number && (u->out[i].index < 0 || u->out[i].index >= most))
            return "a returned item is made of nothing";
    }
    return NULL;
}

static const char *backward_wrong(const aot_unit *u)
{
    int nfw = u->nvalue + u->nmut;
    if (!u->bw)
        return u->nsaved ? "values are saved for no backward" : NULL;
    if ((int)u->bw->inputs.n != u->nsaved + u->ntangent)
        return "backward does not take what is saved and the tangents";
    if (!u->bw->output || u->bw->output->narg != u->ngrad)
        return "backward does not return the gradients";
    for (int i = 0; i < u->nsaved; i++) {
        const tp_tensor *a = result_type(u->fw, nfw + i), *b = ir_type(u->bw->inputs.at[i]);
        if (a || b ? !same_kind(a, b) : false)
            return "a saved value is of another type in backward";
    }
    for (int i = 0; i < u->ntangent; i++)
        if (u->tangent[i] < 0 || u->tangent[i] >= nfw ||
            !same_kind(result_type(u->fw, u->tangent[i]), ir_type(u->bw->inputs.at[u->nsaved + i])))
            return "a tangent is of another type than its result";
    for (int i = 0; i < u->ngrad; i++) {
        const tp_tensor *t = result_type(u->bw, i);
        if (u->grad[i] < -1 || u->grad[i] >= u->nin + u->nout)
            return "a gradient belongs to nothing";
        if (t && u->grad[i] >= 0 && u->grad[i] < u->nin &&
            !same_kind(t, ir_type(u->fw->inputs.at[u->grad[i]])))
            return "a gradient is of another type than its input";
    }
    return NULL;
}

bool aot_unit_check(const aot_unit *u, tp_err *err)
{
    const char *why = forward_wrong(u);
    why = why ? why : backward_wrong(u);
    const ir_node *lost = why ? NULL : aot_size_lost(u);
    if (lost) {
        err_set(err, ERR_internal,
                "the cut of graph '%s' into forward and backward (partition) is wrong: '%s' of backward has "
                "a size "
                "that none of the saved values tells",
                u->fw->name, lost->name);
        return ir_err_place(err, lost);
    }
    if (why)
        return err_set(err, ERR_internal, "the autograd stage of graph '%s' is wrong: %s", u->fw->name, why);
    return pure(u->fw, err) && (!u->bw || pure(u->bw, err));
}
