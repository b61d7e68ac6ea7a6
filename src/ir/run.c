/* run.c - the interpreter: one operator at a time, values freed at their last use. */
#include "ir/graph.h"

typedef struct frame {
    tp_val *val; /* by node id */
    int *left;   /* uses not yet consumed */
    sym_bind *bind;
    int nbind;
    arena scratch;
} frame;

/* Learn symbol values from the inputs: a plain symbol as a size binds to the real size there. */
static void bind_one(frame *f, symint sym, int64_t v)
{
    if (!sym_is_symbol(sym))
        return;
    for (int i = 0; i < f->nbind; i++)
        if (f->bind[i].symbol == sym_expr_of(sym))
            return;
    f->bind = mem_realloc(f->bind, sizeof *f->bind * (size_t)(f->nbind + 1));
    f->bind[f->nbind++] = (sym_bind){ sym_expr_of(sym), v };
}

static void bind_input(frame *f, const ir_node *p, const tp_val *v)
{
    if (p->val.kind == VAL_int && v->kind == VAL_int)
        bind_one(f, p->val.i, v->i);
    const tp_tensor *t = ir_type(p);
    if (!t || v->kind != VAL_tensor)
        return;
    for (int d = 0; d < t->ndim && d < v->t->ndim; d++) {
        bind_one(f, t->size[d], v->t->size[d]);
        bind_one(f, t->stride[d], v->t->stride[d]);
    }
    bind_one(f, t->offset, v->t->offset);
}

static bool concrete(frame *f, symint v, symint *out, tp_err *err)
{
    if (!sym_is_expr(v)) {
        *out = v;
        return true;
    }
    if (sym_eval(v, f->bind, f->nbind, out))
        return true;
    strbuf b = { 0 };
    sym_print(&b, v);
    err_set(err, ERR_runtime, "the symbolic size %s has no value in these inputs", strbuf_str(&b));
    strbuf_free(&b);
    return false;
}

/* Graph operand -> call argument; nodes become their values, symbols their numbers. */
static bool resolve(frame *f, const tp_val *v, tp_val *out, tp_err *err)
{
    *out = *v;
    switch (v->kind) {
    case VAL_node: *out = f->val[v->node->id]; return true;
    case VAL_nodes: {
        tp_tensor **ts = ARENA_ARR(&f->scratch, tp_tensor *, MAX(v->n, 1));
        for (int i = 0; i < v->n; i++)
            ts[i] = v->nodes[i] ? f->val[v->nodes[i]->id].t : NULL;
        *out = vTs(ts, v->n);
        return true;
    }
    case VAL_int: return concrete(f, v->i, &out->i, err);
    case VAL_ints:
        if (!sym_all_const(v->ints, v->n)) {
            symint *iv = ARENA_ARR(&f->scratch, symint, v->n);
            for (int i = 0; i < v->n; i++)
                if (!concrete(f, v->ints[i], &iv[i], err))
                    return false;
            out->ints = iv;
        }
        return true;
    default: return true;
    }
}

static void consumed(void *arg, ir_node *n)
{
    frame *f = arg;
    if (--f->left[n->id] == 0)
        val_clear(&f->val[n->id]);
}

static tp_val own(const tp_val *v) /* a borrowed value becomes an owned one */
{
    tp_val r = *v;
    if (v->kind == VAL_tensor)
        tensor_ref(v->t);
    else if (v->kind == VAL_tensors) {
        r.ts = mem_alloc(sizeof *r.ts * (size_t)MAX(v->n, 1));
        for (int i = 0; i < v->n; i++)
            r.ts[i] = v->ts[i] ? tensor_ref(v->ts[i]) : NULL;
    }
    return r;
}

static bool run_call(op_ctx *cx, frame *f, ir_node *n, const ir_hook *h, tp_err *err)
{
    tp_val arg[OP_MAX_PARAMS], out[OP_MAX_RETURNS] = { 0 };
    const op_row *row = op_row_of((op_id)n->op);

    for (int i = 0; i < n->narg; i++)
        if (!resolve(f, &n->arg[i], &arg[i], err))
            return false;
    if (!(h && h->call ? h->call : ops_call)(cx, (op_id)n->op, (op_variant)n->variant, arg, out, err))
        return false;
    if (row->schema.nret > 1 && !row->schema.ret_list) { /* several results travel as one list */
        tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)row->schema.nret);
        for (int i = 0; i < row->schema.nret; i++)
            ts[i] = out[i].kind == VAL_tensor ? out[i].t : NULL;
        f->val[n->id] = vTs(ts, row->schema.nret);
    } else
        f->val[n->id] = out[0];
    return true;
}

static bool run_node(op_ctx *cx, frame *f, ir_node *n, const ir_hook *h, tp_err *err)
{
    switch (n->kind) {
    case IR_const: f->val[n->id] = vT(tensor_ref(n->konst)); return true;
    case IR_getitem: {
        tp_val *of = &f->val[n->arg[0].node->id];
        if (of->kind != VAL_tensors || n->arg[1].i >= of->n)
            return err_set(err, ERR_runtime, "node '%s': item %lld of a value that has none", n->name,
                           (long long)n->arg[1].i);
        tp_tensor *t = of->ts[n->arg[1].i];
        f->val[n->id] = t ? vT(tensor_ref(t)) : vNone;
        return true;
    }
    case IR_call: return run_call(cx, f, n, h, err);
    case IR_opaque: {
        tp_val *arg = ARENA_ARR(&f->scratch, tp_val, MAX(n->narg, 1));
        for (int i = 0; i < n->narg; i++)
            if (!resolve(f, &n->arg[i], &arg[i], err))
                return false;
        if (!h || !h->opaque)
            return err_set(err, ERR_runtime, "'%s' can only run where it was registered", n->target);
        return h->opaque(h->data, n, arg, &f->val[n->id], err);
    }
    default: return true;
    }
}

bool ir_run(op_ctx *cx, ir_graph *g, const tp_val *in, int nin, tp_val *out, int nout, const ir_hook *h,
            tp_err *err)
{
    frame f = { 0 };
    bool ok = false;
    int done = 0;

    if (nin != (int)g->inputs.n)
        return err_set(err, ERR_type, "the graph takes %d inputs but %d were given", (int)g->inputs.n, nin);
    if (!g->output || nout != g->output->narg)
        return err_set(err, ERR_type, "the graph returns %d values, not %d", g->output ? g->output->narg : 0,
                       nout);
    ir_renumber(g);
    f.val = mem_zalloc(sizeof *f.val * (size_t)MAX(g->next_id, 1));
    f.left = mem_zalloc(sizeof *f.left * (size_t)MAX(g->next_id, 1));
    for (int i = 0; i < nin; i++)
        if (g->env)
            bind_input(&f, g->inputs.at[i], &in[i]);
    IR_EACH(n, g)
    {
        f.left[n->id] = n->nuse;
        if (n->kind == IR_placeholder) {
            if (n->nuse)
                f.val[n->id] = own(&in[done]);
            done++;
        }
    }
    done = 0;
    IR_EACH(n, g)
    {
        if (n->kind == IR_placeholder || n->kind == IR_output)
            continue;
        if (h && h->before && !h->before(h->data, n, err))
            goto done;
        if (!run_node(cx, &f, n, h, err)) {
            err_note(err, "in node '%s'", n->name);
            if (n->loc)
                err_place(err, n->loc->file, n->loc->line);
            goto done;
        }
        if (h && h->after && !h->after(h->data, n, &f.val[n->id], err))
            goto done;
        ir_each_operand(n, consumed, &f);
        if (!n->nuse)
            val_clear(&f.val[n->id]);
    }
    for (; done < nout; done++) {
        tp_val v;
        if (!resolve(&f, &g->output->arg[done], &v, err))
            goto done;
        out[done] = own(&v);
    }
    ok = true;
done:
    if (!ok)
        for (int i = 0; i < done; i++)
            val_clear(&out[i]);
    for (int i = 0; i < g->next_id; i++)
        val_clear(&f.val[i]);
    free(f.val);
    free(f.left);
    free(f.bind);
    arena_free(&f.scratch);
    return ok;
}
