/* cmd_minify.c - taper minify BUNDLE: the smallest graph that still fails; taper repro BUNDLE: does it fail here? */
#include "cli/cli.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/proc.h"
#include "debug/backends.h"
#include "debug/minify.h"
#include "debug/script.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t stop;
static void on_int(int sig) { stop = 1; }
static int64_t until; /* 0: as long as it takes */
static bool interrupted(void *data) { return stop || (until && clock_ns() > until); }

typedef struct where {
    char *dir;
    signature sig;
    bool tty, json;
    int ops;     /* at the beginning */
    double secs; /* limit of a trial */
} where;

static void line(void *data,
                 const char *text) /* one line that changes on a terminal, plain lines elsewhere */
{
    where *w = data;
    const char *trials = strstr(text, " left after ");
    if (w->tty && trials) {
        char bar[31];
        int left = MIN(atoi(text), w->ops), done = 30 * (w->ops - left) / MAX(w->ops, 1);
        memset(bar, '.', 30);
        memset(bar, '#', (size_t)done);
        bar[30] = 0;
        fprintf(stderr, "\r\x1b[K[%s] %d of %d operators left, %s", bar, left, w->ops,
                trials + strlen(" left after "));
    } else
        fprintf(stderr, "%s%s\n", w->tty ? "\r\x1b[K" : "", text);
    fflush(stderr);
}

static void keep_best(void *data, const repro *r,
                      int nodes) /* an interrupted search leaves the best so far */
{
    where *w = data;
    tp_err err = { 0 };
    bundle_write(w->dir, r, &w->sig, &err);
}

static bool is_script(const char *path)
{
    size_t n = strlen(path);
    return n > 3 && !strcmp(path + n - 3, ".py");
}

static int by_script(const char *path, const char *command,
                     const char *const *options) /* pairs of name and value */
{
    const char *argv[16] = { "python3", path, command };
    int n = 3;
    for (; options && *options; options += 2)
        if (options[1] && n + 2 < (int)COUNT(argv)) {
            argv[n++] = options[0];
            argv[n++] = options[1];
        }
    fflush(NULL);
    execvp("python3", (char *const *)argv);
    return cli_usage("'%s' is a script, and python3 cannot be started", path);
}

/* The scripts of the answer, beside it and in the working directory. */
static void write_scripts(const char *dir, const repro *m, const signature *s, strbuf *said)
{
    strbuf py = { 0 }, c = { 0 };
    script_opts o = { .command = "run", .save_dir = dir };
    bool kernels = s->kind != SIG_compile_error && script_c(&c, m, s, &(tp_err){ 0 });
    script_python(&py, m, s, &o);
    const struct {
        const char *name;
        strbuf *text;
        bool on;
    } file[] = { { "repro.py", &py, true }, { "repro.c", &c, kernels } };
    for (size_t i = 0; i < COUNT(file); i++) {
        char *there = path_join(dir, file[i].name);
        if (file[i].on && file_write(there, file[i].text->s, file[i].text->n, NULL))
            strbuf_addf(said, ", %s", file[i].name);
        if (file[i].on &&
            (access(".", W_OK) || !file_write(file[i].name, file[i].text->s, file[i].text->n, NULL)))
            fprintf(stderr, "No write permissions for %s\n", file[i].name);
        free(there);
    }
    strbuf_free(&py);
    strbuf_free(&c);
}

/* Processes that know nothing but the bundle. */
static int verified(const char *dir, double secs, int times)
{
    int good = 0;
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return -1;
    self[n] = 0;
    char limit[32];
    snprintf(limit, sizeof limit, "%g", secs);
    const char *argv[] = { self, "repro", dir, "--timeout", limit, NULL };
    for (int i = 0; i < times; i++) {
        proc_result r = { 0 };
        if (proc_run(&(proc_spec){ .argv = argv, .timeout_ms = 120000 }, &r, NULL))
            good += r.status == 1;
        proc_result_free(&r);
    }
    return good;
}

static void report_json(const where *w, const repro *m, const minify_stats *st)
{
    strbuf b = { 0 }, text = { 0 }, at = { 0 };
    int times = st->repeats > 1 || st->stopped ? 0 : st->sig.kind == SIG_timeout ? 1 : 3;
    ir_print(&b, m->g, IR_PRINT_log);
    json_w j = { &text };
    json_obj(&j);
    json_key(&j, "folder"), json_str(&j, w->dir);
    json_key(&j, "failure"), json_str(&j, sig_name(st->sig.kind));
    json_key(&j, "message"), json_str(&j, st->sig.full);
    bool diverges = st->sig.kind == SIG_accuracy && trial_diverge(m, &at, NULL);
    json_key(&j, "diverges"), json_str(&j, diverges ? strbuf_str(&at) : NULL);
    json_key(&j, "before"), json_int(&j, st->before);
    json_key(&j, "after"), json_int(&j, st->after);
    json_key(&j, "trials"), json_int(&j, st->trials);
    json_key(&j, "seconds"), json_dbl(&j, st->seconds);
    json_key(&j, "stopped"), json_bool(&j, st->stopped);
    json_key(&j, "fresh_processes"), json_int(&j, times);
    json_key(&j, "failing"), json_int(&j, times ? verified(w->dir, w->secs, times) : 0);
    json_key(&j, "graph"), json_str(&j, strbuf_str(&b));
    json_end(&j);
    puts(strbuf_str(&text));
    strbuf_free(&text);
    strbuf_free(&at);
    strbuf_free(&b);
}

static int report(where *w, const repro *m, const minify_stats *st)
{
    strbuf b = { 0 }, said = { 0 };
    tp_err err = { 0 };
    if (!bundle_write(w->dir, m, &st->sig, &err))
        return cli_fail(&err);
    bundle_events(w->dir, m);
    write_scripts(w->dir, m, &st->sig, &said);
    if (w->json) {
        report_json(w, m, st);
        strbuf_free(&said);
        return 0;
    }
    ir_print(&b, m->g, IR_PRINT_log);
    printf("%s\n%s: %s\n", strbuf_str(&b), sig_name(st->sig.kind), st->sig.full);
    if (st->sig.kind == SIG_accuracy) {
        strbuf at = { 0 };
        if (trial_diverge(m, &at, NULL))
            printf("%s\n", strbuf_str(&at));
        strbuf_free(&at);
    }
    printf("%d operator%s before, %d after; %d trial%s, %.1f s", st->before, plural(st->before), st->after,
           st->trials, plural(st->trials), st->seconds);
    if (st->repeats > 1)
        printf("; it comes and goes, so not every run of the answer fails");
    else if (!st->stopped) {
        int times = st->sig.kind == SIG_timeout ? 1 : 3; /* each waits for the time to pass */
        printf("; verified in %d of %d fresh process%s", verified(w->dir, w->secs, times), times,
               times == 1 ? "" : "es");
    }
    printf("\nWrote the minimal failure to %s (graph.py, inputs.safetensors, failure.json%s): attach it to a "
           "report\nNext: `python repro.py` shows it again; `taper bisect %s` names the stage and the "
           "rewrite at fault\n",
           w->dir, strbuf_str(&said), w->dir);
    strbuf_free(&b);
    strbuf_free(&said);
    return 0;
}

static int run_minify(int argc, char **argv)
{
    cli_args a = { argc, 1, argv };
    const char *dir = NULL, *out = NULL, *secs = NULL, *check = NULL, *mem = NULL, *step = NULL, *most = NULL;
    tp_err err = { 0 };
    bool json = false;
    while (a.at < a.argc) {
        if (cli_flag(&a, "json")) {
            json = true;
            continue;
        }
        if (cli_option(&a, "out", &out) || cli_option(&a, "timeout", &secs) ||
            cli_option(&a, "check-str", &check) || cli_option(&a, "memory", &mem) ||
            cli_option(&a, "max-granularity", &step) || cli_option(&a, "most", &most))
            continue;
        if (argv[a.at][0] == '-')
            return cli_unknown(&a);
        dir = argv[a.at++];
    }
    if (!dir)
        return cli_usage(
            "taper minify BUNDLE [--json] [--out DIR] [--timeout SECONDS] [--memory MIB] [--check-str TEXT] "
            "[--max-granularity N] [--most SECONDS]");
    if (cli_torch_saved(dir))
        return cli_torch("minify", argc - 1, argv + 1);
    if (step && (atoi(step) < 1 || atoi(step) & (atoi(step) - 1)))
        return cli_usage("--max-granularity wants a power of two, not '%s'", step);
    if (secs && atof(secs) <= 0)
        return cli_usage("--timeout wants a number of seconds, not '%s'", secs);
    if (mem && atof(mem) <= 0)
        return cli_usage("--memory wants a number of MiB, not '%s'", mem);
    if (is_script(dir) && (out || mem || json))
        return cli_usage("--%s is for saved failures; a script writes its answer beside its data",
                         out    ? "out"
                         : json ? "json"
                                : "memory");
    if (is_script(dir))
        return by_script(dir, "minify",
                         (const char *[]){ "--timeout", secs ? secs : "20", "--check-str", check,
                                           "--max-granularity", step, NULL });
    where w = { .tty = isatty(2), .json = json, .secs = secs ? atof(secs) : 20 };
    debug_backends_register();
    repro *r = bundle_read(dir, &w.sig, true, &err);
    if (!r)
        return cli_fail(&err);
    signature was = w.sig;
    w.ops = repro_ops(r);
    w.dir = out ? mem_strdup(out) : path_join(dir, "minimal");
    if (!file_mkdirs(w.dir, &err)) { /* better now than after the search */
        err_note(&err, "for the answer; --out DIR puts it elsewhere");
        repro_free(r);
        free(w.dir);
        return cli_fail(&err);
    }
    char *memo = path_join(dir, "memo");
    if (most && atof(most) > 0)
        until = clock_ns() + (int64_t)(atof(most) * 1e9);
    signal(SIGINT, on_int);
    minify_opts o = { .limits = { .timeout_ms = secs ? (int64_t)(atof(secs) * 1000) : 20000,
                                  .memory = mem ? (size_t)(atof(mem) * 1048576) : 0,
                                  .interrupted = interrupted },
                      .progress = line,
                      .best = keep_best,
                      .data = &w,
                      .check_str = check,
                      .max_granularity = step ? atoi(step) : 0,
                      .memo_file = memo };
    minify_stats st = { 0 };
    repro *m = NULL;
    int rc = 1;
    const repro *one = r;
    signature now;
    if (!trial_run(&one, 1, &o.limits, &now, &err))
        rc = cli_fail(&err);
    else if (trial_stages(r, &now), stages_differ(&was, &now) && now.kind == SIG_passes)
        rc = cli_usage("it does not fail here, and the %s graph is another one than where it failed: another "
                       "version of Taper, "
                       "or other settings (state.json says which)",
                       stages_differ(&was, &now));
    else if (now.kind == SIG_cannot_run && !backend_find(r->backend, NULL))
        rc = cli_usage("%s\n  run minifier_launcher.py there, after the lines that define and register it",
                       now.full);
    else if (now.kind == SIG_cannot_run)
        rc = cli_usage(
            "it cannot run here without a compiler either: %s\n  %s", now.full,
            strstr(now.full, "registered")
                ? "import what registers it at the top of minifier_launcher.py there, and run that instead"
            : r->inner
                ? "the graph was wrong before this stage: save it after capture (TAPER_REPRO_AFTER=dynamo)"
                : "the graph is wrong already: what fails is capture, or the program itself");
    else if (was.kind != SIG_passes && was.kind != SIG_flaky && now.kind != SIG_passes &&
             !sig_equal(&was, &now) && !check)
        rc = cli_usage("the failure is another one here: %s: %s was recorded at stage '%s', but stage '%s' "
                       "gives %s: %s\n"
                       "  --check-str TEXT minifies what shows here",
                       sig_name(was.kind), was.full, was.stage, now.stage, sig_name(now.kind), now.full);
    else {
        if (stages_differ(&was, &now))
            fprintf(stderr, "taper: the %s graph is another one than where it failed, but it fails alike\n",
                    stages_differ(&was, &now));
        w.sig = now;
        m = minify(r, &o, &st, &err);
        rc = m ? report(&w, m, &st) : cli_fail(&err);
    }
    repro_free(m);
    repro_free(r);
    free(w.dir);
    free(memo);
    return rc;
}

static void repro_json(const repro *r, const signature *was, const signature *now, bool ledger)
{
    strbuf text = { 0 }, table = { 0 };
    json_w w = { &text };
    const signature *const two[] = { was, now };
    json_obj(&w);
    for (int i = 0; i < 2; i++) {
        json_key(&w, i ? "here" : "recorded");
        json_obj(&w);
        json_key(&w, "failure"), json_str(&w, sig_name(two[i]->kind));
        json_key(&w, "message"), json_str(&w, two[i]->full[0] ? two[i]->full : NULL);
        json_end(&w);
    }
    json_key(&w, "same"), json_bool(&w, sig_equal(was, now));
    if (ledger) {
        json_key(&w, "ledger");
        bool any = (now->kind == SIG_accuracy || now->kind == SIG_passes) && trial_ledger(r, &table);
        json_str(&w, any ? strbuf_str(&table) : NULL);
    }
    json_end(&w);
    puts(strbuf_str(&text));
    strbuf_free(&text);
    strbuf_free(&table);
}

static int run_repro(int argc, char **argv)
{
    tp_err err = { 0 };
    signature was, now;
    cli_args a = { argc, 1, argv };
    const char *dir = NULL, *secs = NULL;
    bool ledger = false, json = false;
    while (a.at < argc) {
        if (cli_option(&a, "timeout", &secs))
            continue;
        if (cli_flag(&a, "ledger")) {
            ledger = true;
            continue;
        }
        if (cli_flag(&a, "json")) {
            json = true;
            continue;
        }
        if (argv[a.at][0] == '-')
            return cli_unknown(&a);
        dir = argv[a.at++];
    }
    if (!dir)
        return cli_usage("taper repro BUNDLE [--ledger] [--json] [--timeout SECONDS]");
    if (cli_torch_saved(dir))
        return cli_torch("repro", argc - 1, argv + 1);
    if (secs && atof(secs) <= 0)
        return cli_usage("--timeout wants a number of seconds, not '%s'", secs);
    if (is_script(dir) && json)
        return cli_usage("--json is for saved failures; a script prints what it finds");
    if (is_script(dir))
        return by_script(dir, "run", (const char *[]){ "--timeout", secs ? secs : "60", NULL });
    debug_backends_register();
    repro *r = bundle_read(dir, &was, true, &err);
    if (!r)
        return cli_fail(&err);
    const repro *one = r;
    trial_limits l = { .timeout_ms = secs ? (int64_t)(atof(secs) * 1000) : 60000 };
    if (!trial_run(&one, 1, &l, &now, &err)) {
        repro_free(r);
        return cli_fail(&err);
    }
    if (json) {
        repro_json(r, &was, &now, ledger);
        repro_free(r);
        return now.kind == SIG_passes ? 0 : 1;
    }
    printf("recorded: %s: %s\nhere:     %s%s%s\n", sig_name(was.kind), was.full, sig_name(now.kind),
           now.full[0] ? ": " : "", now.full);
    strbuf table = { 0 };
    if (ledger && (now.kind == SIG_accuracy || now.kind == SIG_passes) && trial_ledger(r, &table))
        printf("\nErrors against float64, over the largest element:\n\n%s", strbuf_str(&table));
    strbuf_clear(&table);
    if (ledger && now.kind == SIG_accuracy && trial_elements(r, &table))
        printf("\nwrong elements: %s\n", strbuf_str(&table));
    strbuf_free(&table);
    repro_free(r);
    return now.kind == SIG_passes ? 0 : 1;
}

const cli_cmd cmd_minify = {
    "minify",
    "BUNDLE|repro.py [--json] [--out DIR] [--timeout SECONDS] [--memory MIB] [--check-str TEXT]",
    "Finds the smallest graph that still fails in the same way",
    "Trials run in forked children with a time limit each, on all cores. The answer goes to\n"
    "BUNDLE/minimal, with repro.py and repro.c in the working directory too; Ctrl-C leaves the best\n"
    "so far there, and so does --most SECONDS; the same command goes on from it. A failure that\n"
    "taper.torch.debug saved is one of a backend of PyTorch's: python3 -m taper.torch minify does it.\n",
    run_minify,
    NULL
};
const cli_cmd cmd_repro = {
    "repro",
    "BUNDLE|repro.py [--ledger] [--json] [--timeout SECONDS]",
    "Runs a saved failure again: exit code 1 when it still fails, 0 when it passes",
    "--ledger prints the error of each value against float64, in eager execution and\n"
    "compiled, and how much larger it is than that of what the value is made of.\n",
    run_repro,
    NULL
};
