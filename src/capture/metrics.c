/* metrics.c - what capture tells about compiles beside the text logs: counts, inputs, how long calls take, the ledger.
 * taper.compiler.metrics() and the trace get the same records. */
#include "capture/capture.h"
#include "base/clock.h"
#include "base/envvars.h"
#include "events/metrics.h"
#include "ops/custom.h"
#include "compile/backend.h"

/* ---- the compile ---- */
void metrics_entry(const entry *e, const ir_graph *g, PyObject *const *in)
{
    const region *r = e->r;
    int64_t nodes = 0;
    IR_EACH (n, g) {
        nodes++;
        const op_custom *op = n->kind == IR_opaque ? custom_find(n->target, NULL) : NULL;
        if (op)
            ev_metrics_custom(op->name, op->fake != NULL);
    }
    ev_add(EVN_guards, (int64_t)e->guards.n);
    ev_add(EVN_shape_guards, e->symguards ? sym_guards_n(e->symguards) : 0);
    ev_add(EVN_ops, e->nops);
    ev_add(EVN_nodes, nodes);
    ev_add(EVN_inputs, e->nin);
    ev_add(EVN_cache_size, r->nentry);
    ev_add(EVN_cache_total, r->nentry);
    for (int i = 0; i < e->nin; i++)
        if (py_is_tensor(in[i]) && Py_TYPE(in[i]) != &PyTensor_Type) {
            const tp_tensor *t = py_tensor(in[i]);
            ev_add(EVN_params, 1);
            ev_add(EVN_param_numel, t->numel);
            ev_add(EVN_param_bytes, t->numel * (int64_t)dtype_size((dtype)t->dt));
        }
}

static void ints(strbuf *b, const char *key, const int64_t *v, int n)
{
    strbuf_add(b, key);
    for (int i = 0; i < n; i++) {
        if (i)
            strbuf_addn(b, ", ", 2);
        strbuf_int(b, v[i]);
    }
    strbuf_addc(b, ']');
}
static void number(json_w *w, const char *key, int64_t v)
{
    json_key(w, key);
    json_int(w, v);
}

static uint32_t marked_dimensions(PyObject *o, int ndim)
{
    static PyObject *key;
    PyObject *d = ((PyTensor *)o)->dict, *set;
    uint32_t bits = 0;
    if (!key)
        key = PyUnicode_InternFromString("_dynamo_dynamic_indices");
    if (!d || !key || !(set = PyDict_GetItemWithError(d, key)) || !PyAnySet_Check(set))
        return 0;
    for (int i = 0; i < ndim && i < 32; i++) {
        PyObject *n = PyLong_FromLong(i);
        if (n && PySet_Contains(set, n) == 1)
            bits |= 1u << i;
        Py_XDECREF(n);
    }
    py_forget();
    return bits;
}

static void field(strbuf *b, const char *key, int64_t v)
{
    strbuf_add(b, key);
    strbuf_int(b, v);
}
/* Inputs as the trace describes them: what they have in common, and where their storages are. */
typedef struct described {
    strbuf id, one;
    const void **storage;
    dtype dt; /* of the last one, and how that is said */
    dev_kind device;
    strbuf type;
} described;

static void describe_type(described *d, const tp_tensor *t)
{
    dev_kind device = (dev_kind)tensor_device(t).kind;
    if (d->type.n && d->dt == (dtype)t->dt && d->device == device)
        return;
    d->dt = (dtype)t->dt;
    d->device = device;
    strbuf_clear(&d->type);
    strbuf_adds(&d->type, ", \"dtype\": \"", cap_brand(), ".", dtype_name(d->dt),
                "\", \"device\": \"device(type='", device_name(device), "')\"", NULL);
}

static void describe(described *d, const entry *e, int i, PyObject *o)
{
    const tp_tensor *t = py_tensor(o);
    const char *source = src_text(e->in[i]);
    strbuf *b = &d->one;
    int storage = 0; /* it has the number of the first input that lies in it */
    while (t->storage ? d->storage[storage] != t->storage : storage < i)
        storage++;
    strbuf_clear(&d->id);
    field(&d->id, "{\"id\": ", i);
    field(&d->id, ", \"describer_id\": ", e->r->frame_id);
    if (storage == i) {
        strbuf_clear(b);
        strbuf_addn(b, d->id.s, d->id.n);
        field(b, ", \"size\": ", t->storage ? (int64_t)t->storage->nbytes : 0);
        strbuf_addc(b, '}');
        ev_batch_put(EV_describe_storage, b);
    }
    describe_type(d, t);
    strbuf_clear(b);
    strbuf_addn(b, d->id.s, d->id.n);
    field(b, ", \"ndim\": ", t->ndim);
    strbuf_addn(b, d->type.s, d->type.n);
    ints(b, ", \"size\": [", t->size, t->ndim);
    ints(b, ", \"stride\": [", t->stride, t->ndim);
    field(b, ", \"storage\": ", storage);
    field(b, ", \"storage_offset\": ", t->offset);
    strbuf_adds(b, ", \"layout\": \"", cap_brand(), ".strided\"", NULL);
    strbuf_add(b, grad_is_leaf((tp_tensor *)t) ? ", \"is_leaf\": true" : "");
    strbuf_add(b, grad_requires_grad(t) ? ", \"requires_grad\": true" : "");
    strbuf_add(b, Py_TYPE(o) != &PyTensor_Type ? ", \"is_parameter\": true" : "");
    strbuf_add(b, t->base ? ", \"is_view\": true" : "");
    uint32_t dynamic = marked_dimensions(o, t->ndim);
    if (dynamic) {
        int64_t at[32];
        int n = 0;
        for (int k = 0; k < 32; k++)
            if (dynamic >> k & 1)
                at[n++] = k;
        ints(b, ", \"dynamo_dynamic_indices\": [", at, n);
    }
    strbuf_addc(b, '}');
    ev_batch_put(EV_describe_tensor, b);
    strbuf_clear(b);
    strbuf_addn(b, d->id.s, d->id.n);
    strbuf_add(b, ", \"source\": ");
    json_quote(b, source, strlen(source));
    strbuf_addc(b, '}');
    ev_batch_put(EV_describe_source, b);
}

void metrics_inputs(const entry *e, PyObject *const *in)
{
    if (!ev_trace_on(EV_describe_tensor))
        return;
    described d = { .storage = mem_zalloc(sizeof *d.storage * (size_t)(e->nin + 1)) };
    for (int i = 0; i < e->nin; i++)
        d.storage[i] = py_is_tensor(in[i]) ? py_tensor(in[i])->storage : NULL;
    ev_batch(true);
    for (int i = 0; i < e->nin; i++)
        if (py_is_tensor(in[i]))
            describe(&d, e, i, in[i]);
    ev_batch(false);
    strbuf_free(&d.id);
    strbuf_free(&d.one);
    strbuf_free(&d.type);
    free(d.storage);
}

/* ---- calls ---- */
static void times_json(strbuf *b, const entry *e)
{
    const struct run_times *t = &e->times;
    const region *r = e->r;
    json_w w = { b };
    json_obj(&w);
    json_key(&w, "compile_id");
    const char *prefix = env_get(ENV_compile_id_prefix);
    json_strf(&w, "%s%d/%d", prefix ? prefix : "", r->frame_id, e->compile_id);
    json_key(&w, "co_name");
    json_str(&w, e->shown.name);
    json_key(&w, "co_filename");
    json_str(&w, e->shown.file);
    number(&w, "co_firstlineno", e->shown.line);
    number(&w, "line", r->from_line && e->shown.file == r->cc->file ? r->from_line : e->shown.line);
    json_key(&w, "is_runtime");
    json_bool(&w, true);
    number(&w, "calls", (int64_t)e->hits);
    number(&w, "graph_op_count", e->nops);
    const double us[] = { (double)t->first / 1e3, t->nwarm ? (double)t->warm / t->nwarm / 1e3 : -1,
                          t->nwarm ? (double)t->best / 1e3 : -1, t->eager ? (double)t->eager / 1e3 : -1 };
    static const char *const key[] = { "first_call_us", "warm_call_us", "warm_best_us", "eager_call_us" };
    for (int i = 0; i < 4; i++) {
        json_key(&w, key[i]);
        if (us[i] >= 0)
            json_dbl(&w, us[i]);
        else
            json_null(&w);
    }
    json_end(&w);
}

static void times_record(void *unused, entry *e)
{
    if (!ev_trace_on(EV_compilation_metrics_runtime) || !e->hits)
        return;
    strbuf b = { 0 };
    ev_cid id = { e->r->frame_id, e->compile_id, 0 };
    times_json(&b, e);
    ev_json(EV_compilation_metrics_runtime, &id, strbuf_str(&b), NULL);
    strbuf_free(&b);
}

/* The same inputs through the same graph, one operator at a time, on copies: what the region would cost uncompiled.
 * Done once, and only when asked for: the work is done a few times more. */
static void measure_eager(entry *e, PyObject **reg)
{
    const ir_graph *g = e->graph;
    tp_err err = { 0 };
    tp_comp c = { .err = &err };
    tp_gen *rng = gen_default();
    gen_state was = rng->s;
    run_program *p = g ? backend_compile(&backend_eager, &c, g, NULL) : NULL;
    tp_val *in = mem_zalloc(sizeof *in * (size_t)(e->nin + 1)),
           *out = mem_zalloc(sizeof *out * (size_t)(e->nout + 1));
    bool ok = p && !PyErr_Occurred();
    for (int i = 0; ok && i < e->nin; i++) {
        PyObject *o = reg[e->in[i]->id];
        if (!py_is_tensor(o)) {
            in[i] = vI(PyLong_AsLongLong(o));
            continue;
        }
        const tp_tensor *t = py_tensor(o);
        tp_tensor *copy = tensor_new_strided((dtype)t->dt, t->ndim, t->size, t->stride, tensor_device(t),
                                             &err);
        ok = copy && tensor_copy(copy, t, &err) &&
             (!grad_requires_grad(t) || grad_set_requires_grad(CX, copy, true, &err));
        if (copy)
            in[i] = vT(copy);
    }
    for (int k = 0; ok && k < 5; k++) {
        int64_t t0 = clock_ns();
        ok = run_program_call(p, CX, in, e->nin, out, e->nout, &err);
        int64_t ns = clock_ns() - t0;
        for (int i = 0; ok && i < e->nout; i++) {
            val_clear(&out[i]);
            out[i] = vNone;
        }
        if (ok)
            e->times.eager = e->times.eager ? MIN(e->times.eager, ns) : ns;
    }
    for (int i = 0; i < e->nin; i++)
        if (in[i].kind == VAL_tensor)
            tensor_unref(in[i].t);
    run_program_free(p);
    free(in);
    free(out);
    rng->s = was;
    py_forget();
}

static bool profiling(void) { return env_on(ENV_profile) || cfg_bool("profile", false); }

/* Before a run: afterwards the inputs may be gone. */
void metrics_profile(entry *e, PyObject **reg)
{
    if (e->hits && e->hits <= 2 && !e->times.eager && profiling())
        measure_eager(e, reg);
}

void metrics_ran(entry *e, int64_t ns, bool first)
{
    struct run_times *t = &e->times;
    if (first)
        t->first = ns;
    else {
        t->warm += ns;
        t->best = t->nwarm ? MIN(t->best, ns) : ns;
        t->nwarm++;
    }
    if (!(e->hits & (e->hits - 1)))
        times_record(NULL, e);
}

/* ---- the order of runs ---- */
enum { ORDER = 10000 }; /* the first ones: where ranks part ways is seen early */
static VEC(ev_cid) order;

void metrics_order(const entry *e)
{
    if (order.n < ORDER)
        vec_push(&order, ((ev_cid){ e->r->frame_id, e->compile_id, 0 }));
}

static void order_record(void)
{
    strbuf b = { 0 };
    if (!order.n || !ev_trace_on(EV_artifact))
        return;
    strbuf_add(&b, "{\"graph_execution_order\": [");
    for (size_t i = 0; i < order.n; i++)
        strbuf_addf(&b, "%s{\"compile_id\": \"%d/%d\"}", i ? ", " : "", order.at[i].frame,
                    order.at[i].compile);
    strbuf_add(&b, "]}");
    ev_artifact("graph_execution", "json", NULL, strbuf_str(&b));
    strbuf_free(&b);
    vec_free(&order);
}

/* ---- recompiles ---- */
static PyObject *contexts; /* a function that says where the program is, as a JSON list; NULL: nobody asked */

void metrics_recompile(const char *reason)
{
    PyObject *s = contexts ? PyObject_CallNoArgs(contexts) : NULL;
    const char *list = s && PyUnicode_Check(s) ? PyUnicode_AsUTF8(s) : NULL;
    if (contexts && !list && PyErr_Occurred()) /* a hook of the program failed: the compile goes on */
        PyErr_WriteUnraisable(contexts);
    ev_metrics_recompile(reason, list);
    Py_XDECREF(s);
}

/* _recompile_contexts(f or None) */
static PyObject *set_contexts(PyObject *m, PyObject *f)
{
    Py_XSETREF(contexts, f == Py_None ? NULL : Py_NewRef(f));
    Py_RETURN_NONE;
}

/* ---- surroundings ---- */
static bool environment_known;
void metrics_environment(void)
{
    if (environment_known || !ev_trace_on(EV_compilation_metrics))
        return;
    environment_known = true;
    PyObject *m = PyImport_ImportModule("taper._dynamo.config"),
             *s = m ? PyObject_CallMethod(m, "_environment", NULL) : NULL;
    ev_metrics_environment(s && PyUnicode_Check(s) ? PyUnicode_AsUTF8(s) : NULL);
    py_forget();
    Py_XDECREF(s);
    Py_XDECREF(m);
}

/* gc.callbacks: (phase, info), at the beginning and at the end of each collection. */
static PyObject *gc_passes(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    static int64_t began; /* collections do not nest, and run with the GIL */
    const char *phase = n && PyUnicode_Check(args[0]) ? PyUnicode_AsUTF8(args[0]) : NULL;
    if (!phase)
        PyErr_Clear();
    else if (!strcmp(phase, "start"))
        began = clock_ns();
    else if (began) {
        ev_metrics_part(EVP_gc, clock_ns() - began);
        began = 0;
    }
    Py_RETURN_NONE;
}

void metrics_watch_gc(void)
{
    static PyMethodDef def = { "_gc_passes", (PyCFunction)(void (*)(void))gc_passes, METH_FASTCALL, NULL };
    static bool watched;
    if (watched || !ev_trace_on(EV_compilation_metrics))
        return;
    watched = true;
    PyObject *gc = PyImport_ImportModule("gc"), *list = gc ? PyObject_GetAttrString(gc, "callbacks") : NULL,
             *fn = list ? PyCFunction_New(&def, NULL) : NULL;
    if (fn && PyList_Check(list))
        PyList_Append(list, fn);
    py_forget();
    Py_XDECREF(fn);
    Py_XDECREF(list);
    Py_XDECREF(gc);
}

/* _metrics_environment(None): settings changed. */
static PyObject *environment_changed(PyObject *m, PyObject *x)
{
    environment_known = false;
    Py_RETURN_NONE;
}

/* ---- Python ---- */
static void add_times(void *list, entry *e)
{
    strbuf b = { 0 };
    times_json(&b, e);
    PyObject *s = PyUnicode_DecodeUTF8(strbuf_str(&b), (Py_ssize_t)b.n, "replace");
    if (s)
        PyList_Append(list, s);
    Py_XDECREF(s);
    strbuf_free(&b);
}

/* _capture_metrics() -> (compiles, regions): lists of JSON texts, as the trace holds them. */
static PyObject *metrics(PyObject *m, PyObject *x)
{
    PyObject *c = PyList_New(0), *r = PyList_New(0);
    for (int i = 0; c && ev_metrics_at(i); i++) {
        const char *t = ev_metrics_at(i);
        PyObject *s = PyUnicode_DecodeUTF8(t, (Py_ssize_t)strlen(t), "replace");
        if (s)
            PyList_Append(c, s);
        Py_XDECREF(s);
    }
    if (r)
        cap_each_entry(add_times, r);
    if (!c || !r || PyErr_Occurred()) {
        Py_XDECREF(c);
        Py_XDECREF(r);
        return NULL;
    }
    return Py_BuildValue("(NN)", c, r);
}

static PyObject *metrics_clear(PyObject *m, PyObject *x)
{
    ev_metrics_clear();
    Py_RETURN_NONE;
}

static void ledger_row(strbuf *text, json_w *w, PyObject *t)
{
    const char *fn, *file, *why;
    int first, line, id, ops, version;
    unsigned long long runs, native;
    PyObject *reason;
    if (!PyArg_ParseTuple(t, "ssiiiiKKOi", &fn, &file, &first, &line, &id, &ops, &runs, &native, &reason,
                          &version)) {
        py_forget();
        return;
    }
    why = PyUnicode_Check(reason) ? PyUnicode_AsUTF8(reason) : NULL;
    if (id >= 0)
        strbuf_addf(text, "%s%s (%s:%d) [%d/%d]: compiled, %d op%s, ran %llu time%s", text->n ? "\n" : "", fn,
                    file, line ? line : first, id, version, ops, plural(ops), runs, plural((int64_t)runs));
    else
        strbuf_addf(text, "%s%s (%s:%d): eager %llu time%s", text->n ? "\n" : "", fn, file,
                    line ? line : first, native, plural((int64_t)native));
    if (why)
        strbuf_addf(text, " (%s)", why);
    json_obj(w);
    json_key(w, "function");
    json_str(w, fn);
    json_key(w, "file");
    json_str(w, file);
    number(w, "line", line ? line : first);
    number(w, "frame_id", id);
    number(w, "frame_compile_id", version);
    number(w, "ops", ops);
    number(w, "compiled_runs", (int64_t)runs);
    number(w, "eager_runs", (int64_t)native);
    json_key(w, "reason");
    json_str(w, why);
    json_end(w);
}

/* _capture_finish(): before everything is forgotten, the ledger and the times of all calls are told. */
static PyObject *finish(PyObject *m, PyObject *x)
{
    if (!ev_text_on(EV_ledger) && !ev_trace_on(EV_artifact))
        Py_RETURN_NONE;
    PyObject *rows = cap_ledger();
    strbuf text = { 0 }, b = { 0 };
    json_w w = { &b };
    if (!rows)
        return NULL;
    cap_each_entry(times_record, NULL);
    order_record();
    json_arr(&w);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(rows); i++)
        ledger_row(&text, &w, PyList_GET_ITEM(rows, i));
    json_end(&w);
    if (PyList_GET_SIZE(rows)) {
        ev_text(EV_ledger, NULL, "LEDGER\n%s", strbuf_str(&text));
        ev_artifact("ledger", "json", NULL, strbuf_str(&b));
    }
    strbuf_free(&text);
    strbuf_free(&b);
    Py_DECREF(rows);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    { "_capture_metrics", metrics, METH_NOARGS, "numbers of compiles and calls, as JSON texts" },
    { "_recompile_contexts", set_contexts, METH_O,
      "what says where the program is when something is compiled again" },
    { "_metrics_environment", environment_changed, METH_O, "settings changed" },
    { "_capture_metrics_clear", metrics_clear, METH_NOARGS, "forget the numbers of compiles" },
    { "_capture_finish", finish, METH_NOARGS, "tell the ledger and the times of calls" },
    { NULL }
};

int py_init_metrics(PyObject *m) { return PyModule_AddFunctions(m, functions); }
