/* interp.c - one instruction of a frame, natively or while tracing: same stack discipline, different leaves.
 */
#include "capture/capture.h"
#include <opcode.h>

#define PUSH(o)       (f->stack[f->sp++] = (o)) /* takes a reference */
#define POP()         (f->stack[--f->sp])       /* gives one */
#define TOP           (f->stack[f->sp - 1])
#define PEEK(n)       (f->stack[f->sp - (n)])
#define NAME(i)       PyTuple_GET_ITEM(f->cc->names, (i))
#define T             (f->t)
#define HANDLER(name) static int op_##name(frame *f, int arg, PyObject **result)
#define PUSH_OR_FAIL(e)      \
    do {                     \
        PyObject *r_ = (e);  \
        if (!r_)             \
            return ST_error; \
        PUSH(r_);            \
        return ST_next;      \
    } while (0)

static void drop(frame *f, int n)
{
    while (n--) {
        PyObject *o = POP();
        f->stack[f->sp] = NULL;
        Py_XDECREF(o);
    }
}

static PyObject *real(frame *f, PyObject *o) { return T ? t_real(T, o) : o; } /* borrowed */
/* A helper tuple that the compiler put on the stack (names, cells, defaults): known with its elements. */
static PyObject *known(frame *f, PyObject *o)
{
    o = real(f, o);
    return o && T && !t_deep(T, o) ? NULL : o;
}

/* ---- stack and slots ---- */
HANDLER(CACHE) { return ST_next; }
HANDLER(NOP) { return ST_next; }
HANDLER(RESUME) { return ST_next; }
HANDLER(EXTENDED_ARG) { return ST_next; }
HANDLER(COPY_FREE_VARS) { return ST_next; } /* frame_init has done it */
HANDLER(MAKE_CELL)
{
    PyObject *v = f->fast[arg], *c = PyCell_New(NULL);
    if (!c)
        return ST_error;
    PyCell_SET(c, v); /* takes v's reference */
    f->fast[arg] = c;
    return ST_next;
}
HANDLER(POP_TOP)
{
    drop(f, 1);
    return ST_next;
}
HANDLER(PUSH_NULL)
{
    PUSH(NULL);
    return ST_next;
}
HANDLER(COPY)
{
    PyObject *o = PEEK(arg);
    PUSH(Py_XNewRef(o));
    return ST_next;
}
HANDLER(SWAP)
{
    PyObject *o = TOP;
    TOP = PEEK(arg);
    PEEK(arg) = o;
    return ST_next;
}
HANDLER(LOAD_CONST)
{
    PUSH(Py_NewRef(PyTuple_GET_ITEM(f->cc->consts, arg)));
    return ST_next;
}
static int unbound(frame *f, int i, bool free_var)
{
    PyErr_Format(
        free_var && (f->cc->kinds[i] & 0x80) ? PyExc_NameError : PyExc_UnboundLocalError,
        free_var && (f->cc->kinds[i] & 0x80)
            ? "cannot access free variable '%U' where it is not associated with a value in enclosing scope"
            : "cannot access local variable '%U' where it is not associated with a value",
        PyTuple_GET_ITEM(f->cc->localsplus, i));
    return ST_error;
}
HANDLER(LOAD_FAST)
{
    PyObject *o = f->fast[arg];
    if (!o)
        return unbound(f, arg, false);
    if (TP_PY313 && (f->cc->kinds[arg] & (0x40 | 0x80)) && !(o = real(f, o))) /* the cell, for a closure */
        return ST_error;
    PUSH(Py_NewRef(o));
    return ST_next;
}
/* Dropping an object that has a finalizer runs the user's code, at this very moment. */
static bool ends_here(frame *f, PyObject *old)
{
    PyObject *o = T && old ? (IS_LAZY(old) ? ((PyLazy *)old)->real : old) : NULL;
    if (TP_LIKELY(!o || !Py_TYPE(o)->tp_finalize || !type_is_python(Py_TYPE(o)) ||
                  !t_type_func(o, "__del__")))
        return false;
    t_break(T, BRK_live, "a %s is dropped, which has __del__", Py_TYPE(o)->tp_name);
    return true;
}
HANDLER(STORE_FAST)
{
    if (ends_here(f, f->fast[arg]))
        return ST_error;
    PyObject *o = POP();
    f->stack[f->sp] = NULL;
    if (T && o && !IS_LAZY(o) &&
        py_is_tensor(o)) /* NULL: an unbound name that a comprehension had put aside */
        t_name(T, o, PyTuple_GET_ITEM(f->cc->localsplus, arg));
    Py_XSETREF(f->fast[arg], o);
    return ST_next;
}
#if TP_PY313 /* two in one; nothing may stop between them */
HANDLER(LOAD_FAST_LOAD_FAST)
{
    int rc = op_LOAD_FAST(f, arg >> 4, result);
    return rc == ST_next ? op_LOAD_FAST(f, arg & 15, result) : rc;
}
HANDLER(STORE_FAST_LOAD_FAST)
{
    int rc = op_STORE_FAST(f, arg >> 4, result);
    return rc == ST_next ? op_LOAD_FAST(f, arg & 15, result) : rc;
}
HANDLER(STORE_FAST_STORE_FAST)
{
    if (ends_here(f, f->fast[arg & 15]))
        return ST_error;
    int rc = op_STORE_FAST(f, arg >> 4, result);
    return rc == ST_next ? op_STORE_FAST(f, arg & 15, result) : rc;
}
#endif
#if TP_PY314
HANDLER(LOAD_FAST_BORROW) { return op_LOAD_FAST(f, arg, result); }
HANDLER(LOAD_FAST_BORROW_LOAD_FAST_BORROW) { return op_LOAD_FAST_LOAD_FAST(f, arg, result); }
HANDLER(LOAD_SMALL_INT) { PUSH_OR_FAIL(PyLong_FromLong(arg)); }
HANDLER(LOAD_COMMON_CONSTANT) /* the builtin itself, whatever hides its name */
{
    static const char *const names[] = { "AssertionError", "NotImplementedError", "tuple", "all", "any" };
    PyObject *builtins = PyImport_ImportModule("builtins");
    PyObject *v = builtins ? PyObject_GetAttrString(builtins, names[arg]) : NULL;
    Py_XDECREF(builtins);
    PUSH_OR_FAIL(v);
}
#endif
HANDLER(DELETE_FAST)
{
    if (!f->fast[arg])
        return unbound(f, arg, false);
    if (ends_here(f, f->fast[arg]))
        return ST_error;
    Py_CLEAR(f->fast[arg]);
    return ST_next;
}

/* ---- globals ---- */
/* The form of a call: an empty place for self in front of the callee or, from 3.13 on, behind it. */
static void push_callee(frame *f, PyObject *v)
{
    if (!TP_PY313)
        PUSH(NULL);
    PUSH(v);
    if (TP_PY313)
        PUSH(NULL);
}
static PyObject *load_global(frame *f, PyObject *name)
{
    if (T)
        return t_global(T, f, name);
    PyObject *v = PyDict_GetItemWithError(f->globals, name);
    if (!v && !PyErr_Occurred())
        v = PyDict_Check(f->builtins) ? PyDict_GetItemWithError(f->builtins, name) : NULL;
    if (!v && !PyErr_Occurred())
        PyErr_Format(PyExc_NameError, "name '%U' is not defined", name);
    return Py_XNewRef(v);
}
HANDLER(LOAD_GLOBAL)
{
    PyObject *v = load_global(f, NAME(arg >> 1));
    if (!v)
        return ST_error;
    if (arg & 1)
        push_callee(f, v);
    else
        PUSH(v);
    return ST_next;
}
HANDLER(STORE_GLOBAL)
{
    int rc = T ? t_setglobal(T, f, NAME(arg), TOP) : PyDict_SetItem(f->globals, NAME(arg), TOP);
    if (rc < 0)
        return ST_error;
    drop(f, 1);
    return ST_next;
}
HANDLER(DELETE_GLOBAL)
{
    if (T)
        return t_setglobal(T, f, NAME(arg), NULL) < 0 ? ST_error : ST_next;
    if (PyDict_DelItem(f->globals, NAME(arg)) < 0) {
        if (PyErr_ExceptionMatches(PyExc_KeyError))
            PyErr_Format(PyExc_NameError, "name '%U' is not defined", NAME(arg));
        return ST_error;
    }
    return ST_next;
}

/* ---- cells ---- */
#if !TP_PY313
HANDLER(LOAD_CLOSURE)
{
    PUSH(Py_NewRef(real(f, f->fast[arg])));
    return ST_next;
}
#endif
HANDLER(LOAD_DEREF)
{
    PyObject *c = real(f, f->fast[arg]);
    if (!c)
        return ST_error;
    PyObject *v = T ? t_cell_get(T, c) : Py_XNewRef(PyCell_GET(c));
    if (!v)
        return PyErr_Occurred() || (T && T->broke) ? ST_error : unbound(f, arg, true);
    PUSH(v);
    return ST_next;
}
HANDLER(STORE_DEREF)
{
    PyObject *c = real(f, f->fast[arg]);
    if (!c || (T ? t_cell_set(T, c, TOP) : PyCell_Set(c, TOP)) < 0)
        return ST_error;
    drop(f, 1);
    return ST_next;
}
HANDLER(DELETE_DEREF)
{
    PyObject *c = real(f, f->fast[arg]);
    if (!c)
        return ST_error;
    PyObject *v = T ? t_cell_get(T, c) : Py_XNewRef(PyCell_GET(c));
    if (!v)
        return unbound(f, arg, true);
    Py_DECREF(v);
    return (T ? t_cell_set(T, c, NULL) : PyCell_Set(c, NULL)) < 0 ? ST_error : ST_next;
}

/* ---- attributes ---- */
static PyObject *getattr(frame *f, PyObject *o, PyObject *name)
{
    return T ? t_getattr(T, o, name) : PyObject_GetAttr(o, name);
}
static int replace_top(frame *f, PyObject *v)
{
    if (!v)
        return ST_error;
    Py_SETREF(TOP, v);
    return ST_next;
}
HANDLER(LOAD_ATTR)
{
#if TP_PY312
    PyObject *v = getattr(f, TOP, NAME(arg >> 1));
    if (!v)
        return ST_error;
    if (!(arg & 1))
        return replace_top(f, v);
    drop(f, 1);
    push_callee(f, v);
    return ST_next;
#else
    return replace_top(f, getattr(f, TOP, NAME(arg)));
#endif
}
HANDLER(STORE_ATTR)
{
    PyObject *o = TOP, *v = PEEK(2);
    if ((T ? t_setattr(T, o, NAME(arg), v) : PyObject_SetAttr(o, NAME(arg), v)) < 0)
        return ST_error;
    drop(f, 2);
    return ST_next;
}
HANDLER(DELETE_ATTR)
{
    if ((T ? t_setattr(T, TOP, NAME(arg), NULL) : PyObject_SetAttr(TOP, NAME(arg), NULL)) < 0)
        return ST_error;
    drop(f, 1);
    return ST_next;
}

/* ---- operators ---- */
static int unary(frame *f, int which)
{
    PyObject *a = TOP, *r;
    if (T)
        r = t_unary(T, which, a);
    else
        r = which == '-' ? PyNumber_Negative(a) : which == '+' ? PyNumber_Positive(a) : PyNumber_Invert(a);
    return replace_top(f, r);
}
HANDLER(UNARY_NEGATIVE) { return unary(f, '-'); }
HANDLER(UNARY_INVERT) { return unary(f, '~'); }
static int truth(frame *f, PyObject *o) { return T ? t_truth(T, o) : PyObject_IsTrue(o); }
HANDLER(UNARY_NOT)
{
    int b = truth(f, TOP);
    return b < 0 ? ST_error : replace_top(f, PyBool_FromLong(!b));
}

PyObject *native_binary(int op, PyObject *a, PyObject *b)
{
    switch (op) {
    case NB_ADD: return PyNumber_Add(a, b);
    case NB_AND: return PyNumber_And(a, b);
    case NB_FLOOR_DIVIDE: return PyNumber_FloorDivide(a, b);
    case NB_LSHIFT: return PyNumber_Lshift(a, b);
    case NB_MATRIX_MULTIPLY: return PyNumber_MatrixMultiply(a, b);
    case NB_MULTIPLY: return PyNumber_Multiply(a, b);
    case NB_REMAINDER: return PyNumber_Remainder(a, b);
    case NB_OR: return PyNumber_Or(a, b);
    case NB_POWER: return PyNumber_Power(a, b, Py_None);
    case NB_RSHIFT: return PyNumber_Rshift(a, b);
    case NB_SUBTRACT: return PyNumber_Subtract(a, b);
    case NB_TRUE_DIVIDE: return PyNumber_TrueDivide(a, b);
    case NB_XOR: return PyNumber_Xor(a, b);
    case NB_INPLACE_ADD: return PyNumber_InPlaceAdd(a, b);
    case NB_INPLACE_AND: return PyNumber_InPlaceAnd(a, b);
    case NB_INPLACE_FLOOR_DIVIDE: return PyNumber_InPlaceFloorDivide(a, b);
    case NB_INPLACE_LSHIFT: return PyNumber_InPlaceLshift(a, b);
    case NB_INPLACE_MATRIX_MULTIPLY: return PyNumber_InPlaceMatrixMultiply(a, b);
    case NB_INPLACE_MULTIPLY: return PyNumber_InPlaceMultiply(a, b);
    case NB_INPLACE_REMAINDER: return PyNumber_InPlaceRemainder(a, b);
    case NB_INPLACE_OR: return PyNumber_InPlaceOr(a, b);
    case NB_INPLACE_POWER: return PyNumber_InPlacePower(a, b, Py_None);
    case NB_INPLACE_RSHIFT: return PyNumber_InPlaceRshift(a, b);
    case NB_INPLACE_SUBTRACT: return PyNumber_InPlaceSubtract(a, b);
    case NB_INPLACE_TRUE_DIVIDE: return PyNumber_InPlaceTrueDivide(a, b);
    case NB_INPLACE_XOR: return PyNumber_InPlaceXor(a, b);
    }
    return PyErr_Format(PyExc_SystemError, "unknown binary operation %d", op);
}
static int two_to_one(frame *f, PyObject *r)
{
    if (!r)
        return ST_error;
    drop(f, 2);
    PUSH(r);
    return ST_next;
}
static int subscr(frame *f)
{
    PyObject *k = TOP, *o = PEEK(2);
    return two_to_one(f, T ? t_subscr(T, o, k) : PyObject_GetItem(o, k));
}
HANDLER(BINARY_OP)
{
    PyObject *b = TOP, *a = PEEK(2);
#if TP_PY314
    if (arg == NB_SUBSCR)
        return subscr(f);
#endif
    return two_to_one(f, T ? t_binary(T, arg, a, b) : native_binary(arg, a, b));
}
#if !TP_PY314
HANDLER(BINARY_SUBSCR) { return subscr(f); }
#endif
HANDLER(STORE_SUBSCR)
{
    PyObject *k = TOP, *o = PEEK(2), *v = PEEK(3);
    if ((T ? t_setitem(T, o, k, v) : PyObject_SetItem(o, k, v)) < 0)
        return ST_error;
    drop(f, 3);
    return ST_next;
}
HANDLER(DELETE_SUBSCR)
{
    PyObject *k = TOP, *o = PEEK(2);
    if ((T ? t_setitem(T, o, k, NULL) : PyObject_DelItem(o, k)) < 0)
        return ST_error;
    drop(f, 2);
    return ST_next;
}
HANDLER(COMPARE_OP)
{
    PyObject *b = TOP, *a = PEEK(2);
    arg = compare_arg(arg);
    return two_to_one(f, T ? t_compare(T, a, b, arg) : PyObject_RichCompare(a, b, arg));
}
HANDLER(IS_OP)
{
    int r = T ? t_is(T, PEEK(2), TOP) : PEEK(2) == TOP;
    return r < 0 ? ST_error : two_to_one(f, PyBool_FromLong(r ^ arg));
}
HANDLER(CONTAINS_OP)
{
    PyObject *c = TOP, *v = PEEK(2);
    int r = T ? t_contains(T, c, v) : PySequence_Contains(c, v);
    return r < 0 ? ST_error : two_to_one(f, PyBool_FromLong(r ^ arg));
}

/* ---- building ---- */
static bool hashable(frame *f, PyObject **slot) /* keys: realised, with a builtin hash */
{
    if (!T)
        return true;
    PyObject *k = t_real(T, *slot);
    if (!k)
        return false;
    Py_SETREF(*slot, Py_NewRef(k));
    return t_key(T, k);
}
HANDLER(BUILD_TUPLE)
{
    PyObject *r = PyTuple_New(arg);
    if (!r)
        return ST_error;
    for (int i = arg; i-- > 0;)
        PyTuple_SET_ITEM(r, i, POP());
    PUSH(r);
    return ST_next;
}
HANDLER(BUILD_LIST)
{
    PyObject *r = PyList_New(arg);
    if (!r)
        return ST_error;
    for (int i = arg; i-- > 0;)
        PyList_SET_ITEM(r, i, POP());
    PUSH(r);
    return ST_next;
}
HANDLER(BUILD_SET)
{
    PyObject *r = PySet_New(NULL);
    for (int i = arg; r && i > 0; i--)
        if (!hashable(f, &PEEK(i)) || PySet_Add(r, PEEK(i)) < 0)
            Py_CLEAR(r);
    if (!r)
        return ST_error;
    drop(f, arg);
    PUSH(r);
    return ST_next;
}
HANDLER(BUILD_MAP)
{
    PyObject *r = PyDict_New();
    for (int i = arg; r && i > 0; i--)
        if (!hashable(f, &PEEK(2 * i)) || PyDict_SetItem(r, PEEK(2 * i), PEEK(2 * i - 1)) < 0)
            Py_CLEAR(r);
    if (!r)
        return ST_error;
    drop(f, 2 * arg);
    PUSH(r);
    return ST_next;
}
#if !TP_PY314
HANDLER(BUILD_CONST_KEY_MAP)
{
    PyObject *keys = known(f, TOP), *r = keys ? PyDict_New() : NULL;
    for (int i = arg; r && i > 0; i--)
        if (PyDict_SetItem(r, PyTuple_GET_ITEM(keys, arg - i), PEEK(i + 1)) < 0)
            Py_CLEAR(r);
    if (!r)
        return ST_error;
    drop(f, arg + 1);
    PUSH(r);
    return ST_next;
}
#endif
HANDLER(BUILD_STRING)
{
    PyObject *empty = PyUnicode_FromString(""), *parts = PyTuple_New(arg), *r = NULL;
    for (int i = 0; parts && i < arg; i++)
        PyTuple_SET_ITEM(parts, i, Py_NewRef(real(f, PEEK(arg - i))));
    if (parts && empty)
        r = PyUnicode_Join(empty, parts);
    Py_XDECREF(parts);
    Py_XDECREF(empty);
    if (!r)
        return ST_error;
    drop(f, arg);
    PUSH(r);
    return ST_next;
}
HANDLER(BUILD_SLICE)
{
    PyObject *v[3] = { NULL, NULL, NULL };
    for (int i = 0; i < arg; i++)
        if (!(v[i] = real(f, PEEK(arg - i))))
            return ST_error;
    PyObject *r = PySlice_New(v[0], v[1], v[2]);
    if (!r)
        return ST_error;
    drop(f, arg);
    PUSH(r);
    return ST_next;
}
HANDLER(LIST_APPEND)
{
    PyObject *l = real(f, PEEK(arg + 1));
    if (!l || PyList_Append(l, TOP) < 0)
        return ST_error;
    drop(f, 1);
    return ST_next;
}
HANDLER(SET_ADD)
{
    PyObject *s = real(f, PEEK(arg + 1));
    if (!s || !hashable(f, &TOP) || PySet_Add(s, TOP) < 0)
        return ST_error;
    drop(f, 1);
    return ST_next;
}
HANDLER(MAP_ADD)
{
    PyObject *d = real(f, PEEK(arg + 2));
    if (!d || !hashable(f, &PEEK(2)) || PyDict_SetItem(d, PEEK(2), TOP) < 0)
        return ST_error;
    drop(f, 2);
    return ST_next;
}
HANDLER(LIST_EXTEND)
{
    PyObject *l = real(f, PEEK(arg + 1)), *r;
    if (!l)
        return ST_error;
    if (T) {
        PyObject *items = t_list_of(T, TOP);
        if (!items)
            return ST_error;
        r = _PyList_Extend((PyListObject *)l, items);
        Py_DECREF(items);
    } else {
        r = _PyList_Extend((PyListObject *)l, TOP);
        if (!r && PyErr_ExceptionMatches(PyExc_TypeError) && !Py_TYPE(TOP)->tp_iter &&
            !PySequence_Check(TOP)) {
            py_forget();
            PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s",
                         Py_TYPE(TOP)->tp_name);
        }
    }
    if (!r)
        return ST_error;
    Py_DECREF(r);
    drop(f, 1);
    return ST_next;
}
HANDLER(SET_UPDATE)
{
    PyObject *s = real(f, PEEK(arg + 1)), *items = T ? t_list_of(T, TOP) : Py_NewRef(TOP);
    if (!s || !items || (T && !t_key(T, items))) {
        Py_XDECREF(items);
        return ST_error;
    }
    int rc = _PySet_Update(s, items);
    Py_DECREF(items);
    if (rc < 0)
        return ST_error;
    drop(f, 1);
    return ST_next;
}
static int dict_merge(frame *f, int arg, bool unique)
{
    PyObject *d = real(f, PEEK(arg + 1)), *m = real(f, TOP);
    if (!d || !m)
        return ST_error;
    PyObject *own = NULL;
    if (T && !t_safe_type(Py_TYPE(m)) && !(PyDict_Check(m) && Py_TYPE(m)->tp_iter == PyDict_Type.tp_iter)) {
        PyObject *fn = polyfill("mapping");
        if (!t_type_func(m, "keys")) {
            t_break(T, BRK_call_builtin, "** of a %s", Py_TYPE(m)->tp_name);
            return ST_error;
        }
        own = fn ? t_call(T, fn, &m, 1, NULL) : NULL;
        if (!own)
            return ST_error;
        m = keep(T->e, own);
        Py_DECREF(own);
    }
    int rc = unique ? _PyDict_MergeEx(d, m, 2) : PyDict_Update(d, m);
    if (rc < 0) {
        PyObject *callee = unique ? real(f, PEEK(arg + (TP_PY313 ? 4 : 3))) : NULL;
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
            py_forget();
            PyObject *who = callee ? _PyObject_FunctionStr(callee) : NULL;
            if (who)
                PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s", who,
                             Py_TYPE(m)->tp_name);
            else
                PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(m)->tp_name);
            Py_XDECREF(who);
        } else if (unique && PyErr_ExceptionMatches(PyExc_KeyError)) {
            PyObject *t, *v, *tb;
            PyErr_Fetch(&t, &v, &tb);
            PyErr_NormalizeException(&t, &v, &tb);
            PyObject *args = v ? PyObject_GetAttrString(v, "args") : NULL;
            PyObject *who = callee ? _PyObject_FunctionStr(callee) : NULL;
            PyErr_Format(PyExc_TypeError, "%V got multiple values for keyword argument '%S'", who, "function",
                         args && PyTuple_Check(args) && PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0)
                                                                               : Py_None);
            Py_XDECREF(args);
            Py_XDECREF(who);
            Py_XDECREF(t);
            Py_XDECREF(v);
            Py_XDECREF(tb);
        }
        return ST_error;
    }
    drop(f, 1);
    return ST_next;
}
HANDLER(DICT_UPDATE) { return dict_merge(f, arg, false); }
HANDLER(DICT_MERGE) { return dict_merge(f, arg, true); }

/* ---- iteration ---- */
static PyObject *next_of(frame *f, PyObject *it, bool *done)
{
    *done = false;
    if (T)
        return t_next(T, it, done);
    PyObject *v = (*Py_TYPE(it)->tp_iternext)(it);
    if (!v) {
        if (PyErr_Occurred()) {
            if (!PyErr_ExceptionMatches(PyExc_StopIteration))
                return NULL;
            py_forget();
        }
        *done = true;
    }
    return v;
}
HANDLER(GET_ITER) { return replace_top(f, T ? t_iter(T, TOP) : PyObject_GetIter(TOP)); }
HANDLER(FOR_ITER)
{
    bool done;
    PyObject *v = next_of(f, TOP, &done);
    if (v) {
        PUSH(v);
        return ST_next;
    }
    if (!done)
        return ST_error;
#if TP_PY312
    PUSH(Py_NewRef(Py_None)); /* END_FOR pops both */
    f->ip += arg;
#else
    drop(f, 1);
    f->ip += arg;
#endif
    return ST_next;
}
static void too_many(PyObject *o, int wanted)
{
    Py_ssize_t n = TP_PY314 && (PyTuple_CheckExact(o) || PyList_CheckExact(o) || PyDict_CheckExact(o))
                       ? PyObject_Size(o)
                       : -1;
    if (n > wanted)
        PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d, got %zd)", wanted, n);
    else
        PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", wanted);
}
static PyObject *take(frame *f, PyObject *o, int before, int after, bool ex) /* list of the parts, in order */
{
    o = real(f, o);
    if (!o)
        return NULL;
    PyObject *it = T ? t_iter(T, o) : PyObject_GetIter(o), *list;
    if (!it) {
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError) && !Py_TYPE(o)->tp_iter &&
            !PySequence_Check(o)) {
            py_forget();
            PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", Py_TYPE(o)->tp_name);
        }
        return NULL;
    }
    list = PyList_New(0);
    while (list && (ex || PyList_GET_SIZE(list) <= before)) {
        bool done;
        PyObject *v = next_of(f, it, &done);
        if (!v) {
            if (!done)
                Py_CLEAR(list);
            break;
        }
        if (PyList_Append(list, v) < 0)
            Py_CLEAR(list);
        Py_DECREF(v);
    }
    Py_DECREF(it);
    if (!list)
        return NULL;
    Py_ssize_t n = PyList_GET_SIZE(list);
    if (n < before + after)
        PyErr_Format(PyExc_ValueError,
                     ex ? "not enough values to unpack (expected at least %d, got %zd)"
                        : "not enough values to unpack (expected %d, got %zd)",
                     before + after, n);
    else if (!ex && n > before)
        too_many(o, before);
    else
        return list;
    Py_DECREF(list);
    return NULL;
}
HANDLER(UNPACK_SEQUENCE)
{
    PyObject *l = take(f, TOP, arg, 0, false);
    if (!l)
        return ST_error;
    drop(f, 1);
    for (int i = arg; i-- > 0;)
        PUSH(Py_NewRef(PyList_GET_ITEM(l, i)));
    Py_DECREF(l);
    return ST_next;
}
HANDLER(UNPACK_EX)
{
    int before = arg & 0xff, after = arg >> 8;
    PyObject *l = take(f, TOP, before, after, true);
    if (!l)
        return ST_error;
    Py_ssize_t n = PyList_GET_SIZE(l);
    PyObject *mid = PyList_GetSlice(l, before, n - after);
    if (!mid) {
        Py_DECREF(l);
        return ST_error;
    }
    drop(f, 1);
    for (int i = 0; i < after; i++)
        PUSH(Py_NewRef(PyList_GET_ITEM(l, n - 1 - i)));
    PUSH(mid);
    for (int i = before; i-- > 0;)
        PUSH(Py_NewRef(PyList_GET_ITEM(l, i)));
    Py_DECREF(l);
    return ST_next;
}
/* arg: which conversion, and 4 where a format follows */
static int format_value(frame *f, int arg)
{
    PyObject *spec = (arg & 4) ? TOP : NULL, *v = (arg & 4) ? PEEK(2) : TOP, *c, *r;
    v = real(f, v);
    if (spec)
        spec = real(f, spec);
    if (!v)
        return ST_error;
    if (T && (arg & 3 ||
              (!spec && t_safe_type(Py_TYPE(v)) && !PyUnicode_Check(v)))) { /* as str(v), repr(v), ... */
        c = t_text(T, v, arg & 3);
        if (!c)
            return ST_error;
        goto have;
    }
    if (T && !t_safe_type(Py_TYPE(v))) {
        PyObject *none = NULL;
        r = t_format(T, v, spec ? spec : (none = PyUnicode_FromString("")));
        Py_XDECREF(none);
        goto done;
    }
    if (T && py_is_tensor(v)) {
        t_break(T, BRK_format, "formatting a %s into a string", Py_TYPE(v)->tp_name);
        return ST_error;
    }
    switch (arg & 3) {
    case 1: c = PyObject_Str(v); break;
    case 2: c = PyObject_Repr(v); break;
    case 3: c = PyObject_ASCII(v); break;
    default: c = Py_NewRef(v);
    }
    if (!c)
        return ST_error;
have:
    r = PyUnicode_CheckExact(c) && !spec ? Py_NewRef(c) : PyObject_Format(c, spec);
    Py_DECREF(c);
done:
    if (!r)
        return ST_error;
    drop(f, (arg & 4) ? 2 : 1);
    PUSH(r);
    return ST_next;
}
#if !TP_PY313
HANDLER(FORMAT_VALUE) { return format_value(f, arg); }
#else
HANDLER(CONVERT_VALUE) { return format_value(f, arg); }
HANDLER(FORMAT_SIMPLE) { return format_value(f, 0); }
HANDLER(FORMAT_WITH_SPEC) { return format_value(f, 4); }
#endif

/* ---- jumps ---- */
#if TP_PY313
HANDLER(TO_BOOL) { return ST_next; } /* what comes next, a jump or `not`, asks for the truth itself */
#endif
HANDLER(JUMP_FORWARD)
{
    f->ip += arg;
    return ST_next;
}
/* On the way back in a loop: other threads may run, Ctrl-C is heard. */
int interp_turn(frame *f)
{
    static __thread unsigned turns;
    if (TP_UNLIKELY(!T && py_put_off_exc) && py_raise_put_off())
        return ST_error;
    if (!T && ++turns % 256 == 0) {
        Py_BEGIN_ALLOW_THREADS Py_END_ALLOW_THREADS
    }
    if (TP_LIKELY(PyErr_CheckSignals() == 0))
        return ST_next;
    if (T) /* the program is not here yet */
        T->internal = T->interrupted = true;
    return ST_error;
}
HANDLER(JUMP_BACKWARD)
{
    f->ip -= arg;
    return interp_turn(f);
}
HANDLER(JUMP_BACKWARD_NO_INTERRUPT)
{
    f->ip -= arg;
    return ST_next;
}
/* Is an AssertionError made where this jump is not taken? */
static bool before_assertion(const frame *f)
{
    const instr *in = &f->cc->ins[f->ip];
#if TP_PY314
    if (in->op == NOT_TAKEN)
        in = &f->cc->ins[in->next];
    return in->op == LOAD_COMMON_CONSTANT && in->arg == 0;
#else
    return in->op == LOAD_ASSERTION_ERROR;
#endif
}
/* assert statements about tensors are checked when the graph runs; that they hold is assumed from here on. */
static int asserted(frame *f, bool when)
{
    PyObject *o = f->t ? real(f, TOP) : NULL;
    if (!o || !py_is_tensor(o) || !before_assertion(f))
        return f->t && !o ? -1 : 0;
    return t_assert(f->t, o, when) ? 1 : -1;
}
static int pop_jump(frame *f, int to, bool when)
{
    int said = to > 0 ? asserted(f, when) : 0;
    if (said < 0)
        return ST_error;
    int b = said ? when : truth(f, TOP);
    if (b < 0)
        return ST_error;
    drop(f, 1);
    if ((b != 0) != when)
        return ST_next;
    f->ip += to;
    return to < 0 ? interp_turn(f) : ST_next;
}
static int none_jump(frame *f, int to, bool when)
{
    PyObject *o = real(f, TOP);
    if (!o)
        return ST_error;
    bool none = o == Py_None;
    drop(f, 1);
    if (none != when)
        return ST_next;
    f->ip += to;
    return to < 0 ? interp_turn(f) : ST_next;
}
#if !TP_PY312
static int jump_or_pop(frame *f, int to, bool when)
{
    int b = truth(f, TOP);
    if (b < 0)
        return ST_error;
    if ((b != 0) == when)
        f->ip += to;
    else
        drop(f, 1);
    return ST_next;
}
HANDLER(JUMP_IF_FALSE_OR_POP) { return jump_or_pop(f, arg, false); }
HANDLER(JUMP_IF_TRUE_OR_POP) { return jump_or_pop(f, arg, true); }
HANDLER(POP_JUMP_FORWARD_IF_FALSE) { return pop_jump(f, arg, false); }
HANDLER(POP_JUMP_FORWARD_IF_TRUE) { return pop_jump(f, arg, true); }
HANDLER(POP_JUMP_FORWARD_IF_NONE) { return none_jump(f, arg, true); }
HANDLER(POP_JUMP_FORWARD_IF_NOT_NONE) { return none_jump(f, arg, false); }
HANDLER(POP_JUMP_BACKWARD_IF_FALSE) { return pop_jump(f, -arg, false); }
HANDLER(POP_JUMP_BACKWARD_IF_TRUE) { return pop_jump(f, -arg, true); }
HANDLER(POP_JUMP_BACKWARD_IF_NONE) { return none_jump(f, -arg, true); }
HANDLER(POP_JUMP_BACKWARD_IF_NOT_NONE) { return none_jump(f, -arg, false); }
HANDLER(UNARY_POSITIVE) { return unary(f, '+'); }
HANDLER(LIST_TO_TUPLE) { return replace_top(f, PyList_AsTuple(real(f, TOP))); }
HANDLER(PRECALL) { return ST_next; }
HANDLER(LOAD_METHOD)
{
    PyObject *v = getattr(f, TOP, NAME(arg));
    if (!v)
        return ST_error;
    Py_SETREF(TOP, NULL);
    PUSH(v);
    return ST_next;
}
#else
HANDLER(POP_JUMP_IF_FALSE) { return pop_jump(f, arg, false); }
HANDLER(POP_JUMP_IF_TRUE) { return pop_jump(f, arg, true); }
HANDLER(POP_JUMP_IF_NONE) { return none_jump(f, arg, true); }
HANDLER(POP_JUMP_IF_NOT_NONE) { return none_jump(f, arg, false); }
#if !TP_PY314
HANDLER(RETURN_CONST)
{
    *result = Py_NewRef(PyTuple_GET_ITEM(f->cc->consts, arg));
    return ST_return;
}
#else
HANDLER(NOT_TAKEN) { return ST_next; }
HANDLER(POP_ITER) { return op_POP_TOP(f, arg, result); }
#endif
HANDLER(LOAD_FAST_CHECK) { return op_LOAD_FAST(f, arg, result); }
HANDLER(LOAD_FAST_AND_CLEAR)
{
    PUSH(f->fast[arg]);
    f->fast[arg] = NULL;
    return ST_next;
}
HANDLER(END_FOR)
{
    drop(f, TP_PY313 ? 1 : 2); /* from 3.13 on a POP_TOP follows */
    return ST_next;
}
HANDLER(END_SEND)
{
    PyObject *v = POP();
    drop(f, 1);
    PUSH(v);
    return ST_next;
}
static void raise_again(PyObject *exc);
/* An exception was thrown in at a `yield from`: the end of what is yielded from is a value, anything else goes on. */
HANDLER(CLEANUP_THROW)
{
    PyObject *exc = real(f, TOP), *value;
    if (!exc)
        return ST_error;
    if (!PyErr_GivenExceptionMatches(exc, PyExc_StopIteration)) {
        raise_again(exc);
        return ST_error;
    }
    if (!(value = PyObject_GetAttrString(exc, "value")))
        return ST_error;
    drop(f, 3);
    PUSH(Py_NewRef(Py_None));
    PUSH(value);
    return ST_next;
}
HANDLER(BINARY_SLICE)
{
    PyObject *a = real(f, PEEK(2)), *b = real(f, TOP);
    PyObject *s = a && b ? PySlice_New(a, b, NULL) : NULL;
    if (!s)
        return ST_error;
    PyObject *r = T ? t_subscr(T, PEEK(3), s) : PyObject_GetItem(PEEK(3), s);
    Py_DECREF(s);
    if (!r)
        return ST_error;
    drop(f, 3);
    PUSH(r);
    return ST_next;
}
HANDLER(STORE_SLICE)
{
    PyObject *a = real(f, PEEK(2)), *b = real(f, TOP);
    PyObject *s = a && b ? PySlice_New(a, b, NULL) : NULL;
    if (!s)
        return ST_error;
    int rc = T ? t_setitem(T, PEEK(3), s, PEEK(4)) : PyObject_SetItem(PEEK(3), s, PEEK(4));
    Py_DECREF(s);
    if (rc < 0)
        return ST_error;
    drop(f, 4);
    return ST_next;
}
HANDLER(CALL_INTRINSIC_1)
{
    switch (arg) {
    case 5: return unary(f, '+');
    case 6: return replace_top(f, PyList_AsTuple(real(f, TOP)));
    case 3: return ST_next; /* StopIteration -> RuntimeError: handled where generators are driven */
    }
    PyErr_Format(PyExc_SystemError, "taper cannot step intrinsic %d", arg);
    return ST_error;
}
HANDLER(LOAD_SUPER_ATTR)
{
    PyObject *sa[2] = { PEEK(2), TOP };
    PyObject *s = T ? t_call(T, PEEK(3), sa, 2, NULL) : PyObject_Vectorcall(PEEK(3), sa, 2, NULL);
    PyObject *v = s ? getattr(f, s, NAME(arg >> 2)) : NULL;
    Py_XDECREF(s);
    if (!v)
        return ST_error;
    drop(f, 3);
    if (arg & 1)
        push_callee(f, v);
    else
        PUSH(v);
    return ST_next;
}
#endif

/* ---- calls ---- */
static PyObject *call(frame *f, PyObject *callee, PyObject *const *args, Py_ssize_t n, PyObject *kw)
{
    return T ? t_call(T, callee, args, n, kw) : cap_call_native(f, callee, args, n, kw);
}
/* n arguments, the last of them named kw, lie above a callee with or without self; `more` things on top. */
static int call_stack(frame *f, int n, PyObject *kw, int more)
{
    PyObject **args = &PEEK(n + more), *self = args[TP_PY313 ? -1 : -2],
             *callee = self || TP_PY313 ? args[-2] : args[-1];
    Py_ssize_t pos = n - (kw ? PyTuple_GET_SIZE(kw) : 0);
    PyObject *r = call(f, callee, self ? args - 1 : args, pos + !!self, kw);
    if (!r)
        return ST_error;
    f->kwnames = NULL;
    drop(f, n + more + 2);
    PUSH(r);
    return ST_next;
}
HANDLER(CALL) { return call_stack(f, arg, f->kwnames, 0); }
#if !TP_PY313
HANDLER(KW_NAMES)
{
    f->kwnames = PyTuple_GET_ITEM(f->cc->consts, arg);
    return ST_next;
}
#else
HANDLER(CALL_KW)
{
    PyObject *kw = known(f, TOP);
    return kw ? call_stack(f, arg, kw, 1) : ST_error;
}
#endif
HANDLER(CALL_FUNCTION_EX)
{
    int has = TP_PY314 || (arg & 1); /* a place for named arguments, which may be empty */
    bool named = has && TOP;
    PyObject *kw = named ? real(f, TOP) : NULL, *seq = PEEK(1 + has),
             *callee = PEEK((TP_PY313 ? 3 : 2) + has), *r = NULL;
    if (named && !kw)
        return ST_error;
    PyObject *pos = T ? t_list_of(T, seq) : PySequence_List(seq), *names = NULL, **v = NULL;
    if (!pos) {
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError) && !T && !Py_TYPE(seq)->tp_iter) {
            py_forget();
            PyObject *who = _PyObject_FunctionStr(callee);
            PyErr_Format(PyExc_TypeError, "%V argument after * must be an iterable, not %.200s", who,
                         "function", Py_TYPE(seq)->tp_name);
            Py_XDECREF(who);
        }
        return ST_error;
    }
    if (kw && !PyDict_Check(kw)) {
        if (T)
            t_break(T, BRK_call_builtin, "** of a %s", Py_TYPE(kw)->tp_name);
        else
            PyErr_Format(PyExc_TypeError, "argument after ** must be a mapping, not %.200s",
                         Py_TYPE(kw)->tp_name);
        Py_DECREF(pos);
        return ST_error;
    }
    Py_ssize_t n = PyList_GET_SIZE(pos), nkw = kw ? PyDict_GET_SIZE(kw) : 0, i = 0;
    v = mem_zalloc(sizeof *v * (size_t)(n + nkw + 1));
    for (; i < n; i++)
        v[i] = PyList_GET_ITEM(pos, i);
    if (nkw && (names = PyTuple_New(nkw))) {
        Py_ssize_t p = 0;
        PyObject *k, *val;
        for (i = 0; PyDict_Next(kw, &p, &k, &val); i++) {
            PyTuple_SET_ITEM(names, i, Py_NewRef(k));
            v[n + i] = val;
        }
    }
    if (!nkw || names)
        r = call(f, callee, v, n, names);
    free(v);
    Py_XDECREF(names);
    Py_DECREF(pos);
    if (!r)
        return ST_error;
    drop(f, 3 + has); /* the NULL beside the callee too */
    PUSH(r);
    return ST_next;
}
static bool take_field(frame *f, PyObject **slot)
{
    PyObject *v = known(f, TOP);
    if (!v)
        return false;
    Py_XSETREF(*slot, Py_NewRef(v));
    drop(f, 1);
    return true;
}
HANDLER(MAKE_FUNCTION)
{
    PyObject *code = real(f, TOP), *fn = code ? PyFunction_New(code, f->globals) : NULL;
    if (!fn)
        return ST_error;
    drop(f, 1);
    PyFunctionObject *o = (PyFunctionObject *)fn;
    if (((arg & 8) && !take_field(f, &o->func_closure)) ||
        ((arg & 4) && !take_field(f, &o->func_annotations)) ||
        ((arg & 2) && !take_field(f, &o->func_kwdefaults)) ||
        ((arg & 1) && !take_field(f, &o->func_defaults))) {
        Py_DECREF(fn);
        return ST_error;
    }
    if (T)
        t_obj_add(T, fn, NULL, NULL); /* made here: what it closes over is ours */
    PUSH(fn);
    return ST_next;
}
#if TP_PY313
HANDLER(SET_FUNCTION_ATTRIBUTE)
{
    PyFunctionObject *o = (PyFunctionObject *)real(f, TOP);
    PyObject *v = o ? known(f, PEEK(2)) : NULL;
    if (!v)
        return ST_error;
    if (T && t_source_of(T, (PyObject *)o)) {
        t_break(T, BRK_live, "a function that was being made when the graph began");
        return ST_error;
    }
    PyObject **slot = arg == 1   ? &o->func_defaults
                      : arg == 2 ? &o->func_kwdefaults
                      : arg == 4 ? &o->func_annotations
#if TP_PY314
                      : arg == 16 ? &o->func_annotate
#endif
                                  : &o->func_closure;
    Py_XSETREF(*slot, Py_NewRef(v));
    PyObject *fn = POP();
    drop(f, 1);
    PUSH(fn);
    return ST_next;
}
#endif
HANDLER(RETURN_VALUE)
{
    *result = POP();
    f->stack[f->sp] = NULL;
    return ST_return;
}

/* ---- generators: only while tracing, where they are inlined ---- */
HANDLER(RETURN_GENERATOR)
{
    PUSH(Py_NewRef(Py_None));
    return ST_next;
}
HANDLER(YIELD_VALUE)
{
    *result = POP();
    f->stack[f->sp] = NULL;
    return ST_yield;
}
HANDLER(GET_YIELD_FROM_ITER)
{
    if (!T) {
        PyErr_SetString(PyExc_SystemError, "a generator cannot be stepped natively");
        return ST_error;
    }
    return replace_top(f, t_iter(T, TOP));
}
HANDLER(SEND)
{
    bool done = false;
    if (!T) {
        PyErr_SetString(PyExc_SystemError, "a generator cannot be stepped natively");
        return ST_error;
    }
    PyObject *recv = PEEK(2), *v;
    if (Py_TYPE(recv) == &PyTraceGen_Type)
        v = t_gen_next(T, recv, TOP, &done);
    else
        v = t_next(T, recv, &done);
    if (!v && !done)
        return ST_error;
    drop(f, 1);
    if (v) {
        PUSH(v);
        return ST_next;
    }
#if TP_PY312
    PUSH(Py_XNewRef(f->yielded ? f->yielded : Py_None));
#else
    Py_SETREF(TOP, Py_NewRef(f->yielded ? f->yielded : Py_None));
#endif
    Py_CLEAR(f->yielded);
    f->ip += arg;
    return ST_next;
}

/* ---- match ---- */
HANDLER(GET_LEN)
{
    PyObject *o = real(f, TOP);
    if (!o)
        return ST_error;
    if (T)
        PUSH_OR_FAIL(t_call(T, PyDict_GetItemString(PyEval_GetBuiltins(), "len"), &o, 1, NULL));
    Py_ssize_t n = PyObject_Length(o);
    if (n < 0)
        return ST_error;
    PUSH_OR_FAIL(PyLong_FromSsize_t(n));
}
HANDLER(MATCH_MAPPING)
{
    PyObject *o = real(f, TOP);
    if (!o)
        return ST_error;
    PUSH_OR_FAIL(PyBool_FromLong((Py_TYPE(o)->tp_flags & Py_TPFLAGS_MAPPING) != 0));
}
HANDLER(MATCH_SEQUENCE)
{
    PyObject *o = real(f, TOP);
    if (!o)
        return ST_error;
    PUSH_OR_FAIL(PyBool_FromLong((Py_TYPE(o)->tp_flags & Py_TPFLAGS_SEQUENCE) != 0));
}
HANDLER(MATCH_KEYS)
{
    PyObject *keys = known(f, TOP), *o = real(f, PEEK(2)), *vals;
    if (!o || !keys)
        return ST_error;
    bool plain = PyDict_Check(o) &&
                 (T ? !t_type_func(o, "get") : PyDict_CheckExact(o)); /* Python asks get() */
    if (T && !plain) {
        t_break(T, BRK_call_builtin, "matching the keys of a %s", Py_TYPE(o)->tp_name);
        return ST_error;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(keys);
    PyObject *none = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    vals = none ? PyTuple_New(n) : NULL;
    for (Py_ssize_t i = 0; vals && i < n; i++) {
        PyObject *k = PyTuple_GET_ITEM(keys, i), *v;
        if (plain)
            v = Py_XNewRef(PyDict_GetItemWithError(o, k));
        else {
            v = PyObject_CallMethod(o, "get", "OO", k, none);
            if (v == none)
                Py_CLEAR(v);
        }
        if (!v) {
            Py_DECREF(none);
            Py_CLEAR(vals);
            if (PyErr_Occurred())
                return ST_error;
            PUSH(Py_NewRef(Py_None));
            return ST_next;
        }
        PyTuple_SET_ITEM(vals, i, v);
    }
    Py_XDECREF(none);
    PUSH_OR_FAIL(vals);
}
static PyObject *maybe_attr(frame *f, PyObject *o, PyObject *name) /* NULL without exception: it has none */
{
    PyObject *v = getattr(f, o, name);
    if (!v && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError))
        py_forget();
    return v;
}
HANDLER(MATCH_CLASS)
{
    PyObject *kw = known(f, TOP), *type = real(f, PEEK(2)), *o = real(f, PEEK(3)), *out, *ma = NULL;
    if (!type || !o || !kw)
        return ST_error;
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "called match pattern must be a class");
        return ST_error;
    }
    int is = -1;
    if (T) { /* as isinstance() does: what stands for a number is one */
        PyObject *r = t_call(T, PyDict_GetItemString(PyEval_GetBuiltins(), "isinstance"),
                             (PyObject *[]){ o, type }, 2, NULL);
        is = r ? t_truth(T, r) : -1;
        Py_XDECREF(r);
    } else
        is = PyObject_IsInstance(o, type);
    if (is < 0)
        return ST_error;
    Py_ssize_t nkw = PyTuple_GET_SIZE(kw), k = 0;
    out = is ? PyTuple_New(arg + nkw) : NULL;
    if (out && arg) {
        bool self = false;
        static PyObject *name;
        if (!name)
            name = PyUnicode_InternFromString("__match_args__");
        ma = maybe_attr(f, type, name);
        if (ma) {
            PyObject *v = known(f, ma);
            Py_SETREF(ma, Py_XNewRef(v));
        }
        if (!ma) {
            if (PyErr_Occurred() || (T && T->broke))
                goto fail;
            self = PyType_HasFeature((PyTypeObject *)type, _Py_TPFLAGS_MATCH_SELF);
        } else if (!PyTuple_CheckExact(ma)) {
            PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)",
                         ((PyTypeObject *)type)->tp_name, Py_TYPE(ma)->tp_name);
            goto fail;
        }
        Py_ssize_t allowed = self ? 1 : ma && PyTuple_Check(ma) ? PyTuple_GET_SIZE(ma) : 0;
        if (arg > allowed) {
            PyErr_Format(PyExc_TypeError, "%s() accepts %zd positional sub-pattern%s (%d given)",
                         ((PyTypeObject *)type)->tp_name, allowed, allowed == 1 ? "" : "s", arg);
            goto fail;
        }
        for (; k < arg; k++) {
            PyObject *v = self ? Py_NewRef(o) : maybe_attr(f, o, PyTuple_GET_ITEM(ma, k));
            if (!v) {
                if (PyErr_Occurred() || (T && T->broke))
                    goto fail;
                Py_CLEAR(out);
                break;
            }
            PyTuple_SET_ITEM(out, k, v);
        }
    }
    for (Py_ssize_t i = 0; out && i < nkw; i++) {
        PyObject *v = maybe_attr(f, o, PyTuple_GET_ITEM(kw, i));
        if (!v) {
            if (PyErr_Occurred() || (T && T->broke))
                goto fail;
            Py_CLEAR(out);
            break;
        }
        PyTuple_SET_ITEM(out, arg + i, v);
    }
    Py_XDECREF(ma);
    drop(f, 3);
    PUSH(out ? out : Py_NewRef(Py_None));
    return ST_next;
fail:
    Py_XDECREF(ma);
    Py_XDECREF(out);
    return ST_error;
}

/* ---- with and exceptions ---- */
static PyObject *special(frame *f, PyObject *o, const char *name)
{
    PyObject *n = PyUnicode_InternFromString(name), *r;
    if (T)
        r = t_getattr(T, o, n);
    else {
        PyObject *d = _PyType_Lookup(Py_TYPE(o), n);
        descrgetfunc g = d ? Py_TYPE(d)->tp_descr_get : NULL;
        r = d ? (g ? g(d, o, (PyObject *)Py_TYPE(o)) : Py_NewRef(d)) : NULL;
        if (!r && !PyErr_Occurred())
            PyErr_Format(PyExc_TypeError,
                         !strcmp(name, "__enter__")
                             ? TP_PY314 ? "'%.200s' object does not support the context manager protocol "
                                          "(missed __enter__ method)"
                                        : "'%.200s' object does not support the context manager protocol"
                             : "'%.200s' object does not support the context manager protocol (missed "
                               "__exit__ method)",
                         Py_TYPE(o)->tp_name);
    }
    Py_DECREF(n);
    return r;
}
#if TP_PY314
HANDLER(LOAD_SPECIAL)
{
    PyObject *o = real(f, TOP), *v = o ? special(f, o, arg ? "__exit__" : "__enter__") : NULL;
    if (!v)
        return ST_error;
    drop(f, 1);
    push_callee(f, v);
    return ST_next;
}
#else
HANDLER(BEFORE_WITH)
{
    PyObject *mgr = real(f, TOP), *enter = NULL, *exit_ = NULL, *r = NULL;
    if (!mgr)
        return ST_error;
    if ((enter = special(f, mgr, "__enter__")) && (exit_ = special(f, mgr, "__exit__")))
        r = call(f, enter, NULL, 0, NULL);
    Py_XDECREF(enter);
    if (!r) {
        Py_XDECREF(exit_);
        return ST_error;
    }
    Py_SETREF(TOP, exit_);
    PUSH(r);
    return ST_next;
}
#endif
HANDLER(WITH_EXCEPT_START)
{
    PyObject *val = real(f, TOP), *tb = val ? PyException_GetTraceback(val) : NULL;
    if (!val)
        return ST_error;
    PyObject *self = TP_PY314 ? PEEK(4) : NULL, *fn = PEEK(TP_PY314 ? 5 : 4);
    PyObject *args[4] = { self, (PyObject *)Py_TYPE(val), val, tb ? tb : Py_None };
    PyObject *r = call(f, fn, self ? args : args + 1, self ? 4 : 3, NULL);
    Py_XDECREF(tb);
    PUSH_OR_FAIL(r);
}
HANDLER(PUSH_EXC_INFO)
{
    PyObject *exc = POP(), *old;
    if (T) {
        PyObject *v = t_real(T, exc);
        if (!v) {
            f->sp++;
            return ST_error;
        }
        old = f->handled ? f->handled : Py_NewRef(Py_None);
        f->handled = Py_NewRef(v);
        PyErr_SetHandledException(v); /* exceptions raised from here on have it as context */
    } else {
        old = PyErr_GetHandledException();
        if (!old)
            old = Py_NewRef(Py_None);
        PyErr_SetHandledException(exc);
    }
    PUSH(old);
    PUSH(exc);
    return ST_next;
}
HANDLER(POP_EXCEPT)
{
    PyObject *old = POP();
    f->stack[f->sp] = NULL;
    if (T) {
        PyObject *r = t_real(T, old);
        Py_XSETREF(f->handled, r == Py_None ? NULL : Py_XNewRef(r));
        const frame *h = f;
        while (h && !h->handled)
            h = h->back;
        PyErr_SetHandledException(h ? h->handled : T->handled);
    } else
        PyErr_SetHandledException(old == Py_None ? NULL : old);
    Py_DECREF(old);
    return ST_next;
}
static bool is_exc_class(PyObject *o)
{
    if (PyTuple_Check(o)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
            if (!PyExceptionClass_Check(PyTuple_GET_ITEM(o, i)))
                return false;
        return true;
    }
    return PyExceptionClass_Check(o);
}
HANDLER(CHECK_EXC_MATCH)
{
    PyObject *right = real(f, TOP), *left = real(f, PEEK(2));
    if (!right || !left || (T && !t_deep(T, right)))
        return ST_error;
    if (!is_exc_class(right)) {
        PyErr_SetString(PyExc_TypeError,
                        "catching classes that do not inherit from BaseException is not allowed");
        return ST_error;
    }
    return replace_top(f, PyBool_FromLong(PyErr_GivenExceptionMatches(left, right)));
}
static void raise_again(PyObject *exc)
{
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exc)), Py_NewRef(exc), PyException_GetTraceback(exc));
}
HANDLER(RERAISE)
{
    PyObject *exc = real(f, TOP);
    if (!exc)
        return ST_error;
    raise_again(exc);
    return ST_error;
}
HANDLER(RAISE_VARARGS)
{
    PyObject *cause = arg == 2 ? real(f, TOP) : NULL, *exc = arg ? real(f, PEEK(arg)) : NULL, *v, *c = NULL;
    if ((arg && !exc) || (arg == 2 && !cause))
        return ST_error;
    if (!arg) {
        const frame *h = f;
        while (T && h && !h->handled)
            h = h->back;
        exc = T ? Py_XNewRef(h ? h->handled : NULL) : PyErr_GetHandledException();
        if (!exc || exc == Py_None) {
            Py_XDECREF(exc);
            if (T)
                t_break(T, BRK_exception, "raise of the exception that an outer frame is handling");
            else
                PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
            return ST_error;
        }
        raise_again(exc);
        Py_DECREF(exc);
        return ST_error;
    }
    if (T && PyExceptionInstance_Check(exc) && t_source_of(T, exc)) { /* raising writes into it */
        t_break(T, BRK_exception, "raise of an exception made before the graph began");
        return ST_error;
    }
    v = PyExceptionClass_Check(exc) ? call(f, exc, NULL, 0, NULL) : Py_NewRef(exc);
    if (!v)
        return ST_error;
    if (!PyExceptionInstance_Check(v)) {
        PyErr_SetString(PyExc_TypeError, "exceptions must derive from BaseException");
        goto done;
    }
    if (cause) {
        c = PyExceptionClass_Check(cause) ? call(f, cause, NULL, 0, NULL)
            : cause == Py_None            ? NULL
                                          : Py_NewRef(cause);
        if ((!c && cause != Py_None) || (c && !PyExceptionInstance_Check(c))) {
            if (c)
                PyErr_SetString(PyExc_TypeError, "exception causes must derive from BaseException");
            Py_XDECREF(c);
            goto done;
        }
        PyException_SetCause(v, c); /* takes c */
    }
    PyErr_SetObject((PyObject *)Py_TYPE(v), v);
done:
    Py_DECREF(v);
    return ST_error;
}
#if !TP_PY314
HANDLER(LOAD_ASSERTION_ERROR)
{
    PUSH(Py_NewRef(PyExc_AssertionError));
    return ST_next;
}
#else
/* Parts of a template string: what t"..." makes of them, by the classes of string.templatelib. */
static PyObject *template_class(const char *name)
{
    PyObject *m = PyImport_ImportModule("string.templatelib");
    PyObject *c = m ? PyObject_GetAttrString(m, name) : NULL;
    Py_XDECREF(m);
    return c;
}
HANDLER(BUILD_INTERPOLATION)
{
    static const char *const conversions[] = { NULL, "s", "r", "a" };
    int spec = arg & 1;
    if (T) {
        t_break(T, BRK_format, "a template string");
        return ST_error;
    }
    PyObject *c = template_class("Interpolation");
    PyObject *how = arg >> 2 & 3 ? PyUnicode_FromString(conversions[arg >> 2 & 3]) : Py_NewRef(Py_None);
    PyObject *none = PyUnicode_FromString(""), *r = NULL;
    if (c && how && none)
        r = PyObject_CallFunctionObjArgs(c, PEEK(2 + spec), PEEK(1 + spec), how, spec ? TOP : none, NULL);
    Py_XDECREF(c);
    Py_XDECREF(how);
    Py_XDECREF(none);
    if (!r)
        return ST_error;
    drop(f, 2 + spec);
    PUSH(r);
    return ST_next;
}
HANDLER(BUILD_TEMPLATE)
{
    PyObject *texts = PEEK(2), *parts = TOP, *r = NULL;
    if (T) {
        t_break(T, BRK_format, "a template string");
        return ST_error;
    }
    PyObject *c = template_class("Template"), *all = PyList_New(0);
    Py_ssize_t n = PyTuple_GET_SIZE(parts);
    int rc = c && all ? 0 : -1;
    for (Py_ssize_t i = 0; rc == 0 && i <= n; i++) {
        rc = PyList_Append(all, PyTuple_GET_ITEM(texts, i));
        if (rc == 0 && i < n)
            rc = PyList_Append(all, PyTuple_GET_ITEM(parts, i));
    }
    PyObject *args = rc == 0 ? PyList_AsTuple(all) : NULL;
    if (args)
        r = PyObject_CallObject(c, args);
    Py_XDECREF(args);
    Py_XDECREF(all);
    Py_XDECREF(c);
    return two_to_one(f, r);
}
#endif
HANDLER(LOAD_BUILD_CLASS)
{
    if (T) {
        t_break(T, BRK_class_body, "class definition");
        return ST_error;
    }
    PyObject *b = PyDict_GetItemString(f->builtins, "__build_class__");
    if (!b) {
        PyErr_SetString(PyExc_NameError, "__build_class__ not found");
        return ST_error;
    }
    PUSH(Py_NewRef(b));
    return ST_next;
}
HANDLER(IMPORT_NAME)
{
    PyObject *from = known(f, TOP), *level = real(f, PEEK(2)), *m;
    if (!from || !level)
        return ST_error;
    if (T)
        m = t_import(T, f, NAME(arg), from, level);
    else {
        PyObject *imp = PyDict_GetItemString(f->builtins, "__import__");
        m = imp ? PyObject_CallFunctionObjArgs(imp, NAME(arg), f->globals, Py_None, from, level, NULL) : NULL;
        if (!imp)
            PyErr_SetString(PyExc_ImportError, "__import__ not found");
    }
    return two_to_one(f, m);
}
HANDLER(IMPORT_FROM)
{
    PyObject *m = real(f, TOP), *v;
    if (!m)
        return ST_error;
    v = getattr(f, m, NAME(arg));
    if (!v && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        py_forget();
        PyObject *pkg = PyObject_GetAttrString(m, "__name__"), *full, *mods = PyImport_GetModuleDict();
        full = pkg ? PyUnicode_FromFormat("%U.%U", pkg, NAME(arg)) : NULL;
        v = full ? Py_XNewRef(PyDict_GetItemWithError(mods, full)) : NULL;
        if (!v && !PyErr_Occurred())
            PyErr_Format(PyExc_ImportError, "cannot import name %R from %R", NAME(arg), pkg ? pkg : Py_None);
        Py_XDECREF(full);
        Py_XDECREF(pkg);
    }
    PUSH_OR_FAIL(v);
}

typedef int handler(frame *f, int arg, PyObject **result);
static handler *const handlers[256] = {
#define PYOP(name) [name] = op_##name,
#include "capture/opcode.def"
};
bool interp_knows(int op, int arg)
{
#if TP_PY312
    if (op == CALL_INTRINSIC_1)
        return arg == 3 || arg == 5 || arg == 6;
#endif
#if TP_PY314
    if (op == LOAD_SPECIAL) /* not those of `async with` */
        return arg < 2;
    if (op == LOAD_COMMON_CONSTANT)
        return arg < 5;
#endif
    return handlers[op] != NULL;
}

int interp_step(frame *f, PyObject **result)
{
    const instr *in = &f->cc->ins[f->ip];
    f->at = f->ip;
    f->ip = in->next;
#ifndef NDEBUG
    int before = f->sp;
#endif
    if (crumb_on() && T)
        crumb_node(log_opname(in->op), f->cc->file, in->line);
    assert(handlers[in->op]); /* code.c: code with any other is not followed */
    int rc = handlers[in->op](f, in->arg, result);
#ifndef NDEBUG
    if (rc == ST_next && in->op != SEND && in->op != RETURN_GENERATOR) {
        int jumped = f->ip != in->next;
        int eff = in->op == CACHE
                      ? 0
                      : PyCompile_OpcodeStackEffectWithJump(in->op, OP_HAS_ARG(in->op) ? in->arg : 0, jumped);
#if !TP_PY312
        if (in->op == PRECALL)
            eff = 0; /* CPython books the pops of a call here; we do them in CALL */
        else if (in->op == CALL)
            eff = -in->arg - 1;
#endif
        assert(eff == PY_INVALID_STACK_EFFECT || f->sp - before == eff);
    }
#endif
    return rc;
}

bool frame_in_try(const frame *f)
{
    for (; f; f = f->back) {
        int at = f->at, to, depth;
        bool lasti;
        while (code_handler(f->cc, at, &to, &depth, &lasti)) {
            const instr *in = &f->cc->ins[to];
            if (in->op != PUSH_EXC_INFO || f->cc->ins[in->next].op != WITH_EXCEPT_START)
                return true;
            at = to; /* what a `with` lets pass goes to what is around it */
        }
    }
    return false;
}

bool interp_unwind(frame *f)
{
    int to, depth;
    bool lasti;
    PyObject *t, *v, *tb;
    if (!code_handler(f->cc, f->at, &to, &depth, &lasti))
        return false;
    f->kwnames = NULL;
    PyErr_Fetch(&t, &v, &tb);
    PyErr_NormalizeException(&t, &v, &tb);
    if (tb)
        PyException_SetTraceback(v, tb);
    if (T && !t_caught(T, v)) {
        Py_XDECREF(t);
        Py_XDECREF(v);
        Py_XDECREF(tb);
        return false;
    }
    if (f->sp > depth)
        drop(f, f->sp - depth);
    if (lasti)
        PUSH(PyLong_FromLong(f->at));
    PUSH(v);
    Py_XDECREF(t);
    Py_XDECREF(tb);
    f->ip = to;
    return true;
}

/* ---- frames ---- */
bool frame_init(frame *f, cap_code *cc, PyObject *func, PyObject **storage)
{
    memset(f, 0, sizeof *f);
    memset(storage, 0, sizeof *storage * (size_t)(cc->nfast + cc->nstack));
    f->cc = cc;
    f->func = func;
    f->fast = storage;
    f->stack = storage + cc->nfast;
    f->globals = PyFunction_GET_GLOBALS(func);
    f->builtins = ((PyFunctionObject *)func)->func_builtins;
    f->last_line = -1;
    PyObject *cl = PyFunction_GET_CLOSURE(func);
    Py_ssize_t n = cl ? PyTuple_GET_SIZE(cl) : 0;
    for (Py_ssize_t i = 0; i < n; i++)
        f->fast[cc->nfast - n + i] = Py_NewRef(PyTuple_GET_ITEM(cl, i));
    return true;
}

void frame_clear(frame *f)
{
    for (int i = 0; i < f->cc->nfast; i++)
        Py_CLEAR(f->fast[i]);
    for (int i = 0; i < f->sp; i++)
        Py_CLEAR(f->stack[i]);
    f->sp = 0;
    Py_CLEAR(f->handled);
    Py_CLEAR(f->yielded);
    Py_CLEAR(f->failed);
}

int frame_bind(frame *f, PyObject *func, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyCodeObject *co = f->cc->co;
    int npos = co->co_argcount, nkwonly = co->co_kwonlyargcount, total = npos + nkwonly;
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    PyObject *kwdict = NULL;
    if (nargs > npos && !(co->co_flags & CO_VARARGS))
        return 0;
    for (Py_ssize_t i = 0; i < MIN(nargs, (Py_ssize_t)npos); i++)
        f->fast[i] = Py_NewRef(args[i]);
    if (co->co_flags & CO_VARARGS) {
        PyObject *rest = PyTuple_New(MAX(nargs - npos, 0));
        if (!rest)
            return -1;
        for (Py_ssize_t i = npos; i < nargs; i++)
            PyTuple_SET_ITEM(rest, i - npos, Py_NewRef(args[i]));
        f->fast[total] = rest;
    }
    if (co->co_flags & CO_VARKEYWORDS) {
        if (!(kwdict = PyDict_New()))
            return -1;
        f->fast[total + !!(co->co_flags & CO_VARARGS)] = kwdict;
    }
    for (Py_ssize_t k = 0; k < nkw; k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        int i = co->co_posonlyargcount;
        for (; i < total; i++) {
            PyObject *p = PyTuple_GET_ITEM(f->cc->localsplus, i);
            if (p == name || (PyUnicode_Check(name) && PyUnicode_Compare(p, name) == 0))
                break;
        }
        if (i < total) {
            if (f->fast[i])
                return 0;
            f->fast[i] = Py_NewRef(args[nargs + k]);
        } else if (!kwdict || !PyUnicode_Check(name))
            return 0;
        else if (PyDict_SetItem(kwdict, name, args[nargs + k]) < 0)
            return -1;
    }
    PyObject *defs = PyFunction_GET_DEFAULTS(func), *kwdefs = PyFunction_GET_KW_DEFAULTS(func);
    Py_ssize_t ndef = defs ? PyTuple_GET_SIZE(defs) : 0;
    for (int i = 0; i < total; i++) {
        if (f->fast[i])
            continue;
        PyObject *d = NULL;
        source *s = NULL;
        if (i < npos) {
            if (i >= npos - ndef)
                d = PyTuple_GET_ITEM(defs, i - (npos - ndef));
            if (d && f->t && f->src)
                s = src_get(f->t->e, SRC_default, f->src, NULL, NULL, (int)(i - (npos - ndef)));
        } else if (kwdefs) {
            d = PyDict_GetItemWithError(kwdefs, PyTuple_GET_ITEM(f->cc->localsplus, i));
            if (d && f->t && f->src)
                s = src_get(f->t->e, SRC_kwdefault, f->src, NULL, PyTuple_GET_ITEM(f->cc->localsplus, i), 0);
        }
        if (!d)
            return 0;
        f->fast[i] = s ? t_lazy(f->t, d, s) : Py_NewRef(d);
    }
    return 1;
}
