/* offsets.c - pooling that keeps a byte a result for backward. The indices that max_pool2d_with_indices returns are eight
 * bytes each; where backward alone reads them, which element of its window was the largest says the same. */
#include "aot/aot.h"

/* What a row can do with offsets instead of indices. */
enum { OFFSETS_forward = 1, OFFSETS_backward };
static const uint8_t offsets[OP_COUNT] = {
#define OFFSETS(id, token) [OP_##id] = OFFSETS_##token,
#include "ops/ops.def"
};

static const ir_node *item(const ir_node *of, int k)
{
    for (const ir_use *u = of->uses; u; u = u->next)
        if (u->user->kind == IR_getitem && u->user->arg[1].i == k)
            return u->user;
    return NULL;
}

static bool window_fits(const tp_val *k)
{
    symint n = 1;
    for (int i = 0; i < 2; i++) {
        symint v = k->kind == VAL_ints ? k->ints[k->n == 1 ? 0 : i] : k->i;
        if (sym_is_expr(v) || v < 1 || v > 127)
            return false;
        n *= v;
    }
    return n <= 127;
}

/* Do nothing but gradients of this very call read its indices? */
static bool for_backward(const ir_node *m)
{
    const ir_node *ix = item(m, 1);
    if (!ix || !ix->uses)
        return false;
    for (const ir_use *u = m->uses; u; u = u->next)
        if (u->user->kind != IR_getitem)
            return false;
    for (const ir_use *u = ix->uses; u; u = u->next) {
        const ir_node *b = u->user;
        if (b->kind != IR_call || offsets[b->op] != OFFSETS_backward || b->arg[7].kind != VAL_node ||
            b->arg[7].node != ix || b->arg[1].kind != VAL_node || !tensor_is_contiguous(ir_type(b)))
            return false;
        for (int i = 1; i < 6; i++)
            if (!ir_val_equal(&b->arg[i + 1], &m->arg[i]) &&
                !(m->arg[i].kind == VAL_ints && m->arg[i].n == 0 && ir_val_equal(&b->arg[i + 1], &m->arg[1])))
                return false;
    }
    return true;
}

static ir_node *build(ir_graph *g, ir_node *at, op_id op, const tp_val *arg, int n, tp_err *err)
{
    ir_node *c = ir_build(g, op, OPV_fn, arg, n, err);
    if (c) {
        ir_insert_before(g, at, c);
        c->loc = at->loc;
    }
    return c;
}

bool aot_pool_offsets(tp_comp *c, ir_graph *g)
{
    IR_EACH_SAFE (m, g) {
        if (m->kind != IR_call || offsets[m->op] != OFFSETS_forward || !window_fits(&m->arg[1]) ||
            !for_backward(m) || !decide(c, DECIDE_decomp, m))
            continue;
        ir_node *p = build(g, m, OP__max_pool2d_with_offsets, m->arg, m->narg, c->err);
        ir_node *of = p ? ir_build_item(g, p, 1, c->err) : NULL;
        if (!of)
            return false;
        ir_insert_before(g, m, of);
        ir_node *ix = (ir_node *)item(m, 1), *y = (ir_node *)item(m, 0);
        while (ix->uses) {
            ir_node *b = ix->uses->user;
            const tp_tensor *x = ir_type(b->arg[1].node);
            tp_val arg[7] = { b->arg[0],
                              { .kind = VAL_node, .node = of },
                              vIs(x->size, x->ndim),
                              b->arg[2],
                              b->arg[3],
                              b->arg[4],
                              b->arg[5] };
            ir_node *d = build(g, b, OP__max_pool2d_offsets_backward, arg, 7, c->err);
            if (!d)
                return false;
            if (b == next_)
                next_ = b->next;
            ir_replace_uses(b, d);
            ir_erase(b);
        }
        if (y) {
            ir_node *n = ir_build_item(g, p, 0, c->err);
            if (!n)
                return false;
            ir_insert_before(g, m, n);
            ir_replace_uses(y, n);
            if (y == next_)
                next_ = y->next;
            ir_erase(y);
        }
        if (ix == next_)
            next_ = ix->next;
        ir_erase(ix);
        ir_erase(m);
    }
    return true;
}
