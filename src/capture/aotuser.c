/* aotuser.c - aot_autograd(fw_compiler=..., bw_compiler=...): the autograd stage with the user's own compilers.
 * The forward, backward and inference graphs are shown to Python callables, which return what runs them. */
#include "capture/capture.h"
#include "ir/text.h"
#include "run/checked.h"

/* ---- a Python callable as a program ---- */
typedef struct user_program {
    run_program base;
    PyObject *fn;
    bool boxed; /* takes one list, which it may empty */
    char what[16];
} user_program;

static bool user_call(run_program *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                      tp_err *err)
{
    user_program *u = (user_program *)p;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *args = PyList_New(nin), *res = NULL, *seq = NULL;
    bool ok = false;
    for (int i = 0; args && i < nin; i++) {
        PyObject *v = in[i].kind == VAL_tensor ? py_wrap(tensor_ref(in[i].t)) : PyLong_FromLongLong(in[i].i);
        if (!v)
            Py_CLEAR(args);
        else
            PyList_SET_ITEM(args, i, v);
    }
    if (args && u->boxed)
        res = PyObject_CallOneArg(u->fn, args);
    else if (args) {
        PyObject *t = PyList_AsTuple(args);
        res = t ? PyObject_Call(u->fn, t, NULL) : NULL;
        Py_XDECREF(t);
    }
    if (!res) {
        err_set(err, ERR_python, "the compiled %s failed", u->what);
        goto done;
    }
    seq = PyTuple_Check(res) || PyList_Check(res) ? Py_NewRef(res) : PyTuple_Pack(1, res);
    if (!seq || PySequence_Fast_GET_SIZE(seq) != nout) {
        err_set(err, ERR_runtime, "the compiled %s returned %zd values for a graph with %d outputs", u->what,
                seq ? PySequence_Fast_GET_SIZE(seq) : (Py_ssize_t)0, nout);
        goto done;
    }
    ok = true;
    for (int i = 0; i < nout; i++) {
        PyObject *v = PySequence_Fast_GET_ITEM(seq, i);
        out[i] = vNone;
        if (py_is_tensor(v))
            out[i] = vT(tensor_ref(py_tensor(v)));
        else if (PyLong_Check(v))
            out[i] = vI(PyLong_AsLongLong(v));
        else if (v != Py_None)
            ok = err_set(err, ERR_type, "the compiled %s returned a %s where a Tensor was expected", u->what,
                         Py_TYPE(v)->tp_name);
    }
    for (int i = 0; !ok && i < nout; i++)
        val_clear(&out[i]);
done:
    Py_XDECREF(args);
    Py_XDECREF(res);
    Py_XDECREF(seq);
    PyGILState_Release(gil);
    return ok;
}

static void user_free(run_program *p)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_XDECREF(((user_program *)p)->fn);
    PyGILState_Release(gil);
    free(p);
}

/* ---- the compilers ---- */
typedef struct user_backend {
    backend outer, inner;
    PyObject *compile; /* (capsule, "forward" | "backward" | "inference", fake inputs) -> callable */
    aot_cut cut;
    PyObject *
        partition; /* (capsule of the joint graph, forward's results) -> (forward capsule, backward capsule) */
} user_backend;

static void name_half(ir_graph *g, const ir_graph *joint, const char *what)
{
    size_t n = strlen(joint->name) + strlen(what) + 2;
    char *name = arena_alloc(&g->mem, n);
    snprintf(name, n, "%s_%s", joint->name, what);
    g->name = name;
}

static bool user_cut(const aot_cut *cut, tp_comp *c, aot_unit *u, int nfw)
{
    const user_backend *in = (const user_backend *)((const char *)cut - offsetof(user_backend, cut));
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *view = graph_view(ir_graph_copy(u->joint)),
             *r = view ? PyObject_CallFunction(in->partition, "Oi", view, nfw) : NULL;
    ir_graph *fw = NULL, *bw = NULL;
    if (r && PyTuple_Check(r) && PyTuple_GET_SIZE(r) == 2 &&
        (fw = PyCapsule_GetPointer(PyTuple_GET_ITEM(r, 0), "taper.graph")) &&
        (bw = PyCapsule_GetPointer(PyTuple_GET_ITEM(r, 1), "taper.graph"))) {
        u->fw = ir_graph_copy(fw);
        u->bw = ir_graph_copy(bw);
        name_half(u->fw, u->joint, "forward");
        name_half(u->bw, u->joint, "backward");
    } else
        err_set(c->err, ERR_python, "the partition function failed");
    Py_XDECREF(view);
    Py_XDECREF(r);
    PyGILState_Release(gil);
    return u->bw != NULL;
}

static run_program *user_compile(const backend *b, tp_comp *c, const ir_graph *g, const tp_val *example)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    const char *tail = strrchr(g->name, '_'), *what = tail ? tail + 1 : "inference";
    PyObject *view = graph_view(ir_graph_copy(g)), *list = PyList_New(0), *fn = NULL, *boxed = NULL;
    for (size_t i = 0; list && i < g->inputs.n; i++) {
        const tp_val *t = &g->inputs.at[i]->val;
        PyObject *v = t->kind == VAL_tensor ? py_wrap(tensor_fake_of(t->t)) : py_int(t->i);
        if (!v || PyList_Append(list, v) < 0)
            Py_CLEAR(list);
        Py_XDECREF(v);
    }
    if (view && list)
        fn = PyObject_CallFunction(((const user_backend *)b->data)->compile, "OsO", view, what, list);
    if (fn && !PyCallable_Check(fn)) {
        PyErr_Format(PyExc_TypeError, "the %s compiler returned a %s, which cannot be called", what,
                     Py_TYPE(fn)->tp_name);
        Py_CLEAR(fn);
    }
    user_program *u = NULL;
    if (fn) {
        u = mem_zalloc(sizeof *u);
        u->base = (run_program){ user_call, user_free };
        u->fn = Py_NewRef(fn);
        boxed = PyObject_GetAttrString(fn, "_boxed_call");
        u->boxed = boxed && PyObject_IsTrue(boxed) == 1;
        PyErr_Clear();
        snprintf(u->what, sizeof u->what, "%s", what);
    } else
        err_set(c->err, ERR_python, "the %s compiler failed", what);
    Py_XDECREF(view);
    Py_XDECREF(list);
    Py_XDECREF(fn);
    Py_XDECREF(boxed);
    PyGILState_Release(gil);
    return u ? &u->base : NULL;
}

static void user_drop(const backend *b)
{
    user_backend *u = (user_backend *)b->data;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_XDECREF(u->compile);
    Py_XDECREF(u->partition);
    PyGILState_Release(gil);
    free(u);
}

/* _aot_compile(capsule, example_inputs, compile, min_cut, partition or None) -> callable */
static PyObject *compile(PyObject *m, PyObject *const *a, Py_ssize_t n)
{
    ir_graph *g = n == 5 ? PyCapsule_GetPointer(a[0], "taper.graph") : NULL;
    if (!g || !PyList_Check(a[1]) || !PyCallable_Check(a[2]))
        return PyErr_Occurred() ? NULL
                                : PyErr_Format(PyExc_TypeError,
                                               "_aot_compile(graph, inputs, compile, min_cut, partition)");
    tp_err err = { 0 };
    tp_comp c = { .err = &err };
    Py_ssize_t nin = PyList_GET_SIZE(a[1]);
    tp_val *in = mem_zalloc(sizeof *in * (size_t)(nin + 1));
    bool ok = py_graph_inputs(PySequence_Fast_ITEMS(a[1]), nin, in) &&
              ((ir_check_inputs(g, in, (int)nin, &err) && backend_mark_inputs(g, in, &err)) ||
               py_raise(&err));
    run_program *p = NULL;
    if (ok) {
        user_backend *u = mem_zalloc(sizeof *u);
        u->inner = (backend){ "aot_autograd", "", user_compile, u };
        u->outer = (backend){ "aot_autograd",     "the autograd stage with the user's compilers",
                              aot_compile,        u,
                              .inner = &u->inner, .aot = PyObject_IsTrue(a[3]) ? AOT_min_cut : 0,
                              .free = user_drop };
        u->compile = Py_NewRef(a[2]);
        if (a[4] != Py_None) {
            u->cut.fn = user_cut;
            u->partition = Py_NewRef(a[4]);
            u->outer.cut = &u->cut;
        }
        if (!(p = aot_compile(&u->outer, &c, g, in)))
            py_raise(&err);
    }
    free(in);
    return p ? native_program_take(checked_new(p, g), g->output ? g->output->narg : 0) : NULL;
}

/* _aot_partition(capsule of a joint graph, primals, forward's results, min_cut) -> (forward capsule, backward capsule) */
static PyObject *partition(PyObject *m, PyObject *const *a, Py_ssize_t n)
{
    ir_graph *g = n == 4 ? PyCapsule_GetPointer(a[0], "taper.graph") : NULL;
    long nin = g ? PyLong_AsLong(a[1]) : 0, nfw = g ? PyLong_AsLong(a[2]) : 0;
    if (!g || PyErr_Occurred())
        return PyErr_Occurred()
                   ? NULL
                   : PyErr_Format(PyExc_TypeError, "_aot_partition(graph, primals, nfw, min_cut)");
    int nout = g->output ? g->output->narg : 0;
    if (nin < 0 || nin > (long)g->inputs.n || nfw < 0 || nfw >= nout)
        return PyErr_Format(
            PyExc_ValueError,
            "num_fwd_outputs must be from 0 to %d: the joint graph returns forward's results, "
            "then gradients",
            nout - 1);
    tp_err err = { 0 };
    tp_comp c = { .err = &err };
    aot_unit u = { .joint = ir_graph_copy(g), .nin = (int)nin, .ngrad = nout - (int)nfw };
    bool ok = aot_partition(&c, &u, (int)nfw, PyObject_IsTrue(a[3]) == 1);
    ir_share_env(u.fw, u.joint);
    ir_share_env(u.bw, u.joint);
    ir_graph_free(u.joint);
    PyObject *fw = ok ? graph_view(u.fw) : NULL, *bw = ok ? graph_view(u.bw) : NULL;
    return ok ? Py_BuildValue("(NN)", fw, bw) : py_raise(&err);
}

/* ---- recording again ---- */
/* The inputs of a graph, or those listed as (name, fake value), as values that are recorded; NULL with an exception. */
static PyObject *proxies(ir_rec *rec, const ir_graph *g, PyObject *list)
{
    ir_graph *to = rec->g;
    int nin = list ? (int)PyList_GET_SIZE(list) : (int)g->inputs.n;
    PyObject *args = PyTuple_New(nin);
    for (int i = 0; args && i < nin; i++) {
        const ir_node *p = list ? NULL : g->inputs.at[i];
        const char *name = p ? p->name : NULL;
        tp_val val = p ? p->val : vNone;
        PyObject *o = NULL, *v = NULL;
        if (!p && !PyArg_ParseTuple(PyList_GET_ITEM(list, i), "sO", &name, &o))
            Py_CLEAR(args);
        else if (o && py_is_tensor(o))
            val = (tp_val){ .kind = VAL_tensor, .t = py_tensor(o) };
        else if (o && !py_to_symint(o, &val.i))
            PyErr_Format(PyExc_TypeError, "input '%s' of the graph has no recorded value", name);
        else if (o)
            val.kind = VAL_int;
        if (!args || PyErr_Occurred())
            ;
        else if (val.kind == VAL_tensor) {
            tp_tensor *fake = tensor_fake_of(val.t);
            v = py_wrap(ir_proxy(rec, ir_add_placeholder(to, name, p ? p->target : name, fake)));
            tensor_unref(fake);
        } else {
            ir_add_placeholder_val(to, name, p ? p->target : name, val);
            v = py_int(val.i);
        }
        if (!v)
            Py_CLEAR(args);
        else
            PyTuple_SET_ITEM(args, i, v);
    }
    return args;
}

/* _graph_retrace(capsule, fn[, inputs]) -> capsule: what fn does with the graph's inputs (or with those listed), as a
 * graph. */
static PyObject *retrace(PyObject *m, PyObject *const *a, Py_ssize_t n)
{
    ir_graph *g = n == 2 || (n == 3 && PyList_Check(a[2])) ? PyCapsule_GetPointer(a[0], "taper.graph") : NULL;
    if (!g)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "_graph_retrace(graph, fn, inputs)");
    ir_graph *to = ir_graph_new(g->name);
    ir_rec rec = { .g = to };
    op_ctx *cx = CX, was = *cx;
    PyObject *args, *res = NULL, *cap = NULL;
    ir_share_env(to, g);
    to->grad_mode = g->grad_mode;
    cx->rec = &rec;
    cx->env = g->env;
    cx->grad_mode = false;
    args = proxies(&rec, g, n == 3 ? a[2] : NULL);
    res = args ? PyObject_Call(a[1], args, NULL) : NULL;
    if (res && !PyTuple_Check(res) && !PyList_Check(res))
        Py_SETREF(res, PyTuple_Pack(1, res));
    if (res) {
        int nout = (int)PySequence_Fast_GET_SIZE(res);
        tp_val *out = mem_zalloc(sizeof *out * (size_t)MAX(nout, 1));
        bool ok = true;
        for (int i = 0; i < nout && ok; i++) {
            PyObject *v = PySequence_Fast_GET_ITEM(res, i);
            symint s;
            if (py_is_tensor(v)) {
                ir_node *node = ir_node_of(&rec, py_tensor(v));
                ok = node != NULL;
                out[i] = (tp_val){ .kind = VAL_node, .node = node };
            } else if (v == Py_None)
                out[i] = vNone;
            else if (py_to_symint(v, &s))
                out[i] = vI(s);
            else
                ok = false;
        }
        if (ok)
            ir_set_output(to, out, nout);
        else
            PyErr_SetString(PyExc_TypeError, "a graph returns tensors, integers and None");
        free(out);
        if (ok) {
            cap = graph_view(to);
            to = NULL;
        }
    }
    *cx = was;
    ir_graph_free(to);
    Py_XDECREF(args);
    Py_XDECREF(res);
    return cap;
}

static PyMethodDef functions[] = {
    { "_aot_compile", (PyCFunction)(void (*)(void))compile, METH_FASTCALL,
      "forward and backward by Python compilers" },
    { "_aot_partition", (PyCFunction)(void (*)(void))partition, METH_FASTCALL, "a joint graph cut in two" },
    { "_graph_retrace", (PyCFunction)(void (*)(void))retrace, METH_FASTCALL, "a graph recorded again" },
    { NULL }
};
int py_init_aotuser(PyObject *m) { return PyModule_AddFunctions(m, functions); }
