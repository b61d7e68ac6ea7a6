/* fake_cublaslt.c - a library with the functions of libcublasLt that Taper calls: plain loops over the memory of fake_cuda.c, in the
 * order of its queues. Refused are: what is not set, sizes that do not fit together, leading dimensions that are too small, memory that
 * is not the device's, epilogues that do not exist. The environment: FAKE_CUBLASLT_EPILOGUES=0 finds no algorithm for an epilogue;
 * FAKE_CUBLASLT_LOG names a file that gets a line for each product. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
extern int fake_cuda_call(void *q, void (*call)(void *data), void *data);
extern bool fake_cuda_holds(const void *p, size_t n);

enum { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15, EXECUTION_FAILED = 13 };
enum { FLOAT = 0, DOUBLE = 1, HALF = 2, BFLOAT16 = 14, COMPUTE_32F = 68, COMPUTE_64F = 70, ALGORITHMS = 3 };
enum { KIND_handle = 0x71, KIND_desc, KIND_layout, KIND_pref };
typedef struct thing {
    int kind;
    int compute, scale, turned[2], epilogue; /* of a product */
    const void *bias;
    int type; /* of a layout */
    uint64_t rows, cols;
    int64_t ld, step;
    int batch;
    size_t workspace; /* of a preference */
} thing;
typedef struct found {
    uint64_t data[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
} found;
_Static_assert(sizeof(found) == 96, "as in cublasLt.h");

static int make(void **out, thing t)
{
    return out ? (*out = memcpy(malloc(sizeof t), &t, sizeof t), SUCCESS) : INVALID_VALUE;
}
static thing *is(void *p, int kind)
{
    thing *t = p;
    return t && t->kind == kind ? t : NULL;
}
static int drop(void *p, int kind) { return is(p, kind) ? (free(p), SUCCESS) : INVALID_VALUE; }
static int bytes_of(int type) { return type == DOUBLE ? 8 : type == FLOAT ? 4 : 2; }

API int cublasLtCreate(void **h) { return make(h, (thing){ .kind = KIND_handle }); }
API int cublasLtMatmulDescCreate(void **d, int compute, int scale)
{
    return make(d, (thing){ .kind = KIND_desc, .compute = compute, .scale = scale, .epilogue = 1 });
}
API int cublasLtMatmulDescDestroy(void *d) { return drop(d, KIND_desc); }
API int cublasLtMatmulDescSetAttribute(void *d, int what, const void *v, size_t n)
{
    thing *t = is(d, KIND_desc);
    if (!t || !v)
        return INVALID_VALUE;
    if (what == 3 && n == sizeof(int))
        t->turned[0] = *(const int *)v;
    else if (what == 4 && n == sizeof(int))
        t->turned[1] = *(const int *)v;
    else if (what == 7 && n == sizeof(int))
        t->epilogue = *(const int *)v;
    else if (what == 8 && n == sizeof(void *))
        memcpy(&t->bias, v, n);
    else
        return INVALID_VALUE;
    return SUCCESS;
}
API int cublasLtMatrixLayoutCreate(void **l, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    if (!rows || !cols || ld < (int64_t)rows)
        return INVALID_VALUE;
    return make(
        l, (thing){ .kind = KIND_layout, .type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1 });
}
API int cublasLtMatrixLayoutDestroy(void *l) { return drop(l, KIND_layout); }
API int cublasLtMatrixLayoutSetAttribute(void *l, int what, const void *v, size_t n)
{
    thing *t = is(l, KIND_layout);
    if (!t || !v)
        return INVALID_VALUE;
    if (what == 5 && n == sizeof(int))
        t->batch = *(const int *)v;
    else if (what == 6 && n == sizeof(int64_t))
        t->step = *(const int64_t *)v;
    else
        return INVALID_VALUE;
    return SUCCESS;
}
API int cublasLtMatmulPreferenceCreate(void **p) { return make(p, (thing){ .kind = KIND_pref }); }
API int cublasLtMatmulPreferenceDestroy(void *p) { return drop(p, KIND_pref); }
API int cublasLtMatmulPreferenceSetAttribute(void *p, int what, const void *v, size_t n)
{
    thing *t = is(p, KIND_pref);
    if (!t || what != 1 || n != sizeof(size_t))
        return INVALID_VALUE;
    t->workspace = *(const size_t *)v;
    return SUCCESS;
}

static bool is_known(int epilogue)
{
    return epilogue == 1 || epilogue == 2 || epilogue == 4 || epilogue == 6 || epilogue == 32 ||
           epilogue == 36;
}

typedef struct job {
    thing d, a, b, o;
    double alpha, beta;
    const char *pa, *pb, *pc;
    char *po;
} job;

static bool fits(const thing *d, const thing *a, const thing *b, const thing *o)
{
    uint64_t m = d->turned[0] ? a->cols : a->rows, ka = d->turned[0] ? a->rows : a->cols;
    uint64_t kb = d->turned[1] ? b->cols : b->rows, n = d->turned[1] ? b->rows : b->cols;
    return is_known(d->epilogue) && a->type == b->type && ka == kb && o->rows == m && o->cols == n &&
           a->batch == o->batch && b->batch == o->batch &&
           (o->type == a->type || (o->type == FLOAT && bytes_of(a->type) == 2));
}

API int cublasLtMatmulAlgoGetHeuristic(void *h, void *desc, void *la, void *lb, void *lc, void *ld,
                                       void *pref, int most, found *out, int *n)
{
    thing *d = is(desc, KIND_desc), *a = is(la, KIND_layout), *b = is(lb, KIND_layout),
          *o = is(ld, KIND_layout);
    const char *epilogues = getenv("FAKE_CUBLASLT_EPILOGUES");
    *n = 0;
    if (!is(h, KIND_handle) || !d || !a || !b || !o || !is(lc, KIND_layout) || !is(pref, KIND_pref) ||
        !fits(d, a, b, o))
        return INVALID_VALUE;
    if (d->epilogue != 1 && d->epilogue != 4 && epilogues && !strcmp(epilogues, "0"))
        return NOT_SUPPORTED;
    for (int i = 0; i < most && i < ALGORITHMS; i++)
        out[(*n)++] = (found){ .data = { (uint64_t)i + 1 } };
    return SUCCESS;
}

static double load(int type, const char *p, int64_t i)
{
    if (type == DOUBLE)
        return ((const double *)p)[i];
    if (type == FLOAT)
        return ((const float *)p)[i];
    if (type == HALF)
        return (double)((const _Float16 *)p)[i];
    uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static void store(int type, char *p, int64_t i, double v)
{
    float f = (float)v;
    uint32_t u;
    if (type == DOUBLE)
        ((double *)p)[i] = v;
    else if (type == FLOAT)
        ((float *)p)[i] = f;
    else if (type == HALF)
        ((_Float16 *)p)[i] = (_Float16)f;
    else {
        memcpy(&u, &f, 4);
        ((uint16_t *)p)[i] = f != f ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
}

static double activated(int epilogue, double v)
{
    if (epilogue == 2 || epilogue == 6)
        return v > 0 ? v : 0;
    if (epilogue == 32 || epilogue == 36)
        return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    return v;
}

/* A factor of one batch as rows of k numbers. */
static double *rows_of(const thing *l, const char *p, int64_t q, bool turned, int64_t n, int64_t k)
{
    double *x = malloc(sizeof *x * (size_t)(n * k));
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < k; i++)
            x[r * k + i] = load(l->type, p, q * l->step + (turned ? i * l->ld + r : r * l->ld + i));
    return x;
}

/* What is recorded runs more than once: the job stays. */
static void run(void *data)
{
    job *j = data;
    int64_t m = (int64_t)j->o.rows, n = (int64_t)j->o.cols,
            k = (int64_t)(j->d.turned[0] ? j->a.rows : j->a.cols);
    for (int64_t q = 0; q < j->o.batch; q++) {
        double *x = rows_of(&j->a, j->pa, q, !j->d.turned[0], m, k),
               *y = rows_of(&j->b, j->pb, q, j->d.turned[1], n, k);
        for (int64_t c = 0; c < n; c++)
            for (int64_t r = 0; r < m; r++) {
                double sum = 0;
                int64_t at = q * j->o.step + c * j->o.ld + r;
                for (int64_t i = 0; i < k; i++)
                    sum += x[r * k + i] * y[c * k + i];
                double v = j->alpha * sum;
                if (j->beta != 0)
                    v += j->beta * load(j->o.type, j->pc, at);
                if (j->d.epilogue & 4)
                    v += load(j->o.type, j->d.bias, r);
                store(j->o.type, j->po, at, activated(j->d.epilogue, v));
            }
        free(x), free(y);
    }
}

static bool held(const thing *l, const void *p)
{
    int64_t last = (l->batch - 1) * l->step + ((int64_t)l->cols - 1) * l->ld + (int64_t)l->rows;
    return p && fake_cuda_holds(p, (size_t)last * (size_t)bytes_of(l->type));
}

API int cublasLtMatmul(void *h, void *desc, const void *alpha, const void *pa, void *la, const void *pb,
                       void *lb, const void *beta, const void *pc, void *lc, void *po, void *ld,
                       const found *how, void *room, size_t nroom, void *queue)
{
    thing *d = is(desc, KIND_desc), *a = is(la, KIND_layout), *b = is(lb, KIND_layout),
          *o = is(ld, KIND_layout);
    const char *log = getenv("FAKE_CUBLASLT_LOG");
    if (!is(h, KIND_handle) || !d || !a || !b || !o || lc != ld || !how || !how->data[0] ||
        !fits(d, a, b, o) || !held(a, pa) || !held(b, pb) || !held(o, po) || !held(o, pc))
        return INVALID_VALUE;
    if (d->epilogue & 4 && !fake_cuda_holds(d->bias, o->rows * (size_t)bytes_of(o->type)))
        return INVALID_VALUE;
    job *j = malloc(sizeof *j);
    *j = (job){ *d,
                *a,
                *b,
                *o,
                d->scale == DOUBLE ? *(const double *)alpha : *(const float *)alpha,
                d->scale == DOUBLE ? *(const double *)beta : *(const float *)beta,
                pa,
                pb,
                pc,
                po };
    FILE *f = log ? fopen(log, "a") : NULL;
    if (f) {
        fprintf(f, "%d x %d x %d epilogue %d ld %d algorithm %d\n", (int)o->cols,
                (int)(d->turned[0] ? a->rows : a->cols), (int)o->rows, d->epilogue, (int)o->ld,
                (int)how->data[0]);
        fclose(f);
    }
    return fake_cuda_call(queue, run, j) ? EXECUTION_FAILED : SUCCESS;
}
