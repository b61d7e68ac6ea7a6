/* module.c - taper._C: puts the parts together. */
#include "python/py.h"
#include "base/envvars.h"
#include "base/quarantine.h"
#include "taper.h"
#include "ops/host.h"

PyObject *py_module;

static struct PyModuleDef def = { PyModuleDef_HEAD_INIT, "taper._C", "The compiled half of Taper.", -1,
                                  NULL };

/* Each part adds its own types and functions. */
#define PART(f) int f(PyObject *m);
#include "python/parts.def"
static int (*const parts[])(PyObject *) = {
#define PART(f) f,
#include "python/parts.def"
};

/* Kernels on many elements run without the GIL. */
static void *unlock(void) { return PyGILState_Check() ? PyEval_SaveThread() : NULL; }
static void relock(void *held) { PyEval_RestoreThread(held); }

/* os.environ is a copy of the environment. */
static void set_in_python(const char *name, const char *value)
{
    PyObject *os = PyImport_ImportModule("os"), *env = os ? PyObject_GetAttrString(os, "environ") : NULL,
             *v = env ? PyUnicode_FromString(value) : NULL;
    if (v)
        PyMapping_SetItemString(env, name, v);
    PyErr_Clear();
    Py_XDECREF(v);
    Py_XDECREF(env);
    Py_XDECREF(os);
}

PyMODINIT_FUNC PyInit__C(void)
{
    host.unlock = unlock;
    host.relock = relock;
    quarantine_load(TP_VERSION, set_in_python);
    env_check();
    PyObject *m = PyModule_Create(&def);
    if (!m)
        return NULL;
    py_module = m;
    for (size_t i = 0; i < COUNT(parts); i++)
        if (parts[i](m) < 0) {
            Py_DECREF(m);
            return NULL;
        }
    return m;
}
