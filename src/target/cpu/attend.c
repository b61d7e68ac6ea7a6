/* attend.c - attention block of rows by block of rows: each thread keeps some rows of what is between the products in its cache. */
#include "target/cpu/cpu.h"
#include "base/pool.h"
#include "target/x64/provide.h"
#include "base/bytes.h"
#include <stdatomic.h>

/* SHARES: of the whole, where results are sums over blocks. It does not depend on the threads, so neither do the sums. */
enum { BLOCK_BYTES = 256 << 10, LEAST_ROWS = 48, USUAL_ROWS = 64, MAX_BUFS = 80, SHARES = 8 };

/* Scratch of a thread, kept for its next call: packed factors, rows of products, what became of them. */
enum {
    AT_factor,
    AT_rows = AT_factor + ATTEND_OF,
    AT_made = AT_rows + ATTEND_OF,
    AT_with = AT_made + ATTEND_BETWEEN,
    AT_COUNT = AT_with + ATTEND_TO
};
static _Thread_local bytes_kept kept[AT_COUNT];
static char *scratch(int which, size_t n) { return bytes_keep(&kept[which], (int64_t)n); }

typedef struct job {
    const target_attend *a;
    dtype dt, sum;                                  /* of the factors; of sums over blocks */
    const gemm_plan *of[ATTEND_OF], *to[ATTEND_TO]; /* of a block of rows */
    int made[ATTEND_TO];                            /* which of the matrices that the kernel writes */
    int nmade, made_buf[ATTEND_BETWEEN];
    int64_t m, n;
    int64_t rows, blocks, parts; /* of a block; blocks of a matrix; shares of a matrix */
    char *sums[ATTEND_TO];       /* a share each, n x e; NULL: it adds to the result itself */
    _Atomic bool failed;
} job;

static int64_t bytes_of(dtype dt) { return (int64_t)dtype_size(dt); }
static mat mat_of(const tp_tensor *t, int64_t batch, int64_t row)
{
    int64_t es = bytes_of((dtype)t->dt);
    return (mat){ (char *)tensor_host(t) + (batch * t->stride[0] + row * t->stride[1]) * es, t->stride[1],
                  t->stride[2] };
}
/* The same of an operand or a result of `to`, transposed where that makes the matrix of the kernel the first factor. */
static mat mat_beside(const attend_to *to, const tp_tensor *t, int64_t batch, int64_t row)
{
    mat x = mat_of(t, batch, 0);
    if (to->second)
        x = (mat){ x.p, x.cs, x.rs };
    x.p = (char *)x.p + row * x.rs * bytes_of((dtype)t->dt);
    return x;
}
static int64_t width(const attend_to *to) { return to->o->size[to->second ? 1 : 2]; }
static mat packed_rows(char *p, int64_t n) { return (mat){ p, n, 1 }; }

/* One product of a block: with the packed factor where the block is a whole one. */
static bool product(const job *j, const gemm_plan *whole, dtype to, int64_t rows, int64_t n, int64_t k, mat a,
                    mat b, mat c, char *packed, int64_t cols, int64_t depth, const gemm_epilogue *e)
{
    tp_err err = { 0 };
    if (rows == j->rows && gemm_packs(whole))
        return gemm_run_packed(whole, a.p, b.p, packed, c.p, rows, cols, depth, e);
    const gemm_plan *p = gen_product_plan(j->dt, to, rows, n, k, a, b, false, c);
    return p && gemm_run(p, a.p, b.p, NULL, c.p, e, &err);
}

/* sum += the transpose of the block, whose first `need` columns are not 0, times rows of x. */
static bool add_turned(const job *j, int i, int64_t rows, mat block, mat x, mat sum, int64_t need)
{
    int64_t e = width(&j->a->to[i]);
    mat a = { block.p, 1, j->n };
    const gemm_plan *p = rows == j->rows ? j->to[i]
                                         : gen_product_plan(j->dt, j->sum, j->n, e, rows, a, x, true, sum);
    char *packed = p ? scratch(AT_with + i, gemm_packed_bytes(p) + 64) : NULL;
    if (!packed || !gemm_packs(p))
        return false;
    gemm_pack_all(p, x.p, packed);
    return gemm_run_packed(p, a.p, x.p, packed, sum.p, need, e, rows, NULL);
}

static mat sum_of(const job *j, int i, int64_t batch, int64_t part)
{
    int64_t e = width(&j->a->to[i]);
    if (!j->sums[i])
        return mat_beside(&j->a->to[i], j->a->to[i].o, batch, 0);
    return packed_rows(j->sums[i] + (batch * j->parts + part) * j->n * e * bytes_of(j->sum), e);
}

/* Rows from `first` on: the products that the kernel reads, the kernel, the products of what it wrote. */
static bool block_run(const job *j, int64_t batch, int64_t part, int64_t first, void **bufs,
                      char *const *pack, char *const *rows_of, char *const *made)
{
    const target_attend *a = j->a;
    int64_t rows = MIN(j->rows, j->m - first), at = batch * j->m + first, skip = at * j->n;
    int64_t need = a->reach ? MIN(j->n, first + rows - 1 + a->reach) : j->n;
    gemm_epilogue e = { a->kernel.code->fn, bufs, a->kernel.args.ints, a->kernel.args.flts, at };
    /* the kernel counts rows from the beginning of the whole matrix, which is not there */
    for (int i = 0; i < a->nof; i++)
        bufs[a->of[i].buf] = (void *)((uintptr_t)rows_of[i] - (uintptr_t)(skip * bytes_of(a->of[i].dt)));
    for (int i = 0; i < j->nmade; i++)
        bufs[j->made_buf[i]] = (void *)((uintptr_t)made[i] - (uintptr_t)(skip * bytes_of(j->dt)));
    for (int i = 0; i < a->nof; i++)
        if (!product(j, j->of[i], a->of[i].dt, rows, j->n, a->of[i].a->size[2],
                     mat_of(a->of[i].a, batch, first), mat_of(a->of[i].b, batch, 0),
                     packed_rows(rows_of[i], j->n), pack[i], need, a->of[i].a->size[2],
                     i == a->nof - 1 ? &e : NULL))
            return false;
    for (int i = 0; i < a->nto; i++) {
        const attend_to *to = &a->to[i];
        mat block = packed_rows(made[j->made[i]], j->n);
        bool ok = to->adds ? add_turned(j, i, rows, block, mat_beside(to, to->x, batch, first),
                                        sum_of(j, i, batch, part), need)
                           : product(j, j->to[i], (dtype)to->o->dt, rows, width(to), j->n, block,
                                     mat_beside(to, to->x, batch, 0), mat_beside(to, to->o, batch, first),
                                     pack[a->nof + i], width(to), need, NULL);
        if (!ok)
            return false;
    }
    return true;
}

static int64_t sum_bytes(const job *j, int i, int64_t batch)
{
    return batch * j->parts * j->n * width(&j->a->to[i]) * bytes_of(j->sum);
}
static void clear_sum(const job *j, mat sum, int64_t e)
{
    for (int64_t r = 0; r < j->n; r++)
        memset((char *)sum.p + r * sum.rs * bytes_of(j->sum), 0, (size_t)(e * bytes_of(j->sum)));
}

static bool part_run(const job *j, int64_t batch, int64_t part)
{
    const target_attend *a = j->a;
    int64_t lo = j->blocks * part / j->parts, hi = j->blocks * (part + 1) / j->parts;
    int64_t rows = j->rows * j->n;
    char *pack[ATTEND_OF + ATTEND_TO] = { 0 }, *rows_of[ATTEND_OF], *made[ATTEND_BETWEEN];
    void *bufs[MAX_BUFS];
    for (int i = 0; i < a->nof; i++) {
        pack[i] = scratch(AT_factor + i, gemm_packed_bytes(j->of[i]) + 64);
        size_t n = (size_t)(rows * bytes_of(a->of[i].dt));
        rows_of[i] = scratch(AT_rows + i, n);
        if (!pack[i] || !rows_of[i])
            return false;
        if (gemm_packs(j->of[i]))
            gemm_pack_all(j->of[i], mat_of(a->of[i].b, batch, 0).p, pack[i]);
        /* what lies behind a diagonal is not made, but the kernel multiplies it by 0; later blocks reach farther */
        if (a->reach)
            memset(rows_of[i], 0, n);
    }
    for (int i = 0; i < j->nmade; i++)
        if (!(made[i] = scratch(AT_made + i, (size_t)(rows * bytes_of(j->dt)))))
            return false;
    for (int i = 0; i < a->nto; i++) {
        if (a->to[i].adds) {
            clear_sum(j, sum_of(j, i, batch, part), width(&a->to[i]));
            continue;
        }
        if (!(pack[a->nof + i] = scratch(AT_with + i, gemm_packed_bytes(j->to[i]) + 64)))
            return false;
        if (gemm_packs(j->to[i]))
            gemm_pack_all(j->to[i], mat_beside(&a->to[i], a->to[i].x, batch, 0).p, pack[a->nof + i]);
    }
    memcpy(bufs, a->kernel.args.bufs, sizeof *bufs * (size_t)a->nbuf);
    for (int64_t b = lo; b < hi; b++)
        if (!block_run(j, batch, part, b * j->rows, bufs, pack, rows_of, made))
            return false;
    return true;
}

static void parts(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    for (int64_t t = lo; t < hi; t++)
        if (!part_run(j, t / j->parts, t % j->parts))
            atomic_store(&j->failed, true);
}

/* The shares of a result, one after the other. */
static void add_shares(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    for (int64_t batch = lo; batch < hi; batch++)
        for (int i = 0; i < j->a->nto; i++) {
            if (!j->sums[i])
                continue;
            const attend_to *to = &j->a->to[i];
            mat o = mat_beside(to, to->o, batch, 0);
            int64_t e = width(to), share = j->n * e;
            for (int64_t r = 0; r < j->n; r++)
                for (int64_t c = 0; c < e; c++) {
                    const char *x = j->sums[i] + (batch * j->parts * share + r * e + c) * bytes_of(j->sum);
                    char *y = (char *)o.p + (r * o.rs + c * o.cs) * bytes_of((dtype)to->o->dt);
                    if (j->sum == DT_f64) {
                        double s = *(const double *)x;
                        for (int64_t p = 1; p < j->parts; p++)
                            s += ((const double *)x)[p * share];
                        *(double *)y = s;
                    } else {
                        float s = *(const float *)x;
                        for (int64_t p = 1; p < j->parts; p++)
                            s += ((const float *)x)[p * share];
                        if (to->o->dt == DT_bf16)
                            *(uint16_t *)y = f32_to_bf16(s);
                        else
                            *(float *)y = s;
                    }
                }
        }
}

static bool fits(const target_attend *a, dtype dt, int64_t batch, int64_t m, int64_t n)
{
    bool ok = true, narrow = dt == DT_f16 || dt == DT_bf16;
    for (int i = 0; i < a->nof; i++) {
        const tp_tensor *x = a->of[i].a, *y = a->of[i].b;
        ok &= a->of[i].dt == dt || (narrow && a->of[i].dt == DT_f32);
        ok &= x->ndim == 3 && y->ndim == 3 && x->dt == dt && y->dt == dt;
        ok &= x->size[0] == batch && x->size[1] == m && y->size[0] == batch && y->size[1] == x->size[2] &&
              y->size[2] == n;
    }
    for (int i = 0; i < a->nto; i++) {
        const attend_to *to = &a->to[i];
        ok &= to->x->ndim == 3 && to->o->ndim == 3 && to->x->dt == dt &&
              (to->o->dt == dt || (narrow && to->o->dt == DT_f32));
        int64_t k = to->adds ? m : n, r = to->adds ? n : m, e = width(to);
        ok &= to->x->size[0] == batch && to->o->size[0] == batch && to->x->size[to->second ? 2 : 1] == k &&
              to->x->size[to->second ? 1 : 2] == e && to->o->size[to->second ? 2 : 1] == r;
    }
    return ok;
}

/* Does every share of the result need sums of its own: are there several, is it not of their type, or not in rows? */
static bool needs_sums(const job *j, int i)
{
    const attend_to *to = &j->a->to[i];
    return j->parts > 1 || to->o->dt != j->sum || mat_beside(to, to->o, 0, 0).cs != 1;
}

/* Plans for blocks, and which matrices the kernel writes. False: there is a product that has none. */
static bool plan_blocks(job *j)
{
    const target_attend *a = j->a;
    for (int i = 0; i < a->nof; i++)
        if (!(j->of[i] = gen_product_plan(j->dt, a->of[i].dt, j->rows, j->n, a->of[i].a->size[2],
                                          mat_of(a->of[i].a, 0, 0), mat_of(a->of[i].b, 0, 0), false,
                                          packed_rows(NULL, j->n))))
            return false;
    for (int i = 0; i < a->nto; i++) {
        const attend_to *to = &a->to[i];
        mat x = mat_beside(to, to->x, 0, 0), o = mat_beside(to, to->o, 0, 0);
        int64_t e = width(to);
        if (to->adds && needs_sums(j, i))
            o = packed_rows(NULL, e);
        j->to[i] = to->adds
                       ? gen_product_plan(j->dt, j->sum, j->n, e, j->rows, (mat){ NULL, 1, j->n }, x, true, o)
                       : gen_product_plan(j->dt, (dtype)to->o->dt, j->rows, e, j->n, packed_rows(NULL, j->n),
                                          x, false, o);
        if (!j->to[i] || (to->adds && !gemm_packs(j->to[i])))
            return false;
        int k = 0;
        while (k < j->nmade && j->made_buf[k] != to->buf)
            k++;
        if (k == ATTEND_BETWEEN)
            return false;
        j->made_buf[k] = to->buf;
        j->made[i] = k;
        j->nmade = MAX(j->nmade, k + 1);
    }
    return true;
}

target_result cpu_attend(const target_attend *a, tp_err *err)
{
    if (!a->kernel.code->fn)
        return TARGET_declined;
    const tp_tensor *q = a->of[0].a;
    int64_t batch = q->size[0], threads = pool_threads();
    job j = { .a = a,
              .dt = (dtype)q->dt,
              .sum = q->dt == DT_f64 ? DT_f64 : DT_f32,
              .m = q->size[1],
              .n = a->of[0].b->size[2] };
    bool adds = false, any = batch && q->size[2];
    for (int i = 0; i < a->nof; i++)
        any &= a->of[i].a->size[2] > 0;
    for (int i = 0; i < a->nto; i++) {
        adds |= a->to[i].adds;
        any &= width(&a->to[i]) > 0;
    }
    if (!fits(a, j.dt, batch, j.m, j.n)) {
        err_set(err, ERR_internal, "the operands of a product changed their sizes");
        return TARGET_failed;
    }
    if (!any || j.m < LEAST_ROWS || j.n < 16 || a->nbuf > MAX_BUFS)
        return TARGET_declined;
    j.rows = MIN(j.m, MAX((int64_t)USUAL_ROWS, BLOCK_BYTES / (j.n * bytes_of(j.sum))));
    if (a->reach) /* the smaller the blocks, the more is left out */
        j.rows = MIN(j.rows, MAX((int64_t)LEAST_ROWS, MIN(j.n / 4, (int64_t)USUAL_ROWS)));
    j.blocks = (j.m + j.rows - 1) / j.rows;
    j.rows = (j.m + j.blocks - 1) / j.blocks;
    j.blocks = (j.m + j.rows - 1) / j.rows;
    int64_t shares = adds ? SHARES : (a->reach ? 4 : 2) * threads,
            want = batch >= shares ? 1 : (shares + batch - 1) / batch;
    j.parts = adds || threads > 1 ? MIN(adds ? (j.blocks + 3) / 4 : j.blocks, want) : 1;
    if (!plan_blocks(&j))
        return TARGET_declined;
    bool ok = true, shared = false;
    for (int i = 0; i < a->nto && ok; i++)
        if (a->to[i].adds && needs_sums(&j, i)) {
            j.sums[i] = bytes_new(sum_bytes(&j, i, batch));
            ok = j.sums[i] != NULL;
            shared = true;
        }
    if (ok) /* behind a diagonal blocks differ in length */
        pool_each(batch * j.parts, parts, &j);
    ok &= !j.failed;
    if (ok && shared)
        pool_for(batch, 1, add_shares, &j);
    for (int i = 0; i < a->nto; i++)
        if (j.sums[i])
            bytes_free(j.sums[i], sum_bytes(&j, i, batch));
    if (ok)
        return TARGET_done;
    err_set(err, ERR_oom, "out of memory in attention");
    return TARGET_failed;
}
