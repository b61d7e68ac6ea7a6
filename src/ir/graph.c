/* graph.c - nodes, names, use lists. */
#include "ir/graph.h"
#include <stdio.h>
#include <ctype.h>

ir_graph *ir_graph_new(const char *name)
{
    ir_graph *g = mem_zalloc(sizeof *g);
    g->name = arena_strdup(&g->mem, name);
    g->grad_mode = true;
    return g;
}

void ir_graph_free(ir_graph *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->keep.n; i++)
        tensor_unref(g->keep.at[i]);
    vec_free(&g->keep);
    vec_free(&g->inputs);
    map_free(&g->names);
    map_free(&g->name_next);
    arena_free(&g->mem);
    free(g);
}

/* ---- names ---- */
/* sin, sin_1, sin_2, ...; a base that ends in _<digits> counts on from there. Linear overall. */
const char *ir_unique_name(ir_graph *g, const char *base)
{
    if (!map_get(&g->names, base))
        return arena_strdup(&g->mem, base);
    size_t n = strlen(base), k = n;
    while (k > 0 && isdigit((unsigned char)base[k - 1]))
        k--;
    if (k > 1 && k < n && base[k - 1] == '_')
        n = k - 1;
    char *stem = arena_strndup(&g->mem, base, n);
    uintptr_t i = (uintptr_t)map_get(&g->name_next, stem);
    char *name;
    do
        name = arena_printf(&g->mem, "%s_%lu", stem, (unsigned long)++i);
    while (map_get(&g->names, name));
    map_put(&g->name_next, stem, (void *)i);
    return name;
}

void ir_rename(ir_node *n, const char *name)
{
    ir_graph *g = n->graph;
    map_deln(&g->names, n->name, strlen(n->name));
    n->name = ir_unique_name(g, name);
    map_put(&g->names, n->name, n);
}

/* ---- list ---- */
static void link_before(ir_graph *g, ir_node *at, ir_node *n)
{
    n->next = at;
    n->prev = at ? at->prev : g->last;
    *(n->prev ? &n->prev->next : &g->first) = n;
    *(at ? &at->prev : &g->last) = n;
    g->nnode++;
}

static void unlink_node(ir_node *n)
{
    ir_graph *g = n->graph;
    *(n->prev ? &n->prev->next : &g->first) = n->next;
    *(n->next ? &n->next->prev : &g->last) = n->prev;
    g->nnode--;
}

void ir_insert_before(ir_graph *g, ir_node *at, ir_node *n)
{
    unlink_node(n);
    link_before(g, at ? at : g->output, n);
}

/* ---- uses ---- */
static void add_use(void *user, ir_node *of)
{
    ir_use *u = arena_alloc(&of->graph->mem, sizeof *u);
    u->user = user;
    u->next = of->uses;
    of->uses = u;
    of->nuse++;
}

static void drop_use(void *user, ir_node *of)
{
    for (ir_use **p = &of->uses; *p; p = &(*p)->next)
        if ((*p)->user == user) {
            *p = (*p)->next;
            of->nuse--;
            return;
        }
}

static void val_operands(const tp_val *v, ir_operand_fn *f, void *arg)
{
    if (v->kind == VAL_node)
        f(arg, v->node);
    else if (v->kind == VAL_nodes)
        for (int i = 0; i < v->n; i++)
            if (v->nodes[i])
                f(arg, v->nodes[i]);
}

void ir_each_operand(const ir_node *n, ir_operand_fn *f, void *arg)
{
    for (int i = 0; i < n->narg; i++)
        val_operands(&n->arg[i], f, arg);
}

static tp_val val_copy(arena *a, const tp_val *v)
{
    tp_val r = *v;
    switch (v->kind) {
    case VAL_str: r.s = v->s ? arena_strdup(a, v->s) : NULL; break;
    case VAL_ints: r.ints = arena_dup(a, v->ints, sizeof(symint) * (size_t)v->n); break;
    case VAL_floats: r.floats = arena_dup(a, v->floats, sizeof(double) * (size_t)v->n); break;
    case VAL_bools: r.bools = arena_dup(a, v->bools, sizeof(bool) * (size_t)v->n); break;
    case VAL_nodes: r.nodes = arena_dup(a, v->nodes, sizeof(ir_node *) * (size_t)v->n); break;
    case VAL_gen: r = vNone; break; /* the generator's state goes into meta by functionalisation */
    default: break;
    }
    return r;
}

void ir_set_arg(ir_node *n, int i, tp_val v)
{
    val_operands(&n->arg[i], drop_use, n);
    n->arg[i] = val_copy(&n->graph->mem, &v);
    val_operands(&n->arg[i], add_use, n);
}

void ir_replace_uses(ir_node *old, ir_node *with)
{
    while (old->uses) {
        ir_node *u = old->uses->user;
        for (int i = 0; i < u->narg; i++) {
            tp_val *v = &u->arg[i];
            if (v->kind == VAL_node && v->node == old) {
                v->node = with;
                drop_use(u, old);
                add_use(u, with);
            } else if (v->kind == VAL_nodes)
                for (int k = 0; k < v->n; k++)
                    if (v->nodes[k] == old) {
                        v->nodes[k] = with;
                        drop_use(u, old);
                        add_use(u, with);
                    }
        }
    }
}

void ir_erase(ir_node *n)
{
    assert(n->nuse == 0);
    ir_graph *g = n->graph;
    ir_each_operand(n, drop_use, n);
    map_deln(&g->names, n->name, strlen(n->name));
    if (n->kind == IR_placeholder)
        for (size_t i = 0; i < g->inputs.n; i++)
            if (g->inputs.at[i] == n) {
                memmove(&g->inputs.at[i], &g->inputs.at[i + 1], sizeof(ir_node *) * (g->inputs.n - i - 1));
                g->inputs.n--;
                break;
            }
    if (n == g->output)
        g->output = NULL;
    unlink_node(n);
}

void ir_renumber(ir_graph *g)
{
    int i = 0;
    IR_EACH(n, g)
    n->id = i++;
    g->next_id = i;
}

/* ---- adding ---- */
static void keep_val(ir_graph *g, tp_val *v) /* the graph releases the tensors of a value type */
{
    if (v->kind == VAL_tensor)
        vec_push(&g->keep, v->t);
    else if (v->kind == VAL_tensors) {
        for (int i = 0; i < v->n; i++)
            if (v->ts[i])
                vec_push(&g->keep, v->ts[i]);
        tp_tensor **ts = arena_dup(&g->mem, v->ts, sizeof *ts * (size_t)v->n);
        free(v->ts);
        v->ts = ts;
    }
}

static ir_node *node_new(ir_graph *g, ir_kind k, const char *base, const tp_val *arg, int narg, tp_val val)
{
    ir_node *n = ARENA_NEW(&g->mem, ir_node);
    n->kind = (uint8_t)k;
    n->graph = g;
    n->id = g->next_id++;
    n->name = ir_unique_name(g, base);
    map_put(&g->names, n->name, n);
    n->narg = narg;
    n->arg = arena_alloc(&g->mem, sizeof(tp_val) * (size_t)MAX(narg, 1));
    for (int i = 0; i < narg; i++) {
        n->arg[i] = val_copy(&g->mem, &arg[i]);
        val_operands(&n->arg[i], add_use, n);
    }
    keep_val(g, &val);
    n->val = val;
    link_before(g, g->output, n);
    return n;
}

ir_node *ir_add_placeholder_val(ir_graph *g, const char *name, const char *source, tp_val type)
{
    ir_node *n = node_new(g, IR_placeholder, name, NULL, 0, type);
    n->target = arena_strdup(&g->mem, source ? source : name);
    /* placeholders stay in front, in order */
    ir_node *after = g->inputs.n ? vec_last(&g->inputs)->next : g->first;
    if (after != n) {
        unlink_node(n);
        link_before(g, after, n);
    }
    vec_push(&g->inputs, n);
    return n;
}

ir_node *ir_add_placeholder(ir_graph *g, const char *name, const char *source, tp_tensor *fake)
{
    return ir_add_placeholder_val(g, name, source, vT(tensor_ref(fake)));
}

ir_node *ir_add_const(ir_graph *g, const char *name, tp_tensor *t)
{
    ir_node *n = node_new(g, IR_const, name, NULL, 0, vT(tensor_fake_of(t)));
    n->target = n->name;
    n->konst = tensor_ref(t);
    vec_push(&g->keep, t);
    return n;
}

ir_node *ir_add_call(ir_graph *g, op_id op, op_variant v, const tp_val *arg, int narg, tp_val val)
{
    const op_row *r = op_row_of(op);
    char base[96];
    size_t k = (size_t)snprintf(base, sizeof base, "%s%s", r->name, v == OPV_inplace ? "_" : "");
    for (size_t i = 0; i < k && i < sizeof base; i++)
        if (base[i] == '.')
            base[i] = '_';
    ir_node *n = node_new(g, IR_call, base, arg, narg, val);
    n->op = (uint16_t)op;
    n->variant = (uint8_t)v;
    return n;
}

ir_node *ir_add_getitem(ir_graph *g, ir_node *of, int index, tp_val val)
{
    tp_val arg[2] = { { .kind = VAL_node, .node = of }, vI(index) };
    ir_node *n = node_new(g, IR_getitem, "getitem", arg, 2, val);
    n->loc = of->loc;
    return n;
}

ir_node *ir_add_opaque(ir_graph *g, const char *target, void *handle, const tp_val *arg, int narg, tp_val val)
{
    char base[64] = { 0 };
    const char *dot = strrchr(target, '.');
    snprintf(base, sizeof base, "%s", dot ? dot + 1 : target);
    ir_node *n = node_new(g, IR_opaque, *base ? base : "call", arg, narg, val);
    n->target = arena_strdup(&g->mem, target);
    n->opaque = handle;
    return n;
}

ir_node *ir_set_output(ir_graph *g, const tp_val *val, int n)
{
    if (g->output)
        ir_erase(g->output);
    ir_node *o = node_new(g, IR_output, "output", val, n, vNone);
    g->output = o;
    return o;
}

/* ---- copying ---- */
static tp_val remap(arena *a, const tp_val *v)
{
    tp_val r = *v;
    if (v->kind == VAL_node)
        r.node = v->node->data;
    else if (v->kind == VAL_nodes) {
        r.nodes = ARENA_ARR(a, ir_node *, v->n);
        for (int i = 0; i < v->n; i++)
            r.nodes[i] = v->nodes[i] ? v->nodes[i]->data : NULL;
    } else if (v->kind == VAL_graph)
        r.graph = ir_graph_copy(v->graph);
    return r;
}

static tp_val ref_val(const tp_val *v)
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

static const ir_loc *copy_loc(arena *a, const ir_loc *l)
{
    if (!l)
        return NULL;
    ir_loc *r = ARENA_NEW(a, ir_loc);
    r->file = l->file ? arena_strdup(a, l->file) : NULL;
    r->func = l->func ? arena_strdup(a, l->func) : NULL;
    r->code = l->code ? arena_strdup(a, l->code) : NULL;
    r->line = l->line;
    r->outer = copy_loc(a, l->outer);
    return r;
}

ir_graph *ir_graph_copy(const ir_graph *g)
{
    ir_graph *c = ir_graph_new(g->name);
    c->env = g->env;
    c->grad_mode = g->grad_mode;
    IR_EACH(n, (ir_graph *)g)
    {
        tp_val *arg = arena_alloc(&c->mem, sizeof(tp_val) * (size_t)MAX(n->narg, 1));
        for (int i = 0; i < n->narg; i++)
            arg[i] = remap(&c->mem, &n->arg[i]);
        ir_node *m = node_new(c, (ir_kind)n->kind, n->name, arg, n->narg, ref_val(&n->val));
        m->variant = n->variant;
        m->op = n->op;
        m->loc = copy_loc(&c->mem, n->loc);
        m->target = n->target ? arena_strdup(&c->mem, n->target) : NULL;
        m->meta = n->meta ? arena_strdup(&c->mem, n->meta) : NULL;
        m->opaque = n->opaque;
        if (n->konst) {
            m->konst = tensor_ref(n->konst);
            vec_push(&c->keep, m->konst);
        }
        if (n->kind == IR_placeholder)
            vec_push(&c->inputs, m);
        if (n->kind == IR_output)
            c->output = m;
        n->data = m;
    }
    return c;
}
