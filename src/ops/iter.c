#include "ops/iter.h"
#include "base/pool.h"

enum { GRAIN = 32768 };

/* Merge dimensions that are one stride apart in every operand. */
static void coalesce(iter *it)
{
    int w = 0;
    for (int d = 1; d < it->ndim; d++) {
        bool can = true;
        if (it->size[w] != 1 && it->size[d] != 1)
            for (int k = 0; k < it->nop && can; k++)
                can = it->size[w] * it->stride[k][w] == it->stride[k][d];
        if (can) {
            for (int k = 0; k < it->nop; k++)
                if (it->size[w] == 1)
                    it->stride[k][w] = it->stride[k][d];
            it->size[w] *= it->size[d];
        } else {
            w++;
            it->size[w] = it->size[d];
            for (int k = 0; k < it->nop; k++)
                it->stride[k][w] = it->stride[k][d];
        }
    }
    it->ndim = it->ndim ? w + 1 : 0;
}

static bool swap_wanted(const iter *it, int a, int b) /* dimension b should come before a */
{
    for (int k = 0; k < it->nop; k++) {
        int64_t sa = it->stride[k][a], sb = it->stride[k][b];
        if (!sa || !sb || sa == sb)
            continue;
        return sb < sa;
    }
    return false;
}

void iter_init(iter *it, int nop, tp_tensor *const *op)
{
    const tp_tensor *o = op[0];
    it->nop = nop;
    it->ndim = o->ndim;
    it->numel = o->numel;
    for (int d = 0; d < o->ndim; d++)
        it->size[d] = o->size[o->ndim - 1 - d];
    for (int k = 0; k < nop; k++) {
        const tp_tensor *t = op[k];
        if (!t) { /* a number: the caller sets data */
            for (int d = 0; d < o->ndim; d++)
                it->stride[k][d] = 0;
            continue;
        }
        int64_t es = (int64_t)dtype_size((dtype)t->dt);
        it->data[k] = tensor_host(t);
        for (int d = 0; d < o->ndim; d++) {
            int i = t->ndim - 1 - d;
            it->stride[k][d] = i >= 0 && t->size[i] != 1 ? t->stride[i] * es : 0;
        }
    }
    for (int i = 1; i < it->ndim; i++) /* insertion sort: few dimensions, mostly sorted already */
        for (int j = i; j > 0 && swap_wanted(it, j - 1, j); j--) {
            int64_t t = it->size[j];
            it->size[j] = it->size[j - 1];
            it->size[j - 1] = t;
            for (int k = 0; k < nop; k++) {
                t = it->stride[k][j];
                it->stride[k][j] = it->stride[k][j - 1];
                it->stride[k][j - 1] = t;
            }
        }
    if (it->ndim > 1)
        coalesce(it);
}

typedef struct job {
    const iter *it;
    iter_fn *fn;
    void *arg;
} job;

/* Elements [begin, end) in iteration order. */
static void span(void *arg, int64_t begin, int64_t end)
{
    const job *j = arg;
    const iter *it = j->it;
    int64_t at[TP_MAX_DIMS], st[ITER_MAX], rest = begin;
    char *p[ITER_MAX];

    for (int k = 0; k < it->nop; k++) {
        st[k] = it->stride[k][0];
        p[k] = it->data[k];
    }
    for (int d = 0; d < it->ndim; d++) {
        at[d] = rest % it->size[d];
        rest /= it->size[d];
        for (int k = 0; k < it->nop; k++)
            p[k] += at[d] * it->stride[k][d];
    }
    while (begin < end) {
        int64_t n = MIN(it->size[0] - at[0], end - begin);
        j->fn(j->arg, n, p, st);
        begin += n;
        if (begin >= end)
            break;
        for (int k = 0; k < it->nop; k++)
            p[k] -= at[0] * st[k];
        at[0] = 0;
        for (int d = 1; d < it->ndim; d++) {
            for (int k = 0; k < it->nop; k++)
                p[k] += it->stride[k][d];
            if (++at[d] < it->size[d])
                break;
            for (int k = 0; k < it->nop; k++)
                p[k] -= it->size[d] * it->stride[k][d];
            at[d] = 0;
        }
    }
}

void iter_run(const iter *it, iter_fn *fn, void *arg, int64_t grain)
{
    if (it->numel == 0)
        return;
    if (it->ndim <= 1 && it->numel <= GRAIN) { /* the common small case: one run */
        int64_t st[ITER_MAX];
        for (int k = 0; k < it->nop; k++)
            st[k] = it->ndim ? it->stride[k][0] : 0;
        fn(arg, it->numel, it->data, st);
        return;
    }
    job j = { it, fn, arg };
    if (it->ndim == 0) {
        int64_t st[ITER_MAX] = { 0 };
        fn(arg, 1, it->data, st);
    } else
        pool_for(it->numel, grain ? grain : GRAIN, span, &j);
}
