/* test_grad.c - the tape and the engine, without Python. */
#include "test.h"
#include "grad/tape.h"
#include <math.h>

static tp_tensor *vec3(double a, double b, double c)
{
    tp_tensor *t = tensor_new(DT_f64, 1, (symint[]){ 3 }, NULL);
    double *p = tensor_data(t);
    p[0] = a, p[1] = b, p[2] = c;
    return t;
}
static double at(tp_tensor *t, int i) { return elem_get_f((dtype)t->dt, tensor_elem(t, i)); }
static tp_tensor *leaf(tp_tensor *t)
{
    tp_err e = { 0 };
    CHECK(grad_set_requires_grad(op_ctx_cur(), t, true, &e));
    return t;
}
static tp_tensor *call(op_id op, op_variant v, const tp_val *arg, int n, tp_err *e)
{
    tp_val full[OP_MAX_PARAMS], out[OP_MAX_RETURNS] = { 0 };
    op_fill_defaults(op_row_of(op), arg, n, full, e);
    return grad_call(op_ctx_cur(), op, v, full, out, e) ? out[0].t : NULL;
}
#define OPC(id, e, ...) call(OP_##id, OPV_fn, B_ARGS(__VA_ARGS__), e)
#define OPI(id, e, ...) call(OP_##id, OPV_inplace, B_ARGS(__VA_ARGS__), e)
static bool backward(tp_tensor *t, tp_err *e)
{
    grad_options o = { 0 };
    return grad_backward(op_ctx_cur(), &t, 1, NULL, &o, e);
}

TEST(grad_chain_rule_and_names)
{
    tp_err e = { 0 };
    tp_tensor *x = leaf(vec3(1, 2, 3)), *y = OPC(sin, &e, vT(x)), *z = OPC(mul_Tensor, &e, vT(y), vT(x)),
              *s = OPC(sum, &e, vT(z));
    CHECK_STR(grad_node_name(grad_grad_fn(s, NULL, NULL)), "SumBackward0");
    CHECK_STR(grad_node_name(grad_grad_fn(z, NULL, NULL)), "MulBackward0");
    CHECK(grad_is_leaf(x) && !grad_is_leaf(y));
    grad_edge next[4];
    CHECK_INT(grad_node_next(grad_grad_fn(z, NULL, NULL), next, 4), 2);
    CHECK_STR(grad_node_name(next[0].node), "SinBackward0");
    CHECK_STR(grad_node_name(next[1].node), "AccumulateGrad");
    CHECK(backward(s, &e));
    for (int i = 0; i < 3; i++)
        CHECK(fabs(at(grad_grad(x), i) - (cos(i + 1) * (i + 1) + sin(i + 1))) < 1e-12);
    CHECK(!backward(s, &e) && strstr(e.msg, "Trying to backward through the graph a second time"));
    tensor_unref(s), tensor_unref(z), tensor_unref(y), tensor_unref(x);
}

TEST(grad_accumulates_and_sums_broadcast)
{
    tp_err e = { 0 };
    tp_tensor *x = leaf(vec3(1, 2, 3)), *w = leaf(tensor_scalar(DT_f64, 5, 0, NULL));
    for (int k = 0; k < 2; k++) {
        tp_tensor *y = OPC(mul_Tensor, &e, vT(x), vT(w)), *s = OPC(sum, &e, vT(y));
        CHECK(backward(s, &e));
        tensor_unref(y), tensor_unref(s);
    }
    CHECK(at(grad_grad(w), 0) == 12 && at(grad_grad(x), 1) == 10 && grad_grad(w)->ndim == 0);
    tensor_unref(x), tensor_unref(w);
}

TEST(grad_of_grad)
{
    tp_err e = { 0 };
    tp_tensor *x = leaf(vec3(1, 2, 3)), *y = OPC(mul_Tensor, &e, vT(x), vT(x)),
              *z = OPC(mul_Tensor, &e, vT(y), vT(x)), *s = OPC(sum, &e, vT(z)), *g1, *g2;
    grad_options o = { .create_graph = true, .retain_graph = true, .inputs = &x, .ninput = 1, .result = &g1 };
    CHECK(grad_backward(op_ctx_cur(), &s, 1, NULL, &o, &e));
    CHECK(at(g1, 1) == 12 && !grad_grad(x));
    tp_tensor *s1 = OPC(sum, &e, vT(g1));
    grad_options o2 = { .inputs = &x, .ninput = 1, .result = &g2 };
    CHECK(grad_backward(op_ctx_cur(), &s1, 1, NULL, &o2, &e));
    CHECK(at(g2, 1) == 12 && at(g2, 2) == 18);
    tensor_unref(g1), tensor_unref(g2), tensor_unref(s1), tensor_unref(s), tensor_unref(z), tensor_unref(y);
    tensor_unref(x);
}

TEST(grad_exp_second_derivative_uses_saved_result)
{
    tp_err e = { 0 };
    tp_tensor *x = leaf(vec3(0.5, 1, 2)), *y = OPC(exp, &e, vT(x)), *s = OPC(sum, &e, vT(y)), *g1, *g2;
    grad_options o = { .create_graph = true, .retain_graph = true, .inputs = &x, .ninput = 1, .result = &g1 };
    CHECK(grad_backward(op_ctx_cur(), &s, 1, NULL, &o, &e));
    tp_tensor *s1 = OPC(sum, &e, vT(g1));
    grad_options o2 = { .inputs = &x, .ninput = 1, .result = &g2 };
    CHECK(grad_backward(op_ctx_cur(), &s1, 1, NULL, &o2, &e));
    CHECK(fabs(at(g2, 2) - exp(2)) < 1e-12);
    tensor_unref(g1), tensor_unref(g2), tensor_unref(s1), tensor_unref(s), tensor_unref(y), tensor_unref(x);
}

TEST(grad_saved_tensor_changed)
{
    tp_err e = { 0 };
    tp_tensor *x = leaf(vec3(1, 2, 3)), *y = OPC(add_Tensor, &e, vT(x), vI(1)),
              *z = OPC(mul_Tensor, &e, vT(y), vT(y)), *s = OPC(sum, &e, vT(z));
    tensor_unref(OPI(add_Tensor, &e, vT(y), vI(1)));
    CHECK(!backward(s, &e));
    CHECK(strstr(e.msg,
                 "modified by an inplace operation: [DoubleTensor [3]], which is output 0 of AddBackward0, "
                 "is at version 1; expected version 0 instead."));
    tensor_unref(x), tensor_unref(y), tensor_unref(z), tensor_unref(s);
}

TEST(grad_bad_input)
{
    tp_err e = { 0 };
    tp_tensor *x = leaf(vec3(1, 2, 3)), *c = vec3(1, 1, 1), *g2 = tensor_new(DT_f64, 1, (symint[]){ 2 }, &e);
    CHECK(!OPI(add_Tensor, &e, vT(x), vI(1)));
    CHECK_STR(e.msg, "a leaf Variable that requires grad is being used in an in-place operation.");
    err_clear(&e);
    CHECK(!backward(c, &e));
    CHECK_STR(e.msg, "element 0 of tensors does not require grad and does not have a grad_fn");
    err_clear(&e);
    tp_tensor *y = OPC(mul_Tensor, &e, vT(x), vI(2));
    CHECK(!backward(y, &e));
    CHECK_STR(e.msg, "grad can be implicitly created only for scalar outputs");
    err_clear(&e);
    grad_options o = { 0 };
    CHECK(!grad_backward(op_ctx_cur(), &y, 1, &g2, &o, &e) && strstr(e.msg, "Mismatch in shape"));
    err_clear(&e);
    tp_tensor *i = tensor_scalar(DT_i64, 0, 3, NULL);
    CHECK(!grad_set_requires_grad(op_ctx_cur(), i, true, &e));
    tensor_unref(i), tensor_unref(y), tensor_unref(g2), tensor_unref(c), tensor_unref(x);
}

TEST(grad_inplace_keeps_history)
{
    tp_err e = { 0 };
    tp_tensor *x = leaf(vec3(1, 2, 3)), *y = OPC(mul_Tensor, &e, vT(x), vI(2));
    tensor_unref(OPI(mul_Tensor, &e, vT(y), vT(x))); /* y = 2 x^2 */
    tp_tensor *s = OPC(sum, &e, vT(y));
    CHECK(backward(s, &e));
    CHECK(at(grad_grad(x), 2) == 12);
    tensor_unref(s), tensor_unref(y), tensor_unref(x);
}

TEST(grad_million_step_chain)
{
    tp_err e = { 0 };
    tp_tensor *x = leaf(tensor_scalar(DT_f64, 1, 0, NULL)), *y = tensor_ref(x);
    for (int i = 0; i < 1000000; i++) {
        tp_tensor *n = OPC(add_Tensor, &e, vT(y), vT(x));
        tensor_unref(y);
        y = n;
    }
    CHECK(backward(y, &e));
    CHECK(at(grad_grad(x), 0) == 1000001);
    tensor_unref(y);
    tensor_unref(x);
}

static bool twice(void *data, tp_tensor **in, int n, tp_tensor **out, int m, tp_err *err)
{
    ++*(int *)data;
    tp_tensor *g = OPC(mul_Tensor, err, vT(in[0]), vI(2));
    tensor_unref(in[0]);
    in[0] = g;
    return g != NULL;
}

TEST(grad_hooks_and_retain)
{
    tp_err e = { 0 };
    int count = 0;
    tp_tensor *x = leaf(vec3(1, 2, 3)), *y = OPC(mul_Tensor, &e, vT(x), vI(3)), *s = OPC(sum, &e, vT(y));
    grad_hooks_add(grad_tensor_hooks(y, &e), twice, &count, NULL);
    grad_hooks_add(grad_tensor_hooks(x, &e), twice, &count, NULL);
    CHECK(grad_retain_grad(y, &e));
    CHECK(backward(s, &e));
    CHECK_INT(count, 2);
    CHECK(at(grad_grad(y), 0) == 2 && at(grad_grad(x), 0) == 12);
    tensor_unref(s), tensor_unref(y), tensor_unref(x);
}

TEST(grad_modes_and_detach)
{
    tp_err e = { 0 };
    op_ctx *cx = op_ctx_cur();
    tp_tensor *x = leaf(vec3(1, 2, 3));
    cx->grad_mode = false;
    tp_tensor *y = OPC(mul_Tensor, &e, vT(x), vI(3));
    tensor_unref(OPI(add_Tensor, &e, vT(x), vI(1))); /* allowed here */
    cx->grad_mode = true;
    CHECK(!grad_requires_grad(y) && at(x, 0) == 2);
    tp_tensor *d = OPC(detach, &e, vT(x));
    CHECK(!grad_requires_grad(d) && d->storage == x->storage);
    tensor_unref(d), tensor_unref(y), tensor_unref(x);
}

/* The tape over fake tensors that are being recorded: backward appends nodes, which gives the joint graph. */
TEST(grad_joint_graph_is_recorded)
{
    tp_err e = { 0 };
    op_ctx *cx = op_ctx_cur();
    ir_graph *gr = ir_graph_new("joint");
    ir_rec rec = { .g = gr, .flags = REC_composites };
    symint size[2] = { 2, 3 };
    tp_tensor *fx = tensor_new_fake(DT_f64, 2, size, NULL, DEVICE_CPU),
              *fw = tensor_new_fake(DT_f64, 1, size + 1, NULL, DEVICE_CPU);
    ir_node *nx = ir_add_placeholder(gr, "x", "x", fx), *nw = ir_add_placeholder(gr, "w", "w", fw);
    tp_tensor *in[2] = { leaf(ir_proxy(&rec, nx)), leaf(ir_proxy(&rec, nw)) }, *g[2];
    cx->rec = &rec;
    tp_tensor *y = OPC(mul_Tensor, &e, vT(in[0]), vT(in[1])), *t = OPC(tanh, &e, vT(y)),
              *z = OPC(mul_Tensor, &e, vT(t), vT(in[0])), *s = OPC(sum, &e, vT(z));
    grad_options o = { .inputs = in, .ninput = 2, .result = g };
    CHECK(s && grad_backward(cx, &s, 1, NULL, &o, &e));
    cx->rec = NULL;
    CHECK(g[0]->node && g[1]->node && g[0]->ndim == 2 && g[1]->ndim == 1);
    tp_val outs[3] = { { .kind = VAL_node, .node = s->node },
                       { .kind = VAL_node, .node = g[0]->node },
                       { .kind = VAL_node, .node = g[1]->node } };
    ir_set_output(gr, outs, 3);
    CHECK(ir_verify(gr, &e));

    tp_tensor *x = tensor_new(DT_f64, 2, size, &e), *w = tensor_new(DT_f64, 1, size + 1, &e);
    for (int i = 0; i < 6; i++)
        ((double *)tensor_data(x))[i] = 0.3 * i - 0.7;
    for (int i = 0; i < 3; i++)
        ((double *)tensor_data(w))[i] = 0.5 + i;
    tp_val vin[2] = { vT(x), vT(w) }, vout[3];
    CHECK(ir_run(cx, gr, vin, 2, vout, 3, NULL, &e));
    leaf(x), leaf(w);
    tp_tensor *ey = OPC(mul_Tensor, &e, vT(x), vT(w)), *et = OPC(tanh, &e, vT(ey)),
              *ez = OPC(mul_Tensor, &e, vT(et), vT(x)), *es = OPC(sum, &e, vT(ez));
    CHECK(backward(es, &e));
    CHECK(at(vout[0].t, 0) == at(es, 0));
    for (int i = 0; i < 6; i++)
        CHECK(at(vout[1].t, i) == at(grad_grad(x), i));
    for (int i = 0; i < 3; i++)
        CHECK(at(vout[2].t, i) == at(grad_grad(w), i));
    for (int i = 0; i < 3; i++)
        val_clear(&vout[i]);
    tp_tensor *all[] = { ey, et, ez, es, x, w, y, t, z, s, g[0], g[1], in[0], in[1], fx, fw };
    for (size_t i = 0; i < COUNT(all); i++)
        tensor_unref(all[i]);
    ir_graph_free(gr);
}
