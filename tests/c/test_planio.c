/* test_planio.c - graphs as the disk cache stores them: they read back equal, and damaged bytes are refused. */
#include "test.h"
#include "compile/cache/plan.h"

static const char *const texts[] = {
    "def forward(self, x: \"f32[2, 3][3, 1]cpu\", n: \"i64[4][1]cpu\"):\n"
    "    # File: model.py:3 in f, code: y = x + 1\n"
    "    sin = taper.sin(x)\n"
    "    add = sin + 1.5\n"
    "    t = add.t()\n"
    "    cat = taper.cat([add, sin], 1)\n"
    "    topk = taper.topk(cat, 2, -1, True, True)\n"
    "    getitem = topk[0]\n"
    "    to = taper.cumsum(n, 0, dtype = taper.float64)\n"
    "    sum_1 = taper.sum(cat, [0, 1], keepdim = True, dtype = taper.float64)\n"
    "    return (t, getitem, to, sum_1, None, 3)\n",
    "# const: w: \"f32[3][1]cpu\" = [1.0, 2.0, 3.0]\n"
    "def forward(self, x: \"f32[2, 3][3, 1]cpu\"):\n"
    "    w: \"f32[3][1]cpu\" = self.w\n"
    "    mul = x * w\n"
    "    view = mul.view([3, 2])\n"
    "    return (view, mul)\n",
};

static ir_graph *read_back(const char *p, size_t n, const ir_graph *from, tp_err *err)
{
    io_in r = { p, p + n, false };
    return io_get_graph(&r, "again", from, err);
}

TEST(planio_graphs_read_back_equal)
{
    for (size_t i = 0; i < COUNT(texts); i++)
        for (int own = 0; own < 2; own++) {
            tp_err err = { 0 };
            strbuf b = { 0 };
            ir_graph *g = ir_parse(texts[i], strlen(texts[i]), "t", NULL, &err);
            CHECK(g != NULL);
            if (!g) {
                printf("%s\n", err.msg);
                return;
            }
            const ir_graph *from = own ? g : NULL; /* constants by reference, or by their bytes */
            CHECK(io_put_graph(&b, g, from, &err));
            ir_graph *again = read_back(b.s, b.n, from, &err);
            CHECK(again != NULL);
            if (again) {
                CHECK(ir_hash(g) == ir_hash(again));
                CHECK(ir_verify(again, &err));
                strbuf x = { 0 }, y = { 0 };
                again->name = g->name;
                ir_print(&x, g, IR_PRINT_all);
                ir_print(&y, again, IR_PRINT_all);
                CHECK(!strcmp(strbuf_str(&x), strbuf_str(&y)));
                strbuf_free(&x);
                strbuf_free(&y);
            }
            ir_graph_free(again);
            ir_graph_free(g);
            strbuf_free(&b);
        }
}

static strbuf key_of(const char *text, const char *name)
{
    tp_err err = { 0 };
    strbuf b = { 0 };
    ir_graph *g = ir_parse(text, strlen(text), "t", NULL, &err);
    CHECK(g != NULL);
    if (g) {
        g->name = arena_strdup(&g->mem, name);
        io_put_key(&b, g);
        CHECK_STR(g->name, name);
    }
    ir_graph_free(g);
    return b;
}

#define HEAD  "def forward(self, x: \"f32[2, 3][3, 1]cpu\", y: \"f32[2, 3][3, 1]cpu\"):\n"
#define PLACE "    # File: model.py:3 in f, code: y = x + 1\n"
#define TAIL  "    return (a,)\n"
TEST(planio_keys_differ_where_graphs_do)
{
    static const char *const all[] = {
        HEAD PLACE "    a = taper.add(x, y)\n" TAIL,
        HEAD PLACE "    a = taper.sub(x, y)\n" TAIL,
        HEAD PLACE "    a = taper.add(y, x)\n" TAIL,
        HEAD PLACE "    a = taper.add(x, 1)\n" TAIL,
        HEAD PLACE "    a = taper.add(x, 2)\n" TAIL,
        HEAD PLACE "    a = taper.add(x, 1.0)\n" TAIL,
        HEAD PLACE "    a = taper.sum(x, [0])\n" TAIL,
        HEAD PLACE "    a = taper.sum(x, [1])\n" TAIL,
        HEAD PLACE "    a = taper.add(x, y)\n    return (a, a)\n",
        HEAD "    a = taper.add(x, y)\n" TAIL,
        HEAD "    # File: model.py:4 in f, code: y = x + 1\n    a = taper.add(x, y)\n" TAIL,
        HEAD "    # File: model.py:3 in f, code: y = x + 2\n    a = taper.add(x, y)\n" TAIL,
        HEAD PLACE "    b = taper.add(x, y)\n    return (b,)\n",
        "def forward(self, x: \"f32[2, 3][1, 2]cpu\", y: \"f32[2, 3][3, 1]cpu\"):\n" PLACE
        "    a = taper.add(x, y)\n" TAIL,
        "def forward(self, x: \"f64[2, 3][3, 1]cpu\", y: \"f32[2, 3][3, 1]cpu\"):\n" PLACE
        "    a = taper.add(x, y)\n" TAIL,
        "# const: w: \"f32[1][1]cpu\" = [1.0]\n" HEAD
        "    w: \"f32[1][1]cpu\" = self.w\n    a = x + w\n" TAIL,
        "# const: w: \"f32[1][1]cpu\" = [2.0]\n" HEAD
        "    w: \"f32[1][1]cpu\" = self.w\n    a = x + w\n" TAIL,
        "# symbol: s0 = 4 in [2, int_oo]\ndef forward(self, x: \"f32[s0]\"):\n    a = taper.sin(x)\n" TAIL,
        "# symbol: s0 = 5 in [2, int_oo]\ndef forward(self, x: \"f32[s0]\"):\n    a = taper.sin(x)\n" TAIL,
    };
    strbuf k[COUNT(all)];
    for (size_t i = 0; i < COUNT(all); i++) {
        strbuf again = key_of(all[i], "one"); /* names of graphs count up */
        k[i] = key_of(all[i], "other");
        CHECK(again.n == k[i].n && !memcmp(again.s, k[i].s, k[i].n));
        strbuf_free(&again);
    }
    for (size_t i = 0; i < COUNT(all); i++)
        for (size_t j = 0; j < i; j++)
            if (k[i].n == k[j].n && !memcmp(k[i].s, k[j].s, k[i].n))
                test_fail(__FILE__, __LINE__, "equal keys:\n%s\n%s", all[i], all[j]);
    for (size_t i = 0; i < COUNT(all); i++)
        strbuf_free(&k[i]);
}

TEST(planio_refuses_damaged_graphs)
{
    for (size_t i = 0; i < COUNT(texts); i++) {
        tp_err err = { 0 };
        strbuf b = { 0 };
        ir_graph *g = ir_parse(texts[i], strlen(texts[i]), "t", NULL, &err);
        CHECK(g && io_put_graph(&b, g, NULL, &err));
        for (size_t n = 0; n < b.n; n++) { /* cut short: always refused */
            tp_err e = { 0 };
            ir_graph *x = read_back(b.s, n, NULL, &e);
            CHECK(!x && err_is_set(&e));
            ir_graph_free(x);
        }
        for (size_t at = 0; at < b.n; at++)
            for (int bit = 0; bit < 8; bit++) { /* one bit: refused, or a graph that can be freed */
                tp_err e = { 0 };
                b.s[at] = (char)(b.s[at] ^ 1 << bit);
                ir_graph *x = read_back(b.s, b.n, NULL, &e);
                CHECK(x || err_is_set(&e));
                ir_graph_free(x);
                b.s[at] = (char)(b.s[at] ^ 1 << bit);
            }
        ir_graph_free(g);
        strbuf_free(&b);
    }
}

TEST(planio_numbers)
{
    static const int64_t v[] = {
        0, 1, -1, 63, 64, -64, -65, INT32_MAX, INT64_C(1) << 61, -(INT64_C(1) << 61)
    };
    strbuf b = { 0 };
    for (size_t i = 0; i < COUNT(v); i++)
        io_put(&b, v[i]);
    io_in r = { b.s, b.s + b.n, false };
    for (size_t i = 0; i < COUNT(v); i++)
        CHECK(io_get(&r) == v[i]);
    CHECK(!r.bad && io_get(&r) == 0 && r.bad);
    static const char endless[] = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    r = (io_in){ endless, endless + sizeof endless - 1, false };
    io_get(&r);
    CHECK(r.bad);
    strbuf_free(&b);
}
