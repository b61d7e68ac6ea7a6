/* hop.h - calls that run nested graphs: cond, while_loop, scan, map, and derivatives of a program's own. In a graph they
 * are opaque nodes:
 *
 *   ops.higher_order.cond(pred, self.true, self.false, [operands])        -> results of one of the two
 *   ops.higher_order.while_loop(self.cond, self.body, [carried], [others]) -> carried, and stacked what else the body returns
 *   ops.higher_order.scan(self.combine, [init], [xs], [others])           -> carry and stacked results
 *   ops.higher_order.map(self.body, [xs], [others])                       -> stacked results
 *   ops.higher_order.autograd_function(self.backward, [inputs], [outputs], [others]) -> the outputs, computed already, whose
 *       gradients go through the nested graph: it takes them and the others, and returns the gradients of the inputs
 *
 * xs are walked along their first dimension. Nested graphs take what stands in the lists, in this order. How
 * a nested graph is run is the host's business: interpreted or compiled. */
#ifndef TAPER_HOP_H
#define TAPER_HOP_H
#include "ir/graph.h"

typedef enum { HOP_none, HOP_cond, HOP_while, HOP_scan, HOP_map, HOP_function } hop_kind;

hop_kind ir_hop(const ir_node *n);             /* HOP_none: no such call, or not well formed */
int ir_hop_subs(const ir_node *n, int arg[2]); /* positions of its nested graphs; how many */
const char *ir_hop_target(hop_kind k);         /* "ops.higher_order.cond" */

/* Do the lists of a HOP_function fit its graph, and are they tensors? arg: the node's arguments as they are now. */
bool ir_hop_function_fits(const ir_node *n, const tp_val *arg, tp_err *err);

typedef struct hop_host {
    op_ctx *cx;
    /* How an operator is called (slicing and stacking of scan). */
    bool (*op)(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err);
    /* Runs the nested graph number `which`. in borrowed, out owned. */
    bool (*sub)(struct hop_host *h, int which, const tp_val *in, int nin, tp_val *out, int nout, tp_err *err);
    void *data;
} hop_host;
/* arg: the node's arguments as they are now (tensors, lists of tensors). *result: VAL_tensors, owned. */
bool ir_hop_run(hop_host *h, const ir_node *n, const tp_val *arg, tp_val *result, tp_err *err);
#endif
