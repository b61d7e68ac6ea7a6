/* attend.c - see attend.h. */
#include "run/attend.h"
#include "base/pool.h"
#include "gen/provide.h"
#include "base/bytes.h"
#include <stdatomic.h>

enum { BLOCK_BYTES = 192 << 10, LEAST_ROWS = 48, MAX_BUFS = 80 };

/* Scratch of a thread, kept for its next call: packed factors, scores, what became of them. */
enum { AT_k, AT_v, AT_scores, AT_probs, AT_COUNT };
static _Thread_local bytes_kept kept[AT_COUNT];
static char *scratch(int which, size_t n) { return bytes_keep(&kept[which], (int64_t)n); }

typedef struct job {
    const attend *a;
    const gemm_plan *scores, *result; /* of a block of rows */
    int64_t m, n, d, e, es;
    int64_t rows, blocks, parts; /* of a block; blocks of a matrix; shares of a matrix */
    _Atomic bool failed;
} job;

static mat mat_of(const tp_tensor *t, int64_t batch, int64_t row)
{
    int64_t es = (int64_t)dtype_size((dtype)t->dt);
    return (mat){ (char *)tensor_data(t) + (batch * t->stride[0] + row * t->stride[1]) * es, t->stride[1],
                  t->stride[2] };
}

/* One product of a block: with the packed factor where the block is a whole one. */
static bool product(const job *j, const gemm_plan *whole, int64_t rows, int64_t n, int64_t k, mat a, mat b,
                    mat c, char *packed, int64_t cols, int64_t depth, const gemm_epilogue *e)
{
    tp_err err = { 0 };
    if (rows == j->rows && gemm_packs(whole))
        return gemm_run_packed(whole, a.p, b.p, packed, c.p, cols, depth, e);
    const gemm_plan *p = gen_product_plan((dtype)j->a->o->dt, rows, n, k, a, b, c);
    return p && gemm_run(p, a.p, b.p, NULL, c.p, e, &err);
}

static bool part_run(const job *j, int64_t batch, int64_t lo, int64_t hi)
{
    const attend *a = j->a;
    mat k = mat_of(a->k, batch, 0), v = mat_of(a->v, batch, 0);
    size_t row = (size_t)(j->n * j->es);
    char *pk = scratch(AT_k, gemm_packed_bytes(j->scores) + 64),
         *pv = scratch(AT_v, gemm_packed_bytes(j->result) + 64);
    char *s = scratch(AT_scores, (size_t)j->rows * row), *p = scratch(AT_probs, (size_t)j->rows * row);
    void *bufs[MAX_BUFS];
    if (!pk || !pv || !s || !p)
        return false;
    if (gemm_packs(j->scores))
        gemm_pack_all(j->scores, k.p, pk);
    if (gemm_packs(j->result))
        gemm_pack_all(j->result, v.p, pv);
    memcpy(bufs, a->kernel.bufs, sizeof *bufs * (size_t)a->nbuf);
    for (int64_t b = lo; b < hi; b++) {
        int64_t first = b * j->rows, rows = MIN(j->rows, j->m - first), at = batch * j->m + first;
        int64_t need = a->reach ? MIN(j->n, first + rows - 1 + a->reach) : j->n;
        gemm_epilogue e = a->kernel;
        e.bufs = bufs;
        e.first = at;
        /* the kernel counts rows from the beginning of the whole matrix, which is not there */
        bufs[a->scores] = (void *)((uintptr_t)s - (uintptr_t)at * row);
        bufs[a->probs] = (void *)((uintptr_t)p - (uintptr_t)at * row);
        if (!product(j, j->scores, rows, j->n, j->d, mat_of(a->q, batch, first), k, (mat){ s, j->n, 1 }, pk,
                     need, j->d, &e) ||
            !product(j, j->result, rows, j->e, j->n, (mat){ p, j->n, 1 }, v, mat_of(a->o, batch, first), pv,
                     j->e, need, NULL))
            return false;
    }
    return true;
}

static void parts(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    for (int64_t t = lo; t < hi; t++) {
        int64_t part = t % j->parts;
        if (!part_run(j, t / j->parts, j->blocks * part / j->parts, j->blocks * (part + 1) / j->parts))
            atomic_store(&j->failed, true);
    }
}

attend_result attend_run(const attend *a, tp_err *err)
{
    const tp_tensor *q = a->q, *k = a->k, *v = a->v, *o = a->o;
    dtype dt = (dtype)o->dt;
    int64_t batch = o->size[0];
    job j = { .a = a, .m = o->size[1], .n = k->size[2], .d = q->size[2], .e = o->size[2] };
    if (q->size[0] != batch || k->size[0] != batch || v->size[0] != batch || q->size[1] != j.m ||
        k->size[1] != j.d || v->size[1] != j.n || v->size[2] != j.e) {
        err_set(err, ERR_internal, "the operands of a product changed their sizes");
        return ATTEND_failed;
    }
    if (!batch || j.m < LEAST_ROWS || j.n < 16 || !j.d || !j.e || a->nbuf > MAX_BUFS)
        return ATTEND_declined;
    j.es = (int64_t)dtype_size(dt);
    j.rows = MIN(j.m, MAX((int64_t)LEAST_ROWS, BLOCK_BYTES / (j.n * j.es)));
    if (a->reach) /* the smaller the blocks, the more is left out */
        j.rows = MIN(j.rows, LEAST_ROWS);
    j.blocks = (j.m + j.rows - 1) / j.rows;
    j.rows = (j.m + j.blocks - 1) / j.blocks;
    j.blocks = (j.m + j.rows - 1) / j.rows;
    int64_t threads = pool_threads(), want = batch >= 2 * threads ? 1 : (2 * threads + batch - 1) / batch;
    j.parts = threads > 1 ? MIN(j.blocks, want) : 1;
    j.scores = gen_product_plan(dt, j.rows, j.n, j.d, mat_of(q, 0, 0), mat_of(k, 0, 0),
                                (mat){ NULL, j.n, 1 });
    j.result = gen_product_plan(dt, j.rows, j.e, j.n, (mat){ NULL, j.n, 1 }, mat_of(v, 0, 0),
                                mat_of(o, 0, 0));
    if (!j.scores || !j.result)
        return ATTEND_declined;
    pool_for(batch * j.parts, 1, parts, &j);
    if (!j.failed)
        return ATTEND_done;
    err_set(err, ERR_oom, "out of memory in attention");
    return ATTEND_failed;
}
