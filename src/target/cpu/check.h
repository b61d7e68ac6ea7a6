/* check.h - indices that kernels read by, looked at before they run. */
#ifndef TAPER_RUN_CHECK_H
#define TAPER_RUN_CHECK_H
#include "tensor/tensor.h"

/* Is every element of an int32 or int64 tensor in [lo, hi)? Otherwise *bad is the first that is not. False with an error
 * where there is no memory to look. */
bool check_inside(const tp_tensor *index, int64_t lo, int64_t hi, bool *inside, int64_t *bad, tp_err *err);
#endif
