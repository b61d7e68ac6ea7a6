/* product.c - see product.h. */
#include "target/cpu/product.h"
#include "base/pool.h"
#include "target/x64/provide.h"
#include "ops/gemm.h"

static mat mat_at(const tp_tensor *t, int64_t i)
{
    int64_t skip = t->ndim == 3 ? i * t->stride[0] : 0;
    return (mat){ (char *)tensor_data(t) + skip * (int64_t)dtype_size((dtype)t->dt), t->stride[t->ndim - 2],
                  t->stride[t->ndim - 1] };
}

/* Every row of o becomes the given one. */
static void fill_rows(tp_tensor *o, const tp_tensor *row)
{
    int64_t m = o->size[0], n = o->size[1], es = (int64_t)dtype_size((dtype)o->dt);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            memcpy((char *)tensor_data(o) + (i * o->stride[0] + j * o->stride[1]) * es,
                   (const char *)tensor_data(row) + j * row->stride[0] * es, (size_t)es);
}

static void all_rows(void *arg, int64_t lo, int64_t hi)
{
    const gemm_epilogue *e = arg;
    e->fn(e->bufs, e->ints, e->flts, lo, hi);
}

bool product_run(tp_tensor *o, const tp_tensor *row, const tp_tensor *a, const tp_tensor *b, bool add,
                 int form, const gemm_epilogue *e, tp_err *err)
{
    int d = o->ndim - 2;
    dtype dt = (dtype)o->dt;
    int64_t m = o->size[d], n = o->size[d + 1], k = a->size[d + 1], batch = d ? o->size[0] : 1;
    if (a->ndim != o->ndim || b->ndim != o->ndim || b->size[d] != k || a->size[d] != m || b->size[d + 1] != n)
        return err_set(err, ERR_internal, "the operands of a product changed their sizes");
    if (!o->numel)
        return true;
    bool plain_row = !row || row->stride[0] == 1 || n == 1;
    if (plain_row &&
        gen_product(dt, m, n, k, mat_at(a, 0), mat_at(b, 0), add, mat_at(o, 0), batch, d ? a->stride[0] : 0,
                    d ? b->stride[0] : 0, d ? o->stride[0] : 0, row ? tensor_data(row) : NULL, form, e))
        return true;
    if (row)
        fill_rows(o, row);
    for (int64_t i = 0; i < batch; i++)
        gemm(dt, m, n, k, 1, mat_at(a, i), mat_at(b, i), row || add ? 1 : 0, mat_at(o, i));
    if (e)
        pool_for(batch * m, MAX(1, 16384 / MAX(n, 1)), all_rows, (void *)(uintptr_t)e);
    return true;
}

bool convolution_run(tp_tensor *y, const tp_tensor *x, const tp_tensor *w, const tp_tensor *bias,
                     const tp_val *arg, int form, const gemm_epilogue *e, tp_err *err)
{
    const tp_tensor *all[] = { y, x, w, bias };
    for (size_t i = 0; i < COUNT(all); i++)
        if (all[i] && (!tensor_is_contiguous(all[i]) || all[i]->dt != y->dt))
            return err_set(err, ERR_internal, "the operands of a convolution changed their layout");
    conv_geom g = conv_geom_of(x, w, y, arg);
    g.form = form;
    const void *add = bias ? tensor_data(bias) : NULL;
    if (!y->numel ||
        gen_convolution((dtype)y->dt, &g, tensor_data(x), tensor_data(w), add, tensor_data(y), e))
        return true;
    conv_forward((dtype)y->dt, &g, tensor_data(x), tensor_data(w), add, tensor_data(y));
    int64_t planes = y->size[0] * y->size[1];
    if (e)
        pool_for(planes, MAX(1, 16384 / MAX(1, y->numel / planes)), all_rows, (void *)(uintptr_t)e);
    return true;
}
