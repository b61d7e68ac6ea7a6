/* trace_value.c - what the interpreter's leaf operations mean while tracing. */
#include "python/override.h"
#include "capture/capture.h"

static PyObject *deleted; /* marks attributes and globals that were deleted */

const break_row break_rows[BRK_COUNT] = {
#define BREAK(id, code, type, explain, hint) { #id, code, type, explain, hint },
#include "capture/breaks.def"
};

/* ---- breaks ---- */
/* The row in the names that users of this process know: torch's under the alias. */
const break_row *break_row_now(break_id id)
{
    static break_row rows[BRK_COUNT];
    const char *const *from = (const char *const *)&break_rows[id];
    const char **to = (const char **)&rows[id];
    if (strcmp(cap_brand(), "torch"))
        return &break_rows[id];
    for (size_t i = 0; !rows[id].hint && i < sizeof(break_row) / sizeof *to; i++) {
        char *s = mem_strdup(from[i]);
        for (char *at = s; (at = strstr(at, "taper."));)
            memcpy(at, "torch", 5);
        to[i] = s;
    }
    return &rows[id];
}

PyObject *t_break(trace *t, break_id id, const char *fmt, ...)
{
    if (t->broke || t->internal)
        return NULL;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->reason, sizeof t->reason, fmt, ap);
    va_end(ap);
    t->broke = true;
    t->brk = id;
    t->brk_inlined = t->top != t->outer;
    t->brk_at = break_place(t, &t->brk_mem);
    py_forget(); /* what raised on the way here is told as the break */
    comptime_at_break(t);
    return NULL;
}

/* Whether a write is refused depends on the history of the tensor. What stands for an input here is a leaf; where the input
 * is computed the write passes, and is guarded. Where it is refused no handler is followed: the statement itself decides. */
static bool history_failed(trace *t)
{
    PyObject *ty, *v, *tb;
    PyErr_Fetch(&ty, &v, &tb);
    PyErr_NormalizeException(&ty, &v, &tb);
    PyObject *s = v ? PyObject_Str(v) : NULL;
    const char *text = s ? PyUnicode_AsUTF8(s) : NULL;
    bool is = text && strstr(text, "leaf Variable that requires grad is being used in an in-place operation");
    PyErr_Restore(ty, v, tb);
    if (is) {
        py_forget();
        t_break(t, BRK_exception, "RuntimeError: %s", text);
    }
    Py_XDECREF(s);
    return is;
}

bool t_fake_failed(trace *t, const char *what)
{
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_RuntimeError) && history_failed(t))
        return true;
    if (!PyErr_Occurred() || !PyErr_ExceptionMatches(py_fake_error))
        return false;
    PyObject *ty, *v, *tb;
    PyErr_Fetch(&ty, &v, &tb);
    PyObject *s = v ? PyObject_Str(v) : NULL;
    const char *text = s ? PyUnicode_AsUTF8(s) : NULL;
    Py_XDECREF(ty);
    Py_XDECREF(v);
    Py_XDECREF(tb);
    py_forget();
    if (text && !strncmp(text, "Could not ", 10))
        t_break(t, BRK_symbolic, "%s", text);
    else
        t_break(t, BRK_data, "%s", what);
    Py_XDECREF(s);
    return true;
}

/* An exception that was raised carries a traceback, which only plain execution makes: it is remembered with the step
 * before which the graph must end when more than its class and text is asked for. */
bool t_caught(trace *t, PyObject *exc)
{
    if (!t->caught && !(t->caught = PyDict_New()))
        return false;
    PyObject *k = PyLong_FromVoidPtr(exc), *v = PyTuple_New(2);
    bool ok = k && v;
    if (ok) {
        PyTuple_SET_ITEM(v, 0, PyLong_FromLong(t->exc_at >= 0 ? t->exc_at : t->steps));
        PyTuple_SET_ITEM(v, 1, Py_NewRef(exc));
        ok = PyDict_SetDefault(t->caught, k, v) != NULL;
    }
    Py_XDECREF(k);
    Py_XDECREF(v);
    return ok;
}
int t_caught_at(trace *t, PyObject *exc)
{
    PyObject *k = t->caught ? PyLong_FromVoidPtr(exc) : NULL,
             *v = k ? PyDict_GetItemWithError(t->caught, k) : NULL;
    Py_XDECREF(k);
    return v ? (int)PyLong_AsLong(PyTuple_GET_ITEM(v, 0)) : -1;
}

/* ---- objects ---- */
tobj *t_obj(trace *t, PyObject *o)
{
    size_t i = (size_t)map_geti(&t->by_ptr, (uint64_t)(uintptr_t)o);
    return i ? &t->objs.at[i - 1] : NULL;
}

tobj *t_obj_add(trace *t, PyObject *abs, PyObject *real, source *s)
{
    tobj n = { .abs = Py_NewRef(abs), .real = Py_XNewRef(real), .src = s };
    vec_push(&t->objs, n);
    map_puti(&t->by_ptr, (uint64_t)(uintptr_t)abs, (void *)t->objs.n);
    if (real && real != abs)
        map_puti(&t->by_ptr, (uint64_t)(uintptr_t)real, (void *)t->objs.n);
    return &vec_last(&t->objs);
}

static void lazy_dealloc(PyObject *o)
{
    Py_XDECREF(((PyLazy *)o)->real);
    Py_XDECREF(((PyLazy *)o)->val);
    PyObject_Free(o);
}
static PyObject *lazy_repr(PyObject *o) { return PyUnicode_FromString("LazyVariableTracker()"); }
PyTypeObject PyLazy_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper._C.Lazy",
                             .tp_basicsize = sizeof(PyLazy),
                             .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             .tp_repr = lazy_repr, .tp_dealloc = lazy_dealloc };

PyObject *t_lazy(trace *t, PyObject *o, source *s)
{
    PyLazy *l = PyObject_New(PyLazy, &PyLazy_Type);
    if (!l)
        return NULL;
    l->src = s;
    l->real = Py_NewRef(o);
    l->val = NULL;
    return (PyObject *)l;
}

PyObject *t_real(trace *t, PyObject *o)
{
    if (!o || !IS_LAZY(o))
        return o;
    PyLazy *l = (PyLazy *)o;
    if (!l->val) {
        if (TP_UNLIKELY(comptime_watches()))
            comptime_at_wrap(t, src_text(l->src), l->real);
        l->val = t->internal ? NULL : t_wrap(t, l->real, l->src);
    }
    return l->val;
}

source *t_source_of(trace *t, PyObject *o)
{
    if (IS_LAZY(o))
        return ((PyLazy *)o)->src;
    tobj *x = t_obj(t, o);
    return x ? x->src : NULL;
}
/* As above; library functions, classes and modules may stand for themselves. */
static source *source_or_const(trace *t, PyObject *o)
{
    source *s = t_source_of(t, o);
    return s ? s : src_get(t->e, SRC_const, NULL, o, NULL, 0);
}

void t_name(trace *t, PyObject *o, PyObject *name)
{
    ir_node *n = py_tensor(o)->node;
    if (!n || py_tensor(o)->rec != &t->rec || n->data || (n->kind != IR_call && n->kind != IR_getitem))
        return;
    const char *u = PyUnicode_AsUTF8(name);
    if (u && *u != '.' && *u != '_') {
        n->data = t;
        ir_rename(n, ir_unique_name(n->graph, u));
    }
}

/* ---- guards ---- */
void guard_where(trace *t, guard *g)
{
    bool traced = !g->file && ev_trace_on(EV_dynamo_guards), shown = !g->where && ev_on(EV_guards);
    frame *f = traced || shown ? frame_user(t->top) : NULL;
    if (f && traced) {
        g->file = f->cc->file, g->fn = f->cc->name, g->line = frame_line(f);
        guard_prepare_early(g);
    }
    if (!f || !shown)
        return;
    int line = frame_line(f);
    PyObject *src = py_source_line(f->cc->file, line);
    const char *slash = strrchr(f->cc->file, '/');
    g->where = arena_printf(&t->e->mem, "%s  # %s:%d in %s", src ? PyUnicode_AsUTF8(src) : "",
                            slash ? slash + 1 : f->cc->file, line, f->cc->name);
    Py_XDECREF(src);
}
guard *t_want(trace *t, guard_kind k, source *s, PyObject *obj)
{
    static guard none;
    if (!s || s->kind == SRC_const)
        return &none;
    guard *g = guard_add(t->e, k, s, obj);
    guard_where(t, g);
    return g;
}

/* How two sources stay to each other: once for each two. */
static void guard_pair(trace *t, guard_kind k, source *a, source *b)
{
    for (int i = a->guards; i; i = t->e->guards.at[i - 1].older)
        if (t->e->guards.at[i - 1].kind == k && t->e->guards.at[i - 1].src2 == b)
            return;
    guard *g = guard_add(t->e, k, a, NULL);
    g->src2 = b;
    for (source *s = b; s; s = s->base)
        s->used = true;
    guard_where(t, g);
}

/* ---- wrapping what comes from outside ---- */
static PyObject *type_func(PyObject *o, const char *fmt, const char *name);

static bool is_enum(PyObject *o)
{
    PyTypeObject *m = Py_TYPE(Py_TYPE(o));
    return m != &PyType_Type && (!strcmp(m->tp_name, "EnumType") || !strcmp(m->tp_name, "EnumMeta"));
}

static PyTypeObject *ordered_dict, *default_dict, *deque_type, *partial_type;
static PyTypeObject *import_type(const char *mod, const char *name)
{
    PyObject *m = PyImport_ImportModule(mod), *o = m ? PyObject_GetAttrString(m, name) : NULL;
    Py_XDECREF(m);
    return (PyTypeObject *)o;
}

bool t_is_tensor_type(PyTypeObject *tp)
{
    return tp == &PyTensor_Type || PyType_IsSubtype(tp, &PyTensor_Type);
}

PyObject *t_unproxied(PyObject *o)
{
    struct proxy {
        PyObject_HEAD PyObject *mapping;
    };
    if (Py_TYPE(o) != &PyDictProxy_Type)
        return o;
    PyObject *m = ((struct proxy *)o)->mapping;
    return PyDict_CheckExact(m) || Py_TYPE(m) == ordered_dict ? m : o;
}

/* Types whose operations run no Python code except through their elements. */
bool t_safe_type(PyTypeObject *tp)
{
    return tp == &PyLong_Type || tp == &PyFloat_Type || tp == &PyBool_Type || tp == &PyUnicode_Type ||
           tp == &PyTuple_Type || tp == &PyList_Type || tp == &PyDict_Type || tp == Py_TYPE(Py_None) ||
           t_is_tensor_type(tp) || tp == &PySymInt_Type || tp == &PySymFloat_Type ||
           tp == &PySizeFloat_Type || tp == PySize_Type || tp == &PySet_Type || tp == &PyFrozenSet_Type ||
           tp == &PyRange_Type || tp == &PySlice_Type || tp == &PyBytes_Type || tp == &PyComplex_Type ||
           tp == &PyDtype_Type || tp == &PyDevice_Type || tp == &PyMemfmt_Type || tp == &PyLayout_Type ||
           tp == ordered_dict || tp == default_dict || tp == deque_type || tp == &PyEllipsis_Type ||
           tp == Py_TYPE(Py_NotImplemented) || tp == &PyByteArray_Type || tp == &PyRng_Type ||
           tp == &PyDictKeys_Type || tp == &PyDictValues_Type || tp == &PyDictItems_Type ||
           (PyType_IsSubtype(tp, &PyTuple_Type) && !type_is_python(tp)) ||
           (PyType_IsSubtype(tp, &PyTuple_Type) && !strncmp(tp->tp_name, "taper.return_types", 18)) ||
           t_is_numpy_scalar(tp);
}

PyTypeObject *t_base(PyTypeObject *tp)
{
    if (!type_is_python(tp) || t_is_tensor_type(tp))
        return NULL;
    PyTypeObject *const known[] = { ordered_dict,    default_dict, &PyDict_Type,      &PyList_Type,
                                    &PySet_Type,     deque_type,   &PyFrozenSet_Type, &PyTuple_Type,
                                    &PyUnicode_Type, &PyLong_Type, &PyFloat_Type };
    for (size_t i = 0; i < COUNT(known); i++)
        if (PyType_IsSubtype(tp, known[i]))
            return known[i];
    return NULL;
}
PyObject *t_new_derived(PyTypeObject *base, PyTypeObject *cls)
{
    PyObject *none = PyTuple_New(0), *o = none ? base->tp_new(cls, none, NULL) : NULL;
    Py_XDECREF(none);
    return o;
}

PyObject *dict_keys(PyObject *d)
{
    if (!PyODict_Check(d))
        return PyDict_Keys(d);
    PyObject *it = PyODict_Type.tp_iter(d), *l = it ? PySequence_List(it) : NULL;
    Py_XDECREF(it);
    return l;
}
int dict_set(PyObject *d, PyObject *k, PyObject *v)
{
    if (PyODict_Check(d))
        return v ? PyODict_SetItem(d, k, v) : PyODict_DelItem(d, k);
    return v ? PyDict_SetItem(d, k, v) : PyDict_DelItem(d, k);
}

PyObject *container_list(PyObject *o)
{
    if (PyList_Check(o))
        return PyList_GetSlice(o, 0, PyList_GET_SIZE(o));
    if (PyTuple_Check(o)) {
        PyObject *l = PyList_New(PyTuple_GET_SIZE(o));
        for (Py_ssize_t i = 0; l && i < PyTuple_GET_SIZE(o); i++)
            PyList_SET_ITEM(l, i, Py_NewRef(PyTuple_GET_ITEM(o, i)));
        return l;
    }
    PyTypeObject *own = PyAnySet_Check(o)                          ? &PySet_Type
                        : PyType_IsSubtype(Py_TYPE(o), deque_type) ? deque_type
                                                                   : NULL;
    PyObject *it = own ? own->tp_iter(o) : NULL,
             *l = own ? (it ? PySequence_List(it) : NULL) : PySequence_List(o);
    Py_XDECREF(it);
    return l;
}

PyObject *polyfill(const char *name)
{
    static PyObject *mod;
    if (!mod && !(mod = PyImport_ImportModule("taper._polyfill"))) {
        PyObject *type, *value, *tb; /* perhaps of a signal handler: then it is for later */
        PyErr_Fetch(&type, &value, &tb);
        mod = PyImport_ImportModule("taper._polyfill");
        if (mod) {
            PyErr_Restore(type, value, tb);
            py_forget();
        } else {
            Py_XDECREF(type);
            Py_XDECREF(value);
            Py_XDECREF(tb);
        }
    }
    return mod ? PyDict_GetItemString(PyModule_GetDict(mod), name) : NULL;
}

static bool is_namedtuple(PyTypeObject *tp)
{
    if (!PyType_IsSubtype(tp, &PyTuple_Type) || tp == &PyTuple_Type)
        return false;
    static PyObject *fields;
    if (!fields)
        fields = PyUnicode_InternFromString("_fields");
    return tp == PySize_Type || _PyType_Lookup(tp, fields) || !strncmp(tp->tp_name, "taper.return_types", 18);
}

static char *mangle(trace *t, const char *text)
{
    char *s = arena_strdup(&t->g->mem, text), *w = s;
    for (char *r = s; *r; r++)
        if ((*r >= 'a' && *r <= 'z') || (*r >= 'A' && *r <= 'Z') || (*r >= '0' && *r <= '9'))
            *w++ = *r;
        else if (w == s || w[-1] != '_')
            *w++ = '_';
    *w = 0;
    if (*s >= 'A' && *s <= 'Z')
        *s = (char)(*s - 'A' + 'a');
    return s;
}

static PyObject *wrap_tensor(trace *t, PyObject *o, source *s)
{
    tp_tensor *x = py_tensor(o);
    entry *e = t->e;
    if (tensor_is_fake(x) && x->node)
        return t_break(t, BRK_wrapped, "a fake tensor of another trace");
    if (tensor_is_sparse(x))
        return t_break(t, BRK_wrapped, "a sparse tensor: calls on sparse tensors run outside of graphs");
    t->arrays |= s->kind == SRC_array;
    for (size_t i = 0; t->arrays && i < t->objs.n; i++)
        if (t->objs.at[i].node && t->objs.at[i].real && py_is_tensor(t->objs.at[i].real) &&
            t_arrays_overlap(py_tensor(t->objs.at[i].real), x))
            return t_break(t, BRK_wrapped, "a NumPy array on the memory of another input");
    guard *g = guard_add(e, G_TENSOR_MATCH, s, NULL);
    guard_tensor *gt = g->t = ARENA_NEW(&e->mem, guard_tensor);
    guard_where(t, g);
    gt->type = Py_TYPE(o);
    keep(e, (PyObject *)Py_TYPE(o));
    gt->dt = x->dt;
    gt->ndim = x->ndim;
    gt->dev = tensor_device(x);
    gt->requires_grad = grad_requires_grad(x);
    gt->inference = (x->flags & TF_inference) != 0;
    gt->size = arena_alloc(&e->mem, sizeof(int64_t) * (size_t)MAX(x->ndim, 1));
    gt->stride = arena_alloc(&e->mem, sizeof(int64_t) * (size_t)MAX(x->ndim, 1));
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    bool any = false;
    for (int i = 0; i < x->ndim; i++) {
        sym_policy p = SYM_static;
        int64_t lo = 0, hi = INT64_MAX;
        gt->size[i] = size[i] = x->size[i];
        gt->stride[i] = stride[i] = x->stride[i];
        if (!t_dim_policy(t, o, s, i, x->size[i], &p, &lo, &hi))
            return NULL;
        if (p != SYM_static && t->env) {
            char src[256];
            snprintf(src, sizeof src, "%s.size()[%d]", src_text(s), i);
            size[i] = lo || hi != INT64_MAX ? sym_env_size_in(t->env, x->size[i], src, p, lo, hi)
                                            : sym_env_size(t->env, x->size[i], src, p);
            e->symval = mem_realloc(e->symval, sizeof *e->symval * (size_t)(e->nsymval + 1));
            e->symval[e->nsymval++] = (struct symval){ s, i,
                                                       sym_is_symbol(size[i]) ? sym_index(size[i]) : -1 };
            if (sym_is_expr(size[i])) {
                gt->size[i] = -1;
                any = true;
            }
        }
    }
    if (any) { /* strides that follow from the sizes stay expressions; others are constants */
        symint want_[TP_MAX_DIMS];
        shape_contiguous_strides(x->ndim, size, want_);
        symint plain[TP_MAX_DIMS];
        shape_contiguous_strides(x->ndim, x->size, plain);
        bool contiguous = true;
        for (int i = 0; i < x->ndim; i++)
            contiguous &= plain[i] == x->stride[i] || x->size[i] == 1;
        for (int i = 0; i < x->ndim && contiguous; i++)
            if (sym_is_expr(want_[i])) {
                stride[i] = want_[i];
                gt->stride[i] = -1;
            }
        gt->type = Py_TYPE(o);
        if (contiguous && x->ndim > 1)
            g->n = 1; /* contiguity itself is checked */
    }
    static PyObject *marked;
    if (!marked)
        marked = PyUnicode_InternFromString("_dynamo_dynamic_indices");
    PyObject *d = inst_dict(o);
    if (!d || !PyDict_GetItemWithError(d, marked))
        t_want(t, G_NO_HASATTR, s, marked);
    /* views of one storage stay views of one fake storage */
    tp_tensor *fake = NULL;
    for (size_t i = 0; i < t->objs.n && !fake; i++) {
        tobj *q = &t->objs.at[i];
        if (q->node && q->real && py_is_tensor(q->real) && py_tensor(q->real)->storage == x->storage)
            fake = tensor_on(py_tensor(q->abs)->storage, (dtype)x->dt, x->ndim, size, stride, x->offset);
    }
    if (!fake)
        fake = tensor_new_fake((dtype)x->dt, x->ndim, size, stride, tensor_device(x));
    char *name = mangle(t, src_text(s));
    ir_node *n = ir_add_placeholder(t->g, name, src_text(s), fake);
    tensor_unref(fake);
    tp_tensor *p = ir_proxy(&t->rec, n);
    if (gt->inference)
        p->flags |= TF_inference;
    if (gt->requires_grad) {
        tp_err err = { 0 };
        op_ctx cx = *CX;
        if (!grad_set_requires_grad(&cx, p, true, &err)) {
            tensor_unref(p);
            return py_raise(&err);
        }
        if (grad_is_writable(x))
            p->spare |= AGF_computed;
    }
    PyObject *abs = py_wrap_as(Py_TYPE(o), p);
    if (!abs)
        return NULL;
    tobj *k = t_obj_add(t, abs, o, s);
    k->node = n;
    return abs;
}

static PyObject *lazy_item(trace *t, PyObject *o, source *s, src_kind k, PyObject *key, int i)
{
    return t_lazy(t, o, src_get(t->e, k, s, NULL, key, i));
}

static PyObject *wrap_tuple(trace *t, PyObject *o, source *s)
{
    Py_ssize_t n = PyTuple_GET_SIZE(o);
    t_want(t, G_TYPE_MATCH, s, (PyObject *)Py_TYPE(o));
    t_want(t, G_SEQUENCE_LENGTH, s, NULL)->n = n;
    if (n == 0 && Py_TYPE(o) == &PyTuple_Type) /* there is but one */
        return Py_NewRef(o);
    PyObject *abs = tuple_alloc(Py_TYPE(o), n);
    for (Py_ssize_t i = 0; abs && i < n; i++) {
        PyObject *v = lazy_item(t, PyTuple_GET_ITEM(o, i), s, SRC_item, NULL, (int)i);
        if (!v)
            Py_CLEAR(abs);
        else
            PyTuple_SET_ITEM(abs, i, v);
    }
    if (abs)
        t_obj_add(t, abs, o, s);
    return abs;
}

static PyObject *wrap_list(trace *t, PyObject *o, source *s)
{
    bool dq = PyType_IsSubtype(Py_TYPE(o), deque_type);
    PyTypeObject *base = t_base(Py_TYPE(o));
    PyObject *now = container_list(o), *items = now ? PyList_New(0) : NULL, *abs = NULL;
    Py_ssize_t n = now ? PyList_GET_SIZE(now) : 0;
    t_want(t, G_TYPE_MATCH, s, (PyObject *)Py_TYPE(o));
    t_want(t, G_SEQUENCE_LENGTH, s, NULL)->n = n;
    for (Py_ssize_t i = 0; items && i < n; i++) {
        PyObject *v = lazy_item(t, PyList_GET_ITEM(now, i), s, dq ? SRC_deque : SRC_item, NULL, (int)i);
        if (!v || PyList_Append(items, v) < 0)
            Py_CLEAR(items);
        Py_XDECREF(v);
    }
    Py_XDECREF(now);
    if (!items)
        return NULL;
    if (dq) {
        PyObject *maxlen = PyObject_GetAttrString(o, "maxlen"), *r = NULL;
        abs = maxlen ? t_new_derived(deque_type, Py_TYPE(o)) : NULL;
        if (abs && !(r = PyObject_CallMethod((PyObject *)deque_type, "__init__", "OOO", abs, items, maxlen)))
            Py_CLEAR(abs);
        Py_XDECREF(r);
        Py_XDECREF(maxlen);
    } else if (base) {
        abs = t_new_derived(base, Py_TYPE(o));
        if (abs && PyList_SetSlice(abs, 0, 0, items) < 0)
            Py_CLEAR(abs);
    } else
        abs = PyList_GetSlice(items, 0, n);
    if (!abs) {
        Py_DECREF(items);
        return NULL;
    }
    tobj *k = t_obj_add(t, abs, o, s);
    k->snapshot = items;
    k->container = true;
    return abs;
}

/* A list that was only appended to is looked at after all: it gets its items, and what was appended. */
static bool tail_join(trace *t, PyObject *o, size_t at)
{
    source *s = t->objs.at[at].src;
    PyObject *tail = keep(t->e, t->objs.at[at].tail), *items = PyList_New(0), *abs;
    Py_ssize_t n = PyList_GET_SIZE(o);
    t_want(t, G_SEQUENCE_LENGTH, s, NULL)->n = n;
    for (Py_ssize_t i = 0; items && i < n; i++) {
        PyObject *v = lazy_item(t, PyList_GET_ITEM(o, i), s, SRC_item, NULL, (int)i);
        if (!v || PyList_Append(items, v) < 0)
            Py_CLEAR(items);
        Py_XDECREF(v);
    }
    abs = items ? PyList_GetSlice(items, 0, n) : NULL;
    if (!abs || PyList_SetSlice(abs, n, n, tail) < 0) {
        Py_XDECREF(items);
        Py_XDECREF(abs);
        return false;
    }
    tobj *k = &t->objs.at[at];
    Py_SETREF(k->abs, abs);
    k->snapshot = items;
    Py_CLEAR(k->tail);
    map_puti(&t->by_ptr, (uint64_t)(uintptr_t)abs, (void *)(at + 1));
    return true;
}

int t_append(trace *t, PyObject *lazy, PyObject *v)
{
    PyLazy *l = (PyLazy *)lazy;
    tobj *k = t_obj(t, l->real);
    if (!k && !l->val) { /* one guard: what is in it does not matter */
        PyObject *tail = PyList_New(0);
        if (!tail)
            return -1;
        t_want(t, G_TYPE_MATCH, l->src, (PyObject *)&PyList_Type);
        k = t_obj_add(t, tail, l->real, l->src);
        k->tail = tail;
        k->container = true;
    }
    if (k && k->tail && k->src == l->src)
        return PyList_Append(k->tail, v);
    PyObject *abs = t_real(t, lazy);
    return abs ? PyList_Append(abs, v) : -1;
}

static bool free_builtin(PyObject *o) /* a C function that is not bound to an object */
{
    if (!PyCFunction_Check(o))
        return false;
    PyObject *self = PyCFunction_GET_SELF(o);
    return !self || PyModule_Check(self) || PyType_Check(self);
}

static bool plain_const(PyObject *o)
{
    PyTypeObject *p = Py_TYPE(o);
    if (p == &PyTuple_Type || p == &PyFrozenSet_Type) {
        PyObject *l = PySequence_List(o);
        bool ok = l != NULL;
        for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(l); i++)
            ok = plain_const(PyList_GET_ITEM(l, i));
        Py_XDECREF(l);
        return ok;
    }
    return p == &PyLong_Type || p == &PyFloat_Type || p == &PyBool_Type || p == &PyUnicode_Type ||
           p == &PyBytes_Type || p == Py_TYPE(Py_None) || p == &PyComplex_Type || p == &PyDtype_Type ||
           p == &PyDevice_Type || p == &PyMemfmt_Type || p == &PyLayout_Type || p == &PyEllipsis_Type ||
           p == &PyRange_Type || PyType_Check(o) || PyFunction_Check(o) || free_builtin(o) ||
           PyModule_Check(o) || is_enum(o) || p == &PyOpFunc_Type || p == &PyOpMethod_Type;
}

static PyObject *wrap_dict(trace *t, PyObject *o, source *s)
{
    PyObject *keys = dict_keys(o), *abs = NULL, *snap = NULL;
    PyTypeObject *tp = Py_TYPE(o), *base = t_base(tp) ? t_base(tp) : tp;
    if (!keys)
        return NULL;
    t_want(t, G_TYPE_MATCH, s, (PyObject *)tp);
    t_want(t, G_DICT_KEYS_MATCH, s, keys)->n = PyODict_Check(o) &&
                                               PyList_GET_SIZE(keys) > 1; /* order counts */
    Py_SETREF(keys, PyList_GetSlice(keys, 0, PyList_GET_SIZE(keys)));     /* the guard has the first */
    abs = keys ? t_new_derived(base, tp) : NULL;
    if (abs && base == default_dict) {
        static PyObject *name;
        if (!name)
            name = PyUnicode_InternFromString("default_factory");
        PyObject *fac = PyObject_GetAttr(o, name),
                 *w = fac ? t_wrap(t, fac, src_get(t->e, SRC_attr, s, NULL, name, 0)) : NULL;
        if (!w || PyObject_SetAttr(abs, name, w) < 0)
            Py_CLEAR(abs);
        Py_XDECREF(fac);
        Py_XDECREF(w);
    }
    for (int i = 0; abs && i < PyList_GET_SIZE(keys); i++) {
        PyObject *k = PyList_GET_ITEM(keys, i), *v = PyDict_GetItemWithError(o, k);
        if (!v) {
            Py_CLEAR(abs);
            break;
        }
        PyObject *lv = plain_const(k) ? t_lazy(t, v, src_get(t->e, SRC_key, s, NULL, k, 0))
                                      : t_lazy(t, v, src_get(t->e, SRC_key, s, NULL, k, 1));
        PyObject *ak = plain_const(k) ? Py_NewRef(k)
                                      : t_wrap(t, k, src_get(t->e, SRC_dictkey, s, NULL, NULL, i));
        if (!lv || !ak || (!plain_const(k) && !t_key(t, ak)) || dict_set(abs, ak, lv) < 0)
            Py_CLEAR(abs);
        else if (ak != k)
            PyList_SetItem(keys, i, Py_NewRef(ak));
        Py_XDECREF(lv);
        Py_XDECREF(ak);
    }
    snap = abs && keys ? PyDict_New() : NULL;
    for (Py_ssize_t i = 0; snap && i < PyList_GET_SIZE(keys); i++) /* in order */
        if (PyDict_SetItem(snap, PyList_GET_ITEM(keys, i),
                           PyDict_GetItemWithError(abs, PyList_GET_ITEM(keys, i))) < 0)
            Py_CLEAR(snap);
    Py_XDECREF(keys);
    if (!snap) {
        Py_XDECREF(abs);
        return NULL;
    }
    tobj *x = t_obj_add(t, abs, o, s);
    x->snapshot = snap;
    x->container = true;
    return abs;
}

static PyObject *wrap_set(trace *t, PyObject *o, source *s)
{
    PyObject *l = container_list(o);
    bool ok = l != NULL;
    for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(l); i++) {
        PyObject *v = PyList_GET_ITEM(l, i);
        if (plain_const(v))
            continue;
        ok = !PyTuple_Check(v) && !py_is_tensor(v) && !t_base(Py_TYPE(v)) && type_is_python(Py_TYPE(v));
        if (ok && !t_obj(t, v)) /* the guard holds them fast */
            t_obj_add(t, v, v, src_get(t->e, SRC_const, NULL, v, NULL, 0));
        ok = ok && t_key(t, v);
    }
    Py_XDECREF(l);
    if (!ok && (t->broke || PyErr_Occurred()))
        return NULL;
    if (!ok)
        return t_break(t, BRK_wrapped, "a set of objects that are not constants (%s)", src_text(s));
    PyObject *copy = PyFrozenSet_New(o), *abs = t_new_derived(&PySet_Type, Py_TYPE(o));
    if (abs && _PySet_Update(abs, o) < 0)
        Py_CLEAR(abs);
    PyObject *walked = copy && abs ? PySet_New(o) : NULL, *a = walked ? container_list(o) : NULL,
             *b = a ? container_list(abs) : NULL, *c = b ? container_list(walked) : NULL;
    bool order = c && PyObject_RichCompareBool(a, b, Py_EQ) == 1 &&
                 PyObject_RichCompareBool(a, c, Py_EQ) == 1;
    Py_XDECREF(a);
    Py_XDECREF(b);
    Py_XDECREF(c);
    if (!order) { /* elements were removed from it: a copy is walked in another order */
        Py_XDECREF(abs);
        Py_XDECREF(copy);
        Py_XDECREF(walked);
        return t_break(t, BRK_wrapped, "a set that a copy would not be walked like (%s)", src_text(s));
    }
    if (Py_TYPE(o) != &PySet_Type)
        t_want(t, G_TYPE_MATCH, s, (PyObject *)Py_TYPE(o));
    guard *g = t_want(t, G_SET_CONTAINS, s, NULL);
    g->n = Py_TYPE(o) != &PySet_Type;
    g->obj = keep(t->e, walked);
    Py_DECREF(walked);
    tobj *x = abs ? t_obj_add(t, abs, o, s) : NULL;
    if (x) {
        x->snapshot = copy;
        x->container = true;
    }
    return abs;
}

static PyObject *wrap_int(trace *t, PyObject *o, source *s);

static PyObject *wrap_proxy(trace *t, PyObject *o, source *s)
{
    t_want(t, G_TYPE_MATCH, s, (PyObject *)Py_TYPE(o));
    PyObject *d = t_wrap(t, t_unproxied(o), src_get(t->e, SRC_proxied, s, NULL, NULL, 0)),
             *r = d ? PyDictProxy_New(d) : NULL;
    Py_XDECREF(d);
    if (r)
        t_obj_add(t, r, o, s);
    return r;
}

static PyObject *wrap_numpy_scalar(trace *t, PyObject *o, source *s)
{
    if (!const_equal(o, o) || PyObject_RichCompareBool(o, o, Py_EQ) != 1) {
        py_forget();
        return t_break(t, BRK_wrapped, "a %s that is not a number", Py_TYPE(o)->tp_name);
    }
    t_want(t, G_TYPE_MATCH, s, (PyObject *)Py_TYPE(o));
    t_want(t, G_EQUALS_MATCH, s, o);
    return Py_NewRef(o);
}

PyObject *t_wrap(trace *t, PyObject *o, source *s)
{
    PyTypeObject *tp = Py_TYPE(o);
    t->reads += !PyFunction_Check(o) && !PyType_Check(o) && !PyModule_Check(o) && !free_builtin(o) &&
                strcmp(tp->tp_name, "functools._lru_cache_wrapper");
    if (o == Py_None) {
        t_want(t, G_NONE_MATCH, s, NULL);
        return Py_NewRef(o);
    }
    if (tp == &PyBool_Type) {
        t_want(t, G_BOOL_MATCH, s, o);
        return Py_NewRef(o);
    }
    if (tp == &PyLong_Type)
        return wrap_int(t, o, s);
    if (tp == &PyFloat_Type && t_float_policy(t, o, s))
        return t_size_input(t, o, s);
    if (tp == &PyFloat_Type || tp == &PyUnicode_Type || tp == &PyBytes_Type || tp == &PyComplex_Type ||
        tp == &PyDevice_Type || tp == &PyRange_Type || !strcmp(tp->tp_name, "re.Pattern") ||
        (tp == &PyFrozenSet_Type && plain_const(o)) ||
        (tp == &PySlice_Type && plain_const(((PySliceObject *)o)->start) &&
         plain_const(((PySliceObject *)o)->stop) && plain_const(((PySliceObject *)o)->step))) {
        t_want(t, G_EQUALS_MATCH, s, o);
        return Py_NewRef(o);
    }
    if (t_is_numpy_scalar(tp))
        return wrap_numpy_scalar(t, o, s);
    tobj *known = t_obj(t, o);
    if (known && known->tail && !tail_join(t, o, (size_t)(known - t->objs.at)))
        return NULL;
    known = t_obj(t, o);
    if (known) { /* reached on two ways: they must stay one object */
        source *ks = known->outer ? known->outer : known->src;
        if (ks && ks != s && s->kind != SRC_const && ks->kind != SRC_const) {
            guard_pair(t, G_DUPLICATE_INPUT, s, ks);
        } else if (ks && ks->kind == SRC_const && s->kind != SRC_const)
            t_want(t, G_ID_MATCH, s, known->real ? known->real : known->abs);
        return Py_NewRef(known->abs);
    }
    if (t_is_tensor_type(tp))
        return wrap_tensor(t, o, s);
    PyTypeObject *base = t_base(tp);
    if (tp == &PyTuple_Type || is_namedtuple(tp) || (base == &PyTuple_Type && !is_enum(o)))
        return wrap_tuple(t, o, s);
    if (tp == &PyList_Type || tp == deque_type || base == &PyList_Type || base == deque_type)
        return wrap_list(t, o, s);
    if (PyDict_Check(o) && (base || t_safe_type(tp)))
        return wrap_dict(t, o, s);
    if (tp == &PySet_Type || base == &PySet_Type)
        return wrap_set(t, o, s);
    if (t_unproxied(o) != o)
        return wrap_proxy(t, o, s);
    if ((base == &PyLong_Type || base == &PyFloat_Type || base == &PyUnicode_Type) && !is_enum(o)) {
        t_want(t, G_TYPE_MATCH, s, (PyObject *)tp);
        t_want(t, G_EQUALS_MATCH, s, o);
        t_obj_add(t, o, o, s);
        return Py_NewRef(o);
    }
    if (base && !is_enum(o)) /* frozen sets with a class of their own */
        return t_break(t, BRK_wrapped, "an object of class %s, which extends %s", tp->tp_name, base->tp_name);
    if (tp == &PyByteArray_Type)
        return t_break(t, BRK_wrapped, "a bytearray made before the graph began");
    if (PyFunction_Check(o)) {
        guard *g = t_want(t, G_FUNCTION_MATCH, s, PyFunction_GET_CODE(o));
        g->obj2 = keep(t->e, PyFunction_GET_GLOBALS(o));
        t_obj_add(t, o, o, s);
        return Py_NewRef(o);
    }
    if (PyMethod_Check(o)) {
        t_want(t, G_TYPE_MATCH, s, (PyObject *)tp);
        PyObject *self = t_wrap(t, PyMethod_GET_SELF(o), src_get(t->e, SRC_self, s, NULL, NULL, 0)),
                 *fn = NULL, *r = NULL;
        if (self)
            fn = t_wrap(t, PyMethod_GET_FUNCTION(o), src_get(t->e, SRC_func, s, NULL, NULL, 0));
        if (fn)
            r = PyMethod_New(fn, self);
        Py_XDECREF(self);
        Py_XDECREF(fn);
        if (r)
            t_obj_add(t, r, o, s);
        return r;
    }
    if (PyCFunction_Check(o) &&
        !free_builtin(o)) { /* bound to an object from outside: to what stands for it here */
        guard *g = t_want(t, G_BUILTIN_MATCH, s, NULL);
        g->n = (intptr_t)((PyCFunctionObject *)o)->m_ml;
        PyObject *self = t_wrap(t, PyCFunction_GET_SELF(o), src_get(t->e, SRC_self, s, NULL, NULL, 0));
        PyObject *r = self ? PyObject_GetAttrString(self, ((PyCFunctionObject *)o)->m_ml->ml_name) : NULL;
        Py_XDECREF(self);
        if (r)
            t_obj_add(t, r, o, s);
        return r;
    }
    if (PyType_Check(o) || PyModule_Check(o) || PyCFunction_Check(o) || tp == &PyOpFunc_Type ||
        tp == &PyOpMethod_Type || tp == &PyDtype_Type || tp == &PyMemfmt_Type || tp == &PyLayout_Type ||
        is_enum(o) || PyCode_Check(o) || tp == &PyEllipsis_Type || o == Py_NotImplemented ||
        tp == &PyMethodDescr_Type || tp == &PyWrapperDescr_Type) {
        t_want(t, G_ID_MATCH, s, o);
        if (s->kind != SRC_const && !t_obj(t, o))
            t_obj_add(t, o, o, s);
        return Py_NewRef(o);
    }
    if (tp == &PyDictKeys_Type || tp == &PyDictValues_Type || tp == &PyDictItems_Type || tp == &PyGen_Type ||
        (PyIter_Check(o) && !type_func(o, "%s", "__next__"))) { /* it moves, or shows what moves */
        t_break(t, BRK_iterate, "a %s made before the graph began", tp->tp_name);
        t->quiet = t->top == t->outer;
        return NULL;
    }
    t_want(t, G_TYPE_MATCH, s, (PyObject *)tp);
    if (t_is_real_array(o)) {
        PyObject *a = t_wrap_array(t, o, s);
        if (a || PyErr_Occurred())
            return a;
    }
    t_obj_add(t, o, o, s);
    return Py_NewRef(o);
}

static PyObject *wrap_int(trace *t, PyObject *o, source *s)
{
    int overflow;
    long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (t->env && !overflow && v < ((int64_t)1 << 61) && v > -((int64_t)1 << 61) && t_int_policy(t, o, s)) {
        entry *e = t->e;
        symint x = sym_env_int(t->env, v, src_text(s));
        e->symval = mem_realloc(e->symval, sizeof *e->symval * (size_t)(e->nsymval + 1));
        e->symval[e->nsymval++] = (struct symval){ s, -1, sym_is_symbol(x) ? sym_index(x) : -1 };
        for (source *b = s; b; b = b->base)
            b->used = true;
        t_want(t, G_TYPE_MATCH, s, (PyObject *)&PyLong_Type);
        if (sym_is_expr(x)) {
            ir_add_placeholder_val(t->g, mangle(t, src_text(s)), src_text(s), vI(x));
            PyObject *r = py_symint(x);
            if (r)
                t_obj_add(t, r, NULL, s)->node = vec_last(&t->g->inputs);
            return r;
        }
    }
    t_want(t, G_EQUALS_MATCH, s, o);
    return Py_NewRef(o);
}

/* ---- removing laziness inside containers ---- */
bool t_compared_by_id(PyTypeObject *tp)
{
    if (type_is_python(tp)) {
        t_look_for(tp, "__eq__");
        t_look_for(tp, "__hash__");
    }
    return tp->tp_hash == PyBaseObject_Type.tp_hash &&
           (tp->tp_richcompare == PyBaseObject_Type.tp_richcompare || !tp->tp_richcompare);
}

/* A key whose class says itself when two are equal. Dictionaries and sets compare it natively, with keys of the same hash
 * only: tracing its hash, and the comparison with each such key seen so far, guards all that they read. */
static bool own_key(trace *t, PyObject *o)
{
    for (size_t i = 0; i < t->keys.n; i++)
        if (t->keys.at[i].key == o)
            return true;
    PyObject *fn = type_func(o, "%s", "__hash__"), *h, *e;
    tobj *k = t_obj(t, o);
    if (!fn) { /* None: what uses it as a key raises */
        if (Py_TYPE(o)->tp_hash == PyObject_HashNotImplemented)
            return true;
        return t_break(t, BRK_operator, "an object of class %s with its own comparison",
                       Py_TYPE(o)->tp_name) != NULL;
    }
    if (k && (k->over || k->dict))
        return t_break(t, BRK_operator, "a key of class %s that was changed", Py_TYPE(o)->tp_name) != NULL;
    if (!(h = t_call(t, fn, &o, 1, NULL)))
        return false;
    if (!PyLong_CheckExact(h)) {
        Py_DECREF(h);
        return t_break(t, BRK_operator, "a key of class %s, whose hash is not known", Py_TYPE(o)->tp_name) !=
               NULL;
    }
    struct own_key me = { keep(t->e, o), PyObject_Hash(h) };
    Py_DECREF(h);
    for (size_t i = 0; i < t->keys.n; i++)
        for (int turn = 0; turn < 2 && t->keys.at[i].hash == me.hash; turn++) {
            PyObject *a = turn ? o : t->keys.at[i].key, *b = turn ? t->keys.at[i].key : o;
            int known = (e = t_compare(t, a, b, Py_EQ)) ? t_truth(t, e) : -1;
            Py_XDECREF(e);
            if (known < 0)
                return false;
        }
    vec_push(&t->keys, me);
    return true;
}

/* A key that is told from others by which object it is: should two of them be one next time, so are the keys. Guards on
 * its class or its metadata do not say that. */
static void id_key(trace *t, PyObject *o)
{
    tobj *k = t_obj(t, o);
    if (k && k->src)
        t_keep_apart(t, k);
}
void t_keep_apart(trace *t, tobj *k)
{
    if (k->keyed)
        return;
    k->keyed = true;
    for (source *s = k->src; s; s = s->base)
        s->used = true;
    vec_push(&t->e->apart, k->src);
    t->e->apart_moves |= k->src->kind != SRC_const && k->src->kind != SRC_dictkey;
}

static bool trusted_class(PyTypeObject *tp);
static bool deep(trace *t, PyObject *o, int depth, bool key)
{
    if (depth > 40)
        return t_break(t, BRK_wrapped, "containers nested too deeply") != NULL;
    PyTypeObject *tp = Py_TYPE(o);
    if (PyTuple_Check(o)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++) {
            PyObject *v = PyTuple_GET_ITEM(o, i), *r = t_real(t, v);
            if (!r)
                return false;
            if (r != v) {
                PyTuple_SET_ITEM(o, i, Py_NewRef(r));
                Py_DECREF(v);
            }
            if (!deep(t, r, depth + 1, key))
                return false;
        }
        return true;
    }
    if (PyList_Check(o)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); i++) {
            PyObject *r = t_real(t, PyList_GET_ITEM(o, i));
            if (!r)
                return false;
            if (r != PyList_GET_ITEM(o, i))
                PyList_SetItem(o, i, Py_NewRef(r));
            if (!deep(t, r, depth + 1, key))
                return false;
        }
        return true;
    }
    if (PyDict_Check(o)) {
        Py_ssize_t p = 0;
        PyObject *k, *v;
        while (PyDict_Next(o, &p, &k, &v)) {
            PyObject *r = t_real(t, v);
            if (!r || (r != v && PyDict_SetItem(o, k, r) < 0) || !deep(t, r, depth + 1, key))
                return false;
        }
        return true;
    }
    if (PyType_IsSubtype(tp, deque_type)) {
        PySequenceMethods *m = deque_type->tp_as_sequence; /* its own, whatever the class makes of them */
        Py_ssize_t n = m->sq_length(o);
        for (Py_ssize_t i = 0; i < n; i++) {
            PyObject *v = m->sq_item(o, i), *r = v ? t_real(t, v) : NULL;
            bool ok = r && (r == v || m->sq_ass_item(o, i, r) >= 0) && deep(t, r, depth + 1, key);
            Py_XDECREF(v);
            if (!ok)
                return false;
        }
        return true;
    }
    if (tp == &PySlice_Type) {
        PySliceObject *s = (PySliceObject *)o;
        return deep(t, s->start, depth + 1, key) && deep(t, s->stop, depth + 1, key) &&
               deep(t, s->step, depth + 1, key);
    }
    bool by_id = t_is_tensor_type(tp) || (!t_safe_type(tp) && t_compared_by_id(tp));
    if (key && by_id)
        id_key(t, o);
    if (t_safe_type(tp) || by_id || PyType_Check(o) || PyFunction_Check(o) || PyModule_Check(o) ||
        PyCFunction_Check(o) || PyMethod_Check(o) || PyCell_Check(o) || is_enum(o) || tp == &PyLazy_Type ||
        PyExceptionInstance_Check(o) || t_behind(o) || tp == &PyTraceGen_Type || (!key && t_is_array(o)) ||
        (t_base(tp) && !type_func(o, "%s", "__eq__") && !type_func(o, "%s", "__hash__")) ||
        (!key && t_base(tp) == &PyUnicode_Type && trusted_class(tp)) || /* TorchVersion */
        !type_is_python(tp))
        return true;
    if (key)
        return own_key(t, o);
    t_break(t, BRK_operator, "an object of class %s with its own comparison", tp->tp_name);
    return false;
}
bool t_deep(trace *t, PyObject *o) { return deep(t, o, 0, false); }
bool t_key(trace *t, PyObject *o) { return deep(t, o, 0, true); }

bool t_dynamic_outputs(trace *t)
{
    return t->cfg->fullgraph || cfg_bool("capture_dynamic_output_shape_ops", false);
}

/* A result whose size only the data decides ends the graph. Takes r. */
static PyObject *sized(trace *t, PyObject *r)
{
    bool bad = false;
    if (t_dynamic_outputs(t))
        return r;
    if (r && t_is_tensor_type(Py_TYPE(r)))
        for (int i = 0; i < py_tensor(r)->ndim; i++)
            bad |= sym_is_expr(py_tensor(r)->size[i]) && sym_is_unbacked(py_tensor(r)->size[i]);
    else if (r && PyTuple_Check(r))
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(r); k++) {
            PyObject *o = PyTuple_GET_ITEM(r, k);
            for (int i = 0; t_is_tensor_type(Py_TYPE(o)) && i < py_tensor(o)->ndim; i++)
                bad |= sym_is_expr(py_tensor(o)->size[i]) && sym_is_unbacked(py_tensor(o)->size[i]);
        }
    if (!bad)
        return r;
    Py_DECREF(r);
    return t_break(t, BRK_data, "an operator whose result has a size that depends on data");
}

/* ---- floats made of sizes, for C code ---- */
enum { DEEPEST_LIST = 8 };
static bool holds_sizefloat(PyObject *o, int depth)
{
    bool any = py_is_sizefloat(o);
    if (depth < DEEPEST_LIST && (PyList_CheckExact(o) || PyTuple_CheckExact(o)))
        for (Py_ssize_t i = 0; !any && i < PySequence_Fast_GET_SIZE(o); i++)
            any = holds_sizefloat(PySequence_Fast_GET_ITEM(o, i), depth + 1);
    return any;
}

static PyObject *fixed_sizes(PyObject *o) /* new: the same with plain numbers */
{
    if (py_is_sizefloat(o))
        return t_size_fixed(o);
    if (!holds_sizefloat(o, 0))
        return Py_NewRef(o);
    PyObject *l = PyList_New(0), *r = NULL;
    bool ok = l != NULL;
    for (Py_ssize_t i = 0; ok && i < PySequence_Fast_GET_SIZE(o); i++) {
        PyObject *x = fixed_sizes(PySequence_Fast_GET_ITEM(o, i));
        ok = x && PyList_Append(l, x) == 0;
        Py_XDECREF(x);
    }
    if (ok)
        r = PyTuple_CheckExact(o) ? PyList_AsTuple(l) : Py_NewRef(l);
    Py_XDECREF(l);
    return r;
}

/* x.mul_(1 / n) and the like: arithmetic that takes a 0-d tensor for a number. */
static bool takes_tensors(PyObject *f)
{
    static const char *const names[] = { "add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_" };
    PyObject *n = PyObject_GetAttrString(f, "__name__");
    const char *name = n && PyUnicode_Check(n) ? PyUnicode_AsUTF8(n) : NULL;
    bool yes = false;
    for (size_t i = 0; name && i < COUNT(names); i++)
        yes |= !strcmp(name, names[i]);
    Py_XDECREF(n);
    py_forget();
    return yes;
}

PyObject *t_native(trace *t, PyObject *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Py_ssize_t n = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    PyObject *small[12] = { NULL }, **v = n <= 12 ? small : mem_alloc(sizeof *v * (size_t)n), *r = NULL,
             *own[T_SYMFLOATS] = { NULL }, *fixed = NULL;
    bool operator_ = Py_TYPE(f) == &PyOpFunc_Type || Py_TYPE(f) == &PyOpMethod_Type ||
                     (PyCFunction_Check(f) && PyCFunction_GET_SELF(f) &&
                      py_is_tensor(PyCFunction_GET_SELF(f)));
    bool floats = false, ours = operator_ || (PyCFunction_Check(f) && PyCFunction_GET_SELF(f) == py_module);
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!(v[i] = t_real(t, args[i])) || !t_deep(t, v[i]))
            goto done;
        floats |= py_is_symfloat(v[i]);
        if (operator_ && Py_TYPE(v[i]) == &PyRng_Type) { /* graphs draw from the default one */
            t_break(t, BRK_call_builtin, "an operator that draws from a generator of its own");
            goto done;
        }
        if (holds_sizefloat(v[i], ours ? 0 : DEEPEST_LIST)) { /* C code wants the number */
            PyObject *x = operator_ && i == 1 && n == 2 && takes_tensors(f) && py_is_tensor(v[0]) &&
                                  py_is_sizefloat(v[1])
                              ? t_size_beside(v[1], v[0])
                              : fixed_sizes(v[i]);
            if (!x || (!fixed && !(fixed = PyList_New(0))) || PyList_Append(fixed, x) < 0) {
                Py_XDECREF(x);
                goto done;
            }
            v[i] = x;
            Py_DECREF(x);
        }
    }
    if (floats && operator_ && !t_symfloat_args(v, n, own))
        goto done;
    r = PyObject_Vectorcall(f, v, (size_t)nargs, kwnames);
    if (!r && operator_ && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyObject *et, *ev, *etb;
        PyErr_Fetch(&et, &ev, &etb);
        PyObject *known = t_known_args(t, v, n);
        if (known) {
            Py_XDECREF(et);
            Py_XDECREF(ev);
            Py_XDECREF(etb);
            r = PyObject_Vectorcall(f, &PyTuple_GET_ITEM(known, 0), (size_t)nargs, kwnames);
            Py_DECREF(known);
        } else
            PyErr_Restore(et, ev, etb);
    }
    if (!r && PyErr_ExceptionMatches(py_fake_error)) {
        PyObject *et, *ev, *etb;
        PyErr_Fetch(&et, &ev, &etb);
        PyObject *nm = PyObject_GetAttrString(f, "__name__");
        char what[128];
        py_forget();
        snprintf(what, sizeof what, "%s() of a tensor whose data is not known",
                 nm ? PyUnicode_AsUTF8(nm) : "call");
        Py_XDECREF(nm);
        py_forget();
        PyErr_Restore(et, ev, etb);
        t_fake_failed(t, what);
    }
done:
    for (int i = 0; i < T_SYMFLOATS; i++)
        Py_XDECREF(own[i]);
    Py_XDECREF(fixed);
    if (v != small)
        free(v);
    return sized(t, r);
}

/* ---- operators ---- */
static const char *const binop_names[26] = { "add", "and", "floordiv", "lshift", "matmul",  "mul", "mod",
                                             "or",  "pow", "rshift",   "sub",    "truediv", "xor" };
static PyObject *type_func(PyObject *o, const char *fmt,
                           const char *name) /* borrowed Python function or NULL */
{
    char buf[64];
    snprintf(buf, sizeof buf, fmt, name);
    return t_type_func(o, buf);
}

/* ---- how calls were written ---- */
void t_written(trace *t, const ir_node *last, const void *what)
{
    if (TP_UNLIKELY(t->asked &&
                    t->asked == t->rec.g->last)) /* it is what the class or mode made of the call */
        return;
    ir_node *n = t->rec.g->last;
    if (what && n && n != last && n->prev == last && n->kind == IR_call) /* one call became one node */
        n->written = what;
}

/* operator.add and the like by name: owned for ever. */
static const void *operator_named(const char *name)
{
    static PyObject *found;
    PyObject *op = NULL, *f = found ? PyDict_GetItemString(found, name) : NULL;
    if (!found)
        found = PyDict_New();
    if (!f && (op = PyImport_ImportModule("operator")) && (f = PyObject_GetAttrString(op, name))) {
        PyDict_SetItemString(found, name, f);
        Py_DECREF(f); /* the dictionary keeps it */
    }
    Py_XDECREF(op);
    py_forget();
    return f;
}

static PyObject *zero_of(void)
{
    static PyObject *zero;
    if (!zero)
        zero = PyLong_FromLong(0);
    return zero;
}

/* What a method with a fixed kind of result returned; Python refuses others, so that the call is executed. Takes r. */
PyObject *t_result(trace *t, PyObject *r, const char *method)
{
    PyObject *v = r ? t_real(t, r) : NULL;
    int over = 0;
    bool ok = false;
    if (!v) {
        Py_XDECREF(r);
        return NULL;
    }
    if (!strcmp(method, "__bool__"))
        ok = PyBool_Check(v) || (py_is_symint(v) && sym_is_bool(py_symint_value(v)));
    else if (!strcmp(method, "__len__"))
        ok = (py_is_symint(v) && PyObject_RichCompareBool(v, zero_of(), Py_GE) > 0) || /* which is guarded */
             (PyLong_CheckExact(v) && PyLong_AsLongLongAndOverflow(v, &over) >= 0 && !over);
    else if (!strcmp(method, "__iter__"))
        ok = Py_TYPE(v) == &PyTraceGen_Type || Py_TYPE(v)->tp_iternext;
    else if (!strcmp(method, "__int__") || !strcmp(method, "__index__"))
        ok = PyLong_CheckExact(v) || py_is_symint(v);
    else if (!strcmp(method, "__float__"))
        ok = PyFloat_CheckExact(v) || py_is_symfloat(v) || py_is_sizefloat(v);
    else
        ok = PyUnicode_Check(v);
    if (ok) {
        Py_INCREF(v);
        Py_DECREF(r);
        return v;
    }
    t_break(t, BRK_operator, "%s that returns a %s", method, Py_TYPE(v)->tp_name);
    Py_DECREF(r);
    return NULL;
}

static PyObject *try_dunder(trace *t, PyObject *a, PyObject *b, const char *fmt, const char *name)
{
    PyObject *fn = type_func(a, fmt, name);
    if (!fn)
        return Py_NewRef(Py_NotImplemented);
    PyObject *args[2] = { a, b };
    return t_call(t, fn, args, 2, NULL);
}

/* Builtin values, and those of classes that extend a builtin: what Python code does not define, C code does. */
static bool native_value(PyObject *o)
{
    return t_safe_type(Py_TYPE(o)) || t_base(Py_TYPE(o)) ||
           (is_enum(o) && (PyLong_Check(o) || PyUnicode_Check(o))) || Py_TYPE(o) == &Py_GenericAliasType;
}

/* a % b with texts that the user's classes make. */
static PyObject *percent(trace *t, PyObject *a, PyObject *b)
{
    PyObject *fn = polyfill("percent"), *args[2] = { a, b };
    return fn ? t_call(t, fn, args, 2, NULL) : NULL;
}

/* Symbolic floats beside a tensor become values of the graph, which own holds. */
static bool numbers_beside(PyObject **ab, PyObject **own)
{
    for (int i = 0; i < 2; i++) {
        if (!py_is_tensor(ab[1 - i]))
            continue;
        if (py_is_symfloat(ab[i]))
            return t_symfloat_args(ab, 2, own);
        if (py_is_sizefloat(ab[i]))
            return (ab[i] = own[0] = t_size_beside(ab[i], ab[1 - i])) != NULL;
    }
    return true;
}

PyObject *t_binary(trace *t, int op, PyObject *a, PyObject *b)
{
    PyObject *r;
    if (!(a = t_real(t, a)) || !(b = t_real(t, b)))
        return NULL;
    if (op == 6 && PyUnicode_CheckExact(a) && (PyTuple_CheckExact(b) || PyDict_CheckExact(b))) {
        PyObject *l = PyDict_Check(b) ? PyDict_Values(b) : PySequence_List(b);
        bool plain = l != NULL, ok = plain;
        for (Py_ssize_t i = 0; plain && ok && i < PyList_GET_SIZE(l); i++) {
            PyObject *v = t_real(t, PyList_GET_ITEM(l, i));
            ok = v != NULL;
            plain = v && t_printable(v);
        }
        Py_XDECREF(l);
        if (!ok)
            return NULL;
        if (!plain)
            return percent(t, a, b);
    }
    if (t_safe_type(Py_TYPE(a)) && t_safe_type(Py_TYPE(b))) {
        bool shallow = (PyList_CheckExact(a) && PyList_CheckExact(b)) ||
                       (PyTuple_CheckExact(a) && PyTuple_CheckExact(b));
        if (!shallow && ((!t_deep(t, a)) || !t_deep(t, b)))
            return NULL;
        if (op == 6 && PyUnicode_Check(a) && !t_printable(b))
            return percent(t, a, b);
        PyObject *ab[2] = { a, b }, *own[T_SYMFLOATS] = { NULL };
        if (!numbers_beside(ab, own))
            return NULL;
        const ir_node *last = t->rec.g->last;
        bool tensor_first = py_is_tensor(ab[0]);
        r = native_binary(op, ab[0], ab[1]);
        Py_XDECREF(own[0]);
        if (!r)
            t_fake_failed(t, "arithmetic with a tensor's value");
        else if (py_is_tensor(r)) {
            char name[24];
            const char *bare = binop_names[op % 13];
            bool word = op < 13 && (!strcmp(bare, "and") || !strcmp(bare, "or"));
            snprintf(name, sizeof name, "%s%s%s", op >= 13 ? "i" : "", bare, word ? "_" : "");
            t_written(t, last, operator_named(name));
            ir_node *n = t->rec.g->last;
            n->written_back = n != last && n->written && !tensor_first && n->arg[0].kind == VAL_node;
        }
        return r;
    }
    if (op == 6 && PyUnicode_CheckExact(a) && !type_func(b, "%s", "__rmod__"))
        return percent(t, a, b);
    int base = op % 13;
    const char *nm = binop_names[base];
    if (op >= 13) {
        r = try_dunder(t, a, b, "__i%s__", nm);
        if (r != Py_NotImplemented)
            return r;
        Py_DECREF(r);
    }
    bool sub_first = Py_TYPE(a) != Py_TYPE(b) && PyType_IsSubtype(Py_TYPE(b), Py_TYPE(a)) &&
                     type_func(b, "__r%s__", nm);
    for (int k = 0; k < 2; k++) {
        bool right = (k == 0) == sub_first;
        r = right ? try_dunder(t, b, a, "__r%s__", nm) : try_dunder(t, a, b, "__%s__", nm);
        if (r != Py_NotImplemented)
            return r;
        Py_DECREF(r);
    }
    if (PyType_Check(a) && PyType_Check(b) && base == 7)
        return PyNumber_Or(a, b); /* int | str */
    if (native_value(a) && native_value(b) && (op < 13 || t_safe_type(Py_TYPE(a)) || t_base(Py_TYPE(a)))) {
        if (!t_deep(t, a) || !t_deep(t, b))
            return NULL;
        if (op == 6 && PyUnicode_Check(a) && !t_printable(b))
            return t_break(t, BRK_format, "%% formatting of a %s", Py_TYPE(b)->tp_name);
        r = native_binary(op, a, b);
        if (!r)
            t_fake_failed(t, "arithmetic with a tensor's value");
        return r;
    }
    return t_break(t, BRK_operator, "%s of %s and %s", nm, Py_TYPE(a)->tp_name, Py_TYPE(b)->tp_name);
}

PyObject *t_unary(trace *t, int op, PyObject *a)
{
    if (!(a = t_real(t, a)))
        return NULL;
    if (!t_safe_type(Py_TYPE(a))) {
        PyObject *fn = type_func(a, "__%s__", op == '-' ? "neg" : op == '+' ? "pos" : "invert");
        if (fn || !native_value(a))
            return fn ? t_call(t, fn, &a, 1, NULL)
                      : t_break(t, BRK_operator, "unary %c of %s", op, Py_TYPE(a)->tp_name);
    }
    const ir_node *last = t->rec.g->last;
    PyObject *r = op == '-' ? PyNumber_Negative(a) : op == '+' ? PyNumber_Positive(a) : PyNumber_Invert(a);
    if (r && py_is_tensor(r))
        t_written(t, last, operator_named(op == '-' ? "neg" : op == '+' ? "pos" : "invert"));
    return r;
}

static bool identity_compared(PyObject *o)
{
    PyTypeObject *tp = Py_TYPE(o);
    if (type_is_python(tp)) { /* as long as nobody gives it a comparison */
        t_look_for(tp, "__eq__");
        t_look_for(tp, "__ne__");
    }
    return tp->tp_richcompare == PyBaseObject_Type.tp_richcompare || !tp->tp_richcompare || PyType_Check(o);
}

PyObject *t_compare(trace *t, PyObject *a, PyObject *b, int op)
{
    static const char *const names[] = { "__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__" };
    static const int swapped[] = { 4, 5, 2, 3, 0, 1 };
    if (!(a = t_real(t, a)) || !(b = t_real(t, b)))
        return NULL;
    bool sa = t_safe_type(Py_TYPE(a)), sb = t_safe_type(Py_TYPE(b));
    if (sa && sb) {
        if (!t_deep(t, a) || !t_deep(t, b))
            return NULL;
        PyObject *ab[2] = { a, b }, *own[T_SYMFLOATS] = { NULL };
        if (!numbers_beside(ab, own))
            return NULL;
        const ir_node *last = t->rec.g->last;
        bool tensor_first = py_is_tensor(ab[0]);
        PyObject *r = PyObject_RichCompare(ab[0], ab[1], op);
        Py_XDECREF(own[0]);
        if (!r)
            t_fake_failed(t, "comparison that needs a tensor's value");
        else if (py_is_tensor(r)) { /* a number on the left: as the tensor was asked */
            static const char *const bare[] = { "lt", "le", "eq", "ne", "gt", "ge" };
            t_written(t, last, operator_named(bare[tensor_first ? op : swapped[op]]));
        }
        return r;
    }
    if ((op == Py_EQ || op == Py_NE) && (sa || identity_compared(a) || is_enum(a)) &&
        (sb || identity_compared(b) || is_enum(b))) {
        int same = t_is(t, a, b);
        if (same < 0)
            return NULL;
        if (sa || sb)
            return PyObject_RichCompare(a, b, op);
        return PyBool_FromLong(op == Py_EQ ? same : !same);
    }
    PyObject *r = try_dunder(t, a, b, "%s", names[op]);
    if (r != Py_NotImplemented)
        return r;
    Py_DECREF(r);
    r = try_dunder(t, b, a, "%s", names[swapped[op]]);
    if (r != Py_NotImplemented)
        return r;
    Py_DECREF(r);
    if (op == Py_NE) {
        r = try_dunder(t, a, b, "%s", "__eq__");
        if (r && r != Py_NotImplemented) {
            int v = t_truth(t, r);
            Py_DECREF(r);
            return v < 0 ? NULL : PyBool_FromLong(!v);
        }
        Py_XDECREF(r);
        if (!r)
            return NULL;
    }
    bool key = Py_TYPE(a) == Py_TYPE(b) && !strcmp(Py_TYPE(a)->tp_name, "functools.KeyWrapper");
    if (key || (native_value(a) && native_value(b)) || ((op == Py_EQ || op == Py_NE) && native_value(a))) {
        if (!t_deep(t, a) || !t_deep(t, b))
            return NULL;
        if (!(r = PyObject_RichCompare(a, b, op)))
            t_fake_failed(t, "comparison that needs a tensor's value");
        return r;
    }
    return t_break(t, BRK_operator, "%s of %s and %s", names[op], Py_TYPE(a)->tp_name, Py_TYPE(b)->tp_name);
}

static bool plain_value(PyObject *o)
{
    PyTypeObject *p = Py_TYPE(o);
    return p == &PyLong_Type || p == &PyFloat_Type || p == &PyUnicode_Type || p == &PyBytes_Type ||
           p == &PyComplex_Type;
}
/* Values are guarded by what they are, not by which object holds them: whether two equal ones are one object is known of
 * small integers and what is empty only. */
static int same_value(trace *t, PyObject *a, PyObject *b)
{
    bool const_equal(PyObject * a, PyObject * b);
    if (!const_equal(a, b))
        return 0;
    if (PyLong_CheckExact(a)) {
        int over;
        long long v = PyLong_AsLongLongAndOverflow(a, &over);
        if (!over && v >= -5 && v <= 256)
            return 1;
    }
    if ((PyUnicode_CheckExact(a) && PyUnicode_GET_LENGTH(a) == 0) ||
        (PyBytes_CheckExact(a) && PyBytes_GET_SIZE(a) < 2))
        return 1;
    return t_break(t, BRK_operator, "the identity of two equal values of type %s", Py_TYPE(a)->tp_name) ? 0
                                                                                                        : -1;
}

int t_is(trace *t, PyObject *a, PyObject *b)
{
    if (!(a = t_real(t, a)) || !(b = t_real(t, b)))
        return -1;
    if (a == Py_None || b == Py_None || PyBool_Check(a) || PyBool_Check(b))
        return a == b;
    if ((py_is_symint(a) && (py_is_symint(b) || PyLong_Check(b))) || (py_is_symint(b) && PyLong_Check(a))) {
        PyObject *m = PyNumber_Index(a), *n = m ? PyNumber_Index(b) : NULL; /* numbers from here on */
        int same = n ? same_value(t, m, n) : -1;
        Py_XDECREF(m);
        Py_XDECREF(n);
        if (!n)
            t_fake_failed(t, "the identity of a number that is not known");
        return same;
    }
    if (Py_TYPE(a) == Py_TYPE(b) && plain_value(a))
        return same_value(t, a, b);
    if (a == b)
        return 1;
    tobj *x = t_obj(t, a), *y = t_obj(t, b);
    source *xs = !x ? NULL : x->outer ? x->outer : x->src, *ys = !y ? NULL : y->outer ? y->outer : y->src;
    if (xs && ys && xs->kind != SRC_const && ys->kind != SRC_const) {
        guard_pair(t, G_NOT_SAME, xs, ys);
    }
    return 0;
}

/* Is v among what it yields? Takes it. */
static int find_in(trace *t, PyObject *it, PyObject *v)
{
    int found = 0;
    while (!found) {
        bool done;
        PyObject *e = t_next(t, it, &done), *r = e ? t_real(t, e) : NULL;
        if (!r) {
            found = e || !done ? -1 : 0;
            Py_XDECREF(e);
            break;
        }
        if (r == v)
            found = 1;
        else {
            PyObject *c = t_compare(t, r, v, Py_EQ);
            found = c ? t_truth(t, c) : -1;
            Py_XDECREF(c);
        }
        Py_DECREF(e);
    }
    Py_DECREF(it);
    return found;
}

/* Has the object, or one inside the sequence, a comparison written in Python? */
static bool compared_by_code(PyObject *o)
{
    if (PyList_Check(o) || PyTuple_Check(o)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++) {
            PyObject *e = PySequence_Fast_GET_ITEM(o, i);
            if (IS_LAZY(e) ? compared_by_code(((PyLazy *)e)->real) : type_func(e, "%s", "__eq__") != NULL)
                return true;
        }
        return false;
    }
    return type_func(o, "%s", "__eq__") != NULL;
}

int t_contains(trace *t, PyObject *c, PyObject *v)
{
    if (!(c = t_real(t, c)) || !(v = t_real(t, v)))
        return -1;
    c = t_unproxied(c);
    if (!t_safe_type(Py_TYPE(c))) {
        PyObject *fn = type_func(c, "%s", "__contains__");
        if (fn) {
            PyObject *args[2] = { c, v }, *r = t_call(t, fn, args, 2, NULL);
            int b = r ? t_truth(t, r) : -1;
            Py_XDECREF(r);
            return b;
        }
        PyObject *it = t_base(Py_TYPE(c)) && !type_func(c, "%s", "__iter__") ? NULL : t_iter(t, c);
        if (it || t->broke || PyErr_Occurred())
            return it ? find_in(t, it, v) : -1;
    }
    if (PyList_Check(c) || PyTuple_Check(c)) {
        PyObject *it = compared_by_code(c) || compared_by_code(v) ? PyObject_GetIter(c) : NULL;
        if (it)
            return find_in(t, it, v);
    }
    if (py_is_tensor(c))
        return t_break(t, BRK_data_jump, "'in' on a tensor"), -1;
    bool keyed = PyDict_Check(c) || PyAnySet_Check(c);
    if (!(keyed ? t_key(t, v) : t_deep(t, v)) || (!keyed && !t_deep(t, c)))
        return -1;
    int r = PySequence_Contains(c, v);
    if (r < 0)
        t_fake_failed(t, "'in' that compares tensors");
    return r;
}

int t_truth(trace *t, PyObject *o)
{
    if (!(o = t_real(t, o)))
        return -1;
    if (o == Py_True || o == Py_False || o == Py_None)
        return o == Py_True;
    o = t_unproxied(o);
    if (py_is_tensor(o))
        return t_break(t, BRK_data_jump, "Data-dependent jump"), -1;
    if (t_safe_type(Py_TYPE(o))) {
        int yes = PyObject_IsTrue(o);
        if (yes < 0)
            t_fake_failed(t, "the truth of a value that is not known");
        return yes;
    }
    PyObject *fn = type_func(o, "%s", "__bool__"), *r;
    const char *by = fn ? "__bool__" : "__len__";
    if (fn || (fn = type_func(o, "%s", "__len__"))) {
        if (!(r = t_result(t, t_call(t, fn, &o, 1, NULL), by)))
            return -1;
        int b = PyObject_IsTrue(r);
        Py_DECREF(r);
        if (b < 0)
            t_fake_failed(t, "the truth of a value that is not known");
        return b;
    }
    if (native_value(o))
        return PyObject_IsTrue(o);
    PyNumberMethods *n = Py_TYPE(o)->tp_as_number;
    if ((n && n->nb_bool) || (Py_TYPE(o)->tp_as_mapping && Py_TYPE(o)->tp_as_mapping->mp_length) ||
        (Py_TYPE(o)->tp_as_sequence && Py_TYPE(o)->tp_as_sequence->sq_length))
        return t_break(t, BRK_operator, "truth of a %s", Py_TYPE(o)->tp_name), -1;
    return 1;
}

/* ---- items ---- */
static bool has_tensor(PyObject *k)
{
    if (py_is_tensor(k))
        return true;
    if (PySlice_Check(k))
        return has_tensor(((PySliceObject *)k)->start) || has_tensor(((PySliceObject *)k)->stop);
    return false;
}

/* Is there a 0-dim tensor in an index, a number that only the run knows? Eager code has a view then. */
static bool picks_one(PyObject *k)
{
    if (PyTuple_Check(k)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(k); i++)
            if (picks_one(PyTuple_GET_ITEM(k, i)))
                return true;
        return false;
    }
    const tp_tensor *i = py_is_tensor(k) ? py_tensor(k) : NULL;
    return i && i->ndim == 0 && i->dt != DT_bool && i->dt != DT_u8 && dtype_is_exact((dtype)i->dt);
}

static bool is_written(trace *t, PyObject *o)
{
    uint64_t at = py_is_tensor(o) ? (uint64_t)(uintptr_t)py_tensor(o)->storage : 0;
    return at && (map_geti(&t->counted, at) || map_geti(&t->by_data, at));
}
/* Are two indices the same objects, and none a tensor that was written? */
static bool same_key(trace *t, PyObject *a, PyObject *b)
{
    if (!a || !PyTuple_Check(a))
        return a == b && a && !is_written(t, a);
    if (!PyTuple_Check(b) || PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b))
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); i++)
        if (PyTuple_GET_ITEM(a, i) != PyTuple_GET_ITEM(b, i) || is_written(t, PyTuple_GET_ITEM(a, i)))
            return false;
    return true;
}

void t_pick_seen(trace *t)
{
    t->e->r->no_picks = t->again = true;
    t_break(t, BRK_item, "a write beside x[i] of a tensor i: tracing again");
}

void t_pick_written(trace *t, const tp_storage *s)
{
    const tp_storage *of = s;
    for (size_t i = 0; i < t->picks.n; i++)
        if (t->picks.at[i].to == s) { /* x itself lags behind, and what else was taken of it */
            of = t->picks.at[i].of;
            t->picks.at[i].of_stale = true;
        }
    for (size_t i = 0; i < t->picks.n; i++)
        if (t->picks.at[i].of == of && t->picks.at[i].to != s)
            t->picks.at[i].to_stale = true;
}

/* x[i] = v with a tensor i. The end of x[i] += 1: x no longer lags behind, nor does v. */
static int store_at(trace *t, PyObject *x, PyObject *k, PyObject *v)
{
    const tp_storage *of = py_tensor(x)->storage, *to = py_is_tensor(v) ? py_tensor(v)->storage : NULL;
    picked *back = NULL;
    for (size_t i = 0; i < t->picks.n; i++)
        if (t->picks.at[i].of == of && t->picks.at[i].to == to && same_key(t, t->picks.at[i].key, k))
            back = &t->picks.at[i];
    if (back)
        back->of_stale = false;
    PyObject *own = to == of ? PyObject_CallMethod(v, "clone", NULL)
                             : Py_NewRef(v); /* a copy within x, in eager code */
    int rc = own ? PyObject_SetItem(x, k, own) : -1;
    Py_XDECREF(own);
    if (back)
        back->to_stale = false;
    return rc;
}

bool t_pick_is_stale(const trace *t, const tp_storage *s)
{
    for (size_t i = 0; i < t->picks.n; i++)
        if ((t->picks.at[i].to_stale && t->picks.at[i].to == s) ||
            (t->picks.at[i].of_stale && t->picks.at[i].of == s))
            return true;
    return false;
}

/* x[k] of a tensor x, in the graph. */
static PyObject *pick(trace *t, PyObject *x, PyObject *k)
{
    bool one = py_is_tensor(x) && picks_one(k);
    if (one && t->e->r->no_picks)
        return t_break(t, BRK_item,
                       "x[i] of a tensor i, which is a view of x where it is written or kept beside x");
    PyObject *r = PyObject_GetItem(x, k);
    if (one && r && py_is_tensor(r) && py_tensor(r)->storage != py_tensor(x)->storage) {
        vec_push(&t->picks,
                 ((picked){ .key = Py_NewRef(k), .of = py_tensor(x)->storage, .to = py_tensor(r)->storage }));
    }
    return r;
}

PyObject *t_subscr(trace *t, PyObject *o, PyObject *k)
{
    if (!(o = t_real(t, o)) || !(k = t_real(t, k)))
        return NULL;
    if (py_is_tensor(o) && (t_is_array(k) || t_holds_arrays(k))) {
        PyObject *i = t_array_index(k), *r = i ? t_subscr(t, o, i) : NULL;
        Py_XDECREF(i);
        return r;
    }
    o = t_unproxied(o);
    if (!t_safe_type(Py_TYPE(o)) && !PyTuple_Check(o)) {
        PyObject *fn = type_func(o, "%s", "__getitem__"), *args[2] = { o, k };
        if (fn)
            return t_call(t, fn, args, 2, NULL);
        if (PyType_Check(o)) /* list[int] and the like */
            return PyObject_GetItem(o, k);
        if (!native_value(o) && strcmp(Py_TYPE(o)->tp_name, "re.Match"))
            return t_break(t, BRK_operator, "indexing of a %s", Py_TYPE(o)->tp_name);
    }
    PyObject *ix = type_func(k, "%s", "__index__");
    if (ix && !PyDict_Check(o)) {
        PyObject *n = t_result(t, t_call(t, ix, &k, 1, NULL), "__index__"), *r = n ? t_subscr(t, o, n) : NULL;
        Py_XDECREF(n);
        return r;
    }
    if (!(PyDict_Check(o) ? t_key(t, k) : t_deep(t, k)))
        return NULL;
    if (!py_is_tensor(o) && !PyDict_Check(o) && has_tensor(k))
        return t_break(t, BRK_tensor_list_index, "__getitem__ with non-constant tensor");
    if (PyDict_Check(o) && !PyDict_CheckExact(o) && (ix = type_func(o, "%s", "__missing__"))) {
        int has = PyDict_Contains(o, k);
        PyObject *args[2] = { o, k };
        if (has <= 0)
            return has < 0 ? NULL : t_call(t, ix, args, 2, NULL);
    } else if (PyType_IsSubtype(Py_TYPE(o), default_dict) && !PyDict_Contains(o, k)) {
        PyObject *fac = PyObject_GetAttrString(o, "default_factory");
        PyObject *v = fac && fac != Py_None ? t_call(t, fac, NULL, 0, NULL) : NULL;
        bool none = fac == Py_None;
        Py_XDECREF(fac);
        if (none) {
            PyErr_SetObject(PyExc_KeyError, k);
            return NULL;
        }
        if (v && t_setitem(t, o, k, v) < 0)
            Py_CLEAR(v);
        return v;
    }
    if (PyDict_Check(o) && !t_safe_type(Py_TYPE(o))) {
        PyObject *v = PyDict_GetItemWithError(o, k);
        if (!v && !PyErr_Occurred())
            PyErr_SetObject(PyExc_KeyError, k);
        return Py_XNewRef(v);
    }
    PyObject *r = pick(t, o, k);
    if (!r)
        t_fake_failed(t, "indexing that needs a tensor's value");
    return sized(t, r);
}

int t_setitem(trace *t, PyObject *o, PyObject *k, PyObject *v)
{
    if (!(o = t_real(t, o)) || !(k = t_real(t, k)))
        return -1;
    if (!t_safe_type(Py_TYPE(o))) {
        PyObject *fn = type_func(o, "%s", v ? "__setitem__" : "__delitem__"), *args[3] = { o, k, v };
        if (!fn && !native_value(o))
            return t_break(t, BRK_operator, "item assignment of a %s", Py_TYPE(o)->tp_name), -1;
        if (fn) {
            PyObject *r = t_call(t, fn, args, v ? 3 : 2, NULL);
            Py_XDECREF(r);
            return r ? 0 : -1;
        }
    }
    return t_setitem_base(t, o, k, v);
}

/* The same by the builtin class's own rules, whatever a user's class made of them. */
int t_setitem_base(trace *t, PyObject *o, PyObject *k, PyObject *v)
{
    if (!(o = t_real(t, o)) || !(k = t_real(t, k)))
        return -1;
    if (py_is_tensor(o) && (t_is_array(k) || t_holds_arrays(k))) {
        PyObject *i = t_array_index(k);
        int r = i ? t_setitem_base(t, o, i, v) : -1;
        Py_XDECREF(i);
        return r;
    }
    if (!(PyDict_Check(o) ? t_key(t, k) : t_deep(t, k)))
        return -1;
    if (PyDict_Check(o)) {
        if (!v && PyDict_Contains(o, k) == 0)
            return PyErr_SetObject(PyExc_KeyError, k), -1;
        return dict_set(o, k, v);
    }
    if (!py_is_tensor(o) && !PyDict_Check(o) && has_tensor(k))
        return t_break(t, BRK_tensor_list_index, "__setitem__ with non-constant tensor"), -1;
    PyObject *items = NULL;
    if (v && (py_is_tensor(o) || (PyList_Check(o) && PySlice_Check(k)))) {
        if (!(v = t_real(t, v)))
            return -1;
        if (PyList_Check(o) && !PyList_CheckExact(v) && !PyTuple_CheckExact(v) &&
            !(v = items = t_list_of(t, v)))
            return -1;
        if (!t_deep(t, v)) {
            Py_XDECREF(items);
            return -1;
        }
    }
    int rc = v && py_is_tensor(o) && picks_one(k) ? store_at(t, o, k, v)
             : v                                  ? PyObject_SetItem(o, k, v)
                                                  : PyObject_DelItem(o, k);
    Py_XDECREF(items);
    if (rc < 0)
        t_fake_failed(t, "item assignment that needs a tensor's value");
    return rc;
}

/* ---- iteration ---- */
PyObject *t_iter(trace *t, PyObject *o)
{
    if (!(o = t_real(t, o)))
        return NULL;
    o = t_unproxied(o);
    if (Py_TYPE(o) == &PyTraceGen_Type)
        return Py_NewRef(o);
    if (py_is_tensor(o)) {
        tp_tensor *x = py_tensor(o);
        if (x->ndim == 0) {
            PyErr_SetString(PyExc_TypeError, "iteration over a 0-d tensor");
            return NULL;
        }
        PyObject *u = PyObject_CallMethod(o, "unbind", "i", 0), *it = u ? PyObject_GetIter(u) : NULL;
        Py_XDECREF(u);
        return it;
    }
    if (t_safe_type(Py_TYPE(o)) || PyTuple_Check(o))
        return PyObject_GetIter(o);
    PyObject *fn = type_func(o, "%s", "__iter__");
    if (fn)
        return t_result(t, t_call(t, fn, &o, 1, NULL), "__iter__");
    if (t_base(Py_TYPE(o)))
        return t_base(Py_TYPE(o))->tp_iter(o);
    if (!t_obj(t, o) && Py_TYPE(o)->tp_iter == PyObject_SelfIter && !type_is_python(Py_TYPE(o)))
        return Py_NewRef(o); /* a builtin iterator made here */
    if (is_enum(o) || PyType_Check(o))
        return PyObject_GetIter(o);
    if (!t_obj(t, o) && Py_TYPE(o)->tp_iter && !type_is_python(Py_TYPE(o)))
        return PyObject_GetIter(o);
    if (type_func(o, "%s", "__getitem__") && !Py_TYPE(o)->tp_iter)
        return (fn = polyfill("sequence_iter")) ? t_call(t, fn, &o, 1, NULL) : NULL;
    if (!Py_TYPE(o)->tp_iter) {
        PyErr_Format(PyExc_TypeError, "'%.200s' object is not iterable", Py_TYPE(o)->tp_name);
        return NULL;
    }
    return t_break(t, BRK_iterate, "iteration of a %s", Py_TYPE(o)->tp_name);
}

PyObject *t_next(trace *t, PyObject *it, bool *done)
{
    *done = false;
    if (IS_LAZY(it)) {
        t_break(t, BRK_iterate, "an iterator made before the graph began");
        t->quiet = t->top == t->outer;
        return NULL;
    }
    if (Py_TYPE(it) == &PyTraceGen_Type)
        return t_gen_next(t, it, Py_None, done);
    tobj *k = t_obj(t, it);
    if (k && k->src) {
        PyObject *fn = type_func(it, "%s", "__next__");
        if (!fn)
            return t_break(t, BRK_iterate, "an iterator made before the graph began");
    }
    PyObject *fn = type_func(it, "%s", "__next__"), *r;
    if (fn) {
        r = t_call(t, fn, &it, 1, NULL);
        if (!r && !t->broke && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration)) {
            py_forget();
            *done = true;
        }
        return r;
    }
    if (!Py_TYPE(it)->tp_iternext || type_is_python(Py_TYPE(it)))
        return t_break(t, BRK_iterate, "iteration of a %s", Py_TYPE(it)->tp_name);
    r = Py_TYPE(it)->tp_iternext(it);
    if (!r) {
        if (PyErr_Occurred()) {
            if (t_fake_failed(t, "iteration that needs a tensor's value"))
                return NULL;
            if (!PyErr_ExceptionMatches(PyExc_StopIteration))
                return NULL;
            py_forget();
        }
        *done = true;
    }
    return r;
}

PyObject *t_list_of(trace *t, PyObject *o)
{
    if (!(o = t_real(t, o)))
        return NULL;
    PyObject *it = t_iter(t, o), *l;
    if (!it)
        return NULL;
    l = PyList_New(0);
    while (l) {
        bool done;
        PyObject *v = t_next(t, it, &done);
        if (!v) {
            if (!done)
                Py_CLEAR(l);
            break;
        }
        if (PyList_Append(l, v) < 0)
            Py_CLEAR(l);
        Py_DECREF(v);
        if (l && PyList_GET_SIZE(l) > 100000) {
            Py_CLEAR(l);
            t_break(t, BRK_iterate, "an iterator that yields more than 100000 items");
        }
    }
    Py_DECREF(it);
    return l;
}

/* ---- globals and cells ---- */
static tobj *record(trace *t, PyObject *o, source *s)
{
    tobj *k = t_obj(t, o);
    return k ? k : t_obj_add(t, o, o, s);
}

PyObject *t_global(trace *t, frame *f, PyObject *name)
{
    tobj *k = t_obj(t, f->globals);
    PyObject *v = k && k->over ? PyDict_GetItemWithError(k->over, name) : NULL;
    if (v && v != deleted)
        return Py_NewRef(v);
    v = v ? NULL : PyDict_GetItemWithError(f->globals, name);
    if (v) {
        bool code = PyFunction_Check(v) || PyType_Check(v) || PyModule_Check(v) || PyCFunction_Check(v);
        if (code && f->cc->library) {
            t_found(t, f->globals, name, v);
            return Py_NewRef(v);
        }
        return t_lazy(t, v, src_get(t->e, SRC_global, NULL, f->globals, name, 0));
    }
    if (PyErr_Occurred())
        return NULL;
    v = PyDict_Check(f->builtins) ? PyDict_GetItemWithError(f->builtins, name) : NULL;
    if (!(k && k->over && PyDict_GetItemWithError(k->over, name)))
        t_found(t, f->globals, name, NULL);
    if (PyDict_Check(f->builtins))
        t_found(t, f->builtins, name, v);
    if (!v && !PyErr_Occurred())
        PyErr_Format(PyExc_NameError, "name '%U' is not defined", name);
    return Py_XNewRef(v);
}

int t_setglobal(trace *t, frame *f, PyObject *name, PyObject *v)
{
    tobj *k = record(t, f->globals, src_get(t->e, SRC_const, NULL, f->globals, NULL, 0));
    if (!k->over && !(k->over = PyDict_New()))
        return -1;
    if (!v) {
        PyObject *now = t_global(t, f, name);
        if (!now)
            return -1;
        Py_DECREF(now);
        if (!PyDict_GetItemWithError(f->globals, name)) /* made while tracing, or a builtin */
            return PyDict_DelItem(k->over, name);
    }
    return PyDict_SetItem(k->over, name, v ? v : deleted);
}

PyObject *t_cell_get(trace *t, PyObject *cell)
{
    tobj *k = t_obj(t, cell);
    if (!k || !k->src)
        return Py_XNewRef(PyCell_GET(cell));
    if (k->over) {
        PyObject *v = PyDict_GetItemString(k->over, "");
        return v && v != deleted ? Py_NewRef(v) : NULL;
    }
    PyObject *v = PyCell_GET(cell);
    return v ? t_lazy(t, v, src_get(t->e, SRC_cell, k->src, NULL, NULL, 0)) : NULL;
}

int t_cell_set(trace *t, PyObject *cell, PyObject *v)
{
    tobj *k = t_obj(t, cell);
    if (!k || !k->src)
        return PyCell_Set(cell, v);
    if (!k->over && !(k->over = PyDict_New()))
        return -1;
    return PyDict_SetItemString(k->over, "", v ? v : deleted);
}

PyObject *t_import(trace *t, frame *f, PyObject *name, PyObject *from, PyObject *level)
{
    PyObject *mods = PyImport_GetModuleDict();
    long lv = PyLong_AsLong(level);
    const char *text = PyUnicode_AsUTF8(name);
    bool own = text && (!strncmp(text, "taper.", 6) ||
                        (!strncmp(text, "torch.", 6) && !strcmp(cap_brand(), "torch")));
    if (lv == 0 && !own &&
        !PyDict_GetItemWithError(mods, name)) /* of the library: loading it shows nowhere */
        return t_break(t, BRK_import, "import of %s", PyUnicode_AsUTF8(name));
    PyObject *m = PyImport_ImportModuleLevelObject(name, f->globals, NULL, from, (int)lv);
    return m;
}

/* ---- attributes ---- */
bool t_trusted_module(PyObject *n)
{
    static const char *const names[] = { "math",   "operator",    "functools", "itertools",  "collections",
                                         "typing", "builtins",    "copy",      "contextlib", "abc",
                                         "enum",   "dataclasses", "types",     "random",     "time",
                                         "os",     "sys",         "_operator" };
    const char *s = n && PyUnicode_Check(n) ? PyUnicode_AsUTF8(n) : NULL;
    if (!s)
        return false;
    if (!strncmp(s, "taper", 5) && (s[5] == 0 || s[5] == '.'))
        return true;
    if (!strncmp(s, "torch", 5) && (s[5] == 0 || s[5] == '.') && !strcmp(cap_brand(), "torch"))
        return true;
    for (size_t i = 0; i < COUNT(names); i++)
        if (!strcmp(s, names[i]))
            return true;
    return false;
}

static bool trusted_class(PyTypeObject *tp)
{
    static PyObject *key;
    if (!key)
        key = PyUnicode_InternFromString("__module__");
    if (!type_is_python(tp))
        return true;
    return t_trusted_module(PyDict_GetItemWithError(type_dict(tp), key));
}

static PyTypeObject *defining(PyTypeObject *tp, PyObject *name)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tp->tp_mro); i++) {
        PyTypeObject *b = (PyTypeObject *)PyTuple_GET_ITEM(tp->tp_mro, i);
        if (PyDict_GetItemWithError(type_dict(b), name))
            return b;
    }
    return tp;
}

/* As _PyType_Lookup, with what was written to classes while tracing. Borrowed. */
PyObject *t_lookup(trace *t, PyTypeObject *tp, PyObject *name)
{
    PyObject *d = _PyType_Lookup(tp, name);
    /* values are guarded where they are used; what has code or is not there, here */
    if (type_is_python(tp) && (!d || Py_TYPE(d)->tp_descr_get || trusted_class(defining(tp, name))))
        t_found(t, (PyObject *)tp, name, d);
    if (TP_LIKELY(!t->class_written))
        return d;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tp->tp_mro); i++) {
        PyObject *b = PyTuple_GET_ITEM(tp->tp_mro, i);
        tobj *k = t_obj(t, b);
        PyObject *v = k && k->over ? PyDict_GetItemWithError(k->over, name) : NULL;
        if (v || (v = PyDict_GetItemWithError(type_dict((PyTypeObject *)b), name)))
            return v;
    }
    return NULL;
}

/* An object found on a class, guarded when the class is the user's. New reference. */
static PyObject *class_value(trace *t, PyObject *o, PyTypeObject *tp, PyObject *name, PyObject *v)
{
    if (t->class_written && v != _PyType_Lookup(tp, name))
        return Py_NewRef(v); /* written while tracing */
    if (trusted_class(defining(tp, name)))
        return plain_const(v) || !t_source_of(t, o)
                   ? Py_NewRef(v)
                   : t_wrap(t, v, src_get(t->e, SRC_typeattr, t_source_of(t, o), NULL, name, 0));
    source *s = t_source_of(t, o);
    tobj *k = t_obj(t, o);
    if (!s)
        s = src_get(t->e, SRC_const, NULL, (PyObject *)tp, NULL, 0);
    else if (k && k->over &&
             PyDict_GetItemWithError(k->over, name)) /* the instance hides it when guards run */
        s = src_get(t->e, SRC_type, s, NULL, NULL, 0);
    return t_wrap(t, v, src_get(t->e, SRC_typeattr, s, NULL, name, 0));
}

PyObject *t_bind_class_attr(trace *t, PyObject *o, PyTypeObject *tp, PyObject *name, PyObject *d)
{
    if (PyFunction_Check(d)) {
        PyObject *fn = class_value(t, o ? o : (PyObject *)tp, tp, name, d),
                 *r = fn ? (o ? PyMethod_New(fn, o) : Py_NewRef(fn)) : NULL;
        Py_XDECREF(fn);
        return r;
    }
    if (Py_TYPE(d) == &PyStaticMethod_Type || Py_TYPE(d) == &PyClassMethod_Type) {
        PyObject *fn = PyObject_GetAttrString(d, "__func__"), *r;
        if (!fn)
            return NULL;
        r = Py_TYPE(d) == &PyStaticMethod_Type ? Py_NewRef(fn) : PyMethod_New(fn, (PyObject *)tp);
        Py_DECREF(fn);
        return r;
    }
    if (Py_TYPE(d) == &PyProperty_Type) {
        if (!o)
            return Py_NewRef(d);
        PyObject *get = PyObject_GetAttrString(d, "fget"), *r = NULL;
        if (get && get != Py_None)
            r = t_call(t, get, &o, 1, NULL);
        else if (get)
            PyErr_Format(PyExc_AttributeError, "property %R of %R object has no getter", name, tp);
        Py_XDECREF(get);
        return r;
    }
    if (Py_TYPE(d) == &PyOpMethod_Type || Py_TYPE(d) == &PyMethodDescr_Type ||
        Py_TYPE(d) == &PyWrapperDescr_Type || Py_TYPE(d) == &PyClassMethodDescr_Type) {
        descrgetfunc g = Py_TYPE(d)->tp_descr_get;
        return g ? g(d, o, (PyObject *)tp) : Py_NewRef(d);
    }
    if (!strcmp(Py_TYPE(d)->tp_name, "functools._lru_cache_wrapper"))
        return o ? PyMethod_New(d, o) : Py_NewRef(d);
    PyObject *get = type_func(d, "%s", "__get__");
    if (get && o && !strcmp(Py_TYPE(d)->tp_name, "cached_property")) { /* computed, then an attribute */
        PyObject *fn = PyObject_GetAttrString(d, "func"), *v = fn ? t_call(t, fn, &o, 1, NULL) : NULL;
        if (v && IS_LAZY(v) && t_real(t, v))
            Py_SETREF(v, Py_NewRef(t_real(t, v)));
        if (v && t_generic_setattr(t, o, name, v) < 0)
            Py_CLEAR(v);
        Py_XDECREF(fn);
        return v;
    }
    if (get) {
        PyObject *args[3] = { d, o ? o : Py_None, (PyObject *)tp };
        if (t_source_of(t, d) == NULL)
            t_obj_add(t, d, d, src_get(t->e, SRC_const, NULL, d, NULL, 0));
        return t_call(t, get, args, 3, NULL);
    }
    if (Py_TYPE(d)->tp_descr_get && !PyType_Check(d) && !PyCFunction_Check(d))
        return t_break(t, BRK_attribute, "%s.%s (a %s)", tp->tp_name, PyUnicode_AsUTF8(name),
                       Py_TYPE(d)->tp_name);
    return class_value(t, o ? o : (PyObject *)tp, tp, name, d);
}

static bool is(PyObject *name, const char *s) { return PyUnicode_CompareWithASCIIString(name, s) == 0; }

static PyObject *tensor_getattr(trace *t, PyObject *o, PyObject *name)
{
    tobj *k = t_obj(t, o);
    PyObject *v = k && k->over ? PyDict_GetItemWithError(k->over, name) : NULL;
    if (v && v != deleted)
        return Py_NewRef(v);
    if (k && k->real && (is(name, "grad") || is(name, "_grad"))) {
        if (!(v = PyObject_GetAttr(k->real, name)))
            return NULL;
        PyObject *r = t_lazy(t, v, src_get(t->e, SRC_attr, k->src, NULL, name, 0));
        Py_DECREF(v);
        return r;
    }
    if (is(name, "is_leaf") && (!k || !k->src || !grad_requires_grad(py_tensor(o))))
        return PyBool_FromLong(grad_is_leaf(py_tensor(o)));
    if (is(name, "data") && !t->e->r->no_data) { /* it shares memory, and nothing is on the tape */
        v = PyObject_CallMethod(o, "detach", NULL);
        bool seen = grad_requires_grad(py_tensor(o)); /* do others see whether writes to it count? */
        for (size_t i = 0; i < t->objs.n && !seen; i++)
            seen = t->objs.at[i].node && py_is_tensor(t->objs.at[i].abs) &&
                   py_tensor(t->objs.at[i].abs)->storage == py_tensor(o)->storage;
        if (v && py_is_tensor(v) && seen) {
            py_tensor(v)->spare |= AGF_data;
            if (py_tensor(v)->node && py_tensor(v)->rec == &t->rec)
                ((ir_node *)py_tensor(v)->node)->silent = true;
        }
        return v;
    }
    if (is(name, "_version") && t_on_input_memory(t, py_tensor(o))) /* no guard knows it */
        return t_break(t, BRK_attribute, "Tensor._version of an input");
    if (!grad_requires_grad(py_tensor(o)) &&
        (is(name, "grad_fn") || is(name, "is_leaf"))) /* which is guarded */
        return Py_NewRef(is(name, "is_leaf") ? Py_True : Py_None);
    if (is(name, "data") || is(name, "__dict__") || is(name, "grad_fn") || is(name, "__array_interface__") ||
        is(name, "is_leaf") || is(name, "_base") ||
        (k && k->src && grad_requires_grad(py_tensor(o)) &&
         (is(name, "output_nr") || is(name, "retains_grad"))))
        return t_break(t, BRK_attribute, "Tensor.%s", PyUnicode_AsUTF8(name));
    if (k && k->real && !_PyType_Lookup(Py_TYPE(o), name)) { /* an attribute the user put on the tensor */
        PyObject *d = inst_dict(k->real);
        if (d && (v = PyDict_GetItemWithError(d, name)))
            return t_lazy(t, v, src_get(t->e, SRC_instattr, k->src, NULL, name, 0));
        t_want(t, G_NO_HASATTR, k->src, name);
    }
    PyObject *d = t_look(Py_TYPE(o), name);
    if (d && PyFunction_Check(d)) /* a method of a Python subclass or one that the package adds */
        return PyMethod_New(d, o);
    if (d && Py_TYPE(d) == &PyProperty_Type)
        return t_bind_class_attr(t, o, Py_TYPE(o), name, d);
    v = PyObject_GetAttr(o, name);
    if (!v) {
        char what[128];
        snprintf(what, sizeof what, "Tensor.%s", PyUnicode_AsUTF8(name));
        t_fake_failed(t, what);
    }
    return v;
}

static PyObject *module_getattr(trace *t, PyObject *m, PyObject *name)
{
    PyObject *d = PyModule_GetDict(m), *v;
    tobj *k = t_obj(t, d);
    v = k && k->over ? PyDict_GetItemWithError(k->over, name) : NULL;
    if (v && v != deleted)
        return Py_NewRef(v);
    v = v ? NULL : PyDict_GetItemWithError(d, name);
    PyObject *mn = PyDict_GetItemString(d, "__name__");
    if (!v) {
        if (is(name, "__dict__"))
            return t_break(t, BRK_attribute, "the namespace of module %s", mn ? PyUnicode_AsUTF8(mn) : "?");
        v = PyObject_GetAttr(m, name); /* module __getattr__ or an error */
        if (!v)
            return NULL;
        PyObject *r = plain_const(v) && t_trusted_module(mn) ? Py_NewRef(v) : NULL;
        Py_DECREF(v);
        return r ? r
                 : t_break(t, BRK_attribute, "%s.%s through __getattr__", mn ? PyUnicode_AsUTF8(mn) : "?",
                           PyUnicode_AsUTF8(name));
    }
    bool code = PyFunction_Check(v) || PyType_Check(v) || PyModule_Check(v) || PyCFunction_Check(v) ||
                Py_TYPE(v) == &PyOpFunc_Type || Py_TYPE(v) == &PyDtype_Type;
    if (code && t_trusted_module(mn)) {
        t_found(t, d, name, v);
        return Py_NewRef(v);
    }
    return t_lazy(t, v, src_get(t->e, SRC_instattr, source_or_const(t, m), NULL, name, 0));
}

static PyObject *class_getattr(trace *t, PyObject *cls, PyObject *name)
{
    PyTypeObject *tp = (PyTypeObject *)cls;
    if (is(name, "__name__") || is(name, "__qualname__") || is(name, "__module__") || is(name, "__mro__") ||
        is(name, "__bases__") || is(name, "__doc__") || is(name, "__base__"))
        return PyObject_GetAttr(cls, name);
    if (is(name, "__class__"))
        return Py_NewRef((PyObject *)Py_TYPE(cls));
    tobj *k = t_obj(t, cls);
    PyObject *v = k && k->over ? PyDict_GetItemWithError(k->over, name) : NULL;
    if (v && v != deleted)
        return Py_NewRef(v);
    PyObject *meta = Py_TYPE(cls) == &PyType_Type ? NULL : t_look(Py_TYPE(cls), name);
    PyObject *d = t_lookup(t, tp, name);
    if (meta && (!d || Py_TYPE(meta)->tp_descr_set)) {
        if (PyFunction_Check(meta))
            return PyMethod_New(meta, cls);
        if (Py_TYPE(meta) == &PyProperty_Type)
            return t_bind_class_attr(t, cls, Py_TYPE(cls), name, meta);
        d = NULL;
    }
    if (!d) {
        v = PyObject_GetAttr(cls, name);
        if (v && !plain_const(v)) {
            Py_DECREF(v);
            return t_break(t, BRK_attribute, "%s.%s", tp->tp_name, PyUnicode_AsUTF8(name));
        }
        return v;
    }
    if (is(name, "__dict__"))
        return t_break(t, BRK_attribute, "%s.__dict__", tp->tp_name);
    if (is_enum(d) || Py_TYPE(d) == &PyMemberDescr_Type || Py_TYPE(d) == &PyGetSetDescr_Type)
        return PyObject_GetAttr(cls, name);
    if (Py_TYPE(cls) != &PyType_Type &&
        (!strcmp(Py_TYPE(cls)->tp_name, "EnumType") || !strcmp(Py_TYPE(cls)->tp_name, "EnumMeta")))
        return PyObject_GetAttr(cls, name);
    return t_bind_class_attr(t, NULL, tp, name, d);
}

/* Shadow of an object's __dict__, from then on the place of its attributes. New reference. */
PyObject *t_instdict(trace *t, PyObject *o)
{
    tobj *k = t_obj(t, o);
    if (!k || !k->src) {
        PyObject *d = inst_dict(o);
        return d ? Py_NewRef(d) : PyObject_GetAttrString(o, "__dict__");
    }
    if (k->dict)
        return Py_NewRef(k->dict);
    PyObject *d = inst_dict(k->real ? k->real : o);
    if (!d)
        return t_break(t, BRK_attribute, "__dict__ of a %s", Py_TYPE(o)->tp_name);
    size_t at = (size_t)(k - t->objs.at);
    PyObject *sh = t_wrap(t, d, src_get(t->e, SRC_dict, k->src, NULL, NULL, 0));
    k = &t->objs.at[at];
    if (!sh)
        return NULL;
    if (k->over) {
        PyObject *key, *v;
        Py_ssize_t p = 0;
        while (PyDict_Next(k->over, &p, &key, &v))
            if (v == deleted ? PyDict_DelItem(sh, key) < 0 : PyDict_SetItem(sh, key, v) < 0)
                py_forget();
        Py_CLEAR(k->over);
    }
    k->dict = Py_NewRef(sh);
    return sh;
}

static PyObject *missing(PyObject *o, PyObject *name)
{
    PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute '%U'", Py_TYPE(o)->tp_name, name);
    return NULL;
}

static bool may_hide(PyTypeObject *tp) /* have its instances attributes of their own? */
{
    return tp->tp_dictoffset || (tp->tp_flags & Py_TPFLAGS_MANAGED_DICT);
}

/* object.__getattribute__ on an instance. */
PyObject *t_generic_getattr(trace *t, PyObject *o, PyObject *name)
{
    PyTypeObject *tp = Py_TYPE(o);
    tobj *k = t_obj(t, o);
    source *s = k ? k->src : NULL;
    if (is(name, "__class__"))
        return Py_NewRef((PyObject *)tp);
    if (is(name, "__dict__") && inst_dict(o))
        return t_instdict(t, o);
    if (is(name, "__traceback__") && PyExceptionInstance_Check(o) && t_caught_at(t, o) >= 0) {
        t->live_at = t_caught_at(t, o);
        return t_break(t, BRK_exception, "the traceback of an exception");
    }
    PyObject *d = t_lookup(t, tp, name), *v;
    k = t_obj(t, o); /* the lookup may have moved it */
    bool data = d && Py_TYPE(d)->tp_descr_get && Py_TYPE(d)->tp_descr_set;
    if (data) {
        if (Py_TYPE(d) == &PyMemberDescr_Type || Py_TYPE(d) == &PyGetSetDescr_Type) {
            v = k && k->over ? PyDict_GetItemWithError(k->over, name) : NULL;
            if (v)
                return v == deleted ? missing(o, name) : Py_NewRef(v);
            if (!(v = PyObject_GenericGetAttr(k && k->real && s ? k->real : o, name)))
                return NULL;
            PyObject *r = s && !plain_const(v) ? t_lazy(t, v, src_get(t->e, SRC_attr, s, NULL, name, 0))
                                               : NULL;
            if (s && plain_const(v))
                r = t_wrap(t, v, src_get(t->e, SRC_attr, s, NULL, name, 0));
            if (!s)
                return v;
            Py_DECREF(v);
            return r;
        }
        return t_bind_class_attr(t, o, tp, name, d);
    }
    if (k && k->dict) {
        v = PyDict_GetItemWithError(k->dict, name);
        if (v)
            return Py_NewRef(v);
    } else {
        v = k && k->over ? PyDict_GetItemWithError(k->over, name) : NULL;
        if (v && v != deleted)
            return Py_NewRef(v);
        PyObject *id = v ? NULL : inst_dict(k && k->real && s ? k->real : o);
        if (id && (v = PyDict_GetItemWithError(id, name)))
            return s ? t_lazy(t, v, src_get(t->e, SRC_instattr, s, NULL, name, 0)) : Py_NewRef(v);
    }
    if (d && s && !(k->dict || (k->over && PyDict_GetItemWithError(k->over, name))) && may_hide(tp) &&
        !(PyFunction_Check(d) &&
          !trusted_class(defining(tp, name)))) /* those are guarded with their source */
        t_want(t, G_DICT_CONTAINS, s, name);
    if (d)
        return t_bind_class_attr(t, o, tp, name, d);
    return missing(o, name);
}

/* threading.local itself: attributes of this thread, which getattr() finds. */
static bool is_thread_local(PyTypeObject *tp) { return !strcmp(tp->tp_name, "_thread._local"); }

static PyObject *user_getattr(trace *t, PyObject *o, PyObject *name)
{
    PyTypeObject *tp = Py_TYPE(o);
    static PyObject *ga, *gab;
    if (!ga) {
        ga = PyUnicode_InternFromString("__getattr__");
        gab = PyUnicode_InternFromString("__getattribute__");
    }
    PyObject *hook = t_look(tp, gab);
    if (hook && PyFunction_Check(hook)) {
        PyObject *args[2] = { o, name };
        return t_call(t, hook, args, 2, NULL);
    }
    if (is_thread_local(tp)) {
        tobj *k = t_obj(t, o);
        PyObject *w = k && k->over ? PyDict_GetItemWithError(k->over, name) : NULL,
                 *v = w == deleted ? missing(o, name)
                      : w          ? Py_NewRef(w)
                                   : PyObject_GetAttr(k && k->real ? k->real : o, name);
        if (v && !w && k && k->src)
            Py_SETREF(v, t_lazy(t, v, src_get(t->e, SRC_attr, k->src, NULL, name, 0)));
        if (!v && !w && k && k->src && PyErr_ExceptionMatches(PyExc_AttributeError))
            t_want(t, G_NO_HASATTR, k->src, name);
        return v;
    }
    if (tp->tp_getattro != PyObject_GenericGetAttr && !type_is_python(tp))
        return t_break(t, BRK_attribute, "%s.%s", tp->tp_name, PyUnicode_AsUTF8(name));
    PyObject *v = t_generic_getattr(t, o, name);
    if (v || t->broke || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return v;
    PyObject *et, *ev, *etb;
    PyErr_Fetch(&et, &ev, &etb); /* lookups misbehave while an exception is set */
    PyObject *fn = t_look(tp, ga);
    source *s = t_source_of(t, o);
    PyObject *slot = _PyType_Lookup(tp, name);
    if (s && (!slot || Py_TYPE(slot) == &PyMemberDescr_Type)) {
        tobj *k = t_obj(t, o);
        guard *asked = slot ? NULL : guard_find(t->e, s, G_MODULE_ATTR, name);
        if (k->dict || (k->over && PyDict_GetItemWithError(k->over, name)))
            ; /* it was written or deleted here */
        else if (asked)
            asked->n |= GUARD_ABSENT;
        else
            t_want(t, G_HASATTR, s, name)->n = slot != NULL;
    }
    if (!fn || !PyFunction_Check(fn)) {
        PyErr_Restore(et, ev, etb);
        return NULL;
    }
    Py_XDECREF(et);
    Py_XDECREF(ev);
    Py_XDECREF(etb);
    PyObject *args[2] = { o, name };
    return t_call(t, fn, args, 2, NULL);
}

PyObject *t_getattr(trace *t, PyObject *o, PyObject *name)
{
    if (IS_LAZY(o) && !((PyLazy *)o)->val && PyList_CheckExact(((PyLazy *)o)->real) && is(name, "append") &&
        ((PyLazy *)o)->src->kind != SRC_const)
        return t_appender(o);
    if (!(o = t_real(t, o)))
        return NULL;
    if (t_is_tensor_type(Py_TYPE(o)))
        return tensor_getattr(t, o, name);
    if (t_unproxied(o) != o && (is(name, "get") || is(name, "keys") || is(name, "values") ||
                                is(name, "items") || is(name, "copy"))) /* its methods are the dictionary's */
        o = t_unproxied(o);
    if (PyModule_Check(o))
        return module_getattr(t, o, name);
    if (PyType_Check(o))
        return class_getattr(t, o, name);
    if (Py_TYPE(o) == &PyTraceSuper_Type)
        return t_super_getattr(t, o, name);
    if (py_is_symint(o) && is(name, "__class__"))
        return Py_NewRef((PyObject *)&PyLong_Type);
    if (py_is_symint(o) && !PyObject_HasAttr(o, name)) { /* what only a number has asks for its value */
        PyObject *n = PyNumber_Index(o), *r = n ? PyObject_GetAttr(n, name) : NULL;
        Py_XDECREF(n);
        if (!r)
            t_fake_failed(t, "an attribute of a number that is not known");
        return r;
    }
    if (t_safe_type(Py_TYPE(o)) || PyMethod_Check(o) || PyCFunction_Check(o) ||
        Py_TYPE(o) == &PyTraceGen_Type) {
        if (PyMethod_Check(o) && !is(name, "__func__") && !is(name, "__self__") && !is(name, "__name__"))
            return t_getattr(t, PyMethod_GET_FUNCTION(o), name);
        return PyObject_GetAttr(o, name);
    }
    if (is_enum(o) || Py_TYPE(o) == &PyOpFunc_Type || Py_TYPE(o) == &PyOpMethod_Type ||
        Py_TYPE(o) == &PyProperty_Type) {
        PyObject *v = PyObject_GetAttr(o, name);
        if (v && !plain_const(v) && !PyMethod_Check(v)) {
            Py_DECREF(v);
            return t_break(t, BRK_attribute, "%s.%s", Py_TYPE(o)->tp_name, PyUnicode_AsUTF8(name));
        }
        return v;
    }
    if (PyFunction_Check(o)) {
        source *s = t_source_of(t, o);
        PyObject *d = inst_dict(o), *v = d ? PyDict_GetItemWithError(d, name) : NULL;
        tobj *k = t_obj(t, o);
        PyObject *w = k && k->over ? PyDict_GetItemWithError(k->over, name) : NULL;
        if (w && w != deleted)
            return Py_NewRef(w);
        if (v)
            return s ? t_lazy(t, v, src_get(t->e, SRC_instattr, s, NULL, name, 0)) : Py_NewRef(v);
        if (!(v = PyObject_GetAttr(o, name))) {
            if (s && !w)
                t_want(t, G_HASATTR, s, name);
            return NULL;
        }
        if ((is(name, "__globals__") || is(name, "__dict__") || is(name, "__builtins__")) && s) {
            Py_DECREF(v);
            return t_break(t, BRK_attribute, "function attribute %s", PyUnicode_AsUTF8(name));
        }
        if (!plain_const(v) && !PyCode_Check(v) && s && !PyCFunction_Check(v) &&
            Py_TYPE(v) != method_wrapper_type())
            Py_SETREF(v, t_lazy(t, v, src_get(t->e, SRC_attr, s, NULL, name, 0)));
        else if (s && (v == Py_None || PyTuple_Check(v))) /* defaults: they may be set later */
            Py_SETREF(v, t_wrap(t, v, src_get(t->e, SRC_attr, s, NULL, name, 0)));
        return v;
    }
    if (PyTuple_Check(o)) { /* named tuples: fields are tuple getters */
        PyObject *d = t_look(Py_TYPE(o), name);
        if (d && PyFunction_Check(d))
            return PyMethod_New(d, o);
        if (d && Py_TYPE(d) == &PyProperty_Type)
            return t_bind_class_attr(t, o, Py_TYPE(o), name, d);
        return PyObject_GetAttr(o, name);
    }
    if (Py_TYPE(o) == partial_type) {
        tobj *k = t_obj(t, o);
        PyObject *v = PyObject_GetAttr(o, name);
        if (!v || !k || !k->src)
            return v;
        PyObject *r = t_lazy(t, v, src_get(t->e, SRC_attr, k->src, NULL, name, 0));
        Py_DECREF(v);
        return r;
    }
    if (!t_source_of(t, o) && !type_is_python(Py_TYPE(o)))
        return PyObject_GetAttr(o, name); /* a builtin object made here */
    return user_getattr(t, o, name);
}

/* Does the instance itself have it? Guarded either way; d: what the class has. */
static bool may_delete(trace *t, PyObject *o, PyObject *name, PyObject *d)
{
    tobj *k = t_obj(t, o);
    PyObject *w = k->dict   ? PyDict_GetItemWithError(k->dict, name)
                  : k->over ? PyDict_GetItemWithError(k->over, name)
                            : NULL,
             *real = k->real ? k->real : o, *id = inst_dict(real);
    bool slot = d && Py_TYPE(d) == &PyMemberDescr_Type;
    if (k->dict || w)
        return (w && w != deleted) || (missing(o, name), false);
    PyObject *v = slot ? PyObject_GenericGetAttr(real, name) : id ? PyDict_GetItemWithError(id, name) : NULL;
    if (v) {
        source *s = src_get(t->e, slot ? SRC_attr : SRC_instattr, k->src, NULL, name, 0);
        t_want(t, G_TYPE_MATCH, s, (PyObject *)Py_TYPE(v));
        if (slot)
            Py_DECREF(v);
        return true;
    }
    py_forget();
    if (slot)
        t_want(t, G_HASATTR, k->src, name)->n = true;
    else
        t_want(t, G_NO_HASATTR, k->src, name);
    missing(o, name);
    return false;
}

int t_generic_setattr(trace *t, PyObject *o, PyObject *name, PyObject *v)
{
    PyTypeObject *tp = Py_TYPE(o);
    PyObject *d = t_lookup(t, tp, name);
    if (d && Py_TYPE(d) == &PyProperty_Type) {
        PyObject *set = PyObject_GetAttrString(d, v ? "fset" : "fdel"), *args[2] = { o, v }, *r = NULL;
        if (set && set != Py_None)
            r = t_call(t, set, args, v ? 2 : 1, NULL);
        else
            PyErr_Format(PyExc_AttributeError, "property %R of %R object has no %s", name, tp,
                         v ? "setter" : "deleter");
        Py_XDECREF(set);
        Py_XDECREF(r);
        return r ? 0 : -1;
    }
    if (d && Py_TYPE(d)->tp_descr_set && Py_TYPE(d) != &PyMemberDescr_Type && !t_is_tensor_type(tp)) {
        if (is(name, "__class__") || is(name, "__dict__") || Py_TYPE(d) == &PyGetSetDescr_Type)
            return t_break(t, BRK_attribute, "writing %s.%s", tp->tp_name, PyUnicode_AsUTF8(name)), -1;
        PyObject *set = type_func(d, "%s", v ? "__set__" : "__delete__"), *args[3] = { d, o, v };
        if (!set)
            return t_break(t, BRK_attribute, "writing %s.%s", tp->tp_name, PyUnicode_AsUTF8(name)), -1;
        if (!t_source_of(t, d))
            t_obj_add(t, d, d, src_get(t->e, SRC_const, NULL, d, NULL, 0));
        PyObject *r = t_call(t, set, args, v ? 3 : 2, NULL);
        Py_XDECREF(r);
        return r ? 0 : -1;
    }
    tobj *k = t_obj(t, o);
    if (!k || !k->src) {
        if (v && IS_LAZY(v) && !(v = t_real(t, v)))
            return -1;
        return PyObject_GenericSetAttr(o, name, v);
    }
    if (!v) {
        PyObject *id = inst_dict(k->real ? k->real : o);
        if (!may_delete(t, o, name, d))
            return -1;
        k = t_obj(t, o);
        if (!k->dict && k->over && !(d && Py_TYPE(d) == &PyMemberDescr_Type) &&
            !(id && PyDict_GetItemWithError(id, name)) && PyDict_GetItemWithError(k->over, name))
            return PyDict_DelItem(k->over, name); /* it was not there before */
    }
    if (k->dict)
        return v ? PyDict_SetItem(k->dict, name, v) : PyDict_DelItem(k->dict, name);
    if (!d && !inst_dict(o) && !(tp->tp_flags & Py_TPFLAGS_MANAGED_DICT) && tp->tp_dictoffset == 0)
        return PyObject_GenericSetAttr(o, name, v ? v : deleted); /* nowhere to put it: Python says so */
    if (!k->over && !(k->over = PyDict_New()))
        return -1;
    return PyDict_SetItem(k->over, name, v ? v : deleted);
}

/* x.data = v of an input that needs no gradient: it looks at other memory from here on, and so does the real one after the graph. */
static int set_data(trace *t, PyObject *o, PyObject *v)
{
    if (!v || !py_is_tensor(v) || py_tensor(v)->dt != py_tensor(o)->dt ||
        !device_eq(tensor_device(py_tensor(v)), tensor_device(py_tensor(o))))
        return v ? (t_break(t, BRK_attribute, "writing Tensor.data"), -1) : -1;
    PyObject *d = PyObject_CallMethod(v, "detach", NULL);
    tp_tensor *x = py_tensor(o), *y = d ? py_tensor(d) : NULL;
    tobj *k = t_obj(t, o);
    tp_err err = { 0 };
    int r = y && (k->over || (k->over = PyDict_New())) ? PyDict_SetItemString(k->over, "data", d) : -1;
    if (r >= 0 && !tensor_reset(x, y->storage, (dtype)y->dt, y->ndim, y->size, y->stride, y->offset, &err)) {
        py_raise(&err);
        r = -1;
    }
    if (r >= 0) {
        x->node = y->node;
        x->rec = y->rec;
        k->data_at = tensor_version(x);
    }
    Py_XDECREF(d);
    return r;
}

int t_setattr(trace *t, PyObject *o, PyObject *name, PyObject *v)
{
    if (!(o = t_real(t, o)))
        return -1;
    PyTypeObject *tp = Py_TYPE(o);
    if (t_is_tensor_type(tp)) {
        tobj *k = t_obj(t, o);
        if (is(name, "requires_grad") && v) {
            PyObject *on = t_real(t, v), *r;
            if (on == Py_True && grad_requires_grad(py_tensor(o))) { /* of a computed tensor it is refused */
                if (!grad_is_leaf(py_tensor(o)) || (k && k->real && !grad_is_bare_leaf(py_tensor(k->real))))
                    return t_break(t, BRK_attribute,
                                   "writing Tensor.requires_grad of a tensor with a history or hooks"),
                           -1;
                if (k && k->real)
                    guard_add(t->e, G_TENSOR_MATCH, k->src, NULL)->t->bare = true;
            }
            r = on && PyBool_Check(on) ? t_requires_grad(t, o, on) : NULL;
            if (on && !PyBool_Check(on))
                PyErr_SetString(PyExc_RuntimeError, "requires_grad must be a bool");
            Py_XDECREF(r);
            return r ? 0 : -1;
        }
        if (is(name, "data") && v && k && k->src && k->src->kind != SRC_const &&
            !grad_requires_grad(py_tensor(o)))
            return set_data(t, o, t_real(t, v));
        if (is(name, "data") || is(name, "requires_grad"))
            return t_break(t, BRK_attribute, "writing Tensor.%s", PyUnicode_AsUTF8(name)), -1;
        if (k && k->src) {
            PyObject *now = k->over ? PyDict_GetItemWithError(k->over, name) : NULL,
                     *own = inst_dict(k->real);
            if (!v && !_PyType_Lookup(tp, name) &&
                (now == deleted || (!now && !(own && PyDict_GetItemWithError(own, name)))))
                return missing(o, name), -1;
            if (!k->over && !(k->over = PyDict_New()))
                return -1;
            if (is(name, "grad") && v == Py_None && !k->cleared) {
                k->cleared = true;
                IR_EACH (n, t->g)
                    k->cleared &= n->kind == IR_placeholder || n->kind == IR_const;
            }
            return PyDict_SetItem(k->over, name, v ? v : deleted);
        }
        if (v && !(v = t_real(t, v)))
            return -1;
        if (is(name, "grad") && !grad_is_leaf(py_tensor(o)))
            return t_break(t, BRK_attribute, "writing the gradient of an intermediate tensor"), -1;
        return PyObject_SetAttr(o, name, v);
    }
    if (is_thread_local(tp)) {
        tobj *k = t_obj(t, o);
        if (!k || !k->src || !v)
            return t_break(t, BRK_attribute, "writing %s.%s", tp->tp_name, PyUnicode_AsUTF8(name)), -1;
        if (!k->over && !(k->over = PyDict_New()))
            return -1;
        return PyDict_SetItem(k->over, name, v);
    }
    if (PyModule_Check(o)) {
        PyObject *d = PyModule_GetDict(o);
        tobj *k = record(t, d, src_get(t->e, SRC_const, NULL, d, NULL, 0));
        if (!k->over && !(k->over = PyDict_New()))
            return -1;
        if (!v) {
            PyObject *is = PyDict_GetItemWithError(k->over, name), *was = PyDict_GetItemWithError(d, name);
            if (is == deleted || (!is && !was)) {
                PyObject *mn = PyDict_GetItemString(d, "__name__");
                PyErr_Format(PyExc_AttributeError, "module %R has no attribute %R", mn ? mn : Py_None, name);
                return -1;
            }
            if (!was)
                return PyDict_DelItem(k->over, name);
        }
        return PyDict_SetItem(k->over, name, v ? v : deleted);
    }
    if (PyType_Check(o)) {
        const char *n = PyUnicode_AsUTF8(name);
        if (!(tp == &PyType_Type) || !type_is_python((PyTypeObject *)o) || !v ||
            (n && n[0] == '_' && n[1] == '_'))
            return t_break(t, BRK_attribute, "writing %s.%s", ((PyTypeObject *)o)->tp_name,
                           PyUnicode_AsUTF8(name)),
                   -1;
        tobj *k = record(t, o, source_or_const(t, o));
        if (!k->over && !(k->over = PyDict_New()))
            return -1;
        t->class_written = true;
        return PyDict_SetItem(k->over, name, v);
    }
    PyObject *fn = type_func(o, "%s", v ? "__setattr__" : "__delattr__"), *args[3] = { o, name, v };
    if (fn) {
        PyObject *r = t_call(t, fn, args, v ? 3 : 2, NULL);
        Py_XDECREF(r);
        return r ? 0 : -1;
    }
    if (PyFunction_Check(o)) {
        tobj *k = t_obj(t, o);
        if (!k || !k->src) {
            if (v && !(v = t_real(t, v)))
                return -1;
            return PyObject_SetAttr(o, name, v);
        }
        if (_PyType_Lookup(tp, name) || !v)
            return t_break(t, BRK_attribute, "writing attribute %s of a function", PyUnicode_AsUTF8(name)),
                   -1;
        if (!k->over && !(k->over = PyDict_New()))
            return -1;
        return PyDict_SetItem(k->over, name, v);
    }
    if (tp->tp_setattro != PyObject_GenericSetAttr && !type_is_python(tp))
        return t_break(t, BRK_attribute, "writing %s.%s", tp->tp_name, PyUnicode_AsUTF8(name)), -1;
    return t_generic_setattr(t, o, name, v);
}

PyObject *t_deleted_mark(void) { return deleted; }
PyTypeObject *t_deque_type(void) { return deque_type; }
PyTypeObject *t_partial_type(void) { return partial_type; }
PyTypeObject *t_ordered_type(void) { return ordered_dict; }
PyTypeObject *t_default_type(void) { return default_dict; }
bool t_plain_const(PyObject *o) { return plain_const(o); }

int py_init_trace(PyObject *m)
{
    py_fake_error = PyErr_NewExceptionWithDoc(
        "taper._C.FakeTensorError",
        "The values of a tensor were asked for that has none: it stands for one while a function is traced "
        "or runs under vmap.\n\n"
        ">>> issubclass(taper.FakeTensorError, RuntimeError)\nTrue\n",
        PyExc_RuntimeError, NULL);
    deleted = PyUnicode_FromString("<deleted>");
    ordered_dict = import_type("collections", "OrderedDict");
    default_dict = import_type("collections", "defaultdict");
    deque_type = import_type("collections", "deque");
    partial_type = import_type("functools", "partial");
    if (!py_fake_error || !deleted || !ordered_dict || !default_dict || !deque_type || !partial_type ||
        PyType_Ready(&PyLazy_Type) < 0)
        return -1;
    return PyModule_AddObjectRef(m, "FakeTensorError", py_fake_error);
}
