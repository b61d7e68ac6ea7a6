/* replay.c - a graph runs once more on fake tensors, under a recorder: how the joint graph is traced and how
 * composite rows are replaced. The two differ in what an input is and how a call is made. */
#include "aot/aot.h"
#include "grad/tape.h"
#include "sym/env.h"

/* The node that was replayed when this step of the tape was made. */
static const ir_node *node_of_step(const aot_replay *r, uint64_t step)
{
    size_t lo = 0, hi = r->steps.n; /* the last that came no later */
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (r->steps.at[mid].step <= step)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? r->steps.at[lo - 1].node : NULL;
}

const ir_loc *aot_replay_where(void *data, ir_graph *g)
{
    aot_replay *r = data;
    const ir_node *n = r->now;
    if (!n) { /* backward: a gradient has the place of the operator it belongs to */
        if (grad_step_running == UINT64_MAX)
            return NULL;
        if (r->step != grad_step_running) {
            r->step = grad_step_running;
            r->loc = NULL;
        }
        n = r->loc ? NULL : node_of_step(r, r->step);
        if (!n)
            return r->loc;
    }
    if (!r->loc && r->locs_in != g) {
        map_free(&r->locs);
        r->locs_in = g;
    }
    if (!r->loc)
        r->loc = ir_loc_copy(&g->mem, &r->locs, n->loc);
    return r->loc;
}

static tp_val list_of(const tp_val *out, int n)
{
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++)
        ts[i] = out[i].kind == VAL_tensor ? out[i].t : NULL;
    return vTs(ts, n);
}

tp_val aot_replay_operand(aot_replay *r, const tp_val *v)
{
    if (v->kind == VAL_node)
        return r->val[v->node->id];
    if (v->kind != VAL_nodes)
        return *v;
    tp_tensor **ts = ARENA_ARR(&r->scratch, tp_tensor *, MAX(v->n, 1));
    for (int i = 0; i < v->n; i++)
        ts[i] = v->nodes[i] ? r->val[v->nodes[i]->id].t : NULL;
    return vTs(ts, v->n);
}

/* An opaque call goes over as it is; its results are proxies of the recorded types and have no derivative. */
static bool replay_opaque(aot_replay *r, const ir_node *n, tp_err *err)
{
    tp_val *arg = ARENA_ARR(&r->scratch, tp_val, MAX(n->narg, 1));
    for (int i = 0; i < n->narg; i++) {
        tp_val v = arg[i] = aot_replay_operand(r, &n->arg[i]);
        if (v.kind == VAL_tensor)
            arg[i] = (tp_val){ .kind = VAL_node, .node = r->node(r, v.t, err) };
        else if (v.kind == VAL_tensors) {
            ir_node **ns = ARENA_ARR(&r->scratch, ir_node *, MAX(v.n, 1));
            for (int k = 0; k < v.n; k++)
                ns[k] = v.ts[k] ? r->node(r, v.ts[k], err) : NULL;
            arg[i] = (tp_val){ .kind = VAL_nodes, .n = v.n, .nodes = ns };
        } else if (v.kind == VAL_graph && r->graph && !(arg[i].graph = r->graph(r, v.graph)))
            return false;
    }
    tp_val type = n->val;
    if (type.kind == VAL_tensor)
        type.t = tensor_fake_of(type.t);
    else if (type.kind == VAL_tensors) {
        type.ts = mem_zalloc(sizeof *type.ts * (size_t)MAX(n->val.n, 1));
        for (int i = 0; i < n->val.n; i++)
            type.ts[i] = n->val.ts[i] ? tensor_fake_of(n->val.ts[i]) : NULL;
    }
    ir_node *m = ir_add_opaque(r->rec->g, n->target, n->opaque, arg, n->narg, type);
    m->loc = aot_replay_where(r, r->rec->g);
    m->meta = n->meta ? arena_strdup(&r->rec->g->mem, n->meta) : NULL;
    if (m->val.kind == VAL_tensor)
        r->val[n->id] = vT(ir_proxy(r->rec, m));
    else if (m->val.kind == VAL_tensors) {
        tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(m->val.n, 1));
        for (int i = 0; i < m->val.n; i++)
            if (m->val.ts[i])
                ts[i] = ir_proxy(r->rec, ir_add_getitem(r->rec->g, m, i, vT(tensor_ref(m->val.ts[i]))));
        r->val[n->id] = vTs(ts, m->val.n);
    } else
        r->val[n->id] = m->val;
    return true;
}

static bool replay_call(aot_replay *r, ir_node *n, tp_err *err)
{
    tp_val arg[OP_MAX_PARAMS] = { 0 }, out[OP_MAX_RETURNS] = { 0 }; /* decompositions look past short lists */
    const op_row *row = op_row_of((op_id)n->op);
    symint again[16];
    int nagain = ir_decided(n, again, COUNT(again));
    for (int i = 0; i < n->narg; i++)
        arg[i] = aot_replay_operand(r, &n->arg[i]);
    if (nagain) /* the arguments of later nodes name these symbols */
        sym_env_replay(r->cx->env, again, nagain);
    bool ok = r->call(r, n, arg, out, err);
    if (nagain)
        sym_env_replay(r->cx->env, NULL, 0);
    if (!ok)
        return false;
    r->val[n->id] = row->schema.nret > 1 && !row->schema.ret_list ? list_of(out, row->schema.nret) : out[0];
    return true;
}

static bool replay_node(aot_replay *r, ir_node *n, tp_err *err)
{
    switch (n->kind) {
    case IR_const:
        r->val[n->id] = vT(ir_proxy(r->rec, ir_add_const(r->rec->g, n->name, n->konst)));
        return true;
    case IR_getitem: {
        tp_val *of = &r->val[n->arg[0].node->id];
        tp_tensor *x = of->kind == VAL_tensors && n->arg[1].i < of->n ? of->ts[n->arg[1].i] : NULL;
        r->val[n->id] = x ? vT(tensor_ref(x)) : vNone;
        return true;
    }
    case IR_opaque: {
        int done = r->opaque ? r->opaque(r, n, err) : 0;
        return done ? done > 0 : replay_opaque(r, n, err);
    }
    case IR_call: return replay_call(r, n, err);
    default: return true;
    }
}

bool aot_replay_run(aot_replay *r, ir_graph *g, tp_err *err)
{
    int k = 0;
    ir_renumber(g);
    r->nval = g->next_id;
    r->val = mem_zalloc(sizeof *r->val * (size_t)MAX(r->nval, 1));
    IR_EACH (n, g) {
        r->now = n;
        r->loc = NULL;
        ir_crumb(n);
        vec_push(&r->steps, ((aot_stepped){ grad_steps_made(), n }));
        if (n->kind == IR_placeholder)
            r->val[n->id] = r->input(r, n, k++);
        else if (!replay_node(r, n, err)) {
            err_note(err, "in node '%s'", n->name);
            return ir_err_place(err, n);
        }
    }
    r->now = NULL;
    r->loc = NULL;
    r->step = UINT64_MAX;
    return true;
}

void aot_replay_end(aot_replay *r)
{
    for (int i = 0; i < r->nval; i++)
        if (r->val[i].kind == VAL_tensor || r->val[i].kind == VAL_tensors)
            val_clear(&r->val[i]);
    free(r->val);
    vec_free(&r->steps);
    map_free(&r->locs);
    arena_free(&r->scratch);
}

/* How far apart the elements of each dimension would lie in a dense tensor with t's order, by hint; false: unknown. */
static bool order_of(tp_tensor *t, symint *want)
{
    bool ok = true;
    if (sym_all_const(t->size, t->ndim) && sym_all_const(t->stride, t->ndim)) {
        shape_pointwise_strides(t->ndim, t->size, 1, &t, want);
        return true;
    }
    for (int i = 0; i < t->ndim; i++)
        want[i] = sym_hint(t->stride[i], &ok);
    return ok;
}
static bool lie_alike(const tp_tensor *a, const tp_tensor *b)
{
    for (int i = 0; i < a->ndim; i++)
        if (a->stride[i] != b->stride[i] && !sym_known(SYM_eq, a->stride[i], b->stride[i]) && a->size[i] != 1)
            return false;
    return true;
}

tp_tensor *aot_in_order_of(bld *b, tp_tensor *val, tp_tensor *t)
{
    symint want[TP_MAX_DIMS], have[TP_MAX_DIMS];
    int64_t order[TP_MAX_DIMS], back[TP_MAX_DIMS];
    int nd = t->ndim;
    if (!val || val->ndim != nd || lie_alike(val, t) || !order_of(t, want))
        return val;
    if (sym_all_const(t->size, nd) && sym_all_const(val->stride, nd) && order_of(val, have) &&
        !memcmp(want, have, sizeof(symint) * (size_t)nd) && tensor_is_dense(val))
        return val;
    for (int i = 0; i < nd; i++) { /* outermost first */
        int k = i;
        for (; k > 0 && want[order[k - 1]] < want[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (int i = 0; i < nd; i++)
        back[order[i]] = i;
    val = b_op(b, permute, vT(val), vIs(order, nd));
    val = val ? b_op(b, clone, vT(val), vMF(MF_contiguous)) : NULL;
    return val ? b_op(b, permute, vT(val), vIs(back, nd)) : NULL;
}
