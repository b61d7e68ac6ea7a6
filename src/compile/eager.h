/* eager.h - operators on device tensors outside of compiled graphs. */
#ifndef TAPER_COMPILE_EAGER_H
#define TAPER_COMPILE_EAGER_H
#include "base/base.h"

/* Offers the operators of all devices but the CPU to ops/ (ops_on_device). */
void eager_offer(void);
/* Offers the kernels of pointwise operators on the CPU (ops_lower_with). */
void eager_pointwise_offer(void);

typedef struct eager_stats {
    int64_t programs, calls,
        hosted;  /* compiled one-node programs; their calls; calls that went through the host */
    int64_t own; /* by kernels that the device has for the row */
} eager_stats;
eager_stats eager_get_stats(void);
#endif
