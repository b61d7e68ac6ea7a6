/* truth.h - what an operator means, by the C library in float64 (columns_truth.c). */
#ifndef TAPER_TRUTH_H
#define TAPER_TRUTH_H
#include "ops/op.h"

/* Float result i of the call on float64 tensors, of the size of `like`; behind the results, what it writes to arguments. Owned; NULL:
 * nobody knows it. */
tp_tensor *truth_of(op_id op, const tp_val *arg, int i, const tp_tensor *like);
/* Of result i, integers or bools, on any operands: float64, NaN where the formula does not say. Owned; NULL: nobody knows it. */
tp_tensor *truth_whole(op_id op, const tp_val *arg, int i, const tp_tensor *like);
/* The same of what is no formula of single elements: losses with weights, normalisation, windows, moves (columns_truth_nn.c). */
/* Element k of `like` in an operand that is spread over it; is it? */
int64_t truth_spread(const tp_tensor *t, const tp_tensor *like, int64_t k);
bool truth_spreads(const tp_tensor *t, const tp_tensor *like);
bool truth_nn(op_id op, const tp_val *arg, int i, tp_tensor *out);
/* Result i (of all results) where it is integers: places, counts, what is made of numbers (columns_truth_index.c). */
bool truth_places(op_id op, const tp_val *arg, int i, tp_tensor *out);
/* Floats of searches, scatters, resizing and rows that take no tensors. */
bool truth_index(op_id op, const tp_val *arg, int i, tp_tensor *out);
/* Views, conversions, convolutions, matrices; whole: a result of integers (columns_truth_shape.c). */
bool truth_shape(op_id op, const tp_val *arg, int i, bool whole, tp_tensor *out);
bool truth_of_view(op_id op); /* is it known what this view shows? */
/* Is there more than one right answer? Vectors that belong to singular and eigenvalues may point the other way. */
bool truth_is_free(op_id op, int i);
#endif
