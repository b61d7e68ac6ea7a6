/* batch.c - vmap for taper/func.py: levels entered and left, tensors with a hidden batch made and opened. */
#include "python/py.h"
#include "grad/batch.h"

static tp_tensor *tensor_arg(PyObject *o)
{
    if (py_is_tensor(o))
        return py_tensor(o);
    PyErr_SetString(PyExc_TypeError, "vmap: expected a tensor");
    return NULL;
}

/* _batch_enter(t, randomness): t has the batch in front. The number of the level. */
static PyObject *enter(PyObject *m, PyObject *args)
{
    PyObject *o;
    int draws;
    if (!PyArg_ParseTuple(args, "Oi:_batch_enter", &o, &draws))
        return NULL;
    tp_tensor *t = tensor_arg(o);
    if (!t)
        return NULL;
    if (!t->ndim || draws < DRAWS_error || draws > DRAWS_same) {
        PyErr_SetString(PyExc_ValueError, "vmap: no batch to enter");
        return NULL;
    }
    return PyLong_FromLong(batch_enter(CX, t->size[0], (batch_draws)draws)->id);
}

/* _batch_exit(): the operator that wanted data inside, or None */
static PyObject *leave(PyObject *m, PyObject *x)
{
    batch_level *l = batch_now(CX);
    if (!l) {
        PyErr_SetString(PyExc_RuntimeError, "vmap: no batch was entered");
        return NULL;
    }
    const char *refused = l->refused;
    batch_exit(CX);
    return refused ? PyUnicode_FromString(refused) : Py_NewRef(Py_None);
}

static PyObject *level(PyObject *m, PyObject *x)
{
    batch_level *l = batch_now(CX);
    return PyLong_FromLong(l ? l->id : 0);
}

static PyObject *wrap(PyObject *m, PyObject *args)
{
    PyObject *o;
    int id;
    if (!PyArg_ParseTuple(args, "Oi:_batch_wrap", &o, &id))
        return NULL;
    tp_tensor *t = tensor_arg(o);
    return t ? py_wrap(batch_wrap(t, id)) : NULL;
}

/* _batch_whole(t, level): with the batch in front; None when t is the same for all its elements */
static PyObject *whole(PyObject *m, PyObject *args)
{
    PyObject *o;
    int id;
    tp_err err = { 0 };
    if (!PyArg_ParseTuple(args, "Oi:_batch_whole", &o, &id))
        return NULL;
    tp_tensor *t = tensor_arg(o);
    if (!t)
        return NULL;
    tp_tensor *w = batch_whole(CX, t, id, &err);
    return w ? py_wrap(w) : err_is_set(&err) ? py_raise(&err) : Py_NewRef(Py_None);
}

/* _batch_own(t): a tensor of the innermost vmap with t's values and no history there: a place to differentiate at. */
static PyObject *own(PyObject *m, PyObject *o)
{
    tp_tensor *t = tensor_arg(o);
    batch_level *l = batch_now(CX);
    tp_err err = { 0 };
    if (!t || !l)
        return t ? Py_NewRef(o) : NULL;
    tp_tensor *w = batch_spread(CX, t, l, &err);
    if (!w)
        return py_raise(&err);
    PyObject *r = py_wrap(batch_wrap(w, l->id));
    tensor_unref(w);
    return r;
}

static PyObject *is_batched(PyObject *m, PyObject *o)
{
    return PyBool_FromLong(py_is_tensor(o) && batch_level_of(py_tensor(o)));
}

/* ---- the ledger's lines: what ran once for each element ---- */
static PyObject *notes; /* (function, file, line, why) -> elements */

/* _batch_note((function, file, line, why), elements) */
static PyObject *note(PyObject *m, PyObject *args)
{
    PyObject *key;
    long long n;
    if (!PyArg_ParseTuple(args, "O!L:_batch_note", &PyTuple_Type, &key, &n))
        return NULL;
    if (!notes && !(notes = PyDict_New()))
        return NULL;
    PyObject *was = PyDict_GetItemWithError(notes, key);
    if (was)
        n += PyLong_AsLongLong(was);
    PyObject *now = PyErr_Occurred() ? NULL : PyLong_FromLongLong(n);
    if (!now || PyDict_SetItem(notes, key, now)) {
        Py_XDECREF(now);
        return NULL;
    }
    Py_DECREF(now);
    Py_RETURN_NONE;
}

static bool add_row(PyObject *rows, const char *name, const char *file, int line, const char *why,
                    long long n)
{
    PyObject *row = Py_BuildValue("(ssiiiiKKNi)", name, file, line, line, -1, 0, 0ULL, (unsigned long long)n,
                                  PyUnicode_FromFormat("vmap, once for each element: %s", why), -1);
    bool ok = row && !PyList_Append(rows, row);
    Py_XDECREF(row);
    return ok;
}

bool py_batch_rows(PyObject *rows)
{
    PyObject *key, *count;
    Py_ssize_t at = 0;
    int n;
    const batch_loop *l = batch_loops(&n);
    for (int i = 0; i < n; i++)
        if (!add_row(rows, l[i].name, "operator", 0, "it has no batching rule for these arguments",
                     (long long)l[i].elements))
            return false;
    while (notes && PyDict_Next(notes, &at, &key, &count)) {
        const char *name, *file, *why;
        int line;
        if (!PyArg_ParseTuple(key, "ssis", &name, &file, &line, &why) ||
            !add_row(rows, name, file, line, why, PyLong_AsLongLong(count)))
            return false;
    }
    return true;
}

static PyMethodDef functions[] = {
    { "_batch_enter", enter, METH_VARARGS, "begin a vmap" },
    { "_batch_exit", leave, METH_NOARGS, "end it" },
    { "_batch_level", level, METH_NOARGS, "how many vmaps are running" },
    { "_batch_wrap", wrap, METH_VARARGS, "a tensor with the batch in front as one element" },
    { "_batch_whole", whole, METH_VARARGS, "the tensor behind one element" },
    { "_batch_own", own, METH_O, "a tensor of the innermost vmap, without history there" },
    { "_is_batched", is_batched, METH_O, "does it stand for one element of a batch?" },
    { "_batch_note", note, METH_VARARGS, "a function that ran once for each element: for the ledger" },
    { NULL }
};
int py_init_batch(PyObject *m) { return PyModule_AddFunctions(m, functions); }
