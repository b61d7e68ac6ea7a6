/* decomp.c - helpers of decompositions and kernels. */
#include "ops/decomp.h"
#include <stdio.h>

/* Composites have no shape rule of their own: their decomposition runs on fake tensors too. */
bool shape_comp(op_call *c)
{
    return err_set(c->err, ERR_internal, "'%s' is composite and has no shape rule", c->row->full);
}

bool comp_ret(bld *b, tp_tensor *t, tp_val *out) { return comp_ret_n(b, &t, 1, out); }

bool comp_ret_n(bld *b, tp_tensor *const *ts, int n, tp_val *out)
{
    if (b->failed)
        return false;
    for (int i = 0; i < n; i++)
        if (!ts[i])
            return err_set(b->err, ERR_runtime, "a required tensor argument is missing");
    for (int i = 0; i < n; i++)
        out[i] = vT(tensor_ref(ts[i]));
    return true;
}

bool comp_list(bld *b, tp_tensor *const *ts, int n, tp_val *out)
{
    if (b->failed)
        return false;
    tp_tensor **r = mem_alloc(sizeof *r * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++)
        r[i] = tensor_ref(ts[i]);
    *out = vTs(r, n);
    return true;
}

const char *sizes_str(size_text *b, int n, const symint *size)
{
    strbuf s = { 0 };
    shape_print(&s, n, size);
    snprintf(b->s, sizeof b->s, "%s", strbuf_str(&s));
    strbuf_free(&s);
    return b->s;
}

const char *size_str(size_text *b, symint v)
{
    strbuf s = { 0 };
    if (sym_is_expr(v))
        sym_print(&s, v);
    else
        strbuf_addf(&s, "%lld", (long long)v);
    snprintf(b->s, sizeof b->s, "%s", strbuf_str(&s));
    strbuf_free(&s);
    return b->s;
}

tp_tensor *view_slice(tp_tensor *t, int d, int64_t start, int64_t len, int64_t step)
{
    tp_tensor *v = tensor_on(t->storage, (dtype)t->dt, t->ndim, t->size, t->stride,
                             t->offset + start * t->stride[d]);
    v->size[d] = len;
    v->stride[d] = t->stride[d] * step;
    v->numel = shape_numel(v->ndim, v->size);
    return v;
}

bool grad_is(op_call *c, tp_tensor *dy, int n, const symint *size)
{
    size_text a, b;
    if (!dtype_is_float((dtype)dy->dt))
        return err_set(c->err, ERR_runtime, "%s: expected a floating point gradient, but got %s",
                       c->row->name, dtype_rows[dy->dt].gname);
    return tensor_same_size(dy, &(tp_tensor){ .ndim = (uint8_t)n, .size = (symint *)size }) ||
           err_set(c->err, ERR_runtime, "%s: expected a gradient of size %s, but got %s", c->row->name,
                   sizes_str(&a, n, size), sizes_str(&b, dy->ndim, dy->size));
}

bool grad_fits(op_call *c, tp_tensor *dy, const tp_val *arg, int narg)
{
    tp_val full[OP_MAX_PARAMS], out[OP_MAX_RETURNS] = { 0 };
    const char *name = c->row->name, *end = strstr(name, "_backward");
    op_id fwd;
    op_variant v;
    char full_name[64];
    if (!end || end - name > 48)
        return false;
    snprintf(full_name, sizeof full_name, "%.*s%s", (int)(end - name), name,
             !strncmp(name, "select", 6)  ? ".int"
             : !strncmp(name, "slice", 5) ? ".Tensor"
                                          : "");
    if (!op_find(full_name, strlen(full_name), &fwd, &v))
        return err_set(c->err, ERR_internal, "'%s' has no forward row", name);
    if (!op_fill_defaults(op_row_of(fwd), arg, narg, full, c->err) ||
        !ops_fake(c->cx, fwd, OPV_fn, full, out, c->err))
        return false;
    bool ok = grad_is(c, dy, out[0].t->ndim, out[0].t->size);
    for (int i = 0; i < op_row_of(fwd)->schema.nret; i++)
        val_clear(&out[i]);
    return ok;
}

/* ---- scratch ---- */
tp_tensor *scratch_take(scratch *s, tp_tensor *t)
{
    if (!t) {
        s->failed = true;
        return NULL;
    }
    assert(s->n < (int)COUNT(s->own));
    s->dst[s->n] = NULL;
    return s->own[s->n++] = t;
}

tp_tensor *scratch_in(scratch *s, tp_tensor *t, dtype dt)
{
    if (!t || s->failed)
        return NULL;
    if (t->dt == dt && tensor_is_contiguous(t))
        return t;
    tp_tensor *r = tensor_new(dt, t->ndim, t->size, s->err);
    if (!scratch_take(s, r))
        return NULL;
    if (!tensor_copy(r, t, s->err))
        s->failed = true;
    return r;
}

tp_tensor *scratch_out(scratch *s, tp_tensor *res, dtype dt)
{
    if (!res || s->failed)
        return NULL;
    if (res->dt == dt && tensor_is_contiguous(res))
        return res;
    tp_tensor *r = scratch_take(s, tensor_new(dt, res->ndim, res->size, s->err));
    if (r)
        s->dst[s->n - 1] = res;
    return r;
}

tp_tensor *scratch_new(scratch *s, dtype dt, int nd, const symint *size)
{
    return s->failed ? NULL : scratch_take(s, tensor_new(dt, nd, size, s->err));
}

bool scratch_end(scratch *s, bool ok)
{
    ok = ok && !s->failed;
    for (int i = 0; i < s->n; i++) {
        if (ok && s->dst[i])
            ok = tensor_copy(s->dst[i], s->own[i], s->err);
        tensor_unref(s->own[i]);
    }
    s->n = 0;
    return ok;
}
