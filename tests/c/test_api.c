/* test_api.c - include/taper.h with wrong input: everything is an error, nothing leaks. */
#include "taper.h"
#include "test.h"

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
