/* bisect.h - which stage, and which optional rewrite, makes a failure. */
#ifndef TAPER_BISECT_H
#define TAPER_BISECT_H
#include "debug/trial.h"

typedef struct bisect_site {
    uint64_t hash;
    char *site; /* "fuse:relu@model.py:5" */
} bisect_site;
typedef struct bisect_result {
    int stage;              /* first rung of the ladder that fails, or -1: none does */
    int nsite;              /* optional rewrites that were asked for */
    bool cut;               /* the graph before the cut into forward and backward is right */
    bool without;           /* it fails with all of them refused, too */
    VEC(bisect_site) found; /* the rewrites of every minimal set, one set after the other */
    VEC(int) set;           /* how many of them each set has */
    int trials;
} bisect_result;

const char *bisect_stage(int i);          /* what the i-th backend of the ladder adds, in words */
extern const char *const bisect_ladder[]; /* backends, one more stage each; NULL ends it */
/* want: the failure that counts. line (may be NULL) is told what happens. False with err. */
bool bisect(const repro *r, const signature *want, const trial_limits *l,
            void (*line)(void *data, const char *text), void *data, bisect_result *out, tp_err *err);
void bisect_free(bisect_result *b);

/* Every rewrite beside the graph before it: the first that changes a value beyond rounding, on the inputs of r. */
typedef struct bisect_step {
    char *site;        /* owned; NULL: none does. "" where the graph is wrong before any optional rewrite */
    signature before;  /* how the graph was until then: it passes */
    signature after;   /* and with that rewrite */
    int nsite, trials; /* sites that were asked */
} bisect_step;
bool bisect_validate(const repro *r, const trial_limits *l, bisect_step *out, tp_err *err);
#endif
