/* pool.c - see pool.h.
 * A job is posted by publishing one 64-bit ticket: serial << 32 | next part << 16 | parts. Claiming a part
 * is a compare-and-swap on it. A job cannot end before its claimed parts do, so its description is stable
 * from a successful claim until that part is counted done; a late worker merely fails to claim. */
#define _GNU_SOURCE
#include "base/pool.h"
#include "base/clock.h"
#include "base/envvars.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

/* Long enough to bridge the gap between two kernels of one step list, short enough to cost an idle
 * process nothing one could measure. */
enum { SPIN_NS = 40 * 1000 };

static _Atomic uint64_t ticket;
static _Atomic uint32_t n_done;  /* parts finished in the current job */
static _Atomic int n_asleep;     /* threads in, or about to enter, a wait on wake */
static _Atomic bool busy;        /* a job is running */
static _Atomic int want;         /* threads a job may use; 0: not decided yet */
static _Atomic uint32_t n_forks; /* how many forks lie between the first process and this one */
static struct {                  /* the current job: written before the ticket, read after a claim */
    pool_fn *fn;
    void *arg;
    int64_t n, grain, blocks;
    uint32_t parts;
} job;
static int n_workers, n_cores; /* only the owner of busy touches them */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static bool caller_asleep; /* under lock */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local int my_index;
static _Thread_local bool inside;

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int usable_cores(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set))
        return MAX(1, CPU_COUNT(&set));
#endif
    return (int)MAX(1, sysconf(_SC_NPROCESSORS_ONLN));
}

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork_parent(void) { pthread_mutex_unlock(&lock); }
static void after_fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&wake, NULL);
    pthread_cond_init(&finished, NULL);
    n_workers = 0;
    caller_asleep = false;
    my_index = 0;
    atomic_store(&n_asleep, 0);
    atomic_store(&busy, false);
    /* Keep the serial, drop the parts: nothing is left to claim. */
    atomic_store(&ticket, atomic_load(&ticket) & ~(uint64_t)0xffffffff);
    atomic_fetch_add(&n_forks, 1);
}

static void start(void)
{
    int64_t v = env_int(ENV_num_threads, 0);
    n_cores = usable_cores();
    int unset = 0, n = v > 0 ? (int)MIN(v, (int64_t)POOL_MAX) : MIN(n_cores, (int)POOL_MAX);
    atomic_compare_exchange_strong(&want, &unset, n);
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

int pool_threads(void)
{
    pthread_once(&once, start);
    return atomic_load_explicit(&want, memory_order_relaxed);
}

void pool_set_threads(int n)
{
    pthread_once(&once, start);
    atomic_store(&want, MAX(1, MIN(n, (int)POOL_MAX)));
}

int pool_thread(void) { return my_index; }

static void run_part(uint32_t i)
{
    int64_t q = job.blocks / job.parts, r = job.blocks % job.parts; /* the first r parts get one more */
    int64_t from = q * i + MIN((int64_t)i, r), to = from + q + (i < r);
    job.fn(job.arg, from * job.grain, to == job.blocks ? job.n : to * job.grain);
}

static bool has_part(uint64_t t) { return ((t >> 16) & 0xffff) < (t & 0xffff); }

/* The next unclaimed part of the current job, or -1. */
static int claim(void)
{
    uint64_t t = atomic_load_explicit(&ticket, memory_order_acquire);
    while (has_part(t))
        if (atomic_compare_exchange_weak_explicit(&ticket, &t, t + (1u << 16), memory_order_acq_rel,
                                                  memory_order_acquire))
            return (int)((t >> 16) & 0xffff);
    return -1;
}

static void count_done(void)
{
    uint32_t parts = job.parts; /* once counted, the job may be gone */
    if (atomic_fetch_add_explicit(&n_done, 1, memory_order_seq_cst) + 1 != parts)
        return;
    if (atomic_load_explicit(&n_asleep, memory_order_seq_cst)) {
        pthread_mutex_lock(&lock);
        if (caller_asleep)
            pthread_cond_signal(&finished);
        pthread_mutex_unlock(&lock);
    }
}

/* Polls `done` for a short while. Spinning only steals time when there are more threads than cores. */
static bool spin_until(bool (*done)(void))
{
    if (done())
        return true;
    if (atomic_load_explicit(&want, memory_order_relaxed) > n_cores)
        return false;
    int64_t stop = clock_ns() + SPIN_NS;
    do
        for (int i = 0; i < 32; i++) {
            if (done())
                return true;
            relax();
        }
    while (clock_ns() < stop);
    return false;
}

static uint64_t serial(void) { return atomic_load(&ticket) >> 32; }
static bool work_waits(void) { return has_part(atomic_load_explicit(&ticket, memory_order_acquire)); }
static bool job_done(void) { return atomic_load_explicit(&n_done, memory_order_acquire) >= job.parts; }

static void *worker(void *index)
{
    my_index = (int)(intptr_t)index;
    inside = true;
    for (;;) {
        if (!spin_until(work_waits)) {
            pthread_mutex_lock(&lock);
            atomic_fetch_add(&n_asleep, 1);
            /* Waking takes longer than many jobs: whoever wakes too late for this one spins for the next. */
            for (uint64_t slept = serial(); serial() == slept && !work_waits();)
                pthread_cond_wait(&wake, &lock);
            atomic_fetch_sub(&n_asleep, 1);
            pthread_mutex_unlock(&lock);
        }
        for (int i; (i = claim()) >= 0;) {
            run_part((uint32_t)i);
            count_done();
        }
    }
    return NULL;
}

bool thread_apart(void *(*fn)(void *), void *arg)
{
    pthread_t t;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = !pthread_create(&t, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ok)
        pthread_detach(t);
    return ok;
}

/* Makes workers up to n - 1. Fewer is not an error: the caller takes what they would have done. */
static void hire(int n)
{
    while (n_workers < n - 1 && thread_apart(worker, (void *)(intptr_t)(n_workers + 1)))
        n_workers++;
}

static void wait_done(void)
{
    if (spin_until(job_done))
        return;
    pthread_mutex_lock(&lock);
    caller_asleep = true;
    atomic_fetch_add(&n_asleep, 1);
    while (!job_done())
        pthread_cond_wait(&finished, &lock);
    atomic_fetch_sub(&n_asleep, 1);
    caller_asleep = false;
    pthread_mutex_unlock(&lock);
}

bool pool_reported;
static tp_err report; /* under lock */

void pool_report(const tp_err *e)
{
    pthread_mutex_lock(&lock);
    if (!pool_reported)
        report = *e;
    __atomic_store_n(&pool_reported, true, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

bool pool_sync(tp_err *err)
{
    for (uint64_t now = serial(); !inside && atomic_load(&busy) && serial() == now;)
        sched_yield();
    if (TP_LIKELY(!__atomic_load_n(&pool_reported, __ATOMIC_ACQUIRE)))
        return true;
    pthread_mutex_lock(&lock);
    bool had = pool_reported;
    if (had && err && !err_is_set(err))
        *err = report;
    pool_reported = false;
    pthread_mutex_unlock(&lock);
    return !had;
}

void pool_for(int64_t n, int64_t grain, pool_fn *fn, void *arg)
{
    if (n <= 0)
        return;
    grain = MAX(grain, 1);
    if (n <= grain || inside) {
        fn(arg, 0, n);
        return;
    }
    int threads = pool_threads();
    if (threads == 1 || atomic_exchange_explicit(&busy, true, memory_order_acquire)) {
        fn(arg, 0, n);
        return;
    }
    uint32_t forks = atomic_load_explicit(&n_forks, memory_order_relaxed);
    hire(threads);
    job.fn = fn;
    job.arg = arg;
    job.n = n;
    job.grain = grain;
    job.blocks = n / grain + (n % grain != 0);
    job.parts = (uint32_t)MIN((int64_t)threads, job.blocks);
    atomic_store_explicit(&n_done, 0, memory_order_relaxed);
    /* Part 0 is the caller's from the start. */
    atomic_store_explicit(&ticket, (serial() + 1) << 32 | 1u << 16 | job.parts, memory_order_seq_cst);
    if (atomic_load_explicit(&n_asleep, memory_order_seq_cst)) {
        pthread_mutex_lock(&lock);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&lock);
    }
    inside = true;
    for (int i = 0; i >= 0; i = claim()) {
        run_part((uint32_t)i);
        count_done();
    }
    inside = false;
    /* When fn forked, the child has no one to wait for: what other threads were doing is not here. */
    if (atomic_load_explicit(&n_forks, memory_order_relaxed) == forks) {
        wait_done();
        atomic_store_explicit(&busy, false, memory_order_release);
    }
}
