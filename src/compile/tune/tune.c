/* tune.c - see tune.h. */
#include "compile/tune/tune.h"
#include "base/clock.h"
#include "base/fault.h"
#include "events/metrics.h"
#include "ops/random.h"
#include "compile/layout.h"
#include "compile/options.h"
#include "compile/tune/steps.h"
#include "sym/env.h"
#include <stdio.h>

static run_program *compile(tune_fn *once, tp_comp *c, const ir_graph *g, const run_options *o)
{
    tp_comp mine = *c;
    mine.opt = o;
    mine.target = options_target(o, (dev_kind)c->target->device, NULL);
    target_caps caps = options_caps(o, mine.target);
    mine.caps = &caps;
    return once(&mine, g);
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
    run_options o;
    tp_val *x;
    VEC(ir_graph *) graphs; /* in other layouts; owned */
} search;

/* ---- programs: words that say how one is made: "steps layout=channels_last no=fuse:add" ---- */
enum { MAX_CLASSES = 24, CLASS_LEN = 64 };
static const struct {
    const char *word;
    memfmt f;
} layouts[] = { { "layout=channels_last", MF_channels_last }, { "layout=contiguous", MF_contiguous } };

static bool has_word(const char *words, const char *w)
{
    size_t n = strlen(w);
    for (const char *s = words; *s; s += strcspn(s, " "), s += *s == ' ')
        if (strcspn(s, " ") == n && !memcmp(s, w, n))
            return true;
    return false;
}

/* From a file that anybody may have written. */
static bool words_ok(const char *words)
{
    bool ok = strlen(words) < 1000 && (has_word(words, "usual") || has_word(words, "steps"));
    for (const char *s = words; *s && ok; s++)
        ok = (*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9') || strchr("_:= ", *s);
    return ok;
}

/* Fusions and splits, by kind and operator: what the planner does to one addition it does to all of them, and layers are alike.
 * A class of them is refused together. */
typedef struct classes {
    const char *words;
    char seen[MAX_CLASSES][CLASS_LEN];
    int n;
} classes;

static bool class_asked(void *data, decide_kind k, const char *site, uint64_t hash)
{
    classes *c = data;
    char name[CLASS_LEN];
    size_t n = strcspn(site, "@"), from = strcspn(site, ":");
    (void)hash;
    while (n && site[n - 1] >= '0' && site[n - 1] <= '9')
        n--;
    n -= n && n < strlen(site) && site[n - 1] == '_';
    if ((k != DECIDE_fuse && k != DECIDE_thread) || n <= from + 1 || n >= CLASS_LEN - 4)
        return true;
    if (k == DECIDE_thread &&
        !strchr(site, '@')) /* a kernel: how threads share it is measured with its steps */
        return true;
    snprintf(name, sizeof name, "no=%.*s", (int)n, site);
    int at = 0;
    while (at < c->n && strcmp(c->seen[at], name))
        at++;
    if (at == c->n && c->n < MAX_CLASSES)
        memcpy(c->seen[c->n++], name, sizeof name);
    return !has_word(c->words, name);
}

/* g as the words say, and its program. NULL with err. */
static run_program *compile_as(search *s, const char *words, classes *cl, const ir_graph **as, tp_err *err)
{
    classes own = { .words = words };
    tp_comp mine = *s->t.c;
    mine.err = err;
    *as = s->t.g;
    for (size_t i = 0; i < COUNT(layouts); i++)
        if (has_word(words, layouts[i].word)) {
            ir_graph *g = layout_turn(s->t.g, layouts[i].f, err);
            if (!g)
                return NULL;
            vec_push(&s->graphs, g);
            *as = g;
        }
    cl = cl ? cl : &own;
    cl->words = words;
    if (!mine.decider.fn && (cl != &own || strstr(words, "no=")))
        mine.decider = (decider){ class_asked, cl };
    return compile(s->once, &mine, *as, &s->o);
}

/* Two programs in turns, so that a busy moment of the machine hits them alike: does the first one take less than so many
 * hundredths of the other's time, in most of the turns and at best? */
static bool is_faster(search *s, run_program *a, run_program *b, int hundredths, const char *what)
{
    enum { TURNS = 6 };
    int64_t ta = INT64_MAX, tb = INT64_MAX, late = fault_at("tune", "all of it") == FAULT_slow ? 1000000 : 0;
    int wins = 0;
    for (int r = 0; r < TURNS; r++) {
        int64_t x = tune_time(a, s->t.g, s->x, 2000000), y = tune_time(b, s->t.g, s->x, 2000000);
        if (x < 0 || y < 0)
            return false;
        y += late; /* a planted fault */
        wins += x < y;
        ta = MIN(ta, x), tb = MIN(tb, y);
        if (r >= 1 && !wins && ta > tb) /* it will not */
            break;
    }
    tune_say(&s->t, "tried all of it: %s: %.2f us beside %.2f", what, (double)ta * 1e-3, (double)tb * 1e-3);
    return wins >= TURNS - 1 && ta * 100 < tb * hundredths;
}

/* One more word: p and words become the program with it, where that is right and faster. */
static void try_word(search *s, const char *word, run_program **p, strbuf *words)
{
    tune *t = &s->t;
    strbuf more = { 0 };
    tp_err err = { 0 };
    const ir_graph *as, *g = t->g;
    fault_kind f = fault_at("tune", word);
    strbuf_addf(&more, "%s %s", strbuf_str(words), word);
    run_program *q = f == FAULT_compile_error ? NULL : compile_as(s, strbuf_str(&more), NULL, &as, &err);
    if (!q) {
        if (err_is_set(&err) || f)
            tune_say(t, "dropped: all of it: %s: %s", word, f ? "planted fault" : err.msg);
        goto done;
    }
    if (has_word(strbuf_str(words), "steps")) {
        t->search = false; /* what is known of its steps; the others are searched if it wins */
        t->g = as;
        tune_steps(t, q, NULL, 0);
        t->search = true;
        t->g = g;
    }
    if (f == FAULT_accuracy || !tune_agree(*p, q, g, s->x))
        tune_say(t, "dropped: all of it: %s: it gives another result", word);
    else if (f != FAULT_slow &&
             is_faster(s, q, *p, 95, word)) { /* equal programs differ by where memory lies */
        run_program *old = *p;
        *p = q;
        q = old;
        strbuf_addf(words, " %s", word);
    }
done:
    run_program_free(q);
    strbuf_free(&more);
}

/* The fastest program and how it is made. NULL with c->err. */
static run_program *find(search *s, int64_t limit, strbuf *won)
{
    tune *t = &s->t;
    const ir_graph *as;
    classes cl = { .n = 0 };
    tp_err err = { 0 };
    int64_t t0 = clock_ns(), end = limit ? t0 + limit : 0;
    run_program *p = compile_as(s, "", &cl, &as, t->c->err);
    strbuf_add(won, "usual");
    if (!p || !(s->x = make_inputs(t->g, &err)))
        return p;
    tp_gen *rng = gen_default();
    gen_state was = rng->s;
    t->until = limit ? t0 + limit * 6 / 10 : 0;
    tune_steps(t, p, s->x, (int)t->g->inputs.n);
    t->until = end;
    run_program *plain = t->chosen ? compile_as(s, "", NULL, &as, &err) : NULL;
    /* each step was faster by itself; that all of them are so in a row is another question */
    bool better = plain && is_faster(s, p, plain, 99, "steps");
    if (plain) {
        run_program_free(better ? plain : p);
        p = better ? p : plain;
    }
    if (better) {
        strbuf_clear(won);
        strbuf_add(won, "steps");
    }
    for (size_t i = 0; i < COUNT(layouts) && !tune_over(t); i++)
        try_word(s, layouts[i].word, &p, won);
    for (int i = 0; i < cl.n && !tune_over(t); i++)
        try_word(s, cl.seen[i], &p, won);
    if (has_word(strbuf_str(won), "steps") && strchr(strbuf_str(won), ' ') && !tune_over(t)) {
        run_program *q = compile_as(s, strbuf_str(won), NULL, &as,
                                    &err); /* steps that only this program has */
        const ir_graph *g = t->g;
        t->g = as;
        if (q)
            tune_steps(t, q, s->x, (int)g->inputs.n);
        t->g = g;
        run_program_free(q ? p : NULL);
        p = q ? q : p;
    }
    t->left += tune_over(t);
    free_inputs(s->x, t->g->inputs.n);
    rng->s = was;
    return p;
}

run_program *tune_compile(tune_fn *once, tp_comp *c, const ir_graph *g)
{
    search s = { .once = once, .o = options_of(c->opt) };
    int64_t limit = limit_ns(&s.o), t0 = clock_ns();
    s.o.v[OPT_max_autotune] = s.o.v[OPT_autotune_seconds] = 0; /* no part of any key */
    s.t = (tune){ .c = c, .g = g, .opt = &s.o };
    if (!fixed(g)) {
        tune_say(&s.t, "not tuned: its sizes are symbolic");
        return compile(once, c, g, &s.o);
    }
    strbuf key = { 0 }, won = { 0 };
    bool from_disk = false;
    run_program *p;
    key_of(g, &key);
    bool known = tune_recall(&s.t, &key, g->name, &won, &from_disk) && words_ok(strbuf_str(&won));
    if (known || c->decider.fn) { /* whoever looks for a miscompile refuses what was chosen before */
        const ir_graph *as;
        p = compile_as(&s, known ? strbuf_str(&won) : "", NULL, &as, c->err);
        s.t.g = as;
        if (p && (!known || has_word(strbuf_str(&won), "steps")))
            tune_steps(&s.t, p, NULL, 0);
        s.t.g = g;
        tune_say(&s.t,
                 known ? "remembered%s: all of it: %s" : "not tuned%s: its rewrites are decided one by one%s",
                 from_disk ? " from the disk cache" : "", known ? strbuf_str(&won) : "");
    } else {
        s.t.search = true;
        strbuf_clear(&won);
        p = find(&s, limit, &won);
        ev_metrics_part(EVP_tune, clock_ns() - t0);
        if (p && !s.t.left)
            tune_remember(&s.t, &key, g->name, strbuf_str(&won));
        tune_say(&s.t, "chosen: all of it: %s; %d step%s measured, %d remembered, %d of another form%s",
                 strbuf_str(&won), s.t.measured, plural(s.t.measured), s.t.remembered, s.t.chosen,
                 s.t.left ? "; the time was used up before the rest" : "");
    }
    for (size_t i = 0; i < s.graphs.n; i++)
        ir_graph_free(s.graphs.at[i]);
    vec_free(&s.graphs);
    strbuf_free(&key);
    strbuf_free(&won);
    return p;
}
