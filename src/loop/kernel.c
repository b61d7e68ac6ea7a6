/* kernel.c - writes the kernel of a group.
 *
 *   parallel over the kept dimensions
 *     pass 0: loops over the reduced dimensions: inner values, steps of reductions; then what depends on those
 *     pass 1: again, with what pass 0 gave (softmax: maximum, then sum, then quotient)
 *
 * A group without reductions has one pass over all dimensions. Either the last loop over reduced dimensions is the
 * vector loop (rows lie in memory), or the last kept dimension is and each lane keeps its own sum (columns do). */
#include "loop/internal.h"
#include <stdio.h>

vir_ref emit_int(walk *w, symint v)
{
    emit *e = w->e;
    if (!sym_is_expr(v))
        return vir_int(w->k, v);
    for (size_t i = 0; i < e->ints.n; i++)
        if (e->ints.at[i] == v)
            return e->int_ref.at[i];
    char name[16];
    snprintf(name, sizeof name, "i%d", (int)e->ints.n);
    vec_push(&e->ints, v);
    vec_push(&e->int_ref, vir_int_arg(w->k, name));
    return vec_last(&e->int_ref);
}

vir_ref emit_lin(walk *w, const lin *a)
{
    vir *k = w->k;
    if (a->opaque)
        return a->ref;
    vir_ref r = 0;
    for (int i = 0; i < a->n; i++) {
        int m = w->merged[a->t[i].var];
        if (m < 0)
            continue; /* carried by the inner variable it was merged with */
        vir_ref v = w->var[m];
        if (a->t[i].c != 1)
            v = vir_mul(k, v, emit_int(w, a->t[i].c));
        r = r ? vir_add(k, r, v) : v;
    }
    if (a->k != 0 || !r) {
        vir_ref c = emit_int(w, a->k);
        r = r ? vir_add(k, r, c) : c;
    }
    return r;
}

int buffer_of(walk *w, ir_node *n, int flags)
{
    emit *e = w->e;
    for (int i = 0; i < e->nbuf; i++)
        if (e->buf_node[i] == n)
            return i;
    if (e->nbuf >= MAX_BUFS) {
        e->overflow = true;
        return 0;
    }
    e->buf_node[e->nbuf] = n;
    for (int i = 0; i < w->g->n; i++)
        if (e->park[i] == n)
            flags = VIR_INOUT;
    vir_buffer(w->k, loop_mem((dtype)ir_type(n)->dt), flags, n->name);
    return e->nbuf++;
}

/* Whose memory a view that is not folded into the index looks at. */
static ir_node *memory_of(planner *pl, ir_node *n)
{
    while (n->kind == IR_call && (row_of(n)->flags & OPF_VIEW) && !pl->in[n->id].materialized &&
           n->arg[0].kind == VAL_node)
        n = n->arg[0].node;
    return n;
}

vir_ref emit_load(walk *w, ir_node *n, const lin *idx)
{
    lin a = address(w, ir_type(n), idx);
    if (w->dry) {
        ir_node *of = memory_of(w->pl, n);
        if (of != n && w->g && w->pl->in[of->id].g == w->g) /* it is only there when the group is done */
            w->fail = true;
        vec_push(&w->seen, ((access){ .at = a, .n = n }));
        vec_push(&w->loads, n);
        if (a.opaque)
            vec_push(&w->seen, ((access){ .at = linear_part(w, ir_type(n), idx), .part = true }));
        return 0;
    }
    return vir_load(w->k, buffer_of(w, n, VIR_IN), emit_lin(w, &a), w->mask);
}

int member_number(const group *g, const ir_node *n)
{
    for (int i = 0; i < g->n; i++)
        if (g->member[i] == n)
            return i;
    return -1;
}

static vir_ref compute(walk *w, ir_node *n)
{
    lin home[TP_MAX_DIMS];
    ir_node *self = w->self;
    member_index(w, n, home);
    w->self = n;
    vir_ref v = eval(w, n, home);
    w->self = self;
    return v;
}

vir_ref member_value(walk *w, ir_node *n)
{
    emit *e = w->e;
    int i = member_number(w->g, n);
    info *f = &w->pl->in[n->id];
    if (f->outer || e->value_pass[i] == w->pass)
        return e->value[i];
    vir_ref mask = w->mask; /* a member's value is shared: computed without the mask of this use */
    w->mask = 0;
    e->value[i] = compute(w, n);
    e->value_pass[i] = w->pass;
    w->mask = mask;
    return e->value[i];
}

static void store_member(walk *w, ir_node *n, vir_ref v)
{
    lin home[TP_MAX_DIMS];
    member_index(w, n, home);
    lin a = address(w, ir_type(n), home);
    vir_store(w->k, buffer_of(w, n, VIR_OUT), emit_lin(w, &a), v, 0);
}

/* What may lie where this kernel reads: every value that needs those elements has been computed by now. */
static void store_last(walk *w)
{
    for (int i = 0; i < w->g->n; i++)
        if (w->pl->in[w->g->member[i]->id].last)
            store_member(w, w->g->member[i], member_value(w, w->g->member[i]));
}

static void declare_var(walk *w, int v, vir_ref value) { w->var[v] = value; }

/* Which element along the reduced dimension this is: in 32 bits where it fits, so that lanes are not halved. */
static vir_ref place_now(walk *w, const ir_node *n, const lin *home)
{
    const tp_tensor *x = ir_type(n->arg[0].node);
    int d = __builtin_ctz(w->pl->in[n->id].mask);
    vir_ref at = emit_lin(w, &home[d]);
    return sym_known(SYM_lt, x->size[d], INT32_MAX) ? vir_cvt(w->k, VT_i32, at) : at;
}

static void emit_pass(walk *w, const nest *t, int pass, bool vector)
{
    planner *pl = w->pl;
    group *g = w->g;
    emit *e = w->e;
    vir *k = w->k;
    int reds[MAX_MEMBERS], nred = 0, which[MAX_MEMBERS];
    bool any = false;

    w->pass = pass;
    for (int i = 0; i < g->n; i++) {
        info *f = &pl->in[g->member[i]->id];
        any |= f->level == pass && (f->red || (!f->outer && f->stored));
    }
    for (int i = 0; i < g->n; i++) {
        info *f = &pl->in[g->member[i]->id];
        if (f->red && f->level == pass) {
            which[nred] = i;
            reds[nred++] = vir_red(k, (vir_red_kind)f->rkind,
                                   f->rkind == RED_any ? VT_mask : loop_type(red_dtype(g->member[i])));
        }
    }
    int running[MAX_MEMBERS] = { 0 };
    for (int i = 0; i < g->n; i++) {
        info *f = &pl->in[g->member[i]->id];
        if (f->scan && f->level == pass)
            running[i] = vir_scan(k, (vir_red_kind)f->rkind, loop_type(scan_dtype(g->member[i])));
    }
    if (any) {
        for (int i = 0; i < t->nred; i++) {
            int v = t->red[i];
            bool vec = vector && i == t->nred - 1;
            declare_var(w, v,
                        vir_loop(k, vec ? LOOP_vector : LOOP_serial, vir_int(k, 0), emit_int(w, t->size[v])));
        }
        load_parked(w, pass);
        for (int i = 0; i < g->n; i++) {
            ir_node *n = g->member[i];
            info *f = &pl->in[n->id];
            if (f->level != pass || (f->outer && !f->red))
                continue;
            if (f->red) {
                int r = 0;
                while (which[r] != i)
                    r++;
                ir_node *x = n->arg[0].node;
                lin home[TP_MAX_DIMS];
                for (int d = 0; d < g->nd; d++)
                    along(w, d, &home[d]);
                vir_ref v = eval(w, x, home);
                dtype from = (dtype)ir_type(x)->dt;
                v = loop_convert(k, v, from, f->rkind == RED_any ? DT_bool : red_dtype(n));
                vir_step(k, reds[r], v, is_place(f->rkind) ? place_now(w, n, home) : 0);
            } else if (f->scan) {
                ir_node *x = n->arg[0].node;
                dtype wide = scan_dtype(n);
                bool place = is_place(f->rkind);
                lin home[TP_MAX_DIMS];
                for (int d = 0; d < g->nd; d++)
                    along(w, d, &home[d]);
                vir_ref v = loop_convert(k, eval(w, x, home), (dtype)ir_type(x)->dt, wide);
                if (place && dtype_is_float(wide) &&
                    dtype_size(wide) < 4) /* equal is what memory would hold */
                    v = vir_narrow(k, loop_mem(wide), v);
                vir_step(k, running[i], v, place ? place_now(w, n, home) : 0);
                v = vir_part(k, running[i], place);
                e->value[i] = place ? vir_cvt(k, VT_i64, v) : loop_convert(k, v, wide, (dtype)ir_type(n)->dt);
                e->value_pass[i] = pass;
                if (f->stored)
                    store_member(w, n, e->value[i]);
            } else if (f->stored) {
                vir_ref v = member_value(w, n);
                if (!f->last)
                    store_member(w, n, v);
            }
        }
        store_parked(w, pass);
        store_last(w);
        for (int i = 0; i < t->nred; i++)
            vir_end(k);
    }
    for (int r = 0; r < nred; r++) {
        ir_node *n = g->member[which[r]];
        vir_ref v = vir_fold(k, reds[r]);
        dtype at = pl->in[n->id].rkind == RED_any ? DT_bool : red_dtype(n);
        if (is_place(pl->in[n->id].rkind))
            e->value[which[r]] = vir_cvt(k, VT_i64, vir_part(k, reds[r], 1));
        else
            e->value[which[r]] = loop_convert(k, v, at, (dtype)ir_type(n)->dt);
        if (pl->in[n->id].stored)
            store_member(w, n, e->value[which[r]]);
    }
    for (int i = 0; i < g->n; i++) { /* what follows from them, one value per row */
        ir_node *n = g->member[i];
        info *f = &pl->in[n->id];
        if (!f->outer || f->red || f->level != pass)
            continue;
        e->value[i] = compute(w, n);
        if (f->stored)
            store_member(w, n, e->value[i]);
    }
}

static const char *kernel_name(planner *pl, const group *g)
{
    strbuf b = { 0 };
    strbuf_addf(&b, "k%d_%s", pl->p->nkernel, g->red ? "red" : "fused");
    for (int i = 0, m = 0; i < g->n && m < 4; i++, m++)
        strbuf_addf(&b, "_%s", row_of(g->member[i])->name);
    char *s = arena_strdup(&pl->p->mem, strbuf_str(&b));
    strbuf_free(&b);
    return s;
}

/* Before the kernel that was surveyed runs: are its indices inside? In front of the product, where it runs on its rows. */
static void write_checks(planner *pl, bool epilogue)
{
    loop_plan *p = pl->p;
    for (size_t i = 0; i < pl->check.n; i++) {
        ir_node *n = pl->check.at[i];
        loop_gather g;
        if (pl->in[n->id].checked || !loop_gather_of(n, &g))
            continue;
        pl->in[n->id].checked = true;
        for (int d = 0; d < g.n; d++) {
            if (!g.d[d].index || counts_up(pl, g.d[d].index, ir_type(n->arg[0].node)->size[d]))
                continue;
            loop_step s = { .kind = STEP_check, .node = n, .slot = slot_of(pl, g.d[d].index), .nslot = d };
            vec_push(&p->step, s);
            if (epilogue) {
                p->step.at[p->step.n - 1] = p->step.at[p->step.n - 2];
                p->step.at[p->step.n - 2] = s;
            }
        }
    }
}

/* What is drawn in loops that do not count through its sequence, where every lane would make a block of its own; or NULL. */
static ir_node *drawn_apart(const group *g, const walk *w, const nest *t)
{
    bool keep = t->nkeep && (!g->red || t->column);
    int v = keep ? t->keep[t->nkeep - 1] : t->nred ? t->red[t->nred - 1] : -1;
    for (size_t i = 0; i < w->seen.n; i++) {
        const access *a = &w->seen.at[i];
        if (!a->drawn || w->pl->in[a->drawn->id].materialized || hint(ir_type(a->drawn)->numel) < 256)
            continue;
        int64_t block = lower_row(a->drawn)->block(a->drawn);
        bool apart = v < 0 || a->at.opaque || stride_in(&a->at, v) != 1 || sym_is_expr(a->at.k) ||
                     a->at.k % block;
        for (int k = 0; k < t->nkeep + t->nred && !apart; k++) {
            int u = k < t->nkeep ? t->keep[k] : t->red[k - t->nkeep];
            symint step = stride_in(&a->at, u);
            apart = u != v && (sym_is_expr(step) || step % block);
        }
        if (apart)
            return a->drawn;
    }
    return NULL;
}

/* A kernel that draws n into memory, in front of the kernel being written and of the product on whose rows that one runs. */
static bool write_drawn(planner *pl, ir_node *n, bool epilogue)
{
    const tp_tensor *t = ir_type(n);
    info *f = &pl->in[n->id];
    group *g = ARENA_NEW(&pl->tmp, group);
    *g = (group){ .id = (int)pl->groups.n, .nd = t->ndim, .member = { n }, .n = 1 };
    memcpy(g->size, t->size, sizeof(symint) * (size_t)t->ndim);
    f->materialized = f->stored = true;
    f->g = g;
    f->level = 0;
    size_t reuses = pl->reuses.n;
    if (!write_kernel(pl, g, NULL, NULL, NULL))
        return false;
    pl->reuses.n = reuses; /* it has memory of its own, whatever its place among the steps */
    if (epilogue) {
        loop_step *s = &pl->p->step.at[pl->p->step.n - 2], last = s[1];
        s[1] = s[0];
        s[0] = last;
    }
    return true;
}

/* A kernel being written. */
typedef struct writing {
    planner *pl;
    group *g;
    const ir_node *product; /* on whose rows it runs; NULL: it runs for itself */
    vir_ref var[MAX_VARS];
    size_t reuse_from; /* of pl->over: what this kernel may write where it reads */
    /* loops: all kept ones but the vector loop are one parallel loop whose counter is taken apart */
    int cross;    /* the kept loop that walks along an operand the vectors walk across; -1: none */
    int strip;    /* elements of the result before it goes on there */
    bool scatter; /* writes where indices point */
    bool single;  /* element by element: lanes may meet */
    int ranges; /* > 1: an iteration of the parallel loop writes every ranges-th place of dimension range_dim */
    int range_dim;
    vir_ref range; /* which */
    bool vec_keep, chunked;
    int nouter;                /* kept loops in the parallel one */
    symint len;                /* of a chunk of the vector loop */
    symint outer, chunks, par; /* rows, chunks of each, and all of them */
    emit e;
    /* what follows is set as a whole */
    space s;
    nest t;
    walk w;
    symint vsize[MAX_VARS]; /* before merging: index arithmetic needs the parts */
} writing;

/* Is there an operand that is walked across, and how long are strips of it? */
static void find_strips(writing *k, const walk *seen)
{
    const nest *t = &k->t;
    const target_caps *caps = k->pl->c->caps;
    k->strip = 0;
    k->cross = -1;
    if (!k->g->red && !k->product && t->nkeep > 1 && caps->strip >= 0)
        k->cross = crossed(seen, t, t->keep[t->nkeep - 1], &k->strip);
    if (caps->strip > 0)
        k->strip = caps->strip;
    if (k->cross >= 0 && (!k->strip || hint(t->size[t->keep[t->nkeep - 1]]) <= k->strip))
        k->cross = -1;
}

/* What the kernel reads and writes, and its loops. *fits becomes false where it cannot run on the rows of the product. */
static bool kernel_survey(writing *k, bool *fits, attention *ch)
{
    planner *pl = k->pl;
    group *g = k->g;
    const ir_node *product = k->product, *drawn;
    do {
        walk w;
        space_init(&k->s, g);
        if (!survey(pl, g, &k->s, &w)) {
            vec_free(&w.seen);
            vec_free(&w.loads);
            return err_set(pl->c->err, ERR_internal, "the loops of group %d do not fit together", g->id);
        }
        memcpy(k->vsize, k->s.size, sizeof k->vsize);
        make_nest(pl, g, &k->s, &w, &k->t);
        if (product)
            *fits = g->epilogue = is_epilogue(&w, &k->t, g->red != 0, product);
        if (product && *fits && ch && ch->kernel == g) {
            const ir_node *other = ch->also ? ch->first->library_call : product;
            ch->fits = other == product || is_epilogue(&w, &k->t, g->red != 0, other);
            for (int i = 0; i < ch->nbetween; i++)
                ch->fits &= same_rows(&w, product, ch->between[i]) && same_rows(&w, other, ch->between[i]);
        }
        find_strips(k, &w);
        bool writes = !product || *fits;
        drawn = writes ? drawn_apart(g, &w, &k->t) : NULL;
        k->reuse_from = pl->reuses.n;
        if (writes && !drawn)
            find_reuse(pl, g, &w);
        vec_free(&w.seen);
        vec_free(&w.loads);
        if (drawn && !write_drawn(pl, (ir_node *)drawn, product != NULL))
            return false;
    } while (drawn);
    return true;
}

static bool has_var(const writing *k, const lin *a, int var)
{
    for (int i = 0; i < a->n; i++) {
        int v = a->t[i].var;
        if (v == var || (k->t.merged[v] < 0 && !(k->g->red >> k->s.dim[v] & 1)))
            return true;
    }
    return a->opaque;
}

/* Do the places of a scatter in dimension d change along variable var? */
static bool places_follow(writing *k, int d, int var)
{
    ir_node *n = k->g->member[0];
    lin home[TP_MAX_DIMS];
    walk w = k->w;
    w.dry = true;
    member_index(&w, n, home);
    lin at = scatter_place(&w, n, home, d);
    bool follow = w.fail || (!at.opaque && has_var(k, &at, var));
    for (size_t i = 0; i < w.seen.n; i++)
        follow |= has_var(k, &w.seen.at[i].at, var);
    vec_free(&w.seen);
    vec_free(&w.loads);
    return follow;
}

/* How many ranges of places share the work of a scatter, of which there are `shares` already: a power of two, and no more
 * than there are places or elements that are written there. */
static int ranges_for(const writing *k, symint shares)
{
    const target_caps *caps = k->pl->c->caps;
    const tp_tensor *t = ir_type(k->g->member[0]);
    int64_t len = 1, places = k->range_dim < 0 ? 1 : hint(t->size[k->range_dim]);
    int ranges = 1;
    for (int i = 0; i < k->t.nred; i++)
        len *= hint(k->t.size[k->t.red[i]]);
    while (2 * ranges * hint(shares) <= caps->scatter_ranges && 2 * ranges <= MIN(len, places))
        ranges *= 2;
    return ranges;
}

/* Ranges of places: every iteration of the parallel loop looks at all indices and writes what is in its range, in order. One
 * element at a time, the vector loop is the last of those that are walked in order. */
static void divide_scatter(writing *k)
{
    const nest *t = &k->t;
    const target_caps *caps = k->pl->c->caps;
    ir_node *n = k->g->member[0];
    symint outer = 1;
    loop_gather g;
    loop_gather_of(n, &g);
    bool any_order = g.adds && !dtype_is_float((dtype)ir_type(n)->dt);
    bool narrow = g.adds && dtype_size((dtype)ir_type(n)->dt) < 4; /* rows alone: see adds_in */
    k->single = scatter_single(n) || (t->nkeep == 0 && !narrow);
    k->range_dim = scatter_widest(k->pl, n);
    if (k->single) {
        k->vec_keep = t->nred == 0 && t->nkeep;
        bool moves = g.adds || t->nred == 0;
        for (int d = 0; d < g.n && !moves; d++)
            moves = g.d[d].index && ir_type(n)->size[d] != 1 && places_follow(k, d, t->red[t->nred - 1]);
        if (!moves) { /* the last one is written: no vector loop */
            k->single = false;
            return;
        }
    }
    int last = t->nkeep ? t->keep[t->nkeep - 1] : -1;
    for (int i = 0; i < t->nkeep - k->vec_keep; i++)
        outer = sym_mul(outer, t->size[t->keep[i]]);
    if (k->range_dim < 0 || (k->single && (any_order || k->vec_keep)) ||
        (!k->single && (last < 0 || places_follow(k, k->range_dim, last))))
        return;
    if (!k->single)
        outer = sym_mul(outer,
                        sym_floordiv(sym_add(t->size[last], caps->scatter_row - 1), caps->scatter_row));
    k->ranges = ranges_for(k, outer);
}

/* Shares of the parallel loop, and what each of them is. */
static void divide_loops(writing *k)
{
    nest *t = &k->t;
    symint outer = 1, chunks = 1;
    bool strips = k->cross >= 0;
    if (strips) { /* next to the vectors, whatever its place */
        int v = t->keep[k->cross];
        memmove(&t->keep[k->cross], &t->keep[k->cross + 1],
                sizeof *t->keep * (size_t)(t->nkeep - 2 - k->cross));
        t->keep[t->nkeep - 2] = v;
    }
    k->scatter = k->pl->in[k->g->member[0]->id].scatter && k->g->part == 2;
    k->vec_keep = t->nkeep && (!k->g->red || t->column);
    k->ranges = 1;
    if (k->scatter && k->pl->c->caps->scatter_ranges)
        divide_scatter(k);
    k->nouter = t->nkeep - k->vec_keep - strips;
    for (int i = 0; i < k->nouter; i++)
        outer = sym_mul(outer, t->size[t->keep[i]]);
    const target_caps *caps = k->pl->c->caps;
    k->len = k->scatter                                     ? caps->scatter_chunk
             : k->g->red && t->column && caps->column_chunk ? caps->column_chunk
                                                            : caps->chunk;
    if (k->ranges > 1)
        k->len = caps->scatter_row;
    k->chunked = k->vec_keep && hint(t->size[t->keep[t->nkeep - 1]]) > k->len;
    if (k->product && k->vec_keep) {
        k->len = row_of_product(k->product);
        k->chunked = k->nouter == 0;
    }
    if (strips) {
        k->len = k->strip;
        k->chunked = true;
    }
    if (k->chunked)
        chunks = sym_floordiv(sym_add(t->size[t->keep[t->nkeep - 1]], sym_sub(k->len, 1)), k->len);
    k->par = sym_mul(sym_mul(outer, chunks), k->ranges);
    k->outer = outer;
    k->chunks = chunks;
}

/* Is the place that the loops around have come to in the range of this iteration? */
static vir_ref in_range(writing *k)
{
    walk *w = &k->w;
    lin home[TP_MAX_DIMS];
    member_index(w, k->g->member[0], home);
    lin at = scatter_place(w, k->g->member[0], home, k->range_dim);
    return vir_eq(w->k, vir_modf(w->k, emit_lin(w, &at), vir_int(w->k, k->ranges)), k->range);
}

/* The kept loops; around the vectors of a scatter also the others, so that memory is walked row by row. */
static void nest_begin(writing *k)
{
    const nest *t = &k->t;
    walk *w = &k->w;
    vir *v = w->k;
    vir_ref counter = vir_loop(v, LOOP_parallel, vir_int(v, 0), emit_int(w, k->par));
    vir_ref rest = counter, chunk = 0;
    if (k->ranges > 1) {
        k->range = vir_modf(v, counter, vir_int(v, k->ranges));
        rest = vir_divf(v, counter, vir_int(v, k->ranges));
    }
    if (k->chunked) {
        vir_ref nc = emit_int(w, k->chunks);
        chunk = rest;
        if (k->outer != 1) {
            rest = vir_divf(v, chunk, nc);
            chunk = vir_modf(v, chunk, nc);
        }
    }
    for (int i = k->nouter - 1; i >= 0; i--) {
        int q = t->keep[i];
        if (i == 0)
            declare_var(w, q, rest);
        else {
            vir_ref sz = emit_int(w, t->size[q]);
            declare_var(w, q, vir_modf(v, rest, sz));
            rest = vir_divf(v, rest, sz);
        }
    }
    for (int i = 0; i < t->nred && k->scatter; i++)
        declare_var(w, t->red[i],
                    vir_loop(v, k->single && i == t->nred - 1 ? LOOP_vector : LOOP_serial, vir_int(v, 0),
                             emit_int(w, t->size[t->red[i]])));
    if (k->cross >= 0) {
        int q = t->keep[k->nouter];
        declare_var(w, q, vir_loop(v, LOOP_serial, vir_int(v, 0), emit_int(w, t->size[q])));
    }
    if (k->vec_keep) {
        int q = t->keep[t->nkeep - 1];
        vir_ref lo = vir_int(v, 0), hi = emit_int(w, t->size[q]);
        if (k->chunked) {
            lo = vir_mul(v, chunk, emit_int(w, k->len));
            hi = vir_min(v, vir_add(v, lo, emit_int(w, k->len)), hi);
        }
        if (k->ranges > 1) /* empty where this row is another range's */
            hi = vir_select(v, in_range(k), hi, lo);
        declare_var(w, q, vir_loop(v, LOOP_vector, lo, hi));
    }
}

static void nest_end(writing *k)
{
    for (int i = 0; i < 1 + k->vec_keep + (k->cross >= 0) + (k->scatter ? k->t.nred : 0); i++)
        vir_end(k->w.k);
}

/* Elements that one thread reduces for a result. */
static symint row_length(const nest *t)
{
    symint row = 1;
    for (int i = 0; i < t->nred; i++)
        row = sym_mul(row, t->size[t->red[i]]);
    return row;
}

static void kernel_body(writing *k)
{
    planner *pl = k->pl;
    group *g = k->g;
    walk *w = &k->w;
    int passes = 1;
    if (k->scatter) {
        lin home[TP_MAX_DIMS];
        member_index(w, g->member[0], home);
        w->self = g->member[0];
        scatter_at(w, g->member[0], home, k->single, k->single && k->ranges > 1 ? in_range(k) : 0);
        return;
    }
    if (!g->red) {
        w->pass = 0;
        for (int i = 0; i < g->n; i++)
            if (pl->in[g->member[i]->id].stored) {
                vir_ref v = member_value(w, g->member[i]);
                if (!pl->in[g->member[i]->id].last)
                    store_member(w, g->member[i], v);
            }
        store_last(w);
        return;
    }
    for (int i = 0; i < g->n; i++)
        passes = MAX(passes, pl->in[g->member[i]->id].level + 1);
    if (passes > 1 && passes < 32)
        park_members(w, hint(row_length(&k->t)));
    for (int pass = 0; pass < passes; pass++)
        emit_pass(w, &k->t, pass, !k->vec_keep);
}

/* The finished kernel as a step of the plan. */
static void kernel_record(writing *k)
{
    planner *pl = k->pl;
    loop_plan *p = pl->p;
    const emit *e = &k->e;
    const nest *t = &k->t;
    loop_kernel *lk = e->out;
    lk->k = e->k;
    lk->name = e->k->name;
    lk->nbuf = e->nbuf;
    lk->buf = ARENA_ARR(&p->mem, int, MAX(e->nbuf, 1));
    for (int i = 0; i < e->nbuf; i++) {
        const tp_tensor *x = ir_type(e->buf_node[i]);
        lk->buf[i] = slot_of(pl, e->buf_node[i]);
        lk->bytes += MAX(hint(x->numel), 1) * (int64_t)dtype_size((dtype)x->dt);
    }
    lk->nint = (int)e->ints.n;
    lk->ints = arena_dup(&p->mem, e->ints.at, sizeof(symint) * e->ints.n);
    lk->par = k->par;
    lk->work = row_length(t);
    if (k->vec_keep)
        lk->work = sym_mul(lk->work, k->chunked ? k->len : t->size[t->keep[t->nkeep - 1]]);
    if (k->cross >= 0)
        lk->work = sym_mul(lk->work, t->size[t->keep[k->nouter]]);
    for (int i = 0; i < k->g->n; i++)
        vec_push(&lk->nodes, (const ir_node *)k->g->member[i]);
    write_checks(pl, k->product != NULL);
    vec_push(&p->step, ((loop_step){ .kind = STEP_kernel, .kernel = lk, .epilogue = k->product != NULL }));
    for (size_t i = k->reuse_from; i < pl->reuses.n; i++)
        pl->reuses.at[i].step = (int)p->step.n - 1;
    p->nkernel++;
}

/* Threads of a device own neighbouring partial results of a row: as many as a third of its elements. */
static int ways_for(const writing *k)
{
    int ways = k->pl->c->caps->ways;
    int64_t len = 1;
    for (int i = 0; i < k->t.nred; i++)
        len *= MAX(hint(k->t.size[k->t.red[i]]), 1);
    while (ways > 4 && (!k->g->red || len < (int64_t)ways * 16 * 3))
        ways /= 2;
    return ways;
}

/* fits, where given: the kernel is to run on the rows of a product; false there: it cannot, nothing was written. */
bool write_kernel(planner *pl, group *g, const ir_node *product, bool *fits, attention *ch)
{
    tp_err *err = pl->c->err;
    writing k;
    emit *e = &k.e;
    memset(&k, 0, offsetof(writing, e.value_pass)); /* the rest is large */
    k.pl = pl;
    k.g = g;
    k.product = product;
    if (!kernel_survey(&k, fits, ch))
        return false;
    if (product && !*fits)
        return true;
    e->k = vir_make_in(&pl->p->mem, kernel_name(pl, g), &pl->room);
    e->k->ways = ways_for(&k);
    e->out = ARENA_NEW(&pl->p->mem, loop_kernel);
    for (int i = 0; i < g->n; i++)
        e->value_pass[i] = -1;
    k.w = (walk){ .pl = pl,
                  .g = g,
                  .space = &k.s,
                  .vsize = k.vsize,
                  .nvar = k.s.nvar,
                  .k = e->k,
                  .var = k.var,
                  .merged = k.t.merged,
                  .out = e->out,
                  .e = e };
    divide_loops(&k);
    nest_begin(&k);
    kernel_body(&k);
    nest_end(&k);
    bool ok = false;
    if (err->kind == ERR_compiler)
        ;
    else if (k.w.fail || e->overflow)
        err_set(err, ERR_internal, "kernel '%s' has too many buffers or indices", e->k->name);
    else if (!vir_finish(e->k, err))
        err_note(err, "finishing kernel '%s'", e->k->name);
    else {
        kernel_record(&k);
        ok = true;
    }
    vec_free(&e->ints);
    vec_free(&e->int_ref);
    return ok;
}

bool write_group(planner *pl, group *g)
{
    ir_node *n = g->n == 1 ? g->member[0] : NULL;
    if (n && pl->in[n->id].scatter) {
        group copy = scatter_part(g, n, 0), scatter = scatter_part(g, n, 1);
        return write_kernel(pl, &copy, NULL, NULL, NULL) && write_kernel(pl, &scatter, NULL, NULL, NULL);
    }
    if (!n || g->red || part_count(n) < 2 || !decide(pl->c, DECIDE_fuse, n))
        return write_kernel(pl, g, NULL, NULL, NULL);
    for (int i = 0; i < part_count(n); i++) {
        group part = *g;
        part.part = i + 1;
        part.size[part_dim(n)] = part_size(n, i);
        if (part_size(n, i) != 0 && !write_kernel(pl, &part, NULL, NULL, NULL))
            return false;
    }
    return true;
}
