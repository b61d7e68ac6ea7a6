/* steps.c - see steps.h. A step is a kernel, a product or convolution with the kernel on its rows, or a row that
 * has emitted tiles. Its forms lie along a few axes; they are searched one axis after the other, each form checked against
 * the usual one's result and measured on the buffers of a real run. */
#include "compile/tune/steps.h"
#include "compile/layout.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/json.h"
#include "base/map.h"
#include "base/pool.h"
#include "events/events.h"
#include "ops/conv.h"
#include "ops/random.h"
#include "loop/lower.h"
#include "target/disk.h"
#include "run/kernel_cache.h"
#include "run/program.h"
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

enum { ROUNDS = 4, DUEL = 6, MAX_PIECES = 80, MAX_FORMS = 12, NOISE = 3 /* in a hundred */ };
static const int64_t BATCH_NS = 10000, ENOUGH_NS = 1000000; /* of one sample; of one form in one round */

/* ---- said and remembered ---- */
void tune_say(const tune *t, const char *fmt, ...)
{
    if (!ev_text_on(EV_autotuning))
        return;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ev_text(EV_autotuning, NULL, "%s: %s", t->g->name, text);
}

/* What other programs do to a thread does not count where there is only one. */
static int64_t tune_clock(void)
{
    return pool_threads() == 1 && fault_state <= 0 ? clock_read(CLOCK_THREAD_CPUTIME_ID) : clock_ns();
}

bool tune_over(const tune *t) { return t->until && clock_ns() >= t->until; }

static map memory; /* key -> what won, owned; for the process */
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static void full_key(const tune *t, const strbuf *key, strbuf *out)
{
    disk_config(out);
    target_key(options_target(t->opt, t->c->target->device, NULL), out);
    strbuf_addf(out, "threads=%d\noptions=", pool_threads());
    options_print(out, t->opt);
    strbuf_addc(out, '\n');
    strbuf_addn(out, strbuf_str(key), key->n);
}

static disk_item item_of(const tune *t, const strbuf *key, const char *what, strbuf *config, char id[33])
{
    snprintf(id, 33, "%016llx%016llx", (unsigned long long)hash_bytes(key->s, key->n, 3),
             (unsigned long long)hash_bytes(key->s, key->n, 4));
    full_key(t, &(strbuf){ 0 }, config);
    return (disk_item){ "tuning", id, strbuf_str(config), what };
}

/* Planted faults change what is measured: that is nobody else's concern. */
static bool on_disk(const tune *t) { return t->opt->v[OPT_disk_cache] && fault_state <= 0; }

bool tune_recall(const tune *t, const strbuf *key, const char *what, strbuf *won, bool *from_disk)
{
    strbuf all = { 0 }, config = { 0 };
    char id[33], why[DISK_WHY];
    full_key(t, key, &all);
    pthread_mutex_lock(&memory_lock);
    const char *had = map_getn(&memory, all.s, all.n);
    pthread_mutex_unlock(&memory_lock);
    *from_disk = false;
    if (had)
        strbuf_add(won, had);
    else if (on_disk(t)) {
        disk_item it = item_of(t, key, what, &config, id);
        *from_disk = disk_get(&it, won, why);
    }
    strbuf_free(&all);
    strbuf_free(&config);
    return had || *from_disk;
}

static void keep(const tune *t, const strbuf *key, const char *won)
{
    strbuf all = { 0 };
    full_key(t, key, &all);
    pthread_mutex_lock(&memory_lock);
    if (!map_getn(&memory, all.s, all.n)) /* readers hold what is there */
        map_putn(&memory, all.s, all.n, mem_strdup(won));
    pthread_mutex_unlock(&memory_lock);
    strbuf_free(&all);
}

void tune_remember(const tune *t, const strbuf *key, const char *what, const char *won)
{
    strbuf config = { 0 };
    char id[33];
    keep(t, key, won);
    if (on_disk(t)) {
        disk_item it = item_of(t, key, what, &config, id);
        disk_put(&it, won, strlen(won));
    }
    strbuf_free(&config);
}

/* ---- forms ---- */
/* How the code of a kernel is made. */
static const struct {
    const char *name;
    int unroll;        /* 0: as usual */
    const char *level; /* of the same target, a lower one; NULL: as usual */
    bool c;            /* through the C compiler */
} codes[] = {
    { "usual", 0, NULL, false },           { "unroll 1", 1, NULL, false },
    { "unroll 2", 2, NULL, false },        { "unroll 4", 4, NULL, false },
    { "avx2", 0, "avx2", false },          { "avx2 unroll 1", 1, "avx2", false },
    { "avx2 unroll 4", 4, "avx2", false }, { "c", 0, NULL, true },
};
static const char *const shares[SHARE_COUNT] = { "usual", "finer shares", "coarser shares", "one thread" };
static const char *const parts[] = { "usual", "kernel apart" };
enum { FORM_library = 9, FORM_COUNT };
static const char *const tiles[FORM_COUNT] = {
    "usual",
    "tile of 1 vector",
    "tile of 2 vectors",
    "tile of 3 vectors",
    "tile of 4 vectors",
    "tile of 5 vectors",
    "tile of 6 vectors",
    "tile of 7 vectors",
    "tile of 8 vectors",
    "library",
};
static const char *const windows[] = { "usual", "channels as lanes", "places as lanes" };

/* How loops are written, as changes of the target's caps. None of it changes which steps there are. */
static const struct {
    const char *name;
    bool last_operand;
    int strip;
} loops[LOOPS_COUNT] = { { "usual", false, 0 },
                         { "loops by operands", true, 0 },
                         { "whole rows", false, -1 },
                         { "strips of 16", false, 16 },
                         { "strips of 64", false, 64 } };

typedef enum { AX_apart, AX_form, AX_loops, AX_code, AX_share, AX_COUNT } axis;
static const char *const axes[AX_COUNT] = { "apart", "form", "loops", "code", "share" };

typedef struct site { /* one step that may have several forms */
    tune *t;
    run_program *p;
    loop_plan *plan;
    program_at *at;
    size_t step;
    loop_step *s, *rider, *last; /* the step; the kernel on its rows, the product behind that, or NULL */
    loop_kernel *k;              /* the step's or the rider's, or NULL; with the loops that are set */
    size_t kstep;
    struct { /* by its loops */
        loop_kernel *k;
        const target_code *usual;
        int ways; /* the usual ones */
        bool asked;
    } by[LOOPS_COUNT];
    const target_code *usual;
    int ways;
    int now[AX_COUNT];
    char name[120];
    strbuf *told; /* JSON of what was tried, or NULL */
} site;

static bool is_conv(const site *x) { return x->s->node && lower_row(x->s->node)->planes; }

static const char *form_name(const site *x, axis a, int v)
{
    switch (a) {
    case AX_apart: return parts[v];
    case AX_form: return is_conv(x) && v <= CONV_places ? windows[v] : tiles[v];
    case AX_loops: return loops[v].name;
    case AX_code: return codes[v].name;
    default: return shares[v];
    }
}

static int form_count(axis a)
{
    static const int n[AX_COUNT] = { (int)COUNT(parts), FORM_COUNT, LOOPS_COUNT, (int)COUNT(codes),
                                     SHARE_COUNT };
    return n[a];
}

/* May the step have this form at all? The usual one always. */
static bool is_offered(const site *x, axis a, int v)
{
    const run_options *o = x->t->opt;
    const loop_kernel *k = x->k;
    bool quick = x->usual && x->usual->on->caps.quick;
    if (!v)
        return true;
    switch (a) {
    case AX_apart: return x->rider && !x->last;
    case AX_form:
        if (x->s->kind == STEP_kernel || x->s->attention || x->last)
            return false;
        if (v == FORM_library)
            return true;
        return !x->s->product ? false
               : is_conv(x)   ? v <= CONV_places
                              : v <= x->t->c->target->caps.product_forms;
    case AX_loops: return x->s->kind == STEP_kernel && !k->fault && !k->nint && (k->par > 1 || k->work > 1);
    case AX_code:
        if (!k || k->fault)
            return false;
        if (codes[v].c)
            return o->v[OPT_emitter] == 0 && quick;
        if (codes[v].level)
            return o->v[OPT_isa] == 0 && quick && target_below(x->usual->on, codes[v].level) &&
                   (o->v[OPT_unroll] == 0 || !codes[v].unroll);
        return o->v[OPT_unroll] == 0 && codes[v].unroll != x->ways && quick;
    default:
        /* a kernel on rows runs where its rows are made */
        return x->s->kind == STEP_kernel && k->par > 1 && pool_threads() > 1 &&
               (v != SHARE_coarser || k->par * k->work > 131072) &&
               (v != SHARE_alone || k->par * k->work < 1 << 18);
    }
}

static const target_code *code_of(const site *x, int v, tp_err *err)
{
    vir k = *x->k->k;
    if (!v)
        return x->usual;
    if (codes[v].unroll)
        k.ways = codes[v].unroll;
    const target *on = codes[v].c       ? &target_c
                       : codes[v].level ? target_below(x->usual->on, codes[v].level)
                                        : x->usual->on;
    return kernel_get(on, &k, err);
}

/* The plan with other loops. NULL: there is none, or its steps are not the same after all. */
static loop_plan *alt_plan(const site *x, int v)
{
    tune *t = x->t;
    if (t->asked[v])
        return t->alt[v];
    tp_err err = { 0 };
    tp_comp mine = *t->c;
    mine.err = &err;
    mine.opt = t->opt;
    target_caps caps = options_caps(t->opt, mine.target);
    caps.last_operand = loops[v].last_operand;
    caps.strip = loops[v].strip;
    mine.caps = &caps;
    t->asked[v] = true;
    loop_plan *p = loop_plan_new(&mine, t->g);
    bool same = p && p->step.n == x->plan->step.n && p->slot.n == x->plan->slot.n;
    for (size_t i = 0; same && i < p->step.n; i++)
        same = p->step.at[i].kind == x->plan->step.at[i].kind &&
               p->step.at[i].epilogue == x->plan->step.at[i].epilogue;
    if (!same) {
        loop_plan_free(p);
        p = NULL;
    }
    return t->alt[v] = p;
}

static void vir_text(const loop_kernel *k, strbuf *b)
{
    strbuf_addf(b, "%lld ", (long long)k->par);
    vir_key(k->k, b);
}

/* The kernel with other loops, in the memory of the plan that it joins. */
static bool with_loops(site *x, int v)
{
    const loop_plan *p;
    if (!v || x->by[v].asked)
        return !v || x->by[v].k != NULL;
    x->by[v].asked = true;
    if (!(p = alt_plan(x, v)))
        return false;
    const loop_kernel *from = p->step.at[x->kstep].kernel, *base = x->by[0].k;
    bool fits = from->nbuf == base->nbuf && !from->nint;
    for (int i = 0; fits && i < from->nbuf; i++)
        fits = ir_type_equal(&p->slot.at[from->buf[i]].node->val, &x->plan->slot.at[from->buf[i]].node->val);
    strbuf a = { 0 }, b = { 0 };
    vir_text(from, &a);
    for (int o = 0; fits && o < v; o++) {
        strbuf_clear(&b);
        if (x->by[o].k)
            vir_text(x->by[o].k, &b);
        fits = a.n != b.n || memcmp(a.s, b.s, a.n);
    }
    strbuf_free(&a);
    strbuf_free(&b);
    if (!fits)
        return false;
    tp_err err = { 0 };
    const vir *one = from->k;
    const target_code *r = NULL;
    if (!kernels_get(options_target(x->t->opt, x->t->c->target->device, NULL), NULL, &one, 1, &r, &err))
        return false;
    loop_kernel *k = arena_dup(&x->plan->mem, base, sizeof *base);
    k->k = vir_copy_to(&x->plan->mem, from->k);
    k->k->name = k->name;
    k->buf = arena_dup(&x->plan->mem, from->buf, sizeof *from->buf * (size_t)MAX(from->nbuf, 1));
    k->par = from->par;
    k->work = from->work;
    x->by[v].k = k;
    x->by[v].usual = r;
    x->by[v].ways = k->k->ways;
    return true;
}

/* The step in that form. False: it cannot be had. */
static bool apply(site *x, axis a, int v, tp_err *err)
{
    if (a == AX_apart) {
        if (x->rider)
            x->rider->epilogue = !v;
    } else if (a == AX_form) {
        x->s->plain = v == FORM_library;
        x->s->form = (uint8_t)(v == FORM_library ? 0 : v);
    } else if (a == AX_loops && x->k) {
        if (!with_loops(x, v))
            return err_set(err, ERR_notimpl, "there are no such loops");
        x->k = x->by[v].k;
        x->usual = x->by[v].usual;
        x->ways = x->k->k->ways = x->by[v].ways;
        program_use(x->p, x->kstep, x->k, x->usual);
    } else if (a == AX_code && x->k) {
        const target_code *r = code_of(x, v, err);
        if (!r)
            return false;
        program_use(x->p, x->kstep, x->k, r);
        x->k->k->ways = codes[v].unroll ? codes[v].unroll : x->ways;
    } else if (a == AX_share && x->k)
        x->k->share = (uint8_t)v;
    return true;
}

/* ---- running ---- */
/* The step, and the kernel that usually runs with it where it is apart. */
static bool run_site(site *x, fault_kind f, tp_err *err)
{
    if (TP_UNLIKELY(f != FAULT_none) && !fault_strike(f, x->name, err))
        return false;
    return program_at_run(x->at, x->step, err) &&
           (!x->rider || x->rider->epilogue || program_at_run(x->at, x->step + 1, err));
}

static int64_t sample(site *x, fault_kind f, int64_t reps)
{
    tp_err err = { 0 };
    int64_t t = tune_clock();
    for (int64_t i = 0; i < reps; i++)
        if (!run_site(x, f, &err))
            return -1;
    return (tune_clock() - t) / reps;
}

/* The fastest of some samples. */
static int64_t best_of(site *x, fault_kind f, int64_t first)
{
    int64_t best = -1, sum = 0, reps = MAX(1, BATCH_NS / MAX(first, 1));
    for (int i = 0; i < 200 && (!i || sum < ENOUGH_NS); i++) {
        int64_t t = sample(x, f, reps);
        if (t < 0)
            return -1;
        best = best < 0 || t < best ? t : best;
        sum += t * reps;
    }
    return best;
}

typedef struct copies { /* of what a step writes */
    program_piece piece[MAX_PIECES];
    char *at[MAX_PIECES];
    int n;
} copies;

static bool copy_out(site *x, copies *c)
{
    c->n = program_at_written(x->at, x->step, (size_t)(1 + (x->rider != NULL) + (x->last != NULL)), c->piece,
                              MAX_PIECES);
    for (int i = 0; i < c->n; i++) {
        c->at[i] = malloc((size_t)c->piece[i].bytes);
        if (!c->at[i]) {
            c->n = i;
            return false;
        }
        memcpy(c->at[i], c->piece[i].p, (size_t)c->piece[i].bytes);
    }
    return c->n < MAX_PIECES;
}
static void copy_back(const copies *c)
{
    for (int i = 0; i < c->n; i++)
        memcpy(c->piece[i].p, c->at[i], (size_t)c->piece[i].bytes);
}
static void copies_free(copies *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->at[i]);
}

/* As large as differences by another order of sums get, relative to the largest element. */
static double tolerance(dtype dt)
{
    return dt == DT_f64 ? 1e-9 : dt == DT_f32 ? 1e-4 : dtype_is_float(dt) ? 2e-2 : 0;
}

static bool agrees(const copies *want, const copies *got)
{
    if (want->n != got->n)
        return false;
    for (int i = 0; i < want->n; i++) {
        dtype dt = want->piece[i].dt;
        int64_t es = (int64_t)dtype_size(dt), n = want->piece[i].bytes / es;
        double most = 0, tol = tolerance(dt);
        if (want->piece[i].bytes != got->piece[i].bytes || want->piece[i].dt != got->piece[i].dt)
            return false;
        if (!memcmp(want->at[i], got->at[i], (size_t)want->piece[i].bytes))
            continue;
        if (tol == 0)
            return false;
        for (int64_t e = 0; e < n; e++) {
            double v = fabs(elem_get_f(dt, want->at[i] + e * es));
            most = isfinite(v) && v > most ? v : most;
        }
        for (int64_t e = 0; e < n; e++) {
            double a = elem_get_f(dt, want->at[i] + e * es), b = elem_get_f(dt, got->at[i] + e * es);
            if (a != b && !(fabs(a - b) <= tol * most) && !(isnan(a) && isnan(b)))
                return false;
        }
    }
    return true;
}

/* ---- one axis ---- */
typedef struct entry {
    int v;
    int64_t ns; /* -1: dropped */
    fault_kind fault;
} entry;

static void drop(site *x, axis a, entry *e, const char *why)
{
    e->ns = -1;
    tune_say(x->t, "dropped: %s: %s: %s", x->name, form_name(x, a, e->v), why);
}

/* Once, against what the usual form gives; the first time. */
static void try_form(site *x, axis a, entry *e, const copies *before, const copies *want)
{
    tp_err err = { 0 };
    copies got = { .n = 0 };
    e->fault = fault_at("tune", form_name(x, a, e->v));
    if (e->fault == FAULT_compile_error)
        err_set(&err, ERR_compiler, "planted fault: this form cannot be built");
    if (err_is_set(&err) || !apply(x, a, e->v, &err)) {
        drop(x, a, e, err.msg);
        return;
    }
    copy_back(before);
    int64_t t = tune_clock();
    bool ok = run_site(x, e->fault, &err);
    e->ns = tune_clock() - t;
    if (!ok)
        drop(x, a, e, err.msg);
    else if (!copy_out(x, &got))
        drop(x, a, e, "there is no memory to check it");
    else {
        if (e->fault == FAULT_accuracy && got.n && got.piece[0].bytes >= 4)
            got.at[0][3] ^= 0x40; /* the exponent of a float */
        if (!agrees(want, &got))
            drop(x, a, e, "it gives another result");
    }
    copies_free(&got);
}

static void told(site *x, axis a, const entry *e, int n)
{
    for (int i = 0; i < n; i++) {
        if (e[i].ns <= 0)
            continue;
        tune_say(x->t, "tried %s: %s: %.2f us", x->name, form_name(x, a, e[i].v), (double)e[i].ns * 1e-3);
        if (x->told)
            strbuf_addf(x->told, "%s{\"form\": \"%s\", \"us\": %.3f}", x->told->n ? ", " : "",
                        form_name(x, a, e[i].v), (double)e[i].ns * 1e-3);
    }
}

static bool is_less(int64_t a, int64_t b) { return a < b - b * NOISE / 100; }

/* The fastest form along an axis, if the difference is more than noise; that one is set. */
static void search_axis(site *x, axis a, const copies *before, const copies *want)
{
    entry e[MAX_FORMS] = { 0 };
    tp_err err = { 0 };
    int n = 0, best = 0;
    for (int v = 0; v < form_count(a) && n < MAX_FORMS; v++)
        if (is_offered(x, a, v) && ((x->t->with_c && !x->now[AX_loops]) || a != AX_code || !codes[v].c) &&
            (a != AX_loops || with_loops(x, v)))
            e[n++].v = v;
    if (n < 2)
        return;
    for (int i = 0; i < n && !(i && tune_over(x->t)); i++)
        try_form(x, a, &e[i], before, want);
    if (e[0].ns < 0)
        return;
    for (int r = 0; r < ROUNDS; r++) {
        int64_t least = INT64_MAX;
        for (int i = 0; i < n && !tune_over(x->t); i++) {
            if (e[i].ns <= 0 || !apply(x, a, e[i].v, &err))
                continue;
            int64_t t = best_of(x, e[i].fault, e[i].ns);
            if (t < 0)
                drop(x, a, &e[i], "it fails");
            else
                e[i].ns = r ? MIN(e[i].ns, t) : t;
            least = e[i].ns > 0 ? MIN(least, e[i].ns) : least;
        }
        for (int i = 1; i < n && !r; i++) /* hopeless ones are measured once */
            if (e[i].ns / 2 > least) {    /* least: none yet, where the time is over */
                told(x, a, &e[i], 1);
                e[i].ns = -1;
            }
    }
    for (int i = 1; i < n; i++)
        if (e[i].ns > 0 && e[i].ns < e[best].ns)
            best = i;
    /* the two of them in turns, where all but one must go the same way: a quiet moment decides nothing */
    int wins = 0;
    for (int r = 0; best && r < DUEL && !tune_over(x->t); r++) {
        int64_t t[2];
        for (int i = 0; i < 2; i++) {
            entry *d = &e[i ? best : 0];
            t[i] = apply(x, a, d->v, &err) ? best_of(x, d->fault, d->ns) : -1;
            d->ns = t[i] > 0 && t[i] < d->ns ? t[i] : d->ns;
        }
        wins += t[1] > 0 && is_less(t[1], t[0]);
    }
    if (wins < DUEL - 1 || !is_less(e[best].ns, e[0].ns))
        best = 0;
    x->now[a] = e[best].v;
    apply(x, a, x->now[a], &err);
    told(x, a, e, n);
}

/* ---- one step ---- */
static void key_row(strbuf *b, const ir_node *n)
{
    strbuf_add(b, op_row_of((op_id)n->op)->full);
    for (int i = 0; i < n->narg; i++) {
        const tp_val *v = &n->arg[i];
        strbuf_addf(b, " %d:", v->kind);
        if (v->kind == VAL_node)
            ir_type_print(b, &v->node->val);
        else if (v->kind == VAL_int || v->kind == VAL_bool)
            strbuf_addf(b, "%lld", (long long)(v->kind == VAL_int ? v->i : v->b));
        for (int k = 0; v->kind == VAL_ints && k < v->n; k++)
            strbuf_addf(b, "%lld,", (long long)v->ints[k]);
        for (int k = 0; v->kind == VAL_bools && k < v->n; k++)
            strbuf_addc(b, v->bools[k] ? '1' : '0');
    }
    strbuf_add(b, " -> ");
    ir_type_print(b, &n->val);
}

static void key_of(const site *x, strbuf *b)
{
    strbuf_addf(b, "step %d%d%d over %d ", x->s->kind, x->rider != NULL, x->last != NULL,
                x->s->kind == STEP_extern && x->s->product ? x->plan->slot.at[x->s->slot].reuses != 0 : 0);
    if (x->s->kind == STEP_extern)
        key_row(b, x->s->node);
    if (x->last)
        key_row(b, x->last->node);
    if (x->k) {
        strbuf_addf(b, " kernel %lld %lld ", (long long)x->k->par, (long long)x->k->work);
        vir_key(x->k->k, b);
    }
}

static void print_choice(const site *x, strbuf *b)
{
    for (int a = 0; a < AX_COUNT; a++)
        strbuf_addf(b, "%s%s=%d", a ? " " : "", axes[a], x->now[a]);
}

/* "apart=0 form=3 loops=0 code=1 share=0", from a file that anybody may have written. */
static bool read_choice(site *x, const char *s)
{
    int v[AX_COUNT], end = 0;
    if (sscanf(s, "apart=%d form=%d loops=%d code=%d share=%d%n", &v[0], &v[1], &v[2], &v[3], &v[4], &end) !=
            AX_COUNT ||
        s[end])
        return false;
    for (int a = 0; a < AX_COUNT; a++)
        if (v[a] < 0 || v[a] >= form_count((axis)a) || !is_offered(x, (axis)a, v[a]))
            return false;
    memcpy(x->now, v, sizeof v);
    return true;
}

static void spell_choice(const site *x, strbuf *b)
{
    for (int a = 0; a < AX_COUNT; a++)
        if (x->now[a])
            strbuf_addf(b, "%s%s", b->n ? ", " : "", form_name(x, (axis)a, x->now[a]));
    if (!b->n)
        strbuf_add(b, "usual");
}

static bool find_site(site *x, tune *t, run_program *p, program_at *at, size_t i)
{
    loop_plan *plan = (loop_plan *)(uintptr_t)program_plan(p); /* ours until somebody else runs it */
    loop_step *s = &plan->step.at[i];
    *x = (site){ .t = t, .p = p, .plan = plan, .at = at, .step = i, .s = s };
    if (s->kind == STEP_check || (s->kind == STEP_extern && (s->node->kind != IR_call || s->plain)))
        return false;
    if (s->joins ||
        (i > 0 && plan->step.at[i - 1].joins)) /* two products with one kernel: they have one form */
        return false;
    if (s->kind == STEP_extern && !s->product && !layout_images(s->node))
        return false;
    if (s->kind == STEP_extern && i + 1 < plan->step.n && plan->step.at[i + 1].epilogue) {
        x->rider = &plan->step.at[i + 1];
        if (i + 2 < plan->step.n && plan->step.at[i + 2].attention)
            x->last = &plan->step.at[i + 2];
    }
    x->kstep = s->kind == STEP_kernel ? i : i + 1;
    x->k = s->kind == STEP_kernel ? s->kernel : x->rider ? x->rider->kernel : NULL;
    if (x->k && (!x->k->k || (s->kind == STEP_kernel && s->epilogue)))
        return false;
    if (x->k) {
        x->usual = program_kernel(p, x->kstep);
        x->ways = x->k->k->ways;
        x->by[0].k = x->k;
        x->by[0].usual = x->usual;
        x->by[0].ways = x->ways;
        x->by[0].asked = true;
    }
    snprintf(x->name, sizeof x->name, "%.60s%s%.50s",
             s->kind == STEP_kernel ? s->kernel->name : s->node->name, x->rider ? " and " : "",
             x->rider ? x->rider->kernel->name : "");
    return true;
}

/* All of a remembered or measured choice, where nobody refuses. */
static void use_choice(site *x)
{
    tp_err err = { 0 };
    bool any = false;
    for (int a = 0; a < AX_COUNT; a++)
        any |= x->now[a] != 0;
    if (!any)
        return;
    bool yes = decide_at(x->t->c, DECIDE_tune, x->name);
    for (int a = 0; a < AX_COUNT; a++)
        if (!apply(x, (axis)a, yes ? x->now[a] : 0, &err))
            apply(x, (axis)a, 0, &err);
    x->t->chosen += yes;
}

static void trace_choice(const site *x, const char *won)
{
    if (!x->told)
        return;
    strbuf b = { 0 };
    json_w w = { &b };
    json_obj(&w);
    json_key(&w, "graph");
    json_str(&w, x->t->g->name);
    json_key(&w, "kernel");
    json_str(&w, x->name);
    json_key(&w, "chosen");
    json_str(&w, won);
    json_end(&w);
    b.n--; /* the closing brace */
    strbuf_addf(&b, ", \"tried\": [%s]}", strbuf_str(x->told));
    ev_artifact("autotune_choice", "json", NULL, strbuf_str(&b));
    strbuf_free(&b);
}

static void measure_site(site *x, const strbuf *key)
{
    copies before = { .n = 0 }, want = { .n = 0 };
    strbuf won = { 0 }, spelled = { 0 }, tried = { 0 };
    tp_err err = { 0 };
    x->told = ev_trace_on(EV_artifact) ? &tried : NULL;
    if (!copy_out(x, &before) || !run_site(x, FAULT_none, &err) || !copy_out(x, &want)) {
        tune_say(x->t, "not tuned: %s: %s", x->name,
                 err_is_set(&err) ? err.msg : "there is no memory to check it");
        goto done;
    }
    for (int a = 0; a < AX_COUNT; a++)
        search_axis(x, (axis)a, &before, &want);
    print_choice(x, &won);
    spell_choice(x, &spelled);
    if (tune_over(x->t)) { /* half measured is not worth remembering */
        x->t->left++;
        memset(x->now, 0, sizeof x->now);
        for (int a = 0; a < AX_COUNT; a++)
            apply(x, (axis)a, 0, &err);
    } else {
        x->t->measured++;
        tune_remember(x->t, key, x->name, strbuf_str(&won));
        tune_say(x->t, "chosen: %s: %s", x->name, strbuf_str(&spelled));
        if (codes[x->now[AX_code]].c) { /* on disk by itself, as others will ask for it */
            const vir *k = x->k->k;
            target_code *made;
            target_c.compile(&target_c, &k, 1, &made, &err);
        }
        trace_choice(x, strbuf_str(&spelled));
        use_choice(x);
    }
done:
    copy_back(&before);
    copies_free(&before);
    copies_free(&want);
    strbuf_free(&won);
    strbuf_free(&spelled);
    strbuf_free(&tried);
}

typedef struct looking {
    tune *t;
    run_program *p;
    int64_t *ns; /* by step, of the usual forms */
    int64_t least, most;
    bool weigh;
} looking;

static void weigh(looking *l, site *x)
{
    tp_err err = { 0 };
    copies before = { .n = 0 };
    if (copy_out(x, &before)) {
        run_site(x, FAULT_none, &err); /* warm */
        l->ns[x->step] = sample(x, FAULT_none, 1);
    }
    copy_back(&before);
    copies_free(&before);
}

static void visit(void *data, program_at *at, size_t i)
{
    looking *l = data;
    tune *t = l->t;
    site x;
    strbuf key = { 0 }, won = { 0 }, spelled = { 0 };
    bool from_disk;
    if (!find_site(&x, t, l->p, at, i))
        return;
    if (l->weigh) {
        weigh(l, &x);
        return;
    }
    if (l->ns && (l->ns[i] < l->least || l->ns[i] >= l->most))
        return;
    bool several = false;
    for (int a = 0; a < AX_COUNT; a++)
        for (int v = 1; v < form_count((axis)a); v++)
            several |= is_offered(&x, (axis)a, v);
    if (!several)
        return;
    key_of(&x, &key);
    if (tune_recall(t, &key, x.name, &won, &from_disk) && read_choice(&x, strbuf_str(&won))) {
        spell_choice(&x, &spelled);
        tune_say(t, "remembered%s: %s: %s", from_disk ? " from the disk cache" : "", x.name,
                 strbuf_str(&spelled));
        if (from_disk)
            keep(t, &key, strbuf_str(&won));
        t->remembered++;
        use_choice(&x);
    } else if (t->search && tune_over(t))
        t->left++;
    else if (t->search)
        measure_site(&x, &key);
    strbuf_free(&key);
    strbuf_free(&won);
    strbuf_free(&spelled);
}

static bool build_for(const target *t, const vir *const *k, int n, tp_err *err)
{
    const target_code **made = mem_zalloc(sizeof *made * (size_t)n);
    bool ok = kernels_all(t, k, n, made, err);
    free(made);
    return ok;
}

/* All kernels that will be searched at once: the compiler is started for none of them alone. */
static void build_as_c(tune *t, run_program *p, const int64_t *ns, int64_t least)
{
    const loop_plan *plan = program_plan(p);
    const vir **k = mem_alloc(sizeof *k * MAX(plan->step.n, (size_t)1));
    tp_err err = { 0 };
    int n = 0;
    for (size_t i = 0; i < plan->step.n; i++)
        if (plan->step.at[i].kind == STEP_kernel && plan->step.at[i].kernel->k &&
            ns[i - plan->step.at[i].epilogue] >= least)
            k[n++] = plan->step.at[i].kernel->k;
    bool open = t->opt->v[OPT_emitter] == 0 && t->c->target->caps.quick && !t->no_c;
    if (n && open && t->until && t->until - clock_ns() < 1000000000)
        tune_say(t, "dropped: c: there is no time for a compiler");
    else if (n && open)
        t->with_c = build_for(&target_c, k, n, &err);
    t->no_c = t->no_c || err_is_set(&err);
    if (err_is_set(&err))
        tune_say(t, "dropped: c: %s", err.msg);
    free(k);
}

void tune_steps(tune *t, run_program *p, const tp_val *in, int nin)
{
    const loop_plan *plan = program_plan(p);
    op_ctx cx = *op_ctx_cur();
    cx.grad_mode = false;
    cx.rec = NULL;
    tp_err err = { 0 };
    looking l = { .t = t, .p = p };
    if (!plan)
        return;
    if (!t->search) { /* nothing runs */
        for (size_t i = 0; i < plan->step.n; i++)
            visit(&l, NULL, i);
        goto done;
    }
    l.ns = mem_zalloc(sizeof *l.ns * MAX(plan->step.n, (size_t)1));
    l.weigh = true;
    int64_t sum = 0;
    program_visit v = { visit, &l };
    bool ok = program_look(p, &cx, in, nin, &v, &err);
    for (size_t i = 0; i < plan->step.n; i++)
        sum += l.ns[i];
    l.weigh = false;
    if (ok)
        build_as_c(t, p, l.ns, sum / 500);
    /* what takes most of the time first; what takes almost none of it is not worth a search */
    l.most = INT64_MAX, l.least = sum / 20;
    ok = ok && program_look(p, &cx, in, nin, &v, &err);
    l.most = l.least, l.least = sum / 500;
    ok = ok && program_look(p, &cx, in, nin, &v, &err);
    if (!ok)
        tune_say(t, "not tuned: it fails on made-up inputs: %s", err.msg);
done:
    free(l.ns);
    for (size_t i = 0; i < COUNT(t->alt); i++) {
        loop_plan_free(t->alt[i]);
        t->alt[i] = NULL;
        t->asked[i] = false;
    }
}

int64_t tune_time(run_program *p, const ir_graph *g, const tp_val *in, int64_t enough_ns)
{
    int nout = g->output->narg;
    tp_val *out = mem_zalloc(sizeof *out * (size_t)MAX(nout, 1));
    int64_t best = -1, sum = 0;
    op_ctx cx = *op_ctx_cur();
    cx.grad_mode = false;
    cx.rec = NULL;
    for (int i = 0; i < 100 && (i < 2 || sum < enough_ns); i++) {
        tp_err err = { 0 };
        int64_t t = tune_clock();
        if (!run_program_call(p, &cx, in, (int)g->inputs.n, out, nout, &err)) {
            best = -1;
            break;
        }
        t = tune_clock() - t;
        sum += t;
        best = best < 0 || t < best ? t : best;
        for (int k = 0; k < nout; k++)
            val_clear(&out[k]);
    }
    free(out);
    return best;
}

bool tune_agree(run_program *a, run_program *b, const ir_graph *g, const tp_val *in)
{
    int nout = g->output->narg;
    tp_val *out[2] = { mem_zalloc(sizeof(tp_val) * (size_t)MAX(nout, 1)),
                       mem_zalloc(sizeof(tp_val) * (size_t)MAX(nout, 1)) };
    tp_gen *rng = gen_default();
    gen_state was = rng->s;
    tp_err err = { 0 };
    op_ctx cx = *op_ctx_cur();
    cx.grad_mode = false;
    cx.rec = NULL;
    bool ok = run_program_call(a, &cx, in, (int)g->inputs.n, out[0], nout, &err);
    rng->s = was;
    bool both = ok && run_program_call(b, &cx, in, (int)g->inputs.n, out[1], nout, &err), same = both;
    for (int i = 0; i < nout && same; i++) {
        if (out[0][i].kind != VAL_tensor || out[1][i].kind != VAL_tensor)
            continue;
        const tp_tensor *x = out[0][i].t, *y = out[1][i].t;
        copies one = { .n = 1 }, two = { .n = 1 };
        same = x->numel == y->numel && x->dt == y->dt && x->ndim == y->ndim &&
               !memcmp(x->stride, y->stride, sizeof *x->stride * x->ndim);
        if (!same || !x->numel)
            continue;
        int64_t last = 0;
        for (int d = 0; d < x->ndim; d++)
            last += (x->size[d] - 1) * x->stride[d];
        one.piece[0] = two.piece[0] = (program_piece){ NULL, (last + 1) * (int64_t)dtype_size((dtype)x->dt),
                                                       (dtype)x->dt };
        one.at[0] = tensor_host(x);
        two.at[0] = tensor_host(y);
        same = agrees(&one, &two);
    }
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < nout && (k ? both : ok); i++)
            val_clear(&out[k][i]);
        free(out[k]);
    }
    return same;
}
