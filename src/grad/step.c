/* step.c - operator calls on the tape: grad_call, what a step keeps of its call, and running its rule. */
#include "grad/tape.h"
#include "grad/vjp.h"

/* One allocation holds the step and, behind it, edges, types, saved arguments and copied lists. */
typedef struct op_step {
    grad_node n;
    uint16_t op;
    uint8_t nparam, variant;
    uint32_t tmask; /* Tensor parameters */
    int lparam;     /* the Tensor[] parameter, or -1 */
    int nlist;
    tp_val *arg;       /* tensors only where saved (counted), borrowed lists point into the step */
    uint32_t *ver;     /* versions of saved arguments, then list elements, then results */
    tp_tensor **out;   /* saved results: aliases without history (counted), or NULL */
    grad_shape *argm;  /* types of arguments: ndim 255 where there is no tensor */
    grad_shape *listm; /* types of list elements */
    tp_tensor **list;  /* saved list elements (counted) */
    grad_pack *pack;   /* saved tensors went through hooks: handles instead */
    void **handle;     /* same indices as ver */
} op_step;

static const char *step_name(const grad_node *n)
{
    return vjp_info_of((op_id)((const op_step *)n)->op)->name;
}

static void step_release(grad_node *n)
{
    op_step *s = (op_step *)n;
    if (!s->n.saves)
        return;
    for (uint32_t m = s->tmask; m; m &= m - 1) {
        int i = __builtin_ctz(m);
        if (s->arg[i].kind == VAL_tensor) {
            tp_tensor *t = s->arg[i].t;
            s->arg[i] = vNone;
            tensor_unref(t);
        }
    }
    for (int k = 0; k < s->nlist && s->list; k++) {
        tensor_unref(s->list[k]);
        s->list[k] = NULL;
    }
    for (int k = 0; k < n->nin; k++) {
        tensor_unref(s->out[k]);
        s->out[k] = NULL;
    }
    if (s->pack) {
        for (int k = 0; k < s->nparam + s->nlist + n->nin; k++)
            if (s->handle[k])
                s->pack->drop(s->pack->data, s->handle[k]);
        free(s->handle);
        grad_pack_unref(s->pack);
        s->pack = NULL;
        s->handle = NULL;
    }
}

/* Rules are those of real numbers: f' dy. Of complex numbers the gradient is conj(f') dy = conj(f' conj(dy)). */
static bool conjugate_in(bld *b, const op_row *row, const vjp_info *vi, int n, tp_tensor *const *dy,
                         tp_tensor **out)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        out[i] = dy[i];
        any |= dy[i] && dtype_is_complex((dtype)dy[i]->dt);
    }
    if (TP_LIKELY(!any) || vi->as_is || (row->flags & OPF_VIEW))
        return false;
    for (int i = 0; i < n; i++)
        if (dy[i] && dtype_is_complex((dtype)dy[i]->dt))
            out[i] = b_op(b, conj_physical, vT(dy[i]));
    return true;
}
static void conjugate_out(bld *b, tp_tensor **dx)
{
    if (*dx && dtype_is_complex((dtype)(*dx)->dt))
        *dx = b_op(b, conj_physical, vT(*dx));
}

static bool step_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                       tp_err *err);
static const grad_vt step_vt = { step_name, step_apply, step_release, NULL };

int grad_node_next(const grad_node *n, grad_edge *out, int cap)
{
    int k = 0;
    const op_step *s = n->vt == &step_vt ? (const op_step *)n : NULL;
    for (int i = 0, e = 0; e < n->nedge; i++) {
        int many = 1;
        bool show = true;
        if (s) { /* integer tensors are no inputs of the derivative */
            if (i == s->lparam)
                many = s->nlist, show = many && dtype_has_grad((dtype)s->listm[0].dt);
            else if (!(s->tmask >> i & 1))
                continue;
            else
                show = s->argm[i].ndim == 255 || dtype_has_grad((dtype)s->argm[i].dt);
        }
        for (int j = 0; j < many; j++, e++)
            if (show) {
                if (k < cap)
                    out[k] = n->edge[e];
                k++;
            }
    }
    return k;
}

/* ---- saving ---- */
typedef struct call_info {
    op_ctx *cx;
    const op_row *row;
    const vjp_info *vi;
    op_id op;
    op_variant v;
    const tp_val *arg;
    uint32_t need;    /* arguments that require a gradient */
    uint32_t save_in; /* arguments and results to save */
    uint32_t save_out;
    int lparam, nlist, nedge;
    grad_edge *edge;
    uint32_t *ver;
    tp_tensor *self; /* in-place: a copy of the first argument as it was, or NULL */
    void *
        *early;  /* in-place, under hooks: packed arguments that lie in the memory that is written, or NULL */
    bool header; /* the call changes its first argument's shape in place: t_, squeeze_ */
    tp_tensor was; /* ... and this is the shape before */
    symint dims[2 * TP_MAX_DIMS];
} call_info;

static size_t copied_bytes(const tp_val *v)
{
    switch (v->kind) {
    case VAL_ints: return sizeof(symint) * (size_t)v->n;
    case VAL_complex:
    case VAL_floats: return sizeof(double) * (size_t)v->n;
    case VAL_bools: return ((size_t)v->n + 7) & ~(size_t)7;
    case VAL_str: return (strlen(v->s) + 8) & ~(size_t)7;
    default: return 0;
    }
}

bool grad_may_save(const op_ctx *cx, const tp_tensor *t, tp_err *err)
{
    if (TP_UNLIKELY(t->flags & TF_inference) && !cx->inference_mode)
        return err_set(
            err, ERR_runtime,
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
            "inference mode in computation tracked by autograd. To work around this, you can make a "
            "clone to get a normal tensor and use it in autograd, or use `taper.no_grad()` instead "
            "of `taper.inference_mode()`.");
    return true;
}

static bool packs(const op_ctx *cx, const tp_tensor *t) /* a trace saves nothing that is real */
{
    return TP_UNLIKELY(cx->hooks != NULL) && !tensor_is_fake(t);
}

static void *packed(op_ctx *cx, tp_tensor *t, tp_err *err)
{
    grad_pack *p = cx->hooks;
    cx->hooks = NULL; /* operations inside pack are not packed again */
    void *handle = p->pack(p->data, t, err);
    cx->hooks = p;
    return handle;
}

/* early: where the handle is kept if it was packed before the call; it moves over. May be NULL. */
static bool save_tensor(op_step *s, int at, tp_tensor *t, tp_tensor **place, void **early, op_ctx *cx,
                        tp_err *err)
{
    s->n.saves = true;
    if (!grad_may_save(cx, t, err))
        return false;
    if (packs(cx, t)) {
        if (!s->handle) {
            s->handle = mem_zalloc(sizeof(void *) * (size_t)(s->nparam + s->nlist + s->n.nin));
            s->pack = grad_pack_ref(cx->hooks);
        }
        s->handle[at] = early && *early ? *early : packed(cx, t, err);
        if (early)
            *early = NULL;
        return s->handle[at] != NULL;
    }
    *place = tensor_ref(t);
    return true;
}

static inline symint *put_shape(grad_shape *m, const tp_tensor *t, symint *at)
{
    *m = (grad_shape){ at, t->offset, t->dt, t->ndim, t->storage->device };
    for (int d = 0; d < t->ndim; d++) {
        at[d] = t->size[d];
        at[t->ndim + d] = t->stride[d];
    }
    return at + 2 * t->ndim;
}

static tp_tensor *saved_alias(tp_tensor *t) /* same value, no history: a step must not hold itself */
{
    tp_tensor *a = tensor_alias(t);
    a->flags |= t->flags & (TF_inference | TF_wrapped);
    a->node = t->node;
    a->rec = t->rec;
    return a;
}

static tp_tensor *result_at(const op_row *row, const tp_val *out, int i)
{
    if (row->schema.ret_list)
        return out[0].ts[i];
    return out[i].kind == VAL_tensor ? out[i].t : NULL;
}

static op_step *step_new(const call_info *c, const tp_val *out, int nres, tp_err *err)
{
    int np = c->row->schema.nparam;
    size_t words = 0, extra = 0;
    for (int i = 0; i < np; i++) {
        const tp_val *v = &c->arg[i];
        if (v->kind == VAL_tensor)
            words += 2u * (i == 0 && c->header ? c->was.ndim : v->t->ndim);
        else if (v->kind == VAL_tensors) {
            for (int k = 0; k < v->n; k++)
                words += v->ts[k] ? 2u * v->ts[k]->ndim : 0;
        } else
            extra += copied_bytes(v);
    }
    for (int i = 0; i < nres; i++) {
        tp_tensor *t = result_at(c->row, out, i);
        words += t ? 2u * t->ndim : 0;
    }
    int nver = np + c->nlist + nres;
    size_t at = (sizeof(op_step) + 15) & ~(size_t)15;
    size_t size = at + sizeof(tp_val) * (size_t)np + sizeof(grad_shape) * (size_t)(np + c->nlist) +
                  sizeof(tp_tensor *) * (size_t)(c->nlist + nres) + sizeof(symint) * words + extra +
                  sizeof(uint32_t) * (size_t)nver;
    grad_node *n = grad_node_new(&step_vt, size, nres, c->nedge);
    op_step *s = (op_step *)n;
    char *p = (char *)n + at;
    s->op = (uint16_t)c->op;
    s->variant = (uint8_t)c->v;
    s->nparam = (uint8_t)np;
    s->tmask = c->vi->tmask;
    s->lparam = c->lparam;
    s->nlist = c->nlist;
    s->arg = (tp_val *)p;
    s->argm = (grad_shape *)(s->arg + np);
    s->listm = s->argm + np;
    s->list = (tp_tensor **)(s->listm + c->nlist);
    s->out = s->list + c->nlist;
    symint *dims = (symint *)(s->out + nres);
    char *more = (char *)(dims + words);
    s->ver = (uint32_t *)(more + extra);
    bool ok = true;

    for (int i = 0; i < np; i++) {
        const tp_val *v = &c->arg[i];
        s->argm[i].ndim = 255;
        switch (v->kind) {
        case VAL_tensor:
            dims = put_shape(&s->argm[i], i == 0 && c->header ? &c->was : v->t, dims);
            s->ver[i] = c->ver[i];
            if (c->save_in >> i & 1) {
                tp_tensor *keep = i == 0 && c->self ? c->self : v->t, *got = NULL;
                if (keep == c->self)
                    s->ver[i] = tensor_version(keep);
                ok = ok && save_tensor(s, i, keep, &got, c->early ? &c->early[i] : NULL, c->cx, err);
                s->arg[i] = vT(got);
            }
            break;
        case VAL_tensors:
            if (i != c->lparam)
                break;
            s->arg[i] = vTs(s->list, v->n);
            for (int k = 0; k < v->n; k++) {
                s->listm[k].ndim = 255;
                if (!v->ts[k])
                    continue;
                dims = put_shape(&s->listm[k], v->ts[k], dims);
                s->ver[np + k] = c->ver[np + k];
                if (c->save_in >> i & 1)
                    ok = ok && save_tensor(s, np + k, v->ts[k], &s->list[k], NULL, c->cx, err);
            }
            break;
        default: {
            size_t bytes = copied_bytes(v);
            s->arg[i] = *v;
            if (bytes) {
                memcpy(more, v->s,
                       v->kind == VAL_str     ? strlen(v->s) + 1
                       : v->kind == VAL_bools ? (size_t)v->n
                                              : bytes);
                s->arg[i].s = more;
                more += bytes;
            }
        }
        }
    }
    for (int i = 0; i < nres; i++) {
        tp_tensor *t = result_at(c->row, out, i);
        if (!t)
            continue;
        dims = put_shape(&n->in[i], t, dims);
        s->ver[np + c->nlist + i] = tensor_version(t);
        if (c->save_out >> (i < 32 ? i : 31) & 1) {
            tp_tensor *a = saved_alias(t);
            ok = ok && save_tensor(s, np + c->nlist + i, a, &s->out[i], NULL, c->cx, err);
            tensor_unref(a);
        }
    }
    for (int i = 0; i < c->nedge; i++) {
        n->edge[i] = c->edge[i]; /* counts move over */
        c->edge[i].node = NULL;
    }
    if (TP_UNLIKELY(c->cx->anomaly) && grad_anomaly_hooks.where)
        n->where = grad_anomaly_hooks.where(grad_anomaly_hooks.data);
    if (!ok) {
        grad_node_unref(n);
        return NULL;
    }
    return s;
}

/* ---- the call ---- */
bool grad_bld_call(bld *b, op_id op, op_variant v, const tp_val *arg, tp_val *out)
{
    return grad_call(b->cx, op, v, arg, out, b->err);
}

static bool composite(op_ctx *cx, const op_row *row, op_variant v, const tp_val *arg, tp_val *out,
                      tp_err *err)
{
    bld b;
    tp_val in[OP_MAX_PARAMS], before = vNone;
    if (v == OPV_inplace && grad_records(cx) &&
        grad_requires_grad(arg[0].t)) { /* what it held is still asked for */
        tp_val clone[2] = { arg[0], vNone };
        if (!grad_call(cx, OP_clone, OPV_fn, clone, &before, err))
            return false;
        memcpy(in, arg, sizeof *in * (size_t)row->schema.nparam);
        in[0] = before;
    }
    bld_init(&b, cx, err);
    b.call = grad_bld_call;
    bool ok = op_decompose(row, &b, before.kind == VAL_tensor ? in : arg, out);
    bld_end(&b);
    val_clear(&before);
    if (ok && v == OPV_inplace) {
        tp_val copy[3] = { arg[0], out[0], vB(false) }, res[1] = { vNone };
        ok = grad_call(cx, OP_copy_, OPV_fn, copy, res, err);
        val_clear(&out[0]);
        out[0] = res[0];
    }
    return ok;
}

bool grad_call_parts(op_ctx *cx, op_id op, const tp_val *arg, tp_val *out, tp_err *err)
{
    return composite(cx, op_row_of(op), OPV_fn, arg, out, err);
}

static void mark_view(op_ctx *cx, tp_tensor *t, const tp_tensor *of, bool need, bool many)
{
    if (!t || !t->base)
        return;
    t->spare |= of->spare & (AGF_data | AGF_nograd_view | AGF_multi_view | AGF_custom_view);
    if (!grad_records(cx))
        t->spare |= AGF_nograd_view;
    if (many)
        t->spare |= AGF_multi_view;
    if (need)
        grad_meta_make(t);
}

/* What a composite made of x under no_grad, perhaps a view. */
static void mark_made(op_ctx *cx, tp_tensor *t, tp_tensor *x, bool need, bool many)
{
    if (!t || t == x || t->storage != x->storage)
        return;
    if (!t->base)
        t->base = tensor_ref(x->base ? x->base : x);
    mark_view(cx, t, x, need, many);
}

/* A call that leaves no step behind. */
static bool plain(op_ctx *cx, const op_row *row, op_id op, op_variant v, const tp_val *arg, tp_val *out,
                  bool need, tp_err *err)
{
    bool writes = v == OPV_inplace || (row->flags & OPF_MUT);
    const ir_rec *rec = cx->rec;
    if (writes && !grad_check_inplace(cx, arg[0].t, false, err))
        return false;
    if (TP_UNLIKELY((row->flags & OPF_COMP) &&
                    (v == OPV_inplace || (need && (!rec || (rec->flags & REC_composites))))))
        return composite(cx, row, v, arg, out, err); /* its parts may be views */
    if (!ir_call(cx, op, v, arg, out, err))
        return false;
    if (row->flags & OPF_VIEW) {
        if (op == OP_detach || op == OP_view_dtype) { /* not a view as far as gradients go */
            tensor_unref(out[0].t->base);
            out[0].t->base = NULL;
            out[0].t->spare |= arg[0].t->spare & AGF_data;
            if (op == OP_view_dtype && !cx->inference_mode)
                out[0].t->flags &= ~TF_inference;
        } else if (TP_UNLIKELY(!grad_records(cx) || arg[0].t->spare)) {
            if (row->schema.ret_list)
                for (int i = 0; i < out[0].n; i++)
                    mark_view(cx, out[0].ts[i], arg[0].t, need, true);
            else if (out[0].kind == VAL_tensor && out[0].t != arg[0].t)
                mark_view(cx, out[0].t, arg[0].t, need, false);
        }
    } else if (writes && TP_UNLIKELY(arg[0].t->spare & AGF_data)) {
        arg[0].t->storage->version--;
    } else if (TP_UNLIKELY(!grad_records(cx)) && (row->flags & OPF_COMP) && arg[0].kind == VAL_tensor) {
        bool list = out[0].kind == VAL_tensors;
        for (int i = 0; i < (list ? out[0].n : out[0].kind == VAL_tensor); i++)
            mark_made(cx, list ? out[0].ts[i] : out[0].t, arg[0].t, need, list);
    }
    return true;
}

/* Edges and versions before the call, since the call may write its arguments. */
static bool collect(call_info *c, tp_err *err)
{
    int np = c->row->schema.nparam, e = 0;
    for (uint32_t m = c->vi->tmask | (c->lparam >= 0 ? 1u << c->lparam : 0); m; m &= m - 1) {
        int i = __builtin_ctz(m);
        const tp_val *v = &c->arg[i];
        if (i == c->lparam) {
            for (int k = 0; k < c->nlist; k++, e++)
                if (v->ts[k]) {
                    c->ver[np + k] = tensor_version(v->ts[k]);
                    if (grad_requires_grad(v->ts[k]))
                        c->edge[e] = grad_edge_of(v->ts[k], err);
                }
            continue;
        }
        if (v->kind == VAL_tensor) {
            c->ver[i] = tensor_version(v->t);
            if (c->need >> i & 1)
                c->edge[e] = grad_edge_of(v->t, err);
        }
        e++;
    }
    return !err || !err_is_set(err);
}

/* A hook must see what the call reads: arguments in memory that it writes are packed first. */
static bool pack_early(call_info *c, tp_err *err)
{
    const tp_tensor *self = c->arg[0].t;
    for (int i = 1; i < c->row->schema.nparam; i++) {
        const tp_val *v = &c->arg[i];
        if (!(c->save_in >> i & 1) || v->kind != VAL_tensor || v->t->storage != self->storage ||
            !packs(c->cx, v->t))
            continue;
        if (!grad_may_save(c->cx, v->t, err) || !(c->early[i] = packed(c->cx, v->t, err)))
            return false;
    }
    return true;
}

static bool taped(call_info *c, tp_val *out, tp_err *err)
{
    const op_row *row = c->row;
    op_ctx *cx = c->cx;
    bool writes = c->v == OPV_inplace || (row->flags & OPF_MUT), ok = false;
    int np = row->schema.nparam, nres = 0;
    op_step *s = NULL;
    void *early[OP_MAX_PARAMS];

    c->early = NULL;
    c->lparam = -1;
    for (uint32_t m = c->vi->lmask; m; m &= m - 1) { /* the list with gradients, or the one to save */
        int i = __builtin_ctz(m);
        if (c->arg[i].kind == VAL_tensors && (c->lparam < 0 || (c->need >> i & 1))) {
            c->lparam = i;
            c->nlist = c->arg[i].n;
        }
    }
    c->nedge = __builtin_popcount(c->vi->tmask) + c->nlist;
    grad_edge small_edge[8], *edge = c->nedge > 8 ? mem_alloc(sizeof *edge * (size_t)c->nedge) : small_edge;
    uint32_t small_ver[32], *ver = np + c->nlist > 32 ? mem_alloc(4 * (size_t)(np + c->nlist)) : small_ver;
    memset(edge, 0, sizeof *edge * (size_t)c->nedge);
    c->edge = edge;
    c->ver = ver;
    c->save_in = c->vi->need_in;
    c->save_out = c->vi->need_out;
    for (int k = 0; k < c->vi->ncond; k++) {
        int when = c->vi->cond[k].when, at = c->vi->cond[k].arg;
        if (when >= 128 ? c->arg[when - 128].kind == VAL_bool && c->arg[when - 128].b
                        : !(c->need >> when & 1))
            continue;
        if (at >= 128)
            c->save_out |= 1u << (at - 128);
        else
            c->save_in |= 1u << at;
    }
    tp_err local = { 0 };
    if (!err)
        err = &local;
    if (writes && !grad_check_inplace(cx, c->arg[0].t, true, err))
        goto done;
    if (!collect(c, err))
        goto done;
    c->header = row->flags & OPF_HEAD;
    if (c->header) {
        tp_tensor *t = c->arg[0].t;
        c->was = *t;
        c->was.size = memcpy(c->dims, t->size, sizeof(symint) * t->ndim);
        c->was.stride = memcpy(c->dims + t->ndim, t->stride, sizeof(symint) * t->ndim);
    }
    if (writes && (c->save_in & 1)) {
        tp_val ca[2] = { c->arg[0], vNone }, co[1];
        if (!ir_call(cx, OP_clone, OPV_fn, ca, co, err))
            goto done;
        c->self = co[0].t;
    }
    if (writes && TP_UNLIKELY(cx->hooks != NULL)) {
        c->early = memset(early, 0, sizeof early);
        if (!pack_early(c, err))
            goto done;
    }
    if (!ir_call(cx, c->op, c->v, c->arg, out, err))
        goto done;
    nres = row->schema.ret_list ? out[0].n : row->schema.nret;
    for (int i = 0; i < nres; i++) {
        tp_tensor *t = result_at(row, out, i);
        if (!t || !dtype_has_grad((dtype)t->dt) || (i < 32 && c->vi->no_grad >> i & 1))
            continue;
        if (!writes) { /* an argument handed back unchanged keeps its history */
            bool same = false;
            for (int k = 0; k < np && !same; k++)
                same = c->arg[k].kind == VAL_tensor && c->arg[k].t == t;
            if (same)
                continue;
        } else if (t != c->arg[0].t)
            continue;
        if (!s && !(s = step_new(c, out, nres, err)))
            goto drop;
        if (TP_LIKELY(!writes)) {
            grad_meta *m = grad_meta_make(t);
            tensor_changed(t);
            m->fn = grad_node_ref(&s->n);
            m->nr = i;
            if (TP_UNLIKELY(t->base && (row->schema.ret_list || c->arg[0].t->spare)))
                mark_view(cx, t, c->arg[0].t, true, row->schema.ret_list);
        } else if (c->header && t->base) {
            ; /* a view of its base as before, only another one: grad_grad_fn finds it anew */
        } else if (!grad_rebase_history(t, &s->n, i, err))
            goto drop;
    }
    if (writes && (c->arg[0].t->spare & AGF_data))
        c->arg[0].t->storage->version--;
    ok = true;
drop:
    if (!ok)
        for (int i = 0; i < row->schema.nret; i++)
            val_clear(&out[i]);
done:
    if (s)
        grad_node_unref(&s->n);
    for (int i = 0; i < c->nedge; i++)
        grad_node_unref(edge[i].node);
    for (int i = 0; i < np && c->early; i++) {
        const grad_pack *p = cx->hooks;
        if (early[i])
            p->drop(p->data, early[i]);
    }
    tensor_unref(c->self);
    if (edge != small_edge)
        free(edge);
    if (ver != small_ver)
        free(ver);
    return ok;
}

bool grad_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err)
{
    const vjp_info *vi = vjp_info_of(op);
    const op_row *row = op_row_of(op);
    uint32_t need = 0;

    if (TP_UNLIKELY(v == OPV_inplace && arg[0].kind != VAL_tensor))
        return ops_call(cx, op, v, arg, out, err); /* which says what is wrong with it */
    if (TP_UNLIKELY(cx->autocast) && v == OPV_fn) {
        if (grad_casts(cx, op))
            return grad_autocast(cx, op, arg, out, err);
        if (row->flags & OPF_COMP)
            return composite(cx, row, v, arg, out, err);
    }
    for (uint32_t m = vi->tmask; m; m &= m - 1) {
        int i = __builtin_ctz(m);
        if (arg[i].kind == VAL_tensor && grad_requires_grad(arg[i].t))
            need |= 1u << i;
    }
    for (uint32_t m = vi->lmask; m; m &= m - 1) {
        int i = __builtin_ctz(m);
        for (int k = 0; arg[i].kind == VAL_tensors && k < arg[i].n; k++)
            if (arg[i].ts[k] && grad_requires_grad(arg[i].ts[k])) {
                need |= 1u << i;
                break;
            }
    }
    if (TP_UNLIKELY((row->flags & OPF_HEAD) && need && !vi->fn && !cx->inference_mode))
        return err_set(err, ERR_runtime, "cannot resize variables that require grad");
    if (TP_LIKELY(!need || !grad_records(cx)))
        return plain(cx, row, op, v, arg, out, need != 0, err);
    if (v == OPV_out)
        return err_set(err, ERR_runtime,
                       "%s(): functions with out=... arguments don't support automatic differentiation, but "
                       "one of the arguments requires grad.",
                       row->name);
    if (row->flags & OPF_COMP) {
        ir_rec *r = cx->rec;
        if (!r || (r->flags & REC_composites))
            return composite(cx, row, v, arg, out, err);
    }
    if ((row->flags & OPF_NODIFF) ||
        ((v == OPV_inplace || (row->flags & OPF_MUT)) && !dtype_has_grad((dtype)arg[0].t->dt)))
        return plain(cx, row, op, v, arg, out, true, err);
    call_info c; /* large: only what taped reads before it writes */
    c.cx = cx;
    c.row = row;
    c.vi = vi;
    c.op = op;
    c.v = v;
    c.arg = arg;
    c.need = need;
    c.nlist = 0;
    c.self = NULL;
    c.header = false;
    return taped(&c, out, err);
}

/* ---- the rule ---- */
static tp_storage no_bytes = { .refs = 1 << 30, .flags = ST_fake, .device = { DEV_cpu, -1 } };

/* A header that answers questions about type, shape and device only. on: room for what says which device. */
static void meta_header(tp_tensor *t, const grad_shape *s, tp_storage *on)
{
    memset(t, 0, sizeof *t);
    t->refs = 1 << 30;
    t->dt = s->dt;
    t->ndim = s->ndim;
    t->storage = &no_bytes;
    if (s->dev.kind != DEV_cpu) {
        *on = no_bytes;
        on->device = s->dev;
        t->storage = on;
    }
    t->size = s->dims;
    t->stride = s->dims + s->ndim;
    t->numel = shape_numel(s->ndim, s->dims);
    t->offset = s->offset;
}

bool grad_changed(const tp_tensor *t, uint32_t want, grad_edge from, tp_err *err)
{
    strbuf b = { 0 };
    strbuf_addf(&b, "[%sTensor ", dtype_rows[t->dt].gname);
    shape_print(&b, t->ndim, t->size);
    strbuf_add(&b, "]");
    if (from.node && !from.node->leaf)
        strbuf_addf(&b, ", which is output %d of %s,", from.nr, grad_node_name(from.node));
    err_set(err, ERR_runtime,
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            "%s is at version %u; expected version %u instead. Hint: %s",
            strbuf_str(&b), tensor_version(t), want,
            op_ctx_cur()->anomaly
                ? "the backtrace further above shows the operation that failed to compute its gradient. The "
                  "variable in question was changed in there or anywhere later. Good luck!"
                : "enable anomaly detection to find the operation that failed to compute its gradient, with "
                  "taper.autograd.set_detect_anomaly(True).");
    strbuf_free(&b);
    return false;
}

/* The saved tensor as the rule may use it. With create_graph its history is the one it had then. */
static bool unpack(op_step *s, bld *b, int at, tp_tensor **t, grad_edge from, tp_err *err)
{
    if (s->handle) {
        if (!s->handle[at])
            return true;
        *t = bld_keep(b, s->pack->unpack(s->pack->data, s->handle[at], err));
        if (!*t)
            return false;
    } else if (!*t)
        return true;
    else if (TP_UNLIKELY(tensor_version(*t) != s->ver[at]))
        return grad_changed(*t, s->ver[at], from, err);
    if (!b->cx->grad_mode || !dtype_has_grad((dtype)(*t)->dt))
        return true;
    grad_edge now = grad_requires_grad(*t) ? grad_edge_of(*t, NULL) : (grad_edge){ 0 };
    if (now.node != from.node || now.nr != from.nr) {
        tp_tensor *a = bld_keep(b, saved_alias(*t));
        if (from.node && from.node->leaf)
            a = grad_acc_tensor(from.node);
        else if (from.node) {
            grad_meta *m = grad_meta_make(a);
            m->fn = grad_node_ref(from.node);
            m->nr = from.nr;
        }
        *t = a;
    }
    grad_node_unref(now.node);
    return true;
}

static bool step_apply(grad_node *n, bld *b, tp_tensor *const *dy, const bool *need, tp_tensor **dx,
                       tp_err *err)
{
    op_step *s = (op_step *)n;
    const op_row *row = op_row_of((op_id)s->op);
    const vjp_info *vi = vjp_info_of((op_id)s->op);
    int np = s->nparam, nl = s->nlist, e = 0;

    if (n->released && s->n.saves)
        return err_set(err, ERR_runtime, "%s", grad_again);
    tp_val arg[np];
    bool want[np];
    tp_tensor *gx[np], *inm[np], *outm[n->nin], *out[n->nin], *conj[n->nin];
    tp_tensor head[np + nl + n->nin], **lists = NULL;
    tp_storage on[np + nl + n->nin];
    bool ok = false;

    if (nl)
        lists = mem_zalloc(sizeof *lists * (size_t)nl * 3); /* saved, types, gradients */
    for (int i = 0; i < np; i++) {
        arg[i] = s->arg[i];
        want[i] = false;
        gx[i] = inm[i] = NULL;
        if (s->tmask >> i & 1) {
            want[i] = need[e];
            if (s->argm[i].ndim != 255) {
                tp_tensor *t = arg[i].kind == VAL_tensor ? arg[i].t : NULL;
                inm[i] = &head[i];
                meta_header(inm[i], &s->argm[i], &on[i]);
                if ((t || s->handle) && !unpack(s, b, i, &t, n->edge[e], err))
                    goto done;
                arg[i] = vT(t);
            }
            e++;
        } else if (i == s->lparam) {
            for (int k = 0; k < nl; k++, e++) {
                want[i] |= need[e];
                lists[k] = s->list[k];
                if (s->listm[k].ndim == 255)
                    continue;
                lists[nl + k] = &head[np + k];
                meta_header(lists[nl + k], &s->listm[k], &on[np + k]);
                if ((lists[k] || s->handle) && !unpack(s, b, np + k, &lists[k], n->edge[e], err))
                    goto done;
            }
            arg[i] = vTs(lists, nl);
        }
    }
    for (int i = 0; i < n->nin; i++) {
        outm[i] = NULL;
        out[i] = s->out[i];
        if (n->in[i].dt == 255)
            continue;
        outm[i] = &head[np + nl + i];
        meta_header(outm[i], &n->in[i], &on[np + nl + i]);
        if ((out[i] || s->handle) && !unpack(s, b, np + nl + i, &out[i], (grad_edge){ n, i }, err))
            goto done;
    }
    bool turned = conjugate_in(b, row, vi, n->nin, dy, conj);
    if (turned)
        dy = conj;
    vjp g = { .b = b,
              .row = row,
              .arg = arg,
              .out = out,
              .dy = dy,
              .need = want,
              .dx = gx,
              .in_meta = inm,
              .out_meta = outm,
              .dlist = lists ? lists + 2 * nl : NULL,
              .list_meta = lists ? lists + nl : NULL,
              .nlist = nl,
              .nout = n->nin };
    if (!vi->fn) {
        err_set(err, ERR_notimpl, "the derivative for '%s' is not implemented.", row->full);
        goto done;
    }
    if (!vi->fn(&g) || b->failed) {
        err_set(err, ERR_internal, "the derivative of '%s' failed", row->full); /* keeps an earlier error */
        goto done;
    }
    if (turned)
        for (int i = 0; i < np + nl; i++)
            conjugate_out(b, i < np ? &gx[i] : &g.dlist[i - np]);
    if (b->failed)
        goto done;
    e = 0;
    for (int i = 0; i < np; i++)
        if (s->tmask >> i & 1) {
            if (gx[i] && need[e])
                dx[e] = tensor_ref(gx[i]);
            e++;
        } else if (i == s->lparam)
            for (int k = 0; k < nl; k++, e++)
                if (g.dlist[k] && need[e])
                    dx[e] = tensor_ref(g.dlist[k]);
    ok = true;
done:
    free(lists);
    return ok;
}
