/* graph.c - how graphs scale: build, verify, print, parse, hash, copy, passes, run. bench/graph.py drives it.
 * usage: taper_bench_graph NODES [WHAT]   with WHAT only that part is done after building (for callgrind) */
#include "base/clock.h"
#include "ir/pass.h"
#include "ir/text.h"
#include <malloc.h>
#include <stdio.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tp_val of(ir_node *n) { return (tp_val){ .kind = VAL_node, .node = n }; }

/* Chains with repeated parts, unused parts, no-ops, shared operands, places: what passes have to look at. */
__attribute__((noinline)) static ir_graph *build(int n)
{
    ir_graph *g = ir_graph_new("bench");
    symint size[] = { 8, 16 };
    tp_err e = { 0 };
    tp_tensor *t = tensor_new_fake(DT_f32, 2, size, NULL, DEVICE_CPU);
    ir_node *x = ir_add_placeholder(g, "x", "L['x']", t), *cur = x;
    tensor_unref(t);
    for (int i = 0; g->nnode < n - 1;) {
        ir_loc *l = ARENA_NEW(&g->mem, ir_loc);
        *l = (ir_loc){ "model.py", "forward", "x = f(x)", ++i, NULL };
        ir_node *a = ir_build(g, OP_sin, OPV_fn, (tp_val[]){ of(cur) }, 1, &e);
        ir_node *b = ir_build(g, OP_sin, OPV_fn, (tp_val[]){ of(cur) }, 1, &e);
        ir_node *c = ir_build(g, OP_add_Tensor, OPV_fn, (tp_val[]){ of(a), of(b) }, 2, &e);
        ir_node *d = ir_build(g, OP_mul_Tensor, OPV_fn, (tp_val[]){ of(c), vI(1) }, 2, &e);
        ir_node *u = ir_build(g, OP_cos, OPV_fn, (tp_val[]){ of(x) }, 1, &e);
        a->loc = b->loc = c->loc = d->loc = u->loc = l;
        cur = d;
    }
    ir_set_output(g, (tp_val[]){ of(cur) }, 1);
    return g;
}

__attribute__((noinline)) static bool run_pass(ir_graph *g, bool (*pass)(tp_comp *, ir_graph *))
{
    tp_err e = { 0 };
    tp_comp c = { .err = &e };
    return pass(&c, g);
}

static bool want(const char *only, const char *what) { return !only || !strcmp(only, what); }
static double mark;
static void start(void) { mark = now(); }
static void say(const char *what, int n)
{
    double t = now() - mark;
    printf("%-8s %9.2f ms  %7.1f ns/node\n", what, t * 1e3, t * 1e9 / n);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 100000;
    const char *only = argc > 2 ? argv[2] : NULL;
    strbuf text = { 0 };
    tp_err e = { 0 };
    op_row_of((op_id)0);

    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    start();
    ir_graph *g = build(n);
    if (!only)
        say("build", g->nnode);
    size_t used = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    if (!only)
        printf("memory   %9.0f bytes/node\n", (double)used / g->nnode);
    if (want(only, "verify")) {
        start();
        if (!ir_verify(g, &e))
            return fprintf(stderr, "%s\n", e.msg), 1;
        say("verify", g->nnode);
    }
    if (want(only, "print") || want(only, "parse")) {
        start();
        ir_print(&text, g, IR_PRINT_all);
        say("print", g->nnode);
    }
    if (want(only, "parse")) {
        start();
        ir_graph *h = ir_parse(strbuf_str(&text), text.n, "text", NULL, &e);
        if (!h)
            return fprintf(stderr, "%s\n", e.msg), 1;
        say("parse", h->nnode);
        if (ir_hash(h) != ir_hash(g))
            return fprintf(stderr, "read back differently\n"), 1;
        ir_graph_free(h);
    }
    if (want(only, "hash")) {
        start();
        ir_hash(g);
        say("hash", g->nnode);
    }
    if (want(only, "copy")) {
        start();
        ir_graph *h = ir_graph_copy(g);
        say("copy", h->nnode);
        ir_graph_free(h);
    }
    for (const pass_row *p = pass_rows; p->name; p++) {
        int k = g->nnode;
        if (!want(only, p->name))
            continue;
        start();
        run_pass(g, p->run);
        say(p->name, k);
    }
    if (want(only, "run")) {
        ir_prog *p = ir_prog_new(g);
        symint size[] = { 8, 16 };
        tp_val in = vT(tensor_new(DT_f32, 2, size, NULL)), out = vNone;
        memset(tensor_data(in.t), 0, 512);
        start();
        ir_prog_run(p, op_ctx_cur(), &in, 1, &out, 1, NULL, &e);
        say("run", g->nnode);
        val_clear(&out);
        val_clear(&in);
        ir_prog_free(p);
    }
    strbuf_free(&text);
    ir_graph_free(g);
    return 0;
}
