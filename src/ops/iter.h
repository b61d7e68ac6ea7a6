/* iter.h - walks several strided operands together: broadcasts, orders and merges dimensions, splits over
 * threads. */
#ifndef TAPER_ITER_H
#define TAPER_ITER_H
#include "tensor/tensor.h"

enum { ITER_MAX = 8 };

/* p[k] are the operands' first elements of this run, st[k] their byte strides, n elements to do. */
typedef void iter_fn(void *arg, int64_t n, char *const *p, const int64_t *st);

typedef struct iter {
    int nop, ndim;
    int64_t numel;
    int64_t size[TP_MAX_DIMS];             /* fastest dimension first */
    int64_t stride[ITER_MAX][TP_MAX_DIMS]; /* bytes */
    char *data[ITER_MAX];
} iter;

/* Operand 0 gives the shape; the others broadcast to it. NULL: stride 0, the caller sets data. */
void iter_init(iter *it, int nop, tp_tensor *const *op);
/* Calls fn on runs of the fastest dimension. Runs of different threads never share an element of operand 0
 * unless it is itself broadcast. grain: elements per task, 0 for the default. */
void iter_run(const iter *it, iter_fn *fn, void *arg, int64_t grain);
#endif
