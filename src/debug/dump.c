/* dump.c - a failure on disk: bundle, scripts, and the lines that say where they are. */
#define _GNU_SOURCE
#include "debug/wrap.h"
#include "base/envvars.h"
#include "base/file.h"
#include "events/events.h"
#include <stdio.h>
#include <unistd.h>

static __thread char *last_path;

char *debug_take_path(void)
{
    char *p = last_path;
    last_path = NULL;
    return p;
}

static void remember(const char *path)
{
    free(last_path);
    last_path = mem_strdup(path);
}

/* Debugging must not take the program down: a full disk or an unwritable directory is one warning. */
static char *not_written(const tp_err *e)
{
    static bool said;
    if (!said)
        ev_log(EVC_dynamo, EV_WARNING, NULL,
               "the failure could not be saved: %s (said once; the program goes on; "
               "TAPER_COMPILE_DEBUG_DIR=DIR saves elsewhere)",
               e->msg);
    said = true;
    return NULL;
}

static char *absolute(const char *path)
{
    char cwd[4096];
    return path[0] == '/' || !getcwd(cwd, sizeof cwd) ? mem_strdup(path) : path_join(cwd, path);
}

static bool write_script(const char *path, const repro *r, const signature *s, const script_opts *o,
                         tp_err *err)
{
    strbuf b = { 0 };
    script_python(&b, r, s, o);
    bool ok = file_write(path, b.s, b.n, err);
    strbuf_free(&b);
    return ok;
}

/* A copy where the user looks first: the working directory, or the one that everything is to go to. Not being allowed to is
 * no failure. */
static void copy_here(const repro *r, const signature *s, const script_opts *o, const char *from)
{
    tp_err err = { 0 };
    const char *root = env_get(ENV_debug_dir), *dir = root && *root ? root : ".";
    char *py = root && *root ? path_join(root, "repro.py") : mem_strdup("repro.py"), *here = absolute(py),
         *c = path_join(dir, "repro.c");
    strbuf b = { 0 };
    if (access(dir, W_OK) || !write_script(here, r, s, o, &err))
        ev_log(EVC_dynamo, EV_WARNING, NULL, "No write permissions for %s", here);
    else
        ev_log(EVC_dynamo, EV_WARNING, NULL, "Copying repro file for convenience to %s", here);
    if (s->kind != SIG_compile_error && !access(dir, W_OK) && script_c(&b, r, s, &(tp_err){ 0 }))
        file_write(c, b.s, b.n, NULL);
    strbuf_free(&b);
    free(py);
    free(here);
    free(c);
}

static char *dump_graph(const char *dir, const repro *r, const signature *s, const char *compiler,
                        tp_err *err)
{
    char name[48];
    snprintf(name, sizeof name, "checkpoints/%d", r->g->nnode);
    char *data = path_join(dir, name);
    strbuf b = { 0 };
    strbuf_addf(&b, "%s.py", data);
    char *path = strbuf_take(&b);
    script_opts o = { .command = "run", .save_dir = data, .compiler = compiler };
    bool ok = bundle_write(data, r, s, err) && write_script(path, r, s, &o, err);
    if (ok) {
        ev_log(EVC_dynamo, EV_WARNING, NULL, "Writing checkpoint with %d nodes to %s", r->g->nnode, path);
        copy_here(r, s, &o, path);
    } else {
        free(path);
        path = NULL;
    }
    free(data);
    return path;
}

/* Level 3 is for programs that die without a word: what to do then is said before. */
static void say_saved(const char *dir, const char *path, bool by_script)
{
    static bool said;
    if (!said)
        ev_log(EVC_dynamo, EV_WARNING, NULL,
               "every graph is saved in %s before it is compiled and run (level 3, said once). If the "
               "process dies, run "
               "`%s %s`",
               dir, by_script ? "python" : "taper minify", by_script ? path : dir);
    said = true;
}

static char *dump_launcher(const char *dir, const repro *r, const signature *s, const char *compiler,
                           tp_err *err)
{
    char *path = path_join(dir, "minifier_launcher.py"), *sub = path_join(dir, "checkpoints");
    script_opts o = { .command = "minify", .save_dir = dir, .compiler = compiler };
    bool ok = bundle_write(dir, r, s, err) && file_mkdirs(sub, err) && write_script(path, r, s, &o, err);
    if (ok && s->kind == SIG_passes)
        say_saved(dir, path, r->setup != NULL);
    if (ok && s->kind != SIG_passes) /* level 3 saves before anything failed: quietly */
        ev_log(
            EVC_dynamo, EV_WARNING, NULL,
            r->setup
                ? "Writing minified repro to:\n%s\nThe failure is saved in %s"
                : "Writing minified repro to:\n%s\nThe failure is saved in %s; `taper minify %s` finds the "
                  "smallest graph that still shows it, without Python",
            path, dir, dir);
    free(sub);
    if (ok)
        return path;
    free(path);
    return NULL;
}

char *debug_dump(const repro *r, const signature *s, int what, const char *compiler)
{
    tp_err err = { 0 };
    char *rel = bundle_dir(), *dir = absolute(rel), *path = NULL, *other = NULL;
    if (what & DUMP_graph)
        path = dump_graph(dir, r, s, compiler, &err);
    if (what & DUMP_launcher && !err_is_set(&err)) {
        other = path;
        path = dump_launcher(dir, r, s, compiler, &err);
    }
    free(other);
    free(rel);
    if (path && s->kind != SIG_passes) {
        ev_artifact("repro", "string", NULL, path);
        bundle_events(dir, r);
        remember(path);
    }
    free(dir);
    if (path && ev_log_on(EVC_debug, EV_INFO))
        ev_log(EVC_debug, EV_INFO, NULL, "saved %s (%d operator%s, backend %s)", path, repro_ops(r),
               plural(repro_ops(r)), r->backend);
    return path ? path : not_written(&err);
}
