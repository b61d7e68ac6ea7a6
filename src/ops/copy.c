/* copy.c - copying with conversion: copy_, clone, to, contiguous, fill. */
#include "ops/complex.h"
#include "ops/op.h"
#include "ops/iter.h"
#include "ops/move.h"
#include "base/pool.h"

/* Converting runs: packed operands at once, strided ones through a buffer. */
typedef struct conv_job {
    conv_fn *fn;
    size_t des, ses;
} conv_job;
static void convert(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    enum { BLOCK = 512 };
    const conv_job *j = arg;
    uint64_t sbuf[BLOCK], dbuf[BLOCK];
    bool dp = st[0] == (int64_t)j->des, sp = st[1] == (int64_t)j->ses;
    if (dp && sp) {
        j->fn(n, p[0], p[1]);
        return;
    }
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = MIN(n - at, BLOCK);
        const void *s = p[1] + at * st[1];
        char *d = p[0] + at * st[0];
        if (!sp) {
            gather_packed(m, sbuf, s, st[1], j->ses);
            s = sbuf;
        }
        j->fn(m, dp ? (void *)d : (void *)dbuf, s);
        if (!dp)
            scatter_packed(m, d, st[0], dbuf, j->des);
    }
}

static void convert_special(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    const dtype *dt = arg;
    special_convert(n, p[0], dt[0], st[0], p[1], dt[1], st[1]);
}

ISA_DECL(void, fill_packed, (int64_t n, void *buf, const void *v, size_t es));

/* Same type: whole runs with memcpy, one element again and again, otherwise element by element. */
static void move(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    size_t es = *(const size_t *)arg;
    if (st[0] == (int64_t)es && st[1] == (int64_t)es) {
        int64_t bytes = n * (int64_t)es;
        if (p[0] < p[1] + bytes && p[1] < p[0] + bytes)
            memmove(p[0], p[1], (size_t)bytes);
        else
            moves()->run(bytes, p[0], p[1]);
        return;
    }
    if (st[0] == (int64_t)es && st[1] == 0) {
        ISA_PICK(fill_packed)(n, p[0], p[1], es);
        return;
    }
    if (st[0] == (int64_t)es)
        gather_packed(n, p[0], p[1], st[1], es);
    else if (st[1] == (int64_t)es)
        scatter_packed(n, p[0], st[0], p[1], es);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(p[0] + i * st[0], p[1] + i * st[1], es);
}

/* Rows of one operand are columns of the other: tiles that fit the cache. Dimension 0 is packed in the result,
 * dimension 1 in the source; all others are walked. */
enum { TILE = 64 };
typedef struct turn_job {
    const iter *it;
    size_t es;
    int64_t nt0, nt1; /* tiles along dimensions 0 and 1 */
} turn_job;
/* Through a buffer with an odd stride: rows a power of two apart would fall on one another in the cache. */
#define TURN(T)                                                                             \
    {                                                                                       \
        T buf[TILE * (TILE + 1)];                                                           \
        for (int64_t k = 0; k < n0; k++) {                                                  \
            const T *from = (const T *)(s + k * it->stride[1][0]);                          \
            for (int64_t i = 0; i < n1; i++)                                                \
                buf[i * (TILE + 1) + k] = from[i];                                          \
        }                                                                                   \
        for (int64_t i = 0; i < n1; i++)                                                    \
            memcpy(d + i * it->stride[0][1], buf + i * (TILE + 1), (size_t)n0 * sizeof(T)); \
    }
static void turn_tiles(void *arg, int64_t b, int64_t e)
{
    const turn_job *j = arg;
    const iter *it = j->it;
    for (; b < e; b++) {
        int64_t rest = b, a0 = rest % j->nt0 * TILE, a1 = (rest /= j->nt0) % j->nt1 * TILE;
        int64_t n0 = MIN(TILE, it->size[0] - a0), n1 = MIN(TILE, it->size[1] - a1);
        char *d = it->data[0] + a0 * it->stride[0][0] + a1 * it->stride[0][1];
        const char *s = it->data[1] + a0 * it->stride[1][0] + a1 * it->stride[1][1];
        rest /= j->nt1;
        for (int k = 2; k < it->ndim; k++) {
            d += rest % it->size[k] * it->stride[0][k];
            s += rest % it->size[k] * it->stride[1][k];
            rest /= it->size[k];
        }
        switch (j->es) {
        case 1: TURN(uint8_t) break;
        case 2: TURN(uint16_t) break;
        case 4: TURN(uint32_t) break;
        case 16: TURN(wide_elem) break;
        default: TURN(uint64_t)
        }
    }
}
static bool turn(const iter *it, size_t es)
{
    turn_job j = { it, es, 0, 0 };
    if (it->ndim < 2 || it->stride[0][0] != (int64_t)es || it->stride[1][1] != (int64_t)es ||
        it->size[0] < 8 || it->size[1] < 8)
        return false;
    j.nt0 = (it->size[0] + TILE - 1) / TILE;
    j.nt1 = (it->size[1] + TILE - 1) / TILE;
    pool_for(it->numel / (it->size[0] * it->size[1]) * j.nt0 * j.nt1, 32, turn_tiles, &j);
    return true;
}

/* Each element of a packed row several times over, as repeat_interleave wants it. */
static void spread_span(void *arg, int64_t b, int64_t e)
{
    const turn_job *j = arg;
    const iter *it = j->it;
    int64_t times = it->size[0], n = it->size[1];
    while (b < e) {
        int64_t rest = b / n, at = b % n, m = MIN(n - at, e - b);
        char *d = it->data[0] + at * times * (int64_t)j->es;
        const char *s = it->data[1] + at * (int64_t)j->es;
        for (int k = 2; k < it->ndim; k++) {
            d += rest % it->size[k] * it->stride[0][k];
            s += rest % it->size[k] * it->stride[1][k];
            rest /= it->size[k];
        }
        moves()->spread(m, times, d, s, j->es);
        b += m;
    }
}
static bool spread(const iter *it, size_t es)
{
    turn_job j = { it, es, 0, 0 };
    if (it->ndim < 2 || it->size[0] > 32 || it->stride[0][0] != (int64_t)es || it->stride[1][0] != 0 ||
        it->stride[0][1] != (int64_t)es * it->size[0] || it->stride[1][1] != (int64_t)es || it->size[1] < 8)
        return false;
    pool_for(it->numel / it->size[0], 16384, spread_span, &j);
    return true;
}

/* One of the two is on a device. Equal bytes are moved as they are; the rest is work for the device. */
static bool copy_across(tp_tensor *dst, const tp_tensor *src, tp_err *err)
{
    tp_val arg[3] = { vT(dst), vT((tp_tensor *)src), vB(false) }, out[OP_MAX_RETURNS] = { 0 };
    if (dst->dt == src->dt && tensor_same_size(dst, src) && tensor_is_contiguous(dst) &&
        tensor_is_contiguous(src))
        return device_copy(tensor_device(dst), tensor_data(dst), tensor_device(src), tensor_data(src),
                           dst->numel * (int64_t)dtype_size((dtype)dst->dt), err);
    bool ok = ops_call(op_ctx_cur(), OP_copy_, OPV_fn, arg, out, err);
    val_clear(&out[0]);
    return ok;
}

bool tensor_copy(tp_tensor *dst, const tp_tensor *src, tp_err *err)
{
    if (!shape_fits(dst, src, err))
        return false;
    if (tensor_is_fake(dst) || tensor_is_fake(src))
        return true;
    if (TP_UNLIKELY((dst->storage->flags | src->storage->flags) & ST_device))
        return copy_across(dst, src, err);
    tp_tensor *op[2] = { dst, (tp_tensor *)src };
    iter it;
    iter_init(&it, 2, op);
    size_t es = dtype_size((dtype)dst->dt);
    if (dst->dt == src->dt) {
        if (!turn(&it, es) && !spread(&it, es))
            iter_run(&it, move, &es, 0);
    } else if (TP_UNLIKELY(!dtype_is_plain((dtype)dst->dt) || !dtype_is_plain((dtype)src->dt))) {
        dtype dt[2] = { (dtype)dst->dt, (dtype)src->dt };
        iter_run(&it, convert_special, dt, 0);
    } else {
        conv_job j = { conv_of((dtype)dst->dt, (dtype)src->dt), es, dtype_size((dtype)src->dt) };
        iter_run(&it, convert, &j, 0);
    }
    return true;
}

tp_tensor *tensor_cast(tp_tensor *t, dtype dt, tp_err *err)
{
    if (t->dt == dt)
        return tensor_ref(t);
    symint stride[TP_MAX_DIMS];
    shape_pointwise_strides(t->ndim, t->size, 1, &t, stride);
    tp_tensor *r = tensor_is_fake(t)
                       ? tensor_new_fake(dt, t->ndim, t->size, stride, tensor_device(t))
                       : tensor_new_strided(dt, t->ndim, t->size, stride, tensor_device(t), err);
    if (r && !tensor_copy(r, t, err)) {
        tensor_unref(r);
        r = NULL;
    }
    return r;
}

tp_tensor *tensor_contiguous(tp_tensor *t, tp_err *err)
{
    if (tensor_is_contiguous(t))
        return tensor_ref(t);
    tp_tensor *r = tensor_new_strided((dtype)t->dt, t->ndim, t->size, NULL, tensor_device(t), err);
    if (r && !tensor_copy(r, t, err)) {
        tensor_unref(r);
        r = NULL;
    }
    return r;
}

/* ---- rows ---- */
bool shape_self0(op_call *c) { return out_self(c, 0) != NULL; }
bool shape_copy_(op_call *c)
{
    const tp_tensor *to = arg_t(c, 0), *from = arg_t(c, 1);
    bool itself = to->storage == from->storage && to->offset == from->offset && to->ndim == from->ndim &&
                  !memcmp(to->size, from->size, sizeof(symint) * to->ndim) &&
                  !memcmp(to->stride, from->stride, sizeof(symint) * to->ndim);
    if (!itself && tensor_overlaps_itself(to))
        return ops_overlap_err(true, c->err);
    return shape_fits(arg_t(c, 0), arg_t(c, 1), c->err) && shape_self0(c);
}

static bool like_in_format(op_call *c, tp_tensor *t, dtype dt, memfmt f)
{
    if (f == MF_preserve) {
        op_out *o = out_new(c, dt, t->ndim, t->size);
        if (tensor_is_dense(t))
            memcpy(o->stride, t->stride, sizeof(symint) * t->ndim);
        else
            shape_pointwise_strides(t->ndim, t->size, 1, &t, o->stride);
        return true;
    }
    op_out *o = out_new(c, dt, t->ndim, t->size);
    return shape_memfmt_strides(f, t->ndim, t->size, o->stride, c->err);
}

bool shape_clone(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    return like_in_format(c, t, (dtype)t->dt, (memfmt)arg_i(c, 1, MF_preserve));
}

bool shape_to_copy(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    return like_in_format(c, t, arg_dt(c, 1, (dtype)t->dt), (memfmt)arg_i(c, 6, MF_preserve));
}

bool eager_clone(op_call *c) { return tensor_copy(c->res[0], arg_t(c, 0), c->err); }

bool eager_copy(op_call *c)
{
    tp_tensor *dst = arg_t(c, 0), *src = arg_t(c, 1);
    if (dst->storage == src->storage &&
        dst != src) { /* views of one storage may overlap: go through a copy */
        tp_tensor *tmp = tensor_new_strided((dtype)src->dt, src->ndim, src->size, NULL, tensor_device(src),
                                            c->err);
        bool ok = tmp && tensor_copy(tmp, src, c->err) && tensor_copy(dst, tmp, c->err);
        tensor_unref(tmp);
        return ok;
    }
    return tensor_copy(dst, src, c->err);
}
