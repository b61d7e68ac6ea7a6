/* graph.h - the one representation: a list of nodes, each an operator call with its value's type.
 * Everything a graph depends on hangs off it: constants, symbols, modes. Arena-owned; ends with
 * ir_graph_free. A node's value type is a fake tensor (dtype, symbolic sizes and strides, device), a list of
 * them, or a number. */
#ifndef TAPER_GRAPH_H
#define TAPER_GRAPH_H
#include "ops/op.h"
#include "base/arena.h"
#include "base/crumb.h"
#include "base/map.h"
#include "base/vec.h"

typedef struct ir_node ir_node;
typedef struct ir_graph ir_graph;

/* A place in the user's program. Frames are arena-owned, innermost first. */
typedef struct ir_loc {
    const char *file, *func;
    const char *code; /* private, see ir_loc_code: the source line, stripped, or NULL */
    int line;
    int library; /* not 0: a frame of Taper's own package, whose directory is so many bytes of file */
    bool unread; /* private: the line is in file, and is read when somebody asks */
    bool calls;  /* not compiled itself: the line that calls what is, which is the library's */
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
    struct ir_use **link; /* private: what points at this entry */
    ir_node **at;         /* private: the operand slot */
} ir_use;

/* How a call is spelled in the text form; 0: as the graph's style and the row say. */
enum { SPELL_auto, SPELL_aten = 'a', SPELL_function = 'f', SPELL_method = 'm', SPELL_operator = 'o' };

struct ir_node {
    uint8_t kind;    /* ir_kind */
    uint8_t variant; /* op_variant of a call */
    uint8_t spell;   /* SPELL_*: how the user wrote it; only printing looks at it */
    bool typed; /* a call: the shape rule gave this type for operands of the types that they still have */
    bool
        late; /* computed for those who read it, when what else they read is there; only its place in time depends
                      * on it */
    bool written_back; /* `written` has its first two operands in the other order */
    bool silent;       /* a view through which writes do not count (Tensor.data) */
    uint16_t op;       /* op_id of a call */
    int narg;
    tp_val *arg;      /* schema order for calls; VAL_node/VAL_nodes where a call has tensors */
    const char *name; /* unique in the graph: sin, add_1, l_x_ */
    tp_val val; /* value type: VAL_tensor (fake, owned by the graph), VAL_tensors, VAL_int, ... or VAL_none */
    const ir_loc *loc;
    const char
        *target;      /* placeholder: the source ("L['x']"); const: attribute name; opaque: qualified name */
    tp_tensor *konst; /* IR_const: the tensor, one count held by the graph */
    const char *digest; /* IR_const: SHA-256 of the bytes in hex; set by ir_const_digest or the parser */
    void *opaque;       /* IR_opaque: the callee's handle, owned by whoever registered it */
    ir_use **slot;      /* private: per argument, its use entries */
    ir_use *uses; /* kept by the functions below: users in no particular order, one entry per operand slot */
    int nuse;
    int id;              /* dense, in creation order; renumbered by ir_renumber */
    const void *written; /* what the user wrote for it: an object of Python's that lives for ever, or NULL */
    uint32_t mark;       /* scratch for passes */
    void *data;          /* scratch for passes and stages */
    const char *meta;    /* JSON object text with extra facts (seeds of random ops, provenance), or NULL */
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
    sym_env *env;         /* owns the symbols; may be NULL for static graphs; borrowed (outlives the graph) */
    map names;            /* name -> node */
    const char *wanted;   /* private: what the next node is to be called, or NULL: from its operator */
    map name_next;        /* base name -> next suffix to try */
    bool grad_mode;       /* at capture */
    bool backward;        /* a backward pass is part of it: what is kept for that is a choice */
    int *env_refs;        /* set where env ends with the last graph that shares it (parsed text); atomic */
    uint8_t style;        /* IR_STYLE_* */
    ir_graph *parent;     /* the graph that owns this one (nested graphs), or NULL */
    VEC(ir_graph *) subs; /* nested graphs, owned: operands of kind VAL_graph */
    int *into,
        ninto; /* by result: + 1: the input that it will be copied into, in whose memory it may lie at once; 0: none */
    VEC(tp_tensor *) keep; /* fake tensors and constants to release */
};

/* The text form spells calls as users do (taper.sin(x), x + y) or as operators
 * (taper.ops.aten.sin.default(x)); IR_STYLE_torch writes torch for taper. */
enum { IR_STYLE_python = 0, IR_STYLE_aten = 1, IR_STYLE_torch = 2 };

ir_graph *ir_graph_new(const char *name);
void ir_graph_free(ir_graph *g);
/* The frame to name where there is room for one: the innermost of the user's own code, where the reader can act; the
 * innermost of all when the whole stack is the library's. NULL for NULL. */
const ir_loc *ir_loc_user(const ir_loc *l);
const ir_loc *ir_loc_root(const ir_loc *l); /* likewise the outermost: which function was compiled */
/* The source line of this frame or NULL. Reads the file where that was put off, on any thread. */
const char *ir_loc_code(const ir_loc *l);
const ir_loc *ir_place(const ir_node *n); /* ir_loc_user of n's; NULL for NULL */
/* For whoever looks after a crash or a hang: n is worked on now. */
void ir_crumb_put(const ir_node *n);
static inline void ir_crumb(const ir_node *n)
{
    if (crumb_on())
        ir_crumb_put(n);
}
/* g was read from a text of ours with IR_PRINT_unread: its lines are in their files. */
void ir_unread(ir_graph *g);
bool ir_err_place(tp_err *err, const ir_node *n); /* the error is about n (NULL allowed); returns false */
/* done: places that were copied already, for the next call. */
const ir_loc *ir_loc_copy(arena *a, map *done, const ir_loc *l);
tp_device ir_graph_device(const ir_graph *g); /* the one its tensors are on; the CPU where it has none */
ir_graph *ir_graph_copy(const ir_graph *g);   /* deep: nodes, names, constants by count; same env */

/* --- building (no shape inference: see ir_build and ir_rec for that) ----------------------------------- */
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
/* base, made an identifier that Python does not use; base_1, base_2, ... when taken. Not yet registered. */
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

/* --- building with shape inference ------------------------------------------------------------------- */
/* The value type of this call (arguments in node form, schema order, complete): what the shape rule says, as
 * ir_add_call takes it. Arguments are checked against the schema first, so nothing the rule trusts is
 * missing. */
bool ir_infer(ir_graph *g, op_id op, op_variant v, const tp_val *arg, tp_val *val, tp_err *err);
/* Checks, completes the arguments with their defaults, infers and appends. NULL with err. Results of a call
 * with several are taken with ir_build_item. */
ir_node *ir_build(ir_graph *g, op_id op, op_variant v, const tp_val *arg, int narg, tp_err *err);
/* n, a tensor, lies in memory with these strides from now on. For stages that decide where values lie; users are not asked. */
void ir_set_strides(ir_node *n, const symint *stride);
ir_node *ir_build_item(ir_graph *g, ir_node *of, int index, tp_err *err);
/* Does v suit parameter p? "add(): argument 'other' (position 2) must be Tensor, not str". Values may be in
 * node form or not. */
bool ir_check_arg(const op_row *row, int i, const tp_val *v, tp_err *err);
bool ir_val_equal(const tp_val *a, const tp_val *b);  /* same kind, same bits (nan equals nan) */
bool ir_type_equal(const tp_val *a, const tp_val *b); /* dtype, sizes, strides, device; symbols by identity */
/* Does running n decide unbacked symbols: do its results have some that its operands have not? */
bool ir_decides(const ir_node *n);
int ir_decided(const ir_node *n, symint *out,
               int cap); /* those symbols, in order of creation; returns how many */
int ir_decided_by(const tp_val *type, const tp_val *arg, int narg, symint *out,
                  int cap);              /* before it is a node */
bool ir_has_unbacked(const ir_graph *g); /* are there sizes that cannot be asked about? */
bool ir_row_is_dyn(const op_row *row);   /* the result's type cannot be inferred again: data decides it */

/* --- recording: operator calls on fake tensors become nodes ------------------------------------------ */
typedef enum { REC_composites = 1 } rec_flags; /* expand composite rows into their decomposition */
typedef struct ir_rec {
    ir_graph *g;
    uint32_t flags;
    const ir_loc *(*loc)(void *data, ir_graph *g); /* the user's place now, arena-owned by g; may be NULL */
    void *loc_data;
    /* A real tensor without a node was used: make an input of it or NULL to hold it as a constant. */
    ir_node *(*lift)(void *data, struct ir_rec *r, tp_tensor *t);
    void *lift_data;
    uint8_t spell; /* SPELL_*: given to the nodes recorded from here on */
    /* How a call is recorded; NULL: ir_record. Functionalisation and decomposition stand here. */
    bool (*call)(void *data, op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err);
    void *call_data;
} ir_rec;
/* The dispatcher under the tape: records when cx->rec is set and an argument is fake with a node there (or
 * the call makes a new tensor while recording), else ops_call. */
bool ir_call(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err);
/* Appends the call as it is: shape rule, node, marked results. */
bool ir_record(op_ctx *cx, ir_rec *r, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err);
/* A fake tensor standing for node n's value (count 1), usable as an argument under recorder r. */
tp_tensor *ir_proxy(ir_rec *r, ir_node *n);
ir_node *ir_node_of(ir_rec *r, tp_tensor *t); /* its node under r (lifting if needed) */

/* --- running
 * ------------------------------------------------------------------------------------------------ */
struct sym_bind;
typedef struct ir_hook { /* called around each node; either may be NULL; false stops with err set */
    bool (*before)(void *data, ir_node *n, tp_err *err);
    bool (*after)(void *data, ir_node *n, tp_val *value, tp_err *err); /* may replace the value */
    void *data;
    /* How a call is made; NULL: ops_call. aot passes the tape's entry here. */
    bool (*call)(op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err);
    bool (*opaque)(void *data, ir_node *n, const tp_val *arg, tp_val *out, tp_err *err);
    /* How outputs get a derivative that is a nested graph (HOP_function); NULL: they have none. bind: the symbols of this
     * run. */
    bool (*link)(op_ctx *cx, const ir_node *n, const tp_val *arg, const struct sym_bind *bind, int nbind,
                 tp_val *out, tp_err *err);
} ir_hook;
/* A graph made ready to run: steps with their operands' places, what to release after each, symbolic
 * arguments. Reads g from then on (g must live and stay unchanged). May be run by several threads at once. */
typedef struct ir_prog ir_prog;
ir_prog *ir_prog_new(ir_graph *g);
void ir_prog_free(ir_prog *p); /* NULL is allowed */
/* in: one value per placeholder (borrowed). out: one owned value per returned item. With fake inputs, or with
 * hook->call = ops_fake, only types are computed. Calls of cond and the like (ir/hop.h) run their nested graphs. */
bool ir_prog_run(const ir_prog *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                 const ir_hook *hook, tp_err *err);
/* An opaque node by the list of custom operators (ops/custom.h): what runs where a hook has no opaque. */
bool ir_switches_grad(
    const ir_node *n); /* taper._C._set_grad_enabled(bool) in a captured graph: done by the run */
bool ir_run_custom(const ir_node *n, const tp_val *arg, tp_val *out, tp_err *err);
/* The same for a graph nested in another: what the symbols of the other one are in this run. */
bool ir_prog_run_nested(const ir_prog *p, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                        const ir_hook *hook, const struct sym_bind *bind, int nbind, tp_err *err);
/* Do these inputs fit the placeholders: kind, dtype, rank, constant sizes? "input 'x': expected ..., but got
 * ..." */
bool ir_check_inputs(const ir_graph *g, const tp_val *in, int nin, tp_err *err);
/* Both steps at once, for a graph that runs once. */
bool ir_run(op_ctx *cx, ir_graph *g, const tp_val *in, int nin, tp_val *out, int nout, const ir_hook *hook,
            tp_err *err);

/* --- text: docs/graph.md specifies the form ---------------------------------------------------------- */
enum {
    IR_PRINT_types = 1, /* annotations */
    IR_PRINT_locs = 2,  /* # File: comments */
    IR_PRINT_frees = 4, /* ;  x = None */
    IR_PRINT_head =
        16, /* all that is needed to read it back: symbols, constants, modes, sources, outer frames */
    IR_PRINT_class = 32, /* inside "class GraphModule(taper.nn.Module):" */
    IR_PRINT_short = 64, /* annotations without strides and device */
    IR_PRINT_all = IR_PRINT_types | IR_PRINT_locs | IR_PRINT_frees |
                   IR_PRINT_head, /* reads back to an equal graph */
    IR_PRINT_log = IR_PRINT_types | IR_PRINT_locs | IR_PRINT_frees | IR_PRINT_class, /* what logs show */
    IR_PRINT_table = 8,     /* instead: opcode, name, target, args, kwargs */
    IR_PRINT_sizes = 128,   /* instead: "x: (s0, 3)" and "x (concrete): (5, 3)", a line a tensor */
    IR_PRINT_no_data = 256, /* with head: what constants hold is left out */
    IR_PRINT_brand = 512,   /* logs: torch.sin where the program calls us torch */
    IR_PRINT_unread = 1024, /* with locs: no file is read for the lines it holds; see ir_unread */
};
void ir_print(strbuf *b, const ir_graph *g, int what);
void ir_text_ready(void); /* builds what printing and parsing look up; the first of them does it otherwise */
/* Reads untrusted text. Errors are ERR_syntax "file:line:column: what was expected". env NULL: the graph
 * makes its own when the text has symbols. Types are inferred anew and compared with the annotations. */
ir_graph *ir_parse(const char *text, size_t n, const char *file, sym_env *env, tp_err *err);
/* A file and, beside it, the constants too big for the text (PATH.safetensors, where there are any). */
ir_graph *ir_load(const char *path, sym_env *env, tp_err *err);
bool ir_save(const ir_graph *g, const char *path, tp_err *err);
bool ir_consts_load(ir_graph *g, const char *path,
                    tp_err *err);        /* constants named by digest, from a safetensors file */
const char *ir_const_digest(ir_node *n); /* of an IR_const; NULL when it has no bytes */
/* Equal types, as far as known facts and the example's values tell: see verify.c. */
bool ir_types_alike(const tp_val *a, const tp_val *b);
bool ir_verify(const ir_graph *g, tp_err *err); /* names the broken node and rule */
/* The same, but the shape rule is asked only for calls whose type it did not give, or whose operands changed since. */
bool ir_verify_changed(const ir_graph *g, tp_err *err);
void ir_type_print(strbuf *b, const tp_val *v);           /* f32[3, 3][3, 1]cpu */
void ir_val_print(strbuf *b, const tp_val *v, int style); /* an operand as the text form writes it */
uint64_t
ir_hash(const ir_graph *g); /* structure, types, attributes, constants; not names or places. Stable. */
/* Symbols that stand alone in a type, with what they are in a value of it. Pass 0: sizes and numbers, 1: strides and
 * offsets, 2: strides of dimensions of one element, which may be anything: who binds takes what comes first. */
enum { IR_BIND_PASSES = 3 };
typedef void ir_bind_fn(void *arg, symint symbol, int64_t value);
void ir_bind(const tp_val *type, const tp_val *v, int pass, ir_bind_fn *fn, void *arg);
/* Into a list that has room; a symbol that is in it stays. */
int ir_bind_add(sym_bind *list, int n, symint symbol, int64_t value);
#endif
