/* graph.c - numbers, strings and graphs as bytes. Graphs with symbols are stored as text, which carries what is known of
 * the symbols; others as records, which read ten times faster: nothing is inferred anew. */
#define _GNU_SOURCE
#include "compile/cache/plan.h"
#include "sym/env.h"
#include "tensor/dtype.h"

/* `written` is not stored: only captured graphs have it, and only their view in Python looks at it. */
_Static_assert(sizeof(ir_node) == 168, "say here how the disk cache stores the new field of a node");

enum { MAX_ITEMS = 1 << 22, MAX_CONST = 4 << 20 };

/* --- numbers and strings
 * ----------------------------------------------------------------------------------------------------- */
void io_put(strbuf *b, int64_t v)
{
    uint64_t u = (uint64_t)v << 1 ^ (uint64_t)(v >> 63); /* small numbers of either sign are short */
    if (TP_UNLIKELY(b->cap - b->n <= 10))
        strbuf_grow(b, 10);
    char *p = b->s + b->n;
    for (; TP_UNLIKELY(u >= 128); u >>= 7)
        *p++ = (char)(u | 128);
    *p++ = (char)u;
    *p = 0;
    b->n = (size_t)(p - b->s);
}

void io_put_bytes(strbuf *b, const void *p, size_t n)
{
    io_put(b, (int64_t)n);
    strbuf_addn(b, p, n);
}

void io_put_sym(strbuf *b, symint v)
{
    int64_t lo, hi;
    if (sym_is_expr(v)) { /* a symbol that became a number is none in the text of the graph, either */
        v = sym_simplify(v);
        sym_range(v, &lo, &hi);
        if (sym_is_expr(v) && lo == hi)
            v = lo;
    }
    io_put(b, sym_is_expr(v));
    if (sym_is_expr(v)) {
        strbuf t = { 0 };
        sym_print(&t, v);
        io_put_bytes(b, strbuf_str(&t), t.n);
        strbuf_free(&t);
    } else
        io_put(b, v);
}

int64_t io_get(io_in *r)
{
    uint64_t u = 0;
    for (int shift = 0; !r->bad; shift += 7) {
        if (r->p >= r->e || shift > 63) {
            r->bad = true;
            break;
        }
        uint8_t c = (uint8_t)*r->p++;
        u |= (uint64_t)(c & 127) << shift;
        if (c < 128)
            return (int64_t)(u >> 1) ^ -(int64_t)(u & 1);
    }
    return 0;
}

int64_t io_get_in(io_in *r, int64_t lo, int64_t hi)
{
    int64_t v = io_get(r);
    if (v >= lo && v < hi)
        return v;
    r->bad = true;
    return lo > 0 ? lo : 0;
}

const char *io_get_bytes(io_in *r, size_t *n)
{
    int64_t k = io_get(r);
    if (r->bad || k < 0 || k > r->e - r->p) {
        r->bad = true;
        *n = 0;
        return "";
    }
    const char *p = r->p;
    r->p += k;
    *n = (size_t)k;
    return p;
}

symint io_get_sym(io_in *r, sym_env *env)
{
    symint v = 0;
    if (!io_get_in(r, 0, 2)) {
        v = io_get(r);
        r->bad |= sym_is_expr(v);
        return r->bad ? 0 : v;
    }
    size_t n;
    const char *s = io_get_bytes(r, &n);
    tp_err err = { 0 };
    if (r->bad || !env || !sym_parse(env, s, n, &v, &err))
        r->bad = true;
    return r->bad ? 0 : v;
}

/* --- graphs
 * ------------------------------------------------------------------------------------------------------------------ */
static int const_index(const ir_graph *from, const tp_tensor *t)
{
    int i = 0;
    if (from)
        IR_EACH (n, from) {
            if (n->kind != IR_const)
                continue;
            if (n->konst == t)
                return i;
            i++;
        }
    return -1;
}

static ir_node *const_at(const ir_graph *from, int64_t at)
{
    if (from)
        IR_EACH (n, from) {
            if (n->kind == IR_const && !at--)
                return n;
        }
    return NULL;
}

static uint64_t names_hash(const ir_graph *g) /* of all nodes in order */
{
    uint64_t h = 1;
    IR_EACH (n, g) {
        h = hash_bytes(n->name, strlen(n->name), h);
    }
    return h;
}

static bool put_const(strbuf *b, const ir_node *n, const ir_graph *from, tp_err *err)
{
    if (!n->konst || tensor_is_fake(n->konst))
        return err_set(err, ERR_notimpl, "the constant '%s' has no bytes", n->name);
    int at = const_index(from, n->konst);
    io_put(b, at);
    if (at >= 0)
        return true;
    tp_tensor *t = tensor_contiguous(n->konst, err);
    if (!t)
        return false;
    size_t bytes = (size_t)t->numel * dtype_size((dtype)t->dt);
    bool ok = bytes <= MAX_CONST ||
              err_set(err, ERR_notimpl, "the constant '%s' is %zu bytes", n->name, bytes);
    io_put(b, n->konst->flags & TF_wrapped ? 1 : 0);
    if (ok)
        io_put_bytes(b, tensor_host(t), bytes);
    tensor_unref(t);
    return ok;
}

static bool get_const(io_in *r, ir_node *n, const ir_graph *from, tp_err *err)
{
    int64_t at = io_get_in(r, -1, MAX_ITEMS);
    const tp_tensor *ty = ir_type(n);
    tp_tensor *k = NULL;
    if (r->bad || !ty)
        return err_set(err, ERR_value, "a constant does not read back");
    if (at >= 0) {
        const ir_node *c = const_at(from, at);
        if (!c || !c->konst || c->konst->dt != ty->dt || !tensor_same_size(c->konst, ty))
            return err_set(err, ERR_value, "constant '%s' is another one", n->name);
        k = tensor_ref(c->konst);
    } else {
        bool wrapped = io_get_in(r, 0, 2);
        size_t bytes;
        const char *p = io_get_bytes(r, &bytes);
        if (r->bad || !sym_all_const(ty->size, ty->ndim) || !sym_all_const(ty->stride, ty->ndim) ||
            bytes != (size_t)ty->numel * dtype_size((dtype)ty->dt))
            return err_set(err, ERR_value, "constant '%s' has other bytes", n->name);
        tp_tensor *flat = tensor_new((dtype)ty->dt, ty->ndim, ty->size, err);
        k = flat ? tensor_new_strided((dtype)ty->dt, ty->ndim, ty->size, ty->stride, tensor_device(ty), err)
                 : NULL;
        if (k && bytes)
            memcpy(tensor_host(flat), p, bytes);
        bool ok = k && tensor_copy(k, flat, err);
        tensor_unref(flat);
        if (!ok) {
            tensor_unref(k);
            return false;
        }
        if (wrapped)
            k->flags |= TF_wrapped;
    }
    n->konst = k;
    vec_push(&n->graph->keep, k);
    return true;
}

/* Nothing in it may point into this process. */
static bool portable(const ir_graph *g, tp_err *err)
{
    IR_EACH (n, g) {
        if (n->kind == IR_opaque)
            return err_set(err, ERR_notimpl, "it calls '%s', which lives outside", n->target);
        for (int i = 0; i < n->narg; i++)
            if (n->arg[i].kind == VAL_graph || n->arg[i].kind == VAL_tensor || n->arg[i].kind == VAL_tensors)
                return err_set(err, ERR_notimpl, "'%s' has an argument that cannot be stored", n->name);
    }
    return true;
}

/* ---- as text ---- */
static void put_text(strbuf *b, const ir_graph *g)
{
    strbuf t = { 0 };
    ir_graph *w = (ir_graph *)g;
    const char *name = w->name;
    w->name = "forward"; /* names of graphs count up in every process */
    ir_print(&t, g, IR_PRINT_all | IR_PRINT_unread);
    w->name = name;
    io_put_bytes(b, strbuf_str(&t), t.n);
    strbuf_free(&t);
}

/* ---- as records ---- */
typedef struct gwriter {
    strbuf strings, locs, nodes;
    map string_at, loc_at, loc_ptr, storage_at;
    int32_t *node_at; /* by id, from 1 */
    int64_t nstring, nloc, nstorage;
    bool key; /* to be compared, not read: without what does not decide how it compiles */
} gwriter;

static void put_string(gwriter *w, strbuf *b, const char *s) /* 0: NULL */
{
    if (!s) {
        io_put(b, 0);
        return;
    }
    size_t n = strlen(s);
    int64_t at = (int64_t)(intptr_t)map_addn(&w->string_at, s, n, (void *)(intptr_t)(w->nstring + 1));
    if (!at) {
        at = ++w->nstring;
        io_put_bytes(&w->strings, s, n);
    }
    io_put(b, at);
}
/* Names of nodes are all different. */
static void put_name(gwriter *w, const char *s)
{
    io_put_bytes(&w->strings, s, strlen(s));
    io_put(&w->nodes, ++w->nstring);
}

static int64_t loc_index(gwriter *w, const ir_loc *l) /* 0: none */
{
    if (!l)
        return 0;
    int64_t at = (int64_t)(intptr_t)map_geti(&w->loc_ptr, (uintptr_t)l);
    if (at)
        return at;
    strbuf one = { 0 };
    io_put(&one, loc_index(w, l->outer));
    put_string(w, &one, l->file);
    put_string(w, &one, l->func);
    put_string(w, &one, l->code);
    io_put(&one, l->line);
    io_put(&one, l->library);
    io_put(&one, l->unread);
    io_put(&one, l->calls);
    at = (int64_t)(intptr_t)map_addn(&w->loc_at, one.s, one.n, (void *)(intptr_t)(w->nloc + 1));
    if (!at) {
        at = ++w->nloc;
        strbuf_addn(&w->locs, one.s, one.n);
    }
    map_puti(&w->loc_ptr, (uintptr_t)l, (void *)(intptr_t)at);
    strbuf_free(&one);
    return at;
}

static bool put_type(gwriter *w, const tp_tensor *t)
{
    strbuf *b = &w->nodes;
    if (!t) {
        io_put(b, -1);
        return true;
    }
    if (!sym_all_const(t->size, t->ndim) || !sym_all_const(t->stride, t->ndim) || sym_is_expr(t->offset) ||
        sym_is_expr(t->storage->nbytes) || tensor_device(t).kind != DEVICE_CPU.kind)
        return false;
    uintptr_t id = (uintptr_t)t->storage;
    int64_t at = (int64_t)(intptr_t)map_addn(&w->storage_at, &id, sizeof id,
                                             (void *)(intptr_t)(w->nstorage + 1));
    io_put(b, t->dt);
    io_put(b, t->flags & TF_wrapped ? 1 : 0);
    io_put(b, t->ndim);
    for (int d = 0; d < t->ndim; d++) {
        io_put(b, t->size[d]);
        io_put(b, t->stride[d]);
    }
    io_put(b, t->offset);
    io_put(b, at);
    if (!at) {
        w->nstorage++;
        io_put(b, w->key ? 0 : t->storage->nbytes);
    }
    return true;
}

static bool put_val(gwriter *w, const tp_val *v)
{
    strbuf *b = &w->nodes;
    io_put(b, v->kind);
    switch (v->kind) {
    case VAL_none: return true;
    case VAL_tensor: return put_type(w, v->t);
    case VAL_int:
    case VAL_dtype:
    case VAL_layout:
    case VAL_memfmt: io_put(b, v->i); return v->kind != VAL_int || !sym_is_expr(v->i);
    case VAL_float: io_put_bytes(b, &v->f, sizeof v->f); return true;
    case VAL_bool: io_put(b, v->b); return true;
    case VAL_str: put_string(w, b, v->s); return true;
    case VAL_device: io_put_bytes(b, &v->dev, sizeof v->dev); return true;
    case VAL_ints:
        io_put(b, v->n);
        for (int i = 0; i < v->n; i++)
            io_put(b, v->ints[i]);
        return sym_all_const(v->ints, v->n);
    case VAL_complex:
    case VAL_floats: io_put_bytes(b, v->floats, sizeof(double) * (size_t)v->n); return true;
    case VAL_bools: io_put_bytes(b, v->bools, sizeof(bool) * (size_t)v->n); return true;
    case VAL_tensors:
        io_put(b, v->n);
        for (int i = 0; i < v->n; i++)
            if (!put_type(w, v->ts[i]))
                return false;
        return true;
    case VAL_node: io_put(b, w->node_at[v->node->id]); return true;
    case VAL_nodes:
        io_put(b, v->n);
        for (int i = 0; i < v->n; i++)
            io_put(b, v->nodes[i] ? w->node_at[v->nodes[i]->id] : 0);
        return true;
    default: return false;
    }
}

static bool put_records(strbuf *b, const ir_graph *g, bool key)
{
    gwriter w = { .key = key };
    bool ok = true;
    int32_t at = 0;
    w.node_at = mem_zalloc(sizeof *w.node_at * (size_t)MAX(g->next_id, 1));
    strbuf_grow(&w.nodes, (size_t)g->nnode * 48);
    strbuf_grow(&w.strings, (size_t)g->nnode * 16);
    IR_EACH (n, g) {
        io_put(&w.nodes, n->kind);
        io_put(&w.nodes, n->variant);
        io_put(&w.nodes, key ? 0 : n->spell);
        io_put(&w.nodes, n->op);
        put_name(&w, n->name);
        put_string(&w, &w.nodes, n->target);
        put_string(&w, &w.nodes, n->meta);
        io_put(&w.nodes, loc_index(&w, n->loc));
        ok = ok && put_val(&w, &n->val);
        io_put(&w.nodes, n->narg);
        for (int i = 0; i < n->narg && ok; i++)
            ok = put_val(&w, &n->arg[i]);
        w.node_at[n->id] = ++at;
    }
    if (ok) {
        io_put(b, g->grad_mode);
        io_put(b, g->style);
        io_put(b, w.nstring);
        strbuf_addn(b, strbuf_str(&w.strings), w.strings.n);
        io_put(b, w.nloc);
        strbuf_addn(b, strbuf_str(&w.locs), w.locs.n);
        io_put(b, w.nstorage);
        io_put(b, g->nnode);
        strbuf_addn(b, strbuf_str(&w.nodes), w.nodes.n);
    }
    strbuf_free(&w.strings);
    strbuf_free(&w.locs);
    strbuf_free(&w.nodes);
    map_free(&w.string_at);
    map_free(&w.loc_at);
    map_free(&w.loc_ptr);
    map_free(&w.storage_at);
    free(w.node_at);
    return ok;
}

typedef struct greader {
    io_in *r;
    ir_graph *g;
    const char **string;
    ir_loc *loc;
    tp_storage **storage; /* counts held while reading */
    ir_node **node;
    int64_t nstring, nloc, nstorage, mstorage, nnode;
    VEC(tp_val) args;
} greader;

static const char *get_string(greader *x)
{
    int64_t at = io_get_in(x->r, 0, x->nstring + 1);
    return at ? x->string[at - 1] : NULL;
}

static tp_tensor *get_type(greader *x, bool *none) /* one count */
{
    io_in *r = x->r;
    int64_t dt = io_get_in(r, -1, DT_COUNT);
    *none = dt < 0;
    if (*none || r->bad)
        return NULL;
    bool wrapped = io_get_in(r, 0, 2);
    int ndim = (int)io_get_in(r, 0, TP_MAX_DIMS + 1);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    for (int d = 0; d < ndim; d++) {
        size[d] = io_get_in(r, 0, INT64_C(1) << 60);
        stride[d] = io_get_in(r, -(INT64_C(1) << 60), INT64_C(1) << 60);
    }
    symint offset = io_get_in(r, 0, INT64_C(1) << 60);
    int64_t at = io_get_in(r, 0, x->nstorage + 1);
    if (!at) {
        int64_t bytes = io_get_in(r, 0, INT64_C(1) << 60);
        if (r->bad || x->nstorage >= x->mstorage) {
            r->bad = true;
            return NULL;
        }
        x->storage[x->nstorage++] = storage_new_fake(bytes, DEVICE_CPU);
        at = x->nstorage;
    }
    if (r->bad)
        return NULL;
    tp_tensor *t = tensor_on(x->storage[at - 1], (dtype)dt, ndim, size, stride, offset);
    if (wrapped)
        t->flags |= TF_wrapped;
    return t;
}

static ir_node *get_operand(greader *x, bool none)
{
    int64_t at = io_get_in(x->r, none ? 0 : 1, x->nnode + 1);
    return x->r->bad || !at ? NULL : x->node[at - 1];
}

static tp_val get_val(greader *x,
                      bool type) /* lists live in the graph's arena, those of types are malloced */
{
    io_in *r = x->r;
    arena *a = &x->g->mem;
    tp_val v = { .kind = (uint8_t)io_get_in(r, 0, VAL_graph) };
    bool none;
    size_t n;
    const char *p;
    if (type && v.kind > VAL_bool && v.kind != VAL_tensors) {
        r->bad = true;
        return vNone;
    }
    switch (v.kind) {
    case VAL_none: break;
    case VAL_tensor:
        v.t = get_type(x, &none);
        if (!v.t || !type) {
            tensor_unref(v.t);
            r->bad = true;
            v = vNone;
        }
        break;
    case VAL_int: v.i = io_get(r), r->bad |= sym_is_expr(v.i); break;
    case VAL_dtype: v.i = io_get_in(r, -1, DT_COUNT); break;
    case VAL_layout: v.i = io_get_in(r, 0, 1); break;
    case VAL_memfmt: v.i = io_get_in(r, 0, MF_channels_last_3d + 1); break;
    case VAL_bool: v.b = io_get_in(r, 0, 2); break;
    case VAL_str: v.s = get_string(x); break;
    case VAL_float:
    case VAL_device:
        p = io_get_bytes(r, &n);
        if (n != (v.kind == VAL_float ? sizeof v.f : sizeof v.dev))
            r->bad = true;
        else if (v.kind == VAL_float)
            memcpy(&v.f, p, n);
        else
            memcpy(&v.dev, p, n);
        break;
    case VAL_ints: {
        v.n = (int32_t)io_get_in(r, 0, MIN(r->e - r->p + 1, MAX_ITEMS));
        symint *iv = arena_alloc(a, sizeof *iv * (size_t)MAX(v.n, 1));
        for (int i = 0; i < v.n; i++) {
            iv[i] = io_get(r);
            r->bad |= sym_is_expr(iv[i]);
        }
        v.ints = iv;
        break;
    }
    case VAL_floats:
    case VAL_complex:
    case VAL_bools:
        p = io_get_bytes(r, &n);
        v.n = (int32_t)(n / (v.kind == VAL_bools ? sizeof(bool) : sizeof(double)));
        r->bad |= v.kind == VAL_complex && v.n != 2;
        v.floats = arena_dup(a, p, MAX(n, 1));
        for (int i = 0; v.kind == VAL_bools && i < v.n; i++)
            r->bad |= (unsigned char)p[i] > 1;
        break;
    case VAL_tensors: {
        v.n = (int32_t)io_get_in(r, 0, MIN(r->e - r->p + 1, MAX_ITEMS));
        v.ts = mem_zalloc(sizeof *v.ts * (size_t)MAX(v.n, 1));
        for (int i = 0; i < v.n && !r->bad; i++)
            v.ts[i] = get_type(x, &none);
        if (!type) {
            val_clear(&v);
            r->bad = true;
            v = vNone;
        }
        break;
    }
    case VAL_node: v.node = get_operand(x, false); break;
    case VAL_nodes: {
        v.n = (int32_t)io_get_in(r, 0, MIN(r->e - r->p + 1, MAX_ITEMS));
        v.nodes = arena_zalloc(a, sizeof *v.nodes * (size_t)MAX(v.n, 1));
        for (int i = 0; i < v.n; i++)
            v.nodes[i] = get_operand(x, true);
        break;
    }
    default: r->bad = true;
    }
    if (r->bad && v.kind != VAL_tensors && v.kind != VAL_tensor)
        v = vNone;
    return v;
}

static void get_node(greader *x)
{
    io_in *r = x->r;
    ir_graph *g = x->g;
    int kind = (int)io_get_in(r, 0, IR_output + 1);
    int variant = (int)io_get_in(r, 0, 8), spell = (int)io_get_in(r, 0, 256),
        op = (int)io_get_in(r, 0, OP_COUNT);
    const char *name = get_string(x), *target = get_string(x), *meta = get_string(x);
    int64_t loc = io_get_in(r, 0, x->nloc + 1);
    tp_val val = get_val(x, true);
    int narg = (int)io_get_in(r, 0, MIN(r->e - r->p + 1, MAX_ITEMS));
    x->args.n = 0;
    for (int i = 0; i < narg && !r->bad; i++) {
        tp_val v = get_val(x, false);
        vec_push(&x->args, v);
    }
    bool fits = name && kind != IR_opaque &&
                (kind != IR_call || narg == op_row_of((op_id)op)->schema.nparam) &&
                (kind != IR_getitem || (narg == 2 && x->args.n == 2 && x->args.at[0].kind == VAL_node &&
                                        x->args.at[1].kind == VAL_int)) &&
                (kind != IR_placeholder || target) && !(kind == IR_output && val.kind != VAL_none) &&
                (kind != IR_const || (val.kind == VAL_tensor && target));
    if (r->bad || !fits) {
        if (val.kind == VAL_tensor || val.kind == VAL_tensors)
            val_clear(&val);
        r->bad = true;
        return;
    }
    ir_node *n = NULL;
    g->wanted = name;
    switch (kind) {
    case IR_placeholder: n = ir_add_placeholder_val(g, name, target, val); break;
    case IR_const:
        n = ir_add_const(g, name, val.t); /* the type stands for the bytes, which come last */
        tensor_unref(n->konst);
        g->keep.n--; /* the fake that was to be kept as the constant */
        n->konst = NULL;
        tensor_unref(val.t);
        n->target = target;
        break;
    case IR_call: n = ir_add_call(g, (op_id)op, (op_variant)variant, x->args.at, narg, val); break;
    case IR_getitem:
        n = ir_add_getitem(g, x->args.at[0].node, (int)x->args.at[1].i, val);
        n->loc = NULL;
        break;
    default: n = ir_set_output(g, x->args.at, narg); break;
    }
    n->spell = (uint8_t)spell;
    n->loc = loc ? &x->loc[loc - 1] : NULL;
    n->meta = meta;
    x->node[x->nnode++] = n;
}

static ir_graph *get_records(io_in *r)
{
    ir_graph *g = ir_graph_new("forward");
    greader x = { .r = r, .g = g };
    g->grad_mode = io_get_in(r, 0, 2);
    g->style = (uint8_t)io_get_in(r, 0, 4);
    int64_t n = io_get_in(r, 0, MIN(r->e - r->p + 1, MAX_ITEMS));
    x.string = arena_zalloc(&g->mem, sizeof *x.string * (size_t)MAX(n, 1));
    for (; x.nstring < n && !r->bad; x.nstring++) {
        size_t len;
        const char *s = io_get_bytes(r, &len);
        x.string[x.nstring] = arena_strndup(&g->mem, s, len);
    }
    n = io_get_in(r, 0, MIN(r->e - r->p + 1, MAX_ITEMS));
    x.loc = arena_zalloc(&g->mem, sizeof *x.loc * (size_t)MAX(n, 1));
    for (; x.nloc < n && !r->bad; x.nloc++) {
        ir_loc *l = &x.loc[x.nloc];
        int64_t outer = io_get_in(r, 0, x.nloc + 1);
        l->outer = outer ? &x.loc[outer - 1] : NULL;
        l->file = get_string(&x);
        l->func = get_string(&x);
        l->code = get_string(&x);
        l->line = (int)io_get_in(r, INT32_MIN, INT32_MAX);
        l->library = (int)io_get_in(r, 0, l->file ? (int64_t)strlen(l->file) + 1 : 1);
        l->unread = io_get_in(r, 0, 2);
        l->calls = io_get_in(r, 0, 2);
    }
    x.mstorage = io_get_in(r, 0, MIN(r->e - r->p + 1, MAX_ITEMS));
    x.storage = mem_zalloc(sizeof *x.storage * (size_t)MAX(x.mstorage, 1));
    n = io_get_in(r, 1, MIN(r->e - r->p + 1, MAX_ITEMS));
    x.node = mem_zalloc(sizeof *x.node * (size_t)MAX(n, 1));
    while (x.nnode < n && !r->bad)
        get_node(&x);
    for (int64_t i = 0; i < x.nstorage; i++)
        storage_unref(x.storage[i]);
    free(x.storage);
    free(x.node);
    vec_free(&x.args);
    if (r->bad || !g->output) {
        ir_graph_free(g);
        return NULL;
    }
    return g;
}

/* ---- either ---- */
void io_put_key(strbuf *b, const ir_graph *g)
{
    bool records = !g->env || !sym_env_n_symbols(g->env);
    IR_EACH (n, g) {
        records &= n->kind != IR_const;
    } /* the text names their digests */
    if (records && put_records(b, g, true))
        return;
    ir_graph *w = (ir_graph *)g; /* as it was afterwards */
    const char *name = w->name;
    uint8_t style = w->style;
    w->name = "forward";       /* names of graphs count up in every process */
    w->style |= IR_STYLE_aten; /* calls by their rows: how they are spelled follows from the user's line */
    ir_print(b, g, IR_PRINT_all | IR_PRINT_unread);
    w->name = name;
    w->style = style;
}

bool io_put_graph(strbuf *b, const ir_graph *g, const ir_graph *from, tp_err *err)
{
    if (!portable(g, err))
        return false;
    size_t at = b->n;
    bool symbols = g->env && sym_env_n_symbols(g->env) > 0;
    io_put(b, symbols);
    if (symbols)
        put_text(b, g);
    else if (!put_records(b, g, false)) {
        b->n = at;
        io_put(b, 1);
        put_text(b, g);
    }
    io_put(b, g->nnode);
    io_put(b, (int64_t)(names_hash(g) >> 1));
    bool ok = true;
    IR_EACH (n, g) {
        if (ok && n->kind == IR_const)
            ok = put_const(b, n, from, err);
    }
    return ok;
}

ir_graph *io_get_graph(io_in *r, const char *name, const ir_graph *from, tp_err *err)
{
    ir_graph *g = NULL;
    if (io_get_in(r, 0, 2)) {
        size_t n;
        const char *text = io_get_bytes(r, &n);
        g = r->bad ? NULL : ir_parse(text, n, "cache", NULL, err);
        if (g)
            ir_unread(g);
    } else if (!r->bad)
        g = get_records(r);
    int64_t nnode = io_get(r);
    uint64_t hash = (uint64_t)io_get(r);
    bool ok = g && !r->bad;
    if (!ok && !err_is_set(err))
        err_set(err, ERR_value, "a graph does not read back");
    if (ok && (g->nnode != nnode || names_hash(g) >> 1 != hash))
        ok = err_set(err, ERR_value, "a graph reads back with other nodes");
    if (ok)
        IR_EACH (c, g) {
            if (ok && c->kind == IR_const)
                ok = get_const(r, c, from, err);
        }
    if (ok)
        g->name = arena_strdup(&g->mem, name);
    else if (g) {
        ir_graph_free(g);
        g = NULL;
    }
    return g;
}
