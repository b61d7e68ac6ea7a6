/* group.c - which materialized values share loops.
 * A group has one iteration space; a value joins it where a dry run of its expression finds every value it reads at the index
 * at which the group computes it, and where no other step must come between. */
#include "loop/internal.h"
#include "events/events.h"

void space_init(space *s, const group *g)
{
    s->nvar = g->nd;
    for (int d = 0; d < g->nd; d++) {
        s->size[d] = g->size[d];
        s->dim[d] = d;
        s->at[d] = lin_var(d);
    }
}

bool space_split(space *s, int var, symint inner) /* var = q * inner + r; q keeps the number */
{
    if (s->nvar >= MAX_VARS || s->at[s->dim[var]].n >= LIN_MAX)
        return false;
    int r = s->nvar++;
    s->size[r] = inner;
    s->dim[r] = s->dim[var];
    s->size[var] = sym_floordiv(s->size[var], inner);
    lin *a = &s->at[s->dim[var]];
    for (int i = 0; i < a->n; i++)
        if (a->t[i].var == var) {
            a->t[a->n].var = r;
            a->t[a->n].c = a->t[i].c;
            a->n++;
            a->t[i].c = sym_mul(a->t[i].c, inner);
            break;
        }
    return true;
}

void along(const walk *w, int d, lin *out) /* the index of dimension d of g */
{
    if (w->g->size[d] == 1)
        lin_set_const(out, 0);
    else
        lin_set(out, &w->space->at[d]);
}

void member_index(walk *w, ir_node *n, lin *out)
{
    const tp_tensor *t = ir_type(n);
    const group *g = w->g;
    const info *f = &w->pl->in[n->id];
    if (f->scatter) { /* of the copy, or of what is written into it */
        for (int d = 0; d < g->nd; d++)
            along(w, d, &out[d]);
        return;
    }
    if (g->part) {
        int cat = part_dim(n);
        for (int d = 0; d < t->ndim; d++)
            along(w, d, &out[d]);
        out[cat] = ladd(w, out[cat], lin_const(part_at(n, g->part - 1)));
        return;
    }
    if (!f->outer) {
        if (same_sizes(t->ndim, t->size, g->nd, g->size)) {
            for (int d = 0; d < t->ndim; d++)
                along(w, d, &out[d]);
        } else {
            lin at[TP_MAX_DIMS];
            for (int d = 0; d < g->nd; d++)
                along(w, d, &at[d]);
            reshape_index(w, g->nd, g->size, at, t->ndim, t->size, out);
        }
        return;
    }
    if (t->ndim == g->nd) { /* keepdim form */
        for (int d = 0; d < t->ndim; d++)
            if (g->red >> d & 1)
                lin_set_const(&out[d], 0);
            else
                along(w, d, &out[d]);
        return;
    }
    for (int d = 0, j = 0; d < g->nd; d++)
        if (!(g->red >> d & 1))
            along(w, d, &out[j++]);
}

/* Is t's shape one value per row of (nd, size, red)? */
static bool outer_shape(const tp_tensor *t, int nd, const symint *size, uint32_t red)
{
    if (t->ndim == nd) {
        for (int d = 0; d < nd; d++)
            if ((red >> d & 1) ? t->size[d] != 1
                               : t->size[d] != size[d] && !sym_known(SYM_eq, t->size[d], size[d]))
                return false;
        return true;
    }
    int j = 0;
    for (int d = 0; d < nd; d++)
        if (!(red >> d & 1)) {
            if (j >= t->ndim || (t->size[j] != size[d] && !sym_known(SYM_eq, t->size[j], size[d])))
                return false;
            j++;
        }
    return j == t->ndim;
}

typedef struct trial {
    bool outer, split; /* split: a loop was taken apart for it */
    int level;
    ir_node *load[MAX_BUFS];
    int nload; /* MAX_BUFS + 1: more than fit */
} trial;

/* Adds n to a set of buffers; the count stays at MAX_BUFS + 1 once they do not fit. */
static int load_add(ir_node **load, int n, ir_node *x)
{
    for (int i = 0; i < MIN(n, MAX_BUFS); i++)
        if (load[i] == x)
            return n;
    if (n >= MAX_BUFS)
        return MAX_BUFS + 1;
    load[n] = x;
    return n + 1;
}

/* A dry run of n as a member of its group: sets level; false when it does not fit. */
static bool try_member(planner *pl, group *g, ir_node *n, bool outer, trial *out)
{
    space s;
    space_init(&s, g);
    info *f = &pl->in[n->id];
    for (int round = 0; round < 8; round++) {
        walk w = { .pl = pl,
                   .g = g,
                   .space = &s,
                   .vsize = s.size,
                   .nvar = s.nvar,
                   .dry = true,
                   .self = n,
                   .split_var = -1 };
        bool was = f->outer;
        group *wasg = f->g;
        f->g = NULL;
        f->outer = outer;
        lin home[TP_MAX_DIMS];
        ir_node *root = n;
        if (f->red || f->scan) { /* walks its operand over the full space */
            root = n->arg[0].node;
            for (int d = 0; d < g->nd; d++)
                home[d] = g->size[d] == 1 ? lin_const(0) : s.at[d];
            if (!same_sizes(ir_type(root)->ndim, ir_type(root)->size, g->nd, g->size)) {
                lin at[TP_MAX_DIMS];
                memcpy(at, home, sizeof at);
                reshape_index(&w, g->nd, g->size, at, ir_type(root)->ndim, ir_type(root)->size, home);
            }
            w.self = NULL;
            if (f->red && is_place(f->rkind))
                use_raw(&w, &home[__builtin_ctz(f->mask)]);
        } else
            member_index(&w, n, home);
        eval(&w, root, home);
        f->outer = was;
        f->g = wasg;
        int sv = w.split_var;
        symint si = w.split_in;
        bool fail = w.fail;
        bool opaque_home = false;
        for (int d = 0; d < ir_type(root)->ndim; d++)
            opaque_home |= home[d].opaque;
        out->level = w.level;
        out->nload = 0;
        for (size_t i = 0; i < w.loads.n; i++)
            out->nload = load_add(out->load, out->nload, w.loads.at[i]);
        bool inner = w.inner;
        vec_free(&w.seen);
        vec_free(&w.loads);
        if (sv >= 0 && round < 7) { /* taken apart, values may meet */
            if (!space_split(&s, sv, si))
                return false;
            continue;
        }
        out->split = round > 0;
        if (fail || opaque_home || (outer && !f->red && inner))
            return false;
        out->outer = outer;
        if (f->red || outer) {
            /* a reduction is computed in the pass its operands allow; it is there afterwards */
            if (outer && !f->red)
                out->level = MAX(out->level - 1, 0);
        }
        return true;
    }
    return false;
}

void group_free(group *g)
{
    vec_free(&g->before);
    vec_free(&g->after);
}

static group *group_new(planner *pl)
{
    group *g = ARENA_NEW(&pl->tmp, group);
    g->id = (int)pl->groups.n;
    vec_push(&pl->groups, g);
    return g;
}

void log_fusion(planner *pl, ir_node *n, const group *g, bool yes, const char *why)
{
    loop_decision d = { n, g->n ? g->member[0] : g->library_call, why, g->id, yes };
    if (pl->c->explain || ev_trace_on(EV_artifact))
        vec_push(&pl->p->decisions, d);
    if (ev_text_on(EV_fusion)) {
        strbuf b = { 0 };
        loop_decision_print(&b, &d);
        ev_text(EV_fusion, NULL, "%s", b.s);
        strbuf_free(&b);
    }
}

static int64_t product_hint(int nd, const symint *size, uint32_t mask)
{
    int64_t p = 1;
    for (int d = 0; d < nd; d++)
        if (mask >> d & 1)
            p *= MAX(hint(size[d]), 1);
    return p;
}

/* Do the loops still serve all members when n is one, and fill vectors? */
static bool fits_together(planner *pl, group *g, ir_node *n, bool outer)
{
    info *f = &pl->in[n->id], was = *f;
    space s;
    walk w;
    f->g = g;
    f->outer = outer;
    g->member[g->n++] = n;
    space_init(&s, g);
    bool ok = survey(pl, g, &s, &w);
    if (ok) {
        nest t;
        make_nest(pl, g, &s, &w, &t);
        int inner = g->red && !t.column ? (t.nred ? t.red[t.nred - 1] : -1)
                    : t.nkeep           ? t.keep[t.nkeep - 1]
                                        : -1;
        ok = inner < 0 || hint(t.size[inner]) >= 8;
    }
    vec_free(&w.seen);
    vec_free(&w.loads);
    g->n--;
    *f = was;
    return ok;
}

/* Try to compute n in g. */
static bool join(planner *pl, group *g, ir_node *n, const group_list *deps)
{
    info *f = &pl->in[n->id];
    const tp_tensor *t = ir_type(n);
    group save = *g;
    trial tr;
    bool outer = false;
    const char *why = "values meet at another index";

    if (ir_type(n) && ir_type(n)->numel == 0) { /* after a reduction it would still be written once */
        log_fusion(pl, n, g, false, "it has no elements");
        return false;
    }
    if (g->scan && is_costly(n) && in_order(g->member[0]) && g->red >> (g->nd - 1) & 1 &&
        pl->c->caps->slow_steps) {
        log_fusion(pl, n, g, false,
                   "it would wait for the steps of that group in vectors of half a register");
        return false;
    }
    if (g->scan && f->red) {
        log_fusion(pl, n, g, false, "steps of that group follow one another");
        return false;
    }
    if (g->library_call || g->n >= MAX_MEMBERS) {
        log_fusion(pl, n, g, false,
                   g->library_call && pl->in[g->library_call->id].product ? "that group is a matrix product"
                   : g->library_call                                      ? "that group is a library call"
                                                                          : "the kernel is large enough");
        return false;
    }
    if (would_cycle(pl, g, deps)) {
        log_fusion(pl, n, g, false, "another step must come between");
        return false;
    }
    if (f->into && g->red) { /* there it would have to wait in memory of its own */
        log_fusion(pl, n, g, false, "it is written into an input when nothing can fail any more");
        return false;
    }
    uint32_t all = g->nd >= 32 ? ~0u : (1u << g->nd) - 1;
    if (f->red) {
        const tp_tensor *x = ir_type(n->arg[0].node);
        if (!same_sizes(x->ndim, x->size, g->nd, g->size)) {
            why = "other loops";
            goto no;
        }
        if (g->red && g->red != f->mask) {
            why = "reduces other dimensions";
            goto no;
        }
        if (!g->red) {
            /* threads work on rows: do not give up parallel work for a saved trip through memory */
            int64_t kept = product_hint(g->nd, g->size, all & ~f->mask),
                    total = product_hint(g->nd, g->size, all);
            if (kept < pl->c->caps->share_rows && total > pl->c->caps->share_worth) {
                why = "too few rows to share among threads";
                goto no;
            }
            g->red = f->mask;
        }
        outer = true;
    } else if (same_sizes(t->ndim, t->size, g->nd, g->size))
        outer = false;
    else if (g->red && !g->scan && outer_shape(t, g->nd, g->size, g->red))
        outer = true;
    else if (sym_known(SYM_eq, t->numel, shape_numel(g->nd, g->size)))
        outer = false;
    else {
        why = "other loops";
        goto no;
    }
    if (g->red && !f->red && !outer &&
        product_hint(g->nd, g->size, all & ~g->red) < pl->c->caps->share_rows_after &&
        product_hint(g->nd, g->size, all) > pl->c->caps->share_worth) {
        why = "too few rows to share among threads";
        goto no;
    }
    if (!try_member(pl, g, n, outer, &tr))
        goto no;
    for (int i = 0; i < MIN(tr.nload, MAX_BUFS); i++)
        g->nload = load_add(g->load, g->nload, tr.load[i]);
    if (tr.nload > MAX_BUFS || g->nload + g->n + 1 > MAX_BUFS) { /* every member may be stored */
        why = "too many buffers";
        goto no;
    }
    g->split |= tr.split;
    if (g->split && !fits_together(pl, g, n, outer)) {
        why = "loops would be taken apart too far";
        goto no;
    }
    if (!decide(pl->c, DECIDE_fuse, n)) {
        why = "refused";
        goto no;
    }
    f->g = g;
    f->outer = outer;
    f->level = tr.level;
    g->member[g->n++] = n;
    add_before(pl, g, deps);
    log_fusion(pl, n, g, true, outer ? "one value per row" : "same loops");
    pl->p->nfused++;
    return true;
no:
    *g = save;
    log_fusion(pl, n, g, false, why);
    return false;
}

/* The kernel that copies what is written into, or the one that writes. */
group scatter_part(const group *g, const ir_node *n, int part)
{
    group p = *g;
    loop_gather of;
    p.part = part + 1;
    if (part == 0 || !loop_gather_of(n, &of))
        return p;
    p.nd = of.nd;
    memcpy(p.size, of.size, sizeof(symint) * (size_t)of.nd);
    p.red = of.serial;
    return p;
}

static bool start_scatter(planner *pl, ir_node *n, const group_list *deps)
{
    info *f = &pl->in[n->id];
    group *g = group_new(pl);
    bool ok = true;
    g->nd = ir_type(n)->ndim;
    memcpy(g->size, ir_type(n)->size, sizeof(symint) * (size_t)g->nd);
    g->member[g->n++] = n;
    f->g = g;
    for (int i = 0; i < 2 && ok; i++) {
        group part = scatter_part(g, n, i);
        space s;
        walk w;
        int nload = 0;
        ir_node *load[MAX_BUFS];
        f->g = &part;
        space_init(&s, &part);
        ok = survey(pl, &part, &s, &w);
        for (size_t k = 0; k < w.loads.n; k++)
            nload = load_add(load, nload, w.loads.at[k]);
        ok = ok && nload < MAX_BUFS;
        vec_free(&w.seen);
        vec_free(&w.loads);
    }
    f->g = ok ? g : NULL;
    if (ok)
        add_before(pl, g, deps);
    return ok;
}

static bool start_group(planner *pl, ir_node *n, const group_list *deps)
{
    info *f = &pl->in[n->id];
    group *g = group_new(pl);
    const tp_tensor *t = f->red ? ir_type(n->arg[0].node) : ir_type(n);
    trial tr = { 0 };
    g->nd = t->ndim;
    memcpy(g->size, t->size, sizeof(symint) * t->ndim);
    g->red = f->red || f->scan ? f->mask : 0;
    g->scan = f->scan;
    if (!try_member(pl, g, n, f->red, &tr) || tr.nload >= MAX_BUFS)
        return false;
    memcpy(g->load, tr.load, sizeof g->load);
    g->nload = tr.nload;
    g->split = tr.split;
    f->g = g;
    f->outer = f->red;
    f->level = tr.level;
    g->member[g->n++] = n;
    add_before(pl, g, deps);
    return true;
}

static void start_call(planner *pl, ir_node *n, const group_list *deps)
{
    group *g = group_new(pl);
    g->library_call = n;
    pl->in[n->id].g = g;
    pl->in[n->id].library_call = true;
    pl->in[n->id].product = is_product(pl, n);
    add_before(pl, g, deps);
    if (ir_node_is_effect(n)) { /* numbers are drawn, and things done, in the order of the program */
        if (pl->effect)
            add_before(pl, g, &(group_list){ .at = &pl->effect, .n = 1 });
        pl->effect = g;
    }
    g->plain = reserves(g);
    for (size_t i = 0; i < g->before.n && g->plain; i++)
        g->plain = g->before.at[i]->plain;
}

/* n reads the newest group, a value that came of inputs alone (which elements a dropout keeps), and an older one: the value joins the
 * older one first, or n would part the two. True: what n depends on has changed. */
static bool absorb_newest(planner *pl, const group_list *deps)
{
    group *g = pl->groups.n ? pl->groups.at[pl->groups.n - 1] : NULL;
    if (!g || !deps->n || deps->at[0] != g || g->library_call || g->n != 1 || g->red || g->scan || g->deep ||
        g->part || pl->in[g->member[0]->id].scatter)
        return false;
    for (size_t i = 0; i < g->before.n; i++)
        if (!g->before.at[i]->plain)
            return false;
    for (size_t i = 1; i < deps->n; i++) {
        group *h = deps->at[i];
        if (h->library_call || h->deep || h->scan || !same_sizes(g->nd, g->size, h->nd, h->size))
            continue;
        for (size_t k = 0; k < g->after.n; k++) /* who reads it elsewhere would have to follow all of h */
            if (g->after.at[k] != h || h->after.n)
                return false;
        group_list with = { 0 };
        vec_reserve(&with, g->before.n + 1);
        for (size_t k = 0; k < g->before.n; k++)
            with.at[with.n++] = g->before.at[k];
        if (!list_has(&with, h))
            with.at[with.n++] = h;
        bool in = join(pl, h, g->member[0], &with);
        vec_free(&with);
        if (!in)
            return false;
        list_drop(&h->before, g); /* the next group gets its number */
        for (size_t k = 0; k < g->before.n; k++)
            list_drop(&g->before.at[k]->after, g);
        group_free(g);
        pl->groups.n--;
        return true;
    }
    return false;
}

/* Does x, on the way to a sum, read from memory what g reads, and as many elements as the sum has? */
static bool reads_the_same(planner *pl, ir_node *x, const group *g, symint numel, int depth)
{
    x = beyond_views(x);
    const tp_tensor *t = ir_type(x);
    if (!t || depth > 6)
        return false;
    if (pl->in[x->id].materialized || x->kind != IR_call) {
        for (int i = 0; i < MIN(g->nload, MAX_BUFS); i++)
            if (beyond_views(g->load[i]) == x)
                return sym_known(SYM_eq, t->numel, numel);
        return false;
    }
    for (int i = 0; i < x->narg; i++)
        if (x->arg[i].kind == VAL_node && reads_the_same(pl, x->arg[i].node, g, numel, depth + 1))
            return true;
    return false;
}

/* A sum beside another of the same elements, of which neither needs the other: they are read once. */
static bool join_beside(planner *pl, ir_node *n, const group_list *deps)
{
    enum { NEWEST = 8 };
    const info *f = &pl->in[n->id];
    ir_node *x = n->arg[0].kind == VAL_node ? n->arg[0].node : NULL;
    if (!f->red || f->scan || !x || !ir_type(x) || !pl->c->caps->column_threads || is_place(f->rkind))
        return false;
    for (size_t i = pl->groups.n, k = 0; i-- && k < NEWEST; k++) {
        group *g = pl->groups.at[i];
        if (!g->library_call && !g->deep && !g->scan && !g->part && g->red == f->mask && !list_has(deps, g) &&
            same_sizes(g->nd, g->size, ir_type(x)->ndim, ir_type(x)->size) &&
            reads_the_same(pl, x, g, ir_type(x)->numel, 0) && join(pl, g, n, deps))
            return true;
    }
    return false;
}

void form_groups(planner *pl)
{
    group_list deps = { 0 };
    find_readers(pl);
    IR_EACH (n, pl->g) {
        info *f = &pl->in[n->id];
        if (!f->materialized || n->kind == IR_placeholder || n->kind == IR_const || n->kind == IR_output ||
            n->kind == IR_getitem)
            continue;
        node_deps(pl, n, &deps);
        if (f->library_call) {
            start_call(pl, n, &deps);
            continue;
        }
        if (f->scatter && !base_ends(pl, n, &deps)) {
            f->scatter = !is_inline(pl, n); /* then with a copy */
            node_deps(pl, n, &deps);
        }
        if (!f->scan && !f->scatter && absorb_newest(pl, &deps))
            node_deps(pl, n, &deps);
        bool in = false;
        bool parts = f->scatter || (lower_row(n)->apart && lower_row(n)->apart(n));
        for (size_t i = 0; i < deps.n && !in && !f->scan && !parts;
             i++) /* newest first: the likely producer */
            if (!deps.at[i]->deep)
                in = join(pl, deps.at[i], n, &deps);
        in = in || (!parts && join_beside(pl, n, &deps));
        if (!in && !(f->scatter ? start_scatter(pl, n, &deps) : start_group(pl, n, &deps))) {
            pl->groups.n--; /* the empty group */
            f->red = f->scan = f->scatter = false;
            start_call(pl, n, &deps);
            ir_each_operand(n, operand_in_memory, pl);
        }
        if ((f->depth >= DEEP || parts) && f->g)
            f->g->deep = true;
    }
    vec_free(&deps);
}

bool used_outside(planner *pl, const group *g, ir_node *n)
{
    VEC(ir_node *) stack = { 0 };
    bool out = false;
    vec_push(&stack, n);
    while (stack.n && !out) { /* users, through values that are computed where they are used */
        ir_node *x = vec_pop(&stack);
        for (ir_use *u = x->uses; u && !out; u = u->next) {
            info *f = &pl->in[u->user->id];
            if (u->user->kind == IR_output || f->library_call || u->user->kind == IR_opaque)
                out = true;
            else if (f->g)
                out = f->g != g;
            else if (f->memview)
                out = true;
            else
                vec_push(&stack, u->user);
        }
    }
    vec_free(&stack);
    return out;
}

void find_stored(planner *pl) /* what leaves its group */
{
    for (size_t i = 0; i < pl->groups.n; i++) {
        group *g = pl->groups.at[i];
        for (int m = 0; m < g->n; m++)
            pl->in[g->member[m]->id].stored = used_outside(pl, g, g->member[m]);
    }
}
