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

typedef struct own_select { /* of n elements without gaps */
    dtype dt;
    const void *in;
    int64_t n;
    bool
        runs; /* selected: those that differ from the one before (no NaN equals another); else those that are not zero */
    void *room;    /* select_room(n) bytes, between the two calls */
    int64_t found; /* select_count says so */
    /* --- what select_write makes of those that are not zero: `found` positions, a column a dimension */
    int ndim;
    int64_t size[TP_MAX_DIMS], *positions;
    /* --- and of runs; NULL: not wanted */
    void *values;         /* the first element of each */
    int64_t *lengths;     /* of each */
    int64_t *group;       /* of each element, the number of its run, */
    const int64_t *order; /* at this place; NULL: at its own */
} own_select;

typedef struct own_search { /* where values go between boundaries: by halves, as the CPU does */
    dtype dt;               /* f32, f64 or i64 */
    const void *bounds, *values;
    int64_t n, per; /* boundaries in a line; values for a line, 0: one line for all */
    int64_t values_n;
    bool right, narrow; /* behind equal ones; results of 32 bits, else 64 */
    void *out;
} own_search;

typedef struct own_attention { /* [batch, heads, rows, head]; heads of k and v divide those of q */
    const tp_tensor *q, *k, *v, *mask,
        *state; /* mask: [batch, heads, rows of q, rows of k]; NULL: there is none */
    double p, scale;
    bool causal;
    enum { OWN_attention, OWN_grad_query, OWN_grad_key } kind;
    tp_tensor *o, *stats; /* written by the first, which may want no stats; what they are the rows say */
    const tp_tensor *g;   /* of the others */
    tp_tensor *dq, *rows; /* written by the second; the third reads rows, */
    tp_tensor *dk, *dv;   /* and writes these */
} own_attention;

typedef struct own_kernels {
    own_result (*sort)(tp_device d, const own_sort *s, tp_err *err);
    int64_t (*select_room)(int64_t n);
    own_result (*select_count)(tp_device d, own_select *s, tp_err *err); /* waits for the device */
    bool (*select_write)(tp_device d, const own_select *s, tp_err *err);
    own_result (*search)(tp_device d, const own_search *s, tp_err *err);
    own_result (*attend)(tp_device d, const own_attention *a, tp_err *err);
    bool (*attends_in_place)(const tp_tensor *t); /* such an operand is read without a copy */
} own_kernels;
void ops_own_kernels(dev_kind k, const own_kernels *own); /* before the first tensor of that kind */

const own_kernels *ops_owner(tp_device d); /* NULL: it has none */

typedef own_result op_device_fn(op_call *c);
/* The row by the device's kernels, under the contract of the eager column. */
own_result ops_run_own(op_call *c);
bool ops_may_own(const op_call *c); /* may that be more than declined? Of fakes, too */
#endif
