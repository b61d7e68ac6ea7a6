/* customop.c - custom operators of taper.library and functions marked allow_in_graph: one opaque node each.
 * Python owns their functions; the list of ops/custom.h calls them through the trampolines here. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include "capture/capture.h"
#include "compile/backend.h"
#include "aot/aot.h"
#include "ops/custom.h"
#include "ops/host.h"
#include "api/api_custom.h"
#include "taper.h"
#include <dlfcn.h>

/* ---- values ---- */
static PyObject *args_of(const tp_val *arg, int n)
{
    PyObject *t = PyTuple_New(n);
    for (int i = 0; t && i < n; i++) {
        PyObject *v = py_from_val(&arg[i]);
        if (!v)
            Py_CLEAR(t);
        else
            PyTuple_SET_ITEM(t, i, v);
    }
    return t;
}

/* What a Python function returned, as a node's value. */
static bool result_of(PyObject *r, const char *name, tp_val *out, tp_err *err)
{
    *out = vNone;
    if (r == Py_None)
        return true;
    if (py_is_tensor(r)) {
        *out = vT(tensor_ref(py_tensor(r)));
        return true;
    }
    if (!PyTuple_Check(r) && !PyList_Check(r))
        return err_set(err, ERR_type, "'%s' returned a %s where tensors were expected", name,
                       Py_TYPE(r)->tp_name);
    int n = (int)PySequence_Fast_GET_SIZE(r);
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++) {
        PyObject *o = PySequence_Fast_GET_ITEM(r, i);
        if (py_is_tensor(o))
            ts[i] = tensor_ref(py_tensor(o));
        else if (o != Py_None) {
            for (int k = 0; k < i; k++)
                tensor_unref(ts[k]);
            free(ts);
            return err_set(err, ERR_type, "'%s' returned a %s where a tensor was expected", name,
                           Py_TYPE(o)->tp_name);
        }
    }
    *out = vTs(ts, n);
    return true;
}

static bool call_method(const op_custom *o, const char *method, const tp_val *arg, int narg, tp_val *out,
                        tp_err *err)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *f = PyObject_GetAttrString(o->data, method), *a = f ? args_of(arg, narg) : NULL,
             *r = a ? PyObject_Call(f, a, NULL) : NULL;
    bool ok = r ? result_of(r, o->name, out, err) : err_set(err, ERR_python, "%s failed", o->name);
    Py_XDECREF(f);
    Py_XDECREF(a);
    Py_XDECREF(r);
    PyGILState_Release(gil);
    return ok;
}

static bool py_kernel(const op_custom *o, const tp_val *arg, int narg, tp_val *out, tp_err *err)
{
    return call_method(o, "_run", arg, narg, out, err);
}
static bool py_fake(const op_custom *o, const tp_val *arg, int narg, tp_val *out, tp_err *err)
{
    return call_method(o, "_fake_run", arg, narg, out, err);
}

/* The derivative as Python code on proxies: what it calls is recorded where cx says. */
/* A function was given fakes and asked for their data: the graph runs as captured. The exception is dropped. */
static bool reads_data(void)
{
    if (!PyErr_Occurred() || !PyErr_ExceptionMatches(py_fake_error))
        return false;
    PyErr_Clear();
    return true;
}

static bool py_vjp(const op_custom *o, op_ctx *cx, const tp_val *arg, int narg, const tp_val *res,
                   tp_tensor *const *dy, int ndy, tp_tensor **dx, tp_err *err)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    op_ctx saved = *CX;
    *CX = *cx;
    PyObject *a = args_of(arg, narg), *r = a ? py_from_val(res) : NULL,
             *g = r ? py_tensor_list(dy, ndy) : NULL;
    PyObject *got = g ? PyObject_CallMethod(o->data, "_vjp", "OOO", a, r, g) : NULL;
    *CX = saved;
    bool ok = got && PyTuple_Check(got) && PyTuple_GET_SIZE(got) == narg;
    if (!got)
        reads_data() ? err_set(err, ERR_notimpl, "the derivative of '%s' reads the data of tensors", o->name)
                     : err_set(err, ERR_python, "the derivative of %s failed", o->name);
    else if (!ok)
        err_set(err, ERR_runtime, "the derivative of '%s' must return one gradient per argument", o->name);
    for (int i = 0, at = 0; ok && i < narg; i++) {
        PyObject *d = PyTuple_GET_ITEM(got, i);
        if (arg[i].kind != VAL_tensors) {
            dx[at++] = py_is_tensor(d) ? tensor_ref(py_tensor(d)) : NULL;
            continue;
        }
        bool list = PyList_Check(d) || PyTuple_Check(d);
        if (d != Py_None && (!list || PySequence_Fast_GET_SIZE(d) != arg[i].n))
            ok = err_set(err, ERR_runtime,
                         "the derivative of '%s' must return %d gradients for the list of argument %d",
                         o->name, arg[i].n, i);
        for (int k = 0; ok && k < arg[i].n; k++, at++) {
            PyObject *e = list ? PySequence_Fast_GET_ITEM(d, k) : NULL;
            dx[at] = e && py_is_tensor(e) ? tensor_ref(py_tensor(e)) : NULL;
        }
    }
    Py_XDECREF(a);
    Py_XDECREF(r);
    Py_XDECREF(g);
    Py_XDECREF(got);
    PyGILState_Release(gil);
    return ok;
}

/* ---- the binding ---- */
/* _custom_register(schema, needs, op, differentiable, effects, late) */
static PyObject *reg(PyObject *m, PyObject *args)
{
    const char *schema, *needs;
    PyObject *op;
    int diff, effects = 0, late = 0;
    if (!PyArg_ParseTuple(args, "szOp|pp", &schema, &needs, &op, &diff, &effects, &late))
        return NULL;
    tp_err err = { 0 };
    op_custom row = { .schema = schema,
                      .needs = needs,
                      .kernel = py_kernel,
                      .fake = py_fake,
                      .vjp = diff ? py_vjp : NULL,
                      .data = op,
                      .effects = effects,
                      .late = late };
    if (!custom_register(&row, &err))
        return py_raise(&err);
    Py_INCREF(op); /* as long as the process: graphs may call it */
    Py_RETURN_NONE;
}

/* _custom_list() -> [(name, schema, needs, has derivative)] of the operators registered from C */
static PyObject *list(PyObject *m, PyObject *x)
{
    PyObject *l = PyList_New(0);
    const op_custom *o;
    for (int i = 0; l && (o = custom_at(i)); i++) {
        if (o->kernel == py_kernel)
            continue;
        PyObject *t = Py_BuildValue("(sszO)", o->name, o->schema, o->needs, o->backward ? Py_True : Py_False);
        if (!t || PyList_Append(l, t) < 0)
            Py_CLEAR(l);
        Py_XDECREF(t);
    }
    return l;
}

static bool val_of(PyObject *o, tp_val *v, arena *a)
{
    symint n;
    if (o == Py_None)
        *v = vNone;
    else if (py_is_tensor(o))
        *v = vT(py_tensor(o));
    else if (PyBool_Check(o))
        *v = vB(o == Py_True);
    else if (PyFloat_Check(o))
        *v = vF(PyFloat_AS_DOUBLE(o));
    else if (PyUnicode_Check(o))
        *v = vS(arena_strdup(a, PyUnicode_AsUTF8(o)));
    else if ((PyLong_Check(o) || py_is_symint(o)) && py_to_symint(o, &n))
        *v = vI(n);
    else if (Py_TYPE(o) == &PyDtype_Type) {
        dtype dt;
        if (!py_to_dtype(o, &dt))
            return false;
        *v = vDT(dt);
    } else if (PyList_Check(o) || PyTuple_Check(o)) {
        int k = (int)PySequence_Fast_GET_SIZE(o);
        PyObject *first = k ? PySequence_Fast_GET_ITEM(o, 0) : NULL;
        if (!k || PyLong_Check(first) || py_is_symint(first)) {
            symint *iv = ARENA_ARR(a, symint, MAX(k, 1));
            for (int i = 0; i < k; i++)
                if (!py_to_symint(PySequence_Fast_GET_ITEM(o, i), &iv[i]))
                    return false;
            *v = vIs(iv, k);
        } else if (PyFloat_Check(first)) {
            double *dv = ARENA_ARR(a, double, k);
            for (int i = 0; i < k; i++)
                if ((dv[i] = PyFloat_AsDouble(PySequence_Fast_GET_ITEM(o, i))) == -1 && PyErr_Occurred())
                    return false;
            *v = vFs(dv, k);
        } else {
            tp_tensor **ts = ARENA_ARR(a, tp_tensor *, k);
            for (int i = 0; i < k; i++) {
                PyObject *e = PySequence_Fast_GET_ITEM(o, i);
                if (!py_is_tensor(e) && e != Py_None)
                    return false;
                ts[i] = e == Py_None ? NULL : py_tensor(e);
            }
            *v = vTs(ts, k);
        }
    } else
        return false;
    return true;
}

static PyObject *from_result(tp_val *v, const op_custom *o)
{
    PyObject *r = py_from_val(v);
    val_clear(v);
    if (r && PyList_Check(r) && o && !o->ret_list)
        Py_SETREF(r, PyList_AsTuple(r));
    return r;
}

/* _custom_call(form, name, args): an operator registered from C. form: "call", "fake", "backward" */
static PyObject *call_c(PyObject *m, PyObject *args)
{
    const char *form, *name;
    PyObject *a, *r = NULL;
    if (!PyArg_ParseTuple(args, "ssO!", &form, &name, &PyTuple_Type, &a))
        return NULL;
    const op_custom *o = custom_find(name, NULL);
    int n = (int)PyTuple_GET_SIZE(a);
    arena mem = { 0 };
    tp_val *v = ARENA_ARR(&mem, tp_val, MAX(n, 1)), out = vNone;
    tp_err err = { 0 };
    if (!o) {
        PyErr_Format(PyExc_RuntimeError, "there is no custom operator '%s'", name);
        goto done;
    }
    for (int i = 0; i < n; i++)
        if (!val_of(PyTuple_GET_ITEM(a, i), &v[i], &mem)) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_TypeError, "%s: argument %d cannot be a %s", name, i,
                             Py_TYPE(PyTuple_GET_ITEM(a, i))->tp_name);
            goto done;
        }
    bool ok = !strcmp(form, "fake")       ? o->fake && o->fake(o, v, n, &out, &err)
              : !strcmp(form, "backward") ? o->backward && o->backward(o, v, n, &out, &err)
                                          : custom_run(name, NULL, v, n, &out, &err);
    r = ok ? from_result(&out, !strcmp(form, "backward") ? NULL : o) : py_raise(&err);
done:
    arena_free(&mem);
    return r;
}

/* _load_library(path): a shared library that registers operators when it is loaded. */
static PyObject *load(PyObject *m, PyObject *path)
{
    PyObject *bytes = NULL;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    Dl_info
        self; /* the library finds the functions of taper.h in this module (naming one of api.c links them all) */
    if (dladdr((void *)tp_abi_version, &self) && self.dli_fname)
        dlopen(self.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    void *h = dlopen(PyBytes_AS_STRING(bytes), RTLD_NOW | RTLD_GLOBAL);
    if (!h)
        PyErr_Format(PyExc_OSError, "could not load this library: %s", dlerror());
    Py_DECREF(bytes);
    if (!h)
        return NULL;
    bool (*init)(tp_err *) = (bool (*)(tp_err *))dlsym(h, "taper_register_ops");
    tp_err err = { 0 };
    if (init && !init(&err))
        return py_raise(&err);
    Py_RETURN_NONE;
}

/* ---- while tracing ---- */
typedef struct scratch { /* fakes are made in a graph that nobody sees */
    ir_graph *g;
    ir_rec rec;
    op_ctx saved;
} scratch;

static PyObject *to_scratch(scratch *s,
                            PyObject *o) /* new; tensors, also in lists and tuples, become plain fakes */
{
    if (py_is_tensor(o)) {
        const tp_tensor *x = py_tensor(o);
        tp_tensor *fake = tensor_new_fake((dtype)x->dt, x->ndim, x->size, x->stride, tensor_device(x));
        ir_node *n = ir_add_placeholder(s->g, "x", "x", fake);
        tensor_unref(fake);
        return py_wrap(ir_proxy(&s->rec, n));
    }
    if (PyTuple_Check(o) || PyList_Check(o)) {
        PyObject *l = PyList_New(0);
        for (Py_ssize_t i = 0; l && i < PySequence_Fast_GET_SIZE(o); i++) {
            PyObject *v = to_scratch(s, PySequence_Fast_GET_ITEM(o, i));
            if (!v || PyList_Append(l, v) < 0)
                Py_CLEAR(l);
            Py_XDECREF(v);
        }
        if (l && PyTuple_Check(o))
            Py_SETREF(l, PyList_AsTuple(l));
        return l;
    }
    return Py_NewRef(o);
}

/* f(*args, **kw) on fakes. New. */
static PyObject *fake_call(sym_env *env, PyObject *f, PyObject *args, PyObject *kw)
{
    scratch s = { .g = ir_graph_new("fake"), .saved = *CX };
    s.g->env = env;
    s.rec = (ir_rec){ .g = s.g };
    CX->rec = &s.rec;
    CX->grad_mode = false;
    PyObject *a = to_scratch(&s, args), *r = a ? PyObject_Call(f, a, kw) : NULL, *plain = NULL;
    *CX = s.saved;
    if (r) { /* types outlive the scratch graph, its nodes do not */
        tp_val v;
        tp_err err = { 0 };
        if (result_of(r, "the fake function", &v, &err)) {
            tp_tensor **ts = v.kind == VAL_tensor ? &v.t : v.kind == VAL_tensors ? v.ts : NULL;
            int n = v.kind == VAL_tensor ? 1 : v.kind == VAL_tensors ? v.n : 0;
            for (int i = 0; i < n; i++)
                if (ts[i]) {
                    tp_tensor *fake = tensor_fake_of(ts[i]);
                    tensor_unref(ts[i]);
                    ts[i] = fake;
                }
            plain = py_from_val(&v);
            if (plain && PyTuple_Check(r))
                Py_SETREF(plain, PyList_AsTuple(plain));
            val_clear(&v);
        } else
            py_raise(&err);
    }
    Py_XDECREF(r);
    Py_XDECREF(a);
    ir_graph_free(s.g);
    return plain;
}

/* A Python argument as the operand of a node of the graph that is recorded now. */
static bool operand_of(trace *t, PyObject *o, tp_val *v, arena *a)
{
    if (!val_of(o, v, a))
        return false;
    if (v->kind == VAL_tensor) {
        ir_node *n = t_node_here(t, o);
        *v = (tp_val){ .kind = VAL_node, .node = n };
        return n != NULL;
    }
    if (v->kind == VAL_tensors) {
        ir_node **ns = ARENA_ARR(a, ir_node *, MAX(v->n, 1));
        for (int i = 0; i < v->n; i++) {
            PyObject *e = PySequence_Fast_GET_ITEM(o, i);
            if (e != Py_None && !(ns[i] = t_node_here(t, e)))
                return false;
        }
        *v = (tp_val){ .kind = VAL_nodes, .n = v->n, .nodes = ns };
    }
    return true;
}

static bool wants_grad(PyObject *o)
{
    if (py_is_tensor(o))
        return grad_requires_grad(py_tensor(o));
    for (Py_ssize_t i = 0; (PyTuple_Check(o) || PyList_Check(o)) && i < PySequence_Fast_GET_SIZE(o); i++)
        if (wants_grad(PySequence_Fast_GET_ITEM(o, i)))
            return true;
    return false;
}

/* A tensor of the graph for result node n. New. */
static PyObject *result_tensor(trace *t, ir_node *n, bool grad)
{
    tp_tensor *p = ir_proxy(&t->rec, n);
    tp_err err = { 0 };
    op_ctx cx = *CX;
    if (grad && dtype_has_grad((dtype)p->dt) && !grad_set_requires_grad(&cx, p, true, &err)) {
        tensor_unref(p);
        return py_raise(&err);
    }
    return py_wrap(p);
}

/* The opaque node with these arguments and results like `fake`. New tensors in the same shape as fake. */
static PyObject *add_node(trace *t, const char *target, const char *base, void *handle, PyObject *args,
                          PyObject *fake, const char *meta, bool grad)
{
    arena a = { 0 };
    int n = (int)PyTuple_GET_SIZE(args);
    tp_val *v = ARENA_ARR(&a, tp_val, MAX(n, 1)), type;
    PyObject *r = NULL;
    tp_err err = { 0 };
    for (int i = 0; i < n; i++)
        if (!operand_of(t, PyTuple_GET_ITEM(args, i), &v[i], &a)) {
            PyErr_Clear();
            t_break(t, BRK_call_builtin, "%s with a %s argument", target,
                    Py_TYPE(PyTuple_GET_ITEM(args, i))->tp_name);
            goto done;
        }
    if (!result_of(fake, target, &type, &err)) {
        py_raise(&err);
        goto done;
    }
    ir_node *m = ir_add_opaque(t->rec.g, target, handle, v, n, type);
    m->loc = t->rec.loc ? t->rec.loc(t->rec.loc_data, t->rec.g) : NULL;
    m->meta = meta ? arena_strdup(&t->rec.g->mem, meta) : NULL;
    if (strcmp(m->name, base))
        ir_rename(m, ir_unique_name(t->rec.g, base));
    if (m->val.kind == VAL_tensor)
        r = result_tensor(t, m, grad);
    else if (m->val.kind == VAL_tensors) {
        r = PyList_New(0);
        for (int i = 0; r && i < m->val.n; i++) {
            PyObject *x = m->val.ts[i]
                              ? result_tensor(t, ir_add_getitem(t->rec.g, m, i, vT(tensor_ref(m->val.ts[i]))),
                                              grad)
                              : Py_NewRef(Py_None);
            if (!x || PyList_Append(r, x) < 0)
                Py_CLEAR(r);
            Py_XDECREF(x);
        }
        if (r && PyTuple_Check(fake))
            Py_SETREF(r, PyList_AsTuple(r));
    } else
        r = Py_NewRef(Py_None);
done:
    arena_free(&a);
    return r;
}

static bool gather(trace *t, PyObject *const *args, Py_ssize_t nargs, PyObject *kw, PyObject **tup,
                   PyObject **dict)
{
    *tup = PyTuple_New(nargs);
    *dict = PyDict_New();
    for (Py_ssize_t i = 0; *tup && *dict && i < nargs + (kw ? PyTuple_GET_SIZE(kw) : 0); i++) {
        PyObject *o = t_real(t, args[i]);
        if (!o || !t_deep(t, o))
            return false;
        if (i < nargs)
            PyTuple_SET_ITEM(*tup, i, Py_NewRef(o));
        else if (PyDict_SetItem(*dict, PyTuple_GET_ITEM(kw, i - nargs), o) < 0)
            return false;
    }
    return *tup && *dict;
}

PyObject *t_custom(trace *t, PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *tup = NULL, *dict = NULL, *bound = NULL, *f = NULL, *fake = NULL, *r = NULL, *info = NULL;
    const char *target, *base, *meta;
    int diff;
    if (!gather(t, args, nargs, kw, &tup, &dict))
        goto done;
    if (!(bound = PyObject_CallMethod(op, "_bind", "OO", tup, dict)) ||
        !(info = PyObject_GetAttrString(op, "_node_info")) ||
        !PyArg_ParseTuple(info, "sszp", &target, &base, &meta, &diff) ||
        !(f = PyObject_GetAttrString(op, "_fake_run")) || !(fake = fake_call(t->env, f, bound, NULL)))
        goto done;
    r = add_node(t, target, base, NULL, bound, fake, meta, diff && CX->grad_mode && wants_grad(bound));
done:
    Py_XDECREF(tup);
    Py_XDECREF(dict);
    Py_XDECREF(bound);
    Py_XDECREF(info);
    Py_XDECREF(f);
    Py_XDECREF(fake);
    return r;
}

/* allow_in_graph: a call that is not looked into. */
PyObject *t_allowed(trace *t, PyObject *fn, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *tup = NULL, *dict = NULL, *fake = NULL, *r = NULL, *call = NULL, *m = NULL, *q = NULL;
    char target[240], meta[300];
    if (!gather(t, args, nargs, kw, &tup, &dict))
        goto done;
    call = Py_NewRef(fn);
    if (PyDict_GET_SIZE(dict)) { /* keywords are part of the callee */
        PyObject *ft = PyImport_ImportModule("functools");
        PyObject *p = ft ? PyObject_GetAttrString(ft, "partial") : NULL, *one = PyTuple_Pack(1, fn);
        for (Py_ssize_t i = 0, k = PyDict_GET_SIZE(dict); one && i < 1 && k; i++) {
            PyObject *key, *v;
            Py_ssize_t at = 0;
            while (PyDict_Next(dict, &at, &key, &v))
                if (py_is_tensor(v)) {
                    t_break(t, BRK_call_builtin,
                            "an allow_in_graph function with a tensor as keyword argument");
                    Py_CLEAR(one);
                    break;
                }
        }
        Py_SETREF(call, p && one ? PyObject_Call(p, one, dict) : NULL);
        Py_XDECREF(ft);
        Py_XDECREF(p);
        Py_XDECREF(one);
        if (!call)
            goto done;
    }
    if (!(fake = fake_call(t->env, call, tup, NULL)))
        goto done;
    m = PyObject_GetAttrString(fn, "__module__");
    q = PyObject_GetAttrString(fn, "__qualname__");
    PyErr_Clear();
    snprintf(target, sizeof target, "%s.%s", m && PyUnicode_Check(m) ? PyUnicode_AsUTF8(m) : "python",
             q && PyUnicode_Check(q) ? PyUnicode_AsUTF8(q) : "function");
    for (char *c = target; *c; c++)
        if (*c == '<' || *c == '>' || *c == '"' || *c == '\\')
            *c = '_';
    snprintf(meta, sizeof meta, "{\"inline\": true, \"requires\": \"the Python function %s\"}", target);
    const char *dot = strrchr(target, '.');
    r = add_node(t, target, dot ? dot + 1 : target, keep(t->e, call), tup, fake, meta,
                 CX->grad_mode && wants_grad(tup));
done:
    Py_XDECREF(tup);
    Py_XDECREF(dict);
    Py_XDECREF(fake);
    Py_XDECREF(call);
    Py_XDECREF(m);
    Py_XDECREF(q);
    return r;
}

/* ---- called by Python code that a recorder watches: derivatives and allow_in_graph functions while the autograd stage
 * traces them ---- */
static bool is_proxy(PyObject *o)
{
    if (py_is_tensor(o))
        return CX->rec && py_tensor(o)->node && py_tensor(o)->rec == CX->rec;
    for (Py_ssize_t i = 0; (PyTuple_Check(o) || PyList_Check(o)) && i < PySequence_Fast_GET_SIZE(o); i++)
        if (is_proxy(PySequence_Fast_GET_ITEM(o, i)))
            return true;
    return false;
}

/* _custom_record(op, args) -> results as proxies, or NotImplemented: nothing is being recorded */
static PyObject *record(PyObject *m, PyObject *args)
{
    PyObject *op, *a, *info = NULL, *f = NULL, *fake = NULL, *r = NULL;
    const char *target, *base, *meta;
    int diff;
    if (!PyArg_ParseTuple(args, "OO!", &op, &PyTuple_Type, &a))
        return NULL;
    if (!is_proxy(a))
        Py_RETURN_NOTIMPLEMENTED;
    ir_rec *rec = CX->rec;
    int n = (int)PyTuple_GET_SIZE(a);
    arena mem = { 0 };
    tp_val *v = ARENA_ARR(&mem, tp_val, MAX(n, 1)), type;
    tp_err err = { 0 };
    if (!(info = PyObject_GetAttrString(op, "_node_info")) ||
        !PyArg_ParseTuple(info, "sszp", &target, &base, &meta, &diff) ||
        !(f = PyObject_GetAttrString(op, "_fake_run")))
        goto done;
    if (CX->grad_mode && wants_grad(a)) {
        PyErr_Format(PyExc_NotImplementedError,
                     "the derivative of %s inside a function that is not looked into", target);
        goto done;
    }
    if (!(fake = fake_call(CX->env, f, a, NULL)))
        goto done;
    for (int i = 0; i < n; i++) {
        PyObject *o = PyTuple_GET_ITEM(a, i);
        if (!val_of(o, &v[i], &mem) || v[i].kind == VAL_tensors) {
            PyErr_Format(PyExc_NotImplementedError, "%s with a %s argument inside a derivative", target,
                         Py_TYPE(o)->tp_name);
            goto done;
        }
        if (v[i].kind == VAL_tensor)
            v[i] = (tp_val){ .kind = VAL_node, .node = ir_node_of(rec, v[i].t) };
    }
    if (!result_of(fake, target, &type, &err)) {
        py_raise(&err);
        goto done;
    }
    ir_node *node = ir_add_opaque(rec->g, target, NULL, v, n, type);
    node->loc = rec->loc ? rec->loc(rec->loc_data, rec->g) : NULL;
    node->meta = meta ? arena_strdup(&rec->g->mem, meta) : NULL;
    if (node->val.kind == VAL_tensor)
        r = py_wrap(ir_proxy(rec, node));
    else if (node->val.kind == VAL_tensors) {
        r = PyTuple_New(node->val.n);
        for (int i = 0; r && i < node->val.n; i++)
            PyTuple_SET_ITEM(
                r, i,
                py_wrap(ir_proxy(rec, ir_add_getitem(rec->g, node, i, vT(tensor_ref(node->val.ts[i]))))));
    } else
        r = Py_NewRef(Py_None);
done:
    arena_free(&mem);
    Py_XDECREF(info);
    Py_XDECREF(f);
    Py_XDECREF(fake);
    return r;
}

/* ---- how opaque nodes run ---- */
/* An operator from C in a graph that runs eagerly: its derivative has to be recorded. */
static bool wants_tape(const ir_node *n, const tp_val *arg)
{
    custom_form form;
    const op_custom *o = CX->grad_mode ? custom_find(n->target, &form) : NULL;
    if (!o || o->kernel == py_kernel || form != CUSTOM_call)
        return false;
    for (int i = 0; i < n->narg; i++)
        if (arg[i].kind == VAL_tensor && grad_requires_grad(arg[i].t))
            return true;
        else
            for (int k = 0; arg[i].kind == VAL_tensors && k < arg[i].n; k++)
                if (arg[i].ts[k] && grad_requires_grad(arg[i].ts[k]))
                    return true;
    return false;
}

static bool run_on_tape(const ir_node *n, const tp_val *arg, tp_val *out, tp_err *err)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *m = PyImport_ImportModule("taper.library"), *a = m ? args_of(arg, n->narg) : NULL,
             *r = a ? PyObject_CallMethod(m, "_native_run", "sO", custom_find(n->target, NULL)->name, a)
                    : NULL;
    bool ok = r ? result_of(r, n->target, out, err) : err_set(err, ERR_python, "%s failed", n->target);
    Py_XDECREF(m);
    Py_XDECREF(a);
    Py_XDECREF(r);
    PyGILState_Release(gil);
    return ok;
}

bool cap_run_opaque(void *data, ir_node *n, const tp_val *arg, tp_val *out, tp_err *err)
{
    PyObject *f = n->opaque;
    *out = vNone;
    if (!f)
        return wants_tape(n, arg) ? run_on_tape(n, arg, out, err) : run_opaque_core(n, arg, out, err);
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *a = args_of(arg, n->narg), *r = a ? PyObject_Call(f, a, NULL) : NULL;
    bool ok = r != NULL;
    if (!r)
        err_set(err, ERR_python, "%s failed", n->target);
    else if (n->val.kind != VAL_none)
        ok = result_of(r, n->target, out, err);
    Py_XDECREF(a);
    Py_XDECREF(r);
    PyGILState_Release(gil);
    return ok;
}

static bool inline_callee(op_ctx *cx, const ir_node *n, const tp_val *arg, tp_val *out, tp_err *err)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    op_ctx saved = *CX;
    *CX = *cx;
    bool ok = cap_run_opaque(NULL, (ir_node *)n, arg, out, err);
    *CX = saved;
    if (!ok && reads_data()) {
        err_clear(err);
        err_set(err, ERR_notimpl, "%s, marked allow_in_graph, reads the data of tensors", n->target);
    }
    PyGILState_Release(gil);
    return ok;
}

static PyMethodDef functions[] = {
    { "_custom_register", reg, METH_VARARGS, "a custom operator written in Python" },
    { "_custom_list", list, METH_NOARGS, "custom operators registered from C" },
    { "_custom_call", call_c, METH_VARARGS, "one of them" },
    { "_custom_record", record, METH_VARARGS, "a call while a recorder watches" },
    { "_load_library", load, METH_O, "loads a library that registers operators" },
    { NULL }
};

int py_init_customop(PyObject *m)
{
    host.inlined = inline_callee;
    host.opaque = cap_run_opaque;
    return PyModule_AddFunctions(m, functions);
}
