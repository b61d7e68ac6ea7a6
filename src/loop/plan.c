/* plan.c - decides what exists in memory, which values share a kernel, and writes the kernels.
 *
 * Materialized values are those that must be computed at a place of their own: results, operands of library calls,
 * reductions, values used more than once. Everything else is computed where it is used. Materialized values with one
 * iteration space and no way around form a group; a group is one kernel (kernel.c). */
#include "loop/internal.h"
#include "ir/planted.h"
#include "base/clock.h"
#include "base/crumb.h"
#include "events/metrics.h"

/* What every plan holds to, whatever the graph: a step or a slot that does not is named. NULL: all do. */
static const char *step_wrong(const loop_plan *p, int i)
{
    const loop_step *s = &p->step.at[i], *before = i ? s - 1 : NULL;
    if (s->kind == STEP_kernel && (!s->kernel->k || s->kernel->k->nbufs != s->kernel->nbuf))
        return "a kernel without a slot for each buffer";
    if (s->kind != STEP_kernel && (!s->node || s->slot < 0 || s->slot >= (int)p->slot.n))
        return "a call without a slot";
    if (s->epilogue && (s->kind != STEP_kernel || !before || !before->product))
        return "a kernel on the rows of no product";
    if (s->attention && (!before || (!before->epilogue && !before->attention)))
        return "a product of the rows of no kernel";
    for (int b = 0; s->kind == STEP_kernel && b < s->kernel->nbuf; b++) {
        if (s->kernel->buf[b] < 0 || s->kernel->buf[b] >= (int)p->slot.n)
            return "a buffer without a slot";
        const loop_slot *x = &p->slot.at[s->kernel->buf[b]];
        if (x->kind == SLOT_buffer && (x->first < 0 || x->first > i || x->last < i))
            return "a buffer outside its life time";
    }
    return NULL;
}

static const char *slot_wrong(const loop_plan *p, int i)
{
    const loop_slot *s = &p->slot.at[i];
    int n = (int)p->slot.n;
    if (s->kind == SLOT_view && (s->index < 0 || s->index >= n))
        return "a view of nothing";
    if (s->kind == SLOT_buffer && s->first > s->last)
        return "used before it is made";
    if (s->reuses && (s->reuses > n || s->reuses - 1 == i || p->slot.at[s->reuses - 1].last < s->last))
        return "in memory that ends before it";
    return NULL;
}

static bool check_plan(const loop_plan *p, tp_err *err)
{
    const char *why = NULL;
    int i;
    for (i = 0; i < (int)p->step.n; i++)
        if ((why = step_wrong(p, i)))
            return err_set(err, ERR_internal, "step %d of the plan is wrong: %s", i, why);
    for (i = 0; i < (int)p->slot.n; i++)
        if ((why = slot_wrong(p, i)))
            return err_set(err, ERR_internal, "slot %d of the plan is wrong: %s", i, why);
    for (i = 0; i < p->nout; i++)
        if (p->out[i] >= (int)p->slot.n || (p->out[i] >= 0 && !p->slot.at[p->out[i]].output))
            return err_set(err, ERR_internal, "result %d of the plan is wrong: nothing keeps it", i);
    return true;
}

loop_plan *loop_plan_new(tp_comp *c, const ir_graph *src)
{
    if (!c->target)
        c->target = target_host();
    if (!c->caps)
        c->caps = &c->target->caps;
    if (TP_UNLIKELY(fault_state != 0) && !plant_lowering(c, src))
        return NULL;
    loop_plan *p = mem_zalloc(sizeof *p);
    planner pl = { .c = c, .p = p };
    bool ok = false;
    int *order = NULL;

    p->g = ir_graph_copy(src);
    pl.g = p->g;
    if (TP_UNLIKELY(fault_state != 0) && !plant_carriers(c, p->g))
        goto done;
    int64_t t0 = clock_ns();
    crumb_drop("loops", "rewrites");
    loop_wait_late(&pl);
    if (!loop_rewrite(&pl, 0, REWRITE_extreme))
        goto done;
    ev_metrics_part(EVP_post_passes, clock_ns() - t0);
    if (!loop_rewrite(&pl, REWRITE_extreme, REWRITE_COUNT))
        goto done;
    align_rows(&pl);
    ir_renumber(p->g);
    pl.in = arena_zalloc(&pl.tmp, sizeof *pl.in * (size_t)MAX(p->g->next_id, 1));
    for (size_t i = 0; i < p->g->inputs.n; i++)
        slot_add(&pl, p->g->inputs.at[i]->val.kind == VAL_tensor ? SLOT_input : SLOT_number,
                 p->g->inputs.at[i], (int)i);
    crumb_drop("loops", "lowering and fusion");
    find_into(&pl);
    choose_materialized(&pl);
    form_groups(&pl);
    ev_catch_up();
    find_stored(&pl);
    order = mem_alloc(sizeof *order * (size_t)MAX(pl.groups.n, 1));
    schedule_order(&pl, order);
    crumb_drop("loops", "writing kernels");
    if (!write_steps(&pl, order))
        goto done;
    find_activations(&pl);
    check_early(&pl);
    find_outputs(&pl);
    crumb_drop("loops", "memory plan");
    life_times(&pl);
    choose_reuse(&pl);
    if (!check_plan(p, c->err))
        goto done;
    if (ev_text_on(EV_schedule)) {
        strbuf b = { 0 };
        loop_plan_print(&b, p);
        ev_text(EV_schedule, NULL, "%s", strbuf_str(&b));
        strbuf_free(&b);
    }
    ok = true;
done:
    free(order);
    for (size_t i = 0; i < pl.groups.n; i++)
        group_free(pl.groups.at[i]);
    vec_free(&pl.groups);
    vec_free(&pl.todo[0]);
    vec_free(&pl.todo[1]);
    map_free(&pl.sums);
    vec_free(&pl.check);
    map_free(&pl.lowers);
    vec_free(&pl.reuses);
    arena_free(&pl.tmp);
    vir_room_free(&pl.room);
    if (!ok) {
        loop_plan_free(p);
        p = NULL;
    }
    return p;
}

void loop_plan_free(loop_plan *p)
{
    if (!p)
        return;
    ev_wait(p);
    for (size_t i = 0; i < p->step.n; i++)
        if (p->step.at[i].kind == STEP_kernel)
            vec_free(&p->step.at[i].kernel->nodes);
    vec_free(&p->slot);
    vec_free(&p->step);
    map_free(&p->slot_of);
    vec_free(&p->decisions);
    ir_graph_free(p->g);
    arena_free(&p->mem);
    free(p);
}
