/* trace_scalar.c - numbers read from tensors while tracing (config.capture_scalar_outputs).
 * An integer becomes an unbacked symbol; a float becomes a SymFloat, whose value is a 0-d float64 tensor of the
 * graph, so that arithmetic with it is recorded as operators. What is stated of such numbers (taper._check) is
 * learned now and checked when the graph runs. */
#include "capture/capture.h"

typedef struct PySymFloat {
    PyObject_HEAD PyObject *t; /* fake: f64[] */
} PySymFloat;
PyObject *py_symfloat_tensor(PyObject *o) { return ((PySymFloat *)o)->t; }

PyObject *t_symfloat(PyObject *t) /* takes t, which may be NULL */
{
    PySymFloat *o = t ? PyObject_New(PySymFloat, &PySymFloat_Type) : NULL;
    if (o)
        o->t = t;
    else
        Py_XDECREF(t);
    return (PyObject *)o;
}

static void sf_dealloc(PyObject *o)
{
    Py_DECREF(((PySymFloat *)o)->t);
    PyObject_Free(o);
}

/* Operators on what is read are not on the tape. */
static PyObject *record(op_id op, const tp_val *arg)
{
    op_ctx *cx = CX;
    bool mode = cx->grad_mode;
    tp_err err = { 0 };
    tp_val out = vNone;
    cx->grad_mode = false;
    bool ok = grad_call(cx, op, OPV_fn, arg, &out, &err);
    cx->grad_mode = mode;
    return ok ? py_val(&out) : py_raise(&err);
}

static PyObject *cast(PyObject *o, dtype dt) /* 0-d, of this type, with memory of its own */
{
    PyObject *flat = py_tensor(o)->ndim ? record(OP_reshape, (tp_val[]){ vT(py_tensor(o)), vIs(NULL, 0) })
                                        : Py_NewRef(o);
    PyObject *r = !flat ? NULL
                  : py_tensor(flat)->dt == dt
                      ? record(OP_clone, (tp_val[]){ vT(py_tensor(flat)), vNone })
                      : record(OP_to_dtype, (tp_val[]){ vT(py_tensor(flat)), vDT(dt), vNone, vNone, vNone,
                                                        vB(false), vNone });
    Py_XDECREF(flat);
    return r;
}

static PyObject *read_int(trace *t, PyObject *o)
{
    tp_err err = { 0 };
    tp_val out = vNone;
    if (!ir_call(CX, OP_item, OPV_fn, (tp_val[]){ vT(py_tensor(o)) }, &out, &err))
        return py_raise(&err);
    if (py_tensor(o)->dt == DT_bool) {
        symint c = sym_rel_of(SYM_eq, out.i, 1);
        return sym_is_expr(c) ? py_symint(c) : PyBool_FromLong(c != 0);
    }
    return py_int(out.i);
}

PyObject *t_item(trace *t, PyObject *o, char as)
{
    tp_tensor *x = py_tensor(o);
    if (!cfg_bool("capture_scalar_outputs", false) && !t->cfg->fullgraph)
        return t_break(t, BRK_item, "Tensor.item");
    if (!x->node || x->rec != &t->rec || !sym_eq(x->numel, 1))
        return t_break(t, BRK_item, "Tensor.item of a tensor with more than one element");
    bool real = dtype_is_float((dtype)x->dt);
    if (as == 'f' || (as == '?' && real))
        return t_symfloat(cast(o, DT_f64));
    if (real || (as == 'i' && x->dt == DT_bool)) { /* int() of a float cuts off */
        PyObject *i = cast(o, DT_i64), *r = i ? read_int(t, i) : NULL;
        Py_XDECREF(i);
        return r;
    }
    return read_int(t, o);
}

/* ---- floats ---- */
/* The tensor to use for f beside `other`, which decides the type as it would beside a Python float. */
static PyObject *beside(PyObject *f, PyObject *other)
{
    PyObject *t = py_symfloat_tensor(f);
    if (!other)
        return Py_NewRef(t);
    tp_tensor *x = py_tensor(other);
    if (!dtype_is_float((dtype)x->dt))
        return cast(t, CX->default_dtype);
    return x->ndim ? Py_NewRef(t) : cast(t, (dtype)x->dt);
}

bool t_symfloat_args(PyObject **v, Py_ssize_t n, PyObject **own)
{
    PyObject *other = NULL;
    int k = 0;
    for (Py_ssize_t i = 0; i < n && !other; i++)
        other = py_is_tensor(v[i]) ? v[i] : NULL;
    for (Py_ssize_t i = 0; i < n; i++)
        if (py_is_symfloat(v[i])) {
            if (k == T_SYMFLOATS || !(own[k] = beside(v[i], other)))
                return false;
            v[i] = own[k++];
        }
    return true;
}

static PyObject *operand(PyObject *o) /* new tensor or number; NULL without exception: not ours */
{
    if (py_is_symfloat(o))
        return Py_NewRef(py_symfloat_tensor(o));
    if (PyFloat_CheckExact(o) || PyLong_Check(o))
        return PyNumber_Float(o);
    return NULL;
}

static PyObject *arith(PyObject *a, PyObject *b, binaryfunc f)
{
    PyObject *x = operand(a), *y = operand(b), *r = NULL;
    if (x && y)
        r = t_symfloat(f(x, y));
    else if (!PyErr_Occurred())
        r = Py_NewRef(Py_NotImplemented);
    Py_XDECREF(x);
    Py_XDECREF(y);
    return r;
}
static PyObject *sf_add(PyObject *a, PyObject *b) { return arith(a, b, PyNumber_Add); }
static PyObject *sf_sub(PyObject *a, PyObject *b) { return arith(a, b, PyNumber_Subtract); }
static PyObject *sf_mul(PyObject *a, PyObject *b) { return arith(a, b, PyNumber_Multiply); }

static PyObject *div_tensors(PyObject *a,
                             PyObject *b) /* a number over a tensor would be a product with its inverse */
{
    if (!PyFloat_Check(a))
        return PyNumber_TrueDivide(a, b);
    PyObject *n = record(OP_full, (tp_val[]){ vIs(NULL, 0), vF(PyFloat_AS_DOUBLE(a)), vDT(DT_f64), vNone,
                                              vNone, vNone }),
             *r = n ? PyNumber_TrueDivide(n, b) : NULL;
    Py_XDECREF(n);
    return r;
}

static bool check_node(symint cond, const char *msg, err_kind kind)
{
    tp_err err = { 0 };
    tp_val out = vNone;
    ir_rec *r = CX->rec;
    if (!r)
        return true;
    const char *text = arena_strdup(&r->g->mem, msg);
    return ir_call(CX, OP__check_scalar, OPV_fn,
                   (tp_val[]){ vI(cond), { .kind = VAL_str, .s = text }, vI(kind) }, &out, &err) ||
           py_raise(&err);
}

bool t_assert(trace *t, PyObject *o, bool holds)
{
    tp_err err = { 0 };
    tp_val out = vNone;
    PyObject *c = holds ? Py_NewRef(o) : PyObject_CallMethod(o, "logical_not", NULL);
    if (!c)
        return t_fake_failed(t, "an assert statement"), false;
    if (!py_tensor(c)->node || py_tensor(c)->rec != &t->rec || !sym_eq(py_tensor(c)->numel, 1)) {
        Py_DECREF(c);
        return t_break(t, BRK_data_jump, "Data-dependent jump") != NULL;
    }
    bool ok = ir_call(CX, OP__assert_async, OPV_fn, (tp_val[]){ vT(py_tensor(c)) }, &out, &err);
    Py_DECREF(c);
    return ok || py_raise(&err);
}

/* The graph fails with Python's error when o is zero. */
static bool not_zero(PyObject *o, const char *msg)
{
    PyObject *zero = PyFloat_FromDouble(0),
             *ne = zero ? PyObject_RichCompare(py_symfloat_tensor(o), zero, Py_NE) : NULL,
             *u = ne ? read_int(NULL, ne) : NULL;
    bool ok = u && (!py_is_symint(u) || check_node(py_symint_value(u), msg, ERR_zerodiv));
    Py_XDECREF(zero);
    Py_XDECREF(ne);
    Py_XDECREF(u);
    return ok;
}

static PyObject *sf_div(PyObject *a, PyObject *b)
{
    if (py_is_symfloat(b) &&
        (py_is_symfloat(a) || PyFloat_Check(a) || PyLong_Check(a))) { /* Python refuses zero */
        if (!not_zero(b, "float division by zero"))
            return NULL;
    } else if (PyFloat_Check(b) ? PyFloat_AS_DOUBLE(b) == 0 : PyLong_Check(b) && PyObject_Not(b))
        return PyErr_Format(PyExc_ZeroDivisionError, "float division by zero");
    return arith(a, b, div_tensors);
}
static PyObject *sf_neg(PyObject *a) { return t_symfloat(PyNumber_Negative(py_symfloat_tensor(a))); }
static PyObject *sf_abs(PyObject *a) { return t_symfloat(PyNumber_Absolute(py_symfloat_tensor(a))); }
static PyObject *sf_pos(PyObject *a) { return Py_NewRef(a); }
static PyObject *unknown(void)
{
    PyErr_SetString(py_fake_error,
                    "Could not guard on a float that only the running program knows (an .item()). Keep it "
                    "a tensor and use where() instead of a Python branch.");
    return NULL;
}
static PyObject *sf_unknown(PyObject *a) { return unknown(); }
static PyObject *sf_unknown2(PyObject *a, PyObject *b) { return unknown(); }

static PyObject *pow_tensors(PyObject *a, PyObject *b) { return PyNumber_Power(a, b, Py_None); }
/* Python's powers of negative numbers are complex, and zero has no negative ones. */
static PyObject *sf_pow(PyObject *a, PyObject *b, PyObject *m)
{
    if (m && m != Py_None)
        return PyErr_Format(PyExc_TypeError,
                            "pow() 3rd argument not allowed unless all arguments are integers");
    double n = PyFloat_Check(b) ? PyFloat_AS_DOUBLE(b) : PyLong_Check(b) ? PyLong_AsDouble(b) : 0.5;
    if (n == -1 && PyErr_Occurred())
        return NULL;
    if (!py_is_symfloat(a)) {
        double base = PyFloat_Check(a) ? PyFloat_AS_DOUBLE(a) : PyLong_Check(a) ? PyLong_AsDouble(a) : 1;
        if (base == -1 && PyErr_Occurred())
            return NULL;
        if (!(base > 0))
            return unknown();
    } else if (n != floor(n))
        return unknown();
    else if (n < 0 && !not_zero(a, "0.0 cannot be raised to a negative power"))
        return NULL;
    return arith(a, b, pow_tensors);
}
static int sf_bool(PyObject *a) { return unknown() ? 0 : -1; }
static PyObject *sf_compare(PyObject *a, PyObject *b, int op) /* known when the graph runs */
{
    PyObject *x = operand(a), *y = x ? operand(b) : NULL, *c = y ? PyObject_RichCompare(x, y, op) : NULL,
             *r = c ? read_int(NULL, c) : NULL;
    if (!r && !PyErr_Occurred())
        r = Py_NewRef(Py_NotImplemented);
    Py_XDECREF(x);
    Py_XDECREF(y);
    Py_XDECREF(c);
    return r;
}
static Py_hash_t sf_hash(PyObject *a) { return unknown() ? 0 : -1; }
static PyObject *sf_repr(PyObject *o) { return PyUnicode_FromString("zuf"); }

static PyNumberMethods number = { .nb_add = sf_add,
                                  .nb_subtract = sf_sub,
                                  .nb_multiply = sf_mul,
                                  .nb_true_divide = sf_div,
                                  .nb_negative = sf_neg,
                                  .nb_positive = sf_pos,
                                  .nb_absolute = sf_abs,
                                  .nb_bool = sf_bool,
                                  .nb_float = sf_unknown,
                                  .nb_int = sf_unknown,
                                  .nb_power = sf_pow,
                                  .nb_floor_divide = sf_unknown2,
                                  .nb_remainder = sf_unknown2 };
PyTypeObject PySymFloat_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.SymFloat",
    .tp_basicsize = sizeof(PySymFloat),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = sf_dealloc,
    .tp_repr = sf_repr,
    .tp_as_number = &number,
    .tp_richcompare = sf_compare,
    .tp_hash = sf_hash,
    .tp_doc = "A float that only the running program knows.\n\n>>> isinstance(3.0, taper.SymFloat)\nFalse\n"
};

PyObject *t_symfloat_int(trace *t, PyObject *o) { return t_item(t, py_symfloat_tensor(o), 'i'); }

/* ---- statements about numbers ---- */
/* _sym_check(cond, message, class name): cond is a SymInt. */
static PyObject *sym_check(PyObject *m, PyObject *const *a, Py_ssize_t n)
{
    if (n != 3 || !py_is_symint(a[0]) || !PyUnicode_Check(a[1]) || !PyUnicode_Check(a[2]))
        return PyErr_Format(PyExc_TypeError, "_sym_check(SymInt, str, str)");
    symint cond = py_symint_value(a[0]);
    sym_env *env = sym_env_of(cond);
    const char *msg = PyUnicode_AsUTF8(a[1]), *cls = PyUnicode_AsUTF8(a[2]);
    err_kind kind = ERR_runtime;
    for (int k = ERR_runtime; k <= ERR_notimpl; k++)
        if (cls && !strcmp(err_class((err_kind)k), cls))
            kind = (err_kind)k;
    if (!sym_is_bool(cond))
        cond = sym_rel_of(SYM_ne, cond, 0);
    bool unbacked = sym_is_unbacked(cond), known = sym_is_true(cond);
    symint before = cond;
    if (!sym_env_assert(env, cond, msg)) {
        tp_err e = *sym_env_err(env);
        err_clear(sym_env_err(env));
        e.kind = kind;
        return py_raise(&e);
    }
    if (unbacked && !known && !check_node(before, msg, kind))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *sym_size_like(PyObject *m, PyObject *o)
{
    if (py_is_symint(o))
        sym_env_size_like(py_symint_value(o));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = { { "_sym_check", (PyCFunction)(void (*)(void))sym_check, METH_FASTCALL,
                                     "a SymInt condition holds from here on" },
                                   { "_sym_size_like", sym_size_like, METH_O,
                                     "an unbacked SymInt is used as a size" },
                                   { NULL } };

int py_init_tscalar(PyObject *m)
{
    return PyType_Ready(&PySymFloat_Type) < 0 ||
                   PyModule_AddObjectRef(m, "SymFloat", (PyObject *)&PySymFloat_Type) < 0
               ? -1
               : PyModule_AddFunctions(m, functions);
}
