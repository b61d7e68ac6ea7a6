#define _GNU_SOURCE
#include "events/tracefile.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, SLICE = 64 << 10 };

bool tracefile_open(tracefile *f, const char *path)
{
    *f = (tracefile){ .fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666) };
    if (f->fd < 0)
        return false;
    void *p = mmap(NULL, TRACEFILE_MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, f->fd, 0);
    f->map = p == MAP_FAILED ? NULL : p;
    return true;
}

void tracefile_hold(tracefile *f) { __atomic_fetch_add(&f->holds, 1, __ATOMIC_RELAXED); }
void tracefile_let_go(tracefile *f) { __atomic_fetch_sub(&f->holds, 1, __ATOMIC_RELEASE); }
static void settle(const tracefile *f)
{
    while (__atomic_load_n(&f->holds, __ATOMIC_ACQUIRE))
        sched_yield();
}

void tracefile_trim(tracefile *f)
{
    settle(f);
    if (f->fd >= 0 && f->room > f->used && ftruncate(f->fd, f->used) == 0)
        f->room = f->used;
}

void tracefile_close(tracefile *f, bool mine)
{
    if (f->fd < 0)
        return;
    if (mine)
        tracefile_trim(f);
    if (f->map || f->lost)
        munmap(f->map ? f->map : f->lost, TRACEFILE_MAPPED);
    close(f->fd);
    *f = (tracefile){ .fd = -1 };
}

/* Where somebody else has shortened the file, as is done to logs, it goes on from its end. */
static void follow(tracefile *f)
{
    struct stat st;
    if (!__atomic_load_n(&f->holds, __ATOMIC_ACQUIRE) && !fstat(f->fd, &st) && st.st_size < f->used) {
        f->used = st.st_size;
        f->room = 0;
        f->cut++;
    }
}

int64_t tracefile_take(tracefile *f, size_t n)
{
    while (f->used + (int64_t)n > __atomic_load_n(&f->room, __ATOMIC_ACQUIRE) &&
           __atomic_load_n(&f->growing, __ATOMIC_ACQUIRE))
        sched_yield();
    if (f->used + (int64_t)n > f->room)
        follow(f);
    tracefile_hold(f);
    f->used += (int64_t)n;
    return f->used - (int64_t)n;
}

static char *mapped(const tracefile *f, int64_t at, size_t n)
{
    char *map = __atomic_load_n(&f->map, __ATOMIC_RELAXED);
    return map && at + (int64_t)n <= __atomic_load_n(&f->room, __ATOMIC_ACQUIRE) ? map + at : NULL;
}

/* A full disk: the program is not to be told of it here. */
static bool put(int fd, const char *s, size_t n, int64_t at)
{
    while (n) {
        ssize_t k = pwrite(fd, s, n, at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        s += k, at += k, n -= (size_t)k;
    }
    return true;
}

void tracefile_fill(const tracefile *f, int64_t at, const char *s, size_t n)
{
    char *to = mapped(f, at, n);
    if (to)
        memcpy(to, s, n);
    else
        put(f->fd, s, n, at);
}

bool tracefile_read(const tracefile *f, int64_t at, char *to, size_t n)
{
    const char *from = mapped(f, at, n);
    if (!from)
        return pread(f->fd, to, n, at) == (ssize_t)n;
    memcpy(to, from, n);
    return true;
}

bool tracefile_more(tracefile *f, int64_t ahead, bool little)
{
    int64_t slice = little ? SLICE / 4 : SLICE, from = MAX(f->room, f->used),
            to = (from + slice) & ~(slice - 1);
    if (f->fd < 0 || !f->map || f->stuck || f->room - f->used >= ahead || to > TRACEFILE_MAPPED)
        return false;
    if (f->room < f->used) {
        settle(f); /* who writes behind the room has written */
        f->room = f->used;
    }
    f->growing = to;
    return true;
}

/* Pages are touched, so that copying does not fault: by adding nothing to them, atomically, as a record may be in the
 * first one already. */
void tracefile_grow(tracefile *f)
{
    static char lines[SLICE];
    int64_t from = f->room, to = f->growing;
    if (!*lines)
        memset(lines, '\n', sizeof lines);
    if (put(f->fd, lines, (size_t)(to - from), from)) {
        for (int64_t at = from & ~(int64_t)(PAGE - 1); at < to && f->map; at += PAGE)
            __atomic_fetch_or(f->map + at, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&f->room, to, __ATOMIC_RELEASE);
    } else {
        f->stuck = true;
    }
    __atomic_store_n(&f->growing, 0, __ATOMIC_RELEASE);
}

static bool within(const char *map, const char *p) { return map && p >= map && p < map + TRACEFILE_MAPPED; }

bool tracefile_mend(tracefile *f, const void *fault)
{
    char *map = f->map;
    if (!within(map, fault))
        return within(f->lost, fault); /* another thread is at it */
    f->lost = map;
    f->cut++;
    f->room = 0;
    __atomic_store_n(&f->map, NULL, __ATOMIC_RELEASE); /* from now on by writing */
    return mmap(map, TRACEFILE_MAPPED, PROT_READ | PROT_WRITE,
                MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}
