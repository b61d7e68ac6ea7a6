#include "tensor/tensor.h"
#include "base/bytes.h"
#include "base/profile.h"
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

/* Storage ids start at 1 and are never reused; fake tensors that alias share one. */
static atomic_uint_fast64_t next_id = 1;
static atomic_llong fail_after, live_bytes, peak_bytes;
void (*tensor_ag_free)(void *ag);
void (*tensor_py_free)(void *py);
uint64_t tensor_epoch;

/* ---- storage ---- */
void *tmp_alloc(int64_t nbytes)
{
    void *p = bytes_new(nbytes);
    return p ? p : mem_alloc((size_t)nbytes);
}
void tmp_free(void *p, int64_t nbytes) { bytes_free(p, nbytes); }

static inline tp_storage *storage_header(tp_device dev)
{
    tp_storage *s = mem_zalloc(sizeof *s);
    s->refs = 1;
    s->device = dev;
    if (dev.index < 0) /* where devices are counted, a tensor is on one of them */
        s->device.index = (int8_t)device_ops_of(dev)->current();
    s->flags = device_ops_of(dev)->host ? 0 : ST_device;
    s->id = atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed);
    return s;
}

int64_t storage_fail_after(int64_t n) { return atomic_exchange(&fail_after, n); }
int64_t storage_live_bytes(void) { return atomic_load(&live_bytes); }

int64_t storage_peak_bytes(bool reset)
{
    int64_t p = atomic_load(&peak_bytes);
    if (reset)
        atomic_store(&peak_bytes, atomic_load(&live_bytes));
    return p;
}

static void *take_bytes(const device_ops *o, int64_t nbytes, tp_device dev, tp_err *err)
{
    if (TP_UNLIKELY(atomic_load_explicit(&fail_after, memory_order_relaxed) > 0) &&
        atomic_fetch_sub(&fail_after, 1) == 1) {
        device_no_memory(nbytes, err);
        return NULL;
    }
    void *p = o->alloc(dev, nbytes, err);
    if (p && o->host) {
        long long now = atomic_fetch_add_explicit(&live_bytes, nbytes, memory_order_relaxed) + nbytes;
        if (profile_wants(PROFILES_memory))
            profile_add_memory(nbytes, now);
        if (now > atomic_load_explicit(&peak_bytes, memory_order_relaxed))
            atomic_store_explicit(&peak_bytes, now, memory_order_relaxed);
    }
    return p;
}

tp_storage *storage_new(int64_t nbytes, tp_device dev, tp_err *err)
{
    const device_ops *o = device_ops_of(dev);
    void *p = NULL;
    if (!o->alloc)
        return storage_new_fake(nbytes, dev);
    if ((nbytes || !o->count()) && !(p = take_bytes(o, nbytes, dev, err)))
        return NULL;
    tp_storage *s = storage_header(dev);
    s->data = p;
    s->nbytes = nbytes;
    return s;
}

tp_storage *storage_new_fake(symint nbytes, tp_device dev)
{
    tp_storage *s = storage_header(dev);
    s->flags |= ST_fake;
    s->nbytes = nbytes;
    return s;
}

tp_storage *storage_wrap(void *data, int64_t nbytes, void (*release)(void *, void *), void *ctx)
{
    return storage_wrap_on(DEVICE_CPU, data, nbytes, release, ctx);
}

tp_storage *storage_wrap_on(tp_device dev, void *data, int64_t nbytes, void (*release)(void *, void *),
                            void *ctx)
{
    tp_storage *s = storage_header(dev);
    s->data = data;
    s->nbytes = nbytes;
    s->release = release;
    s->ctx = ctx;
    return s;
}

tp_storage *storage_ref(tp_storage *s)
{
    __atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
    return s;
}

void storage_unref(tp_storage *s)
{
    if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL))
        return;
    if (s->release)
        s->release(s->ctx, s->data);
    else if (s->data) {
        const device_ops *o = device_ops_of(s->device);
        if (o->host) {
            long long now = atomic_fetch_sub_explicit(&live_bytes, s->nbytes, memory_order_relaxed) -
                            s->nbytes;
            if (profile_wants(PROFILES_memory))
                profile_add_memory(-s->nbytes, now);
        }
        o->free(s->device, s->data, s->nbytes);
    }
    free(s);
}

/* ---- shapes ---- */
symint shape_numel(int ndim, const symint *size)
{
    symint n = 1;
    for (int i = 0; i < ndim; i++)
        n = sym_mul(n, size[i]);
    return n;
}

void shape_contiguous_strides(int ndim, const symint *size, symint *stride)
{
    symint s = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        stride[i] = s;
        s = sym_mul(s, sym_max(size[i], 1));
    }
}

bool shape_memfmt_strides(memfmt f, int ndim, const symint *size, symint *stride, tp_err *err)
{
    static const int8_t order[2][5] = { { 1, 3, 2, 0 }, { 1, 4, 3, 2, 0 } };
    if (f == MF_contiguous || f == MF_preserve) {
        shape_contiguous_strides(ndim, size, stride);
        return true;
    }
    int want = f == MF_channels_last ? 4 : 5;
    if (ndim != want)
        return err_set(err, ERR_runtime, "required rank %d tensor to use channels_last%s format", want,
                       want == 5 ? "_3d" : "");
    symint s = 1;
    for (int i = 0; i < ndim; i++) {
        int d = order[want - 4][i];
        stride[d] = s;
        s = sym_mul(s, size[d]);
    }
    return true;
}

static bool too_large(int ndim, const symint *size, tp_err *err)
{
    strbuf b = { 0 };
    shape_print(&b, ndim, size);
    err_set(err, ERR_runtime, "Storage size calculation overflowed with sizes=%s", strbuf_str(&b));
    strbuf_free(&b);
    return false;
}

bool shape_check_sizes(int ndim, const symint *size, tp_err *err)
{
    if (ndim > TP_MAX_DIMS)
        return err_set(err, ERR_runtime, "tensor has too many (>%d) dims", TP_MAX_DIMS);
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        if (sym_is_expr(size[i]))
            continue;
        if (size[i] < 0) {
            strbuf b = { 0 };
            shape_print(&b, ndim, size);
            err_set(err, ERR_runtime, "Trying to create tensor with negative dimension %lld: %s",
                    (long long)size[i], strbuf_str(&b));
            strbuf_free(&b);
            return false;
        }
        if (n && size[i] && __builtin_mul_overflow(n, size[i], &n))
            return too_large(ndim, size, err);
        if (!size[i])
            n = 0;
    }
    return n < (int64_t)1 << 58 || too_large(ndim, size, err);
}

bool shape_storage_bytes(dtype dt, int ndim, const symint *size, const symint *stride, symint offset,
                         symint *out, tp_err *err)
{
    symint last = offset;
    if (sym_is_expr(offset) || !sym_all_const(size, ndim) || !sym_all_const(stride, ndim)) {
        for (int i = 0; i < ndim; i++)
            last = sym_add(last, sym_mul(sym_sub(size[i], 1), stride[i]));
        *out = sym_mul(sym_add(last, 1), (symint)dtype_size(dt));
        return true;
    }
    for (int i = 0; i < ndim; i++) {
        int64_t step;
        if (size[i] == 0) {
            *out = 0;
            return true;
        }
        if (stride[i] < 0)
            return err_set(err, ERR_runtime,
                           "as_strided: Negative strides are not supported at the moment, got strides");
        if (__builtin_mul_overflow(size[i] - 1, stride[i], &step) ||
            __builtin_add_overflow(last, step, &last))
            return err_set(err, ERR_runtime, "Storage size calculation overflowed");
    }
    if (last < 0 || last >= ((int64_t)1 << 58))
        return err_set(err, ERR_runtime, "Storage size calculation overflowed");
    *out = (last + 1) * (int64_t)dtype_size(dt);
    return true;
}

void shape_print(strbuf *b, int ndim, const symint *size)
{
    strbuf_addc(b, '[');
    for (int i = 0; i < ndim; i++) {
        if (i)
            strbuf_add(b, ", ");
        if (sym_is_expr(size[i]))
            sym_print(b, size[i]);
        else
            strbuf_addf(b, "%lld", (long long)size[i]);
    }
    strbuf_addc(b, ']');
}

/* ---- tensors ---- */
tp_tensor *tensor_on(tp_storage *s, dtype dt, int ndim, const symint *size, const symint *stride,
                     symint offset)
{
    tp_tensor *t = mem_alloc(sizeof *t + sizeof(symint) * 2 * (size_t)ndim);
    memset(t, 0, sizeof *t);
    t->refs = 1;
    t->dt = (uint8_t)dt;
    t->ndim = (uint8_t)ndim;
    t->storage = storage_ref(s);
    t->offset = offset;
    t->size = t->dims;
    t->stride = t->dims + ndim;
    if (ndim) {
        memcpy(t->size, size, sizeof(symint) * (size_t)ndim);
        if (stride)
            memcpy(t->stride, stride, sizeof(symint) * (size_t)ndim);
        else
            shape_contiguous_strides(ndim, size, t->stride);
    }
    t->numel = shape_numel(ndim, size);
    return t;
}

tp_tensor *tensor_new_strided(dtype dt, int ndim, const symint *size, const symint *stride, tp_device dev,
                              tp_err *err)
{
    symint own[TP_MAX_DIMS], bytes;
    if (!shape_check_sizes(ndim, size, err))
        return NULL;
    if (!stride) {
        shape_contiguous_strides(ndim, size, own);
        stride = own;
    }
    if (!shape_storage_bytes(dt, ndim, size, stride, 0, &bytes, err))
        return NULL;
    tp_storage *s = storage_new(bytes, dev, err);
    if (!s)
        return NULL;
    tp_tensor *t = tensor_on(s, dt, ndim, size, stride, 0);
    storage_unref(s);
    return t;
}

tp_tensor *tensor_new(dtype dt, int ndim, const symint *size, tp_err *err)
{
    return tensor_new_strided(dt, ndim, size, NULL, DEVICE_CPU, err);
}

tp_tensor *tensor_new_fake(dtype dt, int ndim, const symint *size, const symint *stride, tp_device dev)
{
    symint own[TP_MAX_DIMS], bytes = 0;
    if (!stride) {
        shape_contiguous_strides(ndim, size, own);
        stride = own;
    }
    shape_storage_bytes(dt, ndim, size, stride, 0, &bytes, NULL);
    tp_storage *s = storage_new_fake(bytes, dev);
    tp_tensor *t = tensor_on(s, dt, ndim, size, stride, 0);
    storage_unref(s);
    return t;
}

tp_tensor *tensor_fake_of(const tp_tensor *t)
{
    tp_storage *s = storage_new_fake(t->storage->nbytes, t->storage->device);
    tp_tensor *f = tensor_on(s, (dtype)t->dt, t->ndim, t->size, t->stride, t->offset);
    storage_unref(s);
    f->flags |= t->flags & TF_wrapped;
    return f;
}

tp_tensor *tensor_view(tp_tensor *t, int ndim, const symint *size, const symint *stride, symint offset)
{
    tp_tensor *v = tensor_on(t->storage, (dtype)t->dt, ndim, size, stride, offset);
    v->base = tensor_ref(t->base ? t->base : t);
    v->flags |= t->flags & TF_inference;
    v->ahead = t->ahead;
    return v;
}

tp_tensor *tensor_alias(tp_tensor *t)
{
    tp_tensor *a = tensor_on(t->storage, (dtype)t->dt, t->ndim, t->size, t->stride, t->offset);
    a->ahead = t->ahead;
    return a;
}

tp_tensor *tensor_to(tp_tensor *t, tp_device dev, tp_err *err)
{
    if (device_ops_of(dev) == device_ops_of(tensor_device(t)) &&
        (dev.index < 0 || dev.index == tensor_device(t).index))
        return tensor_ref(t);
    int64_t es = (int64_t)dtype_size((dtype)t->dt), span = t->numel ? 1 : 0;
    for (int d = 0; d < t->ndim && span; d++)
        span += (t->size[d] - 1) * t->stride[d];
    tp_storage *s = storage_new(span * es, dev, err);
    tp_tensor *r = s ? tensor_on(s, (dtype)t->dt, t->ndim, t->size, t->stride, 0) : NULL;
    if (r && !device_copy(s->device, s->data, tensor_device(t), tensor_data(t), span * es, err)) {
        tensor_unref(r);
        r = NULL;
    }
    storage_unref(s);
    return r;
}

const void *tensor_peek(const tp_tensor *t, uint64_t *room, tp_err *err)
{
    if (TP_LIKELY(!(t->storage->flags & ST_device)))
        return tensor_data(t);
    if (dtype_size((dtype)t->dt) > sizeof *room) {
        err_set(err, ERR_notimpl, "reading an element of type %s on a device; move it to the CPU first",
                dtype_name((dtype)t->dt));
        return NULL;
    }
    bool ok = device_copy(DEVICE_CPU, room, tensor_device(t), tensor_data(t),
                          (int64_t)dtype_size((dtype)t->dt), err);
    return ok ? room : NULL;
}

tp_tensor *tensor_scalar(dtype dt, double f, int64_t i, tp_err *err)
{
    tp_tensor *t = tensor_new(dt, 0, NULL, err);
    if (!t)
        return NULL;
    if (!dtype_is_exact(dt))
        elem_set_f(dt, tensor_host(t), f);
    else
        elem_set_i(dt, tensor_host(t), dt == DT_bool ? f != 0 || i != 0 : i);
    return t;
}

tp_tensor *tensor_ref(tp_tensor *t)
{
    __atomic_add_fetch(&t->refs, 1, __ATOMIC_RELAXED);
    return t;
}

void tensor_unref(tp_tensor *t)
{
    while (t && !__atomic_sub_fetch(&t->refs, 1, __ATOMIC_ACQ_REL)) {
        if (TP_UNLIKELY(t->flags & TF_owns_py)) { /* from here on the object owns the tensor again */
            t->flags &= (uint8_t)~TF_owns_py;
            t->refs = 1;
            tensor_py_free(t->py);
            return;
        }
        tp_tensor *base = t->base; /* a loop, not recursion */
        tensor_changed(t);
        if (t->ag)
            tensor_ag_free(t->ag);
        storage_unref(t->storage);
        if (t->size != t->dims)
            free(t->size);
        free(t);
        t = base;
    }
}

bool tensor_reset(tp_tensor *t, tp_storage *s, dtype dt, int ndim, const symint *size, const symint *stride,
                  symint offset, tp_err *err)
{
    if (ndim > TP_MAX_DIMS)
        return err_set(err, ERR_runtime, "tensor has too many (>%d) dims", TP_MAX_DIMS);
    symint *dims = mem_alloc(sizeof(symint) * 2 * (size_t)MAX(ndim, 1));
    memcpy(dims, size, sizeof(symint) * (size_t)ndim);
    if (stride)
        memcpy(dims + ndim, stride, sizeof(symint) * (size_t)ndim);
    else
        shape_contiguous_strides(ndim, dims, dims + ndim);
    tensor_changed(t);
    t->ahead = tensor_version(t) - s->version;
    storage_ref(s);
    storage_unref(t->storage);
    if (t->size != t->dims)
        free(t->size);
    t->storage = s;
    t->dt = (uint8_t)dt;
    t->ndim = (uint8_t)ndim;
    t->size = dims;
    t->stride = dims + ndim;
    t->offset = offset;
    t->numel = shape_numel(ndim, dims);
    return true;
}

/* ---- questions ---- */
bool tensor_is_contiguous(const tp_tensor *t)
{
    symint want = 1;
    if (sym_eq(t->numel, 0))
        return true;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (sym_eq(t->size[i], 1))
            continue;
        if (!sym_eq(t->stride[i], want))
            return false;
        want = sym_mul(want, t->size[i]);
    }
    return true;
}

bool tensor_is_contiguous_as(const tp_tensor *t, memfmt f)
{
    static const int8_t order[2][5] = { { 1, 3, 2, 0 }, { 1, 4, 3, 2, 0 } };
    if (f == MF_contiguous || f == MF_preserve)
        return tensor_is_contiguous(t);
    int nd = f == MF_channels_last ? 4 : 5;
    if (t->ndim != nd)
        return false;
    if (sym_eq(t->numel, 0))
        return true;
    symint want = 1;
    for (int i = 0; i < nd; i++) {
        int d = order[nd - 4][i];
        if (sym_eq(t->size[d], 1))
            continue;
        if (!sym_eq(t->stride[d], want))
            return false;
        want = sym_mul(want, t->size[d]);
    }
    return true;
}

/* Read inwards, strides must not shrink: [2, 3, 4, 1] with strides [12, 1, 3, 1] is no more channels-last than it is
 * anything else, and counts as contiguous. */
static bool channels_first(const tp_tensor *t)
{
    symint least = 0;
    for (int k = 0; k < t->ndim; k++) {
        int d = k == 0 ? 1 : k == t->ndim - 1 ? 0 : t->ndim - k;
        if (sym_lt(t->stride[d], least) || (d == 0 && sym_eq(least, t->stride[1])))
            return false;
        least = sym_gt(t->size[d], 1) ? sym_mul(t->stride[d], t->size[d]) : t->stride[d];
    }
    return true;
}

memfmt tensor_stride_order(const tp_tensor *t)
{
    if ((t->ndim != 4 && t->ndim != 5) || sym_eq(t->numel, 0) || sym_eq(t->stride[1], 0) ||
        !channels_first(t))
        return MF_contiguous;
    return t->ndim == 4 ? MF_channels_last : MF_channels_last_3d;
}

memfmt tensor_suggest_memfmt(const tp_tensor *t)
{
    if (tensor_is_contiguous(t))
        return MF_contiguous;
    if (t->ndim == 4 && tensor_is_contiguous_as(t, MF_channels_last) && channels_first(t))
        return MF_channels_last;
    if (t->ndim == 5 && tensor_is_contiguous_as(t, MF_channels_last_3d) && channels_first(t))
        return MF_channels_last_3d;
    return MF_contiguous;
}

bool tensor_is_dense(const tp_tensor *t)
{
    int perm[TP_MAX_DIMS], n = 0;
    if (tensor_is_contiguous(t))
        return true;
    for (int i = 0; i < t->ndim; i++) { /* insertion sort by stride; size-1 dimensions do not matter */
        if (sym_eq(t->size[i], 1))
            continue;
        int j = n++;
        while (j > 0 && sym_lt(t->stride[i], t->stride[perm[j - 1]]))
            perm[j] = perm[j - 1], j--;
        perm[j] = i;
    }
    symint want = 1;
    for (int k = 0; k < n; k++) {
        if (!sym_eq(t->stride[perm[k]], want))
            return false;
        want = sym_mul(want, t->size[perm[k]]);
    }
    return true;
}

bool tensor_overlaps_itself(const tp_tensor *t)
{
    if (t->numel == 0)
        return false;
    for (int i = 0; i < t->ndim; i++)
        if (sym_eq(t->stride[i], 0) && sym_gt(t->size[i], 1))
            return true;
    return false;
}

bool shape_may_overlap(int ndim, const symint *size, const symint *stride)
{
    int order[TP_MAX_DIMS], n = 0;
    symint reach = 0;
    for (int i = 0; i < ndim; i++) {
        int k = n;
        if (sym_eq(size[i], 0))
            return false;
        if (sym_eq(size[i], 1))
            continue;
        for (n++; k > 0 && sym_gt(stride[order[k - 1]], stride[i]); k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (int i = 0; i < n; i++) {
        int d = order[i];
        if (!sym_gt(stride[d], reach))
            return true;
        reach = sym_add(reach, sym_mul(stride[d], sym_sub(size[d], 1)));
    }
    return false;
}

bool tensor_same_size(const tp_tensor *a, const tp_tensor *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (!sym_eq(a->size[i], b->size[i]))
            return false;
    return true;
}

/* ---- elements ---- */
double elem_get_f(dtype dt, const void *p)
{
    switch (dt) {
    case DT_f64: return *(const double *)p;
    case DT_f32: return (double)*(const float *)p;
    case DT_f16: return (double)f16_to_f32(*(const uint16_t *)p);
    case DT_bf16: return (double)bf16_to_f32(*(const uint16_t *)p);
    case DT_c64: return (double)*(const float *)p;
    case DT_c128: return *(const double *)p;
    case DT_u64: return (double)*(const uint64_t *)p;
    case DT_f8e4: return (double)f8e4_to_f32(*(const uint8_t *)p);
    case DT_f8e5: return (double)f8e5_to_f32(*(const uint8_t *)p);
    default: return (double)elem_get_i(dt, p);
    }
}

int64_t elem_get_i(dtype dt, const void *p)
{
    switch (dt) {
    case DT_bool: return *(const uint8_t *)p != 0;
    case DT_u8: return *(const uint8_t *)p;
    case DT_i8: return *(const int8_t *)p;
    case DT_i16: return *(const int16_t *)p;
    case DT_i32: return *(const int32_t *)p;
    case DT_i64: return *(const int64_t *)p;
    case DT_u16: return *(const uint16_t *)p;
    case DT_u32: return *(const uint32_t *)p;
    case DT_u64: return (int64_t) * (const uint64_t *)p;
    default: {
        double v = elem_get_f(dt, p);
        return v != v || v >= 9.2233720368547758e18 || v < -9.2233720368547758e18 ? INT64_MIN : (int64_t)v;
    }
    }
}

void elem_set_f(dtype dt, void *p, double v)
{
    switch (dt) {
    case DT_f64: *(double *)p = v; break;
    case DT_f32: *(float *)p = (float)v; break;
    case DT_f16: *(uint16_t *)p = f32_to_f16((float)v); break;
    case DT_bf16: *(uint16_t *)p = f32_to_bf16((float)v); break;
    case DT_bool: *(uint8_t *)p = v != 0; break;
    case DT_c64: ((float *)p)[0] = (float)v, ((float *)p)[1] = 0; break;
    case DT_c128: ((double *)p)[0] = v, ((double *)p)[1] = 0; break;
    case DT_u64:
        *(uint64_t *)p = v >= 9.2233720368547758e18 && v < 1.8446744073709552e19 ? (uint64_t)v
                         : v == v && fabs(v) < 9.2233720368547758e18             ? (uint64_t)(int64_t)v
                                                                                 : (uint64_t)1 << 63;
        break;
    case DT_f8e4: *(uint8_t *)p = f32_to_f8e4((float)v); break;
    case DT_f8e5: *(uint8_t *)p = f32_to_f8e5((float)v); break;
    default:
        elem_set_i(dt, p,
                   v != v || v >= 9.2233720368547758e18 || v < -9.2233720368547758e18 ? INT64_MIN
                                                                                      : (int64_t)v);
    }
}

void elem_set_i(dtype dt, void *p, int64_t v)
{
    switch (dt) {
    case DT_bool: *(uint8_t *)p = v != 0; break;
    case DT_u8: *(uint8_t *)p = (uint8_t)v; break;
    case DT_i8: *(int8_t *)p = (int8_t)v; break;
    case DT_i16: *(int16_t *)p = (int16_t)v; break;
    case DT_i32: *(int32_t *)p = (int32_t)v; break;
    case DT_i64: *(int64_t *)p = v; break;
    case DT_u16: *(uint16_t *)p = (uint16_t)v; break;
    case DT_u32: *(uint32_t *)p = (uint32_t)v; break;
    case DT_u64: *(uint64_t *)p = (uint64_t)v; break;
    default: elem_set_f(dt, p, (double)v);
    }
}

void elem_get_c(dtype dt, const void *p, double v[2])
{
    v[0] = elem_get_f(dt, p);
    v[1] = dt == DT_c64 ? (double)((const float *)p)[1] : dt == DT_c128 ? ((const double *)p)[1] : 0;
}

void elem_set_c(dtype dt, void *p, const double v[2])
{
    elem_set_f(dt, p, v[0]);
    if (dt == DT_c64)
        ((float *)p)[1] = (float)v[1];
    else if (dt == DT_c128)
        ((double *)p)[1] = v[1];
}

void *tensor_elem(const tp_tensor *t, int64_t k)
{
    int64_t at = t->offset;
    for (int i = t->ndim - 1; i >= 0; i--) {
        at += k % t->size[i] * t->stride[i];
        k /= t->size[i];
    }
    assert(!(t->storage->flags & ST_device));
    return (char *)t->storage->data + at * (int64_t)dtype_size((dtype)t->dt);
}
