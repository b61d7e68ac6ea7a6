/* int8.c - linear layers with weights of eight bits: each row of the input is rounded to bytes by its own largest element, the
 * products are exact, and the result is scaled by the row and by the channel. */
#include "ops/decomp.h"
#include "ops/provider.h"
#include "base/pool.h"
#include <math.h>

bool shape_linear_int8(op_call *c)
{
    tp_tensor *x = arg_t(c, 0), *w = arg_t(c, 1), *s = arg_t(c, 2), *b = arg_t(c, 3);
    if (!dtype_is_float((dtype)x->dt) || x->dt == DT_f64 || w->dt != DT_i8 || s->dt != DT_f32)
        return err_set(c->err, ERR_runtime,
                       "linear_dynamic_int8: expected an input of float32, float16 or bfloat16, a weight of "
                       "int8 and a scale of float32");
    if (x->ndim < 1 || w->ndim != 2 || s->ndim != 1 || !sym_eq(x->size[x->ndim - 1], w->size[1]) ||
        !sym_eq(s->size[0], w->size[0]) ||
        (b && (b->ndim != 1 || b->dt != DT_f32 || !sym_eq(b->size[0], w->size[0]))))
        return err_set(c->err, ERR_runtime,
                       "linear_dynamic_int8: sizes of input, weight, scale and bias do not fit together");
    symint size[TP_MAX_DIMS];
    memcpy(size, x->size, sizeof *size * (size_t)x->ndim);
    size[x->ndim - 1] = w->size[0];
    return out_new(c, (dtype)x->dt, x->ndim, size);
}

float int8_row(const float *x, int64_t k, int8_t *q)
{
    float top = 0;
    for (int64_t i = 0; i < k; i++) {
        float v = fabsf(x[i]);
        if (v != v) {
            memset(q, 0, (size_t)k);
            return v;
        }
        top = v > top ? v : top;
    }
    float by = top > 0 ? 127.0f / top : 0;
    for (int64_t i = 0; i < k; i++)
        q[i] = isfinite(by) && by > 0 ? (int8_t)rintf(x[i] * by) : 0;
    return top / 127.0f;
}

typedef struct job {
    const float *x, *scale, *bias;
    const int8_t *w;
    float *y;
    int64_t n, k;
} job;
static void rows(void *arg, int64_t lo, int64_t hi)
{
    const job *j = arg;
    int8_t *q = mem_alloc((size_t)MAX(j->k, 1));
    for (int64_t r = lo; r < hi; r++) {
        float by = int8_row(j->x + r * j->k, j->k, q);
        for (int64_t c = 0; c < j->n; c++) {
            int32_t sum = 0;
            const int8_t *w = j->w + c * j->k;
            for (int64_t i = 0; i < j->k; i++)
                sum += q[i] * w[i];
            float v = (float)sum * (by * j->scale[c]);
            j->y[r * j->n + c] = j->bias ? v + j->bias[c] : v;
        }
    }
    free(q);
}

bool eager_linear_int8(op_call *c)
{
    scratch s = { .err = c->err };
    tp_tensor *x = scratch_in(&s, arg_t(c, 0), DT_f32), *w = scratch_in(&s, arg_t(c, 1), DT_i8),
              *by = scratch_in(&s, arg_t(c, 2), DT_f32), *b = scratch_in(&s, arg_t(c, 3), DT_f32),
              *y = scratch_out(&s, c->res[0], DT_f32);
    if (!x || !w || !by || !y || (arg_t(c, 3) && !b))
        return scratch_end(&s, false);
    job j = { tensor_host(x), tensor_host(by), b ? tensor_host(b) : NULL, tensor_host(w), tensor_host(y),
              w->size[0],     w->size[1] };
    int64_t m = j.n ? y->numel / j.n : 0;
    const ops_provider *own = ops_provider_now();
    if (y->numel && !(own && own->linear_int8(m, j.n, j.k, j.x, j.w, j.scale, j.bias, j.y)))
        pool_for(m, MAX(1, (1 << 16) / MAX(1, j.n * j.k)), rows, &j);
    return scratch_end(&s, true);
}
