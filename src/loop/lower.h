/* lower.h - the `lower` column of ops.def: what loops need to know of an operator, one record a token.
 * A record is named lower_<token> and lives in the file of its family (lower_pointwise.c, lower_shape.c ...). What a record
 * leaves out does not hold: an operator whose record is empty (lower_none) is a call. */
#ifndef TAPER_LOOP_LOWER_H
#define TAPER_LOOP_LOWER_H
#include "loop/loop.h"
#include "loop/lin.h"

typedef struct planner planner;
typedef struct walk walk;

/* Where a condition on the places of a matrix holds: up to the diagonal `diag`, or from it on. */
typedef struct causal_band {
    bool up_to;
    int64_t diag;
} causal_band;

/* What is known of the elements of a value beyond a diagonal, whatever the products that the kernel reads hold there: nothing;
 * that they are finite where the products are, or left at 0; that they do not depend on the products; which number they are. */
typedef enum { KNOWN_nothing, KNOWN_finite, KNOWN_free, KNOWN_zero, KNOWN_lowest } known_mask;

/* Values that are written in parts, a kernel each, so that no element asks which one it belongs to: the operands of a cat, and
 * what a mirroring pad has left of, in and right of the image. */
typedef struct lower_parts {
    int (*count)(const ir_node *n);
    int (*dim)(const ir_node *n);
    symint (*size)(const ir_node *n, int i);
} lower_parts;

/* The order in which rewrites are made. */
typedef enum {
    REWRITE_accumulate, /* products are added to where a sum of products lies */
    REWRITE_split,      /* parts of a split are slices, which fold into the index of whoever reads them */
    REWRITE_roll,       /* two slices, one after the other */
    REWRITE_pool,       /* a pooling whose places nobody wants is a value of its own */
    REWRITE_extreme,    /* an extreme and its place are two reductions */
    REWRITE_scan,       /* running extremes and their places are two scans */
    REWRITE_parts,      /* one result of many elements is made of parts */
    REWRITE_COUNT
} rewrite_pass;
/* next: where the walk over the graph goes on; false: failed, with an error */
typedef bool rewrite_fn(planner *pl, ir_node *n, ir_node **next);

typedef struct lowering {
    /* --- a value that is computed where it is used --- */
    bool (*fits)(planner *pl, const ir_node *n); /* always */
    /* By choice: NULL, or why a call is better. *what says what the kernel does; left NULL: there is no choice. */
    const char *(*folds)(planner *pl, const ir_node *n, const char **what);
    vir_ref (*value)(walk *w, ir_node *n, const lin *idx);       /* the element at idx */
    bool (*view)(walk *w, ir_node *n, const lin *idx, lin *out); /* index of the result -> of the operand */
    void (*operands)(planner *pl, ir_node *n);                   /* those that must lie in memory */
    bool (*apart)(const ir_node *n); /* a kernel of its own: nothing joins it, and it joins nothing */
    bool (*constant)(const ir_node *n, tp_val *v); /* all elements are this number */
    const lower_parts *parts;
    bool cheap;   /* computed again at every use rather than stored */
    bool borders; /* its operand with a constant around it */
    bool copies;  /* the value of its first operand, perhaps in another type */
    bool arange;  /* counts up from `arg`, an argument + 1; 0: from 0 */
    uint8_t arg;  /* fill: the argument that is the number + 1 */

    /* --- pointwise: from operands in registers --- */
    lower_fn *scalar;
    bool divides; /* a division or a root: many instructions where vectors are no registers */
    bool chooses; /* between two operands, by a third: */
    uint8_t cond, yes, no;
    bool wants_low;                   /* shorter where its operand is known not to be positive */
    bool (*is_low)(const ir_node *n); /* it is known not to be */
    uint8_t (*act)(const ir_node *n); /* the product_act that it is; NULL: none */

    /* --- loops of its own --- */
    bool (*loops)(planner *pl, ir_node *n); /* a reduction, a running result, a scatter: notes which */
    bool reduces;
    uint8_t kind, other; /* vir_red_kind; of a scan, `other` where its third argument is false */
    bool ordered;        /* floats are combined in their order, one at a time */
    bool wide;           /* a scan in 64 bits */
    bool (*gather)(const ir_node *n, loop_gather *g); /* reads or writes where indices point */
    bool quick;                         /* the call knows a faster way to read than a table of places */
    int64_t (*block)(const ir_node *n); /* numbers that one block of the sequence gives */
    bool reserves;                      /* only reserves a stretch of the sequence */

    /* --- library calls whose memory the plan can hold --- */
    bool (*product)(planner *pl, const ir_node *n);
    ir_node *(*adds_to)(const ir_node *n); /* the operand in whose memory the result lies, or NULL */
    uint8_t factor;                        /* the first of the two factors, an argument + 1 */
    bool batched;                          /* a product of two stacks of matrices and nothing else */
    bool planes;                           /* planes are finished together rather than rows */
    uint8_t conv;                          /* a convolution of a device: conv_kind + 1 */
    bool items; /* of several results, each in memory of the plan: the row by a device's own kernels */
    bool tiles; /* has emitted register tiles */

    /* --- attention: what is known beyond a diagonal --- */
    const ir_node *(*same_band)(const ir_node *n,
                                bool *flip); /* the condition that this one is, or its contrary */
    bool (*causal_band)(const ir_node *n, causal_band *b);
    known_mask (*known)(known_mask x, known_mask y, known_mask all);
    bool scales;   /* by a number, its second operand */
    bool regroups; /* a view of the same elements in the same order */

    /* --- rewrite.c --- */
    rewrite_fn *rewrite;
    uint8_t pass; /* rewrite_pass */
} lowering;

#define OP(id, schema, shape, eager, vjp, decomp, lower, flags, py) extern const lowering lower_##lower;
#include "ops/ops.def"

const lowering *lower_op(op_id op);
const lowering *lower_row(const ir_node *n); /* lower_none: not a plain call */
#endif
