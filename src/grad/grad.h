/* grad.h - derivatives: the tape under eager execution, and the rules that the joint graph uses too.
 * grad_call is the top of the dispatcher: tape over recorder over kernels. Everything that a user's program
 * computes goes through it. */
#ifndef TAPER_GRAD_H
#define TAPER_GRAD_H
#include "ir/graph.h"

/* arg: schema order, defaults filled in, borrowed. out: nret owned values. */
bool grad_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err);
/* Outputs that are computed already get a derivative that is a graph: what node n, a HOP_function of ir/hop.h, does. */
bool grad_link(op_ctx *cx, const ir_node *n, const tp_val *arg, const struct sym_bind *bind, int nbind,
               tp_val *out, tp_err *err);
/* grad_call through the row's decomposition, which it must have, even where it has a kernel. */
bool grad_call_parts(op_ctx *cx, op_id op, const tp_val *arg, tp_val *out, tp_err *err);

/* --- derivative rules: the vjp column of the op table ------------------------------------------------ */
/* VJP(name, saves) { ... } defines vjp_name. `saves` lists what the rule reads, so that the tape keeps just
 * that, blank-separated: "0" the first argument, "1" the second, "r" the first result, "r1" the second; "1?0"
 * the second argument if the first needs its gradient; "3!5" the fourth
 * unless the sixth is true; "~r1" says that the second result has no derivative.
 * Shapes and dtypes of all arguments and results may be asked without saving them. DY(i)     gradient of
 * result i, NULL when it is not needed or zero IN(i)     saved tensor argument i;  ARG(i) the argument as a
 * value (numbers, lists, flags) OUT(i)    saved result i INM(i), OUTM(i)  type and shape of argument or
 * result i: a header without data, not for operator calls NEED(i)   is the gradient of argument i wanted?
 *   DX(i, e)  sets the gradient of argument i; unset means zero. It may have the shape of the result: the
 * tape sums what was broadcast and converts the dtype. Rules make operator calls through the builder g->b and
 * never look at data, so the same rule runs at once or appends nodes to a graph. */
typedef struct vjp {
    bld *b;
    const op_row *row;
    const tp_val *arg;          /* numbers and lists as called; tensors only where saved (else VAL_none) */
    tp_tensor *const *out;      /* saved results, NULL elsewhere */
    tp_tensor *const *dy;       /* one per result */
    const bool *need;           /* one per argument */
    tp_tensor **dx;             /* one per argument; borrowed from the builder's pool */
    tp_tensor *const *in_meta;  /* fake tensors with the arguments' shapes and types (NULL for non-tensors) */
    tp_tensor *const *out_meta; /* the same for results */
    /* Tensor[] arguments: gradients of the elements of the one list argument a row may have. */
    tp_tensor **dlist;
    tp_tensor *const *list_meta;
    int nlist;
    int nout; /* results, also of rows that return a list */
} vjp;
typedef bool vjp_fn(vjp *g);

#define VJP(name, saves)                   \
    const char vjp_saves_##name[] = saves; \
    bool vjp_##name(vjp *g)
#define DY(i)    (g->dy[i])
#define IN(i)    (g->arg[i].kind == VAL_tensor ? g->arg[i].t : NULL)
#define ARG(i)   (&g->arg[i])
#define OUT(i)   (g->out[i])
#define NEED(i)  (g->need[i])
#define DX(i, e) (g->dx[i] = NEED(i) ? (e) : NULL)
#define INM(i)   (g->in_meta[i])
#define OUTM(i)  (g->out_meta[i])

typedef struct vjp_row {
    vjp_fn *fn;
    const char *saves;
} vjp_row;
const vjp_row *vjp_row_of(op_id op); /* fn is vjp_none for holes */
/* Is shown which type autocast runs a row in, and its narrow type; NULL: nobody looks. */
extern void (*grad_cast_watch)(op_id op, dtype to, dtype narrow);
#endif
