/* fxview.c - a captured graph as Python data: what taper.fx builds its nodes from, and back. */
#include "capture/capture.h"

static void capsule_free(PyObject *c) { ir_graph_free(PyCapsule_GetPointer(c, "taper.graph")); }
PyObject *graph_view(ir_graph *g)
{
    PyObject *c = PyCapsule_New(g, "taper.graph", capsule_free);
    if (!c)
        ir_graph_free(g);
    return c;
}

static PyObject *node_ref(const ir_node *n)
{
    return n ? Py_BuildValue("(si)", "%node", n->id) : Py_NewRef(Py_None);
}

static PyObject *value(const tp_val *v)
{
    PyObject *l;
    switch (v->kind) {
    case VAL_node: return node_ref(v->node);
    case VAL_nodes:
        l = PyList_New(v->n);
        for (int i = 0; l && i < v->n; i++)
            PyList_SET_ITEM(l, i, node_ref(v->nodes[i]));
        return l;
    case VAL_graph:
        l = graph_view(ir_graph_copy(v->graph));
        return l ? Py_BuildValue("(sN)", "%graph", l) : NULL;
    case VAL_int: return py_int(v->i);
    case VAL_float: return PyFloat_FromDouble(v->f);
    case VAL_complex: return PyComplex_FromDoubles(v->floats[0], v->floats[1]);
    case VAL_bool: return PyBool_FromLong(v->b);
    case VAL_str: return PyUnicode_FromString(v->s);
    case VAL_dtype: return Py_NewRef(py_dtype((dtype)v->i));
    case VAL_device: return py_device(v->dev);
    case VAL_memfmt: return Py_NewRef(py_memfmt((memfmt)v->i));
    case VAL_layout: return PyObject_GetAttrString(py_module, "strided");
    case VAL_ints:
        l = PyList_New(v->n);
        for (int i = 0; l && i < v->n; i++)
            PyList_SET_ITEM(l, i, py_int(v->ints[i]));
        return l;
    case VAL_floats:
        l = PyList_New(v->n);
        for (int i = 0; l && i < v->n; i++)
            PyList_SET_ITEM(l, i, PyFloat_FromDouble(v->floats[i]));
        return l;
    case VAL_bools:
        l = PyList_New(v->n);
        for (int i = 0; l && i < v->n; i++)
            PyList_SET_ITEM(l, i, PyBool_FromLong(v->bools[i]));
        return l;
    default: Py_RETURN_NONE;
    }
}

static PyObject *type_value(const tp_val *v) /* the fake value of a node, without its place in the graph */
{
    if (v->kind == VAL_tensor) {
        tp_tensor *t = v->t;
        return py_wrap(tensor_on(t->storage, (dtype)t->dt, t->ndim, t->size, t->stride, t->offset));
    }
    return v->kind == VAL_int ? py_int(v->i) : Py_NewRef(Py_None);
}

/* _graph_nodes(capsule) -> [(id, op, name, target, args, kwargs, value, [(file, line, func, code)...], written, back)]:
 * written is what the user called, or None; back: with its two operands the other way round (1 - x is a call of rsub). */
static PyObject *nodes(PyObject *m, PyObject *c)
{
    ir_graph *g = PyCapsule_GetPointer(c, "taper.graph");
    PyObject *out = g ? PyList_New(0) : NULL;
    if (!out)
        return NULL;
    ir_renumber(g);
    IR_EACH (n, g) {
        PyObject *args = PyList_New(0), *kw = PyDict_New(), *locs = PyList_New(0), *target = NULL;
        const char *op = "call_function";
        strbuf b = { 0 };
        switch (n->kind) {
        case IR_placeholder:
            op = "placeholder";
            strbuf_add(&b, n->target);
            break;
        case IR_const:
            op = "get_attr";
            strbuf_add(&b, n->name);
            break;
        case IR_output:
            op = "output";
            strbuf_add(&b, "output");
            break;
        case IR_getitem: strbuf_add(&b, "%getitem"); break;
        case IR_opaque: strbuf_addf(&b, "%%%s", n->target); break;
        default: op_full_name(&b, (op_id)n->op, (op_variant)n->variant);
        }
        target = n->kind == IR_opaque && n->opaque ? Py_NewRef((PyObject *)n->opaque)
                                                   : PyUnicode_FromString(strbuf_str(&b));
        strbuf_free(&b);
        const op_row *row = n->kind == IR_call ? op_row_of((op_id)n->op) : NULL;
        int last = n->narg;
        if (row) /* trailing defaults are not shown */
            while (last > 0 && (row->schema.param[last - 1].kwonly ||
                                op_is_default(&n->arg[last - 1], &row->schema.param[last - 1])))
                last--;
        for (int i = 0; args && kw && i < n->narg; i++) {
            if (row && i >= last) {
                if (op_is_default(&n->arg[i], &row->schema.param[i]))
                    continue;
                PyObject *v = value(&n->arg[i]);
                PyDict_SetItemString(kw, row->schema.param[i].name, v);
                Py_XDECREF(v);
                continue;
            }
            PyObject *v = value(&n->arg[i]);
            PyList_Append(args, v);
            Py_XDECREF(v);
        }
        for (const ir_loc *l = n->loc; l; l = l->outer) {
            const char *code = ir_loc_code(l);
            PyObject *t = Py_BuildValue("(siss)", l->file ? l->file : "?", l->line, l->func ? l->func : "?",
                                        code ? code : "");
            if (t)
                PyList_Append(locs, t);
            Py_XDECREF(t);
        }
        PyObject *val = n->kind == IR_const ? py_wrap(tensor_ref(n->konst)) : type_value(&n->val);
        PyObject *written = n->kind == IR_call && n->written ? (PyObject *)n->written : Py_None;
        PyObject *t = Py_BuildValue("(isssNNNNOO)", n->id, op, n->name, "", args, kw,
                                    val ? val : Py_NewRef(Py_None), locs, written,
                                    n->written_back ? Py_True : Py_False);
        if (t) {
            PyTuple_SetItem(t, 3, target);
            PyList_Append(out, t);
        }
        Py_XDECREF(t);
        if (PyErr_Occurred()) {
            Py_DECREF(out);
            return NULL;
        }
    }
    return out;
}

/* _graph_text(capsule) -> str: the code form of the log */
static PyObject *text(PyObject *m, PyObject *c)
{
    ir_graph *g = PyCapsule_GetPointer(c, "taper.graph");
    if (!g)
        return NULL;
    strbuf b = { 0 };
    ir_print(&b, g, IR_PRINT_all);
    PyObject *r = PyUnicode_FromString(strbuf_str(&b));
    strbuf_free(&b);
    return r;
}

/* _graph_eager(capsule) -> callable running the graph as it is */
static PyObject *name(PyObject *m, PyObject *c)
{
    ir_graph *g = PyCapsule_GetPointer(c, "taper.graph");
    return g ? PyUnicode_FromString(g->name) : NULL;
}

static PyObject *run_capsule(PyObject *c, PyObject *args)
{
    ir_graph *g = PyCapsule_GetPointer(c, "taper.graph");
    if (!g)
        return NULL;
    int nin = (int)PyTuple_GET_SIZE(args), nout = g->output ? g->output->narg : 0;
    tp_val *in = mem_zalloc(sizeof *in * (size_t)(nin + nout + 1)), *out = in + nin;
    tp_err err = { 0 };
    PyObject *res = NULL;
    if (!py_graph_inputs(PySequence_Fast_ITEMS(args), nin, in))
        goto done;
    ir_hook h = { .call = grad_call, .opaque = cap_run_opaque, .link = grad_link };
    if (!ir_run(CX, g, in, nin, out, nout, &h, &err)) {
        py_raise(&err);
        goto done;
    }
    res = py_val_tuple(out, nout);
done:
    free(in);
    return res;
}
static PyMethodDef run_def = { "forward", run_capsule, METH_VARARGS, "runs the captured graph" };
static PyObject *runner(PyObject *m, PyObject *c) { return PyCFunction_New(&run_def, c); }

static PyMethodDef functions[] = { { "_graph_nodes", nodes, METH_O, "the nodes of a captured graph" },
                                   { "_graph_text", text, METH_O, "its text" },
                                   { "_graph_name", name, METH_O, "its name" },
                                   { "_graph_runner", runner, METH_O, "a function that runs it" },
                                   { NULL } };
int py_init_fxview(PyObject *m) { return PyModule_AddFunctions(m, functions); }
