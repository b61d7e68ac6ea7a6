/* backend.h - a backend turns a graph into a program. The interface is the same for all of them, so the
 * debugger can stand around any. Rows of backends.def are built in; others (Python functions, fault
 * injectors) are registered. */
#ifndef TAPER_BACKEND_H
#define TAPER_BACKEND_H
#include "ir/decide.h"

typedef struct run_program run_program;
struct aot_inner;
typedef struct backend {
    const char *name, *what;
    /* g stays the caller's and may go away: copy what is kept. NULL with c->err. */
    run_program *(*compile)(const struct backend *b, tp_comp *c, const ir_graph *g);
    void *data; /* of whoever registered it */
    const struct aot_inner
        *inner; /* what compiles the graphs behind the autograd stage; NULL: there is no such stage */
} backend;

struct run_program { /* a backend's own struct begins with this */
    const backend *backend;
    /* in: borrowed, one per placeholder. out: owned, one per returned item. Re-entrant. */
    bool (*call)(run_program *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout, tp_err *err);
    void (*free)(run_program *p);
    /* The same with inputs the program may give back (and set to none) once it has read them; NULL: it cannot. */
    bool (*take)(run_program *p, op_ctx *cx, tp_val *in, int nin, tp_val *out, int nout, tp_err *err);
};

const backend *backend_find(const char *name, tp_err *err); /* NULL with the names there are */
const backend *backend_at(int i);                           /* NULL after the last */
/* Adds or replaces by name; b must live as long as the process. */
void backend_register(const backend *b);

/* How opaque calls (custom operators, Python callables) are made; set once by whoever registers them. */
typedef bool run_opaque_fn(void *data, ir_node *n, const tp_val *arg, tp_val *out, tp_err *err);
void run_set_opaque(run_opaque_fn *fn);
extern run_opaque_fn *run_opaque;
run_opaque_fn run_core_opaque; /* what needs nobody outside: how it is at first */

run_program *backend_compile(tp_comp *c, const char *name, const ir_graph *g); /* verifies g first */
bool run_program_call(run_program *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                      tp_err *err);
/* in: owned by the callee; all of them are gone afterwards. */
bool run_program_take(run_program *p, op_ctx *cx, tp_val *in, int nin, tp_val *out, int nout, tp_err *err);
void run_program_free(run_program *p); /* NULL is allowed */
#endif
