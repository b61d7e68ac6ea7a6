/* nnmodule.c - what nn.Module asks of its own dictionaries, in one step: are there hooks, and where is an attribute? */
#include "python/py.h"

static const char *const hook_names[PY_MODULE_HOOKS] = { "_forward_hooks", "_forward_pre_hooks",
                                                         "_backward_hooks", "_backward_pre_hooks" };
static const char *const part_names[PY_MODULE_PARTS] = { "_parameters", "_buffers", "_modules" };

PyObject *py_module_name(bool hooks, int i)
{
    static PyObject *names[2][PY_MODULE_HOOKS];
    PyObject **n = &names[hooks][i];
    if (!*n)
        *n = PyUnicode_InternFromString(hooks ? hook_names[i] : part_names[i]);
    return *n;
}

PyObject *py_module_dict(PyObject *module, bool hooks, int i)
{
    PyObject **d = _PyObject_GetDictPtr(module), *name = py_module_name(hooks, i);
    PyObject *v = d && *d && name ? PyDict_GetItemWithError(*d, name) : NULL;
    return v && (PyDict_CheckExact(v) || PyODict_CheckExact(v)) ? v : NULL;
}

PyObject *py_module_missing(PyObject *module, PyObject *name)
{
    PyErr_Format(PyExc_AttributeError, "'%.200s' object has no attribute '%U'", Py_TYPE(module)->tp_name,
                 name);
    return NULL;
}

static PyObject *module_hooked(PyObject *self, PyObject *module)
{
    for (int i = 0; i < PY_MODULE_HOOKS; i++) {
        PyObject *d = py_module_dict(module, true, i);
        if (d && !PyDict_GET_SIZE(d))
            continue;
        d = d ? Py_NewRef(d) : PyObject_GetAttr(module, py_module_name(true, i)); /* __init__ did not run */
        int some = d ? PyObject_IsTrue(d) : -1;
        Py_XDECREF(d);
        if (some)
            return some < 0 ? NULL : Py_NewRef(Py_True);
    }
    Py_RETURN_FALSE;
}

static PyObject *module_attr(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyUnicode_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "_module_attr(module, name)");
    PyObject **d = _PyObject_GetDictPtr(args[0]);
    for (int i = 0; i < PY_MODULE_PARTS; i++) {
        PyObject *part = d && *d ? PyDict_GetItemWithError(*d, py_module_name(false, i)) : NULL;
        if (part && (PyDict_CheckExact(part) || PyODict_CheckExact(part))) {
            PyObject *v = PyDict_GetItemWithError(part, args[1]);
            if (v)
                return Py_NewRef(v);
        } else if (part) { /* a mapping of the program's own */
            int has = PySequence_Contains(part, args[1]);
            if (has)
                return has < 0 ? NULL : PyObject_GetItem(part, args[1]);
        }
        if (PyErr_Occurred())
            return NULL;
    }
    return py_module_missing(args[0], args[1]);
}

static PyMethodDef functions[] = { { "_module_hooked", module_hooked, METH_O,
                                     "has a module hooks that run when it is called?" },
                                   { "_module_attr", (PyCFunction)(void (*)(void))module_attr, METH_FASTCALL,
                                     "_module_attr(module, name): a parameter, a buffer or a submodule" },
                                   { NULL } };

int py_init_nnmodule(PyObject *m) { return PyModule_AddFunctions(m, functions); }
