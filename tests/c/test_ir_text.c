/* test_ir_text.c - graphs as text: what is printed reads back to the same; what is wrong is named with its
 * place. */
#include "ir/text.h"
#include "test.h"

static char *printed(const ir_graph *g, int what)
{
    strbuf b = { 0 };
    ir_print(&b, g, what);
    return strbuf_take(&b);
}

static ir_graph *parse(const char *text)
{
    tp_err e = { 0 };
    ir_graph *g = ir_parse(text, strlen(text), "t", NULL, &e);
    if (!g)
        test_fail(__FILE__, __LINE__, "%s\n%s", e.msg, text);
    return g;
}

/* Text that is printed exactly as it stands. */
static const char *const canonical[] = {
    "def forward(self):\n    return ()\n",
    "def forward(self, x: \"f32[][]cpu\"):\n    return (x,)\n",
    "def forward(self, L_x_: \"f32[3, 3][3, 1]cpu\"):\n"
    "    l_x_ = L_x_  # source: \"L['x']\"\n"
    "\n"
    "    # File: playground.py:8 in f, code: x = taper.sin(x)\n"
    "    x: \"f32[3, 3][3, 1]cpu\" = taper.sin(l_x_);  l_x_ = None\n"
    "\n"
    "    # File: playground.py:4 in g, code: return x + y\n"
    "    #   called from: playground.py:9 in f, code: g(x)\n"
    "    x_1: \"f32[3, 3][3, 1]cpu\" = x + x;  x = None\n"
    "    return (x_1,)\n",
    /* places: odd file names, none, no source line */
    "def forward(self, x: \"f32[2][1]cpu\"):\n"
    "\n"
    "    # File: 'a:3 in b.py':8 in f\n"
    "    a: \"f32[2][1]cpu\" = taper.sin(x)\n"
    "\n"
    "    # File: b.py:8 in '', code: '\"x\"'\n"
    "    b: \"f32[2][1]cpu\" = taper.sin(a);  a = None\n"
    "\n"
    "    # No stacktrace found for following nodes\n"
    "    c: \"f32[2][1]cpu\" = taper.sin(b);  b = None\n"
    "    return (c, x)\n",
    /* special floats, whole floats, negative numbers, in every position */
    "def forward(self, x: \"f32[2][1]cpu\"):\n"
    "    a: \"f32[2][1]cpu\" = x * nan;  x = None\n"
    "    b: \"f32[2][1]cpu\" = a + -inf;  a = None\n"
    "    c: \"f32[2][1]cpu\" = b - -0.0;  b = None\n"
    "    d: \"f32[2][1]cpu\" = c / 1e-300;  c = None\n"
    "    e: \"f32[2][1]cpu\" = d * 5e+20;  d = None\n"
    "    f: \"f32[2][1]cpu\" = e * -7;  e = None\n"
    "    g: \"f32[2][1]cpu\" = f * True;  f = None\n"
    "    return (g, inf, -3, False, None)\n",
    /* every way to spell a call */
    "def forward(self, x: \"f32[2, 3][3, 1]cpu\"):\n"
    "    add: \"f32[2, 3][3, 1]cpu\" = x + x\n"
    "    add_1: \"f32[2, 3][3, 1]cpu\" = taper.add(x, x)\n"
    "    add_2: \"f32[2, 3][3, 1]cpu\" = x.add(x)\n"
    "    add_3: \"f32[2, 3][3, 1]cpu\" = taper.ops.aten.add.Tensor(x, x)\n"
    "    add_4: \"f32[2, 3][3, 1]cpu\" = taper.add(x, x, alpha = 2)\n"
    "    neg: \"f32[2, 3][3, 1]cpu\" = -x\n"
    "    add_: \"f32[2, 3][3, 1]cpu\" = x.add_(1);  x = None\n"
    "    return (add, add_1, add_2, add_3, add_4, neg, add_)\n",
    "def forward(self, x: \"f32[2, 3][3, 1]cpu\"):\n"
    "    sum_1: \"f32[][]cpu\" = taper.ops.aten.sum.default(x)\n"
    "    sum_2: \"f32[2, 1][1, 1]cpu\" = taper.ops.aten.sum.dim_IntList(x, [1], True)\n"
    "    sum_3: \"f32[][]cpu\" = taper.ops.aten.sum.dim_IntList(x, []);  x = None\n"
    "    return (sum_1, sum_2, sum_3)\n",
    "def forward(self, x: \"f32[2, 3][3, 1]cpu\"):\n"
    "    a: \"f32[2, 3][3, 1]cpu\" = torch.sin(x);  x = None\n"
    "    b: \"i64[2][1]cpu\" = torch.zeros([2], dtype = torch.int64, device = device(type='cpu'))\n"
    "    c: \"f32[2, 3][3, 1]cpu\" = torch.clone(a, memory_format = torch.contiguous_format);  a = None\n"
    "    return (b, c)\n",
    /* non-ASCII names, names Python uses */
    "def forward(self, größe: \"f32[2][1]cpu\"):\n"
    "    変数: \"f32[2][1]cpu\" = taper.sin(größe);  größe = None\n"
    "    return (変数,)\n",
    /* symbols, relations */
    "# symbol: s0 = 5 in [2, int_oo] from \"L['x'].size()[0]\"\n"
    "# symbol: s1 = 5 in [2, 100]\n"
    "# symbol: u0 in [0, int_oo]\n"
    "# guard: s0 <= 64\n"
    "def forward(self, x: \"f32[s0, s1][s1, 1]cpu\", n: \"Sym(s1)\"):\n"
    "    v: \"f32[s0*s1][1]cpu\" = x.view([s0*s1]);  x = None\n"
    "    z: \"f32[2*s0 + 3, u0][Max(1, u0), 1]cpu\" = taper.zeros([2*s0 + 3, u0])\n"
    "    return (v, z, 2*s1, n)\n",
    /* constants */
    "# graph: __compiled_fn_0\n"
    "# grad_mode: off\n"
    "# const: w: \"f32[2, 2][1, 2]cpu\" = [1.0, -0.0, nan, 0.1]\n"
    "# const: layers.a: \"i64[3][1]cpu\" = [1, -2, 3]\n"
    "def forward(self):\n"
    "    w: \"f32[2, 2][1, 2]cpu\" = self.w\n"
    "    return (w,)\n",
    "# const: c: \"f32[][]cpu\" wrapped = [3.0]\n"
    "# const: h: \"f32[1][1]cpu\" = hex:0100c07f\n"
    "# const: b: \"b8[2][1]cpu\" = [True, False]\n"
    "# const: 'odd name': \"f64[0][1]cpu\" = []\n"
    "# const: big: \"f32[1000][1]cpu\" = "
    "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"
    "def forward(self):\n"
    "    c: \"f32[][]cpu\" = self.c\n"
    "    h: \"f32[1][1]cpu\" = self.h\n"
    "    b: \"b8[2][1]cpu\" = self.b\n"
    "    d: \"f64[0][1]cpu\" = getattr(self, 'odd name')\n"
    "    e: \"f32[1000][1]cpu\" = self.big\n"
    "    return (c, h, b, d, e)\n",
    /* inputs that share memory; facts about nodes */
    "def forward(self, x: \"f32[4][1]cpu\", y: \"f32[2][1]cpu\"):\n"
    "    y = y  # offset: 2  # alias: x\n"
    "    a: \"f32[4][1]cpu\" = taper.sin(x);  x = None  # meta: {\"seed\": 3, \"s\": \"a # b\"}\n"
    "    return (a, y)\n",
    /* opaque calls, strings, lists */
    "def forward(self, x: \"f32[4][1]cpu\"):\n"
    "    foo: \"f32[4][1]cpu\" = taper.ops.mylib.foo(x, 'it\\'s \"q\"\\n\\\\', [1, 2], [1.5], [True], [x, "
    "None], [])\n"
    "    bar: \"(f32[4][1]cpu, None)\" = taper.call('my module.<locals>.bar', foo);  foo = None\n"
    "    getitem: \"f32[4][1]cpu\" = bar[0];  bar = None\n"
    "    baz = taper.call('nothing');  baz = None\n"
    "    return (getitem, x)\n",
    /* nested graphs, also inside each other */
    "def inner(self, a: \"f32[2][1]cpu\"):\n"
    "    b: \"f32[2][1]cpu\" = taper.cos(a);  a = None\n"
    "    return (b,)\n"
    "\n"
    "# grad_mode: off\n"
    "def true_graph_0(self, a: \"f32[2][1]cpu\"):\n"
    "    cond: \"(f32[2][1]cpu,)\" = taper.ops.higher_order.cond(True, self.inner, self.inner, [a]);  a = "
    "None\n"
    "    getitem: \"f32[2][1]cpu\" = cond[0];  cond = None\n"
    "    return (getitem,)\n"
    "\n"
    "def false_graph_0(self, a: \"f32[2][1]cpu\"):\n"
    "    b: \"f32[2][1]cpu\" = taper.sin(a);  a = None\n"
    "    return (b,)\n"
    "\n"
    "def forward(self, p: \"b8[][]cpu\", x: \"f32[2][1]cpu\"):\n"
    "    cond: \"(f32[2][1]cpu,)\" = taper.ops.higher_order.cond(p, self.true_graph_0, self.false_graph_0, "
    "[x]);  "
    "p = x = None\n"
    "    getitem: \"f32[2][1]cpu\" = cond[0];  cond = None\n"
    "    return (getitem,)\n",
    /* frames of the library */
    "# graph: g\n"
    "# library: \"/opt/it's taper\"\n"
    "def forward(self, x: \"f32[2][1]cpu\"):\n"
    "\n"
    "    # File: /opt/it's taper/nn/f.py:8 in f, code: taper.sin(x)\n"
    "    #   called from: m.py:3 in g\n"
    "    a: \"f32[2][1]cpu\" = taper.sin(x);  x = None\n"
    "    return (a,)\n",
};

TEST(ir_text_round_trip)
{
    for (size_t i = 0; i < COUNT(canonical); i++) {
        tp_err e = { 0 };
        ir_graph *g = parse(canonical[i]);
        if (!g)
            continue;
        char *t = printed(g, IR_PRINT_all);
        if (i != 10) /* has a declared constant that nobody uses */
            CHECK_STR(t, canonical[i]);
        if (!ir_verify(g, &e))
            test_fail(__FILE__, __LINE__, "%s\n%s", e.msg, canonical[i]);
        ir_graph *h = parse(t), *c = ir_graph_copy(g);
        char *u = h ? printed(h, IR_PRINT_all) : NULL, *v = printed(c, IR_PRINT_all);
        CHECK_STR(u, t);
        CHECK_STR(v, t);
        CHECK(h && ir_hash(h) == ir_hash(g) && ir_hash(c) == ir_hash(g));
        /* what logs show reads back too, as far as it goes */
        char *log = printed(g, IR_PRINT_log);
        if (!g->env && !strstr(t, "getattr") && !strstr(t, "self.c"))
            ir_graph_free(parse(log));
        ir_graph_free(g); /* the copy must not depend on it */
        char *w = printed(c, IR_PRINT_all);
        CHECK_STR(w, t);
        ir_graph_free(h);
        ir_graph_free(c);
        free(t);
        free(u);
        free(v);
        free(w);
        free(log);
    }
}

typedef struct bad_case {
    const char *text, *says;
} bad_case;
#define F1(body) "def forward(self, x: \"f32[2, 3]\"):\n" body
static const bad_case bad[] = {
    { "", "t:1:1: 'def forward(self, ...):' was expected, not the end of the file" },
    { "x = 3\n", "t:1:1: 'def' was expected, not 'x'" },
    { "def forward(self)\n", "t:1:18: ':' was expected, not the end of the line" },
    { "def forward(self, x: f32[2]):\n", "t:1:22: a type in double quotes was expected, not 'f'" },
    { "def forward(self, x: \"q32[2]\"):\n", "t:1:23: 'q32' is no element type" },
    { "def forward(self, x: \"f32[2\"):\n", "t:1:28: ',' or ']' was expected" },
    { "def forward(self, x: \"f32[2, 3][1]\"):\n", "t:1:23: 2 sizes but 1 strides" },
    { "def forward(self, x: \"f32[-2]\"):\n", "t:1:23: " },
    { "def forward(self, x: \"f32[4611686018427387904]\"):\n", "t:1:27: this integer is not below 2**62" },
    { "def forward(self, x: \"f32[2000000000, 2000000000, 2000000000]\"):\n", "t:1:23: " },
    { "def forward(self, x: \"f32[99999999999999999999]\"):\n", "t:1:27: this integer is not below 2**62" },
    { "def forward(self, x: \"f32[s0]\"):\n", "t:1:27: a value was expected, not an expression" },
    { "def forward(self, x: \"f32[2]moon\"):\n", "t:1:29: a device was expected" },
    { "def forward(self, x: \"f32[2]\", x: \"f32[2]\"):\n", "t:1:32: 'x' cannot be a parameter (again)" },
    { F1(""), "t:2:1: 'return' was expected, not the end of the file" },
    { F1("    y = taper.sin(x"), "t:2:20: ',' or ')' was expected, not the end of the file" },
    { F1("    y = taper.sin(x)\n"), "t:3:1: 'return' was expected" },
    { F1("    return (y,)\n"), "t:2:13: 'y' is not defined before its use" },
    { F1("    y = taper.sin(z)\n    z = taper.sin(y)\n    return (z,)\n"),
      "t:2:19: 'z' is not defined before" },
    { F1("    y = taper.sin(y)\n    return (y,)\n"), "t:2:19: 'y' is not defined before its use" },
    { F1("    y = taper.sine(x)\n    return ()\n"), "t:2:15: there is no operator 'sine'" },
    { F1("    y = taper.ops.aten.sine.default(x)\n    return ()\n"),
      "t:2:15: there is no operator 'aten.sine.default'" },
    { "def f(self, x: \"f32[2]\"):\n    y: \"f64[2]\" = torch.ops.prims.convert_element_type.default(x, "
      "torch.float64)\n"
      "    return (y,)\n",
      "t:2:25: there is no operator 'prims.convert_element_type.default'" },
    { "def f(self, x: \"f32[2]\"):\n    y = taper.ops.higher_order.wrap(x)\n    return (y,)\n",
      "t:2:15: there is no operator 'higher_order.wrap'" },
    { F1("    y = x.sine()\n    return ()\n"), "t:2:9: there is no operator 'sine'" },
    { F1("    y = taper.sin(x, x)\n    return ()\n"), "sin() takes 1 positional argument but 2 were given" },
    { F1("    y = taper.sin()\n    return ()\n"), "sin() missing required argument 'self' (pos 1)" },
    { F1("    y = taper.sin(x, k = 2)\n    return ()\n"), "sin() got an unexpected keyword argument 'k'" },
    { F1("    y = taper.sin(x, self = x)\n    return ()\n"), "got multiple values for argument 'self'" },
    { F1("    y = taper.sin(3)\n    return ()\n"),
      "sin(): argument 'self' (position 1) must be Tensor, not int" },
    { F1("    y = taper.sin('a')\n    return ()\n"), "must be Tensor, not str" },
    { F1("    y = x.view('a')\n    return ()\n"), "must be list of ints, not str" },
    { F1("    y = x.view([1, x])\n    return ()\n"),
      "t:2:16: a list holds numbers, truth values or tensors" },
    { F1("    y = x.view([[1]])\n    return ()\n"), "t:2:17: lists do not hold lists" },
    { F1("    y = x.view([5])\n    return ()\n"), "shape '[5]' is invalid for input of size 6" },
    { F1("    y: \"f32[3]\" = taper.sin(x)\n    return ()\n"),
      "t:2:9: the annotation of 'y' says f32[3], but sin gives f32[2, 3][3, 1]cpu" },
    { F1("    y: \"f64[2, 3]\" = taper.sin(x)\n    return ()\n"), "says f64[2, 3], but sin gives f32[2, 3]" },
    { F1("    y = taper.mm(x, x)\n    return ()\n"), "t:2:15: " },
    { F1("    y = x[0]\n    return ()\n"), "'x' is one value, not several" },
    { F1("    x = taper.sin(x)\n    return ()\n"), "t:2:5: 'x' is defined twice" },
    { F1("    y = taper.sin(x);  x = None\n    z = taper.sin(x)\n    return ()\n"),
      "'x' is used after it was set to None" },
    { F1("    y = taper.sin(x) x\n    return ()\n"), "t:2:22: the end of the line was expected, not 'x'" },
    { F1("    y = taper.call('a\\q')\n    return ()\n"), "unknown escape in a string" },
    { F1("    y = taper.call('a\n    return ()\n"), "this string does not end on its line" },
    { F1("    y = taper.call('a\\x00')\n    return ()\n"), "unknown escape in a string" },
    { F1("    y = taper.call(x)\n    return ()\n"), "the name of what is called, in quotes was expected" },
    { F1("    y = taper.zeros([2], dtype = taper.flot32)\n    return ()\n"),
      "'flot32' is no dtype or format" },
    { F1("    y = taper.zeros([2], device = device(type='mars'))\n    return ()\n"),
      "there is no such device" },
    { F1("    y = taper.zeros([-2])\n    return ()\n"), "t:2:15: " },
    { F1("    y = taper.zeros([4000000000000, 4000000000000])\n    return ()\n"), "t:2:15: " },
    { F1("    y = self.w\n    return ()\n"), "constant 'w' is not declared" },
    { F1("    y = taper.ops.a.b(self.g)\n    return ()\n"), "no graph 'g' is defined above" },
    { F1("    y = taper.sin(x)  # meta: [1]\n    return ()\n"), "a JSON object was expected" },
    { F1("    if x:\n"), "t:2:5: a statement was expected, not 'i'" },
    { F1("    return (x,)\nx"), "t:3:1: the end of the file was expected, not 'x'" },
    { F1("    \x01\n"), "t:2:5: a statement was expected, not byte 0x01" },
    { F1("    \xff\n"), "not byte 0xff" },
    { "# symbol: s0 = 5 in [9, 3]\n", "t:1:11: " },
    { "# symbol: s0 = 5\n# guard: s0 + 1\n", "t:2:10: a relation that can hold was expected" },
    { "# symbol: s0 = 5\n# symbol: s0 = 6\n", "t:2:11: " },
    { "# const: a: \"f32[2]\" = [1.0]\n", "t:1:28: ',' was expected, not ']'" },
    { "# const: a: \"f32[2]\" = [1.0, self.w]\n", "t:1:35: a graph is no value here" },
    { "# const: a: \"f32[2]\" = hex:00\n", "8 bytes in hexadecimal were expected" },
    { "# const: a: \"f32[2]\" = sha256:00\n", "64 hexadecimal digits was expected" },
    { "def g(self):\n    return ()\ndef forward(self):\n    return ()\n",
      "graph 'g' is defined but not used" },
};

TEST(ir_text_errors)
{
    for (size_t i = 0; i < COUNT(bad); i++) {
        tp_err e = { 0 };
        ir_graph *g = ir_parse(bad[i].text, strlen(bad[i].text), "t", NULL, &e);
        if (g || !strstr(e.msg, bad[i].says))
            test_fail(__FILE__, __LINE__, "got: %s\n  expected: %s\n  for: %s", g ? "a graph" : e.msg,
                      bad[i].says, bad[i].text);
        ir_graph_free(g);
    }
}

/* Every prefix and every single changed byte of a rich text is read or refused, without a crash or a leak. */
TEST(ir_text_truncated)
{
    for (size_t i = 0; i < COUNT(canonical); i++) {
        size_t n = strlen(canonical[i]);
        char *t = mem_strdup(canonical[i]);
        for (size_t k = 0; k <= n; k++)
            ir_graph_free(ir_parse(t, k, "t", NULL, NULL));
        for (size_t k = 0; k < n; k++) {
            static const char other[] = "(\"0,]# =.\n-x";
            char c = t[k];
            t[k] = other[k % (sizeof other - 1)];
            ir_graph_free(ir_parse(t, n, "t", NULL, NULL));
            t[k] = c;
        }
        free(t);
    }
}

TEST(ir_text_absurd)
{
    /* a string longer than any limit, many brackets, a huge list */
    tp_err e = { 0 };
    strbuf b = { 0 };
    strbuf_add(&b, "def forward(self):\n    y = taper.call('");
    for (int i = 0; i < 2 << 20; i++)
        strbuf_addc(&b, 'a');
    strbuf_add(&b, "')\n    return ()\n");
    CHECK(!ir_parse(b.s, b.n, "t", NULL, &e));
    CHECK(strstr(e.msg, "this string is longer than 1048576 bytes") != NULL);
    strbuf_clear(&b);
    strbuf_add(&b, "# symbol: s0 = 5\ndef forward(self):\n    y = taper.zeros([");
    for (int i = 0; i < 100000; i++)
        strbuf_addc(&b, '(');
    e = (tp_err){ 0 };
    CHECK(!ir_parse(b.s, b.n, "t", NULL, &e));
    CHECK(e.kind != ERR_none);
    strbuf_clear(&b);
    strbuf_add(&b, "def forward(self):\n    y = taper.zeros([");
    for (int i = 0; i < 100; i++)
        strbuf_add(&b, "1, ");
    strbuf_add(&b, "])\n    return (y,)\n");
    e = (tp_err){ 0 };
    CHECK(!ir_parse(b.s, b.n, "t", NULL, &e));
    CHECK(e.kind != ERR_none);
    strbuf_free(&b);
}

TEST(ir_text_names)
{
    ir_graph *g = ir_graph_new("g");
    CHECK_STR(ir_unique_name(g, "sum"), "sum_1");
    CHECK_STR(ir_unique_name(g, "L['x'].a"), "L_x_a");
    CHECK_STR(ir_unique_name(g, "1x"), "_1x");
    CHECK_STR(ir_unique_name(g, ""), "_unnamed");
    CHECK_STR(ir_unique_name(g, "\xff"), "_");
    int64_t size[] = { 2 };
    tp_tensor *t = tensor_new_fake(DT_f32, 1, size, NULL, DEVICE_CPU);
    ir_node *a = ir_add_placeholder(g, "x", "L['x']", t), *b = ir_add_placeholder(g, "x", "L['y']", t);
    CHECK_STR(a->name, "x");
    CHECK_STR(b->name, "x_1");
    tensor_unref(t);
    ir_graph_free(g);
}
