/* entry.h - recipes of Python objects, regions and their entries, frames. */
#ifndef TAPER_CAPTURE_ENTRY_H
#define TAPER_CAPTURE_ENTRY_H
#include "base/quarantine.h"
#include "capture/guard.h"

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

/* --- backends --- */
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

/* --- code objects, regions, entries --- */
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
        no_picks,        /* x[i] of a tensor i ends graphs: whether it is a view of x is seen */
        no_hooks, /* Tensor.register_hook ends graphs: the gradient of such a tensor itself is asked for */
        no_leaves; /* requires_grad_() ends graphs: a backward with create_graph=True follows, which needs its tensors */
    PyObject *dynamic; /* whose call it is (shown) -> source text -> sizes seen: region_seen() */
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
    const char *not_stepped;  /* why it is not followed either where a trace meets it */
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
    uint8_t
        leaves_grad; /* behind it gradients are off (1) or on (2), whatever they were before; 0: as before */
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
    bool undo;   /* ... and their values are kept for it, since a handler would see the failure ... */
    bool late;   /* ... or because it can fail after such a write, if the program is stepwise */
    bool heads;  /* some call changes a shape in place */
    bool checks; /* some call is there for the error it may raise, which is the line's own */
    bool random;
    int *silent, nsilent; /* inputs that it writes by Tensor.data alone: that does not count as a write */
    int *data, ndata;     /* graph outputs that are Tensor.data of something: writes to them do not count */
};

/* --- frames --- */
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
    frame *under;  /* native: the next of the thread's (cap_thread.top) */
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

/* ---- skip.c ---- */
void cap_function_key(const cap_code *cc, PyObject *self, strbuf *b); /* NAME@FILE:LINE */
void cap_crumb(const cap_code *cc, PyObject *self);                   /* it is called now */
bool cap_quarantined_slow(const cap_code *cc, PyObject *self);
/* Does it run as it is written because a quarantine says so? */
static inline bool cap_quarantined(const cap_code *cc, PyObject *self)
{
    return TP_UNLIKELY(quarantine_functions) && cap_quarantined_slow(cc, self);
}
region *region_at(cap_code *cc, int ip);
void live_at(const cap_code *cc, int ip, uint8_t *live); /* nfast flags */
#endif
