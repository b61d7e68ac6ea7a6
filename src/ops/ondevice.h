/* ondevice.h - the DEVICE column: rows that a device computes by kernels written for them, as they have no loops: sorting, and what
 * selects elements. Knows rows, tensors and a table of functions by device. May not know how a device does it.
 *
 * A device declines what its kernels do not take; then the host computes the row between copies. Functions launch on the current queue
 * and return; those that say how many elements there are wait for the device. */
#ifndef TAPER_OPS_ONDEVICE_H
#define TAPER_OPS_ONDEVICE_H
#include "ops/op.h"

typedef enum { OWN_done, OWN_declined, OWN_failed } own_result; /* declined: nothing was written */

typedef struct own_sort { /* rows of n elements; stable; NaN last, or first where descending; -0 equals 0 */
    dtype dt;
    const void *in;
    int64_t rows, n, keep; /* the first `keep` of each row are written: 1 to n */
    bool descending;
    void *values;     /* rows of `keep` elements; NULL: not wanted. No memory of `in` */
    int64_t *indices; /* positions in the row; likewise */
} own_sort;

typedef struct own_kernels {
    own_result (*sort)(tp_device d, const own_sort *s, tp_err *err);
} own_kernels;
void ops_own_kernels(dev_kind k, const own_kernels *own); /* before the first tensor of that kind */

/* The row by the device's kernels, under the contract of the eager column. */
own_result ops_run_own(op_call *c);
#endif
