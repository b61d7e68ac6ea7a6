/* parse_lex.c - errors with their place, tokens, strings, numbers, symbolic expressions. */
#include "ir/parse.h"
#include "base/utf8.h"
#include <ctype.h>
#include <stdio.h>

/* ---- errors ---- */
bool parse_fail_at(parser *p, const char *at, err_kind k, const char *fmt, ...)
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
    return err_place(p->err, p->file, line, NULL);
}

/* "a name was expected, not ')'" */
bool parse_expected(parser *p, const char *what)
{
    if (p->p >= p->e)
        return parse_fail_at(p, p->p, ERR_syntax, "%s was expected, not the end of the file", what);
    if (*p->p == '\n')
        return parse_fail_at(p, p->p, ERR_syntax, "%s was expected, not the end of the line", what);
    uint32_t cp = 0;
    int n = utf8_decode(p->p, (size_t)(p->e - p->p), &cp);
    if (n < 1 || cp < 32)
        return parse_fail_at(p, p->p, ERR_syntax, "%s was expected, not byte 0x%02x", what,
                             (unsigned char)*p->p);
    return parse_fail_at(p, p->p, ERR_syntax, "%s was expected, not '%.*s'", what, n, p->p);
}

/* ---- tokens ---- */
void parse_space(parser *p)
{
    while (p->p < p->e && (*p->p == ' ' || *p->p == '\t' || *p->p == '\r'))
        p->p++;
}

bool parse_next_is(parser *p, const char *t)
{
    size_t n = strlen(t);
    parse_space(p);
    return (size_t)(p->e - p->p) >= n && !memcmp(p->p, t, n);
}

bool parse_take(parser *p, const char *t)
{
    if (!parse_next_is(p, t))
        return false;
    p->p += strlen(t);
    return true;
}

bool parse_want(parser *p, const char *t)
{
    char what[40];
    if (parse_take(p, t))
        return true;
    snprintf(what, sizeof what, "'%s'", t);
    return parse_expected(p, what);
}

bool parse_comma_or(parser *p, const char *close) /* a comma, where the list did not end */
{
    char what[40];
    if (parse_take(p, ","))
        return true;
    snprintf(what, sizeof what, "',' or '%s'", close);
    return parse_expected(p, what);
}

bool parse_word_at(const char *s, const char *e, const char **w, size_t *n)
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

bool parse_word(parser *p, const char **w, size_t *n)
{
    parse_space(p);
    if (!parse_word_at(p->p, p->e, w, n))
        return false;
    p->p += *n;
    return true;
}

bool parse_word_is(const char *w, size_t n, const char *t) { return strlen(t) == n && !memcmp(w, t, n); }

bool parse_want_word(parser *p, const char *what, const char **w, size_t *n)
{
    return parse_word(p, w, n) || parse_expected(p, what);
}

/* a.b.c; stops before a dot that nothing follows */
bool parse_dotted(parser *p, const char **w, size_t *n)
{
    const char *w2;
    size_t n2;
    if (!parse_word(p, w, n))
        return false;
    while (p->p < p->e && *p->p == '.' && parse_word_at(p->p + 1, p->e, &w2, &n2))
        p->p += 1 + n2;
    *n = (size_t)(p->p - *w);
    return true;
}

int parse_hex_digit(char c)
{
    return isdigit((unsigned char)c) ? c - '0'
           : c >= 'a' && c <= 'f'    ? c - 'a' + 10
           : c >= 'A' && c <= 'F'    ? c - 'A' + 10
                                     : -1;
}

/* A string literal, into p->mem. */
bool parse_string(parser *p, const char **out)
{
    const char *start = p->p;
    char q = *p->p++;
    strbuf b = { 0 };
    bool ok = false;

    for (;;) {
        if (p->p >= p->e || *p->p == '\n') {
            parse_fail_at(p, start, ERR_syntax, "this string does not end on its line");
            goto done;
        }
        if (b.n > TEXT_MAX_STRING) {
            parse_fail_at(p, start, ERR_syntax, "this string is longer than %d bytes", TEXT_MAX_STRING);
            goto done;
        }
        char c = *p->p++;
        if (c == q)
            break;
        if (!c) {
            parse_fail_at(p, p->p - 1, ERR_syntax, "a string cannot hold a NUL byte");
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
        else if (c == 'x' && p->e - p->p >= 2 && parse_hex_digit(p->p[0]) >= 0 &&
                 parse_hex_digit(p->p[1]) >= 0 && (p->p[0] != '0' || p->p[1] != '0')) {
            strbuf_addc(&b, (char)(parse_hex_digit(p->p[0]) * 16 + parse_hex_digit(p->p[1])));
            p->p += 2;
        } else {
            parse_fail_at(p, p->p - 2 > p->s ? p->p - 2 : p->s, ERR_syntax, "unknown escape in a string");
            goto done;
        }
    }
    *out = arena_strndup(&p->mem, strbuf_str(&b), b.n);
    ok = true;
done:
    strbuf_free(&b);
    return ok;
}

bool parse_want_string(parser *p, const char *what, const char **out)
{
    parse_space(p);
    return p->p < p->e && (*p->p == '\'' || *p->p == '"') ? parse_string(p, out) : parse_expected(p, what);
}

/* a.b.c or 'anything' */
bool parse_name_or_string(parser *p, const char *what, const char **out)
{
    const char *w;
    size_t n;
    if (!parse_dotted(p, &w, &n))
        return parse_want_string(p, what, out);
    *out = arena_strndup(&p->mem, w, n);
    return true;
}

/* ---- numbers and symbolic integers ---- */
bool parse_digits_follow(const char *q, const char *e) { return q < e && isdigit((unsigned char)*q); }

static bool whole_below(parser *p, uint64_t limit, const char *why, int64_t *out)
{
    const char *start = p->p;
    bool neg = p->p < p->e && *p->p == '-';
    uint64_t v = 0;

    p->p += neg;
    if (!parse_digits_follow(p->p, p->e))
        return parse_expected(p, "a number");
    for (; parse_digits_follow(p->p, p->e); p->p++)
        if (v > limit / 10 || (v = v * 10 + (uint64_t)(*p->p - '0')) >= limit + neg)
            return parse_fail_at(p, start, ERR_value, "this integer is not %s", why);
    *out = (int64_t)(neg ? 0 - v : v);
    return !sym_is_expr(*out) ||
           parse_fail_at(p, start, ERR_value, "this integer is kept for symbols"); /* one in 2^16 */
}
bool parse_whole(parser *p, int64_t *out) { return whole_below(p, (uint64_t)SYM_LIMIT, "below 2**62", out); }
bool parse_number_whole(parser *p, int64_t *out)
{
    return whole_below(p, (uint64_t)1 << 63, "below 2**63", out);
}

/* The end of the expression that begins at s: a comma, closing bracket, quote, semicolon or comment outside
 * parentheses. */
const char *parse_expr_end(const parser *p, const char *s)
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

bool parse_expression(parser *p, symint *out)
{
    const char *start = p->p, *end = parse_expr_end(p, start);
    tp_err e = { 0 };
    int64_t col = 1;

    while (end > start && isspace((unsigned char)end[-1]))
        end--;
    if (!p->env)
        return parse_fail_at(p, start, ERR_syntax,
                             "a value was expected, not an expression (no symbol is declared)");
    if (!(p->raw ? sym_parse_raw : sym_parse)(p->env, start, (size_t)(end - start), out, &e)) {
        const char *msg = e.msg;
        if (!strncmp(msg, "column ", 7)) {
            col = strtol(msg + 7, (char **)&msg, 10);
            msg += *msg == ':' ? 2 : 0;
        }
        return parse_fail_at(p, MIN(start + MAX(col - 1, 0), p->e), e.kind == ERR_none ? ERR_syntax : e.kind,
                             "%s", msg);
    }
    p->p = end;
    return true;
}

/* A size: a plain number or an expression. */
bool parse_size_value(parser *p, symint *out)
{
    parse_space(p);
    const char *start = p->p, *q = p->p + (p->p < p->e && *p->p == '-');
    while (parse_digits_follow(q, p->e))
        q++;
    while (q < p->e && *q == ' ')
        q++;
    if (q > start && !(q < p->e && strchr("+-*/%", *q)) && parse_digits_follow(start + (*start == '-'), p->e))
        return parse_whole(p, out);
    if (start >= p->e || *start == ']' || *start == ',')
        return parse_expected(p, "a size");
    return parse_expression(p, out);
}
