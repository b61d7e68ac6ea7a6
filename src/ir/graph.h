/* graph.h - the one representation: a list of nodes, each an operator call with its value's type.
 * Everything a graph depends on hangs off it: constants, symbols, modes. Arena-owned; ends with
 * ir_graph_free. A node's value type is a fake tensor (dtype, symbolic sizes and strides, device), a list of
 * them, or a number. */
#ifndef TAPER_GRAPH_H
#define TAPER_GRAPH_H
#include "ops/op.h"
#include "base/arena.h"
#include "base/map.h"

typedef struct ir_node ir_node;
typedef struct ir_graph ir_graph;

/* A place in the user's program. Frames are arena-owned, innermost first. */
typedef struct ir_loc {
    const char *file, *func, *code; /* code: the source line, stripped, or NULL */
    int line;
    const struct ir_loc *outer; /* the frame that called this one (inlined calls), or NULL */
} ir_loc;

typedef enum {
    IR_placeholder, /* an input */
    IR_const,       /* a tensor held by the graph (get_attr) */
    IR_call,        /* an operator */
    IR_getitem,     /* args[0] is the node, args[1] the index: one result of several */
    IR_opaque,      /* a call the core does not know: custom operators and Python callables, by name */
    IR_output,      /* args: what the graph returns */
} ir_kind;

typedef struct ir_use {
    ir_node *user;
    struct ir_use *next;
} ir_use;

struct ir_node {
    uint8_t kind;    /* ir_kind */
    uint8_t variant; /* op_variant of a call */
    uint16_t op;     /* op_id of a call */
    int narg;
    tp_val *arg;      /* schema order for calls; VAL_node/VAL_nodes where a call has tensors */
    const char *name; /* unique in the graph: sin, add_1, l_x_ */
    tp_val val; /* value type: VAL_tensor (fake, owned by the graph), VAL_tensors, VAL_int, ... or VAL_none */
    const ir_loc *loc;
    const char
        *target;      /* placeholder: the source ("L['x']"); const: attribute name; opaque: qualified name */
    tp_tensor *konst; /* IR_const: the tensor, one count held by the graph */
    void *opaque;     /* IR_opaque: the callee's handle, owned by whoever registered it */
    ir_use *uses;     /* kept by ir_add_use: users in no particular order, one entry per operand slot */
    int nuse;
    int id;           /* dense, in creation order; renumbered by ir_renumber */
    uint32_t mark;    /* scratch for passes */
    void *data;       /* scratch for passes and stages */
    const char *meta; /* JSON object text with extra facts (seeds of random ops, provenance), or NULL */
    ir_node *prev, *next;
    ir_graph *graph;
};

struct ir_graph {
    arena mem;
    const char *name;      /* "__compiled_fn_0", "model__0_forward_1" */
    ir_node *first, *last; /* list; the output node is last once set */
    int nnode, next_id;
    VEC(ir_node *) inputs; /* placeholders in order */
    ir_node *output;       /* or NULL while building */
    sym_env *env;   /* owns the symbols; may be NULL for static graphs; borrowed (outlives the graph) */
    map names;      /* name -> node */
    map name_next;  /* base name -> next suffix to try */
    bool grad_mode; /* at capture */
    VEC(tp_tensor *) keep; /* fake tensors and constants to release */
};

ir_graph *ir_graph_new(const char *name);
void ir_graph_free(ir_graph *g);
ir_graph *ir_graph_copy(const ir_graph *g); /* deep: nodes, names, constants by count; same env */

/* --- building (no shape inference: see ir_rec for that) ------------------------------------------------- */
ir_node *ir_add_placeholder(ir_graph *g, const char *name, const char *source,
                            tp_tensor *fake); /* refs fake */
ir_node *ir_add_placeholder_val(ir_graph *g, const char *name, const char *source,
                                tp_val type);                       /* symint inputs */
ir_node *ir_add_const(ir_graph *g, const char *name, tp_tensor *t); /* refs t */
/* Arguments already in node form. Copies arg into the arena. val is taken over (its tensor counts too). */
ir_node *ir_add_call(ir_graph *g, op_id op, op_variant v, const tp_val *arg, int narg, tp_val val);
ir_node *ir_add_getitem(ir_graph *g, ir_node *of, int index, tp_val val);
ir_node *ir_add_opaque(ir_graph *g, const char *target, void *handle, const tp_val *arg, int narg,
                       tp_val val);
ir_node *ir_set_output(ir_graph *g, const tp_val *val, int n); /* VAL_node, numbers or none each */
/* New nodes go before this one (NULL: at the end, before the output). */
void ir_insert_before(ir_graph *g, ir_node *at, ir_node *n); /* moves n */
void ir_erase(ir_node *n);                                   /* must be unused */
void ir_replace_uses(ir_node *old, ir_node *with);
void ir_set_arg(ir_node *n, int i, tp_val v); /* keeps use lists right */
const char *ir_unique_name(ir_graph *g, const char *base);
void ir_rename(ir_node *n, const char *name);
void ir_renumber(ir_graph *g);
#define IR_EACH(n, g) for (ir_node *n = (g)->first; n; n = n->next)
/* Safe when the body erases n. */
#define IR_EACH_SAFE(n, g) \
    for (ir_node *n = (g)->first, *next_ = n ? n->next : NULL; n; n = next_, next_ = n ? n->next : NULL)
/* Calls f for every node operand of n (list elements too). */
typedef void ir_operand_fn(void *arg, ir_node *operand);
void ir_each_operand(const ir_node *n, ir_operand_fn *f, void *arg);
static inline tp_tensor *ir_type(const ir_node *n) { return n->val.kind == VAL_tensor ? n->val.t : NULL; }

/* --- recording: operator calls on fake tensors become nodes -----------------------------------------------
 */
typedef enum { REC_composites = 1 } rec_flags; /* expand composite rows into their decomposition */
typedef struct ir_rec {
    ir_graph *g;
    uint32_t flags;
    const ir_loc *(*loc)(void *data, ir_graph *g); /* the user's place now, arena-owned by g; may be NULL */
    void *loc_data;
    /* A real tensor without a node was used: make an input of it or NULL to hold it as a constant. */
    ir_node *(*lift)(void *data, struct ir_rec *r, tp_tensor *t);
    void *lift_data;
} ir_rec;
/* The dispatcher under the tape: records when cx->rec is set and an argument is fake with a node there (or
 * the call makes a new tensor while recording), else ops_call. */
bool ir_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err);
/* A fake tensor standing for node n's value (count 1), usable as an argument under recorder r. */
tp_tensor *ir_proxy(ir_rec *r, ir_node *n);
ir_node *ir_node_of(ir_rec *r, tp_tensor *t); /* its node under r (lifting if needed) */

/* --- running
 * ------------------------------------------------------------------------------------------------ */
typedef struct ir_hook { /* called around each node; either may be NULL; false stops with err set */
    bool (*before)(void *data, ir_node *n, tp_err *err);
    bool (*after)(void *data, ir_node *n, tp_val *value, tp_err *err); /* may replace the value */
    void *data;
    /* How a call is made; NULL: ops_call. aot passes the tape's entry here. */
    bool (*call)(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err);
    bool (*opaque)(void *data, ir_node *n, const tp_val *arg, tp_val *out, tp_err *err);
} ir_hook;
/* Interpret g. in: one value per placeholder (borrowed). out: one owned value per returned item. */
bool ir_run(op_ctx *cx, ir_graph *g, const tp_val *in, int nin, tp_val *out, int nout, const ir_hook *hook,
            tp_err *err);

/* --- text
 * ---------------------------------------------------------------------------------------------------- */
enum { IR_PRINT_types = 1, IR_PRINT_locs = 2, IR_PRINT_frees = 4, IR_PRINT_all = 7, IR_PRINT_table = 8 };
void ir_print(strbuf *b, const ir_graph *g, int what); /* docs/graph.md specifies the form */
ir_graph *ir_parse(const char *text, size_t n, const char *file, sym_env *env, tp_err *err);
bool ir_verify(const ir_graph *g, tp_err *err);
void ir_type_print(strbuf *b, const tp_val *v); /* f32[3, 3][3, 1]cpu */
uint64_t ir_hash(const ir_graph *g);            /* structure and types, not names */
#endif
