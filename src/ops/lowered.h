/* lowered.h - eager kernels of pointwise rows whose mathematics is their lowering.
 * What such a row computes is written once, in the `lower` column of its row; eager calls run a kernel of that one operator,
 * made when it is first needed and kept for the life of the process. So eager and compiled results are equal to the last bit.
 * Knows operators, their arguments and memory. May not know how a kernel is made: a later stage registers that. */
#ifndef TAPER_OPS_LOWERED_H
#define TAPER_OPS_LOWERED_H
#include "ops/op.h"

enum { LOWERED_IN = 3, LOWERED_ARGS = 6, LOWERED_FLTS = 4, LOWERED_TEXT = 8 };

/* All that a kernel depends on; bytes that nothing says are 0. Numbers are arguments of the kernel, not part of it. */
typedef struct lowered_key {
    uint16_t op;
    uint8_t dt;                  /* of the result, which is what it computes in */
    uint8_t to;                  /* of the memory that it writes */
    uint8_t nin, in[LOWERED_IN]; /* types of the operands */
    uint8_t one;                 /* bit k: operand k is one element for all of the run */
    uint8_t set;                 /* bit i: argument i is true */
    uint8_t kind[LOWERED_ARGS];  /* val_kind of the arguments */
    char text[LOWERED_TEXT];     /* the argument that is a string */
} lowered_key;

typedef struct lowered lowered;
struct lowered {
    lowered_key key;
    /* y[i] = op(x0[i], ...) for i in 0..n; bufs: the result, then the operands, packed; they may be the result itself. */
    void (*run)(const lowered *k, void *const *bufs, const int64_t *n, const double *flts);
    const void *code;
    int nflt; /* numbers that it reads: argument a, times argument b unless b is a */
    struct {
        uint8_t a, b;
    } flt[LOWERED_FLTS];
};

/* Fills in the kernel of k->key. False with an error. Set once, before the first call. */
typedef bool lowered_make_fn(lowered *k, tp_err *err);
void ops_lower_with(lowered_make_fn *fn);

bool lowered_run(op_call *c); /* the row's kernel on the arguments of the call, into its first result */
#endif
