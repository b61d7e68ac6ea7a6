/* tape.c - autograd records of tensors, steps and their lifetimes, views. */
#include "grad/tape.h"
#include <stdio.h>

grad_anomaly grad_anomaly_hooks = { .check_nan = true };
tp_tensor *(*grad_add_sparse)(tp_tensor *a, tp_tensor *b, tp_err *err);
static _Thread_local uint64_t next_seq;
_Thread_local uint64_t grad_step_running = UINT64_MAX;
uint64_t grad_steps_made(void) { return next_seq; }
static _Thread_local grad_node *dead; /* steps whose count reached zero, while one is being freed */
static _Thread_local bool freeing;

/* ---- hook lists ---- */
static grad_hooks *hooks_new(tp_tensor *owner)
{
    grad_hooks *h = mem_zalloc(sizeof *h);
    h->refs = 1;
    h->owner = owner;
    return h;
}

grad_hooks *grad_hooks_ref(grad_hooks *h)
{
    h->refs++;
    return h;
}

void grad_hooks_unref(grad_hooks *h)
{
    if (!h || --h->refs)
        return;
    for (size_t i = 0; i < h->list.n; i++)
        if (h->list.at[i].free)
            h->list.at[i].free(h->list.at[i].data);
    vec_free(&h->list);
    free(h);
}

int64_t grad_hooks_add(grad_hooks *h, grad_hook_fn *fn, void *data, void (*free_)(void *))
{
    static int64_t next;
    grad_hook k = { ++next, fn, data, free_ };
    vec_push(&h->list, k);
    return k.id;
}

void grad_hooks_remove(grad_hooks *h, int64_t id)
{
    for (size_t i = 0; i < h->list.n; i++)
        if (h->list.at[i].id == id) {
            grad_hook k = h->list.at[i];
            memmove(&h->list.at[i], &h->list.at[i + 1], sizeof k * (h->list.n - i - 1));
            h->list.n--;
            if (k.free)
                k.free(k.data);
            return;
        }
}

grad_pack *grad_pack_ref(grad_pack *p)
{
    if (p)
        p->refs++;
    return p;
}

void grad_pack_unref(grad_pack *p)
{
    if (!p || --p->refs)
        return;
    if (p->free)
        p->free(p->data);
    free(p);
}

/* ---- steps ---- */
grad_node *grad_node_new(const grad_vt *vt, size_t size, int nin, int nedge)
{
    size_t at = (size + 15) & ~(size_t)15;
    grad_node *n = mem_zalloc(at + sizeof(grad_edge) * (size_t)nedge + sizeof(grad_shape) * (size_t)nin);
    n->refs = 1;
    n->vt = vt;
    n->seq = next_seq++;
    n->nin = (uint16_t)nin;
    n->nedge = (uint16_t)nedge;
    n->edge = (grad_edge *)((char *)n + at);
    n->in = (grad_shape *)(n->edge + nedge);
    for (int i = 0; i < nin; i++)
        n->in[i].dt = 255;
    return n;
}

grad_node *grad_node_ref(grad_node *n)
{
    __atomic_add_fetch(&n->refs, 1, __ATOMIC_RELAXED);
    return n;
}

static void node_destroy(grad_node *n)
{
    if (n->vt->release && !n->released) {
        n->released = true;
        n->vt->release(n);
    }
    if (n->vt->free)
        n->vt->free(n);
    for (int i = 0; i < n->nedge; i++)
        grad_node_unref(n->edge[i].node);
    while (n->pre) {
        grad_pre *p = n->pre;
        n->pre = p->next;
        grad_hooks_unref(p->hooks);
        free(p);
    }
    if (n->own_dims)
        for (int i = 0; i < n->nin; i++)
            free(n->in[i].dims);
    grad_hooks_unref(n->before);
    grad_hooks_unref(n->after);
    free(n->where);
    free(n);
}

/* A chain of a million steps is a chain of counts: freeing one step only queues the next. */
void grad_node_unref(grad_node *n)
{
    if (!n || __atomic_sub_fetch(&n->refs, 1, __ATOMIC_ACQ_REL))
        return;
    n->dead = dead;
    dead = n;
    if (freeing)
        return;
    freeing = true;
    while (dead) {
        n = dead;
        dead = n->dead;
        node_destroy(n);
    }
    freeing = false;
}

const char *grad_node_name(const grad_node *n) { return n->vt->name(n); }

void grad_node_set_edge(grad_node *n, int i, tp_tensor *t)
{
    grad_node_unref(n->edge[i].node);
    n->edge[i] = t && grad_requires_grad(t) ? grad_edge_of(t, NULL) : (grad_edge){ 0 };
}

void grad_node_set_shape(grad_node *n, int nr, const tp_tensor *t)
{
    grad_shape *s = &n->in[nr];
    if (s->dt != 255)
        return;
    n->own_dims = true;
    size_t bytes = sizeof(symint) * (size_t)t->ndim;
    s->dims = mem_alloc(2 * bytes + 1);
    memcpy(s->dims, t->size, bytes);
    memcpy(s->dims + t->ndim, t->stride, bytes);
    s->dt = t->dt;
    s->ndim = t->ndim;
    s->dev = tensor_device(t);
}

/* ---- leaves ---- */
typedef struct acc_step {
    grad_node n;
    tp_tensor *t; /* one count */
    symint dims[];
} acc_step;

static const char *acc_name(const grad_node *n) { return "AccumulateGrad"; }
static void acc_free(grad_node *n)
{
    tp_tensor *t = ((acc_step *)n)->t;
    if (grad_meta_of(t) && grad_meta_of(t)->acc == n)
        grad_meta_of(t)->acc = NULL;
    tensor_unref(t);
}
static bool acc_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                      tp_err *err)
{
    tp_tensor *g = dy[0];
    if (!g || !grad_requires_grad(((acc_step *)n)->t)) /* requires_grad_(False) since */
        return true;
    if (n->after || tensor_is_fake(g))
        tensor_ref(g); /* hooks still look at it; a trace wants its own node for the result */
    else
        ((tp_tensor **)dy)[0] =
            NULL; /* the engine's own count: a gradient nobody else has becomes .grad as it is */
    return grad_accumulate_into(b, ((acc_step *)n)->t, g, b->cx->grad_mode, err);
}
static const grad_vt acc_vt = { acc_name, acc_apply, NULL, acc_free };

tp_tensor *grad_acc_tensor(const grad_node *n) { return n->vt == &acc_vt ? ((const acc_step *)n)->t : NULL; }

grad_node *grad_acc_of(tp_tensor *t) /* counted */
{
    grad_meta *m = grad_meta_make(t);
    if (m->acc)
        return grad_node_ref(m->acc);
    grad_node *n = grad_node_new(&acc_vt, sizeof(acc_step) + sizeof(symint) * 2 * t->ndim, 1, 0);
    acc_step *a = (acc_step *)n;
    n->seq = UINT64_MAX;
    n->leaf = true;
    a->t = tensor_ref(t);
    memcpy(a->dims, t->size, sizeof(symint) * t->ndim);
    memcpy(a->dims + t->ndim, t->stride, sizeof(symint) * t->ndim);
    n->in[0] = (grad_shape){ a->dims, 0, t->dt, t->ndim, tensor_device(t) };
    return m->acc = n;
}

/* ---- records ---- */
static void meta_free(void *p)
{
    grad_meta *m = p;
    if (m->hooks) {
        m->hooks->owner = NULL;
        grad_hooks_unref(m->hooks);
    }
    grad_hooks_unref(m->post);
    tp_tensor *g = m->grad, *before = m->before;
    grad_node *fn = m->fn;
    free(m);
    tensor_unref(g);
    tensor_unref(before);
    grad_node_unref(fn);
}

grad_meta *grad_meta_make(tp_tensor *t)
{
    if (!t->ag) {
        tensor_ag_free = meta_free;
        grad_meta *m = mem_zalloc(sizeof *m);
        m->ver = t->storage->version;
        t->ag = m;
    }
    return t->ag;
}

bool grad_requires_grad_slow(const tp_tensor *t)
{
    const grad_meta *m = t->ag;
    return (m && (m->requires_grad || m->fn)) ||
           (t->base && dtype_has_grad((dtype)t->dt) && grad_requires_grad_slow(t->base));
}

bool grad_is_nograd_view(const tp_tensor *t)
{
    const grad_meta *m = t->ag;
    return t->base && !(m && (m->requires_grad || m->fn)) && grad_requires_grad(t->base);
}

bool grad_is_leaf(tp_tensor *t) { return !grad_requires_grad(t) || !grad_grad_fn(t, NULL, NULL); }

bool grad_set_requires_grad(op_ctx *cx, tp_tensor *t, bool on, tp_err *err)
{
    if (on && !dtype_has_grad((dtype)t->dt))
        return err_set(err, ERR_runtime, "only Tensors of floating point dtype can require gradients");
    if (on && (t->flags & TF_inference) && !cx->inference_mode)
        return err_set(
            err, ERR_runtime,
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.");
    if (!grad_is_leaf(t)) {
        if (on)
            return true;
        return err_set(err, ERR_runtime,
                       "you can only change requires_grad flags of leaf variables. If you want to use a "
                       "computed variable in a subgraph that doesn't require differentiation use "
                       "var_no_grad = var.detach().");
    }
    tensor_changed(t);
    if (on || t->ag)
        grad_meta_make(t)->requires_grad = on;
    return true;
}

/* Hooks of a tensor belong to the step that made it; when it gets another step they stay with the old one,
 * except that retain_grad follows the tensor. */
static void attach(grad_node *n, int nr, grad_hooks *hooks)
{
    grad_pre *p = mem_alloc(sizeof *p), **at = &n->pre;
    *p = (grad_pre){ nr, grad_hooks_ref(hooks), NULL };
    while (*at)
        at = &(*at)->next;
    *at = p;
}

static void meta_attach(tp_tensor *t, grad_meta *m)
{
    if (m->hooks && m->fn)
        attach(m->fn, m->nr, m->hooks);
}

bool grad_share_hooks(const grad_node *from, int nr, tp_tensor *to, tp_err *err)
{
    grad_edge e = grad_edge_of(to, err);
    for (const grad_pre *p = from->pre; e.node && p; p = p->next)
        if (p->nr == nr)
            attach(e.node, e.nr, p->hooks);
    grad_node_unref(e.node);
    return e.node != NULL;
}

static void meta_set_fn(tp_tensor *t, grad_node *n, int nr)
{
    grad_meta *m = grad_meta_make(t);
    grad_node *old = m->fn;
    bool retain = m->hooks && m->hooks->retain;
    if (m->hooks && old) {
        m->hooks->owner = NULL;
        grad_hooks_unref(m->hooks);
        m->hooks = NULL;
    }
    tensor_changed(t);
    m->fn = n ? grad_node_ref(n) : NULL;
    m->nr = nr;
    m->requires_grad = false;
    m->ver = t->storage->version;
    grad_node_unref(old);
    if (retain && n) {
        m->hooks = hooks_new(t);
        m->hooks->retain = true;
        meta_attach(t, m);
    }
}

bool grad_set_history(tp_tensor *t, grad_node *n, int nr, tp_err *err)
{
    grad_meta *m = t->ag;
    if (m && m->requires_grad && !m->fn)
        return err_set(err, ERR_runtime,
                       "a leaf Variable that requires grad is being used in an in-place operation.");
    grad_node_set_shape(n, nr, t);
    meta_set_fn(t, n, nr);
    return true;
}

/* ---- views ---- */
static const char nograd_tail[] =
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by "
    "moving both the view and the inplace either both inside the no_grad block (if you don't want the "
    "inplace to be tracked) or both outside (if you want the inplace to be tracked).";

static bool view_forbidden(tp_tensor *t, bool direct, tp_err *err)
{
    grad_meta *m = t->ag;
    if (t->spare & AGF_nograd_view)
        return !err_set(err, ERR_runtime, "A view was created in no_grad mode and %s. %s",
                        direct ? "is being modified inplace with grad mode enabled"
                               : "its base or another view of its base has been modified inplace with grad "
                                 "mode enabled",
                        nograd_tail);
    if (t->spare & AGF_multi_view)
        return !err_set(err, ERR_runtime,
                        "Output %d of %s is a view and %s. This view is the output of a function that "
                        "returns multiple views. Such functions do not allow the output views to be "
                        "modified inplace. You should replace the inplace operation by an out-of-place one.",
                        m ? m->nr : 0, m && m->fn ? grad_node_name(m->fn) : "a function",
                        direct ? "is being modified inplace"
                               : "its base or another view of its base has been modified inplace");
    if (t->spare & AGF_custom_view)
        return !err_set(err, ERR_runtime,
                        "Output %d of %s is a view and %s. This view was created inside a custom Function "
                        "(or because an input was returned as-is) and the autograd logic to handle "
                        "view+inplace would override the custom backward associated with the custom "
                        "Function, leading to incorrect gradients. This behavior is forbidden. You can fix "
                        "this by cloning the output of the custom Function.",
                        m ? m->nr : 0, m && m->fn ? grad_node_name(m->fn) : "a function",
                        direct ? "is being modified inplace"
                               : "its base or another view of its base has been modified inplace");
    return false;
}

static bool as_strided(bld *b, tp_tensor *t, int ndim, const symint *dims, symint offset, tp_tensor **out)
{
    static op_id op = OP_COUNT;
    op_variant v;
    if (op == OP_COUNT && !op_find("as_strided", 10, &op, &v))
        return err_set(b->err, ERR_internal, "the operator table has no as_strided");
    *out = b_callv(b, op, OPV_fn, B_ARGS(vT(t), vIs(dims, ndim), vIs(dims + ndim, ndim), vI(offset)));
    return *out != NULL;
}

/* Where the view lies in z, which is laid out as the base. One of the two may be complex and the other its parts. */
static bool view_in(bld *b, tp_tensor *z, const grad_shape *base, const grad_shape *view, symint offset,
                    tp_tensor **out)
{
    bool from = dtype_is_complex((dtype)base->dt), to = dtype_is_complex((dtype)view->dt);
    if (from && !to)
        z = b_op(b, view_as_real, vT(z));
    else if (to && !from) {
        symint n = sym_floordiv(z->storage->nbytes, (symint)dtype_size((dtype)view->dt)),
               pairs[4] = { n, 2, 2, 1 };
        if (!as_strided(b, z, 2, pairs, 0, &z))
            return false;
        z = b_op(b, view_as_complex, vT(z));
    }
    return z && as_strided(b, z, view->ndim, view->dims, offset, out);
}

/* Gradient of the base with the value of the view's gradient written where the view lies. */
static tp_tensor *base_filled(bld *b, const grad_shape *base, tp_tensor *from)
{
    tp_tensor *z = b_op(b, zeros, vIs(base->dims, base->ndim), vDT(base->dt), vNone, vDev(base->dev));
    bool same = z != NULL;
    for (int i = 0; same && i < base->ndim; i++)
        same = sym_eq(z->stride[i], base->dims[base->ndim + i]) || sym_le(z->size[i], 1);
    if (z && !same) { /* a base that is not laid out contiguously: fill memory first, then look at it so */
        symint bytes = 0, n;
        shape_storage_bytes((dtype)base->dt, base->ndim, base->dims, base->dims + base->ndim, 0, &bytes,
                            NULL);
        n = sym_floordiv(bytes, (symint)dtype_size((dtype)base->dt));
        z = b_op(b, zeros, vIs(&n, 1), vDT(base->dt), vNone, vDev(base->dev));
        if (!z || !as_strided(b, z, base->ndim, base->dims, 0, &z))
            return NULL;
    }
    if (z && from)
        b_callv(b, OP_copy_, OPV_fn, B_ARGS(vT(z), vT(from)));
    return b->failed ? NULL : z;
}

/* The same for a gradient of a view that may show an element several times: its parts are added. */
static tp_tensor *base_summed(bld *b, const grad_shape *base, const grad_shape *view, symint offset,
                              tp_tensor *dy)
{
    symint bytes = 0, n;
    shape_storage_bytes((dtype)base->dt, base->ndim, base->dims, base->dims + base->ndim, 0, &bytes, NULL);
    n = sym_floordiv(bytes, (symint)dtype_size((dtype)base->dt));
    tp_tensor *z = b_op(b, as_strided_backward, vT(dy), vIs(&n, 1), vIs(view->dims, view->ndim),
                        vIs(view->dims + view->ndim, view->ndim), vI(offset));
    return z && as_strided(b, z, base->ndim, base->dims, 0, &z) ? z : NULL;
}

/* May two elements of the view lie at one address? Of a symbolic view, unless its expressions say otherwise: each step, sorted
 * by the sizes at hand, clears what lies below it. */
static bool may_overlap(const grad_shape *v)
{
    const symint *size = v->dims, *stride = v->dims + v->ndim;
    int64_t at[TP_MAX_DIMS];
    int order[TP_MAX_DIMS];
    symint reach = 0;
    bool known = true;
    if (sym_all_const(v->dims, 2 * v->ndim))
        return shape_may_overlap(v->ndim, size, stride);
    for (int i = 0; i < v->ndim; i++) {
        int k = i;
        at[i] = sym_hint(stride[i], &known);
        for (; k > 0 && at[order[k - 1]] > at[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (int i = 0; i < v->ndim && known; i++) {
        int d = order[i];
        known = size[d] == 1 || sym_known(SYM_gt, stride[d], reach);
        if (size[d] != 1)
            reach = sym_add(reach, sym_mul(stride[d], sym_sub(size[d], 1)));
    }
    return !known;
}

/* AsStridedBackward0: a view whose history follows its base. */
typedef struct view_step {
    grad_node n;
    grad_shape base, view;
    symint offset; /* from the start of the base */
    symint dims[];
} view_step;

static const char *view_name(const grad_node *n) { return "AsStridedBackward0"; }
static bool view_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                       tp_err *err)
{
    view_step *s = (view_step *)n;
    tp_tensor *z, *part;
    if (!dy[0] || !need[0])
        return true;
    if (s->base.dt == s->view.dt && may_overlap(&s->view))
        z = base_summed(b, &s->base, &s->view, s->offset, dy[0]);
    else {
        z = base_filled(b, &s->base, NULL);
        if (!z || !view_in(b, z, &s->base, &s->view, s->offset, &part))
            return false;
        b_callv(b, OP_copy_, OPV_fn, B_ARGS(vT(part), vT(dy[0])));
    }
    if (!z || b->failed)
        return false;
    dx[0] = tensor_ref(z);
    return true;
}
static const grad_vt view_vt = { view_name, view_apply, NULL, NULL };

static void view_geometry(grad_shape *base, grad_shape *view, symint *offset, symint *dims,
                          const tp_tensor *b, const tp_tensor *v)
{
    *base = (grad_shape){ dims, 0, b->dt, b->ndim, tensor_device(b) };
    memcpy(dims, b->size, sizeof(symint) * b->ndim);
    memcpy(dims + b->ndim, b->stride, sizeof(symint) * b->ndim);
    dims += 2 * b->ndim;
    *view = (grad_shape){ dims, 0, v->dt, v->ndim, tensor_device(v) };
    memcpy(dims, v->size, sizeof(symint) * v->ndim);
    memcpy(dims + v->ndim, v->stride, sizeof(symint) * v->ndim);
    bool from = dtype_is_complex((dtype)b->dt), to = dtype_is_complex((dtype)v->dt);
    symint start = from && !to ? sym_mul(b->offset, 2) : to && !from ? sym_floordiv(b->offset, 2) : b->offset;
    *offset = sym_sub(v->offset, start);
}

grad_node *grad_grad_fn(tp_tensor *t, int *nr, tp_err *err)
{
    grad_meta *m = t->ag;
    tp_tensor *base = t->base;
    if (nr)
        *nr = m ? m->nr : 0;
    if (!base || !base->ag || ((!m || !m->fn) && !grad_requires_grad_slow(base)))
        return m ? m->fn : NULL;
    if (m ? m->ver == t->storage->version : !grad_meta_of(base)->fn)
        return m ? m->fn : NULL;
    if (view_forbidden(t, false, err)) /* modified since the view was made */
        return NULL;
    grad_node *n = grad_node_new(
        &view_vt, sizeof(view_step) + sizeof(symint) * 2 * (size_t)(t->ndim + base->ndim), 1, 1);
    view_step *s = (view_step *)n;
    view_geometry(&s->base, &s->view, &s->offset, s->dims, base, t);
    n->in[0] = s->view;
    grad_node_set_edge(n, 0, base);
    meta_set_fn(t, n, 0);
    grad_node_unref(n);
    if (nr)
        *nr = 0;
    return n;
}

grad_edge grad_edge_of(tp_tensor *t, tp_err *err)
{
    int nr;
    if (!grad_requires_grad(t))
        return (grad_edge){ 0 };
    grad_node *n = grad_grad_fn(t, &nr, err);
    if (n)
        return (grad_edge){ grad_node_ref(n), nr };
    if (grad_is_nograd_view(t))
        return (grad_edge){ 0 };
    return (grad_edge){ grad_acc_of(t), 0 };
}

/* ---- leaves that stand for computed tensors ---- */
static const char *computed_name(const grad_node *n) { return "ComputedBefore"; }
static bool computed_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                           tp_err *err)
{
    dx[0] = dy[0] && need[0] ? tensor_ref(dy[0]) : NULL;
    return true;
}
static const grad_vt computed_vt = { computed_name, computed_apply, NULL, NULL };

/* Gradients of what t holds now end at a leaf of their own, so that t can get a history. */
static void begin_history(tp_tensor *t)
{
    grad_meta *m = t->ag, *own;
    tp_tensor *before = tensor_alias(t);
    before->node = t->node;
    before->rec = t->rec;
    own = grad_meta_make(before);
    own->requires_grad = true;
    if (m->acc) { /* steps that have read t lead to it */
        acc_step *a = (acc_step *)m->acc;
        own->acc = m->acc;
        m->acc = NULL;
        a->t = tensor_ref(before);
        tensor_unref(t);
    }
    grad_node *n = grad_node_new(&computed_vt, sizeof *n, 1, 1);
    grad_node_set_edge(n, 0, before);
    grad_node_set_shape(n, 0, t);
    tensor_unref(m->before);
    m->before = before;
    meta_set_fn(t, n, 0);
    grad_node_unref(n);
}

tp_tensor *grad_before_write(const tp_tensor *t) { return t->ag ? grad_meta_of(t)->before : NULL; }

static bool is_leaf_here(const tp_tensor *t)
{
    const grad_meta *m = t->ag;
    return m && m->requires_grad && !m->fn;
}

bool grad_is_writable(const tp_tensor *t)
{
    return grad_requires_grad(t) && !is_leaf_here(t) && !(t->base && grad_is_leaf(t->base)) &&
           !(t->base && (t->spare & (AGF_nograd_view | AGF_multi_view | AGF_custom_view)));
}

bool grad_check_inplace(op_ctx *cx, tp_tensor *t, bool needs_grad, tp_err *err)
{
    if ((t->flags & TF_inference) && !cx->inference_mode)
        return err_set(err, ERR_runtime,
                       "Inplace update to inference tensor outside InferenceMode is not allowed.You can make "
                       "a clone to get a normal tensor before doing inplace update.");
    if (!needs_grad || !grad_records(cx))
        return true;
    if (t->base) {
        if (view_forbidden(t, true, err))
            return false;
        bool computed = is_leaf_here(t->base) && (t->base->spare & AGF_computed);
        if (grad_requires_grad(t) && !computed && grad_is_leaf(t->base))
            return err_set(err, ERR_runtime,
                           "a view of a leaf Variable that requires grad is being used in an in-place "
                           "operation.");
        if (computed)
            begin_history(t->base);
    }
    if (is_leaf_here(t) && !(t->spare & AGF_computed))
        return err_set(err, ERR_runtime,
                       "a leaf Variable that requires grad is being used in an in-place operation.");
    if (is_leaf_here(t))
        begin_history(t);
    return true;
}

/* CopySlices: a step that wrote into a view, seen from the base: gradients outside the view pass through,
 * those inside go through the step. */
typedef struct slice_step {
    grad_node n;
    grad_node *fn; /* one count */
    int nr;
    grad_shape base, view;
    symint offset;
    symint dims[];
} slice_step;

static const char *slice_name(const grad_node *n) { return "CopySlices"; }
static bool slice_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                        tp_err *err)
{
    slice_step *s = (slice_step *)n;
    tp_tensor *z, *part, *own, **in;
    bool ok = false;
    if (!dy[0])
        return true;
    z = base_filled(b, &s->base, dy[0]);
    if (!z || !view_in(b, z, &s->base, &s->view, s->offset, &part))
        return false;
    own = b_op(b, clone, vT(part));
    if (!own)
        return false;
    in = mem_zalloc(sizeof *in * s->fn->nin);
    in[s->nr] = own;
    if (!s->fn->vt->apply(s->fn, b, in, need, dx, err))
        goto done;
    if (dx[0])
        b_callv(b, OP_copy_, OPV_fn, B_ARGS(vT(part), vT(dx[0])));
    else {
        tp_tensor *zero = b_op(b, zeros, vIs(s->view.dims, s->view.ndim), vDT(s->view.dt), vNone,
                               vDev(s->view.dev));
        b_callv(b, OP_copy_, OPV_fn, B_ARGS(vT(part), vT(zero)));
    }
    tensor_unref(dx[0]);
    dx[0] = NULL;
    ok = !b->failed;
    if (ok && need[0])
        dx[0] = tensor_ref(z);
done:
    free(in);
    return ok;
}
static void slice_release(grad_node *n)
{
    grad_node *fn = ((slice_step *)n)->fn;
    if (fn->vt->release && !fn->released) {
        fn->released = true;
        fn->vt->release(fn);
    }
}
static void slice_free(grad_node *n) { grad_node_unref(((slice_step *)n)->fn); }
static const grad_vt slice_vt = { slice_name, slice_apply, slice_release, slice_free };

bool grad_rebase_history(tp_tensor *t, grad_node *fn, int nr, tp_err *err)
{
    tp_tensor *base = t->base;
    if (!base)
        return grad_set_history(t, fn, nr, err);
    grad_node_set_shape(fn, nr, t);
    grad_node *n = grad_node_new(
        &slice_vt, sizeof(slice_step) + sizeof(symint) * 2 * (size_t)(t->ndim + base->ndim), 1, fn->nedge);
    slice_step *s = (slice_step *)n;
    s->fn = grad_node_ref(fn);
    s->nr = nr;
    view_geometry(&s->base, &s->view, &s->offset, s->dims, base, t);
    n->in[0] = s->base;
    grad_node_set_edge(n, 0, base);
    for (int i = 1; i < fn->nedge; i++)
        if (fn->edge[i].node)
            n->edge[i] = (grad_edge){ grad_node_ref(fn->edge[i].node), fn->edge[i].nr };
    if (grad_anomaly_hooks.where && op_ctx_cur()->anomaly)
        n->where = grad_anomaly_hooks.where(grad_anomaly_hooks.data);
    meta_set_fn(base, n, 0);
    grad_node_unref(n);
    /* t's own history is found anew from the base when it is asked for. */
    if (t->ag)
        grad_meta_of(t)->ver = t->storage->version - 1;
    return true;
}

/* ---- settings ---- */
tp_tensor *grad_grad(const tp_tensor *t) { return t->ag ? grad_meta_of(t)->grad : NULL; }

bool grad_set_grad(tp_tensor *t, tp_tensor *g, tp_err *err)
{
    if (g) {
        strbuf a = { 0 }, b = { 0 };
        if (!tensor_same_size(t, g)) {
            shape_print(&a, g->ndim, g->size);
            shape_print(&b, t->ndim, t->size);
            err_set(err, ERR_runtime,
                    "attempting to assign a gradient of size '%s' to a tensor of size '%s'. Please ensure "
                    "that the gradient and the tensor are the same size",
                    strbuf_str(&a), strbuf_str(&b));
            strbuf_free(&a);
            strbuf_free(&b);
            return false;
        }
        if (t->dt != g->dt)
            return err_set(err, ERR_runtime,
                           "attempting to assign a gradient with dtype '%s' to a tensor with dtype '%s'. "
                           "Please ensure that the gradient and the tensor have the same dtype",
                           dtype_name((dtype)g->dt), dtype_name((dtype)t->dt));
        if (!device_eq(tensor_device(t), tensor_device(g)))
            return err_set(
                err, ERR_runtime,
                "attempting to assign a gradient located on another device. Please ensure that the "
                "gradient and the tensor are on the same device");
        if (t == g)
            return err_set(err, ERR_runtime, "can't assign Variable as its own grad");
    } else if (!t->ag)
        return true;
    grad_meta *m = grad_meta_make(t);
    tp_tensor *old = m->grad;
    m->grad = g ? tensor_ref(g) : NULL;
    tensor_unref(old);
    return true;
}

grad_hooks *grad_tensor_hooks(tp_tensor *t, tp_err *err)
{
    if (!grad_requires_grad(t)) {
        err_set(err, ERR_runtime, "cannot register a hook on a tensor that doesn't require gradient");
        return NULL;
    }
    grad_grad_fn(t, NULL, NULL); /* a stale view takes its new step first */
    grad_meta *m = grad_meta_make(t);
    tensor_changed(t); /* a compiled backward may have counted on there being none */
    if (!m->hooks) {
        m->hooks = hooks_new(t);
        meta_attach(t, m);
    }
    return m->hooks;
}

grad_hooks *grad_post_hooks(tp_tensor *t, tp_err *err)
{
    if (!grad_requires_grad(t))
        return (err_set(err, ERR_runtime, "cannot register a hook on a tensor that doesn't require gradient"),
                NULL);
    if (!grad_is_leaf(t))
        return (
            err_set(err, ERR_runtime, "post accumulate grad hooks cannot be registered on non-leaf tensors"),
            NULL);
    grad_meta *m = grad_meta_make(t);
    tensor_changed(t);
    if (!m->post)
        m->post = hooks_new(NULL);
    return m->post;
}

bool grad_retain_grad(tp_tensor *t, tp_err *err)
{
    if (!grad_requires_grad(t))
        return err_set(err, ERR_runtime, "can't retain_grad on Tensor that has requires_grad=False");
    if (grad_is_leaf(t))
        return true;
    grad_hooks *h = grad_tensor_hooks(t, err);
    if (h)
        h->retain = true;
    return h != NULL;
}

bool grad_retains_grad(const tp_tensor *t)
{
    return t->ag && grad_meta_of(t)->hooks && grad_meta_of(t)->hooks->retain;
}

bool grad_detach_(tp_tensor *t, tp_err *err)
{
    if (t->base)
        return err_set(err, ERR_runtime, "Can't detach views in-place. Use detach() instead.");
    if (t->ag) {
        meta_set_fn(t, NULL, 0);
        if (grad_meta_of(t)->hooks)
            grad_meta_of(t)->hooks->retain = false;
    }
    return true;
}

tp_tensor *grad_data(tp_tensor *t)
{
    tp_tensor *d = tensor_alias(t);
    d->flags |= t->flags & (TF_inference | TF_wrapped);
    d->node = t->node;
    d->rec = t->rec;
    d->spare |= AGF_data;
    return d;
}

bool grad_set_data(tp_tensor *t, tp_tensor *from, tp_err *err)
{
    grad_meta *m = t->ag;
    if (m && (m->requires_grad || m->fn) && !dtype_has_grad((dtype)from->dt))
        return err_set(err, ERR_runtime,
                       "data set to a tensor that requires gradients must be floating point dtype");
    if (m && m->acc && (t->dt != from->dt || !tensor_same_size(t, from)))
        m->acc = NULL; /* gradients to come are of another type: a new accumulating step will be made */
    t->flags = (t->flags & ~TF_inference) | (from->flags & TF_inference);
    return tensor_reset(t, from->storage, (dtype)from->dt, from->ndim, from->size, from->stride, from->offset,
                        err);
}
