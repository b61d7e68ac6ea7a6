/* index_check.c - while eager execution is audited (TAPER_AUDIT): does a view made by x[...] lie where Python's index says? Integers,
 * slices, None and the ellipsis, taken apart from the end of the index to its beginning; shares no code with index.c. */
#include "base/profile.h"
#include "debug/audit.h"
#include "python/override.h"

typedef struct layout {
    symint size[2 * TP_MAX_DIMS], stride[2 * TP_MAX_DIMS];
    int n; /* dimensions so far, the last first */
    symint offset;
} layout;

static bool is_whole_number(PyObject *o) { return PyLong_CheckExact(o); }
static bool is_plain(PyObject *o)
{
    return is_whole_number(o) || o == Py_None || o == Py_Ellipsis || PySlice_Check(o);
}

static void keep(layout *l, symint size, symint stride)
{
    l->size[l->n] = size;
    l->stride[l->n++] = stride;
}

/* Item `o` consumes dimension d of t. False: it is no index of it. */
static bool take(layout *l, const tp_tensor *t, int d, PyObject *o)
{
    Py_ssize_t n = (Py_ssize_t)t->size[d], from, to, by;
    if (is_whole_number(o)) {
        long long i = PyLong_AsLongLong(o);
        i += i < 0 ? n : 0;
        l->offset += i * t->stride[d];
        return !PyErr_Occurred() && i >= 0 && i < n;
    }
    if (PySlice_Unpack(o, &from, &to, &by) < 0 || by < 1)
        return false;
    Py_ssize_t len = PySlice_AdjustIndices(n, &from, &to, by);
    l->offset += MIN(from, n) * t->stride[d];
    keep(l, len, t->stride[d] * by);
    return true;
}

static bool expected(const tp_tensor *t, PyObject *const *item, Py_ssize_t n, layout *l)
{
    int d = t->ndim, named = 0, spread = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!is_plain(item[i]))
            return false;
        named += item[i] != Py_None && item[i] != Py_Ellipsis;
        spread += item[i] == Py_Ellipsis;
    }
    if (spread > 1 || named > d || n > TP_MAX_DIMS)
        return false;
    int rest = d - named; /* which the ellipsis stands for, or what follows the index */
    for (int k = 0; !spread && k < rest; k++, d--)
        keep(l, t->size[d - 1], t->stride[d - 1]);
    for (Py_ssize_t i = n; i-- > 0;) {
        if (item[i] == Py_None)
            keep(l, 1, 1);
        else if (item[i] == Py_Ellipsis)
            for (int k = 0; k < rest; k++, d--)
                keep(l, t->size[d - 1], t->stride[d - 1]);
        else if (!take(l, t, --d, item[i]))
            return false;
    }
    return true;
}

void py_index_check(const tp_tensor *t, PyObject *index, const tp_tensor *r)
{
    layout l = { .offset = t->offset };
    PyObject *const *item = PyTuple_CheckExact(index) ? &PyTuple_GET_ITEM(index, 0) : &index;
    Py_ssize_t n = PyTuple_CheckExact(index) ? PyTuple_GET_SIZE(index) : 1;
    bool known = sym_all_const(t->size, t->ndim) && sym_all_const(t->stride, t->ndim) &&
                 !sym_is_expr(t->offset) && r->storage == t->storage && expected(t, item, n, &l);
    PyErr_Clear();
    if (!known)
        return;
    bool same = r->ndim == l.n, some = true;
    for (int d = 0; same && d < l.n; d++) {
        symint size = l.size[l.n - 1 - d];
        same = r->size[d] == size && (size < 2 || r->stride[d] == l.stride[l.n - 1 - d]);
        some &= size != 0;
    }
    if (same && (!some || r->offset == l.offset))
        return;
    strbuf have = { 0 }, want = { 0 };
    symint size[2 * TP_MAX_DIMS];
    for (int d = 0; d < l.n; d++)
        size[d] = l.size[l.n - 1 - d];
    shape_print(&have, r->ndim, r->size);
    shape_print(&want, l.n, size);
    audit_note("indexing", "getitem",
               "x[...] shows %s from element %lld on, where the index means %s from element %lld on",
               strbuf_str(&have), (long long)r->offset, strbuf_str(&want), (long long)l.offset);
    strbuf_free(&have);
    strbuf_free(&want);
}
