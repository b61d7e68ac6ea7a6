/* crumb.h - what the process is doing, kept in a file that outlives it: TAPER_CRUMBS=FILE. After a crash or a hang somebody
 * else reads there which stage, and which pass, kernel or call of it, was the last. Off, a crumb costs one branch. */
#ifndef TAPER_CRUMB_H
#define TAPER_CRUMB_H
#include "base/base.h"

typedef struct crumb {
    uint64_t n;     /* how many were dropped: it stands still while nothing goes on */
    char stage[40]; /* "graph pass", "kernel", ...; empty: none yet */
    char what[120]; /* its name */
} crumb;

extern int crumb_state; /* private: -1 not asked yet, 0 off, 1 on */
void crumb_put(const char *stage, const char *what);
static inline void crumb_drop(const char *stage, const char *what)
{
    if (TP_UNLIKELY(crumb_state))
        crumb_put(stage, what);
}
bool crumb_read(const char *path, crumb *out); /* false: there is none */
#endif
