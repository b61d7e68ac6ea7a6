/* bridge_import.c - a graph of PyTorch's as a graph of ours: the inverse of fxview.c.
 * The glue (taper.torch) hands over one tuple a node; operands are PyTorch's own node objects, found again by identity. An
 * operator that has no row, or that a row refuses for these arguments, becomes an opaque call back into PyTorch.
 *
 *   (node, kind, name, target, args, kwargs, type, stack)
 *   placeholder  type is that of the input
 *   const        target is a taper.Tensor
 *   symbol       target is the text of an expression: what the node stands for in sizes
 *   number       target is a float or a bool that stands for the node
 *   call         target is "add.Tensor"; where it cannot be, fallback(node) gives the (name, callable) of an opaque call
 *   first        as call, where only the first of PyTorch's results is used and the row has no other; no fallback
 *   same         args[0] is a node of kind first: this is its result
 *   opaque       target is (name, callable); type is that of its result, or a list of types
 *   item         args are (node, index); type is that of the result, or None
 *   output       args are what is returned; type: for each result the type that PyTorch expects, or None
 *
 * A type is (dtype, sizes, strides), sizes being ints or texts of expressions, or the text of an expression for a number. */
#include "capture/capture.h"
#include "ir/text.h"

typedef struct import {
    ir_graph *g;
    sym_env *env;
    PyObject *at;       /* PyTorch's node -> index into nodes */
    PyObject *consts;   /* PyTorch's dtypes, devices and the like -> ours */
    PyObject *fallback; /* node -> (name, callable) */
    PyObject *refused;  /* list of (name, operator, reason): what became opaque */
    PyObject *keep;     /* callables of opaque nodes, owned by the graph's capsule */
    VEC(ir_node *) nodes;
    VEC(tp_val) numbers; /* same length: what a node means as a number, none where it is a value */
    PyObject *stack;     /* borrowed: of the node before; most nodes share it */
    const ir_loc *loc;
    tp_err err;
} import;

/* ---- types ---- */
static bool symbol_of(import *im, PyObject *o, symint *out)
{
    if (PyUnicode_Check(o)) {
        Py_ssize_t n;
        const char *s = PyUnicode_AsUTF8AndSize(o, &n);
        if (!s)
            return false;
        if (!im->env)
            return err_set(&im->err, ERR_value, "'%s' is symbolic, but the graph has no symbols", s);
        return sym_parse(im->env, s, (size_t)n, out, &im->err);
    }
    int64_t v = PyLong_AsLongLong(o);
    if (v == -1 && PyErr_Occurred())
        return false;
    *out = v;
    return true;
}

static bool type_of(import *im, PyObject *o, tp_val *out)
{
    PyObject *dt, *sizes, *strides;
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS], bytes;
    dtype d;
    if (PyUnicode_Check(o)) {
        symint v;
        if (!symbol_of(im, o, &v))
            return false;
        *out = vI(v);
        return true;
    }
    if (!PyTuple_Check(o) || PyTuple_GET_SIZE(o) != 3)
        return err_set(&im->err, ERR_type, "a type is (dtype, sizes, strides)");
    dt = PyTuple_GET_ITEM(o, 0), sizes = PyTuple_GET_ITEM(o, 1), strides = PyTuple_GET_ITEM(o, 2);
    if (!py_to_dtype(dt, &d) || !PyList_Check(sizes) || !PyList_Check(strides) ||
        PyList_GET_SIZE(sizes) != PyList_GET_SIZE(strides) || PyList_GET_SIZE(sizes) > TP_MAX_DIMS)
        return err_set(&im->err, ERR_type, "a type is (dtype, sizes, strides)");
    int n = (int)PyList_GET_SIZE(sizes);
    for (int i = 0; i < n; i++)
        if (!symbol_of(im, PyList_GET_ITEM(sizes, i), &size[i]) ||
            !symbol_of(im, PyList_GET_ITEM(strides, i), &stride[i]))
            return false;
    if (!shape_storage_bytes(d, n, size, stride, 0, &bytes, &im->err))
        return false;
    tp_storage *s = storage_new_fake(bytes, DEVICE_CPU);
    *out = vT(tensor_on(s, d, n, size, stride, 0));
    storage_unref(s);
    return true;
}

static bool types_of(import *im, PyObject *o, tp_val *out)
{
    if (!PyList_Check(o))
        return type_of(im, o, out);
    int n = (int)PyList_GET_SIZE(o);
    *out = (tp_val){ .kind = VAL_tensors, .n = n, .ts = mem_zalloc(sizeof(tp_tensor *) * (size_t)MAX(n, 1)) };
    for (int i = 0; i < n; i++) {
        tp_val v = vNone;
        PyObject *e = PyList_GET_ITEM(o, i);
        if (e == Py_None)
            continue;
        if (!type_of(im, e, &v) || v.kind != VAL_tensor)
            return err_set(&im->err, ERR_type, "a result of an opaque call is no tensor");
        out->ts[i] = v.t;
    }
    return true;
}

/* ---- operands ---- */
static bool value_of(import *im, PyObject *o, tp_val *out);

/* A list is one of nodes, ints, floats or bools; a node that stands for a number is that number. */
static bool list_of(import *im, PyObject *o, tp_val *out)
{
    PyObject *seq = PySequence_Fast(o, "a list was expected");
    if (!seq)
        return false;
    arena *a = &im->g->mem;
    int n = (int)PySequence_Fast_GET_SIZE(seq), nodes = 0, floats = 0, bools = 0, none = 0;
    tp_val *v = ARENA_ARR(a, tp_val, n);
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        ok = value_of(im, PySequence_Fast_GET_ITEM(seq, i), &v[i]);
        if (!ok)
            break;
        nodes += v[i].kind == VAL_node;
        floats += v[i].kind == VAL_float;
        bools += v[i].kind == VAL_bool;
        none += v[i].kind == VAL_none;
        ok = v[i].kind == VAL_node || v[i].kind == VAL_int || v[i].kind == VAL_float ||
             v[i].kind == VAL_bool || v[i].kind == VAL_none ||
             err_set(&im->err, ERR_type, "a list of these elements is no operand");
    }
    Py_DECREF(seq);
    if (!ok)
        return false;
    if (nodes) {
        if (nodes + none != n)
            return err_set(&im->err, ERR_type, "a list holds tensors and other things");
        *out = (tp_val){ .kind = VAL_nodes, .n = n, .nodes = ARENA_ARR(a, ir_node *, n) };
        for (int i = 0; i < n; i++)
            out->nodes[i] = v[i].kind == VAL_node ? v[i].node : NULL;
    } else if (none) {
        return err_set(&im->err, ERR_type, "a list holds None and no tensor");
    } else if (bools && bools == n) {
        bool *b = ARENA_ARR(a, bool, n);
        for (int i = 0; i < n; i++)
            b[i] = v[i].b;
        *out = (tp_val){ .kind = VAL_bools, .n = n, .bools = b };
    } else if (floats) {
        double *f = ARENA_ARR(a, double, n);
        for (int i = 0; i < n; i++)
            f[i] = v[i].kind == VAL_float ? v[i].f : (double)v[i].i;
        *out = vFs(f, n);
    } else {
        symint *ints = ARENA_ARR(a, symint, n);
        for (int i = 0; i < n; i++)
            ints[i] = v[i].kind == VAL_bool ? v[i].b : v[i].i;
        *out = vIs(ints, n);
    }
    return true;
}

/* PyTorch writes 2**63 - 1 for "to the end". */
static symint clamped(int64_t v) { return v >= SYM_LIMIT ? SYM_LIMIT - 1 : v < -SYM_LIMIT ? -SYM_LIMIT : v; }

static bool value_of(import *im, PyObject *o, tp_val *out)
{
    dtype dt;
    if (o == Py_None)
        *out = vNone;
    else if (PyBool_Check(o))
        *out = vB(o == Py_True);
    else if (PyLong_CheckExact(o)) {
        int64_t v = PyLong_AsLongLong(o);
        if (v == -1 && PyErr_Occurred())
            return false;
        *out = vI(clamped(v));
    } else if (PyFloat_Check(o))
        *out = vF(PyFloat_AS_DOUBLE(o));
    else if (PyUnicode_Check(o)) {
        const char *s = PyUnicode_AsUTF8(o);
        if (!s)
            return false;
        *out = (tp_val){ .kind = VAL_str, .s = arena_strdup(&im->g->mem, s) };
    } else if (PyList_Check(o) || PyTuple_Check(o))
        return list_of(im, o, out);
    else {
        PyObject *i = PyDict_GetItemWithError(im->at, o);
        if (i) {
            size_t k = PyLong_AsSize_t(i);
            bool number = im->numbers.at[k].kind != VAL_none;
            *out = number ? im->numbers.at[k] : (tp_val){ .kind = VAL_node, .node = im->nodes.at[k] };
            return number || im->nodes.at[k] || err_set(&im->err, ERR_value, "an operand has no value");
        }
        if (PyErr_Occurred())
            return false;
        PyObject *c = PyDict_GetItemWithError(im->consts, o);
        if (c && py_to_dtype(c, &dt))
            *out = (tp_val){ .kind = VAL_dtype, .i = dt };
        else if (c && Py_TYPE(c) == &PyDevice_Type)
            *out = (tp_val){ .kind = VAL_device, .dev = ((PyDevice *)c)->dev };
        else if (c && Py_TYPE(c) == &PyMemfmt_Type)
            *out = (tp_val){ .kind = VAL_memfmt, .i = ((PyEnumObj *)c)->value };
        else if (c && Py_TYPE(c) == &PyLayout_Type)
            *out = (tp_val){ .kind = VAL_layout, .i = ((PyEnumObj *)c)->value };
        else
            return err_set(&im->err, ERR_type, "an operand of type %s", Py_TYPE(o)->tp_name);
    }
    return true;
}

/* ---- the user's line ---- */
/* The last frame of 'File "f", line N, in fn', newline, source. */
static const ir_loc *loc_of(import *im, PyObject *stack)
{
    if (stack == im->stack)
        return im->loc;
    im->stack = stack;
    im->loc = NULL;
    const char *s = stack && PyUnicode_Check(stack) ? PyUnicode_AsUTF8(stack) : NULL, *last = NULL;
    if (!s) {
        PyErr_Clear();
        return NULL;
    }
    for (const char *p = s; (p = strstr(p, "File \"")); p++)
        last = p;
    const char *end = last ? strchr(last + 6, '"') : NULL, *fn = end ? strstr(end, ", in ") : NULL;
    int line = end && !strncmp(end, "\", line ", 8) ? atoi(end + 8) : 0;
    if (!line || !fn)
        return NULL;
    arena *a = &im->g->mem;
    ir_loc *l = ARENA_NEW(a, ir_loc);
    const char *eol = strchr(fn, '\n'), *code = eol ? eol + 1 + strspn(eol + 1, " ") : "";
    l->file = arena_strndup(a, last + 6, (size_t)(end - last - 6));
    l->func = arena_strndup(a, fn + 5, eol ? (size_t)(eol - fn - 5) : strlen(fn + 5));
    l->code = arena_strndup(a, code, strcspn(code, "\n"));
    l->line = line;
    return im->loc = l;
}

/* ---- nodes ---- */
static ir_node *add_row(import *im, const char *target, PyObject *args, PyObject *kwargs)
{
    op_id op;
    op_variant v;
    if (!op_find(target, strlen(target), &op, &v)) {
        err_set(&im->err, ERR_value, "there is no operator '%s'", target);
        return NULL;
    }
    const op_row *row = op_row_of(op);
    if (row->flags & OPF_RAND) { /* PyTorch's generator draws */
        err_set(&im->err, ERR_value, "random numbers are PyTorch's");
        return NULL;
    }
    text_args a = { 0 };
    tp_val full[OP_MAX_PARAMS];
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
        if (a.npos == (int)COUNT(a.pos)) {
            err_set(&im->err, ERR_value, "too many arguments");
            return NULL;
        }
        if (!value_of(im, PyTuple_GET_ITEM(args, i), &a.pos[a.npos++]))
            return NULL;
    }
    PyObject *k, *o;
    Py_ssize_t pos = 0;
    while (PyDict_Next(kwargs, &pos, &k, &o)) {
        const char *name = PyUnicode_AsUTF8(k);
        if (!name || a.nkw == (int)COUNT(a.kw))
            return NULL;
        if (!strcmp(name, "pin_memory") || (o == Py_None && !strcmp(name, "layout")))
            continue; /* written on every call that makes a tensor; means nothing here */
        a.kwname[a.nkw] = name;
        if (!value_of(im, o, &a.kw[a.nkw++]))
            return NULL;
    }
    if (!spell_bind(&im->g->mem, row, &a, full, &im->err))
        return NULL;
    ir_node *n = ir_build(im->g, op, v, full, row->schema.nparam, &im->err);
    if (n && im->env && err_is_set(sym_env_err(im->env))) {
        im->err = *sym_env_err(im->env);
        err_clear(sym_env_err(im->env));
        ir_erase(n);
        return NULL;
    }
    return n;
}

static ir_node *add_opaque(import *im, PyObject *target, PyObject *args, PyObject *kwargs, PyObject *type)
{
    PyObject *name, *callee, *flat = NULL;
    tp_val val = vNone;
    VEC(tp_val) arg = { 0 };
    ir_node *n = NULL;
    if (!PyTuple_Check(target) || PyTuple_GET_SIZE(target) != 3) {
        err_set(&im->err, ERR_type, "an opaque call is (name, callable, operands)");
        return NULL;
    }
    name = PyTuple_GET_ITEM(target, 0), callee = PyTuple_GET_ITEM(target, 1),
    flat = PyTuple_GET_ITEM(target, 2);
    const char *text = PyUnicode_AsUTF8(name);
    if (!text || (type != Py_None && !types_of(im, type, &val)))
        goto done;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(flat); i++) {
        tp_val v;
        if (!value_of(im, PyList_GET_ITEM(flat, i), &v))
            goto done;
        vec_push(&arg, v);
    }
    if (PyList_Append(im->keep, callee) < 0)
        goto done;
    n = ir_add_opaque(im->g, arena_strdup(&im->g->mem, text), callee, arg.at, (int)arg.n, val);
    val = vNone;
done:
    val_clear(&val);
    vec_free(&arg);
    return n;
}

static bool same_strides(const tp_tensor *a, const tp_tensor *b)
{
    for (int i = 0; i < a->ndim; i++) {
        if (a->size[i] == 0)
            return true;
        if (a->size[i] != 1 && a->stride[i] != b->stride[i] && !sym_known(SYM_eq, a->stride[i], b->stride[i]))
            return false;
    }
    return true;
}

static ir_node *row(import *im, const char *full, const tp_val *arg, int n)
{
    op_id op;
    op_variant v;
    bool found = op_find(full, strlen(full), &op, &v);
    assert(found);
    return found ? ir_build(im->g, op, v, arg, n, &im->err) : NULL;
}

/* n in memory that is dense in the order of want's strides; n itself where that is so, or where want is not dense: then the glue
 * copies. */
static ir_node *with_strides(import *im, ir_node *n, const tp_tensor *want)
{
    tp_tensor *t = ir_type(n);
    symint order[TP_MAX_DIMS], back[TP_MAX_DIMS];
    int nd = t ? t->ndim : 0;
    if (!t || nd != want->ndim || same_strides(t, want))
        return n;
    for (int i = 0; i < nd; i++)
        order[i] = i;
    for (int i = 1; i < nd; i++) /* by falling strides; few dimensions */
        for (int k = i; k > 0; k--) {
            int64_t a = sym_hint(want->stride[order[k - 1]], NULL),
                    b = sym_hint(want->stride[order[k]], NULL);
            if (a >= b)
                break;
            symint s = order[k];
            order[k] = order[k - 1], order[k - 1] = s;
        }
    for (int i = 0; i < nd; i++)
        back[order[i]] = i;
    tp_val arg[2] = { { .kind = VAL_node, .node = n }, vIs(order, nd) };
    ir_node *p = row(im, "permute", arg, 2), *c, *r = NULL;
    tp_val fmt[2] = { { .kind = VAL_node, .node = p }, { .kind = VAL_memfmt, .i = MF_contiguous } };
    c = p ? row(im, "clone", fmt, 2) : NULL;
    if (c) {
        tp_val a2[2] = { { .kind = VAL_node, .node = c }, vIs(back, nd) };
        r = row(im, "permute", a2, 2);
    }
    return r;
}

/* n in the strides that PyTorch declared: later views were checked against those. NULL: it failed, or has another type. */
static ir_node *as_declared(import *im, ir_node *n, PyObject *type)
{
    tp_val want = vNone;
    if (!n || !PyTuple_Check(type) || !ir_type(n))
        return n;
    if (!type_of(im, type, &want))
        return NULL;
    dtype is = (dtype)ir_type(n)->dt, said = want.kind == VAL_tensor ? (dtype)want.t->dt : is;
    /* PyTorch's fakes take statistics and gradients of norms of half inputs and float weights for one another's type; its kernels do as
     * the rows here. */
    dtype half = is == DT_f32 ? said : is;
    bool norms = (is == DT_f32 || said == DT_f32) && (half == DT_f16 || half == DT_bf16);
    ir_node *r = want.kind == VAL_tensor ? with_strides(im, n, want.t) : n;
    val_clear(&want);
    if (is == said || norms)
        return r;
    err_set(&im->err, ERR_type, "its result is %s here and %s in PyTorch", dtype_name(is), dtype_name(said));
    return NULL;
}

static bool add_output(import *im, PyObject *args, PyObject *types)
{
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    tp_val *v = mem_zalloc(sizeof *v * (size_t)(n + 1));
    bool ok = true;
    for (Py_ssize_t i = 0; ok && i < n; i++) {
        PyObject *t = PyList_Check(types) && i < PyList_GET_SIZE(types) ? PyList_GET_ITEM(types, i) : Py_None;
        ok = value_of(im, PyTuple_GET_ITEM(args, i), &v[i]);
        if (ok && v[i].kind == VAL_node)
            ok = (v[i].node = as_declared(im, v[i].node, t)) != NULL;
    }
    if (ok)
        ir_set_output(im->g, v, (int)n);
    free(v);
    return ok;
}

static bool refuse(import *im, const char *name, const char *target)
{
    PyObject *t = Py_BuildValue("(sss)", name, target, im->err.msg);
    bool ok = t && PyList_Append(im->refused, t) == 0;
    Py_XDECREF(t);
    err_clear(&im->err);
    return ok;
}

static bool add_node(import *im, PyObject *tuple)
{
    PyObject *key, *target, *args, *kwargs, *type, *stack;
    const char *kind, *name;
    ir_node *n = NULL;
    tp_val number = vNone;
    if (!PyArg_ParseTuple(tuple, "OssOO!O!OO", &key, &kind, &name, &target, &PyTuple_Type, &args,
                          &PyDict_Type, &kwargs, &type, &stack))
        return false;
    im->g->wanted = *name ? arena_strdup(&im->g->mem, name) : NULL;
    if (!strcmp(kind, "placeholder")) {
        tp_val t = vNone;
        if (!type_of(im, type, &t))
            return false;
        if (t.kind == VAL_int)
            number = t;
        n = ir_add_placeholder_val(im->g, name, name, t);
    } else if (!strcmp(kind, "const")) {
        if (!py_is_tensor(target))
            return err_set(&im->err, ERR_type, "a constant must be a Tensor");
        n = ir_add_const(im->g, name, py_tensor(target));
    } else if (!strcmp(kind, "symbol")) {
        symint symbol;
        if (!symbol_of(im, target, &symbol))
            return false;
        number = vI(symbol);
    } else if (!strcmp(kind, "number")) {
        if (!value_of(im, target, &number))
            return false;
    } else if (!strcmp(kind, "same")) {
        tp_val of;
        if (!value_of(im, PyTuple_GET_ITEM(args, 0), &of) || of.kind != VAL_node)
            return err_set(&im->err, ERR_type, "the result of what is no node");
        n = of.node;
    } else if (!strcmp(kind, "item")) {
        tp_val of;
        if (PyTuple_GET_SIZE(args) != 2 || !value_of(im, PyTuple_GET_ITEM(args, 0), &of) ||
            of.kind != VAL_node)
            return err_set(&im->err, ERR_type, "item of what is no node");
        n = ir_build_item(im->g, of.node, (int)PyLong_AsLong(PyTuple_GET_ITEM(args, 1)), &im->err);
        if (!(n = as_declared(im, n, type)))
            return false;
    } else if (!strcmp(kind, "output"))
        return add_output(im, args, type);
    else {
        const char *text = PyUnicode_Check(target) ? PyUnicode_AsUTF8(target) : NULL;
        bool first = !strcmp(kind, "first");
        if ((first || !strcmp(kind, "call")) && text)
            n = add_row(im, text, args, kwargs);
        if (n)
            n = as_declared(im, n, type);
        if (!n && (first || PyErr_Occurred()))
            return false;
        if (!n) {
            PyObject *callee = text ? PyObject_CallOneArg(im->fallback, key) : Py_NewRef(target);
            if (!callee || (text && !refuse(im, name, text))) {
                Py_XDECREF(callee);
                return false;
            }
            im->g->wanted = arena_strdup(&im->g->mem, name);
            n = add_opaque(im, callee, args, kwargs, type);
            Py_DECREF(callee);
        }
        if (!n)
            return false;
    }
    if (n && strcmp(kind, "same"))
        n->loc = loc_of(im, stack);
    PyObject *i = PyLong_FromSize_t(im->nodes.n);
    bool ok = i && PyDict_SetItem(im->at, key, i) == 0;
    Py_XDECREF(i);
    vec_push(&im->nodes, n);
    vec_push(&im->numbers, number);
    return ok;
}

static bool declare(import *im, PyObject *symbols)
{
    if (PyList_GET_SIZE(symbols)) {
        im->env = sym_env_new(NULL);
        im->g->env = im->env;
        im->g->env_refs = mem_zalloc(sizeof(int)); /* ends with the last graph that shares it */
        *im->g->env_refs = 1;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(symbols); i++) {
        const char *name;
        long long hint, lo, hi;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(symbols, i), "sLLL", &name, &hint, &lo, &hi) ||
            !sym_env_declare(im->env, name, true, hint, lo, MIN(hi, SYM_LIMIT - 1), name, &im->err))
            return false;
    }
    return true;
}

/* _graph_import(name, nodes, symbols, consts, fallback) -> (graph, refused, callables). symbols: [(name, hint, lo, hi)]. The
 * callables must live as long as the graph and what is made of it. */
static PyObject *graph_import(PyObject *m, PyObject *args)
{
    const char *name;
    PyObject *nodes, *symbols, *res = NULL;
import im = { 0 };
    if (!PyArg_ParseTuple(args, "sO!O!O!O", &name, &PyList_Type, &nodes, &PyList_Type, &symbols, &PyDict_Type,
                          &im.consts, &im.fallback))
        return NULL;
    im.g = ir_graph_new(name);
    im.g->style = IR_STYLE_aten;
    im.at = PyDict_New();
    im.refused = PyList_New(0);
    im.keep = PyList_New(0);
    bool ok = im.at && im.refused && im.keep && declare(&im, symbols);
    for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(nodes); i++)
        ok = add_node(&im, PyList_GET_ITEM(nodes, i));
    if (ok && !im.g->output)
        ok = err_set(&im.err, ERR_value, "the graph has no output");
    if (ok && ir_verify(im.g, &im.err)) {
        PyObject *v = graph_view(im.g);
        im.g = NULL;
        res = v ? Py_BuildValue("(NOO)", v, im.refused, im.keep) : NULL;
    } else
        py_raise(&im.err);
    if (im.g)
        ir_graph_free(im.g);
    Py_XDECREF(im.at);
    Py_XDECREF(im.refused);
    Py_XDECREF(im.keep);
    vec_free(&im.nodes);
    vec_free(&im.numbers);
    return res;
}

static PyMethodDef functions[] = { { "_graph_import", graph_import, METH_VARARGS, "a graph from tuples" },
                                   { NULL } };
int py_init_bridge_import(PyObject *m) { return PyModule_AddFunctions(m, functions); }
