/* profile.c - the recorder of base/profile.h from Python. */
#include "base/profile.h"
#include "python/py.h"

static PyObject *f_begin(PyObject *m, PyObject *unused)
{
    profile_begin();
    Py_RETURN_NONE;
}

static PyObject *f_range(PyObject *m, PyObject *args)
{
    const char *name;
    long long from;
    if (!PyArg_ParseTuple(args, "sL:_profile_range", &name, &from))
        return NULL;
    profile_add(PROFILE_region, name, NULL, 0, from);
    Py_RETURN_NONE;
}

static PyObject *f_end(PyObject *m, PyObject *unused)
{
    static const char *const kinds[] = { "op", "kernel", "call", "region" };
    profile_list l = profile_end();
    PyObject *r = PyList_New((Py_ssize_t)l.n);
    for (size_t i = 0; r && i < l.n; i++) {
        const profile_event *e = &l.at[i];
        PyObject *t = Py_BuildValue("(sszLLii)", kinds[e->kind], e->name, e->file, (long long)e->from,
                                    (long long)e->to, e->line, e->thread);
        if (!t)
            Py_CLEAR(r);
        else
            PyList_SET_ITEM(r, (Py_ssize_t)i, t);
    }
    profile_list_free(&l);
    return r;
}

static PyMethodDef functions[] = {
    { "_profile_begin", f_begin, METH_NOARGS, "record the times of operators and kernels from here on" },
    { "_profile_range", f_range, METH_VARARGS, "_profile_range(name, from): a range of the program ends" },
    { "_profile_end", f_end, METH_NOARGS,
      "stop; [(kind, name, file or None, from, to, line, thread)], times in ns" },
    { NULL }
};

int py_init_profile(PyObject *m) { return PyModule_AddFunctions(m, functions); }
