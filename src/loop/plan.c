/* plan.c - decides what exists in memory, which values share a kernel, and writes the kernels.
 *
 * Scheduled values are those that must be computed at a place of their own: results, operands of library calls,
 * reductions, values used more than once. Everything else is computed where it is used. Scheduled values with one
 * iteration space and no way around form a group; a group is one kernel (kernel.c). */
#include "loop/internal.h"
#include "ir/planted.h"
#include "base/clock.h"
#include "events/metrics.h"

void loop_plan_free(loop_plan *p);

loop_plan *loop_plan_new(tp_comp *c, const ir_graph *src)
{
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
    if (!loop_rewrite(c, p->g, 0, REWRITE_extreme))
        goto done;
    ev_metrics_part(EVP_post_passes, clock_ns() - t0);
    if (!loop_rewrite(c, p->g, REWRITE_extreme, REWRITE_COUNT))
        goto done;
    ir_renumber(p->g);
    pl.in = arena_zalloc(&pl.tmp, sizeof *pl.in * (size_t)MAX(p->g->next_id, 1));
    pl.words = p->g->next_id / 64 + 1;
    for (size_t i = 0; i < p->g->inputs.n; i++)
        slot_add(&pl, p->g->inputs.at[i]->val.kind == VAL_tensor ? SLOT_input : SLOT_number,
                 p->g->inputs.at[i], (int)i);
    find_into(&pl);
    choose_sched(&pl);
    form_groups(&pl);
    ev_catch_up();
    for (size_t i = 0; i < pl.groups.n; i++) { /* what leaves its group must be stored */
        group *g = pl.groups.at[i];
        for (int m = 0; m < g->n; m++)
            pl.in[g->member[m]->id].stored = used_outside(&pl, g, g->member[m]);
    }
    order = mem_alloc(sizeof *order * (size_t)MAX(pl.groups.n, 1));
    schedule_order(&pl, order);
    uint64_t *written = ARENA_ARR(&pl.tmp, uint64_t, pl.words);
    for (size_t i = 0; i < pl.groups.n; i++) {
        group *g = pl.groups.at[order[i]];
        if (bit_has(written, g->id)) /* on the rows of a product */
            continue;
        bit_set(written, g->id);
        if (!g->ext) {
            if (!write_group(&pl, g)) {
                fails_at(c->err, g->member[g->n - 1]);
                goto done;
            }
            continue;
        }
        if (TP_UNLIKELY(fault_state != 0) && ir_fault_at("gen", g->ext) == FAULT_compile_error) {
            err_set(c->err, ERR_compiler, "planted fault: the emitter cannot compile '%s'",
                    row_of(g->ext)->name);
            fails_at(c->err, g->ext);
            goto done;
        }
        bool own = pl.in[g->ext->id].product;
        chain ch = own ? find_chain(&pl, g, written) : (chain){ 0 };
        if (ch.kernel && !chain_allowed(&pl, &ch)) {
            log_fusion(&pl, ch.last[0]->ext, g, false, "refused");
            ch.kernel = NULL;
        }
        if (ch.kernel && !write_factors(&pl, &ch, order, written))
            goto done;
        if (own && !write_needed(&pl, g, order, i, written))
            goto done;
        write_call(&pl, g, own);
        if (ch.kernel && ch.also ? !write_also(&pl, &ch, written)
                                 : own && !write_riders(&pl, g, order, i, written, &ch))
            goto done;
        if (ch.kernel) {
            log_fusion(
                &pl, ch.last[0]->ext, g, ch.fits,
                ch.fits && ch.reach
                    ? "the products block by block up to the diagonal, with the kernel between them in cache"
                : ch.fits ? "the products block by block, with the kernel between them in cache"
                          : "what lies between them is not made row by row");
            if (ch.fits)
                write_lasts(&pl, &ch, written);
        }
    }
    /* views and constants that only calls or results use */
    for (size_t i = 0; i < p->step.n; i++)
        if (p->step.at[i].kind == STEP_extern) {
            touching t = { &pl, (int)i };
            ir_each_operand(p->step.at[i].node, touch_operand, &t);
        }
    p->nout = p->g->output->narg;
    p->out = arena_alloc(&p->mem, sizeof *p->out * (size_t)MAX(p->nout, 1));
    for (int i = 0; i < p->nout; i++) {
        const tp_val *v = &p->g->output->arg[i];
        p->out[i] = v->kind == VAL_node && v->node->val.kind != VAL_int ? slot_of(&pl, v->node) : -1;
        if (v->kind == VAL_node && p->out[i] >= 0) {
            int s = p->out[i];
            touch(&pl, s, (int)p->step.n);
            for (; s >= 0; s = looks_at(&pl, s))
                p->slot.at[s].output = true;
        }
    }
    life_times(&pl);
    choose_over(&pl);
    if (ev_text_on(EV_schedule)) {
        strbuf b = { 0 };
        loop_plan_print(&b, p);
        ev_text(EV_schedule, NULL, "%s", strbuf_str(&b));
        strbuf_free(&b);
    }
    ok = true;
done:
    free(order);
    vec_free(&pl.groups);
    vec_free(&pl.check);
    map_free(&pl.lowers);
    vec_free(&pl.over);
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
