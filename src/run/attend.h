/* attend.h - a product, a kernel on its rows, and a product of what the kernel wrote: attention, block of rows by block of rows.
 * What lies between the two products never exists as a whole: each thread keeps some rows of it in its cache. */
#ifndef TAPER_RUN_ATTEND_H
#define TAPER_RUN_ATTEND_H
#include "gen/gemm.h"
#include "tensor/tensor.h"

typedef struct attend {
    const tp_tensor *q, *k, *v; /* batch x m x d, batch x d x n, batch x n x e */
    tp_tensor *o;               /* batch x m x e */
    gemm_epilogue kernel;       /* on rows of n elements, counted through the batch */
    int nbuf; /* of the kernel; bufs[scores], which it reads, and bufs[probs], which it writes, are set here */
    int scores, probs;
    int64_t
        reach; /* row r of a matrix needs its first r + reach columns alone, what lies behind them is 0; 0: all of them */
} attend;

typedef enum { ATTEND_done, ATTEND_declined, ATTEND_failed } attend_result;
attend_result attend_run(const attend *a, tp_err *err); /* declined: nothing was written */
#endif
