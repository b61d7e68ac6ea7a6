/* launch.c - one kernel on the threads of the pool. */
#include "target/cpu/cpu.h"
#include "base/pool.h"

bool cpu_always(const target *t, const char **why) { return true; }

typedef struct job {
    const target_code *c;
    const target_args *a;
} job;

static void span(void *arg, int64_t lo, int64_t hi)
{
    const job *j = arg;
    cpu_run(j->c, j->a->bufs, j->a->ints, j->a->flts, lo, hi);
}

bool cpu_launch(const target_code *c, const target_args *a, tp_err *err)
{
    /* elements that a thread takes at least */
    static const int64_t piece[SHARE_COUNT] = { 16384, 2048, 131072 };
    job j = { c, a };
    if (a->par == 1 || a->share == SHARE_alone)
        span(&j, 0, a->par);
    else if (a->par > 0)
        pool_for(a->par, MAX(1, piece[a->share] / MAX(a->work, 1)), span, &j);
    return true;
}
