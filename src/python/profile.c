/* profile.c - the recorder of base/profile.h from Python. */
#include "base/profile.h"
#include "python/py.h"

static PyObject *f_begin(PyObject *m, PyObject *args)
{
    int memory = 0, shapes = 0;
    if (!PyArg_ParseTuple(args, "|pp:_profile_begin", &memory, &shapes))
        return NULL;
    profile_begin((uint8_t)((memory ? PROFILES_memory : 0) | (shapes ? PROFILES_shapes : 0)));
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

/* ([(kind, name, file, from, to, line, thread, shapes)], [(time, bytes, total, thread)]) */
static PyObject *f_end(PyObject *m, PyObject *unused)
{
    static const char *const kinds[] = { "op", "kernel", "call", "region" };
    profile_list l = profile_end();
    PyObject *calls = PyList_New(0), *memory = PyList_New(0);
    bool ok = calls && memory;
    for (size_t i = 0; ok && i < l.n; i++) {
        const profile_event *e = &l.at[i];
        bool mem = e->kind == PROFILE_memory;
        PyObject *t = mem ? Py_BuildValue("(LLLi)", (long long)e->from, (long long)e->bytes,
                                          (long long)e->total, e->thread)
                          : Py_BuildValue("(sszLLiiz)", kinds[e->kind], e->name, e->file, (long long)e->from,
                                          (long long)e->to, e->line, e->thread, e->shapes);
        ok = t && PyList_Append(mem ? memory : calls, t) == 0;
        Py_XDECREF(t);
    }
    profile_list_free(&l);
    PyObject *r = ok ? PyTuple_Pack(2, calls, memory) : NULL;
    Py_XDECREF(calls);
    Py_XDECREF(memory);
    return r;
}

static PyMethodDef functions[] = {
    { "_profile_begin", f_begin, METH_VARARGS,
      "_profile_begin(memory=False, shapes=False): record the times of operators and kernels from here on" },
    { "_profile_range", f_range, METH_VARARGS, "_profile_range(name, from): a range of the program ends" },
    { "_profile_end", f_end, METH_NOARGS,
      "stop; ([(kind, name, file or None, from, to, line, thread, shapes or None)], [(time, bytes, total, "
      "thread)]), times in ns" },
    { NULL }
};

int py_init_profile(PyObject *m) { return PyModule_AddFunctions(m, functions); }
