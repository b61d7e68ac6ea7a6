/* subclass.c - tensors of a Python subclass (nn.Parameter, nn.Buffer, users' own). */
#include "python/py.h"
#include "grad/tape.h"

/* _make_subclass(cls, tensor, requires_grad=False) -> an object of cls over the same memory, with no history.
 */
static PyObject *make_subclass(PyObject *m, PyObject *const *args, Py_ssize_t n)
{
    if (n < 2 || n > 3 || !PyType_Check(args[0]) ||
        !PyType_IsSubtype((PyTypeObject *)args[0], &PyTensor_Type) || !py_is_tensor(args[1]))
        return PyErr_Format(PyExc_TypeError,
                            "_make_subclass(cls, tensor, requires_grad=False) takes a subclass of Tensor "
                            "and a Tensor");
    tp_tensor *src = py_tensor(args[1]), *t = tensor_alias(src);
    t->flags |= src->flags & TF_inference;
    t->node = src->node; /* a proxy stays the same value */
    t->rec = src->rec;
    PyObject *o = py_wrap_as((PyTypeObject *)args[0], t);
    if (o && n == 3) {
        int want = PyObject_IsTrue(args[2]);
        if (want < 0 || (want && PyObject_SetAttrString(o, "requires_grad", Py_True) < 0))
            Py_CLEAR(o);
    }
    return o;
}

/* _make_sparse(cls, size, dtype, device) -> an object of cls without bytes; what it holds is in its attributes. */
static PyObject *make_sparse(PyObject *m, PyObject *args)
{
    PyTypeObject *cls;
    PyObject *size, *dt, *dev;
    symint dims[TP_MAX_DIMS];
    tp_device d;
    if (!PyArg_ParseTuple(args, "O!O!O!O!:_make_sparse", &PyType_Type, &cls, &PyTuple_Type, &size,
                          &PyDtype_Type, &dt, &PyDevice_Type, &dev))
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(size);
    if (n > TP_MAX_DIMS)
        return PyErr_Format(PyExc_ValueError, "a tensor has at most %d dimensions", TP_MAX_DIMS);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!py_to_symint(PyTuple_GET_ITEM(size, i), &dims[i]))
            return PyErr_Format(PyExc_TypeError, "sizes are integers");
    d = ((PyDevice *)dev)->dev;
    tp_tensor *t = tensor_new_fake(((PyDtype *)dt)->dt, (int)n, dims, NULL, d);
    t->storage->flags |= ST_sparse;
    return py_wrap_as(cls, t);
}

/* a + b where one is sparse: the method of the class of sparse tensors. */
static PyObject *sum_of;
static tp_tensor *add_sparse(tp_tensor *a, tp_tensor *b, tp_err *err)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *x = py_wrap(tensor_ref(a)), *y = py_wrap(tensor_ref(b)),
             *r = x && y ? PyObject_CallFunctionObjArgs(sum_of, x, y, NULL) : NULL;
    tp_tensor *t = r && py_is_tensor(r) ? tensor_ref(py_tensor(r)) : NULL;
    if (!t)
        err_set(err, ERR_python, "the sum of two gradients");
    Py_XDECREF(x);
    Py_XDECREF(y);
    Py_XDECREF(r);
    PyGILState_Release(gil);
    return t;
}

/* _sparse_sums(f): f(a, b) adds gradients of which one is sparse */
static PyObject *sparse_sums(PyObject *m, PyObject *f)
{
    Py_XSETREF(sum_of, Py_NewRef(f));
    grad_add_sparse = add_sparse;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    { "_make_subclass", (PyCFunction)(void (*)(void))make_subclass, METH_FASTCALL,
      "_make_subclass(cls, tensor, requires_grad=False)" },
    { "_make_sparse", make_sparse, METH_VARARGS, "_make_sparse(cls, size, dtype, device)" },
    { "_sparse_sums", sparse_sums, METH_O, "what adds gradients of which one is sparse" },
    { NULL }
};

int py_init_subclass(PyObject *m) { return PyModule_AddFunctions(m, functions); }
