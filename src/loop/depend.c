/* depend.c - which groups must come before which: direct edges, and ranks that grow along them.
 * Whether a path leads from one group to another is searched from both ends at once: it ends when either runs out. So a
 * value that only its reader wants, or one that needs inputs alone, costs nothing however long the program is. */
#include "loop/internal.h"

/* What each value that waits (ir_node.late) waits for: its first reader that does not wait itself. */
void find_readers(planner *pl)
{
    for (ir_node *n = pl->g->last; n; n = n->prev)
        for (const ir_use *u = n->late ? n->uses : NULL; u; u = u->next) {
            ir_node *r = u->user->late ? pl->in[u->user->id].reader : u->user;
            ir_node **first = &pl->in[n->id].reader;
            if (r && r->kind != IR_output && (!*first || r->id < (*first)->id))
                *first = r;
        }
}

typedef struct depwalk {
    planner *pl;
    group_list *deps;
    int before; /* id of the node that is placed */
    VEC(ir_node *) stack;
    int walk; /* number of this one */
} depwalk;

static void dep_operand(void *arg, ir_node *n)
{
    depwalk *d = arg;
    info *f = &d->pl->in[n->id];
    if (f->g) {
        if (f->g->listed != d->walk)
            vec_push(d->deps, f->g);
        f->g->listed = d->walk;
        return;
    }
    if (n->kind == IR_placeholder || n->kind == IR_const || f->walked == d->walk)
        return;
    f->walked = d->walk;
    vec_push(&d->stack, n);
}

static void dep_beside(void *arg, ir_node *n) /* what was placed already of what a reader needs */
{
    if (!n->late && n->id < ((depwalk *)arg)->before)
        dep_operand(arg, n);
}

static int newest_first(const void *a, const void *b)
{
    return (*(group *const *)b)->id - (*(group *const *)a)->id;
}

/* Groups that n's operands (through inlined values) come from, newest first. */
void node_deps(planner *pl, ir_node *n, group_list *deps)
{
    depwalk d = { .pl = pl, .deps = deps, .walk = ++pl->nwalk, .before = n->id };
    deps->n = 0;
    ir_each_operand(n, dep_operand, &d);
    if (n->late && pl->in[n->id].reader)
        ir_each_operand(pl->in[n->id].reader, dep_beside, &d);
    while (d.stack.n)
        ir_each_operand(vec_pop(&d.stack), dep_operand, &d);
    vec_free(&d.stack);
    if (deps->n)
        qsort(deps->at, deps->n, sizeof *deps->at, newest_first);
}

bool list_has(const group_list *l, const group *g)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->at[i] == g)
            return true;
    return false;
}

void list_drop(group_list *l, const group *g)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->at[i] == g) {
            l->at[i] = l->at[--l->n];
            return;
        }
}

/* g follows d: so do all that follow g, and their ranks say it. */
static void raise_rank(planner *pl, group *g, int rank)
{
    group_list *todo = &pl->todo[0];
    todo->n = 0;
    if (g->rank >= rank)
        return;
    g->rank = rank;
    vec_push(todo, g);
    while (todo->n) {
        group *h = vec_pop(todo);
        for (size_t i = 0; i < h->after.n; i++) {
            group *s = h->after.at[i];
            if (s->rank > h->rank)
                continue;
            s->rank = h->rank + 1;
            vec_push(todo, s);
        }
    }
}

/* Everything in deps, but g itself, comes before g. */
void add_before(planner *pl, group *g, const group_list *deps)
{
    bool first = g->before.n == 0; /* then none of them is there yet: deps has each once */
    for (size_t i = 0; i < deps->n; i++) {
        group *d = deps->at[i];
        if (d == g || (!first && list_has(&g->before, d)))
            continue;
        vec_push(&g->before, d);
        vec_push(&d->after, g);
        raise_rank(pl, g, d->rank + 1);
    }
}

/* Does a path lead from g to one of deps that is not g? */
bool would_cycle(planner *pl, const group *g, const group_list *deps)
{
    group_list *ahead = &pl->todo[0], *back = &pl->todo[1];
    int walk = ++pl->nwalk, most = -1;
    ahead->n = back->n = 0;
    for (size_t i = 0; i < deps->n; i++)
        if (deps->at[i] != g && deps->at[i]->rank > g->rank) {
            deps->at[i]->back = walk;
            most = MAX(most, deps->at[i]->rank);
            vec_push(back, deps->at[i]);
        }
    vec_push(ahead, (group *)g);
    while (ahead->n && back->n) {
        const group *a = vec_pop(ahead), *b = vec_pop(back);
        for (size_t i = 0; i < a->after.n; i++) {
            group *s = a->after.at[i];
            if (s->back == walk)
                return true;
            if (s->rank > most || s->ahead == walk)
                continue;
            s->ahead = walk;
            vec_push(ahead, s);
        }
        for (size_t i = 0; i < b->before.n; i++) {
            group *s = b->before.at[i];
            if (s == g || s->ahead == walk)
                return true;
            if (s->rank <= g->rank || s->back == walk)
                continue;
            s->back = walk;
            vec_push(back, s);
        }
    }
    return false;
}

bool comes_before(planner *pl, const group *g, group *h)
{
    return would_cycle(pl, g, &(group_list){ .at = &h, .n = 1 });
}

static int by_order(const void *a, const void *b)
{
    return (*(group *const *)a)->order - (*(group *const *)b)->order;
}
void list_sort(group_list *l)
{
    if (l->n)
        qsort(l->at, l->n, sizeof *l->at, by_order);
}

/* Adds to `missing` what must come before g and is not written yet; no more than `most` that are no reservations. What is written
 * has all its own sources written. */
void unwritten_before(planner *pl, const group *g, const uint64_t *written, int walk, int most,
                      group_list *missing)
{
    size_t from = missing->n;
    for (const group *m = g;; m = missing->at[from++]) {
        for (size_t i = 0; i < m->before.n && most > 0; i++) {
            group *p = m->before.at[i];
            if (bit_has(written, p->id) || p->listed == walk)
                continue;
            p->listed = walk;
            vec_push(missing, p);
            most -= !reserves(p);
        }
        if (from == missing->n)
            return;
    }
}
