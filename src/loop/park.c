/* park.c - values that wait for a later pass.
 * Softmax reads its exponentials twice: for their sum and for the quotient. Instead of computing them again, the pass that
 * sums them stores them where the result will lie, and the pass that writes the result reads them back. */
#include "loop/internal.h"
#include "events/events.h"

/* ---- values that wait for a later pass ----
 * Softmax reads its exponentials twice: for their sum and for the quotient. Instead of computing them again, the pass that
 * sums them stores them where the result will lie, and the pass that writes the result reads them back. */
typedef struct reach { /* what the expression of a member reads of its group */
    planner *pl;
    const group *g;
    uint64_t members; /* inner ones, by number */
    bool costly;
    VEC(ir_node *) stack;
    map seen;
} reach;

static void reach_operand(void *arg, ir_node *n)
{
    reach *r = arg;
    const info *f = &r->pl->in[n->id];
    if (f->g && f->g == r->g && !f->library_call) {
        if (!f->outer)
            r->members |= 1ull << member_number(r->g, n);
        return;
    }
    if (n->kind == IR_call && !f->materialized && !f->memview && !map_puti(&r->seen, (uintptr_t)n, n))
        vec_push(&r->stack, n);
}

static reach reach_of(planner *pl, const group *g, ir_node *n)
{
    reach r = { .pl = pl, .g = g, .costly = is_costly(n) };
    vec_push(&r.stack, n);
    while (r.stack.n) {
        ir_node *x = vec_pop(&r.stack);
        r.costly |= is_costly(x);
        if (!lower_row(x)->constant) /* full_like(y, 1) looks at the sizes of y alone */
            ir_each_operand(x, reach_operand, &r);
    }
    vec_free(&r.stack);
    map_free(&r.seen);
    return r;
}

/* A result whose memory can hold member i from pass `first` to pass `last`, or NULL. */
static ir_node *park_place(walk *w, int i, int first, int last, int64_t row)
{
    const group *g = w->g;
    const emit *e = w->e;
    const tp_tensor *t = ir_type(g->member[i]);
    if ((t->dt != DT_f32 && t->dt != DT_f64) ||
        row * (int64_t)dtype_size((dtype)t->dt) > w->pl->c->caps->park_bytes)
        return NULL;                 /* narrow types would lose digits */
    for (int k = i; k < g->n; k++) { /* best in its own */
        ir_node *m = g->member[k];
        const info *f = &w->pl->in[m->id];
        const tp_tensor *mt = ir_type(m);
        if (f->outer || !f->stored || mt->dt != t->dt || (k != i && f->level < last) ||
            !same_sizes(mt->ndim, mt->size, t->ndim, t->size))
            continue;
        bool taken = false; /* in the same passes */
        for (int q = 0; q < g->n; q++)
            taken |= e->park[q] == m && e->park_first[q] < last && first < e->park_last[q];
        if (!taken)
            return m;
    }
    return NULL;
}

void park_members(walk *w, int64_t row)
{
    planner *pl = w->pl;
    group *g = w->g;
    emit *e = w->e;
    uint32_t wanted[MAX_MEMBERS] = { 0 }; /* bit p: its value is computed in pass p */
    uint64_t reads[MAX_MEMBERS];
    bool costly[MAX_MEMBERS];
    for (int i = 0; i < g->n; i++) {
        reach r = reach_of(pl, g, g->member[i]);
        reads[i] = r.members;
        costly[i] = r.costly;
        for (int k = 0; k < i; k++)
            costly[i] |= (r.members >> k & 1) && costly[k];
    }
    for (int i = g->n - 1; i >= 0; i--) { /* users are decided before what they use */
        ir_node *n = g->member[i];
        const info *f = &pl->in[n->id];
        if (f->outer && !f->red)
            continue;
        if (f->red || f->stored)
            wanted[i] |= 1u << f->level;
        if (!f->red && costly[i] && (wanted[i] & (wanted[i] - 1))) {
            int first = __builtin_ctz(wanted[i]), last = 31 - __builtin_clz(wanted[i]);
            ir_node *m = park_place(w, i, first, last, row);
            if (m && decide(pl->c, DECIDE_fuse, n)) {
                e->park[i] = m;
                e->park_first[i] = first;
                e->park_last[i] = last;
                wanted[i] = 1u << first;
                if (ev_text_on(EV_fusion))
                    ev_text(EV_fusion, NULL, "%s waits for later passes in the memory of %s", n->name,
                            m->name);
            }
        }
        for (int k = 0; k < i; k++)
            if (reads[i] >> k & 1)
                wanted[k] |= wanted[i];
    }
}

static vir_ref parked_at(walk *w, ir_node *n, int *buf)
{
    lin home[TP_MAX_DIMS];
    member_index(w, n, home);
    lin a = address(w, ir_type(n), home);
    *buf = buffer_of(w, n, VIR_INOUT);
    return emit_lin(w, &a);
}

/* At the beginning of a pass's body: before anything is stored there. */
void load_parked(walk *w, int pass)
{
    emit *e = w->e;
    for (int i = 0, buf; i < w->g->n; i++)
        if (e->park[i] && e->park_first[i] < pass && pass <= e->park_last[i]) {
            vir_ref at = parked_at(w, e->park[i], &buf);
            e->value[i] = vir_load(w->k, buf, at, 0);
            e->value_pass[i] = pass;
        }
}

void store_parked(walk *w, int pass)
{
    emit *e = w->e;
    for (int i = 0, buf; i < w->g->n; i++)
        if (e->park[i] && e->park[i] != w->g->member[i] && e->park_first[i] == pass) {
            vir_ref at = parked_at(w, e->park[i], &buf), v = member_value(w, w->g->member[i]);
            vir_store(w->k, buf, at, v, 0);
        }
}
