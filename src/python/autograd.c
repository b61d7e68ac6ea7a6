/* autograd.c - the tape as Python sees it: requires_grad, grad, grad_fn, hooks, backward, custom functions.
 * The engine runs with the GIL held, so hooks and custom functions call Python directly. */
#include "base/crumb.h"
#include "python/py.h"
#include "ops/host.h"
#include "grad/batch.h"
#include "grad/tape.h"

static bool py_err(tp_err *err) /* a Python exception is set: stop with it */
{
    err_set(err, ERR_python, "a Python exception");
    return false;
}

/* ---- grad_fn objects: one Python type per name, made on demand ---- */
typedef struct PyNode {
    PyObject_HEAD grad_node *n; /* one count when `owns`; a custom function's own node is borrowed */
    bool owns;
    PyObject *dict;
    PyObject *weakrefs;
    /* contexts of custom functions */
    PyObject *to_save, *non_diff, *dirty, *needs_input_grad; /* tuples or NULL */
    bool materialize, keep_none;
} PyNode;

typedef struct fn_step { /* a custom function's step */
    grad_node n;
    PyObject *ctx; /* one reference; the PyNode whose n this is */
    PyObject *cls;
    const char *name;
    int narg, *edge_at; /* per argument: its edge, or -1 */
    int nsaved;
    struct fn_saved {
        tp_tensor *t;
        int out; /* number of the result it is, or -1 */
        uint32_t ver;
        void *handle;
        grad_pack *pack;
        bool none;
    } * saved;
} fn_step;

static PyTypeObject PyNode_Type, PyFnCtx_Type;
static PyObject *node_types; /* name -> type */

static PyObject *node_type(const char *name)
{
    if (!node_types && !(node_types = PyDict_New()))
        return NULL;
    PyObject *t = PyDict_GetItemString(node_types, name);
    if (t)
        return t;
    t = PyObject_CallFunction((PyObject *)&PyType_Type, "s(O){s:s}", name, &PyNode_Type, "__module__",
                              "builtins");
    if (t)
        PyDict_SetItemString(node_types, name, t);
    Py_XDECREF(t);
    return t;
}

static PyObject *py_node(grad_node *n) /* new reference; n is borrowed; None for NULL */
{
    if (!n)
        Py_RETURN_NONE;
    if (n->py)
        return Py_NewRef((PyObject *)n->py);
    PyTypeObject *t = (PyTypeObject *)node_type(grad_node_name(n));
    PyNode *o = t ? (PyNode *)t->tp_alloc(t, 0) : NULL;
    if (o) {
        o->n = grad_node_ref(n);
        o->owns = true;
        n->py = o;
    }
    return (PyObject *)o;
}

static int node_clear(PyObject *o)
{
    PyNode *p = (PyNode *)o;
    Py_CLEAR(p->dict);
    Py_CLEAR(p->to_save);
    Py_CLEAR(p->non_diff);
    Py_CLEAR(p->dirty);
    Py_CLEAR(p->needs_input_grad);
    return 0;
}

static int node_traverse(PyObject *o, visitproc visit, void *arg)
{
    PyNode *p = (PyNode *)o;
    Py_VISIT(p->dict);
    Py_VISIT(p->to_save);
    Py_VISIT(p->non_diff);
    Py_VISIT(p->dirty);
    Py_VISIT(p->needs_input_grad);
    return 0;
}

static void node_dealloc(PyObject *o)
{
    PyNode *p = (PyNode *)o;
    PyObject_GC_UnTrack(o);
    if (p->weakrefs)
        PyObject_ClearWeakRefs(o);
    node_clear(o);
    if (p->owns && p->n) {
        p->n->py = NULL;
        grad_node_unref(p->n);
    }
    Py_TYPE(o)->tp_free(o);
}

static PyObject *node_name(PyObject *o, PyObject *x)
{
    PyNode *p = (PyNode *)o;
    return PyUnicode_FromString(p->n ? grad_node_name(p->n) : Py_TYPE(o)->tp_name);
}

static PyObject *node_next(PyObject *o, void *x)
{
    grad_node *n = ((PyNode *)o)->n;
    int k = n ? grad_node_next(n, NULL, 0) : 0;
    grad_edge *e = mem_zalloc(sizeof *e * (size_t)MAX(k, 1));
    PyObject *t = PyTuple_New(k);
    if (n)
        grad_node_next(n, e, k);
    for (int i = 0; t && i < k; i++) {
        PyObject *f = py_node(e[i].node), *pair = f ? Py_BuildValue("(Ni)", f, e[i].nr) : NULL;
        if (pair)
            PyTuple_SET_ITEM(t, i, pair);
        else
            Py_CLEAR(t);
    }
    free(e);
    return t;
}

static PyObject *node_metadata(PyObject *o, void *x)
{
    PyObject *d = PyObject_GenericGetDict(o, NULL), *m = NULL;
    if (!d)
        return NULL;
    m = Py_XNewRef(PyDict_GetItemString(d, "_metadata"));
    if (!m && (m = PyDict_New()))
        PyDict_SetItemString(d, "_metadata", m);
    Py_DECREF(d);
    return m;
}

static PyObject *node_variable(PyObject *o, void *x)
{
    tp_tensor *t = ((PyNode *)o)->n ? grad_acc_tensor(((PyNode *)o)->n) : NULL;
    if (!t)
        return PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute 'variable'",
                            Py_TYPE(o)->tp_name);
    return py_wrap(tensor_ref(t));
}

static PyObject *node_seq(PyObject *o, PyObject *x)
{
    grad_node *n = ((PyNode *)o)->n;
    return PyLong_FromUnsignedLongLong(n ? n->seq : 0);
}

/* ---- hooks ---- */
typedef struct PyHandle {
    PyObject_HEAD grad_hooks *hooks;
    int64_t id;
} PyHandle;

static void hook_free(void *data)
{
    PyGILState_STATE s = PyGILState_Ensure();
    Py_DECREF((PyObject *)data);
    PyGILState_Release(s);
}

static PyObject *grads_tuple(tp_tensor **g, int n)
{
    PyObject *t = PyTuple_New(n);
    for (int i = 0; t && i < n; i++) {
        PyObject *o = g[i] ? py_wrap(tensor_ref(g[i])) : Py_NewRef(Py_None);
        if (o)
            PyTuple_SET_ITEM(t, i, o);
        else
            Py_CLEAR(t);
    }
    return t;
}

static bool hook_result(PyObject *fn, PyObject *r, tp_tensor **g)
{
    if (r == Py_None)
        return true;
    if (!py_is_tensor(r)) {
        PyErr_Format(PyExc_TypeError, "expected Variable, but hook returned '%s'", Py_TYPE(r)->tp_name);
        return false;
    }
    tp_tensor *t = py_tensor(r);
    if (*g && (t->dt != (*g)->dt || !tensor_same_size(t, *g))) {
        PyObject *name = PyObject_GetAttrString(fn, "__name__");
        if (!name)
            PyErr_Clear();
        if (t->dt != (*g)->dt)
            PyErr_Format(PyExc_RuntimeError,
                         "hook '%S' has changed the type of value (was taper.%sTensor got taper.%sTensor)",
                         name ? name : fn, dtype_rows[(*g)->dt].gname, dtype_rows[t->dt].gname);
        else
            PyErr_Format(PyExc_RuntimeError, "hook '%S' has changed the size of value", name ? name : fn);
        Py_XDECREF(name);
        return false;
    }
    tensor_ref(t);
    tensor_unref(*g);
    *g = t;
    return true;
}

static bool tensor_hook(void *data, tp_tensor **in, int nin, tp_tensor **out, int nout, tp_err *err)
{
    PyObject *arg = py_wrap(tensor_ref(in[0])), *r = arg ? PyObject_CallOneArg(data, arg) : NULL;
    bool ok = r && hook_result(data, r, &in[0]);
    Py_XDECREF(arg);
    Py_XDECREF(r);
    return ok || py_err(err);
}

static bool post_hook(void *data, tp_tensor **in, int nin, tp_tensor **out, int nout, tp_err *err)
{
    PyObject *arg = py_wrap(tensor_ref(in[0])), *r = arg ? PyObject_CallOneArg(data, arg) : NULL;
    bool ok = r != NULL;
    if (r && r != Py_None) {
        PyErr_SetString(PyExc_RuntimeError, "Tensor post accumulate grad hooks should return None.");
        ok = false;
    }
    Py_XDECREF(arg);
    Py_XDECREF(r);
    return ok || py_err(err);
}

static bool take_tuple(PyObject *fn, PyObject *r, tp_tensor **g, int n)
{
    if (r == Py_None)
        return true;
    if (n == 1 && py_is_tensor(r))
        return hook_result(fn, r, g);
    if (!PyTuple_Check(r) || PyTuple_GET_SIZE(r) != n) {
        PyErr_Format(PyExc_RuntimeError, "hook has returned an incorrect number of values (expected %d)", n);
        return false;
    }
    for (int i = 0; i < n; i++)
        if (PyTuple_GET_ITEM(r, i) == Py_None) {
            tensor_unref(g[i]);
            g[i] = NULL;
        } else if (!hook_result(fn, PyTuple_GET_ITEM(r, i), &g[i]))
            return false;
    return true;
}

static bool node_hook(void *data, tp_tensor **in, int nin, tp_tensor **out, int nout, tp_err *err)
{
    PyObject *a = grads_tuple(in, nin), *b = out ? grads_tuple(out, nout) : NULL, *r = NULL;
    bool ok = false;
    if (a && (b || !out))
        r = b ? PyObject_CallFunctionObjArgs(data, a, b, NULL) : PyObject_CallOneArg(data, a);
    Py_XDECREF(a);
    Py_XDECREF(b);
    ok = r && take_tuple(data, r, in, nin);
    Py_XDECREF(r);
    return ok || py_err(err);
}

static PyTypeObject PyHandle_Type;
static PyObject *handle_new(grad_hooks *h, grad_hook_fn *fn, PyObject *callable)
{
    if (!PyCallable_Check(callable))
        return PyErr_Format(PyExc_TypeError, "a hook must be callable, not %s", Py_TYPE(callable)->tp_name);
    PyHandle *o = PyObject_New(PyHandle, &PyHandle_Type);
    if (o) {
        o->hooks = grad_hooks_ref(h);
        o->id = grad_hooks_add(h, fn, Py_NewRef(callable), hook_free);
    }
    return (PyObject *)o;
}
static PyObject *handle_remove(PyObject *o, PyObject *x)
{
    PyHandle *h = (PyHandle *)o;
    grad_hooks_remove(h->hooks, h->id);
    Py_RETURN_NONE;
}
static PyObject *handle_enter(PyObject *o, PyObject *x) { return Py_NewRef(o); }
static PyObject *handle_id(PyObject *o, void *x) { return PyLong_FromLongLong(((PyHandle *)o)->id); }
static void handle_dealloc(PyObject *o)
{
    grad_hooks_unref(((PyHandle *)o)->hooks);
    Py_TYPE(o)->tp_free(o);
}
static PyMethodDef handle_methods[] = { { "remove", handle_remove, METH_NOARGS, "remove the hook" },
                                        { "__enter__", handle_enter, METH_NOARGS, NULL },
                                        { "__exit__", handle_remove, METH_VARARGS, NULL },
                                        { NULL } };
static PyGetSetDef handle_getset[] = { { "id", handle_id, NULL, NULL, NULL }, { NULL } };
static PyTypeObject PyHandle_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper._C.HookHandle",
                                      .tp_basicsize = sizeof(PyHandle),
                                      .tp_flags = Py_TPFLAGS_DEFAULT,
                                      .tp_dealloc = handle_dealloc,
                                      .tp_methods = handle_methods,
                                      .tp_getset = handle_getset };

static PyObject *node_add_hook(PyObject *o, PyObject *fn, bool before)
{
    grad_node *n = ((PyNode *)o)->n;
    if (!n)
        return PyErr_Format(PyExc_RuntimeError, "this step is gone");
    grad_hooks **h = before ? &n->before : &n->after;
    if (!*h) {
        *h = mem_zalloc(sizeof **h);
        (*h)->refs = 1;
    }
    return handle_new(*h, node_hook, fn);
}
static PyObject *node_register_hook(PyObject *o, PyObject *fn) { return node_add_hook(o, fn, false); }
static PyObject *node_register_prehook(PyObject *o, PyObject *fn) { return node_add_hook(o, fn, true); }

static PyMethodDef node_methods[] = {
    { "name", node_name, METH_NOARGS, "name() -> str" },
    { "register_hook", node_register_hook, METH_O, "register_hook(fn(grad_inputs, grad_outputs)) -> handle" },
    { "register_prehook", node_register_prehook, METH_O, "register_prehook(fn(grad_outputs)) -> handle" },
    { "_sequence_nr", node_seq, METH_NOARGS, NULL },
    { NULL }
};
static PyGetSetDef node_getset[] = {
    { "next_functions", node_next, NULL, "((step, result number), ...): where gradients go next", NULL },
    { "metadata", node_metadata, NULL, "a dictionary of one's own", NULL },
    { "variable", node_variable, NULL, "AccumulateGrad: the leaf", NULL },
    { "__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL },
    { NULL }
};
static PyTypeObject PyNode_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.autograd.graph.Node",
                                    .tp_basicsize = sizeof(PyNode),
                                    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                                    .tp_dealloc = node_dealloc,
                                    .tp_traverse = node_traverse,
                                    .tp_clear = node_clear,
                                    .tp_dictoffset = offsetof(PyNode, dict),
                                    .tp_weaklistoffset = offsetof(PyNode, weakrefs),
                                    .tp_methods = node_methods,
                                    .tp_getset = node_getset,
                                    .tp_doc = "A step of the tape." };

/* ---- custom functions ---- */
static void fn_release(grad_node *n)
{
    fn_step *s = (fn_step *)n;
    for (int i = 0; i < s->nsaved; i++) {
        tensor_unref(s->saved[i].t);
        s->saved[i].t = NULL;
        if (s->saved[i].pack) {
            s->saved[i].pack->drop(s->saved[i].pack->data, s->saved[i].handle);
            grad_pack_unref(s->saved[i].pack);
            s->saved[i].pack = NULL;
        }
    }
}

static void fn_free(grad_node *n)
{
    fn_step *s = (fn_step *)n;
    PyGILState_STATE g = PyGILState_Ensure();
    if (s->ctx) {
        ((PyNode *)s->ctx)->n = NULL;
        Py_DECREF(s->ctx);
    }
    Py_XDECREF(s->cls);
    PyGILState_Release(g);
    free(s->edge_at);
    free(s->saved);
    free((char *)s->name);
}

static const char *fn_name(const grad_node *n) { return ((const fn_step *)n)->name; }

static bool fn_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                     tp_err *err)
{
    fn_step *s = (fn_step *)n;
    bool ok = false;
    PyObject *fn = PyObject_GetAttrString(s->cls, "backward"), *args = NULL, *r = NULL;
    PyObject *ctx = Py_NewRef(s->ctx);
    if (!fn)
        goto done;
    args = PyTuple_New(n->nin + 1);
    if (!args)
        goto done;
    PyTuple_SET_ITEM(args, 0, Py_NewRef(ctx));
    for (int i = 0; i < n->nin; i++) {
        PyObject *o = dy[i] ? py_wrap(tensor_ref(dy[i])) : Py_NewRef(Py_None);
        if (!o)
            goto done;
        PyTuple_SET_ITEM(args, i + 1, o);
    }
    const char *around = crumb_between(NULL); /* code of the program's */
    r = PyObject_Call(fn, args, NULL);
    crumb_between(around);
    if (!r)
        goto done;
    if (!PyTuple_Check(r)) {
        PyObject *t = PyTuple_Pack(1, r);
        Py_SETREF(r, t);
        if (!r)
            goto done;
    }
    Py_ssize_t got = PyTuple_GET_SIZE(r);
    for (Py_ssize_t i = s->narg; i < got; i++)
        if (PyTuple_GET_ITEM(r, i) != Py_None)
            goto count;
    if (got < s->narg) {
    count:
        PyErr_Format(PyExc_RuntimeError,
                     "function %s returned an incorrect number of gradients (expected %d, got %zd)", s->name,
                     s->narg, got);
        goto done;
    }
    for (int i = 0; i < s->narg; i++) {
        PyObject *o = PyTuple_GET_ITEM(r, i);
        int e = s->edge_at[i];
        if (o == Py_None)
            continue;
        if (e < 0) {
            PyErr_Format(PyExc_RuntimeError,
                         "function %s returned a gradient different than None at position %d, but the "
                         "corresponding forward input was not a Variable",
                         s->name, i + 1);
            goto done;
        }
        if (!py_is_tensor(o)) {
            PyErr_Format(PyExc_TypeError, "expected Variable or None (got %s)", Py_TYPE(o)->tp_name);
            goto done;
        }
        if (need[e])
            dx[e] = tensor_ref(py_tensor(o));
    }
    ok = true;
done:
    Py_XDECREF(fn);
    Py_XDECREF(args);
    Py_XDECREF(r);
    Py_DECREF(ctx);
    return ok || py_err(err);
}
static const grad_vt fn_vt = { fn_name, fn_apply, fn_release, fn_free };

static bool in_tuple(PyObject *t, PyObject *o)
{
    for (Py_ssize_t i = 0; t && i < PyTuple_GET_SIZE(t); i++)
        if (PyTuple_GET_ITEM(t, i) == o)
            return true;
    return false;
}

/* What save_for_backward was given becomes the step's: results without their history, versions noted. */
static bool fn_save(fn_step *s, PyNode *c, PyObject *outs)
{
    op_ctx *cx = CX;
    if (!c->to_save)
        return true;
    s->nsaved = (int)PyTuple_GET_SIZE(c->to_save);
    s->saved = mem_zalloc(sizeof *s->saved * (size_t)MAX(s->nsaved, 1));
    for (int i = 0; i < s->nsaved; i++) {
        PyObject *o = PyTuple_GET_ITEM(c->to_save, i);
        struct fn_saved *v = &s->saved[i];
        v->out = -1;
        if (o == Py_None) {
            v->none = true;
            continue;
        }
        if (!py_is_tensor(o)) {
            PyErr_Format(PyExc_TypeError,
                         "save_for_backward can only save variables, but argument %d is of type %s", i,
                         Py_TYPE(o)->tp_name);
            return false;
        }
        tp_tensor *t = py_tensor(o);
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(outs); k++)
            if (PyTuple_GET_ITEM(outs, k) == o)
                v->out = (int)k;
        v->ver = tensor_version(t);
        if (v->out >= 0) {
            tp_tensor *a = tensor_alias(t);
            a->node = t->node;
            a->rec = t->rec;
            v->t = a;
        } else
            v->t = tensor_ref(t);
        if (cx->hooks) {
            grad_pack *p = cx->hooks;
            tp_err err = { 0 };
            cx->hooks = NULL;
            v->handle = p->pack(p->data, v->t, &err);
            cx->hooks = p;
            tensor_unref(v->t);
            v->t = NULL;
            if (!v->handle) {
                py_raise(&err);
                return false;
            }
            v->pack = grad_pack_ref(p);
        }
    }
    Py_CLEAR(c->to_save);
    return true;
}

static PyObject *ctx_saved(PyObject *o, void *x)
{
    PyNode *c = (PyNode *)o;
    if (c->to_save)
        return Py_NewRef(c->to_save);
    fn_step *s = (fn_step *)c->n;
    if (!s)
        return PyTuple_New(0);
    if (s->n.released)
        return PyErr_Format(PyExc_RuntimeError, "%s", grad_again);
    PyObject *t = PyTuple_New(s->nsaved);
    for (int i = 0; t && i < s->nsaved; i++) {
        struct fn_saved *v = &s->saved[i];
        PyObject *r = NULL;
        tp_err err = { 0 };
        if (v->none)
            r = Py_NewRef(Py_None);
        else if (v->pack) {
            tp_tensor *u = v->pack->unpack(v->pack->data, v->handle, &err);
            r = u ? py_wrap(u) : py_raise(&err);
        } else if (tensor_version(v->t) != v->ver) {
            strbuf b = { 0 };
            shape_print(&b, v->t->ndim, v->t->size);
            PyErr_Format(
                PyExc_RuntimeError,
                "one of the variables needed for gradient computation has been modified by an inplace "
                "operation: [%sTensor %s] is at version %u; expected version %u instead. Hint: enable "
                "anomaly detection to find the operation that failed to compute its gradient, with "
                "taper.autograd.set_detect_anomaly(True).",
                dtype_rows[v->t->dt].gname, strbuf_str(&b), tensor_version(v->t), v->ver);
            strbuf_free(&b);
        } else if (v->out >= 0) {
            tp_tensor *a = tensor_alias(v->t);
            a->node = v->t->node;
            a->rec = v->t->rec;
            grad_set_history(a, &s->n, v->out, NULL);
            r = py_wrap(a);
        } else
            r = py_wrap(tensor_ref(v->t));
        if (r)
            PyTuple_SET_ITEM(t, i, r);
        else
            Py_CLEAR(t);
    }
    return t;
}

static PyObject *ctx_set_tuple(PyObject **to, PyObject *args)
{
    Py_XSETREF(*to, Py_NewRef(args));
    Py_RETURN_NONE;
}
static PyObject *ctx_save(PyObject *o, PyObject *args)
{
    return ctx_set_tuple(&((PyNode *)o)->to_save, args);
}
static PyObject *ctx_non_diff(PyObject *o, PyObject *args)
{
    return ctx_set_tuple(&((PyNode *)o)->non_diff, args);
}
static PyObject *ctx_dirty(PyObject *o, PyObject *args) { return ctx_set_tuple(&((PyNode *)o)->dirty, args); }
static PyObject *ctx_materialize(PyObject *o, PyObject *v)
{
    int b = PyObject_IsTrue(v);
    if (b < 0)
        return NULL;
    ((PyNode *)o)->keep_none = !b;
    Py_RETURN_NONE;
}
static PyObject *ctx_needs(PyObject *o, void *x)
{
    PyNode *c = (PyNode *)o;
    return c->needs_input_grad ? Py_NewRef(c->needs_input_grad) : PyTuple_New(0);
}
static PyMethodDef ctx_methods[] = {
    { "save_for_backward", ctx_save, METH_VARARGS, "save tensors; read them back as ctx.saved_tensors" },
    { "save_for_forward", ctx_save, METH_VARARGS, NULL },
    { "mark_non_differentiable", ctx_non_diff, METH_VARARGS, "these results have no gradient" },
    { "mark_dirty", ctx_dirty, METH_VARARGS, "these inputs were written in place" },
    { "set_materialize_grads", ctx_materialize, METH_O, "False: absent gradients arrive as None, not zeros" },
    { NULL }
};
static PyGetSetDef ctx_getset[] = { { "saved_tensors", ctx_saved, NULL, "what save_for_backward kept", NULL },
                                    { "needs_input_grad", ctx_needs, NULL, "one bool per argument", NULL },
                                    { NULL } };
static PyTypeObject PyFnCtx_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper._C.FunctionCtx",
                                     .tp_basicsize = sizeof(PyNode),
                                     .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE |
                                                 Py_TPFLAGS_HAVE_GC,
                                     .tp_base = &PyNode_Type,
                                     .tp_dealloc = node_dealloc,
                                     .tp_traverse = node_traverse,
                                     .tp_clear = node_clear,
                                     .tp_methods = ctx_methods,
                                     .tp_getset = ctx_getset };

/* One result of forward: give it its history. New reference, or NULL. */
static PyObject *fn_output(fn_step *s, PyNode *c, PyObject *args, PyObject *o, int nr)
{
    tp_tensor *t = py_tensor(o);
    tp_err err = { 0 };
    bool diff = dtype_has_grad((dtype)t->dt) && !in_tuple(c->non_diff, o);
    bool is_input = in_tuple(args, o);
    grad_node_set_shape(&s->n, nr, t);
    if (in_tuple(c->dirty, o)) {
        if (diff && !grad_rebase_history(t, &s->n, nr, &err))
            return py_raise(&err);
        return Py_NewRef(o);
    }
    if (is_input) { /* handed back as it came: a new tensor on the same memory */
        tp_tensor *a = tensor_view(t, t->ndim, t->size, t->stride, t->offset);
        a->node = t->node;
        a->rec = t->rec;
        a->spare |= AGF_custom_view;
        if (diff && !grad_set_history(a, &s->n, nr, &err)) {
            tensor_unref(a);
            return py_raise(&err);
        }
        return py_wrap(a);
    }
    if (!diff)
        return Py_NewRef(o);
    tp_tensor *r = grad_function_result(&s->n, nr, t, &err);
    return r ? py_wrap(r) : py_raise(&err);
}

/* _function_apply(cls, ctx class, name, args, separate setup_context?) -> what forward returned */
/* The step of a call of class cls with its edges, made before forward runs: the inputs' histories are those of now. */
static fn_step *fn_step_new(PyObject *cls, PyObject *name, PyObject *args, int nedge)
{
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    fn_step *s = (fn_step *)grad_node_new(&fn_vt, sizeof *s, 0, nedge);
    s->narg = (int)n;
    s->edge_at = mem_alloc(sizeof(int) * (size_t)MAX(n, 1));
    s->cls = Py_NewRef(cls);
    s->name = mem_strdup(PyUnicode_AsUTF8(name));
    nedge = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GET_ITEM(args, i);
        s->edge_at[i] = py_is_tensor(o) ? nedge : -1;
        if (py_is_tensor(o))
            grad_node_set_edge(&s->n, nedge++, py_tensor(o));
    }
    return s;
}

/* The same step with room for its results, whose number is known now; takes s. */
static fn_step *fn_step_with(fn_step *s, int nout)
{
    fn_step *b = (fn_step *)grad_node_new(&fn_vt, sizeof *b, nout, s->n.nedge);
    for (int i = 0; i < s->n.nedge; i++) { /* now the number of results is known */
        b->n.edge[i] = s->n.edge[i];
        s->n.edge[i].node = NULL;
    }
    b->n.seq = s->n.seq;
    b->narg = s->narg;
    b->edge_at = s->edge_at;
    b->cls = s->cls;
    b->name = s->name;
    s->edge_at = NULL;
    s->cls = NULL;
    s->name = NULL;
    grad_node_unref(&s->n);
    return b;
}

/* Runs forward (and setup_context) without recording. */
static PyObject *fn_forward(PyObject *cls, PyNode *c, PyObject *args, bool setup)
{
    PyObject *fwd = PyObject_GetAttrString(cls, "forward"), *out = NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    op_ctx *cx = CX;
    bool mode = cx->grad_mode;
    if (!fwd)
        return NULL;
    cx->grad_mode = false;
    if (setup)
        out = PyObject_Call(fwd, args, NULL);
    else {
        PyObject *full = PyTuple_New(n + 1);
        if (full) {
            PyTuple_SET_ITEM(full, 0, Py_NewRef((PyObject *)c));
            for (Py_ssize_t i = 0; i < n; i++)
                PyTuple_SET_ITEM(full, i + 1, Py_NewRef(PyTuple_GET_ITEM(args, i)));
            out = PyObject_Call(fwd, full, NULL);
            Py_DECREF(full);
        }
    }
    if (out && setup) {
        PyObject *r = PyObject_CallMethod(cls, "setup_context", "OOO", (PyObject *)c, args, out);
        if (!r)
            Py_CLEAR(out);
        Py_XDECREF(r);
    }
    cx->grad_mode = mode;
    Py_DECREF(fwd);
    return out;
}

/* Puts the results on the tape as those of s. A new tuple, or NULL. */
static PyObject *fn_record(fn_step *s, PyNode *c, PyObject *args, PyObject *outs)
{
    op_ctx *cx = CX;
    int nout = (int)PyTuple_GET_SIZE(outs);
    s->n.zeros = !c->keep_none;
    s->ctx = Py_NewRef((PyObject *)c);
    c->n = &s->n;
    s->n.py = c;
    if (cx->anomaly && grad_anomaly_hooks.where)
        s->n.where = grad_anomaly_hooks.where(grad_anomaly_hooks.data);
    for (Py_ssize_t i = 0; c->dirty && i < PyTuple_GET_SIZE(c->dirty); i++) {
        PyObject *o = PyTuple_GET_ITEM(c->dirty, i);
        tp_err err = { 0 };
        if (!py_is_tensor(o) || !grad_check_inplace(cx, py_tensor(o), true, &err)) {
            py_raise(&err);
            return NULL;
        }
    }
    PyObject *list = PyTuple_New(nout);
    for (int i = 0; list && i < nout; i++) {
        PyObject *o = PyTuple_GET_ITEM(outs, i);
        PyObject *r = py_is_tensor(o) ? fn_output(s, c, args, o, i) : Py_NewRef(o);
        if (r)
            PyTuple_SET_ITEM(list, i, r);
        else
            Py_CLEAR(list);
    }
    if (list && !fn_save(s, c, outs))
        Py_CLEAR(list);
    if (list) {
        Py_CLEAR(c->dirty);
        Py_CLEAR(c->non_diff);
    }
    return list;
}
static PyObject *function_apply(PyObject *m, PyObject *const *a, Py_ssize_t nargs)
{
    if (nargs != 5)
        return PyErr_Format(PyExc_TypeError, "_function_apply takes 5 arguments");
    PyObject *cls = a[0], *args = a[3], *out = NULL, *outs = NULL, *list = NULL, *res = NULL;
    bool any = false;
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    fn_step *s = NULL;
    for (Py_ssize_t i = 0; i < n && CX->grad_mode; i++) {
        PyObject *o = PyTuple_GET_ITEM(args, i);
        if (py_is_tensor(o) &&
            batch_has_history(py_tensor(o))) { /* its backward is for elements, the tape there for wholes */
            PyErr_SetString(py_fake_error,
                            "a Function with a backward of its own is differentiated outside of vmap");
            return NULL;
        }
    }
    PyTypeObject *ct = (PyTypeObject *)a[1];
    PyNode *c = (PyNode *)ct->tp_alloc(ct, 0);
    if (!c)
        return NULL;
    c->needs_input_grad = PyTuple_New(n);
    int nedge = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GET_ITEM(args, i);
        bool is = py_is_tensor(o), need = is && grad_requires_grad(py_tensor(o));
        any |= need;
        nedge += is;
        PyTuple_SET_ITEM(c->needs_input_grad, i, Py_NewRef(need ? Py_True : Py_False));
    }
    if (any && CX->grad_mode)
        s = fn_step_new(cls, a[2], args, nedge);
    if (!(out = fn_forward(cls, c, args, a[4] == Py_True)))
        goto done;
    if (!s) {
        res = Py_NewRef(out);
        goto done;
    }
    outs = PyTuple_Check(out) ? Py_NewRef(out) : PyTuple_Pack(1, out);
    if (!outs)
        goto done;
    s = fn_step_with(s, (int)PyTuple_GET_SIZE(outs));
    list = fn_record(s, c, args, outs);
    if (list)
        res = Py_NewRef(PyTuple_Check(out) ? list : PyTuple_GET_ITEM(list, 0));
done:
    if (s)
        grad_node_unref(&s->n);
    Py_XDECREF(out);
    Py_XDECREF(outs);
    Py_XDECREF(list);
    Py_DECREF(c);
    return res;
}

/* ---- properties of Tensor ---- */
static PyObject *get_requires_grad(PyObject *o, void *x)
{
    return PyBool_FromLong(grad_requires_grad(py_tensor(o)));
}

static int set_requires(PyObject *o, PyObject *v)
{
    tp_err err = { 0 };
    if (!v || !PyBool_Check(v)) {
        PyErr_SetString(PyExc_RuntimeError, "requires_grad must be a bool");
        return -1;
    }
    if (!grad_set_requires_grad(CX, py_tensor(o), v == Py_True, &err)) {
        py_raise(&err);
        return -1;
    }
    return 0;
}
static int set_requires_grad(PyObject *o, PyObject *v, void *x)
{
    if (v == Py_True && !grad_is_leaf(py_tensor(o))) { /* requires_grad_() takes it for said already */
        PyErr_SetString(PyExc_RuntimeError, "you can only change requires_grad flags of leaf variables.");
        return -1;
    }
    if (v == Py_True && !dtype_has_grad((dtype)py_tensor(o)->dt)) {
        tp_err err = { 0 };
        err_set(&err, ERR_runtime, "only Tensors of floating point and complex dtype can require gradients");
        py_raise(&err);
        return -1;
    }
    return set_requires(o, v);
}

static PyObject *m_requires_grad_(PyObject *o, PyObject *args, PyObject *kw)
{
    static char *names[] = { "requires_grad", NULL };
    PyObject *v = Py_True;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|O:requires_grad_", names, &v))
        return NULL;
    if (!PyBool_Check(v))
        return PyErr_Format(PyExc_TypeError,
                            "requires_grad_(): argument 'requires_grad' (position 1) must be bool, not %s",
                            Py_TYPE(v)->tp_name);
    if (set_requires(o, v) < 0)
        return NULL;
    return Py_NewRef(o);
}

static PyObject *get_grad(PyObject *o, void *x)
{
    tp_tensor *g = grad_grad(py_tensor(o));
    if (!g) {
        if (!grad_is_leaf(py_tensor(o)) && !grad_retains_grad(py_tensor(o)) &&
            PyErr_WarnEx(
                PyExc_UserWarning,
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad "
                "attribute won't be populated during autograd.backward(). If you indeed want the .grad "
                "field to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. "
                "If you access the non-leaf Tensor by mistake, make sure you access the leaf Tensor "
                "instead.",
                1) < 0)
            return NULL;
        Py_RETURN_NONE;
    }
    return py_wrap(tensor_ref(g));
}

static int set_grad(PyObject *o, PyObject *v, void *x)
{
    tp_err err = { 0 };
    if (v && v != Py_None && !py_is_tensor(v)) {
        PyErr_Format(PyExc_TypeError, "assigned grad expected to be a Tensor or None but got grad of type %s",
                     Py_TYPE(v)->tp_name);
        return -1;
    }
    if (grad_set_grad(py_tensor(o), v && v != Py_None ? py_tensor(v) : NULL, &err))
        return 0;
    py_raise(&err);
    return -1;
}

static PyObject *get_grad_fn(PyObject *o, void *x)
{
    tp_err err = { 0 };
    grad_node *n = grad_grad_fn(py_tensor(o), NULL, &err);
    return err.kind ? py_raise(&err) : py_node(n);
}
static PyObject *get_is_leaf(PyObject *o, void *x) { return PyBool_FromLong(grad_is_leaf(py_tensor(o))); }
static PyObject *get_retains(PyObject *o, void *x)
{
    return PyBool_FromLong(grad_retains_grad(py_tensor(o)));
}
static PyObject *get_output_nr(PyObject *o, void *x)
{
    int nr = 0;
    grad_grad_fn(py_tensor(o), &nr, NULL);
    return PyLong_FromLong(nr);
}
static PyObject *get_base(PyObject *o, void *x)
{
    tp_tensor *b = py_tensor(o)->base;
    return b ? py_wrap(tensor_ref(b)) : Py_NewRef(Py_None);
}
static PyObject *get_data(PyObject *o, void *x) { return py_wrap(grad_data(py_tensor(o))); }
static int set_data(PyObject *o, PyObject *v, void *x)
{
    tp_err err = { 0 };
    if (!v || !py_is_tensor(v)) {
        PyErr_SetString(PyExc_TypeError, "Tensor.data must be set to a Tensor");
        return -1;
    }
    if (grad_set_data(py_tensor(o), py_tensor(v), &err))
        return 0;
    py_raise(&err);
    return -1;
}
static PyObject *m_is_view(PyObject *o, PyObject *x) { return PyBool_FromLong(py_tensor(o)->base != NULL); }
static PyObject *m_is_inference(PyObject *o, PyObject *x)
{
    return PyBool_FromLong(py_tensor(o)->flags & TF_inference);
}
static PyObject *m_retain_grad(PyObject *o, PyObject *x)
{
    tp_err err = { 0 };
    if (!grad_retain_grad(py_tensor(o), &err))
        return py_raise(&err);
    Py_RETURN_NONE;
}
static PyObject *m_detach_(PyObject *o, PyObject *x)
{
    tp_err err = { 0 };
    return CX->inference_mode || grad_detach_(py_tensor(o), &err) ? Py_NewRef(o) : py_raise(&err);
}
static PyObject *m_register_hook(PyObject *o, PyObject *fn)
{
    tp_err err = { 0 };
    grad_hooks *h = grad_tensor_hooks(py_tensor(o), &err);
    return h ? handle_new(h, tensor_hook, fn) : py_raise(&err);
}
static PyObject *m_register_post(PyObject *o, PyObject *fn)
{
    tp_err err = { 0 };
    grad_hooks *h = grad_post_hooks(py_tensor(o), &err);
    return h ? handle_new(h, post_hook, fn) : py_raise(&err);
}

/* ---- callbacks at the end of backward ---- */
static bool final_run(void *data, tp_err *err)
{
    PyObject *r = PyObject_CallNoArgs(data);
    Py_XDECREF(r);
    return r || err_set(err, ERR_python, "a callback failed");
}
static void final_drop(void *data)
{
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    Py_DECREF((PyObject *)data);
    PyErr_Restore(t, v, tb);
}
static PyObject *queue_callback(PyObject *m, PyObject *fn)
{
    if (grad_queue_callback(final_run, final_drop, Py_NewRef(fn)))
        Py_RETURN_NONE;
    Py_DECREF(fn);
    PyErr_SetString(PyExc_RuntimeError, "Final callbacks can only be installed during backward pass.");
    return NULL;
}

/* ---- backward ---- */
static tp_tensor **tensor_array(PyObject *seq, const char *what, bool none_ok, Py_ssize_t *n)
{
    PyObject *f = PySequence_Fast(seq, "a sequence of Tensors was expected");
    if (!f)
        return NULL;
    *n = PySequence_Fast_GET_SIZE(f);
    tp_tensor **t = mem_zalloc(sizeof *t * (size_t)MAX(*n, 1));
    for (Py_ssize_t i = 0; i < *n; i++) {
        PyObject *o = PySequence_Fast_GET_ITEM(f, i);
        if (py_is_tensor(o))
            t[i] = py_tensor(o);
        else if (!(none_ok && o == Py_None)) {
            PyErr_Format(PyExc_TypeError, "element %zd of %s tuple is not a Tensor (got %s)", i, what,
                         Py_TYPE(o)->tp_name);
            free(t);
            Py_DECREF(f);
            return NULL;
        }
    }
    Py_DECREF(f); /* the caller holds the sequence */
    return t;
}

/* _run_backward(tensors, grads or None, retain, create, inputs or None, accumulate, allow_unused) */
static PyObject *run_backward(PyObject *m, PyObject *const *a, Py_ssize_t nargs)
{
    tp_tensor **roots = NULL, **grads = NULL, **inputs = NULL, **result = NULL;
    Py_ssize_t nroot = 0, ngrad = 0, ninput = 0;
    PyObject *res = NULL;
    tp_err err = { 0 };
    if (nargs != 7)
        return PyErr_Format(PyExc_TypeError, "_run_backward takes 7 arguments");
    if (!(roots = tensor_array(a[0], "tensors", false, &nroot)))
        goto done;
    if (a[1] != Py_None && !(grads = tensor_array(a[1], "gradients", true, &ngrad)))
        goto done;
    if (grads && ngrad != nroot) {
        PyErr_Format(PyExc_RuntimeError, "got %zd tensors and %zd gradients", nroot, ngrad);
        goto done;
    }
    if (a[4] != Py_None && !(inputs = tensor_array(a[4], "inputs", false, &ninput)))
        goto done;
    bool accumulate = a[5] == Py_True;
    if (inputs && !accumulate)
        result = mem_zalloc(sizeof *result * (size_t)MAX(ninput, 1));
    grad_options o = { .retain_graph = PyObject_IsTrue(a[2]),
                       .create_graph = PyObject_IsTrue(a[3]),
                       .allow_unused = PyObject_IsTrue(a[6]),
                       .inputs = inputs,
                       .ninput = (int)ninput,
                       .result = result };
    for (Py_ssize_t i = 0; i < nroot; i++) /* hooks may drop the last Python reference */
        tensor_ref(roots[i]);
    bool ok = grad_backward(CX, roots, (int)nroot, grads, &o, &err);
    for (Py_ssize_t i = 0; i < nroot; i++)
        tensor_unref(roots[i]);
    if (!ok) {
        py_raise(&err);
        goto done;
    }
    if (!result) {
        res = Py_NewRef(Py_None);
        goto done;
    }
    res = PyTuple_New(ninput);
    for (Py_ssize_t i = 0; i < ninput; i++) {
        PyObject *g = result[i] ? py_wrap(result[i]) : Py_NewRef(Py_None);
        if (res && g)
            PyTuple_SET_ITEM(res, i, g);
        else {
            Py_XDECREF(g);
            Py_CLEAR(res);
        }
    }
done:
    free(roots);
    free(grads);
    free(inputs);
    free(result);
    return res;
}

static PyObject *m_backward(PyObject *o, PyObject *args, PyObject *kw)
{
    static char *names[] = { "gradient", "retain_graph", "create_graph", "inputs", NULL };
    PyObject *g = Py_None, *retain = Py_None, *inputs = Py_None;
    int create = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|OOpO:backward", names, &g, &retain, &create, &inputs))
        return NULL;
    if (g != Py_None && !py_is_tensor(g))
        return PyErr_Format(PyExc_TypeError, "gradients can be either Tensors or None, but got %s",
                            Py_TYPE(g)->tp_name);
    PyObject *in = NULL, *res = NULL, *one = PyTuple_Pack(1, o), *grads = NULL;
    if (inputs != Py_None) {
        in = py_is_tensor(inputs) ? PyTuple_Pack(1, inputs) : PySequence_Tuple(inputs);
        if (in && !PyTuple_GET_SIZE(in))
            PyErr_SetString(PyExc_RuntimeError, "`inputs` argument to `backward()` cannot be empty.");
    }
    if (g != Py_None)
        grads = PyTuple_Pack(1, g);
    if (!PyErr_Occurred() && one) {
        bool keep = retain == Py_None ? create : PyObject_IsTrue(retain);
        PyObject *a[7] = { one,
                           grads ? grads : Py_None,
                           keep ? Py_True : Py_False,
                           create ? Py_True : Py_False,
                           in ? in : Py_None,
                           Py_True,
                           Py_True };
        res = run_backward(NULL, a, 7);
    }
    Py_XDECREF(one);
    Py_XDECREF(in);
    Py_XDECREF(grads);
    return res;
}

/* ---- modes ---- */
static PyObject *grad_enabled(PyObject *m, PyObject *x) { return PyBool_FromLong(CX->grad_mode); }
static PyObject *set_grad_enabled_(PyObject *m, PyObject *v)
{
    int b = PyObject_IsTrue(v);
    if (b < 0)
        return NULL;
    bool old = CX->grad_mode;
    CX->grad_mode = b;
    return PyBool_FromLong(old);
}
static PyObject *set_requires_grad_(PyObject *m, PyObject *args)
{
    PyObject *o, *v;
    if (!PyArg_ParseTuple(args, "O!O", &PyTensor_Type, &o, &v) || set_requires(o, v) < 0)
        return NULL;
    Py_RETURN_NONE;
}
/* _leads_beyond(tensor, leaves): do gradients of the tensor end anywhere but at these leaves? */
static PyObject *leads_beyond(PyObject *m, PyObject *args)
{
    PyObject *o, *own;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTensor_Type, &o, &PyTuple_Type, &own))
        return NULL;
    tp_tensor *x = py_tensor(o);
    int n = 0;
    tp_tensor **leaf = grad_leaves(&x, 1, &n);
    bool beyond = false;
    for (int i = 0; i < n && !beyond; i++) {
        beyond = true;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(own) && beyond; k++) {
            PyObject *p = PyTuple_GET_ITEM(own, k);
            beyond = !py_is_tensor(p) || py_tensor(p) != leaf[i];
        }
    }
    free(leaf);
    return PyBool_FromLong(beyond);
}
/* _draws(): a number that random operators change: how far the generator is, or how many are in the graph being traced. */
static PyObject *draws(PyObject *m, PyObject *x)
{
    ir_rec *rec = CX->rec;
    if (!rec)
        return PyLong_FromUnsignedLongLong(gen_position(gen_default()));
    long n = 0;
    IR_EACH (k, rec->g)
        n += k->kind == IR_call && op_row_of((op_id)k->op)->flags & OPF_RAND;
    return PyLong_FromLong(n);
}
static PyObject *inference_enabled(PyObject *m, PyObject *x) { return PyBool_FromLong(CX->inference_mode); }
static PyObject *set_inference(PyObject *m, PyObject *v)
{
    int b = PyObject_IsTrue(v);
    if (b < 0)
        return NULL;
    bool old = CX->inference_mode;
    CX->inference_mode = b;
    return PyBool_FromLong(old);
}
/* State of one kind of device: (its name, is it on, the lower type), as _set_autocast takes it. */
static PyObject *get_autocast(PyObject *m, PyObject *kind)
{
    const char *name = PyUnicode_AsUTF8(kind);
    tp_device d;
    tp_err err = { 0 };
    if (!name)
        return NULL;
    if (!device_parse(name, &d, &err))
        return py_raise(&err);
    return Py_BuildValue("(ONO)", kind, PyBool_FromLong(CX->autocast >> d.kind & 1),
                         py_dtype((dtype)CX->autocast_dtype[d.kind]));
}

/* x.data = v; n writes went there before: they count for x, which did not see them where it lay. */
static PyObject *replace_data(PyObject *m, PyObject *args)
{
    PyObject *o, *v;
    unsigned n;
    if (!PyArg_ParseTuple(args, "OOI", &o, &v, &n) || !py_is_tensor(o) || !py_is_tensor(v))
        return NULL;
    bool apart = py_tensor(o)->storage != py_tensor(v)->storage;
    if (PyObject_SetAttrString(o, "data", v) < 0)
        return NULL;
    py_tensor(o)->ahead += apart ? n : 0;
    Py_RETURN_NONE;
}
static PyObject *set_autocast(PyObject *m, PyObject *args)
{
    PyObject *kind, *on, *type;
    dtype dt;
    if (!PyArg_ParseTuple(args, "UO!O:_set_autocast", &kind, &PyBool_Type, &on, &type))
        return NULL;
    if (!py_to_dtype(type, &dt))
        return PyErr_Format(PyExc_TypeError, "autocast: dtype must be a dtype, not %s",
                            Py_TYPE(type)->tp_name);
    PyObject *old = get_autocast(NULL, kind);
    tp_device d;
    if (!old || !device_parse(PyUnicode_AsUTF8(kind), &d, NULL))
        return old;
    CX->autocast = (uint8_t)((CX->autocast & ~(1u << d.kind)) | (unsigned)(on == Py_True) << d.kind);
    CX->autocast_dtype[d.kind] = (uint8_t)dt;
    return old;
}
static PyObject *anomaly_enabled(PyObject *m, PyObject *x) { return PyBool_FromLong(CX->anomaly); }
static PyObject *anomaly_check_nan(PyObject *m, PyObject *x)
{
    return PyBool_FromLong(grad_anomaly_hooks.check_nan);
}

static char *anomaly_where(void *data) /* the Python stack as text */
{
    char *s = NULL;
    PyObject *err_t, *err_v, *err_b;
    PyErr_Fetch(&err_t, &err_v, &err_b);
    PyObject *tb = PyImport_ImportModule("traceback"),
             *l = tb ? PyObject_CallMethod(tb, "format_stack", NULL) : NULL,
             *e = l ? PyUnicode_FromString("") : NULL, *j = e ? PyUnicode_Join(e, l) : NULL;
    const char *u = j ? PyUnicode_AsUTF8(j) : NULL;
    if (u)
        s = mem_strdup(u);
    Py_XDECREF(tb);
    Py_XDECREF(l);
    Py_XDECREF(e);
    Py_XDECREF(j);
    PyErr_Clear();
    PyErr_Restore(err_t, err_v, err_b);
    return s;
}

static void anomaly_report(void *data, const char *fn, const char *where)
{
    PyObject *t, *v, *b;
    PyErr_Fetch(&t, &v, &b);
    int rc =
        where ? PyErr_WarnFormat(PyExc_UserWarning, 1,
                                 "Error detected in %s. Traceback of forward call that caused the error:\n%s",
                                 fn, where)
              : PyErr_WarnFormat(PyExc_UserWarning, 1,
                                 "Error detected in %s. No forward pass information available. Enable detect "
                                 "anomaly during forward pass for more information.",
                                 fn);
    if (rc < 0)
        PyErr_Clear();
    PyErr_Restore(t, v, b);
}

static PyObject *set_anomaly(PyObject *m, PyObject *args)
{
    int on, nan = 1;
    if (!PyArg_ParseTuple(args, "p|p", &on, &nan))
        return NULL;
    CX->anomaly = on;
    grad_anomaly_hooks = (grad_anomaly){ anomaly_where, anomaly_report, NULL, nan };
    Py_RETURN_NONE;
}

/* ---- saved-tensor hooks ---- */
static void *pack_call(void *data, tp_tensor *t, tp_err *err)
{
    PyObject *o = py_wrap(tensor_ref(t));
    PyObject *r = o ? PyObject_CallOneArg(PyTuple_GET_ITEM((PyObject *)data, 0), o) : NULL;
    Py_XDECREF(o);
    if (!r)
        py_err(err);
    return r;
}
static tp_tensor *unpack_call(void *data, void *handle, tp_err *err)
{
    PyObject *r = PyObject_CallOneArg(PyTuple_GET_ITEM((PyObject *)data, 1), handle);
    tp_tensor *t = NULL;
    if (r && !py_is_tensor(r))
        PyErr_Format(PyExc_TypeError,
                     "Output of saved tensor unpack_hook expected to be a Tensor but got result of type %s",
                     Py_TYPE(r)->tp_name);
    else if (r)
        t = tensor_ref(py_tensor(r));
    Py_XDECREF(r);
    if (!t)
        py_err(err);
    return t;
}
static void pack_drop(void *data, void *handle) { hook_free(handle); }

static _Thread_local VEC(grad_pack *) pack_stack;
static PyObject *push_saved_hooks(PyObject *m, PyObject *args)
{
    if (PyTuple_GET_SIZE(args) != 2)
        return PyErr_Format(PyExc_TypeError, "two callables were expected");
    grad_pack *p = mem_zalloc(sizeof *p);
    *p = (grad_pack){ 1, pack_call, unpack_call, pack_drop, hook_free, Py_NewRef(args) };
    vec_push(&pack_stack, (grad_pack *)CX->hooks);
    CX->hooks = p;
    Py_RETURN_NONE;
}
static PyObject *pop_saved_hooks(PyObject *m, PyObject *x)
{
    if (!pack_stack.n)
        return PyErr_Format(PyExc_RuntimeError, "no saved tensor hooks to remove");
    grad_pack *p = CX->hooks;
    CX->hooks = vec_pop(&pack_stack);
    grad_pack_unref(p);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    { "requires_grad_", (PyCFunction)(void (*)(void))m_requires_grad_, METH_VARARGS | METH_KEYWORDS,
      "requires_grad_(requires_grad=True) -> Tensor" },
    { "backward", (PyCFunction)(void (*)(void))m_backward, METH_VARARGS | METH_KEYWORDS,
      "backward(gradient=None, retain_graph=None, create_graph=False, inputs=None): gradients of this tensor "
      "with respect to the leaves of its graph" },
    { "retain_grad", m_retain_grad, METH_NOARGS, "keep .grad although this is no leaf" },
    { "register_hook", m_register_hook, METH_O, "register_hook(fn(grad) -> Tensor or None) -> handle" },
    { "register_post_accumulate_grad_hook", m_register_post, METH_O,
      "register_post_accumulate_grad_hook(fn(param)) -> handle" },
    { "detach_", m_detach_, METH_NOARGS, "forget the history, in place" },
    { "_is_view", m_is_view, METH_NOARGS, NULL },
    { "is_inference", m_is_inference, METH_NOARGS, "was it made in inference mode?" },
    { NULL }
};
static PyGetSetDef getset[] = {
    { "requires_grad", get_requires_grad, set_requires_grad, "is a gradient wanted for this tensor?", NULL },
    { "grad", get_grad, set_grad, "the accumulated gradient or None", NULL },
    { "_grad", get_grad, set_grad, NULL, NULL },
    { "grad_fn", get_grad_fn, NULL, "the step that made this tensor, or None", NULL },
    { "is_leaf", get_is_leaf, NULL, "made by no recorded step", NULL },
    { "retains_grad", get_retains, NULL, NULL, NULL },
    { "output_nr", get_output_nr, NULL, NULL, NULL },
    { "_base", get_base, NULL, "the tensor this is a view of, or None", NULL },
    { "data", get_data, set_data, "the same memory without history", NULL },
    { NULL }
};
static PyMethodDef functions[] = {
    { "_run_backward", (PyCFunction)(void (*)(void))run_backward, METH_FASTCALL, NULL },
    { "_queue_callback", queue_callback, METH_O,
      "_queue_callback(fn): at the end of the backward that runs" },
    { "_function_apply", (PyCFunction)(void (*)(void))function_apply, METH_FASTCALL, NULL },
    { "is_grad_enabled", grad_enabled, METH_NOARGS,
      "is_grad_enabled() -> bool\n\n>>> taper.is_grad_enabled()\nTrue\n" },
    { "_set_grad_enabled", set_grad_enabled_, METH_O, "returns the mode before" },
    { "_set_requires_grad", set_requires_grad_, METH_VARARGS, "what requires_grad_() is in a graph" },
    { "_leads_beyond", leads_beyond, METH_VARARGS,
      "do gradients of a tensor end anywhere but at these leaves?" },
    { "_draws", draws, METH_NOARGS, "a number that random operators change" },
    { "is_inference_mode_enabled", inference_enabled, METH_NOARGS,
      "is_inference_mode_enabled() -> bool\n\n>>> taper.is_inference_mode_enabled()\nFalse\n" },
    { "_set_inference_mode", set_inference, METH_O, "returns the mode before" },
    { "_get_autocast", get_autocast, METH_O, "(kind of device) -> (kind, is it on, the lower type)" },
    { "_replace_data", replace_data, METH_VARARGS, "sets Tensor.data to what was written n times since" },
    { "_set_autocast", set_autocast, METH_VARARGS,
      "(kind of device, on, lower type); returns what was set before" },
    { "is_anomaly_enabled", anomaly_enabled, METH_NOARGS,
      "is_anomaly_enabled() -> bool\n\n>>> taper.is_anomaly_enabled()\nFalse\n" },
    { "is_anomaly_check_nan_enabled", anomaly_check_nan, METH_NOARGS,
      "is_anomaly_check_nan_enabled() -> bool\n\n>>> taper.is_anomaly_check_nan_enabled()\nTrue\n" },
    { "_set_anomaly", set_anomaly, METH_VARARGS, NULL },
    { "_push_saved_hooks", push_saved_hooks, METH_VARARGS, NULL },
    { "_pop_saved_hooks", pop_saved_hooks, METH_NOARGS, NULL },
    { NULL }
};

__thread bool py_signaled;
static bool poll_signals(tp_err *err)
{
    if (!PyGILState_Check() || PyErr_CheckSignals() == 0)
        return true;
    py_signaled = true;
    return py_err(err);
}

int py_init_autograd(PyObject *m)
{
    host.poll = poll_signals;
    if (PyType_Ready(&PyNode_Type) < 0 || PyType_Ready(&PyFnCtx_Type) < 0 || PyType_Ready(&PyHandle_Type) < 0)
        return -1;
    if (PyModule_AddObjectRef(m, "_Node", (PyObject *)&PyNode_Type) < 0 ||
        PyModule_AddObjectRef(m, "_FunctionCtx", (PyObject *)&PyFnCtx_Type) < 0)
        return -1;
    if (py_tensor_add_methods(methods) < 0 || py_tensor_add_getset(getset) < 0)
        return -1;
    if (PyModule_AddFunctions(m, functions) < 0)
        return -1;
    /* Variable._execution_engine.queue_callback, as programs spell it */
    PyObject *types = PyImport_ImportModule("types"), *fn = PyObject_GetAttrString(m, "_queue_callback");
    PyObject *space = types ? PyObject_GetAttrString(types, "SimpleNamespace") : NULL;
    PyObject *kw = fn ? Py_BuildValue("{s:O}", "queue_callback", fn) : NULL, *none = PyTuple_New(0);
    PyObject *engine = space && kw && none ? PyObject_Call(space, none, kw) : NULL;
    int rc = engine ? PyDict_SetItemString(type_dict(&PyTensor_Type), "_execution_engine", engine) : -1;
    PyType_Modified(&PyTensor_Type);
    Py_XDECREF(types);
    Py_XDECREF(fn);
    Py_XDECREF(space);
    Py_XDECREF(kw);
    Py_XDECREF(none);
    Py_XDECREF(engine);
    return rc;
}
