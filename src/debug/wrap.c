#include "debug/artefacts.h"
#include "debug/audit.h"
#include "debug/bisect.h"
#include "debug/guarded.h"
#include "debug/wrap.h"
#include "debug/minify.h"
#include "base/clock.h"
#include "base/envvars.h"
#include "compile/options.h"
#include "events/events.h"
#include "grad/tape.h"
#include "ops/host.h"
#include <stdio.h>

/* ---- settings ---- */
static __thread bool busy; /* a check runs: what it computes is not checked again */

static uint8_t after_of(const char *s, debug_config *c)
{
    if (!s || !*s)
        return AFTER_none;
    if (!strcmp(s, "dynamo"))
        return AFTER_dynamo;
    if (!strcmp(s, "aot"))
        return AFTER_aot;
    snprintf(c->wrong, sizeof c->wrong, "%s", s);
    return AFTER_wrong;
}

debug_config debug_config_now(void)
{
    debug_config c = { .tol = 1e-3 };
    if (host.debug_config)
        host.debug_config(&c);
    else {
        c.after = after_of(env_get(ENV_repro_after), &c);
        c.level = (int)env_int(ENV_repro_level, 2);
        c.forward_only = env_on(ENV_repro_forward);
        c.ignore_non_fp = env_on(ENV_repro_non_fp);
    }
    return c;
}

/* ---- the program ---- */
enum { AUDITS = 4, AUDIT_NS = 200000000 };
typedef struct wrapped {
    run_program base;
    run_program *p;
    ir_graph *g; /* as it was before anybody compiled it */
    char *backend, *name;
    char *options; /* that are not the defaults, or NULL */
    bool inner;
    bool audited, validated;
    int rounds;       /* audits of this graph, each on the inputs of a call */
    int64_t audit_ns; /* and how long they took */
} wrapped;

static repro *repro_of(const wrapped *w, const tp_val *in, int nin, const debug_config *c)
{
    repro *r = repro_new(w->g, in, nin, w->backend);
    r->inner = w->inner;
    r->options = w->options ? mem_strdup(w->options) : NULL;
    if (w->inner)
        memset(r->needs_grad, 0, (size_t)nin);
    r->forward_only = c->forward_only;
    r->acc.ignore_non_fp = c->ignore_non_fp;
    r->acc.tol = c->tol;
    r->acc.ledger = audit_wanted();
    r->no_fp64 = c->no_fp64;
    return r;
}

/* Without the calls that only this process can make, when it fails alike: then it can be minimised anywhere. */
static repro *freed(const repro *r, const signature *s)
{
    repro *f = s->kind != SIG_passes ? repro_freed(r) : NULL;
    const repro *one = f;
    signature now;
    if (!f)
        return NULL;
    f->accuracy |= s->kind == SIG_accuracy;
    if (trial_run(&one, 1, &(trial_limits){ .timeout_ms = 20000 }, &now, &(tp_err){ 0 }) &&
        sig_equal(&now, s)) {
        ev_log(EVC_dynamo, EV_WARNING, NULL,
               "It fails alike with the values that custom operators gave in the place of their calls: saved "
               "so");
        return f;
    }
    repro_free(f);
    return NULL;
}

static void dump(const repro *r, signature *s, int what, bool accuracy)
{
    strbuf who = { 0 };
    repro *f = freed(r, s);
    r = f ? f : r;
    strbuf_addf(&who, "%s%s", r->backend, accuracy ? "_accuracy" : "");
    if (s->kind != SIG_passes)
        trial_stages(r, s);
    free(debug_dump(r, s, what, strbuf_str(&who)));
    strbuf_free(&who);
    repro_free(f);
}

static int by_level(const debug_config *c) { return c->level == 1 ? DUMP_graph : DUMP_launcher; }

static void sig_of(signature *s, sig_kind k, const char *stage, const tp_err *e)
{
    if (e->kind == ERR_memory || e->kind == ERR_oom)
        k = SIG_oom;
    sig_set(s, k, stage, e->msg);
    snprintf(s->type, sizeof s->type, "%s", err_class(e->kind));
}

/* Level 4: false when the results differ, or when only the compiled one fails. */
static bool results_agree(wrapped *w, const tp_val *in, int nin, const debug_config *c, tp_err *err)
{
    strbuf pass = { 0 };
    bool mine = guarded(w->g, in, nin, &pass);
    if (!mine)
        err_set(err, ERR_accuracy, "%s", strbuf_str(&pass));
    strbuf_free(&pass);
    if (!mine) /* the graph is not at fault */
        return false;
    repro *r = repro_of(w, in, nin, c);
    signature s;
    r->accuracy = true;
    tp_err e = { 0 };
    trial_with(r, w->p, &s, &e);
    bool threw = s.kind == SIG_exception || s.kind == SIG_oom;
    if (s.kind == SIG_cannot_run)
        ev_log(EVC_dynamo, EV_WARNING, NULL,
               "%s could not be compared: it does not run without a compiler: %s", w->name, s.full);
    if (threw) { /* eager ran: this is a difference */
        ev_log(EVC_dynamo, EV_WARNING, NULL,
               "Compiled Fx GraphModule failed. Creating script to minify the error.");
        dump(r, &s, by_level(c), true);
        *err = e;
    }
    if (s.kind == SIG_accuracy) {
        strbuf where = { 0 };
        if (w->inner)
            ev_log(EVC_aot, EV_WARNING, NULL, "Accuracy failed for the AOT Autograd graph %s", w->name);
        else
            ev_log(
                EVC_dynamo, EV_WARNING, NULL,
                "Accuracy failed for the TorchDynamo produced graph. Creating script to minify the error.");
        dump(r, &s, DUMP_graph | DUMP_launcher, true);
        trial_diverge(r, &where, NULL);
        err_set(err, ERR_accuracy, "Bad accuracy detected: %s%s%s", s.full, where.n ? "\n" : "",
                strbuf_str(&where));
        strbuf_free(&where);
    }
    repro_free(r);
    return s.kind != SIG_accuracy && !threw;
}

/* Trials are forked, and compare elements where the host sees them: neither can be had of a device. True: it is one, and that was said. */
static bool left_out(const wrapped *w, const char *what)
{
    tp_device d = ir_graph_device(w->g);
    if (device_ops_of(d)->host)
        return false;
    ev_log(EVC_dynamo, EV_WARNING, NULL,
           "%s of graph '%s' is left out: its trials run in forked processes and on the host, where memory "
           "and programs of device "
           "'%s' cannot be used. Save the graph with TAPER_REPRO_AFTER=dynamo TAPER_REPRO_LEVEL=3: `taper "
           "repro`, `taper "
           "bisect` and `taper minify` then run it on the CPU, in processes of their own.",
           what, w->name, device_name((dev_kind)d.kind));
    return true;
}

/* TAPER_VALIDATE=1: every rewrite of the graph on the first inputs that it gets. False: one changes a value, and err names it. */
static bool rewrites_right(wrapped *w, const tp_val *in, int nin, const debug_config *c, tp_err *err)
{
    strbuf why = { 0 };
    bisect_step step = { 0 };
    tp_err quiet = { 0 };
    decide_kind k;
    if (!guarded(w->g, in, nin, &why))
        err_set(err, ERR_accuracy, "%s", strbuf_str(&why));
    else {
        repro *r = repro_of(w, in, nin, c);
        trial_limits l = { .timeout_ms = 20000 };
        bisect_validate(r, &l, &step, &quiet);
        repro_free(r);
    }
    strbuf_clear(&why);
    if (step.site)
        sig_plain(&why, &step.after);
    if (step.site && !*step.site)
        err_set(err, ERR_accuracy, "validation of graph '%s': it is wrong before any optional rewrite: %s",
                w->name, strbuf_str(&why));
    else if (step.site)
        err_set(err, ERR_accuracy,
                "validation of graph '%s': %s (%s) changes what it gives: before it, the values are those of "
                "eager; after it, %s",
                w->name, step.site,
                decide_by_name(step.site, strcspn(step.site, ":"), &k) ? decide_what(k) : "a rewrite",
                strbuf_str(&why));
    free(step.site);
    strbuf_free(&why);
    return !err_is_set(err);
}

static bool wrapped_call(run_program *rp, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                         tp_err *err)
{
    wrapped *w = (wrapped *)rp;
    debug_config c = debug_config_now();
    if (!busy && !w->inner && !w->validated && env_on(ENV_validate)) {
        w->validated = busy = true;
        bool right = left_out(w, "validation") || rewrites_right(w, in, nin, &c, err);
        busy = false;
        if (!right)
            return false;
    }
    if (busy || c.after != (w->inner ? AFTER_aot : AFTER_dynamo))
        return run_program_call(w->p, cx, in, nin, out, nout, err);
    bool ok = false;
    if (c.level == 4 && (w->audited ? !device_ops_of(ir_graph_device(w->g))->host
                                    : left_out(w, "the comparison with eager"))) {
        c.level = 2; /* what fails is still saved */
        w->audited = true;
    }
    busy = true;
    if (c.level == 3) { /* before anything can kill the process */
        repro *r = repro_of(w, in, nin, &c);
        signature s;
        sig_set(&s, SIG_passes, "", "");
        dump(r, &s, DUMP_launcher, false);
        repro_free(r);
    }
    bool first = c.level == 4 && !w->audited && audit_wanted();
    /* values of later calls may show what those of the first do not */
    bool again = c.level == 4 && w->rounds < AUDITS && w->audit_ns < AUDIT_NS && audit_wanted();
    if ((first || again) && !w->inner) {
        repro *r = repro_of(w, in, nin, &c);
        int64_t begun = clock_ns();
        audit_report(r, w->rounds++);
        w->audit_ns += clock_ns() - begun;
        repro_free(r);
    }
    /* what comes and goes shows when it is run often */
    int64_t until = clock_ns() + 300000000;
    for (int i = 0; c.level == 4 && i < (first ? 24 : 1) && (!i || clock_ns() < until); i++)
        if (!results_agree(w, in, nin, &c, err))
            goto done;
    w->audited |= first;
    ok = run_program_call(w->p, cx, in, nin, out, nout, err);
    if (ok &&
        !(ok = device_sync(ir_graph_device(w->g), err))) /* what the device finds late is this graph's */
        for (int i = 0; i < nout; i++)
            val_clear(&out[i]);
    if (!ok) {
        repro *r = repro_of(w, in, nin, &c);
        signature s;
        sig_of(&s, SIG_exception, "run", err);
        dump(r, &s, by_level(&c), false);
        repro_free(r);
    }
done:
    busy = false;
    return ok;
}

static void wrapped_free(run_program *rp)
{
    wrapped *w = (wrapped *)rp;
    run_program_free(w->p);
    ir_graph_free(w->g);
    free(w->backend);
    free(w->name);
    free(w->options);
    free(w);
}

/* ---- compiling ---- */
static char *graph_name(const ir_graph *g, const char *what)
{
    static int aot, n;
    strbuf b = { 0 };
    if (!what)
        strbuf_add(&b, g->name ? g->name : "graph");
    else {
        int id = !strcmp(what, "backward") && aot ? aot - 1 : aot++;
        strbuf_addf(&b, "model__%d_%s_%d", id, what, n++);
    }
    return strbuf_take(&b);
}

static run_program *compile_by(const backend *b, tp_comp *c, const ir_graph *g, const tp_val *example,
                               bool inner)
{
    return inner ? b->compile(b, c, g, example) : backend_compile(b, c, g, example);
}

static tp_val *fakes(const ir_graph *g) /* borrowed tensors */
{
    tp_val *v = mem_zalloc(sizeof *v * (g->inputs.n + 1));
    for (size_t i = 0; i < g->inputs.n; i++) {
        bool ok = true;
        v[i] = g->inputs.at[i]->val;
        if (v[i].kind == VAL_int && sym_is_expr(v[i].i))
            v[i].i = sym_hint(v[i].i, &ok);
    }
    return v;
}

/* Without a run of the backward pass now, its failures would show far from here. */
static bool first_run(wrapped *w, const tp_val *in, int nin, const debug_config *c, tp_err *err)
{
    repro *r = repro_of(w, in, nin, c);
    signature s;
    tp_err e = { 0 };
    bool ok = true;
    if (repro_has_gradients(r)) {
        trial_with(r, w->p, &s, &e);
        if (s.kind == SIG_exception || s.kind == SIG_oom) {
            ev_log(EVC_dynamo, EV_WARNING, NULL,
                   "Compiled Fx GraphModule failed. Creating script to minify the error.");
            dump(r, &s, by_level(c), false);
            if (!err_is_set(err))
                *err = e;
            ok = false;
        }
    }
    repro_free(r);
    return ok;
}

/* The detailed trace: the graph as a script that runs alone, on random numbers. */
static void trace_runnable(const backend *b, const ir_graph *g)
{
    if (!ev_trace_on(EV_graph_dump)) /* one of the slow records: TAPER_DTRACE */
        return;
    strbuf text = { 0 };
    tp_val *in = fakes(g);
    repro *r = repro_new(g, in, (int)g->inputs.n, b->name);
    signature s;
    sig_set(&s, SIG_passes, "", "");
    script_python(&text, r, &s, &(script_opts){ .no_data = true, .stable = true });
    ev_artifact("fx_graph_runnable", "string", NULL, strbuf_str(&text));
    repro_free(r);
    free(in);
    strbuf_free(&text);
}

static run_program *after_autograd(tp_comp *c, const backend *b, const ir_graph *g, const char *what);

static run_program *watched(tp_comp *c, const backend *b, const ir_graph *g, const tp_val *in,
                            const char *what)
{
    debug_config cfg = debug_config_now();
    bool inner = what != NULL;
    uint8_t mine = inner ? AFTER_aot : AFTER_dynamo;
    if (cfg.after == AFTER_wrong) {
        err_set(c->err, ERR_assertion, "repro_after must be 'dynamo', 'aot' or unset, not '%.60s'",
                cfg.wrong);
        return NULL;
    }
    if (!inner && !busy)
        trace_runnable(b, g);
    bool checks = !inner && env_on(ENV_validate);
    if (busy || (cfg.after != mine && !checks) || !strcmp(b->name, "eager"))
        return compile_by(b, c, g, in, inner);
    wrapped *w = mem_zalloc(sizeof *w);
    *w = (wrapped){ .base = { wrapped_call, wrapped_free },
                    .g = ir_graph_copy(g),
                    .backend = mem_strdup(b->name),
                    .name = graph_name(g, what),
                    .inner = inner };
    strbuf own = { 0 };
    if (c->opt)
        options_own(&own, c->opt);
    w->options = own.n ? strbuf_take(&own) : NULL;
    tp_val *made = in ? NULL : fakes(w->g);
    const tp_val *v = in ? in : made;
    int n = (int)w->g->inputs.n;
    signature s;
    busy = true;
    if (cfg.level == 3 && cfg.after == mine) { /* a compiler that kills the process leaves this behind */
        repro *r = repro_of(w, v, n, &cfg);
        sig_set(&s, SIG_passes, "", "");
        dump(r, &s, DUMP_launcher, false);
        repro_free(r);
    }
    w->p = compile_by(b, c, g, in, inner);
    bool ok = w->p != NULL;
    if (!ok && in && !inner && cfg.level == 4 && audit_wanted()) { /* a rule of eager's may be what fails */
        repro *r = repro_of(w, v, n, &cfg);
        audit_report(r, 0);
        repro_free(r);
    }
    if (!ok && c->err->kind != ERR_notimpl && cfg.after == mine) {
        repro *r = repro_of(w, v, n, &cfg);
        sig_of(&s, SIG_compile_error, "compile", c->err);
        ev_log(EVC_aot, EV_ERROR, NULL, "CompilerError");
        dump(r, &s, by_level(&cfg), false);
        repro_free(r);
    } else if (ok && !inner && cfg.level <= 2 && cfg.after == mine)
        ok = first_run(w, v, n, &cfg, c->err);
    busy = false;
    free(made);
    if (ok)
        return &w->base;
    wrapped_free(&w->base);
    return NULL;
}

run_program *debug_compile(tp_comp *c, const backend *b, const ir_graph *g, const tp_val *example,
                           const char *what)
{
    artefacts *a = NULL;
    uint8_t after = debug_config_now().after;
    if (!what && (after == AFTER_aot || after == AFTER_wrong || artefacts_wanted()))
        c->watch = after_autograd;
    if (!busy && artefacts_wanted()) {
        tp_val *made = example ? NULL : fakes(g);
        const char *name = what ? what : g->name ? g->name : "graph";
        a = artefacts_begin(b->name, name, what != NULL, g, example ? example : made, (int)g->inputs.n);
        free(made);
    }
    run_program *p = watched(c, b, g, example, what);
    artefacts_end(a);
    return p;
}

static run_program *after_autograd(tp_comp *c, const backend *b, const ir_graph *g, const char *what)
{
    return debug_compile(c, b, g, NULL, what);
}
