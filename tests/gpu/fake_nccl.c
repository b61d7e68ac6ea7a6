/* fake_nccl.c - a library with the functions of libnccl.so.2 that Taper calls, between processes of one machine: what a call gives a queue of
 * fake_cuda.c is done by a thread, in order, and the queue is busy meanwhile. Ranks exchange bytes through files in FAKE_NCCL_DIR, named by the
 * communicator, so that a rank that does not come keeps the others waiting, as on GPUs. Memory that is not the device's is refused, and so
 * are ranks that call different things.
 * FAKE_NCCL_FAULT: the collective of that number fails later, with ncclRemoteError. FAKE_NCCL_REFUSE: a function whose calls fail. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
extern bool fake_cuda_holds(const void *p, size_t n);
extern void fake_cuda_begin(void *q);
extern void fake_cuda_end(void *q);

enum { SUCCESS = 0, SYSTEM = 2, INTERNAL = 3, ARGUMENT = 4, USAGE = 5, REMOTE = 6 };
enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };
enum { SUM, PROD, MAX, MIN, AVG };
typedef struct id {
    char bytes[128];
} id;
typedef struct comm comm;
typedef struct op {
    comm *c;
    int kind, type, red, root;
    const char *in;
    char *out;
    size_t n;
    void *queue;
    struct op *next;
} op;
typedef struct group { /* of calls that go to the device together */
    op *first, *last;
    struct group *next;
} group;
struct comm {
    char name[64];
    int n, my;
    long seq, sent[64], got[64];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    group *first, *last;
    volatile bool ends, aborted;
    volatile int wrong;
};

static size_t size_of(int type)
{
    static const size_t size[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2 };
    return type >= 0 && type < 10 ? size[type] : 0;
}
static bool refused(const char *name)
{
    const char *s = getenv("FAKE_NCCL_REFUSE");
    return s && !strcmp(s, name);
}

/* --- numbers ---------------------------------------------------------------------------------------------- */
static float of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static float half_in(uint16_t h)
{
    uint32_t e = h >> 10 & 31, m = h & 1023;
    float v = e == 31  ? of_bits(0x7f800000u | m << 13)
              : e == 0 ? (float)m / 16777216.0f
                       : of_bits((e + 112) << 23 | m << 13);
    return h >> 15 ? -v : v;
}
static uint16_t half_out(float f)
{
    uint16_t best = 0;
    float a = f < 0 ? -f : f, least = 1e30f; /* slow and plain: all halves are tried from the exponent on */
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float d = half_in((uint16_t)h) - a;
        d = d < 0 ? -d : d;
        if (d < least || (d == least && !(h & 1)))
            least = d, best = (uint16_t)h;
    }
    return (uint16_t)(best | (f < 0 ? 0x8000 : 0));
}
static double get(int type, const char *p, size_t i)
{
    switch (type) {
    case 0: return ((const int8_t *)p)[i];
    case 1: return ((const uint8_t *)p)[i];
    case 2: return ((const int32_t *)p)[i];
    case 4: return (double)((const int64_t *)p)[i];
    case 6: return (double)half_in(((const uint16_t *)p)[i]);
    case 7: return (double)((const float *)p)[i];
    case 8: return ((const double *)p)[i];
    default: return (double)of_bits((uint32_t)((const uint16_t *)p)[i] << 16);
    }
}
static void put(int type, char *p, size_t i, double v)
{
    float f = (float)v;
    uint32_t u;
    switch (type) {
    case 0: ((int8_t *)p)[i] = (int8_t)(int64_t)v; break;
    case 1: ((uint8_t *)p)[i] = (uint8_t)(int64_t)v; break;
    case 2: ((int32_t *)p)[i] = (int32_t)(int64_t)v; break;
    case 4: ((int64_t *)p)[i] = (int64_t)v; break;
    case 6: ((uint16_t *)p)[i] = half_out(f); break;
    case 7: ((float *)p)[i] = f; break;
    case 8: ((double *)p)[i] = v; break;
    default: memcpy(&u, &f, 4); ((uint16_t *)p)[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
}

/* --- files between ranks ------------------------------------------------------------------------------------ */
static void path_of(char *to, size_t size, const comm *c, const char *what, long a, long b, long k)
{
    snprintf(to, size, "%s/%s.%s.%ld.%ld.%ld", getenv("FAKE_NCCL_DIR"), c->name, what, a, b, k);
}
static bool publish(const char *path, const void *head, size_t nhead, const void *data, size_t n)
{
    char tmp[600];
    snprintf(tmp, sizeof tmp, "%s.new", path);
    FILE *f = fopen(tmp, "wb");
    bool ok = f && fwrite(head, 1, nhead, f) == nhead && (!n || fwrite(data, 1, n, f) == n);
    if (f)
        fclose(f);
    return ok && rename(tmp, path) == 0;
}
static char *await(const comm *c, const char *path, size_t *n)
{
    FILE *f;
    while (!(f = fopen(path, "rb"))) {
        if (c->aborted)
            return NULL;
        nanosleep(&(struct timespec){ 0, 200000 }, NULL);
    }
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*n + 1);
    *n = fread(p, 1, *n, f);
    fclose(f);
    return p;
}

static int collective(comm *c, op *o)
{
    char path[560], head[64] = { 0 };
    size_t size = size_of(o->type), n = o->kind == REDUCE_SCATTER ? o->n * (size_t)c->n : o->n, got;
    char *all[64];
    long seq = ++c->seq;
    const char *fault = getenv("FAKE_NCCL_FAULT");
    int wrong = fault && atol(fault) == seq ? REMOTE : SUCCESS;
    snprintf(head, sizeof head, "%d %d %d %d %zu", o->kind, o->type, o->red, o->root, o->n);
    path_of(path, sizeof path, c, "c", c->my, 0, seq);
    bool gives = o->kind != BROADCAST || c->my == o->root;
    if (!publish(path, head, sizeof head, o->in, gives ? n * size : 0))
        return SYSTEM;
    for (int r = 0; r < c->n; r++) {
        path_of(path, sizeof path, c, "c", r, 0, seq);
        if (!(all[r] = await(c, path, &got)))
            return INTERNAL;
        if (memcmp(all[r], head, sizeof head))
            wrong = USAGE;
    }
    path_of(path, sizeof path, c, "c", c->my, 0, seq - 1); /* all ranks are in this one: they have read it */
    unlink(path);
    for (size_t i = 0; !wrong && i < o->n; i++) {
        size_t at = o->kind == REDUCE_SCATTER ? (size_t)c->my * o->n + i : i;
        if (o->kind == BROADCAST)
            memcpy(o->out + i * size, all[o->root] + sizeof head + i * size, size);
        else if (o->kind == ALL_GATHER)
            for (int r = 0; r < c->n; r++)
                memcpy(o->out + ((size_t)r * o->n + i) * size, all[r] + sizeof head + i * size, size);
        else if (o->kind != REDUCE || c->my == o->root) {
            double v = get(o->type, all[0] + sizeof head, at);
            for (int r = 1; r < c->n; r++) {
                double x = get(o->type, all[r] + sizeof head, at);
                v = o->red == PROD  ? v * x
                    : o->red == MAX ? (x > v ? x : v)
                    : o->red == MIN ? (x < v ? x : v)
                                    : v + x;
            }
            put(o->type, o->out, i, o->red == AVG ? v / c->n : v);
        }
    }
    for (int r = 0; r < c->n; r++)
        free(all[r]);
    return wrong;
}

/* All sends of a group are there before one of its receives waits; a send has ended when it was received. */
static int run_group(comm *c, group *g)
{
    char path[560], taken[64][560];
    int wrong = SUCCESS, ntaken = 0;
    size_t got;
    for (op *o = g->first; o && !wrong; o = o->next)
        if (o->kind == SEND && ntaken < 64) {
            path_of(taken[ntaken], sizeof taken[0], c, "p", c->my, o->root, c->sent[o->root]++);
            wrong = publish(taken[ntaken++], "", 0, o->in, o->n * size_of(o->type)) ? SUCCESS : SYSTEM;
        }
    for (op *o = g->first; o && !wrong; o = o->next) {
        if (o->kind != SEND && o->kind != RECV)
            wrong = collective(c, o);
        if (o->kind != RECV)
            continue;
        path_of(path, sizeof path, c, "p", o->root, c->my, c->got[o->root]++);
        char *p = await(c, path, &got);
        if (!p || got != o->n * size_of(o->type))
            wrong = p ? USAGE : INTERNAL;
        else
            memcpy(o->out, p, got);
        free(p);
        unlink(path);
    }
    for (int i = 0; i < ntaken && !wrong; i++)
        while (!access(taken[i], F_OK) && !c->aborted)
            nanosleep(&(struct timespec){ 0, 200000 }, NULL);
    return wrong;
}
static void *work(void *arg)
{
    comm *c = arg;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        while (!c->first && !c->ends)
            pthread_cond_wait(&c->more, &c->lock);
        group *g = c->first;
        if (g)
            c->first = g->next;
        pthread_mutex_unlock(&c->lock);
        if (!g)
            return NULL;
        int wrong = c->wrong ? c->wrong : run_group(c, g);
        if (wrong)
            c->wrong = wrong; /* and the queue stays busy */
        while (g->first) {
            op *o = g->first;
            g->first = o->next;
            if (!wrong)
                fake_cuda_end(o->queue);
            free(o);
        }
        free(g);
    }
}

/* --- the interface --------------------------------------------------------------------------------------------- */
static __thread int depth;
static __thread group *open_groups[16];
static __thread comm *open_comms[16];
static __thread int nopen;

static void submit(comm *c, group *g)
{
    pthread_mutex_lock(&c->lock);
    *(c->first ? &c->last->next : &c->first) = g;
    c->last = g;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
}
static int add(const char *name, op o, size_t nin, size_t nout)
{
    size_t size = size_of(o.type);
    if (refused(name))
        return SYSTEM;
    if (!size || o.root < 0 || o.root >= o.c->n || (o.in && nin && !fake_cuda_holds(o.in, nin * size)) ||
        (o.out && nout && !fake_cuda_holds(o.out, nout * size)))
        return ARGUMENT;
    op *p = malloc(sizeof *p);
    *p = o;
    fake_cuda_begin(o.queue);
    int i = 0;
    while (depth && i < nopen && open_comms[i] != o.c)
        i++;
    if (!depth || i == nopen) {
        group *g = calloc(1, sizeof *g);
        g->first = g->last = p;
        if (!depth)
            return submit(o.c, g), SUCCESS;
        open_comms[nopen] = o.c;
        open_groups[nopen++] = g;
    } else {
        open_groups[i]->last->next = p;
        open_groups[i]->last = p;
    }
    return SUCCESS;
}

API int ncclGetVersion(int *v) { return *v = 22703, SUCCESS; }
API const char *ncclGetErrorString(int r)
{
    return r == REMOTE     ? "remote process exited or there was a network error"
           : r == SYSTEM   ? "unhandled system error"
           : r == ARGUMENT ? "invalid argument"
           : r == USAGE    ? "invalid usage"
                           : "internal error";
}
API const char *ncclGetLastError(comm *c) { return "fake NCCL"; }
API int ncclGetUniqueId(id *u)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    memset(u, 0, sizeof *u);
    snprintf(u->bytes, sizeof u->bytes, "nccl-%d-%ld-%ld", (int)getpid(), (long)t.tv_sec, t.tv_nsec);
    return SUCCESS;
}
API int ncclCommInitRank(comm **out, int n, id u, int my)
{
    char path[560];
    size_t got;
    if (refused("ncclCommInitRank") || n > 64)
        return SYSTEM;
    comm *c = calloc(1, sizeof *c);
    snprintf(c->name, sizeof c->name, "%.60s", u.bytes);
    c->n = n;
    c->my = my;
    path_of(path, sizeof path, c, "i", my, 0, 0);
    publish(path, "x", 1, NULL, 0);
    for (int r = 0; r < n; r++) {
        path_of(path, sizeof path, c, "i", r, 0, 0);
        free(await(c, path, &got));
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    return *out = c, pthread_create(&c->thread, NULL, work, c) ? SYSTEM : SUCCESS;
}
static int end(comm *c, bool abort)
{
    pthread_mutex_lock(&c->lock);
    c->ends = true;
    c->aborted |= abort;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    return SUCCESS;
}
API int ncclCommDestroy(comm *c) { return end(c, false); }
API int ncclCommAbort(comm *c) { return end(c, true); }
API int ncclCommGetAsyncError(comm *c, int *wrong) { return *wrong = c->wrong, SUCCESS; }
API int ncclGroupStart(void) { return depth++, SUCCESS; }
API int ncclGroupEnd(void)
{
    if (--depth)
        return depth < 0 ? USAGE : SUCCESS;
    for (int i = 0; i < nopen; i++)
        submit(open_comms[i], open_groups[i]);
    return nopen = 0, SUCCESS;
}
API int ncclAllReduce(const void *in, void *out, size_t n, int type, int red, comm *c, void *q)
{
    return add("ncclAllReduce", (op){ c, ALL_REDUCE, type, red, 0, in, out, n, q, NULL }, n, n);
}
API int ncclReduce(const void *in, void *out, size_t n, int type, int red, int root, comm *c, void *q)
{
    return add("ncclReduce", (op){ c, REDUCE, type, red, root, in, out, n, q, NULL }, n,
               c->my == root ? n : 0);
}
API int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, comm *c, void *q)
{
    return add("ncclBroadcast", (op){ c, BROADCAST, type, 0, root, in, out, n, q, NULL },
               c->my == root ? n : 0, n);
}
API int ncclAllGather(const void *in, void *out, size_t n, int type, comm *c, void *q)
{
    return add("ncclAllGather", (op){ c, ALL_GATHER, type, 0, 0, in, out, n, q, NULL }, n, n * (size_t)c->n);
}
API int ncclReduceScatter(const void *in, void *out, size_t n, int type, int red, comm *c, void *q)
{
    return add("ncclReduceScatter", (op){ c, REDUCE_SCATTER, type, red, 0, in, out, n, q, NULL },
               n * (size_t)c->n, n);
}
API int ncclSend(const void *in, size_t n, int type, int peer, comm *c, void *q)
{
    return add("ncclSend", (op){ c, SEND, type, 0, peer, in, NULL, n, q, NULL }, n, 0);
}
API int ncclRecv(void *out, size_t n, int type, int peer, comm *c, void *q)
{
    return add("ncclRecv", (op){ c, RECV, type, 0, peer, NULL, out, n, q, NULL }, 0, n);
}
