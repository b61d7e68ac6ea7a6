/* base.h - what every file may assume: fixed-width types, small macros, export marks.
 * Knows libc only. */
#ifndef TAPER_BASE_H
#define TAPER_BASE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TP_API          __attribute__((visibility("default")))
#define TP_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define TP_UNUSED       __attribute__((unused))
#define TP_LIKELY(x)    __builtin_expect(!!(x), 1)
#define TP_UNLIKELY(x)  __builtin_expect(!!(x), 0)
#define COUNT(a)        (sizeof(a) / sizeof((a)[0]))
#define END(a)          ((a) + COUNT(a))
#define MIN(a, b)       ((a) < (b) ? (a) : (b))
#define MAX(a, b)       ((a) > (b) ? (a) : (b))

/* Small bookkeeping memory (never tensor storage): exhaustion is fatal, here and nowhere else. */
void *mem_alloc(size_t n);
void *mem_zalloc(size_t n);
void *mem_realloc(void *p, size_t n);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);

#endif
