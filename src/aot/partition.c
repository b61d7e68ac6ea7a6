/* partition.c - cuts the joint graph into forward and backward.
 * What backward needs of forward is saved or computed again. The choice is a minimum cut: every forward value is
 * an edge whose capacity is its size; values that are dear to compute must be saved or depend on saved ones;
 * the cut between the inputs and what backward reads is what is kept. */
#include "aot/aot.h"
#include "sym/env.h"

enum { SIDE_fw = 1, SIDE_bw = 2 }; /* needed for forward results; depends on a tangent */

typedef struct part {
    tp_comp *c;
    ir_graph *j;
    const aot_unit *u;
    uint8_t *side; /* by node id */
    bool *needed;  /* a forward value that backward reads */
    bool *save;
    bool *held;     /* returned, so that it lives in any case; NULL: nothing is said to be */
    bool *in_input; /* the new value of an input, which may lie in its memory */
    int64_t *bytes; /* by hint */
} part;

static int64_t hint_or(symint v, int64_t otherwise)
{
    bool ok = true;
    int64_t h = sym_hint(v, &ok);
    return ok ? h : otherwise;
}

static int64_t node_bytes(const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    return t ? MAX(hint_or(t->numel, 4096), 1) * (int64_t)dtype_size((dtype)t->dt) : 0;
}

/* The ROWS column: the part of a row in attention. */
typedef enum { ROWS_none, ROWS_product, ROWS_first_chooses, ROWS_second_chooses, ROWS_triangle } rows_role;
static const uint8_t roles[OP_COUNT] = {
#define ROWS(id, token) [OP_##id] = ROWS_##token,
#include "ops/ops.def"
};

static rows_role role(const ir_node *n)
{
    return n->kind == IR_call && n->variant == OPV_fn ? roles[n->op] : ROWS_none;
}

static uint32_t row_flags(const ir_node *n)
{
    return n->kind == IR_call && n->variant == OPV_fn ? op_row_of((op_id)n->op)->flags : 0;
}

/* Cheap to compute again: pointwise work and views. Random draws, products, reductions and opaque calls are not. */
static bool cheap(const ir_node *n)
{
    if (n->kind == IR_const)
        return true;
    if (n->kind != IR_call || n->variant != OPV_fn)
        return false;
    const op_row *r = op_row_of((op_id)n->op);
    if (r->flags & (OPF_RAND | OPF_MUT | OPF_DYN | OPF_SYNC))
        return false;
    return r->flags & (OPF_PW | OPF_VIEW | OPF_CHEAP);
}

/* ---- products that are made again row by row ----
 * The scores of attention and all that is made of them, forward and backward, is made element by element or by sums and
 * extremes of its rows, and read by products. Programs run such products block of rows by block of rows (loop/attention.c), so none of those
 * matrices has to exist. Keeping one for backward would be the only reason for it: the product is made again there.
 * Measured, heads of 32 and 64: where half of every product is left out behind a diagonal, the product costs nothing from 128
 * rows on. Else it costs a sixth of the step as long as the matrices stay in the caches, so it is made again only where they
 * do not. */
enum { LEAST_ROWS = 128, LEAST_BYTES = 8 << 20 };

typedef struct rowwise {
    const part *p;
    const tp_tensor *t; /* the matrices */
    map seen;
    VEC(ir_node *) todo;
    bool fw, bw; /* a product of them in each pass */
    bool half;   /* a triangle says which of their elements count */
} rowwise;

static bool is_matrix(const rowwise *r, const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    return t && t->numel == r->t->numel;
}
static bool is_turned(const rowwise *r, const ir_node *n) /* rows are no rows any more */
{
    const tp_tensor *t = ir_type(n);
    return t->ndim < 2 || t->size[t->ndim - 1] != r->t->size[2] || t->size[t->ndim - 2] != r->t->size[1] ||
           (t->stride[t->ndim - 1] != 1 && (row_flags(n) & OPF_VIEW));
}
static void rowwise_add(rowwise *r, ir_node *n)
{
    if (map_geti(&r->seen, (uintptr_t)n))
        return;
    map_puti(&r->seen, (uintptr_t)n, r);
    vec_push(&r->todo, n);
}

/* Where a value that is read together with the matrix comes from a product, it is another one. */
static void other_matrix(void *arg, ir_node *n)
{
    rowwise *r = arg;
    while (is_matrix(r, n) && (row_flags(n) & OPF_VIEW) && n->arg[0].kind == VAL_node)
        n = n->arg[0].node;
    if (is_matrix(r, n) && role(n) == ROWS_product)
        rowwise_add(r, n);
}

static bool along_rows(const ir_node *u, const ir_node *x) /* a sum or an extreme of each row */
{
    int nd = ir_type(x)->ndim;
    const tp_val *dim = u->narg > 1 ? &u->arg[1] : NULL;
    int64_t d = !dim                                   ? 0
                : dim->kind == VAL_int                 ? dim->i
                : dim->kind == VAL_ints && dim->n == 1 ? dim->ints[0]
                                                       : 0;
    return u->kind == IR_call && u->narg && u->arg[0].kind == VAL_node && u->arg[0].node == x &&
           (d == -1 || d == nd - 1) && ir_type(u) &&
           hint_or(ir_type(u)->numel, 0) * hint_or(ir_type(x)->size[nd - 1], 0) ==
               hint_or(ir_type(x)->numel, -1);
}

static bool chosen_by_triangle(const ir_node *n)
{
    int at = role(n) == ROWS_first_chooses ? 0 : role(n) == ROWS_second_chooses ? 1 : -1;
    const ir_node *c = at >= 0 && n->arg[at].kind == VAL_node ? n->arg[at].node : NULL;
    while (c && c->kind == IR_call && role(c) != ROWS_triangle)
        c = c->narg && c->arg[0].kind == VAL_node ? c->arg[0].node : NULL;
    return c && c->kind == IR_call;
}

static bool rowwise_user(rowwise *r, ir_node *x, ir_node *u)
{
    if (role(u) == ROWS_product) {
        *(r->p->side[u->id] & SIDE_bw ? &r->bw : &r->fw) = true;
        bool once = !map_geti(&r->seen, (uintptr_t)u); /* not both of its factors */
        map_puti(&r->seen, (uintptr_t)u, r);
        return once;
    }
    uint32_t flags = row_flags(u);
    if (is_matrix(r, u) && (flags & OPF_VIEW)) {
        rowwise_add(r, u);
        return true;
    }
    if (is_turned(r, x))
        return false;
    bool converts = (flags & OPF_CHEAP) && ir_type(u) && ir_type(u)->dt != ir_type(x)->dt;
    if (is_matrix(r, u) && ((flags & OPF_PW) || converts) && !is_turned(r, u)) {
        r->half |= chosen_by_triangle(u);
        rowwise_add(r, u);
        ir_each_operand(u, other_matrix, r);
        return true;
    }
    return !(flags & OPF_VIEW) && along_rows(u, x);
}

static bool row_by_row(const part *p, ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    if (role(n) != ROWS_product || n->arg[0].kind != VAL_node)
        return false;
    bool half = (t->dt == DT_f16 || t->dt == DT_bf16) &&
                tensor_device(t).kind != DEV_cpu; /* as products of programs */
    if (t->dt != DT_f32 && t->dt != DT_f64 && !half)
        return false;
    int64_t rows = hint_or(t->size[1], 0), row = hint_or(t->size[2], 0),
            depth = hint_or(ir_type(n->arg[0].node)->size[2], 0);
    if (rows < LEAST_ROWS || row < LEAST_ROWS || rows * row < depth * (rows + row))
        return false;
    rowwise r = { .p = p, .t = t };
    bool ok = true;
    rowwise_add(&r, n);
    while (ok && r.todo.n) {
        ir_node *x = vec_pop(&r.todo);
        for (const ir_use *u = x->uses; u && ok; u = u->next)
            ok = u->user->kind == IR_call && u->user->variant == OPV_fn && rowwise_user(&r, x, u->user);
    }
    map_free(&r.seen);
    vec_free(&r.todo);
    return ok && r.fw && r.bw && (r.half || p->bytes[n->id] >= LEAST_BYTES);
}

/* ---- maximum flow (Dinic) ---- */
typedef struct edge {
    int to, next;
    int64_t cap;
} edge;
typedef struct flow {
    int n;
    int *head, *level, *it;
    VEC(edge) e;
} flow;
#define INF ((int64_t)1 << 60)

static void arc(flow *f, int a, int b, int64_t cap)
{
    vec_push(&f->e, ((edge){ b, f->head[a], cap }));
    f->head[a] = (int)f->e.n - 1;
    vec_push(&f->e, ((edge){ a, f->head[b], 0 }));
    f->head[b] = (int)f->e.n - 1;
}

static bool levels(flow *f, int s, int t, int *queue)
{
    memset(f->level, -1, sizeof(int) * (size_t)f->n);
    int qh = 0, qt = 0;
    queue[qt++] = s;
    f->level[s] = 0;
    while (qh < qt) {
        int u = queue[qh++];
        for (int i = f->head[u]; i >= 0; i = f->e.at[i].next)
            if (f->e.at[i].cap > 0 && f->level[f->e.at[i].to] < 0) {
                f->level[f->e.at[i].to] = f->level[u] + 1;
                queue[qt++] = f->e.at[i].to;
            }
    }
    return f->level[t] >= 0;
}

/* One blocking path at a time, without recursion. */
static int64_t augment(flow *f, int s, int t, int *path)
{
    int u = s, depth = 0;
    for (;;) {
        if (u == t) {
            int64_t m = INF;
            for (int i = 0; i < depth; i++)
                m = MIN(m, f->e.at[path[i]].cap);
            for (int i = 0; i < depth; i++) {
                f->e.at[path[i]].cap -= m;
                f->e.at[path[i] ^ 1].cap += m;
            }
            return m;
        }
        int i = f->it[u];
        while (i >= 0 && !(f->e.at[i].cap > 0 && f->level[f->e.at[i].to] == f->level[u] + 1))
            i = f->e.at[i].next;
        f->it[u] = i;
        if (i >= 0) {
            path[depth++] = i;
            u = f->e.at[i].to;
        } else {
            if (u == s)
                return 0;
            f->level[u] = -1;
            u = f->e.at[path[--depth] ^ 1].to;
        }
    }
}

static void max_flow(flow *f, int s, int t)
{
    int *queue = mem_alloc(sizeof(int) * (size_t)f->n), *path = mem_alloc(sizeof(int) * (size_t)f->n);
    while (levels(f, s, t, queue)) {
        memcpy(f->it, f->head, sizeof(int) * (size_t)f->n);
        while (augment(f, s, t, path))
            ;
    }
    /* Of the cheapest cuts the last one, which leaves the least to compute again: what still reaches t has level 0. */
    int qh = 0, qt = 0;
    memset(f->level, -1, sizeof(int) * (size_t)f->n);
    queue[qt++] = t;
    f->level[t] = 0;
    while (qh < qt)
        for (int i = f->head[queue[qh++]]; i >= 0; i = f->e.at[i].next)
            if (f->e.at[i ^ 1].cap > 0 && f->level[f->e.at[i].to] < 0) {
                f->level[f->e.at[i].to] = 0;
                queue[qt++] = f->e.at[i].to;
            }
    free(queue);
    free(path);
}

/* ---- sides ---- */
typedef struct visit {
    part *p;
    uint8_t bit;
    VEC(ir_node *) stack;
} visit;

static void push_operand(void *arg, ir_node *n)
{
    visit *v = arg;
    if (!(v->p->side[n->id] & v->bit)) {
        v->p->side[n->id] |= v->bit;
        vec_push(&v->stack, n);
    }
}

static void mark_needed_by(part *p, const tp_val *roots, int n, uint8_t bit)
{
    visit v = { p, bit, { 0 } };
    for (int i = 0; i < n; i++)
        if (roots[i].kind == VAL_node)
            push_operand(&v, roots[i].node);
    while (v.stack.n)
        ir_each_operand(vec_pop(&v.stack), push_operand, &v);
    vec_free(&v.stack);
}

typedef struct dep {
    part *p;
    bool tangent;
} dep;
static void depends(void *arg, ir_node *n)
{
    dep *d = arg;
    d->tangent |= (d->p->side[n->id] & SIDE_bw) != 0;
}
static void reads(void *arg, ir_node *n)
{
    part *p = arg;
    if (!(p->side[n->id] & SIDE_bw))
        p->needed[n->id] = true;
}

/* Lists of results are never saved themselves; their items are. */
static bool savable(const ir_node *n) { return n->val.kind == VAL_tensor || n->val.kind == VAL_int; }

/* What no result of forward needs is computed in backward, from what forward computes or is given: a formula of a gradient
 * reads an input when backward runs, as eager tapes do. */
static void choose_plainly(part *p)
{
    for (ir_node *n = p->j->last; n; n = n->prev) {
        if (!p->needed[n->id] || n->kind == IR_const)
            continue;
        const ir_node *made = n->kind == IR_getitem ? n->arg[0].node
                                                    : n; /* an item is there when its call is */
        if (n->kind != IR_placeholder && !(p->side[made->id] & SIDE_fw))
            ir_each_operand(n, reads, p);
        else if (savable(n))
            p->save[n->id] = true;
    }
}

static void choose(part *p, bool min_cut)
{
    ir_graph *j = p->j;
    if (!min_cut) {
        choose_plainly(p);
        return;
    }
    int n = j->next_id, s = 2 * n, t = 2 * n + 1;
    flow f = { .n = 2 * n + 2 };
    f.head = mem_alloc(sizeof(int) * (size_t)f.n);
    f.level = mem_alloc(sizeof(int) * (size_t)f.n);
    f.it = mem_alloc(sizeof(int) * (size_t)f.n);
    memset(f.head, -1, sizeof(int) * (size_t)f.n);
    IR_EACH (v, j) {
        if ((p->side[v->id] & SIDE_bw) || v->kind == IR_output)
            continue;
        bool input = v->kind == IR_placeholder;
        for (int i = 0; i < p->u->nmut && input; i++) /* its old value must be copied */
            input = p->j->inputs.at[p->u->mut[i]] != v;
        input |= p->held && p->held[v->id];
        /* Inputs live anyway: holding on to one costs little. Small values cost at least something each. */
        int64_t cap = !savable(v) ? INF : input ? 1 + p->bytes[v->id] / 64 : 64 + p->bytes[v->id];
        arc(&f, 2 * v->id, 2 * v->id + 1, cap);
        bool again = v->kind == IR_const || (v->kind == IR_getitem ? false
                                                                   : (cheap(v) || row_by_row(p, v)) &&
                                                                         decide(p->c, DECIDE_recompute, v));
        if (v->kind == IR_getitem) { /* an item can be computed again when its call can */
            const ir_node *of = v->arg[0].node;
            again = of->kind == IR_call && cheap(of);
        }
        if (v->kind != IR_const && (v->kind == IR_placeholder || !again))
            arc(&f, s, 2 * v->id, INF);
        if (p->needed[v->id] && v->kind != IR_const)
            arc(&f, 2 * v->id + 1, t, INF);
        for (int i = 0; i < v->narg; i++) {
            const tp_val *a = &v->arg[i];
            if (a->kind == VAL_node)
                arc(&f, 2 * a->node->id + 1, 2 * v->id, INF);
            else if (a->kind == VAL_nodes)
                for (int k = 0; k < a->n; k++)
                    if (a->nodes[k])
                        arc(&f, 2 * a->nodes[k]->id + 1, 2 * v->id, INF);
        }
    }
    max_flow(&f, s, t);
    IR_EACH (v, j)
        if (!(p->side[v->id] & SIDE_bw) && v->kind != IR_output && v->kind != IR_const &&
            f.level[2 * v->id] < 0 && f.level[2 * v->id + 1] >= 0)
            p->save[v->id] = true;
    free(f.head);
    free(f.level);
    free(f.it);
    vec_free(&f.e);
}

/* ---- symbols that the forward run decides ---- */
static void note_symbols(map *m, const tp_val *v)
{
    const symint *at = v->kind == VAL_ints ? v->ints : &v->i;
    int n = v->kind == VAL_ints ? v->n : v->kind == VAL_int;
    for (int i = 0; i < n; i++)
        if (sym_is_expr(at[i]) && sym_is_unbacked(at[i]))
            map_puti(m, (uint64_t)at[i], m);
}

static void need_again(part *p, bool *again, ir_node *n) /* n and what it needs, down to saved values */
{
    VEC(ir_node *) stack = { 0 };
    vec_push(&stack, n);
    while (stack.n) {
        ir_node *x = vec_pop(&stack);
        if (again[x->id] || p->save[x->id] || (p->side[x->id] & SIDE_bw))
            continue;
        again[x->id] = true;
        for (int i = 0; i < x->narg; i++) {
            const tp_val *a = &x->arg[i];
            if (a->kind == VAL_node)
                vec_push(&stack, a->node);
            else if (a->kind == VAL_nodes)
                for (int q = 0; q < a->n; q++)
                    if (a->nodes[q])
                        vec_push(&stack, a->nodes[q]);
        }
    }
    vec_free(&stack);
}

/* Backward binds symbols from its inputs' sizes. Where an argument there names a symbol of the forward run, the
 * value that decided it is saved. */
static void save_symbols(part *p)
{
    map used = { 0 };
    if (!p->j->env || !sym_env_n_symbols(p->j->env))
        return;
    bool *again = mem_zalloc((size_t)MAX(p->j->next_id, 1));
    IR_EACH (n, p->j)
        if (p->needed[n->id])
            need_again(p, again, n);
    IR_EACH (n, p->j)
        if ((p->side[n->id] & SIDE_bw) || again[n->id])
            for (int i = 0; i < n->narg && n->kind != IR_output; i++)
                note_symbols(&used, &n->arg[i]);
    if (used.n)
        IR_EACH (n, p->j)
            if (!(p->side[n->id] & SIDE_bw) && ir_decides(n)) {
                if (savable(n))
                    p->save[n->id] = true;
                for (ir_use *q = n->uses; q; q = q->next) /* of several results, those that are there */
                    if (n->val.kind == VAL_tensors && q->user->kind == IR_getitem)
                        p->save[q->user->id] = true;
            }
    free(again);
    map_free(&used);
}

/* ---- building the two graphs ---- */
typedef struct copier {
    ir_graph *to;
    ir_node **map; /* by joint id */
    map locs;
} copier;

static tp_val copy_type(const tp_val *v)
{
    tp_val r = *v;
    if (v->kind == VAL_tensor)
        tensor_ref(v->t);
    else if (v->kind == VAL_tensors) {
        r.ts = mem_zalloc(sizeof *r.ts * (size_t)MAX(v->n, 1));
        for (int i = 0; i < v->n; i++)
            r.ts[i] = v->ts[i] ? tensor_ref(v->ts[i]) : NULL;
    }
    return r;
}

static ir_node *copy_node(copier *k, const ir_node *n)
{
    arena *a = &k->to->mem;
    tp_val *arg = ARENA_ARR(a, tp_val, MAX(n->narg, 1));
    for (int i = 0; i < n->narg; i++) {
        arg[i] = n->arg[i];
        if (arg[i].kind == VAL_node)
            arg[i].node = k->map[arg[i].node->id];
        else if (arg[i].kind == VAL_nodes) {
            arg[i].nodes = ARENA_ARR(a, ir_node *, MAX(arg[i].n, 1));
            for (int q = 0; q < arg[i].n; q++)
                arg[i].nodes[q] = n->arg[i].nodes[q] ? k->map[n->arg[i].nodes[q]->id] : NULL;
        } else if (arg[i].kind == VAL_graph)
            arg[i].graph = ir_graph_copy(arg[i].graph);
    }
    ir_node *m;
    k->to->wanted = n->name;
    switch (n->kind) {
    case IR_placeholder: m = ir_add_placeholder_val(k->to, n->name, n->target, copy_type(&n->val)); break;
    case IR_const: m = ir_add_const(k->to, n->name, n->konst); break;
    case IR_getitem: m = ir_add_getitem(k->to, arg[0].node, (int)arg[1].i, copy_type(&n->val)); break;
    case IR_opaque: m = ir_add_opaque(k->to, n->target, n->opaque, arg, n->narg, copy_type(&n->val)); break;
    default: m = ir_add_call(k->to, (op_id)n->op, (op_variant)n->variant, arg, n->narg, copy_type(&n->val));
    }
    m->loc = ir_loc_copy(a, &k->locs, n->loc);
    m->meta = n->meta ? arena_strdup(a, n->meta) : NULL;
    return k->map[n->id] = m;
}

static ir_graph *graph_like(const ir_graph *j, const char *suffix)
{
    strbuf b = { 0 };
    strbuf_addf(&b, "%s%s", j->name, suffix);
    ir_graph *g = ir_graph_new(strbuf_str(&b));
    map_reserve(&g->names, (size_t)j->nnode / 2);
    strbuf_free(&b);
    g->env = j->env;
    g->grad_mode = false;
    return g;
}

static void build_fw(part *p, aot_unit *u, int nfw)
{
    ir_graph *j = p->j;
    copier k = { graph_like(j, u->ngrad ? "_forward" : "_inference"),
                 mem_zalloc(sizeof(ir_node *) * (size_t)MAX(j->next_id, 1)) };
    int seen = 0;
    IR_EACH (n, j) {
        if (n->kind == IR_output)
            continue;
        if (n->kind == IR_placeholder ? seen++ < u->nin
                                      : (p->side[n->id] & SIDE_fw) && !(p->side[n->id] & SIDE_bw))
            copy_node(&k, n);
    }
    VEC(tp_val) out = { 0 };
    for (int i = 0; i < nfw; i++) {
        tp_val v = j->output->arg[i];
        if (v.kind == VAL_node)
            v.node = k.map[v.node->id];
        vec_push(&out, v);
    }
    IR_EACH (n, j)
        if (p->save[n->id]) {
            vec_push(&out, ((tp_val){ .kind = VAL_node, .node = k.map[n->id] }));
            u->nsaved++;
            u->saved_bytes += n->kind == IR_placeholder ? 0 : p->bytes[n->id];
        }
    ir_set_output(k.to, out.at, (int)out.n);
    vec_free(&out);
    free(k.map);
    map_free(&k.locs);
    u->fw = k.to;
}

static void build_bw(part *p, aot_unit *u, int nfw)
{
    ir_graph *j = p->j;
    copier k = { graph_like(j, "_backward"), mem_zalloc(sizeof(ir_node *) * (size_t)MAX(j->next_id, 1)) };
    bool *again = mem_zalloc((size_t)MAX(j->next_id, 1));
    int seen = 0;

    IR_EACH (n, j)
        if (p->needed[n->id] && !p->save[n->id])
            need_again(p, again, n);
    IR_EACH (n, j)
        if (p->save[n->id]) {
            ir_node *m = ir_add_placeholder_val(k.to, n->name, n->name, copy_type(&n->val));
            k.map[n->id] = m;
        }
    IR_EACH (n, j)
        if (n->kind == IR_placeholder && seen++ >= u->nin)
            copy_node(&k, n);
    IR_EACH (n, j) {
        if (n->kind == IR_output || k.map[n->id])
            continue;
        if (again[n->id] || ((p->side[n->id] & SIDE_bw) && n->kind != IR_placeholder))
            copy_node(&k, n);
    }
    VEC(tp_val) out = { 0 };
    for (int i = nfw; i < j->output->narg; i++) {
        tp_val v = j->output->arg[i];
        if (v.kind == VAL_node)
            v.node = k.map[v.node->id];
        vec_push(&out, v);
    }
    ir_set_output(k.to, out.at, (int)out.n);
    vec_free(&out);
    free(k.map);
    map_free(&k.locs);
    free(again);
    u->bw = k.to;
}

/* ---- symbols that backward needs ---- */
typedef VEC(sym_bind) binds;

static void bind_from(binds *b, const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    if (n->val.kind == VAL_int && sym_is_symbol(n->val.i))
        vec_push(b, ((sym_bind){ sym_expr_of(n->val.i), 7 }));
    for (int d = 0; t && d < t->ndim; d++) {
        if (sym_is_symbol(t->size[d]))
            vec_push(b, ((sym_bind){ sym_expr_of(t->size[d]), 7 }));
        if (sym_is_symbol(t->stride[d]) && sym_known(SYM_ge, t->size[d], 2)) /* else it may be anything */
            vec_push(b, ((sym_bind){ sym_expr_of(t->stride[d]), 7 }));
    }
}

static bool known(const binds *b, symint v)
{
    int64_t x;
    return !sym_is_expr(v) || sym_eval(v, b->at, (int)b->n, &x);
}

static bool node_known(const binds *b, const ir_node *n)
{
    const tp_tensor *t = ir_type(n);
    bool ok = true;
    for (int d = 0; ok && t && d < t->ndim; d++)
        ok = known(b, t->size[d]) && known(b, t->stride[d]);
    for (int i = 0; ok && i < n->narg; i++) {
        const tp_val *a = &n->arg[i];
        if (a->kind == VAL_int)
            ok = known(b, a->i);
        for (int k = 0; ok && a->kind == VAL_ints && k < a->n; k++)
            ok = known(b, a->ints[k]);
    }
    return ok;
}

/* What backward computes: all that its results need and that is not given to it. */
typedef struct {
    const part *p;
    bool *in;
    VEC(ir_node *) todo;
} computed;
static void compute_too(void *arg, ir_node *n)
{
    computed *c = arg;
    if (c->in[n->id] || c->p->save[n->id] || n->kind == IR_placeholder)
        return;
    c->in[n->id] = true;
    vec_push(&c->todo, n);
}

/* Sizes reach backward with the tensors that have them: where none of those it gets tells a symbol, an input that
 * does is saved as well. */
static void save_for_symbols(part *p, int nprimal, int nfw)
{
    ir_graph *j = p->j;
    computed c = { .p = p };
    binds b = { 0 };
    int k = 0;
    if (!j->env)
        return;
    IR_EACH (n, j) {
        if (p->save[n->id] || (n->kind == IR_placeholder && k >= nprimal))
            bind_from(&b, n);
        k += n->kind == IR_placeholder;
    }
    c.in = mem_zalloc((size_t)MAX(j->next_id, 1));
    for (int i = nfw; i < j->output->narg; i++)
        if (j->output->arg[i].kind == VAL_node)
            compute_too(&c, j->output->arg[i].node);
    while (c.todo.n)
        ir_each_operand(vec_pop(&c.todo), compute_too, &c);
    IR_EACH (n, j) {
        if (!c.in[n->id])
            continue;
        for (int i = 0; i < nprimal && !node_known(&b, n); i++) {
            ir_node *in = j->inputs.at[i];
            size_t had = b.n;
            if (p->save[in->id])
                continue;
            bind_from(&b, in);
            p->save[in->id] = p->save[in->id] || b.n > had;
        }
    }
    vec_free(&b);
    vec_free(&c.todo);
    free(c.in);
}

const ir_node *aot_size_lost(const aot_unit *u)
{
    binds b = { 0 }, more = { 0 };
    const ir_node *lost = NULL;
    if (!u->bw || !u->bw->env)
        return NULL;
    for (size_t i = 0; i < u->bw->inputs.n; i++)
        bind_from(&b, u->bw->inputs.at[i]);
    for (size_t i = 0; i < b.n; i++)
        vec_push(&more, b.at[i]);
    for (size_t i = 0; i < u->fw->inputs.n; i++)
        bind_from(&more, u->fw->inputs.at[i]);
    IR_EACH (n, u->bw)
        if (!lost && n->kind != IR_placeholder && !node_known(&b, n) && node_known(&more, n))
            lost = n;
    vec_free(&b);
    vec_free(&more);
    return lost;
}

bool aot_partition(tp_comp *c, aot_unit *u, int nfw, bool min_cut)
{
    ir_graph *j = u->joint;
    part p = { .c = c, .j = j, .u = u };
    size_t n;
    ir_renumber(j);
    n = (size_t)MAX(j->next_id, 1);
    p.side = mem_zalloc(n);
    p.needed = mem_zalloc(n * sizeof *p.needed);
    p.save = mem_zalloc(n * sizeof *p.save);
    p.bytes = mem_zalloc(n * sizeof *p.bytes);

    int k = 0;
    IR_EACH (v, j) { /* what depends on a tangent belongs to backward */
        p.bytes[v->id] = node_bytes(v);
        if (v->kind == IR_placeholder) {
            if (k++ >= u->nin)
                p.side[v->id] |= SIDE_bw;
            continue;
        }
        dep d = { &p, false };
        if (v->kind != IR_output)
            ir_each_operand(v, depends, &d);
        if (d.tangent)
            p.side[v->id] |= SIDE_bw;
    }
    mark_needed_by(&p, j->output->arg, nfw, SIDE_fw);
    IR_EACH (v, j) /* calls made for what they do */
        if (v->kind == IR_opaque && !(p.side[v->id] & SIDE_bw) && ir_node_is_effect(v))
            mark_needed_by(&p, &(tp_val){ .kind = VAL_node, .node = v }, 1, SIDE_fw);
    IR_EACH (v,
             j) /* what decides symbols, checks them or draws numbers belongs to forward whoever reads it */
        if (v->kind == IR_call && !(p.side[v->id] & SIDE_bw) &&
            ((op_row_of((op_id)v->op)->flags & (OPF_CHECK | OPF_RAND)) || ir_decides(v)))
            mark_needed_by(&p, &(tp_val){ .kind = VAL_node, .node = v }, 1, SIDE_fw);
    if (u->ngrad) {
        IR_EACH (v, j)
            if ((p.side[v->id] & SIDE_bw) && v->kind != IR_output)
                ir_each_operand(v, reads, &p);
        for (int i = nfw; i < j->output->narg; i++) /* a gradient that no tangent reaches */
            if (j->output->arg[i].kind == VAL_node)
                reads(&p, j->output->arg[i].node);
        IR_EACH (v, j)
            if (p.needed[v->id] && v->kind != IR_placeholder)
                u->all_bytes += p.bytes[v->id];
        choose(&p, min_cut);
        save_symbols(&p);
        save_for_symbols(&p, u->nin, nfw);
        IR_EACH (v, j) /* whatever is saved must be computed in forward */
            if (p.save[v->id]) {
                tp_val one = { .kind = VAL_node, .node = v };
                mark_needed_by(&p, &one, 1, SIDE_fw);
            }
    }
    build_fw(&p, u, nfw);
    if (u->ngrad)
        build_bw(&p, u, nfw);
    free(p.side);
    free(p.needed);
    free(p.save);
    free(p.bytes);
    return true;
}

/* ---- forward and backward in one graph ----
 * A whole step of training, captured as one graph, has no tangents to tell its two passes apart. What matters is where most
 * bytes are alive: values that were made before and are read after are saved across that place or computed again behind it,
 * chosen by the same cut. */
static bool shares_memory(const ir_node *n) /* its value lies in its operand's memory */
{
    const ir_node *of = n->kind == IR_getitem ? n->arg[0].node : n;
    return of->kind == IR_call && (op_row_of((op_id)of->op)->flags & OPF_VIEW) && of->arg[0].kind == VAL_node;
}

static int height_of(const part *p) /* the id at which most is alive, in the order of the program */
{
    ir_graph *j = p->j;
    int n = j->next_id, at = 0;
    int *last = mem_zalloc(sizeof *last * (size_t)(n + 1));
    int64_t *change = mem_zalloc(sizeof *change * (size_t)(n + 2)), now = 0, most = 0;
    for (ir_node *v = j->last; v; v = v->prev) {
        last[v->id] = v->id;
        for (const ir_use *u = v->uses; u; u = u->next)
            last[v->id] = MAX(last[v->id], shares_memory(u->user) || v->val.kind == VAL_tensors
                                               ? last[u->user->id]
                                               : u->user->id);
        if ((v->kind != IR_call && v->kind != IR_opaque && v->kind != IR_getitem) || shares_memory(v) ||
            p->in_input[v->id])
            continue;
        change[v->id] += p->bytes[v->id];
        change[last[v->id] + 1] -= p->bytes[v->id];
    }
    for (int i = 0; i < n; i++) {
        now += change[i];
        if (now > most) {
            most = now;
            at = i;
        }
    }
    free(last);
    free(change);
    return at;
}

static int64_t bytes_kept(const part *p, const bool *which)
{
    int64_t sum = 0;
    IR_EACH (v, p->j)
        if (which[v->id] && v->kind != IR_placeholder && v->kind != IR_const && !p->held[v->id])
            sum += p->bytes[v->id];
    return sum;
}

typedef struct behind {
    int from;
    bool late;
} behind;
static void is_late(void *arg, ir_node *n)
{
    behind *b = arg;
    b->late &= n->id < b->from || n->late || n->kind == IR_const || n->kind == IR_placeholder;
}

static ir_node *same_again(ir_graph *g, const ir_node *n, ir_node *before)
{
    ir_node *m = n->kind == IR_getitem
                     ? ir_add_getitem(g, n->arg[0].node, (int)n->arg[1].i, copy_type(&n->val))
                     : ir_add_call(g, (op_id)n->op, (op_variant)n->variant, n->arg, n->narg,
                                   copy_type(&n->val));
    ir_insert_before(g, before, m);
    m->loc = n->loc;
    m->meta = n->meta;
    m->late = true;
    return m;
}

static void read_copies(ir_graph *g, ir_node *n, ir_node *const *copy, int ncopy)
{
    for (int i = 0; i < n->narg; i++) {
        tp_val v = n->arg[i];
        if (v.kind == VAL_node && v.node->id < ncopy && copy[v.node->id])
            ir_set_arg(n, i, (tp_val){ .kind = VAL_node, .node = copy[v.node->id] });
        bool any = false;
        for (int k = 0; v.kind == VAL_nodes && k < v.n; k++)
            any |= v.nodes[k] && v.nodes[k]->id < ncopy && copy[v.nodes[k]->id];
        if (!any)
            continue;
        v.nodes = ARENA_ARR(&g->mem, ir_node *, v.n);
        for (int k = 0; k < v.n; k++) {
            ir_node *x = n->arg[i].nodes[k];
            v.nodes[k] = x && x->id < ncopy && copy[x->id] ? copy[x->id] : x;
        }
        ir_set_arg(n, i, v);
    }
}

/* What is computed again behind `from`, and what is computed there of earlier values alone, stands before its first reader
 * and waits for what else that reads. */
static void place_late(part *p, int from, const bool *again)
{
    ir_graph *g = p->j;
    int n = g->next_id;
    ir_node **by_id = mem_alloc(sizeof(ir_node *) * (size_t)n),
            **copy = mem_zalloc(sizeof(ir_node *) * (size_t)n);
    int *at = mem_alloc(sizeof *at * (size_t)n); /* its first reader that is not late itself */
    IR_EACH (v, g) {
        by_id[v->id] = v;
        behind b = { from, v->id >= from && (v->kind == IR_getitem || cheap(v)) };
        if (b.late)
            ir_each_operand(v, is_late, &b);
        v->late = b.late && v->narg;
    }
    for (int i = n - 1; i >= 0; i--) {
        at[i] = n;
        for (const ir_use *u = by_id[i]->uses; u; u = u->next) {
            const ir_node *r = u->user;
            if (r->id < from ? again[r->id] : r->late)
                at[i] = MIN(at[i], at[r->id]);
            else if (r->id >= from && r->kind != IR_output)
                at[i] = MIN(at[i], r->id);
        }
        if (at[i] == n) /* only returned */
            by_id[i]->late = false;
    }
    for (int i = 0; i < n; i++) {
        ir_node *v = by_id[i];
        if (again[i] && i < from && v->kind != IR_const && at[i] < n)
            copy[i] = same_again(g, v, by_id[at[i]]);
        else if (v->late)
            ir_insert_before(g, by_id[at[i]], v);
        if (copy[i])
            read_copies(g, copy[i], copy, n);
        else if (i >= from && v->kind != IR_output)
            read_copies(g, v, copy, n);
    }
    free(by_id);
    free(copy);
    free(at);
}

bool aot_recompute(tp_comp *c, ir_graph *g)
{
    aot_unit none = { 0 };
    part p = { .c = c, .j = g, .u = &none };
    ir_renumber(g);
    size_t n = (size_t)MAX(g->next_id, 1);
    p.side = mem_zalloc(n);
    p.needed = mem_zalloc(n * sizeof *p.needed);
    p.save = mem_zalloc(n * sizeof *p.save);
    p.held = mem_zalloc(n * sizeof *p.held);
    p.in_input = mem_zalloc(n * sizeof *p.in_input);
    p.bytes = mem_zalloc(n * sizeof *p.bytes);
    bool *again = mem_zalloc(n), ok = true;
    IR_EACH (v, g)
        p.bytes[v->id] = node_bytes(v);
    for (int i = 0; i < g->output->narg; i++)
        if (g->output->arg[i].kind == VAL_node) {
            p.held[g->output->arg[i].node->id] = true;
            p.in_input[g->output->arg[i].node->id] = i < g->ninto && g->into[i];
        }
    int from = height_of(&p);
    IR_EACH (v, g)
        if (v->id >= from && v->kind != IR_placeholder && v->kind != IR_const)
            p.side[v->id] = SIDE_bw;
    IR_EACH (v, g)
        if ((p.side[v->id] & SIDE_bw) && v->kind != IR_output)
            ir_each_operand(v, reads, &p);
    choose(&p, true);
    int64_t all = bytes_kept(&p, p.needed), kept = bytes_kept(&p, p.save);
    if (kept < all - all / 16) {
        IR_EACH (v, g)
            if (p.needed[v->id] && !p.save[v->id])
                need_again(&p, again, v);
        place_late(&p, from, again);
        ok = pass_run_named(c, g, "dce");
    }
    free(p.side);
    free(p.needed);
    free(p.save);
    free(p.held);
    free(p.in_input);
    free(p.bytes);
    free(again);
    return ok;
}

/* ---- inputs that forward writes ---- */
static const ir_node *memory_of(const ir_node *n) /* the node whose memory n's value lies in */
{
    for (;;) {
        const ir_node *of = n->kind == IR_getitem ? n->arg[0].node : n;
        if (of->kind != IR_call || !(op_row_of((op_id)of->op)->flags & OPF_VIEW) ||
            of->arg[0].kind != VAL_node)
            return n;
        n = of->arg[0].node;
    }
}

bool aot_keep_old_values(aot_unit *u, int nfw, tp_err *err)
{
    ir_graph *g = u->fw;
    for (int i = nfw; i < g->output->narg && u->nmut; i++) {
        ir_node *n = g->output->arg[i].kind == VAL_node ? g->output->arg[i].node : NULL;
        const ir_node *of = n ? memory_of(n) : NULL;
        bool written = false;
        for (int k = 0; k < u->nmut && of; k++)
            written |= g->inputs.at[u->mut[k]] == of;
        if (!written)
            continue;
        tp_val arg[2] = { { .kind = VAL_node, .node = n }, vNone }, type = vNone;
        if (!ir_infer(g, OP_clone, OPV_fn, arg, &type, err))
            return false;
        if (!ir_type_equal(&type, &n->val)) {
            val_clear(&type);
            return err_set(
                err, ERR_notimpl,
                "backward needs what a written input held before, and that does not lie densely in "
                "memory; this graph runs eagerly instead");
        }
        ir_node *copy = ir_add_call(g, OP_clone, OPV_fn, arg, 2, type);
        copy->loc = n->loc;
        ir_insert_before(g, g->output, copy);
        ir_set_arg(g->output, i, (tp_val){ .kind = VAL_node, .node = copy });
        u->saved_bytes += n->kind == IR_placeholder ? node_bytes(n) : 0;
    }
    return true;
}
