/* profile.h - times of what runs, while somebody asks for them: operators, compiled kernels, ranges with names; and memory.
 *   int64_t t = profile_start();  ...work...  if (t) profile_add(PROFILE_op, "relu", NULL, 0, t);
 * While nobody asks, a start costs one byte load. May be called by any thread. */
#ifndef TAPER_PROFILE_H
#define TAPER_PROFILE_H
#include "base/base.h"
#include "base/clock.h"

typedef enum { PROFILE_op, PROFILE_kernel, PROFILE_call, PROFILE_region, PROFILE_memory } profile_kind;
enum {
    PROFILES_times = 1,
    PROFILES_memory = 2,
    PROFILES_shapes = 4,
    PROFILES_watch = 8 /* none of these: ops_watch is shown the calls */
};                     /* what is asked for */
typedef struct profile_event {
    uint8_t kind;
    int thread;   /* small numbers, in the order of their first events */
    char *name;   /* owned by the list */
    char *file;   /* of the user's line, or NULL */
    char *shapes; /* of an operator's inputs, "[[2, 3], []]", or NULL: not asked for; owned */
    int line;
    int64_t from, to;     /* clock_ns */
    int64_t bytes, total; /* memory: taken (given back: below zero), and held after that */
} profile_event;
typedef struct profile_list {
    profile_event *at;
    size_t n, lost; /* lost: events beyond the limit */
} profile_list;

extern uint8_t profile_on; /* PROFILES_*; read it through the two functions below */
static inline int64_t profile_start(void)
{
    return TP_UNLIKELY(__atomic_load_n(&profile_on, __ATOMIC_RELAXED)) ? clock_ns() : 0;
}
static inline bool profile_wants(uint8_t what)
{
    return TP_UNLIKELY(__atomic_load_n(&profile_on, __ATOMIC_RELAXED) & what);
}
void profile_add(profile_kind kind, const char *name, const char *file, int line, int64_t from);
void profile_add_op(const char *name, char *shapes, int64_t from); /* takes shapes */
void profile_add_memory(int64_t bytes, int64_t total);
void profile_begin(uint8_t what);
void profile_watch(void);       /* ops_watch is set; for good */
profile_list profile_end(void); /* what happened since profile_begin; the caller frees it */
void profile_list_free(profile_list *l);
#endif
