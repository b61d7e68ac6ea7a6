/* module.c - taper._C: puts the parts together. */
#include "front/py.h"

PyObject *py_module;

static struct PyModuleDef def = { PyModuleDef_HEAD_INIT, "taper._C", "The compiled half of Taper.", -1,
                                  NULL };

/* Each part adds its own types and functions. */
#define PART(f) int f(PyObject *m);
#include "front/parts.def"
static int (*const parts[])(PyObject *) = {
#define PART(f) f,
#include "front/parts.def"
};

PyMODINIT_FUNC PyInit__C(void)
{
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
