/* native.c - a built-in backend called from Python: taper._dynamo.lookup_backend("inductor")(gm, inputs). */
#include "capture/capture.h"

static void runner_free(PyObject *c)
{
    cap_runner *r = PyCapsule_GetPointer(c, "taper.runner");
    r->free(r);
}

static PyObject *run(PyObject *c, PyObject *args)
{
    cap_runner *r = PyCapsule_GetPointer(c, "taper.runner");
    if (!r)
        return NULL;
    int nin = (int)PyTuple_GET_SIZE(args), nout = (int)(intptr_t)PyCapsule_GetContext(c);
    tp_val *in = mem_zalloc(sizeof *in * (size_t)(nin + nout + 1)), *out = in + nin;
    tp_err err = { 0 };
    PyObject *res = NULL;
    if (!py_graph_inputs(PySequence_Fast_ITEMS(args), nin, in))
        goto done;
    if (!r->run(r, in, nin, out, nout, &err)) {
        py_raise(&err);
        goto done;
    }
    res = py_val_tuple(out, nout);
done:
    free(in);
    return res;
}
static PyMethodDef run_def = { "compiled", run, METH_VARARGS, "runs the compiled graph" };

PyObject *native_runner(cap_runner *r, int nout)
{
    PyObject *c = PyCapsule_New(r, "taper.runner", NULL), *f = NULL;
    if (c && PyCapsule_SetContext(c, (void *)(intptr_t)nout) == 0)
        f = PyCFunction_New(&run_def, c);
    Py_XDECREF(c);
    return f;
}

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
    int nin = (int)PyList_GET_SIZE(inputs);
    tp_val *in = mem_zalloc(sizeof *in * (size_t)(nin + 1));
    tp_err err = { 0 };
    if (!py_graph_inputs(PySequence_Fast_ITEMS(inputs), nin, in)) {
        free(in);
        return NULL;
    }
    const cap_backend *b = cap_backend_find(name);
    ir_graph *copy = ir_graph_copy(g);
    cap_runner *r = b ? b->compile(copy, in, nin, NULL, &err) : cap_eager(copy, in, nin, NULL, &err);
    free(in);
    if (!r)
        return py_raise(&err);
    PyObject *c = PyCapsule_New(r, "taper.runner", runner_free);
    if (c)
        PyCapsule_SetContext(c, (void *)(intptr_t)(g->output ? g->output->narg : 0));
    PyObject *f = c ? PyCFunction_New(&run_def, c) : NULL;
    if (!c)
        r->free(r);
    Py_XDECREF(c);
    return f;
}

static PyMethodDef functions[] = {
    { "_graph_compile", compile, METH_VARARGS, "a captured graph through a built-in backend" }, { NULL }
};
int py_init_native(PyObject *m) { return PyModule_AddFunctions(m, functions); }
