/* mem.c - the one place where running out of bookkeeping memory ends the process. */
#include "base/base.h"
#include <stdio.h>

static void *checked(void *p, size_t n)
{
    if (TP_UNLIKELY(!p && n)) {
        fprintf(stderr, "taper: out of memory (%zu bytes of bookkeeping)\n", n);
        abort();
    }
    return p;
}

void *mem_alloc(size_t n) { return checked(malloc(n ? n : 1), n); }
void *mem_zalloc(size_t n) { return checked(calloc(1, n ? n : 1), n); }
void *mem_realloc(void *p, size_t n) { return checked(realloc(p, n ? n : 1), n); }

char *mem_strndup(const char *s, size_t n)
{
    char *p = mem_alloc(n + 1);
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *mem_strdup(const char *s) { return mem_strndup(s, strlen(s)); }
