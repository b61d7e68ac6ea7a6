/* Attention in one kernel: its PTX run by the interpreter agrees with sums in double, and ptxas takes every form of it. */
#include "test.h"
#include "flash_cases.h"
#include "ptx_tool.h"
#include "vir/math/vnum.h"
#include <math.h>

static bool interpret(void *ctx, const flash_case *c, const flash_form *f, int64_t blocks,
                      const uint64_t *params, const ptx_buffer *bufs, int nbufs, tp_err *err)
{
    strbuf text = { 0 };
    flash_text(&text, f);
    ptx_module *m = ptx_parse(strbuf_str(&text), err);
    bool ok = m && ptx_run(m, "flash", blocks, 32 * f->warps, params, bufs, nbufs, true, err);
    if (m)
        ptx_module_free(m);
    strbuf_free(&text);
    return ok;
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
        /* heads side by side in a row, of which several share those of k and v */
        { DT_bf16, 64, 6, 70, 70, 1, .small = true, .grow = 1, .heads = 3, .mixed = true },
        { DT_f16, 32, 8, 65, 90, 0, .grow = 1, .heads = 4, .group = 2, .mixed = true, .gap = 8,
          .given = true },
        { DT_bf16, 128, 4, 40, 40, 1, .small = true, .grow = 1, .heads = 4, .group = 4, .given = true },
        { DT_f16, 64, 2, 130, 130, 1, .grow = 2, .given = true },
        { DT_bf16, 16, 4, 100, 70, 0, .grow = 1, .heads = 2, .mask = FLASH_bool },
        { DT_f16, 32, 4, 40, 70, 0, .grow = 1, .heads = 2, .mask = FLASH_bool, .given = true, .gap = 8 },
        { DT_bf16, 64, 4, 70, 50, 0, .small = true, .grow = 1, .heads = 4, .group = 2, .mask = FLASH_add,
          .given = true },
        { DT_f16, 128, 2, 33, 40, 0, .grow = 1, .heads = 2, .mask = FLASH_add },
        { DT_bf16, 64, 2, 70, 80, 1, .grow = 1, .drops = 0.25f, .given = true },
        { DT_f16, 128, 2, 33, 70, 0, .grow = 1, .heads = 2,
          .drops = 0.5f }, /* rows begin anywhere in a block of numbers */
        { DT_bf16, 16, 4, 40, 36, 0, .grow = 1, .heads = 4, .group = 2, .drops = 0.1f, .mask = FLASH_add,
          .given = true },
        /* products of a warpgroup: one of both has no rows, or meets nothing more */
        { DT_bf16, 64, 2, 197, 197, 0, .grow = 1, .given = true, .wide = true },
        { DT_f16, 128, 1, 130, 200, 0, .grow = 4, .small = true, .wide = true },
        { DT_bf16, 128, 4, 260, 260, 1, .grow = 1, .heads = 4, .group = 2, .mixed = true, .wide = true },
        { DT_bf16, 64, 2, 40, 300, 5, .grow = 1, .gap = 8, .wide = true },
        { DT_f16, 64, 2, 150, 70, 0, .grow = 1, .heads = 2, .mask = FLASH_add, .given = true, .wide = true },
        { DT_bf16, 128, 2, 70, 130, 0, .grow = 1, .heads = 2, .mask = FLASH_bool, .drops = 0.25f,
          .wide = true },
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        flash_check(&cases[i], interpret, NULL);
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
    params[FLASH_heads] = params[FLASH_group] = 1;
    params[FLASH_m] = M, params[FLASH_n] = N, params[FLASH_reach] = FLASH_ALL, params[FLASH_scale] = bits;
    ptx_buffer bufs[] = { { q, sizeof q }, { k, sizeof k }, { v, sizeof v }, { o, sizeof o } };
    flash_form f = flash_form_of(FLASH_forward, c.dt, c.d, c.small);
    tp_err err = { 0 };
    params[FLASH_blocks] = 1;
    CHECK(interpret(NULL, &c, &f, 1, params, bufs, 4, &err));
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
                int form = d / 16 + small; /* masks and dropout take turns */
                f.mask = (flash_mask)(form % 3), f.drops = form % 4 == 1, f.ragged = form % 8 == 1;
                f.given = kind == FLASH_rows && d % 48;
                snprintf(who, sizeof who, "flash kind %d, heads of %d", kind, d);
                flash_text(&text, &f);
                CHECK(4 * f.cols * (2 * d + 16) <= 48 << 10);
                ptx_assemble(strbuf_str(&text), d % 64 ? "sm_80" : "sm_90", who);
                f.mask = FLASH_free, f.drops = f.ragged = f.given = false;
                text.n = 0;
                flash_text(&text, &f);
                if (d == 64 || d == 128)
                    ptx_assemble(strbuf_str(&text), "sm_80", who);
                for (int extra = 0; extra < 2 && flash_is_wide((flash_kind)kind, d); extra++) {
                    f = flash_wide_of((flash_kind)kind, DT_bf16, d);
                    f.mask = extra ? FLASH_add : FLASH_free, f.drops = extra, f.given = kind == FLASH_rows;
                    text.n = 0;
                    flash_text(&text, &f);
                    ptx_assemble(strbuf_str(&text), "sm_90a", who);
                }
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
