/* cmd_doctor.c - taper doctor SCRIPT: the troubleshooting guide, carried out. Runs the script without the compiler, with it,
 * one stage at a time, and with every result compared; what it prints and how it ends is compared, too. What fails is saved,
 * minified and bisected. One sentence says what is wrong, the evidence follows. */
#include "cli/cli.h"
#include "base/file.h"
#include "base/json.h"
#include "base/proc.h"
#include "base/vec.h"
#include "debug/backends.h"
#include "debug/bisect.h"
#include "debug/bundle.h"
#include "debug/prints.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

typedef enum { DOC_well, DOC_fault, DOC_undecided } doc_status; /* the exit code */

typedef struct doctor {
    char **argv; /* of python3: the script, or -m MODULE, and arguments */
    int argc;
    char *out;               /* the directory of findings */
    char self[4096];         /* this program */
    int64_t timeout;         /* of one run, ms */
    bool json;               /* nothing but one object on stdout */
    proc_result plain, also; /* two runs without the compiler: what they agree on counts */
    strbuf report;           /* the evidence */
    json_w runs;             /* the runs as JSON */
    strbuf runs_text;
    /* the verdict */
    doc_status status;
    strbuf wrong, prints, stage, operators, place, rewrites;
    char *bundle;
} doctor;

static void note(doctor *d, const char *fmt, ...) TP_PRINTF(2, 3);
static void note(doctor *d, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    strbuf_addv(&d->report, fmt, ap);
    va_end(ap);
    strbuf_addc(&d->report, '\n');
}

static void set(strbuf *b, const char *fmt, ...) TP_PRINTF(2, 3);
static void set(strbuf *b, const char *fmt, ...)
{
    va_list ap;
    strbuf_clear(b);
    va_start(ap, fmt);
    strbuf_addv(b, fmt, ap);
    va_end(ap);
}

/* ---- runs of the program ---- */
/* Runs python3 SCRIPT ARGS with these variables ("NAME=value" or NULL); they are unset again afterwards. */
static bool run_script(doctor *d, const char *what, const char *const *vars, proc_result *r, tp_err *err)
{
    const char **argv = mem_zalloc(sizeof *argv * (size_t)(d->argc + 2));
    argv[0] = "python3";
    for (int i = 0; i < d->argc; i++)
        argv[i + 1] = d->argv[i];
    for (int i = 0; vars && vars[i]; i++) {
        char *name = mem_strndup(vars[i], strcspn(vars[i], "="));
        setenv(name, vars[i] + strlen(name) + 1, 1);
        free(name);
    }
    fprintf(stderr, "taper doctor: %s ...\n", what);
    bool ok = proc_run(&(proc_spec){ .argv = argv, .timeout_ms = d->timeout }, r, err);
    for (int i = 0; vars && vars[i]; i++) {
        char *name = mem_strndup(vars[i], strcspn(vars[i], "="));
        unsetenv(name);
        free(name);
    }
    free(argv);
    return ok;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *s = strstr(text, what); s; s = strstr(s + 1, what))
        n++;
    return n;
}

/* Did the run end otherwise than without the compiler? */
static bool failed(const doctor *d, const proc_result *r)
{
    return r->status != d->plain.status || r->timed_out || cli_ended_early(r, &d->plain.out);
}

/* Did it, or did it print something else? */
static bool wrong(const doctor *d, const proc_result *r)
{
    return failed(d, r) || prints_compare(&d->plain.out, &d->also.out, &r->out, NULL);
}

static void outcome_of(const doctor *d, const proc_result *r, strbuf *b)
{
    strbuf said = { 0 }, why = { 0 };
    if (!r->timed_out && cli_ended_early(r, &d->plain.out))
        strbuf_add(b, "ends early and without an error");
    else if (r->status || r->timed_out) {
        proc_describe(b, r);
        cli_error_line(&said, strbuf_str(&r->err));
        strbuf_addf(b, ": `%s`", strbuf_str(&said));
    } else if (d->plain.status)
        strbuf_add(b, "runs: no error, unlike without the compiler");
    else if (prints_compare(&d->plain.out, &d->also.out, &r->out, &why))
        strbuf_addf(b, "prints something else: %s", strbuf_str(&why));
    else
        strbuf_add(b, "runs");
    strbuf_free(&said);
    strbuf_free(&why);
}

static void record(doctor *d, const char *what, const char *outcome, const proc_result *r)
{
    double secs = (double)r->wall_ns / 1e9;
    note(d, "| %s | %s | %.1f s |", what, outcome, secs);
    json_obj(&d->runs);
    json_key(&d->runs, "run");
    json_str(&d->runs, what);
    json_key(&d->runs, "outcome");
    json_str(&d->runs, outcome);
    json_key(&d->runs, "seconds");
    json_dbl(&d->runs, secs);
    json_end(&d->runs);
}

static bool step(doctor *d, const char *what, const char *const *vars, proc_result *r, tp_err *err)
{
    strbuf how = { 0 };
    if (!run_script(d, what, vars, r, err))
        return false;
    outcome_of(d, r, &how);
    record(d, what, strbuf_str(&how), r);
    strbuf_free(&how);
    return true;
}

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

/* The one that was not there before, owned, or NULL. */
static char *new_bundle(const char *out, const char *before)
{
    char *b = find_bundle(out);
    if (b && before && !strcmp(b, before)) {
        free(b);
        return NULL;
    }
    return b;
}

static bool tool(doctor *d, const char *command, const char *bundle, strbuf *said)
{
    const char *argv[] = { d->self, command, bundle, NULL };
    proc_result r = { 0 };
    fprintf(stderr, "taper doctor: taper %s ...\n", command);
    bool ok = proc_run(&(proc_spec){ .argv = argv, .cwd = d->out, .timeout_ms = 600000 }, &r, NULL);
    if (ok) {
        note(d, "\n`taper %s %s`:\n\n```\n%s%s```", command, bundle, strbuf_str(&r.out),
             r.status ? strbuf_str(&r.err) : "");
        strbuf_addn(said, r.out.s, r.out.n);
    }
    ok = ok && !r.status;
    proc_result_free(&r);
    return ok;
}

/* What the smallest graph consists of, and where the user wrote it. first: the node whose value goes wrong, or NULL. */
static void name_operators(doctor *d, const char *dir, const char *first)
{
    signature s;
    debug_backends_register();
    repro *r = bundle_read(dir, &s, false, &(tp_err){ 0 });
    int n = 0;
    if (!r)
        return;
    set(&d->wrong, "%s: %s", sig_name(s.kind), s.full);
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
            set(&d->place, "%s:%d%s%s", l->file, l->line, code ? ": " : "", code ? code : "");
    }
    repro_free(r);
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

static void examine_bundle(doctor *d)
{
    strbuf min = { 0 }, bis = { 0 }, first = { 0 };
    char *minimal = path_join(d->bundle, "minimal"), *f = path_join(minimal, "failure.json");
    note(d, "\nThe failure is saved in %s.", d->bundle);
    bool small = tool(d, "minify", d->bundle, &min) && file_exists(f);
    /* The rewrites of the smallest graph are the ones that matter; a larger one has innocents. */
    const char *best = small ? minimal : d->bundle;
    tool(d, "bisect", best, &bis);
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
    name_operators(d, best, first.n ? first.s : NULL);
    answer(&bis, "the fault is in ", &d->stage);
    const char *c = strstr(strbuf_str(&bis), "culprit");
    for (c = c ? strchr(c, '\n') : NULL; c && !strncmp(c, "\n  ", 3); c = strchr(c + 1, '\n')) {
        size_t n = strcspn(c + 3, " \n");
        strbuf_addf(&d->rewrites, "%s%.*s", d->rewrites.n ? ", " : "", (int)n, c + 3);
    }
    note(d, "\nAttach to a report: this file, and repro.py, repro.c and %s.", best);
    strbuf_free(&min);
    strbuf_free(&bis);
    strbuf_free(&first);
    free(minimal);
    free(f);
}

/* ---- the examination ---- */
/* The first backend of the ladder with which the program goes wrong; -1: none, -2: could not be run. */
static int climb(doctor *d, tp_err *err)
{
    for (int i = 0; bisect_ladder[i]; i++) {
        proc_result r = { 0 };
        char var[80], what[80];
        snprintf(var, sizeof var, "TAPER_COMPILE_BACKEND=%s", bisect_ladder[i]);
        snprintf(what, sizeof what, "backend `%s`", bisect_ladder[i]);
        bool went = step(d, what, (const char *[]){ var, NULL }, &r, err), bad = went && wrong(d, &r);
        proc_result_free(&r);
        if (!went)
            return -2;
        if (bad)
            return i; /* this stage is the first that fails */
    }
    return -1;
}

/* Every graph compared (or saved before it runs) after a stage; true when it could be run. */
static bool check_after(doctor *d, const char *after, bool died, bool *found, tp_err *err)
{
    proc_result r = { 0 };
    char var[64], what[96];
    strbuf dir = { 0 };
    char *before = find_bundle(d->out);
    strbuf_addf(&dir, "TAPER_COMPILE_DEBUG_DIR=%s", d->out);
    snprintf(var, sizeof var, "TAPER_REPRO_AFTER=%s", after);
    snprintf(what, sizeof what, "%s%s",
             died ? "saved before every call (level 3)" : "every result compared with eager (level 4)",
             strcmp(after, "aot") ? "" : ", behind the autograd stage");
    bool ok = step(
        d, what,
        (const char *[]){ var, died ? "TAPER_REPRO_LEVEL=3" : "TAPER_REPRO_LEVEL=4", strbuf_str(&dir), NULL },
        &r, err);
    if (ok) {
        *found = failed(d, &r);
        free(d->bundle);
        d->bundle = new_bundle(d->out, before);
        signature s = { 0 };
        repro *saved = d->bundle && !died && !*found ? bundle_read(d->bundle, &s, false, &(tp_err){ 0 })
                                                     : NULL;
        *found |= saved && s.kind != SIG_passes; /* the program caught the error */
        repro_free(saved);
    }
    proc_result_free(&r);
    strbuf_free(&dir);
    free(before);
    return ok;
}

static bool examine(doctor *d, tp_err *err)
{
    proc_result with = { 0 }, logged = { 0 };
    strbuf how = { 0 };
    bool ok = false;
    static const char *const off[] = { "TAPER_COMPILE_DISABLE=1", NULL };
    note(d, "| run | outcome | time |\n| --- | --- | --- |");
    if (!run_script(d, "without the compiler", off, &d->plain, err) ||
        !run_script(d, "without the compiler, again", off, &d->also, err))
        goto done;
    if (d->plain.status || d->plain.timed_out) {
        strbuf said = { 0 };
        proc_describe(&how, &d->plain);
        cli_error_line(&said, strbuf_str(&d->plain.err));
        strbuf_addf(&how, ": `%s`", strbuf_str(&said));
        strbuf_free(&said);
    } else
        strbuf_add(&how, "runs");
    record(d, "without the compiler", strbuf_str(&how), &d->plain);
    if (d->plain.timed_out || d->plain.status != d->also.status) {
        d->status = DOC_undecided;
        set(&d->wrong, "%s",
            d->plain.timed_out ? "the program does not end in time without the compiler either (--timeout)"
                               : "two runs without the compiler end differently");
        ok = true;
        goto done;
    }
    if (!step(d, "as it is", NULL, &with, err))
        goto done;
    if (d->plain.status && !wrong(d, &with)) {
        d->status = DOC_undecided;
        note(d, "\nThe program also fails without the compiler, so the compiler is not at fault.");
        set(&d->wrong, "the program also fails without the compiler, in the same way: %s", strbuf_str(&how));
        ok = true;
        goto done;
    }
    bool bad = wrong(d, &with), died = with.status < 0 || with.timed_out, found = false;
    prints_kind other = failed(d, &with) ? PRINTS_same
                                         : prints_compare(&d->plain.out, &d->also.out, &with.out, &d->prints);
    bool drawn = false; /* the random numbers of compiled code are others for the same seed: no fault */
    if (other) {
        proc_result r = { 0 };
        bool went = step(d, "as it is, with the random numbers of eager execution",
                         (const char *[]){ "TAPER_FALLBACK_RANDOM=1", NULL }, &r, err);
        drawn = went && !wrong(d, &r);
        proc_result_free(&r);
        if (!went)
            goto done;
    }
    if (drawn) {
        bad = false;
        other = PRINTS_same;
        strbuf_clear(&d->prints);
    }
    int stage = bad ? climb(d, err) : -1;
    if (stage == -2)
        goto done;
    bool comes_and_goes = false;
    if (bad && stage < 0 && !with.timed_out) {
        proc_result r = { 0 };
        bool went = step(d, "as it is, again", NULL, &r, err);
        comes_and_goes = went && !wrong(d, &r);
        proc_result_free(&r);
        if (!went)
            goto done;
    }
    if (bad && stage < 0 && !comes_and_goes) { /* the program names one that does */
        d->status = DOC_fault;
        set(&d->wrong, "the program %s with the backend that it names itself, and with none of Taper's",
            failed(d, &with) ? "fails" : "prints something else");
        set(&d->stage, "that backend, not the compiler");
        note(d,
             "\nThe program fails with the backend that it names itself, and with none of those above: that "
             "backend is at fault, not the compiler. %s",
             !failed(d, &with) ? "It gives other results."
             : with.timed_out
                 ? "It does not return: `py-spy dump` or `faulthandler.dump_traceback_later()` shows "
                   "where it is."
             : with.status < 0 ? "`python3 -X faulthandler` shows the line that kills the process."
                               : "It ends the process, as `sys.exit()` does.");
        ok = true;
        goto done;
    }
    if (!check_after(d, "dynamo", died, &found, err) ||
        (bad && !found && stage > 0 && !check_after(d, "aot", died, &found, err)) ||
        !run_script(d, "graph breaks and recompiles",
                    (const char *[]){ "TAPER_LOGS=graph_breaks,recompiles", NULL }, &logged, err))
        goto done;
    int breaks = count(strbuf_str(&logged.err), "] Reason: ") +
                 count(strbuf_str(&logged.err), "] Graph break from"),
        again = count(strbuf_str(&logged.err), "] Recompiling function");
    note(d, "\n%d graph break%s, %d recompile%s (`TAPER_LOGS=graph_breaks,recompiles` shows where and why).",
         breaks, plural(breaks), again, plural(again));
    d->status = bad || found ? DOC_fault : DOC_well;
    if (stage >= 0)
        set(&d->stage, "%s", /* eager kernels are what the program is compared with */
            stage ? bisect_stage(stage) : "capture: what it read, its guards, or side effects");
    strbuf_clear(&how);
    outcome_of(d, &with, &how);
    if (found && d->bundle)
        examine_bundle(d);
    else if (bad && !failed(d, &with))
        note(
            d,
            "\nNo graph was saved: every compiled graph gives what eager gives on the inputs it got. What is "
            "wrong is around them: what capture read, guards, side effects. `TAPER_LOGS=+dynamo` shows how "
            "capture went, `TAPER_LOGS=guards` what is watched.");
    else if (bad || found)
        note(d, "\nNo graph was saved: what fails is not a compiled graph. `TAPER_LOGS=+dynamo` shows how "
                "capture went.");
    else
        note(d,
             "\nNothing fails, %sthe program prints the same, and every compiled result agrees with eager.",
             drawn ? "compiled code draws other random numbers for the same seed (`TAPER_FALLBACK_RANDOM=1`: "
                     "eager's), with eager's "
                   : "");
    if (other)
        set(&d->wrong, "the program prints %s compiled: %s",
            other == PRINTS_numbers ? "other numbers"
            : other == PRINTS_text  ? "something else"
                                    : "more or fewer lines",
            strbuf_str(&d->prints));
    else if (bad && !d->bundle)
        set(&d->wrong, "the program %s compiled: %s", d->plain.status ? "ends otherwise" : "fails",
            strbuf_str(&how));
    if (comes_and_goes)
        strbuf_add(&d->wrong, " (it comes and goes: another run did not show it)");
    else if (d->status == DOC_well)
        set(&d->wrong,
            "nothing is wrong: the program prints the same with and without the compiler, and every "
            "compiled result agrees with eager");
    ok = true;
done:
    proc_result_free(&with);
    proc_result_free(&logged);
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
        if (d->rewrites.n)
            strbuf_addf(b, "; it passes without %s", d->rewrites.s);
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
    text_or_null(&w, "rewrites", strbuf_str(&d->rewrites));
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
    strbuf all = { 0 }, verdict = { 0 };
    json_end(&d->runs);
    sentence(d, &verdict);
    strbuf_addf(&all, "# What `taper doctor` found for");
    for (int i = 0; i < d->argc; i++)
        strbuf_adds(&all, " ", d->argv[i], NULL);
    strbuf_addf(&all, "\n\n**%s**\n\n%s", strbuf_str(&verdict), strbuf_str(&d->report));
    bool ok = file_write(path, all.s, all.n, err);
    if (ok && d->json)
        print_json(d, strbuf_str(&verdict), path);
    else if (ok)
        printf("%s\n\n%s\nWritten to %s\n", strbuf_str(&verdict), strbuf_str(&d->report), path);
    strbuf_free(&all);
    strbuf_free(&verdict);
    return ok;
}

static int run_doctor(int argc, char **argv)
{
    doctor d = { .timeout = 300000 };
    const char *out = "taper_doctor", *secs = NULL;
    tp_err err = { 0 };
    cli_args a = { argc, 1, argv };
    while (a.at < argc && argv[a.at][0] == '-' && strcmp(argv[a.at], "-m") && strcmp(argv[a.at], "-c")) {
        if (cli_flag(&a, "json")) {
            d.json = true;
            continue;
        }
        if (cli_option(&a, "out", &out) || cli_option(&a, "timeout", &secs))
            continue;
        return cli_unknown(&a);
    }
    bool option = a.at < argc && argv[a.at][0] == '-';
    if (a.at + option >= argc)
        return cli_usage(
            "taper doctor [--json] [--out DIR] [--timeout SECONDS] SCRIPT | -m MODULE [ARGS ...]");
    if (secs && atof(secs) <= 0)
        return cli_usage("--timeout wants a number of seconds, not '%s'", secs);
    d.argv = argv + a.at;
    d.argc = argc - a.at;
    if (!option && !file_exists(d.argv[0]))
        return cli_usage("there is no file '%s'", d.argv[0]);
    if (secs)
        d.timeout = (int64_t)(atof(secs) * 1000);
    char cwd[4096];
    d.out = out[0] == '/' || !getcwd(cwd, sizeof cwd) ? mem_strdup(out) : path_join(cwd, out);
    ssize_t n = readlink("/proc/self/exe", d.self, sizeof d.self - 1);
    d.self[MAX(n, 0)] = 0;
    d.runs.out = &d.runs_text;
    json_arr(&d.runs);
    char *path = path_join(d.out, "report.md");
    int rc = file_mkdirs(d.out, &err) && examine(&d, &err) && conclude(&d, path, &err) ? (int)d.status
                                                                                       : cli_fail(&err);
    strbuf *const owned[] = { &d.report, &d.runs_text, &d.wrong, &d.prints,
                              &d.stage,  &d.operators, &d.place, &d.rewrites };
    for (size_t i = 0; i < COUNT(owned); i++)
        strbuf_free(owned[i]);
    proc_result_free(&d.plain);
    proc_result_free(&d.also);
    free(d.bundle);
    free(path);
    free(d.out);
    return rc;
}

const cli_cmd cmd_doctor = {
    "doctor",
    "[--json] [--out DIR] [--timeout SECONDS] SCRIPT | -m MODULE [ARGS ...]",
    "Runs the troubleshooting guide on a Python program and says what is wrong in one sentence",
    "The program runs twice without the compiler, with it, one stage at a time, and with every result\n"
    "compared with eager; so are its exit status and what it prints (numbers by tolerance; what two runs\n"
    "without the compiler do not agree on is left out). What fails is saved, minimised and bisected.\n"
    "DIR (taper_doctor unless told) holds report.md, ready to be filed, and repro.py, the smallest\n"
    "program that fails. A program written for PyTorch: taper doctor -m taper SCRIPT.\n"
    "Exit codes: 0 nothing wrong, 1 fault found, 2 could not decide.\n",
    run_doctor,
    NULL
};
