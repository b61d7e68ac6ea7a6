#define _GNU_SOURCE /* dladdr */
#include "ops/blas.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#if TAPER_HAVE_BLAS
void openblas_set_num_threads(int n);
#define LINKED(name, args) \
    void name##_ args;     \
    void(*blas_##name) args = name##_;
BLAS_FUNCTIONS(LINKED, s, float)
BLAS_FUNCTIONS(LINKED, d, double)

static void one_thread(void) { openblas_set_num_threads(1); }
bool blas_ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, one_thread);
    return true;
}
#else
#define FOUND_LATER(name, args) void(*blas_##name) args;
BLAS_FUNCTIONS(FOUND_LATER, s, float)
BLAS_FUNCTIONS(FOUND_LATER, d, double)

static const struct {
    const char *name;
    void **to;
} functions[] = {
#define ROW(name, args)         { #name "_", (void **)&blas_##name },
    BLAS_FUNCTIONS(ROW, s, float) BLAS_FUNCTIONS(ROW, d, double)
};

/* All of them, or none. prefix: what a library puts before its names. */
static bool take(void *lib, const char *prefix)
{
    char name[64];
    void (*threads)(int);
    for (size_t i = 0; i < COUNT(functions); i++) {
        snprintf(name, sizeof name, "%s%s", prefix, functions[i].name);
        if (!(*functions[i].to = dlsym(lib, name)))
            return false;
    }
    snprintf(name, sizeof name, "%sopenblas_set_num_threads", prefix);
    *(void **)&threads = dlsym(lib, name);
    if (threads)
        threads(1);
    return true;
}

/* Beside this package: what `pip install scipy-openblas32` brings. */
static void *package_beside(void)
{
    Dl_info here;
    char path[4096];
    if (!dladdr((void *)functions, &here) || !here.dli_fname)
        return NULL;
    const char *end = strrchr(here.dli_fname, '/');
    if (!end || end - here.dli_fname > 3900)
        return NULL;
    snprintf(path, sizeof path, "%.*s/../scipy_openblas32/lib/libscipy_openblas.so",
             (int)(end - here.dli_fname), here.dli_fname);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static bool found;
static void find(void)
{
    static const char *const names[] = { "libopenblas.so.0", "libopenblas.so" };
    void *lib = NULL;
    for (size_t i = 0; !found && i < COUNT(names); i++)
        found = (lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL)) && take(lib, "");
    if (!found)
        found = (lib = package_beside()) && take(lib, "scipy_");
}
bool blas_ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    return found;
}
#endif
