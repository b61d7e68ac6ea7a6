/* trace.h - a trace of the autograd stage under way: shared by trace.c and hop.c, nobody else's business. */
#ifndef TAPER_AOT_TRACE_H
#define TAPER_AOT_TRACE_H
#include "aot/aot.h"

typedef struct trace {
    tp_comp *c;
    op_ctx cx; /* a context of its own: recording must not leak into the thread's */
    ir_graph *g;
    ir_rec rec;
    fn_state *fn;
    aot_replay r;   /* of the captured graph */
    tp_tensor **in; /* proxies of the primals; owned */
    int nin;
    bool leaves;   /* requires_grad_() is said in the graph ... */
    bool *flagged; /* ... to these inputs */
    aot_base *base;
    int nbase, *base_of; /* by input: + 1, 0 for those that share no memory that is written */
} trace;

/* hop.c: a call with nested graphs goes over, its nested graphs made pure, its derivative a call like it. */
bool trace_hop(trace *t, const ir_node *n, tp_err *err);
/* function.c: outputs get a derivative that is a nested graph. */
bool trace_function(trace *t, const ir_node *n, tp_err *err);
/* custom.c: a custom operator goes over without its writes, its derivative beside it. */
bool trace_custom(trace *t, const ir_node *n, tp_err *err);
/* bases.c: which inputs share memory that is written; then the placeholders for it, and the inputs as views of them. */
bool bases_find(trace *t, const ir_graph *g, bool grads, tp_err *err);
bool bases_add(trace *t, const ir_graph *g, tp_err *err);
/* A nested graph made pure; new. needs NULL: it returns what g returns. Otherwise its gradients: it takes what
 * g takes and a tangent for each float result, and returns a gradient for each input with needs. */
ir_graph *aot_nested(tp_comp *c, const ir_graph *g, const bool *needs);
#endif
