/* survey.c - what capture did, as data: breaks and recompilations as they happen, entries with their guards and side
 * effects afterwards. The profiler, explain() and taper.compiler.survey() are made of it in Python. */
#include "capture/capture.h"

static PyObject *watch; /* a list that gets a tuple per break and recompilation; NULL: nobody looks */

bool cap_watching(void) { return watch != NULL; }

static void tell(PyObject *t) /* steals */
{
    if (t && watch)
        PyList_Append(watch, t);
    Py_XDECREF(t);
    PyErr_Clear();
}

void cap_watch_break(const cap_cfg *cfg, const break_row *row, const char *reason, const char *stack,
                     const char *file, int line)
{
    tell(Py_BuildValue("(sOsssisss)", "break", cfg->backend, reason, stack, file, line, row->code,
                       row->explain, row->hint));
}

void cap_watch_recompile(const cap_cfg *cfg, const char *name, const char *file, int line,
                         const char *reasons)
{
    tell(Py_BuildValue("(sOssis)", "recompile", cfg->backend, name, file, line, reasons));
}

/* _capture_watch(list or None) -> the one before */
static PyObject *set_watch(PyObject *m, PyObject *l)
{
    if (l != Py_None && !PyList_Check(l))
        return PyErr_Format(PyExc_TypeError, "_capture_watch() takes a list or None");
    PyObject *was = watch;
    watch = l == Py_None ? NULL : Py_NewRef(l);
    return was ? was : Py_NewRef(Py_None);
}

static const char *where_from(const entry *e, const recipe *r)
{
    if (r && r->kind == R_src)
        for (size_t i = 0; i < e->sources.n; i++)
            if (e->sources.at[i]->id == r->index)
                return src_text(e->sources.at[i]);
    return "an object";
}

static PyObject *effects_of(const entry *e)
{
    static const char *const names[] = {
        [FX_list] = "list",
        [FX_extend] = "list",
        [FX_dict] = "dict",
        [FX_set] = "set",
        [FX_setattr] = "attribute",
        [FX_delattr] = "attribute deleted",
        [FX_global] = "global",
        [FX_delglobal] = "global deleted",
        [FX_cell] = "closure variable",
        [FX_delcell] = "closure variable deleted",
        [FX_setitem] = "item",
        [FX_delitem] = "item deleted",
        [FX_call] = "call",
    };
    _Static_assert(COUNT(names) == FX_call + 1, "a name for every kind");
    PyObject *l = PyList_New(0);
    for (size_t i = 0; l && i < e->effects.n; i++) {
        const effect *x = &e->effects.at[i];
        PyObject *t = Py_BuildValue("(ssO)", names[x->kind], where_from(e, x->target),
                                    x->key && PyUnicode_Check(x->key) ? x->key : Py_None);
        if (!t || PyList_Append(l, t) < 0)
            Py_CLEAR(l);
        Py_XDECREF(t);
    }
    return l;
}

static PyObject *guards_of(const entry *e)
{
    static const char *const names[] = {
#define GUARD(id) #id,
#include "capture/guard.def"
    };
    PyObject *l = PyList_New(0);
    for (size_t i = 0; l && i < e->guards.n; i++) {
        const guard *g = &e->guards.at[i];
        PyObject *t = Py_BuildValue("(sss)", names[g->kind], g->src ? src_text(g->src) : "", guard_reads(g));
        if (!t || PyList_Append(l, t) < 0)
            Py_CLEAR(l);
        Py_XDECREF(t);
    }
    return l;
}

/* _capture_entries() -> [(function, file, line, frame id, compile id, operators, guards, effects)] */
static PyObject *entries(PyObject *m, PyObject *x)
{
    PyObject *l = PyList_New(0);
    cap_code *cc;
    for (size_t i = 0; l && (cc = code_at(i)); i++)
        for (int k = 0; l && k < cc->n; k++)
            for (entry *e = cc->regions[k] ? cc->regions[k]->first : NULL; l && e; e = e->next) {
                PyObject *g = guards_of(e), *f = g ? effects_of(e) : NULL;
                PyObject *t = f ? Py_BuildValue("(ssiiiiOO)", cc->name, cc->file, cc->ins[k].line,
                                                cc->regions[k]->frame_id, e->compile_id, e->nops, g, f)
                                : NULL;
                if (!t || PyList_Append(l, t) < 0)
                    Py_CLEAR(l);
                Py_XDECREF(g);
                Py_XDECREF(f);
                Py_XDECREF(t);
            }
    return l;
}

static PyMethodDef functions[] = {
    { "_capture_watch", set_watch, METH_O, "collect breaks and recompilations as they happen" },
    { "_capture_entries", entries, METH_NOARGS, "what was captured, with guards and side effects" },
    { NULL }
};
int py_init_survey(PyObject *m) { return PyModule_AddFunctions(m, functions); }
