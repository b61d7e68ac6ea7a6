/* Sorting and selecting on the device: the texts. What they compute is in tests/py/test_cuda_order.py, against the CPU. */
#include "ptx_tool.h"
#include "target/cuda/order_text.h"
#include "target/cuda/select_text.h"
#include "test.h"
#include <stdio.h>

static const char *const names[ORDER_KINDS] = { "order_count", "order_scan", "order_scatter", "order_rows" };

static void assemble(const order_form *f)
{
    strbuf text = { 0 };
    char who[64];
    snprintf(who, sizeof who, "%s of %s, %d rounds", names[f->kind], dtype_name(f->dt), f->rounds);
    order_text(&text, f);
    ptx_assemble(strbuf_str(&text), f->dt % 2 ? "sm_80" : "sm_90", who);
    strbuf_free(&text);
}

/* Every kind and type with few elements a thread, and the largest forms, which must fit the static shared memory of a block. */
TEST(order_assembles)
{
    for (int dt = 0; dt <= DT_f64; dt++)
        for (int kind = 0; kind < ORDER_KINDS; kind++)
            for (int first = kind == ORDER_rows; first < (kind == ORDER_scan ? 1 : 2); first++)
                assemble(&(order_form){ (order_kind)kind, (dtype)dt, first, first || kind == ORDER_rows, 1 });
    for (int dt = DT_f32; dt <= DT_f64; dt++)
        for (int kind = 0; kind < ORDER_KINDS; kind++)
            assemble(&(order_form){ (order_kind)kind, (dtype)dt, true, kind == ORDER_rows,
                                    kind == ORDER_scan ? 2 : order_rounds((dtype)dt) });
}

/* The reviewed text of one form of each kind; TAPER_BLESS=1 writes them anew. */
TEST(order_golden)
{
    for (int kind = 0; kind < ORDER_KINDS; kind++) {
        bool rows = kind == ORDER_rows;
        order_form f = { (order_kind)kind, rows ? DT_f64 : DT_f32, rows || kind == ORDER_count, true,
                         kind == ORDER_scan ? 2 : 1 };
        strbuf text = { 0 };
        order_text(&text, &f);
        ptx_same_text(names[kind], &text);
        strbuf_free(&text);
    }
}

static const char *const select_names[SELECT_KINDS] = { "select_count", "select_scan", "select_write",
                                                        "select_lengths", "select_search" };

TEST(select_assembles)
{
    for (int dt = 0; dt <= DT_f64; dt++)
        for (int kind = 0; kind < SELECT_KINDS; kind++) {
            bool search = kind == SELECT_search;
            if (search && dt != DT_i64 && dt < DT_f32)
                continue;
            for (int form = 0; form < 2; form++) {
                select_form f = { .kind = (select_kind)kind,
                                  .dt = (dtype)dt,
                                  .runs = form,
                                  .ndim = 3,
                                  .right = form,
                                  .narrow = form };
                strbuf text = { 0 };
                select_text(&text, &f);
                ptx_assemble(strbuf_str(&text), dt % 2 ? "sm_80" : "sm_90", select_names[kind]);
                strbuf_free(&text);
            }
        }
}

TEST(select_golden)
{
    for (int kind = 0; kind < SELECT_KINDS; kind++) {
        select_form f = {
            .kind = (select_kind)kind, .dt = DT_f32, .runs = kind == SELECT_write, .ndim = 2, .right = true
        };
        strbuf text = { 0 };
        select_text(&text, &f);
        ptx_same_text(select_names[kind], &text);
        strbuf_free(&text);
    }
}
