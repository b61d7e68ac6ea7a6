/* bridge.c - compiled graphs that real PyTorch calls: its tensors come in by address, sizes and strides, without a copy and
 * without Python; results leave as tensors whose memory ends with PyTorch's. What the tuples of a graph mean: bridge_import.c. */
#include "base/pool.h"
#include "capture/capture.h"
#include "compile/options.h"
#include "events/events.h"
#include "python/dlpack.h"
#include "sym/env.h"

static const dl_exchange
    *torch_api; /* NULL: PyTorch is older than the interface; tensors go through Python */
static PyObject *to_ours, *to_theirs,
    *alias_of,    /* functions of taper.torch, for what the interface does not do */
    *num_threads; /* torch.get_num_threads */

typedef struct bridge_program {
    run_program *p;
    ir_graph *g;    /* types of the inputs */
    PyObject *keep; /* callables of opaque nodes */
    int *root;      /* for each result: the value whose memory it may share, 0: an input's */
    int nin, nout;
    VEC(symint) guards; /* what compiling assumed of the symbols beyond what PyTorch declared */
} bridge_program;
enum { SYMBOLS = 64 };
typedef struct bound {
    sym_bind at[SYMBOLS];
    int n;
} bound;

static void program_free(PyObject *c)
{
    bridge_program *b = PyCapsule_GetPointer(c, "taper.bridge");
    run_program_free(b->p);
    ir_graph_free(b->g);
    Py_DECREF(b->keep);
    free(b->root);
    vec_free(&b->guards);
    free(b);
}

static bool strides_fit(const tp_tensor *type, const dl_tensor *d)
{
    for (int i = 0; i < type->ndim; i++)
        if (!sym_is_expr(type->stride[i]) && d->shape[i] > 1 && d->strides[i] != type->stride[i])
            return false;
    return true;
}

/* Does it fit the type the program was compiled for? Sizes of symbols are looked at by the program; what has other strides or
 * another dtype is copied. */
static bool fits(const bridge_program *b, int i, const tp_tensor *type, const dl_tensor *d, tp_err *err)
{
    bool ok = d->ndim == type->ndim && d->device.type == DL_cpu;
    for (int k = 0; ok && k < d->ndim; k++)
        ok = sym_is_expr(type->size[k]) || type->size[k] == d->shape[k];
    return ok || err_set(err, ERR_runtime,
                         "input %d of a compiled graph is not of the type it was compiled for", i);
}

static void leave(void *ctx, void *data) {} /* the memory stays PyTorch's */

static bool take_tensor(const bridge_program *b, int i, PyObject *o, tp_val *out, tp_err *err)
{
    const tp_tensor *type = ir_type(b->g->inputs.at[i]);
    dl_tensor d;
    if (o == Py_None && type && type->ndim == 1 && !type->size[0]) { /* a token: it only orders effects */
        tp_tensor *t = tensor_new_strided((dtype)type->dt, 1, type->size, type->stride, DEVICE_CPU, err);
        *out = vT(t);
        return t != NULL;
    }
    if (!torch_api) {
        PyObject *t = PyObject_CallOneArg(to_ours, o);
        if (!t || !py_is_tensor(t)) {
            Py_XDECREF(t);
            return err_set(err, ERR_python, "an input could not be shared");
        }
        *out = vT(tensor_ref(py_tensor(t)));
        Py_DECREF(t);
        dl_describe(&d, out->t);
    } else {
        if (torch_api->look(o, &d) < 0)
            return err_set(err, ERR_python, "an input could not be read");
        int dt = dl_dtype(&d);
        int64_t bytes;
        if (dt == DT_none || d.ndim > TP_MAX_DIMS)
            return err_set(err, ERR_runtime, "input %d of a compiled graph has a type that is not supported",
                           i);
        if (!shape_storage_bytes((dtype)dt, d.ndim, d.shape, d.strides, 0, &bytes, err))
            return false;
        tp_storage *s = storage_wrap((char *)d.data + d.byte_offset, bytes, leave, NULL);
        *out = vT(tensor_on(s, (dtype)dt, d.ndim, d.shape, d.strides, 0));
        storage_unref(s);
    }
    if (!type || !fits(b, i, type, &d, err))
        return type ? false : err_set(err, ERR_runtime, "input %d of a compiled graph is a tensor", i);
    if (out->t->dt != type->dt || !strides_fit(type, &d)) { /* PyTorch's fake of it promised something else */
        tp_tensor *c = tensor_new_strided((dtype)type->dt, type->ndim, out->t->size, type->stride, DEVICE_CPU,
                                          err);
        if (!c || !tensor_copy(c, out->t, err)) {
            tensor_unref(c);
            return false;
        }
        tensor_unref(out->t);
        out->t = c;
    }
    return true;
}

static void bind_one(void *arg, symint symbol, int64_t value)
{
    bound *l = arg;
    if (l->n < SYMBOLS)
        l->n = ir_bind_add(l->at, l->n, symbol, value);
}

/* What the symbols are in this call. False: what compiling assumed does not hold. */
static bool bind_all(const bridge_program *b, const tp_val *in, bound *l)
{
    int64_t yes;
    for (int pass = 0; pass < IR_BIND_PASSES; pass++)
        for (int i = 0; i < b->nin; i++)
            ir_bind(&b->g->inputs.at[i]->val, &in[i], pass, bind_one, l);
    for (size_t i = 0; i < b->guards.n; i++)
        if (!sym_eval(b->guards.at[i], l->at, l->n, &yes) || !yes)
            return false;
    return true;
}

/* t, or a copy of it where it shares memory that PyTorch takes for its own: with an input, or with a result before. Takes t. */
static tp_tensor *apart(const bridge_program *b, int k, tp_tensor *t, const tp_val *in, tp_storage **given)
{
    bool shares = false;
    for (int i = 0; i < b->nin && b->root[k]; i++)
        shares |= in[i].kind == VAL_tensor && in[i].t->storage == t->storage;
    for (int i = 0; i < k; i++)
        shares |= given[i] == t->storage && b->root[i] != b->root[k];
    if (!shares)
        return t;
    tp_err err = { 0 };
    tp_tensor *c = tensor_new_strided((dtype)t->dt, t->ndim, t->size, t->stride, DEVICE_CPU, &err);
    if (!c || !tensor_copy(c, t, &err)) {
        tensor_unref(c);
        c = NULL;
        py_raise(&err);
    }
    tensor_unref(t);
    return c;
}

/* Result k as PyTorch's tensor; takes v. A result that may share memory with an input, and does, is a view of that input. */
static PyObject *give(const bridge_program *b, int k, tp_val *v, const tp_val *in, const bound *l,
                      PyObject *args, tp_storage **given)
{
    int64_t n;
    if (v->kind == VAL_int && sym_is_expr(v->i) && sym_eval(v->i, l->at, l->n, &n))
        return PyLong_FromLongLong(n);
    if (v->kind != VAL_tensor)
        return py_val(v);
    tp_tensor *t = apart(b, k, v->t, in, given);
    v->kind = VAL_none;
    if (!t)
        return NULL;
    given[k] = t->storage;
    for (int i = 0; i < b->nin; i++)
        if (in[i].kind == VAL_tensor && in[i].t->storage == t->storage) {
            PyObject *size = py_size(t->ndim, t->size), *stride = py_size(t->ndim, t->stride), *r = NULL;
            if (size && stride)
                r = PyObject_CallFunction(alias_of, "OOOL", PyList_GET_ITEM(args, i), size, stride,
                                          (long long)t->offset);
            Py_XDECREF(size);
            Py_XDECREF(stride);
            tensor_unref(t);
            return r;
        }
    if (torch_api) {
        void *o = NULL;
        return torch_api->to_object(dl_export(t), &o) < 0 ? NULL : o;
    }
    PyObject *ours = py_wrap(t), *r = ours ? PyObject_CallOneArg(to_theirs, ours) : NULL;
    Py_XDECREF(ours);
    return r;
}

/* As many threads as PyTorch may use now. */
static bool follow_threads(void)
{
    PyObject *n = PyObject_CallNoArgs(num_threads);
    long now = n ? PyLong_AsLong(n) : -1;
    Py_XDECREF(n);
    if (now < 0 && PyErr_Occurred())
        return false;
    if (now != pool_threads())
        pool_set_threads((int)MIN(now, POOL_MAX));
    return true;
}

static PyObject *run(PyObject *c, PyObject *args)
{
    bridge_program *b = PyCapsule_GetPointer(c, "taper.bridge");
    if (!b || !PyList_CheckExact(args) || PyList_GET_SIZE(args) != b->nin)
        return PyErr_Format(PyExc_TypeError, "a compiled graph takes a list of its %d inputs",
                            b ? b->nin : 0);
    if (!follow_threads())
        return NULL;
    tp_val small[64],
        *in = b->nin + b->nout <= (int)COUNT(small) ? memset(small, 0, sizeof small)
                                                    : mem_zalloc(sizeof *in * (size_t)(b->nin + b->nout)),
        *out = in + b->nin;
    tp_err err = { 0 };
    PyObject *res = NULL;
    op_ctx cx = *CX;
    cx.grad_mode = false;
    bool ok = true;
    for (int i = 0; ok && i < b->nin; i++) {
        PyObject *o = PyList_GET_ITEM(args, i);
        if (PyLong_Check(o))
            in[i] = vI(PyLong_AsLongLong(o));
        else
            ok = take_tensor(b, i, o, &in[i], &err);
    }
    bound l = { .n = 0 };
    if (ok && b->g->env && !bind_all(b, in, &l))
        res = Py_NewRef(Py_None); /* other sizes: the glue compiles for them */
    else if (ok && run_program_call(b->p, &cx, in, b->nin, out, b->nout, &err)) {
        res = PyTuple_New(b->nout);
        tp_storage *few[64] = { 0 },
                   **given = b->nout <= (int)COUNT(few) ? few : mem_zalloc(sizeof *given * (size_t)b->nout);
        for (int i = 0; i < b->nout; i++) {
            PyObject *r = res ? give(b, i, &out[i], in, &l, args, given) : NULL;
            if (r)
                PyTuple_SET_ITEM(res, i, r);
            else
                Py_CLEAR(res);
            val_clear(&out[i]);
        }
        if (given != few)
            free(given);
    } else
        py_raise(&err);
    for (int i = 0; i < b->nin; i++)
        val_clear(&in[i]);
    if (in != small)
        free(in);
    return res;
}
static PyMethodDef run_def = { "compiled", run, METH_O, "runs a compiled graph on PyTorch's tensors" };

/* _bridge_program(graph, backend, (callables, roots), options) -> function of a list, which gives None where its sizes are not those that
 * compiling assumed */
static PyObject *program(PyObject *m, PyObject *args)
{
    PyObject *cap, *keep, *roots, *options, *c = NULL, *f = NULL;
    const char *name;
    tp_err err = { 0 };
    if (!PyArg_ParseTuple(args, "Os(OO!)O", &cap, &name, &keep, &PyList_Type, &roots, &options))
        return NULL;
    ir_graph *g = PyCapsule_GetPointer(cap, "taper.graph");
    if (g && PyList_GET_SIZE(roots) != g->output->narg)
        return PyErr_Format(PyExc_ValueError, "a root for each of %d results", g->output->narg);
    const backend *be = g ? backend_find(name, &err) : NULL;
    run_options o = options_default();
    if (!be || !cap_read_options(&o, options, &err))
        return py_raise(&err);
    ir_graph *copy = ir_graph_copy(g);
    tp_val *example = mem_zalloc(sizeof *example *
                                 (copy->inputs.n + 1)); /* types: PyTorch compiles without data */
    for (size_t i = 0; i < copy->inputs.n; i++)
        example[i] = copy->inputs.at[i]->val;
    run_program *p = cap_compile_native(be, &o, copy, example, &err);
    free(example);
    if (!p) {
        ir_graph_free(copy);
        return py_raise(&err);
    }
    bridge_program *b = mem_zalloc(sizeof *b);
    *b = (bridge_program){ p, copy, Py_NewRef(keep), NULL, (int)g->inputs.n, g->output->narg };
    b->root = mem_zalloc(sizeof *b->root * (size_t)MAX(b->nout, 1));
    for (int i = 0; i < b->nout; i++)
        b->root[i] = (int)PyLong_AsLong(PyList_GET_ITEM(roots, i));
    int nguard = 0;
    const sym_assumed *guard = copy->env ? sym_env_guards(copy->env, &nguard) : NULL;
    for (int i = 0; i < nguard; i++)
        vec_push(&b->guards, guard[i].cond);
    c = PyCapsule_New(b, "taper.bridge", program_free);
    f = c ? PyCFunction_New(&run_def, c) : NULL;
    Py_XDECREF(c);
    return f;
}

/* _bridge_init(torch.Tensor, to_ours, to_theirs, alias_of, num_threads) */
static PyObject *init(PyObject *m, PyObject *args)
{
    PyObject *type;
    if (!PyArg_ParseTuple(args, "OOOOO", &type, &to_ours, &to_theirs, &alias_of, &num_threads))
        return NULL;
    Py_INCREF(to_ours), Py_INCREF(to_theirs), Py_INCREF(alias_of), Py_INCREF(num_threads); /* for good */
    PyObject *cap = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    const dl_exchange *x = cap ? PyCapsule_GetPointer(cap, "dlpack_exchange_api") : NULL;
    PyErr_Clear();
    while (x && x->version.major != 1)
        x = x->older;
    torch_api = x && x->look ? x : NULL;
    Py_XDECREF(cap);
    return PyBool_FromLong(torch_api != NULL);
}

/* One line of the ledger to the log. */
static PyObject *say(PyObject *m, PyObject *text)
{
    const char *s = PyUnicode_AsUTF8(text);
    if (s && ev_log_on(EVC_aot, EV_INFO))
        ev_log(EVC_aot, EV_INFO, NULL, "%s", s);
    return s ? Py_NewRef(Py_None) : NULL;
}

static PyObject *has_row(PyObject *m, PyObject *name)
{
    Py_ssize_t n;
    const char *s = PyUnicode_AsUTF8AndSize(name, &n);
    op_id op;
    op_variant v;
    return s ? PyBool_FromLong(op_find(s, (size_t)n, &op, &v)) : NULL;
}

static PyMethodDef functions[] = {
    { "_bridge_init", init, METH_VARARGS, "how PyTorch's tensors are reached" },
    { "_bridge_program", program, METH_VARARGS, "a graph compiled for PyTorch" },
    { "_bridge_log", say, METH_O, "a line to the log" },
    { "_has_row", has_row, METH_O, "is there an operator of this name?" },
    { NULL }
};
int py_init_bridge(PyObject *m) { return PyModule_AddFunctions(m, functions); }
