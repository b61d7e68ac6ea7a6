/* decomp.h - what decompositions and kernels share: returning results, temporaries in a working type. */
#ifndef TAPER_DECOMP_H
#define TAPER_DECOMP_H
#include "ops/op.h"

/* A decomposition ends with one of these: hands t (borrowed) or a list to the caller. */
bool comp_ret(bld *b, tp_tensor *t, tp_val *out);
bool comp_ret_n(bld *b, tp_tensor *const *ts, int n, tp_val *out); /* n separate results */
bool comp_list(bld *b, tp_tensor *const *ts, int n, tp_val *out);  /* one Tensor[] result */

/* decomp__max_pool2d_offsets_backward where the tensors are on a device (decomp_window.c). */
bool offsets_on_device(bld *b, const tp_val *arg, tp_val *out);

static inline tp_tensor *val_t(const tp_val *v) { return v->kind == VAL_tensor ? v->t : NULL; }
static inline int64_t val_i(const tp_val *v, int64_t none) { return v->kind == VAL_none ? none : v->i; }
static inline bool val_b(const tp_val *v, bool none) { return v->kind == VAL_none ? none : v->b; }
static inline double val_f(const tp_val *v, double none) { return v->kind == VAL_none ? none : val_as_f(v); }

/* a / n as an operand: a number, or where n is symbolic a tensor of type dt without dimensions. */
tp_val val_over(bld *b, double a, symint n, dtype dt);

/* printf("%s", size_str(b, ...)): a shape, or one size, as text; the buffer is the caller's. */
typedef struct size_text {
    char s[160];
} size_text;
const char *sizes_str(size_text *b, int n, const symint *size); /* [2, 3] */
const char *size_str(size_text *b, symint v);

/* view's -1 and its error messages; strides of a size over t's memory, false when no view can have it. */
bool view_infer(const tp_tensor *t, int n, const symint *want, symint *size, tp_err *err);
bool view_strides(const tp_tensor *t, int n, const symint *size, symint *stride);
/* A view of t along dimension d: `len` elements from `start`, `step` apart. Owned. */
tp_tensor *view_slice(tp_tensor *t, int d, int64_t start, int64_t len, int64_t step);

/* Shape rules of backward rows (x_backward): dy must have the size, and be of the float type, of the first result that
 * the forward row x (by name) describes for these arguments. */
bool grad_fits(op_call *c, tp_tensor *dy, const tp_val *arg, int narg);
bool grad_is(op_call *c, tp_tensor *dy, int n, const symint *size); /* the same with the size given */

/* Temporaries of a kernel: inputs made contiguous and of one type, outputs likewise and copied back. */
typedef struct scratch {
    tp_tensor *own[24];
    tp_tensor *dst[24]; /* where own[i] is copied on success, or NULL */
    int n;
    bool failed;
    tp_err *err;
} scratch;
tp_tensor *scratch_in(scratch *s, tp_tensor *t, dtype dt);    /* NULL stays NULL */
tp_tensor *scratch_out(scratch *s, tp_tensor *res, dtype dt); /* contents undefined */
tp_tensor *scratch_new(scratch *s, dtype dt, int nd, const symint *size);
tp_tensor *scratch_take(scratch *s, tp_tensor *t); /* keeps t until the end */
bool scratch_end(scratch *s, bool ok);
/* The type kernels work in: f64 for itself, f32 for the other floats. */
static inline dtype work_type(dtype dt) { return dt == DT_f64 ? DT_f64 : DT_f32; }
#endif
