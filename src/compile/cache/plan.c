/* plan.c - plans as bytes. */
#define _GNU_SOURCE
#include "compile/cache/plan.h"
#include "loop/lower.h"
#include "sym/env.h"

/* A field more in one of these must be written and read below. */
_Static_assert(sizeof(loop_slot) == 48, "say here how the disk cache stores the new field of a slot");
_Static_assert(sizeof(loop_step) == 80, "say here how the disk cache stores the new field of a step");
_Static_assert(sizeof(loop_kernel) == 120, "say here how the disk cache stores the new field of a kernel");
_Static_assert(sizeof(loop_plan) ==
                   sizeof(arena) + 120 +
                       sizeof(((loop_plan *)0)->decisions), /* decisions: told once, not kept */
               "say here how the disk cache stores the new field of a plan");

enum { MAX_ITEMS = 1 << 22 };

/* --- code
 * -------------------------------------------------------------------------------------------------------------------- */
static bool put_code(strbuf *b, const target_code *c, tp_err *err)
{
    strbuf bytes = { 0 }, id = { 0 };
    bool ok = c->on->save ? c->on->save(c, &bytes, err)
                          : err_set(err, ERR_notimpl, "kernel '%s' is not machine code", c->name);
    target_id(c->on, &id);
    io_put_bytes(b, c->name, strlen(c->name));
    io_put(b, (int64_t)(c->hash >> 1));
    io_put_bytes(b, strbuf_str(&id), id.n);
    io_put_bytes(b, strbuf_str(&bytes), bytes.n);
    strbuf_free(&bytes);
    strbuf_free(&id);
    return ok;
}

static const target_code *get_code(io_in *r, tp_err *err)
{
    size_t n, nname, nid;
    const char *name = io_get_bytes(r, &nname);
    uint64_t hash = (uint64_t)io_get(r) << 1;
    const char *id = io_get_bytes(r, &nid), *p = io_get_bytes(r, &n);
    const target *t = r->bad ? NULL : target_by_id(id, nid);
    const char *why;
    if (!t || !t->available(t, &why)) {
        err_set(err, ERR_value, "a kernel does not read back");
        return NULL;
    }
    char *called = mem_strndup(name, nname);
    const target_code *c = kernel_load(t, called, hash, p, n, err);
    free(called);
    return c;
}

/* --- plans
 * ------------------------------------------------------------------------------------------------------------------- */
static int64_t at_of(const map *order, const ir_node *n)
{
    return n ? (int64_t)(uintptr_t)map_geti(order, (uintptr_t)n) - 1 : -1;
}

static void put_soft(strbuf *b, const loop_soft *s)
{
    int64_t bits;
    memcpy(&bits, &s->scale, sizeof bits);
    io_put(b, s->kind);
    if (s->kind == ATTEND_any)
        return;
    io_put(b, bits);
    io_put(b, s->second);
    io_put(b, s->top);
    io_put(b, s->part);
    io_put(b, s->probs);
}

static loop_soft get_soft(io_in *r, int64_t nslot)
{
    loop_soft s = { .kind = (uint8_t)io_get_in(r, 0, ATTEND_KINDS) };
    if (s.kind == ATTEND_any)
        return s;
    int64_t bits = io_get(r);
    memcpy(&s.scale, &bits, sizeof bits);
    s.second = io_get_in(r, 0, 2);
    s.top = (int)io_get_in(r, 0, nslot + 1);
    s.part = (int)io_get_in(r, 0, nslot + 1);
    s.probs = (int)io_get_in(r, 0, nslot + 1);
    return s;
}

static void put_kernel(strbuf *b, const loop_kernel *k, const map *order)
{
    io_put_bytes(b, k->name, strlen(k->name));
    io_put(b, k->nbuf);
    for (int i = 0; i < k->nbuf; i++)
        io_put(b, k->buf[i]);
    io_put(b, k->nint);
    for (int i = 0; i < k->nint; i++)
        io_put_sym(b, k->ints[i]);
    io_put_sym(b, k->par);
    io_put_sym(b, k->work);
    io_put(b, (int64_t)k->nodes.n);
    for (size_t i = 0; i < k->nodes.n; i++)
        io_put(b, at_of(order, k->nodes.at[i]));
    io_put(b, k->bytes);
    io_put(b, k->share);
}

bool planio_write(strbuf *b, const run_program *rp, const ir_graph *from, tp_err *err)
{
    const loop_plan *p = program_plan(rp);
    map order = { 0 }, code = { 0 };
    intptr_t n = 0;
    bool ok = true;
    if (!p)
        return err_set(err, ERR_notimpl, "it runs one operator at a time");
    if (!io_put_graph(b, p->g, from, err))
        return false;
    IR_EACH (k, p->g) {
        map_puti(&order, (uintptr_t)k, (void *)++n);
    }
    io_put(b, (int64_t)p->slot.n);
    for (size_t i = 0; i < p->slot.n; i++) {
        const loop_slot *s = &p->slot.at[i];
        io_put(b, s->kind);
        io_put(b, s->output);
        io_put(b, s->index);
        io_put(b, at_of(&order, s->node));
        io_put(b, s->transient);
        io_put(b, s->reuses);
        io_put(b, s->first);
        io_put(b, s->last);
    }
    io_put(b, (int64_t)p->step.n);
    n = 0;
    for (size_t i = 0; ok && i < p->step.n; i++) {
        const loop_step *s = &p->step.at[i];
        io_put(b, s->kind);
        io_put(b, s->product);
        io_put(b, s->epilogue);
        io_put(b, s->joins);
        io_put(b, s->attention);
        io_put(b, s->plain);
        io_put(b, s->form);
        io_put(b, at_of(&order, s->node));
        io_put(b, s->slot);
        io_put(b, s->nslot);
        io_put(b, s->reach);
        put_soft(b, &s->soft);
        io_put(b, s->act);
        io_put(b, s->acted);
        if (s->kind != STEP_kernel)
            continue;
        put_kernel(b, s->kernel, &order);
        const target_code *k = program_kernel(rp, i); /* equal kernels are written once */
        intptr_t had = (intptr_t)map_geti(&code, (uintptr_t)k);
        io_put(b, had);
        if (!had) {
            map_puti(&code, (uintptr_t)k, (void *)++n);
            ok = put_code(b, k, err);
        }
    }
    io_put(b, p->nout);
    for (int i = 0; i < p->nout; i++)
        io_put(b, p->out[i]);
    io_put(b, p->nkernel);
    io_put(b, p->nextern);
    io_put(b, p->nproduct);
    io_put(b, p->nfused);
    map_free(&order);
    map_free(&code);
    return ok;
}

typedef struct reading {
    io_in *r;
    loop_plan *p;
    ir_node **node; /* by place */
    int nnode;
    int64_t nslot;
    VEC(sym_bind) bind; /* symbols of the inputs */
} reading;

static const ir_node *get_node(reading *x, bool none)
{
    int64_t at = io_get_in(x->r, none ? -1 : 0, x->nnode);
    return at < 0 || x->r->bad ? NULL : x->node[at];
}

/* A size of a launch: every symbol in it must be one that the inputs tell. */
static symint get_size(reading *x)
{
    symint v = io_get_sym(x->r, x->p->g->env), is;
    if (sym_is_expr(v) && !sym_eval(v, x->bind.at, (int)x->bind.n, &is))
        x->r->bad = true;
    return v;
}

static void bind_inputs(reading *x)
{
    for (size_t i = 0; i < x->p->g->inputs.n; i++) {
        const ir_node *n = x->p->g->inputs.at[i];
        const tp_tensor *t = ir_type(n);
        if (n->val.kind == VAL_int && sym_is_symbol(n->val.i))
            vec_push(&x->bind, ((sym_bind){ sym_expr_of(n->val.i), 7 }));
        for (int d = 0; t && d < t->ndim; d++) {
            if (sym_is_symbol(t->size[d]))
                vec_push(&x->bind, ((sym_bind){ sym_expr_of(t->size[d]), 7 }));
            if (sym_is_symbol(t->stride[d]))
                vec_push(&x->bind, ((sym_bind){ sym_expr_of(t->stride[d]), 7 }));
        }
    }
}

static loop_kernel *get_kernel(reading *x)
{
    loop_kernel *k = arena_zalloc(&x->p->mem, sizeof *k);
    size_t n;
    const char *s = io_get_bytes(x->r, &n);
    k->name = arena_strndup(&x->p->mem, s, n);
    k->nbuf = (int)io_get_in(x->r, 0, 80 + 1); /* what a launch has room for */
    k->buf = arena_zalloc(&x->p->mem, sizeof *k->buf * (size_t)MAX(k->nbuf, 1));
    for (int i = 0; i < k->nbuf; i++)
        k->buf[i] = (int)io_get_in(x->r, 0, x->nslot);
    k->nint = (int)io_get_in(x->r, 0, 1 << 16);
    k->ints = arena_zalloc(&x->p->mem, sizeof *k->ints * (size_t)MAX(k->nint, 1));
    for (int i = 0; i < k->nint; i++)
        k->ints[i] = get_size(x);
    k->par = get_size(x);
    k->work = get_size(x);
    int64_t nodes = io_get_in(x->r, 0, MAX_ITEMS);
    for (int64_t i = 0; i < nodes && !x->r->bad; i++) {
        const ir_node *m = get_node(x, false);
        if (m)
            vec_push(&k->nodes, m);
    }
    k->bytes = io_get(x->r);
    k->share = (uint8_t)io_get_in(x->r, 0, SHARE_COUNT);
    return k;
}

static bool get_slots(reading *x)
{
    for (int64_t i = 0; i < x->nslot && !x->r->bad; i++) {
        loop_slot s = { .kind = (uint8_t)io_get_in(x->r, 0, SLOT_number + 1) };
        s.output = io_get_in(x->r, 0, 2);
        s.index = (int)io_get_in(x->r, -1, MAX_ITEMS);
        s.node = get_node(x, false);
        s.transient = io_get_in(x->r, 0, 2);
        s.reuses = (int)io_get_in(x->r, 0, x->nslot + 1);
        s.first = (int)io_get_in(x->r, -1, MAX_ITEMS);
        s.last = (int)io_get_in(x->r, -1, MAX_ITEMS);
        if (x->r->bad || !s.node)
            return false;
        bool input = s.kind == SLOT_input || s.kind == SLOT_number;
        if (s.index >= (input ? (int64_t)x->p->g->inputs.n : x->nslot) || (input && s.index < 0))
            return false;
        s.type = ir_type(s.node);
        s.konst = s.node->konst;
        if (((s.kind == SLOT_buffer || s.kind == SLOT_view) && !s.type) ||
            (s.kind == SLOT_const && !s.konst) || (s.kind == SLOT_view && s.node->kind != IR_call))
            return false;
        vec_push(&x->p->slot, s);
        map_puti(&x->p->slot_of, (uintptr_t)s.node, (void *)(uintptr_t)x->p->slot.n);
    }
    for (int64_t i = 0; i < x->nslot && !x->r->bad; i++) { /* memory is somebody's in the end */
        int64_t of = i, left = x->nslot;
        while (x->p->slot.at[of].reuses && left-- > 0)
            of = x->p->slot.at[of].reuses - 1;
        if (left < 0)
            return false;
    }
    return !x->r->bad;
}

/* Do products and kernels that run together stand as a plan has them? */
static bool is_bmm(const loop_step *s)
{
    return s->kind == STEP_extern && s->product && lower_row(s->node)->batched &&
           s->node->arg[0].kind == VAL_node && s->node->arg[1].kind == VAL_node;
}
static bool chains_fit(const loop_plan *p)
{
    bool ok = true;
    for (size_t i = 0; i < p->step.n && ok; i++) {
        const loop_step *s = &p->step.at[i];
        if (s->joins)
            ok = i + 2 < p->step.n && is_bmm(s) && is_bmm(s + 1) && !s[1].joins && s[2].kind == STEP_kernel &&
                 s[2].epilogue;
        if (s->attention)
            ok = ok && (s->attention & ATTENTION_product) && !s->joins && is_bmm(s) && i > 1 &&
                 (s[-1].attention || (s[-1].kind == STEP_kernel && s[-1].epilogue && is_bmm(s - 2)));
    }
    return ok;
}

loop_plan *planio_read(io_in *r, const char *name, const ir_graph *from, const target_code ***made,
                       tp_err *err)
{
    loop_plan *p = mem_zalloc(sizeof *p);
    VEC(const target_code *) code = { 0 };
    bool ok = false;
    reading x = { .r = r, .p = p };
    *made = NULL;
    p->g = io_get_graph(r, name, from, err);
    if (!p->g)
        goto done;
    x.node = arena_alloc(&p->mem, sizeof(ir_node *) * (size_t)p->g->nnode);
    bind_inputs(&x);
    ir_renumber(p->g);
    IR_EACH (n, p->g) {
        x.node[x.nnode++] = n;
    }
    x.nslot = io_get_in(r, 0, MAX_ITEMS);
    if (!get_slots(&x))
        goto done;
    int64_t nstep = io_get_in(r, 0, MAX_ITEMS);
    *made = mem_zalloc(sizeof **made * (size_t)MAX(nstep, 1));
    for (int64_t i = 0; i < nstep && !r->bad; i++) {
        loop_step s = { .kind = (uint8_t)io_get_in(r, 0, STEP_check + 1) };
        s.product = io_get_in(r, 0, 2);
        s.epilogue = io_get_in(r, 0, 2);
        s.joins = io_get_in(r, 0, 2);
        s.attention = (uint8_t)io_get_in(r, 0, ATTENTION_COUNT);
        s.plain = io_get_in(r, 0, 2);
        s.form = (uint8_t)io_get_in(r, 0, MAX(target_host()->caps.product_forms, 1) + 1);
        s.node = get_node(&x, true);
        s.slot = (int)io_get_in(r, 0, MAX(x.nslot, 1));
        s.nslot = (int)io_get_in(r, 0, MAX_ITEMS);
        s.reach = io_get_in(r, 0, (int64_t)INT32_MAX + 2);
        s.soft = get_soft(r, x.nslot);
        s.act = (uint8_t)io_get_in(r, 0, ACT_COUNT);
        s.acted = (uint8_t)io_get_in(r, 0, 2);
        if (s.kind == STEP_kernel) {
            s.kernel = get_kernel(&x);
            int64_t had = io_get_in(r, 0, (int64_t)code.n + 1);
            const target_code *k = had ? code.at[had - 1] : r->bad ? NULL : get_code(r, err);
            if (!had && k)
                vec_push(&code, k);
            (*made)[i] = k;
            if (!k)
                r->bad = true;
        } else if (!s.node)
            r->bad = true;
        loop_gather g;
        if (s.kind == STEP_check && !r->bad && (!loop_gather_of(s.node, &g) || s.nslot >= g.n))
            r->bad = true;
        vec_push(&p->step, s);
    }
    if (!r->bad && !chains_fit(p))
        r->bad = true;
    p->nout = (int)io_get_in(r, p->g->output->narg, p->g->output->narg + 1);
    p->out = arena_alloc(&p->mem, sizeof *p->out * (size_t)MAX(p->nout, 1));
    for (int i = 0; i < p->nout; i++)
        p->out[i] = (int)io_get_in(r, -1, x.nslot);
    p->nkernel = (int)io_get(r);
    p->nextern = (int)io_get(r);
    p->nproduct = (int)io_get(r);
    p->nfused = (int)io_get(r);
    ok = !r->bad;
done:
    vec_free(&code);
    vec_free(&x.bind);
    if (!ok) {
        if (!err_is_set(err))
            err_set(err, ERR_value, "a plan does not read back");
        free(*made);
        *made = NULL;
        loop_plan_free(p);
        return NULL;
    }
    return p;
}
