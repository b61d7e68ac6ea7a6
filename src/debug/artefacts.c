/* artefacts.c - a folder for each graph that is compiled:
 *   <run>/dynamo/debug.log                       everything capture said
 *   <run>/dynamo/<graph>.<n>/                    a captured graph: fx_graph_readable.py, fx_graph_runnable.py
 *   <run>/inductor/<graph>.<n>/                  one that the autograd stage made: the same, and fx_graph_transformed.py,
 *                                                ir_pre_fusion.txt, ir_post_fusion.txt, fusion.txt, output_code.c, ...
 * <run> is where failures are saved, without its last part. */
#include "debug/artefacts.h"
#include "base/envvars.h"
#include "base/file.h"
#include "debug/script.h"
#include "events/events.h"
#include <ctype.h>
#include <stdio.h>

struct artefacts {
    char *dir;
    artefacts *outer;
};
static _Thread_local artefacts *now;

bool artefacts_wanted(void) { return env_on(ENV_debug); }

static char *run_dir(void)
{
    char *d = bundle_dir(), *slash = strrchr(d, '/');
    if (slash)
        *slash = 0;
    return d;
}

static void complain(tp_err *err) /* once: the program goes on */
{
    static bool said;
    if (!said)
        ev_log(EVC_debug, EV_WARNING, NULL, "%s: artefacts are not written: %s", env_name(ENV_debug),
               err->msg);
    said = true;
    err_clear(err);
}

static void keep(const char *dir, const char *name, const char *text, size_t n, bool more)
{
    tp_err err = { 0 };
    char *path = path_join(dir, name);
    FILE *f = fopen(path, more ? "a" : "w");
    if (!f || fwrite(text, 1, n, f) != n)
        err_set(&err, ERR_runtime, "%s: %m", path);
    if (f)
        fclose(f);
    if (err.kind)
        complain(&err);
    free(path);
}

/* ---- what is said meanwhile ---- */
static const struct {
    const char *artifact, *file;
} files[] = { { "post_grad_graphs", "fx_graph_transformed.py" },
              { "ir_pre_fusion", "ir_pre_fusion.txt" },
              { "ir_post_fusion", "ir_post_fusion.txt" },
              { "fusion", "fusion.txt" },
              { "schedule", "schedule.txt" },
              { "perf_hints", "perf_hints.txt" },
              { "output_code", "output_code.c" },
              { "kernel_code", "kernel_code.txt" } };

static void heard(void *unused, const char *component, const char *artifact, const ev_cid *cid,
                  const char *text)
{
    for (size_t i = 0; now && artifact && i < COUNT(files); i++)
        if (!strcmp(files[i].artifact, artifact)) {
            strbuf b = { 0 };
            if (!strncmp(text, "Output code: \n", 14)) /* the rest compiles */
                text += 14;
            strbuf_addf(&b, "%s\n", text);
            keep(now->dir, files[i].file, b.s, b.n, true);
            strbuf_free(&b);
            return;
        }
    if (strcmp(component, "dynamo"))
        return;
    strbuf b = { 0 };
    if (cid) {
        strbuf_add(&b, "[");
        ev_cid_print(&b, cid);
        strbuf_add(&b, "] ");
    }
    strbuf_addf(&b, "%s%s%s%s\n", artifact ? "[__" : "", artifact ? artifact : "", artifact ? "] " : "",
                text);
    char *run = run_dir(), *dir = path_join(run, "dynamo");
    tp_err err = { 0 };
    if (!file_mkdirs(dir, &err))
        complain(&err);
    else
        keep(dir, "debug.log", b.s, b.n, true);
    free(run);
    free(dir);
    strbuf_free(&b);
}

void artefacts_init(void)
{
    if (artefacts_wanted())
        ev_listen(heard, NULL);
}

/* ---- one graph ---- */
artefacts *artefacts_begin(const char *backend, const char *name, bool inner, const ir_graph *g,
                           const tp_val *in, int nin)
{
    static int count;
    if (!artefacts_wanted())
        return NULL;
    artefacts *a = mem_zalloc(sizeof *a);
    tp_err err = { 0 };
    char *run = run_dir();
    strbuf b = { 0 };
    strbuf_addf(&b, "%s/%s/", run, inner ? "inductor" : "dynamo");
    for (const char *p = name; *p; p++) /* the user's word as the name of a file */
        strbuf_addc(&b, isalnum((unsigned char)*p) || *p == '_' || *p == '-' ? *p : '_');
    strbuf_addf(&b, ".%d", __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED));
    free(run);
    a->dir = strbuf_take(&b);
    if (!file_mkdirs(a->dir, &err)) {
        complain(&err);
        free(a->dir);
        free(a);
        return NULL;
    }
    ir_print(&b, g, IR_PRINT_log);
    keep(a->dir, "fx_graph_readable.py", b.s, b.n, false);
    strbuf_clear(&b);
    signature s;
    sig_set(&s, SIG_passes, "", "");
    repro *r = repro_new(g, in, nin, backend);
    bool real = env_on(ENV_debug_save_real) && !inner; /* between the stages there are only types yet */
    if (real && !bundle_write(a->dir, r, &s, &err))
        complain(&err);
    script_python(&b, r, &s, &(script_opts){ .save_dir = real ? a->dir : NULL, .compiler = backend });
    keep(a->dir, "fx_graph_runnable.py", b.s, b.n, false);
    repro_free(r);
    strbuf_free(&b);
    a->outer = now;
    now = a;
    return a;
}

void artefacts_end(artefacts *a)
{
    if (!a)
        return;
    ev_wait(NULL);
    now = a->outer;
    free(a->dir);
    free(a);
}
