/* log.c - what the tracer shows: lines, instructions, the symbolic stack, the plan of a region. */
#define _GNU_SOURCE
#include "capture/capture.h"
#include "base/source.h"
#include <opcode.h>

const char *log_opname(int op)
{
    static PyObject *names;
    if (!names) {
        PyObject *m = PyImport_ImportModule("opcode");
        names = m ? PyObject_GetAttrString(m, "opname") : NULL;
        Py_XDECREF(m);
    }
    return names ? PyUnicode_AsUTF8(PyList_GET_ITEM(names, op)) : "?";
}

static PyObject *cached_line(const char *file, int line)
{
    static PyObject *getline, *cache;
    if (!getline) {
        PyObject *m = PyImport_ImportModule("linecache");
        getline = m ? PyObject_GetAttrString(m, "getline") : NULL;
        cache = m ? PyObject_GetAttrString(m, "cache") : NULL;
        Py_XDECREF(m);
    }
    size_t n = strlen(file);
    if (*file == '<' && file[n - 1] == '>' && cache && PyDict_Check(cache) &&
        !PyDict_GetItemString(cache, file))
        return PyUnicode_FromString(""); /* it would not look elsewhere for a text that nobody gave it */
    return getline ? PyObject_CallFunction(getline, "si", file, line) : NULL;
}

/* New, without the white space behind it, or on both sides. What is not a plain file (a cell of a notebook, a member of an
 * archive) only Python's linecache knows. */
static PyObject *read_line(const char *file, int line, bool strip)
{
    const char *text = source_is_file(file) ? source_line(file, line) : NULL;
    void *rec = CX->rec;
    CX->rec = NULL;
    PyObject *s = text ? PyUnicode_FromString(text) : cached_line(file, line),
             *r = s ? PyObject_CallMethod(s, strip ? "strip" : "rstrip", NULL) : NULL;
    CX->rec = rec;
    Py_XDECREF(s);
    py_forget();
    return r;
}

PyObject *py_source_line(const char *file, int line) { return read_line(file, line, true); }
PyObject *py_source_text(const char *file, int line) { return read_line(file, line, false); }

const char *value_name(trace *t, PyObject *o)
{
    static char buf[4][400];
    static int k;
    char *b = buf[k++ & 3];
    PyTypeObject *tp;
    if (!o)
        return "NullVariable()";
    if (IS_LAZY(o)) {
        PyLazy *l = (PyLazy *)o;
        if (!l->val && l->src->kind != SRC_global && l->src->kind != SRC_instattr)
            return "LazyVariableTracker()";
        o = l->val ? l->val : l->real;
    }
    tp = Py_TYPE(o);
    const char *kind = NULL;
    if (t_is_tensor_type(tp))
        return "TensorVariable()";
    if (py_is_symint(o))
        return "SymNodeVariable()";
    if (tp == &PyOpFunc_Type || tp == &PyOpMethod_Type)
        kind = "TorchInGraphFunctionVariable";
    else if (PyModule_Check(o))
        kind = "PythonModuleVariable";
    else if (PyFunction_Check(o))
        return "UserFunctionVariable()";
    else if (PyMethod_Check(o))
        return py_is_tensor(PyMethod_GET_SELF(o)) ? "GetAttrVariable()" : "UserMethodVariable()";
    else if (PyCFunction_Check(o))
        kind = "BuiltinVariable";
    else if (PyType_Check(o))
        kind = type_is_python((PyTypeObject *)o) ? "UserDefinedClassVariable" : "BuiltinVariable";
    else if (PyList_Check(o)) {
        snprintf(b, 400, "ListVariable(length=%zd)", PyList_GET_SIZE(o));
        return b;
    } else if (PyTuple_Check(o)) {
        snprintf(b, 400, "%s(length=%zd)", tp == PySize_Type ? "SizeVariable" : "TupleVariable",
                 PyTuple_GET_SIZE(o));
        return b;
    } else if (PyDict_Check(o))
        return "ConstDictVariable()";
    else if (PyCell_Check(o))
        return "CellVariable()";
    else if (t_plain_const(o))
        kind = "ConstantVariable";
    else {
        snprintf(b, 400, "UserDefinedObjectVariable(%s)", tp->tp_name);
        return b;
    }
    PyObject *r = PyObject_Repr(o);
    if (r && PyModule_Check(o) && !strcmp(cap_brand(), "torch") &&
        !strncmp(PyUnicode_AsUTF8(r), "<module 'taper", 14)) /* by the name it was imported with */
        Py_SETREF(r, PyUnicode_FromFormat("<module 'torch%s", PyUnicode_AsUTF8(r) + 14));
    if (!strcmp(kind, "ConstantVariable"))
        snprintf(b, 400, "%s(%s: %.300s)", kind, tp->tp_name, r ? PyUnicode_AsUTF8(r) : "?");
    else
        snprintf(b, 400, "%s(%.300s)", kind, r ? PyUnicode_AsUTF8(r) : "?");
    py_forget();
    Py_XDECREF(r);
    return b;
}

void log_line(trace *t, frame *f)
{
    int line = f->cc->ins[f->ip].line;
    if (line < 0 || line == f->last_line)
        return;
    bool first = f->last_line < 0;
    f->last_line = line;
    if (!t->log_src)
        return;
    PyObject *s = read_line(f->cc->file, line, false);
    char depth[48] = "";
    if (f->depth)
        snprintf(depth, sizeof depth, " (inline depth: %d)", f->depth);
    ev_text(EV_trace_source, NULL, "TRACE starts_line %s:%d in %s (%s)%s\n    %s", f->cc->file, line,
            f->cc->name, first && !f->depth ? "" : f->cc->name, depth, s ? PyUnicode_AsUTF8(s) : "");
    Py_XDECREF(s);
}

static void argval(strbuf *b, const frame *f, const instr *in)
{
    cap_code *cc = f->cc;
    PyObject *o = NULL, *r = NULL;
    switch (in->op) {
    case LOAD_GLOBAL: o = PyTuple_GET_ITEM(cc->names, in->arg >> 1); break;
    case LOAD_ATTR: o = PyTuple_GET_ITEM(cc->names, TP_PY312 ? in->arg >> 1 : in->arg); break;
#if !TP_PY312
    case LOAD_METHOD:
#endif
    case STORE_ATTR:
    case DELETE_ATTR:
    case STORE_GLOBAL:
    case IMPORT_NAME:
    case IMPORT_FROM: o = PyTuple_GET_ITEM(cc->names, in->arg); break;
    case LOAD_FAST:
    case STORE_FAST:
    case DELETE_FAST:
    case LOAD_DEREF:
    case STORE_DEREF:
#if !TP_PY313
    case LOAD_CLOSURE:
#endif
#if TP_PY314
    case LOAD_FAST_BORROW:
#endif
    case MAKE_CELL: o = PyTuple_GET_ITEM(cc->localsplus, in->arg); break;
#if TP_PY313
    case LOAD_FAST_LOAD_FAST:
#if TP_PY314
    case LOAD_FAST_BORROW_LOAD_FAST_BORROW:
#endif
    case STORE_FAST_LOAD_FAST:
    case STORE_FAST_STORE_FAST:
        strbuf_addf(b, "%s, %s", PyUnicode_AsUTF8(PyTuple_GET_ITEM(cc->localsplus, in->arg >> 4)),
                    PyUnicode_AsUTF8(PyTuple_GET_ITEM(cc->localsplus, in->arg & 15)));
        return;
#endif
    case LOAD_CONST:
        r = PyObject_Repr(PyTuple_GET_ITEM(cc->consts, in->arg));
        o = r;
        break;
    case COMPARE_OP: {
        static const char *const ops[] = { "<", "<=", "==", "!=", ">", ">=" };
        strbuf_add(b, ops[compare_arg(in->arg) % 6]);
        return;
    }
    case JUMP_BACKWARD: strbuf_addf(b, "%d", 2 * (in->next - in->arg)); return;
    case JUMP_FORWARD:
    case FOR_ITER: strbuf_addf(b, "%d", 2 * (in->next + in->arg)); return;
    default:
        if (OP_HAS_ARG(in->op))
            strbuf_addf(b, "%d", in->arg);
        else
            strbuf_add(b, "None");
        return;
    }
    const char *u = o && PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : NULL;
    strbuf_add(b, u ? u : "?");
    py_forget();
    Py_XDECREF(r);
}

void log_instr(trace *t, frame *f)
{
    const instr *in = &f->cc->ins[f->ip];
    if (!t->log_bc || in->op == CACHE || in->op == EXTENDED_ARG || !strcmp(log_opname(in->op), "PRECALL"))
        return;
    if (!comptime_at(t, f, log_opname(in->op)))
        return;
    strbuf b = { 0 };
    strbuf_addf(&b, "TRACE %s ", log_opname(in->op));
    argval(&b, f, in);
    strbuf_add(&b, " [");
    for (int i = 0; i < f->sp; i++)
        strbuf_addf(&b, "%s%s", i ? ", " : "", value_name(t, f->stack[i]));
    strbuf_add(&b, "]");
    if (ev_on(EV_trace_bytecode))
        ev_text(EV_trace_bytecode, NULL, "%s", strbuf_str(&b));
    if (t->verbose) {
        char **slot = &t->last[t->nlast++ % COUNT(t->last)];
        free(*slot);
        *slot = strbuf_take(&b);
    }
    strbuf_free(&b);
}

/* ---- the trace_call log ---- */
/* "file:line in fn (fn)", then the line with the part underlined that the instruction at f->at stands for. */
static void place_text(strbuf *b, const frame *f)
{
    int line = 0, col = -1, end_line = 0, end_col = -1;
    PyCode_Addr2Location(f->cc->co, 2 * f->at, &line, &col, &end_line, &end_col);
    strbuf_addf(b, "%s:%d in %s (%s)\n", f->cc->file, line, f->cc->name, f->cc->name);
    PyObject *s = read_line(f->cc->file, line, false);
    const char *text = s ? PyUnicode_AsUTF8(s) : NULL;
    size_t n = text ? strlen(text) : 0, from = col < 0 ? 0 : MIN((size_t)col, n);
    size_t to = end_line == line && end_col >= 0 ? MIN((size_t)end_col, n) : n, indent = 0;
    while (indent < n && (text[indent] == ' ' || text[indent] == '\t'))
        indent++;
    strbuf_addf(b, "    %s\n    ", text ? text + indent : "");
    if (col < 0 || to <= from || from < indent)
        from = indent, to = n;
    for (size_t i = indent; i < to; i++) /* one column a character, not a byte */
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            strbuf_addc(b, i < from ? ' ' : '~');
    Py_XDECREF(s);
}

void log_calls(trace *t, frame *f)
{
    if (PyErr_Occurred())
        return;
    int now = t->g->nnode - (int)t->g->inputs.n, fresh = now - t->log_nodes; /* inputs go in front */
    t->log_nodes = now;
    if (fresh <= 0)
        return;
    ir_node *n = t->g->last;
    while (n && --fresh > 0 && n->prev)
        n = n->prev;
    strbuf where = { 0 };
    place_text(&where, f);
    for (; n; n = n->next)
        if (n->kind == IR_call || n->kind == IR_opaque)
            ev_text(EV_trace_call, NULL, "TRACE FX call %s from %s", n->name, strbuf_str(&where));
    strbuf_free(&where);
}

void log_inlined(trace *t, frame *f)
{
    strbuf where = { 0 };
    place_text(&where, f->back);
    ev_text(EV_trace_call, NULL, "TRACE inlined call %s from %s", f->cc->name, strbuf_str(&where));
    strbuf_free(&where);
}

static const char *const effect_names[] = { "list",    "extend",  "dict",      "set",  "setattr",
                                            "delattr", "global",  "delglobal", "cell", "delcell",
                                            "setitem", "delitem", "call" };

void log_effects(const entry *e)
{
    strbuf b = { 0 };
    if ((!ev_on(EV_side_effects) && !ev_trace_on(EV_artifact)) || !e->effects.n)
        return;
    for (size_t i = 0; i < e->effects.n; i++) {
        const effect *fx = &e->effects.at[i];
        PyObject *k = fx->key ? PyObject_Repr(fx->key) : NULL;
        strbuf_addf(&b, "\n    %s%s%s%s%s", effect_names[fx->kind], k ? " " : "",
                    k ? PyUnicode_AsUTF8(k) : "", fx->target && fx->target->kind == R_src ? " of " : "",
                    fx->target && fx->target->kind == R_src ? src_text(e->sources.at[fx->target->index])
                                                            : "");
        py_forget();
        Py_XDECREF(k);
    }
    ev_text(EV_side_effects, NULL, "Mutations replayed after the graph of %s:%s", e->r->cc->name,
            strbuf_str(&b));
    ev_artifact("dynamo_side_effects", "string", NULL, strbuf_str(&b) + 1);
    strbuf_free(&b);
}

/* The bytecode log: CPython's listing, then what happens instead. */
void log_region(const region *r, const entry *e)
{
    if (!ev_on(EV_bytecode))
        return;
    const cap_code *cc = r->cc;
    PyObject *m = PyImport_ImportModule("dis"),
             *bc = m ? PyObject_CallMethod(m, "Bytecode", "O", cc->co) : NULL,
             *s = bc ? PyObject_CallMethod(bc, "dis", NULL) : NULL;
    ev_text(EV_bytecode, NULL, "ORIGINAL BYTECODE %s %s line %d\n%s", cc->name, cc->file, cc->first_line,
            s ? PyUnicode_AsUTF8(s) : "");
    py_forget();
    Py_XDECREF(m);
    Py_XDECREF(bc);
    Py_XDECREF(s);
    strbuf b = { 0 };
    int k = 0;
    strbuf_addf(&b, "%6d CHECK_GUARDS             %d/%d (%d check%s)\n", 2 * k++, r->frame_id, e->compile_id,
                e->nstep, plural(e->nstep));
    for (int i = 0; i < e->nin; i++)
        strbuf_addf(&b, "%6d LOAD_SOURCE              %s\n", 2 * k++, src_text(e->in[i]));
    strbuf_addf(&b, "%6d CALL_GRAPH               %s (%d input%s, %d output%s)\n", 2 * k++,
                e->graph ? e->graph->name : "graph", e->nin, plural(e->nin), e->nout, plural(e->nout));
    for (size_t i = 0; i < e->effects.n; i++)
        strbuf_addf(&b, "%6d APPLY_EFFECT             %s\n", 2 * k++, effect_names[e->effects.at[i].kind]);
    if (e->returns)
        strbuf_addf(&b, "%6d RETURN_VALUE\n", 2 * k++);
    else {
        for (int i = 0; i < e->nlocal; i++)
            if (e->local[i])
                strbuf_addf(&b, "%6d %-24s %s\n", 2 * k++,
                            e->local[i]->kind == R_null ? "DELETE_FAST" : "STORE_FAST",
                            PyUnicode_AsUTF8(PyTuple_GET_ITEM(cc->localsplus, i)));
        strbuf_addf(&b, "%6d BUILD_STACK              %d\n", 2 * k++, e->nstack);
        strbuf_addf(&b, "%6d NATIVE_STEP              %s at offset %d, line %d\n", 2 * k++,
                    log_opname(cc->ins[e->stop].op), 2 * e->stop, cc->ins[e->stop].line);
        strbuf_addf(&b, "%6d RESUME_REGION            %d\n", 2 * k++, 2 * cc->ins[e->stop].next);
    }
    ev_text(EV_bytecode, NULL, "MODIFIED BYTECODE %s %s line %d\n%s", cc->name, cc->file, cc->first_line,
            strbuf_str(&b));
    strbuf_free(&b);
}
