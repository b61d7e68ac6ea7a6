/* trace.c - the captured graph is run once on fake tensors through the tape; what that does is the joint graph. */
#include "aot/trace.h"
#include "ir/hop.h"
#include "base/fault.h"
#include "events/events.h"
#include <stdio.h>

const ir_loc *aot_loc_copy(ir_graph *g, const ir_loc *l)
{
    if (!l)
        return NULL;
    ir_loc *r = ARENA_NEW(&g->mem, ir_loc);
    r->file = l->file ? arena_strdup(&g->mem, l->file) : NULL;
    r->func = l->func ? arena_strdup(&g->mem, l->func) : NULL;
    r->code = l->code ? arena_strdup(&g->mem, l->code) : NULL;
    r->line = l->line;
    r->outer = aot_loc_copy(g, l->outer);
    return r;
}

void aot_unit_free(aot_unit *u)
{
    if (!u)
        return;
    for (int i = 0; i < u->nout; i++)
        tensor_unref(u->out[i].type);
    ir_graph_free(u->joint);
    ir_graph_free(u->fw);
    ir_graph_free(u->bw);
    free(u->out);
    free(u->mut);
    free(u->tangent);
    free(u->grad);
    free(u);
}

bool aot_switches_grad(const ir_node *n)
{
    return n->kind == IR_opaque && n->narg == 1 && n->arg[0].kind == VAL_bool && n->target &&
           strstr(n->target, "set_grad_enabled");
}

static const ir_loc *where(void *data, ir_graph *g)
{
    trace *t = data;
    if (!t->now)
        return NULL;
    if (!t->now_loc)
        t->now_loc = aot_loc_copy(g, t->now->loc);
    return t->now_loc;
}

const ir_loc *trace_where(trace *t) { return where(t, t->g); }

void trace_operand(trace *t, const tp_val *v, tp_val *out, arena *scratch)
{
    *out = *v;
    if (v->kind == VAL_node)
        *out = t->val[v->node->id];
    else if (v->kind == VAL_nodes) {
        tp_tensor **ts = ARENA_ARR(scratch, tp_tensor *, MAX(v->n, 1));
        for (int i = 0; i < v->n; i++)
            ts[i] = v->nodes[i] ? t->val[v->nodes[i]->id].t : NULL;
        *out = vTs(ts, v->n);
    }
}

static tp_val list_of(const tp_val *out, int n)
{
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++)
        ts[i] = out[i].kind == VAL_tensor ? out[i].t : NULL;
    return vTs(ts, n);
}

/* An opaque call goes over as it is; its results are proxies of the recorded types and have no derivative. */
static bool replay_opaque(trace *t, const ir_node *n, arena *scratch, tp_err *err)
{
    tp_val *arg = ARENA_ARR(scratch, tp_val, MAX(n->narg, 1));
    for (int i = 0; i < n->narg; i++) {
        tp_val v;
        trace_operand(t, &n->arg[i], &v, scratch);
        arg[i] = v;
        if (v.kind == VAL_tensor)
            arg[i] = (tp_val){ .kind = VAL_node, .node = fn_node(t->fn, &t->cx, v.t, err) };
        else if (v.kind == VAL_tensors) {
            ir_node **ns = ARENA_ARR(scratch, ir_node *, MAX(v.n, 1));
            for (int k = 0; k < v.n; k++)
                ns[k] = v.ts[k] ? fn_node(t->fn, &t->cx, v.ts[k], err) : NULL;
            arg[i] = (tp_val){ .kind = VAL_nodes, .n = v.n, .nodes = ns };
        }
    }
    tp_val type = n->val;
    if (type.kind == VAL_tensor)
        type.t = tensor_fake_of(type.t);
    else if (type.kind == VAL_tensors) {
        type.ts = mem_zalloc(sizeof *type.ts * (size_t)MAX(n->val.n, 1));
        for (int i = 0; i < n->val.n; i++)
            type.ts[i] = n->val.ts[i] ? tensor_fake_of(n->val.ts[i]) : NULL;
    }
    ir_node *m = ir_add_opaque(t->g, n->target, n->opaque, arg, n->narg, type);
    m->loc = where(t, t->g);
    m->meta = n->meta ? arena_strdup(&t->g->mem, n->meta) : NULL;
    if (m->val.kind == VAL_tensor)
        t->val[n->id] = vT(ir_proxy(&t->rec, m));
    else if (m->val.kind == VAL_tensors) {
        tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(m->val.n, 1));
        for (int i = 0; i < m->val.n; i++)
            if (m->val.ts[i])
                ts[i] = ir_proxy(&t->rec, ir_add_getitem(t->g, m, i, vT(tensor_ref(m->val.ts[i]))));
        t->val[n->id] = vTs(ts, m->val.n);
    }
    return true;
}

/* Faults planted to test the debugging tools (base/fault.h). */
static bool plant(trace *t, const op_row *row, tp_val *out, tp_err *err)
{
    fault_kind f = fault_at("aot", row->name);
    if (f == FAULT_compile_error)
        return err_set(err, ERR_compiler, "planted fault: the autograd stage cannot take '%s'", row->name);
    if (f == FAULT_accuracy && out[0].kind == VAL_tensor) {
        tp_val arg[3] = { out[0], vI(1), vI(1) }, sum = vNone;
        bool ok = grad_call(&t->cx, OP_add_Tensor, OPV_fn, arg, &sum, err);
        tensor_unref(out[0].t);
        out[0] = sum;
        return ok;
    }
    return true;
}

static bool replay_node(trace *t, ir_node *n, arena *scratch, tp_err *err)
{
    switch (n->kind) {
    case IR_const: {
        ir_node *k = ir_add_const(t->g, n->name, n->konst);
        t->val[n->id] = vT(ir_proxy(&t->rec, k));
        return true;
    }
    case IR_getitem: {
        tp_val *of = &t->val[n->arg[0].node->id];
        tp_tensor *x = of->kind == VAL_tensors && n->arg[1].i < of->n ? of->ts[n->arg[1].i] : NULL;
        t->val[n->id] = x ? vT(tensor_ref(x)) : vNone;
        return true;
    }
    case IR_opaque:
        if (aot_switches_grad(n)) { /* obeyed here; the joint graph holds what came of it */
            t->cx.grad_mode = n->arg[0].b && t->g->grad_mode;
            return true;
        }
        return ir_hop(n) ? trace_hop(t, n, scratch, err) : replay_opaque(t, n, scratch, err);
    case IR_call: {
        tp_val arg[OP_MAX_PARAMS], out[OP_MAX_RETURNS] = { 0 };
        const op_row *row = op_row_of((op_id)n->op);
        for (int i = 0; i < n->narg; i++)
            trace_operand(t, &n->arg[i], &arg[i], scratch);
        if (!grad_call(&t->cx, (op_id)n->op, (op_variant)n->variant, arg, out, err))
            return false;
        if (!plant(t, row, out, err))
            return false;
        t->val[n->id] = row->schema.nret > 1 && !row->schema.ret_list ? list_of(out, row->schema.nret)
                                                                      : out[0];
        return true;
    }
    default: return true;
    }
}

static bool replay(trace *t, ir_graph *g, tp_err *err)
{
    arena scratch = { 0 };
    bool ok = true;
    int k = 0;
    IR_EACH(n, g)
    {
        if (n->kind == IR_placeholder) {
            if (t->in[k])
                t->val[n->id] = vT(tensor_ref(t->in[k]));
            else
                t->val[n->id] = n->val; /* a number: symbols stay symbols */
            k++;
            continue;
        }
        t->now = n;
        t->now_loc = NULL;
        if (!replay_node(t, n, &scratch, err)) {
            err_note(err, "in node '%s'", n->name);
            if (n->loc)
                err_place(err, n->loc->file, n->loc->line);
            ok = false;
            break;
        }
    }
    t->now = NULL;
    t->now_loc = NULL;
    arena_free(&scratch);
    return ok;
}

static bool begin(trace *t, tp_comp *c, const ir_graph *g, const bool *needs_grad, bool grad_mode,
                  tp_err *err)
{
    t->c = c;
    t->cx = *(c->cx ? c->cx : op_ctx_cur());
    t->cx.grad_mode = grad_mode;
    t->cx.inference_mode = false;
    t->cx.env = g->env;
    t->cx.hooks = NULL;
    t->g = ir_graph_new(g->name);
    t->g->env = g->env;
    t->g->grad_mode = grad_mode;
    t->rec = (ir_rec){ .g = t->g, .flags = REC_composites, .loc = where, .loc_data = t };
    t->fn = fn_new(&t->rec);
    t->cx.rec = &t->rec;
    t->nval = g->next_id;
    t->val = mem_zalloc(sizeof *t->val * (size_t)MAX(t->nval, 1));
    t->nin = (int)g->inputs.n;
    t->in = mem_zalloc(sizeof *t->in * (size_t)MAX(t->nin, 1));
    for (int i = 0; i < t->nin; i++) {
        const ir_node *p = g->inputs.at[i];
        char name[32];
        snprintf(name, sizeof name, "primals_%d", i + 1);
        if (p->val.kind != VAL_tensor) {
            ir_add_placeholder_val(t->g, name, p->target, p->val);
            continue;
        }
        tp_tensor *fake = tensor_fake_of(p->val.t);
        ir_node *m = ir_add_placeholder(t->g, name, p->target, fake);
        tensor_unref(fake);
        t->in[i] = ir_proxy(&t->rec, m);
        if (needs_grad && needs_grad[i] && dtype_is_float((dtype)t->in[i]->dt) &&
            !ag_set_requires_grad(&t->cx, t->in[i], true, err))
            return false;
    }
    return true;
}

static void end(trace *t)
{
    for (int i = 0; i < t->nval; i++)
        if (t->val[i].kind == VAL_tensor || t->val[i].kind == VAL_tensors)
            val_clear(&t->val[i]);
    for (int i = 0; i < t->nin; i++)
        tensor_unref(t->in[i]);
    free(t->val);
    free(t->in);
    fn_free(t->fn);
}

/* Results of the joint graph being collected. */
typedef struct results {
    VEC(tp_val) list;
} results;

static int add_result(results *r, ir_node *n, bool once)
{
    if (once)
        for (size_t i = 0; i < r->list.n; i++)
            if (r->list.at[i].node == n)
                return (int)i;
    vec_push(&r->list, ((tp_val){ .kind = VAL_node, .node = n }));
    return (int)r->list.n - 1;
}

static int input_of_storage(const trace *t, const tp_tensor *x)
{
    for (int i = 0; i < t->nin; i++)
        if (t->in[i] && t->in[i]->storage == x->storage)
            return i;
    return -1;
}

static bool same_view(const tp_tensor *a, const tp_tensor *b)
{
    return a->dt == b->dt && a->ndim == b->ndim && a->offset == b->offset &&
           !memcmp(a->size, b->size, sizeof(symint) * a->ndim) &&
           !memcmp(a->stride, b->stride, sizeof(symint) * a->ndim);
}

static bool collect_outputs(trace *t, aot_unit *u, const ir_graph *g, results *res, tp_tensor **root,
                            tp_err *err)
{
    const ir_node *o = g->output;
    tp_tensor **seen = mem_zalloc(sizeof *seen * (size_t)MAX(o->narg, 1));
    bool ok = true;
    u->nout = o->narg;
    u->out = mem_zalloc(sizeof *u->out * (size_t)MAX(u->nout, 1));
    for (int i = 0; i < u->nout && ok; i++) {
        aot_out *a = &u->out[i];
        tp_val v = o->arg[i].kind == VAL_node ? t->val[o->arg[i].node->id] : o->arg[i];
        if (v.kind != VAL_tensor) {
            a->kind = AOT_number;
            a->num = v;
            continue;
        }
        tp_tensor *x = v.t;
        int in = input_of_storage(t, x);
        a->requires_grad = ag_requires_grad(x);
        seen[i] = x;
        if (in >= 0 && x->node) {
            a->kind = x == t->in[in] || same_view(x, t->in[in]) ? AOT_input : AOT_view;
            a->index = in;
            a->type = tensor_fake_of(x);
            if (a->kind == AOT_input && x != t->in[in] && ag_requires_grad(t->in[in]) != a->requires_grad)
                a->kind = AOT_view;
            continue;
        }
        ir_node *n = fn_node(t->fn, &t->cx, x, err);
        if (!n) {
            ok = false;
            break;
        }
        for (int k = 0; k < i; k++) /* two items that share memory must go on sharing it */
            if (seen[k] && seen[k]->storage == x->storage && u->out[k].kind == AOT_value &&
                !same_view(seen[k], x) && seen[k]->numel == x->numel && seen[k]->offset == 0 &&
                tensor_is_contiguous(seen[k]) && !fn_written(t->fn, x)) {
                a->kind = AOT_result_view;
                a->index = u->out[k].index;
                a->type = tensor_fake_of(x);
                break;
            }
        if (a->kind == AOT_result_view)
            continue;
        a->kind = AOT_value;
        a->index = add_result(res, n, true);
        if (!root[a->index])
            root[a->index] = x;
    }
    free(seen);
    u->nvalue = (int)res->list.n;
    return ok;
}

static bool collect_writes(trace *t, aot_unit *u, results *res, tp_err *err)
{
    u->mut = mem_zalloc(sizeof *u->mut * (size_t)MAX(t->nin, 1));
    for (int i = 0; i < t->nin; i++) {
        if (!t->in[i] || !fn_written(t->fn, t->in[i]))
            continue;
        if (ag_requires_grad(t->in[i]) && !ag_is_leaf(t->in[i]))
            return err_set(err, ERR_notimpl,
                           "an input that needs a gradient is written in place with the write on the tape; "
                           "this graph runs eagerly instead");
        ir_node *n = fn_node(t->fn, &t->cx, t->in[i], err);
        if (!n)
            return false;
        u->mut[u->nmut++] = i;
        add_result(res, n, false);
    }
    return true;
}

/* Backward of the forward results that need it, recorded into the same graph. */
static bool trace_backward(trace *t, aot_unit *u, results *res, tp_tensor *const *root, const bool *needs,
                           tp_err *err)
{
    tp_tensor **roots = mem_zalloc(sizeof *roots * (size_t)MAX(u->nvalue, 1));
    tp_tensor **tan = mem_zalloc(sizeof *tan * (size_t)MAX(u->nvalue, 1));
    tp_tensor **want = mem_zalloc(sizeof *want * (size_t)MAX(t->nin, 1));
    tp_tensor **got = mem_zalloc(sizeof *got * (size_t)MAX(t->nin, 1));
    int nroot = 0, nwant = 0;
    bool ok = true;

    u->tangent = mem_zalloc(sizeof *u->tangent * (size_t)MAX(u->nvalue, 1));
    u->grad = mem_zalloc(sizeof *u->grad * (size_t)MAX(t->nin, 1));
    for (int i = 0; i < u->nvalue; i++) {
        if (!root[i] || !ag_requires_grad(root[i]))
            continue;
        char name[32];
        snprintf(name, sizeof name, "tangents_%d", nroot + 1);
        tp_tensor *fake = tensor_new_fake((dtype)root[i]->dt, root[i]->ndim, root[i]->size, root[i]->stride,
                                          tensor_device(root[i]));
        ir_node *p = ir_add_placeholder(t->g, name, name, fake);
        tensor_unref(fake);
        tan[nroot] = ir_proxy(&t->rec, p);
        roots[nroot] = root[i];
        u->tangent[nroot++] = i;
    }
    for (int i = 0; i < t->nin; i++)
        if (t->in[i] && needs[i] && ag_requires_grad(t->in[i])) {
            u->grad[nwant] = i;
            want[nwant++] = t->in[i];
        }
    if (nroot && nwant) {
        t->cx.grad_mode = false;
        ag_options o = { .allow_unused = true, .inputs = want, .ninput = nwant, .result = got };
        ok = ag_backward(&t->cx, roots, nroot, tan, &o, err);
    }
    u->ntangent = nroot;
    for (int i = 0; i < nwant && ok; i++) { /* inputs without influence keep no gradient */
        if (!got[i])
            continue;
        ir_node *n = fn_node(t->fn, &t->cx, got[i], err);
        if (!n) {
            ok = false;
            break;
        }
        u->grad[u->ngrad++] = u->grad[i];
        add_result(res, n, false);
    }
    for (int i = 0; i < t->nin; i++)
        tensor_unref(got[i]);
    for (int i = 0; i < nroot; i++)
        tensor_unref(tan[i]);
    free(roots);
    free(tan);
    free(want);
    free(got);
    return ok;
}

static const char *const clean_passes = "noop,cse,dce";

/* ---- nested graphs ---- */
static bool nested_results(trace *t, const ir_graph *g, tp_tensor **out, results *res, tp_err *err)
{
    for (int i = 0; i < g->output->narg; i++) {
        const tp_val *v = &g->output->arg[i];
        tp_tensor *x = v->kind == VAL_node && t->val[v->node->id].kind == VAL_tensor ? t->val[v->node->id].t
                                                                                     : NULL;
        if (!x)
            return err_set(err, ERR_notimpl, "a nested graph returns something that is no tensor");
        out[i] = tensor_ref(x);
        if (input_of_storage(t, x) >= 0) { /* a result of its own, whatever happens to the input's memory */
            tp_val arg[2] = { vT(x), vNone }, copy = vNone;
            if (!grad_call(&t->cx, OP_clone, OPV_fn, arg, &copy, err))
                return false;
            tensor_unref(out[i]);
            out[i] = copy.t;
        }
        ir_node *n = res ? fn_node(t->fn, &t->cx, out[i], err) : NULL;
        if (res && !n)
            return false;
        if (res)
            add_result(res, n, false);
    }
    for (int i = 0; i < t->nin; i++)
        if (t->in[i] && fn_written(t->fn, t->in[i]))
            return err_set(err, ERR_notimpl, "a nested graph writes to its input '%s'",
                           g->inputs.at[i]->name);
    return true;
}

static bool nested_gradients(trace *t, tp_tensor *const *out, int nout, const bool *needs, results *res,
                             tp_err *err)
{
    tp_tensor **root = mem_zalloc(sizeof *root * (size_t)MAX(nout, 1)),
              **tan = mem_zalloc(sizeof *tan * (size_t)MAX(nout, 1)),
              **want = mem_zalloc(sizeof *want * (size_t)MAX(t->nin, 1)),
              **got = mem_zalloc(sizeof *got * (size_t)MAX(t->nin, 1));
    int nroot = 0, nwant = 0, ntan = 0;
    bool ok = true;
    for (int i = 0; i < nout; i++) {
        if (!dtype_is_float((dtype)out[i]->dt))
            continue;
        char name[32];
        snprintf(name, sizeof name, "tangents_%d", ++ntan);
        tp_tensor *fake = tensor_new_fake((dtype)out[i]->dt, out[i]->ndim, out[i]->size, out[i]->stride,
                                          tensor_device(out[i]));
        ir_node *p = ir_add_placeholder(t->g, name, name, fake);
        tensor_unref(fake);
        if (!ag_requires_grad(out[i]))
            continue;
        tan[nroot] = ir_proxy(&t->rec, p);
        root[nroot++] = out[i];
    }
    for (int i = 0; i < t->nin; i++)
        if (needs[i] && t->in[i])
            want[nwant++] = t->in[i];
    t->cx.grad_mode = false;
    ag_options o = { .allow_unused = true, .inputs = want, .ninput = nwant, .result = got };
    if (nroot && nwant)
        ok = ag_backward(&t->cx, root, nroot, tan, &o, err);
    for (int i = 0; ok && i < nwant; i++) {
        if (!got[i]) { /* no influence: zeros, so that every branch returns the same things */
            tp_val arg[6] = { vT(want[i]), vNone, vNone, vNone, vNone, vNone }, zero = vNone;
            if (!(ok = grad_call(&t->cx, OP_zeros_like, OPV_fn, arg, &zero, err)))
                break;
            got[i] = zero.t;
        }
        ir_node *n = fn_node(t->fn, &t->cx, got[i], err);
        ok = n != NULL;
        if (n)
            add_result(res, n, false);
    }
    for (int i = 0; i < nwant; i++)
        tensor_unref(got[i]);
    for (int i = 0; i < nroot; i++)
        tensor_unref(tan[i]);
    free(root);
    free(tan);
    free(want);
    free(got);
    return ok;
}

ir_graph *aot_nested(tp_comp *c, const ir_graph *g, const bool *needs)
{
    trace t = { 0 };
    results res = { { 0 } };
    int nout = g->output ? g->output->narg : 0;
    tp_tensor **out = mem_zalloc(sizeof *out * (size_t)MAX(nout, 1));
    ir_graph *done = NULL;
    ir_renumber((ir_graph *)g);
    if (!g->output || !begin(&t, c, g, needs, needs != NULL, c->err) || !replay(&t, (ir_graph *)g, c->err) ||
        !nested_results(&t, g, out, needs ? NULL : &res, c->err) ||
        (needs && !nested_gradients(&t, out, nout, needs, &res, c->err)))
        goto done;
    ir_set_output(t.g, res.list.at, (int)res.list.n);
    if (!pass_run_named(c, t.g, clean_passes))
        goto done;
    done = t.g;
    t.g = NULL;
done:
    for (int i = 0; i < nout; i++)
        tensor_unref(out[i]);
    free(out);
    end(&t);
    ir_graph_free(t.g);
    vec_free(&res.list);
    return done;
}

static void log_graph(ev_kind text, ev_kind trace, const char *title, const ir_graph *g)
{
    if (!ev_text_on(text) && !ev_trace_on(trace))
        return;
    strbuf b = { 0 };
    ir_print(&b, g, IR_PRINT_log);
    if (ev_text_on(text))
        ev_text(text, NULL, "TRACED GRAPH\n ===== %s %s =====\n%s", title, g->name, strbuf_str(&b));
    if (ev_trace_on(trace))
        ev_json(trace, NULL, "{}", strbuf_str(&b));
    strbuf_free(&b);
}

aot_unit *aot_trace(tp_comp *c, const ir_graph *g, const bool *needs_grad, bool grad_mode, uint32_t flags)
{
    tp_err *err = c->err;
    trace t = { 0 };
    aot_unit *u = mem_zalloc(sizeof *u);
    results res = { { 0 } };
    tp_tensor **root = NULL;
    bool ok = false, any = false;

    ir_renumber((ir_graph *)g);
    u->nin = (int)g->inputs.n;
    for (int i = 0; i < u->nin; i++)
        any |= grad_mode && needs_grad && needs_grad[i];
    root = mem_zalloc(sizeof *root * (size_t)MAX(g->output ? g->output->narg : 1, 1));
    if (!begin(&t, c, g, any ? needs_grad : NULL, any, err) || !replay(&t, (ir_graph *)g, err) ||
        !collect_outputs(&t, u, g, &res, root, err) || !collect_writes(&t, u, &res, err))
        goto done;
    int nfw = (int)res.list.n;
    if (any && !trace_backward(&t, u, &res, root, needs_grad, err))
        goto done;
    ir_set_output(t.g, res.list.at, (int)res.list.n);
    if (!pass_run_named(c, t.g, clean_passes))
        goto done;
    if (flags & AOT_decompose) {
        ir_graph *d = aot_decompose(c, t.g);
        if (!d)
            goto done;
        ir_graph_free(t.g);
        t.g = d;
        if (!pass_run_named(c, t.g, clean_passes))
            goto done;
    }
    u->joint = t.g;
    t.g = NULL;
    if (u->ngrad)
        log_graph(EV_aot_joint_graph, EV_aot_joint_graph, "Joint graph", u->joint);
    if (!aot_partition(c, u, nfw, flags & AOT_min_cut))
        goto done;
    if (u->bw) {
        log_graph(EV_aot_graphs, EV_aot_forward_graph, "Forward graph", u->fw);
        log_graph(EV_aot_graphs, EV_aot_backward_graph, "Backward graph", u->bw);
    } else
        log_graph(EV_aot_graphs, EV_aot_inference_graph, "Forward graph", u->fw);
    ok = true;
done:
    end(&t);
    ir_graph_free(t.g);
    vec_free(&res.list);
    free(root);
    if (!ok) {
        aot_unit_free(u);
        u = NULL;
    }
    return u;
}
