/* trace.h - the state of a trace and what its files share. */
#ifndef TAPER_CAPTURE_TRACE_H
#define TAPER_CAPTURE_TRACE_H
#include "capture/entry.h"
#include "python/override.h"

/* --- tracing --- */
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
    source *outer;      /* of a NumPy array, whose attributes are those of what stands for it */
    ir_node *node;      /* placeholders */
    PyObject *snapshot; /* contents at the start: list, or dict */
    PyObject *over;     /* attributes written: name -> value or the deleted mark */
    uint32_t data_at;   /* writes to the tensor when its data was last replaced */
    PyObject *dict;     /* shadow of __dict__ once asked for */
    bool container;
    bool cleared;   /* its gradient was set to None before any operator */
    bool keyed;     /* in entry.apart */
    bool changed;   /* by an effect of the region */
    PyObject *tail; /* a list that was not looked at, only appended to: what was appended */
} tobj;

/* x[i] of a 0-dim tensor i: storages of x and of the result, and which of them a write to the other has left behind. */
typedef struct picked {
    PyObject *key; /* owned */
    const tp_storage *of, *to;
    bool of_stale, to_stale;
} picked;

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
    uint64_t taped;    /* grad_steps_made() when it began */
    map kept;          /* storages that steps of the tape may keep */
    bool tape_hidden;  /* and there are steps that keep others */
    map by_data,       /* storages written through Tensor.data, which does not count as a write, */
        counted;       /* and those that calls wrote otherwise */
    VEC(picked) picks; /* what x[i] of 0-dim tensors i gave */
    char *last[20];    /* verbose: the newest instructions traced */
    unsigned nlast;
    bool verbose;
    bool class_written; /* some class has attributes written while tracing */
    bool arrays;        /* some inputs are NumPy arrays */
    struct gen_state *
        drawn; /* where random numbers stand at the start; what is drawn while tracing is taken back to here */
    bool took_hook;                  /* some tensor's hook is part of the graph */
    bool hooked;                     /* saved_tensors_hooks are active */
    bool in_try;                     /* a node was made where a handler would see its failure */
    const ir_node *asked;            /* the last node of the newest call that a class or mode took over */
    const py_overriding *overriding; /* as the region starts */
    int mode_at; /* outer step that entered a mode or switched such calls off, from where none had been */
    bool interrupted; /* a signal handler raised: the exception is set, and none of the program's yet */
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
/* x[i] of a 0-dim tensor i is a view of x in eager code, and a value of its own in the graph. */
void t_pick_written(trace *t, const tp_storage *s); /* x or x[i] is written */
bool t_pick_is_stale(const trace *t, const tp_storage *s);
void t_pick_seen(trace *t); /* the difference is: tracing starts again, and ends the graph at the index */
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
/* trace_function.c: autograd.Function with gradients */
PyObject *t_function(trace *t, PyObject *const *args, Py_ssize_t nargs);
PyObject *t_function_dirty(trace *t, PyObject *const *args, Py_ssize_t nargs);
PyObject *t_register_hook(trace *t, PyObject *self, PyObject *hook);
bool t_has_hook(tp_tensor *x); /* one that is part of the graph */
/* x, or what the graph returns where x is NULL: is none of them such a tensor? */
bool t_hooks_stay_inside(trace *t, tp_tensor *const *x, int n);
/* trace_numpy.c: arrays that share memory with traced tensors (taper/_numpy.py) */
bool t_numpy(void);                   /* is NumPy in use? */
bool t_is_array(PyObject *o);         /* one of these */
PyObject *t_array_class(PyObject *o); /* what it is for the program; borrowed */
PyObject *
t_array_method(PyObject *fn); /* what stands for a method of theirs outside; new, or NULL: it is none */
bool t_is_real_array(const PyObject *o);
PyObject *
t_array_tensor(PyObject *array);      /* on the memory of NumPy's; new, or NULL: tensors cannot have it */
bool t_holds_arrays(PyObject *o);     /* a list or tuple with one of these in it */
PyObject *t_array_index(PyObject *k); /* an index for tensors without arrays in it; new */
PyObject *t_wrap_array(trace *t, PyObject *o, source *s);
bool t_arrays_overlap(const tp_tensor *a, const tp_tensor *b); /* two storages on one memory? */
PyObject *t_array_outside(void);                               /* makes a NumPy array of its parts; new */
bool t_is_numpy_scalar(PyTypeObject *tp);
void t_keep_apart(trace *t, tobj *k); /* no other object told apart by which it is may be this one */
guard *t_want(trace *t, guard_kind k, source *s, PyObject *obj);
/* trace_known.c */
PyObject *t_known_int(trace *t, PyObject *o); /* the number in a 0-d tensor made of constants; new, or NULL */
PyObject *t_known_args(trace *t, PyObject *const *args, Py_ssize_t n);
/* trace_module.c */
PyObject *t_module_hooked(trace *t, PyObject *o);
PyObject *t_module_attr(trace *t, PyObject *o, PyObject *name);
bool guard_no_hooks(PyObject *module);
bool guard_module_attr(const guard *g, PyObject *module);
int guard_module_dicts(const guard *g, PyObject *module,
                       PyObject **out); /* those that it reads; returns how many */
/* trace_lazy.c */
PyObject *t_lazy_module(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, bool *handled);
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
bool t_on_input_memory(const trace *t, const tp_tensor *x); /* trace_builtin.c */
bool t_keeps_relations(void);                               /* trace_hop.c */
PyObject *t_size_arith(char op, PyObject *a, PyObject *b);  /* trace_size.c */
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
PyObject *t_size_input(trace *t, PyObject *o,
                       source *s);  /* a float from outside that is another one each time */
source *t_size_source(PyObject *o); /* of such a float; NULL: something is computed */
bool t_size_of_inputs(PyObject *o);
PyObject *t_size_value(PyObject *o);    /* new: f64[] */
PyObject *t_number_tensor(PyObject *o); /* a float with memory; new, or NULL: o is none */
PyObject *t_symfloat(PyObject *tensor); /* takes it; NULL stays NULL */
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
guard *guard_find(entry *e, const source *s, guard_kind k, const PyObject *obj); /* NULL: there is none */
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
#endif
