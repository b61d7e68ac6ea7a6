/* steps.h - the forms that one step of a program may have, measured where it stands. */
#ifndef TAPER_RUN_TUNE_STEPS_H
#define TAPER_RUN_TUNE_STEPS_H
#include "compile/backend.h"
#include "compile/options.h"

enum { LOOPS_COUNT = 5 }; /* ways to write the loops of a kernel */

/* One search: what it may do, for how long, and what came of it. */
typedef struct tune {
    tp_comp *c;
    const ir_graph *g;
    const run_options *opt;             /* what is left open there may be searched */
    int64_t until;                      /* clock_ns at which it ends */
    bool with_c;                        /* kernels are there as C, too */
    bool no_c;                          /* the C compiler failed once: it is not asked again */
    bool search;                        /* else only what is remembered is used */
    struct loop_plan *alt[LOOPS_COUNT]; /* the same steps with other loops; owned */
    bool asked[LOOPS_COUNT];            /* alt[i] was tried */
    int measured, remembered, chosen, left;
} tune;

/* Sets every step of p to its fastest form, by memory or by measurement on these inputs. p runs in any case. */
void tune_steps(tune *t, run_program *p, const tp_val *in, int nin);
/* Nanoseconds of the fastest of some runs of all of p, or -1: it fails on these inputs. */
int64_t tune_time(run_program *p, const ir_graph *g, const tp_val *in, int64_t enough_ns);

/* Do both give the same results there? */
bool tune_agree(run_program *a, run_program *b, const ir_graph *g, const tp_val *in);

/* What won is remembered in the process and on disk, under `key` and what it depends on beyond that: build, processor,
 * threads, options. Both append to, or write from, `won`. */
bool tune_recall(const tune *t, const strbuf *key, const char *what, strbuf *won, bool *from_disk);
void tune_remember(const tune *t, const strbuf *key, const char *what, const char *won);
/* "GRAPH: text", where somebody listens. */
TP_PRINTF(2, 3) void tune_say(const tune *t, const char *fmt, ...);
bool tune_over(const tune *t); /* the time is used up */
#endif
