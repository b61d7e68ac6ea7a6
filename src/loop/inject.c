/* inject.c - faults planted to test the debugging tools (base/fault.h). */
#include "loop/internal.h"
#include "ir/planted.h"

/* Faults planted to test the debugging tools (base/fault.h). A copy that carries the fault of what it copies is no company. */
static bool alone(const walk *w, const ir_node *n)
{
    const ir_node *x = is_copy(n) && n->meta && ir_type(n)->dt == ir_type(n->arg[0].node)->dt ? n->arg[0].node
                                                                                              : NULL;
    if (w->g->epilogue)
        return false;
    for (int i = 0; i < w->g->n; i++)
        if (w->g->member[i] != n && w->g->member[i] != x)
            return false;
    return w->g->n > 0 && (w->g->member[0] == n || w->g->member[w->g->n - 1] == n);
}

/* The failure is at n, unless it says where it is. False. */
bool fails_at(tp_err *err, const ir_node *n)
{
    if (!err || err->line)
        return false;
    err_note(err, "in node '%s'", n->name);
    return ir_err_place(err, n);
}

vir_ref plant(walk *w, const ir_node *n, vir_ref v)
{
    fault_kind f = ir_fault_at("gen", n);
    char buf[64];
    if (f == FAULT_none && !fault_is_sudden(ir_fault_at("lower", n)))
        f = ir_fault_at("lower", n);
    if (f == FAULT_none && !alone(w, n))
        f = ir_fault_at("fuse", n);
    if (f == FAULT_none)
        return v;
    vir_type t = vir_type_of(w->k, v);
    const char *op = ir_stands_for(n, buf, sizeof buf);
    if (f == FAULT_accuracy)
        return t == VT_mask ? vir_not(w->k, v) : vir_add(w->k, v, vir_imm(w->k, t, 1));
    if (f == FAULT_nan && (t == VT_f32 || t == VT_f64))
        return vir_flt(w->k, t, __builtin_nan(""));
    if (f == FAULT_compile_error) {
        err_set(w->pl->c->err, ERR_compiler, "planted fault: the emitter cannot compile '%s'", op);
        fails_at(w->pl->c->err, n);
    }
    w->out->fault = (uint8_t)f;
    w->out->fault_op = arena_strdup(&w->pl->p->mem, op);
    w->out->fault_node = n;
    return v;
}

bool plant_lowering(tp_comp *c, const ir_graph *g) /* those that strike while compiling */
{
    char buf[64];
    IR_EACH (n, g) {
        fault_kind f = ir_fault_at("lower", n);
        if (f == FAULT_compile_error)
            err_set(c->err, ERR_compiler, "planted fault: '%s' cannot be lowered",
                    ir_stands_for(n, buf, sizeof buf));
        if (f == FAULT_compile_error ||
            (fault_is_sudden(f) && !fault_strike(f, ir_stands_for(n, buf, sizeof buf), c->err)))
            return fails_at(c->err, n);
    }
    return true;
}

/* Views, reductions, products and library calls: a copy of their result carries the fault, since kernels are made for that. */
bool plant_carriers(tp_comp *c, ir_graph *g)
{
    char buf[64];
    for (ir_node *n = g->first, *next; n; n = next) {
        const char *op = ir_stands_for(n, buf, sizeof buf);
        ir_node *x = n->kind == IR_call || n->kind == IR_getitem ? n : NULL;
        next = n->next;
        if (!x || !fault_later(op) || is_copy(n) ||
            (n->kind == IR_call && row_of(n)->flags & OPF_PW && lower_of((op_id)n->op)))
            continue;
        for (ir_use *u = n->uses; n->val.kind == VAL_tensors && u; u = u->next)
            if (u->user->kind == IR_getitem && (x == n || u->user->id < x->id))
                x = u->user; /* its first result */
        if (!ir_type(x))
            continue;
        char *name = mem_strdup(op);
        tp_val arg[2] = { { .kind = VAL_node, .node = x }, vNone };
        ir_node *copy = ir_build(g, OP_clone, OPV_fn, arg, 2, c->err);
        if (copy) {
            if (x->next != copy)
                ir_insert_before(g, x->next, copy);
            ir_replace_uses(x, copy);
            ir_set_arg(copy, 0, arg[0]);
            copy->loc = n->loc;
            ir_stand_for(copy, name);
            ir_stand_for(n, "");
            if (x != n)
                ir_stand_for(x, "");
        }
        free(name);
        if (!copy)
            return false;
    }
    return true;
}
