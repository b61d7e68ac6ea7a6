/* attend.h - attention on the device, a part of the batch or of the rows at a time.
 * Knows products and launches. What is between the products stays in the second cache where a part of it fits there. */
#ifndef TAPER_TARGET_CUDA_ATTEND_H
#define TAPER_TARGET_CUDA_ATTEND_H
#include "target/target.h"

/* Bytes of memory for what is between the products; 0: it is declined. */
int64_t cuda_attend_bytes(const target_attend *a);
target_result cuda_attend(const target_attend *a, tp_err *err);
/* Iterations [lo, hi) of the parallel loop of a kernel (target.c). */
bool cuda_launch_rows(const target_code *c, const target_args *a, int64_t lo, int64_t hi, tp_err *err);
#endif
