/* choose.c - what exists in memory, what is computed where it is used, what stays a call. */
#include "loop/internal.h"
#include "events/events.h"
#include <limits.h>

static void mark_materialized(void *arg, ir_node *n)
{
    planner *pl = arg;
    if (n->kind == IR_call || n->kind == IR_opaque)
        pl->in[n->id].materialized = true;
}

static bool cheap_to_repeat(planner *pl, const ir_node *n)
{
    return (lower_row(n)->cheap && lower_row(n)->fits(pl, n)) || causal_band_of(n, NULL);
}

/* A library call reads memory: views of something that exists are made by the runtime, other values are stored. */
ir_node *beyond_views(ir_node *n)
{
    while (n->kind == IR_call && (row_of(n)->flags & OPF_VIEW) && n->variant == OPV_fn &&
           n->val.kind == VAL_tensor && n->arg[0].kind == VAL_node)
        n = n->arg[0].node;
    return n;
}

/* Bytes that each element of t reads from memory when x is computed on the way; INT_MAX: too many operations. Small operands, which
 * are spread over t, count nothing. */
static int bytes_on_the_way(planner *pl, const tp_tensor *t, ir_node *x, int depth)
{
    enum { DEEPEST = 3, SMALL = 16 };
    x = beyond_views(x);
    const tp_tensor *is = ir_type(x);
    if (!is || sym_is_expr(is->numel))
        return INT_MAX;
    if (is->numel <= t->numel / SMALL)
        return 0;
    if (x->kind != IR_call || pl->in[x->id].materialized || !is_inline(pl, x))
        return is->numel == t->numel ? (int)dtype_size((dtype)is->dt) : INT_MAX;
    if (depth == DEEPEST || is_costly(x) || !(row_of(x)->flags & OPF_PW || lower_row(x)->cheap))
        return INT_MAX;
    int sum = 0;
    for (int i = 0; i < x->narg; i++) {
        int n = x->arg[i].kind == VAL_node    ? bytes_on_the_way(pl, t, x->arg[i].node, depth + 1)
                : x->arg[i].kind == VAL_nodes ? INT_MAX
                                              : 0;
        if (n == INT_MAX)
            return INT_MAX;
        sum += n;
    }
    return sum;
}

/* Does a sum read n, on the way, whose rows lie side by side in memory? Kernels that take whole rows share what they compute: false where
 * one of those reads it as well. */
static bool feeds_columns(ir_node *n, int *looks, bool *rows)
{
    bool columns = false;
    for (const ir_use *u = n->uses; u && --*looks > 0 && !*rows; u = u->next) {
        ir_node *x = u->user;
        const tp_tensor *t = ir_type(n);
        uint32_t mask = 0;
        uint8_t kind;
        if (x->kind != IR_call || !t)
            continue;
        if (reduction(x, &mask, &kind)) {
            bool inner = false;
            for (int d = 0; d < t->ndim; d++)
                inner |= mask >> d & 1 && t->size[d] != 1 && t->stride[d] == 1;
            *rows |= inner;
            columns |= !inner;
        } else if (row_of(x)->flags & (OPF_PW | OPF_VIEW))
            columns |= feeds_columns(x, looks, rows);
    }
    return columns && !*rows;
}

/* Several kernels read it: is it better computed in each of them than written once? */
static bool less_to_repeat(planner *pl, ir_node *n)
{
    enum { LARGE = 1 << 18 };
    const tp_tensor *t = ir_type(n);
    bool rows = false;
    int looks = 64; /* of a graph with more it is not asked */
    return pl->c->caps->repeats && t && !sym_is_expr(t->numel) && t->numel >= LARGE &&
           bytes_on_the_way(pl, t, n, 0) <= (int)dtype_size((dtype)t->dt) &&
           feeds_columns(n, &looks, &rows) && looks > 0 && decide(pl->c, DECIDE_fuse, n);
}

/* Computed on the way to x, does it cost much? */
static bool costs_much(planner *pl, ir_node *x, int depth)
{
    bool much = false;
    x = beyond_views(x);
    if (x->kind != IR_call || pl->in[x->id].materialized || !is_inline(pl, x) || depth > 4)
        return false;
    much = is_costly(x) || lower_row(x)->divides;
    for (int i = 0; i < x->narg && !much; i++)
        much = x->arg[i].kind == VAL_node && costs_much(pl, x->arg[i].node, depth + 1);
    return much;
}

/* Few values that cost much, spread over many elements (the square roots of a normalisation of channels): computed once, not for each. */
static bool costs_once(planner *pl, ir_node *n)
{
    enum { LARGE = 1 << 20, FEW = 64 };
    const tp_tensor *t = ir_type(n);
    if (!pl->c->caps->repeats || !t || sym_is_expr(t->numel) || !lower_of((op_id)n->op) || t->numel < 2)
        return false;
    for (const ir_use *u = n->uses; u; u = u->next) {
        const ir_node *x = u->user;
        while (x->kind == IR_call && row_of(x)->flags & OPF_VIEW && x->nuse == 1 && ir_type(x) &&
               sym_known(SYM_eq, ir_type(x)->numel, t->numel))
            x = x->uses->user;
        const tp_tensor *wide = x->kind == IR_call && lower_of((op_id)x->op) ? ir_type(x) : NULL;
        if (wide && !sym_is_expr(wide->numel) && wide->numel >= LARGE && wide->numel / FEW >= t->numel)
            return costs_much(pl, n, 0) && decide(pl->c, DECIDE_fuse, n);
    }
    return false;
}

/* Inside a kernel values of narrow floats are floats: so they stay where one is stored for the kernels that would compute it. False: others
 * read it. */
static bool stay_floats(planner *pl, ir_node *n)
{
    if (!is_half(ir_type(n)))
        return true;
    for (const ir_use *u = n->uses; u; u = u->next)
        if (u->user->kind != IR_call || !lower_of((op_id)u->user->op))
            return false;
    tp_tensor *t = tensor_fake_of(ir_type(n));
    t->dt = DT_f32;
    vec_push(&pl->g->keep, t);
    n->val.t = t;
    return true;
}

/* A border around what lies in memory: whoever reads it reads no more there than in a copy with the border. What it is put around is
 * computed once. */
static bool is_border(planner *pl, ir_node *n)
{
    if (!pl->c->caps->repeats || !lower_row(n)->borders || !is_inline(pl, n) || n->arg[0].kind != VAL_node ||
        !decide(pl->c, DECIDE_fuse, n))
        return false;
    mark_materialized(pl, beyond_views(n->arg[0].node));
    return true;
}

void operand_in_memory(void *arg, ir_node *n) { mark_materialized(arg, beyond_views(n)); }

typedef struct leaf_count {
    planner *pl;
    int sum;
} leaf_count;

/* Long sums and the like are cut into parts that a kernel has buffers for. */
static void count_leaf(void *arg, ir_node *n)
{
    planner *pl = ((leaf_count *)arg)->pl;
    info *f = &pl->in[n->id];
    ((leaf_count *)arg)->sum += f->materialized || f->memview || n->kind != IR_call ? 1 : f->leaves;
}

static void cut_operand(void *arg, ir_node *n)
{
    planner *pl = arg;
    if (pl->in[n->id].leaves > 1)
        mark_materialized(pl, beyond_views(n));
}

static void count_leaves(planner *pl)
{
    IR_EACH (n, pl->g) {
        if (n->kind != IR_call)
            continue;
        leaf_count c = { pl, 0 };
        ir_each_operand(n, count_leaf, &c);
        if (c.sum > MAX_LEAVES) {
            ir_each_operand(n, cut_operand, pl);
            c.sum = 0;
            ir_each_operand(n, count_leaf, &c);
        }
        pl->in[n->id].leaves = c.sum;
    }
}

typedef struct deeper {
    planner *pl;
    int most;
} deeper;

static void operand_depth(void *arg, ir_node *x)
{
    deeper *d = arg;
    const info *f = &d->pl->in[x->id];
    d->most = MAX(d->most, f->materialized ? 0 : f->depth);
}

/* An expression of a thousand operators is no kernel, and whoever walks it recursively runs out of stack. */
static void cut_deep(planner *pl)
{
    IR_EACH (n, pl->g) {
        info *f = &pl->in[n->id];
        if (n->kind != IR_call || f->materialized || n->val.kind != VAL_tensor)
            continue;
        deeper d = { pl, 0 };
        ir_each_operand(n, operand_depth, &d);
        f->depth = d.most + 1;
        if (f->depth >= DEEP && !known_view(pl, n) && !f->memview)
            f->materialized = true;
    }
}

void log_lower(const ir_node *n, bool yes, const char *why)
{
    if (ev_text_on(EV_fusion))
        ev_text(EV_fusion, NULL, "%s %s: %s", yes ? "computed inside kernels:" : "left as a call:", n->name,
                why);
}

/* Does another step of a kernel read it? */
bool feeds_kernels(planner *pl, const ir_node *n)
{
    uint32_t mask;
    uint8_t kind;
    for (const ir_use *u = n->uses; u; u = u->next)
        if (is_inline(pl, u->user) || reduction(u->user, &mask, &kind))
            return true;
    return false;
}

/* Operators that are calls as well: which of them are computed in the kernels of their users? */
static void choose_folds(planner *pl)
{
    for (ir_node *n = pl->g->last; n; n = n->prev) { /* users first */
        const lowering *l = lower_row(n);
        if (!l->folds || !ir_type(n) || ir_type(n)->numel == 0)
            continue;
        ir_crumb(n);
        const char *what = NULL, *call = l->folds(pl, n, &what);
        if (!what)
            continue;
        if (!call && !decide(pl->c, DECIDE_lower, n))
            call = "refused";
        pl->in[n->id].folds = !call;
        log_lower(n, !call, call ? call : what);
    }
}

/* Is it computed on the way, by operators that cost little? */
bool is_cheap(const ir_node *x, int depth)
{
    const op_schema *s;
    x = beyond_views((ir_node *)x);
    if (x->kind != IR_call || !(row_of(x)->flags & OPF_PW) || !lower_of((op_id)x->op))
        return depth > 0;
    if (is_costly(x) || depth > 5)
        return false;
    s = &row_of(x)->schema;
    for (int i = 0; i < s->nparam; i++)
        if (x->arg[i].kind == VAL_node && !is_cheap(x->arg[i].node, depth + 1))
            return false;
    return true;
}

void choose_materialized(planner *pl)
{
    find_low(pl);
    choose_folds(pl);
    IR_EACH (n, pl->g) {
        info *f = &pl->in[n->id];
        const lowering *l = lower_row(n);
        ir_crumb(n);
        if (l->operands)
            l->operands(pl, n);
        if (n->kind == IR_opaque || (n->kind == IR_call && !is_inline(pl, n))) {
            f->materialized = true;
            if (l->loops && l->loops(pl, n))
                continue;
            f->library_call = !(n->kind == IR_call && (row_of(n)->flags & OPF_VIEW) &&
                                n->val.kind == VAL_tensor);
            if (!f->library_call) { /* a view this stage does not know: made by the runtime over memory */
                f->materialized = false;
                f->memview = true;
                mark_materialized(pl, beyond_views(n));
            } else
                ir_each_operand(n, operand_in_memory, pl);
        } else if (n->kind == IR_call && n->nuse > 1 && !cheap_to_repeat(pl, n) && !less_to_repeat(pl, n) &&
                   !is_border(pl, n))
            f->materialized = true;
        else if (n->kind == IR_call && costs_once(pl, n) && stay_floats(pl, n))
            f->materialized = true;
        else if (l->scalar && !decide(pl->c, DECIDE_fuse, n))
            f->materialized = true; /* a loop of its own for what could be computed where it is used */
        else if (n->kind == IR_output)
            ir_each_operand(n, operand_in_memory, pl);
    }
    /* operands of reductions through several uses etc. are inlined as any other; views that the runtime makes must
     * have memory under them */
    IR_EACH (n, pl->g)
        if (pl->in[n->id].memview)
            mark_materialized(pl, beyond_views(n));
    cut_deep(pl);
    for (ir_node *n = pl->g->last; n; n = n->prev) { /* no kernels for values without elements */
        info *f = &pl->in[n->id];
        if (n->kind != IR_call || !f->materialized || f->library_call || f->red || !ir_type(n) ||
            ir_type(n)->numel != 0)
            continue;
        f->library_call = true;
        ir_each_operand(n, operand_in_memory, pl);
    }
    choose_in_place(pl);
    count_leaves(pl);
}
