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
#include "capture/trace.h"

/* --- the rest --- */
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
void cap_note_saved(void);   /* debug.c: the exception that is set says where its failure was saved */
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
PyObject *py_source_line(const char *file, int line); /* new str, stripped; "" when unknown */
PyObject *py_source_text(const char *file, int line); /* the same with what it begins with */
/* --- shared by the files of capture ------------------------------------------------------------------- */
PyObject *graph_view(ir_graph *g); /* takes g; new capsule */
bool interp_knows(int op, int arg);
void code_known(cap_code *cc, bool add);
/* What a taper.compile() call asked for; counted. Calls that ask for the same share what is compiled. */
cap_cfg *cfg_get(PyObject *backend, PyObject *options, int dynamic, bool fullgraph, PyObject *guard_fail_fn);
void cfg_unref(cap_cfg *c);
/* Where the thread is. */
typedef struct cap_thread {
    int tracing;
    int running; /* frames that are run here on behalf of compiled functions: their plain steps, and what those call */
    int disabled;      /* taper._dynamo.disable */
    struct frame *top; /* the innermost of those frames */
} cap_thread;
cap_thread *cap_here(void);
void region_reset_ids(void);
void t_register_modes(void);
cap_cfg *hook_push(cap_cfg *cfg);
void hook_pop(cap_cfg *cfg, cap_cfg *was);
void region_replay_id(void);
const char *value_name(trace *t, PyObject *o); /* "TensorVariable()" */
bool const_equal(PyObject *a, PyObject *b);
bool cap_is_disabled(void);
void t_take_overrides(void);
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
bool t_stray(
    trace *t,
    const frame *f); /* is what was raised none of the exceptions of the program? Then the trace ends */
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
/* Source text -> sizes seen by whoever is called, for automatic dynamic shapes: all modules are called through one code. Borrowed. */
PyObject *region_seen(region *r);
bool t_dim_policy(trace *t, PyObject *o, source *s, int dim, int64_t size, sym_policy *p, int64_t *lo,
                  int64_t *hi);
bool t_float_policy(trace *t, PyObject *o, source *s); /* is it to be an input? */
void t_note_fixed(trace *t, const source *s); /* a float that is asked for its value: no input any more */
int t_int_policy(trace *t, PyObject *o, source *s);      /* 1: symbolic */
PyObject *native_program(run_program *p, int nout);      /* a function that runs it; borrows p */
PyObject *native_program_take(run_program *p, int nout); /* the same; takes p, also when it fails */

#endif
