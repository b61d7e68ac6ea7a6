/* tracefile.h - the file of a trace, private to src/events/. What was put is the kernel's: a killed process loses none of
 * it. Behind the end there may be room, filled with empty lines, into which a record is copied without asking the kernel;
 * readers skip such lines, and they are cut off at the end. Where there is no room, or the file system cannot map files,
 * records are written. All of it under ev_lock but where it says otherwise. */
#ifndef TAPER_TRACEFILE_H
#define TAPER_TRACEFILE_H
#include "base/base.h"

typedef struct tracefile {
    int fd;       /* -1: none */
    char *map;    /* of the file from its start, TRACEFILE_MAPPED bytes; NULL: cannot be mapped */
    char *lost;   /* atomic; what was the map until somebody else shortened the file */
    int64_t used; /* bytes that are taken */
    int64_t room; /* atomic; bytes that can be reached through map; <= used: none ahead */
    int64_t
        growing; /* atomic; not 0: the room grows to here, and nobody but tracefile_grow writes behind it */
    int cut;     /* atomic; how often somebody else has shortened the file: places of before mean nothing */
    bool stuck;  /* no more room is to be had */
    int holds;   /* atomic; threads that need the file as it is just now, without the lock */
} tracefile;
enum { TRACEFILE_MAPPED = 256 << 20, TRACEFILE_AHEAD = 1 << 20 };

bool tracefile_open(tracefile *f, const char *path); /* a new file; false with errno set */
void tracefile_close(tracefile *f, bool mine); /* a forked child (mine: false) leaves the file as it is */
/* Takes n bytes, and gives back their place: whoever took them fills them by tracefile_fill and calls tracefile_let_go,
 * both not under the lock, so that a small record does not wait for a large one of another thread. */
int64_t tracefile_take(tracefile *f, size_t n);
void tracefile_fill(const tracefile *f, int64_t at, const char *s, size_t n);
/* Between hold and let_go nothing is cut off or closed: what was put can be read, and changed by tracefile_fill. Who
 * holds does not wait for the lock: others wait under it until nobody holds. Only the hold is under the lock. */
void tracefile_hold(tracefile *f);
bool tracefile_read(const tracefile *f, int64_t at, char *to, size_t n);
void tracefile_let_go(tracefile *f);
/* Is there less room than that? Then the same thread calls tracefile_grow, held, which adds a slice, or a little one. */
bool tracefile_more(tracefile *f, int64_t ahead, bool little);
void tracefile_grow(tracefile *f);
void tracefile_trim(tracefile *f); /* what is ahead is cut off */
/* In a signal handler: was it a page of the file that is not there any more, as somebody else has shortened it? Then the
 * program goes on, and that record is lost. */
bool tracefile_mend(tracefile *f, const void *fault);
#endif
