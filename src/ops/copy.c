/* copy.c - copying with conversion: copy_, clone, to, contiguous, fill. */
#include "ops/op.h"
#include "ops/iter.h"

/* Every pair of element types, each a plain loop. Float to integer truncates. */
enum { DT_b8 = DT_bool }; /* `bool` is a macro and would expand */
#define LD_f32(p)     (*(const float *)(p))
#define LD_f64(p)     (*(const double *)(p))
#define LD_f16(p)     f16_to_f32(*(const uint16_t *)(p))
#define LD_bf16(p)    bf16_to_f32(*(const uint16_t *)(p))
#define LD_i64(p)     (*(const int64_t *)(p))
#define LD_i32(p)     (*(const int32_t *)(p))
#define LD_i16(p)     (*(const int16_t *)(p))
#define LD_i8(p)      (*(const int8_t *)(p))
#define LD_u8(p)      (*(const uint8_t *)(p))
#define LD_b8(p)      (*(const uint8_t *)(p) != 0)
#define TRUNC(T, v)   ((T)(int64_t)(v))
#define ST_f32(p, v)  (*(float *)(p) = (float)(v))
#define ST_f64(p, v)  (*(double *)(p) = (double)(v))
#define ST_f16(p, v)  (*(uint16_t *)(p) = f32_to_f16((float)(v)))
#define ST_bf16(p, v) (*(uint16_t *)(p) = f32_to_bf16((float)(v)))
#define ST_i64(p, v)  (*(int64_t *)(p) = TRUNC(int64_t, v))
#define ST_i32(p, v)  (*(int32_t *)(p) = TRUNC(int32_t, v))
#define ST_i16(p, v)  (*(int16_t *)(p) = TRUNC(int16_t, v))
#define ST_i8(p, v)   (*(int8_t *)(p) = TRUNC(int8_t, v))
#define ST_u8(p, v)   (*(uint8_t *)(p) = TRUNC(uint8_t, v))
#define ST_b8(p, v)   (*(uint8_t *)(p) = (v) != 0)

#define CONV(d, s)                                                                  \
    __attribute__((no_sanitize("float-cast-overflow"))) static void conv_##d##_##s( \
        void *arg, int64_t n, char *const *p, const int64_t *st)                    \
    {                                                                               \
        for (int64_t i = 0; i < n; i++)                                             \
            ST_##d(p[0] + i * st[0], LD_##s(p[1] + i * st[1]));                     \
    }
#define FOR_TYPES(X, d) \
    X(d, b8) X(d, u8) X(d, i8) X(d, i16) X(d, i32) X(d, i64) X(d, f16) X(d, bf16) X(d, f32) X(d, f64)
#define ROW(d, s) [DT_##s] = conv_##d##_##s,
#define TABLE(d)  [DT_##d] = { FOR_TYPES(ROW, d) },
FOR_TYPES(CONV, b8)
FOR_TYPES(CONV, u8) FOR_TYPES(CONV, i8) FOR_TYPES(CONV, i16) FOR_TYPES(CONV, i32) FOR_TYPES(CONV, i64)
    FOR_TYPES(CONV, f16) FOR_TYPES(CONV, bf16) FOR_TYPES(CONV, f32) FOR_TYPES(CONV, f64)

        static iter_fn *const conv[DT_COUNT][DT_COUNT] = { TABLE(b8) TABLE(u8) TABLE(i8) TABLE(i16) TABLE(i32)
                                                               TABLE(i64) TABLE(f16) TABLE(bf16) TABLE(f32)
                                                                   TABLE(f64) };

/* Same type: whole runs with memcpy, otherwise element by element. */
static void move(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    size_t es = *(const size_t *)arg;
    if (st[0] == (int64_t)es && st[1] == (int64_t)es) {
        memmove(p[0], p[1], (size_t)n * es);
        return;
    }
#define MOVE(T)                     \
    for (int64_t i = 0; i < n; i++) \
    *(T *)(p[0] + i * st[0]) = *(const T *)(p[1] + i * st[1])
    switch (es) {
    case 1: MOVE(uint8_t); break;
    case 2: MOVE(uint16_t); break;
    case 4: MOVE(uint32_t); break;
    default: MOVE(uint64_t);
    }
}

bool tensor_copy(tp_tensor *dst, const tp_tensor *src, tp_err *err)
{
    symint size[TP_MAX_DIMS];
    int nd = dst->ndim;
    memcpy(size, dst->size, sizeof(symint) * (size_t)nd);
    if (!shape_broadcast(&nd, size, src->ndim, src->size, err))
        return false;
    if (nd != dst->ndim || !tensor_same_size(dst, &(tp_tensor){ .ndim = (uint8_t)nd, .size = size })) {
        strbuf a = { 0 }, b = { 0 };
        shape_print(&a, dst->ndim, dst->size);
        shape_print(&b, nd, size);
        err_set(err, ERR_runtime, "output with shape %s doesn't match the broadcast shape %s", strbuf_str(&a),
                strbuf_str(&b));
        strbuf_free(&a);
        strbuf_free(&b);
        return false;
    }
    if (tensor_is_fake(dst) || tensor_is_fake(src))
        return true;
    tp_tensor *op[2] = { dst, (tp_tensor *)src };
    iter it;
    iter_init(&it, 2, op);
    size_t es = dtype_size((dtype)dst->dt);
    iter_run(&it, dst->dt == src->dt ? move : conv[dst->dt][src->dt], &es, 0);
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
    tp_tensor *r = tensor_new((dtype)t->dt, t->ndim, t->size, err);
    if (r && !tensor_copy(r, t, err)) {
        tensor_unref(r);
        r = NULL;
    }
    return r;
}

/* ---- rows ---- */
bool shape_self0(op_call *c) { return out_self(c, 0) != NULL; }

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
    if (tensor_overlaps_itself(dst))
        return err_set(
            c->err, ERR_runtime,
            "unsupported operation: more than one element of the written-to tensor refers to a single "
            "memory location. Please clone() the tensor before performing the operation.");
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

static bool fill_with(tp_tensor *t, const tp_val *v, tp_err *err)
{
    tp_tensor *s = tensor_scalar((dtype)t->dt, val_as_f(v), val_as_i(v));
    bool ok = s && tensor_copy(t, s, err);
    tensor_unref(s);
    return ok;
}

bool eager_fill(op_call *c) { return fill_with(arg_t(c, 0), &c->arg[1], c->err); }
bool eager_full(op_call *c) { return fill_with(c->res[0], &c->arg[1], c->err); }
bool eager_zeros(op_call *c) { return fill_with(c->res[0], &vI(0), c->err); }
bool eager_ones(op_call *c) { return fill_with(c->res[0], &vI(1), c->err); }

bool shape_full(op_call *c)
{
    dtype dt = arg_dt(c, 2, val_number_dtype(&c->arg[1], c->cx->default_dtype));
    return out_new(c, dt, c->arg[0].n, c->arg[0].ints) != NULL;
}
bool shape_zeros(op_call *c)
{
    return out_new(c, arg_dt(c, 1, c->cx->default_dtype), c->arg[0].n, c->arg[0].ints) != NULL;
}
