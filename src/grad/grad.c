/* grad.c - the top of the dispatcher. */
#include "grad/grad.h"

bool grad_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err)
{
    return ir_call(cx, op, v, arg, out, err);
}
