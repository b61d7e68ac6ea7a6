/* run.c - the interpreter: one operator at a time, values released at their last use.
 * ir_prog_new looks at the graph once; running only reads what it made, so programs are re-entrant. */
#include "ir/hop.h"
#include "ops/custom.h"
#include "sym/env.h"
#include <stdio.h>

typedef struct patch { /* argument `arg` of a step comes from a value, a list of values, or a symbolic
                          expression */
    int arg;
    int slot; /* value; first entry of `slots`; first entry of `exprs` */
} patch;

typedef struct step {
    ir_node *n;
    int slot; /* of its result */
    int npatch, ndead;
    const patch *patches;
    const int *dead; /* slots released after the step */
    uint8_t hop;
    bool binds; /* its result decides unbacked symbols */
    ir_prog *sub[2];
} step;

struct ir_prog {
    ir_graph *g;
    arena mem;
    int nstep, nslot, nexpr, nsym;
    step *steps;
    const int *in_slot;  /* per input: its slot, -1 when unused */
    const symint *exprs; /* symbolic arguments, each evaluated at most once a run */
    const int *slots;    /* members of lists, -1 for None */
    const patch *out;    /* of the output's arguments */
    int nout;
    VEC(ir_prog *) subs;
};

/* ---- making ---- */
typedef struct maker {
    ir_prog *p;
    VEC(symint) exprs;
    VEC(int) slots;
    VEC(patch) patches;
    VEC(int) dead;
    int *last; /* slot -> index of the last step that reads it, -1 */
} maker;

static void patch_arg(maker *m, int i, const tp_val *v)
{
    patch q = { i, -1 };
    switch (v->kind) {
    case VAL_node: q.slot = v->node->id; break;
    case VAL_nodes:
        q.slot = (int)m->slots.n;
        for (int k = 0; k < v->n; k++)
            vec_push(&m->slots, v->nodes[k] ? v->nodes[k]->id : -1);
        break;
    case VAL_int:
        if (!sym_is_expr(v->i))
            return;
        q.slot = (int)m->exprs.n;
        vec_push(&m->exprs, v->i);
        break;
    case VAL_ints:
        if (sym_all_const(v->ints, v->n))
            return;
        q.slot = (int)m->exprs.n;
        for (int k = 0; k < v->n; k++)
            vec_push(&m->exprs, v->ints[k]);
        break;
    default: return;
    }
    vec_push(&m->patches, q);
}

static ir_prog *sub_prog(ir_prog *p, const tp_val *v)
{
    ir_prog *s = ir_prog_new(v->graph);
    vec_push(&p->subs, s);
    return s;
}

static void find_hop(ir_prog *p, step *s)
{
    int at[2], n = ir_hop_subs(s->n, at);
    s->hop = (uint8_t)ir_hop(s->n);
    for (int i = 0; i < n; i++)
        s->sub[i] = sub_prog(p, &s->n->arg[at[i]]);
}

typedef struct reader {
    maker *m;
    int at;
} reader;
static void read_by(void *arg, ir_node *n)
{
    reader *r = arg;
    r->m->last[n->id] = r->at;
}
static void dies_here(void *arg, ir_node *n)
{
    reader *r = arg;
    if (r->m->last[n->id] != r->at)
        return;
    r->m->last[n->id] = -2; /* once */
    vec_push(&r->m->dead, n->id);
}

ir_prog *ir_prog_new(ir_graph *g)
{
    ir_prog *p = mem_zalloc(sizeof *p);
    maker m = { .p = p };
    int k = 0;
    VEC(size_t) at = { 0 }; /* where each step's patches and dead slots begin */

    p->g = g;
    ir_renumber(g);
    p->nslot = g->next_id;
    p->steps = ARENA_ARR(&p->mem, step, MAX(g->nnode, 1));
    m.last = mem_alloc(sizeof *m.last * (size_t)MAX(p->nslot, 1));
    memset(m.last, 0xff, sizeof *m.last * (size_t)MAX(p->nslot, 1));
    IR_EACH (n, g) {
        ir_each_operand(n, read_by, &(reader){ &m, n->kind == IR_output ? INT32_MAX : k });
        if (n->kind != IR_placeholder && n->kind != IR_output)
            p->steps[k++] = (step){ .n = n, .slot = n->id, .binds = ir_decides(n) };
    }
    p->nstep = k;
    for (int i = 0; i < k; i++) {
        step *s = &p->steps[i];
        vec_push(&at, m.patches.n);
        vec_push(&at, m.dead.n);
        for (int a = 0; a < s->n->narg; a++)
            patch_arg(&m, a, &s->n->arg[a]);
        ir_each_operand(s->n, dies_here, &(reader){ &m, i });
        if (!s->n->nuse)
            vec_push(&m.dead, s->slot);
        s->npatch = (int)(m.patches.n - at.at[2 * i]);
        s->ndead = (int)(m.dead.n - at.at[2 * i + 1]);
        find_hop(p, s);
    }
    size_t out = m.patches.n;
    for (int a = 0; g->output && a < g->output->narg; a++)
        patch_arg(&m, a, &g->output->arg[a]);
    p->nout = (int)(m.patches.n - out);
    patch *patches = arena_dup(&p->mem, m.patches.at, sizeof(patch) * m.patches.n);
    int *dead = arena_dup(&p->mem, m.dead.at, sizeof(int) * m.dead.n);
    for (int i = 0; i < k; i++) {
        p->steps[i].patches = patches + at.at[2 * i];
        p->steps[i].dead = dead + at.at[2 * i + 1];
    }
    p->out = patches + out;
    p->exprs = arena_dup(&p->mem, m.exprs.at, sizeof(symint) * m.exprs.n);
    p->nexpr = (int)m.exprs.n;
    p->slots = arena_dup(&p->mem, m.slots.at, sizeof(int) * m.slots.n);
    int *in = ARENA_ARR(&p->mem, int, MAX(g->inputs.n, 1));
    for (size_t i = 0; i < g->inputs.n; i++)
        in[i] = g->inputs.at[i]->nuse ? g->inputs.at[i]->id : -1;
    p->in_slot = in;
    p->nsym = g->env ? sym_env_n_symbols(g->env) : 0;
    free(m.last);
    vec_free(&m.exprs);
    vec_free(&m.slots);
    vec_free(&m.patches);
    vec_free(&m.dead);
    vec_free(&at);
    return p;
}

void ir_prog_free(ir_prog *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->subs.n; i++)
        ir_prog_free(p->subs.at[i]);
    vec_free(&p->subs);
    arena_free(&p->mem);
    free(p);
}

/* ---- running ---- */
typedef struct frame {
    const ir_prog *p;
    op_ctx *cx;
    const ir_hook *h;
    tp_err *err;
    tp_val *val; /* by slot */
    sym_bind *bind;
    int nbind;
    arena scratch; /* lists of the current step */
} frame;

int ir_bind_add(sym_bind *list, int n, symint symbol, int64_t value)
{
    for (int i = 0; i < n; i++)
        if (list[i].symbol == sym_expr_of(symbol))
            return n;
    list[n] = (sym_bind){ sym_expr_of(symbol), value };
    return n + 1;
}

static void bind_tensor(const tp_tensor *type, const tp_tensor *t, int pass, ir_bind_fn *fn, void *arg)
{
    if (!type || !t)
        return;
    for (int d = 0; d < type->ndim && d < t->ndim; d++) {
        bool one = t->size[d] == 1;
        if (pass == 0 && sym_is_symbol(type->size[d]))
            fn(arg, type->size[d], t->size[d]);
        if (pass == 1 + one && sym_is_symbol(type->stride[d]))
            fn(arg, type->stride[d], t->stride[d]);
    }
    if (pass == 1 && sym_is_symbol(type->offset))
        fn(arg, type->offset, t->offset);
}

void ir_bind(const tp_val *type, const tp_val *v, int pass, ir_bind_fn *fn, void *arg)
{
    if (type->kind == VAL_int && (v->kind == VAL_int || v->kind == VAL_bool)) {
        if (pass == 0 && sym_is_symbol(type->i))
            fn(arg, type->i, v->kind == VAL_int ? v->i : v->b);
    } else if (type->kind == VAL_tensor && v->kind == VAL_tensor)
        bind_tensor(type->t, v->t, pass, fn, arg);
    else if (type->kind == VAL_tensors && v->kind == VAL_tensors)
        for (int i = 0; i < type->n && i < v->n; i++)
            bind_tensor(type->ts[i], v->ts[i], pass, fn, arg);
}

static void bind_one(void *frame_of, symint symbol, int64_t value)
{
    frame *f = frame_of;
    if (f->nbind < f->p->nsym)
        f->nbind = ir_bind_add(f->bind, f->nbind, symbol, value);
}

static bool concrete(frame *f, symint v, symint *out)
{
    if (!sym_is_expr(v)) {
        *out = v;
        return true;
    }
    if (sym_eval(v, f->bind, f->nbind, out))
        return true;
    strbuf b = { 0 };
    sym_print(&b, v);
    err_set(f->err, ERR_runtime, "the symbolic size %s has no value in these inputs", strbuf_str(&b));
    strbuf_free(&b);
    return false;
}

/* Operands as they are in the graph -> as they are now. */
static bool resolve(frame *f, tp_val *arg, const patch *q, int n)
{
    for (const patch *e = q + n; q < e; q++) {
        tp_val *v = &arg[q->arg];
        if (v->kind == VAL_node)
            *v = f->val[q->slot];
        else if (v->kind == VAL_nodes) {
            tp_tensor **ts = arena_alloc(&f->scratch, sizeof *ts * (size_t)MAX(v->n, 1));
            for (int i = 0; i < v->n; i++) {
                int s = f->p->slots[q->slot + i];
                ts[i] = s >= 0 && f->val[s].kind == VAL_tensor ? f->val[s].t : NULL;
            }
            *v = vTs(ts, v->n);
        } else if (v->kind == VAL_int) {
            if (!concrete(f, v->i, &v->i))
                return false;
        } else {
            symint *iv = arena_alloc(&f->scratch, sizeof *iv * (size_t)MAX(v->n, 1));
            for (int i = 0; i < v->n; i++)
                if (!concrete(f, v->ints[i], &iv[i]))
                    return false;
            v->ints = iv;
        }
    }
    return true;
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
    } else if (v->kind == VAL_ints || v->kind == VAL_floats || v->kind == VAL_complex) {
        void *p = mem_alloc(sizeof(double) * (size_t)MAX(v->n, 1));
        if (v->n)
            memcpy(p, v->ints, sizeof(double) * (size_t)v->n);
        r.ints = p;
    }
    return r;
}

static bool run_call(frame *f, const step *s, tp_val *arg, tp_val *result)
{
    const ir_node *n = s->n;
    tp_val out[OP_MAX_RETURNS] = { 0 };
    const op_schema *sc = &op_row_of((op_id)n->op)->schema;
    op_id op = (op_id)n->op;

    if (!(f->h && f->h->call ? f->h->call : ops_call)(f->cx, op, (op_variant)n->variant, arg, out, f->err))
        return false;
    if (sc->nret > 1 && !sc->ret_list) { /* several results travel as one list */
        tp_tensor **ts = mem_zalloc(sizeof *ts * (size_t)sc->nret);
        for (int i = 0; i < sc->nret; i++)
            ts[i] = out[i].kind == VAL_tensor ? out[i].t : NULL;
        *result = vTs(ts, sc->nret);
    } else
        *result = out[0];
    return true;
}

/* ---- control flow: nested graphs ---- */
typedef struct nest {
    hop_host host;
    frame *f;
    const step *s;
} nest;

static bool call_sub(hop_host *host, int which, const tp_val *in, int nin, tp_val *out, int nout, tp_err *err)
{
    nest *x = (nest *)host;
    ir_hook h = x->f->h ? *x->f->h : (ir_hook){ 0 };
    h.before = NULL; /* they watch the nodes of the graph that was asked for */
    h.after = NULL;
    return ir_prog_run_nested(x->s->sub[which], host->cx, in, nin, out, nout, &h, x->f->bind, x->f->nbind,
                              err);
}

static bool run_hop(frame *f, const step *s, const tp_val *arg, tp_val *result)
{
    nest x = { { f->cx, f->h && f->h->call ? f->h->call : ops_call, call_sub, NULL }, f, s };
    return ir_hop_run(&x.host, s->n, arg, result, f->err);
}

bool ir_switches_grad(const ir_node *n)
{
    return n->kind == IR_opaque && n->narg == 1 && n->arg[0].kind == VAL_bool && n->target &&
           strstr(n->target, "set_grad_enabled");
}

static bool run_opaque(frame *f, const step *s, const tp_val *arg, tp_val *result)
{
    if (ir_switches_grad(s->n)) {
        f->cx->grad_mode = arg[0].b;
        return true;
    }
    if (s->hop == HOP_function && f->h && f->h->link)
        return f->h->link(f->cx, s->n, arg, f->bind, f->nbind, result, f->err);
    if (s->hop != HOP_none)
        return run_hop(f, s, arg, result);
    if (!f->h || !f->h->opaque)
        return ir_run_custom(s->n, arg, result, f->err);
    return f->h->opaque(f->h->data, s->n, arg, result, f->err);
}

static bool run_item(frame *f, const ir_node *n, const tp_val *of, int64_t i, tp_val *result)
{
    if (of->kind != VAL_tensors || i < 0 || i >= of->n)
        return err_set(f->err, ERR_runtime, "item %lld of a value that has none", (long long)i);
    *result = of->ts[i] ? vT(tensor_ref(of->ts[i])) : vNone;
    return true;
}

static bool run_step(frame *f, const step *s)
{
    const ir_node *n = s->n;
    tp_val small[OP_MAX_PARAMS], *arg = small, *result = &f->val[s->slot];

    if (n->kind == IR_const) {
        if (!n->konst)
            return err_set(f->err, ERR_runtime, "the bytes of constant '%s' were not loaded", n->target);
        *result = vT(tensor_ref(n->konst));
        return true;
    }
    if (n->narg > OP_MAX_PARAMS)
        arg = arena_alloc(&f->scratch, sizeof *arg * (size_t)n->narg);
    memcpy(arg, n->arg, sizeof *arg * (size_t)n->narg);
    if (!resolve(f, arg, s->patches, s->npatch))
        return false;
    switch (n->kind) {
    case IR_getitem: return run_item(f, n, &arg[0], arg[1].i, result);
    case IR_call: return run_call(f, s, arg, result);
    default: return run_opaque(f, s, arg, result);
    }
}

/* The arena keeps its first block from step to step. */
static void reset_scratch(frame *f)
{
    if (f->scratch.used > 4096) {
        arena_free(&f->scratch);
        f->scratch.used = 0;
    }
}

static bool run_steps(frame *f)
{
    const ir_hook *h = f->h;
    for (const step *s = f->p->steps, *e = s + f->p->nstep; s < e; s++) {
        ir_node *n = s->n;
        if (h && h->before && !h->before(h->data, n, f->err))
            return false;
        if (!run_step(f, s)) {
            if (n->kind != IR_call ||
                !(op_row_of((op_id)n->op)->flags & OPF_CHECK)) /* the user's own words */
                err_note(f->err, "in node '%s'", n->name);
            return ir_err_place(f->err, n);
        }
        if (h && h->after && !h->after(h->data, n, &f->val[s->slot], f->err))
            return false;
        if (s->binds)
            for (int pass = 0; pass < IR_BIND_PASSES; pass++)
                ir_bind(&n->val, &f->val[s->slot], pass, bind_one, f);
        for (int i = 0; i < s->ndead; i++)
            val_clear(&f->val[s->dead[i]]);
        reset_scratch(f);
    }
    return true;
}

bool ir_prog_run_nested(const ir_prog *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                        const ir_hook *h, const sym_bind *bind, int nbind, tp_err *err)
{
    const ir_graph *g = p->g;
    frame f = { .p = p, .cx = cx, .h = h, .err = err };
    bool ok = false;

    if (nin != (int)g->inputs.n)
        return err_set(err, ERR_type, "the graph takes %d inputs but %d were given", (int)g->inputs.n, nin);
    if (!g->output || nout != g->output->narg)
        return err_set(err, ERR_type, "the graph returns %d values, not %d", g->output ? g->output->narg : 0,
                       nout);
    f.val = mem_zalloc(sizeof *f.val * (size_t)MAX(p->nslot, 1));
    if (p->nsym)
        f.bind = mem_alloc(sizeof *f.bind * (size_t)p->nsym);
    for (int i = 0; i < nbind && f.nbind < p->nsym; i++)
        f.bind[f.nbind++] = bind[i];
    for (int pass = 0; pass < IR_BIND_PASSES && p->nsym; pass++)
        for (int i = 0; i < nin; i++)
            ir_bind(&g->inputs.at[i]->val, &in[i], pass, bind_one, &f);
    for (int i = 0; i < nin; i++)
        if (p->in_slot[i] >= 0)
            f.val[p->in_slot[i]] = own(&in[i]);
    if (!run_steps(&f))
        goto done;
    if (nout)
        memcpy(out, g->output->arg, sizeof *out * (size_t)nout);
    if (!resolve(&f, out, p->out, p->nout)) {
        memset(out, 0, sizeof *out * (size_t)nout);
        goto done;
    }
    for (int i = 0; i < nout; i++)
        out[i] = own(&out[i]);
    ok = true;
done:
    for (int i = 0; i < p->nslot; i++)
        val_clear(&f.val[i]);
    free(f.val);
    free(f.bind);
    arena_free(&f.scratch);
    return ok;
}

bool ir_run_custom(const ir_node *n, const tp_val *arg, tp_val *out, tp_err *err)
{
    char needs[200] = "";
    const char *at = n->meta ? strstr(n->meta, "\"requires\": \"") : NULL, *end;
    if (at && (end = strchr(at += 13, '"')))
        snprintf(needs, sizeof needs, "%.*s", (int)MIN(end - at, 190), at);
    return custom_run(n->target, *needs ? needs : NULL, arg, n->narg, out, err);
}

bool ir_prog_run(const ir_prog *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                 const ir_hook *h, tp_err *err)
{
    return ir_prog_run_nested(p, cx, in, nin, out, nout, h, NULL, 0, err);
}

bool ir_run(op_ctx *cx, ir_graph *g, const tp_val *in, int nin, tp_val *out, int nout, const ir_hook *h,
            tp_err *err)
{
    ir_prog *p = ir_prog_new(g);
    bool ok = ir_prog_run(p, cx, in, nin, out, nout, h, err);
    ir_prog_free(p);
    return ok;
}

/* ---- inputs ---- */
static bool fits(const tp_val *type, const tp_val *v)
{
    if (type->kind == VAL_none)
        return true;
    if (type->kind != VAL_tensor || v->kind != VAL_tensor)
        return type->kind == v->kind;
    const tp_tensor *t = type->t, *x = v->t;
    if (t->dt != x->dt || t->ndim != x->ndim)
        return false;
    for (int d = 0; d < t->ndim; d++)
        if (!sym_is_expr(t->size[d]) && t->size[d] != x->size[d])
            return false;
    return true;
}

bool ir_check_inputs(const ir_graph *g, const tp_val *in, int nin, tp_err *err)
{
    if (nin != (int)g->inputs.n)
        return err_set(err, ERR_type, "the graph takes %d inputs but %d were given", (int)g->inputs.n, nin);
    for (int i = 0; i < nin; i++) {
        const ir_node *n = g->inputs.at[i];
        strbuf a = { 0 }, b = { 0 };
        if (fits(&n->val, &in[i]))
            continue;
        ir_type_print(&a, &n->val);
        ir_type_print(&b, &in[i]);
        err_set(err, ERR_type, "input '%s': expected %s, but got %s", n->name, strbuf_str(&a),
                strbuf_str(&b));
        strbuf_free(&a);
        strbuf_free(&b);
        return false;
    }
    return true;
}
