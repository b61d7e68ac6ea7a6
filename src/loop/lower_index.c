/* lower_index.c - operators that read or write where an index tensor points: which dimension of the source each index decides.
 * A kernel goes there without looking; so the plan has the index checked first (STEP_check). */
#include "loop/internal.h"

static bool is_index(const ir_node *n)
{
    const tp_tensor *t = n ? ir_type(n) : NULL;
    return t && (t->dt == DT_i64 || t->dt == DT_i32);
}

static bool gather_along(const ir_node *n, loop_gather *g, bool same_rank)
{
    const tp_tensor *s = ir_type(n->arg[0].node), *t = ir_type(n);
    int dim;
    if (n->arg[1].kind != VAL_int || n->arg[2].kind != VAL_node || !is_index(n->arg[2].node) ||
        t->ndim != s->ndim || !s->ndim || !dim_wrap(n->arg[1].i, s->ndim, &dim, NULL))
        return false;
    if (same_rank ? ir_type(n->arg[2].node)->ndim != s->ndim : ir_type(n->arg[2].node)->ndim > 1)
        return false;
    for (int d = 0; d < s->ndim; d++)
        g->d[d].from = d;
    g->d[dim].index = n->arg[2].node;
    g->d[dim].from = same_rank ? 0 : dim;
    return true;
}

/* Sizes are those of `of`, what is written (scatter: as far as its index reaches). */
static bool scatter_along(const ir_node *n, loop_gather *g, bool same_rank, bool adds)
{
    const tp_val *src = &n->arg[3];
    const tp_tensor *x = src->kind == VAL_node ? ir_type(src->node) : NULL, *of = x;
    int dim;
    if (n->arg[1].kind != VAL_int || n->arg[2].kind != VAL_node || !is_index(n->arg[2].node) || !g->n ||
        (!x && !same_rank) || (x && (x->ndim != g->n || x->dt != ir_type(n)->dt)) ||
        !dim_wrap(n->arg[1].i, g->n, &dim, NULL))
        return false;
    if (same_rank)
        of = ir_type(n->arg[2].node);
    if (same_rank ? of->ndim != g->n : ir_type(n->arg[2].node)->ndim != 1)
        return false;
    for (int d = 0; d < g->n; d++)
        g->d[d].from = d;
    g->d[dim].index = n->arg[2].node;
    g->d[dim].from = same_rank ? 0 : dim;
    g->writes = true;
    g->adds = adds;
    g->src = 3;
    g->nd = g->n;
    memcpy(g->size, of->size, sizeof *g->size * (size_t)g->nd);
    g->serial = 1u << dim;
    return true;
}

/* Arguments of index and index_put: the sizes of what is read or written follow from the indices. */
static bool gather_advanced(const ir_node *n, loop_gather *g)
{
    const tp_tensor *s = ir_type(n->arg[0].node);
    const tp_val *v = &n->arg[1];
    int count = 0, first = -1, last = -1, nb = 0, at = 0;
    if (v->kind != VAL_nodes || v->n > s->ndim)
        return false;
    for (int d = 0; d < v->n; d++) {
        if (!v->nodes[d])
            continue;
        if (!is_index(v->nodes[d]))
            return false;
        first = first < 0 ? d : first;
        last = d;
        nb = MAX(nb, ir_type(v->nodes[d])->ndim);
        count++;
    }
    if (!count || s->ndim - count + nb > TP_MAX_DIMS)
        return false;
    g->nd = s->ndim - count + nb;
    int start = last - first + 1 == count ? first
                                          : 0; /* indices that stand apart: their dimensions come first */
    for (int d = 0; d < g->nd; d++)
        g->size[d] = 1;
    for (int d = 0; d < s->ndim; d++) {
        g->d[d].index = d < v->n ? v->nodes[d] : NULL;
        if (g->d[d].index) {
            const tp_tensor *x = ir_type(g->d[d].index);
            g->d[d].from = start + nb - x->ndim;
            for (int k = 0; k < x->ndim; k++)
                if (g->size[g->d[d].from + k] == 1)
                    g->size[g->d[d].from + k] = x->size[k];
            continue;
        }
        at = at == start ? start + nb : at;
        g->size[at] = s->size[d];
        g->d[d].from = at++;
    }
    g->wrap = true;
    g->serial = ((1u << nb) - 1) << start;
    return true;
}

static bool scatter_advanced(const ir_node *n, loop_gather *g)
{
    const tp_tensor *x = n->arg[2].kind == VAL_node ? ir_type(n->arg[2].node) : NULL;
    if (!x || x->dt != ir_type(n)->dt || !gather_advanced(n, g) || x->ndim > g->nd)
        return false;
    g->writes = true;
    g->adds = n->arg[3].kind == VAL_bool && n->arg[3].b;
    g->src = 2;
    return true;
}

bool loop_gather_of(const ir_node *n, loop_gather *g)
{
    memset(g, 0, sizeof *g);
    if (n->kind != IR_call || n->variant != OPV_fn || n->val.kind != VAL_tensor ||
        n->arg[0].kind != VAL_node || !ir_type(n->arg[0].node))
        return false;
    g->n = ir_type(n->arg[0].node)->ndim;
    return lower_row(n)->gather && lower_row(n)->gather(n, g);
}

/* The columns. */
static bool gather_of(const ir_node *n, loop_gather *g) { return gather_along(n, g, true); }
static bool index_select_of(const ir_node *n, loop_gather *g) { return gather_along(n, g, false); }
static bool index_of(const ir_node *n, loop_gather *g)
{
    return gather_advanced(n, g) && g->nd == ir_type(n)->ndim;
}
static bool scatter_of(const ir_node *n, loop_gather *g) { return scatter_along(n, g, true, false); }
static bool scatter_add_of(const ir_node *n, loop_gather *g) { return scatter_along(n, g, true, true); }
static bool index_copy_of(const ir_node *n, loop_gather *g) { return scatter_along(n, g, false, false); }
static bool index_add_of(const ir_node *n, loop_gather *g)
{
    return n->arg[4].kind == VAL_int && n->arg[4].i == 1 && scatter_along(n, g, false, true);
}

bool loop_check_fail(const ir_node *n, int dim, int64_t index, int64_t size, tp_err *err)
{
    const lowering *l = lower_row(n);
    if (l == &lower_index_select)
        return err_set(err, ERR_index, "index out of range in self");
    bool plain = l == &lower_index || l == &lower_index_put || l == &lower_index_copy;
    return err_set(err, plain ? ERR_index : ERR_runtime,
                   "%sindex %lld is out of bounds for dimension %d with size %lld",
                   l == &lower_index_copy ? "index_copy_(): " : "", (long long)index, dim, (long long)size);
}

/* ---- their values ---- */
/* An index that counts 0, 1, 2, ... inside the size that it indexes: no memory is read and nothing checked. */
ir_node *counts_up(planner *pl, ir_node *index, symint size)
{
    while (known_view(pl, index))
        index = index->arg[0].node;
    if (!is_arange(index))
        return NULL;
    symint first = arange_first(index);
    bool in = sym_known(SYM_ge, first, 0) && sym_known(SYM_le, sym_add(first, ir_type(index)->size[0]), size);
    return in ? index : NULL;
}

/* The value of an index at `at`, as an index. */
static lin eval_index(walk *w, ir_node *index, const lin *at, symint size, bool wrap)
{
    lin sub[2][TP_MAX_DIMS];
    int side = 0;
    ir_node *up = counts_up(w->pl, index, size);
    if (up) {
        memcpy(sub[0], at, sizeof *at * ir_type(index)->ndim);
        for (; index != up; index = index->arg[0].node, side = !side)
            if (!lower_row(index)->view(w, index, sub[side], sub[!side]))
                w->fail = true;
        return arange_first(up) != 0 ? ladd(w, sub[side][0], lin_const(arange_first(up))) : sub[side][0];
    }
    if (w->g && w->pl->in[beyond_views(index)->id].g == w->g) /* not there yet when it is checked */
        w->fail = true;
    vir_ref v = w->fail ? 0 : eval(w, index, at);
    if (w->dry || w->fail)
        return opaque(w, 0);
    v = vir_cvt(w->k, VT_i64, v);
    if (wrap)
        v = vir_add(w->k, v, vir_and(w->k, vir_sra(w->k, v, vir_int(w->k, 63)), emit_int(w, size)));
    if (w->pl->c->caps->asynchronous) { /* its check may be late: nothing outside is touched until then */
        v = vir_min(w->k, v, vir_sub(w->k, emit_int(w, size), vir_int(w->k, 1)));
        v = vir_max(w->k, v, vir_int(w->k, 0));
    }
    return opaque(w, v);
}

/* Where dimension d of the first operand is read or written; idx counts in sizes `size`. */
static lin indexed(walk *w, const ir_node *n, const loop_gather *g, int d, const symint *size, const lin *idx)
{
    ir_node *index = g->d[d].index;
    if (!index) {
        symint start = g->d[d].start;
        return g->d[d].from < 0 ? lin_const(start)
               : start == 0     ? idx[g->d[d].from]
                                : ladd(w, idx[g->d[d].from], lin_const(start));
    }
    const tp_tensor *x = ir_type(index);
    lin at[TP_MAX_DIMS];
    for (int k = 0; k < x->ndim; k++)
        at[k] = is_spread(x->size[k], size[g->d[d].from + k]) ? lin_const(0) : idx[g->d[d].from + k];
    return eval_index(w, index, at, ir_type(n->arg[0].node)->size[d], g->wrap);
}

static vir_ref eval_gather(walk *w, ir_node *n, const lin *idx)
{
    loop_gather g;
    loop_gather_of(n, &g);
    ir_node *src = n->arg[0].node;
    lin sub[TP_MAX_DIMS];
    for (int d = 0; d < g.n && !w->fail; d++)
        sub[d] = indexed(w, n, &g, d, ir_type(n)->size, idx);
    if (w->fail)
        return 0;
    if (w->dry)
        vec_push(&w->pl->check, n);
    return eval(w, src, sub);
}

/* May neighbours go to one place, or lie apart there? */
bool scatter_single(const ir_node *n)
{
    loop_gather g;
    const tp_tensor *t = ir_type(n);
    loop_gather_of(n, &g);
    return g.nd == 0 || g.serial >> (g.nd - 1) & 1 || t->stride[t->ndim - 1] != 1 ||
           g.nd - 1 != g.d[t->ndim - 1].from;
}

/* The longest dimension in which places are read from memory, or -1. */
int scatter_widest(planner *pl, const ir_node *n)
{
    loop_gather g;
    int best = -1;
    loop_gather_of(n, &g);
    for (int d = 0; d < g.n; d++)
        if (g.d[d].index && !counts_up(pl, g.d[d].index, ir_type(n)->size[d]) &&
            (best < 0 || hint(ir_type(n)->size[d]) > hint(ir_type(n)->size[best])))
            best = d;
    return best;
}

/* Where in dimension d the element at home is written. */
lin scatter_place(walk *w, const ir_node *n, const lin *home, int d)
{
    loop_gather g;
    loop_gather_of(n, &g);
    return indexed(w, n, &g, d, g.size, home);
}

/* One element, or a vector of them, written where its index points. */
void scatter_at(walk *w, ir_node *n, const lin *home, bool single, vir_ref where)
{
    loop_gather g;
    const tp_tensor *t = ir_type(n);
    const tp_val *src;
    lin sub[TP_MAX_DIMS], at[TP_MAX_DIMS];
    vir_ref v = 0;
    loop_gather_of(n, &g);
    src = &n->arg[g.src];
    for (int d = 0; d < g.n && !w->fail; d++)
        sub[d] = indexed(w, n, &g, d, g.size, home);
    if (src->kind == VAL_node) {
        const tp_tensor *x = ir_type(src->node);
        for (int d = 0, off = g.nd - x->ndim; d < x->ndim; d++)
            at[d] = is_spread(x->size[d], g.size[d + off]) ? lin_const(0) : home[d + off];
        v = w->fail ? 0 : eval(w, src->node, at);
    } else if (!w->dry)
        v = number(w->k, src, (dtype)t->dt);
    if (w->fail)
        return;
    lin to = address(w, t, sub);
    if (w->dry) {
        vec_push(&w->pl->check, n);
        vec_push(&w->seen,
                 ((access){ .at = linear_part(w, t, sub), .part = to.opaque, .to = to.opaque ? NULL : n }));
        return;
    }
    int buf = buffer_of(w, n, g.adds ? VIR_INOUT : VIR_OUT);
    vir_ref place = emit_lin(w, &to);
    if (g.adds && single) {
        vir_store_add(w->k, buf, place, v, where);
        return;
    }
    if (g.adds)
        v = vir_add(w->k, vir_load(w->k, buf, place, where), v);
    vir_store(w->k, buf, place, v, where);
}

/* Why a gather is better called, or NULL. Where each lane has an index of its own, a vector is read element by element in
 * any case: nothing is won without other work in the same loop. */
static const char *gather_as_call(planner *pl, const ir_node *n, const loop_gather *g)
{
    const tp_tensor *t = ir_type(n);
    bool lanes = false, slices = false;
    for (int d = 0; d < g->n; d++) {
        const tp_tensor *x = g->d[d].index ? ir_type(g->d[d].index) : NULL;
        slices |= !x;
        lanes |= x && x->ndim && g->d[d].from + x->ndim == t->ndim && x->size[x->ndim - 1] != 1;
    }
    if (!lanes)
        return NULL;
    if (!pl->c->caps->library)
        return NULL;
    if ((int)dtype_size((dtype)t->dt) < pl->c->caps->gather_bytes)
        return "elements of fewer than four bytes are not gathered by one instruction";
    bool quick = lower_row(n)->quick || slices; /* the call knows a faster way than a table of places */
    return quick && !feeds_kernels(pl, n) ? "each lane has its own index, and no other work shares the loop"
                                          : NULL;
}

/* Rows may be added in narrow floats as well, each sum rounded: a store of lanes that meet cannot. */
static bool adds_in(dtype dt, bool rows)
{
    return dt == DT_f32 || dt == DT_f64 || dt == DT_i64 || dt == DT_i32 ||
           (rows && (dt == DT_f16 || dt == DT_bf16));
}

/* Is n written where indices point by a kernel of ours? Lanes hold elements that never meet, and those that may are written
 * one after the other, in the order of the call: the result does not depend on threads. */
static bool scatter_fits(planner *pl, ir_node *n)
{
    loop_gather g;
    if (!loop_gather_of(n, &g) || !g.writes)
        return false;
    const tp_tensor *t = ir_type(n);
    const tp_val *src = &n->arg[g.src];
    const ir_node *x = src->kind == VAL_node ? beyond_views(src->node) : NULL;
    bool computed = x && x->nuse == 1 && x->kind == IR_call && (row_of(x)->flags & OPF_PW) &&
                    lower_of((op_id)x->op);
    const char *why = NULL;
    bool rounds = g.adds && dtype_is_float((dtype)t->dt) &&
                  dtype_size((dtype)t->dt) < 4; /* the call rounds once */
    if (t->numel == 0 || sym_known(SYM_eq, shape_numel(g.nd, g.size), 0))
        why = "it has no elements";
    else if (!pl->c->caps->scatter_ranges && scatter_single(n))
        why = "neighbours may go to one place";
    else if (g.adds && !adds_in((dtype)t->dt, pl->c->caps->scatter_ranges && !scatter_single(n)))
        why = "not in its element type";
    else if (src->kind != VAL_node && !is_known_number(src))
        why = "its number is not known yet";
    else if (!computed && pl->c->caps->library && (rounds || !base_may_end(pl, n)))
        why = "nothing is computed on the way";
    else if (!decide(pl->c, DECIDE_lower, n))
        why = "refused";
    log_lower(n, !why, why ? why : "written where its index points");
    for (int d = 0; d < g.n && !why; d++)
        if (g.d[d].index && !counts_up(pl, g.d[d].index, t->size[d]))
            operand_in_memory(pl, g.d[d].index);
    pl->in[n->id].scatter = !why;
    return !why;
}

/* ---- in place: without a copy, where what is written into ends ---- */
/* Does nothing after n read what n writes into? As far as the order of the program tells. */
bool base_may_end(planner *pl, const ir_node *n)
{
    enum { LOOKS = 64 };
    const ir_node *x = n->arg[0].node, *stack[LOOKS] = { x };
    int have = 1, looks = LOOKS;
    if (x->kind == IR_placeholder ? pl->in[n->id].into != x
                                  : x->kind != IR_call || row_of(x)->flags & OPF_VIEW)
        return false;
    while (have) {
        const ir_node *v = stack[--have];
        for (const ir_use *u = v->uses; u; u = u->next) {
            if (u->user == n)
                continue;
            if (u->user->id > n->id || u->user->kind != IR_call || --looks == 0 || have == LOOKS)
                return false;
            if (row_of(u->user)->flags & OPF_VIEW)
                stack[have++] = u->user;
        }
    }
    return true;
}

/* Values that are written in part: in place, where that part is small and the whole is there to be written into. */
void choose_in_place(planner *pl)
{
    IR_EACH (n, pl->g) {
        loop_gather g;
        info *f = &pl->in[n->id];
        if (!f->materialized || f->library_call || f->scatter || n->kind != IR_call ||
            !lower_row(n)->gather || !is_inline(pl, n) || !loop_gather_of(n, &g) || !g.writes)
            continue;
        const ir_node *x = n->arg[0].node;
        int64_t part = hint(shape_numel(g.nd, g.size));
        f->scatter = part && part <= hint(ir_type(n)->numel) / 2 &&
                     (x->kind == IR_placeholder || pl->in[x->id].materialized) &&
                     (pl->c->caps->scatter_ranges || !scatter_single(n)) && base_may_end(pl, n);
    }
}

/* The same when groups are formed: adds those that read the base to what comes before n. */
bool base_ends(planner *pl, const ir_node *n, group_list *deps)
{
    VEC(const ir_node *) stack = { 0 };
    int looks = 256;
    bool ends = true;
    vec_push(&stack, n->arg[0].node);
    while (stack.n && ends) {
        const ir_node *v = vec_pop(&stack);
        for (const ir_use *u = v->uses; u && ends; u = u->next) {
            const info *f = &pl->in[u->user->id];
            if (u->user == n)
                continue;
            if (u->user->kind != IR_call || --looks == 0 || (f->materialized && !f->g))
                ends = false;
            else if (!f->g)
                vec_push(&stack, u->user);
            else if (!list_has(deps, f->g))
                vec_push(deps, f->g);
        }
    }
    vec_free(&stack);
    return ends;
}

static const char *gather_folds(planner *pl, const ir_node *n, const char **what)
{
    loop_gather g;
    if (!loop_gather_of(n, &g))
        return NULL;
    *what = "read where its index points";
    return gather_as_call(pl, n, &g);
}

/* Indices lie in memory, and so does the source where elements are read more than once. */
static void gather_operands(planner *pl, ir_node *n)
{
    loop_gather g;
    if (!pl->in[n->id].folds || !loop_gather_of(n, &g))
        return;
    ir_node *src = n->arg[0].node;
    for (int d = 0; d < g.n; d++)
        if (g.d[d].index && !counts_up(pl, g.d[d].index, ir_type(src)->size[d]))
            operand_in_memory(pl, g.d[d].index);
    if (hint(ir_type(n)->numel) > hint(ir_type(src)->numel))
        operand_in_memory(pl, src);
}

#define GATHER .folds = gather_folds, .value = eval_gather, .operands = gather_operands
const lowering lower_gather = { GATHER, .gather = gather_of, .quick = true };
const lowering lower_index_select = { GATHER, .gather = index_select_of, .quick = true };
const lowering lower_index = { GATHER, .gather = index_of };
const lowering lower_scatter = { .loops = scatter_fits, .gather = scatter_of };
const lowering lower_scatter_add = { .loops = scatter_fits, .gather = scatter_add_of };
const lowering lower_index_copy = { .loops = scatter_fits, .gather = index_copy_of };
const lowering lower_index_add = { .loops = scatter_fits, .gather = index_add_of };
const lowering lower_index_put = { .loops = scatter_fits, .gather = scatter_advanced };
