#include "flash_cases.h"
#include "test.h"
#include "vir/math/vnum.h"
#include <math.h>

typedef struct operand { /* batch x rows x d of 16 bits, with gaps that nobody may write */
    uint16_t *p;
    double *v;
    int rows, pitch;
    size_t size;
} operand;

enum { GAP = 0x7b7b };

static int checked(const flash_case *c) { return c->check ? c->check : c->batch; }

static float narrow(const flash_case *c, float f, uint16_t *to)
{
    *to = c->dt == DT_f16 ? vnum_to_f16(f) : vnum_to_bf16(f);
    return c->dt == DT_f16 ? vnum_from_f16(*to) : vnum_from_bf16(*to);
}
static float wide(const flash_case *c, uint16_t h)
{
    return c->dt == DT_f16 ? vnum_from_f16(h) : vnum_from_bf16(h);
}

static operand operand_new(const flash_case *c, int rows, float by, uint64_t seed)
{
    operand o = { .rows = rows, .pitch = c->d + c->gap };
    size_t n = (size_t)(c->batch * rows * o.pitch);
    o.size = n * 2;
    o.p = mem_alloc(o.size + 2);
    o.v = mem_zalloc(sizeof *o.v * (n + 1));
    for (size_t i = 0; i < n; i++)
        o.p[i] = GAP;
    for (int r = 0; r < c->batch * rows; r++)
        for (int j = 0; j < c->d && by != 0; j++) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            o.v[r * c->d + j] = narrow(c, by * ((float)(seed >> 40) / (float)(1 << 23) - 1),
                                       &o.p[r * o.pitch + j]);
        }
    return o;
}
static void operand_free(operand *o) { free(o->p), free(o->v); }

/* Everything in double: o, the gradients, and the two numbers of each row. */
typedef struct expected {
    double *o, *dq, *dk, *dv, *top, *part;
} expected;

static void reference(const flash_case *c, const operand *q, const operand *k, const operand *v,
                      const operand *g, double scale, expected *x)
{
    double *p = mem_zalloc(sizeof *p * (size_t)c->n), *dp = mem_zalloc(sizeof *dp * (size_t)c->n);
    for (int b = 0; b < checked(c); b++)
        for (int i = 0; i < c->m; i++) {
            int row = b * c->m + i, meets = c->reach ? MIN(c->n, i + c->reach) : c->n;
            double top = -INFINITY, sum = 0, delta = 0;
            for (int j = 0; j < meets; j++) {
                const double *kj = k->v + (b * c->n + j) * c->d, *vj = v->v + (b * c->n + j) * c->d;
                p[j] = dp[j] = 0;
                for (int e = 0; e < c->d; e++)
                    p[j] += scale * q->v[row * c->d + e] * kj[e], dp[j] += g->v[row * c->d + e] * vj[e];
                top = fmax(top, p[j]);
            }
            for (int j = 0; j < meets; j++)
                sum += p[j] = exp(p[j] - top);
            for (int j = 0; j < meets; j++)
                p[j] /= sum, delta += p[j] * dp[j];
            x->top[row] = top, x->part[row] = 1 / sum;
            for (int j = 0; j < meets; j++)
                for (int e = 0; e < c->d; e++) {
                    int at = (b * c->n + j) * c->d + e, mine = row * c->d + e;
                    double ds = p[j] * (dp[j] - delta) * scale;
                    x->o[mine] += p[j] * v->v[at];
                    x->dq[mine] += ds * k->v[at];
                    x->dk[at] += ds * q->v[mine];
                    x->dv[at] += p[j] * g->v[mine];
                }
        }
    free(p), free(dp);
}

static void compare(const flash_case *c, const char *what, const operand *got, const double *want)
{
    double most = 0, worst = 0, rounding = c->dt == DT_f16 ? 0x1p-10 : 0x1p-7;
    for (int r = 0; r < checked(c) * got->rows; r++)
        for (int j = 0; j < got->pitch; j++) {
            uint16_t h = got->p[r * got->pitch + j];
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
        test_fail(__FILE__, __LINE__, "%s: %s d %d batch %d m %d n %d reach %d: off by %g of %g", what,
                  dtype_name(c->dt), c->d, c->batch, c->m, c->n, c->reach, worst, most);
}

static bool launch(const flash_case *c, flash_kind kind, uint64_t *params, const ptx_buffer *bufs, int nbufs,
                   flash_run *run, void *ctx)
{
    flash_form f = flash_form_of(kind, c->dt, c->d, c->small);
    tp_err err = { 0 };
    int per = flash_block_rows(&f), rows = kind == FLASH_columns ? c->n : c->m;
    params[FLASH_blocks] = (uint64_t)((rows + per - 1) / per);
    bool ok = run(ctx, c, &f, (int64_t)params[FLASH_blocks] * c->batch, params, bufs, nbufs, &err);
    if (!ok)
        test_fail(__FILE__, __LINE__, "kind %d d %d m %d n %d reach %d: %s", kind, c->d, c->m, c->n, c->reach,
                  err.msg);
    return ok;
}

void flash_check(const flash_case *c, flash_run *run, void *ctx)
{
    float scale = 1 / sqrtf((float)c->d);
    operand q = operand_new(c, c->m, c->grow, 1), k = operand_new(c, c->n, 1, 2),
            v = operand_new(c, c->n, 1, 3), g = operand_new(c, c->m, 1, 4), o = operand_new(c, c->m, 0, 5),
            dq = operand_new(c, c->m, 0, 5), dk = operand_new(c, c->n, 0, 5), dv = operand_new(c, c->n, 0, 5);
    size_t rows = (size_t)(c->batch * c->m), mine = rows * (size_t)c->d,
           other = (size_t)(c->batch * c->n * c->d);
    float *top = mem_zalloc(4 * rows), *part = mem_zalloc(4 * rows), *stats = mem_zalloc(8 * rows);
    expected x = { mem_zalloc(8 * mine),  mem_zalloc(8 * mine), mem_zalloc(8 * other),
                   mem_zalloc(8 * other), mem_zalloc(8 * rows), mem_zalloc(8 * rows) };
    const operand *all[6] = { &q, &k, &v, &g, &o, &dv };
    ptx_buffer bufs[11] = { { q.p, q.size },   { k.p, k.size },    { v.p, v.size },    { g.p, g.size },
                            { o.p, o.size },   { dq.p, dq.size },  { dk.p, dk.size },  { dv.p, dv.size },
                            { top, 4 * rows }, { part, 4 * rows }, { stats, 8 * rows } };
    uint64_t params[FLASH_PARAMS] = { 0 };
    uint32_t bits;
    memcpy(&bits, &scale, 4);
    for (int i = 0; i < 6; i++) {
        params[FLASH_q + i] = (uint64_t)(uintptr_t)all[i]->p;
        params[FLASH_row + i] = (uint64_t)all[i]->pitch * 2;
        params[FLASH_batch + i] = (uint64_t)(all[i]->rows * all[i]->pitch) * 2;
    }
    params[FLASH_m] = (uint64_t)c->m, params[FLASH_n] = (uint64_t)c->n;
    params[FLASH_reach] = c->reach ? (uint64_t)c->reach : FLASH_ALL;
    params[FLASH_scale] = bits;
    params[FLASH_top] = (uint64_t)(uintptr_t)top, params[FLASH_part] = (uint64_t)(uintptr_t)part;
    params[FLASH_stats] = (uint64_t)(uintptr_t)stats;
    reference(c, &q, &k, &v, &g, scale, &x);
    if (launch(c, FLASH_forward, params, bufs, 11, run, ctx)) {
        compare(c, "o", &o, x.o);
        for (size_t i = 0; i < (size_t)(checked(c) * c->m); i++)
            if (!(fabs(top[i] - x.top[i]) <= 1e-4 * (1 + fabs(x.top[i])) &&
                  fabs(part[i] / x.part[i] - 1) <= 1e-4)) {
                test_fail(__FILE__, __LINE__, "d %d row %zu: top %g, not %g, part %g, not %g", c->d, i,
                          top[i], x.top[i], part[i], x.part[i]);
                break;
            }
    }
    params[FLASH_x] = (uint64_t)(uintptr_t)dq.p;
    if (launch(c, FLASH_rows, params, bufs, 11, run, ctx))
        compare(c, "dq", &dq, x.dq);
    params[FLASH_x] = (uint64_t)(uintptr_t)dk.p;
    params[FLASH_row + FLASH_x] = (uint64_t)dk.pitch * 2;
    params[FLASH_batch + FLASH_x] = (uint64_t)(dk.rows * dk.pitch) * 2;
    if (launch(c, FLASH_columns, params, bufs, 11, run, ctx)) {
        compare(c, "dk", &dk, x.dk);
        compare(c, "dv", &dv, x.dv);
    }
    operand *gone[] = { &q, &k, &v, &g, &o, &dq, &dk, &dv };
    for (size_t i = 0; i < COUNT(gone); i++)
        operand_free(gone[i]);
    free(top), free(part), free(stats);
    free(x.o), free(x.dq), free(x.dk), free(x.dv), free(x.top), free(x.part);
}
