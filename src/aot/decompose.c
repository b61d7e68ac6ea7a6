/* decompose.c - composite rows become simpler ones, down to the core set: the graph is recorded once more, each
 * row that has a decomposition running it instead. */
#include "aot/aot.h"
#include "ir/planted.h"
#include "ops/complex.h"

/* A row is core when it has nothing simpler to offer. */
bool aot_is_core(op_id op)
{
    const op_row *row = op_row_of(op);
    return row->flags & OPF_DEVICE || !strcmp(row->decomp_name, "none");
}

/* The same for a call, which may be on a device. */
static bool stays(op_id op, const tp_val *arg)
{
    const op_row *row = op_row_of(op);
    if (!(row->flags & OPF_COMP) && special_args(row, arg)) /* formulas are those of real numbers */
        return true;
    if (!(row->flags & OPF_DEVICE) || arg[0].kind != VAL_tensor)
        return aot_is_core(op);
    return tensor_device(arg[0].t).kind == DEV_meta || device_ops_of(tensor_device(arg[0].t))->host;
}

typedef struct dec {
    tp_comp *c;
    ir_rec rec;
    op_ctx cx;
    aot_replay r;
    bool keep;               /* the row at hand stays although it has a decomposition */
    bool (*whole)(op_id op); /* rows that stay for now; NULL: none */
} dec;

static const ir_node *marked(const ir_node *n) /* n, or which of its results says what it stands for */
{
    for (const ir_use *u = n->uses; u; u = u->next)
        if (u->user->kind == IR_getitem && u->user->meta)
            return u->user;
    return n;
}

/* A fault planted on the row goes over to what takes its place. */
static void pass_on(dec *d, const tp_val *out, int since, const char *op, const ir_node *from)
{
    int i = from && from->kind == IR_getitem ? (int)from->arg[1].i : 0;
    bool list = out[0].kind == VAL_tensors;
    tp_tensor *x = list ? (i < out[0].n ? out[0].ts[i] : NULL) : out[i].kind == VAL_tensor ? out[i].t : NULL;
    if (x)
        ir_pass_on(ir_node_of(&d->rec, x), since, op, from);
}

static bool dec_call(void *data, op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out,
                     tp_err *err);

static bool bld_rec(bld *b, op_id op, op_variant v, const tp_val *arg, tp_val *out)
{
    return ir_call(b->cx, op, v, arg, out, b->err);
}

static bool dec_call(void *data, op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out,
                     tp_err *err)
{
    dec *d = data;
    const op_row *row = op_row_of(op);
    if (v != OPV_fn || stays(op, arg) || d->keep || (d->whole && d->whole(op))) {
        d->keep = false;
        return ir_record(cx, &d->rec, op, v, arg, out, err);
    }
    bld b;
    bld_init(&b, cx, err);
    b.call = bld_rec;
    tp_val got[OP_MAX_RETURNS] = { 0 };
    int since = d->rec.g->next_id;
    bool ok = op_decompose(row, &b, arg, got);
    bld_end(&b);
    if (!ok && err &&
        err->kind == ERR_notimpl) { /* a case the decomposition does not cover: the row itself runs */
        err_clear(err);
        return ir_record(cx, &d->rec, op, v, arg, out, err);
    }
    if (ok)
        for (int i = 0; i < row->schema.nret; i++)
            out[i] = got[i];
    if (ok && TP_UNLIKELY(fault_state != 0))
        pass_on(d, out, since, row->name, NULL);
    return ok;
}

static tp_val replay_input(aot_replay *r, ir_node *n, int i)
{
    if (n->val.kind == VAL_tensor)
        return vT(ir_proxy(r->rec, ir_add_placeholder(r->rec->g, n->name, n->target, n->val.t)));
    ir_add_placeholder_val(r->rec->g, n->name, n->target, n->val);
    return n->val;
}

/* What takes a row's place gives its results the row's strides: views of them were made for those. */
static bool same_order(dec *d, const ir_node *n, tp_val *out, tp_err *err)
{
    bool list = n->val.kind == VAL_tensors && op_row_of((op_id)n->op)->schema.nret > 1, ok = true;
    int k = n->val.kind == VAL_tensor ? 1 : list ? n->val.n : 0;
    for (int i = 0; i < k && ok; i++) {
        tp_tensor *type = list ? n->val.ts[i] : n->val.t;
        if (!type || out[i].kind != VAL_tensor)
            continue;
        bld b;
        bld_init(&b, &d->cx, err);
        b.call = bld_rec;
        tp_tensor *t = aot_in_order_of(&b, out[i].t, type);
        if (t && t != out[i].t) {
            tensor_ref(t);
            tensor_unref(out[i].t);
            out[i].t = t;
        }
        ok = t != NULL;
        bld_end(&b);
    }
    return ok;
}

static bool replay_call(aot_replay *r, ir_node *n, const tp_val *arg, tp_val *out, tp_err *err)
{
    dec *d = r->data;
    int since = d->rec.g->next_id;
    bool whole = stays((op_id)n->op, arg) || (d->whole && d->whole((op_id)n->op));
    d->keep = !whole && !decide(d->c, DECIDE_decomp, n);
    bool ok = ir_call(&d->cx, (op_id)n->op, (op_variant)n->variant, arg, out, err);
    d->keep = false;
    if (ok && n->variant == OPV_fn && !whole && !(op_row_of((op_id)n->op)->flags & OPF_VIEW))
        ok = same_order(d, n, out, err);
    if (ok && TP_UNLIKELY(fault_state != 0))
        pass_on(d, out, since, op_row_of((op_id)n->op)->name, marked(n));
    return ok;
}

static ir_node *replay_of(aot_replay *r, tp_tensor *x, tp_err *err) { return ir_node_of(r->rec, x); }

static ir_graph *replay_graph(aot_replay *r, ir_graph *g)
{
    const dec *d = r->data;
    return aot_decompose(d->c, g, d->whole);
}

ir_graph *aot_decompose(tp_comp *c, ir_graph *g, bool (*whole)(op_id op))
{
    dec d = { .c = c, .whole = whole };
    d.cx = *(c->cx ? c->cx : op_ctx_cur());
    d.cx.grad_mode = false;
    d.cx.inference_mode = false;
    d.cx.hooks = NULL;
    d.cx.env = g->env;
    ir_graph *n = ir_graph_new(g->name);
    map_reserve(&n->names, (size_t)g->nnode);
    n->env = g->env;
    n->grad_mode = g->grad_mode;
    d.rec = (ir_rec){ .g = n,
                      .flags = REC_composites,
                      .loc = aot_replay_where,
                      .loc_data = &d.r,
                      .call = dec_call,
                      .call_data = &d };
    d.cx.rec = &d.rec;
    d.r = (aot_replay){ .cx = &d.cx,
                        .rec = &d.rec,
                        .input = replay_input,
                        .call = replay_call,
                        .node = replay_of,
                        .graph = replay_graph,
                        .data = &d };
    bool ok = aot_replay_run(&d.r, g, c->err);
    if (ok && g->output) {
        const ir_node *o = g->output;
        tp_val *arg = ARENA_ARR(&n->mem, tp_val, MAX(o->narg, 1));
        for (int i = 0; i < o->narg; i++) {
            arg[i] = o->arg[i].kind == VAL_node ? d.r.val[o->arg[i].node->id] : o->arg[i];
            if (arg[i].kind == VAL_tensor)
                arg[i] = (tp_val){ .kind = VAL_node, .node = ir_node_of(&d.rec, arg[i].t) };
        }
        ir_set_output(n, arg, o->narg);
    }
    if (!ok)
        err_note(c->err, "decomposing");
    aot_replay_end(&d.r);
    if (!ok) {
        ir_graph_free(n);
        n = NULL;
    }
    return n;
}
