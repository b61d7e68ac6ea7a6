/* test_plan_products.c - products and convolutions in plans: who is asked before tiles and chains, and what refusing does. */
#include "test.h"
#include "loop/loop.h"

static const char *const text =
    "def forward(self, q: \"f32[4, 64, 16][1024, 16, 1]cpu\", k: \"f32[4, 16, 64][1024, 64, 1]cpu\", "
    "x: \"f32[2, 8, 12, 12][1152, 144, 12, 1]cpu\", w: \"f32[16, 8, 3, 3][72, 9, 3, 1]cpu\"):\n"
    "    s = taper.bmm(q, k)\n"
    "    r = taper.relu(s)\n"
    "    o = taper.bmm(r, q)\n"
    "    c = taper.convolution(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)\n"
    "    y = taper.relu(c)\n"
    "    return (o, y)\n";

typedef struct refusal {
    decide_kind kind;
    const char *site; /* begins so */
} refusal;
static bool answer(void *data, decide_kind k, const char *site, uint64_t hash)
{
    const refusal *r = data;
    (void)hash;
    return k != r->kind || strncmp(site, r->site, strlen(r->site)) != 0;
}

typedef struct count {
    int epilogue, attention, plain, product;
} count;
static count plan_with(decide_kind kind, const char *site)
{
    tp_err err = { 0 };
    refusal r = { kind, site };
    tp_comp c = { .err = &err, .decider = { answer, &r } };
    count n = { 0 };
    ir_graph *g = ir_parse(text, strlen(text), "t", NULL, &err);
    loop_plan *p = g ? loop_plan_new(&c, g) : NULL;
    if (!p)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    for (size_t i = 0; p && i < p->step.n; i++) {
        n.epilogue += p->step.at[i].epilogue;
        n.attention += p->step.at[i].attention;
        n.plain += p->step.at[i].plain;
        n.product += p->step.at[i].product;
    }
    loop_plan_free(p);
    ir_graph_free(g);
    return n;
}

TEST(plan_asks_before_tiles_and_chains)
{
    count all = plan_with(DECIDE_cse, "nothing");
    CHECK(all.product == 3 && all.epilogue == 2 && all.attention == 1 && all.plain == 0);
    count no = plan_with(DECIDE_fuse, "fuse:o"); /* the second product for itself */
    CHECK(no.product == 3 && no.epilogue == 2 && no.attention == 0 && no.plain == 0);
    no = plan_with(DECIDE_tile, "tile:o");
    CHECK(no.product == 3 && no.attention == 0 && no.plain == 1);
    no = plan_with(DECIDE_tile, "tile:c");
    CHECK(no.product == 3 && no.epilogue == 2 && no.attention == 1 && no.plain == 1);
    no = plan_with(DECIDE_tile, "");
    CHECK(no.plain == 3 && no.attention == 0);
    no = plan_with(DECIDE_fuse, "fuse:y");
    CHECK(no.epilogue == 1 && no.attention == 1);
}
