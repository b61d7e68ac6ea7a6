#include "flash_cases.h"
#include "test.h"
#include "vir/math/vnum.h"
#include <math.h>

typedef struct operand { /* matrices of rows x d of 16 bits, with gaps that nobody may write */
    uint16_t *p;
    double *v;                     /* matrix by matrix, without gaps */
    int heads, rows, count;        /* of an element of the batch; of a matrix; matrices */
    int by_batch, by_head, by_row; /* elements */
    size_t size;
} operand;

enum { GAP = 0x7b7b, BIAS_GAP = 3 };
static const int64_t seed_and_first[2] = { 0x123456789abcdef, 77 };

static int heads_of(const flash_case *c) { return MAX(c->heads, 1); }
static int group_of(const flash_case *c) { return MAX(c->group, 1); }
static int checked(const flash_case *c) { return c->check ? c->check : c->batch; }
static int key_matrix(const flash_case *c, int mat) { return mat / group_of(c); } /* groups divide heads */
static int place(const operand *o, int mat, int row)
{
    return mat / o->heads * o->by_batch + mat % o->heads * o->by_head + row * o->by_row;
}

static float narrow(const flash_case *c, float f, uint16_t *to)
{
    *to = c->dt == DT_f16 ? vnum_to_f16(f) : vnum_to_bf16(f);
    return c->dt == DT_f16 ? vnum_from_f16(*to) : vnum_from_bf16(*to);
}
static float wide(const flash_case *c, uint16_t h)
{
    return c->dt == DT_f16 ? vnum_from_f16(h) : vnum_from_bf16(h);
}

static operand operand_new(const flash_case *c, bool keys, float by, uint64_t seed)
{
    int pitch = c->d + c->gap, each = keys ? group_of(c) : 1;
    operand o = { .heads = heads_of(c) / each, .rows = keys ? c->n : c->m, .count = c->batch / each };
    o.by_row = c->mixed ? o.heads * pitch : pitch;
    o.by_head = c->mixed ? pitch : o.rows * pitch;
    o.by_batch = o.heads * o.rows * pitch;
    size_t n = (size_t)(o.count * o.rows * pitch);
    o.size = n * 2;
    o.p = mem_alloc(o.size + 2);
    o.v = mem_zalloc(sizeof *o.v * (n + 1));
    for (size_t i = 0; i < n; i++)
        o.p[i] = GAP;
    for (int r = 0; r < o.count * o.rows; r++)
        for (int j = 0; j < c->d && by != 0; j++) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            o.v[r * c->d + j] = narrow(c, by * ((float)(seed >> 40) / (float)(1 << 23) - 1),
                                       &o.p[place(&o, r / o.rows, r % o.rows) + j]);
        }
    return o;
}
static void operand_free(operand *o) { free(o->p), free(o->v); }

/* Everything in double: o, the gradients, and the two numbers of each row. */
typedef struct expected {
    double *o, *dq, *dk, *dv, *top, *part;
} expected;

/* The mask of a head: [heads, m, n + 3]. Of gapped cases all rows are the first. */
typedef struct bias {
    void *p;
    double *v; /* 0 or -inf, or what is added */
    size_t size;
    int by_row; /* elements */
} bias;
static bias bias_new(const flash_case *c)
{
    int pitch = c->n + BIAS_GAP, es = c->mask == FLASH_bool ? 1 : 2;
    size_t n = (size_t)(heads_of(c) * c->m * pitch);
    bias x = { mem_zalloc(n * (size_t)es + 2), mem_zalloc(8 * n), n * (size_t)es, c->gap ? 0 : pitch };
    uint64_t seed = 99;
    for (int i = 0; i < (int)n; i++) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        int row = i / pitch % c->m;
        bool kept = (seed >> 40) % 4 != 0 && row != 1; /* a row that meets nothing */
        if (c->mask == FLASH_bool)
            ((uint8_t *)x.p)[i] = kept;
        double f = row == 2
                       ? -3e38
                       : (double)(seed >> 50) / 4096 - 2; /* one whose scores are all as low as numbers get */
        float w = kept ? (float)f : -INFINITY;
        if (c->mask == FLASH_add)
            w = narrow(c, c->dt == DT_f16 && row == 2 ? -6e4f : w, (uint16_t *)x.p + i);
        else
            w = kept ? 0 : -INFINITY;
        x.v[i] = w;
    }
    return x;
}
static double bias_at(const flash_case *c, const bias *x, int mat, int i, int j)
{
    int pitch = c->n + BIAS_GAP;
    return x->p ? x->v[mat % heads_of(c) * c->m * pitch + i * x->by_row + j] : 0;
}

static double kept(const flash_case *c, int mat, int i, int j) /* what dropout multiplies a probability by */
{
    uint64_t at = ((uint64_t)mat * (uint64_t)c->m + (uint64_t)i) * (uint64_t)c->n + (uint64_t)j;
    uint32_t w = vnum_philox((uint64_t)seed_and_first[0], (uint64_t)seed_and_first[1] + at / 4,
                             (int)(at % 4));
    if (c->drops <= 0)
        return 1;
    return (float)(w >> 8) * 0x1p-24f < 1 - c->drops ? 1 / (double)(1 - c->drops) : 0;
}

static void reference(const flash_case *c, const operand *q, const operand *k, const operand *v,
                      const operand *g, const bias *mask, double scale, expected *x)
{
    double *p = mem_zalloc(sizeof *p * (size_t)c->n), *dp = mem_zalloc(sizeof *dp * (size_t)c->n);
    for (int b = 0; b < checked(c); b++)
        for (int i = 0; i < c->m; i++) {
            int row = b * c->m + i, meets = c->reach ? MIN(c->n, i + c->reach) : c->n;
            double top = -INFINITY, sum = 0, delta = 0;
            for (int j = 0; j < meets; j++) {
                int other = (key_matrix(c, b) * c->n + j) * c->d;
                p[j] = dp[j] = 0;
                for (int e = 0; e < c->d; e++) {
                    p[j] += scale * q->v[row * c->d + e] * k->v[other + e];
                    dp[j] += g->v[row * c->d + e] * v->v[other + e];
                }
                p[j] = (float)(p[j] + bias_at(c, mask, b, i, j)); /* as large numbers swallow small ones */
                dp[j] *= kept(c, b, i, j);
                top = fmax(top, p[j]);
            }
            bool none = top == -INFINITY;
            for (int j = 0; j < meets; j++)
                sum += p[j] = none ? 0 : exp(p[j] - top);
            for (int j = 0; j < meets; j++)
                p[j] = none ? 0 : p[j] / sum, delta += p[j] * dp[j];
            x->top[row] = none ? 0 : top, x->part[row] = none ? 0 : 1 / sum;
            for (int j = 0; j < meets; j++)
                for (int e = 0; e < c->d; e++) {
                    int at = (key_matrix(c, b) * c->n + j) * c->d + e, mine = row * c->d + e;
                    double ds = p[j] * (dp[j] - delta) * scale, d = p[j] * kept(c, b, i, j);
                    x->o[mine] += d * v->v[at];
                    x->dq[mine] += ds * k->v[at];
                    x->dk[at] += ds * q->v[mine];
                    x->dv[at] += d * g->v[mine];
                }
        }
    free(p), free(dp);
}

static void compare(const flash_case *c, const char *what, const operand *got, const double *want)
{
    double most = 0, worst = 0, rounding = c->dt == DT_f16 ? 0x1p-10 : 0x1p-7;
    int n = got->count == c->batch ? checked(c) : checked(c) / group_of(c);
    for (int r = 0; r < n * got->rows; r++)
        for (int j = 0; j < c->d + c->gap; j++) {
            uint16_t h = got->p[place(got, r / got->rows, r % got->rows) + j];
            if (j >= c->d) {
                if (h != GAP)
                    test_fail(__FILE__, __LINE__, "%s: d %d m %d n %d: written between rows", what, c->d,
                              c->m, c->n);
                continue;
            }
            double x = want[r * c->d + j], e = fabs(wide(c, h) - x);
            most = fmax(most, fabs(x));
            worst = e <= worst ? worst : e; /* NaN is the worst */
        }
    if (!(worst <= rounding * most))
        test_fail(__FILE__, __LINE__,
                  "%s: %s d %d batch %d m %d n %d reach %d mask %d drops %g: off by %g of %g", what,
                  dtype_name(c->dt), c->d, c->batch, c->m, c->n, c->reach, c->mask, c->drops, worst, most);
}

static bool launch(const flash_case *c, flash_kind kind, uint64_t *params, const ptx_buffer *bufs, int nbufs,
                   flash_run *run, void *ctx)
{
    flash_form f = c->wide && flash_is_wide(kind, c->d) ? flash_wide_of(kind, c->dt, c->d)
                                                        : flash_form_of(kind, c->dt, c->d, c->small);
    tp_err err = { 0 };
    int per = flash_block_rows(&f), rows = kind == FLASH_columns ? c->n : c->m;
    int matrices = kind == FLASH_columns ? c->batch / group_of(c) : c->batch;
    f.mask = c->mask, f.drops = c->drops > 0, f.ragged = c->n % 4 != 0;
    f.given = kind == FLASH_rows && c->given;
    params[FLASH_blocks] = (uint64_t)((rows + per - 1) / per);
    bool ok = run(ctx, c, &f, (int64_t)params[FLASH_blocks] * matrices, params, bufs, nbufs, &err);
    if (!ok)
        test_fail(__FILE__, __LINE__, "kind %d d %d m %d n %d reach %d: %s", kind, c->d, c->m, c->n, c->reach,
                  err.msg);
    return ok;
}

static void set_operand(uint64_t *params, int which, const operand *o)
{
    params[FLASH_q + which] = (uint64_t)(uintptr_t)o->p;
    params[FLASH_row + which] = (uint64_t)o->by_row * 2;
    params[FLASH_head + which] = (uint64_t)o->by_head * 2;
    params[FLASH_batch + which] = (uint64_t)o->by_batch * 2;
}
static uint64_t float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

void flash_check(const flash_case *c, flash_run *run, void *ctx)
{
    float scale = 1 / sqrtf((float)c->d);
    operand q = operand_new(c, false, c->grow, 1), k = operand_new(c, true, 1, 2),
            v = operand_new(c, true, 1, 3), g = operand_new(c, false, 1, 4), o = operand_new(c, false, 0, 5),
            dq = operand_new(c, false, 0, 5), dk = operand_new(c, true, 0, 5),
            dv = operand_new(c, true, 0, 5);
    bias mask = c->mask ? bias_new(c) : (bias){ 0 };
    size_t rows = (size_t)(c->batch * c->m), mine = rows * (size_t)c->d,
           other = (size_t)(c->batch * c->n * c->d);
    float *top = mem_zalloc(4 * rows), *part = mem_zalloc(4 * rows), *stats = mem_zalloc(8 * rows);
    expected x = { mem_zalloc(8 * mine),  mem_zalloc(8 * mine), mem_zalloc(8 * other),
                   mem_zalloc(8 * other), mem_zalloc(8 * rows), mem_zalloc(8 * rows) };
    const operand *all[6] = { &q, &k, &v, &g, &o, &dv };
    int64_t numbers[2] = { seed_and_first[0], seed_and_first[1] };
    ptx_buffer bufs[13] = { { q.p, q.size },      { k.p, k.size },     { v.p, v.size },
                            { g.p, g.size },      { o.p, o.size },     { dq.p, dq.size },
                            { dk.p, dk.size },    { dv.p, dv.size },   { top, 4 * rows },
                            { part, 4 * rows },   { stats, 8 * rows }, { numbers, sizeof numbers },
                            { mask.p, mask.size } };
    int nbufs = c->mask ? 13 : 12;
    uint64_t params[FLASH_PARAMS] = { 0 };
    for (int i = 0; i < 6; i++)
        set_operand(params, i, all[i]);
    params[FLASH_m] = (uint64_t)c->m, params[FLASH_n] = (uint64_t)c->n;
    params[FLASH_reach] = c->reach ? (uint64_t)c->reach : FLASH_ALL;
    params[FLASH_scale] = float_bits(scale);
    params[FLASH_top] = (uint64_t)(uintptr_t)top, params[FLASH_part] = (uint64_t)(uintptr_t)part;
    params[FLASH_stats] = (uint64_t)(uintptr_t)stats;
    params[FLASH_heads] = (uint64_t)heads_of(c), params[FLASH_group] = (uint64_t)group_of(c);
    params[FLASH_seed] = (uint64_t)(uintptr_t)numbers;
    params[FLASH_keep] = float_bits(1 - c->drops), params[FLASH_more] = float_bits(1 / (1 - c->drops));
    if (c->mask) {
        uint64_t es = c->mask == FLASH_bool ? 1 : 2;
        params[FLASH_bias] = (uint64_t)(uintptr_t)mask.p;
        params[FLASH_bias_head] = (uint64_t)(c->m * (c->n + BIAS_GAP)) * es;
        params[FLASH_bias_row] = (uint64_t)mask.by_row * es, params[FLASH_bias_col] = es;
    }
    reference(c, &q, &k, &v, &g, &mask, scale, &x);
    if (launch(c, FLASH_forward, params, bufs, nbufs, run, ctx)) {
        compare(c, "o", &o, x.o);
        for (size_t i = 0; i < (size_t)(checked(c) * c->m); i++)
            if (!(fabs(top[i] - x.top[i]) <= 1e-4 * (1 + fabs(x.top[i])) &&
                  fabs(part[i] - x.part[i]) <= 1e-4 * x.part[i])) {
                test_fail(__FILE__, __LINE__, "d %d row %zu: top %g, not %g, part %g, not %g", c->d, i,
                          top[i], x.top[i], part[i], x.part[i]);
                break;
            }
    }
    set_operand(params, FLASH_x, &dq);
    set_operand(params, FLASH_y, &o);
    if (launch(c, FLASH_rows, params, bufs, nbufs, run, ctx))
        compare(c, "dq", &dq, x.dq);
    set_operand(params, FLASH_x, &dk);
    set_operand(params, FLASH_y, &dv);
    if (launch(c, FLASH_columns, params, bufs, nbufs, run, ctx)) {
        compare(c, "dk", &dk, x.dk);
        compare(c, "dv", &dv, x.dv);
    }
    operand *gone[] = { &q, &k, &v, &g, &o, &dq, &dk, &dv };
    for (size_t i = 0; i < COUNT(gone); i++)
        operand_free(gone[i]);
    free(top), free(part), free(stats);
    free(mask.p), free(mask.v);
    free(x.o), free(x.dq), free(x.dk), free(x.dv), free(x.top), free(x.part);
}
