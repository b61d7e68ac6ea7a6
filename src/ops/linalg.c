/* linalg.c - matrix products: shape rules and kernels over gemm. */
#include "ops/decomp.h"
#include "ops/gemm.h"
#include "ops/provider.h"
#include "base/pool.h"

/* The C++ names that PyTorch's messages use. */
static const char *cname(const tp_tensor *t)
{
    static const char *const names[DT_COUNT] = { [DT_bool] = "bool",
                                                 [DT_u8] = "unsigned char",
                                                 [DT_i8] = "signed char",
                                                 [DT_i16] = "short",
                                                 [DT_i32] = "int",
                                                 [DT_i64] = "long",
                                                 [DT_f16] = "c10::Half",
                                                 [DT_bf16] = "c10::BFloat16",
                                                 [DT_f32] = "float",
                                                 [DT_f64] = "double",
                                                 [DT_c64] = "c10::complex<float>",
                                                 [DT_c128] = "c10::complex<double>" };
    return names[t->dt];
}

static bool same_dtype(op_call *c, const tp_tensor *a, const tp_tensor *b)
{
    return a->dt == b->dt ||
           err_set(c->err, ERR_runtime, "expected m1 and m2 to have the same dtype, but got: %s != %s",
                   cname(a), cname(b));
}

static bool no_bool(op_call *c, const tp_tensor *a)
{
    return a->dt != DT_bool || tensor_device(a).kind == DEV_meta ||
           err_set(c->err, ERR_notimpl, "\"%s\" not implemented for 'Bool'",
                   c->row->name[0] == 'b' ? "baddbmm" : "addmm_impl_cpu_");
}

/* ---- shapes ---- */
static bool can_multiply(op_call *c, const tp_tensor *a, const tp_tensor *b)
{
    size_text t[4];
    if (sym_eq(a->size[1], b->size[0]))
        return true;
    return err_set(c->err, ERR_runtime, "mat1 and mat2 shapes cannot be multiplied (%sx%s and %sx%s)",
                   size_str(&t[0], a->size[0]), size_str(&t[1], a->size[1]), size_str(&t[2], b->size[0]),
                   size_str(&t[3], b->size[1]));
}

bool shape_mm(op_call *c)
{
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 1);
    if (a->ndim != 2)
        return err_set(c->err, ERR_runtime, "self must be a matrix");
    if (b->ndim != 2)
        return err_set(c->err, ERR_runtime, "mat2 must be a matrix");
    return can_multiply(c, a, b) && same_dtype(c, a, b) && no_bool(c, a) &&
           out_new(c, (dtype)a->dt, 2, (symint[]){ a->size[0], b->size[1] });
}

/* t must expand to size. */
static bool expands(op_call *c, const tp_tensor *t, int n, const symint *size)
{
    size_text a, b, d, e;
    int off = n - t->ndim;
    if (off < 0)
        return err_set(
            c->err, ERR_runtime,
            "expand(%s, size=%s): the number of sizes provided (%d) must be greater or equal to the "
            "number of dimensions in the tensor (%d)",
            sizes_str(&a, t->ndim, t->size), sizes_str(&b, n, size), n, t->ndim);
    for (int i = 0; i < t->ndim; i++)
        if (!sym_eq(t->size[i], size[i + off]) && !sym_eq(t->size[i], 1))
            return err_set(
                c->err, ERR_runtime,
                "The expanded size of the tensor (%s) must match the existing size (%s) at non-singleton "
                "dimension %d.  Target sizes: %s.  Tensor sizes: %s",
                size_str(&a, size[i + off]), size_str(&b, t->size[i]), i + off, sizes_str(&d, n, size),
                sizes_str(&e, t->ndim, t->size));
    return true;
}

static bool same_as_self(op_call *c, const tp_tensor *self, const tp_tensor *a)
{
    return self->dt == a->dt ||
           err_set(c->err, ERR_runtime, "self and mat2 must have the same dtype, but got %s and %s",
                   dtype_rows[self->dt].gname, dtype_rows[a->dt].gname);
}

bool shape_addmm(op_call *c)
{
    tp_tensor *s = arg_t(c, 0), *a = arg_t(c, 1), *b = arg_t(c, 2);
    if (a->ndim != 2)
        return err_set(c->err, ERR_runtime, "mat1 must be a matrix, got %d-D tensor", a->ndim);
    if (b->ndim != 2)
        return err_set(c->err, ERR_runtime, "mat2 must be a matrix, got %d-D tensor", b->ndim);
    symint size[2] = { a->size[0], b->size[1] };
    return can_multiply(c, a, b) && same_dtype(c, a, b) && same_as_self(c, s, b) && expands(c, s, 2, size) &&
           no_bool(c, a) && out_new(c, (dtype)a->dt, 2, size);
}

static bool batch_shape(op_call *c, const tp_tensor *a, const tp_tensor *b, symint *size)
{
    size_text t, u, v;
    if (a->ndim != 3)
        return err_set(c->err, ERR_runtime, "batch1 must be a 3D tensor");
    if (b->ndim != 3)
        return err_set(c->err, ERR_runtime, "batch2 must be a 3D tensor");
    if (!sym_eq(a->size[0], b->size[0]) || !sym_eq(a->size[2], b->size[1]))
        return err_set(
            c->err, ERR_runtime,
            "Expected size for first two dimensions of batch2 tensor to be: [%s, %s] but got: [%s, %s].",
            size_str(&t, a->size[0]), size_str(&u, a->size[2]), size_str(&v, b->size[0]),
            size_str(&(size_text){ 0 }, b->size[1]));
    size[0] = a->size[0];
    size[1] = a->size[1];
    size[2] = b->size[2];
    return true;
}

static bool same_scalar(op_call *c, const tp_tensor *a, const tp_tensor *b)
{
    return a->dt == b->dt || err_set(c->err, ERR_runtime, "expected scalar type %s but found %s",
                                     dtype_rows[a->dt].gname, dtype_rows[b->dt].gname);
}

bool shape_bmm(op_call *c)
{
    symint size[3];
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 1);
    return batch_shape(c, a, b, size) && same_scalar(c, a, b) && no_bool(c, a) &&
           out_new(c, (dtype)a->dt, 3, size);
}

bool shape_bmm_wide(op_call *c) /* that of narrow floats is kept as it was summed, as float */
{
    symint size[3];
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 1);
    return batch_shape(c, a, b, size) && same_scalar(c, a, b) && no_bool(c, a) &&
           out_new(c, a->dt == DT_f16 || a->dt == DT_bf16 ? DT_f32 : (dtype)a->dt, 3, size);
}

bool shape_baddbmm(op_call *c)
{
    symint size[3];
    tp_tensor *s = arg_t(c, 0), *a = arg_t(c, 1), *b = arg_t(c, 2);
    int d;
    for (int i = 0; i < 3; i++) /* self is expanded to these three first */
        if (!dim_wrap(i, i < 2 ? a->ndim : b->ndim, &d, c->err))
            return false;
    if (!batch_shape(c, a, b, size))
        return false;
    if (s->dt != a->dt)
        return err_set(c->err, ERR_runtime,
                       "Input dtypes must be the same, got: input %s, batch1: %s, batch2: %s",
                       dtype_rows[s->dt].gname, dtype_rows[a->dt].gname, dtype_rows[b->dt].gname);
    return same_scalar(c, a, b) && expands(c, s, 3, size) && no_bool(c, a) &&
           out_new(c, (dtype)a->dt, 3, size);
}

static bool vector_shape(op_call *c, const tp_tensor *m, const tp_tensor *v)
{
    size_text a, b, d;
    if (m->ndim != 2 || v->ndim != 1)
        return err_set(c->err, ERR_runtime, "vector + matrix @ vector expected, got 1, %d, %d", m->ndim,
                       v->ndim);
    if (!sym_eq(m->size[1], v->size[0]))
        return err_set(c->err, ERR_runtime, "size mismatch, got input (%s), mat (%sx%s), vec (%s)",
                       size_str(&a, m->size[0]), a.s, size_str(&b, m->size[1]), size_str(&d, v->size[0]));
    return true;
}

bool shape_mv(op_call *c)
{
    tp_tensor *m = arg_t(c, 0), *v = arg_t(c, 1);
    return vector_shape(c, m, v) && same_scalar(c, m, v) && no_bool(c, m) &&
           out_new(c, (dtype)m->dt, 1, m->size);
}

bool shape_addmv(op_call *c)
{
    tp_tensor *s = arg_t(c, 0), *m = arg_t(c, 1), *v = arg_t(c, 2);
    return vector_shape(c, m, v) && same_scalar(c, m, v) && same_scalar(c, s, m) &&
           expands(c, s, 1, m->size) && no_bool(c, m) && out_new(c, (dtype)m->dt, 1, m->size);
}

bool shape_dot(op_call *c)
{
    tp_tensor *a = arg_t(c, 0), *b = arg_t(c, 1);
    size_text x, y;
    if (a->ndim != 1 || b->ndim != 1)
        return err_set(c->err, ERR_runtime, "1D tensors expected, but got %dD and %dD tensors", a->ndim,
                       b->ndim);
    if (a->dt != b->dt)
        return err_set(c->err, ERR_runtime,
                       "dot : expected both vectors to have same dtype, but found %s and %s",
                       dtype_rows[a->dt].gname, dtype_rows[b->dt].gname);
    if (!sym_eq(a->numel, b->numel))
        return err_set(
            c->err, ERR_runtime,
            "inconsistent tensor size, expected tensor [%s] and src [%s] to have the same number of "
            "elements, but got %s and %s elements respectively",
            size_str(&x, a->numel), size_str(&y, b->numel), x.s, y.s);
    return no_bool(c, a) && out_new(c, (dtype)a->dt, 0, NULL);
}

/* ---- kernels ---- */
static mat mat_of(const tp_tensor *t) /* the last two dimensions */
{
    return (mat){ tensor_host(t), t->stride[t->ndim - 2], t->stride[t->ndim - 1] };
}
static mat at_batch(mat x, const tp_tensor *t, int64_t i)
{
    x.p = (char *)x.p + i * t->stride[0] * (int64_t)dtype_size((dtype)t->dt);
    return x;
}

/* The type products run in: narrow floats in f32, the rest as they are. */
static dtype gemm_type(dtype dt) { return dt == DT_f16 || dt == DT_bf16 ? DT_f32 : dt; }
/* As stored, when it is already of the working type: gemm reads any strides. */
static tp_tensor *operand(scratch *s, tp_tensor *t, dtype w) { return t->dt == w ? t : scratch_in(s, t, w); }

typedef struct batch_job {
    tp_tensor *a, *b, *o;
    double alpha, beta;
} batch_job;
static void batches(void *arg, int64_t b, int64_t e)
{
    batch_job *j = arg;
    for (int64_t i = b; i < e; i++)
        gemm_one((dtype)j->o->dt, j->a->size[1], j->b->size[2], j->a->size[2], j->alpha,
                 at_batch(mat_of(j->a), j->a, i), at_batch(mat_of(j->b), j->b, i), j->beta,
                 at_batch(mat_of(j->o), j->o, i));
}

/* A linear layer: self is one row for all rows. False: not such a product, or declined. */
static bool row_added(const tp_tensor *self, dtype w, tp_tensor *a, tp_tensor *b, tp_tensor *o, double alpha,
                      double beta)
{
    const ops_provider *own = ops_provider_now();
    if (!own || !self || o->ndim != 2 || alpha != 1 || beta != 1 || self->dt != w || o->stride[1] != 1)
        return false;
    int last = self->ndim - 1;
    if (last < 0 || last > 1 || self->size[last] != o->size[1] ||
        (self->stride[last] != 1 && o->size[1] > 1) ||
        (last == 1 && self->size[0] != 1 && self->stride[0] != 0))
        return false;
    return own->gemm((dtype)a->dt, w, a->size[0], b->size[1], a->size[1], 1, mat_of(a), mat_of(b), 0,
                     mat_of(o), 1, 0, 0, 0, tensor_host(self));
}

/* f16 and bf16, also with a result of f32, where somebody has tiles for them; *done: the result is there. */
static bool half_product(op_call *c, tp_tensor *self, tp_tensor *a, tp_tensor *b, double alpha, double beta,
                         bool *done)
{
    const ops_provider *own = ops_provider_now();
    tp_tensor *o = c->res[0];
    dtype dt = (dtype)o->dt;
    int d = o->ndim - 2;
    *done = false;
    if (!own || gemm_type((dtype)a->dt) == a->dt || (a->dt != o->dt && dt != DT_f32) || a->dt != b->dt)
        return true;
    if ((*done = row_added(self, dt, a, b, o, alpha, beta)))
        return true;
    if (self && beta != 0 && !tensor_copy(o, self, c->err))
        return false;
    *done = own->gemm((dtype)a->dt, dt, a->size[d], b->size[d + 1], a->size[d + 1], alpha, mat_of(a),
                      mat_of(b), self ? beta : 0, mat_of(o), d ? o->size[0] : 1, d ? a->stride[0] : 0,
                      d ? b->stride[0] : 0, d ? o->stride[0] : 0, NULL);
    return true;
}

/* res = alpha a b + beta self; two or three dimensions; self NULL means beta 0. */
static bool product(op_call *c, tp_tensor *self, tp_tensor *a, tp_tensor *b, double alpha, double beta)
{
    scratch s = { .err = c->err };
    dtype w = gemm_type((dtype)c->res[0]->dt);
    bool done;
    if (!half_product(c, self, a, b, alpha, beta, &done) || done)
        return done;
    tp_tensor *o = scratch_out(&s, c->res[0], w);
    a = operand(&s, a, w);
    b = operand(&s, b, w);
    if (!a || !b || !o)
        return scratch_end(&s, false);
    if (row_added(self, w, a, b, o, alpha, beta))
        return scratch_end(&s, true);
    if (self && beta != 0 && !tensor_copy(o, self, c->err))
        return scratch_end(&s, false);
    if (!self)
        beta = 0;
    if (o->ndim == 2)
        gemm(w, a->size[0], b->size[1], a->size[1], alpha, mat_of(a), mat_of(b), beta, mat_of(o));
    else {
        int64_t n = o->size[0], each = o->numel ? o->size[1] * o->size[2] * MAX(a->size[2], 1) : 0;
        const ops_provider *own = ops_provider_now();
        if (own && own->gemm(w, w, a->size[1], b->size[2], a->size[2], alpha, mat_of(a), mat_of(b), beta,
                             mat_of(o), n, a->stride[0], b->stride[0], o->stride[0], NULL))
            return scratch_end(&s, true);
        if (n >= pool_threads() || each < 1 << 16) {
            batch_job j = { a, b, o, alpha, beta };
            pool_for(n, MAX(1, (1 << 18) / MAX(each, 1)), batches, &j);
        } else
            for (int64_t i = 0; i < n; i++)
                gemm(w, a->size[1], b->size[2], a->size[2], alpha, at_batch(mat_of(a), a, i),
                     at_batch(mat_of(b), b, i), beta, at_batch(mat_of(o), o, i));
    }
    return scratch_end(&s, true);
}

bool eager_mm(op_call *c) { return product(c, NULL, arg_t(c, 0), arg_t(c, 1), 1, 0); }
bool eager_bmm(op_call *c) { return eager_mm(c); }

bool eager_addmm(op_call *c)
{
    return product(c, arg_t(c, 0), arg_t(c, 1), arg_t(c, 2), val_as_f(&c->arg[4]), val_as_f(&c->arg[3]));
}

/* A vector as a one-column matrix. Owned. */
static tp_tensor *column(tp_tensor *v)
{
    return tensor_on(v->storage, (dtype)v->dt, 2, (symint[]){ v->size[0], 1 }, (symint[]){ v->stride[0], 1 },
                     v->offset);
}

static bool matvec(op_call *c, tp_tensor *self, tp_tensor *m, tp_tensor *v, double alpha, double beta)
{
    tp_tensor *res = c->res[0], *v2 = column(v), *o2 = column(res);
    tp_tensor *s2 = self ? tensor_on(self->storage, (dtype)self->dt, 2, (symint[]){ m->size[0], 1 },
                                     (symint[]){ self->ndim && self->size[0] != 1 ? self->stride[0] : 0, 0 },
                                     self->offset)
                         : NULL;
    c->res = &o2;
    bool ok = product(c, s2, m, v2, alpha, beta);
    tensor_unref(s2);
    tensor_unref(v2);
    tensor_unref(o2);
    return ok;
}
bool eager_mv(op_call *c)
{
    tp_tensor **keep = c->res;
    bool ok = matvec(c, NULL, arg_t(c, 0), arg_t(c, 1), 1, 0);
    c->res = keep;
    return ok;
}
bool eager_addmv(op_call *c)
{
    tp_tensor **keep = c->res;
    bool ok = matvec(c, arg_t(c, 0), arg_t(c, 1), arg_t(c, 2), val_as_f(&c->arg[4]), val_as_f(&c->arg[3]));
    c->res = keep;
    return ok;
}

bool eager_dot(op_call *c)
{
    scratch s = { .err = c->err };
    dtype w = gemm_type((dtype)c->res[0]->dt);
    tp_tensor *a = operand(&s, arg_t(c, 0), w), *b = operand(&s, arg_t(c, 1), w),
              *o = scratch_out(&s, c->res[0], w);
    if (!a || !b || !o)
        return scratch_end(&s, false);
    gemm_one(w, 1, 1, a->numel, 1, (mat){ tensor_host(a), 1, a->stride[0] },
             (mat){ tensor_host(b), b->stride[0], 1 }, 0, (mat){ tensor_host(o), 1, 1 });
    return scratch_end(&s, true);
}
