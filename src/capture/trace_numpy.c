/* trace_numpy.c - NumPy while tracing: which objects are arrays of taper/_numpy.py, and which are NumPy's scalars. */
#include "capture/capture.h"

static PyObject *array_class, *real_array, *real_scalar, *outside; /* while NumPy is in use */

bool t_numpy(void)
{
    static bool asking;
    PyObject *loaded = array_class || asking ? NULL : PySys_GetObject("modules"),
             *f = loaded && PyDict_GetItemString(loaded, "numpy") ? polyfill("numpy_class") : NULL;
    if (f) {
        asking = true;
        PyObject *c = PyObject_CallNoArgs(f), *m = c && c != Py_None ? PyImport_ImportModule("numpy") : NULL,
                 *own = m ? PyImport_ImportModule("taper._numpy") : NULL;
        if (own && (real_array = PyObject_GetAttrString(m, "ndarray")) &&
            (real_scalar = PyObject_GetAttrString(m, "generic")) &&
            (outside = PyObject_GetAttrString(own, "_outside")))
            array_class = Py_NewRef(c);
        py_forget();
        Py_XDECREF(c);
        Py_XDECREF(m);
        Py_XDECREF(own);
        asking = false;
    }
    return array_class != NULL;
}

bool t_is_array(PyObject *o) { return array_class && (PyObject *)Py_TYPE(o) == array_class; }

PyObject *t_array_class(PyObject *o)
{
    PyObject *one = PyObject_GetAttrString(o, "_scalar");
    bool scalar = one == Py_True;
    Py_XDECREF(one);
    return scalar ? real_scalar : real_array;
}

PyObject *t_array_method(PyObject *fn)
{
    const PyFunctionObject *f = (PyFunctionObject *)fn;
    if (!array_class || !PyUnicode_Check(f->func_name) ||
        PyDict_GetItemWithError(((PyTypeObject *)array_class)->tp_dict, f->func_name) != fn)
        return NULL;
    PyObject *own = PyImport_ImportModule("taper._numpy"),
             *r = own ? PyObject_CallMethod(own, "_method_named", "O", f->func_name) : NULL;
    Py_XDECREF(own);
    return r;
}

PyObject *t_array_outside(void) { return Py_XNewRef(outside); }

bool t_is_numpy_scalar(PyTypeObject *tp)
{
    static const char *const kinds[] = { "int", "uint", "float", "bool" };
    if (!real_scalar || strncmp(tp->tp_name, "numpy.", 6))
        return false;
    bool known = false;
    for (size_t i = 0; i < COUNT(kinds); i++)
        known |= !strncmp(tp->tp_name + 6, kinds[i], strlen(kinds[i]));
    return known && PyType_IsSubtype(tp, (PyTypeObject *)real_scalar);
}
