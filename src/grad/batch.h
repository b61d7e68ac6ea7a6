/* batch.h - vmap: tensors with a hidden batch, and the rules that run a call for all its elements at once.
 * A batched tensor is a fake one whose storage knows the whole: a tensor with the batch as its first dimension. Its own sizes, strides
 * and offset are those of one element in the memory of the whole, so views of it need no rule. Calls on it reach the tape as any
 * others (derivatives inside vmap), then the rule of their row, whose calls on the whole have a tape of their own (outside vmap). */
#ifndef TAPER_BATCH_H
#define TAPER_BATCH_H
#include "grad/grad.h"

typedef enum { DRAWS_error, DRAWS_different, DRAWS_same } batch_draws;

/* One vmap that is running. */
typedef struct batch_level {
    int id; /* 1 is the outermost */
    symint n;
    batch_draws draws;
    const char *refused; /* the row that wanted data; NULL: none */
    struct batch_level *up;
} batch_level;

batch_level *batch_enter(op_ctx *cx, symint n, batch_draws draws);
void batch_exit(op_ctx *cx);
batch_level *batch_now(const op_ctx *cx); /* the innermost, or NULL */

/* t, whose first dimension is the batch, as one element. Counted. */
tp_tensor *batch_wrap(tp_tensor *t, int level);
/* The whole of a tensor batched at this level (counted), with t's own view of it; NULL with no error when it is not batched there. */
tp_tensor *batch_whole(op_ctx *cx, tp_tensor *t, int level, tp_err *err);
/* t, with the batch as its first dimension: its whole, or the same element n times (counted). */
tp_tensor *batch_spread(op_ctx *cx, tp_tensor *t, const batch_level *l, tp_err *err);
int batch_level_of(const tp_tensor *t);     /* 0: none */
bool batch_has_history(const tp_tensor *t); /* does its whole need a gradient, outside of its vmap? */
/* Rows that had no rule: calls that ran once for each element, by name, since the start of the process. */
typedef struct batch_loop {
    const char *name;
    int64_t calls, elements;
} batch_loop;
const batch_loop *batch_loops(int *n);

/* --- rules: the VMAP column -------------------------------------------------------------------------------- */
typedef struct batch_call {
    bld *b; /* its calls go through the tape, at the levels outside this one */
    op_id op;
    op_variant v;
    const op_row *row;
    const batch_level *level;
    symint n;
    const tp_val *arg;               /* the call as the function made it */
    tp_tensor *whole[OP_MAX_PARAMS]; /* of each batched tensor argument */
    tp_tensor **list;                /* of each tensor of the one list argument */
    int lparam;                      /* which it is; -1: none */
    tp_val *want;                    /* what the function is to get, by the shape rule */
    tp_val out[OP_MAX_RETURNS];      /* results with the batch in front: counted */
    bool same;                       /* they are the same for all elements: no batch in front */
} batch_call;
/* False: the rule does not take this call (or failed: b->err is set). */
typedef bool batch_rule(batch_call *x);

/* The call with these arguments; results go to x->out. */
bool batch_run(batch_call *x, op_id op, const tp_val *arg);
bool batch_give(batch_call *x, tp_tensor *t); /* the one result: borrowed */
tp_tensor *batch_lead(batch_call *x, int i);  /* argument i with the batch in front, spread if it has none */
tp_tensor *batch_lead_list(batch_call *x, int k); /* the same of the list's element k */
tp_tensor *batch_pad(batch_call *x, tp_tensor *whole,
                     int rank); /* sizes of 1 behind the batch, up to rank of an element */
tp_tensor *batch_shape(batch_call *x, tp_tensor *t, int nd, const symint *size); /* reshape */
tp_tensor *batch_move(batch_call *x, tp_tensor *t, int from, int to);
/* A call on the tensors of the function: it comes back here. NULL when it failed. */
tp_tensor *batch_inside(batch_call *x, op_id op, const tp_val *arg, int narg);
#define IN_BATCH(x, id, ...) batch_inside((x), OP_##id, B_ARGS(__VA_ARGS__))

#define VMAP(id, rule) batch_rule batch_##rule;
#include "ops/ops.def"
batch_rule batch_pointwise, batch_along, batch_parts;
#endif
