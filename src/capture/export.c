/* export.c - a captured graph as a file: parameters become constants of it, the inputs and results those of the function. */
#include "capture/capture.h"

/* _graph_export(capsule, weights, inputs, results, path) -> text. weights: by input a tensor or None; inputs: places of the
 * others in the order wanted; results: places of the results wanted, -1 - k for kept input k; path: None writes nothing. */
static PyObject *graph_export(PyObject *m, PyObject *args)
{
    PyObject *cap, *weights, *inputs, *results, *path, *ret = NULL;
    tp_err err = { 0 };
    if (!PyArg_ParseTuple(args, "OO!O!O!O", &cap, &PyList_Type, &weights, &PyList_Type, &inputs, &PyList_Type,
                          &results, &path))
        return NULL;
    ir_graph *g0 = PyCapsule_GetPointer(cap, "taper.graph");
    if (!g0)
        return NULL;
    ir_graph *g = ir_graph_copy(g0);
    Py_ssize_t nin = (Py_ssize_t)g->inputs.n, nkeep = PyList_GET_SIZE(inputs),
               nout = PyList_GET_SIZE(results);
    ir_node **old = mem_alloc(sizeof *old * (size_t)(nin + 1)),
            **keep = mem_alloc(sizeof *keep * (size_t)(nkeep + 1));
    tp_val *out = mem_zalloc(sizeof *out * (size_t)(nout + 1));
    strbuf text = { 0 };
    if (PyList_GET_SIZE(weights) != nin) {
        PyErr_SetString(PyExc_ValueError, "_graph_export(): one entry for every input");
        goto done;
    }
    memcpy(old, g->inputs.at, sizeof *old * (size_t)nin);
    ir_node *body = g->first;
    while (body && body->kind == IR_placeholder)
        body = body->next;
    for (Py_ssize_t i = 0; i < nkeep; i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyList_GET_ITEM(inputs, i));
        if (at < 0 || at >= nin || PyList_GET_ITEM(weights, at) != Py_None) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "_graph_export(): no such input");
            goto done;
        }
        keep[i] = old[at];
        ir_insert_before(g, body, keep[i]); /* one after the other: in this order */
    }
    for (Py_ssize_t i = 0; i < nin; i++) {
        PyObject *w = PyList_GET_ITEM(weights, i);
        if (!py_is_tensor(w))
            continue;
        tp_tensor *t = py_tensor(w), *k = t;
        if (grad_requires_grad(t)) { /* the bytes alone */
            tp_val cut = vNone;
            if (!grad_call(CX, OP_detach, OPV_fn, (tp_val[]){ vT(t) }, &cut, &err))
                goto done;
            k = cut.t;
        } else
            tensor_ref(k);
        char *name = mem_strdup(old[i]->name);
        ir_node *c = ir_add_const(g, name, k);
        tensor_unref(k);
        ir_insert_before(g, body, c);
        ir_replace_uses(old[i], c);
        ir_erase(old[i]);
        ir_rename(c, name);
        c->target = c->name;
        free(name);
    }
    if ((Py_ssize_t)g->inputs.n != nkeep) {
        PyErr_SetString(PyExc_ValueError, "_graph_export(): an input is neither a weight nor kept");
        goto done;
    }
    memcpy(g->inputs.at, keep, sizeof *keep * (size_t)nkeep);
    for (Py_ssize_t i = 0; i < nout; i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyList_GET_ITEM(results, i));
        if (at < 0 && at >= -nkeep) {
            out[i] = (tp_val){ .kind = VAL_node, .node = keep[-1 - at] };
            continue;
        }
        if (at < 0 || at >= g->output->narg) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "_graph_export(): no such result");
            goto done;
        }
        out[i] = g->output->arg[at];
    }
    ir_set_output(g, out, (int)nout);
    g->grad_mode = false;
    ir_renumber(g);
    if (!ir_verify(g, &err))
        goto done;
    ir_print(&text, g, IR_PRINT_all);
    if (path != Py_None) {
        PyObject *bytes = NULL;
        if (!PyUnicode_FSConverter(path, &bytes))
            goto done;
        bool ok = ir_save(g, PyBytes_AS_STRING(bytes), &err);
        Py_DECREF(bytes);
        if (!ok)
            goto done;
    }
    ret = PyUnicode_FromString(strbuf_str(&text));
done:
    if (!ret && !PyErr_Occurred())
        py_raise(&err);
    strbuf_free(&text);
    free(old);
    free(keep);
    free(out);
    ir_graph_free(g);
    return ret;
}

static PyMethodDef functions[] = {
    { "_graph_export", graph_export, METH_VARARGS, "a captured graph with its weights as a file" },
    { NULL },
};
int py_init_export(PyObject *m) { return PyModule_AddFunctions(m, functions); }
