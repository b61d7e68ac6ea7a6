/* cmd_bisect.c - taper bisect BUNDLE: the stage and the rewrite at fault. */
#include "cli/doctor.h"
#include "base/file.h"
#include "debug/backends.h"
#include "debug/bisect.h"
#include "debug/bundle.h"
#include "ir/decide.h"
#include <stdio.h>
#include <unistd.h>

static void line(void *data, const char *text)
{
    FILE *out = *(bool *)data ? stderr : stdout; /* --json: progress is not the answer */
    fprintf(out, "%s\n", text);
    fflush(out);
}

static void report_json(const bisect_result *b, const repro *r)
{
    strbuf text = { 0 };
    json_w w = { &text };
    json_obj(&w);
    json_key(&w, "stage");
    json_str(&w, b->stage < 0 ? NULL : b->cut ? "partition" : bisect_stage(b->stage));
    json_key(&w, "backend"), json_str(&w, r->backend);
    json_key(&w, "rewrites"), json_int(&w, b->stage < 0 ? 0 : b->nsite);
    json_key(&w, "passes_without_them"), json_bool(&w, b->stage >= 0 && b->nsite && !b->without);
    json_key(&w, "culprits");
    json_arr(&w);
    for (size_t i = 0, at = 0; b->stage >= 0 && i < b->set.n; at += (size_t)b->set.at[i++]) {
        json_arr(&w);
        for (size_t k = at; k < at + (size_t)b->set.at[i]; k++)
            json_str(&w, b->found.at[k].site);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    puts(strbuf_str(&text));
    strbuf_free(&text);
}

static void print_set(const bisect_result *b, int from, int n)
{
    printf("culprit%s:\n", n > 1 ? "s (together)" : "");
    for (int i = from; i < from + n; i++) {
        const char *s = b->found.at[i].site;
        decide_kind k;
        printf("  %s", s);
        if (decide_by_name(s, strcspn(s, ":"), &k))
            printf("   (%s)", decide_what(k));
        printf("\n");
    }
}

static void report(const bisect_result *b, const repro *r)
{
    if (b->stage < 0) {
        if (backend_find(r->backend, NULL))
            printf("no backend fails in the recorded way here\n");
        else
            printf(
                "it was recorded with backend '%s', a Python function of the program, and fails with none of "
                "these: that backend is at fault\n",
                r->backend);
        return;
    }
    printf("the fault is in %s\n",
           b->cut ? "the cut between forward and backward (partition)" : bisect_stage(b->stage));
    if (!b->nsite) {
        printf("no optional rewrites were made\n");
        return;
    }
    printf("%d optional rewrite%s made; refusing %s %s\n", b->nsite, b->nsite == 1 ? " was" : "s were",
           b->nsite == 1 ? "it" : "all of them",
           b->without ? "changes nothing: the fault is in what always happens" : "makes it pass");
    for (size_t i = 0, at = 0; i < b->set.n; at += (size_t)b->set.at[i++])
        print_set(b, (int)at, b->set.at[i]);
}

/* ---- a program instead of a saved failure ---- */
static int usage(void)
{
    return cli_usage("taper bisect [--json] BUNDLE [--timeout SECONDS] | SCRIPT [ARGS ...] --oracle "
                     "COMMAND|--expect FILE | BUNDLE "
                     "--versions BUILD,BUILD,...|GOOD..BAD [--build COMMAND]");
}

/* Which stage, use of a compiled region, guard or instruction makes a program wrong, where somebody else says what is right. */
static int bisect_script(char **argv, int argc, const char *oracle, const char *expect, bool json)
{
    tp_err err = { 0 };
    doctor d = { .argv = argv, .argc = argc, .timeout = 300000, .oracle = oracle };
    char *dir = file_temp_dir(NULL, "taper-bisect-", &err);
    int stage, rc = 1;
    if (!dir)
        return cli_fail(&err);
    d.out = dir;
    d.crumbs = path_join(dir, "crumbs");
    d.regions = path_join(dir, "regions");
    d.audit = path_join(dir, "audit");
    d.runs.out = &d.runs_text;
    json_arr(&d.runs);
    if (expect) {
        size_t n;
        char *text = file_read(expect, 64 << 20, &n, &err);
        if (text) {
            strbuf_addn(&d.plain.out, text, n);
            strbuf_addn(&d.also.out, text, n);
        }
        free(text);
    } else
        doc_run(&d, "without the compiler", (const char *[]){ "TAPER_COMPILE_DISABLE=1", NULL }, &d.plain,
                &err);
    if (err_is_set(&err))
        rc = cli_fail(&err);
    else if (oracle && doc_wrong(&d, &d.plain))
        rc = cli_usage("the program is wrong without the compiler, too");
    else if (!(stage = doc_try(&d, "as it is", NULL, &err)))
        rc = cli_usage("the program is right as it is: there is nothing to look for");
    else if (stage < 0 || (stage = doc_climb(&d, &err)) == -2)
        rc = cli_fail(&err);
    else {
        const char *name = stage < 0 ? "the backend that the program names itself" : bisect_stage(stage);
        if (stage >= 0 && !doc_hunt(&d, bisect_ladder[stage], stage == 0, &err))
            rc = cli_fail(&err);
        else {
            if (json) {
                strbuf text = { 0 };
                json_w w = { &text };
                json_obj(&w);
                json_key(&w, "stage"), json_str(&w, d.stage.n ? d.stage.s : name);
                json_key(&w, "at"), json_str(&w, d.place.n ? d.place.s : NULL);
                json_key(&w, "report"), json_str(&w, strbuf_str(&d.report));
                json_end(&w);
                puts(strbuf_str(&text));
                strbuf_free(&text);
            } else {
                printf("the fault is in %s\n", d.stage.n ? d.stage.s : name);
                if (d.place.n)
                    printf("at %s\n", d.place.s);
                printf("%s", strbuf_str(&d.report));
                if (stage > 0)
                    printf("\nThe graph is captured right: `taper doctor %s` names the operator and the "
                           "rewrite.\n",
                           argv[0]);
            }
            rc = 0;
        }
    }
    file_remove_tree(dir, NULL);
    proc_result_free(&d.plain);
    proc_result_free(&d.also);
    strbuf *const owned[] = { &d.table, &d.report, &d.runs_text, &d.stage, &d.place };
    for (size_t i = 0; i < COUNT(owned); i++)
        strbuf_free(owned[i]);
    free(d.crumbs);
    free(d.regions);
    free(d.audit);
    free(dir);
    return rc;
}

static int run_bisect(int argc, char **argv)
{
    tp_err err = { 0 };
    signature was, now;
    cli_args a = { argc, 1, argv };
    const char *dir = NULL, *secs = NULL, *oracle = NULL, *expect = NULL, *list = NULL, *build = NULL;
    char **rest = mem_zalloc(sizeof *rest * (size_t)argc);
    int n = 0, rc = 0;
    bool json = false;
    while (a.at < argc) {
        if (!n && cli_flag(&a, "json")) { /* behind a script it is the script's */
            json = true;
            continue;
        }
        if (cli_option(&a, "timeout", &secs) || cli_option(&a, "oracle", &oracle) ||
            cli_option(&a, "expect", &expect) || cli_option(&a, "versions", &list) ||
            cli_option(&a, "build", &build))
            continue;
        rest[n++] = argv[a.at++];
    }
    dir = n ? rest[0] : NULL;
    if (list && json) {
        free(rest);
        return cli_usage("--versions has no --json: its lines are one build each");
    }
    if (list && !oracle && !expect && n == 1 && dir[0] != '-') {
        rc = bisect_versions(dir, list, build, secs);
        free(rest);
        return rc;
    }
    if (oracle || expect)
        rc = dir && !(oracle && expect) ? bisect_script(rest, n, oracle, expect, json) : usage();
    else if (n != 1 || rest[0][0] == '-')
        rc = usage();
    free(rest);
    if (rc || oracle || expect)
        return rc;
    if (secs && atof(secs) <= 0)
        return cli_usage("--timeout wants a number of seconds, not '%s'", secs);
    debug_backends_register();
    repro *r = bundle_read(dir, &was, true, &err);
    if (!r)
        return cli_fail(&err);
    const repro *one = r;
    trial_limits l = { .timeout_ms = secs ? (int64_t)(atof(secs) * 1000) : 20000 };
    bisect_result b = { 0 };
    if (!trial_run(&one, 1, &l, &now, &err))
        rc = cli_fail(&err);
    else if (now.kind == SIG_passes)
        rc = cli_usage("it does not fail here; %s: %s was recorded", sig_name(was.kind), was.full);
    else if (!bisect(r, &now, &l, line, &json, &b, &err))
        rc = cli_fail(&err);
    else if (json)
        report_json(&b, r);
    else
        report(&b, r);
    bisect_free(&b);
    repro_free(r);
    return rc;
}

const cli_cmd cmd_bisect = {
    "bisect",
    "[--json] BUNDLE [--timeout SECONDS] [--versions BUILD,...|GOOD..BAD [--build COMMAND]] | SCRIPT [ARGS "
    "...] "
    "--oracle COMMAND|--expect FILE",
    "Names the stage and the rewrite that make a saved failure, or what makes a program wrong",
    "Runs the backends one more stage at a time, then refuses the optional rewrites of the first that\n"
    "fails (decompositions, fusions, recomputation, ...) until the ones that matter are left.\n"
    "A program: COMMAND reads what it prints and exits with 0 when that is right, or FILE holds what it has\n"
    "to print. The first use of a compiled region that makes it wrong is found, then the guard that is\n"
    "missing or the instruction that is captured wrong.\n"
    "--versions: the first of several builds (the oldest first), or of the commits behind GOOD, that fails;\n"
    "commits are checked out beside the repository and built by COMMAND (make build unless told).\n",
    run_bisect,
    NULL
};
