/* eager.h - operators on device tensors outside of compiled graphs. */
#ifndef TAPER_COMPILE_EAGER_H
#define TAPER_COMPILE_EAGER_H
#include "ir/graph.h"

/* Offers the operators of all devices but the CPU to ops/ (ops_on_device). */
void eager_offer(void);
/* Offers the kernels of pointwise operators on the CPU (ops_lower_with). */
void eager_pointwise_offer(void);

/* Can g run one operator at a time without a compile: are the programs of its calls in memory or in the disk cache, and is
 * there room for all of its values? err says what is not so. */
bool eager_there(ir_graph *g, tp_err *err);

typedef struct eager_stats {
    int64_t programs, calls,
        hosted;                /* compiled one-node programs; their calls; calls that went through the host */
    int64_t own;               /* by kernels that the device has for the row */
    int64_t first, taken_over; /* of run/step.h */
} eager_stats;
eager_stats eager_get_stats(void);
#endif
