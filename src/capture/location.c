/* location.c - where the user is: locations of nodes, symbols and breaks. */
#include "capture/attempt.h"
#include "base/source.h"
#include <frameobject.h>

static ir_loc *place_make(arena *a, const char *file, const char *func, int line, int library, bool on_disk)
{
    ir_loc *l = ARENA_NEW(a, ir_loc);
    *l = (ir_loc){ .file = arena_strdup(a, file),
                   .func = arena_strdup(a, func),
                   .line = line,
                   .library = library,
                   .unread = on_disk };
    if (!on_disk) { /* only Python can: who shows the line may not ask it */
        PyObject *s = py_source_line(file, line);
        l->code = s ? arena_strdup(a, PyUnicode_AsUTF8(s)) : NULL;
        Py_XDECREF(s);
    }
    return l;
}
static ir_loc *one_place(arena *a, frame *f)
{
    cap_code *cc = f->cc;
    if (cc->source == SOURCE_unknown)
        cc->source = cc->library || source_is_file(cc->file) ? SOURCE_file : SOURCE_elsewhere;
    return place_make(a, cc->file, cc->name, frame_line(f), cc->library, cc->source == SOURCE_file);
}
const ir_loc *frame_place(arena *a, frame *f)
{
    ir_loc *l = f ? one_place(a, f) : NULL;
    if (l)
        l->outer = frame_place(a, f->back);
    return l;
}
const ir_loc *location_outside(arena *a)
{
    ir_loc *l = NULL;
    PyFrameObject *fr = PyThreadState_GetFrame(PyThreadState_Get());
    while (fr) {
        PyCodeObject *co = PyFrame_GetCode(fr);
        const char *file = PyUnicode_AsUTF8(co->co_filename), *name = PyUnicode_AsUTF8(co->co_name);
        PyFrameObject *back = NULL;
        if (file && name && !cap_in_package(file))
            l = place_make(a, file, name, PyFrame_GetLineNumber(fr), 0, source_is_file(file));
        else
            back = PyFrame_GetBack(fr);
        py_forget();
        Py_DECREF(co);
        Py_DECREF(fr);
        fr = back;
    }
    return l;
}
/* Where the user's code called the library, in which f and all around it are; NULL: it did not. */
static const ir_loc *called_from(arena *a, frame *f)
{
    for (f = f->caller; f; f = f->caller)
        if (!f->cc->library)
            return one_place(a, f);
    return location_outside(a);
}
const ir_loc *break_place(trace *t, arena *a)
{
    ir_loc *first = (ir_loc *)frame_place(a, t->top), *last = first; /* ours until it is handed out */
    while (last && last->outer)
        last = (ir_loc *)last->outer;
    if (last && t->e->r->ip) {
        char name[300];
        region_name(t->e->r, name, sizeof name);
        last->func = arena_strdup(a, name);
    }
    if (last && ir_loc_user(first)->library)
        last->outer = called_from(a, t->outer);
    return first;
}
static bool all_library(const frame *f)
{
    while (f && f->cc->library)
        f = f->back;
    return !f;
}
static const ir_loc *make_loc(trace *t, ir_graph *g, frame *f)
{
    if (!f)
        return NULL;
    if (f->loc && f->loc_line == frame_line(f))
        return f->loc;
    ir_loc *l = one_place(&g->mem, f);
    l->outer = make_loc(t, g, f->back);
    if (!l->outer &&
        all_library(t->top)) { /* a module of the library is compiled: no line of its own is the user's */
        ir_loc *call = (ir_loc *)called_from(&g->mem, t->outer);
        if (call)
            call->calls = true;
        l->outer = call;
    }
    f->loc = l;
    f->loc_line = l->line;
    return l;
}
const ir_loc *location_now(void *data, ir_graph *g)
{
    trace *t = data;
    if (!t->in_try)
        t->in_try = frame_in_try(t->top);
    if (!t->loc || t->loc_frame != t->top || t->loc_line != frame_line(t->top)) {
        t->loc = make_loc(t, g, t->top);
        t->loc_frame = t->top;
        t->loc_line = frame_line(t->top);
    }
    return t->loc;
}
void location_print(void *data, strbuf *out)
{
    trace *t = data;
    frame *f = frame_user(t->top);
    if (!f)
        return;
    const char *slash = strrchr(f->cc->file, '/');
    strbuf_addf(out, "%s:%d in %s", slash ? slash + 1 : f->cc->file, frame_line(f), f->cc->name);
}
