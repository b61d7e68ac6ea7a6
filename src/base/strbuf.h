/* strbuf.h - a growable string; always NUL-terminated once anything was added. */
#ifndef TAPER_STRBUF_H
#define TAPER_STRBUF_H
#include "base/base.h"
#include <stdarg.h>

typedef struct strbuf {
    char *s; /* may be NULL while empty: use strbuf_str */
    size_t n, cap;
} strbuf;

void strbuf_add(strbuf *b, const char *s);
void strbuf_addn(strbuf *b, const char *s, size_t n);
void strbuf_addc(strbuf *b, char c);
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
