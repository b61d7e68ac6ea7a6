/* run.h - the one program type: what every backend makes and every caller runs, from capture to the kernels. */
#ifndef TAPER_RUN_H
#define TAPER_RUN_H
#include "ir/graph.h"

typedef struct run_program run_program;
struct run_program { /* the struct of who makes it begins with this */
    /* in: borrowed, one per placeholder. out: owned, one per returned item. Re-entrant. */
    bool (*call)(run_program *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout, tp_err *err);
    void (*free)(run_program *p);
    /* The same with inputs the program may give back (and set to none) once it has read them; NULL: it cannot. */
    bool (*take)(run_program *p, op_ctx *cx, tp_val *in, int nin, tp_val *out, int nout, tp_err *err);
    /* Is its code there? wait: waits until that is known. False with an error where it never will be; false without one: not yet.
     * NULL: always. */
    bool (*ready)(run_program *p, bool wait, tp_err *err);
    bool stepwise; /* inputs are written as the lines say; otherwise when nothing can fail any more */
};

static inline bool run_program_call(run_program *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out,
                                    int nout, tp_err *err)
{
    return p->call(p, cx, in, nin, out, nout, err);
}

/* in: owned by the callee; all of them are gone afterwards. */
static inline bool run_program_take(run_program *p, op_ctx *cx, tp_val *in, int nin, tp_val *out, int nout,
                                    tp_err *err)
{
    bool ok = p->take ? p->take(p, cx, in, nin, out, nout, err) : p->call(p, cx, in, nin, out, nout, err);
    for (int i = 0; i < nin; i++)
        val_clear(&in[i]);
    return ok;
}

static inline bool run_program_ready(run_program *p, bool wait, tp_err *err)
{
    return !p->ready || p->ready(p, wait, err);
}

static inline void run_program_free(run_program *p) /* NULL is allowed */
{
    if (p)
        p->free(p);
}

/* A call of something outside the graph, as hooks of ir_prog_run want it: the host's, else what needs no host. */
bool run_opaque(void *data, ir_node *n, const tp_val *arg, tp_val *out, tp_err *err);
bool run_opaque_core(const ir_node *n, const tp_val *arg, tp_val *out, tp_err *err);
#endif
