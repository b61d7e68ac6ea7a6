/* trace_known.c - numbers that are known although a tensor of the trace holds them: torch.tensor(3), torch.div(12, 4). Where
 * a size is asked for, they are plain numbers, as they are without a trace. */
#include "capture/capture.h"

enum { DEEPEST = 16, MOST_ARGS = 16 };

static bool is_number(const tp_val *v)
{
    if (v->kind == VAL_int)
        return !sym_is_expr(v->i);
    if (v->kind == VAL_ints)
        return v->n == 0;
    return v->kind == VAL_none || v->kind == VAL_bool || v->kind == VAL_float || v->kind == VAL_str ||
           v->kind == VAL_dtype;
}

/* The 0-d tensor that the node makes of constants; NULL: it is made of something else, or was written. Owned. */
static tp_tensor *made_of_constants(const ir_node *n, op_ctx *cx, int depth)
{
    const op_row *row = n->kind == IR_call ? op_row_of((op_id)n->op) : NULL;
    const tp_tensor *type = ir_type(n);
    tp_tensor *r = NULL;
    tp_val arg[MOST_ARGS], out = vNone;
    tp_err err = { 0 };
    int i = 0;
    if (!type || type->ndim || depth > DEEPEST || type->storage->version)
        return NULL;
    if (n->kind == IR_const)
        return tensor_ref(n->konst);
    if (!row || n->variant != OPV_fn || n->narg > MOST_ARGS || row->schema.nret != 1 ||
        (row->flags & (OPF_MUT | OPF_RAND | OPF_SYNC | OPF_DYN | OPF_VIEW)))
        return NULL;
    for (; i < n->narg; i++) {
        arg[i] = n->arg[i];
        if (arg[i].kind != VAL_node && is_number(&arg[i]))
            continue;
        tp_tensor *x = arg[i].kind == VAL_node ? made_of_constants(arg[i].node, cx, depth + 1) : NULL;
        if (!x)
            goto done;
        arg[i] = vT(x);
    }
    if (ops_call(cx, (op_id)n->op, OPV_fn, arg, &out, &err) && out.kind == VAL_tensor)
        r = out.t;
done:
    while (i-- > 0)
        if (arg[i].kind == VAL_tensor)
            tensor_unref(arg[i].t);
    return r;
}

PyObject *t_known_int(trace *t, PyObject *o)
{
    const tp_tensor *x = py_is_tensor(o) ? py_tensor(o) : NULL;
    if (!x || x->ndim || !x->node || x->rec != &t->rec || !dtype_is_int((dtype)x->dt) || x->storage->version)
        return NULL;
    op_ctx cx = *CX;
    cx.rec = NULL;
    cx.grad_mode = false;
    cx.dispatch = NULL;
    cx.look = NULL;
    tp_tensor *v = made_of_constants(x->node, &cx, 0);
    tp_val out = vNone;
    tp_err err = { 0 };
    bool ok = v && ops_call(&cx, OP_item, OPV_fn, (tp_val[]){ vT(v) }, &out, &err) && out.kind == VAL_int;
    tensor_unref(v);
    return ok ? PyLong_FromLongLong(out.i) : NULL;
}

/* args with such tensors as numbers, those in lists and tuples, too; new, or NULL: there is none. The first stays. */
PyObject *t_known_args(trace *t, PyObject *const *args, Py_ssize_t n)
{
    PyObject *all = PyTuple_New(n);
    bool any = false;
    for (Py_ssize_t i = 0; all && i < n; i++) {
        PyObject *a = args[i], *r = i ? t_known_int(t, a) : NULL;
        if (!r && i && (PyList_CheckExact(a) || PyTuple_CheckExact(a)) && PySequence_Fast_GET_SIZE(a)) {
            PyObject *l = PySequence_List(a);
            bool inner = false;
            for (Py_ssize_t k = 0; l && k < PyList_GET_SIZE(l); k++) {
                PyObject *v = t_known_int(t, PyList_GET_ITEM(l, k));
                inner |= v != NULL;
                if (v)
                    PyList_SetItem(l, k, v);
            }
            r = inner ? l : NULL;
            if (!inner)
                Py_XDECREF(l);
        }
        any |= r != NULL;
        PyTuple_SET_ITEM(all, i, r ? r : Py_NewRef(a));
    }
    if (!any)
        Py_CLEAR(all);
    return all;
}
