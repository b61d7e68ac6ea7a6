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

/* First fit over life times: a buffer may lie where another has ended. Returns how much all of them take. */
static int64_t place_buffers(const loop_plan *p, const int *order, int n, const int64_t *bytes,
                             int64_t *offset)
{
    int64_t block = 0;
    for (int a = 0; a < n; a++) {
        const loop_slot *s = &p->slot.at[order[a]];
        int64_t need = bytes[order[a]], at = 0;
        for (bool moved = true; moved;) {
            moved = false;
            for (int b = 0; b < a; b++) {
                const loop_slot *o = &p->slot.at[order[b]];
                int64_t ob = offset[order[b]], oe = ob + bytes[order[b]];
                if (o->first <= s->last && s->first <= o->last && ob < at + need && at < oe) {
                    at = oe;
                    moved = true;
                }
            }
        }
        offset[order[a]] = at;
        block = MAX(block, MAX(at + need, 64)); /* empty buffers lie somewhere, too */
    }
    return block;
}

/* One block for all buffers costs nothing to ask for, but makes a program need more memory at its height than one that
 * frees each after its last use: where the difference counts, large ones get memory of their own while they live. What
 * is large: asking for it costs little beside filling it. */
static void place(tp_comp *c, const loop_plan *p, loop_memory *m)
{
    int n = (int)p->slot.n, placed = 0;
    int *order = mem_alloc(sizeof *order * (size_t)MAX(n, 1));
    int64_t *bytes = mem_alloc(sizeof *bytes * (size_t)MAX(n, 1));
    m->offset = mem_alloc(sizeof *m->offset * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++) {
        bytes[i] = m->offset[i] = -1;
        const loop_slot *s = &p->slot.at[i];
        if (s->kind == SLOT_buffer && !s->output && !s->transient && !s->reuses && s->first >= 0 &&
            loop_const_type(s->type) && (!s->node || decide(c, DECIDE_inplace, s->node))) {
            bytes[i] = slot_bytes(s);
            order[placed++] = i;
        }
    }
    for (int a = 1; a < placed; a++) /* larger ones first */
        for (int b = a; b > 0 && bytes[order[b - 1]] < bytes[order[b]]; b--) {
            int t = order[b];
            order[b] = order[b - 1];
            order[b - 1] = t;
        }
    m->block = place_buffers(p, order, placed, bytes, m->offset);
    int64_t *offset = mem_alloc(sizeof *offset * (size_t)MAX(n, 1)),
            most = placed ? height(p, bytes, m->block, INT64_MAX) : 0;
    for (int64_t large = 32 << 10; placed && large >= 4 << 10 && bytes[order[0]] >= large; large /= 8) {
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
static void release(const loop_plan *p, loop_memory *m)
{
    int n = (int)p->slot.n, steps = (int)p->step.n, at = 0;
    m->dead = mem_alloc(sizeof *m->dead * (size_t)MAX(n, 1));
    m->dead_at = mem_alloc(sizeof *m->dead_at * (size_t)(steps + 1));
    memset(m->dead_at, 0, sizeof *m->dead_at * (size_t)(steps + 1));
    for (int s = 0; s < n; s++) /* how many, where they end, then from the last to the first */
        if (p->slot.at[s].last >= 0 && p->slot.at[s].last < steps)
            m->dead_at[p->slot.at[s].last]++;
    for (int i = 0; i < steps; i++)
        m->dead_at[i] = at += m->dead_at[i];
    m->dead_at[steps] = at;
    for (int s = n - 1; s >= 0; s--)
        if (p->slot.at[s].last >= 0 && p->slot.at[s].last < steps)
            m->dead[--m->dead_at[p->slot.at[s].last]] = s;
    at = 0;
    m->item = mem_alloc(sizeof *m->item * (size_t)MAX(n, 1));
    m->item_at = mem_alloc(sizeof *m->item_at * (size_t)(steps + 1));
    for (int i = 0; i < steps; i++) {
        const loop_step *st = &p->step.at[i];
        bool only = st->kind == STEP_extern && !st->product;
        m->item_at[i] = at;
        for (const ir_use *u = only ? st->node->uses : NULL; u; u = u->next)
            only &= u->user->kind == IR_getitem;
        for (int s = 0; s < n && only; s++)
            if (p->slot.at[s].kind == SLOT_extern && p->slot.at[s].index == st->slot)
                m->item[at++] = s;
    }
    m->item_at[steps] = at;
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

loop_memory loop_memory_plan(tp_comp *c, const loop_plan *p)
{
    loop_memory m = { 0 };
    place(c, p, &m);
    release(p, &m);
    commit(p, &m);
    return m;
}

void loop_memory_free(loop_memory *m)
{
    free(m->offset);
    free(m->dead);
    free(m->dead_at);
    free(m->item);
    free(m->item_at);
}
