/* types.c - dtype, device, memory format, layout, Size and Generator objects. */
#include "python/py.h"
#include "base/envvars.h"

/* ---- dtype ---- */
static PyObject *dtypes[DT_COUNT];
const char *py_prefix = "taper";

/* Types that programs name but no tensor here has: they can be compared and asked about, and are refused by name where one
 * would be made. Category: u unsigned, f float, c complex, q quantized. */
static const struct absent_dtype {
    const char *name, *alias;
    uint8_t size;
    char category;
} absent[] = {
    { "complex32", "chalf", 4, 'c' },
    { "float8_e4m3fnuz", "", 1, 'f' },
    { "float8_e5m2fnuz", "", 1, 'f' },
    { "float8_e8m0fnu", "", 1, 'f' },
    { "float4_e2m1fn_x2", "", 1, 'f' },
    { "quint8", "", 1, 'q' },
    { "qint8", "", 1, 'q' },
    { "qint32", "", 4, 'q' },
    { "quint4x2", "", 1, 'q' },
    { "quint2x4", "", 1, 'q' },
    { "uint4", "", 1, 'u' },
    { "int4", "", 1, 'u' },
    { "uint2", "", 1, 'u' },
    { "uint1", "", 1, 'u' },
};
static const char *name_of(PyObject *o)
{
    const PyDtype *d = (PyDtype *)o;
    return d->absent ? absent[d->absent - 1].name : dtype_name(d->dt);
}
static PyObject *dtype_repr(PyObject *o) { return PyUnicode_FromFormat("%s.%s", py_prefix, name_of(o)); }
static PyObject *dtype_reduce(PyObject *o, PyObject *unused)
{
    return PyUnicode_FromString(name_of(o)); /* pickled as taper._C.<name>: a singleton */
}
static PyObject *dtype_get(PyObject *o, void *what)
{
    dtype d = ((PyDtype *)o)->dt;
    if (((PyDtype *)o)->absent) {
        const struct absent_dtype *a = &absent[((PyDtype *)o)->absent - 1];
        switch ((intptr_t)what) {
        case 0: return PyBool_FromLong(a->category == 'f');
        case 1: return PyLong_FromLong(a->size);
        case 2: return PyBool_FromLong(a->category == 'f' || a->category == 'c');
        default: return PyBool_FromLong(a->category == 'c');
        }
    }
    switch ((intptr_t)what) {
    case 0: return PyBool_FromLong(dtype_category(d) == 2);
    case 1: return PyLong_FromSize_t(dtype_size(d));
    case 2: return PyBool_FromLong(d != DT_bool && d != DT_u8 && !(d >= DT_u16 && d <= DT_u64));
    default: return PyBool_FromLong(dtype_is_complex(d));
    }
}
static PyGetSetDef dtype_getset[] = { { "is_floating_point", dtype_get, NULL, "true for float types",
                                        (void *)0 },
                                      { "itemsize", dtype_get, NULL, "bytes per element", (void *)1 },
                                      { "is_signed", dtype_get, NULL, "can hold negative values", (void *)2 },
                                      { "is_complex", dtype_get, NULL, "true for complex types", (void *)3 },
                                      { NULL } };
/* The type of the parts, or of numbers with such parts; other types are their own. */
static PyObject *dtype_to_real(PyObject *o, PyObject *unused)
{
    return Py_NewRef(((PyDtype *)o)->absent ? o : dtypes[dtype_real_of(((PyDtype *)o)->dt)]);
}
static PyObject *dtype_to_complex(PyObject *o, PyObject *unused)
{
    dtype d = ((PyDtype *)o)->dt;
    if (((PyDtype *)o)->absent ||
        (d != DT_f32 && d != DT_f64 && !dtype_is_complex(d) && d != DT_bf16 && !dtype_is_exact(d)))
        return PyErr_Format(PyExc_RuntimeError, "%s has no complex type here", name_of(o));
    return Py_NewRef(dtypes[dtype_complex_of(d)]);
}
static PyMethodDef dtype_methods[] = { { "__reduce__", dtype_reduce, METH_NOARGS, NULL },
                                       { "to_real", dtype_to_real, METH_NOARGS, "the type of the parts" },
                                       { "to_complex", dtype_to_complex, METH_NOARGS,
                                         "the type of numbers with such parts" },
                                       { NULL } };
PyTypeObject PyDtype_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.dtype",
    .tp_basicsize = sizeof(PyDtype),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_repr = dtype_repr,
    .tp_getset = dtype_getset,
    .tp_methods = dtype_methods,
    .tp_doc = "An element type, such as taper.float32.\n\n>>> taper.float32.itemsize\n4\n"
};

PyObject *py_dtype(dtype dt) { return dtypes[dt]; }

bool py_absent_dtype(PyObject *o, tp_err *err)
{
    if (Py_TYPE(o) != &PyDtype_Type || !((PyDtype *)o)->absent)
        return false;
    err_set(err, ERR_notimpl, "tensors of type %s.%s are not supported", py_prefix, name_of(o));
    return true;
}
bool py_to_dtype(PyObject *o, dtype *dt)
{
    if (Py_TYPE(o) == &PyDtype_Type && ((PyDtype *)o)->absent)
        return false;
    if (Py_TYPE(o) == &PyDtype_Type)
        *dt = ((PyDtype *)o)->dt;
    else if (o == (PyObject *)&PyFloat_Type)
        *dt = DT_f64; /* as in PyTorch, whatever the default dtype */
    else if (o == (PyObject *)&PyComplex_Type)
        *dt = DT_c128;
    else if (o == (PyObject *)&PyLong_Type)
        *dt = DT_i64;
    else if (o == (PyObject *)&PyBool_Type)
        *dt = DT_bool;
    else
        return false;
    return true;
}

/* ---- device ---- */
static PyObject *device_text(PyObject *o, bool repr)
{
    tp_device d = ((PyDevice *)o)->dev;
    if (!repr)
        return d.index < 0 ? PyUnicode_FromString(device_name((dev_kind)d.kind))
                           : PyUnicode_FromFormat("%s:%d", device_name((dev_kind)d.kind), d.index);
    return d.index < 0
               ? PyUnicode_FromFormat("device(type='%s')", device_name((dev_kind)d.kind))
               : PyUnicode_FromFormat("device(type='%s', index=%d)", device_name((dev_kind)d.kind), d.index);
}
static PyObject *device_str(PyObject *o) { return device_text(o, false); }
static PyObject *device_repr(PyObject *o) { return device_text(o, true); }

PyObject *py_device(tp_device d)
{
    PyDevice *o = PyObject_New(PyDevice, &PyDevice_Type);
    if (o)
        o->dev = d;
    return (PyObject *)o;
}

bool py_to_device(PyObject *o, tp_device *d, tp_err *err)
{
    if (Py_TYPE(o) == &PyDevice_Type) {
        *d = ((PyDevice *)o)->dev;
        return true;
    }
    if (PyUnicode_Check(o)) {
        const char *s = PyUnicode_AsUTF8(o);
        return s && device_parse(s, d, err);
    }
    return false;
}

static PyObject *device_new(PyTypeObject *t, PyObject *args, PyObject *kw)
{
    static char *names[] = { "type", "index", NULL };
    PyObject *type;
    int index = -1;
    tp_err err = { 0 };
    tp_device d;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|i:device", names, &type, &index))
        return NULL;
    if (!py_to_device(type, &d, &err)) {
        if (!err.kind)
            err_set(&err, ERR_type, "device(): argument 'type' must be str or device, not %s",
                    Py_TYPE(type)->tp_name);
        return py_raise(&err);
    }
    if (index >= 0)
        d.index = (int8_t)index;
    return py_device(d);
}
static PyObject *device_get(PyObject *o, void *what)
{
    tp_device d = ((PyDevice *)o)->dev;
    if (what)
        return d.index < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(d.index);
    return PyUnicode_FromString(device_name((dev_kind)d.kind));
}
static PyObject *device_cmp(PyObject *a, PyObject *b, int op)
{
    if (Py_TYPE(b) != &PyDevice_Type || (op != Py_EQ && op != Py_NE))
        Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong(device_eq(((PyDevice *)a)->dev, ((PyDevice *)b)->dev) == (op == Py_EQ));
}
static Py_hash_t device_hash(PyObject *o)
{
    return ((PyDevice *)o)->dev.kind * 1000 + ((PyDevice *)o)->dev.index + 7;
}
static PyObject *device_reduce(PyObject *o, PyObject *unused)
{
    return Py_BuildValue("O(N)", &PyDevice_Type, device_str(o));
}
static PyGetSetDef device_getset[] = { { "type", device_get, NULL, "cpu, cuda or meta", NULL },
                                       { "index", device_get, NULL, "ordinal or None", (void *)1 },
                                       { NULL } };
/* with device: what is made inside lies there. */
static __thread tp_device outer_devices[64];
static __thread int ndevice;
static PyObject *device_enter(PyObject *o, PyObject *unused)
{
    if (ndevice == (int)COUNT(outer_devices))
        return PyErr_Format(PyExc_RuntimeError, "with device: nested more than %d deep",
                            (int)COUNT(outer_devices));
    outer_devices[ndevice++] = CX->default_device;
    CX->default_device = ((PyDevice *)o)->dev;
    return Py_NewRef(o);
}
static PyObject *device_exit(PyObject *o, PyObject *args)
{
    if (ndevice)
        CX->default_device = outer_devices[--ndevice];
    Py_RETURN_FALSE;
}
static PyObject *device_call(PyObject *o, PyObject *args, PyObject *kw) /* @device on a function */
{
    PyObject *m = PyImport_ImportModule("taper.utils._device"),
             *d = m ? PyObject_CallMethod(m, "set_device", "O", o) : NULL,
             *r = d ? PyObject_Call(d, args, kw) : NULL;
    Py_XDECREF(m);
    Py_XDECREF(d);
    return r;
}
static PyMethodDef device_methods[] = { { "__reduce__", device_reduce, METH_NOARGS, NULL },
                                        { "__enter__", device_enter, METH_NOARGS, NULL },
                                        { "__exit__", device_exit, METH_VARARGS, NULL },
                                        { NULL } };
PyTypeObject PyDevice_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.device",
    .tp_basicsize = sizeof(PyDevice),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = device_new,
    .tp_call = device_call,
    .tp_str = device_str,
    .tp_repr = device_repr,
    .tp_richcompare = device_cmp,
    .tp_hash = device_hash,
    .tp_getset = device_getset,
    .tp_methods = device_methods,
    .tp_doc = "Where a tensor lives: device('cpu').\n\n>>> taper.device('cpu').type\n'cpu'\n"
};

/* ---- memory formats and layouts ---- */
static PyObject *enum_repr(PyObject *o)
{
    return PyUnicode_FromFormat("%s.%s", py_prefix, ((PyEnumObj *)o)->name);
}
static PyObject *enum_reduce(PyObject *o, PyObject *unused)
{
    return PyUnicode_FromString(((PyEnumObj *)o)->name);
}
static PyMethodDef enum_methods[] = { { "__reduce__", enum_reduce, METH_NOARGS, NULL }, { NULL } };
PyTypeObject PyMemfmt_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.memory_format",
                               .tp_doc = "An order of dimensions in memory, such as taper.channels_last.\n\n"
                                         ">>> taper.contiguous_format\ntaper.contiguous_format\n",
                               .tp_basicsize = sizeof(PyEnumObj),
                               .tp_flags = Py_TPFLAGS_DEFAULT,
                               .tp_repr = enum_repr,
                               .tp_methods = enum_methods };
PyTypeObject PyLayout_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.layout",
    .tp_doc = "How a tensor keeps its elements: taper.strided, or one of the sparse ways.\n\n"
              ">>> taper.ones(2).layout\ntaper.strided\n",
    .tp_basicsize = sizeof(PyEnumObj),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_repr = enum_repr,
    .tp_methods = enum_methods
};
static const char *const memfmt_names[] = { "contiguous_format", "preserve_format", "channels_last",
                                            "channels_last_3d" };
static PyObject *memfmts[4];
PyObject *py_memfmt(memfmt f) { return memfmts[f]; }

static int add_enum(PyObject *m, PyTypeObject *t, int value, const char *name, PyObject **slot)
{
    PyEnumObj *e = PyObject_New(PyEnumObj, t);
    if (!e)
        return -1;
    e->value = value;
    e->name = name;
    if (slot)
        *slot = (PyObject *)e;
    return PyModule_AddObjectRef(m, name, (PyObject *)e);
}

/* ---- Size: a tuple that prints as taper.Size([2, 3]) ---- */
PyTypeObject *PySize_Type;
static PyObject *size_repr(PyObject *o)
{
    PyObject *list = PySequence_List(o), *r = NULL;
    if (list)
        r = PyUnicode_FromFormat("%s.Size(%R)", py_prefix, list);
    Py_XDECREF(list);
    return r;
}
static PyObject *size_numel(PyObject *o, PyObject *unused)
{
    PyObject *n = PyLong_FromLong(1);
    for (Py_ssize_t i = 0; n && i < PyTuple_GET_SIZE(o); i++) {
        PyObject *p = PyNumber_Multiply(n, PyTuple_GET_ITEM(o, i));
        Py_SETREF(n, p);
    }
    return n;
}
static PyObject *size_of_tuple(PyObject *r) /* steals r; sequences of sizes stay sizes */
{
    if (!r || !PyTuple_CheckExact(r))
        return r;
    PyObject *s = PyObject_CallOneArg((PyObject *)PySize_Type, r);
    Py_DECREF(r);
    return s;
}
static PyObject *size_concat(PyObject *a, PyObject *b)
{
    if (!PyTuple_Check(a) || !PyTuple_Check(b))
        Py_RETURN_NOTIMPLEMENTED;
    return size_of_tuple(PyTuple_Type.tp_as_sequence->sq_concat(a, b));
}
static PyObject *size_subscript(PyObject *o, PyObject *k)
{
    return size_of_tuple(PyTuple_Type.tp_as_mapping->mp_subscript(o, k));
}
static PyObject *size_reduce(PyObject *o, PyObject *unused)
{
    PyObject *t = PySequence_Tuple(o);
    if (t && Py_TYPE(t) != &PyTuple_Type) /* a plain tuple, or unpickling would recurse */
        Py_SETREF(t, PyTuple_GetSlice(o, 0, PyTuple_GET_SIZE(o)));
    return t ? Py_BuildValue("O(N)", PySize_Type, t) : NULL;
}
static PyMethodDef size_methods[] = { { "numel", size_numel, METH_NOARGS, "product of the sizes" },
                                      { "__reduce__", size_reduce, METH_NOARGS, NULL },
                                      { NULL } };
static PyType_Slot size_slots[] = {
    { Py_tp_repr, size_repr },
    { Py_tp_methods, size_methods },
    { Py_sq_concat, size_concat },
    { Py_mp_subscript, size_subscript },
    { Py_tp_doc, "The shape of a tensor: a tuple of sizes.\n\n>>> taper.zeros(2, 3).shape.numel()\n6\n" },
    { 0, NULL }
};
static PyType_Spec size_spec = { "taper.Size", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, size_slots };

PyObject *py_size(int ndim, const symint *size)
{
    PyObject *t = tuple_alloc(PySize_Type, ndim);
    for (int i = 0; t && i < ndim; i++) {
        PyObject *v = py_int(size[i]);
        if (!v) {
            Py_DECREF(t);
            return NULL;
        }
        PyTuple_SET_ITEM(t, i, v);
    }
    return t;
}

/* ---- Generator ---- */
static void gen_dealloc(PyObject *o)
{
    gen_unref(((PyRng *)o)->g);
    Py_TYPE(o)->tp_free(o);
}
static PyObject *gen_pynew(PyTypeObject *t, PyObject *args, PyObject *kw)
{
    PyRng *g = (PyRng *)t->tp_alloc(t, 0);
    if (g)
        g->g = gen_new(GEN_SEED);
    return (PyObject *)g;
}
PyObject *py_rng(tp_gen *g) /* new; another object for the same numbers */
{
    PyRng *o = (PyRng *)PyRng_Type.tp_alloc(&PyRng_Type, 0);
    if (o)
        o->g = gen_ref(g);
    return (PyObject *)o;
}
static bool seed_of(PyObject *v, uint64_t *seed)
{
    PyObject *i = PyNumber_Index(v);
    if (!i)
        return false;
    int overflow;
    long long s = PyLong_AsLongLongAndOverflow(i, &overflow);
    if (overflow > 0) {
        *seed = PyLong_AsUnsignedLongLong(i);
        if (PyErr_Occurred()) {
            PyErr_SetString(PyExc_RuntimeError, "Overflow when unpacking long: a seed must fit in 64 bits");
            Py_DECREF(i);
            return false;
        }
    } else if (overflow < 0) {
        PyErr_SetString(PyExc_RuntimeError, "Overflow when unpacking long: a seed must fit in 64 bits");
        Py_DECREF(i);
        return false;
    } else
        *seed = (uint64_t)s;
    Py_DECREF(i);
    return true;
}
static PyObject *gen_manual_seed(PyObject *o, PyObject *v)
{
    uint64_t seed;
    if (!seed_of(v, &seed))
        return NULL;
    gen_seed(((PyRng *)o)->g, seed);
    return Py_NewRef(o);
}
static PyObject *gen_initial_seed(PyObject *o, PyObject *unused)
{
    return PyLong_FromUnsignedLongLong(((PyRng *)o)->g->s.seed);
}
static PyObject *gen_new_seed(PyObject *o, PyObject *unused)
{
    uint64_t s = (uint64_t)(uintptr_t)o ^ ((uint64_t)clock() << 32);
    PyObject *os = PyImport_ImportModule("os"), *b = os ? PyObject_CallMethod(os, "urandom", "i", 8) : NULL;
    Py_XDECREF(os);
    if (!b)
        return NULL;
    memcpy(&s, PyBytes_AS_STRING(b), 8);
    Py_DECREF(b);
    s &= INT64_MAX;
    gen_seed(((PyRng *)o)->g, s);
    return PyLong_FromUnsignedLongLong(s);
}
/* The state is a uint8 tensor in PyTorch's layout (gen_pack). */
static PyObject *gen_get_state(PyObject *o, PyObject *unused)
{
    tp_gen *g = ((PyRng *)o)->g;
    tp_err err = { 0 };
    tp_tensor *t = tensor_new(DT_u8, 1, (symint[]){ GEN_STATE_BYTES }, &err);
    if (!t)
        return py_raise(&err);
    gen_pack(g, tensor_host(t));
    return py_wrap(t);
}
static PyObject *gen_set_state(PyObject *o, PyObject *v)
{
    tp_gen *g = ((PyRng *)o)->g;
    if (!py_is_tensor(v) || py_tensor(v)->dt != DT_u8)
        return PyErr_Format(PyExc_TypeError, "expected a torch.ByteTensor, but got %.80s",
                            Py_TYPE(v)->tp_name);
    const tp_tensor *t = py_tensor(v);
    if (t->numel != GEN_STATE_BYTES || !tensor_is_contiguous(t) || !gen_unpack(g, tensor_host(t)))
        return PyErr_Format(PyExc_RuntimeError,
                            "expected the %d bytes of a generator's state, as get_state() returns them",
                            GEN_STATE_BYTES);
    return Py_NewRef(o);
}
static PyObject *gen_device(PyObject *o, void *unused) { return py_device(DEVICE_CPU); }
static PyMethodDef gen_methods[] = {
    { "manual_seed", gen_manual_seed, METH_O, "manual_seed(seed) -> Generator" },
    { "initial_seed", gen_initial_seed, METH_NOARGS, "initial_seed() -> int" },
    { "seed", gen_new_seed, METH_NOARGS, "seed() -> int; a fresh seed from the system" },
    { "get_state", gen_get_state, METH_NOARGS, "get_state() -> Tensor" },
    { "set_state", gen_set_state, METH_O, "set_state(state)" },
    { NULL }
};
static PyGetSetDef gen_getset[] = { { "device", gen_device, NULL, "always cpu", NULL }, { NULL } };
PyTypeObject PyRng_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.Generator",
    .tp_basicsize = sizeof(PyRng),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = gen_pynew,
    .tp_dealloc = gen_dealloc,
    .tp_methods = gen_methods,
    .tp_getset = gen_getset,
    .tp_doc = "A source of random numbers with its own seed.\n\n>>> g = "
              "taper.Generator().manual_seed(1)\n>>> taper.rand(2, generator=g).shape\ntaper.Size([2])\n"
};

/* Under the torch alias types, dtypes and messages print torch's names, and its environment variables count.
 */
static PyObject *set_prefix(PyObject *m, PyObject *s)
{
    static PyTypeObject *const types[] = { &PyTensor_Type, &PyDtype_Type, &PyDevice_Type, &PyMemfmt_Type,
                                           &PyLayout_Type, &PyRng_Type,   &PySymInt_Type };
    const char *t = PyUnicode_Check(s) ? PyUnicode_AsUTF8(s) : NULL;
    if (!t || (strcmp(t, "taper") && strcmp(t, "torch")))
        return PyErr_Format(PyExc_ValueError, "_set_prefix() takes 'taper' or 'torch'");
    bool torch = !strcmp(t, "torch");
    py_prefix = torch ? "torch" : "taper";
    if (py_asks.brand_changed(torch) < 0)
        return NULL;
    env_set_torch_alias(torch);
    for (size_t i = 0; i < COUNT(types); i++) {
        size_t n = strlen(types[i]->tp_name) + 1;
        char *name = mem_alloc(n); /* kept: the type points at it */
        memcpy(name, types[i]->tp_name, n);
        memcpy(name, py_prefix, 5);
        types[i]->tp_name = name;
        PyType_Modified(types[i]);
    }
    if (PyObject_SetAttrString((PyObject *)PySize_Type, "__module__", s) < 0)
        return NULL;
    Py_RETURN_NONE;
}
static PyObject *counted_draws(PyObject *m, PyObject *on)
{
    gen_state *s = &gen_default()->s;
    bool was = s->counted;
    s->counted = PyObject_IsTrue(on) == 1;
    return PyBool_FromLong(was);
}
static PyMethodDef functions[] = {
    { "_counted_draws", counted_draws, METH_O,
      "_counted_draws(on) -> whether it was: eager operators draw the numbers of compiled code" },
    { "_set_prefix", set_prefix, METH_O, "the name that dtypes and sizes print: taper or torch" },
    { NULL }
};

int py_init_types(PyObject *m)
{
    PyTypeObject *const types[] = { &PyDtype_Type, &PyDevice_Type, &PyMemfmt_Type, &PyLayout_Type,
                                    &PyRng_Type };
    static const char *const names[] = { "dtype", "device", "memory_format", "layout", "Generator" };
    for (size_t i = 0; i < COUNT(types); i++)
        if (PyType_Ready(types[i]) < 0 || PyModule_AddObjectRef(m, names[i], (PyObject *)types[i]) < 0)
            return -1;
    for (int d = 0; d < DT_COUNT; d++) {
        PyDtype *o = PyObject_New(PyDtype, &PyDtype_Type);
        if (!o)
            return -1;
        o->dt = (dtype)d;
        o->absent = 0;
        dtypes[d] = (PyObject *)o;
        if (PyModule_AddObjectRef(m, dtype_rows[d].pname, dtypes[d]) < 0 ||
            (*dtype_rows[d].alias && PyModule_AddObjectRef(m, dtype_rows[d].alias, dtypes[d]) < 0))
            return -1;
    }
    for (size_t i = 0; i < COUNT(absent); i++) {
        PyDtype *o = PyObject_New(PyDtype, &PyDtype_Type);
        if (!o)
            return -1;
        o->dt = DT_COUNT;
        o->absent = (int8_t)(i + 1);
        if ((*absent[i].alias && PyModule_AddObjectRef(m, absent[i].alias, (PyObject *)o) < 0) ||
            PyModule_AddObject(m, absent[i].name, (PyObject *)o) < 0)
            return -1;
    }
    for (int i = 0; i < 4; i++)
        if (add_enum(m, &PyMemfmt_Type, i, memfmt_names[i], &memfmts[i]) < 0)
            return -1;
    static const char *const layouts[] = { "strided",    "sparse_coo", "sparse_csr", "sparse_csc",
                                           "sparse_bsr", "sparse_bsc", "jagged",     "_mkldnn" };
    for (size_t i = 0; i < COUNT(layouts); i++)
        if (add_enum(m, &PyLayout_Type, (int)i, layouts[i], NULL) < 0)
            return -1;
    PyObject *bases = PyTuple_Pack(1, &PyTuple_Type);
    PySize_Type = (PyTypeObject *)PyType_FromSpecWithBases(&size_spec, bases);
    Py_XDECREF(bases);
    if (!PySize_Type || PyModule_AddObjectRef(m, "Size", (PyObject *)PySize_Type) < 0)
        return -1;
    PyRng *g = PyObject_New(PyRng, &PyRng_Type);
    if (!g)
        return -1;
    g->g = gen_ref(gen_default());
    return PyModule_AddObject(m, "default_generator", (PyObject *)g) < 0
               ? -1
               : PyModule_AddFunctions(m, functions);
}
