/* fracpool.c - where fractional max pooling finds its maxima: windows of one size whose starts lie at pseudorandom
 * steps. */
#include "ops/decomp.h"
#include <math.h>

/* (self, kernel_size, output_size, random_samples N C nd in [0, 1)) */
bool shape_fractional_places(op_call *c)
{
    tp_tensor *x = arg_t(c, 0), *r = arg_t(c, 3);
    const tp_val *k = &c->arg[1], *o = &c->arg[2];
    int nd = o->n, lead = x->ndim - nd;
    symint size[TP_MAX_DIMS];
    size_text s;
    if ((nd != 2 && nd != 3) || k->n != nd)
        return err_set(c->err, ERR_runtime,
                       "fractional_max_pool: kernel_size and output_size must have %d elements",
                       nd == 3 ? 3 : 2);
    if (lead != 1 && lead != 2)
        return err_set(c->err, ERR_runtime,
                       "fractional_max_pool%dd(): Expected %dD or %dD tensor, but got: %s", nd, nd + 1,
                       nd + 2, sizes_str(&s, x->ndim, x->size));
    if (!dtype_is_float((dtype)x->dt))
        return err_set(c->err, ERR_notimpl, "\"fractional_max_pool%dd_out_frame\" not implemented for '%s'",
                       nd, dtype_rows[x->dt].gname);
    symint n = lead == 2 ? x->size[0] : 1;
    if (r->ndim != 3 || !sym_eq(r->size[0], n) || !sym_eq(r->size[1], x->size[lead - 1]) ||
        !sym_eq(r->size[2], nd))
        return err_set(c->err, ERR_runtime,
                       "Expect _random_samples to have one row of %d numbers for each plane", nd);
    memcpy(size, x->size, sizeof(symint) * (size_t)lead);
    for (int i = 0; i < nd; i++) {
        if (sym_lt(x->size[lead + i], sym_add(sym_add(o->ints[i], k->ints[i]), -1)))
            return err_set(c->err, ERR_runtime,
                           "fractional_max_pool%dd(): pool size %lld too large relative to input size", nd,
                           (long long)k->ints[i]);
        size[lead + i] = o->ints[i];
    }
    return out_new(c, DT_i64, x->ndim, size) != NULL;
}
static void starts(double sample, int64_t in, int64_t out, int64_t pool, int64_t *at)
{
    double step = out > 1 ? (double)(in - pool) / (double)(out - 1) : 0;
    for (int64_t i = 0; i < out - 1; i++)
        at[i] = (int64_t)(((double)i + sample) * step) - (int64_t)(sample * step);
    if (out > 0)
        at[out - 1] = in - pool;
}
bool eager_fractional_places(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *x = scratch_in(&s, arg_t(c, 0), DT_f64), *r = scratch_in(&s, arg_t(c, 3), DT_f64),
              *o = c->res[0];
    if (!x || !r)
        return scratch_end(&s, false);
    int nd = c->arg[2].n, lead = x->ndim - nd;
    int64_t in[3] = { 1, 1, 1 }, out[3] = { 1, 1, 1 }, k[3] = { 1, 1, 1 };
    for (int i = 0; i < nd; i++) {
        in[3 - nd + i] = x->size[lead + i];
        out[3 - nd + i] = o->size[lead + i];
        k[3 - nd + i] = c->arg[1].ints[i];
    }
    int64_t vol = in[0] * in[1] * in[2], ovol = out[0] * out[1] * out[2], planes = vol ? x->numel / vol : 0;
    int64_t *at = mem_zalloc(sizeof(int64_t) * (size_t)(out[0] + out[1] + out[2] + 1));
    int64_t *az = at, *ay = az + out[0], *ax = ay + out[1];
    for (int64_t p = 0; p < planes; p++) {
        const double *v = (const double *)tensor_host(x) + p * vol,
                     *u = (const double *)tensor_host(r) + p * nd;
        int64_t *to = (int64_t *)tensor_host(o) + p * ovol;
        if (nd == 3) {
            starts(u[0], in[0], out[0], k[0], az);
            starts(u[1], in[1], out[1], k[1], ay);
            starts(u[2], in[2], out[2], k[2], ax);
        } else {
            starts(u[1], in[1], out[1], k[1], ay);
            starts(u[0], in[2], out[2], k[2], ax);
        }
        for (int64_t q = 0; q < ovol; q++) {
            int64_t z = az[q / (out[1] * out[2])], y = ay[q / out[2] % out[1]], w = ax[q % out[2]], best = -1;
            for (int64_t a = z; a < z + k[0]; a++)
                for (int64_t b = y; b < y + k[1]; b++)
                    for (int64_t d = w; d < w + k[2]; d++) {
                        int64_t i = (a * in[1] + b) * in[2] + d;
                        if (best < 0 || v[i] > v[best] || v[i] != v[i])
                            best = i;
                    }
            to[q] = best;
        }
    }
    free(at);
    return scratch_end(&s, true);
}
