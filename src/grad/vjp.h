/* vjp.h - shared by the files of derivative rules. Private to grad. */
#ifndef TAPER_VJP_H
#define TAPER_VJP_H
#include "grad/grad.h"

/* What grad keeps of a row: its rule and, as masks, what the rule reads. */
typedef struct vjp_info {
    vjp_fn *fn;       /* NULL: a hole */
    const char *name; /* AddBackward0 */
    uint32_t tmask;   /* parameters of type Tensor */
    uint32_t lmask;   /* parameters of type Tensor[] */
    uint32_t need_in; /* arguments saved always */
    uint32_t need_out;
    uint32_t no_grad; /* results without a derivative */
    struct {
        uint8_t arg, when; /* argument (128 + i: result i) saved when argument `when` needs its gradient
                            (128 + i: unless argument i is true) */
    } cond[8];
    uint8_t ncond;
    bool as_is; /* complex gradients come and go without being conjugated */
} vjp_info;
const vjp_info *vjp_info_of(op_id op);

/* helpers of the rules; NULL in, NULL out */
/* Short spellings for formulas. Each takes and gives tp_vals: tensors or numbers, none for what is missing.
 */
#define B               (g->b)
#define X               (*ARG(0))
#define Y               (*ARG(1))
#define R               vT(OUT(0))
#define DYV             vT(DY(0))
#define V(op, ...)      vT(b_op(B, op, __VA_ARGS__))
#define ADD(a, b_)      V(add_Tensor, a, b_)
#define SUB(a, b_)      V(sub_Tensor, a, b_)
#define MUL(a, b_)      V(mul_Tensor, a, b_)
#define DIV(a, b_)      V(div_Tensor, a, b_)
#define NEG(a)          V(neg, a)
#define SQR(a)          vh_square(B, a)
#define WHERE(c, a, b_) V(where_self, c, a, b_)
#define GT(a, b_)       V(gt_Tensor, a, b_)
#define GE(a, b_)       V(ge_Tensor, a, b_)
#define LT(a, b_)       V(lt_Tensor, a, b_)
#define LE(a, b_)       V(le_Tensor, a, b_)
#define EQ(a, b_)       V(eq_Tensor, a, b_)
#define DXV(i, e)       (g->dx[i] = NEED(i) ? (e).t : NULL)
/* With create_graph, rules use formulas that have derivatives themselves instead of the fused backward rows.
 */
#define PLAIN           (vh_plain(g->b))
/* As PLAIN; fused backward rows conjugate the slope of a complex result, which the tape has done already. */
#define PLAIN_SLOPE     (PLAIN || dtype_is_complex((dtype)OUT(0)->dt))
bool vh_plain(const bld *b); /* also without create_graph where TAPER_PLAIN_DERIVATIVES asks for it */
tp_val vh_square(bld *b, tp_val a);
tp_val vh_zeros(bld *b, const tp_tensor *like); /* shape and dtype of a type header */
int vh_dim(const tp_val *v, int ndim);          /* a dim argument, wrapped */
tp_tensor *vh_reshape(bld *b, tp_tensor *t, int ndim, const symint *size); /* a view where possible */
#endif
