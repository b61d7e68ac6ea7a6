/* pass_cse.c - common subexpressions. A call is looked up by operator, variant and operands, after its
 * operands were replaced; earlier nodes win. A write anywhere forgets everything: what was read before it may
 * differ after. */
#include "ir/pass.h"
#include "ir/planted.h"

typedef struct table {
    ir_node **slot;
    uint32_t *epoch; /* of each slot; older ones are empty */
    size_t mask;
    uint32_t now;
} table;

static uint64_t val_hash(uint64_t h, const tp_val *v)
{
    h = hash_mix(h, v->kind);
    switch (v->kind) {
    case VAL_none: return h;
    case VAL_float: return hash_mix(h, v->f != v->f ? 1 : (uint64_t)v->i);
    case VAL_bool: return hash_mix(h, v->b);
    case VAL_str: return hash_bytes(v->s, strlen(v->s), h);
    case VAL_device: return hash_mix(h, (uint64_t)v->dev.kind * 256 + (uint8_t)v->dev.index);
    case VAL_complex:
    case VAL_floats:
        for (int i = 0; i < v->n; i++)
            h = hash_mix(h, v->floats[i] != v->floats[i] ? 1 : (uint64_t)v->ints[i]);
        return hash_mix(h, (uint64_t)v->n);
    case VAL_ints:
    case VAL_nodes: return hash_bytes(v->n ? (const void *)v->ints : "", sizeof(symint) * (size_t)v->n, h);
    case VAL_bools: return hash_bytes(v->n ? (const void *)v->bools : "", (size_t)v->n, h);
    default: return hash_mix(h, (uint64_t)v->i);
    }
}

static uint64_t node_hash(const ir_node *n)
{
    uint64_t h = hash_mix(n->kind, (uint64_t)n->op * 4 + n->variant);
    for (int i = 0; i < n->narg; i++)
        h = val_hash(h, &n->arg[i]);
    return h;
}

static bool node_equal(const ir_node *a, const ir_node *b)
{
    if (a->kind != b->kind || a->op != b->op || a->variant != b->variant || a->narg != b->narg)
        return false;
    for (int i = 0; i < a->narg; i++)
        if (!ir_val_equal(&a->arg[i], &b->arg[i]))
            return false;
    return ir_type_equal(&a->val, &b->val);
}

/* The first equal node, or NULL after n was put in. */
static ir_node *twin(table *t, ir_node *n)
{
    size_t i = node_hash(n) & t->mask;
    while (t->slot[i] && t->epoch[i] == t->now) {
        if (node_equal(t->slot[i], n))
            return t->slot[i];
        i = (i + 1) & t->mask;
    }
    t->slot[i] = n;
    t->epoch[i] = t->now;
    return NULL;
}

static bool candidate(const ir_node *n)
{
    if (ir_is_marked(n))
        return false;
    if (n->kind == IR_getitem)
        return true;
    if (n->kind != IR_call || ir_node_is_effect(n))
        return false;
    return !ir_row_is_dyn(op_row_of((op_id)n->op));
}

bool pass_cse(tp_comp *c, ir_graph *g)
{
    table t = { .now = 1 };
    escape e;
    size_t cap = 16;

    while (cap < (size_t)g->nnode * 2)
        cap *= 2;
    t.mask = cap - 1;
    t.slot = mem_zalloc(sizeof *t.slot * cap);
    t.epoch = mem_zalloc(sizeof *t.epoch * cap);
    escape_init(&e, g);
    IR_EACH_SAFE (n, g) {
        if (ir_node_writes(n) || n->kind == IR_opaque)
            t.now++;
        if (!candidate(n) || escape_written(&e, n))
            continue;
        ir_node *same = twin(&t, n);
        if (!same || escape_written(&e, same) || (escape_returned(&e, n) && escape_returned(&e, same)))
            continue;
        if (!decide(c, DECIDE_cse, n))
            continue;
        if (escape_returned(&e, n)) /* the storage that now leaves is the other one */
            map_puti(&e.returned, (uintptr_t)(ir_type(same) ? ir_type(same)->storage : NULL), same);
        ir_replace_uses(n, same);
        ir_erase(n);
    }
    escape_free(&e);
    free(t.slot);
    free(t.epoch);
    return true;
}
