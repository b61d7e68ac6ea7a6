/* tune.c - see tune.h. */
#include "run/tune.h"
#include "base/clock.h"
#include "events/metrics.h"
#include "ops/random.h"
#include "run/options.h"
#include "run/tune_steps.h"
#include "sym/env.h"
#include <stdio.h>

static run_program *compile(tune_fn *once, const aot_inner *in, tp_comp *c, const ir_graph *g,
                            const run_options *o)
{
    tp_comp mine = *c;
    mine.opt = o;
    mine.unroll = o->v[OPT_unroll] ? 1 << (o->v[OPT_unroll] - 1) : 0;
    return once(in, &mine, g);
}

/* Inputs of the right types: numbers around one, which every operator takes, and zeros for integers, which may be
 * indices. */
static void free_inputs(tp_val *in, size_t n)
{
    for (size_t i = 0; in && i < n; i++)
        val_clear(&in[i]);
    free(in);
}

static tp_val *make_inputs(const ir_graph *g, tp_err *err)
{
    tp_val *in = mem_zalloc(sizeof *in * (g->inputs.n + 1));
    uint32_t r = 1;
    for (size_t i = 0; i < g->inputs.n; i++) {
        const ir_node *n = g->inputs.at[i];
        const tp_tensor *t = ir_type(n);
        if (!t) {
            in[i] = n->val;
            continue;
        }
        tp_tensor *x = tensor_new_strided((dtype)t->dt, t->ndim, t->size, t->stride, DEVICE_CPU, err);
        if (!x) {
            free_inputs(in, i);
            return NULL;
        }
        int64_t bytes = x->storage->nbytes, es = (int64_t)dtype_size((dtype)t->dt);
        char *p = x->storage->data;
        if (p)
            memset(p, 0, (size_t)bytes);
        for (int64_t k = 0; dtype_is_float((dtype)t->dt) && p && k < bytes / es; k++) {
            r = r * 1664525u + 1013904223u;
            elem_set_f((dtype)t->dt, p + k * es, 0.5 + (double)(r >> 8) * 0x1p-24);
        }
        in[i] = vT(x);
    }
    return in;
}

static bool fixed(const ir_graph *g)
{
    if (g->env && sym_env_n_symbols(g->env) > 0)
        return false;
    for (size_t i = 0; i < g->inputs.n; i++) {
        const tp_val *v = &g->inputs.at[i]->val;
        if (v->kind == VAL_int ? sym_is_expr(v->i) : v->kind != VAL_tensor)
            return false;
    }
    return true;
}

static void key_of(const ir_graph *g, strbuf *key)
{
    ir_graph *w = (ir_graph *)(uintptr_t)g; /* as it was afterwards */
    const char *name = w->name;
    w->name = "forward";
    strbuf_add(key, "graph ");
    ir_print(key, g, IR_PRINT_types | IR_PRINT_head);
    w->name = name;
}

static int64_t limit_ns(const run_options *o)
{
    char w[40];
    double s = 0;
    return sscanf(option_word(OPT_autotune_seconds, o->v[OPT_autotune_seconds], w, sizeof w), "%lf", &s) == 1
               ? (int64_t)(s * 1e9)
               : 0;
}

typedef struct search {
    tune t;
    tune_fn *once;
    const aot_inner *in;
    run_options o;
    tp_val *x;
} search;

/* Two programs in turns, so that a busy moment of the machine hits them alike: is the first one faster by more than noise? */
static bool is_faster(search *s, run_program *a, run_program *b, const char *what)
{
    int64_t ta = INT64_MAX, tb = INT64_MAX;
    for (int r = 0; r < 4; r++) {
        int64_t x = tune_time(a, s->t.g, s->x, 2000000), y = tune_time(b, s->t.g, s->x, 2000000);
        if (x < 0 || y < 0)
            return false;
        ta = MIN(ta, x), tb = MIN(tb, y);
    }
    tune_say(&s->t, "tried %s: %.2f us beside %.2f", what, (double)ta * 1e-3, (double)tb * 1e-3);
    return ta < tb - tb * 3 / 100;
}

/* The fastest program and what it is called. NULL with c->err. */
static run_program *find(search *s, strbuf *won)
{
    tune *t = &s->t;
    run_program *p = compile(s->once, s->in, t->c, t->g, &s->o);
    tp_err err = { 0 };
    strbuf_add(won, "usual");
    if (!p || !(s->x = make_inputs(t->g, &err)))
        return p;
    tp_gen *rng = gen_default();
    uint64_t seed = rng->seed, offset = rng->offset;
    tune_steps(t, p, s->x, (int)t->g->inputs.n);
    run_program *plain = t->chosen ? compile(s->once, s->in, t->c, t->g, &s->o) : NULL;
    /* each step was faster by itself; that all of them are so in a row is another question */
    bool better = plain && !is_faster(s, plain, p, "usual steps");
    if (plain) {
        run_program_free(better ? plain : p);
        p = better ? p : plain;
    }
    if (better) {
        strbuf_clear(won);
        strbuf_add(won, "steps");
    }
    free_inputs(s->x, t->g->inputs.n);
    rng->seed = seed;
    rng->offset = offset;
    return p;
}

run_program *tune_compile(tune_fn *once, const aot_inner *in, tp_comp *c, const ir_graph *g)
{
    search s = { .once = once, .in = in, .o = options_of(c->opt) };
    int64_t limit = limit_ns(&s.o), t0 = clock_ns();
    s.o.v[OPT_max_autotune] = s.o.v[OPT_autotune_seconds] = 0; /* no part of any key */
    s.t = (tune){ .c = c, .g = g, .opt = &s.o };
    if (!fixed(g)) {
        tune_say(&s.t, "not tuned: its sizes are symbolic");
        return compile(once, in, c, g, &s.o);
    }
    strbuf key = { 0 }, won = { 0 };
    bool from_disk = false;
    run_program *p;
    key_of(g, &key);
    bool known = tune_recall(&s.t, &key, g->name, &won, &from_disk);
    if (known || c->decider.fn) { /* whoever looks for a miscompile refuses what was chosen before */
        p = compile(once, in, c, g, &s.o);
        if (p && (!known || strcmp(strbuf_str(&won), "usual")))
            tune_steps(&s.t, p, NULL, 0);
        tune_say(&s.t,
                 known ? "remembered%s: all of it: %s" : "not tuned%s: its rewrites are decided one by one%s",
                 from_disk ? " from the disk cache" : "", known ? strbuf_str(&won) : "");
    } else {
        s.t.search = true;
        s.t.until = limit ? t0 + limit : 0;
        p = find(&s, &won);
        ev_metrics_part(EVP_tune, clock_ns() - t0);
        if (p && !s.t.left)
            tune_remember(&s.t, &key, g->name, strbuf_str(&won));
        tune_say(&s.t, "chosen: all of it: %s; %d step%s measured, %d remembered, %d of another form%s",
                 strbuf_str(&won), s.t.measured, plural(s.t.measured), s.t.remembered, s.t.chosen,
                 s.t.left ? "; the time was used up before the rest" : "");
    }
    strbuf_free(&key);
    strbuf_free(&won);
    return p;
}
