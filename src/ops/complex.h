/* complex.h - calls on element types that have no loops of their own: complex numbers, and the types that are only stored.
 * complex.def lists the rows that take them; every other row refuses. */
#ifndef TAPER_OPS_COMPLEX_H
#define TAPER_OPS_COMPLEX_H
#include "ops/op.h"

/* The whole call, shape rule included, in place of the row's own. */
typedef bool special_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err,
                          bool fake);
typedef struct special_row {
    bool taken;          /* false: the row refuses these types */
    bool stored;         /* taken of the types that are only stored, too */
    op_eager_fn *kernel; /* NULL: the row's own, which only moves bytes */
    op_shape_fn *shape;  /* NULL: the row's own */
    special_call *call;  /* NULL: shape rule and kernel. Beside a kernel: for what is only stored */
} special_row;

/* Is there a tensor, a number or a type among these that is not plain? */
bool special_args(const op_row *row, const tp_val *arg);
bool special_complex(const op_row *row, const tp_val *arg); /* a complex one? */
const special_row *special_of(op_id op);
/* NULL with an error where the row does not take the types of these arguments. */
const special_row *special_find(op_id op, const tp_val *arg, tp_err *err);
/* n elements between any two types; strides in bytes. */
void special_convert(int64_t n, char *d, dtype ddt, int64_t dst, const char *s, dtype sdt, int64_t sst);
/* The real (0) or the imaginary (1) parts as a real tensor over the same memory. Owned. */
tp_tensor *complex_part(tp_tensor *t, int which);
#endif
