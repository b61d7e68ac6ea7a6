/* strbuf.h - a growable string; always NUL-terminated once anything was added. */
#ifndef TAPER_STRBUF_H
#define TAPER_STRBUF_H
#include "base/base.h"
#include <stdarg.h>

typedef struct strbuf {
    char *s; /* may be NULL while empty: use strbuf_str */
    size_t n, cap;
} strbuf;

void strbuf_grow(strbuf *b, size_t more); /* room for so many bytes and the NUL */

/* Inline: texts are made of short pieces whose length is mostly known where they are written. */
static inline void strbuf_addn(strbuf *b, const char *s, size_t n)
{
    if (TP_UNLIKELY(b->cap - b->n <= n))
        strbuf_grow(b, n);
    if (n) /* s may be NULL then */
        memcpy(b->s + b->n, s, n);
    b->n += n;
    b->s[b->n] = 0;
}
/* "%d kernel%s", n, plural(n) */
static inline const char *plural(int64_t n) { return n == 1 ? "" : "s"; }
static inline void strbuf_add(strbuf *b, const char *s) { strbuf_addn(b, s, strlen(s)); }
static inline void strbuf_addc(strbuf *b, char c)
{
    if (TP_UNLIKELY(b->cap - b->n <= 1))
        strbuf_grow(b, 1);
    b->s[b->n++] = c;
    b->s[b->n] = 0;
}
void strbuf_int(strbuf *b, int64_t v); /* "%lld" without reading a format */
void strbuf_adds(strbuf *b, const char *first, ...) __attribute__((sentinel)); /* strings, then NULL */
void strbuf_addf(strbuf *b, const char *fmt, ...) TP_PRINTF(2, 3);
void strbuf_addv(strbuf *b, const char *fmt, va_list ap) TP_PRINTF(2, 0);
void strbuf_pad(strbuf *b, size_t column_start, size_t width); /* spaces until n - start == width */
void strbuf_pyrepr(strbuf *b, const char *s, size_t n);        /* Python string literal, single quoted */
void strbuf_double(strbuf *b, double v); /* shortest decimal that reads back equal: Python's repr */
void strbuf_clear(strbuf *b);
void strbuf_free(strbuf *b);
char *strbuf_take(strbuf *b); /* the caller frees; b is empty again */
static inline const char *strbuf_str(const strbuf *b) { return b->s ? b->s : ""; }
#endif
