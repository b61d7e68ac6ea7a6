/* The memory of tensors: blocks never overlap, keep what is in them, and go back to the system. */
#define _GNU_SOURCE
#include "test.h"
#include "base/pool.h"
#include "base/bytes.h"
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIVE = 60 };
typedef struct {
    unsigned char *p[LIVE];
    int64_t n[LIVE];
    unsigned char mark[LIVE];
    uint64_t seed;
    bool ok;
} owner;

static uint64_t next(uint64_t *s) { return *s = *s * 6364136223846793005u + 1442695040888963407u, *s >> 33; }

static bool marked(const owner *o, int i)
{
    return o->p[i][0] == o->mark[i] && o->p[i][o->n[i] / 2] == o->mark[i] &&
           o->p[i][o->n[i] - 1] == o->mark[i];
}

static void *churn(void *arg)
{
    owner *o = arg;
    o->ok = true;
    for (int round = 0; round < 4000; round++) {
        int i = (int)(next(&o->seed) % LIVE);
        if (o->p[i]) {
            o->ok &= marked(o, i);
            bytes_free(o->p[i], o->n[i]);
            o->p[i] = NULL;
            continue;
        }
        int bits = (int)(next(&o->seed) % 24);
        o->n[i] = 1 + (int64_t)(next(&o->seed) % ((uint64_t)1 << bits));
        o->p[i] = bytes_new(o->n[i]);
        o->mark[i] = (unsigned char)next(&o->seed);
        o->ok &= o->p[i] && (uintptr_t)o->p[i] % 64 == 0;
        o->p[i][0] = o->p[i][o->n[i] / 2] = o->p[i][o->n[i] - 1] = o->mark[i];
    }
    for (int i = 0; i < LIVE; i++)
        if (o->p[i]) {
            o->ok &= marked(o, i);
            bytes_free(o->p[i], o->n[i]);
            o->p[i] = NULL;
        }
    return NULL;
}

TEST(bytes_of_several_threads_do_not_overlap)
{
    static owner o[3];
    pthread_t t[3];
    for (int i = 0; i < 3; i++) {
        o[i].seed = (uint64_t)i + 1;
        CHECK(!pthread_create(&t[i], NULL, churn, &o[i]));
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
        CHECK(o[i].ok);
    }
}

TEST(bytes_that_nobody_uses_go_back)
{
    bytes_trim();
    size_t before = bytes_regions();
    void *p[40], *big = bytes_new(40 << 20);
    for (int i = 0; i < 40; i++)
        CHECK((p[i] = bytes_new(5 << 20)) != NULL);
    CHECK(big != NULL);
    for (int i = 0; i < 40; i += 2)
        bytes_free(p[i], 5 << 20);
    for (int i = 1; i < 40; i += 2)
        bytes_free(p[i], 5 << 20);
    bytes_free(big, 40 << 20);
    bytes_trim();
    CHECK(bytes_regions() <= before);
    CHECK(bytes_new(INT64_MAX / 2) == NULL);
}

TEST(bytes_work_in_a_forked_child)
{
    owner *o = calloc(1, sizeof *o);
    void *p = bytes_new(1 << 20);
    o->seed = 7;
    pid_t child = fork();
    if (child == 0) {
        bytes_free(p, 1 << 20);
        churn(o);
        _exit(o->ok ? 0 : 1);
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    bytes_free(p, 1 << 20);
    free(o);
}

TEST(bytes_are_kept_for_the_next_call)
{
    bytes_kept k = { 0 };
    void *p = bytes_keep(&k, 100000);
    CHECK(p && k.n >= 100000 && (uintptr_t)p % 64 == 0);
    CHECK(bytes_keep(&k, 5000) == p);
    CHECK(bytes_keep(&k, 1 << 20) && k.n >= 1 << 20);
    CHECK(!bytes_keep(&k, INT64_MAX / 2) && k.n == 0);
    CHECK(bytes_keep(&k, 64));
    bytes_free(k.p, k.n);
}

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
/* Page faults of filling 8 MB that were handed out once 12 MB were in use and whoever touches pages ahead had ended. */
static int faults_of_new_memory(int threads)
{
    pool_set_threads(threads);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    bytes_trim();
    for (int i = 0; i < 3; i++)
        memset(bytes_new(4 << 20), 1, 4 << 20);
    if (threads > 1)
        bytes_settle();
    struct rusage before, after;
    char *p = bytes_new(8 << 20);
    getrusage(RUSAGE_SELF, &before);
    memset(p, 1, 8 << 20);
    getrusage(RUSAGE_SELF, &after);
    return (int)MIN(after.ru_minflt - before.ru_minflt, 8 << 10);
}

static int in_child(int threads)
{
    int to[2], n = -1;
    if (pipe(to))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        n = faults_of_new_memory(threads);
        _exit(write(to[1], &n, sizeof n) != sizeof n);
    }
    close(to[1]);
    if (child < 0 || read(to[0], &n, sizeof n) != sizeof n)
        n = -1;
    close(to[0]);
    waitpid(child, NULL, 0);
    return n;
}

TEST(bytes_are_touched_ahead_where_there_are_threads)
{
    cpu_set_t set;
    bool can = !sched_getaffinity(0, sizeof set, &set) && CPU_COUNT(&set) > 1;
    int alone = in_child(1);
    CHECK(alone >= 100); /* every page, whatever its size: nobody went ahead */
    if (can)
        CHECK(in_child(2) <= alone / 4);
}

TEST(bytes_that_are_touched_ahead_keep_what_is_written_meanwhile)
{
    enum { N = 8, BLOCK = 4 << 20, STEP = 4096 };
    pid_t child = fork();
    if (child == 0) {
        bool ok = true;
        pool_set_threads(2);
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
        for (int round = 0; round < 20; round++) {
            unsigned char *p[N];
            bytes_trim();
            for (int i = 0; i < N; i++) { /* the thread is on its way from the second on */
                p[i] = bytes_new(BLOCK);
                for (int k = 1; k <= 3; k++)
                    for (int at = BLOCK - STEP; at >= 0; at -= STEP) {
                        ok &= k == 1 || p[i][at] == (unsigned char)(i + at / STEP + k - 1);
                        p[i][at] = (unsigned char)(i + at / STEP + k);
                    }
            }
            for (int i = 0; i < N; i++) {
                for (int at = 0; at < BLOCK; at += STEP)
                    ok &= p[i][at] == (unsigned char)(i + at / STEP + 3);
                bytes_free(p[i], BLOCK);
            }
        }
        _exit(ok ? 0 : 1);
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif
