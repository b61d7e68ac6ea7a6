/* attention.h - attention as one row, for devices that have a kernel for it: _flash_attention and its gradient.
 * Knows formulas. May not know how a device computes it. */
#ifndef TAPER_OPS_ATTENTION_H
#define TAPER_OPS_ATTENTION_H
#include "ops/op.h"

/* Has the device a kernel for heads of this type and size? */
typedef bool attention_offer(dtype dt, int64_t head, tp_device d);
void attention_on_device(dev_kind k, attention_offer *offer); /* before the first tensor of that kind */

typedef struct attention_args {
    tp_tensor *q, *k, *v, *mask,
        *state; /* [batch, heads, rows, head]; mask, state: NULL where there is none */
    double p, scale;
    bool causal;
} attention_args;
/* scaled_dot_product_attention as such a row, where the device has one; NULL without an error: it has not. gqa: heads of keys may be
 * fewer. */
tp_tensor *attention_in_one(bld *b, const attention_args *a, bool gqa);
/* The arguments of a row, from that of the query on. */
attention_args attention_of(const tp_val *arg);
/* The row by plain formulas, which have derivatives: gradients of the tensors that are wanted, in the order of q, k, v, mask. */
bool attention_gradient(bld *b, const attention_args *a, tp_tensor *go, const bool want[4], tp_tensor *d[4]);
#endif
