/* lower.c - the value of an expression at an index: read from memory, taken from the group, or computed by the lowering of
 * its operator. A dry run gathers what is read and where; otherwise instructions are emitted. */
#include "loop/internal.h"

const lowering lower_none = { 0 };
static const lowering *const table[OP_COUNT] = {
#define OP(id, schema, shape, eager, vjp, decomp, lower, flags, py) [OP_##id] = &lower_##lower,
#include "ops/ops.def"
};

const lowering *lower_op(op_id op) { return table[op]; }
/* Complex numbers and types that are only stored have no lowering: such a node stays a call of its row. */
static bool plain_list(const tp_val *v)
{
    for (int i = 0; v->kind == VAL_nodes && i < v->n; i++)
        if (v->nodes[i] && v->nodes[i]->val.kind == VAL_tensor &&
            !dtype_is_plain((dtype)v->nodes[i]->val.t->dt))
            return false;
    for (int i = 0; v->kind == VAL_tensors && i < v->n; i++)
        if (v->ts[i] && !dtype_is_plain((dtype)v->ts[i]->dt))
            return false;
    return true;
}
static inline bool is_plain(const tp_val *v)
{
    if (v->kind == VAL_node)
        return v->node->val.kind != VAL_tensor || dtype_is_plain((dtype)v->node->val.t->dt);
    if (v->kind == VAL_tensor)
        return dtype_is_plain((dtype)v->t->dt);
    /* the kinds before are numbers and the like */
    return v->kind < VAL_complex || (v->kind != VAL_complex && plain_list(v));
}
static bool all_plain(const ir_node *n)
{
    bool plain = is_plain(&n->val);
    for (int i = 0; plain && i < n->narg; i++)
        plain = is_plain(&n->arg[i]);
    return plain;
}
const lowering *lower_row(const ir_node *n)
{
    if (n->kind != IR_call || n->variant != OPV_fn)
        return &lower_none;
    const lowering *l = table[n->op];
    return l == &lower_none || all_plain(n) ? l : &lower_none;
}
lower_fn *lower_of(op_id op) { return table[op]->scalar; }

ir_node *operand(const ir_node *n, int i) { return n->arg[i].kind == VAL_node ? n->arg[i].node : NULL; }

/* Computed element by element from its operands: no loop of its own. */
bool is_inline(planner *pl, const ir_node *n)
{
    if (n->kind != IR_call || n->val.kind != VAL_tensor)
        return false;
    return pl->in[n->id].folds || (lower_row(n)->fits && lower_row(n)->fits(pl, n));
}

int part_count(const ir_node *n) { return lower_row(n)->parts ? lower_row(n)->parts->count(n) : 0; }
int part_dim(const ir_node *n) { return lower_row(n)->parts->dim(n); }
symint part_size(const ir_node *n, int i) { return lower_row(n)->parts->size(n, i); }
symint part_at(const ir_node *n, int i)
{
    symint at = 0;
    for (int k = 0; k < i; k++)
        at = sym_add(at, part_size(n, k));
    return at;
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
    if (n == w->self && f->scatter)
        return eval(w, n->arg[0].node, idx);
    if (n != w->self) {
        if (f->g && f->g == w->g && !f->library_call) {
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
        if (f->materialized || f->memview || n->kind == IR_placeholder || n->kind == IR_const ||
            n->kind == IR_getitem)
            return emit_load(w, n, idx);
    }
    ir_crumb(n);
    return lower_row(n)->value(w, n,
                               idx); /* its frame is not this one, which deep expressions have a hundred of */
}
