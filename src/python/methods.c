/* methods.c - Tensor methods that are no operators: conversion of type and device, small questions, views by
 * property; and the settings of the process. */
#include "python/override.h"
#include "base/pool.h"
#include "target/cuda/driver.h"
#include "ops/provider.h"

#define KW(f) (PyCFunction)(void (*)(void)) f, METH_FASTCALL | METH_KEYWORDS
static py_row_ref r_to = PY_ROW("_to_copy");

/* ---- to ---- */
typedef struct target {
    int dt; /* or DT_none */
    bool has_dev, copy, non_blocking, has_fmt;
    tp_device dev;
    memfmt fmt;
} target;

/* Is there such a device? An exception otherwise; with PyTorch's names that is PyTorch's. */
static bool has_device(tp_device d)
{
    const device_ops *o = device_ops_of(d);
    tp_err err = { 0 };
    int n = d.kind == DEV_cpu ? 1 : o->count();
    if (n && d.index < n)
        return true;
    if (!n && !strcmp(py_prefix, "torch"))
        PyErr_SetString(PyExc_AssertionError, "Torch not compiled with CUDA enabled");
    else if (n)
        PyErr_Format(PyExc_RuntimeError, "device %s:%d does not exist: this machine has %d of that kind",
                     o->name, d.index, n);
    else {
        o->alloc(d, 0, &err); /* fails with the reason */
        py_raise(&err);
    }
    return false;
}

static PyObject *convert_to(PyObject *self, const target *g)
{
    tp_tensor *t = py_tensor(self);
    tp_err err = { 0 };
    bool dtype_same = g->dt == DT_none || g->dt == t->dt;
    bool dev_same = !g->has_dev || (g->dev.kind == tensor_device(t).kind &&
                                    (g->dev.index < 0 || tensor_device(t).index < 0 ||
                                     g->dev.index == tensor_device(t).index));
    if (g->has_dev && g->dev.kind == DEV_cuda && !has_device(g->dev))
        return NULL;
    if (dtype_same && dev_same && !g->copy &&
        (!g->has_fmt || g->fmt == MF_preserve || g->fmt == tensor_stride_order(t)))
        return Py_NewRef(self);
    if (!dev_same && tensor_device(t).kind == DEV_meta) {
        PyErr_SetString(PyExc_NotImplementedError, "Cannot copy out of meta tensor; no data!");
        return NULL;
    }
    tp_val arg[7] = { vT(t),
                      dtype_same ? vNone : vDT(g->dt),
                      vNone,
                      dev_same ? vNone : vDev(g->dev),
                      vNone,
                      vB(g->non_blocking),
                      g->has_fmt && g->fmt != MF_preserve ? vMF(g->fmt) : vNone };
    bool was = cuda_copy_lazily(g->non_blocking);
    tp_tensor *r = py_row_t(&r_to, arg, 7, &err);
    cuda_copy_lazily(was);
    return r ? py_wrap(r) : py_raise(&err);
}

static PyObject *bad_to(PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    strbuf b = { 0 };
    for (Py_ssize_t i = 0; i < nargs + (kw ? PyTuple_GET_SIZE(kw) : 0); i++) {
        const char *tn = Py_TYPE(args[i])->tp_name;
        strbuf_add(&b, i ? ", " : "");
        if (i >= nargs)
            strbuf_addf(&b, "%s=", PyUnicode_AsUTF8(PyTuple_GET_ITEM(kw, i - nargs)));
        if (!strncmp(tn, "taper.", 6) && strcmp(tn, "taper.Tensor"))
            strbuf_addf(&b, "%s.%s", py_prefix, tn + 6);
        else
            strbuf_add(&b, strrchr(tn, '.') ? strrchr(tn, '.') + 1 : tn);
    }
    PyErr_Format(PyExc_TypeError,
                 "to() received an invalid combination of arguments - got (%s), but expected one of:\n"
                 " * (%s.device device = None, %s.dtype dtype = None, bool non_blocking = False, bool copy = "
                 "False, *, %s.memory_format memory_format = None)\n"
                 " * (%s.dtype dtype, bool non_blocking = False, bool copy = False, *, %s.memory_format "
                 "memory_format = None)\n"
                 " * (Tensor tensor, bool non_blocking = False, bool copy = False, *, %s.memory_format "
                 "memory_format = None)\n",
                 strbuf_str(&b), py_prefix, py_prefix, py_prefix, py_prefix, py_prefix, py_prefix);
    strbuf_free(&b);
    return NULL;
}

/* Reads the forms of to(): 1 done, 0 not one of them, -1 an exception is set. */
static int read_to(target *g, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    Py_ssize_t i = 0, nkw = kw ? PyTuple_GET_SIZE(kw) : 0;
    tp_err err = { 0 };
    dtype d;
    if (i < nargs) {
        if (py_is_tensor(args[0])) {
            g->dt = py_tensor(args[0])->dt;
            g->dev = tensor_device(py_tensor(args[0]));
            g->has_dev = true;
            i++;
        } else if (py_absent_dtype(args[0], &err)) {
            py_raise(&err);
            return -1;
        } else if (py_to_dtype(args[0], &d)) {
            g->dt = d;
            i++;
        } else {
            if (PyLong_Check(args[0]) && !PyBool_Check(args[0]) && nargs == 1) {
                PyErr_SetString(PyExc_RuntimeError,
                                "Cannot access accelerator device when none is available.");
                return -1;
            }
            if (args[0] != Py_None) {
                if (!py_to_device(args[0], &g->dev, &err)) {
                    if (err.kind)
                        py_raise(&err);
                    return err.kind || PyErr_Occurred() ? -1 : 0;
                }
                g->has_dev = true;
            }
            i++;
            if (i < nargs && !PyBool_Check(args[i])) {
                if (args[i] != Py_None) {
                    if (!py_to_dtype(args[i], &d))
                        return 0;
                    g->dt = d;
                }
                i++;
            }
        }
    }
    bool *flags[2] = { &g->non_blocking, &g->copy };
    for (int k = 0; i < nargs; i++, k++) {
        if (k > 1 || !PyBool_Check(args[i]))
            return 0;
        *flags[k] = args[i] == Py_True;
    }
    for (Py_ssize_t k = 0; k < nkw; k++) {
        const char *n = PyUnicode_AsUTF8(PyTuple_GET_ITEM(kw, k));
        PyObject *v = args[nargs + k];
        if (!n)
            return -1;
        if (!strcmp(n, "dtype") && py_absent_dtype(v, &err)) {
            py_raise(&err);
            return -1;
        }
        if (!strcmp(n, "dtype") && (v == Py_None || py_to_dtype(v, &d))) {
            if (v != Py_None)
                g->dt = d;
        } else if (!strcmp(n, "device") && v != Py_None && py_to_device(v, &g->dev, &err))
            g->has_dev = true;
        else if (!strcmp(n, "device") && v == Py_None)
            continue;
        else if (!strcmp(n, "other") && py_is_tensor(v)) {
            g->dt = py_tensor(v)->dt;
            g->dev = tensor_device(py_tensor(v));
            g->has_dev = true;
        } else if (!strcmp(n, "non_blocking") && PyBool_Check(v))
            g->non_blocking = v == Py_True;
        else if (!strcmp(n, "copy") && PyBool_Check(v))
            g->copy = v == Py_True;
        else if (!strcmp(n, "memory_format") && (v == Py_None || Py_TYPE(v) == &PyMemfmt_Type)) {
            if (v != Py_None) {
                g->has_fmt = true;
                g->fmt = (memfmt)((PyEnumObj *)v)->value;
            }
        } else {
            if (err.kind)
                py_raise(&err);
            return err.kind ? -1 : 0;
        }
    }
    return 1;
}

static PyObject *m_to(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    target g = { .dt = DT_none };
    PyObject *res;
    if (TP_UNLIKELY(py_overrides) && py_taken_method("to", self, args, nargs, kw, &res))
        return res;
    int r = read_to(&g, args, nargs, kw);
    if (r > 0)
        return convert_to(self, &g);
    return r ? NULL : bad_to(args, nargs, kw);
}

/* _parse_to(*args, **kw) -> (device, dtype, non_blocking, memory_format): Module.to reads its arguments with
 * it. */
static PyObject *f_parse_to(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    target g = { .dt = DT_none };
    int r = read_to(&g, args, nargs, kw);
    if (r <= 0)
        return r ? NULL : bad_to(args, nargs, kw);
    return Py_BuildValue("(NNNN)", g.has_dev ? py_device(g.dev) : Py_NewRef(Py_None),
                         g.dt == DT_none ? Py_NewRef(Py_None) : Py_NewRef(py_dtype((dtype)g.dt)),
                         PyBool_FromLong(g.non_blocking),
                         g.has_fmt ? Py_NewRef(py_memfmt(g.fmt)) : Py_NewRef(Py_None));
}

static PyObject *cast_to(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kw, int dt,
                         const char *fn)
{
    static const char *const names[] = { "memory_format" };
    PyObject *a[1], *res;
    target g = { .dt = dt };
    if (TP_UNLIKELY(py_overrides) && py_taken_method(fn, self, args, nargs, kw, &res))
        return res;
    if (!py_take(fn, names, 1, 0, 0, args, nargs, kw, a))
        return NULL;
    if (a[0] && a[0] != Py_None) {
        if (Py_TYPE(a[0]) != &PyMemfmt_Type)
            return PyErr_Format(PyExc_TypeError,
                                "%s(): argument 'memory_format' must be %s.memory_format, not %s", fn,
                                py_prefix, Py_TYPE(a[0])->tp_name);
        g.has_fmt = true;
        g.fmt = (memfmt)((PyEnumObj *)a[0])->value;
    }
    return convert_to(self, &g);
}
#define CAST(name, id)                                                                     \
    static PyObject *m_##name(PyObject *s, PyObject *const *a, Py_ssize_t n, PyObject *kw) \
    {                                                                                      \
        return cast_to(s, a, n, kw, DT_##id, #name);                                       \
    }
CAST(float, f32)
CAST(double, f64)
CAST(half, f16)
CAST(bfloat16, bf16)
CAST(cfloat, c64)
CAST(cdouble, c128)
CAST(long, i64)
CAST(int, i32)
CAST(short, i16)
CAST(char, i8)
CAST(byte, u8)
CAST(bool, bool)

static PyObject *m_cpu(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    target g = { .dt = DT_none, .has_dev = true, .dev = DEVICE_CPU };
    if (nargs)
        return PyErr_Format(PyExc_TypeError, "cpu() takes 0 positional arguments but %zd %s given", nargs,
                            nargs > 1 ? "were" : "was");
    return convert_to(self, &g);
}
static PyObject *m_cuda(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "device", "non_blocking", "memory_format" };
    PyObject *a[3];
    target g = { .dt = DT_none, .has_dev = true, .dev = { DEV_cuda, -1 } };
    tp_err err = { 0 };
    if (!py_take("cuda", names, 3, 3, 0, args, nargs, kw, a))
        return NULL;
    if (a[0] && PyLong_Check(a[0]))
        g.dev.index = (int8_t)PyLong_AsLong(a[0]);
    else if (a[0] && a[0] != Py_None && !py_to_device(a[0], &g.dev, &err))
        return err.kind
                   ? py_raise(&err)
                   : PyErr_Format(PyExc_TypeError, "cuda(): argument 'device' must be a device or a number");
    if (g.dev.kind != DEV_cuda)
        return PyErr_Format(PyExc_RuntimeError, "Invalid device, must be cuda device");
    g.non_blocking = a[1] && a[1] == Py_True;
    return convert_to(self, &g);
}

/* type() -> 'taper.FloatTensor'; type(dtype or name or class) -> Tensor */
static PyObject *m_type(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "dtype", "non_blocking" };
    PyObject *a[2];
    target g = { .dt = DT_none };
    dtype d;
    if (!py_take("type", names, 2, 2, 0, args, nargs, kw, a))
        return NULL;
    if (!a[0] || a[0] == Py_None)
        return PyUnicode_FromFormat("%s.%sTensor", py_prefix, dtype_rows[py_tensor(self)->dt].gname);
    if (py_to_dtype(a[0], &d))
        g.dt = d;
    else if (PyUnicode_Check(a[0])) {
        const char *s = PyUnicode_AsUTF8(a[0]);
        for (int i = 0; s && i < DT_COUNT; i++) {
            char want[64];
            snprintf(want, sizeof want, ".%sTensor", dtype_rows[i].gname);
            if ((!strncmp(s, "torch", 5) || !strncmp(s, "taper", 5)) && !strcmp(s + 5, want))
                g.dt = i;
        }
        if (s && (!strcmp(s, "torch.Tensor") || !strcmp(s, "taper.Tensor")))
            g.dt = CX->default_dtype;
    } else if (PyType_Check(a[0])) { /* taper.FloatTensor */
        PyObject *t = PyObject_GetAttrString(a[0], "dtype");
        if (t && py_to_dtype(t, &d))
            g.dt = d;
        Py_XDECREF(t);
        PyErr_Clear();
    }
    if (g.dt == DT_none)
        return PyErr_Format(PyExc_ValueError, "invalid type: %R", a[0]);
    return convert_to(self, &g);
}

static PyObject *m_type_as(PyObject *self, PyObject *other)
{
    if (!py_is_tensor(other))
        return PyErr_Format(PyExc_TypeError,
                            "type_as(): argument 'other' (position 1) must be Tensor, not %s",
                            Py_TYPE(other)->tp_name);
    target g = { .dt = py_tensor(other)->dt, .has_dev = true, .dev = tensor_device(py_tensor(other)) };
    return convert_to(self, &g);
}

/* ---- small questions ---- */
static PyObject *m_false(PyObject *o, PyObject *const *a, Py_ssize_t n, PyObject *kw) { Py_RETURN_FALSE; }
static PyObject *m_no(PyObject *o, PyObject *x) { Py_RETURN_FALSE; }
static PyObject *m_is_complex(PyObject *o, PyObject *x)
{
    return PyBool_FromLong(dtype_is_complex((dtype)py_tensor(o)->dt));
}
static PyObject *m_itself(PyObject *o, PyObject *x) { return Py_NewRef(o); }
static PyObject *m_self(PyObject *o, PyObject *const *a, Py_ssize_t n, PyObject *kw) { return Py_NewRef(o); }
static PyObject *m_get_device(PyObject *o, PyObject *x) { return PyLong_FromLong(-1); }
static PyObject *m_is_signed(PyObject *o, PyObject *x)
{
    int d = py_tensor(o)->dt;
    return PyBool_FromLong(d != DT_bool && d != DT_u8 && !(d >= DT_u16 && d <= DT_u64));
}
static PyObject *m_is_same_size(PyObject *o, PyObject *x)
{
    if (!py_is_tensor(x))
        return PyErr_Format(PyExc_TypeError,
                            "is_same_size(): argument 'other' (position 1) must be Tensor, not %s",
                            Py_TYPE(x)->tp_name);
    return PyBool_FromLong(tensor_same_size(py_tensor(o), py_tensor(x)));
}
static PyObject *m_is_set_to(PyObject *o, PyObject *x)
{
    if (!py_is_tensor(x))
        return PyErr_Format(PyExc_TypeError,
                            "is_set_to(): argument 'tensor' (position 1) must be Tensor, not %s",
                            Py_TYPE(x)->tp_name);
    tp_tensor *a = py_tensor(o), *b = py_tensor(x);
    return PyBool_FromLong(a->storage == b->storage && a->offset == b->offset && tensor_same_size(a, b) &&
                           !memcmp(a->stride, b->stride, sizeof(symint) * a->ndim));
}
static PyObject *m_positive(PyObject *o, PyObject *x) /* itself */
{
    if (py_tensor(o)->dt == DT_bool)
        return PyErr_Format(PyExc_RuntimeError, "The `+` operator, on a bool tensor is not supported.");
    return Py_NewRef(o);
}
static void pinned_release(void *ctx, void *p) { cuda_pinned_free(p); }
static PyObject *m_pin_memory(PyObject *o, PyObject *const *a, Py_ssize_t n, PyObject *kw)
{
    tp_tensor *t = py_tensor(o);
    tp_err err = { 0 };
    if (!cuda_available()) {
        PyErr_SetString(PyExc_RuntimeError, "Cannot access accelerator device when none is available.");
        return NULL;
    }
    if (tensor_device(t).kind != DEV_cpu)
        return PyErr_Format(PyExc_RuntimeError,
                            "cannot pin a tensor on '%s': only dense CPU tensors can be pinned",
                            device_name((dev_kind)tensor_device(t).kind));
    if (tensor_is_fake(t) || cuda_is_pinned(tensor_data(t)))
        return Py_NewRef(o);
    int64_t bytes = t->numel * (int64_t)dtype_size((dtype)t->dt);
    void *p = cuda_pinned((size_t)MAX(bytes, 1), &err);
    if (!p)
        return py_raise(&err);
    tp_storage *s = storage_wrap(p, bytes, pinned_release, NULL);
    symint stride[TP_MAX_DIMS];
    shape_contiguous_strides(t->ndim, t->size, stride);
    tp_tensor *r = tensor_on(s, (dtype)t->dt, t->ndim, t->size, stride, 0);
    storage_unref(s);
    if (!tensor_copy(r, t, &err)) {
        tensor_unref(r);
        return py_raise(&err);
    }
    return py_wrap(r);
}
static PyObject *m_is_pinned(PyObject *o, PyObject *const *a, Py_ssize_t n, PyObject *kw)
{
    tp_tensor *t = py_tensor(o);
    return PyBool_FromLong(tensor_device(t).kind == DEV_cpu && !tensor_is_fake(t) && t->numel &&
                           cuda_is_pinned(tensor_data(t)));
}
static PyObject *m_is_inference(PyObject *o, PyObject *x)
{
    return PyBool_FromLong((py_tensor(o)->flags & TF_inference) != 0);
}
static PyObject *m_is_nonzero(PyObject *o, PyObject *x)
{
    int b = PyObject_IsTrue(o);
    return b < 0 ? NULL : PyBool_FromLong(b);
}
static PyObject *m_dim_order(PyObject *o, PyObject *x)
{
    tp_tensor *t = py_tensor(o);
    PyObject *r = PyTuple_New(t->ndim);
    int order[TP_MAX_DIMS];
    for (int i = 0; i < t->ndim; i++) { /* by falling stride, stable */
        int j = i;
        while (j > 0 && sym_lt(t->stride[order[j - 1]], t->stride[i]))
            order[j] = order[j - 1], j--;
        order[j] = i;
    }
    for (int i = 0; r && i < t->ndim; i++)
        PyTuple_SET_ITEM(r, i, PyLong_FromLong(order[i]));
    return r;
}
static PyObject *m_complex(PyObject *o, PyObject *x)
{
    if (dtype_is_complex((dtype)py_tensor(o)->dt))
        return PyObject_CallMethod(o, "item", NULL);
    PyObject *f = PyNumber_Float(o), *r = f ? PyComplex_FromDoubles(PyFloat_AS_DOUBLE(f), 0) : NULL;
    Py_XDECREF(f);
    return r;
}
static PyObject *m_reversed(PyObject *o, PyObject *x)
{
    tp_tensor *t = py_tensor(o);
    symint d = 0;
    static py_row_ref flip = PY_ROW("flip");
    tp_err err = { 0 };
    if (t->ndim == 0)
        return Py_NewRef(o);
    tp_tensor *r = py_row_t(&flip, (tp_val[]){ vT(t), vIs(&d, 1) }, 2, &err);
    return r ? py_wrap(r) : py_raise(&err);
}

/* ---- views by property ---- */
static PyObject *transposed(PyObject *o, bool matrix, const char *name)
{
    static py_row_ref permute = PY_ROW("permute"), transpose = PY_ROW("transpose.int");
    tp_tensor *t = py_tensor(o), *r;
    tp_err err = { 0 };
    if (matrix) {
        if (t->ndim == 1)
            return PyErr_Format(
                PyExc_RuntimeError,
                "tensor.%s is only supported on matrices or batches of matrices. Got %d-D tensor.", name,
                t->ndim);
        if (t->ndim == 0)
            return Py_NewRef(o);
        r = py_row_t(&transpose, (tp_val[]){ vT(t), vI(-2), vI(-1) }, 3, &err);
    } else {
        symint dims[TP_MAX_DIMS];
        for (int i = 0; i < t->ndim; i++)
            dims[i] = t->ndim - 1 - i;
        if (t->ndim != 2 && t->ndim != 0 &&
            PyErr_WarnEx(PyExc_UserWarning,
                         "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is "
                         "deprecated. Consider `x.mT` to transpose batches of matrices or "
                         "`x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a "
                         "tensor.",
                         1) < 0)
            return NULL;
        r = t->ndim == 2 ? py_row_t(&transpose, (tp_val[]){ vT(t), vI(0), vI(1) }, 3, &err)
                         : py_row_t(&permute, (tp_val[]){ vT(t), vIs(dims, t->ndim) }, 2, &err);
    }
    return r ? py_wrap(r) : py_raise(&err);
}
static PyObject *conjugated(PyObject *o) /* takes o */
{
    if (!o || !dtype_is_complex((dtype)py_tensor(o)->dt))
        return o;
    PyObject *r = py_op("conj", &o, 1);
    Py_DECREF(o);
    return r;
}
static PyObject *get_T(PyObject *o, void *x)
{
    if (x && py_tensor(o)->ndim != 2 && py_tensor(o)->ndim != 0)
        return PyErr_Format(
            PyExc_RuntimeError, "tensor.H is only supported on matrices (2-D tensors). Got %d-D tensor.%s",
            py_tensor(o)->ndim,
            py_tensor(o)->ndim > 2 ? " For batches of matrices, consider using tensor.mH" : "");
    if (x && !py_tensor(o)->ndim)
        return conjugated(Py_NewRef(o));
    return x ? conjugated(transposed(o, false, "T")) : transposed(o, false, "T");
}
static PyObject *get_mT(PyObject *o, void *x)
{
    return x ? conjugated(transposed(o, true, "mH")) : transposed(o, true, "mT");
}
/* The parts are views; a real tensor is its own real part. */
static PyObject *get_part(PyObject *o, void *imag)
{
    if (!imag && !dtype_is_complex((dtype)py_tensor(o)->dt))
        return Py_NewRef(o);
    return py_op(imag ? "imag" : "real", &o, 1);
}
static int set_part(PyObject *o, PyObject *v, void *imag)
{
    PyObject *p = v ? get_part(o, imag) : NULL, *r = NULL;
    if (!v)
        PyErr_SetString(PyExc_TypeError, "the parts of a tensor cannot be deleted");
    if (p)
        r = py_is_tensor(v) ? PyObject_CallMethod(p, "copy_", "O", v)
                            : PyObject_CallMethod(p, "fill_", "O", v);
    Py_XDECREF(p);
    Py_XDECREF(r);
    return r ? 0 : -1;
}
static PyObject *get_is_cpu(PyObject *o, void *x)
{
    return PyBool_FromLong(tensor_device(py_tensor(o)).kind == DEV_cpu);
}
static PyObject *get_is_meta(PyObject *o, void *x)
{
    return PyBool_FromLong(tensor_device(py_tensor(o)).kind == DEV_meta);
}
static PyObject *get_false(PyObject *o, void *x) { Py_RETURN_FALSE; }
static PyObject *get_none(PyObject *o, void *x) { Py_RETURN_NONE; }
static PyObject *m_is_fake(PyObject *o, PyObject *x) { return PyBool_FromLong(tensor_is_fake(py_tensor(o))); }

/* data: the same memory outside of autograd; assigning swaps what the tensor looks at. */
static PyObject *get_data(PyObject *o, void *x)
{
    static py_row_ref detach = PY_ROW("detach");
    tp_err err = { 0 };
    if (!py_tensor(o)->node) /* no view relation: writes through .data are nobody's business */
        return py_wrap(tensor_alias(py_tensor(o)));
    tp_tensor *t = py_row_t(&detach, (tp_val[]){ vT(py_tensor(o)) }, 1, &err);
    return t ? py_wrap(t) : py_raise(&err);
}
static int set_data(PyObject *o, PyObject *v, void *x)
{
    tp_err err = { 0 };
    if (!v || !py_is_tensor(v)) {
        PyErr_Format(PyExc_TypeError, "Variable data has to be a tensor, but got %s",
                     v ? Py_TYPE(v)->tp_name : "nothing");
        return -1;
    }
    tp_tensor *t = py_tensor(o), *s = py_tensor(v);
    if (!tensor_reset(t, s->storage, (dtype)s->dt, s->ndim, s->size, s->stride, s->offset, &err)) {
        py_raise(&err);
        return -1;
    }
    return 0;
}

/* ---- settings ---- */
static PyObject *f_set_rough_products(PyObject *m, PyObject *on)
{
    int yes = PyObject_IsTrue(on);
    if (yes < 0)
        return NULL;
    ops_set_rough_products(yes);
    Py_RETURN_NONE;
}
static PyObject *f_get_default_dtype(PyObject *m, PyObject *x)
{
    return Py_NewRef(py_dtype(CX->default_dtype));
}
static PyObject *f_set_default_dtype(PyObject *m, PyObject *d)
{
    dtype dt;
    if (Py_TYPE(d) != &PyDtype_Type || !py_to_dtype(d, &dt)) {
        PyErr_SetString(PyExc_TypeError,
                        "invalid dtype object: only floating-point types are supported as the default type");
        return NULL;
    }
    if (!dtype_is_float(dt)) {
        PyErr_SetString(PyExc_TypeError, "only floating-point types are supported as the default type");
        return NULL;
    }
    CX->default_dtype = dt;
    Py_RETURN_NONE;
}
static PyObject *f_get_default_device(PyObject *m, PyObject *x) { return py_device(CX->default_device); }
static PyObject *f_set_default_device(PyObject *m, PyObject *d)
{
    tp_device dev = DEVICE_CPU;
    tp_err err = { 0 };
    if (d != Py_None && !py_to_device(d, &dev, &err)) {
        if (!err.kind)
            err_set(&err, ERR_type, "set_default_device(): expected a device or None, not %s",
                    Py_TYPE(d)->tp_name);
        return py_raise(&err);
    }
    if (dev.kind == DEV_cuda && !has_device(dev))
        return NULL;
    CX->default_device = dev;
    Py_RETURN_NONE;
}
static PyObject *f_get_num_threads(PyObject *m, PyObject *x) { return PyLong_FromLong(pool_threads()); }
static PyObject *f_set_num_threads(PyObject *m, PyObject *n)
{
    if (!PyLong_Check(n))
        return PyErr_Format(PyExc_RuntimeError, "set_num_threads expects an int, but got %s",
                            Py_TYPE(n)->tp_name);
    long v = PyLong_AsLong(n);
    if (v == -1 && PyErr_Occurred())
        return NULL;
    if (v <= 0)
        return PyErr_Format(PyExc_RuntimeError, "set_num_threads expects a positive integer");
    pool_set_threads(v > POOL_MAX ? POOL_MAX : (int)v);
    Py_RETURN_NONE;
}
static PyObject *f_deterministic(PyObject *m, PyObject *args) { return PyBool_FromLong(CX->deterministic); }
static PyObject *f_set_deterministic(PyObject *m, PyObject *v)
{
    CX->deterministic = v == Py_True;
    Py_RETURN_NONE;
}
static PyObject *f_promote(PyObject *m, PyObject *args)
{
    PyObject *a, *b;
    dtype x, y;
    if (!PyArg_ParseTuple(args, "OO:promote_types", &a, &b))
        return NULL;
    for (int i = 0; i < 2; i++)
        if (!py_to_dtype(i ? b : a, i ? &y : &x))
            return PyErr_Format(PyExc_TypeError,
                                "promote_types(): argument 'type%d' (position %d) must be %s.dtype, not %s",
                                i + 1, i + 1, py_prefix, Py_TYPE(i ? b : a)->tp_name);
    return Py_NewRef(py_dtype(dtype_promote(x, y)));
}
static bool join(dtype_join *j, PyObject *o, int pos)
{
    if (py_is_tensor(o))
        dtype_join_add(j, (dtype)py_tensor(o)->dt, py_tensor(o)->ndim, false);
    else if (PyBool_Check(o))
        dtype_join_add(j, DT_bool, 0, true);
    else if (PyLong_Check(o) || py_is_symint(o))
        dtype_join_add(j, DT_i64, 0, true);
    else if (PyFloat_Check(o))
        dtype_join_add(j, CX->default_dtype, 0, true);
    else {
        PyErr_Format(PyExc_TypeError, "result_type(): argument %d must be Tensor or Number, not %s", pos,
                     Py_TYPE(o)->tp_name);
        return false;
    }
    return true;
}
static PyObject *f_result_type(PyObject *m, PyObject *args)
{
    PyObject *a, *b;
    dtype_join j = DTYPE_JOIN_INIT;
    if (!PyArg_ParseTuple(args, "OO:result_type", &a, &b) || !join(&j, a, 1) || !join(&j, b, 2))
        return NULL;
    return Py_NewRef(py_dtype(dtype_join_result(&j)));
}
static PyObject *f_memory(PyObject *m, PyObject *args) /* reset: the peak is counted anew from here */
{
    int reset = 0;
    if (!PyArg_ParseTuple(args, "|p:_memory", &reset))
        return NULL;
    long long peak = storage_peak_bytes(reset);
    return Py_BuildValue("(LL)", (long long)storage_live_bytes(), peak);
}
/* _fail_allocation(n) -> what was left of the last n: the n-th storage allocation from now fails (0: none). */
static PyObject *f_fail(PyObject *m, PyObject *n)
{
    long long v = PyLong_AsLongLong(n);
    if (v == -1 && PyErr_Occurred())
        return NULL;
    return PyLong_FromLongLong(storage_fail_after(v));
}

static PyMethodDef methods[] = {
    { "to", KW(m_to), "to(device or dtype or tensor, ...) -> Tensor" },
    { "float", KW(m_float), "float() -> float32" },
    { "double", KW(m_double), "double() -> float64" },
    { "half", KW(m_half), "half() -> float16" },
    { "bfloat16", KW(m_bfloat16), "bfloat16() -> bfloat16" },
    { "cfloat", KW(m_cfloat), "cfloat() -> complex64" },
    { "cdouble", KW(m_cdouble), "cdouble() -> complex128" },
    { "long", KW(m_long), "long() -> int64" },
    { "int", KW(m_int), "int() -> int32" },
    { "short", KW(m_short), "short() -> int16" },
    { "char", KW(m_char), "char() -> int8" },
    { "byte", KW(m_byte), "byte() -> uint8" },
    { "bool", KW(m_bool), "bool() -> bool" },
    { "cpu", KW(m_cpu), "cpu() -> Tensor" },
    { "cuda", KW(m_cuda), "cuda(): not available in this build" },
    { "type", KW(m_type), "type(dtype=None) -> str or Tensor" },
    { "type_as", m_type_as, METH_O, "type_as(other) -> Tensor" },
    { "is_pinned", KW(m_is_pinned), "is_pinned() -> bool: in memory that a GPU copies without a detour" },
    { "is_shared", KW(m_false), "is_shared() -> False" },
    { "is_complex", m_is_complex, METH_NOARGS, "is_complex() -> bool" },
    { "is_conj", m_no, METH_NOARGS, "is_conj() -> False" },
    { "is_neg", m_no, METH_NOARGS, "is_neg() -> False" },
    { "is_coalesced", m_no, METH_NOARGS, NULL },
    { "share_memory_", KW(m_self), "share_memory_() -> self; storage is not moved" },
    { "resolve_conj", m_itself, METH_NOARGS, "resolve_conj() -> self" },
    { "resolve_neg", m_itself, METH_NOARGS, "resolve_neg() -> self" },
    { "pin_memory", KW(m_pin_memory), "pin_memory() -> Tensor: a copy that a GPU reads without a detour" },
    { "get_device", m_get_device, METH_NOARGS, "get_device() -> -1 on the cpu" },
    { "is_signed", m_is_signed, METH_NOARGS, "is_signed() -> bool" },
    { "is_same_size", m_is_same_size, METH_O, "is_same_size(other) -> bool" },
    { "is_set_to", m_is_set_to, METH_O, "is_set_to(tensor) -> bool: same memory, same shape" },
    { "is_inference", m_is_inference, METH_NOARGS, "is_inference() -> bool" },
    { "is_nonzero", m_is_nonzero, METH_NOARGS, "is_nonzero() -> bool" },
    { "dim_order", m_dim_order, METH_NOARGS, "dim_order() -> tuple" },
    { "_is_fake", m_is_fake, METH_NOARGS, "has no memory" },
    { "__complex__", m_complex, METH_NOARGS, NULL },
    { "__reversed__", m_reversed, METH_NOARGS, NULL },
    { "positive", m_positive, METH_NOARGS, "positive() -> Tensor: the tensor itself" },
    { NULL }
};
static PyGetSetDef getset[] = { { "T", get_T, NULL, "reversed dimensions", NULL },
                                { "H", get_T, NULL, "transpose of a matrix", (void *)1 },
                                { "mT", get_mT, NULL, "last two dimensions swapped", NULL },
                                { "mH", get_mT, NULL, "last two dimensions swapped, and conjugated",
                                  (void *)1 },
                                { "real", get_part, set_part, "the real parts, as a view", NULL },
                                { "imag", get_part, set_part, "the imaginary parts, as a view", (void *)1 },
                                { "data", get_data, set_data, "the same memory outside of autograd", NULL },
                                { "is_cpu", get_is_cpu, NULL, NULL, NULL },
                                { "is_meta", get_is_meta, NULL, NULL, NULL },
                                { "is_sparse_csr", get_false, NULL, NULL, NULL },
                                { "is_mps", get_false, NULL, NULL, NULL },
                                { "is_xpu", get_false, NULL, NULL, NULL },
                                { "is_xla", get_false, NULL, NULL, NULL },
                                { "name", get_none, NULL, NULL, NULL },
                                { NULL } };
static PyMethodDef functions[] = {
    { "get_default_dtype", f_get_default_dtype, METH_NOARGS,
      "get_default_dtype() -> dtype\n\n>>> taper.get_default_dtype()\ntaper.float32\n" },
    { "_set_rough_products", f_set_rough_products, METH_O, "products of float32 may round to bfloat16" },
    { "set_default_dtype", f_set_default_dtype, METH_O,
      "set_default_dtype(dtype)\n\n>>> taper.set_default_dtype(taper.float32)\n" },
    { "get_default_device", f_get_default_device, METH_NOARGS,
      "get_default_device() -> device\n\n>>> taper.get_default_device()\ndevice(type='cpu')\n" },
    { "set_default_device", f_set_default_device, METH_O,
      "set_default_device(device)\n\n>>> taper.set_default_device('cpu')\n" },
    { "get_num_threads", f_get_num_threads, METH_NOARGS,
      "get_num_threads() -> int\n\n>>> taper.get_num_threads() > 0\nTrue\n" },
    { "set_num_threads", f_set_num_threads, METH_O,
      "set_num_threads(n)\n\n>>> taper.set_num_threads(taper.get_num_threads())\n" },
    { "_deterministic", f_deterministic, METH_NOARGS, "_deterministic() -> bool" },
    { "_set_deterministic", f_set_deterministic, METH_O, "_set_deterministic(on)" },
    { "promote_types", f_promote, METH_VARARGS,
      "promote_types(type1, type2) -> dtype\n\n>>> taper.promote_types(taper.int32, "
      "taper.float16)\ntaper.float16\n" },
    { "result_type", f_result_type, METH_VARARGS,
      "result_type(a, b) -> dtype\n\n>>> taper.result_type(taper.tensor([1, 2]), 1.0)\ntaper.float32\n" },
    { "_parse_to", KW(f_parse_to), "_parse_to(...) -> (device, dtype, non_blocking, memory_format)" },
    { "_memory", f_memory, METH_VARARGS, "_memory(reset=False) -> (bytes of storage alive, most so far)" },
    { "_fail_allocation", f_fail, METH_O,
      "the n-th storage allocation from now fails; gives back how many were left to go" },
    { NULL }
};

int py_init_methods(PyObject *m)
{
    if (py_tensor_add_methods(methods) < 0 || py_tensor_add_getset(getset) < 0)
        return -1;
    return PyModule_AddFunctions(m, functions);
}
