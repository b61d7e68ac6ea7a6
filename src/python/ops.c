/* ops.c - operators as Python callables: names from the op table, arguments by schema, PyTorch's error texts.
 */
#include "grad/tape.h"
#include "sym/env.h"
#include "python/override.h"
#include "base/map.h"
#include "sym/env.h"

/* ---- names: every spelling of every row ---- */
static map names; /* "space\0name" joined by '/', -> op_name */
static op_name *all_names;

static op_name *name_at(const char *space, const char *name, op_variant v)
{
    char key[160];
    int n = snprintf(key, sizeof key, "%s/%s", space, name);
    op_name *o = map_getn(&names, key, (size_t)n);
    if (!o) {
        o = mem_zalloc(sizeof *o);
        o->name = mem_strdup(name);
        o->space = space;
        o->variant = v;
        o->next = all_names;
        all_names = o;
        map_putn(&names, key, (size_t)n, o);
    }
    return o;
}

static void name_add(const char *space, const char *name, op_id op, op_variant v)
{
    op_name *o = name_at(space, name, v);
    o->row = mem_realloc(o->row, sizeof *o->row * (size_t)(o->nrow + 1));
    o->row[o->nrow++] = (uint16_t)op;
}

const op_name *py_op_name(const char *name, const char *space)
{
    char key[160];
    int n = snprintf(key, sizeof key, "%s/%s", space, name);
    return map_getn(&names, key, (size_t)n);
}

static void spell(op_id op, const char *name)
{
    const op_row *r = op_row_of(op);
    for (const char *k = r->py; *k && *k != ' '; k++) {
        const char *space = *k == 'f'   ? ""
                            : *k == 'm' ? "Tensor"
                            : *k == 'n' ? "nn.functional"
                            : *k == 'l' ? "linalg"
                            : *k == 's' ? "special"
                                        : NULL;
        if (!space)
            continue;
        if (!(r->flags & OPF_INPONLY) || *k != 'm')
            name_add(space, name, op, OPV_fn);
        if ((r->flags & OPF_INP) && (*k == 'm' || *k == 'f')) {
            char inp[128];
            snprintf(inp, sizeof inp, "%s_", name);
            name_add(space, inp, op, OPV_inplace);
        }
    }
}

static void collect(void)
{
    for (int i = 0; i < OP_COUNT; i++) {
        const op_row *r = op_row_of((op_id)i);
        if (r->flags & OPF_HIDE)
            continue;
        char name[128];
        /* linalg_inv is spelled taper.linalg.inv */
        const char *base = r->name, *letters = r->py;
        if (strchr(letters, 'l') && !strncmp(base, "linalg_", 7) && letters[0] == 'l')
            base += 7;
        if (strchr(letters, 's') && !strncmp(base, "special_", 8) && letters[0] == 's')
            base += 8;
        spell((op_id)i, base);
        for (const char *p = strchr(r->py, ' '); p; p = strchr(p, ' ')) {
            while (*p == ' ')
                p++;
            size_t n = strcspn(p, " ");
            if (!n)
                break;
            snprintf(name, sizeof name, "%.*s", (int)n, p);
            spell((op_id)i, name);
        }
    }
}

/* ---- conversion of one argument ---- */
typedef struct parse {
    tp_val val[OP_MAX_PARAMS];
    arena mem; /* lists */
    char small[512];
    tp_err err;        /* a hard failure while converting */
    const char *bad;   /* parameter that did not fit, for the message */
    PyObject *bad_arg; /* borrowed */
    int bad_pos;
    bool takes_out; /* out= is for functions, not for methods and what writes in place */
    bool strict;    /* tensors are not numbers: max(x, tensor(1)) is not max over dimension 1 */
} parse;

static void *list_mem(parse *p, size_t bytes, size_t *used)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (*used + bytes <= sizeof p->small) {
        void *m = p->small + *used;
        *used += bytes;
        return m;
    }
    return arena_alloc(&p->mem, bytes);
}

static symint clamped(long long i,
                      int overflow) /* refused later as too large, with the operator's own message */
{
    if (overflow > 0 || (!overflow && i >= SYM_LIMIT))
        return SYM_LIMIT - 1;
    return overflow < 0 || i < -SYM_LIMIT ? -SYM_LIMIT : i;
}

static bool long_fits(PyObject *o) /* into 64 bits; true of everything that is no int */
{
    int overflow = 0;
    if (TP_LIKELY(!PyLong_Check(o)))
        return true;
    PyLong_AsLongLongAndOverflow(o, &overflow);
    return !overflow;
}

bool py_to_symint(PyObject *o, symint *v)
{
    if (PyLong_Check(o)) {
        if (PyBool_Check(o))
            return false;
        int overflow;
        long long i = PyLong_AsLongLongAndOverflow(o, &overflow);
        *v = clamped(i, overflow);
        return true;
    }
    if (py_is_symint(o)) {
        *v = py_symint_value(o);
        return true;
    }
    if (PyFloat_Check(o) || PyUnicode_Check(o) || o == Py_None)
        return false;
    if (py_is_tensor(o)) {
        tp_tensor *t = py_tensor(o);
        if (t->ndim != 0 || dtype_is_float((dtype)t->dt) || t->dt == DT_bool || tensor_is_fake(t))
            return false;
        uint64_t room;
        const void *at = tensor_peek(t, &room, NULL);
        if (at)
            *v = clamped(elem_get_i((dtype)t->dt, at), 0);
        return at != NULL;
    }
    if (!PyIndex_Check(o))
        return false;
    PyObject *i = PyNumber_Index(o); /* NumPy integers */
    if (!i) {
        PyErr_Clear();
        return false;
    }
    int overflow;
    long long n = PyLong_AsLongLongAndOverflow(i, &overflow);
    Py_DECREF(i);
    *v = clamped(n, overflow);
    return true;
}

static bool to_number(PyObject *o, tp_val *v)
{
    if (PyBool_Check(o)) {
        *v = vB(o == Py_True);
        return true;
    }
    if (PyFloat_Check(o)) {
        *v = vF(PyFloat_AS_DOUBLE(o));
        return true;
    }
    if (PyLong_Check(o)) {
        int overflow;
        long long i = PyLong_AsLongLongAndOverflow(o, &overflow);
        *v = overflow ? vF(PyLong_AsDouble(o)) : vI(i);
        if (overflow && PyErr_Occurred())
            PyErr_Clear();
        if (!overflow && sym_is_expr(i)) /* it would look like a symbol */
            *v = vF((double)i);
        return true;
    }
    if (py_is_symint(o)) {
        *v = vI(py_symint_value(o));
        return true;
    }
    if (py_is_tensor(o)) { /* zero-dim tensors stand for their value where a number is wanted */
        tp_tensor *t = py_tensor(o);
        if (t->ndim || tensor_is_fake(t))
            return false;
        uint64_t room;
        const void *at = tensor_peek(t, &room, NULL);
        if (!at)
            return false;
        *v = !dtype_is_exact((dtype)t->dt) ? vF(elem_get_f((dtype)t->dt, at))
             : t->dt == DT_bool            ? vB(elem_get_i((dtype)t->dt, at))
                                           : vI(elem_get_i((dtype)t->dt, at));
        if (v->kind == VAL_int && sym_is_expr(v->i))
            *v = vF((double)v->i);
        return true;
    }
    symint i;
    if (PyIndex_Check(o) && py_to_symint(o, &i)) {
        *v = vI(i);
        return true;
    }
    if (Py_TYPE(o)->tp_as_number && Py_TYPE(o)->tp_as_number->nb_float && !PyUnicode_Check(o) &&
        !PyType_Check(o)) {
        double f = PyFloat_AsDouble(o); /* NumPy floats */
        if (!PyErr_Occurred()) {
            *v = vF(f);
            return true;
        }
        PyErr_Clear();
    }
    return false;
}

/* Lists with one entry a dimension: shape rules keep them in arrays of TP_MAX_DIMS. */
static bool dims_fit(parse *p, const op_param *q, Py_ssize_t n)
{
    static const char *const names[] = { "size",    "dims",  "dim",   "stride",
                                         "repeats", "sizes", "shape", "shifts" };
    if (n <= TP_MAX_DIMS)
        return true;
    for (size_t i = 0; i < COUNT(names); i++)
        if (!strcmp(q->name, names[i]))
            return err_set(&p->err, ERR_runtime, "%s of %zd entries: tensors have at most %d dimensions",
                           q->name, n, TP_MAX_DIMS);
    return true;
}

static bool entry_fits(parse *p, const op_row *r, const op_param *q, PyObject *o, Py_ssize_t k)
{
    return long_fits(o) || err_set(&p->err, ERR_type,
                                   "%s(): argument '%s' failed to unpack the object at pos %zd with error "
                                   "\"Overflow when unpacking long long\"",
                                   r->name, q->name, k + 1);
}

static bool to_list(parse *p, const op_row *r, const op_param *q, PyObject *o, tp_val *v, size_t *used)
{
    if (q->list_n > 0 && q->type == PT_ints && !PyTuple_Check(o) &&
        !PyList_Check(o)) { /* int[2]: one int for all */
        symint i;
        if (!py_to_symint(o, &i))
            return false;
        symint *m = list_mem(p, sizeof *m * (size_t)q->list_n, used);
        for (int k = 0; k < q->list_n; k++)
            m[k] = i;
        *v = vIs(m, q->list_n);
        return true;
    }
    if (!PyTuple_Check(o) && !PyList_Check(o))
        return false;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    PyObject **it = PySequence_Fast_ITEMS(o);
    switch (q->type) {
    case PT_ints: {
        if (!dims_fit(p, q, n))
            return false;
        symint *m = list_mem(p, sizeof *m * (size_t)(n + 1), used);
        for (Py_ssize_t k = 0; k < n; k++)
            if (!py_to_symint(it[k], &m[k]) || !entry_fits(p, r, q, it[k], k))
                return false;
        *v = vIs(m, (int)n);
        return true;
    }
    case PT_floats: {
        double *m = list_mem(p, sizeof *m * (size_t)(n + 1), used);
        for (Py_ssize_t k = 0; k < n; k++) {
            tp_val e;
            if (!to_number(it[k], &e))
                return false;
            m[k] = val_as_f(&e);
        }
        *v = vFs(m, (int)n);
        return true;
    }
    case PT_bools: {
        bool *m = list_mem(p, (size_t)(n + 1), used);
        for (Py_ssize_t k = 0; k < n; k++) {
            if (!PyBool_Check(it[k]))
                return false;
            m[k] = it[k] == Py_True;
        }
        *v = (tp_val){ .kind = VAL_bools, .n = (int)n, .bools = m };
        return true;
    }
    default: {
        tp_tensor **m = list_mem(p, sizeof *m * (size_t)(n + 1), used);
        for (Py_ssize_t k = 0; k < n; k++) {
            if (q->elem_opt && it[k] == Py_None)
                m[k] = NULL;
            else if (py_is_tensor(it[k]))
                m[k] = py_tensor(it[k]);
            else
                return false;
        }
        *v = vTs(m, (int)n);
        return true;
    }
    }
}

/* A complex number, from Python or NumPy, or a tensor of one. */
static bool is_complex(PyObject *o)
{
    if (PyComplex_Check(o))
        return true;
    if (py_is_tensor(o))
        return dtype_is_complex((dtype)py_tensor(o)->dt) && !py_tensor(o)->ndim;
    return !PyFloat_Check(o) && !PyLong_Check(o) && !strcmp(Py_TYPE(o)->tp_name, "numpy.complex64");
}

static bool complex_arg(parse *p, PyObject *o, tp_val *v)
{
    double *c = arena_alloc(&p->mem, 2 * sizeof *c);
    *v = vC(c);
    if (!py_is_tensor(o)) {
        Py_complex x = PyComplex_AsCComplex(o);
        c[0] = x.real;
        c[1] = x.imag;
        return !PyErr_Occurred();
    }
    tp_tensor *t = py_tensor(o);
    uint64_t room;
    const void *at = tensor_is_fake(t) ? NULL : tensor_peek(t, &room, NULL);
    if (at)
        elem_get_c((dtype)t->dt, at, c);
    return at != NULL;
}

/* An integer that looks like a symbol (the 2^48 from SYM_TAG on) is only a number where the result is a float anyway:
 * as a float it would lose its last digits. */
static bool number_arg(parse *p, const op_row *r, const op_param *q, PyObject *o, tp_val *v)
{
    if (PyFloat_CheckExact(o)) {
        *v = vF(PyFloat_AS_DOUBLE(o));
        return true;
    }
    if (PyLong_CheckExact(o)) {
        int overflow;
        long long i = PyLong_AsLongLongAndOverflow(o, &overflow);
        if (TP_LIKELY(!overflow && !sym_is_expr(i))) {
            *v = vI(i);
            return true;
        }
    }
    if (py_is_foreign(o)) /* a tensor, though one with a single element can be read as a number */
        return false;
    if (TP_UNLIKELY(is_complex(o)))
        return complex_arg(p, o, v);
    if (!to_number(o, v))
        return false;
    if (TP_LIKELY(v->kind != VAL_float || PyFloat_Check(o)))
        return true;
    if (PyLong_Check(o) && !long_fits(o) &&
        !(v->f >= 0x1p63 && v->f < 0x1p64)) /* 2^63 and more is uint64 there */
        return err_set(&p->err, ERR_overflow, "%s(): argument '%s': int too big to convert", r->name,
                       q->name);
    bool wide = PyLong_Check(o) && !long_fits(o);
    if (TP_LIKELY(!wide && (v->f < (double)SYM_TAG || v->f > (double)SYM_TAG + 0x1p48)))
        return true;
    if (!PyLong_Check(o) && !(py_is_tensor(o) && !dtype_is_float((dtype)py_tensor(o)->dt)))
        return true;
    for (const op_param *k = r->schema.param; k < q; k++) {
        const tp_val *a = &p->val[k - r->schema.param];
        if (a->kind == VAL_tensor && dtype_is_float((dtype)a->t->dt))
            return true;
    }
    if (wide)
        return err_set(&p->err, ERR_runtime, "value cannot be converted to type int64_t without overflow");
    return err_set(
        &p->err, ERR_runtime,
        "%s(): argument '%s': integers from %lld to %lld are not supported as numbers here (Taper keeps them "
        "for symbolic sizes); use a tensor of that value, or a float",
        r->name, q->name, (long long)SYM_TAG, (long long)SYM_TAG + (1LL << 48) - 1);
}

static bool convert(parse *p, const op_row *r, const op_param *q, PyObject *o, tp_val *v, size_t *used)
{
    if (o == Py_None && (q->optional || (q->has_default && q->def.kind == VAL_none))) {
        *v = vNone;
        return true;
    }
    if (p->strict && q->type >= PT_scalar && q->type <= PT_floats && py_is_tensor(o))
        return false;
    switch (q->type) {
    case PT_tensor:
        if (py_is_tensor(o)) {
            *v = (tp_val){ .kind = VAL_tensor, .t = py_tensor(o) };
            return true;
        }
        if (!(r->flags & OPF_NUM) || PyUnicode_Check(o) || ((r->flags & OPF_NUM2) && q == r->schema.param))
            return false;
        if ((r->flags & OPF_NUMT) && q != r->schema.param && p->val[0].kind != VAL_tensor)
            return false;
        return number_arg(p, r, q, o, v);
    case PT_scalar: return number_arg(p, r, q, o, v);
    case PT_int: {
        symint i;
        if (!py_to_symint(o, &i))
            return false;
        if (PyLong_Check(o) && !long_fits(o))
            return err_set(&p->err, ERR_value, "Overflow when unpacking long long");
        if ((r->flags & OPF_RAND) && PyLong_Check(o) && (i == SYM_LIMIT - 1 || i == -SYM_LIMIT))
            return number_arg(p, r, q, o, v) && v->kind == VAL_int; /* bounds of random integers */
        *v = vI(i);
        return true;
    }
    case PT_float:
        if (!to_number(o, v))
            return false;
        *v = vF(val_as_f(v));
        return true;
    case PT_bool:
        if (py_is_symint(o) && sym_is_bool(py_symint_value(o)) && !sym_is_unbacked(py_symint_value(o))) {
            *v = vB(sym_truth(py_symint_value(o)));
            return true;
        }
        if (!PyBool_Check(o))
            return false;
        *v = vB(o == Py_True);
        return true;
    case PT_str:
        if (!PyUnicode_Check(o) || !(v->s = PyUnicode_AsUTF8(o))) {
            PyErr_Clear();
            return false;
        }
        v->kind = VAL_str;
        return true;
    case PT_dtype: {
        dtype d;
        if (py_absent_dtype(o, &p->err) || !py_to_dtype(o, &d))
            return false;
        *v = vDT(d);
        return true;
    }
    case PT_device: {
        tp_device d;
        if (!py_to_device(o, &d, &p->err))
            return false;
        *v = vDev(d);
        return true;
    }
    case PT_memfmt:
    case PT_layout:
        if (Py_TYPE(o) != (q->type == PT_memfmt ? &PyMemfmt_Type : &PyLayout_Type))
            return false;
        *v = (tp_val){ .kind = q->type == PT_memfmt ? VAL_memfmt : VAL_layout, .i = ((PyEnumObj *)o)->value };
        return true;
    case PT_gen:
        if (Py_TYPE(o) != &PyRng_Type)
            return false;
        *v = (tp_val){ .kind = VAL_gen, .gen = ((PyRng *)o)->g };
        return true;
    default: return to_list(p, r, q, o, v, used);
    }
}

/* ---- matching a call to one row ---- */
static bool same_param(const char *param, const char *given)
{
    if (!strcmp(param, given))
        return true;
    static const char *const alias[][2] = { { "self", "input" },       { "dim", "axis" },
                                            { "keepdim", "keepdims" }, { "size", "shape" },
                                            { "dims", "axes" },        { "other", "x2" },
                                            { "min", "a_min" },        { "max", "a_max" } };
    for (size_t i = 0; i < COUNT(alias); i++)
        if (!strcmp(param, alias[i][0]) && !strcmp(given, alias[i][1]))
            return true;
    return false;
}

typedef struct extra { /* keywords that are not in the schema */
    PyObject *out, *requires_grad;
} extra;

enum { NOT_THIS, MATCHED, FAILED };

static bool all_ints(PyObject *const *a, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (!(PyLong_Check(a[i]) && !PyBool_Check(a[i])) && !py_is_symint(a[i]) &&
            !(PyIndex_Check(a[i]) && !PyTuple_Check(a[i]) && !PyList_Check(a[i])))
            return false;
    return true;
}

/* What the schema calls an int (a mode, a window, a power) is looked at while tracing: symbolic ones get a guard. */
static int settle(parse *p, const op_schema *s)
{
    for (int i = 0; i < s->nparam; i++) {
        tp_val *v = &p->val[i];
        if (!s->param[i].fixed)
            continue;
        if (v->kind == VAL_int && sym_is_expr(v->i) && !sym_is_unbacked(v->i))
            v->i = sym_specialize(v->i);
        for (int k = 0; v->kind == VAL_ints && k < v->n; k++)
            if (sym_is_expr(v->ints[k]) && !sym_is_unbacked(v->ints[k]))
                ((symint *)v->ints)[k] = sym_specialize(v->ints[k]);
    }
    return MATCHED;
}

static int match(parse *p, const op_row *r, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                 extra *x)
{
    const op_schema *s = &r->schema;
    size_t used = 0;
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0, kwused = 0;
    int npos = 0, first = s->nparam && !strcmp(s->param[0].name, "self") ? 1 : 0;

    p->bad = NULL;
    x->out = x->requires_grad = NULL;
    while (npos < s->nparam && !s->param[npos].kwonly)
        npos++;
    bool varargs = npos == first + 1 && s->param[first].type == PT_ints && nargs > first &&
                   all_ints(args + first, nargs - first);
    /* meshgrid(a, b): the one list of tensors may be spread out */
    bool spread = npos == 1 && s->param[0].type == PT_tensors && nargs >= 1 && py_is_tensor(args[0]) &&
                  !(r->flags & OPF_OUT); /* hstack and the like want a list */
    for (Py_ssize_t k = 1; spread && k < nargs; k++)
        spread = py_is_tensor(args[k]);
    if (nargs > npos && !varargs && !spread) {
        p->bad = "";
        return NOT_THIS;
    }
    for (int i = 0; i < s->nparam; i++) {
        const op_param *q = &s->param[i];
        PyObject *o = NULL;
        if (varargs && i == first) {
            if (!dims_fit(p, q, nargs - first))
                return FAILED;
            symint *m = list_mem(p, sizeof *m * (size_t)(nargs - first), &used);
            for (Py_ssize_t k = first; k < nargs; k++) {
                if (!py_to_symint(args[k], &m[k - first]))
                    return NOT_THIS;
                if (!entry_fits(p, r, q, args[k], k - first))
                    return FAILED;
            }
            p->val[i] = vIs(m, (int)(nargs - first));
            continue;
        }
        if (spread && i == 0) {
            tp_tensor **m = list_mem(p, sizeof *m * (size_t)nargs, &used);
            for (Py_ssize_t k = 0; k < nargs; k++)
                m[k] = py_tensor(args[k]);
            p->val[0] = vTs(m, (int)nargs);
            continue;
        }
        if (i < nargs && !q->kwonly)
            o = args[i];
        else
            for (Py_ssize_t k = 0; k < nkw; k++) {
                const char *kw = PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, k));
                if (kw && same_param(q->name, kw)) {
                    o = args[nargs + k];
                    kwused++;
                    break;
                }
            }
        if (!o) {
            if (!q->has_default && !q->optional) {
                p->bad = q->name;
                p->bad_arg = NULL;
                p->bad_pos = i;
                return NOT_THIS;
            }
            p->val[i] = q->def;
            continue;
        }
        if (!convert(p, r, q, o, &p->val[i], &used)) {
            if (PyErr_Occurred() || p->err.kind)
                return FAILED;
            p->bad = q->name;
            p->bad_arg = o;
            p->bad_pos = i;
            return NOT_THIS;
        }
    }
    if (kwused == nkw)
        return settle(p, s);
    bool creates = false;
    for (int i = s->nparam - 1; i >= 0 && s->param[i].kwonly && !creates; i--)
        creates = !strcmp(s->param[i].name, "pin_memory");
    for (Py_ssize_t k = 0; k < nkw; k++) { /* what is left must be out= or requires_grad= */
        const char *kw = PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, k));
        bool known = false;
        for (int i = 0; kw && i < s->nparam; i++)
            known |= same_param(s->param[i].name, kw) && (i >= nargs || s->param[i].kwonly);
        if (known)
            continue;
        if (kw && !strcmp(kw, "out") && (r->flags & OPF_OUT) && p->takes_out)
            x->out = args[nargs + k] == Py_None ? NULL : args[nargs + k];
        else if (kw && !strcmp(kw, "requires_grad") && creates)
            x->requires_grad = args[nargs + k];
        else if (kw && !strcmp(kw, "names") && args[nargs + k] == Py_None && creates)
            continue;
        else {
            p->bad = kw ? kw : "?";
            p->bad_arg = NULL;
            p->bad_pos = -1;
            return NOT_THIS;
        }
    }
    return settle(p, s);
}

/* ---- errors ---- */
static const char *type_word(const op_param *q)
{
    static const char *const words[2][PT_COUNT] = {
        { "Tensor", "tuple of Tensors", "Number", "int", "tuple of ints", "float", "tuple of floats", "bool",
          "tuple of bools", "str", "taper.dtype", "taper.device", "taper.layout", "taper.memory_format",
          "taper.Generator" },
        { "Tensor", "tuple of Tensors", "Number", "int", "tuple of ints", "float", "tuple of floats", "bool",
          "tuple of bools", "str", "torch.dtype", "torch.device", "torch.layout", "torch.memory_format",
          "torch.Generator" }
    };
    return words[!strcmp(py_prefix, "torch")][q->type];
}
static const char *param_word(const op_param *q) { return !strcmp(q->name, "self") ? "input" : q->name; }
static const char *type_name(PyObject *o) /* Tensor, not taper.Tensor */
{
    if (py_is_foreign(o))
        return "a tensor of PyTorch (from_dlpack() makes one of ours of it)";
    const char *n = Py_TYPE(o)->tp_name, *dot = py_is_tensor(o) ? strrchr(n, '.') : NULL;
    return dot ? dot + 1 : n;
}

static void describe(strbuf *b, const op_row *r, bool method)
{
    const op_schema *s = &r->schema;
    bool star = false, any = false;
    strbuf_add(b, "(");
    for (int i = 0; i < s->nparam; i++) {
        const op_param *q = &s->param[i];
        if (method && i == 0)
            continue;
        if (any)
            strbuf_add(b, ", ");
        any = true;
        if (q->kwonly && !star) {
            strbuf_add(b, "*, ");
            star = true;
        }
        strbuf_addf(b, "%s %s", type_word(q), !strcmp(q->name, "self") ? "input" : q->name);
        if (q->has_default && q->def.kind == VAL_none)
            strbuf_add(b, " = None");
        else if (q->has_default && q->def.kind == VAL_bool)
            strbuf_addf(b, " = %s", q->def.b ? "True" : "False");
        else if (q->has_default && q->def.kind == VAL_int)
            strbuf_addf(b, " = %lld", (long long)q->def.i);
    }
    if (r->flags & OPF_OUT && !method)
        strbuf_addf(b, "%s%sTensor out = None", any ? ", " : "", star ? "" : "*, ");
    strbuf_add(b, ")");
}

/* Does the call have the right number of arguments and known keywords for this row? */
static bool arity_fits(const op_row *r, Py_ssize_t nargs, PyObject *kwnames)
{
    const op_schema *s = &r->schema;
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    int npos = 0, need = 0;
    while (npos < s->nparam && !s->param[npos].kwonly)
        npos++;
    for (int i = 0; i < s->nparam; i++)
        need += !s->param[i].has_default && !s->param[i].optional;
    if (nargs > npos || nargs + nkw < need)
        return false;
    for (Py_ssize_t k = 0; k < nkw; k++) {
        const char *kw = PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, k));
        bool known = kw && (!strcmp(kw, "out") || !strcmp(kw, "requires_grad"));
        for (int i = 0; kw && !known && i < s->nparam; i++)
            known = same_param(s->param[i].name, kw);
        if (!known)
            return false;
    }
    return true;
}

/* The message for the one row that could have been meant. */
static void explain_row(strbuf *b, const op_name *n, const op_row *r, bool method, const parse *p,
                        Py_ssize_t nargs)
{
    const op_param *q = NULL;
    for (int i = 0; p->bad && i < r->schema.nparam; i++)
        if (!strcmp(r->schema.param[i].name, p->bad))
            q = &r->schema.param[i];
    if (q && p->bad_arg) {
        PyObject *o = p->bad_arg;
        Py_ssize_t len = PyTuple_Check(o) || PyList_Check(o) ? PySequence_Fast_GET_SIZE(o) : 0;
        for (Py_ssize_t k = 0; k < len; k++) {
            PyObject *e = PySequence_Fast_GET_ITEM(o, k);
            symint v;
            if (q->type == PT_tensors && !py_is_tensor(e)) {
                strbuf_addf(b, "expected Tensor as element %zd in argument %d, but got %s", k,
                            p->bad_pos - method, type_name(e));
                return;
            }
            if (q->type == PT_ints && !py_to_symint(e, &v)) {
                strbuf_addf(
                    b,
                    "%s(): argument '%s' failed to unpack the object at pos %zd with error \"type must "
                    "be tuple of ints,but got %s\"",
                    n->name, param_word(q), k + 1, type_name(e));
                return;
            }
        }
        strbuf_addf(b, "%s(): argument '%s' ", n->name, param_word(q));
        if (p->bad_pos < nargs && !q->kwonly)
            strbuf_addf(b, "(position %d) ", p->bad_pos + 1 - method);
        strbuf_addf(b, "must be %s, not %s", type_word(q), type_name(o));
    } else if (q)
        strbuf_addf(b, "%s() missing 1 required positional arguments: \"%s\"", n->name, param_word(q));
    else if (p->bad && *p->bad)
        strbuf_addf(b, "%s() got an unexpected keyword argument '%s'", n->name, p->bad);
    else {
        int npos = 0;
        while (npos < r->schema.nparam && !r->schema.param[npos].kwonly)
            npos++;
        strbuf_addf(b, "%s() takes %d positional argument%s but %d were given", n->name, npos - method,
                    npos - method == 1 ? "" : "s", (int)nargs - method);
    }
}

/* Under a row that has the right arity: which arguments have types it does not take. */
static void explain_types(strbuf *b, const op_row *r, bool method, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames)
{
    parse p;
    size_t used = 0;
    arena_init(&p.mem);
    p.err.kind = ERR_none;
    p.strict = false;
    strbuf_add(b, "      didn't match because some of the arguments have invalid types: (");
    for (Py_ssize_t i = method; i < nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0); i++) {
        const op_param *q = i < nargs ? &r->schema.param[i] : NULL;
        const char *kw = q ? NULL : PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, i - nargs));
        for (int k = 0; kw && !q && k < r->schema.nparam; k++)
            if (same_param(r->schema.param[k].name, kw))
                q = &r->schema.param[k];
        tp_val v;
        bool ok = !q || convert(&p, r, q, args[i], &v, &used);
        PyErr_Clear();
        strbuf_addf(b, "%s%s%s%s%s%s", i > method ? ", " : "", ok ? "" : "!", kw ? kw : "", kw ? "=" : "",
                    type_name(args[i]), ok ? "" : "!");
    }
    strbuf_add(b, ")\n");
    arena_free(&p.mem);
}

static PyObject *no_match(const op_name *n, bool method, parse *p, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames)
{
    strbuf b = { 0 };
    int fits = 0;
    const op_row *r = op_row_of((op_id)n->row[0]);
    if (nargs == 1 && !kwnames && !method && !strcmp(n->name, "where") && py_is_tensor(args[0])) {
        /* where(condition) has no row: it is nonzero, one tensor a dimension */
        PyObject *f = PyObject_GetAttrString(args[0], "nonzero"), *name = PyUnicode_FromString("as_tuple"),
                 *kw = name ? PyTuple_Pack(1, name) : NULL,
                 *res = f && kw ? PyObject_Vectorcall(f, (PyObject *[]){ Py_True }, 0, kw) : NULL;
        Py_XDECREF(f);
        Py_XDECREF(name);
        Py_XDECREF(kw);
        return res;
    }
    for (int k = 0; n->nrow > 1 && k < n->nrow; k++) {
        const op_schema *s = &op_row_of((op_id)n->row[k])->schema;
        Py_ssize_t given = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
        int need = 0;
        for (int i = 0; i < s->nparam; i++)
            need += !s->param[i].has_default && !s->param[i].optional;
        if (given >= need && given <= s->nparam) {
            r = op_row_of((op_id)n->row[k]);
            fits++;
        }
    }
    if (n->nrow > 1 && fits == 1) { /* only one has this many arguments: say what is wrong with those */
        extra x;
        match(p, r, args, nargs, kwnames, &x);
    }
    if (n->nrow == 1 || fits == 1)
        explain_row(&b, n, r, method, p, nargs);
    else {
        strbuf_addf(&b, "%s() received an invalid combination of arguments - got (", n->name);
        for (Py_ssize_t i = method; i < nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0); i++) {
            strbuf_addf(&b, "%s", i > method ? ", " : "");
            if (i >= nargs)
                strbuf_addf(&b, "%s=", PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, i - nargs)));
            strbuf_add(&b, type_name(args[i]));
        }
        strbuf_add(&b, "), but expected one of:\n");
        for (int k = 0; k < n->nrow; k++) {
            r = op_row_of((op_id)n->row[k]);
            strbuf_add(&b, " * ");
            describe(&b, r, method);
            strbuf_add(&b, "\n");
            if (arity_fits(r, nargs, kwnames))
                explain_types(&b, r, method, args, nargs, kwnames);
        }
    }
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, strbuf_str(&b));
    strbuf_free(&b);
    return NULL;
}

/* ---- results ---- */
static PyObject *named_repr(PyObject *o) /* one result a line, as PyTorch's */
{
    const char *name = Py_TYPE(o)->tp_name;
    PyObject *text = PyUnicode_FromFormat("%s(\n", name);
    for (Py_ssize_t i = 0; text && i < PyTuple_GET_SIZE(o); i++) {
        PyObject *t = PyUnicode_FromFormat("%U%s%s=%R", text, i ? ",\n" : "", Py_TYPE(o)->tp_members[i].name,
                                           PyTuple_GET_ITEM(o, i));
        Py_SETREF(text, t);
    }
    PyObject *r = text ? PyUnicode_FromFormat("%U)", text) : NULL;
    Py_XDECREF(text);
    return r;
}

static PyObject *named_tuple(const op_row *r)
{
    static PyObject *made; /* row name -> structseq type */
    if (!made && !(made = PyDict_New()))
        return NULL;
    PyObject *t = PyDict_GetItemString(made, r->full);
    if (t)
        return t;
    PyStructSequence_Field *f = mem_zalloc(sizeof *f * (size_t)(r->schema.nret + 1));
    for (int i = 0; i < r->schema.nret; i++)
        f[i].name = r->schema.ret_name[i];
    char *name = mem_zalloc(strlen(r->name) + 24);
    sprintf(name, "%s.return_types.%s", py_prefix, r->name);
    PyStructSequence_Desc d = { name, "named results", f, r->schema.nret };
    t = (PyObject *)PyStructSequence_NewType(&d);
    if (t) {
        ((PyTypeObject *)t)->tp_repr = named_repr;
        PyDict_SetItemString(made, r->full, t);
    }
    Py_XDECREF(t);
    return t;
}

/* The type under this name in return_types: of the first row with this name that has one. None: there is none. */
static PyObject *f_return_type(PyObject *m, PyObject *name)
{
    const char *want = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    for (int i = 0; want && i < OP_COUNT; i++) {
        const op_row *r = op_row_of((op_id)i);
        if (r->schema.nret > 1 && r->schema.ret_name[0] && !strcmp(r->name, want))
            return Py_XNewRef(named_tuple(r));
    }
    Py_RETURN_NONE;
}

static PyObject *results(const op_row *r, tp_val *out)
{
    if (r->schema.nret == 1)
        return py_val(&out[0]);
    if (r->schema.nret == 0)
        Py_RETURN_NONE;
    PyObject *type = r->schema.ret_name[0] ? named_tuple(r) : NULL;
    PyObject *t = type ? PyStructSequence_New((PyTypeObject *)type) : PyTuple_New(r->schema.nret);
    for (int i = 0; t && i < r->schema.nret; i++) {
        PyObject *v = py_val(&out[i]);
        if (type)
            PyStructSequence_SetItem(t, i, v);
        else
            PyTuple_SET_ITEM(t, i, v);
        if (!v)
            Py_CLEAR(t);
    }
    return t;
}

static bool write_one(const op_row *r, PyObject *dst, tp_tensor *s, tp_err *err)
{
    static py_row_ref copy = PY_ROW("copy_");
    if (!py_is_tensor(dst)) {
        PyErr_Format(PyExc_TypeError, "%s(): argument 'out' must be Tensor, not %s", r->name,
                     Py_TYPE(dst)->tp_name);
        return false;
    }
    tp_tensor *d = py_tensor(dst);
    if ((r->flags & OPF_EXACT) && s->dt != d->dt)
        return err_set(err, ERR_runtime, "Expected out tensor to have dtype %s, but got %s instead",
                       dtype_name((dtype)s->dt), dtype_name((dtype)d->dt));
    if (s == d) { /* the kernel wrote there itself */
        if (!(d->spare & AGF_data))
            tensor_bump(d);
        return true;
    }
    if ((dtype_is_float((dtype)s->dt) && !dtype_is_float((dtype)d->dt)) ||
        (d->dt == DT_bool && s->dt != DT_bool))
        return err_set(err, ERR_runtime, "result type %s can't be cast to the desired output type %s",
                       dtype_rows[s->dt].gname, dtype_rows[d->dt].gname);
    if (!device_eq(tensor_device(d), tensor_device(s)))
        return err_set(err, ERR_runtime, "%s(): expected out tensor to be on device %s", r->name,
                       device_name((dev_kind)tensor_device(s).kind));
    if (!tensor_same_size(d, s)) { /* takes the size of the result */
        tp_tensor *fresh = tensor_is_fake(s) ? tensor_fake_of(s)
                                             : tensor_new((dtype)d->dt, s->ndim, s->size, err);
        bool ok = fresh && tensor_reset(d, fresh->storage, (dtype)d->dt, s->ndim, s->size, NULL, 0, err);
        tensor_unref(fresh);
        if (!ok)
            return false;
    }
    tp_val done = { 0 };
    bool ok = py_row(&copy, (tp_val[]){ vT(d), vT(s) }, 2, &done, err);
    val_clear(&done);
    return ok;
}

static PyObject *write_out(const op_row *r, PyObject *given, tp_val *out) /* out=: copy the results there */
{
    tp_err err = { 0 };
    int n = r->schema.nret;
    bool seq = PyTuple_Check(given) || PyList_Check(given), ok = true;
    if (r->schema.ret_list || (n > 1) != seq || (seq && PySequence_Fast_GET_SIZE(given) != n)) {
        PyErr_Format(PyExc_TypeError, "%s(): argument 'out' must be %s, not %s", r->name,
                     n > 1 ? "tuple of Tensors, one for each result" : "Tensor", Py_TYPE(given)->tp_name);
        ok = false;
    }
    for (int i = 0; ok && i < n; i++)
        ok = write_one(r, seq ? PySequence_Fast_GET_ITEM(given, i) : given, out[i].t, &err);
    for (int k = 0; k < n; k++)
        val_clear(&out[k]);
    return ok ? Py_NewRef(given) : py_raise(&err);
}

static bool val_wants_grad(const tp_val *v)
{
    bool grad = v->kind == VAL_tensor && grad_requires_grad(v->t);
    for (int k = 0; v->kind == VAL_tensors && !grad && k < v->n; k++)
        grad = v->ts[k] && grad_requires_grad(v->ts[k]);
    return grad;
}

/* A gradient would be needed of a call with out=, which records none. Rows that never have one may write anywhere. */
static bool out_wants_grad(const op_row *r, const parse *p, PyObject *given)
{
    bool takes = false, seq = PyTuple_Check(given) || PyList_Check(given);
    if (!CX->grad_mode || CX->inference_mode || (r->flags & OPF_NODIFF))
        return false;
    for (int i = 0; i < r->schema.nparam; i++) {
        takes |= p->val[i].kind == VAL_tensor || p->val[i].kind == VAL_tensors;
        if (val_wants_grad(&p->val[i]))
            return true;
    }
    for (Py_ssize_t k = 0; takes && k < (seq ? PySequence_Fast_GET_SIZE(given) : 1); k++) {
        PyObject *o = seq ? PySequence_Fast_GET_ITEM(given, k) : given;
        if (py_is_tensor(o) && grad_requires_grad(py_tensor(o)))
            return true;
    }
    return false;
}

/* The tensor given by out= when the kernel may write there itself: no gradient is wanted, nothing is recorded. */
static tp_tensor *into_of(const op_row *r, const parse *p, PyObject *given)
{
    if (!py_is_tensor(given) || r->schema.nret != 1 || r->schema.ret_list || CX->rec)
        return NULL;
    tp_tensor *t = py_tensor(given);
    if (t->flags & TF_inference && !CX->inference_mode) /* refused where the result is copied there */
        return NULL;
    bool grad = grad_requires_grad(t);
    for (int i = 0; CX->grad_mode && !CX->inference_mode && !grad && i < r->schema.nparam; i++)
        grad = val_wants_grad(&p->val[i]);
    return grad || tensor_is_fake(t) ? NULL : t;
}

/* out= of a row that reads its arguments while it writes. */
static bool out_apart(const op_row *r, const parse *p, PyObject *given, tp_err *err)
{
    bool seq = PyTuple_Check(given) || PyList_Check(given);
    Py_ssize_t n = seq ? PySequence_Fast_GET_SIZE(given) : 1;
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *o = seq ? PySequence_Fast_GET_ITEM(given, k) : given;
        if (!py_is_tensor(o))
            continue;
        tp_tensor *t = py_tensor(o);
        if (tensor_overlaps_itself(t))
            return ops_overlap_err(true, err);
        for (int i = 0; i < r->schema.nparam; i++) {
            const tp_val *v = &p->val[i];
            if (v->kind == VAL_tensor && tensor_shares(t, v->t))
                return ops_overlap_err(false, err);
            for (int j = 0; v->kind == VAL_tensors && j < v->n; j++)
                if (v->ts[j] && tensor_shares(t, v->ts[j]))
                    return ops_overlap_err(false, err);
        }
    }
    return true;
}

/* ---- the call ---- */
static PyObject *run(op_id op, const op_row *r, op_variant v, parse *p, const extra *x)
{
    tp_val out[OP_MAX_RETURNS] = { 0 };
    tp_err err;
    err.kind = ERR_none;
    uint8_t cast = CX->autocast;
    if (x->out && out_wants_grad(r, p, x->out)) {
        err_set(
            &err, ERR_runtime,
            "%s(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad.",
            r->name);
        return py_raise(&err);
    }
    if (x->out && (r->flags & OPF_OWN) && !out_apart(r, p, x->out, &err))
        return py_raise(&err);
    if (x->out) {
        CX->into = into_of(r, p, x->out);
        CX->autocast = 0; /* out= has the type it has */
    }
    bool ok = grad_call(CX, op, v, p->val, out, &err);
    CX->into = NULL;
    CX->autocast = cast;
    if (!ok)
        return py_raise(&err);
    if (x->out)
        return write_out(r, x->out, out);
    PyObject *res = results(r, out);
    if (res && x->requires_grad && x->requires_grad == Py_True) {
        PyObject *m = PyObject_CallMethod(res, "requires_grad_", NULL);
        if (!m)
            Py_CLEAR(res);
        Py_XDECREF(m);
    }
    return res;
}

PyObject *py_op_call(const op_name *n, bool method, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames)
{
    parse p;
    extra x;
    PyObject *res = NULL;
    if (TP_UNLIKELY(py_overrides) && n->obj && py_taken(n->obj, args, nargs, kwnames, &res))
        return res;
    arena_init(&p.mem);
    p.err.kind = ERR_none;
    p.strict = n->nrow > 1;
    p.takes_out = !method && n->variant == OPV_fn;
again:
    for (int i = 0; i < n->nrow; i++) {
        const op_row *r = op_row_of((op_id)n->row[i]);
        int m = match(&p, r, args, nargs, kwnames, &x);
        if (m == MATCHED) {
            res = run((op_id)n->row[i], r, n->variant, &p, &x);
            goto done;
        }
        if (m == FAILED) {
            py_raise(&p.err);
            goto done;
        }
    }
    if (p.strict) {
        p.strict = false;
        goto again;
    }
    if (!n->obj || !py_untaken(args, nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0)) ||
        !py_taken(n->obj, args, nargs, kwnames, &res))
        res = no_match(n, method, &p, args, nargs, kwnames);
done:
    if (p.mem.blocks)
        arena_free(&p.mem);
    return res;
}

PyObject *py_op(const char *name, PyObject *const *args, Py_ssize_t nargs)
{
    const op_name *n = py_op_name(name, "");
    if (!n)
        n = py_op_name(name, "Tensor");
    if (!n)
        return PyErr_Format(PyExc_AttributeError, "taper has no operator '%s'", name);
    return py_op_call(n, false, args, nargs, NULL);
}

/* ---- callable objects: functions do not bind, methods do ---- */
typedef struct PyOp {
    PyObject_HEAD vectorcallfunc call;
    const op_name *name;
} PyOp;

static PyObject *func_call(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return py_op_call(((PyOp *)o)->name, false, args, PyVectorcall_NARGS(nargsf), kwnames);
}
/* x.where(condition, other): of the rows' parameters "self" is the second. */
static PyObject *second_call(const op_name *name, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    PyObject *r = NULL, *names = NULL, **v;
    if (TP_UNLIKELY(py_overrides) && name->obj && py_taken(name->obj, args, n, kwnames, &r))
        return r;
    v = mem_alloc(sizeof *v * (size_t)(n + nkw));
    memcpy(v, args, sizeof *v * (size_t)(n + nkw));
    if (n > 1) {
        v[0] = args[1];
        v[1] = args[0];
        r = py_op_call(name, true, v, n, kwnames);
    } else if ((names = PyTuple_New(nkw + 1))) { /* condition=c: then self goes by its name, too */
        for (Py_ssize_t i = 0; i < nkw; i++)
            PyTuple_SET_ITEM(names, i, Py_NewRef(PyTuple_GET_ITEM(kwnames, i)));
        PyTuple_SET_ITEM(names, nkw, PyUnicode_FromString("self"));
        memmove(v, v + 1, sizeof *v * (size_t)nkw);
        v[nkw] = args[0];
        r = py_op_call(name, true, v, 0, names);
    }
    Py_XDECREF(names);
    free(v);
    return r;
}
static bool self_is_second(const op_name *n)
{
    const op_schema *s = &op_row_of((op_id)n->row[0])->schema;
    return s->nparam > 1 && strcmp(s->param[0].name, "self") && !strcmp(s->param[1].name, "self");
}
static PyObject *method_call(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    PyObject *taken = NULL;
    if (n > 0 && !py_is_tensor(args[0]) && py_overrides && py_taken(o, args, n, kwnames, &taken))
        return taken;
    if (n < 1 || !py_is_tensor(args[0]))
        return PyErr_Format(PyExc_TypeError,
                            "descriptor '%s' for 'Tensor' objects needs a Tensor as its first argument",
                            ((PyOp *)o)->name->name);
    if (TP_UNLIKELY(self_is_second(((PyOp *)o)->name)))
        return second_call(((PyOp *)o)->name, args, n, kwnames);
    return py_op_call(((PyOp *)o)->name, true, args, n, kwnames);
}
static PyObject *method_get(PyObject *o, PyObject *self, PyObject *type)
{
    return self && self != Py_None ? PyMethod_New(o, self) : Py_NewRef(o);
}
static PyObject *op_repr(PyObject *o)
{
    const op_name *n = ((PyOp *)o)->name;
    if (Py_TYPE(o) == &PyOpMethod_Type)
        return PyUnicode_FromFormat("<method '%s' of '%s.Tensor' objects>", n->name, py_prefix);
    return PyUnicode_FromFormat("<built-in function %s>", n->name);
}
/* ">>> taper.sin(x) ...", as help() shows it: of a method that of the function. Generated (tools/gendocs_examples.py). */
static void add_example(strbuf *b, const op_name *n, const char *space)
{
    PyObject *m = PyImport_ImportModule("taper._op_examples"),
             *all = m ? PyObject_GetAttrString(m, "EXAMPLES") : NULL,
             *key = PyUnicode_FromFormat(*space ? "taper.%s.%s" : "taper.%s%s", space, n->name),
             *text = all && key && PyDict_Check(all) ? PyDict_GetItemWithError(all, key) : NULL;
    const char *s = text ? PyUnicode_AsUTF8(text) : NULL;
    if (s)
        strbuf_adds(b, "\n\nExample:\n\n", s, "\n", NULL);
    PyErr_Clear();
    Py_XDECREF(key);
    Py_XDECREF(all);
    Py_XDECREF(m);
}
static PyObject *op_get(PyObject *o, void *what)
{
    const op_name *n = ((PyOp *)o)->name;
    switch ((intptr_t)what) {
    case 0: return PyUnicode_FromString(n->name);
    case 1:
        if (Py_TYPE(o) == &PyOpMethod_Type)
            return PyUnicode_FromString(py_prefix);
        return *n->space ? PyUnicode_FromFormat("%s.%s", py_prefix, n->space)
                         : PyUnicode_FromString(py_prefix);
    case 2: {
        strbuf b = { 0 };
        for (int i = 0; i < n->nrow; i++) {
            strbuf_add(&b, n->name);
            describe(&b, op_row_of((op_id)n->row[i]), Py_TYPE(o) == &PyOpMethod_Type);
            strbuf_addf(&b, "\n");
        }
        for (int i = 0; i < n->nrow; i++)
            strbuf_addf(&b, "\naten::%s", op_row_of((op_id)n->row[i])->schema_text);
        add_example(&b, n, Py_TYPE(o) == &PyOpMethod_Type ? "" : n->space);
        PyObject *d = PyUnicode_FromString(strbuf_str(&b));
        strbuf_free(&b);
        return d;
    }
    case 4: /* of what is a function of Python's in PyTorch */
        for (int i = 0; i < n->nrow; i++) {
            const op_schema *s = &op_row_of((op_id)n->row[i])->schema;
            PyObject *d = PyDict_New();
            for (int k = 0; d && k < s->nparam; k++) {
                PyObject *v = s->param[k].kwonly ? py_from_val(&s->param[k].def) : NULL;
                if (v)
                    PyDict_SetItemString(d, s->param[k].name, v);
                Py_XDECREF(v);
            }
            if (!d || PyDict_GET_SIZE(d))
                return d;
            Py_DECREF(d);
        }
        Py_RETURN_NONE;
    default: { /* rows behind the name */
        PyObject *l = PyList_New(n->nrow);
        for (int i = 0; l && i < n->nrow; i++)
            PyList_SET_ITEM(l, i, PyUnicode_FromString(op_row_of((op_id)n->row[i])->full));
        return l;
    }
    }
}
static PyObject *op_reduce(PyObject *o, PyObject *unused)
{
    return PyUnicode_FromString(((PyOp *)o)->name->name);
}
static PyGetSetDef op_getset[] = { { "__name__", op_get, NULL, NULL, (void *)0 },
                                   { "__qualname__", op_get, NULL, NULL, (void *)0 },
                                   { "__module__", op_get, NULL, NULL, (void *)1 },
                                   { "__doc__", op_get, NULL, NULL, (void *)2 },
                                   { "__kwdefaults__", op_get, NULL, NULL, (void *)4 },
                                   { "_rows", op_get, NULL, "op table rows behind this name", (void *)3 },
                                   { NULL } };
static PyMethodDef op_methods[] = { { "__reduce__", op_reduce, METH_NOARGS, NULL }, { NULL } };
PyTypeObject PyOpFunc_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.builtin_function",
                               .tp_basicsize = sizeof(PyOp),
                               .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
                               .tp_vectorcall_offset = offsetof(PyOp, call),
                               .tp_call = PyVectorcall_Call,
                               .tp_repr = op_repr,
                               .tp_getset = op_getset,
                               .tp_methods = op_methods };
PyTypeObject PyOpMethod_Type = { PyVarObject_HEAD_INIT(NULL, 0).tp_name = "taper.builtin_method",
                                 .tp_basicsize = sizeof(PyOp),
                                 .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL |
                                             Py_TPFLAGS_METHOD_DESCRIPTOR,
                                 .tp_vectorcall_offset = offsetof(PyOp, call),
                                 .tp_call = PyVectorcall_Call,
                                 .tp_descr_get = method_get,
                                 .tp_repr = op_repr,
                                 .tp_getset = op_getset,
                                 .tp_methods = op_methods };

static PyObject *op_object(op_name *n)
{
    if (n->obj)
        return Py_NewRef(n->obj);
    bool method = !strcmp(n->space, "Tensor");
    PyOp *o = PyObject_New(PyOp, method ? &PyOpMethod_Type : &PyOpFunc_Type);
    if (!o)
        return NULL;
    o->call = method ? method_call : func_call;
    o->name = n;
    n->obj = Py_NewRef((PyObject *)o);
    return (PyObject *)o;
}

/* _schemas() -> [(full name, schema, py, flags, eager, vjp, decomp, lower)]: documentation and tests read the
 * table. */
static PyObject *schemas(PyObject *m, PyObject *unused)
{
    PyObject *l = PyList_New(0);
    for (int i = 0; l && i < OP_COUNT; i++) {
        const op_row *r = op_row_of((op_id)i);
        PyObject *t = Py_BuildValue("(sssIssss)", r->full, r->schema_text, r->py, r->flags, r->eager_name,
                                    r->vjp_name, r->decomp_name, r->lower_name);
        if (!t || PyList_Append(l, t) < 0)
            Py_CLEAR(l);
        Py_XDECREF(t);
    }
    return l;
}

/* A function of the package, written in Python, calls a row with an argument whose class takes calls over: it is the
 * function's call that is taken over, with the arguments it was given. */
static bool caller_taken(const char *row, PyObject **res)
{
    PyFrameObject *fr = PyThreadState_GetFrame(PyThreadState_Get());
    PyCodeObject *co = fr ? PyFrame_GetCode(fr) : NULL;
    PyObject *globals = fr ? PyFrame_GetGlobals(fr) : NULL, *locals = fr ? PyFrame_GetLocals(fr) : NULL,
             *fn = globals ? PyDict_GetItemString(globals, row) : NULL, *in = PyList_New(0);
    bool is = false;
    if (globals && !(fn && PyFunction_Check(fn) && PyFunction_GET_CODE(fn) == (PyObject *)co))
        fn = PyDict_GetItem(globals, co->co_name);
    if (in && locals && fn && PyFunction_Check(fn) && PyFunction_GET_CODE(fn) == (PyObject *)co &&
        !(co->co_flags & CO_VARKEYWORDS)) {
        PyObject *names = PyCode_GetVarnames(co);
        int n = co->co_argcount + ((co->co_flags & CO_VARARGS) != 0), kwonly = co->co_kwonlyargcount;
        for (int i = 0; names && i < n; i++) {
            bool rest = i == co->co_argcount;
            PyObject *v = PyObject_GetItem(locals, PyTuple_GET_ITEM(names, rest ? i + kwonly : i));
            int rc = !v     ? -1
                     : rest ? PyList_SetSlice(in, PyList_GET_SIZE(in), PyList_GET_SIZE(in), v)
                            : PyList_Append(in, v);
            if (rc < 0)
                py_forget();
            Py_XDECREF(v);
        }
        PyErr_Clear();
        is = py_taken(fn, ((PyListObject *)in)->ob_item, PyList_GET_SIZE(in), NULL, res);
        Py_XDECREF(names);
    }
    Py_XDECREF(in);
    Py_XDECREF(locals);
    Py_XDECREF(globals);
    Py_XDECREF((PyObject *)co);
    Py_XDECREF((PyObject *)fr);
    return is;
}

/* _call("add.Tensor", args...): a row by its full name, positional arguments only, schema order. */
static PyObject *call_row(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    op_id op;
    op_variant v;
    const char *s = nargs ? PyUnicode_AsUTF8(args[0]) : NULL;
    if (!s || !op_find(s, strlen(s), &op, &v))
        return PyErr_Format(PyExc_AttributeError, "no operator row named %R", nargs ? args[0] : Py_None);
    uint16_t row = (uint16_t)op;
    op_name n = { .name = op_row_of(op)->name, .space = "", .variant = v, .nrow = 1, .row = &row };
    PyObject *r = py_op_call(&n, false, args + 1, nargs - 1, kwnames);
    if (!r && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyObject *t, *e, *tb;
        PyErr_Fetch(&t, &e, &tb); /* looking for attributes of classes must not lose it */
        if (py_untaken(args + 1, nargs - 1 + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0)) &&
            caller_taken(n.name, &r)) {
            Py_XDECREF(t);
            Py_XDECREF(e);
            Py_XDECREF(tb);
        } else
            PyErr_Restore(t, e, tb);
    }
    return r;
}

/* _call_parts("native_layer_norm", args...): the same through the row's decomposition. */
static PyObject *call_parts(PyObject *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    op_id op;
    op_variant v;
    const char *s = nargs ? PyUnicode_AsUTF8(args[0]) : NULL;
    if (!s || !op_find(s, strlen(s), &op, &v) || !strcmp(op_row_of(op)->decomp_name, "none"))
        return PyErr_Format(PyExc_AttributeError, "no operator row named %R has a decomposition",
                            nargs ? args[0] : Py_None);
    parse p;
    extra x;
    PyObject *res = NULL;
    tp_val out[OP_MAX_RETURNS] = { 0 };
    tp_err err = { 0 };
    arena_init(&p.mem);
    p.err.kind = ERR_none;
    p.strict = false;
    p.takes_out = false;
    int fit = match(&p, op_row_of(op), args + 1, nargs - 1, kwnames, &x);
    if (fit != MATCHED)
        PyErr_Format(PyExc_TypeError, "%s: the arguments do not fit the schema", s);
    else if (!grad_call_parts(CX, op, p.val, out, &err))
        py_raise(&err);
    else
        res = results(op_row_of(op), out);
    if (p.mem.blocks)
        arena_free(&p.mem);
    return res;
}

/* _aten("add") or _aten("add.Tensor") -> function: all rows of an ATen name, or the one with this overload
 * ("add.default" is the row without one); None when there is none. */
static PyObject *aten(PyObject *m, PyObject *name)
{
    const char *s = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL, *dot = s ? strchr(s, '.') : NULL;
    if (!s)
        return PyErr_Format(PyExc_TypeError, "_aten() expects a name");
    size_t nb = dot ? (size_t)(dot - s) : strlen(s);
    const char *over = dot && strcmp(dot, ".default") ? dot + 1 : "";
    const op_name *have = py_op_name(s, "aten");
    for (int i = 0; !have && i < 2 * OP_COUNT; i++) { /* functional rows, then in-place twins */
        op_id op = (op_id)(i % OP_COUNT);
        const op_row *r = op_row_of(op);
        bool inp = i >= OP_COUNT;
        size_t nr = strlen(r->name);
        if ((inp && !(r->flags & (OPF_INP | OPF_INPONLY))) || nb != nr + inp || strncmp(s, r->name, nr) ||
            (inp && s[nr] != '_') || (dot && strcmp(over, r->overload)))
            continue;
        name_add("aten", s, op, inp ? OPV_inplace : OPV_fn);
        if (dot)
            break;
    }
    have = py_op_name(s, "aten");
    return have ? op_object((op_name *)have) : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    { "_aten", aten, METH_O, "the rows of an ATen name as one function" },
    { "_return_type", f_return_type, METH_O, "the type of an operator's several results" },
    { "_schemas", schemas, METH_NOARGS, "the op table as a list of tuples" },
    { "_call_parts", (PyCFunction)(void (*)(void))call_parts, METH_FASTCALL | METH_KEYWORDS,
      "an operator row through its decomposition" },
    { "_call", (PyCFunction)(void (*)(void))call_row, METH_FASTCALL | METH_KEYWORDS,
      "call a row by its full name" },
    { NULL }
};

int py_init_ops(PyObject *m)
{
    if (PyType_Ready(&PyOpFunc_Type) < 0 || PyType_Ready(&PyOpMethod_Type) < 0)
        return -1;
    collect();
    PyObject *spaces = PyDict_New(); /* space -> {name: function} */
    for (op_name *n = all_names; n; n = n->next) {
        PyObject *f = op_object(n);
        if (!f)
            return -1;
        int rc;
        if (!strcmp(n->space, "Tensor"))
            /* a hand-written method or property of the same name wins */
            rc = PyDict_GetItemString(PyTensor_Type.tp_dict, n->name)
                     ? 0
                     : PyDict_SetItemString(PyTensor_Type.tp_dict, n->name, f);
        else {
            PyObject *d = PyDict_GetItemString(spaces, n->space);
            if (!d) {
                d = PyDict_New();
                PyDict_SetItemString(spaces, n->space, d);
                Py_DECREF(d);
            }
            rc = PyDict_SetItemString(d, n->name, f);
        }
        Py_DECREF(f);
        if (rc < 0)
            return -1;
    }
    PyType_Modified(&PyTensor_Type);
    if (PyModule_AddObject(m, "_op_functions", spaces) < 0)
        return -1;
    return PyModule_AddFunctions(m, functions);
}
