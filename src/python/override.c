/* override.c - calls that Python code takes over: __torch_function__ of an argument's class, modes of taper.overrides
 * around functions, and modes of taper.utils._python_dispatch around the rows themselves. */
#include "python/override.h"
#include "sym/env.h"

int py_overrides;
PyObject *(*py_ask)(PyObject *who, PyObject *name, PyObject *const *args, Py_ssize_t n);
void (*py_mode_entered)(int by);
static PyObject *plain; /* _disabled_torch_function_impl: a class that has it is an ordinary tensor */

/* Modes of this thread, the innermost last. While one of them handles a call it is off the stack; it may enter itself or
 * others again. */
typedef VEC(PyObject *) stack;
static _Thread_local stack calls, rows;
static _Thread_local int classes_off, all_off;

/* ---- __torch_function__ ---- */
static PyObject *hook_name(void)
{
    static PyObject *name;
    return name ? name : (name = PyUnicode_InternFromString("__torch_function__"));
}

static bool says(PyObject *type, const char *attr, const char *const *words)
{
    PyObject *v = PyObject_GetAttrString(type, attr);
    bool yes = false;
    for (int i = 0; v && PyUnicode_Check(v) && words[i]; i++)
        yes |= PyUnicode_CompareWithASCIIString(v, words[i]) == 0;
    Py_XDECREF(v);
    PyErr_Clear();
    return yes;
}

bool py_is_foreign(PyObject *o)
{
    static const char *const modules[] = { "torch", "torch._C", "torch._tensor", NULL }, *const names[] = {
        "Tensor", "TensorBase", "_TensorBase", NULL
    };
    PyTypeObject *tp = Py_TYPE(o);
    if (PyLong_Check(o) || PyFloat_Check(o) || py_is_tensor(o) || !tp->tp_mro ||
        !_PyType_Lookup(tp, hook_name()))
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tp->tp_mro); i++) {
        PyObject *c = PyTuple_GET_ITEM(tp->tp_mro, i);
        if (says(c, "__name__", names) && says(c, "__module__", modules))
            return true;
    }
    return false;
}

bool py_type_overrides(PyTypeObject *tp)
{
    PyObject *f = tp == &PyTensor_Type ? NULL : _PyType_Lookup(tp, hook_name());
    return f && f != plain;
}

typedef struct takers {
    PyObject *arg[16]; /* borrowed; one of each class, classes before those they extend */
    int n;
} takers;

static void taker_add(takers *t, PyObject *o)
{
    PyTypeObject *tp = Py_TYPE(o);
    if (t->n == (int)COUNT(t->arg) || !py_type_overrides(tp) || py_is_foreign(o))
        return;
    int at = t->n;
    for (int i = t->n - 1; i >= 0; i--) {
        if (Py_TYPE(t->arg[i]) == tp)
            return;
        if (PyType_IsSubtype(tp, Py_TYPE(t->arg[i])))
            at = i;
    }
    memmove(t->arg + at + 1, t->arg + at, sizeof *t->arg * (size_t)(t->n - at));
    t->arg[at] = o;
    t->n++;
}

static void takers_find(takers *t, PyObject *const *args, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = args[i];
        if (PyTuple_CheckExact(o) || PyList_CheckExact(o))
            for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); k++)
                taker_add(t, PySequence_Fast_GET_ITEM(o, k));
        else
            taker_add(t, o);
    }
}

static PyObject *keywords(PyObject *const *values, PyObject *names)
{
    PyObject *d = PyDict_New();
    for (Py_ssize_t i = 0; d && names && i < PyTuple_GET_SIZE(names); i++)
        if (PyDict_SetItem(d, PyTuple_GET_ITEM(names, i), values[i]) < 0)
            Py_CLEAR(d);
    return d;
}

static PyObject *ask(PyObject *who, PyObject *func, PyObject *types, PyObject *args, PyObject *kw)
{
    return py_ask(who, hook_name(), (PyObject *[]){ func, types, args, kw }, 4);
}

static PyObject *nobody(PyObject *func, const takers *t)
{
    PyObject *mod = PyObject_GetAttrString(func, "__module__"),
             *name = PyObject_GetAttrString(func, "__name__"), *list = PyList_New(0);
    for (int i = 0; list && i < t->n; i++)
        PyList_Append(list, (PyObject *)Py_TYPE(t->arg[i]));
    PyErr_Clear();
    if (list)
        PyErr_Format(PyExc_TypeError,
                     "no implementation found for '%S.%S' on types that implement __torch_function__: %S",
                     mod ? mod : Py_None, name ? name : Py_None, list);
    Py_XDECREF(mod);
    Py_XDECREF(name);
    Py_XDECREF(list);
    return NULL;
}

bool py_taken(PyObject *func, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **res)
{
    takers t = { .n = 0 };
    if (all_off)
        return false;
    if (!classes_off)
        takers_find(&t, args, nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
    if (!t.n && !calls.n)
        return false;
    PyObject *a = PyTuple_New(nargs), *types = PyTuple_New(t.n), *kw = keywords(args + nargs, kwnames);
    PyObject *r = NULL;
    if (!a || !types || !kw)
        goto done;
    for (Py_ssize_t i = 0; i < nargs; i++)
        PyTuple_SET_ITEM(a, i, Py_NewRef(args[i]));
    for (int i = 0; i < t.n; i++)
        PyTuple_SET_ITEM(types, i, Py_NewRef((PyObject *)Py_TYPE(t.arg[i])));
    if (calls.n) {
        PyObject *mode = vec_pop(&calls);
        r = ask(mode, func, types, a, kw);
        vec_push(&calls, mode);
        if (!r || r != Py_NotImplemented)
            goto done;
        Py_CLEAR(r);
    }
    for (int i = 0; i < t.n; i++) {
        r = ask(t.arg[i], func, types, a, kw);
        if (!r || r != Py_NotImplemented)
            goto done;
        Py_CLEAR(r);
    }
    r = nobody(func, &t);
done:
    Py_XDECREF(a);
    Py_XDECREF(types);
    Py_XDECREF(kw);
    *res = r;
    return true;
}

bool py_taken_method(const char *name, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames, PyObject **res)
{
    Py_ssize_t n = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    PyObject *func = PyObject_GetAttrString((PyObject *)&PyTensor_Type, name);
    *res = NULL;
    if (!func)
        return true;
    PyObject **all = mem_alloc(sizeof *all * (size_t)(n + 1));
    all[0] = self;
    if (n)
        memcpy(all + 1, args, sizeof *all * (size_t)n);
    bool is = py_taken(func, all, nargs + 1, kwnames, res);
    free(all);
    Py_DECREF(func);
    return is;
}

bool py_untaken(PyObject *const *args, Py_ssize_t n) /* the slow way, for a call that fits no row */
{
    takers t = { .n = 0 };
    if (!all_off && !classes_off)
        takers_find(&t, args, n);
    return t.n > 0;
}

/* ---- __torch_dispatch__ ---- */
static PyObject *overload_of(op_id op, op_variant v)
{
    static PyObject *made[OP_COUNT][2]; /* kept: they are constants of the module */
    PyObject **at = &made[op][v == OPV_inplace];
    if (*at)
        return *at;
    strbuf b = { 0 };
    op_full_name(&b, op, v);
    PyObject *m = PyImport_ImportModule("taper.ops");
    *at = m ? PyObject_CallMethod(m, "_of_row", "s", strbuf_str(&b)) : NULL;
    Py_XDECREF(m);
    strbuf_free(&b);
    return *at;
}

static PyObject *arg_object(const tp_val *v)
{
    if (v->kind == VAL_layout)
        return PyObject_GetAttrString(py_module, "strided");
    return v->kind == VAL_gen ? py_rng(v->gen) : py_from_val(v);
}

/* Positional arguments up to the last one that is not its default, keyword-only ones by name. */
static bool row_args(const op_row *r, const tp_val *arg, PyObject **args, PyObject **kw)
{
    int npos = 0, last = 0;
    while (npos < r->schema.nparam && !r->schema.param[npos].kwonly)
        npos++;
    for (int i = 0; i < npos; i++)
        if (!op_is_default(&arg[i], &r->schema.param[i]))
            last = i + 1;
    *args = PyTuple_New(last);
    *kw = PyDict_New();
    for (int i = 0; *args && *kw && i < r->schema.nparam; i++) {
        if (i >= last && (i < npos || op_is_default(&arg[i], &r->schema.param[i])))
            continue;
        PyObject *o = arg_object(&arg[i]);
        if (!o || (i >= npos && PyDict_SetItemString(*kw, r->schema.param[i].name, o) < 0)) {
            Py_XDECREF(o);
            return false;
        }
        if (i < npos)
            PyTuple_SET_ITEM(*args, i, o);
        else
            Py_DECREF(o);
    }
    return *args && *kw;
}

static bool one_result(PyObject *o, const op_row *r, tp_val *out, tp_err *err)
{
    if (py_is_tensor(o))
        *out = vT(tensor_ref(py_tensor(o)));
    else if (o == Py_None)
        *out = vNone;
    else if (PyBool_Check(o))
        *out = vB(o == Py_True);
    else if (PyFloat_Check(o))
        *out = vF(PyFloat_AS_DOUBLE(o));
    else if (!py_to_symint(o, &out->i))
        return err_set(err, ERR_type, "__torch_dispatch__ returned a %s where %s gives a tensor",
                       Py_TYPE(o)->tp_name, r->full);
    else
        out->kind = VAL_int;
    return true;
}

static bool row_results(PyObject *o, const op_row *r, tp_val *out, tp_err *err)
{
    int n = r->schema.ret_list ? 1 : r->schema.nret;
    bool seq = PyTuple_Check(o) || PyList_Check(o);
    if (n == 0)
        return true;
    if (r->schema.ret_list || n > 1) {
        if (!seq || (n > 1 && PySequence_Fast_GET_SIZE(o) != n))
            return err_set(err, ERR_type, "__torch_dispatch__ returned a %s where %s gives %s",
                           Py_TYPE(o)->tp_name, r->full, n > 1 ? "several results" : "a list of tensors");
        if (r->schema.ret_list) {
            int k = (int)PySequence_Fast_GET_SIZE(o);
            tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(k, 1));
            *out = vTs(ts, k);
            for (int i = 0; i < k; i++) {
                PyObject *e = PySequence_Fast_GET_ITEM(o, i);
                if (!py_is_tensor(e)) {
                    val_clear(out);
                    return err_set(err, ERR_type, "__torch_dispatch__ returned a %s in the list of %s",
                                   Py_TYPE(e)->tp_name, r->full);
                }
                ts[i] = tensor_ref(py_tensor(e));
            }
            return true;
        }
    }
    for (int i = 0; i < n; i++)
        if (!one_result(n > 1 ? PySequence_Fast_GET_ITEM(o, i) : o, r, &out[i], err)) {
            while (i-- > 0)
                val_clear(&out[i]);
            return false;
        }
    return true;
}

static bool dispatch(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err)
{
    const op_row *r = op_row_of(op);
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *args = NULL, *kw = NULL, *res = NULL, *types = PyTuple_New(0), *func = overload_of(op, v);
    PyObject *mode = vec_pop(&rows);
    bool grad = cx->grad_mode, ok = false;
    cx->dispatch = rows.n ? dispatch : NULL;
    cx->grad_mode = false; /* the tape is kept above */
    if (types && func && row_args(r, arg, &args, &kw))
        res = PyObject_CallMethod(mode, "__torch_dispatch__", "OOOO", func, types, args, kw);
    cx->grad_mode = grad;
    vec_push(&rows, mode);
    cx->dispatch = dispatch;
    if (!res)
        err_set(err, ERR_python, "__torch_dispatch__ failed");
    else if (res == Py_NotImplemented)
        err_set(err, ERR_type, "no __torch_dispatch__ was found that implements %s", r->full);
    else
        ok = row_results(res, r, out, err);
    Py_XDECREF(res);
    Py_XDECREF(args);
    Py_XDECREF(kw);
    Py_XDECREF(types);
    PyGILState_Release(gil);
    return ok;
}

/* ---- for capture: what a trace switches is switched back when it ends ---- */
void py_overriding_get(py_overriding *s)
{
    *s = (py_overriding){ .classes_off = classes_off, .all_off = all_off };
    for (size_t i = 0; i < calls.n; i++)
        vec_push(&s->calls, Py_NewRef(calls.at[i]));
}
bool py_overriding_same(const py_overriding *s)
{
    return s->classes_off == classes_off && s->all_off == all_off && s->calls.n == calls.n &&
           (!calls.n || !memcmp(s->calls.at, calls.at, sizeof *calls.at * calls.n));
}
void py_overriding_set(const py_overriding *s)
{
    classes_off = s->classes_off;
    all_off = s->all_off;
    py_overrides += (int)s->calls.n - (int)calls.n;
    while (calls.n)
        Py_DECREF(vec_pop(&calls));
    for (size_t i = 0; i < s->calls.n; i++)
        vec_push(&calls, Py_NewRef(s->calls.at[i]));
}
void py_overriding_pause(int by) { all_off += by; }
void py_overriding_free(py_overriding *s)
{
    for (size_t i = 0; i < s->calls.n; i++)
        Py_DECREF(s->calls.at[i]);
    vec_free(&s->calls);
    *s = (py_overriding){ 0 };
}

/* ---- what Python sees ---- */
static stack *stack_of(PyObject *o) { return PyObject_IsTrue(o) ? &rows : &calls; }

/* _mode_push(rows, mode) and _mode_pop(rows): rows says whether it is __torch_dispatch__ that is called. */
static PyObject *mode_push(PyObject *m, PyObject *const *args, Py_ssize_t n)
{
    if (n != 2)
        return PyErr_Format(PyExc_TypeError, "_mode_push(rows, mode)");
    stack *s = stack_of(args[0]);
    vec_push(s, Py_NewRef(args[1]));
    py_overrides++;
    if (s == &rows)
        CX->dispatch = dispatch;
    py_mode_entered(1);
    Py_RETURN_NONE;
}
static PyObject *mode_pop(PyObject *m, PyObject *which)
{
    stack *s = stack_of(which);
    if (!s->n)
        return PyErr_Format(PyExc_RuntimeError, "no mode is entered");
    py_overrides--;
    py_mode_entered(-1);
    if (s == &rows && s->n == 1)
        CX->dispatch = NULL;
    return vec_pop(s);
}
static PyObject *mode_list(PyObject *m, PyObject *which)
{
    stack *s = stack_of(which);
    PyObject *l = PyList_New((Py_ssize_t)s->n);
    for (size_t i = 0; l && i < s->n; i++)
        PyList_SET_ITEM(l, (Py_ssize_t)i, Py_NewRef(s->at[i]));
    return l;
}
/* _overrides_off(all, by): classes, or all, take no calls over while the count is above zero */
static PyObject *overrides_off(PyObject *m, PyObject *args)
{
    int all, by;
    if (!PyArg_ParseTuple(args, "pi", &all, &by))
        return NULL;
    *(all ? &all_off : &classes_off) += by;
    Py_RETURN_NONE;
}
static PyObject *overrides_on(PyObject *m, PyObject *unused)
{
    return PyBool_FromLong(!classes_off && !all_off);
}
/* Python functions that stand for one call: _taken(func, args, kwargs) -> (result,) or None */
static PyObject *taken(PyObject *m, PyObject *args)
{
    PyObject *func, *a, *kw, *r = NULL;
    if (!PyArg_ParseTuple(args, "OO!O!", &func, &PyTuple_Type, &a, &PyDict_Type, &kw))
        return NULL;
    PyObject *names = PySequence_Tuple(kw), *values = PyDict_Values(kw),
             *all = values ? PyList_AsTuple(values) : NULL, *joined = all ? PySequence_Concat(a, all) : NULL;
    bool is = names && joined &&
              py_taken(func, &PyTuple_GET_ITEM(joined, 0), PyTuple_GET_SIZE(a),
                       PyTuple_GET_SIZE(names) ? names : NULL, &r);
    Py_XDECREF(names);
    Py_XDECREF(values);
    Py_XDECREF(all);
    Py_XDECREF(joined);
    if (is && !r)
        return NULL;
    if (PyErr_Occurred())
        return NULL;
    if (!is)
        Py_RETURN_NONE;
    return Py_BuildValue("(N)", r);
}
static PyObject *disabled_impl(PyObject *m, PyObject *args)
{
    PyObject *func, *types, *a = NULL, *kw = NULL;
    if (!PyArg_ParseTuple(args, "OO|OO", &func, &types, &a, &kw))
        return NULL;
    PyObject *none = a ? Py_NewRef(a) : PyTuple_New(0), *r;
    classes_off++;
    r = none ? PyObject_Call(func, none, kw && kw != Py_None ? kw : NULL) : NULL;
    classes_off--;
    Py_XDECREF(none);
    return r;
}

/* Tensor.__init_subclass__: from the first class that takes calls over, calls look for it. */
static PyObject *init_subclass(PyObject *cls, PyObject *args)
{
    static bool found;
    if (!found && py_type_overrides((PyTypeObject *)cls)) {
        found = true;
        py_overrides++;
    }
    Py_RETURN_NONE;
}
static PyMethodDef methods[] = { { "__init_subclass__", init_subclass, METH_NOARGS | METH_CLASS, NULL },
                                 { NULL } };

static PyMethodDef functions[] = {
    { "_mode_push", (PyCFunction)(void (*)(void))mode_push, METH_FASTCALL, "enter a mode" },
    { "_mode_pop", mode_pop, METH_O, "leave the innermost mode" },
    { "_mode_list", mode_list, METH_O, "the modes that are on, the innermost last" },
    { "_overrides_off", overrides_off, METH_VARARGS, "calls are not taken over for a while" },
    { "_overrides_on", overrides_on, METH_NOARGS, "may classes take calls over?" },
    { "_taken", taken, METH_VARARGS, "the result of a call that was taken over, in a tuple, or None" },
    { "_disabled_torch_function_impl", disabled_impl, METH_VARARGS,
      "as __torch_function__: an ordinary tensor" },
    { NULL }
};

int py_init_override(PyObject *m)
{
    PyObject *c = PyDescr_NewClassMethod(&PyTensor_Type, methods);
    int rc = c ? PyDict_SetItemString(PyTensor_Type.tp_dict, "__init_subclass__", c) : -1;
    Py_XDECREF(c);
    PyType_Modified(&PyTensor_Type);
    if (rc < 0 || PyModule_AddFunctions(m, functions) < 0)
        return -1;
    plain = PyObject_GetAttrString(m, "_disabled_torch_function_impl");
    return plain ? 0 : -1;
}
