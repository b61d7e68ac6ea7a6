/* choose.c - what exists in memory, what is computed where it is used, what stays a call. */
#include "loop/internal.h"
#include "events/events.h"

static void mark_sched(void *arg, ir_node *n)
{
    planner *pl = arg;
    if (n->kind == IR_call || n->kind == IR_opaque)
        pl->in[n->id].sched = true;
}

static bool cheap_to_repeat(const planner *pl, const ir_node *n)
{
    return known_view(pl, n) || is_fill(n) || is_arange(n) || is_copy(n) || band_of(n, NULL);
}

/* A library call reads memory: views of something that exists are made by the runtime, other values are stored. */
ir_node *behind_views(ir_node *n)
{
    while (n->kind == IR_call && (row_of(n)->flags & OPF_VIEW) && n->variant == OPV_fn &&
           n->val.kind == VAL_tensor && n->arg[0].kind == VAL_node)
        n = n->arg[0].node;
    return n;
}

void operand_in_memory(void *arg, ir_node *n) { mark_sched(arg, behind_views(n)); }

typedef struct leaf_count {
    planner *pl;
    int sum;
} leaf_count;

/* Long sums and the like are cut into parts that a kernel has buffers for. */
static void count_leaf(void *arg, ir_node *n)
{
    planner *pl = ((leaf_count *)arg)->pl;
    info *f = &pl->in[n->id];
    ((leaf_count *)arg)->sum += f->sched || f->memview || n->kind != IR_call ? 1 : f->leaves;
}

static void cut_operand(void *arg, ir_node *n)
{
    planner *pl = arg;
    if (pl->in[n->id].leaves > 1)
        mark_sched(pl, behind_views(n));
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
    d->most = MAX(d->most, f->sched ? 0 : f->depth);
}

/* An expression of a thousand operators is no kernel, and whoever walks it recursively runs out of stack. */
static void cut_deep(planner *pl)
{
    IR_EACH (n, pl->g) {
        info *f = &pl->in[n->id];
        if (n->kind != IR_call || f->sched || n->val.kind != VAL_tensor)
            continue;
        deeper d = { pl, 0 };
        ir_each_operand(n, operand_depth, &d);
        f->depth = d.most + 1;
        if (f->depth >= DEEP && !known_view(pl, n) && !f->memview)
            f->sched = true;
    }
}

/* Reductions of empty values are left to the library: loops that never run have nothing to index. */
static bool of_nothing(const ir_node *n)
{
    const tp_tensor *t = n->narg && n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL;
    return t && t->numel == 0;
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
        loop_gather g;
        const char *what = NULL, *call = NULL;
        if (n->kind != IR_call || n->variant != OPV_fn || !ir_type(n) || ir_type(n)->numel == 0)
            continue;
        if (n->op == OP_flip) {
            what = "a value at another index";
            for (int i = 0; i < n->arg[1].n; i++)
                if (dim_arg_of(n->arg[1].ints[i], ir_type(n)->ndim) == ir_type(n)->ndim - 1 &&
                    dtype_size((dtype)ir_type(n)->dt) != 4 && !pl->c->portable)
                    call = "only elements of four bytes are turned round in a vector";
        } else if (n->op == OP_repeat && n->arg[1].kind == VAL_ints && n->arg[1].n == ir_type(n)->ndim) {
            const tp_tensor *s = ir_type(n->arg[0].node);
            symint len = s->ndim ? s->size[s->ndim - 1] : 1;
            what = "a value at another index";
            if (len != 1 && n->arg[1].ints[n->arg[1].n - 1] != 1 && !sym_known(SYM_ge, len, 16) &&
                !pl->c->portable)
                call = "what is repeated is shorter than a vector";
        } else if ((n->op == OP_select_int || n->op == OP_slice_Tensor) && n->arg[2].kind == VAL_int &&
                   sym_is_expr(n->arg[2].i)) {
            what = "a symbolic place is part of the index";
            if (!sym_known(SYM_ge, n->arg[2].i, 0))
                call = "it may count from the end: the run makes the view";
            else if (n->op == OP_slice_Tensor && sym_is_expr(int_arg(n, 4, 1)))
                call = "its step is symbolic, too: the run makes the view";
        } else if (is_mirror(n)) {
            what = "a value at another index";
            if (ir_type(n)->stride[ir_type(n)->ndim - 1] != 1)
                call = "channels are mirrored one by one";
        } else if (n->op == OP_upsample_nearest2d || n->op == OP_upsample_nearest2d_backward) {
            bool back = n->op == OP_upsample_nearest2d_backward;
            const tp_tensor *o = n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL;
            int64_t k[2];
            what = back ? "elements that came of one are summed where the sum is used"
                        : "each element is read for several places";
            if (back ? !o || !enlarges(n, ir_type(n), o, 3, k) || k[1] > 2
                     : !enlarges(n, o, ir_type(n), 2, k))
                call = "places are not those of whole blocks";
        } else if (n->op == OP__max_pool2d_offsets_backward) {
            int64_t k[2];
            what = "each gradient is read for the places of its window";
            if (!tiles_image(n, k))
                call = "windows do not fill the image in blocks of two or four";
        } else if (n->op == OP_max_pool2d) /* made of max_pool2d_with_indices, see pools_alone */
            what = "windows are read where their maxima are used";
        else if (n->op == OP_avg_pool2d && n->arg[0].kind == VAL_node) {
            windows p;
            what = "windows are read where their means are used";
            call = n->arg[6].kind == VAL_int && (sym_is_expr(n->arg[6].i) || n->arg[6].i <= 0)
                       ? "its divisor is not a number yet"
                       : windows_of(n->arg, false, ir_type(n->arg[0].node), &p);
        } else if (is_draw(n) && n->arg[0].kind == VAL_node)
            what = "numbers are drawn where they are used";
        else if (loop_gather_of(n, &g) && !g.writes) {
            what = "read where its index points";
            call = gather_as_call(pl, n, &g);
        }
        if (!what)
            continue;
        if (!call && !decide(pl->c, DECIDE_lower, n))
            call = "refused";
        pl->in[n->id].folds = !call;
        log_lower(n, !call, call ? call : what);
    }
}

/* What a gather reads: its indices lie in memory, and so does its source where elements are read more than once. */
static void gather_operands(planner *pl, ir_node *n)
{
    loop_gather g;
    windows p;
    if (pl->in[n->id].folds && (n->op == OP_max_pool2d || n->op == OP_avg_pool2d) &&
        !windows_of(n->arg, n->op == OP_max_pool2d, ir_type(n->arg[0].node), &p) &&
        (p.k[0] * p.k[1] > 4 || p.step[0] < p.k[0] ||
         p.step[1] < p.k[1])) /* else elements are computed once */
        operand_in_memory(pl, n->arg[0].node);
    if (is_long_cat(n) || (pl->in[n->id].folds && is_mirror(n) && part_count(n)))
        pl->in[n->id].sched = true;
    if (pl->in[n->id].folds && (n->op == OP_upsample_nearest2d || n->op == OP_upsample_nearest2d_backward)) {
        if (n->op == OP_upsample_nearest2d) /* else elements are read once */
            operand_in_memory(pl, n->arg[0].node);
    } else if (pl->in[n->id].folds && n->op == OP__max_pool2d_offsets_backward) {
        operand_in_memory(pl, n->arg[0].node);
        operand_in_memory(pl, n->arg[1].node);
    } else if (pl->in[n->id].folds && (is_draw(n) || n->op == OP_repeat))
        operand_in_memory(pl, n->arg[0].node);
    if (!pl->in[n->id].folds || !loop_gather_of(n, &g))
        return;
    ir_node *src = n->arg[0].node;
    for (int d = 0; d < g.n; d++)
        if (g.d[d].index && !counts_up(pl, g.d[d].index, ir_type(src)->size[d]))
            operand_in_memory(pl, g.d[d].index);
    if (hint(ir_type(n)->numel) > hint(ir_type(src)->numel))
        operand_in_memory(pl, src);
}

/* Is it computed on the way, by operators that cost little? */
bool is_cheap(const ir_node *x, int depth)
{
    const op_schema *s;
    x = behind_views((ir_node *)x);
    if (x->kind != IR_call || !(row_of(x)->flags & OPF_PW) || !lower_of((op_id)x->op))
        return depth > 0;
    if (is_dear(x) || depth > 5)
        return false;
    s = &row_of(x)->schema;
    for (int i = 0; i < s->nparam; i++)
        if (x->arg[i].kind == VAL_node && !is_cheap(x->arg[i].node, depth + 1))
            return false;
    return true;
}

void choose_sched(planner *pl)
{
    find_low(pl);
    choose_folds(pl);
    IR_EACH (n, pl->g) {
        info *f = &pl->in[n->id];
        gather_operands(pl, n);
        if (n->kind == IR_opaque || (n->kind == IR_call && !is_inline(pl, n))) {
            f->sched = true;
            const char *why = NULL;
            if (n->kind == IR_call && !of_nothing(n) && reduction(n, &f->mask, &f->rkind)) {
                why = is_place(f->rkind) ? place_as_call(pl->c, n) : NULL;
                f->red = !why;
                if (f->red)
                    continue;
                log_lower(n, false, why);
            }
            if (n->kind == IR_call && scan_fits(pl, n)) {
                f->scan = true;
                continue;
            }
            if (n->kind == IR_call && put_fits(pl, n)) {
                f->put = true;
                continue;
            }
            f->ext = !(n->kind == IR_call && (row_of(n)->flags & OPF_VIEW) && n->val.kind == VAL_tensor);
            if (!f->ext) { /* a view this stage does not know: made by the runtime over memory */
                f->sched = false;
                f->memview = true;
                mark_sched(pl, behind_views(n));
            } else
                ir_each_operand(n, operand_in_memory, pl);
        } else if (n->kind == IR_call && n->nuse > 1 && !cheap_to_repeat(pl, n))
            f->sched = true;
        else if (n->kind == IR_call && covered(pl, n) && !decide(pl->c, DECIDE_fuse, n))
            f->sched = true; /* a loop of its own for what could be computed where it is used */
        else if (n->kind == IR_call && (n->op == OP_select_backward || n->op == OP_slice_backward))
            operand_in_memory(pl, n->arg[0].node); /* else it would be computed for the zeros too */
        else if (n->kind == IR_output)
            ir_each_operand(n, operand_in_memory, pl);
    }
    /* operands of reductions through several uses etc. are inlined as any other; views that the runtime makes must
     * have memory under them */
    IR_EACH (n, pl->g)
        if (pl->in[n->id].memview)
            mark_sched(pl, behind_views(n));
    cut_deep(pl);
    for (ir_node *n = pl->g->last; n; n = n->prev) { /* no kernels for values without elements */
        info *f = &pl->in[n->id];
        if (n->kind != IR_call || !f->sched || f->ext || f->red || !ir_type(n) || ir_type(n)->numel != 0)
            continue;
        f->ext = true;
        ir_each_operand(n, operand_in_memory, pl);
    }
    count_leaves(pl);
}
