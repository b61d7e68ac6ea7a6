/* later.c - records that take long to make (a graph's text, generated code) are made by a thread of their own while the
 * compile goes on. What the user can see does not change by that: before any code of the program goes on, and before a
 * log line is shown, everything is written (ev_settle), and a process that crashes lets the thread finish first. Only who
 * is killed from outside loses what is just being made: one hand-over and the one behind it. */
#define _GNU_SOURCE
#include "events/internal.h"
#include "base/clock.h"
#include "base/pool.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { ARG_MAX_BYTES = 128, SPIN_NS = 100000, NAP_NS = 40000, NAPS = 250, NJOB = 2 };
typedef struct job {
    ev_later_fn *fn; /* NULL: free */
    uint64_t number; /* the older one is smaller */
    bool taken, in_compile;
    const void *keep[2];
    ev_cid cid;
    _Alignas(16) char arg[ARG_MAX_BYTES];
} job;
int ev_unwritten; /* atomic; jobs handed over and not done */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool started, refused; /* refused: one core only, or no thread to be had */
    bool asleep;           /* the thread waits for work, and somebody has to wake it */
    int compiling;         /* atomic; compiles that are open: more work is to be expected */
    job job[NJOB];
    uint64_t number; /* of jobs, ever */
} q = { .lock = PTHREAD_MUTEX_INITIALIZER,
        .work = PTHREAD_COND_INITIALIZER,
        .done = PTHREAD_COND_INITIALIZER };

/* --- buffers ------------------------------------------------------------------------------------------- */
enum { NSCRATCH = 4, SCRATCH_BYTES = 1 << 18, SCRATCH_MOST = 1 << 22 };
static strbuf scratch[NSCRATCH]; /* of the thread below */
static bool scratch_used[NSCRATCH];
static _Thread_local bool on_thread;

strbuf *ev_scratch(void)
{
    for (int i = 0; i < NSCRATCH && on_thread; i++)
        if (!scratch_used[i]) {
            scratch_used[i] = true;
            return &scratch[i];
        }
    return mem_zalloc(sizeof(strbuf));
}

/* Memory that is new to the process makes it stop, all its threads included, for longer than the texts take. */
static void scratch_ready(void)
{
    for (int i = 0; i < NSCRATCH; i++) {
        strbuf_grow(&scratch[i], SCRATCH_BYTES);
        memset(scratch[i].s, 0, SCRATCH_BYTES);
    }
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
/* Under the lock: the oldest job that nobody is at, or NULL. kept: only one that needs it; NULL: any. */
static bool keeps(const job *j, const void *kept)
{
    return j->fn && (!kept || j->keep[0] == kept || j->keep[1] == kept);
}
static job *waiting(const void *kept)
{
    job *best = NULL;
    for (job *j = q.job; j < q.job + NJOB; j++)
        if (keeps(j, kept) && !j->taken && (!best || j->number < best->number))
            best = j;
    return best;
}
static bool unfinished(const void *kept)
{
    for (int i = 0; i < NJOB; i++)
        if (keeps(&q.job[i], kept))
            return true;
    return false;
}

/* What records cost within is part of the whole. */
static void timed(ev_later_fn *fn, void *arg)
{
    int64_t t0 = clock_ns(), before = ev_trace_spent();
    fn(arg);
    ev_trace_spend(clock_ns() - t0 - (ev_trace_spent() - before));
}

/* Under the lock, which is released meanwhile. */
static void run_job(job *j)
{
    j->taken = true;
    const ev_cid *now = ev_cid_now();
    ev_cid before = now ? *now : (ev_cid){ 0 };
    ev_cid_set(j->in_compile ? &j->cid : NULL);
    pthread_mutex_unlock(&q.lock);
    timed(j->fn, j->arg);
    ev_cid_set(now ? &before : NULL);
    pthread_mutex_lock(&q.lock);
    *j = (job){ 0 };
    __atomic_fetch_sub(&ev_unwritten, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&q.done);
}

/* Waking a thread takes the one that wakes it longer than writing a small record. So within a compile this thread looks
 * for work by itself, once it is awake, and for a while. */
static job *await_work(void)
{
    job *j;
    for (int naps = 0; !(j = waiting(NULL)); naps++)
        if (naps < NAPS && __atomic_load_n(&q.compiling, __ATOMIC_RELAXED) > 0) {
            pthread_mutex_unlock(&q.lock);
            nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
            pthread_mutex_lock(&q.lock);
        } else {
            q.asleep = true;
            pthread_cond_wait(&q.work, &q.lock);
            q.asleep = false;
            naps = 0;
        }
    return j;
}

static void *worker(void *unused)
{
    on_thread = true;
    scratch_ready();
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL); /* naps as short as asked for */
    if (sched_getscheduler(0) == SCHED_OTHER)        /* waking does not push the compile aside */
        pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){ 0 });
    pthread_mutex_lock(&q.lock);
    for (;;) {
        run_job(await_work());
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
    q.started = q.asleep = false;
    q.compiling = 0;
    memset(q.job, 0, sizeof q.job);
    ev_unwritten = 0;
}

void ev_later_compiling(int more) { __atomic_fetch_add(&q.compiling, more, __ATOMIC_RELAXED); }

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
    q.started = thread_apart(worker, NULL);
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
    timed(fn, here);
}

void ev_later(ev_later_fn *fn, const void *arg, size_t n, const void *keep, const void *keep2)
{
    assert(n <= ARG_MAX_BYTES);
    pthread_mutex_lock(&q.lock);
    job *j = NULL, *older = waiting(NULL);
    for (int i = 0; i < NJOB && !j; i++)
        j = q.job[i].fn ? NULL : &q.job[i];
    if (!j && older) { /* in order */
        run_job(older);
        j = older->fn ? NULL : older;
    }
    j = j && start() ? j : NULL;
    bool wake = j && q.asleep;
    if (j) {
        const ev_cid *c = ev_cid_now();
        *j = (job){ .fn = fn,
                    .number = q.number++,
                    .in_compile = c != NULL,
                    .cid = c ? *c : (ev_cid){ 0 },
                    .keep = { keep, keep2 } };
        memcpy(j->arg, arg, n);
        __atomic_fetch_add(&ev_unwritten, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&q.lock);
    if (wake)
        pthread_cond_signal(&q.work);
    if (!j)
        make_now(fn, arg, n);
}

void ev_wait(const void *kept)
{
    if (!__atomic_load_n(&ev_unwritten, __ATOMIC_ACQUIRE) || on_thread)
        return;
    pthread_mutex_lock(&q.lock);
    for (job *j; unfinished(kept);) {
        if ((j = waiting(kept))) { /* the thread has not come to it yet */
            run_job(j);
            continue;
        }
        pthread_mutex_unlock(&q.lock); /* nearly done, most of the time: that is sooner than sleeping */
        int left = __atomic_load_n(&ev_unwritten, __ATOMIC_ACQUIRE);
        for (int64_t until = clock_ns() + SPIN_NS;
             left && __atomic_load_n(&ev_unwritten, __ATOMIC_ACQUIRE) >= left && clock_ns() < until;)
            ;
        pthread_mutex_lock(&q.lock);
        if (unfinished(kept) && !waiting(kept))
            pthread_cond_wait(&q.done, &q.lock);
    }
    pthread_mutex_unlock(&q.lock);
}

/* --- crashes ------------------------------------------------------------------------------------------- */
/* A kernel that ends the process must not take along the record of its own code: the other thread may finish, then the
 * signal does what it did before. Nothing here but waiting: the crashed thread may hold any lock. */
static const int crashes[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };
static struct sigaction before[COUNT(crashes)];
static bool watching;

static void on_crash(int sig, siginfo_t *info, void *unused)
{
    enum { PATIENCE = 2000 };
    for (int i = 0; i < PATIENCE && !on_thread && __atomic_load_n(&ev_unwritten, __ATOMIC_ACQUIRE); i++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    for (size_t i = 0; i < COUNT(crashes); i++)
        if (crashes[i] == sig)
            sigaction(sig, &before[i], NULL);
    if (info->si_code <= 0)
        raise(
            sig); /* sent by somebody; otherwise the instruction at fault is run once more, and now it counts */
}

void ev_crash_watch(bool on)
{
    struct sigaction a = { .sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER }, now;
    for (size_t i = 0; i < COUNT(crashes) && on != watching; i++)
        if (on)
            sigaction(crashes[i], &a, &before[i]);
        else if (!sigaction(crashes[i], NULL, &now) && now.sa_sigaction == on_crash)
            sigaction(crashes[i], &before[i], NULL);
    watching = on;
}
