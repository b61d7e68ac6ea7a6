/* step.h - a compiled graph as one step on the tape: its forward program runs in the call, its backward program when
 * gradients come. What is not compiled yet is asked for: other inputs may need gradients than those seen so far, and
 * backward programs are made when they are wanted. */
#ifndef TAPER_RUN_STEP_H
#define TAPER_RUN_STEP_H
#include "aot/aot.h"
#include "run/run.h"
#include <pthread.h>

/* The graph as traced for one set of inputs that need gradients. */
typedef struct step_variant {
    struct step_variant *next;
    uint64_t key; /* of the set */
    bool grad;    /* something needs gradients */
    bool has_bw;  /* there is a backward graph: calls are recorded */
    aot_unit *u;
    run_program *fw, *bw; /* bw is made on first use */
    bool
        waits; /* code of fw or bw is not finished (run_program_ready): calls run the graph on the tape; read without the lock */
    int64_t first_calls;  /* how many did */
    pthread_mutex_t lock; /* around these */
    struct step_program *owner;
    uint64_t *reached; /* by input: the tangents that it reaches; NULL: not asked yet */
    uint64_t
        *made; /* by item that is a view of an input: the tangents of what is made of it; NULL as above */
} step_variant;

typedef struct step_program { /* the struct of who compiles it begins with this */
    run_program base;
    const struct step_compiler *compiler;
    ir_graph *g; /* as captured; owned */
    step_variant *variants;
    pthread_mutex_t lock; /* around a new one */
    int refs;             /* the program itself and every step on a tape */
    bool leaves;          /* requires_grad_() is said in the graph */
    bool draws;           /* it has random operators */
    bool counted;         /* they draw by the counter in the compiled programs (ops/random.h) */
    bool *through;        /* by input: the graph writes by this name of its memory; NULL: not asked yet */
    bool trusted;         /* guards hold grad mode and what needs gradients: a single variant is the one */
} step_program;

typedef struct step_compiler {
    /* A variant at the head of the list; needs: one per input. NULL with err. */
    step_variant *(*variant)(step_program *p, const bool *needs, bool grad, uint64_t key, tp_err *err);
    /* Sets v->bw, whose code may be unfinished while v waits. */
    bool (*backward)(step_variant *v, tp_err *err);
    /* v waits no longer: its code is there, or is made anew where that failed. */
    bool (*settle)(step_variant *v, tp_err *err);
    void (*variant_free)(step_variant *v); /* and its memory; u, fw and bw are gone */
    void (*free)(step_program *p);         /* the same of the program, with the last step */
} step_compiler;

/* Sets up p, whose memory is zero, for a graph that it takes. */
void step_program_init(step_program *p, const step_compiler *compiler, ir_graph *g);
/* Which inputs need gradients (needs: one per input), whether anything does, and the key of that set. */
uint64_t step_key(const step_program *p, const op_ctx *cx, const tp_val *in, bool *needs, bool *any);
void step_variant_free(step_variant *v);

typedef struct step_stats {
    int64_t first, taken_over; /* calls on the tape while code was made; variants whose programs took over */
} step_stats;
step_stats step_get_stats(void);
#endif
