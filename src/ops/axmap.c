#include "ops/axmap.h"
#include "ops/move.h"
#include "base/pool.h"

int64_t *axmap_axis(axmap *m, int d, int64_t n)
{
    return m->at[d] = mem_alloc(sizeof(int64_t) * (size_t)MAX(n, 1));
}

void axmap_free(axmap *m)
{
    for (int d = 0; d < TP_MAX_DIMS; d++)
        free(m->at[d]);
}

typedef struct job {
    const axmap *m;
    const tp_tensor *out, *in;
    const int64_t *last; /* table of the last axis, in source elements */
    bool run;            /* the last axis is one run in both */
    bool back;           /* the last axis is one run, read backwards */
    int64_t nrun; /* or it is so many runs, beginning at start[0 .. nrun); 0: too many to be worth it */
    const int64_t *start;
    int head; /* axmap_put: axes before this one have no table */
    red_op op;
    bool columns;  /* axmap_put: threads share the columns of the last axis */
    int64_t parts; /* axmap_put: or the places on the first axis: part i has every parts-th; a power of two */
} job;

/* Offsets of row r (all axes but the last) in both tensors. */
static void row_at(const job *j, int64_t r, int nd, int64_t *po, int64_t *pi)
{
    *po = *pi = 0;
    for (int d = nd - 1; d >= 0; d--) {
        int64_t i = r;
        if (d) { /* what is left is the first axis' */
            i = r % j->out->size[d];
            r /= j->out->size[d];
        }
        *po += i * j->out->stride[d];
        *pi += (j->m->at[d] ? j->m->at[d][i] : i) * j->in->stride[d];
    }
}

static void copy_rows(void *arg, int64_t b, int64_t e)
{
    const job *j = arg;
    int last = j->out->ndim - 1;
    int64_t n = j->out->size[last], os = j->out->stride[last], es = (int64_t)dtype_size((dtype)j->out->dt);
    char *out = tensor_host(j->out);
    const char *in = tensor_host(j->in);
    const int64_t *m = j->last;
    for (int64_t r = b; r < e; r++) {
        int64_t po, pi;
        row_at(j, r, last, &po, &pi);
        char *o = out + po * es;
        const char *s = in + pi * es;
        if (j->run) {
            moves()->run(n * es, o, s + m[0] * es);
            continue;
        }
        if (j->nrun) {
            for (int64_t k = 0; k < j->nrun; k++) {
                int64_t at = j->start[k], m_ = (k + 1 < j->nrun ? j->start[k + 1] : n) - at;
                moves()->run(m_ * es, o + at * es, s + m[at] * es);
            }
            continue;
        }
        if (j->back) {
            moves()->back(n, o, s + m[n - 1] * es, (size_t)es);
            continue;
        }
#define MOVE(T)                     \
    for (int64_t i = 0; i < n; i++) \
    ((T *)o)[i * os] = ((const T *)s)[m[i]]
        switch (es) {
        case 1: MOVE(uint8_t); break;
        case 2: MOVE(uint16_t); break;
        case 4: MOVE(uint32_t); break;
        default: MOVE(uint64_t);
        }
    }
}

static int64_t *last_table(const axmap *m, const tp_tensor *out, const tp_tensor *in, bool *run)
{
    int d = out->ndim - 1;
    int64_t n = out->size[d], *t = mem_alloc(sizeof(int64_t) * (size_t)MAX(n, 1));
    *run = out->stride[d] == 1 || n == 1;
    for (int64_t i = 0; i < n; i++) {
        t[i] = (m->at[d] ? m->at[d][i] : i) * in->stride[d];
        *run = *run && t[i] == t[0] + i;
    }
    return t;
}

/* Where runs of a table begin, or NULL when they are short. */
static int64_t *runs_of(const int64_t *t, int64_t n, int64_t *nrun)
{
    int64_t count = 1, w = 0;
    for (int64_t i = 1; i < n; i++)
        count += t[i] != t[i - 1] + 1;
    *nrun = 0;
    if (count * 16 > n)
        return NULL;
    int64_t *start = mem_alloc(sizeof *start * (size_t)count);
    for (int64_t i = 0; i < n; i++)
        if (!i || t[i] != t[i - 1] + 1)
            start[w++] = i;
    *nrun = count;
    return start;
}

void axmap_copy(const axmap *m, tp_tensor *out, const tp_tensor *in)
{
    if (out->numel == 0)
        return;
    if (out->ndim == 0) {
        memcpy(tensor_host(out), tensor_host(in), dtype_size((dtype)out->dt));
        return;
    }
    job j = { .m = m, .out = out, .in = in, .op = RED_set };
    int64_t n = out->size[out->ndim - 1], *t = last_table(m, out, in, &j.run), *start = NULL;
    j.last = t;
    if (!j.run && n > 1 && out->stride[out->ndim - 1] == 1) {
        j.start = start = runs_of(t, n, &j.nrun);
        j.back = true;
        for (int64_t i = 1; i < n && j.back; i++)
            j.back = t[i] == t[i - 1] - 1;
    }
    pool_for(out->numel / n, MAX(1, 32768 / n), copy_rows, &j);
    free(start);
    free(t);
}

/* Rows [b, e) of the axes before the first table, whole; or, when there are none, columns [b, e) of all. */
static void put_rows(void *arg, int64_t b, int64_t e)
{
    const job *j = arg;
    int last = j->out->ndim - 1;
    int64_t n = j->out->size[last], inner = 1, c0 = 0, r0, r1, es = (int64_t)dtype_size((dtype)j->out->dt);
    int64_t os = j->out->stride[last], is = j->in->stride[last];
    redrow_fn *fn = redrow(j->op, (dtype)j->out->dt);
    for (int d = j->head; d < last; d++)
        inner *= j->out->size[d];
    r0 = b * inner;
    r1 = e * inner;
    if (j->columns) {
        r0 = 0;
        r1 = inner;
        c0 = b;
        n = e - b;
    }
    bool plain = !j->m->at[last];
    for (int64_t r = r0; r < r1; r++) {
        int64_t po, pi;
        row_at(j, r, last, &po, &pi);
        fn(n, (char *)tensor_host(j->in) + (pi + (plain ? c0 * is : 0)) * es, plain ? NULL : j->last, is,
           (const char *)tensor_host(j->out) + (po + c0 * os) * es, os);
    }
}

/* Parts [b, e) of the places, each of which looks at all of the first axis: what goes to one place is combined in order. */
static void put_places(void *arg, int64_t b, int64_t e)
{
    const job *j = arg;
    const int64_t *at = j->m->at[0], n = j->out->size[0];
    job one = *j;
    one.head = 1; /* a row of the first axis at a time */
    for (int64_t part = b; part < e; part++)
        for (int64_t i = 0; i < n; i++)
            if ((at[i] & (j->parts - 1)) == part)
                put_rows(&one, i, i + 1);
}

/* Are there enough threads, elements and places, and few enough columns, to share the places instead? Into how many parts; 0: no. */
static int64_t parts_of_places(const axmap *m, const tp_tensor *dst, const tp_tensor *src)
{
    int64_t parts = 1, row = src->numel / src->size[0];
    while (parts < pool_threads())
        parts *= 2;
    bool wide = src->size[src->ndim - 1] >= 64 * parts; /* threads share the columns */
    return m->at[0] && !wide && parts > 2 && row >= 8 && src->numel >= 32768 && dst->size[0] >= 4 * parts
               ? parts
               : 0;
}

void axmap_put(const axmap *m, red_op op, tp_tensor *dst, const tp_tensor *src)
{
    job j = { .m = m, .out = src, .in = dst, .op = op };
    int64_t rows = 1;
    if (src->numel == 0)
        return;
    if (src->ndim == 0) {
        redrow(op, (dtype)dst->dt)(1, tensor_host(dst), NULL, 1, tensor_host(src), 1);
        return;
    }
    int last = src->ndim - 1;
    while (j.head < last && !m->at[j.head])
        rows *= src->size[j.head++];
    int64_t *t = last_table(m, src, dst, &j.run);
    j.last = t;
    j.columns = j.head == 0 && last > 0 && !m->at[last];
    if (j.columns && (j.parts = parts_of_places(m, dst, src))) {
        j.columns = false;
        pool_each(j.parts, put_places, &j);
    } else if (j.columns)
        pool_for(src->size[last], MAX(64, 32768 / (src->numel / src->size[last])), put_rows, &j);
    else
        pool_for(rows, MAX(1, 32768 / (src->numel / rows)), put_rows, &j);
    free(t);
}
