/* custom_op.c - an operator written in C: kernel, shape function, derivative.
 *
 * As a library for Python:  cc -shared -fPIC custom_op.c -I include -o libscale.so
 *                           taper.ops.load_library("./libscale.so"); taper.ops.demo.scale(x, 3.0)
 * As a program:             cc -DPROGRAM custom_op.c -I include -ltaper -o custom_op */
#include "taper.h"
#include <stdio.h>

/* y = x * by, for contiguous float tensors */
static bool scale_kernel(void *data, tp_call *c, tp_err *err)
{
    tp_tensor *x = tp_call_tensor(c, 0), *y;
    int64_t size[8];
    float by = (float)tp_call_float(c, 1);
    (void)data;
    if (!x || tp_tensor_dtype(x) != TP_F32 || tp_tensor_ndim(x) > 8)
        return tp_err_set(err, "scale takes a float32 tensor with at most 8 dimensions");
    x = tp_tensor_contiguous(x, err);
    if (!x)
        return false;
    for (int d = 0; d < tp_tensor_ndim(x); d++)
        size[d] = tp_tensor_size(x, d);
    y = tp_tensor_new(TP_F32, tp_tensor_ndim(x), size, err);
    if (y) {
        const float *from = tp_tensor_data(x);
        float *to = tp_tensor_data(y);
        for (int64_t i = 0; i < tp_tensor_numel(x); i++)
            to[i] = from[i] * by;
        tp_call_return(c, 0, y);
    }
    tp_tensor_unref(x);
    return y != NULL;
}

static bool scale_shape(void *data, tp_call *c, tp_err *err)
{
    tp_tensor *x = tp_call_tensor(c, 0);
    int64_t size[8];
    (void)data;
    for (int d = 0; d < tp_tensor_ndim(x) && d < 8; d++)
        size[d] = tp_tensor_size(x, d);
    return tp_call_return_type(c, 0, tp_tensor_dtype(x), tp_tensor_ndim(x), size, NULL, err);
}

/* Arguments x, by; result y; gradient dy. dx = dy * by. */
static bool scale_backward(void *data, tp_call *c, tp_err *err)
{
    tp_tensor *dy = tp_call_tensor(c, 3), *dx;
    int64_t size[8];
    float by = (float)tp_call_float(c, 1);
    (void)data;
    if (!dy)
        return true;
    dy = tp_tensor_contiguous(dy, err);
    if (!dy)
        return false;
    for (int d = 0; d < tp_tensor_ndim(dy); d++)
        size[d] = tp_tensor_size(dy, d);
    dx = tp_tensor_new(TP_F32, tp_tensor_ndim(dy), size, err);
    if (dx) {
        const float *from = tp_tensor_data(dy);
        float *to = tp_tensor_data(dx);
        for (int64_t i = 0; i < tp_tensor_numel(dy); i++)
            to[i] = from[i] * by;
        tp_call_return(c, 0, dx);
    }
    tp_tensor_unref(dy);
    return dx != NULL;
}

bool taper_register_ops(tp_err *err);
bool taper_register_ops(tp_err *err)
{
    tp_custom_op op = { "demo::scale(Tensor x, float by) -> Tensor",
                        "libscale.so",
                        scale_kernel,
                        scale_shape,
                        scale_backward,
                        NULL,
                        true }; /* the shape function only passes sizes on */
    return tp_register_op(&op, err);
}

#ifdef PROGRAM
int main(void)
{
    static const char text[] = "def forward(self, x: \"f32[3]\"):\n"
                               "    y: \"f32[3]\" = taper.ops.demo.scale(x, 3.0)\n"
                               "    z: \"f32[3]\" = y + x\n"
                               "    return (z,)\n";
    const float data[3] = { 1, 2, 3 };
    const int64_t size[1] = { 3 };
    tp_err *err = tp_err_new();
    tp_graph *g = tp_graph_parse(text, sizeof text - 1, "demo", err);
    tp_tensor *x = tp_tensor_from_data(TP_F32, 1, size, data, err), *y = NULL;
    tp_program *p = g ? tp_compile(g, "eager", err) : NULL;
    if (p && !tp_program_run(p, &x, 1, &y, 1, err))
        printf("before: %s\n", tp_err_message(err));
    tp_err_clear(err);
    tp_program_free(p);
    taper_register_ops(err);
    for (int i = 0; tp_backend_name(i); i++) {
        y = NULL;
        p = tp_compile(g, tp_backend_name(i), err);
        if (!p || !tp_program_run(p, &x, 1, &y, 1, err))
            printf("%s: %s\n", tp_backend_name(i), tp_err_message(err));
        else
            printf("%s: %g %g %g\n", tp_backend_name(i), ((float *)tp_tensor_data(y))[0],
                   ((float *)tp_tensor_data(y))[1], ((float *)tp_tensor_data(y))[2]);
        tp_tensor_unref(y);
        tp_program_free(p);
        tp_err_clear(err);
    }
    tp_graph *h = tp_graph_new("built");
    tp_node *in = tp_graph_input(h, "x", TP_F32, 1, size, NULL, err);
    tp_arg args[2] = { tp_value(in), tp_float(2) };
    tp_node *call = tp_graph_call(h, "demo::scale", args, 2, err);
    if (call && tp_graph_output(h, &call, 1, err)) {
        char *s = tp_graph_print(h);
        printf("%s", s);
        tp_free(s);
    }
    tp_graph_call(h, "demo::scale", args, 1, err);
    printf("refused: %s\n", tp_err_message(err));
    tp_tensor_unref(x);
    tp_graph_free(g);
    tp_graph_free(h);
    tp_err_free(err);
    return 0;
}
#endif
