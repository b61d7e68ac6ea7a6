/* trace_lookup.c - what tracing found in classes and namespaces: "this class has this method", "no global hides that builtin".
 * Each finding is a guard, but as they seldom change they are checked by owner: while the version of the class or
 * dictionary is the one seen last, all its findings hold; when it moved, they are looked up again. */
#include "capture/capture.h"

/* Functions that are guarded by identity from here on may be inlined: what they close over is from outside. */
static void known_function(trace *t, PyObject *fn)
{
    cap_code *cc = fn && PyFunction_Check(fn) && !t_obj(t, fn)
                       ? cap_code_of((PyCodeObject *)PyFunction_GET_CODE(fn))
                       : NULL;
    if (cc && !cc->library)
        t_obj_add(t, fn, fn, src_get(t->e, SRC_const, NULL, fn, NULL, 0));
}
static void known_functions(trace *t, PyObject *v)
{
    static const char *const parts[] = { "fget", "fset", "fdel" };
    if (PyFunction_Check(v)) {
        known_function(t, v);
        return;
    }
    bool wrapped = Py_TYPE(v) == &PyStaticMethod_Type || Py_TYPE(v) == &PyClassMethod_Type;
    for (int i = 0; i < (wrapped ? 1 : Py_TYPE(v) == &PyProperty_Type ? 3 : 0); i++) {
        PyObject *fn = PyObject_GetAttrString(v, wrapped ? "__func__" : parts[i]);
        known_function(t, fn);
        Py_XDECREF(fn);
        py_forget();
    }
}

void t_found(trace *t, PyObject *owner, PyObject *name, PyObject *value)
{
    entry *e = t->e;
    uintptr_t first = (uintptr_t)map_geti(&t->looked, (uint64_t)(uintptr_t)name);
    for (uintptr_t i = first; i; i = (uintptr_t)e->looks.at[i - 1].older)
        if (e->looks.at[i - 1].owner == owner)
            return;
    look l = { .owner = keep(e, owner), .name = keep(e, name), .value = keep(e, value), .older = (int)first };
    vec_push(&e->looks, l);
    map_puti(&t->looked, (uint64_t)(uintptr_t)name, (void *)e->looks.n);
    if (value)
        known_functions(t, value);
}

/* As _PyType_Lookup. Borrowed. */
PyObject *t_look(PyTypeObject *tp, PyObject *name)
{
    PyObject *d = _PyType_Lookup(tp, name);
    if (t_now && (type_is_python(tp) || tp == &PyTensor_Type) && PyUnicode_Check(name))
        t_found(t_now, (PyObject *)tp, name, d);
    return d;
}

PyObject *t_look_for(PyTypeObject *tp, const char *name)
{
    PyObject *n = PyUnicode_InternFromString(name), *d = n ? t_look(tp, n) : NULL;
    Py_XDECREF(n);
    return d;
}

PyObject *t_type_func(PyObject *o, const char *name)
{
    PyObject *d = t_look_for(Py_TYPE(o), name);
    return d && PyFunction_Check(d) ? d : NULL;
}

/* ---- checking ---- */
static int by_owner(const void *a, const void *b)
{
    const look *x = a, *y = b;
    return x->owner != y->owner ? ((uintptr_t)x->owner < (uintptr_t)y->owner ? -1 : 1) : x->older - y->older;
}

void looks_finish(entry *e)
{
    for (size_t i = 0; i < e->looks.n; i++)
        e->looks.at[i].older = (int)i; /* the order they were made in */
    if (e->looks.n)
        qsort(e->looks.at, e->looks.n, sizeof *e->looks.at, by_owner);
    for (size_t i = 0; i < e->looks.n;) {
        look_group g = { .owner = e->looks.at[i].owner, .from = (int)i };
        while (i < e->looks.n && e->looks.at[i].owner == g.owner)
            i++;
        g.to = (int)i;
        vec_push(&e->look_groups, g);
    }
}

static uint64_t version_of(PyObject *owner)
{
    return PyType_Check(owner) ? ((PyTypeObject *)owner)->tp_version_tag : dict_version(owner);
}

static const char *look_text(entry *e, const look *l)
{
    const char *n = PyUnicode_AsUTF8(l->name);
    const char *where = PyType_Check(l->owner) ? ((PyTypeObject *)l->owner)->tp_name : "G";
    if (!l->value)
        return PyType_Check(l->owner) ? arena_printf(&e->mem, "not hasattr(%s, '%s')", where, n)
                                      : arena_printf(&e->mem, "not ___dict_contains('%s', G)", n);
    const char *of = PyType_Check(l->owner) ? arena_printf(&e->mem, "%s.%s", where, n)
                                            : arena_printf(&e->mem, "G['%s']", n);
    return arena_printf(&e->mem, "___check_obj_id(%s, %zu), type=<class '%s'>", of, (size_t)l->value,
                        Py_TYPE(l->value)->tp_name);
}

bool looks_hold_slow(entry *e, strbuf *why)
{
    for (size_t i = 0; i < e->look_groups.n; i++) {
        look_group *g = &e->look_groups.at[i];
        uint64_t now = version_of(g->owner);
        if (now && now == g->version)
            continue;
        for (int k = g->from; k < g->to; k++) {
            const look *l = &e->looks.at[k];
            PyObject *v = PyType_Check(g->owner) ? _PyType_Lookup((PyTypeObject *)g->owner, l->name)
                                                 : PyDict_GetItemWithError(g->owner, l->name);
            if (v == l->value)
                continue;
            if (why)
                strbuf_addf(why, "%s", look_text(e, l));
            return false;
        }
        g->version = version_of(g->owner); /* a lookup may have given it one */
    }
    return true;
}

/* Those of the user's own classes and namespaces; what was found in Taper's and Python's is checked but not shown. */
void looks_print(strbuf *b, const entry *e,
                 void (*line)(strbuf *b, int depth, const char *kind, const char *text, const char *where))
{
    for (size_t i = 0; i < e->looks.n; i++) {
        const look *l = &e->looks.at[i];
        PyObject *m = PyType_Check(l->owner)
                          ? PyDict_GetItemString(type_dict((PyTypeObject *)l->owner), "__module__")
                          : PyDict_GetItemString(l->owner, "__name__");
        if (m && !t_trusted_module(m) && (l->value || !PyType_Check(l->owner)))
            line(b, 1, !l->value ? "DICT_CONTAINS" : "ID_MATCH", look_text((entry *)e, l), NULL);
    }
}
