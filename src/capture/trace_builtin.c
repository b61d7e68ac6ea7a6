/* trace_builtin.c - builtin functions, types and methods while tracing. */
#include "capture/capture.h"
#include "grad/batch.h"

/* A builtin that the tracer knows: a row of builtin.def. */
typedef struct builtin builtin;
typedef PyObject *builtin_fn(trace *t, const builtin *b, PyObject *f, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kw, bool *handled);
struct builtin {
    const char *module, *name;
    builtin_fn *fn;
    int how, least, most;
    const char *const names[3];
};
static const builtin rows[];

static PyObject *table;   /* callable -> its index in rows */
static PyObject *special; /* callable -> role */

static void put(PyObject *f, size_t row)
{
    PyObject *i = PyLong_FromSize_t(row);
    if (f && i)
        PyDict_SetItem(table, f, i);
    Py_XDECREF(i);
}
static void put_all(const char *mod, bool types, size_t row)
{
    PyObject *m = PyImport_ImportModule(mod), *d = m ? PyModule_GetDict(m) : NULL, *k, *v;
    Py_ssize_t p = 0;
    while (d && PyDict_Next(d, &p, &k, &v))
        if ((PyCFunction_Check(v) || (PyType_Check(v) && types)) && *PyUnicode_AsUTF8(k) != '_')
            put(v, row);
    py_forget();
    Py_XDECREF(m);
}
static const builtin *find(PyObject *f)
{
    if (!PyCFunction_Check(f) && !PyType_Check(f) && !PyFunction_Check(f))
        return NULL;
    PyObject *i = PyDict_GetItemWithError(table, f);
    if (!i)
        py_forget();
    return i ? &rows[PyLong_AsSize_t(i)] : NULL;
}

PyObject *py_special(PyObject *f)
{
    if (!special || !PyDict_GET_SIZE(special))
        return NULL;
    if (!PyFunction_Check(f) && !PyType_Check(f) && !PyCFunction_Check(f) && !PyMethod_Check(f) &&
        Py_TYPE(f) != &PyOpFunc_Type && strncmp(Py_TYPE(f)->tp_name, "numpy.", 6))
        return NULL;
    PyObject *r = PyDict_GetItemWithError(special, PyMethod_Check(f) ? PyMethod_GET_FUNCTION(f) : f);
    if (!r)
        py_forget();
    return r;
}

static PyObject *kwarg(PyObject *const *args, Py_ssize_t nargs, PyObject *kw, const char *name)
{
    for (Py_ssize_t i = 0; kw && i < PyTuple_GET_SIZE(kw); i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kw, i), name) == 0)
            return args[nargs + i];
    return NULL;
}

static bool is_default(trace *t, PyObject *v, const char *name) /* what functools itself says, or not given */
{
    PyObject *m = v ? PyImport_ImportModule("functools") : NULL,
             *d = m ? PyObject_GetAttrString(m, name) : NULL;
    bool yes = !v || (t_real(t, v) && t_deep(t, t_real(t, v)) && d &&
                      PyObject_RichCompareBool(t_real(t, v), d, Py_EQ) == 1);
    Py_XDECREF(m);
    Py_XDECREF(d);
    return yes;
}

static PyObject *call_native_iter(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs,
                                  PyObject *kw)
{
    Py_ssize_t n = nargs + (kw ? PyTuple_GET_SIZE(kw) : 0), i = 0;
    PyObject *v[32] = { NULL }, *r = NULL;
    if (n > 32)
        return t_break(t, BRK_call_builtin, "more than 32 arguments");
    for (; i < n; i++) {
        PyObject *a = t_real(t, args[i]);
        if (!a)
            goto done;
        if (PyCallable_Check(a) && !PyType_Check(a) && !PyCFunction_Check(a) && !Py_TYPE(a)->tp_iter) {
            t_break(t, BRK_call_builtin, "%s with a Python function", ((PyTypeObject *)f)->tp_name);
            goto done;
        }
        bool it = Py_TYPE(a)->tp_iter && !PyUnicode_Check(a);
        v[i] = it ? t_iterable(t, a, TI_raw) : Py_NewRef(a);
        if (!v[i])
            goto done;
    }
    r = PyObject_Vectorcall(f, v, (size_t)nargs, kw);
done:
    while (i-- > 0)
        Py_DECREF(v[i]);
    return r;
}

/* Builtin iterators that call functions or look at their items: what stands in each place of the call. f: a function,
 * t: a function asked for truth, r: items as they are, k: items that are looked at, v: a value. */
static const struct lazy_row {
    const char *name, *args;
    const char *kw[3];
} lazy_rows[] = {
    { "map", "frrrrrrrr", { 0 } },
    { "filter", "tr", { 0 } },
    { "accumulate", "kfv", { "iterable", "func", "initial" } },
    { "takewhile", "tr", { 0 } },
    { "dropwhile", "tr", { 0 } },
    { "filterfalse", "tr", { 0 } },
    { "starmap", "fk", { 0 } },
    { "groupby", "kf", { "iterable", "key" } },
    { "compress", "rk", { "data", "selectors" } },
    { "repeat", "vv", { "object", "times" } },
};

static PyObject *operator_add(void) /* borrowed */
{
    static PyObject *fn;
    PyObject *op = fn ? NULL : PyImport_ImportModule("operator");
    if (op)
        fn = PyObject_GetAttrString(op, "add");
    Py_XDECREF(op);
    return fn;
}

static PyObject *lazy_arg(trace *t, PyObject *a, char how, bool add)
{
    if (how == 'r' || how == 'k')
        return t_iterable(t, a, how == 'r' ? TI_raw : TI_known);
    if (!(a = t_real(t, a)))
        return NULL;
    if (a == Py_None && how == 't')
        a = (PyObject *)&PyBool_Type;
    if (a == Py_None && how == 'f' && add)
        a = operator_add();
    return how == 'v' || a == Py_None ? Py_NewRef(a) : t_fn(a, how == 't');
}

static PyObject *do_lazy(trace *t, PyObject *f, const struct lazy_row *row, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kw)
{
    PyObject *in[12], *v[12] = { NULL }, *r = NULL;
    Py_ssize_t nkw = kw ? PyTuple_GET_SIZE(kw) : 0, n = 0;
    bool add = !strcmp(row->name, "accumulate");
    if (nargs > (Py_ssize_t)strlen(row->args) || nargs + nkw > 10)
        return t_break(t, BRK_arguments, "%s with %zd arguments", row->name, nargs + nkw);
    for (Py_ssize_t i = 0; i < nargs; i++)
        in[n++] = args[i];
    if (add && nargs == 1 && !kwarg(args, nargs, kw, "func"))
        in[n++] = Py_None;
    Py_ssize_t npos = n;
    for (Py_ssize_t i = 0; i < nkw; i++)
        in[n++] = args[nargs + i];
    for (Py_ssize_t i = 0; i < n; i++) {
        size_t k = (size_t)i;
        if (i >= npos)
            for (k = 0; k < 3 && row->kw[k] &&
                        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kw, i - npos), row->kw[k]);)
                k++;
        if (i >= npos && (k == 3 || !row->kw[k])) {
            t_break(t, BRK_arguments, "%s with these keywords", row->name);
            goto done;
        }
        if (!(v[i] = lazy_arg(t, in[i], row->args[k], add)))
            goto done;
    }
    r = PyObject_Vectorcall(f, v, (size_t)npos, kw);
done:
    for (Py_ssize_t i = 0; i < n; i++)
        Py_XDECREF(v[i]);
    return r;
}

static PyObject *do_itertool(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    const char *name = ((PyTypeObject *)f)->tp_name, *dot = strrchr(name, '.');
    name = dot ? dot + 1 : name;
    for (size_t i = 0; i < COUNT(lazy_rows); i++)
        if (PyType_Check(f) && !strcmp(name, lazy_rows[i].name))
            return do_lazy(t, f, &lazy_rows[i], args, nargs, kw);
    return call_native_iter(t, f, args, nargs, kw);
}

/* Class methods of builtin classes. NULL without an exception: not known. */
PyObject *t_classmethod(trace *t, PyObject *f, PyObject *cls, const char *name, PyObject *const *args,
                        Py_ssize_t nargs, PyObject *kw)
{
    PyObject *it = NULL, *r = NULL;
    if (!strcmp(name, "from_iterable") && nargs == 1 && !kw &&
        !strcmp(((PyTypeObject *)cls)->tp_name, "itertools.chain")) {
        if (!(it = t_iterable(t, args[0], TI_inner)))
            return NULL;
        r = PyObject_CallOneArg(f, it);
    } else if (!strcmp(name, "fromkeys") && nargs && !kw &&
               (cls == (PyObject *)&PyDict_Type || cls == (PyObject *)t_ordered_type())) {
        if (!(it = t_list_of(t, args[0])) || !t_key(t, it)) {
            Py_XDECREF(it);
            return NULL;
        }
        r = PyObject_Vectorcall(f, (PyObject *[]){ it, nargs > 1 ? args[1] : Py_None }, 2, NULL);
    } else if ((cls == (PyObject *)&PyLong_Type || cls == (PyObject *)&PyFloat_Type ||
                cls == (PyObject *)&PyBytes_Type || cls == (PyObject *)&PyUnicode_Type)) {
        for (Py_ssize_t i = 0; i < nargs; i++)
            if (!(it = t_real(t, args[i])) || !t_safe_type(Py_TYPE(it)) || py_is_tensor(it))
                return NULL;
        return t_native(t, f, args, nargs, kw);
    }
    Py_XDECREF(it);
    return r;
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

/* Positions of list, sorted by t_compare: a stable merge. False: break or exception. */
static bool merge_sort(trace *t, PyObject *list, Py_ssize_t *ix, Py_ssize_t *tmp, Py_ssize_t n, bool reverse)
{
    Py_ssize_t h = n / 2, i = 0, k = h, o = 0;
    if (n < 2)
        return true;
    if (!merge_sort(t, list, ix, tmp, h, reverse) || !merge_sort(t, list, ix + h, tmp, n - h, reverse))
        return false;
    while (i < h && k < n) {
        PyObject *a = PyList_GET_ITEM(list, ix[i]), *b = PyList_GET_ITEM(list, ix[k]),
                 *c = reverse ? t_compare(t, a, b, Py_LT) : t_compare(t, b, a, Py_LT);
        int less = c ? t_truth(t, c) : -1;
        Py_XDECREF(c);
        if (less < 0)
            return false;
        tmp[o++] = less ? ix[k++] : ix[i++];
    }
    while (i < h)
        tmp[o++] = ix[i++];
    while (k < n)
        tmp[o++] = ix[k++];
    memcpy(ix, tmp, sizeof *ix * (size_t)n);
    return true;
}

static PyObject *sort_by_code(trace *t, PyObject *list, PyObject *keys, bool reverse)
{
    Py_ssize_t n = PyList_GET_SIZE(list), *ix = mem_alloc(sizeof *ix * (size_t)(2 * n + 1));
    PyObject *out = NULL;
    for (Py_ssize_t i = 0; i < n; i++)
        ix[i] = i;
    if (merge_sort(t, keys, ix, ix + n, n, reverse) && (out = PyList_New(n)))
        for (Py_ssize_t i = 0; i < n; i++)
            PyList_SET_ITEM(out, i, Py_NewRef(PyList_GET_ITEM(list, ix[i])));
    free(ix);
    return out;
}

static bool has_code(PyObject *l) /* is one of them compared by code of the user's? */
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(l); i++) {
        PyObject *o = PyList_GET_ITEM(l, i);
        o = IS_LAZY(o) ? ((PyLazy *)o)->real : o;
        if (!t_safe_type(Py_TYPE(o)) && !PyTuple_Check(o))
            return true;
    }
    return false;
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
    if (keys && has_code(keys)) {
        int rev = reverse ? t_truth(t, reverse) : 0;
        out = rev < 0 ? NULL : sort_by_code(t, list, keys, rev);
        goto done;
    }
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
    if (nargs > 1 && dflt)
        return t_break(t, BRK_arguments, "a default with several values");
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

static bool printable(PyObject *o,
                      int depth) /* its text depends on no tensor and runs no code of the user's */
{
    if (depth > 20)
        return false;
    if (PyDict_Check(o) && t_safe_type(Py_TYPE(o))) {
        PyObject *k, *v;
        Py_ssize_t p = 0;
        while (PyDict_Next(o, &p, &k, &v))
            if (!printable(k, depth + 1) || !printable(v, depth + 1))
                return false;
        return true;
    }
    if (PyTuple_Check(o) || PyList_CheckExact(o) || PyAnySet_CheckExact(o) || Py_TYPE(o) == t_deque_type()) {
        PyObject *l = PySequence_List(o);
        bool ok = l != NULL;
        for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(l); i++)
            ok = printable(PyList_GET_ITEM(l, i), depth + 1);
        Py_XDECREF(l);
        return ok;
    }
    if ((PyLong_Check(o) || PyUnicode_Check(o) || PyFloat_Check(o)) && t_base(Py_TYPE(o)))
        return !t_type_func(o, "__str__") && !t_type_func(o, "__repr__") && !t_type_func(o, "__format__");
    return !py_is_tensor(o) && Py_TYPE(o) != &PyLazy_Type && (t_safe_type(Py_TYPE(o)) || t_plain_const(o));
}

bool t_printable(PyObject *o) { return printable(o, 0); }

PyObject *t_text(trace *t, PyObject *o, int how)
{
    PyObject *fn, *r;
    bool repr = how > 1;
    if (!(o = t_real(t, o)))
        return NULL;
    if (py_is_tensor(o))
        return t_break(t, BRK_format, "%s() of a %s", repr ? "repr" : "str", Py_TYPE(o)->tp_name);
    if (!PyType_Check(o) && !PyExceptionInstance_Check(o) && !t_plain_const(o) &&
        ((fn = t_type_func(o, repr ? "__repr__" : "__str__")) ||
         (!repr && Py_TYPE(o)->tp_str == PyBaseObject_Type.tp_str && (fn = t_type_func(o, "__repr__"))))) {
        if (!(r = t_result(t, t_call(t, fn, &o, 1, NULL), repr ? "__repr__" : "__str__")))
            return NULL;
        if (how == 3)
            Py_SETREF(r, PyObject_ASCII(r));
        return r;
    }
    if (PyExceptionInstance_Check(o) && !t_source_of(t, o) &&
        !t_type_func(o, repr ? "__repr__" : "__str__")) {
        PyObject *a = ((PyBaseExceptionObject *)o)->args;
        if (a && (!t_deep(t, a) || !printable(a, 0)))
            return t->broke ? NULL : t_break(t, BRK_format, "the text of an exception about a tensor");
    } else if (!t_deep(t, o))
        return NULL;
    else if (!printable(o, 0))
        return t_break(t, BRK_format, "%s() of a %s", repr ? "repr" : "str", Py_TYPE(o)->tp_name);
    return how == 3 ? PyObject_ASCII(o) : repr ? PyObject_Repr(o) : PyObject_Str(o);
}

PyObject *t_format(trace *t, PyObject *v, PyObject *spec)
{
    if (t_plain_const(v))
        return PyObject_Format(v, spec);
    PyObject *fn = t_type_func(v, "__format__"), *args[2] = { v, spec };
    if (fn)
        return t_result(t, t_call(t, fn, args, 2, NULL), "__format__");
    PyObject *s = t_text(t, v, 1);
    if (s && PyUnicode_GetLength(spec)) {
        PyErr_Format(PyExc_TypeError, "unsupported format string passed to %.200s.__format__",
                     Py_TYPE(v)->tp_name);
        Py_CLEAR(s);
    }
    return s;
}

static PyObject *do_number(trace *t, PyObject *f, int b, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kw)
{
    PyObject *o = nargs ? t_real(t, args[0]) : NULL;
    if (nargs && !o)
        return NULL;
    if (o && py_is_tensor(o))
        return b == 'b' ? t_break(t, BRK_data_jump, "bool() of a tensor")
                        : t_item(t, o, b == 'i' ? 'i' : 'f');
    if (o && py_is_symfloat(o) && b != 'b' && nargs == 1)
        return b == 'f' ? Py_NewRef(o) : t_symfloat_int(t, o);
    if (o && nargs == 1 && !kw && b == 'f' && py_is_sizefloat(o))
        return Py_NewRef(o);
    PyObject *sym = !o || nargs != 1 || kw           ? NULL
                    : b == 'f'                       ? t_size_float(o)
                    : b == 'i' && py_is_sizefloat(o) ? t_size_whole(o, false)
                                                     : NULL;
    if (sym || PyErr_Occurred())
        return sym;
    if (b == 'b' && o) {
        int v = t_truth(t, o);
        return v < 0 ? NULL : PyBool_FromLong(v);
    }
    if (b == 'i' && o && py_is_symint(o) && nargs == 1 && sym_is_bool(py_symint_value(o)) &&
        !sym_is_unbacked(py_symint_value(o))) {
        int v = t_truth(t, o);
        return v < 0 ? NULL : PyLong_FromLong(v);
    }
    if (b == 'i' && o && py_is_symint(o) && nargs == 1)
        return Py_NewRef(o);
    if (o && !t_safe_type(Py_TYPE(o))) {
        const char *by = b == 'i' ? "__int__" : "__float__";
        PyObject *fn = t_type_func(o, by);
        if (fn && (nargs > 1 || kw))
            return t_break(t, BRK_arguments, "a number of an object in another base");
        if (fn || !(PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o)))
            return fn ? t_result(t, t_call(t, fn, &o, 1, NULL), by)
                      : t_break(t, BRK_operator, "number of a %s", Py_TYPE(o)->tp_name);
    }
    return t_native(t, f, args, nargs, kw);
}

/* d.update(...) of a builtin dictionary, by the rules of its class. d again (new reference), or NULL. */
PyObject *t_fill_dict(trace *t, PyObject *d, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *src = NULL;
    int t_setitem_base(trace * t, PyObject * o, PyObject * k, PyObject * v);
    if (nargs > 1) {
        PyErr_Format(PyExc_TypeError, "dict expected at most 1 argument, got %zd", nargs);
        return NULL;
    }
    if (nargs) {
        if (!(src = t_real(t, args[0])))
            return NULL;
        src = t_unproxied(src);
        if (PyDict_Check(src) && !t_type_func(src, "__iter__")) {
            PyObject *keys = dict_keys(src);
            for (Py_ssize_t i = 0; keys && i < PyList_GET_SIZE(keys); i++)
                if (dict_set(d, PyList_GET_ITEM(keys, i),
                             PyDict_GetItemWithError(src, PyList_GET_ITEM(keys, i))) < 0)
                    Py_CLEAR(keys);
            if (!keys)
                return NULL;
            Py_DECREF(keys);
        } else {
            if (t_type_func(src, "keys")) {
                PyObject *fn = polyfill("mapping"), *m = fn ? t_call(t, fn, &src, 1, NULL) : NULL,
                         *done = m ? t_fill_dict(t, d, &m, 1, NULL) : NULL;
                Py_XDECREF(m);
                Py_XDECREF(done);
                if (!done)
                    return NULL;
                goto named;
            }
            PyObject *l = t_list_of(t, src);
            for (Py_ssize_t i = 0; l && i < PyList_GET_SIZE(l); i++) {
                PyObject *pair = t_list_of(t, PyList_GET_ITEM(l, i));
                if (pair && PyList_GET_SIZE(pair) != 2)
                    PyErr_Format(PyExc_ValueError,
                                 "dictionary update sequence element #%zd has length %zd; 2 is required", i,
                                 PyList_GET_SIZE(pair));
                else if (pair &&
                         t_setitem_base(t, d, PyList_GET_ITEM(pair, 0), PyList_GET_ITEM(pair, 1)) >= 0) {
                    Py_DECREF(pair);
                    continue;
                }
                Py_XDECREF(pair);
                Py_CLEAR(l);
            }
            if (!l)
                return NULL;
            Py_DECREF(l);
        }
    }
named:
    for (Py_ssize_t i = 0; kw && i < PyTuple_GET_SIZE(kw); i++)
        if (dict_set(d, PyTuple_GET_ITEM(kw, i), args[nargs + i]) < 0)
            return NULL;
    return Py_NewRef(d);
}

static PyObject *do_dict(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *d = PyObject_CallNoArgs(f), *r = d ? t_fill_dict(t, d, args, nargs, kw) : NULL;
    Py_XDECREF(d);
    return r;
}

/* id(): code of the library and of Python tells objects apart by it. Elsewhere the number may be seen, so it is that of an
 * object which a guard holds fast. */
static PyObject *do_id(trace *t, PyObject *o)
{
    const char *file = t->top->cc->file, *name = strrchr(file, '/');
    if (!(o = t_real(t, o)))
        return NULL;
    tobj *k = t_obj(t, o);
    PyObject *real = k && k->src                            ? (k->real ? k->real : k->abs)
                     : PyType_Check(o) || PyModule_Check(o) ? o
                                                            : NULL;
    bool own = t->top->cc->library || (name && !strcmp(name, "/inspect.py") && !strstr(file, "-packages/"));
    if (own)
        return PyLong_FromVoidPtr(real ? real : o);
    if (!real)
        return t_break(t, BRK_call_builtin, "id() of an object that was made here");
    if (k && k->src && k->src->kind != SRC_const)
        guard_where(t, guard_add(t->e, G_ID_MATCH, k->src, real));
    return PyLong_FromVoidPtr(real);
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
        py_forget();
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

/* A metaclass's own idea of isinstance or issubclass, borrowed; abc's rests on C code that needs no tracing. */
static PyObject *own_check(PyObject *c, const char *name)
{
    PyObject *fn = NULL;
    if (PyTuple_Check(c)) {
        for (Py_ssize_t i = 0; !fn && i < PyTuple_GET_SIZE(c); i++)
            fn = own_check(PyTuple_GET_ITEM(c, i), name);
        return fn;
    }
    if (!PyType_Check(c) || Py_TYPE(c) == &PyType_Type || !(fn = t_type_func(c, name)))
        return NULL;
    cap_code *cc = cap_code_of((PyCodeObject *)PyFunction_GET_CODE(fn));
    if (!cc)
        py_forget();
    return cc && !cc->library && !cap_is_skipped_file(cc->file) && strncmp(cc->file, "<frozen", 7) ? fn
                                                                                                   : NULL;
}

/* The method behind a builtin function of numbers, or NULL. */
static const char *dunder_of(PyObject *f)
{
    static const char *const rows[][2] = {
        { "abs", "__abs__" },     { "round", "__round__" },     { "divmod", "__divmod__" },
        { "pow", "__pow__" },     { "hash", "__hash__" },       { "format", "__format__" },
        { "floor", "__floor__" }, { "ceil", "__ceil__" },       { "trunc", "__trunc__" },
        { "index", "__index__" }, { "add", "__add__" },         { "sub", "__sub__" },
        { "mul", "__mul__" },     { "truediv", "__truediv__" }, { "floordiv", "__floordiv__" },
        { "mod", "__mod__" },     { "matmul", "__matmul__" },   { "neg", "__neg__" },
        { "pos", "__pos__" },     { "invert", "__invert__" },   { "and_", "__and__" },
        { "or_", "__or__" },      { "xor", "__xor__" },         { "eq", "__eq__" },
        { "ne", "__ne__" },       { "lt", "__lt__" },           { "le", "__le__" },
        { "gt", "__gt__" },       { "ge", "__ge__" },           { "getitem", "__getitem__" }
    };
    const char *n = PyCFunction_Check(f) ? ((PyCFunctionObject *)f)->m_ml->ml_name : "";
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!strcmp(n, rows[i][0]))
            return rows[i][1];
    return NULL;
}
static PyObject *call_rest(trace *t, PyObject *fn, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kw)
{
    PyObject *v[8] = { self };
    if (nargs > 8 || kw)
        return t_break(t, BRK_arguments, "%zd arguments", nargs);
    for (Py_ssize_t i = 1; i < nargs; i++)
        v[i] = args[i];
    PyObject *r = t_call(t, fn, v, nargs, NULL);
    if (r != Py_NotImplemented)
        return r;
    Py_DECREF(r);
    return t_break(t, BRK_operator, "an operator that %s refuses", Py_TYPE(self)->tp_name);
}

/* What the builtin makes of the method's result. Takes r. */
static PyObject *of_kind(trace *t, PyObject *r, const char *method)
{
    bool hash = !strcmp(method, "__hash__");
    if (!hash && strcmp(method, "__index__") && strcmp(method, "__format__"))
        return r;
    if (!(r = t_result(t, r, hash ? "__index__" : method)) || !hash || !PyLong_Check(r))
        return r;
    Py_SETREF(r, PyLong_FromSsize_t(PyObject_Hash(r)));
    return r;
}

/* Do the keywords have names that the builtin knows? */
static bool names_fit(PyObject *kw, const char *const *names)
{
    bool ok = true;
    for (Py_ssize_t i = 0; ok && kw && i < PyTuple_GET_SIZE(kw); i++) {
        ok = false;
        for (int k = 0; k < 3 && names[k]; k++)
            ok |= !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kw, i), names[k]);
    }
    return ok;
}

#define BUILTIN(name)                                                                               \
    static PyObject *builtin_##name(trace *t, const builtin *b, PyObject *f, PyObject *const *args, \
                                    Py_ssize_t nargs, PyObject *kw, bool *handled)

/* Runs natively on arguments that are known; methods of the user's classes are followed. */
static PyObject *run_pure(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw,
                          bool written)
{
    PyObject *o, *r;
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (!(o = t_real(t, args[i])))
            return NULL;
        if (i == 1 && own_check(o, "__subclasscheck__"))
            return t_break(t, BRK_call_builtin, "issubclass() of a class with a check of its own");
        if (!t_safe_type(Py_TYPE(o)) && !t_plain_const(o) && !PyTuple_Check(o)) {
            const char *dunder = i ? NULL : dunder_of(f);
            PyObject *fn = dunder ? t_type_func(o, dunder) : NULL;
            if (!fn && t_base(Py_TYPE(o)))
                continue;
            return fn ? of_kind(t, call_rest(t, fn, o, args, nargs, kw), dunder)
                      : t_break(t, BRK_call_builtin, "%s of a %s",
                                PyCFunction_Check(f) ? ((PyCFunctionObject *)f)->m_ml->ml_name : "call",
                                Py_TYPE(o)->tp_name);
        }
    }
    const ir_node *last = t->rec.g->last;
    r = t_native(t, f, args, nargs, kw);
    if (r && PyCFunction_Check(f) && written)
        t_written(t, last, f); /* functions of builtin modules, which the table keeps */
    return r;
}
BUILTIN(pure) { return run_pure(t, f, args, nargs, kw, false); }
BUILTIN(native) { return run_pure(t, f, args, nargs, kw, true); }
BUILTIN(subscript)
{
    /* of tensors as the statement does it; 's': stores */
    PyObject *o = t_real(t, args[0]);
    if (!o)
        return NULL;
    if (!py_is_tensor(o))
        return run_pure(t, f, args, nargs, kw, true);
    if (b->how != 's')
        return t_subscr(t, o, args[1]);
    return t_setitem(t, o, args[1], args[2]) < 0 ? NULL : Py_NewRef(Py_None);
}
BUILTIN(size_math)
{
    PyObject *o = nargs == 1 ? t_real(t, args[0]) : NULL, *r;
    if (nargs == 1) {
        if (!o)
            return NULL;
        r = !py_is_symint(o) && !py_is_sizefloat(o) ? NULL
            : b->how == 's'                         ? t_size_sqrt(o)
                                                    : t_size_whole(o, b->how == 'c');
        if (r || PyErr_Occurred())
            return r;
    }
    return run_pure(t, f, args, nargs, kw, false);
}
BUILTIN(method_type)
{
    PyObject *fn = nargs == 2 && !kw ? t_real(t, args[0]) : NULL, *self = fn ? t_real(t, args[1]) : NULL;
    return self ? PyMethod_New(fn, self) : t_native(t, f, args, nargs, kw);
}
BUILTIN(exc_info)
{
    bool busy = t->handled != NULL;
    for (frame *g = t->top; g; g = g->back)
        busy |= g->handled != NULL;
    if (busy)
        return t_break(t, BRK_exception, "sys.%s() while an exception is handled",
                       !b->how ? "exc_info" : "exception");
    return !b->how ? PyTuple_Pack(3, Py_None, Py_None, Py_None) : Py_NewRef(Py_None);
}
BUILTIN(refused)
{
    return t_break(t, BRK_call_builtin, "call of builtin function %s",
                   ((PyCFunctionObject *)f)->m_ml->ml_name);
}
BUILTIN(print) { return t_break(t, BRK_print, "builtin: print [%s]", nargs ? "..." : ""); }
BUILTIN(len)
{
    PyObject *o, *l;
    if (nargs != 1 || !(o = t_real(t, args[0])))
        return nargs == 1 ? NULL : t_native(t, f, args, nargs, kw);
    if (py_is_tensor(o) && py_tensor(o)->ndim)
        return py_int(py_tensor(o)->size[0]);
    if (t_safe_type(Py_TYPE(o)) || PyTuple_Check(o) || t_unproxied(o) != o)
        return PyObject_Vectorcall(f, &o, 1, NULL);
    if ((l = t_type_func(o, "__len__")))
        return t_result(t, t_call(t, l, &o, 1, NULL), "__len__");
    if (PyType_Check(o) || t_base(Py_TYPE(o)))
        return PyObject_Vectorcall(f, &o, 1, NULL);
    return t_break(t, BRK_call_builtin, "len() of a %s", Py_TYPE(o)->tp_name);
}
BUILTIN(isinstance)
{
    PyObject *o, *r;
    PyObject *c = nargs == 2 ? t_real(t, args[1]) : NULL;
    o = nargs == 2 ? t_real(t, args[0]) : NULL;
    if (!o || !c)
        return nargs == 2 ? NULL : t_native(t, f, args, nargs, kw);
    if (!t_deep(t, c))
        return NULL;
    if (own_check(c, "__instancecheck__")) {
        PyObject *fn = PyTuple_Check(c) ? NULL : own_check(c, "__instancecheck__");
        if (!fn)
            return t_break(t, BRK_call_builtin, "isinstance() of classes with a check of their own");
        r = t_call(t, fn, (PyObject *[]){ c, o }, 2, NULL);
        int v = Py_TYPE(o) == (PyTypeObject *)c ? 1 : r ? t_truth(t, r) : -1;
        Py_XDECREF(r);
        return v < 0 ? NULL : PyBool_FromLong(v);
    }
    if (py_is_symint(o) || py_is_symfloat(o) ||
        py_is_sizefloat(o)) { /* numbers, as far as the program knows */
        PyTypeObject *as = !py_is_symint(o)                  ? &PyFloat_Type
                           : sym_is_bool(py_symint_value(o)) ? &PyBool_Type
                                                             : &PyLong_Type;
        int v = PyObject_IsSubclass((PyObject *)as, c);
        return v < 0 ? NULL : PyBool_FromLong(v || (py_is_symint(o) && is_int_class(c)));
    }
    if (Py_TYPE(o) == &PyTraceSuper_Type || t_behind(o))
        return t_break(t, BRK_call_builtin, "isinstance() of a %s", Py_TYPE(o)->tp_name);
    if (Py_TYPE(o) == &PyTraceGen_Type) {
        int g = PyObject_IsSubclass((PyObject *)&PyGen_Type, c);
        return g < 0 ? NULL : PyBool_FromLong(g);
    }
    int v = PyObject_IsInstance(o, c);
    if (!v && t_is_array(o))
        v = PyObject_IsSubclass(t_array_class(o), c);
    return v < 0 ? NULL : PyBool_FromLong(v);
}
BUILTIN(type)
{
    PyObject *o;
    if (nargs != 1)
        return t_break(t, BRK_class_body, "type() with %zd arguments", nargs);
    if (!(o = t_real(t, args[0])))
        return NULL;
    if (t_is_array(o))
        return Py_NewRef(t_array_class(o));
    if (py_is_symint(o) && sym_is_bool(py_symint_value(o)))
        return Py_NewRef((PyObject *)&PyBool_Type);
    return Py_NewRef(py_is_symint(o)                    ? (PyObject *)&PyLong_Type
                     : py_is_sizefloat(o)               ? (PyObject *)&PyFloat_Type
                     : Py_TYPE(o) == &PyTraceGen_Type   ? (PyObject *)&PyGen_Type
                     : Py_TYPE(o) == &PyTraceSuper_Type ? (PyObject *)&PySuper_Type
                                                        : (PyObject *)Py_TYPE(o));
}
BUILTIN(vars)
{
    static PyObject *dict;
    if (!dict)
        dict = PyUnicode_InternFromString("__dict__");
    return nargs == 1 ? t_getattr(t, args[0], dict) : t_break(t, BRK_function, "vars() of the running frame");
}
BUILTIN(callable)
{
    PyObject *o;
    return nargs == 1 && (o = t_real(t, args[0])) ? PyBool_FromLong(PyCallable_Check(o))
                                                  : t_native(t, f, args, nargs, kw);
}
BUILTIN(id) { return nargs == 1 ? do_id(t, args[0]) : t_native(t, f, args, nargs, kw); }
BUILTIN(made_of)
{
    /* makes an object of its arguments, which it does not look at */
    Py_ssize_t n = nargs + (kw ? PyTuple_GET_SIZE(kw) : 0);
    PyObject *v[16];
    if (n > 16)
        return t_break(t, BRK_call_builtin, "more than 16 arguments");
    for (Py_ssize_t i = 0; i < n; i++)
        if (!(v[i] = t_real(t, args[i])) || !t_deep(t, v[i]))
            return NULL;
    return PyObject_Vectorcall(f, v, (size_t)nargs, kw);
}
BUILTIN(count_elements)
{
    PyObject *pf = polyfill("count_elements");
    return pf ? t_call(t, pf, args, nargs, kw) : NULL;
}
BUILTIN(cmp_to_key)
{
    PyObject *o, *r;
    if (nargs != 1 || !(o = t_real(t, args[0])))
        return nargs == 1 ? NULL : t_native(t, f, args, nargs, kw);
    PyObject *call = t_fn(o, false);
    r = call ? PyObject_CallOneArg(f, call) : NULL;
    Py_XDECREF(call);
    return r;
}
BUILTIN(size)
{
    PyObject *l, *r;
    if (nargs != 1 || kw)
        return t_break(t, BRK_construct, "Size(...) with these arguments");
    l = t_list_of(t, args[0]);
    r = l && t_deep(t, l) ? PyObject_CallOneArg(f, l) : NULL;
    Py_XDECREF(l);
    return r;
}
BUILTIN(super) { return t_super_new(t, args, nargs); }
BUILTIN(getattr) { return do_getattr(t, args, nargs); }
BUILTIN(hasattr)
{
    PyObject *r;
    r = do_getattr(t, args, nargs);
    if (!r && (t->broke || !PyErr_ExceptionMatches(PyExc_AttributeError)))
        return NULL;
    py_forget();
    if (r && IS_LAZY(r) && !((PyLazy *)r)->val) /* it need not be looked at, but it must stay there */
        t_want(t, G_EXISTS, ((PyLazy *)r)->src, NULL);
    Py_XDECREF(r);
    return PyBool_FromLong(r != NULL);
}
BUILTIN(setattr)
{
    PyObject *n = nargs >= 2 ? t_real(t, args[1]) : NULL;
    if (!n || !PyUnicode_Check(n) || nargs != (b->how ? 3 : 2))
        return t_break(t, BRK_attribute, "setattr with a name that is not a constant");
    return t_setattr(t, args[0], n, b->how ? args[2] : NULL) < 0 ? NULL : Py_NewRef(Py_None);
}
BUILTIN(iter)
{
    PyObject *o, *r;
    if (nargs == 2) { /* until it returns the second argument */
        PyObject *end = t_real(t, args[1]), *call;
        if (!end || !t_deep(t, end) || !(o = t_real(t, args[0])))
            return NULL;
        call = t_fn(o, false);
        r = call ? PyObject_Vectorcall(f, (PyObject *[]){ call, end }, 2, NULL) : NULL;
        Py_XDECREF(call);
        return r;
    }
    return nargs == 1 ? t_iter(t, args[0]) : t_native(t, f, args, nargs, kw);
}
BUILTIN(next)
{
    PyObject *o, *r;
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
BUILTIN(list) { return nargs ? t_list_of(t, args[0]) : PyList_New(0); }
BUILTIN(tuple)
{
    PyObject *o, *l, *r;
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
}
BUILTIN(set)
{
    PyObject *l, *r;
    l = nargs ? t_list_of(t, args[0]) : PyList_New(0);
    r = l && t_key(t, l) ? (!b->how ? PySet_New(l) : PyFrozenSet_New(l)) : NULL;
    Py_XDECREF(l);
    return r;
}
BUILTIN(dict) { return do_dict(t, f, args, nargs, kw); }
BUILTIN(text)
{
    if (nargs == 1 && !kw)
        return t_text(t, args[0], b->how);
    return t_native(t, f, args, nargs, kw);
}
BUILTIN(number) { return do_number(t, f, b->how, args, nargs, kw); }
BUILTIN(iterator) { return call_native_iter(t, f, args, nargs, kw); }
BUILTIN(itertool) { return do_itertool(t, f, args, nargs, kw); }
BUILTIN(reversed)
{
    PyObject *o, *l, *r;
    if (nargs != 1 || !(o = t_real(t, args[0])))
        return nargs == 1 ? NULL : t_native(t, f, args, nargs, kw);
    if ((l = t_type_func(o, "__reversed__")))
        return t_call(t, l, &o, 1, NULL);
    if (!t_safe_type(Py_TYPE(o)) && !PyTuple_Check(o)) {
        if (!t_type_func(o, "__len__") || !t_type_func(o, "__getitem__"))
            return t_break(t, BRK_iterate, "reversed() of a %s", Py_TYPE(o)->tp_name);
        l = t_list_of(t, o);
        r = l ? PyObject_Vectorcall(f, &l, 1, NULL) : NULL;
        Py_XDECREF(l);
        return r;
    }
    return PyObject_Vectorcall(f, &o, 1, NULL);
}
BUILTIN(sum) { return nargs ? do_sum(t, args, nargs, kw) : t_native(t, f, args, nargs, kw); }
BUILTIN(any_all) { return nargs == 1 ? do_anyall(t, args[0], b->how) : t_native(t, f, args, nargs, kw); }
BUILTIN(min_max) { return do_minmax(t, f, args, nargs, kw, b->how); }
BUILTIN(sorted)
{
    PyObject *l, *r;
    if (nargs != 1)
        return t_native(t, f, args, nargs, kw);
    l = t_list_of(t, args[0]);
    r = l ? do_sorted(t, l, kwarg(args, nargs, kw, "key"), kwarg(args, nargs, kw, "reverse")) : NULL;
    Py_XDECREF(l);
    return r;
}
BUILTIN(object) { return PyObject_CallNoArgs(f); }
BUILTIN(reduce) { return do_reduce(t, args, nargs); }
BUILTIN(partial)
{
    Py_ssize_t n = nargs + (kw ? PyTuple_GET_SIZE(kw) : 0);
    PyObject *v[32];
    if (n > 32)
        return t_break(t, BRK_call_builtin, "partial with more than 32 arguments");
    for (Py_ssize_t i = 0; i < n; i++)
        if (!(v[i] = t_real(t, args[i])))
            return NULL;
    return PyObject_Vectorcall(f, v, (size_t)nargs, kw);
}
BUILTIN(tuple_new)
{
    PyObject *o, *l, *r;
    if (nargs != 2 || !(o = t_real(t, args[0])) || !PyType_Check(o))
        return t_break(t, BRK_construct, "tuple.__new__");
    l = t_list_of(t, args[1]);
    if (!l)
        return NULL;
    r = PyObject_CallFunctionObjArgs(f, o, l, NULL);
    Py_DECREF(l);
    return r;
}
BUILTIN(object_new)
{
    PyObject *o;
    if (nargs < 1 || !(o = t_real(t, args[0])) || !PyType_Check(o))
        return t_break(t, BRK_construct, "object.__new__");
    return PyObject_Vectorcall(f, &o, 1, NULL);
}
BUILTIN(deepcopy)
{
    PyObject *o, *l;
    if (!nargs || nargs > 2 || kw || !(o = t_real(t, args[0]))) {
        *handled = false;
        return NULL;
    }
    if (t_plain_const(o) && !PyTuple_Check(o)) /* it cannot change */
        return Py_NewRef(o);
    if (py_is_tensor(o))
        return t_break(t, BRK_deepcopy, "copy.deepcopy %s", value_name(t, o));
    return (l = polyfill("deepcopy")) ? t_call(t, l, args, nargs, NULL) : NULL;
}
BUILTIN(copy)
{
    PyObject *o, *l; /* of builtin containers and plain objects */
    if (nargs != 1 || !(o = t_real(t, args[0])))
        return nargs == 1 ? NULL : t_native(t, f, args, nargs, kw);
    if (PyList_CheckExact(o))
        return PyList_GetSlice(o, 0, PyList_GET_SIZE(o));
    if (PyDict_CheckExact(o))
        return PyDict_Copy(o);
    if (t_plain_const(o) || PyTuple_CheckExact(o))
        return Py_NewRef(o);
    if (PySet_CheckExact(o))
        return PySet_New(o);
    if (t_type_func(o, "__copy__"))
        return t_call(t, t_type_func(o, "__copy__"), &o, 1, NULL);
    if (type_is_python(Py_TYPE(o)) && Py_TYPE(o)->tp_new == PyBaseObject_Type.tp_new &&
        Py_TYPE(o)->tp_dictoffset && !t_type_func(o, "__reduce_ex__") && !t_type_func(o, "__reduce__") &&
        !t_type_func(o, "__getstate__") && !t_type_func(o, "__setstate__") &&
        !t_type_func(o, "__setattr__") && (l = polyfill("copy_object")))
        return t_call(t, l, &o, 1, NULL);
    *handled = false;
    return NULL;
}
BUILTIN(update_wrapper)
{
    /* names and texts of a plain function, for one that was made here: nobody decides by them */
    PyObject *o;
    PyObject *w = nargs ? t_real(t, args[0]) : NULL;
    o = nargs > 1 ? args[1] : kwarg(args, nargs, kw, "wrapped");
    if ((nargs && !w) || (o && !(o = t_real(t, o))))
        return NULL;
    *handled = w && o && nargs <= 2 && PyFunction_Check(w) && !t_source_of(t, w) && PyFunction_Check(o) &&
               t_source_of(t, o) && !(inst_dict(o) && PyDict_GET_SIZE(inst_dict(o))) &&
               is_default(t, kwarg(args, nargs, kw, "assigned"), "WRAPPER_ASSIGNMENTS") &&
               is_default(t, kwarg(args, nargs, kw, "updated"), "WRAPPER_UPDATES");
    if (!*handled)
        return NULL;
    static const char *const names[] = { "__module__", "__name__", "__qualname__", "__doc__",
                                         "__annotations__" };
    bool ok = true;
    for (size_t i = 0; ok && i <= COUNT(names); i++) {
        PyObject *n = PyUnicode_InternFromString(i < COUNT(names) ? names[i] : "__wrapped__"),
                 *v = !n                 ? NULL
                      : i < COUNT(names) ? PyObject_GetAttr(o, n)
                                         : Py_NewRef(o);
        ok = v && t_setattr(t, w, n, v) >= 0;
        Py_XDECREF(n);
        Py_XDECREF(v);
    }
    return ok ? Py_NewRef(w) : NULL;
}
BUILTIN(mode)
{
    /* switches of the thread's state become nodes, so that they happen in order */
    PyObject *a = nargs ? t_real(t, args[0]) : Py_False;
    if (!a)
        return NULL;
    dtype dt = DT_f32;
    if (nargs != 1 || (!PyBool_Check(a) && !(Py_TYPE(a) == &PyDtype_Type && py_to_dtype(a, &dt))))
        return t_break(t, BRK_call_builtin, "%s with these arguments",
                       ((PyCFunctionObject *)f)->m_ml->ml_name);
    char nm[96];
    snprintf(nm, sizeof nm, "taper._C.%s", ((PyCFunctionObject *)f)->m_ml->ml_name);
    tp_val v = PyBool_Check(a) ? vB(a == Py_True) : vDT(dt);
    PyObject *r = PyObject_Vectorcall(f, &a, 1, NULL);
    if (r)
        ir_add_opaque(t->rec.g, nm, f, &v, 1, vNone);
    return r;
}
BUILTIN(backward)
{
    if (nargs == 7)
        return t_backward(t, args);
    return t_break(t, BRK_call_builtin, "call of taper._C.%s", b->name);
}
BUILTIN(function_apply)
{
    /* without gradients it is forward alone */
    PyObject *o, *l;
    if (nargs == 5) {
        o = t_real(t, args[3]);
        if (!o || !t_deep(t, o))
            return NULL;
        bool needs = false;
        for (Py_ssize_t i = 0; CX->grad_mode && PyTuple_Check(o) && i < PyTuple_GET_SIZE(o); i++) {
            PyObject *x = t_real(t, PyTuple_GET_ITEM(o, i));
            if (!x)
                return NULL;
            if (py_is_tensor(x) && batch_level_of(py_tensor(x)))
                return t_break(t, BRK_call_builtin, "an autograd.Function inside vmap");
            needs |= py_is_tensor(x) && grad_requires_grad(py_tensor(x));
        }
        if ((l = polyfill(needs ? "function_record" : "function_apply")))
            return t_call(t, l, args, nargs, NULL);
    }
    return t_break(t, BRK_call_builtin, "call of taper._C.%s", b->name);
}
BUILTIN(module_hooked)
{
    PyObject *o = nargs == 1 ? t_real(t, args[0]) : NULL;
    return o ? t_module_hooked(t, o) : NULL;
}
BUILTIN(module_attr)
{
    PyObject *o = nargs == 2 ? t_real(t, args[0]) : NULL, *name = o ? t_real(t, args[1]) : NULL;
    return name ? t_module_attr(t, o, name) : NULL;
}
BUILTIN(ask) { return t_native(t, f, args, nargs, kw); }
/* Modes of functions are entered and left while tracing: their __torch_function__ is traced where a call is taken over. */
BUILTIN(switch_calls)
{
    PyObject *rows = nargs ? t_real(t, args[0]) : Py_None;
    if (!rows)
        return NULL;
    if (rows != Py_False && b->name[1] == 'm')
        return t_break(t, BRK_call_builtin, "a mode with __torch_dispatch__");
    if (py_overriding_same(t->overriding))
        t->mode_at = t->steps;
    return t_native(t, f, args, nargs, kw);
}
/* A vmap begins: the graph holds it from here to its end, or ends before. */
BUILTIN(batch_enter)
{
    if (!CX->batch)
        t->mode_at = t->steps;
    return t_native(t, f, args, nargs, kw);
}
BUILTIN(plain_call) { return t_call(t, polyfill("plain_call"), args, nargs, kw); }
/* tensor(n) of a size: as full((), n) */
static PyObject *tensor_of_size(trace *t, const builtin *b, PyObject *o, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kw)
{
    PyObject *mod = PyImport_ImportModule("taper"), *full = mod ? PyObject_GetAttrString(mod, "full") : NULL,
             *none = PyTuple_New(0), *names = kw ? Py_NewRef(kw) : Py_BuildValue("(s)", "dtype"),
             *in[10] = { none, o, py_dtype(DT_i64) };
    for (Py_ssize_t q = 0; kw && q < PyTuple_GET_SIZE(kw) && q < 8; q++)
        in[2 + q] = args[1 + q];
    bool typed = !kw || kwarg(args, nargs, kw, "dtype");
    PyObject *r = full && none && names && typed ? t_call(t, full, in, 2, names) : NULL;
    Py_XDECREF(mod);
    Py_XDECREF(full);
    Py_XDECREF(none);
    Py_XDECREF(names);
    return r || typed ? r : t_break(t, BRK_construct, "%s() of a %s", b->name, Py_TYPE(o)->tp_name);
}
/* A constant: made once, held by the graph; the program gets a copy. */
static PyObject *tensor_constant(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    void *rec = CX->rec;
    CX->rec = NULL;
    PyObject *r = t_native(t, f, args, nargs, kw);
    CX->rec = rec;
    if (r && py_is_tensor(r)) {
        bool leaf = grad_requires_grad(py_tensor(r)); /* the copy is, not the constant */
        if (leaf)
            grad_set_requires_grad(CX, py_tensor(r), false, NULL);
        ir_node *node = ir_add_const(t->g, "_tensor_constant0", py_tensor(r));
        tp_tensor *p = ir_proxy(&t->rec, node);
        PyObject *c = py_wrap(p), *q = c ? PyObject_CallMethod(c, "clone", NULL) : NULL;
        Py_XDECREF(c);
        Py_DECREF(r);
        c = q && leaf ? t_requires_grad(t, q, Py_True) : Py_XNewRef(q);
        Py_XDECREF(q);
        return c;
    }
    return r;
}
/* tensor(o) and x.new_tensor(o) of numbers and lists of them. */
static PyObject *tensor_of_data(trace *t, const char *name, PyObject *f, PyObject *o, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kw)
{
    if (!t_plain_const(o) && !PyList_Check(o) && !PyTuple_Check(o) && !t_is_numpy_scalar(Py_TYPE(o)))
        return t_break(t, BRK_construct, "%s() of a %s", name, Py_TYPE(o)->tp_name);
    PyObject *l = PyList_Check(o) || PyTuple_Check(o) ? PyObject_Repr(o) : NULL;
    py_forget();
    bool dyn = l && (strstr(PyUnicode_AsUTF8(l), "tensor(") || strstr(PyUnicode_AsUTF8(l), "Tensor"));
    Py_XDECREF(l);
    if (dyn)
        return t_break(t, BRK_construct, "%s() of tensors", name);
    return tensor_constant(t, f, args, nargs, kw);
}
BUILTIN(tensor)
{
    PyObject *o = nargs ? t_real(t, args[0]) : NULL;
    if (!o || !t_deep(t, o))
        return o ? NULL : t_break(t, BRK_construct, "%s()", b->name);
    if (py_is_tensor(o) && !strcmp(b->name, "as_tensor") && nargs == 1 && !kw)
        return Py_NewRef(o);
    if (t_is_array(o) && nargs == 1)
        return t_call(t, polyfill(strcmp(b->name, "as_tensor") ? "numpy_tensor" : "numpy_as_tensor"), args,
                      nargs, kw);
    if (py_is_symint(o) && nargs == 1)
        return tensor_of_size(t, b, o, args, nargs, kw);
    if (t_holds_arrays(o))
        return t_call(t, polyfill("numpy_tensor"), args, nargs, kw);
    return tensor_of_data(t, b->name, f, o, args, nargs, kw);
}
BUILTIN(call_row)
{
    PyObject *o;
    op_id op;
    op_variant var;
    o = nargs ? t_real(t, args[0]) : NULL;
    const char *row = o && PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : NULL;
    if (row && op_find(row, strlen(row), &op, &var) &&
        ((op_row_of(op)->flags & OPF_SYNC) || ((op_row_of(op)->flags & OPF_DYN) && !t_dynamic_outputs(t))))
        return t_break(t, BRK_data, "%s reads a tensor's data", row);
    for (Py_ssize_t i = 0, n = nargs + (kw ? PyTuple_GET_SIZE(kw) : 0); i < n; i++)
        if (Py_TYPE(t_real(t, args[i]) ? t_real(t, args[i]) : Py_None) == &PyRng_Type)
            return t_break(t, BRK_operator, "a random operator with a generator of its own");
    return t_native(t, f, args, nargs, kw);
}

#define NONE \
    {        \
        0    \
    }
#define NAMES(...)  \
    {               \
        __VA_ARGS__ \
    }
#define OWN(name, fn)
#define ALL(module, fn, types) { module, NULL, builtin_##fn, types, 0, -1, NONE },
#define ROW(module, name, fn, how, least, most, names) \
    { module, name, builtin_##fn, how, least, most, names },
static const builtin rows[] = {
#include "capture/builtin.def"
};
#undef OWN
#undef ALL
#undef ROW
#define ALL(module, fn, types)
#define ROW(module, name, fn, how, least, most, names)
#define OWN(name, fn) { NULL, name, builtin_##fn, 0, 0, -1, NONE },
static const builtin own[] = {
#include "capture/builtin.def"
};

PyObject *t_builtin(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw,
                    bool *handled)
{
    const builtin *b = find(f);
    *handled = true;
    if (b && b->most >= 0 && (nargs < b->least || nargs > b->most || !names_fit(kw, b->names)))
        return t_break(t, BRK_arguments, "%s() with arguments that it does not take",
                       PyType_Check(f)        ? ((PyTypeObject *)f)->tp_name
                       : PyCFunction_Check(f) ? ((PyCFunctionObject *)f)->m_ml->ml_name
                                              : "a builtin");
    if (b)
        return b->fn(t, b, f, args, nargs, kw, handled);
    *handled = PyCFunction_Check(f) && PyCFunction_GET_SELF(f) == py_module;
    if (!*handled)
        return NULL;
    const char *name = ((PyCFunctionObject *)f)->m_ml->ml_name;
    for (size_t i = 0; i < COUNT(own); i++)
        if (!strcmp(name, own[i].name))
            return own[i].fn(t, &own[i], f, args, nargs, kw, handled);
    return t_break(t, BRK_call_builtin, "call of taper._C.%s", name);
}

/* ---- methods of builtin objects ---- */
static bool one_of(const char *n, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(n, *list))
            return true;
    return false;
}

static bool tensor_inside(PyObject *o, int depth)
{
    if (py_is_tensor(o))
        return true;
    if (depth < 10 && (PyTuple_Check(o) || PyList_Check(o)))
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
            if (tensor_inside(PySequence_Fast_GET_ITEM(o, i), depth + 1))
                return true;
    return false;
}

/* str.format with texts that the user's classes make. */
static PyObject *format_by_code(trace *t, PyObject *self, bool spread, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kw)
{
    PyObject *fn = polyfill("str_format"), *pos = PyTuple_New(spread ? nargs : 0), *named = NULL, *r = NULL;
    if (!spread && (nargs != 1 || kw)) {
        Py_XDECREF(pos);
        return t_break(t, BRK_arguments, "format_map with %zd arguments", nargs);
    }
    for (Py_ssize_t i = 0; pos && spread && i < nargs; i++)
        PyTuple_SET_ITEM(pos, i, Py_NewRef(args[i]));
    named = spread ? PyDict_New() : Py_NewRef(args[0]);
    for (Py_ssize_t i = 0; named && kw && i < PyTuple_GET_SIZE(kw); i++)
        if (PyDict_SetItem(named, PyTuple_GET_ITEM(kw, i), args[nargs + i]) < 0)
            Py_CLEAR(named);
    if (fn && pos && named)
        r = t_call(t, fn, (PyObject *[]){ self, pos, named }, 3, NULL);
    Py_XDECREF(pos);
    Py_XDECREF(named);
    return r;
}

bool t_on_input_memory(const trace *t, const tp_tensor *x)
{
    for (size_t i = 0; i < t->rec.g->inputs.n; i++) {
        const tp_tensor *in = ir_type(t->rec.g->inputs.at[i]);
        if (in && in->storage == x->storage)
            return true;
    }
    return false;
}

static PyObject *tensor_method(trace *t, PyObject *f, PyObject *self, const char *name, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kw)
{
    static const char *const reads[] = {
        "tolist",  "numpy",      "data_ptr",  "__array__",     "__dlpack__",   "untyped_storage",
        "storage", "_data_text", "__repr__",  "__str__",       "__format__",   "share_memory_",
        "__int__", "__float__",  "__index__", "__reduce_ex__", "__deepcopy__", NULL
    };
    static const char *const tape[] = { "register_hook", "retain_grad", "register_post_accumulate_grad_hook",
                                        "set_",          "resize_",     "detach_",
                                        "_backward",     NULL };
    Py_ssize_t n = nargs + (kw ? PyTuple_GET_SIZE(kw) : 0);
    if (!strcmp(name, "item") || !strcmp(name, "__int__") || !strcmp(name, "__float__") ||
        !strcmp(name, "__index__"))
        return t_item(t, self, !strcmp(name, "item") ? '?' : !strcmp(name, "__float__") ? 'f' : 'i');
    if (!strcmp(name, "requires_grad_") && n <= 1 &&
        (!kw || !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kw, 0), "requires_grad"))) {
        PyObject *on = n ? t_real(t, args[0]) : Py_True;
        return !on ? NULL : PyBool_Check(on) ? t_requires_grad(t, self, on) : t_native(t, f, args, nargs, kw);
    }
    if (!strcmp(name, "__bool__"))
        return t_break(t, BRK_item, "Tensor.item");
    PyObject *list = !strcmp(name, "tolist") && t->cfg->fullgraph && !n &&
                             !sym_is_expr(py_tensor(self)->numel) && py_tensor(self)->numel <= 64
                         ? polyfill("tolist")
                         : NULL;
    if (list)
        return t_call(t, list, &self, 1, NULL);
    if (((!strcmp(name, "numpy") && !nargs) || (!strcmp(name, "__array__") && !n)) && n <= 1 && t_numpy())
        return t_call(t, polyfill("numpy_array"), (PyObject *[]){ self, n ? args[0] : NULL }, 1, kw);
    if (one_of(name, reads))
        return t_break(t, BRK_data, "Tensor.%s", name);
    bool unknown = !strcmp(name, "storage_offset") || (!strcmp(name, "_is_view") && !py_tensor(self)->base);
    if (unknown && t_on_input_memory(t, py_tensor(self))) /* no guard knows it */
        return t_break(t, BRK_data, "Tensor.%s of an input", name);
    if (!strcmp(name, "new_tensor")) {
        PyObject *o = nargs ? t_real(t, args[0]) : NULL;
        if (o && !t_deep(t, o))
            return NULL;
        return o ? tensor_of_data(t, name, f, o, args, nargs, kw) : t_break(t, BRK_construct, "%s()", name);
    }
    if (!strcmp(name, "backward"))
        return t_tensor_backward(t, self, args, nargs, kw);
    if (!strcmp(name, "register_hook") && nargs == 1 && !kw)
        return t_register_hook(t, self, args[0]);
    if (one_of(name, tape))
        return t_break(t, BRK_call_builtin, "Tensor.%s", name);
    return t_native(t, f, args, nargs, kw);
}
/* index, count and remove compare by the code of the classes concerned. NULL without an exception: as usual. */
static PyObject *list_search(trace *t, PyObject *self, const char *name, PyObject *arg)
{
    bool code = has_code(self);
    PyObject *a = t_real(t, arg), *pf = NULL;
    if (!a)
        return NULL;
    code = code || (!t_safe_type(Py_TYPE(a)) && !PyTuple_Check(a));
    return code && (pf = polyfill(name)) ? t_call(t, pf, (PyObject *[]){ self, a }, 2, NULL) : NULL;
}
static PyObject *list_sort(trace *t, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[3] = { "key", "reverse" };
    if (nargs || !names_fit(kw, names))
        return t_break(t, BRK_arguments, "list.sort() with arguments that it does not take");
    PyObject *copy = PyList_GetSlice(self, 0, PyList_GET_SIZE(self));
    PyObject *s = copy ? do_sorted(t, copy, kwarg(args, nargs, kw, "key"), kwarg(args, nargs, kw, "reverse"))
                       : NULL;
    int rc = s ? PyList_SetSlice(self, 0, PyList_GET_SIZE(self), s) : -1;
    Py_XDECREF(copy);
    Py_XDECREF(s);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
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
    PyTypeObject *tp = Py_TYPE(self);
    PyObject *v[32], *r = NULL;
    Py_ssize_t n = nargs + (kw ? PyTuple_GET_SIZE(kw) : 0), i = 0;
    if (n > 32)
        return t_break(t, BRK_call_builtin, "%s with more than 32 arguments", name);
    if (py_is_tensor(self))
        return tensor_method(t, f, self, name, args, nargs, kw);
    tobj *k = t_obj(t, self);
    if (PyDict_Check(self) && !strcmp(name, "update") && tp != t_ordered_type() && !PyODict_Check(self)) {
        r = t_fill_dict(t, self, args, nargs, kw);
        Py_XDECREF(r);
        return r ? Py_NewRef(Py_None) : NULL;
    }
    if (!t_safe_type(tp) && !PyTuple_Check(self) && !t_base(tp)) {
        if (k && k->src)
            return t_break(t, BRK_call_builtin, "%s.%s", tp->tp_name, name);
        if (PyExceptionInstance_Check(self) || !type_is_python(tp))
            return t_native(t, f, args, nargs, kw);
        return t_break(t, BRK_call_builtin, "%s.%s", tp->tp_name, name);
    }
    if (tp == &PyRng_Type)
        return t_break(t, BRK_call_builtin, "Generator.%s", name);
    if (PyList_Check(self) && nargs == 1 &&
        (!strcmp(name, "index") || !strcmp(name, "count") || !strcmp(name, "remove")) &&
        ((r = list_search(t, self, name, args[0])) || t->broke || PyErr_Occurred()))
        return r;
    if (PyList_Check(self) && !strcmp(name, "sort"))
        return list_sort(t, self, args, nargs, kw);
    if (PyUnicode_Check(self))
        for (Py_ssize_t q = 0; q < n; q++) {
            PyObject *a = t_real(t, args[q]);
            if (!a)
                return NULL;
            if ((!strcmp(name, "format") || !strcmp(name, "format_map")) && !printable(a, 0) &&
                !tensor_inside(a, 0))
                return format_by_code(t, self, !strcmp(name, "format"), args, nargs, kw);
            if (tensor_inside(a, 0))
                return t_break(t, BRK_format, "str.%s of a %s", name, Py_TYPE(a)->tp_name);
        }
    bool sh = one_of(name, shallow), it = one_of(name, iters);
    for (; i < n; i++) {
        PyObject *a = args[i];
        bool value = !strcmp(name, "append") || !strcmp(name, "appendleft") ||
                     (i == 1 && (!strcmp(name, "insert") || PyDict_Check(self)));
        if (sh && value && i < nargs && strcmp(name, "move_to_end")) { /* goes in as it is */
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
        bool deep_ = !(it &&
                       (PyList_Check(self) || PyDict_Check(self) || PyType_IsSubtype(tp, t_deque_type())));
        bool keyed = PyDict_Check(self) || PyAnySet_Check(self);
        if (deep_ && !(keyed ? t_key(t, v[i]) : t_deep(t, v[i]))) {
            i++;
            goto done;
        }
        if (it && PyDict_Check(self) && PyList_Check(v[i])) { /* pairs: keys must be known */
            if (!t_key(t, v[i])) {
                i++;
                goto done;
            }
        }
    }
    if (!sh && !it && !PyAnySet_Check(self) && !t_deep(t, self))
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
            py_forget();
    } else if (PyDict_SetItem(special, f, role) < 0)
        return NULL;
    Py_RETURN_NONE;
}
static PyObject *is_python_class(PyObject *m, PyObject *c)
{
    return PyBool_FromLong(PyType_Check(c) && type_is_python((PyTypeObject *)c));
}
static PyMethodDef functions[] = {
    { "_capture_role", set_role, METH_VARARGS, "how the tracer treats a function" },
    { "_is_python_class", is_python_class, METH_O, "was the class made by a class statement?" },
    { NULL }
};

static PyObject *row_object(const builtin *b) /* new reference, or NULL */
{
    PyObject *m = b->module ? PyImport_ImportModule(b->module) : NULL, *o = NULL;
    if (m)
        o = PyObject_GetAttrString(m, b->name);
    else if (b->fn == builtin_tuple_new)
        o = PyObject_GetAttrString((PyObject *)&PyTuple_Type, "__new__");
    else if (b->fn == builtin_object_new)
        o = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__new__");
    py_forget();
    Py_XDECREF(m);
    return o;
}
int py_init_tbuiltin(PyObject *m)
{
    table = PyDict_New();
    special = PyDict_New();
    if (!table || !special)
        return -1;
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (!rows[i].name) {
            put_all(rows[i].module, rows[i].how, i);
            continue;
        }
        PyObject *f = row_object(&rows[i]);
        put(f, i);
        Py_XDECREF(f);
    }
    return PyModule_AddFunctions(m, functions);
}

/* Called once the package is loaded: its own class of sizes is known now. */
void t_register_modes(void)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        if (rows[i].fn == builtin_size)
            put((PyObject *)PySize_Type, i);
}
