/* capture_log.c - what capture says of itself: breaks, graphs, guards and errors in logs and traces. */
#include "base/fault.h"
#include "capture/attempt.h"
#include "base/intern.h"
#include "base/source.h"
#include "events/metrics.h"
#include "base/clock.h"
#include "base/envvars.h"
#include <frameobject.h>
#include <opcode.h>

void region_name(const region *r, char *buf, size_t n)
{
    if (r->ip)
        snprintf(buf, n, "%s_resume_in_%s_at_%d", !strcmp(cap_brand(), "torch") ? "torch_dynamo" : "taper",
                 r->cc->name, r->from_line);
    else
        snprintf(buf, n, "%s", r->shown.name ? r->shown.name : r->cc->name);
}

/* ---- breaks in the log, as errors ---- */

PyObject *break_list; /* explain(): every break, as (reason, stack) */

void break_note(why_broke *w, trace *t)
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

PyObject *break_raise(why_broke *w)
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

void break_log_reset(void) { map_free(&told_breaks); }
void break_log(region *r, const cap_cfg *cfg, why_broke *w)
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

void capture_log_graph(entry *e, ir_graph *g)
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

double guard_latency(entry *e, frame *f) /* microseconds of one check */
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

/* {"file": [lines]}: those that called what became the graph. The lines of the nodes are in its text. */
static void calls_json(strbuf *b, const ir_graph *g)
{
    interns files = { 0 };
    map known = { 0 };
    VEC(uint64_t) all = { 0 }; /* file << 32 | line */
    IR_EACH (n, g)
        for (const ir_loc *l = n->loc ? n->loc->outer : NULL; l; l = l->outer) {
            if (l->library || !l->file)
                continue;
            uint64_t key = (uint64_t)intern_id(&files, l->file, strlen(l->file), NULL) << 32 |
                           (uint32_t)l->line;
            if (!map_geti(&known, key)) {
                map_puti(&known, key, (void *)1);
                vec_push(&all, key);
            }
        }
    json_w w = { b };
    json_obj(&w);
    for (size_t f = 0; f < files.strings.n; f++) {
        json_key(&w, files.strings.at[f]);
        json_arr(&w);
        for (size_t i = 0; i < all.n; i++)
            if (all.at[i] >> 32 == f)
                json_int(&w, (int)(uint32_t)all.at[i]);
        json_end(&w);
    }
    json_end(&w);
    vec_free(&all);
    map_free(&known);
    interns_free(&files);
}

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
    strbuf_add(meta, ", \"calls\": ");
    calls_json(meta, g);
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
bool capture_graph_stays(const ir_graph *g)
{
    bool still = !sym_env_n_symbols(g->env);
    IR_EACH (n, g) {
        still &= n->kind != IR_const;
    }
    return still;
}

void capture_log_sizes(const ir_graph *g, strbuf *sizes)
{
    told_graph t = { g, sizes };
    if (!ev_trace_on(EV_dynamo_output_graph))
        return;
    if (g->nnode >= EV_LATER_NODES && capture_graph_stays(g))
        ev_later(trace_graph, &t, sizeof t, g, sizes);
    else
        ev_now(trace_graph, &t);
}

/* still: nothing that the guards say can change. */
void capture_log_entry(entry *e, bool still, PyObject *const *in)
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

bool guard_latency_wanted(void)
{
    return ev_on(EV_guards) || ev_trace_on(EV_dynamo_guards) || ev_on(EV_verbose_guards);
}

void capture_log_guards(entry *e, double us)
{
    if (!guard_latency_wanted())
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

/* ---- the source of traced functions ---- */
static int end_line(PyCodeObject *co, int most)
{
    PyObject *all = PyObject_CallMethod((PyObject *)co, "co_positions", NULL), *at;
    while (all && (at = PyIter_Next(all))) { /* (line, end_line, column, end_column) */
        for (int i = 0; i < 2; i++) {
            PyObject *line = PyTuple_GET_ITEM(at, i);
            if (line != Py_None)
                most = MAX(most, (int)PyLong_AsLong(line));
        }
        Py_DECREF(at);
    }
    Py_XDECREF(all);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(co->co_consts); i++) { /* functions inside of it */
        PyObject *k = PyTuple_GET_ITEM(co->co_consts, i);
        if (PyCode_Check(k))
            most = MAX(most, end_line((PyCodeObject *)k, most));
    }
    return most;
}

void capture_trace_source(const cap_code *cc)
{
    enum { LINES = 1000, BYTES = 48 << 10 };
    strbuf b = { 0 };
    if (!ev_trace_on(EV_artifact) || cc->library || cap_is_skipped_file(cc->file))
        return;
    strbuf_addf(&b, "%s:%d", cc->file, cc->first_line);
    bool first = ev_trace_first(b.s);
    strbuf_clear(&b);
    if (!first)
        return;
    void *rec = CX->rec; /* nothing of this belongs to the program */
    CX->rec = NULL;
    PyObject *type, *val, *tb;
    PyErr_Fetch(&type, &val, &tb);
    int last = MIN(end_line(cc->co, cc->first_line), cc->first_line + LINES - 1), got = 0;
    json_w w = { &b };
    json_obj(&w);
    json_key(&w, "file");
    json_str(&w, cc->file);
    json_key(&w, "name");
    json_str(&w, cc->name);
    json_key(&w, "line");
    json_int(&w, cc->first_line);
    json_key(&w, "lines");
    json_arr(&w);
    for (int i = cc->first_line; i <= last && b.n < BYTES; i++) {
        PyObject *s = py_source_text(cc->file, i);
        const char *text = s ? PyUnicode_AsUTF8(s) : NULL;
        got += text && *text;
        json_str(&w, text ? text : "");
        Py_XDECREF(s);
    }
    json_end(&w);
    json_end(&w);
    if (got) {
        const ev_cid *now = ev_cid_now();
        ev_cid in = now ? *now : (ev_cid){ 0 };
        ev_cid_set(NULL); /* it may never become a compile */
        ev_artifact("source", "json", NULL, b.s);
        ev_cid_set(now ? &in : NULL);
    }
    py_forget();
    PyErr_Restore(type, val, tb);
    CX->rec = rec;
    strbuf_free(&b);
}

/* The trace: a compile of r begins here, with the calls that led to it, outermost first. */
void capture_trace_start(const region *r)
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
void capture_trace_error(const region *r, bool started, const char *file, int line)
{
    PyObject *type, *val, *tb;
    PyErr_Fetch(&type, &val, &tb);
    PyErr_NormalizeException(&type, &val, &tb);
    if (!started)
        capture_trace_start(r);
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
void capture_raise_internal(void)
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
