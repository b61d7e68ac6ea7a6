/* The memory of tensors: blocks never overlap, keep what is in them, and go back to the system. */
#include "test.h"
#include "tensor/bytes.h"
#include <pthread.h>
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
