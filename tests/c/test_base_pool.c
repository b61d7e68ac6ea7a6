/* The thread pool: coverage, partition, nesting, several callers, forks, sleeping. */
#include "test.h"
#include "base/clock.h"
#include "base/pool.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 10007 };
typedef struct {
    int hits[N];
    int64_t grain;
    _Atomic int ranges, misaligned;
} cover;

static void touch(void *arg, int64_t b, int64_t e)
{
    cover *c = arg;
    c->ranges++;
    if (b % c->grain || (e % c->grain && e != N))
        c->misaligned++;
    for (int64_t i = b; i < e; i++)
        c->hits[i]++;
}

static bool covered(int threads, int64_t grain)
{
    static cover c;
    memset(&c, 0, sizeof c);
    c.grain = grain;
    pool_set_threads(threads);
    pool_for(N, grain, touch, &c);
    for (int i = 0; i < N; i++)
        if (c.hits[i] != 1)
            return false;
    return !c.misaligned && c.ranges <= threads;
}

TEST(pool_covers_every_index_once)
{
    int old = pool_threads();
    for (int threads = 1; threads <= 9; threads++)
        for (int64_t grain = 1; grain < 3 * N; grain = grain * 5 + 2)
            CHECK(covered(threads, grain));
    pool_set_threads(old);
    pool_for(0, 1, touch, NULL);
    pool_for(-5, 1, touch, NULL);
}

TEST(pool_takes_each_index_by_itself)
{
    static cover c;
    int old = pool_threads();
    for (int threads = 9; threads >= 1; threads--) { /* also with more workers than threads are wanted */
        memset(&c, 0, sizeof c);
        c.grain = 1;
        pool_set_threads(threads);
        for (int round = 0; round < 3; round++)
            pool_each(N, touch, &c);
        for (int i = 0; i < N; i++)
            CHECK_INT(c.hits[i], 3);
        CHECK_INT(c.ranges, threads == 1 ? 3 : 3 * N);
    }
    pool_set_threads(old);
    pool_each(0, touch, NULL);
}

/* The caller's lot is the first one: it begins every job with the same part, and others take its parts only from the end. */
static _Atomic int64_t first_of_caller;
static void note_first(void *arg, int64_t b, int64_t e)
{
    int64_t none = -1;
    if (pool_thread() == 0)
        atomic_compare_exchange_strong(&first_of_caller, &none, b);
    touch(arg, b, e);
}

TEST(pool_deals_the_same_lots_again)
{
    static cover c;
    int old = pool_threads();
    for (int round = 0; round < 200; round++) { /* as many lots as threads, more and fewer in turns */
        memset(&c, 0, sizeof c);
        c.grain = 1;
        pool_set_threads(2 + round * 5 % 7);
        atomic_store(&first_of_caller, -1);
        pool_each(N, note_first, &c);
        CHECK_INT(atomic_load(&first_of_caller), 0);
        for (int i = 0; i < N; i++)
            CHECK_INT(c.hits[i], 1);
    }
    pool_set_threads(old);
}

static void inner(void *arg, int64_t b, int64_t e) { atomic_fetch_add((_Atomic int64_t *)arg, e - b); }
static void outer(void *arg, int64_t b, int64_t e)
{
    for (int64_t i = b; i < e; i++)
        pool_for(100, 1, inner, arg);
}

TEST(pool_nests_inline)
{
    _Atomic int64_t sum = 0;
    int old = pool_threads();
    pool_set_threads(4);
    for (int i = 0; i < 100; i++)
        pool_for(10, 1, outer, &sum);
    pool_set_threads(old);
    CHECK_INT(sum, 100 * 10 * 100);
}

static void *caller(void *arg)
{
    for (int i = 0; i < 2000; i++)
        pool_for(64, 1, inner, arg);
    return NULL;
}

TEST(pool_many_callers)
{
    _Atomic int64_t sum = 0;
    pthread_t t[4];
    int old = pool_threads();
    pool_set_threads(3);
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, caller, &sum);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    pool_set_threads(old);
    CHECK_INT(sum, 4 * 2000 * 64);
}

TEST(pool_works_after_fork)
{
    _Atomic int64_t sum = 0;
    int old = pool_threads(), status = -1;
    pool_set_threads(4);
    pool_for(64, 1, inner, &sum);
    for (int round = 0; round < 5; round++) {
        pid_t pid = fork();
        if (!pid) {
            alarm(20); /* a hang is a failure, not a stuck test run */
            sum = 0;
            for (int i = 0; i < 50; i++)
                pool_for(64, 1, inner, &sum);
            _exit(sum == 50 * 64 ? 0 : 1);
        }
        waitpid(pid, &status, 0);
        CHECK_INT(status, 0);
    }
    sum = 0;
    pool_for(64, 1, inner, &sum);
    CHECK_INT(sum, 64);
    pool_set_threads(old);
}

static void fork_inside(void *arg, int64_t b, int64_t e)
{
    if (b == 0 && pool_thread() == 0) {
        int status = -1;
        pid_t pid = fork();
        if (!pid) {
            alarm(20);
            _Atomic int64_t sum = 0;
            pool_for(64, 1, inner, &sum);
            _exit(sum == 64 ? 0 : 1);
        }
        waitpid(pid, &status, 0);
        *(int *)arg = status;
    }
}

TEST(pool_fork_inside_a_job)
{
    int status = -1, old = pool_threads();
    pool_set_threads(4);
    pool_for(8, 1, fork_inside, &status);
    CHECK_INT(status, 0);
    pool_set_threads(old);
}

static int64_t cpu_us(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000LL + r.ru_utime.tv_usec + r.ru_stime.tv_usec;
}

/* Libraries we link may spin for a while after start-up, so one quiet window out of many is enough;
 * a pool that kept spinning would never leave one. */
TEST(pool_idles_without_spinning)
{
    _Atomic int64_t sum = 0;
    int old = pool_threads();
    bool quiet = false;
    pool_set_threads(2);
    pool_for(64, 1, inner, &sum);
    for (int i = 0; i < 40 && !quiet; i++) {
        int64_t t = cpu_us();
        usleep(50000);
        quiet = cpu_us() - t < 5000;
    }
    CHECK(quiet);
    pool_set_threads(old);
}

TEST(pool_threads_is_clamped)
{
    int old = pool_threads();
    CHECK(old >= 1);
    pool_set_threads(-3);
    CHECK_INT(pool_threads(), 1);
    pool_set_threads(1 << 30);
    CHECK_INT(pool_threads(), POOL_MAX);
    pool_set_threads(old);
    CHECK_INT(pool_thread(), 0);
}
