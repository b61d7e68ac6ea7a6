/* truth.h - what an operator means, by the C library in float64 (columns_truth.c). */
#ifndef TAPER_TRUTH_H
#define TAPER_TRUTH_H
#include "ops/op.h"

/* The first result of the call on float64 tensors, of the size of `like`. Owned; NULL: nobody knows it. */
tp_tensor *truth_of(op_id op, const tp_val *arg, const tp_tensor *like);
#endif
