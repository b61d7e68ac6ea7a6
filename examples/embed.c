/* embed.c - Taper inside a C program: build a graph, look at it, run it, read it back from its text.
 * Build: cc embed.c -I include -L build -ltaper -o embed */
#include "taper.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tp_err *err;

static void *need(void *p) /* NULL: say why and stop */
{
    if (!p) {
        fprintf(stderr, "%s: %s\n%s\n", tp_err_class(err), tp_err_message(err), tp_err_notes(err));
        exit(1);
    }
    return p;
}

/* relu(x @ w + b), summed over the columns */
static tp_graph *layer(void)
{
    static const int64_t xs[] = { 2, 3 }, ws[] = { 3, 4 }, bs[] = { 4 }, dim[] = { 1 };
    static const float w[12] = { 1, 0, 0, -1, 0, 1, 0, -1, 0, 0, 1, -1 }, b[4] = { 0.5f, 0.5f, 0.5f, 0.5f };
    tp_graph *g = tp_graph_new("layer");
    tp_tensor *tw = need(tp_tensor_from_data(TP_F32, 2, ws, w, err));
    tp_tensor *tb = need(tp_tensor_from_data(TP_F32, 1, bs, b, err));
    tp_node *x = need(tp_graph_input(g, "x", TP_F32, 2, xs, NULL, err));
    tp_node *nw = need(tp_graph_constant(g, "w", tw, err));
    tp_node *nb = need(tp_graph_constant(g, "b", tb, err));
    tp_arg mm[] = { tp_value(x), tp_value(nw) };
    tp_node *h = need(tp_graph_call(g, "mm", mm, 2, err));
    tp_arg add[] = { tp_value(h), tp_value(nb) };
    h = need(tp_graph_call(g, "add.Tensor", add, 2, err));
    tp_arg relu[] = { tp_value(h) };
    h = need(tp_graph_call(g, "relu", relu, 1, err));
    tp_arg sum[] = { tp_value(h), tp_ints(dim, 1), tp_named("keepdim", tp_bool(true)) };
    h = need(tp_graph_call(g, "sum.dim_IntList", sum, 3, err));

    if (!tp_graph_output(g, &h, 1, err) || !tp_graph_verify(g, err))
        need(NULL);
    tp_tensor_unref(tw); /* the graph holds them */
    tp_tensor_unref(tb);
    return g;
}

static void run(const tp_graph *g)
{
    static const int64_t xs[] = { 2, 3 };
    static float data[6] = { 1, 2, 3, -1, -2, -3 };
    tp_program *p = need(tp_compile(g, "eager", err));
    tp_tensor *x = need(tp_tensor_wrap(TP_F32, 2, xs, NULL, data, NULL, NULL, err)), *y;

    if (!tp_program_run(p, &x, 1, &y, 1, err))
        need(NULL);
    const float *v = tp_tensor_data(y);
    printf("result: %g %g\n", v[0], v[1]);
    if (fabsf(v[0] - 7.5f) > 1e-6f || fabsf(v[1] - 6.5f) > 1e-6f)
        exit(1);
    tp_tensor_unref(x);
    tp_tensor_unref(y);
    tp_program_free(p);
}

int main(void)
{
    if (tp_abi_version() != TP_ABI_VERSION) {
        fprintf(stderr, "built for version %d of the interface, but the library has %d\n", TP_ABI_VERSION,
                tp_abi_version());
        return 1;
    }
    err = tp_err_new();
    tp_graph *g = layer();
    char *text = tp_graph_print(g);
    fputs(text, stdout);
    run(g);

    tp_graph *again = need(tp_graph_parse(text, strlen(text), "text", err));
    printf("read back: %s\n", tp_graph_hash(again) == tp_graph_hash(g) ? "the same graph" : "another graph");
    run(again);

    tp_arg wrong[] = { tp_str("not a tensor") }; /* mistakes are errors, not crashes */
    if (!tp_graph_call(g, "relu", wrong, 1, err))
        printf("refused: %s\n", tp_err_message(err));

    tp_free(text);
    tp_graph_free(again);
    tp_graph_free(g);
    tp_err_free(err);
    return 0;
}
