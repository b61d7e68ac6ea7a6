/* bisect_versions.c - taper bisect BUNDLE --versions: which build, or which commit, was the first that fails with a saved failure. */
#include "cli/doctor.h"
#include "base/file.h"
#include "base/vec.h"
#include <stdio.h>
#include <unistd.h>

typedef struct versions {
    VEC(char *) name;    /* oldest first: paths of builds, or commits */
    const char *bundle;  /* absolute */
    const char *build;   /* command that builds a commit; NULL: these are builds */
    const char *timeout; /* seconds of one replay */
    char *tree;          /* where commits are checked out */
    tp_err *err;
} versions;

/* Runs a command in a directory (NULL: here); its exit status, or -1. out may be NULL. */
static int command(const char *const *argv, const char *cwd, strbuf *out, tp_err *err)
{
    proc_result r = { 0 };
    int rc = -1;
    if (proc_run(&(proc_spec){ .argv = argv, .cwd = cwd, .timeout_ms = 3600000 }, &r, err)) {
        rc = r.timed_out ? -1 : r.status;
        if (out)
            strbuf_addn(out, strbuf_str(&r.out), r.out.n);
    }
    proc_result_free(&r);
    return rc;
}

/* The program `taper` of a build: a directory that holds it, or build/taper below, or the file itself. */
static char *program_of(const char *path)
{
    static const char *const below[] = { "", "taper", "build/taper" };
    for (size_t i = 0; i < COUNT(below); i++) {
        char *p = *below[i] ? path_join(path, below[i]) : mem_strdup(path);
        if (file_exists(p) && !access(p, X_OK) && !file_is_dir(p))
            return p;
        free(p);
    }
    return NULL;
}

/* 1: it fails with version i, 0: it passes, -1: it cannot be told. */
static int try_version(versions *v, size_t i)
{
    const char *name = v->name.at[i];
    char *program = NULL;
    int rc = -1;
    if (v->build) {
        const char *checkout[] = { "git", "-C", v->tree, "checkout", "-q", "--detach", name, NULL },
                   *build[] = { "sh", "-c", v->build, NULL };
        if (command(checkout, NULL, NULL, v->err) == 0 && command(build, v->tree, NULL, v->err) == 0)
            program = program_of(v->tree);
    } else
        program = program_of(name);
    if (program) {
        const char *argv[] = { program, "repro", v->bundle, "--timeout", v->timeout, NULL };
        rc = command(argv, NULL, NULL, v->err);
        rc = rc == 0 || rc == 1 ? rc : -1;
    }
    printf("%-48.60s %s\n", name, rc == 1 ? "fails" : rc == 0 ? "passes" : "cannot be tried");
    fflush(stdout);
    free(program);
    return rc;
}

/* GOOD..BAD: the commits behind GOOD up to BAD, oldest first, GOOD itself in front. */
static bool commits(versions *v, const char *range)
{
    strbuf out = { 0 }, good = { 0 };
    const char *dots = strstr(range, "..");
    char *from = mem_strndup(range, (size_t)(dots - range));
    const char *list[] = { "git", "rev-list", "--reverse", "--first-parent", range, NULL },
               *one[] = { "git", "rev-parse", "--verify", "-q", from, NULL };
    bool ok = command(one, NULL, &good, v->err) == 0 && command(list, NULL, &out, v->err) == 0;
    if (ok)
        vec_push(&v->name, mem_strndup(strbuf_str(&good), strcspn(strbuf_str(&good), "\n")));
    for (const char *s = strbuf_str(&out); ok && *s;) {
        size_t n = strcspn(s, "\n");
        vec_push(&v->name, mem_strndup(s, n));
        s += n + (s[n] == '\n');
    }
    free(from);
    strbuf_free(&good);
    strbuf_free(&out);
    return ok || err_set(v->err, ERR_value, "git knows no commits %s here", range);
}

static void builds(versions *v, const char *list) /* separated by commas */
{
    for (const char *s = list; *s;) {
        size_t n = strcspn(s, ",");
        if (n)
            vec_push(&v->name, mem_strndup(s, n));
        s += n + (s[n] == ',');
    }
}

/* The first that fails, given that the oldest passes and the newest fails. What cannot be tried is stepped over. */
static int search(versions *v)
{
    size_t lo = 0, hi = v->name.n - 1;
    int first = try_version(v, lo), last = first == 0 ? try_version(v, hi) : -1;
    if (first != 0)
        return cli_usage(first == 1 ? "the oldest version fails, too: %s"
                                    : "the oldest version cannot be tried: %s",
                         v->name.at[0]);
    if (last != 1)
        return cli_usage(last == 0 ? "the newest version passes: %s"
                                   : "the newest version cannot be tried: %s",
                         v->name.at[hi]);
    bool *untold = mem_zalloc(v->name.n);
    for (;;) {
        size_t mid = lo + (hi - lo) / 2, at = 0; /* the nearest to the middle that can be tried */
        for (size_t k = lo + 1; k < hi; k++)
            if (!untold[k] && (!at || (k > mid ? k - mid : mid - k) < (at > mid ? at - mid : mid - at)))
                at = k;
        if (!at)
            break;
        int rc = try_version(v, at);
        untold[at] = rc < 0;
        if (rc == 1)
            hi = at;
        else if (rc == 0)
            lo = at;
    }
    free(untold);
    printf("the first version that fails: %s\n", v->name.at[hi]);
    if (hi - lo > 1)
        printf("or one of the %zu before it, which could not be tried\n", hi - lo - 1);
    if (v->build) {
        const char *show[] = {
            "git", "show", "-s", "--format=%h %ad %s", "--date=short", v->name.at[hi], NULL
        };
        strbuf out = { 0 };
        if (command(show, NULL, &out, NULL) == 0)
            printf("%s", strbuf_str(&out));
        strbuf_free(&out);
    }
    return 0;
}

int bisect_versions(const char *bundle, const char *list, const char *build, const char *timeout)
{
    tp_err err = { 0 };
    versions v = { .build = build, .timeout = timeout ? timeout : "60", .err = &err };
    char cwd[4096];
    char *full = bundle[0] == '/' || !getcwd(cwd, sizeof cwd) ? mem_strdup(bundle) : path_join(cwd, bundle);
    bool range = strstr(list, "..") && !file_exists(list);
    int rc;
    v.bundle = full;
    if (range && !v.build)
        v.build = "make build";
    if (!range) {
        v.build = NULL;
        builds(&v, list);
    } else if (commits(&v, list) && (v.tree = file_temp_dir(NULL, "taper-versions-", &err))) {
        const char *add[] = { "git", "worktree", "add", "-q", "--detach", v.tree, v.name.at[0], NULL };
        rmdir(v.tree);
        if (command(add, NULL, NULL, &err))
            err_set(&err, ERR_value, "git worktree add failed for %s", v.tree);
    }
    if (err_is_set(&err))
        rc = cli_fail(&err);
    else if (v.name.n < 2)
        rc = cli_usage(
            "--versions wants at least two builds, the oldest first (A,B,...), or commits GOOD..BAD");
    else
        rc = search(&v);
    if (v.tree) {
        const char *gone[] = { "git", "worktree", "remove", "--force", v.tree, NULL };
        command(gone, NULL, NULL, NULL);
        file_remove_tree(v.tree, NULL);
    }
    for (size_t i = 0; i < v.name.n; i++)
        free(v.name.at[i]);
    vec_free(&v.name);
    free(v.tree);
    free(full);
    return rc;
}
