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
} minify_opts;
typedef struct minify_stats {
    int before, after; /* operator nodes */
    int trials, hits;  /* runs; answers from memory */
    double seconds;
    signature sig;
} minify_stats;

/* A new, minimal repro; NULL with err when r does not fail, is flaky, or the search was interrupted at once. */
repro *minify(const repro *r, const minify_opts *o, minify_stats *st, tp_err *err);
int repro_ops(const repro *r); /* operator nodes */
#endif
