/* trace_log.c - calls that print or log while tracing (config.reorderable_logging_functions, ignore_logging_functions),
 * and switches of what a graph break means. */
#include "capture/capture.h"

static bool listed(const char *setting, PyObject *f)
{
    PyObject *s = cfg_obj(setting);
    if (!s || !PyAnySet_Check(s) || !PySet_GET_SIZE(s))
        return false;
    int in = PySet_Contains(s, f);
    if (in == 0 && PyMethod_Check(f))
        in = PySet_Contains(s, PyMethod_GET_FUNCTION(f));
    PyErr_Clear();
    return in == 1;
}

/* May this wait until the graph has run? */
static bool can_wait(trace *t, PyObject *o)
{
    if (!(o = t_real(t, o)))
        return false;
    if (py_is_tensor(o) || t_plain_const(o) || py_is_symint(o))
        return true;
    if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
            if (!can_wait(t, PySequence_Fast_GET_ITEM(o, i)))
                return false;
        return true;
    }
    return false;
}

/* f(*args, **kw) after the graph, with what the values are then. */
bool t_call_later(trace *t, PyObject *f, PyObject *args, PyObject *kw)
{
    PyObject *call = Py_NewRef(f);
    if (kw && PyDict_GET_SIZE(kw)) {
        PyObject *m = PyImport_ImportModule("functools"),
                 *p = m ? PyObject_GetAttrString(m, "partial") : NULL, *a = PyTuple_Pack(1, f);
        Py_SETREF(call, p && a ? PyObject_Call(p, a, kw) : NULL);
        Py_XDECREF(m);
        Py_XDECREF(p);
        Py_XDECREF(a);
    }
    PyObject *pair = call ? PyTuple_Pack(2, call, args) : NULL;
    if (!t->params_seen)
        t->params_seen = PyList_New(0);
    bool ok = pair && t->params_seen && PyList_Append(t->params_seen, pair) == 0;
    Py_XDECREF(call);
    Py_XDECREF(pair);
    return ok;
}

PyObject *t_logging(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw,
                    bool *handled)
{
    *handled = true;
    if (listed("ignore_logging_functions", f))
        Py_RETURN_NONE;
    if (!listed("reorderable_logging_functions", f)) {
        *handled = false;
        return NULL;
    }
    PyObject *a = PyTuple_New(nargs), *d = PyDict_New(), *r = NULL;
    for (Py_ssize_t i = 0; a && d && i < nargs + (kw ? PyTuple_GET_SIZE(kw) : 0); i++) {
        PyObject *o = t_real(t, args[i]);
        if (!o)
            goto done;
        if (!can_wait(t, o) || (i >= nargs && py_is_tensor(o))) {
            t_break(t, BRK_print,
                    "logging function with a %s argument, which cannot wait until the graph has run",
                    Py_TYPE(o)->tp_name);
            goto done;
        }
        if (i < nargs)
            PyTuple_SET_ITEM(a, i, Py_NewRef(o));
        else if (PyDict_SetItem(d, PyTuple_GET_ITEM(kw, i - nargs), o) < 0)
            goto done;
    }
    if (a && d && t_call_later(t, f, a, d))
        r = Py_NewRef(Py_None);
done:
    Py_XDECREF(a);
    Py_XDECREF(d);
    return r;
}

/* ---- error_on_graph_break ---- */
static int error_breaks; /* of native code: what captures begin with */
bool cap_error_breaks(void) { return error_breaks; }

static PyObject *set_error_breaks(PyObject *m, PyObject *on)
{
    int was = error_breaks, now = PyObject_IsTrue(on);
    if (now < 0)
        return NULL;
    error_breaks = now;
    return PyBool_FromLong(was);
}

static PyMethodDef functions[] = {
    { "_capture_error_breaks", set_error_breaks, METH_O, "are graph breaks errors?" }, { NULL }
};

/* While tracing: from here on, and for native code that follows the graph. */
PyObject *t_error_breaks(trace *t, PyObject *f, PyObject *on)
{
    if (!(on = t_real(t, on)))
        return NULL;
    bool was = t->error_breaks;
    t->error_breaks = on == Py_True;
    PyObject *a = PyTuple_Pack(1, on);
    bool ok = a && t_call_later(t, f, a, NULL);
    Py_XDECREF(a);
    return ok ? PyBool_FromLong(was) : NULL;
}

int py_init_tlog(PyObject *m) { return PyModule_AddFunctions(m, functions); }
