/* storage.c - UntypedStorage: the bytes behind tensors as a Python object, one object per storage while it
 * lives, so that pickling and copying keep what is shared shared. */
#include "grad/tape.h"
#include "python/py.h"
#include "base/map.h"

typedef struct PyStorage {
    PyObject_HEAD tp_storage *s; /* one count */
} PyStorage;
static PyTypeObject PyStorage_Type;
static map alive; /* storage address -> PyStorage, borrowed */

static PyObject *storage_object(tp_storage *s) /* new reference */
{
    PyObject *o = map_geti(&alive, (uintptr_t)s);
    if (o)
        return Py_NewRef(o);
    PyStorage *p = PyObject_New(PyStorage, &PyStorage_Type);
    if (!p)
        return NULL;
    p->s = storage_ref(s);
    map_puti(&alive, (uintptr_t)s, p);
    return (PyObject *)p;
}
static void storage_dealloc(PyObject *o)
{
    tp_storage *s = ((PyStorage *)o)->s;
    uint64_t key = (uintptr_t)s;
    map_deln(&alive, &key, sizeof key);
    storage_unref(s);
    PyObject_Free(o);
}
static tp_storage *st(PyObject *o) { return ((PyStorage *)o)->s; }
static bool has_bytes(PyObject *o)
{
    if (!(st(o)->flags & ST_fake))
        return true;
    PyErr_SetString(PyExc_NotImplementedError, "the storage of a meta or fake tensor has no bytes");
    return false;
}

static PyObject *s_nbytes(PyObject *o, PyObject *x) { return py_int(st(o)->nbytes); }
static Py_ssize_t s_len(PyObject *o) { return sym_is_expr(st(o)->nbytes) ? 0 : (Py_ssize_t)st(o)->nbytes; }
static PyObject *s_data_ptr(PyObject *o, PyObject *x)
{
    return has_bytes(o) ? PyLong_FromVoidPtr(st(o)->data) : NULL;
}
static PyObject *s_item(PyObject *o, Py_ssize_t i)
{
    if (!has_bytes(o))
        return NULL;
    if (i < 0 || i >= st(o)->nbytes) {
        PyErr_SetString(PyExc_IndexError, "storage index out of range");
        return NULL;
    }
    return PyLong_FromLong(((uint8_t *)st(o)->data)[i]);
}
static PyObject *s_bytes(PyObject *o, PyObject *x)
{
    return has_bytes(o) ? PyBytes_FromStringAndSize(st(o)->data, (Py_ssize_t)st(o)->nbytes) : NULL;
}
static PyObject *s_false(PyObject *o, PyObject *x) { Py_RETURN_FALSE; }
static PyObject *s_self(PyObject *o, PyObject *x) { return Py_NewRef(o); }
static PyObject *s_repr(PyObject *o)
{
    return PyUnicode_FromFormat("[%s.storage.UntypedStorage(device=%s) of size %lld]", py_prefix,
                                device_name((dev_kind)st(o)->device.kind), (long long)st(o)->nbytes);
}
static PyObject *s_device(PyObject *o, void *x) { return py_device(st(o)->device); }
static PyObject *s_cdata(PyObject *o, void *x) { return PyLong_FromVoidPtr(st(o)); }

static tp_storage *storage_of_bytes(const void *p, Py_ssize_t n, tp_err *err)
{
    tp_storage *s = storage_new(n, DEVICE_CPU, err);
    if (s && n)
        memcpy(s->data, p, (size_t)n);
    return s;
}
static PyObject *wrap_new(tp_storage *s, tp_err *err) /* steals s */
{
    if (!s)
        return py_raise(err);
    PyObject *o = storage_object(s);
    storage_unref(s);
    return o;
}
static PyObject *s_clone(PyObject *o, PyObject *x)
{
    tp_err err = { 0 };
    if (st(o)->flags & ST_fake)
        return wrap_new(storage_new_fake(st(o)->nbytes, st(o)->device), &err);
    return wrap_new(storage_of_bytes(st(o)->data, (Py_ssize_t)st(o)->nbytes, &err), &err);
}
static PyObject *s_deepcopy(PyObject *o, PyObject *memo)
{
    PyObject *key = PyLong_FromVoidPtr(o), *c = NULL;
    if (key && PyDict_Check(memo) && (c = PyDict_GetItemWithError(memo, key)))
        Py_INCREF(c);
    if (key && !c && !PyErr_Occurred()) {
        c = s_clone(o, NULL);
        if (c && PyDict_Check(memo) && PyDict_SetItem(memo, key, c) < 0)
            Py_CLEAR(c);
    }
    Py_XDECREF(key);
    return c;
}
static PyObject *s_reduce(PyObject *o, PyObject *x)
{
    PyObject *f = PyObject_GetAttrString(py_module, "_storage_from_bytes"), *b = f ? s_bytes(o, NULL) : NULL;
    if (b)
        return Py_BuildValue("(N(N))", f, b);
    Py_XDECREF(f);
    return NULL;
}
static PyObject *s_resize(PyObject *o, PyObject *n)
{
    tp_storage *s = st(o);
    tp_err err = { 0 };
    long long want = PyLong_AsLongLong(n);
    if ((want == -1 && PyErr_Occurred()) || !has_bytes(o))
        return NULL;
    if (want < 0 || s->release) {
        PyErr_SetString(PyExc_RuntimeError,
                        want < 0 ? "a storage cannot have a negative size" : "this storage is not resizable");
        return NULL;
    }
    tp_storage *fresh = storage_new(want, s->device, &err);
    if (!fresh)
        return py_raise(&err);
    if (want && s->nbytes)
        memcpy(fresh->data, s->data, (size_t)MIN(want, (long long)s->nbytes));
    void *data = s->data; /* the bytes change places, so the header everybody holds stays */
    symint bytes = s->nbytes;
    s->data = fresh->data;
    s->nbytes = fresh->nbytes;
    fresh->data = data;
    fresh->nbytes = bytes;
    storage_unref(fresh);
    return Py_NewRef(o);
}

/* UntypedStorage.from_file(filename, shared=False, nbytes=0): the bytes of a file; writes do not reach it. */
static PyObject *s_from_file(PyObject *unused, PyObject *args, PyObject *kw)
{
    static char *names[] = { "filename", "shared", "nbytes", NULL };
    PyObject *path = NULL;
    int shared = 0;
    long long n = 0;
    tp_err err = { 0 };
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O&|pL:from_file", names, PyUnicode_FSConverter, &path,
                                     &shared, &n))
        return NULL;
    PyObject *r = NULL;
    FILE *f = shared ? NULL : fopen(PyBytes_AS_STRING(path), "rb");
    if (shared)
        PyErr_SetString(PyExc_NotImplementedError, "UntypedStorage.from_file: shared=True is not supported");
    else if (!f)
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, PyBytes_AS_STRING(path));
    else {
        if (n <= 0 && !fseek(f, 0, SEEK_END)) {
            n = ftell(f);
            rewind(f);
        }
        tp_storage *s = storage_new(n, DEVICE_CPU, &err);
        if (s && fread(s->data, 1, (size_t)n, f) != (size_t)n) {
            storage_unref(s);
            PyErr_Format(PyExc_RuntimeError, "UntypedStorage.from_file: the file has fewer than %lld bytes",
                         n);
        } else
            r = wrap_new(s, &err);
    }
    if (f)
        fclose(f);
    Py_DECREF(path);
    return r;
}

static PyMethodDef methods[] = { { "from_file", (PyCFunction)(void (*)(void))s_from_file,
                                   METH_VARARGS | METH_KEYWORDS | METH_STATIC,
                                   "from_file(filename, shared=False, nbytes=0) -> UntypedStorage" },
                                 { "nbytes", s_nbytes, METH_NOARGS, "nbytes() -> int" },
                                 { "size", s_nbytes, METH_NOARGS, "size() -> int" },
                                 { "untyped", s_self, METH_NOARGS, "untyped() -> self" },
                                 { "_untyped", s_self, METH_NOARGS, NULL },
                                 { "data_ptr", s_data_ptr, METH_NOARGS, "data_ptr() -> int" },
                                 { "clone", s_clone, METH_NOARGS, "clone() -> UntypedStorage" },
                                 { "resize_", s_resize, METH_O, "resize_(nbytes) -> self" },
                                 { "is_shared", s_false, METH_NOARGS, "is_shared() -> False" },
                                 { "is_pinned", s_false, METH_NOARGS, "is_pinned() -> False" },
                                 { "__bytes__", s_bytes, METH_NOARGS, NULL },
                                 { "__deepcopy__", s_deepcopy, METH_O, NULL },
                                 { "__reduce__", s_reduce, METH_NOARGS, NULL },
                                 { NULL } };
static PyGetSetDef getset[] = { { "device", s_device, NULL, "where the bytes are", NULL },
                                { "_cdata", s_cdata, NULL, "a number of its own", NULL },
                                { NULL } };
static void part_done(void *whole, void *data) { storage_unref(whole); }
/* storage[i], storage[a:b]: a byte, or a storage of some of the bytes, which it shares. */
static PyObject *s_subscript(PyObject *o, PyObject *key)
{
    tp_err err = { 0 };
    Py_ssize_t a, b, step;
    if (!PySlice_Check(key)) {
        Py_ssize_t i = PyNumber_AsSsize_t(key, PyExc_IndexError);
        return i == -1 && PyErr_Occurred() ? NULL : s_item(o, i < 0 ? i + (Py_ssize_t)st(o)->nbytes : i);
    }
    if (!has_bytes(o) || PySlice_Unpack(key, &a, &b, &step) < 0)
        return NULL;
    Py_ssize_t n = PySlice_AdjustIndices((Py_ssize_t)st(o)->nbytes, &a, &b, step);
    if (step != 1)
        return PyErr_Format(PyExc_RuntimeError,
                            "Trying to slice with a step of %zd, but only a step of 1 is supported", step);
    return wrap_new(storage_wrap((char *)st(o)->data + a, n, part_done, storage_ref(st(o))), &err);
}
/* The bytes as a tensor; NULL without an exception: o is no storage. */
PyObject *py_storage_tensor(PyObject *o, dtype dt)
{
    if (Py_TYPE(o) != &PyStorage_Type || !has_bytes(o))
        return NULL;
    int64_t n = st(o)->nbytes / (int64_t)dtype_size(dt);
    return py_wrap(tensor_on(st(o), dt, 1, (symint[]){ n }, (symint[]){ 1 }, 0));
}
static PyMappingMethods mapping = { .mp_length = s_len, .mp_subscript = s_subscript };
static PySequenceMethods sequence = { .sq_length = s_len, .sq_item = s_item };
static PyTypeObject PyStorage_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.UntypedStorage",
    .tp_basicsize = sizeof(PyStorage),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = storage_dealloc,
    .tp_repr = s_repr,
    .tp_methods = methods,
    .tp_getset = getset,
    .tp_as_sequence = &sequence,
    .tp_as_mapping = &mapping,
    .tp_doc = "The bytes that tensors look at.\n\n>>> taper.ones(2).untyped_storage().nbytes()\n8\n"
};

/* ---- on tensors ---- */
static PyObject *m_storage(PyObject *o, PyObject *x) { return storage_object(py_tensor(o)->storage); }

static bool read_geometry(PyObject *size, PyObject *stride, int *ndim, symint *sz, symint *sr)
{
    if (!PyTuple_Check(size) || PyTuple_GET_SIZE(size) > TP_MAX_DIMS ||
        (stride && (!PyTuple_Check(stride) || PyTuple_GET_SIZE(stride) != PyTuple_GET_SIZE(size))))
        return false;
    *ndim = (int)PyTuple_GET_SIZE(size);
    for (int i = 0; i < *ndim; i++)
        if (!py_to_symint(PyTuple_GET_ITEM(size, i), &sz[i]) ||
            (stride && !py_to_symint(PyTuple_GET_ITEM(stride, i), &sr[i])) || sym_is_expr(sz[i]) || sz[i] < 0)
            return false;
    return true;
}

/* _tensor_on(storage, dtype, offset, size, stride) -> Tensor. What pickles hold: everything is checked. */
static PyObject *f_tensor_on(PyObject *m, PyObject *args)
{
    PyObject *so, *size, *stride;
    PyDtype *d;
    long long offset;
    int ndim;
    symint sz[TP_MAX_DIMS], sr[TP_MAX_DIMS], bytes;
    tp_err err = { 0 };
    if (!PyArg_ParseTuple(args, "O!O!LOO:_tensor_on", &PyStorage_Type, &so, &PyDtype_Type, &d, &offset, &size,
                          &stride))
        return NULL;
    if (py_absent_dtype((PyObject *)d, &err))
        return py_raise(&err);
    if (!read_geometry(size, stride, &ndim, sz, sr) || offset < 0 || offset > SYM_LIMIT - 1)
        return PyErr_Format(PyExc_ValueError, "a tensor cannot have this size, stride and offset");
    if (!shape_check_sizes(ndim, sz, &err) || !shape_storage_bytes(d->dt, ndim, sz, sr, offset, &bytes, &err))
        return py_raise(&err);
    if (bytes > st(so)->nbytes)
        return PyErr_Format(PyExc_ValueError,
                            "a tensor of this size needs %lld bytes of storage, but there are %lld",
                            (long long)bytes, (long long)st(so)->nbytes);
    return py_wrap(tensor_on(st(so), d->dt, ndim, sz, sr, offset));
}

static PyObject *f_from_bytes(PyObject *m, PyObject *b)
{
    tp_err err = { 0 };
    Py_buffer v;
    if (PyObject_GetBuffer(b, &v, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *r = wrap_new(storage_of_bytes(v.buf, v.len, &err), &err);
    PyBuffer_Release(&v);
    return r;
}

/* What it held is gone, and whose the new values are nobody knows: gradients are refused. */
static bool set_history(tp_tensor *t, bool need, tp_err *err)
{
    return !need || !grad_records(op_ctx_cur()) || t->base || grad_set_refusal(t, "set_", err);
}

/* set_(source=None, storage_offset=0, size=None, stride=None): look at other memory. */
static PyObject *m_set(PyObject *o, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "source", "storage_offset", "size", "stride" };
    PyObject *a[4];
    tp_tensor *t = py_tensor(o);
    tp_err err = { 0 };
    symint sz[TP_MAX_DIMS], sr[TP_MAX_DIMS], offset = 0, bytes;
    int ndim = 1;
    if (!py_take("set_", names, 4, 4, 0, args, nargs, kw, a))
        return NULL;
    bool need = grad_requires_grad(t) || (a[0] && py_is_tensor(a[0]) && grad_requires_grad(py_tensor(a[0])));
    if (!grad_check_inplace(op_ctx_cur(), t, need, &err))
        return py_raise(&err);
    tp_storage *s = NULL;
    if (!a[0]) {
        s = storage_new(0, tensor_device(t), &err);
        sz[0] = 0;
        sr[0] = 1;
    } else if (py_is_tensor(a[0]) && !a[1]) {
        tp_tensor *f = py_tensor(a[0]);
        if (f->dt != t->dt)
            return PyErr_Format(PyExc_RuntimeError, "set_(): the source has dtype %s, the tensor %s",
                                dtype_name((dtype)f->dt), dtype_name((dtype)t->dt));
        bool set = tensor_reset(t, f->storage, (dtype)f->dt, f->ndim, f->size, f->stride, f->offset, &err) &&
                   set_history(t, need, &err);
        t->ahead += set; /* a write of this tensor alone */
        return set ? Py_NewRef(o) : py_raise(&err);
    } else if (Py_TYPE(a[0]) == &PyStorage_Type || py_is_tensor(a[0])) {
        s = storage_ref(py_is_tensor(a[0]) ? py_tensor(a[0])->storage : st(a[0]));
        sz[0] = s->nbytes / (symint)dtype_size((dtype)t->dt);
        sr[0] = 1;
        PyObject *size = a[2] ? PySequence_Tuple(a[2]) : NULL, *stride = a[3] ? PySequence_Tuple(a[3]) : NULL;
        bool ok = !PyErr_Occurred() && (!a[1] || py_to_symint(a[1], &offset)) && offset >= 0 &&
                  (!size || read_geometry(size, stride, &ndim, sz, sr));
        if (ok && size && !stride)
            shape_contiguous_strides(ndim, sz, sr);
        Py_XDECREF(size);
        Py_XDECREF(stride);
        if (!ok) {
            storage_unref(s);
            return PyErr_Occurred() ? NULL
                                    : PyErr_Format(PyExc_TypeError, "set_(): a tensor cannot have this size, "
                                                                    "stride and offset");
        }
    } else
        return PyErr_Format(PyExc_TypeError,
                            "set_(): argument 'source' must be Tensor or UntypedStorage, not %s",
                            Py_TYPE(a[0])->tp_name);
    bool ok = s && shape_check_sizes(ndim, sz, &err) &&
              shape_storage_bytes((dtype)t->dt, ndim, sz, sr, offset, &bytes, &err);
    if (ok && bytes > s->nbytes)
        ok = err_set(&err, ERR_runtime, "set_(): %lld bytes are needed but the storage has %lld",
                     (long long)bytes, (long long)s->nbytes);
    ok = ok && tensor_reset(t, s, (dtype)t->dt, ndim, sz, sr, offset, &err) && set_history(t, need, &err);
    t->ahead += ok;
    storage_unref(s);
    return ok ? Py_NewRef(o) : py_raise(&err);
}

/* _tensor_set(name, object): methods of Tensor that are written in Python. */
static PyObject *f_tensor_set(PyObject *m, PyObject *args)
{
    PyObject *name, *v;
    if (!PyArg_ParseTuple(args, "UO:_tensor_set", &name, &v) ||
        PyDict_SetItem(PyTensor_Type.tp_dict, name, v) < 0)
        return NULL;
    PyType_Modified(&PyTensor_Type);
    Py_RETURN_NONE;
}

static PyMethodDef tensor_methods[] = {
    { "untyped_storage", m_storage, METH_NOARGS, "untyped_storage() -> UntypedStorage" },
    { "storage", m_storage, METH_NOARGS, "storage() -> UntypedStorage" },
    { "set_", (PyCFunction)(void (*)(void))m_set, METH_FASTCALL | METH_KEYWORDS,
      "set_(source=None, storage_offset=0, size=None, stride=None) -> self" },
    { NULL }
};
static PyMethodDef functions[] = { { "_tensor_on", f_tensor_on, METH_VARARGS,
                                     "_tensor_on(storage, dtype, offset, size, stride) -> Tensor" },
                                   { "_storage_from_bytes", f_from_bytes, METH_O,
                                     "_storage_from_bytes(bytes or other buffer) -> UntypedStorage" },
                                   { "_tensor_set", f_tensor_set, METH_VARARGS, "_tensor_set(name, object)" },
                                   { NULL } };

int py_init_storage(PyObject *m)
{
    if (PyType_Ready(&PyStorage_Type) < 0 ||
        PyModule_AddObjectRef(m, "UntypedStorage", (PyObject *)&PyStorage_Type) < 0 ||
        py_tensor_add_methods(tensor_methods) < 0)
        return -1;
    return PyModule_AddFunctions(m, functions);
}
