/* pass_fold.c - calls on constants are computed while compiling. What leaves the graph is never folded: the
 * caller owns what it gets and may write to it, and the graph's constant must not change. */
#include "ir/pass.h"

/* The known value of n, or NULL. Values are kept in n->data while the pass runs. */
static tp_tensor *known(const ir_node *n) { return n->data; }

static bool small(const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    return t && !sym_is_expr(t->numel) && t->numel <= PASS_FOLD_BYTES / (int64_t)dtype_size((dtype)t->dt) &&
           tensor_device(t).kind == DEV_cpu;
}

/* All operands known, nothing symbolic; *some: there is at least one tensor operand. */
static bool operands(ir_node *n, tp_val *arg, tp_tensor **list, int room, bool *some)
{
    int used = 0;
    *some = false;
    for (int i = 0; i < n->narg; i++) {
        arg[i] = n->arg[i];
        switch (arg[i].kind) {
        case VAL_node:
            if (!known(arg[i].node))
                return false;
            arg[i] = vT(known(arg[i].node));
            *some = true;
            break;
        case VAL_nodes:
            if (used + arg[i].n > room)
                return false;
            for (int k = 0; k < arg[i].n; k++) {
                ir_node *o = n->arg[i].nodes[k];
                if (o && !known(o))
                    return false;
                list[used + k] = o ? known(o) : NULL;
            }
            arg[i] = vTs(list + used, arg[i].n);
            used += arg[i].n;
            *some = true;
            break;
        case VAL_int:
            if (sym_is_expr(arg[i].i))
                return false;
            break;
        case VAL_ints:
            if (!sym_all_const(arg[i].ints, arg[i].n))
                return false;
            break;
        case VAL_graph: return false;
        default: break;
        }
    }
    return true;
}

static tp_tensor *compute(tp_comp *c, ir_node *n, bool *some)
{
    tp_val arg[OP_MAX_PARAMS], out[OP_MAX_RETURNS] = { 0 };
    tp_tensor *list[64];
    const op_row *row = op_row_of((op_id)n->op);
    tp_err e = { 0 };
    op_ctx cx = *(c->cx ? c->cx : op_ctx_cur());

    cx.rec = NULL;
    cx.env = NULL;
    if (row->schema.nret != 1 || row->schema.ret_list || ir_node_is_effect(n) || ir_row_is_dyn(row) ||
        !small(n))
        return NULL;
    if (!operands(n, arg, list, COUNT(list), some))
        return NULL;
    if (!ops_call(&cx, (op_id)n->op, (op_variant)n->variant, arg, out, &e)) /* it fails when it runs, too */
        return NULL;
    if (out[0].kind == VAL_tensor)
        return out[0].t;
    val_clear(&out[0]);
    return NULL;
}

bool pass_fold(tp_comp *c, ir_graph *g)
{
    escape e;
    VEC(tp_tensor *) values = { 0 };

    escape_init(&e, g);
    IR_EACH_SAFE (n, g) {
        bool some = false;
        n->data = NULL;
        if (escape_written(&e, n))
            continue;
        if (n->kind == IR_const) {
            n->data = n->konst;
            continue;
        }
        if (n->kind != IR_call)
            continue;
        tp_tensor *t = compute(c, n, &some);
        if (!t)
            continue;
        vec_push(&values, t);
        n->data = t;
        tp_val got = vT(t);
        /* a fresh tensor such as zeros(...) is better made than stored; what is computed from it is not */
        if (!some || escape_returned(&e, n) || !ir_type_equal(&n->val, &got) || !decide(c, DECIDE_fold, n))
            continue;
        const char *name = n->name;
        const ir_loc *loc = n->loc;
        ir_rename(n, "folded");
        ir_node *k = ir_add_const(g, name, t);
        ir_insert_before(g, n, k);
        k->loc = loc;
        k->data = t;
        ir_replace_uses(n, k);
        ir_erase(n);
    }
    IR_EACH (n, g)
        n->data = NULL;
    for (size_t i = 0; i < values.n; i++)
        tensor_unref(values.at[i]);
    vec_free(&values);
    escape_free(&e);
    return true;
}
