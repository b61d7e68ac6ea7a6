/* mask.h - what a boolean mask selects: counting, positions, packing and unpacking, each in two passes over chunks
 * (count, then fill) so that threads can share the work. The mask is packed bytes, 0 or not. */
#ifndef TAPER_MASK_H
#define TAPER_MASK_H
#include "ops/op.h"

int64_t mask_count(const uint8_t *m, int64_t n);
/* Coordinates of the true elements of a mask of this shape, out[d][k] for the k-th of them. */
void mask_where(const uint8_t *m, int ndim, const symint *size, int64_t *const *out);
/* dst packed = the rows of `row` bytes of src whose mask is true. */
void mask_take(const uint8_t *m, int64_t n, int64_t row, void *dst, const void *src);
/* Elements of dst whose mask is true = src's in turn (which has as many, at least). */
void mask_put(const uint8_t *m, int64_t n, int64_t es, void *dst, const void *src);
#endif
