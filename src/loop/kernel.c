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
    while (n->kind == IR_call && (row_of(n)->flags & OPF_VIEW) && !pl->in[n->id].sched &&
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
                    along(g, d, &home[d]);
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
                    along(g, d, &home[d]);
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
static void write_checks(planner *pl, bool rides)
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
            if (rides) {
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
        if (!a->drawn || w->pl->in[a->drawn->id].sched || hint(ir_type(a->drawn)->numel) < 256)
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
static bool write_drawn(planner *pl, ir_node *n, bool rides)
{
    const tp_tensor *t = ir_type(n);
    info *f = &pl->in[n->id];
    group *g = ARENA_NEW(&pl->tmp, group);
    *g = (group){ .id = (int)pl->groups.n, .nd = t->ndim, .member = { n }, .n = 1 };
    memcpy(g->size, t->size, sizeof(symint) * (size_t)t->ndim);
    f->sched = f->stored = true;
    f->g = g;
    f->level = 0;
    size_t over = pl->over.n;
    if (!write_kernel(pl, g, NULL, NULL, NULL))
        return false;
    pl->over.n = over; /* it has memory of its own, whatever its place among the steps */
    if (rides) {
        loop_step *s = &pl->p->step.at[pl->p->step.n - 2], last = s[1];
        s[1] = s[0];
        s[0] = last;
    }
    return true;
}

/* fits, where given: the kernel is to run on the rows of a product; false there: it cannot, nothing was written. */
bool write_kernel(planner *pl, group *g, const ir_node *product, bool *fits, chain *ch)
{
    loop_plan *p = pl->p;
    tp_err *err = pl->c->err;
    space s;
    walk w;
    nest t;
    bool ok = false;
    emit e = { 0 };
    vir_ref var[MAX_VARS] = { 0 };
    vir_ref value[MAX_MEMBERS] = { 0 };
    int value_pass[MAX_MEMBERS], passes = 1;
    ir_node *park[MAX_MEMBERS] = { 0 };
    int park_first[MAX_MEMBERS], park_last[MAX_MEMBERS];

again:
    space_init(&s, g);
    if (!survey(pl, g, &s, &w)) {
        vec_free(&w.seen);
        vec_free(&w.loads);
        return err_set(err, ERR_internal, "the loops of group %d do not fit together", g->id);
    }
    symint vsize[MAX_VARS];
    memcpy(vsize, s.size, sizeof vsize); /* before merging: index arithmetic needs the parts */
    make_nest(pl, g, &s, &w, &t);
    if (product)
        *fits = g->rides = rides(&w, &t, g->red != 0, product);
    if (product && *fits && ch && ch->kernel == g) {
        const ir_node *other = ch->also ? ch->first->ext : product;
        ch->fits = other == product || rides(&w, &t, g->red != 0, other);
        for (int i = 0; i < ch->nbetween; i++)
            ch->fits &= same_rows(&w, product, ch->between[i]) && same_rows(&w, other, ch->between[i]);
    }
    int strip = 0, cross = -1;
    if (!g->red && !product && t.nkeep > 1 && pl->c->loops != LOOPS_whole)
        cross = crossed(&w, &t, t.keep[t.nkeep - 1], &strip);
    if (pl->c->loops >= LOOPS_strips_16)
        strip = pl->c->loops == LOOPS_strips_16 ? 16 : 64;
    cross = cross >= 0 && strip && hint(t.size[t.keep[t.nkeep - 1]]) > strip ? cross : -1;
    ir_node *drawn = product && !*fits ? NULL : drawn_apart(g, &w, &t);
    size_t over_from = pl->over.n;
    if (!drawn && (!product || *fits))
        find_over(pl, g, &w);
    vec_free(&w.seen);
    vec_free(&w.loads);
    if (product && !*fits)
        return true;
    if (drawn) {
        if (!write_drawn(pl, drawn, product != NULL))
            return false;
        goto again;
    }
    if (cross >= 0) { /* next to the vectors, whatever its place */
        int v = t.keep[cross];
        memmove(&t.keep[cross], &t.keep[cross + 1], sizeof *t.keep * (size_t)(t.nkeep - 2 - cross));
        t.keep[t.nkeep - 2] = v;
    }
    for (int i = 0; i < g->n; i++) {
        value_pass[i] = -1;
        passes = MAX(passes, pl->in[g->member[i]->id].level + 1);
    }
    vir *k = vir_make_in(&p->mem, kernel_name(pl, g), &pl->room);
    k->ways = pl->c->unroll;
    loop_kernel *lk = ARENA_NEW(&p->mem, loop_kernel);
    e.k = k;
    e.out = lk;
    e.value = value;
    e.value_pass = value_pass;
    e.park = park;
    e.park_first = park_first;
    e.park_last = park_last;
    w = (walk){ .pl = pl,
                .g = g,
                .vsize = vsize,
                .nvar = s.nvar,
                .split_var = 0,
                .k = k,
                .var = var,
                .merged = t.merged,
                .out = lk,
                .e = &e };
    space_now = &s;

    /* kept loops: all but the vector one are one parallel loop whose counter is taken apart */
    bool put = pl->in[g->member[0]->id].put && g->part == 2;
    bool vec_keep = t.nkeep && (!g->red || t.column);
    bool strips = cross >= 0;
    int nouter = t.nkeep - (vec_keep ? 1 : 0) - (strips ? 1 : 0);
    symint outer = 1, chunks = 1;
    for (int i = 0; i < nouter; i++)
        outer = sym_mul(outer, t.size[t.keep[i]]);
    int vv = vec_keep ? t.keep[t.nkeep - 1] : -1;
    symint len = put ? PUT_CHUNK : CHUNK;
    bool chunked = vec_keep && hint(t.size[vv]) > len;
    if (product && vec_keep) {
        len = row_of_product(product);
        chunked = nouter == 0;
    }
    if (strips) {
        len = strip;
        chunked = true;
    }
    if (chunked)
        chunks = sym_floordiv(sym_add(t.size[vv], sym_sub(len, 1)), len);
    symint par = sym_mul(outer, chunks);
    vir_ref counter = vir_loop(k, LOOP_parallel, vir_int(k, 0), emit_int(&w, par));
    vir_ref rest = counter, chunk = 0;
    if (chunked) {
        vir_ref nc = emit_int(&w, chunks);
        if (outer == 1)
            chunk = counter;
        else {
            chunk = vir_modf(k, counter, nc);
            rest = vir_divf(k, counter, nc);
        }
    }
    for (int i = nouter - 1; i >= 0; i--) {
        int v = t.keep[i];
        if (i == 0)
            declare_var(&w, v, rest);
        else {
            vir_ref sz = emit_int(&w, t.size[v]);
            declare_var(&w, v, vir_modf(k, rest, sz));
            rest = vir_divf(k, rest, sz);
        }
    }
    for (int i = 0; i < t.nred && put; i++) /* around the vectors: memory is walked row by row */
        declare_var(&w, t.red[i], vir_loop(k, LOOP_serial, vir_int(k, 0), emit_int(&w, t.size[t.red[i]])));
    if (strips)
        declare_var(&w, t.keep[nouter],
                    vir_loop(k, LOOP_serial, vir_int(k, 0), emit_int(&w, t.size[t.keep[nouter]])));
    if (vec_keep) {
        vir_ref lo = vir_int(k, 0), hi = emit_int(&w, t.size[vv]);
        if (chunked) {
            lo = vir_mul(k, chunk, emit_int(&w, len));
            hi = vir_min(k, vir_add(k, lo, emit_int(&w, len)), hi);
        }
        declare_var(&w, vv, vir_loop(k, LOOP_vector, lo, hi));
    }
    if (put) {
        lin home[TP_MAX_DIMS];
        member_index(&w, g->member[0], home);
        w.self = g->member[0];
        eval_put(&w, g->member[0], home);
        for (int i = 0; i < t.nred; i++)
            vir_end(k);
    } else if (!g->red) {
        w.pass = 0;
        for (int i = 0; i < g->n; i++)
            if (pl->in[g->member[i]->id].stored) {
                vir_ref v = member_value(&w, g->member[i]);
                if (!pl->in[g->member[i]->id].last)
                    store_member(&w, g->member[i], v);
            }
        store_last(&w);
    } else {
        symint row = 1;
        for (int i = 0; i < t.nred; i++)
            row = sym_mul(row, t.size[t.red[i]]);
        if (passes > 1 && passes < 32)
            park_members(&w, hint(row));
        for (int pass = 0; pass < passes; pass++)
            emit_pass(&w, &t, pass, !vec_keep);
    }
    for (int i = 0; i < 1 + vec_keep + strips; i++)
        vir_end(k);
    if (err->kind == ERR_compiler)
        goto done;
    if (w.fail || e.overflow) {
        err_set(err, ERR_internal, "kernel '%s' has too many buffers or indices", k->name);
        goto done;
    }
    if (!vir_finish(k, err)) {
        err_note(err, "finishing kernel '%s'", k->name);
        goto done;
    }
    lk->k = k;
    lk->name = k->name;
    lk->nbuf = e.nbuf;
    lk->buf = ARENA_ARR(&p->mem, int, MAX(e.nbuf, 1));
    for (int i = 0; i < e.nbuf; i++) {
        lk->buf[i] = slot_of(pl, e.buf_node[i]);
        lk->bytes += MAX(hint(ir_type(e.buf_node[i])->numel), 1) *
                     (int64_t)dtype_size((dtype)ir_type(e.buf_node[i])->dt);
    }
    lk->nint = (int)e.ints.n;
    lk->ints = arena_dup(&p->mem, e.ints.at, sizeof(symint) * e.ints.n);
    lk->par = par;
    symint work = 1;
    for (int i = 0; i < t.nred; i++)
        work = sym_mul(work, t.size[t.red[i]]);
    if (vec_keep)
        work = sym_mul(work, chunked ? len : t.size[vv]);
    if (strips)
        work = sym_mul(work, t.size[t.keep[nouter]]);
    lk->work = work;
    for (int i = 0; i < g->n; i++)
        vec_push(&lk->nodes, (const ir_node *)g->member[i]);
    write_checks(pl, product != NULL);
    vec_push(&p->step, ((loop_step){ .kind = STEP_kernel, .kernel = lk, .rides = product != NULL }));
    for (size_t i = over_from; i < pl->over.n; i++)
        pl->over.at[i].step = (int)p->step.n - 1;
    p->nkernel++;
    ok = true;
done:
    vec_free(&e.ints);
    vec_free(&e.int_ref);
    return ok;
}

bool write_group(planner *pl, group *g)
{
    ir_node *n = g->n == 1 ? g->member[0] : NULL;
    if (n && pl->in[n->id].put) {
        group copy = put_part(g, n, 0), put = put_part(g, n, 1);
        return write_kernel(pl, &copy, NULL, NULL, NULL) && write_kernel(pl, &put, NULL, NULL, NULL);
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
