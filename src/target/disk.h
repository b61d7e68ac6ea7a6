/* disk.h - the cache on disk: entries by content, shared by processes, read as if somebody had planted them.
 * One private directory (TAPER_CACHE_DIR, else the user's cache directory); an entry is a file that appears whole, says
 * what it was made for and carries a checksum over all of it. Whatever goes wrong is a miss with a reason: nothing here
 * fails a compile. */
#ifndef TAPER_RUN_DISK_H
#define TAPER_RUN_DISK_H
#include "base/err.h"
#include "base/strbuf.h"

typedef struct disk_item {
    const char *kind; /* "graph", "backward", "library", "kernel", "tuning" */
    const char *id;   /* hex digest of what it is made from */
    const char *
        config; /* "name=value\n" lines: what it was made with and for; a difference is a miss that names it */
    const char *what; /* for people: "f at model.py:12" */
} disk_item;

enum { DISK_WHY = 240 };
/* The payload appended to out: true. False with the reason in why. */
bool disk_get(const disk_item *it, strbuf *out, char why[DISK_WHY]);
/* Something is wrong with the content after all: it goes away. */
void disk_refuse(const disk_item *it, const char *why);
/* Says why not once, on the first failure; then it is not tried again in this process. */
bool disk_put(const disk_item *it, const void *p, size_t n);
/* The same while the program goes on, before the process ends. Empties take. */
void disk_put_later(const disk_item *it, strbuf *take);
bool disk_on(char why[DISK_WHY]); /* is there a directory to use? Made on first use */
/* Lines every configuration begins with: version and build. Those of the target follow (target_key). */
void disk_config(strbuf *b);
int64_t disk_limit(void); /* bytes; the least recently used entries go beyond it */

/* --- for `taper cache` ---------------------------------------------------------------------------------------- */
typedef struct disk_entry {
    const char *file, *kind, *id, *what, *config;
    int64_t bytes, used; /* when it was used last, seconds since 1970 */
    const char *bad;     /* why it would be refused, or NULL */
} disk_entry;
char *disk_dir(tp_err *err); /* owned; NULL where there is none. Not made */
/* Every file there, newest first. deep: the checksum, too. False with err where the directory cannot be used. */
bool disk_each(bool deep, void (*fn)(void *data, const disk_entry *e), void *data, tp_err *err);
bool disk_clear(int *n, int64_t *bytes, tp_err *err);
#endif
