/* driver.c - the table of driver functions, and what is built on them. */
#define _GNU_SOURCE
#include "target/cuda/driver.h"
#include "base/map.h"
#include "base/pool.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

typedef int res; /* CUresult */
typedef void *ctx_t;
typedef uint64_t dptr;
/* name in the table, symbol, parameters */
#define DRIVER(X)                                                                                       \
    X(init, cuInit, (unsigned))                                                                         \
    X(driver_version, cuDriverGetVersion, (int *))                                                      \
    X(error_name, cuGetErrorName, (res, const char **))                                                 \
    X(error_string, cuGetErrorString, (res, const char **))                                             \
    X(device_count, cuDeviceGetCount, (int *))                                                          \
    X(device_get, cuDeviceGet, (int *, int))                                                            \
    X(device_name, cuDeviceGetName, (char *, int, int))                                                 \
    X(device_memory, cuDeviceTotalMem_v2, (size_t *, int))                                              \
    X(device_attribute, cuDeviceGetAttribute, (int *, int, int))                                        \
    X(context_retain, cuDevicePrimaryCtxRetain, (ctx_t *, int))                                         \
    X(context_set, cuCtxSetCurrent, (ctx_t))                                                            \
    X(context_sync, cuCtxSynchronize, (void))                                                           \
    X(mem_alloc, cuMemAlloc_v2, (dptr *, size_t))                                                       \
    X(mem_free, cuMemFree_v2, (dptr))                                                                   \
    X(mem_info, cuMemGetInfo_v2, (size_t *, size_t *))                                                  \
    X(host_alloc, cuMemHostAlloc, (void **, size_t, unsigned))                                          \
    X(host_free, cuMemFreeHost, (void *))                                                               \
    X(copy_in, cuMemcpyHtoDAsync_v2, (dptr, const void *, size_t, cuda_queue))                          \
    X(copy_out, cuMemcpyDtoHAsync_v2, (void *, dptr, size_t, cuda_queue))                               \
    X(copy_on, cuMemcpyDtoDAsync_v2, (dptr, dptr, size_t, cuda_queue))                                  \
    X(fill, cuMemsetD8Async, (dptr, unsigned char, size_t, cuda_queue))                                 \
    X(queue_new, cuStreamCreate, (cuda_queue *, unsigned))                                              \
    X(queue_free, cuStreamDestroy_v2, (cuda_queue))                                                     \
    X(queue_sync, cuStreamSynchronize, (cuda_queue))                                                    \
    X(queue_wait, cuStreamWaitEvent, (cuda_queue, cuda_event, unsigned))                                \
    X(event_new, cuEventCreate, (cuda_event *, unsigned))                                               \
    X(event_free, cuEventDestroy_v2, (cuda_event))                                                      \
    X(event_record, cuEventRecord, (cuda_event, cuda_queue))                                            \
    X(event_wait, cuEventSynchronize, (cuda_event))                                                     \
    X(event_ms, cuEventElapsedTime, (float *, cuda_event, cuda_event))                                  \
    X(event_query, cuEventQuery, (cuda_event))                                                          \
    X(queue_query, cuStreamQuery, (cuda_queue))                                                         \
    X(record_begin, cuStreamBeginCapture_v2, (cuda_queue, int))                                         \
    X(record_end, cuStreamEndCapture, (cuda_queue, void **))                                            \
    X(graph_ready, cuGraphInstantiateWithFlags, (cuda_graph *, void *, unsigned long long))             \
    X(graph_free, cuGraphDestroy, (void *))                                                             \
    X(graph_launch, cuGraphLaunch, (cuda_graph, cuda_queue))                                            \
    X(graph_ready_free, cuGraphExecDestroy, (cuda_graph))                                               \
    X(module_load, cuModuleLoadData, (cuda_module *, const void *))                                     \
    X(module_unload, cuModuleUnload, (cuda_module))                                                     \
    X(module_function, cuModuleGetFunction, (cuda_function *, cuda_module, const char *))               \
    X(link_new, cuLinkCreate_v2, (unsigned, const int *, void **, void **))                             \
    X(link_add, cuLinkAddData_v2,                                                                       \
      (void *, int, const void *, size_t, const char *, unsigned, int *, void **))                      \
    X(link_done, cuLinkComplete, (void *, void **, size_t *))                                           \
    X(link_free, cuLinkDestroy, (void *))                                                               \
    X(launch, cuLaunchKernel,                                                                           \
      (cuda_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cuda_queue, \
       void **, void **))

enum {
    RES_out_of_memory = 2,
    RES_no_device = 100,
    RES_not_ready = 600,
    RECORD_relaxed = 2,
    HOST_portable_mapped = 3,
    JIT_error_log = 5,
    JIT_error_log_size = 6,
    JIT_level = 7,
    INPUT_ptx = 1,
    QUEUE_non_blocking = 1,
    EVENT_no_timing = 2
};
enum {
    ATTR_warp = 10,
    ATTR_clock = 13,
    ATTR_multiprocessors = 16,
    ATTR_l2 = 38,
    ATTR_threads = 39,
    ATTR_major = 75,
    ATTR_minor = 76,
    ATTR_shared = 97,
    ATTR_pci_bus = 33,
    ATTR_pci_device = 34,
    ATTR_pci_domain = 50
};

typedef struct pinned_block {
    const char *p;
    size_t n;
    cuda_event done; /* of the last copy that nobody waited for; NULL: there was none */
    struct pinned_block *next;
} pinned_block;
typedef struct device {
    ctx_t ctx;
    int handle;
    cuda_props props;
    cuda_pool *pool;
    bool open;
} device;

static struct {
    pthread_mutex_t lock;
    const char *path;
    atomic_int state; /* 0: not tried, 1: works, 2: failed */
    tp_err why;
    pid_t pid; /* of the process that initialised the driver */
    int count, version;
    device dev[CUDA_MAX_DEVICES];
    map pinned; /* host address -> pinned_block */
    pinned_block *freed;
#define X(name, sym, params) res(*name) params;
    DRIVER(X)
#undef X
} cu = { .lock = PTHREAD_MUTEX_INITIALIZER };
static _Thread_local int current;
static _Thread_local cuda_queue queues[CUDA_MAX_DEVICES];

void cuda_use_library(const char *path) { cu.path = path; }

/* --- errors --------------------------------------------------------------------------------------- */
static bool failed(res r, const char *call, tp_err *err)
{
    const char *name = "unknown error", *text = "";
    cu.error_name(r, &name);
    cu.error_string(r, &text);
    return err_set(err, ERR_runtime, "CUDA error: %s (%s, %d) in %s", text ? text : "",
                   name ? name : "unknown error", r, call);
}
#define CALL(name, args, err) ((last = cu.name args) == 0 || failed(last, call_names[N_##name], err))
enum {
#define X(name, sym, params) N_##name,
    DRIVER(X)
#undef X
};
static const char *const call_names[] = {
#define X(name, sym, params) #sym,
    DRIVER(X)
#undef X
};

/* --- loading -------------------------------------------------------------------------------------- */
static bool load_library(tp_err *err)
{
    const char *named = getenv("TAPER_CUDA_LIBRARY"), *missing = NULL,
               *path = cu.path           ? cu.path
                       : named && *named ? named
                                         : "libcuda.so.1";
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!h)
        return err_set(
            err, ERR_runtime,
            "CUDA is not available: no NVIDIA driver was found on this machine (%s). Use device='cpu'.",
            dlerror());
#define X(name, sym, params)             \
    *(void **)&cu.name = dlsym(h, #sym); \
    if (!cu.name && !missing)            \
        missing = #sym;
    DRIVER(X)
#undef X
    if (cu.driver_version)
        cu.driver_version(&cu.version);
    if (missing || cu.version < CUDA_LEAST_DRIVER)
        return err_set(err, ERR_runtime,
                       "CUDA is not available: the NVIDIA driver is too old. It supports CUDA %d.%d, Taper "
                       "needs %d.%d or newer%s%s. "
                       "Update the driver, or use device='cpu'.",
                       cu.version / 1000, cu.version % 1000 / 10, CUDA_LEAST_DRIVER / 1000,
                       CUDA_LEAST_DRIVER % 1000 / 10, missing ? "; it has no " : "", missing ? missing : "");
    return true;
}

static bool start(tp_err *err)
{
    res last;
    if (!load_library(err))
        return false;
    last = cu.init(0);
    if (last == RES_no_device)
        return err_set(err, ERR_runtime,
                       "CUDA is not available: the driver finds no NVIDIA GPU%s. Use device='cpu'.",
                       getenv("CUDA_VISIBLE_DEVICES") ? " (CUDA_VISIBLE_DEVICES is set)" : "");
    if (last)
        return failed(last, "cuInit", err);
    if (!CALL(device_count, (&cu.count), err))
        return false;
    cu.count = MIN(cu.count, CUDA_MAX_DEVICES);
    return cu.count > 0 ||
           err_set(err, ERR_runtime,
                   "CUDA is not available: the driver finds no NVIDIA GPU. Use device='cpu'.");
}

bool cuda_init(tp_err *err)
{
    if (!atomic_load(&cu.state)) {
        pthread_mutex_lock(&cu.lock);
        if (!atomic_load(&cu.state)) {
            bool ok = start(&cu.why);
            cu.pid = getpid();
            atomic_store(&cu.state, ok ? 1 : 2);
        }
        pthread_mutex_unlock(&cu.lock);
    }
    if (atomic_load(&cu.state) == 2) {
        if (err && !err_is_set(err))
            *err = cu.why;
        return false;
    }
    if (cu.pid != getpid())
        return err_set(err, ERR_runtime,
                       "CUDA cannot be used in a forked process: the parent had initialised it. Start "
                       "workers with the 'spawn' "
                       "method (multiprocessing.set_start_method('spawn')), or use CUDA in them first.");
    return true;
}

bool cuda_available(void)
{
    tp_err err = { 0 };
    return cuda_init(&err);
}
int cuda_device_count(void) { return cuda_available() ? cu.count : 0; }
int cuda_driver_version(void) { return cuda_available() ? cu.version : 0; }
int cuda_current_device(void) { return current; }

/* --- devices -------------------------------------------------------------------------------------- */
static bool read_props(device *d, tp_err *err)
{
    res last;
    cuda_props *p = &d->props;
    const struct {
        int attr, *to;
    } ints[] = { { ATTR_major, &p->major },
                 { ATTR_minor, &p->minor },
                 { ATTR_multiprocessors, &p->multiprocessors },
                 { ATTR_threads, &p->max_threads },
                 { ATTR_warp, &p->warp },
                 { ATTR_clock, &p->clock_khz },
                 { ATTR_l2, &p->l2_bytes },
                 { ATTR_shared, &p->shared_optin },
                 { ATTR_pci_domain, &p->pci_domain },
                 { ATTR_pci_bus, &p->pci_bus },
                 { ATTR_pci_device, &p->pci_device } };
    for (size_t i = 0; i < COUNT(ints); i++)
        if (!CALL(device_attribute, (ints[i].to, ints[i].attr, d->handle), err))
            return false;
    return CALL(device_name, (p->name, sizeof p->name, d->handle), err) &&
           CALL(device_memory, (&p->total_memory, d->handle), err);
}

/* Pools call back with the device's context current: whoever allocates has made it so. */
static uint64_t pool_take(void *ctx, size_t n)
{
    dptr p = 0;
    return cu.mem_alloc(&p, n) ? 0 : p;
}
static void pool_give(void *ctx, uint64_t p) { cu.mem_free(p); }
static void pool_wait(void *ctx) { cu.context_sync(); }

static bool open_device(device *d, int index, tp_err *err)
{
    static const cuda_pool_ops ops = { pool_take, pool_give, pool_wait };
    res last;
    if (!CALL(device_get, (&d->handle, index), err) || !read_props(d, err))
        return false;
    if (d->props.major < 8)
        return err_set(err, ERR_runtime,
                       "device cuda:%d (%s) has compute capability %d.%d; Taper needs 8.0 or newer", index,
                       d->props.name, d->props.major, d->props.minor);
    if (!CALL(context_retain, (&d->ctx, d->handle), err))
        return false;
    d->pool = cuda_pool_new(&ops, d);
    d->open = true;
    return true;
}

static device *device_at(int index, tp_err *err)
{
    if (!cuda_init(err))
        return NULL;
    index = index < 0 ? current : index;
    if (index >= cu.count) {
        err_set(err, ERR_runtime, "device cuda:%d does not exist: this machine has %d CUDA device%s", index,
                cu.count, cu.count == 1 ? "" : "s");
        return NULL;
    }
    device *d = &cu.dev[index];
    pthread_mutex_lock(&cu.lock);
    bool ok = d->open || open_device(d, index, err);
    pthread_mutex_unlock(&cu.lock);
    return ok ? d : NULL;
}

static device *enter(int index, tp_err *err)
{
    res last;
    device *d = device_at(index, err);
    return d && CALL(context_set, (d->ctx), err) ? d : NULL;
}
static int number_of(const device *d) { return (int)(d - cu.dev); }

bool cuda_use(int index, tp_err *err) { return enter(index, err) != NULL; }
const cuda_props *cuda_props_of(int index, tp_err *err)
{
    device *d = device_at(index, err);
    return d ? &d->props : NULL;
}
bool cuda_set_device(int index, tp_err *err)
{
    if (index < 0 || !device_at(index, err))
        return index >= 0 ? false : err_set(err, ERR_value, "a device number is not negative");
    current = index;
    return true;
}

/* --- queues and events ---------------------------------------------------------------------------- */
static int index_of(int device) { return device < 0 ? current : device; }
cuda_queue cuda_current_queue(int device) { return queues[index_of(device)]; }
void cuda_set_queue(int device, cuda_queue q) { queues[index_of(device)] = q; }

#define IN_DEVICE(device, what) \
    res last;                   \
    return enter(device, err) && (what)

bool cuda_queue_new(int device, cuda_queue *out, tp_err *err)
{
    IN_DEVICE(device, CALL(queue_new, (out, QUEUE_non_blocking), err));
}
static bool (*at_sync)(tp_err *err);
void cuda_at_sync(bool (*found)(tp_err *err)) { at_sync = found; }
static _Thread_local bool recording;
static bool may_wait(tp_err *err)
{
    return !recording || err_set(err, ERR_runtime,
                                 "the device cannot be waited for while launches are recorded: no item(), no "
                                 "copies to the host, no synchronize()");
}
bool cuda_queue_sync(int device, cuda_queue q, tp_err *err)
{
    if (!may_wait(err))
        return false;
    IN_DEVICE(device, CALL(queue_sync, (q), err) && (!at_sync || at_sync(err)));
}
bool cuda_sync(int device, tp_err *err)
{
    if (!may_wait(err))
        return false;
    IN_DEVICE(device, CALL(context_sync, (), err) && (!at_sync || at_sync(err)));
}
bool cuda_event_new(int device, bool timing, cuda_event *out, tp_err *err)
{
    IN_DEVICE(device, CALL(event_new, (out, timing ? 0 : EVENT_no_timing), err));
}
bool cuda_event_record(int device, cuda_event e, cuda_queue q, tp_err *err)
{
    IN_DEVICE(device, CALL(event_record, (e, q), err));
}
bool cuda_event_wait(int device, cuda_event e, tp_err *err) { IN_DEVICE(device, CALL(event_wait, (e), err)); }
bool cuda_queue_wait(int device, cuda_queue q, cuda_event e, tp_err *err)
{
    IN_DEVICE(device, CALL(queue_wait, (q, e, 0), err));
}
bool cuda_event_ms(int device, cuda_event from, cuda_event to, float *ms, tp_err *err)
{
    IN_DEVICE(device, CALL(event_ms, (ms, from, to), err));
}
void cuda_queue_free(int device, cuda_queue q)
{
    if (enter(device, NULL))
        cu.queue_free(q);
}
void cuda_event_free(int device, cuda_event e)
{
    if (enter(device, NULL))
        cu.event_free(e);
}

static bool done_yet(res r, const char *call, bool *done, tp_err *err)
{
    *done = !r;
    return !r || r == RES_not_ready || failed(r, call, err);
}
bool cuda_event_done(int device, cuda_event e, bool *done, tp_err *err)
{
    return enter(device, err) && done_yet(cu.event_query(e), "cuEventQuery", done, err);
}
bool cuda_queue_done(int device, cuda_queue q, bool *done, tp_err *err)
{
    return enter(device, err) && done_yet(cu.queue_query(q), "cuStreamQuery", done, err);
}

/* --- recordings ----------------------------------------------------------------------------------- */
static int64_t recorded, replayed;
bool cuda_recording(void) { return recording; }
void cuda_recordings(int64_t *made, int64_t *run)
{
    *made = __atomic_load_n(&recorded, __ATOMIC_RELAXED);
    *run = __atomic_load_n(&replayed, __ATOMIC_RELAXED);
}
bool cuda_record_begin(int device, cuda_queue q, tp_err *err)
{
    res last;
    if (recording)
        return err_set(err, ERR_runtime, "launches are being recorded already");
    return recording = enter(device, err) && CALL(record_begin, (q, RECORD_relaxed), err);
}
bool cuda_record_end(int device, cuda_queue q, cuda_graph *out, tp_err *err)
{
    void *g = NULL;
    res last;
    *out = NULL;
    recording = false;
    if (!enter(device, err) || !CALL(record_end, (q, &g), err))
        return false;
    bool ok = CALL(graph_ready, (out, g, 0), err);
    cu.graph_free(g);
    __atomic_add_fetch(&recorded, ok, __ATOMIC_RELAXED);
    return ok;
}
bool cuda_graph_launch(int device, cuda_graph g, cuda_queue q, tp_err *err)
{
    __atomic_add_fetch(&replayed, 1, __ATOMIC_RELAXED);
    IN_DEVICE(device, CALL(graph_launch, (g, q), err));
}
void cuda_graph_free(int device, cuda_graph g)
{
    if (g && enter(device, NULL))
        cu.graph_ready_free(g);
}
void cuda_keep_queue(int index, cuda_queue q, bool keep)
{
    device *d = device_at(index, NULL);
    if (d)
        cuda_pool_keep(d->pool, q, keep);
}

/* --- memory --------------------------------------------------------------------------------------- */
static const char *human(char *buf, size_t n)
{
    if (n >= (size_t)1 << 30)
        snprintf(buf, 24, "%.2f GiB", (double)n / (1 << 30));
    else if (n >= 1 << 20)
        snprintf(buf, 24, "%.2f MiB", (double)n / (1 << 20));
    else
        snprintf(buf, 24, "%zu bytes", n);
    return buf;
}

static void out_of_memory(device *d, size_t n, tp_err *err)
{
    char b[6][24];
    size_t left = 0, total = d->props.total_memory;
    cuda_pool_stats s = cuda_pool_stats_of(d->pool);
    cu.mem_info(&left, &total);
    err_set(err, ERR_oom,
            "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is "
            "free. Taper holds %s: %s "
            "in use by tensors and %s cached but not in use; the rest of the device's memory is held by "
            "other libraries and "
            "processes.",
            human(b[0], n), number_of(d), human(b[1], total), human(b[2], left), human(b[3], s.reserved),
            human(b[4], s.allocated), human(b[5], s.reserved - s.allocated));
}

void *cuda_alloc(int index, size_t n, tp_err *err)
{
    device *d = enter(index, err);
    if (!d)
        return NULL;
    uint64_t p = cuda_pool_alloc(d->pool, n, queues[number_of(d)]);
    if (!p)
        out_of_memory(d, n, err);
    return (void *)(uintptr_t)p;
}

void cuda_free(int index, void *p)
{
    device *d = p ? enter(index, NULL) : NULL;
    if (d)
        cuda_pool_free(d->pool, (uint64_t)(uintptr_t)p);
}

bool cuda_copy_queued(int device, void *to, const void *from, size_t n, int kind, cuda_queue q, tp_err *err)
{
    dptr t = (dptr)(uintptr_t)to, f = (dptr)(uintptr_t)from;
    res last;
    if (!enter(device, err))
        return false;
    return kind == CUDA_TO_DEVICE ? CALL(copy_in, (t, from, n, q), err)
           : kind == CUDA_TO_HOST ? CALL(copy_out, (to, f, n, q), err)
                                  : CALL(copy_on, (t, f, n, q), err);
}

/* --- pinned memory: blocks that are freed are kept, and given out again once copies from them are done ------------- */
static pinned_block *pinned_at(const void *host) /* with the lock */
{
    for (size_t i = 0; i < cu.pinned.cap && cu.pinned.n; i++)
        if (map_slot_live(&cu.pinned.slots[i])) {
            pinned_block *b = cu.pinned.slots[i].val;
            if ((const char *)host >= b->p && (const char *)host < b->p + b->n)
                return b;
        }
    return NULL;
}
bool cuda_is_pinned(const void *host)
{
    pthread_mutex_lock(&cu.lock);
    bool in = pinned_at(host) != NULL;
    pthread_mutex_unlock(&cu.lock);
    return in;
}

static _Thread_local bool lazy;
bool cuda_copy_lazily(bool on)
{
    bool was = lazy;
    lazy = on;
    return was;
}

/* The host goes on while the copy runs: its memory stays until this event. */
static bool copy_pending(int device, const void *host, cuda_queue q, tp_err *err)
{
    res last;
    pthread_mutex_lock(&cu.lock);
    pinned_block *b = pinned_at(host);
    bool ok = b && (b->done || CALL(event_new, (&b->done, EVENT_no_timing), err)) &&
              CALL(event_record, (b->done, q), err);
    pthread_mutex_unlock(&cu.lock);
    return ok;
}

bool cuda_copy_in(int device, void *to, const void *host, size_t n, tp_err *err)
{
    cuda_queue q = cuda_current_queue(device);
    bool pinned = cuda_is_pinned(host);
    if (recording && !pinned)
        return err_set(err, ERR_runtime,
                       "memory of the host cannot be copied to the device while launches are recorded: make "
                       "the tensor before");
    /* From pageable memory the driver returns when it has read it; from pinned memory it returns at once. */
    if (!cuda_copy_queued(device, to, host, n, CUDA_TO_DEVICE, q, err))
        return false;
    return !pinned || recording ||
           (lazy ? copy_pending(device, host, q, err) : cuda_queue_sync(device, q, err));
}
bool cuda_copy_out(int device, void *host, const void *from, size_t n, tp_err *err)
{
    cuda_queue q = cuda_current_queue(device);
    return may_wait(err) && cuda_copy_queued(device, host, from, n, CUDA_TO_HOST, q, err) &&
           cuda_queue_sync(device, q, err);
}
bool cuda_copy(int device, void *to, const void *from, size_t n, tp_err *err)
{
    return cuda_copy_queued(device, to, from, n, CUDA_ON_DEVICE, cuda_current_queue(device), err);
}
bool cuda_fill(int device, void *p, uint8_t byte, size_t n, tp_err *err)
{
    IN_DEVICE(device, CALL(fill, ((dptr)(uintptr_t)p, byte, n, cuda_current_queue(device)), err));
}

/* A block that was freed, is large enough and has no copy under way. */
static pinned_block *pinned_again(size_t n)
{
    for (pinned_block **at = &cu.freed; *at; at = &(*at)->next) {
        pinned_block *b = *at;
        if (b->n < n || b->n / 2 > n || (b->done && cu.event_query(b->done)))
            continue;
        *at = b->next;
        return b;
    }
    return NULL;
}

void *cuda_pinned(size_t n, tp_err *err)
{
    void *p = NULL;
    if (!enter(-1, err))
        return NULL;
    n = MAX((n + 511) & ~(size_t)511, (size_t)512);
    pthread_mutex_lock(&cu.lock);
    pinned_block *b = pinned_again(n);
    if (!b) {
        res last = cu.host_alloc(&p, n, HOST_portable_mapped);
        if (last == RES_out_of_memory)
            err_set(err, ERR_oom, "not enough host memory that can be pinned: %zu bytes", n);
        else if (last)
            failed(last, "cuMemHostAlloc", err);
        else {
            b = mem_zalloc(sizeof *b);
            b->p = p, b->n = n;
        }
    }
    if (b)
        map_putn(&cu.pinned, &b->p, sizeof b->p, b);
    pthread_mutex_unlock(&cu.lock);
    return b ? (void *)b->p : NULL;
}
void cuda_pinned_free(void *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&cu.lock);
    pinned_block *b = map_deln(&cu.pinned, &p, sizeof p);
    if (b) {
        b->next = cu.freed;
        cu.freed = b;
    }
    pthread_mutex_unlock(&cu.lock);
}
void *cuda_mapped(size_t n, tp_err *err)
{
    void *p = NULL;
    res last;
    if (!enter(-1, err) || !CALL(host_alloc, (&p, n, HOST_portable_mapped), err))
        return NULL;
    return memset(p, 0, n);
}
bool cuda_memory(int device, size_t *left, size_t *total, tp_err *err)
{
    IN_DEVICE(device, CALL(mem_info, (left, total), err));
}
bool cuda_stats(int index, cuda_pool_stats *out)
{
    *out = (cuda_pool_stats){ 0 };
    index = index_of(index);
    if (index >= CUDA_MAX_DEVICES || !cu.dev[index].open)
        return false;
    *out = cuda_pool_stats_of(cu.dev[index].pool);
    return true;
}
void cuda_reset_peaks(int index)
{
    index = index_of(index);
    if (index < CUDA_MAX_DEVICES && cu.dev[index].open)
        cuda_pool_reset_peaks(cu.dev[index].pool);
}
void cuda_empty_cache(int index)
{
    index = index_of(index);
    if (index < CUDA_MAX_DEVICES && cu.dev[index].open && enter(index, NULL))
        cuda_pool_empty(cu.dev[index].pool);
}

/* --- code ----------------------------------------------------------------------------------------- */
typedef struct link_job {
    int device;
    const char *const *text;
    cuda_cubin *out;
    tp_err *err; /* by text */
} link_job;

static void link_one(const link_job *j, int64_t i)
{
    char log[1024] = "";
    const int opts[] = { JIT_error_log, JIT_error_log_size, JIT_level };
    void *vals[] = { log, (void *)(uintptr_t)(sizeof log - 1), (void *)(uintptr_t)1 }, *state = NULL,
         *p = NULL;
    size_t n = 0;
    tp_err *err = &j->err[i];
    if (!enter(j->device, err))
        return;
    res last = cu.link_new(COUNT(opts), opts, vals, &state);
    if (!last)
        last = cu.link_add(state, INPUT_ptx, j->text[i], strlen(j->text[i]) + 1, "kernel", 0, NULL, NULL);
    if (!last)
        last = cu.link_done(state, &p, &n);
    if (last) {
        failed(last, "cuLink", err);
        if (log[0])
            err_note(err, "%.400s", log);
    } else {
        j->out[i] = (cuda_cubin){ memcpy(mem_alloc(n), p, n), n };
    }
    if (state)
        cu.link_free(state);
}
static void link_some(void *arg, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        link_one(arg, i);
}

static int64_t assembled;
int64_t cuda_assembled(void) { return __atomic_load_n(&assembled, __ATOMIC_RELAXED); }

bool cuda_assemble(int device, const char *const *text, int n, cuda_cubin *out, tp_err *err)
{
    __atomic_add_fetch(&assembled, n, __ATOMIC_RELAXED);
    link_job j = { index_of(device), text, out, mem_zalloc(sizeof(tp_err) * (size_t)(n + 1)) };
    bool ok = true;
    memset(out, 0, sizeof *out * (size_t)n);
    if (enter(device, err)) {
        pool_for(n, 1, link_some, &j);
        for (int i = 0; i < n && ok; i++)
            if (!out[i].p) {
                ok = false;
                if (err && !err_is_set(err))
                    *err = j.err[i];
            }
    } else
        ok = false;
    free(j.err);
    return ok;
}

bool cuda_load(int device, const void *cubin, cuda_module *out, tp_err *err)
{
    IN_DEVICE(device, CALL(module_load, (out, cubin), err));
}
void cuda_unload(int device, cuda_module m)
{
    if (enter(device, NULL))
        cu.module_unload(m);
}
bool cuda_find(int device, cuda_module m, const char *name, cuda_function *out, tp_err *err)
{
    IN_DEVICE(device, CALL(module_function, (out, m, name), err));
}

bool cuda_launch(int device, cuda_function f, int64_t blocks, int threads, const uint64_t *params,
                 int nparams, cuda_queue q, tp_err *err)
{
    void *args[512];
    res last;
    if (!blocks)
        return true;
    if (blocks > INT32_MAX || nparams > (int)COUNT(args))
        return err_set(err, ERR_runtime, "a CUDA launch of %lld blocks with %d parameters is too large",
                       (long long)blocks, nparams);
    for (int i = 0; i < nparams; i++)
        args[i] = (void *)&params[i];
    return enter(device, err) &&
           CALL(launch, (f, (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1, 0, q, args, NULL), err);
}
