/* args.c - arguments of hand-written functions, and rows called from C. */
#include "python/py.h"

bool py_take(const char *fn, const char *const *names, int nname, int npos, int nreq, PyObject *const *args,
             Py_ssize_t nargs, PyObject *kwnames, PyObject **out)
{
    for (int i = 0; i < nname; i++)
        out[i] = NULL;
    if (nargs > npos) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d positional argument%s but %zd were given", fn, npos,
                     npos == 1 ? "" : "s", nargs);
        return false;
    }
    for (Py_ssize_t i = 0; i < nargs; i++)
        out[i] = args[i];
    for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *kw = PyTuple_GET_ITEM(kwnames, k);
        int i = 0;
        while (i < nname && PyUnicode_CompareWithASCIIString(kw, names[i]))
            i++;
        if (i == nname) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", fn, kw);
            return false;
        }
        if (out[i]) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", fn, kw);
            return false;
        }
        out[i] = args[nargs + k];
    }
    for (int i = 0; i < nreq; i++)
        if (!out[i]) {
            int n = 0;
            strbuf b = { 0 };
            for (int j = i; j < nreq; j++)
                if (!out[j])
                    strbuf_addf(&b, "%s\"%s\"", n++ ? ", " : "", names[j]);
            PyErr_Format(PyExc_TypeError, "%s() missing %d required positional arguments: %s", fn, n,
                         strbuf_str(&b));
            strbuf_free(&b);
            return false;
        }
    return true;
}

bool py_take_bool(const char *fn, const char *name, PyObject *o, bool *out)
{
    if (!o || o == Py_None)
        return true;
    if (!PyBool_Check(o)) {
        PyErr_Format(PyExc_TypeError, "%s(): argument '%s' must be bool, not %s", fn, name,
                     Py_TYPE(o)->tp_name);
        return false;
    }
    *out = o == Py_True;
    return true;
}

bool py_row(py_row_ref *r, const tp_val *arg, int narg, tp_val *out, tp_err *err)
{
    tp_val full[OP_MAX_PARAMS];
    if (TP_UNLIKELY(!r->found)) {
        if (!op_find(r->full, strlen(r->full), &r->op, &r->variant))
            return err_set(err, ERR_notimpl, "Taper has no operator row '%s'", r->full);
        r->found = true;
    }
    if (!op_fill_defaults(op_row_of(r->op), arg, narg, full, err))
        return false;
    return grad_call(CX, r->op, r->variant, full, out, err);
}

tp_tensor *py_row_t(py_row_ref *r, const tp_val *arg, int narg, tp_err *err)
{
    tp_val out[OP_MAX_RETURNS] = { 0 };
    return py_row(r, arg, narg, out, err) ? out[0].t : NULL;
}
