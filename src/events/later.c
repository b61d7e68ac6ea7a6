/* later.c - records that take long to make (a graph's text, generated code) are made by a thread of their own while the
 * compile goes on. One at a time: whoever comes while it is busy makes the record at once. So at any moment a killed
 * process loses at most that record and the one being written, and none once the compile has ended (ev_metrics_end). */
#define _GNU_SOURCE
#include "events/internal.h"
#include <sched.h>
#include <signal.h>
#include <unistd.h>

enum { ARG_MAX_BYTES = 128, SPINS = 4000 };
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool started, refused; /* refused: one core only, or no thread to be had */
    int busy;              /* atomic; 1 from handing over until done */
    const void *keep[2];
    ev_later_fn *fn;
    bool in_compile;
    ev_cid cid;
    _Alignas(16) char arg[ARG_MAX_BYTES];
} q = { .lock = PTHREAD_MUTEX_INITIALIZER,
        .work = PTHREAD_COND_INITIALIZER,
        .done = PTHREAD_COND_INITIALIZER };

/* --- buffers ------------------------------------------------------------------------------------------- */
enum { NSCRATCH = 4, SCRATCH_BYTES = 1 << 16, SCRATCH_MOST = 1 << 22 };
static strbuf scratch[NSCRATCH]; /* of the thread below */
static bool scratch_used[NSCRATCH];
static _Thread_local bool on_thread;

strbuf *ev_scratch(void)
{
    for (int i = 0; i < NSCRATCH && on_thread; i++)
        if (!scratch_used[i]) {
            scratch_used[i] = true;
            if (!scratch[i].cap)
                strbuf_grow(&scratch[i], SCRATCH_BYTES);
            return &scratch[i];
        }
    return mem_zalloc(sizeof(strbuf));
}

void ev_scratch_done(strbuf *b)
{
    if (b >= scratch && b < scratch + NSCRATCH) {
        strbuf_clear(b);
        if (b->cap > SCRATCH_MOST)
            strbuf_free(b);
        scratch_used[b - scratch] = false;
        return;
    }
    strbuf_free(b);
    free(b);
}

/* --- the thread ---------------------------------------------------------------------------------------- */
/* Under the lock, which is released meanwhile. */
static void run_one(void)
{
    ev_later_fn *fn = q.fn;
    q.fn = NULL; /* taken */
    const ev_cid *now = ev_cid_now();
    ev_cid before = now ? *now : (ev_cid){ 0 };
    ev_cid_set(q.in_compile ? &q.cid : NULL);
    pthread_mutex_unlock(&q.lock);
    fn(q.arg);
    ev_cid_set(now ? &before : NULL);
    pthread_mutex_lock(&q.lock);
    q.keep[0] = q.keep[1] = NULL;
    __atomic_store_n(&q.busy, 0, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&q.done);
}

static void *worker(void *unused)
{
    on_thread = true;
    pthread_setschedparam(pthread_self(), SCHED_BATCH,
                          &(struct sched_param){ 0 }); /* waking does not push the compile aside */
    pthread_mutex_lock(&q.lock);
    for (;;) {
        while (!q.fn)
            pthread_cond_wait(&q.work, &q.lock);
        run_one();
    }
    return NULL;
}

/* A forked child has no worker; what the parent's is at stays the parent's. */
static void fork_lock(void) { pthread_mutex_lock(&q.lock); }
static void fork_unlock(void) { pthread_mutex_unlock(&q.lock); }
static void fork_child(void)
{
    memset(scratch_used, 0, sizeof scratch_used);
    pthread_mutex_init(&q.lock, NULL);
    pthread_cond_init(&q.work, NULL);
    pthread_cond_init(&q.done, NULL);
    q.started = false;
    q.fn = NULL;
    q.keep[0] = q.keep[1] = NULL;
    q.busy = 0;
}

static void finish(void)
{
    ev_wait(NULL);
    ev_trace_tidy();
}
static void once_only(void)
{
    cpu_set_t set;
    q.refused = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < 2;
    pthread_atfork(fork_lock, fork_unlock, fork_child);
    atexit(finish);
}

/* Under the lock. */
static bool start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, once_only);
    if (q.started || q.refused)
        return q.started;
    pthread_t t;
    sigset_t all, before;
    sigfillset(&all); /* signals are for the threads of the program */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    q.started = !pthread_create(&t, NULL, worker, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (q.started)
        pthread_detach(t);
    q.refused = !q.started;
    return q.started;
}

void ev_later_ready(void)
{
    pthread_mutex_lock(&q.lock);
    start();
    pthread_mutex_unlock(&q.lock);
}

static __attribute__((noinline)) void make_now(ev_later_fn *fn, const void *arg, size_t n)
{
    _Alignas(16) char here[ARG_MAX_BYTES];
    memcpy(here, arg, n);
    fn(here);
}

void ev_later(ev_later_fn *fn, const void *arg, size_t n, const void *keep, const void *keep2)
{
    assert(n <= ARG_MAX_BYTES);
    pthread_mutex_lock(&q.lock);
    bool taken = !__atomic_load_n(&q.busy, __ATOMIC_RELAXED) && start();
    if (taken) {
        const ev_cid *c = ev_cid_now();
        q.in_compile = c != NULL;
        if (c)
            q.cid = *c;
        memcpy(q.arg, arg, n);
        q.keep[0] = keep;
        q.keep[1] = keep2;
        q.fn = fn;
        __atomic_store_n(&q.busy, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&q.lock);
    if (taken)
        pthread_cond_signal(&q.work);
    if (!taken)
        make_now(fn, arg, n);
}

void ev_wait(const void *kept)
{
    if (!__atomic_load_n(&q.busy, __ATOMIC_ACQUIRE))
        return;
    for (int i = 0; i < SPINS && !kept; i++) /* it is nearly done most of the time */
        if (!__atomic_load_n(&q.busy, __ATOMIC_ACQUIRE))
            return;
    pthread_mutex_lock(&q.lock);
    while (__atomic_load_n(&q.busy, __ATOMIC_RELAXED) && (!kept || q.keep[0] == kept || q.keep[1] == kept))
        if (q.fn)
            run_one(); /* the thread has not come to it yet */
        else
            pthread_cond_wait(&q.done, &q.lock);
    pthread_mutex_unlock(&q.lock);
}
