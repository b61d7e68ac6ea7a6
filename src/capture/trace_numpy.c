/* trace_numpy.c - NumPy while tracing: which objects are arrays of taper/_numpy.py, and which are NumPy's scalars
 * and element types. */
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

bool t_is_real_array(const PyObject *o) { return real_array && (PyObject *)Py_TYPE(o) == real_array; }

PyObject *t_array_tensor(PyObject *array)
{
    tp_tensor *x = t_is_real_array(array) ? py_tensor_of_array(array, true) : NULL;
    py_forget();
    if (x && (x->storage->flags & ST_readonly)) { /* a write must be NumPy's error */
        tensor_unref(x);
        x = NULL;
    }
    return x ? py_wrap(x) : NULL;
}

bool t_holds_arrays(PyObject *o)
{
    bool any = false;
    if (array_class && (PyList_CheckExact(o) || PyTuple_CheckExact(o)))
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o) && !any; i++)
            any = t_is_array(PySequence_Fast_GET_ITEM(o, i)) ||
                  t_holds_arrays(PySequence_Fast_GET_ITEM(o, i));
    return any;
}

PyObject *t_array_index(PyObject *k)
{
    if (t_is_array(k))
        return PyObject_GetAttrString(k, "_t");
    if (!PyTuple_CheckExact(k) || !t_holds_arrays(k))
        return Py_NewRef(k);
    PyObject *r = PyTuple_New(PyTuple_GET_SIZE(k));
    for (Py_ssize_t i = 0; r && i < PyTuple_GET_SIZE(k); i++) {
        PyObject *x = t_array_index(PyTuple_GET_ITEM(k, i));
        if (!x)
            Py_CLEAR(r);
        else
            PyTuple_SET_ITEM(r, i, x);
    }
    return r;
}

/* NULL without an exception: no tensor has such elements or strides. */
PyObject *t_wrap_array(trace *t, PyObject *o, source *s)
{
    PyObject *x = t_array_tensor(o);
    if (!x)
        return NULL;
    PyObject *abs = t_wrap(t, x, src_get(t->e, SRC_array, s, NULL, NULL, 0)),
             *a = abs ? PyObject_CallFunctionObjArgs(array_class, abs, NULL) : NULL;
    if (a)
        t_obj_add(t, a, o, NULL)->outer = s;
    Py_XDECREF(abs);
    Py_DECREF(x);
    return a;
}

bool t_arrays_overlap(const tp_tensor *a, const tp_tensor *b)
{
    const char *p = a->storage ? a->storage->data : NULL, *q = b->storage ? b->storage->data : NULL;
    return p && q && a->storage != b->storage && p < q + b->storage->nbytes && q < p + a->storage->nbytes;
}

bool t_is_array(PyObject *o) { return array_class && (PyObject *)Py_TYPE(o) == array_class; }

PyObject *t_array_class(PyObject *o)
{
    PyObject *c = PyObject_GetAttrString(o, "_class");
    if (!c) { /* no type of NumPy's has this name */
        py_forget();
        return real_array;
    }
    Py_DECREF(c); /* NumPy's types live on */
    return c;
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
    bool known = !strncmp(tp->tp_name, "numpy.dtypes.", 13);
    for (size_t i = 0; i < COUNT(kinds); i++)
        known |= !strncmp(tp->tp_name + 6, kinds[i], strlen(kinds[i]));
    return known && (tp->tp_name[6] == 'd' || PyType_IsSubtype(tp, (PyTypeObject *)real_scalar));
}
