/* backend.h - a backend turns a graph into a program (run/run.h). The interface is the same for all of them: those of
 * backends.def, those that fail on purpose (debug/backends.h), those written in Python (capture/backends.c), and the
 * compilers of the graphs after the autograd stage, so that the debugger can stand around any. */
#ifndef TAPER_BACKEND_H
#define TAPER_BACKEND_H
#include "aot/aot.h"
#include "run/run.h"

typedef struct backend {
    const char *name, *what;
    /* g stays the caller's and may go away: copy what is kept. example: one value per input, real ones where they are
     * known, for what types do not say; or NULL. NULL with c->err. */
    run_program *(*compile)(const struct backend *b, tp_comp *c, const ir_graph *g, const tp_val *example);
    const void *data; /* its own */

    /* --- where compile is aot_compile: a graph becomes functional forward and backward graphs first --- */
    const struct backend *inner; /* compiles each of them; has the same name */
    uint32_t aot;                /* AOT_*: what is done to them before */
    const aot_cut *cut;          /* NULL: the partition that the flags name */
    bool on_disk; /* the programs can be kept in the disk cache (compile/cache/graph_cache.h) */
    void (*free)(const struct backend *b); /* with the last program that uses it; NULL: it is for ever */
} backend;

const backend *backend_find(const char *name, tp_err *err); /* NULL with the names there are */
const backend *backend_at(int i);                           /* NULL after the last */
/* Adds or replaces by name; b must live as long as the process. */
void backend_register(const backend *b);
extern const backend backend_eager; /* what runs where another one cannot */

/* b's compile of a graph that is verified first. */
run_program *backend_compile(const backend *b, tp_comp *c, const ir_graph *g, const tp_val *example);
/* Inputs of g that need gradients in `example` do so in their types, too. */
bool backend_mark_inputs(ir_graph *g, const tp_val *example, tp_err *err);

/* The autograd stage in front of b->inner (aot.c). b->free is called also when this fails. */
run_program *aot_compile(const backend *b, tp_comp *c, const ir_graph *g, const tp_val *example);

/* Runs g, which it takes, one operator at a time (interpreter.c). hook: how calls are made and what is done around
 * them; what it points at must live as long as the program. */
run_program *interpreter_new(ir_graph *g, const ir_hook *hook);
#endif
