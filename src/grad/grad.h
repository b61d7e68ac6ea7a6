/* grad.h - derivatives: the tape under eager execution, and the rules that the joint graph uses too.
 * grad_call is the top of the dispatcher: tape over recorder over kernels. Everything that a user's program
 * computes goes through it. */
#ifndef TAPER_GRAD_H
#define TAPER_GRAD_H
#include "ir/graph.h"

/* arg: schema order, defaults filled in, borrowed. out: nret owned values. */
bool grad_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err);

/* --- derivative rules: the vjp column of the op table
 * --------------------------------------------------------- VJP(name, saves) { ... } defines vjp_name.
 * `saves` lists what the rule reads, so that the tape keeps just that: "0" the first argument, "1" the
 * second, "r" the first result, "r1" the second result; blank-separated. Shapes and dtypes of arguments and
 * results may be asked without saving them (grad_in_meta, grad_out_meta). DY(i)      gradient of result i
 * (NULL when it is not needed or zero) IN(i)      saved tensor argument i;  ARG(i) the argument as a value
 * (numbers, lists, flags) OUT(i)     saved result i NEED(i)    is the gradient of argument i wanted? DX(i, e)
 * sets the gradient of argument i (may be left unset: zero) Rules make operator calls through the builder
 * g->b (b_op(g->b, mul_Tensor, vT(DY(0)), vT(OUT(0)))). */
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
#endif
