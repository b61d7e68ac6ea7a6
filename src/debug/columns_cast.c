/* columns_cast.c - which type autocast runs an operator in, on the CPU, by a list of its own: products in the narrow type, losses and
 * what sums much in float32. */
#include "debug/audit.h"
#include "grad/tape.h"

enum { RUN_narrow = 1, RUN_float32 };
static const uint8_t runs_in[OP_COUNT] = {
    [OP_mm] = RUN_narrow,
    [OP_bmm] = RUN_narrow,
    [OP_addmm] = RUN_narrow,
    [OP_baddbmm] = RUN_narrow,
    [OP_addbmm] = RUN_narrow,
    [OP_linear] = RUN_narrow,
    [OP_matmul] = RUN_narrow,
    [OP_conv1d] = RUN_narrow,
    [OP_conv2d] = RUN_narrow,
    [OP_conv3d] = RUN_narrow,
    [OP_mse_loss] = RUN_float32,
    [OP_nll_loss] = RUN_float32,
    [OP_kl_div] = RUN_float32,
    [OP_l1_loss] = RUN_float32,
    [OP_smooth_l1_loss] = RUN_float32,
    [OP_huber_loss] = RUN_float32,
    [OP_binary_cross_entropy] = RUN_float32,
    [OP_cosine_embedding_loss] = RUN_float32,
    [OP_hinge_embedding_loss] = RUN_float32,
    [OP_margin_ranking_loss] = RUN_float32,
    [OP_multilabel_margin_loss] = RUN_float32,
    [OP_triplet_margin_loss] = RUN_float32,
    [OP_multi_margin_loss] = RUN_float32,
    [OP_prod] = RUN_float32,
    [OP_quantile] = RUN_float32,
    [OP_cdist] = RUN_float32,
    [OP_trace] = RUN_float32,
};

void audit_cast(op_id op, dtype to, dtype narrow)
{
    int rule = runs_in[op];
    dtype want = rule == RUN_narrow ? narrow : DT_f32;
    if (rule && to != want)
        audit_note("autocast", op_row_of(op)->name, "autocast runs it in %s, where it is %s",
                   dtype_rows[to].pname, dtype_rows[want].pname);
}
