/* trace_module.c - what nn.Module's own code asks of an instance from outside: one guard for the answer, where following
 * the code would guard each dictionary on the way. */
#include "capture/capture.h"

/* Is all of it as it was when the trace began? Then the answer is read from the real one. */
static bool untouched(trace *t, const tobj *k, bool hooks, int n)
{
    if (!k || !k->src || !k->real || k->src->kind == SRC_const || k->dict ||
        (k->over && PyDict_GET_SIZE(k->over)))
        return false;
    for (int i = 0; i < n; i++) {
        PyObject *d = py_module_dict(k->real, hooks, i);
        if (!d || t_obj(t, d))
            return false;
    }
    return true;
}

PyObject *t_module_hooked(trace *t, PyObject *o)
{
    tobj *k = t_obj(t, o);
    bool none = untouched(t, k, true, PY_MODULE_HOOKS);
    for (int i = 0; none && i < PY_MODULE_HOOKS; i++)
        none = !PyDict_GET_SIZE(py_module_dict(k->real, true, i));
    if (none) {
        t_want(t, G_NO_HOOKS, k->src, NULL);
        Py_RETURN_FALSE;
    }
    for (int i = 0; i < PY_MODULE_HOOKS; i++) {
        PyObject *d = t_getattr(t, o, py_module_name(true, i));
        int some = d ? t_truth(t, d) : -1;
        Py_XDECREF(d);
        if (some)
            return some < 0 ? NULL : Py_NewRef(Py_True);
    }
    Py_RETURN_FALSE;
}

/* Where the name is found now: the number of the dictionary, or PY_MODULE_PARTS. */
static int part_of(PyObject *module, PyObject *name)
{
    int i = 0;
    for (; i < PY_MODULE_PARTS; i++) {
        PyObject *d = py_module_dict(module, false, i);
        if (d && PyDict_GetItemWithError(d, name))
            break;
    }
    return i;
}

/* Among the dictionaries as the trace sees them. */
static PyObject *traced_attr(trace *t, PyObject *o, PyObject *name)
{
    PyObject *all = t_instdict(t, o);
    for (int i = 0; all && i < PY_MODULE_PARTS; i++) {
        PyObject *lazy = PyDict_GetItemWithError(all, py_module_name(false, i)),
                 *d = lazy ? t_real(t, lazy) : NULL;
        int has = d ? t_contains(t, d, name) : 0;
        if ((lazy && !d) || has) {
            PyObject *v = d && has > 0 ? t_subscr(t, d, name) : NULL;
            Py_DECREF(all);
            return v;
        }
    }
    if (!all)
        return NULL;
    Py_DECREF(all);
    return py_module_missing(o, name);
}

PyObject *t_module_attr(trace *t, PyObject *o, PyObject *name)
{
    tobj *k = t_obj(t, o);
    if (!PyUnicode_CheckExact(name) || !untouched(t, k, false, PY_MODULE_PARTS))
        return traced_attr(t, o, name);
    int part = part_of(k->real, name);
    source *s = k->src;
    PyObject *real = k->real;
    guard *asked = guard_find(t->e, s, G_HASATTR,
                              name); /* "neither it nor its class has it": one guard for both */
    if (asked && !asked->n)
        asked->kind = G_MODULE_ATTR, asked->n = part | GUARD_ABSENT;
    else
        t_want(t, G_MODULE_ATTR, s, name)->n |= part;
    if (part == PY_MODULE_PARTS)
        return py_module_missing(o, name);
    source *d = src_get(t->e, SRC_instattr, s, NULL, py_module_name(false, part), 0);
    return t_lazy(t, PyDict_GetItemWithError(py_module_dict(real, false, part), name),
                  src_get(t->e, SRC_key, d, NULL, name, 0));
}

/* ---- checking ---- */
bool guard_no_hooks(PyObject *module)
{
    for (int i = 0; i < PY_MODULE_HOOKS; i++) {
        PyObject *d = py_module_dict(module, true, i);
        if (!d || PyDict_GET_SIZE(d))
            return false;
    }
    return true;
}

bool guard_module_attr(const guard *g, PyObject *module)
{
    PyObject *d = inst_dict(module);
    if ((g->n & GUARD_ABSENT) &&
        ((d && PyDict_GetItemWithError(d, g->obj)) || _PyType_Lookup(Py_TYPE(module), g->obj)))
        return false;
    return part_of(module, g->obj) == (g->n & ~GUARD_ABSENT);
}

int guard_module_dicts(const guard *g, PyObject *module, PyObject **out)
{
    bool hooks = g->kind == G_NO_HOOKS;
    int n = 0;
    for (int i = 0; i < (hooks ? PY_MODULE_HOOKS : PY_MODULE_PARTS); i++)
        if ((out[n] = py_module_dict(module, hooks, i)))
            n++;
    return n;
}
