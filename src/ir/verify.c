/* verify.c - the rules every graph keeps. A broken one is named with its node. */
#include "base/envvars.h"
#include "ir/text.h"
#include <stdio.h>

typedef struct check {
    const ir_graph *g;
    tp_err *err;
    const ir_node **seen; /* defined so far: open addressing */
    size_t mask;
    const ir_node *n; /* being checked */
    int64_t slots;    /* operand slots met */
    bool all;         /* every type is inferred again */
    bool ok;
} check;

static bool broken(check *c, const char *rule, const char *fmt, ...) TP_PRINTF(3, 4);
static bool broken(check *c, const char *rule, const char *fmt, ...)
{
    char msg[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (c->n)
        err_set(c->err, ERR_value, "node '%s' breaks the rule '%s': %s", c->n->name, rule, msg);
    else
        err_set(c->err, ERR_value, "graph '%s' breaks the rule '%s': %s", c->g->name, rule, msg);
    ir_err_place(c->err, c->n);
    return c->ok = false;
}

static const ir_node **slot_of(check *c, const ir_node *n)
{
    size_t i = hash_u64((uintptr_t)n) & c->mask;
    while (c->seen[i] && c->seen[i] != n)
        i = (i + 1) & c->mask;
    return &c->seen[i];
}

static void check_operand(void *arg, ir_node *of)
{
    check *c = arg;
    c->slots++;
    if (!c->ok || *slot_of(c, of) == of)
        return;
    if (of->graph != c->g)
        broken(c, "own nodes", "operand '%s' belongs to another graph", of->name);
    else
        broken(c, "definition before use", "operand '%s' is defined later, or not in the graph", of->name);
}

static bool verify(const ir_graph *g, tp_err *err, bool all, bool text);
static bool check_uses(check *c)
{
    int k = 0;
    for (const ir_use *u = c->n->uses; u; u = u->next, k++)
        if (k >= c->n->nuse || !u->at || *u->at != c->n)
            return broken(c, "use lists",
                          "an entry does not point back, or there are more than the %d counted", c->n->nuse);
    if (k != c->n->nuse)
        return broken(c, "use lists", "%d entries, but %d are counted", k, c->n->nuse);
    c->slots -= k;
    return true;
}

/* Facts that were learnt after a type was made can leave two ways to say one size, of which nobody knows that they are
 * equal: then their values in the example decide. The stride of a dimension of size 1 says nothing, nor do any where there is
 * no element. */
static bool alike(symint a, symint b)
{
    bool ok = true;
    if (a == b || !(sym_is_expr(a) || sym_is_expr(b)))
        return a == b;
    int64_t x = sym_hint(a, &ok), y = ok ? sym_hint(b, &ok) : 0;
    return ok && x == y;
}
static bool tensors_alike(const tp_tensor *a, const tp_tensor *b)
{
    bool same = a && b && a->dt == b->dt && a->ndim == b->ndim, none = same && sym_known(SYM_eq, a->numel, 0);
    for (int d = 0; same && d < a->ndim; d++)
        same = alike(a->size[d], b->size[d]) &&
               (none || alike(a->size[d], 1) || alike(a->stride[d], b->stride[d]));
    return same;
}
bool ir_types_alike(const tp_val *a, const tp_val *b)
{
    if (a->kind == VAL_tensor && b->kind == VAL_tensor)
        return tensors_alike(a->t, b->t);
    bool same = a->kind == VAL_tensors && b->kind == VAL_tensors && a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = tensors_alike(a->ts[i], b->ts[i]);
    return same;
}

static bool check_type(check *c, const tp_val *is, const char *what)
{
    strbuf a = { 0 }, b = { 0 };
    if (ir_type_equal(&c->n->val, is) || ir_types_alike(&c->n->val, is))
        return true;
    ir_type_print(&a, &c->n->val);
    ir_type_print(&b, is);
    broken(c, "types", "its type is %s, but %s says %s", strbuf_str(&a), what, strbuf_str(&b));
    strbuf_free(&a);
    strbuf_free(&b);
    return false;
}

static bool check_call(check *c)
{
    const ir_node *n = c->n;
    tp_err e = { 0 };
    tp_val val = vNone;

    if (n->op >= OP_COUNT)
        return broken(c, "operators", "there is no operator %d", n->op);
    const op_row *row = op_row_of((op_id)n->op);
    if (n->narg != row->schema.nparam)
        return broken(c, "arity", "%s takes %d arguments, not %d", row->full, row->schema.nparam, n->narg);
    if (n->variant > OPV_out || (n->variant == OPV_inplace && !(row->flags & (OPF_INP | OPF_INPONLY))))
        return broken(c, "operators", "%s has no such form", row->full);
    for (int i = 0; i < n->narg; i++)
        if (!ir_check_arg(row, i, &n->arg[i], &e))
            return broken(c, "schema", "%s", e.msg);
    if (ir_row_is_dyn(row) || (n->typed && !c->all))
        return true;
    symint again[16];
    int nagain = ir_decided(n, again, COUNT(again));
    if (nagain)
        sym_env_replay(c->g->env, again, nagain);
    bool same = ir_infer((ir_graph *)c->g, (op_id)n->op, (op_variant)n->variant, n->arg, &val, &e);
    if (nagain)
        sym_env_replay(c->g->env, NULL, 0);
    if (!same)
        return broken(c, "shape rule", "%s", e.msg);
    bool ok = check_type(c, &val, "the shape rule");
    val_clear(&val);
    return ok;
}

static bool check_item(check *c)
{
    const ir_node *n = c->n;
    if (n->narg != 2 || n->arg[0].kind != VAL_node || n->arg[1].kind != VAL_int)
        return broken(c, "arity", "an item is taken from a node, by number");
    const tp_val *of = &n->arg[0].node->val;
    if (of->kind != VAL_tensors || n->arg[1].i < 0 || n->arg[1].i >= of->n)
        return broken(c, "items", "'%s' has no result %lld", n->arg[0].node->name, (long long)n->arg[1].i);
    tp_val is = vT(of->ts[n->arg[1].i]);
    return check_type(c, &is, "that result");
}

static bool check_subs(check *c)
{
    for (int i = 0; i < c->n->narg; i++)
        if (c->n->arg[i].kind == VAL_graph && !verify(c->n->arg[i].graph, c->err, c->all, false)) {
            err_note(c->err, "in the graph nested in node '%s'", c->n->name);
            return c->ok = false;
        }
    return true;
}

static bool check_node(check *c, size_t *inputs)
{
    const ir_node *n = c->n;
    switch (n->kind) {
    case IR_placeholder:
        if (*inputs >= c->g->inputs.n || c->g->inputs.at[*inputs] != n)
            return broken(c, "inputs first", "an input is missing from the list of inputs, or out of order");
        ++*inputs;
        if (n->prev && n->prev->kind != IR_placeholder)
            return broken(c, "inputs first", "it comes after '%s'", n->prev->name);
        return true;
    case IR_const: {
        if (!ir_type(n) || !n->target)
            return broken(c, "constants", "a constant is a tensor with a name");
        tp_val is = vT(n->konst);
        return !n->konst || check_type(c, &is, "its tensor");
    }
    case IR_call: return check_call(c);
    case IR_getitem: return check_item(c);
    case IR_opaque: return n->target || broken(c, "operators", "a call without a name");
    case IR_output: return !n->next || broken(c, "output last", "'%s' follows it", n->next->name);
    default: return broken(c, "kinds", "there is no kind %d of node", n->kind);
    }
}

static bool check_all(check *c)
{
    const ir_graph *g = c->g;
    size_t inputs = 0;
    int count = 0;

    if (!g->output)
        return broken(c, "one output", "it returns nothing yet");
    for (const ir_node *n = g->first, *prev = NULL; n; prev = n, n = n->next) {
        c->n = n;
        if (n->prev != prev || ++count > g->nnode)
            return broken(c, "list", "the list of nodes is not one list of %d", g->nnode);
        if (n->graph != g || map_get(&g->names, n->name) != n)
            return broken(c, "unique names", "another node has its name, or it is not of this graph");
        if (n->kind == IR_output && n != g->output)
            return broken(c, "one output", "there is another");
        ir_each_operand(n, check_operand, c);
        if (!c->ok || !check_node(c, &inputs) || !check_uses(c) || !check_subs(c))
            return false;
        *slot_of(c, n) = n;
    }
    c->n = NULL;
    if (count != g->nnode || g->last != g->output)
        return broken(c, "list", "%d nodes, but %d are counted, or the output is not the last", count,
                      g->nnode);
    if (inputs != g->inputs.n)
        return broken(c, "inputs first", "%zu inputs, but %zu are listed", inputs, g->inputs.n);
    if (c->slots)
        return broken(c, "use lists", "operands and use entries differ by %lld", (long long)c->slots);
    return true;
}

/* What is printed reads back to the same text. */
static bool same_text(check *c)
{
    strbuf first = { 0 }, second = { 0 };
    tp_err why = { 0 };
    ir_print(&first, c->g, IR_PRINT_all);
    ir_graph *back = ir_parse(strbuf_str(&first), first.n, "graph", NULL, &why);
    if (back)
        ir_print(&second, back, IR_PRINT_all);
    bool ok = back && !strcmp(strbuf_str(&first), strbuf_str(&second));
    if (!ok) {
        const char *p = strbuf_str(&first), *q = back ? strbuf_str(&second) : p, *from = p;
        for (; *p && *p == *q; p++, q++) /* to the first line that differs */
            from = *p == '\n' ? p + 1 : from;
        int n = (int)strcspn(from, "\n"), m = (int)strcspn(q - (p - from), "\n");
        broken(c, "text", "%s\n%.*s\n%.*s", back ? "it reads back differently" : why.msg, n, from, m,
               q - (p - from));
    }
    ir_graph_free(back);
    strbuf_free(&first);
    strbuf_free(&second);
    return ok;
}

static bool verify(const ir_graph *g, tp_err *err, bool all, bool text)
{
    tp_err own = { 0 };
    check c = { .g = g, .err = err ? err : &own, .all = all, .ok = true };
    size_t cap = 16;
    while (cap < (size_t)g->nnode * 2)
        cap *= 2;
    c.mask = cap - 1;
    c.seen = mem_zalloc(sizeof *c.seen * cap);
    bool ok = check_all(&c);
    free(c.seen);
    return ok && (!text || same_text(&c));
}
bool ir_verify(const ir_graph *g, tp_err *err)
{
    return verify(g, err, true, env_get(ENV_check_text) != NULL);
}
bool ir_verify_changed(const ir_graph *g, tp_err *err)
{
    bool text = env_get(ENV_check_text) != NULL;
    return verify(g, err, text, text);
}
