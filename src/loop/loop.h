/* loop.h - from a pure graph to steps: fused kernels, library calls, buffers.
 * Views fold into index expressions, pointwise work into the loops that use it; what must exist in memory gets
 * a slot. The result names slots and kernels only: run/ executes it without looking at the graph again. */
#ifndef TAPER_LOOP_H
#define TAPER_LOOP_H
#include "ir/pass.h"
#include "ops/lowered.h"
#include "target/target.h"
#include "vir/vir.h"
#include "sym/env.h"

/* A value that exists in memory while the plan runs. */
typedef enum { SLOT_input, SLOT_const, SLOT_buffer, SLOT_view, SLOT_extern, SLOT_number } slot_kind;
typedef struct loop_slot {
    uint8_t kind;
    bool output; /* returned: its memory is the caller's */
    int index;   /* input: which; view: the slot it looks at; extern: item of a step's result */
    const ir_node *node;
    tp_tensor *type;  /* fake: dtype, sizes, strides; borrowed from the graph */
    tp_tensor *konst; /* borrowed from the graph */
    bool transient;   /* rows that only the next kernel or product reads: it need not exist as a whole */
    int reuses; /* + 1: it lies in the memory of that slot: a product that is added to what is there, a value of a
                       * kernel that reads it last, a new value of an input; 0: none */
    int first, last; /* steps that make it and that use it last; -1: never */
} loop_slot;

typedef enum { STEP_kernel, STEP_extern, STEP_check } step_kind;
typedef struct loop_kernel {
    vir *k; /* finished; lives in the plan's arena */
    const char *name;
    int nbuf, *buf; /* slot of each buffer */
    int nint;       /* symbolic int arguments */
    symint *ints;
    symint par;                 /* iterations of the parallel loop; 0: there is none */
    symint work;                /* elements touched per parallel iteration, for the grain */
    VEC(const ir_node *) nodes; /* what it computes, for logs */
    int64_t bytes;              /* moved, by hint */
    uint8_t fault;              /* fault_kind planted in it */
    uint8_t share;              /* target_share */
    const char *fault_op;
    const ir_node *fault_node;
} loop_kernel;
/* Products of what a kernel wrote on the rows of products, block by block (target/cpu/attend.h): sums over those rows, to which every block
 * adds, or not; as the second factor or as the first. */
enum {
    ATTENTION_product = 1,
    ATTENTION_adds = 2,
    ATTENTION_second = 4,
    ATTENTION_COUNT = 8,
    ATTENTION_LASTS = 4
};
typedef struct loop_soft { /* see attend_soft; slots + 1, 0: none */
    uint8_t kind;          /* attend_kind */
    bool second;
    double scale;
    int top, part, probs;
} loop_soft;
typedef struct loop_step {
    uint8_t kind;
    bool product; /* extern: a matrix product into a buffer of the plan */
    bool
        epilogue; /* kernel: step i of its parallel loop needs row i of the product before it, and nothing later */
    bool plain; /* extern: without emitted register tiles */
    bool joins; /* extern: a product whose rows the kernel on the next product's rows reads as well */
    uint8_t
        attention; /* extern: a product of what the kernel before it wrote on the rows of products: CHAIN_product and how; 0: it is none */
    uint8_t
        form; /* extern: vectors a product's tile is wide, conv_form of a convolution; 0: as the shape suggests */
    loop_kernel *kernel;
    const ir_node *node; /* extern: the operator; check: the one whose index must lie inside */
    int slot;            /* extern: first slot of its results; check: the index */
    int nslot;           /* check: the dimension that it indexes */
    int64_t
        reach; /* attention: row r of a matrix needs the first r + reach of what lies between the products; 0: all */
    loop_soft soft; /* attention: what its kernel is */
    uint8_t act,
        acted; /* extern: a product, the product_act that the next step is, and which of its buffers it writes */
} loop_step;

typedef struct loop_decision {
    const ir_node *n, *first; /* a node, and the first one of the group; NULL: a call */
    const char *why;
    int group;
    bool yes;
} loop_decision;

typedef struct loop_plan {
    arena mem;
    ir_graph *g; /* a copy that the plan owns; slots and steps point into it */
    VEC(loop_slot) slot;
    VEC(loop_step) step;
    int *out; /* slot per returned item, or -1: the number in the graph's output */
    int nout;
    map slot_of; /* node -> slot + 1 */
    int nkernel, nextern, nproduct, nfused;
    VEC(struct loop_decision) decisions; /* what was fused and what not; empty when nobody asks */
} loop_plan;

loop_plan *loop_plan_new(tp_comp *c, const ir_graph *g); /* NULL with c->err */
void loop_plan_free(loop_plan *p);
void loop_plan_counts(strbuf *b, const loop_plan *p);  /* "3 kernels, 1 product, ..." */
void loop_plan_print(strbuf *b, const loop_plan *p);   /* the schedule log */
void loop_memory_print(strbuf *b, const loop_plan *p); /* a line for each value that the plan makes */
void loop_decision_print(strbuf *b, const loop_decision *d);

/* --- lower_index.c: operators that read or write where indices point -------------------------------------------------- */
typedef struct loop_gather { /* by dimension of the first operand */
    struct {
        ir_node *index; /* decides the place; NULL: dimension `from` of what is read or written does */
        int from;       /* with an index: the dimension that its first one is; -1: all goes to `start` */
        symint start;   /* without one: where it begins */
    } d[TP_MAX_DIMS];
    int n;
    bool wrap; /* negative indices count from the end */
    /* what is written into a copy of the first operand, one after the other along the dimensions in `serial`, where two may
     * go to the same place */
    bool writes, adds;
    int src; /* which argument: a tensor that broadcasts to the sizes, or a number */
    int nd;
    symint size[TP_MAX_DIMS];
    uint32_t serial;
} loop_gather;
bool loop_gather_of(const ir_node *n, loop_gather *g); /* false: n is nothing of the kind */
/* The error of an index that lies outside; false. */
bool loop_check_fail(const ir_node *n, int dim, int64_t index, int64_t size, tp_err *err);

/* --- lower_pointwise.c: pointwise operators in terms of the vector IR ---------------------------------------------------- */
typedef struct lower_in { /* operands already converted to the compute type */
    vir *k;
    vir_ref x[6]; /* tensor operands, 0 where absent */
    int nx;
    const ir_node *n;
    dtype dt;  /* compute type: promoted type of the operands */
    dtype out; /* type of the result */
    bool low;  /* the first operand is known not to be positive */
    tp_err *err;
    lowered *alone; /* an eager kernel: numbers are arguments of it, noted here; NULL: they are known */
    vir_ref flt[LOWERED_FLTS];
} lower_in;
typedef vir_ref
lower_fn(lower_in *l);        /* result in the compute type of `out`; 0: not covered (runs as a call) */
lower_fn *lower_of(op_id op); /* NULL: it has no loop body */
vir_mem loop_mem(dtype dt);
vir_type loop_type(dtype dt); /* what a load of it computes in */
vir_ref loop_convert(vir *k, vir_ref v, dtype from, dtype to);
bool lower_covers(const ir_node *n); /* static check before anything is built */
/* The kernel of one operator: writes the body of e->key to k, and the numbers that it reads to e. False: not covered. */
bool lower_alone(vir *k, lowered *e, tp_err *err);
#endif
