/* test_ir_scale.c - a graph of 100,000 nodes: build, verify, print, parse each in under a second of processor time,
 * under 1 KiB a node; many users of one node stay cheap to erase. */
#include "ir/pass.h"
#include "ir/text.h"
#include "test.h"
#include <malloc.h>
#include <time.h>

enum { N = 100000 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const double limit = 20;
#else
static const double limit = 1;
#endif

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static tp_val of(ir_node *n) { return (tp_val){ .kind = VAL_node, .node = n }; }
static ir_graph *start(ir_node **x)
{
    ir_graph *g = ir_graph_new("g");
    symint size[] = { 8, 16 };
    tp_tensor *t = tensor_new_fake(DT_f32, 2, size, NULL, DEVICE_CPU);
    *x = ir_add_placeholder(g, "x", "L['x']", t);
    tensor_unref(t);
    return g;
}

#define TIMED(what, code)                                                                \
    do {                                                                                 \
        double t0 = now();                                                               \
        code;                                                                            \
        double dt = now() - t0;                                                          \
        if (dt > limit)                                                                  \
            test_fail(__FILE__, __LINE__, "%s took %.2f s of processor time", what, dt); \
    } while (0)

TEST(ir_scale_100000_nodes)
{
    ir_node *x, *cur;
    ir_graph *g, *h = NULL;
    tp_err e = { 0 };
    strbuf b = { 0 };
    op_row_of((op_id)0);
    struct mallinfo2 m0 = mallinfo2();
    TIMED("build", {
        g = start(&x);
        cur = x;
        for (int i = 0; i < N; i++)
            cur = i % 2 ? ir_build(g, OP_add_Tensor, OPV_fn, (tp_val[]){ of(cur), of(x) }, 2, &e)
                        : ir_build(g, OP_sin, OPV_fn, (tp_val[]){ of(cur) }, 1, &e);
        ir_set_output(g, (tp_val[]){ of(cur) }, 1);
    });
    struct mallinfo2 m1 = mallinfo2();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK((m1.uordblks + m1.hblkhd - m0.uordblks - m0.hblkhd) / N < 1024);
#else
    (void)m0, (void)m1;
#endif
    TIMED("verify", CHECK(ir_verify(g, &e)));
    TIMED("print", ir_print(&b, g, IR_PRINT_all));
    TIMED("parse", h = ir_parse(b.s, b.n, "t", NULL, &e));
    CHECK(h && ir_hash(h) == ir_hash(g));
    ir_graph_free(h);
    ir_graph_free(g);
    strbuf_free(&b);
}

/* One value with 100,000 users, which passes take away one by one. */
TEST(ir_scale_star)
{
    ir_node *x, *last = NULL;
    tp_err e = { 0 };
    tp_comp c = { .err = &e };
    ir_graph *g = start(&x);
    for (int i = 0; i < N; i++)
        last = ir_build(g, i % 2 ? OP_sin : OP_cos, OPV_fn, (tp_val[]){ of(x) }, 1, &e);
    ir_set_output(g, (tp_val[]){ of(last) }, 1);
    TIMED("cse", CHECK(pass_cse(&c, g)));
    CHECK_INT(g->nnode, 4);
    TIMED("dce", CHECK(pass_dce(&c, g)));
    CHECK_INT(g->nnode, 3);
    CHECK(ir_verify(g, &e));
    ir_graph_free(g);
}
