/* trace_call.c - calls while tracing: inlining, generators, construction, super. */
#include "capture/attempt.h"
#include <opcode.h>

/* Ctrl-C and the like: not the program's own exception, which its handlers would see. */
static bool from_outside(const frame *f)
{
    return f->cc->ins[f->at].op != RAISE_VARARGS &&
           (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) || PyErr_ExceptionMatches(PyExc_MemoryError));
}

bool t_stray(trace *t, const frame *f)
{
    if (t_fake_failed(t, "an operation that needs a tensor's value"))
        return true;
    if (!from_outside(f))
        return false;
    t->internal = true;
    return true;
}

/* ---- running an inlined frame ---- */
int t_run(trace *t, frame *f, PyObject **res)
{
    if (TP_UNLIKELY(t->log_call) && f->back && f->ip == 0)
        log_inlined(t, f);
    for (;;) {
        if (TP_UNLIKELY(t->log_src || t->log_bc)) {
            log_line(t, f);
            log_instr(t, f);
            if (t->internal) /* the debugger was quit there */
                return ST_error;
        }
        int rc = interp_step(f, res);
        if (TP_UNLIKELY(t->log_call))
            log_calls(t, f);
        if (TP_LIKELY(rc == ST_next && !t->broke))
            continue;
        if (t->broke || t->internal) {
            if (rc == ST_return || rc == ST_yield)
                Py_CLEAR(*res);
            return ST_error;
        }
        if (rc != ST_error)
            return rc;
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_SystemError, "tracing stopped at %s:%d without saying why", f->cc->file,
                         frame_line(f));
            t->internal = true;
            return ST_error;
        }
        if (t_stray(t, f))
            return ST_error;
        frame_raised(f);
        if (!interp_unwind(f))
            return ST_error;
    }
}

/* ---- generators ---- */
typedef struct PyTraceGen {
    PyObject_HEAD frame f;
    PyObject **storage;
    PyObject *func;
    bool started, done, running;
    int born; /* outer step that made it */
} PyTraceGen;

/* Suspended inside try or with: something is still to be done when it is dropped. */
static bool gen_open(const PyTraceGen *g)
{
    int to, depth;
    bool lasti;
    if (!g->started || g->done || !code_handler(g->f.cc, g->f.at, &to, &depth, &lasti))
        return false;
#if TP_PY312
    if (g->f.cc->ins[to].op == CALL_INTRINSIC_1) /* only turns StopIteration into RuntimeError */
        return false;
#endif
    return true;
}
bool t_gens_idle(trace *t, int *born)
{
    for (size_t i = 0; i < t->gens.n; i++) {
        const PyTraceGen *g = (PyTraceGen *)t->gens.at[i];
        if (gen_open(g)) {
            *born = g->born;
            return false;
        }
    }
    return true;
}

static PyObject *gen_close(PyObject *o, PyObject *x);
/* It is dropped inside try or with: closed, as Python does it, where it was dropped. */
static void gen_dropped(trace *t, PyTraceGen *g)
{
    PyObject *et, *ev, *etb, *r;
    PyErr_Fetch(&et, &ev, &etb);
    Py_SET_REFCNT(g, 1); /* alive while its code runs; nobody else learns of it */
    r = gen_close((PyObject *)g, NULL);
    Py_SET_REFCNT(g, 0);
    if (!r && !t->broke && !t->internal) { /* Python would only print it */
        py_forget();
        t->live_at = g->born;
        t_break(t, BRK_function, "a generator is dropped, and what it does then raises");
    }
    Py_XDECREF(r);
    if (!t->internal)
        PyErr_Restore(et, ev, etb);
    else {
        Py_XDECREF(et);
        Py_XDECREF(ev);
        Py_XDECREF(etb);
    }
}

static void gen_dealloc(PyObject *o)
{
    PyTraceGen *g = (PyTraceGen *)o;
    trace *t = t_now;
    if (t && g->storage && g->f.t == t && gen_open(g) && !g->running && !t->broke && !t->internal)
        gen_dropped(t, g);
    if (t && g->storage && g->f.t == t) {
        for (size_t i = 0; i < t->gens.n; i++)
            if (t->gens.at[i] == o) {
                t->gens.at[i] = t->gens.at[--t->gens.n];
                break;
            }
    }
    if (g->storage) {
        frame_clear(&g->f);
        free(g->storage);
    }
    Py_XDECREF(g->func);
    PyObject_Free(o);
}

int t_gen_born(PyObject *o) { return ((PyTraceGen *)o)->born; }

/* The sub-iterator of `yield from` at which the generator is suspended, borrowed, or NULL. */
static PyObject *delegate(const PyTraceGen *g)
{
    const instr *in = &g->f.cc->ins[g->f.ip];
    return g->started && !g->done && in->op == RESUME && (in->arg & 3) >= 2 ? g->f.stack[g->f.sp - 1] : NULL;
}

/* Runs a generator, or when raise is set lets the exception that is set loose in it. */
static PyObject *gen_run(trace *t, PyTraceGen *g, bool raise, bool *done)
{
    PyObject *res = NULL, *was = PyErr_GetHandledException();
    g->started = g->running = true;
    g->f.back = t->top;
    g->f.depth = t->top->depth + 1;
    frame *caller = t->top;
    t->top = &g->f;
    if (g->f.handled)
        PyErr_SetHandledException(g->f.handled);
    int rc = ST_next;
    if (raise) {
        frame_raised(&g->f);
        rc = interp_unwind(&g->f) ? ST_next : ST_error;
    }
    if (rc == ST_next)
        rc = t_run(t, &g->f, &res);
    if (!t->broke)
        t->top = caller;
    PyErr_SetHandledException(was);
    Py_XDECREF(was);
    g->running = false;
    if (rc == ST_yield)
        return res;
    g->done = true;
    if (rc == ST_return) {
        *done = true;
        Py_XSETREF(caller->yielded, res);
    } else if (!t->broke && !t->internal && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration))
        _PyErr_FormatFromCause(PyExc_RuntimeError, "generator raised StopIteration");
    return NULL;
}

PyObject *t_gen_next(trace *t, PyObject *o, PyObject *send, bool *done)
{
    PyTraceGen *g = (PyTraceGen *)o;
    *done = false;
    if (g->done) {
        *done = true;
        Py_CLEAR(t->top->yielded);
        return NULL;
    }
    if (g->running) {
        PyErr_SetString(PyExc_ValueError, "generator already executing");
        return NULL;
    }
    if (!g->started && (IS_LAZY(send) || send != Py_None)) {
        PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started generator");
        return NULL;
    }
    if (g->started)
        g->f.stack[g->f.sp++] = Py_NewRef(send);
    return gen_run(t, g, false, done);
}

static PyObject *stopped(trace *t) /* the generator returned: StopIteration with its value */
{
    PyObject *v = t->top->yielded;
    t->top->yielded = NULL;
    if (v && v != Py_None) {
        PyObject *e = PyObject_CallOneArg(PyExc_StopIteration, v);
        if (e)
            PyErr_SetObject(PyExc_StopIteration, e);
        Py_XDECREF(e);
    } else
        PyErr_SetNone(PyExc_StopIteration);
    Py_XDECREF(v);
    return NULL;
}

static PyObject *gen_throw_in(trace *t, PyTraceGen *g, PyObject *exc, bool *done)
{
    PyObject *sub = delegate(g), *v;
    *done = false;
    if (g->running)
        return PyErr_Format(PyExc_ValueError, "generator already executing");
    if (sub && Py_TYPE(sub) == &PyTraceGen_Type) {
        frame *caller = t->top;
        g->f.back = caller;
        t->top = &g->f;
        v = gen_throw_in(t, (PyTraceGen *)sub, exc, done);
        if (!t->broke)
            t->top = caller;
        if (v || t->broke || t->internal)
            return v;
        if (*done) { /* goes on behind the `yield from`, with the value */
            const instr *in = g->f.cc->ins;
            int send = in[g->f.ip].next, at = in[send].next - in[send].arg;
            v = g->f.yielded ? g->f.yielded : Py_NewRef(Py_None);
            g->f.yielded = NULL;
            *done = false;
#if TP_PY312
            g->f.stack[g->f.sp++] = v;
#else
            Py_SETREF(g->f.stack[g->f.sp - 1], v);
#endif
            g->f.ip = in[at].next + in[at].arg;
            return gen_run(t, g, false, done);
        }
        return gen_run(t, g, true, done);
    }
    PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
    if (!g->started || g->done) {
        g->done = true;
        return NULL;
    }
    return gen_run(t, g, true, done);
}

/* The methods of generators, called by way of t_method. */
static PyObject *gen_send(PyObject *o, PyObject *v)
{
    bool done;
    PyObject *r = t_now ? t_gen_next(t_now, o, v, &done) : NULL;
    return r || !t_now ? r : done ? stopped(t_now) : t_broken(t_now);
}
static PyObject *gen_iternext(PyObject *o)
{
    bool done;
    PyObject *r = t_now ? t_gen_next(t_now, o, Py_None, &done) : NULL;
    return r || !t_now || done ? r : t_broken(t_now);
}
static PyObject *gen_throw(PyObject *o, PyObject *const *args, Py_ssize_t n)
{
    bool done;
    trace *t = t_now;
    PyObject *exc = n ? args[0] : NULL, *made = NULL, *r;
    if (exc && PyExceptionClass_Check(exc) &&
        n <= 3) /* the third is a traceback, which only plain execution makes */
        exc = made = n >= 2 && args[1] != Py_None
                         ? (PyExceptionInstance_Check(args[1]) ? Py_NewRef(args[1])
                                                               : t_call(t, exc, args + 1, 1, NULL))
                         : t_call(t, exc, NULL, 0, NULL);
    if (!exc || !PyExceptionInstance_Check(exc) || n > 1 + 2 * (made != NULL)) {
        Py_XDECREF(made);
        t_break(t, BRK_function, "generator.throw() with these arguments");
        return t_broken(t);
    }
    if (t_source_of(t, exc)) {
        t_break(t, BRK_exception, "raise of an exception made before the graph began");
        return t_broken(t);
    }
    r = gen_throw_in(t, (PyTraceGen *)o, exc, &done);
    Py_XDECREF(made);
    return r ? r : done ? stopped(t) : t_broken(t);
}
static PyObject *gen_close(PyObject *o, PyObject *x)
{
    PyTraceGen *g = (PyTraceGen *)o;
    trace *t = t_now;
    bool done = false;
    PyObject *sub = delegate(g), *e, *r;
    if (!g->started || g->done) {
        g->done = true;
        Py_RETURN_NONE;
    }
    if (sub && Py_TYPE(sub) == &PyTraceGen_Type) {
        if (!(r = gen_close(sub, NULL)))
            return NULL;
        Py_DECREF(r);
        ((PyTraceGen *)sub)->done = true;
    }
    if (!(e = PyObject_CallNoArgs(PyExc_GeneratorExit)))
        return NULL;
    PyErr_SetObject(PyExc_GeneratorExit, e);
    Py_DECREF(e);
    r = gen_run(t, g, true, &done);
    if (r) {
        Py_DECREF(r);
        return PyErr_Format(PyExc_RuntimeError, "generator ignored GeneratorExit");
    }
    if (!done && (t->broke || t->internal || !PyErr_Occurred()))
        return t_broken(t);
    if (!done && !PyErr_ExceptionMatches(PyExc_GeneratorExit) && !PyErr_ExceptionMatches(PyExc_StopIteration))
        return NULL;
    py_forget();
    Py_CLEAR(t->top->yielded);
    Py_RETURN_NONE;
}
static PyMethodDef gen_methods[] = { { "send", gen_send, METH_O, NULL },
                                     { "throw", (PyCFunction)(void (*)(void))gen_throw, METH_FASTCALL, NULL },
                                     { "close", gen_close, METH_NOARGS, NULL },
                                     { NULL } };
PyTypeObject PyTraceGen_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "generator",
                                 .tp_basicsize = sizeof(PyTraceGen),
                                 .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 .tp_iter = PyObject_SelfIter,
                                 .tp_iternext = gen_iternext,
                                 .tp_methods = gen_methods,
                                 .tp_dealloc = gen_dealloc };

/* ---- inlining ---- */
static const char *cannot(trace *t, PyObject *func, cap_code *cc, break_id *id)
{
    PyCodeObject *co = cc->co;
    if (co->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE)) {
        *id = BRK_function;
        return "coroutine";
    }
    const char *why = co->co_flags & CO_GENERATOR ? cc->not_stepped : cc->whole_native;
    if (why) {
        *id = BRK_function;
        return why;
    }
    if (cap_is_skipped_file(cc->file)) {
        bool copy = strstr(cc->file, "/copy.py") && !strcmp(cc->name, "deepcopy");
        bool log = strstr(cc->file, "/logging/") || strstr(cc->file, "/warnings.py");
        *id = copy ? BRK_deepcopy : log ? BRK_print : BRK_skip_file;
        return copy ? "copy.deepcopy" : log ? "logging" : "skipped file";
    }
    return NULL;
}

enum { DEEPEST = 500 }; /* inlined calls: some 2 KiB of stack each */
PyObject *t_inline(trace *t, PyObject *func, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    cap_code *cc = cap_code_of((PyCodeObject *)PyFunction_GET_CODE(func));
    if (!cc)
        return NULL;
    break_id id;
    const char *why = cannot(t, func, cc, &id);
    if (why && id == BRK_deepcopy)
        return t_break(t, id, "copy.deepcopy %s", nargs ? value_name(t, args[0]) : "");
    if (why && id == BRK_skip_file)
        return t_break(t, id, "call of %s in skipped file %s", cc->name, cc->file);
    if (why && id == BRK_print)
        return t_break(t, id, "call of %s (%s)", cc->name, cc->file);
    if (why)
        return t_break(t, id, "%s: %s", cc->name, why);
    if (t->top->depth > DEEPEST)
        return t_break(t, BRK_depth, "calls nested deeper than %d at %s", DEEPEST, cc->name);
    if (recursion_enter(" while tracing")) {
        py_forget();
        return t_break(t, BRK_depth, "Python's recursion limit is near at %s", cc->name);
    }

    bool gen = cc->co->co_flags & CO_GENERATOR;
    PyObject **st = mem_zalloc(sizeof *st * (size_t)(cc->nfast + cc->nstack)), *res = NULL;
    PyTraceGen *g = NULL;
    frame local, *f = &local;
    if (gen) {
        g = PyObject_New(PyTraceGen, &PyTraceGen_Type);
        if (!g)
            goto done;
        g->started = g->done = g->running = false;
        g->born = t->steps;
        g->storage = st;
        g->func = Py_NewRef(func);
        f = &g->f;
        vec_push(&t->gens, (PyObject *)g);
    }
    frame_init(f, cc, func, st);
    capture_trace_source(cc);
    f->t = t;
    if (!t_obj(t, func) &&
        !cc->library) /* neither made here nor come upon: it is from outside all the same */
        t_obj_add(t, func, func, src_get(t->e, SRC_const, NULL, func, NULL, 0));
    f->src = t_source_of(t, func);
    f->back = t->top;
    f->depth = t->top->depth + 1;
    PyObject *cl = PyFunction_GET_CLOSURE(func);
    for (Py_ssize_t i = 0; cl && i < PyTuple_GET_SIZE(cl); i++) {
        PyObject *cell = PyTuple_GET_ITEM(cl, i);
        if (f->src || !t_obj(t, cell)) {
            /* a function from outside has cells from outside; one made here may share ours */
            source *fs = f->src;
            if (fs && !t_obj(t, cell))
                t_obj_add(t, cell, cell, src_get(t->e, SRC_closure, fs, NULL, NULL, (int)i));
        }
    }
    int bound = frame_bind(f, func, args, nargs, kwnames);
    if (bound == 0) {
        strbuf b = { 0 };
        for (Py_ssize_t i = 0; i < nargs; i++)
            strbuf_addf(&b, "%s%s", i ? ", " : "", value_name(t, args[i]));
        t_break(t, BRK_arguments, "arg mismatch inlining: %s (%s:%d), args [%s], %d keyword arguments",
                cc->name, cc->file, cc->first_line, strbuf_str(&b),
                kwnames ? (int)PyTuple_GET_SIZE(kwnames) : 0);
        strbuf_free(&b);
    }
    if (bound == 1 && gen)
        res = Py_NewRef((PyObject *)g);
    else if (bound == 1) {
        frame *caller = t->top;
        t->top = f;
        t->ninline++;
        int rc = t_run(t, f, &res);
        if (!t->broke)
            t->top = caller;
        if (rc != ST_return)
            Py_CLEAR(res);
    }
done:
    recursion_leave();
    if (gen) {
        Py_XDECREF((PyObject *)g); /* frees the frame unless it lives on */
        return res;
    }
    if (t->broke)
        t->top = f->back; /* the place of the break has been recorded */
    frame_clear(f);
    free(st);
    return res;
}

/* ---- super ---- */
typedef struct PyTraceSuper {
    PyObject_HEAD PyTypeObject *type;
    PyObject *obj;
} PyTraceSuper;
static void super_dealloc(PyObject *o)
{
    Py_XDECREF((PyObject *)((PyTraceSuper *)o)->type);
    Py_XDECREF(((PyTraceSuper *)o)->obj);
    PyObject_Free(o);
}
PyTypeObject PyTraceSuper_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "super",
                                   .tp_basicsize = sizeof(PyTraceSuper),
                                   .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                   .tp_dealloc = super_dealloc };

PyObject *t_super_new(trace *t, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *type = NULL, *obj = NULL;
    if (nargs == 2) {
        type = t_real(t, args[0]);
        obj = t_real(t, args[1]);
    } else if (nargs == 0) {
        frame *f = t->top;
        for (int i = 0; i < f->cc->nfast; i++)
            if ((f->cc->kinds[i] & 0x80) &&
                PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(f->cc->localsplus, i), "__class__") == 0) {
                PyObject *c = t_real(t, f->fast[i]), *v = c ? t_cell_get(t, c) : NULL;
                type = v ? t_real(t, v) : NULL;
                Py_XDECREF(v); /* the cell keeps it */
            }
        obj = f->cc->co->co_argcount ? f->fast[0] : NULL;
        if (obj && !IS_LAZY(obj) && PyCell_Check(obj) && (f->cc->kinds[0] & 0x40))
            obj = PyCell_GET(obj);
        obj = obj ? t_real(t, obj) : NULL;
    }
    if (t->broke || PyErr_Occurred())
        return NULL;
    if (!type || !obj || !PyType_Check(type))
        return t_break(t, BRK_call_builtin, "super() with %zd arguments", nargs);
    PyTraceSuper *s = PyObject_New(PyTraceSuper, &PyTraceSuper_Type);
    if (!s)
        return NULL;
    s->type = (PyTypeObject *)Py_NewRef(type);
    s->obj = Py_NewRef(obj);
    return (PyObject *)s;
}

PyObject *t_super_getattr(trace *t, PyObject *o, PyObject *name)
{
    PyTraceSuper *s = (PyTraceSuper *)o;
    bool cls = PyType_Check(s->obj) && PyType_IsSubtype((PyTypeObject *)s->obj, s->type);
    PyTypeObject *start = cls ? (PyTypeObject *)s->obj : Py_TYPE(s->obj);
    PyObject *mro = start->tp_mro;
    Py_ssize_t i = 0, n = PyTuple_GET_SIZE(mro);
    while (i < n && PyTuple_GET_ITEM(mro, i) != (PyObject *)s->type)
        i++;
    for (i++; i < n; i++) {
        PyTypeObject *b = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *d = PyDict_GetItemWithError(type_dict(b), name);
        t_found(t, (PyObject *)b, name, _PyType_Lookup(b, name));
        if (!d)
            continue;
        if (PyFunction_Check(d)) {
            source *bs = t_source_of(t, (PyObject *)b);
            if (!bs)
                bs = src_get(t->e, SRC_const, NULL, (PyObject *)b, NULL, 0);
            PyObject *fn = t_wrap(t, d, src_get(t->e, SRC_typeattr, bs, NULL, name, 0));
            PyObject *r = fn ? (cls ? Py_NewRef(fn) : PyMethod_New(fn, s->obj)) : NULL;
            Py_XDECREF(fn);
            return r;
        }
        if (Py_TYPE(d) == &PyClassMethod_Type) {
            PyObject *fn = PyObject_GetAttrString(d, "__func__"),
                     *r = fn ? PyMethod_New(fn, (PyObject *)start) : NULL;
            Py_XDECREF(fn);
            return r;
        }
        return t_bind_class_attr(t, cls ? NULL : s->obj, b, name, d);
    }
    PyErr_Format(PyExc_AttributeError, "'super' object has no attribute '%U'", name);
    return NULL;
}

/* ---- construction ---- */
static PyObject *lookup(PyTypeObject *tp, const char *name) /* borrowed */ { return t_look_for(tp, name); }

static PyObject *call_with(trace *t, PyObject *f, PyObject *first, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kw)
{
    Py_ssize_t n = nargs + (kw ? PyTuple_GET_SIZE(kw) : 0);
    PyObject *small[12], **v = n < 12 ? small : mem_alloc(sizeof *v * (size_t)(n + 1)), *r;
    v[0] = first;
    for (Py_ssize_t i = 0; i < n; i++)
        v[i + 1] = args[i];
    r = t_call(t, f, v, nargs + 1, kw);
    if (v != small)
        free(v);
    return r;
}

static bool immutable(PyTypeObject *b)
{
    return b == &PyTuple_Type || b == &PyFrozenSet_Type || b == &PyUnicode_Type || b == &PyLong_Type ||
           b == &PyFloat_Type;
}

/* base.__new__(cls, ...) of a class that extends a builtin one: empty, or the value itself when it cannot change. */
static PyObject *new_value(trace *t, PyTypeObject *base, PyTypeObject *cls, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kw)
{
    PyObject *tup, *o = NULL;
    if (!immutable(base))
        return t_new_derived(base, cls);
    if (kw)
        return t_break(t, BRK_construct, "%s(...) with keywords", cls->tp_name);
    if (!(tup = PyTuple_New(nargs)))
        return NULL;
    for (Py_ssize_t i = 0; i < nargs; i++) {
        PyObject *a = base == &PyTuple_Type || base == &PyFrozenSet_Type ? t_list_of(t, args[i])
                                                                         : Py_XNewRef(t_real(t, args[i]));
        if (!a || !t_deep(t, a))
            goto done;
        PyTuple_SET_ITEM(tup, i, a);
        if (base != &PyTuple_Type && (py_is_tensor(a) || !t_safe_type(Py_TYPE(a)))) {
            t_break(t, BRK_construct, "%s of a %s", cls->tp_name, Py_TYPE(a)->tp_name);
            goto done;
        }
    }
    o = base->tp_new(cls, tup, NULL);
done:
    Py_DECREF(tup);
    return o;
}

static int init_deque(PyObject *o, PyObject *items, PyObject *max)
{
    PyObject *r = PyObject_CallMethod((PyObject *)t_deque_type(), "__init__", "OOO", o, items, max);
    Py_XDECREF(r);
    return r ? 0 : -1;
}

/* base.__init__(self, ...) of a builtin container. */
static int init_base(trace *t, PyObject *o, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyTypeObject *base = t_base(Py_TYPE(o)) ? t_base(Py_TYPE(o)) : Py_TYPE(o);
    PyObject *l;
    if (immutable(base))
        return 0;
    if (PyDict_Check(o)) {
        if (base == t_default_type() && nargs) {
            PyObject *fac = t_real(t, args[0]);
            if (!fac || PyObject_SetAttrString(o, "default_factory", fac) < 0)
                return -1;
            args++;
            nargs--;
        }
        l = t_fill_dict(t, o, args, nargs, kw);
        Py_XDECREF(l);
        return l ? 0 : -1;
    }
    bool dq = PyType_IsSubtype(Py_TYPE(o), t_deque_type());
    PyObject *max = dq && nargs == 2 && !kw ? t_real(t, args[1]) : Py_None;
    if (!max || nargs > 1 + dq || kw)
        return max ? (t_break(t, BRK_construct, "%s with these arguments", Py_TYPE(o)->tp_name), -1) : -1;
    l = nargs ? t_list_of(t, args[0]) : PyList_New(0);
    int rc = !l                ? -1
             : PyList_Check(o) ? PyList_SetSlice(o, 0, PyList_GET_SIZE(o), l)
             : PySet_Check(o)  ? (t_key(t, l) ? _PySet_Update(o, l) : -1)
             : dq              ? init_deque(o, l, max)
                               : 1;
    Py_XDECREF(l);
    return rc <= 0 ? rc : (t_break(t, BRK_construct, "%s(...)", Py_TYPE(o)->tp_name), -1);
}

/* meta: the metaclass may have its own idea of a call. */
static PyObject *construct(trace *t, PyTypeObject *cls, PyObject *const *args, Py_ssize_t nargs, PyObject *kw,
                           bool meta)
{
    PyObject *o = NULL, *init = lookup(cls, "__init__"), *mk = lookup(cls, "__new__"),
             *mc = lookup(Py_TYPE(cls), "__call__");
    if (t_is_tensor_type(cls))
        return t_break(t, BRK_construct, "%s(...)", cls->tp_name);
    if (cls == &PyDevice_Type)
        return t_native(t, (PyObject *)cls, args, nargs, kw);
    if (!strcmp(Py_TYPE(cls)->tp_name, "EnumType") || !strcmp(Py_TYPE(cls)->tp_name, "EnumMeta"))
        return t_native(t, (PyObject *)cls, args, nargs, kw);
    if (PyType_IsSubtype(cls, &PyType_Type))
        return t_break(t, BRK_class_body, "class made by %s", cls->tp_name);
    if (meta && Py_TYPE(cls) != &PyType_Type && mc && PyFunction_Check(mc))
        return call_with(t, mc, (PyObject *)cls, args, nargs, kw);
    if (lookup(cls, "__del__"))
        return t_break(t, BRK_construct, "%s(...), which has __del__", cls->tp_name);
    if (PyExceptionClass_Check((PyObject *)cls)) {
        if (!init || !PyFunction_Check(init))
            return t_native(t, (PyObject *)cls, args, nargs, kw);
        PyObject *tup = PyTuple_New(nargs);
        for (Py_ssize_t i = 0; tup && i < nargs; i++) {
            PyObject *r = t_real(t, args[i]);
            if (!r) {
                Py_DECREF(tup);
                return NULL;
            }
            PyTuple_SET_ITEM(tup, i, Py_NewRef(r));
        }
        o = tup ? cls->tp_new(cls, tup, NULL) : NULL;
        Py_XDECREF(tup);
    } else {
        PyObject *fn = mk && Py_TYPE(mk) == &PyStaticMethod_Type ? PyObject_GetAttrString(mk, "__func__")
                                                                 : NULL;
        if (fn && PyFunction_Check(fn)) {
            o = call_with(t, fn, (PyObject *)cls, args, nargs, kw);
            Py_DECREF(fn);
            if (o && !PyType_IsSubtype(Py_TYPE(o), cls))
                return o;
        } else if (t_base(cls) && !lookup(cls, "__del__")) {
            Py_XDECREF(fn);
            if (!(o = new_value(t, t_base(cls), cls, args, nargs, kw)))
                return NULL;
            if (!(init && PyFunction_Check(init)) && init_base(t, o, args, nargs, kw) < 0)
                Py_CLEAR(o);
        } else {
            Py_XDECREF(fn);
            if (!type_is_python(cls) || cls->tp_new != PyBaseObject_Type.tp_new)
                return t_break(t, BRK_construct, "%s(...)", cls->tp_name);
            if ((nargs || kw) && !(init && PyFunction_Check(init)))
                return t_break(t, BRK_arguments, "%s() takes no arguments", cls->tp_name);
            PyObject *none = PyTuple_New(0);
            o = none ? PyBaseObject_Type.tp_new(cls, none, NULL) : NULL;
            Py_XDECREF(none);
        }
    }
    if (o && init && PyFunction_Check(init)) {
        PyObject *r = call_with(t, init, o, args, nargs, kw), *v = r ? t_real(t, r) : NULL;
        if (v && v != Py_None)
            t_break(t, BRK_construct, "__init__ that returns a %s", Py_TYPE(v)->tp_name);
        if (v != Py_None)
            Py_CLEAR(o);
        Py_XDECREF(r);
    }
    return o;
}

PyObject *t_construct(trace *t, PyTypeObject *cls, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    return construct(t, cls, args, nargs, kw, true);
}

/* ---- slots called by name: object.__setattr__(o, n, v), super().__init__() ---- */
static PyObject *slot_call(trace *t, PyObject *f, PyTypeObject *owner, const char *name,
                           PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *self = nargs ? t_real(t, args[0]) : NULL;
    if (nargs && !self)
        return NULL;
    if (!self)
        return t_break(t, BRK_call_builtin, "%s.%s without arguments", owner->tp_name, name);
    bool object = owner == &PyBaseObject_Type;
    if (!strcmp(name, "__init__") && object)
        Py_RETURN_NONE;
    if (object && !strcmp(name, "__setattr__") && nargs == 3) {
        PyObject *n = t_real(t, args[1]);
        return !n || t_generic_setattr(t, self, n, args[2]) < 0 ? NULL : Py_NewRef(Py_None);
    }
    if (object && !strcmp(name, "__delattr__") && nargs == 2) {
        PyObject *n = t_real(t, args[1]);
        return !n || t_generic_setattr(t, self, n, NULL) < 0 ? NULL : Py_NewRef(Py_None);
    }
    if (object && !strcmp(name, "__getattribute__") && nargs == 2) {
        PyObject *n = t_real(t, args[1]);
        return n ? t_generic_getattr(t, self, n) : NULL;
    }
    if (object && (!strcmp(name, "__eq__") || !strcmp(name, "__ne__")) && nargs == 2) {
        int same = t_is(t, self, args[1]);
        return same < 0 ? NULL : same == (name[2] == 'e') ? Py_NewRef(Py_True) : Py_NewRef(Py_NotImplemented);
    }
    if (PyExceptionInstance_Check(self) && !t_source_of(t, self))
        return t_native(t, f, args, nargs, kw);
    bool derived = t_base(Py_TYPE(self)) != NULL;
    if (t_safe_type(Py_TYPE(self)) || PyTuple_Check(self) || derived) {
        if (py_is_tensor(self) && !strcmp(name, "__getitem__") && nargs == 2 && !t_type_func(self, name))
            return t_subscr(t, self, args[1]);
        if (py_is_tensor(self) && !strcmp(name, "__setitem__") && nargs == 3)
            return t_setitem_base(t, self, args[1], args[2]) < 0 ? NULL : Py_NewRef(Py_None);
        if (py_is_tensor(self))
            return t_native(t, f, args, nargs, kw);
        if (!strcmp(name, "__init__"))
            return init_base(t, self, args + 1, nargs - 1, kw) < 0 ? NULL : Py_NewRef(Py_None);
        if (!strcmp(name, "__getitem__") && nargs == 2 && derived && PyDict_Check(self)) {
            PyObject *k = t_real(t, args[1]), *v = k && t_key(t, k) ? PyDict_GetItemWithError(self, k) : NULL;
            if (!v && k && !t->broke && !PyErr_Occurred() && lookup(Py_TYPE(self), "__missing__"))
                return call_with(t, lookup(Py_TYPE(self), "__missing__"), self, args + 1, 1, NULL);
            if (!v && k && !t->broke && !PyErr_Occurred())
                PyErr_SetObject(PyExc_KeyError, k);
            return Py_XNewRef(v);
        }
        if (!strcmp(name, "__getitem__") && nargs == 2 && !derived)
            return t_subscr(t, self, args[1]);
        if ((!strcmp(name, "__setitem__") && nargs == 3) || (!strcmp(name, "__delitem__") && nargs == 2))
            return t_setitem_base(t, self, args[1], nargs == 3 ? args[2] : NULL) < 0 ? NULL
                                                                                     : Py_NewRef(Py_None);
        if (!strcmp(name, "__iter__") && derived)
            return t_base(Py_TYPE(self))->tp_iter(self);
        if (!strcmp(name, "__contains__") && nargs == 2 && !derived) {
            int c = t_contains(t, self, args[1]);
            return c < 0 ? NULL : PyBool_FromLong(c);
        }
        if (!strcmp(name, "__iter__"))
            return t_iter(t, self);
        return t_native(t, f, args, nargs, kw);
    }
    if (!strcmp(name, "__next__")) {
        bool done;
        PyObject *v = t_next(t, self, &done);
        if (!v && done)
            PyErr_SetNone(PyExc_StopIteration);
        return v;
    }
    if (!strcmp(name, "__get__") && PyFunction_Check(self) && nargs >= 2) {
        PyObject *o = t_real(t, args[1]);
        return !o ? NULL : o == Py_None ? Py_NewRef(self) : PyMethod_New(self, o);
    }
    if (owner == &PyType_Type && !strcmp(name, "__call__") && PyType_Check(self))
        return construct(t, (PyTypeObject *)self, args + 1, nargs - 1, kw, false);
    if (!strcmp(name, "__call__"))
        return t_call(t, self, args + 1, nargs - 1, kw);
    return t_break(t, BRK_call_builtin, "%s.%s of a %s", owner->tp_name, name, Py_TYPE(self)->tp_name);
}

static PyObject *role_call(trace *t, PyObject *f, PyObject *role, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kw, bool *handled)
{
    *handled = true;
    if (PyFunction_Check(role)) /* substitute_in_graph */
        return t_call(t, role, args, nargs, kw);
    const char *r = PyUnicode_AsUTF8(role);
    if (!strcmp(r, "skip_frame")) {
        t_break(t, BRK_manual, "call to %s._dynamo.skip_frame()", cap_brand());
        t->hopeless = true;
        return NULL;
    }
    if (!strcmp(r, "errbreaks") && nargs == 1)
        return t_error_breaks(t, f, args[0]);
    if (!strcmp(r, "graph_break") && (nargs || kw)) {
        PyObject *msg = t_real(t, args[0]);
        if (msg && PyUnicode_Check(msg) && PyUnicode_GetLength(msg))
            return t_break(t, BRK_manual, "Call to `%s._dynamo.graph_break()`: %s", cap_brand(),
                           PyUnicode_AsUTF8(msg));
    }
    if (!strcmp(r, "graph_break"))
        return t_break(t, BRK_manual, "'skip function graph_break in file %s/_dynamo/decorators.py'",
                       cap_brand());
    if (!strcmp(r, "true"))
        Py_RETURN_TRUE;
    if (!strcmp(r, "false"))
        Py_RETURN_FALSE;
    if (!strcmp(r, "none"))
        Py_RETURN_NONE;
    if (!strcmp(r, "identity"))
        return nargs ? Py_NewRef(args[0]) : Py_NewRef(Py_None);
    if (!strcmp(r, "disable")) {
        PyObject *fn = PyMethod_Check(f) ? PyMethod_GET_FUNCTION(f) : f;
        PyObject *n = PyObject_GetAttrString(fn, "__qualname__"),
                 *why = PyObject_GetAttrString(fn, "_torchdynamo_disable_msg"),
                 *rec = PyObject_GetAttrString(fn, "_torchdynamo_disable_recursive");
        py_forget();
        bool said = why && PyUnicode_Check(why);
        t_break(t, BRK_disabled, "Skip %s `%s.compiler.disable()`d function %s%s%s",
                rec == Py_False ? "inlining" : "calling", cap_brand(), n ? PyUnicode_AsUTF8(n) : "?",
                said ? ", reason: " : "", said ? PyUnicode_AsUTF8(why) : "");
        Py_XDECREF(n);
        Py_XDECREF(why);
        Py_XDECREF(rec);
        return NULL;
    }
    if (!strcmp(r, "custom") && PyMethod_Check(f))
        return t_custom(t, PyMethod_GET_SELF(f), args, nargs, kw);
    if (!strcmp(r, "comptime"))
        return t_comptime(t, f, args, nargs, kw);
    if (!strcmp(r, "allow") && Py_TYPE(f) != &PyOpFunc_Type) /* operators are allowed anyway */
        return t_allowed(t, f, args, nargs, kw);
    if (!strncmp(r, "polyfill:", 9)) {
        PyObject *fn = polyfill(r + 9);
        return fn ? t_call(t, fn, args, nargs, kw) : NULL;
    }
    if (!strcmp(r, "numpy_break"))
        return t_break(t, BRK_numpy, "a use of NumPy that is not traced");
    if (!strcmp(r, "lazy"))
        return t_lazy_module(t, f, args, nargs, handled);
    if (!strncmp(r, "hop:", 4))
        return t_hop(t, r + 4, args, nargs, kw);
    if (!strcmp(r, "break"))
        return t_break(t, BRK_call_builtin, "call of a function marked disallow_in_graph");
    if (!strcmp(r, "native") || !strcmp(r, "const"))
        return t_native(t, f, args, nargs, kw);
    *handled = false;
    return NULL;
}

/* Facts of all rows behind an operator's Python name. */
static uint32_t op_flags(PyObject *f)
{
    static map known;
    uintptr_t v = (uintptr_t)map_geti(&known, (uint64_t)(uintptr_t)f);
    if (v)
        return (uint32_t)(v - 1);
    PyObject *rows = PyObject_GetAttrString(f, "_rows");
    uint32_t flags = 0,
             all = OPF_DYN | OPF_SYNC; /* these two only where every row has them: else the call will tell */
    for (Py_ssize_t i = 0; rows && PyList_Check(rows) && i < PyList_GET_SIZE(rows); i++) {
        const char *n = PyUnicode_AsUTF8(PyList_GET_ITEM(rows, i));
        op_id op;
        op_variant var;
        if (n && op_find(n, strlen(n), &op, &var)) {
            flags |= op_row_of(op)->flags;
            all &= op_row_of(op)->flags;
        }
    }
    flags = (flags & ~(uint32_t)(OPF_DYN | OPF_SYNC)) | all;
    py_forget();
    Py_XDECREF(rows);
    map_puti(&known, (uint64_t)(uintptr_t)Py_NewRef(f),
             (void *)((uintptr_t)flags + 1)); /* operators live for ever */
    return flags;
}

/* ---- functions that remember their results ---- */
/* A value whether or not it was looked at. */
static uint64_t value_number(trace *t, PyObject *v)
{
    tobj *k = IS_LAZY(v) ? NULL : t_obj(t, v);
    return (uint64_t)(uintptr_t)(IS_LAZY(v) ? ((PyLazy *)v)->real : k && k->real ? k->real : v);
}
static uint64_t contents(trace *t, PyObject *o)
{
    PyObject *key, *v;
    Py_ssize_t p = 0;
    uint64_t h = 0;
    if (o && PyDict_Check(o))
        while (PyDict_Next(o, &p, &key, &v))
            h = hash_mix(h, value_number(t, key) + 3 * value_number(t, v));
    else if (o && (PyList_Check(o) || PyTuple_Check(o)))
        for (; p < PySequence_Fast_GET_SIZE(o); p++)
            h = hash_mix(h, value_number(t, PySequence_Fast_GET_ITEM(o, p)));
    else if (o)
        h = (uint64_t)PyObject_Length(o);
    return h;
}

/* What the trace wrote so far to the n objects first seen, as a number that changes when it writes. */
static uint64_t written(trace *t, size_t n)
{
    uint64_t h = (uint64_t)t->g->nnode;
    for (size_t i = 0; i < n; i++) {
        const tobj *k = &t->objs.at[i];
        if (k->src && (k->over || k->container || k->tail))
            h = hash_mix(hash_mix(hash_mix(h, contents(t, k->over)), contents(t, k->tail)),
                         k->container ? contents(t, k->abs) : 0);
    }
    return h;
}
/* Was one of those seen since then written? */
static bool wrote_later(trace *t, size_t n)
{
    for (; n < t->objs.n; n++) {
        const tobj *k = &t->objs.at[n];
        if (k->src && (k->tail || (k->over && PyDict_GET_SIZE(k->over)) ||
                       (k->container && k->snapshot && contents(t, k->snapshot) != contents(t, k->abs))))
            return true;
    }
    return false;
}

static bool holds_symbol(PyObject *o)
{
    if (!o || !PyTuple_Check(o))
        return o && py_is_symint(o);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
        if (holds_symbol(PyTuple_GET_ITEM(o, i)))
            return true;
    return false;
}

/* An argument as the cache sees it, borrowed; NULL: it is of a kind that no guard can hold fast. */
static PyObject *cache_arg(trace *t, PyObject *a)
{
    if (PyTuple_CheckExact(a) || Py_TYPE(a) == PySize_Type) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); i++)
            if (cache_arg(t, PyTuple_GET_ITEM(a, i)) != PyTuple_GET_ITEM(a, i))
                return NULL;
        return a;
    }
    tobj *k = t_obj(t, a);
    if (t_plain_const(a) && !(PyFunction_Check(a) && !(k && k->src)))
        return a;
    bool fixed = k && k->src && k->real && !k->over && !k->dict && !k->container;
    return fixed && !py_is_tensor(a) && t_compared_by_id(Py_TYPE(a)) ? k->real : NULL;
}

/* The parts of a functools.lru_cache object, found by walking what it refers to. */
typedef struct cache_parts {
    PyObject *wrapped, *last, *cache, *mark; /* borrowed */
    bool next;
} cache_parts;
static int cache_visit(PyObject *o, void *arg)
{
    cache_parts *p = arg;
    if (p->next && !p->mark)
        p->mark = o;
    if (o == p->wrapped && p->last && !p->cache) {
        p->cache = p->last;
        p->next = true;
    }
    p->last = PyDict_CheckExact(o) ? o : NULL;
    return 0;
}

/* The key that the cache keeps a call under, new; NULL without exception: it keeps another kind of keys. */
static PyObject *cache_keyed(PyObject *f, const cache_parts *p, PyObject *const *v, Py_ssize_t nargs,
                             PyObject *kw)
{
    PyObject *how = PyObject_CallMethod(f, "cache_parameters", NULL),
             *typed = how && PyDict_Check(how) ? PyDict_GetItemString(how, "typed") : NULL;
    bool plain = typed == Py_False;
    Py_XDECREF(how);
    if (!plain)
        return NULL;
    Py_ssize_t nk = kw ? PyTuple_GET_SIZE(kw) : 0, n = nargs + (nk ? 1 + 2 * nk : 0);
    if (nargs == 1 && !nk && (PyUnicode_CheckExact(v[0]) || PyLong_CheckExact(v[0])))
        return Py_NewRef(v[0]);
    PyObject *key = PyTuple_New(n);
    for (Py_ssize_t i = 0; key && i < nargs; i++)
        PyTuple_SET_ITEM(key, i, Py_NewRef(v[i]));
    if (key && nk)
        PyTuple_SET_ITEM(key, nargs, Py_NewRef(p->mark));
    for (Py_ssize_t i = 0; key && i < nk; i++) {
        PyTuple_SET_ITEM(key, nargs + 1 + 2 * i, Py_NewRef(PyTuple_GET_ITEM(kw, i)));
        PyTuple_SET_ITEM(key, nargs + 2 + 2 * i, Py_NewRef(v[nargs + i]));
    }
    return key;
}

PyObject *cache_entry(PyObject *cache, PyObject *key, bool linked)
{
    struct link { /* of functools: what a bounded cache holds for a key */
        PyObject_HEAD void *before, *behind;
        Py_hash_t hash;
        PyObject *key, *result;
    };
    PyObject *v = PyDict_GetItemWithError(cache, key);
    if (!v)
        py_forget();
    if (!v || !linked)
        return v;
    return Py_TYPE(v)->tp_basicsize == sizeof(struct link) ? ((struct link *)v)->result : NULL;
}

static bool count_later(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw,
                        bool first)
{
    PyObject *in = PyTuple_New(nargs), *named = kw ? PyDict_New() : NULL, *later = Py_NewRef(f);
    bool ok = in && (named || !kw);
    for (Py_ssize_t i = 0; ok && i < nargs; i++)
        PyTuple_SET_ITEM(in, i, Py_NewRef(t_real(t, args[i])));
    for (Py_ssize_t i = 0; ok && kw && i < PyTuple_GET_SIZE(kw); i++)
        ok = PyDict_SetItem(named, PyTuple_GET_ITEM(kw, i), t_real(t, args[nargs + i])) == 0;
    if (ok && !first) /* it was called while tracing */
        Py_SETREF(later, PyObject_CallOneArg(polyfill("NextTime"), f));
    ok = ok && later && t_call_later(t, later, in, named);
    Py_XDECREF(in);
    Py_XDECREF(named);
    Py_XDECREF(later);
    return ok;
}

/* What the cache holds for arguments that are known: a guard looks there again. With run, it is called for that. NULL
 * without exception: it holds nothing, or the arguments are of another kind. */
static PyObject *ask_cache(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw,
                           bool run)
{
    Py_ssize_t n = nargs + (kw ? PyTuple_GET_SIZE(kw) : 0);
    PyObject *v[16], *key = NULL, *r = NULL;
    cache_parts p = { .wrapped = PyObject_GetAttrString(f, "__wrapped__") };
    if (!p.wrapped)
        return py_forget(), NULL;
    Py_TYPE(f)->tp_traverse(f, cache_visit, &p);
    Py_DECREF(p.wrapped);
    if (n > (Py_ssize_t)COUNT(v) || !p.cache || !p.mark)
        return NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *a = t_real(t, args[i]);
        if (!a || !t_deep(t, a) || !(v[i] = cache_arg(t, a)))
            return NULL;
    }
    if (!(key = cache_keyed(f, &p, v, nargs, kw)) || PyObject_Hash(key) == -1)
        goto done;
    PyObject *how = PyObject_CallMethod(f, "cache_parameters", NULL),
             *size = how ? PyDict_GetItemString(how, "maxsize") : NULL;
    bool linked = size != Py_None;
    Py_XDECREF(how);
    if (!how)
        goto done;
    if (run) {
        void *rec = CX->rec; /* outside of the graph */
        CX->rec = NULL;
        PyObject *done = PyObject_Vectorcall(f, v, (size_t)nargs, kw);
        CX->rec = rec;
        Py_XDECREF(done);
        if (!done)
            goto done;
    }
    PyObject *held = cache_entry(p.cache, key, linked);
    if (!held)
        goto done;
    for (Py_ssize_t i = -1; i < n; i++) {
        tobj *k = t_obj(t, i < 0 ? f : t_real(t, args[i]));
        if (k && k->src && k->src->kind != SRC_const && (i < 0 || v[i] == k->real))
            guard_where(t, guard_add(t->e, G_ID_MATCH, k->src, i < 0 ? f : v[i]));
    }
    for (size_t i = 0; i < t->e->sources.n; i++) { /* asked before? */
        const source *s = t->e->sources.at[i];
        if (s->kind == SRC_cached && s->obj == p.cache && PyObject_RichCompareBool(s->key, key, Py_EQ) == 1)
            Py_SETREF(key, Py_NewRef(s->key));
    }
    r = t_wrap(t, held, src_get(t->e, SRC_cached, NULL, p.cache, key, linked));
    if (r && !count_later(t, f, args, nargs, kw, !run))
        Py_CLEAR(r);
done:
    if (!r && !t->broke && !t->internal && !run)
        py_forget();
    Py_XDECREF(key);
    return r;
}

static PyObject *cached_call(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw);
static bool unchangeable(PyObject *o)
{
    for (Py_ssize_t i = 0; PyTuple_Check(o) && i < PyTuple_GET_SIZE(o); i++)
        if (!unchangeable(PyTuple_GET_ITEM(o, i)))
            return false;
    return PyTuple_Check(o) || py_is_symint(o) || t_plain_const(o);
}

static PyObject *numbers(PyObject *o) /* new */
{
    if (py_is_symint(o))
        return PyNumber_Index(o);
    if (!holds_symbol(o))
        return Py_NewRef(o);
    PyObject *r = PyTuple_New(PyTuple_GET_SIZE(o));
    for (Py_ssize_t i = 0; r && i < PyTuple_GET_SIZE(o); i++) {
        PyObject *v = numbers(PyTuple_GET_ITEM(o, i));
        if (v)
            PyTuple_SET_ITEM(r, i, v);
        else
            Py_CLEAR(r);
    }
    return r;
}

static PyObject *with_numbers(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    Py_ssize_t n = nargs + (kw ? PyTuple_GET_SIZE(kw) : 0), i = 0;
    PyObject *v[16], *r = NULL;
    if (n > (Py_ssize_t)COUNT(v))
        return t_break(t, BRK_call_builtin, "a function with a cache and more than 16 arguments");
    for (; i < n && (v[i] = numbers(t_real(t, args[i]))); i++)
        ;
    if (i == n)
        r = cached_call(t, f, v, nargs, kw);
    else
        t_fake_failed(t, "a number that is not known");
    while (i-- > 0)
        Py_DECREF(v[i]);
    return r;
}

/* functools.lru_cache: what the cache holds is looked up there, now and when guards are checked. What it does not hold is
 * followed: a function that writes nothing may be called for it now. The cache counts calls after the graph. */
static PyObject *cached_call(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *n = PyUnicode_InternFromString("__wrapped__"), *w = NULL, *fn = NULL, *r = NULL;
    bool symbols = false, plain = !kw;
    if (!n)
        return NULL;
    for (Py_ssize_t i = 0; i < nargs + (kw ? PyTuple_GET_SIZE(kw) : 0); i++) {
        PyObject *a = t_real(t, args[i]);
        if (!a)
            goto done;
        symbols |= holds_symbol(a);
        plain &= t_plain_const(a) || py_is_symint(a);
    }
    if (!symbols && ((r = ask_cache(t, f, args, nargs, kw, false)) || t->broke || t->internal))
        goto done;
    if (!(w = t_getattr(t, f, n)) || !(fn = t_real(t, w)))
        goto done;
    unsigned long reads = t->reads;
    size_t seen = t->objs.n;
    uint64_t before = written(t, seen);
    if (!(r = t_call(t, fn, args, nargs, kw)))
        goto done;
    PyObject *v = t_real(t, r);
    bool value = v && (t_plain_const(v) || py_is_symint(v)) && reads == t->reads,
         same = before == written(t, seen) && !wrote_later(t, seen);
    if (!v)
        Py_CLEAR(r);
    if (!v || (same && value && plain && count_later(t, f, args, nargs, kw, true)))
        goto done;
    if (same && symbols && unchangeable(v)) /* only the numbers are unknown */
        goto done;
    Py_CLEAR(r);
    if (same &&
        symbols) { /* who holds the result may change it: it is the cache's, for numbers that are known */
        r = with_numbers(t, f, args, nargs, kw);
        goto done;
    }
    if (same && !symbols &&
        ((r = ask_cache(t, f, args, nargs, kw, true)) || t->broke || t->internal || PyErr_Occurred()))
        goto done;
    t_break(
        t, BRK_call_builtin,
        "a function with a cache (functools.lru_cache) that writes, or whose arguments no guard can hold");
done:
    Py_XDECREF(n);
    Py_XDECREF(w);
    return r;
}

/* f(..., out=x), the keyword number `at`: x.copy_(f(...)), where x has the result's type and size and nothing is on the
 * tape. Elsewhere x would change its size, or it is an error. */
static PyObject *call_out(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw,
                          Py_ssize_t at)
{
    Py_ssize_t nk = PyTuple_GET_SIZE(kw);
    PyObject *x = t_real(t, args[nargs + at]), *r = NULL, *m = NULL, *names = NULL,
             **v = mem_alloc(sizeof *v * (size_t)(nargs + nk));
    if (x && !py_is_tensor(x))
        t_break(t, BRK_call_builtin, "out= argument that is no tensor");
    if (!x || !py_is_tensor(x) || !(names = PyTuple_New(nk - 1)))
        goto done;
    memcpy(v, args, sizeof *v * (size_t)nargs);
    for (Py_ssize_t i = 0, k = 0; i < nk; i++)
        if (i != at) {
            v[nargs + k] = args[nargs + i];
            PyTuple_SET_ITEM(names, k++, Py_NewRef(PyTuple_GET_ITEM(kw, i)));
        }
    r = t_call(t, f, v, nargs, nk > 1 ? names : NULL);
    if (r && (!py_is_tensor(r) || py_tensor(r)->dt != py_tensor(x)->dt || grad_requires_grad(py_tensor(r)) ||
              grad_requires_grad(py_tensor(x)) || !tensor_same_size(py_tensor(r), py_tensor(x)))) {
        Py_CLEAR(r);
        t_break(t, BRK_call_builtin, "out= argument of another type or size, or with gradients");
    }
    if (r && (m = PyObject_GetAttrString(x, "copy_"))) {
        PyObject *done = t_call(t, m, &r, 1, NULL);
        Py_SETREF(r, done ? Py_NewRef(x) : NULL);
        Py_XDECREF(done);
    } else
        Py_CLEAR(r);
done:
    Py_XDECREF(m);
    Py_XDECREF(names);
    free(v);
    return r;
}

/* ---- any call ---- */
/* The detail of a TypeError names the callee, as the log shows it. */
static void name_callee(trace *t, PyObject *f)
{
    PyObject *ty, *v, *tb;
    PyErr_Fetch(&ty, &v, &tb);
    PyObject *s = v ? PyObject_Str(v) : NULL, *rp = PyObject_Repr(f);
    snprintf(t->detail, sizeof t->detail, "TypeError %s: %s", rp ? PyUnicode_AsUTF8(rp) : "",
             s ? PyUnicode_AsUTF8(s) : "");
    Py_XDECREF(s);
    Py_XDECREF(rp);
    PyErr_Restore(ty, v, tb);
}
static PyObject *call_operator(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *r;
    if ((op_flags(f) & OPF_SYNC) ||
        ((op_flags(f) & OPF_DYN) && !t_dynamic_outputs(t))) { /* the result, or its size, depends on data */
        PyObject *n = PyObject_GetAttrString(f, "__name__");
        t_break(t, BRK_data,
                op_flags(f) & OPF_SYNC ? "%s.%s reads a tensor's data"
                                       : "%s.%s has a result whose size depends on data",
                cap_brand(), n ? PyUnicode_AsUTF8(n) : "operator");
        Py_XDECREF(n);
        return NULL;
    }
    bool leaf = false;
    for (Py_ssize_t i = 0; kw && i < PyTuple_GET_SIZE(kw); i++) {
        PyObject *k = PyTuple_GET_ITEM(kw, i), *v = t_real(t, args[nargs + i]);
        if (!v)
            return NULL;
        if (PyUnicode_CompareWithASCIIString(k, "out") == 0 && v != Py_None)
            return call_out(t, f, args, nargs, kw, i);
        if (Py_TYPE(v) == &PyRng_Type) /* its state is no part of a graph */
            return t_break(t, BRK_operator, "a random operator with a generator of its own");
        leaf |= PyUnicode_CompareWithASCIIString(k, "requires_grad") == 0 && v == Py_True;
    }
    const ir_node *last = t->rec.g->last;
    r = t_native(t, f, args, nargs, kw);
    if (r && Py_TYPE(f) == &PyOpFunc_Type)
        t_written(t, last, f); /* operators live for ever */
    if (r && leaf && py_is_tensor(r) && !t_mark_leaf(t, r, true))
        Py_CLEAR(r);
    if (!r && !t->broke && PyErr_ExceptionMatches(PyExc_TypeError))
        name_callee(t, f);
    return r;
}
static PyObject *call_c_function(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *r;
    PyObject *self = PyCFunction_GET_SELF(f);
    const char *name = ((PyCFunctionObject *)f)->m_ml->ml_name;
    if (self && !PyModule_Check(self) && !PyType_Check(self))
        return t_method(t, f, self, name, args, nargs, kw);
    if (self && PyType_Check(self) && !strcmp(name, "__subclasses__") && !nargs && !kw) {
        source *s = t_source_of(t, self);
        PyObject *l = PyObject_CallNoArgs(f);
        r = l ? t_wrap(t, keep(t->e, l),
                       src_get(t->e, SRC_subclasses, s ? s : src_get(t->e, SRC_const, NULL, self, NULL, 0),
                               NULL, NULL, 0))
              : NULL;
        Py_XDECREF(l);
        return r;
    }
    if (self && PyType_Check(self) && !strcmp(name, "__new__") &&
        nargs) { /* dict.__new__(cls) and the like */
        PyTypeObject *cls = (PyTypeObject *)t_real(t, args[0]), *base;
        if (!cls)
            return NULL;
        base = !PyType_Check((PyObject *)cls) ? NULL : t_base(cls) ? t_base(cls) : cls;
        if (base && base == (PyTypeObject *)self &&
            (t_base(cls) || base == &PyDict_Type || base == &PyList_Type || base == &PySet_Type ||
             base == t_ordered_type()))
            return new_value(t, base, cls, args + 1, nargs - 1, kw);
    }
    if (!strcmp(name, "warn") || !strcmp(name, "warn_explicit"))
        return t_break(t, BRK_print, "call of warnings.%s", name);
    if (self && PyType_Check(self) &&
        ((r = t_classmethod(t, f, self, name, args, nargs, kw)) || t->broke || PyErr_Occurred()))
        return r;
    return t_break(t, BRK_call_builtin, "call of builtin function %s", name);
}
static PyObject *call_descriptor(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *r;
    PyObject *self = t_real(t, args[0]);
    if (!self)
        return NULL;
    PyMethodDescrObject *d = (PyMethodDescrObject *)f;
    if (!PyType_IsSubtype(Py_TYPE(self), d->d_common.d_type))
        return t_native(t, f, args, nargs, kw);
    PyObject *b = Py_TYPE(f)->tp_descr_get(f, self, (PyObject *)Py_TYPE(self));
    r = b ? t_call(t, b, args + 1, nargs - 1, kw) : NULL;
    Py_XDECREF(b);
    return r;
}
static PyObject *call_slot_of(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *self = PyObject_GetAttrString(f, "__self__"), *n = PyObject_GetAttrString(f, "__name__"),
             *cls = PyObject_GetAttrString(f, "__objclass__"), *d = NULL, *r = NULL;
    if (self && n && cls && (d = PyObject_GetAttr(cls, n)))
        r = call_with(t, d, self, args, nargs, kw);
    Py_XDECREF(self);
    Py_XDECREF(n);
    Py_XDECREF(cls);
    Py_XDECREF(d);
    return r;
}
static PyObject *call_partial(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *r = NULL;
    PyObject *fn = PyUnicode_InternFromString("func"), *a = PyUnicode_InternFromString("args"),
             *k = PyUnicode_InternFromString("keywords");
    PyObject *pf = t_getattr(t, f, fn), *pa = pf ? t_getattr(t, f, a) : NULL,
             *pk = pa ? t_getattr(t, f, k) : NULL;
    PyObject *l = pk ? t_list_of(t, pa) : NULL, *d = l ? t_real(t, pk) : NULL, *names = NULL, **v = NULL;
    if (d && PyDict_Check(d)) {
        PyObject *all = PyDict_Copy(d);
        for (Py_ssize_t i = 0; all && kw && i < PyTuple_GET_SIZE(kw); i++)
            PyDict_SetItem(all, PyTuple_GET_ITEM(kw, i), args[nargs + i]);
        Py_ssize_t np = PyList_GET_SIZE(l), nk = all ? PyDict_GET_SIZE(all) : 0, p = 0, i = 0;
        PyObject *key, *val;
        v = mem_zalloc(sizeof *v * (size_t)(np + nargs + nk + 1));
        names = nk ? PyTuple_New(nk) : NULL;
        for (i = 0; i < np; i++)
            v[i] = PyList_GET_ITEM(l, i);
        for (i = 0; i < nargs; i++)
            v[np + i] = args[i];
        for (i = 0; all && PyDict_Next(all, &p, &key, &val); i++) {
            PyTuple_SET_ITEM(names, i, Py_NewRef(key));
            v[np + nargs + i] = val;
        }
        r = t_call(t, pf, v, np + nargs, names);
        Py_XDECREF(all);
    }
    free(v);
    Py_XDECREF(names);
    Py_XDECREF(l);
    Py_XDECREF(pf);
    Py_XDECREF(pa);
    Py_XDECREF(pk);
    Py_DECREF(fn);
    Py_DECREF(a);
    Py_DECREF(k);
    return r;
}
/* operator.attrgetter, itemgetter and methodcaller of an object with code of its own. */
static PyObject *getter_of_object(trace *t, PyObject *f, PyObject *o)
{
    PyObject *made = PyObject_CallMethod(f, "__reduce__", NULL),
             *cls = made ? PyTuple_GetItem(made, 0) : NULL, *keys = cls ? PyTuple_GetItem(made, 1) : NULL,
             *pf = keys ? polyfill("getter") : NULL, *r = NULL;
    if (pf && cls == (PyObject *)Py_TYPE(f)) {
        PyObject *kind = PyUnicode_FromString(strrchr(Py_TYPE(f)->tp_name, '.') + 1),
                 *in[] = { kind, keys, o };
        r = kind ? t_call(t, pf, in, 3, NULL) : NULL;
        Py_XDECREF(kind);
    } else if (pf) /* a methodcaller with keywords */
        t_break(t, BRK_call_builtin, "%s of a %s", Py_TYPE(f)->tp_name, Py_TYPE(o)->tp_name);
    Py_XDECREF(made);
    return r;
}
static PyObject *call_getter(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    for (Py_ssize_t i = 0; i < nargs; i++) {
        PyObject *a = t_real(t, args[i]);
        if (!a)
            return NULL;
        if (!t_safe_type(Py_TYPE(a)) && nargs == 1 && !kw)
            return getter_of_object(t, f, a);
        if (!t_safe_type(Py_TYPE(a)))
            return t_break(t, BRK_call_builtin, "%s of a %s", Py_TYPE(f)->tp_name, Py_TYPE(a)->tp_name);
    }
    PyObject *a = nargs ? t_real(t, args[0]) : NULL;
    if (a && py_is_tensor(a) &&
        !strcmp(Py_TYPE(f)->tp_name, "operator.itemgetter")) { /* perhaps by a tensor: a view */
        PyObject *made = PyObject_CallMethod(f, "__reduce__", NULL),
                 *keys = made ? PyTuple_GetItem(made, 1) : NULL;
        bool picks = false;
        for (Py_ssize_t i = 0; keys && i < PyTuple_GET_SIZE(keys); i++)
            picks |= !PyLong_CheckExact(PyTuple_GET_ITEM(keys, i)) &&
                     !PySlice_Check(PyTuple_GET_ITEM(keys, i));
        Py_XDECREF(made);
        if (picks)
            return t_break(t, BRK_call_builtin, "operator.itemgetter of a tensor, by what is no number");
    }
    return t_native(t, f, args, nargs, kw);
}
static PyObject *call_object(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *r;
    PyObject *callf = lookup(Py_TYPE(f), "__call__");
    if (callf && PyFunction_Check(callf)) {
        PyObject *name = PyUnicode_InternFromString("__call__"),
                 *m = t_bind_class_attr(t, f, Py_TYPE(f), name, callf);
        r = m ? t_call(t, m, args, nargs, kw) : NULL;
        Py_XDECREF(m);
        Py_DECREF(name);
        return r;
    }
    if (!callf) {
        PyErr_Format(PyExc_TypeError, "'%.200s' object is not callable", Py_TYPE(f)->tp_name);
        return NULL;
    }
    return t_break(t, BRK_call_builtin, "call of a %s object", Py_TYPE(f)->tp_name);
}
PyObject *t_call(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *inner, *r;
    bool handled = false;
    if (!(f = t_real(t, f)))
        return NULL;
    if (Py_TYPE(f) == &PyTraceAppend_Type && nargs == 1 && !kw)
        return t_append(t, t_appends_to(f), args[0]) < 0 ? NULL : Py_NewRef(Py_None);
    PyObject *role = py_special(f);
    if (role && ((r = role_call(t, f, role, args, nargs, kw, &handled)), handled))
        return r;
    r = t_logging(t, f, args, nargs, kw, &handled);
    if (handled)
        return r;
    r = t_builtin(t, f, args, nargs, kw, &handled);
    if (handled)
        return r;
    if (PyFunction_Check(f))
        return t_inline(t, f, args, nargs, kw);
    if (PyMethod_Check(f))
        return call_with(t, PyMethod_GET_FUNCTION(f), PyMethod_GET_SELF(f), args, nargs, kw);
    if (Py_TYPE(f) == &PyOpFunc_Type || Py_TYPE(f) == &PyOpMethod_Type)
        return call_operator(t, f, args, nargs, kw);
    if (PyType_Check(f))
        return t_construct(t, (PyTypeObject *)f, args, nargs, kw);
    if (PyCFunction_Check(f))
        return call_c_function(t, f, args, nargs, kw);
    if (Py_TYPE(f) == &PyMethodDescr_Type && nargs)
        return call_descriptor(t, f, args, nargs, kw);
    if (Py_TYPE(f) == &PyWrapperDescr_Type)
        return slot_call(t, f, ((PyDescrObject *)f)->d_type, PyUnicode_AsUTF8(((PyDescrObject *)f)->d_name),
                         args, nargs, kw);
    if (Py_TYPE(f) == method_wrapper_type())
        return call_slot_of(t, f, args, nargs, kw);
    if (Py_TYPE(f) == t_partial_type())
        return call_partial(t, f, args, nargs, kw);
    if ((inner = compiled_inner(f)))
        return t_call(t, inner, args, nargs, kw);
    if (!strcmp(Py_TYPE(f)->tp_name, "functools._lru_cache_wrapper")) {
        return cached_call(t, f, args, nargs, kw);
    }
    if (!strcmp(Py_TYPE(f)->tp_name, "functools.KeyWrapper") && nargs == 1 && !kw) {
        PyObject *a = t_real(t, args[0]);
        return a ? PyObject_CallOneArg(f, a) : NULL;
    }
    if (!strncmp(Py_TYPE(f)->tp_name, "operator.", 9))
        return call_getter(t, f, args, nargs, kw);
    return call_object(t, f, args, nargs, kw);
}

int py_init_tcall(PyObject *m)
{
    t_take_overrides();
    return PyType_Ready(&PyTraceGen_Type) < 0 || PyType_Ready(&PyTraceSuper_Type) < 0 ? -1 : 0;
}
