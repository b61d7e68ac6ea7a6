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
/* Parts and orders of dimensions, indices, what is moved by them (columns_truth_move.c). */
bool truth_move(op_id op, const tp_val *arg, int i, tp_tensor *out);
bool truth_move_known(op_id op);
/* Matrix norms, exponentials, alignments (columns_truth_math.c). */
bool truth_math(op_id op, const tp_val *arg, int i, tp_tensor *out);
/* Composites: products of two operands, distances, shuffles (columns_truth_parts.c). */
bool truth_parts(op_id op, const tp_val *arg, int i, tp_tensor *out);
/* Complex numbers that are made of two real ones; owned, or NULL. */
tp_tensor *truth_pair(op_id op, const tp_val *arg, const tp_tensor *like);
/* Where the windows of fractional pooling have their maxima. */
bool truth_pooled_places(op_id op, const tp_val *arg, int i, tp_tensor *out);
/* Result i of a call with complex operands or results, in complex128 or float64. Owned; NULL: nobody knows it. */
tp_tensor *truth_complex(op_id op, const tp_val *arg, int i, const tp_tensor *like);
/* The type of the result by the types of the operands; DT_none: nobody knows it. */
dtype truth_dtype(op_id op, const tp_val *arg);
/* Is its gradient by agreement another one than finite differences? */
bool truth_slope_agreed(op_id op);
/* Does it only move or convert its elements? Then each is the nearest of its type. */
bool truth_moves(op_id op);
/* Is there more than one right answer? Vectors that belong to singular and eigenvalues may point the other way. */
bool truth_is_free(op_id op, int i);
#endif
