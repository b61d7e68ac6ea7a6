/* guard.c - sources and guards: one walk over the frame, with an optional "why". No guard runs Python code.
 */
#include "capture/capture.h"

PyObject *keep(entry *e, PyObject *o)
{
    if (o && PyList_Append(e->keep, o) < 0)
        py_forget();
    return o;
}

/* Classes made inside functions come and go, with all that their methods close over: entries do not hold them. When one is
 * gone nothing can be of its class again, and the entry is none any more; what it still names is a class that stays. */
typedef struct gone_class {
    entry *e;
    PyObject *cls; /* not to be looked at */
    PyObject *ref; /* the weak reference to it, which e->keep holds */
    struct gone_class *next;
} gone_class;

static PyObject *class_gone(PyObject *self, PyObject *ref)
{
    gone_class *g = PyCapsule_GetPointer(self, NULL);
    PyObject *any = (PyObject *)&PyBaseObject_Type;
    g->e->invalid = "a class that it was made for is gone";
    for (size_t i = 0; i < g->e->guards.n; i++) {
        guard *x = &g->e->guards.at[i];
        if (x->obj == g->cls)
            x->obj = any;
        if (x->kind == G_TENSOR_MATCH && (PyObject *)x->t->type == g->cls)
            x->t->type = (PyTypeObject *)any;
    }
    for (size_t i = 0; i < g->e->looks.n; i++) {
        look *l = &g->e->looks.at[i];
        l->owner = l->owner == g->cls ? any : l->owner;
        l->value = l->value == g->cls ? any : l->value;
    }
    Py_RETURN_NONE;
}

void guard_let_classes_go(entry *e)
{
    static PyMethodDef def = { "class_gone", class_gone, METH_O, NULL };
    gone_class *made = NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(e->keep); i++) {
        PyObject *o = PyList_GET_ITEM(e->keep, i), *name;
        if (!PyType_Check(o) || !(((PyTypeObject *)o)->tp_flags & Py_TPFLAGS_HEAPTYPE))
            continue;
        name = ((PyHeapTypeObject *)o)->ht_qualname;
        if (!name || !PyUnicode_Check(name) || !strstr(PyUnicode_AsUTF8(name), "<locals>"))
            continue;
        gone_class *g = made;
        while (g && g->cls != o)
            g = g->next;
        if (g) { /* kept more than once */
            PyList_SetItem(e->keep, i, Py_NewRef(g->ref));
            continue;
        }
        g = ARENA_NEW(&e->mem, gone_class);
        *g = (gone_class){ .e = e, .cls = o };
        PyObject *c = PyCapsule_New(g, NULL, NULL), *f = c ? PyCFunction_New(&def, c) : NULL,
                 *ref = f ? PyWeakref_NewRef(o, f) : NULL;
        Py_XDECREF(c);
        Py_XDECREF(f);
        if (ref) {
            g->ref = ref;
            g->next = made;
            made = g;
            PyList_SetItem(e->keep, i, ref); /* lets the class go */
        } else
            py_forget();
    }
}

/* ---- texts ---- */
/* The trace shows every guard, so another thread writes them (guard_json): it reads what nobody changes, the entry keeps
 * and Python need not be asked about. What is not so is put into text by guard_prepare before. */
static bool plain_name(PyObject *o) { return o && PyUnicode_CheckExact(o) && PyUnicode_IS_COMPACT_ASCII(o); }

static bool plain_value(PyObject *o)
{
    int big = 0;
    if (PyLong_CheckExact(o))
        PyLong_AsLongLongAndOverflow(o, &big);
    return o == Py_None || PyBool_Check(o) || plain_name(o) || (PyLong_CheckExact(o) && !big) ||
           (PyFloat_CheckExact(o) && isfinite(PyFloat_AS_DOUBLE(o)));
}

static void name_put(strbuf *b, PyObject *o)
{
    strbuf_addn(b, (const char *)PyUnicode_1BYTE_DATA(o), (size_t)PyUnicode_GET_LENGTH(o));
}

static void value_put(strbuf *b, PyObject *o)
{
    int big;
    if (o == Py_None)
        strbuf_addn(b, "None", 4);
    else if (PyBool_Check(o))
        strbuf_add(b, o == Py_True ? "True" : "False");
    else if (PyLong_CheckExact(o))
        strbuf_int(b, PyLong_AsLongLongAndOverflow(o, &big));
    else if (PyFloat_CheckExact(o))
        strbuf_double(b, PyFloat_AS_DOUBLE(o));
    else
        strbuf_pyrepr(b, (const char *)PyUnicode_1BYTE_DATA(o), (size_t)PyUnicode_GET_LENGTH(o));
}

static const char *repr(entry *e, PyObject *o)
{
    strbuf b = { 0 };
    PyObject *r = plain_value(o) ? NULL : PyObject_Repr(o);
    const char *u = r ? PyUnicode_AsUTF8(r) : NULL;
    if (plain_value(o))
        value_put(&b, o);
    else
        strbuf_add(&b, u ? u : "?");
    py_forget();
    Py_XDECREF(r);
    const char *t = arena_strndup(&e->mem, b.s, b.n);
    strbuf_free(&b);
    return t;
}

/* ---- sources ---- */
static PyObject *name_of(const source *s)
{
    return s->kind == SRC_local ? PyTuple_GET_ITEM(s->e->r->cc->localsplus, s->index) : s->key;
}

/* Is the text of its base all that its own lacks? */
static bool plain_source(const source *s)
{
    switch (s->kind) {
    case SRC_const:
    case SRC_cached: return false;
    case SRC_key: return plain_value(s->key);
    case SRC_local:
    case SRC_global:
    case SRC_instattr:
    case SRC_attr:
    case SRC_typeattr:
    case SRC_kwdefault: return plain_name(name_of(s));
    default: return true;
    }
}

static void numbered(strbuf *b, const char *before, int i)
{
    strbuf_add(b, before);
    strbuf_int(b, i);
    strbuf_addc(b, ']');
}

/* A plain one, with the text of its base. */
static void source_put(strbuf *b, const source *s, const char *base)
{
    if (s->kind == SRC_dictkey || s->kind == SRC_type)
        strbuf_add(b, s->kind == SRC_dictkey ? "list(" : "type(");
    strbuf_add(b, base);
    switch (s->kind) {
    case SRC_local:
    case SRC_global:
        strbuf_add(b, s->kind == SRC_local ? "L['" : "G['");
        name_put(b, name_of(s));
        strbuf_addn(b, "']", 2);
        break;
    case SRC_stack:
        strbuf_add(b, "L['___stack");
        strbuf_int(b, s->index);
        strbuf_addn(b, "']", 2);
        break;
    case SRC_instattr:
    case SRC_attr:
    case SRC_typeattr:
        strbuf_addc(b, '.');
        name_put(b, s->key);
        break;
    case SRC_item:
    case SRC_deque: numbered(b, "[", s->index); break;
    case SRC_key:
        strbuf_addc(b, '[');
        value_put(b, s->key);
        strbuf_addc(b, ']');
        break;
    case SRC_dictkey: numbered(b, ".keys())[", s->index); break;
    case SRC_cell: strbuf_add(b, s->base->kind == SRC_local ? "" : ".cell_contents"); break;
    case SRC_closure: numbered(b, ".__closure__[", s->index); break;
    case SRC_default: numbered(b, ".__defaults__[", s->index); break;
    case SRC_kwdefault:
        strbuf_add(b, ".__kwdefaults__['");
        name_put(b, s->key);
        strbuf_addn(b, "']", 2);
        break;
    case SRC_dict: strbuf_add(b, ".__dict__"); break;
    case SRC_proxied: strbuf_add(b, ".mapping"); break;
    case SRC_array:
    case SRC_number: strbuf_add(b, ".tensor"); break;
    case SRC_subclasses: strbuf_add(b, ".__subclasses__()"); break;
    case SRC_func: strbuf_add(b, ".__func__"); break;
    case SRC_self: strbuf_add(b, ".__self__"); break;
    case SRC_type: strbuf_addc(b, ')'); break;
    default: break;
    }
}

/* One that is not plain. */
static const char *text_of(entry *e, const source *s)
{
    const char *b = s->base ? src_text(s->base) : "";
    PyObject *name = name_of(s);
    const char *key = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    key = key ? key : "?";
    switch (s->kind) {
    case SRC_local: return arena_printf(&e->mem, "L['%s']", key);
    case SRC_global: return arena_printf(&e->mem, "G['%s']", key);
    case SRC_key: return arena_printf(&e->mem, "%s[%s]", b, repr(e, s->key));
    case SRC_kwdefault: return arena_printf(&e->mem, "%s.__kwdefaults__['%s']", b, key);
    case SRC_cached: return arena_printf(&e->mem, "lru_cache[%s]", repr(e, s->key));
    case SRC_const: {
        PyObject *n = PyType_Check(s->obj) || PyFunction_Check(s->obj)
                          ? PyObject_GetAttrString(s->obj, "__qualname__")
                          : NULL;
        const char *t = n && PyUnicode_Check(n) ? PyUnicode_AsUTF8(n) : NULL;
        const char *r = arena_printf(&e->mem, "G['%s']", t ? t : Py_TYPE(s->obj)->tp_name);
        py_forget();
        Py_XDECREF(n);
        return r;
    }
    default: return arena_printf(&e->mem, "%s.%s", b, key);
    }
}

/* Made when somebody asks: most sources are never printed. */
const char *src_text(const source *s)
{
    if (s->text)
        return s->text;
    const char *t;
    if (plain_source(s)) {
        strbuf b = { 0 };
        source_put(&b, s, s->base ? src_text(s->base) : "");
        t = arena_strndup(&s->e->mem, b.s, b.n);
        strbuf_free(&b);
    } else {
        t = text_of(s->e, s);
        py_forget();
    }
    __atomic_store_n(&((source *)s)->text, t, __ATOMIC_RELEASE);
    return t;
}

source *src_get(entry *e, src_kind k, source *base, PyObject *obj, PyObject *key, int index)
{
    size_t h = ((size_t)k * 31 + (size_t)index * 7 + ((uintptr_t)base >> 4) * 13 + ((uintptr_t)obj >> 4) +
                ((uintptr_t)key >> 4) * 3) %
               COUNT(e->table);
    for (source *s = e->table[h]; s; s = s->next)
        if (s->kind == k && s->base == base && s->index == index && s->key == key && s->obj == obj)
            return s;
    source *s = ARENA_NEW(&e->mem, source);
    s->kind = (uint8_t)k;
    s->base = base;
    s->obj = keep(e, obj);
    s->key = keep(e, key);
    s->index = index;
    s->id = (int)e->sources.n;
    s->e = e;
    s->next = e->table[h];
    e->table[h] = s;
    vec_push(&e->sources, s);
    return s;
}

/* The instance dictionary, borrowed; NULL when there is none. */
PyObject *inst_dict(PyObject *o)
{
    PyObject **p = _PyObject_GetDictPtr(o);
    return p ? *p : NULL;
}

PyObject *src_eval(const source *s, frame *f, PyObject *const *reg)
{
    PyObject *b = s->base ? reg[s->base->id] : NULL, *d;
    if (s->base && !b)
        return NULL;
    switch (s->kind) {
    case SRC_local: return f->fast[s->index];
    case SRC_stack: return s->index < f->sp ? f->stack[s->index] : NULL;
    case SRC_global: return PyDict_GetItemWithError(s->obj, s->key);
    case SRC_const: return s->obj;
    case SRC_instattr:
        d = PyModule_Check(b) ? PyModule_GetDict(b) : inst_dict(b);
        return d ? PyDict_GetItemWithError(d, s->key) : NULL;
    case SRC_cached: return cache_entry(s->obj, s->key, s->index);
    case SRC_subclasses:
    case SRC_array:
    case SRC_number:
    case SRC_attr: {
        PyObject *v = s->kind == SRC_attr     ? PyObject_GetAttr(b, s->key)
                      : s->kind == SRC_array  ? t_array_tensor(b)
                      : s->kind == SRC_number ? t_number_tensor(b)
                      : PyType_Check(b)       ? PyObject_CallMethod(b, "__subclasses__", NULL)
                                              : NULL;
        if (!v) {
            py_forget();
            return NULL;
        }
        if (Py_REFCNT(v) == 1) { /* made for us: nobody else keeps it */
            Py_XSETREF(((source *)s)->held, v);
            s->e->has_held = true;
            return v;
        }
        Py_DECREF(v);
        return v;
    }
    case SRC_typeattr:
        if (PyType_Check(b))
            return _PyType_Lookup((PyTypeObject *)b, s->key);
        d = inst_dict(b);
        if (d && PyDict_GetItemWithError(d, s->key))
            return NULL;
        return _PyType_Lookup(Py_TYPE(b), s->key);
    case SRC_item:
        if (PyTuple_Check(b))
            return s->index < PyTuple_GET_SIZE(b) ? PyTuple_GET_ITEM(b, s->index) : NULL;
        return PyList_Check(b) && s->index < PyList_GET_SIZE(b) ? PyList_GET_ITEM(b, s->index) : NULL;
    case SRC_key: return PyDict_Check(b) ? PyDict_GetItemWithError(b, s->key) : NULL;
    case SRC_dictkey: {
        Py_ssize_t p = 0;
        PyObject *k;
        if (!PyDict_Check(b))
            return NULL;
        for (int i = 0; PyDict_Next(b, &p, &k, NULL); i++)
            if (i == s->index)
                return k;
        return NULL;
    }
    case SRC_cell: return PyCell_Check(b) ? PyCell_GET(b) : NULL;
    case SRC_closure:
        d = PyFunction_Check(b) ? PyFunction_GET_CLOSURE(b) : NULL;
        return d && s->index < PyTuple_GET_SIZE(d) ? PyTuple_GET_ITEM(d, s->index) : NULL;
    case SRC_default:
        d = PyFunction_Check(b) ? PyFunction_GET_DEFAULTS(b) : NULL;
        return d && s->index < PyTuple_GET_SIZE(d) ? PyTuple_GET_ITEM(d, s->index) : NULL;
    case SRC_kwdefault:
        d = PyFunction_Check(b) ? PyFunction_GET_KW_DEFAULTS(b) : NULL;
        return d ? PyDict_GetItemWithError(d, s->key) : NULL;
    case SRC_dict: return inst_dict(b);
    case SRC_proxied: return t_unproxied(b) == b ? NULL : t_unproxied(b);
    case SRC_func: return PyMethod_Check(b) ? PyMethod_GET_FUNCTION(b) : NULL;
    case SRC_self:
        return PyMethod_Check(b)      ? PyMethod_GET_SELF(b)
               : PyCFunction_Check(b) ? PyCFunction_GET_SELF(b)
                                      : NULL;
    case SRC_type: return (PyObject *)Py_TYPE(b);
    case SRC_deque: {
        PyObject *v = PyType_IsSubtype(Py_TYPE(b), t_deque_type())
                          ? t_deque_type()->tp_as_sequence->sq_item(b, s->index)
                          : PySequence_GetItem(b, s->index);
        if (!v) {
            py_forget();
            return NULL;
        }
        Py_DECREF(v);
        return v;
    }
    }
    return NULL;
}

/* Lets go of what was made for the checks. */
void src_release(entry *e)
{
    e->has_held = false;
    for (size_t i = 0; i < e->sources.n; i++)
        Py_CLEAR(e->sources.at[i]->held);
}

/* ---- adding ---- */
static bool usual_class(PyObject *t) { return Py_TYPE(t)->tp_repr == PyType_Type.tp_repr; }

/* "<class 'module.name'>", as type.__repr__ writes it. */
static const char *class_text(entry *e, PyTypeObject *t)
{
    static PyObject *key;
    if (!key)
        key = PyUnicode_InternFromString("__module__");
    if (!key || !usual_class((PyObject *)t))
        return repr(e, (PyObject *)t);
    if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return arena_adds(&e->mem, "<class '", t->tp_name, "'>", NULL);
    PyObject *module = PyDict_GetItemWithError(t->tp_dict, key), *name = ((PyHeapTypeObject *)t)->ht_qualname;
    if (!plain_name(module) || !plain_name(name) || PyUnicode_CompareWithASCIIString(module, "builtins") == 0)
        return repr(e, (PyObject *)t);
    return arena_adds(&e->mem, "<class '", (const char *)PyUnicode_1BYTE_DATA(module), ".",
                      (const char *)PyUnicode_1BYTE_DATA(name), "'>", NULL);
}

static const char *type_repr(entry *e, PyObject *type)
{
    size_t at = ((uintptr_t)type >> 4) % COUNT(e->reprs);
    if (e->reprs[at].type != type) {
        e->reprs[at].type = type;
        e->reprs[at].text = class_text(e, (PyTypeObject *)type);
    }
    return e->reprs[at].text;
}

static void dims(strbuf *b, const int64_t *v, int n)
{
    for (int i = 0; i < n; i++) {
        if (i)
            strbuf_addn(b, ", ", 2);
        if (v[i] < 0)
            strbuf_addn(b, "None", 4);
        else
            strbuf_int(b, v[i]);
    }
}

static void tensor_put(strbuf *b, const char *s, const guard_tensor *t)
{
    const char *cls = strrchr(t->type->tp_name, '.');
    strbuf_add(b, "check_tensor(");
    strbuf_add(b, s);
    strbuf_add(b, ", ");
    strbuf_add(b, cls ? cls + 1 : t->type->tp_name);
    strbuf_add(b, ", DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), ");
    strbuf_add(b, cap_brand());
    strbuf_addc(b, '.');
    strbuf_add(b, dtype_rows[t->dt].pname);
    strbuf_add(b, ", device=");
    if (t->dev.index < 0)
        strbuf_add(b, "None");
    else
        strbuf_int(b, t->dev.index);
    strbuf_add(b, t->requires_grad ? ", requires_grad=True, size=[" : ", requires_grad=False, size=[");
    dims(b, t->size, t->ndim);
    strbuf_add(b, "], stride=[");
    dims(b, t->stride, t->ndim);
    strbuf_add(b, "])");
}

static bool plain_keys(PyObject *keys)
{
    bool plain = PyList_CheckExact(keys);
    for (Py_ssize_t i = 0; plain && i < PyList_GET_SIZE(keys); i++)
        plain = plain_name(PyList_GET_ITEM(keys, i));
    return plain;
}

static void keys_put(strbuf *b, PyObject *keys)
{
    strbuf_addc(b, '[');
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); i++) {
        PyObject *k = PyList_GET_ITEM(keys, i);
        if (i)
            strbuf_addn(b, ", ", 2);
        strbuf_pyrepr(b, (const char *)PyUnicode_1BYTE_DATA(k), (size_t)PyUnicode_GET_LENGTH(k));
    }
    strbuf_addc(b, ']');
}

static void prepare_source(source *s)
{
    for (; s && !s->plain; s = s->base) {
        if (!plain_source(s))
            src_text(s);
        s->plain = true;
    }
}

/* The same for a guard that was just made, as far as no code of the program can run. */
void guard_prepare_early(guard *g)
{
    for (const source *s = g->src; s && !s->plain; s = s->base)
        if (!plain_source(s))
            return;
    switch (g->kind) {
    case G_EQUALS_MATCH:
    case G_HASATTR:
    case G_BOOL_MATCH:
    case G_DICT_CONTAINS:
    case G_SET_CONTAINS:
        if (!plain_value(g->obj))
            return;
        break;
    case G_NO_HASATTR:
        if (!plain_name(g->obj))
            return;
        break;
    case G_DICT_KEYS_MATCH:
        if (!plain_keys(g->obj))
            return;
        break;
    case G_TYPE_MATCH:
        if (!usual_class(g->obj))
            return;
        break;
    case G_ID_MATCH:
        if (!usual_class((PyObject *)Py_TYPE(g->obj)))
            return;
        break;
    case G_DUPLICATE_INPUT:
    case G_NOT_SAME: return; /* the other source is not known yet */
    default: break;
    }
    guard_prepare(g);
}

/* Asks Python for all that the text of a guard needs: then another thread can write it. */
void guard_prepare(guard *g)
{
    if (g->prepared)
        return;
    g->prepared = true;
    g->e->nprepared++;
    prepare_source(g->src);
    prepare_source(g->src2);
    if (g->hint)
        return;
    switch (g->kind) {
    case G_NO_HASATTR: g->hint = PyUnicode_AsUTF8(g->obj); break;
    case G_EQUALS_MATCH:
        if (PyFloat_Check(g->obj) && isnan(PyFloat_AS_DOUBLE(g->obj)))
            break;
        /* fall through */
    case G_HASATTR:
    case G_BOOL_MATCH:
    case G_DICT_CONTAINS:
    case G_SET_CONTAINS:
        if (!plain_value(g->obj))
            g->hint = repr(g->e, g->obj);
        break;
    case G_DICT_KEYS_MATCH:
        if (!plain_keys(g->obj))
            g->hint = repr(g->e, g->obj);
        break;
    case G_TYPE_MATCH: g->hint = type_repr(g->e, g->obj); break;
    case G_ID_MATCH: g->hint = type_repr(g->e, (PyObject *)Py_TYPE(g->obj)); break;
    default: break;
    }
}

static void hint_put(strbuf *b, const guard *g)
{
    if (g->hint)
        strbuf_add(b, g->hint);
    else if (plain_value(g->obj))
        value_put(b, g->obj);
    else
        strbuf_addc(b, '?');
}

static void put3(strbuf *b, const char *x, const char *y, const char *z)
{
    strbuf_add(b, x);
    strbuf_add(b, y);
    strbuf_add(b, z);
}

/* Of a prepared guard; s, s2: the texts of its sources. */
static void guard_put(strbuf *b, const guard *g, const char *s, const char *s2)
{
    const char *hint = g->hint ? g->hint : "?";
    switch (g->kind) {
    case G_TENSOR_MATCH: tensor_put(b, s, g->t); break;
    case G_NO_HOOKS: put3(b, "not ___has_hooks(", s, ")"); break;
    case G_MODULE_ATTR: {
        static const char *const parts[] = { "._parameters)", "._buffers)", "._modules)", ", its parts)" };
        int part = (int)(g->n & ~GUARD_ABSENT);
        strbuf_add(b, part == PY_MODULE_PARTS ? "not ___dict_contains(" : "___dict_contains(");
        hint_put(b, g);
        put3(b, ", ", s, parts[part]);
        break;
    }
    case G_NO_HASATTR: strbuf_addf(b, "hasattr(%s, '%s') == False", s, hint); break;
    case G_HASATTR:
        put3(b, "not hasattr(", s, ", ");
        hint_put(b, g);
        strbuf_addc(b, ')');
        break;
    case G_EQUALS_MATCH:
        if (PyFloat_Check(g->obj) && isnan(PyFloat_AS_DOUBLE(g->obj))) {
            strbuf_addf(b, "(type(%s) is float and __math_isnan(%s))", s, s);
            break;
        }
        /* fall through */
    case G_BOOL_MATCH:
    case G_SET_CONTAINS:
        put3(b, s, " == ", "");
        hint_put(b, g);
        break;
    case G_NONE_MATCH: put3(b, s, " is ", "None"); break;
    case G_TYPE_MATCH:
        put3(b, "___check_type_id(", s, ", ");
        strbuf_int(b, (int64_t)(size_t)g->obj);
        put3(b, "), type=", hint, " (HINT: type ");
        put3(b, ((PyTypeObject *)g->obj)->tp_name, ")", "");
        break;
    case G_ID_MATCH:
        put3(b, "___check_obj_id(", s, ", ");
        strbuf_int(b, (int64_t)(size_t)g->obj);
        put3(b, "), type=", hint, "");
        break;
    case G_FUNCTION_MATCH:
        put3(b, "___check_obj_id(", s, ".__code__, ");
        strbuf_int(b, (int64_t)(size_t)g->obj);
        strbuf_add(b, "), type=<class 'code'>");
        break;
    case G_DICT_CONTAINS:
        strbuf_add(b, "not ___dict_contains(");
        hint_put(b, g);
        put3(b, ", ", s, ".__dict__)");
        break;
    case G_SEQUENCE_LENGTH:
        if (g->n)
            strbuf_addf(b, "len(%s) == %lld", s, (long long)g->n);
        else
            put3(b, "not ", s, "");
        break;
    case G_DICT_KEYS_MATCH:
        put3(b, "list(dict.keys(", s, ")) == ");
        if (g->hint)
            strbuf_add(b, hint);
        else
            keys_put(b, g->obj);
        break;
    case G_DUPLICATE_INPUT: put3(b, s, " is ", s2); break;
    case G_NOT_SAME: put3(b, s, " is not ", s2); break;
    case G_GLOBAL_STATE: strbuf_add(b, "___check_global_state()"); break;
    case G_DEFAULT_DEVICE: strbuf_add(b, "utils_device.CURRENT_DEVICE == None"); break;
    case G_TORCH_FUNCTION_MODE_STACK: strbuf_add(b, "___check_torch_function_mode_stack()"); break;
    case G_BUILTIN_MATCH:
        strbuf_addf(b, "%s.__name__ == '%s'", s, ((PyMethodDef *)(intptr_t)g->n)->ml_name);
        break;
    case G_EXISTS: put3(b, "hasattr(", s, ")"); break;
    default: break;
    }
}

static const char *guard_text(entry *e, guard *g)
{
    strbuf b = { 0 };
    guard_prepare(g);
    guard_put(&b, g, g->src ? src_text(g->src) : "", g->src2 ? src_text(g->src2) : "");
    const char *t = arena_strndup(&e->mem, strbuf_str(&b), b.n);
    strbuf_free(&b);
    return t;
}

static const char *text_now(const guard *g)
{
    if (!g->text)
        ((guard *)g)->text = guard_text(g->e, (guard *)g);
    return g->text;
}
const char *guard_reads(const guard *g) { return text_now(g); }

typedef struct state { /* GLOBAL_STATE */
    bool grad_mode, deterministic, inference;
    bool
        hooks; /* saved_tensors_hooks are active: steps outside of graphs go through them, backward inside may not */
    dtype default_dtype;
    uint32_t autocast; /* by kind of device: the lower type + 1 while it is on, a byte each */
} state;
static state state_now(void)
{
    op_ctx *cx = CX;
    uint32_t cast = 0;
    for (int k = 0; TP_UNLIKELY(cx->autocast) && k < DEV_COUNT; k++)
        if (cx->autocast >> k & 1)
            cast |= (uint32_t)(cx->autocast_dtype[k] + 1) << 8 * k;
    return (state){ cx->grad_mode,     cx->deterministic, cx->inference_mode,
                    cx->hooks != NULL, cx->default_dtype, cast };
}

static guard_tensor *state_make(entry *e)
{
    state *s = ARENA_NEW(&e->mem, state);
    *s = state_now();
    return (guard_tensor *)s;
}

guard *guard_add(entry *e, guard_kind k, source *s, PyObject *obj)
{
    if (s && k != G_DUPLICATE_INPUT && k != G_NOT_SAME)
        for (int i = s->guards; i; i = e->guards.at[i - 1].older) {
            guard *g = &e->guards.at[i - 1];
            if (g->kind == k && g->obj == obj)
                return g;
        }
    guard g = { .kind = (uint8_t)k, .src = s, .obj = keep(e, obj), .e = e, .older = s ? s->guards : 0 };
    vec_push(&e->guards, g);
    if (s)
        s->guards = (int)e->guards.n;
    for (; s && !s->used; s = s->base)
        s->used = true;
    if (k == G_GLOBAL_STATE)
        vec_last(&e->guards).t = state_make(e);
    return &vec_last(&e->guards);
}

guard *guard_find(entry *e, const source *s, guard_kind k, const PyObject *obj)
{
    for (int i = s ? s->guards : 0; i; i = e->guards.at[i - 1].older)
        if (e->guards.at[i - 1].kind == k && e->guards.at[i - 1].obj == obj)
            return &e->guards.at[i - 1];
    return NULL;
}

/* Orders the checks: each source is evaluated just before the guards on it; cheap ambient state first. */
void guard_finish(entry *e)
{
    int n = (int)(e->guards.n + e->sources.n), k = 0;
    e->steps = arena_alloc(&e->mem, sizeof *e->steps * (size_t)MAX(n, 1));
    for (size_t i = 0; i < e->guards.n; i++) {
        guard *g = &e->guards.at[i];
        if (!g->src)
            e->steps[k++] = (struct step){ NULL, g };
    }
    for (size_t i = 0; i < e->sources.n; i++) {
        source *s = e->sources.at[i];
        if (!s->used)
            continue;
        e->steps[k++] = (struct step){ s, NULL };
        int from = k;
        for (int q = s->guards; q; q = e->guards.at[q - 1].older)
            if (!e->guards.at[q - 1].src2 && e->guards.at[q - 1].kind != G_TENSOR_MATCH)
                e->steps[k++] = (struct step){ NULL, &e->guards.at[q - 1] };
        for (int a = from, b = k - 1; a < b; a++, b--) { /* in the order they were made */
            struct step t = e->steps[a];
            e->steps[a] = e->steps[b];
            e->steps[b] = t;
        }
    }
    /* tensors last: constants are cheaper and say more when both fail */
    for (size_t q = 0; q < e->guards.n; q++)
        if (e->guards.at[q].kind == G_TENSOR_MATCH)
            e->steps[k++] = (struct step){ NULL, &e->guards.at[q] };
    for (size_t q = 0; q < e->guards.n; q++)
        if (e->guards.at[q].src2)
            e->steps[k++] = (struct step){ NULL, &e->guards.at[q] };
    e->nstep = k;
    looks_finish(e);
}

/* ---- checking ---- */
static const char *cname(dtype d) { return dtype_rows[d].gname; }
#define MISS(...) (why ? (strbuf_addf(why, __VA_ARGS__), false) : false)

static bool tensor_check(const guard *g, PyObject *o, strbuf *why)
{
    const guard_tensor *t = g->t;
    const char *name = why ? src_text(g->src) : "";
    if (TP_UNLIKELY(Py_TYPE(o) != t->type))
        return MISS("expected type of '%s' to be a tensor type, ' but found %s", name, Py_TYPE(o)->tp_name);
    const tp_tensor *x = py_tensor(o);
    if (TP_UNLIKELY(x->dt != t->dt))
        return MISS("tensor '%s' dtype mismatch. expected %s, actual %s", name, cname((dtype)t->dt),
                    cname((dtype)x->dt));
    if (TP_UNLIKELY(!device_eq(tensor_device(x), t->dev)))
        return MISS("tensor '%s' Tensor device index mismatch. Expected device index to be %d, actual %d",
                    name, t->dev.index, tensor_device(x).index);
    if (TP_UNLIKELY(grad_requires_grad(x) != t->requires_grad))
        return MISS("tensor '%s' requires_grad mismatch. expected requires_grad=%d", name, t->requires_grad);
    if (TP_UNLIKELY(((x->flags & TF_inference) != 0) != t->inference))
        return MISS("tensor '%s' is_inference mismatch. expected is_inference=%d", name, t->inference);
    if (TP_UNLIKELY(t->unwatched && !grad_is_unwatched(x)))
        return MISS("tensor '%s' has hooks now, and its gradient is computed in the graph", name);
    if (TP_UNLIKELY(t->bare && !grad_is_bare_leaf(x)))
        return MISS(
            "tensor '%s' is no longer a leaf without hooks, and its gradient is computed in the graph", name);
    if (TP_UNLIKELY(t->computed && !grad_is_writable(x)))
        return MISS("tensor '%s' is no longer computed, and the graph writes it where gradients are recorded",
                    name);
    if (TP_UNLIKELY(x->ndim != t->ndim))
        return MISS("tensor '%s' rank mismatch. expected %d, actual %d", name, t->ndim, x->ndim);
    for (int i = 0; i < t->ndim; i++)
        if (TP_UNLIKELY(t->size[i] >= 0 && x->size[i] != t->size[i]))
            return MISS("tensor '%s' size mismatch at index %d. expected %lld, actual %lld", name, i,
                        (long long)t->size[i], (long long)x->size[i]);
    for (int i = 0; i < t->ndim; i++)
        if (TP_UNLIKELY(t->stride[i] >= 0 && x->stride[i] != t->stride[i]))
            return MISS("tensor '%s' stride mismatch at index %d. expected %lld, actual %lld", name, i,
                        (long long)t->stride[i], (long long)x->stride[i]);
    if (g->n) { /* strides that follow from the sizes */
        int64_t want = 1;
        for (int i = t->ndim - 1; i >= 0; want *= MAX(x->size[i], 1), i--)
            if (TP_UNLIKELY(t->stride[i] < 0 && x->stride[i] != want && x->size[i] != 1))
                return MISS("tensor '%s' stride mismatch at index %d. expected %lld, actual %lld", name, i,
                            (long long)want, (long long)x->stride[i]);
    }
    return true;
}

/* Ranges by start, stop and step; sets in the order they are walked. */
static bool parts_equal(PyObject *a, PyObject *b)
{
    static const char *const parts[] = { "start", "stop", "step" };
    bool ok = true;
    if (Py_TYPE(a) == &PyRange_Type)
        for (int i = 0; ok && i < 3; i++) {
            PyObject *x = PyObject_GetAttrString(a, parts[i]), *y = PyObject_GetAttrString(b, parts[i]);
            ok = x && y && const_equal(x, y);
            Py_XDECREF(x);
            Py_XDECREF(y);
        }
    else {
        Py_ssize_t p = 0, q = 0;
        PyObject *x, *y;
        Py_hash_t h;
        ok = PySet_GET_SIZE(a) == PySet_GET_SIZE(b);
        while (ok && _PySet_NextEntry(a, &p, &x, &h))
            ok = _PySet_NextEntry(b, &q, &y, &h) && const_equal(x, y);
    }
    if (!ok)
        py_forget();
    return ok;
}
bool const_equal(PyObject *a, PyObject *b) /* same type and value; NaN equals NaN, -0.0 is not 0.0 */
{
    if (a == b)
        return true;
    if (Py_TYPE(a) != Py_TYPE(b))
        return false;
    if (PyFloat_CheckExact(a)) {
        double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
        return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y));
    }
    if (PyTuple_CheckExact(a)) {
        if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b))
            return false;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); i++)
            if (!const_equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i)))
                return false;
        return true;
    }
    if (PyComplex_CheckExact(a)) {
        Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
        return memcmp(&x, &y, sizeof x) == 0;
    }
    if (Py_TYPE(a) == &PyRange_Type ||
        PyAnySet_Check(a)) /* equal is not enough: what one reads of them counts */
        return parts_equal(a, b);
    PyTypeObject *base = PyLong_Check(a)      ? &PyLong_Type
                         : PyUnicode_Check(a) ? &PyUnicode_Type
                         : PyFloat_Check(a)   ? &PyFloat_Type
                                              : NULL;
    if (base && Py_TYPE(a) != base) { /* the value, whatever the class makes of == */
        if (base == &PyFloat_Type) {
            double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
            return memcmp(&x, &y, sizeof x) == 0;
        }
        PyObject *r = base->tp_richcompare(a, b, Py_EQ);
        bool same = r == Py_True;
        Py_XDECREF(r);
        py_forget();
        return same;
    }
    if (py_is_tensor(a) || type_is_python(Py_TYPE(a)))
        return false; /* only the same object is the same key; comparing would run code */
    int r = PyObject_RichCompareBool(a, b, Py_EQ);
    if (r > 0 && t_is_numpy_scalar(Py_TYPE(a)) && PyObject_IsTrue(a) == 0) {
        PyObject *x = PyObject_Str(a), *y = PyObject_Str(b); /* the sign of zero */
        r = x && y && !PyUnicode_Compare(x, y);
        Py_XDECREF(x);
        Py_XDECREF(y);
    }
    if (r < 0)
        py_forget();
    return r > 0;
}

static bool keys_equal(PyObject *keys, PyObject *d)
{
    Py_ssize_t p = 0, i = 0;
    PyObject *k;
    if (!PyDict_Check(d) || PyDict_GET_SIZE(d) != PyList_GET_SIZE(keys))
        return false;
    if (PyODict_Check(d) && PyList_GET_SIZE(keys) > 1) { /* its order is not that of the table */
        PyObject *now = dict_keys(d);
        bool ok = now != NULL;
        for (; ok && i < PyList_GET_SIZE(keys); i++)
            ok = const_equal(PyList_GET_ITEM(keys, i), PyList_GET_ITEM(now, i));
        Py_XDECREF(now);
        py_forget();
        return ok;
    }
    while (PyDict_Next(d, &p, &k, NULL)) {
        PyObject *w = PyList_GET_ITEM(keys, i++);
        if (k != w && !const_equal(k, w))
            return false;
    }
    return true;
}

static bool state_check(const guard *g, strbuf *why)
{
    state s = state_now(), *w = (state *)g->t;
    if (TP_LIKELY(s.grad_mode == w->grad_mode && s.deterministic == w->deterministic &&
                  s.inference == w->inference && s.default_dtype == w->default_dtype &&
                  s.autocast == w->autocast && s.hooks == w->hooks))
        return true;
    return MISS("GLOBAL_STATE changed: %s%s%s%s%s",
                s.grad_mode != w->grad_mode || s.inference != w->inference ? "grad_mode " : "",
                s.autocast != w->autocast ? "autocast " : "",
                s.deterministic != w->deterministic ? "deterministic_algorithms " : "",
                s.default_dtype != w->default_dtype ? "default_dtype " : "",
                s.hooks != w->hooks ? "saved_tensors_hooks " : "");
}

static Py_ssize_t length(PyObject *o)
{
    if (PyTuple_Check(o))
        return PyTuple_GET_SIZE(o);
    if (PyList_Check(o))
        return PyList_GET_SIZE(o);
    if (PyDict_Check(o))
        return PyDict_GET_SIZE(o);
    if (PyType_IsSubtype(Py_TYPE(o), t_deque_type())) /* not what a class makes of it: guards run no code */
        return t_deque_type()->tp_as_sequence->sq_length(o);
    Py_ssize_t n = PyObject_Length(o);
    if (n < 0)
        py_forget();
    return n;
}

/* What the guard that failed last found, when that can be said in a word: for the trace, which tells old and new. */
char guard_now[120];
static void note_now(PyObject *o)
{
    guard_now[0] = 0;
    if (!o || !(PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyBool_Check(o) || PyUnicode_CheckExact(o) ||
                o == Py_None))
        return;
    PyObject *r = PyObject_Repr(o);
    const char *t = r ? PyUnicode_AsUTF8(r) : NULL;
    if (t && strlen(t) < sizeof guard_now && !strchr(t, '\n'))
        snprintf(guard_now, sizeof guard_now, "%s", t);
    py_forget();
    Py_XDECREF(r);
}

static bool slot_is_empty(PyObject *o, PyObject *name)
{
    PyObject *d = _PyType_Lookup(Py_TYPE(o), name);
    PyObject *v = d && Py_TYPE(d) == &PyMemberDescr_Type ? PyObject_GenericGetAttr(o, name)
                                                         : Py_NewRef(Py_None);
    if (!v)
        py_forget();
    Py_XDECREF(v);
    return !v;
}

static bool check_one(const guard *g, PyObject **reg, strbuf *why)
{
    PyObject *o = g->src ? reg[g->src->id] : NULL, *d;
    bool ok;
    switch (g->kind) {
    case G_TENSOR_MATCH: return tensor_check(g, o, why);
    case G_NO_HASATTR:
        d = py_is_tensor(o) ? ((PyTensor *)o)->dict : inst_dict(o);
        ok = !d || !PyDict_GetItemWithError(d, g->obj);
        break;
    case G_NO_HOOKS: ok = guard_no_hooks(o); break;
    case G_MODULE_ATTR: ok = guard_module_attr(g, o); break;
    case G_HASATTR:
        d = inst_dict(o);
        ok = !(d && PyDict_GetItemWithError(d, g->obj)) &&
             (g->n ? slot_is_empty(o, g->obj) : !_PyType_Lookup(Py_TYPE(o), g->obj));
        break;
    case G_EQUALS_MATCH: ok = const_equal(g->obj, o); break;
    case G_BOOL_MATCH:
    case G_ID_MATCH: ok = o == g->obj; break;
    case G_NONE_MATCH: ok = o == Py_None; break;
    case G_TYPE_MATCH: ok = (PyObject *)Py_TYPE(o) == g->obj; break;
    case G_FUNCTION_MATCH:
        ok = PyFunction_Check(o) && PyFunction_GET_CODE(o) == g->obj && PyFunction_GET_GLOBALS(o) == g->obj2;
        break;
    case G_BUILTIN_MATCH:
        ok = PyCFunction_Check(o) && (intptr_t)((PyCFunctionObject *)o)->m_ml == g->n;
        break;
    case G_SEQUENCE_LENGTH: ok = length(o) == g->n; break;
    case G_DICT_KEYS_MATCH: ok = keys_equal(g->obj, o); break;
    case G_DICT_CONTAINS: /* of the instance: nothing there hides what the class has */
        d = inst_dict(o);
        ok = !d || !PyDict_GetItemWithError(d, g->obj);
        break;
    case G_SET_CONTAINS:
        ok = (Py_TYPE(o) == Py_TYPE(g->obj) || g->n) && PyAnySet_Check(o) && parts_equal(o, g->obj);
        break;
    case G_DUPLICATE_INPUT: ok = o == reg[g->src2->id]; break;
    case G_NOT_SAME: ok = o != reg[g->src2->id]; break;
    case G_GLOBAL_STATE: return state_check(g, why);
    default: ok = true;
    }
    if (!ok && why)
        note_now(o);
    return ok || MISS("%s", text_now(g));
}

static int by_pointer(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return x < y ? -1 : x > y;
}

/* No tensor may come in twice. */
static bool alias_check(const entry *e, PyObject **reg, strbuf *why)
{
    if (e->nin > 16) {
        PyObject **p = mem_alloc(sizeof *p * (size_t)e->nin);
        bool twice = false;
        for (int i = 0; i < e->nin; i++)
            p[i] = reg[e->in[i]->id];
        qsort(p, (size_t)e->nin, sizeof *p, by_pointer);
        for (int i = 1; i < e->nin; i++)
            twice |= p[i] == p[i - 1] && py_is_tensor(p[i]);
        free(p);
        if (!twice)
            return true;
    }
    for (int i = 1; i < e->nin; i++)
        for (int k = 0; k < i; k++)
            if (e->in[i] && e->in[k] && reg[e->in[i]->id] == reg[e->in[k]->id] &&
                py_is_tensor(reg[e->in[i]->id]))
                return MISS("Duplicate tensors found: [%s, %s]", src_text(e->in[k]), src_text(e->in[i]));
    return true;
}

/* Keys of sets and dictionaries, and containers one of which is changed: they were different objects. */
static bool apart_check(const entry *e, PyObject **reg, strbuf *why)
{
    size_t n = e->apart.n;
    PyObject *small[32], **p = n <= 32 ? small : mem_alloc(sizeof *p * n);
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        p[i] = reg[e->apart.at[i]->id];
    qsort(p, n, sizeof *p, by_pointer);
    for (size_t i = 1; ok && i < n; i++)
        ok = p[i] != p[i - 1];
    if (p != small)
        free(p);
    for (size_t i = 1; !ok && why && i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (reg[e->apart.at[i]->id] == reg[e->apart.at[k]->id])
                return MISS("%s is not %s", src_text(e->apart.at[k]), src_text(e->apart.at[i]));
    return ok;
}

/* A graph that writes to its inputs depends on which of them share memory. */
static void shares_of(const entry *e, PyObject *const *in, struct share *out)
{
    int n = e->nin;
    struct at {
        uintptr_t storage;
        int i;
    } *at = mem_alloc(sizeof *at * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++) {
        at[i].storage = in[i] && py_is_tensor(in[i]) ? (uintptr_t)py_tensor(in[i])->storage : (uintptr_t)i;
        at[i].i = i;
    }
    if (n > 1)
        qsort(at, (size_t)n, sizeof *at, by_pointer);
    for (int i = 0, from = 0; i < n; i++) {
        if (at[i].storage != at[from].storage)
            from = i;
        int first = at[from].i; /* qsort leaves equals in any order */
        for (int k = from; k < n && at[k].storage == at[from].storage; k++)
            first = MIN(first, at[k].i);
        PyObject *a = in[at[i].i], *b = in[first];
        out[at[i].i] = (struct share){ first, a && b && py_is_tensor(a) && py_is_tensor(b)
                                                  ? py_tensor(a)->offset - py_tensor(b)->offset
                                                  : 0 };
    }
    free(at);
}
void guard_shares(entry *e, PyObject *const *in)
{
    if (e->repeats || e->nin < 2)
        return;
    e->shares = arena_alloc(&e->mem, sizeof *e->shares * (size_t)e->nin);
    shares_of(e, in, e->shares);
}
static bool shares_check(const entry *e, PyObject **reg, strbuf *why)
{
    PyObject **in = mem_alloc(sizeof *in * (size_t)e->nin);
    struct share *now = mem_alloc(sizeof *now * (size_t)e->nin);
    int bad = -1;
    for (int i = 0; i < e->nin; i++)
        in[i] = reg[e->in[i]->id];
    shares_of(e, in, now);
    for (int i = 0; i < e->nin && bad < 0; i++)
        if (now[i].with != e->shares[i].with || now[i].offset != e->shares[i].offset)
            bad = i;
    for (int i = 0; i < e->nin && bad < 0; i++) { /* an array and its tensor are two storages */
        for (int k = 0; k < e->nin && bad < 0 && e->in[i]->kind == SRC_array; k++)
            if (k != i && in[i] && in[k] && py_is_tensor(in[i]) && py_is_tensor(in[k]) &&
                t_arrays_overlap(py_tensor(in[i]), py_tensor(in[k])))
                now[bad = i].with = k;
    }
    int with = bad < 0 ? 0 : now[bad].with != bad ? now[bad].with : e->shares[bad].with;
    free(in);
    free(now);
    return bad < 0 || MISS("check_no_aliasing(%s, %s)", src_text(e->in[with]), src_text(e->in[bad]));
}

static bool shape_check(const entry *e, PyObject **reg, int64_t *symval, strbuf *why)
{
    for (int i = 0; i < e->nsymval; i++) {
        PyObject *o = reg[e->symval[i].src->id];
        if (e->symval[i].dim < 0) {
            int over;
            symval[i] = PyLong_Check(o) ? PyLong_AsLongLongAndOverflow(o, &over) : 0;
            if (!PyLong_CheckExact(o) || over)
                return MISS("___check_type_id(%s, int)", src_text(e->symval[i].src));
        } else
            symval[i] = py_tensor(o)->size[e->symval[i].dim];
    }
    int bad = e->symguards ? sym_guards_check(e->symguards, symval) : -1;
    return bad < 0 || MISS("%s", sym_guards_at(e->symguards, bad)->text);
}

bool guard_check(entry *e, frame *f, PyObject **reg, int64_t *symval, strbuf *why, bool all)
{
    bool ok = true;
    if (TP_UNLIKELY(!looks_hold(e, why)))
        return false;
    for (int i = 0; i < e->nstep; i++) {
        const struct step *st = &e->steps[i];
        if (st->s) {
            reg[st->s->id] = src_eval(st->s, f, reg);
            if (TP_LIKELY(reg[st->s->id]))
                continue;
            if (why) {
                if (!ok)
                    strbuf_add(why, "; ");
                strbuf_addf(why, "%s is missing", src_text(st->s));
            }
            return false; /* what hangs below cannot be evaluated */
        }
        if (TP_LIKELY(check_one(st->g, reg, NULL)))
            continue;
        if (!why)
            return false;
        if (!ok)
            strbuf_add(why, "; ");
        check_one(st->g, reg, why);
        ok = false;
        if (!all || st->g->kind == G_TYPE_MATCH || st->g->kind == G_TENSOR_MATCH)
            return false;
    }
    if (ok && e->nin > 1 && !alias_check(e, reg, why))
        return false;
    if (ok && e->apart_moves && !apart_check(e, reg, why))
        return false;
    if (ok && e->shares && !shares_check(e, reg, why))
        return false;
    if (ok && e->nsymval && !shape_check(e, reg, symval, why))
        return false;
    return ok;
}

/* ---- the shortcut ----
 * Every change of a dict gives it a new version, unique in the process; so does every change of a class. When
 * the roots are the same objects and the dicts read below them have their old versions, everything that hangs
 * there is what it was: parents come first, so no dict is looked at that its parent does not keep alive. The
 * metadata of a tensor is no part of any dict: the tensors are watched, and looked at again when the epoch has
 * moved. */
#if !TP_PY314
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
static const uint64_t *version_place(PyObject *d) { return &((PyDictObject *)d)->ma_version_tag; }
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
uint64_t dict_version(PyObject *d) { return *version_place(d); }
#endif

#if TP_PY313
/* From 3.13 on attributes that lie in their object are set without a new version for the dict that shows them, and from
 * 3.14 on no dict has a version. Whoever watches the dict is told, and counts. A counter outlives its dict: the next one
 * there goes on with it. */
static map counters;
static int count_change(PyDict_WatchEvent event, PyObject *d, PyObject *key, PyObject *v)
{
    uint64_t *n = map_geti(&counters, (uintptr_t)d);
    if (n)
        ++*n;
    return 0;
}
static const uint64_t *dict_clock(PyObject *d) /* NULL: changes cannot be seen */
{
    static int watcher = -1;
#if TP_PY314
    uint64_t *known = watcher >= 0 && ((PyDictObject *)d)->_ma_watcher_tag >> watcher & 1
                          ? map_geti(&counters, (uintptr_t)d)
                          : NULL;
    if (known)
        return known;
#else
    if (!((PyDictObject *)d)->ma_values)
        return version_place(d);
#endif
    if (watcher < 0)
        watcher = PyDict_AddWatcher(count_change);
    if (watcher < 0 || PyDict_Watch(watcher, d) < 0) {
        py_forget();
        return NULL;
    }
    uint64_t *n = map_geti(&counters, (uintptr_t)d);
    if (!n) {
        map_puti(&counters, (uintptr_t)d, n = mem_zalloc(sizeof *n));
        *n = 1; /* 0: not known */
    }
    return n;
}
#if TP_PY314
uint64_t dict_version(PyObject *d)
{
    const uint64_t *n = dict_clock(d);
    return n ? *n : 0;
}
#endif
#else
static const uint64_t *dict_clock(PyObject *d) { return version_place(d); }
#endif

/* One more dict whose changes end the shortcut. */
static bool cut_dict(struct shortcut *c, map *seen, PyObject *d)
{
    if (!d || map_puti(seen, (uint64_t)(uintptr_t)d, c))
        return true;
    const uint64_t *clock = dict_clock(d);
    if (!clock)
        return false;
    c->dicts[c->ndict++] = (struct vdict){ clock, *clock };
    return true;
}

static bool cacheable(const source *s)
{
    switch (s->kind) {
    case SRC_instattr:
    case SRC_dict:
    case SRC_key:
    case SRC_typeattr:
        return s->base && (s->base->cached || (s->base->kind == SRC_local && s->kind != SRC_key));
    default: return false;
    }
}

static bool watched(const entry *e, const source *s) /* one of the remembered tensors? */
{
    for (int q = s->guards; q; q = e->guards.at[q - 1].older)
        if (e->guards.at[q - 1].kind == G_TENSOR_MATCH)
            return s->cached;
    return false;
}

/* Must it be looked at each time although its object is the same? */
static bool always(const entry *e, const guard *g)
{
    return (g->src2 && !g->src2->cached) || g->kind == G_SEQUENCE_LENGTH || g->kind == G_SET_CONTAINS ||
           g->kind == G_TENSOR_MATCH || (g->kind == G_DICT_KEYS_MATCH && g->n) ||
           (g->kind == G_HASATTR && g->n) || (g->kind == G_NO_HASATTR && !watched(e, g->src));
}

static bool parent(const entry *e, const source *s) /* does something cached hang on it? */
{
    for (size_t i = (size_t)s->id + 1; i < e->sources.n; i++)
        if (e->sources.at[i]->base == s && e->sources.at[i]->cached)
            return true;
    return false;
}

static bool on_cached(const struct step *st) /* reads something that only the dict versions vouch for */
{
    if (st->g && st->g->src2)
        return true;
    for (const source *s = st->s ? st->s : st->g->src; s; s = s->base)
        if (s->cached)
            return true;
    return false;
}

static void watch(tp_tensor *t)
{
    t->flags |= TF_watched;
    if (t->base)
        t->base->flags |= TF_watched;
}

/* Remembers a walk that just succeeded. */
static void cut_make(entry *e, PyObject **reg)
{
    struct shortcut *c = &e->cut;
    size_t ns = e->sources.n;
    if (!c->reg) { /* the lists are of one size for the entry's life */
        int ncached = 0;
        for (size_t i = 0; i < ns; i++) {
            source *s = e->sources.at[i];
            s->cached = s->used && cacheable(s);
            ncached += s->cached;
        }
        if (ncached < 12) {
            c->nstep = -1;
            c->reg = arena_alloc(&e->mem, sizeof *c->reg);
            return;
        }
        e->has_cut = true;
        c->reg = arena_alloc(&e->mem, sizeof *c->reg * (ns + 1));
        c->steps = arena_alloc(&e->mem, sizeof *c->steps * (size_t)MAX(e->nstep, 1));
        c->dicts = arena_alloc(&e->mem, sizeof *c->dicts * (3 * ns + PY_MODULE_HOOKS * e->guards.n + 1));
        c->types = arena_alloc(&e->mem, sizeof *c->types * (ns + 1));
        c->roots = arena_alloc(&e->mem, sizeof *c->roots * (ns + 1));
        c->tensors = arena_alloc(&e->mem, sizeof *c->tensors * (e->guards.n + 1));
        c->objects = arena_alloc(&e->mem, sizeof *c->objects * (e->guards.n + 1));
        c->fixed = arena_alloc(&e->mem, sizeof *c->fixed * (size_t)MAX(e->nin, 1));
        c->loose = arena_alloc(&e->mem, sizeof *c->loose * (size_t)MAX(e->nin, 1));
        for (int late = 0; late < 2; late++) {
            for (int i = 0; i < e->nstep; i++) {
                struct step *st = &e->steps[i];
                if (on_cached(st) != (late == 1))
                    continue;
                if (st->s ? st->s->cached : st->g->src && st->g->src->cached && !always(e, st->g))
                    continue;
                if (st->g && st->g->kind == G_TENSOR_MATCH && st->g->src->cached)
                    c->tensors[c->ntensor++] = st->g;
                else
                    c->steps[c->nstep++] = *st;
            }
            if (!late)
                c->nearly = c->nstep;
        }
        for (int i = 0; i < e->nin; i++)
            if (!e->in[i]->cached)
                c->loose[c->nloose++] = i;
    }
    if (!e->has_cut)
        return;
    map seen = { 0 };
    bool seen_all = true;
    memcpy(c->reg, reg, sizeof *reg * ns);
    c->ndict = c->ntype = c->nroot = c->nfixed = 0;
    for (size_t i = 0; i < ns; i++) {
        source *s = e->sources.at[i];
        if (!s->used)
            continue;
        if (!s->cached) {
            if (s->kind == SRC_local && !py_is_tensor(reg[i]) && !PyTuple_CheckExact(reg[i]) &&
                !PyDict_CheckExact(reg[i]) && parent(e, s))
                c->roots[c->nroot++] = (struct vroot){ s->id, reg[i] };
            continue;
        }
        PyObject *b = reg[s->base->id], *d = NULL;
        if (s->kind == SRC_key)
            d = b;
        else if (!PyType_Check(b))
            d = PyModule_Check(b) ? PyModule_GetDict(b) : inst_dict(b);
        if (!d && !PyType_Check(b) && (Py_TYPE(b)->tp_flags & Py_TPFLAGS_MANAGED_DICT)) {
            c->ready = false; /* attributes without a dict have no version: they are looked at each time */
            map_free(&seen);
            return;
        }
        seen_all &= cut_dict(c, &seen, d);
        PyTypeObject *tp = PyType_Check(b) ? (PyTypeObject *)b : Py_TYPE(b);
        if (s->kind != SRC_key && !map_puti(&seen, (uint64_t)(uintptr_t)b | 1, e)) {
            if (!tp->tp_version_tag) {
                c->ready = false;
                map_free(&seen);
                return;
            }
            c->types[c->ntype++] = (struct vtype){ b, tp, tp->tp_version_tag };
        }
        /* the contents of a dict that is itself a value: its keys are guarded; absent attributes likewise */
        PyObject *o = reg[i];
        for (int q = s->guards; q; q = e->guards.at[q - 1].older) {
            const guard *g = &e->guards.at[q - 1];
            bool module = g->kind == G_NO_HOOKS || g->kind == G_MODULE_ATTR;
            PyObject *od = module || g->kind == G_HASATTR || g->kind == G_DICT_CONTAINS ? inst_dict(o) : NULL,
                     *parts[PY_MODULE_HOOKS];
            seen_all &= cut_dict(c, &seen, od);
            for (int k = module ? guard_module_dicts(g, o, parts) : 0; k-- > 0;)
                seen_all &= cut_dict(c, &seen, parts[k]);
        }
        seen_all &= cut_dict(c, &seen, PyDict_Check(o) ? o : NULL);
    }
    for (int i = 0; i < c->ntensor; i++) {
        PyObject *o = reg[c->tensors[i]->src->id], *d = ((PyTensor *)o)->dict;
        c->objects[i] = (struct vtensor){ o, d, Py_TYPE(o), py_tensor(o) };
        seen_all &= cut_dict(c, &seen, d);
        watch(py_tensor(o));
    }
    c->epoch = __atomic_load_n(&tensor_epoch, __ATOMIC_ACQUIRE);
    for (int i = 0; i < e->nin; i++)
        if (e->in[i]->cached)
            c->fixed[c->nfixed++] = reg[e->in[i]->id];
    map_free(&seen);
    c->ready = seen_all;
}

static bool cut_walk(struct shortcut *c, int from, int to, frame *f, PyObject **reg)
{
    for (int i = from; i < to; i++) {
        const struct step *st = &c->steps[i];
        if (st->s) {
            if (TP_UNLIKELY(!(reg[st->s->id] = src_eval(st->s, f, reg))))
                return false;
        } else if (TP_UNLIKELY(!check_one(st->g, reg, NULL)))
            return false;
    }
    return true;
}

static bool same_storage(PyObject *a, PyObject *b) /* b is a tensor */
{
    return py_is_tensor(a) && py_tensor(a)->storage == py_tensor(b)->storage;
}

static bool cut_check(entry *e, frame *f, int64_t *symval)
{
    struct shortcut *c = &e->cut;
    PyObject **reg = c->reg;
    if (!looks_hold(e, NULL) || !cut_walk(c, 0, c->nearly, f, reg))
        return false;
    for (int i = 0; i < c->nroot; i++)
        if (TP_UNLIKELY(reg[c->roots[i].reg] != c->roots[i].o))
            return false;
    for (int i = 0; i < c->ndict; i++)
        if (TP_UNLIKELY(*c->dicts[i].clock != c->dicts[i].version))
            return false;
    for (int i = 0; i < c->ntype; i++) {
        const struct vtype *t = &c->types[i];
        if (TP_UNLIKELY((!PyType_Check(t->o) && Py_TYPE(t->o) != t->type) ||
                        t->type->tp_version_tag != t->version))
            return false;
    }
    if (!cut_walk(c, c->nearly, c->nstep, f, reg)) /* from here on what was remembered is known to be alive */
        return false;
    for (int i = 0; i < c->ntensor; i++) {
        const struct vtensor *v = &c->objects[i];
        const PyTensor *o = (PyTensor *)v->o;
        if (TP_UNLIKELY(o->t != v->t || o->dict != v->dict || Py_TYPE(v->o) != v->type))
            return false;
    }
    uint64_t epoch = __atomic_load_n(&tensor_epoch, __ATOMIC_ACQUIRE);
    if (TP_UNLIKELY(epoch != c->epoch)) {
        if (e->shares)
            return false;
        for (int i = 0; i < c->ntensor; i++) {
            if (!tensor_check(c->tensors[i], c->objects[i].o, NULL))
                return false;
            watch(c->objects[i].t);
        }
        c->epoch = epoch;
    }
    for (int k = 0; k < c->nloose; k++) {
        PyObject *x = reg[e->in[c->loose[k]]->id];
        if (!py_is_tensor(x))
            continue;
        for (int i = 0; i < c->nfixed; i++)
            if (TP_UNLIKELY(c->fixed[i] == x || (e->shares && same_storage(c->fixed[i], x))))
                return false;
        for (int i = 0; i < k; i++) {
            PyObject *y = reg[e->in[c->loose[i]]->id];
            if (TP_UNLIKELY(y == x || (e->shares && same_storage(y, x))))
                return false;
        }
    }
    if (e->apart_moves && !apart_check(e, reg, NULL))
        return false;
    return !e->nsymval || shape_check(e, reg, symval, NULL);
}

bool guard_fast(entry *e, frame *f, PyObject **reg, int64_t *symval, PyObject ***out)
{
    if (e->cut.ready && cut_check(e, f, symval)) {
        *out = e->cut.reg;
        if (!e->plain) { /* used after the graph ran, when another thread may be here */
            memcpy(reg, e->cut.reg, sizeof *reg * e->sources.n);
            *out = reg;
        }
        return true;
    }
    *out = reg;
    if (!guard_check(e, f, reg, symval, NULL, false))
        return false;
    if (e->cut.nstep >= 0)
        cut_make(e, reg);
    return true;
}

/* ---- printing ---- */
static const char *const kind_names[] = {
#define GUARD(id) #id,
#include "capture/guard.def"
};

static void line(strbuf *b, int depth, const char *kind, const char *text, const char *where)
{
    for (int i = 0; i < depth; i++)
        strbuf_add(b, "| ");
    if (where)
        strbuf_addf(b, "+- %s: %-60s  # %s\n", kind, text, where);
    else
        strbuf_addf(b, "+- %s: %s\n", kind, text);
}

static void print_source(strbuf *b, const entry *e, const source *s, int depth)
{
    static const char *const how[] = {
        [SRC_local] = "DictGetItemGuardAccessor",     [SRC_stack] = "DictGetItemGuardAccessor",
        [SRC_global] = "DictGetItemGuardAccessor",    [SRC_const] = "ConstantAccessor",
        [SRC_instattr] = "GetAttrGuardAccessor",      [SRC_attr] = "GetAttrGuardAccessor",
        [SRC_typeattr] = "GetAttrGuardAccessor",      [SRC_item] = "ListGetItemGuardAccessor",
        [SRC_key] = "DictGetItemGuardAccessor",       [SRC_dictkey] = "DictKeyGuardAccessor",
        [SRC_cell] = "CellContentsGuardAccessor",     [SRC_closure] = "FuncClosureGuardAccessor",
        [SRC_default] = "FuncDefaultsGuardAccessor",  [SRC_kwdefault] = "FuncKwDefaultsGuardAccessor",
        [SRC_dict] = "GetGenericDictGuardAccessor",   [SRC_func] = "MethodFuncGuardAccessor",
        [SRC_self] = "MethodSelfGuardAccessor",       [SRC_type] = "TypeGuardAccessor",
        [SRC_deque] = "ListGetItemGuardAccessor",     [SRC_proxied] = "MappingProxyGuardAccessor",
        [SRC_subclasses] = "SubclassesGuardAccessor", [SRC_cached] = "CacheGuardAccessor",
        [SRC_array] = "ArrayGuardAccessor",           [SRC_number] = "FloatTensorGuardAccessor",
    };
    if (!s->used)
        return;
    for (int i = 0; i < depth; i++)
        strbuf_add(b, "| ");
    strbuf_addf(b, "+- GuardManager: source=%s, accessed_by=%s", src_text(s), how[s->kind]);
    if (s->kind == SRC_local)
        strbuf_addf(b, "(%s)", PyUnicode_AsUTF8(PyTuple_GET_ITEM(e->r->cc->localsplus, s->index)));
    else if (s->key && PyUnicode_Check(s->key))
        strbuf_addf(b, "(%s)", PyUnicode_AsUTF8(s->key));
    else if (s->kind == SRC_item || s->kind == SRC_stack || s->kind == SRC_closure)
        strbuf_addf(b, "(%d)", s->index);
    strbuf_add(b, "\n");
    for (size_t i = 0; i < e->guards.n; i++)
        if (e->guards.at[i].src == s)
            line(b, depth + 1, kind_names[e->guards.at[i].kind], text_now(&e->guards.at[i]),
                 e->guards.at[i].where);
    for (size_t i = 0; i < e->sources.n; i++)
        if (e->sources.at[i]->base == s)
            print_source(b, e, e->sources.at[i], depth + 1);
}

static void apart_put(strbuf *b, const entry *e)
{
    strbuf_add(b, "___check_distinct(");
    for (size_t i = 0; i < e->apart.n; i++) {
        strbuf_add(b, i ? ", " : "");
        strbuf_add(b, src_text(e->apart.at[i]));
    }
    strbuf_addc(b, ')');
}

void guard_print(strbuf *b, const entry *e)
{
    strbuf_add(b, "TREE_GUARD_MANAGER:\n+- RootGuardManager\n");
    for (size_t i = 0; i < e->guards.n; i++)
        if (!e->guards.at[i].src)
            line(b, 1, kind_names[e->guards.at[i].kind], text_now(&e->guards.at[i]), e->guards.at[i].where);
    if (e->symguards)
        for (int i = 0; i < sym_guards_n(e->symguards); i++) {
            const sym_guard_text *t = sym_guards_at(e->symguards, i);
            line(b, 1, "SHAPE_ENV", t->text, t->where && *t->where ? t->where : NULL);
        }
    if (e->apart_moves) {
        strbuf apart = { 0 };
        apart_put(&apart, e);
        line(b, 1, kind_names[G_NOT_SAME], strbuf_str(&apart), NULL);
        strbuf_free(&apart);
    }
    looks_print(b, e, line);
    for (size_t i = 0; i < e->sources.n; i++)
        if (!e->sources.at[i]->base)
            print_source(b, e, e->sources.at[i], 1);
}

/* Guards of one line follow each other: their stack is written once and copied. */
typedef struct stack_text {
    const char *file, *fn;
    int line;
    strbuf text;
} stack_text;

static void json_guard(strbuf *b, const char *kind, const char *text, size_t n, const guard *g,
                       stack_text *last)
{
    strbuf_add(b, b->n > 1 ? ", {\"code\": " : "{\"code\": ");
    json_quote(b, text, n);
    strbuf_add(b, ", \"type\": \"");
    strbuf_add(b, kind);
    strbuf_add(b, "\", \"stack\": null, \"user_stack\": ");
    if (g && g->file) {
        if (last->file != g->file || last->fn != g->fn || last->line != g->line) {
            json_w w = { &last->text };
            strbuf_clear(&last->text);
            ev_json_stack(&w, &(ev_frame){ .file = g->file, .name = g->fn, .line = g->line }, 1);
            last->file = g->file, last->fn = g->fn, last->line = g->line;
        }
        strbuf_addn(b, last->text.s, last->text.n);
    } else
        strbuf_add(b, "null");
    strbuf_addc(b, '}');
}

static const char *own_text(guard_texts *t, const source *s)
{
    const char *text = s ? __atomic_load_n(&s->text, __ATOMIC_ACQUIRE) : "";
    if (text)
        return text;
    if (s->id < t->n && t->of[s->id])
        return t->of[s->id];
    const char *base = own_text(t, s->base);
    strbuf_clear(&t->one);
    source_put(&t->one, s, base);
    text = arena_strndup(&t->mem, t->one.s, t->one.n);
    if (s->id < t->n)
        t->of[s->id] = text;
    return text;
}

void guard_texts_init(guard_texts *t, const entry *e)
{
    *t = (guard_texts){ .n = (int)e->sources.n };
    t->of = ARENA_ARR(&t->mem, const char *, MAX(t->n, 1));
}

void guard_texts_free(guard_texts *t)
{
    strbuf_free(&t->one);
    arena_free(&t->mem);
}

void guard_json(strbuf *b, const entry *e, guard_texts *own) /* b is empty */
{
    strbuf text = { 0 };
    stack_text last = { 0 };
    strbuf_addc(b, '[');
    for (size_t i = 0; i < e->guards.n; i++) {
        strbuf_clear(&text);
        const guard *g = &e->guards.at[i];
        guard_put(&text, g, own_text(own, g->src), own_text(own, g->src2));
        json_guard(b, kind_names[e->guards.at[i].kind], strbuf_str(&text), text.n, &e->guards.at[i], &last);
    }
    strbuf_free(&text);
    for (int i = 0; e->symguards && i < sym_guards_n(e->symguards); i++) {
        const char *t = sym_guards_at(e->symguards, i)->text;
        json_guard(b, "SHAPE_ENV", t, strlen(t), NULL, &last);
    }
    strbuf_addc(b, ']');
    strbuf_free(&last.text);
}
