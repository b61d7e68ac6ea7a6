/* test_api.c - include/taper.h with wrong input: everything is an error, nothing leaks. */
#include "taper.h"
#include "test.h"
#include "base/strbuf.h"

static void says(tp_err *e, const char *text)
{
    if (!tp_err_is_set(e) || !strstr(tp_err_message(e), text))
        test_fail(__FILE__, __LINE__, "got: %s\n  expected: %s", tp_err_message(e), text);
    tp_err_clear(e);
}

TEST(api_tensors)
{
    tp_err *e = tp_err_new();
    int64_t size[] = { 2, 3 }, neg[] = { -1 }, big[] = { (int64_t)1 << 40, (int64_t)1 << 40 },
            st[] = { 1, 2 };
    CHECK(!tp_tensor_new((tp_dtype)99, 1, size, e));
    says(e, "99 is no element type");
    CHECK(!tp_tensor_new(TP_F32, 1000, size, e));
    says(e, "a tensor has 0 to 24 dimensions, not 1000");
    CHECK(!tp_tensor_new(TP_F32, 1, neg, e));
    says(e, "size or stride of dimension 0 is not between 0 and 2**62");
    CHECK(!tp_tensor_new(TP_F32, 2, big, e));
    CHECK(tp_err_is_set(e));
    tp_err_clear(e);
    CHECK(!tp_tensor_new(TP_F32, 1, NULL, e));
    says(e, "no sizes were given");
    float v[6] = { 0, 1, 2, 3, 4, 5 };
    tp_tensor *t = tp_tensor_wrap(TP_F32, 2, size, st, v, NULL, NULL, e);
    CHECK(t && !tp_tensor_is_contiguous(t) && tp_tensor_size(t, -1) == 3 && tp_tensor_stride(t, 0) == 1);
    CHECK(tp_tensor_size(t, 7) == 0 && tp_tensor_numel(t) == 6 && tp_tensor_ndim(t) == 2);
    tp_tensor *c = tp_tensor_contiguous(t, e);
    CHECK(c && ((float *)tp_tensor_data(c))[1] == 2 && tp_tensor_dtype(c) == TP_F32);
    tp_tensor_unref(c);
    tp_tensor_unref(t);
    CHECK_STR(tp_dtype_name(TP_BF16), "bfloat16");
    CHECK(!tp_dtype_name((tp_dtype)-1) && tp_dtype_size(TP_I16) == 2);
    tp_err_free(e);
}

TEST(api_graphs)
{
    tp_err *e = tp_err_new();
    tp_graph *g = tp_graph_new("g"), *other = tp_graph_new("o");
    int64_t size[] = { 2 }, huge[] = { INT64_MAX };
    tp_node *x = tp_graph_input(g, "x", TP_F32, 1, size, NULL, e);
    tp_arg a[] = { tp_value(x), tp_float(2) };
    CHECK(!tp_graph_call(g, "nosuch", a, 1, e));
    says(e, "there is no operator 'nosuch'");
    CHECK(!tp_graph_call(other, "sin", a, 1, e));
    says(e, "'x' belongs to another graph");
    CHECK(!tp_graph_call(g, "view", (tp_arg[]){ tp_value(x), tp_ints(huge, 1) }, 2, e));
    CHECK(tp_err_is_set(e));
    tp_err_clear(e);
    CHECK(!tp_graph_call(g, "view", (tp_arg[]){ tp_value(x), tp_ints(NULL, 3) }, 2, e));
    says(e, "a list of 3 items that is not there");
    CHECK(!tp_graph_call(g, "sin", a, 2, e));
    says(e, "takes 1 positional argument but 2 were given");
    CHECK(!tp_compile(g, "eager", e));
    says(e, "breaks the rule 'one output'");
    tp_node *y = tp_graph_call(g, "aten.mul.Tensor", a, 2, e);
    CHECK(y != NULL);
    CHECK(!tp_graph_item(g, y, 0, e));
    says(e, "'mul' has no result 0");
    CHECK(tp_graph_output(g, &y, 1, e));
    CHECK(!tp_compile(g, "nosuch", e));
    says(e, "there is no backend 'nosuch'");
    tp_program *p = tp_compile(g, "eager", e);
    float v[] = { 3, 4 };
    tp_tensor *t = tp_tensor_from_data(TP_F32, 1, size, v, e), *out[2] = { NULL, NULL };
    CHECK(!tp_program_run(p, &t, 1, out, 2, e));
    says(e, "the graph returns 1 values, not 2");
    CHECK(!tp_program_run(p, &t, 0, out, 1, e));
    says(e, "the graph takes 1 inputs but 0 were given");
    tp_tensor *wrong = tp_tensor_from_data(TP_F64, 1, size, NULL, e);
    CHECK(!tp_program_run(p, &wrong, 1, out, 1, e));
    says(e, "input 'x': expected f32[2][1]cpu, but got f64[2][1]cpu");
    CHECK(tp_program_run(p, &t, 1, out, 1, e) && ((float *)tp_tensor_data(out[0]))[1] == 8);
    tp_tensor_unref(out[0]);
    tp_tensor_unref(wrong);
    tp_tensor_unref(t);
    tp_program_free(p);
    char *type = tp_node_type(y);
    CHECK_STR(type, "f32[2][1]cpu");
    CHECK_STR(tp_node_name(y), "mul");
    tp_free(type);
    CHECK(!tp_graph_simplify(g, "nosuch", e));
    says(e, "there is no pass 'nosuch'");
    CHECK(tp_graph_simplify(g, NULL, e) && tp_graph_n_nodes(g) == 3);
    CHECK(!tp_graph_parse("nonsense", 8, "f", e));
    says(e, "f:1:1: 'def' was expected, not 'n'");
    CHECK(!tp_graph_load("/nonexistent", e));
    says(e, "cannot open");
    CHECK(!tp_graph_call(g, "sin", a, 2, NULL)); /* errors may go nowhere */
    tp_graph_free(g);
    tp_graph_free(other);
    tp_err_free(e);
}

TEST(api_numbers_travel_as_tensors)
{
    static const char text[] = "# symbol: s0 = 3 in [2, int_oo] from \"L['n']\"\n"
                               "def forward(self, n: \"Sym(s0)\", f: \"float\", x: \"f32[s0]\"):\n"
                               "    y = x * 2.0\n    return (y, n)\n";
    tp_err *e = tp_err_new();
    tp_graph *g = tp_graph_parse(text, sizeof text - 1, "numbers", e);
    tp_program *p = g ? tp_compile(g, "eager", e) : NULL;
    int64_t four[] = { 4 }, n = 4;
    float v[4] = { 1, 2, 3, 4 };
    double half = 0.5;
    tp_tensor *in[3] = { tp_tensor_from_data(TP_I64, 0, NULL, &n, e),
                         tp_tensor_from_data(TP_F64, 0, NULL, &half, e),
                         tp_tensor_from_data(TP_F32, 1, four, v, e) },
              *out[2] = { 0 };
    if (!p || !tp_program_run(p, in, 3, out, 2, e))
        test_fail(__FILE__, __LINE__, "%s", tp_err_message(e));
    else
        CHECK(((float *)tp_tensor_data(out[0]))[3] == 8 && tp_tensor_ndim(out[1]) == 0 &&
              *(int64_t *)tp_tensor_data(out[1]) == 4);
    for (int i = 0; i < 3; i++)
        tp_tensor_unref(in[i]);
    for (int i = 0; i < 2; i++)
        tp_tensor_unref(out[i]);
    tp_program_free(p);
    tp_graph_free(g);
    tp_err_free(e);
}

static tp_graph *text_graph(const char *text, tp_err *e)
{
    tp_graph *g = tp_graph_parse(text, strlen(text), "checked", e);
    if (!g)
        test_fail(__FILE__, __LINE__, "%s", tp_err_message(e));
    return g;
}

/* n inputs and one result; false: an error was set. */
static bool run_one(tp_program *p, tp_tensor *const *in, int n, float *first, tp_err *e)
{
    tp_tensor *out = NULL;
    bool ok = tp_program_run(p, in, n, &out, 1, e);
    if (ok)
        *first = ((float *)tp_tensor_data(out))[0];
    tp_tensor_unref(out);
    return ok;
}

static const char *const engines[] = { "eager", "aot_eager", "aot_eager_decomp_partition", "inductor" };

TEST(api_inputs_are_checked)
{
    tp_err *e = tp_err_new();
    int64_t square[] = { 2, 2 }, turned[] = { 1, 2 }, row[] = { 1, 4 }, odd[] = { 7, 1 }, none[] = { 0, 4 };
    float v[4] = { 1, 2, 3, 4 }, r = 0;
    tp_graph *g = text_graph("def forward(self, x: \"f32[2, 2]\"):\n    y = x * 2.0\n    return (y,)\n", e),
             *one = text_graph(
                 "def forward(self, x: \"f32[1, 4]\"):\n    y = torch.sum(x)\n    return (y,)\n", e),
             *empty = text_graph(
                 "def forward(self, x: \"f32[0, 4]\"):\n    y = torch.sum(x)\n    return (y,)\n", e);
    tp_tensor *plain = tp_tensor_from_data(TP_F32, 2, square, v, e),
              *t = tp_tensor_wrap(TP_F32, 2, square, turned, v, NULL, NULL, e),
              *line = tp_tensor_wrap(TP_F32, 2, row, odd, v, NULL, NULL, e),
              *nothing = tp_tensor_wrap(TP_F32, 2, none, turned, v, NULL, NULL, e);
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        tp_program *p = tp_compile(g, engines[i], e), *q = tp_compile(one, engines[i], e),
                   *z = tp_compile(empty, engines[i], e);
        CHECK(p && q && z && run_one(p, &plain, 1, &r, e) && r == 2);
        CHECK(!run_one(p, &t, 1, &r, e));
        says(e, "input 'x': expected f32[2, 2][2, 1]cpu, but got f32[2, 2][1, 2]cpu");
        CHECK(run_one(q, &line, 1, &r, e) && r == 10); /* a stride that is never taken */
        CHECK(run_one(z, &nothing, 1, &r, e) && r == 0);
        CHECK(!run_one(q, &plain, 1, &r, e));
        says(e, "input 'x': expected f32[1, 4]");
        tp_program_free(p);
        tp_program_free(q);
        tp_program_free(z);
    }
    tp_tensor_unref(plain);
    tp_tensor_unref(t);
    tp_tensor_unref(line);
    tp_tensor_unref(nothing);
    tp_graph_free(g);
    tp_graph_free(one);
    tp_graph_free(empty);
    tp_err_free(e);
}

TEST(api_symbols_are_checked)
{
    static const char head[] = "# symbol: s0 = 3 in [2, 8] from \"L['x'].size()[0]\"\n";
    tp_err *e = tp_err_new();
    float v[64] = { 0 }, r = 0;
    for (int k = 0; k < 64; k++)
        v[k] = 1;
    strbuf text = { 0 };
    strbuf_addf(&text,
                "%s# guard: Mod(s0, 3) < 2\ndef forward(self, x: \"f32[s0, 4]\", y: \"f32[s0]\"):\n"
                "    m = x * s0\n    z = torch.sum(m)\n    return (z,)\n",
                head);
    tp_graph *g = text_graph(strbuf_str(&text), e);
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        tp_program *p = tp_compile(g, engines[i], e);
        CHECK(p != NULL);
        for (int64_t n = 1; p && n < 11; n++) {
            tp_tensor *in[2] = { tp_tensor_from_data(TP_F32, 2, (int64_t[]){ n, 4 }, v, e),
                                 tp_tensor_from_data(TP_F32, 1, (int64_t[]){ n }, v, e) };
            bool ok = run_one(p, in, 2, &r, e);
            if (n < 2 || n > 8)
                says(e, "s0 in [2, 8], which does not hold where s0 = ");
            else if (n % 3 == 2)
                says(e, "Mod(s0, 3) <= 1, which does not hold where s0 = ");
            else
                CHECK(ok && r == (float)(n * n * 4)); /* not what it would be for the hint */
            tp_tensor_unref(in[1]);
            in[1] = tp_tensor_from_data(TP_F32, 1, (int64_t[]){ n + 1 }, v, e);
            CHECK(!run_one(p, in, 2, &r, e));
            says(e, "input 'y': expected f32[s0][1]cpu where s0 = ");
            tp_tensor_unref(in[0]);
            tp_tensor_unref(in[1]);
        }
        tp_program_free(p);
    }
    tp_graph_free(g);
    strbuf_free(&text);
    tp_err_free(e);
}

TEST(api_shared_memory_is_checked)
{
    tp_err *e = tp_err_new();
    int64_t four[] = { 4 };
    float v[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, r = 0;
    tp_graph *reads = text_graph(
                 "def forward(self, x: \"f32[4]\", y: \"f32[4]\"):\n    z = x + y\n    return (z,)\n", e),
             *writes = text_graph("def forward(self, x: \"f32[4]\", y: \"f32[4]\"):\n    a = x.add_(1.0)\n"
                                  "    z = y * 2.0\n    return (z,)\n",
                                  e);
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        tp_program *p = tp_compile(reads, engines[i], e), *q = tp_compile(writes, engines[i], e);
        tp_tensor *x = tp_tensor_wrap(TP_F32, 1, four, NULL, v, NULL, NULL, e),
                  *over = tp_tensor_wrap(TP_F32, 1, four, NULL, v + 2, NULL, NULL, e),
                  *beside = tp_tensor_wrap(TP_F32, 1, four, NULL, v + 4, NULL, NULL, e);
        tp_tensor *same[2] = { x, x }, *some[2] = { x, over }, *apart[2] = { x, beside };
        CHECK(p && run_one(p, same, 2, &r, e) && r == 2 * v[0]);
        CHECK(q && !run_one(q, same, 2, &r, e));
        says(e, "inputs 'x' and 'y' share memory, which the graph writes");
        CHECK(q && !run_one(q, some, 2, &r, e));
        says(e, "inputs 'x' and 'y' share memory");
        CHECK(q && run_one(q, apart, 2, &r, e) && r == 2 * v[4]);
        tp_tensor_unref(x);
        tp_tensor_unref(over);
        tp_tensor_unref(beside);
        tp_program_free(p);
        tp_program_free(q);
    }
    tp_graph_free(reads);
    tp_graph_free(writes);
    tp_err_free(e);
}

TEST(api_whole_numbers_are_whole)
{
    static const char text[] =
        "# symbol: s0 = 3 in [2, int_oo] from \"L['n']\"\n"
        "def forward(self, n: \"Sym(s0)\", x: \"f32[2]\"):\n    y = x * n\n    return (y,)\n";
    tp_err *e = tp_err_new();
    tp_graph *g = text_graph(text, e);
    tp_program *p = tp_compile(g, "inductor", e);
    int64_t two[] = { 2 }, n = 5;
    float v[2] = { 1, 2 }, half = 2.5f, r = 0;
    tp_tensor *in[2] = { tp_tensor_from_data(TP_I64, 0, NULL, &n, e),
                         tp_tensor_from_data(TP_F32, 1, two, v, e) },
              *bad[2] = { tp_tensor_from_data(TP_F32, 0, NULL, &half, e), in[1] };
    CHECK(p && run_one(p, in, 2, &r, e) && r == 5);
    CHECK(p && !run_one(p, bad, 2, &r, e));
    says(e, "input 'n': expected Sym(s0), but got f32[]");
    tp_tensor_unref(in[0]);
    tp_tensor_unref(in[1]);
    tp_tensor_unref(bad[0]);
    tp_program_free(p);
    tp_graph_free(g);
    tp_err_free(e);
}

/* Objects that are NULL, because what made them failed, are refused or answered as empty. */
TEST(api_missing_objects)
{
    tp_err *e = tp_err_new();
    int64_t two[] = { 2 };
    tp_arg none = { .kind = TP_ARG_NODE };
    tp_graph *g = tp_graph_new("g");
    tp_node *nothing = NULL;
    CHECK(tp_tensor_ndim(NULL) == 0 && tp_tensor_numel(NULL) == 0 && !tp_tensor_data(NULL) &&
          !tp_tensor_ref(NULL));
    CHECK(tp_tensor_size(NULL, 0) == 0 && tp_tensor_stride(NULL, -1) == 0 && !tp_tensor_is_contiguous(NULL));
    CHECK(tp_dtype_size(tp_tensor_dtype(NULL)) == 0);
    CHECK(tp_graph_n_nodes(NULL) == 0 && tp_graph_n_inputs(NULL) == 0 && tp_graph_n_outputs(NULL) == 0);
    CHECK(!tp_graph_print(NULL) && tp_graph_hash(NULL) == 0 && !tp_node_name(NULL) && !tp_node_type(NULL));
    CHECK(!tp_err_is_set(NULL) && !*tp_err_message(NULL) && !*tp_err_class(NULL) && !*tp_err_notes(NULL));
    tp_err_clear(NULL);
    CHECK(!tp_tensor_contiguous(NULL, e));
    says(e, "the tensor is NULL; what made it has failed");
    CHECK(!tp_tensor_wrap(TP_F32, 1, two, NULL, NULL, NULL, NULL, e));
    says(e, "the memory to wrap is NULL");
    CHECK(!tp_graph_parse(NULL, 4, "x", e));
    says(e, "the text is NULL");
    CHECK(!tp_graph_load(NULL, e));
    says(e, "the path is NULL");
    CHECK(!tp_graph_save(NULL, "x", e));
    says(e, "the graph is NULL");
    CHECK(!tp_graph_verify(NULL, e) && !tp_graph_simplify(NULL, NULL, e));
    says(e, "the graph is NULL");
    CHECK(!tp_compile(NULL, "eager", e));
    says(e, "the graph is NULL");
    CHECK(!tp_compile(g, NULL, e));
    says(e, "the backend's name is NULL");
    CHECK(!tp_program_run(NULL, NULL, 0, NULL, 0, e));
    says(e, "the program is NULL");
    CHECK(!tp_graph_call(NULL, "relu", &none, 1, e) &&
          !tp_graph_input(NULL, "x", TP_F32, 1, two, NULL, NULL));
    says(e, "the graph is NULL");
    CHECK(!tp_graph_call(g, NULL, &none, 1, e));
    says(e, "the name of the operator is NULL");
    CHECK(!tp_graph_call(g, "relu", &none, 1, e));
    says(e, "a node is NULL");
    CHECK(!tp_graph_call(g, "relu", &none, -1, e));
    says(e, "-1 arguments that are not there");
    CHECK(!tp_graph_call(g, "relu", NULL, 1, e));
    says(e, "1 arguments that are not there");
    CHECK(!tp_graph_item(g, nothing, 0, e));
    says(e, "a node is NULL");
    CHECK(!tp_graph_output(NULL, &nothing, 1, e));
    says(e, "the graph is NULL");
    CHECK(tp_size_div(INT64_MIN / 4, -1) == -(INT64_MIN / 4) && tp_size_mod(INT64_MIN, -1) == 0);
    tp_graph_free(g);
    tp_err_free(e);
}
