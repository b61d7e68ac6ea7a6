/* clock.h - monotonic and wall-clock time. */
#ifndef TAPER_CLOCK_H
#define TAPER_CLOCK_H
#include "base/base.h"
#include <time.h>

static inline int64_t clock_read(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline int64_t clock_ns(void) { return clock_read(CLOCK_MONOTONIC); }     /* for durations */
static inline int64_t clock_wall_ns(void) { return clock_read(CLOCK_REALTIME); } /* since 1970 */
#endif
