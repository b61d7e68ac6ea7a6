/* backends.c - the compiled backends (autograd stage and beyond) behind taper.compile. */
#include "front/capture.h"
#include "run/backend.h"
#include "base/envvars.h"
#include "debug/bundle.h"

/* Failures are saved when TAPER_REPRO_AFTER asks for it (docs/debugging.md); level 3 saves before every call, level
 * 4 compares every call with eager. The user's error stays as it is, with one line that says where the bundle is. */
static int repro_level(void)
{
    const char *after = env_get(ENV_repro_after);
    if (!after || !*after)
        return 0;
    if (strcmp(after, "dynamo") && strcmp(after, "aot"))
        return -1;
    return (int)env_int(ENV_repro_level, 2);
}

static void save_failure(const char *backend, ir_graph *g, const tp_val *in, int nin, sig_kind kind,
                         bool accuracy, tp_err *err)
{
    tp_err w = { 0 };
    repro *r = repro_new(g, in, nin, backend);
    signature s = { .kind = kind };
    char *dir = bundle_dir();
    r->accuracy = accuracy;
    snprintf(s.full, sizeof s.full, "%s", err->msg);
    bool ok = bundle_write(dir, r, &s, &w);
    if (ok && kind != SIG_passes) /* level 3 saves without a failure: quietly */
        fprintf(stderr,
                "taper: the failure is saved in %s; `taper minify %s` finds the smallest graph that still "
                "shows it\n",
                dir, dir);
    else if (!ok)
        fprintf(stderr, "taper: the failure could not be saved: %s\n", w.msg);
    free(dir);
    repro_free(r);
}

typedef struct runner {
    run_program *p;
    const char *name;
} runner;

static bool checked_run(cap_runner *r, const tp_val *in, int nin, tp_val *out, int nout, tp_err *err,
                        int level)
{
    runner *x = r->data;
    if (level == 3) { /* before anything can kill the process */
        tp_err none = { .kind = ERR_none };
        save_failure(x->name, r->g, in, nin, SIG_passes, false, &none);
    }
    if (level == 4) {
        repro *one = repro_new(r->g, in, nin, x->name);
        signature s;
        one->accuracy = true;
        trial_here(one, &s);
        repro_free(one);
        if (s.kind == SIG_accuracy) {
            err_set(err, ERR_accuracy, "Bad accuracy detected: %s", s.full);
            save_failure(x->name, r->g, in, nin, SIG_accuracy, true, err);
            return false;
        }
    }
    bool ok = run_program_call(x->p, CX, in, nin, out, nout, err);
    if (!ok && level != 3)
        save_failure(x->name, r->g, in, nin, SIG_exception, false, err);
    return ok;
}

static bool program_run(cap_runner *r, const tp_val *in, int nin, tp_val *out, int nout, tp_err *err)
{
    int level = repro_level();
    if (TP_UNLIKELY(level > 0))
        return checked_run(r, in, nin, out, nout, err, level);
    return run_program_call(((runner *)r->data)->p, CX, in, nin, out, nout, err);
}

static void program_drop(cap_runner *r)
{
    run_program_free(((runner *)r->data)->p);
    free(r->data);
    ir_graph_free(r->g);
    free(r);
}

static cap_runner *compile_with(const char *name, ir_graph *g, const tp_val *in, int nin, PyObject *options,
                                tp_err *err)
{
    tp_comp c = { .err = err };
    if (repro_level() < 0) {
        err_set(err, ERR_assertion, "%s must be 'dynamo' or 'aot', not '%.60s'", env_name(ENV_repro_after),
                env_get(ENV_repro_after));
        goto fail;
    }
    for (int i = 0; i < nin && i < (int)g->inputs.n; i++) { /* the types say which inputs need gradients */
        tp_tensor *t = ir_type(g->inputs.at[i]);
        if (t && in[i].kind == VAL_tensor && dtype_is_float((dtype)t->dt) && ag_requires_grad(in[i].t) &&
            !ag_set_requires_grad(CX, t, true, err))
            goto fail;
    }
    run_program *p = backend_compile(&c, name, g);
    if (!p && err->kind == ERR_notimpl) { /* a graph this stage cannot take: say so and run it as captured */
        if (ev_log_on(EVC_aot, EV_WARNING))
            ev_log(EVC_aot, EV_WARNING, NULL, "backend '%s': %s", name, err->msg);
        err_clear(err);
        return cap_eager(g, in, nin, options, err);
    }
    if (!p) {
        if (repro_level() == 1 || repro_level() == 2)
            save_failure(name, g, in, nin, SIG_compile_error, false, err);
        goto fail;
    }
    cap_runner *r = mem_zalloc(sizeof *r);
    runner *x = mem_zalloc(sizeof *x);
    *x = (runner){ p, name };
    *r = (cap_runner){ program_run, program_drop, g, x };
    return r;
fail:
    ir_graph_free(g);
    return NULL;
}

/* One entry point a row, since a backend's compile function is told no name. */
#define ROW(id)                                                                                             \
    static cap_runner *compile_##id(ir_graph *g, const tp_val *in, int nin, PyObject *options, tp_err *err) \
    {                                                                                                       \
        return compile_with(#id, g, in, nin, options, err);                                                 \
    }
#define BACKEND(id) ROW(id)
#include "run/backends.def"
static const cap_backend rows[] = {
#define BACKEND(id) { #id, compile_##id },
#include "run/backends.def"
};

int py_init_backends(PyObject *m)
{
    run_set_opaque(cap_run_opaque);
    for (size_t i = 0; i < COUNT(rows); i++)
        if (strcmp(rows[i].name, "eager"))
            cap_backend_add(&rows[i]);
    return 0;
}
