/* record.c - the dispatcher that turns calls on fake tensors into nodes. */
#include "ir/graph.h"

tp_tensor *ir_proxy(ir_rec *r, ir_node *n)
{
    tp_tensor *t = ir_type(n);
    tp_tensor *p = tensor_on(t->storage, (dtype)t->dt, t->ndim, t->size, t->stride, t->offset);
    p->node = n;
    p->rec = r;
    return p;
}

ir_node *ir_node_of(ir_rec *r, tp_tensor *t)
{
    if (t->node && t->rec == r)
        return t->node;
    ir_node *n = r->lift ? r->lift(r->lift_data, r, t) : NULL;
    if (!n && !tensor_is_fake(t))
        n = ir_add_const(r->g, "_tensor_constant0", t);
    return n;
}

static bool mine(const ir_rec *r, const tp_tensor *t) { return t && t->node && t->rec == r; }

/* Record when something here is being traced: an argument with a node, or no tensor at all (creation). */
static bool wants_record(const ir_rec *r, const op_row *row, const tp_val *arg)
{
    bool any_tensor = false;
    for (int i = 0; i < row->schema.nparam; i++) {
        const tp_val *v = &arg[i];
        if (v->kind == VAL_tensor) {
            any_tensor = true;
            if (mine(r, v->t))
                return true;
        } else if (v->kind == VAL_tensors)
            for (int k = 0; k < v->n; k++) {
                any_tensor |= v->ts[k] != NULL;
                if (mine(r, v->ts[k]))
                    return true;
            }
    }
    return !any_tensor || (row->flags & OPF_RAND);
}

/* Tensor values -> node operands. */
static bool to_nodes(ir_rec *r, const op_row *row, const tp_val *arg, tp_val *narg, tp_err *err)
{
    for (int i = 0; i < row->schema.nparam; i++) {
        narg[i] = arg[i];
        if (arg[i].kind == VAL_tensor) {
            ir_node *n = ir_node_of(r, arg[i].t);
            if (!n || n->graph != r->g)
                return err_set(err, ERR_internal, "argument '%s' of %s is a fake tensor from another trace",
                               row->schema.param[i].name, row->full);
            narg[i] = (tp_val){ .kind = VAL_node, .node = n };
        } else if (arg[i].kind == VAL_tensors) {
            ir_node **ns = ARENA_ARR(&r->g->mem, ir_node *, MAX(arg[i].n, 1));
            for (int k = 0; k < arg[i].n; k++)
                if (arg[i].ts[k] && !(ns[k] = ir_node_of(r, arg[i].ts[k])))
                    return err_set(err, ERR_internal,
                                   "argument '%s' of %s is a fake tensor from another trace",
                                   row->schema.param[i].name, row->full);
            narg[i] = (tp_val){ .kind = VAL_nodes, .n = arg[i].n, .nodes = ns };
        }
    }
    return true;
}

static void mark(ir_rec *r, tp_tensor *t, ir_node *n)
{
    t->node = n;
    t->rec = r;
}

static tp_tensor *header(const tp_tensor *t) /* of its own, on the same storage */
{
    return t ? tensor_on(t->storage, (dtype)t->dt, t->ndim, t->size, t->stride, t->offset) : NULL;
}

static tp_val type_list(const op_row *row, const tp_val *out) /* of a call with several results */
{
    bool list = row->schema.ret_list;
    int n = list ? out[0].n : row->schema.nret;
    tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++)
        ts[i] = header(list ? out[0].ts[i] : out[i].kind == VAL_tensor ? out[i].t : NULL);
    return vTs(ts, n);
}

/* The shape rule saw the headers of proxies, which calls in place may change; what it said holds for the nodes where
 * those have the same types. */
static bool same_type(const tp_tensor *t, const tp_val *v)
{
    size_t n = sizeof *t->size * t->ndim;
    return v->kind == VAL_tensor && v->t->dt == t->dt && v->t->ndim == t->ndim &&
           device_eq(tensor_device(v->t), tensor_device(t)) && !memcmp(v->t->size, t->size, n) &&
           !memcmp(v->t->stride, t->stride, n);
}
static bool saw_types(const op_row *row, op_variant v, const tp_val *arg, const tp_val *narg)
{
    bool same = v == OPV_fn && !(row->flags & OPF_MUT);
    for (int i = 0; i < row->schema.nparam && same; i++)
        if (arg[i].kind == VAL_tensor)
            same = same_type(arg[i].t, &narg[i].node->val);
        else if (arg[i].kind == VAL_tensors)
            for (int k = 0; k < arg[i].n && same; k++)
                same = !arg[i].ts[k] || same_type(arg[i].ts[k], &narg[i].nodes[k]->val);
    return same;
}

bool ir_record(op_ctx *cx, ir_rec *r, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err)
{
    const op_row *row = op_row_of(op);
    tp_val narg[OP_MAX_PARAMS];
    int nret = row->schema.nret;

    if (!to_nodes(r, row, arg, narg, err) || !ops_fake(cx, op, v, arg, out, err))
        return false;
    bool many = nret > 1 || row->schema.ret_list;
    tp_val type = many ? type_list(row, out) : vNone;
    if (!many) {
        type = out[0];
        if (type.kind == VAL_tensor) { /* the node keeps its own header: results may be marked again later */
            tp_tensor *t = out[0].t;
            type = vT(header(t));
        }
    }
    ir_node *n = ir_add_call(r->g, op, v, narg, row->schema.nparam, type);
    n->loc = r->loc ? r->loc(r->loc_data, r->g) : NULL;
    n->spell = r->spell;
    n->typed = saw_types(row, v, arg, narg);
    if (!many) {
        if (out[0].kind == VAL_tensor)
            mark(r, out[0].t, n);
        return true;
    }
    int count = row->schema.ret_list ? out[0].n : nret;
    for (int i = 0; i < count; i++) {
        tp_tensor *t = row->schema.ret_list ? out[0].ts[i] : out[i].kind == VAL_tensor ? out[i].t : NULL;
        if (!t)
            continue;
        mark(r, t, ir_add_getitem(r->g, n, i, vT(tensor_ref(n->val.ts[i]))));
    }
    return true;
}

static bool rec_call(bld *b, op_id op, op_variant v, const tp_val *arg, tp_val *out)
{
    return ir_call(b->cx, op, v, arg, out, b->err);
}

bool ir_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err)
{
    ir_rec *r = cx->rec;
    if (TP_LIKELY(!r))
        return ops_call(cx, op, v, arg, out, err);
    const op_row *row = op_row_of(op);
    if (TP_UNLIKELY(ops_is_batched(cx, row, arg)) || !wants_record(r, row, arg))
        return ops_call(cx, op, v, arg, out, err);
    if ((row->flags & OPF_COMP) && (r->flags & REC_composites)) {
        bld b;
        bld_init(&b, cx, err);
        b.call = rec_call;
        bool ok = op_decompose(row, &b, arg, out);
        bld_end(&b);
        return ok;
    }
    return r->call ? r->call(r->call_data, cx, op, v, arg, out, err) : ir_record(cx, r, op, v, arg, out, err);
}
