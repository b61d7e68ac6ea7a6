/* trace_function.c - autograd.Function while tracing, where its results need gradients. Its forward was traced like any
 * other code, with gradients off (taper/_polyfill.py). Its backward becomes a nested graph: it takes the gradients of the
 * results and whatever else it uses of the graphs around it. One node says that the results have this derivative. */
#include "aot/aot.h"
#include "capture/nest.h"
#include "ir/hop.h"

/* On the tape of the trace: for a backward() in the same graph. */
typedef struct function_step {
    grad_node n;
    trace *t;
    const ir_node *node; /* the call */
    int nkept;
    struct {
        tp_tensor *t; /* counted, or NULL: only the node is known */
        int out;      /* it is this result, whose history it gets when it is used; -1: no */
    } * kept;
} function_step;

static const char *step_name(const grad_node *n) { return "FunctionBackward"; }

static void step_free(grad_node *n)
{
    function_step *s = (function_step *)n;
    for (int i = 0; i < s->nkept; i++)
        tensor_unref(s->kept[i].t);
    free(s->kept);
}

static tp_tensor *alias_of(tp_tensor *t)
{
    tp_tensor *a = tensor_alias(t);
    a->node = t->node;
    a->rec = t->rec;
    return a;
}

static tp_tensor *kept_now(function_step *s, int i) /* counted */
{
    if (!s->kept[i].t)
        return ir_proxy(&s->t->rec, s->node->arg[3].nodes[i]);
    if (s->kept[i].out < 0)
        return tensor_ref(s->kept[i].t);
    tp_tensor *a = alias_of(s->kept[i].t);
    grad_set_history(a, &s->n, s->kept[i].out, NULL);
    return a;
}

static tp_val replay_input(aot_replay *r, ir_node *n, int i) { return vT(tensor_ref(r->args[i])); }
static bool replay_call(aot_replay *r, ir_node *n, const tp_val *arg, tp_val *out, tp_err *err)
{
    return grad_call(r->cx, (op_id)n->op, (op_variant)n->variant, arg, out, err);
}
static int replay_opaque(aot_replay *r, const ir_node *n, tp_err *err)
{
    return r->cx->grad_mode ? err_set(err, ERR_runtime, "the derivative of '%s' in a derivative", n->name) - 1
                            : 0;
}
static ir_graph *replay_graph(aot_replay *r, ir_graph *g) { return ir_graph_copy(g); }
static ir_node *replay_node(aot_replay *r, tp_tensor *t, tp_err *err)
{
    nest *x = nest_now(r->data);
    if (t->node && t->rec == r->rec)
        return x ? nest_lift_tensor(x, t) : t->node;
    return ir_node_of(r->rec, t);
}

static bool step_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                       tp_err *err)
{
    function_step *s = (function_step *)n;
    int nin = n->nin + s->nkept;
    ir_graph *g = s->node->arg[0].graph;
    if (n->released && s->nkept)
        return err_set(err, ERR_runtime, "%s", grad_again);
    tp_tensor **in = mem_zalloc(sizeof *in * (size_t)MAX(nin, 1));
    for (int i = 0; i < nin; i++)
        in[i] = i < n->nin ? tensor_ref(dy[i]) : kept_now(s, i - n->nin);
    aot_replay r = { .cx = b->cx,
                     .rec = &s->t->rec,
                     .input = replay_input,
                     .call = replay_call,
                     .opaque = replay_opaque,
                     .graph = replay_graph,
                     .node = replay_node,
                     .data = s->t,
                     .args = in };
    bool ok = aot_replay_run(&r, g, err);
    for (int i = 0; ok && i < n->nedge; i++)
        if (need[i])
            dx[i] = tensor_ref(r.val[g->output->arg[i].node->id].t);
    aot_replay_end(&r);
    for (int i = 0; i < nin; i++)
        tensor_unref(in[i]);
    free(in);
    return ok;
}

static void step_release(grad_node *n) {}
static const char *hook_name(const grad_node *n) { return "HookBackward"; }
static const grad_vt step_vt = { step_name, step_apply, step_release, step_free },
                     hook_vt = { hook_name, step_apply, step_release, step_free };

bool t_has_hook(tp_tensor *x)
{
    const grad_node *n = grad_requires_grad(x) ? grad_grad_fn(x, NULL, NULL) : NULL;
    return n && n->vt == &hook_vt;
}

/* One call of a function while its graph is made. */
typedef struct call {
    trace *t;
    PyObject *cls, *ctx, *args, *outs, *backward;
    bool hook; /* of a tensor: it is the only argument and the only result, which stays what it is */
    nest x;
    int nout, nin;
    PyObject **out; /* results with a derivative, borrowed */
    PyObject **in;  /* arguments that get a gradient, borrowed */
    tp_val *grad;   /* by these: its node in the nested graph */
} call;

static PyObject *ctx_tuple(trace *t, PyObject *ctx, const char *name) /* new */
{
    PyObject *n = PyUnicode_FromString(name), *v = n ? t_getattr(t, ctx, n) : NULL,
             *r = v ? t_real(t, v) : NULL;
    Py_XINCREF(r);
    Py_XDECREF(n);
    Py_XDECREF(v);
    return r && !PyTuple_Check(r) ? (Py_DECREF(r), PyTuple_New(0)) : r;
}

static bool among(trace *t, PyObject *tuple, const PyObject *o)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
        if (t_real(t, PyTuple_GET_ITEM(tuple, i)) == o)
            return true;
    return false;
}

/* Which results have a derivative? */
static bool find_results(call *c)
{
    trace *t = c->t;
    PyObject *none = ctx_tuple(t, c->ctx, "_non_diff");
    Py_ssize_t n = PyTuple_GET_SIZE(c->outs);
    bool ok = none != NULL;
    c->out = mem_zalloc(sizeof *c->out * (size_t)MAX(n, 1));
    for (Py_ssize_t i = 0; ok && i < n; i++) {
        PyObject *o = t_real(t, PyTuple_GET_ITEM(c->outs, i));
        if (!(ok = o != NULL) || !py_is_tensor(o) || !dtype_has_grad((dtype)py_tensor(o)->dt) ||
            among(t, none, o))
            continue;
        for (int k = 0; ok && k < c->nout; k++)
            ok = c->out[k] != o ||
                 t_break(t, BRK_call_builtin, "autograd.Function that returns one tensor twice");
        if (ok && (!py_tensor(o)->node || py_tensor(o)->rec != &t->rec))
            ok = t_break(t, BRK_call_builtin, "autograd.Function that returns a tensor of another trace") !=
                 NULL;
        c->out[c->nout++] = o;
    }
    Py_XDECREF(none);
    return ok;
}

/* Traces backward into the nested graph. New: the tuple of gradients. */
static PyObject *trace_backward(call *c)
{
    trace *t = c->t;
    Py_ssize_t n = PyTuple_GET_SIZE(c->outs), k = 0;
    PyObject *grads = PyTuple_New(n), *r = NULL;
    for (Py_ssize_t i = 0; grads && i < n; i++) {
        PyObject *o = t_real(t, PyTuple_GET_ITEM(c->outs, i)), *g = Py_None;
        if (k < c->nout && o == c->out[k]) {
            char name[32];
            snprintf(name, sizeof name, "tangent_%d", (int)k++);
            g = nest_input(&c->x, name, py_tensor(o), 0, false);
        } else
            Py_INCREF(g);
        if (g)
            PyTuple_SET_ITEM(grads, i, g);
        else
            Py_CLEAR(grads);
    }
    bool mode = CX->grad_mode;
    CX->grad_mode = false;
    if (grads)
        r = t_call(t, c->backward, (PyObject *[]){ c->cls, c->ctx, c->args, grads, c->outs }, 5, NULL);
    CX->grad_mode = mode;
    Py_XDECREF(grads);
    if (r && !nest_left_alone(&c->x, t_real(t, c->ctx))) {
        Py_CLEAR(r);
        t_break(t, BRK_nested, "%s changes objects outside of it",
                c->hook ? "the hook of a tensor" : "backward of an autograd.Function");
    }
    return r;
}

/* The gradients are what the nested graph returns; arguments without one are none of its business. */
static bool set_gradients(call *c, PyObject *r)
{
    trace *t = c->t;
    Py_ssize_t n = PyTuple_GET_SIZE(c->args);
    c->in = mem_zalloc(sizeof *c->in * (size_t)MAX(n, 1));
    c->grad = mem_zalloc(sizeof *c->grad * (size_t)MAX(n, 1));
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *a = t_real(t, PyTuple_GET_ITEM(c->args, i)), *g = t_real(t, PyTuple_GET_ITEM(r, i));
        if (!a || !g)
            return false;
        if (g == Py_None || !py_is_tensor(a) || !grad_requires_grad(py_tensor(a)))
            continue;
        tp_tensor *p = py_tensor(g);
        ir_node *m = p->node && p->rec == &t->rec ? nest_lift_tensor(&c->x, p)
                     : !tensor_is_fake(p)         ? ir_add_const(c->x.g, "_tensor_constant0", p)
                                                  : NULL;
        if (!m)
            return t_break(t, BRK_nested,
                           "backward of an autograd.Function returns a tensor of another trace") != NULL;
        c->grad[c->nin] = (tp_val){ .kind = VAL_node, .node = m };
        c->in[c->nin++] = a;
    }
    ir_set_output(c->x.g, c->grad, c->nin);
    IR_EACH_SAFE (m, c->x.g)
        if (ir_switches_grad(m))
            ir_erase(m);
    return true;
}

static tp_val nodes_of(trace *t, PyObject *const *o, int n, arena *a)
{
    ir_node **v = ARENA_ARR(a, ir_node *, MAX(n, 1));
    for (int i = 0; i < n; i++)
        v[i] = t_node_here(t, o[i]);
    return (tp_val){ .kind = VAL_nodes, .n = n, .nodes = v };
}

/* The node, and on the tape the step; the results take both. New: outs with them. */
static PyObject *add_node(call *c)
{
    trace *t = c->t;
    arena a = { 0 };
    tp_err err = { 0 };
    int nkept = (int)c->x.outer.n;
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)c->nout);
    for (int i = 0; i < c->nout; i++)
        ts[i] = tensor_alias(py_tensor(c->out[i])); /* results lie where the outputs do */
    tp_val arg[4] = { { .kind = VAL_graph, .graph = c->x.g },
                      nodes_of(t, c->in, c->nin, &a),
                      nodes_of(t, c->out, c->nout, &a),
                      { .kind = VAL_nodes, .n = nkept, .nodes = c->x.outer.at } };
    ir_node *m = ir_add_opaque(t->rec.g, ir_hop_target(HOP_function), NULL, arg, 4, vTs(ts, c->nout));
    m->loc = t->rec.loc ? t->rec.loc(t->rec.loc_data, t->rec.g) : NULL;
    function_step *s = (function_step *)grad_node_new(c->hook ? &hook_vt : &step_vt, sizeof *s, c->nout,
                                                      c->nin);
    s->n.zeros = true;
    t->tape_hidden = true;
    s->n.saves = nkept > 0;
    s->t = t;
    s->node = m;
    s->nkept = nkept;
    s->kept = mem_zalloc(sizeof *s->kept * (size_t)MAX(nkept, 1));
    for (int i = 0; i < nkept; i++) {
        tp_tensor *k = c->x.tensor.at[i];
        s->kept[i].out = -1;
        for (int o = 0; k && o < c->nout; o++)
            if (py_tensor(c->out[o]) == k)
                s->kept[i].out = o;
        s->kept[i].t = !k ? NULL : s->kept[i].out < 0 ? tensor_ref(k) : alias_of(k);
    }
    for (int i = 0; i < c->nin; i++)
        grad_node_set_edge(&s->n, i, py_tensor(c->in[i]));
    PyObject *r = PyTuple_New(PyTuple_GET_SIZE(c->outs));
    for (Py_ssize_t i = 0, k = 0; r && i < PyTuple_GET_SIZE(c->outs); i++) {
        PyObject *o = t_real(t, PyTuple_GET_ITEM(c->outs, i)), *with = NULL;
        if (k < c->nout && o == c->out[k]) {
            tp_tensor *p = c->hook ? tensor_ref(py_tensor(o))
                                   : grad_function_result(&s->n, (int)k, py_tensor(o), &err);
            if (c->hook)
                grad_set_history(p, &s->n, 0, NULL);
            if (p) {
                p->node = ir_add_getitem(t->rec.g, m, (int)k, vT(tensor_ref(m->val.ts[k])));
                p->rec = &t->rec;
            }
            k++;
            with = p ? py_wrap(p) : py_raise(&err);
        } else
            with = Py_XNewRef(o);
        if (with)
            PyTuple_SET_ITEM(r, i, with);
        else
            Py_CLEAR(r);
    }
    grad_node_unref(&s->n);
    arena_free(&a);
    return r;
}

/* args: class, context, arguments, results, the function that calls backward */
PyObject *t_function(trace *t, PyObject *const *args, Py_ssize_t nargs)
{
    call c = { .t = t };
    PyObject *r = NULL, *res = NULL;
    if (nargs != 5)
        return t_break(t, BRK_arguments, "autograd.Function");
    if (t->hooked)
        return t_break(t, BRK_call_builtin, "autograd.Function where saved_tensors_hooks are active");
    c.cls = args[0];
    c.ctx = args[1];
    c.args = t_real(t, args[2]);
    c.outs = c.args ? t_real(t, args[3]) : NULL;
    c.backward = args[4];
    if (!c.outs || !find_results(&c))
        goto done;
    if (!c.nout) {
        res = Py_NewRef(c.outs);
        goto done;
    }
    nest_begin(&c.x, t, "backward_graph_0");
    r = trace_backward(&c);
    bool ok = r && PyTuple_Check(r) && set_gradients(&c, r);
    nest_leave(&c.x);
    if (ok)
        res = add_node(&c);
done:
    nest_free(&c.x);
    free(c.out);
    free(c.in);
    free(c.grad);
    Py_XDECREF(r);
    return res;
}

/* Somebody may hold a view of this memory, whose history would have to change, too. */
static bool has_views(const trace *t, const tp_tensor *x)
{
    int made = 0;
    IR_EACH (n, t->rec.g) {
        const tp_tensor *v = ir_type(n);
        if (!v || v->storage != x->storage)
            continue;
        if (n->kind == IR_placeholder || n->kind == IR_const)
            return true;
        if (n->kind == IR_call && n->variant != OPV_inplace &&
            strcmp(op_row_of((op_id)n->op)->name, "detach"))
            made++;
    }
    return made > 1;
}
/* mark_dirty(): from here on the tensor that was written to has the history of the result on its memory. */
PyObject *t_function_dirty(trace *t, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *o = nargs == 2 ? t_real(t, args[0]) : NULL, *r = nargs == 2 ? t_real(t, args[1]) : NULL;
    if (!o || !r || !py_is_tensor(o) || !py_is_tensor(r))
        return t_break(t, BRK_arguments, "autograd.Function");
    tp_tensor *x = py_tensor(o), *y = py_tensor(r);
    if (!grad_requires_grad(y))
        return Py_NewRef(o);
    int nr = 0;
    tp_err err = { 0 };
    grad_node *n = grad_grad_fn(y, &nr, NULL);
    if (t_obj(t, o) || x->base || x->rec != &t->rec || !n || (grad_requires_grad(x) && grad_is_leaf(x)))
        return t_break(t, BRK_call_builtin,
                       "autograd.Function with mark_dirty() of an input, a view or a leaf");
    if (has_views(t, x))
        return t_break(t, BRK_call_builtin, "autograd.Function with mark_dirty() of memory that others see");
    if (!grad_set_history(x, n, nr, &err))
        return py_raise(&err);
    x->node = y->node;
    return Py_NewRef(o);
}

/* Nobody will use what the call that is traced now returns. */
static bool result_is_dropped(const trace *t)
{
    const cap_code *cc = t->top->cc;
    const instr *then = &cc->ins[cc->ins[t->top->at].next];
    const char *name = log_opname(then->op);
    if (!strcmp(name, "POP_TOP"))
        return true;
    if (strcmp(name, "STORE_FAST"))
        return false;
    for (int i = 0; i < cc->n; i++)
        if (cc->ins[i].arg == then->arg && !strncmp(log_opname(cc->ins[i].op), "LOAD_FAST", 9))
            return false;
    return true;
}

/* Tensor.register_hook of a tensor made in this graph: gradients pass through the hook where they pass through the tensor. All
 * uses come later, so that they are those of the whole tensor; where its own gradient is asked for, the hook is registered
 * natively instead, since that is the gradient behind the hook. */
PyObject *t_register_hook(trace *t, PyObject *self, PyObject *hook)
{
    tp_tensor *x = py_tensor(self);
    if (t->e->r->no_hooks || !x->node || x->rec != &t->rec || t->rec.g != t->g || x->base || t_obj(t, self) ||
        !CX->grad_mode || t->hooked || !grad_requires_grad(x) || grad_is_leaf(x) || t_has_hook(x) ||
        ((ir_node *)x->node)->nuse || !result_is_dropped(t))
        return t_break(t, BRK_call_builtin, "Tensor.register_hook");
    call c = { .t = t, .hook = true, .cls = hook, .ctx = Py_None, .backward = polyfill("hook_backward") };
    PyObject *r = NULL, *res = NULL, *one = PyTuple_Pack(1, self);
    if (!one || !c.backward)
        goto done;
    c.args = c.outs = one;
    c.out = mem_zalloc(sizeof *c.out);
    c.out[c.nout++] = self;
    nest_begin(&c.x, t, "backward_graph_0");
    r = trace_backward(&c);
    bool ok = r && PyTuple_Check(r) && set_gradients(&c, r);
    nest_leave(&c.x);
    if (ok)
        res = add_node(&c);
    t->took_hook |= res != NULL;
done:
    nest_free(&c.x);
    free(c.out);
    free(c.in);
    free(c.grad);
    Py_XDECREF(r);
    Py_XDECREF(one);
    if (!res)
        return NULL;
    Py_DECREF(res);
    Py_RETURN_NONE;
}

/* False: hooks have to be registered natively, and the trace begins again. */
bool t_hooks_stay_inside(trace *t, tp_tensor *const *x, int n)
{
    bool out = false;
    for (int i = 0; i < n && t->took_hook; i++)
        out |= t_has_hook(x[i]);
    for (size_t i = 0; !x && i < t->outs.n && t->took_hook; i++)
        out |= py_is_tensor(t->outs.at[i]) && t_has_hook(py_tensor(t->outs.at[i]));
    if (out) {
        t->e->r->no_hooks = t->again = true;
        t_break(t, BRK_call_builtin, "Tensor.register_hook: tracing again");
    }
    return !out;
}
