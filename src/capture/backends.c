/* backends.c - the graph that was captured goes to a backend: one of C's by name, or a Python callable. */
#include "base/crumb.h"
#include "capture/attempt.h"
#include "capture/capture.h"
#include "compile/options.h"
#include "debug/audit.h"
#include "debug/backends.h"
#include "debug/wrap.h"
#include "ir/hop.h"
#include "ops/custom.h"
#include "ops/host.h"

/* ---- a Python callable as backend ---- */
typedef struct python_program {
    run_program base;
    PyObject *fn;
    int nout;
    uint8_t *want; /* per output of the graph: VAL_tensor, VAL_int, VAL_none */
} python_program;

/* Result i of the function as a value of the graph; owned. */
static bool result_of(const python_program *p, int i, PyObject *v, tp_val *out, tp_err *err)
{
    int want = p->want[i];
    if (want == VAL_tensor ? py_is_tensor(v) : want == VAL_none || PyLong_Check(v)) {
        if (want == VAL_tensor)
            *out = vT(tensor_ref(py_tensor(v)));
        else if (want != VAL_none)
            *out = vI(PyLong_AsLongLong(v));
        return !PyErr_Occurred() || err_set(err, ERR_python, "a number that is too large");
    }
    return err_set(err, ERR_type, "result %d of the backend's function is %s%s, where the graph returns %s",
                   i, v == Py_None ? "" : "of type ", v == Py_None ? "None" : Py_TYPE(v)->tp_name,
                   want == VAL_tensor ? "a Tensor" : "an int");
}

static bool results_of(const python_program *p, PyObject *res, tp_val *out, int nout, tp_err *err)
{
    bool seq = PyTuple_Check(res) || PyList_Check(res);
    if (seq ? PySequence_Fast_GET_SIZE(res) != nout : nout != 1)
        return err_set(err, ERR_runtime,
                       "the backend's function returned %zd values for a graph with %d outputs",
                       seq ? PySequence_Fast_GET_SIZE(res) : (Py_ssize_t)1, nout);
    for (int i = 0; i < nout; i++)
        if (!result_of(p, i, seq ? PySequence_Fast_GET_ITEM(res, i) : res, &out[i], err)) {
            while (i-- > 0)
                val_clear(&out[i]);
            return false;
        }
    return true;
}

static bool python_call(run_program *rp, op_ctx *cx, const tp_val *in, int nin, tp_val *out, int nout,
                        tp_err *err)
{
    const python_program *p = (python_program *)rp;
    PyObject *args = PyTuple_New(nin);
    for (int i = 0; i < nout; i++)
        out[i] = vNone;
    for (int i = 0; args && i < nin; i++) {
        PyObject *v = in[i].kind == VAL_tensor ? py_wrap(tensor_ref(in[i].t)) : PyLong_FromLongLong(in[i].i);
        if (!v)
            Py_CLEAR(args);
        else
            PyTuple_SET_ITEM(args, i, v);
    }
    crumb_drop(CRUMB_BACKEND, "the function that it returned");
    py_overriding_pause(1); /* the graph has what classes and modes made of the program's calls */
    PyObject *res = args ? PyObject_Call(p->fn, args, NULL) : NULL;
    py_overriding_pause(-1);
    Py_XDECREF(args);
    if (!res)
        return err_set(err, ERR_python, "the compiled function failed");
    bool ok = results_of(p, res, out, nout, err);
    Py_DECREF(res);
    return ok;
}

static void python_free(run_program *rp)
{
    python_program *p = (python_program *)rp;
    Py_DECREF(p->fn);
    free(p->want);
    free(p);
}

typedef struct python_backend {
    PyObject *fn, *options; /* borrowed */
} python_backend;

static run_program *python_compile(const backend *b, tp_comp *c, const ir_graph *g, const tp_val *example)
{
    const python_backend *x = b->data;
    int nin = (int)g->inputs.n;
    PyObject *view = graph_view(ir_graph_copy(g)), *list = PyList_New(nin), *m = NULL, *fn = NULL;
    for (int i = 0; list && i < nin; i++) {
        PyObject *v = example[i].kind == VAL_tensor ? py_wrap(tensor_ref(example[i].t))
                                                    : py_int(example[i].i);
        if (v)
            PyList_SET_ITEM(list, i, v);
        else
            Py_CLEAR(list);
    }
    m = view && list ? PyImport_ImportModule("taper._dynamo.backends") : NULL;
    if (m)
        fn = PyObject_CallMethod(m, "_call_backend", "OOOO", x->fn, view, list,
                                 x->options ? x->options : Py_None);
    Py_XDECREF(m);
    Py_XDECREF(list);
    Py_XDECREF(view);
    if (!fn) {
        err_set(c->err, ERR_python, "the backend failed");
        return NULL;
    }
    python_program *p = mem_zalloc(sizeof *p);
    p->base = (run_program){ python_call, python_free };
    p->fn = fn;
    p->nout = g->output ? g->output->narg : 0;
    p->want = mem_zalloc((size_t)p->nout + 1);
    for (int i = 0; i < p->nout; i++) {
        const tp_val *v = &g->output->arg[i];
        p->want[i] = v->kind == VAL_node ? v->node->val.kind : v->kind;
    }
    return &p->base;
}

/* The exception that is set becomes BackendCompilerFailed. */
static void backend_failed(PyObject *backend)
{
    PyObject *t, *v, *tb, *cls;
    if (!PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_Exception) || py_signaled)
        return;
    cls = exc_class("BackendCompilerFailed");
    if (!cls || PyErr_ExceptionMatches(cls))
        return;
    PyErr_Fetch(&t, &v, &tb);
    PyErr_NormalizeException(&t, &v, &tb);
    if (tb)
        PyException_SetTraceback(v, tb);
    PyObject *n = PyUnicode_Check(backend) ? Py_NewRef(backend) : PyObject_GetAttrString(backend, "__name__");
    if (!n) {
        py_forget();
        n = PyUnicode_FromString(Py_TYPE(backend)->tp_name);
    }
    PyObject *msg = PyUnicode_FromFormat(
        "backend='%U' raised:\n%s: %S\n\nSet %s=1 for the internal stack trace, and %s=\"+dynamo\" for more "
        "information.\n\nYou can suppress this exception and fall back to eager by setting:\n    import "
        "%s._dynamo\n    "
        "%s._dynamo.config.suppress_errors = True",
        n, ((PyTypeObject *)t)->tp_name, v,
        !strcmp(cap_brand(), "torch") ? "TORCHDYNAMO_VERBOSE" : "TAPER_VERBOSE",
        !strcmp(cap_brand(), "torch") ? "TORCH_LOGS" : "TAPER_LOGS", cap_brand(), cap_brand());
    PyObject *ex = msg ? PyObject_CallOneArg(cls, msg) : NULL;
    if (ex) {
        PyObject_SetAttrString(ex, "inner_exception", v);
        PyObject *path = PyObject_GetAttrString(v, "minifier_path"),
                 *notes = path ? PyObject_GetAttrString(v, "__notes__") : NULL;
        if (notes) { /* where the failure was saved stands where the user reads: at the end, once */
            PyObject_SetAttrString(ex, "minifier_path", path);
            PyObject_SetAttrString(ex, "__notes__", notes);
            PyObject_DelAttrString(v, "__notes__");
        }
        py_forget();
        Py_XDECREF(path);
        Py_XDECREF(notes);
        PyException_SetCause(ex, Py_NewRef(v));
        PyErr_SetObject(cls, ex);
    }
    Py_XDECREF(ex);
    Py_XDECREF(msg);
    Py_XDECREF(n);
    Py_XDECREF(t);
    Py_XDECREF(v);
    Py_XDECREF(tb);
}

/* ---- settings ---- */
static bool read_words(run_options *o, PyObject *d, tp_err *err) /* {name: word} */
{
    PyObject *k, *v;
    Py_ssize_t at = 0;
    while (d && PyDict_Check(d) && PyDict_Next(d, &at, &k, &v)) {
        const char *name = PyUnicode_Check(k) ? PyUnicode_AsUTF8(k) : NULL,
                   *word = PyUnicode_Check(v) ? PyUnicode_AsUTF8(v) : NULL;
        if (!name || !word)
            return err_set(err, ERR_type, "options are words by name");
        if (!options_set(o, name, word, err))
            return false;
    }
    return true;
}
/* What taper._inductor.config says, where somebody has imported it. New reference or NULL. */
static PyObject *configured(void)
{
    PyObject *name = PyUnicode_FromString("taper._inductor.config"),
             *m = name ? PyImport_GetModule(name) : NULL;
    PyObject *d = m ? PyObject_CallMethod(m, "_words", NULL) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(m);
    if (!d)
        PyErr_Clear();
    return d;
}
/* {"mode": ..., "options": ..., "resolved": {name: word}}, of which the last was made by taper.compiler. */
bool cap_read_options(run_options *o, PyObject *options, tp_err *err)
{
    PyObject *d = configured(),
             *given = options && PyDict_Check(options) ? PyDict_GetItemString(options, "resolved") : NULL;
    bool ok = read_words(o, d, err) && read_words(o, given, err);
    options_environment(o); /* it speaks of every compile, whatever the program asks for */
    Py_XDECREF(d);
    return ok;
}

/* Switches of grad mode inside a graph go where they do not matter (nothing requires a gradient) or where all
 * work is done with gradients off (the whole graph runs so); a graph that starts and ends with gradients on
 * keeps them, and the autograd stage obeys them. False: the later stages cannot do what the graph does. */
static bool drop_modes(entry *e, ir_graph *g, PyObject *const *in, int nin)
{
    bool mode = g->grad_mode, any = false, off = true, needs = false;
    IR_EACH (n, g) {
        if (n->kind == IR_opaque) {
            if (ir_hop(n) || aot_inlines(n) || (!n->opaque && custom_find(n->target, NULL))) {
                off = off && !mode;
                continue;
            }
            if (aot_makes_leaf(n)) { /* the autograd stage sees to it */
                needs = true;
                continue;
            }
            if (!ir_switches_grad(n))
                return false;
            mode = n->arg[0].b;
            any = true;
        } else if (n->kind == IR_call)
            off = off && !mode;
    }
    if (!any)
        return true;
    for (int i = 0; i < nin; i++)
        needs |= py_is_tensor(in[i]) && grad_requires_grad(py_tensor(in[i]));
    if (needs && !off)
        return g->grad_mode && mode;
    e->leaves_grad = mode != g->grad_mode ? 1 + mode : 0;
    IR_EACH_SAFE (n, g)
        if (n->kind == IR_opaque && ir_switches_grad(n))
            ir_erase(n);
    if (needs && g->grad_mode) {
        g->grad_mode = false;
        e->nograd = true;
    }
    return true;
}

static __thread char fell_back[500]; /* why the graph being compiled runs with backend eager */

void cap_fall_back(const char *graph, const char *backend, const char *why)
{
    snprintf(fell_back, sizeof fell_back, "backend 'eager' instead of '%s': %.400s", backend, why);
    cap_count("aot_fallback", why, 1);
    if (ev_log_on(EVC_aot, EV_WARNING))
        ev_log(EVC_aot, EV_WARNING, NULL, "%s runs with backend 'eager' instead of '%s': %s", graph, backend,
               why);
}

/* Another backend, other options for this frame: config.debug_backend_override and debug_inductor_config_override. New
 * references, NULL where they say nothing. */
static bool overridden(entry *e, PyObject **backend, PyObject **options)
{
    PyObject *m, *r, *a = cfg_obj("debug_backend_override"), *b = cfg_obj("debug_inductor_config_override");
    *backend = *options = NULL;
    if (!(a && PyUnicode_Check(a) && PyUnicode_GET_LENGTH(a)) &&
        !(b && PyUnicode_Check(b) && PyUnicode_GET_LENGTH(b)))
        return true;
    m = PyImport_ImportModule("taper._dynamo.eval_frame");
    r = m ? PyObject_CallMethod(m, "_override", "i", e->r->frame_id) : NULL;
    bool ok = r && PyTuple_Check(r) && PyTuple_GET_SIZE(r) == 2;
    if (ok && PyTuple_GET_ITEM(r, 0) != Py_None)
        *backend = Py_NewRef(PyTuple_GET_ITEM(r, 0));
    if (ok && PyTuple_GET_ITEM(r, 1) != Py_None)
        *options = Py_NewRef(PyTuple_GET_ITEM(r, 1));
    Py_XDECREF(m);
    Py_XDECREF(r);
    return ok;
}

/* ---- compiling ---- */
/* The C backend of that name, or NULL: others are written in Python. */
static const backend *native(PyObject *b)
{
    const char *name = PyUnicode_Check(b) ? PyUnicode_AsUTF8(b) : NULL;
    return name ? backend_find(name, NULL) : NULL;
}

run_program *cap_compile_native(const backend *b, const run_options *o, ir_graph *g, const tp_val *in,
                                tp_err *err)
{
    tp_comp c = { .err = err, .opt = o, .decider = decide_env(), .tiers = true };
    if (b == &backend_eager)
        return b->compile(b, &c, g, in);
    if (!backend_mark_inputs(g, in, err)) /* the types say which inputs need gradients */
        return NULL;
    run_program *p = debug_compile(&c, b, g, in, NULL);
    if (!p && err->kind == ERR_notimpl) { /* a graph this stage cannot take: say so and run it as captured */
        cap_fall_back(g->name, b->name, err->msg);
        err_clear(err);
        p = backend_eager.compile(&backend_eager, &c, g, in);
    }
    return p;
}

static run_program *compile_native(entry *e, const backend *b, PyObject *options, ir_graph *g,
                                   PyObject *const *in, const tp_val *v, tp_err *err)
{
    run_options o = options_default();
    if (b != &backend_eager && !drop_modes(e, g, in, e->nin)) {
        cap_fall_back(g->name, b->name,
                      "it switches modes or calls outside in a way that this stage cannot take");
        b = &backend_eager;
    }
    if (b != &backend_eager && !cap_read_options(&o, options, err))
        return NULL;
    bool was = CX->grad_mode;
    CX->grad_mode = was && !e->nograd;
    run_program *p = cap_compile_native(b, &o, g, v, err);
    CX->grad_mode = was;
    return p;
}

static run_program *compile_python(entry *e, PyObject *fn, PyObject *options, const ir_graph *g,
                                   const tp_val *v, tp_err *err)
{
    python_backend x = { fn, options };
    backend b = { "python", "a callable of the program's", python_compile, &x };
    tp_comp c = { .err = err };
    char shown[300];
    ev_settle(); /* it may do anything */
    crumb_drop(CRUMB_BACKEND, g->name);
    run_program *p = b.compile(&b, &c, g, v);
    region_name(e->r, shown, sizeof shown);
    crumb_drop("capture", shown); /* goes on */
    return p;
}

/* A name that is none of C's: the callable that was registered for it; NULL with an exception. New. */
static PyObject *registered(PyObject *name)
{
    PyObject *m = PyImport_ImportModule("taper._dynamo.backends"),
             *fn = m ? PyObject_CallMethod(m, "_lookup", "O", name) : NULL;
    Py_XDECREF(m);
    return fn;
}

static run_program *compile_by(entry *e, ir_graph *g, PyObject *b, PyObject *options, PyObject *const *in,
                               const tp_val *v)
{
    tp_err err = { 0 };
    const backend *own = native(b);
    run_program *p;
    if (own)
        p = compile_native(e, own, options, g, in, v, &err);
    else {
        PyObject *fn = PyUnicode_Check(b) ? registered(b) : Py_NewRef(b);
        if (!fn)
            return NULL;
        p = compile_python(e, fn, options, g, v, &err);
        Py_DECREF(fn);
    }
    if (!p) {
        py_raise(&err);
        backend_failed(b);
    }
    return p;
}

bool cap_compile(entry *e, ir_graph *g, PyObject *const *in)
{
    PyObject *backend, *options;
    cap_cfg *hook = hook_push(
        NULL); /* Python code of a backend, and what it imports, is none of the program's */
    tp_val *v = mem_zalloc(sizeof *v * (size_t)(e->nin + 1));
    e->graph = g;
    fell_back[0] = 0;
    for (int i = 0; i < e->nin; i++)
        v[i] = py_is_tensor(in[i]) ? (tp_val){ .kind = VAL_tensor, .t = py_tensor(in[i]) }
                                   : vI(PyLong_AsLongLong(in[i]));
    if (overridden(e, &backend, &options))
        e->run = compile_by(e, g, backend ? backend : e->cfg->backend, options ? options : e->cfg->options,
                            in, v);
    hook_pop(NULL, hook);
    free(v);
    Py_XDECREF(backend);
    Py_XDECREF(options);
    if (e->run && fell_back[0]) {
        PyObject *why = PyUnicode_FromString(fell_back);
        if (why)
            Py_XSETREF(e->break_reason, why);
        PyErr_Clear();
    }
    return e->run != NULL;
}

/* _options() -> [(name, default, values, meaning)] */
static PyObject *list_options(PyObject *m, PyObject *x)
{
    PyObject *l = PyList_New(0);
    for (int i = 0; l && i < OPT_COUNT; i++) {
        const option_row *r = option_row_of((option_id)i);
        PyObject *t = Py_BuildValue("(ssss)", r->name, r->def, r->values, r->help);
        if (!t || PyList_Append(l, t) < 0)
            Py_CLEAR(l);
        Py_XDECREF(t);
    }
    return l;
}

static PyMethodDef functions[] = {
    { "_options", list_options, METH_NOARGS, "the table of options" },
    { NULL },
};

/* Calls of other threads, which do not hold the lock, have no line. */
static const ir_loc *calling_line(arena *a) { return PyGILState_Check() ? location_outside(a) : NULL; }

int py_init_backends(PyObject *m)
{
    debug_backends_register();
    host.where = calling_line;
    audit_calls();
    return PyModule_AddFunctions(m, functions);
}
