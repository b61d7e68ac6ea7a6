/* fake_cuda.c - a library with the functions of libcuda.so.1 that Taper calls: kernels run in the PTX interpreter, at once.
 * Assembling waits while the file that FAKE_CUDA_GATE names exists, and fails while FAKE_CUDA_REFUSE does.
 * FAKE_CUDA_DEVICES, FAKE_CUDA_VERSION, FAKE_CUDA_MEMORY (bytes) and FAKE_CUDA_FAULT (a result of launches) change what it says. */
#include "base/map.h"
#include "ptx_interp.h"
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum {
    OK = 0,
    INVALID = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_PTX = 218,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_FAILED = 719
};
enum { MAX_BLOCKS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ptx_buffer blocks[MAX_BLOCKS];
static int nblocks, sticky;
static size_t held;

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *s = getenv(name);
    return s ? strtoll(s, NULL, 10) : otherwise;
}
static size_t capacity(void) { return (size_t)setting("FAKE_CUDA_MEMORY", (int64_t)1 << 32); }

API int cuInit(unsigned flags) { return setting("FAKE_CUDA_DEVICES", 1) ? OK : NO_DEVICE; }
API int cuDriverGetVersion(int *v) { return *v = (int)setting("FAKE_CUDA_VERSION", 13000), OK; }
API int cuGetErrorName(int r, const char **s)
{
    *s = r == OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
         : r == INVALID_PTX   ? "CUDA_ERROR_INVALID_PTX"
         : r == NOT_FOUND     ? "CUDA_ERROR_NOT_FOUND"
         : r == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
                              : "CUDA_ERROR_UNKNOWN";
    return OK;
}
API int cuGetErrorString(int r, const char **s)
{
    return *s = r == LAUNCH_FAILED ? "unspecified launch failure" : "fake error", OK;
}
API int cuDeviceGetCount(int *n) { return *n = (int)setting("FAKE_CUDA_DEVICES", 1), OK; }
API int cuDeviceGet(int *d, int i) { return *d = i, OK; }
API int cuDeviceGetName(char *s, int n, int d) { return snprintf(s, (size_t)n, "Fake GPU"), OK; }
API int cuDeviceTotalMem_v2(size_t *n, int d) { return *n = capacity(), OK; }
API int cuDeviceGetAttribute(int *v, int a, int d)
{
    if (a == 33 || a == 50) /* PCI bus: that of the device; domain */
        return *v = a == 33 ? d : 0, OK;
    *v = a == 75 ? (int)setting("FAKE_CUDA_MAJOR", 9) : a == 76 ? 0 : a == 10 ? 32 : a == 16 ? 1 : 1024;
    return OK;
}
API int cuDevicePrimaryCtxRetain(void **c, int d) { return *c = (void *)1, OK; }
API int cuCtxSetCurrent(void *c) { return c ? OK : INVALID; }
API int cuCtxSynchronize(void) { return sticky; }

API int cuMemAlloc_v2(uint64_t *p, size_t n)
{
    int r = OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    if (held + n <= capacity() && nblocks < MAX_BLOCKS) {
        void *m = aligned_alloc(4096, (n + 4095) & ~(size_t)4095);
        blocks[nblocks++] = (ptx_buffer){ m, n };
        held += n;
        *p = (uint64_t)(uintptr_t)m;
        r = OK;
    }
    pthread_mutex_unlock(&lock);
    return r;
}
API int cuMemFree_v2(uint64_t p)
{
    int r = INVALID;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < nblocks; i++)
        if ((uint64_t)(uintptr_t)blocks[i].p == p) {
            free(blocks[i].p);
            held -= blocks[i].size;
            blocks[i] = blocks[--nblocks];
            r = OK;
            break;
        }
    pthread_mutex_unlock(&lock);
    return r;
}
API int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    return *total = capacity(), *left = capacity() - held, OK;
}
API int cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
    uint64_t at;
    if (!(flags & 2)) /* else kernels may reach it */
        return (*p = malloc(n)) ? OK : OUT_OF_MEMORY;
    int r = cuMemAlloc_v2(&at, n);
    return *p = (void *)(uintptr_t)at, r;
}
API int cuMemFreeHost(void *p) { return free(p), OK; }
/* --- recordings: what a queue gets is kept, and done when the graph is launched ------------------------- */
typedef struct work {
    void *fn;                 /* NULL: a copy, or a fill where from is NULL */
    void (*call)(void *data); /* of another library; it keeps the data */
    void *data;
    unsigned blocks, threads;
    uint64_t *params;
    void *to;
    const void *from;
    unsigned char byte;
    size_t n;
} work;
typedef struct recorded {
    void *queue;
    work *at;
    int n;
    bool broken;
} recorded;
static recorded *now; /* one at a time */

static int run_kernel(void *fn, unsigned blocks, unsigned threads, const uint64_t *params);
static int do_work(const work *w)
{
    if (w->call)
        return w->call(w->data), sticky;
    if (w->fn)
        return run_kernel(w->fn, w->blocks, w->threads, w->params);
    if (w->from)
        memmove(w->to, w->from, w->n);
    else
        memset(w->to, w->byte, w->n);
    return sticky;
}
static int queued(void *q, work w)
{
    if (!now || now->queue != q)
        return do_work(&w);
    now->at = realloc(now->at, sizeof w * (size_t)(now->n + 1));
    now->at[now->n++] = w;
    return OK;
}
/* What a library like cuDNN gives a queue (tests/gpu/fake_cudnn.c). */
API int fake_cuda_call(void *q, void (*call)(void *data), void *data)
{
    return queued(q, (work){ .call = call, .data = data });
}
/* Are these bytes memory of the device? */
API bool fake_cuda_holds(const void *p, size_t n)
{
    bool in = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < nblocks && !in; i++)
        in = (const char *)p >= (char *)blocks[i].p &&
             (const char *)p + n <= (char *)blocks[i].p + blocks[i].size;
    pthread_mutex_unlock(&lock);
    return in;
}
API int cuStreamBeginCapture_v2(void *q, int mode)
{
    if (!q || now)
        return INVALID;
    now = calloc(1, sizeof *now);
    now->queue = q;
    return OK;
}
API int cuStreamEndCapture(void *q, void **out)
{
    recorded *r = now;
    if (!r || r->queue != q)
        return INVALID;
    now = NULL;
    return *out = r, r->broken ? INVALID : OK;
}
API int cuGraphInstantiateWithFlags(void **out, void *g, unsigned long long flags)
{
    recorded *r = malloc(sizeof *r);
    *r = *(recorded *)g;
    const work *from = r->at;
    r->at = malloc(sizeof(work) * (size_t)(r->n + 1));
    if (r->n)
        memcpy(r->at, from, sizeof(work) * (size_t)r->n);
    return *out = r, OK;
}
API int cuGraphLaunch(void *g, void *q)
{
    const recorded *r = g;
    int s = sticky;
    for (int i = 0; i < r->n && !s; i++)
        s = queued(q, r->at[i]);
    return s;
}
API int cuGraphDestroy(void *g) { return free(((recorded *)g)->at), free(g), OK; }
API int cuGraphExecDestroy(void *g) { return free(((recorded *)g)->at), free(g), OK; }

API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *q)
{
    return queued(q, (work){ .to = (void *)(uintptr_t)to, .from = from, .n = n });
}
API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *q)
{
    return queued(q, (work){ .to = to, .from = (void *)(uintptr_t)from, .n = n });
}
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *q)
{
    return queued(q, (work){ .to = (void *)(uintptr_t)to, .from = (void *)(uintptr_t)from, .n = n });
}
API int cuMemsetD8Async(uint64_t p, unsigned char v, size_t n, void *q)
{
    return queued(q, (work){ .to = (void *)(uintptr_t)p, .byte = v, .n = n });
}

/* A queue is busy while another library works on what it was given (tests/gpu/fake_nccl.c); the first queue, NULL, never is. */
typedef struct queue {
    _Atomic long begun, ended;
} queue;
typedef struct event {
    double ms;
    queue *q;
    long until; /* so much of the queue's work comes before */
} event;
API void fake_cuda_begin(void *q) { ((queue *)q)->begun++; }
API void fake_cuda_end(void *q) { ((queue *)q)->ended++; }
static int reached(queue *q, long until, bool wait)
{
    while (q && q->ended < until) {
        if (!wait)
            return NOT_READY;
        nanosleep(&(struct timespec){ 0, 100000 }, NULL);
    }
    return sticky;
}
API int cuStreamCreate(void **q, unsigned flags) { return *q = calloc(1, sizeof(queue)), OK; }
API int cuStreamDestroy_v2(void *q) { return OK; } /* events may still name it */
API int cuStreamSynchronize(void *q)
{
    if (now && now->queue == q)
        return now->broken = true, INVALID;
    return reached(q, q ? ((queue *)q)->begun : 0, true);
}
API int cuStreamQuery(void *q) { return reached(q, q ? ((queue *)q)->begun : 0, false); }
API int cuEventQuery(void *e) { return reached(((event *)e)->q, ((event *)e)->until, false); }
API int cuStreamWaitEvent(void *q, void *e, unsigned flags)
{
    return reached(((event *)e)->q, ((event *)e)->until, true); /* this process waits for its queue */
}
API int cuEventCreate(void **e, unsigned flags) { return *e = calloc(1, sizeof(event)), OK; }
API int cuEventDestroy_v2(void *e) { return free(e), OK; }
API int cuEventRecord(void *e, void *q)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    *(event *)e = (event){ (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6, q, q ? ((queue *)q)->begun : 0 };
    return sticky;
}
API int cuEventSynchronize(void *e) { return reached(((event *)e)->q, ((event *)e)->until, true); }
API int cuEventElapsedTime(float *ms, void *a, void *b)
{
    return *ms = (float)(((event *)b)->ms - ((event *)a)->ms), OK;
}

typedef struct function {
    ptx_module *m;
    char *name;
} function;

/* Machine code is the text itself. */
typedef struct linking {
    char *text, *log;
} linking;
API int cuLinkCreate_v2(unsigned n, const int *opts, void **vals, void **out)
{
    linking *l = calloc(1, sizeof *l);
    for (unsigned i = 0; i < n; i++)
        if (opts[i] == 5)
            l->log = vals[i];
    return *out = l, OK;
}
API int cuLinkAddData_v2(void *state, int kind, const void *text, size_t n, const char *name, unsigned k,
                         int *o, void **v)
{
    linking *l = state;
    tp_err err = { 0 };
    ptx_module *m = ptx_parse(text, &err);
    if (!m) {
        if (l->log)
            snprintf(l->log, 1000, "%.900s", err.msg);
        return INVALID_PTX;
    }
    ptx_module_free(m);
    l->text = strdup(text);
    return OK;
}
API int cuLinkComplete(void *state, void **p, size_t *n)
{
    linking *l = state;
    const char *gate = getenv("FAKE_CUDA_GATE"), *refuse = getenv("FAKE_CUDA_REFUSE");
    while (gate && !access(gate, F_OK))
        usleep(1000);
    if (refuse && !access(refuse, F_OK)) {
        if (l->log)
            snprintf(l->log, 1000, "refused");
        return INVALID_PTX;
    }
    return *p = l->text, *n = strlen(l->text) + 1, OK;
}
API int cuLinkDestroy(void *state)
{
    linking *l = state;
    free(l->text), free(l);
    return OK;
}
API int cuModuleLoadData(void **out, const void *text)
{
    tp_err err = { 0 };
    return (*out = ptx_parse(text, &err)) ? OK : INVALID_PTX;
}
API int cuModuleUnload(void *m) { return ptx_module_free(m), OK; }
API int cuModuleGetFunction(void **out, void *m, const char *name)
{
    if (ptx_entry_params(m, name) < 0)
        return NOT_FOUND;
    function *f = malloc(sizeof *f); /* lives as long as the process: nothing frees a CUfunction */
    *f = (function){ m, strdup(name) };
    return *out = f, OK;
}
static int run_kernel(void *fn, unsigned blocks_, unsigned threads, const uint64_t *params)
{
    function *f = fn;
    tp_err err = { 0 };
    if (sticky)
        return sticky;
    if (setting("FAKE_CUDA_FAULT", 0))
        return sticky = (int)setting("FAKE_CUDA_FAULT", 0), OK; /* faults show later */
    pthread_mutex_lock(&lock);
    if (!ptx_run(f->m, f->name, blocks_, (int)threads, params, blocks, nblocks, true, &err)) {
        fprintf(stderr, "fake CUDA: %s: %s\n", f->name, err.msg);
        sticky = LAUNCH_FAILED;
    }
    pthread_mutex_unlock(&lock);
    return OK;
}
API int cuLaunchKernel(void *fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, void *q, void **args, void **extra)
{
    function *f = fn;
    int n = ptx_entry_params(f->m, f->name);
    bool kept = now && now->queue == q;
    uint64_t few[512], *params = kept ? malloc(sizeof(uint64_t) * (size_t)(n + 1)) : few;
    for (int i = 0; i < n; i++)
        memcpy(&params[i], args[i], 8);
    return queued(q, (work){ .fn = fn, .blocks = gx, .threads = bx, .params = params });
}
