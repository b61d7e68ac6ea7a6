/* Attention in one kernel: its PTX run by the interpreter agrees with sums in double, and ptxas takes every form of it. */
#include "test.h"
#include "ptx_interp.h"
#include "ptx_tool.h"
#include "target/cuda/flash_text.h"
#include "vir/math/vnum.h"
#include <math.h>

typedef struct flash_case {
    dtype dt;
    int d, batch, m, n, reach; /* reach 0: all */
    int gap;                   /* elements between rows that belong to somebody else */
    bool small;
    float grow; /* of q: larger scores */
} flash_case;

typedef struct operand { /* batch x rows x d of 16 bits, with gaps that nobody may write */
    uint16_t *p;
    double *v;
    int rows, pitch;
    size_t size;
} operand;

enum { GAP = 0x7b7b };

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
    for (int b = 0; b < c->batch; b++)
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
    for (int r = 0; r < c->batch * got->rows; r++)
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

static bool launch(const flash_case *c, flash_kind kind, uint64_t *params, const ptx_buffer *bufs, int nbufs)
{
    flash_form f = flash_form_of(kind, c->dt, c->d, c->small);
    strbuf text = { 0 };
    tp_err err = { 0 };
    int per = flash_block_rows(&f), rows = kind == FLASH_columns ? c->n : c->m;
    flash_text(&text, &f);
    ptx_module *m = ptx_parse(strbuf_str(&text), &err);
    params[FLASH_blocks] = (uint64_t)((rows + per - 1) / per);
    bool ok = m && ptx_run(m, "flash", (int64_t)params[FLASH_blocks] * c->batch, 32 * f.warps, params, bufs,
                           nbufs, true, &err);
    if (!ok)
        test_fail(__FILE__, __LINE__, "kind %d d %d m %d n %d reach %d: %s", kind, c->d, c->m, c->n, c->reach,
                  err.msg);
    if (m)
        ptx_module_free(m);
    strbuf_free(&text);
    return ok;
}

static void check_case(const flash_case *c)
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
    if (launch(c, FLASH_forward, params, bufs, 11)) {
        compare(c, "o", &o, x.o);
        for (size_t i = 0; i < rows; i++)
            if (!(fabs(top[i] - x.top[i]) <= 1e-4 * (1 + fabs(x.top[i])) &&
                  fabs(part[i] / x.part[i] - 1) <= 1e-4)) {
                test_fail(__FILE__, __LINE__, "d %d row %zu: top %g, not %g, part %g, not %g", c->d, i,
                          top[i], x.top[i], part[i], x.part[i]);
                break;
            }
    }
    params[FLASH_x] = (uint64_t)(uintptr_t)dq.p;
    if (launch(c, FLASH_rows, params, bufs, 11))
        compare(c, "dq", &dq, x.dq);
    params[FLASH_x] = (uint64_t)(uintptr_t)dk.p;
    params[FLASH_row + FLASH_x] = (uint64_t)dk.pitch * 2;
    params[FLASH_batch + FLASH_x] = (uint64_t)(dk.rows * dk.pitch) * 2;
    if (launch(c, FLASH_columns, params, bufs, 11)) {
        compare(c, "dk", &dk, x.dk);
        compare(c, "dv", &dv, x.dv);
    }
    operand *gone[] = { &q, &k, &v, &g, &o, &dq, &dk, &dv };
    for (size_t i = 0; i < COUNT(gone); i++)
        operand_free(gone[i]);
    free(top), free(part), free(stats);
    free(x.o), free(x.dq), free(x.dk), free(x.dv), free(x.top), free(x.part);
}

TEST(flash_agrees)
{
    static const flash_case cases[] = {
        { DT_bf16, 64, 2, 197, 197, 0, .grow = 1 },
        { DT_f16, 64, 1, 130, 130, 1, .grow = 4 },
        { DT_bf16, 64, 1, 70, 200, 131, .gap = 8, .small = true, .grow = 4 },
        { DT_bf16, 16, 3, 33, 70, 0, .gap = 16, .small = true, .grow = 1 },
        { DT_f16, 16, 1, 257, 65, 1, .grow = 1 },  /* rows that meet all, columns that few meet */
        { DT_bf16, 32, 1, 40, 300, 5, .grow = 1 }, /* columns that no row meets */
        { DT_f16, 48, 1, 20, 20, 3, .grow = 1 },
        { DT_bf16, 80, 1, 140, 150, 0, .gap = 80, .grow = 1 },
        { DT_f16, 80, 2, 65, 65, 1, .small = true, .grow = 30 }, /* one score outweighs the others */
        { DT_bf16, 96, 1, 50, 100, 51, .grow = 1 },
        { DT_f16, 112, 1, 17, 49, 0, .grow = 1 },
        { DT_bf16, 128, 1, 150, 100, 1, .grow = 1 },
        { DT_f16, 128, 2, 40, 129, 0, .small = true, .gap = 8, .grow = 1 },
        { DT_bf16, 128, 1, 1, 1, 0, .grow = 1 },
        { DT_bf16, 64, 5, 1, 77, 0, .small = true, .grow = 2 },
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_case(&cases[i]);
}

/* Scores that are -inf or NaN give what softmax gives: a row of nothing but -inf is NaN, others do not care. */
TEST(flash_infinite)
{
    enum { D = 16, M = 3, N = 130 };
    uint16_t q[M * D], k[N * D], v[N * D], o[M * D];
    flash_case c = { DT_bf16, D, 1, M, N, .small = true };
    /* row 0 meets -inf at the first 128 keys and 0 at the others, row 1 -inf everywhere, row 2 NaN */
    for (int i = 0; i < M * D; i++)
        q[i] = vnum_to_bf16(i == 0 || i == D + 1 ? 3e38f : i == 2 * D ? NAN : 0);
    for (int i = 0; i < N * D; i++) {
        k[i] = vnum_to_bf16((i % D == 0 && i / D < 128) || i % D == 1 ? -3e38f : 0);
        v[i] = vnum_to_bf16((float)(i / D));
    }
    uint64_t params[FLASH_PARAMS] = { (uintptr_t)q, (uintptr_t)k, (uintptr_t)v, 0, (uintptr_t)o };
    float one = 1;
    uint32_t bits;
    memcpy(&bits, &one, 4);
    for (int i = 0; i < 6; i++)
        params[FLASH_row + i] = 2 * D;
    params[FLASH_m] = M, params[FLASH_n] = N, params[FLASH_reach] = FLASH_ALL, params[FLASH_scale] = bits;
    ptx_buffer bufs[] = { { q, sizeof q }, { k, sizeof k }, { v, sizeof v }, { o, sizeof o } };
    if (!launch(&c, FLASH_forward, params, bufs, 4))
        return;
    CHECK(fabsf(vnum_from_bf16(o[0]) - 128.5f) <= 0.5f);
    CHECK(isnan(vnum_from_bf16(o[D])) && isnan(vnum_from_bf16(o[2 * D])));
}

/* Every form for both targets; a form must fit into the static shared memory of a block. */
TEST(flash_assembles)
{
    for (int kind = 0; kind < FLASH_KINDS; kind++)
        for (int d = FLASH_LEAST; d <= FLASH_MOST; d += 16)
            for (int small = 0; small < (kind == FLASH_columns ? 1 : 2); small++) {
                flash_form f = flash_form_of((flash_kind)kind, d % 32 ? DT_f16 : DT_bf16, d, small);
                strbuf text = { 0 };
                char who[64];
                snprintf(who, sizeof who, "flash kind %d, heads of %d", kind, d);
                flash_text(&text, &f);
                CHECK(4 * f.cols * (2 * d + 16) <= 48 << 10);
                ptx_assemble(strbuf_str(&text), d % 64 ? "sm_80" : "sm_90", who);
                if (d == 64 || d == 128)
                    ptx_assemble(strbuf_str(&text), "sm_80", who);
                strbuf_free(&text);
            }
}

/* The reviewed text of one form of each kind; TAPER_BLESS=1 writes them anew. */
TEST(flash_golden)
{
    static const char *const names[] = { "flash_forward", "flash_rows", "flash_columns" };
    for (int kind = 0; kind < FLASH_KINDS; kind++) {
        flash_form f = { (flash_kind)kind, DT_bf16, 16, .warps = 4, .tiles = 1, .cols = 16 };
        strbuf text = { 0 };
        char path[512];
        snprintf(path, sizeof path, "%s/tests/ptx/%s.ptx", TP_SOURCE_DIR, names[kind]);
        flash_text(&text, &f);
        if (getenv("TAPER_BLESS")) {
            FILE *o = fopen(path, "w");
            fputs(strbuf_str(&text), o);
            fclose(o);
        }
        FILE *in = fopen(path, "r");
        char *want = mem_zalloc(text.n + 2);
        size_t n = in ? fread(want, 1, text.n + 1, in) : 0;
        if (n != text.n || memcmp(want, text.s, n))
            test_fail(__FILE__, __LINE__, "%s: the text differs from %s (TAPER_BLESS=1 rewrites it)",
                      names[kind], path);
        if (in)
            fclose(in);
        free(want);
        strbuf_free(&text);
    }
}
