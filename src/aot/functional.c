/* functional.c - writes become values.
 * Storage that is written gets a record: its root tensor, the node with its present value, a generation. A
 * node's `mark` is the generation it was made in. Writing to a view scatters the new value up the chain of
 * views to the root; using a stale view replays its chain from the root. */
#include "aot/aot.h"

typedef struct written {
    tp_tensor *root; /* one count */
    uint32_t gen;
    bool base; /* begins where its storage begins (bases.c) */
} written;

struct fn_state {
    ir_rec *r;
    map by_storage; /* storage -> written */
    VEC(written *) all;
    int depth; /* inside our own recording */
};

static written *find(const fn_state *f, const tp_storage *s)
{
    return f->all.n ? map_geti(&f->by_storage, (uintptr_t)s) : NULL;
}

bool fn_written(const fn_state *f, const tp_tensor *t)
{
    written *w = find(f, t->storage);
    return w && w->gen;
}

tp_tensor *fn_base(const fn_state *f, const tp_tensor *t)
{
    written *w = find(f, t->storage);
    return w && w->gen ? w->root : NULL;
}

/* ---- recording helpers: plain operator calls under our recorder, with fresh operands ---- */
static bool rec_call(bld *b, op_id op, op_variant v, const tp_val *arg, tp_val *out)
{
    return ir_call(b->cx, op, v, arg, out, b->err);
}
static void rec_begin(bld *b, op_ctx *cx, tp_err *err)
{
    bld_init(b, cx, err);
    b->call = rec_call;
}

static bool same_geometry(const tp_tensor *a, const tp_tensor *b)
{
    return a->dt == b->dt && a->offset == b->offset && a->ndim == b->ndim &&
           !memcmp(a->size, b->size, sizeof(symint) * a->ndim) &&
           !memcmp(a->stride, b->stride, sizeof(symint) * a->ndim);
}

/* The view node that made n's value from another node's, or NULL at the root of a chain. *item: which of
 * several results, or -1. */
static ir_node *view_of(ir_node *n, int *item)
{
    *item = -1;
    if (n->kind == IR_getitem) {
        *item = (int)n->arg[1].i;
        n = n->arg[0].node;
    }
    if (n->kind != IR_call || !(op_row_of((op_id)n->op)->flags & OPF_VIEW) || n->arg[0].kind != VAL_node)
        return NULL;
    return n;
}

/* The node to walk a chain from: a value that was written into a view stands where the view stood. */
static ir_node *chain_of(ir_node *n) { return n->data ? n->data : n; }

/* Proxy of a node's value: counted into the builder's pool. */
static tp_tensor *proxy(fn_state *f, bld *b, ir_node *n) { return bld_keep(b, ir_proxy(f->r, n)); }

/* Call a view node's operator on another operand. */
static tp_tensor *replay(bld *b, ir_node *view, tp_tensor *on, int item)
{
    tp_val arg[OP_MAX_PARAMS];
    memcpy(arg, view->arg, sizeof(tp_val) * (size_t)view->narg);
    arg[0] = vT(on);
    for (int i = 1; i < view->narg; i++)
        if (arg[i].kind == VAL_node || arg[i].kind == VAL_nodes)
            return NULL;
    if (item < 0)
        return b_callv(b, (op_id)view->op, OPV_fn, arg, view->narg);
    tp_tensor **all = mem_zalloc(sizeof *all * (size_t)(item + 1));
    b_callvn(b, (op_id)view->op, OPV_fn, arg, view->narg, all, item + 1);
    tp_tensor *t = all[item];
    free(all);
    return t;
}

static bool same_strides(const tp_tensor *a, const tp_tensor *b)
{
    for (int i = 0; i < a->ndim; i++)
        if (a->stride[i] != b->stride[i] && !sym_known(SYM_eq, a->stride[i], b->stride[i]))
            return false;
    return a->ndim == b->ndim;
}

/* The root in the form of its present value, which may lie in memory another way than the root does (gaps are gone). */
static tp_tensor *root_now(fn_state *f, bld *b, written *w)
{
    tp_tensor *root = w->root, *is = root->node ? ir_type(root->node) : NULL;
    if (!is || same_strides(is, root))
        return root;
    tp_tensor *t = bld_keep(
        b, tensor_on(root->storage, (dtype)is->dt, is->ndim, is->size, is->stride, is->offset));
    t->node = root->node;
    t->rec = f->r;
    return t;
}

/* A view by strides counts in the root's memory: its present value must lie the same way. */
static bool strides_count(const written *w, tp_err *err)
{
    const tp_tensor *is = w->root->node ? ir_type(w->root->node) : NULL;
    return !is || same_strides(is, w->root) ||
           err_set(err, ERR_notimpl,
                   "a view by strides of a written tensor with gaps has no functional form");
}

/* Where t begins in the root's present value: an input may begin anywhere in its storage, its new value begins its own. */
static symint offset_in(const written *w, const tp_tensor *t)
{
    return w->root->dt == t->dt ? sym_sub(t->offset, w->root->offset) : t->offset;
}

/* The present value of what node n computed, given the root's present value. */
static tp_tensor *regenerate(fn_state *f, bld *b, written *w, ir_node *n)
{
    int item;
    ir_node *at = chain_of(n), *view = view_of(at, &item);
    if (!view || ir_type(at)->storage != w->root->storage)
        return root_now(f, b, w);
    if (n->mark >= w->gen)
        return proxy(f, b, n);
    tp_tensor *up = regenerate(f, b, w, view->arg[0].node);
    return up ? replay(b, view, up, item) : NULL;
}

ir_node *fn_node(fn_state *f, op_ctx *cx, tp_tensor *t, tp_err *err)
{
    if (!t->node || t->rec != f->r)
        return ir_node_of(f->r, t);
    written *w = find(f, t->storage);
    if (!w || t->node->mark >= w->gen)
        return t->node;
    if (t == w->root || same_geometry(t, w->root)) {
        t->node = w->root->node;
        return t->node;
    }
    bld b;
    rec_begin(&b, cx, err);
    f->depth++;
    tp_tensor *now = regenerate(f, &b, w, t->node);
    if (now && !tensor_same_size(now, t)) /* the chain was not all views of this root */
        now = NULL;
    if (!now && !b.failed && strides_count(w, err))
        now = b_op(&b, as_strided, vT(w->root), vIs(t->size, t->ndim), vIs(t->stride, t->ndim),
                   vI(offset_in(w, t)));
    f->depth--;
    if (now && now->node) {
        now->node->mark = w->gen;
        t->node = now->node;
    }
    bld_end(&b);
    return now ? t->node : NULL;
}

/* ---- writing ---- */
/* The same for one of several results: each is a part of one dimension. */
static tp_tensor *undo_item(bld *b, const ir_node *view, int item, tp_tensor *up, tp_tensor *val)
{
    const tp_val *all = &view->val;
    const op_row *row = op_row_of((op_id)view->op);
    tp_val arg[OP_MAX_PARAMS];
    symint at = 0;
    int dim;
    if (all->kind != VAL_tensors || item >= all->n ||
        !op_fill_defaults(row, view->arg, view->narg, arg, b->err) ||
        !dim_wrap(arg[row->schema.nparam - 1].i, up->ndim, &dim, b->err)) /* their last parameter */
        return NULL;
    if (all->ts[item]->ndim < up->ndim) /* unbind */
        return b_op(b, select_scatter, vT(up), vT(val), vI(dim), vI(item));
    for (int k = 0; k < item; k++)
        at = sym_add(at, all->ts[k]->size[dim]);
    return b_op(b, slice_scatter, vT(up), vT(val), vI(dim), vI(at), vI(sym_add(at, val->size[dim])));
}

/* --- the UNVIEW column: the new value of what a view looks at (up), when the view's value becomes val. a: its arguments */
static tp_tensor *unview_same(bld *b, const tp_val *a, tp_tensor *up, tp_tensor *val) { return val; }

static tp_tensor *unview_reshape(bld *b, const tp_val *a, tp_tensor *up, tp_tensor *val)
{
    return b_op(b, reshape, vT(val), vIs(up->size, up->ndim));
}
/* The two views of complex memory undo one another, of values that lie as they want them. */
static tp_tensor *unview_as_complex(bld *b, const tp_val *a, tp_tensor *up, tp_tensor *val)
{
    return b_op(b, view_as_complex, vT(b_op(b, clone, vT(val), vMF(MF_contiguous))));
}
static tp_tensor *unview_as_real(bld *b, const tp_val *a, tp_tensor *up, tp_tensor *val)
{
    return b_op(b, view_as_real, vT(val));
}
static tp_tensor *unview_transpose(bld *b, const tp_val *a, tp_tensor *up, tp_tensor *val)
{
    return b_op(b, transpose_int, vT(val), a[1], a[2]);
}
static tp_tensor *unview_t(bld *b, const tp_val *a, tp_tensor *up, tp_tensor *val)
{
    return b_op(b, t, vT(val));
}
static tp_tensor *unview_permute(bld *b, const tp_val *a, tp_tensor *up, tp_tensor *val)
{
    symint inv[TP_MAX_DIMS];
    for (int i = 0; i < a[1].n; i++) {
        int d;
        if (!dim_wrap(a[1].ints[i], up->ndim, &d, b->err))
            return NULL;
        inv[d] = i;
    }
    return b_op(b, permute, vT(val), vIs(inv, up->ndim));
}
static tp_tensor *unview_slice(bld *b, const tp_val *a, tp_tensor *up, tp_tensor *val)
{
    return b_op(b, slice_scatter, vT(up), vT(val), a[1], a[2], a[3], a[4]);
}
static tp_tensor *unview_select(bld *b, const tp_val *a, tp_tensor *up, tp_tensor *val)
{
    return b_op(b, select_scatter, vT(up), vT(val), a[1], a[2]);
}
static tp_tensor *unview_diagonal(bld *b, const tp_val *a, tp_tensor *up, tp_tensor *val)
{
    return b_op(b, diagonal_scatter, vT(up), vT(val), a[1], a[2], a[3]);
}

typedef tp_tensor *unview_fn(bld *b, const tp_val *a, tp_tensor *up, tp_tensor *val);
static unview_fn *const unview[OP_COUNT] = {
#define UNVIEW(id, token) [OP_##id] = unview_##token,
#include "ops/ops.def"
};

/* NULL: this view cannot be undone step by step. */
static tp_tensor *undo(bld *b, ir_node *view, int item, tp_tensor *up, tp_tensor *val)
{
    if (item >= 0)
        return undo_item(b, view, item, up, val);
    return unview[view->op] ? unview[view->op](b, view->arg, up, val) : NULL;
}

static tp_tensor *scatter_up(fn_state *f, bld *b, written *w, ir_node *n, tp_tensor *val)
{
    int item;
    ir_node *at = chain_of(n), *view = view_of(at, &item);
    if (!view || ir_type(at)->storage != w->root->storage)
        return val;
    tp_tensor *up = regenerate(f, b, w, view->arg[0].node);
    tp_tensor *v = up ? undo(b, view, item, up, val) : NULL;
    return v ? scatter_up(f, b, w, view->arg[0].node, v) : NULL;
}

/* All of t's storage: the tensor it is a view of, also where the tape has no link to it: behind detach(), or where a
 * composite made a view of something of its own. Counted. */
static tp_tensor *whole(fn_state *f, tp_tensor *t)
{
    tp_tensor *from = t->base && t->base->node ? t->base : t;
    ir_node *top = from->node;
    for (int item; top;) {
        ir_node *view = view_of(top, &item), *up = view ? view->arg[0].node : NULL;
        if (!up || !ir_type(up) || ir_type(up)->storage != t->storage)
            break;
        top = up;
    }
    return top == from->node ? tensor_ref(from) : ir_proxy(f->r, top);
}

static written *written_of(fn_state *f, tp_tensor *t)
{
    written *w = find(f, t->storage);
    if (!w) {
        w = mem_zalloc(sizeof *w);
        w->root = whole(f, t);
        map_puti(&f->by_storage, (uintptr_t)t->storage, w);
        vec_push(&f->all, w);
    }
    return w;
}

void fn_root(fn_state *f, tp_tensor *t) { written_of(f, t)->base = true; }

/* The root with val written where t lies in it. One of the two may be complex and the other its parts. */
static tp_tensor *scatter_into(bld *b, const written *w, const tp_tensor *t, tp_tensor *val)
{
    bool pairs = dtype_is_complex((dtype)w->root->dt), to = dtype_is_complex((dtype)t->dt);
    symint size[TP_MAX_DIMS + 1], stride[TP_MAX_DIMS + 1];
    int nd = t->ndim;
    if (pairs == to || nd == TP_MAX_DIMS)
        return b_op(b, as_strided_scatter, vT(w->root), vT(val), vIs(t->size, nd), vIs(t->stride, nd),
                    vI(offset_in(w, t)));
    if (pairs) {
        tp_tensor *parts = b_op(b, view_as_real, vT(w->root));
        symint at = sym_sub(t->offset, sym_mul(w->root->offset, 2));
        parts = b_op(b, as_strided_scatter, vT(parts), vT(val), vIs(t->size, nd), vIs(t->stride, nd), vI(at));
        return b_op(b, view_as_complex, vT(b_op(b, clone, vT(parts), vMF(MF_contiguous))));
    }
    for (int i = 0; i < nd; i++) {
        size[i] = t->size[i];
        stride[i] = sym_mul(t->stride[i], 2);
    }
    size[nd] = 2;
    stride[nd] = 1;
    return b_op(b, as_strided_scatter, vT(w->root), vT(b_op(b, view_as_real, vT(val))), vIs(size, nd + 1),
                vIs(stride, nd + 1), vI(sym_sub(sym_mul(t->offset, 2), w->root->offset)));
}

/* From here on t holds val (a tensor of t's size and type). */
static bool set_value(fn_state *f, bld *b, tp_tensor *t, tp_tensor *val)
{
    written *w = written_of(f, t);
    tp_tensor *root = val;
    if (t != w->root && !same_geometry(t, w->root)) {
        root = scatter_up(f, b, w, t->node, val);
        if ((!root || !tensor_same_size(root, w->root)) && !b->failed && !strides_count(w, b->err))
            return false;
        if ((!root || !tensor_same_size(root, w->root)) && !b->failed)
            root = scatter_into(b, w, t, val);
        if (!root)
            return false;
    }
    if (root != val)
        val->node->data = chain_of(t->node);
    w->gen++;
    root->node->mark = w->gen;
    val->node->mark = w->gen;
    w->root->node = root->node;
    t->node = val->node;
    return true;
}

/* --- the PURE column: the value that an always-writing row leaves in its first argument */
static tp_tensor *pure_copy(bld *b, const tp_val *arg)
{
    tp_tensor *self = arg[0].t, *src = arg[1].t;
    if (!tensor_same_size(src, self))
        src = b_op(b, expand, vT(src), vIs(self->size, self->ndim));
    if (src && src->dt != self->dt)
        return b_op(b, to_dtype, vT(src), vDT(self->dt));
    return b_op(b, clone, vT(src));
}
static tp_tensor *pure_fill(bld *b, const tp_val *arg)
{
    const tp_tensor *self = arg[0].t;
    return b_op(b, full, vIs(self->size, self->ndim), arg[1], vDT(self->dt), vNone,
                vDev(tensor_device(self)));
}

typedef tp_tensor *pure_fn(bld *b, const tp_val *arg);
static pure_fn *const pure[OP_COUNT] = {
#define PURE(id, token) [OP_##id] = pure_##token,
#include "ops/ops.def"
};

static tp_tensor *mut_value(bld *b, const op_row *row, op_id op, const tp_val *arg)
{
    if (pure[op])
        return pure[op](b, arg);
    /* Anything else writes into a copy, which nobody else sees. */
    tp_val a[OP_MAX_PARAMS];
    memcpy(a, arg, sizeof(tp_val) * (size_t)row->schema.nparam);
    a[0] = vT(b_op(b, clone, vT(arg[0].t)));
    return a[0].t ? b_callv(b, op, OPV_fn, a, row->schema.nparam) : NULL;
}

static bool write(fn_state *f, op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out,
                  tp_err *err)
{
    const op_row *row = op_row_of(op);
    tp_tensor *self = arg[0].t, *val;
    bld b;
    bool ok = false;

    { /* the checks of the eager kernel: shapes, result type */
        tp_val probe[OP_MAX_RETURNS] = { 0 };
        uint32_t ver = self->storage->version;
        if (!ops_fake(cx, op, v, arg, probe, err))
            return false;
        for (int i = 0; i < row->schema.nret; i++)
            val_clear(&probe[i]);
        self->storage->version = ver;
    }
    rec_begin(&b, cx, err);
    f->depth++;
    if (v == OPV_inplace) {
        val = b_callv(&b, op, OPV_fn, arg, row->schema.nparam);
        if (val && val->dt != self->dt)
            val = b_op(&b, to_dtype, vT(val), vDT(self->dt));
        if (val && !tensor_same_size(val, self))
            val = b_op(&b, expand, vT(val), vIs(self->size, self->ndim));
    } else
        val = mut_value(&b, row, op, arg);
    val = aot_in_order_of(&b, val, self); /* later steps and the caller see its order of dimensions */
    if (val && val->node == self->node)   /* x.copy_(x) */
        ok = true;
    else
        ok = val && set_value(f, &b, self, val);
    f->depth--;
    bld_end(&b);
    if (!ok)
        return err->kind != ERR_notimpl &&
               err_set(err, ERR_internal, "in-place '%s' could not be made functional", row->full);
    tensor_bump(self);
    *out = vT(tensor_ref(self));
    return true;
}

/* --- the STATES column: rows that write to arguments beside the first, where they do in this call. Their pure twins return
 * the new values. */
static bool writes_batch_norm(const tp_val *arg)
{
    return arg[5].b && (arg[3].kind == VAL_tensor || arg[4].kind == VAL_tensor);
}
static bool states_batch_norm(fn_state *f, op_ctx *cx, const tp_val *arg, tp_val *out, tp_err *err)
{
    tp_tensor *r[5];
    bld b;
    if (arg[3].kind != VAL_tensor || arg[4].kind != VAL_tensor)
        return err_set(err, ERR_notimpl, "batch norm with one running statistic has no functional form");
    rec_begin(&b, cx, err);
    f->depth++;
    bool ok = b_opn(&b, _native_batch_norm_legit_functional, r, 5, arg[0], arg[1], arg[2], arg[3], arg[4],
                    arg[5], arg[6], arg[7]) &&
              set_value(f, &b, arg[3].t, r[3]) && set_value(f, &b, arg[4].t, r[4]);
    f->depth--;
    for (int i = 0; ok && i < 3; i++)
        out[i] = vT(tensor_ref(r[i]));
    bld_end(&b);
    if (ok) {
        tensor_bump(arg[3].t);
        tensor_bump(arg[4].t);
    }
    return ok;
}

typedef struct states_row {
    bool (*writes)(const tp_val *arg);
    bool (*call)(fn_state *f, op_ctx *cx, const tp_val *arg, tp_val *out, tp_err *err);
} states_row;
static const states_row states[OP_COUNT] = {
#define STATES(id, token) [OP_##id] = { writes_##token, states_##token },
#include "ops/ops.def"
};

static bool is_input(const fn_state *f, const tp_tensor *t)
{
    for (size_t i = 0; i < f->r->g->inputs.n; i++) {
        const tp_tensor *x = ir_type(f->r->g->inputs.at[i]);
        if (x && x->storage == t->storage)
            return true;
    }
    return false;
}
static bool tensor_overlaps(const tp_tensor *t) /* one element seen at several places */
{
    for (int d = 0; d < t->ndim; d++)
        if (t->stride[d] == 0 && t->size[d] != 1)
            return true;
    return false;
}

/* Do elements of an input share memory that t shows a part of? A write to one is a write to others. */
static bool overlapping_input(const fn_state *f, const tp_tensor *t)
{
    bool any = tensor_overlaps(t) && is_input(f, t);
    for (size_t i = 0; i < f->r->g->inputs.n && !any; i++) {
        const tp_tensor *x = ir_type(f->r->g->inputs.at[i]);
        any = x && x->storage == t->storage && tensor_overlaps(x);
    }
    return any;
}
static bool in_row_order(const tp_tensor *t) /* by its expressions, without a guard */
{
    symint row[TP_MAX_DIMS];
    shape_contiguous_strides(t->ndim, t->size, row);
    return !memcmp(row, t->stride, sizeof *row * (size_t)t->ndim);
}
/* Is t, which the graph made, or the tensor that it is a view of, laid over itself (empty_strided)? Values are not. */
static bool overlapping_made(const fn_state *f, const tp_tensor *t)
{
    const tp_tensor *root = t->base ? t->base : t;
    return !is_input(f, t) && !in_row_order(root) && shape_may_overlap(root->ndim, root->size, root->stride);
}
/* x.view(int32) of floats: what is written there is no value of the tensor below. */
static bool seen_as_another_type(const tp_tensor *t)
{
    for (const ir_node *n = t->node;
         n && (n->kind == IR_call || n->kind == IR_getitem) && n->narg && n->arg[0].kind == VAL_node;
         n = n->arg[0].node) {
        if (n->kind == IR_getitem)
            continue;
        if (!(op_row_of((op_id)n->op)->flags & OPF_VIEW))
            break;
        const tp_tensor *x = ir_type(n), *of = ir_type(n->arg[0].node);
        if (x && of && x->dt != of->dt && !dtype_is_complex((dtype)x->dt) && !dtype_is_complex((dtype)of->dt))
            return true;
    }
    return false;
}
static bool is_base(const fn_state *f, const tp_tensor *t)
{
    written *w = find(f, t->storage);
    return w && w->base;
}
static void set_form(tp_tensor *type, const tp_tensor *is)
{
    if (!type || type->ndim != is->ndim)
        return;
    memcpy(type->stride, is->stride, sizeof(symint) * (size_t)type->ndim);
    type->offset = is->offset;
}

/* A view of a tensor that was written, or another result with its strides: the new value may lie in memory another way than the tensor does. The tensors
 * keep their form, which is what the caller sees; the node says what it computes. */
static bool view_of_new_value(fn_state *f, op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out,
                              tp_err *err)
{
    const op_row *row = op_row_of(op);
    tp_val a[OP_MAX_PARAMS], probe[OP_MAX_RETURNS] = { 0 };
    tp_tensor *t = arg[0].t, *now = t->node ? ir_type(t->node) : NULL;
    bool same = !now || now->ndim != t->ndim;
    for (int i = 0; i < t->ndim && !same; i++)
        if (now->stride[i] != t->stride[i] && !sym_known(SYM_eq, now->stride[i], t->stride[i]))
            break;
        else
            same = i == t->ndim - 1;
    bool list = row->schema.ret_list && out[0].kind == VAL_tensors; /* unbind and its like */
    if (same || t->ndim == 0 || row->schema.nret != 1 || (!list && !out[0].t->node))
        return true;
    memcpy(a, arg, sizeof(tp_val) * (size_t)row->schema.nparam);
    a[0] = vT(ir_proxy(f->r, t->node));
    bool ok = ops_fake(cx, op, v, a, probe, err);
    for (int i = 0; ok && i < (list ? MIN(out[0].n, probe[0].n) : 1); i++) {
        const tp_tensor *is = list ? probe[0].ts[i] : probe[0].t;
        ir_node *item = (list ? out[0].ts[i] : out[0].t)->node;
        set_form(item ? ir_type(item) : NULL, is);
        if (list && item && item->kind == IR_getitem) /* the list says so, too */
            set_form(item->arg[0].node->val.kind == VAL_tensors ? item->arg[0].node->val.ts[i] : NULL, is);
    }
    val_clear(&probe[0]);
    tensor_unref(a[0].t);
    return ok;
}

/* Is it a new tensor that lies in memory as an argument with gaps does (select_scatter and its like)? */
static bool keeps_gaps(const tp_val *out)
{
    const tp_tensor *t = out[0].kind == VAL_tensor ? out[0].t : NULL;
    return t && sym_all_const(t->size, t->ndim) && sym_all_const(t->stride, t->ndim) && !tensor_is_dense(t);
}

static bool functional_call(void *data, op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out,
                            tp_err *err)
{
    fn_state *f = data;
    const op_row *row = op_row_of(op);

    for (int i = 0; i < row->schema.nparam; i++) { /* everything that is read must be up to date */
        if (arg[i].kind == VAL_tensor && arg[i].t->node && arg[i].t->rec == f->r &&
            !fn_node(f, cx, arg[i].t, err))
            return false;
        if (arg[i].kind == VAL_tensors)
            for (int k = 0; k < arg[i].n; k++)
                if (arg[i].ts[k] && arg[i].ts[k]->node && arg[i].ts[k]->rec == f->r &&
                    !fn_node(f, cx, arg[i].ts[k], err))
                    return false;
    }
    bool writes = v == OPV_inplace || ((row->flags & OPF_MUT) && arg[0].kind == VAL_tensor);
    if (row->flags & OPF_HEAD)
        return err_set(err, ERR_notimpl,
                       "'%s' changes the shape of a tensor in place, which has no functional form",
                       row->full);
    if (states[op].call && states[op].writes(arg))
        return states[op].call(f, cx, arg, out, err);
    if ((row->flags & OPF_STORAGE) && v == OPV_fn && arg[3].kind == VAL_int && is_input(f, arg[0].t) &&
        !(f->depth && is_base(f, arg[0].t)))
        return err_set(err, ERR_notimpl,
                       "'as_strided' with an offset counts from the start of the storage of an input, "
                       "which may begin anywhere in it");
    if (writes && !(f->depth && v == OPV_fn)) {
        if (overlapping_input(f, arg[0].t))
            return err_set(err, ERR_notimpl, "'%s' writes into an input whose elements share memory",
                           row->full);
        if (overlapping_made(f, arg[0].t))
            return err_set(err, ERR_notimpl, "'%s' writes into a tensor whose elements share memory",
                           row->full);
        if (seen_as_another_type(arg[0].t))
            return err_set(err, ERR_notimpl, "'%s' writes into memory that is seen as another type",
                           row->full);
        return write(f, cx, op, v, arg, out, err);
    }
    if (!ir_record(cx, f->r, op, v, arg, out, err))
        return false;
    if (((row->flags & OPF_VIEW) || keeps_gaps(out)) && arg[0].kind == VAL_tensor &&
        find(f, arg[0].t->storage) && !view_of_new_value(f, cx, op, v, arg, out, err))
        return false;
    for (int i = 0; i < row->schema.nret;
         i++) { /* results that look at written storage belong to its generation */
        tp_tensor **ts = out[i].kind == VAL_tensors ? out[i].ts : &out[i].t;
        int n = out[i].kind == VAL_tensors ? out[i].n : out[i].kind == VAL_tensor;
        for (int k = 0; k < n; k++) {
            written *w = ts[k] ? find(f, ts[k]->storage) : NULL;
            if (w && ts[k]->node)
                ts[k]->node->mark = w->gen;
        }
    }
    return true;
}

fn_state *fn_new(ir_rec *r)
{
    fn_state *f = mem_zalloc(sizeof *f);
    f->r = r;
    r->call = functional_call;
    r->call_data = f;
    return f;
}

void fn_free(fn_state *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->all.n; i++) {
        tensor_unref(f->all.at[i]->root);
        free(f->all.at[i]);
    }
    vec_free(&f->all);
    map_free(&f->by_storage);
    free(f);
}
