/* arena.h - memory that dies together: one arena per compilation.
 * Allocation does not fail (exhaustion is fatal, see base.h). */
#ifndef TAPER_ARENA_H
#define TAPER_ARENA_H
#include "base/base.h"

typedef struct arena_block arena_block;
typedef struct arena {
    char *cur, *end;     /* private: free part of the newest block */
    arena_block *blocks; /* private */
    size_t used;         /* read-only: bytes handed out */
} arena;

void arena_init(arena *a); /* a zeroed arena is valid too */
/* The first n bytes come from mem, 16-byte aligned, which is the caller's. */
static inline void arena_init_in(arena *a, void *mem, size_t n)
{
    *a = (arena){ .cur = mem, .end = (char *)mem + n };
}
void arena_free(arena *a); /* frees everything; the arena may be used again */
void *arena_alloc_slow(arena *a, size_t n);
char *arena_strdup(arena *a, const char *s);
char *arena_strndup(arena *a, const char *s, size_t n);
char *arena_adds(arena *a, const char *first, ...) __attribute__((sentinel)); /* strings, then NULL */
char *arena_printf(arena *a, const char *fmt, ...) TP_PRINTF(2, 3);
void *arena_dup(arena *a, const void *p, size_t n); /* NULL when n is 0 */

/* 16-byte aligned, uninitialised. */
static inline void *arena_alloc(arena *a, size_t n)
{
    n = (n + 15) & ~(size_t)15;
    if (TP_LIKELY(n <= (size_t)(a->end - a->cur))) {
        void *p = a->cur;
        a->cur += n;
        a->used += n;
        return p;
    }
    return arena_alloc_slow(a, n);
}
static inline void *arena_zalloc(arena *a, size_t n) { return memset(arena_alloc(a, n), 0, n); }

#define ARENA_NEW(a, T)    ((T *)arena_zalloc((a), sizeof(T)))
#define ARENA_ARR(a, T, n) ((T *)arena_zalloc((a), sizeof(T) * (size_t)(n)))
#endif
