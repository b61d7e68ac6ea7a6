/* table.c - the op table as data: rows, parsed schemas, look-up by name. */
#include "ops/op.h"
#include "base/arena.h"
#include "base/map.h"
#include <pthread.h>
#include <stdio.h>

#define OP(id, schema, shape, eager, vjp, decomp, lower, flags, py) \
    op_shape_fn shape_##shape;                                      \
    op_eager_fn eager_##eager;                                      \
    op_decomp_fn decomp_##decomp;
#include "ops/ops.def"

bool eager_none(op_call *c) { return err_set(c->err, ERR_notimpl, "'%s' has no eager kernel", c->row->full); }
bool shape_none(op_call *c) { return err_set(c->err, ERR_internal, "'%s' has no shape rule", c->row->full); }
bool eager_view(op_call *c) { return true; } /* views are made from their shape rule alone */
bool decomp_none(bld *b, const tp_val *arg, tp_val *out)
{
    return err_set(b->err, ERR_internal, "no decomposition");
}

static op_row rows[OP_COUNT] = {
#define OP(id, schema, shape, eager, vjp, decomp, lower, flags, py)                                          \
    [OP_##id] = { NULL,   NULL, NULL,    schema, py,   flags, shape_##shape, eager_##eager, decomp_##decomp, \
                  #eager, #vjp, #decomp, #lower, { 0 } },
#include "ops/ops.def"
};
static map by_name;
static arena names; /* lives as long as the process */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- schema text -> op_schema ---- */
typedef struct scan {
    const char *p;
    const op_row *row;
} scan;

static void bad(scan *s, const char *what)
{
    fprintf(stderr, "taper: schema of '%s': %s at '%.30s'\n", s->row->schema_text, what, s->p);
    abort(); /* the table is ours: a broken row is a broken build, found by the first test */
}
static void blanks(scan *s)
{
    while (*s->p == ' ')
        s->p++;
}
static bool eat(scan *s, const char *t)
{
    blanks(s);
    size_t n = strlen(t);
    if (strncmp(s->p, t, n))
        return false;
    s->p += n;
    return true;
}
static char *word(scan *s)
{
    blanks(s);
    const char *b = s->p;
    while ((*s->p >= 'a' && *s->p <= 'z') || (*s->p >= 'A' && *s->p <= 'Z') ||
           (*s->p >= '0' && *s->p <= '9') || *s->p == '_')
        s->p++;
    if (s->p == b)
        bad(s, "a word was expected");
    return arena_strndup(&names, b, (size_t)(s->p - b));
}

static param_type type_of(scan *s, const char *w)
{
    static const struct {
        const char *w;
        param_type t;
    } types[] = { { "Tensor", PT_tensor }, { "Scalar", PT_scalar },       { "int", PT_int },
                  { "SymInt", PT_int },    { "float", PT_float },         { "bool", PT_bool },
                  { "str", PT_str },       { "ScalarType", PT_dtype },    { "Device", PT_device },
                  { "Layout", PT_layout }, { "MemoryFormat", PT_memfmt }, { "Generator", PT_gen } };
    for (size_t i = 0; i < COUNT(types); i++)
        if (!strcmp(types[i].w, w))
            return types[i].t;
    bad(s, "unknown type");
    return PT_int;
}

/* Numbers that become values of elements or sizes; all others decide what is computed. */
static bool stays_symbolic(const char *name)
{
    static const char *const names[] = { "fill_value", "value", "s",   "start", "end",
                                         "step",       "min",   "max", "self",  "other" };
    for (size_t i = 0; i < COUNT(names); i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

static void type(scan *s, op_param *p)
{
    const char *w = word(s);
    p->type = (uint8_t)type_of(s, w);
    p->fixed = !strcmp(w, "int") || !strcmp(w, "Scalar"); /* until its name says otherwise */
    if (*s->p == '(') {                                   /* alias annotation: (a), (a!) */
        while (*s->p && *s->p != ')')
            if (*s->p++ == '!')
                p->mutated = true;
        s->p++;
    }
    bool q = eat(s, "?");
    if (*s->p == '[') {
        s->p++;
        p->list_n = (int16_t)strtol(s->p, (char **)&s->p, 10);
        if (!eat(s, "]"))
            bad(s, "']' was expected");
        p->elem_opt = q;
        switch (p->type) {
        case PT_tensor: p->type = PT_tensors; break;
        case PT_int: p->type = PT_ints; break;
        case PT_float: p->type = PT_floats; break;
        case PT_bool: p->type = PT_bools; break;
        default: bad(s, "no lists of this type");
        }
        q = eat(s, "?");
    }
    p->optional = q;
}

static tp_val number_list(scan *s, param_type t)
{
    symint iv[8];
    bool bv[8];
    int n = 0;
    while (!eat(s, "]")) {
        if (t == PT_bools) {
            bv[n++] = eat(s, "True");
            if (!bv[n - 1])
                eat(s, "False");
        } else
            iv[n++] = strtoll(s->p, (char **)&s->p, 10);
        eat(s, ",");
    }
    if (t == PT_bools)
        return (tp_val){ .kind = VAL_bools, .n = n, .bools = arena_dup(&names, bv, sizeof bv) };
    return (tp_val){ .kind = VAL_ints, .n = n, .ints = arena_dup(&names, iv, sizeof iv) };
}

static tp_val default_value(scan *s, const op_param *p)
{
    if (eat(s, "None"))
        return vNone;
    if (eat(s, "True"))
        return vB(true);
    if (eat(s, "False"))
        return vB(false);
    if (eat(s, "contiguous_format"))
        return vMF(MF_contiguous);
    if (eat(s, "preserve_format"))
        return vMF(MF_preserve);
    if (eat(s, "inf"))
        return vF(__builtin_inf());
    if (eat(s, "-inf"))
        return vF(-__builtin_inf());
    if (eat(s, "["))
        return number_list(s, (param_type)p->type);
    if (*s->p == '"' || *s->p == '\'') {
        const char *e = strchr(s->p + 1, *s->p);
        tp_val v = vS(arena_strndup(&names, s->p + 1, (size_t)(e - s->p - 1)));
        s->p = e + 1;
        return v;
    }
    char *endi, *endf;
    long long i = strtoll(s->p, &endi, 10);
    double f = strtod(s->p, &endf);
    if (endf == s->p)
        bad(s, "a default value was expected");
    bool is_int = endi == endf && p->type != PT_float;
    if (p->type == PT_dtype) { /* ATen's numbers for element types */
        s->p = endf;
        return vDT(i == 4 ? DT_i64 : DT_f32);
    }
    s->p = endf;
    if (p->type == PT_ints) { /* int[2] stride=1 */
        symint iv[8];
        int n = MAX(p->list_n, 1);
        for (int k = 0; k < n; k++)
            iv[k] = i;
        return (tp_val){ .kind = VAL_ints, .n = n, .ints = arena_dup(&names, iv, sizeof iv) };
    }
    return is_int ? vI(i) : vF(f);
}

static void parse_schema(op_row *r)
{
    scan s = { r->schema_text, r };
    op_param ps[OP_MAX_PARAMS];
    int n = 0;
    bool kwonly = false;
    char *name = word(&s), *overload = "";

    if (*s.p == '.') {
        s.p++;
        overload = word(&s);
    }
    r->name = name;
    r->overload = overload;
    r->full = *overload ? arena_printf(&names, "%s.%s", name, overload) : name;
    if (!eat(&s, "("))
        bad(&s, "'(' was expected");
    while (!eat(&s, ")")) {
        if (eat(&s, "*,") || eat(&s, "*")) {
            kwonly = true;
            continue;
        }
        op_param *p = &ps[n++];
        memset(p, 0, sizeof *p);
        p->kwonly = kwonly;
        type(&s, p);
        p->name = word(&s);
        p->fixed &= p->type != PT_scalar || !stays_symbolic(p->name);
        if (eat(&s, "=")) {
            p->has_default = true;
            p->def = default_value(&s, p);
        }
        eat(&s, ",");
    }
    op_schema *sc = &r->schema;
    sc->nparam = n;
    sc->param = arena_dup(&names, ps, sizeof *ps * (size_t)n);
    if (!eat(&s, "->"))
        bad(&s, "'->' was expected");
    bool tuple = eat(&s, "(");
    while (!(tuple ? eat(&s, ")") : sc->nret == 1)) {
        op_param p = { 0 };
        type(&s, &p);
        sc->ret_list |= p.type == PT_tensors;
        blanks(&s);
        if (tuple && *s.p != ',' && *s.p != ')')
            sc->ret_name[sc->nret] = word(&s);
        sc->ret_type[sc->nret++] = p.type;
        eat(&s, ",");
    }
}

static void build(void)
{
    for (int i = 0; i < OP_COUNT; i++) {
        parse_schema(&rows[i]);
        map_put(&by_name, rows[i].full, (void *)(uintptr_t)(i + 1));
    }
    __atomic_store_n(&op_rows, rows, __ATOMIC_RELEASE);
}

const op_row *op_rows;
const op_row *op_row_first(op_id op)
{
    pthread_once(&once, build);
    return &rows[op];
}

void op_full_name(strbuf *b, op_id op, op_variant v)
{
    const op_row *r = op_row_of(op);
    strbuf_addf(b, "%s%s", r->name, v == OPV_inplace ? "_" : "");
    if (v == OPV_out)
        strbuf_addf(b, ".%s", *r->overload ? r->overload : "out");
    else if (*r->overload)
        strbuf_addf(b, ".%s", r->overload);
}

bool op_find(const char *full, size_t n, op_id *op, op_variant *v)
{
    pthread_once(&once, build);
    *v = OPV_fn;
    uintptr_t i = (uintptr_t)map_getn(&by_name, full, n);
    if (!i) { /* name_.overload */
        const char *dot = memchr(full, '.', n);
        size_t base = dot ? (size_t)(dot - full) : n;
        if (base < 2 || full[base - 1] != '_')
            return false;
        char buf[128];
        if (n >= sizeof buf)
            return false;
        memcpy(buf, full, base - 1);
        memcpy(buf + base - 1, full + base, n - base);
        i = (uintptr_t)map_getn(&by_name, buf, n - 1);
        if (!i || !(rows[i - 1].flags & OPF_INP))
            return false;
        *v = OPV_inplace;
    }
    *op = (op_id)(i - 1);
    return true;
}

bool op_is_default(const tp_val *a, const op_param *p)
{
    if (!p->has_default && !(p->optional && a->kind == VAL_none))
        return false;
    const tp_val *d = &p->def;
    if (a->kind == VAL_none)
        return d->kind == VAL_none || !p->has_default;
    if (a->kind != d->kind)
        return false;
    switch (a->kind) {
    case VAL_int:
    case VAL_dtype:
    case VAL_memfmt:
    case VAL_layout: return a->i == d->i;
    case VAL_float: return a->f == d->f;
    case VAL_bool: return a->b == d->b;
    case VAL_ints: return a->n == 0 && d->n == 0;
    case VAL_str: return a->s && d->s && !strcmp(a->s, d->s);
    default: return false;
    }
}
