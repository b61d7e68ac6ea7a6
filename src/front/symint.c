/* symint.c - symbolic integers as Python numbers. */
#include "front/py.h"

typedef struct PySymInt {
    PyObject_HEAD symint v;
} PySymInt;

symint py_symint_value(PyObject *o) { return ((PySymInt *)o)->v; }

PyObject *py_symint(symint v)
{
    PySymInt *o = PyObject_New(PySymInt, &PySymInt_Type);
    if (o)
        o->v = v;
    return (PyObject *)o;
}

PyObject *py_int(symint v) { return sym_is_expr(v) ? py_symint(v) : PyLong_FromLongLong(v); }

static PyObject *symint_repr(PyObject *o)
{
    strbuf b = { 0 };
    sym_print(&b, ((PySymInt *)o)->v);
    PyObject *r = PyUnicode_FromString(strbuf_str(&b));
    strbuf_free(&b);
    return r;
}

PyTypeObject PySymInt_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.SymInt",
                               .tp_basicsize = sizeof(PySymInt), .tp_flags = Py_TPFLAGS_DEFAULT,
                               .tp_repr = symint_repr,
                               .tp_doc = "An integer whose value is an expression over sizes." };

int py_init_symint(PyObject *m)
{
    return PyType_Ready(&PySymInt_Type) < 0 ? -1
                                            : PyModule_AddObjectRef(m, "SymInt", (PyObject *)&PySymInt_Type);
}
