/* safetensors.c - safetensors files from Python: dicts of tensors to bytes and back. */
#include "python/py.h"
#include "tensor/safetensors.h"

static PyObject *contents(st_file *f) /* (dict of tensors, dict of strings); frees f */
{
    PyObject *d = PyDict_New(), *meta = PyDict_New(), *r = NULL;
    tp_err err = { 0 };
    for (int i = 0; d && i < f->n; i++) {
        tp_tensor *t = st_tensor(f, &f->at[i], &err);
        PyObject *o = t ? py_wrap(t) : NULL;
        if (!o || PyDict_SetItemString(d, f->at[i].name, o) < 0)
            Py_CLEAR(d);
        Py_XDECREF(o);
    }
    for (size_t i = 0; meta && f->meta && i < f->meta->n; i++) {
        const json_member *m = &f->meta->members[i];
        PyObject *k = PyUnicode_DecodeUTF8(m->key, (Py_ssize_t)m->n_key, "replace"),
                 *v = PyUnicode_DecodeUTF8(m->val.s, (Py_ssize_t)m->val.n, "replace");
        if (!k || !v || PyDict_SetItem(meta, k, v) < 0)
            Py_CLEAR(meta);
        Py_XDECREF(k);
        Py_XDECREF(v);
    }
    if (d && meta)
        r = PyTuple_Pack(2, d, meta);
    Py_XDECREF(d);
    Py_XDECREF(meta);
    st_free(f);
    return r ? r : py_raise(&err);
}

static PyObject *f_load(PyObject *m, PyObject *o)
{
    st_file f;
    tp_err err = { 0 };
    bool ok;
    if (PyObject_CheckBuffer(o)) {
        Py_buffer b;
        if (PyObject_GetBuffer(o, &b, PyBUF_SIMPLE) < 0)
            return NULL;
        ok = st_parse(&f, b.buf, (size_t)b.len, &err);
        PyObject *r = ok ? contents(&f) : py_raise(&err);
        PyBuffer_Release(&b);
        return r;
    }
    PyObject *path;
    if (!PyUnicode_FSConverter(o, &path))
        return NULL;
    const char *name = PyBytes_AS_STRING(path);
    Py_BEGIN_ALLOW_THREADS ok = st_open(&f, name, &err);
    Py_END_ALLOW_THREADS Py_DECREF(path);
    return ok ? contents(&f) : py_raise(&err);
}

/* _st_save(path or None, names, tensors, [key, value, ...]) -> None, or the bytes */
static PyObject *f_save(PyObject *m, PyObject *args)
{
    PyObject *path, *names, *tensors, *meta, *file = NULL, *r = NULL;
    if (!PyArg_ParseTuple(args, "OO!O!O!:_st_save", &path, &PyList_Type, &names, &PyList_Type, &tensors,
                          &PyList_Type, &meta))
        return NULL;
    Py_ssize_t n = PyList_GET_SIZE(names), nm = PyList_GET_SIZE(meta);
    if (PyList_GET_SIZE(tensors) != n || nm % 2)
        return PyErr_Format(PyExc_ValueError, "_st_save: names and tensors differ in number");
    const char **nn = mem_zalloc(sizeof *nn * (size_t)(n + 1)),
               **mm = mem_zalloc(sizeof *mm * (size_t)(nm + 1));
    tp_tensor **tt = mem_zalloc(sizeof *tt * (size_t)(n + 1));
    tp_err err = { 0 };
    strbuf b = { 0 };
    bool ok = true;
    for (Py_ssize_t i = 0; ok && i < n; i++) {
        PyObject *t = PyList_GET_ITEM(tensors, i), *k = PyList_GET_ITEM(names, i);
        ok = PyUnicode_Check(k) && py_is_tensor(t) && (nn[i] = PyUnicode_AsUTF8(k));
        if (ok && !strcmp(nn[i], "__metadata__"))
            ok = err_set(&err, ERR_value, "a tensor cannot be named __metadata__");
        else if (ok)
            tt[i] = py_tensor(t);
        else if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "names must be str and values Tensor, not %s and %s",
                         Py_TYPE(k)->tp_name, Py_TYPE(t)->tp_name);
    }
    for (Py_ssize_t i = 0; ok && i < nm; i++) {
        PyObject *s = PyList_GET_ITEM(meta, i);
        ok = PyUnicode_Check(s) && (mm[i] = PyUnicode_AsUTF8(s));
        if (!ok && !PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "metadata must be a dict of str to str");
    }
    if (ok && path == Py_None) {
        ok = st_dump(&b, nn, tt, (int)n, mm, &err);
        if (ok)
            r = PyBytes_FromStringAndSize(strbuf_str(&b), (Py_ssize_t)b.n);
    } else if (ok && (ok = PyUnicode_FSConverter(path, &file))) {
        ok = st_write(PyBytes_AS_STRING(file), nn, tt, (int)n, mm, &err);
        if (ok)
            r = Py_NewRef(Py_None);
    }
    Py_XDECREF(file);
    strbuf_free(&b);
    free(nn);
    free(mm);
    free(tt);
    return r ? r : py_raise(&err);
}

static PyMethodDef functions[] = {
    { "_st_load", f_load, METH_O, "_st_load(path or bytes) -> (tensors, metadata)" },
    { "_st_save", f_save, METH_VARARGS, "_st_save(path or None, names, tensors, metadata) -> bytes or None" },
    { NULL }
};

int py_init_safetensors(PyObject *m) { return PyModule_AddFunctions(m, functions); }
