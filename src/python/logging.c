/* logging.c - taper._logging: settings of the text logs from Python. */
#include "python/py.h"
#include "events/events.h"

static PyObject *bad(strbuf *why)
{
    PyErr_SetString(PyExc_ValueError, strbuf_str(why));
    strbuf_free(why);
    return NULL;
}

/* Fills one setting; the strings are borrowed from the Python objects (shown is kept in `keep`). */
static bool setting(ev_setting *s, PyObject *key, PyObject *value, bool in_modules, PyObject *keep)
{
    memset(s, 0, sizeof *s);
    s->name = PyUnicode_AsUTF8(key);
    PyObject *shown = s->name ? PyObject_Repr(value) : NULL;
    if (!shown || PyList_Append(keep, shown) < 0) {
        Py_XDECREF(shown);
        return false;
    }
    Py_DECREF(shown);
    s->shown = PyUnicode_AsUTF8(shown);
    s->in_modules = in_modules;
    s->type = EV_SET_other;
    if (value == Py_None)
        s->type = EV_SET_none;
    else if (PyBool_Check(value)) {
        s->type = EV_SET_bool;
        s->value = value == Py_True;
    } else if (PyLong_Check(value)) {
        s->type = EV_SET_int;
        s->value = (int)PyLong_AsLong(value);
    }
    return !PyErr_Occurred();
}

/* _set_logs(settings, modules): two dicts. */
static PyObject *set_logs(PyObject *m, PyObject *args)
{
    PyObject *kw, *mods, *k, *v, *keep = PyList_New(0), *res = NULL;
    Py_ssize_t pos = 0;
    VEC(ev_setting) list = { 0 };
    strbuf why = { 0 };
    ev_setting s;
    if (!keep || !PyArg_ParseTuple(args, "O!O!", &PyDict_Type, &kw, &PyDict_Type, &mods))
        goto done;
    while (PyDict_Next(kw, &pos, &k, &v)) {
        if (!setting(&s, k, v, false, keep))
            goto done;
        vec_push(&list, s);
    }
    for (pos = 0; PyDict_Next(mods, &pos, &k, &v);) {
        if (!setting(&s, k, v, true, keep))
            goto done;
        vec_push(&list, s);
    }
    res = ev_set_logs(list.at, (int)list.n, &why) ? Py_NewRef(Py_None) : bad(&why);
done:
    vec_free(&list);
    Py_XDECREF(keep);
    return res;
}

/* _set_logs_string("graph_breaks,+aot"): the grammar of TAPER_LOGS; "" switches everything off. */
static PyObject *set_string(PyObject *m, PyObject *text)
{
    const char *s = PyUnicode_AsUTF8(text);
    strbuf why = { 0 };
    if (!s)
        return NULL;
    return ev_set_logs_string(s, &why) ? Py_NewRef(Py_None) : bad(&why);
}

static PyObject *names(PyObject *m, PyObject *unused)
{
    PyObject *c = PyList_New(0), *a = PyList_New(0), *n;
    for (int i = 0; c && ev_component_name(i); i++) {
        n = PyUnicode_FromString(ev_component_name(i));
        if (!n || PyList_Append(c, n) < 0)
            Py_CLEAR(c);
        Py_XDECREF(n);
    }
    for (int i = 0; a && ev_artifact_name(i); i++) {
        n = PyUnicode_FromString(ev_artifact_name(i));
        if (!n || PyList_Append(a, n) < 0)
            Py_CLEAR(a);
        Py_XDECREF(n);
    }
    return c && a ? Py_BuildValue("(NN)", c, a) : NULL;
}

static PyObject *set_default(PyObject *m, PyObject *unused)
{
    ev_set_logs_default();
    Py_RETURN_NONE;
}

/* _set_logs_config(level, debug): config.log_level and config.debug. */
static PyObject *set_config(PyObject *m, PyObject *args)
{
    int level, debug;
    if (!PyArg_ParseTuple(args, "ip", &level, &debug))
        return NULL;
    ev_set_logs_config(level, debug);
    Py_RETURN_NONE;
}

static PyObject *set_level(PyObject *m, PyObject *args)
{
    const char *name;
    int level;
    if (!PyArg_ParseTuple(args, "si", &name, &level))
        return NULL;
    return ev_set_own_level(name, level) ? Py_NewRef(Py_None)
                                         : PyErr_Format(PyExc_ValueError, "no log component '%s'", name);
}

static PyObject *get_level(PyObject *m, PyObject *name)
{
    const char *s = PyUnicode_AsUTF8(name);
    return s ? PyLong_FromLong(ev_own_level(s)) : NULL;
}

/* Messages go to Python's logging as well, from threads that hold the GIL: those that write records must not wait for it. */
static PyObject *relay_to; /* function(level, component, artifact, file, line, text) -> bool */
static bool relay(int level, const char *component, const char *artifact, const char *file, int line,
                  const char *text)
{
    static _Thread_local bool inside;
    PyObject *et, *ev, *etb, *r = NULL;
    if (!relay_to || inside || !Py_IsInitialized() || !PyGILState_Check())
        return true;
    inside = true;
    PyErr_Fetch(&et, &ev, &etb);
    r = PyObject_CallFunction(relay_to, "iszsis", level, component, artifact, file, line, text);
    bool wanted = !r || r == Py_True;
    if (!r)
        PyErr_WriteUnraisable(relay_to);
    Py_XDECREF(r);
    PyErr_Restore(et, ev, etb);
    inside = false;
    return wanted;
}

static PyObject *set_relay(PyObject *m, PyObject *fn)
{
    Py_XSETREF(relay_to, fn == Py_None ? NULL : Py_NewRef(fn));
    ev_relay(relay_to ? relay : NULL);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    { "_set_log_level", set_level, METH_VARARGS, "_set_log_level(component, level)" },
    { "_log_level", get_level, METH_O, "_log_level(component): the level set for it alone, or 0" },
    { "_set_log_relay", set_relay, METH_O, "_set_log_relay(fn): who shows messages, too" },
    { "_set_logs_config", set_config, METH_VARARGS, "_set_logs_config(level, debug)" },
    { "_set_logs", set_logs, METH_VARARGS, "_set_logs(settings, modules)" },
    { "_set_logs_string", set_string, METH_O, "_set_logs_string(text)" },
    { "_set_logs_default", set_default, METH_NOARGS, "the preset DEFAULT_LOGGING" },
    { "_log_names", names, METH_NOARGS, "(components, artifacts)" },
    { NULL }
};

int py_init_logging(PyObject *m) { return PyModule_AddFunctions(m, functions); }
