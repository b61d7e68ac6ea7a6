/* region.c - capturing a region, and running a function as a chain of regions and native steps. */
#include "base/fault.h"
#include "capture/capture.h"
#include "base/intern.h"
#include "base/source.h"
#include "events/metrics.h"
#include "base/clock.h"
#include "base/envvars.h"
#include <frameobject.h>
#include <opcode.h>

/* ---- which uses of regions are compiled: taper doctor looks for the one that changes what a program does ---- */
static struct {
    int state;       /* -1: not asked yet, 0: all are, 1: some */
    int64_t uses;    /* so far */
    int64_t most;    /* the last use that is compiled */
    int64_t fresh;   /* the use that is captured anew although an entry would do, or -1 */
    int64_t skip;    /* so many instructions of use `most` run as written first */
    const char *log; /* file, or NULL */
} uses = { .state = -1, .most = INT64_MAX, .fresh = -1 };

/* TAPER_REGIONS=LAST, LAST+STEPS, LAST! */
static bool uses_limited(void)
{
    if (TP_LIKELY(uses.state >= 0))
        return uses.state;
    const char *s = env_get(ENV_regions);
    char *end = NULL;
    uses.log = env_get(ENV_regions_log);
    uses.log = uses.log && *uses.log ? uses.log : NULL;
    if (s && *s) {
        uses.most = strtoll(s, &end, 10);
        if (*end == '+')
            uses.skip = strtoll(end + 1, NULL, 10);
        else if (*end == '!')
            uses.fresh = uses.most;
    }
    uses.state = (s && *s) || uses.log;
    return uses.state;
}

/* The first line in which two captures of one region differ, as "old -> new". */
static void graphs_differ(strbuf *b, const ir_graph *was, const ir_graph *now)
{
    strbuf x = { 0 }, y = { 0 };
    ir_print(&x, was, IR_PRINT_log | IR_PRINT_brand);
    ir_print(&y, now, IR_PRINT_log | IR_PRINT_brand);
    const char *p = strchr(strbuf_str(&x), '\n'), *q = strchr(strbuf_str(&y), '\n');
    while (p && q) {
        p++, q++;
        size_t n = strcspn(p, "\n"), m = strcspn(q, "\n");
        if (n != m || memcmp(p, q, n)) {
            p += strspn(p, " "), q += strspn(q, " ");
            if (*p != '#' && *q != '#') { /* no comment */
                strbuf_addf(b, " | %.*s -> %.*s", (int)MIN(strcspn(p, ";\n"), 160), p,
                            (int)MIN(strcspn(q, ";\n"), 160), q);
                break;
            }
        }
        p = strchr(p, '\n'), q = strchr(q, '\n');
    }
    strbuf_free(&x);
    strbuf_free(&y);
}

/* A line for a use: number, how it came to be, function, place, instructions, where it stopped; was: the entry that the guards
 * would have taken, or NULL. */
static void uses_note(const region *r, const entry *e, bool fresh, const entry *was, const frame *f)
{
    if (!uses.log)
        return;
    FILE *to = fopen(uses.log, "a");
    strbuf b = { 0 };
    bool own = !r->cc->library || !r->shown.file;
    strbuf_addf(&b, "%lld %s %s %s:%d steps %d at %s effects %d", (long long)uses.uses, fresh ? "new" : "hit",
                r->shown.name ? r->shown.name : r->cc->name, own ? r->cc->file : r->shown.file,
                own ? f->cc->ins[f->ip].line : r->shown.line, e->traced, log_opname(f->cc->ins[f->ip].op),
                (int)e->effects.n);
    if (was && was->graph && e->graph)
        graphs_differ(&b, was->graph, e->graph);
    if (to) {
        fprintf(to, "%s\n", strbuf_str(&b));
        fclose(to);
    }
    strbuf_free(&b);
}

static int next_frame_id;
static int next_fn = 1;
static bool replay_id;
void region_replay_id(void) { replay_id = true; }
static __thread int tracing;
bool cap_is_tracing(void) { return tracing; }

/* ---- entries ---- */
entry *entry_new(region *r, cap_cfg *cfg)
{
    entry *e = mem_zalloc(sizeof *e);
    arena_init(&e->mem);
    e->r = r;
    e->cfg = cfg;
    cfg->refs++;
    e->keep = PyList_New(0);
    return e;
}

/* Functions that are compiled alike share what was compiled for their code. */
struct cap_family {
    PyObject *backend;
    int dynamic, refs;
    bool fullgraph, open; /* open: others may join */
};
static VEC(struct cap_family *) families;

static struct cap_family *family_of(PyObject *backend, int dynamic, bool fullgraph, bool open)
{
    for (size_t i = 0; open && i < families.n; i++) {
        struct cap_family *f = families.at[i];
        bool same = f->backend == backend ||
                    (PyUnicode_CheckExact(f->backend) && PyUnicode_CheckExact(backend) &&
                     PyUnicode_Compare(f->backend, backend) == 0);
        if (f->open && same && f->dynamic == dynamic && f->fullgraph == fullgraph) {
            f->refs++;
            return f;
        }
    }
    struct cap_family *f = mem_zalloc(sizeof *f);
    *f = (struct cap_family){ Py_NewRef(backend), dynamic, 1, fullgraph, open };
    vec_push(&families, f);
    return f;
}

static void family_unref(struct cap_family *f)
{
    if (--f->refs)
        return;
    for (size_t i = 0; i < families.n; i++)
        if (families.at[i] == f)
            families.at[i--] = families.at[--families.n];
    Py_DECREF(f->backend);
    free(f);
}

cap_cfg *cfg_get(PyObject *backend, PyObject *options, int dynamic, bool fullgraph, PyObject *guard_fail_fn)
{
    cap_cfg *c = mem_zalloc(sizeof *c);
    bool open = options == Py_None && guard_fail_fn == Py_None;
    *c = (cap_cfg){ Py_NewRef(backend),
                    Py_NewRef(options),
                    dynamic,
                    fullgraph,
                    1,
                    guard_fail_fn == Py_None ? NULL : Py_NewRef(guard_fail_fn),
                    .family = family_of(backend, dynamic, fullgraph, open) };
    return c;
}

void cfg_unref(cap_cfg *c)
{
    if (!c || --c->refs)
        return;
    family_unref(c->family);
    Py_XDECREF(c->backend);
    Py_XDECREF(c->options);
    Py_XDECREF(c->guard_fail_fn);
    cfg_unref(c->alt);
    free(c);
}

void entry_free(entry *e)
{
    if (!e)
        return;
    ev_wait(e);
    src_release(e);
    run_program_free(e->run);
    ir_graph_free(e->graph);
    if (e->symguards)
        sym_guards_free(e->symguards);
    if (e->prog)
        sym_prog_free(e->prog);
    if (e->env_refs &&
        !__atomic_sub_fetch(e->env_refs, 1, __ATOMIC_ACQ_REL)) { /* no graph looks at it any more */
        sym_env_free(e->env);
        free(e->env_refs);
    }
    vec_free(&e->sources);
    vec_free(&e->guards);
    vec_free(&e->looks);
    vec_free(&e->look_groups);
    vec_free(&e->effects);
    vec_free(&e->apart);
    vec_free(&e->exprs);
    free(e->symval);
    Py_XDECREF(e->break_reason);
    Py_CLEAR(e->keep);
    cfg_unref(e->cfg);
    arena_free(&e->mem);
    free(e);
}

/* ---- where the user is, for nodes and symbols ---- */
static ir_loc *place_make(arena *a, const char *file, const char *func, int line, int library, bool on_disk)
{
    ir_loc *l = ARENA_NEW(a, ir_loc);
    *l = (ir_loc){ .file = arena_strdup(a, file),
                   .func = arena_strdup(a, func),
                   .line = line,
                   .library = library,
                   .unread = on_disk };
    if (!on_disk) { /* only Python can: who shows the line may not ask it */
        PyObject *s = py_source_line(file, line);
        l->code = s ? arena_strdup(a, PyUnicode_AsUTF8(s)) : NULL;
        Py_XDECREF(s);
    }
    return l;
}
static ir_loc *one_place(arena *a, frame *f)
{
    cap_code *cc = f->cc;
    if (cc->source == SOURCE_unknown)
        cc->source = cc->library || source_is_file(cc->file) ? SOURCE_file : SOURCE_elsewhere;
    return place_make(a, cc->file, cc->name, frame_line(f), cc->library, cc->source == SOURCE_file);
}
const ir_loc *frame_place(arena *a, frame *f)
{
    ir_loc *l = f ? one_place(a, f) : NULL;
    if (l)
        l->outer = frame_place(a, f->back);
    return l;
}
/* Where the user's code called the library, in which f and all around it are; NULL: it did not. */
static const ir_loc *called_from(arena *a, frame *f)
{
    for (f = f->caller; f; f = f->caller)
        if (!f->cc->library)
            return one_place(a, f);
    ir_loc *l = NULL;
    PyFrameObject *fr = PyThreadState_GetFrame(PyThreadState_Get());
    while (fr) {
        PyCodeObject *co = PyFrame_GetCode(fr);
        const char *file = PyUnicode_AsUTF8(co->co_filename), *name = PyUnicode_AsUTF8(co->co_name);
        PyFrameObject *back = NULL;
        if (file && name && !cap_in_package(file))
            l = place_make(a, file, name, PyFrame_GetLineNumber(fr), 0, source_is_file(file));
        else
            back = PyFrame_GetBack(fr);
        py_forget();
        Py_DECREF(co);
        Py_DECREF(fr);
        fr = back;
    }
    return l;
}
static void region_name(const region *r, char *buf, size_t n);
const ir_loc *break_place(trace *t, arena *a)
{
    ir_loc *first = (ir_loc *)frame_place(a, t->top), *last = first; /* ours until it is handed out */
    while (last && last->outer)
        last = (ir_loc *)last->outer;
    if (last && t->e->r->ip) {
        char name[300];
        region_name(t->e->r, name, sizeof name);
        last->func = arena_strdup(a, name);
    }
    if (last && ir_loc_user(first)->library)
        last->outer = called_from(a, t->outer);
    return first;
}
static const ir_loc *make_loc(ir_graph *g, frame *f)
{
    if (!f)
        return NULL;
    if (f->loc && f->loc_line == frame_line(f))
        return f->loc;
    ir_loc *l = one_place(&g->mem, f);
    l->outer = make_loc(g, f->back);
    f->loc = l;
    f->loc_line = l->line;
    return l;
}
static const ir_loc *loc_now(void *data, ir_graph *g)
{
    trace *t = data;
    if (!t->in_try)
        t->in_try = frame_in_try(t->top);
    if (!t->loc || t->loc_frame != t->top || t->loc_line != frame_line(t->top)) {
        t->loc = make_loc(g, t->top);
        t->loc_frame = t->top;
        t->loc_line = frame_line(t->top);
    }
    return t->loc;
}
static void where_now(void *data, strbuf *out)
{
    trace *t = data;
    frame *f = frame_user(t->top);
    if (!f)
        return;
    const char *slash = strrchr(f->cc->file, '/');
    strbuf_addf(out, "%s:%d in %s", slash ? slash + 1 : f->cc->file, frame_line(f), f->cc->name);
}
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
    cx.grad_mode = cx.autocast = false;
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
static bool record(void *data, op_ctx *cx, op_id op, op_variant v, const tp_val *arg, tp_val *out,
                   tp_err *err)
{
    trace *t = data;
    if (!kernel_takes(op, v, arg, err) || !ir_record(cx, &t->rec, op, v, arg, out, err))
        return false;
    const op_row *row = op_row_of(op);
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

/* ---- automatic dynamic shapes ---- */
static void TP_PRINTF(1, 2) trace_dynamic(const char *fmt, ...) /* why a symbol comes to be */
{
    strbuf b = { 0 };
    va_list ap;
    va_start(ap, fmt);
    strbuf_addv(&b, fmt, ap);
    va_end(ap);
    ev_artifact("automatic_dynamic", "string", NULL, strbuf_str(&b));
    strbuf_free(&b);
}

/* Something changed between calls: is it to become a symbol? */
static bool automatic_dynamic(void)
{
    bool yes = cfg_bool("automatic_dynamic_shapes", true);
    ev_metrics_feature("dynamo.automatic_dynamic_shapes", yes);
    return yes;
}

static bool has_index(PyObject *o, const char *attr, int dim)
{
    PyObject *d = ((PyTensor *)o)->dict, *s = d ? PyDict_GetItemString(d, attr) : NULL;
    PyObject *i = PyLong_FromLong(dim);
    bool r = s && PyAnySet_Check(s) && PySet_Contains(s, i) == 1;
    Py_XDECREF(i);
    return r;
}

/* mark_dynamic(min=, max=): a pair by dimension; -1 is no limit. */
static void mark_range(PyObject *o, int dim, int64_t *lo, int64_t *hi)
{
    PyObject *d = ((PyTensor *)o)->dict, *r = d ? PyDict_GetItemString(d, "_dynamo_dynamic_range") : NULL;
    PyObject *i = PyLong_FromLong(dim), *pair = r && PyDict_Check(r) && i ? PyDict_GetItem(r, i) : NULL;
    if (pair && PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2) {
        long long a = PyLong_AsLongLong(PyTuple_GET_ITEM(pair, 0)),
                  b = PyLong_AsLongLong(PyTuple_GET_ITEM(pair, 1));
        *lo = a > 0 ? a : 0;
        *hi = b >= 0 ? b : INT64_MAX;
    }
    py_forget();
    Py_XDECREF(i);
}

/* config.dynamic_sources and unbacked_sources: lists of sources by name. */
static bool listed(const char *which, source *s)
{
    PyObject *names = cfg_obj(which);
    if (!names || !PyUnicode_Check(names) || !PyUnicode_GET_LENGTH(names))
        return false;
    PyObject *m = PyImport_ImportModule("taper._dynamo.config"),
             *r = m ? PyObject_CallMethod(m, "_source_listed", "Os", names, src_text(s)) : NULL;
    bool yes = r == Py_True;
    py_forget();
    Py_XDECREF(m);
    Py_XDECREF(r);
    return yes;
}

bool t_dim_policy(trace *t, PyObject *o, source *s, int dim, int64_t size, sym_policy *p, int64_t *lo,
                  int64_t *hi)
{
    region *r = t->e->r;
    *p = SYM_static;
    if (!r->dynamic && !(r->dynamic = PyDict_New()))
        return false;
    strbuf text = { 0 };
    strbuf_addf(&text, "%s.size()[%d]/%d", src_text(s), dim, py_tensor(o)->ndim);
    PyObject *key = PyUnicode_FromStringAndSize(strbuf_str(&text), (Py_ssize_t)text.n), *was,
             *now = PyLong_FromLongLong(size);
    bool differs = false;
    strbuf_free(&text);
    if (!key || !now) {
        Py_XDECREF(key);
        Py_XDECREF(now);
        return false;
    }
    was = PyDict_GetItemWithError(r->dynamic, key);
    if (was) {
        long long w = PyLong_AsLongLong(was);
        differs = w != size;
        if (w >= 0 && differs) {
            if (ev_log_on(EVC_dynamic, EV_INFO) && t->cfg->dynamic < 0)
                ev_log(EVC_dynamic, EV_INFO, NULL, "automatic dynamic size %s size(%d) %lld != %lld",
                       src_text(s), dim, (long long)size, w);
            if (ev_trace_on(EV_artifact) && t->cfg->dynamic < 0)
                trace_dynamic("%s.size()[%d] was %lld and is now %lld", src_text(s), dim, w, (long long)size);
            Py_SETREF(now, PyLong_FromLong(-1));
            PyDict_SetItem(r->dynamic, key, now);
        }
    } else
        PyDict_SetItem(r->dynamic, key, now);
    Py_DECREF(key);
    Py_DECREF(now);
    if (has_index(o, "_dynamo_static_indices", dim))
        return true;
    if (has_index(o, "_dynamo_dynamic_indices", dim) && t->cfg->dynamic != 0) {
        *p = has_index(o, "_dynamo_unbacked_indices", dim) ? SYM_unbacked : SYM_dynamic;
        mark_range(o, dim, lo, hi);
        if (size >= *lo && size <= *hi)
            return true;
        PyObject *cls = exc_class("ConstraintViolationError"),
                 *most = *hi == INT64_MAX ? PyUnicode_FromString("int_oo") : PyLong_FromLongLong(*hi);
        PyErr_Format(cls ? cls : PyExc_RuntimeError,
                     "%lld not in range [%lld, %S]: mark_dynamic() gave the range of dimension %d of %s",
                     (long long)size, (long long)*lo, most ? most : Py_None, dim, src_text(s));
        Py_XDECREF(most);
        t->internal = true;
        return false;
    }
    if (t->cfg->dynamic != 0 && listed("unbacked_sources", s))
        return *p = SYM_unbacked, true;
    if (t->cfg->dynamic != 0 && listed("dynamic_sources", s))
        return *p = SYM_duck, true;
    if (Py_TYPE(o) != &PyTensor_Type && cfg_bool("force_parameter_static_shapes", true))
        return true;
    if (has_index(o, "_dynamo_weak_dynamic_indices", dim) && t->cfg->dynamic != 0)
        *p = SYM_duck;
    else if (t->cfg->dynamic > 0 || (t->cfg->dynamic < 0 && !cfg_bool("assume_static_by_default", true)))
        *p = SYM_duck;
    else if (t->cfg->dynamic < 0 && differs && automatic_dynamic()) {
        PyObject *as = cfg_obj("automatic_dynamic_shapes_mark_as");
        bool open = as && PyUnicode_Check(as) && !PyUnicode_CompareWithASCIIString(as, "unbacked");
        *p = open ? SYM_unbacked : SYM_duck;
    }
    return true;
}

int t_int_policy(trace *t, PyObject *o, source *s)
{
    region *r = t->e->r;
    if (s->kind == SRC_instattr ||
        (s->kind == SRC_key &&
         s->base->kind == SRC_dict)) { /* only counters: what the region writes itself */
        char key[320];
        snprintf(key, sizeof key, "written %s", src_text(s));
        if (t->cfg->dynamic > 0 || (r->dynamic && !PyDict_GetItemString(r->dynamic, key) &&
                                    PyDict_GetItemString(r->dynamic, src_text(s))))
            return 0;
    } else if (s->kind != SRC_local && s->kind != SRC_stack &&
               !((s->kind == SRC_item || s->kind == SRC_cell) && s->base->kind == SRC_local))
        return 0;
    if (cfg_bool("specialize_int", false) || t->cfg->dynamic == 0)
        return 0;
    if (!r->dynamic && !(r->dynamic = PyDict_New()))
        return 0;
    PyObject *was = PyDict_GetItemString(r->dynamic, src_text(s));
    if (!was) {
        PyDict_SetItemString(r->dynamic, src_text(s), o);
        return t->cfg->dynamic > 0 || listed("dynamic_sources", s);
    }
    if (was == Py_None)
        return 1;
    int same = PyObject_RichCompareBool(was, o, Py_EQ);
    if (same == 0) {
        if (ev_log_on(EVC_dynamic, EV_INFO) && t->cfg->dynamic < 0)
            ev_log(EVC_dynamic, EV_INFO, NULL, "automatic dynamic int %s val %ld != %ld", src_text(s),
                   PyLong_AsLong(o), PyLong_AsLong(was));
        if (ev_trace_on(EV_artifact) && t->cfg->dynamic < 0)
            trace_dynamic("%s was %ld and is now %ld", src_text(s), PyLong_AsLong(was), PyLong_AsLong(o));
        PyDict_SetItemString(r->dynamic, src_text(s), Py_None);
        return t->cfg->dynamic > 0 || automatic_dynamic();
    }
    return t->cfg->dynamic > 0;
}

/* ---- one attempt ---- */
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
    t->g->grad_mode = CX->grad_mode;
    t->autocast = CX->autocast;
    t->autocast_dtype = CX->autocast_dtype;
    sym_env_opts o = { .where = where_now, .data = t };
    t->env = t->e->env = sym_env_new(&o);
    t->e->env_refs = mem_alloc(sizeof *t->e->env_refs);
    *t->e->env_refs = 2; /* the entry and the graph, which Python code may keep longer */
    t->g->env = t->env;
    t->g->env_refs = t->e->env_refs;
    t->rec = (ir_rec){ .g = t->g,
                       .loc = loc_now,
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
        if (idle || t->steps > 500000) { /* a long loop without tensors is none of our business */
            t->hopeless = idle;
            t_break(t, BRK_depth, "more than %d instructions in one region", t->steps - 1);
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
        if (t_fake_failed(t, "an operation that needs a tensor's value"))
            return ST_error;
        if (from_outside(f)) {
            t->internal = true;
            return ST_error;
        }
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

/* ---- breaks in the log, as errors ---- */
typedef struct why_broke {
    bool set, quiet, error, inlined;
    break_id id;
    char reason[600];
    arena mem;
    const ir_loc *at, *named; /* all frames; the one to name, or NULL */
    char *stack;              /* frames as Python prints them, innermost last; NULL until somebody asks */
    char *last;               /* the instructions traced before it, when asked to be verbose */
} why_broke;

PyObject *break_list; /* explain(): every break, as (reason, stack) */

static void break_note(why_broke *w, trace *t)
{
    if (w->set)
        return;
    w->set = true;
    w->quiet = t->quiet;
    w->error = t->error_breaks;
    w->id = t->brk;
    snprintf(w->reason, sizeof w->reason, "%s", t->reason);
    w->mem = t->brk_mem;
    w->at = t->brk_at;
    w->named = ir_loc_user(w->at);
    t->brk_mem = (arena){ 0 };
    t->brk_at = NULL;
    w->inlined = t->brk_inlined;
    if (t->verbose) {
        strbuf b = { 0 };
        unsigned n = COUNT(t->last);
        for (unsigned i = t->nlast > n ? t->nlast - n : 0; i < t->nlast; i++)
            strbuf_addf(&b, "  %s\n", t->last[i % n]);
        w->last = strbuf_take(&b);
    }
}

static const char *broke_file(const why_broke *w) { return w->named ? w->named->file : ""; }
static int broke_line(const why_broke *w) { return w->named ? w->named->line : 0; }

static void stack_print(strbuf *b, const ir_loc *l)
{
    if (l->outer)
        stack_print(b, l->outer);
    const char *code = ir_loc_code(l);
    strbuf_addf(b, "  File \"%s\", line %d, in %s\n", l->file, l->line, l->func);
    if (code && *code)
        strbuf_addf(b, "    %s\n", code);
}

static const char *broke_stack(why_broke *w)
{
    strbuf b = { 0 };
    if (!w->stack && w->at)
        stack_print(&b, w->at);
    if (!w->stack)
        w->stack = strbuf_take(&b);
    return w->stack;
}

static PyObject *break_raise(why_broke *w)
{
    const break_row *r = break_row_now(w->id);
    PyObject *cls = exc_class("Unsupported");
    PyObject *msg = PyUnicode_FromFormat(
        "%s\n  Explanation: %s\n  Hint: %s\n  Code: %s (%s)\n\nfrom user code:\n%s", w->reason, r->explain,
        r->hint, r->code, r->type, broke_stack(w));
    if (msg)
        PyErr_SetObject(cls ? cls : PyExc_RuntimeError, msg);
    Py_XDECREF(msg);
    return NULL;
}

/* Breaks that a log line told of in full: where and why. The same one comes again with every function that the one with
 * the break is called by, and with every recompile. */
static map told_breaks;
static bool told_before(const why_broke *w)
{
    strbuf key = { 0 };
    strbuf_addf(&key, "%s:%d:%s", broke_file(w), broke_line(w), w->reason);
    bool before = map_put(&told_breaks, strbuf_str(&key), &told_breaks) != NULL;
    strbuf_free(&key);
    return before;
}

static void break_log(region *r, const cap_cfg *cfg, why_broke *w)
{
    const break_row *row = break_row_now(w->id);
    if (w->quiet)
        return;
    cap_count("graph_break", w->reason, 1);
    cap_count(w->inlined ? "inline_call" : "unimplemented", w->reason, 1);
    if (TP_UNLIKELY(cap_watching()))
        cap_watch_break(cfg, row, w->reason, broke_stack(w), broke_file(w), broke_line(w));
    if (break_list) {
        PyObject *p = Py_BuildValue("(sssi)", w->reason, broke_stack(w), broke_file(w), broke_line(w));
        if (p)
            PyList_Append(break_list, p);
        Py_XDECREF(p);
        py_forget();
    }
    if (ev_on(EV_graph_breaks) && told_before(w) && !w->last)
        ev_text(EV_graph_breaks, NULL,
                "Graph break (user stack suppressed due to duplicate graph break) in user code at %s:%d\n"
                "Reason: %s%s",
                broke_file(w), broke_line(w), w->id == BRK_data_jump ? "" : "Unsupported: ", w->reason);
    else if (ev_on(EV_graph_breaks))
        ev_text(EV_graph_breaks, NULL,
                "Graph break in user code at %s:%d\nReason: %s%s\nUser code traceback:\n%s  [%s] %s\n  Hint: "
                "%s%s%s",
                broke_file(w), broke_line(w), w->id == BRK_data_jump ? "" : "Unsupported: ", w->reason,
                broke_stack(w), row->code, row->explain, row->hint,
                w->last ? "\nMost recent bytecode instructions traced (max 20):\n" : "",
                w->last ? w->last : "");
    if (ev_trace_on(EV_artifact)) {
        strbuf b = { 0 };
        strbuf_addf(
            &b,
            "Graph break in user code at %s:%d\nReason: %s\nUser code traceback:\n%s  [%s] %s\n  Hint: %s",
            broke_file(w), broke_line(w), w->reason, broke_stack(w), row->code, row->explain, row->hint);
        ev_artifact("dynamo_graph_break_reason", "string", NULL, strbuf_str(&b));
        strbuf_free(&b);
    }
}

/* ---- the cache ---- */
static int count_entries(const region *r, const cap_cfg *cfg)
{
    int n = 0;
    for (entry *e = r->first; e; e = e->next)
        n += (!cfg || e->cfg == cfg) && !e->invalid;
    return n;
}

/* Whose compile it is that begins in f: modules are called through code of the library, which they all share. */
static void region_identify(region *r, const frame *f)
{
    static interns kept;
    const cap_code *cc = r->cc;
    r->shown = (shown_name){ cc->name, cc->file, cc->first_line };
    if (r->ip || !cc->library || strcmp(cc->name, "__call__") || !cc->nfast || !f->fast[0])
        return;
    PyTypeObject *type = Py_TYPE(f->fast[0]);
    PyObject *fn = PyObject_GetAttrString((PyObject *)type, "forward");
    if (fn && PyFunction_Check(fn)) {
        PyCodeObject *co = (PyCodeObject *)PyFunction_GET_CODE(fn);
        const char *file = PyUnicode_AsUTF8(co->co_filename), *dot = strrchr(type->tp_name, '.');
        char name[300];
        snprintf(name, sizeof name, "%s.forward", dot ? dot + 1 : type->tp_name);
        if (file)
            r->shown = (shown_name){ intern_str(&kept, name, strlen(name)),
                                     intern_str(&kept, file, strlen(file)), co->co_firstlineno };
    }
    py_forget();
    Py_XDECREF(fn);
}

static void region_name(const region *r, char *buf, size_t n)
{
    if (r->ip)
        snprintf(buf, n, "%s_resume_in_%s_at_%d", !strcmp(cap_brand(), "torch") ? "torch_dynamo" : "taper",
                 r->cc->name, r->from_line);
    else
        snprintf(buf, n, "%s", r->shown.name ? r->shown.name : r->cc->name);
}

static void reason_of(entry *e, frame *f, strbuf *b, bool all)
{
    PyObject **reg = mem_zalloc(sizeof *reg * (e->sources.n + 1));
    int64_t *sym = mem_zalloc(sizeof *sym * (size_t)(e->nsymval + 1));
    guard_check(e, f, reg, sym, b, all);
    free(reg);
    free(sym);
}

/* Why no entry fits. msg: what logs say; list: the reasons as JSON, of the newest entry first, with the values now;
 * newest and oldest: the reason of that entry. */
typedef struct misfits {
    strbuf msg, list, newest, oldest;
} misfits;

static void misfits_free(misfits *m)
{
    strbuf_free(&m->msg);
    strbuf_free(&m->list);
    strbuf_free(&m->newest);
    strbuf_free(&m->oldest);
}

static bool recompile_log(region *r, frame *f, cap_cfg *cfg, misfits *m)
{
    bool any = false, verbose = ev_on(EV_recompiles_verbose);
    strbuf *msg = &m->msg;
    json_w list = { &m->list };
    char name[300];
    json_arr(&list);
    region_name(r, name, sizeof name);
    strbuf_addf(msg,
                "Recompiling function %s in %s:%d\n    triggered by the following guard failure(s):", name,
                r->shown.file, r->shown.line);
    int max_id = -1, i = 0;
    for (entry *e = r->first; e; e = e->next)
        max_id = MAX(max_id, e->compile_id);
    for (int id = max_id; id >= 0; id--) /* newest first */
        for (entry *e = r->first; e; e = e->next) {
            if (e->compile_id != id || e->cfg != cfg)
                continue;
            strbuf w = { 0 };
            guard_now[0] = 0;
            reason_of(e, f, &w, verbose);
            json_strf(&list, guard_now[0] ? "%d/%d: %s (now %s)" : "%d/%d: %s", r->frame_id, e->compile_id,
                      strbuf_str(&w), guard_now);
            if (verbose)
                strbuf_addf(msg, "%s\n    guard %d failures:\n    - %d/%d: %s", i ? "\n" : "", i, r->frame_id,
                            e->compile_id, strbuf_str(&w));
            else
                strbuf_addf(msg, "\n    - %d/%d: %s", r->frame_id, e->compile_id, strbuf_str(&w));
            i++;
            strbuf_clear(&m->oldest);
            strbuf_addf(&m->oldest, "%d/%d: %s", r->frame_id, e->compile_id, strbuf_str(&w));
            if (!any)
                strbuf_addn(&m->newest, m->oldest.s, m->oldest.n);
            if (cfg->guard_fail_fn && cfg->guard_fail_fn != Py_None && !any) {
                PyObject *x = PyObject_CallFunction(cfg->guard_fail_fn, "s", strbuf_str(&w));
                if (!x)
                    py_forget();
                Py_XDECREF(x);
            }
            strbuf_free(&w);
            any = true;
        }
    json_end(&list);
    return any;
}

/* ---- capture ---- */
/* Inputs that the graph writes on the tape must be computed tensors: leaves refuse it. */
static void guard_writes(trace *t)
{
    for (size_t i = 0; i < t->objs.n; i++) {
        tobj *k = &t->objs.at[i];
        if (k->node && k->real && py_is_tensor(k->abs) && ag_before_write(py_tensor(k->abs)))
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

/* The graph's code as users know it: a module class around it, names of the brand. */
/* {node: [3, "s0"], ...} */
static void sizes_json(strbuf *b, const ir_graph *g)
{
    json_w w = { b };
    json_obj(&w);
    IR_EACH (n, g) {
        const tp_tensor *x = ir_type(n);
        if (!x)
            continue;
        json_key(&w, n->name);
        json_arr(&w);
        for (int i = 0; i < x->ndim; i++) {
            strbuf t = { 0 };
            if (!sym_is_expr(x->size[i])) {
                json_int(&w, x->size[i]);
                continue;
            }
            sym_print(&t, x->size[i]);
            json_str(&w, strbuf_str(&t));
            strbuf_free(&t);
        }
        json_end(&w);
    }
    json_end(&w);
}

static void log_graph(entry *e, ir_graph *g)
{
    if (ev_on(EV_graph_code)) {
        strbuf b = { 0 };
        ir_print(&b, g, IR_PRINT_log | IR_PRINT_brand);
        ev_text(EV_graph_code, NULL, "TRACED GRAPH\n ===== %s =====\n%s", g->name, strbuf_str(&b));
        strbuf_free(&b);
    }
    if (ev_on(EV_graph_code_verbose)) {
        strbuf b = { 0 };
        ir_print(&b, g, IR_PRINT_all);
        ev_text(EV_graph_code_verbose, NULL, "TRACED GRAPH\n ===== %s =====\n%s", g->name, strbuf_str(&b));
        strbuf_free(&b);
    }
    if (ev_on(EV_graph)) {
        strbuf b = { 0 };
        ir_print(&b, g, IR_PRINT_table);
        ev_text(EV_graph, NULL, "TRACED GRAPH\n ===== %s =====\n%s", g->name, strbuf_str(&b));
        strbuf_free(&b);
    }
    if (ev_on(EV_graph_sizes)) {
        strbuf b = { 0 };
        IR_EACH (n, g) {
            const tp_tensor *x = ir_type(n);
            if (!x)
                continue;
            strbuf_addf(&b, "\n%s: (", n->name);
            for (int i = 0; i < x->ndim; i++) {
                if (i)
                    strbuf_add(&b, ", ");
                sym_print(&b, x->size[i]);
            }
            strbuf_add(&b, x->ndim == 1 ? ",)" : ")");
            if (!sym_all_const(x->size, x->ndim)) {
                strbuf_addf(&b, "\n%s (concrete): (", n->name);
                for (int i = 0; i < x->ndim; i++) {
                    bool ok = true;
                    strbuf_addf(&b, "%s%lld", i ? ", " : "", (long long)sym_hint(x->size[i], &ok));
                }
                strbuf_add(&b, x->ndim == 1 ? ",)" : ")");
            }
        }
        ev_text(EV_graph_sizes, NULL, "TRACED GRAPH TENSOR SIZES\n===== %s =====%s", g->name, strbuf_str(&b));
        strbuf_free(&b);
    }
}

static double guard_latency(entry *e, frame *f) /* microseconds of one check */
{
    PyObject **reg = mem_zalloc(sizeof *reg * (e->sources.n + 1));
    int64_t *sym = mem_zalloc(sizeof *sym * (size_t)(e->nsymval + 1)), t = clock_ns();
    PyObject **out;
    guard_fast(e, f, reg, sym, &out);
    t = clock_ns() - t;
    free(reg);
    free(sym);
    return (double)t / 1e3;
}

/* ---- the graph and its guards, to the trace ---- */
typedef struct told_graph {
    const ir_graph *g;
    strbuf *sizes; /* for who waits until the record is made */
} told_graph;

static void trace_graph(void *arg)
{
    const told_graph *t = arg;
    const ir_graph *g = t->g;
    strbuf *b = ev_scratch(), *meta = ev_scratch();
    ir_print(b, g, IR_PRINT_log | IR_PRINT_brand);
    strbuf_add(meta, "{\"sizes\": ");
    size_t at = meta->n;
    sizes_json(meta, g);
    strbuf_addn(t->sizes, meta->s + at, meta->n - at);
    strbuf_addc(meta, '}');
    ev_json(EV_dynamo_output_graph, NULL, strbuf_str(meta), strbuf_str(b));
    ev_scratch_done(meta);
    ev_scratch_done(b);
}

static void trace_guards(void *arg)
{
    const entry *e = *(const entry **)arg;
    guard_texts texts;
    strbuf *b = ev_scratch();
    guard_texts_init(&texts, e);
    guard_json(b, e, &texts);
    ev_json(EV_dynamo_guards, NULL, "{}", strbuf_str(b));
    guard_texts_free(&texts);
    ev_scratch_done(b);
}

/* May another thread print the graph and its guards? Not what can change meanwhile. */
static bool stays(const ir_graph *g)
{
    bool still = !sym_env_n_symbols(g->env);
    IR_EACH (n, g) {
        still &= n->kind != IR_const;
    }
    return still;
}

static void log_captured_graph(const ir_graph *g, strbuf *sizes)
{
    told_graph t = { g, sizes };
    if (!ev_trace_on(EV_dynamo_output_graph))
        return;
    if (g->nnode >= EV_LATER_NODES && stays(g))
        ev_later(trace_graph, &t, sizeof t, g, sizes);
    else
        ev_now(trace_graph, &t);
}

/* still: nothing that the guards say can change. */
static void log_captured(entry *e, bool still, PyObject *const *in)
{
    if (!ev_trace_on(EV_dynamo_output_graph))
        return;
    metrics_inputs(e, in);
    for (size_t i = 0; i < e->guards.n && e->nprepared < e->guards.n; i++)
        guard_prepare(&e->guards.at[i]);
    if (e->guards.n >= EV_LATER_NODES && still)
        ev_put_off(trace_guards, &e, sizeof e, e); /* the graph is being printed */
    else
        ev_now(trace_guards, &e);
}

static bool latency_wanted(void)
{
    return ev_on(EV_guards) || ev_trace_on(EV_dynamo_guards) || ev_on(EV_verbose_guards);
}

static void log_guards(entry *e, double us)
{
    if (!latency_wanted())
        return;
    strbuf b = { 0 };
    ev_metrics_latency(us);
    if (ev_on(EV_guards) || ev_on(EV_verbose_guards) || ev_trace_on(EV_dynamo_cpp_guards_str))
        guard_print(&b, e);
    ev_text(EV_guards, NULL, "GUARDS:\n\n%s\nGuard eval latency = %.2f us", strbuf_str(&b), us);
    ev_text(EV_verbose_guards, NULL, "Guards of %d/%d:\n%s", e->r->frame_id, e->compile_id, strbuf_str(&b));
    if (ev_trace_on(EV_dynamo_cpp_guards_str)) {
        strbuf_addf(&b, "Guard latency = %.2f us", us);
        ev_json(EV_dynamo_cpp_guards_str, NULL, "{}", strbuf_str(&b));
    }
    strbuf_free(&b);
}

/* The trace: a compile of r begins here, with the calls that led to it, outermost first. */
static void trace_start(const region *r)
{
    if (!ev_trace_on(EV_dynamo_start))
        return;
    enum { DEEPEST = 64 };
    ev_frame f[DEEPEST + 1];
    PyObject *text[DEEPEST] = { NULL }; /* source lines */
    int n = DEEPEST;
    char name[300];
    region_name(r, name, sizeof name);
    f[n] = (ev_frame){ .file = r->shown.file, .name = name, .line = r->shown.line };
    PyFrameObject *fr = PyThreadState_GetFrame(PyThreadState_Get());
    while (fr && n > 0) { /* running frames keep their code, so the strings outlive the references */
        PyCodeObject *co = PyFrame_GetCode(fr);
        const char *file = PyUnicode_AsUTF8(co->co_filename), *fn = PyUnicode_AsUTF8(co->co_name);
        PyFrameObject *back = PyFrame_GetBack(fr);
        if (file && fn) {
            int line = PyFrame_GetLineNumber(fr);
            const char *loc = source_is_file(file) ? source_line_stripped(file, line) : NULL;
            text[--n] = loc ? NULL : py_source_line(file, line);
            loc = text[n] ? PyUnicode_AsUTF8(text[n]) : loc;
            f[n] = (ev_frame){ .file = file, .name = fn, .line = line, .loc = loc && *loc ? loc : NULL };
        }
        py_forget();
        Py_DECREF(co);
        Py_DECREF(fr);
        fr = back;
    }
    Py_XDECREF(fr);
    strbuf b = { 0 };
    json_w w = { &b };
    json_obj(&w);
    json_key(&w, "stack");
    ev_json_stack(&w, f + n, DEEPEST + 1 - n);
    json_end(&w);
    ev_json(EV_dynamo_start, NULL, strbuf_str(&b), NULL);
    ev_metrics_stack(f + n, DEEPEST + 1 - n);
    strbuf_free(&b);
    for (int i = n; i < DEEPEST; i++)
        Py_XDECREF(text[i]);
}

/* The lines of the traceback, to the record of the compile. Borrows all. */
static void fail_traceback(PyObject *type, PyObject *val, PyObject *tb)
{
    PyObject *m = PyImport_ImportModule("traceback");
    PyObject *lines = m ? PyObject_CallMethod(m, "format_exception", "OOO", type ? type : Py_None,
                                              val ? val : Py_None, tb ? tb : Py_None)
                        : NULL;
    for (Py_ssize_t i = 0; lines && PyList_Check(lines) && i < PyList_GET_SIZE(lines); i++) {
        const char *s = PyUnicode_AsUTF8(PyList_GET_ITEM(lines, i));
        if (s)
            ev_metrics_fail_line(s);
    }
    py_forget();
    Py_XDECREF(lines);
    Py_XDECREF(m);
}

/* The trace: the compile of r ends in the Python exception that is set, and stays set. */
static void trace_error(const region *r, bool started, const char *file, int line)
{
    PyObject *type, *val, *tb;
    PyErr_Fetch(&type, &val, &tb);
    PyErr_NormalizeException(&type, &val, &tb);
    if (!started)
        trace_start(r);
    PyObject *text = val ? PyObject_Str(val) : NULL;
    const char *s = text ? PyUnicode_AsUTF8(text) : NULL;
    strbuf b = { 0 };
    const char *name = type ? ((PyTypeObject *)type)->tp_name : "error", *dot = strrchr(name, '.');
    ev_metrics_fail(dot ? dot + 1 : name, s, file, line);
    fail_traceback(type, val, tb);
    strbuf_addf(&b, "%s: %s", name, s ? s : "");
    ev_artifact("dynamo_error", "string", NULL, strbuf_str(&b));
    strbuf_free(&b);
    py_forget();
    Py_XDECREF(text);
    PyErr_Restore(type, val, tb);
}

/* An error of capture itself: InternalTorchDynamoError: <class>: <message>. */
static void raise_internal(void)
{
    PyObject *type, *val, *tb, *cls = NULL;
    PyErr_Fetch(&type, &val, &tb);
    PyErr_NormalizeException(&type, &val, &tb);
    cls = exc_class("InternalTorchDynamoError");
    PyErr_Format(cls ? cls : PyExc_RuntimeError, "%s: %S", type ? ((PyTypeObject *)type)->tp_name : "error",
                 val ? val : Py_None);
    Py_XDECREF(type);
    Py_XDECREF(val);
    Py_XDECREF(tb);
}

enum { EMPTY_CALLS = 64 }; /* so often something runs natively before it is looked at again */

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
    py_signaled = false; /* of an earlier run */
    tracing++;
    region_name(r, shown, sizeof shown);
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
    t->hooked = cx->hooks != NULL;
    cx->hooks = NULL; /* they see what the graph keeps, not fakes */
    ev_span reading = ev_span_begin(EVS_trace);
    t->handled = c->handled;
    t_now = t;
    int rc = attempt_run(c->a, &ret, NULL);
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
    bool ok = rc != ST_error && !t->internal && finish_entry(c->a, rc == ST_return, ret, c->real);
    t_now = c->outer;
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
        interp_defer();
        return TRY_failed;
    }
    if (t->internal || (!t->broke && PyErr_Occurred())) {
        if (t->planted)
            raise_internal();
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
    trace_start(c->r);
    c->started = true;
    if (!idle) {
        log_captured_graph(g, sizes);
        log_graph(e, g);
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
    CX->autocast = false; /* conversions are in the graph: the stages make none */
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
        if (latency_wanted()) /* now: all that it reads was just read */
            *latency = guard_latency(e, c->real);
        metrics_entry(e, g, in);
        log_captured(e, idle || stays(g), in);
        if (ev_log_on(EVC_dynamo, EV_INFO))
            ev_log(EVC_dynamo, EV_INFO, NULL, "Step 2: graph %s (%d operator%s) goes to the backend", g->name,
                   e->nops, plural(e->nops));
        tracing--;
        if (idle)
            ir_graph_free(g);
        else
            entry_compile(e, g, in);
        tracing++;
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
    log_guards(e, latency);
    log_region(r, e);
    log_effects(e);
    cap_count("stats", "unique_graphs", !idle);
    cap_count("stats", "calls_captured", e->nops);
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
            interp_defer();
    }
    if (!done && PyErr_Occurred()) {
        trace_error(c->r, c->started, named ? named->file : c->r->shown.file,
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
    capture_name(&c);
    capture_begin(&c);
    ev_span whole = ev_span_begin(EVS_frame);
    entry *done = capture_attempts(&c) ? capture_finish(&c) : NULL;
    capture_end(&c, done);
    ev_span_end(&whole);
    ev_metrics_end(!done && !PyErr_Occurred());
    tracing--;
    free(c.w.stack);
    arena_free(&c.w.mem);
    free(c.w.last);
    Py_XDECREF(c.handled);
    *cx = c.saved;
    ev_cid_set(NULL);
    return done;
}

/* ---- running ---- */
static void add_line(frame *f, const char *file, const char *name, int line)
{
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    PyCodeObject *co = PyCode_NewEmpty(file, name, line);
    PyFrameObject *pf = co ? PyFrame_New(PyThreadState_Get(), co, f->globals, NULL) : NULL;
    py_forget();
    PyErr_Restore(t, v, tb);
    if (pf)
        PyTraceBack_Here(pf);
    Py_XDECREF((PyObject *)pf);
    Py_XDECREF((PyObject *)co);
}

/* The traceback gets the frame's line, unless the instruction raised again what has its traceback already. */
void frame_raised(frame *f)
{
    const instr *in = &f->cc->ins[f->at];
    if (in->op == RERAISE || (in->op == RAISE_VARARGS && !in->arg))
        return;
    add_line(f, f->cc->file, f->cc->name, f->fail_line ? f->fail_line : frame_line(f));
    f->fail_line = 0;
}

void cap_traceback(frame *f, const char *file, int line, const char *func)
{
    const cap_code *cc = f->cc;
    if (!strcmp(file, cc->file))
        for (int i = 0; i < cc->n; i++)
            if (cc->ins[i].line == line) {
                f->fail_line = line;
                return;
            }
    add_line(f, file, *func ? func : "<inlined>", line); /* of a function that was inlined */
}

static entry *find_entry(region *r, frame *f, cap_cfg *cfg, PyObject **reg, PyObject ***out, size_t nreg,
                         int64_t *sym, size_t nsym)
{
    for (entry **p = &r->first, *e; (e = *p); p = &e->next) {
        if (e->cfg->family != cfg->family || e->invalid || e->sources.n > nreg || (size_t)e->nsymval > nsym)
            continue;
        if (guard_fast(e, f, reg, sym, out)) {
            if (e != r->first) { /* most recently used first */
                *p = e->next;
                e->next = r->first;
                r->first = e;
            }
            return e;
        }
        if (TP_UNLIKELY(e->has_held)) /* gradients must not outlive a check that failed */
            src_release(e);
    }
    return NULL;
}

static size_t max_regs(const region *r, const cap_cfg *cfg)
{
    size_t n = 0;
    for (entry *e = r->first; e; e = e->next)
        if (e->cfg->family == cfg->family)
            n = MAX(n, e->sources.n + (size_t)e->nsymval);
    return n;
}

static void log_hit(const region *r, const entry *e)
{
    char name[300];
    region_name(r, name, sizeof name);
    ev_log(EVC_cache, EV_INFO, NULL, "guard cache hit: %s runs %d/%d", name, r->frame_id, e->compile_id);
}

static void log_no_entry(const region *r)
{
    char name[300];
    if (!ev_log_on(EVC_cache, EV_INFO))
        return;
    region_name(r, name, sizeof name);
    ev_log(EVC_cache, EV_INFO, NULL, "guard cache miss: %s has no compiled code yet", name);
}

/* Over the limit: false, having said so once. */
static bool stance_allows(region *r, frame *f, cap_cfg *cfg)
{
    if (cap_stance() == STANCE_eager_on_recompile)
        return false;
    if (cap_stance() != STANCE_fail_on_recompile)
        return true;
    if (r->found_empty && !count_entries(r, cfg)) /* nothing was compiled for it before, either */
        return false;
    misfits m = { 0 };
    bool any = recompile_log(r, f, cfg, &m);
    PyErr_Format(PyExc_RuntimeError,
                 "Detected recompile when %s.compile stance is 'fail_on_recompile'. filename: '%s', function "
                 "name: '%s', "
                 "line number: %d%s%s",
                 cap_brand(), r->cc->file, r->cc->name, r->cc->first_line, any ? "\n" : "",
                 any ? strbuf_str(&m.msg) : "");
    misfits_free(&m);
    return false;
}

static bool may_compile(region *r, frame *f, cap_cfg *cfg)
{
    if (TP_UNLIKELY(cap_stance()) && !stance_allows(r, f, cfg))
        return false;
    int n = count_entries(r, cfg), every = count_entries(r, NULL);
    long limit = cfg_int("cache_size_limit", 8), total = cfg_int("accumulated_cache_size_limit", 256);
    bool too_many = every >= total || r->compiles >= total; /* for whatever backend, also those gone since */
    if (!n && !too_many) {
        log_no_entry(r);
        return true;
    }
    misfits m = { 0 };
    bool over = n >= limit || too_many, log = ev_on(EV_recompiles) || ev_on(EV_recompiles_verbose);
    bool error = cfg_bool("error_on_recompile", false);
    if (over && r->limit_hit)
        return false;
    bool cache = ev_log_on(EVC_cache, EV_INFO);
    /* the reason is kept also when nobody listens: metrics() and the profiler tell it */
    ev_cid cid = { r->frame_id, r->compiles, 0 };
    ev_cid_set(&cid);
    bool any = recompile_log(r, f, cfg, &m);
    const char *msg = strbuf_str(&m.msg);
    if (any && cache)
        ev_log(EVC_cache, EV_INFO, NULL, "guard cache miss: %s", msg);
    if (any)
        metrics_recompile(strbuf_str(&m.newest));
    if (any && cap_watching()) {
        char name[300];
        region_name(r, name, sizeof name);
        cap_watch_recompile(cfg, name, r->shown.file, r->shown.line, msg);
    }
    if (any && error && !over) {
        PyObject *cls = exc_class("RecompileError");
        PyErr_SetString(cls ? cls : PyExc_RuntimeError, msg);
    } else if (any && ev_on(EV_recompiles_verbose))
        ev_text(EV_recompiles_verbose, NULL, "%s", msg);
    else if (any && log)
        ev_text(EV_recompiles, NULL, "%s", msg);
    if (any && ev_trace_on(EV_artifact))
        ev_artifact("recompile_reasons", "json", NULL, strbuf_str(&m.list));
    cap_count("recompiles", r->cc->name, 1);
    if (over) {
        char name[300];
        region_name(r, name, sizeof name);
        r->limit_hit = true;
        if (cfg->fullgraph || cfg_bool("fail_on_recompile_limit_hit", false)) {
            PyObject *cls = exc_class("FailOnRecompileLimitHit");
            PyErr_SetString(cls ? cls : PyExc_RuntimeError,
                            cfg->fullgraph ? "Hard failure due to fullgraph=True"
                                           : "Hard failure due to fail_on_recompile_limit_hit");
        } else
            ev_log(EVC_dynamo, EV_WARNING, NULL,
                   "%s._dynamo hit config.%s (%ld)\n    function: '%s' (%s:%d)\n    last "
                   "reason: %s",
                   cap_brand(), n >= limit ? "cache_size_limit" : "accumulated_cache_size_limit",
                   n >= limit ? limit : total, name, r->shown.file, r->shown.line, strbuf_str(&m.oldest));
    }
    ev_cid_set(NULL);
    misfits_free(&m);
    return !over && !PyErr_Occurred();
}

/* A graph failed and its instructions have been executed instead. When no operator failed this time, the fault is the
 * backend's and its error is raised after all. */
static bool backend_failure(frame *f, int *rc)
{
    PyObject *v = f->failed;
    f->failed = NULL;
    if (py_raised != f->seen || *rc == ST_error) {
        Py_DECREF(v);
        return false;
    }
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(v)), v, PyException_GetTraceback(v));
    *rc = ST_error;
    return true;
}

/* The trace: the graph of e failed while it ran, with the exception v. */
static void trace_run_error(const entry *e, PyObject *v)
{
    const ir_graph *g = e->graph;
    if (!ev_trace_on(EV_artifact) || !g)
        return;
    PyObject *text = PyObject_Str(v);
    const char *s = text ? PyUnicode_AsUTF8(text) : NULL;
    ev_cid id = { e->r->frame_id, e->compile_id, 0 };
    strbuf b = { 0 };
    strbuf_addf(&b, "%s: %s\nWhile executing the graph of %s\nGraphModule: ", Py_TYPE(v)->tp_name, s ? s : "",
                e->shown.name);
    ir_print(&b, g, IR_PRINT_log | IR_PRINT_brand);
    ev_artifact("fx_interpreter_error", "string", &id, strbuf_str(&b));
    strbuf_free(&b);
    py_forget();
    Py_XDECREF(text);
}

/* Runs f from where it is. New reference or NULL. */
/* How far a frame runs natively: up to and including an offset, or for so many instructions. */
typedef struct pace {
    int until;
    int64_t hold;
} pace;

/* The limit on uses of compiled regions; false: this one is not used. */
static bool uses_allow(frame *f, pace *p)
{
    if (uses.uses >= uses.most) { /* all that comes runs as written */
        p->until = f->cc->n;
        return false;
    }
    if (uses.uses + 1 == uses.most && uses.skip) {
        p->hold = uses.skip;
        uses.skip = 0;
        uses.most--; /* what these instructions call, too */
        return false;
    }
    return true;
}
static entry *region_compile(region *r, frame *f, cap_cfg *cfg, pace *p)
{
    entry *e = NULL;
    region_identify(r, f);
    if (may_compile(r, f, cfg)) {
        e = capture_region(r, f, cfg);
        if (TP_UNLIKELY(interp_deferred()))
            p->until = f->cc->n; /* plainly, up to where it is raised; the next call tries again */
    } else if (!PyErr_Occurred() && (r->limit_hit || cap_stance() == STANCE_eager_on_recompile)) {
        p->until = f->cc->n; /* eager from here on */
        r->natives++;
    }
    return e;
}

/* A graph that failed: what plain execution does before, at and after the failure happens now. */
static void run_again_plainly(frame *f, const entry *e, pace *p)
{
    PyObject *ty, *v, *tb;
    PyErr_Fetch(&ty, &v, &tb);
    PyErr_NormalizeException(&ty, &v, &tb);
    if (tb)
        PyException_SetTraceback(v, tb);
    if (v)
        trace_run_error(e, v);
    Py_XSETREF(f->failed, v);
    Py_XDECREF(ty);
    Py_XDECREF(tb);
    f->seen = py_raised;
    p->until = e->returns ? f->cc->n : e->stop;
}
static void region_natively(region *r, pace *p)
{
    p->until = r->native_until;
    r->natives++;
    if (++r->empty >= (r->patience ? r->patience : EMPTY_CALLS)) { /* other arguments may bring tensor work */
        r->empty = 0;
        r->native_until = -1;
    }
}

/* Finds or makes an entry for the region and runs it. NULL in *used: none fits, or making it failed. */
static int region_use(region *r, frame *f, cap_cfg *cfg, bool counted, pace *p, entry **used, PyObject **res)
{
    size_t nr = max_regs(r, cfg);
    PyObject *small[64], **reg = nr < 64 ? small : mem_alloc(sizeof *reg * (nr + 1)), **got = reg;
    int64_t symsmall[64], *sym = nr < 64 ? symsmall : mem_alloc(sizeof *sym * (nr + 1)), t0 = 0;
    entry *e = find_entry(r, f, cfg, reg, &got, nr + 1, sym, nr + 1), *was = NULL;
    bool fresh = false;
    int rc = ST_next;
    if (counted)
        uses.uses++;
    if (counted && e && uses.uses == uses.fresh) { /* as if its guards did not hold */
        was = e;
        e = NULL;
    }
    if (TP_UNLIKELY(ev_log_on(EVC_cache, EV_INFO)) && e)
        log_hit(r, e);
    if (!e && ((r->native_until < 0 && r->empty < 8) || cfg->fullgraph)) {
        t0 = clock_ns();
        fresh = true;
        e = region_compile(r, f, cfg, p);
        if (e) {
            if (reg != small)
                free(reg);
            if (sym != symsmall)
                free(sym);
            reg = e->sources.n < 64 ? small : mem_alloc(sizeof *reg * (e->sources.n + 1));
            sym = e->nsymval < 64 ? symsmall : mem_alloc(sizeof *sym * (size_t)(e->nsymval + 1));
            if (!guard_fast(e, f, reg, sym, &got))
                e = NULL;
        }
    }
    if (counted && e)
        uses_note(r, e, fresh, was, f);
    else if (counted)
        uses.uses--; /* nothing was compiled */
    if (e) {
        r->runs++;
        if (!fresh && metrics_sampled(e)) {
            metrics_profile(e, got);
            t0 = clock_ns();
        }
        rc = entry_run(e, f, got, sym, res);
        if (TP_UNLIKELY(t0) && rc != ST_error)
            metrics_ran(e, clock_ns() - t0, fresh);
        if (TP_UNLIKELY(e->has_held))
            src_release(e);
    }
    if (reg != small)
        free(reg);
    if (sym != symsmall)
        free(sym);
    ev_settle();
    *used = e;
    return rc;
}

/* ST_next: the frame goes on with the instruction at its offset; ST_repeat: with the region there, if there is one. */
static int run_region(region *r, frame *f, cap_cfg *cfg, bool counted, pace *p, PyObject **res)
{
    entry *e;
    int rc = region_use(r, f, cfg, counted, p, &e, res);
    if (!e && PyErr_Occurred()) { /* capture itself failed: not the user's exception */
        if (!cap_suppress(cfg, f->func))
            return ST_error;
        p->until = f->cc->n; /* eager from here on; the next call tries again */
    }
    if (rc == ST_return)
        return rc;
    if (rc == ST_repeat) {
        run_again_plainly(f, e, p);
        return ST_next;
    }
    if (rc == ST_error) {
        f->at = f->ip;
        add_line(f, f->cc->file, f->cc->name, f->fail_line ? f->fail_line : frame_line(f));
        f->fail_line = 0;
        return rc;
    }
    if (e && interp_turn(f) == ST_error) { /* the region may have held the way back of a loop */
        f->at = f->ip;
        frame_raised(f);
        return interp_unwind(f) ? ST_repeat : ST_error;
    }
    if (!e && r->native_until >= 0)
        region_natively(r, p);
    return ST_next;
}
static PyObject *run_frame(frame *f)
{
    PyObject *res = NULL;
    cap_cfg *cfg = f->cfg;
    pace p = { -1, 0 };
    for (;;) {
        bool try_ = cfg && p.until < 0 && !p.hold &&
                    TP_LIKELY(!interp_deferred() && !PyThreadState_Get()->c_tracefunc) &&
                    f->cc->ins[f->ip].op != CACHE && !f->kwnames;
        region *r = try_ ? region_at(f->cc, f->ip) : NULL;
        bool counted = r && !r->skip && TP_UNLIKELY(uses_limited());
        if (counted && !uses_allow(f, &p))
            r = NULL;
        if (r && !r->from_line)
            r->from_line = f->ip ? frame_line(f) : r->cc->first_line;
        if (r && !r->skip) {
            int rc = run_region(r, f, cfg, counted, &p, &res);
            if (rc == ST_return)
                return res;
            if (rc == ST_error)
                return NULL;
            if (rc == ST_repeat)
                continue;
        }
        bool last = p.until >= 0 && f->ip == p.until;
        int rc = interp_step(f, &res);
        if (TP_UNLIKELY(p.hold) && !--p.hold)
            uses.most++;
        if (last)
            p.until = -1;
        if (TP_UNLIKELY(f->failed) && (last || rc != ST_next) && backend_failure(f, &rc))
            Py_CLEAR(res);
        if (rc == ST_return)
            return res;
        if (rc == ST_error) {
            frame_raised(f);
            if (!interp_unwind(f))
                return NULL;
        }
    }
}

static const char *only_function(void) /* TAPER_DEBUG_FUNCTION: nothing else is captured */
{
    static int known;
    static const char *name;
    if (!known) {
        name = env_get(ENV_debug_function);
        known = 1;
    }
    return name && *name ? name : NULL;
}

bool cap_debugged(PyObject *fn)
{
    if (TP_LIKELY(!PyThreadState_Get()->c_tracefunc))
        return false;
    if (PyMethod_Check(fn))
        fn = PyMethod_GET_FUNCTION(fn);
    cap_code *cc = PyFunction_Check(fn) ? cap_code_of((PyCodeObject *)PyFunction_GET_CODE(fn)) : NULL;
    if (cc)
        cc->debugged++;
    py_forget();
    return true;
}

static __thread int running; /* frames that are run here on behalf of compiled functions */
bool cap_is_running(void) { return running > 0; }
int cap_pause(int n)
{
    int was = running;
    running = n;
    return was;
}

static PyObject *run_from(cap_cfg *cfg, PyObject *func, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames, frame *caller)
{
    cap_code *cc = cap_code_of((PyCodeObject *)PyFunction_GET_CODE(func));
    if (!cc)
        return NULL;
    if (TP_UNLIKELY(!tracing && cap_debugged(func)))
        return PyObject_Vectorcall(func, args, (size_t)nargs, kwnames);
    cc->calls++;
    if (TP_UNLIKELY(cc->whole_native && cfg->fullgraph && !tracing)) {
        PyObject *cls = exc_class("Unsupported");
        return PyErr_Format(cls ? cls : PyExc_RuntimeError, "'%s' (%s:%d) cannot be captured: %s", cc->name,
                            cc->file, cc->first_line, cc->whole_native);
    }
    if (cc->whole_native || tracing)
        return PyObject_Vectorcall(func, args, (size_t)nargs, kwnames);
    if (TP_UNLIKELY(only_function() && strcmp(only_function(), cc->name))) { /* look for it further down */
        cap_cfg *was = hook_push(cfg);
        PyObject *r = PyObject_Vectorcall(func, args, (size_t)nargs, kwnames);
        hook_pop(cfg, was);
        return r;
    }
    region *r0 = region_at(cc, 0);
    if (r0->limit_hit && !count_entries(r0, cfg))
        return PyObject_Vectorcall(func, args, (size_t)nargs, kwnames);
    PyObject *small[96],
        **st = cc->nfast + cc->nstack <= 96 ? small
                                            : mem_alloc(sizeof *st * (size_t)(cc->nfast + cc->nstack)),
        *res = NULL;
    frame f;
    frame_init(&f, cc, func, st);
    f.cfg = cfg;
    f.caller = caller;
    int bound = frame_bind(&f, func, args, nargs, kwnames);
    if (bound == 0)
        res = PyObject_Vectorcall(func, args, (size_t)nargs, kwnames); /* raises the right TypeError */
    else if (bound == 1 && !recursion_enter("")) {
        PyObject *handled = PyErr_GetHandledException();
        running++;
        res = run_frame(&f);
        running--;
        PyErr_SetHandledException(handled);
        Py_XDECREF(handled);
        recursion_leave();
    }
    frame_clear(&f);
    if (st != small)
        free(st);
    return res;
}

PyObject *cap_run(cap_cfg *cfg, PyObject *func, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return run_from(cfg, func, args, nargs, kwnames, NULL);
}

/* The same for a frame that CPython has bound already: slots are its arguments. */
PyObject *cap_run_bound(cap_cfg *cfg, PyObject *func, PyObject *const *slots, int n)
{
    cap_code *cc = cap_code_of((PyCodeObject *)PyFunction_GET_CODE(func));
    if (!cc)
        return NULL;
    cc->calls++;
    PyObject **st = mem_alloc(sizeof *st * (size_t)(cc->nfast + cc->nstack)), *res = NULL;
    frame f;
    frame_init(&f, cc, func, st);
    f.cfg = cfg;
    for (int i = 0; i < n; i++)
        f.fast[i] = Py_XNewRef(slots[i]);
    if (!recursion_enter("")) {
        PyObject *handled = PyErr_GetHandledException();
        running++;
        res = run_frame(&f);
        running--;
        PyErr_SetHandledException(handled);
        Py_XDECREF(handled);
        recursion_leave();
    }
    frame_clear(&f);
    free(st);
    return res;
}

/* ---- callees of native steps ---- */

bool cap_wants(PyObject *func)
{
    PyCodeObject *co = (PyCodeObject *)PyFunction_GET_CODE(func);
    if (co->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
        return false;
    cap_code *cc = cap_code_of(co);
    if (!cc) {
        py_forget();
        return false;
    }
    if (only_function() && strcmp(only_function(), cc->name))
        return false;
    return !cc->whole_native && !cap_is_skipped_file(cc->file) && !py_special(func);
}

/* super() without arguments asks the running frame, which is ours. New reference. */
static PyObject *plain_super(frame *f)
{
    PyObject *cell = NULL, *cls, *self = f->cc->co->co_argcount ? f->fast[0] : NULL;
    for (int i = 0; i < f->cc->nfast; i++)
        if ((f->cc->kinds[i] & 0x80) && f->fast[i] && PyCell_Check(f->fast[i]) &&
            PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(f->cc->localsplus, i), "__class__") == 0)
            cell = f->fast[i];
    if (self && PyCell_Check(self) && (f->cc->kinds[0] & 0x40))
        self = PyCell_GET(self);
    cls = cell ? PyCell_GET(cell) : NULL;
    const char *wrong = !f->cc->co->co_argcount ? "super(): no arguments"
                        : !self                 ? "super(): arg[0] deleted"
                        : !cell                 ? "super(): __class__ cell not found"
                        : !cls                  ? "super(): empty __class__ cell"
                                                : NULL;
    if (wrong) {
        PyErr_SetString(PyExc_RuntimeError, wrong);
        return NULL;
    }
    return PyObject_CallFunctionObjArgs((PyObject *)&PySuper_Type, cls, self, NULL);
}

PyObject *cap_call_native(frame *f, PyObject *callee, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames)
{
    cap_cfg *cfg = f->failed
                       ? NULL
                       : f->cfg; /* the instructions of a graph that failed run as written, callees too */
    if (callee == (PyObject *)&PySuper_Type && !nargs && !kwnames && f->cc)
        return plain_super(f);
    if (cfg && !cap_is_tracing()) {
        frame *caller = f->cc ? f : NULL; /* a compiled method is called by no frame of ours */
        if (PyFunction_Check(callee) && cap_wants(callee))
            return run_from(cfg, callee, args, nargs, kwnames, caller);
        PyObject *fn = NULL, *self = NULL;
        if (PyMethod_Check(callee) && PyFunction_Check(PyMethod_GET_FUNCTION(callee))) {
            fn = PyMethod_GET_FUNCTION(callee);
            self = PyMethod_GET_SELF(callee);
        } else if (!PyType_Check(callee) && type_is_python(Py_TYPE(callee))) {
            static PyObject *name;
            if (!name)
                name = PyUnicode_InternFromString("__call__");
            fn = _PyType_Lookup(Py_TYPE(callee), name);
            self = callee;
        }
        if (fn && PyFunction_Check(fn) && cap_wants(fn)) {
            Py_ssize_t n = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
            PyObject *small[12], **v = n < 12 ? small : mem_alloc(sizeof *v * (size_t)(n + 1)), *r;
            v[0] = self;
            for (Py_ssize_t i = 0; i < n; i++)
                v[i + 1] = args[i];
            Py_INCREF(fn);
            Py_INCREF(self);
            r = run_from(cfg, fn, v, nargs + 1, kwnames, caller);
            Py_DECREF(fn);
            Py_DECREF(self);
            if (v != small)
                free(v);
            return r;
        }
    }
    if ((!cfg && !f->failed) || cap_is_tracing() || Py_TYPE(callee) == &PyOpFunc_Type ||
        Py_TYPE(callee) == &PyOpMethod_Type)
        return PyObject_Vectorcall(callee, args, (size_t)nargs, kwnames);
    cap_cfg *was = hook_push(cfg); /* what C code calls back is captured */
    PyObject *r = PyObject_Vectorcall(callee, args, (size_t)nargs, kwnames);
    hook_pop(cfg, was);
    return r;
}

void region_reset_ids(void)
{
    next_frame_id = 0;
    next_fn = 1;
    map_free(&told_breaks);
}

/* A call that ran eagerly: the sizes it was given count for automatic dynamic shapes. */
void cap_note_sizes(PyObject *func, PyObject *const *args, Py_ssize_t nargs)
{
    cap_code *cc = PyFunction_Check(func) ? cap_code_of((PyCodeObject *)PyFunction_GET_CODE(func)) : NULL;
    region *r = cc ? region_at(cc, 0) : NULL;
    if (!r || (!r->dynamic && !(r->dynamic = PyDict_New()))) {
        py_forget();
        return;
    }
    for (Py_ssize_t i = 0; i < nargs && i < cc->co->co_argcount; i++) {
        const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(cc->localsplus, i));
        if (!name || !py_is_tensor(args[i]))
            continue;
        tp_tensor *x = py_tensor(args[i]);
        for (int d = 0; d < x->ndim; d++) {
            char key[300];
            snprintf(key, sizeof key, "L['%s'].size()[%d]/%d", name, d, x->ndim);
            PyObject *v = PyLong_FromLongLong(x->size[d]);
            if (v)
                PyDict_SetItemString(r->dynamic, key, v);
            Py_XDECREF(v);
        }
    }
    py_forget();
}
