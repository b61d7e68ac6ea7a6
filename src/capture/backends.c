/* backends.c - the compiled backends (autograd stage and beyond) behind taper.compile. */
#include "capture/capture.h"
#include "compile/backend.h"
#include "compile/options.h"
#include "debug/backends.h"
#include "debug/wrap.h"
#include "target/c/c.h"

typedef struct runner {
    run_program *p;
    const char *name;
} runner;

static bool program_run(cap_runner *r, const tp_val *in, int nin, tp_val *out, int nout, tp_err *err)
{
    return run_program_call(((runner *)r->data)->p, CX, in, nin, out, nout, err);
}

static void program_drop(cap_runner *r)
{
    run_program_free(((runner *)r->data)->p);
    free(r->data);
    ir_graph_free(r->g);
    free(r);
}

/* {"mode": ..., "options": ..., "resolved": {name: word}}, of which the last was made by taper.compiler. */
static bool read_options(run_options *o, PyObject *options, tp_err *err)
{
    PyObject *d = options && PyDict_Check(options) ? PyDict_GetItemString(options, "resolved") : NULL, *k, *v;
    Py_ssize_t at = 0;
    while (d && PyDict_Check(d) && PyDict_Next(d, &at, &k, &v)) {
        const char *name = PyUnicode_Check(k) ? PyUnicode_AsUTF8(k) : NULL,
                   *word = PyUnicode_Check(v) ? PyUnicode_AsUTF8(v) : NULL;
        if (!name || !word)
            return err_set(err, ERR_type, "options are words by name");
        if (!options_set(o, name, word, err))
            return false;
    }
    return true;
}

static cap_runner *compile_with(const char *name, ir_graph *g, const tp_val *in, int nin, PyObject *options,
                                tp_err *err)
{
    run_options opt = options_default();
    tp_comp c = { .err = err, .opt = &opt, .decider = decide_env() };
    if (!read_options(&opt, options, err))
        goto fail;
    for (int i = 0; i < nin && i < (int)g->inputs.n; i++) { /* the types say which inputs need gradients */
        tp_tensor *t = ir_type(g->inputs.at[i]);
        if (t && in[i].kind == VAL_tensor && dtype_is_float((dtype)t->dt) && ag_requires_grad(in[i].t) &&
            !ag_set_requires_grad(CX, t, true, err))
            goto fail;
    }
    const backend *b = backend_find(name, err);
    debug_install();
    run_program *p = b ? debug_compile(&c, b, NULL, g, in, nin, NULL) : NULL;
    if (!p && err->kind == ERR_notimpl) { /* a graph this stage cannot take: say so and run it as captured */
        cap_fall_back(g->name, name, err->msg);
        err_clear(err);
        return cap_eager(g, in, nin, options, err);
    }
    if (!p)
        goto fail;
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
#include "compile/backends.def"
static const cap_backend rows[] = {
#define BACKEND(id) { #id, compile_##id },
#include "compile/backends.def"
};

/* The backends that fail on purpose. */
#define SPOILT(i)                                                                                         \
    static cap_runner *spoilt_##i(ir_graph *g, const tp_val *in, int nin, PyObject *options, tp_err *err) \
    {                                                                                                     \
        return compile_with(debug_backends[i]->name, g, in, nin, options, err);                           \
    }
SPOILT(0)
SPOILT(1)
SPOILT(2)
SPOILT(3)

/* _options() -> [(name, default, values, meaning)] */
static PyObject *list_options(PyObject *m, PyObject *x)
{
    PyObject *l = PyList_New(0);
    for (int i = 0; l && i < OPT_COUNT; i++) {
        const option_row *r = option_row_of((option_id)i);
        PyObject *t = Py_BuildValue("(ssss)", r->name, r->def, r->values, r->help);
        if (!t || PyList_Append(l, t) < 0)
            Py_CLEAR(l);
        Py_XDECREF(t);
    }
    return l;
}

static PyMethodDef functions[] = {
    { "_options", list_options, METH_NOARGS, "the table of options" },
    { NULL },
};

static bool interrupted(void *data) /* Ctrl-C while a C compiler runs for us */
{
    return PyGILState_Check() && PyErr_CheckSignals() != 0;
}

int py_init_backends(PyObject *m)
{
    static cap_backend spoilt[4] = {
        { NULL, spoilt_0 }, { NULL, spoilt_1 }, { NULL, spoilt_2 }, { NULL, spoilt_3 }
    };
    debug_backends_register();
    gen_cc_interrupted = interrupted;
    for (int i = 0; i < 4; i++) {
        spoilt[i].name = debug_backends[i]->name;
        cap_backend_add(&spoilt[i]);
    }
    run_set_opaque(cap_run_opaque);
    for (size_t i = 0; i < COUNT(rows); i++)
        if (strcmp(rows[i].name, "eager"))
            cap_backend_add(&rows[i]);
    return PyModule_AddFunctions(m, functions);
}
