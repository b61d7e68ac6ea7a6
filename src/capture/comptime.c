/* comptime.c - code that runs while a function is traced: taper._dynamo.comptime, and the breakpoints of
 * TAPER_BREAK_ON. Python does the talking; this file answers its questions about the trace under way. */
#include "capture/capture.h"
#include "base/envvars.h"
#include <opcode.h>

static trace *now; /* the trace that asks, while its callback runs */

static PyObject *python(const char *fn) /* new: a function of taper._dynamo.comptime */
{
    PyObject *m = PyImport_ImportModule("taper._dynamo.comptime"),
             *f = m ? PyObject_GetAttrString(m, fn) : NULL;
    Py_XDECREF(m);
    return f;
}

/* Calls back into Python: nothing it does is recorded. */
static PyObject *call_back(trace *t, PyObject *f, PyObject *args, PyObject *kw)
{
    trace *was = now;
    op_ctx saved = *CX;
    now = t;
    CX->rec = NULL;
    trace *under_way = t_now;
    t_now = NULL; /* what it prints shows symbols, not the numbers behind them */
    PyObject *r = PyObject_Call(f, args, kw);
    t_now = under_way;
    *CX = saved;
    now = was;
    if (r && t->broke)
        Py_CLEAR(r);
    if (!r && PyErr_Occurred() &&
        !t->broke) { /* the debugger's q, a failed assertion: not the traced program's */
        if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_AssertionError) ||
            strcmp(((PyTypeObject *)PyErr_Occurred())->tp_name, "BdbQuit") == 0 ||
            strstr(((PyTypeObject *)PyErr_Occurred())->tp_name, "BdbQuit"))
            t->internal = true;
    }
    if (t->broke)
        py_forget();
    return r;
}

PyObject *t_comptime(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kw)
{
    PyObject *fn = python("_at_compile_time"), *list = PyList_New(0), *dict = PyDict_New(), *r = NULL;
    PyObject *target = PyMethod_Check(f) ? PyMethod_GET_FUNCTION(f) : f;
    for (Py_ssize_t i = 0; fn && list && dict && i < nargs + (kw ? PyTuple_GET_SIZE(kw) : 0); i++) {
        PyObject *o = t_real(t, args[i]);
        if (!o || (i < nargs ? PyList_Append(list, o)
                             : PyDict_SetItem(dict, PyTuple_GET_ITEM(kw, i - nargs), o)) < 0)
            goto done;
    }
    if (fn && list && dict) {
        PyObject *a = PyTuple_Pack(3, target, list, dict);
        r = a ? call_back(t, fn, a, NULL) : NULL;
        Py_XDECREF(a);
    }
done:
    Py_XDECREF(fn);
    Py_XDECREF(list);
    Py_XDECREF(dict);
    return r;
}

/* ---- TAPER_BREAK_ON ---- */
static const char *break_on(void)
{
    static const char *names;
    static bool known;
    if (!known) {
        names = env_get(ENV_break_on);
        known = true;
    }
    return names && *names ? names : NULL;
}

bool comptime_watches(void) { return break_on() != NULL; }

/* Is `name` among the comma-separated names? */
static bool named(const char *name)
{
    size_t n = strlen(name);
    for (const char *p = break_on(); p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, name, n) && (p[n] == ',' || !p[n]))
            return true;
    return false;
}

static void stop(trace *t, const char *why, const char *detail)
{
    PyObject *ty, *v, *tb;
    PyErr_Fetch(&ty, &v, &tb);
    bool broke = t->broke;
    t->broke = false;
    PyObject *f = python("_stop"), *a = f ? Py_BuildValue("(ss)", why, detail) : NULL,
             *r = a ? call_back(t, f, a, NULL) : NULL;
    Py_XDECREF(f);
    Py_XDECREF(a);
    Py_XDECREF(r);
    t->broke = broke || t->broke;
    if (ty && !t->internal) {
        py_forget();
        PyErr_Restore(ty, v, tb);
    } else {
        Py_XDECREF(ty);
        Py_XDECREF(v);
        Py_XDECREF(tb);
    }
}

/* False: the debugger was quit. */
bool comptime_at(trace *t, frame *f, const char *opname)
{
    if (!break_on() || now || !named(opname))
        return true;
    int was = f->at;
    f->at = f->ip; /* the instruction about to be traced */
    char detail[300];
    snprintf(detail, sizeof detail, "%s %d, top of stack: %s", opname, f->cc->ins[f->ip].arg,
             f->sp ? value_name(t, f->stack[f->sp - 1]) : "(empty)");
    stop(t, "opcode", detail);
    f->at = was;
    return !t->internal;
}
void comptime_at_break(trace *t)
{
    if (break_on() && !now && named("break"))
        stop(t, "break", t->reason);
}
void comptime_at_wrap(trace *t, const char *source, PyObject *real)
{
    if (!break_on() || now || !named("wrap"))
        return;
    char detail[400];
    snprintf(detail, sizeof detail, "%s, a %s", source, Py_TYPE(real)->tp_name);
    stop(t, "wrap", detail);
}

/* ---- questions ---- */
static frame *frame_at(int depth)
{
    frame *f = now ? now->top : NULL;
    while (f && depth-- > 0)
        f = f->back;
    return f;
}

static void user_stack(strbuf *b, frame *f)
{
    if (f->back)
        user_stack(b, f->back);
    int line = frame_line(f);
    PyObject *src = py_source_line(f->cc->file, line);
    strbuf_addf(b, "  File \"%s\", line %d, in %s\n", f->cc->file, line, f->cc->name);
    if (src && PyUnicode_GetLength(src))
        strbuf_addf(b, "    %s\n", PyUnicode_AsUTF8(src));
    Py_XDECREF(src);
}

/* ("value", v), or ("outside", real object) for what was not looked at yet. New. */
static PyObject *shown(PyObject *o)
{
    if (!o)
        return Py_BuildValue("(ss)", "value", "<NULL>");
    if (IS_LAZY(o))
        return ((PyLazy *)o)->val ? Py_BuildValue("(sO)", "value", ((PyLazy *)o)->val)
                                  : Py_BuildValue("(sO)", "outside", ((PyLazy *)o)->real);
    return Py_BuildValue("(sO)", "value", o);
}

static PyObject *locals(frame *f) /* [(name, shown)] */
{
    PyObject *l = PyList_New(0);
    for (int i = 0; l && i < f->cc->nfast; i++) {
        PyObject *o = f->fast[i];
        if (!o)
            continue;
        if (!IS_LAZY(o) && PyCell_Check(o)) {
            o = PyCell_GET(o);
            if (!o)
                continue;
        }
        PyObject *s = shown(o), *p = s ? PyTuple_Pack(2, PyTuple_GET_ITEM(f->cc->localsplus, i), s) : NULL;
        if (!p || PyList_Append(l, p) < 0)
            Py_CLEAR(l);
        Py_XDECREF(s);
        Py_XDECREF(p);
    }
    return l;
}

static PyObject *stack(frame *f)
{
    PyObject *l = PyList_New(0);
    for (int i = 0; l && i < f->sp; i++) {
        PyObject *s = shown(f->stack[i]);
        if (!s || PyList_Append(l, s) < 0)
            Py_CLEAR(l);
        Py_XDECREF(s);
    }
    return l;
}

static PyObject *guards(trace *t) /* [(kind, source)] */
{
    static const char *const names[] = {
#define GUARD(id) #id,
#include "capture/guard.def"
    };
    PyObject *l = PyList_New(0);
    for (size_t i = 0; l && i < t->e->guards.n; i++) {
        const guard *g = &t->e->guards.at[i];
        PyObject *p = Py_BuildValue("(ss)", names[g->kind], g->src ? src_text(g->src) : "");
        if (!p || PyList_Append(l, p) < 0)
            Py_CLEAR(l);
        Py_XDECREF(p);
    }
    return l;
}

static PyObject *graph_text(trace *t)
{
    strbuf b = { 0 };
    ir_print(&b, t->rec.g, IR_PRINT_types | IR_PRINT_locs | IR_PRINT_frees | IR_PRINT_short);
    PyObject *r = PyUnicode_FromString(strbuf_str(&b));
    strbuf_free(&b);
    return r;
}

static PyObject *graph_so_far(trace *t) /* capsule of a copy that returns nothing yet */
{
    ir_graph *g = ir_graph_copy(t->rec.g);
    ir_set_output(g, NULL, 0);
    return graph_view(g);
}

/* _comptime(what, depth, arg) */
static PyObject *query(PyObject *m, PyObject *args)
{
    const char *what;
    int depth = 0;
    PyObject *arg = Py_None;
    if (!PyArg_ParseTuple(args, "s|iO", &what, &depth, &arg))
        return NULL;
    if (!strcmp(what, "active"))
        return PyBool_FromLong(now != NULL);
    frame *f = frame_at(depth);
    if (!f)
        return PyErr_Format(PyExc_RuntimeError,
                            now ? "there is no frame that far up"
                                : "this can be asked while a function is being traced only");
    if (!strcmp(what, "stack_text")) {
        strbuf b = { 0 };
        user_stack(&b, f);
        PyObject *r = PyUnicode_FromString(strbuf_str(&b));
        strbuf_free(&b);
        return r;
    }
    if (!strcmp(what, "locals"))
        return locals(f);
    if (!strcmp(what, "value_stack"))
        return stack(f);
    if (!strcmp(what, "guards"))
        return guards(now);
    if (!strcmp(what, "graph_text"))
        return graph_text(now);
    if (!strcmp(what, "graph"))
        return graph_so_far(now);
    if (!strcmp(what, "code"))
        return Py_BuildValue("(Oi)", (PyObject *)f->cc->co, f->at * 2);
    if (!strcmp(what, "depth"))
        return PyLong_FromLong(f->depth);
    if (!strcmp(what, "globals"))
        return Py_NewRef(f->globals);
    if (!strcmp(what, "local")) { /* looks at it, so it is guarded from now on */
        for (int i = 0; i < f->cc->nfast; i++) {
            if (!f->fast[i] ||
                PyObject_RichCompareBool(PyTuple_GET_ITEM(f->cc->localsplus, i), arg, Py_EQ) != 1)
                continue;
            PyObject *o = f->fast[i];
            if (!IS_LAZY(o) && PyCell_Check(o))
                o = PyCell_GET(o);
            op_ctx cur = *CX;
            CX->rec = &now->rec;
            PyObject *v = o ? t_real(now, o) : NULL;
            *CX = cur;
            return v ? Py_NewRef(v) : PyErr_Format(PyExc_NameError, "local '%S' has no value here", arg);
        }
        return PyErr_Format(PyExc_NameError, "there is no local '%S' here", arg);
    }
    if (!strcmp(what, "graph_break")) {
        const char *s = PyUnicode_Check(arg) ? PyUnicode_AsUTF8(arg) : "";
        t_break(now, BRK_manual, "comptime graph_break: %s", *s ? s : "asked for by the program");
        Py_RETURN_NONE;
    }
    return PyErr_Format(PyExc_ValueError, "_comptime() does not know '%s'", what);
}

/* Has a symbolic integer been fixed to its value? */
static PyObject *is_fixed(PyObject *m, PyObject *o)
{
    bool ok = true;
    if (!py_is_symint(o))
        Py_RETURN_TRUE;
    symint v = py_symint_value(o);
    int64_t hint = sym_hint(v, &ok);
    return PyBool_FromLong(ok && sym_known(SYM_eq, v, hint));
}

/* What the locals of f are, as far as they were looked at: kinds of tensors and symbols, never data. JSON, owned. */
static char *locals_json(frame *f)
{
    strbuf b = { 0 };
    json_w w = { &b };
    json_obj(&w);
    for (int i = 0; i < f->cc->nfast; i++) {
        PyObject *o = f->fast[i];
        if (o && !IS_LAZY(o) && PyCell_Check(o))
            o = PyCell_GET(o);
        if (o && IS_LAZY(o))
            o = ((PyLazy *)o)->val;
        const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(f->cc->localsplus, i));
        if (!o || !name || !(py_is_tensor(o) || py_is_symint(o)))
            continue;
        strbuf s = { 0 };
        if (py_is_tensor(o)) {
            const tp_val v = vT(py_tensor(o));
            ir_type_print(&s, &v);
        } else
            sym_print(&s, py_symint_value(o));
        json_key(&w, name);
        json_str(&w, strbuf_str(&s));
        strbuf_free(&s);
    }
    json_end(&w);
    py_forget();
    return strbuf_take(&b);
}

/* The user's frames, outermost first, for events that show them. */
static int stack_now(void *data, ev_frame *out, int max)
{
    static char *line[64], *locals;
    bool inner = ev_trace_on(
        EV_guard_added); /* the locals of the innermost frame of the program are told, too */
    ir_rec *r = CX->rec;
    trace *t = r && r->lift ? r->lift_data : NULL;
    int n = 0;
    for (frame *f = t ? t->top : NULL; f && n < max && n < (int)COUNT(line); f = f->back)
        n++;
    int k = n;
    for (frame *f = t ? t->top : NULL; f && k > 0; f = f->back) {
        PyObject *s = py_source_line(f->cc->file, frame_line(f));
        k--;
        free(line[k]);
        line[k] = mem_strdup(s ? PyUnicode_AsUTF8(s) : "");
        out[k] = (ev_frame){ .file = f->cc->file,
                             .name = f->cc->name,
                             .line = frame_line(f),
                             .loc = line[k],
                             .library = f->cc->library };
        if (inner && !f->cc->library) {
            free(locals);
            out[k].locals = locals = locals_json(f);
            inner = false;
        }
        Py_XDECREF(s);
    }
    return n;
}

static PyMethodDef functions[] = { { "_comptime", query, METH_VARARGS,
                                     "what the trace under way looks like" },
                                   { "_sym_fixed", is_fixed, METH_O, "has a symbolic integer been fixed?" },
                                   { NULL } };
int py_init_comptime(PyObject *m)
{
    ev_set_stack_source(stack_now, NULL);
    return PyModule_AddFunctions(m, functions);
}
