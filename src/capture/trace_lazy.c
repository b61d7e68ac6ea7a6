/* trace_lazy.c - lazy modules while tracing: a module that learns its sizes from its first input learns them now, from one
 * with the sizes that the traced one has, and the trace begins again with a module that is lazy no more. */
#include "capture/capture.h"

/* A tensor with memory and the sizes of this one as they are in this call. New. */
static PyObject *stand_in(const tp_tensor *x)
{
    symint size[TP_MAX_DIMS];
    bool ok = true;
    tp_err err = { 0 };
    for (int d = 0; d < x->ndim; d++)
        size[d] = sym_hint(x->size[d], &ok);
    if (!ok)
        return PyErr_Format(PyExc_RuntimeError, "a size that only data decides");
    tp_tensor *host = tensor_new((dtype)x->dt, x->ndim, size, &err),
              *r = host ? tensor_to(host, tensor_device(x), &err) : NULL;
    tensor_unref(host);
    return r ? py_wrap(r) : py_raise(&err);
}

/* args with stand-ins: a tuple or a dict, new. */
static PyObject *real_args(trace *t, PyObject *args)
{
    PyObject *r = PyTuple_Check(args) ? PyTuple_New(PyTuple_GET_SIZE(args)) : PyDict_New(), *k, *v;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; r && PyTuple_Check(args) && i < PyTuple_GET_SIZE(args); i++) {
        PyObject *o = t_real(t, PyTuple_GET_ITEM(args, i));
        o = !o ? NULL : py_is_tensor(o) ? stand_in(py_tensor(o)) : Py_NewRef(o);
        if (o)
            PyTuple_SET_ITEM(r, i, o);
        else
            Py_CLEAR(r);
    }
    while (r && PyDict_Check(args) && PyDict_Next(args, &at, &k, &v)) {
        PyObject *o = t_real(t, v);
        o = !o ? NULL : py_is_tensor(o) ? stand_in(py_tensor(o)) : Py_NewRef(o);
        if (!o || PyDict_SetItem(r, k, o) < 0)
            Py_CLEAR(r);
        Py_XDECREF(o);
    }
    return r;
}

/* f(module, args, kwargs), where args and kwargs are those of the module's call; *handled stays false for a module that was
 * made or changed in this trace. */
PyObject *t_lazy_module(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, bool *handled)
{
    PyObject *m = nargs == 3 ? t_real(t, args[0]) : NULL, *a = m ? t_real(t, args[1]) : NULL,
             *kw = a ? t_real(t, args[2]) : NULL, *ra = NULL, *rk = NULL, *r = NULL;
    tobj *k = kw ? t_obj(t, m) : NULL;
    *handled = true;
    if (nargs == 3 && !kw)
        return NULL;
    if (!k || !k->real || (k->over && PyDict_GET_SIZE(k->over)) || !PyTuple_Check(a) || !PyDict_Check(kw) ||
        !t->drawn) {
        *handled = false;
        return NULL;
    }
    PyObject *real = Py_NewRef(k->real);
    op_ctx saved = *CX;
    CX->rec = NULL;
    CX->env = NULL;
    gen_default()->s = *t->drawn; /* what it draws is drawn once */
    if ((ra = real_args(t, a)) && (rk = real_args(t, kw)))
        r = PyObject_CallFunctionObjArgs(f, real, ra, rk, NULL);
    if (r)
        *t->drawn = gen_default()->s;
    *CX = saved;
    Py_XDECREF(ra);
    Py_XDECREF(rk);
    Py_XDECREF(r);
    Py_DECREF(real);
    if (!r) { /* its own error, where plain execution comes to it */
        PyErr_Clear();
        return t_break(t, BRK_exception, "a lazy module cannot be initialized");
    }
    t->again = true;
    return t_break(t, BRK_exception, "a lazy module is initialized: tracing again");
}
