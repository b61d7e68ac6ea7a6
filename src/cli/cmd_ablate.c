/* cmd_ablate.c - taper ablate BUNDLE|SCRIPT: one more stage at a time, until it fails. */
#include "cli/cli.h"
#include "base/file.h"
#include "base/json.h"
#include "base/proc.h"
#include "debug/backends.h"
#include "debug/bisect.h"
#include "debug/bundle.h"
#include <stdio.h>

/* --json: what is printed at the end instead; rows go to stderr while they come. */
static bool as_json;
static strbuf json_text;
static json_w json = { &json_text };

static void row(const char *backend, const char *verdict, const char *more)
{
    FILE *out = as_json ? stderr : stdout;
    json_obj(&json);
    json_key(&json, "backend"), json_str(&json, backend);
    json_key(&json, "result"), json_str(&json, verdict);
    json_key(&json, "message"), json_str(&json, *more ? more : NULL);
    json_end(&json);
    fprintf(out, "%-28s %s%s%.*s\n", backend, verdict, *more ? ": " : "", (int)strcspn(more, "\n"), more);
    fflush(out);
}

/* fault: in words, where it is no stage. */
static void finish_json(int stage, const char *fault)
{
    json_end(&json);
    json_key(&json, "stage"), json_str(&json, stage < 0 ? NULL : bisect_stage(stage));
    json_key(&json, "backend"), json_str(&json, stage < 0 ? NULL : bisect_ladder[stage]);
    json_key(&json, "fault"), json_str(&json, fault);
    json_end(&json);
    puts(strbuf_str(&json_text));
}

static void blame(int stage, bool bundle, const char *what)
{
    if (as_json) {
        finish_json(stage, NULL);
        return;
    }
    if (stage < 0)
        printf("no backend fails here\n");
    else
        printf("the fault is in %s%s%s%s\n", bisect_stage(stage),
               stage == 3 && bundle ? "; `taper bisect " : "", stage == 3 && bundle ? what : "",
               stage == 3 && bundle ? "` names the rewrite" : "");
}

/* A saved failure: every backend of the ladder in a child of its own. */
static int ablate_bundle(const char *dir, double secs)
{
    tp_err err = { 0 };
    signature was, now;
    debug_backends_register();
    repro *r = bundle_read(dir, &was, true, &err);
    int first = -1;
    if (!r)
        return cli_fail(&err);
    r->accuracy |= was.kind == SIG_accuracy;
    bool only_fwd = r->forward_only;
    for (int i = r->inner ? 3 : 0; bisect_ladder[i]; i++) {
        const repro *one = r;
        free(r->backend);
        r->backend = mem_strdup(bisect_ladder[i]);
        r->forward_only = only_fwd || !i; /* the interpreter alone keeps no tape */
        if (!trial_run(&one, 1, &(trial_limits){ .timeout_ms = (int64_t)(secs * 1000) }, &now, &err)) {
            repro_free(r);
            return cli_fail(&err);
        }
        bool bad = now.kind != SIG_passes,
             same = was.kind == SIG_passes || sig_equal(&now, &was); /* level 3 does not know how it fails */
        row(bisect_ladder[i], !bad ? "passes" : same ? "fails" : "fails in another way", bad ? now.full : "");
        if (bad && first < 0)
            first = i;
    }
    blame(first, true, dir);
    repro_free(r);
    return first < 0 ? 0 : 1;
}

/* A program: TAPER_COMPILE_BACKEND decides for every compile that names no backend itself, or another one. */
static int ablate_script(int argc, char **argv, double secs)
{
    const char **cmd = mem_zalloc(sizeof *cmd * (size_t)(argc + 2));
    tp_err err = { 0 };
    int first = -1, rc = 0;
    cmd[0] = "python3";
    for (int i = 0; i < argc; i++)
        cmd[i + 1] = argv[i];
    strbuf plain = { 0 };
    bool own = false; /* it fails with the backends it names itself */
    for (int i = -2; !rc && (i < 0 || bisect_ladder[i]); i++) { /* not compiled, as it is, each stage */
        proc_result r = { 0 };
        strbuf how = { 0 };
        if (i != -1)
            setenv(i < 0 ? "TAPER_COMPILE_DISABLE" : "TAPER_COMPILE_BACKEND", i < 0 ? "1" : bisect_ladder[i],
                   1);
        if (!proc_run(&(proc_spec){ .argv = cmd, .timeout_ms = (int64_t)(secs * 1000) }, &r, &err)) {
            rc = cli_fail(&err);
            break;
        }
        unsetenv("TAPER_COMPILE_DISABLE");
        bool bad = r.status || r.timed_out, silent = !bad && cli_ended_early(&r, &plain);
        if (bad) {
            proc_describe(&how, &r);
            strbuf_add(&how, ": ");
            cli_error_line(&how, strbuf_str(&r.err));
        } else if (silent)
            strbuf_add(&how, "it ends early and without an error");
        row(i == -2   ? "(not compiled)"
            : i == -1 ? "(as it is)"
                      : bisect_ladder[i],
            bad || silent ? "fails" : "runs", strbuf_str(&how));
        if (bad && i == -2)
            rc = cli_usage("it also fails without the compiler, so the compiler is not at fault");
        if (i == -2)
            strbuf_add(&plain, strbuf_str(&r.out));
        own |= i == -1 && (bad || silent);
        if ((bad || silent) && first < 0 && i >= 0)
            first = i;
        strbuf_free(&how);
        proc_result_free(&r);
    }
    strbuf_free(&plain);
    if (!rc && own && first < 0) {
        static const char told[] =
            "it fails with the backend that the program names, and with none of these: that "
            "backend is at fault";
        if (as_json)
            finish_json(-1, told);
        else
            printf("%s\n", told);
        rc = 1;
    } else if (!rc) {
        blame(first, false, NULL);
        if (first < 0 && !as_json)
            printf("silent mistakes show with TAPER_REPRO_AFTER=dynamo TAPER_REPRO_LEVEL=4, or `taper "
                   "doctor`\n");
        rc = first < 0 ? 0 : 1;
    }
    free(cmd);
    return rc;
}

static int run_ablate(int argc, char **argv)
{
    cli_args a = { argc, 1, argv };
    const char *secs = NULL;
    while (a.at < argc && argv[a.at][0] == '-')
        if (cli_flag(&a, "json"))
            as_json = true;
        else if (!cli_option(&a, "timeout", &secs))
            return cli_unknown(&a);
    if (a.at >= argc)
        return cli_usage("taper ablate [--json] [--timeout SECONDS] BUNDLE | SCRIPT [ARGS ...]");
    if (secs && atof(secs) <= 0)
        return cli_usage("--timeout wants a number of seconds, not '%s'", secs);
    const char *what = argv[a.at];
    size_t n = strlen(what);
    if (!file_exists(what))
        return cli_usage("there is no '%s'", what);
    json_obj(&json);
    json_key(&json, "runs");
    json_arr(&json);
    if (n > 3 && !strcmp(what + n - 3, ".py"))
        return ablate_script(argc - a.at, argv + a.at, secs ? atof(secs) : 300);
    return a.at + 1 < argc ? cli_usage("taper ablate takes one bundle, not also '%s'", argv[a.at + 1])
                           : ablate_bundle(what, secs ? atof(secs) : 20);
}

const cli_cmd cmd_ablate = {
    "ablate",
    "[--json] [--timeout SECONDS] BUNDLE | SCRIPT [ARGS ...]",
    "Runs a saved failure or a script with one more stage at a time, and names the first that fails",
    "The backends are eager, aot_eager, aot_eager_decomp_partition, inductor; a script also runs with the "
    "one it\n"
    "names. Exit code 1 when one fails. --json: for programs, the rows go to stderr.\n",
    run_ablate,
    NULL
};
