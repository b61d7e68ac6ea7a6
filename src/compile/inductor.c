/* inductor.c - the compiler of pure graphs: loops, memory, machine code, and the program that runs them. What comes before is
 * the autograd stage (aot.c), which hands over a forward graph at once and a backward graph when gradients are asked
 * for. */
#include "compile/inductor.h"
#include "compile/code_log.h"
#include "compile/eager.h"
#include "compile/layout.h"
#include "compile/options.h"
#include "compile/tune/tune.h"
#include "base/crumb.h"
#include "events/metrics.h"
#include "ir/hop.h"

/* Kernels are asked about by the value that they end with: their own names change with what is fused. */
static bool decide_kernel(tp_comp *c, decide_kind k, const loop_kernel *x)
{
    return x->nodes.n ? decide(c, k, x->nodes.at[x->nodes.n - 1]) : decide_at(c, k, x->name);
}

/* All kernels of the plan as code: made[i] runs step i. */
static bool build_kernels(tp_comp *c, const loop_plan *p, const target_code **made)
{
    run_options o = options_of(c->opt);
    const target *t = c->target;
    const char *why;
    int n = 0;
    options_target(&o, (dev_kind)t->device, &why);
    const vir **k = mem_alloc(sizeof *k * MAX(p->step.n, (size_t)1));
    const target_code **r = mem_zalloc(sizeof *r * MAX(p->step.n, (size_t)1));
    for (size_t i = 0; i < p->step.n; i++)
        if (p->step.at[i].kind == STEP_kernel)
            k[n++] = p->step.at[i].kernel->k;
    bool ok = c->later && t->begin ? kernels_begin(t, k, n, r, c->err) : kernels_get(t, why, k, n, r, c->err);
    n = 0;
    for (size_t i = 0; ok && i < p->step.n; i++)
        if (p->step.at[i].kind == STEP_kernel) {
            if (t->fallback && !decide_kernel(c, DECIDE_vector, p->step.at[i].kernel))
                ok = kernels_get(t->fallback, NULL, &k[n], 1, &r[n], c->err);
            made[i] = r[n++];
        }
    free(k);
    free(r);
    return ok;
}

/* Do the inputs of g tell all symbols that its nodes need? */
static bool tells_all(const ir_graph *g)
{
    VEC(sym_bind) bind = { 0 };
    bool ok = true;
    for (size_t i = 0; i < g->inputs.n; i++) {
        const tp_tensor *t = ir_type(g->inputs.at[i]);
        for (int d = 0; t && d < t->ndim; d++) {
            if (sym_is_symbol(t->size[d]))
                vec_push(&bind, ((sym_bind){ sym_expr_of(t->size[d]), 7 }));
            if (sym_is_symbol(t->stride[d]))
                vec_push(&bind, ((sym_bind){ sym_expr_of(t->stride[d]), 7 }));
        }
    }
    IR_EACH (n, g) {
        const tp_tensor *t = ir_type(n);
        symint v;
        for (int d = 0; ok && t && d < t->ndim; d++)
            ok = (!sym_is_expr(t->size[d]) || sym_eval(t->size[d], bind.at, (int)bind.n, &v)) &&
                 (!sym_is_expr(t->stride[d]) || sym_eval(t->stride[d], bind.at, (int)bind.n, &v));
        for (int i = 0; ok && i < n->narg; i++) {
            const tp_val *a = &n->arg[i];
            if (a->kind == VAL_int && sym_is_expr(a->i))
                ok = sym_eval(a->i, bind.at, (int)bind.n, &v);
            for (int k = 0; ok && a->kind == VAL_ints && k < a->n; k++)
                ok = !sym_is_expr(a->ints[k]) || sym_eval(a->ints[k], bind.at, (int)bind.n, &v);
            if (a->kind == VAL_graph)
                ok = ok && tells_all(a->graph);
        }
    }
    vec_free(&bind);
    return ok;
}

static bool build_nested(tp_comp *c, const loop_plan *p, size_t step, program_nested **all)
{
    const ir_node *n = p->step.at[step].node;
    int at[2], k = ir_hop_subs(n, at);
    if (!k)
        return true;
    if (!*all)
        *all = mem_zalloc(sizeof **all * p->step.n);
    program_nested *s = &(*all)[step];
    for (int i = 0; i < k; i++) {
        s->g[i] = n->arg[at[i]].graph;
        if (!tells_all(s->g[i]))
            s->interp[i] = ir_prog_new(n->arg[at[i]].graph);
        else if (!(s->prog[i] = inductor_compile(c, s->g[i])))
            return err_note(c->err, "in the graph '%s' nested in node '%s'", s->g[i]->name, n->name);
    }
    return true;
}

run_program *inductor_program(tp_comp *c, loop_plan *p, const target_code *const *made)
{
    run_options o = options_of(c->opt);
    program_parts x = { .plan = p, .kernel = made, .target = c->target };
    if (!x.target) /* the plan came from disk */
        x.target = options_target(&o, (dev_kind)ir_graph_device(p->g).kind, NULL);
    bool *alone = mem_zalloc(MAX(p->step.n, (size_t)1)), ok = true;
    for (size_t i = 0; ok && i < p->step.n; i++) {
        const loop_step *s = &p->step.at[i];
        if (s->kind == STEP_kernel) {
            alone[i] = !decide_kernel(c, DECIDE_thread, s->kernel);
            code_log_kernel(s->kernel, made[i]);
        } else if (s->kind == STEP_extern)
            ok = build_nested(c, p, i, &x.nested);
    }
    run_program *r = NULL;
    if (ok) {
        code_log_plan(p, made);
        crumb_drop("loops", "memory plan");
        x.record = o.v[OPT_cudagraphs] && x.target->record;
        x.memory = loop_memory_plan(c, p, x.record);
        ok = loop_memory_check(p, &x.memory, c->err);
        code_log_memory(p, &x.memory);
        if (!ok)
            loop_memory_free(&x.memory);
    }
    if (ok) {
        x.alone = alone;
        x.keep_results = o.v[OPT_reuse_outputs];
        r = program_new(&x);
    } else {
        program_nested_free(x.nested, p->step.n);
        loop_plan_free(p);
    }
    free(alone);
    return r;
}

static run_program *one_by_one(tp_comp *c, const ir_graph *g)
{
    static const ir_hook plain = { .opaque = run_opaque };
    if (ev_log_on(EVC_inductor, EV_INFO))
        ev_log(EVC_inductor, EV_INFO, NULL,
               "%s has sizes that only its run decides: it runs one operator at a time", g->name);
    return interpreter_new(ir_graph_copy(g), &plain);
}

/* The stages after the autograd stage, one after the other. */
static run_program *compile_once(tp_comp *c, const ir_graph *g)
{
    if (ir_has_unbacked(g)) /* nothing can be planned */
        return one_by_one(c, g);
    code_log_begin(g);
    ev_span span = ev_span_begin(EVS_plan);
    ir_graph *turned = layout_choose(c, g);
    loop_plan *p = loop_plan_new(c, turned ? turned : g); /* loop: rewrite, lower, fuse, order */
    ir_graph_free(turned);
    ev_span_end(&span);
    if (!p)
        return NULL;
    run_options o = options_of(c->opt);
    for (size_t i = 0; i < p->step.n && c->caps->asynchronous && o.v[OPT_max_autotune]; i++)
        if (p->step.at[i].product)
            p->step.at[i].form = 1; /* measured when it first runs */
    code_log_graph(p->g);
    code_log_program(p); /* before there is machine code to run: what kills the process can be read */
    const target_code **made = mem_zalloc(sizeof *made * MAX(p->step.n, (size_t)1));
    run_program *r = NULL;
    crumb_drop("code", "machine code of kernels");
    span = ev_span_begin(EVS_code);
    if (build_kernels(c, p, made))        /* target: kernels become code */
        r = inductor_program(c, p, made); /* loop: memory; run: the program */
    else
        loop_plan_free(p);
    ev_span_end(&span);
    free(made);
    return r;
}

run_program *inductor_compile(tp_comp *c, const ir_graph *g)
{
    run_options o = options_of(c->opt);
    tp_comp mine = *c;
    dev_kind device = (dev_kind)ir_graph_device(g).kind;
    const char *why;
    if (!(mine.target = options_target(&o, device, &why))) {
        err_set(c->err, ERR_notimpl, "a graph on device '%s' cannot be compiled: %s", device_name(device),
                why);
        return NULL;
    }
    target_caps caps = options_caps(&o, mine.target);
    mine.caps = &caps;
    code_log_options(&o);
    bool measures =
        !caps.asynchronous; /* the tuner makes its inputs, compares results and takes times on the host */
    if (o.v[OPT_max_autotune] && !measures && ev_log_on(EVC_inductor, EV_INFO))
        ev_log(EVC_inductor, EV_INFO, NULL,
               "max_autotune on device '%s' measures the library's algorithms for each product of %s when it "
               "first runs",
               device_name(device), g->name);
    return o.v[OPT_max_autotune] && measures ? tune_compile(compile_once, &mine, g) : compile_once(&mine, g);
}

static run_program *compile_pure(const backend *b, tp_comp *c, const ir_graph *g, const tp_val *example)
{
    return inductor_compile(c, g);
}

/* Programs that compile nothing call nothing of compile/ by name. */
__attribute__((constructor)) static void offer(void)
{
    eager_offer();
    eager_pointwise_offer();
}

static const backend inner_inductor = { "inductor", "", compile_pure };
const backend backend_inductor = {
    "inductor",     "fused kernels as machine code", aot_compile,
    NULL,           .inner = &inner_inductor,        .aot = AOT_decompose | AOT_min_cut,
    .on_disk = true
};
