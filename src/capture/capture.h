/* capture.h - from a running Python function to graphs.
 * A compiled function is a set of regions, (code object, offset) -> entries. An entry holds guards over the
 * frame, a graph, and a recipe that rebuilds the frame behind the captured instructions. What cannot be
 * captured is executed natively, one instruction at a time, by the same interpreter (interp.c) that the
 * tracer drives: while tracing it works on real Python objects whose tensors are fake, so every builtin
 * operation keeps its own meaning; sources remember where each object came from.
 *
 * Values while tracing: fake tensors, SymInts, plain constants; copies ("shadows") of the containers that
 * came from outside, so that mutating them touches nothing real until the entry runs; Lazy objects for
 * everything from outside that was not looked at yet (no guard is made for them). */
#ifndef TAPER_CAPTURE_H
#define TAPER_CAPTURE_H
#include "base/map.h"
#include "base/vec.h"
#include "python/py.h"
#include "ir/graph.h"
#include "events/events.h"
#include "grad/tape.h"
#include "compile/backend.h"
#include "sym/env.h"

typedef struct cap_code cap_code;
typedef struct frame frame;
typedef struct trace trace;
typedef struct entry entry;
typedef struct region region;

/* --- sources: how an object is reached from the frame --------------------------------------------------- */
typedef enum {
    SRC_local,      /* frame slot index */
    SRC_stack,      /* stack slot index */
    SRC_global,     /* obj: the globals dict, key: name */
    SRC_const,      /* obj: the object itself */
    SRC_instattr,   /* base.__dict__[key] */
    SRC_attr,       /* getattr(base, key) through a C descriptor (slots, tensor attributes) */
    SRC_typeattr,   /* type(base).key, not hidden by the instance (base is a class: its own MRO) */
    SRC_item,       /* base[index] of a list or tuple */
    SRC_key,        /* base[key] of a dict */
    SRC_dictkey,    /* the index-th key of a dict */
    SRC_cell,       /* contents of the cell base */
    SRC_closure,    /* base.__closure__[index] of a function */
    SRC_default,    /* base.__defaults__[index] */
    SRC_kwdefault,  /* base.__kwdefaults__[key] */
    SRC_dict,       /* base.__dict__ */
    SRC_func,       /* base.__func__ */
    SRC_self,       /* base.__self__ */
    SRC_type,       /* type(base) */
    SRC_deque,      /* base[index] of a deque */
    SRC_proxied,    /* the dictionary behind a mappingproxy */
    SRC_subclasses, /* base.__subclasses__() */
    SRC_cached,     /* obj: the dictionary of a functools.lru_cache, key, index: does it hold links? */
} src_kind;

typedef struct source {
    uint8_t kind;
    bool used; /* evaluated when the guards run */
    bool kept; /* what is rebuilt after the graph needs it */
    int id;    /* register */
    int index;
    struct source *base;
    PyObject *obj, *key; /* kept by the entry */
    const char *text;    /* src_text() */
    PyObject
        *held; /* SRC_attr: an object that only we keep (the wrapper of a gradient), until the next use */
    struct entry *e;
    int guards;          /* its newest guard + 1; older ones follow guard.older */
    bool cached;         /* follows from unchanged dicts and types */
    bool plain;          /* guard_prepare was here: any thread can write its text */
    struct source *next; /* hash chain */
} source;

/* --- guards ------------------------------------------------------------------------------------------ */
typedef enum {
#define GUARD(id) G_##id,
#include "capture/guard.def"
    G_COUNT
} guard_kind;

typedef struct guard_tensor {
    PyTypeObject *type;
    uint8_t dt, ndim;
    bool requires_grad;
    bool inference; /* made in inference mode */
    bool bare;      /* the graph computes its gradient: it must stay a leaf without hooks */
    bool computed;  /* the graph writes it on the tape: it must stay a computed tensor */
    tp_device dev;
    int64_t *size, *stride; /* -1: symbolic */
} guard_tensor;

typedef struct guard {
    uint8_t kind;
    source *src, *src2;
    PyObject *obj, *obj2; /* kept by the entry */
    int64_t n;
    guard_tensor *t;
    const char *text; /* what failed, exactly as the log prints it; made when asked for */
    const char *hint; /* the part of it that only Python knows (guard_prepare) */
    bool prepared;
    struct entry *e;
    const char *where;     /* "return x + 1  # file:line in fn", or NULL */
    int older;             /* guard of the same source + 1 */
    const char *file, *fn; /* where it was made, for the trace; NULL: nobody asked */
    int line;
} guard;

/* What was found in a class or namespace (tlook.c): value NULL, nothing. */
typedef struct look {
    PyObject *owner, *name, *value; /* owner: a class, or the dictionary of a module; kept by the entry */
    int older;                      /* of the same name + 1 */
} look;
typedef struct look_group {
    PyObject *owner;
    uint64_t version; /* for which all of them hold */
    int from, to;
} look_group;

/* --- recipes: Python objects rebuilt after the graph ran --------------------------------------------- */
typedef enum {
    R_const,
    R_out,
    R_src,
    R_sym,
    R_tuple,
    R_list,
    R_dict,
    R_set,
    R_slice,
    R_obj,
    R_func,
    R_cell,
    R_method,
    R_call,
    R_null,
    R_tupletype,
    R_num /* graph output as a number; n: 'i' int, 'b' bool, 'f' float */
} recipe_kind;
typedef struct recipe {
    uint8_t kind;
    bool filled;
    int index; /* graph output, register, or position in the symbolic results */
    int memo;  /* -1, or slot that remembers the object for later uses */
    int n;
    const char *spent; /* R_out: the step that made it, whose backward ran inside the graph; or NULL */
    struct recipe **kid;
    PyObject *obj;        /* kept by the entry */
    struct recipe *attrs; /* a dict recipe: attributes to set on a tensor or object */
    struct recipe *inst;  /* containers: their instance attributes, or NULL */
    struct recipe *grad;  /* R_out: its gradient, which the graph computed; or NULL */
} recipe;

typedef enum {
    FX_list,
    FX_extend,
    FX_dict,
    FX_set,
    FX_setattr,
    FX_delattr,
    FX_global,
    FX_delglobal,
    FX_cell,
    FX_delcell,
    FX_setitem,
    FX_delitem,
    FX_call
} effect_kind;
typedef struct effect {
    uint8_t kind;
    recipe *target, *value;
    PyObject *key;
    source
        *early; /* what the attribute holds is let go before the graph runs, as the program does; or NULL */
} effect;

/* --- backends
 * ------------------------------------------------------------------------------------------------ */
bool cap_run_opaque(void *data, ir_node *n, const tp_val *arg, tp_val *out,
                    tp_err *err); /* a Python callee */

/* What one taper.compile() call asked for. */
typedef struct cap_cfg {
    PyObject *backend; /* a name or a callable */
    PyObject *options; /* dict or None, with mode under "mode" */
    int dynamic;       /* -1: None */
    bool fullgraph;
    int refs;
    PyObject *guard_fail_fn;
    struct cap_cfg *alt;       /* the same with another backend (set_stance), or NULL; owned */
    struct cap_family *family; /* calls that asked for the same: they use each other's entries */
} cap_cfg;

/* --- code objects, regions, entries
 * ---------------------------------------------------------------------------- */
typedef struct instr {
    uint8_t op;
    int arg;
    int next; /* offset behind the caches */
    int line;
} instr;

/* A function as logs and reports name it: its code, but the user's class and forward() instead of Module.__call__. */
typedef struct shown_name {
    const char *name, *file; /* of the code, or kept for good */
    int line;
} shown_name;
struct region {
    cap_code *cc;
    shown_name shown; /* at the last capture */
    int ip;
    int frame_id; /* -1 until the first capture */
    int compiles; /* next compile id */
    entry *first; /* most recently used first */
    int nentry;
    int from_line;    /* line of the instruction executed natively before it */
    int native_until; /* >= 0: nothing worth capturing before that offset */
    int empty;        /* captures that found no tensor work, and calls since */
    int patience;     /* after how many of these it is looked at again; 0: EMPTY_CALLS */
    bool limit_hit, skip;
    bool found_empty;    /* was captured once, and had nothing to compile */
    bool keep_relations; /* comparisons of sizes stay symbolic until their truth is asked: cond wants them */
    bool expand;         /* traces through backward(): composites are recorded as their parts */
    bool no_data,        /* Tensor.data ends graphs: it is written to, which does not count */
        no_leaves; /* requires_grad_() ends graphs: a backward with create_graph=True follows, which needs its tensors */
    PyObject *dynamic; /* source text -> sizes seen, for automatic dynamic shapes */
    uint64_t runs, natives;
};

struct cap_code {
    PyCodeObject *co; /* borrowed: we hang off it */
    int n;            /* code units */
    instr *ins;
    region **regions;                      /* by offset */
    PyObject *names, *consts, *localsplus; /* owned */
    int nfast, nstack;
    uint8_t *kinds;           /* of localsplus: CO_FAST_* */
    const char *whole_native; /* why this code is never captured, or NULL */
    int library;              /* cap_in_package(file) */
    enum { SOURCE_unknown, SOURCE_file, SOURCE_elsewhere } source; /* where its lines are read; asked once */
    const char *file, *name;
    int first_line;
    uint8_t *exc;
    Py_ssize_t nexc;
    uint64_t calls, compiled_calls;
    uint64_t debugged;     /* calls while a trace function was active, which ran uncompiled */
    PyObject *break_lines; /* set of (line, code) already logged */
};

struct entry {
    arena mem;
    region *r;
    shown_name shown;
    entry *next;
    cap_cfg *cfg;
    int compile_id;
    PyObject *keep; /* list: every object that guards, sources and recipes point at */
    source *table[512];
    VEC(source *) sources;
    VEC(guard) guards;
    size_t nprepared; /* of them: any thread can write their texts */
    VEC(look) looks;
    VEC(look_group) look_groups;
    struct {
        PyObject *type;
        const char *text;
    } reprs[16]; /* of types that guards name, last seen: the same ones come again and again */
    struct step {
        source *s;
        guard *g;
    } * steps;
    int nstep;
    /* The shortcut: what hangs on objects whose dicts and types did not change since the last full walk. */
    struct shortcut {
        bool ready;
        PyObject **reg;
        struct step *steps; /* what is walked every time: roots, lists, cells */
        int nstep, nearly;  /* the first nearly read nothing that was remembered */
        struct vdict {
            const uint64_t *clock; /* moves with every change */
            uint64_t version;
        } * dicts;
        int ndict;
        struct vtype {
            PyObject *o;
            PyTypeObject *type;
            unsigned version;
        } * types;
        int ntype;
        struct vroot {
            int reg;
            PyObject *o;
        } * roots;
        int nroot;
        guard **tensors;
        struct vtensor { /* the object each of them was on */
            PyObject *o, *dict;
            PyTypeObject *type;
            tp_tensor *t;
        } * objects;
        int ntensor;
        uint64_t epoch;   /* tensor_epoch when they were last looked at */
        PyObject **fixed; /* inputs that are remembered */
        int nfixed;
        int *loose; /* inputs that are read every time */
        int nloose;
    } cut;
    bool has_cut, has_held;
    bool nograd; /* all of the graph runs with gradients off */
    /* the graph */
    run_program *run;
    ir_graph *graph; /* as captured; NULL: a backend written in Python has its own */
    int nin, nout, nops;
    source **in; /* one source per graph input */
    struct share {
        int with; /* the first input on the same storage */
        int64_t offset;
    } * shares;          /* of a graph that writes to inputs: which of them share memory; else NULL */
    VEC(source *) apart; /* keys that are told apart by which object they are: no two may be one */
    bool apart_moves;    /* one of them at least is not held by another guard */
    PyObject **in_const;
    /* symbols */
    sym_env *env;
    int *env_refs; /* as ir_graph's: shared with the graphs made here */
    sym_guards *symguards;
    int nsymval;
    struct symval {
        source *src;
        int dim;    /* -1: the int itself */
        int symbol; /* its number in the environment, or -1 */
    } * symval;
    int nsymbol;
    sym_prog *prog; /* results that are symbolic */
    int nprog;
    VEC(symint) exprs;
    /* afterwards */
    bool returns;
    int stop;   /* offset of the instruction to execute natively */
    int traced; /* instructions of the frame up to there */
    recipe *ret;
    int nlocal, nstack, nmemo;
    recipe **local; /* NULL: unchanged; R_null: cleared */
    recipe **stack;
    VEC(effect) effects;
    int nearly;          /* of them with `early` */
    const char *invalid; /* why it can no longer be used */
    uint64_t hits;
    struct run_times { /* nanoseconds; a sample of the calls */
        int64_t first; /* capture, compile and run */
        int64_t warm, best, eager;
        uint32_t nwarm;
    } times;
    PyObject *kwnames;      /* keyword names of the call at stop, borrowed from the code */
    bool plain;             /* returns one graph output and nothing else happens */
    PyObject *break_reason; /* why the graph ends here, or why it runs with backend eager */
    bool
        repeats; /* the graph writes nothing from outside: its instructions may be executed after a failure */
    int *written, nwritten; /* otherwise: inputs it writes, when nothing else stands in the way of that ... */
    bool undo; /* ... and their values are kept for it, since a handler would see the failure ... */
    bool late; /* ... or because it can fail after such a write, if the program is stepwise */
    bool random;
};

/* --- frames
 * ------------------------------------------------------------------------------------------------------ */
struct frame {
    cap_code *cc;
    PyObject *func; /* borrowed or NULL */
    PyObject *globals, *builtins;
    PyObject **fast; /* owned references, NULL when unset */
    PyObject **stack;
    int sp, ip, at; /* at: offset of the instruction being executed */
    PyObject *kwnames;
    frame *back;
    frame *caller; /* the native frame that called this one (tracing: the one it stands for), or NULL */
    int depth;
    trace *t;          /* NULL: executing natively */
    source *src;       /* tracing: of func */
    cap_cfg *cfg;      /* native: how callees are captured; NULL: not at all */
    PyObject *handled; /* tracing: the exception being handled, or NULL */
    bool native_exc;   /* an except block of this frame is active natively */
    int last_line;
    PyObject *yielded;
    const ir_loc *loc; /* tracing: of line loc_line, made once */
    int loc_line;
    int fail_line;      /* where the graph failed, when that is a line of this function; else 0 */
    PyObject *failed;   /* why the graph failed whose instructions are executed now instead, or NULL */
    unsigned long seen; /* py_raised when it failed */
};
enum { ST_next, ST_return, ST_yield, ST_error, ST_repeat };
int interp_step(frame *f, PyObject **result); /* executes the instruction at f->ip */
int interp_turn(frame *f);                    /* other threads may run, Ctrl-C is heard */
/* Would a handler of this code, or of those around it, see an exception? `with` alone only tidies up. */
bool frame_in_try(const frame *f);
/* Looks for a handler of the exception that is set; true: the frame continues there. */
bool interp_unwind(frame *f);
bool frame_init(frame *f, cap_code *cc, PyObject *func,
                PyObject **storage); /* storage: nfast + nstack slots */
void frame_clear(frame *f);
/* Binds call arguments to slots. 1 bound, 0 wrong arguments (no exception set), -1 error. */
int frame_bind(frame *f, PyObject *func, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
/* A run-time failure at a place known from the graph: the traceback shall show that line. */
void cap_traceback(frame *f, const char *file, int line, const char *func);
void frame_raised(frame *f);
int cap_in_package(const char *file); /* 0, or how many bytes of it are the directory of Taper's package */
const ir_loc *frame_place(arena *a, frame *f); /* of this frame and those around it in the trace */
/* The same for the place of a break: the frame in which the trace began has the name of its region, and where all are the
 * library's, the user's frame that called it follows. */
const ir_loc *break_place(trace *t, arena *a);
static inline int frame_line(const frame *f) { return f->cc->ins[f->at].line; }
/* The frame that messages name, as ir_loc_user says for nodes; f when all are the library's. */
static inline frame *frame_user(frame *f)
{
    for (frame *u = f; u; u = u->back)
        if (!u->cc->library)
            return u;
    return f;
}

cap_code *cap_code_of(PyCodeObject *co); /* borrowed; NULL with an exception */
region *region_at(cap_code *cc, int ip);
void live_at(const cap_code *cc, int ip, uint8_t *live); /* nfast flags */

/* --- tracing
 * ------------------------------------------------------------------------------------------------------- */
typedef struct PyLazy {
    PyObject_HEAD source *src;
    PyObject *real; /* owned */
    PyObject *val;  /* what it became when first used, or NULL */
} PyLazy;
extern PyTypeObject PyLazy_Type, PyTraceGen_Type, PyTraceSuper_Type;
#define IS_LAZY(o) (Py_TYPE(o) == &PyLazy_Type)

/* An object from outside, or one whose attributes were written. */
typedef struct tobj {
    PyObject *abs;  /* what the traced program sees; owned */
    PyObject *real; /* owned, or NULL for objects made while tracing */
    source *src;
    ir_node *node;      /* placeholders */
    PyObject *snapshot; /* contents at the start: list, or dict */
    PyObject *over;     /* attributes written: name -> value or the deleted mark */
    PyObject *dict;     /* shadow of __dict__ once asked for */
    bool container;
    bool cleared;   /* its gradient was set to None before any operator */
    bool keyed;     /* in entry.apart */
    PyObject *tail; /* a list that was not looked at, only appended to: what was appended */
} tobj;

typedef struct break_row {
    const char *id, *code, *type, *explain, *hint;
} break_row;
typedef enum {
#define BREAK(id, code, type, explain, hint) BRK_##id,
#include "capture/breaks.def"
    BRK_COUNT
} break_id;
extern const break_row break_rows[BRK_COUNT];
const break_row *break_row_now(break_id id);

struct trace {
    entry *e;
    uint8_t autocast, autocast_dtype[DEV_COUNT]; /* as the region starts */
    ir_graph *g;
    ir_rec rec;
    sym_env *env;
    frame *outer, *top;
    cap_cfg *cfg;
    VEC(tobj) objs;
    map by_ptr; /* pointer bytes -> index + 1 */
    VEC(struct own_key {
        PyObject *key;
        Py_hash_t hash;
    })
    keys;                /* whose class compares them */
    unsigned long reads; /* values that were looked at, functions and classes aside */
    map looked;          /* name -> newest of entry.looks + 1 */
    int steps;           /* instructions of the outer frame executed so far */
    int stop_at;
    /* a break */
    bool broke, quiet, hopeless;
    bool error_breaks; /* error_on_graph_break(True) is in force */
    break_id brk;
    char reason[600], detail[1600];
    const ir_loc *brk_at; /* where, in brk_mem */
    arena brk_mem;
    bool brk_inlined;  /* in a function that was inlined */
    int exc_at;        /* outer step that raised the exception being handled, or -1 */
    PyObject *handled; /* what the thread was handling when tracing began, or NULL; borrowed */
    PyObject *caught;  /* exceptions caught so far -> the outer step that raised them */
    bool exc_in_trace;
    int ninline;
    VEC(PyObject *) outs; /* fake tensors returned by the graph, owned */
    VEC(PyObject *) gens; /* generators that are alive, borrowed */
    bool internal;        /* a real error, not a break: the exception is set */
    bool planted;         /* and it was planted: capture itself is said to have failed */
    op_ctx saved;
    int cur_line;
    const ir_loc *loc;
    int loc_line;
    frame *loc_frame;
    int live_at; /* outer step to stop before when an object cannot be rebuilt */
    PyObject *params_seen;
    bool log_src, log_bc, log_call;
    int log_nodes;     /* told of by the trace_call log */
    bool did_backward; /* gradients were computed inside the graph */
    bool made_leaf;    /* requires_grad_() is in the graph */
    bool compared;     /* sizes were compared, and the outcome became a guard */
    bool again;        /* not a break: the trace starts once more, now knowing better */
    char *last[20];    /* verbose: the newest instructions traced */
    unsigned nlast;
    bool verbose;
    bool class_written; /* some class has attributes written while tracing */
    bool hooked;        /* saved_tensors_hooks are active */
    bool in_try;        /* a node was made where a handler would see its failure */
    bool interrupted;   /* a signal handler raised: the exception is set, and none of the program's yet */
};

/* log.c: what the trace_* logs tell */
void log_line(trace *t, frame *f);
void log_instr(trace *t, frame *f);
const char *log_opname(int op);       /* of an instruction */
void log_calls(trace *t, frame *f);   /* after an instruction: the nodes it made */
void log_inlined(trace *t, frame *f); /* f begins */

PyObject *t_break(trace *t, break_id id, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))); /* NULL */
/* Leaf operations of the interpreter while tracing. Arguments borrowed, results new; NULL: exception or
 * break. */
PyObject *t_real(trace *t, PyObject *o); /* borrowed: o with laziness removed */
bool t_key(trace *t, PyObject *o);       /* the same of what goes into a dictionary or set as a key */
bool t_deep(trace *t, PyObject *o);      /* removes laziness inside containers; false: break or not builtin */
PyObject *t_wrap(trace *t, PyObject *real, source *s); /* guards s; new */
PyObject *t_lazy(trace *t, PyObject *real, source *s);
PyObject *t_getattr(trace *t, PyObject *o, PyObject *name);
int t_setattr(trace *t, PyObject *o, PyObject *name, PyObject *v); /* v NULL: delete */
PyObject *t_call(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *t_binary(trace *t, int op, PyObject *a, PyObject *b); /* NB_* */
PyObject *t_unary(trace *t, int op, PyObject *a);
PyObject *t_compare(trace *t, PyObject *a, PyObject *b, int op);
int t_contains(trace *t, PyObject *c, PyObject *v);
int t_is(trace *t, PyObject *a, PyObject *b);
int t_truth(trace *t, PyObject *o);
PyObject *t_iter(trace *t, PyObject *o);
PyObject *t_next(trace *t, PyObject *it, bool *done); /* NULL and *done: exhausted */
PyObject *t_list_of(trace *t, PyObject *o);           /* any iterable -> list; new */
PyObject *t_subscr(trace *t, PyObject *o, PyObject *k);
int t_setitem(trace *t, PyObject *o, PyObject *k, PyObject *v); /* v NULL: delete */
PyObject *t_global(trace *t, frame *f, PyObject *name);
int t_setglobal(trace *t, frame *f, PyObject *name, PyObject *v);
PyObject *t_cell_get(trace *t, PyObject *cell); /* NULL without exception: empty */
int t_cell_set(trace *t, PyObject *cell, PyObject *v);
PyObject *t_import(trace *t, frame *f, PyObject *name, PyObject *fromlist, PyObject *level);
ir_node *
t_node_here(trace *t,
            PyObject *o); /* of a tensor, in the graph that is recorded now; NULL: of another trace */
/* verify.c */
bool cap_wants_verify(void);
bool cap_verify(entry *e, run_program *r, ir_graph *copy, PyObject *const *in, int nin);
void cap_record_failure(const region *r, const frame *f, int line);
/* survey.c: who looks on is told of breaks and recompilations */
bool cap_watching(void);
void cap_watch_break(const cap_cfg *cfg, const break_row *row, const char *reason, const char *stack,
                     const char *file, int line);
void cap_watch_recompile(const cap_cfg *cfg, const char *name, const char *file, int line,
                         const char *reasons);
const char *guard_reads(const guard *g); /* its text, as logs show it */
/* tlog.c */
PyObject *t_logging(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                    bool *handled);
/* After the graph; args: a tuple, kw: a dict or NULL */
bool t_call_later(trace *t, PyObject *f, PyObject *args, PyObject *kw);
PyObject *cache_entry(PyObject *cache, PyObject *key, bool linked); /* borrowed or NULL */
PyObject *t_error_breaks(trace *t, PyObject *f, PyObject *on);
bool cap_error_breaks(void);
int cap_stance(void);
void cap_note_sizes(PyObject *func, PyObject *const *args, Py_ssize_t nargs);
/* comptime.c */
PyObject *t_comptime(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
bool comptime_watches(void); /* TAPER_BREAK_ON is set */
bool comptime_at(trace *t, frame *f, const char *opname);
void comptime_at_break(trace *t);
void comptime_at_wrap(trace *t, const char *source, PyObject *real);
/* customop.c */
PyObject *t_custom(trace *t, PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *t_allowed(trace *t, PyObject *fn, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
/* thop.c: cond, while_loop, scan, map */
PyObject *t_hop(trace *t, const char *which, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *t_inline(trace *t, PyObject *func, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *t_format(trace *t, PyObject *v, PyObject *spec); /* format() of a user object */
PyObject *t_text(trace *t, PyObject *v, int how);          /* 1, 0: str(), 2: repr(), 3: ascii() */
bool t_caught(trace *t, PyObject *exc);   /* an exception goes to its handler; false: out of memory */
int t_caught_at(trace *t, PyObject *exc); /* the outer step that raised it, or -1: it was never raised */
PyObject *t_native(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames); /* deep, then call */
tobj *t_obj(trace *t, PyObject *o);    /* record of an object, or NULL */
tobj *t_obj_add(trace *t, PyObject *abs, PyObject *real, source *s);
bool t_fake_failed(trace *t,
                   const char *what); /* after a failed native call: turns a data error into a break */
PyObject *t_gen_next(trace *t, PyObject *gen, PyObject *send, bool *done);
bool t_gens_idle(trace *t, int *born); /* false: one that must still run its finally blocks is alive */
/* Objects that builtin iterators may hold in place of traced functions and iterators (tbridge.c). */
typedef enum {
    TI_raw,
    TI_real,
    TI_known,
    TI_inner
} t_items; /* as they are, looked at, with contents, iterable */
extern PyTypeObject PyTraceFn_Type, PyTraceIter_Type;
extern _Thread_local trace *t_now;
extern PyObject *py_break_error;
PyObject *t_broken(trace *t);                              /* NULL with an exception set */
PyObject *t_fn(PyObject *fn, bool truth);                  /* new */
PyObject *t_iterable(trace *t, PyObject *o, t_items kind); /* new */
extern PyTypeObject PyTraceAppend_Type;
PyObject *t_appender(PyObject *lazy); /* the append method of a list that was not looked at yet; new */
int t_append(trace *t, PyObject *lazy, PyObject *v);
PyObject *t_appends_to(PyObject *o); /* the lazy list, borrowed */
PyObject *t_behind(PyObject *o);     /* borrowed, NULL: no bridge */
PyObject *t_super_getattr(trace *t, PyObject *o, PyObject *name);
PyObject *t_builtin(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                    bool *handled);
PyObject *t_construct(trace *t, PyTypeObject *cls, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);
/* The dictionary behind a mappingproxy of one, or o itself. Borrowed. */
PyObject *t_unproxied(PyObject *o);
bool t_compared_by_id(PyTypeObject *tp); /* == and hash() are object's */
bool t_safe_type(PyTypeObject *tp);      /* operations on it run no Python code of the user's */
/* backward inside the captured function (tgrad.c): a as _run_backward takes them. */
PyObject *t_backward(trace *t, PyObject *const *a);
bool t_mark_leaf(trace *t, PyObject *o, bool on);               /* a node says so */
PyObject *t_requires_grad(trace *t, PyObject *o, PyObject *on); /* o, new; on: a bool */
PyObject *t_tensor_backward(trace *t, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kw);
void t_grad_finish(
    trace *t); /* the graph's end: gradients are off in it unless what it returns needs the tape */
/* A number read from a tensor (tscalar.c). as: '?' by its type, 'i' int(), 'f' float(). */
extern PyTypeObject PySymFloat_Type;
static inline bool py_is_symfloat(PyObject *o) { return Py_TYPE(o) == &PySymFloat_Type; }
bool t_assert(trace *t, PyObject *o, bool holds); /* a node that fails unless the truth of o is this */
bool t_dynamic_outputs(trace *t);                 /* may sizes of results depend on data? */
PyObject *t_item(trace *t, PyObject *o, char as);
PyObject *t_symfloat_int(trace *t, PyObject *o);
PyObject *py_symfloat_tensor(PyObject *o); /* borrowed */
enum { T_SYMFLOATS = 8 };
/* SymFloats among the arguments of an operator become tensors, which own holds. False: error. */
bool t_symfloat_args(PyObject **v, Py_ssize_t n, PyObject **own);
/* Floats made of symbolic sizes (sizefloat.c). Results are new; NULL without exception: not symbolic. */
extern PyTypeObject PySizeFloat_Type;
static inline bool py_is_sizefloat(PyObject *o) { return Py_TYPE(o) == &PySizeFloat_Type; }
PyObject *t_size_float(PyObject *symint); /* float(n) */
PyObject *t_size_sqrt(PyObject *o);
PyObject *t_size_whole(PyObject *o, bool up);           /* floor or ceil */
PyObject *t_size_fixed(PyObject *o);                    /* the float; the sizes are guarded */
PyObject *t_size_beside(PyObject *o, PyObject *tensor); /* what stands for o in arithmetic with the tensor */
/* tlook.c: lookups in classes and namespaces, remembered as guards. Results borrowed. */
void t_found(trace *t, PyObject *owner, PyObject *name, PyObject *value);
PyObject *t_look(PyTypeObject *tp, PyObject *name);
PyObject *t_look_for(PyTypeObject *tp, const char *name);
PyObject *t_type_func(PyObject *o, const char *name); /* a method written in Python, or NULL */
void looks_finish(entry *e);
bool looks_hold_slow(entry *e, strbuf *why);
static inline bool looks_hold(entry *e, strbuf *why) { return !e->look_groups.n || looks_hold_slow(e, why); }
void looks_print(strbuf *b, const entry *e,
                 void (*line)(strbuf *b, int depth, const char *kind, const char *text, const char *where));
uint64_t dict_version(PyObject *d);
PyTypeObject *t_base(PyTypeObject *tp); /* the builtin container or number a user's class extends, or NULL */
PyObject *t_new_derived(PyTypeObject *base, PyTypeObject *cls); /* empty container, without __init__; new */
PyObject *dict_keys(PyObject *d);                               /* new list, in the dictionary's own order */
int dict_set(PyObject *d, PyObject *k, PyObject *v); /* as dict.__setitem__, v NULL: as __delitem__ */
/* A list of what is in a list, tuple, set or deque, by the builtin class's own rules: no code of the user's runs. New. */
PyObject *container_list(PyObject *o);
/* The one node behind last, if there is one, is a call of what: an object that lives for ever. */
void t_written(trace *t, const ir_node *last, const void *what);
PyObject *t_result(trace *t, PyObject *r,
                   const char *method);     /* takes r; NULL: Python would not have it, or NULL */
PyObject *polyfill(const char *name);       /* a function of taper/_polyfill.py, borrowed */
source *t_source_of(trace *t, PyObject *o); /* of a known object; constants get one; NULL: made here */
bool t_trusted_module(PyObject *mod_name);
PyObject *t_instdict(trace *t, PyObject *o);
ir_node *t_placeholder(trace *t, PyObject *real, source *s);
PyObject *py_special(PyObject *f); /* borrowed: the role a function was registered for, or NULL */
void t_name(trace *t, PyObject *tensor, PyObject *name); /* the node is called as the variable it went to */
source *src_get(entry *e, src_kind k, source *base, PyObject *obj, PyObject *key, int index);
/* A borrowed object or NULL (no exception): reg holds what was evaluated before. */
const char *src_text(const source *s);
PyObject *src_eval(const source *s, frame *f, PyObject *const *reg);
guard *guard_add(entry *e, guard_kind k, source *s, PyObject *obj);
void guard_where(trace *t, guard *g);
void guard_finish(entry *e);
void guard_shares(entry *e, PyObject *const *in); /* the inputs are known: who shares memory with whom? */
/* True when all hold; reg receives the objects (borrowed). why NULL on the hot path. */
bool guard_check(entry *e, frame *f, PyObject **reg, int64_t *symval, strbuf *why, bool all);
/* The same by way of the shortcut when it holds; *out is where the objects are. */
bool guard_fast(entry *e, frame *f, PyObject **reg, int64_t *symval, PyObject ***out);
extern char guard_now[120]; /* what the last guard that failed found, or "" */
void guard_print(strbuf *b, const entry *e);
void log_effects(const entry *e); /* the side_effects log */
/* Another thread may write the texts of guards and sources that were prepared; it keeps those of sources here. */
typedef struct guard_texts {
    arena mem;
    const char **of; /* by their number */
    int n;
    strbuf one;
} guard_texts;
void guard_texts_init(guard_texts *t, const entry *e);
void guard_texts_free(guard_texts *t);
void guard_prepare(guard *g);
void guard_prepare_early(guard *g);
void guard_json(strbuf *b, const entry *e,
                guard_texts *t); /* dynamo_guards: a list of {code, type, stack, user_stack} */
void guard_let_classes_go(entry *e);
PyObject *keep(entry *e, PyObject *o); /* borrowed back */

/* --- the rest
 * ----------------------------------------------------------------------------------------------------------
 */
entry *entry_new(region *r, cap_cfg *cfg);
void entry_free(entry *e);
/* Traces from the frame's state. Returns the entry, or NULL: nothing to gain (no exception) or error. */
entry *capture_region(region *r, frame *f, cap_cfg *cfg);
bool rebuild_finish(trace *t, bool returned, PyObject *ret); /* false: break set or exception */
/* Runs e in f: graph, effects, new frame state. ST_return with *result, ST_next, or ST_error. */
int entry_run(entry *e, frame *f, PyObject **reg, const int64_t *symval, PyObject **result);
/* Runs a function through capture. New reference. */
PyObject *cap_run(cap_cfg *cfg, PyObject *func, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
bool cap_wants(PyObject *func); /* may this function's frame be captured on its own? */
PyObject *cap_call_native(frame *f, PyObject *callee, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames);
/* A graph runs with backend eager instead: said in the log, counted in counters["aot_fallback"], shown in the ledger. */
void cap_fall_back(const char *graph, const char *backend, const char *why);
/* The backend's work on the captured graph, which the entry takes: e->run, or an exception. in: the inputs. */
bool cap_compile(entry *e, ir_graph *g, PyObject *const *in);
/* The same by a backend of C's. NULL with err. */
struct run_options;
bool cap_read_options(struct run_options *o, PyObject *options, tp_err *err); /* {"resolved": {name: word}} */
run_program *cap_compile_native(const backend *b, const struct run_options *o, ir_graph *g, const tp_val *in,
                                tp_err *err);

/* --- numbers (metrics.c) --- */
void metrics_entry(const entry *e, const ir_graph *g,
                   PyObject *const *in);    /* counts of the compile that is open */
void metrics_order(const entry *e);         /* it runs now: the order of runs is told when the program ends */
void metrics_recompile(const char *reason); /* of the compile to come, and where the program says it is */
void metrics_environment(void);             /* settings and versions, for the records that follow */
void metrics_watch_gc(void); /* while a trace is written: how long Python collects garbage within compiles */
/* The trace: the inputs as they came, sizes and where they were found, never what is in them. */
void metrics_inputs(const entry *e, PyObject *const *in);
/* A call took ns. first: capture and compile included. reg: the inputs, while they live. */
void metrics_profile(entry *e, PyObject **reg); /* before a run */
void metrics_ran(entry *e, int64_t ns, bool first);
static inline bool metrics_sampled(const entry *e) { return e->hits < 32 || !(e->hits & 127); }
void cap_each_entry(void (*fn)(void *data, entry *e), void *data);
PyObject *cap_ledger(void); /* new list */

enum {
    STANCE_default,
    STANCE_force_eager,
    STANCE_eager_on_recompile,
    STANCE_fail_on_recompile,
    STANCE_eager_then_compile,
    STANCE_aot_eager_then_compile
};
const char *cap_brand(void); /* "taper", or "torch" under the alias */
/* config.suppress_errors: the exception that is set comes from the compiler; it is logged and gone. */
bool cap_suppress(const cap_cfg *cfg, PyObject *fn);
/* config: taper._dynamo.config */
bool cfg_bool(const char *name, bool dflt);
long cfg_int(const char *name, long dflt);
PyObject *cfg_obj(const char *name);   /* borrowed or NULL */
PyObject *exc_class(const char *name); /* taper._dynamo.exc.<name>; borrowed */
void cap_count(const char *group, const char *key, int n);
bool cap_is_skipped_file(const char *file); /* standard library and the like: not inlined, not captured */
extern PyObject *py_fake_error;             /* raised when the data of a fake tensor is asked for */
PyObject *py_source_line(const char *file, int line); /* new str, stripped; "" when unknown */
/* --- shared by the files of capture ------------------------------------------------------------------- */
PyObject *graph_view(ir_graph *g); /* takes g; new capsule */
bool interp_knows(int op, int arg);
void code_known(cap_code *cc, bool add);
/* What a taper.compile() call asked for; counted. Calls that ask for the same share what is compiled. */
cap_cfg *cfg_get(PyObject *backend, PyObject *options, int dynamic, bool fullgraph, PyObject *guard_fail_fn);
void cfg_unref(cap_cfg *c);
bool cap_is_tracing(void);
void region_reset_ids(void);
void t_register_modes(void);
cap_cfg *hook_push(cap_cfg *cfg);
void hook_pop(cap_cfg *cfg, cap_cfg *was);
void region_replay_id(void);
const char *value_name(trace *t, PyObject *o); /* "TensorVariable()" */
bool const_equal(PyObject *a, PyObject *b);
bool cap_is_disabled(void);
bool cap_is_running(void); /* plain steps of a compiled function, and what they call */
int cap_pause(int n);      /* how many such frames there are from here on; returns how many there were */
/* A trace function is active (a debugger, coverage): it must see the lines of fn, which runs uncompiled. */
bool cap_debugged(PyObject *fn);
PyObject *cap_run_bound(cap_cfg *cfg, PyObject *func, PyObject *const *slots, int n);
cap_cfg *compiled_cfg(PyObject *o);
bool code_handler(const cap_code *cc, int ip, int *target, int *depth, bool *lasti);
bool t_plain_const(PyObject *o);
bool t_is_tensor_type(PyTypeObject *tp);
PyObject *inst_dict(PyObject *o);
PyObject *t_deleted_mark(void);
PyTypeObject *t_deque_type(void), *t_ordered_type(void), *t_default_type(void), *t_partial_type(void);
int t_gen_born(PyObject *o);
int t_run(trace *t, frame *f, PyObject **res);
bool from_outside(const frame *f);
void log_region(const region *r, const entry *e);
void src_release(entry *e);
PyObject *compiled_inner(PyObject *o);
cap_code *code_at(size_t i);
PyObject *t_super_new(trace *t, PyObject *const *args, Py_ssize_t nargs);
PyObject *native_binary(int op, PyObject *a, PyObject *b);
int t_setitem_base(trace *t, PyObject *o, PyObject *k, PyObject *v);
PyObject *t_generic_getattr(trace *t, PyObject *o, PyObject *name);
int t_generic_setattr(trace *t, PyObject *o, PyObject *name, PyObject *v);
PyObject *t_bind_class_attr(trace *t, PyObject *o, PyTypeObject *tp, PyObject *name, PyObject *d);
PyObject *t_method(trace *t, PyObject *f, PyObject *self, const char *name, PyObject *const *args,
                   Py_ssize_t nargs, PyObject *kw);
PyObject *t_classmethod(trace *t, PyObject *f, PyObject *cls, const char *name, PyObject *const *args,
                        Py_ssize_t nargs, PyObject *kw); /* NULL without exception: not known */
PyObject *t_fill_dict(trace *t, PyObject *d, PyObject *const *args, Py_ssize_t nargs, PyObject *kw);
bool t_printable(PyObject *o);
bool t_dim_policy(trace *t, PyObject *o, source *s, int dim, int64_t size, sym_policy *p, int64_t *lo,
                  int64_t *hi);
int t_int_policy(trace *t, PyObject *o, source *s);      /* 1: symbolic */
PyObject *native_program(run_program *p, int nout);      /* a function that runs it; borrows p */
PyObject *native_program_take(run_program *p, int nout); /* the same; takes p, also when it fails */

#endif
