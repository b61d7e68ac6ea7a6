/* test_ir.c - building, verifying, running, hashing, passes and their decisions. */
#include "ir/pass.h"
#include "ir/text.h"
#include "compile/backend.h"
#include "test.h"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static ir_graph *parse(const char *text)
{
    tp_err e = { 0 };
    ir_graph *g = ir_parse(text, strlen(text), "t", NULL, &e);
    if (!g)
        test_fail(__FILE__, __LINE__, "%s\n%s", e.msg, text);
    return g;
}
static tp_tensor *floats(int n, const float *v)
{
    symint size[] = { n };
    tp_tensor *t = tensor_new(DT_f32, 1, size, NULL);
    memcpy(tensor_data(t), v, sizeof *v * (size_t)n);
    return t;
}
static float first(const tp_val *v) { return *(float *)tensor_data(v->t); }
static ir_node *node(ir_graph *g, const char *name) { return map_get(&g->names, name); }
static tp_val of(ir_node *n) { return (tp_val){ .kind = VAL_node, .node = n }; }

/* ---- building ---- */
TEST(ir_build_infers)
{
    ir_graph *g = ir_graph_new("g");
    symint size[] = { 2, 3 };
    tp_err e = { 0 };
    tp_tensor *t = tensor_new_fake(DT_f32, 2, size, NULL, DEVICE_CPU);
    ir_node *x = ir_add_placeholder(g, "x", NULL, t);
    tensor_unref(t);
    ir_node *y = ir_build(g, OP_transpose_int, OPV_fn, (tp_val[]){ of(x), vI(0), vI(1) }, 3, &e);
    CHECK(y && ir_type(y)->size[0] == 3 && ir_type(y)->stride[0] == 1);
    CHECK(ir_type(y)->storage == ir_type(x)->storage); /* a view shares storage */
    ir_node *z = ir_build(g, OP_add_Tensor, OPV_fn, (tp_val[]){ of(y), vF(1.5) }, 2, &e);
    CHECK(z && ir_type(z)->dt == DT_f32 && z->narg == 3);
    CHECK(!ir_build(g, OP_add_Tensor, OPV_fn, (tp_val[]){ of(y), of(x) }, 2, &e));
    CHECK(strstr(e.msg, "must match the size of tensor b") != NULL);
    err_clear(&e);
    CHECK(!ir_build(g, OP_add_Tensor, OPV_fn, (tp_val[]){ of(y), vS("a") }, 2, &e));
    CHECK_STR(e.msg, "add.Tensor(): argument 'other' (position 2) must be Tensor, not str");
    err_clear(&e);
    CHECK(!ir_build(g, OP_add_Tensor, OPV_fn, (tp_val[]){ vI(1), vI(2) }, 2, &e));
    CHECK_STR(e.msg, "add.Tensor(): argument 'self' (position 1) must be Tensor, not int");
    err_clear(&e);
    CHECK(!ir_build(g, OP_mm, OPV_inplace, (tp_val[]){ of(x), of(y) }, 2, &e));
    CHECK_STR(e.msg, "mm has no in-place form");
    err_clear(&e);
    CHECK(!ir_verify(g, &e));
    CHECK_STR(e.msg, "graph 'g' breaks the rule 'one output': it returns nothing yet");
    err_clear(&e);
    ir_set_output(g, (tp_val[]){ of(z) }, 1);
    CHECK(ir_verify(g, &e));
    ir_graph_free(g);
}

/* ---- verifying ---- */
#define CHAIN                             \
    "def forward(self, x: \"f32[2]\"):\n" \
    "    a = taper.sin(x)\n"              \
    "    b = taper.cos(a)\n"              \
    "    c = a + b\n"                     \
    "    return (c,)\n"

static void breaks(ir_graph *g, const char *says)
{
    tp_err e = { 0 };
    bool ok = ir_verify(g, &e);
    if (ok || !strstr(e.msg, says))
        test_fail(__FILE__, __LINE__, "got: %s\n  expected: %s", ok ? "fine" : e.msg, says);
    ir_graph_free(g);
}

TEST(ir_verify_names_the_rule)
{
    ir_graph *g = parse(CHAIN);
    ir_insert_before(g, node(g, "a"), node(g, "b"));
    breaks(g, "node 'b' breaks the rule 'definition before use': operand 'a' is defined later");

    g = parse(CHAIN);
    ir_set_arg(node(g, "b"), 0, of(node(g, "c"))); /* a cycle */
    breaks(g, "node 'b' breaks the rule 'definition before use': operand 'c'");

    g = parse(CHAIN);
    node(g, "b")->narg = 0;
    breaks(g, "node 'b' breaks the rule 'arity': cos takes 1 arguments, not 0");

    g = parse(CHAIN);
    ir_set_arg(node(g, "b"), 0, vS("no"));
    breaks(g,
           "node 'b' breaks the rule 'schema': cos(): argument 'self' (position 1) must be Tensor, not str");

    g = parse(CHAIN);
    ir_type(node(g, "b"))->dt = DT_f64;
    breaks(
        g,
        "node 'b' breaks the rule 'types': its type is f64[2][1]cpu, but the shape rule says f32[2][1]cpu");

    g = parse(CHAIN);
    node(g, "b")->arg[0].node = node(g, "x"); /* behind the use lists' back */
    breaks(g, "breaks the rule 'use lists'");

    g = parse(CHAIN);
    node(g, "a")->nuse = 1;
    breaks(g, "node 'a' breaks the rule 'use lists'");

    g = parse(CHAIN);
    node(g, "b")->name = "a";
    breaks(g, "breaks the rule 'unique names'");

    g = parse(CHAIN);
    node(g, "b")->op = OP_COUNT;
    breaks(g, "node 'b' breaks the rule 'operators'");

    ir_graph *h = parse(CHAIN);
    g = parse(CHAIN);
    ir_set_arg(g->output, 0, of(node(h, "c")));
    breaks(g, "breaks the rule 'own nodes': operand 'c' belongs to another graph");
    ir_graph_free(h);
}

/* x, w, s = sin(x), c = cos(s), m = s * c, recorded: all types are the shape rules'. */
static ir_graph *recorded(tp_tensor **result)
{
    ir_graph *g = ir_graph_new("recorded");
    ir_rec rec = { .g = g };
    op_ctx *cx = op_ctx_cur();
    symint size[2] = { 2, 3 };
    tp_tensor *fake[2] = { tensor_new_fake(DT_f32, 2, size, NULL, DEVICE_CPU),
                           tensor_new_fake(DT_f32, 1, size + 1, NULL, DEVICE_CPU) };
    ir_node *x = ir_add_placeholder(g, "x", "x", fake[0]);
    ir_add_placeholder(g, "w", "w", fake[1]);
    tp_val in = vT(ir_proxy(&rec, x)), s = vNone, c = vNone, m = vNone;
    cx->rec = &rec;
    CHECK(ir_call(cx, OP_sin, OPV_fn, &in, &s, NULL) && ir_call(cx, OP_cos, OPV_fn, &s, &c, NULL));
    CHECK(ir_call(cx, OP_mul_Tensor, OPV_fn, (tp_val[]){ s, c }, &m, NULL));
    cx->rec = NULL;
    tp_val out = of(m.t->node);
    ir_set_output(g, &out, 1);
    val_clear(&in);
    val_clear(&s);
    val_clear(&c);
    *result = m.t;
    tensor_unref(fake[0]);
    tensor_unref(fake[1]);
    return g;
}

TEST(ir_verify_changed_asks_where_operands_changed)
{
    tp_tensor *m;
    tp_err e = { 0 };
    ir_graph *g = recorded(&m);
    CHECK(node(g, "sin")->typed && node(g, "cos")->typed && node(g, "mul")->typed);
    CHECK(ir_verify_changed(g, &e) && ir_verify(g, &e));
    ir_replace_uses(node(g, "cos"), node(g, "sin")); /* of the same type */
    CHECK(node(g, "mul")->typed && ir_verify_changed(g, &e) && ir_verify(g, &e));
    ir_replace_uses(node(g, "x"), node(g, "w"));
    CHECK(!node(g, "sin")->typed && !ir_verify_changed(g, &e));
    CHECK(strstr(
        e.msg, "node 'sin' breaks the rule 'types': its type is f32[2, 3][3, 1]cpu, but the shape rule says "
               "f32[3][1]cpu"));
    tensor_unref(m);
    ir_graph_free(g);

    g = recorded(&m);
    e = (tp_err){ 0 };
    ir_set_arg(node(g, "cos"), 0, of(node(g, "w")));
    CHECK(!ir_verify_changed(g, &e) && strstr(e.msg, "node 'cos' breaks the rule 'types'"));
    tensor_unref(m);
    ir_graph_free(g);

    g = recorded(&m); /* built with a type that nobody inferred */
    e = (tp_err){ 0 };
    tp_val x = of(node(g, "x"));
    ir_add_call(g, OP_neg, OPV_fn, &x, 1, vT(tensor_ref(ir_type(node(g, "w")))));
    CHECK(!ir_verify_changed(g, &e) && strstr(e.msg, "node 'neg' breaks the rule 'types'"));
    tensor_unref(m);
    ir_graph_free(g);

    g = recorded(&m); /* a proxy whose header is not its node's */
    e = (tp_err){ 0 };
    ir_rec rec = { .g = g };
    tp_val in = vT(ir_proxy(&rec, node(g, "x"))), out = vNone;
    in.t->size[0] = 5;
    op_ctx_cur()->rec = &rec;
    CHECK(ir_call(op_ctx_cur(), OP_neg, OPV_fn, &in, &out, &e));
    op_ctx_cur()->rec = NULL;
    CHECK(!ir_verify_changed(g, &e) && strstr(e.msg, "node 'neg' breaks the rule 'types'"));
    val_clear(&in);
    val_clear(&out);
    tensor_unref(m);
    ir_graph_free(g);
}

TEST(ir_uses_follow_edits)
{
    ir_graph *g = parse(CHAIN);
    ir_node *a = node(g, "a"), *b = node(g, "b"), *c = node(g, "c"), *x = node(g, "x");
    CHECK_INT(a->nuse, 2);
    ir_replace_uses(a, x);
    CHECK_INT(a->nuse, 0);
    CHECK_INT(x->nuse, 3);
    CHECK(ir_verify(g, NULL));
    ir_erase(a);
    CHECK_INT(x->nuse, 2);
    ir_set_arg(c, 0, of(b));
    CHECK_INT(b->nuse, 2);
    CHECK(ir_verify(g, NULL));
    ir_graph_free(g);
}

/* ---- running ---- */
typedef struct log {
    strbuf b;
    bool stop;
} log_;
static bool log_before(void *data, ir_node *n, tp_err *err)
{
    strbuf_addf(&((log_ *)data)->b, "%s ", n->name);
    return !((log_ *)data)->stop || err_set(err, ERR_runtime, "stopped");
}
static bool log_after(void *data, ir_node *n, tp_val *v, tp_err *err)
{
    if (!strcmp(n->name, "b")) /* may replace a value */
        *(float *)tensor_data(v->t) = 100;
    return true;
}

TEST(ir_run_with_hooks)
{
    ir_graph *g = parse(CHAIN);
    tp_val in = vT(floats(2, (float[]){ 0, 0 })), out = vNone;
    tp_err e = { 0 };
    log_ l = { 0 };
    ir_hook h = { .before = log_before, .after = log_after, .data = &l };
    CHECK(ir_run(op_ctx_cur(), g, &in, 1, &out, 1, &h, &e));
    CHECK_STR(strbuf_str(&l.b), "a b c ");
    CHECK(first(&out) == 100);
    val_clear(&out);
    l.stop = true;
    CHECK(!ir_run(op_ctx_cur(), g, &in, 1, &out, 1, &h, &e));
    CHECK_STR(e.msg, "stopped");
    err_clear(&e);
    CHECK(!ir_run(op_ctx_cur(), g, &in, 0, &out, 1, NULL, &e));
    CHECK_STR(e.msg, "the graph takes 1 inputs but 0 were given");
    err_clear(&e);
    CHECK(!ir_check_inputs(g, &(tp_val){ .kind = VAL_int }, 1, &e));
    CHECK_STR(e.msg, "input 'x': expected f32[2][1]cpu, but got Sym(0)");
    strbuf_free(&l.b);
    val_clear(&in);
    ir_graph_free(g);
}

TEST(ir_run_on_fake_tensors)
{
    ir_graph *g = parse("# symbol: s0 = 4 in [2, int_oo]\n"
                        "def forward(self, x: \"f32[s0, 2]\"):\n"
                        "    y = x.view([2*s0])\n"
                        "    z = taper.zeros([s0 + 1])\n"
                        "    return (y, z, 3*s0)\n");
    symint size[] = { 7, 2 };
    tp_val in = vT(tensor_new_fake(DT_f32, 2, size, NULL, DEVICE_CPU)), out[3] = { 0 };
    tp_err e = { 0 };
    ir_hook h = { .call = ops_fake };
    CHECK(ir_run(op_ctx_cur(), g, &in, 1, out, 3, &h, &e));
    CHECK(out[0].kind == VAL_tensor && tensor_is_fake(out[0].t) && out[0].t->size[0] == 14);
    CHECK(out[1].kind == VAL_tensor && out[1].t->size[0] == 8);
    CHECK(out[2].kind == VAL_int && out[2].i == 21);
    for (int i = 0; i < 3; i++)
        val_clear(&out[i]);
    val_clear(&in);
    ir_graph_free(g);
}

TEST(ir_run_nested)
{
    ir_graph *g = parse(
        "def t(self, a: \"f32[2]\"):\n    b = a + 1\n    return (b,)\n"
        "def f(self, a: \"f32[2]\"):\n    b = a - 1\n    return (b,)\n"
        "def more(self, i: \"f32[]\", a: \"f32[2]\", n: \"f32[]\"):\n    p = n > i\n    return (p,)\n"
        "def body(self, i: \"f32[]\", a: \"f32[2]\", n: \"f32[]\"):\n"
        "    j = i + 1\n    b = a * 2\n    return (j, b)\n"
        "# const: zero: \"f32[]\" = [0.0]\n"
        "# const: ten: \"f32[]\" = [10.0]\n"
        "def forward(self, p: \"b8[]\", x: \"f32[2]\"):\n"
        "    cond: \"(f32[2],)\" = taper.ops.higher_order.cond(p, self.t, self.f, [x])\n"
        "    y = cond[0]\n    zero = self.zero\n    ten = self.ten\n"
        "    w: \"(f32[], f32[2])\" = taper.ops.higher_order.while_loop(self.more, self.body, [zero, y], "
        "[ten])\n"
        "    z = w[1]\n"
        "    return (z,)\n");
    if (!g)
        return;
    tp_err e = { 0 };
    CHECK(ir_verify(g, &e));
    ir_prog *p = ir_prog_new(g);
    for (int yes = 0; yes < 2; yes++) {
        tp_val in[2] = { vT(tensor_scalar(DT_bool, 0, yes, NULL)), vT(floats(2, (float[]){ 3, 3 })) },
               out = vNone;
        CHECK(ir_prog_run(p, op_ctx_cur(), in, 2, &out, 1, NULL, &e));
        CHECK(out.kind == VAL_tensor && first(&out) == (yes ? 4 : 2) * 1024);
        val_clear(&out);
        val_clear(&in[0]);
        val_clear(&in[1]);
    }
    ir_prog_free(p);
    ir_graph_free(g);
}

static void *many_runs(void *arg)
{
    intptr_t bad = 0;
    for (int i = 0; i < 200; i++) {
        tp_val in = vT(floats(2, (float[]){ (float)i, 0 })), out = vNone;
        if (!ir_prog_run(arg, op_ctx_cur(), &in, 1, &out, 1, NULL, NULL) || first(&out) != (float)(2 * i))
            bad++;
        val_clear(&out);
        val_clear(&in);
    }
    return (void *)bad;
}

TEST(ir_run_is_reentrant)
{
    ir_graph *g = parse("def forward(self, x: \"f32[2]\"):\n    y = x + x\n    z = y * 1\n    return (z,)\n");
    ir_prog *p = ir_prog_new(g);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, many_runs, p);
    for (int i = 0; i < 4; i++) {
        void *bad = NULL;
        pthread_join(t[i], &bad);
        CHECK(!bad);
    }
    ir_prog_free(p);
    ir_graph_free(g);
}

/* Values go at their last use: a chain needs two tensors at a time, not all. */
TEST(ir_run_frees_early)
{
    strbuf b = { 0 };
    strbuf_add(&b, "def forward(self, x0: \"f32[100000]\"):\n");
    for (int i = 0; i < 50; i++)
        strbuf_addf(&b, "    x%d = taper.sin(x%d)\n", i + 1, i);
    strbuf_add(&b, "    return (x50,)\n");
    ir_graph *g = parse(b.s);
    symint size[] = { 100000 };
    tp_val in = vT(tensor_new(DT_f32, 1, size, NULL)), out = vNone;
    memset(tensor_data(in.t), 0, 400000);
    storage_peak_bytes(true);
    int64_t before = storage_live_bytes();
    CHECK(ir_run(op_ctx_cur(), g, &in, 1, &out, 1, NULL, NULL));
    CHECK(storage_peak_bytes(false) - before <= 3 * 400000);
    val_clear(&out);
    val_clear(&in);
    ir_graph_free(g);
    strbuf_free(&b);
}

/* ---- hashing ---- */
TEST(ir_hash_ignores_names)
{
    const char *same =
        "def forward(self, q: \"f32[2]\"):\n    w = taper.ops.aten.sin.default(q)\n    e = w.cos()\n"
        "    r = w + e\n    return (r,)\n";
    const char *other = "def forward(self, x: \"f32[2]\"):\n    a = taper.sin(x)\n    b = taper.cos(a)\n"
                        "    c = b + a\n    return (c,)\n";
    ir_graph *g = parse(CHAIN), *h = parse(same), *k = parse(other);
    CHECK(ir_hash(g) == ir_hash(h));
    CHECK(ir_hash(g) != ir_hash(k));
    k->grad_mode = false;
    uint64_t off = ir_hash(h);
    h->grad_mode = false;
    CHECK(ir_hash(h) != off);
    ir_graph_free(g);
    ir_graph_free(h);
    ir_graph_free(k);
    g = parse("# const: w: \"f32[1]\" = [1.0]\ndef forward(self):\n    w = self.w\n    return (w,)\n");
    h = parse("# const: w: \"f32[1]\" = [2.0]\ndef forward(self):\n    w = self.w\n    return (w,)\n");
    CHECK(ir_hash(g) != ir_hash(h));
    ir_graph_free(g);
    ir_graph_free(h);
}

/* ---- decisions ---- */
typedef struct asked {
    strbuf b;
    uint64_t no; /* bit i: refuse the i-th question */
    int n;
} asked;
static bool answer(void *data, decide_kind k, const char *site, uint64_t hash)
{
    asked *a = data;
    strbuf_addf(&a->b, "%s ", site);
    return !(a->no >> (a->n++ & 63) & 1);
}

#define BUSY                                                        \
    "# const: k: \"f32[2]\" = [1.0, 2.0]\n"                         \
    "def forward(self, x: \"f32[2]\"):\n"                           \
    "    # File: m.py:3 in f, code: y\n"                            \
    "    k = self.k\n    k2 = taper.sin(k)\n    a = taper.sin(x)\n" \
    "    b = taper.sin(x)\n    v = a.view([2])\n    c = v + b\n"    \
    "    d = c * 1\n    e = d + k2\n    unused = taper.cos(e)\n"    \
    "    f = e * e\n    return (f,)\n"

TEST(ir_decide_every_answer_is_correct)
{
    ir_graph *ref = parse(BUSY);
    tp_val in = vT(floats(2, (float[]){ 0.5f, -2 })), want = vNone;
    CHECK(ir_run(op_ctx_cur(), ref, &in, 1, &want, 1, NULL, NULL));
    int full = 0, questions = 0;
    for (uint64_t no = 0; no < 256; no++) {
        ir_graph *g = parse(BUSY);
        tp_err e = { 0 };
        asked a = { .no = no };
        tp_comp c = { .err = &e, .verify = true, .decider = { answer, &a } };
        tp_val out = vNone;
        if (!pass_run_named(&c, g, NULL))
            test_fail(__FILE__, __LINE__, "%s", e.msg);
        if (!no) {
            full = g->nnode;
            questions = a.n;
            CHECK_STR(strbuf_str(&a.b),
                      "noop:v@m.py:3 noop:d@m.py:3 fold:k2@m.py:3 cse:b@m.py:3 dce:unused@m.py:3 "
                      "dce:k@m.py:3 ");
        } else if (no & ((1u << questions) - 1))
            CHECK(g->nnode > full);
        CHECK(ir_run(op_ctx_cur(), g, &in, 1, &out, 1, NULL, &e));
        CHECK(!memcmp(tensor_data(out.t), tensor_data(want.t), 8));
        val_clear(&out);
        strbuf_free(&a.b);
        ir_graph_free(g);
    }
    CHECK_INT(full, 7); /* x, k2, a, c, e, f, output */
    val_clear(&want);
    val_clear(&in);
    ir_graph_free(ref);
}

TEST(ir_pass_unknown)
{
    ir_graph *g = parse(CHAIN);
    tp_err e = { 0 };
    tp_comp c = { .err = &e };
    CHECK(!pass_run_named(&c, g, "cse,nosuch"));
    CHECK_STR(e.msg, "there is no pass 'nosuch'; there are noop, fold, cse, dce");
    ir_graph_free(g);
}

/* ---- files ---- */
TEST(ir_save_and_load)
{
    ir_graph *g = ir_graph_new("forward");
    symint size[] = { 10, 10 };
    tp_err e = { 0 };
    tp_tensor *w = tensor_new(DT_f32, 2, size, NULL);
    for (int i = 0; i < 100; i++)
        ((float *)tensor_data(w))[i] = (float)i;
    ir_node *k = ir_add_const(g, "w", w), *s = ir_build(g, OP_sin, OPV_fn, (tp_val[]){ of(k) }, 1, &e);
    tensor_unref(w);
    ir_set_output(g, (tp_val[]){ of(s) }, 1);
    char path[64], side[80];
    snprintf(path, sizeof path, "/tmp/taper_test_%d.graph", (int)getpid());
    snprintf(side, sizeof side, "%s.safetensors", path);
    CHECK(ir_save(g, path, &e));
    ir_graph *h = ir_load(path, NULL, &e);
    CHECK(h && node(h, "w")->konst && ir_hash(h) == ir_hash(g));
    ir_graph_free(h);
    unlink(side); /* without the bytes it reads and prints, but does not run */
    h = ir_load(path, NULL, &e);
    tp_val out = vNone;
    CHECK(h && ir_hash(h) == ir_hash(g) && !ir_run(op_ctx_cur(), h, NULL, 0, &out, 1, NULL, &e));
    CHECK_STR(e.msg, "the bytes of constant 'w' were not loaded");
    ir_graph_free(h);
    unlink(path);
    ir_graph_free(g);
}

TEST(ir_backends)
{
    tp_err e = { 0 };
    CHECK(!backend_find("nosuch", &e));
    CHECK(strstr(e.msg, "there is no backend 'nosuch'; there are: eager") != NULL);
    ir_graph *g = parse(CHAIN);
    tp_comp c = { .err = &e };
    err_clear(&e);
    run_program *p = backend_compile(&backend_eager, &c, g, NULL);
    ir_graph_free(g);
    tp_val in = vT(floats(2, (float[]){ 0, 0 })), out = vNone;
    CHECK(p && run_program_call(p, op_ctx_cur(), &in, 1, &out, 1, &e));
    CHECK(first(&out) == 1);
    val_clear(&out);
    val_clear(&in);
    run_program_free(p);
}
