/* test_plan.c - choices of the plan: each asks first, and a refused one leaves the library call. */
#include "test.h"
#include "base/map.h"
#include "loop/arena_plan.h"
#include "loop/lin.h"
#include "loop/loop.h"

static const char *const lowered_ops[] = {
    "def forward(self, x: \"f32[9, 20][20, 1]cpu\", i: \"i64[4][1]cpu\"):\n"
    "    a = taper.index_select(x, 0, i)\n    b = a * 2\n    return (b,)\n",
    "def forward(self, x: \"f32[9, 20][20, 1]cpu\", i: \"i64[9, 4][4, 1]cpu\"):\n"
    "    a = taper.gather(x, 1, i)\n    b = a * 2\n    return (b,)\n",
    "def forward(self, x: \"f32[9, 20][20, 1]cpu\"):\n    a = taper.roll(x, [3], [1])\n    b = a * 2\n    "
    "return (b,)\n",
    "def forward(self, x: \"f32[9, 20][20, 1]cpu\"):\n    a = x.repeat([2, 1])\n    b = a * 2\n    return "
    "(b,)\n",
    "def forward(self, x: \"f32[2, 3, 8, 20][480, 160, 20, 1]cpu\"):\n"
    "    a = taper.ops.aten.avg_pool2d.default(x, [2, 2])\n    b = a * 2\n    return (b,)\n",
    "def forward(self, x: \"f32[2, 3, 8, 20][480, 160, 20, 1]cpu\"):\n"
    "    p = taper.ops.aten.max_pool2d_with_indices.default(x, [2, 2])\n    a = p[0]\n    b = a * 2\n    "
    "return (b,)\n",
    "def forward(self, x: \"f32[9, 20][20, 1]cpu\", s: \"i64[2][1]cpu\"):\n"
    "    a = taper.ops.aten._philox_uniform.default(s, [9, 20], dtype = taper.float32)\n    b = a * x\n    "
    "return (b,)\n",
    "def forward(self, x: \"f32[9, 20][20, 1]cpu\"):\n    a = taper.flip(x, [0])\n    b = a * 2\n    return "
    "(b,)\n",
    "def forward(self, x: \"f32[9, 40][40, 1]cpu\"):\n    a = taper.cumsum(x, 0)\n    b = a * 2\n    return "
    "(b,)\n",
    "def forward(self, x: \"f32[1, 3, 8, 16][384, 128, 16, 1]cpu\"):\n"
    "    a = taper.ops.aten.upsample_nearest2d.default(x, [16, 32])\n    b = a * 2\n    return (b,)\n",
    "def forward(self, x: \"f32[1, 3, 8, 16][384, 128, 16, 1]cpu\"):\n"
    "    a = taper.ops.aten.upsample_nearest2d_backward.default(x, [8, 16], [1, 3, 4, 8])\n    b = a * 2\n   "
    " return (b,)\n",
    "def forward(self, x: \"f32[1, 3, 4, 8][96, 32, 8, 1]cpu\", o: \"i8[1, 3, 4, 8][96, 32, 8, 1]cpu\"):\n"
    "    a = taper.ops.aten._max_pool2d_offsets_backward.default(x, o, [1, 3, 8, 16], [2, 2])\n    b = a * "
    "2\n"
    "    return (b,)\n",
};

TEST(lin_acc_adds_as_lin_add_does)
{
    uint64_t r = 7;
    for (int round = 0; round < 2000; round++) {
        lin a = lin_const(0), b = lin_const(0);
        for (int i = 0; i < 2; i++) {
            lin *l = i ? &b : &a;
            int n = (int)((r = hash_u64(r + 1)) % 5);
            l->k = (symint)(r >> 8) % 7 - 3;
            for (int k = 0; k < n; k++) {
                bool ok = true;
                lin v = lin_var((int)((r = hash_u64(r + 1)) % 6));
                lin t = lin_scale(v, (symint)(r >> 8) % 7 - 3);
                *l = lin_add(*l, &t, &ok);
                CHECK(ok);
            }
        }
        symint c = (symint)((r = hash_u64(r + 1)) % 5) - 2;
        bool ok = true;
        lin scaled = lin_scale(b, c), want = lin_add(a, &scaled, &ok), got;
        lin_set(&got, &a);
        CHECK(ok && lin_acc(&got, &b, c) && lin_equal(&got, &want));
    }
    lin full = lin_const(0), one = lin_var(LIN_MAX);
    for (int i = 0; i < LIN_MAX; i++)
        full.t[full.n++] = lin_var(i).t[0];
    CHECK(!lin_acc(&full, &one, 1) && full.n == LIN_MAX);
    lin opaque = { .opaque = true };
    CHECK(!lin_acc(&opaque, &one, 1) && !lin_acc(&one, &opaque, 1));
}

static int asked;
static bool refuse_lower(void *data, decide_kind k, const char *site, uint64_t hash)
{
    (void)data, (void)site, (void)hash;
    asked += k == DECIDE_lower;
    return k != DECIDE_lower;
}

TEST(plan_lowering_asks_first)
{
    for (size_t i = 0; i < COUNT(lowered_ops); i++)
        for (int no = 0; no < 2; no++) {
            tp_err err = { 0 };
            ir_graph *g = ir_parse(lowered_ops[i], strlen(lowered_ops[i]), "t", NULL, &err);
            CHECK(g != NULL);
            if (!g) {
                printf("%s\n", err.msg);
                return;
            }
            tp_comp c = { .err = &err, .decider = { no ? refuse_lower : NULL, NULL } };
            asked = 0;
            loop_plan *p = loop_plan_new(&c, g);
            CHECK(p != NULL);
            if (p) {
                CHECK(p->nextern == no);
                CHECK(p->nkernel == 1);
                CHECK(asked == no);
            }
            loop_plan_free(p);
            ir_graph_free(g);
        }
}

/* Two buffers that live at the same time, moved to one place, are named; so is one that ends outside. */
TEST(memory_of_living_buffers_does_not_overlap)
{
    static const char text[] = "def forward(self, x: \"f32[16, 16]\", w: \"f32[16, 16]\"):\n"
                               "    a = taper.mm(x, w)\n    b = taper.mm(w, x)\n    c = taper.mm(a, b)\n    "
                               "d = taper.mm(c, c)\n    return (d,)\n";
    tp_err err = { 0 };
    tp_comp c = { .err = &err };
    ir_graph *g = ir_parse(text, sizeof text - 1, "test", NULL, &err);
    loop_plan *p = g ? loop_plan_new(&c, g) : NULL;
    CHECK(p != NULL);
    if (p) {
        loop_memory m = loop_memory_plan(&c, p, false);
        int first = -1, second = -1;
        CHECK(loop_memory_check(p, &m, &err));
        for (int i = 0; i < (int)p->slot.n; i++)
            if (m.offset[i] >= 0)
                *(first < 0 ? &first : &second) = second < 0 ? i : second;
        CHECK(first >= 0 && second >= 0);
        int64_t was = m.offset[second];
        m.offset[second] = m.offset[first];
        CHECK(!loop_memory_check(p, &m, &err) && strstr(err.msg, "same memory at the same time"));
        m.offset[second] = m.block;
        err_clear(&err);
        CHECK(!loop_memory_check(p, &m, &err) && strstr(err.msg, "outside the block"));
        m.offset[second] = was;
        err_clear(&err);
        CHECK(loop_memory_check(p, &m, &err));
        loop_memory_free(&m);
    }
    loop_plan_free(p);
    ir_graph_free(g);
}
