/* shm.c - the back end over shared memory, for the processes of one host.
 *
 * A collective is a sequence of phases. In a phase each rank writes what the others need of it into its buffer, says so by the
 * number of the phase, waits until all have, and reads. A rank has two buffers, used in turn: who writes phase p has seen all
 * ranks in phase p - 1, so nobody reads phase p - 2 any more. One wait a phase is enough.
 * Messages between two ranks are bytes in a ring for each direction. */
#include "comm/backend.h"
#include "base/vec.h"
#include "base/clock.h"
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 256 << 10, SMALL = 16 << 10, CHANNEL = 64 << 10, LINE = 64 };

typedef struct slot { /* one rank's state; a cache line of its own */
    _Atomic uint64_t phase;
    bool more[2]; /* of all_to_all: another phase follows */
    char pad[LINE - 10];
} slot;
typedef struct channel {
    _Atomic uint64_t written;
    char pad[LINE - 8];
    _Atomic uint64_t read;
    char pad2[LINE - 8];
    char bytes[CHANNEL];
} channel;
typedef struct segment {
    _Atomic uint32_t ready, joined;
    _Atomic int maker;
    _Atomic uint64_t maker_born;
    char pad[LINE];
    _Atomic uint32_t bell, sleepers;
    char pad2[LINE];
    slot rank[]; /* then the buffers, then the channels */
} segment;

typedef struct head { /* of a message */
    int64_t nbytes;
    int64_t tag;
} head;
typedef struct late { /* a message that nobody had asked for when it came */
    int src, tag;
    int64_t nbytes, got;
    char *bytes;
    struct req *taker;
} late;
typedef struct reader { /* of one channel: the message that is being read */
    bool busy;
    head h;
    int64_t got;
    struct req *to; /* or */
    late *keep;
} reader;

typedef struct req {
    comm_call c;
    int64_t at;     /* elements done */
    int step;       /* all_reduce: 0 values, 1 sums */
    bool published; /* this phase's bytes */
    bool done;
    int source;
    int64_t sent, nbytes; /* point to point; sent counts the head, too */
    const char *failed;
} req;

typedef struct group {
    segment *s;
    size_t nbytes;
    int n, my;
    bool crowded;     /* more ranks than cores: do not spin */
    const char *mine; /* what this rank gave to a chunk of all_reduce */
    uint64_t phase;
    VEC(req *) sends;
    VEC(req *) recvs;
    VEC(late *) early;
    reader *from;
} group;

static char *buffer(group *g, int r, uint64_t phase)
{
    return (char *)(g->s->rank + g->n) + ((size_t)r * 2 + (phase & 1)) * BUFFER;
}
static channel *channel_of(group *g, int src, int dst)
{
    char *base = (char *)(g->s->rank + g->n) + (size_t)g->n * 2 * BUFFER;
    return (channel *)(base + ((size_t)src * (size_t)g->n + (size_t)dst) * sizeof(channel));
}
static void ring_bell(group *g)
{
    atomic_fetch_add(&g->s->bell, 1);
    if (atomic_load(&g->s->sleepers))
        futex_wake(&g->s->bell);
}

/* --- the group ------------------------------------------------------------------------------------------ */
static void head_of(void *p, shared_head *h)
{
    segment *s = p;
    *h = (shared_head){ &s->ready, &s->joined, &s->maker, &s->maker_born };
}
static bool shm_open_(const comm_spec *s, comm_place *p, tp_err *err)
{
    if (p->rank < 0 || p->size < 1)
        return err_set(err, ERR_value, "the shared-memory back end has to be told rank and world size");
    p->local_rank = p->rank;
    p->local_size = p->size;
    return true;
}
static void shm_close(bool aborted) {}

static void *shm_group(const char *id, const int *ranks, int n, int my, bool near, int64_t deadline,
                       tp_err *err)
{
    group *g = mem_zalloc(sizeof *g);
    char name[200];
    snprintf(name, sizeof name, "%s.data", id);
    g->n = n;
    g->my = my;
    g->crowded = n > (int)sysconf(_SC_NPROCESSORS_ONLN);
    g->nbytes = sizeof(segment) + (size_t)n * (sizeof(slot) + 2 * BUFFER) +
                (size_t)n * (size_t)n * sizeof(channel);
    g->s = shared_map(name, g->nbytes, my == 0, deadline, head_of, err);
    if (!g->s) {
        free(g);
        return NULL;
    }
    g->from = mem_zalloc((size_t)n * sizeof *g->from);
    if ((int)atomic_fetch_add(&g->s->joined, 1) + 1 == n)
        shared_unlink(name);
    return g;
}
static void shm_group_free(void *group_)
{
    group *g = group_;
    for (size_t i = 0; i < g->early.n; i++)
        free(g->early.at[i]->bytes), free(g->early.at[i]);
    vec_free(&g->early);
    vec_free(&g->sends);
    vec_free(&g->recvs);
    munmap(g->s, g->nbytes);
    free(g->from);
    free(g);
}

/* --- phases --------------------------------------------------------------------------------------------- */
static int64_t part_of(group *g, req *r) /* elements a phase moves for each rank */
{
    size_t size = dtype_size(r->c.dt);
    bool shared = r->c.kind == COMM_scatter || r->c.kind == COMM_reduce_scatter ||
                  r->c.kind == COMM_all_to_all;
    return (int64_t)((shared ? BUFFER / (size_t)g->n : BUFFER) / size);
}
static int64_t count(const int64_t *counts, int64_t n, int r) { return counts ? counts[r] : n; }
static int64_t clip(int64_t all, int64_t at, int64_t part) { return MAX(0, MIN(part, all - at)); }

static bool is_small(group *g, const req *r) { return r->c.n * (int64_t)dtype_size(r->c.dt) <= SMALL; }
/* The elements of a chunk that rank r sums. */
static void slice(int64_t m, int n, int r, int64_t *from, int64_t *to)
{
    int64_t each = (m + n - 1) / n;
    each = (each + 15) & ~(int64_t)15;
    *from = MIN(m, each * r);
    *to = MIN(m, each * (r + 1));
}
static void sum_into(group *g, req *r, void *out, int64_t offset, int64_t m)
{
    const void *x[COMM_MAX_RANKS];
    for (int i = 0; i < g->n; i++)
        x[i] = (i == g->my && g->mine ? g->mine : buffer(g, i, g->phase)) +
               (size_t)offset * dtype_size(r->c.dt);
    comm_reduce_all(r->c.dt, r->c.op, out, x, g->n, m);
}

/* Writes what this phase takes of this rank. to: its buffer of the coming phase. */
static void pack(group *g, req *r, char *to)
{
    const comm_call *c = &r->c;
    size_t size = dtype_size(c->dt);
    int64_t part = part_of(g, r), m = clip(c->n, r->at, part), from, end, at = 0;
    const char *in = c->in;
    bool more = false;
    switch (c->kind) {
    case COMM_all_reduce:
        if (is_small(g, r))
            break;
        /* This rank's slice is summed from where it is, and nobody else reads it. */
        slice(m, g->n, g->my, &from, &end);
        g->mine = in + (size_t)r->at * size;
        if (r->step)
            sum_into(g, r, to + (size_t)from * size, from, end - from);
        else {
            memcpy(to, g->mine, (size_t)from * size);
            memcpy(to + (size_t)end * size, g->mine + (size_t)end * size, (size_t)(m - end) * size);
        }
        g->mine = NULL;
        return;
    case COMM_broadcast:
        if (g->my != c->root)
            return;
        break;
    case COMM_scatter:
        if (g->my != c->root)
            return;
        /* fallthrough */
    case COMM_reduce_scatter:
        for (int i = 0; i < g->n; i++)
            memcpy(to + (size_t)(i * part) * size, in + (size_t)(i * c->n + r->at) * size, (size_t)m * size);
        return;
    case COMM_all_to_all:
        for (int i = 0; i < g->n; i++) {
            int64_t all = count(c->in_count, c->n, i);
            int64_t k = clip(all, r->at, part);
            if (k)
                memcpy(to + (size_t)(i * part) * size, in + (size_t)(at + r->at) * size, (size_t)k * size);
            more |= r->at + part < all;
            at += all;
        }
        g->s->rank[g->my].more[(g->phase + 1) & 1] = more;
        return;
    case COMM_barrier: return;
    default: break;
    }
    if (m)
        memcpy(to, in + (size_t)r->at * size, (size_t)m * size);
}

/* Reads what the others wrote. True: that was the last phase. */
static bool unpack(group *g, req *r)
{
    const comm_call *c = &r->c;
    size_t size = dtype_size(c->dt);
    int64_t part = part_of(g, r), m = clip(c->n, r->at, part), from, end, at = 0;
    char *out = c->out;
    bool more = false;
    switch (c->kind) {
    case COMM_barrier: return true;
    case COMM_all_reduce:
        if (!is_small(g, r) && r->step == 0) {
            r->step = 1;
            return false;
        }
        for (int i = 0; i < g->n && r->step; i++) {
            slice(m, g->n, i, &from, &end);
            memcpy(out + (size_t)(r->at + from) * size, buffer(g, i, g->phase) + (size_t)from * size,
                   (size_t)(end - from) * size);
        }
        if (!r->step)
            sum_into(g, r, out, 0, m);
        r->step = 0;
        break;
    case COMM_reduce:
        if (g->my == c->root)
            sum_into(g, r, out + (size_t)r->at * size, 0, m);
        break;
    case COMM_broadcast:
        if (g->my != c->root && m)
            memcpy(out + (size_t)r->at * size, buffer(g, c->root, g->phase), (size_t)m * size);
        break;
    case COMM_gather:
        if (g->my != c->root)
            break;
        /* fallthrough */
    case COMM_all_gather:
        for (int i = 0; i < g->n && m; i++)
            memcpy(out + (size_t)(i * c->n + r->at) * size, buffer(g, i, g->phase), (size_t)m * size);
        break;
    case COMM_scatter:
        if (m)
            memcpy(out + (size_t)r->at * size, buffer(g, c->root, g->phase) + (size_t)(g->my * part) * size,
                   (size_t)m * size);
        break;
    case COMM_reduce_scatter: sum_into(g, r, out + (size_t)r->at * size, g->my * part, m); break;
    case COMM_all_to_all:
        for (int i = 0; i < g->n; i++) {
            int64_t all = count(c->out_count, c->n, i), k = clip(all, r->at, part);
            if (k)
                memcpy(out + (size_t)(at + r->at) * size,
                       buffer(g, i, g->phase) + (size_t)(g->my * part) * size, (size_t)k * size);
            more |= g->s->rank[i].more[g->phase & 1];
            at += all;
        }
        r->at += part;
        return !more;
    default: assert(!"a collective");
    }
    r->at += part;
    return r->at >= c->n;
}

static bool all_in(group *g, uint64_t phase)
{
    for (int i = 0; i < g->n; i++)
        if (atomic_load_explicit(&g->s->rank[i].phase, memory_order_acquire) < phase)
            return false;
    return true;
}
static bool collective_step(group *g, req *r)
{
    for (;;) {
        if (!r->published) {
            pack(g, r, buffer(g, g->my, g->phase + 1));
            g->phase++;
            atomic_store_explicit(&g->s->rank[g->my].phase, g->phase, memory_order_release);
            ring_bell(g);
            r->published = true;
        }
        if (!all_in(g, g->phase))
            return false;
        r->published = false;
        if (unpack(g, r))
            return true;
    }
}

/* --- messages ------------------------------------------------------------------------------------------- */
static int64_t put(channel *ch, const char *p, int64_t n)
{
    uint64_t w = atomic_load(&ch->written),
             room = CHANNEL - (w - atomic_load_explicit(&ch->read, memory_order_acquire));
    n = MIN(n, (int64_t)room);
    for (int64_t done = 0; done < n;) {
        int64_t at = (int64_t)((w + (uint64_t)done) % CHANNEL), k = MIN(n - done, CHANNEL - at);
        memcpy(ch->bytes + at, p + done, (size_t)k);
        done += k;
    }
    atomic_store_explicit(&ch->written, w + (uint64_t)n, memory_order_release);
    return n;
}
static int64_t get(channel *ch, char *p, int64_t n)
{
    uint64_t r = atomic_load(&ch->read), there = atomic_load_explicit(&ch->written, memory_order_acquire) - r;
    n = MIN(n, (int64_t)there);
    for (int64_t done = 0; done < n;) {
        int64_t at = (int64_t)((r + (uint64_t)done) % CHANNEL), k = MIN(n - done, CHANNEL - at);
        memcpy(p + done, ch->bytes + at, (size_t)k);
        done += k;
    }
    atomic_store_explicit(&ch->read, r + (uint64_t)n, memory_order_release);
    return n;
}

static void remove_req(group *g, req *r)
{
    for (size_t i = 0; i < g->sends.n; i++)
        if (g->sends.at[i] == r) {
            memmove(&g->sends.at[i], &g->sends.at[i + 1], (g->sends.n - i - 1) * sizeof r);
            g->sends.n--;
            return;
        }
    for (size_t i = 0; i < g->recvs.n; i++)
        if (g->recvs.at[i] == r) {
            memmove(&g->recvs.at[i], &g->recvs.at[i + 1], (g->recvs.n - i - 1) * sizeof r);
            g->recvs.n--;
            return;
        }
}

static bool send_some(group *g, int dst) /* the oldest message to dst */
{
    req *r = NULL;
    for (size_t i = 0; i < g->sends.n && !r; i++)
        if (g->sends.at[i]->c.root == dst)
            r = g->sends.at[i];
    if (!r)
        return false;
    channel *ch = channel_of(g, g->my, dst);
    head h = { r->nbytes, r->c.tag };
    int64_t moved = 0, n;
    if (r->sent < (int64_t)sizeof h) {
        n = put(ch, (char *)&h + r->sent, (int64_t)sizeof h - r->sent);
        r->sent += n;
        moved += n;
    }
    if (r->sent >= (int64_t)sizeof h) {
        n = put(ch, (const char *)r->c.in + (r->sent - (int64_t)sizeof h),
                r->nbytes - (r->sent - (int64_t)sizeof h));
        r->sent += n;
        moved += n;
    }
    if (moved)
        ring_bell(g);
    if (r->sent == (int64_t)sizeof h + r->nbytes) {
        r->done = true;
        remove_req(g, r);
        return true;
    }
    return false;
}

static bool fits(const req *r, int src, int64_t tag)
{
    return (r->c.root < 0 || r->c.root == src) && r->c.tag == tag;
}
static void finish(group *g, req *r, int src, int64_t nbytes, const char *bytes)
{
    if (nbytes != r->nbytes)
        r->failed = "the sender's message has another size";
    else if (bytes)
        memcpy(r->c.out, bytes, (size_t)nbytes);
    r->source = src;
    r->done = true;
    remove_req(g, r);
}

static bool read_some(group *g, int src)
{
    reader *rd = &g->from[src];
    channel *ch = channel_of(g, src, g->my);
    if (!rd->busy) {
        uint64_t there = atomic_load_explicit(&ch->written, memory_order_acquire) - atomic_load(&ch->read);
        if (there < sizeof(head))
            return false;
        get(ch, (char *)&rd->h, sizeof(head));
        rd->busy = true;
        rd->got = 0;
        rd->to = NULL;
        rd->keep = NULL;
        for (size_t i = 0; i < g->recvs.n && !rd->to; i++)
            if (fits(g->recvs.at[i], src, rd->h.tag) && g->recvs.at[i]->nbytes == rd->h.nbytes &&
                !g->recvs.at[i]->step)
                rd->to = g->recvs.at[i];
        if (rd->to)
            rd->to->step = 1; /* taken */
        else {
            rd->keep = mem_zalloc(sizeof *rd->keep);
            *rd->keep = (late){ .src = src, .tag = (int)rd->h.tag, .nbytes = rd->h.nbytes };
            rd->keep->bytes = mem_alloc((size_t)MAX(1, rd->h.nbytes));
            vec_push(&g->early, rd->keep);
        }
    }
    char *to = rd->to ? rd->to->c.out : rd->keep->bytes;
    int64_t n = get(ch, to + rd->got, rd->h.nbytes - rd->got);
    rd->got += n;
    if (n || !rd->h.nbytes)
        ring_bell(g);
    if (rd->keep)
        rd->keep->got = rd->got;
    if (rd->got < rd->h.nbytes)
        return false;
    rd->busy = false;
    if (rd->to)
        finish(g, rd->to, src, rd->h.nbytes, NULL);
    return true;
}

/* Messages that came before somebody asked for them, oldest first. */
static void take_early(group *g, req *r)
{
    for (size_t i = 0; i < g->early.n; i++) {
        late *l = g->early.at[i];
        if (!fits(r, l->src, l->tag))
            continue;
        if (l->got < l->nbytes)
            return; /* it is still coming; those after it wait their turn */
        finish(g, r, l->src, l->nbytes, l->bytes);
        memmove(&g->early.at[i], &g->early.at[i + 1], (g->early.n - i - 1) * sizeof l);
        g->early.n--;
        free(l->bytes);
        free(l);
        return;
    }
}

/* --- requests ------------------------------------------------------------------------------------------- */
static void *shm_start(void *group_, const comm_call *c, tp_err *err)
{
    group *g = group_;
    req *r = mem_zalloc(sizeof *r);
    r->c = *c;
    r->source = -1;
    r->nbytes = c->n * (int64_t)dtype_size(c->dt);
    if (c->kind == COMM_send)
        vec_push(&g->sends, r);
    if (c->kind == COMM_recv)
        vec_push(&g->recvs, r);
    return r;
}
static int shm_test(void *group_, void *req_, int *source, tp_err *err)
{
    group *g = group_;
    req *r = req_;
    if (r->c.kind == COMM_send)
        while (!r->done && send_some(g, r->c.root))
            ;
    else if (r->c.kind == COMM_recv) {
        for (int src = 0; src < g->n && !r->done; src++)
            while (!r->done && (r->c.root < 0 || r->c.root == src)) {
                if (!r->step) /* a message that is already being copied here needs no other */
                    take_early(g, r);
                if (r->done || !read_some(g, src))
                    break;
            }
        if (!r->done && !r->step)
            take_early(g, r);
        *source = r->source;
    } else
        r->done = r->done || collective_step(g, r);
    if (r->failed) {
        err_set(err, ERR_runtime, "%s: expected %lld bytes from rank %d of the group", r->failed,
                (long long)r->nbytes, r->source);
        return -1;
    }
    return r->done;
}
static void shm_drop(void *group_, void *req_)
{
    remove_req(group_, req_);
    free(req_);
}
static uint32_t shm_mark(void *group_) { return atomic_load(&((group *)group_)->s->bell); }
static void shm_idle(void *group_, uint32_t seen, int64_t waited_ns)
{
    group *g = group_;
    if (!g->crowded && waited_ns < 40000) {
        for (int i = 0; i < 64 && atomic_load(&g->s->bell) == seen; i++)
            atomic_signal_fence(memory_order_seq_cst);
        return;
    }
    atomic_fetch_add(&g->s->sleepers, 1);
    if (atomic_load(&g->s->bell) == seen)
        futex_wait(&g->s->bell, seen, 20000000);
    atomic_fetch_sub(&g->s->sleepers, 1);
}

const comm_backend comm_shm = { "shm",     shm_open_, shm_close, shm_group, shm_group_free,
                                shm_start, shm_test,  shm_drop,  shm_mark,  shm_idle };
