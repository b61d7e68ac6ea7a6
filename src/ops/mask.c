#include "ops/mask.h"
#include "ops/pw.h"
#include "base/pool.h"

ISA_DECL(int64_t, count_true, (int64_t n, const uint8_t *m));

enum { CHUNK = 1 << 15 };
typedef struct mask_job {
    const uint8_t *m;
    int64_t n, chunk; /* elements in all, in a chunk */
    int64_t *before;  /* per chunk: how many are true in it, then in those before it */
    int ndim;
    const symint *size;
    int64_t *const *out;
    int64_t row;
    char *dst;
    const char *src;
} mask_job;

static void count_chunks(void *arg, int64_t b, int64_t e)
{
    const mask_job *j = arg;
    for (; b < e; b++)
        j->before[b] = ISA_PICK(count_true)(MIN(j->chunk, j->n - b * j->chunk), j->m + b * j->chunk);
}

/* Runs fill over the chunks, with the number of true elements before each known. */
static int64_t by_chunks(mask_job *j, pool_fn *fill)
{
    int64_t count = (j->n + j->chunk - 1) / j->chunk, sum = 0;
    j->before = mem_alloc(sizeof(int64_t) * (size_t)(count + 1));
    pool_for(count, 1, count_chunks, j);
    for (int64_t i = 0; i < count; i++) {
        int64_t c = j->before[i];
        j->before[i] = sum;
        sum += c;
    }
    j->before[count] = sum;
    if (fill && sum)
        pool_for(count, 1, fill, j);
    free(j->before);
    return sum;
}

int64_t mask_count(const uint8_t *m, int64_t n)
{
    return by_chunks(&(mask_job){ .m = m, .n = n, .chunk = CHUNK }, NULL);
}

/* A chunk is whole lines of the last dimension: only its coordinate differs within a line. */
static void fill_where(void *arg, int64_t b, int64_t e)
{
    const mask_job *j = arg;
    int last = j->ndim - 1;
    int64_t n = j->size[last], *in_line = j->out[last];
    for (int64_t i = b * j->chunk, end = MIN(j->n, e * j->chunk), w = j->before[b]; i < end; i += n) {
        const uint8_t *m = j->m + i;
        int64_t many = w + ISA_PICK(count_true)(n, m), first = w, rest = i / n;
        for (int64_t k = 0; w < many; k++) { /* no branch on the mask: it cannot be foreseen */
            in_line[w] = k;
            w += m[k] != 0;
        }
        for (int d = last - 1; d >= 0; d--) {
            int64_t at = rest % j->size[d], *o = j->out[d];
            rest /= j->size[d];
            for (int64_t k = first; k < many; k++)
                o[k] = at;
        }
    }
}
void mask_where(const uint8_t *m, int ndim, const symint *size, int64_t *const *out)
{
    mask_job j = { .m = m, .n = shape_numel(ndim, size), .ndim = ndim, .size = size, .out = out };
    if (!j.n || !ndim)
        return;
    int64_t line = size[ndim - 1];
    if (ndim == 1 &&
        line > CHUNK) { /* one long line: as lines of a chunk, whose first coordinate is put right */
        int64_t whole = line / CHUNK * CHUNK, first = 0;
        int64_t *high = mem_alloc(sizeof(int64_t) * (size_t)line);
        j.n = whole;
        j.ndim = 2;
        j.size = (symint[]){ line / CHUNK, CHUNK };
        j.out = (int64_t *[]){ high, out[0] };
        j.chunk = CHUNK;
        first = by_chunks(&j, fill_where);
        for (int64_t k = 0; k < first; k++)
            out[0][k] += high[k] * CHUNK;
        free(high);
        for (int64_t i = whole; i < line; i++)
            if (m[i])
                out[0][first++] = i;
        return;
    }
    j.chunk = MAX(1, CHUNK / line) * line;
    by_chunks(&j, fill_where);
}

static void fill_take(void *arg, int64_t b, int64_t e)
{
    const mask_job *j = arg;
    int64_t i = b * j->chunk, w = j->before[b], many = j->before[e];
    const uint8_t *m = j->m;
#define TAKE(T)                         \
    {                                   \
        T *o = (T *)j->dst;             \
        const T *s = (const T *)j->src; \
        for (; w < many; i++) {         \
            o[w] = s[i];                \
            w += m[i] != 0;             \
        }                               \
        break;                          \
    }
    switch (j->row) {
    case 1: TAKE(uint8_t)
    case 2: TAKE(uint16_t)
    case 4: TAKE(uint32_t)
    case 8: TAKE(uint64_t)
    default:
        for (; w < many; i++)
            if (m[i])
                memcpy(j->dst + w++ * j->row, j->src + i * j->row, (size_t)j->row);
    }
}
void mask_take(const uint8_t *m, int64_t n, int64_t row, void *dst, const void *src)
{
    by_chunks(&(mask_job){ .m = m, .n = n, .chunk = CHUNK, .row = row, .dst = dst, .src = src }, fill_take);
}

static void fill_put(void *arg, int64_t b, int64_t e)
{
    const mask_job *j = arg;
    int64_t i = b * j->chunk, end = MIN(j->n, e * j->chunk), w = j->before[b], top = MAX(j->before[e] - 1, w);
    const uint8_t *m = j->m;
    if (j->before[e] == w)
        return;
#define PUT(T)                                   \
    {                                            \
        T *o = (T *)j->dst;                      \
        const T *s = (const T *)j->src;          \
        for (; i < end; i++) {                   \
            T was = o[i], next = s[MIN(w, top)]; \
            o[i] = m[i] ? next : was;            \
            w += m[i] != 0;                      \
        }                                        \
        break;                                   \
    }
    switch (j->row) {
    case 1: PUT(uint8_t)
    case 2: PUT(uint16_t)
    case 4: PUT(uint32_t)
    default: PUT(uint64_t)
    }
}
void mask_put(const uint8_t *m, int64_t n, int64_t es, void *dst, const void *src)
{
    by_chunks(&(mask_job){ .m = m, .n = n, .chunk = CHUNK, .row = es, .dst = dst, .src = src }, fill_put);
}
