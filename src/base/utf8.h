/* utf8.h - UTF-8 as text from outside: checked, never trusted. */
#ifndef TAPER_UTF8_H
#define TAPER_UTF8_H
#include "base/base.h"

/* Length in bytes (1..4) of the well-formed character at s, or 0: overlong, surrogate, beyond U+10FFFF, cut.
 */
int utf8_decode(const char *s, size_t n, uint32_t *cp);
int utf8_encode(uint32_t cp, char out[4]);  /* bytes written; 0 for a surrogate or beyond U+10FFFF */
size_t utf8_bad(const char *s, size_t n);   /* offset of the first malformed byte, or n */
size_t utf8_count(const char *s, size_t n); /* characters; a malformed byte counts as one */
#endif
