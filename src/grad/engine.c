/* engine.c - backward: gradients flow from the roots to the leaves, step by step.
 * No recursion: the steps that can run wait in a heap, the newest first, so that gradients die soon. */
#include "grad/tape.h"
#include "base/crumb.h"
#include "ops/host.h"
#include <math.h>

/* What one run knows about one step. Runs may nest (a hook calls backward): a step lists its slots. */
typedef struct grad_slot {
    struct grad_run *run;
    grad_node *node;
    int deps;    /* edges whose gradient is still to come */
    int left;    /* scratch of mark_needed */
    bool needed; /* leads to a wanted input */
    bool ready;
    int capture;            /* first of the run's captures at this step, or -1 */
    struct grad_slot *next; /* slot of an enclosing run */
    tp_tensor *g[];         /* gradients so far, counted */
} grad_slot;

typedef struct capture {
    grad_edge e;
    int input;
    int next; /* next capture at the same step, or -1 */
} capture;

typedef struct grad_run {
    op_ctx *cx;
    const grad_options *o;
    bld b;
    arena mem;
    VEC(grad_slot *) all;  /* in order of discovery */
    VEC(grad_slot *) heap; /* ready, by seq */
    capture *cap;
    int ncap;
    tp_err *err;
} grad_run;

static inline grad_slot *slot_find(const grad_run *r, const grad_node *n)
{
    grad_slot *s = n->slot;
    while (s && s->run != r)
        s = s->next;
    return s;
}

static grad_slot *slot_make(grad_run *r, grad_node *n)
{
    grad_slot *s = arena_zalloc(&r->mem, sizeof *s + sizeof(tp_tensor *) * n->nin);
    s->run = r;
    s->node = n;
    s->capture = -1;
    s->next = n->slot;
    n->slot = s;
    vec_push(&r->all, s);
    return s;
}

static void slot_unlink(grad_run *r, grad_slot *s)
{
    grad_slot **p = &s->node->slot;
    while (*p && *p != s)
        p = &(*p)->next;
    if (*p)
        *p = s->next;
}

/* ---- heap: largest seq first ---- */
static void heap_push(grad_run *r, grad_slot *s)
{
    vec_push(&r->heap, s);
    size_t i = r->heap.n - 1;
    while (i) {
        size_t up = (i - 1) / 2;
        if (r->heap.at[up]->node->seq >= s->node->seq)
            break;
        r->heap.at[i] = r->heap.at[up];
        i = up;
    }
    r->heap.at[i] = s;
}

static grad_slot *heap_pop(grad_run *r)
{
    grad_slot *top = r->heap.at[0], *last = vec_pop(&r->heap);
    size_t n = r->heap.n, i = 0;
    if (!n)
        return top;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= n)
            break;
        if (c + 1 < n && r->heap.at[c + 1]->node->seq > r->heap.at[c]->node->seq)
            c++;
        if (r->heap.at[c]->node->seq <= last->node->seq)
            break;
        r->heap.at[i] = r->heap.at[c];
        i = c;
    }
    r->heap.at[i] = last;
    return top;
}

/* ---- fitting and adding gradients ---- */
static bool shape_equal(const tp_tensor *t, const grad_shape *s)
{
    if (t->ndim != s->ndim)
        return false;
    if (!memcmp(t->size, s->dims, sizeof(symint) * t->ndim))
        return true;
    for (int i = 0; i < t->ndim; i++)
        if (!sym_eq(t->size[i], s->dims[i]))
            return false;
    return true;
}

/* Sum g over what broadcasting added to reach its shape. */
static tp_tensor *sum_to(bld *b, tp_tensor *g, int ndim, const symint *size)
{
    symint dims[TP_MAX_DIMS];
    int lead = g->ndim - ndim, n = 0;
    for (int i = 0; i < lead; i++)
        dims[n++] = i;
    for (int i = lead; i < g->ndim; i++)
        if (sym_eq(size[i - lead], 1) && !sym_eq(g->size[i], 1))
            dims[n++] = i;
    if (n)
        g = b_op(b, sum_dim_IntList, vT(g), vIs(dims, n), vB(true));
    if (g && lead > 0)
        g = b_op(b, view, vT(g), vIs(size, ndim));
    return g;
}

tp_tensor *grad_fit(bld *b, tp_tensor *g, const grad_shape *s, const char *fn, int index, tp_err *err)
{
    if (TP_LIKELY(shape_equal(g, s) && g->dt == s->dt))
        return tensor_ref(g);
    if (!shape_equal(g, s)) {
        bool ok = g->ndim >= s->ndim;
        for (int i = 0, lead = g->ndim - s->ndim; ok && i < s->ndim; i++)
            ok = sym_eq(s->dims[i], g->size[lead + i]) || sym_eq(s->dims[i], 1);
        if (!ok) {
            strbuf a = { 0 }, w = { 0 };
            shape_print(&a, g->ndim, g->size);
            shape_print(&w, s->ndim, s->dims);
            err_set(err, ERR_runtime,
                    "Function %s returned an invalid gradient at index %d - got %s but expected shape "
                    "compatible with %s",
                    fn, index, strbuf_str(&a), strbuf_str(&w));
            strbuf_free(&a);
            strbuf_free(&w);
            return NULL;
        }
        g = sum_to(b, g, s->ndim, s->dims);
    }
    if (g && g->dt != s->dt)
        g = b_op(b, to_dtype, vT(g), vDT(s->dt));
    return g && !b->failed ? tensor_ref(g) : NULL;
}

/* Nobody else can see t's memory. */
static bool sole_owner(const tp_tensor *t)
{
    if (t->refs != 1 || t->py)
        return false;
    return t->base ? t->base->refs == 1 && !t->base->py && t->storage->refs == 2 : t->storage->refs == 1;
}

/* *acc = *acc + g where one of them is sparse. Takes g's count. */
static bool add_sparse(tp_tensor **acc, tp_tensor *g, tp_err *err)
{
    tp_tensor *sum = grad_add_sparse(*acc, g, err);
    tensor_unref(g);
    if (!sum)
        return false;
    tensor_unref(*acc);
    *acc = sum;
    return true;
}

/* *acc += g. Takes g's count. */
static bool add_grad(grad_run *r, tp_tensor **acc, tp_tensor *g)
{
    if (!*acc) {
        *acc = g;
        return true;
    }
    if (TP_UNLIKELY(tensor_is_sparse(*acc) || tensor_is_sparse(g)))
        return add_sparse(acc, g, r->err);
    tp_tensor *a = *acc;
    tp_val out[1] = { vNone };
    bool ok;
    if (!r->cx->grad_mode && !tensor_is_fake(a) && !tensor_is_fake(g)) {
        if (!sole_owner(a) && sole_owner(g) && a->dt == g->dt && tensor_is_dense(g)) { /* a + g = g + a */
            tp_tensor *t = a;
            a = *acc = g;
            g = t;
        }
        if (sole_owner(a) && a->dt == g->dt && tensor_same_size(a, g) && tensor_is_dense(a)) {
            ok = ops_call(r->cx, OP_add_Tensor, OPV_inplace, (tp_val[]){ vT(a), vT(g), vI(1) }, out, r->err);
            val_clear(&out[0]);
            tensor_unref(g);
            return ok;
        }
    }
    ok = grad_call(r->cx, OP_add_Tensor, OPV_fn, (tp_val[]){ vT(a), vT(g), vI(1) }, out, r->err);
    tensor_unref(g);
    if (ok) {
        tensor_unref(a);
        *acc = out[0].t;
    }
    return ok;
}

/* May g become leaf's gradient as it is? Its layout must be the leaf's, or contiguous. */
static bool layout_fits(const tp_tensor *leaf, const tp_tensor *g)
{
    if (!tensor_is_dense(leaf))
        return tensor_is_contiguous(g);
    for (int i = 0; i < g->ndim; i++)
        if (!sym_eq(g->size[i], 1) && !sym_eq(g->stride[i], leaf->stride[i]))
            return false;
    return true;
}

static tp_tensor *detached(tp_tensor *g) /* takes g; without history, without a base */
{
    if (!g->ag && !g->base)
        return g;
    tp_tensor *d = tensor_alias(g);
    d->node = g->node;
    d->rec = g->rec;
    tensor_unref(g);
    return d;
}

bool grad_accumulate_into(bld *b, tp_tensor *leaf, tp_tensor *g, bool create_graph, tp_err *err)
{
    grad_meta *m = grad_meta_make(leaf);
    tp_val out[1] = { vNone };
    bool ok = true;

    if (TP_UNLIKELY(tensor_is_sparse(g) || (m->grad && tensor_is_sparse(m->grad)))) {
        if (m->grad)
            return add_sparse(&m->grad, g, err);
        m->grad = g;
        return true;
    }
    if (!m->grad) {
        if (create_graph) {
            ok = grad_call(b->cx, OP_clone, OPV_fn, (tp_val[]){ vT(g), vNone }, out, err);
        } else if (layout_fits(leaf, g) && (tensor_is_fake(g) ? g->refs == 1 : sole_owner(g))) {
            m->grad = detached(g);
            return true;
        } else { /* a copy in the leaf's own layout */
            symint st[TP_MAX_DIMS];
            if (tensor_is_fake(g) || b->cx->rec)
                ok = grad_call(b->cx, OP_clone, OPV_fn, (tp_val[]){ vT(g), vNone }, out, err);
            else {
                if (tensor_is_dense(leaf))
                    memcpy(st, leaf->stride, sizeof(symint) * leaf->ndim);
                else
                    shape_contiguous_strides(leaf->ndim, leaf->size, st);
                tp_tensor *c = tensor_new_strided((dtype)g->dt, g->ndim, g->size, st, tensor_device(g), err);
                ok = c && tensor_copy(c, g, err);
                out[0] = vT(c);
            }
        }
        tensor_unref(g);
        if (!ok) {
            val_clear(&out[0]);
            return false;
        }
        m->grad = create_graph ? out[0].t : detached(out[0].t);
        return true;
    }
    if (create_graph || tensor_is_fake(m->grad) || m->grad->dt != g->dt) {
        ok = grad_call(b->cx, OP_add_Tensor, OPV_fn, (tp_val[]){ vT(m->grad), vT(g), vI(1) }, out, err);
        if (ok) {
            tensor_unref(m->grad);
            m->grad = out[0].t;
        }
    } else {
        ok = grad_call(b->cx, OP_add_Tensor, OPV_inplace, (tp_val[]){ vT(m->grad), vT(g), vI(1) }, out, err);
        val_clear(&out[0]);
    }
    tensor_unref(g);
    return ok;
}

/* ---- hooks ---- */
static bool run_list(grad_hooks *h, tp_tensor **in, int nin, tp_tensor **out, int nout, tp_err *err)
{
    bool ok = true;
    grad_hooks_ref(h); /* a hook may remove itself */
    for (size_t i = 0; ok && i < h->list.n; i++) {
        int64_t id = h->list.at[i].id;
        const char *was = crumb_between(NULL); /* code of the program's */
        ok = h->list.at[i].fn(h->list.at[i].data, in, nin, out, nout, err);
        crumb_between(was);
        if (i < h->list.n && h->list.at[i].id != id)
            i--;
    }
    grad_hooks_unref(h);
    return ok;
}

/* Hooks of the tensor whose gradient g is; they may replace it. */
static bool tensor_hooks(grad_run *r, grad_hooks *h, tp_tensor **g)
{
    if (!*g)
        return true;
    if (h->list.n && !run_list(h, g, 1, NULL, 0, r->err))
        return false;
    if (h->retain && h->owner) {
        grad_meta *m = grad_meta_make(h->owner);
        if (tensor_is_sparse(*g) || (m->grad && tensor_is_sparse(m->grad)))
            return m->grad ? add_sparse(&m->grad, tensor_ref(*g), r->err) : (m->grad = tensor_ref(*g), true);
        if (!m->grad) {
            tp_val out[1];
            if (!grad_call(r->cx, OP_clone, OPV_fn, (tp_val[]){ vT(*g), vNone }, out, r->err))
                return false;
            m->grad = out[0].t;
        } else {
            tp_val out[1];
            if (!grad_call(r->cx, OP_add_Tensor, OPV_fn, (tp_val[]){ vT(m->grad), vT(*g), vI(1) }, out,
                           r->err))
                return false;
            tensor_unref(m->grad);
            m->grad = out[0].t;
        }
    }
    return true;
}

static bool before_hooks(grad_run *r, grad_slot *s)
{
    grad_node *n = s->node;
    if (n->leaf) {
        grad_meta *m = grad_meta_of(grad_acc_tensor(n));
        if (m && m->hooks && !tensor_hooks(r, m->hooks, &s->g[0]))
            return false;
    }
    for (grad_pre *p = n->pre; p; p = p->next)
        if (!tensor_hooks(r, p->hooks, &s->g[p->nr]))
            return false;
    return !n->before || run_list(n->before, s->g, n->nin, NULL, 0, r->err);
}

/* ---- anomaly ---- */
static bool has_nan(const tp_tensor *t)
{
    if (tensor_is_fake(t) || !dtype_is_float((dtype)t->dt) || tensor_device(t).kind != DEV_cpu)
        return false;
    for (int64_t k = 0; k < t->numel; k++)
        if (isnan(elem_get_f((dtype)t->dt, tensor_elem(t, k))))
            return true;
    return false;
}

static bool check_nan(grad_run *r, grad_node *n, tp_tensor **dx)
{
    for (int i = 0; i < n->nedge; i++)
        if (dx[i] && has_nan(dx[i])) {
            if (grad_anomaly_hooks.report)
                grad_anomaly_hooks.report(grad_anomaly_hooks.data, grad_node_name(n), n->where);
            return err_set(r->err, ERR_runtime, "Function '%s' returned nan values in its %dth output.",
                           grad_node_name(n), i);
        }
    return true;
}

/* ---- one step ---- */
static bool deliver(grad_run *r, grad_node *n, int i, tp_tensor *g) /* takes g; may be NULL */
{
    grad_edge *e = &n->edge[i];
    grad_slot *s = e->node ? slot_find(r, e->node) : NULL;
    if (!s) {
        tensor_unref(g);
        return true;
    }
    bool ok = true;
    if (g && s->needed) {
        const grad_shape *want = &e->node->in[e->nr];
        if (want->dt != 255) {
            tp_tensor *f = grad_fit(&r->b, g, want, grad_node_name(n), i, r->err);
            tensor_unref(g);
            g = f;
            ok = g != NULL;
        }
        ok = ok && add_grad(r, &s->g[e->nr], g);
    } else
        tensor_unref(g);
    if (--s->deps == 0 && ok) {
        s->ready = true;
        heap_push(r, s);
    }
    return ok;
}

static bool fill_zeros(grad_run *r, grad_slot *s)
{
    grad_node *n = s->node;
    for (int i = 0; i < n->nin; i++)
        if (!s->g[i] && n->in[i].dt != 255 && dtype_has_grad((dtype)n->in[i].dt)) {
            grad_shape *w = &n->in[i];
            tp_tensor *z = b_op(&r->b, zeros, vIs(w->dims, w->ndim), vDT(w->dt), vNone, vDev(w->dev));
            if (!z)
                return false;
            s->g[i] = tensor_ref(z);
        }
    return true;
}

static void pool_drop(bld *b)
{
    for (size_t i = 0; i < b->pool.n; i++)
        tensor_unref(b->pool.at[i]);
    b->pool.n = 0;
}

/* A step that stands for many, where somebody looks at a result that others are made of. *opened: it was done here. */
static bool run_open(grad_run *r, grad_slot *s, const bool *need, tp_tensor **dx, bool *opened)
{
    grad_node *n = s->node;
    bool *watched = ARENA_ARR(&r->mem, bool, MAX(n->nin, 1));
    tp_tensor **seen = ARENA_ARR(&r->mem, tp_tensor *, MAX(n->nin, 1));
    memset(watched, 0, sizeof *watched * n->nin);
    memset(seen, 0, sizeof *seen * n->nin);
    for (int c = s->capture; c >= 0; c = r->cap[c].next)
        watched[r->cap[c].e.nr] = true;
    for (const grad_pre *p = n->pre; p; p = p->next)
        watched[p->nr] |= p->hooks->list.n || (p->hooks->retain && p->hooks->owner);
    *opened = n->vt->opens(n, s->g, watched);
    if (!*opened)
        return true;
    if (n->before && !run_list(n->before, s->g, n->nin, NULL, 0, r->err))
        return false;
    grad_step_running = n->seq;
    bool ok = n->vt->open(n, &r->b, s->g, need, watched, dx, seen, r->err);
    for (int c = s->capture; ok && c >= 0; c = r->cap[c].next) {
        tp_tensor *g = seen[r->cap[c].e.nr], **to = &r->o->result[r->cap[c].input];
        if (g && !*to)
            *to = tensor_ref(g);
    }
    for (int i = 0; i < n->nin; i++)
        tensor_unref(seen[i]);
    return ok;
}

/* Is a gradient asked for that passes s by? Better no result than a part of one. */
static bool none_bypassed(grad_run *r, grad_slot *s)
{
    grad_node *n = s->node, *view;
    for (int i = 0; (view = n->vt->bypassed(n, s->g, i)); i++) {
        bool watched = false;
        for (int c = 0; c < r->ncap; c++)
            watched |= r->cap[c].e.node == view;
        for (const grad_pre *p = view->pre; p; p = p->next)
            watched |= p->hooks->list.n || (p->hooks->retain && p->hooks->owner);
        if (watched)
            return err_set(
                r->err, ERR_runtime,
                "a gradient is asked for (by autograd.grad, a hook or retain_grad) with respect to a "
                "view of an input that a compiled function returned along with results made of it. "
                "The compiled backward bypasses the view: ask for the gradient of the input, or "
                "run the function without taper.compile.");
    }
    return true;
}

static bool run_step(grad_run *r, grad_slot *s)
{
    grad_node *n = s->node;
    bool ok = false, any = false, opened = false;
    int ne = n->nedge, sent = 0;
    bool small_need[8], *need = ne > 8 ? mem_alloc((size_t)ne) : small_need;
    tp_tensor *small_dx[8], **dx = ne > 8 ? mem_alloc(sizeof *dx * (size_t)ne) : small_dx;
    memset(dx, 0, sizeof *dx * (size_t)ne);

    for (int i = 0; i < n->nin; i++)
        any |= s->g[i] != NULL;
    for (int i = 0; i < ne; i++) {
        grad_slot *t = n->edge[i].node ? slot_find(r, n->edge[i].node) : NULL;
        need[i] = t && t->needed;
    }
    if (TP_UNLIKELY(n->vt->opens && any && (s->capture >= 0 || n->pre)) && !run_open(r, s, need, dx, &opened))
        goto done;
    if (!opened && (any || n->before) && !before_hooks(r, s))
        goto done;
    for (int c = opened ? -1 : s->capture; c >= 0; c = r->cap[c].next) {
        tp_tensor *g = s->g[r->cap[c].e.nr];
        tp_tensor **to = &r->o->result[r->cap[c].input];
        if (g && !*to)
            *to = tensor_ref(g);
    }
    bool runs = s->needed && (any || n->zeros);
    if (n->leaf && r->o->result)
        runs = false;
    if (runs && n->vt->narrow)
        n->vt->narrow(n, s->g, need);
    if (any && n->vt->bypassed && !none_bypassed(r, s))
        goto done;
    if (runs && !n->leaf &&
        (r->o->ninput || n->vt->narrow)) { /* nothing beyond is wanted: it only delivers */
        bool beyond = false;
        for (int i = 0; i < ne; i++)
            beyond |= need[i];
        runs = beyond;
    }
    if (runs) {
        if (!opened && n->zeros && !fill_zeros(r, s))
            goto done;
        n->last = !r->o->retain_graph && !n->released;
        grad_step_running = n->leaf ? UINT64_MAX : n->seq;
        if (!opened && (!n->vt->apply(n, &r->b, s->g, need, dx, r->err) || r->b.failed)) {
            if (TP_UNLIKELY(r->cx->anomaly) && grad_anomaly_hooks.report && !n->leaf)
                grad_anomaly_hooks.report(grad_anomaly_hooks.data, grad_node_name(n), n->where);
            goto done;
        }
        if (TP_UNLIKELY(r->cx->anomaly) && grad_anomaly_hooks.check_nan && !check_nan(r, n, dx))
            goto done;
        if (n->after && !run_list(n->after, dx, ne, s->g, n->nin, r->err))
            goto done;
        if (n->leaf) {
            grad_meta *m = grad_meta_of(grad_acc_tensor(n));
            tp_tensor *t = grad_acc_tensor(n);
            if (m && m->post && m->post->list.n && !run_list(m->post, &t, 1, NULL, 0, r->err))
                goto done;
        }
        if (!r->o->retain_graph && !n->released) {
            n->released = true;
            if (n->vt->release)
                n->vt->release(n);
        }
    }
    for (int i = 0; i < n->nin; i++) {
        tensor_unref(s->g[i]);
        s->g[i] = NULL;
    }
    pool_drop(&r->b); /* so that what a rule returned belongs to dx alone */
    for (; sent < ne; sent++) {
        tp_tensor *g = dx[sent];
        dx[sent] = NULL;
        if (!deliver(r, n, sent, g))
            goto done;
    }
    pool_drop(&r->b);
    ok = true;
done:
    if (!ok)
        for (int i = 0; i < ne; i++)
            tensor_unref(dx[i]);
    if (need != small_need)
        free(need);
    if (dx != small_dx)
        free(dx);
    return ok;
}

/* ---- preparing ---- */
static void discover(grad_run *r, grad_node *root)
{
    VEC(grad_node *) stack = { 0 };
    if (slot_find(r, root))
        return;
    slot_make(r, root);
    vec_push(&stack, root);
    while (stack.n) {
        grad_node *n = vec_pop(&stack);
        for (int i = 0; i < n->nedge; i++) {
            grad_node *to = n->edge[i].node;
            if (!to)
                continue;
            grad_slot *s = slot_find(r, to);
            if (!s) {
                s = slot_make(r, to);
                vec_push(&stack, to);
            }
            s->deps++;
        }
    }
    vec_free(&stack);
}

/* With inputs=, only steps that lead to one of them run. Steps are ordered so that a step comes after all its
 * users, then looked at from the far end. */
static void mark_needed(grad_run *r)
{
    VEC(grad_slot *) order = { 0 };
    for (size_t i = 0; i < r->all.n; i++) {
        grad_slot *s = r->all.at[i];
        s->left = s->deps;
        if (!s->left)
            vec_push(&order, s);
    }
    for (size_t k = 0; k < order.n; k++) {
        grad_node *n = order.at[k]->node;
        for (int i = 0; i < n->nedge; i++) {
            grad_slot *t = n->edge[i].node ? slot_find(r, n->edge[i].node) : NULL;
            if (t && --t->left == 0)
                vec_push(&order, t);
        }
    }
    while (order.n) {
        grad_slot *s = vec_pop(&order);
        for (int i = 0; i < s->node->nedge && !s->needed; i++) {
            grad_slot *t = s->node->edge[i].node ? slot_find(r, s->node->edge[i].node) : NULL;
            s->needed = t && t->needed;
        }
    }
    vec_free(&order);
}

static bool prepare_inputs(grad_run *r)
{
    const grad_options *o = r->o;
    r->cap = ARENA_ARR(&r->mem, capture, MAX(o->ninput, 1));
    for (size_t i = 0; i < r->all.n; i++)
        r->all.at[i]->needed = false;
    for (int i = 0; i < o->ninput; i++) {
        tp_tensor *t = o->inputs[i];
        if (!grad_requires_grad(t))
            return err_set(r->err, ERR_runtime,
                           o->result ? "One of the differentiated Tensors does not require grad"
                                     : "One of the differentiated Tensors given as 'inputs' to backward does "
                                       "not require grad");
        capture *c = &r->cap[i];
        c->e = grad_edge_of(t, r->err);
        c->input = i;
        c->next = -1;
        r->ncap = i + 1;
        if (!c->e.node)
            return err_is_set(r->err) ? false
                                      : err_set(r->err, ERR_runtime,
                                                "One of the differentiated Tensors is a view that was made "
                                                "without the tape: no gradient arrives at it");
        grad_slot *s = slot_find(r, c->e.node);
        if (!s)
            continue;
        s->needed = true;
        if (o->result) {
            c->next = s->capture;
            s->capture = i;
        } else if (!c->e.node->leaf) /* backward(inputs=[non-leaf]) stores into .grad as retain_grad does */
            if (!grad_retain_grad(t, r->err))
                return false;
    }
    mark_needed(r);
    return true;
}

static tp_tensor *ones_like(grad_run *r, tp_tensor *t)
{
    tp_val out[1], arg[5] = { vIs(t->size, t->ndim), vDT(t->dt), vNone, vDev(tensor_device(t)), vNone };
    return grad_call(r->cx, OP_ones, OPV_fn, arg, out, r->err) ? out[0].t : NULL;
}

static bool root_grad(grad_run *r, tp_tensor *t, tp_tensor *g, int i, tp_tensor **out)
{
    if (!g) {
        if (!sym_eq(t->numel, 1))
            return err_set(r->err, ERR_runtime, "grad can be implicitly created only for scalar outputs");
        if (!dtype_is_float((dtype)t->dt))
            return err_set(r->err, ERR_runtime,
                           "grad can be implicitly created only for real scalar outputs but got taper.%s",
                           dtype_name((dtype)t->dt));
        *out = ones_like(r, t);
        return *out != NULL;
    }
    if (!tensor_same_size(t, g)) {
        strbuf a = { 0 }, b = { 0 };
        shape_print(&a, g->ndim, g->size);
        shape_print(&b, t->ndim, t->size);
        err_set(
            r->err, ERR_runtime,
            "Mismatch in shape: grad_output[%d] has a shape of taper.Size(%s) and output[%d] has a shape of "
            "taper.Size(%s).",
            i, strbuf_str(&a), i, strbuf_str(&b));
        strbuf_free(&a);
        strbuf_free(&b);
        return false;
    }
    if (t->dt != g->dt) {
        tp_val out_[1], arg[7] = { vT(g), vDT(t->dt), vNone, vNone, vNone, vB(false), vNone };
        if (!grad_call(r->cx, OP_to_dtype, OPV_fn, arg, out_, r->err))
            return false;
        *out = out_[0].t;
        return true;
    }
    *out = tensor_ref(g);
    return true;
}

/* ---- callbacks at the end ---- */
typedef struct final_call {
    bool (*fn)(void *data, tp_err *err);
    void (*drop)(void *data);
    void *data;
} final_call;
static _Thread_local struct {
    int depth; /* runs of this thread inside each other */
    VEC(final_call) list;
} finals;

bool grad_queue_callback(bool (*fn)(void *data, tp_err *err), void (*drop)(void *data), void *data)
{
    if (!finals.depth)
        return false;
    vec_push(&finals.list, ((final_call){ fn, drop, data }));
    return true;
}
static bool run_finals(bool ok, tp_err *err)
{
    for (size_t i = 0; i < finals.list.n; i++) { /* one may queue another */
        final_call f = finals.list.at[i];
        ok = ok && f.fn(f.data, err);
        f.drop(f.data);
    }
    vec_free(&finals.list);
    return ok;
}

bool grad_backward(op_ctx *cx, tp_tensor *const *root, int nroot, tp_tensor *const *grad,
                   const grad_options *o, tp_err *err)
{
    grad_run r = { .cx = cx, .o = o, .err = err };
    uint64_t outer = grad_step_running;
    op_ctx keep = *cx;
    grad_edge *edge = mem_zalloc(sizeof *edge * (size_t)MAX(nroot, 1));
    tp_tensor **g = mem_zalloc(sizeof *g * (size_t)MAX(nroot, 1));
    bool ok = false;

    finals.depth++;
    const char *around = crumb_between(CRUMB_TAPE);
    for (int i = 0; o->result && i < o->ninput; i++)
        o->result[i] = NULL;
    cx->grad_mode = o->create_graph;
    cx->autocast = 0;
    bld_init(&r.b, cx, err);
    r.b.call = grad_bld_call;
    for (int i = 0; i < nroot; i++) {
        if (!grad_requires_grad(root[i])) {
            err_set(err, ERR_runtime,
                    "element %d of tensors does not require grad and does not have a grad_fn", i);
            goto done;
        }
        if (!root_grad(&r, root[i], grad ? grad[i] : NULL, i, &g[i]))
            goto done;
        edge[i] = grad_edge_of(root[i], err);
        if (!edge[i].node && !err_is_set(err)) /* a view that was made without the tape */
            err_set(err, ERR_runtime,
                    "element %d of tensors does not require grad and does not have a grad_fn", i);
        if (!edge[i].node)
            goto done;
        discover(&r, edge[i].node);
    }
    for (size_t i = 0; i < r.all.n; i++)
        r.all.at[i]->needed = true;
    if (o->ninput && !prepare_inputs(&r))
        goto done;
    for (int i = 0; i < nroot; i++) {
        grad_slot *s = slot_find(&r, edge[i].node);
        tp_tensor *own = g[i];
        g[i] = NULL;
        if (!add_grad(&r, &s->g[edge[i].nr], own))
            goto done;
        if (!s->deps && !s->ready) {
            s->ready = true;
            heap_push(&r, s);
        }
    }
    while (r.heap.n)
        if ((host.poll && !host.poll(err)) || !run_step(&r, heap_pop(&r)))
            goto done;
    for (int i = 0; o->result && !o->allow_unused && i < o->ninput; i++)
        if (!o->result[i]) {
            err_set(err, ERR_runtime,
                    "The differentiated Tensor at index %d appears to not have been used in the graph. Set "
                    "allow_unused=True if this is the desired behavior.",
                    i);
            goto done;
        }
    ok = true;
done:
    crumb_between(around);
    if (finals.depth == 1)
        ok = run_finals(ok, err);
    finals.depth--;
    grad_step_running = outer;
    cx->grad_mode = keep.grad_mode;
    for (size_t i = 0; i < r.all.n; i++) {
        grad_slot *s = r.all.at[i];
        slot_unlink(&r, s);
        for (int k = 0; k < s->node->nin; k++)
            tensor_unref(s->g[k]);
    }
    bld_end(&r.b);
    for (int i = 0; i < r.ncap; i++)
        grad_node_unref(r.cap[i].e.node);
    for (int i = 0; i < nroot; i++) {
        tensor_unref(g[i]);
        grad_node_unref(edge[i].node);
    }
    if (!ok && o->result)
        for (int i = 0; i < o->ninput; i++) {
            tensor_unref(o->result[i]);
            o->result[i] = NULL;
        }
    vec_free(&r.all);
    vec_free(&r.heap);
    arena_free(&r.mem);
    free(edge);
    free(g);
    return ok;
}
