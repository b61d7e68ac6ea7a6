/* exchange.c - memory shared with others: the buffer protocol, NumPy, DLPack. */
#include "python/dlpack.h"

/* ---- buffer protocol ---- */
static const char *dtype_format(dtype dt)
{
    switch (dt) {
    case DT_bool: return "?";
    case DT_u8: return "B";
    case DT_i8: return "b";
    case DT_i16: return "h";
    case DT_i32: return "i";
    case DT_i64: return sizeof(long) == 8 ? "l" : "q"; /* NumPy's int64 is the former */
    case DT_f16: return "e";
    case DT_f32: return "f";
    case DT_f64: return "d";
    case DT_c64: return "Zf";
    case DT_c128: return "Zd";
    case DT_u16: return "H";
    case DT_u32: return "I";
    case DT_u64: return "Q";
    default: return NULL;
    }
}

static bool wants_grad(PyObject *o)
{
    PyObject *r = PyObject_GetAttrString(o, "requires_grad");
    bool yes = r == Py_True;
    if (!r)
        PyErr_Clear();
    Py_XDECREF(r);
    return yes;
}

int py_tensor_getbuffer(PyObject *o, Py_buffer *v, int flags)
{
    tp_tensor *t = py_tensor(o);
    const char *f = dtype_format((dtype)t->dt);
    v->obj = NULL;
    if (tensor_is_fake(t) || !f || (op_ctx_cur()->grad_mode && wants_grad(o))) {
        PyErr_SetString(PyExc_BufferError, tensor_is_fake(t) ? "a fake tensor has no memory to share"
                                           : !f              ? "this element type has no buffer format"
                                                : "a tensor that requires grad does not share its memory; "
                                                  "detach() it first");
        return -1;
    }
    if (t->storage->flags & ST_device) {
        PyErr_SetString(PyExc_BufferError, "the tensor's memory is on a device; copy it with cpu() first");
        return -1;
    }
    bool contiguous = tensor_is_contiguous(t);
    if (!(flags & PyBUF_STRIDES) && !contiguous) {
        PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
        return -1;
    }
    if ((flags & PyBUF_WRITABLE) && (t->storage->flags & ST_readonly)) {
        PyErr_SetString(PyExc_BufferError, "the tensor's memory is read-only");
        return -1;
    }
    Py_ssize_t *dims = PyMem_Malloc(sizeof *dims * (size_t)(2 * t->ndim + 1)), es = dtype_size((dtype)t->dt);
    if (!dims) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < t->ndim; i++) {
        dims[i] = t->size[i];
        dims[t->ndim + i] = t->stride[i] * es;
    }
    static char nothing[8];
    v->buf = t->storage->data ? tensor_host(t) : nothing;
    v->len = t->numel * es;
    v->itemsize = es;
    v->readonly = (t->storage->flags & ST_readonly) != 0;
    v->ndim = t->ndim;
    v->format = flags & PyBUF_FORMAT ? (char *)f : NULL;
    v->shape = flags & PyBUF_ND ? dims : NULL;
    v->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? dims + t->ndim : NULL;
    v->suboffsets = NULL;
    v->internal = dims;
    v->obj = Py_NewRef(o);
    return 0;
}

void py_tensor_releasebuffer(PyObject *o, Py_buffer *v) { PyMem_Free(v->internal); }

/* ---- NumPy ---- */
static bool can_be_array(PyObject *o, bool force)
{
    tp_tensor *t = py_tensor(o);
    if (t->storage->flags & ST_batched)
        PyErr_SetString(py_fake_error, "numpy() needs the data of one element of a batch");
    else if (tensor_is_fake(t))
        PyErr_Format(PyExc_TypeError,
                     "can't convert %s device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
                     "host memory first.",
                     tensor_device(t).kind == DEV_meta ? "meta" : "fake");
    else if (!force && t->storage->flags & ST_device)
        PyErr_Format(
            PyExc_TypeError,
            "can't convert %s:%d device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
            "host memory first.",
            device_name((dev_kind)tensor_device(t).kind), tensor_device(t).index);
    else if (!force && op_ctx_cur()->grad_mode && wants_grad(o))
        PyErr_SetString(PyExc_RuntimeError, "Can't call numpy() on Tensor that requires grad. Use "
                                            "tensor.detach().numpy() instead.");
    else if (t->dt == DT_bf16)
        PyErr_SetString(PyExc_TypeError, "Got unsupported ScalarType BFloat16");
    else
        return true;
    return false;
}

static PyObject *as_array(PyObject *o)
{
    PyObject *np = PyImport_ImportModule("numpy"), *mv = np ? PyMemoryView_FromObject(o) : NULL,
             *r = mv ? PyObject_CallMethod(np, "asarray", "O", mv) : NULL;
    Py_XDECREF(np);
    Py_XDECREF(mv);
    return r;
}

static PyObject *m_numpy(PyObject *o, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "force" };
    PyObject *a[1];
    bool force = false;
    if (!py_take("numpy", names, 1, 0, 0, args, nargs, kw, a) ||
        !py_take_bool("numpy", "force", a[0], &force) || !can_be_array(o, force))
        return NULL;
    if (!wants_grad(o) && !(py_tensor(o)->storage->flags & ST_device))
        return as_array(o);
    PyObject *d = PyObject_CallMethod(o, "detach", NULL), *h = d ? PyObject_CallMethod(d, "cpu", NULL) : NULL,
             *r = h ? as_array(h) : NULL;
    Py_XDECREF(d);
    Py_XDECREF(h);
    return r;
}

static PyObject *m_array(PyObject *o, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "dtype", "copy" };
    PyObject *a[2];
    if (!py_take("__array__", names, 2, 2, 0, args, nargs, kw, a) || !can_be_array(o, false))
        return NULL;
    PyObject *r = as_array(o);
    if (r && a[0] && a[0] != Py_None) {
        PyObject *c = PyObject_CallMethod(r, "astype", "OsOO", a[0], "K", Py_None, Py_True);
        if (!c) {
            PyErr_Clear();
            c = PyObject_CallMethod(r, "astype", "O", a[0]);
        }
        Py_SETREF(r, c);
    } else if (r && a[1] == Py_True) {
        PyObject *c = PyObject_CallMethod(r, "copy", NULL);
        Py_SETREF(r, c);
    }
    return r;
}

/* ---- DLPack ---- */
/* The device's number in DLPack, and its index there. */
static int dl_device(tp_device d, int32_t *index)
{
    int at = d.index >= 0 || !device_ops_of(d)->current ? d.index : device_ops_of(d)->current();
    *index = MAX(at, 0);
    return d.kind == DEV_cuda ? DL_cuda : DL_cpu;
}

void dl_describe(dl_tensor *d, tp_tensor *t)
{
    d->data = t->numel ? tensor_data(t) : NULL;
    d->device.type = dl_device(tensor_device(t), &d->device.id);
    d->ndim = t->ndim;
    d->dtype.code = t->dt == DT_bool                                         ? DL_bool
                    : t->dt == DT_u8 || (t->dt >= DT_u16 && t->dt <= DT_u64) ? DL_uint
                    : dtype_is_complex((dtype)t->dt)                         ? DL_complex
                    : t->dt == DT_f8e4                                       ? DL_f8e4m3fn
                    : t->dt == DT_f8e5                                       ? DL_f8e5m2
                    : t->dt == DT_bf16                                       ? DL_bfloat
                    : dtype_is_float((dtype)t->dt)                           ? DL_float
                                                                             : DL_int;
    d->dtype.bits = (uint8_t)(8 * dtype_size((dtype)t->dt));
    d->dtype.lanes = 1;
    d->shape = t->size;
    d->strides = t->stride;
    d->byte_offset = 0;
}

static void managed_free(dl_managed *m)
{
    tensor_unref(m->ctx);
    free(m);
}
static void versioned_free(dl_versioned *m)
{
    tensor_unref(m->ctx);
    free(m);
}
dl_versioned *dl_export(tp_tensor *t)
{
    dl_versioned *m = mem_zalloc(sizeof *m);
    m->version.major = 1;
    m->flags = t->storage->flags & ST_readonly ? 1 : 0;
    m->ctx = t;
    m->deleter = versioned_free;
    dl_describe(&m->t, t);
    return m;
}

/* A capsule that nobody consumed still owns its tensor. */
static void capsule_free(PyObject *c)
{
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    if (PyCapsule_IsValid(c, "dltensor")) {
        dl_managed *m = PyCapsule_GetPointer(c, "dltensor");
        if (m->deleter)
            m->deleter(m);
    } else if (PyCapsule_IsValid(c, "dltensor_versioned")) {
        dl_versioned *m = PyCapsule_GetPointer(c, "dltensor_versioned");
        if (m->deleter)
            m->deleter(m);
    }
    PyErr_Restore(type, value, tb);
}

static PyObject *m_dlpack(PyObject *o, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "stream", "max_version", "dl_device", "copy" };
    PyObject *a[4];
    bool copy = false;
    tp_tensor *t = py_tensor(o);
    int32_t index;
    long major = 0, here = dl_device(tensor_device(t), &index), dev = here;
    tp_err err = { 0 };
    if (!py_take("__dlpack__", names, 4, 1, 0, args, nargs, kw, a) ||
        !py_take_bool("__dlpack__", "copy", a[3], &copy))
        return NULL;
    if (a[1] && a[1] != Py_None) {
        PyObject *v = PySequence_GetItem(a[1], 0);
        major = v ? PyLong_AsLong(v) : -1;
        Py_XDECREF(v);
        if (PyErr_Occurred())
            return NULL;
    }
    if (a[2] && a[2] != Py_None) {
        PyObject *v = PySequence_GetItem(a[2], 0);
        dev = v ? PyLong_AsLong(v) : -1;
        Py_XDECREF(v);
        if (PyErr_Occurred())
            return NULL;
    }
    if (dev != here || tensor_is_fake(t)) {
        PyErr_SetString(PyExc_BufferError,
                        tensor_is_fake(t) ? "a fake tensor has no memory to export to dlpack"
                                          : "a tensor is exported to dlpack on the device that it is on");
        return NULL;
    }
    if (wants_grad(o)) {
        PyErr_SetString(PyExc_BufferError, "Can't export tensors that require gradient, use tensor.detach()");
        return NULL;
    }
    if (copy) {
        tp_tensor *c = tensor_new_strided((dtype)t->dt, t->ndim, t->size, NULL, tensor_device(t), &err);
        if (!c || !tensor_copy(c, t, &err)) {
            tensor_unref(c);
            return py_raise(&err);
        }
        t = c;
    } else /* its own header: in-place changes of the tensor's shape must not move what was exported */
        t = tensor_alias(t);
    if (!device_sync(tensor_device(t), &err)) { /* another library has queues of its own */
        tensor_unref(t);
        return py_raise(&err);
    }
    if (major >= 1) {
        dl_versioned *m = dl_export(t);
        m->flags |= copy ? 2 : 0;
        return PyCapsule_New(m, "dltensor_versioned", capsule_free);
    }
    dl_managed *m = mem_zalloc(sizeof *m);
    m->ctx = t;
    m->deleter = managed_free;
    dl_describe(&m->t, t);
    return PyCapsule_New(m, "dltensor", capsule_free);
}

static PyObject *m_dlpack_device(PyObject *o, PyObject *unused)
{
    int32_t index;
    int type = dl_device(tensor_device(py_tensor(o)), &index);
    return Py_BuildValue("(ii)", type, (int)index);
}

int dl_dtype(const dl_tensor *d)
{
    if (d->dtype.lanes != 1)
        return DT_none;
    switch (d->dtype.code * 100 + d->dtype.bits) {
    case DL_int * 100 + 8: return DT_i8;
    case DL_int * 100 + 16: return DT_i16;
    case DL_int * 100 + 32: return DT_i32;
    case DL_int * 100 + 64: return DT_i64;
    case DL_uint * 100 + 8: return DT_u8;
    case DL_uint * 100 + 16: return DT_u16;
    case DL_uint * 100 + 32: return DT_u32;
    case DL_uint * 100 + 64: return DT_u64;
    case DL_complex * 100 + 64: return DT_c64;
    case DL_complex * 100 + 128: return DT_c128;
    case DL_f8e4m3fn * 100 + 8: return DT_f8e4;
    case DL_f8e5m2 * 100 + 8: return DT_f8e5;
    case DL_float * 100 + 16: return DT_f16;
    case DL_float * 100 + 32: return DT_f32;
    case DL_float * 100 + 64: return DT_f64;
    case DL_bfloat * 100 + 16: return DT_bf16;
    case DL_bool * 100 + 8: return DT_bool;
    default: return DT_none;
    }
}

/* Its owner may use the memory again at once: what was queued with it comes first. */
static void finish_with(const dl_tensor *d)
{
    if (d->device.type != DL_cpu)
        device_sync((tp_device){ DEV_cuda, (int8_t)d->device.id }, NULL);
}
static void release_managed(void *ctx, void *data)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE g = PyGILState_Ensure();
    dl_managed *m = ctx;
    finish_with(&m->t);
    if (m->deleter)
        m->deleter(m);
    PyGILState_Release(g);
}
static void release_versioned(void *ctx, void *data)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE g = PyGILState_Ensure();
    dl_versioned *m = ctx;
    finish_with(&m->t);
    if (m->deleter)
        m->deleter(m);
    PyGILState_Release(g);
}

static tp_tensor *dl_import(PyObject *cap) /* consumes the capsule on success */
{
    bool v1 = PyCapsule_IsValid(cap, "dltensor_versioned");
    void *p = PyCapsule_GetPointer(cap, v1 ? "dltensor_versioned" : "dltensor");
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS], bytes;
    tp_err err = { 0 };
    if (!p)
        return NULL;
    if (v1 && ((dl_versioned *)p)->version.major > 1) {
        PyErr_Format(PyExc_BufferError, "Unsupported DLPack capsule major version: %u",
                     ((dl_versioned *)p)->version.major);
        return NULL;
    }
    const dl_tensor *d = v1 ? &((dl_versioned *)p)->t : &((dl_managed *)p)->t;
    int dt = dl_dtype(d);
    tp_device dev = d->device.type == DL_cuda ? (tp_device){ DEV_cuda, (int8_t)d->device.id } : DEVICE_CPU;
    if (d->device.type != DL_cpu && d->device.type != DL_cuda) {
        PyErr_Format(
            PyExc_BufferError,
            "DLPack device type %d is not supported: memory of the CPU (1) and of CUDA (2) can be shared",
            d->device.type);
        return NULL;
    }
    if (d->device.type == DL_cuda && (d->device.id < 0 || d->device.id >= device_ops_of(dev)->count())) {
        PyErr_Format(PyExc_BufferError, "DLPack device cuda:%d is not one of the %d that Taper sees",
                     d->device.id, device_ops_of(dev)->count());
        return NULL;
    }
    if (dt == DT_none || d->ndim < 0 || d->ndim > TP_MAX_DIMS) {
        PyErr_Format(PyExc_BufferError,
                     "DLPack element type (code %d, %d bits, %d lanes) in %d dimensions is not supported",
                     d->dtype.code, d->dtype.bits, d->dtype.lanes, d->ndim);
        return NULL;
    }
    for (int i = 0; i < d->ndim; i++)
        size[i] = d->shape[i];
    if (!shape_check_sizes(d->ndim, size, &err))
        goto fail;
    shape_contiguous_strides(d->ndim, size, stride);
    for (int i = 0; d->strides && i < d->ndim; i++) {
        stride[i] = d->strides[i];
        if (stride[i] < 0 && size[i] < 2)
            stride[i] = 0;
    }
    if (!shape_storage_bytes((dtype)dt, d->ndim, size, stride, 0, &bytes, &err))
        goto fail;
    if (!device_sync(dev, &err)) /* the producer's queues are not ours */
        goto fail;
    tp_storage *s = storage_wrap_on(dev, (char *)d->data + d->byte_offset, bytes,
                                    v1 ? release_versioned : release_managed, p);
    if (v1 && (((dl_versioned *)p)->flags & 1))
        s->flags |= ST_readonly;
    tp_tensor *t = tensor_on(s, (dtype)dt, d->ndim, size, stride, 0);
    storage_unref(s);
    PyCapsule_SetName(cap, v1 ? "used_dltensor_versioned" : "used_dltensor");
    return t;
fail:
    py_raise(&err);
    return NULL;
}

static PyObject *f_from_dlpack(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "ext_tensor", "device", "copy" };
    PyObject *a[3];
    if (!py_take("from_dlpack", names, 3, 1, 1, args, nargs, kw, a))
        return NULL;
    PyObject *cap = NULL;
    if (PyCapsule_CheckExact(a[0]))
        cap = Py_NewRef(a[0]);
    else {
        PyObject *f = PyObject_GetAttrString(a[0], "__dlpack__"), *empty = PyTuple_New(0),
                 *kwargs = Py_BuildValue("{s(ii)}", "max_version", 1, 0);
        if (!f) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "from_dlpack(): an object with __dlpack__ was expected, not %s",
                         Py_TYPE(a[0])->tp_name);
        }
        if (f && empty && kwargs && a[2] && a[2] != Py_None)
            PyDict_SetItemString(kwargs, "copy", a[2]);
        if (f && empty && kwargs && !(cap = PyObject_Call(f, empty, kwargs)) &&
            PyErr_ExceptionMatches(PyExc_TypeError)) { /* a producer of the older protocol */
            PyErr_Clear();
            cap = PyObject_CallNoArgs(f);
        }
        Py_XDECREF(f);
        Py_XDECREF(empty);
        Py_XDECREF(kwargs);
    }
    if (!cap)
        return NULL;
    if (!PyCapsule_IsValid(cap, "dltensor") && !PyCapsule_IsValid(cap, "dltensor_versioned")) {
        PyErr_SetString(PyExc_ValueError, "from_dlpack received an invalid capsule. Note that DLTensor "
                                          "capsules can be consumed only once.");
        Py_DECREF(cap);
        return NULL;
    }
    tp_tensor *t = dl_import(cap);
    Py_DECREF(cap);
    return t ? py_wrap(t) : NULL;
}

static PyObject *f_to_dlpack(PyObject *m, PyObject *o)
{
    if (!py_is_tensor(o))
        return PyErr_Format(PyExc_TypeError, "to_dlpack(): argument must be Tensor, not %s",
                            Py_TYPE(o)->tp_name);
    return m_dlpack(o, NULL, 0, NULL);
}

/* ---- __cuda_array_interface__, version 3 ---- */
static PyObject *get_cuda_array(PyObject *o, void *unused)
{
    tp_tensor *t = py_tensor(o);
    tp_err err = { 0 };
    if (tensor_device(t).kind != DEV_cuda || tensor_is_fake(t)) {
        PyErr_Format(PyExc_AttributeError,
                     "Can't get __cuda_array_interface__ on non-CUDA tensor type: it is on the %s",
                     device_name((dev_kind)tensor_device(t).kind));
        return NULL;
    }
    if (wants_grad(o)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "Can't get __cuda_array_interface__ on Variable that requires grad. If "
                        "gradients aren't required, use var.detach().");
        return NULL;
    }
    if (t->dt == DT_bf16) {
        PyErr_SetString(PyExc_TypeError,
                        "__cuda_array_interface__ has no name for bfloat16: from_dlpack() takes it");
        return NULL;
    }
    char type[8];
    int es = (int)dtype_size((dtype)t->dt);
    snprintf(type, sizeof type, "%c%c%d", es > 1 ? '<' : '|',
             t->dt == DT_bool                 ? 'b'
             : t->dt == DT_u8                 ? 'u'
             : dtype_is_float((dtype)t->dt)   ? 'f'
             : dtype_is_complex((dtype)t->dt) ? 'c'
             : dtype_rows[t->dt].cat == 'u'   ? 'u'
                                              : 'i',
             es);
    if (!device_sync(tensor_device(t), &err))
        return py_raise(&err);
    PyObject *shape = PyTuple_New(t->ndim), *strides = PyTuple_New(t->ndim);
    for (int i = 0; shape && strides && i < t->ndim; i++) {
        PyTuple_SET_ITEM(shape, i, PyLong_FromLongLong(t->size[i]));
        PyTuple_SET_ITEM(strides, i, PyLong_FromLongLong(t->stride[i] * es));
    }
    PyObject *at = PyLong_FromVoidPtr(t->numel ? tensor_data(t) : NULL);
    return Py_BuildValue("{s:N,s:s,s:N,s:(N,O),s:i}", "shape", shape, "typestr", type, "strides", strides,
                         "data", at, t->storage->flags & ST_readonly ? Py_True : Py_False, "version", 3);
}

static int typestr_dtype(const char *s)
{
    static const struct {
        char name[4];
        int dt;
    } rows[] = { { "b1", DT_bool }, { "u1", DT_u8 },  { "i1", DT_i8 },  { "i2", DT_i16 }, { "i4", DT_i32 },
                 { "i8", DT_i64 },  { "f2", DT_f16 }, { "f4", DT_f32 }, { "f8", DT_f64 }, { "c8", DT_c64 },
                 { "u2", DT_u16 },  { "u4", DT_u32 }, { "u8", DT_u64 } };
    for (size_t i = 0; s && (*s == '<' || *s == '|') && i < COUNT(rows); i++)
        if (!strcmp(s + 1, rows[i].name))
            return rows[i].dt;
    return DT_none;
}

static void release_owner(void *ctx, void *data)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE g = PyGILState_Ensure();
    device_sync((tp_device){ DEV_cuda, -1 }, NULL);
    Py_DECREF((PyObject *)ctx);
    PyGILState_Release(g);
}

/* Numbers of a tuple, at most TP_MAX_DIMS; -1 with an exception. */
static int take_numbers(PyObject *o, symint *out)
{
    Py_ssize_t n = o ? PySequence_Size(o) : -1;
    if (n > TP_MAX_DIMS)
        PyErr_SetString(PyExc_ValueError, "__cuda_array_interface__: too many dimensions");
    for (Py_ssize_t i = 0; i < n && n <= TP_MAX_DIMS; i++) {
        PyObject *v = PySequence_GetItem(o, i);
        out[i] = v ? PyLong_AsLongLong(v) : -1;
        Py_XDECREF(v);
    }
    return o && !PyErr_Occurred() ? (int)n : -1;
}

tp_tensor *py_tensor_of_cuda_array(PyObject *o)
{
    PyObject *d = PyObject_GetAttrString(o, "__cuda_array_interface__"), *at = NULL;
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS], bytes;
    tp_tensor *t = NULL;
    tp_err err = { 0 };
    tp_device dev = { DEV_cuda, -1 };
    if (!d)
        return NULL;
    PyObject *type = PyDict_Check(d) ? PyDict_GetItemString(d, "typestr") : NULL, *data = NULL,
             *strides = NULL;
    int dt = type && PyUnicode_Check(type) ? typestr_dtype(PyUnicode_AsUTF8(type)) : DT_none, n = -1;
    if (dt == DT_none) {
        PyErr_Format(PyExc_TypeError, "__cuda_array_interface__: elements of type %R are not supported",
                     type ? type : Py_None);
        goto done;
    }
    data = PyDict_GetItemString(d, "data");
    strides = PyDict_GetItemString(d, "strides");
    n = take_numbers(PyDict_GetItemString(d, "shape"), size);
    at = data ? PySequence_GetItem(data, 0) : NULL;
    void *p = at ? PyLong_AsVoidPtr(at) : NULL;
    if (n < 0 || !at || PyErr_Occurred()) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "__cuda_array_interface__ needs 'shape', 'typestr' and 'data'");
        goto done;
    }
    if (!shape_check_sizes(n, size, &err))
        goto done;
    shape_contiguous_strides(n, size, stride);
    if (strides && strides != Py_None) {
        if (take_numbers(strides, stride) != n) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError,
                                "__cuda_array_interface__: as many strides as dimensions are needed");
            goto done;
        }
        for (int i = 0; i < n; i++) {
            if (stride[i] < 0 || stride[i] % dtype_size((dtype)dt)) {
                PyErr_SetString(PyExc_ValueError,
                                "__cuda_array_interface__: strides that are negative, or no whole "
                                "number of elements, are not supported; copy the array first");
                goto done;
            }
            stride[i] /= dtype_size((dtype)dt);
        }
    }
    dev.index = (int8_t)MAX(device_ops_of(dev)->current(), 0);
    if (!shape_storage_bytes((dtype)dt, n, size, stride, 0, &bytes, &err) || !device_sync(dev, &err))
        goto done;
    tp_storage *s = storage_wrap_on(dev, p, bytes, release_owner, Py_NewRef(o));
    t = tensor_on(s, (dtype)dt, n, size, stride, 0);
    storage_unref(s);
done:
    if (!t && !PyErr_Occurred())
        py_raise(&err);
    Py_XDECREF(at);
    Py_DECREF(d);
    return t;
}

#define KW(f) (PyCFunction)(void (*)(void)) f, METH_FASTCALL | METH_KEYWORDS
static PyGetSetDef getset[] = { { "__cuda_array_interface__", get_cuda_array, NULL, NULL, NULL }, { NULL } };
static PyMethodDef methods[] = { { "numpy", KW(m_numpy), "numpy(*, force=False) -> ndarray sharing memory" },
                                 { "__array__", KW(m_array), NULL },
                                 { "__dlpack__", KW(m_dlpack), "a DLPack capsule sharing memory" },
                                 { "__dlpack_device__", m_dlpack_device, METH_NOARGS, NULL },
                                 { NULL } };
static PyMethodDef functions[] = {
    { "from_dlpack", KW(f_from_dlpack),
      "from_dlpack(ext_tensor) -> Tensor sharing its memory\n\n>>> "
      "taper.from_dlpack(taper.ones(2))\ntensor([1., 1.])\n" },
    { "to_dlpack", f_to_dlpack, METH_O,
      "to_dlpack(tensor) -> capsule\n\n>>> taper.from_dlpack(taper.to_dlpack(taper.ones(2)))\ntensor([1., "
      "1.])\n" },
    { NULL }
};

int py_init_exchange(PyObject *m)
{
    PyObject *p = PyLong_FromLong(1000); /* ndarray + Tensor is ours */
    if (!p || PyDict_SetItemString(PyTensor_Type.tp_dict, "__array_priority__", p) < 0)
        return -1;
    Py_DECREF(p);
    return py_tensor_add_methods(methods) < 0 || py_tensor_add_getset(getset) < 0
               ? -1
               : PyModule_AddFunctions(m, functions);
}
