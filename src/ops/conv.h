/* conv.h - the geometry of a convolution, and its three loops: forward, gradient of the input, of the weight.
 * One and two spatial dimensions are three with leading ones. */
#ifndef TAPER_CONV_H
#define TAPER_CONV_H
#include "ops/op.h"
#include "tensor/tensor.h"

/* What lanes hold, where a provider has a choice. */
typedef enum { CONV_usual, CONV_channels, CONV_places } conv_form;

typedef struct conv_geom {
    int64_t n, c, o, groups;        /* batch; channels of the input side and of the output side */
    int64_t in[3], out[3];          /* spatial sizes */
    int64_t k[3], s[3], p[3], d[3]; /* kernel, stride, padding, dilation */
    /* for providers only */
    int64_t last, w_last; /* channels of x and y, of w, lie side by side */
    int64_t form;         /* conv_form */
} conv_geom;

/* All tensors contiguous and of type dt (f32 or f64). x: n c in; w: o c/groups k; y: n o out. */
void conv_forward(dtype dt, const conv_geom *g, const void *x, const void *w, const void *bias, void *y);
void conv_grad_input(dtype dt, const conv_geom *g, const void *dy, const void *w, void *dx);
void conv_grad_weight(dtype dt, const conv_geom *g, const void *x, const void *dy, void *dw);
/* y = convolution of x and w, f32 or f64, with channels of x and y side by side; arg: the operator's arguments from
 * stride on. False: nobody takes them so, nothing was written. */
bool conv_forward_side(tp_tensor *y, const tp_tensor *x, const tp_tensor *w, const tp_tensor *bias,
                       const tp_val *arg);
/* Of the operator's arguments from stride on. */
conv_geom conv_geom_of(const tp_tensor *x, const tp_tensor *w, const tp_tensor *y, const tp_val *a);
/* The memory layout of the results. */
memfmt conv_format(const tp_tensor *x, const tp_tensor *w);

/* --- convolutions of a device: the rows _conv_forward, _conv_grad_input and _conv_grad_weight --- */
typedef enum { CONV_forward, CONV_grad_input, CONV_grad_weight, CONV_KINDS } conv_kind;
/* Can the device compute it? g: the geometry, with `last` set where channels of all three tensors lie side by side; NULL: sizes are
 * not known yet. A yes without sizes may turn out to be a no when the step runs: then the host computes it. */
typedef bool conv_offer(conv_kind k, dtype dt, const conv_geom *g, tp_device d);
void conv_on_device(dev_kind k, conv_offer *offer); /* before the first tensor of that kind */
bool conv_offered(conv_kind k, dtype dt, const conv_geom *g, tp_device d);
/* The geometry of a call of such a row; arg: all its arguments, of which the first two are tensors; res: its result.
 * Also which of the three is which: t[0] the image, t[1] the weight, t[2] with a place for each window. */
conv_geom conv_geom_row(conv_kind k, tp_tensor *res, const tp_val *arg, tp_tensor *t[3]);
/* One image: columns [l0, l1) of the patch matrix (channels * kernel rows, ld columns apart), and back (added). */
void conv_im2col(dtype dt, const conv_geom *g, int64_t channels, const void *x, void *col, int64_t ld,
                 int64_t l0, int64_t l1);
void conv_col2im(dtype dt, const conv_geom *g, int64_t channels, const void *col, int64_t ld, void *x);
#endif
