/* internal.h - what the files of loop/ share: the planner, groups, walks over expressions, kernels being written. */
#ifndef TAPER_LOOP_INTERNAL_H
#define TAPER_LOOP_INTERNAL_H
#include "loop/lower.h"

enum { MAX_VARS = 32, MAX_MEMBERS = 48, MAX_BUFS = 64, MAX_LEAVES = 32, MAX_PARTS = 64 };

typedef struct group group;
typedef struct group_list {
    group **at;
    size_t n, cap;
} group_list;
typedef struct info {  /* per node, by id */
    bool materialized; /* computed by loops or by a call of its own, not where it is used */
    bool stored;       /* exists in memory */
    bool library_call; /* a library call */
    bool product;      /* a matrix product into a buffer of the plan */
    bool red;          /* a reduction */
    bool scan;     /* a running sum or product: mask and rkind as of a reduction, a value for every step */
    bool scatter;  /* a copy of a value into which others are written where indices point: two kernels */
    uint32_t mask; /* reduction: which dimensions of its input */
    uint8_t rkind; /* vir_red_kind */
    group *g;
    int level;  /* pass of its group */
    bool outer; /* one value per row: reductions and what follows from them alone */
    int slot;   /* + 1 */
    bool covered, tested;
    bool memview;    /* a view that the runtime makes over memory */
    bool folds;      /* computed where it is used although that is a choice */
    bool low;        /* its operand is known not to be positive */
    bool checked;    /* its indices are checked by a step */
    bool last;       /* stored when its kernel has read everything: it may lie where something is read */
    ir_node *into;   /* the input that it becomes the value of */
    int depth;       /* operators from the values in memory that its expression reads up to it */
    int leaves;      /* values in memory that its expression reads, counted with repeats */
    int walked;      /* the last walk over sources that met it */
    ir_node *reader; /* of a value that waits: its first reader that does not */
} info;

enum { DEEP = 100 }; /* operators in one expression */
struct group {
    bool deep;     /* a cut was made at its end: nothing joins it any more */
    bool split;    /* loops are taken apart for a member */
    bool epilogue; /* it runs on the rows of a product */
    bool scan;     /* steps along `red` follow one another; each has its own value */
    int id;
    int nd;
    symint size[TP_MAX_DIMS]; /* full iteration space, logical order */
    uint32_t red;             /* reduced dimensions; 0 without reductions */
    ir_node *member[MAX_MEMBERS];
    int n;
    ir_node *load[MAX_BUFS]; /* what its members read from memory */
    int nload;
    group_list before,
        after;               /* groups and calls that must come first and that must follow: the direct ones */
    int rank;                /* above those of all that come first */
    int ahead, back, listed; /* the last walks that met it */
    bool plain;              /* a reservation that only such ones come before */
    int order;               /* position among steps */
    ir_node *library_call;   /* a library call instead of a kernel */
    int part;                /* + 1: which part of its only member this kernel writes; size is the part's */
};

typedef struct reuse { /* step `step` writes each element of n where it reads that of x, after it was read */
    ir_node *n, *x;
    int step;
    bool part; /* a part of x alone, of which the step before made a copy: that is not needed then */
} reuse;

struct planner {
    tp_comp *c;
    loop_plan *p;
    ir_graph *g;
    info *in; /* by node id */
    VEC(group *) groups;
    group *effect;      /* the last call made for more than its result */
    bool *writes;       /* by group: new values of inputs that nothing else waits for */
    group_list todo[2]; /* of walks over groups */
    map sums;           /* products into sums that rewrites made */
    int nwalk;          /* walks over sources so far */
    map lowers;         /* calls that were tried -> 2: covered, 1: not */
    arena tmp;
    VEC(ir_node *) check; /* what the group being surveyed reads by indices */
    VEC(reuse) reuses;
    vir_room room;
};

typedef struct access {
    lin at;
    bool raw;          /* an index used as a value, not an address */
    bool part;         /* what is linear of an address that is not: says which loop walks memory */
    const ir_node *n;  /* what is read there; NULL: written */
    const ir_node *to; /* what is written there */
    ir_node *drawn;    /* which numbers are drawn for it */
} access;

/* Variables of a group: one per dimension, more where a view asks for a split. */
typedef struct space {
    int nvar;
    symint size[MAX_VARS];
    int dim[MAX_VARS];   /* which dimension of the group */
    lin at[TP_MAX_DIMS]; /* index of each dimension */
} space;

struct walk {
    planner *pl;
    group *g;
    const space *space;  /* the variables of the group */
    const symint *vsize; /* their sizes, before any are merged */
    int nvar;
    /* dry runs */
    bool dry, fail;
    VEC(access) seen;
    VEC(ir_node *) loads; /* buffers read */
    ir_node *self;        /* the member being computed: not a reference to itself */
    int level;            /* of what was referenced: the pass this can be computed in */
    bool inner;           /* referenced an inner member */
    /* splits wanted: dimension var -> two variables */
    int split_var;
    symint split_in;
    /* emitting */
    vir *k;
    vir_ref *var; /* value of each merged variable */
    int *merged;  /* variable -> merged variable, or -1 when an inner one carries it */
    int pass;
    vir_ref mask;
    struct emit *e;
    loop_kernel *out; /* the kernel being written */
};

/* Windows of a pooling: rows and columns, steps between and inside them. */
typedef struct windows {
    int64_t k[2], step[2], gap[2], pad[2];
    bool over[2]; /* some reach over the edge */
} windows;

/* Loop structure of a kernel after merging: kept variables outermost first, then reduced ones. */
typedef struct nest {
    int nkeep, keep[MAX_VARS];
    int nred, red[MAX_VARS];
    symint size[MAX_VARS]; /* of merged variables, by the number of the inner one */
    int merged[MAX_VARS];
    bool column; /* the vector loop is the last kept one, reductions run inside it */
} nest;

typedef struct emit {
    vir *k;
    loop_kernel *out;
    int nbuf;
    bool overflow;
    VEC(symint) ints;
    VEC(vir_ref) int_ref;
    /* per member */
    vir_ref value[MAX_MEMBERS]; /* inner values in this pass; outer values */
    ir_node *park
        [MAX_MEMBERS]; /* inner values too expensive to compute again: in whose memory they wait for later passes */
    /* what follows does not start as zero: it is set before it counts */
    int value_pass[MAX_MEMBERS]; /* pass the inner value was computed in, or -1 */
    int park_first[MAX_MEMBERS],
        park_last[MAX_MEMBERS]; /* the passes that store them there and read them last */
    ir_node *buf_node[MAX_BUFS];
} emit;

enum { ATTENTION_BETWEEN = 2 };
typedef struct attention { /* a product or two, a kernel on their rows, and products of those rows */
    group *kernel, *first;
    group *also;                         /* the second product that the kernel reads; NULL: there is none */
    ir_node *between[ATTENTION_BETWEEN]; /* what the kernel writes and only the last products read */
    group *last[ATTENTION_LASTS];
    uint8_t how[ATTENTION_LASTS]; /* see loop_step */
    int nbetween, nlast;
    bool fits;
    int64_t reach; /* see loop_step */
    /* what the kernel is, where it is nothing else (soft.c); see attend_soft */
    attend_kind soft;
    double scale;
    bool second;
    ir_node *top, *part, *probs;
} attention;

static inline const op_row *row_of(const ir_node *n) { return op_row_of((op_id)n->op); }
static inline bool is_costly(const ir_node *n) { return n->kind == IR_call && row_of(n)->flags & OPF_DEAR; }
static inline void bit_set(uint64_t *b, int i) { b[i / 64] |= 1ull << (i % 64); }
static inline bool bit_has(const uint64_t *b, int i) { return b[i / 64] >> (i % 64) & 1; }

/* --- index.c ---------------------------------------------------------------- */
int64_t hint(symint v);
bool is_spread(symint from, symint to);
bool same_sizes(int nd, const symint *a, int nd2, const symint *b);
void lins_set(lin *to, const lin *from, int n);
lin opaque(walk *w, vir_ref r);
void use_raw(walk *w, const lin *a);
lin ladd(walk *w, lin a, lin b);
lin lscale(walk *w, lin a, symint c);
lin lrest(walk *w, const lin *a, symint by);
void reshape_index(walk *w, int nf, const symint *from, const lin *idx, int nt, const symint *to, lin *out);
symint int_arg(const ir_node *n, int i, symint none);
int dim_arg_of(symint v, int nd);
int dim_arg(const ir_node *n, int i, int nd);
lin address(walk *w, const tp_tensor *t, const lin *idx);
lin linear_part(walk *w, const tp_tensor *t, const lin *idx);
symint stride_in(const lin *a, int var);

/* --- lower.c ---------------------------------------------------------------- */
ir_node *operand(const ir_node *n, int i);
int part_count(const ir_node *n);
int part_dim(const ir_node *n);
symint part_size(const ir_node *n, int i);
symint part_at(const ir_node *n, int i);
bool is_inline(planner *pl, const ir_node *n);
vir_ref under_mask(walk *w, vir_ref m, ir_node *n, const lin *idx);
vir_ref eval(walk *w, ir_node *n, const lin *idx);

/* --- lower_pointwise.c ---------------------------------------------------------------- */
vir_ref number(vir *k, const tp_val *v, dtype dt);
vir_ref number_now(walk *w, const tp_val *v, dtype dt);
bool covered(planner *pl, const ir_node *n);
bool number_is_ready(const tp_val *v);
bool is_known_number(const tp_val *v);
void find_low(planner *pl);

/* --- lower_shape.c ---------------------------------------------------------------- */
bool known_view(planner *pl, const ir_node *n);
bool fill_value(const ir_node *n, tp_val *v);
bool is_copy(const ir_node *n);
bool is_arange(const ir_node *n);
symint arange_first(const ir_node *n);

/* --- lower_window.c ---------------------------------------------------------------- */
const char *windows_of(const tp_val *arg, bool max, const tp_tensor *x, windows *w);

/* --- lower_index.c ---------------------------------------------------------------- */
ir_node *counts_up(planner *pl, ir_node *index, symint size);
/* single: lanes may meet. where: which of them are written; 0: all. */
void scatter_at(walk *w, ir_node *n, const lin *home, bool single, vir_ref where);
void choose_in_place(planner *pl);
bool base_may_end(planner *pl, const ir_node *n);
bool base_ends(planner *pl, const ir_node *n, group_list *deps);
lin scatter_place(walk *w, const ir_node *n, const lin *home, int d);
bool scatter_single(const ir_node *n);
int scatter_widest(planner *pl, const ir_node *n);

/* --- lower_reduce.c ---------------------------------------------------------------- */
bool is_place(uint8_t kind);
bool reduction(const ir_node *n, uint32_t *mask, uint8_t *kind);
dtype red_dtype(const ir_node *n);
bool in_order(const ir_node *n);
const char *place_as_call(const tp_comp *c, const ir_node *n);
dtype scan_dtype(const ir_node *n);

/* --- lower_product.c ---------------------------------------------------------------- */
bool is_product(planner *pl, const ir_node *n);
bool is_half(const tp_tensor *t);
bool is_packed(const tp_tensor *t);
symint row_of_product(const ir_node *n);
bool is_plain_bmm(planner *pl, const ir_node *n);

/* --- rewrite.c ---------------------------------------------------------------- */
void loop_wait_late(planner *pl);
bool loop_rewrite(planner *pl, rewrite_pass from, rewrite_pass to);
rewrite_fn rewrite_there_and_back, rewrite_accumulate, rewrite_split, rewrite_unbind, rewrite_roll,
    rewrite_pool, rewrite_extreme, rewrite_scan, rewrite_by_parts;

/* --- inject.c ---------------------------------------------------------------- */
bool fails_at(tp_err *err, const ir_node *n);
vir_ref plant(walk *w, const ir_node *n, vir_ref v);
bool plant_lowering(tp_comp *c, const ir_graph *g);
bool plant_carriers(tp_comp *c, ir_graph *g);

/* --- choose.c ---------------------------------------------------------------- */
ir_node *beyond_views(ir_node *n);
void operand_in_memory(void *arg, ir_node *n);
void log_lower(const ir_node *n, bool yes, const char *why);
bool feeds_kernels(planner *pl, const ir_node *n);
bool is_cheap(const ir_node *x, int depth);
void choose_materialized(planner *pl);

/* --- group.c ---------------------------------------------------------------- */
void space_init(space *s, const group *g);
bool space_split(space *s, int var, symint inner);
void along(const walk *w, int d, lin *out);
void member_index(walk *w, ir_node *n, lin *out);
void log_fusion(planner *pl, ir_node *n, const group *g, bool yes, const char *why);
group scatter_part(const group *g, const ir_node *n, int part);
void form_groups(planner *pl);
void group_free(group *g);
bool used_outside(planner *pl, const group *g, ir_node *n);
void find_stored(planner *pl);

/* --- depend.c ---------------------------------------------------------------- */
void find_readers(planner *pl);
void node_deps(planner *pl, ir_node *n, group_list *deps);
bool list_has(const group_list *l, const group *g);
void list_drop(group_list *l, const group *g);
void list_sort(group_list *l); /* in the order of steps */
void add_before(planner *pl, group *g, const group_list *deps);
bool would_cycle(planner *pl, const group *g, const group_list *deps);
bool comes_before(planner *pl, const group *g, group *h);
void unwritten_before(planner *pl, const group *g, const uint64_t *written, int walk, int most,
                      group_list *missing);

/* --- nest.c ---------------------------------------------------------------- */
bool survey(planner *pl, group *g, space *s, walk *w);
void make_nest(planner *pl, group *g, space *s, walk *w, nest *t);
int crossed(const walk *w, const nest *t, int along, int *strip);

/* --- kernel.c ---------------------------------------------------------------- */
vir_ref emit_int(walk *w, symint v);
vir_ref emit_lin(walk *w, const lin *a);
int buffer_of(walk *w, ir_node *n, int flags);
vir_ref emit_load(walk *w, ir_node *n, const lin *idx);
int member_number(const group *g, const ir_node *n);
vir_ref member_value(walk *w, ir_node *n);
bool write_kernel(planner *pl, group *g, const ir_node *product, bool *fits, attention *ch);
bool write_group(planner *pl, group *g);

/* --- park.c ---------------------------------------------------------------- */
void park_members(walk *w, int64_t row);
void load_parked(walk *w, int pass);
void store_parked(walk *w, int pass);

/* --- product.c ---------------------------------------------------------------- */
bool reserves(const group *g);
bool is_epilogue(const walk *w, const nest *t, bool red, const ir_node *product);
bool same_rows(const walk *w, const ir_node *product, const ir_node *to);
bool refuses_tiles(planner *pl, const ir_node *n);
void write_call(planner *pl, const group *g, bool own);
bool write_missing(planner *pl, group_list *missing, uint64_t *written); /* frees the list */
void align_rows(planner *pl); /* products whose rows the target wants aligned */
void find_activations(
    planner *pl); /* kernels that are no more than an activation of the product before them */
bool write_steps(planner *pl, const int *order);

/* --- attention.c ---------------------------------------------------------------- */
bool causal_band_of(const ir_node *n, causal_band *b);
attention find_attention(planner *pl, group *g, const uint64_t *written);
bool write_factors(planner *pl, attention *ch, uint64_t *written);
bool write_also(planner *pl, attention *ch, uint64_t *written);
void write_lasts(planner *pl, const attention *ch, uint64_t *written);
bool attention_allowed(planner *pl, const attention *ch);

/* --- soft.c ---------------------------------------------------------------- */
void find_softmax(planner *pl, attention *ch);

/* --- order.c ---------------------------------------------------------------- */
void schedule_order(planner *pl, int *order);

/* --- memory.c ---------------------------------------------------------------- */
int slot_add(planner *pl, slot_kind kind, const ir_node *n, int index);
int slot_of(planner *pl, ir_node *n);
void find_reuse(planner *pl, const group *g, const walk *w);
void find_outputs(planner *pl);
void check_early(planner *pl);
void life_times(planner *pl);
void choose_reuse(planner *pl);
void find_into(planner *pl);
#endif
