/* spell.c - how a call is written as Python, and which operator row a written call means.
 * Printing in Python style is only done where reading gives the same row back; everything else is written
 * with its full operator name. */
#include "ir/text.h"
#include <pthread.h>

/* ---- operators ---- */
static const infix signs[] = {
    { "add", "+", false },
    { "sub", "-", false },
    { "mul", "*", false },
    { "div", "/", false },
    { "floor_divide", "//", false },
    { "remainder", "%", false },
    { "pow", "**", false },
    { "matmul", "@", false },
    { "eq", "==", false },
    { "ne", "!=", false },
    { "lt", "<", false },
    { "le", "<=", false },
    { "gt", ">", false },
    { "ge", ">=", false },
    { "bitwise_and", "&", false },
    { "bitwise_or", "|", false },
    { "bitwise_xor", "^", false },
    { "neg", "-", true },
    { "bitwise_not", "~", true },
};

static const infix *find_sign(const char *name)
{
    for (const infix *s = signs; s < END(signs); s++)
        if (!strcmp(s->op, name))
            return s;
    return NULL;
}

/* ---- rows by public name ---- */
typedef struct name_rows {
    VEC(op_id) ops;
} name_rows;
static map by_public;                  /* built once, then constant */
static bool alone[OP_COUNT];           /* no other row has its name */
static const infix *sign_of[OP_COUNT]; /* how it is written between or before operands */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void index_name(const char *name, size_t n, op_id op)
{
    name_rows *r = map_getn(&by_public, name, n);
    if (!r) {
        r = mem_zalloc(sizeof *r);
        map_putn(&by_public, name, n, r);
    }
    vec_push(&r->ops, op);
}

static void build_index(void)
{
    for (int i = 0; i < OP_COUNT; i++) {
        const op_row *r = op_row_of((op_id)i);
        index_name(r->name, strlen(r->name), (op_id)i);
        const char *p = strchr(r->py, ' ');
        while (p) { /* further names */
            size_t n = strcspn(++p, " ");
            if (n)
                index_name(p, n, (op_id)i);
            p = strchr(p, ' ');
        }
    }
    for (int i = 0; i < OP_COUNT; i++) {
        const op_row *r = op_row_of((op_id)i);
        const name_rows *same = map_getn(&by_public, r->name, strlen(r->name));
        alone[i] = same && same->ops.n == 1;
        sign_of[i] = find_sign(r->name);
    }
}

void ir_text_ready(void) { pthread_once(&once, build_index); }

static const name_rows *rows_named(const char *name, size_t n)
{
    pthread_once(&once, build_index);
    return map_getn(&by_public, name, n);
}

static bool py_has(const op_row *r, char flag)
{
    const char *e = strchr(r->py, ' ');
    return memchr(r->py, flag, e ? (size_t)(e - r->py) : strlen(r->py)) != NULL;
}

const infix *infix_of(const op_row *r)
{
    pthread_once(&once, build_index);
    return sign_of[r - op_row_of((op_id)0)];
}

const infix *infix_by_sign(const char *sign, size_t n, bool unary)
{
    for (const infix *s = signs; s < END(signs); s++)
        if (s->unary == unary && strlen(s->sign) == n && !memcmp(s->sign, sign, n))
            return s;
    return NULL;
}

/* ---- what is written ---- */
void spell_args(const ir_node *n, bool python, text_args *a)
{
    const op_schema *s = &op_row_of((op_id)n->op)->schema;
    int last = 0; /* positional ones end before this */

    a->npos = a->nkw = 0;
    for (int i = 0; i < s->nparam && i < n->narg; i++) {
        const op_param *p = &s->param[i];
        bool dflt = (p->has_default && ir_val_equal(&n->arg[i], &p->def));
        if (!p->kwonly && !(python ? p->has_default : dflt))
            last = i + 1;
    }
    for (int i = 0; i < s->nparam && i < n->narg; i++) {
        const op_param *p = &s->param[i];
        if (!p->kwonly && i < last)
            a->pos[a->npos++] = n->arg[i];
        else if (!p->has_default || !ir_val_equal(&n->arg[i], &p->def)) {
            a->kwname[a->nkw] = p->name;
            a->kw[a->nkw++] = n->arg[i];
        }
    }
}

static bool is_node(const tp_val *v) { return v->kind == VAL_node; }

int spell_default(const op_row *r, op_variant v, const text_args *a)
{
    const infix *x = v == OPV_fn && py_has(r, 'm') ? infix_of(r) : NULL;
    bool self = a->npos > 0 && is_node(&a->pos[0]);

    if (r->flags & OPF_HIDE || v == OPV_out)
        return SPELL_aten;
    if (x && !a->nkw && a->npos == (x->unary ? 1 : 2)) {
        bool right = !x->unary && (is_node(&a->pos[1]) || val_is_number(&a->pos[1]));
        if (self && (x->unary || right))
            return SPELL_operator;
    }
    if ((v == OPV_inplace || r->flags & OPF_MUT) && self && py_has(r, 'm'))
        return SPELL_method;
    if (py_has(r, 'f') || py_has(r, 'n') || py_has(r, 'l') || py_has(r, 's'))
        return SPELL_function;
    return py_has(r, 'm') && self ? SPELL_method : SPELL_aten;
}

static char space_of(const op_row *r, int spell)
{
    if (spell != SPELL_function)
        return 'm';
    return py_has(r, 'f') ? 't' : py_has(r, 'n') ? 'n' : py_has(r, 'l') ? 'l' : 's';
}

static const char *const spaces[128] = {
    ['t'] = "", ['n'] = "nn.functional.", ['l'] = "linalg.", ['s'] = "special."
};

static const char *name_in(const op_row *r, char space)
{
    const char *pre = space == 'l' ? "linalg_" : space == 's' ? "special_" : "";
    return strncmp(r->name, pre, strlen(pre)) ? r->name : r->name + strlen(pre);
}

void spell_function(strbuf *b, const op_row *r, op_variant v, const char *root)
{
    char space = space_of(r, SPELL_function);
    strbuf_add(b, root);
    strbuf_addc(b, '.');
    strbuf_add(b, spaces[(int)space]);
    strbuf_add(b, name_in(r, space));
    if (v == OPV_inplace)
        strbuf_addc(b, '_');
}

/* Whether a call written with these arguments is read as its own row depends on nothing but their kinds and names, as long
 * as they are nodes, small numbers and lists of numbers: then the answer is remembered. 0: not such a call. */
static uint64_t kind_key(uint64_t key, const tp_val *v)
{
    bool small = v->kind == VAL_float || v->kind == VAL_bool || v->kind == VAL_dtype ||
                 v->kind == VAL_memfmt || (v->kind == VAL_int && v->i > INT32_MIN && v->i < INT32_MAX) ||
                 (v->kind == VAL_ints && v->n && sym_all_const(v->ints, v->n));
    if (!small && v->kind != VAL_node)
        return 0;
    return key ? hash_mix(key, (uint64_t)v->kind << 8 | (v->kind == VAL_node ? v->node->val.kind : 0)) : 0;
}

static uint64_t kinds_key(const ir_node *n, int want, const text_args *a)
{
    uint64_t key = hash_u64((uint64_t)n->op << 20 | (uint64_t)n->variant << 16 | (uint64_t)want << 8 |
                            (uint64_t)a->npos) |
                   1;
    for (int i = 0; i < a->npos; i++)
        key = kind_key(key, &a->pos[i]);
    for (int i = 0; i < a->nkw; i++)
        key = kind_key(key ? hash_mix(key, (uintptr_t)a->kwname[i]) : 0, &a->kw[i]);
    return key >> 1;
}

static bool reads_back(const ir_node *n, int want, const text_args *a)
{
    const op_row *r = op_row_of((op_id)n->op);
    op_variant v = (op_variant)n->variant, got;
    arena mem = { 0 };
    tp_val full[OP_MAX_PARAMS];
    op_id op;
    strbuf name = { 0 };
    char space = space_of(r, want);
    strbuf_add(&name, name_in(r, space));
    strbuf_add(&name, v == OPV_inplace ? "_" : "");
    bool ok = spell_resolve(&mem, space, strbuf_str(&name), name.n, a, &op, &got, full, NULL) &&
              op == n->op && got == v;
    for (int i = 0; ok && i < n->narg; i++)
        ok = ir_val_equal(&full[i], &n->arg[i]);
    strbuf_free(&name);
    arena_free(&mem);
    return ok;
}

int spell_of(const ir_node *n, const text_args *a)
{
    static uint64_t known[256]; /* atomic; a key, and at the end its answer */
    const op_row *r = op_row_of((op_id)n->op);
    op_variant v = (op_variant)n->variant;
    int want = n->spell ? n->spell : spell_default(r, v, a);

    if (n->spell && n->spell != SPELL_aten) { /* as written, where that is possible */
        const infix *x = infix_of(r);
        bool self = a->npos > 0 && is_node(&a->pos[0]), ok;
        if (want == SPELL_operator)
            ok = x && spell_default(r, v, a) == SPELL_operator;
        else if (want == SPELL_method)
            ok = self && py_has(r, 'm') && !(r->flags & OPF_HIDE);
        else
            ok = !(r->flags & OPF_HIDE) &&
                 (py_has(r, 'f') || py_has(r, 'n') || py_has(r, 'l') || py_has(r, 's'));
        if (!ok)
            want = spell_default(r, v, a);
    }
    if (want == SPELL_aten)
        return want;
    /* One row of this name cannot be mistaken; otherwise ask the reader. */
    pthread_once(&once, build_index);
    if (alone[n->op])
        return want;
    uint64_t key = kinds_key(n, want, a), *slot = &known[hash_u64(key) % COUNT(known)],
             was = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if (key && was >> 1 == key)
        return was & 1 ? want : SPELL_aten;
    bool ok = reads_back(n, want, a);
    if (key)
        __atomic_store_n(slot, key << 1 | ok, __ATOMIC_RELAXED);
    return ok ? want : SPELL_aten;
}

/* ---- what is meant ---- */
static tp_val ints_of(arena *mem, int64_t v, int n)
{
    symint *iv = ARENA_ARR(mem, symint, MAX(n, 1));
    for (int i = 0; i < n; i++)
        iv[i] = v;
    return vIs(iv, n);
}

/* Literals take the parameter's type where nothing is lost: [] and [1, 2] for floats, 2 for int[2], 'cpu'. */
static tp_val adapt(arena *mem, const op_param *p, tp_val v)
{
    tp_device dev;
    switch (p->type) {
    case PT_ints:
        if (v.kind == VAL_int && p->list_n)
            return ints_of(mem, v.i, p->list_n);
        if (v.kind == VAL_nodes && !v.n)
            return vIs(NULL, 0);
        break;
    case PT_floats:
        if (v.kind == VAL_ints && sym_all_const(v.ints, v.n)) {
            double *f = ARENA_ARR(mem, double, MAX(v.n, 1));
            for (int i = 0; i < v.n; i++)
                f[i] = (double)v.ints[i];
            return vFs(f, v.n);
        }
        break;
    case PT_bools:
        if (v.kind == VAL_ints && !v.n)
            return (tp_val){ .kind = VAL_bools };
        break;
    case PT_tensors:
        if (v.kind == VAL_ints && !v.n)
            return (tp_val){ .kind = VAL_nodes };
        break;
    case PT_device:
        if (v.kind == VAL_str && device_parse(v.s, &dev, NULL))
            return vDev(dev);
        break;
    default: break;
    }
    return v;
}

bool spell_bind(arena *mem, const op_row *r, const text_args *a, tp_val *full, tp_err *err)
{
    const op_schema *s = &r->schema;
    bool set[OP_MAX_PARAMS] = { 0 };
    int i = 0, k = 0;

    for (; i < a->npos && k < s->nparam && !s->param[k].kwonly; k++) {
        const op_param *p = &s->param[k];
        if (p->type == PT_ints && !p->list_n && a->pos[i].kind == VAL_int) { /* x.view(2, 3) */
            symint *iv = ARENA_ARR(mem, symint, a->npos - i);
            int n = 0;
            while (i < a->npos && a->pos[i].kind == VAL_int)
                iv[n++] = a->pos[i++].i;
            full[k] = vIs(iv, n);
        } else
            full[k] = adapt(mem, p, a->pos[i++]);
        set[k] = true;
    }
    if (i < a->npos)
        return err_set(err, ERR_type, "%s() takes %d positional argument%s but %d were given", r->full, k,
                       k == 1 ? "" : "s", a->npos);
    for (int j = 0; j < a->nkw; j++) {
        for (k = 0; k < s->nparam && strcmp(s->param[k].name, a->kwname[j]); k++)
            ;
        if (k == s->nparam)
            return err_set(err, ERR_type, "%s() got an unexpected keyword argument '%s'", r->full,
                           a->kwname[j]);
        if (set[k])
            return err_set(err, ERR_type, "%s() got multiple values for argument '%s'", r->full,
                           a->kwname[j]);
        full[k] = adapt(mem, &s->param[k], a->kw[j]);
        set[k] = true;
    }
    for (k = 0; k < s->nparam; k++) {
        const op_param *p = &s->param[k];
        if (!set[k] && !p->has_default && !p->optional)
            return err_set(err, ERR_type, "%s() missing required argument '%s' (pos %d)", r->full, p->name,
                           k + 1);
        if (!set[k])
            full[k] = p->def;
        else if (!ir_check_arg(r, k, &full[k], err))
            return false;
    }
    return true;
}

static const name_rows *rows_in(char space, const char *name, size_t n)
{
    const name_rows *r = NULL;
    if (space == 'l' || space == 's') {
        strbuf b = { 0 };
        strbuf_add(&b, space == 'l' ? "linalg_" : "special_");
        strbuf_addn(&b, name, n);
        r = rows_named(strbuf_str(&b), b.n);
        strbuf_free(&b);
    }
    return r ? r : rows_named(name, n);
}

static bool in_space(const op_row *r, char space)
{
    if (r->flags & OPF_HIDE)
        return false;
    return py_has(r, space == 't' ? 'f' : space);
}

bool spell_resolve(arena *mem, char space, const char *name, size_t n, const text_args *a, op_id *op,
                   op_variant *v, tp_val *full, tp_err *err)
{
    const name_rows *rows = rows_in(space, name, n);
    tp_err first = { 0 };
    int tried = 0;

    *v = OPV_fn;
    if (!rows && n > 1 && name[n - 1] == '_') {
        rows = rows_in(space, name, n - 1);
        *v = OPV_inplace;
    }
    for (size_t i = 0; rows && i < rows->ops.n; i++) {
        const op_row *r = op_row_of(rows->ops.at[i]);
        if (!in_space(r, space) || (*v == OPV_inplace && !(r->flags & (OPF_INP | OPF_INPONLY))))
            continue;
        tried++;
        if (spell_bind(mem, r, a, full, err && tried == 1 ? &first : NULL)) {
            *op = rows->ops.at[i];
            return true;
        }
    }
    if (!tried)
        return err_set(err, ERR_value, "there is no operator '%.*s'", (int)MIN(n, 100), name);
    if (tried > 1)
        return err_set(err, ERR_type, "no form of '%.*s' takes these arguments (%s)", (int)MIN(n, 100), name,
                       first.msg);
    return err_set(err, first.kind, "%s", first.msg);
}
