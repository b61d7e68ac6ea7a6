/* symint.c - symbolic integers as Python numbers. Arithmetic stays symbolic; a comparison answers at once and
 * leaves a guard; whatever needs the number itself (index, hash, a text) fixes it to its value. */
#include "python/py.h"
#include "sym/env.h"

typedef struct PySymInt {
    PyObject_HEAD symint v;
} PySymInt;

symint py_symint_value(PyObject *o) { return ((PySymInt *)o)->v; }

PyObject *py_symint(symint v)
{
    PySymInt *o = PyObject_New(PySymInt, &PySymInt_Type);
    if (o) {
        o->v = v;
        sym_env_ref(sym_env_of(v)); /* the user may keep it longer than we keep the graph */
    }
    return (PyObject *)o;
}

static void si_dealloc(PyObject *o)
{
    sym_env_unref(sym_env_of(((PySymInt *)o)->v));
    PyObject_Free(o);
}

PyObject *py_int(symint v) { return sym_is_expr(v) ? py_symint(v) : PyLong_FromLongLong(v); }

static PyObject *fixed(PyObject *o);
static PyObject *symint_repr(PyObject *o)
{
    if (py_asks.tracing()) { /* the program's own text shows a number */
        PyObject *n = fixed(o), *t = n ? PyObject_Repr(n) : NULL;
        Py_XDECREF(n);
        return t;
    }
    strbuf b = { 0 };
    sym_print(&b, ((PySymInt *)o)->v);
    PyObject *r = PyUnicode_FromString(strbuf_str(&b));
    strbuf_free(&b);
    return r;
}

/* The shape environment reports trouble in its own slot. */
static bool failed(symint a, symint b)
{
    sym_env *env = sym_env_of(a);
    if (!env)
        env = sym_env_of(b);
    tp_err *e = env ? sym_env_err(env) : NULL;
    if (!e || e->kind == ERR_none)
        return false;
    tp_err copy = *e;
    err_clear(e);
    if (copy.kind == ERR_datadep)
        PyErr_SetString(py_fake_error, copy.msg);
    else
        py_raise(&copy);
    return true;
}

static bool operand(PyObject *o, symint *v)
{
    if (py_is_symint(o)) {
        *v = py_symint_value(o);
        if (sym_is_bool(*v) && !sym_is_unbacked(*v)) /* a truth value counts as 0 or 1: it is asked for now */
            *v = sym_truth(*v);
        return true;
    }
    if (!PyLong_Check(o))
        return false;
    int over;
    long long x = PyLong_AsLongLongAndOverflow(o, &over);
    *v = x;
    return !over && x < SYM_LIMIT && x > -SYM_LIMIT;
}

static PyObject *fixed(PyObject *o) /* new int: the value, from now on a guard */
{
    if (!py_is_symint(o))
        return Py_NewRef(o);
    symint v = py_symint_value(o);
    if (sym_is_bool(v)) {
        bool yes = sym_truth(v);
        return failed(v, 0) ? NULL : PyBool_FromLong(yes);
    }
    int64_t n = sym_specialize(v);
    return failed(v, 0) ? NULL : PyLong_FromLongLong(n);
}

/* op: how floats do the same, or 0 where they need the number. */
static PyObject *arith(PyObject *a, PyObject *b, symint (*f)(symint, symint), binaryfunc plain, char op)
{
    symint x, y;
    if (operand(a, &x) && operand(b, &y)) {
        if (!op && sym_eq(y, 0)) {
            PyErr_SetString(PyExc_ZeroDivisionError, "integer division or modulo by zero");
            return NULL;
        }
        symint r = f(x, y);
        return failed(x, y) ? NULL : py_int(r);
    }
    if (!PyFloat_Check(a) && !PyFloat_Check(b) && !PyLong_Check(a) && !PyLong_Check(b))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *r = op ? py_asks.size_arith(op, a, b) : NULL;
    if (r || PyErr_Occurred())
        return r;
    PyObject *p = fixed(a), *q = p ? fixed(b) : NULL;
    r = q ? plain(p, q) : NULL;
    Py_XDECREF(p);
    Py_XDECREF(q);
    return r;
}
static symint f_add(symint a, symint b) { return sym_add(a, b); }
static symint f_sub(symint a, symint b) { return sym_sub(a, b); }
static symint f_mul(symint a, symint b) { return sym_mul(a, b); }
static symint f_div(symint a, symint b) { return sym_floordiv(a, b); }
static symint f_mod(symint a, symint b) { return sym_mod(a, b); }
#define ARITH(n, f, p, d) \
    static PyObject *n(PyObject *a, PyObject *b) { return arith(a, b, f, p, d); }
ARITH(si_add, f_add, PyNumber_Add, '+')
ARITH(si_sub, f_sub, PyNumber_Subtract, '-')
ARITH(si_mul, f_mul, PyNumber_Multiply, '*')
ARITH(si_floordiv, f_div, PyNumber_FloorDivide, 0)
ARITH(si_mod, f_mod, PyNumber_Remainder, 0)

static PyObject *plainly(PyObject *a, PyObject *b, binaryfunc f)
{
    if ((!py_is_symint(a) && !PyLong_Check(a) && !PyFloat_Check(a)) ||
        (!py_is_symint(b) && !PyLong_Check(b) && !PyFloat_Check(b)))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *p = fixed(a), *q = p ? fixed(b) : NULL, *r = q ? f(p, q) : NULL;
    Py_XDECREF(p);
    Py_XDECREF(q);
    return r;
}
#define PLAIN(n, f) \
    static PyObject *n(PyObject *a, PyObject *b) { return plainly(a, b, f); }
static PyObject *si_truediv(PyObject *a, PyObject *b)
{
    PyObject *r = py_asks.size_arith('/', a, b);
    return r || PyErr_Occurred() ? r : plainly(a, b, PyNumber_TrueDivide);
}
static PyObject *shift(PyObject *a, PyObject *b, symint (*f)(symint, symint), binaryfunc plain)
{
    symint x, n;
    if (!operand(a, &x) || !operand(b, &n) || sym_is_expr(n) || n < 0 || n > 40)
        return plainly(a, b, plain);
    symint r = f(x, (symint)1 << n);
    return failed(x, n) ? NULL : py_int(r);
}
static PyObject *si_lshift(PyObject *a, PyObject *b) { return shift(a, b, f_mul, PyNumber_Lshift); }
static PyObject *si_rshift(PyObject *a, PyObject *b) { return shift(a, b, f_div, PyNumber_Rshift); }
static PyObject *si_and(PyObject *a, PyObject *b) /* the last bits are a remainder */
{
    symint x, m;
    if (py_is_symint(b) && !py_is_symint(a))
        return si_and(b, a);
    if (!operand(a, &x) || !operand(b, &m) || sym_is_expr(m) || m <= 0 || (m & (m + 1)))
        return plainly(a, b, PyNumber_And);
    symint r = sym_mod(x, m + 1);
    return failed(x, m) ? NULL : py_int(r);
}
PLAIN(si_or, PyNumber_Or)
PLAIN(si_xor, PyNumber_Xor)
static PyObject *si_divmod(PyObject *a, PyObject *b)
{
    symint x, y;
    if (!operand(a, &x) || !operand(b, &y))
        return plainly(a, b, PyNumber_Divmod);
    PyObject *q = si_floordiv(a, b), *m = q ? si_mod(a, b) : NULL, *r = m ? PyTuple_Pack(2, q, m) : NULL;
    Py_XDECREF(q);
    Py_XDECREF(m);
    return r;
}

static PyObject *si_pow(PyObject *a, PyObject *b, PyObject *m)
{
    if (py_is_symint(a) && PyLong_Check(b) && m == Py_None) {
        long n = PyLong_AsLong(b);
        if (n >= 0 && n <= 16) {
            symint r = sym_pow(py_symint_value(a), n);
            return failed(py_symint_value(a), 0) ? NULL : py_int(r);
        }
        PyErr_Clear();
    }
    if (py_is_tensor(a) || py_is_tensor(b))
        Py_RETURN_NOTIMPLEMENTED;
    bool real = PyFloat_Check(a) || PyFloat_Check(b) || (PyLong_Check(b) && PyLong_AsLong(b) < 0);
    PyErr_Clear();
    PyObject *r = m == Py_None && real ? py_asks.size_arith('p', a, b) : NULL;
    if (r || PyErr_Occurred())
        return r;
    PyObject *p = fixed(a), *q = p ? fixed(b) : NULL;
    r = q ? PyNumber_Power(p, q, m) : NULL;
    Py_XDECREF(p);
    Py_XDECREF(q);
    return r;
}
static PyObject *si_neg(PyObject *a) { return py_int(sym_sub(0, py_symint_value(a))); }
static PyObject *si_pos(PyObject *a) { return Py_NewRef(a); }
static PyObject *si_abs(PyObject *a)
{
    symint v = py_symint_value(a);
    bool neg = sym_lt(v, 0);
    return failed(v, 0) ? NULL : neg ? si_neg(a) : Py_NewRef(a);
}
static int si_bool(PyObject *a)
{
    symint v = py_symint_value(a);
    bool r = sym_is_bool(v) ? sym_truth(v) : sym_ne(v, 0);
    return failed(v, 0) ? -1 : r;
}
static PyObject *si_int(PyObject *a) { return fixed(a); }
static PyObject *si_float(PyObject *a)
{
    PyObject *n = fixed(a), *r = n ? PyNumber_Float(n) : NULL;
    Py_XDECREF(n);
    return r;
}
static PyObject *si_invert(PyObject *a) { return py_int(sym_sub(-1, py_symint_value(a))); }
static Py_hash_t si_hash(PyObject *a)
{
    PyObject *n = fixed(a);
    Py_hash_t h = n ? PyObject_Hash(n) : -1;
    Py_XDECREF(n);
    return h;
}
static PyObject *si_compare(PyObject *a, PyObject *b, int op)
{
    symint x, y;
    if (!operand(a, &x) || !operand(b, &y)) {
        if (!PyFloat_Check(b))
            Py_RETURN_NOTIMPLEMENTED;
        PyObject *p = fixed(a), *r = p ? PyObject_RichCompare(p, b, op) : NULL;
        Py_XDECREF(p);
        return r;
    }
    bool r = false;
    if (sym_is_unbacked(x) || sym_is_unbacked(y) || py_asks.keeps_relations()) { /* stays a question */
        static const sym_rel rels[] = { [Py_LT] = SYM_lt, [Py_LE] = SYM_le, [Py_EQ] = SYM_eq,
                                        [Py_NE] = SYM_ne, [Py_GT] = SYM_gt, [Py_GE] = SYM_ge };
        symint cond = sym_simplify(sym_rel_of(rels[op], x, y));
        return failed(x, y) ? NULL : sym_is_expr(cond) ? py_symint(cond) : PyBool_FromLong(cond != 0);
    }
    switch (op) {
    case Py_LT: r = sym_lt(x, y); break;
    case Py_LE: r = sym_le(x, y); break;
    case Py_EQ: r = sym_eq(x, y); break;
    case Py_NE: r = !sym_eq(x, y); break;
    case Py_GT: r = sym_gt(x, y); break;
    case Py_GE: r = sym_ge(x, y); break;
    }
    return failed(x, y) ? NULL : PyBool_FromLong(r);
}
static PyNumberMethods number = { .nb_add = si_add,
                                  .nb_subtract = si_sub,
                                  .nb_multiply = si_mul,
                                  .nb_floor_divide = si_floordiv,
                                  .nb_remainder = si_mod,
                                  .nb_true_divide = si_truediv,
                                  .nb_power = si_pow,
                                  .nb_negative = si_neg,
                                  .nb_positive = si_pos,
                                  .nb_absolute = si_abs,
                                  .nb_bool = si_bool,
                                  .nb_int = si_int,
                                  .nb_float = si_float,
                                  .nb_index = si_int,
                                  .nb_invert = si_invert,
                                  .nb_lshift = si_lshift,
                                  .nb_rshift = si_rshift,
                                  .nb_and = si_and,
                                  .nb_or = si_or,
                                  .nb_xor = si_xor,
                                  .nb_divmod = si_divmod };

static PyObject *si_format(PyObject *o, PyObject *spec)
{
    PyObject *n = fixed(o), *r = n ? PyObject_Format(n, spec) : NULL;
    Py_XDECREF(n);
    return r;
}
static PyObject *si_round(PyObject *o, PyObject *x) { return Py_NewRef(o); }
static PyObject *si_true(PyObject *o, PyObject *x) { Py_RETURN_TRUE; }
static PyMethodDef methods[] = { { "__format__", si_format, METH_O, NULL },
                                 { "is_integer", si_true, METH_NOARGS, "always true" },
                                 { "__round__", si_round, METH_VARARGS, NULL },
                                 { NULL } };

PyTypeObject PySymInt_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.SymInt",
    .tp_basicsize = sizeof(PySymInt),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = si_dealloc,
    .tp_repr = symint_repr,
    .tp_as_number = &number,
    .tp_richcompare = si_compare,
    .tp_hash = si_hash,
    .tp_methods = methods,
    .tp_doc =
        "An integer whose value is an expression over sizes.\n\n>>> isinstance(3, taper.SymInt)\nFalse\n"
};

/* _sym_eval(SymInt, {symbol name: int}) -> int, or the SymInt itself when a symbol has no value. */
static PyObject *eval_in(PyObject *m, PyObject *args)
{
    PyObject *o, *d, *k, *v;
    Py_ssize_t p = 0;
    if (!PyArg_ParseTuple(args, "OO!", &o, &PyDict_Type, &d))
        return NULL;
    if (!py_is_symint(o))
        return Py_NewRef(o);
    symint x = sym_simplify(py_symint_value(o));
    if (!sym_is_expr(x))
        return PyLong_FromLongLong(x);
    sym_env *env = sym_env_of(x);
    sym_bind *bind = mem_zalloc(sizeof *bind * (size_t)(PyDict_GET_SIZE(d) + 1));
    int n = 0;
    int64_t r = 0;
    while (env && PyDict_Next(d, &p, &k, &v)) {
        const char *name = PyUnicode_Check(k) ? PyUnicode_AsUTF8(k) : NULL;
        symint s = name ? sym_env_find(env, name, strlen(name)) : 0;
        if (sym_is_symbol(s) && PyLong_Check(v))
            bind[n++] = (sym_bind){ sym_expr_of(s), PyLong_AsLongLong(v) };
    }
    bool ok = env && sym_eval(x, bind, n, &r);
    free(bind);
    PyErr_Clear();
    return !ok ? Py_NewRef(o) : sym_is_bool(x) ? PyBool_FromLong(r != 0) : PyLong_FromLongLong(r);
}
/* _sym_open(v): a question that is still open and must not become a guard */
static PyObject *open_question(PyObject *m, PyObject *o)
{
    return PyBool_FromLong(py_is_symint(o) && sym_is_unbacked(py_symint_value(o)));
}
static PyMethodDef functions[] = { { "_sym_open", open_question, METH_O,
                                     "is this question about unbacked sizes?" },
                                   { "_sym_eval", eval_in, METH_VARARGS, "the value of a SymInt" },
                                   { NULL } };

int py_init_symint(PyObject *m)
{
    if (PyModule_AddFunctions(m, functions) < 0)
        return -1;
    return PyType_Ready(&PySymInt_Type) < 0 ? -1
                                            : PyModule_AddObjectRef(m, "SymInt", (PyObject *)&PySymInt_Type);
}
