/* tbuiltin.c - builtin functions, types and methods while tracing. */
#include "front/capture.h"

PyTypeObject *t_deque_type(void), *t_partial_type(void), *t_ordered_type(void), *t_default_type(void);
bool t_plain_const(PyObject *o);
PyObject *t_super_new(trace *t, PyObject *const *args, Py_ssize_t nargs);
PyObject *native_binary(int op, PyObject *a, PyObject *b);

typedef enum {
    B_none,
    B_pure,
    B_break,
    B_len,
    B_isinstance,
    B_type,
    B_super,
    B_getattr,
    B_hasattr,
    B_setattr,
    B_delattr,
    B_print,
    B_iter,
    B_next,
    B_list,
    B_tuple,
    B_set,
    B_frozenset,
    B_dict,
    B_str,
    B_repr,
    B_int,
    B_float,
    B_bool,
    B_zip,
    B_enumerate,
    B_map,
    B_filter,
    B_reversed,
    B_sum,
    B_any,
    B_all,
    B_min,
    B_max,
    B_sorted,
    B_object,
    B_reduce,
    B_container,
    B_itertool,
    B_partial,
    B_tuple_new,
    B_object_new,
    B_abs,
    B_safe_native,
    B_copy,
    B_mode,
    B_dict_new,
} builtin;

static PyObject *table;   /* callable -> id */
static PyObject *special; /* callable -> role */

static void put(const char *mod, const char *name, builtin b)
{
    PyObject *m = PyImport_ImportModule(mod), *o = m ? PyObject_GetAttrString(m, name) : NULL,
             *i = PyLong_FromLong(b);
    if (o && i)
        PyDict_SetItem(table, o, i);
    PyErr_Clear();
    Py_XDECREF(m);
    Py_XDECREF(o);
    Py_XDECREF(i);
}
static void put_all(const char *mod, builtin b)
{
    PyObject *m = PyImport_ImportModule(mod), *d = m ? PyModule_GetDict(m) : NULL, *k, *v;
    Py_ssize_t p = 0;
    while (d && PyDict_Next(d, &p, &k, &v))
        if ((PyCFunction_Check(v) || (PyType_Check(v) && b == B_itertool)) && *PyUnicode_AsUTF8(k) != '_') {
            PyObject *i = PyLong_FromLong(b);
            PyDict_SetItem(table, v, i);
            Py_DECREF(i);
        }
    PyErr_Clear();
    Py_XDECREF(m);
}

static builtin find(PyObject *f)
{
    if (!PyCFunction_Check(f) && !PyType_Check(f) && !PyFunction_Check(f))
        return B_none;
    PyObject *i = PyDict_GetItemWithError(table, f);
    if (!i)
        PyErr_Clear();
    return i ? (builtin)PyLong_AsLong(i) : B_none;
}

PyObject *py_special(PyObject *f)
{
    if (!special || !PyDict_GET_SIZE(special))
        return NULL;
    if (!PyFunction_Check(f) && !PyType_Check(f) && !PyCFunction_Check(f) && !PyMethod_Check(f))
        return NULL;
    PyObject *r = PyDict_GetItemWithError(special, PyMethod_Check(f) ? PyMethod_GET_FUNCTION(f) : f);
    if (!r)
        PyErr_Clear();
    return r;
}

/* Something a native iterator may run over: the object itself, or a list of what it yields. New. */
static PyObject *iterable(trace *t, PyObject *o)
{
    if (!(o = t_real(t, o)))
        return NULL;
    if ((t_safe_type(Py_TYPE(o)) || PyTuple_Check(o)) && !py_is_tensor(o))
        return Py_NewRef(o);
    if (!t_source_of(t, o) && Py_TYPE(o) != &PyTraceGen_Type && !type_is_python(Py_TYPE(o)) &&
        Py_TYPE(o)->tp_iter)
        return Py_NewRef(o);
    return t_list_of(t, o);
}

static PyObject *kwarg(PyObject *const *args, Py_ssize_t nargs, PyObject *kw, const char *name)
{
    for (Py_ssize_t i = 0; kw && i < PyTuple_GET_SIZE(kw); i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kw, i), name) == 0)
            return args[nargs + i];
    return NULL;
}

static PyObject *call_native_iter(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs,
                                  PyObject *kw)
{
    Py_ssize_t n = nargs + (kw ? PyTuple_GET_SIZE(kw) : 0), i = 0;
    PyObject *v[32], *r = NULL;
    if (n > 32)
        return t_break(t, BRK_call_builtin, "more than 32 arguments");
    for (; i < n; i++) {
        PyObject *a = t_real(t, args[i]);
        if (!a)
            goto done;
        if (PyCallable_Check(a) && !PyType_Check(a) && !PyCFunction_Check(a)) {
            t_break(t, BRK_call_builtin, "%s with a Python function", ((PyTypeObject *)f)->tp_name);
            goto done;
        }
        bool it = (Py_TYPE(a)->tp_iter || Py_TYPE(a) == &PyTraceGen_Type) && !PyUnicode_Check(a);
        v[i] = it ? iterable(t, a) : Py_NewRef(a);
        if (!v[i])
            goto done;
    }
    r = PyObject_Vectorcall(f, v, (size_t)nargs, kw);
done:
    while (i-- > 0)
        Py_DECREF(v[i]);
    return r;
}

static PyObject *do_map(trace *t, PyObject *const *args, Py_ssize_t nargs, bool filter)
{
    PyObject *lists[8] = { NULL }, *out = NULL, *it = NULL;
    Py_ssize_t n = PY_SSIZE_T_MAX;
    if (nargs < 2 || nargs > 8)
        return t_break(t, BRK_call_builtin, "%s with %zd arguments", filter ? "filter" : "map", nargs);
    for (Py_ssize_t i = 1; i < nargs; i++) {
        if (!(lists[i] = t_list_of(t, args[i])))
            goto done;
        n = MIN(n, PyList_GET_SIZE(lists[i]));
    }
    out = PyList_New(0);
    for (Py_ssize_t k = 0; out && k < n; k++) {
        PyObject *a[8], *v;
        for (Py_ssize_t i = 1; i < nargs; i++)
            a[i - 1] = PyList_GET_ITEM(lists[i], k);
        PyObject *fn = t_real(t, args[0]);
        v = !fn ? NULL : filter && fn == Py_None ? Py_NewRef(a[0]) : t_call(t, fn, a, nargs - 1, NULL);
        int keep_ = v && filter ? t_truth(t, v) : 1;
        if (!v || keep_ < 0 || (keep_ && PyList_Append(out, filter ? a[0] : v) < 0))
            Py_CLEAR(out);
        Py_XDECREF(v);
    }
    if (out)
        it = PyObject_GetIter(out);
done:
    for (int i = 0; i < 8; i++)
        Py_XDECREF(lists[i]);
    Py_XDECREF(out);
    return it;
}

static PyObject *keys_of(trace *t, PyObject *list, PyObject *key)
{
    PyObject *out = PyList_New(0);
    for (Py_ssize_t i = 0; out && i < PyList_GET_SIZE(list); i++) {
        PyObject *a = PyList_GET_ITEM(list, i), *v = t_call(t, key, &a, 1, NULL),
                 *r = v ? t_real(t, v) : NULL;
        if (!r || PyList_Append(out, r) < 0)
            Py_CLEAR(out);
        Py_XDECREF(v);
    }
    return out;
}

static bool only_plain(trace *t, PyObject *l, const char *what)
{
    if (!t_deep(t, l))
        return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(l); i++) {
        PyObject *o = PyList_GET_ITEM(l, i);
        if (py_is_tensor(o)) {
            t_break(t, BRK_data, "%s that compares tensors", what);
            return false;
        }
        if (!t_safe_type(Py_TYPE(o)) && !PyTuple_Check(o)) {
            t_break(t, BRK_operator, "%s of %s objects", what, Py_TYPE(o)->tp_name);
            return false;
        }
    }
    return true;
}

/* sorted() with the keys computed by inlined calls. New list. */
static PyObject *do_sorted(trace *t, PyObject *list, PyObject *key, PyObject *reverse)
{
    PyObject *keys = key && (key = t_real(t, key)) && key != Py_None ? keys_of(t, list, key)
                                                                     : Py_NewRef(list),
             *out = NULL;
    if (!keys || !only_plain(t, keys, "sorting"))
        goto done;
    PyObject *b = PyImport_ImportModule("builtins"), *get = PyObject_GetAttrString(keys, "__getitem__"),
             *idx = NULL;
    if (reverse && !(reverse = t_real(t, reverse))) {
        Py_XDECREF(b);
        Py_XDECREF(get);
        goto done;
    }
    PyObject *rng = PyObject_CallFunction((PyObject *)&PyRange_Type, "n", PyList_GET_SIZE(list));
    PyObject *fn = b ? PyObject_GetAttrString(b, "sorted") : NULL,
             *names = Py_BuildValue("(ss)", "key", "reverse");
    if (fn && get && rng && names)
        idx = PyObject_Vectorcall(fn, (PyObject *[]){ rng, get, reverse ? reverse : Py_False }, 1, names);
    if (!idx)
        t_fake_failed(t, "sorting that compares tensors");
    if (idx && (out = PyList_New(PyList_GET_SIZE(idx))))
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(idx); i++)
            PyList_SET_ITEM(out, i,
                            Py_NewRef(PyList_GET_ITEM(list, PyLong_AsSsize_t(PyList_GET_ITEM(idx, i)))));
    Py_XDECREF(b);
    Py_XDECREF(get);
    Py_XDECREF(rng);
    Py_XDECREF(fn);
    Py_XDECREF(names);
    Py_XDECREF(idx);
done:
    Py_XDECREF(keys);
    return out;
}

static PyObject *do_minmax(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw,
                           bool max)
{
    PyObject *key = kwarg(args, nargs, kw, "key"), *dflt = kwarg(args, nargs, kw, "default"), *list,
             *keys = NULL, *best = NULL;
    if (nargs == 0)
        return t_native(t, f, args, nargs, kw);
    if (nargs == 1)
        list = t_list_of(t, args[0]);
    else {
        list = PyList_New(0);
        for (Py_ssize_t i = 0; list && i < nargs; i++)
            if (PyList_Append(list, args[i]) < 0)
                Py_CLEAR(list);
    }
    if (!list)
        return NULL;
    if (!PyList_GET_SIZE(list)) {
        Py_DECREF(list);
        if (dflt)
            return Py_NewRef(dflt);
        return PyErr_Format(PyExc_ValueError, "%s() arg is an empty sequence", max ? "max" : "min");
    }
    keys = key && (key = t_real(t, key)) && key != Py_None ? keys_of(t, list, key) : Py_NewRef(list);
    if (!keys)
        goto done;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 1; i < PyList_GET_SIZE(keys); i++) {
        PyObject *c = t_compare(t, PyList_GET_ITEM(keys, i), PyList_GET_ITEM(keys, at), max ? Py_GT : Py_LT);
        int b = c ? t_truth(t, c) : -1;
        Py_XDECREF(c);
        if (b < 0)
            goto done;
        if (b)
            at = i;
    }
    best = Py_NewRef(PyList_GET_ITEM(list, at));
done:
    Py_XDECREF(keys);
    Py_DECREF(list);
    return best;
}

static PyObject *do_sum(trace *t, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *start = nargs > 1 ? args[1] : kwarg(args, nargs, kw, "start"), *l = t_list_of(t, args[0]);
    PyObject *acc = start ? Py_NewRef(start) : PyLong_FromLong(0);
    for (Py_ssize_t i = 0; l && acc && i < PyList_GET_SIZE(l); i++)
        Py_SETREF(acc, t_binary(t, 0, acc, PyList_GET_ITEM(l, i)));
    if (!l)
        Py_CLEAR(acc);
    Py_XDECREF(l);
    return acc;
}

static PyObject *do_anyall(trace *t, PyObject *o, bool any)
{
    PyObject *it = t_iter(t, o);
    if (!it)
        return NULL;
    int r = !any;
    for (;;) {
        bool done;
        PyObject *v = t_next(t, it, &done);
        if (!v) {
            if (!done)
                r = -1;
            break;
        }
        int b = t_truth(t, v);
        Py_DECREF(v);
        if (b < 0) {
            r = -1;
            break;
        }
        if ((b != 0) == any) {
            r = any;
            break;
        }
    }
    Py_DECREF(it);
    return r < 0 ? NULL : PyBool_FromLong(r);
}

static PyObject *type_func(PyObject *o, const char *name)
{
    PyObject *n = PyUnicode_InternFromString(name), *d = n ? _PyType_Lookup(Py_TYPE(o), n) : NULL;
    Py_XDECREF(n);
    return d && PyFunction_Check(d) ? d : NULL;
}

static PyObject *do_str(trace *t, PyObject *o, bool repr)
{
    PyObject *fn;
    if (!(o = t_real(t, o)))
        return NULL;
    if (py_is_tensor(o) || py_is_symint(o))
        return t_break(t, BRK_format, "%s() of a %s", repr ? "repr" : "str", Py_TYPE(o)->tp_name);
    if ((fn = type_func(o, repr ? "__repr__" : "__str__")) || (!repr && (fn = type_func(o, "__repr__"))))
        return t_call(t, fn, &o, 1, NULL);
    if (!t_plain_const(o) && !(PyExceptionInstance_Check(o) && !t_source_of(t, o)))
        return t_break(t, BRK_format, "%s() of a %s", repr ? "repr" : "str", Py_TYPE(o)->tp_name);
    return t_deep(t, o) ? (repr ? PyObject_Repr(o) : PyObject_Str(o)) : NULL;
}

static PyObject *do_number(trace *t, PyObject *f, builtin b, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kw)
{
    PyObject *o = nargs ? t_real(t, args[0]) : NULL;
    if (nargs && !o)
        return NULL;
    if (o && py_is_tensor(o))
        return b == B_bool ? t_break(t, BRK_data_jump, "bool() of a tensor")
                           : t_item(t, o, b == B_int ? 'i' : 'f');
    if (o && py_is_symfloat(o) && b != B_bool && nargs == 1)
        return b == B_float ? Py_NewRef(o) : t_symfloat_int(t, o);
    if (b == B_bool && o) {
        int v = t_truth(t, o);
        return v < 0 ? NULL : PyBool_FromLong(v);
    }
    if (b == B_int && o && py_is_symint(o) && nargs == 1)
        return Py_NewRef(o);
    if (o && !t_safe_type(Py_TYPE(o))) {
        PyObject *fn = type_func(o, b == B_int ? "__int__" : "__float__");
        return fn ? t_call(t, fn, &o, 1, NULL)
                  : t_break(t, BRK_operator, "number of a %s", Py_TYPE(o)->tp_name);
    }
    return t_native(t, f, args, nargs, kw);
}

static PyObject *do_dict(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *d = PyObject_CallNoArgs(f), *src = NULL;
    if (d && nargs) {
        if (!(src = t_real(t, args[0])))
            goto fail;
        if (PyDict_Check(src) && t_safe_type(Py_TYPE(src))) {
            if (PyObject_CallMethod(d, "update", "O", src) == NULL)
                goto fail;
            Py_DECREF(Py_None);
        } else {
            if (type_func(src, "keys")) {
                t_break(t, BRK_construct, "dict of a %s", Py_TYPE(src)->tp_name);
                goto fail;
            }
            PyObject *l = t_list_of(t, src);
            for (Py_ssize_t i = 0; l && i < PyList_GET_SIZE(l); i++) {
                PyObject *pair = t_list_of(t, PyList_GET_ITEM(l, i));
                if (!pair || PyList_GET_SIZE(pair) != 2) {
                    if (pair)
                        PyErr_Format(PyExc_ValueError,
                                     "dictionary update sequence element #%zd has length %zd; 2 is required",
                                     i, PyList_GET_SIZE(pair));
                    Py_XDECREF(pair);
                    Py_CLEAR(l);
                    break;
                }
                if (t_setitem(t, d, PyList_GET_ITEM(pair, 0), PyList_GET_ITEM(pair, 1)) < 0) {
                    Py_DECREF(pair);
                    Py_CLEAR(l);
                    break;
                }
                Py_DECREF(pair);
            }
            if (!l)
                goto fail;
            Py_DECREF(l);
        }
    }
    for (Py_ssize_t i = 0; d && kw && i < PyTuple_GET_SIZE(kw); i++)
        if (PyObject_SetItem(d, PyTuple_GET_ITEM(kw, i), args[nargs + i]) < 0)
            goto fail;
    return d;
fail:
    Py_XDECREF(d);
    return NULL;
}

static PyObject *do_getattr(trace *t, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *n = nargs >= 2 ? t_real(t, args[1]) : NULL;
    if (!n || !PyUnicode_Check(n))
        return t_break(t, BRK_attribute, "getattr with a name that is not a constant");
    Py_INCREF(n);
    PyUnicode_InternInPlace(&n);
    PyObject *v = t_getattr(t, args[0], keep(t->e, n));
    Py_DECREF(n);
    if (!v && nargs == 3 && !t->broke && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return Py_NewRef(args[2]);
    }
    return v;
}

static PyObject *do_reduce(trace *t, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *l = nargs >= 2 ? t_list_of(t, args[1]) : NULL, *acc = nargs > 2 ? Py_NewRef(args[2]) : NULL;
    if (nargs < 2)
        return t_break(t, BRK_arguments, "reduce with %zd arguments", nargs);
    for (Py_ssize_t i = 0; l && i < PyList_GET_SIZE(l); i++) {
        if (!acc) {
            acc = Py_NewRef(PyList_GET_ITEM(l, i));
            continue;
        }
        PyObject *a[2] = { acc, PyList_GET_ITEM(l, i) }, *v = t_call(t, args[0], a, 2, NULL);
        Py_SETREF(acc, v);
        if (!acc)
            break;
    }
    if (!l)
        Py_CLEAR(acc);
    else if (!acc && !PyErr_Occurred() && !t->broke)
        PyErr_SetString(PyExc_TypeError, "reduce() of empty iterable with no initial value");
    Py_XDECREF(l);
    return acc;
}

static bool is_int_class(PyObject *c)
{
    if (PyTuple_Check(c)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(c); i++)
            if (is_int_class(PyTuple_GET_ITEM(c, i)))
                return true;
        return false;
    }
    return c == (PyObject *)&PyLong_Type || c == (PyObject *)&PySymInt_Type;
}

PyObject *t_builtin(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw,
                    bool *handled)
{
    builtin b = find(f);
    PyObject *o, *l, *r;
    *handled = b != B_none;
    switch (b) {
    case B_none: break;
    case B_pure:
    case B_abs:
    case B_safe_native:
        for (Py_ssize_t i = 0; i < nargs; i++) {
            if (!(o = t_real(t, args[i])))
                return NULL;
            if (!t_safe_type(Py_TYPE(o)) && !t_plain_const(o) && !PyTuple_Check(o)) {
                PyObject *fn = b == B_abs ? type_func(o, "__abs__") : NULL;
                return fn ? t_call(t, fn, &o, 1, NULL)
                          : t_break(t, BRK_call_builtin, "%s of a %s",
                                    PyCFunction_Check(f) ? ((PyCFunctionObject *)f)->m_ml->ml_name : "call",
                                    Py_TYPE(o)->tp_name);
            }
        }
        return t_native(t, f, args, nargs, kw);
    case B_break:
        return t_break(t, BRK_call_builtin, "call of builtin function %s",
                       ((PyCFunctionObject *)f)->m_ml->ml_name);
    case B_print: return t_break(t, BRK_print, "builtin: print [%s]", nargs ? "..." : "");
    case B_len:
        if (nargs != 1 || !(o = t_real(t, args[0])))
            return nargs == 1 ? NULL : t_native(t, f, args, nargs, kw);
        if (py_is_tensor(o) && py_tensor(o)->ndim)
            return py_int(py_tensor(o)->size[0]);
        if (t_safe_type(Py_TYPE(o)) || PyTuple_Check(o))
            return PyObject_Vectorcall(f, &o, 1, NULL);
        if ((l = type_func(o, "__len__")))
            return t_call(t, l, &o, 1, NULL);
        if (PyType_Check(o))
            return PyObject_Vectorcall(f, &o, 1, NULL);
        return t_break(t, BRK_call_builtin, "len() of a %s", Py_TYPE(o)->tp_name);
    case B_isinstance: {
        PyObject *c = nargs == 2 ? t_real(t, args[1]) : NULL;
        o = nargs == 2 ? t_real(t, args[0]) : NULL;
        if (!o || !c)
            return nargs == 2 ? NULL : t_native(t, f, args, nargs, kw);
        if (!t_deep(t, c))
            return NULL;
        if (py_is_symint(o) && is_int_class(c))
            Py_RETURN_TRUE;
        if (Py_TYPE(o) == &PyTraceGen_Type || Py_TYPE(o) == &PyTraceSuper_Type)
            return t_break(t, BRK_call_builtin, "isinstance() of a generator");
        int v = PyObject_IsInstance(o, c);
        return v < 0 ? NULL : PyBool_FromLong(v);
    }
    case B_type:
        if (nargs != 1)
            return t_break(t, BRK_class_body, "type() with %zd arguments", nargs);
        if (!(o = t_real(t, args[0])))
            return NULL;
        return Py_NewRef(py_is_symint(o) ? (PyObject *)&PyLong_Type : (PyObject *)Py_TYPE(o));
    case B_super: return t_super_new(t, args, nargs);
    case B_getattr: return do_getattr(t, args, nargs);
    case B_hasattr:
        r = do_getattr(t, args, nargs);
        if (!r && (t->broke || !PyErr_ExceptionMatches(PyExc_AttributeError)))
            return NULL;
        PyErr_Clear();
        Py_XDECREF(r);
        return PyBool_FromLong(r != NULL);
    case B_setattr:
    case B_delattr: {
        PyObject *n = nargs >= 2 ? t_real(t, args[1]) : NULL;
        if (!n || !PyUnicode_Check(n) || nargs != (b == B_setattr ? 3 : 2))
            return t_break(t, BRK_attribute, "setattr with a name that is not a constant");
        return t_setattr(t, args[0], n, b == B_setattr ? args[2] : NULL) < 0 ? NULL : Py_NewRef(Py_None);
    }
    case B_iter: return nargs == 1 ? t_iter(t, args[0]) : t_break(t, BRK_iterate, "iter() with a sentinel");
    case B_next: {
        bool done;
        if (!nargs)
            return t_native(t, f, args, nargs, kw);
        o = IS_LAZY(args[0]) ? t_real(t, args[0]) : args[0];
        if (!o)
            return NULL;
        r = t_next(t, o, &done);
        if (!r && done) {
            if (nargs > 1)
                return Py_NewRef(args[1]);
            PyErr_SetNone(PyExc_StopIteration);
        }
        return r;
    }
    case B_list: return nargs ? t_list_of(t, args[0]) : PyList_New(0);
    case B_tuple:
        if (!nargs)
            return PyTuple_New(0);
        if (!(o = t_real(t, args[0])))
            return NULL;
        if (PyTuple_CheckExact(o))
            return Py_NewRef(o);
        l = t_list_of(t, o);
        r = l ? PyList_AsTuple(l) : NULL;
        Py_XDECREF(l);
        return r;
    case B_set:
    case B_frozenset:
        l = nargs ? t_list_of(t, args[0]) : PyList_New(0);
        r = l && t_deep(t, l) ? (b == B_set ? PySet_New(l) : PyFrozenSet_New(l)) : NULL;
        Py_XDECREF(l);
        return r;
    case B_dict: return do_dict(t, f, args, nargs, kw);
    case B_str:
    case B_repr:
        if (nargs == 1 && !kw)
            return do_str(t, args[0], b == B_repr);
        return t_native(t, f, args, nargs, kw);
    case B_int:
    case B_float:
    case B_bool: return do_number(t, f, b, args, nargs, kw);
    case B_zip:
    case B_enumerate:
    case B_itertool:
    case B_container: return call_native_iter(t, f, args, nargs, kw);
    case B_reversed:
        if (nargs != 1 || !(o = t_real(t, args[0])))
            return nargs == 1 ? NULL : t_native(t, f, args, nargs, kw);
        if ((l = type_func(o, "__reversed__")))
            return t_call(t, l, &o, 1, NULL);
        if (!t_safe_type(Py_TYPE(o)) && !PyTuple_Check(o)) {
            if (!type_func(o, "__len__") || !type_func(o, "__getitem__"))
                return t_break(t, BRK_iterate, "reversed() of a %s", Py_TYPE(o)->tp_name);
            l = t_list_of(t, o);
            r = l ? PyObject_Vectorcall(f, &l, 1, NULL) : NULL;
            Py_XDECREF(l);
            return r;
        }
        return PyObject_Vectorcall(f, &o, 1, NULL);
    case B_map: return do_map(t, args, nargs, false);
    case B_filter: return do_map(t, args, nargs, true);
    case B_sum: return nargs ? do_sum(t, args, nargs, kw) : t_native(t, f, args, nargs, kw);
    case B_any:
    case B_all: return nargs == 1 ? do_anyall(t, args[0], b == B_any) : t_native(t, f, args, nargs, kw);
    case B_min:
    case B_max: return do_minmax(t, f, args, nargs, kw, b == B_max);
    case B_sorted:
        if (nargs != 1)
            return t_native(t, f, args, nargs, kw);
        l = t_list_of(t, args[0]);
        r = l ? do_sorted(t, l, kwarg(args, nargs, kw, "key"), kwarg(args, nargs, kw, "reverse")) : NULL;
        Py_XDECREF(l);
        return r;
    case B_object: return PyObject_CallNoArgs(f);
    case B_reduce: return do_reduce(t, args, nargs);
    case B_partial: {
        Py_ssize_t n = nargs + (kw ? PyTuple_GET_SIZE(kw) : 0);
        PyObject *v[32];
        if (n > 32)
            return t_break(t, BRK_call_builtin, "partial with more than 32 arguments");
        for (Py_ssize_t i = 0; i < n; i++)
            if (!(v[i] = t_real(t, args[i])))
                return NULL;
        return PyObject_Vectorcall(f, v, (size_t)nargs, kw);
    }
    case B_tuple_new:
        if (nargs != 2 || !(o = t_real(t, args[0])) || !PyType_Check(o))
            return t_break(t, BRK_construct, "tuple.__new__");
        l = t_list_of(t, args[1]);
        if (!l)
            return NULL;
        r = PyObject_CallFunctionObjArgs(f, o, l, NULL);
        Py_DECREF(l);
        return r;
    case B_object_new:
        if (nargs < 1 || !(o = t_real(t, args[0])) || !PyType_Check(o))
            return t_break(t, BRK_construct, "object.__new__");
        return PyObject_Vectorcall(f, &o, 1, NULL);
    case B_copy: /* copy.copy of builtin containers */
        if (nargs != 1 || !(o = t_real(t, args[0])))
            return nargs == 1 ? NULL : t_native(t, f, args, nargs, kw);
        if (PyList_CheckExact(o))
            return PyList_GetSlice(o, 0, PyList_GET_SIZE(o));
        if (PyDict_CheckExact(o))
            return PyDict_Copy(o);
        if (t_plain_const(o) || PyTuple_CheckExact(o))
            return Py_NewRef(o);
        *handled = false;
        return NULL;
    case B_mode: { /* switches of the thread's state become nodes, so that they happen in order */
        PyObject *a = nargs ? t_real(t, args[0]) : Py_False;
        if (!a)
            return NULL;
        if (nargs != 1 || !PyBool_Check(a))
            return t_break(t, BRK_call_builtin, "%s with these arguments",
                           ((PyCFunctionObject *)f)->m_ml->ml_name);
        char nm[96];
        snprintf(nm, sizeof nm, "taper._C.%s", ((PyCFunctionObject *)f)->m_ml->ml_name);
        tp_val v = vB(a == Py_True);
        ir_add_opaque(t->rec.g, nm, f, &v, 1, vNone);
        return PyObject_Vectorcall(f, &a, 1, NULL);
    }
    default: break;
    }
    /* other functions of our own extension: questions are answered, the rest runs natively */
    if (PyCFunction_Check(f) && PyCFunction_GET_SELF(f) == py_module) {
        static const char *const ask[] = { "is_grad_enabled",
                                           "is_inference_mode_enabled",
                                           "get_default_dtype",
                                           "is_tensor",
                                           "_call",
                                           "is_floating_point",
                                           "are_deterministic_algorithms_enabled",
                                           "is_autocast_enabled",
                                           "numel",
                                           "result_type",
                                           "promote_types",
                                           "can_cast",
                                           "is_anomaly_enabled",
                                           "broadcast_shapes",
                                           "tensor",
                                           "as_tensor",
                                           "_sym_check",
                                           "_sym_size_like" };
        const char *n = ((PyCFunctionObject *)f)->m_ml->ml_name;
        *handled = true;
        if (!strcmp(n, "_run_backward") && nargs == 7)
            return t_backward(t, args);
        for (size_t i = 0; i < COUNT(ask); i++)
            if (!strcmp(n, ask[i])) {
                if (!strcmp(n, "tensor") || !strcmp(n, "as_tensor")) {
                    o = nargs ? t_real(t, args[0]) : NULL;
                    if (!o || !t_deep(t, o))
                        return o ? NULL : t_break(t, BRK_construct, "%s()", n);
                    if (py_is_tensor(o) && !strcmp(n, "as_tensor") && nargs == 1 && !kw)
                        return Py_NewRef(o);
                    if (!t_plain_const(o) && !PyList_Check(o) && !PyTuple_Check(o))
                        return t_break(t, BRK_construct, "%s() of a %s", n, Py_TYPE(o)->tp_name);
                    l = PyList_Check(o) || PyTuple_Check(o) ? PyObject_Repr(o) : NULL;
                    PyErr_Clear();
                    bool dyn = l && (strstr(PyUnicode_AsUTF8(l), "tensor(") ||
                                     strstr(PyUnicode_AsUTF8(l), "Tensor"));
                    Py_XDECREF(l);
                    if (dyn || kwarg(args, nargs, kw, "requires_grad"))
                        return t_break(t, BRK_construct, "%s() of tensors", n);
                    void *rec = CX->rec; /* a constant: made once, held by the graph */
                    CX->rec = NULL;
                    r = t_native(t, f, args, nargs, kw);
                    CX->rec = rec;
                    if (r && py_is_tensor(r)) {
                        ir_node *node = ir_add_const(t->g, "_tensor_constant0", py_tensor(r));
                        tp_val a[1] = { { .kind = VAL_node, .node = node } };
                        (void)a;
                        tp_tensor *p = ir_proxy(&t->rec, node);
                        PyObject *c = py_wrap(p), *q = c ? PyObject_CallMethod(c, "clone", NULL) : NULL;
                        Py_XDECREF(c);
                        Py_DECREF(r);
                        return q;
                    }
                    return r;
                }
                if (!strcmp(n, "_call")) {
                    op_id op;
                    op_variant var;
                    o = nargs ? t_real(t, args[0]) : NULL;
                    const char *row = o && PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : NULL;
                    if (row && op_find(row, strlen(row), &op, &var) &&
                        ((op_row_of(op)->flags & OPF_SYNC) ||
                         ((op_row_of(op)->flags & OPF_DYN) && !t_dynamic_outputs(t))))
                        return t_break(t, BRK_data, "%s reads a tensor's data", row);
                }
                return t_native(t, f, args, nargs, kw);
            }
        return t_break(t, BRK_call_builtin, "call of taper._C.%s", n);
    }
    return NULL;
}

/* ---- methods of builtin objects ---- */
static bool one_of(const char *n, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(n, *list))
            return true;
    return false;
}

static bool any_tensor(PyObject *o, int depth)
{
    if (py_is_tensor(o) || py_is_symint(o))
        return true;
    if (depth < 10 && (PyTuple_Check(o) || PyList_Check(o)))
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
            if (any_tensor(PySequence_Fast_GET_ITEM(o, i), depth + 1))
                return true;
    return false;
}

PyObject *t_method(trace *t, PyObject *f, PyObject *self, const char *name, PyObject *const *args,
                   Py_ssize_t nargs, PyObject *kw)
{
    static const char *const shallow[] = { "append",     "insert",  "get",        "pop",     "popitem",
                                           "items",      "keys",    "values",     "copy",    "clear",
                                           "setdefault", "reverse", "appendleft", "popleft", "move_to_end",
                                           "__len__",    "rotate",  NULL };
    static const char *const iters[] = { "extend",
                                         "update",
                                         "join",
                                         "union",
                                         "difference",
                                         "intersection",
                                         "extendleft",
                                         "fromkeys",
                                         "issubset",
                                         "issuperset",
                                         "symmetric_difference",
                                         "difference_update",
                                         "intersection_update",
                                         NULL };
    static const char *const reads[] = {
        "tolist",  "numpy",      "data_ptr",  "__array__",     "__dlpack__",   "untyped_storage",
        "storage", "_data_text", "__repr__",  "__str__",       "__format__",   "share_memory_",
        "__int__", "__float__",  "__index__", "__reduce_ex__", "__deepcopy__", NULL
    };
    static const char *const tape[] = { "register_hook",
                                        "requires_grad_",
                                        "retain_grad",
                                        "register_post_accumulate_grad_hook",
                                        "set_",
                                        "resize_",
                                        "detach_",
                                        "_backward",
                                        NULL };
    PyTypeObject *tp = Py_TYPE(self);
    PyObject *v[32], *r = NULL;
    Py_ssize_t n = nargs + (kw ? PyTuple_GET_SIZE(kw) : 0), i = 0;
    if (n > 32)
        return t_break(t, BRK_call_builtin, "%s with more than 32 arguments", name);
    if (py_is_tensor(self)) {
        if (!strcmp(name, "item") || !strcmp(name, "__int__") || !strcmp(name, "__float__") ||
            !strcmp(name, "__index__"))
            return t_item(t, self, !strcmp(name, "item") ? '?' : !strcmp(name, "__float__") ? 'f' : 'i');
        if (!strcmp(name, "__bool__"))
            return t_break(t, BRK_item, "Tensor.item");
        if (one_of(name, reads))
            return t_break(t, BRK_data, "Tensor.%s", name);
        if (!strcmp(name, "backward"))
            return t_tensor_backward(t, self, args, nargs, kw);
        if (one_of(name, tape))
            return t_break(t, BRK_call_builtin, "Tensor.%s", name);
        return t_native(t, f, args, nargs, kw);
    }
    tobj *k = t_obj(t, self);
    if (!t_safe_type(tp) && !PyTuple_Check(self)) {
        if (k && k->src)
            return t_break(t, BRK_call_builtin, "%s.%s", tp->tp_name, name);
        if (PyExceptionInstance_Check(self) || !type_is_python(tp))
            return t_native(t, f, args, nargs, kw);
        return t_break(t, BRK_call_builtin, "%s.%s", tp->tp_name, name);
    }
    if (tp == &PyRng_Type)
        return t_break(t, BRK_call_builtin, "Generator.%s", name);
    if (tp == &PyList_Type && !strcmp(name, "sort")) {
        PyObject *copy = PyList_GetSlice(self, 0, PyList_GET_SIZE(self));
        PyObject *s = copy ? do_sorted(t, copy, kwarg(args, nargs, kw, "key"),
                                       kwarg(args, nargs, kw, "reverse"))
                           : NULL;
        int rc = s ? PyList_SetSlice(self, 0, PyList_GET_SIZE(self), s) : -1;
        Py_XDECREF(copy);
        Py_XDECREF(s);
        return rc < 0 ? NULL : Py_NewRef(Py_None);
    }
    if (PyUnicode_Check(self))
        for (Py_ssize_t q = 0; q < n; q++) {
            PyObject *a = t_real(t, args[q]);
            if (!a)
                return NULL;
            if (any_tensor(a, 0) || (!strcmp(name, "format") && !t_plain_const(a)))
                return t_break(t, BRK_format, "str.%s of a %s", name, Py_TYPE(a)->tp_name);
        }
    bool sh = one_of(name, shallow), it = one_of(name, iters);
    for (; i < n; i++) {
        PyObject *a = args[i];
        bool key = i == 0 && PyDict_Check(self);
        if (sh && !key) {
            v[i] = Py_NewRef(a);
            continue;
        }
        if (!(a = t_real(t, a)))
            goto done;
        v[i] = it ? (PyDict_Check(a)       ? Py_NewRef(a)
                     : Py_TYPE(a)->tp_iter ? t_list_of(t, a)
                                           : Py_NewRef(a))
                  : Py_NewRef(a);
        if (!v[i])
            goto done;
        bool deep_ = !(it && (PyList_Check(self) || PyDict_Check(self) || tp == t_deque_type()));
        if (deep_ && !t_deep(t, v[i])) {
            i++;
            goto done;
        }
        if (it && PyDict_Check(self) && PyList_Check(v[i])) { /* pairs: keys must be known */
            if (!t_deep(t, v[i])) {
                i++;
                goto done;
            }
        }
    }
    if (!sh && !it && !t_deep(t, self))
        goto done;
    r = PyObject_Vectorcall(f, v, (size_t)nargs, kw);
    if (!r)
        t_fake_failed(t, name);
done:
    while (i-- > 0)
        Py_DECREF(v[i]);
    return r;
}

/* _capture_role(fn, role): how the tracer treats a function. */
static PyObject *set_role(PyObject *m, PyObject *args)
{
    PyObject *f, *role;
    if (!PyArg_ParseTuple(args, "OO", &f, &role))
        return NULL;
    if (role == Py_None) {
        if (PyDict_DelItem(special, f) < 0)
            PyErr_Clear();
    } else if (PyDict_SetItem(special, f, role) < 0)
        return NULL;
    Py_RETURN_NONE;
}
static PyMethodDef functions[] = {
    { "_capture_role", set_role, METH_VARARGS, "how the tracer treats a function" }, { NULL }
};

int py_init_tbuiltin(PyObject *m)
{
    static const struct {
        const char *name;
        builtin b;
    } rows[] = { { "abs", B_abs },
                 { "ascii", B_pure },
                 { "bin", B_pure },
                 { "chr", B_pure },
                 { "divmod", B_pure },
                 { "format", B_pure },
                 { "hex", B_pure },
                 { "oct", B_pure },
                 { "ord", B_pure },
                 { "pow", B_pure },
                 { "round", B_pure },
                 { "hash", B_pure },
                 { "callable", B_safe_native },
                 { "issubclass", B_safe_native },
                 { "len", B_len },
                 { "isinstance", B_isinstance },
                 { "type", B_type },
                 { "super", B_super },
                 { "getattr", B_getattr },
                 { "hasattr", B_hasattr },
                 { "setattr", B_setattr },
                 { "delattr", B_delattr },
                 { "print", B_print },
                 { "iter", B_iter },
                 { "next", B_next },
                 { "list", B_list },
                 { "tuple", B_tuple },
                 { "set", B_set },
                 { "frozenset", B_frozenset },
                 { "dict", B_dict },
                 { "str", B_str },
                 { "repr", B_repr },
                 { "int", B_int },
                 { "float", B_float },
                 { "bool", B_bool },
                 { "zip", B_zip },
                 { "enumerate", B_enumerate },
                 { "map", B_map },
                 { "filter", B_filter },
                 { "reversed", B_reversed },
                 { "sum", B_sum },
                 { "any", B_any },
                 { "all", B_all },
                 { "min", B_min },
                 { "max", B_max },
                 { "sorted", B_sorted },
                 { "object", B_object },
                 { "range", B_pure },
                 { "slice", B_pure },
                 { "complex", B_pure },
                 { "bytes", B_pure },
                 { "input", B_break },
                 { "open", B_break },
                 { "id", B_break },
                 { "exec", B_break },
                 { "eval", B_break },
                 { "compile", B_break },
                 { "property", B_partial },
                 { "staticmethod", B_partial },
                 { "classmethod", B_partial } };
    table = PyDict_New();
    special = PyDict_New();
    if (!table || !special)
        return -1;
    put_all("math", B_safe_native);
    put_all("operator", B_safe_native);
    put_all("_operator", B_safe_native);
    put_all("itertools", B_itertool);
    for (size_t i = 0; i < COUNT(rows); i++)
        put("builtins", rows[i].name, rows[i].b);
    put("functools", "reduce", B_reduce);
    put("functools", "partial", B_partial);
    put("collections", "deque", B_container);
    put("collections", "OrderedDict", B_dict);
    put("copy", "copy", B_copy);
    PyObject *dd = (PyObject *)t_default_type(), *i = PyLong_FromLong(B_partial);
    PyDict_SetItem(table, dd, i);
    Py_DECREF(i);
    /* constructors called by name */
    PyObject *tn = PyObject_GetAttrString((PyObject *)&PyTuple_Type, "__new__"),
             *on = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__new__");
    PyObject *bt = PyLong_FromLong(B_tuple_new), *bo = PyLong_FromLong(B_object_new);
    PyDict_SetItem(table, tn, bt);
    PyDict_SetItem(table, on, bo);
    Py_XDECREF(tn);
    Py_XDECREF(on);
    Py_XDECREF(bt);
    Py_XDECREF(bo);
    return PyModule_AddFunctions(m, functions);
}

/* Called once the package is loaded: functions of the extension that switch modes. */
void t_register_modes(void)
{
    static const char *const modes[] = { "_set_grad_enabled", "set_grad_enabled", "_set_inference_mode" };
    PyObject *d = PyModule_GetDict(py_module);
    for (size_t i = 0; i < COUNT(modes); i++) {
        PyObject *f = PyDict_GetItemString(d, modes[i]), *id = PyLong_FromLong(B_mode);
        if (f && PyCFunction_Check(f))
            PyDict_SetItem(table, f, id);
        Py_DECREF(id);
    }
}
