/* pass.h - rewrites of a graph, and the driver that runs them all the same way: run, verify, report.
 * A pass is a row. Passes leave a verified graph, ask decide() before every optional rewrite, and cost time
 * linear in the graph. */
#ifndef TAPER_PASS_H
#define TAPER_PASS_H
#include "ir/decide.h"

enum { /* facts about a graph that passes need and keep */
       FACT_verified = 1,
       FACT_functional = 2, /* no in-place operators */
};
typedef struct pass_row {
    const char *name;
    bool (*run)(tp_comp *c, ir_graph *g); /* false with c->err */
    const char *what;                     /* one line for people */
    uint32_t needs, keeps;                /* FACT_* */
} pass_row;

extern const pass_row pass_rows[];                        /* the graph passes, ending in a row without name */
const pass_row *pass_by_name(const char *name, size_t n); /* NULL when there is none */
/* Runs rows in order. Whenever a pass needs a fact that an earlier one did not keep, that is checked again.
 */
/* pass_walk.c: the rewrites one by one, to the detailed trace; NULL: nobody listens. mine asks through it from then on. */
typedef struct pass_walk pass_walk;
pass_walk *pass_walk_begin(tp_comp *mine, const ir_graph *g);
void pass_walk_end(pass_walk *w);
bool pass_run(tp_comp *c, ir_graph *g, const pass_row *const *rows, int n);
/* "fold,cse,dce", or NULL for all rows in their order. */
bool pass_run_named(tp_comp *c, ir_graph *g, const char *list);

/* A node that uses nothing and is not returned goes away, unless it writes, draws random numbers or is
 * opaque. */
bool pass_dce(tp_comp *c, ir_graph *g);
/* Two equal calls become one, where nobody could tell: neither is written to, not both are returned. */
bool pass_cse(tp_comp *c, ir_graph *g);
/* Calls whose operands are all constants are computed now, up to PASS_FOLD_BYTES of result. */
bool pass_fold(tp_comp *c, ir_graph *g);
/* Views of the same shape, copies nobody writes to, x*1, x/1, x-0, -(-x). */
bool pass_noop(tp_comp *c, ir_graph *g);
enum { PASS_FOLD_BYTES = 1 << 16 };

bool ir_node_writes(const ir_node *n);    /* changes one of its operands */
bool ir_node_is_effect(const ir_node *n); /* must stay although unused */
/* Which storages of value types are written, and which leave through the output. */
typedef struct escape {
    map written, returned; /* storage pointer -> itself */
    bool opaque;           /* an opaque call may write anything it is given */
} escape;
void escape_init(escape *e, ir_graph *g);
void escape_free(escape *e);
bool escape_written(const escape *e, const ir_node *n);
bool escape_returned(const escape *e, const ir_node *n);
#endif
