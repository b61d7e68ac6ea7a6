/* attend.h - products, a kernel on their rows, and products of what the kernel wrote: attention and its gradient, block of
 * rows by block of rows. What lies between the products never exists as a whole: each thread keeps some rows of it in its
 * cache. */
#ifndef TAPER_RUN_ATTEND_H
#define TAPER_RUN_ATTEND_H
#include "target/x64/gemm.h"
#include "tensor/tensor.h"

enum { ATTEND_OF = 2, ATTEND_TO = 4, ATTEND_BETWEEN = 2 };

typedef struct attend_of { /* a product whose rows the kernel reads: batch x m x d, batch x d x n */
    const tp_tensor *a, *b;
    int buf; /* of the kernel */
} attend_of;

typedef struct attend_to { /* a product of a matrix of m x n that the kernel writes, and x */
    const tp_tensor *x;
    tp_tensor *o;
    int buf;
    bool
        adds; /* a sum over the m rows, to which every block adds; else each block makes rows of the result */
    bool second; /* the matrix is the second factor: all is transposed */
} attend_to;

typedef struct attend {
    attend_of of[ATTEND_OF];
    attend_to to[ATTEND_TO];
    int nof, nto;
    gemm_epilogue kernel; /* on rows of n elements, counted through the batch */
    int nbuf; /* of the kernel; those that products make or read are set here, at most ATTEND_BETWEEN of the latter */
    int64_t
        reach; /* row r of a matrix needs its first r + reach columns alone, what lies behind them is 0; 0: all of them */
} attend;

typedef enum { ATTEND_done, ATTEND_declined, ATTEND_failed } attend_result;
attend_result attend_run(const attend *a, tp_err *err); /* declined: nothing was written */
#endif
