/* decide.h - every optional rewrite asks first: if (decide(c, DECIDE_cse, n)) ...
 * Normally nobody is installed to answer and the answer is yes, at the cost of one predictable branch. The
 * bisector installs an answerer and says no to some sites, so any miscompile is narrowed to the rewrite that
 * made it. A site is a string that stays the same from run to run: kind, node name and the user's line. */
#ifndef TAPER_DECIDE_H
#define TAPER_DECIDE_H
#include "ir/graph.h"

typedef enum {
#define DECIDE(name, what) DECIDE_##name,
#include "ir/decide.def"
    DECIDE_COUNT
} decide_kind;
const char *decide_name(decide_kind k);
const char *decide_what(decide_kind k);
bool decide_by_name(const char *name, size_t n, decide_kind *k);

typedef struct decider {
    /* site: "cse:add_1@model.py:12"; hash: of that string, stable. Not called when fn is NULL. */
    bool (*fn)(void *data, decide_kind k, const char *site, uint64_t hash);
    void *data;
} decider;

struct backend;
struct run_program;
/* One compilation: what its stages share. Zeroed is valid. */
typedef struct tp_comp {
    tp_err *err;     /* where failures go */
    decider decider; /* who answers decide(); nobody: yes */
    bool verify;     /* check the graph after every pass, in release builds too */
    bool explain;    /* plans keep why values were fused or not, whether or not a trace is written */
    op_ctx *cx;      /* for what is computed while compiling; NULL: the thread's */
    const struct target *target;    /* the machine (target/target.h); NULL: this one */
    const struct target_caps *caps; /* what loops are written for; NULL: those of the target */
    const struct run_options *opt;  /* of the last stage (compile/options.h); NULL: the defaults */
    bool tiers;  /* a program may run one operator at a time until its code is there (compile/aot.c) */
    bool later;  /* code may be finished when the compile has returned: run_program_ready */
    bool stored; /* the disk cache has it, or it is not compiled */
    /* Is shown the joint graph of operators as they were called; NULL: nobody looks. */
    void (*traced)(struct tp_comp *c, ir_graph *joint);
    /* Is given the joint graph of core operators: another one that takes its place, with the same inputs and results, or NULL. */
    ir_graph *(*joined)(struct tp_comp *c, const ir_graph *joint);
    bool (*joins_whole)(op_id op); /* rows that are decomposed behind it alone */
    /* The debugger (debug/wrap.h) compiles graphs after the autograd stage by b in its own way; NULL: it does not. */
    struct run_program *(*watch)(struct tp_comp *c, const struct backend *b, const ir_graph *g,
                                 const char *what);
} tp_comp;

/* The answerer that TAPER_BISECT_SUBSYSTEM and TAPER_BISECT_MAX ask for: of that kind, only the first MAX + 1 rewrites of
 * the process are made. Nobody where they are not set. */
decider decide_env(void);
bool decide_ask(tp_comp *c, decide_kind k, const char *site); /* somebody is installed */
bool decide_ask_node(tp_comp *c, decide_kind k, const ir_node *n);
static inline bool decide(tp_comp *c, decide_kind k, const ir_node *n)
{
    return TP_LIKELY(!c->decider.fn) || decide_ask_node(c, k, n);
}
/* For sites that are no node: `site` must be stable ("kernel fused_sin_add"). */
static inline bool decide_at(tp_comp *c, decide_kind k, const char *site)
{
    return TP_LIKELY(!c->decider.fn) || decide_ask(c, k, site);
}
#endif
