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
    struct {
        uint8_t arg, when; /* argument (128 + i: result i) saved when argument `when` needs its gradient */
    } cond[8];
    uint8_t ncond;
} vjp_info;
const vjp_info *vjp_info_of(op_id op);

/* helpers of the rules; NULL in, NULL out */
tp_tensor *vjp_reshape(bld *b, tp_tensor *t, int ndim, const symint *size); /* a view where possible */
#endif
