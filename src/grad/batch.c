/* batch.c - calls on batched tensors: who they are, which rule runs, what the function gets back. */
#include "grad/batch.h"
#include "grad/tape.h"
#include "ops/decomp.h"
#include "ops/order.h"
#include <pthread.h>

static batch_rule *const rules[OP_COUNT] = {
#define VMAP(id, rule) [OP_##id] = batch_##rule,
#include "ops/ops.def"
};

/* ---- levels ---- */
batch_level *batch_now(const op_ctx *cx) { return cx->batch; }

batch_level *batch_enter(op_ctx *cx, symint n, batch_draws draws)
{
    batch_level *l = mem_zalloc(sizeof *l);
    l->up = cx->batch;
    l->id = l->up ? l->up->id + 1 : 1;
    l->n = n;
    l->draws = draws;
    cx->batch = l;
    return l;
}

void batch_exit(op_ctx *cx)
{
    batch_level *l = cx->batch;
    assert(l);
    cx->batch = l->up;
    if (l->up && !l->up->refused) /* who reads data inside reads it outside, too */
        l->up->refused = l->refused;
    free(l);
}

/* ---- batched tensors ---- */
typedef struct batched { /* what the storage of one knows */
    tp_tensor *whole;
    int level;
} batched;

static void drop_batched(void *ctx, void *data)
{
    batched *m = ctx;
    tensor_unref(m->whole);
    free(m);
}

static batched *batched_of(const tp_tensor *t)
{
    return t->storage->flags & ST_batched ? t->storage->ctx : NULL;
}

int batch_level_of(const tp_tensor *t)
{
    const batched *m = batched_of(t);
    return m ? m->level : 0;
}

bool batch_has_history(const tp_tensor *t)
{
    const batched *m = batched_of(t);
    return m && (grad_requires_grad(m->whole) || batch_has_history(m->whole));
}

tp_tensor *batch_wrap(tp_tensor *t, int level)
{
    assert(t->ndim > 0);
    batched *m = mem_alloc(sizeof *m);
    m->whole = tensor_ref(t);
    m->level = level;
    /* As much memory as the last element has: what fits into it fits into all. Of no elements one is looked at, without memory. */
    symint bytes = t->storage->nbytes, step = sym_mul(t->stride[0], dtype_size((dtype)t->dt));
    if (sym_is_expr(t->size[0]) || t->size[0] > 0)
        bytes = sym_sub(bytes, sym_mul(sym_sub(t->size[0], 1), step));
    else
        shape_storage_bytes((dtype)t->dt, t->ndim - 1, t->size + 1, t->stride + 1, t->offset, &bytes, NULL);
    tp_storage *s = storage_new_fake(bytes, tensor_device(t));
    s->flags |= ST_batched;
    s->release = drop_batched;
    s->ctx = m;
    tp_tensor *one = tensor_on(s, (dtype)t->dt, t->ndim - 1, t->size + 1, t->stride + 1, t->offset);
    storage_unref(s);
    if (t->flags & TF_inference)
        one->flags |= TF_inference;
    return one;
}

/* How a view is made of the dimensions of the whole: for each of its own which one (-1: of size 1, or repeated), where it begins in each
 * and with which step. */
typedef struct cut {
    int from[TP_MAX_DIMS];
    symint start[TP_MAX_DIMS], end[TP_MAX_DIMS], step[TP_MAX_DIMS];
    bool used[TP_MAX_DIMS];
} cut;

/* The dimension of the whole along which this stride goes: the same one, or the widest that it is a multiple of. */
static int dim_along(const tp_tensor *whole, const cut *c, symint stride)
{
    int best = -1;
    for (int k = 0; k < whole->ndim - 1; k++) {
        symint s = whole->stride[k + 1];
        if (c->used[k] || sym_eq(whole->size[k + 1], 1))
            continue;
        if (sym_eq(s, stride))
            return k;
        if (!sym_is_expr(s) && !sym_is_expr(stride) && s > 0 && stride % s == 0 &&
            (best < 0 || s > whole->stride[best + 1]))
            best = k;
    }
    return best;
}

static bool find_dims(const tp_tensor *whole, const tp_tensor *t, cut *c)
{
    memset(c, 0, sizeof *c);
    for (int d = 0; d < t->ndim; d++) {
        c->from[d] = -1;
        if (sym_eq(t->size[d], 1) || sym_eq(t->stride[d], 0))
            continue;
        int k = c->from[d] = dim_along(whole, c, t->stride[d]);
        if (k < 0)
            return false;
        c->used[k] = true;
        c->step[k] = sym_eq(t->stride[d], whole->stride[k + 1]) ? 1 : t->stride[d] / whole->stride[k + 1];
        c->end[k] = t->size[d]; /* a count, until the start is known */
    }
    return true;
}

/* Does every stride clear the dimensions below it? Then an offset says where a view begins in each. */
static bool is_nested(const tp_tensor *whole)
{
    for (int i = 1; i < whole->ndim; i++)
        for (int k = 1; k < whole->ndim; k++) {
            symint si = whole->stride[i], sk = whole->stride[k];
            if (i == k || sym_is_expr(si) || sym_is_expr(sk) || sym_eq(whole->size[i], 1) ||
                sym_eq(whole->size[k], 1))
                continue;
            if (si == sk || (sk < si && !sym_is_expr(whole->size[k]) && sk * whole->size[k] > si))
                return false;
        }
    return true;
}

/* Where it begins, by the offset: the widest strides first, each of which must clear what lies below it. */
static bool find_starts(const tp_tensor *whole, const tp_tensor *t, cut *c)
{
    symint left = sym_sub(t->offset, whole->offset);
    bool done[TP_MAX_DIMS] = { false }, moved = !sym_eq(left, 0);
    if (sym_is_expr(left) || left < 0)
        return false;
    for (int n = 0; n < whole->ndim - 1 && moved; n++) {
        int k = -1;
        for (int j = 0; j < whole->ndim - 1; j++) {
            if (sym_is_expr(whole->stride[j + 1]))
                return false;
            if (!done[j] && whole->stride[j + 1] > 0 && !sym_eq(whole->size[j + 1], 1) &&
                (k < 0 || whole->stride[j + 1] > whole->stride[k + 1]))
                k = j;
        }
        if (k < 0)
            break;
        done[k] = true;
        c->start[k] = left / whole->stride[k + 1];
        left %= whole->stride[k + 1];
    }
    if (moved && left)
        return false;
    for (int k = 0; k < whole->ndim - 1; k++) {
        if (!c->used[k] && !moved && !sym_eq(whole->size[k + 1], 1))
            c->start[k] = 0;
        if (!c->used[k])
            continue;
        if (c->step[k] == 1 && !c->start[k] && sym_eq(c->end[k], whole->size[k + 1]))
            continue;
        if (sym_is_expr(c->end[k]) || sym_is_expr(whole->size[k + 1]))
            return false;
        c->end[k] = c->start[k] + (c->end[k] - 1) * c->step[k] + 1;
        if (c->end[k] > whole->size[k + 1])
            return false;
    }
    return true;
}

/* t as a view of the whole by operators that say what it is: some of its dimensions or parts of them, in another order, with ones of
 * size 1 or repeated ones between them. False: it is something else. */
static bool simple_view(bld *b, const tp_tensor *whole, const tp_tensor *t, tp_tensor **made)
{
    symint perm[TP_MAX_DIMS], size[TP_MAX_DIMS];
    int at[TP_MAX_DIMS], left = 1, np = 1, nd = whole->ndim - 1;
    cut c;
    tp_tensor *r = (tp_tensor *)whole;

    if (!is_nested(whole) || !find_dims(whole, t, &c) || !find_starts(whole, t, &c))
        return false;
    for (int k = 0; k < nd && r; k++) {
        at[k] = left;
        if (!c.used[k])
            r = b_op(b, select_int, vT(r), vI(left), vI(c.start[k]));
        else {
            if (c.step[k] != 1 || c.start[k] || !sym_eq(c.end[k], whole->size[k + 1]))
                r = b_op(b, slice_Tensor, vT(r), vI(left), vI(c.start[k]), vI(c.end[k]), vI(c.step[k]));
            left++;
        }
    }
    perm[0] = 0;
    bool moved = false, grown = false;
    for (int d = 0; d < t->ndim; d++)
        if (c.from[d] >= 0) {
            moved |= at[c.from[d]] != np;
            perm[np++] = at[c.from[d]];
        }
    if (r && moved)
        r = b_op(b, permute, vT(r), vIs(perm, np));
    size[0] = whole->size[0];
    for (int d = 0; d < t->ndim && r; d++) {
        size[d + 1] = t->size[d];
        if (c.from[d] < 0) {
            r = b_op(b, unsqueeze, vT(r), vI(d + 1));
            grown |= !sym_eq(t->size[d], 1);
        }
    }
    *made = r && grown ? b_op(b, expand, vT(r), vIs(size, t->ndim + 1)) : r;
    return true;
}

/* A part of the memory, in its order: the whole in one dimension, cut, and shaped. */
static bool flat_view(bld *b, tp_tensor *whole, const tp_tensor *t, tp_tensor **made)
{
    symint size[TP_MAX_DIMS], n = shape_numel(whole->ndim - 1, whole->size + 1),
                              start = sym_sub(t->offset, whole->offset);
    if (!tensor_is_contiguous(whole) || !tensor_is_contiguous(t) || sym_is_expr(start) || start < 0 ||
        (start && (sym_is_expr(n) || sym_is_expr(t->numel) || start + t->numel > n)))
        return false;
    if (!start && !sym_eq(n, t->numel) && (sym_is_expr(n) || sym_is_expr(t->numel) || t->numel > n))
        return false;
    size[0] = whole->size[0];
    size[1] = n;
    tp_tensor *r = b_op(b, view, vT(whole), vIs(size, 2));
    if (r && (start || !sym_eq(n, t->numel)))
        r = b_op(b, slice_Tensor, vT(r), vI(1), vI(start), vI(start + t->numel));
    memcpy(size + 1, t->size, sizeof *size * t->ndim);
    *made = r ? b_op(b, view, vT(r), vIs(size, t->ndim + 1)) : NULL;
    return true;
}

static bool same_shape(const tp_tensor *whole, const tp_tensor *t)
{
    if (whole->dt != t->dt || whole->ndim != t->ndim + 1 || !sym_eq(whole->offset, t->offset))
        return false;
    for (int d = 0; d < t->ndim; d++)
        if (!sym_eq(whole->size[d + 1], t->size[d]) ||
            (!sym_eq(whole->stride[d + 1], t->stride[d]) && !sym_eq(t->size[d], 1)))
            return false;
    return true;
}

/* A header that was changed in place may say more than an element has. */
static bool within_memory(const tp_tensor *t, tp_err *err)
{
    symint need;
    if (!batched_of(t))
        return true;
    if (!shape_storage_bytes((dtype)t->dt, t->ndim, t->size, t->stride, t->offset, &need, err))
        return false;
    return sym_is_expr(need) || sym_is_expr(t->storage->nbytes) || need <= t->storage->nbytes ||
           err_set(err, ERR_runtime,
                   "vmap: an element of a batch cannot grow in place (resize_() and the like); make a new "
                   "tensor");
}

tp_tensor *batch_whole(op_ctx *cx, tp_tensor *t, int level, tp_err *err)
{
    batched *m = batched_of(t);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    if (!m || m->level != level)
        return NULL;
    tp_tensor *w = m->whole, *r = NULL;
    if (same_shape(w, t))
        return tensor_ref(w);
    if (!within_memory(t, err))
        return NULL;
    if (t->ndim + 1 > TP_MAX_DIMS) {
        err_set(err, ERR_runtime, "vmap: a tensor has more than %d dimensions with the batch", TP_MAX_DIMS);
        return NULL;
    }
    size[0] = w->size[0];
    stride[0] = w->stride[0];
    memcpy(size + 1, t->size, sizeof *size * t->ndim);
    memcpy(stride + 1, t->stride, sizeof *size * t->ndim);
    assert(w->dt == t->dt); /* views of another type have a storage of their own */
    if (!tensor_is_fake(w) && !(grad_requires_grad(w) && grad_records(cx)))
        return tensor_view(w, t->ndim + 1, size, stride, t->offset);
    bld b;
    bld_init(&b, cx, err);
    b.call = grad_bld_call;
    if (!simple_view(&b, w, t, &r) && !flat_view(&b, w, t, &r))
        r = b_op(&b, as_strided, vT(w), vIs(size, t->ndim + 1), vIs(stride, t->ndim + 1), vI(t->offset));
    r = r ? tensor_ref(r) : NULL;
    bld_end(&b);
    return r;
}

static tp_tensor *spread(bld *b, tp_tensor *t, symint n)
{
    symint size[TP_MAX_DIMS];
    size[0] = n;
    memcpy(size + 1, t->size, sizeof *size * t->ndim);
    return b_op(b, expand, vT(t), vIs(size, t->ndim + 1));
}

tp_tensor *batch_spread(op_ctx *cx, tp_tensor *t, const batch_level *l, tp_err *err)
{
    tp_tensor *r = batch_whole(cx, t, l->id, err);
    if (r || (err && err_is_set(err)))
        return r;
    bld b;
    bld_init(&b, cx, err);
    b.call = grad_bld_call;
    r = spread(&b, t, l->n);
    r = r ? tensor_ref(r) : NULL;
    bld_end(&b);
    return r;
}

/* ---- what rules use ---- */
bool batch_run(batch_call *x, op_id op, const tp_val *arg)
{
    if (x->b->failed || x->b->call(x->b, op, x->v, arg, x->out))
        return !x->b->failed;
    x->b->failed = true;
    return false;
}

bool batch_give(batch_call *x, tp_tensor *t)
{
    if (!t)
        return false;
    x->out[0] = vT(tensor_ref(t));
    return true;
}

tp_tensor *batch_lead(batch_call *x, int i)
{
    return x->whole[i] ? x->whole[i] : x->arg[i].kind == VAL_tensor ? spread(x->b, x->arg[i].t, x->n) : NULL;
}

tp_tensor *batch_lead_list(batch_call *x, int k)
{
    tp_tensor *t = x->arg[x->lparam].ts[k];
    return x->list[k] ? x->list[k] : t ? spread(x->b, t, x->n) : NULL;
}

tp_tensor *batch_shape(batch_call *x, tp_tensor *t, int nd, const symint *size)
{
    if (!t)
        return NULL;
    if (t->ndim == nd) {
        bool same = true;
        for (int d = 0; d < nd && same; d++)
            same = sym_eq(t->size[d], size[d]);
        if (same)
            return t;
    }
    return b_op(x->b, reshape, vT(t), vIs(size, nd));
}

tp_tensor *batch_pad(batch_call *x, tp_tensor *whole, int rank)
{
    symint size[TP_MAX_DIMS];
    int more = whole ? rank + 1 - whole->ndim : 0;
    if (more <= 0)
        return whole;
    size[0] = whole->size[0];
    for (int d = 0; d < more; d++)
        size[1 + d] = 1;
    memcpy(size + 1 + more, whole->size + 1, sizeof *size * (size_t)(whole->ndim - 1));
    return batch_shape(x, whole, rank + 1, size);
}

tp_tensor *batch_move(batch_call *x, tp_tensor *t, int from, int to)
{
    symint perm[TP_MAX_DIMS];
    if (!t || from == to)
        return t;
    for (int d = 0, k = 0; d < t->ndim; d++) {
        if (k == from)
            k++;
        perm[d] = d == to ? from : k++;
    }
    return b_op(x->b, permute, vT(t), vIs(perm, t->ndim));
}

/* On the function's tensors, below its tape: the call comes back to batch_op. */
tp_tensor *batch_inside(batch_call *x, op_id op, const tp_val *arg, int narg)
{
    bld in;
    bld_init(&in, x->b->cx, x->b->err);
    tp_tensor *r = b_callv(&in, op, OPV_fn, arg, narg);
    if (r)
        bld_keep(x->b, tensor_ref(r));
    bld_end(&in);
    return r;
}

/* ---- the loop, where no rule takes the call ---- */
static pthread_mutex_t loops_lock = PTHREAD_MUTEX_INITIALIZER;
static batch_loop loops[OP_COUNT];
static int nloops;

const batch_loop *batch_loops(int *n)
{
    *n = nloops;
    return loops;
}

static void count_loop(const op_row *row, symint n)
{
    pthread_mutex_lock(&loops_lock);
    int i = 0;
    while (i < nloops && loops[i].name != row->full)
        i++;
    if (i == nloops)
        loops[nloops++].name = row->full;
    loops[i].calls++;
    loops[i].elements += sym_is_expr(n) ? 0 : n;
    pthread_mutex_unlock(&loops_lock);
}

static tp_tensor *stacked(bld *b, tp_tensor **part, int64_t n, const tp_tensor *like)
{
    if (n)
        return b_op(b, stack, vTs(part, (int)n), vI(0));
    symint size[TP_MAX_DIMS];
    size[0] = 0;
    memcpy(size + 1, like->size, sizeof *size * like->ndim);
    return b_op(b, empty_memory_format, vIs(size, like->ndim + 1), vDT(like->dt), vNone,
                vDev(tensor_device(like)));
}

static bool one_by_one(batch_call *x)
{
    bld *b = x->b;
    int64_t n = sym_is_expr(x->n) ? sym_number(x->n) : x->n;
    const op_schema *s = &x->row->schema;
    int nout = s->ret_list ? 1 : s->nret;
    tp_tensor **part = mem_zalloc(sizeof *part * (size_t)MAX(n * nout, 1));
    bool writes = x->v == OPV_inplace || (x->row->flags & OPF_MUT), ok = !s->ret_list;

    count_loop(x->row, x->n);
    if (s->ret_list)
        err_set(b->err, ERR_notimpl, "vmap: '%s' has no batching rule", x->row->full);
    for (int64_t k = 0; k < n && ok; k++) {
        tp_val a[OP_MAX_PARAMS], out[OP_MAX_RETURNS] = { 0 };
        tp_tensor **ts = NULL;
        for (int i = 0; i < s->nparam; i++) {
            a[i] = x->arg[i];
            if (x->whole[i])
                a[i] = vT(b_op(b, select_int, vT(x->whole[i]), vI(0), vI(k)));
            else if (i == x->lparam) {
                ts = mem_zalloc(sizeof *ts * (size_t)MAX(x->arg[i].n, 1));
                for (int j = 0; j < x->arg[i].n; j++)
                    ts[j] = x->list[j] ? b_op(b, select_int, vT(x->list[j]), vI(0), vI(k)) : x->arg[i].ts[j];
                a[i] = vTs(ts, x->arg[i].n);
            }
        }
        ok = !b->failed && b->call(b, x->op, x->v, a, out);
        for (int i = 0; i < nout && ok; i++)
            if (out[i].kind == VAL_tensor)
                part[(size_t)i * (size_t)n + (size_t)k] = bld_keep(b, out[i].t);
        free(ts);
    }
    for (int i = 0; i < nout && ok && !writes; i++)
        if (x->want[i].kind == VAL_tensor) {
            tp_tensor *t = stacked(b, part + i * n, n, x->want[i].t);
            ok = t != NULL;
            x->out[i] = ok ? vT(tensor_ref(t)) : vNone;
        }
    free(part);
    return ok && !b->failed;
}

/* ---- the call ---- */
static int level_among(const op_row *row, const tp_val *arg)
{
    int level = 0;
    for (int i = 0; i < row->schema.nparam; i++)
        for (int k = 0; k < (arg[i].kind == VAL_tensors ? arg[i].n : arg[i].kind == VAL_tensor); k++) {
            const tp_tensor *t = arg[i].kind == VAL_tensors ? arg[i].ts[k] : arg[i].t;
            if (t)
                level = MAX(level, batch_level_of(t));
        }
    return level;
}

static bool find_wholes(batch_call *x)
{
    for (int i = 0; i < x->row->schema.nparam; i++) {
        const tp_val *v = &x->arg[i];
        if (v->kind == VAL_tensor)
            x->whole[i] = bld_keep(x->b, batch_whole(x->b->cx, v->t, x->level->id, x->b->err));
        else if (v->kind == VAL_tensors) {
            x->lparam = i;
            x->list = mem_zalloc(sizeof *x->list * (size_t)MAX(v->n, 1));
            for (int k = 0; k < v->n; k++)
                if (v->ts[k])
                    x->list[k] = bld_keep(x->b, batch_whole(x->b->cx, v->ts[k], x->level->id, x->b->err));
        }
    }
    return !err_is_set(x->b->err);
}

/* Results as the function sees them. */
static bool give_back(batch_call *x, tp_val *out)
{
    int nret = x->row->schema.nret;
    for (int i = 0; i < nret; i++) {
        tp_tensor *w = x->out[i].kind == VAL_tensor ? x->out[i].t : NULL;
        const tp_tensor *like = x->want[i].kind == VAL_tensor ? x->want[i].t : NULL;
        if (!w || !like) {
            out[i] = vNone;
            continue;
        }
        if (x->same) {
            out[i] = vT(tensor_ref(w));
            continue;
        }
        symint size[TP_MAX_DIMS];
        size[0] = x->n;
        memcpy(size + 1, like->size, sizeof *size * like->ndim);
        if (w->dt != like->dt)
            w = b_op(x->b, to_dtype, vT(w), vDT(like->dt));
        w = batch_shape(x, w, like->ndim + 1, size);
        if (!w) {
            for (int k = 0; k < i; k++)
                val_clear(&out[k]);
            return false;
        }
        out[i] = vT(batch_wrap(w, x->level->id));
    }
    return true;
}

/* In place on the same tensor for all elements what differs between them. */
static bool written_alone(const batch_call *x, tp_err *err)
{
    return err_set(err, ERR_runtime,
                   "vmap: %s%s() cannot write values that differ between the elements of the batch to a "
                   "tensor that is the same "
                   "for all of them. Use an operator that returns a new tensor, or give this tensor to the "
                   "function with an "
                   "in_dim.",
                   x->row->name, x->v == OPV_inplace ? "_" : "");
}

/* By the row that makes a new tensor, which is then copied. */
static bool through_copy(batch_call *x)
{
    tp_val out[OP_MAX_RETURNS] = { 0 };
    bool ok = ops_call(x->b->cx, x->op, OPV_fn, x->arg, out, x->b->err);
    tp_tensor *w = ok ? bld_keep(x->b, batch_whole(x->b->cx, out[0].t, x->level->id, x->b->err)) : NULL;
    ok = ok && (w || !err_is_set(x->b->err)) &&
         b_callv(x->b, OP_copy_, OPV_fn, B_ARGS(vT(x->whole[0]), w ? vT(w) : out[0])) != NULL;
    val_clear(&out[0]);
    return ok;
}

bool batch_parts(batch_call *x)
{
    bld in;
    tp_err *err = x->b->err;
    if (!strcmp(x->row->decomp_name, "none") || x->v != OPV_fn)
        return false;
    tp_val out[OP_MAX_RETURNS] = { 0 };
    bld_init(&in, x->b->cx, err);
    bool ok = op_decompose(x->row, &in, x->arg, out);
    for (int i = 0; i < x->row->schema.nret && ok; i++)
        if (out[i].kind == VAL_tensor)
            x->out[i] = vT(batch_spread(x->b->cx, out[i].t, x->level, err));
    for (int i = 0; i < x->row->schema.nret; i++)
        val_clear(&out[i]);
    bld_end(&in);
    return ok && !err_is_set(err);
}

static bool attempt(batch_call *x, batch_rule *rule, bool *hard)
{
    tp_err *err = x->b->err;
    if (rule && rule(x) && !x->b->failed)
        return true;
    *hard = err_is_set(err);
    for (int i = 0; i < OP_MAX_RETURNS; i++)
        val_clear(&x->out[i]);
    x->b->failed = false;
    return false;
}

static bool run_rule(batch_call *x)
{
    bool hard = false, writes = x->v == OPV_inplace || (x->row->flags & OPF_MUT),
         pointwise = x->row->flags & OPF_PW;
    batch_rule *rule = rules[x->op] ? rules[x->op] : pointwise ? batch_pointwise : NULL;
    tp_err *err = x->b->err;

    if (writes && !x->whole[0] && rule != batch_random)
        return written_alone(x, err);
    if (x->v == OPV_inplace && rule != batch_pointwise && rule)
        return through_copy(x);
    if (attempt(x, rule, &hard) || hard)
        return !hard;
    if (attempt(x, batch_parts, &hard))
        return true;
    err_clear(err); /* the parts may write to what they made the same for all */
    return attempt(x, one_by_one, &hard);
}

/* Views are geometry: the shape rule has said all, unless the memory is another. */
static bool view_of(batch_call *x, tp_val *out)
{
    const op_row *row = x->row;
    tp_tensor *w = x->whole[0];
    bool list = row->schema.ret_list;
    if (!w) /* of something the same for all, by one that is not: only its shape was asked for */
        return true;
    bool other = !list && out[0].kind == VAL_tensor && out[0].t->dt != x->arg[0].t->dt;
    bool cut = x->op == OP_detach && (grad_requires_grad(w) || tensor_is_fake(w));
    if (!other && !cut)
        return true;
    val_clear(&out[0]); /* a storage of its own, with the memory of the whole */
    tp_val a[OP_MAX_PARAMS];
    memcpy(a, x->arg, sizeof *a * (size_t)row->schema.nparam);
    a[0] = vT(w);
    if (!batch_run(x, x->op, a))
        return false;
    out[0] = vT(batch_wrap(x->out[0].t, x->level->id));
    val_clear(&x->out[0]);
    return true;
}

static bool refused(batch_call *x, batch_level *l, tp_err *err)
{
    for (batch_level *k = x->b->cx->batch; k; k = k->up)
        k->refused = x->row->full;
    if (l)
        l->refused = x->row->full;
    return err_set(
        err, ERR_runtime,
        "vmap: %s() needs the values of a tensor that are different for each element of the batch%s",
        x->row->name, x->row->flags & OPF_DYN ? ": the size of its result depends on them" : "");
}

static bool answer(batch_call *x, tp_val *out)
{
    const op_row *row = x->row;
    tp_err *err = x->b->err;
    bool writes = x->v == OPV_inplace || (row->flags & OPF_MUT);
    if (!ops_fake(x->b->cx, x->op, x->v, x->arg, out, err))
        return false;
    if (row->flags & OPF_VIEW) {
        if (view_of(x, out))
            return true;
    } else if (row->flags & OPF_HEAD) {
        if (within_memory(x->arg[0].t, err))
            return true;
    } else {
        x->want = out;
        if (run_rule(x)) {
            if (writes)
                return true;
            tp_val seen[OP_MAX_RETURNS] = { 0 };
            if (give_back(x, seen)) {
                for (int i = 0; i < row->schema.nret; i++) {
                    val_clear(&out[i]);
                    out[i] = seen[i];
                }
                return true;
            }
        }
    }
    for (int i = 0; i < row->schema.nret; i++)
        val_clear(&out[i]);
    err_set(err, ERR_internal, "vmap: '%s' failed", row->full); /* keeps an earlier error */
    return false;
}

/* A call with a batched argument, or one that draws inside vmap. */
static bool batch_op(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err)
{
    const op_row *row = op_row_of(op);
    tp_err local = { 0 };
    batch_level *was = cx->batch, *l = was, gone;
    bld b;
    if (!err)
        err = &local;
    int level = row->flags & OPF_RAND && was ? was->id : level_among(row, arg);
    bld_init(&b, cx, err);
    b.call = grad_bld_call;
    while (l && l->id > level)
        l = l->up;
    batch_call x = { .b = &b, .op = op, .v = v, .row = row, .arg = arg, .lparam = -1 };
    if (!l || l->id != level) { /* its vmap has ended: backward comes later, or it was kept */
        gone = (batch_level){ .id = level, .up = l };
        for (int i = 0; i < row->schema.nparam && !gone.n; i++)
            for (int k = 0;
                 k < (arg[i].kind == VAL_tensors ? arg[i].n : arg[i].kind == VAL_tensor) && !gone.n; k++) {
                const tp_tensor *t = arg[i].kind == VAL_tensors ? arg[i].ts[k] : arg[i].t;
                if (t && batch_level_of(t) == level)
                    gone.n = batched_of(t)->whole->size[0];
            }
        l = &gone;
    }
    x.level = l;
    x.n = l->n;
    bool ok = false;
    if (v == OPV_out)
        err_set(err, ERR_runtime, "vmap: %s(): out= does not take part in a batch; use the result",
                row->name);
    else if (row->flags & (OPF_DYN | OPF_SYNC))
        refused(&x, l, err);
    else {
        cx->batch = l->up;
        ok = find_wholes(&x) && answer(&x, out);
        for (int i = 0; i < OP_MAX_RETURNS; i++)
            val_clear(&x.out[i]);
        cx->batch = was;
    }
    free(x.list);
    bld_end(&b);
    return ok;
}

__attribute__((constructor)) static void offer(void) { ops_on_batch(batch_op); }
