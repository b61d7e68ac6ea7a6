/* check.c - are indices inside? */
#include "target/cpu/cpu.h"
#include "ops/move.h"
#include "base/pool.h"
#include <stdatomic.h>

typedef struct range {
    const void *at;
    bool narrow;
    int64_t lo;
    uint64_t width;
    atomic_bool bad;
} range;

static void check_span(void *arg, int64_t b, int64_t e)
{
    range *r = arg;
    if (!(r->narrow ? moves()->inside32(e - b, (const int32_t *)r->at + b, r->lo, r->width)
                    : moves()->inside64(e - b, (const int64_t *)r->at + b, r->lo, r->width)))
        r->bad = true;
}

/* The same elements, each once and one after the other. Owned. */
static tp_tensor *in_a_row(const tp_tensor *x, tp_err *err)
{
    symint size[TP_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++) /* what is repeated is looked at once */
        size[d] = x->stride[d] == 0 && x->size[d] ? 1 : x->size[d];
    tp_tensor *t = tensor_on(x->storage, (dtype)x->dt, x->ndim, size, x->stride, x->offset);
    if (!t || tensor_is_contiguous(t))
        return t;
    tp_tensor *row = tensor_new((dtype)t->dt, t->ndim, t->size, err);
    if (row && !tensor_copy(row, t, err)) {
        tensor_unref(row);
        row = NULL;
    }
    tensor_unref(t);
    return row;
}

bool cpu_inside(const tp_tensor *index, int64_t lo, int64_t hi, target_late *late, bool *yes, int64_t *bad,
                tp_err *err)
{
    tp_tensor *t = in_a_row(index, err);
    if (!t)
        return false;
    range r = { tensor_host(t), t->dt == DT_i32, lo, (uint64_t)hi - (uint64_t)lo, false };
    if (t->numel <= 4096)
        check_span(&r, 0, t->numel);
    else
        pool_for(t->numel, 65536, check_span, &r);
    *yes = !r.bad;
    for (int64_t i = 0; r.bad && i < t->numel; i++) {
        *bad = elem_get_i((dtype)t->dt, tensor_elem(t, i));
        if (*bad < lo || *bad >= hi)
            break;
    }
    tensor_unref(t);
    return true;
}
