/* order.c - the order of the steps: program order where nothing speaks against it. */
#include "loop/internal.h"

typedef VEC(int) heap; /* of numbers of groups: the lowest comes out first */

static void heap_push(heap *h, int x)
{
    vec_push(h, x);
    for (size_t i = h->n - 1; i && h->at[(i - 1) / 2] > h->at[i]; i = (i - 1) / 2) {
        int up = h->at[(i - 1) / 2];
        h->at[(i - 1) / 2] = h->at[i];
        h->at[i] = up;
    }
}

static int heap_pop(heap *h)
{
    int top = h->at[0], last = vec_pop(h);
    for (size_t i = 0, k; h->n; i = k) {
        k = 2 * i + 1;
        if (k + 1 < h->n && h->at[k + 1] < h->at[k])
            k++;
        h->at[i] = k < h->n && h->at[k] < last ? h->at[k] : last;
        if (h->at[i] == last)
            break;
    }
    return top;
}

typedef struct orderer {
    planner *pl;
    bool *done, *floats; /* floats: computed from inputs alone, so it can wait until it is wanted */
    int *waits;          /* for so many groups that are neither there nor can wait */
    int *needs;          /* in place(): for so many that are not there */
    heap ready, next;
    int *order, n;
} orderer;

static void put_next(orderer *o, int i)
{
    o->done[i] = true;
    o->pl->groups.at[i]->order = o->n;
    o->order[o->n++] = i;
}

/* g after everything it needs, lowest number first: stable and close to program order. */
static void place(orderer *o, group *g)
{
    planner *pl = o->pl;
    group_list *need = &pl->todo[0];
    int walk = ++pl->nwalk;
    size_t at = 0;
    need->n = 0;
    for (const group *m = g;; m = need->at[at++]) {
        for (size_t i = 0; i < m->before.n; i++) {
            group *p = m->before.at[i];
            if (o->done[p->id] || p->listed == walk)
                continue;
            p->listed = walk;
            vec_push(need, p);
        }
        if (at == need->n)
            break;
    }
    for (size_t i = 0; i < need->n; i++) {
        const group *m = need->at[i];
        o->needs[m->id] = 0;
        for (size_t k = 0; k < m->before.n; k++)
            o->needs[m->id] += !o->done[m->before.at[k]->id];
        if (!o->needs[m->id])
            heap_push(&o->next, m->id);
    }
    while (o->next.n) {
        const group *m = pl->groups.at[heap_pop(&o->next)];
        put_next(o, m->id);
        for (size_t i = 0; i < m->after.n; i++)
            if (m->after.at[i]->listed == walk && --o->needs[m->after.at[i]->id] == 0)
                heap_push(&o->next, m->after.at[i]->id);
    }
    put_next(o, g->id);
}

/* Groups that write new values of inputs and that nothing but such ones follows. */
static void find_writers(planner *pl)
{
    int n = (int)pl->groups.n;
    bool *writes = pl->writes = ARENA_ARR(&pl->tmp, bool, MAX(n, 1));
    group_list *others = &pl->todo[0];
    others->n = 0;
    for (int i = 0; i < n; i++) {
        group *g = pl->groups.at[i];
        for (int m = 0; m < g->n && !g->library_call && !g->red; m++)
            writes[i] |= pl->in[g->member[m]->id].into != NULL;
        if (!writes[i])
            vec_push(others, g);
    }
    while (others->n) {
        const group *g = vec_pop(others);
        for (size_t i = 0; i < g->before.n; i++) {
            group *p = g->before.at[i];
            if (writes[p->id])
                vec_push(others, p);
            writes[p->id] = false;
        }
    }
}

/* A product that takes more memory than its factors, which are there anyway. */
static bool is_wider(planner *pl, const ir_node *n)
{
    return is_plain_bmm(pl, n) && hint(ir_type(n)->numel) > hint(ir_type(n->arg[0].node)->numel) +
                                                                hint(ir_type(n->arg[1].node)->numel);
}

static bool can_float(planner *pl, const group *g)
{
    bool call = g->library_call &&
                !(g->library_call->kind == IR_call && (row_of(g->library_call)->flags & OPF_VIEW)) &&
                !is_wider(pl, g->library_call);
    bool sum = g->red != 0 && !g->after.n; /* one that is only returned frees what it reads */
    return !call && !sum;
}

static void find_floats(orderer *o)
{
    planner *pl = o->pl;
    group_list *todo = &pl->todo[0];
    todo->n = 0;
    for (size_t i = 0; i < pl->groups.n; i++) {
        group *g = pl->groups.at[i];
        o->waits[i] = (int)g->before.n;
        if (!g->before.n && can_float(pl, g))
            vec_push(todo, g);
    }
    while (todo->n) {
        const group *g = vec_pop(todo);
        o->floats[g->id] = true;
        for (size_t i = 0; i < g->after.n; i++) {
            group *s = g->after.at[i];
            if (--o->waits[s->id] == 0 && can_float(pl, s))
                vec_push(todo, s);
        }
    }
}

static bool in_pass(const orderer *o, int i, int pass) /* new values of inputs come last */
{
    return !o->done[i] && (pass > 0 || !o->floats[i]) && (pass > 1 || !o->pl->writes[i]);
}

/* Program order, but what was moved to the backward pass to be computed again waits for its first user: computed early
 * it would only take memory. */
void schedule_order(planner *pl, int *order)
{
    int n = (int)pl->groups.n;
    orderer o = { .pl = pl, .order = order };
    o.done = mem_zalloc((size_t)MAX(2 * n, 1));
    o.floats = o.done + n;
    o.waits = mem_zalloc(sizeof *o.waits * (size_t)MAX(2 * n, 1));
    o.needs = o.waits + n;
    find_floats(&o);
    find_writers(pl);
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < n; i++)
            if (in_pass(&o, i, pass) && !o.waits[i])
                heap_push(&o.ready, i);
        while (o.ready.n) { /* lowest number first whose sources are there or can wait */
            group *g = pl->groups.at[heap_pop(&o.ready)];
            if (o.done[g->id])
                continue;
            place(&o, g);
            for (size_t i = 0; i < g->after.n && !o.floats[g->id]; i++) {
                int s = g->after.at[i]->id;
                if (--o.waits[s] == 0 && in_pass(&o, s, pass))
                    heap_push(&o.ready, s);
            }
        }
    }
    assert(o.n == n);
    vec_free(&o.ready);
    vec_free(&o.next);
    free(o.done);
    free(o.waits);
}
