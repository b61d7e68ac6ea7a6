#include "base/strbuf.h"
#include <math.h>
#include <stdio.h>

static void grow(strbuf *b, size_t more)
{
    size_t need = b->n + more + 1;
    if (b->cap >= need)
        return;
    b->cap = MAX(need, b->cap ? b->cap * 2 : 64);
    b->s = mem_realloc(b->s, b->cap);
}

void strbuf_addn(strbuf *b, const char *s, size_t n)
{
    grow(b, n);
    memcpy(b->s + b->n, s, n);
    b->n += n;
    b->s[b->n] = 0;
}

void strbuf_add(strbuf *b, const char *s) { strbuf_addn(b, s, strlen(s)); }
void strbuf_addc(strbuf *b, char c) { strbuf_addn(b, &c, 1); }

void strbuf_addv(strbuf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    grow(b, 64);
    int n = vsnprintf(b->s + b->n, b->cap - b->n, fmt, ap);
    if (n >= 0 && (size_t)n >= b->cap - b->n) {
        grow(b, (size_t)n);
        vsnprintf(b->s + b->n, b->cap - b->n, fmt, again);
    }
    va_end(again);
    if (n > 0)
        b->n += (size_t)n;
}

void strbuf_addf(strbuf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    strbuf_addv(b, fmt, ap);
    va_end(ap);
}

void strbuf_pad(strbuf *b, size_t start, size_t width)
{
    while (b->n - start < width)
        strbuf_addc(b, ' ');
}

void strbuf_pyrepr(strbuf *b, const char *s, size_t n)
{
    char q = memchr(s, '\'', n) && !memchr(s, '"', n) ? '"' : '\'';
    strbuf_addc(b, q);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '\n')
            strbuf_add(b, "\\n");
        else if (c == '\t')
            strbuf_add(b, "\\t");
        else if (c == '\r')
            strbuf_add(b, "\\r");
        else if (c == '\\' || c == (unsigned char)q)
            strbuf_addf(b, "\\%c", c);
        else if (c < 32 || c == 127)
            strbuf_addf(b, "\\x%02x", c);
        else
            strbuf_addc(b, (char)c);
    }
    strbuf_addc(b, q);
}

void strbuf_double(strbuf *b, double v)
{
    char t[40];
    if (isnan(v)) {
        strbuf_add(b, "nan");
        return;
    }
    if (isinf(v)) {
        strbuf_add(b, v < 0 ? "-inf" : "inf");
        return;
    }
    int p = 1;
    for (; p < 17; p++) {
        snprintf(t, sizeof t, "%.*e", p - 1, v);
        if (strtod(t, NULL) == v)
            break;
    }
    snprintf(t, sizeof t, "%.*e", p - 1, v);
    int exp10 = atoi(strchr(t, 'e') + 1);
    if (exp10 >= -4 && exp10 < 16) {
        snprintf(t, sizeof t, "%.*f", MAX(p - 1 - exp10, 0), v);
        strbuf_add(b, t);
        if (!strchr(t, '.'))
            strbuf_add(b, ".0");
        return;
    }
    char *e = strchr(t, 'e');
    strbuf_addn(b, t, (size_t)(e - t));
    strbuf_addf(b, "e%c%02d", exp10 < 0 ? '-' : '+', abs(exp10));
}

void strbuf_clear(strbuf *b)
{
    b->n = 0;
    if (b->s)
        b->s[0] = 0;
}

void strbuf_free(strbuf *b)
{
    free(b->s);
    memset(b, 0, sizeof *b);
}

char *strbuf_take(strbuf *b)
{
    grow(b, 0);
    b->s[b->n] = 0;
    char *s = b->s;
    memset(b, 0, sizeof *b);
    return s;
}
