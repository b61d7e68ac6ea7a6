/* The autograd stage: pure graphs give what the tape gives. */
#include "test.h"
#include "aot/aot.h"
#include "compile/backend.h"
#include <math.h>

enum { MAXIO = 8 };
typedef struct outcome {
    tp_val out[MAXIO];
    int nout;
    tp_tensor *in[MAXIO];
    int nin;
} outcome;

static tp_tensor *input(const ir_node *p, int seed)
{
    const tp_tensor *t = ir_type(p);
    tp_tensor *x = tensor_new_strided((dtype)t->dt, t->ndim, t->size, t->stride, DEVICE_CPU, NULL);
    for (int64_t k = 0; k < x->numel; k++)
        elem_set_f((dtype)x->dt, tensor_elem(x, k), sin(1.0 + seed * 7 + (double)k * 0.37));
    return x;
}

/* Run text with a backend; grads: how many leading inputs need gradients. Backward from every result. */
static bool run(const char *text, const char *name, int grads, outcome *o)
{
    tp_err err = { 0 };
    op_ctx *cx = op_ctx_cur();
    bool ok = false;
    memset(o, 0, sizeof *o);
    ir_graph *g = ir_parse(text, strlen(text), "test", NULL, &err);
    run_program *p = NULL;
    tp_val in[MAXIO];
    if (!g)
        goto done;
    o->nin = (int)g->inputs.n;
    o->nout = g->output->narg;
    tp_comp c = { .err = &err, .verify = true };
    const backend *b = strcmp(name, "tape") ? backend_find(name, &err) : NULL;
    if (strcmp(name, "tape") && (!b || !(p = backend_compile(b, &c, g, NULL))))
        goto done;
    for (int i = 0; i < o->nin; i++) {
        o->in[i] = input(g->inputs.at[i], i);
        if (i < grads && !grad_set_requires_grad(cx, o->in[i], true, &err))
            goto done;
        in[i] = vT(o->in[i]);
    }
    ir_hook h = { .call = grad_call };
    ok = p ? run_program_call(p, cx, in, o->nin, o->out, o->nout, &err)
           : ir_run(cx, g, in, o->nin, o->out, o->nout, &h, &err);
    if (ok && grads) {
        tp_tensor *root[MAXIO], *dy[MAXIO];
        int n = 0;
        for (int i = 0; i < o->nout; i++)
            if (o->out[i].kind == VAL_tensor && grad_requires_grad(o->out[i].t)) {
                root[n] = o->out[i].t;
                dy[n] = tensor_new_strided((dtype)root[n]->dt, root[n]->ndim, root[n]->size, NULL, DEVICE_CPU,
                                           NULL);
                for (int64_t k = 0; k < dy[n]->numel; k++)
                    elem_set_f((dtype)dy[n]->dt, tensor_elem(dy[n], k), 0.5 + 0.25 * (double)(k % 5));
                n++;
            }
        CHECK(n > 0);
        grad_options ao = { 0 };
        ok = grad_backward(cx, root, n, dy, &ao, &err);
        for (int i = 0; i < n; i++)
            tensor_unref(dy[i]);
    }
done:
    if (!ok)
        test_fail(__FILE__, __LINE__, "%s: %s (%s)", name, err.msg, err.notes);
    run_program_free(p);
    ir_graph_free(g);
    return ok;
}

static void drop(outcome *o)
{
    for (int i = 0; i < o->nout; i++)
        val_clear(&o->out[i]);
    for (int i = 0; i < o->nin; i++)
        tensor_unref(o->in[i]);
}

static void same(const char *what, const char *backend, int i, tp_tensor *a, tp_tensor *b)
{
    if (!a || !b) {
        if (a != b)
            test_fail(__FILE__, __LINE__, "%s: %s %d: one is missing", backend, what, i);
        return;
    }
    if (!tensor_same_size(a, b) || a->dt != b->dt) {
        test_fail(__FILE__, __LINE__, "%s: %s %d: types differ", backend, what, i);
        return;
    }
    for (int64_t k = 0; k < a->numel; k++) {
        double x = elem_get_f((dtype)a->dt, tensor_elem(a, k)),
               y = elem_get_f((dtype)b->dt, tensor_elem(b, k));
        if (!(fabs(x - y) <= 1e-12 * (1 + fabs(x)))) {
            test_fail(__FILE__, __LINE__, "%s: %s %d, element %d: %g != %g", backend, what, i, (int)k, x, y);
            return;
        }
    }
}

static void agree(const char *text, int grads)
{
    static const char *const backends[] = { "aot_eager", "aot_eager_decomp_partition",
                                            "aot_eager_decomp_partition_crossref", "inductor" };
    outcome want, got;
    if (!run(text, "tape", grads, &want))
        return;
    for (size_t b = 0; b < COUNT(backends); b++) {
        if (run(text, backends[b], grads, &got)) {
            for (int i = 0; i < want.nout; i++)
                same("result", backends[b], i, want.out[i].t, got.out[i].t);
            for (int i = 0; i < want.nin; i++) {
                same("input", backends[b], i, want.in[i], got.in[i]);
                same("gradient", backends[b], i, grad_grad(want.in[i]), grad_grad(got.in[i]));
            }
        }
        drop(&got);
    }
    drop(&want);
}

TEST(aot_chain_and_broadcast)
{
    agree("def forward(self, x: \"f64[2, 3]\", y: \"f64[3]\"):\n"
          "    a = taper.ops.aten.sin.default(x)\n"
          "    b = taper.ops.aten.mul.Tensor(a, y)\n"
          "    c = taper.ops.aten.add.Tensor(b, x)\n"
          "    return (c,)\n",
          2);
}

TEST(aot_matmul_relu_sum)
{
    agree("def forward(self, x: \"f64[4, 3]\", w: \"f64[3, 5]\", b: \"f64[5]\"):\n"
          "    m = taper.ops.aten.mm.default(x, w)\n"
          "    a = taper.ops.aten.add.Tensor(m, b)\n"
          "    r = taper.ops.aten.relu.default(a)\n"
          "    e = taper.ops.aten.exp.default(r)\n"
          "    s = taper.ops.aten.sum.default(e)\n"
          "    return (s, r)\n",
          3);
}

TEST(aot_inplace_on_intermediate)
{
    agree("def forward(self, x: \"f64[2, 3]\"):\n"
          "    a = taper.ops.aten.sin.default(x)\n"
          "    b = taper.ops.aten.add_.Tensor(a, 1)\n"
          "    c = taper.ops.aten.mul.Tensor(a, b)\n"
          "    return (c,)\n",
          1);
}

TEST(aot_inplace_through_views)
{
    agree("def forward(self, x: \"f64[3, 3]\"):\n"
          "    a = taper.ops.aten.sin.default(x)\n"
          "    t = taper.ops.aten.t.default(a)\n"
          "    s = taper.ops.aten.select.int(t, 0, 1)\n"
          "    u = taper.ops.aten.mul_.Tensor(s, 3)\n"
          "    v = taper.ops.aten.add_.Tensor(s, 1)\n"
          "    w = taper.ops.aten.mul_.Tensor(t, 2)\n"
          "    z = taper.ops.aten.add_.Tensor(t, x)\n"
          "    c = taper.ops.aten.exp.default(a)\n"
          "    d = taper.ops.aten.add.Tensor(c, s)\n"
          "    return (d,)\n",
          1);
}

TEST(aot_inputs_written_back)
{
    agree("def forward(self, x: \"f64[2, 4]\", y: \"f64[2, 4]\"):\n"
          "    s = taper.ops.aten.slice.Tensor(y, 1, 1, 3)\n"
          "    a = taper.ops.aten.add_.Tensor(s, 5)\n"
          "    b = taper.ops.aten.mul.Tensor(x, y)\n"
          "    c = taper.ops.aten.copy_.default(y, x)\n"
          "    return (b, y)\n",
          0);
}

TEST(aot_results_alias_inputs)
{
    tp_err err = { 0 };
    const char *text = "def forward(self, x: \"f64[2, 3]\"):\n"
                       "    t = taper.ops.aten.transpose.int(x, 0, 1)\n"
                       "    y = taper.ops.aten.sin.default(x)\n"
                       "    return (t, x, y)\n";
    outcome o;
    if (run(text, "aot_eager", 0, &o)) {
        CHECK(o.out[0].t->storage == o.in[0]->storage);
        CHECK(o.out[1].t == o.in[0]);
        CHECK(o.out[2].t->storage != o.in[0]->storage);
    }
    drop(&o);
    (void)err;
    agree(text, 1);
}

TEST(aot_partition_recomputes_cheap_work)
{
    tp_err err = { 0 };
    const char *text = "def forward(self, x: \"f32[64, 64]\"):\n"
                       "    a = taper.ops.aten.sin.default(x)\n"
                       "    b = taper.ops.aten.exp.default(a)\n"
                       "    c = taper.ops.aten.cos.default(b)\n"
                       "    d = taper.ops.aten.mul.Tensor(c, b)\n"
                       "    return (d,)\n";
    ir_graph *g = ir_parse(text, strlen(text), "test", NULL, &err);
    CHECK(g != NULL);
    tp_comp c = { .err = &err };
    bool needs[1] = { true };
    aot_unit *all = aot_trace(&c, g, needs, true, 0, NULL),
             *cut = aot_trace(&c, g, needs, true, AOT_min_cut, NULL);
    CHECK(all && cut);
    if (all && cut) {
        CHECK(cut->saved_bytes < all->saved_bytes);
        CHECK_INT(cut->saved_bytes, 0); /* the input is enough */
        CHECK(ir_verify(cut->fw, &err) && ir_verify(cut->bw, &err));
        CHECK_STR(err.msg, "");
    }
    aot_unit_free(all);
    aot_unit_free(cut);
    ir_graph_free(g);
}

/* Each rule of a finished unit is broken once, and named. */
TEST(aot_unit_rules)
{
    tp_err err = { 0 };
    const char *text = "def forward(self, x: \"f32[4, 4]\", y: \"f32[4]\"):\n"
                       "    a = taper.ops.aten.exp.default(x)\n"
                       "    w = y.add_(1)\n"
                       "    d = taper.ops.aten.mul.Tensor(a, w)\n"
                       "    return (d,)\n";
    ir_graph *g = ir_parse(text, strlen(text), "test", NULL, &err);
    tp_comp c = { .err = &err };
    bool needs[2] = { true, false };
    aot_unit *u = g ? aot_trace(&c, g, needs, true, AOT_min_cut, NULL) : NULL;
    CHECK(u && u->bw && u->nmut == 1 && u->nsaved && aot_unit_check(u, &err));
    if (u) {
        struct {
            int *at, wrong;
            const char *rule;
        } rules[] = {
            { &u->nin, 1, "take the inputs" },
            { &u->nsaved, 0, "forward does not return" },
            { &u->mut[0], 0, "new value of an input" },
            { &u->out[0].index, 9, "made of nothing" },
            { &u->ntangent, 0, "take what is saved" },
            { &u->ngrad, 2, "return the gradients" },
            { &u->tangent[0], 1, "a tangent is of another type" },
            { &u->grad[0], 1, "a gradient is of another type" },
            { &u->grad[0], -2, "belongs to nothing" },
        };
        for (size_t i = 0; i < COUNT(rules); i++) {
            int was = *rules[i].at;
            *rules[i].at = rules[i].wrong;
            err_clear(&err);
            CHECK(!aot_unit_check(u, &err) && strstr(err.msg, rules[i].rule));
            *rules[i].at = was;
        }
        err_clear(&err);
        CHECK(aot_unit_check(u, &err));
    }
    aot_unit_free(u);
    ir_graph_free(g);
}

TEST(aot_no_joint_graph_without_gradients)
{
    tp_err err = { 0 };
    const char *text =
        "def forward(self, x: \"f32[4]\"):\n    a = taper.ops.aten.sin.default(x)\n    return (a,)\n";
    ir_graph *g = ir_parse(text, strlen(text), "test", NULL, &err);
    tp_comp c = { .err = &err };
    bool needs[1] = { true };
    aot_unit *u = aot_trace(&c, g, needs, false, AOT_min_cut, NULL);
    CHECK(u && !u->bw && u->ngrad == 0 && u->nsaved == 0);
    aot_unit_free(u);
    ir_graph_free(g);
}

TEST(aot_composites_reach_the_core_set)
{
    static const char *const text =
        "def forward(self, x: \"f32[4, 6, 8, 8]\", w: \"f32[6]\", b: \"f32[6]\", m: \"f32[6]\", v: "
        "\"f32[6]\", "
        "t: \"i64[4]\", k: \"f32[8]\"):\n"
        "    a = taper.ops.aten.batch_norm.default(x, w, b, m, v, True, 0.1, 1e-05, False)\n"
        "    c = taper.ops.aten.gelu.default(a)\n"
        "    d = taper.ops.aten.layer_norm.default(c, [8], k, k)\n"
        "    e = taper.ops.aten.group_norm.default(d, 2, w, b)\n"
        "    f = taper.ops.aten.softmax.int(e, 3)\n"
        "    s = taper.ops.aten.slice.Tensor(f, 2, 1, 7)\n"
        "    q = taper.ops.aten.max_pool2d.default(s, [2, 2])\n"
        "    h = taper.ops.aten.mean.dim(q, [2, 3])\n"
        "    l = taper.ops.aten.cross_entropy_loss.default(h, t)\n"
        "    return (l,)\n";
    tp_err err = { 0 };
    ir_graph *g = ir_parse(text, strlen(text), "test", NULL, &err);
    CHECK_STR(err.msg, "");
    tp_comp c = { .err = &err };
    bool needs[7] = { true, true, true, false, false, false, true };
    aot_unit *u = g ? aot_trace(&c, g, needs, true, AOT_decompose | AOT_min_cut, NULL) : NULL;
    CHECK_STR(err.msg, "");
    if (u)
        IR_EACH (n, u->joint) {
            bool call = n->kind == IR_call &&
                        n->op == OP__max_pool2d_offsets_backward; /* where windows are small */
            if (n->kind == IR_call && !call && !aot_is_core((op_id)n->op))
                CHECK_STR(op_row_of((op_id)n->op)->full, "a row of the core set");
        }
    aot_unit_free(u);
    ir_graph_free(g);
}

TEST(aot_partition_saves_what_backward_reads_when_it_costs_the_same)
{
    static const char *const text =
        "def forward(self, x: \"f32[64, 64]\", w: \"f32[64, 64]\", v: \"f32[64, 64]\"):\n"
        "    a = taper.ops.aten.mm.default(x, w)\n"
        "    b = taper.ops.aten.relu.default(a)\n"
        "    c = taper.ops.aten.mm.default(b, v)\n"
        "    return (c,)\n";
    tp_err err = { 0 };
    ir_graph *g = ir_parse(text, strlen(text), "test", NULL, &err);
    tp_comp c = { .err = &err };
    bool needs[3] = { false, true, true };
    aot_unit *u = g ? aot_trace(&c, g, needs, true, AOT_decompose | AOT_min_cut, NULL) : NULL;
    CHECK_STR(err.msg, "");
    if (u) {
        CHECK_INT(u->saved_bytes, 64 * 64 * 4);
        IR_EACH (n, u->bw)
            CHECK(n->kind != IR_call || n->op != OP_relu); /* not computed again */
    }
    aot_unit_free(u);
    ir_graph_free(g);
}
