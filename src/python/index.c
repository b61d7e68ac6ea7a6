/* index.c - x[...] and x[...] = v: Python indices become select, slice, unsqueeze, index and index_put_
 * calls, so that the tape and the recorder see them. */
#include "base/profile.h"
#include "python/override.h"

static py_row_ref r_select = PY_ROW("select.int"), r_slice = PY_ROW("slice.Tensor"),
                  r_unsqueeze = PY_ROW("unsqueeze"), r_alias = PY_ROW("alias"),
                  r_index = PY_ROW("index.Tensor"), r_put = PY_ROW("index_put_"), r_copy = PY_ROW("copy_"),
                  r_fill = PY_ROW("fill_.Scalar"), r_unbind = PY_ROW("unbind.int"), r_view = PY_ROW("view"),
                  r_expand = PY_ROW("expand");

/* What slicing has produced so far. */
typedef struct slicing {
    tp_tensor *t; /* owned */
    int dim;      /* next dimension of t to be indexed */
    int dims;     /* dimensions of the original that the index specifies */
    int ndim;     /* of the original */
    int extra;    /* dimensions beyond the first that masks have covered: a mask is one entry of `index` */
    tp_tensor *index[TP_MAX_DIMS + 1]; /* owned, NULL where a dimension is taken whole */
    int nindex;
    tp_err *err;
} slicing;

static bool step(slicing *s, tp_tensor *next) /* steals next */
{
    if (!next)
        return false;
    tensor_unref(s->t);
    s->t = next;
    return true;
}

static bool put_index(slicing *s, tp_tensor *i) /* steals i; it indexes dimension s->dim */
{
    if (!i)
        return false;
    int at = s->dim - s->extra;
    if (at >= TP_MAX_DIMS) {
        tensor_unref(i);
        return err_set(s->err, ERR_index, "too many indices for a tensor: at most %d dimensions",
                       TP_MAX_DIMS);
    }
    while (s->nindex <= at)
        s->index[s->nindex++] = NULL;
    s->index[at] = i;
    s->dim++;
    return true;
}

static bool do_select(slicing *s, symint i)
{
    if (s->ndim == 0)
        return err_set(s->err, ERR_index,
                       "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or "
                       "`tensor.item<T>()` in C++ to convert a 0-dim tensor to a number");
    symint n = s->t->size[s->dim];
    if (!sym_is_expr(i) && !sym_is_expr(n) && (i < -n || i >= n))
        return err_set(s->err, ERR_index, "index %lld is out of bounds for dimension %d with size %lld",
                       (long long)i, s->dim, (long long)n);
    return step(s, py_row_t(&r_select, (tp_val[]){ vT(s->t), vI(s->dim), vI(i) }, 3, s->err));
}

static bool slice_part(PyObject *o, symint *v, bool *given)
{
    *given = o != Py_None;
    if (o == Py_None)
        return true;
    if (py_is_symint(o)) {
        *v = py_symint_value(o);
        return true;
    }
    if (!PyIndex_Check(o)) {
        PyErr_SetString(PyExc_TypeError,
                        "slice indices must be integers or None or have an __index__ method");
        return false;
    }
    Py_ssize_t i = PyNumber_AsSsize_t(o, NULL); /* clips */
    if (i == -1 && PyErr_Occurred())
        return false;
    *v = MIN(MAX(i, 1 - SYM_LIMIT), SYM_LIMIT - 1);
    return true;
}

static bool do_slice(slicing *s, PyObject *o)
{
    PySliceObject *sl = (PySliceObject *)o;
    symint a = 0, b = 0, st = 1;
    bool ha, hb, hs;
    if (!slice_part(sl->start, &a, &ha) || !slice_part(sl->stop, &b, &hb) || !slice_part(sl->step, &st, &hs))
        return err_set(s->err, ERR_python, " ");
    if (!sym_is_expr(st) && st <= 0)
        return err_set(s->err, ERR_value,
                       st == 0 ? "slice step cannot be zero" : "step must be greater than zero");
    if (s->ndim == 0)
        return err_set(s->err, ERR_index, "slice() cannot be applied to a 0-dim tensor.");
    if (!ha && !hb && !sym_is_expr(st) && st == 1) {
        s->dim++; /* the whole dimension: nothing to record */
        return true;
    }
    tp_val arg[5] = { vT(s->t), vI(s->dim), ha ? vI(a) : vNone, hb ? vI(b) : vNone, vI(st) };
    if (!step(s, py_row_t(&r_slice, arg, 5, s->err)))
        return false;
    s->dim++;
    return true;
}

static bool do_new_axis(slicing *s)
{
    if (s->t->ndim >= TP_MAX_DIMS)
        return err_set(s->err, ERR_index, "too many dimensions: at most %d", TP_MAX_DIMS);
    return step(s, py_row_t(&r_unsqueeze, (tp_val[]){ vT(s->t), vI(s->dim) }, 2, s->err));
}

static bool do_bool(slicing *s, bool v) /* a new axis of size 1 or 0 */
{
    symint n = v;
    if (!do_new_axis(s))
        return false;
    tp_tensor *i = tensor_new(DT_i64, 1, &n, s->err);
    if (i && v)
        *(int64_t *)tensor_host(i) = 0;
    return put_index(s, i);
}

static bool do_tensor(slicing *s, tp_tensor *t) /* steals t */
{
    if (dtype_is_float((dtype)t->dt)) {
        tensor_unref(t);
        return err_set(s->err, ERR_index, "tensors used as indices must be long, int, byte or bool tensors");
    }
    if (t->ndim == 0 && !tensor_is_fake(t)) {
        uint64_t room;
        const void *at = tensor_peek(t, &room, s->err);
        int64_t v = at ? elem_get_i((dtype)t->dt, at) : 0;
        bool mask = t->dt == DT_bool || t->dt == DT_u8;
        tensor_unref(t);
        if (!at)
            return false;
        return mask ? do_bool(s, v != 0) : do_select(s, v);
    }
    if (t->ndim == 0 && (t->dt == DT_bool || t->dt == DT_u8)) { /* it chooses from a new axis of size 1 */
        tp_tensor *one = do_new_axis(s) ? py_row_t(&r_unsqueeze, (tp_val[]){ vT(t), vI(0) }, 2, s->err)
                                        : NULL;
        tensor_unref(t);
        if (!(t = one))
            return false;
    }
    int covers = t->dt == DT_bool || t->dt == DT_u8 ? MAX(t->ndim, 1) : 1;
    if (!put_index(s, t))
        return false;
    s->dim += covers - 1;
    s->extra += covers - 1;
    return true;
}

static bool is_list_like(PyObject *o)
{
    return PySequence_Check(o) && !py_is_tensor(o) && !PyUnicode_Check(o) && !PyBytes_Check(o);
}

static bool do_item(slicing *s, PyObject *o)
{
    symint i;
    if (PyLong_Check(o) && !PyBool_Check(o)) {
        int over;
        long long v = PyLong_AsLongLongAndOverflow(o, &over);
        if (over)
            return err_set(s->err, ERR_value, "Overflow when unpacking long long");
        return do_select(s, MIN(MAX(v, 1 - SYM_LIMIT), SYM_LIMIT - 1));
    }
    if (PySlice_Check(o))
        return do_slice(s, o);
    if (py_is_foreign(o)) {
        tp_tensor *t = py_tensor_of(o, DT_none);
        return t ? do_tensor(s, t) : err_set(s->err, ERR_python, " ");
    }
    if (o == Py_Ellipsis) {
        s->dim += s->ndim - s->dims;
        return true;
    }
    if (o == Py_None) {
        if (!do_new_axis(s))
            return false;
        s->dim++;
        return true;
    }
    if (PyBool_Check(o))
        return do_bool(s, o == Py_True);
    if (py_is_symint(o))
        return do_select(s, py_symint_value(o));
    if (py_is_tensor(o))
        return do_tensor(s, tensor_ref(py_tensor(o)));
    if (PyUnicode_Check(o))
        return err_set(s->err, ERR_type, "new(): invalid data type 'str'");
    if (is_list_like(o) || (PyObject_CheckBuffer(o) && !PyIndex_Check(o))) {
        tp_tensor *t = py_tensor_of(o, DT_none);
        if (!t)
            return err_set(s->err, ERR_python, " ");
        if (t->numel == 0 && dtype_is_float((dtype)t->dt)) { /* [] has no type of its own */
            tp_tensor *c = tensor_cast(t, DT_i64, s->err);
            tensor_unref(t);
            t = c;
        }
        if (t && t->ndim == 0) { /* a NumPy scalar */
            int64_t v = elem_get_i((dtype)t->dt, tensor_host(t));
            bool flt = dtype_is_float((dtype)t->dt);
            tensor_unref(t);
            if (!flt)
                return do_select(s, v);
        } else
            return t && do_tensor(s, t);
    }
    if (PyIndex_Check(o) && py_to_symint(o, &i))
        return do_select(s, i);
    return err_set(s->err, ERR_index,
                   "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
                   "indices (got %s)",
                   Py_TYPE(o)->tp_name);
}

static int count_dims(PyObject *o) /* dimensions of the original that this item consumes */
{
    if (o == Py_None || o == Py_Ellipsis || PyBool_Check(o))
        return 0;
    if (py_is_tensor(o)) {
        tp_tensor *t = py_tensor(o);
        return t->dt == DT_bool || t->dt == DT_u8 ? t->ndim : 1;
    }
    return 1;
}

/* A short list that holds an index of another kind is read as a tuple, as NumPy once did. */
static bool list_is_tuple(PyObject *o)
{
    if (!PyList_Check(o))
        return false;
    Py_ssize_t n = PyList_GET_SIZE(o);
    if (n >= 32)
        return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *e = PyList_GET_ITEM(o, i);
        if (py_is_tensor(e) || is_list_like(e) || PySlice_Check(e) || e == Py_Ellipsis || e == Py_None)
            return true;
    }
    return false;
}

/* Runs everything but the final index; s->t is the sliced tensor. */
static bool slicing_run(slicing *s, PyObject *self, PyObject *index, tp_err *err)
{
    s->t = tensor_ref(py_tensor(self));
    s->dim = s->dims = s->nindex = s->extra = 0;
    s->ndim = s->t->ndim;
    s->err = err;
    if (!PyTuple_Check(index) && !list_is_tuple(index)) {
        s->dims = count_dims(index);
        if (s->dims > s->ndim && !(s->ndim == 0 && s->dims == 1))
            return err_set(err, ERR_index, "too many indices for tensor of dimension %d", s->ndim);
        return do_item(s, index);
    }
    PyObject *items = PySequence_Tuple(index);
    if (!items)
        return err_set(err, ERR_python, " ");
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    bool ok = true;
    for (Py_ssize_t i = 0; i < n; i++)
        s->dims += count_dims(PyTuple_GET_ITEM(items, i));
    if (s->dims > s->ndim)
        ok = err_set(err, ERR_index, "too many indices for tensor of dimension %d", s->ndim);
    for (Py_ssize_t i = 0; ok && i < n; i++)
        ok = do_item(s, PyTuple_GET_ITEM(items, i));
    Py_DECREF(items);
    return ok;
}

static void slicing_end(slicing *s)
{
    tensor_unref(s->t);
    for (int i = 0; i < s->nindex; i++)
        tensor_unref(s->index[i]);
}

PyObject *py_tensor_getitem(PyObject *self, PyObject *index)
{
    slicing s;
    tp_err err = { 0 };
    tp_tensor *r = NULL;
    PyObject *res;
    if (TP_UNLIKELY(py_overrides) && py_taken_method("__getitem__", self, &index, 1, NULL, &res))
        return res;
    if (slicing_run(&s, self, index, &err)) {
        if (s.nindex)
            r = py_row_t(&r_index, (tp_val[]){ vT(s.t), vTs(s.index, s.nindex) }, 2, &err);
        else if (s.t == py_tensor(self))
            r = py_row_t(&r_alias, (tp_val[]){ vT(s.t) }, 1, &err);
        else
            r = tensor_ref(s.t);
        if (r && profile_wants(PROFILES_watch))
            py_index_check(py_tensor(self), index, r);
    }
    slicing_end(&s);
    return r ? py_wrap(r) : py_raise(&err);
}

/* ---- assignment ---- */
/* Leading dimensions of size 1 do not count: x[0:2] = ones(1, 1, 2). */
static tp_tensor *strip_ones(tp_tensor *v, int keep, tp_err *err) /* new count */
{
    int k = 0;
    while (k < v->ndim && v->ndim - k > keep && !sym_is_expr(v->size[k]) && v->size[k] == 1)
        k++;
    if (!k)
        return tensor_ref(v);
    return py_row_t(&r_view, (tp_val[]){ vT(v), vIs(v->size + k, v->ndim - k) }, 2, err);
}

static tp_tensor *value_tensor(tp_tensor *self, PyObject *value, tp_err *err) /* a number in self's type */
{
    tp_tensor *t = NULL;
    symint i = 0;
    if (py_is_symint(value)) { /* its value is not known: a graph keeps the expression */
        static py_row_ref full = PY_ROW("full");
        i = py_symint_value(value);
        return py_row_t(&full, (tp_val[]){ vIs(NULL, 0), vI(i), vDT(self->dt) }, 3, err);
    }
    t = py_tensor_of(value, self->dt);
    if (!t)
        err_set(err, ERR_python, " ");
    return t;
}

static bool is_number(PyObject *o)
{
    return PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o) || py_is_symint(o) ||
           (PyNumber_Check(o) && !PySequence_Check(o) && !py_is_tensor(o) &&
            (PyIndex_Check(o) || Py_TYPE(o)->tp_as_number->nb_float));
}

static bool copy_to(tp_tensor *dst, tp_tensor *v, tp_err *err)
{
    tp_val out = { 0 };
    tp_tensor *src = strip_ones(v, dst->ndim, err), *e = NULL;
    bool ok = false;
    if (src && !tensor_same_size(src, dst)) {
        e = py_row_t(&r_expand, (tp_val[]){ vT(src), vIs(dst->size, dst->ndim) }, 2, err);
        tensor_unref(src);
        src = e;
    }
    ok = src && py_row(&r_copy, (tp_val[]){ vT(dst), vT(src) }, 2, &out, err);
    val_clear(&out);
    tensor_unref(src);
    return ok;
}

static bool fill_with(tp_tensor *dst, PyObject *value, tp_err *err)
{
    tp_val v, out = { 0 };
    double c[2];
    if (PyBool_Check(value))
        v = vB(value == Py_True);
    else if (PyFloat_Check(value))
        v = vF(PyFloat_AS_DOUBLE(value));
    else if (PyComplex_Check(value)) {
        Py_complex z = PyComplex_AsCComplex(value);
        c[0] = z.real;
        c[1] = z.imag;
        v = vC(c);
    } else if (py_is_symint(value))
        v = vI(py_symint_value(value));
    else if (PyLong_Check(value)) {
        int over;
        long long i = PyLong_AsLongLongAndOverflow(value, &over);
        if (over)
            return err_set(err, ERR_value, "Overflow when unpacking long long");
        if (sym_is_expr(i) && dtype_is_exact((dtype)dst->dt))
            return err_set(err, ERR_runtime,
                           "integers from %lld to %lld cannot be assigned as numbers (Taper keeps them for "
                           "symbolic sizes); "
                           "assign a tensor of that value",
                           (long long)SYM_TAG, (long long)SYM_TAG + (1LL << 48) - 1);
        v = sym_is_expr(i) ? vF((double)i) : vI(i);
    } else {
        double f = PyFloat_AsDouble(value);
        if (f == -1 && PyErr_Occurred())
            return err_set(err, ERR_python, " ");
        v = vF(f);
    }
    if (v.kind == VAL_float && dtype_is_int((dtype)dst->dt) &&
        !(v.f > -9223372036854775809.0 && v.f < 9223372036854775808.0)) {
        static const char *const ctype[DT_COUNT] = { [DT_u8] = "uint8_t",
                                                     [DT_i8] = "int8_t",
                                                     [DT_i16] = "int16_t",
                                                     [DT_i32] = "int",
                                                     [DT_i64] = "int64_t" };
        return err_set(err, ERR_runtime, "value cannot be converted to type %s without overflow",
                       ctype[dst->dt]);
    }
    if (tensor_overlaps_itself(dst))
        return ops_overlap_err(true, err);
    bool ok = py_row(&r_fill, (tp_val[]){ vT(dst), v }, 2, &out, err);
    val_clear(&out);
    return ok;
}

int py_tensor_setitem(PyObject *self, PyObject *index, PyObject *value)
{
    slicing s;
    tp_err err = { 0 };
    tp_tensor *v = NULL, *v2 = NULL;
    bool ok = false, number;
    tp_val out = { 0 };
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "Tensor does not support deleting items");
        return -1;
    }
    PyObject *res;
    if (TP_UNLIKELY(py_overrides) &&
        py_taken_method("__setitem__", self, (PyObject *[]){ index, value }, 2, NULL, &res)) {
        Py_XDECREF(res);
        return res ? 0 : -1;
    }
    number = is_number(value);
    if ((!py_is_tensor(value) && !number) || py_is_foreign(value)) {
        PyErr_Format(PyExc_TypeError, "can't assign a %s to a %s.%sTensor", Py_TYPE(value)->tp_name,
                     py_prefix, dtype_rows[py_tensor(self)->dt].gname);
        return -1;
    }
    if (index == Py_False)
        return 0;
    if (index == Py_True) /* all of it */
        index = Py_Ellipsis;
    if (!slicing_run(&s, self, index, &err))
        goto done;
    if (!s.nindex) {
        ok = number ? fill_with(s.t, value, &err) : copy_to(s.t, py_tensor(value), &err);
        goto done;
    }
    v = number ? value_tensor(s.t, value, &err) : tensor_ref(py_tensor(value));
    if (v && v->ndim == 0 && v->dt != s.t->dt) { /* a zero-dim value takes the tensor's type */
        static py_row_ref to = PY_ROW("_to_copy");
        tp_tensor *c = py_row_t(&to, (tp_val[]){ vT(v), vDT(s.t->dt) }, 2, &err);
        tensor_unref(v);
        v = c;
    }
    if (v)
        v2 = strip_ones(v, 0, &err);
    ok = v2 && py_row(&r_put, (tp_val[]){ vT(s.t), vTs(s.index, s.nindex), vT(v2) }, 3, &out, &err);
    val_clear(&out);
done:
    tensor_unref(v);
    tensor_unref(v2);
    slicing_end(&s);
    if (!ok)
        py_raise(&err);
    return ok ? 0 : -1;
}

/* ---- iteration and membership ---- */
PyObject *py_tensor_iter(PyObject *self)
{
    tp_val out = { 0 };
    tp_err err = { 0 };
    if (py_tensor(self)->ndim == 0) {
        PyErr_SetString(PyExc_TypeError, "iteration over a 0-d tensor");
        return NULL;
    }
    if (!py_row(&r_unbind, (tp_val[]){ vT(py_tensor(self)), vI(0) }, 2, &out, &err))
        return py_raise(&err);
    PyObject *rows = py_val(&out), *it = rows ? PyObject_GetIter(rows) : NULL;
    Py_XDECREF(rows);
    return it;
}

int py_tensor_contains(PyObject *self, PyObject *item)
{
    if (!py_is_tensor(item) && !is_number(item)) {
        PyErr_Format(PyExc_RuntimeError,
                     "Tensor.__contains__ only supports Tensor or scalar, but you passed in a %R.",
                     (PyObject *)Py_TYPE(item));
        return -1;
    }
    PyObject *eq = PyObject_RichCompare(self, item, Py_EQ), *any = NULL;
    int r = -1;
    if (eq)
        any = PyObject_CallMethod(eq, "any", NULL);
    if (any)
        r = PyObject_IsTrue(any);
    Py_XDECREF(eq);
    Py_XDECREF(any);
    return r;
}
