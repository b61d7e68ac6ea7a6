/* attempt.c - captures a region: attempts to trace it, the entry made of one, its compile. */
#include "base/fault.h"
#include "capture/attempt.h"
#include "grad/batch.h"
#include "base/intern.h"
#include "base/source.h"
#include "events/metrics.h"
#include "base/clock.h"
#include "base/envvars.h"
#include <frameobject.h>
#include <opcode.h>

static int next_frame_id;
static int next_fn = 1;
static bool replay_id;
void region_replay_id(void) { replay_id = true; }
static __thread cap_thread here;
cap_thread *cap_here(void) { return &here; }

/* A real tensor met an operator while tracing: it is known only as a constant. */
static ir_node *lift(void *data, ir_rec *r, tp_tensor *x) { return NULL; }

/* Shape rules accept types that the kernels refuse. A pointwise call with types not seen before is tried on one element:
 * what it refuses is refused here, so that the statement raises as it does without the compiler. */
static bool kernel_takes(op_id op, op_variant v, const tp_val *arg, tp_err *err)
{
    static map known; /* (operator, types) -> itself, when the kernel takes them */
    const op_row *row = op_row_of(op);
    if (!(row->flags & OPF_PW) || v == OPV_out)
        return true;
    uint8_t key[4 + OP_MAX_PARAMS];
    int n = row->schema.nparam;
    key[0] = (uint8_t)op, key[1] = (uint8_t)(op >> 8), key[2] = (uint8_t)v, key[3] = (uint8_t)n;
    for (int i = 0; i < n; i++)
        key[4 + i] = arg[i].kind == VAL_tensor && arg[i].t ? arg[i].t->dt : (uint8_t)(128 + arg[i].kind);
    if (map_getn(&known, key, (size_t)(4 + n)))
        return true;
    tp_val in[OP_MAX_PARAMS], out[OP_MAX_RETURNS] = { 0 };
    tp_err why = { 0 };
    bool tried = true;
    for (int i = 0; i < n; i++) {
        in[i] = arg[i];
        if (arg[i].kind == VAL_tensor && arg[i].t) {
            tp_tensor *one = tensor_scalar((dtype)arg[i].t->dt, 1, 1, &why);
            in[i] = one ? vT(one) : vNone;
            tried &= one != NULL;
        } else if (arg[i].kind == VAL_int && sym_is_expr(arg[i].i))
            in[i] = vI(1);
        else
            tried &= arg[i].kind != VAL_tensors && arg[i].kind != VAL_ints;
    }
    op_ctx cx = *CX;
    cx.rec = NULL;
    cx.env = NULL;
    cx.grad_mode = false;
    cx.autocast = 0;
    bool ok = !tried || ops_call(&cx, op, v, in, out, &why) || why.kind != ERR_notimpl;
    for (int i = 0; i < OP_MAX_RETURNS; i++)
        val_clear(&out[i]);
    for (int i = 0; i < n; i++)
        if (arg[i].kind == VAL_tensor && arg[i].t && in[i].kind == VAL_tensor)
            tensor_unref(in[i].t);
    if (!ok) {
        *err = why;
        return false;
    }
    map_putn(&known, key, (size_t)(4 + n), &known);
    return true;
}
static uint64_t memory_of(const tp_tensor *x) { return (uint64_t)(uintptr_t)x->storage; }

/* What a step of the tape may keep: its operands and its results. */
static void tape_keeps(trace *t, const tp_val *v)
{
    if (v->kind == VAL_tensor && v->t)
        map_puti(&t->kept, memory_of(v->t), t);
    for (int i = 0; v->kind == VAL_tensors && i < v->n; i++)
        if (v->ts[i])
            map_puti(&t->kept, memory_of(v->ts[i]), t);
}
static bool needs_gradient(const tp_val *v)
{
    bool any = v->kind == VAL_tensor && v->t && grad_requires_grad(v->t);
    for (int i = 0; v->kind == VAL_tensors && i < v->n && !any; i++)
        any = v->ts[i] && grad_requires_grad(v->ts[i]);
    return any;
}

/* Steps of the tape that kept a tensor see what Tensor.data writes, the backward of a graph would not: such writes are in graphs
 * only as long as no step may have kept what is written. written: NULL at the end. */
static bool data_meets_tape(trace *t, const tp_tensor *written)
{
    if (TP_LIKELY(!t->by_data.n) || grad_steps_made() == t->taped ||
        !(t->tape_hidden || (written && map_geti(&t->kept, memory_of(written)))))
        return false;
    t->e->r->no_data = t->again = true;
    t_break(t, BRK_attribute, "a write to Tensor.data: tracing again");
    return true;
}
/* A write to x, or to x[i] of a tensor i, is not seen in the other one, as it is in eager code: who reads that later, here or
 * outside, may not. */
static bool picks_differ(trace *t, const op_row *row, const tp_val *arg, bool writes)
{
    bool differ = false;
    for (int i = 0; i < row->schema.nparam; i++)
        for (int k = 0; k < (arg[i].kind == VAL_tensors ? arg[i].n : arg[i].kind == VAL_tensor); k++) {
            const tp_tensor *x = arg[i].kind == VAL_tensors ? arg[i].ts[k] : arg[i].t;
            differ |= x && t_pick_is_stale(t, x->storage);
        }
    if (differ)
        t_pick_seen(t);
    else if (writes && arg[0].kind == VAL_tensor)
        t_pick_written(t, arg[0].t->storage);
    return differ;
}
static bool record(void *data, op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out,
                   tp_err *err)
{
    trace *t = data;
    const op_row *row = op_row_of(op);
    bool writes = v == OPV_inplace || (row->flags & OPF_MUT), by_data = false;
    if (writes && arg[0].kind == VAL_tensor) {
        by_data = arg[0].t->spare & AGF_data;
        map_puti(by_data ? &t->by_data : &t->counted, memory_of(arg[0].t), t);
    }
    if (TP_UNLIKELY(data_meets_tape(t, by_data ? arg[0].t : NULL)))
        return err_set(err, ERR_python, "a write to Tensor.data");
    if (TP_UNLIKELY(t->picks.n) && picks_differ(t, row, arg, writes))
        return err_set(err, ERR_python, "a write beside x[i] of a tensor i");
    if (!kernel_takes(op, v, arg, err) || !ir_record(cx, &t->rec, op, v, arg, out, err))
        return false;
    bool taped = false;
    for (int i = 0; cx->grad_mode && i < row->schema.nparam && !taped; i++)
        taped = needs_gradient(&arg[i]);
    for (int i = 0; taped && i < row->schema.nparam; i++)
        tape_keeps(t, &arg[i]);
    for (int i = 0; taped && i < row->schema.nret; i++)
        tape_keeps(t, &out[i]);
    if (TP_UNLIKELY(cx->inference_mode) && v == OPV_fn && !(row->flags & (OPF_VIEW | OPF_MUT)))
        for (int i = 0; i < row->schema.nret; i++) /* as what is made in this mode is */
            if (out[i].kind == VAL_tensor && out[i].t)
                out[i].t->flags |= TF_inference;
    return true;
}

/* Faults planted at stage "capture": the graph is wrong, or there is none. */
static bool plant(void *data, op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out, tp_err *err)
{
    trace *t = data;
    const op_row *row = op_row_of(op);
    fault_kind f = fault_at("capture", row->name);
    if (f == FAULT_compile_error || f == FAULT_runtime_error) {
        t->internal = t->planted = true; /* the stage fails; a break would be no failure */
        frame *at = frame_user(t->top);
        err_set(err, ERR_runtime, "planted fault: capture cannot take '%s'", row->name);
        err_note(err, "in %s", at->cc->name);
        return err_place(err, at->cc->file, frame_line(at), at->cc->name);
    }
    if (fault_is_sudden(f) && !fault_strike(f, row->name, err))
        return false;
    if (!record(data, cx, op, v, arg, out, err))
        return false;
    if (f == FAULT_flaky && fault_coin())
        f = FAULT_accuracy;
    if ((f == FAULT_accuracy || f == FAULT_nan) && out[0].kind == VAL_tensor) {
        tp_val a[3] = { out[0], f == FAULT_nan ? vF(__builtin_nan("")) : vI(1), vI(1) }, sum = vNone;
        bool ok = ir_record(cx, &t->rec, OP_add_Tensor, OPV_fn, a, &sum, err);
        tensor_unref(out[0].t);
        out[0] = sum;
        return ok;
    }
    return true;
}

typedef struct attempt {
    trace t;
    frame f;
    PyObject **storage;
} attempt;

static void attempt_end(attempt *a)
{
    trace *t = &a->t;
    for (size_t i = 0; i < COUNT(t->last); i++)
        free(t->last[i]);
    if (a->storage) {
        frame_clear(&a->f);
        free(a->storage);
    }
    for (size_t i = 0; i < t->outs.n; i++)
        Py_XDECREF(t->outs.at[i]);
    vec_free(&t->outs);
    for (size_t i = 0; i < t->objs.n; i++) {
        tobj *o = &t->objs.at[i];
        Py_XDECREF(o->abs);
        Py_XDECREF(o->real);
        Py_XDECREF(o->snapshot);
        Py_XDECREF(o->tail);
        Py_XDECREF(o->over);
        Py_XDECREF(o->dict);
    }
    vec_free(&t->objs);
    vec_free(&t->gens);
    map_free(&t->by_ptr);
    map_free(&t->looked);
    map_free(&t->by_data);
    map_free(&t->counted);
    map_free(&t->kept);
    for (size_t i = 0; i < t->picks.n; i++)
        Py_DECREF(t->picks.at[i].key);
    vec_free(&t->picks);
    vec_free(&t->keys);
    Py_CLEAR(t->params_seen);
    Py_CLEAR(t->caught);
    if (t->g)
        ir_graph_free(t->g);
    if (t->e)
        entry_free(t->e);
    arena_free(&t->brk_mem);
    free(a);
}

static attempt *attempt_new(region *r, frame *real, cap_cfg *cfg, int stop_at)
{
    attempt *a = mem_zalloc(sizeof *a);
    trace *t = &a->t;
    char name[64];
    snprintf(name, sizeof name, "__compiled_fn_%d", next_fn);
    t->e = entry_new(r, cfg);
    t->g = ir_graph_new(name);
    t->g->grad_mode = CX->grad_mode && !CX->inference_mode;
    t->autocast = CX->autocast;
    memcpy(t->autocast_dtype, CX->autocast_dtype, sizeof t->autocast_dtype);
    sym_env_opts o = { .where = location_print, .data = t };
    t->env = t->e->env = sym_env_new(&o);
    t->e->env_refs = mem_alloc(sizeof *t->e->env_refs);
    *t->e->env_refs = 2; /* the entry and the graph, which Python code may keep longer */
    t->g->env = t->env;
    t->g->env_refs = t->e->env_refs;
    t->rec = (ir_rec){ .g = t->g,
                       .loc = location_now,
                       .loc_data = t,
                       .lift = lift,
                       .lift_data = t,
                       .flags = r->expand ? REC_composites : 0 };
    t->rec.call = TP_UNLIKELY(fault_spec() != NULL)
                      ? plant
                      : record; /* faults are planted to test the debugging tools */
    t->rec.call_data = t;
    t->cfg = cfg;
    t->stop_at = stop_at;
    t->error_breaks = cap_error_breaks();
    t->exc_at = t->live_at = -1;
    t->log_src = ev_on(EV_trace_source);
    t->log_call = ev_on(EV_trace_call);
    t->verbose = env_on(ENV_verbose) || cfg_bool("verbose", false);
    t->log_bc = ev_on(EV_trace_bytecode) || t->verbose || comptime_watches();
    cap_code *cc = r->cc;
    a->storage = mem_zalloc(sizeof(PyObject *) * (size_t)(cc->nfast + cc->nstack));
    frame *f = &a->f;
    f->cc = cc;
    f->func = real->func;
    f->globals = real->globals;
    f->builtins = real->builtins;
    f->fast = a->storage;
    f->stack = a->storage + cc->nfast;
    f->ip = f->at = real->ip;
    f->kwnames = real->kwnames;
    f->last_line = -1;
    f->t = t;
    f->caller = real->caller;
    t->outer = t->top = f;
    capture_trace_source(cc);
    for (int i = 0; i < cc->nfast; i++)
        if (real->fast[i])
            f->fast[i] = t_lazy(t, real->fast[i], src_get(t->e, SRC_local, NULL, NULL, NULL, i));
    for (int i = 0; i < real->sp; i++)
        f->stack[f->sp++] = real->stack[i]
                                ? t_lazy(t, real->stack[i], src_get(t->e, SRC_stack, NULL, NULL, NULL, i))
                                : NULL;
    guard_add(t->e, G_DEFAULT_DEVICE, NULL, NULL)->where = "capture/region.c in attempt_new";
    guard_add(t->e, G_GLOBAL_STATE, NULL, NULL);
    guard_add(t->e, G_TORCH_FUNCTION_MODE_STACK, NULL, NULL);
    return a;
}

/* The instructions after which a region ends: a loop that goes on without end must not fill the memory. */
static int longest(const trace *t) { return t->g->nnode > 54000 ? 4000000 : 500000 + 64 * t->g->nnode; }

/* Interprets the outer frame. ST_return with *ret; ST_next: stopped before an instruction; ST_error: break or
 * error. */
static int attempt_run(attempt *a, PyObject **ret, const char *force)
{
    trace *t = &a->t;
    frame *f = &a->f;
    for (;;) {
        if (t->steps == t->stop_at)
            return ST_next;
        if (TP_UNLIKELY(t->log_src || t->log_bc)) {
            log_line(t, f);
            log_instr(t, f);
            if (t->internal) /* the debugger was quit there */
                return ST_error;
        }
        bool idle = (t->steps & 1023) == 0 && t->steps >= 51200 && t->g->nnode == (int)t->g->inputs.n;
        if (idle || t->steps > longest(t)) { /* a long loop without tensors is none of our business */
            t->hopeless = idle;
            t_break(t, BRK_length, "more than %d instructions in one region", t->steps - 1);
            t->quiet = idle;
            return ST_error;
        }
        int rc = interp_step(f, ret);
        if (TP_UNLIKELY(t->log_call))
            log_calls(t, f);
        if (TP_UNLIKELY(t->broke || t->internal)) {
            if (rc == ST_return)
                Py_CLEAR(*ret);
            if (t->broke)
                py_forget(); /* what carried it here */
            return ST_error;
        }
        if (rc == ST_return)
            return rc;
        if (rc == ST_next) {
            t->steps++;
            if (!f->handled)
                t->exc_at = -1;
            continue;
        }
        if (!PyErr_Occurred()) {
            t_break(t, BRK_wrapped, "the tracer cannot continue here");
            return ST_error;
        }
        if (t_stray(t, f))
            return ST_error;
        if (t->exc_at < 0)
            t->exc_at = t->steps;
        frame_raised(f);
        if (interp_unwind(f)) {
            t->steps++;
            continue;
        }
        PyObject *ty, *v, *tb;
        PyErr_Fetch(&ty, &v, &tb);
        PyErr_NormalizeException(&ty, &v, &tb);
        PyObject *s = v ? PyObject_Str(v) : NULL;
        if (t->detail[0])
            t_break(t, BRK_exception, "%s", t->detail);
        else
            t_break(t, BRK_exception, "%s: %s", ty ? ((PyTypeObject *)ty)->tp_name : "error",
                    s ? PyUnicode_AsUTF8(s) : "");
        py_forget();
        Py_XDECREF(s);
        Py_XDECREF(ty);
        Py_XDECREF(v);
        Py_XDECREF(tb);
        return ST_error;
    }
}

/* Inputs that the graph writes on the tape must be computed tensors: leaves refuse it. */
static void guard_writes(trace *t)
{
    for (size_t i = 0; i < t->objs.n; i++) {
        tobj *k = &t->objs.at[i];
        if (k->node && k->real && py_is_tensor(k->abs) && grad_before_write(py_tensor(k->abs)))
            guard_add(t->e, G_TENSOR_MATCH, k->src, NULL)->t->computed = true;
    }
}

static bool finish_entry(attempt *a, bool returned, PyObject *ret, frame *real)
{
    trace *t = &a->t;
    entry *e = t->e;
    if (!rebuild_finish(t, returned, ret))
        return false;
    tp_err err = { 0 };
    if (!sym_env_check_dynamic(t->env, &err)) {
        PyObject *cls = exc_class("ConstraintViolationError");
        PyErr_SetString(cls ? cls : PyExc_RuntimeError, err.msg);
        t->internal = true;
        return false;
    }
    if (e->nsymval) {
        if (ev_log_on(EVC_dynamic, EV_INFO)) /* once for the environment, once for the cache entry */
            ev_log(EVC_dynamic, EV_INFO, NULL, "produce_guards");
        e->symguards = sym_guards_new(t->env);
        e->nsymbol = sym_env_n_symbols(t->env);
    }
    if (e->exprs.n) {
        e->nprog = (int)e->exprs.n;
        e->prog = sym_prog_new(e->exprs.at, e->nprog);
    }
    ev_span span = ev_span_begin(EVS_guards);
    guard_writes(t);
    guard_finish(e);
    ev_span_end(&span);
    return true;
}

/* One capture of a region: what its attempts share. */
typedef struct capture {
    region *r;
    frame *real;
    cap_cfg *cfg;
    attempt *a; /* the one that succeeded, at the end */
    why_broke w;
    ev_cid cid;
    int stop_at;
    int broke_at; /* the instruction of this frame with the break, when no tensor was worked on before it */
    long force;   /* config.debug_break_at */
    bool fresh_id, started;
    PyObject *handled;
    trace *outer;
    op_ctx saved;
    py_overriding overriding;
    gen_state drawn; /* shape rules of random operators may draw: the graph draws again when it runs */
} capture;
typedef enum { TRY_done, TRY_again, TRY_failed } tried;

static void capture_name(capture *c)
{
    region *r = c->r;
    c->fresh_id = r->frame_id < 0;
    if (c->fresh_id && replay_id) { /* a recorded frame is traced again under an id of its own */
        r->frame_id = 42;
        r->compiles = 999;
        replay_id = c->fresh_id = false;
    }
    if (c->fresh_id)
        r->frame_id = next_frame_id++;
    c->cid = (ev_cid){ r->frame_id, r->compiles, 0 };
}
static void capture_begin(capture *c)
{
    char shown[300];
    region *r = c->r;
    t_numpy();
    py_signaled = false; /* of an earlier run */
    here.tracing++;
    region_name(r, shown, sizeof shown);
    crumb_drop("capture", shown);
    metrics_environment();
    metrics_watch_gc();
    ev_cid_set(&c->cid);
    ev_metrics_begin(&c->cid, false, shown, r->shown.file, r->shown.line);
    if (ev_log_on(EVC_dynamo, EV_INFO))
        ev_log(EVC_dynamo, EV_INFO, NULL, "Step 1: capture starts with %s %s:%d", shown, r->shown.file,
               r->shown.file == r->cc->file ? r->from_line : r->shown.line);
}
static void attempt_drop(capture *c)
{
    if (c->a)
        attempt_end(c->a);
    c->a = NULL;
}

/* Interprets the region's instructions; true: a->t.e is an entry. */
static bool attempt_once(capture *c)
{
    op_ctx *cx = CX;
    trace *t = &c->a->t;
    PyObject *ret = NULL;
    if (c->force >= 0 && !c->r->ip && (c->stop_at < 0 || c->force < c->stop_at) &&
        !(c->w.set && c->w.id == BRK_forced))
        t->stop_at = (int)c->force;
    cx->rec = &t->rec;
    cx->env = t->env;
    t->drawn = &c->drawn;
    t->hooked = cx->hooks != NULL;
    cx->hooks = NULL; /* they see what the graph keeps, not fakes */
    ev_span reading = ev_span_begin(EVS_trace);
    t->handled = c->handled;
    t->overriding = &c->overriding;
    t_now = t;
    t->taped = grad_steps_made();
    int rc = attempt_run(c->a, &ret, NULL);
    if (rc != ST_error && data_meets_tape(t, NULL))
        rc = ST_error;
    ev_span_end(&reading);
    if (ev_trace_on(EV_dynamo_output_graph) && t->g && t->g->nnode >= EV_LATER_NODES)
        ev_later_soon();
    if (t->steps == c->force && rc == ST_next && t->stop_at == c->force && c->stop_at != c->force) {
        t_break(t, BRK_forced, "config.debug_break_at");
        break_note(&c->w, t);
        t->broke = false;
        c->stop_at = (int)c->force;
    }
    /* an exception caught here and still being handled cannot be rebuilt: end before it was raised */
    if (rc == ST_next && t->outer->handled && t->exc_at >= 0) {
        t->broke = true;
        t->steps = t->exc_at;
        rc = ST_error;
    }
    bool left = py_overriding_same(&c->overriding) && cx->batch == c->saved.batch;
    if (rc != ST_error && !left && !t->internal) { /* the region ends before a mode that would still be on */
        t->live_at = t->mode_at;
        t_break(t, BRK_live, "a mode is entered that is left behind the end of the graph");
        t->quiet = true;
    }
    py_overriding_pause(1); /* what is written of the graph's results is not the program's calls */
    bool ok = rc != ST_error && left && !t->internal && finish_entry(c->a, rc == ST_return, ret, c->real);
    py_overriding_set(&c->overriding);
    t_now = c->outer;
    while (cx->batch != c->saved.batch) /* vmaps that the trace did not leave */
        batch_exit(cx);
    *cx = c->saved;
    PyErr_SetHandledException(c->handled);
    gen_default()->s = c->drawn;
    Py_CLEAR(ret);
    if (ok && rc == ST_next && !c->w.set)
        c->w.quiet = true;
    return ok;
}

/* What follows from an attempt that met a break or an error. */
static tried attempt_judge(capture *c)
{
    trace *t = &c->a->t;
    if (t->interrupted) {
        py_put_off(); /* until plain execution asks for signals: the handlers around it are the program's */
        return TRY_failed;
    }
    if (t->internal || (!t->broke && PyErr_Occurred())) {
        if (t->planted)
            capture_raise_internal();
        return TRY_failed;
    }
    if (t->again)
        return TRY_again;
    if (!c->w.set && t->g->nnode == (int)t->g->inputs.n)
        c->broke_at = c->a->f.at;
    break_note(&c->w, t);
    if ((c->cfg->fullgraph || c->w.error) && !t->quiet) {
        attempt_drop(c); /* before there is an exception */
        if (!(c->w.id == BRK_exception && c->w.reason[0] == 0))
            break_raise(&c->w);
        return TRY_failed;
    }
    if (t->hopeless) { /* the rest of the frame runs natively */
        c->r->native_until = c->r->cc->n;
        c->r->empty++;
        break_log(c->r, c->cfg, &c->w);
        return TRY_failed;
    }
    int at = t->live_at >= 0 ? t->live_at : t->steps;
    if (c->stop_at >= 0 && at >= c->stop_at)
        at = c->stop_at - 1;
    c->stop_at = MAX(at, 0);
    return c->stop_at ? TRY_again : TRY_done;
}

/* Attempts, each ending before the break that the last one met. false: the region is not captured. */
static bool capture_attempts(capture *c)
{
    for (int tries = 0; tries < 40; tries++) {
        c->cid.attempt = tries;
        ev_cid_set(&c->cid);
        if (tries)
            ev_metrics_again();
        c->a = attempt_new(c->r, c->real, c->cfg, c->stop_at);
        if (attempt_once(c))
            return true;
        tried next = attempt_judge(c);
        attempt_drop(c);
        if (next == TRY_failed)
            return false;
        if (next == TRY_done)
            break;
    }
    return true;
}

/* Without tensor work there is nothing to gain, and the instructions up to the break are executed; also where what lies
 * between cannot be rebuilt (an iterator that has moved on). */
static void capture_nothing(capture *c)
{
    region *r = c->r;
    attempt *a = c->a;
    r->native_until = c->broke_at >= 0 ? c->broke_at : a ? (a->t.e->returns ? r->cc->n : a->f.ip) : r->ip;
    r->empty++;
    r->found_empty = true;
    /* an early exit: the next call may well go another way */
    r->patience = !c->w.set && a && a->t.e->returns ? MIN(MAX(2 * r->patience, 2), EMPTY_CALLS) : EMPTY_CALLS;
    if (c->fresh_id && r->frame_id == next_frame_id - 1 && !r->nentry) {
        next_frame_id--;
        r->frame_id = -1;
    }
    if (c->w.set) {
        if (r->frame_id < 0) /* the number goes to somebody else: the record names nobody */
            ev_cid_set(NULL);
        break_log(r, c->cfg, &c->w);
    }
    attempt_drop(c);
}

/* The attempt's entry and graph get their names; the attempt ends. */
static entry *capture_take(capture *c, bool idle, ir_graph **graph, strbuf *sizes)
{
    entry *e = c->a->t.e;
    ir_graph *g = c->a->t.g;
    if (c->w.set) {
        break_log(c->r, c->cfg, &c->w);
        if (!c->w.quiet) {
            ev_metrics_restart(c->w.reason);
            ev_add(EVN_breaks, 1);
        }
    }
    e->shown = c->r->shown;
    c->a->t.e = NULL;
    c->a->t.g = NULL;
    c->cid.attempt = 0;
    ev_cid_set(&c->cid);
    e->compile_id = c->r->compiles++;
    e->traced = c->a->t.steps;
    g->name = arena_printf(&g->mem, "__compiled_fn_%d", next_fn++);
    if (c->w.set)
        e->break_reason = PyUnicode_FromString(c->w.reason);
    capture_trace_start(c->r);
    c->started = true;
    if (!idle) {
        capture_log_sizes(g, sizes);
        capture_log_graph(e, g);
    }
    attempt_drop(c);
    sym_env_freeze(e->env);
    *graph = g;
    return e;
}

/* Hands the graph to the backend; takes it. */
static void entry_compile(entry *e, ir_graph *g, PyObject **in)
{
    ev_span span = ev_span_begin(EVS_backend);
    CX->autocast = 0; /* conversions are in the graph: the stages make none */
    ir_graph *plain = cap_wants_verify() ? ir_graph_copy(g) : NULL;
    cap_compile(e, g, in);
    if (plain && e->run && !cap_verify(e, e->run, plain, in, e->nin)) {
        run_program_free(e->run);
        e->run = NULL;
    } else if (plain && !e->run)
        ir_graph_free(plain);
    ev_span_end(&span);
}

/* Checks the entry's guards against the frame that they were made for, then compiles. true: the entry can run. */
static bool capture_compile(capture *c, entry *e, ir_graph *g, bool idle, double *latency)
{
    PyObject **in = mem_zalloc(sizeof *in * (size_t)(e->nin + 1)),
             **reg = mem_zalloc(sizeof *reg * (e->sources.n + 1));
    int64_t *sym = mem_zalloc(sizeof *sym * (size_t)(e->nsymval + 1));
    strbuf why = { 0 };
    bool ok = guard_check(e, c->real, reg, sym, &why, false);
    if (!ok) {
        PyObject *cls = exc_class("InternalTorchDynamoError");
        PyErr_Format(cls ? cls : PyExc_RuntimeError,
                     "Guard failed on the same frame it was created. This is a bug: %s", strbuf_str(&why));
        ir_graph_free(g);
    } else {
        for (int i = 0; i < e->nin; i++)
            in[i] = reg[e->in[i]->id];
        guard_shares(e, in);
        if (guard_latency_wanted()) /* now: all that it reads was just read */
            *latency = guard_latency(e, c->real);
        metrics_entry(e, g, in);
        capture_log_entry(e, idle || capture_graph_stays(g), in);
        if (ev_log_on(EVC_dynamo, EV_INFO))
            ev_log(EVC_dynamo, EV_INFO, NULL, "Step 2: graph %s (%d operator%s) goes to the backend", g->name,
                   e->nops, plural(e->nops));
        here.tracing--;
        if (idle)
            ir_graph_free(g);
        else
            entry_compile(e, g, in);
        here.tracing++;
        ev_catch_up(); /* if no stage did */
        ok = e->run || idle;
        if (ev_log_on(EVC_dynamo, EV_INFO))
            ev_log(EVC_dynamo, EV_INFO, NULL,
                   ok ? "Step 3: compiled; %d guard%s checked before each use"
                      : "Step 3: the backend failed (%d guard%s)",
                   e->nstep,
                   !ok             ? plural(e->nstep)
                   : e->nstep == 1 ? " is"
                                   : "s are");
    }
    strbuf_free(&why);
    free(in);
    free(reg);
    free(sym);
    return ok;
}
static void capture_keep(region *r, entry *e, bool idle, double latency)
{
    capture_log_guards(e, latency);
    log_region(r, e);
    log_effects(e);
    cap_count("stats", "unique_graphs", !idle);
    cap_count("stats", "calls_captured", e->nops);
    guard_let_classes_go(e);
    e->next = r->first;
    r->first = e;
    r->nentry++;
    r->empty = r->patience = 0;
    r->native_until = -1;
}
static entry *capture_finish(capture *c)
{
    attempt *a = c->a;
    /* fullgraph means that all of a function is known, also where it computes nothing */
    bool idle = a && a->t.e->nops == 0, known = idle && c->cfg->fullgraph && a->t.e->returns;
    if (known)
        IR_EACH (n, a->t.g)
            idle &= n->kind != IR_opaque && !a->t.e->nout;
    if (!a || (idle && !known)) {
        capture_nothing(c);
        return NULL;
    }
    strbuf sizes = { 0 };
    double latency = 0;
    ir_graph *g;
    entry *e = capture_take(c, idle, &g, &sizes);
    if (!capture_compile(c, e, g, idle, &latency)) {
        entry_free(e);
        e = NULL;
    }
    ev_wait(&sizes);
    if (sizes.n)
        ev_metrics_text(EVT_shapes, sizes.s);
    strbuf_free(&sizes);
    if (e)
        capture_keep(c->r, e, idle, latency);
    return e;
}
static void capture_end(capture *c, entry *done)
{
    const ir_loc *named = c->w.named;
    if (TP_UNLIKELY(py_signaled)) {
        py_signaled = false;
        if (!done && PyErr_Occurred())
            py_put_off();
    }
    if (!done && PyErr_Occurred()) {
        capture_trace_error(c->r, c->started, named ? named->file : c->r->shown.file,
                            named ? named->line : c->r->shown.line);
        cap_record_failure(c->r, c->real, named ? named->line : c->r->cc->first_line);
    }
}
entry *capture_region(region *r, frame *real, cap_cfg *cfg)
{
    op_ctx *cx = CX;
    capture c = { .r = r,
                  .real = real,
                  .cfg = cfg,
                  .stop_at = -1,
                  .broke_at = -1,
                  .force = cfg_int("debug_break_at", -1),
                  .handled = PyErr_GetHandledException(),
                  .outer = t_now,
                  .saved = *cx,
                  .drawn = gen_default()->s };
    py_overriding_get(&c.overriding);
    capture_name(&c);
    capture_begin(&c);
    ev_span whole = ev_span_begin(EVS_frame);
    entry *done = capture_attempts(&c) ? capture_finish(&c) : NULL;
    capture_end(&c, done);
    ev_span_end(&whole);
    ev_metrics_end(!done && !PyErr_Occurred());
    here.tracing--;
    free(c.w.stack);
    arena_free(&c.w.mem);
    free(c.w.last);
    Py_XDECREF(c.handled);
    *cx = c.saved;
    py_overriding_free(&c.overriding);
    ev_cid_set(NULL);
    return done;
}

void region_reset_ids(void)
{
    next_frame_id = 0;
    next_fn = 1;
    break_log_reset();
}

/* A call that ran eagerly: the sizes it was given count for automatic dynamic shapes. */
