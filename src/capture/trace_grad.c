/* trace_grad.c - requires_grad_() and backward() inside a captured function.
 * The operators of a trace went through the tape, on fake tensors. Running the tape's own backward under the
 * recorder appends the derivative rules' operators to the graph; the gradients become attributes written on
 * the parameters. When nobody outside can need its tape, the whole graph then runs with gradients off; otherwise it
 * says where they are off, and is differentiated like any other. */
#include "capture/capture.h"
#include "aot/aot.h"
#include "grad/batch.h"

/* A leaf, or no longer one: a node of the graph, because it matters when that happens. */
bool t_mark_leaf(trace *t, PyObject *o, bool on)
{
    static PyObject *f;
    if (!f && !(f = PyObject_GetAttrString(py_module, "_set_requires_grad")))
        return false;
    tp_tensor *x = py_tensor(o);
    if (!x->node || x->rec != &t->rec || t->rec.g != t->g)
        return t_break(t, BRK_call_builtin, "Tensor.requires_grad_ in a nested graph") != NULL;
    if (t->e->r->no_leaves)
        return t_break(t, BRK_call_builtin,
                       "Tensor.requires_grad_ of a tensor that a backward with create_graph=True needs") !=
               NULL;
    t->made_leaf = true;
    x->spare = (uint8_t)(on ? x->spare | AGF_made_leaf : x->spare & ~AGF_made_leaf);
    tp_val arg[2] = { { .kind = VAL_node, .node = x->node }, vB(on) };
    ir_node *n = ir_add_opaque(t->g, "taper._C._set_requires_grad", f, arg, 2, vNone);
    n->loc = t->rec.loc ? t->rec.loc(t->rec.loc_data, t->g) : NULL;
    return true;
}

/* Has the graph taken a view of this input? Whether that follows when the input becomes a leaf is a question of whose
 * view the input itself is, which no guard knows. */
static bool has_views(const trace *t, const tp_tensor *x)
{
    IR_EACH (n, t->g) {
        const tp_tensor *y = n->kind == IR_call && (op_row_of((op_id)n->op)->flags & OPF_VIEW) ? ir_type(n)
                                                                                               : NULL;
        if (y && y->storage == x->storage)
            return true;
    }
    return false;
}

PyObject *t_requires_grad(trace *t, PyObject *o, PyObject *v)
{
    tp_tensor *x = py_tensor(o);
    tobj *k = t_obj(t, o);
    tp_err err = { 0 };
    bool on = v == Py_True;
    if (batch_level_of(
            x)) { /* lives inside the trace: only what its operators do to the whole is in the graph */
        op_ctx cx = *CX;
        x->spare = (uint8_t)(on ? x->spare | AGF_made_leaf : x->spare & ~AGF_made_leaf);
        return grad_set_requires_grad(&cx, x, on, &err) ? Py_NewRef(o) : py_raise(&err);
    }
    if (grad_requires_grad(x) == on && (on || grad_is_leaf(x)))
        return Py_NewRef(o);   /* as it is already */
    if (k && k->real && !on) { /* nobody but this graph may know its history */
        if (!grad_is_bare_leaf(py_tensor(k->real)))
            return t_break(t, BRK_call_builtin,
                           "Tensor.requires_grad_(False) of a tensor with a history or hooks");
        guard_add(t->e, G_TENSOR_MATCH, k->src, NULL)->t->bare = true;
    }
    if (k && k->real && has_views(t, x))
        return t_break(t, BRK_call_builtin, "Tensor.requires_grad_ of an input of which there are views");
    op_ctx cx = *CX;
    if (!grad_set_requires_grad(&cx, x, on, &err))
        return py_raise(&err);
    return t_mark_leaf(t, o, on) ? Py_NewRef(o) : NULL;
}

static PyObject *no_backward(trace *t, const char *why)
{
    return t_break(t, BRK_backward, "Tensor.backward: %s", why);
}

/* The graph has to say in which mode the operators of a backward were recorded: some result may be differentiated. */
static bool mode_node(trace *t, bool on)
{
    static PyObject *f;
    if (!f && !(f = PyObject_GetAttrString(py_module, "_set_grad_enabled")))
        return false;
    tp_val v = vB(on);
    ir_add_opaque(t->rec.g, "taper._C._set_grad_enabled", f, &v, 1, vNone);
    return true;
}

/* The object behind a fake leaf, or NULL when it was made in this trace. */
static tobj *leaf_obj(trace *t, const tp_tensor *x)
{
    for (size_t i = 0; i < t->objs.n; i++) {
        tobj *k = &t->objs.at[i];
        if (k->node && k->real && py_is_tensor(k->abs) &&
            (py_tensor(k->abs) == x || grad_before_write(py_tensor(k->abs)) == x))
            return k;
    }
    return NULL;
}

static bool in_list(tp_tensor *const *list, int n, const tp_tensor *x)
{
    for (int i = 0; i < n; i++)
        if (list[i] == x)
            return true;
    return false;
}

/* May gradients end at this leaf? It is guarded to stay as it is. */
static bool leaf_ok(trace *t, tp_tensor *x, bool is_end)
{
    tobj *k = leaf_obj(t, x);
    if (!k) /* made in this trace: by requires_grad_(), or by a call whose derivative only later stages know */
        return is_end || (x->spare & AGF_made_leaf) ||
               no_backward(t, "gradients flow through a call that is not looked into");
    tp_tensor *real = py_tensor(k->real);
    if (!grad_is_leaf(real) && !is_end)
        return no_backward(t, "gradients flow on to what was computed before this graph") != NULL;
    if (!grad_is_leaf(real)) {
        if (!grad_is_unwatched(real))
            return no_backward(t, "a tensor that gets a gradient has hooks") != NULL;
        guard_add(t->e, G_TENSOR_MATCH, k->src, NULL)->t->unwatched = true;
    } else {
        if (!grad_is_bare_leaf(real))
            return no_backward(t, "a tensor that gets a gradient has hooks") != NULL;
        guard_add(t->e, G_TENSOR_MATCH, k->src, NULL)->t->bare = true;
    }
    return true;
}

/* Are gradients of another one wanted that x, computed before this graph, may depend on? */
static bool leads_on(trace *t, const tp_tensor *x, tp_tensor *const *in, int nin)
{
    const tobj *k = leaf_obj(t, x);
    bool other = false;
    for (int i = 0; k && !grad_is_leaf(py_tensor(k->real)) && i < nin; i++)
        other |= in[i] != x && leaf_obj(t, in[i]);
    return other;
}

/* May gradients go where they go? Those of tensors that were all made in this trace stay in it. */
static bool ends_ok(trace *t, tp_tensor *const *leaf, int nleaf, tp_tensor *const *in, int nin, bool store)
{
    bool inside = in && !store, ok = true;
    for (int i = 0; i < nin; i++)
        inside &= !leaf_obj(t, in[i]);
    for (int i = 0; ok && i < nleaf; i++)
        ok = (inside && leaf_obj(t, leaf[i])) ||
             (leaf_ok(t, leaf[i], in_list(in, nin, leaf[i])) &&
              (!leads_on(t, leaf[i], in, nin) ||
               no_backward(t, "one of the inputs may be computed from another") != NULL));
    for (int i = 0; ok && store && i < nin; i++)
        if (!grad_is_leaf(leaf_obj(t, in[i]) ? py_tensor(leaf_obj(t, in[i])->real) : in[i]))
            ok = no_backward(t, "inputs= names a tensor that is not a leaf") != NULL;
    return ok;
}

static bool same_layout(const tp_tensor *leaf, const tp_tensor *g)
{
    for (int i = 0; i < g->ndim; i++)
        if (!sym_eq(g->size[i], 1) && !sym_eq(g->stride[i], leaf->stride[i]))
            return false;
    return true;
}

/* A gradient as eager would store it: memory of its own, laid out like the leaf. Takes g; counted or NULL. */
static tp_tensor *own_gradient(const tp_tensor *leaf, tp_tensor *g, tp_err *err)
{
    ir_node *n = g->node;
    bool fresh = g->refs == 1 && n->kind == IR_call && n->variant == OPV_fn &&
                 !(op_row_of((op_id)n->op)->flags & (OPF_VIEW | OPF_MUT));
    tp_val out = vNone;
    if (n->kind == IR_getitem && n->arg[0].node->kind == IR_call && g->refs == 1)
        fresh = !(op_row_of((op_id)n->arg[0].node->op)->flags & OPF_VIEW);
    if (fresh && same_layout(leaf, g))
        return g;
    if (same_layout(leaf, g) || !tensor_is_dense(leaf)) {
        bool ok = grad_call(CX, OP_clone, OPV_fn,
                            (tp_val[]){ vT(g), tensor_is_dense(leaf) ? vNone : vMF(MF_contiguous) }, &out,
                            err);
        tensor_unref(g);
        return ok ? out.t : NULL;
    }
    tp_val arg[7] = { vIs(leaf->size, leaf->ndim),
                      vIs(leaf->stride, leaf->ndim),
                      vDT(g->dt),
                      vNone,
                      vDev(tensor_device(g)),
                      vNone };
    if (grad_call(CX, OP_empty_strided, OPV_fn, arg, &out, err)) {
        tp_val done = vNone;
        if (!grad_call(CX, OP_copy_, OPV_fn, (tp_val[]){ out, vT(g), vB(false) }, &done, err))
            val_clear(&out);
        val_clear(&done);
    }
    tensor_unref(g);
    return out.kind == VAL_tensor ? out.t : NULL;
}

/* What AccumulateGrad does, on what the traced program sees. Takes g. */
static bool accumulate(trace *t, tp_tensor *leaf, tp_tensor *g, bool create)
{
    static PyObject *name;
    if (!name)
        name = PyUnicode_InternFromString("grad");
    tp_err err = { 0 };
    PyObject *abs = py_wrap(tensor_ref(leaf));
    if (!abs) {
        tensor_unref(g);
        return false;
    }
    PyObject *old = t_getattr(t, abs, name), *now = old ? t_real(t, old) : NULL, *set = NULL;
    bool ok = false;
    if (!now)
        goto done;
    if (now == Py_None) {
        tp_tensor *x = own_gradient(py_tensor(abs), g, &err);
        g = NULL;
        set = x ? py_wrap(x) : NULL;
    } else if (py_is_tensor(now)) {
        tp_tensor *was = py_tensor(now);
        bool in_place = !create && was->dt == g->dt;
        tp_val out = vNone;
        if (grad_call(CX, OP_add_Tensor, in_place ? OPV_inplace : OPV_fn, (tp_val[]){ vT(was), vT(g), vI(1) },
                      &out, &err) &&
            !in_place)
            set = py_wrap(tensor_ref(out.t));
        val_clear(&out);
        ok = in_place && !err.kind;
    }
    if (set)
        ok = t_setattr(t, abs, name, set) >= 0;
    else if (!ok && err.kind)
        py_raise(&err);
done:
    tensor_unref(g);
    Py_XDECREF(set);
    Py_XDECREF(old);
    Py_DECREF(abs);
    return ok;
}

static tp_tensor **fakes(trace *t, PyObject *seq, bool none_ok, int *n)
{
    PyObject *f = PySequence_Fast(seq, "a sequence of Tensors was expected");
    if (!f)
        return NULL;
    *n = (int)PySequence_Fast_GET_SIZE(f);
    tp_tensor **v = mem_zalloc(sizeof *v * (size_t)MAX(*n, 1));
    for (int i = 0; i < *n; i++) {
        PyObject *o = t_real(t, PySequence_Fast_GET_ITEM(f, i));
        if (o && py_is_tensor(o) &&
            ((py_tensor(o)->node && py_tensor(o)->rec == &t->rec) || batch_level_of(py_tensor(o))))
            v[i] = py_tensor(o);
        else if (!(o == Py_None && none_ok)) {
            if (o)
                no_backward(t, "a tensor that is not part of this graph is differentiated");
            free(v);
            v = NULL;
            break;
        }
    }
    Py_DECREF(f); /* the caller holds the sequence */
    return v;
}

PyObject *t_backward(trace *t, PyObject *const *args)
{
    region *r = t->e->r;
    PyObject *a[7], *res = NULL;
    tp_tensor **root = NULL, **grad = NULL, **in = NULL, **leaf = NULL, **got = NULL;
    int nroot = 0, ngrad = 0, nin = 0, nleaf = 0, nwant = 0;
    bool mode = CX->grad_mode, create = false;
    tp_err err = { 0 };

    if (!r->expand) { /* composites have no rule of their own: record their parts */
        r->expand = t->again = true;
        return no_backward(t, "tracing again");
    }
    if (t->hooked)
        return no_backward(t, "saved_tensors_hooks are active");
    for (int i = 0; i < 7; i++)
        if (!(a[i] = t_real(t, args[i])) || !t_deep(t, a[i]))
            return NULL;
    bool retain = PyObject_IsTrue(a[2]), store = a[5] == Py_True, unused = PyObject_IsTrue(a[6]);
    create = PyObject_IsTrue(a[3]);
    if (!(root = fakes(t, a[0], false, &nroot)) ||
        (a[1] != Py_None && !(grad = fakes(t, a[1], true, &ngrad))) ||
        (a[4] != Py_None && !(in = fakes(t, a[4], false, &nin))))
        goto done;
    if (grad && ngrad != nroot) {
        PyErr_Format(PyExc_RuntimeError, "got %d tensors and %d gradients", nroot, ngrad);
        goto done;
    }
    for (int i = 0; i < nroot; i++)
        if (!grad_requires_grad(root[i])) { /* the error that backward gives */
            PyErr_Format(PyExc_RuntimeError,
                         "element %d of tensors does not require grad and does not have a grad_fn", i);
            goto done;
        }
    leaf = grad_leaves(root, nroot, &nleaf);
    if (!t_hooks_stay_inside(t, root, nroot) || (in && !t_hooks_stay_inside(t, in, nin)) ||
        !ends_ok(t, leaf, nleaf, in, nin, store))
        goto done;
    tp_tensor **want = in ? in : leaf;
    nwant = in ? nin : nleaf;
    got = mem_zalloc(sizeof *got * (size_t)MAX(nwant, 1));
    grad_options o = { .retain_graph = retain,
                       .create_graph = create,
                       .allow_unused = store || unused,
                       .inputs = want,
                       .ninput = nwant,
                       .result = got };
    t->did_backward = true;
    if (mode != create && !mode_node(t, create))
        goto done;
    CX->grad_mode = create;
    if (!grad_backward(CX, root, nroot, grad, &o, &err)) {
        py_raise(&err);
        goto done;
    }
    if (!store && !(res = PyTuple_New(nwant)))
        goto done;
    for (int i = 0; i < nwant; i++) {
        tp_tensor *g = got[i];
        got[i] = NULL;
        if (store) {
            if (g && !grad_requires_grad(want[i]))
                tensor_unref(g); /* requires_grad_(False) since */
            else if (g && !accumulate(t, want[i], g, create))
                goto done;
        } else {
            PyObject *x = g ? py_wrap(g) : Py_NewRef(Py_None);
            if (!x) {
                Py_CLEAR(res);
                goto done;
            }
            PyTuple_SET_ITEM(res, i, x);
        }
    }
    if (mode != create && !mode_node(t, mode))
        Py_CLEAR(res);
    else if (store)
        res = Py_NewRef(Py_None);
done:
    CX->grad_mode = mode;
    if (t->broke && create &&
        t->made_leaf) /* a compiled graph can run again for this only if it makes no leaves */
        r->no_leaves = t->again = true;
    for (int i = 0; got && i < nwant; i++)
        tensor_unref(got[i]);
    free(root);
    free(grad);
    free(in);
    free(leaf);
    free(got);
    return res;
}

PyObject *t_tensor_backward(trace *t, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "gradient", "retain_graph", "create_graph", "inputs" };
    PyObject *v[4] = { Py_None, Py_None, Py_False, Py_None }, *res = NULL, *in = NULL;
    Py_ssize_t nk = kw ? PyTuple_GET_SIZE(kw) : 0;
    if (nargs > 4)
        return PyErr_Format(PyExc_TypeError, "backward() takes at most 4 arguments (%zd given)", nargs);
    for (Py_ssize_t i = 0; i < nargs + nk; i++) {
        size_t at = (size_t)i;
        if (i >= nargs)
            for (at = 0; at < 4; at++)
                if (!PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kw, i - nargs), names[at]))
                    break;
        if (at == 4)
            return PyErr_Format(PyExc_TypeError, "'%U' is an invalid keyword argument for backward()",
                                PyTuple_GET_ITEM(kw, i - nargs));
        if (!(v[at] = t_real(t, args[i])))
            return NULL;
    }
    if (v[0] != Py_None && !py_is_tensor(v[0]))
        return PyErr_Format(PyExc_TypeError, "gradients can be either Tensors or None, but got %s",
                            Py_TYPE(v[0])->tp_name);
    if (v[3] != Py_None) {
        in = py_is_tensor(v[3]) ? PyTuple_Pack(1, v[3]) : NULL;
        if (!in) {
            PyObject *l = t_list_of(t, v[3]);
            in = l ? PyList_AsTuple(l) : NULL;
            Py_XDECREF(l);
        }
        if (in && !PyTuple_GET_SIZE(in))
            PyErr_SetString(PyExc_RuntimeError, "`inputs` argument to `backward()` cannot be empty.");
        if (!in || PyErr_Occurred()) {
            Py_XDECREF(in);
            return NULL;
        }
    }
    PyObject *one = PyTuple_Pack(1, self), *g = v[0] != Py_None ? PyTuple_Pack(1, v[0]) : Py_NewRef(Py_None);
    if (one && g)
        res = t_backward(t, (PyObject *[]){ one, g, v[1] == Py_None ? v[2] : v[1], v[2], in ? in : Py_None,
                                            Py_True, Py_True });
    Py_XDECREF(one);
    Py_XDECREF(g);
    Py_XDECREF(in);
    return res;
}

static bool can_still_be_differentiated(PyObject *o)
{
    tp_tensor *x = py_is_tensor(o) ? py_tensor(o) : NULL;
    return x && grad_requires_grad(x) && !grad_is_leaf(x) && !grad_is_spent(x);
}

void t_grad_finish(trace *t)
{
    if (!t->did_backward)
        return;
    t->g->backward = true;
    for (size_t i = 0; i < t->outs.n; i++)
        if (can_still_be_differentiated(t->outs.at[i]))
            return;
    for (size_t i = 0; i < t->objs.n; i++) /* inputs that were written have a history now */
        if (t->objs.at[i].node && can_still_be_differentiated(t->objs.at[i].abs))
            return;
    bool mode = t->g->grad_mode;
    IR_EACH_SAFE (n, t->g)
        if (ir_switches_grad(n)) {
            mode = n->arg[0].b;
            ir_erase(n);
        }
    t->e->leaves_grad = mode != t->g->grad_mode ? 1 + mode : 0;
    t->g->grad_mode = false;
    t->e->nograd = true;
}
