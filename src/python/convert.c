/* convert.c - tensors from Python data: numbers, nested sequences, arrays, other tensors; the constructors.
 */
#include "python/override.h"

/* ---- element types ---- */
static bool is_text(PyObject *o) { return PyUnicode_Check(o) || PyBytes_Check(o); }

/* NumPy scalars and arrays are known by their array interface; nothing of NumPy is needed to build. */
static bool is_array(PyObject *o)
{
    if (PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyList_CheckExact(o) || PyTuple_CheckExact(o) ||
        PyBool_Check(o) || PyUnicode_CheckExact(o) || !PyObject_CheckBuffer(o) || py_is_tensor(o))
        return false;
    return PyObject_HasAttrString((PyObject *)Py_TYPE(o), "__array_interface__");
}

static bool is_cuda_array(PyObject *o)
{
    PyTypeObject *t = Py_TYPE(o);
    return t->tp_flags & Py_TPFLAGS_HEAPTYPE && !PyType_Check(o) && !py_is_tensor(o) &&
           PyObject_HasAttrString((PyObject *)t, "__cuda_array_interface__");
}

static int format_dtype(const char *f, Py_ssize_t itemsize) /* struct-module format -> dtype, or DT_none */
{
    if (!f)
        f = "B";
    if (*f == '@' || *f == '=' || *f == '<')
        f++;
    if (*f == 'Z' && f[1] && !f[2])
        return f[1] == 'f' ? DT_c64 : f[1] == 'd' ? DT_c128 : DT_none;
    if (!*f || f[1])
        return DT_none;
    switch (*f) {
    case '?': return DT_bool;
    case 'B': return DT_u8;
    case 'b':
    case 'c': return DT_i8;
    case 'e': return DT_f16;
    case 'f': return DT_f32;
    case 'd': return DT_f64;
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n': return itemsize == 2 ? DT_i16 : itemsize == 4 ? DT_i32 : itemsize == 8 ? DT_i64 : DT_none;
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N': return itemsize == 2 ? DT_u16 : itemsize == 4 ? DT_u32 : itemsize == 8 ? DT_u64 : DT_none;
    default: return DT_none;
    }
}

static void release_buffer(void *ctx, void *data)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE g = PyGILState_Ensure(); /* the last tensor may die in any thread */
    PyBuffer_Release(ctx);
    PyMem_Free(ctx);
    PyGILState_Release(g);
}

tp_tensor *py_tensor_of_array(PyObject *o, bool share)
{
    Py_buffer *b = PyMem_Malloc(sizeof *b);
    if (!b) {
        PyErr_NoMemory();
        return NULL;
    }
    if (PyObject_GetBuffer(o, b, PyBUF_FULL_RO) < 0) {
        PyMem_Free(b);
        if (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_ValueError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError,
                         "can't convert an array of this element type. The only supported types are: "
                         "float64, float32, float16, complex64, complex128, int64, int32, int16, int8, "
                         "uint64, uint32, uint16, uint8, and bool.");
        }
        return NULL;
    }
    tp_tensor *t = NULL, *view = NULL;
    tp_err err = { 0 };
    int dt = format_dtype(b->format, b->itemsize);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS], bytes;
    if (b->format && (*b->format == '>' || *b->format == '!') && b->itemsize > 1) {
        PyErr_SetString(PyExc_ValueError,
                        "given numpy array has byte order different from the native byte order. Conversion "
                        "between byte orders is currently not supported.");
        goto done;
    }
    if (dt == DT_none) {
        PyObject *d = PyObject_GetAttrString(o, "dtype"), *n = d ? PyObject_GetAttrString(d, "type") : NULL,
                 *s = n ? PyObject_GetAttrString(n, "__name__") : NULL;
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError,
                     "can't convert np.ndarray of type numpy.%S. The only supported types are: float64, "
                     "float32, float16, int64, int32, int16, int8, uint8, and bool.",
                     s ? s : Py_None);
        Py_XDECREF(d);
        Py_XDECREF(n);
        Py_XDECREF(s);
        goto done;
    }
    if (b->ndim > TP_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "an array of %d dimensions is too deep: at most %d are supported",
                     b->ndim, TP_MAX_DIMS);
        goto done;
    }
    for (int i = 0; i < b->ndim; i++) {
        size[i] = b->shape ? b->shape[i] : b->len / b->itemsize;
        Py_ssize_t s = b->strides ? b->strides[i] : b->itemsize;
        if (s < 0 && size[i] > 1) {
            PyErr_SetString(PyExc_ValueError,
                            "At least one stride in the given numpy array is negative, and tensors with "
                            "negative strides are not currently supported. (You can probably work around "
                            "this by making a copy of your array  with array.copy().) ");
            goto done;
        }
        if (s % b->itemsize) {
            PyErr_SetString(PyExc_ValueError,
                            "given numpy array strides not a multiple of the element byte size. Copy the "
                            "numpy array to reallocate the memory.");
            goto done;
        }
        stride[i] = s < 0 ? 0 : s / b->itemsize;
    }
    if (!shape_storage_bytes((dtype)dt, b->ndim, size, stride, 0, &bytes, &err))
        goto done;
    tp_storage *s = storage_wrap(b->buf, bytes, release_buffer, b);
    if (b->readonly)
        s->flags |= ST_readonly;
    view = tensor_on(s, (dtype)dt, b->ndim, size, stride, 0);
    b = NULL; /* now the storage's */
    storage_unref(s);
    if (share) {
        t = view;
        view = NULL;
    } else {
        t = tensor_new((dtype)dt, view->ndim, view->size, &err);
        if (t && !tensor_copy(t, view, &err)) {
            tensor_unref(t);
            t = NULL;
        }
    }
done:
    if (b) {
        PyBuffer_Release(b);
        PyMem_Free(b);
    }
    tensor_unref(view);
    if (!t)
        py_raise(&err);
    return t;
}

static int array_dtype(PyObject *o) /* of an array or array scalar; DT_none without an exception */
{
    Py_buffer b;
    if (PyObject_GetBuffer(o, &b, PyBUF_FULL_RO) < 0) {
        PyErr_Clear();
        return DT_none;
    }
    int dt = format_dtype(b.format, b.itemsize);
    PyBuffer_Release(&b);
    return dt;
}

/* ---- shape and type of nested sequences ---- */
static bool find_sizes(PyObject *o, int *ndim, symint *size)
{
    PyObject *seq = Py_NewRef(o);
    *ndim = 0;
    while (PySequence_Check(seq) && !py_is_tensor(seq) && !PyDict_Check(seq)) {
        if (*ndim >= TP_MAX_DIMS || (PyUnicode_Check(seq) && *ndim)) {
            PyErr_Format(PyExc_ValueError, "too many dimensions '%s'", Py_TYPE(seq)->tp_name);
            py_add_hints();
            Py_DECREF(seq);
            return false;
        }
        Py_ssize_t n = PySequence_Size(seq);
        if (n < 0) {
            Py_DECREF(seq);
            if (is_array(o) || *ndim == 0)
                return false;
            PyErr_Clear();
            return true;
        }
        size[(*ndim)++] = n;
        if (n == 0)
            break;
        PyObject *first = PySequence_GetItem(seq, 0);
        Py_DECREF(seq);
        if (!first) {
            PyErr_Clear();
            PyErr_Format(PyExc_ValueError, "could not determine the shape of object type '%s'",
                         Py_TYPE(o)->tp_name);
            return false;
        }
        seq = first;
    }
    Py_DECREF(seq);
    return true;
}

static int number_dtype(PyObject *o) /* DT_none when it is no number */
{
    if (PyFloat_CheckExact(o))
        return CX->default_dtype;
    if (PyBool_Check(o))
        return DT_bool;
    if (PyLong_CheckExact(o) || py_is_symint(o))
        return DT_i64;
    if (py_is_tensor(o))
        return py_tensor(o)->dt;
    if (is_array(o))
        return array_dtype(o);
    if (PyComplex_Check(o))
        return dtype_complex_of(CX->default_dtype);
    if (PyFloat_Check(o))
        return CX->default_dtype;
    if (PyLong_Check(o))
        return DT_i64;
    return DT_none;
}

static bool infer(PyObject *o, int depth, int *dt) /* promotes into *dt */
{
    int d = number_dtype(o);
    if (d == DT_none && PySequence_Check(o) && !is_text(o) && depth < TP_MAX_DIMS) {
        Py_ssize_t n = PySequence_Size(o);
        bool ok = n >= 0;
        for (Py_ssize_t i = 0; ok && i < n; i++) {
            PyObject *e = PySequence_GetItem(o, i);
            ok = e && infer(e, depth + 1, dt);
            Py_XDECREF(e);
        }
        return ok;
    }
    if (d == DT_none) {
        if (PyUnicode_Check(o))
            PyErr_Format(PyExc_TypeError, "new(): invalid data type 'str'");
        else
            PyErr_Format(PyExc_RuntimeError, "Could not infer dtype of %s", Py_TYPE(o)->tp_name);
        py_add_hints();
        return false;
    }
    *dt = *dt == DT_none ? d : (int)dtype_promote((dtype)*dt, (dtype)d);
    return true;
}

/* ---- storing ---- */
static bool overflow(dtype dt)
{
    PyErr_Format(PyExc_RuntimeError, "value cannot be converted to type %s without overflow", dtype_name(dt));
    return false;
}

static bool fits_int(dtype dt, long long v)
{
    switch (dt) {
    case DT_u8: return v >= -255 && v <= 255; /* negative numbers wrap */
    case DT_i8: return v >= INT8_MIN && v <= INT8_MAX;
    case DT_i16: return v >= INT16_MIN && v <= INT16_MAX;
    case DT_i32: return v >= INT32_MIN && v <= INT32_MAX;
    case DT_u16: return v >= -UINT16_MAX && v <= UINT16_MAX;
    case DT_u32: return v >= -(long long)UINT32_MAX && v <= UINT32_MAX;
    default: return true;
    }
}

static bool store_float(dtype dt, void *p, double v)
{
    if (dtype_is_exact(dt) && dt != DT_bool) {
        if (v != v || v >= 9223372036854775808.0 || v < -9223372036854775808.0 ||
            !fits_int(dt, (long long)v) || (dt == DT_u8 && v < 0))
            return overflow(dt);
    }
    elem_set_f(dt, p, v);
    return true;
}

static bool store_complex(dtype dt, void *p, const double c[2])
{
    if (!dtype_is_complex(dt) && c[1] != 0)
        return overflow(dt);
    if (!dtype_is_complex(dt))
        return store_float(dt, p, c[0]);
    elem_set_c(dt, p, c);
    return true;
}

static bool store(dtype dt, void *p, PyObject *o)
{
    if (TP_UNLIKELY(PyComplex_Check(o) ||
                    (dtype_is_complex(dt) && !PyLong_Check(o) && !PyFloat_Check(o) && !py_is_tensor(o)))) {
        Py_complex z = PyComplex_AsCComplex(o);
        double c[2] = { z.real, z.imag };
        return !PyErr_Occurred() && store_complex(dt, p, c);
    }
    if (PyFloat_Check(o))
        return store_float(dt, p, PyFloat_AS_DOUBLE(o));
    if (py_is_tensor(o)) {
        tp_tensor *t = py_tensor(o);
        if (t->numel != 1 || tensor_is_fake(t)) {
            if (tensor_is_fake(t))
                PyErr_SetString(PyExc_RuntimeError,
                                "the value of a fake tensor is not known: it cannot become an element");
            else if (!dtype_is_exact(dt))
                PyErr_SetString(PyExc_ValueError,
                                "only one element tensors can be converted to Python scalars");
            else
                PyErr_SetString(PyExc_TypeError,
                                "only integer tensors of a single element can be converted to an index");
            return false;
        }
        uint64_t room;
        tp_err err = { 0 };
        const void *at = tensor_peek(t, &room, &err);
        if (!at)
            return py_raise(&err) != NULL;
        if (dtype_is_complex((dtype)t->dt)) {
            double c[2];
            elem_get_c((dtype)t->dt, at, c);
            return store_complex(dt, p, c);
        }
        if (!dtype_is_exact((dtype)t->dt))
            return store_float(dt, p, elem_get_f((dtype)t->dt, at));
        int64_t i = elem_get_i((dtype)t->dt, at);
        if (!fits_int(dt, i))
            return overflow(dt);
        elem_set_i(dt, p, i);
        return true;
    }
    if (dt == DT_bool && !PyLong_Check(o)) {
        int b = PyObject_IsTrue(o);
        if (b < 0)
            return false;
        elem_set_i(dt, p, b);
        return true;
    }
    if (!dtype_is_exact(dt) && (!PyLong_Check(o) || PyBool_Check(o))) {
        double v = PyFloat_AsDouble(o);
        if (v == -1 && PyErr_Occurred()) {
            if (PyErr_ExceptionMatches(PyExc_TypeError) && !PyUnicode_Check(o)) {
                PyErr_Clear();
                PyErr_Format(PyExc_TypeError, "must be real number, not %s", Py_TYPE(o)->tp_name);
            }
            return false;
        }
        elem_set_f(dt, p, v);
        return true;
    }
    PyObject *i = PyNumber_Index(o);
    if (!i && PyErr_ExceptionMatches(PyExc_TypeError) && PyNumber_Check(o) && !PySequence_Check(o)) {
        PyErr_Clear(); /* NumPy floats into an integer type */
        double v = PyFloat_AsDouble(o);
        return (v != -1 || !PyErr_Occurred()) && store_float(dt, p, v);
    }
    if (!i)
        return false;
    int over;
    long long v = PyLong_AsLongLongAndOverflow(i, &over);
    double f = over && !dtype_is_exact(dt) ? PyLong_AsDouble(i) : 0;
    uint64_t u = over > 0 && dt == DT_u64 ? PyLong_AsUnsignedLongLong(i) : 0;
    Py_DECREF(i);
    if (PyErr_Occurred())
        return false;
    if (over > 0 && dt == DT_u64) {
        *(uint64_t *)p = u;
        return true;
    }
    if (over && !dtype_is_exact(dt)) {
        elem_set_f(dt, p, f);
        return true;
    }
    if (over) {
        PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
        return false;
    }
    if (!fits_int(dt, v))
        return overflow(dt);
    elem_set_i(dt, p, v);
    return true;
}

static bool fill(PyObject *o, int d, int ndim, const symint *size, dtype dt, char **at)
{
    if (d == ndim) {
        bool ok = store(dt, *at, o);
        *at += dtype_size(dt);
        return ok;
    }
    if (!PySequence_Check(o) || py_is_tensor(o)) {
        PyErr_SetString(PyExc_TypeError, "not a sequence");
        return false;
    }
    PyObject *seq = PySequence_Fast(o, "not a sequence");
    if (!seq)
        return false;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(seq);
    bool ok = n == size[d];
    if (!ok) {
        PyErr_Format(PyExc_ValueError, "expected sequence of length %lld at dim %d (got %zd)",
                     (long long)size[d], d, n);
        py_add_hints();
    }
    for (Py_ssize_t i = 0; ok && i < PySequence_Fast_GET_SIZE(seq); i++)
        ok = fill(PySequence_Fast_GET_ITEM(seq, i), d + 1, ndim, size, dt, at);
    if (ok && PySequence_Fast_GET_SIZE(seq) != n) {
        PyErr_SetString(PyExc_RuntimeError, "the sequence changed its length while it was read");
        ok = false;
    }
    Py_DECREF(seq);
    return ok;
}

static tp_tensor *cast(tp_tensor *t, int dt) /* steals t */
{
    tp_err err = { 0 };
    if (!t || dt == DT_none || t->dt == dt)
        return t;
    tp_tensor *c = tensor_cast(t, (dtype)dt, &err);
    tensor_unref(t);
    if (!c)
        py_raise(&err);
    return c;
}

tp_tensor *py_tensor_of(PyObject *o, int dt)
{
    symint size[TP_MAX_DIMS];
    int ndim = 0, found = DT_none;
    tp_err err = { 0 };

    if (py_is_tensor(o)) {
        static py_row_ref detach = PY_ROW("detach"), copy = PY_ROW("_to_copy");
        tp_tensor *d = py_row_t(&detach, (tp_val[]){ vT(py_tensor(o)) }, 1, &err), *c = NULL;
        if (d)
            c = py_row_t(&copy, (tp_val[]){ vT(d), vDT(dt == DT_none ? d->dt : dt) }, 2, &err);
        tensor_unref(d);
        if (!c)
            py_raise(&err);
        return c;
    }
    if (is_text(o)) {
        PyErr_Format(PyExc_TypeError, "new(): invalid data type '%s'", Py_TYPE(o)->tp_name);
        return NULL;
    }
    if (py_is_foreign(o)) {
        PyObject *same = PyObject_CallMethod(py_module, "from_dlpack", "O", o);
        tp_tensor *t = same ? py_tensor_of(same, dt) : NULL;
        Py_XDECREF(same);
        return t;
    }
    if (is_array(o))
        return cast(py_tensor_of_array(o, false), dt);
    if (is_cuda_array(o)) {
        tp_tensor *here = py_tensor_of_cuda_array(o);
        PyObject *same = here ? py_wrap(here) : NULL;
        tp_tensor *t = same ? py_tensor_of(same, dt) : NULL;
        Py_XDECREF(same);
        return t;
    }
    if (PySequence_Check(o) && !PyDict_Check(o)) {
        if (!find_sizes(o, &ndim, size))
            return NULL;
    } else if (dt != DT_none && number_dtype(o) == DT_none && !PyNumber_Check(o)) {
        PyErr_Format(PyExc_RuntimeError, "Could not infer dtype of %s", Py_TYPE(o)->tp_name);
        py_add_hints();
        return NULL;
    }
    if (dt == DT_none) {
        if (!infer(o, 0, &found))
            return NULL;
        if (found == DT_none)
            found = CX->default_dtype; /* no element at all */
        dt = found;
    }
    tp_tensor *t = tensor_new((dtype)dt, ndim, size, &err);
    if (!t) {
        py_raise(&err);
        return NULL;
    }
    if (t->numel) {
        char *at = tensor_host(t);
        if (!fill(o, 0, ndim, size, (dtype)dt, &at)) {
            tensor_unref(t);
            return NULL;
        }
    }
    return t;
}

/* ---- taper.tensor, as_tensor, from_numpy, frombuffer ---- */
static PyObject *finish(tp_tensor *t, PyObject *device, PyObject *requires_grad,
                        const char *fn) /* steals t */
{
    tp_err err = { 0 };
    tp_device d = CX->default_device;
    bool grad = false;
    if (!t || !py_take_bool(fn, "requires_grad", requires_grad, &grad))
        goto fail;
    if (device && device != Py_None && !py_to_device(device, &d, &err)) {
        if (!err.kind && !PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "%s(): argument 'device' must be %s.device, not %s", fn, py_prefix,
                         Py_TYPE(device)->tp_name);
        goto fail;
    }
    if (d.kind != tensor_device(t).kind) {
        static py_row_ref copy = PY_ROW("_to_copy");
        tp_tensor *m = py_row_t(&copy, (tp_val[]){ vT(t), vDT(t->dt), vNone, vDev(d) }, 4, &err);
        tensor_unref(t);
        t = m;
        if (!t)
            goto fail;
    }
    if (CX->inference_mode)
        t->flags |= TF_inference;
    PyObject *o = py_wrap(t);
    if (o && grad && PyObject_SetAttrString(o, "requires_grad", Py_True) < 0)
        Py_CLEAR(o);
    return o;
fail:
    tensor_unref(t);
    return py_raise(&err);
}

static bool take_dtype(const char *fn, PyObject *o, int *dt)
{
    dtype d;
    *dt = DT_none;
    if (!o || o == Py_None)
        return true;
    tp_err err = { 0 };
    if (py_absent_dtype(o, &err)) {
        py_raise(&err);
        return false;
    }
    if (!py_to_dtype(o, &d)) {
        PyErr_Format(PyExc_TypeError, "%s(): argument 'dtype' must be %s.dtype, not %s", fn, py_prefix,
                     Py_TYPE(o)->tp_name);
        return false;
    }
    *dt = d;
    return true;
}

static PyObject *f_tensor(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "data", "dtype", "device", "requires_grad", "pin_memory", "names" };
    PyObject *a[6];
    int dt;
    if (!py_take("tensor", names, 6, 1, 1, args, nargs, kw, a) || !take_dtype("tensor", a[1], &dt))
        return NULL;
    if (py_is_tensor(a[0]) &&
        PyErr_WarnFormat(PyExc_UserWarning, 1,
                         "To copy construct from a tensor, it is recommended to use "
                         "sourceTensor.detach().clone() or "
                         "sourceTensor.detach().clone().requires_grad_(True), rather than "
                         "%s.tensor(sourceTensor).",
                         py_prefix) < 0)
        return NULL;
    tp_tensor *t = py_tensor_of(a[0], dt);
    if (!a[2] && t && py_is_tensor(a[0]) && tensor_device(t).kind != DEV_cpu) {
        PyObject *dev = py_device(tensor_device(t)), *r = finish(t, dev, a[3], "tensor");
        Py_XDECREF(dev);
        return r;
    }
    return finish(t, a[2], a[3], "tensor");
}

static PyObject *f_as_tensor(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "data", "dtype", "device" };
    PyObject *a[3];
    int dt;
    if (!py_take("as_tensor", names, 3, 3, 1, args, nargs, kw, a) || !take_dtype("as_tensor", a[1], &dt))
        return NULL;
    if (py_is_tensor(a[0])) {
        bool keep = (dt == DT_none || dt == py_tensor(a[0])->dt) && (!a[2] || a[2] == Py_None);
        if (keep)
            return Py_NewRef(a[0]);
        PyObject *kwargs = PyDict_New(), *to = PyObject_GetAttrString(a[0], "to"), *none = PyTuple_New(0),
                 *r = NULL;
        if (kwargs && to && none && (!a[1] || PyDict_SetItemString(kwargs, "dtype", a[1]) >= 0) &&
            (!a[2] || PyDict_SetItemString(kwargs, "device", a[2]) >= 0))
            r = PyObject_Call(to, none, kwargs);
        Py_XDECREF(kwargs);
        Py_XDECREF(to);
        Py_XDECREF(none);
        return r;
    }
    if (is_cuda_array(a[0])) {
        tp_tensor *here = py_tensor_of_cuda_array(a[0]);
        PyObject *same = here ? py_wrap(here) : NULL,
                 *again[3] = { same, a[1] ? a[1] : Py_None, a[2] ? a[2] : Py_None };
        PyObject *r = same ? f_as_tensor(m, again, 3, NULL) : NULL;
        Py_XDECREF(same);
        return r;
    }
    PyObject *bytes = py_storage_tensor(a[0], dt == DT_none ? CX->default_dtype : (dtype)dt);
    if (bytes || PyErr_Occurred())
        return bytes;
    if (is_array(a[0]))
        return finish(cast(py_tensor_of_array(a[0], true), dt), a[2], NULL, "as_tensor");
    return finish(py_tensor_of(a[0], dt), a[2], NULL, "as_tensor");
}

static PyObject *f_from_numpy(PyObject *m, PyObject *o)
{
    if (!is_array(o) || !strcmp(Py_TYPE(o)->tp_name, "memoryview"))
        return PyErr_Format(PyExc_TypeError, "expected np.ndarray (got %s)", Py_TYPE(o)->tp_name);
    tp_tensor *t = py_tensor_of_array(o, true);
    if (!t)
        return NULL;
    if ((t->storage->flags & ST_readonly) &&
        PyErr_WarnEx(PyExc_UserWarning,
                     "The given NumPy array is not writable, and tensors do not support non-writable memory: "
                     "writing to this tensor is undefined. Copy the array first to protect its data.",
                     1) < 0) {
        tensor_unref(t);
        return NULL;
    }
    return py_wrap(t);
}

static PyObject *f_frombuffer(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "buffer", "dtype", "count", "offset", "requires_grad" };
    PyObject *a[5];
    int dt;
    if (!py_take("frombuffer", names, 5, 1, 1, args, nargs, kw, a) || !take_dtype("frombuffer", a[1], &dt))
        return NULL;
    if (dt == DT_none) {
        PyErr_SetString(PyExc_TypeError, "frombuffer() missing 1 required positional arguments: \"dtype\"");
        return NULL;
    }
    if (!PyObject_CheckBuffer(a[0])) {
        PyErr_SetString(PyExc_ValueError, "object does not implement Python buffer protocol.");
        return NULL;
    }
    long long count = a[2] ? PyLong_AsLongLong(a[2]) : -1, offset = a[3] ? PyLong_AsLongLong(a[3]) : 0;
    if (PyErr_Occurred())
        return NULL;
    Py_buffer *b = PyMem_Malloc(sizeof *b);
    if (!b)
        return PyErr_NoMemory();
    if (PyObject_GetBuffer(a[0], b, PyBUF_SIMPLE) < 0) {
        PyMem_Free(b);
        return NULL;
    }
    long long es = (long long)dtype_size((dtype)dt), len = b->len;
    if (len == 0 || count == 0)
        PyErr_Format(PyExc_ValueError, "both buffer length (%lld) and count (%lld) must not be 0", len,
                     count);
    else if (offset < 0 || offset >= len)
        PyErr_Format(PyExc_ValueError,
                     "offset (%lld bytes) must be non-negative and no greater than buffer length (%lld "
                     "bytes) minus 1",
                     offset, len);
    else if (count < 0 && (len - offset) % es)
        PyErr_Format(PyExc_ValueError,
                     "buffer length (%lld bytes) after offset (%lld bytes) must be a multiple of element "
                     "size (%lld)",
                     len, offset, es);
    else if (count > 0 && count > (len - offset) / es)
        PyErr_Format(PyExc_ValueError,
                     "requested buffer length (%lld * %lld bytes) after offset (%lld bytes) must not be "
                     "greater than actual buffer length (%lld bytes)",
                     count, es, offset, len);
    if (PyErr_Occurred()) {
        PyBuffer_Release(b);
        PyMem_Free(b);
        return NULL;
    }
    symint n = count > 0 ? count : (len - offset) / es;
    tp_storage *s = storage_wrap((char *)b->buf + offset, n * es, release_buffer, b);
    if (b->readonly)
        s->flags |= ST_readonly;
    tp_tensor *t = tensor_on(s, (dtype)dt, 1, &n, NULL, 0);
    storage_unref(s);
    return finish(t, NULL, a[4], "frombuffer");
}

/* ---- Tensor(...), FloatTensor(...) and their kin ---- */
static bool with_rows(PyObject *o) /* a NumPy array with dimensions: all arrays have an __index__ */
{
    bool ok = is_array(o) && PySequence_Check(o) && PySequence_Size(o) >= 0;
    PyErr_Clear();
    return ok;
}
/* Sizes, a sequence of numbers, another tensor, or nothing. */
static tp_tensor *legacy(PyObject *args, int dt)
{
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    symint size[TP_MAX_DIMS];
    tp_err err = { 0 };
    tp_tensor *t;
    PyObject *first = n ? PyTuple_GET_ITEM(args, 0) : NULL, *sizes = args;

    if (n == 1 && py_is_tensor(first))
        return tensor_alias(py_tensor(first));
    if (n == 1 && Py_TYPE(first) == PySize_Type) {
        sizes = first;
        n = PyTuple_GET_SIZE(first);
    } else if (n == 1 && (!PyIndex_Check(first) || with_rows(first))) {
        if (PyUnicode_Check(first)) {
            PyErr_Format(PyExc_TypeError, "new(): invalid data type '%s'", Py_TYPE(first)->tp_name);
            return NULL;
        }
        if (!PySequence_Check(first)) {
            PyErr_Format(PyExc_TypeError, "new(): data must be a sequence (got %s)", Py_TYPE(first)->tp_name);
            return NULL;
        }
        return py_tensor_of(first, dt);
    }
    if (!n && sizes == args)
        size[n++] = 0;
    else {
        if (n > TP_MAX_DIMS) {
            PyErr_Format(PyExc_RuntimeError, "tensor has too many (>%d) dims", TP_MAX_DIMS);
            return NULL;
        }
        for (Py_ssize_t i = 0; i < n; i++)
            if (!py_to_symint(PyTuple_GET_ITEM(sizes, i), &size[i])) {
                PyErr_Format(PyExc_TypeError, "new(): argument %zd must be int, not %s", i + 1,
                             Py_TYPE(PyTuple_GET_ITEM(sizes, i))->tp_name);
                return NULL;
            }
    }
    t = tensor_new((dtype)dt, (int)n, size, &err);
    if (!t)
        py_raise(&err);
    return t;
}

PyObject *py_tensor_pynew(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    if (kw && PyDict_GET_SIZE(kw)) { /* data=, device='cpu' */
        PyObject *data = PyDict_GetItemString(kw, "data"), *dev = PyDict_GetItemString(kw, "device");
        tp_device d = DEVICE_CPU;
        tp_err err = { 0 };
        if (PyDict_GET_SIZE(kw) != (data != NULL) + (dev != NULL) && type == &PyTensor_Type)
            return PyErr_Format(PyExc_TypeError, "new() received an unexpected keyword argument");
        if (dev && dev != Py_None && !py_to_device(dev, &d, &err))
            return py_raise(&err);
        if (d.kind != DEV_cpu)
            return PyErr_Format(PyExc_RuntimeError,
                                "legacy constructor expects device type: cpu but device type: %s was passed",
                                device_name((dev_kind)d.kind));
        if (data && PyTuple_GET_SIZE(args) == 0) {
            PyObject *one = PyTuple_Pack(1, data);
            tp_tensor *t = one ? legacy(one, CX->default_dtype) : NULL;
            Py_XDECREF(one);
            return t ? py_wrap_as(type, t) : NULL;
        }
    }
    tp_tensor *t = legacy(args, CX->default_dtype);
    return t ? py_wrap_as(type, t) : NULL;
}

int py_tensor_pyinit(PyObject *o, PyObject *args, PyObject *kw) { return 0; }

/* _legacy_new(dtype, args) -> Tensor: FloatTensor and the others. */
static PyObject *f_legacy_new(PyObject *m, PyObject *args)
{
    PyObject *rest;
    PyDtype *d;
    tp_err err = { 0 };
    if (!PyArg_ParseTuple(args, "O!O!:_legacy_new", &PyDtype_Type, &d, &PyTuple_Type, &rest))
        return NULL;
    if (py_absent_dtype((PyObject *)d, &err))
        return py_raise(&err);
    if (PyTuple_GET_SIZE(rest) == 1 && py_is_tensor(PyTuple_GET_ITEM(rest, 0)) &&
        py_tensor(PyTuple_GET_ITEM(rest, 0))->dt != d->dt)
        return PyErr_Format(PyExc_TypeError, "expected a tensor of dtype %s (got %s)", dtype_name(d->dt),
                            dtype_name((dtype)py_tensor(PyTuple_GET_ITEM(rest, 0))->dt));
    tp_tensor *t = legacy(rest, d->dt);
    return t ? py_wrap(t) : NULL;
}

/* Tensor._make_subclass(cls, data, require_grad=False): the same bytes as an object of a subclass. */
static PyObject *m_make_subclass(PyObject *unused, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "cls", "data", "require_grad" };
    PyObject *a[3];
    bool grad = false;
    if (!py_take("_make_subclass", names, 3, 3, 2, args, nargs, kw, a) ||
        !py_take_bool("_make_subclass", "require_grad", a[2], &grad))
        return NULL;
    if (!PyType_Check(a[0]) || !PyType_IsSubtype((PyTypeObject *)a[0], &PyTensor_Type) || !py_is_tensor(a[1]))
        return PyErr_Format(PyExc_TypeError, "_make_subclass(cls, data): a subclass of Tensor and a Tensor");
    tp_tensor *t = tensor_alias(py_tensor(a[1]));
    t->flags |= py_tensor(a[1])->flags & TF_inference;
    PyObject *o = py_wrap_as((PyTypeObject *)a[0], t);
    if (o && grad && PyObject_SetAttrString(o, "requires_grad", Py_True) < 0)
        Py_CLEAR(o);
    return o;
}

/* as_subclass(cls): shares memory and history. */
static PyObject *m_as_subclass(PyObject *self, PyObject *cls)
{
    static py_row_ref alias = PY_ROW("alias");
    tp_err err = { 0 };
    if (!PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, &PyTensor_Type))
        return PyErr_Format(PyExc_TypeError, "cls must be a subclass of Tensor");
    tp_tensor *t = py_row_t(&alias, (tp_val[]){ vT(py_tensor(self)) }, 1, &err);
    return t ? py_wrap_as((PyTypeObject *)cls, t) : py_raise(&err);
}

/* new_tensor(data, dtype=, device=, requires_grad=): self's dtype and device unless told. */
static PyObject *m_new_tensor(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "data", "dtype", "device", "requires_grad" };
    PyObject *a[4];
    int dt;
    if (!py_take("new_tensor", names, 4, 1, 1, args, nargs, kw, a) || !take_dtype("new_tensor", a[1], &dt))
        return NULL;
    PyObject *dev = a[2] && a[2] != Py_None ? Py_NewRef(a[2]) : py_device(tensor_device(py_tensor(self)));
    PyObject *r = finish(py_tensor_of(a[0], dt == DT_none ? py_tensor(self)->dt : dt), dev, a[3],
                         "new_tensor");
    Py_XDECREF(dev);
    return r;
}

#define KW(f) (PyCFunction)(void (*)(void)) f, METH_FASTCALL | METH_KEYWORDS
static PyMethodDef functions[] = {
    { "tensor", KW(f_tensor),
      "tensor(data, *, dtype=None, device=None, requires_grad=False) -> Tensor\n\n>>> taper.tensor([[1, 2], "
      "[3, 4]], dtype=taper.float32)\ntensor([[1., 2.],\n        [3., 4.]])\n" },
    { "as_tensor", KW(f_as_tensor),
      "as_tensor(data, dtype=None, device=None) -> Tensor; shares when it can\n\n>>> taper.as_tensor([1, "
      "2])\ntensor([1, 2])\n" },
    { "asarray", KW(f_as_tensor),
      "asarray(data, dtype=None, device=None) -> Tensor\n\n>>> taper.asarray([1, 2])\ntensor([1, 2])\n" },
    { "from_numpy", f_from_numpy, METH_O,
      "from_numpy(array) -> Tensor sharing the array's memory\n\n>>> import numpy  # doctest: +SKIP\n>>> "
      "taper.from_numpy(numpy.ones(2))  # doctest: +SKIP\ntensor([1., 1.], dtype=taper.float64)\n" },
    { "frombuffer", KW(f_frombuffer),
      "frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False) -> Tensor sharing its "
      "memory\n\n>>> taper.frombuffer(bytearray(b'\\x01\\x02'), dtype=taper.uint8)\ntensor([1, 2], "
      "dtype=taper.uint8)\n" },
    { "_legacy_new", f_legacy_new, METH_VARARGS, "_legacy_new(dtype, args) -> Tensor" },
    { NULL }
};
static PyMethodDef methods[] = { { "as_subclass", m_as_subclass, METH_O, "as_subclass(cls) -> cls" },
                                 { "new_tensor", KW(m_new_tensor),
                                   "new_tensor(data, *, dtype=None, device=None, requires_grad=False)" },
                                 { NULL } };
static PyMethodDef make_subclass = { "_make_subclass", KW(m_make_subclass),
                                     "_make_subclass(cls, data, require_grad=False)" };

int py_init_convert(PyObject *m)
{
    PyObject *f = PyCFunction_New(&make_subclass, NULL), *s = f ? PyStaticMethod_New(f) : NULL;
    Py_XDECREF(f);
    if (!s || PyDict_SetItemString(PyTensor_Type.tp_dict, "_make_subclass", s) < 0)
        return -1;
    Py_DECREF(s);
    if (py_tensor_add_methods(methods) < 0)
        return -1;
    return PyModule_AddFunctions(m, functions);
}
