/* doctor_graph.c - a graph that fails was saved: the smallest one, the stage and the rewrite, three opinions on its kernels, for which
 * sizes it fails, and what helps. */
#include "cli/doctor.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/quarantine.h"
#include "debug/backends.h"
#include "debug/bisect.h"
#include "debug/bundle.h"
#include "debug/condition.h"
#include "ir/decide.h"
#include "taper.h"
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

/* ---- saved failures ---- */
/* The newest bundle below out, owned, or NULL. */
static char *find_bundle(const char *out)
{
    static const char *const tops[] = { "taper_compile_debug", "torch_compile_debug" };
    char *best = NULL;
    for (size_t i = 0; i < COUNT(tops); i++) {
        char *top = path_join(out, tops[i]);
        DIR *dir = opendir(top);
        for (struct dirent *e; dir && (e = readdir(dir));) {
            if (strncmp(e->d_name, "run_", 4))
                continue;
            char *run = path_join(top, e->d_name), *b = path_join(run, "minifier"),
                 *f = path_join(b, "failure.json");
            if (file_exists(f) && (!best || strcmp(strstr(b, "_compile_debug/run_"),
                                                   strstr(best, "_compile_debug/run_")) > 0)) {
                free(best);
                best = b;
                b = NULL;
            }
            free(run);
            free(b);
            free(f);
        }
        if (dir)
            closedir(dir);
        free(top);
    }
    return best;
}

char *doc_bundle_new(const char *out, const char *before)
{
    char *b = find_bundle(out);
    if (b && before && !strcmp(b, before)) {
        free(b);
        return NULL;
    }
    return b;
}

/* ---- what the smallest graph consists of, and where the user wrote it ---- */
/* first: the node whose value goes wrong, or NULL. */
static void name_operators(doctor *d, const repro *r, const signature *s, const char *first)
{
    int n = 0;
    strbuf_clear(&d->wrong);
    sig_plain(&d->wrong, s);
    IR_EACH (x, r->g) {
        if (x->kind != IR_call && x->kind != IR_opaque)
            continue;
        const char *op = x->kind == IR_call ? op_row_of((op_id)x->op)->name : x->name;
        bool blamed = first && !strcmp(x->name, first);
        if (n++ < 4)
            strbuf_adds(&d->operators, d->operators.n ? ", " : "", op, NULL);
        else if (n == 5)
            strbuf_add(&d->operators, ", ...");
        const ir_loc *l = ir_place(x);
        const char *code = l ? ir_loc_code(l) : NULL;
        if (l && l->file && (!d->place.n || blamed || (!first && n > 1)))
            doc_set(&d->place, "%s:%d%s%s", l->file, l->line, code ? ": " : "", code ? code : "");
    }
}

/* The answer of a tool: what follows prefix on its line, into b. */
static bool answer(const strbuf *text, const char *prefix, strbuf *b)
{
    const char *s = strstr(strbuf_str(text), prefix);
    if (!s)
        return false;
    s += strlen(prefix);
    strbuf_clear(b);
    strbuf_addn(b, s, strcspn(s, "\n"));
    return true;
}

/* ---- three opinions, and the other axes ---- */
typedef struct axis {
    const char *var, *what;
} axis;
enum { AX_one_thread, AX_no_disk, AX_own_kernels, AX_blas, AX_interpreter, AX_c, AX_COUNT };
static const axis axes[AX_COUNT] = {
    { "TAPER_NUM_THREADS=1", "one thread" },
    { "TAPER_CACHE=0", "without the cache on disk" },
    { "TAPER_KERNEL_CACHE=0", "no kernel is used twice" },
    { "TAPER_PRODUCTS=blas", "products by BLAS" },
    { "TAPER_EMITTER=interpreter", "kernels interpreted" },
    { "TAPER_EMITTER=c", "kernels as C" },
};

static bool named(const doctor *d, const char *kind)
{
    return strstr(strbuf_str(&d->rewrites), kind) != NULL;
}

/* one: the smallest graph is a single operator, which nothing can be fused with. */
static void refine_stage(doctor *d, const bool *passes, bool one)
{
    if (passes[AX_no_disk])
        doc_set(&d->stage, "the cache on disk: code of another graph was taken");
    else if (passes[AX_own_kernels])
        doc_set(&d->stage, "the cache of kernels: code of another kernel was taken");
    else if (passes[AX_one_thread] || named(d, "thread:"))
        doc_set(&d->stage, "threads: one thread gives the right result");
    else if (passes[AX_blas] || named(d, "tile:"))
        doc_set(&d->stage, "products: emitted tiles; BLAS gives the right result");
    else if (named(d, "inplace:"))
        doc_set(&d->stage, "the memory plan: a value lies where another is still needed");
    else if (named(d, "fuse:") && !(one && named(d, "lower:")) && !(passes[AX_interpreter] && passes[AX_c]))
        doc_set(&d->stage, "fusion: the values are right in kernels of their own");
    else if (passes[AX_interpreter] && passes[AX_c])
        doc_set(&d->stage, "machine code: interpreted, and as C, the same kernels are right");
    else if (passes[AX_interpreter])
        doc_set(&d->stage, "generated code: interpreted, the same kernels are right, as C they are not");
    else if (named(d, "lower:"))
        doc_set(&d->stage, "lowering to loops: interpreted, as C and as machine code the kernels give the "
                           "same wrong values");
    else if (passes[AX_c] && !passes[AX_interpreter])
        doc_set(&d->stage, "the interpreter of kernels: as C the same kernels are right");
    else if (d->alone)
        doc_set(&d->stage,
                "something that earlier graphs of the process left behind: alone, the graph is right");
    else if (!passes[AX_c])
        doc_set(&d->stage, "lowering (loops and indices): interpreted, as C and as machine code the kernels "
                           "give the same wrong values");
}

/* Stages before loops: the kind of the rewrite says which part. False: it does not. */
static bool refine_by_rewrite(doctor *d)
{
    static const struct {
        const char *kind, *stage;
    } rows[] = { { "decomp:", "decompositions" },
                 { "recompute:",
                   "the cut between forward and backward (partition): what backward computes again" },
                 { "cse:", "graph passes: 'cse', which uses one node for two" },
                 { "fold:", "graph passes: 'fold', which computes constants" },
                 { "noop:", "graph passes: 'noop', which drops nodes that change nothing" },
                 { "dce:", "graph passes: 'dce', which drops unused nodes" } };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (named(d, rows[i].kind)) {
            doc_set(&d->stage, "%s", rows[i].stage);
            return true;
        }
    return false;
}

static void ask_axes(doctor *d, const char *best, bool *passes)
{
    strbuf said = { 0 };
    const char *vars[AX_COUNT];
    int rcs[AX_COUNT];
    for (int i = 0; i < AX_COUNT; i++)
        vars[i] = i == AX_own_kernels ? NULL : axes[i].var; /* there is one graph */
    doc_repros(d, best, vars, AX_COUNT, rcs);
    for (int i = 0; i < AX_COUNT; i++) {
        int rc = rcs[i];
        if (!vars[i])
            continue;
        passes[i] = rc == 0;
        strbuf_addf(&said, "%s%s %s", i ? ", " : "", axes[i].what,
                    rc == 0   ? "passes"
                    : rc == 1 ? "fails"
                              : "could not be run");
    }
    doc_note(d, "\nThe smallest graph in other ways: %s.", strbuf_str(&said));
    strbuf_free(&said);
}

/* One thread gives the right result: with how many is it wrong? */
static void ask_threads(doctor *d, const char *best)
{
    static const int counts[] = { 2, 3, 4, 8 };
    static const char *const vars[] = { "TAPER_NUM_THREADS=2", "TAPER_NUM_THREADS=3", "TAPER_NUM_THREADS=4",
                                        "TAPER_NUM_THREADS=8" };
    strbuf fails = { 0 };
    int n = 0, rcs[COUNT(counts)];
    doc_repros(d, best, vars, (int)COUNT(counts), rcs);
    for (size_t i = 0; i < COUNT(counts); i++)
        if (rcs[i] == 1)
            strbuf_addf(&fails, "%s%d", n++ ? ", " : "", counts[i]);
    if (n == (int)COUNT(counts))
        strbuf_adds(&d->takes, d->takes.n ? ", " : "", "at least 2 threads", NULL);
    else if (n)
        strbuf_addf(&d->takes, "%s%s threads (of 2, 3, 4 and 8)", d->takes.n ? ", " : "", strbuf_str(&fails));
    strbuf_free(&fails);
}

/* ---- the examination ---- */
static bool is_late(void *until) { return clock_ns() > *(const int64_t *)until; }

static void find_condition(doctor *d, const repro *r)
{
    const repro *one = r;
    int64_t until = clock_ns() + 6000000000;
    trial_limits l = { .timeout_ms = 5000, .interrupted = is_late, .data = &until };
    signature now;
    tp_err err = { 0 };
    if (!d->died && trial_run(&one, 1, &l, &now, &err) && now.kind != SIG_passes) {
        condition_find(r, &now, &l, &d->condition, &err);
        until = clock_ns() + 6000000000;
        condition_needs(r, &now, &l, &d->takes, &err);
    }
}

void doc_died_where(doctor *d)
{
    const crumb *c = &d->last;
    strbuf at = { 0 };
    crumb_describe(c, &at);
    bool capture = !strcmp(c->stage, "capture") || !strcmp(c->stage, "guards");
    doc_set(&d->stage, capture ? "%s of `%s`" : "%s '%s'", c->stage, c->what);
    if (!strcmp(c->stage, "kernel"))
        strbuf_add(&d->stage, " (generated code)");
    if (c->node[0])
        strbuf_addf(&d->stage, capture ? " (%s)" : ", at node '%s'", c->node);
    if (at.n)
        strbuf_addf(&d->stage, "; %s", strbuf_str(&at));
    if (c->node[0] && c->file[0] && c->line > 0 && !d->place.n)
        doc_set(&d->place, "%s:%d", c->file, c->line);
    strbuf_free(&at);
}

void doc_examine_bundle(doctor *d)
{
    strbuf min = { 0 }, bis = { 0 }, first = { 0 };
    char *minimal = path_join(d->bundle, "minimal"), *f = path_join(minimal, "failure.json");
    doc_note(d, "\nThe failure is saved in %s.", d->bundle);
    int rc = doc_tool(d, "minify", d->bundle, NULL, &min);
    bool small = rc == 0 && file_exists(f), passes[AX_COUNT] = { 0 };
    d->alone = !small && !d->died && doc_tool(d, "repro", d->bundle, NULL, NULL) == 0;
    /* The rewrites of the smallest graph are the ones that matter; a larger one has innocents. */
    const char *best = small ? minimal : d->bundle;
    if (!d->alone)
        doc_tool(d, "bisect", best, NULL, &bis);
    if (small) { /* one repro.py: the smallest, beside the report */
        static const char *const twice[] = { "repro.py", "repro.c" };
        for (size_t i = 0; i < COUNT(twice); i++) {
            char *here = path_join(d->out, twice[i]), *there = path_join(minimal, twice[i]);
            if (file_exists(here))
                unlink(there);
            free(here);
            free(there);
        }
    }
    if (answer(&min, "first diverging node: '", &first))
        first.s[strcspn(first.s, "'")] = 0;
    answer(&bis, "the fault is in ", &d->stage);
    const char *c = strstr(strbuf_str(&bis), "culprit");
    for (c = c ? strchr(c, '\n') : NULL; c && !strncmp(c, "\n  ", 3); c = strchr(c + 1, '\n')) {
        size_t n = strcspn(c + 3, " \n");
        strbuf_addf(&d->rewrites, "%s%.*s", d->rewrites.n ? ", " : "", (int)n, c + 3);
    }
    signature s;
    debug_backends_register();
    repro *r = bundle_read(best, &s, true, &(tp_err){ 0 });
    bool loops = strstr(strbuf_str(&bis), bisect_stage(3)) != NULL;
    if (r)
        name_operators(d, r, &s, first.n ? first.s : NULL);
    bool known = false, one = r && repro_ops(r) == 1,
         shows = loops && !d->died && doc_tool(d, "repro", best, NULL, NULL) == 1;
    if (shows) {
        ask_axes(d, best, passes);
        refine_stage(d, passes, one);
    } else if (!loops && !d->alone)
        known = refine_by_rewrite(d);
    if (r && small)
        find_condition(d, r);
    if (passes[AX_one_thread])
        ask_threads(d, best);
    if (r && s.kind == SIG_accuracy && !d->alone) {
        strbuf table = { 0 };
        doc_tool(d, "ledger", d->bundle, NULL, &table); /* all of it: where the error begins */
        answer(&table, "wrong elements: ", &d->elements);
        strbuf_free(&table);
    }
    if (r && s.kind == SIG_compile_error && !d->died && d->rewrites.n && loops)
        refine_stage(d, passes, one); /* the rewrite that makes what a later step refuses */
    else if (d->died || (r && s.kind == SIG_compile_error && !known)) {
        crumb again; /* of the smallest graph, where that fails alone */
        if (doc_tool(d, "repro", best, NULL, NULL) && crumb_read(d->crumbs, &again) &&
            strcmp(again.stage, CRUMB_PROGRAM))
            d->last = again;
        if (d->last.stage[0])
            doc_died_where(d);
    }
    doc_note(d, "\nAttach to a report: this file, and repro.py, repro.c and %s.", best);
    repro_free(r);
    strbuf_free(&min);
    strbuf_free(&bis);
    strbuf_free(&first);
    free(minimal);
    free(f);
}

/* ---- what helps ---- */
/* What might help: rewrites that are refused, a setting, or a function that runs as it is written. */
typedef struct remedy {
    const char *rewrites, *var, *function;
} remedy;

static bool write_quarantine(const char *path, const remedy *r)
{
    strbuf b = { 0 };
    strbuf_addf(&b, "taper %s\n", TP_VERSION);
    for (const char *s = r->rewrites; s && *s;) {
        size_t n = strcspn(s, ",");
        strbuf_addf(&b, "refuse %.*s\n", (int)n, s);
        s += n;
        s += strspn(s, ", ");
    }
    if (r->var)
        strbuf_addf(&b, "set %s\n", r->var);
    if (r->function)
        strbuf_addf(&b, "skip %s\n", r->function);
    bool ok = file_write(path, b.s, b.n, NULL);
    strbuf_free(&b);
    return ok;
}

/* No saved graph says which part of the last stage it is: the program is run in other ways, twice each. Where only the comparison of
 * every result shows the fault, that is made. */
static bool ask_program(doctor *d, tp_err *err)
{
    bool passes[AX_COUNT] = { 0 }, quiet = !d->prints.n && !d->died;
    strbuf dir = { 0 }, audit = { 0 };
    strbuf_addf(&dir, "TAPER_COMPILE_DEBUG_DIR=%s", d->out);
    strbuf_addf(&audit, "TAPER_AUDIT=%s", d->audit);
    const char *vars[] = {
        NULL, "TAPER_REPRO_AFTER=dynamo", "TAPER_REPRO_LEVEL=4", strbuf_str(&dir), strbuf_str(&audit), NULL
    };
    bool ok = true;
    if (!quiet)
        vars[1] = NULL;
    for (int i = 0; i < AX_COUNT && ok; i++) {
        int bad = 0;
        vars[0] = axes[i].var;
        for (int k = 0; k < 2 && !bad; k++)
            bad = doc_try(d, axes[i].what, vars, err);
        ok = bad >= 0;
        passes[i] = !bad;
        if (!bad && i <= AX_blas)
            break; /* the first that helps says it */
    }
    if (ok)
        refine_stage(d, passes, false);
    strbuf_free(&dir);
    strbuf_free(&audit);
    return ok;
}

/* The setting that the stage at fault suggests, or NULL. */
static const char *setting_for(const char *stage)
{
    static const struct {
        const char *word;
        int axis;
    } rows[] = { { "cache on disk", AX_no_disk },
                 { "cache of kernels", AX_own_kernels },
                 { "threads:", AX_one_thread },
                 { "products:", AX_blas },
                 { "machine code:", AX_c },
                 { "generated code:", AX_interpreter },
                 { "kernel '", AX_c } };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (strstr(stage, rows[i].word))
            return axes[rows[i].axis].var;
    return strstr(stage, "the memory of results") ? DOC_OWN_RESULTS
           : strstr(stage, "symbolic sizes:")     ? DOC_STATIC_SIZES
                                                  : NULL;
}

bool doc_work_around(doctor *d, int stage, tp_err *err)
{
    char *path = path_join(d->out, QUARANTINE_FILE), var[80] = "";
    strbuf use = { 0 }, what = { 0 };
    remedy tries[4] = { 0 };
    int n = 0;
    if ((!d->stage.n || !strcmp(d->stage.s, bisect_stage(3))) && !ask_program(d, err)) {
        free(path);
        return false;
    }
    strbuf_addf(&use, "TAPER_QUARANTINE=%s", path);
    if (d->rewrites.n)
        tries[n++].rewrites = strbuf_str(&d->rewrites);
    if (setting_for(strbuf_str(&d->stage)))
        tries[n++].var = setting_for(strbuf_str(&d->stage));
    if (d->function.n)
        tries[n++].function = strbuf_str(&d->function);
    if (stage > 0) {
        snprintf(var, sizeof var, "TAPER_COMPILE_BACKEND=%s", bisect_ladder[stage - 1]);
        tries[n++].var = var;
    }
    bool ok = true;
    for (int i = 0; i < n && ok && !d->around.n; i++) {
        const remedy *r = &tries[i];
        write_quarantine(path, r);
        if (r->function)
            doc_set(&what, "`%s` as it is written", r->function);
        else
            doc_set(&what, "%s", r->rewrites ? "with that rewrite refused" : r->var);
        int bad = doc_try(d, strbuf_str(&what), (const char *[]){ strbuf_str(&use), NULL }, err);
        ok = bad >= 0;
        if (bad == 0)
            doc_set(&d->around, "%s", r->var ? r->var : strbuf_str(&use));
        if (bad == 0 && r->function)
            strbuf_addf(&d->around, " (`%s` runs as it is written)", r->function);
    }
    if (!d->around.n)
        unlink(path);
    else if (d->quarantine && !rename(path, QUARANTINE_FILE))
        doc_set(&d->around, "%s in this directory, which runs from here obey from now on", QUARANTINE_FILE);
    else
        doc_note(d,
                 "\nTried: with %s the program is right. `taper doctor --quarantine` writes that where runs "
                 "from this directory obey it.",
                 strbuf_str(&d->around));
    strbuf_free(&use);
    strbuf_free(&what);
    free(path);
    return ok;
}
