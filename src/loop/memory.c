/* memory.c - slots: what each value lies in, how long it lives, and which value may lie in the memory of another. */
#include "loop/internal.h"
#include "ir/planted.h"

int slot_add(planner *pl, slot_kind kind, const ir_node *n, int index)
{
    loop_slot s = { .kind = (uint8_t)kind,
                    .index = index,
                    .node = n,
                    .type = n->val.kind == VAL_tensor ? n->val.t : NULL,
                    .konst = n->konst,
                    .first = -1,
                    .last = -1 };
    vec_push(&pl->p->slot, s);
    pl->in[n->id].slot = (int)pl->p->slot.n;
    map_puti(&pl->p->slot_of, (uintptr_t)n, (void *)(uintptr_t)pl->p->slot.n);
    return (int)pl->p->slot.n - 1;
}

int slot_of(planner *pl, ir_node *n)
{
    info *f = &pl->in[n->id];
    if (f->slot)
        return f->slot - 1;
    switch (n->kind) {
    case IR_const: return slot_add(pl, SLOT_const, n, 0);
    case IR_getitem: {
        ir_node *call = n->arg[0].node;
        int of = slot_of(pl, call);
        if (pl->in[call->id].product) /* memory of its own */
            return slot_add(pl, SLOT_buffer, n, -1);
        slot_add(pl, SLOT_extern, n, of);
        return f->slot - 1;
    }
    default:
        if (!f->materialized && n->kind == IR_call && (row_of(n)->flags & OPF_VIEW) &&
            n->arg[0].kind == VAL_node) {
            int base = slot_of(pl, n->arg[0].node);
            return slot_add(pl, SLOT_view, n, base);
        }
        if (f->product && lower_row(n)->adds_to && lower_row(n)->adds_to(n)) {
            int reuses = slot_of(pl, lower_row(n)->adds_to(n)), s = slot_add(pl, SLOT_extern, n, -1);
            pl->p->slot.at[s].reuses = reuses + 1;
            return s;
        }
        bool buffer = f->product && !lower_row(n)->items;
        return slot_add(pl, f->library_call && !buffer ? SLOT_extern : SLOT_buffer, n, -1);
    }
}

/* Does the kernel read x only where it writes n, and is all of it there? */
static bool reads_where_written(const walk *w, const ir_node *x, const ir_node *n)
{
    if (!ir_type_equal(&x->val, &n->val) || !tensor_is_dense(ir_type(x)) || !same_rows(w, x, n))
        return false;
    for (size_t i = 0; i < w->seen.n; i++) {
        const access *a = &w->seen.at[i];
        if (a->at.opaque && (a->n == x || a->to == n))
            return false;
        if (a->n && a->n != x && beyond_views((ir_node *)a->n) == x)
            return false;
    }
    return true;
}

static bool reads_any(const walk *w, const ir_node *x)
{
    for (size_t i = 0; i < w->seen.n; i++)
        if (w->seen.at[i].n && beyond_views((ir_node *)w->seen.at[i].n) == x)
            return true;
    return false;
}

/* The kernel that writes into a copy of x: it runs in the memory of x itself where x ends here, and reads x, if at all, only
 * where it writes. Without the copy then. */
static void find_written_over(planner *pl, const group *g, const walk *w)
{
    ir_node *n = g->member[0], *x = n->arg[0].node;
    const info *f = &pl->in[n->id];
    const lin *to = NULL;
    loop_gather of;
    bool input = x->kind == IR_placeholder, library = pl->in[x->id].library_call != pl->in[x->id].product;
    if (g->part != 2 || !(input ? f->into == x : pl->in[x->id].materialized && !library) ||
        !ir_type_equal(&x->val, &n->val) || !tensor_is_dense(ir_type(x)) || !decide(pl->c, DECIDE_inplace, n))
        return;
    loop_gather_of(n, &of);
    for (size_t i = 0; i < w->seen.n && !of.serial; i++) /* serial: a place may be written more than once */
        if (w->seen.at[i].to == n)
            to = &w->seen.at[i].at;
    for (size_t i = 0; i < w->seen.n; i++) {
        const access *a = &w->seen.at[i];
        if (a->n && beyond_views((ir_node *)a->n) == x && (!to || to->opaque || !lin_equal(&a->at, to)))
            return;
    }
    vec_push(&pl->reuses, ((reuse){ n, x, -1, true }));
}

/* New values of inputs, and the last value of the kernel that has a reader, may lie where it reads. In one pass: another
 * would read what was written over. */
void find_reuse(planner *pl, const group *g, const walk *w)
{
    for (int i = 0; i < g->n; i++) {
        const info *f = &pl->in[g->member[i]->id];
        if (f->scatter) {
            find_written_over(pl, g, w);
            return;
        }
        if (f->level)
            return;
    }
    if (g->scan || g->part)
        return;
    bool found = false;
    for (int i = g->n - 1; i >= 0; i--) {
        ir_node *n = g->member[i];
        info *f = &pl->in[n->id];
        if (!f->stored || f->outer || (found && !f->into) || !decide(pl->c, DECIDE_inplace, n))
            continue;
        for (size_t k = 0; k < w->loads.n; k++) {
            ir_node *x = w->loads.at[k];
            bool input = x->kind == IR_placeholder;
            if ((f->into ? x != f->into
                         : input || pl->in[x->id].library_call != pl->in[x->id].product ||
                               !pl->in[x->id].materialized) ||
                !reads_where_written(w, x, n))
                continue;
            vec_push(&pl->reuses, ((reuse){ n, x, -1, false }));
            f->last = found = true;
        }
        if (f->into && !f->last && !reads_any(w, f->into)) { /* written without being read: a copy, a fill */
            vec_push(&pl->reuses, ((reuse){ n, f->into, -1, false }));
            f->last = found = true;
        }
    }
}

/* The slot whose memory this one looks at, or -1. Calls may return their first operand or views of it. */
static int looks_at(planner *pl, int slot)
{
    const loop_slot *s = &pl->p->slot.at[slot];
    if (s->reuses)
        return s->reuses - 1;
    if (s->kind == SLOT_view || (s->kind == SLOT_extern && s->index >= 0))
        return s->index;
    if (s->kind != SLOT_extern || s->node->narg < 1 || s->node->arg[0].kind != VAL_node)
        return -1;
    ir_node *a = s->node->arg[0].node;
    bool same = s->type && ir_type(a) && s->type->storage == ir_type(a)->storage;
    if (s->node->kind == IR_call && !same && !(row_of(s->node)->flags & OPF_VIEW))
        return -1;
    return slot_of(pl, a);
}

static void touch(planner *pl, int slot, int step) /* what it looks at follows in keep_under() */
{
    pl->p->slot.at[slot].last = MAX(pl->p->slot.at[slot].last, step);
}

/* What a slot looks at lives as long as the slot does: in one pass, from those that nothing looks at. */
static void keep_under(planner *pl)
{
    loop_plan *p = pl->p;
    for (size_t i = 0; i < p->slot.n; i++) /* may add slots */
        looks_at(pl, (int)i);
    int n = (int)p->slot.n, todo = 0;
    int *of = mem_alloc(sizeof *of * (size_t)MAX(3 * n, 1)), *above = of + n, *list = above + n;
    memset(above, 0, sizeof *above * (size_t)n);
    for (int i = 0; i < n; i++) {
        of[i] = looks_at(pl, i);
        if (of[i] >= 0)
            above[of[i]]++;
    }
    for (int i = 0; i < n; i++)
        if (!above[i])
            list[todo++] = i;
    while (todo) {
        int i = list[--todo], under = of[i];
        if (under < 0)
            continue;
        touch(pl, under, p->slot.at[i].last);
        if (--above[under] == 0)
            list[todo++] = under;
    }
    free(of);
}

typedef struct touching {
    planner *pl;
    int step;
} touching;

static void touch_operand(void *arg, ir_node *n)
{
    touching *t = arg;
    touch(t->pl, slot_of(t->pl, n), t->step);
}

/* The first of the steps that run together with step i: what one of them writes is written while it reads its operands. */
static int attention_start(const loop_plan *p, int i)
{
    while (p->step.at[i].attention)
        i--;
    i -= p->step.at[i].epilogue;
    return i - (i > 0 && p->step.at[i - 1].joins);
}

void life_times(planner *pl)
{
    loop_plan *p = pl->p;
    for (int i = 0; i < (int)p->step.n; i++) {
        loop_step *s = &p->step.at[i];
        if (s->kind == STEP_kernel)
            for (int b = 0; b < s->kernel->nbuf; b++) {
                loop_slot *sl = &p->slot.at[s->kernel->buf[b]];
                if (sl->kind == SLOT_buffer && sl->first < 0)
                    sl->first = attention_start(p, i); /* written while the product reads its operands */
                touch(pl, s->kernel->buf[b], i);
            }
        else if (s->kind == STEP_check)
            touch(pl, s->slot, i);
        else {
            p->slot.at[s->slot].first = attention_start(p, i);
            touch(pl, s->slot, i);
            bool items = s->product && lower_row(s->node)->items;
            for (const ir_use *u = items ? s->node->uses : NULL; u; u = u->next) {
                int item = slot_of(pl, u->user);
                p->slot.at[item].first = i;
                touch(pl, item, i);
            }
            /* a call from outside may keep what it was given */
            touching t = { pl, s->node->kind == IR_call ? i : (int)p->step.n };
            ir_each_operand(s->node, touch_operand, &t);
        }
    }
    keep_under(pl);
}

typedef struct memory_use {
    planner *pl;
    int slot;
    bool found;
} memory_use;

static void uses_memory(void *arg, ir_node *n)
{
    memory_use *u = arg;
    for (int s = slot_of(u->pl, n); s >= 0; s = looks_at(u->pl, s))
        u->found |= s == u->slot;
}

/* May it refuse its data? Of kernels and products into planned memory only memory may run out. */
static bool may_refuse(const loop_step *s)
{
    return s->kind == STEP_check || (s->kind == STEP_extern && !s->product);
}

/* Indices are checked as soon as they are there, but after all that may refuse before: then inputs can be written earlier. */
void check_early(planner *pl)
{
    loop_plan *p = pl->p;
    int n = (int)p->step.n, nslot = (int)p->slot.n, last = -1, at = 0;
    bool any = false;
    for (size_t i = 0; i < pl->reuses.n; i++)
        any |= pl->reuses.at[i].part && pl->reuses.at[i].x->kind == IR_placeholder;
    if (!any)
        return;
    int *made = mem_alloc(sizeof *made * (size_t)(nslot + 3 * n + 2)), *first = made + nslot,
        *next = first + n + 1, *now = next + n;
    loop_step *was = arena_dup(&pl->tmp, p->step.at, sizeof *was * (size_t)MAX(n, 1));
    for (int i = 0; i < nslot; i++)
        made[i] = -1;
    for (int i = 0; i <= n; i++)
        first[i] = -1;
    for (int i = 0; i < n; i++) {
        const loop_step *s = &was[i];
        int to = i, of = s->slot;
        for (int b = 0; s->kind == STEP_kernel && b < s->kernel->nbuf; b++)
            if (made[s->kernel->buf[b]] < 0 && p->slot.at[s->kernel->buf[b]].kind == SLOT_buffer)
                made[s->kernel->buf[b]] = i;
        if (s->kind == STEP_extern && made[s->slot] < 0)
            made[s->slot] = i;
        while (s->kind == STEP_check && of >= 0 && of < nslot && made[of] < 0)
            of = looks_at(pl, of);
        if (s->kind == STEP_check)
            to = MAX(last, of >= 0 && of < nslot ? made[of] : of < 0 ? -1 : i - 1) + 1;
        while (to < i && attention_start(p, to) != to)
            to++;
        if (s->kind == STEP_extern && may_refuse(s))
            last = i;
        now[i] = to;
    }
    for (int pass = 0; pass < 2;
         pass++) /* those that go to one place in their order, before the step there */
        for (int i = n - 1; i >= 0; i--)
            if ((now[i] == i) == (pass == 0)) {
                next[i] = first[now[i]];
                first[now[i]] = i;
            }
    for (int i = 0; i <= n; i++)
        for (int k = first[i]; k >= 0; k = next[k]) {
            now[k] = at;
            p->step.at[at++] = was[k];
        }
    for (size_t i = 0; i < pl->reuses.n; i++)
        pl->reuses.at[i].step = now[pl->reuses.at[i].step];
    free(made);
}

static void drop_steps(planner *pl, const bool *drop)
{
    loop_plan *p = pl->p;
    int n = (int)p->step.n, kept = 0, *now = mem_alloc(sizeof *now * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        now[i] = kept;
        if (drop[i]) {
            vec_free(&p->step.at[i].kernel->nodes);
            p->nkernel--;
        } else
            p->step.at[kept++] = p->step.at[i];
    }
    now[n] = kept;
    p->step.n = (size_t)kept;
    for (size_t i = 0; i < p->slot.n && kept < n; i++) {
        loop_slot *s = &p->slot.at[i];
        s->first = s->first < 0 ? s->first : now[s->first];
        s->last = s->last < 0 ? s->last : now[s->last];
    }
    free(now);
}

/* Values that lie in the memory of another: of one that is read for the last time where they are written, or of an input
 * whose new value they are. Inputs are written when nothing can fail any more: a graph that fails has changed nothing. A
 * part of one (a row of a cache) is written where the program does it, unless something after that may refuse its data. */
void choose_reuse(planner *pl)
{
    loop_plan *p = pl->p;
    int nsteps = (int)p->step.n, safe = 0,
        sure = 0; /* the first step after all that can fail, that may refuse */
    for (int i = 0; i < nsteps; i++) {
        if (p->step.at[i].kind != STEP_kernel || p->step.at[i].epilogue || fault_state != 0)
            safe = i + 1;
        if (may_refuse(&p->step.at[i]) || fault_state != 0)
            sure = MAX(sure, p->step.at[i].kind == STEP_check && pl->c->caps->asynchronous ? nsteps : i + 1);
    }
    bool *taken = mem_zalloc(MAX(p->slot.n, (size_t)1)), *copy = mem_zalloc(MAX(p->step.n, (size_t)1));
    for (size_t i = 0; i < pl->reuses.n; i++) {
        reuse o = pl->reuses.at[i];
        int to = pl->in[o.n->id].slot - 1, of = slot_of(pl, o.x);
        loop_slot *t = &p->slot.at[to], *x = &p->slot.at[of];
        if (to < 0 || t->kind != SLOT_buffer || t->reuses || t->transient || taken[of] ||
            tensor_device(t->type).kind != tensor_device(x->type).kind)
            continue;
        if (x->kind == SLOT_input
                ? o.step < (o.part ? sure : safe) || x->last > o.step || x->output
                : x->kind != SLOT_buffer || x->output || x->transient ||
                      (t->output && (!o.part || x->reuses || pl->in[x->node->id].product)) ||
                      x->last > o.step || x->last < (o.part ? t->first : o.step))
            continue;
        if (p->step.at[o.step].epilogue) { /* the product reads its operands while rows are written */
            memory_use u = { pl, of, false };
            for (int k = attention_start(p, o.step); k < o.step; k++)
                ir_each_operand(p->step.at[k].node, uses_memory, &u);
            if (u.found)
                continue;
        }
        taken[of] = true;
        if (o.part)
            copy[t->first] = true;
        if (t->output && x->kind == SLOT_buffer) { /* the caller's memory serves both */
            x->reuses = to + 1;
            t->first = MIN(t->first, x->first);
            continue;
        }
        if (x->reuses) /* of a chain, all lie where its first value does */
            of = x->reuses - 1;
        t->reuses = of + 1;
        touch(pl, of, t->last);
    }
    keep_under(pl);
    drop_steps(pl, copy);
    free(taken);
    free(copy);
}

/* What becomes the value of which input: where nobody else is to have it. */
void find_into(planner *pl)
{
    const ir_graph *g = pl->g;
    for (int i = 0; i < g->ninto; i++) {
        const tp_val *v = &g->output->arg[i];
        if (!g->into[i] || v->kind != VAL_node)
            continue;
        int returned = 0;
        for (const ir_use *u = v->node->uses; u; u = u->next)
            returned += u->user == g->output;
        ir_node *in = g->inputs.at[g->into[i] - 1];
        if (returned == 1 && ir_type(in) && ir_type_equal(&in->val, &v->node->val) &&
            tensor_is_dense(ir_type(in)))
            pl->in[v->node->id].into = in;
    }
}

/* Slots of views and constants that only calls or results use, and of the results. */
void find_outputs(planner *pl)
{
    loop_plan *p = pl->p;
    for (size_t i = 0; i < p->step.n; i++)
        if (p->step.at[i].kind == STEP_extern) {
            touching t = { pl, (int)i };
            ir_each_operand(p->step.at[i].node, touch_operand, &t);
        }
    p->nout = p->g->output->narg;
    p->out = arena_alloc(&p->mem, sizeof *p->out * (size_t)MAX(p->nout, 1));
    for (int i = 0; i < p->nout; i++) {
        const tp_val *v = &p->g->output->arg[i];
        p->out[i] = v->kind == VAL_node && v->node->val.kind != VAL_int ? slot_of(pl, v->node) : -1;
        if (v->kind == VAL_node && p->out[i] >= 0) {
            int s = p->out[i];
            touch(pl, s, (int)p->step.n);
            for (; s >= 0 && !p->slot.at[s].output; s = looks_at(pl, s))
                p->slot.at[s].output = true;
        }
    }
}
