/* later.c - a record that takes long to make (a graph's text, generated code) is made by a thread of its own while the
 * compile goes on; one at a time: who hands over the next waits for the one before. So who is killed from outside loses no
 * more than the record that is being made. What the program itself can see does not change: before any code of it goes on,
 * and before a log line is shown, the record is written (ev_settle), and a process that crashes lets the thread finish
 * first. */
#define _GNU_SOURCE
#include "events/internal.h"
#include "base/clock.h"
#include "base/pool.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { ARG_MAX_BYTES = 64, SPIN_NS = 100000, NAP_NS = 40000, NAPS = 250 };
typedef struct job {
    ev_later_fn *fn; /* NULL: free */
    bool taken, in_compile;
    const void *keep;
    ev_cid cid;
    _Alignas(16) char arg[ARG_MAX_BYTES];
} job;
int ev_unwritten; /* atomic; 1: a job is handed over and not done */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool started, refused; /* refused: one core only, or no thread to be had */
    bool asleep;           /* the thread waits for work, and somebody has to wake it */
    int compiling;         /* atomic; compiles that are open: more work is to be expected */
    job job;
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
    enum { SMALL = 96 << 10 }; /* for what texts need besides; libc gives back more than that */
    char *p = mem_alloc(SMALL);
    memset(p, 1, SMALL);
    __asm__ volatile("" : : "r"(p) : "memory");
    free(p);
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
/* Under the lock: is there a job that needs this object (NULL: any)? And one that nobody is at? */
static bool unfinished(const void *kept) { return q.job.fn && (!kept || q.job.keep == kept); }
static bool waiting(void) { return q.job.fn && !q.job.taken; }

/* What records cost within is part of the whole. */
void ev_now(ev_later_fn *fn, void *arg)
{
    int64_t t0 = clock_ns(), before = ev_trace_spent();
    fn(arg);
    ev_trace_spend(clock_ns() - t0 - (ev_trace_spent() - before));
}

/* Under the lock, which is released meanwhile. */
static void run_job(void)
{
    job *j = &q.job;
    j->taken = true;
    const ev_cid *now = ev_cid_now();
    ev_cid before = now ? *now : (ev_cid){ 0 };
    ev_cid_set(j->in_compile ? &j->cid : NULL);
    pthread_mutex_unlock(&q.lock);
    ev_now(j->fn, j->arg);
    ev_cid_set(now ? &before : NULL);
    pthread_mutex_lock(&q.lock);
    *j = (job){ 0 };
    __atomic_store_n(&ev_unwritten, 0, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&q.done);
}

/* Waking a thread takes the one that wakes it longer than writing a small record. So within a compile this thread looks
 * for work by itself, once it is awake, and for a while. */
static void await_work(void)
{
    for (int naps = 0; !waiting(); naps++)
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
        await_work();
        run_job();
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
    memset(&q.job, 0, sizeof q.job);
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
    ev_now(fn, here);
}

/* Under the lock: until nothing needs the object any more. A job that the thread has not come to yet is done here. */
static void finish_job(const void *kept)
{
    while (unfinished(kept)) {
        if (waiting()) {
            run_job();
            continue;
        }
        pthread_mutex_unlock(&q.lock); /* nearly done, most of the time: that is sooner than sleeping */
        for (int64_t until = clock_ns() + SPIN_NS;
             __atomic_load_n(&ev_unwritten, __ATOMIC_ACQUIRE) && clock_ns() < until;)
            ;
        pthread_mutex_lock(&q.lock);
        if (unfinished(kept) && !waiting())
            pthread_cond_wait(&q.done, &q.lock);
    }
}

void ev_later(ev_later_fn *fn, const void *arg, size_t n, const void *keep)
{
    assert(n <= ARG_MAX_BYTES);
    pthread_mutex_lock(&q.lock);
    finish_job(NULL);
    bool handed = start(), wake = handed && q.asleep;
    if (handed) {
        const ev_cid *c = ev_cid_now();
        q.job = (job){ .fn = fn, .in_compile = c != NULL, .cid = c ? *c : (ev_cid){ 0 }, .keep = keep };
        memcpy(q.job.arg, arg, n);
        __atomic_store_n(&ev_unwritten, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&q.lock);
    if (wake)
        pthread_cond_signal(&q.work);
    if (!handed)
        make_now(fn, arg, n);
}

void ev_wait(const void *kept)
{
    if (!__atomic_load_n(&ev_unwritten, __ATOMIC_ACQUIRE) || on_thread)
        return;
    pthread_mutex_lock(&q.lock);
    finish_job(kept);
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
