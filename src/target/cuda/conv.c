/* conv.c - see conv.h. cuDNN's functions with descriptors: a shape is described once, its algorithm is chosen by cuDNN's own
 * estimate and kept. Prototypes and numbers are those of cudnn_graph.h, cudnn_ops.h and cudnn_cnn.h of version 9, which are the same
 * in version 8. */
#define _GNU_SOURCE
#include "target/cuda/conv.h"
#include "base/map.h"
#include "events/events.h"
#include "target/cuda/driver.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

enum { DATA_FLOAT = 0, DATA_HALF = 2, DATA_BFLOAT16 = 9 };
enum { FORMAT_NCHW = 0, FORMAT_NHWC = 1, CROSS_CORRELATION = 1 };
enum { MATH_tensor = 1, MATH_fma = 3 }; /* the latter: floats are not rounded to TF32 */
enum { DETERMINISTIC = 1, MOST_ALGOS = 16, MOST_DIMS = 5 };
enum {
    ALIGN = 16,
    PIECE = 512
}; /* of addresses that kernels with tensor cores take; of pieces of the scratch */
enum { EXECUTION_FAILED = 5000, EXECUTION_FAILED_8 = 8 }; /* and above it; of version 8 */
static const int64_t most_scratch = 1 << 30; /* bytes; images that cuDNN turns around are in it */

typedef struct algo_perf { /* cudnnConvolutionFwdAlgoPerf_t; the other two are the same */
    int algo, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
} algo_perf;

#define DNN(X)                                                                                        \
    X(create, cudnnCreate, (void **))                                                                 \
    X(set_stream, cudnnSetStream, (void *, cuda_queue))                                               \
    X(tensor_new, cudnnCreateTensorDescriptor, (void **))                                             \
    X(tensor_set, cudnnSetTensorNdDescriptor, (void *, int, int, const int *, const int *))           \
    X(tensor_free, cudnnDestroyTensorDescriptor, (void *))                                            \
    X(filter_new, cudnnCreateFilterDescriptor, (void **))                                             \
    X(filter_set, cudnnSetFilterNdDescriptor, (void *, int, int, int, const int *))                   \
    X(filter_free, cudnnDestroyFilterDescriptor, (void *))                                            \
    X(conv_new, cudnnCreateConvolutionDescriptor, (void **))                                          \
    X(conv_set, cudnnSetConvolutionNdDescriptor,                                                      \
      (void *, int, const int *, const int *, const int *, int, int))                                 \
    X(conv_math, cudnnSetConvolutionMathType, (void *, int))                                          \
    X(conv_groups, cudnnSetConvolutionGroupCount, (void *, int))                                      \
    X(conv_free, cudnnDestroyConvolutionDescriptor, (void *))                                         \
    X(forward_algo, cudnnGetConvolutionForwardAlgorithm_v7,                                           \
      (void *, void *, void *, void *, void *, int, int *, algo_perf *))                              \
    X(input_algo, cudnnGetConvolutionBackwardDataAlgorithm_v7,                                        \
      (void *, void *, void *, void *, void *, int, int *, algo_perf *))                              \
    X(weight_algo, cudnnGetConvolutionBackwardFilterAlgorithm_v7,                                     \
      (void *, void *, void *, void *, void *, int, int *, algo_perf *))                              \
    X(forward_bytes, cudnnGetConvolutionForwardWorkspaceSize,                                         \
      (void *, void *, void *, void *, void *, int, size_t *))                                        \
    X(input_bytes, cudnnGetConvolutionBackwardDataWorkspaceSize,                                      \
      (void *, void *, void *, void *, void *, int, size_t *))                                        \
    X(weight_bytes, cudnnGetConvolutionBackwardFilterWorkspaceSize,                                   \
      (void *, void *, void *, void *, void *, int, size_t *))                                        \
    X(forward, cudnnConvolutionForward,                                                               \
      (void *, const void *, void *, const void *, void *, const void *, void *, int, void *, size_t, \
       const void *, void *, void *))                                                                 \
    X(grad_input, cudnnConvolutionBackwardData,                                                       \
      (void *, const void *, void *, const void *, void *, const void *, void *, int, void *, size_t, \
       const void *, void *, void *))                                                                 \
    X(grad_weight, cudnnConvolutionBackwardFilter,                                                    \
      (void *, const void *, void *, const void *, void *, const void *, void *, int, void *, size_t, \
       const void *, void *, void *))
static struct {
#define X(name, sym, args) int(*name) args;
    DNN(X)
#undef X
    size_t (*version)(void);
    const char *(*text)(int);
    bool tried, found;
    pthread_mutex_t lock;
    char *folders;
    void *handle[CUDA_MAX_DEVICES];
    cuda_queue queue[CUDA_MAX_DEVICES]; /* of the handle, where queue_set */
    bool queue_set[CUDA_MAX_DEVICES];
    bool broken[CUDA_MAX_DEVICES]; /* no handle could be made */
    int64_t calls;
    map known; /* shape -> plan */
} dnn = { .lock = PTHREAD_MUTEX_INITIALIZER };

typedef struct choice {
    int algo, math;
    size_t bytes;
} choice;
typedef struct dnn_plan { /* of one shape; never freed */
    void *x, *w, *y, *conv;
    choice how[MOST_ALGOS]; /* the fastest first */
    int n, at;              /* how many; the one in use */
} dnn_plan;

/* --- the library -------------------------------------------------------------------------------------------------- */
void cuda_packages(const char *folders)
{
    pthread_mutex_lock(&dnn.lock);
    free(dnn.folders);
    dnn.folders = strdup(folders);
    pthread_mutex_unlock(&dnn.lock);
}

static void *open_in_packages(const char *name)
{
    void *h = NULL;
    for (const char *at = dnn.folders; at && *at && !h;) {
        size_t n = strcspn(at, ":");
        strbuf path = { 0 };
        strbuf_addf(&path, "%.*s/nvidia/cudnn/lib/%s", (int)n, at, name);
        h = n ? dlopen(strbuf_str(&path), RTLD_NOW | RTLD_LOCAL) : NULL;
        strbuf_free(&path);
        at += n + (at[n] == ':');
    }
    return h;
}

static void *open_library(void)
{
    static const char *const names[] = { "libcudnn.so.9", "libcudnn.so.8" };
    const char *own = getenv("TAPER_CUDNN_LIBRARY"), *driver = getenv("TAPER_CUDA_LIBRARY");
    void *h = NULL;
    if (own && *own)
        return dlopen(own, RTLD_NOW | RTLD_LOCAL);
    if (driver && *driver) /* another driver's memory is not the library's */
        return NULL;
    for (size_t i = 0; i < COUNT(names) && !h; i++) /* loaded already by somebody, or on the loader's path */
        h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < COUNT(names) && !h; i++)
        h = open_in_packages(names[i]);
    return h;
}

static bool dnn_load(void) /* under the lock */
{
    const char *env = getenv("TAPER_CONVOLUTIONS");
    if (dnn.tried)
        return dnn.found;
    dnn.tried = true;
    if (env && !strcmp(env, "own"))
        return false;
    void *h = open_library();
    dnn.found = h != NULL;
#define X(name, sym, args)                           \
    *(void **)&dnn.name = h ? dlsym(h, #sym) : NULL; \
    dnn.found &= dnn.name != NULL;
    DNN(X)
#undef X
    *(void **)&dnn.version = h ? dlsym(h, "cudnnGetVersion") : NULL;
    *(void **)&dnn.text = h ? dlsym(h, "cudnnGetErrorString") : NULL;
    dnn.found &= dnn.version && dnn.text;
    if (ev_log_on(EVC_inductor, EV_INFO))
        ev_log(EVC_inductor, EV_INFO, NULL, "convolutions on CUDA: %s",
               dnn.found ? "by cuDNN" : "products of patches, cuDNN was not found");
    return dnn.found;
}

int64_t cuda_cudnn_version(void)
{
    pthread_mutex_lock(&dnn.lock);
    int64_t v = dnn_load() ? (int64_t)dnn.version() : 0;
    pthread_mutex_unlock(&dnn.lock);
    return v;
}

int64_t cuda_convolved(void)
{
    pthread_mutex_lock(&dnn.lock);
    int64_t n = dnn.calls;
    pthread_mutex_unlock(&dnn.lock);
    return n;
}

static void *handle_of(int device)
{
    if (!dnn.handle[device] && !dnn.broken[device]) {
        int r = dnn.create(&dnn.handle[device]);
        dnn.broken[device] = r != 0;
        if (r && ev_log_on(EVC_inductor, EV_INFO))
            ev_log(EVC_inductor, EV_INFO, NULL, "cuDNN cannot be used: %s", dnn.text(r));
    }
    return dnn.broken[device] ? NULL : dnn.handle[device];
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */
/* One spatial dimension is two with a leading one, as cuDNN has no other. */
static int spatial_dims(const conv_geom *g)
{
    return g->in[0] == 1 && g->out[0] == 1 && g->k[0] == 1 && !g->p[0] ? 2 : 3;
}

/* Sizes that cuDNN's 32-bit numbers hold, with as many windows as the image has: a transposed convolution may be asked for fewer. */
static bool fits(const conv_geom *g)
{
    double image = (double)g->n * (double)g->c, places = (double)g->n * (double)g->o, taps = 1;
    if (g->n < 1 || g->c < 1 || g->o < 1 || g->groups < 1 || g->c % g->groups || g->o % g->groups)
        return false;
    for (int i = 0; i < 3; i++) {
        int64_t reach = g->d[i] * (g->k[i] - 1) + 1, room = g->in[i] + 2 * g->p[i];
        if (g->in[i] < 1 || g->out[i] < 1 || g->k[i] < 1 || g->s[i] < 1 || g->d[i] < 1 || g->p[i] < 0 ||
            reach > room || (room - reach) / g->s[i] + 1 != g->out[i] || room > INT32_MAX ||
            g->s[i] > INT32_MAX)
            return false;
        image *= (double)g->in[i];
        places *= (double)g->out[i];
        taps *= (double)g->k[i];
    }
    double weights = (double)(g->c / g->groups) * (double)g->o * taps;
    return image < INT32_MAX && places < INT32_MAX && weights < INT32_MAX;
}

/* Batch, channels and sizes, and the strides of memory without gaps. */
static int dims_of(const conv_geom *g, int64_t n, int64_t c, const int64_t *size, int *dim, int *stride)
{
    int nd = spatial_dims(g), step = g->last ? (int)c : 1;
    dim[0] = (int)n, dim[1] = (int)c;
    for (int i = nd - 1; i >= 0; i--) {
        dim[2 + i] = (int)size[3 - nd + i];
        stride[2 + i] = step;
        step *= dim[2 + i];
    }
    stride[1] = g->last ? 1 : step;
    stride[0] = g->last ? step : step * (int)c;
    return nd + 2;
}

static bool describe(dnn_plan *x, dtype dt, const conv_geom *g)
{
    int type = dt == DT_f16 ? DATA_HALF : dt == DT_bf16 ? DATA_BFLOAT16 : DATA_FLOAT;
    int dim[MOST_DIMS], stride[MOST_DIMS], pad[3], step[3], gap[3], nd = spatial_dims(g), n;
    for (int i = 0; i < nd; i++) {
        pad[i] = (int)g->p[3 - nd + i];
        step[i] = (int)g->s[3 - nd + i];
        gap[i] = (int)g->d[3 - nd + i];
    }
    if (dnn.tensor_new(&x->x) || dnn.tensor_new(&x->y) || dnn.filter_new(&x->w) || dnn.conv_new(&x->conv))
        return false;
    n = dims_of(g, g->n, g->c, g->in, dim, stride);
    if (dnn.tensor_set(x->x, type, n, dim, stride))
        return false;
    n = dims_of(g, g->n, g->o, g->out, dim, stride);
    if (dnn.tensor_set(x->y, type, n, dim, stride))
        return false;
    n = dims_of(g, g->o, g->c / g->groups, g->k, dim, stride);
    return !dnn.filter_set(x->w, type, g->last ? FORMAT_NHWC : FORMAT_NCHW, n, dim) &&
           !dnn.conv_set(x->conv, nd, pad, step, gap, CROSS_CORRELATION, DATA_FLOAT) &&
           !dnn.conv_groups(x->conv, (int)g->groups) &&
           !dnn.conv_math(x->conv, dt == DT_f32 ? MATH_fma : MATH_tensor);
}

static bool algo_bytes(const dnn_plan *x, conv_kind k, void *h, int algo, size_t *bytes)
{
    *bytes = 0;
    int r = k == CONV_forward      ? dnn.forward_bytes(h, x->x, x->w, x->conv, x->y, algo, bytes)
            : k == CONV_grad_input ? dnn.input_bytes(h, x->w, x->y, x->conv, x->x, algo, bytes)
                                   : dnn.weight_bytes(h, x->x, x->y, x->conv, x->w, algo, bytes);
    return !r && *bytes <= (size_t)most_scratch;
}

/* Those that fit, as cuDNN expects them to be fast. Others than deterministic ones are never taken. */
static bool choose(dnn_plan *x, conv_kind k, dtype dt, void *h)
{
    algo_perf perf[MOST_ALGOS];
    int n = 0;
    memset(perf, 0, sizeof perf);
    int r = k == CONV_forward      ? dnn.forward_algo(h, x->x, x->w, x->conv, x->y, MOST_ALGOS, &n, perf)
            : k == CONV_grad_input ? dnn.input_algo(h, x->w, x->y, x->conv, x->x, MOST_ALGOS, &n, perf)
                                   : dnn.weight_algo(h, x->x, x->y, x->conv, x->w, MOST_ALGOS, &n, perf);
    for (int i = 0; !r && i < MIN(n, (int)MOST_ALGOS); i++) {
        if (perf[i].status || perf[i].determinism != DETERMINISTIC)
            continue;
        choice c = { perf[i].algo, dt == DT_f32 ? MATH_fma : perf[i].math, 0 }; /* it is meant with it */
        if (!dnn.conv_math(x->conv, c.math) && algo_bytes(x, k, h, c.algo, &c.bytes))
            x->how[x->n++] = c;
    }
    return x->n && !dnn.conv_math(x->conv, x->how[0].math);
}

static dnn_plan *plan_new(conv_kind k, dtype dt, const conv_geom *g, void *h)
{
    dnn_plan *x = mem_zalloc(sizeof *x);
    if (describe(x, dt, g) && choose(x, k, dt, h))
        return x;
    x->n = 0;
    if (x->x)
        dnn.tensor_free(x->x);
    if (x->y)
        dnn.tensor_free(x->y);
    if (x->w)
        dnn.filter_free(x->w);
    if (x->conv)
        dnn.conv_free(x->conv);
    return x;
}

/* Under the lock, with the device's context. NULL: not for cuDNN. */
static dnn_plan *plan_of(conv_kind k, dtype dt, const conv_geom *g, int device)
{
    int64_t key[24] = { device, k, dt, g->last != 0, g->n, g->c, g->o, g->groups };
    void *h;
    if ((dt != DT_f32 && dt != DT_f16 && dt != DT_bf16) || !fits(g) || !dnn_load() ||
        !(h = handle_of(device)))
        return NULL;
    for (int i = 0; i < 3; i++) {
        int64_t *at = key + 8 + 5 * i;
        at[0] = g->in[i], at[1] = g->k[i], at[2] = g->s[i], at[3] = g->p[i], at[4] = g->d[i];
    }
    dnn_plan *x = map_getn(&dnn.known, key, sizeof key);
    if (!x)
        map_putn(&dnn.known, key, sizeof key, x = plan_new(k, dt, g, h));
    return x->at < x->n ? x : NULL;
}

static int number_of(tp_device d) { return d.index >= 0 ? d.index : cuda_current_device(); }

/* --- what others see ---------------------------------------------------------------------------------------------- */
bool cuda_convolves(conv_kind k, dtype dt, const conv_geom *g, tp_device d)
{
    int device = number_of(d);
    if (!g)
        return (dt == DT_f32 || dt == DT_f16 || dt == DT_bf16) && cuda_cudnn_version() > 0;
    pthread_mutex_lock(&dnn.lock);
    bool yes = dnn_load() && cuda_use(device, NULL) && plan_of(k, dt, g, device);
    pthread_mutex_unlock(&dnn.lock);
    return yes;
}

/* The geometry with the layout that the memory has; false: it has none that cuDNN takes. */
static bool laid_out(const target_convolution *p, conv_geom *g)
{
    const tp_tensor *all[3] = { p->x, p->w, p->y };
    memfmt f = p->x->ndim == 5 ? MF_channels_last_3d : MF_channels_last;
    bool packed = true, last = p->x->ndim >= 4;
    for (int i = 0; i < 3; i++) {
        packed &= tensor_is_contiguous(all[i]);
        last = last && tensor_is_contiguous_as(all[i], f);
    }
    *g = p->g;
    g->last = !packed && last;
    return (packed || last) && p->w->dt == p->x->dt && p->y->dt == p->x->dt;
}

/* What is read where kernels cannot: it is copied first, to memory of so many bytes. */
static size_t bytes_aside(const tp_tensor *t)
{
    size_t n = (size_t)t->numel * dtype_size((dtype)t->dt);
    return (uintptr_t)tensor_data(t) % ALIGN ? (n + PIECE - 1) / PIECE * PIECE : 0;
}
/* Of the image, the weight and what has a place for each window: is it read? */
static bool is_read(const target_convolution *p, int i)
{
    static const int written[CONV_KINDS] = {
        [CONV_forward] = 2, [CONV_grad_input] = 0, [CONV_grad_weight] = 1
    };
    return i != written[p->kind];
}

int64_t cuda_convolve_bytes(const target_convolution *p)
{
    conv_geom g;
    int device = number_of(tensor_device(p->x));
    if (p->bias || !laid_out(p, &g))
        return -1;
    pthread_mutex_lock(&dnn.lock);
    const dnn_plan *x = dnn_load() && cuda_use(device, NULL)
                            ? plan_of((conv_kind)p->kind, (dtype)p->x->dt, &g, device)
                            : NULL;
    int64_t bytes = x ? (int64_t)x->how[x->at].bytes : -1;
    pthread_mutex_unlock(&dnn.lock);
    const tp_tensor *all[3] = { p->x, p->w, p->y };
    for (int i = 0; i < 3 && bytes >= 0; i++)
        bytes += is_read(p, i) ? (int64_t)bytes_aside(all[i]) : 0;
    return bytes;
}

typedef struct addresses {
    void *of[3]; /* the image, the weight, what has a place for each window */
    void *scratch;
} addresses;

static bool addresses_of(const target_convolution *p, int device, addresses *a, tp_err *err)
{
    const tp_tensor *all[3] = { p->x, p->w, p->y };
    char *free_at = p->scratch;
    for (int i = 0; i < 3; i++) {
        size_t aside = is_read(p, i) ? bytes_aside(all[i]) : 0,
               n = (size_t)all[i]->numel * dtype_size((dtype)all[i]->dt);
        a->of[i] = aside ? free_at : tensor_data(all[i]);
        if (aside && !cuda_copy_queued(device, free_at, tensor_data(all[i]), n, CUDA_ON_DEVICE,
                                       cuda_current_queue(device), err))
            return false;
        free_at += aside;
    }
    a->scratch = free_at;
    return true;
}

static int launch_once(const target_convolution *p, const addresses *a, const dnn_plan *x, int device)
{
    const choice *how = &x->how[x->at];
    static const float one = 1, zero = 0; /* floats: what is summed is f32 */
    void *h = dnn.handle[device], *xp = a->of[0], *wp = a->of[1], *yp = a->of[2];
    cuda_queue q = cuda_current_queue(device);
    int r = dnn.queue_set[device] && dnn.queue[device] == q ? 0 : dnn.set_stream(h, q);
    dnn.queue_set[device] = !r;
    dnn.queue[device] = q;
    if (r)
        return r;
    switch ((conv_kind)p->kind) {
    case CONV_forward:
        return dnn.forward(h, &one, x->x, xp, x->w, wp, x->conv, how->algo, a->scratch, how->bytes, &zero,
                           x->y, yp);
    case CONV_grad_input:
        return dnn.grad_input(h, &one, x->w, wp, x->y, yp, x->conv, how->algo, a->scratch, how->bytes, &zero,
                              x->x, xp);
    default:
        return dnn.grad_weight(h, &one, x->x, xp, x->y, yp, x->conv, how->algo, a->scratch, how->bytes, &zero,
                               x->w, wp);
    }
}

static bool has_run(int status)
{
    return !status || status >= EXECUTION_FAILED || status == EXECUTION_FAILED_8;
}

/* An algorithm that turns out not to be supported gives way to the next one that the memory is enough for. */
static int convolve(const target_convolution *p, const addresses *a, dnn_plan *x, int device)
{
    size_t room = x->how[x->at].bytes;
    int r = launch_once(p, a, x, device);
    while (!has_run(r)) {
        if (ev_log_on(EVC_inductor, EV_INFO))
            ev_log(EVC_inductor, EV_INFO, NULL, "cuDNN does not support its algorithm %d after all: %s",
                   x->how[x->at].algo, dnn.text(r));
        while (++x->at < x->n && (x->how[x->at].bytes > room || dnn.conv_math(x->conv, x->how[x->at].math)))
            ;
        if (x->at >= x->n)
            return r;
        r = launch_once(p, a, x, device);
    }
    return r;
}

target_result cuda_convolve(const target_convolution *p, tp_err *err)
{
    conv_geom g;
    int device = number_of(tensor_device(p->x)), r = 0;
    addresses a;
    if (p->bias || !laid_out(p, &g))
        return TARGET_declined;
    if (!addresses_of(p, device, &a, err))
        return TARGET_failed;
    pthread_mutex_lock(&dnn.lock);
    dnn_plan *x = dnn_load() && cuda_use(device, NULL)
                      ? plan_of((conv_kind)p->kind, (dtype)p->x->dt, &g, device)
                      : NULL;
    if (x) {
        r = convolve(p, &a, x, device);
        dnn.calls += r == 0;
    }
    pthread_mutex_unlock(&dnn.lock);
    if (!has_run(r))
        return TARGET_declined;
    if (r)
        err_set(err, ERR_runtime, "cuDNN failed with status %d (%s)", r, dnn.text(r));
    else if (x && p->then.code && !p->then.code->on->launch(p->then.code, &p->then.args, err))
        r = 1;
    return !x ? TARGET_declined : r ? TARGET_failed : TARGET_done;
}
