/* custom.c - custom operators in the autograd stage. What one writes becomes a result that is written back; its
 * derivative is the one that was registered: operators recorded one by one, or an opaque call of its own. */
#include "aot/trace.h"
#include "ops/custom.h"

typedef struct custom_step {
    grad_node n;
    trace *t;
    const op_custom *op;
    const ir_loc *loc;
    const char *meta;
    int narg, nres, nedge, nslot; /* a slot: a place for one gradient; a list has one for each element */
    tp_val *arg;                  /* operands as nodes of the joint graph, owned arrays */
    ir_node **res;                /* result nodes */
    int *edge_arg, *edge_slot;    /* which argument and which slot an edge belongs to */
    bool list_result;
} custom_step;

static const char *step_name(const grad_node *n) { return "CustomOpBackward"; }

static void step_free(grad_node *n)
{
    custom_step *s = (custom_step *)n;
    for (int i = 0; i < s->narg; i++)
        if (s->arg[i].kind == VAL_nodes)
            free(s->arg[i].nodes);
    free(s->arg);
    free(s->res);
    free(s->edge_arg);
    free(s->edge_slot);
}

/* The saved operands as proxies of the values they had then. */
static void proxies(custom_step *s, bld *b, arena *a, tp_val *arg)
{
    for (int i = 0; i < s->narg; i++) {
        arg[i] = s->arg[i];
        if (arg[i].kind == VAL_node)
            arg[i] = vT(bld_keep(b, ir_proxy(&s->t->rec, s->arg[i].node)));
        else if (arg[i].kind == VAL_nodes) {
            tp_tensor **ts = ARENA_ARR(a, tp_tensor *, MAX(arg[i].n, 1));
            for (int k = 0; k < arg[i].n; k++)
                ts[k] = s->arg[i].nodes[k] ? bld_keep(b, ir_proxy(&s->t->rec, s->arg[i].nodes[k])) : NULL;
            arg[i] = vTs(ts, s->arg[i].n);
        }
    }
}

static bool by_operators(custom_step *s, bld *b, tp_tensor *const *dy, tp_tensor **dx, tp_err *err)
{
    arena a = { 0 };
    tp_val *arg = ARENA_ARR(&a, tp_val, MAX(s->narg, 1)), res;
    tp_tensor **rt = ARENA_ARR(&a, tp_tensor *, MAX(s->nres, 1)),
              **g = ARENA_ARR(&a, tp_tensor *, MAX(s->nslot, 1));
    proxies(s, b, &a, arg);
    for (int i = 0; i < s->nres; i++)
        rt[i] = bld_keep(b, ir_proxy(&s->t->rec, s->res[i]));
    res = s->list_result ? vTs(rt, s->nres) : vT(rt[0]);
    bool ok = s->op->vjp(s->op, b->cx, arg, s->narg, &res, dy, s->nres, g, err);
    for (int e = 0; ok && e < s->nedge; e++)
        if (g[s->edge_slot[e]])
            dx[e] = tensor_ref(g[s->edge_slot[e]]);
    for (int i = 0; i < s->nslot; i++)
        tensor_unref(g[i]);
    arena_free(&a);
    return ok;
}

static bool by_call(custom_step *s, bld *b, tp_tensor *const *dy, tp_tensor **dx, tp_err *err)
{
    for (int e = 0; e < s->nedge; e++)
        if (s->arg[s->edge_arg[e]].kind == VAL_nodes)
            return err_set(err, ERR_notimpl, "%s: a derivative written in C gives none for lists of tensors",
                           s->op->name);
    trace *t = s->t;
    arena a = { 0 };
    int n = s->narg + 2 * s->nres, k = 0, ngrad = 0;
    tp_val *arg = ARENA_ARR(&a, tp_val, MAX(n, 1));
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)(s->narg + 1));
    int *at = ARENA_ARR(&a, int, MAX(s->narg, 1));
    bool ok = true;
    for (int i = 0; i < s->narg; i++) {
        arg[k++] = s->arg[i];
        at[i] = -1;
        const tp_tensor *type = s->arg[i].kind == VAL_node ? ir_type(s->arg[i].node) : NULL;
        if (type && dtype_has_grad((dtype)type->dt)) {
            at[i] = ngrad;
            ts[ngrad++] = tensor_new_fake((dtype)type->dt, type->ndim, type->size, NULL, tensor_device(type));
        }
    }
    for (int i = 0; i < s->nres; i++)
        arg[k++] = (tp_val){ .kind = VAL_node, .node = s->res[i] };
    for (int i = 0; ok && i < s->nres; i++) {
        ir_node *m = dy[i] ? fn_node(t->fn, b->cx, dy[i], err) : NULL;
        ok = !dy[i] || m;
        arg[k++] = m ? (tp_val){ .kind = VAL_node, .node = m } : vNone;
    }
    if (ok) {
        strbuf target = { 0 };
        const char *colon = strstr(s->op->name, "::");
        strbuf_addf(&target, "ops.%.*s.%s.backward", (int)(colon - s->op->name), s->op->name, colon + 2);
        ir_node *m = ir_add_opaque(t->g, strbuf_str(&target), NULL, arg, n, vTs(ts, ngrad));
        strbuf_free(&target);
        m->loc = s->loc;
        m->meta = s->meta;
        for (int e = 0; e < s->nedge; e++) {
            int i = at[s->edge_arg[e]];
            if (i >= 0)
                dx[e] = ir_proxy(&t->rec, ir_add_getitem(t->g, m, i, vT(tensor_ref(m->val.ts[i]))));
        }
    } else
        free(ts);
    arena_free(&a);
    return ok;
}

static bool step_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                       tp_err *err)
{
    custom_step *s = (custom_step *)n;
    if (s->op->vjp)
        return by_operators(s, b, dy, dx, err);
    if (s->op->backward)
        return by_call(s, b, dy, dx, err);
    return err_set(err, ERR_runtime,
                   "Trying to backward through %s but no autograd formula was registered. Please use "
                   "register_autograd to "
                   "add one.",
                   s->op->name);
}

static const grad_vt step_vt = { step_name, step_apply, NULL, step_free };

static bool to_nodes(trace *t, const tp_val *v, tp_val *out, tp_err *err)
{
    *out = *v;
    if (v->kind == VAL_tensor) {
        ir_node *m = fn_node(t->fn, &t->cx, v->t, err);
        *out = (tp_val){ .kind = VAL_node, .node = m };
        return m != NULL;
    }
    if (v->kind == VAL_tensors) {
        ir_node **ns = mem_zalloc(sizeof *ns * (size_t)MAX(v->n, 1));
        *out = (tp_val){ .kind = VAL_nodes, .n = v->n, .nodes = ns };
        for (int k = 0; k < v->n; k++)
            if (v->ts[k] && !(ns[k] = fn_node(t->fn, &t->cx, v->ts[k], err)))
                return false;
    }
    return true;
}

static bool write_back(trace *t, tp_tensor *into, tp_tensor *value, tp_err *err)
{
    tp_val arg[3] = { vT(into), vT(value), vB(false) }, out = vNone;
    bool was = t->cx.grad_mode;
    t->cx.grad_mode = false; /* as in eager: the operator writes the values, the tape does not see it */
    bool ok = grad_call(&t->cx, OP_copy_, OPV_fn, arg, &out, err);
    t->cx.grad_mode = was;
    val_clear(&out);
    return ok;
}

/* An argument's slots, and the tensor in one of them or NULL. */
static int width(const tp_val *v) { return v->kind == VAL_tensors ? v->n : 1; }
static tp_tensor *element(const tp_val *v, int k)
{
    return v->kind == VAL_tensors ? v->ts[k] : v->kind == VAL_tensor ? v->t : NULL;
}

bool trace_custom(trace *t, const ir_node *n, tp_err *err)
{
    arena *scratch = &t->r.scratch;
    custom_form form;
    const op_custom *op = custom_find(n->target, &form);
    int nres = n->val.kind == VAL_tensor ? 1 : n->val.kind == VAL_tensors ? n->val.n : 0, nmut = 0, nedge = 0;
    tp_val *arg = ARENA_ARR(scratch, tp_val, MAX(n->narg, 1)),
           *na = mem_zalloc(sizeof *na * (size_t)MAX(n->narg, 1));
    bool functional = form == CUSTOM_call && op->mutated, list = n->val.kind == VAL_tensors || functional,
         ok = true;

    for (int i = 0; ok && i < n->narg; i++) {
        arg[i] = aot_replay_operand(&t->r, &n->arg[i]);
        ok = to_nodes(t, &arg[i], &na[i], err);
        nmut += functional && (op->mutated >> i & 1) && arg[i].kind == VAL_tensor;
        if (form == CUSTOM_call && !functional && t->cx.grad_mode)
            for (int k = 0; k < width(&arg[i]); k++)
                nedge += element(&arg[i], k) && grad_requires_grad(element(&arg[i], k));
    }
    tp_tensor **types = mem_zalloc(sizeof *types * (size_t)(nres + nmut + 1));
    for (int i = 0; i < nres; i++) {
        const tp_tensor *x = n->val.kind == VAL_tensor ? n->val.t : n->val.ts[i];
        types[i] = x ? tensor_fake_of(x) : NULL;
    }
    for (int i = 0, k = nres; functional && i < n->narg; i++)
        if ((op->mutated >> i & 1) && arg[i].kind == VAL_tensor)
            types[k++] = tensor_fake_of(arg[i].t);
    ir_node *m = NULL;
    ir_node **rn = mem_zalloc(sizeof *rn * (size_t)MAX(nres + nmut, 1));
    if (!ok) {
        for (int i = 0; i < nres + nmut; i++)
            tensor_unref(types[i]);
        free(types);
        goto done;
    }
    const char *target = functional ? arena_printf(scratch, "%s.functional", n->target) : n->target;
    tp_val type = list ? vTs(types, nres + nmut) : vT(types[0]);
    if (!list)
        free(types);
    m = ir_add_opaque(t->g, target, NULL, na, n->narg, type);
    m->loc = aot_replay_where(&t->r, t->g);
    m->meta = n->meta ? arena_strdup(&t->g->mem, n->meta) : NULL;
    tp_tensor **out = mem_zalloc(sizeof *out * (size_t)MAX(nres, 1));
    for (int i = 0; i < nres + nmut; i++) {
        if (list && !m->val.ts[i])
            continue;
        rn[i] = list ? ir_add_getitem(t->g, m, i, vT(tensor_ref(m->val.ts[i]))) : m;
        if (i < nres)
            out[i] = ir_proxy(&t->rec, rn[i]);
    }
    for (int i = 0, k = nres; ok && functional && i < n->narg; i++)
        if ((op->mutated >> i & 1) && arg[i].kind == VAL_tensor) {
            tp_tensor *p = ir_proxy(&t->rec, rn[k++]);
            ok = write_back(t, arg[i].t, p, err);
            tensor_unref(p);
        }
    t->r.val[n->id] = vNone;
    if (n->val.kind == VAL_tensors)
        t->r.val[n->id] = vTs(out, nres);
    else {
        if (nres)
            t->r.val[n->id] = vT(out[0]);
        free(out);
    }
    if (!ok || !nedge)
        goto done;
    custom_step *s = (custom_step *)grad_node_new(&step_vt, sizeof *s, nres, nedge);
    s->n.zeros = true;
    s->t = t;
    s->op = op;
    s->loc = m->loc;
    s->meta = m->meta;
    s->narg = n->narg;
    s->nres = nres;
    s->nedge = nedge;
    s->arg = na;
    s->res = rn;
    s->list_result = n->val.kind == VAL_tensors;
    s->edge_arg = mem_zalloc(sizeof *s->edge_arg * (size_t)nedge);
    s->edge_slot = mem_zalloc(sizeof *s->edge_slot * (size_t)nedge);
    na = NULL;
    rn = NULL;
    for (int i = 0, e = 0; i < n->narg; i++)
        for (int k = 0; k < width(&arg[i]); k++, s->nslot++) {
            tp_tensor *x = element(&arg[i], k);
            if (!x || !grad_requires_grad(x))
                continue;
            s->edge_arg[e] = i;
            s->edge_slot[e] = s->nslot;
            grad_node_set_edge(&s->n, e++, x);
        }
    for (int i = 0; ok && i < nres; i++) {
        tp_tensor *x = n->val.kind == VAL_tensor ? t->r.val[n->id].t : t->r.val[n->id].ts[i];
        if (!x || !dtype_has_grad((dtype)x->dt))
            continue;
        grad_node_set_shape(&s->n, i, x);
        ok = grad_set_history(x, &s->n, i, err);
    }
    grad_node_unref(&s->n);
done:
    for (int i = 0; na && i < n->narg; i++)
        if (na[i].kind == VAL_nodes)
            free(na[i].nodes);
    free(na);
    free(rn);
    return ok;
}
