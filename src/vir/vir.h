/* vir.h - the vector IR: one kernel, written once, run by the interpreter, by machine code or as C.
 * Knows numbers, buffers and loops. May not know graphs, operators or tensors.
 *
 * A kernel is a tree of loops around SSA values. The program text is per element: a loop marked LOOP_vector
 * runs its iterations in lanes, but its meaning is that of a plain loop, except for the order of reductions
 * (below).
 *
 *   vir *k = vir_make(a, "scale");                            y[i] = exp(x[i]) * f0     for i in 0..n
 *   int x = vir_buffer(k, VM_f32, VIR_IN, "x"), y = vir_buffer(k, VM_f32, VIR_OUT, "y");
 *   vir_ref n = vir_int_arg(k, "n"), f = vir_float_arg(k, VT_f32, "f0");
 *   vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), n);
 *   vir_store(k, y, i, vir_mul(k, vir_exp(k, vir_load(k, x, i, 0)), f), 0);
 *   vir_end(k);
 *   if (!vir_finish(k, err)) ...
 *
 * Compute types are few (vir_type); storage types are many (vir_mem): a load widens (f16, bf16 -> f32; i16,
 * i8, u8
 * -> i32; bool -> mask) and a store narrows (floats round to nearest even, integers wrap).
 * Pure values are put where their operands live (loop-invariant ones leave the loop by themselves) and equal
 * ones become one, so a client may build addresses naively. A load from a VIR_IN buffer counts as pure.
 *
 * Buffers may not overlap, except that a VIR_OUT buffer may be the same memory as a VIR_IN buffer whose every
 * load precedes, in the same iteration, the store to the same element.
 *
 * Different iterations of a vector loop may not store to the same element when it holds other loops;
 * vir_store_add without inner loops is exempt.
 *
 * Reductions keep P partial results when their steps are inside a vector loop that the red() is outside of:
 * the i-th iteration (from 0) of the vector loop goes to partial i mod P, P = k->lanes * k->ways; fold joins
 * partial j with j + P/2, then P/4, ... so every backend computes the same bits on every machine. */
#ifndef TAPER_LOOP_VIR_H
#define TAPER_LOOP_VIR_H
#include "base/arena.h"
#include "base/err.h"
#include "base/strbuf.h"

typedef enum { VT_none, VT_f64, VT_f32, VT_i64, VT_i32, VT_mask } vir_type;
typedef enum {
    VM_none,
    VM_f64,
    VM_f32,
    VM_f16,
    VM_bf16,
    VM_i64,
    VM_i32,
    VM_i16,
    VM_i8,
    VM_u8,
    VM_bool
} vir_mem;
typedef enum {
#define VIR(name, n, kind, text) VIR_##name,
#include "vir/vir.def"
    VIR_COUNT
} vir_op;
typedef enum {
    RED_sum,
    RED_prod, /* f64 f32 i64 i32                                        */
    RED_min,
    RED_max, /* numeric: NaN propagates                                 */
    RED_any,
    RED_all, /* masks                                                   */
    RED_argmin,
    RED_argmax,  /* part 0: value, 1: i64 or i32 index; first of equals; NaN wins */
    RED_welford, /* floats; part 0: mean, 1: sum of squared deviations, 2: count */
    RED_softmax, /* floats; part 0: maximum m, 1: sum of exp(x - m), in one pass */
    RED_cummin,
    RED_cummax, /* as arg*, but the last of equals                                */
    RED_lse,    /* floats: log of the sum of exponentials                         */
    RED_COUNT
} vir_red_kind;
typedef enum { LOOP_serial, LOOP_parallel, LOOP_vector } vir_loop_kind;
enum { VIR_IN = 1, VIR_OUT = 2, VIR_INOUT = 3 }; /* VIR_OUT: never loaded; VIR_INOUT: loads stay in order */

typedef int32_t vir_ref; /* a value of one kernel; 0 is "none" */

/* How a load or store walks while the vector loop advances. */
typedef enum {
    VA_uniform,
    VA_unit,
    VA_strided,
    VA_gather,
    VA_spread /* loads: each element for b lanes, a constant 2 or 4 */
} vir_access;

typedef struct vir_ins {
    uint8_t op, type;    /* vir_op, vir_type of the result                                    */
    uint8_t mem, access; /* load, store, narrow: vir_mem; load, store: vir_access             */
    uint8_t varying;     /* differs between lanes of the enclosing vector loop                */
    uint8_t add;         /* store: add to memory, iterations in order, instead of overwriting */
    uint8_t dead;        /* set by vir_finish: nothing needs it                               */
    vir_ref a, b, c, d;  /* operands                                                          */
    int32_t region;      /* number of the loop it sits in, 0 for the top                      */
    vir_ref prev, next;  /* order inside the region                                           */
    int32_t uses;        /* valid after vir_finish                                            */
    int32_t hnext;       /* private: value numbering                                          */
    int64_t imm;
    const struct ir_loc *note; /* the user's source line, or NULL                          */
} vir_ins;

typedef struct vir_loop_info {
    vir_loop_kind kind;
    vir_ref ins, var;    /* the VIR_loop instruction; the loop variable                       */
    vir_ref begin, end;  /* uniform i64; parallel: replaced by the launch's lo, hi            */
    int parent, depth;   /* loop numbers; 0 is the kernel body itself                         */
    int vector;          /* number of the enclosing (or own) vector loop, 0 when outside      */
    vir_ref first, last; /* the instructions of the body                                      */
    bool closed;
} vir_loop_info;

typedef struct vir_red_info {
    vir_red_kind kind;
    vir_type type, itype; /* of the values; of the index for arg* (VT_none until the first step) */
    int loop;             /* where red() stands                                                */
    bool partials;        /* steps lie in a vector loop that red() is outside of               */
    bool scan;            /* its parts are read behind every step, element after element       */
    vir_ref ins;
} vir_red_info;

typedef struct vir_buf_info {
    vir_mem mem;
    int flags;
    const char *name;
} vir_buf_info;

typedef struct vir {
    arena *a;
    const char *name;
    vir_ins *ins; /* read-only: [1..n)                                                 */
    int n;
    vir_loop_info *loops; /* read-only: [0..nloops); 0 is the body                             */
    int nloops;
    vir_red_info *reds;
    int nreds;
    vir_buf_info *bufs;
    int nbufs;
    const char **iname, **fname;
    int nints, nflts;
    int lanes; /* 16, or 8 when a lane holds 64 bits; valid after vir_finish         */
    int ways;  /* vectors in flight in a vector loop, 1, 2, 4 (8 to 64: devices); 0 lets vir_finish choose */
    /* private */
    int cap, caploops, capreds, capbufs, capints, capflts, open;
    int32_t *hash;
    int nhash;
    const struct ir_loc *note;
    struct vir_room *room;
    tp_err *err; /* the first misuse while building, NULL: none; vir_finish reports it  */
} vir;

/* Where one kernel after the other is written: what vir_finish then keeps of it is as long as it has to be. Starts as
 * zeros; a kernel that was left unfinished is gone when the next one is begun. */
typedef struct vir_room {
    vir_ins *ins;
    int32_t *hash;
    int cap, nhash;
} vir_room;
void vir_room_free(vir_room *r);

/* How every compiled or interpreted kernel is called. lo, hi: the range of the parallel loop, if there is
 * one. */
typedef void (*vir_fn)(void *const *bufs, const int64_t *ints, const double *flts, int64_t lo, int64_t hi);

/* --- building: misuse is remembered and reported by vir_finish, so calls may be chained
 * ---------------------- */
vir *vir_make(arena *a, const char *name);
vir *vir_make_in(arena *a, const char *name, vir_room *room);
int vir_buffer(vir *k, vir_mem mem, int flags, const char *name); /* the next number in bufs */
vir_ref vir_int_arg(vir *k, const char *name);
vir_ref vir_float_arg(vir *k, vir_type t, const char *name); /* f64 or f32 */
vir_ref vir_flt(vir *k, vir_type t, double v);               /* f64, f32 */
vir_ref vir_imm(vir *k, vir_type t, int64_t v);              /* any type; floats get (double)v */
static inline vir_ref vir_int(vir *k, int64_t v) { return vir_imm(k, VT_i64, v); }
/* The user's line that what follows is for; NULL ends it. It must last as long as k: only texts look at it. */
void vir_note(vir *k, const struct ir_loc *note);

/* Opens a loop and returns its variable (i64). A parallel loop must be outermost and only one; vector loops
 * do not nest, but may hold serial loops and may stand one after the other. vir_end closes the innermost open
 * loop. */
vir_ref vir_loop(vir *k, vir_loop_kind kind, vir_ref begin, vir_ref end);
void vir_end(vir *k);

/* idx: element index, i64 (or i32 when the client knows that it fits: faster gathers). mask: 0 for always;
 * where it is false a load gives 0 and touches nothing. */
vir_ref vir_load(vir *k, int buf, vir_ref idx, vir_ref mask);
void vir_store(vir *k, int buf, vir_ref idx, vir_ref v, vir_ref mask);
void vir_store_add(vir *k, int buf, vir_ref idx, vir_ref v, vir_ref mask); /* f32 f64 i32 i64 buffers */

vir_ref vir_op1(vir *k, vir_op op, vir_ref x);
vir_ref vir_op2(vir *k, vir_op op, vir_ref x, vir_ref y);
vir_ref vir_op3(vir *k, vir_op op, vir_ref x, vir_ref y, vir_ref z);
/* C's casts; float -> int cuts, out of range as x86 does; to a mask: x != 0. */
vir_ref vir_cvt(vir *k, vir_type t, vir_ref x);
vir_ref vir_bitcast(vir *k, vir_type t, vir_ref x);
vir_ref vir_narrow(vir *k, vir_mem m, vir_ref x); /* what a store to m and a load from it would give */
vir_ref vir_table(vir *k, int table, vir_ref x);  /* see vir_tables; in fragments only */
vir_ref vir_call(vir *k, const char *fn, vir_ref x, vir_ref y); /* y: 0 for one operand; see vir_call_find */
vir_ref vir_call_where(vir *k, const char *fn, vir_ref x, vir_ref y, vir_ref mask, vir_ref other);
/* Philox4x32-10 with i64 seed and counters: 32-bit word 0..3 as i32. */
vir_ref vir_philox(vir *k, vir_ref seed, vir_ref ctr_lo, vir_ref ctr_hi, int word);
/* Element n of a draw; seed, first and n are i64. t: i32 is word n % 4 of block first + n / 4, i64 two words (the first on top)
 * of block first + n / 2; f32 and f64 are normal numbers, made of the words that the pair of elements has in these. Vectors
 * share their blocks where n counts with the vector loop. */
vir_ref vir_draw(vir *k, vir_type t, vir_ref seed, vir_ref first, vir_ref n);

/* A variable: `set` changes it, `get` reads it. Declared inside a vector loop it is one per lane; outside it
 * may not be set inside a vector loop. */
vir_ref vir_var(vir *k, vir_ref init);
vir_ref vir_get(vir *k, vir_ref var);
void vir_set(vir *k, vir_ref var, vir_ref v);

/* A reduction: start it, step it inside inner loops, fold it at the level of its start, read its parts. */
int vir_red(vir *k, vir_red_kind kind, vir_type t);
void vir_step(vir *k, int red, vir_ref x, vir_ref idx); /* idx: arg* only, else 0 */
vir_ref vir_fold(vir *k, int red);                      /* part 0 */
vir_ref vir_part(vir *k, int red, int part);            /* after vir_fold */
/* The same as a running result: steps follow the order of the loop, lane after lane, and its parts are read behind each. Floats are
 * added and multiplied one after the other; what does not round (integers, extremes) and RED_lse is joined in pairs. */
int vir_scan(vir *k, vir_red_kind kind, vir_type t);
static inline bool vir_red_places(vir_red_kind kind)
{
    return kind == RED_argmin || kind == RED_argmax || kind == RED_cummin || kind == RED_cummax;
}

/* Checks the kernel, drops what nobody needs, fixes lanes and ways. Required before anything below. */
bool vir_finish(vir *k, tp_err *err);
bool vir_verify(const vir *k, tp_err *err);

/* vir_add(k, x, y), vir_neg(k, x), vir_fma(k, x, y, z), ...: one for every row of vir.def that computes. */
#define VIR_ROW_1(f) \
    static inline vir_ref vir_##f(vir *k, vir_ref x) { return vir_op1(k, VIR_##f, x); }
#define VIR_ROW_2(f) \
    static inline vir_ref vir_##f(vir *k, vir_ref x, vir_ref y) { return vir_op2(k, VIR_##f, x, y); }
#define VIR_ROW_3(f)                                                       \
    static inline vir_ref vir_##f(vir *k, vir_ref x, vir_ref y, vir_ref z) \
    {                                                                      \
        return vir_op3(k, VIR_##f, x, y, z);                               \
    }
#define VIR_FN_arith(f, n) VIR_ROW_##n(f)
#define VIR_FN_flt(f, n)   VIR_ROW_##n(f)
#define VIR_FN_int(f, n)   VIR_ROW_##n(f)
#define VIR_FN_bits(f, n)  VIR_ROW_##n(f)
#define VIR_FN_cmp(f, n)   VIR_ROW_##n(f)
#define VIR_FN_math(f, n)  VIR_ROW_##n(f)
#define VIR_FN_leaf(f, n)
#define VIR_FN_ctl(f, n)
#define VIR(name, n, kind, text) VIR_FN_##kind(name, n)
#include "vir/vir.def"
VIR_ROW_3(select)

/* --- reading ---------------------------------------------------------------------------------- */
extern const char *const vir_op_name[VIR_COUNT];
const char *vir_type_name(vir_type t);
const char *vir_mem_name(vir_mem m);
vir_type vir_mem_type(vir_mem m); /* the compute type a load gives */
size_t vir_mem_size(vir_mem m);
int vir_red_parts(vir_red_kind kind);
static inline bool vir_is_math(vir_op op) { return op >= VIR_exp && op <= VIR_hypot; }
static inline vir_type vir_type_of(const vir *k, vir_ref r) { return (vir_type)k->ins[r].type; }
double vir_const_f(const vir_ins *in); /* value of a float constant */

typedef struct vir_call_row {
    const char *name;
    int nargs;
    double (*d1)(double); /* for one argument, else NULL */
    float (*f1)(float);
    double (*d2)(double, double);
    float (*f2)(float, float);
} vir_call_row;
extern const vir_call_row vir_calls[];
int vir_call_find(const char *name); /* row, or -1 */

enum {
    VIR_TABLE_exp,
    VIR_TABLE_erf,
    VIR_TABLE_tanh = VIR_TABLE_erf + 6,
    VIR_TABLE_COUNT = VIR_TABLE_tanh + 8
};
extern const int32_t vir_tables[VIR_TABLE_COUNT][16]; /* small enough to be looked up in one register */

void vir_print(const vir *k, strbuf *out); /* text form, for logs and tests */
/* Bytes that are equal exactly when two kernels are; names and notes do not count. Then their hash. */
void vir_key(const vir *k, strbuf *out);
uint64_t vir_hash(const vir *k);

/* Fragments: straight-line pieces written once in this IR; every backend inlines or calls them. Their inputs
 * are VIR_input leaves. They are made once a process, thread-safely, and never freed. */
typedef struct vir_frag {
    vir *k;
    const char *name; /* e.g. "exp_f32", "welford_merge_f64": fit for a C identifier */
    int nin, nout;
    vir_ref out[4];
} vir_frag;
const vir_frag *vir_frag_math(vir_op op, vir_type t);
const vir_frag *vir_frag_normal(vir_type t);                                /* two words -> a pair */
const vir_frag *vir_frag_step(vir_red_kind kind, vir_type t, vir_type it);  /* parts, x [, idx] -> parts */
const vir_frag *vir_frag_merge(vir_red_kind kind, vir_type t, vir_type it); /* parts, parts -> parts     */
vir_type vir_red_part_type(const vir_red_info *r, int part);
vir_ref vir_red_identity(vir *k, const vir_red_info *r, int part); /* what a part starts from */

/* A copy that owns its memory and lives until vir_copy_free (cached interpreted kernels); or lies in an arena. */
vir *vir_copy(const vir *k);
vir *vir_copy_to(arena *a, const vir *k);
void vir_copy_free(vir *k);

/* The reference: plain C, one element at a time. */
bool vir_interp(const vir *k, void *const *bufs, const int64_t *ints, const double *flts, int64_t lo,
                int64_t hi, tp_err *err);
#endif
