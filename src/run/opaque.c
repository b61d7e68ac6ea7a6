/* opaque.c - calls of what is not in the graph: custom operators, Python callees, requires_grad_(). */
#include "aot/aot.h"
#include "ops/host.h"
#include "run/run.h"

bool run_opaque_core(const ir_node *n, const tp_val *arg, tp_val *out, tp_err *err)
{
    if (aot_makes_leaf(n))
        return grad_set_requires_grad(op_ctx_cur(), arg[0].t, arg[1].b, err);
    return ir_run_custom(n, arg, out, err);
}

bool run_opaque(void *data, ir_node *n, const tp_val *arg, tp_val *out, tp_err *err)
{
    return host.opaque ? host.opaque(data, n, arg, out, err) : run_opaque_core(n, arg, out, err);
}
