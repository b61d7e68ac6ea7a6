/* index.c - indexing by tensors: x[i, :, mask] and assignment to it.
 * Boolean masks become the index vectors of their true elements; the index tensors are broadcast together;
 * the indexed dimensions are replaced by the index shape, in place when they are neighbours, in front
 * otherwise. */
#include "ops/decomp.h"
#include "ops/axmap.h"
#include "ops/mask.h"
#include "ops/ondevice.h"
#include "sym/env.h"

typedef struct adv {
    tp_tensor *ix[TP_MAX_DIMS]; /* per dimension of self: owned i64 index, or NULL */
    int nb;                     /* shape all indices broadcast to */
    symint bsize[TP_MAX_DIMS];
    int perm[TP_MAX_DIMS]; /* order of self's dimensions in the result; the indexed ones are neighbours */
    int first, count;      /* where the indexed run starts in perm, and how many dimensions it replaces */
    symint unbacked;       /* number of true elements of a fake mask */
} adv;

static void adv_free(adv *a)
{
    for (int d = 0; d < TP_MAX_DIMS; d++)
        tensor_unref(a->ix[d]);
}

/* The same by the device that a mask is on: only their number is read back. */
static bool mask_on_device(op_call *c, tp_tensor *mask, tp_tensor **ix)
{
    op_ctx cx = *c->cx;
    tp_val arg = vT(mask), out = vNone;
    cx.grad_mode = false;
    cx.autocast = 0;
    cx.rec = NULL;
    cx.dispatch = NULL;
    cx.into = NULL;
    if (!ops_call(&cx, OP_nonzero, OPV_fn, &arg, &out, c->err))
        return false;
    tp_tensor *o = out.t;
    for (int d = 0; d < mask->ndim; d++)
        ix[d] = tensor_on(o->storage, DT_i64, 1, o->size, o->stride, o->offset + d * o->stride[1]);
    val_clear(&out);
    return true;
}

/* The index vectors of mask's true elements, one per dimension, into ix. */
static bool mask_to_index(op_call *c, adv *a, tp_tensor *mask, tp_tensor **ix)
{
    int nd = mask->ndim;
    if (tensor_is_fake(mask)) {
        if (!c->cx->env)
            return err_set(c->err, ERR_datadep, "the size of the result depends on the values of a mask");
        if (!a->unbacked)
            a->unbacked = sym_env_unbacked_size(c->cx->env, SYM_OO);
        for (int d = 0; d < nd; d++)
            ix[d] = tensor_new_fake(DT_i64, 1, &a->unbacked, NULL, tensor_device(mask));
        return true;
    }
    if (mask->storage->flags & ST_device)
        return mask_on_device(c, mask, ix);
    int64_t n;
    scratch s = { .err = c->err };
    tp_tensor *here = scratch_take(&s, tensor_to(mask, DEVICE_CPU, c->err)),
              *flat = here ? scratch_in(&s, here, DT_bool) : NULL;
    if (!flat)
        return scratch_end(&s, false);
    const uint8_t *m = tensor_host(flat);
    int64_t *to[TP_MAX_DIMS];
    n = mask_count(m, flat->numel);
    for (int d = 0; d < nd; d++) {
        if (!(ix[d] = tensor_new(DT_i64, 1, &n, c->err)))
            return scratch_end(&s, false);
        to[d] = tensor_host(ix[d]);
    }
    if (n)
        mask_where(m, nd, flat->size, to);
    return scratch_end(&s, true);
}

static bool adv_make(op_call *c, adv *a, bool values)
{
    tp_tensor *t = arg_t(c, 0);
    const tp_val *v = &c->arg[1];
    size_text x, y;
    int d = 0, run = 0;
    bool ended = false, apart = false;
    memset(a, 0, sizeof *a);
    for (int i = 0; i < v->n; i++) {
        tp_tensor *ix = v->ts[i];
        if (!ix) {
            d++;
            continue;
        }
        bool mask = ix->dt == DT_bool || ix->dt == DT_u8;
        if (!mask && ix->dt != DT_i64 && ix->dt != DT_i32)
            return err_set(c->err, ERR_index,
                           "tensors used as indices must be long, int, byte or bool tensors");
        int take = mask ? ix->ndim : 1;
        if (d + take > t->ndim || take == 0) /* t[mask] without dimensions: python/index.c adds them */
            return err_set(c->err, ERR_index, "too many indices for tensor of dimension %d", t->ndim);
        if (mask) {
            for (int k = 0; k < ix->ndim; k++)
                if (!sym_eq(ix->size[k], t->size[d + k]))
                    return err_set(
                        c->err, ERR_index,
                        "The shape of the mask %s at index %d does not match the shape of the indexed "
                        "tensor %s at index %d",
                        sizes_str(&x, ix->ndim, ix->size), k, sizes_str(&y, t->ndim, t->size), d + k);
            if (!mask_to_index(c, a, ix, &a->ix[d]))
                return false;
        } else if (!(a->ix[d] = tensor_cast(ix, DT_i64, c->err)))
            return false;
        d += take;
    }
    if (d > t->ndim)
        return err_set(c->err, ERR_index, "too many indices for tensor of dimension %d (got %d)", t->ndim,
                       v->n);
    a->first = -1;
    for (int k = 0; k < t->ndim; k++) {
        if (!a->ix[k]) {
            ended = a->first >= 0;
            continue;
        }
        apart |= ended;
        if (a->first < 0)
            a->first = k;
        a->count++;
        tp_err quiet = { 0 };
        if (!shape_broadcast(&a->nb, a->bsize, a->ix[k]->ndim, a->ix[k]->size, &quiet)) {
            strbuf s = { 0 };
            for (int m = 0; m < t->ndim; m++)
                if (a->ix[m]) {
                    strbuf_add(&s, s.n ? ", " : "");
                    shape_print(&s, a->ix[m]->ndim, a->ix[m]->size);
                }
            err_set(c->err, ERR_index,
                    "shape mismatch: indexing tensors could not be broadcast together with shapes %s",
                    strbuf_str(&s));
            strbuf_free(&s);
            return false;
        }
    }
    a->first = MAX(a->first, 0);
    if (apart)
        a->first = 0;
    for (int pass = 0; pass < 2 && apart; pass++) /* indexed dimensions first */
        for (int k = 0; k < t->ndim; k++)
            if ((a->ix[k] != NULL) == (pass == 0))
                a->perm[run++] = k;
    for (int k = 0; k < t->ndim && !apart; k++)
        a->perm[k] = k;
    return true;
}

/* Sizes of the result. */
static int adv_size(const adv *a, const tp_tensor *t, symint *size)
{
    int n = 0;
    for (int k = 0; k < a->first; k++)
        size[n++] = t->size[a->perm[k]];
    if (a->count)
        for (int k = 0; k < a->nb; k++)
            size[n++] = a->bsize[k];
    for (int k = a->first + a->count; k < t->ndim; k++)
        size[n++] = t->size[a->perm[k]];
    return n;
}

/* Strides as of a pointwise operation over the restrided self and the index tensors. */
static void adv_strides(const adv *a, tp_tensor *t, int nd, const symint *size, symint *stride)
{
    tp_tensor *in[TP_MAX_DIMS + 1];
    symint st[TP_MAX_DIMS];
    int n = 0, nin = 0, tail = t->ndim - a->first - a->count;
    for (int k = 0; k < a->first; k++)
        st[n++] = t->stride[a->perm[k]];
    for (int k = 0; k < a->nb; k++)
        st[n++] = 0;
    for (int k = a->first + a->count; k < t->ndim; k++)
        st[n++] = t->stride[a->perm[k]];
    in[nin++] = tensor_new_fake((dtype)t->dt, nd, size, st, DEVICE_CPU);
    for (int d = 0; d < t->ndim; d++)
        if (a->ix[d]) {
            tp_tensor *x = a->ix[d];
            symint xs[TP_MAX_DIMS], xt[TP_MAX_DIMS];
            for (int k = 0; k < x->ndim + tail; k++) {
                xs[k] = k < x->ndim ? x->size[k] : 1;
                xt[k] = k < x->ndim ? x->stride[k] : 0;
            }
            in[nin++] = tensor_new_fake(DT_i64, x->ndim + tail, xs, xt, DEVICE_CPU);
        }
    shape_pointwise_strides(nd, size, nin, in, stride);
    for (int i = 0; i < nin; i++)
        tensor_unref(in[i]);
}

/* t[mask] with nothing else, t packed: its rows where the mask is true, with no index made of it. NULL: not so. */
static tp_tensor *lone_mask(const op_call *c)
{
    const tp_tensor *t = arg_t(c, 0);
    const tp_val *v = &c->arg[1];
    tp_tensor *m = v->n ? v->ts[0] : NULL;
    for (int i = 1; i < v->n; i++)
        if (v->ts[i])
            return NULL;
    if (!m || m->dt != DT_bool || !m->ndim || (m->storage->flags | t->storage->flags) & ST_device ||
        m->ndim > t->ndim || tensor_is_fake(m) || tensor_is_fake(t) || !tensor_is_contiguous(m) ||
        !tensor_is_contiguous(t))
        return NULL;
    return memcmp(m->size, t->size, sizeof(symint) * m->ndim) ? NULL : m;
}

bool shape_index(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *mask = lone_mask(c);
    symint size[TP_MAX_DIMS];
    adv a;
    if (mask) {
        size[0] = mask_count(tensor_host(mask), mask->numel);
        for (int d = mask->ndim; d < t->ndim; d++)
            size[1 + d - mask->ndim] = t->size[d];
        return out_new(c, (dtype)t->dt, 1 + t->ndim - mask->ndim, size) != NULL;
    }
    bool ok = adv_make(c, &a, false);
    if (ok && t->ndim - a.count + a.nb > TP_MAX_DIMS)
        ok = err_set(c->err, ERR_runtime, "tensor has too many (>%d) dims", TP_MAX_DIMS);
    if (ok) {
        int n = adv_size(&a, t, size);
        op_out *o = out_new(c, (dtype)t->dt, n, size);
        adv_strides(&a, t, n, size, o->stride);
    }
    adv_free(&a);
    return ok;
}

/* Where each index combination points: offsets into self, in elements. */
static bool adv_offsets(op_call *c, const adv *a, const tp_tensor *t, int64_t **table, int64_t *n)
{
    *n = shape_numel(a->nb, a->bsize);
    int64_t *at = *table = mem_zalloc(sizeof(int64_t) * (size_t)MAX(*n, 1));
    for (int d = 0; d < t->ndim; d++) {
        const tp_tensor *x = a->ix[d];
        if (!x)
            continue;
        int64_t size = t->size[d], pos[TP_MAX_DIMS] = { 0 }, st[TP_MAX_DIMS], off = a->nb - x->ndim;
        for (int k = 0; k < a->nb; k++)
            st[k] = k < off || x->size[k - off] == 1 ? 0 : x->stride[k - off];
        const int64_t *p = tensor_host(x);
        for (int64_t i = 0; i < *n; i++) {
            int64_t v = *p;
            if (v < -size || v >= size)
                return err_set(c->err, ERR_index,
                               "index %lld is out of bounds for dimension %d with size %lld", (long long)v, d,
                               (long long)size);
            at[i] += (v < 0 ? v + size : v) * t->stride[d];
            for (int k = a->nb - 1; k >= 0; k--) {
                p += st[k];
                if (++pos[k] < a->bsize[k])
                    break;
                p -= st[k] * a->bsize[k];
                pos[k] = 0;
            }
        }
    }
    return true;
}

/* self as [dimensions before][1 axis over the table][dimensions after]. Owned. */
static tp_tensor *adv_line(const adv *a, tp_tensor *t, int64_t n)
{
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    int k = 0;
    for (int i = 0; i < a->first; i++, k++) {
        size[k] = t->size[a->perm[i]];
        stride[k] = t->stride[a->perm[i]];
    }
    size[k] = n;
    stride[k++] = 1;
    for (int i = a->first + a->count; i < t->ndim; i++, k++) {
        size[k] = t->size[a->perm[i]];
        stride[k] = t->stride[a->perm[i]];
    }
    return tensor_on(t->storage, (dtype)t->dt, k, size, stride, t->offset);
}

/* x (of the result's shape, contiguous) with the index dimensions as one axis. Owned. */
static tp_tensor *adv_folded(const adv *a, tp_tensor *x, const tp_tensor *line)
{
    return tensor_on(x->storage, (dtype)x->dt, line->ndim, line->size, NULL, x->offset);
}

bool eager_index(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *t = arg_t(c, 0), *mask = lone_mask(c), *out = scratch_out(&s, c->res[0], (dtype)t->dt);
    axmap m = { 0 };
    int64_t n = 0;
    adv a;
    if (mask && out) {
        if (out->numel)
            mask_take(tensor_host(mask), mask->numel,
                      t->numel / mask->numel * (int64_t)dtype_size((dtype)t->dt), tensor_host(out),
                      tensor_host(t));
        return scratch_end(&s, true);
    }
    bool ok = adv_make(c, &a, false);
    ok = ok && out && (out->numel == 0 && a.count == 0 ? true : adv_offsets(c, &a, t, &m.at[a.first], &n));
    if (ok && out->numel) {
        tp_tensor *line = scratch_take(&s, adv_line(&a, t, n));
        axmap_copy(&m, scratch_take(&s, adv_folded(&a, out, line)), line);
    }
    axmap_free(&m);
    adv_free(&a);
    return scratch_end(&s, ok);
}

bool shape_index_put(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *v = arg_t(c, 2);
    symint size[TP_MAX_DIMS], bs[TP_MAX_DIMS];
    size_text x, y;
    adv a;
    bool ok = false;
    c->sharing = SHARE_SELF | SHARE_NONE;
    if (t->dt != v->dt) /* 0-dim values of another type are converted by the caller of x[i] = v */
        return err_set(
            c->err, ERR_runtime,
            "Index put requires the source and destination dtypes match, got %s for the destination and "
            "%s for the source.",
            dtype_rows[t->dt].gname, dtype_rows[v->dt].gname);
    tp_err *said = c->err, counted = { 0 };
    c->err = &counted;
    bool made = adv_make(c, &a, true);
    c->err = said;
    if (!made && counted.kind == ERR_datadep) { /* the kernel compares the mask's count with the values' */
        ok = out_like(c, t, (dtype)t->dt) != NULL;
        goto done;
    }
    if (!made) {
        *c->err = counted;
        goto done;
    }
    int n = adv_size(&a, t, size), nb = n;
    for (int i = MAX(n - v->ndim, 0); i < n && a.unbacked; i++) /* a mask's count: the kernel compares it */
        if (size[i] == a.unbacked && v->size[i - (n - v->ndim)] != 1)
            size[i] = v->size[i - (n - v->ndim)];
    memcpy(bs, size, sizeof(symint) * (size_t)n);
    tp_err quiet = { 0 };
    bool fits = shape_broadcast(&nb, bs, v->ndim, v->size, &quiet) && nb == n;
    for (int i = 0; i < n && fits; i++)
        fits = sym_eq(bs[i], size[i]);
    if (!fits) {
        err_set(c->err, ERR_runtime,
                "shape mismatch: value tensor of shape %s cannot be broadcast to indexing result of shape %s",
                sizes_str(&x, v->ndim, v->size), sizes_str(&y, n, size));
        goto done;
    }
    ok = out_like(c, t, (dtype)t->dt) != NULL;
done:
    adv_free(&a);
    return ok;
}

bool eager_index_put(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *out = c->res[0], *v = arg_t(c, 2);
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    axmap m = { 0 };
    int64_t n = 0;
    adv a;
    bool ok = adv_make(c, &a, true) && tensor_copy(out, arg_t(c, 0), c->err) &&
              adv_offsets(c, &a, out, &m.at[a.first], &n);
    if (ok) {
        int nd = adv_size(&a, out, size), off = nd - v->ndim;
        for (int d = 0; d < nd; d++)
            stride[d] = d < off || v->size[d - off] == 1 ? 0 : v->stride[d - off];
        tp_tensor *wide = scratch_take(&s, tensor_on(v->storage, (dtype)v->dt, nd, size, stride, v->offset));
        tp_tensor *line = scratch_take(&s, adv_line(&a, out, n)), *src = NULL;
        if (v->numel == 1) { /* one value: every stride is zero, no need to write it out */
            symint zero[TP_MAX_DIMS] = { 0 };
            src = scratch_take(&s,
                               tensor_on(v->storage, (dtype)v->dt, line->ndim, line->size, zero, v->offset));
        } else if ((wide = scratch_in(&s, wide, (dtype)v->dt)))
            src = scratch_take(&s, adv_folded(&a, wide, line));
        if (src)
            axmap_put(&m, arg_b(c, 3, false) ? RED_add : RED_set, line, src);
    }
    axmap_free(&m);
    adv_free(&a);
    return scratch_end(&s, ok);
}

/* ---- masks of a device: they become indices there, and the row is called with those ---- */
static bool is_mask(const tp_tensor *t)
{
    return t && (t->dt == DT_bool || t->dt == DT_u8) && t->ndim && t->storage->flags & ST_device;
}
static own_result without_masks(op_call *c)
{
    const tp_val *v = &c->arg[1];
    tp_tensor *list[TP_MAX_DIMS] = { 0 }, *made[TP_MAX_DIMS] = { 0 };
    bool any = false, ok = true;
    int n = 0;
    for (int i = 0; i < v->n; i++)
        any |= is_mask(v->ts[i]);
    if (!any)
        return OWN_declined;
    for (int i = 0; i < v->n && ok && n < TP_MAX_DIMS; i++) { /* the shape rule has looked at their sizes */
        int take = is_mask(v->ts[i]) ? v->ts[i]->ndim : 1;
        if (is_mask(v->ts[i]))
            ok = mask_on_device(c, v->ts[i], &made[n]);
        for (int d = 0; d < take; d++, n++)
            list[n] = made[n] ? made[n] : v->ts[i];
    }
    op_ctx cx = *c->cx;
    tp_val arg[4], out = vNone;
    bool self = c->variant == OPV_inplace && c->res[0] == c->arg[0].t;
    uint32_t version = c->arg[0].t->storage->version;
    cx.grad_mode = false;
    cx.autocast = 0;
    cx.rec = NULL;
    cx.dispatch = NULL;
    cx.into = NULL;
    memcpy(arg, c->arg, sizeof *arg * (size_t)c->row->schema.nparam);
    arg[1] = vTs(list, n);
    ok = ok && ops_call(&cx, c->op, self ? OPV_inplace : OPV_fn, arg, &out, c->err);
    if (self) /* the caller counts */
        c->arg[0].t->storage->version = version;
    ok = ok && (self || tensor_copy(c->res[0], out.t, c->err));
    val_clear(&out);
    for (int i = 0; i < TP_MAX_DIMS; i++)
        tensor_unref(made[i]);
    return ok ? OWN_done : OWN_failed;
}
op_device_fn device_index;
own_result device_index(op_call *c) { return without_masks(c); }

/* ---- composites ---- */
bool decomp_masked_select(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = arg[0].t, *mask = arg[1].t;
    symint size[TP_MAX_DIMS];
    int nd = t->ndim;
    if (mask->dt != DT_bool)
        return err_set(b->err, ERR_runtime, "masked_select: expected BoolTensor for mask");
    memcpy(size, t->size, sizeof(symint) * (size_t)nd);
    if (!shape_broadcast(&nd, size, mask->ndim, mask->size, b->err))
        return false;
    tp_tensor *x = b_op(b, expand, vT(t), vIs(size, nd)), *m = b_op(b, expand, vT(mask), vIs(size, nd));
    if (nd == 0) { /* a 0-dim mask selects from one element */
        x = b_op(b, unsqueeze, vT(x), vI(0));
        m = b_op(b, unsqueeze, vT(m), vI(0));
    }
    return m && comp_ret(b, b_op(b, index_Tensor, vT(x), vTs(&m, 1)), out);
}

/* Negative indices count from the end of n elements. */
static tp_tensor *wrapped(bld *b, tp_tensor *ix, symint n)
{
    tp_tensor *w = b_op(b, add_Tensor, vT(ix), vI(n));
    return b_op(b, where_self, vT(b_op(b, lt_Tensor, vT(ix), vI(0))), vT(w), vT(ix));
}

bool decomp_take_along_dim(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = arg[0].t, *ix = arg[1].t;
    symint sa[TP_MAX_DIMS], sb[TP_MAX_DIMS];
    int d;
    if (ix->dt != DT_i64)
        return err_set(b->err, ERR_runtime,
                       "torch.take_along_dim(): dtype of indices should be Long but got %s",
                       dtype_rows[ix->dt].gname);
    if (arg[2].kind == VAL_none) {
        t = b_op(b, view, vT(t), vIs(((symint[]){ -1 }), 1));
        ix = b_op(b, view, vT(ix), vIs(((symint[]){ -1 }), 1));
        return comp_ret(b, b_op(b, gather, vT(t), vI(0), vT(wrapped(b, ix, arg[0].t->numel))), out);
    }
    if (t->ndim != ix->ndim)
        return err_set(
            b->err, ERR_runtime,
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got %d "
            "dimensions for input, and %d dimensions for indices",
            t->ndim, ix->ndim);
    if (t->ndim == 0)
        return err_set(b->err, ERR_index, "Dimension specified as %lld but tensor has no dimensions",
                       (long long)arg[2].i);
    if (!dim_wrap(arg[2].i, t->ndim, &d, b->err))
        return false;
    int na = t->ndim, nb = t->ndim;
    memcpy(sa, t->size, sizeof(symint) * (size_t)na);
    memcpy(sb, ix->size, sizeof(symint) * (size_t)na);
    sa[d] = ix->size[d], sb[d] = t->size[d];
    symint si[TP_MAX_DIMS];
    memcpy(si, sa, sizeof si);
    int ni = na;
    if (!shape_broadcast(&ni, si, ix->ndim, ix->size, b->err) ||
        !shape_broadcast(&nb, sb, t->ndim, t->size, b->err))
        return false;
    t = b_op(b, expand, vT(t), vIs(sb, nb));
    ix = b_op(b, expand, vT(ix), vIs(si, ni));
    ix = wrapped(b, ix, arg[0].t->size[d]);
    return comp_ret(b, b_op(b, gather, vT(t), vI(d), vT(ix)), out);
}

bool decomp_one_hot(bld *b, const tp_val *arg, tp_val *out)
{
    tp_tensor *t = arg[0].t;
    int64_t n = val_i(&arg[1], -1);
    symint size[TP_MAX_DIMS];
    if (t->dt != DT_i64)
        return err_set(b->err, ERR_runtime, "one_hot is only applicable to index tensor of type LongTensor.");
    if (t->ndim + 1 > TP_MAX_DIMS)
        return err_set(b->err, ERR_runtime, "tensor has too many (>%d) dims", TP_MAX_DIMS);
    if (sym_eq(t->numel, 0) && n <= 0)
        return err_set(b->err, ERR_runtime, "Can not infer total number of classes from empty tensor.");
    if (tensor_is_fake(t) && n < 0)
        return err_set(b->err, ERR_datadep,
                       "one_hot: the number of classes depends on data; pass num_classes=");
    tp_tensor *here = tensor_is_fake(t) ? NULL : bld_host(b, t);
    if (!here && !tensor_is_fake(t))
        return false;
    if (here) {
        int64_t top = -1;
        for (int64_t i = 0; i < t->numel; i++) {
            int64_t v = *(int64_t *)tensor_elem(here, i);
            if (v < 0)
                return err_set(b->err, ERR_runtime, "Class values must be non-negative.");
            top = MAX(top, v);
        }
        if (n == -1)
            n = top + 1;
        else if (top >= n)
            return err_set(b->err, ERR_runtime, "Class values must be smaller than num_classes.");
    }
    memcpy(size, t->size, sizeof(symint) * t->ndim);
    size[t->ndim] = n;
    tp_tensor *z = b_op(b, zeros, vIs(size, t->ndim + 1), vDT(DT_i64));
    if (z && !tensor_is_fake(z) && here == t) { /* nobody has seen it: no need for a copy */
        int64_t *p = tensor_host(z);
        for (int64_t i = 0; i < t->numel; i++, p += n)
            p[*(int64_t *)tensor_elem(t, i)] = 1;
        return comp_ret(b, z, out);
    }
    tp_tensor *ix = b_op(b, unsqueeze, vT(t), vI(-1));
    return comp_ret(b, b_op(b, scatter_value, vT(z), vI(-1), vT(ix), vI(1)), out);
}
