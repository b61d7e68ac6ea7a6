/* order.c - the order of the steps. */
#include "loop/internal.h"

typedef struct orderer {
    planner *pl;
    uint64_t *done,
        *floats; /* groups; floats: computed from inputs alone, so it can wait until it is wanted */
    int *order, n;
} orderer;

/* g after everything it needs, lowest number first: stable and close to program order. */
static void place(orderer *o, group *g)
{
    if (bit_has(o->done, g->id))
        return;
    int words = o->pl->words;
    for (int j = 0; j < (int)o->pl->groups.n && !bits_within(g->before, o->done, NULL, words);
         j++) /* `before` is transitive and numbers follow it among what waits */
        if (!bit_has(o->done, j) && j != g->id && bit_has(g->before, j) &&
            bits_within(o->pl->groups.at[j]->before, o->done, NULL, words)) {
            bit_set(o->done, j);
            o->order[o->n++] = j;
            j = -1; /* something lower may be ready now */
        }
    bit_set(o->done, g->id);
    o->order[o->n++] = g->id;
}

static void find_writers(planner *pl)
{
    int n = (int)pl->groups.n;
    bool *writes = pl->writes = ARENA_ARR(&pl->tmp, bool, MAX(n, 1));
    for (int i = 0; i < n; i++)
        for (int m = 0; m < pl->groups.at[i]->n && !pl->groups.at[i]->ext && !pl->groups.at[i]->red; m++)
            writes[i] |= pl->in[pl->groups.at[i]->member[m]->id].into != NULL;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n && writes[i]; j++)
                if (!writes[j] && bit_has(pl->groups.at[j]->before, i)) {
                    writes[i] = false;
                    more = true;
                }
    }
}

/* A product that takes more memory than its factors, which are there anyway. */
static bool is_wider(planner *pl, const ir_node *n)
{
    return is_plain_bmm(pl, n) && hint(ir_type(n)->numel) > hint(ir_type(n->arg[0].node)->numel) +
                                                                hint(ir_type(n->arg[1].node)->numel);
}

/* Program order, but what was moved to the backward pass to be computed again waits for its first user: computed early
 * it would only take memory. */
void schedule_order(planner *pl, int *order)
{
    int n = (int)pl->groups.n;
    int words = pl->words;
    uint64_t *sets = mem_zalloc(sizeof *sets * 3 * (size_t)words), *followed = sets + 2 * words;
    orderer o = { pl, sets, sets + words, order, 0 };
    for (int i = 0; i < n; i++)
        for (int q = 0; q < words; q++)
            followed[q] |= pl->groups.at[i]->before[q];
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n; i++) {
            group *g = pl->groups.at[i];
            bool call = g->ext && !(g->ext->kind == IR_call && (row_of(g->ext)->flags & OPF_VIEW)) &&
                        !is_wider(pl, g->ext);
            bool sum = g->red != 0 &&
                       !bit_has(followed, i); /* one that is only returned frees what it reads */
            if (call || sum || bit_has(o.floats, i) || !bits_within(g->before, o.floats, NULL, words))
                continue;
            more = true;
            bit_set(o.floats, i);
        }
    }
    find_writers(pl);
    for (int pass = 0; pass < 3; pass++) { /* new values of inputs come last */
        for (bool more = true; more;) {
            more = false;
            for (int i = 0; i < n && !more;
                 i++) { /* lowest number first whose sources are there or can wait */
                if (bit_has(o.done, i) || (pass == 0 && bit_has(o.floats, i)) || (pass < 2 && pl->writes[i]))
                    continue;
                if (bits_within(pl->groups.at[i]->before, o.done, o.floats, words)) {
                    place(&o, pl->groups.at[i]);
                    more = true;
                }
            }
        }
    }
    assert(o.n == n);
    free(sets);
}
