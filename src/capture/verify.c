/* verify.c - config.verify_correctness: every graph runs once as captured and once compiled, and the results are
 * compared; config.replay_record_enabled: a frame that cannot be captured is written down. Python does both. */
#include "capture/capture.h"

bool cap_wants_verify(void) { return cfg_bool("verify_correctness", false); }

/* copy: of the graph before it was compiled; taken over. False with an exception. */
bool cap_verify(entry *e, run_program *r, ir_graph *copy, PyObject *const *in, int nin)
{
    PyObject *g = graph_view(copy), *list = PyList_New(nin), *fn = NULL, *m = NULL, *ok = NULL;
    for (int i = 0; list && i < nin; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(in[i]));
    if (g && list && (fn = native_program(r, e->nout)) && (m = PyImport_ImportModule("taper._dynamo.verify")))
        ok = PyObject_CallMethod(m, "check", "OOOO", g, fn, list, e->cfg->backend);
    bool good = ok != NULL;
    Py_XDECREF(g);
    Py_XDECREF(list);
    Py_XDECREF(fn);
    Py_XDECREF(m);
    Py_XDECREF(ok);
    return good;
}

/* The exception that is set ended the capture of this frame; it stays set. */
void cap_record_failure(const region *r, const frame *f, int line)
{
    if (!cfg_bool("replay_record_enabled", false) || !f->func)
        return;
    PyObject *ty, *v, *tb;
    PyErr_Fetch(&ty, &v, &tb);
    PyErr_NormalizeException(&ty, &v, &tb);
    PyObject *locals = PyDict_New(), *m = PyImport_ImportModule("taper._dynamo.replay_record"), *x = NULL;
    for (int i = 0; locals && i < f->cc->nfast; i++) {
        PyObject *o = f->fast[i];
        if (o && PyCell_Check(o) && (f->cc->kinds[i] & 0xc0))
            o = PyCell_GET(o);
        if (o)
            PyDict_SetItem(locals, PyTuple_GET_ITEM(f->cc->localsplus, i), o);
    }
    if (locals && m)
        x = PyObject_CallMethod(m, "write", "OOOii", f->func, locals, v ? v : Py_None, line, r->ip);
    if (!x)
        PyErr_WriteUnraisable(f->func);
    Py_XDECREF(x);
    Py_XDECREF(locals);
    Py_XDECREF(m);
    PyErr_Clear();
    PyErr_Restore(ty, v, tb);
}
