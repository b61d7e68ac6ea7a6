/* compile.c - taper.compile: the callable it returns, backends, settings, the ledger. */
#include "base/envvars.h"
#include "base/source.h"
#include "capture/capture.h"
#include "events/metrics.h"
#include "target/c/c.h"

extern PyObject *break_list;

static PyObject *config;   /* dict of taper._dynamo.config */
static PyObject *counters; /* taper._dynamo.utils.counters */
static bool off;           /* TAPER_COMPILE_DISABLE */
static int stance;         /* STANCE_* */
static PyObject *forced;   /* set_stance(force_backend=): in place of every backend; NULL: none */
int cap_stance(void) { return stance; }

const char *cap_brand(void) { return py_prefix; }

/* Settings are asked for by literals, many times in a capture: the string of each is made once. */
static PyObject *cfg_key(const char *name) /* borrowed, or NULL: there is no room */
{
    static struct {
        const char *name;
        PyObject *key;
    } kept[128];
    for (size_t i = ((uintptr_t)name * 0x9e3779b97f4a7c15u) >> 57, k = 0; k < 8;
         k++, i = (i + 1) % COUNT(kept)) {
        if (!kept[i].name && (kept[i].key = PyUnicode_InternFromString(name)))
            kept[i].name = name;
        if (kept[i].name == name)
            return kept[i].key;
    }
    PyErr_Clear();
    return NULL;
}
PyObject *cfg_obj(const char *name)
{
    PyObject *key = config ? cfg_key(name) : NULL;
    return key ? PyDict_GetItem(config, key) : config ? PyDict_GetItemString(config, name) : NULL;
}
bool cfg_bool(const char *name, bool dflt)
{
    PyObject *o = cfg_obj(name);
    return o ? o == Py_True || (o != Py_False && o != Py_None && PyObject_IsTrue(o) == 1) : dflt;
}
long cfg_int(const char *name, long dflt)
{
    PyObject *o = cfg_obj(name);
    return o && PyLong_Check(o) ? PyLong_AsLong(o) : dflt;
}

PyObject *exc_class(const char *name)
{
    static PyObject *mod;
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    if (!mod)
        mod = PyImport_ImportModule("taper._dynamo.exc");
    PyObject *c = mod ? PyObject_GetAttrString(mod, name) : NULL;
    py_forget();
    PyErr_Restore(t, v, tb);
    Py_XDECREF(c); /* the module keeps it */
    return c;
}

void cap_count(const char *group, const char *key, int n)
{
    if (!counters)
        return;
    PyObject *et, *ev, *etb;
    PyErr_Fetch(&et, &ev, &etb);
    cap_cfg *was_hook = hook_push(NULL); /* a Counter is made by Python code, which is none of the user's */
    PyObject *g = PyUnicode_FromString(group), *d = g ? PyObject_GetItem(counters, g) : NULL,
             *k = PyUnicode_FromString(key);
    PyObject *was = d && k && PyDict_Check(d) ? PyDict_GetItemWithError(d, k) : NULL,
             *now = PyLong_FromLong((was ? PyLong_AsLong(was) : 0) + n);
    if (d && k && now)
        PyObject_SetItem(d, k, now);
    py_forget();
    hook_pop(NULL, was_hook);
    PyErr_Restore(et, ev, etb);
    Py_XDECREF(g);
    Py_XDECREF(d);
    Py_XDECREF(k);
    Py_XDECREF(now);
}

/* ---- files that are not followed ---- */
bool cap_is_skipped_file(const char *file)
{
    static char stdlib[400], pkg[400];
    /* of the standard library: what deals with the process, files and code, and what draws. The rest is followed. */
    static const char *const outside[] = {
        "copy.py",       "importlib/", "random.py",        "re/",         "re.py",
        "sre_",          "linecache",  "logging/",         "warnings.py", "threading.py",
        "_pydecimal.py", "subprocess", "multiprocessing/", "asyncio/",    "concurrent/",
        "traceback.py",  "pickle",     "tempfile.py",      "unittest/",   "pdb.py",
        "bdb.py",        "cmd.py",     "codeop.py",        "code.py",     "runpy.py",
        "profile.py",    "cProfile",   "tracemalloc.py",   "signal.py",   "socket",
        "select",        "queue.py",   "_weakrefset.py",   "shutil.py",   "glob.py",
        "gzip.py",       "zipfile",    "tarfile.py",       "io.py",       "_pyio.py",
        "codecs.py",     "encodings/", "ctypes/",          "json/",       "site.py",
        "gettext.py",    "locale.py",  "argparse.py",      "token",       "ast.py",
        "dis.py",        "http/",      "urllib/",          "xml/",        "email/",
        "ssl.py",        "uuid.py",    "platform.py",      "sysconfig",   "getpass.py",
        "tkinter/",      "sqlite3/",   "distutils/",       "ensurepip/",  "lib2to3/",
        "pydoc",         "doctest.py", "trace.py",         "timeit.py",   "sched.py",
        "pathlib",       "fileinput",  "hashlib.py",       "hmac.py",     "secrets.py"
    };
    static const char *const own[] = { "_dynamo/",  "fx/",        "compiler/", "testing/",
                                       "_logging/", "_inductor/", "_never.py" };
    if (!stdlib[0]) {
        PyObject *os = PyImport_ImportModule("os"), *f = os ? PyObject_GetAttrString(os, "__file__") : NULL;
        snprintf(stdlib, sizeof stdlib, "%s", f ? PyUnicode_AsUTF8(f) : "?");
        char *s = strrchr(stdlib, '/');
        if (s)
            s[1] = 0;
        Py_XDECREF(os);
        Py_XDECREF(f);
        PyObject *mf = PyModule_GetFilenameObject(py_module);
        snprintf(pkg, sizeof pkg, "%s", mf ? PyUnicode_AsUTF8(mf) : "?");
        if ((s = strrchr(pkg, '/')))
            s[1] = 0;
        Py_XDECREF(mf);
        py_forget();
    }
    if (!strncmp(file, pkg, strlen(pkg))) {
        for (size_t i = 0; i < COUNT(own); i++)
            if (!strncmp(file + strlen(pkg), own[i], strlen(own[i])))
                return true;
        return false;
    }
    if (!strncmp(file, "<frozen", 7)) {
        return !strstr(file, "abc>") && !strstr(file, "_collections_abc") && strcmp(file, "<frozen os>") &&
               strcmp(file, "<frozen posixpath>");
    }
    if (strstr(file, "-packages/numpy/"))
        return true; /* its functions are known or they are not; what they are made of is its own business */
    if (strncmp(file, stdlib, strlen(stdlib)) || strstr(file, "-packages/"))
        return false;
    for (size_t i = 0; i < COUNT(outside); i++)
        if (!strncmp(file + strlen(stdlib), outside[i], strlen(outside[i])))
            return true;
    return false;
}

/* ---- the callable ---- */
typedef struct PyCompiled {
    PyObject_HEAD vectorcallfunc call;
    PyObject *fn; /* what was given */
    cap_cfg *cfg;
    PyObject *dict, *weakrefs;
    bool ran; /* under a stance that treats the first call apart */
} PyCompiled;
extern PyTypeObject PyCompiled_Type;

PyObject *compiled_inner(PyObject *o)
{
    return Py_TYPE(o) == &PyCompiled_Type ? ((PyCompiled *)o)->fn : NULL;
}

cap_cfg *compiled_cfg(PyObject *o) { return Py_TYPE(o) == &PyCompiled_Type ? ((PyCompiled *)o)->cfg : NULL; }
bool cap_is_disabled(void) { return cap_here()->disabled || stance == 1; }

/* c's settings with another backend. Borrowed; lives as long as c. */
static cap_cfg *with_backend(cap_cfg *c, PyObject *backend)
{
    for (cap_cfg *a = c->alt; a; a = a->alt)
        if (a->backend == backend || (PyUnicode_Check(backend) && PyUnicode_Check(a->backend) &&
                                      PyUnicode_Compare(backend, a->backend) == 0))
            return a;
    cap_cfg *n = cfg_get(backend, c->options, c->dynamic, c->fullgraph,
                         c->guard_fail_fn ? c->guard_fail_fn : Py_None);
    n->alt = c->alt;
    c->alt = n;
    return n;
}

/* The settings for this call, or NULL: it runs eagerly. */
static cap_cfg *by_stance(PyCompiled *c, PyObject *const *args, Py_ssize_t n)
{
    bool first = !c->ran;
    if (stance == STANCE_force_eager)
        return NULL;
    if (stance == STANCE_eager_then_compile || stance == STANCE_aot_eager_then_compile) {
        c->ran = true;
        if (first && stance == STANCE_eager_then_compile) {
            cap_note_sizes(c->fn, args, n);
            return NULL;
        }
        if (first) {
            static PyObject *aot;
            if (!aot)
                aot = PyUnicode_InternFromString("aot_eager");
            return with_backend(c->cfg, aot);
        }
    }
    return forced ? with_backend(c->cfg, forced) : c->cfg;
}

bool cap_suppress(const cap_cfg *cfg, PyObject *fn)
{
    if (!config || !cfg_bool("suppress_errors", false) || cfg->fullgraph)
        return false;
    static const char *const never[] = { "UncapturedHigherOrderOpError", "Unsupported", "RecompileError",
                                         "FailOnRecompileLimitHit" };
    PyObject *cls = exc_class("TorchDynamoException"), *t, *v, *tb;
    if (!cls || !PyErr_ExceptionMatches(cls))
        return false;                         /* the program failed, not the compiler */
    for (size_t i = 0; i < COUNT(never); i++) /* what was asked to be said */
        if (exc_class(never[i]) && PyErr_ExceptionMatches(exc_class(never[i])))
            return false;
    PyErr_Fetch(&t, &v, &tb);
    PyObject *s = v ? PyObject_Str(v) : NULL, *q = fn ? PyObject_Repr(fn) : NULL;
    PyObject *f = fn && PyMethod_Check(fn) ? PyMethod_GET_FUNCTION(fn) : fn;
    PyCodeObject *co = f && PyFunction_Check(f) ? (PyCodeObject *)PyFunction_GET_CODE(f) : NULL;
    char at[600];
    if (co)
        snprintf(at, sizeof at, "%s %s line %d", PyUnicode_AsUTF8(co->co_name),
                 PyUnicode_AsUTF8(co->co_filename), co->co_firstlineno);
    else
        snprintf(at, sizeof at, "%s", q ? PyUnicode_AsUTF8(q) : "?");
    ev_log(EVC_dynamo, EV_WARNING, NULL, "WON'T CONVERT %s\ndue to:\n%s", at, s ? PyUnicode_AsUTF8(s) : "?");
    Py_XDECREF(s);
    Py_XDECREF(q);
    Py_XDECREF(t);
    Py_XDECREF(v);
    Py_XDECREF(tb);
    py_forget();
    return true;
}

/* ---- TAPER_SHADOW=1: the function runs beside as it is written (taper/_dynamo/shadow.py) ---- */
static int shadow = -1; /* not asked yet */
static __thread bool in_shadow;

static PyObject *call_with_shadow(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    PyObject *m = PyImport_ImportModule("taper._dynamo.shadow"), *a = PyTuple_New(n), *kw = PyDict_New(),
             *r = NULL;
    bool ok = m && a && kw;
    for (Py_ssize_t i = 0; ok && i < n; i++)
        PyTuple_SET_ITEM(a, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; ok && kwnames && i < PyTuple_GET_SIZE(kwnames); i++)
        ok = PyDict_SetItem(kw, PyTuple_GET_ITEM(kwnames, i), args[n + i]) == 0;
    in_shadow = true;
    if (ok)
        r = PyObject_CallMethod(m, "call", "OOOO", o, ((PyCompiled *)o)->fn, a, kw);
    in_shadow = false;
    Py_XDECREF(m);
    Py_XDECREF(a);
    Py_XDECREF(kw);
    return r;
}

static PyObject *compiled_call(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyCompiled *c = (PyCompiled *)o;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    const cap_thread *here = cap_here();
    bool plain = here->disabled || off || here->tracing;
    if (TP_UNLIKELY(shadow)) {
        if (shadow < 0)
            shadow = env_on(ENV_shadow);
        if (shadow && !in_shadow && !plain && stance != 1)
            return call_with_shadow(o, args, n, kwnames);
    }
    cap_cfg *cfg = c->cfg;
    if (TP_UNLIKELY(stance || forced) && !plain && !(cfg = by_stance(c, args, n)))
        return PyObject_Vectorcall(c->fn, args, nargsf, kwnames);
    if (TP_UNLIKELY(plain || stance == 1))
        return PyObject_Vectorcall(c->fn, args, nargsf, kwnames);
    PyObject *r;
    if (TP_UNLIKELY(!PyFunction_Check(c->fn) && cap_debugged(c->fn))) /* also what has no code of its own */
        return PyObject_Vectorcall(c->fn, args, nargsf, kwnames);
    if (TP_LIKELY(PyFunction_Check(c->fn)))
        r = cap_run(cfg, c->fn, args, n, kwnames);
    else {
        frame f = { .cfg = cfg };
        r = cap_call_native(&f, c->fn, args, n, kwnames);
    }
    if (TP_UNLIKELY(py_put_off_exc) && r && py_raise_put_off()) /* no loop came */
        Py_CLEAR(r);
    if (TP_UNLIKELY(!r) && cap_suppress(c->cfg, c->fn))
        return PyObject_Vectorcall(c->fn, args, nargsf, kwnames);
    return r;
}

static PyObject *compiled_get(PyObject *o, PyObject *self, PyObject *type)
{
    return self && self != Py_None ? PyMethod_New(o, self) : Py_NewRef(o);
}
static PyObject *compiled_getattr(PyObject *o, PyObject *name)
{
    PyObject *r = PyObject_GenericGetAttr(o, name);
    if (r || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return r;
    py_forget();
    return PyObject_GetAttr(((PyCompiled *)o)->fn, name);
}
static int compiled_traverse(PyObject *o, visitproc visit, void *arg)
{
    Py_VISIT(((PyCompiled *)o)->fn);
    Py_VISIT(((PyCompiled *)o)->dict);
    return 0;
}
static int compiled_clear(PyObject *o)
{
    Py_CLEAR(((PyCompiled *)o)->dict);
    return 0;
}
static void compiled_dealloc(PyObject *o)
{
    PyCompiled *c = (PyCompiled *)o;
    PyObject_GC_UnTrack(o);
    PyObject *type, *value, *tb; /* it dies at any time, also while an exception is on its way */
    PyErr_Fetch(&type, &value, &tb);
    if (c->weakrefs)
        PyObject_ClearWeakRefs(o);
    Py_XDECREF(c->fn);
    Py_XDECREF(c->dict);
    cfg_unref(c->cfg);
    PyErr_Restore(type, value, tb);
    Py_TYPE(o)->tp_free(o);
}
static PyObject *compiled_repr(PyObject *o) { return PyObject_Repr(((PyCompiled *)o)->fn); }
static PyObject *get_fn(PyObject *o, void *x) { return Py_NewRef(((PyCompiled *)o)->fn); }
static PyObject *get_doc(PyObject *o, void *n) { return PyObject_GetAttrString(((PyCompiled *)o)->fn, n); }
static PyGetSetDef compiled_getset[] = {
    { "__wrapped__", get_fn, NULL, "the plain function", NULL },
    { "_torchdynamo_orig_callable", get_fn, NULL, "the plain function", NULL },
    { "__doc__", get_doc, NULL, NULL, "__doc__" },
    { "__name__", get_doc, NULL, NULL, "__name__" },
    { "__qualname__", get_doc, NULL, NULL, "__qualname__" },
    { "__module__", get_doc, NULL, NULL, "__module__" },
    { "__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL },
    { NULL }
};
/* As functions are copied and pickled: copies are the same object, and a pickle holds the name. */
static PyObject *compiled_reduce(PyObject *o, PyObject *x)
{
    PyObject *fn = ((PyCompiled *)o)->fn, *name = PyObject_GetAttrString(fn, "__qualname__");
    if (name || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return name;
    py_forget();
    return PyObject_Repr(fn);
}
static PyMethodDef compiled_methods[] = { { "__reduce__", compiled_reduce, METH_NOARGS, NULL }, { NULL } };
PyTypeObject PyCompiled_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper._C.CompiledFunction",
    .tp_doc = "What taper.compile returns for a function.\n\n>>> f = taper.compile(lambda x: x + 1)\n"
              ">>> isinstance(f, taper.CompiledFunction)\nTrue\n",
    .tp_basicsize = sizeof(PyCompiled),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(PyCompiled, call),
    .tp_dictoffset = offsetof(PyCompiled, dict),
    .tp_weaklistoffset = offsetof(PyCompiled, weakrefs),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = compiled_get,
    .tp_getattro = compiled_getattr,
    .tp_traverse = compiled_traverse,
    .tp_clear = compiled_clear,
    .tp_dealloc = compiled_dealloc,
    .tp_repr = compiled_repr,
    .tp_methods = compiled_methods,
    .tp_getset = compiled_getset
};

static void read_source(void *arg)
{
    char *file = *(char **)arg;
    source_line(file, 1);
    free(file);
}

/* A trace shows lines of the program: the file is read while nothing is compiled yet. */
static void read_ahead(PyObject *fn)
{
    if (!ev_trace_on(EV_dynamo_start))
        return;
    PyObject *f = PyMethod_Check(fn)     ? Py_NewRef(PyMethod_GET_FUNCTION(fn))
                  : PyFunction_Check(fn) ? Py_NewRef(fn)
                                         : PyObject_GetAttrString((PyObject *)Py_TYPE(fn), "forward");
    const char *name = f && PyFunction_Check(f)
                           ? PyUnicode_AsUTF8(((PyCodeObject *)PyFunction_GET_CODE(f))->co_filename)
                           : NULL;
    if (name && source_is_file(name) && !source_is_read(name)) {
        char *file = mem_strdup(name);
        ev_later(read_source, &file, sizeof file, NULL, NULL);
    }
    py_forget();
    Py_XDECREF(f);
}

/* _capture_compile(fn, backend, dynamic, fullgraph, options, guard_fail_fn) */
static PyObject *compile(PyObject *m, PyObject *args)
{
    PyObject *fn, *backend, *dynamic, *options, *gff = Py_None;
    int fullgraph;
    static bool first = true;
    if (!PyArg_ParseTuple(args, "OOOpO|O", &fn, &backend, &dynamic, &fullgraph, &options, &gff))
        return NULL;
    if (first) {
        t_register_modes();
        first = false;
    }
    ev_trace_prepare();
    read_ahead(fn);
    metrics_environment();
    PyCompiled *c = PyObject_GC_New(PyCompiled, &PyCompiled_Type);
    if (!c)
        return NULL;
    c->call = compiled_call;
    c->fn = Py_NewRef(compiled_inner(fn) ? compiled_inner(fn) : fn);
    c->dict = c->weakrefs = NULL;
    c->ran = false;
    c->cfg = cfg_get(backend, options, dynamic == Py_None ? -1 : PyObject_IsTrue(dynamic), fullgraph, gff);
    PyObject_GC_Track((PyObject *)c);
    return (PyObject *)c;
}

static PyObject *set_config(PyObject *m, PyObject *args)
{
    PyObject *c, *k;
    if (!PyArg_ParseTuple(args, "OO", &c, &k))
        return NULL;
    Py_XSETREF(config, Py_NewRef(c));
    Py_XSETREF(counters, Py_NewRef(k));
    Py_RETURN_NONE;
}

/* every code object that capture knows */
static VEC(cap_code *) known;
cap_code *code_at(size_t i) { return i < known.n ? known.at[i] : NULL; }
void code_known(cap_code *cc, bool add)
{
    if (add) {
        vec_push(&known, cc);
        return;
    }
    for (size_t i = 0; i < known.n; i++)
        if (known.at[i] == cc) {
            known.at[i] = known.at[--known.n];
            return;
        }
}

static PyObject *reset(PyObject *m, PyObject *x)
{
    VEC(entry *) dead = { 0 };
    for (size_t i = 0; i < known.n; i++) {
        cap_code *cc = known.at[i];
        cc->debugged = 0;
        for (int k = 0; k < cc->n; k++) {
            region *r = cc->regions[k];
            if (!r)
                continue;
            for (entry *e = r->first; e; e = e->next)
                vec_push(&dead, e);
            Py_CLEAR(r->dynamic);
            *r = (region){ .cc = cc, .ip = k, .frame_id = -1, .native_until = -1 };
        }
    }
    for (size_t i = 0; i < dead.n; i++)
        entry_free(dead.at[i]);
    vec_free(&dead);
    region_reset_ids();
    Py_RETURN_NONE;
}

/* The versions of a region in the order in which they were compiled; they stand in that of their use. */
static entry *version_after(const region *r, int compile_id)
{
    entry *best = NULL;
    for (entry *e = r->first; e; e = e->next)
        if (e->compile_id > compile_id && (!best || e->compile_id < best->compile_id))
            best = e;
    return best;
}

/* _capture_ledger() -> [(function, file, line, region name line, frame id, ops, runs, native, reason, compile id)] */
PyObject *cap_ledger(void)
{
    PyObject *l = PyList_New(0);
    for (size_t i = 0; l && i < known.n; i++) {
        cap_code *cc = known.at[i];
        if (cc->debugged) {
            PyObject *t = Py_BuildValue("(ssiiiiKKsi)", cc->name, cc->file, cc->first_line, 0, -1, 0, 0ULL,
                                        (unsigned long long)cc->debugged,
                                        "uncompiled: a trace function is active (debugger, coverage)", -1);
            if (!t || PyList_Append(l, t) < 0)
                Py_CLEAR(l);
            Py_XDECREF(t);
        }
        if (l && cc->whole_native && cc->calls) {
            PyObject *t = Py_BuildValue("(ssiiiiKKsi)", cc->name, cc->file, cc->first_line, 0, -1, 0, 0ULL,
                                        (unsigned long long)cc->calls, cc->whole_native, -1);
            if (!t || PyList_Append(l, t) < 0)
                Py_CLEAR(l);
            Py_XDECREF(t);
        }
        for (int k = 0; l && k < cc->n; k++) {
            region *r = cc->regions[k];
            if (!r)
                continue;
            for (entry *e = version_after(r, -1); l && e; e = version_after(r, e->compile_id)) {
                PyObject *t = Py_BuildValue("(ssiiiiKKOi)", e->shown.name, e->shown.file, e->shown.line,
                                            e->shown.file == cc->file ? cc->ins[k].line : e->shown.line,
                                            r->frame_id, e->nops, (unsigned long long)e->hits, 0ULL,
                                            e->break_reason ? e->break_reason : Py_None, e->compile_id);
                if (!t || PyList_Append(l, t) < 0)
                    Py_CLEAR(l);
                Py_XDECREF(t);
            }
            if (l && (r->natives || r->limit_hit)) {
                PyObject *t = Py_BuildValue("(ssiiiiKKsi)", cc->name, cc->file, cc->first_line,
                                            cc->ins[k].line, -1, 0, 0ULL, (unsigned long long)r->natives,
                                            r->limit_hit ? "recompile limit" : "no tensor operations", -1);
                if (!t || PyList_Append(l, t) < 0)
                    Py_CLEAR(l);
                Py_XDECREF(t);
            }
        }
    }
    if (l && !py_batch_rows(l))
        Py_CLEAR(l);
    return l;
}

static PyObject *ledger(PyObject *m, PyObject *x) { return cap_ledger(); }

void cap_each_entry(void (*fn)(void *, entry *), void *data)
{
    for (size_t i = 0; i < known.n; i++)
        for (int k = 0; k < known.at[i]->n; k++)
            for (entry *e = known.at[i]->regions[k] ? known.at[i]->regions[k]->first : NULL; e; e = e->next)
                fn(data, e);
}

static PyObject *collect_breaks(PyObject *m, PyObject *on)
{
    PyObject *old = break_list;
    break_list = PyObject_IsTrue(on) ? PyList_New(0) : NULL;
    return old ? old : PyList_New(0);
}
static PyObject *disable_push(PyObject *m, PyObject *n)
{
    cap_here()->disabled += (int)PyLong_AsLong(n);
    Py_RETURN_NONE;
}
/* _capture_stance(number, backend or None) -> the ones before */
static PyObject *set_stance(PyObject *m, PyObject *args)
{
    int n;
    PyObject *backend;
    if (!PyArg_ParseTuple(args, "iO", &n, &backend))
        return NULL;
    PyObject *was = Py_BuildValue("(iO)", stance, forced ? forced : Py_None);
    stance = n;
    Py_XSETREF(forced, backend == Py_None ? NULL : Py_NewRef(backend));
    return was;
}
static PyObject *replay_next(PyObject *m, PyObject *x)
{
    region_replay_id();
    Py_RETURN_NONE;
}
/* _capture_pause(n) -> n before: frames from here on are none of a compiled function's, until as many are set again */
static PyObject *pause_frames(PyObject *m, PyObject *n)
{
    long k = PyLong_AsLong(n);
    if (k == -1 && PyErr_Occurred())
        return NULL;
    int was = cap_here()->running;
    cap_here()->running = (int)k;
    return PyLong_FromLong(was);
}
static PyObject *is_tracing(PyObject *m, PyObject *x) { return PyBool_FromLong(cap_here()->tracing != 0); }
/* The program asks whether it is compiled: captured or not, whatever a compiled function does itself is. */
static PyObject *is_compiling(PyObject *m, PyObject *x)
{
    return PyBool_FromLong(cap_here()->tracing || (cap_here()->running > 0 && !cap_is_disabled()));
}

static PyObject *breaks_table(PyObject *m, PyObject *x)
{
    PyObject *l = PyList_New(0);
    for (int i = 0; l && i < BRK_COUNT; i++) {
        const break_row *r = &break_rows[i];
        PyObject *t = Py_BuildValue("(sssss)", r->id, r->code, r->type, r->explain, r->hint);
        if (!t || PyList_Append(l, t) < 0)
            Py_CLEAR(l);
        Py_XDECREF(t);
    }
    return l;
}
/* _capture_run(fn, cfg_of, args, kwargs): fn through capture with the settings of a compiled function */
static PyObject *run_with(PyObject *m, PyObject *args)
{
    PyObject *fn, *c, *a, *k;
    if (!PyArg_ParseTuple(args, "OOO!O", &fn, &c, &PyTuple_Type, &a, &k))
        return NULL;
    if (Py_TYPE(c) != &PyCompiled_Type || !PyFunction_Check(fn))
        return PyErr_Format(PyExc_TypeError, "_capture_run() takes a function and a compiled function");
    if (k != Py_None && PyDict_GET_SIZE(k))
        return PyObject_Call(fn, a, k);
    return cap_run(((PyCompiled *)c)->cfg, fn, &PyTuple_GET_ITEM(a, 0), PyTuple_GET_SIZE(a), NULL);
}

/* _trace_missing_fake(op): the trace says that an operator has no function for tensors without data. */
static PyObject *trace_missing_fake(PyObject *self, PyObject *op)
{
    const char *name = PyUnicode_Check(op) ? PyUnicode_AsUTF8(op) : NULL;
    if (!name)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected the name of an operator");
    ev_metrics_custom(name, false);
    if (ev_log_on(EVC_fake_tensor, EV_INFO))
        ev_log(EVC_fake_tensor, EV_INFO, NULL, "no shape function is registered for %s", name);
    if (ev_trace_on(EV_missing_fake_kernel)) {
        strbuf b = { 0 };
        json_w w = { &b };
        json_obj(&w);
        json_key(&w, "op");
        json_str(&w, name);
        json_end(&w);
        ev_json(EV_missing_fake_kernel, NULL, strbuf_str(&b), NULL);
        strbuf_free(&b);
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    { "_trace_missing_fake", trace_missing_fake, METH_O, "a record of the trace: no fake function" },
    { "_capture_compile", compile, METH_VARARGS, "the callable behind taper.compile" },
    { "_capture_config", set_config, METH_VARARGS, "where settings and counters live" },
    { "_capture_reset", reset, METH_NOARGS, "forget every captured region" },
    { "_capture_ledger", ledger, METH_NOARGS, "what ran compiled, what did not" },
    { "_capture_breaks", collect_breaks, METH_O, "start or stop collecting graph breaks" },
    { "_capture_disable", disable_push, METH_O, "nest or unnest a region without capture" },
    { "_capture_stance", set_stance, METH_VARARGS, "what calls of compiled functions do" },
    { "_capture_replay_id", replay_next, METH_NOARGS, "the next new frame is 42/999" },
    { "_capture_tracing", is_tracing, METH_NOARGS, "whether a function is being traced" },
    { "_capture_pause", pause_frames, METH_O, "how many frames run for compiled functions" },
    { "_capture_compiling", is_compiling, METH_NOARGS, "whether a compiled function is captured or run" },
    { "_capture_break_rows", breaks_table, METH_NOARGS, "the table of graph breaks" },
    { "_capture_run", run_with, METH_VARARGS, "a function through capture" },
    { NULL }
};

static bool is_module(void *data, const char *name)
{
    PyObject *m = PyImport_GetModuleDict(), *o = PyDict_GetItemString(m, name);
    return o != NULL;
}

static void text_ready(void *unused)
{
    ir_text_ready();
    gen_c_ready();
}

static bool tracing(void) { return t_now != NULL; }

/* The calls that Python has no frames of: those a trace is in, and those whose plain steps are run here. */
static bool add_calls(PyObject *list, trace *t, frame *f)
{
    for (; f; f = t ? f->back : f->under) {
        PyObject *first = f->cc->co->co_argcount && f->fast[0] ? f->fast[0] : Py_None;
        tobj *o = t ? t_obj(t, first) : NULL;
        if (IS_LAZY(first))
            first = ((PyLazy *)first)->real;
        else if (o && o->real)
            first = o->real;
        else if (PyCell_Check(first))
            first = PyCell_GET(first) ? PyCell_GET(first) : Py_None;
        PyObject *pair = PyTuple_Pack(2, (PyObject *)f->cc->co, first);
        bool ok = pair && PyList_Append(list, pair) == 0;
        Py_XDECREF(pair);
        if (!ok)
            return false;
    }
    return true;
}
static PyObject *traced_calls(void)
{
    PyObject *list = PyList_New(0);
    if (list &&
        (!add_calls(list, t_now, t_now ? t_now->top : NULL) || !add_calls(list, NULL, cap_here()->top)))
        Py_CLEAR(list);
    return list;
}

static int brand_changed(bool torch)
{
    strbuf why = { 0 };
    env_set_torch_alias(torch);
    if (ev_init(&why))
        return 0;
    PyErr_SetString(PyExc_ValueError, strbuf_str(&why));
    strbuf_free(&why);
    return -1;
}

int py_init_compile(PyObject *m)
{
    static bool started;
    strbuf why = { 0 };
    py_asks = (py_capture){ tracing,       t_keeps_relations, t_size_arith,
                            brand_changed, cap_note_saved,    traced_calls };
    if (!started) {
        ev_set_module_test(is_module, NULL);
        if (!ev_init(&why)) {
            PyErr_SetString(PyExc_ValueError, strbuf_str(&why));
            strbuf_free(&why);
            return -1;
        }
        started = true;
        if (ev_trace_on(EV_dynamo_output_graph)) { /* not within the first compile */
            ev_later(text_ready, "", 0, NULL, NULL);
            metrics_watch_gc();
        }
        off = env_on(ENV_disable);
    }
    if (PyType_Ready(&PyCompiled_Type) < 0 ||
        PyModule_AddObjectRef(m, "CompiledFunction", (PyObject *)&PyCompiled_Type) < 0)
        return -1;
    return PyModule_AddFunctions(m, functions);
}
