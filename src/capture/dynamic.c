/* dynamic.c - which sizes and numbers become symbols. */
#include "capture/capture.h"
#include <math.h>
#include "events/metrics.h"

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

PyObject *region_seen(region *r)
{
    char owner[600];
    snprintf(owner, sizeof owner, "%s@%s:%d", r->shown.name ? r->shown.name : "",
             r->shown.file ? r->shown.file : "", r->shown.line);
    if (!r->dynamic && !(r->dynamic = PyDict_New()))
        return NULL;
    PyObject *seen = PyDict_GetItemString(r->dynamic, owner), *made = NULL;
    if (!seen && (made = PyDict_New()) && !PyDict_SetItemString(r->dynamic, owner, made))
        seen = made;
    Py_XDECREF(made);
    return seen;
}

bool t_dim_policy(trace *t, PyObject *o, source *s, int dim, int64_t size, sym_policy *p, int64_t *lo,
                  int64_t *hi)
{
    PyObject *seen = region_seen(t->e->r);
    *p = SYM_static;
    if (!seen)
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
    was = PyDict_GetItemWithError(seen, key);
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
            PyDict_SetItem(seen, key, now);
        }
    } else
        PyDict_SetItem(seen, key, now);
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

/* The class that guards say the object has, or NULL. */
static PyTypeObject *class_of(const entry *e, const source *s)
{
    for (int i = s->guards; i; i = e->guards.at[i - 1].older)
        if (e->guards.at[i - 1].kind == G_TYPE_MATCH)
            return (PyTypeObject *)e->guards.at[i - 1].obj;
    return NULL;
}

/* Does a number lie in an object that may be another one, or hold another number, each time? Those of modules and what
 * hangs on them are settings: they stay constants. */
static bool in_data(const entry *e, const source *s)
{
    static PyObject *forward;
    if (!forward)
        forward = PyUnicode_InternFromString("forward");
    for (; s->kind == SRC_item || s->kind == SRC_key || s->kind == SRC_instattr || s->kind == SRC_cell;
         s = s->base) {
        PyTypeObject *tp = class_of(e, s->base);
        if (s->kind == SRC_instattr &&
            (!tp || PyType_IsSubtype(tp, &PyType_Type) || _PyType_Lookup(tp, forward)))
            return false;
        if (s->base->kind == SRC_local || s->base->kind == SRC_stack)
            return true;
    }
    return s->kind == SRC_local || s->kind == SRC_stack;
}

void t_note_fixed(trace *t, const source *s)
{
    char key[320];
    snprintf(key, sizeof key, "fixed %s", src_text(s));
    PyObject *seen = region_seen(t->e->r);
    if (seen && PyDict_SetItemString(seen, key, Py_True) < 0)
        py_forget();
}

bool t_float_policy(trace *t, PyObject *o, source *s)
{
    char key[320];
    PyObject *seen = region_seen(t->e->r);
    snprintf(key, sizeof key, "fixed %s", src_text(s));
    if (!seen || !CX->rec || !in_data(t->e, s) || cfg_bool("specialize_float", true) ||
        t->cfg->dynamic == 0 || !isfinite(PyFloat_AS_DOUBLE(o)) || PyDict_GetItemString(seen, key))
        return false;
    PyObject *was = PyDict_GetItemString(seen, src_text(s));
    if (!was || (was != Py_None && !PyFloat_CheckExact(was))) {
        PyDict_SetItemString(seen, src_text(s), o);
        return false;
    }
    if (was == Py_None)
        return true;
    if (PyFloat_AS_DOUBLE(was) == PyFloat_AS_DOUBLE(o))
        return false;
    if (ev_log_on(EVC_dynamic, EV_INFO))
        ev_log(EVC_dynamic, EV_INFO, NULL, "automatic dynamic float %s val %.17g != %.17g", src_text(s),
               PyFloat_AS_DOUBLE(o), PyFloat_AS_DOUBLE(was));
    PyDict_SetItemString(seen, src_text(s), Py_None);
    return automatic_dynamic();
}

int t_int_policy(trace *t, PyObject *o, source *s)
{
    PyObject *seen = region_seen(t->e->r);
    if (!seen)
        return 0;
    if (!in_data(t->e, s)) { /* only counters: what the region writes itself */
        char key[320];
        snprintf(key, sizeof key, "written %s", src_text(s));
        if ((s->kind != SRC_instattr && !(s->kind == SRC_key && s->base->kind == SRC_dict)) ||
            t->cfg->dynamic > 0 ||
            (!PyDict_GetItemString(seen, key) && PyDict_GetItemString(seen, src_text(s))))
            return 0;
    } else if (t->cfg->dynamic > 0 && s->kind == SRC_instattr)
        return 0;
    if (cfg_bool("specialize_int", false) || t->cfg->dynamic == 0)
        return 0;
    PyObject *was = PyDict_GetItemString(seen, src_text(s));
    if (!was) {
        PyDict_SetItemString(seen, src_text(s), o);
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
        PyDict_SetItemString(seen, src_text(s), Py_None);
        return t->cfg->dynamic > 0 || automatic_dynamic();
    }
    return t->cfg->dynamic > 0;
}
