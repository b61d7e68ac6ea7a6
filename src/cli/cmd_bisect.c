/* cmd_bisect.c - taper bisect BUNDLE: the stage and the rewrite at fault. */
#include "cli/cli.h"
#include "base/proc.h"
#include "debug/backends.h"
#include "debug/bisect.h"
#include "debug/bundle.h"
#include "ir/decide.h"
#include <stdio.h>
#include <unistd.h>

static void line(void *data, const char *text)
{
    printf("%s\n", text);
    fflush(stdout);
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

static int run_bisect(int argc, char **argv)
{
    tp_err err = { 0 };
    signature was, now;
    cli_args a = { argc, 1, argv };
    const char *dir = NULL, *secs = NULL;
    while (a.at < argc) {
        if (cli_option(&a, "timeout", &secs))
            continue;
        if (argv[a.at][0] == '-')
            return cli_unknown(&a);
        dir = argv[a.at++];
    }
    if (!dir)
        return cli_usage("taper bisect BUNDLE [--timeout SECONDS]");
    if (secs && atof(secs) <= 0)
        return cli_usage("--timeout wants a number of seconds, not '%s'", secs);
    debug_backends_register();
    repro *r = bundle_read(dir, &was, true, &err);
    if (!r)
        return cli_fail(&err);
    const repro *one = r;
    trial_limits l = { .timeout_ms = secs ? (int64_t)(atof(secs) * 1000) : 20000 };
    bisect_result b = { 0 };
    int rc = 0;
    if (!trial_run(&one, 1, &l, &now, &err))
        rc = cli_fail(&err);
    else if (now.kind == SIG_passes)
        rc = cli_usage("it does not fail here; %s: %s was recorded", sig_name(was.kind), was.full);
    else if (!bisect(r, &now, &l, line, NULL, &b, &err))
        rc = cli_fail(&err);
    else
        report(&b, r);
    bisect_free(&b);
    repro_free(r);
    return rc;
}

const cli_cmd cmd_bisect = {
    "bisect",
    "BUNDLE [--timeout SECONDS]",
    "Names the stage and the rewrite that make a saved failure",
    "Runs the backends one more stage at a time, then refuses the optional rewrites of the first that\n"
    "fails (decompositions, fusions, recomputation, ...) until the ones that matter are left.\n",
    run_bisect,
    NULL
};
