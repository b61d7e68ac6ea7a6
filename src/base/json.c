#define _GNU_SOURCE
#include "base/json.h"
#include "base/utf8.h"
#include "base/vec.h"
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

/* --- writing ------------------------------------------------------------------------------------------- */
/* Eight characters at once: none above '~', below ' ', '"' or '\\'. Classic arithmetic on bytes: a high bit stays where
 * one is. */
static bool plain8(const char *s)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t w, quote, slash;
    memcpy(&w, s, 8);
    quote = w ^ ones * '"';
    slash = w ^ ones * '\\';
    uint64_t low = (w - ones * 0x20) | (quote - ones) | (slash - ones);
    return !((low | w | (w + ones)) & high);
}

void json_quote(strbuf *out, const char *s, size_t n)
{
    static const bool plain[256] = { [' ' ... '!'] = true, ['#' ... '['] = true, [']' ... '~'] = true };
    size_t from = 0;

    strbuf_addc(out, '"');
    for (size_t i = 0; i < n;) {
        while (n - i >= 8 && plain8(s + i))
            i += 8;
        if (i == n)
            break;
        unsigned char c = (unsigned char)s[i];
        if (plain[c]) {
            i++;
            continue;
        }
        int len = c < 0x80 ? 1 : utf8_decode(s + i, n - i, NULL);
        if (len && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            i += (size_t)len;
            continue;
        }
        strbuf_addn(out, s + from, i - from);
        switch (c) {
        case '"': strbuf_add(out, "\\\""); break;
        case '\\': strbuf_add(out, "\\\\"); break;
        case '\n': strbuf_add(out, "\\n"); break;
        case '\r': strbuf_add(out, "\\r"); break;
        case '\t': strbuf_add(out, "\\t"); break;
        default: strbuf_addf(out, "\\u%04x", len ? c : 0xfffd);
        }
        from = ++i;
    }
    strbuf_addn(out, s + from, n - from);
    strbuf_addc(out, '"');
}

static bool in_array(const json_w *w)
{
    return w->depth && (w->is_arr[(w->depth - 1) / 64] >> ((w->depth - 1) % 64) & 1);
}

/* Before a value. In an object the comma came with the key. */
static void item(json_w *w)
{
    if (in_array(w) && w->comma)
        strbuf_add(w->out, ", ");
    w->comma = true;
}

static void enter(json_w *w, bool arr)
{
    item(w);
    assert(w->depth < JSON_W_DEPTH);
    uint64_t bit = (uint64_t)1 << (w->depth % 64), *word = &w->is_arr[w->depth / 64];
    *word = arr ? *word | bit : *word & ~bit;
    w->depth++;
    w->comma = false;
    strbuf_addc(w->out, arr ? '[' : '{');
}

void json_obj(json_w *w) { enter(w, false); }
void json_arr(json_w *w) { enter(w, true); }

void json_end(json_w *w)
{
    assert(w->depth > 0);
    strbuf_addc(w->out, in_array(w) ? ']' : '}');
    w->depth--;
    w->comma = true;
}

void json_key(json_w *w, const char *key)
{
    if (w->comma)
        strbuf_add(w->out, ", ");
    w->comma = true;
    json_quote(w->out, key, strlen(key));
    strbuf_add(w->out, ": ");
}

void json_strn(json_w *w, const char *s, size_t n)
{
    item(w);
    json_quote(w->out, s, n);
}

void json_str(json_w *w, const char *s)
{
    if (s)
        json_strn(w, s, strlen(s));
    else
        json_null(w);
}

void json_strf(json_w *w, const char *fmt, ...)
{
    strbuf b = { 0 };
    va_list ap;
    va_start(ap, fmt);
    strbuf_addv(&b, fmt, ap);
    va_end(ap);
    json_strn(w, strbuf_str(&b), b.n);
    strbuf_free(&b);
}

void json_raw(json_w *w, const char *json)
{
    item(w);
    strbuf_add(w->out, json);
}

void json_int(json_w *w, int64_t v)
{
    item(w);
    strbuf_int(w->out, v);
}

void json_dbl(json_w *w, double v)
{
    item(w);
    if (isfinite(v))
        strbuf_double(w->out, v);
    else
        strbuf_add(w->out, "null");
}

void json_bool(json_w *w, bool v) { json_raw(w, v ? "true" : "false"); }
void json_null(json_w *w) { json_raw(w, "null"); }

/* --- reading ------------------------------------------------------------------------------------------- */
typedef struct {
    arena *a;
    const char *text, *p, *end;
    tp_err *err;
    VEC(json_val) vals; /* stacks shared by all nested arrays and objects */
    VEC(json_member) members;
    strbuf str;
} reader;

static bool bad(reader *r, const char *at, const char *what)
{
    size_t line = 1;
    const char *bol = r->text;
    for (const char *q = r->text; q < at; q++)
        if (*q == '\n')
            line++, bol = q + 1;
    return err_set(r->err, ERR_syntax, "%zu:%zu: %s", line, utf8_count(bol, (size_t)(at - bol)) + 1, what);
}

static void space(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

static bool hex4(reader *r, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, r->p++) {
        char c = r->p < r->end ? *r->p : 0;
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return bad(r, r->p, "expected four hexadecimal digits after \\u");
        *out = *out << 4 | (uint32_t)d;
    }
    return true;
}

static bool unicode_escape(reader *r, const char *at)
{
    uint32_t c, low;
    char u[4];

    if (!hex4(r, &c))
        return false;
    if (c >= 0xd800 && c < 0xdc00) {
        if (r->end - r->p < 2 || r->p[0] != '\\' || r->p[1] != 'u')
            return bad(r, at, "high surrogate without its low half");
        r->p += 2;
        if (!hex4(r, &low))
            return false;
        if (low < 0xdc00 || low >= 0xe000)
            return bad(r, at, "high surrogate without its low half");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    int n = utf8_encode(c, u);
    if (!n)
        return bad(r, at, "low surrogate without its high half");
    strbuf_addn(&r->str, u, (size_t)n);
    return true;
}

static bool read_string(reader *r, const char **s, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *start = r->p++; /* the opening quote */

    strbuf_clear(&r->str);
    while (r->p < r->end && *r->p != '"') {
        const char *at = r->p;
        unsigned char c = (unsigned char)*at;
        if (c < 0x20)
            return bad(r, at, "control character in a string; write it as an escape");
        if (c != '\\') {
            int len = utf8_decode(at, (size_t)(r->end - at), NULL);
            if (!len)
                return bad(r, at, "malformed UTF-8");
            strbuf_addn(&r->str, at, (size_t)len);
            r->p += len;
            continue;
        }
        c = at + 1 < r->end ? (unsigned char)at[1] : 0;
        r->p += 2;
        const char *hit = c ? strchr(from, c) : NULL;
        if (c == 'u') {
            if (!unicode_escape(r, at))
                return false;
        } else if (hit)
            strbuf_addc(&r->str, to[hit - from]);
        else
            return bad(r, at, "unknown escape in a string");
    }
    if (r->p >= r->end)
        return bad(r, start, "string without closing quote");
    r->p++;
    *n = r->str.n;
    *s = arena_strndup(r->a, strbuf_str(&r->str), r->str.n);
    return true;
}

static locale_t c_locale;
static void make_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

static bool digits(reader *r)
{
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        r->p++;
    return r->p > from || bad(r, r->p, "expected a digit");
}

static bool read_number(reader *r, json_val *v)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *start = r->p;
    bool whole = true;

    r->p += *r->p == '-';
    if (r->p + 1 < r->end && *r->p == '0' && r->p[1] >= '0' && r->p[1] <= '9')
        return bad(r, start, "number with a leading zero");
    if (!digits(r))
        return false;
    if (r->p < r->end && *r->p == '.') {
        whole = false;
        r->p++;
        if (!digits(r))
            return false;
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        whole = false;
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-'))
            r->p++;
        if (!digits(r))
            return false;
    }
    if (whole) {
        bool neg = *start == '-';
        int64_t i = 0;
        for (const char *q = start + neg; q < r->p; q++) {
            int d = *q - '0';
            if (__builtin_mul_overflow(i, 10, &i) || __builtin_add_overflow(i, neg ? -d : d, &i))
                return bad(r, start, "whole number does not fit 64 bits");
        }
        v->type = JSON_int;
        v->i = i;
        return true;
    }
    pthread_once(&once, make_locale);
    strbuf_clear(&r->str); /* strtod needs an end */
    strbuf_addn(&r->str, start, (size_t)(r->p - start));
    v->type = JSON_dbl;
    v->d = strtod_l(r->str.s, NULL, c_locale);
    return isfinite(v->d) || bad(r, start, "number is too large");
}

static bool word(reader *r, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, w, n))
        return false;
    r->p += n;
    return true;
}

static bool read_value(reader *r, json_val *v, int depth);

/* After an element: true when another follows, false at the closing bracket or with *ok false. */
static bool more(reader *r, char close, const char *what, bool *ok)
{
    space(r);
    *ok = true;
    if (r->p < r->end && *r->p == ',') {
        r->p++;
        space(r);
        return true;
    }
    if (r->p < r->end && *r->p == close)
        r->p++;
    else
        *ok = bad(r, r->p, what);
    return false;
}

static bool read_array(reader *r, json_val *v, int depth)
{
    size_t base = r->vals.n;
    bool ok = true;

    r->p++;
    space(r);
    v->type = JSON_arr;
    if (r->p < r->end && *r->p == ']') {
        r->p++;
        return true;
    }
    do {
        json_val x = { 0 };
        if (!read_value(r, &x, depth + 1))
            return false;
        vec_push(&r->vals, x);
    } while (more(r, ']', "expected ',' or ']'", &ok));
    v->n = r->vals.n - base;
    v->at = arena_dup(r->a, r->vals.at + base, v->n * sizeof *v->at);
    r->vals.n = base;
    return ok;
}

static int by_key(const void *pa, const void *pb)
{
    const json_member *a = pa, *b = pb;
    int c = memcmp(a->key, b->key, MIN(a->n_key, b->n_key));
    return c ? c : (a->n_key > b->n_key) - (a->n_key < b->n_key);
}

static bool read_object(reader *r, json_val *v, int depth)
{
    size_t base = r->members.n;
    const char *start = r->p++;
    bool ok = true;

    space(r);
    v->type = JSON_obj;
    if (r->p < r->end && *r->p == '}') {
        r->p++;
        return true;
    }
    do {
        json_member m = { 0 };
        if (r->p >= r->end || *r->p != '"')
            return bad(r, r->p, "expected a key in double quotes");
        if (!read_string(r, &m.key, &m.n_key))
            return false;
        space(r);
        if (r->p >= r->end || *r->p != ':')
            return bad(r, r->p, "expected ':'");
        r->p++;
        if (!read_value(r, &m.val, depth + 1))
            return false;
        vec_push(&r->members, m);
    } while (more(r, '}', "expected ',' or '}'", &ok));
    if (!ok)
        return false;
    v->n = r->members.n - base;
    json_member *m = arena_dup(r->a, r->members.at + base, v->n * sizeof *m);
    qsort(m, v->n, sizeof *m, by_key);
    for (size_t i = 1; i < v->n; i++)
        if (!by_key(&m[i - 1], &m[i]))
            return bad(r, start, "two members of this object have the same key");
    v->members = m;
    r->members.n = base;
    return true;
}

static bool read_value(reader *r, json_val *v, int depth)
{
    space(r);
    if (depth > JSON_DEPTH)
        return bad(r, r->p, "nested too deeply");
    if (r->p >= r->end)
        return bad(r, r->p, "expected a value, found the end");
    switch (*r->p) {
    case '{': return read_object(r, v, depth);
    case '[': return read_array(r, v, depth);
    case '"': v->type = JSON_str; return read_string(r, &v->s, &v->n);
    case '-':
    case '0' ... '9': return read_number(r, v);
    }
    if (word(r, "null"))
        return true;
    v->type = JSON_bool;
    if ((v->b = word(r, "true")) || word(r, "false"))
        return true;
    return bad(r, r->p, "expected a value");
}

const json_val *json_parse(arena *a, const char *text, size_t n, tp_err *err)
{
    reader r = { .a = a, .text = text, .p = text, .end = text + n, .err = err };
    json_val *v = ARENA_NEW(a, json_val);
    bool ok = read_value(&r, v, 0);

    if (ok) {
        space(&r);
        ok = r.p == r.end || bad(&r, r.p, "expected the end after the value");
    }
    vec_free(&r.vals);
    vec_free(&r.members);
    strbuf_free(&r.str);
    return ok ? v : NULL;
}

const json_val *json_get(const json_val *obj, const char *key)
{
    if (!json_is(obj, JSON_obj) || !obj->n)
        return NULL;
    json_member want = { .key = key, .n_key = strlen(key) };
    const json_member *m = bsearch(&want, obj->members, obj->n, sizeof want, by_key);
    return m ? &m->val : NULL;
}

bool json_is(const json_val *v, json_type t) { return v && v->type == t; }
const char *json_cstr(const json_val *v)
{
    return json_is(v, JSON_str) && strlen(v->s) == v->n ? v->s : NULL;
}
int64_t json_i64(const json_val *v, int64_t def) { return json_is(v, JSON_int) ? v->i : def; }
double json_f64(const json_val *v, double def)
{
    return json_is(v, JSON_dbl) ? v->d : json_is(v, JSON_int) ? (double)v->i : def;
}

const char *json_type_name(const json_val *v)
{
    static const char *const names[] = { "null",   "boolean", "whole number", "number",
                                         "string", "array",   "object" };
    return v ? names[v->type] : "missing";
}
