/* stages.c - the pipeline of aot.c and inductor.c up to a stage, and its product as text. */
#include "compile/stages.h"
#include "compile/code_log.h"
#include "aot/aot.h"
#include "ir/hop.h"
#include "loop/loop.h"

/* ---- whose gradients ---- */
static bool wants_grad(const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    return t && dtype_has_grad((dtype)t->dt);
}

static bool mark_named(const ir_graph *g, const char *names, bool *needs, tp_err *err)
{
    for (const char *s = names;; s++) {
        size_t n = strcspn(s, ","), i = 0;
        while (i < g->inputs.n && (strlen(g->inputs.at[i]->name) != n || memcmp(g->inputs.at[i]->name, s, n)))
            i++;
        if (i == g->inputs.n)
            return err_set(err, ERR_value, "the graph has no input '%.*s' to take the gradient of", (int)n,
                           s);
        if (!wants_grad(g->inputs.at[i]))
            return err_set(err, ERR_value, "input '%.*s' is no tensor of floats: it has no gradient", (int)n,
                           s);
        needs[i] = true;
        s += n;
        if (!*s)
            return true;
    }
}

static bool mark_grads(const ir_graph *g, stage_id stage, const stage_options *o, bool *needs, tp_err *err)
{
    bool ask = stage == STAGE_joint || stage == STAGE_forward || stage == STAGE_backward || o->backward;
    const char *grad = o->grad ? o->grad : ask ? "all" : "none";
    if (!strcmp(grad, "none"))
        return true;
    if (strcmp(grad, "all"))
        return mark_named(g, grad, needs, err);
    for (size_t i = 0; i < g->inputs.n; i++)
        needs[i] = wants_grad(g->inputs.at[i]);
    return true;
}

/* ---- the stages ---- */
static aot_unit *unit_of(tp_comp *c, const ir_graph *g, stage_id stage, const stage_options *o)
{
    bool *needs = mem_zalloc(MAX(g->inputs.n, (size_t)1)), any = false;
    aot_unit *u = NULL;
    if (mark_grads(g, stage, o, needs, c->err)) {
        for (size_t i = 0; i < g->inputs.n; i++)
            any |= needs[i];
        u = aot_trace(c, g, needs, any && g->grad_mode,
                      stage == STAGE_joint ? 0 : AOT_decompose | AOT_min_cut, NULL);
    }
    free(needs);
    if (u && !u->bw && (stage == STAGE_backward || o->backward)) {
        err_set(c->err, ERR_value, "the graph has no backward: no input needs a gradient");
        aot_unit_free(u);
        u = NULL;
    }
    return u;
}

static bool kernels_text(tp_comp *c, const loop_plan *p, bool code, strbuf *out)
{
    bool ok = true, first = true;
    for (size_t i = 0; ok && i < p->step.n; i++) {
        if (p->step.at[i].kind != STEP_kernel)
            continue;
        const loop_kernel *k = p->step.at[i].kernel;
        strbuf_addf(out, "%sstep %zu, kernel %s\n", first ? "" : "\n", i, k->name);
        first = false;
        if (code)
            ok = c->target->list(c->target, k->k, out, c->err);
        else
            vir_print(k->k, out);
    }
    if (first)
        strbuf_add(out, "no kernels\n");
    return ok;
}

static void schedule_text(const loop_plan *p, strbuf *out)
{
    loop_plan_print(out, p);
    strbuf_add(out, "memory:\n");
    loop_memory_print(out, p);
    if (p->decisions.n)
        strbuf_add(out, "fusion:\n");
    for (size_t i = 0; i < p->decisions.n; i++) {
        strbuf_add(out, "  ");
        loop_decision_print(out, &p->decisions.at[i]);
        strbuf_addc(out, '\n');
    }
}

static bool plan_text(tp_comp *c, const ir_graph *g, stage_id stage, strbuf *out);

/* The graphs that calls of p run, each with its own plan. */
static bool nested_text(tp_comp *c, const loop_plan *p, stage_id stage, strbuf *out)
{
    bool ok = true;
    for (size_t i = 0; ok && i < p->step.n; i++) {
        const ir_node *n = p->step.at[i].kind == STEP_extern ? p->step.at[i].node : NULL;
        int at[2], k = n ? ir_hop_subs(n, at) : 0;
        for (int q = 0; ok && q < k; q++) {
            strbuf_addf(out, "\nin step %zu, %s of %s:\n", i, n->arg[at[q]].graph->name, n->name);
            ok = plan_text(c, n->arg[at[q]].graph, stage, out);
        }
    }
    return ok;
}

static bool plan_text(tp_comp *c, const ir_graph *g, stage_id stage, strbuf *out)
{
    if (ir_has_unbacked(g)) {
        strbuf_addf(out, "%s runs one operator at a time: it has sizes that only its run decides\n", g->name);
        return true;
    }
    loop_plan *p = loop_plan_new(c, g);
    if (!p)
        return false;
    bool ok = true;
    if (stage == STAGE_schedule)
        schedule_text(p, out);
    else if (stage == STAGE_c)
        code_log_text(out, p);
    else
        ok = kernels_text(c, p, stage == STAGE_asm, out);
    ok = ok && nested_text(c, p, stage, out);
    loop_plan_free(p);
    return ok;
}

static bool target_text(tp_comp *c, const ir_graph *g, stage_id stage, const stage_options *o, strbuf *out)
{
    tp_comp mine = *c;
    mine.target = o->target;
    mine.caps = &mine.target->caps;
    mine.explain = o->why;
    if (stage == STAGE_asm && !mine.target->list)
        return err_set(c->err, ERR_value, "target '%s' has no machine code to show", mine.target->name);
    return plan_text(&mine, g, stage, out);
}

bool stage_text(tp_comp *c, const ir_graph *g, stage_id stage, const stage_options *o, strbuf *out)
{
    aot_unit *u = unit_of(c, g, stage, o);
    if (!u)
        return false;
    bool ok = true;
    if (stage == STAGE_joint || stage == STAGE_decompose)
        ir_print(out, u->joint, IR_PRINT_all);
    else if (stage == STAGE_forward || stage == STAGE_backward)
        ir_print(out, stage == STAGE_forward ? u->fw : u->bw, IR_PRINT_all);
    else
        ok = target_text(c, o->backward ? u->bw : u->fw, stage, o, out);
    aot_unit_free(u);
    return ok;
}
