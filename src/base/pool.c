/* pool.c - see pool.h.
 * A job is posted by publishing one 64-bit ticket: serial << 32 | lots << 16 | parts. Its parts are dealt out in as many
 * lots as threads are called, one after the other: thread i takes those of lot i, in job after job the same share of the
 * same arrays, so that they are still in its cache. Whoever is done takes parts of the others, from their ends.
 * A lot is one 64-bit word: serial << 32 | next part << 16 | end. One with an older serial has not been touched yet.
 * Claiming a part is a compare-and-swap on it. A job cannot end before its claimed parts do, so its description is stable
 * from a successful claim until that part is counted done; a late worker merely fails to claim.
 * Sleepers are woken as a tree: whoever starts a job wakes four workers, and each of them four more. */
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

/* How long a thread that has nothing to do looks for work. The short time costs an idle process nothing one could
 * measure; it doubles while work keeps coming soon after the thread fell asleep, up to the long one. */
enum { SPIN_NS = 40 * 1000, SPIN_LONG_NS = 320 * 1000, SOON_NS = 1000 * 1000 };
#define ALONE _Alignas(128) /* what one thread writes while others read or write something else */

ALONE static _Atomic uint64_t ticket;
ALONE static _Atomic uint32_t n_done; /* parts finished in the current job */
ALONE static _Atomic bool busy;       /* a job is running */
ALONE static _Atomic int want;        /* threads a job may use; 0: not decided yet */
static _Atomic int n_called;          /* of these, how many the current job is for */
static _Atomic uint32_t n_forks;      /* how many forks lie between the first process and this one */
typedef struct lot {
    ALONE _Atomic uint64_t word;
} lot;
static lot lots[POOL_MAX];
static uint64_t lots_cleared; /* the serial when no lot was older */
ALONE static struct {         /* the current job: written before the ticket, read after a claim */
    pool_fn *fn;
    void *arg;
    int64_t n, grain, blocks;
    uint32_t parts;
} job;
static int n_workers, n_cores; /* only the owner of busy touches them */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
static _Atomic bool caller_asleep; /* in, or about to enter, a wait on finished */
typedef struct bed {
    ALONE pthread_mutex_t lock;
    pthread_cond_t wake;
    _Atomic bool asleep; /* in, or about to enter, a wait on wake */
} bed;
static bed beds[POOL_MAX]; /* of worker i, made when it is hired */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local int my_index;
static _Thread_local bool inside;
static _Thread_local uint64_t seen; /* the last serial this worker looked for work in */

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
    pthread_cond_init(&finished, NULL);
    n_workers = 0;
    my_index = 0;
    atomic_store(&caller_asleep, false);
    atomic_store(&busy, false);
    /* Keep the serial, drop the lots: nothing is left to claim. */
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

static uint64_t word(uint64_t serial, uint64_t next, uint64_t end) { return serial << 32 | next << 16 | end; }
static int64_t lot_begin(uint64_t t, int64_t i)
{
    return i * (int64_t)(t & 0xffff) / (int64_t)((t >> 16) & 0xffff);
}

/* A part of lot i in the job of ticket t: the first one left for its owner, the last one for others; or -1. */
static int claim_from(uint64_t t, int i, bool mine)
{
    uint64_t was = atomic_load_explicit(&lots[i].word, memory_order_acquire), now;
    uint64_t next, end;
    do {
        if ((int32_t)((was >> 32) - (t >> 32)) > 0)
            return -1;
        bool fresh = was >> 32 != t >> 32;
        next = fresh ? (uint64_t)lot_begin(t, i) : (was >> 16) & 0xffff;
        end = fresh ? (uint64_t)lot_begin(t, i + 1) : was & 0xffff;
        if (next >= end)
            return -1;
        now = mine ? word(t >> 32, next + 1, end) : word(t >> 32, next, end - 1);
    } while (!atomic_compare_exchange_weak_explicit(&lots[i].word, &was, now, memory_order_acq_rel,
                                                    memory_order_acquire));
    return (int)(mine ? next : end - 1);
}

/* The next part of the job of ticket t for this thread, or -1. Lots are looked through from its own on; *from is where. */
static int claim(uint64_t t, int *from)
{
    int n = (int)((t >> 16) & 0xffff);
    for (; *from < n && atomic_load_explicit(&ticket, memory_order_acquire) == t; ++*from) {
        int part = claim_from(t, (my_index + *from) % n, *from == 0);
        if (part >= 0)
            return part;
    }
    return -1;
}

static void count_done(void)
{
    uint32_t parts = job.parts; /* once counted, the job may be gone */
    if (atomic_fetch_add_explicit(&n_done, 1, memory_order_seq_cst) + 1 != parts)
        return;
    if (atomic_load_explicit(&caller_asleep, memory_order_seq_cst)) {
        pthread_mutex_lock(&lock);
        pthread_cond_signal(&finished);
        pthread_mutex_unlock(&lock);
    }
}

/* Polls `done` for so long. Spinning only steals time when there are more threads than cores. */
static bool spin_until(bool (*done)(void), int64_t ns)
{
    if (done())
        return true;
    if (atomic_load_explicit(&want, memory_order_relaxed) > n_cores)
        return false;
    int64_t stop = clock_ns() + ns;
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
static bool job_posted(void) { return atomic_load_explicit(&ticket, memory_order_acquire) >> 32 != seen; }
static bool job_done(void) { return atomic_load_explicit(&n_done, memory_order_acquire) >= job.parts; }

/* Wakes those of the current job whom thread i has to. */
static void wake_some(int i)
{
    int end = MIN(4 * i + 5, atomic_load_explicit(&n_called, memory_order_relaxed));
    for (int w = 4 * i + 1; w < end; w++)
        if (atomic_load_explicit(&beds[w].asleep, memory_order_seq_cst)) {
            pthread_mutex_lock(&beds[w].lock);
            pthread_cond_signal(&beds[w].wake);
            pthread_mutex_unlock(&beds[w].lock);
        }
}

/* Was the number of threads lowered below this worker's? */
static bool not_wanted(void) { return my_index >= atomic_load_explicit(&want, memory_order_relaxed); }

/* Until there is work, or was: waking takes longer than many jobs, and whoever wakes too late for one spins for the next.
 * How long to spin then. */
static int64_t sleep_in(bed *b, int64_t spun)
{
    int64_t since = clock_ns();
    pthread_mutex_lock(&b->lock);
    atomic_store(&b->asleep, true);
    while (serial() == seen)
        pthread_cond_wait(&b->wake, &b->lock);
    atomic_store(&b->asleep, false);
    pthread_mutex_unlock(&b->lock);
    return clock_ns() - since < SOON_NS ? MIN(2 * spun, (int64_t)SPIN_LONG_NS) : (int64_t)SPIN_NS;
}

static void *worker(void *index)
{
    my_index = (int)(intptr_t)index;
    inside = true;
    int64_t spin = SPIN_NS;
    for (;;) {
        if (not_wanted() || !spin_until(job_posted, spin))
            spin = sleep_in(&beds[my_index], spin);
        uint64_t t = atomic_load_explicit(&ticket, memory_order_acquire);
        seen = t >> 32;
        wake_some(my_index);
        int from = 0;
        for (int i; my_index < (int)((t >> 16) & 0xffff) && (i = claim(t, &from)) >= 0;) {
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
    for (; n_workers < n - 1; n_workers++) {
        bed *b = &beds[n_workers + 1];
        pthread_mutex_init(&b->lock, NULL);
        pthread_cond_init(&b->wake, NULL);
        atomic_store(&b->asleep, false);
        if (!thread_apart(worker, (void *)(intptr_t)(n_workers + 1)))
            break;
    }
}

static void wait_done(void)
{
    if (spin_until(job_done, SPIN_LONG_NS))
        return;
    pthread_mutex_lock(&lock);
    atomic_store(&caller_asleep, true);
    while (!job_done())
        pthread_cond_wait(&finished, &lock);
    atomic_store(&caller_asleep, false);
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

/* Serials are compared by their difference, which must not come round: a lot that was not dealt for so long is renewed. */
static void forget_lots(uint64_t serial)
{
    if ((uint32_t)(serial - lots_cleared) < 1u << 30)
        return;
    for (int i = 0; i < POOL_MAX; i++)
        atomic_store_explicit(&lots[i].word, word((uint32_t)(serial - 1), 0, 0), memory_order_relaxed);
    lots_cleared = serial;
}

static void run_job(int64_t n, int64_t grain, int64_t most_parts, pool_fn *fn, void *arg)
{
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
    job.parts = (uint32_t)MIN(most_parts ? most_parts : threads, job.blocks);
    int called = MIN(MIN(n_workers + 1, threads), (int)job.parts), from = 0;
    uint64_t t = word((uint32_t)(serial() + 1), (uint64_t)called, job.parts);
    forget_lots(t >> 32);
    atomic_store_explicit(&n_called, called, memory_order_relaxed);
    atomic_store_explicit(&n_done, 0, memory_order_relaxed);
    /* Part 0 is the caller's from the start. */
    atomic_store_explicit(&lots[0].word, word(t >> 32, 1, (uint64_t)lot_begin(t, 1)), memory_order_relaxed);
    atomic_store_explicit(&ticket, t, memory_order_seq_cst);
    wake_some(0);
    inside = true;
    for (int i = 0; i >= 0; i = claim(t, &from)) {
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

void pool_for(int64_t n, int64_t grain, pool_fn *fn, void *arg)
{
    grain = MAX(grain, 1);
    if (n > grain && !inside)
        run_job(n, grain, 0, fn, arg);
    else if (n > 0)
        fn(arg, 0, n);
}

void pool_each(int64_t n, pool_fn *fn, void *arg)
{
    if (n > 1 && !inside)
        run_job(n, 1, POOL_PARTS, fn, arg);
    else if (n > 0)
        fn(arg, 0, n);
}
