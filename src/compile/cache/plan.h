/* plan.h - a plan with the machine code of its kernels as bytes, and back. Reading trusts nothing but the code itself:
 * whoever calls has checked where the bytes come from. */
#ifndef TAPER_RUN_PLANIO_H
#define TAPER_RUN_PLANIO_H
#include "run/program.h"

/* --- numbers and strings ---------------------------------------------------------------------------------------- */
void io_put(strbuf *b, int64_t v);
void io_put_bytes(strbuf *b, const void *p, size_t n);
void io_put_sym(strbuf *b, symint v);
typedef struct io_in {
    const char *p, *e;
    bool bad; /* something did not fit: everything read since is 0 */
} io_in;
int64_t io_get(io_in *r);
int64_t io_get_in(io_in *r, int64_t lo, int64_t hi); /* lo <= v < hi, else bad */
const char *io_get_bytes(io_in *r, size_t *n);       /* inside the input; not terminated */
symint io_get_sym(io_in *r, sym_env *env);

/* Whole graphs as text; constants that `from` (the captured graph, or NULL) also holds are stored as its. */
bool io_put_graph(strbuf *b, const ir_graph *g, const ir_graph *from, tp_err *err);
/* Equal for graphs that compile to the same: what their nodes are, are called and where they come from. */
void io_put_key(strbuf *b, const ir_graph *g);
ir_graph *io_get_graph(io_in *r, const char *name, const ir_graph *from, tp_err *err);

/* False with the reason: something in it cannot leave the process. */
bool planio_write(strbuf *b, const run_program *p, const ir_graph *from, tp_err *err);
/* NULL with err. *made: by step, to be freed. */
loop_plan *planio_read(io_in *r, const char *name, const ir_graph *from, const target_code ***made,
                       tp_err *err);
#endif
