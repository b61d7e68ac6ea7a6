/* repro.c - copies of graphs and inputs, and graphs rebuilt for other input types. */
#include "debug/repro.h"
#include "grad/tape.h"
#include "ops/random.h"

/* ---- inputs ---- */
typedef struct extent { /* the part of one storage that inputs look at, in bytes */
    tp_storage *from, *to;
    int64_t lo, hi;
} extent;

static void reach(const tp_tensor *t, int64_t *lo, int64_t *hi)
{
    int64_t first = t->offset, last = t->offset, size = (int64_t)dtype_size((dtype)t->dt);
    for (int d = 0; d < t->ndim; d++)
        last += (t->size[d] - 1) * t->stride[d];
    *lo = first * size;
    *hi = t->numel ? (last + 1) * size : *lo;
}

static extent *extent_of(extent *e, int n, const tp_storage *s)
{
    for (int i = 0; i < n; i++)
        if (e[i].from == s)
            return &e[i];
    return NULL;
}

static tp_tensor *cast_like(tp_tensor *t, dtype dt, tp_err *err) /* the same stride order */
{
    tp_tensor *c = tensor_new_strided(dt, t->ndim, t->size, tensor_overlaps_itself(t) ? NULL : t->stride,
                                      DEVICE_CPU, err);
    if (c && !tensor_copy(c, t, err)) {
        tensor_unref(c);
        return NULL;
    }
    return c;
}

void inputs_free(tp_val *in, int n)
{
    for (int i = 0; in && i < n; i++)
        if (in[i].kind == VAL_tensor)
            tensor_unref(in[i].t);
    free(in);
}

tp_val *inputs_copy(const tp_val *in, int n, dtype dt, tp_err *err)
{
    extent *e = mem_zalloc(sizeof *e * (size_t)MAX(n, 1));
    tp_val *out = mem_zalloc(sizeof *out * (size_t)MAX(n, 1));
    int ne = 0;
    bool ok = true;
    for (int i = 0; i < n; i++) {
        out[i] = in[i].kind == VAL_tensor ? vNone : in[i];
        if (in[i].kind != VAL_tensor || tensor_is_fake(in[i].t))
            continue;
        int64_t lo, hi;
        reach(in[i].t, &lo, &hi);
        extent *x = extent_of(e, ne, in[i].t->storage);
        if (!x) {
            e[ne++] = (extent){ in[i].t->storage, NULL, lo, hi };
            continue;
        }
        x->lo = MIN(x->lo, lo);
        x->hi = MAX(x->hi, hi);
    }
    for (int i = 0; i < ne && ok; i++) {
        e[i].lo = e[i].lo / 64 * 64; /* elements of every type stay aligned */
        e[i].to = storage_new(e[i].hi - e[i].lo, DEVICE_CPU, err);
        ok = e[i].to != NULL;
        if (ok && e[i].hi > e[i].lo)
            memcpy(e[i].to->data, (char *)e[i].from->data + e[i].lo, (size_t)(e[i].hi - e[i].lo));
    }
    for (int i = 0; i < n && ok; i++) {
        if (in[i].kind != VAL_tensor)
            continue;
        const tp_tensor *t = in[i].t;
        extent *x = extent_of(e, ne, t->storage);
        tp_tensor *c = x ? tensor_on(x->to, (dtype)t->dt, t->ndim, t->size, t->stride,
                                     t->offset - x->lo / (int64_t)dtype_size((dtype)t->dt))
                         : tensor_fake_of(t);
        if (c && x && dt != DT_none && dtype_is_float((dtype)t->dt) && (dtype)t->dt != dt) {
            tp_tensor *w = cast_like(c, dt, err);
            tensor_unref(c);
            c = w;
        }
        ok = c != NULL;
        if (ok)
            out[i] = vT(c);
    }
    for (int i = 0; i < ne; i++)
        storage_unref(e[i].to);
    free(e);
    if (ok)
        return out;
    inputs_free(out, n);
    return NULL;
}

/* ---- repro ---- */
repro *repro_new(const ir_graph *g, const tp_val *in, int nin, const char *backend)
{
    repro *r = mem_zalloc(sizeof *r);
    r->g = ir_graph_copy(g);
    r->nin = nin;
    r->in = inputs_copy(in, nin, DT_none, NULL);
    if (!r->in) { /* no memory for a copy: the inputs themselves are better than nothing */
        r->in = mem_zalloc(sizeof *r->in * (size_t)MAX(nin, 1));
        for (int i = 0; i < nin; i++)
            r->in[i] = in[i].kind == VAL_tensor ? vT(tensor_ref(in[i].t)) : in[i];
    }
    r->needs_grad = mem_zalloc((size_t)MAX(nin, 1));
    r->backend = mem_strdup(backend);
    r->acc = (acc_opts){ .tol = 1e-3, .equal_nan = true };
    r->seed = gen_default()->s.seed;
    r->offset = gen_default()->s.offset;
    for (int i = 0; i < nin; i++)
        if (in[i].kind == VAL_tensor && grad_requires_grad(in[i].t))
            r->needs_grad[i] = grad_is_leaf(in[i].t) ? 1 : 2;
    return r;
}

repro *repro_copy(const repro *r)
{
    repro *c = repro_new(r->g, r->in, r->nin, r->backend);
    memcpy(c->needs_grad, r->needs_grad, (size_t)r->nin);
    c->inner = r->inner;
    c->accuracy = r->accuracy;
    c->forward_only = r->forward_only;
    c->no_fp64 = r->no_fp64;
    c->seed = r->seed;
    c->offset = r->offset;
    c->state = r->state ? mem_strdup(r->state) : NULL;
    c->setup = r->setup ? mem_strdup(r->setup) : NULL;
    c->options = r->options ? mem_strdup(r->options) : NULL;
    c->acc = r->acc;
    return c;
}

void repro_free(repro *r)
{
    if (!r)
        return;
    inputs_free(r->in, r->nin);
    free(r->needs_grad);
    free(r->backend);
    free(r->state);
    free(r->setup);
    free(r->options);
    ir_graph_free(r->g);
    free(r);
}

bool repro_has_gradients(const repro *r)
{
    for (int i = 0; i < r->nin && r->g->grad_mode && !r->inner && !r->forward_only; i++)
        if (r->needs_grad[i])
            return true;
    return false;
}

int repro_ops(const repro *r)
{
    int n = 0;
    IR_EACH (x, r->g)
        n += x->kind == IR_call || x->kind == IR_opaque;
    return n;
}

/* ---- other input types ---- */
static tp_val mapped(ir_graph *g, const map *to, const tp_val *v)
{
    tp_val r = *v;
    if (v->kind == VAL_node)
        r.node = v->node ? map_geti(to, (uintptr_t)v->node) : NULL;
    else if (v->kind == VAL_nodes) {
        r.nodes = ARENA_ARR(&g->mem, ir_node *, MAX(v->n, 1));
        for (int i = 0; i < v->n; i++)
            r.nodes[i] = v->nodes[i] ? map_geti(to, (uintptr_t)v->nodes[i]) : NULL;
    }
    return r;
}

ir_graph *repro_retype(const ir_graph *g, tp_tensor *const *type, retype_fn change, void *data, tp_err *err)
{
    ir_graph *w = ir_graph_new(g->name);
    map to = { 0 }, locs = { 0 };
    bool ok = true;
    int k = 0;
    w->grad_mode = g->grad_mode;
    w->style = g->style;
    IR_EACH (n, g) {
        ir_node *m = NULL;
        switch (n->kind) {
        case IR_placeholder:
            m = type[k] ? ir_add_placeholder(w, n->name, n->target, type[k])
                        : ir_add_placeholder_val(w, n->name, n->target, n->val);
            k++;
            break;
        case IR_const: m = ir_add_const(w, n->name, n->konst); break;
        case IR_getitem:
            m = ir_build_item(w, map_geti(&to, (uintptr_t)n->arg[0].node), (int)n->arg[1].i, err);
            break;
        case IR_call: {
            tp_val arg[OP_MAX_PARAMS];
            for (int i = 0; i < n->narg; i++)
                arg[i] = mapped(w, &to, &n->arg[i]);
            if (change && !change(data, n, arg))
                break;
            m = ir_build(w, (op_id)n->op, (op_variant)n->variant, arg, n->narg, err);
            break;
        }
        case IR_output: {
            tp_val *out = mem_zalloc(sizeof *out * (size_t)MAX(n->narg, 1));
            for (int i = 0; i < n->narg; i++)
                out[i] = mapped(w, &to, &n->arg[i]);
            m = ir_set_output(w, out, n->narg);
            free(out);
            break;
        }
        default: break; /* calls outside cannot be inferred */
        }
        if (!m) {
            ok = false;
            break;
        }
        if (n->kind != IR_output && n->kind != IR_placeholder && n->kind != IR_const)
            ir_rename(m, n->name);
        m->loc = ir_loc_copy(&w->mem, &locs, n->loc);
        m->spell = n->spell;
        map_puti(&to, (uintptr_t)n, m);
    }
    map_free(&locs);
    map_free(&to);
    if (ok && ir_verify(w, err))
        return w;
    if (err && !err_is_set(err))
        err_set(err, ERR_value, "the graph cannot be built for these types");
    ir_graph_free(w);
    return NULL;
}
