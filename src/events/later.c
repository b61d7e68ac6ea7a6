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
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    ARG_MAX_BYTES = 64,
    SPIN_NS = 1000000,
    LOOK_NS = 1000000000,
    OPEN_NAP_NS = 20000,
    NAP_NS = 250000,
    WORTH_BYTES = 100
};
typedef struct job {
    ev_later_fn *fn; /* NULL: free */
    bool in_compile;
    const void *keep[2];
    ev_cid cid;
    _Alignas(16) char arg[ARG_MAX_BYTES];
} job;
int ev_unwritten; /* atomic; not 0: a job is handed over and not done, or put off (changed under the lock) */
enum { NOT_TAKEN = 1, TAKEN = 2, PUT_OFF = 4 };
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool started, refused; /* refused: one core only, or no thread to be had */
    bool asleep;           /* atomic; the thread waits for work, and somebody has to wake it */
    pid_t tid;             /* of the thread; 0: not known yet */
    int away;              /* the processor that it keeps away from; -1: none */
    int compiling;         /* atomic; compiles that are open: more work is to be expected */
    int chores;   /* atomic; not 0: ev_trace_chore may have something to do; grows when there may be more */
    bool crashed; /* atomic; nobody but the thread is left to see to what was put off */
    job job, put_off;
} q = { .away = -1,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .work = PTHREAD_COND_INITIALIZER,
        .done = PTHREAD_COND_INITIALIZER };

/* --- buffers ------------------------------------------------------------------------------------------- */
enum { NSCRATCH = 4, SCRATCH_BYTES = 1 << 18, SCRATCH_MOST = 1 << 22, SPARE_MOST = 1 << 15 };
static strbuf scratch[NSCRATCH]; /* of the thread below */
static bool scratch_used[NSCRATCH];
static strbuf *spare; /* atomic; of other threads */
static _Thread_local bool on_thread, at_job;

strbuf *ev_scratch(void)
{
    for (int i = 0; i < NSCRATCH && on_thread; i++)
        if (!scratch_used[i]) {
            scratch_used[i] = true;
            return &scratch[i];
        }
    strbuf *b = __atomic_exchange_n(&spare, NULL, __ATOMIC_ACQUIRE);
    return b ? b : mem_zalloc(sizeof *b);
}

/* Memory that is new to the process makes it stop, all its threads included, for longer than the texts take. */
static void scratch_ready(void)
{
    for (int i = 0; i < NSCRATCH; i++) {
        strbuf_grow(&scratch[i], SCRATCH_BYTES);
        memset(scratch[i].s, 0, SCRATCH_BYTES);
    }
    /* and for what texts need besides: libc gives back memory at the end of its heap, but not what lies before a block
     * that stays */
    enum { PIECES = 16, PIECE = 32 << 10, STAYS = 64 };
    static void *stays;
    void *p[PIECES];
    for (int i = 0; i < PIECES; i++)
        p[i] = memset(mem_alloc(PIECE), 1, PIECE);
    stays = mem_alloc(STAYS);
    __asm__ volatile("" : : "r"(p), "m"(stays) : "memory");
    for (int i = 0; i < PIECES; i++)
        free(p[i]);
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
    strbuf_clear(b);
    if (b->cap <= SPARE_MOST) /* the next record has room already */
        b = __atomic_exchange_n(&spare, b, __ATOMIC_RELEASE);
    if (b)
        strbuf_free(b);
    free(b);
}

/* --- the thread ---------------------------------------------------------------------------------------- */
/* Is there a job that needs this object (NULL: any; under the lock)? And one that nobody is at? */
static bool needs(const job *j, const void *kept)
{
    return j->fn && (!kept || j->keep[0] == kept || j->keep[1] == kept);
}
static bool unfinished(const void *kept) { return needs(&q.job, kept); }
static int now_unwritten(void) { return __atomic_load_n(&ev_unwritten, __ATOMIC_ACQUIRE); }
static void say_unwritten(int state) /* under the lock */
{
    __atomic_store_n(&ev_unwritten, state | (q.put_off.fn ? PUT_OFF : 0), __ATOMIC_RELEASE);
}
static bool waiting(void) { return __atomic_load_n(&ev_unwritten, __ATOMIC_RELAXED) & NOT_TAKEN; }

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
    say_unwritten(TAKEN);
    const ev_cid *now = ev_cid_now();
    ev_cid before = now ? *now : (ev_cid){ 0 };
    ev_cid_set(j->in_compile ? &j->cid : NULL);
    pthread_mutex_unlock(&q.lock);
    at_job = true;
    ev_now(j->fn, j->arg);
    at_job = false;
    ev_cid_set(now ? &before : NULL);
    pthread_mutex_lock(&q.lock);
    *j = (job){ 0 };
    say_unwritten(0);
    pthread_cond_broadcast(&q.done);
}

/* Under the lock, which is released meanwhile: what is put off as long as there are jobs. */
static void do_chores(void)
{
    int asked = q.chores;
    bool more = true;
    pthread_mutex_unlock(&q.lock);
    while (more && !waiting())
        more = ev_trace_chore(__atomic_load_n(&q.compiling, __ATOMIC_RELAXED) > 0);
    pthread_mutex_lock(&q.lock);
    if (!more && q.chores == asked) {
        __atomic_store_n(&q.chores, 0, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&q.done);
    }
}

/* Under the lock, when no job is there: what was put off is the next one. */
static void take_up(void)
{
    q.job = q.put_off;
    q.put_off = (job){ 0 };
    say_unwritten(NOT_TAKEN);
}

/* Not under the lock: until there is something to do, and not for ever. Often while a compile is open. */
static void look_out(void)
{
    for (int64_t until = clock_ns() + LOOK_NS; !waiting() && !__atomic_load_n(&q.chores, __ATOMIC_RELAXED) &&
                                               !__atomic_load_n(&q.crashed, __ATOMIC_RELAXED) &&
                                               clock_ns() < until;) {
        bool open = __atomic_load_n(&q.compiling, __ATOMIC_RELAXED) > 0;
        nanosleep(&(struct timespec){ .tv_nsec = open ? OPEN_NAP_NS : NAP_NS }, NULL);
    }
}

/* Under the lock, until there is a job. Waking a thread takes the one that wakes it longer than writing ten small records.
 * So this thread looks for work by itself, once it is awake, and for a while: a compile does not come alone. */
static void await_work(void)
{
    for (bool looked = false; !waiting();)
        if (q.crashed && q.put_off.fn) {
            take_up();
        } else if (q.chores) {
            do_chores();
            looked = false;
        } else if (!looked) {
            looked = true;
            pthread_mutex_unlock(&q.lock);
            look_out();
            pthread_mutex_lock(&q.lock);
        } else {
            __atomic_store_n(&q.asleep, true, __ATOMIC_RELAXED);
            pthread_cond_wait(&q.work, &q.lock);
            __atomic_store_n(&q.asleep, looked = false, __ATOMIC_RELAXED);
        }
}

static void *worker(void *unused)
{
    sigset_t bus; /* it looks at the file, too, which somebody else may shorten: on_crash mends that */
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
    on_thread = true;
    scratch_ready();
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL); /* naps as short as asked for */
    if (sched_getscheduler(0) == SCHED_OTHER)        /* waking does not push the compile aside */
        pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){ 0 });
    pthread_mutex_lock(&q.lock);
    q.tid = (pid_t)syscall(SYS_gettid);
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
    q.tid = 0;
    q.away = -1;
    q.compiling = q.chores = 0;
    memset(&q.job, 0, sizeof q.job);
    memset(&q.put_off, 0, sizeof q.put_off);
    ev_unwritten = 0;
}

/* Systems like to wake a thread where the one that wakes it runs, and leave it there: then neither gets on. So it is told
 * to keep away from the processor of the compile. */
static void keep_away(void)
{
    cpu_set_t set;
    int here = sched_getcpu();
    if (here < 0 || !q.tid || here == q.away || sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < 2)
        return;
    CPU_CLR(here, &set);
    q.away = sched_setaffinity(q.tid, sizeof set, &set) ? -1 : here;
}

void ev_later_compiling(int more) { __atomic_fetch_add(&q.compiling, more, __ATOMIC_RELAXED); }

bool ev_digest_later(size_t n)
{
    if (at_job || n < WORTH_BYTES)
        return at_job;
    return __atomic_load_n(&q.compiling, __ATOMIC_RELAXED) && q.started &&
           !__atomic_load_n(&q.asleep, __ATOMIC_RELAXED);
}

static void wake_up(bool for_chores)
{
    pthread_mutex_lock(&q.lock);
    bool wake = q.started && q.asleep;
    if (q.started && for_chores)
        __atomic_fetch_add(&q.chores, 1, __ATOMIC_RELAXED);
    else if (q.started)
        keep_away();
    pthread_mutex_unlock(&q.lock);
    if (wake)
        pthread_cond_signal(&q.work);
}

void ev_later_soon(void) { wake_up(false); }
void ev_later_chores(void) { wake_up(true); }

static void finish(void)
{
    ev_wait_chores();
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
        int64_t t0 = clock_ns();
        pthread_mutex_unlock(
            &q.lock); /* done soon, most of the time: that is sooner than sleeping and being woken */
        for (int64_t until = clock_ns() + SPIN_NS;
             now_unwritten() & (NOT_TAKEN | TAKEN) && clock_ns() < until;)
            sched_yield();
        pthread_mutex_lock(&q.lock);
        if (unfinished(kept) && !waiting())
            pthread_cond_wait(&q.done, &q.lock);
        ev_trace_spend(clock_ns() - t0); /* waiting is part of what a trace costs */
    }
}

/* Under the lock: what was put off comes before anything else. Gives back whether the thread is to be woken. */
static bool catch_up(void)
{
    if (!q.put_off.fn)
        return false;
    finish_job(NULL);
    if (q.put_off.fn)
        take_up();
    if (!q.started)
        finish_job(NULL);
    return q.asleep;
}

static job job_of(ev_later_fn *fn, const void *arg, size_t n, const void *keep, const void *also)
{
    const ev_cid *c = ev_cid_now();
    job j = { .fn = fn, .in_compile = c != NULL, .cid = c ? *c : (ev_cid){ 0 }, .keep = { keep, also } };
    assert(n <= ARG_MAX_BYTES);
    memcpy(j.arg, arg, n);
    return j;
}

void ev_later(ev_later_fn *fn, const void *arg, size_t n, const void *keep, const void *also)
{
    pthread_mutex_lock(&q.lock);
    bool handed = start();
    catch_up();
    finish_job(NULL);
    bool wake = handed && q.asleep;
    if (handed) {
        keep_away();
        q.job = job_of(fn, arg, n, keep, also);
        say_unwritten(NOT_TAKEN);
    }
    pthread_mutex_unlock(&q.lock);
    if (wake)
        pthread_cond_signal(&q.work);
    if (!handed)
        make_now(fn, arg, n);
}

void ev_put_off(ev_later_fn *fn, const void *arg, size_t n, const void *keep)
{
    pthread_mutex_lock(&q.lock);
    start();
    bool wake = false;
    while (q.put_off.fn) /* the lock may have been released meanwhile */
        wake = catch_up();
    q.put_off = job_of(fn, arg, n, keep, NULL);
    say_unwritten(now_unwritten() & (NOT_TAKEN | TAKEN));
    pthread_mutex_unlock(&q.lock);
    if (wake)
        pthread_cond_signal(&q.work);
}

void ev_catch_up(void)
{
    if (!(now_unwritten() & PUT_OFF) || on_thread)
        return;
    pthread_mutex_lock(&q.lock);
    bool wake = catch_up();
    pthread_mutex_unlock(&q.lock);
    if (wake)
        pthread_cond_signal(&q.work);
}

void ev_wait_chores(void)
{
    ev_wait(NULL);
    pthread_mutex_lock(&q.lock);
    while (q.chores && q.started && !on_thread) {
        if (q.asleep)
            pthread_cond_signal(&q.work);
        pthread_cond_wait(&q.done, &q.lock);
    }
    pthread_mutex_unlock(&q.lock);
}

void ev_wait(const void *kept)
{
    if (!now_unwritten() || on_thread)
        return;
    pthread_mutex_lock(&q.lock);
    if (needs(&q.put_off, kept))
        catch_up();
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
    if (sig == SIGBUS && info->si_code > 0 && ev_trace_mend(info->si_addr))
        return;
    __atomic_store_n(&q.crashed, true, __ATOMIC_RELAXED);
    for (int i = 0;
         i < PATIENCE && !on_thread && (now_unwritten() || __atomic_load_n(&q.chores, __ATOMIC_ACQUIRE)); i++)
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
