/* fake_cudnn.c - a library with the functions of libcudnn.so.9 that Taper calls: plain loops over the memory of fake_cuda.c, in the
 * order of its queues. What cuDNN would refuse is refused: descriptors that are not set, sizes that do not fit together, layouts that
 * are mixed, a workspace that is too small, memory that is not the device's.
 * FAKE_CUDNN_REFUSES: no algorithm is found for 'forward', 'input', 'weight' or 'all'. FAKE_CUDNN_FAILS: calls fail.
 * FAKE_CUDNN_UNSUPPORTED: so many of the algorithms that were promised are refused when they are called. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
extern int fake_cuda_call(void *q, void (*call)(void *data), void *data);
extern bool fake_cuda_holds(const void *p, size_t n);

enum {
    SUCCESS = 0,
    BAD_PARAM = 2000,
    BAD_NULL = 2002,
    MISALIGNED = 2003,
    NOT_SUPPORTED = 3000,
    TOO_SMALL = 2006,
    EXECUTION_FAILED = 5000
};
enum { FLOAT = 0, HALF = 2, BFLOAT16 = 9 };
enum { KIND_handle = 0x68, KIND_tensor, KIND_filter, KIND_conv };
typedef struct desc {
    int kind;
    bool set, math_set;
    void *queue;                                        /* of a handle */
    int type, n, dim[5], stride[5], nhwc;               /* of tensors and filters */
    int pad[3], step[3], gap[3], compute, groups, math; /* of convolutions */
} desc;
typedef struct perf {
    int algo, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
} perf;
_Static_assert(sizeof(perf) == 48, "as in cudnn_cnn.h");

static int make(void **out, int kind)
{
    if (!out)
        return BAD_NULL;
    desc *d = calloc(1, sizeof *d);
    d->kind = kind;
    return *out = d, SUCCESS;
}
static bool is(const void *d, int kind, bool set)
{
    const desc *x = d;
    return x && x->kind == kind && (!set || x->set);
}
static int drop(void *d, int kind)
{
    if (!is(d, kind, false))
        return BAD_PARAM;
    return free(d), SUCCESS;
}

API size_t cudnnGetVersion(void) { return 91400; }
API const char *cudnnGetErrorString(int r)
{
    return r == EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED" : "another";
}
API int cudnnCreate(void **h) { return make(h, KIND_handle); }
API int cudnnSetStream(void *h, void *q)
{
    if (!is(h, KIND_handle, false))
        return BAD_PARAM;
    return ((desc *)h)->queue = q, SUCCESS;
}
API int cudnnCreateTensorDescriptor(void **d) { return make(d, KIND_tensor); }
API int cudnnDestroyTensorDescriptor(void *d) { return drop(d, KIND_tensor); }
API int cudnnCreateFilterDescriptor(void **d) { return make(d, KIND_filter); }
API int cudnnDestroyFilterDescriptor(void *d) { return drop(d, KIND_filter); }
API int cudnnCreateConvolutionDescriptor(void **d) { return make(d, KIND_conv); }
API int cudnnDestroyConvolutionDescriptor(void *d) { return drop(d, KIND_conv); }

/* Strides of memory without gaps: channels last, or first. */
static void packed(int n, const int *dim, bool nhwc, int *stride)
{
    int step = nhwc ? dim[1] : 1;
    for (int i = n - 1; i >= 2; i--)
        stride[i] = step, step *= dim[i];
    stride[1] = nhwc ? 1 : step;
    stride[0] = nhwc ? step : step * dim[1];
}
static bool plausible(int type, int n, const int *dim)
{
    bool ok = (type == FLOAT || type == HALF || type == BFLOAT16) && (n == 4 || n == 5);
    for (int i = 0; ok && i < n; i++)
        ok = dim[i] > 0;
    return ok;
}
API int cudnnSetTensorNdDescriptor(void *d, int type, int n, const int *dim, const int *stride)
{
    desc *x = d;
    int want[5];
    if (!is(d, KIND_tensor, false) || !plausible(type, n, dim))
        return BAD_PARAM;
    x->nhwc = -1;
    for (int f = 0; f < 2 && x->nhwc < 0; f++) {
        packed(n, dim, f, want);
        if (!memcmp(want, stride, sizeof *want * (size_t)n))
            x->nhwc = f;
    }
    if (x->nhwc < 0)
        return NOT_SUPPORTED;
    x->type = type, x->n = n, x->set = true;
    memcpy(x->dim, dim, sizeof *dim * (size_t)n);
    memcpy(x->stride, stride, sizeof *stride * (size_t)n);
    return SUCCESS;
}
API int cudnnSetFilterNdDescriptor(void *d, int type, int format, int n, const int *dim)
{
    desc *x = d;
    if (!is(d, KIND_filter, false) || !plausible(type, n, dim) || (format != 0 && format != 1))
        return BAD_PARAM;
    x->type = type, x->n = n, x->nhwc = format, x->set = true;
    memcpy(x->dim, dim, sizeof *dim * (size_t)n);
    packed(n, dim, format, x->stride);
    return SUCCESS;
}
API int cudnnSetConvolutionNdDescriptor(void *d, int n, const int *pad, const int *step, const int *gap,
                                        int mode, int compute)
{
    desc *x = d;
    if (!is(d, KIND_conv, false) || (n != 2 && n != 3) || mode != 1 || compute != FLOAT)
        return BAD_PARAM;
    for (int i = 0; i < n; i++) {
        if (pad[i] < 0 || step[i] < 1 || gap[i] < 1)
            return BAD_PARAM;
        x->pad[i] = pad[i], x->step[i] = step[i], x->gap[i] = gap[i];
    }
    return x->n = n, x->groups = 1, x->set = true, SUCCESS;
}
API int cudnnSetConvolutionMathType(void *d, int math)
{
    if (!is(d, KIND_conv, true) || math < 0 || math > 3)
        return BAD_PARAM;
    return ((desc *)d)->math = math, ((desc *)d)->math_set = true, SUCCESS;
}
API int cudnnSetConvolutionGroupCount(void *d, int n)
{
    if (!is(d, KIND_conv, true) || n < 1)
        return BAD_PARAM;
    return ((desc *)d)->groups = n, SUCCESS;
}

/* Do the four descriptors belong together? */
static int check(const desc *h, const desc *x, const desc *w, const desc *c, const desc *y)
{
    if (!is(h, KIND_handle, false) || !is(x, KIND_tensor, true) || !is(y, KIND_tensor, true) ||
        !is(w, KIND_filter, true) || !is(c, KIND_conv, true) || !c->math_set)
        return BAD_PARAM;
    if (x->type != w->type || x->type != y->type || x->n != w->n || x->n != y->n || x->n != c->n + 2)
        return BAD_PARAM;
    if (x->type == FLOAT && c->math != 3) /* would be TF32 */
        return NOT_SUPPORTED;
    int want[3][5];
    const desc *all[3] = { x, w, y };
    for (int i = 0; i < 3; i++) { /* one layout: that of the filter */
        packed(all[i]->n, all[i]->dim, w->nhwc, want[i]);
        if (memcmp(want[i], all[i]->stride, sizeof *want[i] * (size_t)x->n))
            return NOT_SUPPORTED;
    }
    if (x->dim[0] != y->dim[0] || x->dim[1] != w->dim[1] * c->groups || y->dim[1] != w->dim[0] ||
        w->dim[0] % c->groups)
        return BAD_PARAM;
    for (int i = 0; i < c->n; i++)
        if (y->dim[2 + i] !=
            (x->dim[2 + i] + 2 * c->pad[i] - c->gap[i] * (w->dim[2 + i] - 1) - 1) / c->step[i] + 1)
            return BAD_PARAM;
    return SUCCESS;
}

/* --- algorithms: a fast one that is not deterministic, one that does not work, one that is too large, and the good one ---------- */
enum { GOOD = 1, LARGE = 6, SECOND = 7, WORKSPACE = 1000 };
static int algorithms(const char *kind, const desc *h, const desc *x, const desc *w, const desc *c,
                      const desc *y, int most, int *n, perf *p)
{
    const char *no = getenv("FAKE_CUDNN_REFUSES");
    int r = check(h, x, w, c, y), math = x && x->type == FLOAT ? 3 : 1;
    if (r)
        return r;
    if (most < 6 || !n || !p)
        return BAD_PARAM;
    if (no && (!strcmp(no, kind) || !strcmp(no, "all")))
        return *n = 0, SUCCESS;
    p[0] = (perf){ .algo = 0, .time = 1, .memory = 0, .determinism = 0, .math = math };
    p[1] = (perf){ .algo = 5, .status = NOT_SUPPORTED, .time = -1, .determinism = 1, .math = math };
    p[2] = (perf){ .algo = 2, .time = 2, .memory = (size_t)8 << 30, .determinism = 1, .math = math };
    p[3] = (perf){ .algo = GOOD, .time = 3, .memory = WORKSPACE, .determinism = 1, .math = math };
    p[4] = (perf){ .algo = LARGE, .time = 4, .memory = 2 * WORKSPACE, .determinism = 1, .math = math };
    p[5] = (perf){ .algo = SECOND, .time = 5, .memory = WORKSPACE, .determinism = 1, .math = math };
    return *n = 6, SUCCESS;
}
static int workspace(const desc *h, const desc *x, const desc *w, const desc *c, const desc *y, int algo,
                     size_t *out)
{
    int r = check(h, x, w, c, y);
    if (r)
        return r;
    if (!out || (algo != GOOD && algo != LARGE && algo != SECOND && algo != 2))
        return BAD_PARAM;
    return *out = algo == 2 ? (size_t)8 << 30 : algo == LARGE ? 2 * WORKSPACE : WORKSPACE, SUCCESS;
}
API int cudnnGetConvolutionForwardAlgorithm_v7(void *h, void *x, void *w, void *c, void *y, int most, int *n,
                                               perf *p)
{
    return algorithms("forward", h, x, w, c, y, most, n, p);
}
API int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *h, void *w, void *y, void *c, void *x, int most,
                                                    int *n, perf *p)
{
    return algorithms("input", h, x, w, c, y, most, n, p);
}
API int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *h, void *x, void *y, void *c, void *w, int most,
                                                      int *n, perf *p)
{
    return algorithms("weight", h, x, w, c, y, most, n, p);
}
API int cudnnGetConvolutionForwardWorkspaceSize(void *h, void *x, void *w, void *c, void *y, int algo,
                                                size_t *out)
{
    return workspace(h, x, w, c, y, algo, out);
}
API int cudnnGetConvolutionBackwardDataWorkspaceSize(void *h, void *w, void *y, void *c, void *x, int algo,
                                                     size_t *out)
{
    return workspace(h, x, w, c, y, algo, out);
}
API int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *h, void *x, void *y, void *c, void *w, int algo,
                                                       size_t *out)
{
    return workspace(h, x, w, c, y, algo, out);
}

/* --- the convolutions ---------------------------------------------------------------------------------------------------------- */
static float from_half(uint16_t h)
{
    _Float16 f;
    return memcpy(&f, &h, 2), (float)f;
}
static float get(const desc *d, const void *p, int64_t i)
{
    if (d->type == FLOAT)
        return ((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    if (d->type == HALF)
        return from_half(h);
    uint32_t u = (uint32_t)h << 16;
    float f;
    return memcpy(&f, &u, 4), f;
}
static void put(const desc *d, void *p, int64_t i, float v)
{
    if (d->type == FLOAT) {
        ((float *)p)[i] = v;
    } else if (d->type == HALF) {
        _Float16 f = (_Float16)v;
        memcpy((uint16_t *)p + i, &f, 2);
    } else {
        uint32_t u;
        memcpy(&u, &v, 4);
        ((uint16_t *)p)[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
}
static int64_t count(const desc *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->n; i++)
        n *= d->dim[i];
    return n;
}
static size_t size_of(const desc *d) { return (size_t)count(d) * (d->type == FLOAT ? 4 : 2); }

typedef struct job { /* kept: a recording may run it again */
    desc x, w, c, y;
    void *xp, *wp, *yp, *room;
    int kind; /* 0: y is written, 1: x, 2: w */
} job;

/* Places of y and taps of w, each with the element of x that they meet. */
static void run(void *data)
{
    const job *j = data;
    const desc *x = &j->x, *w = &j->w, *y = &j->y, *to = j->kind == 0 ? y : j->kind == 1 ? x : w;
    double *sum = calloc((size_t)count(to), sizeof *sum);
    int64_t ny = count(y), nw = count(w), per = y->dim[1] / j->c.groups;
    memset(j->room, 0xa5, WORKSPACE);
    for (int64_t a = 0; a < ny; a++) {
        int ay[5], aw[5];
        int64_t left = a, oy = 0;
        for (int i = y->n - 1; i >= 0; i--)
            ay[i] = (int)(left % y->dim[i]), left /= y->dim[i], oy += (int64_t)ay[i] * y->stride[i];
        for (int64_t b = 0; b < nw / w->dim[0]; b++) {
            int64_t ow = (int64_t)ay[1] * w->stride[0], ox = (int64_t)ay[0] * x->stride[0];
            bool in = true;
            left = b;
            for (int i = w->n - 1; i >= 1; i--)
                aw[i] = (int)(left % w->dim[i]), left /= w->dim[i], ow += (int64_t)aw[i] * w->stride[i];
            ox += (ay[1] / per * w->dim[1] + aw[1]) * (int64_t)x->stride[1];
            for (int i = 0; i < j->c.n; i++) {
                int at = ay[2 + i] * j->c.step[i] - j->c.pad[i] + aw[2 + i] * j->c.gap[i];
                in &= at >= 0 && at < x->dim[2 + i];
                ox += (int64_t)at * x->stride[2 + i];
            }
            if (!in)
                continue;
            if (j->kind == 0)
                sum[oy] += (double)get(x, j->xp, ox) * get(w, j->wp, ow);
            else if (j->kind == 1)
                sum[ox] += (double)get(y, j->yp, oy) * get(w, j->wp, ow);
            else
                sum[ow] += (double)get(x, j->xp, ox) * get(y, j->yp, oy);
        }
    }
    for (int64_t i = 0; i < count(to); i++)
        put(to, j->kind == 0 ? j->yp : j->kind == 1 ? j->xp : j->wp, i, (float)sum[i]);
    free(sum);
}

static int convolve(int kind, const desc *h, const float *alpha, const float *beta, const desc *x,
                    const void *xp, const desc *w, const void *wp, const desc *c, const desc *y,
                    const void *yp, int algo, void *room, size_t nroom)
{
    int r = check(h, x, w, c, y);
    if (r)
        return r;
    if (!alpha || !beta || *alpha != 1 || *beta != 0 || (algo != GOOD && algo != LARGE && algo != SECOND))
        return BAD_PARAM;
    if (nroom < (algo == LARGE ? 2 * WORKSPACE : WORKSPACE))
        return TOO_SMALL;
    if (!fake_cuda_holds(room, nroom) || !fake_cuda_holds(xp, size_of(x)) ||
        !fake_cuda_holds(wp, size_of(w)) || !fake_cuda_holds(yp, size_of(y)))
        return BAD_NULL;
    if (((uintptr_t)xp | (uintptr_t)wp | (uintptr_t)yp | (uintptr_t)room) & 15)
        return MISALIGNED;
    const char *no = getenv("FAKE_CUDNN_UNSUPPORTED");
    if (no && (algo == GOOD || atoi(no) > 1))
        return NOT_SUPPORTED;
    if (getenv("FAKE_CUDNN_FAILS"))
        return EXECUTION_FAILED;
    job *j = malloc(sizeof *j);
    *j = (job){ *x, *w, *c, *y, (void *)xp, (void *)wp, (void *)yp, room, kind };
    return fake_cuda_call(h->queue, run, j) ? EXECUTION_FAILED : SUCCESS;
}
API int cudnnConvolutionForward(void *h, const void *alpha, void *x, const void *xp, void *w, const void *wp,
                                void *c, int algo, void *room, size_t nroom, const void *beta, void *y,
                                void *yp)
{
    return convolve(0, h, alpha, beta, x, xp, w, wp, c, y, yp, algo, room, nroom);
}
API int cudnnConvolutionBackwardData(void *h, const void *alpha, void *w, const void *wp, void *y,
                                     const void *yp, void *c, int algo, void *room, size_t nroom,
                                     const void *beta, void *x, void *xp)
{
    return convolve(1, h, alpha, beta, x, xp, w, wp, c, y, yp, algo, room, nroom);
}
API int cudnnConvolutionBackwardFilter(void *h, const void *alpha, void *x, const void *xp, void *y,
                                       const void *yp, void *c, int algo, void *room, size_t nroom,
                                       const void *beta, void *w, void *wp)
{
    return convolve(2, h, alpha, beta, x, xp, w, wp, c, y, yp, algo, room, nroom);
}
