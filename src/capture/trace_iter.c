/* trace_iter.c - builtin iterators (map, zip, itertools) run natively while tracing, so they keep their own meaning; what
 * they call or iterate over is traced all the same through these two objects. */
#include "capture/capture.h"

_Thread_local trace *t_now;
PyObject *py_break_error; /* carries a break through C code that knows nothing of it */

/* After a failed traced operation: C code must see an exception. */
PyObject *t_broken(trace *t)
{
    if (!PyErr_Occurred())
        PyErr_SetNone(t->broke ? py_break_error : PyExc_SystemError);
    return NULL;
}

/* who.name(*args): traced while a trace goes on, a plain call otherwise. */
static PyObject *ask(PyObject *who, PyObject *name, PyObject *const *args, Py_ssize_t n)
{
    trace *t = t_now;
    PyObject *f = t ? t_getattr(t, who, name) : PyObject_GetAttr(who, name),
             *r = !f  ? NULL
                  : t ? t_call(t, f, args, n, NULL)
                      : PyObject_Vectorcall(f, args, (size_t)n, NULL),
             *v = r && t ? t_real(t, r) : r;
    Py_XDECREF(f);
    if (t) {
        t->asked = t->rec.g->last;
        if (v && !t_deep(t, v))
            v = NULL;
        Py_XINCREF(v);
        Py_XDECREF(r);
        return v ? v : t_broken(t);
    }
    return v;
}
/* A mode that takes calls over was entered or left. While one is active nothing is captured, but a trace goes on. */
static void mode_entered(int by)
{
    if (!t_now)
        cap_here()->disabled += by;
}
void t_take_overrides(void)
{
    py_ask = ask;
    py_mode_entered = mode_entered;
}

typedef struct PyTraceFn {
    PyObject_HEAD vectorcallfunc call;
    PyObject *fn;
    bool truth; /* its result is asked for its truth only */
} PyTraceFn;

static PyObject *fn_call(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *kw)
{
    PyTraceFn *f = (PyTraceFn *)o;
    trace *t = t_now;
    if (!t)
        return PyErr_Format(PyExc_SystemError, "a traced function was called after its trace ended");
    PyObject *r = t_call(t, f->fn, args, PyVectorcall_NARGS(nargsf), kw), *v = r ? t_real(t, r) : NULL;
    if (v && f->truth) {
        int b = t_truth(t, v);
        Py_DECREF(r);
        return b < 0 ? t_broken(t) : PyBool_FromLong(b);
    }
    if (v && !t_deep(t, v))
        v = NULL;
    Py_XINCREF(v);
    Py_XDECREF(r);
    return v ? v : t_broken(t);
}
static void fn_dealloc(PyObject *o)
{
    Py_XDECREF(((PyTraceFn *)o)->fn);
    PyObject_Free(o);
}
PyTypeObject PyTraceFn_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper._C.TracedFunction",
                                .tp_basicsize = sizeof(PyTraceFn),
                                .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL |
                                            Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .tp_vectorcall_offset = offsetof(PyTraceFn, call),
                                .tp_call = PyVectorcall_Call,
                                .tp_dealloc = fn_dealloc };

PyObject *t_fn(PyObject *fn, bool truth)
{
    PyTraceFn *f = PyObject_New(PyTraceFn, &PyTraceFn_Type);
    if (f) {
        f->call = fn_call;
        f->fn = Py_NewRef(fn);
        f->truth = truth;
    }
    return (PyObject *)f;
}

typedef struct PyTraceIter {
    PyObject_HEAD PyObject *it;
    int kind;
} PyTraceIter;

static PyObject *iter_next(PyObject *o)
{
    PyTraceIter *i = (PyTraceIter *)o;
    trace *t = t_now;
    bool done = false;
    if (!t)
        return PyErr_Format(PyExc_SystemError, "a traced iterator was used after its trace ended");
    PyObject *v = t_next(t, i->it, &done), *r = v;
    if (!v)
        return done ? NULL : t_broken(t);
    if (i->kind != TI_raw) {
        r = t_real(t, v);
        if (r && i->kind == TI_known && !t_deep(t, r))
            r = NULL;
        r = r && i->kind == TI_inner ? t_iterable(t, r, TI_raw) : Py_XNewRef(r);
        Py_DECREF(v);
    }
    return r ? r : t_broken(t);
}
static void iter_dealloc(PyObject *o)
{
    Py_XDECREF(((PyTraceIter *)o)->it);
    PyObject_Free(o);
}
PyTypeObject PyTraceIter_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper._C.TracedIterator",
                                  .tp_basicsize = sizeof(PyTraceIter),
                                  .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  .tp_iter = PyObject_SelfIter,
                                  .tp_iternext = iter_next,
                                  .tp_dealloc = iter_dealloc };

PyObject *t_iterable(trace *t, PyObject *o, t_items kind)
{
    if (!(o = t_real(t, o)))
        return NULL;
    bool native = (t_safe_type(Py_TYPE(o)) || PyTuple_Check(o)) && !py_is_tensor(o);
    if (!native && !t_source_of(t, o) && !type_is_python(Py_TYPE(o)) && Py_TYPE(o)->tp_iter &&
        !py_is_tensor(o) && !PyType_Check(o))
        native = true; /* a builtin iterator made here */
    if (native && kind == TI_raw)
        return Py_NewRef(o);
    PyTraceIter *i = PyObject_New(PyTraceIter, &PyTraceIter_Type);
    if (!i)
        return NULL;
    i->kind = kind;
    if (!(i->it = t_iter(t, o)))
        Py_CLEAR(i);
    return (PyObject *)i;
}

typedef struct PyTraceAppend {
    PyObject_HEAD PyObject *lazy;
} PyTraceAppend;
static PyObject *append_call(PyObject *o, PyObject *args, PyObject *kw)
{
    if (!t_now || PyTuple_GET_SIZE(args) != 1 || (kw && PyDict_GET_SIZE(kw)))
        return PyErr_Format(PyExc_TypeError, "list.append() takes exactly one argument (%zd given)",
                            PyTuple_GET_SIZE(args));
    return t_append(t_now, ((PyTraceAppend *)o)->lazy, PyTuple_GET_ITEM(args, 0)) < 0 ? t_broken(t_now)
                                                                                      : Py_NewRef(Py_None);
}
static void append_dealloc(PyObject *o)
{
    Py_XDECREF(((PyTraceAppend *)o)->lazy);
    PyObject_Free(o);
}
PyTypeObject PyTraceAppend_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "builtin_function_or_method",
                                    .tp_basicsize = sizeof(PyTraceAppend),
                                    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                    .tp_call = append_call, .tp_dealloc = append_dealloc };
PyObject *t_appender(PyObject *lazy)
{
    PyTraceAppend *a = PyObject_New(PyTraceAppend, &PyTraceAppend_Type);
    if (a)
        a->lazy = Py_NewRef(lazy);
    return (PyObject *)a;
}
PyObject *t_appends_to(PyObject *o) { return ((PyTraceAppend *)o)->lazy; }

/* What is behind a bridge, borrowed: what the iterator or function is after the graph. */
PyObject *t_behind(PyObject *o)
{
    return Py_TYPE(o) == &PyTraceFn_Type     ? ((PyTraceFn *)o)->fn
           : Py_TYPE(o) == &PyTraceIter_Type ? ((PyTraceIter *)o)->it
                                             : NULL;
}

int py_init_tbridge(PyObject *m)
{
    py_break_error = PyErr_NewException("taper._C.GraphBreak", PyExc_BaseException, NULL);
    return !py_break_error || PyType_Ready(&PyTraceFn_Type) < 0 || PyType_Ready(&PyTraceIter_Type) < 0 ||
                   PyType_Ready(&PyTraceAppend_Type) < 0
               ? -1
               : 0;
}
