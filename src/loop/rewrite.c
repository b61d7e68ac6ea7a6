/* rewrite.c - graph to graph, before anything is chosen: forms that loops can be written for. */
#include "loop/internal.h"
#include "ops/custom.h"
#include "events/events.h"

/* A transpose of a transpose. */
bool rewrite_there_and_back(planner *pl, ir_node *n, ir_node **next)
{
    ir_node *back = operand(n, 0), *x = back && lower_row(back) == lower_row(n) ? operand(back, 0) : NULL;
    if (!x || ir_type(n)->ndim != 2 || !ir_type_equal(&x->val, &n->val) || !decide(pl->c, DECIDE_fuse, n))
        return true;
    ir_replace_uses(n, x);
    ir_erase(n);
    if (!back->nuse)
        ir_erase(back);
    return true;
}

/* x + a b, where x is itself a sum of products: the product is added to x where it lies. A weight that is used at every
 * step of a loop gets its gradient this way, without a matrix for each step. */
bool rewrite_accumulate(planner *pl, ir_node *n, ir_node **next)
{
    if (n->arg[0].kind != VAL_node || n->arg[1].kind != VAL_node || !is_known_number(&n->arg[2]) ||
        val_as_f(&n->arg[2]) != 1)
        return true;
    for (int i = 1; i >= 0; i--) {
        ir_node *e = n->arg[i].node, *x = n->arg[1 - i].node;
        bool plain = lower_row(e)->factor == 0 + 1; /* nothing is added in it */
        if (e == x || !plain || is_half(ir_type(n)) || e->nuse != 1 || x->nuse != 1 || !is_product(pl, e) ||
            !(map_geti(&pl->sums, (uintptr_t)x) || is_product(pl, x)) || ir_type(x)->ndim != 2 ||
            !ir_type_equal(&x->val, &n->val) || !ir_type_equal(&e->val, &n->val) ||
            !decide(pl->c, DECIDE_fuse, n))
            continue;
        tp_val arg[5] = { { .kind = VAL_node, .node = x }, e->arg[0], e->arg[1], vI(1), vI(1) };
        ir_node *m = ir_add_call(pl->g, OP_addmm, OPV_fn, arg, 5, vT(tensor_ref(n->val.t)));
        m->loc = n->loc;
        map_puti(&pl->sums, (uintptr_t)m, m);
        ir_insert_before(pl->g, n, m);
        ir_replace_uses(n, m);
        ir_erase(n);
        ir_erase(e);
        if (ev_text_on(EV_fusion))
            ev_text(EV_fusion, NULL, "fused %s with %s: a product is added to where the sum lies", m->name,
                    x->name);
        break;
    }
    return true;
}

/* A call on a tensor that has elements, whose results are asked for one by one: they can be made apart.
 * both: more than one of them is wanted. */
static bool is_pair(const ir_node *n, bool *both)
{
    if (!n->uses || n->arg[0].kind != VAL_node || n->arg[1].kind != VAL_int)
        return false;
    const tp_tensor *x = ir_type(n->arg[0].node);
    bool plain = x->ndim && x->dt != DT_bool;
    *both = false;
    for (int d = 0; d < x->ndim; d++)
        plain &= sym_known(SYM_gt, x->size[d], 0);
    for (const ir_use *u = n->uses; u; u = u->next) {
        plain &= u->user->kind == IR_getitem && u->user->arg[1].kind == VAL_int &&
                 u->user->val.kind == VAL_tensor;
        *both |= u->user->arg[1].i != n->uses->user->arg[1].i;
    }
    return plain;
}

/* The first result of n that is still asked for comes from a call of its own. next: where the caller's walk goes on. */
static void item_apart(ir_graph *g, ir_node *n, op_id op, const tp_val *arg, int narg, ir_node **next)
{
    ir_node *item = n->uses->user, *m = ir_add_call(g, op, OPV_fn, arg, narg, vT(tensor_ref(item->val.t)));
    m->loc = item->loc;
    ir_insert_before(g, item, m);
    ir_replace_uses(item, m);
    if (item == *next)
        *next = item->next;
    ir_erase(item);
}

/* Parts of a split are slices, which fold into the index of whoever reads them; the call itself goes. */
static bool split_parts(planner *pl, ir_node *n, ir_node **next, bool one)
{
    if (n->val.kind != VAL_tensors || n->arg[0].kind != VAL_node)
        return true;
    int dim = dim_arg(n, one ? 1 : 2, ir_type(n->arg[0].node)->ndim);
    bool plain = n->val.n > 0;
    for (ir_use *u = n->uses; u; u = u->next)
        plain &= u->user->kind == IR_getitem && u->user->arg[1].kind == VAL_int &&
                 !sym_is_expr(u->user->arg[1].i) && u->user->arg[1].i >= 0 && u->user->arg[1].i < n->val.n &&
                 u->user->val.kind == VAL_tensor;
    if (!plain || !decide(pl->c, DECIDE_fuse, n))
        return true;
    while (n->uses) {
        int at = (int)n->uses->user->arg[1].i;
        symint lo = 0;
        for (int k = 0; k < at && !one; k++)
            lo = sym_add(lo, n->val.ts[k]->size[dim]);
        if (one)
            item_apart(pl->g, n, OP_select_int, (tp_val[]){ n->arg[0], vI(dim), vI(at) }, 3, next);
        else
            item_apart(
                pl->g, n, OP_slice_Tensor,
                (tp_val[]){ n->arg[0], vI(dim), vI(lo), vI(sym_add(lo, n->val.ts[at]->size[dim])), vI(1) }, 5,
                next);
    }
    if (ev_text_on(EV_fusion))
        ev_text(EV_fusion, NULL, "parts of %s are read where they lie", n->name);
    ir_erase(n);
    return true;
}
bool rewrite_split(planner *pl, ir_node *n, ir_node **next) { return split_parts(pl, n, next, false); }
bool rewrite_unbind(planner *pl, ir_node *n, ir_node **next) { return split_parts(pl, n, next, true); }

/* The largest of a row and its place are two reductions, of which a kernel computes those that somebody wants. */
bool rewrite_extreme(planner *pl, ir_node *n, ir_node **next)
{
    bool both;
    if (!is_pair(n, &both))
        return true;
    const char *why = place_as_call(pl->c, n);
    if (!why && !decide(pl->c, DECIDE_lower, n))
        why = "refused";
    log_lower(n, !why, why ? why : "an extreme and its place are reductions");
    if (why)
        return true;
    bool max = lower_row(n)->kind == RED_max;
    symint dim = dim_arg(n, 1, ir_type(n->arg[0].node)->ndim);
    while (n->uses) {
        bool place = n->uses->user->arg[1].i == 1;
        tp_val arg[3] = { n->arg[0], place ? vI(dim) : vIs(&dim, 1), n->arg[2] };
        item_apart(pl->g, n, place ? (max ? OP_argmax : OP_argmin) : max ? OP_amax : OP_amin, arg, 3, next);
    }
    ir_erase(n);
    return true;
}

/* Running extremes and their places are two kernels: where one of them is asked for, and where calls cannot be made. */
bool rewrite_scan(planner *pl, ir_node *n, ir_node **next)
{
    bool both;
    if (!is_pair(n, &both))
        return true;
    const tp_tensor *x = ir_type(n->arg[0].node);
    bool rows = dim_arg(n, 1, x->ndim) == x->ndim - 1, place = n->uses->user->arg[1].i == 1;
    const char *why = !pl->c->caps->library ? NULL
                      : both                ? "both results are asked for: the call makes them at once"
                      : place && (rows || dtype_size((dtype)x->dt) < 8)
                          ? "the call keeps places in lanes as narrow as its elements"
                      : rows && hint(x->size[x->ndim - 1]) > 4096 && !is_cheap(n->arg[0].node, 0)
                          ? "the call copies what there is where nothing better comes"
                      : decide(pl->c, DECIDE_lower, n) ? NULL
                                                       : "refused";
    log_lower(n, !why, why ? why : "running extremes and their places are kernels");
    if (why)
        return true;
    tp_val arg[3] = { n->arg[0], n->arg[1], vB(lower_row(n)->kind == RED_max) };
    while (n->uses)
        item_apart(pl->g, n, n->uses->user->arg[1].i == 1 ? OP__cum_place : OP__cum_extreme, arg, 3, next);
    ir_erase(n);
    return true;
}

/* One result of many elements would keep one thread busy: it is made of parts, as many whatever the number of threads, and
 * these are then reduced. Narrow types are left alone, because parts of them would be rounded. */
static int64_t parts_of(const target_caps *caps, const ir_node *n)
{
    bool sum = lower_row(n)->kind == RED_sum;
    if (n->arg[0].kind != VAL_node)
        return 0;
    const tp_tensor *x = ir_type(n->arg[0].node), *y = ir_type(n);
    if (!x || !y || !sym_all_const(x->size, x->ndim) || !tensor_is_contiguous(x) ||
        (y->dt != DT_f32 && y->dt != DT_f64 && y->dt != DT_i64) || (!sum && x->dt != y->dt))
        return 0;
    int64_t all = shape_numel(x->ndim, x->size), parts = caps->parts_most;
    if (!caps->parts_worth || all < caps->parts_worth || !sym_all_const(y->size, y->ndim) ||
        shape_numel(y->ndim, y->size) != 1)
        return 0;
    while (parts >= caps->parts_least && all % parts)
        parts--;
    return parts >= caps->parts_least ? parts : 0;
}

/* Is it a sum over all dimensions but that of the channels, which come last in memory? */
static bool sums_to_channels(const ir_node *n, const tp_tensor *x)
{
    memfmt f = x->ndim == 4 ? MF_channels_last : x->ndim == 5 ? MF_channels_last_3d : MF_contiguous;
    uint64_t seen = 0;
    if (f == MF_contiguous || n->arg[1].n != x->ndim - 1 || !tensor_is_contiguous_as(x, f))
        return false;
    for (int i = 0; i < n->arg[1].n; i++)
        seen |= 1ull << dim_arg_of(n->arg[1].ints[i], x->ndim);
    return seen == ((1ull << x->ndim) - 1 - 2);
}

/* Both sums wait for their rows one after the other; the first has more to read. On a machine of many threads, more of them than run
 * at once wait for each other, and the second sum takes whole rows of partial results (sum_by_parts). */
static int64_t column_cost(const target_caps *caps, int64_t rows, int64_t columns, int64_t parts)
{
    enum { OF_A_ROW = 64 };
    if (!caps->column_threads)
        return 3 * (rows / parts) + parts;
    int64_t turns = (parts * columns + caps->column_threads - 1) / caps->column_threads;
    return rows / parts * MAX(turns, 1) + parts / OF_A_ROW;
}

/* A sum over the first dimensions of many rows: the same, with columns. Groups are of whole first dimensions and a share of the
 * next one, so that nobody divides to find a row; where that makes few of them, any share of all rows. */
static int64_t column_parts_of(const target_caps *caps, const ir_node *n)
{
    enum { LEAST_ROWS = 16 }; /* of a part */
    const tp_tensor *x = n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL, *y = ir_type(n);
    if (!caps->column_parts || n->op != OP_sum_dim_IntList || n->arg[1].kind != VAL_ints || !x || !y ||
        !n->arg[1].n || n->arg[1].n >= x->ndim || !sym_all_const(x->size, x->ndim) || !x->numel ||
        !dtype_is_float((dtype)x->dt) || !dtype_is_float((dtype)y->dt))
        return 0;
    bool channels = sums_to_channels(n, x);
    int64_t rows = 1, size[TP_MAX_DIMS];
    uint64_t seen = 0;
    for (int i = 0; i < n->arg[1].n; i++)
        seen |= 1ull << dim_arg_of(n->arg[1].ints[i], x->ndim);
    if (!channels && (!tensor_is_contiguous(x) || seen != (1ull << n->arg[1].n) - 1))
        return 0;
    for (int i = 0; i < n->arg[1].n; i++)
        rows *= size[i] = x->size[channels && i ? i + 1 : i];
    if (rows < 4 * LEAST_ROWS || x->numel < caps->parts_worth ||
        (caps->column_enough && x->numel / rows >= (int64_t)caps->column_enough * caps->column_chunk))
        return 0;
    int64_t best = 0, least = 0, before = 1, columns = x->numel / rows,
            most = MIN((int64_t)caps->column_parts, rows / LEAST_ROWS);
    for (int i = 0; i < n->arg[1].n; before *= size[i++])
        for (int64_t d = 1; d <= size[i] && before * d <= most; d++) {
            int64_t k = before * d, cost = column_cost(caps, rows, columns, k);
            if (size[i] % d == 0 && k > 3 && (!best || cost < least))
                best = k, least = cost;
        }
    int64_t follows = best, easy = least;
    for (int64_t k = 4; !caps->column_enough && k <= most; k++) {
        int64_t cost = rows % k ? INT64_MAX : column_cost(caps, rows, columns, k);
        if (cost != INT64_MAX && (!follows || 2 * cost < easy) && (!best || cost < least))
            best = k, least = cost;
    }
    return best;
}

/* A sum over the first dimension and others, with few results, as of a batch norm: groups of the first dimension. */
static int64_t batch_parts_of(const target_caps *caps, const ir_node *n)
{
    const tp_tensor *x = n->arg[0].kind == VAL_node ? ir_type(n->arg[0].node) : NULL, *y = ir_type(n);
    if (!caps->column_parts || n->op != OP_sum_dim_IntList || n->arg[1].kind != VAL_ints || !x || !y ||
        n->arg[1].n < 2 || n->arg[1].n >= x->ndim || x->ndim + 1 > TP_MAX_DIMS ||
        !sym_all_const(x->size, x->ndim) || !tensor_is_contiguous(x) || !dtype_is_float((dtype)x->dt) ||
        !dtype_is_float((dtype)y->dt) || !y->numel || y->numel >= caps->few_results ||
        x->numel < caps->parts_worth || x->numel / y->numel < 2048)
        return 0;
    bool first = false;
    for (int i = 0; i < n->arg[1].n; i++)
        first |= dim_arg_of(n->arg[1].ints[i], x->ndim) == 0;
    int64_t most = MIN(MIN((int64_t)caps->column_parts, x->size[0]), caps->few_results / y->numel);
    while (first && most > 1 && x->size[0] % most)
        most--;
    return first && most > 1 ? most : 0;
}

/* x as (parts, rows of each, ...), summed over what n sums over but its parts, in floats; then over the parts; as n's result. */
static bool sum_by_parts(planner *pl, ir_node *n, ir_node *x, const symint *size, int ndim,
                         const symint *dims, int ndims, int64_t parts)
{
    const tp_tensor *y = ir_type(n);
    dtype dt = (dtype)y->dt, wide = dt == DT_f64 ? DT_f64 : DT_f32;
    symint zero = 0;
    ir_node *m = x;
    for (int k = 0; k < 4; k++) {
        tp_val of = { .kind = VAL_node, .node = m };
        m = k == 1 || k == 2
                ? ir_build(pl->g, OP_sum_dim_IntList, OPV_fn,
                           (tp_val[]){ of, k == 1 ? vIs(dims, ndims) : vIs(&zero, 1), vB(false),
                                       vDT(k == 1 ? wide : dt) },
                           4, pl->c->err)
                : ir_build(pl->g, OP_view, OPV_fn,
                           (tp_val[]){ of, k ? vIs(y->size, y->ndim) : vIs(size, ndim) }, 2, pl->c->err);
        if (!m)
            return false;
        m->loc = n->loc;
        ir_insert_before(pl->g, n, m);
        if (k == 1 && pl->c->caps->column_threads && ir_type(m)->ndim == 2)
            /* partial results of one column lie side by side: the second sum shares them out over lanes */
            ir_set_strides(m, (symint[]){ 1, ir_type(m)->size[0] });
    }
    if (ev_text_on(EV_fusion))
        ev_text(EV_fusion, NULL, "%s is made of %lld groups of rows, which threads share", n->name,
                (long long)parts);
    ir_replace_uses(n, m);
    ir_erase(n);
    return true;
}

static bool columns_by_parts(planner *pl, ir_node *n, int64_t parts)
{
    const tp_tensor *x = ir_type(n->arg[0].node), *y = ir_type(n);
    int64_t columns = shape_numel(y->ndim, y->size);
    symint size[3] = { parts, x->numel / columns / parts, columns }, dim = 1, last[TP_MAX_DIMS] = { 0 };
    if (!tensor_is_contiguous(x)) { /* channels come last in memory: so they do in the view */
        for (int i = 1; i < x->ndim; i++)
            last[i] = i < x->ndim - 1 ? i + 1 : 1;
        ir_node *m = ir_build(pl->g, OP_permute, OPV_fn, (tp_val[]){ n->arg[0], vIs(last, x->ndim) }, 2,
                              pl->c->err);
        if (!m)
            return false;
        m->loc = n->loc;
        ir_insert_before(pl->g, n, m);
        return sum_by_parts(pl, n, m, size, 3, &dim, 1, parts);
    }
    return sum_by_parts(pl, n, n->arg[0].node, size, 3, &dim, 1, parts);
}

static bool batches_by_parts(planner *pl, ir_node *n, int64_t parts)
{
    const tp_tensor *x = ir_type(n->arg[0].node);
    symint size[TP_MAX_DIMS] = { parts, x->size[0] / parts }, dims[TP_MAX_DIMS];
    memcpy(size + 2, x->size + 1, sizeof *size * (size_t)(x->ndim - 1));
    for (int i = 0; i < n->arg[1].n; i++)
        dims[i] = dim_arg_of(n->arg[1].ints[i], x->ndim) + 1;
    return sum_by_parts(pl, n, n->arg[0].node, size, x->ndim + 1, dims, n->arg[1].n, parts);
}

bool rewrite_by_parts(planner *pl, ir_node *n, ir_node **next)
{
    int64_t parts = column_parts_of(pl->c->caps, n);
    if (parts && decide(pl->c, DECIDE_thread, n))
        return columns_by_parts(pl, n, parts);
    parts = parts ? 0 : batch_parts_of(pl->c->caps, n);
    if (parts && decide(pl->c, DECIDE_thread, n))
        return batches_by_parts(pl, n, parts);
    parts = parts_of(pl->c->caps, n);
    if (!parts || !decide(pl->c, DECIDE_thread, n))
        return true;
    const tp_tensor *x = ir_type(n->arg[0].node), *y = ir_type(n);
    bool sum = lower_row(n)->kind == RED_sum;
    op_id op = sum ? OP_sum_dim_IntList : (op_id)n->op;
    symint rows[2] = { parts, shape_numel(x->ndim, x->size) / parts }, dim[2] = { 1, 0 };
    tp_val v[2] = { n->arg[0], vIs(rows, 2) }, r[4];
    ir_node *m = ir_build(pl->g, OP_view, OPV_fn, v, 2, pl->c->err), *made[4] = { m };
    for (int k = 0; k < 2 && m; k++) {
        r[0] = (tp_val){ .kind = VAL_node, .node = m };
        r[1] = vIs(&dim[k], 1);
        r[2] = vB(false);
        r[3] = vDT(y->dt);
        made[k + 1] = m = ir_build(pl->g, op, OPV_fn, r, sum ? 4 : 3, pl->c->err);
    }
    if (m && y->ndim) {
        v[0] = (tp_val){ .kind = VAL_node, .node = m };
        v[1] = vIs(y->size, y->ndim);
        made[3] = m = ir_build(pl->g, OP_view, OPV_fn, v, 2, pl->c->err);
    }
    if (!m)
        return false;
    for (int k = 0; k < 4; k++)
        if (made[k]) {
            made[k]->loc = n->loc;
            ir_insert_before(pl->g, n, made[k]);
        }
    if (ev_text_on(EV_fusion))
        ev_text(EV_fusion, NULL, "%s is made of %lld parts, which threads share", n->name, (long long)parts);
    ir_replace_uses(n, m);
    ir_erase(n);
    return true;
}

/* Pooling whose places nobody wants is a value of its own. */
bool rewrite_pool(planner *pl, ir_node *n, ir_node **next)
{
    windows w;
    ir_node *item = n->uses ? n->uses->user : NULL;
    if (!item || n->arg[0].kind != VAL_node)
        return true;
    const char *why = windows_of(n->arg, true, ir_type(n->arg[0].node), &w);
    for (const ir_use *u = n->uses; u && !why; u = u->next)
        if (u->user->kind != IR_getitem || u->user->arg[1].i != 0 || u->user != item)
            why = "somebody wants the places of its maxima";
    if (!why && !decide(pl->c, DECIDE_lower, n))
        why = "refused";
    if (why) {
        log_lower(n, false, why);
        return true;
    }
    ir_node *m = ir_add_call(pl->g, OP_max_pool2d, OPV_fn, n->arg, 6, vT(tensor_ref(item->val.t)));
    m->loc = n->loc;
    ir_insert_before(pl->g, n, m);
    ir_replace_uses(item, m);
    if (item == *next)
        *next = item->next;
    ir_erase(item);
    ir_erase(n);
    return true;
}

/* x[cut:] and then x[:cut]: two copies, or a choice of two in the kernel that reads them. */
bool rewrite_roll(planner *pl, ir_node *n, ir_node **next)
{
    if (n->arg[0].kind != VAL_node || n->arg[1].kind != VAL_ints || n->arg[2].kind != VAL_ints ||
        n->arg[1].n != 1 || n->arg[2].n != 1 || !ir_type(n)->ndim || ir_type(n)->numel == 0)
        return true;
    int dim = dim_arg_of(n->arg[2].ints[0], ir_type(n)->ndim);
    symint size = ir_type(n)->size[dim], by = n->arg[1].ints[0], cut;
    if (sym_is_expr(by))
        return true;
    if (!sym_is_expr(size))
        by = ((by % size) + size) % size;
    cut = by > 0 ? sym_sub(size, by) : -by;
    if (by == 0 || !sym_known(SYM_gt, cut, 0) || !sym_known(SYM_lt, cut, size) ||
        !decide(pl->c, DECIDE_lower, n))
        return true;
    tp_err quiet = { 0 };
    tp_val hi[5] = { n->arg[0], vI(dim), vI(cut), vI(size), vI(1) },
           lo[5] = { n->arg[0], vI(dim), vI(0), vI(cut), vI(1) };
    ir_node *part[2] = { ir_build(pl->g, OP_slice_Tensor, OPV_fn, hi, 5, &quiet),
                         ir_build(pl->g, OP_slice_Tensor, OPV_fn, lo, 5, &quiet) };
    if (!part[0] || !part[1])
        return true;
    ir_insert_before(pl->g, n, part[0]);
    ir_insert_before(pl->g, n, part[1]);
    tp_val both[2] = { { .kind = VAL_nodes, .nodes = part, .n = 2 }, vI(dim) };
    ir_node *m = ir_build(pl->g, OP_cat, OPV_fn, both, 2, &quiet);
    if (!m)
        return true;
    ir_insert_before(pl->g, n, m);
    part[0]->loc = part[1]->loc = m->loc = n->loc;
    if (!ir_type_equal(&m->val, &n->val)) { /* another layout: the call stays */
        ir_erase(m);
        ir_erase(part[0]);
        ir_erase(part[1]);
        return true;
    }
    log_lower(n, true, "two slices, one after the other");
    ir_replace_uses(n, m);
    ir_erase(n);
    return true;
}

static void note_use(void *first, ir_node *n)
{
    ir_node ***at = first; /* by id, then the node that uses */
    if (!at[0][n->id])
        at[0][n->id] = (ir_node *)at[1];
}
/* Calls that wait for something that was started earlier go to where their result is first used, so that what lies between is
 * computed meanwhile. Their order among each other and among other effects follows from the graph, which is the same on every
 * rank. */
void loop_wait_late(planner *pl)
{
    bool any = false;
    IR_EACH (n, pl->g)
        any |= n->kind == IR_opaque && custom_is_late(n->target);
    if (!any)
        return;
    ir_renumber(pl->g);
    ir_node **first = mem_zalloc((size_t)pl->g->next_id * sizeof *first);
    IR_EACH (n, pl->g)
        ir_each_operand(n, note_use, (ir_node * *[]){ first, (ir_node **)n });
    /* From the end: a wait that another waits for has moved by then. */
    for (ir_node *n = pl->g->last, *prev; n; n = prev) {
        prev = n->prev;
        if (n->kind == IR_opaque && custom_is_late(n->target) && first[n->id] && first[n->id] != n->next)
            ir_insert_before(pl->g, first[n->id], n);
    }
    free(first);
    ir_renumber(pl->g);
}

/* Every operator's own rewrite, pass by pass. */
bool loop_rewrite(planner *pl, rewrite_pass from, rewrite_pass to)
{
    for (int pass = from; pass < (int)to; pass++)
        for (ir_node *n = pl->g->first, *next; n; n = next) {
            const lowering *l = n->kind == IR_call ? lower_op((op_id)n->op) : &lower_none;
            next = n->next;
            if (l->rewrite && l->pass == pass && lower_row(n) == l && !l->rewrite(pl, n, &next))
                return false;
        }
    return true;
}
