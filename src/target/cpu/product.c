/* product.c - products and convolutions of programs: tiles of ours, or what the eager kernels use. */
#include "target/cpu/cpu.h"
#include "base/pool.h"
#include "target/x64/provide.h"
#include "ops/gemm.h"

static mat mat_at(const tp_tensor *t, int64_t i)
{
    int64_t skip = t->ndim == 3 ? i * t->stride[0] : 0;
    return (mat){ (char *)tensor_host(t) + skip * (int64_t)dtype_size((dtype)t->dt), t->stride[t->ndim - 2],
                  t->stride[t->ndim - 1] };
}

/* Every row of o becomes the given one. */
static void fill_rows(tp_tensor *o, const tp_tensor *row)
{
    int64_t m = o->size[0], n = o->size[1], es = (int64_t)dtype_size((dtype)o->dt);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            memcpy((char *)tensor_host(o) + (i * o->stride[0] + j * o->stride[1]) * es,
                   (const char *)tensor_host(row) + j * row->stride[0] * es, (size_t)es);
}

static void all_rows(void *arg, int64_t lo, int64_t hi)
{
    const gemm_epilogue *e = arg;
    e->fn(e->bufs, e->ints, e->flts, lo, hi);
}

/* The kernel that follows as something that tiles call on their rows; NULL: it cannot be called so. */
static const gemm_epilogue *on_rows(const target_follow *f, gemm_epilogue *e)
{
    if (!f->code || !f->code->fn)
        return NULL;
    *e = (gemm_epilogue){
        .fn = f->code->fn, .bufs = f->args.bufs, .ints = f->args.ints, .flts = f->args.flts
    };
    return e;
}

/* Behind a product that did not run it on its rows. */
static bool follow(const target_follow *f, const gemm_epilogue *e, int64_t rows, int64_t each, tp_err *err)
{
    if (e)
        pool_for(rows, MAX(1, 16384 / MAX(each, 1)), all_rows, (void *)(uintptr_t)e);
    return e || !f->code || cpu_launch(f->code, &f->args, err);
}

bool cpu_product(const target_product *p, tp_err *err)
{
    tp_tensor *o = p->o;
    const tp_tensor *row = p->row, *a = p->a, *b = p->b;
    gemm_epilogue room;
    const gemm_epilogue *e = on_rows(&p->then, &room);
    int d = o->ndim - 2;
    dtype dt = (dtype)a->dt, to = (dtype)o->dt;
    int64_t m = o->size[d], n = o->size[d + 1], k = a->size[d + 1], batch = d ? o->size[0] : 1;
    if (a->ndim != o->ndim || b->ndim != o->ndim || b->size[d] != k || a->size[d] != m || b->size[d + 1] != n)
        return err_set(err, ERR_internal, "the operands of a product changed their sizes");
    if (!o->numel)
        return e || follow(&p->then, NULL, 0, 0, err);
    bool plain_row = !row || row->stride[0] == 1 || n == 1;
    if (plain_row && gen_product(dt, to, m, n, k, mat_at(a, 0), mat_at(b, 0), p->add, mat_at(o, 0), batch,
                                 d ? a->stride[0] : 0, d ? b->stride[0] : 0, d ? o->stride[0] : 0,
                                 row ? tensor_host(row) : NULL, p->form, e))
        return e || follow(&p->then, NULL, 0, 0, err);
    if (row)
        fill_rows(o, row);
    for (int64_t i = 0; i < batch; i++)
        (dt == to ? gemm : gemm_wide)(dt, m, n, k, 1, mat_at(a, i), mat_at(b, i), row || p->add ? 1 : 0,
                                      mat_at(o, i));
    return follow(&p->then, e, batch * m, n, err);
}

static bool convolve(const target_convolution *p, tp_err *err)
{
    tp_tensor *y = p->y;
    const tp_tensor *all[] = { y, p->x, p->w, p->bias };
    gemm_epilogue room;
    const gemm_epilogue *e = on_rows(&p->then, &room);
    for (size_t i = 0; i < COUNT(all); i++)
        if (all[i] && (!tensor_is_contiguous(all[i]) || all[i]->dt != y->dt))
            return err_set(err, ERR_internal, "the operands of a convolution changed their layout");
    conv_geom g = p->g;
    g.form = p->form;
    const void *add = p->bias ? tensor_host(p->bias) : NULL;
    if (!y->numel ||
        gen_convolution((dtype)y->dt, &g, tensor_host(p->x), tensor_host(p->w), add, tensor_host(y), e))
        return e || follow(&p->then, NULL, 0, 0, err);
    conv_forward((dtype)y->dt, &g, tensor_host(p->x), tensor_host(p->w), add, tensor_host(y));
    int64_t planes = y->size[0] * y->size[1];
    return follow(&p->then, e, planes, y->numel / planes, err);
}

target_result cpu_convolve(const target_convolution *p, tp_err *err)
{
    return p->kind != CONV_forward ? TARGET_declined : convolve(p, err) ? TARGET_done : TARGET_failed;
}
