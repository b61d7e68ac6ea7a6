/* decompose.c - composite rows become simpler ones, down to the core set: the graph is recorded once more, each
 * row that has a decomposition running it instead. */
#include "aot/aot.h"

/* A row is core when it has nothing simpler to offer. */
bool aot_is_core(op_id op) { return !strcmp(op_row_of(op)->decomp_name, "none"); }

typedef struct dec {
    tp_comp *c;
    ir_rec rec;
    op_ctx cx;
    const ir_node *now;
    const ir_loc *loc;
    bool keep; /* the row at hand stays although it has a decomposition */
} dec;

static const ir_loc *where(void *data, ir_graph *g)
{
    dec *d = data;
    if (!d->loc && d->now)
        d->loc = aot_loc_copy(g, d->now->loc);
    return d->loc;
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
    if (v != OPV_fn || aot_is_core(op) || d->keep) {
        d->keep = false;
        return ir_record(cx, &d->rec, op, v, arg, out, err);
    }
    bld b;
    bld_init(&b, cx, err);
    b.call = bld_rec;
    tp_val got[OP_MAX_RETURNS] = { 0 };
    bool ok = row->decomp(&b, arg, got) && !b.failed;
    bld_end(&b);
    if (!ok && err &&
        err->kind == ERR_notimpl) { /* a case the decomposition does not cover: the row itself runs */
        err_clear(err);
        return ir_record(cx, &d->rec, op, v, arg, out, err);
    }
    if (ok)
        for (int i = 0; i < row->schema.nret; i++)
            out[i] = got[i];
    return ok;
}

ir_graph *aot_decompose(tp_comp *c, ir_graph *g)
{
    dec d = { .c = c };
    bool ok = false;
    tp_err *err = c->err;
    arena scratch = { 0 };
    d.cx = *(c->cx ? c->cx : op_ctx_cur());
    d.cx.grad_mode = false;
    d.cx.inference_mode = false;
    d.cx.hooks = NULL;
    d.cx.env = g->env;
    ir_graph *n = ir_graph_new(g->name);
    n->env = g->env;
    n->grad_mode = g->grad_mode;
    d.rec = (ir_rec){
        .g = n, .flags = REC_composites, .loc = where, .loc_data = &d, .call = dec_call, .call_data = &d
    };
    d.cx.rec = &d.rec;
    ir_renumber(g);
    tp_val *val = mem_zalloc(sizeof *val * (size_t)MAX(g->next_id, 1));

    IR_EACH(s, g)
    {
        d.now = s;
        d.loc = NULL;
        tp_val *arg = ARENA_ARR(&scratch, tp_val, MAX(s->narg, 1));
        for (int i = 0; i < s->narg; i++) {
            arg[i] = s->arg[i];
            if (arg[i].kind == VAL_node)
                arg[i] = val[arg[i].node->id];
            else if (arg[i].kind == VAL_nodes) {
                tp_tensor **ts = ARENA_ARR(&scratch, tp_tensor *, MAX(arg[i].n, 1));
                for (int k = 0; k < arg[i].n; k++)
                    ts[k] = s->arg[i].nodes[k] ? val[s->arg[i].nodes[k]->id].t : NULL;
                arg[i] = vTs(ts, s->arg[i].n);
            }
        }
        switch (s->kind) {
        case IR_placeholder:
            if (s->val.kind == VAL_tensor) {
                ir_node *p = ir_add_placeholder(n, s->name, s->target, s->val.t);
                val[s->id] = vT(ir_proxy(&d.rec, p));
            } else {
                ir_add_placeholder_val(n, s->name, s->target, s->val);
                val[s->id] = s->val;
            }
            break;
        case IR_const: val[s->id] = vT(ir_proxy(&d.rec, ir_add_const(n, s->name, s->konst))); break;
        case IR_getitem: {
            tp_val *of = &val[s->arg[0].node->id];
            tp_tensor *x = of->kind == VAL_tensors && s->arg[1].i < of->n ? of->ts[s->arg[1].i] : NULL;
            val[s->id] = x ? vT(tensor_ref(x)) : vNone;
            break;
        }
        case IR_call: {
            tp_val out[OP_MAX_RETURNS] = { 0 };
            const op_row *row = op_row_of((op_id)s->op);
            d.keep = !aot_is_core((op_id)s->op) && !decide(c, DECIDE_decomp, s);
            if (!ir_call(&d.cx, (op_id)s->op, (op_variant)s->variant, arg, out, err)) {
                err_note(err, "decomposing '%s'", s->name);
                goto done;
            }
            d.keep = false;
            if (row->schema.nret > 1 && !row->schema.ret_list) {
                tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)row->schema.nret);
                for (int i = 0; i < row->schema.nret; i++)
                    ts[i] = out[i].kind == VAL_tensor ? out[i].t : NULL;
                val[s->id] = vTs(ts, row->schema.nret);
            } else
                val[s->id] = out[0];
            break;
        }
        case IR_opaque: {
            tp_val *na = ARENA_ARR(&scratch, tp_val, MAX(s->narg, 1));
            for (int i = 0; i < s->narg; i++) {
                na[i] = arg[i];
                if (arg[i].kind == VAL_tensor)
                    na[i] = (tp_val){ .kind = VAL_node, .node = arg[i].t->node };
                else if (arg[i].kind == VAL_tensors) {
                    ir_node **ns = ARENA_ARR(&scratch, ir_node *, MAX(arg[i].n, 1));
                    for (int k = 0; k < arg[i].n; k++)
                        ns[k] = arg[i].ts[k] ? arg[i].ts[k]->node : NULL;
                    na[i] = (tp_val){ .kind = VAL_nodes, .n = arg[i].n, .nodes = ns };
                } else if (arg[i].kind == VAL_graph && !(na[i].graph = aot_decompose(c, arg[i].graph)))
                    goto done;
            }
            tp_val type = s->val;
            if (type.kind == VAL_tensor)
                tensor_ref(type.t);
            else if (type.kind == VAL_tensors) {
                type.ts = mem_zalloc(sizeof *type.ts * (size_t)MAX(s->val.n, 1));
                for (int i = 0; i < s->val.n; i++)
                    type.ts[i] = s->val.ts[i] ? tensor_ref(s->val.ts[i]) : NULL;
            }
            ir_node *m = ir_add_opaque(n, s->target, s->opaque, na, s->narg, type);
            m->loc = where(&d, n);
            m->meta = s->meta ? arena_strdup(&n->mem, s->meta) : NULL;
            if (m->val.kind == VAL_tensor)
                val[s->id] = vT(ir_proxy(&d.rec, m));
            else if (m->val.kind == VAL_tensors) {
                tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)MAX(m->val.n, 1));
                for (int i = 0; i < m->val.n; i++)
                    if (m->val.ts[i])
                        ts[i] = ir_proxy(&d.rec, ir_add_getitem(n, m, i, vT(tensor_ref(m->val.ts[i]))));
                val[s->id] = vTs(ts, m->val.n);
            }
            break;
        }
        case IR_output: {
            for (int i = 0; i < s->narg; i++)
                if (arg[i].kind == VAL_tensor)
                    arg[i] = (tp_val){ .kind = VAL_node, .node = ir_node_of(&d.rec, arg[i].t) };
            ir_set_output(n, arg, s->narg);
            break;
        }
        }
    }
    ok = true;
done:
    for (int i = 0; i < g->next_id; i++)
        if (val[i].kind == VAL_tensor || val[i].kind == VAL_tensors)
            val_clear(&val[i]);
    free(val);
    arena_free(&scratch);
    if (!ok) {
        ir_graph_free(n);
        n = NULL;
    }
    return n;
}
