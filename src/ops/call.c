/* call.c - one operator call: shape rule, allocation, kernel. Also values, contexts and builders. */
#include "base/envvars.h"
#include "base/profile.h"
#include "base/crumb.h"
#include "ops/complex.h"
#include "ops/host.h"
#include "ops/decomp.h"
#include "ops/jiggle.h"
#include "sym/env.h"
#include "ops/op.h"
#include "ops/random.h"

/* ---- values ---- */
/* Whoever looks at a symbolic number has it fixed by a guard. */
static int64_t int_of(symint v) { return sym_is_expr(v) ? sym_number(v) : v; }
double val_as_f(const tp_val *v)
{
    return v->kind == VAL_float     ? v->f
           : v->kind == VAL_bool    ? (double)v->b
           : v->kind == VAL_complex ? v->floats[0]
                                    : (double)int_of(v->i);
}
void val_as_c(const tp_val *v, double c[2])
{
    c[0] = val_as_f(v);
    c[1] = v->kind == VAL_complex ? v->floats[1] : 0;
}
int64_t val_as_i(const tp_val *v)
{
    if (v->kind == VAL_float)
        return elem_get_i(DT_f64, &v->f);
    if (v->kind == VAL_complex)
        return elem_get_i(DT_f64, v->floats);
    return v->kind == VAL_bool ? v->b : int_of(v->i);
}
dtype val_number_dtype(const tp_val *v, dtype deflt)
{
    return v->kind == VAL_float     ? deflt
           : v->kind == VAL_complex ? dtype_complex_of(deflt)
           : v->kind == VAL_bool    ? DT_bool
                                    : DT_i64;
}
void val_clear(tp_val *v)
{
    if (v->kind == VAL_tensor)
        tensor_unref(v->t);
    else if (v->kind == VAL_tensors) {
        for (int i = 0; i < v->n; i++)
            tensor_unref(v->ts[i]);
        free(v->ts);
    } else if (v->kind == VAL_ints || v->kind == VAL_floats || v->kind == VAL_complex)
        free((void *)v->ints);
    *v = vNone;
}

/* ---- context ---- */
static _Thread_local op_ctx ctx = { .grad_mode = true,
                                    .default_dtype = DT_f32,
                                    .autocast_dtype = { [DEV_cpu] = DT_bf16, [DEV_cuda] = DT_f16 },
                                    .default_device = { DEV_cpu, -1 } };
op_ctx *op_ctx_cur(void) { return &ctx; }

/* ---- arguments ---- */
bool dim_wrap(int64_t d, int ndim, int *dim, tp_err *err)
{
    int n = MAX(ndim, 1);
    if (d < -n || d >= n)
        return err_set(err, ERR_index,
                       "Dimension out of range (expected to be in range of [%d, %d], but got %lld)", -n,
                       n - 1, (long long)d);
    *dim = (int)(d < 0 ? d + n : d);
    return true;
}

bool arg_dim(op_call *c, int i, int ndim, int *dim) { return dim_wrap(c->arg[i].i, ndim, dim, c->err); }

bool arg_dims(op_call *c, int i, int ndim, bool empty_all, uint32_t *mask)
{
    const tp_val *v = &c->arg[i];
    *mask = 0;
    if (v->kind == VAL_none || (v->n == 0 && empty_all)) {
        *mask = ndim >= 32 ? ~0u : (1u << ndim) - 1;
        return true;
    }
    for (int k = 0; k < v->n; k++) {
        int d = 0;
        if (!dim_wrap(v->ints[k], ndim, &d, c->err))
            return false;
        if (*mask & (1u << d))
            return err_set(c->err, ERR_runtime, "dim %d appears multiple times in the list of dims", d);
        *mask |= 1u << d;
    }
    return true;
}

/* ---- outputs ---- */
op_out *out_add(op_call *c)
{
    if (c->nout < OP_INLINE_OUTS) {
        if (!c->out)
            c->out = c->inl;
    } else if (c->nout == OP_INLINE_OUTS) {
        c->out = mem_alloc(sizeof(op_out) * 16);
        memcpy(c->out, c->inl, sizeof c->inl);
    } else if (c->nout >= 16 && !(c->nout & (c->nout - 1)))
        c->out = mem_realloc(c->out, sizeof(op_out) * (size_t)c->nout * 2);
    op_out *o = &c->out[c->nout++];
    o->kind = OUT_new;
    o->alias = -1;
    o->dev = DEVICE_CPU;
    o->offset = 0;
    o->ndim = 0;
    o->num = vNone;
    return o;
}

/* The device of the outputs: a device argument, else that of the first tensor argument (mixing devices is
 * refused in ops_call), else the thread's default. */
static tp_device call_device(const op_call *c)
{
    const tp_tensor *t = NULL;
    for (int i = 0; i < c->row->schema.nparam; i++) {
        const tp_val *v = &c->arg[i];
        if (v->kind == VAL_device)
            return v->dev;
        if (!t && v->kind == VAL_tensor && !(v->t->ndim == 0 && v->t->flags & TF_wrapped))
            t = v->t;
        else if (!t && v->kind == VAL_tensors)
            for (int k = 0; k < v->n && !t; k++)
                t = v->ts[k];
    }
    return t ? tensor_device(t) : c->cx->default_device;
}

op_out *out_new(op_call *c, dtype dt, int ndim, const symint *size)
{
    op_out *o = out_add(c);
    o->dt = (uint8_t)dt;
    o->ndim = (uint8_t)ndim;
    o->dev = call_device(c);
    if (ndim)
        memcpy(o->size, size, sizeof(symint) * (size_t)ndim);
    shape_contiguous_strides(ndim, o->size, o->stride);
    return o;
}

op_out *out_like(op_call *c, const tp_tensor *t, dtype dt)
{
    op_out *o = out_new(c, dt, t->ndim, t->size);
    shape_pointwise_strides(t->ndim, t->size, 1, (tp_tensor *[]){ (tp_tensor *)t }, o->stride);
    return o;
}

op_out *out_dense(op_call *c, const tp_tensor *t, dtype dt)
{
    op_out *o = out_like(c, t, dt);
    if (tensor_is_dense(t) && t->ndim)
        memcpy(o->stride, t->stride, sizeof(symint) * t->ndim);
    return o;
}

op_out *out_view(op_call *c, int arg, int ndim, const symint *size, const symint *stride, symint offset)
{
    op_out *o = out_new(c, (dtype)c->arg[arg].t->dt, ndim, size);
    o->kind = OUT_view;
    o->alias = (int16_t)arg;
    if (ndim)
        memcpy(o->stride, stride, sizeof(symint) * (size_t)ndim);
    o->offset = offset;
    return o;
}

op_out *out_self(op_call *c, int arg)
{
    tp_tensor *t = c->arg[arg].t;
    op_out *o = out_view(c, arg, t->ndim, t->size, t->stride, t->offset);
    o->kind = OUT_self;
    return o;
}

/* ---- broadcasting ---- */
bool shape_broadcast(int *ndim, symint *size, int nd2, const symint *size2, tp_err *err)
{
    int nd = MAX(*ndim, nd2);
    symint r[TP_MAX_DIMS];
    for (int i = 0; i < nd; i++) {
        int ia = *ndim - 1 - i, ib = nd2 - 1 - i;
        symint a = ia >= 0 ? size[ia] : 1, b = ib >= 0 ? size2[ib] : 1;
        if (!sym_is_expr(a) && a == 1)
            r[nd - 1 - i] = b;
        else if ((!sym_is_expr(b) && b == 1) || sym_eq(a, b))
            r[nd - 1 - i] = a;
        else if (sym_eq(a, 1))
            r[nd - 1 - i] = b;
        else if (sym_eq(b, 1))
            r[nd - 1 - i] = a;
        else {
            strbuf sa = { 0 }, sb = { 0 };
            sym_is_expr(a) ? sym_print(&sa, a) : strbuf_addf(&sa, "%lld", (long long)a);
            sym_is_expr(b) ? sym_print(&sb, b) : strbuf_addf(&sb, "%lld", (long long)b);
            err_set(err, ERR_runtime,
                    "The size of tensor a (%s) must match the size of tensor b (%s) at non-singleton "
                    "dimension %d",
                    strbuf_str(&sa), strbuf_str(&sb), nd - 1 - i);
            strbuf_free(&sa);
            strbuf_free(&sb);
            return false;
        }
    }
    *ndim = nd;
    memcpy(size, r, sizeof(symint) * (size_t)nd);
    return true;
}

/* Order dimensions by the inputs' strides, as PyTorch's iterator does: the first input that can tell decides, ambiguous pairs
 * keep their order. Of a dimension of size 1 the stride counts where the result has one element there, too. */
static int compare_dims(int a, int b, int ndim, const symint *size, int nin, tp_tensor *const *in)
{
    for (int k = 0; k < nin; k++) {
        const tp_tensor *t = in[k];
        if (!t)
            continue;
        int off = ndim - t->ndim;
        symint sa = a >= off && (!sym_eq(t->size[a - off], 1) || sym_eq(size[a], 1)) ? t->stride[a - off] : 0;
        symint sb = b >= off && (!sym_eq(t->size[b - off], 1) || sym_eq(size[b], 1)) ? t->stride[b - off] : 0;
        if (sym_eq(sa, 0) || sym_eq(sb, 0))
            continue;
        if (sym_lt(sa, sb))
            return -1;
        if (sym_gt(sa, sb))
            return 1;
        if (sym_gt(size[a], size[b]))
            return 1;
    }
    return 0;
}

/* Strides by the order of the inputs' dimensions, the fastest first. Kept where that is the order of a contiguous tensor. */
static void sorted_strides(int ndim, const symint *size, int nin, tp_tensor *const *in, symint *stride)
{
    int perm[TP_MAX_DIMS];
    bool moved = false;
    for (int i = 0; i < ndim; i++)
        perm[i] = ndim - 1 - i;
    for (int i = 1; i < ndim; i++) {
        int d1 = i;
        for (int d0 = i - 1; d0 >= 0; d0--) {
            int cmp = compare_dims(perm[d0], perm[d1], ndim, size, nin, in);
            if (cmp > 0) {
                int t = perm[d0];
                perm[d0] = perm[d1];
                perm[d1] = t;
                d1 = d0;
                moved = true;
            } else if (cmp < 0)
                break;
        }
    }
    if (!moved) {
        shape_contiguous_strides(ndim, size, stride);
        return;
    }
    symint s = 1;
    for (int i = 0; i < ndim; i++) {
        stride[perm[i]] = s;
        s = sym_mul(s, size[perm[i]]);
    }
}

/* A dimension whose stride reaches no memory: sorted by it all the same, it may come elsewhere than in a contiguous tensor. */
static bool has_idle_dim(int ndim, const symint *size)
{
    for (int i = 0; i < ndim; i++)
        if (!sym_is_expr(size[i]) && size[i] < 2)
            return true;
    return false;
}

void shape_pointwise_strides(int ndim, const symint *size, int nin, tp_tensor *const *in, symint *stride)
{
    bool alike = nin > 0, plain = true, last = ndim == 4, same = true;
    for (int k = 0; k < nin; k++) /* NULL: a number */
        alike = alike && in[k] && in[k]->ndim == ndim &&
                !memcmp(in[k]->size, size, sizeof(symint) * (size_t)ndim);
    bool idle = !alike && has_idle_dim(ndim, size);
    for (int k = 0; k < nin && plain; k++)
        plain = !in[k] || (in[k]->ndim == ndim && tensor_is_contiguous(in[k]) &&
                           (alike || shape_numel(ndim, size) == in[k]->numel));
    if (ndim < 2 || (plain && !idle)) {
        shape_contiguous_strides(ndim, size, stride);
        return;
    }
    for (int k = 0; k < nin && alike && (last || same);
         k++) { /* all channels last, or dense with equal strides */
        last = last && tensor_is_contiguous_as(in[k], MF_channels_last);
        same = same && tensor_is_dense(in[k]) &&
               !memcmp(in[k]->stride, in[0]->stride, sizeof(symint) * (size_t)ndim);
    }
    if (alike && last)
        shape_memfmt_strides(MF_channels_last, ndim, size, stride, NULL);
    else if (alike && same)
        memcpy(stride, in[0]->stride, sizeof(symint) * (size_t)ndim);
    else
        sorted_strides(ndim, size, nin, in, stride);
}

/* ---- the call ---- */
static bool same_geometry(const tp_tensor *a, const tp_tensor *b)
{
    return a->offset == b->offset && a->ndim == b->ndim && a->dt == b->dt &&
           !memcmp(a->size, b->size, sizeof(symint) * a->ndim) &&
           !memcmp(a->stride, b->stride, sizeof(symint) * a->ndim);
}

/* Two dense tensors with bytes in common. */
bool tensor_shares(const tp_tensor *a, const tp_tensor *b)
{
    symint ea, eb;
    if (a->storage != b->storage || !a->numel || !b->numel || tensor_is_fake(a) || tensor_is_fake(b) ||
        !shape_storage_bytes((dtype)a->dt, a->ndim, a->size, a->stride, a->offset, &ea, NULL) ||
        !shape_storage_bytes((dtype)b->dt, b->ndim, b->size, b->stride, b->offset, &eb, NULL))
        return false;
    int64_t ba = a->offset * (int64_t)dtype_size((dtype)a->dt),
            bb = b->offset * (int64_t)dtype_size((dtype)b->dt);
    return ba < eb && bb < ea && tensor_is_dense(a) && tensor_is_dense(b);
}

bool ops_overlap_err(bool itself, tp_err *err)
{
    return err_set(
        err, ERR_runtime,
        "unsupported operation: %s to a single memory location. Please clone() the tensor before performing "
        "the operation.",
        itself ? "more than one element of the written-to tensor refers"
               : "some elements of the input tensor and the written-to tensor refer");
}

/* In-place writes must not tread on what is still to be read. */
static bool check_overlap(const op_call *c, const tp_tensor *self)
{
    if (!(c->sharing & SHARE_SELF) && tensor_overlaps_itself(self))
        return ops_overlap_err(true, c->err);
    for (int i = 1; i < c->row->schema.nparam; i++) {
        const tp_val *v = &c->arg[i];
        tp_tensor *const *ts = v->kind == VAL_tensors ? v->ts : &v->t;
        int n = v->kind == VAL_tensors ? v->n : v->kind == VAL_tensor;
        for (int k = 0; k < n; k++)
            if (ts[k] && !(c->sharing & SHARE_VALUE && ts[k]->ndim == 0) &&
                (c->sharing & SHARE_NONE || !same_geometry(ts[k], self)) && tensor_shares(self, ts[k]))
                return ops_overlap_err(false, c->err);
    }
    return true;
}

static bool check_devices(const op_call *c)
{
    const tp_tensor *first = NULL;
    if (c->row->eager == eager_copy)
        return true;
    for (int i = 0; i < c->row->schema.nparam; i++) {
        const tp_tensor *t = arg_t(c, i);
        if (!t || t->ndim == 0)
            continue;
        if (first && !device_eq(tensor_device(first), tensor_device(t))) {
            strbuf b = { 0 };
            device_print(&b, tensor_device(first));
            strbuf_add(&b, " and ");
            device_print(&b, tensor_device(t));
            err_set(c->err, ERR_runtime,
                    "Expected all tensors to be on the same device, but found at least two devices, %s!",
                    strbuf_str(&b));
            strbuf_free(&b);
            return false;
        }
        first = t;
    }
    return true;
}

/* A symbolic size, alone or beside real data, while nobody records: its number is not known, and to take the one seen while tracing
 * would be wrong for the next. */
static bool no_stray_symbol(const op_call *c)
{
    symint stray = 0;
    size_text t;
    for (int i = 0; i < c->row->schema.nparam; i++) {
        const tp_val *v = &c->arg[i];
        if ((v->kind == VAL_tensor || (v->kind == VAL_tensors && v->n && v->ts[0])) &&
            tensor_is_fake(v->kind == VAL_tensor ? v->t : v->ts[0]))
            return true;
        if (v->kind == VAL_int && sym_is_expr(v->i))
            stray = v->i;
        for (int k = 0; v->kind == VAL_ints && k < v->n; k++)
            if (sym_is_expr(v->ints[k]))
                stray = v->ints[k];
    }
    if (!stray || c->cx->env == sym_env_of(stray)) /* its graph is being worked on */
        return true;
    err_clear(sym_env_err(sym_env_of(stray))); /* whatever a question asked on the way here left */
    return err_set(
        c->err, ERR_runtime,
        "%s(): the size %s is symbolic: outside of the graph it belongs to it has no value to compute with",
        c->row->name, size_str(&t, stray));
}

/* What the storages of all arguments say: ST_fake (also where a number is symbolic or the device is "meta"), ST_device. And
 * whether a type is not plain. */
enum { MARK_special = 256 };
static unsigned arg_marks(const op_call *c)
{
    unsigned marks = 0;
    for (int i = 0; i < c->row->schema.nparam; i++) {
        const tp_val *v = &c->arg[i];
        if (v->kind == VAL_tensor)
            marks |= v->t->storage->flags | (v->t->dt > DT_f64 ? MARK_special : 0);
        else if (v->kind == VAL_int)
            marks |= sym_is_expr(v->i) ? ST_fake : 0;
        else if (v->kind == VAL_complex || (v->kind == VAL_dtype && v->i > DT_f64))
            marks |= MARK_special;
        else if (v->kind == VAL_tensors) {
            for (int k = 0; k < v->n; k++)
                if (v->ts[k])
                    marks |= v->ts[k]->storage->flags | (v->ts[k]->dt > DT_f64 ? MARK_special : 0);
        } else if ((v->kind == VAL_device && v->dev.kind == DEV_meta) ||
                   (v->kind == VAL_ints && !sym_all_const(v->ints, v->n)))
            marks |= ST_fake;
    }
    return marks;
}
static bool any_fake(const op_call *c) { return arg_marks(c) & ST_fake; }

bool ops_is_batched(const op_ctx *cx, const op_row *row, const tp_val *arg)
{
    op_call c = { .row = row, .arg = arg };
    return (cx->batch && row->flags & OPF_RAND) || arg_marks(&c) & ST_batched;
}

/* May the kernel write its one result straight into the tensor given by out=? Of the same kind, with a storage of its
 * own (some kernels clear all of it), and read by nobody. */
static bool into_fits(const op_call *c, const op_out *o)
{
    const tp_tensor *t = c->into;
    if (c->nout != 1 || t->offset || t->storage->nbytes != t->numel * (int64_t)dtype_size((dtype)t->dt) ||
        t->dt != o->dt || t->ndim != o->ndim || tensor_is_fake(t) || !device_eq(tensor_device(t), o->dev) ||
        memcmp(t->size, o->size, sizeof(symint) * t->ndim) ||
        memcmp(t->stride, o->stride, sizeof(symint) * t->ndim))
        return false;
    for (int i = 0; i < c->row->schema.nparam; i++) {
        const tp_val *v = &c->arg[i];
        if (v->kind == VAL_tensor && v->t->storage == t->storage &&
            !(c->row->flags & OPF_PW && same_geometry(v->t, t)))
            return false;
        for (int k = 0; v->kind == VAL_tensors && k < v->n; k++)
            if (v->ts[k] && v->ts[k]->storage == t->storage)
                return false;
    }
    return true;
}

static tp_tensor *make_out(op_call *c, const op_out *o, bool fake)
{
    tp_tensor *t;
    switch (o->kind) {
    case OUT_self: return tensor_ref(c->arg[o->alias].t);
    case OUT_view: {
        tp_tensor *src = c->arg[o->alias].t;
        t = tensor_view(src, o->ndim, o->size, o->stride, o->offset);
        if (o->dt != t->dt)
            t->dt = o->dt;
        return t;
    }
    case OUT_new:
        if (c->into && !fake && into_fits(c, o))
            return tensor_ref(c->into);
        if (!shape_check_sizes(o->ndim, o->size, c->err))
            return NULL;
        t = fake ? tensor_new_fake((dtype)o->dt, o->ndim, o->size, o->stride, o->dev)
                 : tensor_new_strided((dtype)o->dt, o->ndim, o->size, o->stride, o->dev, c->err);
        if (t && c->cx->inference_mode)
            t->flags |= TF_inference;
        return t;
    default: return NULL;
    }
}

static bool shape_is(const tp_tensor *to, int nd, const symint *size, tp_err *err)
{
    if (nd == to->ndim && tensor_same_size(to, &(tp_tensor){ .ndim = (uint8_t)nd, .size = (symint *)size }))
        return true;
    strbuf a = { 0 }, b = { 0 };
    shape_print(&a, to->ndim, to->size);
    shape_print(&b, nd, size);
    err_set(err, ERR_runtime, "output with shape %s doesn't match the broadcast shape %s", strbuf_str(&a),
            strbuf_str(&b));
    strbuf_free(&a);
    strbuf_free(&b);
    return false;
}
bool shape_fits(const tp_tensor *to, const tp_tensor *from, tp_err *err)
{
    symint size[TP_MAX_DIMS];
    int nd = to->ndim;
    memcpy(size, to->size, sizeof(symint) * (size_t)nd);
    return shape_broadcast(&nd, size, from->ndim, from->size, err) && shape_is(to, nd, size, err);
}

static bool inplace_ok(op_call *c, const op_out *o, const tp_tensor *self)
{
    if (!shape_is(self, o->ndim, o->size, c->err))
        return false;
    if (!dtype_can_cast((dtype)o->dt, (dtype)self->dt))
        return err_set(c->err, ERR_runtime, "result type %s can't be cast to the desired output type %s",
                       dtype_rows[o->dt].gname, dtype_rows[self->dt].gname);
    return check_overlap(c, self);
}

enum { UNLOCK_NUMEL = 1 << 16 }; /* below, letting go of a lock costs more than the kernel */
static op_eager_fn *_Atomic device_kernels[DEV_COUNT];
static op_dispatch_fn *on_batch;
void ops_on_batch(op_dispatch_fn *fn) { on_batch = fn; }
void ops_on_device(dev_kind k, op_eager_fn *fn) { device_kernels[k] = fn; }

/* Bytes of an argument or a result are on a device: its kernels, which take every row, or none. */
static __attribute__((noinline)) bool run_on_device(op_call *c)
{
    tp_device d = c->nout && c->out[0].kind == OUT_new ? c->out[0].dev : DEVICE_CPU;
    for (int i = 0; i < c->row->schema.nparam && device_ops_of(d)->host; i++) {
        const tp_val *v = &c->arg[i];
        if (v->kind == VAL_tensor)
            d = tensor_device(v->t);
        for (int k = 0; v->kind == VAL_tensors && k < v->n && device_ops_of(d)->host; k++)
            d = v->ts[k] ? tensor_device(v->ts[k]) : d;
    }
    if (c->row->eager == eager_view)
        return true;
    if (c->row->flags & OPF_HEAD) /* of the tensor, not of its bytes */
        return c->row->eager(c);
    if (device_kernels[d.kind])
        return device_kernels[d.kind](c);
    return err_set(c->err, ERR_notimpl,
                   "'%s' has no kernel for device '%s'; move its arguments to the CPU first", c->row->full,
                   device_name((dev_kind)d.kind));
}

op_eager_fn *op_kernel_of(const op_call *c)
{
    return c->special && c->special->kernel ? c->special->kernel : c->row->eager;
}

static bool run_kernel_now(op_call *c)
{
    if (TP_UNLIKELY(c->on_device))
        return run_on_device(c);
    op_eager_fn *eager = op_kernel_of(c);
    bool many = c->row->schema.nret && c->res && c->res[0] && c->res[0]->numel >= UNLOCK_NUMEL;
    for (int i = 0; !many && i < c->row->schema.nparam; i++)
        many = c->arg[i].kind == VAL_tensor && c->arg[i].t->numel >= UNLOCK_NUMEL;
    if (TP_LIKELY(!many) || !host.unlock)
        return eager(c);
    void *held = host.unlock();
    bool ok = eager(c);
    if (held)
        host.relock(held);
    return ok;
}

static bool run_kernel(op_call *c)
{
    crumb_eager(c->row->name);
    bool ok = run_kernel_now(c);
    crumb_eager(NULL);
    for (int i = c->nout; TP_UNLIKELY(c->cx->inference_mode) && ok && c->res && i < c->row->schema.nret; i++)
        if (c->res[i] && c->res[i] != c->into) /* made by the kernel, which knows how long it is */
            c->res[i]->flags |= TF_inference;
    if (TP_UNLIKELY(jiggle_on()) && ok)
        jiggle_results(c->row, c->res, c->row->schema.nret);
    return ok;
}

/* In place: straight into self when the kernel allows, through a temporary otherwise. */
static bool run_inplace(op_call *c, tp_val *out, bool fake)
{
    tp_tensor *self = c->arg[0].t, *tmp = NULL;
    op_out *o = &c->out[0];
    bool ok = false;

    if (!inplace_ok(c, o, self))
        return false;
    if (!fake) {
        /* pointwise kernels convert while they write */
        bool direct = (c->row->flags & OPF_PW) || tensor_overlaps_itself(self);
        tmp = direct ? tensor_ref(self) : make_out(c, o, false);
        if (!tmp)
            goto done;
        c->res = &tmp;
        if (!run_kernel(c) || (!direct && !tensor_copy(self, tmp, c->err)))
            goto done;
    }
    tensor_bump(self);
    *out = vT(tensor_ref(self));
    ok = true;
done:
    tensor_unref(tmp);
    return ok;
}

/* A composite's result becomes the new contents of the first argument. */
static bool into_self(op_call *c, tp_val *out, bool fake)
{
    tp_tensor *self = c->arg[0].t, *r = out[0].t;
    op_out o = { .dt = r->dt, .ndim = r->ndim };
    memcpy(o.size, r->size, sizeof(symint) * r->ndim);
    bool ok = inplace_ok(c, &o, self);
    if (ok && TP_UNLIKELY(self->storage->flags & ST_batched)) {
        tp_val done[1] = { vNone };
        ok = ops_call(c->cx, OP_copy_, OPV_fn, (tp_val[]){ vT(self), vT(r), vB(false) }, done, c->err);
        val_clear(&out[0]);
        out[0] = done[0];
        return ok;
    }
    ok = ok && (fake || tensor_copy(self, r, c->err));
    val_clear(&out[0]);
    if (ok) {
        tensor_bump(self);
        out[0] = vT(tensor_ref(self));
    }
    return ok;
}

static bool run_fn(op_call *c, tp_val *out, bool fake)
{
    const op_schema *s = &c->row->schema;
    tp_tensor *small[OP_MAX_RETURNS], **res = small;
    bool ok = false;
    int made = 0;

    if (c->nout > OP_MAX_RETURNS || s->ret_list)
        res = mem_zalloc(sizeof *res * (size_t)MAX(c->nout, 1));
    for (; made < c->nout; made++) {
        op_out *o = &c->out[made];
        res[made] = make_out(c, o, fake);
        if (!res[made] && (o->kind == OUT_new || o->kind == OUT_view))
            goto done;
    }
    c->res = res;
    if (!fake && !run_kernel(c))
        goto done;
    if (c->row->flags & OPF_MUT)
        tensor_bump(c->arg[0].t);
    if (s->ret_list) {
        *out = vTs(res, c->nout);
        res = NULL;
    } else
        for (int i = 0; i < c->nout; i++)
            out[i] = c->out[i].kind == OUT_num ? c->out[i].num : vT(c->res[i]);
    ok = true;
done:
    if (!ok)
        for (int i = 0; i < made; i++)
            tensor_unref(res[i]);
    if (res != small)
        free(res);
    return ok;
}

/* The numbers among the arguments end up in the result. */
static bool numbers_fit(const op_call *c)
{
    for (int i = 0; c->nout && i < c->row->schema.nparam; i++) {
        int type = c->row->schema.param[i].type;
        if ((type == PT_scalar || type == PT_tensor) && val_is_number(&c->arg[i]) &&
            !fill_value_ok((dtype)c->out[0].dt, &c->arg[i], c->err))
            return false;
    }
    return true;
}

/* zeros_like(m, device="cpu") of a tensor on "meta": it asks for memory, and reads none. */
static bool made_real(const op_call *c)
{
    return (c->row->flags & OPF_LIKE) && c->variant == OPV_fn && !c->cx->rec && c->nout &&
           c->out[0].dev.kind != DEV_meta && tensor_device(c->arg[0].t).kind == DEV_meta &&
           sym_all_const(c->out[0].size, c->out[0].ndim);
}

/* Rows that run by their decompositions because somebody asks for it: their kernels are not trusted. 1, 0: it is none of these (or
 * not in this case), -1: it failed. */
static int by_formula(op_call *c, const tp_val *arg, tp_val *out)
{
    static _Atomic int asked = -1;
    if (TP_LIKELY(!asked))
        return 0;
    const char *list = env_get(ENV_decompose), *s = list ? strstr(list, c->row->name) : NULL;
    size_t n = strlen(c->row->name);
    asked = list && *list;
    while (s && ((s > list && s[-1] != ',') || (s[n] && s[n] != ',')))
        s = strstr(s + 1, c->row->name);
    if (!s || !strcmp(c->row->decomp_name, "none") || c->variant != OPV_fn || c->into)
        return 0;
    tp_err err = { 0 };
    bld b;
    bld_init(&b, c->cx, &err);
    bool ok = op_decompose(c->row, &b, arg, out);
    bld_end(&b);
    if (!ok && err.kind != ERR_notimpl) {
        if (c->err)
            *c->err = err;
        return -1;
    }
    err_clear(&err);
    return ok;
}

static bool call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err, bool fake)
{
    op_call c;
    c.op = op;
    c.variant = v;
    c.row = op_row_of(op);
    c.arg = arg;
    c.cx = cx;
    c.err = err;
    c.nout = 0;
    c.out = NULL;
    c.res = NULL;
    c.sharing = 0;
    c.special = NULL;
    c.into = v == OPV_fn ? cx->into : NULL; /* for this call, not for those it makes */
    cx->into = NULL;
    bool ok = false;

    if (v == OPV_inplace && arg[0].kind != VAL_tensor)
        return err_set(err, ERR_type, "%s_(): argument 'self' (position 1) must be Tensor, not a number",
                       c.row->name);
    if (TP_UNLIKELY(c.row->flags & OPF_COMP)) { /* defined by its decomposition: run that, with no tape */
        bld b;
        bld_init(&b, cx, err);
        ok = op_decompose(c.row, &b, arg, out);
        bld_end(&b);
        return ok && (v == OPV_inplace ? into_self(&c, out, fake || any_fake(&c)) : true);
    }
    unsigned marks = arg_marks(&c);
    if (TP_UNLIKELY(marks & ST_batched || (cx->batch && c.row->flags & OPF_RAND)) && !fake)
        return on_batch(cx, op, v, arg, out, err);
    int formula = fake || (marks & (ST_fake | ST_sparse | MARK_special)) ? 0 : by_formula(&c, arg, out);
    if (TP_UNLIKELY(formula))
        return formula > 0;
    if (TP_UNLIKELY(marks & ST_sparse))
        return err_set(err, ERR_notimpl,
                       "%s(): not supported for sparse tensors; to_dense() makes a dense one", c.row->name);
    if (!fake && (marks & ST_fake)) {
        if (!cx->rec && !no_stray_symbol(&c))
            return false;
        fake = true;
    }
    if (TP_UNLIKELY(marks & MARK_special)) {
        c.special = special_find(op, arg, err);
        if (!c.special)
            return false;
        if (c.special->call && !(c.special->kernel && special_complex(c.row, arg)))
            return c.special->call(cx, op, v, arg, out, err, fake || (marks & ST_fake));
    }
    op_shape_fn *shape = c.special && c.special->shape ? c.special->shape : c.row->shape;
    if (!check_devices(&c) || !shape(&c) || (c.row->flags & OPF_FITS && !numbers_fit(&c)))
        goto done;
    c.on_device = ((marks & ST_device) && !(c.row->flags & OPF_LIKE)) ||
                  (c.nout && c.out[0].dev.kind != DEV_cpu);
    fake = fake || (c.nout && c.out[0].dev.kind == DEV_meta);
    if (TP_UNLIKELY(fake) && made_real(&c))
        fake = false;
    if (fake && TP_UNLIKELY(cx->look != NULL) && !cx->look(&c))
        goto done;
    if ((c.row->flags & OPF_DYN) && !fake) {
        tp_tensor *res[OP_MAX_RETURNS] = { 0 }; /* the kernel allocates */
        c.res = res;
        ok = run_kernel(&c);
        for (int i = 0; i < c.row->schema.nret; i++) {
            if (ok)
                out[i] = vT(res[i]);
            else
                tensor_unref(res[i]);
        }
        goto done;
    }
    ok = v == OPV_inplace ? run_inplace(&c, out, fake) : run_fn(&c, out, fake);
done:
    if (c.out && c.out != c.inl)
        free(c.out);
    return ok;
}

static bool call_real(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err)
{
    if (TP_UNLIKELY(cx->dispatch) && !(op_row_of(op)->flags & OPF_COMP))
        return cx->dispatch(cx, op, v, arg, out, err);
    return call(cx, op, v, arg, out, err, false);
}

/* The sizes of the operator's tensors, for a profiler: "[[2, 3], []]"; [] stands for what is no tensor. */
static char *shapes_text(op_id op, const tp_val *arg)
{
    strbuf b = { 0 };
    size_text room;
    strbuf_add(&b, "[");
    for (int i = 0; i < op_row_of(op)->schema.nparam; i++) {
        const tp_tensor *t = arg[i].kind == VAL_tensor ? arg[i].t : NULL;
        strbuf_add(&b, i ? ", [" : "[");
        for (int d = 0; t && d < t->ndim; d++)
            strbuf_addf(&b, "%s%s", d ? ", " : "", size_str(&room, t->size[d]));
        strbuf_add(&b, "]");
    }
    strbuf_add(&b, "]");
    return strbuf_take(&b);
}

void (*ops_watch)(op_ctx *cx, op_id op, op_variant v, const tp_val *arg);
bool ops_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err)
{
    int64_t t = profile_start();
    if (TP_LIKELY(!t))
        return call_real(cx, op, v, arg, out, err);
    if (profile_wants(PROFILES_watch) && ops_watch)
        ops_watch(cx, op, v, arg);
    char *shapes = profile_wants(PROFILES_shapes) ? shapes_text(op, arg) : NULL;
    bool ok = call_real(cx, op, v, arg, out, err);
    if (ok && out[0].kind == VAL_tensor && tensor_is_fake(out[0].t)) /* a compiler at work is no operator */
        free(shapes);
    else
        profile_add_op(op_row_of(op)->name, shapes, t);
    return ok;
}

bool ops_fake(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err)
{
    if (!(op_row_of(op)->flags & OPF_RAND))
        return call(cx, op, v, arg, out, err, true);
    tp_gen *g =
        gen_default(); /* the parts of a composite row may be real: they draw no numbers of the program's */
    gen_state was = g->s;
    bool ok = call(cx, op, v, arg, out, err, true);
    g->s = was;
    return ok;
}

/* ---- builders ---- */
static bool bld_exec(bld *b, op_id op, op_variant v, const tp_val *arg, tp_val *out)
{
    return ops_call(b->cx, op, v, arg, out, b->err);
}

/* A view of what a composite made itself is none for who called it: nobody else sees that memory. */
static void own_memory(const op_row *row, const tp_val *arg, tp_tensor *t)
{
    for (int i = 0; i < row->schema.nparam; i++) {
        if (arg[i].kind == VAL_tensor && arg[i].t->storage == t->storage)
            return;
        for (int k = 0; arg[i].kind == VAL_tensors && k < arg[i].n; k++)
            if (arg[i].ts[k] && arg[i].ts[k]->storage == t->storage)
                return;
    }
    tp_tensor *base = t->base;
    t->base = NULL;
    t->spare = 0; /* what the tape says of views */
    tensor_unref(base);
}

bool op_decompose(const op_row *row, bld *b, const tp_val *arg, tp_val *out)
{
    const tp_tensor *t = NULL;
    tp_device before = b->cx->default_device;
    crumb_eager(row->name);
    for (int i = 0; i < row->schema.nparam && !t; i++)
        t = arg[i].kind == VAL_tensor                    ? arg[i].t
            : arg[i].kind == VAL_tensors && arg[i].n > 0 ? arg[i].ts[0]
                                                         : NULL;
    if (t)
        b->cx->default_device = tensor_device(t);
    for (int i = 0; i < row->schema.nparam; i++)
        if (arg[i].kind == VAL_device)
            b->cx->default_device = arg[i].dev;
    if (special_args(row, arg) && !special_find(op_of(row), arg, b->err)) {
        b->cx->default_device = before;
        return false;
    }
    bool ok = row->decomp(b, arg, out) && !b->failed;
    crumb_eager(NULL);
    b->cx->default_device = before;
    if (ok && out[0].kind == VAL_tensor && out[0].t->base)
        own_memory(row, arg, out[0].t);
    return ok;
}

void bld_init(bld *b, op_ctx *cx, tp_err *err)
{
    memset(b, 0, sizeof *b);
    b->call = bld_exec;
    b->cx = cx;
    b->err = err;
}

tp_tensor *bld_host(bld *b, tp_tensor *t)
{
    tp_tensor *h = tensor_to(t, DEVICE_CPU, b->err);
    if (!h)
        b->failed = true;
    return h ? bld_keep(b, h) : NULL;
}

void bld_end(bld *b)
{
    for (size_t i = 0; i < b->pool.n; i++)
        tensor_unref(b->pool.at[i]);
    vec_free(&b->pool);
}

tp_tensor *bld_keep(bld *b, tp_tensor *t)
{
    if (t)
        vec_push(&b->pool, t);
    return t;
}

bool op_fill_defaults(const op_row *row, const tp_val *arg, int narg, tp_val *full, tp_err *err)
{
    const op_schema *s = &row->schema;
    for (int i = 0; i < s->nparam; i++) {
        if (i < narg)
            full[i] = arg[i];
        else if (s->param[i].has_default || s->param[i].optional)
            full[i] = s->param[i].def;
        else
            return err_set(err, ERR_type, "%s() missing required argument '%s' (pos %d)", row->name,
                           s->param[i].name, i + 1);
    }
    return true;
}

/* What is made of nothing says where, for graphs forget the context. */
static void say_device(const bld *b, const op_row *row, tp_val *arg)
{
    int at = -1;
    for (int i = 0; i < row->schema.nparam; i++) {
        if (arg[i].kind == VAL_tensor || arg[i].kind == VAL_tensors)
            return;
        if (row->schema.param[i].type == PT_device && arg[i].kind == VAL_none)
            at = i;
    }
    if (at >= 0)
        arg[at] = vDev(b->cx->default_device);
}

bool b_callvn(bld *b, op_id op, op_variant v, const tp_val *arg, int narg, tp_tensor **res, int nres)
{
    const op_row *row = op_row_of(op);
    tp_val full[OP_MAX_PARAMS], out[OP_MAX_RETURNS] = { 0 };

    for (int i = 0; i < nres; i++)
        res[i] = NULL;
    if (b->failed)
        return false;
    if (!op_fill_defaults(row, arg, narg, full, b->err)) {
        b->failed = true;
        return false;
    }
    for (int i = 0; i < row->schema.nparam; i++)
        if (full[i].kind == VAL_none && row->schema.param[i].type == PT_tensor &&
            !row->schema.param[i].optional)
            return false; /* a missing gradient stays missing */
    if (TP_UNLIKELY(b->cx->default_device.kind == DEV_cuda))
        say_device(b, row, full);
    if (!b->call(b, op, v, full, out)) {
        b->failed = true;
        return false;
    }
    for (int i = 0; i < row->schema.nret; i++) {
        if (out[i].kind == VAL_tensor) {
            bld_keep(b, out[i].t);
            if (i < nres)
                res[i] = out[i].t;
        } else if (out[i].kind == VAL_tensors) {
            for (int k = 0; k < out[i].n; k++) {
                bld_keep(b, out[i].ts[k]);
                if (k < nres)
                    res[k] = out[i].ts[k];
            }
            free(out[i].ts);
        }
    }
    return true;
}

tp_tensor *b_callv(bld *b, op_id op, op_variant v, const tp_val *arg, int narg)
{
    tp_tensor *r = NULL;
    b_callvn(b, op, v, arg, narg, &r, 1);
    return r;
}
