/* trial.h - one run of a graph with a backend, and what came of it. */
#ifndef TAPER_TRIAL_H
#define TAPER_TRIAL_H
#include "debug/repro.h"
#include "base/proc.h"
#include "compile/backend.h"

typedef enum {
    SIG_passes,
    SIG_cannot_run,
    SIG_compile_error,
    SIG_exception,
    SIG_accuracy,
    SIG_signal,
    SIG_timeout,
    SIG_oom,
    SIG_flaky
} sig_kind;
typedef struct signature {
    sig_kind kind;
    int number;      /* signal */
    char text[400];  /* message with numbers, names and paths made alike */
    char full[1024]; /* as it was */
    char stage[16];  /* compile, run, compare: what was going on */
    char type[48];   /* class of the exception, or empty */
    char
        stages[96]; /* hashes of the graph at each stage: "captured:... forward:... backward:...", or empty */
} signature;
const char *sig_name(sig_kind k);
sig_kind sig_by_name(const char *name); /* SIG_passes when there is none */
bool sig_equal(const signature *a, const signature *b);
/* What happened in words: "wrong result: result 0: element [3] is 1.5, eager 0.5, float64 0.5". */
void sig_plain(strbuf *b, const signature *s);
void sig_set(signature *s, sig_kind k, const char *stage, const char *msg);

/* In this process: eager first, then the backend. Never crashes by itself, but the backend may. */
void trial_here(const repro *r, signature *out);
/* The same with a program that is compiled already; NULL: compile. err (may be NULL) gets the error as it was. */
void trial_with(const repro *r, run_program *p, signature *out, tp_err *err);
void trial_decided(const repro *r, decider d, signature *out); /* with somebody who answers decide() */
/* How a child tells its parent. */
void trial_print(const signature *s);
void trial_read(const proc_result *r, signature *out);
run_program *repro_compile(tp_comp *c,
                           const repro *r); /* as its backend does, or only the part behind autograd */
/* The pure forward or backward graph that the autograd stage makes of r, with the values it gets. NULL with err. */
repro *repro_forward(const repro *r, tp_err *err);
repro *repro_backward(const repro *r, tp_err *err);
/* Is the graph of forward and backward together right, as the autograd stage of r's backend makes it before it is cut in two?
 * Asked in a child. */
bool trial_joint(const repro *r);
/* What each stage makes of r, as hashes, into s->stages; found in a child, since a stage may not survive it. */
void trial_stages(const repro *r, signature *s);
/* The first stage whose hash differs ("forward"), or NULL. */
const char *stages_differ(const signature *a, const signature *b);
/* Where compiled and eager part: "first diverging node: relu (model.py:7: y = relu(x)): element [0] is ...". False when none
 * was found. The node's name goes to *node (owned, may be NULL). */
bool trial_diverge(const repro *r, strbuf *out, char **node);
/* Every node: a line "DIVERGED at relu: ..." for each that differs, "NONDETERMINISTIC INDUCTOR at relu" for each that is not the
 * same in two runs (left out when once is set). How many lines. */
int trial_analyze(const repro *r, bool once, strbuf *out);
/* In forked children with limits; several at once. interrupted may be NULL. False when interrupted. */
typedef struct trial_limits {
    int64_t timeout_ms;
    size_t memory; /* bytes of address space a child may use; 0: three quarters of the machine's memory */
    int width;     /* children at once; 0: as many as the pool has threads */
    bool (*interrupted)(void *data);
    void *data;
} trial_limits;
bool trial_run(const repro *const *r, int n, const trial_limits *l, signature *out, tp_err *err);
/* The error of each value against float64, in eager execution and compiled, as a table; how much larger the compiled error is than
 * that of what the value is computed from. False: there is none (it does not run, or nothing is in float). */
bool trial_ledger(const repro *r, strbuf *out);
/* Which elements of the first wrong result are wrong, where a rule says so: "5 of 80 elements, with n % 16 == 15, where n is the place
 * along dimension 1". */
bool trial_elements(const repro *r, strbuf *out);
/* Eager gradients of the whole graph against finite differences in float64, along one direction after the other. 1: they disagree
 * (both into *rule and *diff), 0: they agree, -1: nothing can be said (random numbers, writes, kinks, gradients cut on purpose). */
int trial_gradient(const repro *r, double *rule, double *diff);
#endif
