/* nccl.c - the back end over NCCL for tensors on GPUs: its library is looked for when a program asks, its calls go to a queue of their own.
 * A group has one communicator, made by all its ranks at once; what it is given runs in order on the device, behind what the caller's queue
 * held when the collective was called. A work is done when its mark is reached. */
#include "comm/nccl.h"
#include "base/clock.h"
#include "base/envvars.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

typedef struct nccl_id {
    char bytes[COMM_NCCL_ID];
} nccl_id;
typedef void *comm_t;
enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_INT8 = 0, NCCL_UINT8 = 1, NCCL_SUM = 0, NCCL_PROD = 1, NCCL_MAX = 2, NCCL_MIN = 3, NCCL_AVG = 4 };
enum { SCRATCH = 64 };

#define CALLS(X)                                                                                   \
    X(version, ncclGetVersion, (int *))                                                            \
    X(unique, ncclGetUniqueId, (nccl_id *))                                                        \
    X(join, ncclCommInitRank, (comm_t *, int, nccl_id, int))                                       \
    X(destroy, ncclCommDestroy, (comm_t))                                                          \
    X(abort, ncclCommAbort, (comm_t))                                                              \
    X(async_error, ncclCommGetAsyncError, (comm_t, int *))                                         \
    X(begin, ncclGroupStart, (void))                                                               \
    X(end, ncclGroupEnd, (void))                                                                   \
    X(all_reduce, ncclAllReduce, (const void *, void *, size_t, int, int, comm_t, void *))         \
    X(reduce, ncclReduce, (const void *, void *, size_t, int, int, int, comm_t, void *))           \
    X(broadcast, ncclBroadcast, (const void *, void *, size_t, int, int, comm_t, void *))          \
    X(all_gather, ncclAllGather, (const void *, void *, size_t, int, comm_t, void *))              \
    X(reduce_scatter, ncclReduceScatter, (const void *, void *, size_t, int, int, comm_t, void *)) \
    X(send, ncclSend, (const void *, size_t, int, int, comm_t, void *))                            \
    X(recv, ncclRecv, (void *, size_t, int, int, comm_t, void *))

static struct {
    pthread_mutex_t lock;
    bool tried, found;
    char why[200];
#define X(name, sym, args) int(*name) args;
    CALLS(X)
#undef X
    const char *(*error)(int);
    const char *(*last)(comm_t); /* NULL before 2.13 */
} lib = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool load(const char *folder, tp_err *err)
{
    pthread_mutex_lock(&lib.lock);
    if (!lib.tried) {
        const char *own = env_get(ENV_nccl_library);
        char path[4096];
        void *h = dlopen(own && *own ? own : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
        if (!h && !(own && *own) && folder) {
            snprintf(path, sizeof path, "%s/libnccl.so.2", folder);
            h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        }
        lib.tried = true;
        lib.found = h != NULL;
        snprintf(lib.why, sizeof lib.why, "%s", h ? "" : dlerror());
#define X(name, sym, args)                           \
    *(void **)&lib.name = h ? dlsym(h, #sym) : NULL; \
    if (h && !lib.name)                              \
        lib.found = false, snprintf(lib.why, sizeof lib.why, "it has no " #sym);
        CALLS(X)
#undef X
        *(void **)&lib.error = h ? dlsym(h, "ncclGetErrorString") : NULL;
        *(void **)&lib.last = h ? dlsym(h, "ncclGetLastError") : NULL;
        lib.found &= lib.error != NULL;
    }
    pthread_mutex_unlock(&lib.lock);
    return lib.found || err_set(err, ERR_runtime,
                                "NCCL is not there (%s): install the package nvidia-nccl-cu12, or name the "
                                "library in TAPER_NCCL_LIBRARY",
                                lib.why);
}

/* --- the group -------------------------------------------------------------------------------------------- */
typedef struct nccl_group {
    comm_t comm;
    tp_device on;
    const device_queues *q;
    void *queue, *scratch;
    int n, my;
} nccl_group;
typedef struct nccl_req {
    comm_call c;
    void *mark;
} nccl_req;

static bool failed(int r, comm_t comm, const char *what, tp_err *err)
{
    const char *last = lib.last && comm ? lib.last(comm) : NULL;
    return err_set(err, ERR_runtime, "NCCL: %s: %s%s%s", what, lib.error(r), last && *last ? ": " : "",
                   last ? last : "");
}

/* ncclCommInitRank returns when every rank has called it: a thread does, so that an abort or the time-out can be seen. */
typedef struct joining {
    nccl_id id;
    int n, my, result;
    tp_device on;
    nccl_group *g;
    tp_err err;
    _Atomic int state; /* 0 it runs, 1 ended, 2 nobody waits any more */
} joining;
static void *join(void *arg)
{
    joining *j = arg;
    nccl_group *g = j->g;
    if (!(g->queue = g->q->make(g->on, &j->err))) /* it also makes this thread's calls go to the device */
        j->result = -1;
    else if ((j->result = lib.join(&g->comm, j->n, j->id, j->my)) != NCCL_SUCCESS)
        failed(j->result, NULL, "ncclCommInitRank", &j->err);
    int runs = 0;
    if (!atomic_compare_exchange_strong(&j->state, &runs, 1))
        free(j);
    return NULL;
}

void *comm_nccl_group(tp_device on, const char *id, int n, int my, int64_t deadline, comm_job *job,
                      tp_err *err)
{
    const device_ops *ops = device_ops_of(on);
    if (!ops->queues)
        return err_set(err, ERR_runtime, "device '%s' has no queues for NCCL", ops->name), NULL;
    nccl_group *g = mem_zalloc(sizeof *g);
    *g = (nccl_group){ .on = on, .q = ops->queues, .n = n, .my = my };
    joining *j = mem_zalloc(sizeof *j);
    *j = (joining){ .n = n, .my = my, .on = on, .g = g };
    memcpy(j->id.bytes, id, sizeof j->id.bytes);
    pthread_t t;
    if (!(g->scratch = ops->alloc(on, SCRATCH, err)) || pthread_create(&t, NULL, join, j)) {
        if (g->scratch) {
            ops->free(on, g->scratch, SCRATCH);
            err_set(err, ERR_runtime, "no thread for NCCL");
        }
        free(g), free(j);
        return NULL;
    }
    pthread_detach(t);
    while (!atomic_load(&j->state)) {
        const char *gone = comm_abort_text(job);
        if (gone || clock_ns() > deadline) {
            int runs = 0;
            if (!atomic_compare_exchange_strong(&j->state, &runs, 2))
                break;
            gone ? err_set(err, ERR_runtime, "%s", gone)
                 : err_set(err, ERR_runtime,
                           "NCCL: rank %d of %d waited in ncclCommInitRank until the time-out", my, n);
            return NULL; /* the thread still uses g */
        }
        nanosleep(&(struct timespec){ 0, 500000 }, NULL);
    }
    bool ok = !j->result;
    if (!ok) {
        *err = j->err;
        ops->free(on, g->scratch, SCRATCH);
        if (g->queue)
            g->q->free(on, g->queue);
        free(g);
    }
    free(j);
    return ok ? g : NULL;
}
void comm_nccl_free(void *group, bool aborted)
{
    nccl_group *g = group;
    if (aborted) { /* kernels that wait for a rank that is gone end; memory may be in use */
        lib.abort(g->comm);
        return;
    }
    lib.destroy(g->comm);
    g->q->free(g->on, g->queue);
    device_ops_of(g->on)->free(g->on, g->scratch, SCRATCH);
    free(g);
}
tp_device comm_nccl_device(const void *group) { return ((const nccl_group *)group)->on; }

bool comm_nccl_version(const char *folder, int *version, tp_err *err)
{
    return load(folder, err) && (lib.version(version) == NCCL_SUCCESS ||
                                 err_set(err, ERR_runtime, "NCCL does not say its version"));
}
bool comm_nccl_id(const char *folder, char *id, tp_err *err)
{
    nccl_id u;
    int r = load(folder, err) ? lib.unique(&u) : -1;
    if (r > 0)
        failed(r, NULL, "ncclGetUniqueId", err);
    memcpy(id, u.bytes, sizeof u.bytes);
    return !r;
}

/* --- calls ------------------------------------------------------------------------------------------------ */
static int type_of(dtype dt)
{
    switch (dt) {
    case DT_i8: return NCCL_INT8;
    case DT_u8:
    case DT_bool: return NCCL_UINT8;
    case DT_i32: return 2;
    case DT_i64: return 4;
    case DT_f16: return 6;
    case DT_f32: return 7;
    case DT_f64: return 8;
    case DT_bf16: return 9;
    default: return -1;
    }
}
static int op_of(dtype dt, comm_red op)
{
    switch (op) {
    case CRED_sum: return dt == DT_bool ? NCCL_MAX : NCCL_SUM;
    case CRED_prod: return dt == DT_bool ? NCCL_MIN : NCCL_PROD;
    case CRED_min: return NCCL_MIN;
    case CRED_max: return NCCL_MAX;
    case CRED_avg: return NCCL_AVG;
    default: return -1;
    }
}

void *comm_nccl_ready(void *group, const comm_call *c, tp_err *err)
{
    nccl_group *g = group;
    const char *kind = comm_kind_name(c->kind);
    if (type_of(c->dt) < 0 && !comm_kind_reduces(c->kind) && c->n >= 0)
        ; /* bytes travel as they are */
    else if (type_of(c->dt) < 0)
        return err_set(err, ERR_type, "NCCL adds no %s: convert the tensor, or do this on the CPU",
                       dtype_name(c->dt)),
               NULL;
    if (comm_kind_reduces(c->kind) && op_of(c->dt, c->op) < 0)
        return err_set(err, ERR_value, "Cannot use %s of %s with NCCL: do this on the CPU",
                       comm_red_names[c->op], kind),
               NULL;
    if (c->kind == COMM_recv && c->root < 0)
        return err_set(err, ERR_value, "NCCL receives from one rank: pass src="), NULL;
    return g->q->mark(g->on, NULL, err);
}
void comm_nccl_forget(void *group, void *mark)
{
    nccl_group *g = group;
    g->q->drop(g->on, mark);
}

/* Elements of types that NCCL does not know travel as bytes. */
typedef struct wire {
    int type;
    size_t each, size; /* of NCCL's elements an element of ours; bytes of ours */
} wire;
static wire wire_of(dtype dt)
{
    size_t size = (size_t)dtype_size(dt);
    int t = type_of(dt);
    return t < 0 ? (wire){ NCCL_UINT8, size, size } : (wire){ t, 1, size };
}

static int to_all(nccl_group *g, const comm_call *c, wire w)
{
    const char *in = c->in;
    char *out = c->out;
    int r = lib.begin(), end;
    bool all = c->kind == COMM_all_to_all;
    for (int i = 0; !r && i < g->n; i++) {
        size_t ni = (size_t)(c->in_count ? c->in_count[i] : c->n),
               no = (size_t)(c->out_count ? c->out_count[i] : c->n);
        if (all || (c->kind == COMM_scatter && g->my == c->root)) {
            r = lib.send(in, ni * w.each, w.type, i, g->comm, g->queue);
            in += ni * w.size;
        }
        if (!r && (all || (c->kind == COMM_gather && g->my == c->root))) {
            r = lib.recv(out, no * w.each, w.type, i, g->comm, g->queue);
            out += no * w.size;
        }
    }
    if (!r && c->kind == COMM_gather)
        r = lib.send(c->in, (size_t)c->n * w.each, w.type, c->root, g->comm, g->queue);
    if (!r && c->kind == COMM_scatter)
        r = lib.recv(c->out, (size_t)c->n * w.each, w.type, c->root, g->comm, g->queue);
    end = lib.end();
    return r ? r : end;
}
static int give(nccl_group *g, const comm_call *c)
{
    wire w = wire_of(c->dt);
    size_t n = (size_t)c->n * w.each;
    int op = comm_kind_reduces(c->kind) ? op_of(c->dt, c->op) : 0;
    switch (c->kind) {
    case COMM_barrier:
        return lib.all_reduce(g->scratch, g->scratch, 1, NCCL_UINT8, NCCL_MAX, g->comm, g->queue);
    case COMM_all_reduce: return lib.all_reduce(c->in, c->out, n, w.type, op, g->comm, g->queue);
    case COMM_reduce: return lib.reduce(c->in, c->out, n, w.type, op, c->root, g->comm, g->queue);
    case COMM_broadcast: return lib.broadcast(c->in, c->out, n, w.type, c->root, g->comm, g->queue);
    case COMM_all_gather: return lib.all_gather(c->in, c->out, n, w.type, g->comm, g->queue);
    case COMM_reduce_scatter: return lib.reduce_scatter(c->in, c->out, n, w.type, op, g->comm, g->queue);
    case COMM_send: return lib.send(c->in, n, w.type, c->root, g->comm, g->queue);
    case COMM_recv: return lib.recv(c->out, n, w.type, c->root, g->comm, g->queue);
    default: return to_all(g, c, w);
    }
}

/* What is started between the two goes to the device together: sends and receives that wait for one another. */
bool comm_nccl_begin(tp_err *err)
{
    int r = lib.begin();
    return !r || failed(r, NULL, "ncclGroupStart", err);
}
bool comm_nccl_end(tp_err *err)
{
    int r = lib.end();
    return !r || failed(r, NULL, "ncclGroupEnd", err);
}

static void *nccl_start(void *group, const comm_call *c, tp_err *err)
{
    nccl_group *g = group;
    int r = 0;
    if (!g->q->follow(g->on, g->queue, c->after, err))
        return NULL;
    if ((r = give(g, c)) != NCCL_SUCCESS)
        return failed(r, g->comm, comm_kind_name(c->kind), err), NULL;
    nccl_req *q = mem_zalloc(sizeof *q);
    q->c = *c;
    return q;
}
static int nccl_test(void *group, void *req, int *source, tp_err *err)
{
    nccl_group *g = group;
    nccl_req *q = req;
    int wrong = 0;
    if (!q->mark && !(q->mark = g->q->mark(g->on, g->queue, err)))
        return -1;
    int r = g->q->reached(g->on, q->mark, err);
    if (r > 0 && q->c.kind == COMM_recv)
        *source = q->c.root;
    if (r)
        return r;
    if (lib.async_error(g->comm, &wrong) == NCCL_SUCCESS && wrong != NCCL_SUCCESS &&
        wrong != NCCL_IN_PROGRESS) {
        failed(wrong, g->comm, comm_kind_name(q->c.kind), err);
        return -1;
    }
    return 0;
}
static void nccl_drop(void *group, void *req)
{
    nccl_group *g = group;
    nccl_req *q = req;
    if (q->mark)
        g->q->drop(g->on, q->mark);
    free(q);
}
static uint32_t nccl_mark(void *group) { return 0; }
static void nccl_idle(void *group, uint32_t seen, int64_t waited_ns)
{
    nanosleep(&(struct timespec){ 0, waited_ns > 2000000 ? 200000 : 20000 }, NULL);
}

const comm_backend comm_nccl = { .name = "nccl",
                                 .start = nccl_start,
                                 .test = nccl_test,
                                 .drop = nccl_drop,
                                 .mark = nccl_mark,
                                 .idle = nccl_idle };
