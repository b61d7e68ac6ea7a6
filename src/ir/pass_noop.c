/* pass_noop.c - nodes that change nothing. Two grades: a view of equal geometry is the same memory, so any
 * use may go to the original; a copy is new memory, so it may only go when neither memory is written and the
 * copy is not returned, or is all that becomes of a value that was computed here. */
#include "ir/pass.h"
#include "ir/planted.h"

static bool number_is(const tp_val *v, double want)
{
    return val_is_number(v) && !(v->kind == VAL_int && sym_is_expr(v->i)) && val_is(v, want);
}

static bool one_or_default(const ir_node *n, int i) { return n->narg <= i || number_is(&n->arg[i], 1); }

/* Views; one that cuts the gradient (detach) only where there is none. */
static bool same_memory(const ir_node *n, const ir_graph *g)
{
    uint32_t f = op_row_of((op_id)n->op)->flags;
    return (f & OPF_VIEW) && !((f & OPF_NODIFF) && g->grad_mode);
}

/* --- the NOOP column: the node this one is a copy of, value for value, or NULL. x: its first operand */
static ir_node *noop_clone(const ir_node *n, ir_node *x) { return x; }
static ir_node *noop_copy(const ir_node *n, ir_node *x) { return x; }
static ir_node *noop_one(const ir_node *n, ir_node *x) { return number_is(&n->arg[1], 1) ? x : NULL; }

static ir_node *noop_zero(const ir_node *n, ir_node *x) /* x - 0 keeps -0.0; x + 0 does not */
{
    return number_is(&n->arg[1], 0) && !__builtin_signbit(val_as_f(&n->arg[1])) && one_or_default(n, 2)
               ? x
               : NULL;
}

static ir_node *noop_twice(const ir_node *n, ir_node *x)
{
    return x->kind == IR_call && x->op == n->op && x->variant == OPV_fn && x->arg[0].kind == VAL_node
               ? x->arg[0].node
               : NULL;
}

typedef ir_node *noop_fn(const ir_node *n, ir_node *x);
static noop_fn *const noop[OP_COUNT] = {
#define NOOP(id, token) [OP_##id] = noop_##token,
#include "ops/ops.def"
};

static ir_node *copy_of(const ir_node *n)
{
    ir_node *x = n->narg && n->arg[0].kind == VAL_node ? n->arg[0].node : NULL;
    return x && noop[n->op] ? noop[n->op](n, x) : NULL;
}

static bool same_geometry(const ir_node *a, const ir_node *b)
{
    const tp_tensor *x = ir_type(a), *y = ir_type(b);
    return x && y && ir_type_equal(&a->val, &b->val) && x->offset == y->offset;
}

static bool is_returned(const ir_node *n)
{
    for (const ir_use *u = n->uses; u; u = u->next)
        if (u->user->kind == IR_output)
            return true;
    return false;
}

/* What a returned copy copies, through views that together change nothing, where that is a value in memory of its own which
 * nobody else looks at: a gradient that was turned twice on its way. Where gradients are recorded later, they would look. */
static ir_node *only_copied(const ir_node *n, const ir_graph *g)
{
    ir_node *x = noop[n->op] == noop_clone && !g->grad_mode && n->arg[0].kind == VAL_node ? n->arg[0].node
                                                                                          : NULL;
    const ir_node *seen =
        x; /* as the copy sees it: it may have the geometry of the value where this has not */
    while (x && x->nuse == 1 && x->kind == IR_call && x->variant == OPV_fn && !ir_is_marked(x)) {
        uint32_t f = op_row_of((op_id)x->op)->flags;
        if (!(f & (OPF_VIEW | OPF_MUT)) && ir_type(x))
            return same_geometry(seen, x) ? x : NULL;
        x = (f & OPF_VIEW) && x->arg[0].kind == VAL_node ? x->arg[0].node : NULL;
    }
    return NULL;
}

bool pass_noop(tp_comp *c, ir_graph *g)
{
    escape e;
    escape_init(&e, g);
    IR_EACH_SAFE (n, g) {
        if (n->kind != IR_call || n->variant != OPV_fn || ir_is_marked(n))
            continue;
        ir_node *x;
        if (same_memory(n, g)) {
            x = n->arg[0].kind == VAL_node ? n->arg[0].node : NULL;
            if (is_returned(n)) /* the caller gets a tensor of its own, not the one it passed in */
                continue;
        } else {
            x = escape_returned(&e, n) ? only_copied(n, g) : copy_of(n);
            if (!x || escape_written(&e, n) || escape_written(&e, x))
                continue;
        }
        if (!x || !same_geometry(n, x) || !decide(c, DECIDE_noop, n))
            continue;
        ir_replace_uses(n, x);
        ir_erase(n);
    }
    escape_free(&e);
    return true;
}
