/* subclass.c - tensors of a Python subclass (nn.Parameter, nn.Buffer, users' own). */
#include "python/py.h"

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

static PyMethodDef functions[] = { { "_make_subclass", (PyCFunction)(void (*)(void))make_subclass,
                                     METH_FASTCALL, "_make_subclass(cls, tensor, requires_grad=False)" },
                                   { NULL } };

int py_init_subclass(PyObject *m) { return PyModule_AddFunctions(m, functions); }
