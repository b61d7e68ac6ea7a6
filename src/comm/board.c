/* board.c - files in shared memory, processes as /proc shows them, sleeping on a word of shared memory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "comm/board.h"
#include "base/clock.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void futex_wait(_Atomic uint32_t *p, uint32_t seen, int64_t ns)
{
    struct timespec t = { ns / 1000000000, ns % 1000000000 };
    syscall(SYS_futex, p, FUTEX_WAIT, seen, &t, NULL, 0);
}
void futex_wake(_Atomic uint32_t *p) { syscall(SYS_futex, p, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }

static bool stat_of(int pid, char *state, uint64_t *born)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = 0;
    char *p = strrchr(text, ')'); /* the name before it may hold anything */
    unsigned long long start = 0;
    if (!p ||
        sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               state, &start) != 2)
        return false;
    *born = start ? start : 1;
    return true;
}
uint64_t process_born(int pid)
{
    char state;
    uint64_t born;
    return stat_of(pid, &state, &born) && state != 'Z' && state != 'X' ? born : 0;
}
char process_state(int pid)
{
    char state;
    uint64_t born;
    return stat_of(pid, &state, &born) ? state : 0;
}

char rank_life(const board_rank *r)
{
    int pid = atomic_load(&r->pid);
    if (atomic_load(&r->remote))
        return (char)atomic_load(&r->life);
    if (process_born(pid) != atomic_load(&r->born))
        return 'X';
    return process_state(pid) == 'T' ? 'T' : 'R';
}

enum { MAGIC = 0x74617065 };

bool shared_name(strbuf *path, const char *name)
{
    strbuf_addf(path, "%s/taper-%u-%s", file_is_dir("/dev/shm") ? "/dev/shm" : "/tmp", (unsigned)getuid(),
                name);
    return true;
}
void shared_unlink(const char *name)
{
    strbuf path = { 0 };
    shared_name(&path, name);
    unlink(path.s);
    strbuf_free(&path);
}

static void *map_fd(int fd, size_t nbytes, tp_err *err)
{
    void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED)
        return p;
    err_set(err, ERR_os, "cannot map %zu bytes of shared memory: %s", nbytes, strerror(errno));
    return NULL;
}

/* Made under another name and moved, so that the others see it whole; one left by a job that died is replaced. */
static void *make(const char *path, size_t nbytes, void (*head)(void *, shared_head *), tp_err *err)
{
    strbuf own = { 0 };
    void *p = NULL;
    shared_head h;
    strbuf_addf(&own, "%s.%d", path, (int)getpid());
    unlink(own.s);
    int fd = open(own.s, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)nbytes)) {
        err_set(err, ERR_os, "cannot make shared memory '%s': %s", own.s, strerror(errno));
        goto done;
    }
    p = map_fd(fd, nbytes, err);
    if (!p)
        goto done;
    head(p, &h);
    atomic_store(h.maker, (int)getpid());
    atomic_store(h.maker_born, process_born(getpid()));
    atomic_store(h.ready, MAGIC);
    if (rename(own.s, path)) {
        err_set(err, ERR_os, "cannot make shared memory '%s': %s", path, strerror(errno));
        munmap(p, nbytes);
        p = NULL;
    }
done:
    if (fd >= 0)
        close(fd);
    if (!p)
        unlink(own.s);
    strbuf_free(&own);
    return p;
}

/* One that a living process made; NULL: not there yet, or what a dead job left. */
static void *join(const char *path, size_t nbytes, void (*head)(void *, shared_head *), tp_err *err)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    void *p = NULL;
    shared_head h;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && st.st_uid == getuid() && (size_t)st.st_size == nbytes &&
        (p = map_fd(fd, nbytes, err))) {
        head(p, &h);
        if (atomic_load(h.ready) != MAGIC ||
            process_born(atomic_load(h.maker)) != atomic_load(h.maker_born)) {
            munmap(p, nbytes);
            p = NULL;
        }
    }
    close(fd);
    return p;
}

void *shared_map(const char *name, size_t nbytes, bool maker, int64_t deadline,
                 void (*head)(void *, shared_head *), tp_err *err)
{
    strbuf path = { 0 };
    shared_name(&path, name);
    void *p = maker ? make(path.s, nbytes, head, err) : NULL;
    if (!maker)
        for (int64_t nap = 200000; !(p = join(path.s, nbytes, head, err)) && !err->kind;
             nap = MIN(nap * 2, 20000000)) {
            if (clock_ns() > deadline) {
                err_set(err, ERR_runtime, "nobody made '%s' in time", path.s);
                break;
            }
            nanosleep(&(struct timespec){ 0, nap }, NULL);
        }
    strbuf_free(&path);
    return p;
}
