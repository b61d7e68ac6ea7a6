/* exec.c - the kernel cache. */
#define _GNU_SOURCE
#include "run/exec.h"
#include "base/map.h"
#include "events/events.h"
#include "gen/provide.h"
#include "gen/publish.h"
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static map cache; /* key bytes + instruction set -> run_kernel; entries live as long as the process */
static map named; /* kernel name -> how many of that name were compiled, for the reason of a miss */
static exec_stats stats;

/* Eager programs call nothing of gen/ by name, so its kernels are offered when the library is loaded. */
__attribute__((constructor)) static void offer(void) { gen_provide(); }

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
        *(void **)&r->fn = gen_publish(&code, k->name, err);
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

/* Under the lock: why no kernel could be reused. */
static void log_miss(const vir *k, const run_kernel *r)
{
    uintptr_t before = (uintptr_t)map_get(&named, k->name);
    map_put(&named, k->name, (void *)(before + 1));
    if (!ev_log_on(EVC_cache, EV_INFO))
        return;
    if (before)
        ev_log(EVC_cache, EV_INFO, NULL,
               "kernel cache miss: %s (key %016llx): %zu kernels of this name exist, for other sizes, types "
               "or operations",
               k->name, (unsigned long long)r->hash, (size_t)before);
    else
        ev_log(EVC_cache, EV_INFO, NULL,
               "kernel cache miss: %s (key %016llx): no kernel like it was compiled before", k->name,
               (unsigned long long)r->hash);
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
        if (ev_log_on(EVC_cache, EV_INFO))
            ev_log(EVC_cache, EV_INFO, NULL, "kernel cache hit: %s runs the code of %s (key %016llx)",
                   k->name, r->name, (unsigned long long)r->hash);
    } else {
        r = compile(k, isa, err);
        if (r) {
            r->hash = hash_bytes(key.s, key.n, 0);
            map_putn(&cache, key.s, key.n, r);
            stats.kernels++;
            stats.code_bytes += (int64_t)r->ncode;
            stats.compile_us += r->compile_us;
            log_miss(k, r);
        }
    }
    pthread_mutex_unlock(&lock);
    strbuf_free(&key);
    return r;
}

const run_kernel *exec_kernel(const vir *k, tp_err *err)
{
    tp_err why = { 0 };
    gen_isa isa = gen_isa_host();
    run_kernel *r = (run_kernel *)exec_kernel_isa(k, isa, &why);
    if (r && isa != ISA_none)
        return r;
    if (!r && why.kind != ERR_memory && why.kind != ERR_notimpl) {
        if (err && !err_is_set(err))
            *err = why;
        return NULL;
    }
    if (!r)
        r = (run_kernel *)exec_kernel_isa(k, ISA_none, err);
    pthread_mutex_lock(&lock);
    if (r && !r->why[0])
        snprintf(r->why, sizeof r->why, "%.*s", (int)sizeof r->why - 1,
                 why.kind ? why.msg : "this machine has no AVX2 and FMA");
    pthread_mutex_unlock(&lock);
    return r;
}
