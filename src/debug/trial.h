/* trial.h - one run of a graph with a backend, and what came of it. */
#ifndef TAPER_TRIAL_H
#define TAPER_TRIAL_H
#include "debug/accuracy.h"
#include "run/backend.h"

/* A graph, real inputs, a backend: all that a failure needs to show itself again. */
typedef struct repro {
    ir_graph *g;
    tp_val *in;       /* owned, one per placeholder */
    bool *needs_grad; /* one per placeholder */
    int nin;
    char *backend;
    bool accuracy; /* compare with eager and float64, too */
    acc_opts acc;
} repro;
repro *repro_new(const ir_graph *g, const tp_val *in, int nin, const char *backend); /* copies everything */
repro *repro_copy(const repro *r);
void repro_free(repro *r);

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
} signature;
const char *sig_name(sig_kind k);
bool sig_equal(const signature *a, const signature *b);

/* In this process: eager first, then the backend. Never crashes by itself, but the backend may. */
void trial_here(const repro *r, signature *out);
/* In forked children with limits; several at once. interrupted may be NULL. False when interrupted. */
typedef struct trial_limits {
    int64_t timeout_ms;
    size_t memory;
    bool (*interrupted)(void *data);
    void *data;
} trial_limits;
bool trial_run(const repro *const *r, int n, const trial_limits *l, signature *out, tp_err *err);
#endif
