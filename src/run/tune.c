/* tune.c - measures variants of a compiled graph. */
#include "run/tune.h"
#include "base/clock.h"
#include "base/map.h"
#include "events/metrics.h"
#include "ops/random.h"
#include "run/disk.h"
#include "run/options.h"
#include "run/product.h"
#include "run/program.h"
#include "gen/provide.h"
#include "loop/loop.h"
#include "sym/env.h"
#include <pthread.h>
#include <stdio.h>

enum { ROUNDS = 3, MIN_RUNS = 2, MAX_RUNS = 100 };
static const int64_t ENOUGH_NS = 1500000; /* of measuring one variant in one round */

/* What is tried, on top of the options given. */
static const struct {
    const char *name, *set[2][2];
} variants[] = {
    { "x64", { { NULL } } },
    { "x64, unroll 1", { { "unroll", "1" } } },
    { "x64, unroll 2", { { "unroll", "2" } } },
    { "x64, unroll 4", { { "unroll", "4" } } },
    { "x64, avx2", { { "isa", "avx2" } } },
    { "c", { { "emitter", "c" } } },
};

static run_options with(const run_options *o, int i)
{
    run_options r = *o;
    tp_err err = { 0 };
    for (int k = 0; k < 2; k++)
        if (variants[i].set[k][0])
            options_set(&r, variants[i].set[k][0], variants[i].set[k][1], &err);
    return r;
}

static run_program *compile(tune_fn *once, const aot_inner *in, tp_comp *c, const ir_graph *g,
                            const run_options *o)
{
    tp_comp mine = *c;
    mine.opt = o;
    mine.unroll = o->v[OPT_unroll] ? 1 << (o->v[OPT_unroll] - 1) : 0;
    return once(in, &mine, g);
}

/* Inputs of the right types: ones, which every operator takes, and zeros for integers, which may be indices. */
static tp_val *make_inputs(const ir_graph *g, tp_err *err)
{
    tp_val *in = mem_zalloc(sizeof *in * (g->inputs.n + 1));
    for (size_t i = 0; i < g->inputs.n; i++) {
        const ir_node *n = g->inputs.at[i];
        const tp_tensor *t = ir_type(n);
        if (!t) {
            in[i] = n->val;
            continue;
        }
        tp_tensor *x = tensor_new_strided((dtype)t->dt, t->ndim, t->size, t->stride, DEVICE_CPU, err);
        if (!x) {
            for (size_t k = 0; k < i; k++)
                val_clear(&in[k]);
            free(in);
            return NULL;
        }
        int64_t bytes = x->storage->nbytes, es = (int64_t)dtype_size((dtype)t->dt);
        memset(x->storage->data ? x->storage->data : (void *)&bytes, 0, x->storage->data ? (size_t)bytes : 0);
        for (int64_t k = 0; dtype_is_float((dtype)t->dt) && x->storage->data && k < bytes / es; k++)
            elem_set_f((dtype)t->dt, (char *)x->storage->data + k * es, 1);
        in[i] = vT(x);
    }
    return in;
}

/* Nanoseconds of the fastest run, or -1: it fails on such inputs. */
static int64_t measure(run_program *p, const ir_graph *g, const tp_val *in)
{
    int nout = g->output->narg;
    tp_val *out = mem_zalloc(sizeof *out * (size_t)MAX(nout, 1));
    int64_t best = -1, sum = 0;
    op_ctx cx = *op_ctx_cur();
    cx.grad_mode = false;
    cx.rec = NULL;
    for (int i = 0; i < MAX_RUNS && (i < MIN_RUNS || sum < ENOUGH_NS); i++) {
        tp_err err = { 0 };
        int64_t t = clock_ns();
        if (!run_program_call(p, &cx, in, (int)g->inputs.n, out, nout, &err)) {
            best = -1;
            break;
        }
        t = clock_ns() - t;
        sum += t;
        best = best < 0 || t < best ? t : best;
        for (int k = 0; k < nout; k++)
            val_clear(&out[k]);
    }
    free(out);
    return best;
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

static void tell(const ir_graph *g, const char *what, const char *name, double us)
{
    if (ev_text_on(EV_autotuning) && us >= 0)
        ev_text(EV_autotuning, NULL, "%s: %s %s: %.2f us", g->name, what, name, us);
    else if (ev_text_on(EV_autotuning))
        ev_text(EV_autotuning, NULL, "%s: %s: %s", g->name, what, name);
}

/* Every variant compiled, all measured in turns so that a busy moment of the machine hits them alike; the fastest stays.
 * won: its name, or empty where nothing could be measured. NULL with c->err. */
static run_program *fastest(tune_fn *once, const aot_inner *in, tp_comp *c, const ir_graph *g,
                            const run_options *o, strbuf *won)
{
    run_program *p[COUNT(variants)] = { NULL };
    int64_t ns[COUNT(variants)];
    size_t best = 0;
    tp_gen *rng = gen_default();
    uint64_t seed = rng->seed, offset = rng->offset;
    strbuf_clear(won);
    tp_val *x = make_inputs(g, c->err);
    if (!x || !(p[0] = compile(once, in, c, g, o))) /* the plain one fails: so does the compile */
        goto done;
    ns[0] = measure(p[0], g, x);
    for (size_t i = 1; i < COUNT(variants) && ns[0] >= 0; i++) {
        run_options v = with(o, (int)i);
        tp_err err = { 0 };
        tp_comp mine = *c;
        mine.err = &err;
        ns[i] = -1;
        if (memcmp(&v, o, sizeof v) && (p[i] = compile(once, in, &mine, g, &v)))
            ns[i] = measure(p[i], g, x);
    }
    for (int r = 1; r < ROUNDS && ns[0] >= 0; r++)
        for (size_t i = 0; i < COUNT(variants); i++) {
            int64_t t = p[i] && ns[i] >= 0 ? measure(p[i], g, x) : -1;
            ns[i] = t >= 0 && t < ns[i] ? t : ns[i];
        }
    for (size_t i = 0; i < COUNT(variants) && ns[0] >= 0; i++) {
        if (ns[i] >= 0)
            tell(g, "tried", variants[i].name, (double)ns[i] * 1e-3);
        if (ns[i] >= 0 && ns[i] < ns[best] - ns[best] / 50) /* two in a hundred are noise */
            best = i;
    }
    if (ns[0] >= 0)
        strbuf_add(won, variants[best].name);
done:
    for (size_t i = 0; i < COUNT(variants); i++)
        if (i != best)
            run_program_free(p[i]);
    for (size_t i = 0; x && i < g->inputs.n; i++)
        val_clear(&x[i]);
    free(x);
    rng->seed = seed;
    rng->offset = offset;
    return p[best];
}

/* ---- products: how wide their register tiles are ---- */
static map tiles; /* desc -> tile width + 1, for the process */
static pthread_mutex_t tiles_lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t measure_tile(const gemm_desc *d, int nv, void *a, void *b, void *bias, void *c)
{
    gemm_desc with = *d;
    tp_err err = { 0 };
    int64_t best = -1, sum = 0;
    with.nv = nv;
    gemm_plan *p = gemm_plan_new(&with, gen_isa_host(), &err);
    for (int i = 0;
         p && (!nv || gemm_tile_width(p) == nv) && i < MAX_RUNS && (i < MIN_RUNS || sum < ENOUGH_NS); i++) {
        int64_t t = clock_ns();
        if (!gemm_run(p, a, b, bias, c, NULL, &err))
            break;
        t = clock_ns() - t;
        sum += t;
        best = best < 0 || t < best ? t : best;
    }
    gemm_plan_free(p);
    return best;
}

static size_t reach(const gemm_mat *m, int64_t rows, int64_t cols, int64_t batch, size_t es)
{
    return (size_t)((rows - 1) * llabs(m->row) + (cols - 1) * llabs(m->col) + (batch - 1) * llabs(m->batch) +
                    1) *
           es;
}

/* The fastest width; 0: the one that the shape suggests. */
static int fastest_tile(const gemm_desc *d, double *us)
{
    size_t es = d->c.type == VM_f64 ? 8 : 4, na = reach(&d->a, d->m, d->k, d->batch, es),
           nb = reach(&d->b, d->k, d->n, d->batch, es), nc = reach(&d->c, d->m, d->n, d->batch, es);
    void *a = calloc(1, na), *b = calloc(1, nb), *c = calloc(1, nc), *bias = calloc((size_t)d->n, es);
    int64_t ns[GEMM_WIDEST + 1];
    int best = 0;
    for (int r = 0; a && b && c && bias && r < ROUNDS; r++)
        for (int nv = 0; nv <= GEMM_WIDEST; nv++) {
            int64_t t = r && ns[nv] < 0 ? -1 : measure_tile(d, nv, a, b, d->bias ? bias : NULL, c);
            ns[nv] = r && ns[nv] >= 0 && (t < 0 || ns[nv] < t) ? ns[nv] : t;
        }
    for (int nv = 1; a && b && c && bias && ns[0] >= 0 && nv <= GEMM_WIDEST; nv++)
        if (ns[nv] >= 0 && ns[nv] < ns[best] - ns[best] / 50)
            best = nv;
    *us = a && b && c && bias ? (double)ns[best] * 1e-3 : 0;
    free(a);
    free(b);
    free(c);
    free(bias);
    return best;
}

static void tune_product(const ir_graph *g, const char *node, const gemm_desc *d, const run_options *o)
{
    strbuf config = { 0 }, won = { 0 };
    char id[33], why[DISK_WHY], what[64];
    double us = 0;
    pthread_mutex_lock(&tiles_lock);
    bool had = map_getn(&tiles, d, sizeof *d) != NULL;
    pthread_mutex_unlock(&tiles_lock);
    if (had || !d->m || !d->n || !d->k || !d->batch)
        return;
    snprintf(id, sizeof id, "%016llx%016llx", (unsigned long long)hash_bytes(d, sizeof *d, 3),
             (unsigned long long)hash_bytes(d, sizeof *d, 4));
    disk_config(&config);
    disk_item it = { "tuning", id, strbuf_str(&config), "a product" };
    bool known = o->v[OPT_disk_cache] && disk_get(&it, &won, why) && won.n == 1 && won.s[0] >= '0' &&
                 won.s[0] <= '0' + GEMM_WIDEST;
    int nv = known ? won.s[0] - '0' : fastest_tile(d, &us);
    if (!known && o->v[OPT_disk_cache])
        disk_put(&it, (char[]){ (char)('0' + nv) }, 1);
    if (nv)
        gen_product_use(d, nv);
    pthread_mutex_lock(&tiles_lock);
    map_putn(&tiles, d, sizeof *d, (void *)(intptr_t)(nv + 1));
    pthread_mutex_unlock(&tiles_lock);
    snprintf(what, sizeof what, nv ? "tile of %d vectors" : "the usual tile", nv);
    strbuf_clear(&won);
    strbuf_addf(&won, "%s%s for", known ? "remembered from the disk cache: " : "", what);
    tell(g, strbuf_str(&won), node, known ? -1 : us);
    strbuf_free(&config);
    strbuf_free(&won);
}

/* Every product of the program by itself, as it will run. */
static void tune_products(const ir_graph *g, const run_program *rp, const run_options *o)
{
    const loop_plan *p = rp ? program_plan(rp) : NULL;
    for (size_t i = 0; p && i < p->step.n; i++) {
        const loop_step *s = &p->step.at[i];
        if (s->kind != STEP_extern || !s->product || s->plain || s->node->op == OP_convolution)
            continue;
        bool over = p->slot.at[s->slot].over, add = s->node->op == OP_addmm;
        const tp_val *arg = s->node->arg;
        gemm_desc d;
        const tp_tensor *row = add && !over ? ir_type(arg[0].node) : NULL;
        if (product_desc(ir_type(s->node), row, ir_type(arg[add].node), ir_type(arg[add + 1].node), over, &d))
            tune_product(g, s->node->name, &d, o);
    }
}

run_program *tune_compile(tune_fn *once, const aot_inner *in, tp_comp *c, const ir_graph *g)
{
    run_options o = options_of(c->opt);
    o.v[OPT_max_autotune] = 0;
    if (!fixed(g) || c->decider.fn) {
        tell(g, "not tuned", "its sizes are symbolic, or it is being bisected", -1);
        return compile(once, in, c, g, &o);
    }
    strbuf key = { 0 }, config = { 0 }, won = { 0 };
    char id[33], why[DISK_WHY];
    ir_graph *w = (ir_graph *)g;
    const char *name = w->name;
    w->name = "forward";
    ir_print(&key, g, IR_PRINT_types | IR_PRINT_head);
    w->name = name;
    snprintf(id, sizeof id, "%016llx%016llx", (unsigned long long)hash_bytes(key.s, key.n, 1),
             (unsigned long long)hash_bytes(key.s, key.n, 2));
    disk_config(&config);
    strbuf_add(&config, "options=");
    options_print(&config, &o);
    strbuf_addc(&config, '\n');
    disk_item it = { "tuning", id, strbuf_str(&config), g->name };
    run_program *best = NULL;
    bool known = o.v[OPT_disk_cache] && disk_get(&it, &won, why);
    for (size_t i = 0; known && !best && i < COUNT(variants); i++)
        if (won.n == strlen(variants[i].name) && !memcmp(won.s, variants[i].name, won.n)) {
            run_options v = with(&o, (int)i);
            tell(g, "remembered from the disk cache", variants[i].name, -1);
            best = compile(once, in, c, g, &v);
        }
    if (best)
        goto done;
    int64_t t0 = clock_ns();
    best = fastest(once, in, c, g, &o, &won);
    ev_metrics_part(EVP_tune, clock_ns() - t0);
    if (best && won.n) {
        strbuf_addc(&won, 0);
        tell(g, "chosen", won.s, -1);
        if (o.v[OPT_disk_cache])
            disk_put(&it, won.s, won.n - 1);
    }
done:
    tune_products(g, best, &o);
    strbuf_free(&key);
    strbuf_free(&config);
    strbuf_free(&won);
    return best;
}
