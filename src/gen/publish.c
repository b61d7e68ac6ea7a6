/* publish.c - executable memory, and telling perf and unwinders about the code in it. */
#define _GNU_SOURCE
#include "gen/publish.h"
#include "gen/jitelf.h"
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
/* Code, constants, then the unwind table, in pages of their own. */
void *gen_publish(const gen_code *c, const char *name, tp_err *err)
{
    size_t page = 4096, at = (c->n + 63) & ~(size_t)63, size = (at + 256 + page - 1) & ~(page - 1);
    if (limit >= 0 && (int64_t)size > limit)
        return err_set(err, ERR_memory, "out of executable memory (%zu bytes for kernel '%s')", size, name),
               NULL;
    uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_set(err, ERR_memory, "out of executable memory (%zu bytes for kernel '%s'): %s", size,
                       name, strerror(errno)),
               NULL;
    memcpy(p, c->bytes, c->n);
    gen_x64_eh_frame(p + at, p, c->ncode, c->leaf);
    if (mprotect(p, size, PROT_READ | PROT_EXEC)) {
        err_set(err, ERR_memory, "memory cannot be made executable: %s", strerror(errno));
        munmap(p, size);
        return NULL;
    }
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    register_unwind(p + at);
    perf_map(p, c->ncode, name);
    gen_jit_announce(p, c->ncode, name);
    if (limit >= 0)
        limit -= (int64_t)size;
    pthread_mutex_unlock(&lock);
    return p;
}
