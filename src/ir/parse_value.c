/* parse_value.c - types (f32[3, 3][3, 1]cpu) and operands (numbers, lists, names, devices). */
#include "ir/parse.h"
#include <ctype.h>
#include <stdio.h>

/* ---- types: f32[3, 3][3, 1]cpu ---- */
static bool size_list(parser *p, int *n, symint *v)
{
    *n = 0;
    if (!parse_want(p, "["))
        return false;
    while (!parse_take(p, "]")) {
        if (*n == TP_MAX_DIMS)
            return parse_fail_at(p, p->p, ERR_value, "more than %d dimensions", TP_MAX_DIMS);
        if (*n && !parse_comma_or(p, "]"))
            return false;
        if (!parse_size_value(p, &v[(*n)++]))
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
    if (!parse_word_at(p->p, p->e, &w, &n))
        return true;
    const char *q = w + n;
    if (q < p->e && *q == ':')
        for (q++; parse_digits_follow(q, p->e);)
            q++;
    snprintf(text, sizeof text, "%.*s", (int)MIN(q - w, 39), w);
    if (!device_parse(text, dev, NULL))
        return parse_expected(p, "a device");
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

    parse_space(p);
    start = p->p;
    if (!parse_want_word(p, "a type such as f32[2, 3]", &w, &n))
        return false;
    if (parse_word_is(w, n, "None")) {
        *out = NULL;
        return true;
    }
    dtype dt = DT_none;
    for (int i = 0; i < DT_COUNT; i++)
        if (parse_word_is(w, n, dtype_rows[i].sname))
            dt = (dtype)i;
    if (dt == DT_none)
        return parse_fail_at(p, w, ERR_syntax, "'%.*s' is no element type (f32, i64, b8, ...)",
                             (int)MIN(n, 40), w);
    if (!size_list(p, &nd, size))
        return false;
    bool strided = parse_next_is(p, "[");
    if (strided && !size_list(p, &ns, stride))
        return false;
    if (strided && ns != nd)
        return parse_fail_at(p, start, ERR_value, "%d sizes but %d strides", nd, ns);
    if (!shape_check_sizes(nd, size, &e))
        return parse_fail_at(p, start, ERR_value, "%s", e.msg);
    if (!strided)
        shape_contiguous_strides(nd, size, stride);
    for (int d = 0; d < nd; d++)
        if (!sym_is_expr(stride[d]) && stride[d] < 0)
            return parse_fail_at(p, start, ERR_value, "strides cannot be negative");
    if (!shape_storage_bytes(dt, nd, size, stride, 0, &bytes, &e))
        return parse_fail_at(p, start, ERR_value, "%s", e.msg);
    if (!device_suffix(p, &dev))
        return false;
    *out = tensor_new_fake(dt, nd, size, stride, dev);
    return true;
}

static bool type_body(parser *p, tp_val *out)
{
    if (parse_take(p, "Sym(")) {
        symint v;
        parse_space(p);
        const char *q = p->p + (p->p < p->e && *p->p == '-');
        while (parse_digits_follow(q, p->e))
            q++;
        if (q < p->e && *q == ')' && q > p->p ? !parse_whole(p, &v) : !parse_expression(p, &v))
            return false;
        *out = vI(v);
        return parse_want(p, ")");
    }
    if (parse_next_is(p, "float\"") || parse_next_is(p, "bool\"")) {
        *out = *p->p == 'f' ? vF(0) : vB(false);
        p->p += *p->p == 'f' ? 5 : 4;
        return true;
    }
    if (parse_take(p, "(")) {
        VEC(tp_tensor *) ts = { 0 };
        bool ok = true;
        while (ok && !parse_take(p, ")")) {
            tp_tensor *t = NULL;
            if (ts.n >= TEXT_MAX_LIST || (ts.n && !parse_want(p, ","))) {
                ok = false;
                break;
            }
            if (ts.n && parse_take(p, ")"))
                break;
            ok = tensor_type(p, &t);
            if (ok)
                vec_push(&ts, t);
        }
        *out = vTs(ts.at, (int)ts.n);
        if (!ok)
            val_clear(out);
        return ok || parse_expected(p, "a type");
    }
    tp_tensor *t;
    if (!tensor_type(p, &t))
        return false;
    *out = vT(t);
    return true;
}

/* "..." after a colon; out is owned. Keeps the text for a quick comparison. */
bool parse_annotation(parser *p, tp_val *out, const char **text, size_t *n)
{
    parse_space(p);
    if (p->p >= p->e || *p->p != '"')
        return parse_expected(p, "a type in double quotes");
    *text = ++p->p;
    bool raw = p->raw;
    p->raw |= p->typed; /* sizes, too, as they stand */
    bool read = type_body(p, out);
    p->raw = raw;
    if (!read)
        return false;
    *n = (size_t)(p->p - *text);
    if (parse_want(p, "\""))
        return true;
    val_clear(out);
    return false;
}

/* ---- values ---- */
ir_node *parse_var(parser *p, const char *w, size_t n) { return map_getn(&p->vars, w, n); }

bool parse_use_var(parser *p, const char *w, size_t n, ir_node **out)
{
    *out = parse_var(p, w, n);
    if (!*out)
        return parse_fail_at(p, w, ERR_syntax, "'%.*s' is not defined before its use", (int)MIN(n, 100), w);
    if ((*out)->mark)
        return parse_fail_at(p, w, ERR_syntax, "'%.*s' is used after it was set to None", (int)MIN(n, 100),
                             w);
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
    while (parse_digits_follow(q, p->e))
        q++;
    if (q < p->e && *q == '.')
        for (q++, real = true; parse_digits_follow(q, p->e);)
            q++;
    if (q < p->e && (*q == 'e' || *q == 'E')) {
        const char *x = q + 1;
        x += x < p->e && (*x == '-' || *x == '+');
        if (parse_digits_follow(x, p->e)) {
            for (real = true; parse_digits_follow(x, p->e);)
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
            return parse_expression(p, &out->i);
        }
        *out = vI(0);
        return parse_number_whole(p, &out->i);
    }
    char buf[512];
    if (q - s >= (ptrdiff_t)sizeof buf)
        return parse_fail_at(p, s, ERR_syntax, "this number has too many digits");
    memcpy(buf, s, (size_t)(q - s));
    buf[q - s] = 0;
    *out = vF(strtod(buf, NULL));
    p->p = q;
    return true;
}

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
        return parse_fail_at(p, start, ERR_type,
                             "a list holds numbers, truth values or tensors, not a mixture");
    return true;
}

static bool list_value(parser *p, char close, tp_val *out)
{
    const char *start = p->p++, stop[2] = { close, 0 };
    size_t from = p->list.n;
    bool ok = false;

    while (!parse_take(p, stop)) {
        tp_val v;
        if (p->list.n - from >= TEXT_MAX_LIST) {
            parse_fail_at(p, start, ERR_value, "this list has more than %d items", TEXT_MAX_LIST);
            goto done;
        }
        if (p->list.n > from && !parse_comma_or(p, stop))
            goto done;
        if (p->list.n > from && parse_take(p, stop)) /* (1,) */
            break;
        parse_space(p);
        if (p->p < p->e && (*p->p == '[' || (*p->p == '(' && !p->env))) {
            parse_fail_at(p, p->p, ERR_type, "lists do not hold lists");
            goto done;
        }
        if (!parse_value(p, &v))
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
    if (!parse_want(p, "("))
        return false;
    if (parse_take(p, "type") && !parse_want(p, "="))
        return false;
    parse_space(p);
    at = p->p;
    if (!parse_want_string(p, "a device name in quotes", &kind))
        return false;
    if (parse_take(p, ",")) {
        if (!parse_want(p, "index") || !parse_want(p, "="))
            return false;
        parse_space(p);
        if (!parse_whole(p, &index))
            return false;
    }
    *out = vDev(DEVICE_CPU);
    if (!device_parse(kind, &out->dev, NULL) || index < -1 || index > 127)
        return parse_fail_at(p, at, ERR_value, "there is no such device");
    if (index >= 0)
        out->dev.index = (int8_t)index;
    return parse_want(p, ")");
}

/* complex(0.5, -1.0) */
static bool complex_value(parser *p, tp_val *out)
{
    double *c = ARENA_ARR(&p->mem, double, 2);
    tp_val v;
    if (!parse_want(p, "("))
        return false;
    for (int i = 0; i < 2; i++) {
        const char *at = p->p;
        if (!parse_value(p, &v) || !parse_want(p, i ? ")" : ","))
            return false;
        if (v.kind != VAL_float && (v.kind != VAL_int || sym_is_expr(v.i)))
            return parse_fail_at(p, at, ERR_type, "the parts of a complex number are numbers");
        c[i] = val_as_f(&v);
    }
    *out = vC(c);
    return true;
}

/* taper.float32, taper.contiguous_format, ...; p is after the root's dot. */
static bool named_value(parser *p, tp_val *out)
{
    static const char *const formats[] = { "contiguous_format", "preserve_format", "channels_last",
                                           "channels_last_3d" };
    const char *w;
    size_t n;
    if (!parse_want_word(p, "a dtype or format", &w, &n))
        return false;
    for (int i = 0; i < DT_COUNT; i++)
        if (parse_word_is(w, n, dtype_rows[i].pname)) {
            *out = vDT(i);
            return true;
        }
    for (int i = 0; i < (int)COUNT(formats); i++)
        if (parse_word_is(w, n, formats[i])) {
            *out = vMF(i);
            return true;
        }
    if (!parse_word_is(w, n, "strided"))
        return parse_fail_at(p, w, ERR_syntax, "'%.*s' is no dtype or format", (int)MIN(n, 40), w);
    *out = (tp_val){ .kind = VAL_layout };
    return true;
}

static bool sub_graph(parser *p, tp_val *out) /* after "self." */
{
    const char *w;
    size_t n;
    if (!parse_want_word(p, "the name of a nested graph", &w, &n))
        return false;
    *out = (tp_val){ .kind = VAL_graph, .graph = NULL };
    if (!p->g)
        return parse_fail_at(p, w, ERR_syntax, "a graph is no value here");
    for (size_t i = 0; i < p->g->subs.n; i++)
        if (parse_word_is(w, n, p->g->subs.at[i]->name))
            out->graph = p->g->subs.at[i];
    if (!out->graph)
        out->graph = map_getn(&p->graphs, w, n);
    return out->graph ||
           parse_fail_at(p, w, ERR_syntax, "no graph '%.*s' is defined above", (int)MIN(n, 100), w);
}

bool parse_is_root(const char *w, size_t n)
{
    return parse_word_is(w, n, "taper") || parse_word_is(w, n, "torch");
}

static bool word_value(parser *p, tp_val *out)
{
    const char *w;
    size_t n;
    *out = vNone;
    if (!parse_want_word(p, "a value", &w, &n))
        return false;
    if (parse_word_is(w, n, "None"))
        return true;
    if (parse_word_is(w, n, "True") || parse_word_is(w, n, "False")) {
        *out = vB(*w == 'T');
        return true;
    }
    if (parse_word_is(w, n, "nan") || parse_word_is(w, n, "inf")) {
        *out = vF(*w == 'n' ? (double)__builtin_nanf("") : (double)__builtin_inff());
        return true;
    }
    if (parse_word_is(w, n, "device") && parse_next_is(p, "("))
        return device_value(p, out);
    if (parse_word_is(w, n, "complex") && parse_next_is(p, "("))
        return complex_value(p, out);
    if (parse_is_root(w, n) && !parse_var(p, w, n) && parse_take(p, "."))
        return named_value(p, out);
    if (parse_word_is(w, n, "self") && parse_take(p, "."))
        return sub_graph(p, out);
    if (!parse_var(p, w, n) && (is_symbol(p, w, n) || (p->env && parse_next_is(p, "(")))) {
        p->p = w;
        *out = vI(0);
        return parse_expression(p, &out->i);
    }
    out->kind = VAL_node;
    return parse_use_var(p, w, n, &out->node);
}

bool parse_value(parser *p, tp_val *out)
{
    parse_space(p);
    if (p->p >= p->e)
        return parse_expected(p, "a value");
    char c = *p->p;
    if (c == '\'' || c == '"') {
        const char *s;
        if (!parse_string(p, &s))
            return false;
        *out = vS(s);
        return true;
    }
    if (isdigit((unsigned char)c) || (c == '-' && parse_digits_follow(p->p + 1, p->e)))
        return number(p, out);
    if (c == '[')
        return list_value(p, ']', out);
    if (c == '(') { /* a tuple, or the parentheses of an expression */
        const char *q = parse_expr_end(p, p->p + 1), *r = q + 1;
        bool tuple = !p->env || (q < p->e && *q == ',') || q == p->p + 1;
        while (r < p->e && *r == ' ')
            r++;
        if (tuple && !(q < p->e && *q == ')' && r < p->e && strchr("+-*/%", *r) && q > p->p + 1))
            return list_value(p, ')', out);
        *out = vI(0);
        return parse_expression(p, &out->i);
    }
    if (c == '-') {
        const char *w;
        size_t n;
        if (parse_word_at(p->p + 1, p->e, &w, &n) && parse_word_is(w, n, "inf")) {
            p->p = w + n;
            *out = vF(-__builtin_inf());
            return true;
        }
        *out = vI(0);
        return parse_expression(p, &out->i);
    }
    return word_value(p, out);
}
