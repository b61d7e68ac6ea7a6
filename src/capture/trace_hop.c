/* trace_hop.c - taper.cond, while_loop, scan and map while tracing: the functions they are given become nested graphs.
 * While such a function is traced, operators are recorded into its graph; tensors of the graphs around it that
 * it uses become inputs. It may return tensors in tuples, lists and dicts, and must not write to what is outside. */
#include "capture/capture.h"
#include "capture/nest.h"
#include "ir/hop.h"

static const ir_loc *nest_loc(void *data, ir_graph *g)
{
    nest *x = data;
    while (x->up)
        x = x->up;
    return x->saved.loc(x->saved.loc_data, x->t->g); /* places belong to the outermost graph */
}

static ir_node *nest_find(nest *x, ir_node *n)
{
    if (n->graph == x->g)
        return n;
    for (size_t i = 0; i < x->key.n; i++)
        if (x->key.at[i] == n)
            return x->inner.at[i];
    return NULL;
}

ir_node *nest_lift(nest *x, ir_node *n)
{
    ir_node *m = nest_find(x, n);
    if (m)
        return m;
    ir_node *outer = x->up ? nest_lift(x->up, n) : n->graph == x->t->g ? n : NULL;
    if (!outer || !ir_type(n))
        return NULL;
    m = ir_add_placeholder(x->g, n->name, n->name, ir_type(n));
    vec_push(&x->key, n);
    vec_push(&x->outer, outer);
    vec_push(&x->inner, m);
    vec_push(&x->tensor, NULL);
    return m;
}

ir_node *nest_lift_tensor(nest *x, tp_tensor *t)
{
    ir_node *m = nest_lift(x, t->node);
    for (size_t i = 0; m && i < x->inner.n; i++)
        if (x->inner.at[i] == m && !x->tensor.at[i])
            x->tensor.at[i] = tensor_ref(t);
    return m;
}

static bool outside(const nest *x, const tp_tensor *t)
{
    for (size_t i = 0; i < x->g->inputs.n; i++) {
        const tp_tensor *p = ir_type(x->g->inputs.at[i]);
        if (p && p->storage == t->storage)
            return true;
    }
    return false;
}

/* Counted: t itself, or what stands for it in x. NULL with err. */
static tp_tensor *nest_tensor(nest *x, tp_tensor *t, tp_err *err)
{
    ir_rec *r = &x->t->rec;
    if (!t->node || t->rec != r || ((ir_node *)t->node)->graph == x->g)
        return tensor_ref(t);
    ir_node *m = nest_lift_tensor(x, t);
    if (!m) {
        err_set(err, ERR_runtime,
                "a tensor made inside a function given to cond, scan or the like is used outside of it");
        return NULL;
    }
    return ir_proxy(r, m);
}

static bool nest_call(void *data, op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out,
                      tp_err *err)
{
    nest *x = data;
    const op_row *row = op_row_of(op);
    tp_val a[OP_MAX_PARAMS];
    bool ok = true;
    VEC(tp_tensor *) mine = { 0 };
    arena mem = { 0 };

    for (int i = 0; ok && i < row->schema.nparam; i++) {
        a[i] = arg[i];
        if (arg[i].kind == VAL_tensor) {
            tp_tensor *t = nest_tensor(x, arg[i].t, err);
            ok = t != NULL;
            if (ok)
                vec_push(&mine, t);
            a[i] = vT(t);
        } else if (arg[i].kind == VAL_tensors) {
            tp_tensor **ts = ARENA_ARR(&mem, tp_tensor *, MAX(arg[i].n, 1));
            for (int k = 0; ok && k < arg[i].n; k++) {
                if (!arg[i].ts[k])
                    continue;
                ok = (ts[k] = nest_tensor(x, arg[i].ts[k], err)) != NULL;
                if (ok)
                    vec_push(&mine, ts[k]);
            }
            a[i] = vTs(ts, arg[i].n);
        }
    }
    bool writes = v == OPV_inplace || (row->flags & OPF_MUT);
    if (ok && writes && a[0].kind == VAL_tensor && outside(x, a[0].t))
        ok = err_set(err, ERR_runtime,
                     "a function given to cond, scan or the like writes to a tensor from outside ('%s'): "
                     "return the new "
                     "value instead",
                     row->full);
    ok = ok && ir_record(cx, &x->t->rec, op, v, a, out, err);
    if (ok && writes && out[0].kind == VAL_tensor && out[0].t == a[0].t && out[0].t != arg[0].t) {
        tensor_unref(out[0].t);
        out[0].t = tensor_ref(arg[0].t);
    }
    for (size_t i = 0; i < mine.n; i++)
        tensor_unref(mine.at[i]);
    vec_free(&mine);
    arena_free(&mem);
    return ok;
}

/* ---- changes of what is outside ---- */
static PyObject *contents(PyObject *o) /* new list */
{
    if (PyDict_Check(o)) {
        PyObject *k = PyDict_Keys(o), *v = PyDict_Values(o);
        PyObject *l = k && v ? PySequence_Concat(k, v) : NULL;
        Py_XDECREF(k);
        Py_XDECREF(v);
        return l;
    }
    return PySequence_List(o);
}

/* [(contents or None, attributes written or None)] of every object from outside. New. */
static PyObject *state_of(trace *t)
{
    PyObject *l = PyList_New(0);
    for (size_t i = 0; l && i < t->objs.n; i++) {
        tobj *o = &t->objs.at[i];
        PyObject *c = o->tail        ? contents(o->tail)
                      : o->container ? contents(o->abs)
                                     : Py_NewRef(Py_None),
                 *w = o->over ? contents(o->over) : PyList_New(0), *p = c && w ? PyTuple_Pack(2, c, w) : NULL;
        Py_XDECREF(c);
        Py_XDECREF(w);
        if (!p || PyList_Append(l, p) < 0)
            Py_CLEAR(l);
        Py_XDECREF(p);
    }
    return l;
}

static PyObject *unlazy(PyObject *o) { return IS_LAZY(o) && ((PyLazy *)o)->val ? ((PyLazy *)o)->val : o; }

static bool same_items(PyObject *a, PyObject *b)
{
    if (a == Py_None || b == Py_None)
        return a == b;
    if (PyList_GET_SIZE(a) != PyList_GET_SIZE(b))
        return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(a); i++)
        if (unlazy(PyList_GET_ITEM(a, i)) != unlazy(PyList_GET_ITEM(b, i)))
            return false;
    return true;
}

bool nest_left_alone(nest *x, const PyObject *but)
{
    trace *t = x->t;
    PyObject *now = state_of(t);
    bool ok = now && x->seen;
    for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(now); i++) {
        PyObject *n = PyList_GET_ITEM(now, i);
        if (but && t->objs.at[i].abs == but)
            continue;
        if (i < PyList_GET_SIZE(x->seen)) {
            PyObject *w = PyList_GET_ITEM(x->seen, i);
            ok = same_items(PyTuple_GET_ITEM(n, 0), PyTuple_GET_ITEM(w, 0)) &&
                 same_items(PyTuple_GET_ITEM(n, 1), PyTuple_GET_ITEM(w, 1));
            continue;
        }
        const tobj *o = &t->objs.at[i]; /* first looked at by this function */
        if (PyList_GET_SIZE(PyTuple_GET_ITEM(n, 1)) || (o->tail && PyList_GET_SIZE(o->tail)))
            ok = false;
        else if (o->container && o->snapshot) {
            PyObject *was = contents(o->snapshot);
            ok = was && same_items(PyTuple_GET_ITEM(n, 0), was);
            Py_XDECREF(was);
        }
    }
    Py_XDECREF(now);
    return ok;
}

/* ---- entering and leaving a nested graph ---- */
void nest_begin(nest *x, trace *t, const char *name)
{
    x->t = t;
    x->up = t->rec.call == nest_call ? t->rec.call_data : NULL;
    x->g = ir_graph_new(name);
    x->g->env = t->env;
    x->g->grad_mode = t->g->grad_mode;
    x->saved = t->rec;
    x->seen = state_of(t);
    x->on = true;
    t->rec.g = x->g;
    t->rec.call = nest_call;
    t->rec.call_data = x;
    t->rec.loc = nest_loc;
    t->rec.loc_data = x;
}

void nest_leave(nest *x)
{
    if (x->on)
        x->t->rec = x->saved;
    x->on = false;
}

void nest_free(nest *x)
{
    nest_leave(x);
    if (x->g && !x->g->parent)
        ir_graph_free(x->g);
    vec_free(&x->key);
    vec_free(&x->outer);
    vec_free(&x->inner);
    for (size_t i = 0; i < x->tensor.n; i++)
        tensor_unref(x->tensor.at[i]);
    vec_free(&x->tensor);
    Py_CLEAR(x->seen);
}

PyObject *nest_input(nest *x, const char *name, const tp_tensor *like, int drop, bool grad)
{
    symint stride[TP_MAX_DIMS];
    memcpy(stride, like->stride, sizeof(symint) * like->ndim);
    tp_tensor *fake = tensor_new_fake((dtype)like->dt, like->ndim - drop, like->size + drop, stride + drop,
                                      tensor_device(like));
    ir_node *n = ir_add_placeholder(x->g, name, name, fake);
    tensor_unref(fake);
    tp_tensor *p = ir_proxy(&x->t->rec, n);
    tp_err err = { 0 };
    if (grad && dtype_has_grad((dtype)p->dt)) {
        op_ctx cx = *CX;
        if (!grad_set_requires_grad(&cx, p, true, &err)) {
            tensor_unref(p);
            return py_raise(&err);
        }
    }
    return py_wrap(p);
}

/* ---- trees of tensors ---- */
typedef struct tree {
    trace *t;
    VEC(PyObject *) leaf; /* borrowed tensors, in order */
    strbuf spec;
    bool ok;
} tree;

static bool tree_walk(tree *w, PyObject *o)
{
    trace *t = w->t;
    if (!(o = t_real(t, o)))
        return false;
    if (py_is_tensor(o)) {
        vec_push(&w->leaf, o);
        strbuf_addc(&w->spec, '*');
    } else if (PyTuple_Check(o) || PyList_CheckExact(o)) {
        strbuf_addf(&w->spec, "%s(", Py_TYPE(o)->tp_name);
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++) {
            if (!tree_walk(w, PySequence_Fast_GET_ITEM(o, i)))
                return false;
            strbuf_addc(&w->spec, ',');
        }
        strbuf_addc(&w->spec, ')');
    } else if (PyDict_CheckExact(o)) {
        PyObject *k, *v;
        Py_ssize_t p = 0;
        strbuf_add(&w->spec, "dict(");
        while (PyDict_Next(o, &p, &k, &v)) {
            PyObject *r = PyObject_Repr(k);
            strbuf_addf(&w->spec, "%s:", r ? PyUnicode_AsUTF8(r) : "?");
            Py_XDECREF(r);
            if (!tree_walk(w, v))
                return false;
            strbuf_addc(&w->spec, ',');
        }
        strbuf_addc(&w->spec, ')');
    } else {
        PyObject *r = t_safe_type(Py_TYPE(o)) ? PyObject_Repr(o) : NULL;
        strbuf_addf(&w->spec, "%s %s", Py_TYPE(o)->tp_name, r ? PyUnicode_AsUTF8(r) : "");
        Py_XDECREF(r);
        PyErr_Clear();
    }
    return true;
}

/* The same tree with other tensors in place of the leaves. New. */
static PyObject *tree_fill(trace *t, PyObject *o, PyObject *const *leaf, int *at)
{
    if (!(o = t_real(t, o)))
        return NULL;
    if (py_is_tensor(o))
        return Py_NewRef(leaf[(*at)++]);
    if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
        Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
        bool tup = PyTuple_CheckExact(o);
        PyObject *r = tup ? PyTuple_New(n) : PyList_New(n);
        for (Py_ssize_t i = 0; r && i < n; i++) {
            PyObject *v = tree_fill(t, PySequence_Fast_GET_ITEM(o, i), leaf, at);
            if (!v)
                Py_CLEAR(r);
            else if (tup)
                PyTuple_SET_ITEM(r, i, v);
            else
                PyList_SET_ITEM(r, i, v);
        }
        return r;
    }
    if (PyTuple_Check(o)) { /* named tuples */
        PyObject *l = PySequence_List(o), *m = l ? tree_fill(t, l, leaf, at) : NULL, *r = NULL;
        PyObject *mk = m ? PyObject_GetAttrString((PyObject *)Py_TYPE(o), "_make") : NULL;
        r = mk ? PyObject_CallOneArg(mk, m) : NULL;
        Py_XDECREF(l);
        Py_XDECREF(m);
        Py_XDECREF(mk);
        return r;
    }
    if (PyDict_CheckExact(o)) {
        PyObject *r = PyDict_New(), *k, *v;
        Py_ssize_t p = 0;
        while (r && PyDict_Next(o, &p, &k, &v)) {
            PyObject *f = tree_fill(t, v, leaf, at);
            if (!f || PyDict_SetItem(r, k, f) < 0)
                Py_CLEAR(r);
            Py_XDECREF(f);
        }
        return r;
    }
    return Py_NewRef(o);
}

static void tree_end(tree *w)
{
    vec_free(&w->leaf);
    strbuf_free(&w->spec);
}

/* ---- results ---- */
static PyObject *refuse(trace *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static PyObject *refuse(trace *t, const char *fmt, ...)
{
    char text[1500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    PyObject *cls = exc_class("UncapturedHigherOrderOpError");
    frame *f = frame_user(t->top);
    PyErr_Format(cls ? cls : PyExc_RuntimeError, "%s\n\nfrom user code:\n  File \"%s\", line %d, in %s", text,
                 f->cc->file, frame_line(f), f->cc->name);
    t->internal = true;
    return NULL;
}

static void type_text(char *buf, size_t n, const tp_tensor *x)
{
    strbuf b = { 0 };
    tp_val v = vT((tp_tensor *)x);
    ir_type_print(&b, &v);
    snprintf(buf, n, "%s", strbuf_str(&b));
    strbuf_free(&b);
}

static bool same_type(const tp_tensor *a, const tp_tensor *b)
{
    return a->dt == b->dt && a->ndim == b->ndim && !memcmp(a->size, b->size, sizeof(symint) * a->ndim);
}

/* Traces f(*args) into x and sets its outputs. The result tree goes to *ret (new). */
static bool nest_trace(nest *x, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject **ret,
                       tree *out)
{
    trace *t = x->t;
    *ret = t_call(t, f, args, nargs, NULL);
    if (!*ret)
        return false;
    if (!nest_left_alone(x, NULL)) {
        t_break(t, BRK_nested, "a function given to a higher-order operator changes objects outside of it");
        return false;
    }
    out->t = t;
    if (!tree_walk(out, *ret))
        return false;
    tp_val *v = mem_zalloc(sizeof *v * (size_t)MAX(out->leaf.n, 1));
    bool ok = true;
    for (size_t i = 0; ok && i < out->leaf.n; i++) {
        tp_tensor *p = py_tensor(out->leaf.at[i]);
        ir_node *n = NULL;
        if (p->node && p->rec == &t->rec)
            n = nest_lift_tensor(x, p);
        else if (!tensor_is_fake(p))
            n = ir_add_const(x->g, "_tensor_constant0", p);
        v[i] = (tp_val){ .kind = VAL_node, .node = n };
        if (!n) {
            t_break(t, BRK_nested,
                    "a function given to a higher-order operator returns a tensor of another trace");
            ok = false;
        }
    }
    if (ok)
        ir_set_output(x->g, v, (int)out->leaf.n);
    free(v);
    return ok;
}

static ir_node *out_node(const nest *x, int i) { return x->g->output->arg[i].node; }

/* Two functions' results of one type: where strides differ both become contiguous. */
static bool same_strides(nest *a, nest *b, int i, tp_err *err)
{
    tp_tensor *p = ir_type(out_node(a, i)), *q = ir_type(out_node(b, i));
    if (!memcmp(p->stride, q->stride, sizeof(symint) * p->ndim))
        return true;
    nest *both[2] = { a, b };
    for (int k = 0; k < 2; k++) {
        ir_graph *g = both[k]->g;
        tp_val arg[2] = { g->output->arg[i], vMF(MF_contiguous) };
        ir_node *c = ir_build(g, OP_clone, OPV_fn, arg, 2, err);
        if (!c)
            return false;
        ir_insert_before(g, g->output, c);
        ir_set_arg(g->output, i, (tp_val){ .kind = VAL_node, .node = c });
    }
    return true;
}

/* Both take the same inputs from outside, in the same order: a's then what only b uses. */
static void same_inputs(nest *a, nest *b)
{
    for (size_t i = 0; i < b->key.n; i++)
        nest_lift(a, b->key.at[i]);
}

static tp_val graph_val(nest *x) { return (tp_val){ .kind = VAL_graph, .graph = x->g }; }
static tp_val nodes_val(ir_node **n, int k) { return (tp_val){ .kind = VAL_nodes, .n = k, .nodes = n }; }

/* Appends the call to the graph that is recorded now and returns its results as tensors in `leaf` (new refs). */
static bool add_call(trace *t, hop_kind k, const tp_val *arg, int narg, tp_tensor **type, int n, bool grad,
                     PyObject **leaf)
{
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++)
        ts[i] = tensor_fake_of(type[i]);
    ir_node *m = ir_add_opaque(t->rec.g, ir_hop_target(k), NULL, arg, narg, vTs(ts, n));
    m->loc = t->rec.loc ? t->rec.loc(t->rec.loc_data, t->rec.g) : NULL;
    for (int i = 0; i < n; i++) {
        tp_tensor *p = ir_proxy(&t->rec, ir_add_getitem(t->rec.g, m, i, vT(tensor_ref(m->val.ts[i]))));
        tp_err err = { 0 };
        op_ctx cx = *CX;
        t->tape_hidden |= grad && CX->grad_mode;
        if (grad && CX->grad_mode && dtype_has_grad((dtype)p->dt) &&
            !grad_set_requires_grad(&cx, p, true, &err)) {
            tensor_unref(p);
            py_raise(&err);
            return false;
        }
        if (!(leaf[i] = py_wrap(p)))
            return false;
    }
    return true;
}

nest *nest_now(trace *t) { return t->rec.call == nest_call ? t->rec.call_data : NULL; }

/* The node of a tensor in the graph that is recorded now. */
ir_node *t_node_here(trace *t, PyObject *o)
{
    tp_tensor *p = py_tensor(o);
    nest *x = nest_now(t);
    if (p->node && p->rec == &t->rec)
        return x ? nest_lift_tensor(x, p) : p->node;
    return tensor_is_fake(p) ? NULL : ir_add_const(t->rec.g, "_tensor_constant0", p);
}

static bool any_grad(PyObject *const *o, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (grad_requires_grad(py_tensor(o[i])))
            return true;
    return false;
}

/* Named arguments in order; missing ones stay NULL. */
static bool bind(trace *t, const char *fn, PyObject *const *args, Py_ssize_t nargs, PyObject *kw,
                 const char *const *names, PyObject **out)
{
    int n = 0;
    while (names[n])
        n++;
    if (nargs > n) {
        t_break(t, BRK_arguments, "%s() takes %d arguments but %zd were given", fn, n, nargs);
        return false;
    }
    for (Py_ssize_t i = 0; i < nargs; i++)
        out[i] = args[i];
    for (Py_ssize_t i = 0; kw && i < PyTuple_GET_SIZE(kw); i++) {
        int k = 0;
        while (names[k] && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kw, i), names[k]))
            k++;
        if (!names[k] || out[k]) {
            t_break(t, BRK_arguments, "%s() got a wrong keyword argument", fn);
            return false;
        }
        out[k] = args[nargs + i];
    }
    return true;
}

/* ---- cond ---- */
/* Asked where two sizes are compared. Usually the outcome is wanted at once and becomes a guard; a function that hands it to
 * cond is traced again with comparisons kept. */
bool t_keeps_relations(void)
{
    if (!t_now || !t_now->e || !t_now->e->r)
        return false;
    t_now->compared = true;
    return t_now->e->r->keep_relations;
}

static PyObject *do_cond(trace *t, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "pred", "true_fn", "false_fn", "operands", NULL };
    PyObject *a[4] = { NULL }, *ret[2] = { NULL }, *res = NULL, **leaf = NULL;
    nest x[2] = { 0 };
    tree ops = { .t = t }, out[2] = { 0 };
    tp_err err = { 0 };
    tp_tensor **types = NULL;
    int n = 0;

    if (!bind(t, "cond", args, nargs, kw, names, a))
        return NULL;
    PyObject *pred = a[0] ? t_real(t, a[0]) : NULL, *list = NULL;
    if (!pred || !a[1] || !a[2])
        return pred ? t_break(t, BRK_arguments, "cond() needs a predicate and two functions") : NULL;
    list = a[3] ? t_list_of(t, a[3]) : PyList_New(0);
    if (!list)
        return NULL;
    PyObject *const *av = ((PyListObject *)list)->ob_item;
    Py_ssize_t na = PyList_GET_SIZE(list);
    if (!py_is_tensor(pred) &&
        !py_is_symint(pred)) { /* known while tracing: one branch, guarded where it came from */
        if (PyBool_Check(pred) && t->compared && !t->e->r->keep_relations) {
            t->e->r->keep_relations = t->again = true;
            t_break(t, BRK_nested, "tracing again");
            goto done;
        }
        int yes = t_truth(t, pred);
        if (yes >= 0)
            res = t_call(t, a[yes ? 1 : 2], av, na, NULL);
        goto done;
    }
    if (py_is_tensor(pred) && !sym_is_expr(py_tensor(pred)->numel) && py_tensor(pred)->numel != 1) {
        refuse(t, "cond: the predicate must be a bool or a tensor with one element, but it has %lld",
               (long long)py_tensor(pred)->numel);
        goto done;
    }
    for (Py_ssize_t i = 0; i < na; i++)
        if (!tree_walk(&ops, av[i]))
            goto done;
    static const char *const graph_names[2] = { "true_graph_0", "false_graph_0" };
    for (int k = 0; k < 2; k++) {
        nest_begin(&x[k], t, graph_names[k]);
        for (size_t i = 0; k == 0 && i < ops.leaf.n; i++)
            if (py_tensor(ops.leaf.at[i])->node && py_tensor(ops.leaf.at[i])->rec == &t->rec &&
                !nest_lift(&x[k], py_tensor(ops.leaf.at[i])->node)) {
                t_break(t, BRK_nested, "an operand of cond belongs to another function given to it");
                goto done;
            }
        if (k)
            same_inputs(&x[1], &x[0]);
        bool ok = nest_trace(&x[k], a[1 + k], av, na, &ret[k], &out[k]);
        nest_leave(&x[k]);
        if (!ok)
            goto done;
    }
    same_inputs(&x[0], &x[1]);
    if (strcmp(strbuf_str(&out[0].spec), strbuf_str(&out[1].spec))) {
        refuse(t,
               "cond: the branches return different structures: true_fn returns %s but false_fn returns %s",
               strbuf_str(&out[0].spec), strbuf_str(&out[1].spec));
        goto done;
    }
    n = (int)out[0].leaf.n;
    leaf = mem_zalloc(sizeof *leaf * (size_t)MAX(n, 1));
    types = mem_zalloc(sizeof *types * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++) {
        const tp_tensor *p = ir_type(out_node(&x[0], i)), *q = ir_type(out_node(&x[1], i));
        if (!same_type(p, q)) {
            char pt[300], qt[300];
            type_text(pt, sizeof pt, p);
            type_text(qt, sizeof qt, q);
            refuse(t,
                   "cond: the branches must return tensors of the same dtype and shape: true_fn returns %s "
                   "but false_fn "
                   "returns %s (result %d)",
                   pt, qt, i);
            goto done;
        }
        if (!same_strides(&x[0], &x[1], i, &err)) {
            py_raise(&err);
            goto done;
        }
        types[i] = ir_type(out_node(&x[0], i));
    }
    bool grad = any_grad(out[0].leaf.at, out[0].leaf.n) || any_grad(out[1].leaf.at, out[1].leaf.n);
    tp_val arg[4] = { vNone, graph_val(&x[0]), graph_val(&x[1]),
                      nodes_val(x[0].outer.at, (int)x[0].outer.n) };
    if (py_is_tensor(pred)) {
        ir_node *p = t_node_here(t, pred);
        if (!p) {
            t_break(t, BRK_nested, "the predicate of cond belongs to another trace");
            goto done;
        }
        arg[0] = (tp_val){ .kind = VAL_node, .node = p };
    } else
        arg[0] = vI(py_symint_value(pred));
    int at = 0;
    if (add_call(t, HOP_cond, arg, 4, types, n, grad, leaf))
        res = tree_fill(t, ret[0], leaf, &at);
done:
    for (int i = 0; leaf && i < n; i++)
        Py_XDECREF(leaf[i]);
    free(leaf);
    free(types);
    for (int k = 0; k < 2; k++) {
        nest_free(&x[k]);
        tree_end(&out[k]);
        Py_XDECREF(ret[k]);
    }
    tree_end(&ops);
    Py_XDECREF(list);
    return res;
}

/* ---- while_loop ---- */
static bool only_tensors(trace *t, const char *fn, tree *w, PyObject *list)
{
    size_t n = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        if (!tree_walk(w, PyList_GET_ITEM(list, i)))
            return false;
        if (w->leaf.n == n) {
            t_break(t, BRK_nested, "%s carries a %s: only tensors are carried in a graph", fn,
                    Py_TYPE(t_real(t, PyList_GET_ITEM(list, i)))->tp_name);
            return false;
        }
        n = w->leaf.n;
    }
    return true;
}

/* New inputs of x like these tensors (without their first dimension: drop 1), as a tree like o. New. */
static PyObject *inputs_like(nest *x, PyObject *o, tree *w, const char *name, int drop, bool grad)
{
    PyObject **in = mem_zalloc(sizeof *in * (size_t)MAX(w->leaf.n, 1)), *r = NULL;
    bool ok = true;
    for (size_t i = 0; ok && i < w->leaf.n; i++) {
        char nm[40];
        snprintf(nm, sizeof nm, "%s_%d", name, (int)i);
        in[i] = nest_input(x, nm, py_tensor(w->leaf.at[i]), drop,
                           grad || grad_requires_grad(py_tensor(w->leaf.at[i])));
        ok = in[i] != NULL;
    }
    int at = 0;
    if (ok)
        r = tree_fill(x->t, o, in, &at);
    for (size_t i = 0; i < w->leaf.n; i++)
        Py_XDECREF(in[i]);
    free(in);
    return r;
}

static bool nodes_here(trace *t, tree *w, ir_node **out)
{
    for (size_t i = 0; i < w->leaf.n; i++)
        if (!(out[i] = t_node_here(t, w->leaf.at[i]))) {
            t_break(t, BRK_nested, "an operand belongs to another trace");
            return false;
        }
    return true;
}

static bool carried_type(trace *t, const char *fn, nest *x, int i, PyObject *in)
{
    const tp_tensor *p = py_tensor(in), *q = ir_type(out_node(x, i));
    if (same_type(p, q))
        return true;
    char pt[300], qt[300];
    type_text(pt, sizeof pt, p);
    type_text(qt, sizeof qt, q);
    refuse(t,
           "%s: what is carried must keep its dtype and shape: it starts as %s but the function returns %s "
           "(result %d)",
           fn, pt, qt, i);
    return false;
}

static PyObject *do_while(trace *t, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "cond_fn", "body_fn", "carried_inputs", NULL };
    PyObject *a[3] = { NULL }, *ret[2] = { NULL }, *res = NULL, *in = NULL, *list = NULL, **leaf = NULL;
    nest x[2] = { 0 };
    tree w = { .t = t }, out[2] = { 0 };
    ir_node **nodes = NULL;
    tp_tensor **types = NULL;
    size_t n = 0;
    if (!bind(t, "while_loop", args, nargs, kw, names, a))
        return NULL;
    if (!a[0] || !a[1] || !a[2])
        return t_break(t, BRK_arguments, "while_loop() takes a condition, a body and what is carried");
    if (!(list = t_list_of(t, a[2])) || !only_tensors(t, "while_loop", &w, list))
        goto done;
    n = w.leaf.n;
    nodes = mem_zalloc(sizeof *nodes * MAX(n, (size_t)1));
    types = mem_zalloc(sizeof *types * MAX(n, (size_t)1));
    leaf = mem_zalloc(sizeof *leaf * MAX(n, (size_t)1));
    if (!nodes_here(t, &w, nodes))
        goto done;
    static const char *const graph_names[2] = { "cond_graph_0", "body_graph_0" };
    for (int k = 0; k < 2; k++) {
        nest_begin(&x[k], t, graph_names[k]);
        Py_XSETREF(in, inputs_like(&x[k], list, &w, "arg", 0, false));
        if (k)
            same_inputs(&x[1], &x[0]);
        bool ok = in && nest_trace(&x[k], a[k], ((PyListObject *)in)->ob_item, PyList_GET_SIZE(in), &ret[k],
                                   &out[k]);
        nest_leave(&x[k]);
        if (!ok)
            goto done;
    }
    same_inputs(&x[0], &x[1]);
    if (out[0].leaf.n != 1 || ir_type(out_node(&x[0], 0))->numel != 1) {
        refuse(t, "while_loop: cond_fn must return a bool tensor with one element; it returns %s",
               strbuf_str(&out[0].spec));
        goto done;
    }
    if (out[1].leaf.n != n) {
        refuse(t,
               "while_loop: body_fn must return as many tensors as are carried: %zu are carried but it "
               "returns %zu",
               n, out[1].leaf.n);
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        if (!carried_type(t, "while_loop", &x[1], (int)i, w.leaf.at[i]))
            goto done;
        types[i] = py_tensor(w.leaf.at[i]);
    }
    bool grad = any_grad(w.leaf.at, n) || any_grad(out[1].leaf.at, n);
    tp_val arg[4] = { graph_val(&x[0]), graph_val(&x[1]), nodes_val(nodes, (int)n),
                      nodes_val(x[1].outer.at, (int)x[1].outer.n) };
    int at = 0;
    if (add_call(t, HOP_while, arg, 4, types, (int)n, grad, leaf)) {
        PyObject *l = tree_fill(t, list, leaf, &at);
        res = l ? PyList_AsTuple(l) : NULL;
        Py_XDECREF(l);
    }
done:
    for (size_t i = 0; leaf && i < n; i++)
        Py_XDECREF(leaf[i]);
    free(leaf);
    free(types);
    free(nodes);
    for (int k = 0; k < 2; k++) {
        nest_free(&x[k]);
        tree_end(&out[k]);
        Py_XDECREF(ret[k]);
    }
    tree_end(&w);
    Py_XDECREF(in);
    Py_XDECREF(list);
    return res;
}

/* ---- scan and map ---- */
static tp_tensor *stacked(const tp_tensor *t, symint steps) /* counted fake */
{
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    size[0] = steps;
    for (int d = 0; d < t->ndim; d++)
        size[d + 1] = t->size[d];
    shape_contiguous_strides(t->ndim + 1, size, stride);
    return tensor_new_fake((dtype)t->dt, t->ndim + 1, size, stride, tensor_device(t));
}

/* Each tensor of the tree with a method called on it. New. */
static PyObject *each(trace *t, PyObject *o, const char *method, const char *fmt, long p, long q)
{
    tree w = { .t = t };
    PyObject *r = NULL, **v = NULL;
    if (tree_walk(&w, o)) {
        bool ok = true;
        v = mem_zalloc(sizeof *v * MAX(w.leaf.n, (size_t)1));
        for (size_t i = 0; ok && i < w.leaf.n; i++)
            ok = (v[i] = PyObject_CallMethod(w.leaf.at[i], method, fmt, p, q)) != NULL;
        int at = 0;
        if (ok)
            r = tree_fill(t, o, v, &at);
        for (size_t i = 0; i < w.leaf.n; i++)
            Py_XDECREF(v[i]);
        free(v);
    }
    tree_end(&w);
    return r;
}

/* f takes (carry, x) or, for map, (x, *rest). */
static PyObject *scan_like(trace *t, bool map, PyObject *f, PyObject *init, PyObject *xs, PyObject *rest)
{
    const char *fn = map ? "map" : "scan";
    PyObject *ret = NULL, *res = NULL, *x_in = NULL, *c_in = NULL, **leaf = NULL, *all = NULL;
    nest x = { 0 };
    tree wc = { .t = t }, wx = { .t = t }, out = { 0 };
    ir_node **cn = NULL, **xn = NULL;
    tp_tensor **types = NULL;
    size_t nc = 0, n = 0, nrest = rest ? (size_t)PyList_GET_SIZE(rest) : 0;
    if ((init && !tree_walk(&wc, init)) || !tree_walk(&wx, xs))
        goto done;
    nc = wc.leaf.n;
    if (!wx.leaf.n) {
        refuse(t, "%s: there is no tensor to walk along", fn);
        goto done;
    }
    for (size_t i = 0; i < wx.leaf.n; i++) {
        const tp_tensor *p = py_tensor(wx.leaf.at[i]), *q = py_tensor(wx.leaf.at[0]);
        if (!p->ndim || !sym_eq(p->size[0], q->size[0])) {
            char pt[300], qt[300];
            type_text(pt, sizeof pt, q);
            type_text(qt, sizeof qt, p);
            refuse(t, "%s: all tensors that are walked along must have the same length: %s and %s", fn, pt,
                   qt);
            goto done;
        }
    }
    symint steps = py_tensor(wx.leaf.at[0])->size[0];
    cn = mem_zalloc(sizeof *cn * MAX(nc, (size_t)1));
    xn = mem_zalloc(sizeof *xn * MAX(wx.leaf.n, (size_t)1));
    if (!nodes_here(t, &wc, cn) || !nodes_here(t, &wx, xn))
        goto done;
    nest_begin(&x, t, map ? "body_graph_0" : "combine_graph_0");
    bool grads = any_grad(wx.leaf.at, wx.leaf.n);
    c_in = init ? inputs_like(&x, init, &wc, "carry", 0, grads) : Py_NewRef(Py_None);
    x_in = c_in ? inputs_like(&x, xs, &wx, "x", 1, false) : NULL;
    bool ok = x_in != NULL;
    if (ok) {
        PyObject **av = mem_zalloc(sizeof *av * (nrest + 2));
        Py_ssize_t k = 0;
        if (init)
            av[k++] = c_in;
        av[k++] = x_in;
        for (size_t i = 0; i < nrest; i++)
            av[k++] = PyList_GET_ITEM(rest, (Py_ssize_t)i);
        ok = nest_trace(&x, f, av, k, &ret, &out);
        free(av);
    }
    nest_leave(&x);
    if (!ok)
        goto done;
    n = out.leaf.n;
    PyObject *r = t_real(t, ret);
    if (!map) {
        tree one = { .t = t };
        bool pair = r && PyTuple_Check(r) && PyTuple_GET_SIZE(r) == 2 &&
                    tree_walk(&one, PyTuple_GET_ITEM(r, 0)) && one.leaf.n == nc;
        tree_end(&one);
        if (!pair) {
            refuse(t,
                   "scan: combine_fn must return (carry, output) with a carry like init: init has %zu "
                   "tensors, it returns %s",
                   nc, strbuf_str(&out.spec));
            goto done;
        }
        for (size_t i = 0; i < nc; i++)
            if (!carried_type(t, "scan", &x, (int)i, wc.leaf.at[i]))
                goto done;
    }
    types = mem_zalloc(sizeof *types * MAX(n, (size_t)1));
    leaf = mem_zalloc(sizeof *leaf * MAX(n, (size_t)1));
    for (size_t i = 0; i < n; i++) {
        tp_tensor *p = ir_type(out_node(&x, (int)i));
        types[i] = i < nc ? tensor_fake_of(p) : stacked(p, steps);
    }
    bool grad = any_grad(wc.leaf.at, nc) || grads || any_grad(out.leaf.at, n);
    tp_val arg[4] = { graph_val(&x), nodes_val(cn, (int)nc), nodes_val(xn, (int)wx.leaf.n),
                      nodes_val(x.outer.at, (int)x.outer.n) };
    if (map) {
        arg[1] = arg[2];
        arg[2] = arg[3];
    }
    int at = 0;
    if (add_call(t, map ? HOP_map : HOP_scan, arg, map ? 3 : 4, types, (int)n, grad, leaf))
        res = tree_fill(t, r, leaf, &at);
done:
    for (size_t i = 0; leaf && i < n; i++) {
        Py_XDECREF(leaf[i]);
        tensor_unref(types[i]);
    }
    free(leaf);
    free(types);
    free(cn);
    free(xn);
    nest_free(&x);
    tree_end(&wc);
    tree_end(&wx);
    tree_end(&out);
    Py_XDECREF(ret);
    Py_XDECREF(x_in);
    Py_XDECREF(c_in);
    Py_XDECREF(all);
    return res;
}

static PyObject *do_scan(trace *t, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    static const char *const names[] = { "combine_fn", "init", "xs", "dim", "reverse", NULL };
    PyObject *a[5] = { NULL };
    if (!bind(t, "scan", args, nargs, kw, names, a))
        return NULL;
    if (!a[0] || !a[1] || !a[2])
        return t_break(t, BRK_arguments, "scan() takes combine_fn, init and xs");
    PyObject *dim = a[3] ? t_real(t, a[3]) : NULL, *rev = a[4] ? t_real(t, a[4]) : NULL,
             *xs = Py_NewRef(a[2]), *r;
    if ((a[3] && !dim) || (a[4] && !rev)) {
        Py_DECREF(xs);
        return NULL;
    }
    long d = dim && PyLong_Check(dim) ? PyLong_AsLong(dim) : 0;
    bool reverse = rev && rev == Py_True;
    if (d && xs)
        Py_SETREF(xs, each(t, xs, "movedim", "ll", d, 0L));
    if (reverse && xs)
        Py_SETREF(xs, each(t, xs, "flip", "l", 0L, 0L));
    if (!xs)
        return NULL;
    r = scan_like(t, false, a[0], a[1], xs, NULL);
    Py_DECREF(xs);
    if (r && PyTuple_Check(r) && (reverse || d)) {
        PyObject *ys = Py_NewRef(PyTuple_GET_ITEM(r, 1));
        if (reverse)
            Py_SETREF(ys, each(t, ys, "flip", "l", 0L, 0L));
        PyObject *p = ys ? PyTuple_Pack(2, PyTuple_GET_ITEM(r, 0), ys) : NULL;
        Py_XDECREF(ys);
        Py_SETREF(r, p);
    }
    return r;
}

static PyObject *do_map(trace *t, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    if (nargs < 2 || kw)
        return t_break(t, BRK_arguments,
                       "map() takes a function, what it walks along and more arguments by position");
    PyObject *rest = PyList_New(0);
    for (Py_ssize_t i = 2; rest && i < nargs; i++)
        if (PyList_Append(rest, args[i]) < 0)
            Py_CLEAR(rest);
    PyObject *r = rest ? scan_like(t, true, args[0], NULL, args[1], rest) : NULL;
    Py_XDECREF(rest);
    return r;
}

PyObject *t_hop(trace *t, const char *which, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    if (!strcmp(which, "cond"))
        return do_cond(t, args, nargs, kw);
    if (!strcmp(which, "while_loop"))
        return do_while(t, args, nargs, kw);
    if (!strcmp(which, "scan"))
        return do_scan(t, args, nargs, kw);
    if (!strcmp(which, "function"))
        return t_function(t, args, nargs);
    if (!strcmp(which, "function_dirty"))
        return t_function_dirty(t, args, nargs);
    return do_map(t, args, nargs, kw);
}
