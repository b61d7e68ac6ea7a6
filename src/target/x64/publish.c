/* publish.c - executable memory, and telling perf and unwinders about the code in it. */
#define _GNU_SOURCE
#include "target/x64/publish.h"
#include "target/x64/debug.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int64_t limit = -1;
void gen_publish_limit(int64_t bytes) { limit = bytes; }

/* --- announcing
 * ------------------------------------------------------------------------------------------------ */
static void perf_map(const void *code, size_t n, const char *name)
{
    static FILE *f;
    static bool tried;
    const char *env = getenv("TAPER_PERF_MAP");
    if (!env || strcmp(env, "1"))
        return;
    if (!tried) {
        char path[64];
        tried = true;
        snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
        f = fopen(path, "we");
    }
    if (f) {
        fprintf(f, "%lx %zx taper:%s\n", (unsigned long)(uintptr_t)code, n, name);
        fflush(f);
    }
}

/* libgcc keeps a list of unwind tables made at run time; the symbol is absent in static programs without it.
 */
static void register_unwind(uint8_t *eh)
{
    static void (*fn)(void *);
    static bool tried;
    if (!tried) {
        tried = true;
        *(void **)&fn = dlsym(RTLD_DEFAULT, "__register_frame");
        if (!fn) {
            void *gcc = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
            if (gcc)
                *(void **)&fn = dlsym(gcc, "__register_frame");
        }
    }
    if (fn)
        fn(eh);
}

/* --- memory
 * ---------------------------------------------------------------------------------------------------- */
/* Small kernels share slabs: memory mapped twice, to write at one address and to run at the other, so that a kernel costs
 * neither a page nor a change of protection (for which every processor that runs a thread of ours has to be stopped). The
 * pages stay those of the process that made them, so a forked child goes on in a slab of its own. */
enum { SLAB = 1 << 18, PIECE = 64 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint8_t *write, *run; /* NULL: none yet */
    size_t used;
    bool refused;
} slab;

static void fork_lock(void) { pthread_mutex_lock(&lock); }
static void fork_unlock(void) { pthread_mutex_unlock(&lock); }
static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
    slab.write = slab.run = NULL;
}
static void at_fork(void) { pthread_atfork(fork_lock, fork_unlock, fork_child); }

/* Under the lock. False: the system does not give memory in this way. */
static bool slab_new(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, at_fork);
    int fd = memfd_create("taper-kernels", MFD_CLOEXEC);
    void *w = MAP_FAILED, *x = MAP_FAILED;
    if (fd >= 0 && !ftruncate(fd, SLAB)) {
        w = mmap(NULL, SLAB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        x = mmap(NULL, SLAB, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    }
    if (fd >= 0)
        close(fd);
    slab.refused = w == MAP_FAILED || x == MAP_FAILED;
    if (slab.refused && w != MAP_FAILED)
        munmap(w, SLAB);
    if (slab.refused && x != MAP_FAILED)
        munmap(x, SLAB);
    slab.write = slab.refused ? NULL : w;
    slab.run = slab.refused ? NULL : x;
    slab.used = 0;
    return !slab.refused;
}

/* Code, constants, then the unwind table. at: where the code will run. */
static void fill(uint8_t *p, uint8_t *at, const gen_code *c, size_t eh)
{
    memcpy(p, c->bytes, c->n);
    gen_x64_eh_frame(p + eh, at, c->ncode, c->leaf);
}

/* Under the lock. NULL: not in a slab. */
static uint8_t *place_small(const gen_code *c, size_t eh, size_t size)
{
    size = (size + PIECE - 1) & ~(size_t)(PIECE - 1);
    if (size > SLAB / 4 || slab.refused)
        return NULL;
    if ((!slab.run || slab.used + size > SLAB) && !slab_new())
        return NULL;
    uint8_t *run = slab.run + slab.used;
    fill(slab.write + slab.used, run, c, eh);
    slab.used += size;
    return run;
}

static uint8_t *place_alone(const gen_code *c, size_t eh, size_t size, const char *name, tp_err *err)
{
    size = (size + 4095) & ~(size_t)4095;
    uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_set(err, ERR_memory, "out of executable memory (%zu bytes for kernel '%s'): %s", size,
                       name, strerror(errno)),
               NULL;
    fill(p, p, c, eh);
    if (mprotect(p, size, PROT_READ | PROT_EXEC)) {
        err_set(err, ERR_memory, "memory cannot be made executable: %s", strerror(errno));
        munmap(p, size);
        return NULL;
    }
    return p;
}

void *gen_publish(const gen_code *c, const char *name, tp_err *err)
{
    size_t eh = (c->n + PIECE - 1) & ~(size_t)(PIECE - 1), size = eh + 256;
    if (limit >= 0 && (int64_t)size > limit)
        return err_set(err, ERR_memory, "out of executable memory (%zu bytes for kernel '%s')", size, name),
               NULL;
    pthread_mutex_lock(&lock);
    uint8_t *p = place_small(c, eh, size);
    if (!p)
        p = place_alone(c, eh, size, name, err);
    if (p) {
        register_unwind(p + eh);
        perf_map(p, c->ncode, name);
        gen_jit_announce(p, c->ncode, name);
    }
    if (p && limit >= 0)
        limit -= (int64_t)size;
    pthread_mutex_unlock(&lock);
    return p;
}
