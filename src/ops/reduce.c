/* reduce.c - reductions over dimensions. */
#include "ops/op.h"
#include "ops/iter.h"

/* Output of a reduction over the dimensions in mask. */
static bool reduced(op_call *c, tp_tensor *t, uint32_t mask, bool keep, dtype dt)
{
    symint size[TP_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < t->ndim; d++) {
        if (!(mask >> d & 1))
            size[n++] = t->size[d];
        else if (keep)
            size[n++] = 1;
    }
    return out_new(c, dt, n, size) != NULL;
}

static dtype sum_type(dtype in) { return dtype_is_float(in) ? in : DT_i64; }

bool shape_sum_all(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    return reduced(c, t, ~0u, false, arg_dt(c, 1, sum_type((dtype)t->dt)));
}

bool shape_sum_dim(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    uint32_t mask;
    return arg_dims(c, 1, t->ndim, true, &mask) &&
           reduced(c, t, mask, arg_b(c, 2, false), arg_dt(c, 3, sum_type((dtype)t->dt)));
}

/* acc (f64 or i64, shape of the input with reduced dimensions of stride 0) += in */
static void add_f(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    dtype dt = *(dtype *)arg;
    for (int64_t i = 0; i < n; i++)
        *(double *)(p[0] + i * st[0]) += elem_get_f(dt, p[1] + i * st[1]);
}
static void add_i(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    dtype dt = *(dtype *)arg;
    for (int64_t i = 0; i < n; i++)
        *(int64_t *)(p[0] + i * st[0]) += elem_get_i(dt, p[1] + i * st[1]);
}

bool eager_sum(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *out = c->res[0];
    bool all = c->op == OP_sum, ok = false;
    uint32_t mask = ~0u;
    if (!all && !arg_dims(c, 1, t->ndim, true, &mask))
        return false;
    bool flt = dtype_is_float((dtype)out->dt);
    tp_tensor *acc = tensor_new(flt ? DT_f64 : DT_i64, out->ndim, out->size, c->err), *wide = NULL;
    if (!acc)
        return false;
    if (acc->numel)
        memset(tensor_data(acc), 0, (size_t)acc->numel * 8);
    symint stride[TP_MAX_DIMS];
    bool keep = !all && arg_b(c, 2, false);
    for (int d = 0, k = 0; d < t->ndim; d++) {
        bool red = mask >> d & 1;
        stride[d] = red ? 0 : acc->stride[k];
        k += !red || keep;
    }
    wide = tensor_view(acc, t->ndim, t->size, stride, 0);
    iter it;
    iter_init(&it, 2, (tp_tensor *[]){ wide, t });
    dtype dt = (dtype)t->dt;
    iter_run(&it, flt ? add_f : add_i, &dt, INT64_MAX);
    ok = tensor_copy(out, acc, c->err);
    tensor_unref(wide);
    tensor_unref(acc);
    return ok;
}
