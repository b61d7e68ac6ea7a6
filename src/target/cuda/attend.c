/* attend.c - see attend.h. What flash.c can do is done there; the rest: products by cuBLASLt into memory of one part, the kernel on its rows, products of what it wrote. */
#include "target/cuda/attend.h"
#include "target/cuda/flash.h"
#include "target/cuda/product.h"
#include <stdlib.h>

/* PART_BYTES: all matrices of a part, less than half of an H200's second cache. SUM_BYTES: the same where parts of one matrix are
 * added to a result of 16 bits, which is rounded each time: rather few of them. */
enum { PART_BYTES = 24 << 20, SUM_BYTES = 512 << 20, MAX_BUFS = 80 };

typedef struct parts {
    int64_t batch, m, n;
    dtype dt[ATTEND_OF + ATTEND_BETWEEN]; /* of the products that the kernel reads, then of what it writes */
    int64_t at[ATTEND_OF + ATTEND_BETWEEN + 1]; /* where they lie in the memory of a part; its end */
    int64_t nb, nr; /* batches and rows of a part; one of them is all, or nb is 1 */
    int nmade, made_buf[ATTEND_BETWEEN], made[ATTEND_TO];
} parts;

/* TAPER_CUDA_PART_BYTES in place of both. */
static int64_t room(bool rounds)
{
    const char *s = getenv("TAPER_CUDA_PART_BYTES");
    int64_t n = s ? strtoll(s, NULL, 10) : 0;
    return n > 0 ? n : rounds ? SUM_BYTES : PART_BYTES;
}

static int64_t width(const attend_to *to) { return to->o->size[to->second ? 1 : 2]; }

static bool fits(const target_attend *a, const parts *p)
{
    bool ok = p->batch > 0 && p->m > 0 && p->n > 0 && a->nbuf <= MAX_BUFS;
    for (int i = 0; i < a->nof && ok; i++) {
        const tp_tensor *x = a->of[i].a, *y = a->of[i].b;
        ok = x->ndim == 3 && y->ndim == 3 && x->dt == y->dt && x->size[0] == p->batch && x->size[1] == p->m &&
             y->size[0] == p->batch && y->size[1] == x->size[2] && y->size[2] == p->n && x->size[2] > 0;
    }
    for (int i = 0; i < a->nto && ok; i++) {
        const attend_to *to = &a->to[i];
        int64_t k = to->adds ? p->m : p->n, r = to->adds ? p->n : p->m;
        ok = to->x->ndim == 3 && to->o->ndim == 3 && to->x->dt == to->o->dt && to->x->size[0] == p->batch &&
             to->o->size[0] == p->batch && to->x->size[to->second ? 2 : 1] == k &&
             to->x->size[to->second ? 1 : 2] == width(to) && to->o->size[to->second ? 2 : 1] == r &&
             width(to) > 0;
    }
    return ok;
}

/* How the work is cut. False: not for this. */
static bool cut(const target_attend *a, parts *p)
{
    const tp_tensor *q = a->of[0].a;
    if (q->ndim != 3 || a->of[0].b->ndim != 3)
        return false;
    *p = (parts){ .batch = q->size[0], .m = q->size[1], .n = a->of[0].b->size[2] };
    if (!fits(a, p))
        return false;
    bool rounds = false;
    int64_t row = 0, most = room(false);
    for (int i = 0; i < a->nof; i++)
        p->dt[i] = a->of[i].dt;
    for (int i = 0; i < a->nto; i++) {
        int k = 0;
        while (k < p->nmade && p->made_buf[k] != a->to[i].buf)
            k++;
        if (k == ATTEND_BETWEEN)
            return false;
        if (k < p->nmade && p->dt[a->nof + k] != (dtype)a->to[i].x->dt)
            return false;
        p->made_buf[k] = a->to[i].buf;
        p->made[i] = k;
        p->dt[a->nof + k] = (dtype)a->to[i].x->dt;
        p->nmade = MAX(p->nmade, k + 1);
        rounds |= a->to[i].adds && dtype_size((dtype)a->to[i].o->dt) < 4;
    }
    for (int i = 0; i < a->nof + p->nmade; i++)
        row += p->n * (int64_t)dtype_size(p->dt[i]);
    p->nr = p->m;
    p->nb = MAX(1, MIN(p->batch, most / (row * p->m)));
    most = room(rounds);
    if (row * p->m > most) {
        int64_t pieces = (row * p->m + most - 1) / most;
        p->nr = MIN(p->m, ((p->m + pieces - 1) / pieces + 63) / 64 * 64);
    }
    for (int i = 0; i < a->nof + p->nmade; i++)
        p->at[i + 1] = p->at[i] +
                       ((p->nb * p->nr * p->n * (int64_t)dtype_size(p->dt[i]) + 255) & ~(int64_t)255);
    return true;
}

/* TAPER_CUDA_FLASH=0: always in parts. */
static bool in_one(const target_attend *a)
{
    const char *s = getenv("TAPER_CUDA_FLASH");
    return (!s || strcmp(s, "0")) && cuda_flash_fits(a);
}

int64_t cuda_attend_bytes(const target_attend *a)
{
    parts p;
    if (in_one(a))
        return cuda_flash_bytes(a);
    return cut(a, &p) ? p.at[a->nof + p.nmade] : 0;
}

/* Batches [b, b + nb) of t, and of its dimension `dim` the elements [at, at + n). */
static tp_tensor *slice(const tp_tensor *t, int64_t b, int64_t nb, int dim, int64_t at, int64_t n)
{
    symint size[3] = { nb, t->size[1], t->size[2] };
    size[dim] = n;
    return tensor_on(t->storage, (dtype)t->dt, 3, size, t->stride,
                     t->offset + b * t->stride[0] + at * t->stride[dim]);
}
static tp_tensor *turned(const tp_tensor *t)
{
    symint size[3] = { t->size[0], t->size[2], t->size[1] },
           stride[3] = { t->stride[0], t->stride[2], t->stride[1] };
    return tensor_on(t->storage, (dtype)t->dt, 3, size, stride, t->offset);
}

static void keep(void *ctx, void *p) {} /* the memory of a part is the caller's */

/* Takes the three views. */
static bool multiply(tp_tensor *o, tp_tensor *x, tp_tensor *y, bool add, tp_err *err)
{
    bool ok = cuda_product(&(target_product){ .o = o, .a = x, .b = y, .add = add }, err);
    tensor_unref(o), tensor_unref(x), tensor_unref(y);
    return ok;
}

/* A product of what the kernel wrote, in rows [r, r + nr) of each matrix and their first n columns: beyond them are zeros. */
static bool product_of(const attend_to *to, const tp_tensor *block, int64_t b, int64_t r, int64_t n, bool add,
                       tp_err *err)
{
    int64_t nb = block->size[0], nr = block->size[1];
    int rows = to->second ? 2 : 1; /* the dimension of x or o that counts them */
    tp_tensor *mat = slice(block, 0, nb, 2, 0, n);
    tp_tensor *x = to->adds ? slice(to->x, b, nb, rows, r, nr) : slice(to->x, b, nb, rows, 0, n);
    tp_tensor *o = to->adds ? slice(to->o, b, nb, rows, 0, n) : slice(to->o, b, nb, rows, r, nr);
    if (to->adds != to->second) { /* its rows are what is summed over, or columns of the result */
        tp_tensor *t = turned(mat);
        tensor_unref(mat);
        mat = t;
    }
    return to->second ? multiply(o, x, mat, to->adds && add, err) : multiply(o, mat, x, to->adds && add, err);
}

/* first: of these batches. It makes sums over rows from nothing, so all columns take part. */
static bool part_run(const target_attend *a, const parts *p, int64_t b, int64_t nb, int64_t r, int64_t nr,
                     bool first, tp_err *err)
{
    int64_t n = a->reach && !first ? MIN(p->n, r + nr - 1 + a->reach) : p->n;
    tp_device dev = tensor_device(a->of[0].a);
    int64_t at = b * p->m + r;
    symint size[3] = { nb, nr, p->n }, stride[3] = { nr * p->n, p->n, 1 };
    tp_tensor *mat[ATTEND_OF + ATTEND_BETWEEN];
    void *bufs[MAX_BUFS];
    bool ok = true;
    memcpy(bufs, a->kernel.args.bufs, sizeof *bufs * (size_t)a->nbuf);
    for (int i = 0; i < a->nof + p->nmade; i++) {
        char *mem = (char *)a->scratch + p->at[i];
        int64_t row = p->n * (int64_t)dtype_size(p->dt[i]);
        tp_storage *s = storage_wrap_on(dev, mem, p->at[i + 1] - p->at[i], keep, NULL);
        mat[i] = tensor_on(s, p->dt[i], 3, size, stride, 0);
        storage_unref(s);
        /* the kernel counts rows from the beginning of the whole matrix, which is not there */
        bufs[i < a->nof ? a->of[i].buf : p->made_buf[i - a->nof]] = (void *)((uintptr_t)mem -
                                                                             (uintptr_t)(at * row));
    }
    for (int i = 0; i < a->nof && ok; i++)
        ok = multiply(slice(mat[i], 0, nb, 2, 0, n), slice(a->of[i].a, b, nb, 1, r, nr),
                      slice(a->of[i].b, b, nb, 2, 0, n), false, err);
    target_args args = a->kernel.args;
    args.bufs = bufs;
    ok = ok && cuda_launch_rows(a->kernel.code, &args, at, at + nb * nr, err);
    for (int i = 0; i < a->nto && ok; i++)
        ok = product_of(&a->to[i], mat[a->nof + p->made[i]], b, r, n, !first, err);
    for (int i = 0; i < a->nof + p->nmade; i++)
        tensor_unref(mat[i]);
    return ok;
}

target_result cuda_attend(const target_attend *a, tp_err *err)
{
    parts p;
    if (in_one(a))
        return cuda_flash(a, err) ? TARGET_done : TARGET_failed;
    if (!a->scratch || !cut(a, &p))
        return TARGET_declined;
    /* The last rows first: they meet all columns, so that what later parts leave beyond theirs are finite numbers. */
    for (int64_t b = 0; b < p.batch; b += p.nb)
        for (int64_t end = p.m; end > 0; end -= MIN(end, p.nr))
            if (!part_run(a, &p, b, MIN(p.nb, p.batch - b), MAX(end - p.nr, 0), MIN(end, p.nr), end == p.m,
                          err))
                return TARGET_failed;
    return TARGET_done;
}
