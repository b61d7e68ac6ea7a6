#define _GNU_SOURCE
#include "base/strbuf.h"
#include <math.h>
#include <stdio.h>

void strbuf_grow(strbuf *b, size_t more)
{
    size_t need = b->n + more + 1;
    if (b->cap >= need)
        return;
    b->cap = MAX(need, b->cap ? b->cap * 2 : 64);
    b->s = mem_realloc(b->s, b->cap);
}

void strbuf_int(strbuf *b, int64_t v)
{
    if (v >= 0 && v < 10) { /* most numbers of a graph */
        strbuf_addc(b, (char)('0' + v));
        return;
    }
    char t[24], *end = t + sizeof t, *p = end;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do
        *--p = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0)
        *--p = '-';
    strbuf_addn(b, p, (size_t)(end - p));
}

/* ---- formatting ----
 * The conversions that nearly all formats consist of are written here: libc's printf takes a slow path for every call
 * once any loaded library has registered conversions of its own (libquadmath does), and printing is what traces and
 * logs spend their time on. Whatever else a format holds goes to libc, with the rest of the format. */
typedef struct args {
    va_list ap;
} args;
typedef struct spec {
    bool left, zero;
    int width, precision; /* precision -1: none */
    int longs;            /* l or z: 1, ll: 2 */
    char conv;
} spec;

static void add_libc(strbuf *b, const char *fmt, args *a)
{
    va_list again;
    va_copy(again, a->ap);
    strbuf_grow(b, 64);
    int n = vsnprintf(b->s + b->n, b->cap - b->n, fmt, a->ap);
    if (n >= 0 && (size_t)n >= b->cap - b->n) {
        strbuf_grow(b, (size_t)n);
        vsnprintf(b->s + b->n, b->cap - b->n, fmt, again);
    }
    va_end(again);
    if (n > 0)
        b->n += (size_t)n;
}

/* The conversion after a '%', or false: one for libc. Arguments are not touched when there is a '*' to give back. */
static bool read_spec(const char **fmt, spec *s)
{
    const char *p = *fmt;
    *s = (spec){ .precision = -1 };
    for (;; p++) {
        if (*p == '-')
            s->left = true;
        else if (*p == '0')
            s->zero = true;
        else
            break;
    }
    while (*p >= '0' && *p <= '9' && s->width < 10000)
        s->width = s->width * 10 + *p++ - '0';
    if (*p == '.') {
        s->precision = 0;
        if (p[1] == '*' && p[2] == 's') { /* %.*s */
            s->precision = -2;
            p += 2;
        } else
            for (p++; *p >= '0' && *p <= '9' && s->precision < 100000;)
                s->precision = s->precision * 10 + *p++ - '0';
    }
    for (; (*p == 'l' || *p == 'z') && s->longs < 2; p++)
        s->longs++;
    s->conv = *p;
    if (!*p || !strchr("sdiuxc%", *p) || (s->precision >= 0 && *p != 's') ||
        (s->longs && !strchr("diux", *p)))
        return false;
    *fmt = p + 1;
    return true;
}

static void add_padded(strbuf *b, const spec *s, const char *text, size_t n, bool zeros)
{
    size_t pad = (size_t)s->width > n ? (size_t)s->width - n : 0;
    strbuf_grow(b, n + pad);
    char *o = b->s + b->n;
    if (pad && !s->left) {
        size_t sign = zeros && n && *text == '-';
        memcpy(o, text, sign);
        memset(o + sign, zeros ? '0' : ' ', pad);
        memcpy(o + sign + pad, text + sign, n - sign);
    } else {
        memcpy(o, text, n);
        memset(o + n, ' ', pad);
    }
    b->n += n + pad;
    b->s[b->n] = 0;
}

static void add_number(strbuf *b, const spec *s, args *a)
{
    char t[24], *end = t + sizeof t, *p = end;
    bool is_signed = s->conv == 'd' || s->conv == 'i', negative = false;
    unsigned base = s->conv == 'x' ? 16 : 10;
    uint64_t v;
    if (is_signed) {
        int64_t x = s->longs ? va_arg(a->ap, long) : va_arg(a->ap, int);
        negative = x < 0;
        v = negative ? 0 - (uint64_t)x : (uint64_t)x;
    } else
        v = s->longs ? va_arg(a->ap, unsigned long) : va_arg(a->ap, unsigned);
    do
        *--p = "0123456789abcdef"[v % base];
    while (v /= base);
    if (negative)
        *--p = '-';
    add_padded(b, s, p, (size_t)(end - p), s->zero && !s->left);
}
_Static_assert(sizeof(long) == 8 && sizeof(long long) == 8 && sizeof(size_t) == 8,
               "l, ll and z are one size");

static void add_string(strbuf *b, const spec *s, args *a)
{
    int most = s->precision == -2 ? va_arg(a->ap, int) : s->precision;
    const char *text = va_arg(a->ap, const char *);
    text = text ? text : "(null)";
    add_padded(b, s, text, most < 0 ? strlen(text) : strnlen(text, (size_t)most), false);
}

void strbuf_addv(strbuf *b, const char *fmt, va_list ap)
{
    args a;
    va_copy(a.ap, ap);
    for (;;) {
        const char *from = fmt;
        while (*fmt && *fmt != '%')
            fmt++;
        strbuf_addn(b, from, (size_t)(fmt - from));
        if (!*fmt)
            break;
        spec s;
        const char *at = fmt++;
        if (*fmt == 's') { /* the two that nearly all formats are made of */
            const char *text = va_arg(a.ap, const char *);
            strbuf_add(b, text ? text : "(null)");
            fmt++;
            continue;
        }
        if (*fmt == 'd') {
            strbuf_int(b, va_arg(a.ap, int));
            fmt++;
            continue;
        }
        if (!read_spec(&fmt, &s)) {
            add_libc(b, at, &a);
            break;
        }
        if (s.conv == 's')
            add_string(b, &s, &a);
        else if (s.conv == 'c')
            add_padded(b, &s, (char[]){ (char)va_arg(a.ap, int) }, 1, false);
        else if (s.conv == '%')
            strbuf_addc(b, '%');
        else
            add_number(b, &s, &a);
    }
    va_end(a.ap);
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
    if (b->n - start >= width)
        return;
    size_t more = width - (b->n - start);
    strbuf_grow(b, more);
    memset(b->s + b->n, ' ', more);
    b->n += more;
    b->s[b->n] = 0;
}

void strbuf_pyrepr(strbuf *b, const char *s, size_t n)
{
    char q = memchr(s, '\'', n) && !memchr(s, '"', n) ? '"' : '\'';
    strbuf_addc(b, q);
    for (size_t i = 0; i < n; i++) {
        size_t from = i;
        while (i < n && (unsigned char)s[i] >= 32 && s[i] != 127 && s[i] != '\\' && s[i] != q)
            i++;
        strbuf_addn(b, s + from, i - from);
        if (i == n)
            break;
        unsigned char c = (unsigned char)s[i];
        if (c == '\n')
            strbuf_add(b, "\\n");
        else if (c == '\t')
            strbuf_add(b, "\\t");
        else if (c == '\r')
            strbuf_add(b, "\\r");
        else if (c == '\\' || c == (unsigned char)q)
            strbuf_addf(b, "\\%c", c);
        else
            strbuf_addf(b, "\\x%02x", c);
    }
    strbuf_addc(b, q);
}

static void shortest(char *t, size_t size, double v)
{
    /* 15 digits are exact both ways, but for the tiniest: if they give v back, they are the shortest with zeros behind */
    bool tiny = fabs(v) < 1e-300;
    int p = tiny ? 1 : 15;
    for (; p < 17; p++) {
        snprintf(t, size, "%.*e", p - 1, v);
        if (strtod(t, NULL) == v)
            break;
    }
    if (p == 15 && !tiny) {
        const char *digit = strchr(t, 'e') - 1;
        for (; p > 1 && *digit == '0'; digit--)
            p--;
    }
    snprintf(t, size, "%.*e", p - 1, v);
    int exp10 = atoi(strchr(t, 'e') + 1);
    if (exp10 >= -4 && exp10 < 16) {
        snprintf(t, size, "%.*f", MAX(p - 1 - exp10, 0), v);
        if (!strchr(t, '.'))
            strcat(t, ".0");
        return;
    }
    char *e = strchr(t, 'e');
    snprintf(e, size - (size_t)(e - t), "e%c%02d", exp10 < 0 ? '-' : '+', abs(exp10));
}

void strbuf_double(strbuf *b, double v)
{
    if (isnan(v)) {
        strbuf_add(b, "nan");
        return;
    }
    if (isinf(v)) {
        strbuf_add(b, v < 0 ? "-inf" : "inf");
        return;
    }
    /* m / 10^k with both exact: where that gives v back, its digits are the shortest (m has fewer than 16) */
    static const double ten[] = { 1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12 };
    double size = fabs(v);
    if (size < 1e15 && (size >= 1e-4 || (v == 0 && !signbit(v))))
        for (size_t k = 0; k < COUNT(ten) && size * ten[k] < 1e15; k++) {
            int64_t m = (int64_t)(size * ten[k] + 0.5);
            if ((double)m / ten[k] != size)
                continue;
            if (v < 0)
                strbuf_addc(b, '-');
            strbuf_int(b, m / (int64_t)ten[k]);
            strbuf_addc(b, '.');
            if (!k)
                strbuf_addc(b, '0');
            for (size_t d = k; d-- > 0;)
                strbuf_addc(b, (char)('0' + m / (int64_t)ten[d] % 10));
            return;
        }
    static _Thread_local struct { /* trying takes long, and what one graph repeats, others do, too */
        double of;
        char text[40];
    } last[4];
    uint64_t bits;
    memcpy(&bits, &v, sizeof v);
    size_t at = (bits ^ bits >> 32) * 0x9e3779b97f4a7c15u >> 62;
    if (last[at].of != v || !last[at].text[0]) {
        shortest(last[at].text, sizeof last[at].text, v);
        last[at].of = v;
    }
    strbuf_add(b, last[at].text);
}

void strbuf_adds(strbuf *b, const char *first, ...)
{
    va_list ap;
    va_start(ap, first);
    for (const char *s = first; s; s = va_arg(ap, const char *))
        strbuf_add(b, s);
    va_end(ap);
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
    strbuf_grow(b, 0);
    b->s[b->n] = 0;
    char *s = b->s;
    memset(b, 0, sizeof *b);
    return s;
}
