/* arena_plan.c - see arena_plan.h. */
#include "loop/arena_plan.h"

static int64_t slot_bytes(const loop_slot *s)
{
    symint b = 0;
    shape_storage_bytes((dtype)s->type->dt, s->type->ndim, s->type->size, s->type->stride, 0, &b, NULL);
    return (b + 63) & ~(int64_t)63;
}

/* The step that makes a slot's memory; -1: it has none of its own. */
static int made_at(const loop_plan *p, const loop_slot *s)
{
    if (s->reuses || s->transient || (s->kind != SLOT_buffer && s->kind != SLOT_extern))
        return -1;
    const ir_node *n = s->node->kind == IR_getitem ? s->node->arg[0].node : s->node;
    if (s->kind == SLOT_extern && n->kind == IR_call && (op_row_of((op_id)n->op)->flags & OPF_VIEW))
        return -1;
    return s->kind == SLOT_extern && s->index >= 0 ? p->slot.at[s->index].first : s->first;
}

bool loop_slot_life(const loop_plan *p, int slot, int *first, int *last)
{
    const loop_slot *s = &p->slot.at[slot];
    int end = (int)p->step.n - 1;
    *first = s->type ? made_at(p, s) : -1;
    *last = s->output ? end : MIN(s->last, end);
    return *first >= 0 && *last >= *first;
}

/* Most bytes that are alive at once: results, the block of the buffers below `large` bytes while one of them is, the
 * others each for its own time, what calls return, and inputs that are given away (others are alive in any case). */
static int64_t most_alive(const loop_plan *p, const int64_t *bytes, int64_t block, int64_t large, bool given)
{
    int steps = (int)p->step.n;
    int block_last = -1;
    int64_t most = 0, now = block, *change = mem_zalloc(sizeof *change * (size_t)(steps + 2));
    for (int i = 0; i < (int)p->slot.n; i++) {
        const loop_slot *s = &p->slot.at[i];
        int first = made_at(p, s);
        if (!s->type || !loop_const_type(s->type) || s->last < 0)
            continue;
        if (s->kind == SLOT_input && given)
            change[0] += slot_bytes(s);
        else if (first >= 0 && (bytes[i] < 0 || bytes[i] >= large))
            change[first] += slot_bytes(s);
        else {
            block_last = MAX(block_last, first >= 0 ? MIN(s->last, steps) : -1);
            continue;
        }
        if (!s->output)
            change[MIN(s->last, steps) + 1] -= slot_bytes(s);
    }
    change[block_last + 1] -= block;
    for (int i = 0; i <= steps; i++) {
        now += change[i];
        most = MAX(most, now);
    }
    free(change);
    return most;
}

/* The caller decides which inputs it gives away: both extremes count. */
static int64_t height(const loop_plan *p, const int64_t *bytes, int64_t block, int64_t large)
{
    return most_alive(p, bytes, block, large, false) + most_alive(p, bytes, block, large, true);
}

/* Life times that meet one another: a tree over the steps, in which each lies at the few nodes that make it up. */
typedef VEC(int) numbers;
typedef struct lives {
    numbers *node;
    int leaves;
    numbers met;
} lives;

/* A plan from a file may name any step: those after the end count as the end. */
static int leaf_of(const lives *l, int step) { return MIN(step, l->leaves - 1) + l->leaves; }

static void lives_add(lives *l, const loop_slot *s, int i)
{
    for (int lo = leaf_of(l, s->first), hi = leaf_of(l, s->last) + 1; lo < hi; lo /= 2, hi /= 2) {
        if (lo & 1) {
            vec_push(&l->node[lo], i);
            lo++;
        }
        if (hi & 1) {
            hi--;
            vec_push(&l->node[hi], i);
        }
    }
}

static void lives_meet(lives *l, const loop_slot *s) /* those that live while s does, some more than once */
{
    l->met.n = 0;
    for (int lo = leaf_of(l, s->first), hi = leaf_of(l, s->last); lo; lo /= 2, hi /= 2)
        for (int k = lo; k <= hi; k++)
            for (size_t i = 0; i < l->node[k].n; i++)
                vec_push(&l->met, l->node[k].at[i]);
}

/* ---- buffers in the order in which they begin ---- */
enum { MOST_GAPS = 512 };  /* looked through; the smallest are forgotten */
enum { MOST_MEETS = 250 }; /* looked at for each buffer, on average */

typedef struct gap {
    int64_t at, end;
} gap;
typedef struct gaps {
    gap list[MOST_GAPS + 1]; /* by address, none touching another */
    int n;
    int64_t top; /* all is free from here on */
} gaps;

static int64_t gaps_take(gaps *g, int64_t need)
{
    int best = -1;
    for (int i = 0; i < g->n; i++)
        if (g->list[i].end - g->list[i].at >= need &&
            (best < 0 || g->list[i].end - g->list[i].at < g->list[best].end - g->list[best].at))
            best = i;
    if (best < 0) {
        g->top += need;
        return g->top - need;
    }
    int64_t at = g->list[best].at;
    g->list[best].at += need;
    if (g->list[best].at == g->list[best].end)
        memmove(&g->list[best], &g->list[best + 1], sizeof *g->list * (size_t)(--g->n - best));
    return at;
}

static void gaps_give(gaps *g, int64_t at, int64_t end)
{
    int i = g->n, least = 0;
    if (at == end)
        return;
    while (i && g->list[i - 1].at > at)
        i--;
    if (i < g->n && g->list[i].at == end) {
        g->list[i].at = at;
    } else {
        memmove(&g->list[i + 1], &g->list[i], sizeof *g->list * (size_t)(g->n++ - i));
        g->list[i] = (gap){ at, end };
    }
    if (i && g->list[i - 1].end == at) {
        g->list[i - 1].end = g->list[i].end;
        memmove(&g->list[i], &g->list[i + 1], sizeof *g->list * (size_t)(--g->n - i));
    }
    if (g->n && g->list[g->n - 1].end == g->top)
        g->top = g->list[--g->n].at;
    if (g->n <= MOST_GAPS)
        return;
    for (int k = 1; k < g->n; k++)
        least = g->list[k].end - g->list[k].at < g->list[least].end - g->list[least].at ? k : least;
    memmove(&g->list[least], &g->list[least + 1], sizeof *g->list * (size_t)(--g->n - least));
}

typedef struct moment {
    int step, slot;
    bool begins;
} moment;
static int by_time(const void *a, const void *b)
{
    const moment *x = a, *y = b;
    return x->step != y->step       ? x->step - y->step
           : x->begins != y->begins ? x->begins - y->begins
                                    : x->slot - y->slot;
}

/* From `base` on, in time that grows with their number alone. Returns where they end. */
static int64_t place_in_time(const loop_plan *p, const int *order, int n, const int64_t *bytes, int64_t base,
                             int64_t *offset)
{
    moment *at = mem_alloc(sizeof *at * 2 * (size_t)MAX(n, 1));
    gaps *g = mem_zalloc(sizeof *g);
    int64_t block = base;
    for (int a = 0; a < n; a++) {
        const loop_slot *s = &p->slot.at[order[a]];
        at[2 * a] = (moment){ s->first, order[a], true };
        at[2 * a + 1] = (moment){ MAX(s->last, s->first) + 1, order[a], false };
    }
    qsort(at, 2 * (size_t)n, sizeof *at, by_time);
    g->top = base;
    for (int i = 0; i < 2 * n; i++) {
        int s = at[i].slot;
        if (at[i].begins)
            offset[s] = gaps_take(g, bytes[s]);
        else
            gaps_give(g, offset[s], offset[s] + bytes[s]);
        block = MAX(block, g->top);
    }
    free(g);
    free(at);
    return block;
}

/* First fit over life times: a buffer may lie where another has ended. Where very many are alive at once, the smaller ones
 * follow in the order of time. Returns how much all of them take. */
static int64_t place_buffers(const loop_plan *p, const int *order, int n, const int64_t *bytes,
                             int64_t *offset)
{
    lives l = { .leaves = (int)p->step.n + 1 };
    int64_t block = 0, left = (int64_t)MOST_MEETS * n + (1 << 20);
    l.node = mem_zalloc(sizeof *l.node * 2 * (size_t)l.leaves);
    for (int a = 0; a < n; a++) {
        const loop_slot *s = &p->slot.at[order[a]];
        int64_t need = bytes[order[a]], at = 0;
        if (left < 0) {
            block = MAX(place_in_time(p, order + a, n - a, bytes, block, offset), 64);
            break;
        }
        lives_meet(&l, s);
        for (bool moved = true; moved;) {
            moved = false;
            left -= (int64_t)l.met.n;
            for (size_t b = 0; b < l.met.n; b++) {
                int64_t ob = offset[l.met.at[b]], oe = ob + bytes[l.met.at[b]];
                if (ob < at + need && at < oe) {
                    at = oe;
                    moved = true;
                }
            }
        }
        offset[order[a]] = at;
        lives_add(&l, s, order[a]);
        block = MAX(block, MAX(at + need, 64)); /* empty buffers lie somewhere, too */
    }
    for (int i = 0; i < 2 * l.leaves; i++)
        vec_free(&l.node[i]);
    free(l.node);
    vec_free(&l.met);
    return block;
}

typedef struct sized {
    int64_t bytes;
    int slot;
} sized;
static int larger_first(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : x->slot - y->slot;
}

/* One block for all buffers costs nothing to ask for, but makes a program need more memory at its height than one that
 * frees each after its last use: where the difference counts, large ones get memory of their own while they live. What
 * is large: asking for it costs little beside filling it. fixed: all are in the block. */
static void place(tp_comp *c, const loop_plan *p, loop_memory *m, bool fixed)
{
    int n = (int)p->slot.n, placed = 0;
    int *order = mem_alloc(sizeof *order * (size_t)MAX(n, 1));
    int64_t *bytes = mem_alloc(sizeof *bytes * (size_t)MAX(n, 1));
    m->offset = mem_alloc(sizeof *m->offset * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++) {
        bytes[i] = m->offset[i] = -1;
        const loop_slot *s = &p->slot.at[i];
        if (s->kind == SLOT_buffer && !s->output && !s->transient && !s->reuses && s->first >= 0 &&
            loop_const_type(s->type) && (!c->target || tensor_device(s->type).kind == c->target->device) &&
            (!s->node || decide(c, DECIDE_inplace, s->node))) {
            bytes[i] = slot_bytes(s);
            order[placed++] = i;
        }
    }
    sized *by = mem_alloc(sizeof *by * (size_t)MAX(placed, 1)); /* larger ones first */
    for (int a = 0; a < placed; a++)
        by[a] = (sized){ bytes[order[a]], order[a] };
    qsort(by, (size_t)placed, sizeof *by, larger_first);
    for (int a = 0; a < placed; a++)
        order[a] = by[a].slot;
    free(by);
    m->block = place_buffers(p, order, placed, bytes, m->offset);
    int64_t *offset = mem_alloc(sizeof *offset * (size_t)MAX(n, 1)),
            most = placed ? height(p, bytes, m->block, INT64_MAX) : 0;
    for (int64_t large = 32 << 10; !fixed && placed && large >= 4 << 10 && bytes[order[0]] >= large;
         large /= 8) {
        int k = 0;
        memset(offset, -1, sizeof *offset * (size_t)n);
        while (k < placed && bytes[order[k]] >= large)
            k++;
        int64_t block = place_buffers(p, order + k, placed - k, bytes, offset),
                now = height(p, bytes, block, large);
        if (now >= most - most / 64)
            continue;
        most = now;
        m->block = block;
        memcpy(m->offset, offset, sizeof *offset * (size_t)n);
    }
    free(offset);
    free(order);
    free(bytes);
}

/* What a step was the last to read is given back at once: the next call finds that memory warm. */
static void release(tp_comp *c, const loop_plan *p, loop_memory *m)
{
    int n = (int)p->slot.n, steps = (int)p->step.n, at = 0;
    m->dead = mem_alloc(sizeof *m->dead * (size_t)MAX(n, 1));
    m->dead_at = mem_alloc(sizeof *m->dead_at * (size_t)(steps + 1));
    memset(m->dead_at, 0, sizeof *m->dead_at * (size_t)(steps + 1));
    int *ends = mem_alloc(sizeof *ends *
                          (size_t)MAX(n, 1)); /* the step after which a slot is not read any more, or -1 */
    for (int s = 0; s < n; s++) {
        const loop_slot *x = &p->slot.at[s];
        bool early = x->last >= 0 && x->last < steps && (!x->node || decide(c, DECIDE_inplace, x->node));
        ends[s] = early ? x->last : -1;
    }
    for (int s = 0; s < n; s++) /* how many, where they end, then from the last to the first */
        if (ends[s] >= 0)
            m->dead_at[ends[s]]++;
    for (int i = 0; i < steps; i++)
        m->dead_at[i] = at += m->dead_at[i];
    m->dead_at[steps] = at;
    for (int s = n - 1; s >= 0; s--)
        if (ends[s] >= 0)
            m->dead[--m->dead_at[ends[s]]] = s;
    free(ends);
    int *items = mem_alloc(sizeof *items * (size_t)MAX(2 * n, 1)),
        *after = items + n; /* of each call, in their order */
    memset(items, -1, sizeof *items * (size_t)n);
    for (int s = n - 1; s >= 0; s--)
        if (p->slot.at[s].kind == SLOT_extern && p->slot.at[s].index >= 0) {
            after[s] = items[p->slot.at[s].index];
            items[p->slot.at[s].index] = s;
        }
    at = 0;
    m->item = mem_alloc(sizeof *m->item * (size_t)MAX(n, 1));
    m->item_at = mem_alloc(sizeof *m->item_at * (size_t)(steps + 1));
    for (int i = 0; i < steps; i++) {
        const loop_step *st = &p->step.at[i];
        bool only = st->kind == STEP_extern && !st->product;
        m->item_at[i] = at;
        for (const ir_use *u = only ? st->node->uses : NULL; u; u = u->next)
            only &= u->user->kind == IR_getitem;
        for (int s = only ? items[st->slot] : -1; s >= 0; s = after[s])
            m->item[at++] = s;
    }
    m->item_at[steps] = at;
    free(items);
}

static void commit(const loop_plan *p, loop_memory *m)
{
    m->commit = m->block_last = -1;
    for (int i = 0; i < (int)p->slot.n; i++)
        if (m->offset[i] >= 0)
            m->block_last = MAX(m->block_last, p->slot.at[i].last);
    for (int i = (int)p->step.n - 1; i >= 0; i--)
        for (int b = 0; p->step.at[i].kind == STEP_kernel && b < p->step.at[i].kernel->nbuf; b++) {
            const loop_slot *s = &p->slot.at[p->step.at[i].kernel->buf[b]];
            if (s->kind == SLOT_buffer && s->reuses && p->slot.at[s->reuses - 1].kind == SLOT_input)
                m->commit = i;
        }
}

loop_memory loop_memory_plan(tp_comp *c, const loop_plan *p, bool fixed)
{
    loop_memory m = { 0 };
    place(c, p, &m, fixed);
    release(c, p, &m);
    commit(p, &m);
    return m;
}

/* How many buffers lie at each address, while time goes by: a tree over the addresses at which buffers begin and end. */
typedef struct cover {
    int64_t *edge; /* sorted */
    int nedge;
    int *add, *most; /* by node: of the whole node; the most below and in it */
} cover;

static int by_address(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int edge_of(const cover *c, int64_t at)
{
    int lo = 0, hi = c->nedge;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (c->edge[mid] <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Adds `by` to edges [from, to) below node k, which has [lo, hi). Returns how many buffers there were at most. */
static int cover_add(cover *c, int k, int lo, int hi, int from, int to, int by)
{
    int mid = (lo + hi) / 2, had = 0;
    if (to <= lo || hi <= from)
        return 0;
    if (from <= lo && hi <= to) {
        had = c->most[k];
        c->add[k] += by;
        c->most[k] += by;
        return had;
    }
    int l = cover_add(c, 2 * k, lo, mid, from, to, by), r = cover_add(c, 2 * k + 1, mid, hi, from, to, by);
    had = MAX(l, r) + c->add[k];
    c->most[k] = c->add[k] + MAX(c->most[2 * k], c->most[2 * k + 1]);
    return had;
}

/* One buffer that meets slot `i`: for the message alone. */
static const loop_slot *meets(const loop_plan *p, const loop_memory *m, int i)
{
    const loop_slot *s = &p->slot.at[i];
    for (int k = 0; k < (int)p->slot.n; k++) {
        const loop_slot *o = &p->slot.at[k];
        if (k != i && m->offset[k] >= 0 && o->first <= s->last && s->first <= o->last &&
            m->offset[k] < m->offset[i] + slot_bytes(s) && m->offset[i] < m->offset[k] + slot_bytes(o))
            return o;
    }
    return s;
}

/* Another way than place_buffers: step by step, with those that are alive. */
bool loop_memory_check(const loop_plan *p, const loop_memory *m, tp_err *err)
{
    VEC(moment) by = { 0 };
    VEC(int64_t) edge = { 0 };
    bool ok = true;
    for (int i = 0; i < (int)p->slot.n; i++) {
        const loop_slot *s = &p->slot.at[i];
        int64_t at = m->offset[i], end = at < 0 ? at : at + slot_bytes(s);
        if (at < 0)
            continue;
        if (ok && end > m->block)
            ok = err_set(err, ERR_internal, "the memory of '%s' ends outside the block", s->node->name);
        if (at == end)
            continue;
        vec_push(&by, ((moment){ s->first, i, true }));
        vec_push(&by, ((moment){ MAX(s->last, s->first) + 1, i, false }));
        vec_push(&edge, at);
        vec_push(&edge, end);
    }
    if (ok && by.n) {
        cover c = { .edge = edge.at };
        qsort(by.at, by.n, sizeof *by.at, by_time);
        qsort(edge.at, edge.n, sizeof *edge.at, by_address);
        for (size_t i = 0; i < edge.n; i++)
            if (!c.nedge || edge.at[i] != edge.at[c.nedge - 1])
                edge.at[c.nedge++] = edge.at[i];
        c.add = mem_zalloc(sizeof *c.add * 8 * (size_t)c.nedge);
        c.most = c.add + 4 * c.nedge;
        for (size_t i = 0; ok && i < by.n; i++) {
            const loop_slot *s = &p->slot.at[by.at[i].slot];
            int64_t at = m->offset[by.at[i].slot];
            int had = cover_add(&c, 1, 0, c.nedge, edge_of(&c, at), edge_of(&c, at + slot_bytes(s)),
                                by.at[i].begins ? 1 : -1);
            if (by.at[i].begins && had)
                ok = err_set(err, ERR_internal, "'%s' and '%s' lie in the same memory at the same time",
                             s->node->name, meets(p, m, by.at[i].slot)->node->name);
        }
        free(c.add);
    }
    vec_free(&by);
    vec_free(&edge);
    return ok;
}

void loop_memory_free(loop_memory *m)
{
    free(m->offset);
    free(m->dead);
    free(m->dead_at);
    free(m->item);
    free(m->item_at);
}
