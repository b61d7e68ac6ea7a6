/* test_op_rows.c - operators whose arguments must suit one another (convolutions, gradients of pooling, ...): what the
 * shape rule says is what the kernel returns, for several layouts of each input. Drawing arguments blindly, as
 * test_op_table.c does, finds no valid call of these. */
#include "ir/graph.h"
#include "test.h"

static const struct {
    const char *in, *call; /* types of a, b, c, d, e; the call */
} rows[] = {
    { "f32[3, 4] i64[2]", "meshgrid.indexing([b, b], indexing = 'xy')" },
    { "f32[2, 3, 6, 8] f32[2, 3, 4, 5]", "reflection_pad2d_backward(a, b, [1, 2, 1, 1])" },
    { "f32[2, 3, 6, 8] f32[2, 3, 4, 5]", "replication_pad2d_backward(a, b, [1, 2, 1, 1])" },
    { "f64[2, 3, 6, 6, 8] f64[2, 3, 4, 4, 5]", "reflection_pad3d_backward(a, b, [1, 2, 1, 1, 1, 1])" },
    { "f32[2, 3, 6, 6, 8] f32[2, 3, 4, 4, 5]", "replication_pad3d_backward(a, b, [1, 2, 1, 1, 1, 1])" },
    { "f32[2, 4]", "select_backward(a, [2, 3, 4], 1, 2)" },
    { "f32[5, 3]", "diagonal_backward(a, [3, 4, 5], 1, 0, 1)" },
    { "f32[2, 3, 2]", "unfold_backward(a, [2, 4], 1, 2, 1)" },
    { "f32[3, 4] i64[2, 3] f32[2, 3]", "scatter.reduce(a, 0, b, c, reduce = 'add')" },
    { "f32[3, 4] i64[2, 3]", "scatter.value_reduce(a, 1, b, 2.0, reduce = 'multiply')" },
    { "f32[3, 4] i64[2, 3] f32[2, 3]", "scatter_reduce.two(a, 0, b, c, 'amax')" },
    { "f32[3, 4] i64[2] f32[3, 2]", "index_reduce(a, 1, b, c, 'mean')" },
    { "f32[2, 3, 5] f32[2, 3, 4] f32[2, 4, 5]", "baddbmm(a, b, c)" },
    { "f32[3, 5] f32[2, 3, 4] f32[2, 4, 5]", "addbmm(a, b, c, alpha = 2)" },
    { "f32[3] f32[3, 4] f32[4]", "addmv(a, b, c)" },
    { "f32[2, 3] f32[2, 4] f32[5, 3, 4] f32[5]", "bilinear(a, b, c, d)" },
    { "f32[2, 3] f32[3, 4]", "einsum('ij,jk->ki', [a, b])" },
    { "f64[2, 3, 3] f64[2, 3, 4]", "linalg_norm.ord_str(a, 'fro', [1, 2])" },
    { "f64[2, 3, 3]", "linalg_cond.p_str(a, 'fro')" },
    { "f32[2, 4, 8, 9] f32[6, 2, 3, 3] f32[6]",
      "convolution(a, b, c, [2, 1], [1, 1], [1, 2], False, [0, 0], 2)" },
    { "f32[2, 4, 8, 9] f32[4, 6, 3, 3]", "convolution(a, b, None, [2, 1], [1, 1], [1, 1], True, [1, 0], 1)" },
    { "f32[2, 6, 8, 9] f32[2, 4, 8, 9] f32[6, 4, 3, 3]",
      "convolution_backward(a, b, c, [6], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True])" },
    { "f32[2, 4, 8] f32[4, 3, 3]", "conv_transpose1d(a, b, None, [2])" },
    { "f32[2, 4, 8, 8] f32[4, 3, 3, 3] f32[3]", "conv_transpose2d.input(a, b, c, [2, 2])" },
    { "f32[2, 4, 5, 6, 7] f32[3, 4, 2, 2, 2]", "conv3d(a, b)" },
    { "f32[2, 4, 5, 6, 7] f32[3, 4, 3, 3, 3]", "conv3d.padding(a, b, None, [1, 1, 1], 'same')" },
    { "f32[2, 4, 5, 6, 7] f32[4, 3, 2, 2, 2]", "conv_transpose3d.input(a, b)" },
    { "f32[2, 3, 2, 2] i8[2, 3, 2, 2]",
      "_max_pool2d_offsets_backward(a, b, [2, 3, 4, 4], [2, 2], [2, 2], [0, 0], [1, 1])" },
    { "f32[2, 3, 2, 2] f32[2, 3, 4, 4] i64[2, 3, 2, 2]",
      "max_pool2d_with_indices_backward(a, b, [2, 2], [2, 2], [0, 0], [1, 1], False, c)" },
    { "f32[2, 3, 2, 2, 2] f32[2, 3, 4, 4, 4] i64[2, 3, 2, 2, 2]",
      "max_pool3d_with_indices_backward(a, b, [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False, c)" },
    { "f32[2, 3, 2, 2] f32[2, 3, 4, 4]",
      "avg_pool2d_backward(a, b, [2, 2], [2, 2], [0, 0], False, True, None)" },
    { "f32[2, 3, 2, 2, 2] f32[2, 3, 4, 4, 4]",
      "avg_pool3d_backward(a, b, [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None)" },
    { "f32[2, 3, 2, 2, 2] f32[2, 3, 4, 4, 4] i64[2, 3, 2, 2, 2]", "adaptive_max_pool3d_backward(a, b, c)" },
    { "f32[4, 3, 5] f32[4, 3, 5] f32[4, 3, 1] f32[4, 3, 1] f32[5]",
      "native_layer_norm_backward(a, b, [5], c, d, e, e, [True, True, True])" },
    { "f32[2, 6, 5] f32[2, 6, 5] f32[2, 3] f32[2, 3] f32[6]",
      "native_group_norm_backward(a, b, c, d, e, 2, 6, 5, 3, [True, True, True])" },
    { "f32[2, 3, 8]", "upsample_nearest1d_backward(a, [8], [2, 3, 4])" },
    { "f32[2, 3, 8]", "_upsample_nearest_exact1d_backward(a, [8], [2, 3, 4])" },
    { "f32[2, 3, 8, 6]", "upsample_nearest2d_backward(a, [8, 6], [2, 3, 4, 3])" },
    { "f32[2, 3, 8, 6]", "_upsample_nearest_exact2d_backward(a, [8, 6], [2, 3, 4, 3])" },
    { "f32[2, 3, 4, 3, 2]", "upsample_nearest3d(a, [8, 6, 4])" },
    { "f32[2, 3, 8, 6, 4]", "upsample_nearest3d_backward(a, [8, 6, 4], [2, 3, 4, 3, 2])" },
    { "f32[2, 3, 4, 3, 2]", "_upsample_nearest_exact3d(a, [8, 6, 4])" },
    { "f32[2, 3, 8, 6, 4]", "_upsample_nearest_exact3d_backward(a, [8, 6, 4], [2, 3, 4, 3, 2])" },
    { "f32[2, 3, 8]", "upsample_linear1d_backward(a, [8], [2, 3, 4], True)" },
    { "f32[2, 3, 8, 6]", "upsample_bilinear2d_backward(a, [8, 6], [2, 3, 4, 3], False)" },
    { "f32[2, 3, 4, 3, 2]", "upsample_trilinear3d(a, [8, 6, 4], False)" },
    { "f32[2, 3, 8, 6, 4]", "upsample_trilinear3d_backward(a, [8, 6, 4], [2, 3, 4, 3, 2], False)" },
    { "f32[2, 3, 8, 6]", "upsample_bicubic2d_backward(a, [8, 6], [2, 3, 4, 3], False)" },
    { "f32[2, 3, 4, 3]", "_upsample_bilinear2d_aa(a, [8, 6], False)" },
    { "f32[2, 3, 8, 6]", "_upsample_bilinear2d_aa_backward(a, [8, 6], [2, 3, 4, 3], False)" },
    { "f32[2, 3, 4, 3]", "_upsample_bicubic2d_aa(a, [2, 2], True)" },
    { "f32[2, 3, 2, 2]", "_upsample_bicubic2d_aa_backward(a, [2, 2], [2, 3, 4, 3], True)" },
    { "f32[2, 4, 3]", "geqrf(a)" },
    { "f32[2, 3, 3]", "linalg_ldl_factor_ex(a)" },
    { "f32[2, 3, 3]", "linalg_ldl_factor(a)" },
    { "f32[0, 3, 3] i32[0, 3] f32[0, 3, 2]", "linalg_ldl_solve(a, b, c)" }, /* pivots are checked */
    { "f32[2, 3, 8, 6] f32[2, 4, 5, 2]", "grid_sampler_2d(a, b, 0, 0, False)" },
    { "f32[2, 3, 4, 5] f32[2, 3, 8, 6] f32[2, 4, 5, 2]",
      "grid_sampler_2d_backward(a, b, c, 0, 0, False, [True, True])" },
    { "f32[2, 3, 8, 6] f32[2, 4, 5, 2]", "grid_sampler(a, b, 1, 1, True)" },
    { "f32[2, 2, 3]", "affine_grid_generator(a, [2, 1, 4, 5], False)" },
    { "f32[] f32[3, 5] i64[3] f32[5] f32[]", "nll_loss_backward(a, b, c, d, 1, -100, e)" },
    { "f32[2, 5, 3, 4] i64[2, 3, 4] f32[5]", "nll_loss2d_forward(a, b, c, 1, -100)" },
    { "f32[2, 3, 4] f32[2, 5, 3, 4] i64[2, 3, 4] f32[5] f32[]",
      "nll_loss2d_backward(a, b, c, d, 0, -100, e)" },
    { "f32[2, 5, 3, 4] i64[2, 3, 4]", "nll_loss2d(a, b, None, 2)" },
};

/* An input of the node's type, dense in one of three orders: row-major, column-major, channels last. */
static tp_tensor *input(const tp_tensor *like, int how)
{
    symint stride[TP_MAX_DIMS], step = 1;
    int nd = like->ndim, order[TP_MAX_DIMS];
    for (int d = 0; d < nd; d++)
        order[d] = how == 1 ? nd - 1 - d : d; /* outermost first */
    if (how == 2 && nd > 2) {
        for (int d = 1; d < nd - 1; d++)
            order[d] = d + 1;
        order[nd - 1] = 1;
    }
    for (int k = nd - 1; k >= 0; k--) {
        stride[order[k]] = step;
        step *= like->size[order[k]];
    }
    tp_tensor *t = tensor_new_strided((dtype)like->dt, nd, like->size, stride, DEVICE_CPU, NULL);
    for (symint i = 0; i < t->numel; i++) {
        char *p = (char *)tensor_data(t) + (size_t)i * dtype_size((dtype)t->dt);
        dtype_is_float((dtype)t->dt) ? elem_set_f((dtype)t->dt, p, 0.3 + 0.1 * (double)(i % 7))
                                     : elem_set_i((dtype)t->dt, p, i % 2);
    }
    return t;
}

static bool check_type(strbuf *b, const tp_tensor *f, const tp_tensor *x)
{
    tp_val vf = vT((tp_tensor *)f), vx = vT((tp_tensor *)x);
    bool same = f->dt == x->dt && f->ndim == x->ndim;
    for (int d = 0; same && d < f->ndim; d++)
        same = f->size[d] == x->size[d] && (f->stride[d] == x->stride[d] || f->size[d] == 1);
    if (same)
        return true;
    strbuf_add(b, "the shape rule says ");
    ir_type_print(b, &vf);
    strbuf_add(b, ", the kernel ");
    ir_type_print(b, &vx);
    return false;
}

TEST(op_rows_shape_rules_match_kernels)
{
    int compared = 0;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int how = 0; how < 9; how++) {
            static const char names[] = "abcde";
            char inputs[400] = "", text[1200], types[200];
            tp_err err = { 0 };
            int n = 0;
            snprintf(types, sizeof types, "%s", rows[i].in);
            for (char *p = types, *end; *p && n < 5; p = end, n++) {
                end = strchr(p, ']') + 1;
                bool more = *end != 0;
                *end = 0;
                snprintf(inputs + strlen(inputs), sizeof inputs - strlen(inputs), ", %c: \"%s\"", names[n],
                         p);
                end += more;
            }
            const char *paren = strchr(rows[i].call, '(');
            bool over = memchr(rows[i].call, '.', (size_t)(paren - rows[i].call)) != NULL;
            snprintf(text, sizeof text,
                     "def forward(self%s):\n    r = taper.ops.aten.%.*s%s%s\n    return (r,)\n", inputs,
                     (int)(paren - rows[i].call), rows[i].call, over ? "" : ".default", paren);
            /* the inputs' strides are part of their types: first read the shapes, then make the graph for the layouts */
            sym_env *env = NULL;
            ir_graph *g = ir_parse(text, strlen(text), "row", env, &err);
            if (!g) {
                test_fail(__FILE__, __LINE__, "%s", err.msg);
                break;
            }
            tp_tensor *real[5] = { 0 }, *fake[5] = { 0 };
            tp_val in[5], fin[5], out[OP_MAX_RETURNS] = { 0 }, fout[OP_MAX_RETURNS] = { 0 };
            int k = 0;
            for (ir_node *nd = g->first; nd && k < n; nd = nd->next)
                if (nd->kind == IR_placeholder) {
                    real[k] = input(nd->val.t, k ? how / 3 : how % 3);
                    fake[k] = tensor_fake_of(real[k]);
                    in[k] = vT(real[k]);
                    fin[k] = vT(fake[k]);
                    k++;
                }
            op_ctx cx = *op_ctx_cur();
            cx.grad_mode = false;
            bool okf = ir_run(&cx, g, fin, n, fout, 1, NULL, &err);
            bool okx = okf && ir_run(&cx, g, in, n, out, 1, NULL, &err);
            if (!okf || !okx)
                test_fail(__FILE__, __LINE__, "%s: %s: %s", rows[i].call, okf ? "kernel" : "shape rule",
                          err.msg);
            else {
                strbuf why = { 0 };
                int results = out[0].kind == VAL_tensors ? out[0].n : 1;
                bool same = out[0].kind == fout[0].kind &&
                            (out[0].kind != VAL_tensors || out[0].n == fout[0].n);
                for (int q = 0; same && q < results; q++, compared++)
                    same = out[0].kind == VAL_tensors ? check_type(&why, fout[0].ts[q], out[0].ts[q])
                                                      : check_type(&why, fout[0].t, out[0].t);
                if (!same)
                    test_fail(__FILE__, __LINE__, "%s, layout %d: %s", rows[i].call, how, strbuf_str(&why));
                strbuf_free(&why);
                val_clear(&out[0]);
                val_clear(&fout[0]);
            }
            for (k = 0; k < n; k++) {
                tensor_unref(real[k]);
                tensor_unref(fake[k]);
            }
            ir_graph_free(g);
            if (!okf || !okx)
                break;
        }
    CHECK(compared >= 9 * (int)COUNT(rows));
}
