/* print.c - the plan as text: the schedule log. */
#include "loop/internal.h"

void loop_decision_print(strbuf *b, const loop_decision *d)
{
    strbuf_adds(b, d->yes ? "fused " : "did not fuse ", d->n->name, " with group ", NULL);
    strbuf_int(b, d->group);
    strbuf_adds(b, " (", d->first ? d->first->name : "call", "): ", d->why, NULL);
}

void loop_plan_counts(strbuf *b, const loop_plan *p)
{
    strbuf_addf(b, "%d kernel%s, %d product%s, %d library call%s, %d value%s fused", p->nkernel,
                plural(p->nkernel), p->nproduct, plural(p->nproduct), p->nextern, plural(p->nextern),
                p->nfused, plural(p->nfused));
}

void loop_plan_print(strbuf *b, const loop_plan *p)
{
    strbuf_addf(b, "schedule of %s: ", p->g->name);
    loop_plan_counts(b, p);
    strbuf_addc(b, '\n');
    for (size_t i = 0; i < p->step.n; i++) {
        const loop_step *s = &p->step.at[i];
        strbuf_addn(b, "  ", i < 10 ? 2 : i < 100 ? 1 : 0);
        strbuf_int(b, (int64_t)i);
        if (s->kind == STEP_check) {
            strbuf_adds(b, " check  ", p->slot.at[s->slot].node->name, " of ", s->node->name, "\n", NULL);
            continue;
        }
        if (s->kind == STEP_extern) {
            strbuf_adds(b, s->product ? " product " : " call   ", s->node->name, " = ",
                        s->node->kind == IR_call ? op_row_of((op_id)s->node->op)->full : s->node->target,
                        !s->attention ? "\n"
                        : s->reach    ? " of those rows, block by block, up to the diagonal\n"
                                      : " of those rows, block by block\n",
                        NULL);
            continue;
        }
        strbuf_adds(b, " kernel ", s->kernel->name, s->epilogue ? " on its rows:" : ":", NULL);
        for (size_t k = 0; k < s->kernel->nodes.n; k++)
            strbuf_adds(b, " ", s->kernel->nodes.at[k]->name, NULL);
        strbuf_add(b, "  (about ");
        strbuf_int(b, s->kernel->bytes);
        strbuf_add(b, " bytes moved)\n");
    }
}

void loop_memory_print(strbuf *b, const loop_plan *p)
{
    static const char *const kinds[] = {
        "input", "constant", "buffer", "view", "result of a call", "number"
    };
    for (size_t i = 0; i < p->slot.n; i++) {
        const loop_slot *s = &p->slot.at[i];
        if (!s->type || s->kind == SLOT_input || s->kind == SLOT_const)
            continue;
        strbuf_adds(b, "  ", s->node->name, ": ", s->transient ? "rows of a block" : kinds[s->kind], NULL);
        if (s->kind == SLOT_view)
            strbuf_adds(b, " of ", p->slot.at[s->index].node->name, NULL);
        if (s->reuses)
            strbuf_adds(b, " in the memory of ", p->slot.at[s->reuses - 1].node->name, NULL);
        if (s->first >= 0)
            strbuf_addf(b, ", steps %d to %d", s->first, s->last);
        strbuf_add(b, s->output ? ", returned\n" : "\n");
    }
}
