/* cmd_doctor.c - taper doctor SCRIPT: the troubleshooting guide, carried out. Runs the script without the compiler, with it,
 * one stage at a time, and with every result compared; what it prints and how it ends is compared, too. What fails is saved,
 * minified and bisected. One sentence says what is wrong, the evidence follows. */
#define _GNU_SOURCE /* memmem */
#include "cli/doctor.h"
#include "base/file.h"
#include "debug/bisect.h"
#include "debug/bundle.h"
#include "debug/guarded.h"
#include "debug/prints.h"
#include "ops/op.h"
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static bool eager_wrong(doctor *d, tp_err *err);

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *s = strstr(text, what); s; s = strstr(s + 1, what))
        n++;
    return n;
}

/* ---- the examination ---- */
/* The rung of the ladder that a process which crashed or hung was at. */
static int stage_of(const crumb *c)
{
    if (!strcmp(c->stage, "capture") || !strcmp(c->stage, "guards"))
        return 0;
    if (!strcmp(c->stage, "graph pass") || !strcmp(c->stage, "autograd stage") ||
        !strcmp(c->stage, "backward") || !strcmp(c->stage, "results"))
        return strstr(c->what, "decomp") ? 2 : 1;
    return 3;
}

static void count_breaks(doctor *d, const proc_result *logged)
{
    int breaks = count(strbuf_str(&logged->err), "] Reason: ") +
                 count(strbuf_str(&logged->err), "] Graph break from"),
        again = count(strbuf_str(&logged->err), "] Recompiling function");
    d->breaks = breaks;
    doc_note(d,
             "\n%d graph break%s, %d recompile%s (`TAPER_LOGS=graph_breaks,recompiles` shows where and why).",
             breaks, plural(breaks), again, plural(again));
}

/* Every graph compared (or saved before it runs) after a stage; true when it could be run. */
static bool check_after(doctor *d, const char *after, bool *found, tp_err *err)
{
    proc_result r = { 0 };
    char var[64], what[96];
    strbuf dir = { 0 }, audit = { 0 };
    char *before = doc_bundle_new(d->out, NULL);
    strbuf_addf(&dir, "TAPER_COMPILE_DEBUG_DIR=%s", d->out);
    strbuf_addf(&audit, "TAPER_AUDIT=%s", d->audit);
    snprintf(var, sizeof var, "TAPER_REPRO_AFTER=%s", after);
    snprintf(what, sizeof what, "%s%s",
             d->died ? "saved before every call (level 3)" : "every result compared with eager (level 4)",
             strcmp(after, "aot") ? "" : ", behind the autograd stage");
    bool ok = doc_step(d, what,
                       (const char *[]){ var, d->died ? "TAPER_REPRO_LEVEL=3" : "TAPER_REPRO_LEVEL=4",
                                         strbuf_str(&dir), "TAPER_LOGS=graph_breaks,recompiles",
                                         d->died ? NULL : strbuf_str(&audit), NULL },
                       &r, err);
    if (ok) {
        if (!strcmp(after, "dynamo"))
            count_breaks(d, &r);
        *found = doc_failed(d, &r);
        crumb at;
        if (*found && !d->function.n && crumb_read(d->crumbs, &at))
            doc_set(&d->function, "%s", at.function);
        const char *pass = strstr(strbuf_str(&r.err), GUARDED_TEXT ": ");
        if (pass && !d->unguarded.n) {
            strbuf_addn(&d->unguarded, pass, strcspn(pass, "\n"));
            d->inner = !strcmp(after, "aot");
        }
        free(d->bundle);
        d->bundle = doc_bundle_new(d->out, before);
        signature s = { 0 };
        repro *saved = d->bundle && !d->died ? bundle_read(d->bundle, &s, false, &(tp_err){ 0 }) : NULL;
        *found |= saved && s.kind != SIG_passes; /* the program caught the error */
        d->broken = saved && s.kind == SIG_compile_error;
        repro_free(saved);
    }
    proc_result_free(&r);
    strbuf_free(&dir);
    strbuf_free(&audit);
    free(before);
    return ok;
}

/* Is eager right with that setting? */
static bool audit_passes(doctor *d, const char *name, const char *value, tp_err *err)
{
    const char *now = getenv(name);
    char *was = now ? mem_strdup(now) : NULL;
    bool found;
    unlink(d->audit);
    setenv(name, value, 1);
    bool ok = check_after(d, "dynamo", &found, err) && !file_exists(d->audit);
    if (was)
        setenv(name, was, 1);
    else
        unsetenv(name);
    free(was);
    return ok;
}

/* Operators at which graphs break are in none: those whose sizes or numbers depend on the data can be captured. Is one wrong? */
static bool breaks_wrong(doctor *d, tp_err *err)
{
    static const char *const more[] = { "TAPER_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS",
                                        "TAPER_CAPTURE_SCALAR_OUTPUTS" };
    bool set[COUNT(more)], found;
    for (size_t i = 0; i < COUNT(more); i++)
        if (!(set[i] = getenv(more[i]) != NULL))
            setenv(more[i], "1", 1);
    unlink(d->audit);
    bool ran = check_after(d, "dynamo", &found, err);
    for (size_t i = 0; i < COUNT(more); i++)
        if (!set[i])
            unsetenv(more[i]);
    free(d->bundle); /* nothing but the audit counts: the program does not run so */
    d->bundle = NULL;
    strbuf_clear(&d->unguarded);
    return ran && file_exists(d->audit) && eager_wrong(d, err);
}

/* Has it a decomposition beside its kernel? */
static bool decomposes(const char *op)
{
    for (int i = 0; i < OP_COUNT; i++) {
        const op_row *row = op_row_of((op_id)i);
        if (!strcmp(row->name, op) && strcmp(row->decomp_name, "none") && strcmp(row->eager_name, "none"))
            return true;
    }
    return false;
}

/* Is eager right when products go the other way: by BLAS instead of emitted tiles, or by tiles instead of BLAS? */
static bool other_products(doctor *d, const char **var, tp_err *err)
{
    const char *now = getenv("TAPER_PRODUCTS");
    bool blas = now && !strcmp(now, "blas");
    *var = blas ? "TAPER_PRODUCTS=tiles" : "TAPER_PRODUCTS=blas";
    return audit_passes(d, "TAPER_PRODUCTS", blas ? "tiles" : "blas", err);
}

/* Is eager right by another formula, or with the plainest instructions? Then that is the way round it. */
static void other_ways(doctor *d, const char *what, const char *op, tp_err *err)
{
    bool slope = strstr(what, "derivative") != NULL;
    if (strcmp(what, "value") && strcmp(what, "product") && !slope)
        return;
    if (!slope && audit_passes(d, "TAPER_NUM_THREADS", "1", err)) {
        doc_set(&d->stage, "threads: on one thread '%s' is right, without the compiler as well", op);
        doc_set(&d->around, "TAPER_NUM_THREADS=1");
    } else if (slope && audit_passes(d, "TAPER_PLAIN_DERIVATIVES", "1", err))
        doc_set(&d->around, "TAPER_PLAIN_DERIVATIVES=1");
    else if (!slope && decomposes(op) && audit_passes(d, "TAPER_DECOMPOSE", op, err))
        doc_set(&d->around, "TAPER_DECOMPOSE=%s", op);
    else if (audit_passes(d, "TAPER_ISA", "base", err))
        doc_set(&d->around, "TAPER_ISA=base");
}

/* The audit's first finding, when eager execution itself is wrong. */
static bool eager_wrong(doctor *d, tp_err *err)
{
    size_t n;
    char *text = file_read(d->audit, 1 << 20, &n, NULL), *p[4];
    const char *var;
    if (!text || !n) {
        free(text);
        return false;
    }
    doc_note(d, "\nEager execution against float64 and finite differences:\n\n```\n%s```", text);
    char *at = text;
    for (int i = 0; i < 4; i++) {
        p[i] = at;
        at += strcspn(at, i < 3 ? "|\n" : "\n");
        if (*at)
            *at++ = 0;
    }
    bool slope = strstr(p[0], "derivative") != NULL, shared = !strcmp(p[0], "lowered"),
         product = !strncmp(p[0], "product", 7);
    doc_set(&d->wrong, "eager execution is wrong, with and without the compiler: %s", p[3]);
    doc_set(&d->stage, slope ? "the derivative rule of '%s'" : "the eager kernel of '%s'", p[1]);
    strbuf_clear(&d->around);
    if (!strcmp(p[0], "tape"))
        doc_set(&d->stage,
                "the tape: each operator's derivative rule is right, and the gradients that it sums are not");
    else if (!strcmp(p[0], "indexing"))
        doc_set(&d->stage, "how the eager binding takes a Python index apart");
    else if (!strcmp(p[0], "autocast"))
        doc_set(&d->stage, "autocast: the type that eager runs '%s' in", p[1]);
    else if (!strcmp(p[0], "decomposed"))
        doc_set(&d->stage, "decompositions: that of '%s', by which eager runs, too", p[1]);
    else if (shared && audit_passes(d, "TAPER_EMITTER", "interpreter", err)) {
        doc_set(&d->stage,
                "machine code: interpreted, the kernel of '%s' that eager and compiled code share is right",
                p[1]);
        doc_set(&d->around, "TAPER_EMITTER=interpreter");
    } else if (shared)
        doc_set(&d->stage, "lowering to loops of '%s', which its eager kernel shares", p[1]);
    else if (product && other_products(d, &var, err)) {
        doc_set(&d->stage, "products: %s of '%s'",
                strstr(var, "tiles") ? "the call of BLAS" : "the emitted tiles", p[1]);
        doc_set(&d->around, "%s", var);
    }
    if (!d->around.n)
        other_ways(d, p[0], p[1], err);
    doc_set(&d->operators, "%s", p[1]);
    doc_set(&d->place, "%s", p[2]);
    strbuf_clear(&d->rewrites);
    strbuf_clear(&d->condition);
    strbuf_clear(&d->takes);
    strbuf_clear(&d->elements);
    free(text);
    return true;
}

/* A program that names a backend of its own, which alone fails. */
static void blame_own_backend(doctor *d, const proc_result *with)
{
    bool fails = doc_failed(d, with);
    d->status = DOC_fault;
    doc_set(&d->wrong, "the program %s with the backend that it names itself, and with none of Taper's",
            fails ? "fails" : "prints something else");
    doc_set(&d->stage, "that backend, not the compiler");
    doc_note(d,
             "\nThe program fails with the backend that it names itself, and with none of those above: that "
             "backend is at fault, not the compiler. %s",
             !fails ? "It gives other results."
             : with->timed_out
                 ? "It does not return: `py-spy dump` or `faulthandler.dump_traceback_later()` shows "
                   "where it is."
             : with->status < 0 ? "`python3 -X faulthandler` shows the line that kills the process."
                                : "It ends the process, as `sys.exit()` does.");
}

/* The user's line in a traceback of Python's fault handler, into b. */
static void line_of_crash(const char *text, strbuf *b)
{
    static const char mark[] = "  File \"";
    for (const char *s = strstr(text, mark); s; s = strstr(s + 1, mark)) {
        const char *file = s + strlen(mark), *end = strchr(file, '"'),
                   *line = end ? strstr(end, ", line ") : NULL;
        if (!line || line != end + 1 || memmem(file, (size_t)(end - file), "/taper/", 7))
            continue;
        char *path = mem_strndup(file, (size_t)(end - file));
        doc_source_line(path, atoi(line + 7), b);
        free(path);
        return;
    }
}

/* Without the compiler; Python says where it was when it is ended. */
static const char *const plain_vars[] = { "TAPER_COMPILE_DISABLE=1", "PYTHONFAULTHANDLER=1", NULL };

/* The program crashes or hangs in an operator of ours, without the compiler: which, on which line, and what helps. False with err. */
static bool eager_crash(doctor *d, bool *found, tp_err *err)
{
    static const struct {
        const char *var, *stage;
    } ways[] = {
        { "TAPER_EMITTER=interpreter",
          "machine code: interpreted, the kernel of '%s' that eager and compiled code share does not %s" },
        { "TAPER_PRODUCTS=blas", "products: the emitted tiles of '%s'; with BLAS it does not %s" },
        { "TAPER_NUM_THREADS=1", "threads: on one thread '%s' does not %s" }
    };
    proc_result again = { 0 }, *r = &d->plain;
    crumb at = { 0 };
    const char *fails = d->plain.timed_out ? "hang" : "crash";
    *found = false;
    if (!d->plain.timed_out) { /* what hangs was the last run, and its crumbs are there */
        r = &again;
        if (!doc_run(d, "without the compiler, to see where it ends", plain_vars, r, err))
            return false;
    }
    bool same = r->status == d->plain.status;
    *found = same && crumb_read(d->crumbs, &at) && at.eager[0];
    d->stuck = *found && d->plain.timed_out;
    if (*found) {
        strbuf how = { 0 };
        proc_describe(&how, r);
        doc_set(&d->wrong, "eager execution fails, with and without the compiler: '%s' ends the process: %s",
                at.eager, strbuf_str(&how));
        if (!strcmp(at.eager, CRUMB_TAPE))
            doc_set(&d->stage, "the tape: how gradients go from step to step in backward");
        else {
            doc_set(&d->stage, "the eager kernel of '%s'", at.eager);
            doc_set(&d->operators, "%s", at.eager);
        }
        line_of_crash(strbuf_str(&r->err), &d->place);
        strbuf_free(&how);
    }
    proc_result_free(&again);
    for (size_t i = 0; *found && d->operators.n && i < COUNT(ways) && !d->around.n; i++) {
        if (!doc_step(d, ways[i].var, (const char *[]){ ways[i].var, "TAPER_COMPILE_DISABLE=1", NULL },
                      &again, err))
            return false;
        if (again.status >= 0 && !again.timed_out) {
            doc_set(&d->stage, ways[i].stage, at.eager, fails);
            doc_set(&d->around, "%s", ways[i].var);
        }
        proc_result_free(&again);
    }
    return true;
}

/* Two runs without the compiler. False with err; *decided: they already say all. */
static bool run_plain(doctor *d, strbuf *how, bool *decided, tp_err *err)
{
    bool ours = false;
    if (!doc_run(d, "without the compiler", plain_vars, &d->plain, err))
        return false;
    bool hangs = d->plain.timed_out && d->plain.wall_ns < d->timeout * 1000000;
    if ((hangs && !eager_crash(d, &ours, err)) ||
        (!ours && !doc_run(d, "without the compiler, again", plain_vars, &d->also, err)))
        return false;
    d->passing_ns = MAX(d->plain.wall_ns, d->also.wall_ns);
    if (d->plain.status || d->plain.timed_out) {
        strbuf said = { 0 };
        proc_describe(how, &d->plain);
        cli_error_line(&said, strbuf_str(&d->plain.err));
        strbuf_addf(how, ": `%s`", strbuf_str(&said));
        strbuf_free(&said);
    } else
        strbuf_add(how, "runs");
    doc_record(d, "without the compiler", strbuf_str(how), &d->plain);
    *decided = d->plain.timed_out || d->plain.status != d->also.status;
    if (ours)
        d->status = DOC_fault;
    else if (*decided) {
        d->status = DOC_undecided;
        doc_set(&d->wrong, "%s",
                d->plain.timed_out
                    ? "the program does not end in time without the compiler either (--timeout)"
                    : "two runs without the compiler end differently");
    }
    return true;
}

/* A third run without the compiler: where it differs from the others, nothing is compared any more. False with err. */
static bool control(doctor *d, tp_err *err)
{
    proc_result r = { 0 };
    bool ok = doc_run(d, "without the compiler, once more",
                      (const char *[]){ "TAPER_COMPILE_DISABLE=1", NULL }, &r, err);
    if (ok && !doc_failed(d, &r) && prints_compare(&d->plain.out, &d->also.out, &r.out, NULL)) {
        proc_result_free(&d->also);
        d->also = r;
        r = (proc_result){ 0 };
    }
    proc_result_free(&r);
    return ok;
}

/* Other random numbers for the same seed are no fault. 1: that is all, 0: no, -1 with err. */
static int only_draws(doctor *d, tp_err *err)
{
    int bad = doc_try(d, "as it is, with the random numbers of eager execution",
                      (const char *[]){ "TAPER_FALLBACK_RANDOM=1", NULL }, err);
    return bad < 0 ? -1 : !bad;
}

/* A guard that does not hold for the very call that it was made in. */
static void blame_guard(doctor *d, const char *how)
{
    static const char mark[] = "Guard failed on the same frame it was created. This is a bug: ";
    const char *s = strstr(how, mark);
    if (s)
        doc_set(&d->stage, "guards: one does not hold for the very call that it was made in: %.*s",
                (int)strcspn(s + strlen(mark), "`"), s + strlen(mark));
}

static void say_wrong(doctor *d, const proc_result *with, prints_kind other)
{
    strbuf how = { 0 };
    doc_outcome(d, with, &how);
    blame_guard(d, strbuf_str(&how));
    if (other)
        doc_set(&d->wrong, "the program prints %s compiled: %s",
                other == PRINTS_numbers ? "other numbers"
                : other == PRINTS_text  ? "something else"
                                        : "more or fewer lines",
                strbuf_str(&d->prints));
    else if (!d->bundle || d->died)
        doc_set(&d->wrong, "the program %s compiled%s%s",
                d->plain.status       ? "ends otherwise"
                : doc_failed(d, with) ? "fails"
                                      : "fails in some of the runs in which it is",
                doc_failed(d, with) ? ": " : "", doc_failed(d, with) ? strbuf_str(&how) : "");
    strbuf_free(&how);
}

/* Do the numbers differ no more than other roundings without the compiler make them? 1, 0, -1 with err. */
static int only_roundings(doctor *d, const proc_result *with, tp_err *err)
{
    static const char *const seeds[] = { "TAPER_JIGGLE=1", "TAPER_JIGGLE=2", "TAPER_JIGGLE=3" };
    bool yes = false, near = true;
    for (size_t i = 0; i < COUNT(seeds) && !yes && near; i++) {
        proc_result r = { 0 };
        if (!doc_run(d, "without the compiler, with other roundings",
                     (const char *[]){ "TAPER_COMPILE_DISABLE=1", seeds[i], NULL }, &r, err))
            return -1;
        double by = doc_failed(d, &r) ? 1e9 : prints_rounded(&d->plain.out, &d->also.out, &r.out, &with->out);
        yes = by <= 8;
        near = by <= 64; /* else it is not worth another try */
        proc_result_free(&r);
    }
    if (yes)
        doc_note(d, "\nThe numbers differ no more than other roundings make them without the compiler "
                    "(`TAPER_JIGGLE=1`).");
    return yes;
}

/* Is eager execution itself wrong on several threads? It prints something else on one. 1, 0, -1 with err. */
static int eager_threads(doctor *d, tp_err *err)
{
    proc_result one = { 0 }, both = { 0 }, again = { 0 };
    static const char *const off[] = { "TAPER_COMPILE_DISABLE=1", "TAPER_NUM_THREADS=1", NULL };
    int wrong = -1;
    if (!doc_run(d, "without the compiler, with one thread", off, &one, err))
        goto done;
    wrong = !doc_failed(d, &one) && prints_compare(&d->plain.out, &d->also.out, &one.out, NULL);
    if (!wrong)
        goto done;
    strbuf how = { 0 };
    if (!control(d, err) || !doc_run(d, "without the compiler, with one thread, again", off, &again, err)) {
        wrong = -1;
        goto done;
    }
    wrong = prints_compare(&d->plain.out, &d->also.out, &one.out, NULL) &&
            prints_compare(&one.out, &again.out, &d->plain.out, &how); /* else it was noise */
    if (!wrong) {
        strbuf_free(&how);
        goto done;
    }
    if (prints_reordered(&d->plain.out, &one.out)) { /* the same lines in another order */
        wrong = 0;
        strbuf_free(&how);
        goto done;
    }
    doc_set(&d->wrong,
            "eager execution is wrong, with and without the compiler: with one thread it prints something "
            "else: %s",
            strbuf_str(&how));
    doc_set(&d->stage, "threads: one thread gives another result, without the compiler as well");
    doc_set(&d->prints, "%s", strbuf_str(&how));
    strbuf_free(&how);
    strbuf *const innocent[] = { &d->rewrites, &d->condition, &d->takes, &d->elements, &d->around };
    for (size_t i = 0; i < COUNT(innocent); i++)
        strbuf_clear(innocent[i]);
    if (!doc_run(d, "as it is, with one thread", off + 1, &both, err))
        wrong = -1;
    else if (!doc_failed(d, &both) && !prints_compare(&one.out, &one.out, &both.out, NULL))
        doc_set(&d->around, "TAPER_NUM_THREADS=1");
done:
    proc_result_free(&one);
    proc_result_free(&both);
    proc_result_free(&again);
    return wrong;
}

/* Where the fault is, once it is known from which stage on the program is wrong. */
static bool locate(doctor *d, int stage, bool bad, bool found, bool comes_and_goes, tp_err *err)
{
    if (stage >= 0)
        doc_set(&d->stage, "%s", /* eager kernels are what the program is compared with */
                stage ? bisect_stage(stage) : "capture: what it read, its guards, or side effects");
    if (d->died && d->last.stage[0])
        doc_died_where(d);
    if (d->unguarded.n) { /* ": L['x'] is ... (read at FILE:LINE: code)" */
        char *at = strstr(d->unguarded.s, " (read at ");
        if (at) {
            doc_set(&d->place, "%.*s", (int)strlen(at + 10) - 1, at + 10);
            *at = 0;
        }
        doc_set(&d->stage,
                d->inner ? "the step on the tape, which hands a compiled graph what that was not made for: %s"
                         : "guards: %s",
                d->unguarded.s + strlen(GUARDED_TEXT ": "));
    } else if (found && d->bundle &&
               (stage || d->died || d->broken)) /* else capture is at fault, not the graph */
    {
        doc_examine_bundle(d);
        if (d->alone && bad && !doc_hunt(d, bisect_ladder[MAX(stage, 0)], false, err))
            return false; /* it may run code that was captured for something else */
    } else if (bad && !d->died && !comes_and_goes) {
        if (!found)
            doc_note(
                d, "\nNo graph was saved: every compiled graph gives what eager gives on the inputs it got.");
        if (!doc_hunt(d, stage >= 0 ? bisect_ladder[stage] : "inductor", stage == 0, err))
            return false;
    } else if (bad || found)
        doc_note(d,
                 "\nNo graph was saved: what fails is not a compiled graph. `TAPER_LOGS=+dynamo` shows how "
                 "capture went.");
    return true;
}

/* It ends with a status of its own choice: no exception, no signal, and not the one that says that something failed. */
static bool own_status(const doctor *d)
{
    return d->plain.status > 1 && !d->plain.timed_out && !strstr(strbuf_str(&d->plain.err), "Traceback ");
}

static bool examine(doctor *d, tp_err *err)
{
    proc_result with = { 0 };
    strbuf how = { 0 };
    bool ok = false, decided = false, found = false, comes_and_goes = false;
    int stage = -1, drawn = 0;
    if (!run_plain(d, &how, &decided, err))
        goto done;
    if (decided) {
        ok = true;
        goto done;
    }
    if (!doc_step(d, "as it is", NULL, &with, err))
        goto done;
    bool ours = false;
    if (d->plain.status < 0 && !eager_crash(d, &ours, err))
        goto done;
    if (ours) {
        d->status = DOC_fault;
        ok = true;
        goto done;
    }
    if (d->plain.status && !own_status(d) && !doc_wrong(d, &with)) {
        unlink(d->audit); /* an operator of ours may be what fails */
        if (!check_after(d, "dynamo", &found, err))
            goto done;
        if (eager_wrong(d, err)) {
            d->status = DOC_fault;
            ok = true;
            goto done;
        }
        d->status = DOC_undecided;
        doc_note(d, "\nThe program also fails without the compiler, so the compiler is not at fault.");
        doc_set(&d->wrong, "the program also fails without the compiler, in the same way: %s",
                strbuf_str(&how));
        ok = true;
        goto done;
    }
    if (!doc_failed(d, &with) && doc_wrong(d, &with) &&
        !control(d, err)) /* was it noise that two runs happened to agree on? */
        goto done;
    bool bad = doc_wrong(d, &with);
    d->died = with.status < 0 || with.timed_out;
    if (d->died)
        crumb_read(d->crumbs, &d->last);
    if (!strcmp(d->last.stage, CRUMB_BACKEND) || !strcmp(d->last.stage, CRUMB_PROGRAM))
        d->last.stage[0] = 0; /* code that is not ours: whether Taper's backends fail, too, only runs tell */
    if (d->died)
        doc_set(&d->function, "%s", d->last.function);
    prints_kind other = doc_failed(d, &with)
                            ? PRINTS_same
                            : prints_compare(&d->plain.out, &d->also.out, &with.out, &d->prints);
    int rounded = other == PRINTS_numbers ? only_roundings(d, &with, err) : 0;
    if (rounded < 0)
        goto done;
    if (rounded) {
        bad = false;
        other = PRINTS_same;
        strbuf_clear(&d->prints);
    }
    if (bad && (stage = d->last.stage[0] ? stage_of(&d->last) : doc_climb(d, err)) == -2)
        goto done;
    if (other && stage != 0 && stage != 1 && (drawn = only_draws(d, err)) < 0)
        goto done;
    if (drawn) {
        bad = false;
        stage = -1;
        other = PRINTS_same;
        strbuf_clear(&d->prints);
    }
    if (bad && stage < 0 && !with.timed_out) {
        int again = doc_try(d, "as it is, again", NULL, err);
        comes_and_goes = again == 0;
        if (again < 0)
            goto done;
    }
    if (bad && stage < 0 && !comes_and_goes) { /* the program names one that does */
        blame_own_backend(d, &with);
        ok = true;
        goto done;
    }
    unlink(d->audit);
    if (!check_after(d, "dynamo", &found, err) ||
        (bad && !found && stage > 0 && !check_after(d, "aot", &found, err)) ||
        !locate(d, stage, bad, found, comes_and_goes, err))
        goto done;
    if (d->only_eager) {
        doc_set(&d->stage, "how backend `eager` runs captured graphs: those that take more stages are right");
        doc_set(&d->around, "TAPER_COMPILE_BACKEND=%s", bisect_ladder[1]);
    }
    say_wrong(d, &with, other);
    bool eager = eager_wrong(d, err);
    /* a fault of the threads that eager and compiled code share is seen by neither */
    if (!eager && !d->died && (!bad || !found)) {
        int shared = eager_threads(d, err);
        if (shared < 0)
            goto done;
        eager = shared;
    }
    if (!eager && !bad && !found && d->breaks)
        eager = breaks_wrong(d, err);
    d->status = bad || found || eager ? DOC_fault : DOC_well;
    if (d->status == DOC_well) {
        doc_note(
            d,
            "\nNothing fails, %sthe program prints the same, every compiled result agrees with eager, and "
            "eager with "
            "float64 and finite differences.",
            drawn ? "compiled code draws other random numbers for the same seed (`TAPER_FALLBACK_RANDOM=1`: "
                    "eager's), with eager's "
                  : "");
        doc_set(&d->wrong,
                "nothing is wrong: the program prints the same with and without the compiler, and every "
                "compiled result agrees with eager");
    } else if (comes_and_goes)
        strbuf_add(&d->wrong, " (it comes and goes: another run did not show it)");
    ok = d->status == DOC_well || eager || comes_and_goes || d->around.n || doc_work_around(d, stage, err);
done:
    proc_result_free(&with);
    strbuf_free(&how);
    return ok;
}

/* ---- the verdict ---- */
static void sentence(const doctor *d, strbuf *b)
{
    static const char *const heads[] = { "", "Fault found: ", "Could not decide: " };
    strbuf_addf(b, "%s%s", heads[d->status], strbuf_str(&d->wrong));
    if (d->status == DOC_fault) {
        if (d->stage.n)
            strbuf_addf(b, "; the fault is in %s", d->stage.s);
        if (d->operators.n)
            strbuf_addf(b, "; operator%s %s", strchr(d->operators.s, ',') ? "s" : "", d->operators.s);
        if (d->place.n)
            strbuf_addf(b, " at %s", d->place.s);
        if (d->rank.n)
            strbuf_addf(b, "; first seen on %s", d->rank.s);
        if (d->rewrites.n)
            strbuf_addf(b, "; it passes without %s", d->rewrites.s);
        if (d->condition.n)
            strbuf_addf(b, "; it fails if and only if %s", d->condition.s);
        if (d->takes.n)
            strbuf_addf(b, "; it takes %s", d->takes.s);
        if (d->elements.n)
            strbuf_addf(b, "; wrong are %s", d->elements.s);
        if (d->around.n)
            strbuf_addf(b, "; work-around, tried: %s", d->around.s);
    }
    b->s[0] = (char)(b->s[0] >= 'a' && b->s[0] <= 'z' ? b->s[0] - 32 : b->s[0]);
    for (size_t i = 0; i < b->n; i++)
        if (b->s[i] == '\n')
            b->s[i] = ' ';
    if (b->s[b->n - 1] != '.')
        strbuf_addc(b, '.');
}

static void text_or_null(json_w *w, const char *key, const char *s)
{
    json_key(w, key);
    json_str(w, s && *s ? s : NULL);
}

static void print_json(const doctor *d, const char *verdict, const char *path)
{
    static const char *const status[] = { "nothing wrong", "fault found", "could not decide" };
    strbuf b = { 0 };
    json_w w = { &b };
    json_obj(&w);
    text_or_null(&w, "status", status[d->status]);
    text_or_null(&w, "verdict", verdict);
    text_or_null(&w, "wrong", d->status ? strbuf_str(&d->wrong) : NULL);
    text_or_null(&w, "prints", strbuf_str(&d->prints));
    text_or_null(&w, "stage", strbuf_str(&d->stage));
    text_or_null(&w, "operators", strbuf_str(&d->operators));
    text_or_null(&w, "line", strbuf_str(&d->place));
    text_or_null(&w, "rank", strbuf_str(&d->rank));
    text_or_null(&w, "rewrites", strbuf_str(&d->rewrites));
    text_or_null(&w, "condition", strbuf_str(&d->condition));
    text_or_null(&w, "takes", strbuf_str(&d->takes));
    text_or_null(&w, "elements", strbuf_str(&d->elements));
    text_or_null(&w, "workaround", strbuf_str(&d->around));
    text_or_null(&w, "saved", d->bundle);
    text_or_null(&w, "report", path);
    json_key(&w, "runs");
    json_raw(&w, strbuf_str(&d->runs_text));
    json_end(&w);
    printf("%s\n", strbuf_str(&b));
    strbuf_free(&b);
}

static bool conclude(doctor *d, const char *path, tp_err *err)
{
    strbuf all = { 0 }, verdict = { 0 }, text = { 0 };
    json_end(&d->runs);
    sentence(d, &verdict);
    strbuf_addf(&all, "# What `taper doctor` found for");
    for (int i = 0; i < d->argc; i++)
        strbuf_adds(&all, " ", d->argv[i], NULL);
    strbuf_addf(&all, "\n\n**%s**\n\n", strbuf_str(&verdict));
    strbuf_addf(&text, "| run | outcome | time |\n| --- | --- | --- |\n%s%s", strbuf_str(&d->table),
                strbuf_str(&d->report));
    strbuf_addn(&all, text.s, text.n);
    bool ok = file_write(path, all.s, all.n, err);
    if (ok && d->json)
        print_json(d, strbuf_str(&verdict), path);
    else if (ok)
        printf("%s\n\n%s\nWritten to %s\n", strbuf_str(&verdict), strbuf_str(&text), path);
    strbuf_free(&all);
    strbuf_free(&text);
    strbuf_free(&verdict);
    return ok;
}

/* SCRIPT ARGS as ranks: -m taper.distributed.run --launcher processes --nproc-per-node N SCRIPT ARGS. */
static void as_ranks(doctor *d, const char *ranks)
{
    static char *const head[] = { "-m", "taper.distributed.run", "--launcher", "processes",
                                  "--nproc-per-node" };
    char **argv = mem_zalloc(sizeof *argv * (COUNT(head) + (size_t)d->argc + 2));
    memcpy(argv, head, sizeof head);
    argv[COUNT(head)] = mem_strdup(ranks);
    memcpy(argv + COUNT(head) + 1, d->argv, sizeof *argv * (size_t)d->argc);
    d->argv = argv;
    d->argc += (int)COUNT(head) + 1;
}

/* What doctor was given to read: a file, or what has been written to a pipe. Every run reads the same. */
static void take_input(doctor *d)
{
    enum { MOST = 64 << 20 };
    struct stat s;
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    bool file = !fstat(STDIN_FILENO, &s) && S_ISREG(s.st_mode),
         written = !file && S_ISFIFO(s.st_mode) && poll(&p, 1, 100) == 1 && (p.revents & POLLIN);
    strbuf b = { 0 };
    char part[1 << 16];
    for (ssize_t n; (file || written) && b.n < MOST && (n = read(STDIN_FILENO, part, sizeof part)) > 0;)
        strbuf_addn(&b, part, (size_t)n);
    d->n_input = b.n;
    d->input = b.n ? strbuf_take(&b) : NULL;
    strbuf_free(&b);
}

static int run_doctor(int argc, char **argv)
{
    doctor d = { .timeout = 300000 };
    const char *out = "taper_doctor", *secs = NULL, *ranks = NULL;
    tp_err err = { 0 };
    cli_args a = { argc, 1, argv };
    while (a.at < argc && argv[a.at][0] == '-' && strcmp(argv[a.at], "-m") && strcmp(argv[a.at], "-c")) {
        if (cli_flag(&a, "torch")) {
            memmove(argv + a.at - 1, argv + a.at, (size_t)(argc - a.at) * sizeof *argv);
            return cli_torch("doctor", argc - 2, argv + 1);
        }
        if (cli_flag(&a, "json")) {
            d.json = true;
            continue;
        }
        if (cli_flag(&a, "quarantine")) {
            d.quarantine = true;
            continue;
        }
        if (cli_option(&a, "out", &out) || cli_option(&a, "timeout", &secs) ||
            cli_option(&a, "ranks", &ranks))
            continue;
        return cli_unknown(&a);
    }
    bool option = a.at < argc && argv[a.at][0] == '-';
    if (a.at + option >= argc)
        return cli_usage("taper doctor [--torch] [--json] [--quarantine] [--ranks N] [--out DIR] [--timeout "
                         "SECONDS] SCRIPT | -m "
                         "MODULE [ARGS ...]");
    if (secs && atof(secs) <= 0)
        return cli_usage("--timeout wants a number of seconds, not '%s'", secs);
    d.argv = argv + a.at;
    d.argc = argc - a.at;
    if (!option && !file_exists(d.argv[0]))
        return cli_usage("there is no file '%s'", d.argv[0]);
    d.ranks = ranks ? atoi(ranks) : 0;
    if (ranks && d.ranks < 1)
        return cli_usage("--ranks wants a number of processes, not '%s'", ranks);
    if (ranks)
        as_ranks(&d, ranks);
    if (secs)
        d.timeout = (int64_t)(atof(secs) * 1000);
    char cwd[4096];
    d.out = out[0] == '/' || !getcwd(cwd, sizeof cwd) ? mem_strdup(out) : path_join(cwd, out);
    take_input(&d);
    ssize_t n = readlink("/proc/self/exe", d.self, sizeof d.self - 1);
    d.self[MAX(n, 0)] = 0;
    d.runs.out = &d.runs_text;
    json_arr(&d.runs);
    char *path = path_join(d.out, "report.md");
    char **const files[] = { &d.crumbs, &d.regions, &d.audit };
    static const char *const names[] = { "crumbs", "regions", "audit" };
    for (size_t i = 0; i < COUNT(files); i++)
        *files[i] = path_join(d.out, names[i]);
    int rc = file_mkdirs(d.out, &err) && examine(&d, &err) && (!ranks || doc_ranks(&d, &err)) &&
                     conclude(&d, path, &err)
                 ? (int)d.status
                 : cli_fail(&err);
    for (size_t i = 0; i < COUNT(files); i++) {
        unlink(*files[i]);
        free(*files[i]);
    }
    strbuf *const owned[] = { &d.table,     &d.report,   &d.runs_text, &d.wrong,   &d.prints,    &d.stage,
                              &d.operators, &d.place,    &d.rewrites,  &d.around,  &d.condition, &d.rank,
                              &d.unguarded, &d.function, &d.takes,     &d.elements };
    for (size_t i = 0; i < COUNT(owned); i++)
        strbuf_free(owned[i]);
    proc_result_free(&d.plain);
    proc_result_free(&d.also);
    free(d.bundle);
    if (ranks) {
        free(d.argv[5]);
        free(d.argv);
    }
    free(path);
    free(d.input);
    free(d.out);
    return rc;
}

const cli_cmd cmd_doctor = {
    "doctor",
    "[--torch] [--json] [--quarantine] [--ranks N] [--out DIR] [--timeout SECONDS] SCRIPT | -m MODULE [ARGS "
    "...]",
    "Runs the troubleshooting guide on a Python program and says what is wrong in one sentence",
    "The program runs twice without the compiler, with it, one stage at a time, and with every result\n"
    "compared with eager; so are its exit status and what it prints (numbers by tolerance; what two runs\n"
    "without the compiler do not agree on is left out). What fails is saved, minimised and bisected.\n"
    "DIR (taper_doctor unless told) holds report.md, ready to be filed, and repro.py, the smallest\n"
    "program that fails. What is wrong with eager execution itself is found, too: every operator is held\n"
    "against float64, its derivative against finite differences. What helps is tried; --quarantine writes\n"
    "it to taper_quarantine here, which later runs obey. A program written for PyTorch: taper doctor -m "
    "taper SCRIPT\n"
    "runs it with Taper; taper doctor --torch SCRIPT with real PyTorch, whose own compiler is examined.\n"
    "--ranks N runs it as N processes (taper.distributed.run) and names the rank and the collective that "
    "first\n"
    "differ from the run without the compiler.\n"
    "Exit codes: 0 nothing wrong, 1 fault found, 2 could not decide.\n",
    run_doctor,
    NULL
};
