/* hint.c - notes below an exception: what to do next (hints.def), and in which module of a model it happened. */
#include "python/py.h"
#include <string.h>

static const struct {
    const char *begins, *hint;
} hints[] = {
#define HINT(begins, hint) { begins, hint },
#include "python/hints.def"
#undef HINT
};

static const char *hint_of(const char *msg)
{
    for (size_t i = 0; i < COUNT(hints); i++)
        if (!strncmp(msg, hints[i].begins, strlen(hints[i].begins)))
            return hints[i].hint;
    return NULL;
}

static void note(PyObject *v, PyObject *text) /* takes text */
{
    PyObject *r = text ? PyObject_CallMethod(v, "add_note", "O", text) : NULL;
    Py_XDECREF(r);
    Py_XDECREF(text);
    PyErr_Clear();
}

/* The path of the module that is running, from the calls of compiled functions and Python's frames; NULL: none is, or nn is not loaded. */
static PyObject *module_path(void)
{
    PyObject *name = PyUnicode_FromString("taper.nn.modules.module"),
             *m = name ? PyImport_GetModule(name) : NULL,
             *traced = m && py_asks.traced_calls ? py_asks.traced_calls() : NULL,
             *r = traced ? PyObject_CallMethod(m, "_running", "O", traced) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(traced);
    Py_XDECREF(m);
    if (r == Py_None)
        Py_CLEAR(r);
    PyErr_Clear();
    return r;
}

void py_add_hints(void)
{
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    PyErr_NormalizeException(&t, &v, &tb);
    PyObject *text = v ? PyObject_Str(v) : NULL, *path = text ? module_path() : NULL;
    const char *msg = text ? PyUnicode_AsUTF8(text) : NULL, *hint = msg ? hint_of(msg) : NULL;
    if (path)
        note(v, PyUnicode_FromFormat("In module: %U", path));
    if (hint)
        note(v, PyUnicode_FromFormat("Hint: %s", hint));
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(path);
    PyErr_Restore(t, v, tb);
}
