/* skip.c - compiled functions by name, and those that run as they are written because a quarantine says so. */
#include "base/crumb.h"
#include "base/quarantine.h"
#include "capture/capture.h"

/* NAME@FILE:LINE, the file without its directories. Modules are called through code of the library, which they all share: their
 * forward() is named. self: the first argument, or NULL. */
void cap_function_key(const cap_code *cc, PyObject *self, strbuf *b)
{
    const char *name = cc->name, *file = cc->file, *class = NULL;
    int line = cc->first_line;
    PyObject *fn = NULL, *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb); /* whoever asks may be on the way to raise something */
    if (cc->library && self && !strcmp(name, "__call__") &&
        (fn = PyObject_GetAttrString((PyObject *)Py_TYPE(self), "forward")) && PyFunction_Check(fn)) {
        PyCodeObject *co = (PyCodeObject *)PyFunction_GET_CODE(fn);
        const char *of = PyUnicode_AsUTF8(co->co_filename), *dot = strrchr(Py_TYPE(self)->tp_name, '.');
        if (of) {
            class = dot ? dot + 1 : Py_TYPE(self)->tp_name;
            name = "forward";
            file = of;
            line = co->co_firstlineno;
        }
    }
    py_forget();
    const char *slash = strrchr(file, '/');
    strbuf_addf(b, "%s%s%s@%s:%d", class ? class : "", class ? "." : "", name, slash ? slash + 1 : file,
                line);
    Py_XDECREF(fn);
    PyErr_Restore(type, value, tb);
}

bool cap_quarantined_slow(const cap_code *cc, PyObject *self)
{
    strbuf b = { 0 };
    cap_function_key(cc, self, &b);
    bool skips = quarantine_skips(strbuf_str(&b));
    strbuf_free(&b);
    return skips;
}

void cap_crumb(const cap_code *cc, PyObject *self)
{
    strbuf b = { 0 };
    cap_function_key(cc, self, &b);
    crumb_drop("guards", strbuf_str(&b));
    crumb_put_function(strbuf_str(&b));
    strbuf_free(&b);
}
