/* draws.c - random numbers in two steps: one reserves a place in the generator's sequence, in the order of the program; the
 * other draws there and is a pure function of the place. So kernels draw where numbers are used, and backward draws them again
 * instead of keeping a mask. */
#include "aot/aot.h"

/* Vectors of numbers share the work where rows of them begin with a block of four. */
static bool worth_it(const tp_tensor *t)
{
    return t->dt == DT_f32 && t->ndim && tensor_is_contiguous(t) &&
           (t->ndim == 1 || sym_known(SYM_eq, sym_mod(t->size[t->ndim - 1], 4), 0));
}

bool aot_draws(tp_comp *c, ir_graph *g)
{
    IR_EACH_SAFE(n, g)
    {
        if (n->kind != IR_call || n->variant != OPV_fn || (n->op != OP_rand && n->op != OP_rand_like) ||
            n->arg[1].kind == VAL_gen || !worth_it(ir_type(n)) || !decide(c, DECIDE_decomp, n))
            continue;
        const tp_tensor *t = ir_type(n);
        ir_node *place = ir_build(g, OP__rng_reserve, OPV_fn, &vI(sym_floordiv(sym_add(t->numel, 3), 4)), 1,
                                  c->err);
        if (!place)
            return false;
        ir_insert_before(g, n, place);
        tp_val arg[2] = { { .kind = VAL_node, .node = place }, vIs(t->size, t->ndim) };
        ir_node *u = ir_build(g, OP__philox_uniform, OPV_fn, arg, 2, c->err);
        if (!u)
            return false;
        ir_insert_before(g, n, u);
        place->loc = u->loc = n->loc;
        ir_replace_uses(n, u);
        ir_erase(n);
    }
    return true;
}
