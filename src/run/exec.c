/* exec.c - executable memory, the kernel cache, and telling perf and unwinders about kernels. */
#define _GNU_SOURCE
#include "run/exec.h"
#include "base/map.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static map cache; /* key bytes + instruction set -> run_kernel; entries live as long as the process */
static exec_stats stats;
static int64_t limit = -1;

void exec_limit_for_test(int64_t bytes) { limit = bytes; }

exec_stats exec_get_stats(void)
{
    pthread_mutex_lock(&lock);
    exec_stats s = stats;
    pthread_mutex_unlock(&lock);
    return s;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

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
void *exec_publish(const gen_code *c, const char *name, tp_err *err)
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
    gen_x64_eh_frame(p + at, p, c->ncode);
    if (mprotect(p, size, PROT_READ | PROT_EXEC)) {
        err_set(err, ERR_memory, "memory cannot be made executable: %s", strerror(errno));
        munmap(p, size);
        return NULL;
    }
    register_unwind(p + at);
    perf_map(p, c->ncode, name);
    if (limit >= 0)
        limit -= (int64_t)size;
    return p;
}

/* --- the cache
 * ------------------------------------------------------------------------------------------------- */
static run_kernel *compile(const vir *k, gen_isa isa, tp_err *err)
{
    gen_code code = { 0 };
    double t0 = now_us();
    run_kernel *r = mem_zalloc(sizeof *r);
    if (isa != ISA_none) {
        if (!gen_x64(k, isa, &code, NULL, err))
            goto fail;
        *(void **)&r->fn = exec_publish(&code, k->name, err);
        if (!r->fn)
            goto fail;
    } else {
        r->k = vir_copy(k);
    }
    r->ncode = code.ncode;
    r->name = mem_strdup(k->name);
    gen_code_free(&code);
    r->compile_us = now_us() - t0;
    return r;
fail:
    gen_code_free(&code);
    free(r);
    return NULL;
}

const run_kernel *exec_kernel_isa(const vir *k, gen_isa isa, tp_err *err)
{
    strbuf key = { 0 };
    vir_key(k, &key);
    strbuf_addc(&key, (char)isa);
    pthread_mutex_lock(&lock);
    run_kernel *r = map_getn(&cache, key.s, key.n);
    if (r) {
        stats.hits++;
        r->cached = true;
    } else {
        r = compile(k, isa, err);
        if (r) {
            r->hash = hash_bytes(key.s, key.n, 0);
            map_putn(&cache, key.s, key.n, r);
            stats.kernels++;
            stats.code_bytes += (int64_t)r->ncode;
            stats.compile_us += r->compile_us;
        }
    }
    pthread_mutex_unlock(&lock);
    strbuf_free(&key);
    return r;
}

const run_kernel *exec_kernel(const vir *k, tp_err *err) { return exec_kernel_isa(k, gen_isa_host(), err); }
