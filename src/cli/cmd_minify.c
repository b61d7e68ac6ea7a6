/* cmd_minify.c - taper minify BUNDLE: the smallest graph that still fails; taper repro BUNDLE: does it fail here? */
#include "cli/cli.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "debug/bundle.h"
#include "debug/minify.h"
#include <signal.h>
#include <stdio.h>

static volatile sig_atomic_t stop;
static void on_int(int sig) { stop = 1; }
static bool interrupted(void *data) { return stop != 0; }

static void line(void *data, const char *text)
{
    fprintf(stderr, "%s\n", text);
    fflush(stderr);
}

typedef struct where {
    char *dir;
    signature sig;
} where;
static void keep_best(void *data, const repro *r,
                      int nodes) /* an interrupted search leaves the best so far */
{
    where *w = data;
    tp_err err = { 0 };
    bundle_write(w->dir, r, &w->sig, &err);
}

static repro *open_bundle(const char *dir, signature *s, tp_err *err)
{
    size_t n;
    arena a = { 0 };
    char *path = path_join(dir, "failure.json"), *text = file_read(path, 1 << 20, &n, NULL);
    const json_val *j = text ? json_parse(&a, text, n, NULL) : NULL;
    const char *inject = j ? json_cstr(json_get(j, "inject")) : NULL;
    if (inject && *inject && fault_set(inject, err))
        fprintf(stderr, "taper: the bundle was made with planted faults (%s)\n", inject);
    arena_free(&a);
    free(text);
    free(path);
    return bundle_read(dir, s, err);
}

static int run_minify(int argc, char **argv)
{
    cli_args a = { argc, 1, argv };
    const char *dir = NULL, *out = NULL, *secs = NULL;
    tp_err err = { 0 };
    while (a.at < a.argc) {
        if (cli_option(&a, "out", &out) || cli_option(&a, "timeout", &secs))
            continue;
        if (argv[a.at][0] == '-')
            return cli_unknown(&a);
        dir = argv[a.at++];
    }
    if (!dir)
        return cli_usage("taper minify BUNDLE [--out DIR] [--timeout SECONDS]");
    where w = { 0 };
    repro *r = open_bundle(dir, &w.sig, &err);
    if (!r)
        return cli_fail(&err);
    w.dir = out ? mem_strdup(out) : path_join(dir, "minimal");
    signal(SIGINT, on_int);
    minify_opts o = { .limits = { .timeout_ms = secs ? (int64_t)(atof(secs) * 1000) : 20000,
                                  .interrupted = interrupted },
                      .progress = line,
                      .best = keep_best,
                      .data = &w };
    minify_stats st;
    repro *m = minify(r, &o, &st, &err);
    int rc = 1;
    if (!m)
        rc = cli_fail(&err);
    else {
        w.sig = st.sig;
        if (!bundle_write(w.dir, m, &st.sig, &err))
            rc = cli_fail(&err);
        else {
            strbuf b = { 0 };
            ir_print(&b, m->g, IR_PRINT_log);
            printf(
                "%s\n%s: %s\nWrote the minimal failure to %s (graph.py, inputs.safetensors, failure.json)\n",
                strbuf_str(&b), sig_name(st.sig.kind), st.sig.full, w.dir);
            strbuf_free(&b);
            rc = 0;
        }
    }
    repro_free(m);
    repro_free(r);
    free(w.dir);
    return rc;
}

static int run_repro(int argc, char **argv)
{
    tp_err err = { 0 };
    signature was, now;
    if (argc != 2)
        return cli_usage("taper repro BUNDLE");
    repro *r = open_bundle(argv[1], &was, &err);
    if (!r)
        return cli_fail(&err);
    const repro *one = r;
    trial_limits l = { .timeout_ms = 60000 };
    if (!trial_run(&one, 1, &l, &now, &err)) {
        repro_free(r);
        return cli_fail(&err);
    }
    printf("recorded: %s: %s\nhere:     %s%s%s\n", sig_name(was.kind), was.full, sig_name(now.kind),
           now.full[0] ? ": " : "", now.full);
    repro_free(r);
    return now.kind == SIG_passes ? 0 : 1;
}

const cli_cmd cmd_minify = {
    "minify",
    "BUNDLE [--out DIR] [--timeout SECONDS]",
    "Finds the smallest graph that still fails in the same way",
    "Trials run in forked children with a time limit each, on all cores. The answer goes to\n"
    "BUNDLE/minimal; Ctrl-C leaves the best so far there.\n",
    run_minify,
    NULL
};
const cli_cmd cmd_repro = {
    "repro", "BUNDLE",  "Runs a saved failure again: exit code 1 when it still fails, 0 when it passes",
    NULL,    run_repro, NULL
};
