#include "base/arena.h"
#include "base/bytes.h"
#include "base/strbuf.h"
#include <stdarg.h>
#include <stdio.h>

struct arena_block {
    arena_block *next;
    size_t size;
    bool shared; /* with tensors: cut from memory that others have touched before */
};

enum { FIRST_BLOCK = 4096, SHARED_BLOCK = 64 << 10, MAX_BLOCK = 1 << 20 };

void arena_init(arena *a) { memset(a, 0, sizeof *a); }

void arena_free(arena *a)
{
    for (arena_block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        if (b->shared)
            bytes_free(b, (int64_t)b->size);
        else
            free(b);
    }
    arena_init(a);
}

void *arena_alloc_slow(arena *a, size_t n)
{
    size_t size = a->blocks ? MIN(a->blocks->size * 2, (size_t)MAX_BLOCK) : FIRST_BLOCK;
    size_t head = (sizeof(arena_block) + 15) & ~(size_t)15;

    if (size < n + head)
        size = n + head;
    arena_block *b = size >= SHARED_BLOCK && size <= INT64_MAX ? bytes_new((int64_t)size) : NULL;
    bool shared = b != NULL;
    if (!b)
        b = mem_alloc(size);
    b->shared = shared;
    b->size = size;
    b->next = a->blocks;
    a->blocks = b;
    a->cur = (char *)b + head + n;
    a->end = (char *)b + size;
    a->used += n;
    return (char *)b + head;
}

char *arena_strndup(arena *a, const char *s, size_t n)
{
    char *p = arena_alloc(a, n + 1);
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *arena_strdup(arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

void *arena_dup(arena *a, const void *p, size_t n) { return n ? memcpy(arena_alloc(a, n), p, n) : NULL; }

char *arena_printf(arena *a, const char *fmt, ...)
{
    strbuf b = { 0 };
    va_list ap;
    va_start(ap, fmt);
    strbuf_addv(&b, fmt, ap);
    va_end(ap);
    char *p = arena_strndup(a, strbuf_str(&b), b.n);
    strbuf_free(&b);
    return p;
}

char *arena_adds(arena *a, const char *first, ...)
{
    va_list ap;
    size_t n = 0;
    va_start(ap, first);
    for (const char *s = first; s; s = va_arg(ap, const char *))
        n += strlen(s);
    va_end(ap);
    char *p = arena_alloc(a, n + 1), *to = p;
    va_start(ap, first);
    for (const char *s = first; s; s = va_arg(ap, const char *))
        to = stpcpy(to, s);
    va_end(ap);
    *to = 0;
    return p;
}
