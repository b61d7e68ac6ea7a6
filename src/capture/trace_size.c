/* trace_size.c - floats made of symbolic sizes while tracing: n / 2, 1.0 / n, n ** -0.5, math.sqrt(n); and floats from outside
 * that were another one before.
 * Arithmetic keeps them symbolic. Beside a tensor they become 0-d float64 values of the graph, so that one graph serves
 * all sizes; whatever needs the number itself (a comparison, a text, an argument of an operator) fixes the sizes, or the float. */
#include "capture/capture.h"
#include <math.h>

typedef struct PySizeFloat {
    PyObject_HEAD double hint; /* for the sizes seen */
    char op;                   /* + - * / p(ower) s(quare root), i: an integer, f: a float from outside */
    bool positive;             /* whatever the sizes are */
    int size;                  /* of the expression, which is walked without memory of where one was */
    symint n;                  /* i */
    PyObject *a, *b;           /* operands: PySizeFloat or float; owned */
    source *src;               /* f */
} PySizeFloat;

static bool is_ours(PyObject *o) { return Py_TYPE(o) == &PySizeFloat_Type; }
static double hint_of(PyObject *o) { return is_ours(o) ? ((PySizeFloat *)o)->hint : PyFloat_AS_DOUBLE(o); }
static bool is_positive(PyObject *o)
{
    return is_ours(o) ? ((PySizeFloat *)o)->positive : PyFloat_AS_DOUBLE(o) > 0;
}

static int size_of(PyObject *o) { return o && is_ours(o) ? ((PySizeFloat *)o)->size : 0; }
enum { LARGEST = 64 };

static PyObject *make(char op, double hint, bool positive, PyObject *a, PyObject *b) /* takes a and b */
{
    PySizeFloat *o = PyObject_New(PySizeFloat, &PySizeFloat_Type);
    if (!o) {
        Py_XDECREF(a);
        Py_XDECREF(b);
        return NULL;
    }
    o->hint = hint;
    o->op = op;
    o->positive = positive;
    o->size = 1 + size_of(a) + size_of(b);
    o->n = 0;
    o->src = NULL;
    o->a = a;
    o->b = b;
    return (PyObject *)o;
}

static void dealloc(PyObject *o)
{
    PySizeFloat *f = (PySizeFloat *)o;
    if (f->op == 'i')
        sym_env_unref(sym_env_of(f->n));
    Py_XDECREF(f->a);
    Py_XDECREF(f->b);
    PyObject_Free(o);
}

PyObject *t_size_float(PyObject *o)
{
    bool known = true;
    symint n = py_is_symint(o) ? py_symint_value(o) : 0;
    if (!t_now || !CX->rec || !sym_is_expr(n) || sym_is_bool(n) || sym_is_unbacked(n))
        return NULL;
    int64_t hint = sym_hint(n, &known);
    PyObject *r = known ? make('i', (double)hint, sym_known(SYM_gt, n, 0), NULL, NULL) : NULL;
    if (r) {
        ((PySizeFloat *)r)->n = n;
        sym_env_ref(sym_env_of(n));
    }
    return r;
}

PyObject *t_number_tensor(PyObject *o)
{
    tp_err err = { 0 };
    tp_tensor *x = PyFloat_CheckExact(o) ? tensor_new(DT_f64, 0, NULL, &err) : NULL;
    if (!x)
        return NULL;
    *(double *)tensor_data(x) = PyFloat_AS_DOUBLE(o);
    return py_wrap(x);
}

PyObject *t_size_input(trace *t, PyObject *o, source *s)
{
    PyObject *r = make('f', PyFloat_AS_DOUBLE(o), false, NULL, NULL);
    if (r) {
        ((PySizeFloat *)r)->src = s;
        t_want(t, G_TYPE_MATCH, s, (PyObject *)&PyFloat_Type);
    }
    return r;
}

source *t_size_source(PyObject *o) { return ((PySizeFloat *)o)->src; }

bool t_size_of_inputs(PyObject *o)
{
    PySizeFloat *f = (PySizeFloat *)o;
    return o && is_ours(o) && (f->op == 'f' || t_size_of_inputs(f->a) || t_size_of_inputs(f->b));
}

/* From now on the float is guarded to be this one, and stays a constant in what is compiled later. */
static bool fix_float(PySizeFloat *f)
{
    PyObject *v = PyFloat_FromDouble(f->hint);
    if (v) {
        t_want(t_now, G_EQUALS_MATCH, f->src, v);
        t_note_fixed(t_now, f->src);
    }
    Py_XDECREF(v);
    return v != NULL;
}

static bool fix(PyObject *o) /* from now on the sizes are guarded to be these */
{
    PySizeFloat *f = (PySizeFloat *)o;
    if (!o || !is_ours(o))
        return true;
    if (f->op == 'f')
        return t_now && fix_float(f);
    if (f->op != 'i')
        return fix(f->a) && fix(f->b);
    PyObject *n = py_int(f->n), *v = n ? PyNumber_Index(n) : NULL;
    Py_XDECREF(n);
    Py_XDECREF(v);
    return v != NULL;
}

PyObject *t_size_fixed(PyObject *o) { return fix(o) ? PyFloat_FromDouble(hint_of(o)) : NULL; }

/* ---- as a value of the graph ---- */
static PyObject *record(op_id op, const tp_val *arg)
{
    tp_err err = { 0 };
    tp_val out = vNone;
    return grad_call(CX, op, OPV_fn, arg, &out, &err) ? py_val(&out) : py_raise(&err);
}

static PyObject *scalar(tp_val v)
{
    return record(OP_full, (tp_val[]){ vIs(NULL, 0), v, vDT(DT_f64), vNone, vNone, vNone });
}

static PyObject *input(const PySizeFloat *f) /* of the graph: one for each float; new */
{
    source *s = src_get(t_now->e, SRC_number, f->src, NULL, NULL, 0);
    for (size_t i = 0; i < t_now->objs.n; i++)
        if (t_now->objs.at[i].src == s)
            return Py_NewRef(t_now->objs.at[i].abs);
    PyObject *hint = PyFloat_FromDouble(f->hint), *real = hint ? t_number_tensor(hint) : NULL,
             *in = real ? t_wrap(t_now, real, s) : NULL;
    Py_XDECREF(hint);
    Py_XDECREF(real);
    return in;
}

static PyObject *value(PyObject *o) /* new: f64[] */
{
    PySizeFloat *f = (PySizeFloat *)o;
    if (!is_ours(o))
        return scalar(vF(PyFloat_AS_DOUBLE(o)));
    if (f->op == 'i')
        return scalar(vI(f->n));
    if (f->op == 'f')
        return input(f);
    PyObject *x = value(f->a), *y = x && f->b ? value(f->b) : NULL, *r = NULL;
    if (x && (y || !f->b))
        switch (f->op) {
        case '+': r = PyNumber_Add(x, y); break;
        case '-': r = PyNumber_Subtract(x, y); break;
        case '*': r = PyNumber_Multiply(x, y); break;
        case '/': r = PyNumber_TrueDivide(x, y); break;
        case 'p': r = PyNumber_Power(x, y, Py_None); break;
        default: r = record(OP_sqrt, (tp_val[]){ vT(py_tensor(x)) });
        }
    Py_XDECREF(x);
    Py_XDECREF(y);
    return r;
}

PyObject *t_size_value(PyObject *o) { return value(o); }

/* f32 and f64 compute with a Python float rounded to their own type, as with a 0-d tensor; half types do not. */
PyObject *t_size_beside(PyObject *o, PyObject *tensor)
{
    tp_tensor *x = py_tensor(tensor);
    dtype dt = dtype_is_float((dtype)x->dt) ? (dtype)x->dt : CX->default_dtype;
    if (dt != DT_f32 && dt != DT_f64)
        return t_size_fixed(o);
    PyObject *v = value(o), *r = v;
    if (v && dt != DT_f64) {
        r = record(OP_to_dtype,
                   (tp_val[]){ vT(py_tensor(v)), vDT(dt), vNone, vNone, vNone, vB(false), vNone });
        Py_DECREF(v);
    }
    return r;
}

/* ---- arithmetic ---- */
static PyObject *operand(PyObject *o) /* new; NULL without exception: not ours */
{
    if (is_ours(o) || PyFloat_CheckExact(o))
        return Py_NewRef(o);
    if (py_is_symint(o))
        return t_size_float(o);
    PyObject *f = PyLong_Check(o) ? PyLong_Type.tp_as_number->nb_float(o) : NULL;
    if (!f)
        py_forget();
    return f;
}

PyObject *t_size_arith(char op, PyObject *a, PyObject *b)
{
    PyObject *x = t_now ? operand(a) : NULL, *y = x ? operand(b) : NULL, *r = NULL;
    if (!y || (!is_ours(x) && !is_ours(y)) || size_of(x) + size_of(y) >= LARGEST)
        goto done;
    double p = hint_of(x), q = hint_of(y);
    bool px = is_positive(x), py = is_positive(y);
    /* Python refuses to divide by zero, and roots of negative numbers are complex */
    if ((op == '/' && !py && (is_ours(y) || q == 0)) || (op == 'p' && !px))
        goto done;
    double v = op == '+' ? p + q : op == '-' ? p - q : op == '*' ? p * q : op == '/' ? p / q : pow(p, q);
    if (isfinite(v)) { /* Python raises OverflowError for some that are not */
        bool pos = op == 'p' || (op != '-' && px && (py || (op == '+' && !is_ours(y) && q == 0)));
        r = make(op, v, pos, x, y);
        x = y = NULL;
    }
done:
    Py_XDECREF(x);
    Py_XDECREF(y);
    return r;
}

PyObject *t_size_sqrt(PyObject *o)
{
    PyObject *x = operand(o);
    if (x && is_ours(x) && is_positive(x))
        return make('s', sqrt(hint_of(x)), true, x, NULL);
    Py_XDECREF(x);
    return NULL;
}

static bool is_whole(PyObject *o, symint *n) /* a plain number, exact whatever it is multiplied with */
{
    double d = is_ours(o) ? 0 : PyFloat_AS_DOUBLE(o);
    *n = d >= 1 && d <= 1e6 ? (symint)d : 0;
    return *n && (double)*n == d;
}

/* n * k and n / k for whole numbers stay symbolic: up is minus down of minus. */
PyObject *t_size_whole(PyObject *o, bool up)
{
    if (py_is_symint(o))
        return Py_NewRef(o);
    PySizeFloat *f = (PySizeFloat *)o, *n;
    symint k;
    if (!is_ours(o))
        return NULL;
    if (f->op == 'i')
        return py_int(f->n);
    bool turned = f->op == '*' && !is_ours(f->a);
    n = (PySizeFloat *)(turned ? f->b : f->a);
    if ((f->op != '*' && f->op != '/') || !is_ours((PyObject *)n) || n->op != 'i' || !n->positive ||
        !is_whole(turned ? f->a : f->b, &k))
        return NULL;
    return py_int(f->op == '*' ? sym_mul(n->n, k)
                  : up         ? sym_sub(0, sym_floordiv(sym_sub(0, n->n), k))
                               : sym_floordiv(n->n, k));
}

static PyObject *plainly(PyObject *a, PyObject *b, binaryfunc f)
{
    if (py_is_tensor(a) || py_is_tensor(b))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *x = is_ours(a) ? t_size_fixed(a) : Py_NewRef(a),
             *y = x ? is_ours(b) ? t_size_fixed(b) : Py_NewRef(b) : NULL, *r = y ? f(x, y) : NULL;
    Py_XDECREF(x);
    Py_XDECREF(y);
    return r;
}
static PyObject *arith(char op, PyObject *a, PyObject *b, binaryfunc f)
{
    PyObject *r = t_size_arith(op, a, b);
    return r || PyErr_Occurred() ? r : plainly(a, b, f);
}
#define ARITH(name, op, f) \
    static PyObject *name(PyObject *a, PyObject *b) { return arith(op, a, b, f); }
ARITH(f_add, '+', PyNumber_Add)
ARITH(f_sub, '-', PyNumber_Subtract)
ARITH(f_mul, '*', PyNumber_Multiply)
ARITH(f_div, '/', PyNumber_TrueDivide)
#define PLAIN(name, f) \
    static PyObject *name(PyObject *a, PyObject *b) { return plainly(a, b, f); }
PLAIN(f_floordiv, PyNumber_FloorDivide)
PLAIN(f_mod, PyNumber_Remainder)
PLAIN(f_divmod, PyNumber_Divmod)
static PyObject *power(PyObject *a, PyObject *b) { return PyNumber_Power(a, b, Py_None); }
static PyObject *f_pow(PyObject *a, PyObject *b, PyObject *m)
{
    if (m && m != Py_None)
        return PyErr_Format(PyExc_TypeError,
                            "pow() 3rd argument not allowed unless all arguments are integers");
    return arith('p', a, b, power);
}
static PyObject *f_neg(PyObject *a)
{
    PyObject *minus = PyFloat_FromDouble(-1), *r = minus ? f_mul(a, minus) : NULL;
    Py_XDECREF(minus);
    return r;
}
static PyObject *f_pos(PyObject *a) { return Py_NewRef(a); }
static PyObject *f_abs(PyObject *a)
{
    PyObject *x = is_positive(a) ? NULL : t_size_fixed(a), *r = x ? PyNumber_Absolute(x) : NULL;
    Py_XDECREF(x);
    return is_positive(a) ? Py_NewRef(a) : r;
}
static int f_bool(PyObject *a) { return is_positive(a) ? 1 : fix(a) ? hint_of(a) != 0 : -1; }
static PyObject *f_int(PyObject *a)
{
    PyObject *x = t_size_fixed(a), *r = x ? PyNumber_Long(x) : NULL;
    Py_XDECREF(x);
    return r;
}
static PyObject *f_compare(PyObject *a, PyObject *b, int op)
{
    if (py_is_tensor(b))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *x = t_size_fixed(a),
             *y = !x           ? NULL
                  : is_ours(b) ? t_size_fixed(b)
                               : Py_NewRef(b),
             *r = y ? PyObject_RichCompare(x, y, op) : NULL;
    Py_XDECREF(x);
    Py_XDECREF(y);
    return r;
}
static Py_hash_t f_hash(PyObject *a)
{
    PyObject *x = t_size_fixed(a);
    Py_hash_t h = x ? PyObject_Hash(x) : -1;
    Py_XDECREF(x);
    return h;
}
static PyObject *f_repr(PyObject *a)
{
    PyObject *x = t_size_fixed(a), *r = x ? PyObject_Repr(x) : NULL;
    Py_XDECREF(x);
    return r;
}
static PyObject *f_attr(PyObject *a,
                        PyObject *name) /* is_integer, __format__, __round__, ...: a float's own */
{
    PyObject *x = t_size_fixed(a), *r = x ? PyObject_GetAttr(x, name) : NULL;
    Py_XDECREF(x);
    return r;
}
static PyObject *f_format(PyObject *a, PyObject *spec)
{
    PyObject *x = t_size_fixed(a), *r = x ? PyObject_Format(x, spec) : NULL;
    Py_XDECREF(x);
    return r;
}
static PyObject *f_round(PyObject *a, PyObject *args)
{
    PyObject *m = PyUnicode_FromString("__round__"), *f = m ? f_attr(a, m) : NULL,
             *r = f ? PyObject_CallObject(f, args) : NULL;
    Py_XDECREF(m);
    Py_XDECREF(f);
    return r;
}
static PyMethodDef methods[] = { { "__format__", f_format, METH_O, NULL },
                                 { "__round__", f_round, METH_VARARGS, NULL },
                                 { NULL } };
static PyNumberMethods number = { .nb_add = f_add,
                                  .nb_subtract = f_sub,
                                  .nb_multiply = f_mul,
                                  .nb_true_divide = f_div,
                                  .nb_power = f_pow,
                                  .nb_floor_divide = f_floordiv,
                                  .nb_remainder = f_mod,
                                  .nb_divmod = f_divmod,
                                  .nb_negative = f_neg,
                                  .nb_positive = f_pos,
                                  .nb_absolute = f_abs,
                                  .nb_bool = f_bool,
                                  .nb_int = f_int,
                                  .nb_float = t_size_fixed };
PyTypeObject PySizeFloat_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.SizeFloat",
                                  .tp_basicsize = sizeof(PySizeFloat),
                                  .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  .tp_dealloc = dealloc,
                                  .tp_getattro = f_attr,
                                  .tp_repr = f_repr,
                                  .tp_as_number = &number,
                                  .tp_methods = methods,
                                  .tp_richcompare = f_compare,
                                  .tp_hash = f_hash,
                                  .tp_doc = "A float made of symbolic sizes." };

int py_init_sizefloat(PyObject *m) { return PyType_Ready(&PySizeFloat_Type); }
