/* nest.c - the loops of a group: what it reads and writes, which variables merge, in which order they run. */
#include "loop/internal.h"

static bool can_merge(const walk *w, const space *s, int outer, int inner)
{
    for (size_t i = 0; i < w->seen.n; i++) {
        const lin *a = &w->seen.at[i].at;
        if (a->opaque || w->seen.at[i].part)
            continue; /* its parts were seen on their own */
        symint co = stride_in(a, outer), ci = stride_in(a, inner), want = sym_mul(ci, s->size[inner]);
        if (co != want && !sym_known(SYM_eq, co, want))
            return false;
    }
    return true;
}

static void merge_list(const walk *w, space *s, nest *t, int *list, int *n)
{
    for (int i = *n - 2; i >= 0; i--) {
        int outer = list[i], inner = list[i + 1];
        if (!can_merge(w, s, outer, inner))
            continue;
        t->merged[outer] = -1;
        s->size[inner] = t->size[inner] = sym_mul(s->size[outer], s->size[inner]);
        memmove(&list[i], &list[i + 1], sizeof(int) * (size_t)(*n - 1 - i));
        (*n)--;
    }
}

/* Is it touched at every step of the loops of a reduction, not once for each result? */
static bool each_step(const access *a, const nest *t)
{
    bool each = t->nred == 0 || a->part;
    for (int q = 0; q < t->nred; q++)
        each |= stride_in(&a->at, t->red[q]) != 0;
    return each;
}

/* Order variables by how far they step in memory, outermost first. t: what is touched at every step tells before what is not; NULL:
 * all alike. */
static void order_list(const walk *w, const nest *t, int *list, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0; j--) {
            int64_t a = 0, b = 0; /* the first access that can tell decides: results come first */
            for (size_t q = 0; q < 2 * w->seen.n && a == b; q++) {
                size_t k = q % w->seen.n;
                const access *at = &w->seen.at[w->pl->c->caps->last_operand ? w->seen.n - 1 - k : k];
                if (at->raw || at->at.opaque || (q < w->seen.n && t && !each_step(at, t)))
                    continue;
                int64_t x = llabs(hint(stride_in(&at->at, list[j - 1]))),
                        y = llabs(hint(stride_in(&at->at, list[j])));
                if (x && y)
                    a = x, b = y;
            }
            if (a >= b)
                break;
            int t = list[j];
            list[j] = list[j - 1];
            list[j - 1] = t;
        }
}

/* Dry run of the whole group: splits and accesses. */
bool survey(planner *pl, group *g, space *s, walk *w)
{
    for (int round = 0, last = 16; round <= last; round++) { /* the last one takes indices as they are */
        bool more = round < last;
        *w = (walk){ .pl = pl, .g = g, .space = s, .vsize = s->size, .nvar = s->nvar, .dry = true };
        w->split_var = more ? -1 : 0;
        pl->check.n = 0;
        for (int pass = 0; pass < 2; pass++) /* results first: they decide the order of loops */
            for (int i = 0; i < g->n; i++) {
                ir_node *n = g->member[i];
                info *f = &pl->in[n->id];
                lin home[TP_MAX_DIMS];
                if (pass == 0) {
                    if (f->stored && !(f->scatter && g->part == 2)) {
                        member_index(w, n, home);
                        access at = { .at = address(w, ir_type(n), home),
                                      .to = n }; /* which may see more on its way */
                        vec_push(&w->seen, at);
                    }
                    continue;
                }
                ir_node *root = n;
                w->self = n;
                if (f->red || f->scan) {
                    root = n->arg[0].node;
                    w->self = NULL;
                    for (int d = 0; d < g->nd; d++)
                        home[d] = g->size[d] == 1 ? lin_const(0) : s->at[d];
                    if (is_place(f->rkind))
                        use_raw(w, &home[__builtin_ctz(f->mask)]);
                } else
                    member_index(w, n, home);
                if (f->scatter && g->part == 2)
                    scatter_at(w, n, home, false, 0);
                else
                    eval(w, root, home);
                if (w->fail && (w->split_var < 0 || !more))
                    return false;
                w->fail = false;
            }
        if (w->split_var < 0 || !more)
            return true;
        int v = w->split_var;
        symint by = w->split_in;
        vec_free(&w->seen);
        vec_free(&w->loads);
        if (!space_split(s, v, by))
            last = round + 1;
    }
    return false;
}

void make_nest(planner *pl, group *g, space *s, walk *w, nest *t)
{
    memset(t, 0, sizeof *t);
    for (int v = 0; v < s->nvar; v++) {
        t->size[v] = s->size[v];
        t->merged[v] = v;
        if (s->size[v] == 1)
            continue;
        if (g->red >> s->dim[v] & 1)
            t->red[t->nred++] = v;
        else
            t->keep[t->nkeep++] = v;
    }
    order_list(w, g->red && pl->c->caps->column_threads ? t : NULL, t->keep, t->nkeep);
    order_list(w, NULL, t->red, t->nred);
    merge_list(w, s, t, t->keep, &t->nkeep);
    merge_list(w, s, t, t->red, &t->nred);
    if (g->red && t->nkeep) { /* which of the two walks memory element by element? */
        int k = t->keep[t->nkeep - 1], r = t->nred ? t->red[t->nred - 1] : -1;
        int64_t ku = 0, ru = 0;
        for (size_t i = 0; i < w->seen.n; i++) {
            const access *a = &w->seen.at[i];
            if (a->raw || a->at.opaque)
                continue;
            bool each = each_step(a, t);
            int votes = a->part ? 2 : 1; /* the other way round it would be gathered */
            ku += votes * (each && stride_in(&a->at, k) == 1);
            /* the same number in all lanes of columns costs nothing there */
            ru += votes * (each && r >= 0 && stride_in(&a->at, r) == 1 && stride_in(&a->at, k) != 0);
        }
        t->column = g->part || (ku > ru && hint(t->size[k]) >= 8);
        if (r < 0)
            t->column = true;
    }
}

/* An operand that is walked across while results are walked along: which loop walks along it? -1: there is none. And how
 * many elements of the result are made before it goes on there: as many lines as the first cache holds, which are few where
 * they lie a multiple of a large power of two apart; 0: what is read stays in cache anyway. */
int crossed(const walk *w, const nest *t, int along, int *strip)
{
    const target_caps *caps = w->pl->c->caps;
    for (size_t i = 0; i < w->seen.n; i++) {
        const lin *a = &w->seen.at[i].at;
        int64_t stride = w->seen.at[i].raw || a->opaque ? 0 : llabs(hint(stride_in(a, along)));
        for (int q = 0; stride >= caps->strip_far && q < t->nkeep; q++)
            if (t->keep[q] != along && stride_in(a, t->keep[q]) == 1 && hint(t->size[t->keep[q]]) >= 8) {
                bool stays = hint(t->size[t->keep[q]]) * hint(t->size[along]) < caps->strip_fits;
                *strip = stays ? 0 : stride % 256 == 0 ? caps->strip_far : caps->strip_near;
                return q;
            }
    }
    return -1;
}
