/* profile.h - times of what runs, while somebody asks for them: operators, compiled kernels, ranges with names.
 *   int64_t t = profile_start();  ...work...  if (t) profile_add(PROFILE_op, "relu", NULL, 0, t);
 * While nobody asks, a start costs one byte load. May be called by any thread. */
#ifndef TAPER_PROFILE_H
#define TAPER_PROFILE_H
#include "base/base.h"
#include "base/clock.h"

typedef enum { PROFILE_op, PROFILE_kernel, PROFILE_call, PROFILE_region } profile_kind;
typedef struct profile_event {
    uint8_t kind;
    int thread; /* small numbers, in the order of their first events */
    char *name; /* owned by the list */
    char *file; /* of the user's line, or NULL */
    int line;
    int64_t from, to; /* clock_ns */
} profile_event;
typedef struct profile_list {
    profile_event *at;
    size_t n, lost; /* lost: events beyond the limit */
} profile_list;

extern bool profile_on; /* read it through profile_start */
static inline int64_t profile_start(void)
{
    return TP_UNLIKELY(__atomic_load_n(&profile_on, __ATOMIC_RELAXED)) ? clock_ns() : 0;
}
void profile_add(profile_kind kind, const char *name, const char *file, int line, int64_t from);
void profile_begin(void);
profile_list profile_end(void); /* what happened since profile_begin; the caller frees it */
void profile_list_free(profile_list *l);
#endif
