/* native.c - a built-in backend called from Python: taper._dynamo.lookup_backend("inductor")(gm, inputs). */
#include "capture/capture.h"
#include "compile/options.h"
#include "run/checked.h"

static void program_free(PyObject *c) { run_program_free(PyCapsule_GetPointer(c, "taper.program")); }

static PyObject *run(PyObject *c, PyObject *const *args, Py_ssize_t nin)
{
    run_program *p = PyCapsule_GetPointer(c, "taper.program");
    if (!p)
        return NULL;
    int nout = (int)(intptr_t)PyCapsule_GetContext(c);
    tp_val *in = mem_zalloc(sizeof *in * (size_t)(nin + nout + 1)), *out = in + nin;
    tp_err err = { 0 };
    PyObject *res = NULL;
    if (!py_graph_inputs(args, nin, in))
        goto done;
    if (!run_program_call(p, CX, in, (int)nin, out, nout, &err)) {
        py_raise(&err);
        goto done;
    }
    res = py_val_tuple(out, nout);
done:
    free(in);
    return res;
}
static PyMethodDef run_def = { "compiled", (PyCFunction)(void (*)(void))run, METH_FASTCALL,
                               "runs the compiled graph" };

static PyObject *callable(run_program *p, int nout, bool own)
{
    PyObject *c = PyCapsule_New(p, "taper.program", own ? program_free : NULL), *f = NULL;
    if (!c && own)
        run_program_free(p);
    if (c && PyCapsule_SetContext(c, (void *)(intptr_t)nout) == 0)
        f = PyCFunction_New(&run_def, c);
    Py_XDECREF(c);
    return f;
}
PyObject *native_program(run_program *p, int nout) { return callable(p, nout, false); }
PyObject *native_program_take(run_program *p, int nout) { return callable(p, nout, true); }

/* _graph_compile(capsule, backend, inputs) -> callable */
static PyObject *compile(PyObject *m, PyObject *args)
{
    PyObject *cap, *inputs;
    const char *name;
    if (!PyArg_ParseTuple(args, "OsO!", &cap, &name, &PyList_Type, &inputs))
        return NULL;
    ir_graph *g = PyCapsule_GetPointer(cap, "taper.graph");
    if (!g)
        return NULL;
    Py_ssize_t nin = PyList_GET_SIZE(inputs);
    tp_val *in = mem_zalloc(sizeof *in * (size_t)(nin + 1));
    tp_err err = { 0 };
    run_program *p = NULL;
    const backend *b = backend_find(name, &err);
    run_options o = options_default();
    if (!py_graph_inputs(PySequence_Fast_ITEMS(inputs), nin, in)) {
        free(in);
        return NULL;
    }
    if (b && ir_check_inputs(g, in, (int)nin, &err)) {
        ir_graph *copy = ir_graph_copy(g);
        p = cap_compile_native(b, &o, copy, in, &err);
        ir_graph_free(copy);
    }
    free(in);
    return p ? native_program_take(checked_new(p, g), g->output ? g->output->narg : 0) : py_raise(&err);
}

static PyMethodDef functions[] = {
    { "_graph_compile", compile, METH_VARARGS, "a captured graph through a built-in backend" }, { NULL }
};
int py_init_native(PyObject *m) { return PyModule_AddFunctions(m, functions); }
