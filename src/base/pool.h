/* pool.h - the one thread pool: fork-join over index ranges.
 * Workers are made on first need, spin briefly after a job and then sleep; they block all signals.
 * A forked child starts without workers and makes its own when it needs them. */
#ifndef TAPER_POOL_H
#define TAPER_POOL_H
#include "base/err.h"

typedef void pool_fn(void *arg, int64_t begin, int64_t end);

/* Calls fn over disjoint ranges that cover [0, n), on up to pool_threads() threads, and returns when all
 * are done. Every inner boundary is a multiple of grain (>= 1), and a range of at most grain runs inline;
 * so work that is elementwise, or reduces a grain at a time, does not depend on the thread count.
 * A call from inside fn, or while another thread's job runs, is one fn(arg, 0, n) on the calling thread. */
void pool_for(int64_t n, int64_t grain, pool_fn *fn, void *arg);
/* The same in as many ranges as there are indices, or 60000: a thread takes the next one when it is done with one, so that
 * nobody waits for a thread that got more, or less of a core. For indices that take microseconds each. */
void pool_each(int64_t n, pool_fn *fn, void *arg);

/* A part returns nothing: what goes wrong in it is reported here and kept, the first one, until somebody asks. */
void pool_report(const tp_err *e);
/* Waits for the job that runs now, if any. False with what was reported since the last time. */
bool pool_sync(tp_err *err);
extern bool pool_reported; /* private */

int pool_threads(void);       /* how many a job may use: TAPER_NUM_THREADS, else the usable cores */
void pool_set_threads(int n); /* clamped to [1, POOL_MAX] */
int pool_thread(void);        /* 0 on threads that are not workers, else 1 .. POOL_MAX - 1 */
enum { POOL_MAX = 1024, POOL_PARTS = 60000 };

/* A thread of its own for work on the side; nobody joins it, and it blocks all signals, which are for the threads of the
 * program. False: there is none to be had. */
bool thread_apart(void *(*fn)(void *), void *arg);
#endif
