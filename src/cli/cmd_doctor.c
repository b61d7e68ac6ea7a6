/* cmd_doctor.c - taper doctor SCRIPT: the troubleshooting guide, carried out. Runs the script without the compiler, with it,
 * one stage at a time, and with every result compared; saves, minifies and bisects what fails; writes a report. */
#include "cli/cli.h"
#include "base/file.h"
#include "base/proc.h"
#include "base/vec.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

typedef struct doctor {
    char **argv; /* of the script */
    int argc;
    char *out;       /* the directory of findings */
    char self[4096]; /* this program */
    int64_t timeout; /* of one run, ms */
    strbuf prints;   /* what the program prints without the compiler */
    strbuf report;
} doctor;

static void note(doctor *d, const char *fmt, ...) TP_PRINTF(2, 3);
static void note(doctor *d, const char *fmt, ...)
{
    va_list ap;
    size_t from = d->report.n;
    va_start(ap, fmt);
    strbuf_addv(&d->report, fmt, ap);
    va_end(ap);
    strbuf_addc(&d->report, '\n');
    fputs(d->report.s + from, stdout);
    fflush(stdout);
}

/* Runs python3 SCRIPT ARGS with these variables ("NAME=value" or NULL); they are unset again afterwards. */
static bool run_script(doctor *d, const char *const *vars, proc_result *r, tp_err *err)
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

/* Did the run end badly? */
static bool failed(const doctor *d, const proc_result *r)
{
    return r->status || r->timed_out || cli_ended_early(r, &d->prints);
}

static bool step(doctor *d, const char *what, const char *const *vars, proc_result *r, tp_err *err)
{
    strbuf how = { 0 }, said = { 0 };
    if (!run_script(d, vars, r, err))
        return false;
    if (failed(d, r) && !r->status && !r->timed_out)
        note(d, "| %s | ends early and without an error | %.1f s |", what, (double)r->wall_ns / 1e9);
    else if (failed(d, r)) {
        proc_describe(&how, r);
        cli_error_line(&said, strbuf_str(&r->err));
        note(d, "| %s | %s: `%s` | %.1f s |", what, strbuf_str(&how), strbuf_str(&said),
             (double)r->wall_ns / 1e9);
    } else
        note(d, "| %s | runs | %.1f s |", what, (double)r->wall_ns / 1e9);
    strbuf_free(&how);
    strbuf_free(&said);
    return true;
}

/* The newest bundle below out, owned, or NULL. */
static char *find_bundle(const char *out)
{
    char *top = path_join(out, "taper_compile_debug"), *best = NULL;
    DIR *dir = opendir(top);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (strncmp(e->d_name, "run_", 4))
            continue;
        char *run = path_join(top, e->d_name), *b = path_join(run, "minifier"),
             *f = path_join(b, "failure.json");
        if (file_exists(f) && (!best || strcmp(b, best) > 0)) {
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
    return best;
}

static void tool(doctor *d, const char *command, const char *bundle)
{
    const char *argv[] = { d->self, command, bundle, NULL };
    proc_result r = { 0 };
    if (proc_run(&(proc_spec){ .argv = argv, .cwd = d->out, .timeout_ms = 600000 }, &r, NULL))
        note(d, "\n`taper %s %s`:\n\n```\n%s%s```", command, bundle, strbuf_str(&r.out),
             r.status ? strbuf_str(&r.err) : "");
    proc_result_free(&r);
}

static bool examine(doctor *d, tp_err *err)
{
    static const char *const ladder[] = { "eager", "aot_eager", "aot_eager_decomp_partition", "inductor" };
    proc_result plain = { 0 }, with = { 0 }, logged = { 0 }, checked = { 0 };
    bool ok = false;
    strbuf dir = { 0 };
    strbuf_addf(&dir, "TAPER_COMPILE_DEBUG_DIR=%s", d->out);
    note(d, "# What `taper doctor` found for %s\n\n| run | outcome | time |\n| --- | --- | --- |",
         d->argv[0]);
    if (!step(d, "without the compiler", (const char *[]){ "TAPER_COMPILE_DISABLE=1", NULL }, &plain, err))
        goto done;
    if (plain.status || plain.timed_out) {
        note(d, "\nThe program also fails without the compiler, so the compiler is not at fault.");
        ok = true;
        goto done;
    }
    strbuf_addn(&d->prints, plain.out.s, plain.out.n);
    if (!step(d, "as it is", NULL, &with, err))
        goto done;
    bool own = failed(d, &with); /* and no backend of the ladder does: the program names one that does */
    if (own)
        for (size_t i = 0; i < COUNT(ladder); i++) {
            proc_result r = { 0 };
            char var[80], what[80];
            snprintf(var, sizeof var, "TAPER_COMPILE_BACKEND=%s", ladder[i]);
            snprintf(what, sizeof what, "backend `%s`", ladder[i]);
            bool went = step(d, what, (const char *[]){ var, NULL }, &r, err), bad = went && failed(d, &r);
            own &= !bad;
            proc_result_free(&r);
            if (!went)
                goto done;
            if (bad)
                break; /* this stage is the first that fails */
        }
    if (own) {
        note(d,
             "\nThe program fails with the backend that it names itself, and with none of those above: that "
             "backend is at fault, not the compiler. %s",
             with.timed_out
                 ? "It does not return: `py-spy dump` or `faulthandler.dump_traceback_later()` shows "
                   "where it is."
             : with.status < 0 ? "`python3 -X faulthandler` shows the line that kills the process."
                               : "It ends the process, as `sys.exit()` does.");
        ok = true;
        goto done;
    }
    bool died = with.status < 0 || with.timed_out;
    if (!step(d, died ? "saved before every call (level 3)" : "every result compared with eager (level 4)",
              (const char *[]){ "TAPER_REPRO_AFTER=dynamo",
                                died ? "TAPER_REPRO_LEVEL=3" : "TAPER_REPRO_LEVEL=4", strbuf_str(&dir),
                                NULL },
              &checked, err) ||
        !run_script(d, (const char *[]){ "TAPER_LOGS=graph_breaks,recompiles", NULL }, &logged, err))
        goto done;
    int breaks = count(strbuf_str(&logged.err), "] Reason: ") +
                 count(strbuf_str(&logged.err), "] Graph break from"),
        again = count(strbuf_str(&logged.err), "] Recompiling function");
    note(d, "\n%d graph break%s, %d recompile%s (`TAPER_LOGS=graph_breaks,recompiles` shows where and why).",
         breaks, plural(breaks), again, plural(again));
    char *bundle = find_bundle(d->out);
    if (bundle && failed(d, &checked)) {
        note(d, "\nThe failure is saved in %s.", bundle);
        tool(d, "minify", bundle);
        tool(d, "bisect", bundle);
        note(d, "\nAttach to a report: this file, and repro.py, repro.c and %s/minimal.", bundle);
    } else if (failed(d, &checked))
        note(d, "\nNo graph was saved: what fails is not a compiled graph. `TAPER_LOGS=+dynamo` shows how "
                "capture went.");
    else
        note(d, "\nNothing fails, and every compiled result agrees with eager.");
    free(bundle);
    ok = true;
done:
    proc_result_free(&plain);
    proc_result_free(&with);
    proc_result_free(&logged);
    proc_result_free(&checked);
    strbuf_free(&dir);
    return ok;
}

static int run_doctor(int argc, char **argv)
{
    doctor d = { .timeout = 300000 };
    const char *out = "taper_doctor", *secs = NULL;
    tp_err err = { 0 };
    cli_args a = { argc, 1, argv };
    while (a.at < argc && argv[a.at][0] == '-') {
        if (cli_option(&a, "out", &out) || cli_option(&a, "timeout", &secs))
            continue;
        return cli_unknown(&a);
    }
    if (a.at >= argc)
        return cli_usage("taper doctor [--out DIR] [--timeout SECONDS] SCRIPT [ARGS ...]");
    if (secs && atof(secs) <= 0)
        return cli_usage("--timeout wants a number of seconds, not '%s'", secs);
    d.argv = argv + a.at;
    d.argc = argc - a.at;
    if (!file_exists(d.argv[0]))
        return cli_usage("there is no file '%s'", d.argv[0]);
    if (secs)
        d.timeout = (int64_t)(atof(secs) * 1000);
    char cwd[4096];
    d.out = out[0] == '/' || !getcwd(cwd, sizeof cwd) ? mem_strdup(out) : path_join(cwd, out);
    ssize_t n = readlink("/proc/self/exe", d.self, sizeof d.self - 1);
    d.self[MAX(n, 0)] = 0;
    int rc = 0;
    char *path = path_join(d.out, "report.md");
    if (!file_mkdirs(d.out, &err) || !examine(&d, &err) || !file_write(path, d.report.s, d.report.n, &err))
        rc = cli_fail(&err);
    else
        printf("\nWritten to %s\n", path);
    free(path);
    free(d.out);
    strbuf_free(&d.report);
    strbuf_free(&d.prints);
    return rc;
}

const cli_cmd cmd_doctor = {
    "doctor",
    "[--out DIR] [--timeout SECONDS] SCRIPT [ARGS ...]",
    "Runs the troubleshooting guide on a Python script and writes what it found",
    "The script runs without the compiler, with it, one stage at a time, and with every result compared\n"
    "with eager. What fails is saved, minimised and bisected; DIR/report.md (DIR is taper_doctor unless\n"
    "told) is ready to be filed.\n",
    run_doctor,
    NULL
};
