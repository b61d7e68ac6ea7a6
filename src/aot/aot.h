/* aot.h - from a captured graph to pure forward and backward graphs.
 * Traces the captured graph on fake tensors through the tape: writes become values with copy-back, the
 * derivative rows append the backward, decompositions and a min-cut partition follow. Runs nothing. */
#ifndef TAPER_AOT_H
#define TAPER_AOT_H
#include "grad/tape.h"
#include "ir/pass.h"

/* How one item that the captured graph returned is made from what the forward graph returns. */
typedef enum {
    AOT_value, /* result `index` of the forward graph */
    AOT_input, /* input `index` itself */
    AOT_view,  /* a view of input `index` with this geometry, made by the caller so that it really aliases */
    AOT_result_view, /* a view of forward result `index` */
    AOT_number,      /* `num`: a number or None */
} aot_out_kind;
typedef struct aot_out {
    uint8_t kind;
    bool requires_grad;
    bool leaf;     /* made a leaf by requires_grad_(): it has no history, gradients end at it */
    bool detached; /* it is no view as far as gradients go */
    bool
        no_grad; /* a view taken under no_grad: it requires a gradient as its base does, and passes none on */
    int index;
    int of; /* views: the item that is a leaf and whose view this is; values: the value whose view this is; or -1 */
    tp_val num;
    tp_tensor *type; /* fake: geometry of views; one count */
} aot_out;

/* A forward result that is not returned as it comes. AOT_view, AOT_result_view: it lies in that memory, with a history of
 * its own. AOT_value: it is copied into memory with these strides, which have gaps. */
typedef struct aot_place {
    int value;
    aot_out at;
} aot_place;

/* One more input behind those of the captured graph: the memory that several of them share (bases.c). */
typedef struct aot_base {
    int of;          /* one of them */
    int64_t lo, len; /* elements, counted in the storage that the captured graph's types have */
} aot_base;

typedef struct aot_unit {
    ir_graph *joint; /* values, written inputs, gradients; kept for logs and tests */
    ir_graph *fw;    /* primals -> values, written inputs, saved */
    ir_graph *bw;    /* saved, tangents -> gradients; NULL when nothing needs a gradient */
    int nin;         /* primals */
    int nout;        /* items the captured graph returned */
    aot_out *out;
    int nvalue;       /* first results of fw */
    aot_place *place; /* where some of them belong */
    int nplace;
    int nmut, *mut;         /* next results of fw go back into these inputs */
    int nsaved;             /* last results of fw, first inputs of bw */
    int ntangent, *tangent; /* last inputs of bw: gradients of these fw results, values or written inputs */
    int ngrad, *grad; /* results of bw belong to these inputs; nin + i: to item i, a leaf; -1: to nobody */
    /* Inputs that the graph says requires_grad_() to, and what they are afterwards. */
    struct aot_flag {
        int in;
        bool on;
    } * flag;
    int nflag;
    aot_base *base; /* the last of the nin */
    int nbase;
    int64_t saved_bytes, all_bytes; /* by hint: what the partition saves; what saving everything would */
} aot_unit;

enum {
    AOT_decompose = 1,  /* down to the core set */
    AOT_min_cut = 2,    /* recompute cheap values in backward instead of saving them */
    AOT_draw_calls = 4, /* random operators stay calls of the eager kernels, which draw eager's numbers */
};
bool aot_inlines(const ir_node *n);       /* a Python callee that is called on proxies (allow_in_graph) */
bool aot_makes_leaf(const ir_node *n);    /* taper._C._set_requires_grad(tensor, bool) in a captured graph */
bool aot_makes_leaves(const ir_graph *g); /* is there such a call? */
/* Somebody else's partition: sets u->fw and u->bw from u->joint, whose first nfw results are forward's. */
typedef struct aot_cut {
    bool (*fn)(const struct aot_cut *cut, tp_comp *c, aot_unit *u, int nfw);
} aot_cut;
/* needs_grad: one per placeholder; cut: NULL for the partition that the flags name. NULL with c->err on failure. */
aot_unit *aot_trace(tp_comp *c, const ir_graph *g, const bool *needs_grad, bool grad_mode, uint32_t flags,
                    const aot_cut *cut);
void aot_unit_free(aot_unit *u);

/* --- parts, in order of use -------------------------------------------------------------------------------- */
/* functional.c: a recorder under which in-place operators become pure ones. */
typedef struct fn_state fn_state;
fn_state *fn_new(ir_rec *r); /* hooks itself into r */
void fn_free(fn_state *f);
void fn_root(fn_state *f, tp_tensor *t); /* what shares its storage is views of t */
/* The node that holds t's present value (views of written storage are made again). */
ir_node *fn_node(fn_state *f, op_ctx *cx, tp_tensor *t, tp_err *err);
bool fn_written(const fn_state *f, const tp_tensor *t); /* was its storage written under this recorder? */
tp_tensor *fn_base(const fn_state *f,
                   const tp_tensor *t); /* all of its storage, when that was written; or NULL */

/* bases.c: does the graph write memory that several of its inputs share? */
bool aot_writes_shared(const ir_graph *g);
bool *aot_written_inputs(const ir_graph *g); /* by input, freed by the caller; NULL: none is written */
bool *aot_writes_through(const ir_graph *g); /* the same of writes by this name of the memory; never NULL */

/* decompose.c: every row that has a decomposition is replaced by it, asking decide() for each node, but for rows of which `whole` says yes
 * (NULL: none). New graph. */
ir_graph *aot_decompose(tp_comp *c, ir_graph *g, bool (*whole)(op_id op));
bool aot_is_core(op_id op); /* stays as it is */

/* offsets.c: pooling keeps offsets in its windows for backward instead of indices. */
bool aot_pool_offsets(tp_comp *c, ir_graph *g);
bool aot_draws(tp_comp *c, ir_graph *g); /* rand becomes a place in the sequence and what is drawn there */

/* partition.c: fills u->fw, u->bw, nsaved, saved_bytes from u->joint; nfw: results that belong to forward. */
bool aot_partition(tp_comp *c, aot_unit *u, int nfw, bool min_cut);
/* A node of backward with a size that its inputs do not tell, and those of forward do; NULL: there is none. */
const ir_node *aot_size_lost(const aot_unit *u);
/* A graph that holds both passes: where most is alive, cheap values are computed again instead of kept. */
bool aot_recompute(tp_comp *c, ir_graph *g);
/* What backward keeps of inputs that forward writes becomes a copy of what they held before, whoever cut the graph. */
bool aot_keep_old_values(aot_unit *u, int nfw, tp_err *err);

/* check.c: the rules that a finished unit keeps; false names the broken one. */
bool aot_unit_check(const aot_unit *u, tp_err *err);

/* replay.c: a graph runs once more on fake tensors under a recorder. */
typedef struct aot_stepped {
    uint64_t step; /* how many the tape had when node was replayed */
    const ir_node *node;
} aot_stepped;
typedef struct aot_replay {
    op_ctx *cx;
    ir_rec *rec; /* records into rec->g; its loc is aot_replay_where with the replay as data */
    /* The value that stands for input i; owned. */
    tp_val (*input)(struct aot_replay *r, ir_node *n, int i);
    bool (*call)(struct aot_replay *r, ir_node *n, const tp_val *arg, tp_val *out, tp_err *err);
    /* 1: it took care of n, 0: n goes over as it is, -1: error; may be NULL. */
    int (*opaque)(struct aot_replay *r, const ir_node *n, tp_err *err);
    ir_graph *(*graph)(struct aot_replay *r,
                       ir_graph *g); /* nested graphs of what goes over; NULL: the same */
    ir_node *(*node)(struct aot_replay *r, tp_tensor *t, tp_err *err); /* of a value */
    void *data;
    tp_tensor *const *args; /* what stands for the inputs, where `input` reads them here */
    tp_val *val;            /* by node id of the graph that was replayed; owned */
    int nval;
    const ir_node *now; /* private: being replayed */
    const ir_loc *loc;
    VEC(aot_stepped) steps;
    uint64_t step; /* of the tape; loc is that of the operator it belongs to */
    map locs;      /* places of the old graph in locs_in */
    const ir_graph *locs_in;
    arena scratch;
} aot_replay;
bool aot_replay_run(aot_replay *r, ir_graph *g, tp_err *err);
void aot_replay_end(aot_replay *r);
const ir_loc *aot_replay_where(void *replay, ir_graph *g);
tp_val aot_replay_operand(aot_replay *r, const tp_val *v); /* an argument as it is now; lists are borrowed */
/* val with its dimensions in the order in memory that t has: val itself, or a copy that b records. NULL stays NULL. */
tp_tensor *aot_in_order_of(bld *b, tp_tensor *val, tp_tensor *t);

#endif
