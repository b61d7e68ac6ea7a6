/* code.c - what capture knows of a code object: decoded instructions, exception table, liveness, regions. */
#include "capture/capture.h"
#include <opcode.h>

#if TP_PY312
_Thread_local int recursion_depth;
#endif

static Py_ssize_t extra_index = -1;

static void code_free(void *p)
{
    cap_code *cc = p;
    if (!cc)
        return;
    /* code dies at any time, also while an exception is on its way */
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    code_known(cc, false);
    for (int i = 0; i < cc->n; i++) {
        region *r = cc->regions[i];
        if (!r)
            continue;
        for (entry *e = r->first, *next; e; e = next) {
            next = e->next;
            entry_free(e);
        }
        Py_XDECREF(r->dynamic);
        free(r);
    }
    Py_XDECREF(cc->names);
    Py_XDECREF(cc->consts);
    Py_XDECREF(cc->localsplus);
    Py_XDECREF(cc->break_lines);
    free(cc->ins);
    free(cc->regions);
    free(cc->kinds);
    free(cc->exc);
    free((char *)cc->file);
    free((char *)cc->name);
    free(cc);
    PyErr_Restore(type, value, tb);
}

/* Is this vars(o) or dir(o), which ask an object and not the frame? */
static bool asks_object(const cap_code *cc, int i, PyObject *name)
{
    const instr *in = &cc->ins[i], *then = &cc->ins[in->next];
    if (PyUnicode_CompareWithASCIIString(name, "vars") && PyUnicode_CompareWithASCIIString(name, "dir"))
        return false;
#if TP_PY312
    bool empty = then->op == CALL && !then->arg;
#else
    bool empty = then->op == PRECALL && !then->arg;
#endif
    return (in->arg & 1) && !empty; /* the form of a call, with something between it and the call */
}

/* Code that looks at its own frame, or has instructions that nobody steps. */
static const char *not_stepped(const cap_code *cc)
{
    static const char *const peek[] = { "locals",    "vars",         "dir",        "exec",   "eval",
                                        "_getframe", "currentframe", "breakpoint", "globals" };
    for (int i = 0; i < cc->n; i++)
        if (!interp_knows(cc->ins[i].op, cc->ins[i].arg))
            return "it uses instructions that are not stepped (async, class bodies, except*)";
    for (int i = 0; i < cc->n; i++) {
        const instr *in = &cc->ins[i];
        int k = in->op == LOAD_GLOBAL ? in->arg >> 1 : -1;
        if (k < 0 || k >= PyTuple_GET_SIZE(cc->names))
            continue;
        if (asks_object(cc, i, PyTuple_GET_ITEM(cc->names, k)))
            continue;
        for (size_t q = 0; q < COUNT(peek); q++)
            if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(cc->names, k), peek[q]) == 0)
                return "it may look at its own frame (locals, exec, eval, sys._getframe, ...)";
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cc->names); i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(cc->names, i), "_getframe") == 0 ||
            PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(cc->names, i), "currentframe") == 0)
            return "it may look at its own frame (locals, exec, eval, sys._getframe, ...)";
        else if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(cc->names, i), "set_trace") == 0)
            return "it stops in a debugger (set_trace)";
    return NULL;
}

/* That, and code whose frame lives on, is executed by CPython itself. */
static const char *never(PyCodeObject *co, const cap_code *cc)
{
    if (co->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE))
        return "it is a coroutine";
    if (co->co_flags & CO_GENERATOR)
        return "it is a generator";
    if (!(co->co_flags & CO_OPTIMIZED) || !(co->co_flags & CO_NEWLOCALS))
        return "it is a class or module body";
    return cc->not_stepped;
}

/* Is this file part of the package? By the folder of taper/__init__.py, not by a name that users' folders may have, too. */
int cap_in_package(const char *file)
{
    static char dir[4096];
    static size_t n;
    if (!n) {
        PyObject *pkg = PyImport_ImportModule("taper"), *f = pkg ? PyModule_GetFilenameObject(pkg) : NULL;
        const char *s = f ? PyUnicode_AsUTF8(f) : NULL, *end = s ? strrchr(s, '/') : NULL;
        if (end && (size_t)(end - s) + 2 < sizeof dir)
            memcpy(dir, s, n = (size_t)(end - s) + 1); /* with the slash */
        Py_XDECREF(f);
        Py_XDECREF(pkg);
        py_forget();
    }
    return file && n && strncmp(file, dir, n) == 0 ? (int)n - 1 : 0;
}

/* Lines of all instructions in one pass over the location table, where the C API would start from the front for each.
 * Returns false when the table is not what this knows. */
static bool decode_lines(cap_code *cc, PyCodeObject *co)
{
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(co->co_linetable),
                  *end = p + PyBytes_GET_SIZE(co->co_linetable);
    int at = 0, line = co->co_firstlineno, known = line;
    while (p < end) {
        int code = *p >> 3 & 15, n = (*p & 7) + 1;
        if (!(*p & 128))
            return false;
        p++;
        if (code >= 13 &&
            code <=
                14) { /* signed variable length, six bits a byte, least first; the sign is the lowest bit */
            unsigned v = 0;
            for (int shift = 0; p < end && shift < 30; shift += 6) {
                v |= (unsigned)(*p & 63) << shift;
                if (!(*p++ & 64))
                    break;
            }
            line += v & 1 ? -(int)(v >> 1) : (int)(v >> 1);
        } else if (code >= 10 && code <= 12)
            line += code - 10;
        while (p < end && !(*p & 128)) /* columns */
            p++;
        if (code != 15)
            known = line;
        for (; n > 0; n--, at++) { /* code 15, made by the compiler: belongs to what came before */
            if (at >= cc->n)
                return false;
            cc->ins[at].line = known;
        }
    }
    return at == cc->n;
}

static bool decode(cap_code *cc, PyCodeObject *co)
{
    PyObject *bytes = PyCode_GetCode(co);
    if (!bytes)
        return false;
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(bytes);
    cc->n = (int)(PyBytes_GET_SIZE(bytes) / 2);
    cc->ins = mem_zalloc(sizeof *cc->ins * (size_t)(cc->n + 1));
    cc->regions = mem_zalloc(sizeof *cc->regions * (size_t)(cc->n + 1));
    uint32_t ext = 0;
    for (int i = 0; i < cc->n; i++) {
        instr *in = &cc->ins[i];
        in->op = p[2 * i];
        in->arg = (int)(ext << 8 | p[2 * i + 1]);
        ext = in->op == EXTENDED_ARG ? (uint32_t)in->arg : 0;
        in->next = i + 1;
        while (in->next < cc->n && p[2 * in->next] == CACHE && in->op != CACHE)
            in->next++;
    }
    Py_DECREF(bytes);
    if (!decode_lines(cc, co))
        for (int i = 0; i < cc->n; i++) {
            cc->ins[i].line = PyCode_Addr2Line(co, 2 * i);
            if (cc->ins[i].line < 0)
                cc->ins[i].line = i ? cc->ins[i - 1].line : co->co_firstlineno;
        }
    return true;
}

static char *utf8_dup(PyObject *s)
{
    const char *u = s && PyUnicode_Check(s) ? PyUnicode_AsUTF8(s) : NULL;
    if (!u)
        py_forget();
    return mem_strdup(u ? u : "?");
}

cap_code *cap_code_of(PyCodeObject *co)
{
    void *p = NULL;
    if (_PyCode_GetExtra((PyObject *)co, extra_index, &p) < 0)
        return NULL;
    if (p)
        return p;
    cap_code *cc = mem_zalloc(sizeof *cc);
    cc->co = co;
    cc->names = Py_NewRef(co->co_names);
    cc->consts = Py_NewRef(co->co_consts);
    cc->localsplus = Py_NewRef(co->co_localsplusnames);
    cc->nfast = (int)PyTuple_GET_SIZE(cc->localsplus);
    cc->nstack = co->co_stacksize + 2;
    cc->kinds = mem_zalloc((size_t)cc->nfast + 1);
    memcpy(cc->kinds, PyBytes_AS_STRING(co->co_localspluskinds), (size_t)cc->nfast);
    cc->nexc = PyBytes_GET_SIZE(co->co_exceptiontable);
    cc->exc = mem_zalloc((size_t)cc->nexc + 1);
    memcpy(cc->exc, PyBytes_AS_STRING(co->co_exceptiontable), (size_t)cc->nexc);
    cc->file = utf8_dup(co->co_filename);
    cc->name = utf8_dup(co->co_name);
    cc->library = cap_in_package(cc->file);
    cc->first_line = co->co_firstlineno;
    if (!decode(cc, co)) {
        code_free(cc);
        return NULL;
    }
    cc->not_stepped = not_stepped(cc);
    cc->whole_native = never(co, cc);
    if (_PyCode_SetExtra((PyObject *)co, extra_index, cc) < 0) {
        code_free(cc);
        return NULL;
    }
    code_known(cc, true);
    return cc;
}

region *region_at(cap_code *cc, int ip)
{
    if (!cc->regions[ip]) {
        region *r = mem_zalloc(sizeof *r);
        r->cc = cc;
        r->ip = ip;
        r->frame_id = -1;
        r->native_until = -1;
        cc->regions[ip] = r;
    }
    return cc->regions[ip];
}

/* ---- the exception table: start, length, target, depth and lasti as 6-bit big-endian varints ---- */
static int varint(const uint8_t **p, const uint8_t *end)
{
    int v = 0;
    while (*p < end) {
        uint8_t b = *(*p)++;
        v = v << 6 | (b & 63);
        if (!(b & 64))
            break;
    }
    return v;
}

bool code_handler(const cap_code *cc, int ip, int *target, int *depth, bool *lasti)
{
    const uint8_t *p = cc->exc, *end = p + cc->nexc;
    while (p < end) {
        int start = varint(&p, end), len = varint(&p, end), to = varint(&p, end), dl = varint(&p, end);
        if (ip >= start && ip < start + len) {
            *target = to;
            *depth = dl >> 1;
            *lasti = dl & 1;
            return to < cc->n && *depth <= cc->nstack;
        }
    }
    return false;
}

/* ---- liveness of local slots ---- */
static bool is_jump(int op, int *dir)
{
    switch (op) {
    case JUMP_FORWARD:
    case FOR_ITER:
    case SEND: *dir = 1; return true;
#if !TP_PY312
    case JUMP_IF_FALSE_OR_POP:
    case JUMP_IF_TRUE_OR_POP:
    case POP_JUMP_FORWARD_IF_FALSE:
    case POP_JUMP_FORWARD_IF_TRUE:
    case POP_JUMP_FORWARD_IF_NONE:
    case POP_JUMP_FORWARD_IF_NOT_NONE: *dir = 1; return true;
    case POP_JUMP_BACKWARD_IF_FALSE:
    case POP_JUMP_BACKWARD_IF_TRUE:
    case POP_JUMP_BACKWARD_IF_NONE:
    case POP_JUMP_BACKWARD_IF_NOT_NONE: *dir = -1; return true;
#else
    case POP_JUMP_IF_FALSE:
    case POP_JUMP_IF_TRUE:
    case POP_JUMP_IF_NONE:
    case POP_JUMP_IF_NOT_NONE: *dir = 1; return true;
#endif
    case JUMP_BACKWARD:
    case JUMP_BACKWARD_NO_INTERRUPT: *dir = -1; return true;
    }
    return false;
}

static bool ends(int op)
{
    return op == RETURN_VALUE || op == JUMP_FORWARD || op == JUMP_BACKWARD ||
           op == JUMP_BACKWARD_NO_INTERRUPT || op == RAISE_VARARGS || op == RERAISE
#if TP_PY312 && !TP_PY314
           || op == RETURN_CONST
#endif
        ;
}

void live_at(const cap_code *cc, int ip, uint8_t *live)
{
    size_t w = (size_t)MAX(cc->nfast, 1);
    uint8_t *in = mem_zalloc(w * (size_t)(cc->n + 1)), *now = mem_zalloc(w);
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = cc->n - 1; i >= 0; i--) {
            const instr *s = &cc->ins[i];
            int dir, to, depth;
            bool lasti;
            memset(now, 0, w);
            if (!ends(s->op) && s->next <= cc->n)
                for (size_t k = 0; k < w; k++)
                    now[k] |= in[w * (size_t)s->next + k];
            if (is_jump(s->op, &dir) && s->next + dir * s->arg >= 0 && s->next + dir * s->arg < cc->n)
                for (size_t k = 0; k < w; k++)
                    now[k] |= in[w * (size_t)(s->next + dir * s->arg) + k];
            if ((s->op == STORE_FAST || s->op == DELETE_FAST) && s->arg < cc->nfast)
                now[s->arg] = s->op == DELETE_FAST;
#if TP_PY313 /* two in one: what is read first is written here last */
            int a = s->arg >> 4, b = s->arg & 15;
            bool two = s->op == STORE_FAST_STORE_FAST || s->op == STORE_FAST_LOAD_FAST ||
                       s->op == LOAD_FAST_LOAD_FAST;
            bool loads = s->op == LOAD_FAST_LOAD_FAST;
#if TP_PY314
            loads |= s->op == LOAD_FAST_BORROW_LOAD_FAST_BORROW;
            two |= loads;
#endif
            if (two && a < cc->nfast && b < cc->nfast) {
                now[b] = s->op != STORE_FAST_STORE_FAST;
                now[a] = loads;
            }
#endif
            switch (s->op) {
            case LOAD_FAST:
#if !TP_PY313
            case LOAD_CLOSURE:
#endif
            case LOAD_DEREF:
            case STORE_DEREF:
            case DELETE_DEREF:
#if !TP_PY312
            case LOAD_CLASSDEREF:
#endif
            case MAKE_CELL:
#if TP_PY312
            case LOAD_FAST_CHECK:
            case LOAD_FAST_AND_CLEAR:
            case LOAD_FROM_DICT_OR_DEREF:
#endif
#if TP_PY314
            case LOAD_FAST_BORROW:
#endif
                if (s->arg < cc->nfast)
                    now[s->arg] = 1;
            }
            if (code_handler(cc, i, &to, &depth, &lasti))
                for (size_t k = 0; k < w; k++)
                    now[k] |= in[w * (size_t)to + k];
            if (memcmp(now, in + w * (size_t)i, w)) {
                memcpy(in + w * (size_t)i, now, w);
                changed = true;
            }
        }
    }
    memcpy(live, in + w * (size_t)ip, w);
    /* cells and free variables may be reached through closures: they stay */
    for (int k = 0; k < cc->nfast; k++)
        if (cc->kinds[k] & (0x40 | 0x80))
            live[k] = 1;
    free(in);
    free(now);
}

int py_init_code(PyObject *m)
{
    extra_index = _PyEval_RequestCodeExtraIndex(code_free);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_RuntimeError, "no code-object slot is left for taper");
        return -1;
    }
    return 0;
}
