/* hop.c - calls with nested graphs in the autograd stage. Forward, the nested graphs are made pure. Backward is
 * a call of the same sort: a cond runs the derivative of the branch that ran, a scan (and map) walks back over
 * its steps, and so does what was a while_loop, whose number of steps only the run knows. Derivatives compute their branch or step anew from its inputs instead of keeping its insides. */
#include "aot/trace.h"
#include "ir/hop.h"
#include "sym/env.h"

typedef struct lists { /* positions of the lists among the arguments, -1: absent */
    int carry, xs, rest;
} lists;

static lists lists_of(hop_kind k)
{
    switch (k) {
    case HOP_cond: return (lists){ -1, -1, 3 };
    case HOP_scan: return (lists){ 1, 2, 3 };
    case HOP_map: return (lists){ -1, 1, 2 };
    default: return (lists){ 2, -1, 3 };
    }
}

typedef struct operands { /* of all lists, in the order in which nested graphs take them */
    int n, ncarry, nxs;
    tp_tensor **t;
    ir_node **node;
    bool *needs; /* a gradient is wanted */
} operands;

/* One such call on the tape. Nodes are values, so what they stand for cannot change later. */
typedef struct hop_step {
    grad_node n;
    trace *t;
    const ir_node *src; /* in the captured graph */
    const ir_loc *loc;
    tp_val pred; /* cond */
    operands o;
    tp_tensor **edge; /* types of the operands that need gradients, borrowed from their nodes */
    ir_node **saved;  /* scan, while_loop: what was carried into each step, stacked */
    int nresult;      /* results of the captured call */
} hop_step;

static bool is_float(const ir_node *n) { return ir_type(n) && dtype_has_grad((dtype)ir_type(n)->dt); }

static const char *step_name(const grad_node *n)
{
    switch (ir_hop(((const hop_step *)n)->src)) {
    case HOP_cond: return "CondBackward";
    case HOP_map: return "MapBackward";
    case HOP_while: return "WhileBackward";
    default: return "ScanBackward";
    }
}

static void step_free(grad_node *n)
{
    hop_step *s = (hop_step *)n;
    free(s->o.node);
    free(s->o.needs);
    free(s->saved);
}

static tp_val node_list(arena *a, ir_node *const *n, int k)
{
    ir_node **copy = ARENA_ARR(a, ir_node *, MAX(k, 1));
    if (k)
        memcpy(copy, n, sizeof *copy * (size_t)k);
    return (tp_val){ .kind = VAL_nodes, .n = k, .nodes = copy };
}

static tp_val graph_val(ir_graph *g) { return (tp_val){ .kind = VAL_graph, .graph = g }; }

/* Gradients get their operand's sizes; their own strides. */
static tp_tensor *result_type(const ir_graph *g, int i) { return ir_type(g->output->arg[i].node); }

static tp_val types_of(const ir_graph *g)
{
    int n = g->output->narg;
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++)
        ts[i] = tensor_fake_of(result_type(g, i));
    return vTs(ts, n);
}

/* The type of `steps` things like t, stacked. */
static tp_tensor *stacked_type(const tp_tensor *t, symint steps)
{
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    size[0] = steps;
    for (int d = 0; d < t->ndim; d++)
        size[d + 1] = t->size[d];
    shape_contiguous_strides(t->ndim + 1, size, stride);
    return tensor_new_fake((dtype)t->dt, t->ndim + 1, size, stride, tensor_device(t));
}

static ir_node *add_hop(trace *t, hop_kind k, const tp_val *arg, int narg, tp_val type, const ir_loc *loc)
{
    ir_node *m = ir_add_opaque(t->g, ir_hop_target(k), NULL, arg, narg, type);
    m->loc = loc;
    return m;
}

static tp_tensor *item(trace *t, ir_node *m, int i)
{
    ir_node *n = ir_add_getitem(t->g, m, i, vT(tensor_ref(m->val.ts[i])));
    return ir_proxy(&t->rec, n);
}

/* ---- backward of cond ---- */
static bool cond_backward(hop_step *s, ir_node *const *tan, int ntan, tp_tensor **dx, tp_err *err)
{
    trace *t = s->t;
    arena a = { 0 };
    ir_graph *bw[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++)
        if (!(bw[i] = aot_nested(t->c, s->src->arg[1 + i].graph, s->o.needs))) {
            ir_graph_free(bw[0]);
            return false;
        }
    ir_graph *pair[2] = { bw[0], bw[1] };
    for (int i = 0; i < bw[0]->output->narg; i++) { /* one type for both: contiguous where they differ */
        const tp_tensor *x = result_type(bw[0], i), *y = result_type(bw[1], i);
        if (!memcmp(x->stride, y->stride, sizeof(symint) * x->ndim))
            continue;
        for (int k = 0; k < 2; k++) {
            tp_val arg[2] = { pair[k]->output->arg[i], vMF(0) };
            ir_node *c = ir_build(pair[k], OP_clone, OPV_fn, arg, 2, err);
            if (!c) {
                ir_graph_free(bw[0]);
                ir_graph_free(bw[1]);
                return false;
            }
            ir_insert_before(pair[k], pair[k]->output, c);
            ir_set_arg(pair[k]->output, i, (tp_val){ .kind = VAL_node, .node = c });
        }
    }
    bw[0]->name = arena_strdup(&bw[0]->mem, "true_backward_0");
    bw[1]->name = arena_strdup(&bw[1]->mem, "false_backward_0");
    ir_node **all = ARENA_ARR(&a, ir_node *, MAX(s->o.n + ntan, 1));
    memcpy(all, s->o.node, sizeof *all * (size_t)s->o.n);
    memcpy(all + s->o.n, tan, sizeof *all * (size_t)ntan);
    tp_val arg[4] = { s->pred, graph_val(bw[0]), graph_val(bw[1]), node_list(&a, all, s->o.n + ntan) };
    ir_node *m = add_hop(t, HOP_cond, arg, 4, types_of(bw[0]), s->loc);
    for (int i = 0; i < m->val.n; i++)
        dx[i] = item(t, m, i);
    arena_free(&a);
    return true;
}

/* ---- backward of scan ---- */
/* Inputs in this order; all of them are inputs already. */
static void reorder(ir_graph *g, ir_node *const *order, int n)
{
    ir_node *body = g->first;
    while (body && body->kind == IR_placeholder)
        body = body->next;
    for (int i = 0; i < n; i++) {
        ir_insert_before(g, body, order[i]);
        g->inputs.at[i] = order[i];
    }
}

/* From the derivative of one step (takes carry, x, rest, tangents; returns gradients of carry, x, rest) to the
 * combine function of the walk back: takes the gradients carried so far, the sums of rest's gradients, then
 * carry, x, tangents of this step's results, then rest. */
static bool backward_step(hop_step *s, ir_graph *g, int ngc, int nacc, int ngy, tp_err *err)
{
    int nc = s->o.ncarry, nx = s->o.nxs, nr = s->o.n - nc - nx, ntan = ngc + ngy, k = 0;
    VEC(ir_node *) order = { 0 };
    VEC(ir_node *) in = { 0 };
    VEC(tp_val) out = { 0 };
    bool ok = false;
    for (size_t i = 0; i < g->inputs.n; i++)
        vec_push(&in, g->inputs.at[i]);
    for (int i = 0; i < ngc; i++)
        vec_push(&order, in.at[s->o.n + i]);
    int first = g->output->narg - nacc, ngx = first - ngc;
    for (int i = 0; i < ngc; i++)
        vec_push(&out, g->output->arg[i]);
    for (int i = nc + nx; i < s->o.n; i++) {
        if (!s->o.needs[i])
            continue;
        tp_tensor *type = tensor_fake_of(ir_type(in.at[i]));
        ir_node *acc = ir_add_placeholder(g, "acc", "acc", type);
        tensor_unref(type);
        tp_val arg[3] = { { .kind = VAL_node, .node = acc }, g->output->arg[first + k++], vI(1) };
        ir_node *sum = ir_build(g, OP_add_Tensor, OPV_fn, arg, 3, err);
        if (!sum)
            goto done;
        ir_insert_before(g, g->output, sum);
        vec_push(&order, acc);
        vec_push(&out, ((tp_val){ .kind = VAL_node, .node = sum }));
    }
    for (int i = 0; i < ngx; i++)
        vec_push(&out, g->output->arg[ngc + i]);
    for (int i = 0; i < nc + nx; i++)
        vec_push(&order, in.at[i]);
    for (int i = 0; i < ngy; i++)
        vec_push(&order, in.at[s->o.n + ngc + i]);
    for (int i = 0; i < nr; i++)
        vec_push(&order, in.at[nc + nx + i]);
    (void)ntan;
    reorder(g, order.at, (int)order.n);
    ir_set_output(g, out.at, (int)out.n);
    ok = true;
done:
    vec_free(&order);
    vec_free(&in);
    vec_free(&out);
    return ok;
}

static ir_node *flipped(hop_step *s, bld *b, ir_node *n, tp_err *err)
{
    symint zero = 0;
    tp_tensor *p = bld_keep(b, ir_proxy(&s->t->rec, n));
    tp_tensor *f = b_op(b, flip, vT(p), vIs(&zero, 1));
    return f ? fn_node(s->t->fn, b->cx, f, err) : NULL;
}

static bool scan_backward(hop_step *s, bld *b, ir_node *const *tan, tp_tensor **dx, tp_err *err)
{
    trace *t = s->t;
    const operands *o = &s->o;
    int nc = o->ncarry, nx = o->nxs, ngc = 0, nacc = 0, ngx = 0, ngy = 0, k = 0;
    bool *needs = mem_zalloc(sizeof *needs * (size_t)MAX(o->n, 1)), ok = false;
    arena a = { 0 };
    VEC(ir_node *) init = { 0 };
    VEC(ir_node *) xs = { 0 };
    const tp_val *sub = &s->src->arg[ir_hop(s->src) == HOP_while ? 1 : 0];

    for (int i = 0; i < o->n; i++) {
        needs[i] = i < nc ? is_float(o->node[i]) : o->needs[i];
        *(i < nc ? &ngc : i < nc + nx ? &ngx : &nacc) += needs[i];
    }
    for (int i = nc; i < s->nresult; i++)
        ngy += dtype_has_grad((dtype)s->src->val.ts[i]->dt);
    ir_graph *g = aot_nested(t->c, sub->graph, needs);
    if (!g || !backward_step(s, g, ngc, nacc, ngy, err))
        goto done;
    g->name = arena_strdup(&g->mem, "combine_backward_0");
    for (int i = 0; i < ngc; i++)
        vec_push(&init, tan[k++]);
    for (int i = nc + nx; i < o->n; i++)
        if (needs[i]) {
            tp_tensor *p = bld_keep(b, ir_proxy(&t->rec, o->node[i]));
            tp_tensor *z = b_op(b, zeros_like, vT(p), vNone, vNone, vNone, vNone, vNone);
            ir_node *zn = z ? fn_node(t->fn, b->cx, z, err) : NULL;
            if (!zn)
                goto done;
            vec_push(&init, zn);
        }
    for (int i = 0; i < nc + nx + ngy; i++) {
        ir_node *n = flipped(s, b, i < nc ? s->saved[i] : i < nc + nx ? o->node[i] : tan[k++], err);
        if (!n)
            goto done;
        vec_push(&xs, n);
    }
    tp_val type = types_of(g);
    for (int i = ngc + nacc; i < type.n; i++) {
        tp_tensor *one = type.ts[i];
        type.ts[i] = stacked_type(one, ir_type(xs.at[0])->size[0]);
        tensor_unref(one);
    }
    tp_val arg[4] = { graph_val(g), node_list(&a, init.at, (int)init.n), node_list(&a, xs.at, (int)xs.n),
                      node_list(&a, o->node + nc + nx, o->n - nc - nx) };
    ir_node *m = add_hop(t, HOP_scan, arg, 4, type, s->loc);
    g = NULL;
    int e = 0, gc = 0, acc = 0, gx = 0;
    for (int i = 0; i < o->n; i++) {
        int at = !needs[i] ? -1 : i < nc ? gc++ : i < nc + nx ? ngc + nacc + gx++ : ngc + acc++;
        if (!o->needs[i])
            continue;
        tp_tensor *d = item(t, m, at);
        if (i >= nc && i < nc + nx) {
            symint zero = 0;
            bld_keep(b, d);
            if (!(d = b_op(b, flip, vT(d), vIs(&zero, 1))))
                goto done;
            d = tensor_ref(d);
        }
        dx[e++] = d;
    }
    ok = true;
done:
    ir_graph_free(g);
    vec_free(&init);
    vec_free(&xs);
    free(needs);
    arena_free(&a);
    return ok;
}

static bool step_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                       tp_err *err)
{
    hop_step *s = (hop_step *)n;
    int k = s->n.nin;
    ir_node **tan = mem_zalloc(sizeof *tan * (size_t)MAX(k, 1));
    bool ok = true;
    for (int i = 0; ok && i < k; i++)
        ok = (tan[i] = fn_node(s->t->fn, b->cx, dy[i], err)) != NULL;
    if (ok)
        ok = ir_hop(s->src) == HOP_cond ? cond_backward(s, tan, k, dx, err)
                                        : scan_backward(s, b, tan, dx, err);
    free(tan);
    return ok || err->kind != ERR_none ? ok : err_set(err, ERR_internal, "%s failed", step_name(n));
}

static const grad_vt step_vt = { step_name, step_apply, NULL, step_free };

/* ---- forward ---- */
static bool gather(trace *t, const ir_node *n, operands *o, arena *scratch, tp_err *err)
{
    lists l = lists_of(ir_hop(n));
    int at[3] = { l.carry, l.xs, l.rest };
    for (int pass = 0; pass < 2; pass++) {
        int k = 0;
        for (int i = 0; i < 3; i++) {
            tp_val v;
            if (at[i] < 0 || at[i] >= n->narg)
                continue;
            v = aot_replay_operand(&t->r, &n->arg[at[i]]);
            for (int q = 0; v.kind == VAL_tensors && q < v.n; q++, k++) {
                if (!pass)
                    continue;
                if (!v.ts[q])
                    return err_set(err, ERR_notimpl, "'%s' is given something that is no tensor", n->name);
                o->t[k] = v.ts[q];
                if (!(o->node[k] = fn_node(t->fn, &t->cx, v.ts[q], err)))
                    return false;
                o->needs[k] = t->cx.grad_mode && grad_requires_grad(v.ts[q]);
            }
            if (i == 0)
                o->ncarry = v.kind == VAL_tensors ? v.n : 0;
            if (i == 1)
                o->nxs = v.kind == VAL_tensors ? v.n : 0;
        }
        if (!pass) {
            o->n = k;
            o->t = ARENA_ARR(scratch, tp_tensor *, MAX(k, 1));
            o->node = mem_zalloc(sizeof *o->node * (size_t)MAX(k, 1));
            o->needs = mem_zalloc(sizeof *o->needs * (size_t)MAX(k, 1));
        }
    }
    return true;
}

/* A scan or loop that will be walked back also returns what was carried into each step. */
static bool keep_carries(ir_graph *g, const operands *o, symint steps, tp_val *type, tp_err *err)
{
    int n = g->output->narg, nc = o->ncarry;
    tp_val *out = mem_zalloc(sizeof *out * (size_t)(n + nc));
    memcpy(out, g->output->arg, sizeof *out * (size_t)n);
    type->ts = mem_realloc(type->ts, sizeof *type->ts * (size_t)MAX(n + nc, 1));
    bool ok = true;
    for (int i = 0; ok && i < nc; i++) {
        tp_val arg[2] = { { .kind = VAL_node, .node = g->inputs.at[i] }, vNone };
        ir_node *c = ir_build(g, OP_clone, OPV_fn, arg, 2, err);
        ok = c != NULL;
        if (!ok)
            break;
        ir_insert_before(g, g->output, c);
        out[n + i] = (tp_val){ .kind = VAL_node, .node = c };
        type->ts[type->n++] = stacked_type(ir_type(c), steps);
    }
    if (ok)
        ir_set_output(g, out, n + nc);
    free(out);
    return ok;
}

bool trace_hop(trace *t, const ir_node *n, tp_err *err)
{
    arena *scratch = &t->r.scratch;
    hop_kind kind = ir_hop(n);
    operands o = { 0 };
    tp_val *arg = ARENA_ARR(scratch, tp_val, n->narg), type = n->val;
    int at[2], nsub = ir_hop_subs(n, at), first = 0, nfloat = 0;
    bool any = false, ok = false;

    if (n->val.kind != VAL_tensors)
        return err_set(err, ERR_notimpl, "'%s' has results of unknown type", n->name);
    if (!gather(t, n, &o, scratch, err))
        goto done;
    for (int i = 0; i < o.n; i++)
        any |= o.needs[i];
    for (int i = 0; i < n->val.n; i++)
        nfloat += n->val.ts[i] && dtype_has_grad((dtype)n->val.ts[i]->dt);
    any = any && nfloat;
    if (any && kind == HOP_while && !t->g->env) {
        err_set(err, ERR_notimpl, "while_loop has a derivative only in graphs that may hold symbolic sizes");
        goto done;
    }
    symint steps = !any                ? 0
                   : kind == HOP_while ? sym_env_unbacked_size(t->g->env, SYM_OO)
                   : kind == HOP_scan  ? ir_type(o.node[o.ncarry])->size[0]
                                       : 0;
    int body = kind == HOP_while ? 1 : 0;
    type.ts = mem_zalloc(sizeof *type.ts * (size_t)MAX(n->val.n, 1));
    for (int i = 0; i < n->val.n; i++)
        type.ts[i] = n->val.ts[i] ? tensor_fake_of(n->val.ts[i]) : NULL;
    for (int i = 0; i < n->narg; i++) {
        arg[i] = n->arg[i];
        if (arg[i].kind == VAL_node) {
            tp_val v = aot_replay_operand(&t->r, &n->arg[i]);
            ir_node *p = v.kind == VAL_tensor ? fn_node(t->fn, &t->cx, v.t, err) : NULL;
            arg[i] = p ? (tp_val){ .kind = VAL_node, .node = p } : v;
        } else if (arg[i].kind == VAL_nodes) {
            arg[i] = node_list(scratch, o.node + first, n->arg[i].n);
            first += n->arg[i].n;
        }
    }
    for (int i = 0; i < nsub; i++) {
        ir_graph *g = aot_nested(t->c, n->arg[at[i]].graph, NULL);
        if (!g)
            goto done;
        g->name = arena_strdup(&g->mem, n->arg[at[i]].graph->name);
        arg[at[i]].graph = g;
        if (any && i == body && (kind == HOP_scan || kind == HOP_while) &&
            !keep_carries(g, &o, steps, &type, err))
            goto done;
    }
    ir_node *m = add_hop(t, kind, arg, n->narg, type, aot_replay_where(&t->r, t->g));
    type.ts = NULL; /* the node's */
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(n->val.n, 1));
    for (int i = 0; i < n->val.n; i++)
        ts[i] = item(t, m, i);
    t->r.val[n->id] = vTs(ts, n->val.n);
    if (!any) {
        ok = true;
        goto done;
    }
    int nedge = 0;
    for (int i = 0; i < o.n; i++)
        nedge += o.needs[i];
    hop_step *s = (hop_step *)grad_node_new(&step_vt, sizeof *s, nfloat, nedge);
    s->n.zeros = true;
    s->t = t;
    s->src = n;
    s->loc = m->loc;
    s->pred = arg[0];
    s->o = o;
    s->nresult = n->val.n;
    s->saved = mem_zalloc(sizeof *s->saved * (size_t)MAX(o.ncarry, 1));
    for (int i = 0; (kind == HOP_scan || kind == HOP_while) && i < o.ncarry; i++)
        s->saved[i] = ir_add_getitem(t->g, m, n->val.n + i, vT(tensor_ref(m->val.ts[n->val.n + i])));
    for (int i = 0, e = 0; i < o.n; i++)
        if (o.needs[i])
            grad_node_set_edge(&s->n, e++, o.t[i]);
    o.node = NULL; /* the step's */
    o.needs = NULL;
    ok = true;
    for (int i = 0, r = 0; ok && i < n->val.n; i++)
        if (dtype_has_grad((dtype)ts[i]->dt)) {
            grad_node_set_shape(&s->n, r, ts[i]);
            ok = grad_set_history(ts[i], &s->n, r++, err);
        }
    grad_node_unref(&s->n);
done:
    if (type.ts && type.ts != n->val.ts)
        val_clear(&type);
    free(o.node);
    free(o.needs);
    return ok;
}
