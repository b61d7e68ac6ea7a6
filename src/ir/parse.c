#define _GNU_SOURCE
/* parse.c - text to graph: recursive descent over untrusted text, one statement a line.
 * Indentation carries no meaning: a body ends at its return. Types are inferred by the shape rules and
 * compared with the annotations, so what is read is consistent or refused. */
#include "ir/text.h"
#include "base/json.h"
#include "base/utf8.h"
#include <ctype.h>
#include <stdio.h>

typedef struct konst {
    tp_tensor *t; /* one count, or NULL: the bytes are elsewhere */
    tp_val type;  /* one count */
    const char *digest;
} konst;

typedef struct parser {
    const char *s, *p, *e; /* text, place, end */
    const char *file;
    tp_err *err;
    arena mem; /* what only reading needs */
    sym_env *env;
    int *env_refs;
    ir_graph *g;             /* being read */
    map vars;                /* name -> node of g */
    map konsts;              /* of the def to come: name -> konst */
    map graphs;              /* name -> nested graph */
    VEC(ir_graph *) pending; /* nested graphs nobody uses yet: ours to free */
    VEC(tp_val) list;
    const char *graph_name;
    bool grad_mode;
    const ir_loc *loc;
    int n_aten, n_python;
    bool torch;
} parser;

/* ---- errors ---- */
static bool fail_at(parser *p, const char *at, err_kind k, const char *fmt, ...) TP_PRINTF(4, 5);
static bool fail_at(parser *p, const char *at, err_kind k, const char *fmt, ...)
{
    char msg[800];
    va_list ap;
    int line = 1;
    const char *bol = p->s;

    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    for (const char *q = p->s; (q = memchr(q, '\n', (size_t)(at - q))); bol = ++q)
        line++;
    err_set(p->err, k, "%s:%d:%zu: %s", p->file, line, utf8_count(bol, (size_t)(at - bol)) + 1, msg);
    return err_place(p->err, p->file, line);
}

/* "a name was expected, not ')'" */
static bool expected(parser *p, const char *what)
{
    if (p->p >= p->e)
        return fail_at(p, p->p, ERR_syntax, "%s was expected, not the end of the file", what);
    if (*p->p == '\n')
        return fail_at(p, p->p, ERR_syntax, "%s was expected, not the end of the line", what);
    uint32_t cp = 0;
    int n = utf8_decode(p->p, (size_t)(p->e - p->p), &cp);
    if (n < 1 || cp < 32)
        return fail_at(p, p->p, ERR_syntax, "%s was expected, not byte 0x%02x", what, (unsigned char)*p->p);
    return fail_at(p, p->p, ERR_syntax, "%s was expected, not '%.*s'", what, n, p->p);
}

/* ---- tokens ---- */
static void space(parser *p)
{
    while (p->p < p->e && (*p->p == ' ' || *p->p == '\t' || *p->p == '\r'))
        p->p++;
}

static bool next_is(parser *p, const char *t)
{
    size_t n = strlen(t);
    space(p);
    return (size_t)(p->e - p->p) >= n && !memcmp(p->p, t, n);
}

static bool take(parser *p, const char *t)
{
    if (!next_is(p, t))
        return false;
    p->p += strlen(t);
    return true;
}

static bool want(parser *p, const char *t)
{
    char what[40];
    if (take(p, t))
        return true;
    snprintf(what, sizeof what, "'%s'", t);
    return expected(p, what);
}

static bool comma_or(parser *p, const char *close) /* a comma, where the list did not end */
{
    char what[40];
    if (take(p, ","))
        return true;
    snprintf(what, sizeof what, "',' or '%s'", close);
    return expected(p, what);
}

static bool word_at(const char *s, const char *e, const char **w, size_t *n)
{
    const char *q = s;
    while (q < e) {
        unsigned char c = (unsigned char)*q;
        int k = c < 0x80 ? (isalpha(c) || c == '_' || (q > s && isdigit(c)))
                         : utf8_decode(q, (size_t)(e - q), NULL);
        if (k < 1)
            break;
        q += k;
    }
    *w = s;
    *n = (size_t)(q - s);
    return q > s;
}

static bool word(parser *p, const char **w, size_t *n)
{
    space(p);
    if (!word_at(p->p, p->e, w, n))
        return false;
    p->p += *n;
    return true;
}

static bool word_is(const char *w, size_t n, const char *t) { return strlen(t) == n && !memcmp(w, t, n); }

static bool want_word(parser *p, const char *what, const char **w, size_t *n)
{
    return word(p, w, n) || expected(p, what);
}

/* a.b.c; stops before a dot that nothing follows */
static bool dotted(parser *p, const char **w, size_t *n)
{
    const char *w2;
    size_t n2;
    if (!word(p, w, n))
        return false;
    while (p->p < p->e && *p->p == '.' && word_at(p->p + 1, p->e, &w2, &n2))
        p->p += 1 + n2;
    *n = (size_t)(p->p - *w);
    return true;
}

static int hex_digit(char c)
{
    return isdigit((unsigned char)c) ? c - '0'
           : c >= 'a' && c <= 'f'    ? c - 'a' + 10
           : c >= 'A' && c <= 'F'    ? c - 'A' + 10
                                     : -1;
}

/* A string literal, into p->mem. */
static bool string(parser *p, const char **out)
{
    const char *start = p->p;
    char q = *p->p++;
    strbuf b = { 0 };
    bool ok = false;

    for (;;) {
        if (p->p >= p->e || *p->p == '\n') {
            fail_at(p, start, ERR_syntax, "this string does not end on its line");
            goto done;
        }
        if (b.n > TEXT_MAX_STRING) {
            fail_at(p, start, ERR_syntax, "this string is longer than %d bytes", TEXT_MAX_STRING);
            goto done;
        }
        char c = *p->p++;
        if (c == q)
            break;
        if (!c) {
            fail_at(p, p->p - 1, ERR_syntax, "a string cannot hold a NUL byte");
            goto done;
        }
        if (c != '\\') {
            strbuf_addc(&b, c);
            continue;
        }
        c = p->p < p->e ? *p->p++ : 0;
        const char *from = "nrt\\'\"", *to = "\n\r\t\\'\"", *hit = c ? strchr(from, c) : NULL;
        if (hit)
            strbuf_addc(&b, to[hit - from]);
        else if (c == 'x' && p->e - p->p >= 2 && hex_digit(p->p[0]) >= 0 && hex_digit(p->p[1]) >= 0 &&
                 (p->p[0] != '0' || p->p[1] != '0')) {
            strbuf_addc(&b, (char)(hex_digit(p->p[0]) * 16 + hex_digit(p->p[1])));
            p->p += 2;
        } else {
            fail_at(p, p->p - 2 > p->s ? p->p - 2 : p->s, ERR_syntax, "unknown escape in a string");
            goto done;
        }
    }
    *out = arena_strndup(&p->mem, strbuf_str(&b), b.n);
    ok = true;
done:
    strbuf_free(&b);
    return ok;
}

static bool want_string(parser *p, const char *what, const char **out)
{
    space(p);
    return p->p < p->e && (*p->p == '\'' || *p->p == '"') ? string(p, out) : expected(p, what);
}

/* a.b.c or 'anything' */
static bool name_or_string(parser *p, const char *what, const char **out)
{
    const char *w;
    size_t n;
    if (!dotted(p, &w, &n))
        return want_string(p, what, out);
    *out = arena_strndup(&p->mem, w, n);
    return true;
}

/* ---- numbers and symbolic integers ---- */
static bool digits_follow(const char *q, const char *e) { return q < e && isdigit((unsigned char)*q); }

static bool whole(parser *p, int64_t *out)
{
    const char *start = p->p;
    bool neg = p->p < p->e && *p->p == '-';
    uint64_t v = 0;
    const uint64_t limit = (uint64_t)1 << 62;

    p->p += neg;
    if (!digits_follow(p->p, p->e))
        return expected(p, "a number");
    for (; digits_follow(p->p, p->e); p->p++)
        if ((v = v * 10 + (uint64_t)(*p->p - '0')) >= limit)
            return fail_at(p, start, ERR_value, "this integer is not below 2**62");
    *out = neg ? -(int64_t)v : (int64_t)v;
    return true;
}

/* The end of the expression that begins at s: a comma, closing bracket, quote, semicolon or comment outside
 * parentheses. */
static const char *expr_end(const parser *p, const char *s)
{
    int depth = 0;
    for (; s < p->e && *s != '\n'; s++) {
        if (*s == '(')
            depth++;
        else if (*s == ')' && depth-- == 0)
            break;
        else if (!depth && strchr(",];#\"'=", *s) && !(*s == '=' && s + 1 < p->e && s[1] == '=') &&
                 !(*s == '=' && strchr("=<>!", s[-1])))
            break;
    }
    return s;
}

static bool expression(parser *p, symint *out)
{
    const char *start = p->p, *end = expr_end(p, start);
    tp_err e = { 0 };
    int64_t col = 1;

    while (end > start && isspace((unsigned char)end[-1]))
        end--;
    if (!p->env)
        return fail_at(p, start, ERR_syntax,
                       "a value was expected, not an expression (no symbol is declared)");
    if (!sym_parse(p->env, start, (size_t)(end - start), out, &e)) {
        const char *msg = e.msg;
        if (!strncmp(msg, "column ", 7)) {
            col = strtol(msg + 7, (char **)&msg, 10);
            msg += *msg == ':' ? 2 : 0;
        }
        return fail_at(p, MIN(start + MAX(col - 1, 0), p->e), e.kind == ERR_none ? ERR_syntax : e.kind, "%s",
                       msg);
    }
    p->p = end;
    return true;
}

/* A size: a plain number or an expression. */
static bool size_value(parser *p, symint *out)
{
    space(p);
    const char *start = p->p, *q = p->p + (p->p < p->e && *p->p == '-');
    while (digits_follow(q, p->e))
        q++;
    while (q < p->e && *q == ' ')
        q++;
    if (q > start && !(q < p->e && strchr("+-*/%", *q)) && digits_follow(start + (*start == '-'), p->e))
        return whole(p, out);
    if (start >= p->e || *start == ']' || *start == ',')
        return expected(p, "a size");
    return expression(p, out);
}

/* ---- types: f32[3, 3][3, 1]cpu ---- */
static bool size_list(parser *p, int *n, symint *v)
{
    *n = 0;
    if (!want(p, "["))
        return false;
    while (!take(p, "]")) {
        if (*n == TP_MAX_DIMS)
            return fail_at(p, p->p, ERR_value, "more than %d dimensions", TP_MAX_DIMS);
        if (*n && !comma_or(p, "]"))
            return false;
        if (!size_value(p, &v[(*n)++]))
            return false;
    }
    return true;
}

static bool device_suffix(parser *p, tp_device *dev)
{
    const char *w;
    size_t n;
    char text[40];
    *dev = DEVICE_CPU;
    if (!word_at(p->p, p->e, &w, &n))
        return true;
    const char *q = w + n;
    if (q < p->e && *q == ':')
        for (q++; digits_follow(q, p->e);)
            q++;
    snprintf(text, sizeof text, "%.*s", (int)MIN(q - w, 39), w);
    if (!device_parse(text, dev, NULL))
        return expected(p, "a device");
    p->p = q;
    return true;
}

static bool tensor_type(parser *p, tp_tensor **out)
{
    const char *w, *start;
    size_t n;
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS], bytes;
    int nd, ns;
    tp_device dev;
    tp_err e = { 0 };

    space(p);
    start = p->p;
    if (!want_word(p, "a type such as f32[2, 3]", &w, &n))
        return false;
    if (word_is(w, n, "None")) {
        *out = NULL;
        return true;
    }
    dtype dt = DT_none;
    for (int i = 0; i < DT_COUNT; i++)
        if (word_is(w, n, dtype_rows[i].sname))
            dt = (dtype)i;
    if (dt == DT_none)
        return fail_at(p, w, ERR_syntax, "'%.*s' is no element type (f32, i64, b8, ...)", (int)MIN(n, 40), w);
    if (!size_list(p, &nd, size))
        return false;
    bool strided = next_is(p, "[");
    if (strided && !size_list(p, &ns, stride))
        return false;
    if (strided && ns != nd)
        return fail_at(p, start, ERR_value, "%d sizes but %d strides", nd, ns);
    if (!shape_check_sizes(nd, size, &e))
        return fail_at(p, start, ERR_value, "%s", e.msg);
    if (!strided)
        shape_contiguous_strides(nd, size, stride);
    for (int d = 0; d < nd; d++)
        if (!sym_is_expr(stride[d]) && stride[d] < 0)
            return fail_at(p, start, ERR_value, "strides cannot be negative");
    if (!shape_storage_bytes(dt, nd, size, stride, 0, &bytes, &e))
        return fail_at(p, start, ERR_value, "%s", e.msg);
    if (!device_suffix(p, &dev))
        return false;
    *out = tensor_new_fake(dt, nd, size, stride, dev);
    return true;
}

static bool type_body(parser *p, tp_val *out)
{
    if (take(p, "Sym(")) {
        symint v;
        space(p);
        const char *q = p->p + (p->p < p->e && *p->p == '-');
        while (digits_follow(q, p->e))
            q++;
        if (q < p->e && *q == ')' && q > p->p ? !whole(p, &v) : !expression(p, &v))
            return false;
        *out = vI(v);
        return want(p, ")");
    }
    if (next_is(p, "float\"") || next_is(p, "bool\"")) {
        *out = *p->p == 'f' ? vF(0) : vB(false);
        p->p += *p->p == 'f' ? 5 : 4;
        return true;
    }
    if (take(p, "(")) {
        VEC(tp_tensor *) ts = { 0 };
        bool ok = true;
        while (ok && !take(p, ")")) {
            tp_tensor *t = NULL;
            if (ts.n >= TEXT_MAX_LIST || (ts.n && !want(p, ","))) {
                ok = false;
                break;
            }
            if (ts.n && take(p, ")"))
                break;
            ok = tensor_type(p, &t);
            if (ok)
                vec_push(&ts, t);
        }
        *out = vTs(ts.at, (int)ts.n);
        if (!ok)
            val_clear(out);
        return ok || expected(p, "a type");
    }
    tp_tensor *t;
    if (!tensor_type(p, &t))
        return false;
    *out = vT(t);
    return true;
}

/* "..." after a colon; out is owned. Keeps the text for a quick comparison. */
static bool annotation(parser *p, tp_val *out, const char **text, size_t *n)
{
    space(p);
    if (p->p >= p->e || *p->p != '"')
        return expected(p, "a type in double quotes");
    *text = ++p->p;
    if (!type_body(p, out))
        return false;
    *n = (size_t)(p->p - *text);
    if (want(p, "\""))
        return true;
    val_clear(out);
    return false;
}

/* ---- values ---- */
static ir_node *var(parser *p, const char *w, size_t n) { return map_getn(&p->vars, w, n); }

static bool use_var(parser *p, const char *w, size_t n, ir_node **out)
{
    *out = var(p, w, n);
    if (!*out)
        return fail_at(p, w, ERR_syntax, "'%.*s' is not defined before its use", (int)MIN(n, 100), w);
    if ((*out)->mark)
        return fail_at(p, w, ERR_syntax, "'%.*s' is used after it was set to None", (int)MIN(n, 100), w);
    return true;
}

static bool is_symbol(const parser *p, const char *w, size_t n)
{
    return p->env && sym_env_find(p->env, w, n);
}

static bool number(parser *p, tp_val *out)
{
    const char *s = p->p, *q = s + (*s == '-');
    bool real = false;
    while (digits_follow(q, p->e))
        q++;
    if (q < p->e && *q == '.')
        for (q++, real = true; digits_follow(q, p->e);)
            q++;
    if (q < p->e && (*q == 'e' || *q == 'E')) {
        const char *x = q + 1;
        x += x < p->e && (*x == '-' || *x == '+');
        if (digits_follow(x, p->e)) {
            for (real = true; digits_follow(x, p->e);)
                x++;
            q = x;
        }
    }
    if (!real) {
        const char *r = q;
        while (r < p->e && *r == ' ')
            r++;
        if (r < p->e && strchr("+-*/%", *r)) { /* 2*s0 */
            *out = vI(0);
            return expression(p, &out->i);
        }
        *out = vI(0);
        return whole(p, &out->i);
    }
    char buf[512];
    if (q - s >= (ptrdiff_t)sizeof buf)
        return fail_at(p, s, ERR_syntax, "this number has too many digits");
    memcpy(buf, s, (size_t)(q - s));
    buf[q - s] = 0;
    *out = vF(strtod(buf, NULL));
    p->p = q;
    return true;
}

static bool value(parser *p, tp_val *out);

/* Elements are in p->list from `from`; all of one kind, None beside nodes, ints beside floats. */
static bool list_of(parser *p, const char *start, size_t from, tp_val *out)
{
    const tp_val *v = p->list.at + from;
    int n = (int)(p->list.n - from);
    bool ints = true, floats = true, bools = n > 0, nodes = n > 0;

    for (int i = 0; i < n; i++) {
        ints &= v[i].kind == VAL_int;
        floats &= v[i].kind == VAL_float || (v[i].kind == VAL_int && !sym_is_expr(v[i].i));
        bools &= v[i].kind == VAL_bool;
        nodes &= v[i].kind == VAL_node || v[i].kind == VAL_none;
    }
    if (ints) {
        symint *a = ARENA_ARR(&p->mem, symint, MAX(n, 1));
        for (int i = 0; i < n; i++)
            a[i] = v[i].i;
        *out = vIs(a, n);
    } else if (floats) {
        double *a = ARENA_ARR(&p->mem, double, n);
        for (int i = 0; i < n; i++)
            a[i] = val_as_f(&v[i]);
        *out = vFs(a, n);
    } else if (bools) {
        bool *a = ARENA_ARR(&p->mem, bool, n);
        for (int i = 0; i < n; i++)
            a[i] = v[i].b;
        *out = (tp_val){ .kind = VAL_bools, .n = n, .bools = a };
    } else if (nodes) {
        ir_node **a = ARENA_ARR(&p->mem, ir_node *, n);
        for (int i = 0; i < n; i++)
            a[i] = v[i].kind == VAL_node ? v[i].node : NULL;
        *out = (tp_val){ .kind = VAL_nodes, .n = n, .nodes = a };
    } else
        return fail_at(p, start, ERR_type, "a list holds numbers, truth values or tensors, not a mixture");
    return true;
}

static bool list_value(parser *p, char close, tp_val *out)
{
    const char *start = p->p++, stop[2] = { close, 0 };
    size_t from = p->list.n;
    bool ok = false;

    while (!take(p, stop)) {
        tp_val v;
        if (p->list.n - from >= TEXT_MAX_LIST) {
            fail_at(p, start, ERR_value, "this list has more than %d items", TEXT_MAX_LIST);
            goto done;
        }
        if (p->list.n > from && !comma_or(p, stop))
            goto done;
        if (p->list.n > from && take(p, stop)) /* (1,) */
            break;
        space(p);
        if (p->p < p->e && (*p->p == '[' || (*p->p == '(' && !p->env))) {
            fail_at(p, p->p, ERR_type, "lists do not hold lists");
            goto done;
        }
        if (!value(p, &v))
            goto done;
        vec_push(&p->list, v);
    }
    ok = list_of(p, start, from, out);
done:
    p->list.n = from;
    return ok;
}

/* device(type='cpu', index=0) */
static bool device_value(parser *p, tp_val *out)
{
    const char *kind, *at;
    int64_t index = -1;
    if (!want(p, "("))
        return false;
    if (take(p, "type") && !want(p, "="))
        return false;
    space(p);
    at = p->p;
    if (!want_string(p, "a device name in quotes", &kind))
        return false;
    if (take(p, ",")) {
        if (!want(p, "index") || !want(p, "="))
            return false;
        space(p);
        if (!whole(p, &index))
            return false;
    }
    *out = vDev(DEVICE_CPU);
    if (!device_parse(kind, &out->dev, NULL) || index < -1 || index > 127)
        return fail_at(p, at, ERR_value, "there is no such device");
    if (index >= 0)
        out->dev.index = (int8_t)index;
    return want(p, ")");
}

/* taper.float32, taper.contiguous_format, ...; p is after the root's dot. */
static bool named_value(parser *p, tp_val *out)
{
    static const char *const formats[] = { "contiguous_format", "preserve_format", "channels_last",
                                           "channels_last_3d" };
    const char *w;
    size_t n;
    if (!want_word(p, "a dtype or format", &w, &n))
        return false;
    for (int i = 0; i < DT_COUNT; i++)
        if (word_is(w, n, dtype_rows[i].pname)) {
            *out = vDT(i);
            return true;
        }
    for (int i = 0; i < (int)COUNT(formats); i++)
        if (word_is(w, n, formats[i])) {
            *out = vMF(i);
            return true;
        }
    if (!word_is(w, n, "strided"))
        return fail_at(p, w, ERR_syntax, "'%.*s' is no dtype or format", (int)MIN(n, 40), w);
    *out = (tp_val){ .kind = VAL_layout };
    return true;
}

static bool sub_graph(parser *p, tp_val *out) /* after "self." */
{
    const char *w;
    size_t n;
    if (!want_word(p, "the name of a nested graph", &w, &n))
        return false;
    *out = (tp_val){ .kind = VAL_graph, .graph = NULL };
    for (size_t i = 0; i < p->g->subs.n; i++)
        if (word_is(w, n, p->g->subs.at[i]->name))
            out->graph = p->g->subs.at[i];
    if (!out->graph)
        out->graph = map_getn(&p->graphs, w, n);
    return out->graph || fail_at(p, w, ERR_syntax, "no graph '%.*s' is defined above", (int)MIN(n, 100), w);
}

static bool is_root(const char *w, size_t n) { return word_is(w, n, "taper") || word_is(w, n, "torch"); }

static bool word_value(parser *p, tp_val *out)
{
    const char *w;
    size_t n;
    *out = vNone;
    if (!want_word(p, "a value", &w, &n))
        return false;
    if (word_is(w, n, "None"))
        return true;
    if (word_is(w, n, "True") || word_is(w, n, "False")) {
        *out = vB(*w == 'T');
        return true;
    }
    if (word_is(w, n, "nan") || word_is(w, n, "inf")) {
        *out = vF(*w == 'n' ? (double)__builtin_nanf("") : (double)__builtin_inff());
        return true;
    }
    if (word_is(w, n, "device") && next_is(p, "("))
        return device_value(p, out);
    if (is_root(w, n) && !var(p, w, n) && take(p, "."))
        return named_value(p, out);
    if (word_is(w, n, "self") && take(p, "."))
        return sub_graph(p, out);
    if (!var(p, w, n) && (is_symbol(p, w, n) || (p->env && next_is(p, "(")))) {
        p->p = w;
        *out = vI(0);
        return expression(p, &out->i);
    }
    out->kind = VAL_node;
    return use_var(p, w, n, &out->node);
}

static bool value(parser *p, tp_val *out)
{
    space(p);
    if (p->p >= p->e)
        return expected(p, "a value");
    char c = *p->p;
    if (c == '\'' || c == '"') {
        const char *s;
        if (!string(p, &s))
            return false;
        *out = vS(s);
        return true;
    }
    if (isdigit((unsigned char)c) || (c == '-' && digits_follow(p->p + 1, p->e)))
        return number(p, out);
    if (c == '[')
        return list_value(p, ']', out);
    if (c == '(') { /* a tuple, or the parentheses of an expression */
        const char *q = expr_end(p, p->p + 1), *r = q + 1;
        bool tuple = !p->env || (q < p->e && *q == ',') || q == p->p + 1;
        while (r < p->e && *r == ' ')
            r++;
        if (tuple && !(q < p->e && *q == ')' && r < p->e && strchr("+-*/%", *r) && q > p->p + 1))
            return list_value(p, ')', out);
        *out = vI(0);
        return expression(p, &out->i);
    }
    if (c == '-') {
        const char *w;
        size_t n;
        if (word_at(p->p + 1, p->e, &w, &n) && word_is(w, n, "inf")) {
            p->p = w + n;
            *out = vF(-__builtin_inf());
            return true;
        }
        *out = vI(0);
        return expression(p, &out->i);
    }
    return word_value(p, out);
}

/* ---- calls ---- */
typedef struct stmt {
    const char *name; /* in the text */
    size_t n_name;
    const char *at; /* of the right side, for messages */
    tp_val type;    /* annotation, owned; VAL_none without */
    const char *type_text;
    size_t n_type;
} stmt;

/* After "(": fills a; positional arguments beyond its room go to p->list when `more`. */
static bool arguments(parser *p, text_args *a, bool more)
{
    a->nkw = 0;
    for (bool first = true; !take(p, ")"); first = false) {
        if (!first && !comma_or(p, ")"))
            return false;
        if (!first && take(p, ")"))
            break;
        const char *w, *start;
        size_t n;
        space(p);
        start = p->p;
        tp_val v;
        if (word(p, &w, &n) && next_is(p, "=") && !next_is(p, "==")) {
            p->p++;
            if (more)
                return fail_at(p, start, ERR_syntax, "keywords are not allowed here");
            if (a->nkw == OP_MAX_PARAMS)
                return fail_at(p, start, ERR_syntax, "too many arguments");
            a->kwname[a->nkw] = arena_strndup(&p->mem, w, n);
            if (!value(p, &v))
                return false;
            a->kw[a->nkw++] = v;
            continue;
        }
        p->p = start;
        if (a->nkw)
            return fail_at(p, start, ERR_syntax, "a positional argument follows a keyword");
        if (!value(p, &v))
            return false;
        if (more) {
            if (p->list.n >= TEXT_MAX_LIST)
                return fail_at(p, start, ERR_syntax, "too many arguments");
            vec_push(&p->list, v);
        } else if (a->npos == (int)COUNT(a->pos))
            return fail_at(p, start, ERR_syntax, "too many arguments");
        else
            a->pos[a->npos++] = v;
    }
    return true;
}

static void name_next(parser *p, const stmt *s) { p->g->wanted = arena_strndup(&p->mem, s->name, s->n_name); }

static ir_node *placed(parser *p, ir_node *n)
{
    n->loc = p->loc;
    return n;
}

/* Does the annotation say what was inferred? Text first: nearly always equal. */
static bool type_agrees(const stmt *s, const tp_val *val)
{
    strbuf b = { 0 };
    ir_type_print(&b, val);
    bool ok = b.n == s->n_type && !memcmp(strbuf_str(&b), s->type_text, b.n);
    strbuf_free(&b);
    return ok || ir_type_equal(&s->type, val);
}

static bool type_clash(parser *p, const stmt *s, const tp_val *val, const char *what)
{
    strbuf b = { 0 };
    ir_type_print(&b, val);
    fail_at(p, s->type_text, ERR_type, "the annotation of '%.*s' says %.*s, but %s gives %s",
            (int)MIN(s->n_name, 60), s->name, (int)MIN(s->n_type, 200), s->type_text, what, strbuf_str(&b));
    strbuf_free(&b);
    return false;
}

static tp_val take_type(stmt *s)
{
    tp_val t = s->type;
    s->type = vNone;
    return t;
}

static bool add_call(parser *p, stmt *s, op_id op, op_variant v, const tp_val *full, int spell, ir_node **out)
{
    const op_row *row = op_row_of(op);
    tp_err e = { 0 };
    tp_val val = vNone;

    for (int i = 0; i < row->schema.nparam; i++)
        if (!ir_check_arg(row, i, &full[i], &e))
            return fail_at(p, s->at, e.kind, "%s", e.msg);
    if (s->type.kind != VAL_none && ir_row_is_dyn(row))
        val = take_type(s); /* data decided it */
    else if (!ir_infer(p->g, op, v, full, &val, &e))
        return fail_at(p, s->at, e.kind, "%s", e.msg);
    if (p->env && err_is_set(sym_env_err(p->env))) {
        fail_at(p, s->at, sym_env_err(p->env)->kind, "%s", sym_env_err(p->env)->msg);
        err_clear(sym_env_err(p->env));
        val_clear(&val);
        return false;
    }
    if (s->type.kind != VAL_none && !type_agrees(s, &val)) {
        type_clash(p, s, &val, row->full);
        val_clear(&val);
        return false;
    }
    name_next(p, s);
    *out = placed(p, ir_add_call(p->g, op, v, full, row->schema.nparam, val));
    (*out)->spell = (uint8_t)spell;
    spell == SPELL_aten ? p->n_aten++ : p->n_python++;
    return true;
}

static bool python_call(parser *p, stmt *s, char space_, const char *name, size_t n, const text_args *a,
                        int spell, ir_node **out)
{
    tp_val full[OP_MAX_PARAMS];
    op_id op;
    op_variant v;
    tp_err e = { 0 };
    if (!spell_resolve(&p->mem, space_, name, n, a, &op, &v, full, &e))
        return fail_at(p, s->at, e.kind, "%s", e.msg);
    return add_call(p, s, op, v, full, spell, out);
}

/* ops.aten.add.Tensor */
static bool aten_call(parser *p, stmt *s, const char *name, size_t n, ir_node **out)
{
    static const char dflt[] = ".default";
    tp_val full[OP_MAX_PARAMS];
    text_args a = { 0 };
    op_id op;
    op_variant v;
    tp_err e = { 0 };
    size_t k = n;

    if (n > sizeof dflt - 1 && !memcmp(name + n - (sizeof dflt - 1), dflt, sizeof dflt - 1))
        k = n - (sizeof dflt - 1);
    if (!op_find(name, k, &op, &v))
        return fail_at(p, s->at, ERR_syntax, "there is no operator 'aten.%.*s'", (int)MIN(n, 100), name);
    if (!want(p, "(") || !arguments(p, &a, false))
        return false;
    if (!spell_bind(&p->mem, op_row_of(op), &a, full, &e))
        return fail_at(p, s->at, e.kind, "%s", e.msg);
    return add_call(p, s, op, v, full, SPELL_aten, out);
}

static bool opaque_call(parser *p, stmt *s, const char *target, ir_node **out)
{
    text_args a = { 0 };
    size_t from = p->list.n;
    if (!arguments(p, &a, true)) {
        p->list.n = from;
        return false;
    }
    name_next(p, s);
    *out = placed(
        p, ir_add_opaque(p->g, target, NULL, p->list.at + from, (int)(p->list.n - from), take_type(s)));
    p->list.n = from;
    return true;
}

/* After "taper." */
static bool root_call(parser *p, stmt *s, ir_node **out)
{
    static const struct {
        const char *pre;
        char space;
    } spaces[] = { { "nn.functional.", 'n' }, { "linalg.", 'l' }, { "special.", 's' }, { "", 't' } };
    const char *w;
    size_t n;
    text_args a = { 0 };

    space(p);
    s->at = p->p;
    if (!dotted(p, &w, &n))
        return expected(p, "an operator");
    if (n > 9 && !memcmp(w, "ops.aten.", 9))
        return aten_call(p, s, w + 9, n - 9, out);
    if (n > 4 && !memcmp(w, "ops.", 4))
        return want(p, "(") && opaque_call(p, s, arena_strndup(&p->mem, w, n), out);
    if (word_is(w, n, "call")) {
        const char *target;
        if (!want(p, "(") || !want_string(p, "the name of what is called, in quotes", &target))
            return false;
        if (!next_is(p, ")") && !want(p, ","))
            return false;
        return opaque_call(p, s, target, out);
    }
    if (!want(p, "(") || !arguments(p, &a, false))
        return false;
    for (size_t i = 0; i < COUNT(spaces); i++) {
        size_t k = strlen(spaces[i].pre);
        if (n > k && !memcmp(w, spaces[i].pre, k))
            return python_call(p, s, spaces[i].space, w + k, n - k, &a, SPELL_function, out);
    }
    return expected(p, "an operator");
}

/* self.weight, getattr(self, 'a b') */
static bool constant(parser *p, stmt *s, const char *key, ir_node **out)
{
    konst *k = map_get(&p->konsts, key);
    tp_val type;
    if (!k && s->type.kind != VAL_tensor)
        return fail_at(p, s->at, ERR_syntax,
                       "constant '%.100s' is not declared ('# const: %.100s: ...') and has no annotation",
                       key, key);
    if (k && s->type.kind != VAL_none && !type_agrees(s, &k->type))
        return type_clash(p, s, &k->type, "its declaration");
    name_next(p, s);
    if (k && k->t) {
        *out = ir_add_const(p->g, s->name, k->t);
    } else { /* the bytes come later, or never */
        type = k ? vT(tensor_ref(k->type.t)) : take_type(s);
        tp_tensor *fake = type.t;
        *out = ir_add_const(p->g, s->name, fake);
        (*out)->konst = NULL;
        tensor_unref(fake);
    }
    placed(p, *out);
    (*out)->target = arena_strdup(&p->g->mem, key);
    if (k && k->digest)
        (*out)->digest = arena_strdup(&p->g->mem, k->digest);
    return true;
}

static bool item(parser *p, stmt *s, ir_node *of, ir_node **out)
{
    int64_t i;
    tp_val val = vNone;
    space(p);
    const char *at = p->p;
    if (!whole(p, &i) || !want(p, "]"))
        return false;
    if (of->val.kind != VAL_tensors)
        return fail_at(p, s->at, ERR_type, "'%s' is one value, not several", of->name);
    if (i < 0 || i >= of->val.n)
        return fail_at(p, at, ERR_index, "'%s' has %d results", of->name, of->val.n);
    if (of->val.ts[i])
        val = vT(tensor_ref(of->val.ts[i]));
    if (s->type.kind != VAL_none && !type_agrees(s, &val)) {
        type_clash(p, s, &val, "that result");
        val_clear(&val);
        return false;
    }
    name_next(p, s);
    *out = ir_add_getitem(p->g, of, (int)i, val);
    (*out)->loc = p->loc;
    return true;
}

static bool infix_call(parser *p, stmt *s, const tp_val *left, ir_node **out)
{
    text_args a = { .npos = 2, .pos = { *left } };
    const infix *x = NULL;
    space(p);
    for (size_t n = 2; n && !x; n--)
        if ((size_t)(p->e - p->p) >= n && (x = infix_by_sign(p->p, n, false)))
            p->p += n;
    if (!x)
        return expected(p, "an operator, '.' or '['");
    return value(p, &a.pos[1]) && python_call(p, s, 'm', x->op, strlen(x->op), &a, SPELL_operator, out);
}

static bool method_call(parser *p, stmt *s, ir_node *self, ir_node **out)
{
    text_args a = { .npos = 1, .pos = { { .kind = VAL_node, .node = self } } };
    const char *w;
    size_t n;
    return want_word(p, "a method", &w, &n) && want(p, "(") && arguments(p, &a, false) &&
           python_call(p, s, 'm', w, n, &a, SPELL_method, out);
}

static bool unary_call(parser *p, stmt *s, ir_node **out)
{
    text_args a = { .npos = 1 };
    const infix *x = infix_by_sign(p->p++, 1, true);
    return value(p, &a.pos[0]) && python_call(p, s, 'm', x->op, strlen(x->op), &a, SPELL_operator, out);
}

static bool right_side(parser *p, stmt *s, ir_node **out)
{
    const char *w, *key;
    size_t n;
    tp_val left = { .kind = VAL_node };

    space(p);
    s->at = p->p;
    if (p->p < p->e && (*p->p == '-' || *p->p == '~'))
        return unary_call(p, s, out);
    if (!word(p, &w, &n))
        return expected(p, "a call");
    if (!var(p, w, n)) {
        if (is_root(w, n) && take(p, ".")) {
            p->torch = *w == 't' && w[1] == 'o';
            return root_call(p, s, out);
        }
        if (word_is(w, n, "self") && take(p, ".")) {
            if (!dotted(p, &w, &n))
                return expected(p, "an attribute");
            return constant(p, s, arena_strndup(&p->mem, w, n), out);
        }
        if (word_is(w, n, "getattr") && take(p, "("))
            return want(p, "self") && want(p, ",") && want_string(p, "an attribute in quotes", &key) &&
                   want(p, ")") && constant(p, s, key, out);
    }
    if (!use_var(p, w, n, &left.node))
        return false;
    if (take(p, "."))
        return method_call(p, s, left.node, out);
    if (take(p, "["))
        return item(p, s, left.node, out);
    return infix_call(p, s, &left, out);
}

/* ---- comments ---- */
static const char *line_end(const parser *p)
{
    const char *q = memchr(p->p, '\n', (size_t)(p->e - p->p));
    return q ? q : p->e;
}

/* A field of a place: quoted, or everything up to `end`. */
static bool field(parser *p, const char *end, const char **out)
{
    if (p->p < end && (*p->p == '\'' || *p->p == '"'))
        return string(p, out);
    *out = arena_strndup(&p->g->mem, p->p, (size_t)(end - p->p));
    p->p = end;
    return true;
}

static const char *find_text(const char *s, const char *e, const char *t)
{
    return memmem(s, (size_t)(e - s), t, strlen(t));
}

/* FILE:LINE in FUNCTION, code: SOURCE. A comment that is not of this form is only a comment. */
static ir_loc *place(parser *p)
{
    const char *eol = line_end(p), *f = p->p;
    ir_loc l = { 0 };
    int64_t line;

    while (eol > p->p && eol[-1] == '\r')
        eol--;
    if (f < eol && (*f == '\'' || *f == '"')) {
        if (!string(p, &l.file))
            return NULL;
        f = p->p;
    } else {
        for (f = p->p; (f = find_text(f, eol, ":")); f++) {
            const char *q = f + 1;
            while (q < eol && isdigit((unsigned char)*q))
                q++;
            if (q > f + 1 && eol - q >= 4 && !memcmp(q, " in ", 4))
                break;
        }
        if (!f || !field(p, f, &l.file))
            return NULL;
    }
    if (p->p >= eol || *p->p != ':')
        return NULL;
    p->p++;
    if (!digits_follow(p->p, eol) || !whole(p, &line) || line > INT32_MAX || eol - p->p < 4 ||
        memcmp(p->p, " in ", 4))
        return NULL;
    p->p += 4;
    l.line = (int)line;
    const char *code = find_text(p->p, eol, ", code: ");
    if (p->p < eol && (*p->p == '\'' || *p->p == '"') ? !string(p, &l.func)
                                                      : !field(p, code ? code : eol, &l.func))
        return NULL;
    if (eol - p->p >= 8 && !memcmp(p->p, ", code: ", 8)) {
        p->p += 8;
        if (!field(p, eol, &l.code))
            return NULL;
    }
    ir_loc *r = ARENA_NEW(&p->g->mem, ir_loc);
    *r = (ir_loc){ arena_strdup(&p->g->mem, l.file), arena_strdup(&p->g->mem, l.func),
                   l.code ? arena_strdup(&p->g->mem, l.code) : NULL, l.line, NULL };
    return r;
}

static bool comment_is(parser *p, const char *key)
{
    size_t n = strlen(key);
    if ((size_t)(line_end(p) - p->p) < n || memcmp(p->p, key, n))
        return false;
    p->p += n;
    return true;
}

/* A comment inside a body: where the following nodes come from. */
static bool body_comment(parser *p)
{
    ir_loc *l;
    if (comment_is(p, "# File: ")) {
        l = place(p);
        if (l)
            p->loc = l;
    } else if (comment_is(p, "#   called from: ")) {
        l = place(p);
        ir_loc *in = (ir_loc *)p->loc; /* ours until the node is made */
        while (in && in->outer)
            in = (ir_loc *)in->outer;
        if (in)
            in->outer = l;
    } else if (comment_is(p, "# No stacktrace found"))
        p->loc = NULL;
    p->p = line_end(p);
    return !err_is_set(p->err);
}

/* # symbol: s0 = 5 in [2, int_oo] from "L['x'].size()[0]" */
static bool bound(parser *p, int64_t *v)
{
    bool neg = take(p, "-int_oo");
    if (neg || take(p, "int_oo")) {
        *v = neg ? SYM_NEG_OO : SYM_OO;
        return true;
    }
    space(p);
    return whole(p, v);
}

static bool symbol_comment(parser *p)
{
    const char *w, *source = NULL;
    size_t n;
    int64_t hint = 0, lo = SYM_NEG_OO, hi = SYM_OO;
    tp_err e = { 0 };
    if (!want_word(p, "a symbol", &w, &n))
        return false;
    bool hinted = take(p, "=");
    space(p);
    if (hinted && !whole(p, &hint))
        return false;
    if (take(p, "in") && !(want(p, "[") && bound(p, &lo) && want(p, ",") && bound(p, &hi) && want(p, "]")))
        return false;
    if (take(p, "from") && !want_string(p, "a source in quotes", &source))
        return false;
    if (!p->env) {
        p->env = sym_env_new(&(sym_env_opts){ .no_duck = true });
        p->env_refs = mem_alloc(sizeof *p->env_refs);
        *p->env_refs = 1;
    }
    if (!sym_env_declare(p->env, arena_strndup(&p->mem, w, n), hinted, hint, lo, hi, source, &e))
        return fail_at(p, w, e.kind == ERR_none ? ERR_value : e.kind, "%s",
                       e.kind == ERR_none ? "this symbol cannot be declared" : e.msg);
    return true;
}

static bool relation_comment(parser *p)
{
    symint cond;
    const char *msg = NULL, *at;
    space(p);
    at = p->p;
    if (!expression(p, &cond) || (take(p, ",") && !want_string(p, "a message in quotes", &msg)))
        return false;
    if (sym_is_expr(cond) ? !sym_is_bool(cond) : cond != 1)
        return fail_at(p, at, ERR_value, "a relation that can hold was expected");
    if (sym_env_assert(p->env, cond, msg))
        return true;
    fail_at(p, at, ERR_value, "this contradicts what is declared above");
    err_clear(sym_env_err(p->env));
    return false;
}

/* [1.0, 2.0], hex:..., sha256:... or ? */
static bool const_value(parser *p, konst *k)
{
    tp_tensor *ty = k->type.t;
    const char *start = p->p, *eol = line_end(p);
    tp_err e = { 0 };

    if (take(p, "?"))
        return true;
    if (take(p, "sha256:")) {
        int n = 0;
        while (p->p + n < eol && hex_digit(p->p[n]) >= 0)
            n++;
        if (n != 64)
            return expected(p, "64 hexadecimal digits");
        k->digest = arena_strndup(&p->mem, p->p, 64);
        p->p += 64;
        return true;
    }
    if (sym_is_expr(ty->numel) || ty->numel > TEXT_MAX_LIST || !sym_all_const(ty->stride, ty->ndim))
        return fail_at(p, start, ERR_value, "a constant written here has at most %d elements", TEXT_MAX_LIST);
    size_t esz = dtype_size((dtype)ty->dt), need = (size_t)ty->numel * esz;
    tp_tensor *flat = tensor_new((dtype)ty->dt, ty->ndim, ty->size, &e);
    bool ok = flat != NULL;
    if (ok && take(p, "hex:")) {
        unsigned char *d = tensor_data(flat);
        for (size_t i = 0; i < need && ok; i++, p->p += 2) {
            ok = eol - p->p >= 2 && hex_digit(p->p[0]) >= 0 && hex_digit(p->p[1]) >= 0;
            if (ok)
                d[i] = (unsigned char)(hex_digit(p->p[0]) * 16 + hex_digit(p->p[1]));
            if (ok && ty->dt == DT_bool)
                d[i] = d[i] != 0;
        }
        if (!ok)
            fail_at(p, start, ERR_syntax, "%zu bytes in hexadecimal were expected", need);
    } else if (ok) {
        ok = want(p, "[");
        for (int64_t i = 0; i < ty->numel && ok; i++) {
            tp_val v = vNone;
            ok = (!i || want(p, ",")) && value(p, &v);
            if (ok && (!val_is_number(&v) || (v.kind == VAL_int && sym_is_expr(v.i))))
                ok = fail_at(p, start, ERR_type, "numbers were expected");
            if (!ok)
                break;
            char *d = (char *)tensor_data(flat) + (size_t)i * esz;
            dtype_is_float((dtype)ty->dt) ? elem_set_f((dtype)ty->dt, d, val_as_f(&v))
                                          : elem_set_i((dtype)ty->dt, d, val_as_i(&v));
        }
        ok = ok && want(p, "]");
    }
    if (ok) {
        k->t = tensor_new_strided((dtype)ty->dt, ty->ndim, ty->size, ty->stride, DEVICE_CPU, &e);
        ok = k->t && tensor_copy(k->t, flat, &e);
    }
    tensor_unref(flat);
    return ok || fail_at(p, start, e.kind == ERR_none ? ERR_syntax : e.kind, "%s", e.msg);
}

static bool const_comment(parser *p)
{
    const char *key, *text;
    size_t n;
    if (!name_or_string(p, "the name of a constant", &key) || !want(p, ":"))
        return false;
    const char *at = p->p;
    konst *k = ARENA_NEW(&p->mem, konst);
    if (!annotation(p, &k->type, &text, &n))
        return false;
    if (map_get(&p->konsts, key)) {
        val_clear(&k->type);
        return fail_at(p, at, ERR_syntax, "constant '%.100s' is declared twice", key);
    }
    map_put(&p->konsts, key, k); /* freed with the map from here on */
    if (k->type.kind != VAL_tensor)
        return fail_at(p, at, ERR_type, "a constant is a tensor");
    bool wrapped = take(p, "wrapped");
    if (!want(p, "="))
        return false;
    space(p);
    if (!const_value(p, k))
        return false;
    if (wrapped && k->t)
        k->t->flags |= TF_wrapped;
    return true;
}

/* A comment outside bodies: declarations; anything else is only a comment. */
static bool head_comment(parser *p)
{
    bool known = true, ok = true;
    if (comment_is(p, "# graph: "))
        ok = name_or_string(p, "a name", &p->graph_name);
    else if (comment_is(p, "# symbol: "))
        ok = symbol_comment(p);
    else if (comment_is(p, "# guard: ") || comment_is(p, "# assert: "))
        ok = relation_comment(p);
    else if (comment_is(p, "# const: "))
        ok = const_comment(p);
    else if (comment_is(p, "# grad_mode: ")) {
        p->grad_mode = take(p, "on");
        ok = p->grad_mode || want(p, "off");
    } else
        known = false;
    if (!ok)
        return false;
    space(p);
    if (known && p->p < line_end(p))
        return expected(p, "the end of the line");
    p->p = line_end(p);
    return true;
}

/* # source: ..., # offset: ..., # alias: ..., # meta: {...} after a statement */
static bool set_offset(parser *p, ir_node *n, symint off)
{
    tp_tensor *t = ir_type(n), *r;
    if (!t || n->kind != IR_placeholder)
        return fail_at(p, p->p, ERR_syntax, "only an input tensor has an offset");
    r = tensor_on(t->storage, (dtype)t->dt, t->ndim, t->size, t->stride, off);
    vec_push(&p->g->keep, r);
    n->val.t = r;
    return true;
}

static bool set_alias(parser *p, ir_node *n, ir_node *of)
{
    tp_tensor *t = ir_type(n), *o = ir_type(of), *r;
    if (!t || !o || n->kind != IR_placeholder || of->kind != IR_placeholder || of == n)
        return fail_at(p, p->p, ERR_syntax, "only an input tensor shares memory with another");
    r = tensor_on(o->storage, (dtype)t->dt, t->ndim, t->size, t->stride, t->offset);
    vec_push(&p->g->keep, r);
    n->val.t = r;
    return true;
}

static bool meta_comment(parser *p, ir_node *n)
{
    const char *eol = line_end(p), *start = p->p;
    arena tmp = { 0 };
    tp_err e = { 0 };
    while (eol > start && isspace((unsigned char)eol[-1]))
        eol--;
    const json_val *v = json_parse(&tmp, start, (size_t)(eol - start), &e);
    bool ok = json_is(v, JSON_obj);
    arena_free(&tmp);
    if (!ok)
        return fail_at(p, start, ERR_syntax, "a JSON object was expected%s%s", *e.msg ? ": " : "", e.msg);
    n->meta = arena_strndup(&p->g->mem, start, (size_t)(eol - start));
    p->p = eol;
    return true;
}

static bool tail_comments(parser *p, ir_node *n)
{
    const char *s, *w;
    size_t k;
    symint off;
    for (space(p); p->p < p->e && *p->p == '#'; space(p)) {
        if (n && comment_is(p, "# source: ")) {
            if (!want_string(p, "a source in quotes", &s))
                return false;
            n->target = arena_strdup(&p->g->mem, s);
        } else if (n && comment_is(p, "# offset: ")) {
            const char *at = p->p;
            tp_val v;
            if (!value(p, &v))
                return false;
            off = v.i;
            if (v.kind != VAL_int || (!sym_is_expr(off) && off < 0))
                return fail_at(p, at, ERR_value, "an offset is a number from 0 on");
            if (!set_offset(p, n, off))
                return false;
        } else if (n && comment_is(p, "# alias: ")) {
            ir_node *of;
            if (!want_word(p, "an input", &w, &k) || !use_var(p, w, k, &of) || !set_alias(p, n, of))
                return false;
        } else if (n && comment_is(p, "# meta: "))
            return meta_comment(p, n);
        else
            p->p = line_end(p);
    }
    return true;
}

/* ---- statements ---- */
static bool end_line(parser *p)
{
    space(p);
    if (p->p < p->e && *p->p != '\n')
        return expected(p, "the end of the line");
    p->p += p->p < p->e;
    return true;
}

/* ;  a = b = None */
static bool freed(parser *p)
{
    const char *w;
    size_t n;
    while (take(p, ";")) {
        for (;;) {
            ir_node *v;
            if (!want_word(p, "a name", &w, &n))
                return false;
            if (word_is(w, n, "None"))
                break;
            if (!use_var(p, w, n, &v) || !want(p, "="))
                return false;
            v->mark = 1;
        }
    }
    return true;
}

static bool define(parser *p, const char *w, size_t n, ir_node *v)
{
    map_putn(&p->vars, w, n, v);
    return true;
}

static bool returned(parser *p)
{
    tp_val one;
    size_t from = p->list.n;
    bool ok = false, tuple;
    space(p);
    const char *at = p->p;
    tuple = take(p, "(");
    for (bool first = true; !(tuple && take(p, ")")); first = false) {
        if (!first && !comma_or(p, ")"))
            goto done;
        if (!first && tuple && take(p, ")"))
            break;
        if (!value(p, &one))
            goto done;
        if (one.kind == VAL_graph || p->list.n - from >= TEXT_MAX_LIST) {
            fail_at(p, at, ERR_syntax, "this cannot be returned");
            goto done;
        }
        vec_push(&p->list, one);
        if (!tuple)
            break;
    }
    ir_set_output(p->g, p->list.at + from, (int)(p->list.n - from));
    ok = true;
done:
    p->list.n = from;
    return ok;
}

static bool assignment(parser *p, const char *w, size_t n)
{
    stmt s = { .name = w, .n_name = n };
    ir_node *node = NULL, *old = var(p, w, n);
    bool ok = false;
    const char *w2;
    size_t n2;

    if (old && old->kind != IR_placeholder)
        return fail_at(p, w, ERR_syntax, "'%.*s' is defined twice", (int)MIN(n, 100), w);
    if (take(p, ":") && !annotation(p, &s.type, &s.type_text, &s.n_type))
        return false;
    if (!want(p, "="))
        goto done;
    space(p);
    const char *rhs = p->p;
    if (s.type.kind == VAL_none && word(p, &w2, &n2) && var(p, w2, n2) &&
        var(p, w2, n2)->kind == IR_placeholder) {
        space(p);
        if (p->p >= p->e || *p->p == '\n' || *p->p == '#') { /* l_x_ = L_x_ */
            node = var(p, w2, n2);
            if (old && old != node) {
                fail_at(p, w, ERR_syntax, "'%.*s' is defined twice", (int)MIN(n, 100), w);
                goto done;
            }
            if (!old) {
                char *name = arena_strndup(&p->mem, w, n);
                bool plain = !strcmp(node->target, node->name);
                ir_rename(node, name);
                if (plain)
                    node->target = arena_strndup(&p->g->mem, w2, n2);
                define(p, w, n, node);
            }
            ok = tail_comments(p, node);
            goto done;
        }
    }
    p->p = rhs;
    if (old) {
        fail_at(p, w, ERR_syntax, "'%.*s' is defined twice", (int)MIN(n, 100), w);
        goto done;
    }
    if (!right_side(p, &s, &node))
        goto done;
    define(p, w, n, node);
    ok = freed(p) && tail_comments(p, node);
done:
    val_clear(&s.type);
    return ok;
}

static bool keyword(const char *w, size_t n)
{
    static const char *const words[] = { "def", "class", "return", "None",   "True", "False", "self",
                                         "inf", "nan",   "lambda", "import", "from", "if",    "else",
                                         "for", "while", "in",     "is",     "not",  "and",   "or" };
    for (size_t i = 0; i < COUNT(words); i++)
        if (word_is(w, n, words[i]))
            return true;
    return false;
}

static bool body(parser *p)
{
    const char *w;
    size_t n;
    for (;;) {
        space(p);
        if (p->p >= p->e)
            return expected(p, "'return'");
        if (*p->p == '\n') {
            p->p++;
            continue;
        }
        if (*p->p == '#') {
            if (!body_comment(p))
                return false;
            continue;
        }
        if (!want_word(p, "a statement", &w, &n))
            return false;
        if (word_is(w, n, "return"))
            return returned(p) && freed(p) && tail_comments(p, NULL) && end_line(p);
        if (keyword(w, n)) {
            p->p = w;
            return expected(p, "a statement");
        }
        if (!assignment(p, w, n) || !end_line(p))
            return false;
    }
}

/* ---- definitions ---- */
static bool parameters(parser *p)
{
    const char *w, *text;
    size_t n, k;
    if (!want(p, "(") || !want(p, "self"))
        return false;
    while (!take(p, ")")) {
        tp_val type = vNone;
        if (!comma_or(p, ")"))
            return false;
        if (take(p, ")"))
            break;
        if (!want_word(p, "a parameter", &w, &n))
            return false;
        if (var(p, w, n) || keyword(w, n))
            return fail_at(p, w, ERR_syntax, "'%.*s' cannot be a parameter (again)", (int)MIN(n, 100), w);
        if (take(p, ":") && !annotation(p, &type, &text, &k))
            return false;
        char *name = arena_strndup(&p->mem, w, n);
        ir_node *node = ir_add_placeholder_val(p->g, name, name, type);
        define(p, w, n, node);
    }
    return want(p, ":");
}

/* Nodes that are spelled as the style says need no mark of their own. */
static void settle_style(parser *p, ir_graph *g)
{
    bool aten = p->n_aten && !p->n_python;
    text_args a;
    g->style = (uint8_t)((aten ? IR_STYLE_aten : 0) | (p->torch ? IR_STYLE_torch : 0));
    IR_EACH(n, g)
    {
        n->mark = 0;
        if (n->kind != IR_call)
            continue;
        if (aten) {
            n->spell = SPELL_auto;
            continue;
        }
        uint8_t as = n->spell;
        n->spell = SPELL_auto;
        spell_args(n, true, &a);
        if (spell_of(n, &a) != as)
            n->spell = as;
    }
    for (size_t i = 0; i < g->subs.n; i++)
        settle_style(p, g->subs.at[i]);
}

static void konsts_clear(parser *p)
{
    for (size_t i = 0; i < p->konsts.cap; i++)
        if (map_slot_live(&p->konsts.slots[i])) {
            konst *k = p->konsts.slots[i].val;
            tensor_unref(k->t);
            val_clear(&k->type);
        }
    map_free(&p->konsts);
}

static void drop_pending(parser *p, ir_graph *g)
{
    for (size_t i = 0; i < p->pending.n; i++)
        if (p->pending.at[i] == g)
            p->pending.at[i] = p->pending.at[--p->pending.n];
}

/* Those that found a parent go with it. */
static void free_pending(parser *p)
{
    size_t k = 0;
    for (size_t i = 0; i < p->pending.n; i++)
        if (!p->pending.at[i]->parent)
            p->pending.at[k++] = p->pending.at[i];
    for (size_t i = 0; i < k; i++)
        ir_graph_free(p->pending.at[i]);
}

static bool definition(parser *p, bool *last)
{
    const char *w;
    size_t n;
    if (!want_word(p, "a name", &w, &n))
        return false;
    ir_graph *old = map_getn(&p->graphs, w, n);
    *last = word_is(w, n, "forward");
    if (p->pending.n >= TEXT_MAX_SUBGRAPHS || (old && !old->parent))
        return fail_at(p, w, ERR_syntax, old ? "this graph is defined twice" : "too many graphs");
    const char *name = *last && p->graph_name ? p->graph_name : arena_strndup(&p->mem, w, n);
    p->g = ir_graph_new(name);
    vec_push(&p->pending, p->g);
    p->g->env = p->env;
    p->g->env_refs = p->env_refs;
    if (p->env_refs)
        ++*p->env_refs;
    p->g->grad_mode = p->grad_mode;
    p->loc = NULL;
    if (!parameters(p) || !tail_comments(p, NULL) || !end_line(p) || !body(p))
        return false;
    if (!*last)
        map_putn(&p->graphs, w, n, p->g);
    for (size_t i = 0; i < p->g->subs.n; i++)
        drop_pending(p, p->g->subs.at[i]);
    if (*last && p->pending.n > 1)
        return fail_at(p, w, ERR_syntax, "graph '%.100s' is defined but not used",
                       p->pending.at[p->pending.at[0] == p->g]->name);
    map_free(&p->vars);
    konsts_clear(p);
    p->grad_mode = true;
    return true;
}

static bool file(parser *p)
{
    const char *w;
    size_t n;
    bool last = false;
    for (;;) {
        space(p);
        if (p->p >= p->e)
            return last || expected(p, "'def forward(self, ...):'");
        if (*p->p == '\n') {
            p->p++;
            continue;
        }
        if (*p->p == '#') {
            if (last)
                p->p = line_end(p);
            else if (!head_comment(p))
                return false;
            continue;
        }
        const char *at = p->p;
        if (last)
            return expected(p, "the end of the file");
        if (word(p, &w, &n) && word_is(w, n, "class")) { /* class GraphModule(taper.nn.Module): */
            if (!want_word(p, "a name", &w, &n) || !want(p, "("))
                return false;
            if (!dotted(p, &w, &n))
                return expected(p, "a class");
            if (!want(p, ")") || !want(p, ":") || !end_line(p))
                return false;
            continue;
        }
        p->p = at;
        if (!want(p, "def") || !definition(p, &last))
            return false;
    }
}

ir_graph *ir_parse(const char *text, size_t n, const char *name, sym_env *env, tp_err *err)
{
    tp_err own = { 0 };
    parser p = { .s = text,
                 .p = text,
                 .e = text + n,
                 .file = name ? name : "<text>",
                 .err = err ? err : &own,
                 .env = env,
                 .grad_mode = true };
    ir_graph *g = NULL;

    err_clear(p.err);
    vec_reserve(&p.list, 16);
    if (n > TEXT_MAX_BYTES)
        err_set(p.err, ERR_syntax, "%s: longer than %d bytes", p.file, TEXT_MAX_BYTES);
    else if (file(&p)) {
        g = p.g;
        drop_pending(&p, g);
        settle_style(&p, g);
    }
    free_pending(&p);
    vec_free(&p.pending);
    vec_free(&p.list);
    konsts_clear(&p);
    map_free(&p.vars);
    map_free(&p.graphs);
    arena_free(&p.mem);
    if (p.env_refs && !--*p.env_refs) {
        sym_env_free(p.env);
        free(p.env_refs);
    }
    return g;
}
