/* aot.c - the backends that stand on the autograd stage: the graph becomes a forward and a backward graph, each is
 * compiled by the inner backend, and a call of both is one step on the tape (run/step.c). */
#include "base/envvars.h"
#include "compile/cache/graph_cache.h"
#include "compile/eager.h"
#include "compile/inductor.h"
#include "compile/layout.h"
#include "compile/options.h"
#include "events/metrics.h"
#include "run/step.h"
#include "sym/env.h"

typedef struct aot_program {
    step_program base;
    const backend *b;
    tp_comp late;    /* of what is made later: the same settings */
    run_options opt; /* its options */
    ev_cid cid;      /* the compile it belongs to */
    bool in_compile;
} aot_program;

typedef struct aot_variant {
    step_variant base;
    gcache disk;
} aot_variant;

static int flags_of(const aot_program *p)
{
    return p->b->aot | (p->opt.v[OPT_fallback_random] ? AOT_draw_calls : 0);
}

static void program_free(step_program *sp)
{
    aot_program *p = (aot_program *)sp;
    if (p->b->free)
        p->b->free(p->b);
    free(p);
}

static void variant_free(step_variant *v)
{
    gcache_free(&((aot_variant *)v)->disk);
    free(v);
}

/* What is compiled after the compile that captured the graph still belongs to it: true when there is one to name. */
static bool late_begin(const aot_program *p, bool backward, const ir_graph *g)
{
    if (!p->in_compile || ev_cid_now())
        return false;
    const ir_loc *loc = NULL;
    IR_EACH (n, p->base.g) {
        if (n->loc && !loc)
            loc = n->loc;
    }
    loc = ir_loc_root(loc);
    ev_cid_set(&p->cid);
    ev_metrics_begin(&p->cid, backward, loc ? loc->func : g->name, loc ? loc->file : "", loc ? loc->line : 0);
    return true;
}

static void late_end(bool known, const tp_err *err)
{
    if (!known)
        return;
    if (err)
        ev_metrics_fail(err_class(err->kind), err->msg, err->file, err->line);
    ev_metrics_end(false);
    ev_cid_set(NULL);
}

static run_program *inner_compile(const aot_program *p, tp_comp *c, const ir_graph *g, const char *what)
{
    const backend *b = p->b->inner;
    int late = sym_env_late(g->env);
    ev_span s = ev_span_begin(EVS_loops);
    run_program *r = TP_UNLIKELY(c->watch != NULL) ? c->watch(c, b, g, what) : b->compile(b, c, g, NULL);
    ev_span_end(&s);
    if (r && sym_env_late(g->env) != late) { /* it holds for the sizes at hand alone */
        static const ir_hook plain = { .opaque = run_opaque };
        if (ev_log_on(EVC_aot, EV_WARNING))
            ev_log(EVC_aot, EV_WARNING, NULL,
                   "%s runs one operator at a time: backend '%s' fixed a number that depends on sizes",
                   g->name, b->name);
        run_program_free(r);
        r = interpreter_new(ir_graph_copy(g), &plain);
    }
    return r;
}

/* Of sizes, so far. None is added where guards were made before, after capture. */
static int assumptions(const ir_graph *g)
{
    int n = 0;
    if (g->env)
        sym_env_guards(g->env, &n);
    return n;
}

/* ---- tiers: where code takes long to make, the first calls run one operator at a time (run/step.c) ---- */
static bool tiers_wanted(const tp_comp *c, const ir_graph *g)
{
    static const env_var debugging[] = { ENV_debug,   ENV_repro_after, ENV_bisect_backend,
                                         ENV_crumbs,  ENV_validate,    ENV_shadow,
                                         ENV_regions, ENV_audit,       ENV_check_cache };
    const char *tiers = env_get(ENV_tiers);
    run_options o = options_of(c->opt);
    const target *t = options_target(&o, (dev_kind)ir_graph_device(g).kind, NULL);
    if (!t || !t->begin || !c->tiers || c->watch || c->decider.fn || o.v[OPT_max_autotune] ||
        (tiers && *tiers && !env_on(ENV_tiers)) || ev_text_on(EV_kernel_code) ||
        ev_log_on(EVC_inductor, EV_DEBUG))
        return false;
    for (size_t i = 0; i < COUNT(debugging); i++) {
        const char *s = env_get(debugging[i]);
        if (s && *s)
            return false;
    }
    return true;
}

/* The programs of all operators have to be there, those of backward too: else the first call would compile more than before. */
static void see_joint(tp_comp *c, ir_graph *joint)
{
    tp_err why = { 0 };
    c->later = eager_there(joint, &why);
    if (!c->later && ev_log_on(EVC_inductor, EV_INFO))
        ev_log(EVC_inductor, EV_INFO, NULL, "%s: its first call waits for compiled code: %s", joint->name,
               why.msg);
}

/* Are images turned? On other devices the joint graph is decomposed in one go. */
static bool turns_images(const tp_comp *c, const aot_program *p, const ir_graph *g)
{
    run_options o = options_of(c->opt);
    const target *t = p->b->inner && p->b->inner == backend_inductor.inner
                          ? options_target(&o, (dev_kind)ir_graph_device(g).kind, NULL)
                          : NULL;
    return t && t->caps.images_last;
}

/* Images are turned before forward and backward are cut apart: what is kept for backward is kept as convolutions like it. */
static ir_graph *turn_joint(tp_comp *c, const ir_graph *joint)
{
    run_options o = options_of(c->opt);
    tp_comp mine = *c;
    mine.target = options_target(&o, (dev_kind)ir_graph_device(joint).kind, NULL);
    target_caps caps = options_caps(&o, mine.target);
    mine.caps = &caps;
    return layout_choose(&mine, joint);
}

/* Code could not be finished: once more, and the error is that of a compile. */
static bool again(step_variant *v, tp_comp *c)
{
    const aot_program *p = (const aot_program *)v->owner;
    bool known = late_begin(p, false, v->u->fw);
    run_program *fw = inner_compile(p, c, v->u->fw, v->grad ? "forward" : "inference");
    late_end(known, fw ? NULL : c->err);
    if (!fw)
        return false;
    run_program_free(v->fw);
    v->fw = fw;
    return true;
}

static bool settle(step_variant *v, tp_err *err)
{
    aot_program *p = (aot_program *)v->owner;
    gcache *disk = &((aot_variant *)v)->disk;
    tp_comp c = p->late;
    tp_err failed = { 0 };
    c.err = err;
    if (!run_program_ready(v->fw, false, &failed) && !again(v, &c))
        return false;
    if (ev_log_on(EVC_inductor, EV_INFO))
        ev_log(EVC_inductor, EV_INFO, NULL,
               "%s: compiled code takes over after %lld call%s that ran one operator at a time",
               p->base.g->name, (long long)v->first_calls, plural(v->first_calls));
    return gcache_keep_forward(disk, &c, p->base.g, &v->u, &v->fw) &&
           (!v->bw || gcache_keep_backward(disk, &c, p->base.g, v->u, &v->bw));
}

/* The captured graph through the autograd stage, and its forward graph through the inner compiler; what the disk cache
 * holds takes the place of both. The backward graph follows when gradients are asked for. */
static bool compile_forward(aot_program *p, step_variant *v, tp_comp *c, const bool *needs)
{
    gcache *disk = &((aot_variant *)v)->disk;
    const ir_graph *g = p->base.g;
    int assumed = assumptions(g);
    if (p->b->on_disk)
        gcache_open(disk, c, g, needs, v->grad, flags_of(p));
    if (!gcache_forward(disk, c, g, &v->u, &v->fw)) {
        int late = sym_env_late(g->env);
        if (c->stored)
            return err_set(c->err, ERR_notimpl, "the disk cache does not have it");
        c->traced = tiers_wanted(c, g) ? see_joint : NULL;
        bool turns = turns_images(c, p, g);
        c->joined = turns ? turn_joint : NULL;
        c->joins_whole = turns ? layout_waits : NULL;
        ev_span s = ev_span_begin(EVS_aot);
        v->u = aot_trace(c, g, needs, v->grad, flags_of(p), p->b->cut);
        ev_span_end(&s);
        if (!v->u)
            return false;
        if (sym_env_late(g->env) != late)
            return err_set(c->err, ERR_notimpl,
                           "a derivative or decomposition reads a number that depends on sizes");
        if (c->watch) /* the debugger runs it more than once on the same inputs */
            v->u->fw->ninto = 0;
        v->fw = inner_compile(p, c, v->u->fw, v->grad ? "forward" : "inference");
        if (assumptions(g) != assumed) /* of sizes, which who reads the cache would not know */
            gcache_off(disk, "the compiler assumed something of its sizes");
        v->waits = c->later && v->fw && !run_program_ready(v->fw, false, c->err);
        if (!v->fw || (v->waits && err_is_set(c->err)) ||
            (!v->waits && !gcache_keep_forward(disk, c, g, &v->u, &v->fw)))
            return false;
    }
    v->has_bw = v->waits ? v->u->bw != NULL : disk->has_bw;
    return true;
}

static bool compile_backward(aot_program *p, step_variant *v, tp_comp *c)
{
    gcache *disk = &((aot_variant *)v)->disk;
    const ir_graph *g = p->base.g;
    v->bw = gcache_backward(disk, c, g, v->u);
    if (v->bw)
        return true;
    c->later = v->waits;
    run_program *bw = v->u->bw ? inner_compile(p, c, v->u->bw, "backward") : NULL;
    if (bw && !v->waits && !gcache_keep_backward(disk, c, g, v->u, &bw)) {
        run_program_free(bw);
        bw = NULL;
    }
    v->bw = bw;
    return bw != NULL;
}

static step_variant *variant_new(aot_program *p, tp_comp *c, const bool *needs, bool grad, uint64_t key)
{
    step_variant *v = mem_zalloc(sizeof(aot_variant));
    v->key = key;
    v->grad = grad;
    v->owner = &p->base;
    pthread_mutex_init(&v->lock, NULL);
    if (!compile_forward(p, v, c, needs)) {
        step_variant_free(v);
        return NULL;
    }
    v->next = p->base.variants;
    p->base.variants = v;
    return v;
}

/* ---- what a call asks for ---- */
static step_variant *late_variant(step_program *sp, const bool *needs, bool grad, uint64_t key, tp_err *err)
{
    aot_program *p = (aot_program *)sp;
    tp_comp c = p->late;
    c.err = err;
    bool known = late_begin(p, false, sp->g);
    step_variant *v = variant_new(p, &c, needs, grad, key);
    late_end(known, v ? NULL : err);
    return v;
}

static bool late_backward(step_variant *v, tp_err *err)
{
    aot_program *p = (aot_program *)v->owner;
    tp_comp c = p->late;
    c.err = err;
    bool known = late_begin(p, true, v->u->bw ? v->u->bw : p->base.g);
    bool ok = compile_backward(p, v, &c);
    late_end(known, ok ? NULL : err);
    return ok;
}

static const step_compiler compiler = { late_variant, late_backward, settle, variant_free, program_free };

run_program *aot_compile(const backend *b, tp_comp *c, const ir_graph *g, const tp_val *example)
{
    aot_program *p = mem_zalloc(sizeof *p);
    step_program_init(&p->base, &compiler, ir_graph_copy(g));
    p->b = b;
    p->opt = options_of(c->opt);
    p->late = *c;
    p->late.err = NULL;
    p->late.cx = NULL;
    p->late.opt = &p->opt;
    p->base.trusted = p->opt.v[OPT_trust_guards];
    p->base.counted = (flags_of(p) & (AOT_min_cut | AOT_draw_calls)) == AOT_min_cut;
    if (ev_cid_now()) {
        p->in_compile = true;
        p->cid = *ev_cid_now();
    }
    /* Compile now for the inputs as captured, so that a failure shows before anything runs. */
    int n = (int)g->inputs.n;
    bool *needs = mem_zalloc((size_t)MAX(n, 1)), any;
    tp_val *types = mem_zalloc(sizeof *types * (size_t)MAX(n, 1));
    op_ctx cx = *(c->cx ? c->cx : op_ctx_cur());
    cx.grad_mode = g->grad_mode;
    for (int i = 0; i < n; i++)
        types[i] = g->inputs.at[i]->val;
    uint64_t key = step_key(&p->base, &cx, types, needs, &any);
    bool ok = variant_new(p, c, needs, any, key) != NULL;
    free(needs);
    free(types);
    if (ok)
        return &p->base.base;
    run_program_free(&p->base.base);
    return NULL;
}
