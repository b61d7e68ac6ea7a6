/* kernel_cache.h - the kernels of a process: each is compiled once for a target, and equal kernels (vir_key) share their code.
 * Knows targets and kernels. May not know plans or programs. */
#ifndef TAPER_RUN_KERNEL_CACHE_H
#define TAPER_RUN_KERNEL_CACHE_H
#include "target/target.h"

/* The code of k[i] in out[i], borrowed from the cache, where it stays for the life of the process; those that are not there
 * yet are compiled in one call of the target. What it cannot compile runs on its fallback, and one line of the log says why;
 * without a fallback, and where the user interrupted: false with an error. why: NULL, or why it is this target and not the one
 * that was asked for. Thread-safe. k may go away afterwards. */
bool kernels_get(const target *t, const char *why, const vir *const *k, int n, const target_code **out,
                 tp_err *err);
/* The same without a fallback: false with an error. */
bool kernels_all(const target *t, const vir *const *k, int n, const target_code **out, tp_err *err);
/* The same, but code may be finished later, where compiling takes long: target.ready says whether it is. */
bool kernels_begin(const target *t, const vir *const *k, int n, const target_code **out, tp_err *err);
const target_code *kernel_get(const target *t, const vir *k, tp_err *err);
void kernels_say_interpreted(const char *why); /* one line of the log a process */
/* Code that another process saved. NULL with an error. */
const target_code *kernel_load(const target *t, const char *name, uint64_t hash, const void *p, size_t n,
                               tp_err *err);

typedef struct kernel_stats {
    int64_t kernels, hits, code_bytes;
    double compile_us;
} kernel_stats;
kernel_stats kernel_get_stats(void);
#endif
