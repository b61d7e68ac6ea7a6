/* minify.h - the smallest graph that still fails in the same way. */
#ifndef TAPER_MINIFY_H
#define TAPER_MINIFY_H
#include "debug/trial.h"

typedef struct minify_opts {
    trial_limits limits;
    void (*progress)(void *data, const char *line); /* plain lines; may be NULL */
    void *data;
    void (*best)(void *data, const repro *r, int nodes); /* after each success; may be NULL */
    bool (*fails)(void *data, const repro *r,
                  signature *out); /* instead of a trial in a child; may be NULL */
    bool here;                     /* trials in this process: no isolation */
    const char *check_str;         /* the message must contain it; NULL: any that is the same */
    int max_granularity; /* nodes that one step takes away at most, a power of two; 0: as many as there are */
    bool
        skip_sanity; /* the graph is not run before the search: the first failure that shows is the one to keep */
    const char *
        offload; /* directory: values that stand in for nodes are kept there instead of in memory; may be NULL */
    bool reuse_offloaded; /* what is in that directory already stays as it is */
    const char
        *memo_file; /* answers are kept there: an interrupted search goes on where it stood; may be NULL */
} minify_opts;
typedef struct minify_stats {
    int before, after; /* operator nodes */
    int trials, hits;  /* runs; answers from memory */
    double seconds;
    bool stopped; /* interrupted: the best so far */
    int verified; /* runs that confirmed the answer */
    int repeats;  /* runs a trial took: more than one when the failure comes and goes */
    signature sig;
} minify_stats;

/* A new, minimal repro; NULL with err when r does not fail, is flaky, or the search was interrupted at once. */
/* r with values in the place of calls that only this process can make (operators and functions registered by Python). NULL:
 * there are none, or their values cannot be had. */
repro *repro_freed(const repro *r);
repro *minify(const repro *r, const minify_opts *o, minify_stats *st, tp_err *err);
#endif
