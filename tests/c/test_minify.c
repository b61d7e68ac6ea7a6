/* The minifier: planted faults are cut down to the operator that has them. */
#include "test.h"
#include "debug/minify.h"
#include "base/fault.h"
#include "debug/backends.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static repro *make(const char *text, const char *backend, bool accuracy)
{
    tp_err err = { 0 };
    ir_graph *g = ir_parse(text, strlen(text), "test", NULL, &err);
    if (!g) {
        test_fail(__FILE__, __LINE__, "%s", err.msg);
        return NULL;
    }
    tp_val in[8];
    for (size_t i = 0; i < g->inputs.n; i++) {
        tp_tensor *t = tensor_new(DT_f32, ir_type(g->inputs.at[i])->ndim, ir_type(g->inputs.at[i])->size,
                                  NULL);
        for (int64_t k = 0; k < t->numel; k++)
            elem_set_f(DT_f32, tensor_elem(t, k), sin((double)k + (double)i));
        in[i] = vT(t);
    }
    repro *r = repro_new(g, in, (int)g->inputs.n, backend);
    r->accuracy = accuracy;
    for (size_t i = 0; i < g->inputs.n; i++)
        tensor_unref(in[i].t);
    ir_graph_free(g);
    return r;
}

/* twenty sines, one relu, some cosines (which damp a wrong value more and more) */
static char *long_chain(int cosines)
{
    strbuf b = { 0 };
    strbuf_add(&b, "def forward(self, x: \"f32[8]\"):\n    a0 = taper.ops.aten.sin.default(x)\n");
    int n = 0;
    for (int i = 0; i < 19; i++, n++)
        strbuf_addf(&b, "    a%d = taper.ops.aten.sin.default(a%d)\n", n + 1, n);
    strbuf_addf(&b, "    a%d = taper.ops.aten.relu.default(a%d)\n", n + 1, n);
    n++;
    for (int i = 0; i < cosines; i++, n++)
        strbuf_addf(&b, "    a%d = taper.ops.aten.cos.default(a%d)\n", n + 1, n);
    strbuf_addf(&b, "    return (a%d,)\n", n);
    return strbuf_take(&b);
}

static void finds_relu(const char *fault, const char *backend, bool accuracy, sig_kind want)
{
    tp_err err = { 0 };
    CHECK(fault_set(fault, &err));
    int cosines = want == SIG_accuracy ? 3 : 20;
    char *text = long_chain(cosines);
    repro *r = make(text, backend, accuracy), *m = NULL;
    minify_opts o = { .limits = { .timeout_ms = want == SIG_timeout ? 300 : 10000 } };
    minify_stats st;
    m = minify(r, &o, &st, &err);
    if (!m)
        test_fail(__FILE__, __LINE__, "%s: %s", fault, err.msg);
    else {
        CHECK_INT(st.sig.kind, want);
        CHECK_INT(st.before, 21 + cosines);
        CHECK_INT(st.after, 1);
        CHECK_INT(m->nin, 1);
        IR_EACH (n, m->g)
            if (n->kind == IR_call)
                CHECK_INT(n->op, OP_relu);
    }
    repro_free(m);
    repro_free(r);
    free(text);
    fault_set(NULL, NULL);
}

TEST(minify_compile_error) { finds_relu("relu:compile_error@gen", "inductor", false, SIG_compile_error); }
TEST(minify_compile_error_in_autograd_stage)
{
    finds_relu("relu:compile_error@aot", "aot_eager", false, SIG_compile_error);
}
TEST(minify_run_time_error) { finds_relu("relu:runtime_error@gen", "inductor", false, SIG_exception); }
TEST(minify_wrong_result) { finds_relu("relu:accuracy@gen", "inductor", true, SIG_accuracy); }
TEST(minify_nan) { finds_relu("relu:nan@gen", "inductor", true, SIG_accuracy); }
TEST(minify_segfault) { finds_relu("relu:segv@gen", "inductor", false, SIG_signal); }
TEST(minify_abort) { finds_relu("relu:abort@gen", "inductor", false, SIG_signal); }
TEST(minify_hang) { finds_relu("relu:hang@gen", "inductor", false, SIG_timeout); }
TEST(minify_out_of_memory) { finds_relu("relu:oom@gen", "inductor", false, SIG_oom); }

TEST(minify_refuses_a_graph_that_passes)
{
    tp_err err = { 0 };
    repro *r = make(
        "def forward(self, x: \"f32[4]\"):\n    a = taper.ops.aten.sin.default(x)\n    return (a,)\n",
        "inductor", true);
    minify_opts o = { 0 };
    minify_stats st;
    CHECK(!minify(r, &o, &st, &err));
    CHECK_STR(err.msg, "Input graph did not fail the tester");
    repro_free(r);
}

/* ---- known answers ---- */
static bool has_op(const repro *r, op_id op)
{
    IR_EACH (n, r->g)
        if (n->kind == IR_call && n->op == op)
            return true;
    return false;
}
static bool has_mul(void *data, const repro *r, signature *s)
{
    s->kind = SIG_exception;
    return has_op(r, OP_mul_Tensor);
}
static bool has_relu(void *data, const repro *r, signature *s)
{
    s->kind = SIG_exception;
    return has_op(r, OP_relu);
}
static bool returns_input(void *data, const repro *r, signature *s)
{
    s->kind = SIG_exception;
    for (int i = 0; i < r->g->output->narg; i++)
        if (r->g->output->arg[i].kind == VAL_node && r->g->output->arg[i].node->kind == IR_placeholder)
            return true;
    return false;
}
static bool makes_nan(void *data, const repro *r, signature *s)
{
    s->kind = SIG_exception;
    tp_val out[8];
    for (int i = 0; i < r->nin; i++)
        for (int64_t k = 0; k < r->in[i].t->numel; k++)
            if (isnan(elem_get_f(DT_f32, tensor_elem(r->in[i].t, k))))
                return false;
    if (!ir_run(op_ctx_cur(), r->g, r->in, r->nin, out, r->g->output->narg, NULL, NULL))
        return false;
    bool nan = false;
    for (int i = 0; i < r->g->output->narg; i++) {
        for (int64_t k = 0; k < out[i].t->numel; k++)
            nan |= isnan(elem_get_f(DT_f32, tensor_elem(out[i].t, k)));
        val_clear(&out[i]);
    }
    return nan;
}

static void known(const char *text, bool (*fails)(void *, const repro *, signature *), int nodes, int inputs)
{
    tp_err err = { 0 };
    repro *r = make(text, "eager", false), *m;
    minify_opts o = { .fails = fails };
    minify_stats st;
    m = minify(r, &o, &st, &err);
    if (!m)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    else {
        CHECK_INT(m->g->nnode, nodes);
        CHECK_INT(m->nin, inputs);
    }
    repro_free(m);
    repro_free(r);
}

TEST(minify_known_answer_mul)
{
    known(
        "def forward(self, x: \"f32[2]\", y: \"f32[2]\"):\n"
        "    a = taper.ops.aten.div.Tensor(y, 3)\n    b = taper.ops.aten.add.Tensor(x, 3)\n"
        "    c = taper.ops.aten.mul.Tensor(b, a)\n    d = taper.ops.aten.add.Tensor(c, a)\n    return (d,)\n",
        has_mul, 4, 2);
}
TEST(minify_known_answer_returned_input)
{
    known("def forward(self, a: \"f32[2]\", b: \"f32[2]\", c: \"f32[2]\"):\n"
          "    s = taper.ops.aten.sin.default(a)\n    k = taper.ops.aten.cos.default(c)\n"
          "    m = taper.ops.aten.mul.Tensor(s, k)\n    return (s, b, k, m)\n",
          returns_input, 2, 1);
}
TEST(minify_known_answer_nan)
{
    known("def forward(self, x: \"f32[2]\"):\n"
          "    a = taper.ops.aten.mul.Tensor(x, 3)\n    b = taper.ops.aten.add.Tensor(a, 5)\n"
          "    c = taper.ops.aten.cos.default(b)\n    z = taper.ops.aten.sub.Tensor(c, c)\n"
          "    n = taper.ops.aten.div.Tensor(z, z)\n    p = taper.ops.aten.add.Tensor(n, 3)\n"
          "    q = taper.ops.aten.mul.Tensor(p, 2)\n    return (q,)\n",
          makes_nan, 3, 1);
}

static bool has_add(void *data, const repro *r, signature *s)
{
    s->kind = SIG_exception;
    return has_op(r, OP_add_Tensor);
}
TEST(minify_known_answer_tuple)
{
    known(
        "def forward(self, a: \"f32[4]\", b: \"f32[4]\"):\n"
        "    both = taper.ops.aten.std_mean.default(a)\n    s = both[0]\n    m = both[1]\n"
        "    p = taper.ops.aten.mul.Tensor(b, m)\n    d = taper.ops.aten.add.Tensor(s, p)\n    return (d,)\n",
        has_add, 4, 2);
}
TEST(minify_known_answer_nan_after_relu)
{
    known(
        "def forward(self, x: \"f32[2]\"):\n"
        "    y = taper.ops.aten.relu.default(x)\n    z = taper.ops.aten.sub.Tensor(y, y)\n"
        "    n = taper.ops.aten.div.Tensor(z, z)\n    p = taper.ops.aten.add.Tensor(n, 3)\n    return (p,)\n",
        makes_nan, 3, 1);
}
TEST(minify_known_answer_relu_backend)
{
    tp_err err = { 0 };
    char *text = long_chain(20);
    debug_backends_register();
    repro *r = make(text, "relu_compile_error_TESTING_ONLY", false);
    minify_opts o = { 0 };
    minify_stats st;
    repro *m = minify(r, &o, &st, &err);
    if (!m)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    else {
        CHECK_INT(m->g->nnode, 3); /* relu of one input, nothing else */
        CHECK_INT(m->nin, 1);
        CHECK(has_op(m, OP_relu));
    }
    repro_free(m);
    repro_free(r);
    free(text);
}

/* log1p and relu are both wrong: with floats alone the search ends at relu, with bools counting at log1p. */
static void two_faults(bool strict, op_id want)
{
    tp_err err = { 0 };
    CHECK(fault_set("relu:accuracy@gen,log1p:accuracy@gen", &err));
    repro *r = make(
        "def forward(self, x: \"f32[20]\"):\n"
        "    y = taper.ops.aten.log1p.default(x)\n    b = taper.ops.aten.gt.Tensor(y, 0)\n"
        "    c = taper.ops.aten.logical_not.default(b)\n    d = taper.ops.aten.logical_not.default(c)\n"
        "    z = taper.ops.aten.relu.default(x)\n    w = taper.ops.aten.where.self(d, z, z)\n    return "
        "(w,)\n",
        "inductor", true);
    r->acc.ignore_non_fp = !strict;
    minify_opts o = { 0 };
    minify_stats st;
    repro *m = minify(r, &o, &st, &err);
    if (!m)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    else {
        CHECK_INT(m->g->nnode, 3);
        CHECK(has_op(m, want));
    }
    repro_free(m);
    repro_free(r);
    fault_set(NULL, NULL);
}
TEST(minify_known_answer_accuracy) { two_faults(false, OP_relu); }
TEST(minify_known_answer_strict_accuracy) { two_faults(true, OP_log1p); }

/* ---- more than the graph shrinks ---- */
TEST(minify_shrinks_sizes_types_and_values)
{
    tp_err err = { 0 };
    CHECK(fault_set("relu:accuracy@gen", &err));
    repro *r = make("def forward(self, x: \"f32[6, 40]\", w: \"f32[40, 12]\"):\n"
                    "    a = taper.ops.aten.mm.default(x, w)\n    b = taper.ops.aten._to_copy.default(a, "
                    "dtype = taper.float64)\n"
                    "    y = taper.ops.aten.relu.default(b)\n    z = taper.ops.aten.sum.dim_IntList(y, [1], "
                    "True)\n    return (z,)\n",
                    "inductor", true);
    minify_opts o = { 0 };
    minify_stats st;
    repro *m = minify(r, &o, &st, &err);
    if (!m)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    else {
        CHECK_INT(st.after, 1);
        CHECK_INT(m->nin, 1);
        CHECK_INT(m->in[0].t->numel, 1);
        CHECK_INT(m->in[0].t->dt, DT_f32);
        CHECK(elem_get_f(DT_f32, tensor_elem(m->in[0].t, 0)) == 1);
        CHECK_INT(st.verified, 3);
    }
    repro_free(m);
    repro_free(r);
    fault_set(NULL, NULL);
}

static void symbolic(const char *fault, bool stays)
{
    tp_err err = { 0 };
    CHECK(fault_set(fault, &err));
    repro *r = NULL, *m = NULL;
    const char *text =
        "# symbol: s0 = 5 in [2, int_oo] from \"L['x'].size()[0]\"\n"
        "def forward(self, x: \"f32[s0, 3][3, 1]cpu\"):\n"
        "    a = taper.ops.aten.sin.default(x)\n    v = taper.ops.aten.view.default(a, [3*s0])\n"
        "    y = taper.ops.aten.relu.default(v)\n    return (y,)\n";
    ir_graph *g = ir_parse(text, strlen(text), "test", NULL, &err);
    CHECK(g != NULL);
    if (!g)
        return;
    symint size[2] = { 5, 3 };
    tp_val in = vT(tensor_new(DT_f32, 2, size, NULL));
    for (int64_t k = 0; k < 15; k++)
        elem_set_f(DT_f32, tensor_elem(in.t, k), sin((double)k));
    r = repro_new(g, &in, 1, "inductor");
    r->accuracy = true;
    minify_opts o = { 0 };
    minify_stats st;
    m = minify(r, &o, &st, &err);
    if (!m)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    else {
        CHECK_INT(st.after, 1);
        CHECK_INT((int)m->g->inputs.n, stays ? 2 : 1); /* 3*s0 does not tell s0: what does stays */
        CHECK(sym_all_const(ir_type(m->g->inputs.at[0])->size, ir_type(m->g->inputs.at[0])->ndim) != stays);
    }
    repro_free(m);
    repro_free(r);
    tensor_unref(in.t);
    ir_graph_free(g);
    fault_set(NULL, NULL);
}

TEST(minify_symbolic_sizes) { symbolic("relu:accuracy@gen", false); }
/* Numbers in the place of symbols would hide it. */
TEST(minify_failure_of_dynamic_sizes) { symbolic("relu:accuracy@gen/dynamic", true); }

/* Wrong every other time: trials are repeated until it shows. */
static void comes_and_goes(const char *fault, int most)
{
    tp_err err = { 0 };
    CHECK(fault_set(fault, &err));
    char *text = long_chain(most - 1); /* fusion needs company */
    repro *r = make(text, "inductor", true);
    minify_opts o = { 0 };
    minify_stats st;
    repro *m = minify(r, &o, &st, &err);
    if (!m)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    else {
        CHECK(st.after >= 1 && st.after <= most);
        CHECK(has_op(m, OP_relu));
    }
    repro_free(m);
    repro_free(r);
    free(text);
    fault_set(NULL, NULL);
}
TEST(minify_failure_that_comes_and_goes) { comes_and_goes("relu:flaky@gen", 1); }
TEST(minify_failure_that_comes_and_goes_in_lowering) { comes_and_goes("relu:flaky@lower", 1); }
TEST(minify_failure_that_comes_and_goes_with_fusion) { comes_and_goes("relu:flaky@fuse", 2); }
TEST(minify_failure_that_comes_and_goes_with_the_compile) { comes_and_goes("relu:flaky@aot", 1); }

/* Interrupted and started again, a search knows what it learnt. */
static int left;
static bool after_a_while(void *data) { return left-- <= 0; }
TEST(minify_interrupted_goes_on)
{
    tp_err err = { 0 };
    char *text = long_chain(20), path[] = "/tmp/taper_memo_XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    repro *r = make(text, "eager", false), *a, *b;
    minify_opts o = { .fails = has_relu,
                      .memo_file = path,
                      .limits = { .interrupted = after_a_while, .width = 2 } };
    minify_stats st, st2;
    left = 12;
    a = minify(r, &o, &st, &err);
    CHECK(a && st.stopped && st.after < st.before);
    left = 1 << 30;
    b = minify(r, &o, &st2, &err);
    CHECK(b && !st2.stopped && st2.after == 1 && st2.hits > 0);
    remove(path);
    repro_free(a);
    repro_free(b);
    repro_free(r);
    free(text);
}
