/* debug.c - the debugging tools from Python: comparing results, saved failures, their scripts. */
#include "front/py.h"
#include "debug/accuracy.h"

/* _acc_same(ref, res, fp64 or None, tol, equal_nan, ignore_non_fp, any_dtype, larger, max, cosine, iou) -> None when they agree, or
 * why not */
static PyObject *f_acc_same(PyObject *m, PyObject *args)
{
    PyObject *a, *b, *c;
    acc_opts o = { 0 };
    int nan, nofp, any, larger, most, cosine;
    if (!PyArg_ParseTuple(args, "O!O!Odppppppd:_acc_same", &PyTensor_Type, &a, &PyTensor_Type, &b, &c, &o.tol,
                          &nan, &nofp, &any, &larger, &most, &cosine, &o.iou))
        return NULL;
    o.equal_nan = nan, o.ignore_non_fp = nofp, o.any_dtype = any;
    o.larger_multiplier = larger, o.max_multiplier = most, o.cosine = cosine;
    if (tensor_is_fake(py_tensor(a)) || tensor_is_fake(py_tensor(b))) {
        PyErr_SetString(PyExc_AssertionError, "fake tensors have no values to compare");
        return NULL;
    }
    strbuf why = { 0 };
    bool third = py_is_tensor(c) && !tensor_is_fake(py_tensor(c));
    bool ok = acc_same(py_tensor(a), py_tensor(b), third ? py_tensor(c) : NULL, &o, &why);
    PyObject *r = ok ? Py_NewRef(Py_None) : PyUnicode_FromString(strbuf_str(&why));
    strbuf_free(&why);
    return r;
}

static PyMethodDef functions[] = {
    { "_acc_same", f_acc_same, METH_VARARGS, "None, or why two tensors differ" },
    { NULL, NULL, 0, NULL },
};

int py_init_debug(PyObject *m) { return PyModule_AddFunctions(m, functions); }
