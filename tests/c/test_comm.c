/* Jobs of forked processes: collectives over shared memory, messages, ranks that disagree, ranks that die. */
#include "comm/comm.h"
#include "test.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static comm_job *join(const char *key, int rank, int size, int64_t ms)
{
    tp_err err = { 0 };
    comm_job *j = comm_open(&(comm_spec){ "shm", key, NULL, rank, size, ms }, &err);
    if (!j)
        fprintf(stderr, "rank %d: %s\n", rank, err.msg);
    return j;
}
static bool call(comm_group *g, comm_call c, tp_err *err)
{
    bool done = false, ok;
    comm_work *w = comm_start(g, &c, false, err);
    if (!w)
        return false;
    ok = comm_wait(w, -1, &done, err);
    if (ok)
        comm_work_free(w);
    return ok && done;
}
static comm_group *world(comm_job *j)
{
    tp_err err = { 0 };
    int ranks[16];
    for (int i = 0; i < comm_size(j); i++)
        ranks[i] = i;
    return comm_group_new(j, ranks, comm_size(j), &err);
}

/* Forks n ranks; fn says 0 when all is well. Gives the exit statuses. */
static void ranks_run(const char *name, int n, int (*fn)(comm_job *, comm_group *), int *status)
{
    pid_t pid[16];
    char key[64];
    snprintf(key, sizeof key, "ctest-%s-%d", name, (int)getpid());
    for (int r = 0; r < n; r++)
        if (!(pid[r] = fork())) {
            alarm(60);
            comm_job *j = join(key, r, n, 20000);
            comm_group *g = j ? world(j) : NULL;
            int bad = g ? fn(j, g) : 99;
            if (j)
                comm_close(j);
            _exit(bad);
        }
    for (int r = 0; r < n; r++)
        waitpid(pid[r], &status[r], 0);
}

static int works(comm_job *j, comm_group *g)
{
    enum { N = 300001 };
    int r = comm_rank(j), n = comm_size(j);
    tp_err err = { 0 };
    float *x = malloc(N * sizeof *x), *all = malloc((size_t)n * N * sizeof *all);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 1000 + r);
    if (!call(g,
              (comm_call){ .kind = COMM_all_reduce, .op = CRED_sum, .dt = DT_f32, .n = N, .in = x, .out = x },
              &err))
        return 1;
    for (int i = 0; i < N; i++)
        if (x[i] != (float)(n * (i % 1000) + n * (n - 1) / 2))
            return 2;
    if (!call(g, (comm_call){ .kind = COMM_all_gather, .dt = DT_f32, .n = N, .in = x, .out = all }, &err))
        return 3;
    for (int i = 0; i < n * N; i++)
        if (all[i] != x[i % N])
            return 4;
    int64_t mine = r * 7, got = -1;
    if (n > 1 && r == 0 &&
        !call(g, (comm_call){ .kind = COMM_send, .dt = DT_i64, .n = 1, .in = &mine, .root = n - 1, .tag = 3 },
              &err))
        return 5;
    if (n > 1 && r == n - 1 &&
        (!call(g, (comm_call){ .kind = COMM_recv, .dt = DT_i64, .n = 1, .out = &got, .root = 0, .tag = 3 },
               &err) ||
         got != 0))
        return 6;
    if (!call(g, (comm_call){ .kind = COMM_barrier, .dt = DT_u8 }, &err))
        return 7;
    if (call(g,
             (comm_call){ .kind = COMM_all_reduce, .op = CRED_bor, .dt = DT_f32, .n = 1, .in = x, .out = x },
             &err))
        return 8; /* bits of floats */
    free(x);
    free(all);
    return 0;
}

TEST(comm_forked_ranks)
{
    int status[16];
    for (int n = 1; n <= 3; n++) {
        ranks_run("works", n, works, status);
        for (int r = 0; r < n; r++)
            CHECK_INT(status[r], 0);
    }
}

static int disagrees(comm_job *j, comm_group *g)
{
    float x[8] = { 0 };
    tp_err err = { 0 };
    bool ok = call(
        g,
        (comm_call){
            .kind = COMM_all_reduce, .dt = DT_f32, .n = comm_rank(j) == 1 ? 5 : 8, .in = x, .out = x },
        &err);
    return ok ? 1 : strstr(comm_abort_text(j), "rank 1 does something else") ? 0 : 2;
}
TEST(comm_ranks_disagree)
{
    int status[16];
    ranks_run("differ", 3, disagrees, status);
    for (int r = 0; r < 3; r++)
        CHECK_INT(status[r], 0);
}

static int dies(comm_job *j, comm_group *g)
{
    float x = 0;
    tp_err err = { 0 };
    if (comm_rank(j) == 1)
        kill(getpid(), SIGKILL);
    bool ok = call(g, (comm_call){ .kind = COMM_all_reduce, .dt = DT_f32, .n = 1, .in = &x, .out = &x },
                   &err);
    return ok ? 1 : strstr(comm_abort_text(j), "rank 1 has died") ? 0 : 2;
}
TEST(comm_rank_dies)
{
    int status[16];
    ranks_run("dies", 3, dies, status);
    CHECK_INT(status[0], 0);
    CHECK_INT(status[1], SIGKILL);
    CHECK_INT(status[2], 0);
}

TEST(comm_reductions_round_once)
{
    uint16_t a[3], out;
    const void *x[3] = { &a[0], &a[1], &a[2] };
    a[0] = f32_to_f16(2048);
    a[1] = a[2] = f32_to_f16(0.5f);
    comm_reduce_all(DT_f16, CRED_sum, &out, x, 3, 1);
    CHECK(f16_to_f32(out) == 2048); /* 2049 lies between two of them; two roundings would also say so */
    a[0] = f32_to_f16(2048);
    a[1] = a[2] = f32_to_f16(1);
    comm_reduce_all(DT_f16, CRED_sum, &out, x, 3, 1);
    CHECK(f16_to_f32(out) == 2050); /* adding one at a time stays at 2048 */
    int32_t i[2] = { -3, 2 }, m;
    const void *p[2] = { &i[0], &i[1] };
    comm_reduce_all(DT_i32, CRED_min, &m, p, 2, 1);
    CHECK_INT(m, -3);
    comm_reduce_all(DT_i32, CRED_max, &m, p, 2, 1);
    CHECK_INT(m, 2);
    float nan[2] = { 0.0f / 0.0f, 1 }, f;
    const void *q[2] = { &nan[0], &nan[1] }, *back[2] = { &nan[1], &nan[0] };
    comm_reduce_all(DT_f32, CRED_max, &f, q, 2, 1);
    CHECK(f != f);
    comm_reduce_all(DT_f32, CRED_max, &f, back, 2, 1);
    CHECK(f != f);
}
