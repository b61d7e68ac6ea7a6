/* check.h - are indices on a device inside? The device looks, and the host hears of it later.
 * Knows kernels that are launched with numbers. May not know graphs: who is told is a function (target_late). */
#ifndef TAPER_TARGET_CUDA_CHECK_H
#define TAPER_TARGET_CUDA_CHECK_H
#include "target/target.h"

/* With late: queued, and found at a sync (cuda_late) or by the next check; without, or where CUDA_LAUNCH_BLOCKING is set: now. */
bool cuda_inside(const tp_tensor *index, int64_t lo, int64_t hi, target_late *late, bool *yes, int64_t *bad,
                 tp_err *err);
void cuda_forget(target_late *late);
/* False with the error of an index that was found outside, once. Does not wait. */
bool cuda_late(tp_err *err);
#endif
