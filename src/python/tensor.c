/* tensor.c - the Tensor type: life cycle, properties, operators. */
#include "python/override.h"
#include "sym/env.h"

/* ---- life cycle ---- */
static void hold_sizes(PyTensor *o)
{
    const tp_tensor *t = o->t;
    for (int d = 0; d < 2 * t->ndim && !o->env; d++) {
        symint v = d < t->ndim ? t->size[d] : t->stride[d - t->ndim];
        if (sym_is_expr(v))
            sym_env_ref(o->env = sym_env_of(v));
    }
}

PyObject *py_wrap_as(PyTypeObject *type, tp_tensor *t)
{
    PyTensor *o = (PyTensor *)type->tp_alloc(type, 0);
    if (!o) {
        tensor_unref(t);
        return NULL;
    }
    o->t = t;
    t->py = o;
    if (TP_UNLIKELY(tensor_is_fake(t)))
        hold_sizes(o);
    return (PyObject *)o;
}

/* An object whose last Python reference goes while C still holds its tensor (the tape, a view) may have something to
 * lose: attributes, its class, weak references. Then the two change roles: the tensor owns the object until Python asks
 * for it again or the tensor goes, too. */
static bool would_be_missed(PyObject *o)
{
    const PyTensor *self = (PyTensor *)o;
    const tp_tensor *t = self->t;
    return t && __atomic_load_n(&t->refs, __ATOMIC_RELAXED) > 1 &&
           (!tensor_is_fake(t) || tensor_is_sparse(t)) &&
           ((self->dict && PyDict_GET_SIZE(self->dict)) || self->weakrefs || Py_TYPE(o) != &PyTensor_Type);
}

static void tensor_finalize(PyObject *o)
{
    tp_tensor *t = ((PyTensor *)o)->t;
    if (!would_be_missed(o) || (t->flags & TF_owns_py))
        return;
    t->flags |= TF_owns_py;
    Py_INCREF(o);
    tensor_unref(t);
}

static void give_up(void *py)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE gil = PyGILState_Ensure();
    gc_not_finalized(py);
    Py_DECREF((PyObject *)py);
    PyGILState_Release(gil);
}

PyObject *py_wrap(tp_tensor *t)
{
    if (t->py &&
        (t->flags & TF_owns_py)) { /* kept for this moment: takes the tensor's count, gives its own */
        t->flags &= (uint8_t)~TF_owns_py;
        gc_not_finalized(t->py);
        return t->py;
    }
    if (t->py) { /* still alive: the same object */
        PyObject *o = Py_NewRef((PyObject *)t->py);
        tensor_unref(t);
        return o;
    }
    return py_wrap_as(&PyTensor_Type, t);
}

static void tensor_dealloc(PyObject *o)
{
    PyTensor *self = (PyTensor *)o;
    if (TP_UNLIKELY(self->dict || self->weakrefs) && would_be_missed(o) &&
        PyObject_CallFinalizerFromDealloc(o) < 0)
        return;
    PyObject_GC_UnTrack(o);
    if (self->weakrefs)
        PyObject_ClearWeakRefs(o);
    Py_CLEAR(self->dict);
    if (self->t) {
        self->t->py = NULL;
        tensor_unref(self->t);
    }
    if (TP_UNLIKELY(self->env != NULL))
        sym_env_unref(self->env);
    Py_TYPE(o)->tp_free(o);
}

static int tensor_traverse(PyObject *o, visitproc visit, void *arg)
{
    if (!would_be_missed(o)) /* otherwise C holds what the attributes hold: no garbage */
        Py_VISIT(((PyTensor *)o)->dict);
    return 0;
}

static int tensor_clear(PyObject *o)
{
    Py_CLEAR(((PyTensor *)o)->dict);
    return 0;
}

py_capture py_asks;
PyObject *py_fake_error;

PyObject *py_tensor_list(tp_tensor *const *ts, int n)
{
    PyObject *l = PyList_New(n);
    for (int i = 0; l && i < n; i++)
        PyList_SET_ITEM(l, i, ts[i] ? py_wrap(tensor_ref(ts[i])) : Py_NewRef(Py_None));
    return l;
}

PyObject *py_from_val(const tp_val *v)
{
    PyObject *l;
    switch (v->kind) {
    case VAL_tensor: return py_wrap(tensor_ref(v->t));
    case VAL_tensors: return py_tensor_list(v->ts, v->n);
    case VAL_int: return py_int(v->i);
    case VAL_float: return PyFloat_FromDouble(v->f);
    case VAL_complex: return PyComplex_FromDoubles(v->floats[0], v->floats[1]);
    case VAL_bool: return PyBool_FromLong(v->b);
    case VAL_str: return PyUnicode_FromString(v->s);
    case VAL_dtype: return Py_NewRef(py_dtype((dtype)v->i));
    case VAL_device: return py_device(v->dev);
    case VAL_memfmt: return Py_NewRef(py_memfmt((memfmt)v->i));
    case VAL_ints:
    case VAL_floats:
    case VAL_bools:
        l = PyList_New(v->n);
        for (int i = 0; l && i < v->n; i++)
            PyList_SET_ITEM(l, i,
                            v->kind == VAL_ints     ? py_int(v->ints[i])
                            : v->kind == VAL_floats ? PyFloat_FromDouble(v->floats[i])
                                                    : PyBool_FromLong(v->bools[i]));
        return l;
    default: Py_RETURN_NONE;
    }
}

PyObject *py_val(tp_val *v)
{
    PyObject *r = NULL;
    switch (v->kind) {
    case VAL_none: Py_RETURN_NONE;
    case VAL_tensor: r = py_wrap(v->t); break;
    case VAL_int: r = py_int(v->i); break;
    case VAL_float: r = PyFloat_FromDouble(v->f); break;
    case VAL_complex:
        r = PyComplex_FromDoubles(v->floats[0], v->floats[1]);
        free((void *)v->floats);
        break;
    case VAL_bool: r = PyBool_FromLong(v->b); break;
    case VAL_dtype: r = Py_NewRef(py_dtype((dtype)v->i)); break;
    case VAL_tensors:
        r = PyTuple_New(v->n);
        for (int i = 0; i < v->n; i++) {
            PyObject *t = !r ? NULL : v->ts[i] ? py_wrap(v->ts[i]) : Py_NewRef(Py_None);
            if (r && t)
                PyTuple_SET_ITEM(r, i, t);
            else
                Py_CLEAR(r);
        }
        free(v->ts);
        break;
    case VAL_ints:
        r = PyList_New(v->n);
        for (int i = 0; r && i < v->n; i++)
            PyList_SET_ITEM(r, i, py_int(v->ints[i]));
        free((void *)v->ints);
        break;
    default: PyErr_SetString(PyExc_SystemError, "a value of this kind has no Python form");
    }
    v->kind = VAL_none;
    return r;
}

PyObject *py_val_tuple(tp_val *v, int n)
{
    PyObject *r = PyTuple_New(n);
    for (int i = 0; i < n; i++) {
        PyObject *o = py_val(&v[i]);
        if (r && o)
            PyTuple_SET_ITEM(r, i, o);
        else {
            Py_XDECREF(o);
            Py_CLEAR(r);
        }
    }
    return r;
}

bool py_graph_inputs(PyObject *const *args, Py_ssize_t n, tp_val *in)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        symint v;
        if (py_is_tensor(args[i]))
            in[i] = vT(py_tensor(args[i]));
        else if (py_to_symint(args[i], &v))
            in[i] = vI(v);
        else {
            PyErr_Format(PyExc_TypeError, "graph input %zd must be a Tensor or an int, not %s", i,
                         Py_TYPE(args[i])->tp_name);
            return false;
        }
    }
    return true;
}

/* ---- errors ---- */
/* Signal handlers run on the main thread alone, in whatever Python code is under way: also in what we call ourselves and
 * whose failures mean nothing. */
__thread PyObject *py_put_off_exc;
void py_put_off(void)
{
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    PyErr_NormalizeException(&t, &v, &tb);
    if (v && tb)
        PyException_SetTraceback(v, tb);
    Py_XDECREF(t);
    Py_XDECREF(tb);
    Py_XSETREF(py_put_off_exc, v);
}
bool py_raise_put_off(void)
{
    PyObject *v = py_put_off_exc;
    py_put_off_exc = NULL;
    if (v)
        PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(v)), Py_NewRef(v), PyException_GetTraceback(v));
    Py_XDECREF(v);
    return v != NULL;
}
static int raise_now(void *unused) { return py_raise_put_off() ? -1 : 0; } /* where Python code goes on */

/* The code of a callable that is written in Python, borrowed, or NULL. */
static PyObject *code_of(PyObject *f)
{
    static PyObject *call;
    if (!call)
        call = PyUnicode_InternFromString("__call__");
    if (PyMethod_Check(f))
        f = PyMethod_GET_FUNCTION(f);
    else if (!PyFunction_Check(f))
        f = call ? _PyType_Lookup(Py_TYPE(f), call) : NULL;
    return f && PyFunction_Check(f) ? PyFunction_GET_CODE(f) : NULL;
}

enum { SIGNALS = 64 };
/* Does a traceback run through the handler of a signal? */
static bool through_handler(PyObject *tb)
{
    static PyObject *ask;
    PyObject *m = ask ? NULL : PyImport_ImportModule("_signal");
    if (m)
        ask = PyObject_GetAttrString(m, "getsignal");
    Py_XDECREF(m);
    bool yes = false;
    for (int i = 1; ask && i <= SIGNALS && !yes; i++) {
        PyObject *f = PyObject_CallFunction(ask, "i", i);
        PyObject *code = f && f != Py_None && !PyLong_Check(f) && !PyCFunction_Check(f) ? code_of(f) : NULL;
        for (PyTracebackObject *p = (PyTracebackObject *)tb; code && p && !yes; p = p->tb_next) {
            PyCodeObject *c = PyFrame_GetCode(p->tb_frame);
            yes = (PyObject *)c == code;
            Py_DECREF(c);
        }
        Py_XDECREF(f);
        PyErr_Clear();
    }
    return yes;
}

void py_forget(void)
{
    PyObject *t, *v, *tb;
    if (!PyErr_Occurred())
        return;
    PyErr_Fetch(&t, &v, &tb);
    bool exits = PyErr_GivenExceptionMatches(t, PyExc_SystemExit),
         later = exits || (tb && through_handler(tb));
    bool stop = PyErr_GivenExceptionMatches(t, PyExc_KeyboardInterrupt);
    PyErr_Restore(t, v, tb);
    if (later) {
        py_put_off();
        Py_AddPendingCall(raise_now, NULL);
        return;
    }
    PyErr_Clear();
    if (stop)
        PyErr_SetInterrupt();
}

_Thread_local unsigned long py_raised;
PyObject *py_raise(tp_err *e)
{
    py_raised++;
    if (PyErr_Occurred() || e->kind == ERR_none || e->kind == ERR_python) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_SystemError, "an operation failed without saying why");
        return NULL;
    }
    const char *cls = err_class(e->kind), *dot = strrchr(cls, '.');
    PyObject *type = NULL;
    if (dot) { /* a class of ours, imported by name */
        char mod[96];
        snprintf(mod, sizeof mod, "%.*s", (int)(dot - cls), cls);
        PyObject *m = PyImport_ImportModule(mod);
        if (m)
            type = PyObject_GetAttrString(m, dot + 1);
        Py_XDECREF(m);
        if (!type) {
            PyErr_Clear();
            type = Py_NewRef(PyExc_RuntimeError);
        }
    } else {
        PyObject *b = PyEval_GetBuiltins();
        type = Py_XNewRef(PyDict_GetItemString(b, cls));
        if (!type)
            type = Py_NewRef(PyExc_RuntimeError);
    }
    if (e->notes[0] && e->line) {
        strbuf notes = { 0 };
        for (const char *s = e->notes; *s; s++)
            strbuf_add(&notes, *s == '\n' ? ", " : (char[2]){ *s });
        PyErr_Format(type, "%s\n  (%s, %s:%d)", e->msg, strbuf_str(&notes), e->file, e->line);
        strbuf_free(&notes);
    } else
        PyErr_SetString(type, e->msg);
    Py_DECREF(type);
    if (e->kind == ERR_runtime || e->kind == ERR_index || e->kind == ERR_value || e->kind == ERR_type)
        py_add_hints();
    if (py_asks.note_saved) /* not while the module is being made */
        py_asks.note_saved();
    return NULL;
}

/* ---- properties ---- */
static PyObject *get_shape(PyObject *o, void *x) { return py_size(py_tensor(o)->ndim, py_tensor(o)->size); }
static PyObject *get_dtype(PyObject *o, void *x) { return Py_NewRef(py_dtype(tensor_dtype(py_tensor(o)))); }
static PyObject *get_is_cuda(PyObject *o, void *x)
{
    return PyBool_FromLong(tensor_device(py_tensor(o)).kind == DEV_cuda);
}
static PyObject *get_device(PyObject *o, void *x) { return py_device(tensor_device(py_tensor(o))); }
static PyObject *get_ndim(PyObject *o, void *x) { return PyLong_FromLong(py_tensor(o)->ndim); }
static PyObject *get_itemsize(PyObject *o, void *x)
{
    return PyLong_FromSize_t(dtype_size(tensor_dtype(py_tensor(o))));
}
static PyObject *get_layout(PyObject *o, void *x) { return PyObject_GetAttrString(py_module, "strided"); }
static PyObject *get_false(PyObject *o, void *x) { Py_RETURN_FALSE; } /* sparse tensors say it themselves */
static PyObject *get_nbytes(PyObject *o, void *x)
{
    tp_tensor *t = py_tensor(o);
    return py_int(sym_mul(t->numel, (symint)dtype_size((dtype)t->dt)));
}
static PyObject *get_version(PyObject *o, void *x)
{
    if (py_tensor(o)->flags & TF_inference) {
        PyErr_SetString(PyExc_RuntimeError, "Inference tensors do not track version counter.");
        return NULL;
    }
    return PyLong_FromUnsignedLong(tensor_version(py_tensor(o)));
}

static PyGetSetDef getset[] = { { "shape", get_shape, NULL, "the sizes", NULL },
                                { "dtype", get_dtype, NULL, "the element type", NULL },
                                { "device", get_device, NULL, "where it lives", NULL },
                                { "ndim", get_ndim, NULL, "number of dimensions", NULL },
                                { "itemsize", get_itemsize, NULL, "bytes per element", NULL },
                                { "nbytes", get_nbytes, NULL, "bytes of all elements", NULL },
                                { "layout", get_layout, NULL, "always taper.strided", NULL },
                                { "is_cuda", get_is_cuda, NULL, NULL, NULL },
                                { "is_sparse", get_false, NULL, NULL, NULL },
                                { "is_quantized", get_false, NULL, NULL, NULL },
                                { "is_mkldnn", get_false, NULL, NULL, NULL },
                                { "is_nested", get_false, NULL, NULL, NULL },
                                { "_version", get_version, NULL, "counts in-place writes", NULL },
                                { "__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL },
                                { NULL } };

/* ---- plain methods ---- */
static PyObject *m_dim(PyObject *o, PyObject *x) { return PyLong_FromLong(py_tensor(o)->ndim); }
static PyObject *m_numel(PyObject *o, PyObject *x) { return py_int(py_tensor(o)->numel); }
static PyObject *m_element_size(PyObject *o, PyObject *x) { return get_itemsize(o, NULL); }
static PyObject *m_storage_offset(PyObject *o, PyObject *x) { return py_int(py_tensor(o)->offset); }
static PyObject *m_is_fp(PyObject *o, PyObject *x)
{
    return PyBool_FromLong(dtype_category(tensor_dtype(py_tensor(o))) == 2);
}

static PyObject *one_of(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kw, bool strides)
{
    tp_tensor *t = py_tensor(o);
    const symint *v = strides ? t->stride : t->size;
    if (n + (kw ? PyTuple_GET_SIZE(kw) : 0) == 0 || args[0] == Py_None) {
        if (!strides)
            return py_size(t->ndim, v);
        PyObject *r = PyTuple_New(t->ndim);
        for (int i = 0; r && i < t->ndim; i++)
            PyTuple_SET_ITEM(r, i, py_int(v[i]));
        return r;
    }
    symint d;
    int dim;
    tp_err err = { 0 };
    PyObject *fixed = py_is_symint(args[0]) ? PyNumber_Index(args[0])
                                            : Py_NewRef(args[0]); /* which one is a guard */
    if (!fixed)
        return NULL;
    bool number = py_to_symint(fixed, &d);
    Py_DECREF(fixed);
    if (!number)
        return PyErr_Format(PyExc_TypeError, "%s(): argument 'dim' (position 1) must be int, not %s",
                            strides ? "stride" : "size", Py_TYPE(args[0])->tp_name);
    if (t->ndim == 0) {
        err_set(&err, ERR_index, "Dimension specified as %lld but tensor has no dimensions", (long long)d);
        return py_raise(&err);
    }
    if (!dim_wrap(d, t->ndim, &dim, &err))
        return py_raise(&err);
    return py_int(v[dim]);
}
static PyObject *m_size(PyObject *o, PyObject *const *a, Py_ssize_t n, PyObject *kw)
{
    return one_of(o, a, n, kw, false);
}
static PyObject *m_stride(PyObject *o, PyObject *const *a, Py_ssize_t n, PyObject *kw)
{
    return one_of(o, a, n, kw, true);
}

static PyObject *m_is_contiguous(PyObject *o, PyObject *const *a, Py_ssize_t n, PyObject *kw)
{
    memfmt f = MF_contiguous;
    if (n + (kw ? PyTuple_GET_SIZE(kw) : 0) > 0 && Py_TYPE(a[0]) == &PyMemfmt_Type)
        f = (memfmt)((PyEnumObj *)a[0])->value;
    return PyBool_FromLong(tensor_is_contiguous_as(py_tensor(o), f));
}

static PyObject *m_data_ptr(PyObject *o, PyObject *x)
{
    tp_tensor *t = py_tensor(o);
    if (tensor_is_fake(t)) {
        PyErr_SetString(py_fake_error,
                        "a fake tensor has no memory: data_ptr() is not available while tracing");
        return NULL;
    }
    return PyLong_FromVoidPtr(t->numel ? tensor_data(t) : NULL);
}

static PyObject *elem_py(dtype dt, const void *p)
{
    if (dt == DT_bool)
        return PyBool_FromLong(elem_get_i(dt, p) != 0);
    if (dtype_is_complex(dt)) {
        double c[2];
        elem_get_c(dt, p, c);
        return PyComplex_FromDoubles(c[0], c[1]);
    }
    if (dt == DT_u64)
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)p);
    return dtype_is_exact(dt) ? PyLong_FromLongLong(elem_get_i(dt, p))
                              : PyFloat_FromDouble(elem_get_f(dt, p));
}

static PyObject *m_item(PyObject *o, PyObject *x)
{
    tp_tensor *t = py_tensor(o);
    if (tensor_is_fake(t)) {
        PyErr_SetString(py_fake_error, "Tensor.item() needs the data of a fake tensor");
        return NULL;
    }
    if (t->numel != 1) {
        PyErr_Format(PyExc_RuntimeError, "a Tensor with %lld elements cannot be converted to Scalar",
                     (long long)t->numel);
        py_add_hints();
        return NULL;
    }
    uint64_t room;
    tp_err err = { 0 };
    const void *at = tensor_peek(t, &room, &err);
    return at ? elem_py(tensor_dtype(t), at) : py_raise(&err);
}

static PyObject *to_list(const tp_tensor *t, int d, const char *p)
{
    if (d == t->ndim)
        return elem_py((dtype)t->dt, p);
    PyObject *l = PyList_New(t->size[d]);
    for (int64_t i = 0; l && i < t->size[d]; i++) {
        PyObject *e = to_list(t, d + 1, p + i * t->stride[d] * (int64_t)dtype_size((dtype)t->dt));
        if (!e)
            Py_CLEAR(l);
        else
            PyList_SET_ITEM(l, i, e);
    }
    return l;
}

static PyObject *m_tolist(PyObject *o, PyObject *x)
{
    tp_tensor *t = py_tensor(o);
    if (tensor_is_fake(t)) {
        PyErr_SetString(py_fake_error, "Tensor.tolist() needs the data of a fake tensor");
        return NULL;
    }
    tp_err err = { 0 };
    tp_tensor *here = tensor_to(t, DEVICE_CPU, &err);
    if (!here)
        return py_raise(&err);
    PyObject *l = to_list(here, 0, here->numel ? tensor_host(here) : NULL);
    tensor_unref(here);
    return l;
}

static PyMethodDef methods[] = {
    { "dim", m_dim, METH_NOARGS, "dim() -> int" },
    { "ndimension", m_dim, METH_NOARGS, "ndimension() -> int" },
    { "numel", m_numel, METH_NOARGS, "numel() -> int" },
    { "nelement", m_numel, METH_NOARGS, "nelement() -> int" },
    { "element_size", m_element_size, METH_NOARGS, "element_size() -> int" },
    { "storage_offset", m_storage_offset, METH_NOARGS, "storage_offset() -> int" },
    { "is_floating_point", m_is_fp, METH_NOARGS, "is_floating_point() -> bool" },
    { "size", (PyCFunction)(void (*)(void))m_size, METH_FASTCALL | METH_KEYWORDS,
      "size(dim=None) -> Size or int" },
    { "stride", (PyCFunction)(void (*)(void))m_stride, METH_FASTCALL | METH_KEYWORDS,
      "stride(dim=None) -> tuple or int" },
    { "is_contiguous", (PyCFunction)(void (*)(void))m_is_contiguous, METH_FASTCALL | METH_KEYWORDS,
      "is_contiguous(memory_format=taper.contiguous_format) -> bool" },
    { "data_ptr", m_data_ptr, METH_NOARGS, "data_ptr() -> int" },
    { "item", m_item, METH_NOARGS, "item() -> number" },
    { "tolist", m_tolist, METH_NOARGS, "tolist() -> nested list" },
    { NULL }
};

/* ---- operators: straight to the named rows ---- */
static PyObject *binary(const op_name **cache, const char *name, PyObject *a, PyObject *b)
{
    if (TP_UNLIKELY(!*cache) && !(*cache = py_op_name(name, "")) && !(*cache = py_op_name(name, "Tensor")))
        return PyErr_Format(PyExc_NotImplementedError, "taper has no operator '%s' yet", name);
    if (!py_is_tensor(b) && !PyLong_Check(b) && !PyFloat_Check(b) && !py_is_symint(b) &&
        !PyComplex_Check(b) &&
        !(Py_TYPE(b)->tp_as_number &&
          (Py_TYPE(b)->tp_as_number->nb_float || Py_TYPE(b)->tp_as_number->nb_index)) &&
        !py_type_overrides(Py_TYPE(b)))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *args[2] = { a, b }, *r;
    if (TP_UNLIKELY(py_overrides)) { /* x + y is known as the method */
        const op_name *m = py_op_name(name, "Tensor");
        if (m && m->obj && py_taken(m->obj, args, 2, NULL, &r))
            return r;
    }
    return py_op_call(*cache, false, args, 2, NULL);
}
static bool is_array(PyObject *o)
{
    return !Py_IS_TYPE(o, &PyTensor_Type) && !PyFloat_CheckExact(o) && !PyLong_CheckExact(o) &&
           !strcmp(Py_TYPE(o)->tp_name, "numpy.ndarray");
}
/* Tensor op ndarray, on either side: both become tensors of the type that NumPy would choose (_tensor.py). New reference. */
static PyObject *with_array(PyObject *a, PyObject *b, PyObject *(*op)(PyObject *, PyObject *))
{
    PyObject *pair = PyObject_CallMethod(py_module, "_meet", "OO", a, b), *r = NULL;
    if (pair && PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2)
        r = op(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
    Py_XDECREF(pair);
    return r;
}
#define ARRAYS(op)                               \
    if (TP_UNLIKELY(is_array(a) || is_array(b))) \
    return with_array(a, b, op)
/* a op b with the tensor on either side; `rname` is used when only b is the tensor and order matters. */
#define NB(slot, name, rname)                       \
    static PyObject *slot(PyObject *a, PyObject *b) \
    {                                               \
        static const op_name *n, *r;                \
        ARRAYS(slot);                               \
        if (py_is_tensor(a))                        \
            return binary(&n, name, a, b);          \
        return binary(&r, rname, b, a);             \
    }
/* += of an array makes a new tensor, as in PyTorch: its type may be another. */
#define NB_INPLACE(slot, name)                      \
    static PyObject *slot(PyObject *a, PyObject *b) \
    {                                               \
        static const op_name *n;                    \
        if (TP_UNLIKELY(is_array(b)))               \
            Py_RETURN_NOTIMPLEMENTED;               \
        return binary(&n, name, a, b);              \
    }
NB(nb_add, "add", "add")
NB(nb_sub, "sub", "rsub")
NB(nb_mul, "mul", "mul")
/* The same with the operands in their order: number op tensor. */
static bool is_operand(PyObject *o)
{
    return py_is_tensor(o) || PyFloat_Check(o) || PyLong_Check(o) || py_is_symint(o) || PyComplex_Check(o) ||
           (Py_TYPE(o)->tp_as_number &&
            (Py_TYPE(o)->tp_as_number->nb_float || Py_TYPE(o)->tp_as_number->nb_index));
}
#define NB_ORDERED(slot, name)                      \
    static PyObject *slot(PyObject *a, PyObject *b) \
    {                                               \
        static const op_name *n;                    \
        ARRAYS(slot);                               \
        if (!is_operand(a))                         \
            Py_RETURN_NOTIMPLEMENTED;               \
        return binary(&n, name, a, b);              \
    }
static PyObject *nb_div(PyObject *a, PyObject *b)
{
    static const op_name *n, *rec, *mul;
    ARRAYS(nb_div);
    if (py_is_tensor(a))
        return binary(&n, "div", a, b);
    if (!is_operand(a))
        Py_RETURN_NOTIMPLEMENTED;
    if (!rec)
        rec = py_op_name("reciprocal", "");
    PyObject *r = py_op_call(rec, false, &b, 1, NULL), *q = r ? binary(&mul, "mul", r, a) : NULL;
    Py_XDECREF(r);
    return q;
}
NB_ORDERED(nb_floordiv, "floor_divide")
NB_ORDERED(nb_mod, "remainder")
NB(nb_and, "bitwise_and", "bitwise_and")
NB(nb_or, "bitwise_or", "bitwise_or")
NB(nb_xor, "bitwise_xor", "bitwise_xor")
NB_ORDERED(nb_lshift, "bitwise_left_shift")
NB_ORDERED(nb_rshift, "bitwise_right_shift")
static PyObject *nb_matmul(PyObject *a, PyObject *b)
{
    static const op_name *n;
    ARRAYS(nb_matmul);
    if (!py_is_tensor(a) || !py_is_tensor(b))
        Py_RETURN_NOTIMPLEMENTED;
    return binary(&n, "matmul", a, b);
}
NB_INPLACE(nb_iadd, "add_")
NB_INPLACE(nb_isub, "sub_")
NB_INPLACE(nb_imul, "mul_")
NB_INPLACE(nb_idiv, "div_")
NB_INPLACE(nb_ifloordiv, "floor_divide_")
NB_INPLACE(nb_imod, "remainder_")
NB_INPLACE(nb_iand, "bitwise_and_")
NB_INPLACE(nb_ior, "bitwise_or_")
NB_INPLACE(nb_ixor, "bitwise_xor_")
NB_INPLACE(nb_ilshift, "bitwise_left_shift_")
NB_INPLACE(nb_irshift, "bitwise_right_shift_")

static PyObject *pow_of(PyObject *a, PyObject *b) { return PyNumber_Power(a, b, Py_None); }
static PyObject *nb_pow(PyObject *a, PyObject *b, PyObject *mod)
{
    static const op_name *n;
    ARRAYS(pow_of);
    if (mod != Py_None)
        Py_RETURN_NOTIMPLEMENTED;
    if (!is_operand(a))
        Py_RETURN_NOTIMPLEMENTED;
    return binary(&n, "pow", a, b);
}
static PyObject *nb_ipow(PyObject *a, PyObject *b, PyObject *mod)
{
    static const op_name *n;
    if (is_array(b))
        Py_RETURN_NOTIMPLEMENTED;
    return binary(&n, "pow_", a, b);
}
#define UNARY(slot, name) \
    static PyObject *slot(PyObject *a) { return py_op(name, &a, 1); }
UNARY(nb_neg, "neg")
UNARY(nb_abs, "abs")
static PyObject *nb_invert(PyObject *a)
{
    if (!dtype_is_exact((dtype)py_tensor(a)->dt)) {
        PyErr_SetString(PyExc_TypeError,
                        "~ (operator.invert) is only implemented on integer and Boolean-type tensors");
        return NULL;
    }
    return py_op("bitwise_not", &a, 1);
}
static PyObject *nb_pos(PyObject *a) { return PyObject_CallMethod(a, "positive", NULL); }

static int nb_bool(PyObject *o)
{
    tp_tensor *t = py_tensor(o);
    if (tensor_is_fake(t)) {
        PyErr_SetString(py_fake_error, "the truth value of a fake tensor is not known: it depends on data");
        return -1;
    }
    if (t->numel != 1) {
        PyErr_SetString(PyExc_RuntimeError,
                        t->numel ? "Boolean value of Tensor with more than one value is ambiguous"
                                 : "Boolean value of Tensor with no values is ambiguous");
        py_add_hints();
        return -1;
    }
    uint64_t room;
    tp_err err = { 0 };
    const void *at = tensor_peek(t, &room, &err);
    if (!at) {
        py_raise(&err);
        return -1;
    }
    double c[2];
    if (dtype_is_exact((dtype)t->dt))
        return elem_get_i((dtype)t->dt, at) != 0;
    elem_get_c((dtype)t->dt, at, c);
    return c[0] != 0 || c[1] != 0;
}
static PyObject *as_number(PyObject *o, PyObject *(*conv)(PyObject *))
{
    if (!tensor_is_fake(py_tensor(o)) && py_tensor(o)->numel != 1) {
        PyErr_SetString(PyExc_ValueError, "only one element tensors can be converted to Python scalars");
        return NULL;
    }
    PyObject *v = PyObject_CallMethod(o, "item", NULL), *r = NULL;
    if (v && PyComplex_Check(v)) { /* one without an imaginary part is a real number */
        Py_complex z = PyComplex_AsCComplex(v);
        Py_DECREF(v);
        v = z.imag == 0
                ? PyFloat_FromDouble(z.real)
                : PyErr_Format(PyExc_RuntimeError, "value cannot be converted to type %s without overflow",
                               conv == PyNumber_Long ? "int64_t" : "double");
    }
    r = v ? conv(v) : NULL;
    Py_XDECREF(v);
    return r;
}
static PyObject *nb_int(PyObject *o) { return as_number(o, PyNumber_Long); }
static PyObject *nb_float(PyObject *o) { return as_number(o, PyNumber_Float); }
static PyObject *nb_index(PyObject *o)
{
    tp_tensor *t = py_tensor(o);
    if (!dtype_is_exact((dtype)t->dt) || t->numel != 1 || tensor_is_fake(t)) {
        PyErr_SetString(PyExc_TypeError,
                        "only integer tensors of a single element can be converted to an index");
        return NULL;
    }
    return as_number(o, PyNumber_Long);
}

static PyObject *compare(PyObject *a, PyObject *b, int op)
{
    static const char *const names[] = { "lt", "le", "eq", "ne", "gt", "ge" };
    static const op_name *cache[6];
    if (TP_UNLIKELY(is_array(b))) {
        PyObject *t = PyObject_CallMethod(py_module, "tensor", "O", b), *c = t ? compare(a, t, op) : NULL;
        Py_XDECREF(t);
        return c;
    }
    PyObject *r = binary(&cache[op], names[op], a, b);
    return r;
}
static Py_hash_t hash(PyObject *o) { return (Py_hash_t)((uintptr_t)o >> 4); }
static Py_ssize_t length(PyObject *o)
{
    tp_tensor *t = py_tensor(o);
    if (t->ndim == 0) {
        PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
        return -1;
    }
    if (sym_is_expr(t->size[0]))
        return (Py_ssize_t)sym_specialize(t->size[0]);
    return t->size[0];
}

static PyNumberMethods number = { .nb_add = nb_add,
                                  .nb_subtract = nb_sub,
                                  .nb_multiply = nb_mul,
                                  .nb_true_divide = nb_div,
                                  .nb_floor_divide = nb_floordiv,
                                  .nb_remainder = nb_mod,
                                  .nb_power = nb_pow,
                                  .nb_and = nb_and,
                                  .nb_or = nb_or,
                                  .nb_xor = nb_xor,
                                  .nb_lshift = nb_lshift,
                                  .nb_rshift = nb_rshift,
                                  .nb_matrix_multiply = nb_matmul,
                                  .nb_negative = nb_neg,
                                  .nb_positive = nb_pos,
                                  .nb_absolute = nb_abs,
                                  .nb_invert = nb_invert,
                                  .nb_bool = nb_bool,
                                  .nb_int = nb_int,
                                  .nb_float = nb_float,
                                  .nb_index = nb_index,
                                  .nb_inplace_add = nb_iadd,
                                  .nb_inplace_subtract = nb_isub,
                                  .nb_inplace_multiply = nb_imul,
                                  .nb_inplace_true_divide = nb_idiv,
                                  .nb_inplace_floor_divide = nb_ifloordiv,
                                  .nb_inplace_remainder = nb_imod,
                                  .nb_inplace_power = nb_ipow,
                                  .nb_inplace_and = nb_iand,
                                  .nb_inplace_or = nb_ior,
                                  .nb_inplace_xor = nb_ixor,
                                  .nb_inplace_lshift = nb_ilshift,
                                  .nb_inplace_rshift = nb_irshift };
static PyMappingMethods mapping = { .mp_length = length,
                                    .mp_subscript = py_tensor_getitem,
                                    .mp_ass_subscript = py_tensor_setitem };
static PySequenceMethods sequence = { .sq_contains = py_tensor_contains };
static PyBufferProcs buffer = { .bf_getbuffer = py_tensor_getbuffer,
                                .bf_releasebuffer = py_tensor_releasebuffer };

PyTypeObject PyTensor_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.Tensor",
    .tp_basicsize = sizeof(PyTensor),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = tensor_dealloc,
    .tp_traverse = tensor_traverse,
    .tp_clear = tensor_clear,
    .tp_finalize = tensor_finalize,
    .tp_dictoffset = offsetof(PyTensor, dict),
    .tp_weaklistoffset = offsetof(PyTensor, weakrefs),
    .tp_getset = getset,
    .tp_methods = methods,
    .tp_as_number = &number,
    .tp_as_mapping = &mapping,
    .tp_as_sequence = &sequence,
    .tp_as_buffer = &buffer,
    .tp_iter = py_tensor_iter,
    .tp_new = py_tensor_pynew,
    .tp_init = py_tensor_pyinit,
    .tp_repr = py_tensor_repr,
    .tp_richcompare = compare,
    .tp_hash = hash,
    .tp_doc = "A multi-dimensional array of one element type.\n\n>>> x = taper.tensor([[1.0, 2.0], [3.0, "
              "4.0]])\n>>> x.shape, x.dtype, x.device\n(taper.Size([2, 2]), taper.float32, "
              "device(type='cpu'))\n>>> x @ x + 1\ntensor([[ 8., 11.],\n        [16., 23.]])\n"
};

int py_tensor_add_methods(PyMethodDef *d)
{
    for (; d->ml_name; d++) {
        PyObject *m = PyDescr_NewMethod(&PyTensor_Type, d);
        if (!m || PyDict_SetItemString(PyTensor_Type.tp_dict, d->ml_name, m) < 0)
            return -1;
        Py_DECREF(m);
    }
    PyType_Modified(&PyTensor_Type);
    return 0;
}

int py_tensor_add_getset(PyGetSetDef *d)
{
    for (; d->name; d++) {
        PyObject *g = PyDescr_NewGetSet(&PyTensor_Type, d);
        if (!g || PyDict_SetItemString(PyTensor_Type.tp_dict, d->name, g) < 0)
            return -1;
        Py_DECREF(g);
    }
    PyType_Modified(&PyTensor_Type);
    return 0;
}

int py_init_tensor(PyObject *m)
{
    tensor_py_free = give_up;
    if (PyType_Ready(&PyTensor_Type) < 0)
        return -1;
    PyTensor_Type.tp_flags &= ~(unsigned long)Py_TPFLAGS_IMMUTABLETYPE; /* programs add methods to it */
    return PyModule_AddObjectRef(m, "Tensor", (PyObject *)&PyTensor_Type);
}
