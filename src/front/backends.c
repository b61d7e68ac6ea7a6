/* backends.c - the compiled backends (autograd stage and beyond) behind taper.compile. */
#include "front/capture.h"
#include "run/backend.h"

static bool program_run(cap_runner *r, const tp_val *in, int nin, tp_val *out, int nout, tp_err *err)
{
    return run_program_call(r->data, CX, in, nin, out, nout, err);
}

static void program_drop(cap_runner *r)
{
    run_program_free(r->data);
    ir_graph_free(r->g);
    free(r);
}

static cap_runner *compile_with(const char *name, ir_graph *g, const tp_val *in, int nin, PyObject *options,
                                tp_err *err)
{
    tp_comp c = { .err = err };
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
    if (!p)
        goto fail;
    cap_runner *r = mem_zalloc(sizeof *r);
    *r = (cap_runner){ program_run, program_drop, g, p };
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
