/* debug.c - the debugging tools from Python: comparing results, saved failures, their scripts. */
#include "debug/artefacts.h"
#include "capture/capture.h"
#include "base/fault.h"
#include "base/file.h"
#include "debug/minify.h"
#include "debug/wrap.h"
#include "ops/host.h"

/* _acc_same(ref, res, fp64 or None, tol, equal_nan, ignore_non_fp, any_dtype, larger, max, cosine, iou) -> None when they agree, or
 * why not */
static PyObject *f_acc_same(PyObject *m, PyObject *args)
{
    PyObject *a, *b, *c;
    acc_opts o = { 0 };
    int nan, nofp, any, larger, most, cosine;
    if (!PyArg_ParseTuple(args, "O!O!Odppppppd:_acc_same", &PyTensor_Type, &a, &PyTensor_Type, &b, &c, &o.tol,
                          &nan, &nofp, &any, &larger, &most, &cosine, &o.iou))
        return NULL;
    o.equal_nan = nan, o.ignore_non_fp = nofp, o.any_dtype = any;
    o.larger_multiplier = larger, o.max_multiplier = most, o.cosine = cosine;
    if (tensor_is_fake(py_tensor(a)) || tensor_is_fake(py_tensor(b))) {
        PyErr_SetString(PyExc_AssertionError, "fake tensors have no values to compare");
        return NULL;
    }
    strbuf why = { 0 };
    bool third = py_is_tensor(c) && !tensor_is_fake(py_tensor(c));
    bool ok = acc_same(py_tensor(a), py_tensor(b), third ? py_tensor(c) : NULL, &o, &why);
    PyObject *r = ok ? Py_NewRef(Py_None) : PyUnicode_FromString(strbuf_str(&why));
    strbuf_free(&why);
    return r;
}

/* ---- settings ---- */
static void read_config(debug_config *c) /* taper._dynamo.config; under the GIL, else the last answer */
{
    static debug_config last = { .level = 2, .tol = 1e-3 };
    if (PyGILState_Check()) {
        PyObject *o = cfg_obj("repro_after"), *tol = cfg_obj("repro_tolerance");
        const char *s = o && PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : NULL;
        debug_config n = { .level = (int)cfg_int("repro_level", 2), .tol = 1e-3 };
        n.after = !o || o == Py_None || (s && !*s) ? AFTER_none
                  : s && !strcmp(s, "dynamo")      ? AFTER_dynamo
                  : s && !strcmp(s, "aot")         ? AFTER_aot
                                                   : AFTER_wrong;
        if (n.after == AFTER_wrong)
            snprintf(n.wrong, sizeof n.wrong, "%s", s ? s : Py_TYPE(o)->tp_name);
        if (n.after != AFTER_none) {
            n.forward_only = cfg_bool("repro_forward_only", false);
            n.ignore_non_fp = cfg_bool("repro_ignore_non_fp", false);
            n.no_fp64 = !cfg_bool("same_two_models_use_fp64", true);
            if (tol && PyFloat_Check(tol))
                n.tol = PyFloat_AS_DOUBLE(tol);
            PyObject *dir = cfg_obj("debug_dir_root");
            bundle_set_root(dir && PyUnicode_Check(dir) ? PyUnicode_AsUTF8(dir) : NULL);
        }
        PyErr_Clear();
        last = n;
    }
    *c = last;
}

static void facts(json_w *w) /* Python's version and the settings that were changed */
{
    if (!PyGILState_Check())
        return;
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    json_key(w, "python");
    json_strf(w, "%d.%d.%d", PY_MAJOR_VERSION, PY_MINOR_VERSION, PY_MICRO_VERSION);
    PyObject *m = PyImport_ImportModule("taper._dynamo.config"),
             *j = m ? PyObject_CallMethod(m, "_changes_json", NULL) : NULL;
    if (j && PyUnicode_Check(j)) {
        json_key(w, "config");
        json_raw(w, PyUnicode_AsUTF8(j));
    }
    Py_XDECREF(j);
    Py_XDECREF(m);
    PyErr_Clear();
    PyErr_Restore(t, v, tb);
}

/* The exception that is set says where its failure was saved. */
void cap_note_saved(void)
{
    char *path = debug_take_path();
    if (!path)
        return;
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    PyErr_NormalizeException(&t, &v, &tb);
    if (v) {
        PyObject
            *p = PyUnicode_FromString(path),
            *r = PyObject_CallMethod(
                v, "add_note", "N",
                PyUnicode_FromFormat(
                    strstr(path, "minifier_launcher.py")
                        ? "Minifier script written to %s. Run this script to find the smallest "
                          "traced graph which reproduces this error."
                        : "The graph is saved as %s. Run this script to see the error again; with the word "
                          "'minify' behind it, it finds the smallest graph which reproduces this error.",
                    path));
        if (p)
            PyObject_SetAttrString(v, "minifier_path", p);
        Py_XDECREF(p);
        Py_XDECREF(r);
        PyErr_Clear();
    }
    PyErr_Restore(t, v, tb);
    free(path);
}

/* ---- repros ---- */
static void repro_drop(PyObject *c) { repro_free(PyCapsule_GetPointer(c, "taper.repro")); }
static repro *repro_at(PyObject *c) { return PyCapsule_GetPointer(c, "taper.repro"); }
static PyObject *repro_obj(repro *r)
{
    PyObject *c = PyCapsule_New(r, "taper.repro", repro_drop);
    if (!c)
        repro_free(r);
    return c;
}

/* _repro_new(graph: text or a capture's capsule, args, backend, inner, accuracy, only_fwd, save_dir or None, seed, offset,
 * lines that make the backend known or None) */
static PyObject *f_repro_new(PyObject *m, PyObject *args)
{
    PyObject *graph, *list, *cap = NULL;
    const char *name, *save, *setup = NULL;
    int inner, accuracy, fwd;
    unsigned long long seed, offset;
    tp_err err = { 0 };
    ir_graph *g = NULL, *own = NULL;
    if (!PyArg_ParseTuple(args, "OO!spppzKK|z:_repro_new", &graph, &PyList_Type, &list, &name, &inner,
                          &accuracy, &fwd, &save, &seed, &offset, &setup))
        return NULL;
    if (PyUnicode_Check(graph)) {
        Py_ssize_t n;
        const char *text = PyUnicode_AsUTF8AndSize(graph, &n);
        if (!text)
            return NULL;
        g = own = ir_parse(text, (size_t)n, "<repro>", NULL, &err);
        char *side = save ? path_join(save, "graph.py.safetensors") : NULL;
        if (g && side && file_exists(side) && !ir_consts_load(g, side, &err)) {
            ir_graph_free(g);
            g = own = NULL;
        }
        free(side);
    } else if (!(g = PyCapsule_GetPointer(graph, "taper.graph")))
        return NULL;
    if (!g)
        return py_raise(&err);
    int n = (int)PyList_GET_SIZE(list);
    tp_val *in = mem_zalloc(sizeof *in * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        PyObject *o = PyList_GET_ITEM(list, i);
        in[i] = py_is_tensor(o) ? vT(py_tensor(o)) : PyLong_Check(o) ? vI(PyLong_AsLongLong(o)) : vNone;
    }
    if (ir_check_inputs(g, in, n, &err)) {
        repro *r = repro_new(g, in, n, name);
        r->inner = inner;
        r->accuracy = accuracy;
        r->forward_only = fwd;
        r->seed = seed;
        r->offset = offset;
        r->setup = setup ? mem_strdup(setup) : NULL;
        debug_config c = debug_config_now();
        r->acc.tol = c.tol;
        r->acc.ignore_non_fp = cfg_bool("repro_ignore_non_fp", false);
        r->no_fp64 = !cfg_bool("same_two_models_use_fp64", true);
        cap = repro_obj(r);
    }
    free(in);
    ir_graph_free(own);
    return cap ? cap : py_raise(&err);
}

static PyObject *f_repro_load(PyObject *m, PyObject *args) /* _repro_load(bundle) */
{
    const char *dir;
    tp_err err = { 0 };
    if (!PyArg_ParseTuple(args, "s:_repro_load", &dir))
        return NULL;
    repro *r = bundle_read(dir, NULL, true, &err);
    return r ? repro_obj(r) : py_raise(&err);
}

static PyObject *sig_dict(const signature *s)
{
    return Py_BuildValue("{ss ss ss ss si}", "kind", sig_name(s->kind), "stage", s->stage, "type", s->type,
                         "message", s->full, "signal", s->number);
}
static void sig_from(PyObject *d, signature *s)
{
    PyObject *k = d && PyDict_Check(d) ? PyDict_GetItemString(d, "kind") : NULL,
             *msg = k ? PyDict_GetItemString(d, "message") : NULL;
    sig_set(s, k ? sig_by_name(PyUnicode_AsUTF8(k)) : SIG_passes, "", msg ? PyUnicode_AsUTF8(msg) : "");
}

/* _repro_trial(repro, in a child, timeout in s) -> dict */
static PyObject *f_repro_trial(PyObject *m, PyObject *args)
{
    PyObject *c;
    int child;
    double secs;
    signature s;
    tp_err err = { 0 };
    if (!PyArg_ParseTuple(args, "Opd:_repro_trial", &c, &child, &secs) || !repro_at(c))
        return NULL;
    const repro *r = repro_at(c);
    if (!child)
        trial_here(r, &s);
    else if (!trial_run(&r, 1, &(trial_limits){ .timeout_ms = (int64_t)(secs * 1000) }, &s, &err))
        return py_raise(&err);
    return sig_dict(&s);
}

/* _repro_script(repro, signature or None, command, save_dir, tracing_mode, check_str, compiler, stable) -> str */
static PyObject *f_repro_script(PyObject *m, PyObject *args)
{
    PyObject *c, *sd;
    script_opts o = { 0 };
    int stable;
    signature s;
    strbuf b = { 0 };
    if (!PyArg_ParseTuple(args, "OOzzzzzp:_repro_script", &c, &sd, &o.command, &o.save_dir, &o.tracing_mode,
                          &o.check_str, &o.compiler, &stable) ||
        !repro_at(c))
        return NULL;
    o.stable = stable;
    sig_from(sd, &s);
    script_python(&b, repro_at(c), &s, &o);
    PyObject *r = PyUnicode_DecodeUTF8(strbuf_str(&b), (Py_ssize_t)b.n, "replace");
    strbuf_free(&b);
    return r;
}

static PyObject *
f_repro_c(PyObject *m,
          PyObject *args) /* _repro_c(repro, signature) -> str, or None where no kernels are made */
{
    PyObject *c, *sd;
    signature s;
    strbuf b = { 0 };
    if (!PyArg_ParseTuple(args, "OO:_repro_c", &c, &sd) || !repro_at(c))
        return NULL;
    sig_from(sd, &s);
    bool ok = script_c(&b, repro_at(c), &s, &(tp_err){ 0 });
    PyObject *r = ok ? PyUnicode_DecodeUTF8(strbuf_str(&b), (Py_ssize_t)b.n, "replace") : Py_NewRef(Py_None);
    strbuf_free(&b);
    return r;
}

static PyObject *f_repro_save(PyObject *m, PyObject *args) /* _repro_save(repro, signature, directory) */
{
    PyObject *c, *sd;
    const char *dir;
    signature s;
    tp_err err = { 0 };
    if (!PyArg_ParseTuple(args, "OOs:_repro_save", &c, &sd, &dir) || !repro_at(c))
        return NULL;
    sig_from(sd, &s);
    return bundle_write(dir, repro_at(c), &s, &err) ? Py_NewRef(Py_None) : py_raise(&err);
}

/* _repro_dump(repro, signature, graph, launcher, compiler) -> path of the script, or None */
static PyObject *f_repro_dump(PyObject *m, PyObject *args)
{
    PyObject *c, *sd;
    int graph, launcher;
    const char *who;
    signature s;
    if (!PyArg_ParseTuple(args, "OOppz:_repro_dump", &c, &sd, &graph, &launcher, &who) || !repro_at(c))
        return NULL;
    sig_from(sd, &s);
    debug_config_now(); /* where to */
    char *path = debug_dump(repro_at(c), &s, (graph ? DUMP_graph : 0) | (launcher ? DUMP_launcher : 0), who);
    PyObject *r = path ? PyUnicode_DecodeFSDefault(path) : Py_NewRef(Py_None);
    free(path);
    free(debug_take_path());
    return r;
}

static PyObject *f_repro_diverge(PyObject *m, PyObject *c) /* (node, text), or None */
{
    strbuf b = { 0 };
    char *node = NULL;
    PyObject *r = NULL;
    if (!repro_at(c))
        return NULL;
    if (trial_diverge(repro_at(c), &b, &node))
        r = Py_BuildValue("zs", node, strbuf_str(&b));
    free(node);
    strbuf_free(&b);
    return r ? r : Py_NewRef(Py_None);
}

static PyObject *f_repro_analyze(PyObject *m, PyObject *args) /* _repro_analyze(repro, once) -> lines */
{
    PyObject *c;
    int once;
    strbuf b = { 0 };
    if (!PyArg_ParseTuple(args, "Op:_repro_analyze", &c, &once) || !repro_at(c))
        return NULL;
    trial_analyze(repro_at(c), once, &b);
    PyObject *r = PyUnicode_FromString(strbuf_str(&b));
    strbuf_free(&b);
    return r;
}

static PyObject *f_repro_info(PyObject *m, PyObject *c) /* (nodes, operators, inputs) */
{
    const repro *r = repro_at(c);
    return r ? Py_BuildValue("iii", r->g->nnode, repro_ops(r), r->nin) : NULL;
}

/* ---- the minifier ---- */
/* _repro_parts(repro) -> (graph, inputs): for backends written in Python */
static PyObject *f_repro_parts(PyObject *m, PyObject *c)
{
    const repro *r = repro_at(c);
    if (!r)
        return NULL;
    tp_val *in = inputs_copy(r->in, r->nin, DT_none, NULL);
    PyObject *list = in ? PyList_New(r->nin) : NULL, *g = graph_view(ir_graph_copy(r->g));
    for (int i = 0; list && i < r->nin; i++) {
        PyObject *o = in[i].kind != VAL_tensor ? PyLong_FromLongLong(in[i].i) : NULL;
        if (in[i].kind == VAL_tensor) {
            if (r->needs_grad[i])
                grad_set_requires_grad(CX, in[i].t, true, NULL);
            o = py_wrap(tensor_ref(in[i].t));
        }
        if (o)
            PyList_SET_ITEM(list, i, o);
    }
    inputs_free(in, r->nin);
    if (list && g && !PyErr_Occurred())
        return Py_BuildValue("NN", g, list);
    Py_XDECREF(list);
    Py_XDECREF(g);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

typedef struct search_py {
    PyObject *line, *best, *tester; /* callables or None */
    const char *check;
    bool failed;
} search_py;
static bool py_interrupted(void *data) { return PyErr_CheckSignals() < 0; }
static void py_line(void *data, const char *text)
{
    search_py *s = data;
    PyObject *r = s->line != Py_None ? PyObject_CallFunction(s->line, "s", text) : NULL;
    Py_XDECREF(r);
}
static void py_best(void *data, const repro *r, int nodes)
{
    search_py *s = data;
    PyObject *c = s->best != Py_None ? repro_obj(repro_copy(r)) : NULL,
             *x = c ? PyObject_CallOneArg(s->best, c) : NULL;
    s->failed |= c && !x;
    Py_XDECREF(x);
    Py_XDECREF(c);
}

/* tester(repro) -> None, or what went wrong */
static bool py_fails(void *data, const repro *r, signature *out)
{
    search_py *s = data;
    PyObject *c = repro_obj(repro_copy(r)), *x = c ? PyObject_CallOneArg(s->tester, c) : NULL;
    const char *text = x && PyUnicode_Check(x) ? PyUnicode_AsUTF8(x) : NULL;
    sig_set(out, text ? SIG_exception : SIG_passes, "run", text ? text : "");
    bool yes = text != NULL;
    if (!x)
        PyErr_Clear();
    Py_XDECREF(x);
    Py_XDECREF(c);
    return yes;
}

/* _repro_minify(repro, timeout, isolate, check_str, state file or None, line, best, tester, max_granularity or 0,
 *               skip_sanity, directory for values or None, reuse them) -> (repro, dict) */
static PyObject *f_repro_minify(PyObject *m, PyObject *args)
{
    PyObject *c;
    search_py s = { 0 };
    double secs;
    int isolate, granularity = 0, skip = 0, reuse = 0;
    const char *resume, *offload = NULL;
    tp_err err = { 0 };
    minify_stats st = { 0 };
    if (!PyArg_ParseTuple(args, "OdpzzOOO|ipzp:_repro_minify", &c, &secs, &isolate, &s.check, &resume,
                          &s.line, &s.best, &s.tester, &granularity, &skip, &offload, &reuse) ||
        !repro_at(c))
        return NULL;
    minify_opts o = { .limits = { .timeout_ms = (int64_t)(secs * 1000), .interrupted = py_interrupted },
                      .progress = py_line,
                      .best = py_best,
                      .data = &s,
                      .here = !isolate,
                      .fails = s.tester != Py_None ? py_fails : NULL,
                      .check_str = s.check,
                      .max_granularity = granularity,
                      .skip_sanity = skip,
                      .offload = offload,
                      .reuse_offloaded = reuse,
                      .memo_file = resume };
    repro *r = minify(repro_at(c), &o, &st, &err);
    if (PyErr_Occurred() && !r)
        return NULL;
    PyErr_Clear();
    if (!r)
        return py_raise(&err);
    PyObject *cap = repro_obj(r), *sig = sig_dict(&st.sig);
    return Py_BuildValue("N{sisisisisdsNsOsi}", cap, "before", st.before, "after", st.after, "trials",
                         st.trials, "hits", st.hits, "seconds", st.seconds, "signature", sig, "stopped",
                         st.stopped ? Py_True : Py_False, "verified", st.verified);
}

static PyObject *f_inject(PyObject *m, PyObject *args) /* _inject(spec or None) */
{
    const char *spec;
    tp_err err = { 0 };
    if (!PyArg_ParseTuple(args, "z:_inject", &spec))
        return NULL;
    return fault_set(spec, &err) ? Py_NewRef(Py_None) : py_raise(&err);
}
static PyObject *f_injected(PyObject *m, PyObject *x)
{
    return fault_spec() ? PyUnicode_FromString(fault_spec()) : Py_NewRef(Py_None);
}

static PyObject *f_sync(PyObject *m, PyObject *x) /* waits for the device; raises what went wrong on it */
{
    tp_err err = { 0 };
    return device_sync(DEVICE_CPU, &err) ? Py_NewRef(Py_None) : py_raise(&err);
}

static PyMethodDef functions[] = {
    { "_sync", f_sync, METH_NOARGS, "waits for the device" },
    { "_acc_same", f_acc_same, METH_VARARGS, "None, or why two tensors differ" },
    { "_repro_new", f_repro_new, METH_VARARGS, "a graph with inputs and a backend" },
    { "_repro_load", f_repro_load, METH_VARARGS, "the same from a bundle" },
    { "_repro_trial", f_repro_trial, METH_VARARGS, "what happens when it runs" },
    { "_repro_script", f_repro_script, METH_VARARGS, "its Python script" },
    { "_repro_c", f_repro_c, METH_VARARGS, "its kernels as a C program" },
    { "_repro_save", f_repro_save, METH_VARARGS, "saves it as a bundle" },
    { "_repro_dump", f_repro_dump, METH_VARARGS, "saves it as a failure is saved" },
    { "_repro_diverge", f_repro_diverge, METH_O, "the first node that differs" },
    { "_repro_analyze", f_repro_analyze, METH_VARARGS, "all nodes that differ" },
    { "_repro_info", f_repro_info, METH_O, "nodes, operators, inputs" },
    { "_repro_parts", f_repro_parts, METH_O, "its graph and inputs" },
    { "_repro_minify", f_repro_minify, METH_VARARGS, "the smallest one that still fails" },
    { "_inject", f_inject, METH_VARARGS, "plants faults for testing" },
    { "_injected", f_injected, METH_NOARGS, "the faults planted" },
    { NULL, NULL, 0, NULL },
};

int py_init_debug(PyObject *m)
{
    artefacts_init();
    host.debug_config = read_config;
    host.facts = facts;
    return PyModule_AddFunctions(m, functions);
}
