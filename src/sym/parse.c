/* parse.c - text to expression: recursive descent over untrusted text. */
#include "sym/expr.h"
#include <ctype.h>

typedef struct {
    sym_env *env;
    const char *text, *p, *end;
    tp_err *err;
    int depth;
} parser;
enum { MAX_NEST = 200 };

static bool bad(parser *s, const char *at, const char *what)
{
    return err_set(s->err, ERR_syntax, "column %zu: %s", (size_t)(at - s->text) + 1, what);
}

static void space(parser *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t'))
        s->p++;
}

static bool take(parser *s, const char *tok)
{
    size_t n = strlen(tok);
    space(s);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, tok, n))
        return false;
    /* a word must end where it ends, "<" is not the start of "<=", nor "*" of "**" */
    char next = s->p + n < s->end ? s->p[n] : 0;
    if (isalpha((unsigned char)*tok) && (isalnum((unsigned char)next) || next == '_'))
        return false;
    if ((*tok == '<' || *tok == '>') && n == 1 && next == '=')
        return false;
    if (*tok == '*' && n == 1 && next == '*')
        return false;
    s->p += n;
    return true;
}

static bool disjunction(parser *s, symint *v);
static bool want_number(parser *s, const char *at, symint v)
{
    return !sym_is_bool(v) || bad(s, at, "expected a number, found a truth value");
}
static bool want_bool(parser *s, const char *at, symint v)
{
    return sym_is_bool(v) || v == 0 || v == 1 || bad(s, at, "expected a truth value, found a number");
}
/* What went wrong in the arithmetic itself. */
static bool sound(parser *s, const char *at)
{
    if (s->env->err.kind == ERR_none)
        return true;
    bad(s, at, s->env->err.msg);
    err_clear(&s->env->err);
    return false;
}

typedef enum { F_max, F_min, F_mod, F_div, F_eq, F_ne, F_lt, F_le, F_gt, F_ge } fn;
static const struct {
    const char *name;
    fn f;
} functions[] = { { "Max", F_max }, { "max", F_max },       { "Min", F_min },      { "min", F_min },
                  { "Mod", F_mod }, { "PythonMod", F_mod }, { "FloorDiv", F_div }, { "Eq", F_eq },
                  { "Ne", F_ne },   { "Lt", F_lt },         { "Le", F_le },        { "Gt", F_gt },
                  { "Ge", F_ge } };

static bool apply(parser *s, const char *at, fn f, symint a, symint b, symint *v)
{
    static const sym_rel rel[] = {
        [F_eq] = SYM_eq, [F_ne] = SYM_ne, [F_lt] = SYM_lt, [F_le] = SYM_le, [F_gt] = SYM_gt, [F_ge] = SYM_ge
    };
    if (!want_number(s, at, a) || !want_number(s, at, b))
        return false;
    if ((f == F_mod || f == F_div) && b == 0)
        return bad(s, at, "division by zero");
    switch (f) {
    case F_max: *v = sym_max(a, b); break;
    case F_min: *v = sym_min(a, b); break;
    case F_mod: *v = sym_mod(a, b); break;
    case F_div: *v = sym_floordiv(a, b); break;
    default: *v = sym_rel_of(rel[f], a, b);
    }
    return sound(s, at);
}

static bool call(parser *s, const char *at, fn f, symint *v)
{
    symint x;
    int n = 1;

    if (!take(s, "("))
        return bad(s, s->p, "expected '('");
    if (!disjunction(s, v))
        return false;
    while (take(s, ",")) {
        if (!disjunction(s, &x) || !apply(s, at, f, *v, x, v))
            return false;
        if (++n > 2 && f != F_max && f != F_min)
            return bad(s, at, "takes two arguments");
    }
    if (n < 2)
        return bad(s, s->p, "expected ',' and a second argument");
    return take(s, ")") || bad(s, s->p, "expected ')'");
}

static bool number(parser *s, symint *v)
{
    const char *at = s->p;
    int64_t x = 0;
    while (s->p < s->end && isdigit((unsigned char)*s->p))
        if (__builtin_mul_overflow(x, 10, &x) || __builtin_add_overflow(x, *s->p++ - '0', &x) ||
            x >= SYM_LIMIT)
            return bad(s, at, "number does not fit in 62 bits");
    *v = x;
    return true;
}

static bool primary(parser *s, symint *v)
{
    const char *at;

    space(s);
    at = s->p;
    if (at >= s->end)
        return bad(s, at, "expected an expression, found the end");
    if (take(s, "("))
        return disjunction(s, v) && (take(s, ")") || bad(s, s->p, "expected ')'"));
    if (isdigit((unsigned char)*at))
        return number(s, v);
    if (take(s, "True") || take(s, "False")) {
        *v = *at == 'T';
        return true;
    }
    while (s->p < s->end && (isalnum((unsigned char)*s->p) || *s->p == '_'))
        s->p++;
    size_t n = (size_t)(s->p - at);
    if (!n)
        return bad(s, at, "expected a number, a symbol or '('");
    for (size_t i = 0; i < COUNT(functions); i++)
        if (strlen(functions[i].name) == n && !memcmp(functions[i].name, at, n))
            return call(s, at, functions[i].f, v);
    *v = sym_env_find(s->env, at, n);
    if (*v)
        return true;
    err_set(s->err, ERR_syntax, "column %zu: unknown symbol '%.*s'", (size_t)(at - s->text) + 1,
            (int)MIN(n, 64), at);
    return false;
}

static bool power(parser *s, symint *v)
{
    const char *at = s->p;
    symint n;
    if (!primary(s, v))
        return false;
    if (!take(s, "**"))
        return true;
    space(s);
    if (s->p >= s->end || !isdigit((unsigned char)*s->p))
        return bad(s, s->p, "expected a whole number after '**'");
    if (!number(s, &n) || !want_number(s, at, *v))
        return false;
    if (n > SX_MAX_POWER || (!sym_is_expr(*v) && n > 64))
        return bad(s, at, "power is too large");
    if (!sym_is_expr(*v)) {
        int64_t x = 1;
        for (; n > 0; n--)
            if (__builtin_mul_overflow(x, *v, &x) || x >= SYM_LIMIT || x <= -SYM_LIMIT)
                return bad(s, at, "number does not fit in 62 bits");
        *v = x;
        return true;
    }
    *v = sym_pow(*v, n);
    return sound(s, at);
}

static bool unary(parser *s, symint *v)
{
    const char *at = s->p;
    if (!take(s, "-"))
        return power(s, v);
    if (++s->depth > MAX_NEST)
        return bad(s, at, "nested too deeply");
    if (!unary(s, v) || !want_number(s, at, *v))
        return false;
    s->depth--;
    *v = sym_sub(0, *v);
    return sound(s, at);
}

/* Constants go through here too, where the inline operations of sym.h would overflow silently. */
static bool arithmetic(parser *s, const char *at, char op, symint a, symint b, symint *v)
{
    int64_t x = 0;
    if (!want_number(s, at, a) || !want_number(s, at, b))
        return false;
    if (!sym_is_expr(a) && !sym_is_expr(b)) {
        if ((op == '*' && __builtin_mul_overflow(a, b, &x)) ||
            (op == '+' && __builtin_add_overflow(a, b, &x)) ||
            (op == '-' && __builtin_sub_overflow(a, b, &x)) || x >= SYM_LIMIT || x <= -SYM_LIMIT)
            return bad(s, at, "number does not fit in 62 bits");
        *v = x;
        return true;
    }
    *v = op == '*' ? sym_mul(a, b) : op == '+' ? sym_add(a, b) : sym_sub(a, b);
    return sound(s, at);
}

static bool product(parser *s, symint *v)
{
    symint x;
    const char *at = s->p;
    if (!unary(s, v))
        return false;
    for (;;) {
        char op = take(s, "*") ? '*' : take(s, "//") ? '/' : take(s, "%") ? '%' : 0;
        if (!op)
            return true;
        if (!unary(s, &x))
            return false;
        if (!(op == '*' ? arithmetic(s, at, op, *v, x, v)
                        : apply(s, at, op == '/' ? F_div : F_mod, *v, x, v)))
            return false;
    }
}

static bool sum(parser *s, symint *v)
{
    symint x;
    const char *at = s->p;
    if (!product(s, v))
        return false;
    for (;;) {
        char op = take(s, "+") ? '+' : take(s, "-") ? '-' : 0;
        if (!op)
            return true;
        if (!product(s, &x) || !arithmetic(s, at, op, *v, x, v))
            return false;
    }
}

static bool comparison(parser *s, symint *v)
{
    static const struct {
        const char *op;
        fn f;
    } ops[] = {
        { "==", F_eq }, { "!=", F_ne }, { "<=", F_le }, { ">=", F_ge }, { "<", F_lt }, { ">", F_gt }
    };
    symint left, right, all = 1, one;
    bool any = false;
    const char *at = s->p;

    if (!sum(s, &left))
        return false;
    for (;;) {
        size_t i = 0;
        while (i < COUNT(ops) && !take(s, ops[i].op))
            i++;
        if (i == COUNT(ops))
            break;
        if (!sum(s, &right) || !apply(s, at, ops[i].f, left, right, &one))
            return false;
        all = sym_and(all, one); /* 2 <= s0 <= 9 */
        left = right;
        any = true;
    }
    *v = any ? all : left;
    return true;
}

static bool negation(parser *s, symint *v)
{
    const char *at = s->p;
    if (!take(s, "not"))
        return comparison(s, v);
    if (++s->depth > MAX_NEST)
        return bad(s, at, "nested too deeply");
    if (!negation(s, v) || !want_bool(s, at, *v))
        return false;
    s->depth--;
    *v = sym_not(*v);
    return true;
}

static bool conjunction(parser *s, symint *v)
{
    symint x;
    const char *at = s->p;
    if (!negation(s, v))
        return false;
    while (take(s, "and")) {
        if (!negation(s, &x) || !want_bool(s, at, *v) || !want_bool(s, at, x))
            return false;
        *v = sym_and(*v, x);
    }
    return true;
}

static bool disjunction(parser *s, symint *v)
{
    symint x;
    const char *at = s->p;
    if (++s->depth > MAX_NEST)
        return bad(s, at, "nested too deeply");
    if (!conjunction(s, v))
        return false;
    while (take(s, "or")) {
        if (!conjunction(s, &x) || !want_bool(s, at, *v) || !want_bool(s, at, x))
            return false;
        *v = sym_or(*v, x);
    }
    s->depth--;
    return true;
}

bool sym_parse(sym_env *env, const char *text, size_t n, symint *out, tp_err *err)
{
    parser s = { env, text, text, text + n, err, 0 };
    *out = 0;
    if (!disjunction(&s, out))
        return false;
    space(&s);
    return s.p == s.end || bad(&s, s.p, "expected the end after the expression");
}

bool sym_parse_raw(sym_env *env, const char *text, size_t n, symint *out, tp_err *err)
{
    bool pure = env->pure, raw = env->raw;
    env->pure = env->raw = true;
    bool ok = sym_parse(env, text, n, out, err);
    env->pure = pure;
    env->raw = raw;
    return ok;
}
