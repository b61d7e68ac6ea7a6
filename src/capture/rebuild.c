/* rebuild.c - the end of a trace: what must be rebuilt afterwards, and the code that rebuilds it. */
#include "aot/aot.h"
#include "capture/capture.h"
#include "ir/hop.h"
#include "ir/pass.h"

typedef struct PyTraceGen { /* the head of tcall.c's object */
    PyObject_HEAD frame f;
    PyObject **storage;
    PyObject *func;
    bool started;
} PyTraceGen;
typedef struct PyTraceSuper {
    PyObject_HEAD PyTypeObject *type;
    PyObject *obj;
} PyTraceSuper;

/* ---- making recipes ---- */
typedef struct rb {
    trace *t;
    entry *e;
    map seen; /* object -> recipe */
    map outs; /* object -> its number among the results of the graph + 1, for the first nouts */
    size_t nouts;
} rb;

static recipe *rebuild(rb *b, PyObject *o);

static recipe *make(rb *b, recipe_kind k, int n)
{
    recipe *r = ARENA_NEW(&b->e->mem, recipe);
    r->kind = (uint8_t)k;
    r->memo = -1;
    r->n = n;
    r->kid = arena_alloc(&b->e->mem, sizeof *r->kid * (size_t)MAX(n, 1));
    return r;
}
static recipe *konst(rb *b, PyObject *o)
{
    recipe *r = make(b, R_const, 0);
    r->obj = keep(b->e, o);
    return r;
}
static recipe *from_src(rb *b, source *s)
{
    recipe *r = make(b, R_src, 0);
    for (source *q = s; q; q = q->base)
        q->used = q->kept = true;
    r->index = s->id;
    return r;
}
static recipe *remember(rb *b, PyObject *o, recipe *r)
{
    r->memo = b->e->nmemo++;
    map_puti(&b->seen, (uint64_t)(uintptr_t)o, r);
    return r;
}
static bool kids(rb *b, recipe *r, int at, PyObject *const *v, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (!(r->kid[at + i] = rebuild(b, v[i])))
            return false;
    return true;
}

static recipe *dict_recipe(rb *b, PyObject *o, PyTypeObject *type);
/* A container of a user's class has attributes, too. */
static bool with_inst(rb *b, PyObject *o, recipe *r)
{
    PyObject *d = t_base(Py_TYPE(o)) ? inst_dict(o) : NULL;
    return !d || !PyDict_GET_SIZE(d) || (r->inst = dict_recipe(b, d, &PyDict_Type));
}

static recipe *dict_recipe(rb *b, PyObject *o, PyTypeObject *type)
{
    int i = 0;
    bool dd = PyType_IsSubtype(type, t_default_type());
    recipe *r = remember(b, o, make(b, R_dict, 2 * (int)PyDict_GET_SIZE(o)));
    r->obj = keep(b->e, (PyObject *)type);
    if (dd) {
        PyObject *fac = PyObject_GetAttrString(o, "default_factory");
        r->attrs = fac ? rebuild(b, fac) : NULL;
        Py_XDECREF(fac);
        if (!r->attrs)
            return NULL;
    }
    PyObject *keys = dict_keys(o);
    for (Py_ssize_t q = 0; keys && r && q < PyList_GET_SIZE(keys); q++) {
        PyObject *k = PyList_GET_ITEM(keys, q), *v = PyDict_GetItemWithError(o, k);
        if (!v || !(r->kid[i++] = rebuild(b, k)) || !(r->kid[i++] = rebuild(b, v)))
            r = NULL;
    }
    if (!keys)
        r = NULL;
    Py_XDECREF(keys);
    return r && with_inst(b, o, r) ? r : NULL;
}

/* Which result of the graph o is; it becomes one. */
static int out_index(rb *b, PyObject *o)
{
    trace *t = b->t;
    for (; b->nouts < t->outs.n; b->nouts++)
        map_puti(&b->outs, (uintptr_t)t->outs.at[b->nouts], (void *)(uintptr_t)(b->nouts + 1));
    uintptr_t i = (uintptr_t)map_geti(&b->outs, (uintptr_t)o);
    if (i)
        return (int)i - 1;
    vec_push(&t->outs, Py_NewRef(o));
    return (int)t->outs.n - 1;
}

static recipe *out_recipe(rb *b, PyObject *o)
{
    trace *t = b->t;
    recipe *r = make(b, R_out, 0);
    r->index = out_index(b, o);
    if (Py_TYPE(o) != &PyTensor_Type)
        r->obj = keep(b->e, (PyObject *)Py_TYPE(o));
    if (t->did_backward && grad_is_spent(py_tensor(o)))
        r->spent = arena_strdup(&b->e->mem, grad_node_name(grad_grad_fn(py_tensor(o), NULL, NULL)));
    remember(b, o, r);
    tp_tensor *g = grad_grad(py_tensor(o)); /* of a leaf made in the graph */
    if (g) {
        PyObject *go = py_wrap(tensor_ref(g));
        r->grad = go ? rebuild(b, go) : NULL;
        Py_XDECREF(go);
        if (!r->grad)
            return NULL;
    }
    PyObject *d = ((PyTensor *)o)->dict;
    if (d && PyDict_GET_SIZE(d) && !(r->attrs = dict_recipe(b, d, &PyDict_Type)))
        return NULL;
    return r;
}

/* A number that only the run knows: the graph returns it. */
static recipe *num_recipe(rb *b, PyObject *o)
{
    recipe *r = make(b, R_num, 0);
    PyObject *as = py_is_symfloat(o) ? py_symfloat_tensor(o) : o;
    r->index = out_index(b, as);
    r->n = py_is_symfloat(o) ? 'f' : sym_is_bool(py_symint_value(o)) ? 'b' : 'i';
    return remember(b, o, r);
}

/* o.__reduce__(), without the warning that itertools gives from 3.12 on. New reference or NULL. */
static PyObject *copy_plan(PyObject *o)
{
#if TP_PY312
    PyObject *w = PyImport_ImportModule("warnings"), *r = NULL,
             *cm = w ? PyObject_CallMethod(w, "catch_warnings", NULL) : NULL,
             *x = cm ? PyObject_CallMethod(cm, "__enter__", NULL) : NULL;
    if (x) {
        Py_XDECREF(PyObject_CallMethod(w, "simplefilter", "s", "ignore"));
        r = PyErr_Occurred() ? NULL : PyObject_CallMethod(o, "__reduce__", NULL);
        PyObject *e = PyErr_GetRaisedException();
        Py_XDECREF(PyObject_CallMethod(cm, "__exit__", "OOO", Py_None, Py_None, Py_None));
        PyErr_SetRaisedException(e);
    }
    Py_XDECREF(x);
    Py_XDECREF(cm);
    Py_XDECREF(w);
    return r;
#else
    return PyObject_CallMethod(o, "__reduce__", NULL);
#endif
}

static recipe *reduce(rb *b,
                      PyObject *o) /* builtin iterators and the like, by the protocol that copies them */
{
    PyObject *red = copy_plan(o);
    recipe *r = NULL;
    if (!red || !PyTuple_Check(red) || PyTuple_GET_SIZE(red) < 2 ||
        !PyTuple_Check(PyTuple_GET_ITEM(red, 1))) {
        py_forget();
        Py_XDECREF(red);
        return NULL;
    }
    PyObject *args = PyTuple_GET_ITEM(red, 1),
             *state = PyTuple_GET_SIZE(red) > 2 ? PyTuple_GET_ITEM(red, 2) : Py_None;
    keep(b->e, red); /* keeps the pieces' addresses unique while recipes are made */
    r = remember(b, o, make(b, R_call, (int)PyTuple_GET_SIZE(args)));
    r->obj = keep(b->e, PyTuple_GET_ITEM(red, 0));
    if (!kids(b, r, 0, &PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args)))
        r = NULL;
    else if (state != Py_None && !(r->attrs = rebuild(b, state)))
        r = NULL;
    Py_DECREF(red);
    return r;
}

static recipe *object_recipe(rb *b, PyObject *o)
{
    PyTypeObject *tp = Py_TYPE(o);
    if (t_is_array(o)) { /* NumPy's again */
        PyObject *fn = t_array_outside(), *x = PyObject_GetAttrString(o, "_t"),
                 *one = x ? PyObject_GetAttrString(o, "_scalar") : NULL;
        recipe *a = remember(b, o, make(b, R_call, 2));
        a->obj = keep(b->e, fn);
        keep(b->e, x);
        bool ok = fn && one && (a->kid[0] = rebuild(b, x)) && (a->kid[1] = konst(b, one));
        Py_XDECREF(fn);
        Py_XDECREF(x);
        Py_XDECREF(one);
        return ok ? a : NULL;
    }
    PyObject *d = inst_dict(o), *all = d ? PyDict_Copy(d) : PyDict_New();
    for (Py_ssize_t i = 0; all && i < PyTuple_GET_SIZE(tp->tp_mro); i++) { /* slots */
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(tp->tp_mro, i);
        PyObject *k, *v;
        Py_ssize_t p = 0;
        while (type_is_python(base) && PyDict_Next(type_dict(base), &p, &k, &v))
            if (Py_TYPE(v) == &PyMemberDescr_Type) {
                PyObject *x = PyObject_GetAttr(o, k);
                if (x)
                    PyDict_SetItem(all, k, x);
                else
                    py_forget();
                Py_XDECREF(x);
            }
    }
    recipe *r = remember(b, o, make(b, R_obj, 0));
    r->obj = keep(b->e, (PyObject *)tp);
    keep(b->e, all);
    r->attrs = all ? dict_recipe(b, all, &PyDict_Type) : NULL;
    Py_XDECREF(all);
    return r->attrs ? r : NULL;
}

/* The method of dictionaries that gives views of this type; NULL: it is none. */
static const char *view_method(const PyTypeObject *tp)
{
    return tp == &PyDictItems_Type || tp == &PyODictItems_Type     ? "items"
           : tp == &PyDictKeys_Type || tp == &PyODictKeys_Type     ? "keys"
           : tp == &PyDictValues_Type || tp == &PyODictValues_Type ? "values"
                                                                   : NULL;
}

static recipe *cannot(rb *b, PyObject *o, int born)
{
    trace *t = b->t;
    if (!t->broke && !PyErr_Occurred()) {
        t->live_at = born;
        t_break(t, BRK_live, "a live %s object cannot be rebuilt", Py_TYPE(o)->tp_name);
        t->quiet = true;
    }
    py_forget();
    return NULL;
}

static recipe *cannot(rb *b, PyObject *o, int born);
/* Numbers that depend on sizes or on tensors. */
static recipe *number_recipe(rb *b, PyObject *o)
{
    recipe *r;
    if (py_is_sizefloat(o)) { /* what the program keeps is a plain float */
        if (t_size_source(o))
            return from_src(b, t_size_source(o));
        if (t_size_of_inputs(o)) {
            PyObject *f = t_symfloat(t_size_value(o));
            keep(b->e, f);
            r = f ? num_recipe(b, f) : NULL;
            Py_XDECREF(f);
            return r;
        }
        PyObject *v = t_size_fixed(o);
        r = v ? konst(b, v) : NULL;
        Py_XDECREF(v);
        return r;
    }
    if (py_is_symfloat(o) || (py_is_symint(o) && sym_is_unbacked(py_symint_value(o))))
        return num_recipe(b, o);
    if (py_is_symint(o) &&
        sym_is_bool(py_symint_value(o))) /* a truth value that is kept becomes a guard after all */
        return konst(b, PyObject_IsTrue(o) ? Py_True : Py_False);
    r = make(b, R_sym, 0);
    r->index = (int)b->e->exprs.n;
    vec_push(&b->e->exprs, py_symint_value(o));
    return r;
}
static recipe *sequence_recipe(rb *b, PyObject *o, PyTypeObject *tp)
{
    recipe *r;
    if (tp == &PyTuple_Type) {
        if (!PyTuple_GET_SIZE(o))
            return konst(b, o);
        r = make(b, R_tuple, (int)PyTuple_GET_SIZE(o));
        if (!kids(b, r, 0, &PyTuple_GET_ITEM(o, 0), r->n))
            return NULL;
        return remember(b, o, r);
    }
    if (PyTuple_Check(o)) {
        r = make(b, R_tupletype, (int)PyTuple_GET_SIZE(o));
        r->obj = keep(b->e, (PyObject *)tp);
        return kids(b, r, 0, &PyTuple_GET_ITEM(o, 0), r->n) && with_inst(b, o, r) ? remember(b, o, r) : NULL;
    }
    r = remember(b, o, make(b, R_list, (int)PyList_GET_SIZE(o)));
    r->obj = keep(b->e, (PyObject *)tp);
    return kids(b, r, 0, ((PyListObject *)o)->ob_item, r->n) && with_inst(b, o, r) ? r : NULL;
}
static recipe *set_recipe(rb *b, PyObject *o, PyTypeObject *tp)
{
    recipe *r;
    PyObject *l = container_list(o);
    keep(b->e, l);
    r = l ? remember(b, o, make(b, R_set, (int)PyList_GET_SIZE(l))) : NULL;
    if (r)
        r->obj = keep(b->e, (PyObject *)tp);
    if (r && (!kids(b, r, 0, ((PyListObject *)l)->ob_item, r->n) || !with_inst(b, o, r)))
        r = NULL;
    Py_XDECREF(l);
    return r;
}
#if TP_PY314 /* what makes the annotations when they are first asked for */
#define ANNOTATE(f) (f)->func_annotate
#else
#define ANNOTATE(f) NULL
#endif
static recipe *func_recipe(rb *b, PyObject *o)
{
    recipe *r;
    PyFunctionObject *f = (PyFunctionObject *)o;
    bool attrs = f->func_dict && PyDict_GET_SIZE(f->func_dict);
    if (!f->func_closure && !f->func_defaults && !f->func_kwdefaults && !attrs)
        return konst(b, o);
    r = remember(b, o, make(b, R_func, 4));
    r->obj = keep(b->e, o);
    if (attrs && !(r->attrs = dict_recipe(b, f->func_dict, &PyDict_Type)))
        return NULL;
    if (!(r->kid[0] = rebuild(b, f->func_closure)) || !(r->kid[1] = rebuild(b, f->func_defaults)) ||
        !(r->kid[2] = rebuild(b, f->func_kwdefaults)) || !(r->kid[3] = rebuild(b, ANNOTATE(f))))
        return NULL;
    return r;
}
static recipe *generator_recipe(rb *b, PyObject *o)
{
    recipe *r;
    PyTraceGen *g = (PyTraceGen *)o;
    PyCodeObject *co = g->f.cc->co;
    if (g->started || co->co_kwonlyargcount || (co->co_flags & (CO_VARARGS | CO_VARKEYWORDS)))
        return cannot(b, o, t_gen_born(o));
    r = remember(b, o, make(b, R_call, co->co_argcount));
    r->attrs = make(b, R_null, 0);
    r->filled = true; /* the callee is built, too: kept in attrs */
    if (!(r->attrs = rebuild(b, g->func)))
        return NULL;
    return kids(b, r, 0, g->f.fast, co->co_argcount) ? r : NULL;
}
/* keys(), values() or items() of a dictionary: asked for again */
static recipe *view_recipe(rb *b, PyObject *o, const char *view)
{
    recipe *r;
    PyObject *d = (PyObject *)((_PyDictViewObject *)o)->dv_dict, *op = PyImport_ImportModule("operator");
    PyObject *mc = op ? PyObject_CallMethod(op, "methodcaller", "s", view) : NULL;
    Py_XDECREF(op);
    if (!mc)
        return NULL;
    r = remember(b, o, make(b, R_call, 1));
    r->obj = keep(b->e, mc);
    Py_DECREF(mc);
    return (r->kid[0] = rebuild(b, d)) ? r : NULL;
}
/* A bound builtin method: asked for again. */
static recipe *bound_recipe(rb *b, PyObject *o)
{
    recipe *r;
    PyObject *self = PyObject_GetAttrString(o, "__self__"), *name = PyObject_GetAttrString(o, "__name__");
    PyObject *ga = PyDict_GetItemString(PyEval_GetBuiltins(), "getattr");
    if (!self || !name || PyModule_Check(self) || PyType_Check(self)) {
        py_forget();
        Py_XDECREF(self);
        Py_XDECREF(name);
        return konst(b, o);
    }
    r = remember(b, o, make(b, R_call, 2));
    r->obj = keep(b->e, ga);
    keep(b->e, self);
    bool ok = (r->kid[0] = rebuild(b, self)) && (r->kid[1] = konst(b, name));
    Py_DECREF(self);
    Py_DECREF(name);
    return ok ? r : NULL;
}
static recipe *append_recipe(rb *b, PyObject *o) /* asked for again */
{
    recipe *r;
    PyObject *name = PyUnicode_InternFromString("append");
    r = remember(b, o, make(b, R_call, 2));
    r->obj = keep(b->e, PyDict_GetItemString(PyEval_GetBuiltins(), "getattr"));
    r->kid[0] = rebuild(b, t_appends_to(o));
    r->kid[1] = konst(b, name);
    Py_XDECREF(name);
    return r->kid[0] ? r : NULL;
}
static recipe *deque_recipe(rb *b, PyObject *o, PyTypeObject *tp)
{
    recipe *r;
    if (tp != t_deque_type())
        return cannot(b, o, 0);
    PyObject *l = container_list(o), *maxlen = PyObject_GetAttrString(o, "maxlen");
    keep(b->e, l);
    r = remember(b, o, make(b, R_call, 2));
    r->obj = keep(b->e, (PyObject *)tp);
    bool ok = l && maxlen && (r->kid[0] = rebuild(b, l)) && (r->kid[1] = konst(b, maxlen));
    Py_XDECREF(l);
    Py_XDECREF(maxlen);
    return ok ? r : NULL;
}
static recipe *rebuild(rb *b, PyObject *o)
{
    trace *t = b->t;
    if (!o)
        return make(b, R_null, 0);
    if (IS_LAZY(o))
        return ((PyLazy *)o)->src->kind == SRC_const ? konst(b, ((PyLazy *)o)->real)
                                                     : from_src(b, ((PyLazy *)o)->src);
    recipe *r = map_geti(&b->seen, (uint64_t)(uintptr_t)o);
    if (r)
        return r;
    if (t_behind(o))
        return rebuild(b, t_behind(o));
    if (Py_TYPE(o) == &PyTraceAppend_Type)
        return append_recipe(b, o);
    tobj *k = t_obj(t, o);
    source *s = k && k->outer ? k->outer : k ? k->src : NULL;
    if (s)
        return s->kind == SRC_const ? konst(b, k->real) : from_src(b, s);
    PyTypeObject *tp = Py_TYPE(o);
    if (py_is_tensor(o))
        return !tensor_is_fake(py_tensor(o)) ? konst(b, o)
               : py_tensor(o)->node && py_tensor(o)->rec == &t->rec &&
                       ((ir_node *)py_tensor(o)->node)->graph == t->g
                   ? out_recipe(b, o)
                   : cannot(b, o, 0);
    if (py_is_sizefloat(o) || py_is_symfloat(o) || py_is_symint(o))
        return number_recipe(b, o);
    if ((t_plain_const(o) && !PyFunction_Check(o) && tp != &PyTuple_Type) || t_is_numpy_scalar(tp))
        return konst(b, o);
    if (PyTuple_Check(o) || PyList_Check(o))
        return sequence_recipe(b, o, tp);
    if (PyDict_Check(o))
        return dict_recipe(b, o, tp);
    if (PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o)) /* of a user's class: immutable */
        return inst_dict(o) && PyDict_GET_SIZE(inst_dict(o)) ? cannot(b, o, 0) : konst(b, o);
    if (tp == &PySet_Type || tp == &PyFrozenSet_Type || t_base(tp) == &PySet_Type)
        return set_recipe(b, o, tp);
    if (tp == &PySlice_Type) {
        PySliceObject *s = (PySliceObject *)o;
        r = remember(b, o, make(b, R_slice, 3));
        return kids(b, r, 0, (PyObject *[]){ s->start, s->stop, s->step }, 3) ? r : NULL;
    }
    if (PyCell_Check(o)) {
        r = remember(b, o, make(b, R_cell, 1));
        return (r->kid[0] = rebuild(b, PyCell_GET(o))) ? r : NULL;
    }
    if (PyFunction_Check(o)) {
        PyObject *other = t_array_method(o);
        if (!other)
            return PyErr_Occurred() ? NULL : func_recipe(b, o);
        r = konst(b, other);
        Py_DECREF(other);
        return r;
    }
    if (PyMethod_Check(o)) {
        r = remember(b, o, make(b, R_method, 2));
        return kids(b, r, 0, (PyObject *[]){ PyMethod_GET_FUNCTION(o), PyMethod_GET_SELF(o) }, 2) ? r : NULL;
    }
    if (tp == &PyTraceGen_Type)
        return generator_recipe(b, o);
    if (tp == &PyTraceSuper_Type) {
        r = remember(b, o, make(b, R_call, 2));
        r->obj = keep(b->e, (PyObject *)&PySuper_Type);
        return kids(b, r, 0,
                    (PyObject *[]){ (PyObject *)((PyTraceSuper *)o)->type, ((PyTraceSuper *)o)->obj }, 2)
                   ? r
                   : NULL;
    }
    if (t_unproxied(o) != o) {
        r = remember(b, o, make(b, R_call, 1));
        r->obj = keep(b->e, (PyObject *)&PyDictProxy_Type);
        return (r->kid[0] = rebuild(b, t_unproxied(o))) ? r : NULL;
    }
    const char *view = view_method(tp);
    if (view)
        return view_recipe(b, o, view);
    if (tp == &PyCFunction_Type || tp == method_wrapper_type())
        return bound_recipe(b, o);
    if (PyExceptionInstance_Check(o) || !type_is_python(tp) || !strncmp(tp->tp_name, "functools.", 10) ||
        !strncmp(tp->tp_name, "operator.", 9) || PyType_IsSubtype(tp, t_deque_type())) {
        if (PyType_IsSubtype(tp, t_deque_type()))
            return deque_recipe(b, o, tp);
        int raised = PyExceptionInstance_Check(o) ? t_caught_at(t, o) : -1;
        if (raised >= 0)
            return cannot(b, o, raised);
        if ((r = reduce(b, o)))
            return r;
        return cannot(b, o, t->exc_at >= 0 ? t->exc_at : 0);
    }
    if (tp->tp_new == PyBaseObject_Type.tp_new || PyType_IsSubtype(tp, &PyBaseObject_Type)) {
        if (tp->tp_base && tp->tp_itemsize == 0 && !PyType_IsSubtype(tp, &PyDict_Type) &&
            !PyType_IsSubtype(tp, &PyList_Type))
            return object_recipe(b, o);
    }
    return cannot(b, o, 0);
}

/* ---- side effects ---- */
static recipe *cannot(rb *b, PyObject *o, int born);
static bool unchanged(PyObject *was, PyObject *is)
{
    return was == is || (IS_LAZY(was) && ((PyLazy *)was)->val == is);
}

static bool add_effect(rb *b, effect_kind k, recipe *target, PyObject *key, PyObject *value)
{
    effect fx = { .kind = (uint8_t)k, .target = target, .key = keep(b->e, key) };
    if (value && !(fx.value = rebuild(b, value)))
        return false;
    vec_push(&b->e->effects, fx);
    return true;
}

static recipe *target_of(rb *b, const tobj *k)
{
    return k->src->kind == SRC_const ? konst(b, k->real) : from_src(b, k->src);
}

/* An integer attribute that the region itself writes is a counter: should it differ next time, it becomes a
 * symbol instead of a constant that never comes again. */
static void counted(trace *t, const source *s)
{
    char key[320];
    snprintf(key, sizeof key, "written %s", src_text(s));
    PyObject *seen = region_seen(t->e->r);
    if (!seen || PyDict_SetItemString(seen, key, Py_True) < 0)
        py_forget();
}

static bool dict_effects(rb *b, tobj k)
{
    PyObject *key, *v, *was;
    Py_ssize_t p = 0, q = 0, at = 0;
    PyObject *k1, *v1, *now = dict_keys(k.abs);
    bool ordered = true;
    if (!now)
        return false;
    /* old keys that are still there must come first and in order; otherwise the dict is filled anew */
    while (PyDict_Next(k.snapshot, &q, &k1, &v1)) {
        if (!PyDict_Contains(k.abs, k1))
            continue;
        ordered = ordered && at < PyList_GET_SIZE(now) && PyList_GET_ITEM(now, at++) == k1;
    }
    if (!ordered) {
        PyObject *copy = PyDict_New();
        for (Py_ssize_t i = 0; copy && i < PyList_GET_SIZE(now); i++)
            if (PyDict_SetItem(copy, PyList_GET_ITEM(now, i),
                               PyDict_GetItemWithError(k.abs, PyList_GET_ITEM(now, i))) < 0)
                Py_CLEAR(copy);
        Py_DECREF(now);
        bool ok = copy && keep(b->e, copy) && add_effect(b, FX_dict, target_of(b, &k), NULL, copy);
        Py_XDECREF(copy);
        return ok;
    }
    for (p = 0; PyDict_Next(k.snapshot, &p, &key, &v);)
        if (!PyDict_Contains(k.abs, key) && !add_effect(b, FX_delitem, target_of(b, &k), NULL, key)) {
            Py_DECREF(now);
            return false;
        }
    bool ok = true;
    for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(now); i++) {
        key = PyList_GET_ITEM(now, i);
        v = PyDict_GetItemWithError(k.abs, key);
        was = PyDict_GetItemWithError(k.snapshot, key);
        if (was && unchanged(was, v))
            continue;
        PyObject *pair = PyTuple_Pack(2, key, v);
        ok = pair && keep(b->e, pair) && add_effect(b, FX_setitem, target_of(b, &k), NULL, pair);
        Py_XDECREF(pair);
        if (k.src->kind == SRC_dict && PyUnicode_Check(key) && (PyLong_CheckExact(v) || py_is_symint(v))) {
            counted(b->t, src_get(b->e, SRC_instattr, k.src->base, NULL, key, 0));
            counted(b->t, src_get(b->e, SRC_key, k.src, NULL, key, 0));
        }
    }
    Py_DECREF(now);
    return ok;
}

/* x.data = v, and the writes that x has seen since: they went to v in the graph. */
static bool data_effect(rb *b, tobj *k, PyObject *v)
{
    PyObject *f = PyObject_GetAttrString(py_module, "_replace_data"),
             *a = Py_BuildValue("(OOI)", k->abs, v, tensor_version(py_tensor(k->abs)) - k->data_at);
    keep(b->e, f);
    keep(b->e, a);
    bool ok = f && a && add_effect(b, FX_call, konst(b, f), NULL, a);
    Py_XDECREF(f);
    Py_XDECREF(a);
    return ok;
}

static bool effects(rb *b)
{
    trace *t = b->t;
    for (size_t i = 0; i < t->objs.n; i++) {
        tobj k = t->objs.at[i]; /* a copy: rebuilding may move the vector */
        size_t before = b->e->effects.n;
        if (!k.src)
            continue;
        if (k.tail && PyList_GET_SIZE(k.tail)) {
            PyObject *added = PyList_GetSlice(k.tail, 0,
                                              PyList_GET_SIZE(k.tail)); /* the tail stands for the list */
            bool ok = added && keep(b->e, added) && add_effect(b, FX_extend, target_of(b, &k), NULL, added);
            Py_XDECREF(added);
            if (!ok)
                return false;
        }
        if (k.container && k.snapshot) {
            if (PyDict_Check(k.abs)) {
                if (!dict_effects(b, k))
                    return false;
            } else if (PySet_Check(k.abs)) {
                PyObject *copy = PyObject_RichCompareBool(k.abs, k.snapshot, Py_EQ) == 0 ? PySet_New(k.abs)
                                                                                         : NULL;
                bool ok = !copy || (keep(b->e, copy) && add_effect(b, FX_set, target_of(b, &k), NULL, copy));
                Py_XDECREF(copy);
                if (!ok)
                    return false;
            } else {
                PyObject *now = container_list(k.abs);
                if (!now)
                    return false;
                bool same = now && PyList_GET_SIZE(now) == PyList_GET_SIZE(k.snapshot);
                for (Py_ssize_t q = 0; same && q < PyList_GET_SIZE(now); q++)
                    same = unchanged(PyList_GET_ITEM(k.snapshot, q), PyList_GET_ITEM(now, q));
                keep(b->e, now);
                bool ok = same || add_effect(b, FX_list, target_of(b, &k), NULL, now);
                Py_XDECREF(now);
                if (!ok)
                    return false;
            }
        }
        t->objs.at[i].changed = b->e->effects.n > before;
        PyObject *key, *v;
        Py_ssize_t p = 0;
        while (k.over && PyDict_Next(k.over, &p, &key, &v)) {
            bool del = v == t_deleted_mark();
            effect_kind fx = PyCell_Check(k.abs) ? (del ? FX_delcell : FX_cell)
                             : PyDict_Check(k.abs) &&
                                     !k.container /* a namespace; a user's dictionary has attributes */
                                 ? (del ? FX_delglobal : FX_global)
                                 : (del ? FX_delattr : FX_setattr);
            bool data = fx == FX_setattr && py_is_tensor(k.abs) &&
                        !PyUnicode_CompareWithASCIIString(key, "data") &&
                        tensor_version(py_tensor(k.abs)) != k.data_at;
            if (data ? !data_effect(b, &k, v) : !add_effect(b, fx, target_of(b, &k), key, del ? NULL : v))
                return false;
            if (fx == FX_setattr && k.cleared && k.src->kind != SRC_const && py_is_tensor(k.abs) &&
                !PyUnicode_CompareWithASCIIString(key, "grad"))
                b->e->effects.at[b->e->effects.n - 1].early = src_get(b->e, SRC_attr, k.src, NULL, key, 0);
            if (fx == FX_setattr && k.src->kind != SRC_const && (PyLong_CheckExact(v) || py_is_symint(v)))
                counted(t, src_get(b->e, SRC_instattr, k.src, NULL, key, 0));
        }
    }
    for (Py_ssize_t i = 0; t->params_seen && i < PyList_GET_SIZE(t->params_seen); i++) {
        PyObject *c = PyList_GET_ITEM(t->params_seen, i);
        if (!add_effect(b, FX_call, konst(b, PyTuple_GET_ITEM(c, 0)), NULL, PyTuple_GET_ITEM(c, 1)))
            return false;
    }
    for (int k = 0; k < DEV_COUNT; k++) {
        if (((CX->autocast ^ t->autocast) >> k & 1) == 0 && CX->autocast_dtype[k] == t->autocast_dtype[k])
            continue;
        PyObject *f = PyObject_GetAttrString(py_module, "_set_autocast"),
                 *v = Py_BuildValue("(sOO)", device_name((dev_kind)k),
                                    CX->autocast >> k & 1 ? Py_True : Py_False,
                                    py_dtype((dtype)CX->autocast_dtype[k]));
        keep(b->e, f);
        keep(b->e, v);
        bool ok = f && v && add_effect(b, FX_call, konst(b, f), NULL, v);
        Py_XDECREF(f);
        Py_XDECREF(v);
        if (!ok)
            return false;
    }
    return true;
}

static bool may_be_another(const tobj *k)
{
    return k->container && k->src && k->src->kind != SRC_const && k->src->kind != SRC_dict;
}

/* A container from outside that is changed must stay another one than those that were read: one check for all of them. */
static void distinct(trace *t)
{
    for (size_t i = 0; i < t->objs.n; i++) {
        tobj *k = &t->objs.at[i];
        for (size_t c = 0; k->changed && may_be_another(k) && c < t->objs.n; c++) {
            tobj *x = &t->objs.at[c];
            if (c != i && may_be_another(x) && Py_TYPE(x->abs) == Py_TYPE(k->abs)) {
                t_keep_apart(t, k);
                t_keep_apart(t, x);
            }
        }
    }
}

/* ---- the graph's end ---- */
static bool must_stay(const ir_node *n)
{
    if (n->kind == IR_opaque || n->kind == IR_output)
        return true;
    if (n->kind == IR_placeholder) {
        const tp_tensor *x = ir_type(n);
        if (n->val.kind == VAL_int)
            return true;
        return x && (!sym_all_const(x->size, x->ndim) || !sym_all_const(x->stride, x->ndim));
    }
    return n->kind == IR_call &&
           (n->variant != OPV_fn ||
            (op_row_of((op_id)n->op)->flags & (OPF_MUT | OPF_RAND | OPF_SYNC | OPF_CHECK)) || ir_decides(n));
}

/* May it raise, depending on the data? */
static bool may_fail(const ir_node *n)
{
    const op_row *row = n->kind == IR_call ? op_row_of((op_id)n->op) : NULL;
    const tp_tensor *x = row && (row->flags & OPF_FAILS) ? ir_type(n) : NULL;
    return x && (!(row->flags & OPF_PW) || !dtype_is_float((dtype)x->dt));
}

/* Whether a value was made at all is nothing that a write over it shows: where the first use of what may fail is a write,
 * a copy of it is one that nobody uses. */
static void copy_overwritten(ir_graph *g)
{
    static op_id clone = OP_COUNT;
    op_variant v;
    if (clone == OP_COUNT && !op_find("clone", 5, &clone, &v))
        return;
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        ir_node *first = NULL;
        for (const ir_use *u = n->uses; u && may_fail(n) && n->variant == OPV_fn; u = u->next)
            first = !first || u->user->id < first->id ? u->user : first;
        if (!first || first->kind != IR_call || !(op_row_of((op_id)first->op)->flags & OPF_MUT) ||
            first->arg[0].node != n)
            continue;
        tp_val arg[2] = { { .kind = VAL_node, .node = n }, vNone }, type = vNone;
        tp_err err = { 0 };
        if (!ir_infer(g, clone, OPV_fn, arg, &type, &err))
            continue;
        ir_node *copy = ir_add_call(g, clone, OPV_fn, arg, 2, type);
        copy->loc = n->loc;
        ir_insert_before(g, next, copy);
        int all = g->output->narg + 1;
        tp_val *out = mem_alloc(sizeof *out * (size_t)all);
        memcpy(out, g->output->arg, sizeof *out * (size_t)(all - 1));
        out[all - 1] = (tp_val){ .kind = VAL_node, .node = copy };
        ir_set_output(g, out, all);
        free(out);
    }
}

/* Results that nobody uses go, but for those whose making may fail: the graph returns them, which every stage respects. */
static void clean(ir_graph *g)
{
    VEC(ir_node *) checks = { 0 };
    for (ir_node *n = g->last, *prev; n; n = prev) {
        prev = n->prev;
        if (n->nuse || must_stay(n))
            continue;
        if (may_fail(n)) {
            vec_push(&checks, n);
            continue;
        }
        if (n->kind == IR_placeholder) {
            size_t i = 0;
            while (i < g->inputs.n && g->inputs.at[i] != n)
                i++;
            for (; i + 1 < g->inputs.n; i++)
                g->inputs.at[i] = g->inputs.at[i + 1];
            g->inputs.n--;
        }
        ir_erase(n);
    }
    map last = { 0 }; /* storage -> the last node that uses it, when a node that may fail writes it */
    IR_EACH (n, g)
        if (n->kind == IR_call && !n->nuse && must_stay(n) && may_fail(n))
            map_puti(&last, (uint64_t)(uintptr_t)ir_type(n)->storage, n);
    if (last.n) {
        IR_EACH (n, g) {
            const tp_tensor *own = n->kind == IR_placeholder || n->kind == IR_const ? ir_type(n) : NULL;
            if (own && map_geti(&last, (uint64_t)(uintptr_t)own->storage)) /* who sees it is not known */
                map_puti(&last, (uint64_t)(uintptr_t)own->storage, g->output);
            for (int i = 0; i < n->narg; i++) {
                const tp_tensor *x = n->arg[i].kind == VAL_node ? ir_type(n->arg[i].node) : NULL;
                ir_node *at = x ? map_geti(&last, (uint64_t)(uintptr_t)x->storage) : NULL;
                if (at && at != g->output)
                    map_puti(&last, (uint64_t)(uintptr_t)x->storage, n);
            }
        }
        IR_EACH (n, g)
            if (n->kind == IR_call && !n->nuse && must_stay(n) && may_fail(n) &&
                map_geti(&last, (uint64_t)(uintptr_t)ir_type(n)->storage) == n)
                vec_push(&checks, n);
    }
    map_free(&last);
    if (checks.n) {
        int n = g->output->narg, all = n + (int)checks.n;
        tp_val *out = mem_alloc(sizeof *out * (size_t)all);
        memcpy(out, g->output->arg, sizeof *out * (size_t)n);
        for (int i = n; i < all; i++)
            out[i] = (tp_val){ .kind = VAL_node, .node = checks.at[(size_t)(all - 1 - i)] };
        ir_set_output(g, out, all);
        free(out);
    }
    vec_free(&checks);
}

static bool repeats(const ir_graph *g, bool *random, map *written, bool *only_inputs);

/* May it run twice? A tensor that the graph made may become a leaf, and nested graphs that write nothing may run. */
static bool opaque_repeats(const ir_node *n, const map *outside, bool *random)
{
    if (aot_makes_leaf(n)) {
        const tp_tensor *x = ir_type(n->arg[0].node);
        return x && x->storage && !map_geti(outside, (uint64_t)(uintptr_t)x->storage);
    }
    if (ir_hop(n) == HOP_none) /* modes are as before when a graph has failed */
        return ir_switches_grad(n) || (n->target && strstr(n->target, "_set_inference_mode"));
    int sub[2];
    bool ok = true;
    for (int i = ir_hop_subs(n, sub); i-- > 0;) {
        map written = { 0 };
        bool only_inputs;
        ok &= repeats(n->arg[sub[i]].graph, random, &written, &only_inputs);
        map_free(&written);
    }
    return ok;
}

/* Does the graph write nothing but what it made itself? only_inputs: nothing else than that and inputs. */
static bool repeats(const ir_graph *g, bool *random, map *written, bool *only_inputs)
{
    map outside = { 0 };
    bool ok = true;
    *only_inputs = true;
    IR_EACH (n, g) {
        const tp_tensor *x = ir_type(n);
        if ((n->kind == IR_placeholder || n->kind == IR_const) && x && x->storage) {
            uint64_t at = (uint64_t)(uintptr_t)x->storage;
            map_puti(&outside, at, (void *)((uintptr_t)map_geti(&outside, at) + 1));
        }
    }
    IR_EACH (n, g) {
        if (n->kind == IR_opaque)
            *only_inputs &= opaque_repeats(n, &outside, random);
        if (n->kind != IR_call)
            continue;
        const op_row *row = op_row_of((op_id)n->op);
        *random |= (row->flags & OPF_RAND) != 0;
        for (int i = 0; i < n->narg; i++) {
            bool writes = row->schema.param[i].mutated || (i == 0 && ir_node_writes(n)) ||
                          n->variant == OPV_out;
            const tp_tensor *x = writes && n->arg[i].kind == VAL_node ? ir_type(n->arg[i].node) : NULL;
            uintptr_t inputs = x && x->storage
                                   ? (uintptr_t)map_geti(&outside, (uint64_t)(uintptr_t)x->storage)
                                   : 0;
            ok &= !inputs;
            if (inputs)
                map_puti(written, (uint64_t)(uintptr_t)x->storage, written);
        }
    }
    IR_EACH (n, g) {
        const tp_tensor *x = n->kind == IR_const ? ir_type(n) : NULL;
        *only_inputs &= !x || !x->storage || !map_geti(written, (uint64_t)(uintptr_t)x->storage);
    }
    map_free(&outside);
    return ok && *only_inputs;
}

/* Inputs on one memory: how far apart they begin is part of the graph, and counted from the first of them. */
static void place_inputs(trace *t)
{
    map least = { 0 }; /* storage -> offset + 1 */
    for (int pass = 0; pass < 2; pass++)
        for (size_t k = 0; k < t->objs.n; k++) {
            const tobj *o = &t->objs.at[k];
            if (!o->node || o->node->kind != IR_placeholder || !o->real || !py_is_tensor(o->real))
                continue;
            const tp_tensor *x = py_tensor(o->real);
            uintptr_t key = (uintptr_t)x->storage, at = (uintptr_t)map_geti(&least, key);
            tp_tensor *type = ir_type(o->node);
            if (pass == 0 && (!at || (uintptr_t)x->offset + 1 < at))
                map_puti(&least, key, (void *)((uintptr_t)x->offset + 1));
            else if (pass == 1 && type && !sym_is_expr(type->offset))
                type->offset = x->offset + 1 - (int64_t)at;
        }
    map_free(&least);
}

/* Can a call refuse its data after another has written? Keeping what is written costs a copy, so it is done only then. */
static bool fails_late(const ir_graph *g)
{
    bool wrote = false, late = false;
    IR_EACH (n, g) {
        uint32_t flags = n->kind == IR_call ? op_row_of((op_id)n->op)->flags : 0;
        late |= wrote && (flags & (OPF_FAILS | OPF_CHECK));
        wrote |= n->kind == IR_call && (n->variant == OPV_inplace || (flags & (OPF_MUT | OPF_INPONLY)));
        late |= n->kind == IR_call && (flags & OPF_FAILS) && n->variant == OPV_inplace;
    }
    return late;
}

static bool is_storage_of(const trace *t, const tp_storage *s) /* of an input, or of another result */
{
    for (size_t k = 0; k < t->g->inputs.n; k++) {
        const tp_tensor *x = ir_type(t->g->inputs.at[k]);
        if (x && x->storage == s)
            return true;
    }
    for (size_t k = 0; k < t->outs.n; k++)
        if (py_is_tensor(t->outs.at[k]) && py_tensor(t->outs.at[k])->storage == s)
            return true;
    return false;
}

/* Does x[i] of a tensor i leave the graph, and x as well? Under fullgraph it is a value of its own, as PyTorch has it. */
static bool pick_escapes(trace *t)
{
    for (size_t i = 0; i < t->picks.n; i++)
        if (t->picks.at[i].of_stale &&
            is_storage_of(t, t->picks.at[i].of)) { /* a write that did not reach x */
            t_pick_seen(t);
            return true;
        }
    for (size_t i = 0; t->picks.n && i < t->outs.n; i++) {
        const tp_storage *s = py_is_tensor(t->outs.at[i]) ? py_tensor(t->outs.at[i])->storage : NULL;
        bool seen = s && t_pick_is_stale(t, s);
        for (size_t k = 0; k < t->picks.n && !seen && !t->cfg->fullgraph; k++)
            seen = t->picks.at[k].to == s && is_storage_of(t, t->picks.at[k].of);
        if (seen) {
            t_pick_seen(t);
            return true;
        }
    }
    return false;
}

static void finish_graph(trace *t)
{
    entry *e = t->e;
    int n = (int)t->outs.n;
    tp_val *out = arena_alloc(&e->mem, sizeof *out * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++)
        out[i] = py_is_symint(t->outs.at[i])
                     ? vI(py_symint_value(t->outs.at[i]))
                     : (tp_val){ .kind = VAL_node, .node = py_tensor(t->outs.at[i])->node };
    ir_set_output(t->g, out, n);
    place_inputs(t);
    clean(t->g);
    copy_overwritten(t->g);
    e->nout = t->g->output->narg;
    e->data = arena_alloc(&e->mem, sizeof *e->data * (size_t)MAX(n, 1));
    for (int i = 0; i < n; i++)
        if (py_is_tensor(t->outs.at[i]) && (py_tensor(t->outs.at[i])->spare & AGF_data))
            e->data[e->ndata++] = i;
    e->nin = (int)t->g->inputs.n;
    e->in = arena_alloc(&e->mem, sizeof *e->in * (size_t)MAX(e->nin, 1));
    for (int i = 0; i < e->nin; i++)
        for (size_t k = 0; k < t->objs.n; k++)
            if (t->objs.at[k].node == t->g->inputs.at[i]) {
                e->in[i] = t->objs.at[k].src;
                for (source *s = e->in[i]; s; s = s->base)
                    s->used = true;
            }
    IR_EACH (x, t->g)
        x->data = NULL;
    IR_EACH (x, t->g)
        if (x->kind == IR_call) {
            uint32_t flags = op_row_of((op_id)x->op)->flags;
            e->checks |= (flags & OPF_CHECK) != 0;
            e->heads |= (flags & OPF_HEAD) != 0;
        }
    IR_EACH (x, t->g)
        e->nops += x->kind == IR_call || (x->kind == IR_opaque && x->val.kind != VAL_none) ||
                   ir_hop(x) != HOP_none || aot_makes_leaf(x);
    e->silent = arena_alloc(&e->mem, sizeof *e->silent * (size_t)MAX(e->nin, 1));
    for (int i = 0; i < e->nin && t->by_data.n; i++) {
        const tp_tensor *x = ir_type(t->g->inputs.at[i]);
        uint64_t at = x ? (uint64_t)(uintptr_t)x->storage : 0;
        if (x && map_geti(&t->by_data, at) && !map_geti(&t->counted, at))
            e->silent[e->nsilent++] = i;
    }
    map written = { 0 };
    bool only_inputs;
    e->repeats = repeats(t->g, &e->random, &written, &only_inputs);
    if (!e->repeats && only_inputs) {
        e->written = arena_alloc(&e->mem, sizeof *e->written * (size_t)MAX(e->nin, 1));
        for (int i = 0; i < e->nin; i++) {
            const tp_tensor *x = ir_type(t->g->inputs.at[i]);
            if (x && map_geti(&written, (uint64_t)(uintptr_t)x->storage))
                e->written[e->nwritten++] = i;
        }
        e->late = fails_late(t->g);
        e->undo = t->in_try && e->late; /* what it wrote is taken back, handlers see to the rest */
    }
    map_free(&written);
}

/* A gradient that the program set to None before it computed anything need not live while the graph runs, if nothing
 * that follows reads it. */
static void let_go_early(entry *e)
{
    for (size_t i = 0; i < e->effects.n; i++) {
        effect *fx = &e->effects.at[i];
        bool read = fx->early && fx->early->kept;
        for (int k = 0; k < e->nin && fx->early; k++)
            read |= e->in[k] == fx->early;
        if (read)
            fx->early = NULL;
        e->nearly += fx->early != NULL;
    }
}

bool rebuild_finish(trace *t, bool returned, PyObject *ret)
{
    entry *e = t->e;
    rb b = { .t = t, .e = e };
    bool ok = false;
    e->returns = returned;
    frame *f = t->outer;
    if (returned) {
        if (!(e->ret = rebuild(&b, ret)))
            goto done;
    } else {
        uint8_t *live = mem_zalloc((size_t)f->cc->nfast + 1);
        live_at(f->cc, f->ip, live);
        e->stop = f->ip;
        e->kwnames = f->kwnames;
        e->nlocal = f->cc->nfast;
        e->nstack = f->sp;
        e->local = arena_alloc(&e->mem, sizeof *e->local * (size_t)MAX(e->nlocal, 1));
        e->stack = arena_alloc(&e->mem, sizeof *e->stack * (size_t)MAX(e->nstack, 1));
        bool good = true;
        for (int i = 0; good && i < e->nlocal; i++) {
            PyObject *v = f->fast[i];
            e->local[i] = NULL;
            if (v && IS_LAZY(v) && ((PyLazy *)v)->src->kind == SRC_local && ((PyLazy *)v)->src->index == i)
                continue;
            tobj *k = v ? t_obj(t, v) : NULL;
            if (k && k->src && k->src->kind == SRC_local && k->src->index == i)
                continue;
            e->local[i] = live[i] ? rebuild(&b, v) : make(&b, R_null, 0);
            good = e->local[i] != NULL;
        }
        for (int i = 0; good && i < e->nstack; i++)
            good = (e->stack[i] = rebuild(&b, f->stack[i])) != NULL;
        for (int i = 0; good && i < e->nlocal; i++) /* what is there anyway stays: weak references see it */
            if (e->local[i] && e->local[i]->kind == R_null && !live[i] && f->fast[i] &&
                !IS_LAZY(f->fast[i]) && map_geti(&b.seen, (uint64_t)(uintptr_t)f->fast[i]))
                good = (e->local[i] = rebuild(&b, f->fast[i])) != NULL;
        free(live);
        if (!good)
            goto done;
    }
    if (!effects(&b))
        goto done;
    if (!t_hooks_stay_inside(t, NULL, 0))
        goto done;
    t_grad_finish(t);
    if (!t_gens_idle(t, &t->live_at)) {
        t_break(t, BRK_live, "a generator is alive inside try or with");
        t->quiet = true;
        goto done;
    }
    if (pick_escapes(t))
        goto done;
    distinct(t);
    finish_graph(t);
    let_go_early(e);
    e->plain = returned && e->ret->kind == R_out && !e->ret->obj && !e->ret->attrs && !e->ret->spent &&
               !e->ret->grad && !e->effects.n && e->nout == 1;
    ok = true;
done:
    map_free(&b.seen);
    map_free(&b.outs);
    if (!ok && !t->broke && !PyErr_Occurred())
        t_break(t, BRK_live, "the frame's state cannot be rebuilt");
    return ok;
}

/* ---- building ---- */
typedef struct build {
    PyObject **reg;
    tp_val *out;
    PyObject **outobj;
    int64_t *sym;
    PyObject **memo;
} build;

static PyObject *build_one(const recipe *r, build *b);

/* An attribute of the object itself, whatever its class has under that name. */
static int set_own(PyObject *o, PyObject *name, PyObject *v)
{
    PyObject *d = _PyType_Lookup(Py_TYPE(o), name);
    if (!d || !Py_TYPE(d)->tp_descr_set || Py_TYPE(d) == &PyMemberDescr_Type)
        return PyObject_GenericSetAttr(o, name, v);
    PyObject *own = PyObject_GenericGetDict(o, NULL);
    int rc = own ? PyDict_SetItem(own, name, v) : -1;
    Py_XDECREF(own);
    return rc;
}

static int set_attrs(PyObject *o, const recipe *d, build *b)
{
    for (int i = 0; i + 1 < d->n; i += 2) {
        PyObject *v = build_one(d->kid[i + 1], b);
        if (!v)
            return -1;
        int rc = set_own(o, d->kid[i]->obj, v);
        Py_DECREF(v);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static PyObject *build_num(const recipe *r, build *b)
{
    const tp_val *x = &b->out[r->index];
    if (r->n == 'f') {
        tp_tensor *f = b->outobj[r->index] ? py_tensor(b->outobj[r->index]) : x->t;
        if (f->numel != 1 || tensor_is_fake(f))
            return PyErr_Format(PyExc_TypeError, "a number of the graph is a Tensor of %lld elements",
                                (long long)f->numel);
        return PyFloat_FromDouble(elem_get_f((dtype)f->dt, tensor_host(f)));
    }
    return r->n == 'b' ? PyBool_FromLong(x->i != 0) : PyLong_FromLongLong(x->i);
}
static PyObject *build_out(const recipe *r, build *b)
{
    PyObject *o, *v;
    if (!b->outobj[r->index]) {
        tp_tensor *x = b->out[r->index].t;
        b->out[r->index] = vNone;
        tp_err err = { 0 };
        if (x && r->spent && !grad_set_spent(x, r->spent, &err)) {
            tensor_unref(x);
            return py_raise(&err);
        }
        b->outobj[r->index] = !x       ? Py_NewRef(Py_None)
                              : r->obj ? py_wrap_as((PyTypeObject *)r->obj, x)
                                       : py_wrap(x);
    }
    o = Py_XNewRef(b->outobj[r->index]);
    if (o && r->grad) {
        int rc = (v = build_one(r->grad, b)) ? PyObject_SetAttrString(o, "grad", v) : -1;
        Py_XDECREF(v);
        if (rc < 0)
            Py_CLEAR(o);
    }
    if (o && r->attrs && set_attrs(o, r->attrs, b) < 0)
        Py_CLEAR(o);
    return o;
}
static PyObject *build_tuple(const recipe *r, build *b)
{
    PyObject *o, *v;
    o = PyTuple_New(r->n);
    for (int i = 0; o && i < r->n; i++) {
        if (!(v = build_one(r->kid[i], b)))
            Py_CLEAR(o);
        else
            PyTuple_SET_ITEM(o, i, v);
    }
    if (o && r->kind == R_tupletype) {
        PyTypeObject *tp = (PyTypeObject *)r->obj;
        PyObject *args = PyTuple_Pack(1, o);
        Py_DECREF(o);
        o = !args                                             ? NULL
            : !strncmp(tp->tp_name, "taper.return_types", 18) ? tp->tp_new(tp, args, NULL)
                                                              : PyTuple_Type.tp_new(tp, args, NULL);
        Py_XDECREF(args);
    }
    if (o && r->inst && set_attrs(o, r->inst, b) < 0)
        Py_CLEAR(o);
    return o;
}
static PyObject *unmade(PyObject *o, PyObject **memo) /* what it holds could not be made */
{
    *memo = NULL;
    Py_DECREF(o);
    return NULL;
}
static PyObject *build_list(const recipe *r, build *b, PyObject **memo)
{
    PyObject *o, *v;
    o = r->obj && r->obj != (PyObject *)&PyList_Type ? t_new_derived(&PyList_Type, (PyTypeObject *)r->obj)
                                                     : PyList_New(0);
    if (!o)
        return NULL;
    *memo = o; /* before its elements: it may contain itself */
    for (int i = 0; i < r->n; i++) {
        v = build_one(r->kid[i], b);
        int rc = v ? PyList_Append(o, v) : -1;
        Py_XDECREF(v);
        if (rc < 0)
            return unmade(o, memo);
    }
    return r->inst && set_attrs(o, r->inst, b) < 0 ? unmade(o, memo) : o;
}
static PyObject *build_dict(const recipe *r, build *b, PyObject **memo)
{
    PyObject *o, *v;
    PyTypeObject *tp = (PyTypeObject *)r->obj, *base = t_base(tp);
    if (!(o = t_new_derived(base ? base : tp, tp)))
        return NULL;
    *memo = o;
    if (r->attrs) {
        v = build_one(r->attrs, b);
        int rc = v ? PyObject_SetAttrString(o, "default_factory", v) : -1;
        Py_XDECREF(v);
        if (rc < 0)
            return unmade(o, memo);
    }
    for (int i = 0; i + 1 < r->n; i += 2) {
        PyObject *k = build_one(r->kid[i], b);
        v = k ? build_one(r->kid[i + 1], b) : NULL;
        int rc = v ? dict_set(o, k, v) : -1;
        Py_XDECREF(k);
        Py_XDECREF(v);
        if (rc < 0)
            return unmade(o, memo);
    }
    return r->inst && set_attrs(o, r->inst, b) < 0 ? unmade(o, memo) : o;
}
static PyObject *build_set(const recipe *r, build *b)
{
    PyObject *o = NULL, *v;
    PyObject *l = PyList_New(0);
    for (int i = 0; l && i < r->n; i++) {
        v = build_one(r->kid[i], b);
        if (!v || PyList_Append(l, v) < 0)
            Py_CLEAR(l);
        Py_XDECREF(v);
    }
    if (l && r->obj != (PyObject *)&PyFrozenSet_Type) {
        o = t_new_derived(&PySet_Type, (PyTypeObject *)r->obj);
        if (o && (_PySet_Update(o, l) < 0 || (r->inst && set_attrs(o, r->inst, b) < 0)))
            Py_CLEAR(o);
    } else
        o = l ? PyFrozenSet_New(l) : NULL;
    Py_XDECREF(l);
    return o;
}
static PyObject *build_slice(const recipe *r, build *b)
{
    PyObject *o = NULL;
    PyObject *p[3] = { NULL, NULL, NULL };
    for (int i = 0; i < 3; i++)
        p[i] = build_one(r->kid[i], b);
    if (p[0] && p[1] && p[2])
        o = PySlice_New(p[0], p[1], p[2]);
    for (int i = 0; i < 3; i++)
        Py_XDECREF(p[i]);
    return o;
}
static PyObject *build_cell(const recipe *r, build *b, PyObject **memo)
{
    PyObject *o, *v;
    if (!(o = PyCell_New(NULL)))
        return NULL;
    *memo = o;
    if (r->kid[0]->kind != R_null) {
        if (!(v = build_one(r->kid[0], b)))
            return unmade(o, memo);
        PyCell_SET(o, v);
    }
    return o;
}
static PyObject *build_func(const recipe *r, build *b, PyObject **memo)
{
    PyObject *o, *v;
    PyFunctionObject *f = (PyFunctionObject *)r->obj;
    if (!(o = PyFunction_New(f->func_code, f->func_globals)))
        return NULL;
    *memo = o;
    PyFunctionObject *n = (PyFunctionObject *)o;
    PyObject **slot[3] = { &n->func_closure, &n->func_defaults, &n->func_kwdefaults };
    for (int i = 0; i < 3; i++)
        if (r->kid[i]->kind != R_null) {
            if (!(v = build_one(r->kid[i], b)))
                return unmade(o, memo);
            Py_XSETREF(*slot[i], v);
        }
    Py_XSETREF(n->func_name, Py_NewRef(f->func_name));
    Py_XSETREF(n->func_qualname, Py_NewRef(f->func_qualname));
    Py_XSETREF(n->func_doc, Py_XNewRef(f->func_doc));
    Py_XSETREF(n->func_module, Py_XNewRef(f->func_module));
    Py_XSETREF(n->func_annotations, Py_XNewRef(f->func_annotations));
#if TP_PY314
    if (r->kid[3]->kind != R_null) {
        if (!(v = build_one(r->kid[3], b)))
            return unmade(o, memo);
        Py_XSETREF(n->func_annotate, v);
    }
#endif
    if (r->attrs) {
        if (!(v = build_one(r->attrs, b)))
            return unmade(o, memo);
        Py_XSETREF(n->func_dict, v);
    }
    return o;
}
static PyObject *build_method(const recipe *r, build *b)
{
    PyObject *o, *v;
    PyObject *f = build_one(r->kid[0], b);
    v = f ? build_one(r->kid[1], b) : NULL;
    o = v ? PyMethod_New(f, v) : NULL;
    Py_XDECREF(f);
    Py_XDECREF(v);
    return o;
}
static PyObject *build_obj(const recipe *r, build *b, PyObject **memo)
{
    PyObject *o;
    PyTypeObject *tp = (PyTypeObject *)r->obj;
    PyObject *none = PyTuple_New(0);
    o = none ? PyBaseObject_Type.tp_new(tp, none, NULL) : NULL;
    Py_XDECREF(none);
    if (!o)
        return NULL;
    *memo = o;
    return set_attrs(o, r->attrs, b) < 0 ? unmade(o, memo) : o;
}
static PyObject *build_call(const recipe *r, build *b)
{
    PyObject *o = NULL, *v;
    PyObject *args[16] = { NULL }, *f = r->filled ? build_one(r->attrs, b) : Py_NewRef(r->obj);
    bool ok = f && r->n <= 16;
    for (int i = 0; ok && i < r->n; i++)
        ok = (args[i] = build_one(r->kid[i], b)) != NULL;
    if (ok)
        o = PyObject_Vectorcall(f, args, (size_t)r->n, NULL);
    for (int i = 0; i < r->n && i < 16; i++)
        Py_XDECREF(args[i]);
    Py_XDECREF(f);
    if (o && r->attrs && !r->filled) {
        v = build_one(r->attrs, b);
        PyObject *x = v ? (PyExceptionInstance_Check(o) && PyDict_Check(v)
                               ? PyObject_CallMethod(o, "__setstate__", "O", v)
                               : PyObject_CallMethod(o, "__setstate__", "(O)", v))
                        : NULL;
        if (!x)
            Py_CLEAR(o);
        Py_XDECREF(x);
        Py_XDECREF(v);
    }
    return o;
}
static PyObject *build_new(const recipe *r, build *b, PyObject **memo)
{
    switch (r->kind) {
    case R_const: return Py_NewRef(r->obj);
    case R_src: return Py_NewRef(b->reg[r->index]);
    case R_sym: return PyLong_FromLongLong(b->sym[r->index]);
    case R_num: return build_num(r, b);
    case R_out: return build_out(r, b);
    case R_tuple:
    case R_tupletype: return build_tuple(r, b);
    case R_list: return build_list(r, b, memo);
    case R_dict: return build_dict(r, b, memo);
    case R_set: return build_set(r, b);
    case R_slice: return build_slice(r, b);
    case R_cell: return build_cell(r, b, memo);
    case R_func: return build_func(r, b, memo);
    case R_method: return build_method(r, b);
    case R_obj: return build_obj(r, b, memo);
    case R_call: return build_call(r, b);
    default: PyErr_SetString(PyExc_SystemError, "a value that was never set was asked for"); return NULL;
    }
}

static PyObject *build_one(const recipe *r, build *b) /* new */
{
    PyObject *none = NULL, **slot = r->memo >= 0 ? &b->memo[r->memo] : &none;
    if (*slot)
        return Py_NewRef(*slot);
    PyObject *o = build_new(r, b, slot);
    if (o && r->memo >= 0) {
        b->memo[r->memo] = o; /* the memo's own count; the caller gets another */
        Py_INCREF(o);
    }
    return o;
}

static int apply(const effect *fx, PyObject *t, PyObject *v)
{
    switch (fx->kind) {
    case FX_extend: return PyList_SetSlice(t, PyList_GET_SIZE(t), PyList_GET_SIZE(t), v);
    case FX_list:
        if (PyList_Check(t))
            return PyList_SetSlice(t, 0, PyList_GET_SIZE(t), v);
        else {
            PyObject *dq = (PyObject *)t_deque_type(), *x = PyObject_CallMethod(dq, "clear", "O", t),
                     *y = x ? PyObject_CallMethod(dq, "extend", "OO", t, v) : NULL;
            Py_XDECREF(x);
            Py_XDECREF(y);
            return y ? 0 : -1;
        }
    case FX_dict: {
        PyObject *k, *x;
        Py_ssize_t p = 0;
        if (PyODict_Check(t)) {
            PyObject *r = PyObject_CallMethod((PyObject *)&PyODict_Type, "clear", "O", t);
            if (!r)
                return -1;
            Py_DECREF(r);
        } else
            PyDict_Clear(t);
        while (PyDict_Next(v, &p, &k, &x))
            if (dict_set(t, k, x) < 0)
                return -1;
        return 0;
    }
    case FX_set: {
        PyObject *copy = PySet_New(v);
        int rc = copy ? PySet_Clear(t) : -1;
        if (rc == 0)
            rc = _PySet_Update(t, copy);
        Py_XDECREF(copy);
        return rc;
    }
    case FX_setattr:
        return PyType_Check(t) || py_is_tensor(t) || !type_is_python(Py_TYPE(t))
                   ? PyObject_SetAttr(t, fx->key, v)
                   : PyObject_GenericSetAttr(t, fx->key, v);
    case FX_delattr:
        return py_is_tensor(t) ? PyObject_SetAttr(t, fx->key, NULL)
                               : PyObject_GenericSetAttr(t, fx->key, NULL);
    case FX_global: return PyDict_SetItem(t, fx->key, v);
    case FX_delglobal: return PyDict_DelItem(t, fx->key);
    case FX_cell: return PyCell_Set(t, v);
    case FX_delcell: return PyCell_Set(t, NULL);
    case FX_setitem: return dict_set(t, PyTuple_GET_ITEM(v, 0), PyTuple_GET_ITEM(v, 1));
    case FX_delitem: return dict_set(t, v, NULL);
    case FX_call: {
        PyObject *r = PyObject_CallObject(t, v);
        Py_XDECREF(r);
        return r ? 0 : -1;
    }
    }
    return 0;
}

static bool rebuild_state(entry *e, frame *f, build *b, PyObject **result)
{
    size_t nfx = e->effects.n, ns = (size_t)e->nstack;
    PyObject **tmp = mem_zalloc(sizeof *tmp * (2 * nfx + ns + (size_t)e->nlocal + 1)), **val = tmp + nfx,
             **st = val + nfx, **lo = st + ns;
    bool ok = false;
    for (size_t i = 0; i < nfx; i++)
        if (!(tmp[i] = build_one(e->effects.at[i].target, b)) ||
            (e->effects.at[i].value && !(val[i] = build_one(e->effects.at[i].value, b))))
            goto done;
    /* effects first: an iterator's position is kept only when its list has its new length already */
    for (size_t i = 0; i < nfx; i++)
        if (apply(&e->effects.at[i], tmp[i], val[i]) < 0)
            goto done;
    if (e->returns) {
        if (!(*result = build_one(e->ret, b)))
            goto done;
    } else {
        for (int i = 0; i < e->nstack; i++)
            if (e->stack[i]->kind != R_null && !(st[i] = build_one(e->stack[i], b)))
                goto done;
        for (int i = 0; i < e->nlocal; i++)
            if (e->local[i] && e->local[i]->kind != R_null && !(lo[i] = build_one(e->local[i], b)))
                goto done;
    }
    if (!e->returns) {
        for (int i = 0; i < e->nlocal; i++)
            if (e->local[i]) {
                PyObject *old = f->fast[i];
                f->fast[i] = lo[i];
                lo[i] = NULL;
                Py_XDECREF(old);
            }
        PyObject *old[256];
        int nold = 0;
        for (int i = 0; i < f->sp && nold < 256; i++)
            old[nold++] = f->stack[i];
        for (int i = 0; i < e->nstack; i++) {
            f->stack[i] = st[i];
            st[i] = NULL;
        }
        f->sp = e->nstack;
        for (int i = 0; i < nold; i++)
            Py_XDECREF(old[i]);
        f->ip = e->stop;
        f->kwnames = e->kwnames;
    }
    ok = true;
done:
    for (size_t i = 0; i < 2 * nfx + ns + (size_t)e->nlocal; i++)
        Py_XDECREF(tmp[i]);
    free(tmp);
    return ok;
}

static void count_regs(const entry *e, PyObject **reg, bool up)
{
    for (size_t i = 0; i < e->sources.n; i++)
        if (e->sources.at[i]->used) {
            if (up)
                Py_INCREF(reg[i]);
            else
                Py_DECREF(reg[i]);
        }
}

/* Gradients that the program drops first: the registers hold None for them from here on. had: which there were. */
static bool let_go(entry *e, PyObject **reg, bool *had)
{
    for (size_t i = 0; i < e->effects.n; i++) {
        effect *fx = &e->effects.at[i];
        if (!fx->early)
            continue;
        PyObject *t = reg[fx->target->index];
        had[i] = fx->early->used && reg[fx->early->id] != Py_None;
        Py_CLEAR(fx->early->held);
        if (fx->early->used) {
            Py_INCREF(Py_None);
            Py_SETREF(reg[fx->early->id], Py_None);
        }
        if (PyObject_SetAttr(t, fx->key, Py_None) < 0)
            return false;
    }
    return true;
}

/* The instructions will be executed from the start, where those gradients were there. Nothing reads their values: the graph
 * would have them as inputs. */
static void take_back(const entry *e, PyObject **reg, const bool *had)
{
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    for (size_t i = 0; i < e->effects.n; i++) {
        const effect *fx = &e->effects.at[i];
        if (!fx->early || !had[i])
            continue;
        tp_err err = { 0 };
        const tp_tensor *x = py_tensor(reg[fx->target->index]);
        tp_tensor *g = tensor_new_strided((dtype)x->dt, x->ndim, x->size, x->stride, tensor_device(x), &err);
        PyObject *o = NULL;
        if (g) {
            if (tensor_host(g))
                memset(tensor_host(g), 0, (size_t)g->storage->nbytes);
            o = py_wrap(g);
        }
        if (!o || PyObject_SetAttr(reg[fx->target->index], fx->key, o) < 0)
            py_forget();
        Py_XDECREF(o);
    }
    PyErr_Restore(t, v, tb);
}

/* The memory of inputs that the graph writes, as it was; bytes NULL: only how often it had been written. */
typedef struct saved {
    tp_storage *s;
    uint32_t version;
    size_t nbytes;
    void *bytes;
    tp_tensor *form; /* the input as it was, where the graph changes shapes in place, or NULL */
} saved;

static saved *save_written(const entry *e, const tp_val *in, bool bytes)
{
    saved *v = mem_zalloc(sizeof *v * (size_t)e->nwritten);
    for (int i = 0; i < e->nwritten; i++) {
        tp_storage *s = in[e->written[i]].t->storage;
        v[i].form = e->heads ? tensor_alias(in[e->written[i]].t) : NULL;
        bool seen = !s->data || !s->nbytes;
        for (int k = 0; k < i; k++)
            seen |= v[k].s == s;
        if (seen)
            continue;
        v[i].s = storage_ref(s);
        v[i].version = s->version;
        v[i].nbytes = (size_t)s->nbytes;
        v[i].bytes = bytes ? mem_alloc(v[i].nbytes) : NULL;
        if (bytes)
            memcpy(v[i].bytes, s->data, v[i].nbytes);
    }
    return v;
}

/* Is all as it was? Writes by Tensor.data do not count as versions. */
static bool untouched(const entry *e, const tp_val *in, const saved *v)
{
    bool same = true;
    for (int i = 0; i < e->nwritten; i++)
        same &= !(in[e->written[i]].t->spare & AGF_data) && (!v[i].s || v[i].s->version == v[i].version);
    return same;
}

static void saved_end(const entry *e, const tp_val *in, saved *v, bool restore, bool again)
{
    for (int i = 0; i < e->nwritten; i++) {
        tp_tensor *f = v[i].form;
        if (f && again)
            tensor_reset(in[e->written[i]].t, f->storage, (dtype)f->dt, f->ndim, f->size, f->stride,
                         f->offset, NULL);
        tensor_unref(f);
        if (!v[i].s)
            continue;
        if (restore && v[i].bytes) {
            memcpy(v[i].s->data, v[i].bytes, MIN(v[i].nbytes, (size_t)v[i].s->nbytes));
            v[i].s->version = v[i].version;
        }
        storage_unref(v[i].s);
        free(v[i].bytes);
    }
    free(v);
}

/* Did a write go onto the tape? That cannot be taken back. */
static bool on_tape(const entry *e, const tp_val *in)
{
    bool any = false;
    for (int i = 0; CX->grad_mode && i < e->nwritten; i++)
        any |= grad_requires_grad(in[e->written[i]].t);
    return any;
}

int entry_run(entry *e, frame *f, PyObject **reg, const int64_t *symval, PyObject **result)
{
    tp_val small_in[16], small_out[8],
        *in = e->nin <= 16 ? small_in : mem_alloc(sizeof *in * (size_t)e->nin),
        *out = e->nout <= 8 ? small_out : mem_alloc(sizeof *out * (size_t)e->nout);
    tp_err err;
    err.kind = ERR_none;
    int rc = ST_error;
    PyObject **objs = NULL;
    int64_t *sym = NULL;
    bool *had = TP_UNLIKELY(e->nearly) ? mem_zalloc(e->effects.n) : NULL;
    for (int i = 0; i < e->nin; i++) {
        PyObject *o = reg[e->in[i]->id];
        if (py_is_tensor(o))
            in[i] = (tp_val){ .kind = VAL_tensor, .t = py_tensor(o) };
        else
            in[i] = vI(PyLong_AsLongLong(o));
    }
    memset(out, 0, sizeof *out * (size_t)e->nout);
    e->hits++;
    if (ev_trace_on(EV_artifact))
        metrics_order(e);
    op_ctx *cx = CX;
    bool mode = cx->grad_mode, inference = cx->inference_mode;
    uint8_t cast = cx->autocast;
    tp_gen *rng = e->random ? gen_default() : NULL;
    gen_state before;
    if (rng)
        before = rng->s;
    cx->grad_mode = mode && !e->nograd;
    cx->autocast = 0;     /* the conversions are in the graph */
    if (TP_UNLIKELY(had)) /* what goes may take other things along */
        count_regs(e, reg, true);
    bool lost = e->late && (e->effects.n || e->checks) && e->run &&
                e->run->stepwise; /* effects of lines before the failure, and what the line raises */
    bool undo = TP_UNLIKELY(e->undo || lost) && !on_tape(e, in);
    saved *was = TP_UNLIKELY(e->nwritten) ? save_written(e, in, undo) : NULL;
    uint32_t *versions = TP_UNLIKELY(e->nsilent) ? mem_alloc(sizeof *versions * (size_t)e->nsilent) : NULL;
    for (int i = 0; i < e->nsilent; i++)
        versions[i] = in[e->silent[i]].t->storage->version;
    cap_thread *here = cap_here();
    int frames = here->running;
    here->running = 0; /* what a graph calls is not compiled */
    bool ran = (!had || let_go(e, reg, had)) &&
               (!e->run || run_program_call(e->run, cx, in, e->nin, out, e->nout, &err));
    here->running = frames;
    for (int i = 0; i < e->nsilent && ran; i++)
        in[e->silent[i]].t->storage->version = versions[i];
    free(versions);
    if (e->nograd || e->leaves_grad)
        cx->grad_mode = e->leaves_grad ? e->leaves_grad > 1 : mode;
    cx->autocast = cast;
    if (!ran) { /* in the middle of the graph, perhaps inside of a block that switches modes */
        cx->grad_mode = mode;
        cx->inference_mode = inference;
        bool placed = err.kind != ERR_none && err.kind != ERR_python && err.line > 0;
        py_raise(&err);
        if (placed)
            cap_traceback(f, err.file, err.line, err.func);
        /* without memory there is none for the instructions either */
        bool again = (e->repeats || undo || (was && untouched(e, in, was))) && err.kind != ERR_memory &&
                     PyErr_ExceptionMatches(PyExc_Exception);
        if (was)
            saved_end(e, in, was, true, again);
        if (again) {
            rc = ST_repeat;
            if (had)
                take_back(e, reg, had);
            if (rng)
                rng->s = before;
        }
        goto done;
    }
    if (was)
        saved_end(e, in, was, false, false);
    for (int i = 0; i < e->ndata; i++)
        if (out[e->data[i]].kind == VAL_tensor)
            out[e->data[i]].t->spare |= AGF_data;
    if (e->plain) {
        *result = out[0].t ? py_wrap(out[0].t) : NULL;
        rc = *result ? ST_return : ST_error;
        goto done;
    }
    objs = mem_zalloc(sizeof *objs * (size_t)(e->nout + e->nmemo + 1));
    if (e->nprog) {
        sym = mem_zalloc(sizeof *sym * (size_t)e->nprog);
        int64_t *vals = mem_zalloc(sizeof *vals * (size_t)(e->nsymbol + 1));
        for (int i = 0; i < e->nsymval; i++)
            if (e->symval[i].symbol >= 0)
                vals[e->symval[i].symbol] = symval[i];
        bool good = e->prog && sym_prog_run(e->prog, vals, sym);
        free(vals);
        if (!good) {
            PyErr_SetString(PyExc_OverflowError, "a symbolic size overflows");
            goto done;
        }
    }
    build b = { reg, out, objs, sym, objs + e->nout };
    if (!had)
        count_regs(e, reg, true); /* effects may drop what the recipes still need */
    if (rebuild_state(e, f, &b, result))
        rc = e->returns ? ST_return : ST_next;
    if (!had)
        count_regs(e, reg, false);
    for (int i = 0; i < e->nout; i++)
        val_clear(&out[i]);
    for (int i = 0; i < e->nout + e->nmemo; i++)
        Py_XDECREF(objs[i]);
done:
    if (had) {
        count_regs(e, reg, false);
        free(had);
    }
    free(objs);
    free(sym);
    if (in != small_in)
        free(in);
    if (out != small_out)
        free(out);
    return rc;
}
