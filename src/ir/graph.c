/* graph.c - nodes, names, use lists. */
#include "ir/graph.h"
#include "events/events.h"
#include "ir/text.h"
#include <stdio.h>
#include "base/utf8.h"
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
    ev_wait(g);
    for (size_t i = 0; i < g->keep.n; i++)
        tensor_unref(g->keep.at[i]);
    vec_free(&g->keep);
    for (size_t i = 0; i < g->subs.n; i++)
        ir_graph_free(g->subs.at[i]);
    vec_free(&g->subs);
    vec_free(&g->inputs);
    map_free(&g->names);
    map_free(&g->name_next);
    arena_free(&g->mem);
    if (g->env_refs && !__atomic_sub_fetch(g->env_refs, 1, __ATOMIC_ACQ_REL)) {
        sym_env_free(g->env);
        free(g->env_refs);
    }
    free(g);
}

void ir_share_env(ir_graph *g, const ir_graph *with)
{
    g->env = with->env;
    g->env_refs = with->env_refs;
    if (g->env_refs)
        __atomic_add_fetch(g->env_refs, 1, __ATOMIC_RELAXED);
}

/* ---- names ---- */
/* Names that Python uses itself, sorted: a node called like one of these would shadow it in the text form. */
static const char *const reserved[] = {
    "Ellipsis", "False",       "Max",        "Min",       "None",         "NoneType",   "NotImplemented",
    "Sym",      "True",        "abs",        "aiter",     "all",          "and",        "anext",
    "any",      "as",          "ascii",      "assert",    "async",        "await",      "bin",
    "bool",     "break",       "breakpoint", "bytearray", "bytes",        "callable",   "chr",
    "class",    "classmethod", "compile",    "complex",   "continue",     "copyright",  "credits",
    "def",      "del",         "delattr",    "device",    "dict",         "dir",        "divmod",
    "elif",     "else",        "enumerate",  "eval",      "except",       "exec",       "exit",
    "filter",   "finally",     "float",      "for",       "format",       "from",       "frozenset",
    "getattr",  "global",      "globals",    "hasattr",   "hash",         "help",       "hex",
    "id",       "if",          "import",     "in",        "inf",          "input",      "int",
    "is",       "isinstance",  "issubclass", "iter",      "lambda",       "len",        "license",
    "list",     "locals",      "map",        "math",      "max",          "memoryview", "min",
    "nan",      "next",        "nonlocal",   "not",       "object",       "oct",        "open",
    "or",       "ord",         "pass",       "pow",       "print",        "property",   "quit",
    "raise",    "range",       "repr",       "return",    "reversed",     "round",      "self",
    "set",      "setattr",     "slice",      "sorted",    "staticmethod", "str",        "sum",
    "super",    "taper",       "torch",      "try",       "tuple",        "type",       "vars",
    "while",    "with",        "yield",      "zip",
};
static int cmp_str(const void *key, const void *at) { return strcmp(key, *(const char *const *)at); }
static bool is_reserved(const char *s)
{
    if (strchr(s, '_')) /* none of them has one */
        return false;
    return bsearch(s, reserved, COUNT(reserved), sizeof *reserved, cmp_str) != NULL;
}
static bool word_byte(const char *s, size_t n, size_t *len) /* may stand in an identifier */
{
    unsigned char c = (unsigned char)*s;
    *len = 1;
    if (c < 0x80)
        return isalnum(c) || c == '_';
    int k = utf8_decode(s, n, NULL);
    *len = k ? (size_t)k : 1;
    return k > 0;
}

static bool is_letter(char c) { return (unsigned char)((c | 32) - 'a') < 26 || c == '_'; }

/* Runs of other characters become one underscore. */
static char *identifier(arena *a, const char *base)
{
    size_t n = strlen(base), k = 0, len;
    char *r = arena_alloc(a, n + 10);
    if (!n || isdigit((unsigned char)*base))
        r[k++] = '_';
    for (size_t i = 0; i < n; i += len)
        if (word_byte(base + i, n - i, &len)) {
            memcpy(r + k, base + i, len);
            k += len;
        } else if (!k || r[k - 1] != '_')
            r[k++] = '_';
    if (!n) {
        memcpy(r + k, "unnamed", 7);
        k += 7;
    }
    r[k] = 0;
    return r;
}

static size_t decimal(char *out, uintptr_t i) /* every node passes here: no printf */
{
    char d[20];
    int k = 0;
    size_t n;
    do
        d[k++] = (char)('0' + i % 10);
    while (i /= 10);
    for (n = 0; k; n++)
        out[n] = d[--k];
    out[n] = 0;
    return n;
}

/* The length of s where it is an identifier as it stands, as nearly all are; otherwise 0. */
static size_t clean(const char *s, bool *plain) /* plain: without an underscore, so that Python may use it */
{
    size_t n = 0;
    *plain = true;
    for (; is_letter(s[n]) || (n && (unsigned char)(s[n] - '0') < 10); n++)
        *plain &= s[n] != '_';
    return s[n] ? 0 : n;
}

static bool taken(ir_graph *g, const char *name, size_t len, ir_node *n) /* if not, it is n's from now on */
{
    return (n ? map_addn(&g->names, name, len, n) : map_getn(&g->names, name, len)) != NULL;
}

/* sin, sin_1, sin_2, ...; a base that ends in _<digits> counts on from there. Linear overall. */
static const char *unique_name(ir_graph *g, const char *base, ir_node *of)
{
    bool plain;
    size_t n = clean(base, &plain), k, stem;
    if (!n) {
        base = identifier(&g->mem, base);
        n = strlen(base);
    }
    if (!(plain && is_reserved(base)) && !taken(g, base, n, of))
        return arena_strndup(&g->mem, base, n);
    for (k = stem = n; k > 0 && isdigit((unsigned char)base[k - 1]); k--)
        ;
    if (k > 1 && k < n && base[k - 1] == '_')
        stem = k - 1;
    uintptr_t i = (uintptr_t)map_getn(&g->name_next, base, stem);
    char *name = arena_alloc(&g->mem, stem + 22);
    memcpy(name, base, stem);
    name[stem] = '_';
    do
        n = stem + 1 + decimal(name + stem + 1, ++i);
    while (taken(g, name, n, of));
    map_putn(&g->name_next, base, stem, (void *)i);
    return name;
}

const char *ir_unique_name(ir_graph *g, const char *base) { return unique_name(g, base, NULL); }

void ir_rename(ir_node *n, const char *name)
{
    ir_graph *g = n->graph;
    map_deln(&g->names, n->name, strlen(n->name));
    n->name = unique_name(g, name, n);
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
static int n_operands(const tp_val *v) { return v->kind == VAL_node ? 1 : v->kind == VAL_nodes ? v->n : 0; }
static ir_node **operands(tp_val *v) { return v->kind == VAL_node ? &v->node : v->nodes; }

static void link_use(ir_use *u, ir_node *of)
{
    u->next = of->uses;
    u->link = &of->uses;
    if (u->next)
        u->next->link = &u->next;
    of->uses = u;
    of->nuse++;
}

static void unlink_use(ir_use *u)
{
    *u->link = u->next;
    if (u->next)
        u->next->link = u->link;
    (*u->at)->nuse--;
}

static void add_uses(ir_node *n, int i) /* of argument i, which is in place */
{
    int k = n_operands(&n->arg[i]);
    ir_node **at = operands(&n->arg[i]);
    n->slot[i] = k ? arena_alloc(&n->graph->mem, sizeof(ir_use) * (size_t)k) : NULL;
    for (int j = 0; j < k; j++) {
        n->slot[i][j] = (ir_use){ .user = n, .at = &at[j] };
        if (at[j])
            link_use(&n->slot[i][j], at[j]);
    }
}

static void drop_uses(ir_node *n, int i)
{
    int k = n_operands(&n->arg[i]);
    for (int j = 0; j < k; j++)
        if (operands(&n->arg[i])[j])
            unlink_use(&n->slot[i][j]);
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
    case VAL_complex:
    case VAL_floats: r.floats = arena_dup(a, v->floats, sizeof(double) * (size_t)v->n); break;
    case VAL_bools: r.bools = arena_dup(a, v->bools, sizeof(bool) * (size_t)v->n); break;
    case VAL_nodes: r.nodes = arena_dup(a, v->nodes, sizeof(ir_node *) * (size_t)v->n); break;
    case VAL_gen: r = vNone; break; /* the generator's state goes into meta by functionalisation */
    default: break;
    }
    return r;
}

/* Nested graphs belong to the graph that uses them. In the text all of them stand side by side, so that a name is used
 * once in the whole tree: true_graph_0, true_graph_1. */
static bool name_taken(const ir_graph *g, const char *name, const ir_graph *but)
{
    if (g != but && g->parent && !strcmp(g->name, name))
        return true;
    for (size_t i = 0; i < g->subs.n; i++)
        if (name_taken(g->subs.at[i], name, but))
            return true;
    return false;
}
static void settle_name(const ir_graph *root, ir_graph *s)
{
    char *name = identifier(&s->mem, s->name);
    size_t n = strlen(name), stem = n;
    while (stem && name[stem - 1] >= '0' && name[stem - 1] <= '9')
        stem--;
    bool numbered = stem < n && stem && name[stem - 1] == '_' && n - stem < 8;
    int k = numbered ? atoi(name + stem) : 0;
    s->name = name;
    while (is_reserved(s->name) || !strcmp(s->name, "forward") || name_taken(root, s->name, s))
        s->name = numbered ? arena_printf(&s->mem, "%.*s%d", (int)stem, name, ++k)
                           : arena_printf(&s->mem, "%s_%d", name, ++k);
    for (size_t i = 0; i < s->subs.n; i++)
        settle_name(root, s->subs.at[i]);
}
static void adopt(ir_graph *g, const tp_val *v)
{
    if (v->kind != VAL_graph || !v->graph || v->graph->parent)
        return;
    ir_graph *root = g;
    v->graph->parent = g;
    vec_push(&g->subs, v->graph);
    while (root->parent)
        root = root->parent;
    settle_name(root, v->graph);
}

void ir_set_arg(ir_node *n, int i, tp_val v)
{
    drop_uses(n, i);
    n->arg[i] = val_copy(&n->graph->mem, &v);
    adopt(n->graph, &v);
    add_uses(n, i);
    n->typed = false;
}

void ir_replace_uses(ir_node *old, ir_node *with)
{
    if (old == with)
        return;
    bool alike = ir_type_equal(&old->val, &with->val);
    while (old->uses) {
        ir_use *u = old->uses;
        u->user->typed &= alike;
        unlink_use(u);
        *u->at = with;
        link_use(u, with);
    }
}

void ir_erase(ir_node *n)
{
    assert(n->nuse == 0);
    ir_graph *g = n->graph;
    for (int i = 0; i < n->narg; i++)
        drop_uses(n, i);
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

void ir_set_strides(ir_node *n, const symint *stride)
{
    tp_tensor *t = tensor_fake_of(n->val.t);
    memcpy(t->stride, stride, sizeof *stride * (size_t)t->ndim);
    vec_push(&n->graph->keep, t);
    n->val.t = t;
}

void ir_renumber(ir_graph *g)
{
    int i = 0;
    IR_EACH (n, g)
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
    n->name = unique_name(g, g->wanted ? g->wanted : base, n);
    g->wanted = NULL;
    n->narg = narg;
    n->arg = arena_alloc(&g->mem, sizeof(tp_val) * (size_t)MAX(narg, 1));
    n->slot = arena_alloc(&g->mem, sizeof(ir_use *) * (size_t)MAX(narg, 1));
    for (int i = 0; i < narg; i++) {
        n->arg[i] = val_copy(&g->mem, &arg[i]);
        adopt(g, &arg[i]);
        add_uses(n, i);
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
    size_t k = 0;
    for (; r->name[k] && k < sizeof base - 2; k++)
        base[k] = r->name[k] == '.' ? '_' : r->name[k];
    if (v == OPV_inplace)
        base[k++] = '_';
    base[k] = 0;
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

/* ---- devices ---- */
tp_device ir_graph_device(const ir_graph *g)
{
    IR_EACH (n, g) {
        const tp_tensor *t = ir_type(n);
        if (t && tensor_device(t).kind != DEV_cpu)
            return tensor_device(t);
    }
    return DEVICE_CPU;
}

/* ---- copying ---- */
static tp_val remap(arena *a, map *graphs, const tp_val *v)
{
    tp_val r = *v;
    if (v->kind == VAL_node)
        r.node = v->node->data;
    else if (v->kind == VAL_nodes) {
        r.nodes = ARENA_ARR(a, ir_node *, v->n);
        for (int i = 0; i < v->n; i++)
            r.nodes[i] = v->nodes[i] ? v->nodes[i]->data : NULL;
    } else if (v->kind == VAL_graph) {
        r.graph = map_geti(graphs, (uintptr_t)v->graph);
        if (!r.graph) {
            r.graph = ir_graph_copy(v->graph);
            map_puti(graphs, (uintptr_t)v->graph, r.graph);
        }
    }
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

ir_graph *ir_graph_copy(const ir_graph *g)
{
    ir_graph *c = ir_graph_new(g->name);
    map_reserve(&c->names, (size_t)g->nnode);
    ir_share_env(c, g);
    c->grad_mode = g->grad_mode;
    c->backward = g->backward;
    c->style = g->style;
    c->into = arena_dup(&c->mem, g->into, sizeof *g->into * (size_t)g->ninto);
    c->ninto = g->ninto;
    map locs = { 0 }, graphs = { 0 };
    IR_EACH (n, (ir_graph *)g) {
        tp_val *arg = arena_alloc(&c->mem, sizeof(tp_val) * (size_t)MAX(n->narg, 1));
        for (int i = 0; i < n->narg; i++)
            arg[i] = remap(&c->mem, &graphs, &n->arg[i]);
        ir_node *m = node_new(c, (ir_kind)n->kind, n->name, arg, n->narg, ref_val(&n->val));
        m->variant = n->variant;
        m->op = n->op;
        m->loc = ir_loc_copy(&c->mem, &locs, n->loc);
        m->target = n->target ? arena_strdup(&c->mem, n->target) : NULL;
        m->meta = n->meta ? arena_strdup(&c->mem, n->meta) : NULL;
        m->opaque = n->opaque;
        m->spell = n->spell;
        m->written = n->written;
        m->written_back = n->written_back;
        m->silent = n->silent;
        m->late = n->late;
        m->digest = n->digest ? arena_strdup(&c->mem, n->digest) : NULL;
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
    map_free(&locs);
    map_free(&graphs);
    return c;
}
