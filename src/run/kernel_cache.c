/* kernel_cache.c - the kernel cache. */
#define _GNU_SOURCE
#include "run/kernel_cache.h"
#include "base/map.h"
#include "base/vec.h"
#include "events/events.h"
#include "target/x64/provide.h"
#include "target/x64/publish.h"
#include "target/c/build.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static map cache; /* key bytes + instruction set -> run_kernel; entries live as long as the process */
static map named; /* kernel name -> how many of that name were compiled, for the reason of a miss */
static exec_stats stats;

/* Eager programs call nothing of target/ by name, so its kernels are offered when the library is loaded. */
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
        r->emitter = EMITTER_x64;
        r->nbytes = code.n;
        r->leaf = code.leaf;
    } else {
        r->k = vir_copy(k);
        r->emitter = EMITTER_interpreter;
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
        ev_log(
            EVC_cache, EV_INFO, NULL,
            "kernel cache miss: %s (key %016llx): %zu kernel%s of this name exist%s, for other sizes, types "
            "or operations",
            k->name, (unsigned long long)r->hash, (size_t)before, plural((int64_t)before),
            before == 1 ? "s" : "");
    else
        ev_log(EVC_cache, EV_INFO, NULL,
               "kernel cache miss: %s (key %016llx): no kernel like it was compiled before", k->name,
               (unsigned long long)r->hash);
}

enum { TAG_c = 'c' }; /* beside the instruction sets, as the last byte of a key */

static void key_of(const vir *k, char tag, strbuf *key)
{
    strbuf_clear(key);
    vir_key(k, key);
    strbuf_addc(key, tag);
}

/* Under the lock. */
static run_kernel *find(const vir *k, const strbuf *key)
{
    run_kernel *r = map_getn(&cache, key->s, key->n);
    if (!r)
        return NULL;
    stats.hits++;
    r->cached = true;
    if (ev_log_on(EVC_cache, EV_INFO))
        ev_log(EVC_cache, EV_INFO, NULL, "kernel cache hit: %s runs the code of %s (key %016llx)", k->name,
               r->name, (unsigned long long)r->hash);
    return r;
}

static void keep(const vir *k, run_kernel *r, const strbuf *key)
{
    r->hash = hash_bytes(key->s, key->n, 0);
    map_putn(&cache, key->s, key->n, r);
    stats.kernels++;
    stats.code_bytes += (int64_t)r->ncode;
    stats.compile_us += r->compile_us;
    log_miss(k, r);
}

const run_kernel *exec_kernel_isa(const vir *k, gen_isa isa, tp_err *err)
{
    strbuf key = { 0 };
    key_of(k, (char)isa, &key);
    pthread_mutex_lock(&lock);
    run_kernel *r = find(k, &key);
    if (!r && (r = compile(k, isa, err)))
        keep(k, r, &key);
    pthread_mutex_unlock(&lock);
    strbuf_free(&key);
    return r;
}

/* Interpreted, because. */
static const run_kernel *interpreted(const vir *k, const char *why, tp_err *err)
{
    run_kernel *r = (run_kernel *)exec_kernel_isa(k, ISA_none, err);
    pthread_mutex_lock(&lock);
    if (r && !r->why[0])
        snprintf(r->why, sizeof r->why, "%.*s", (int)sizeof r->why - 1, why);
    pthread_mutex_unlock(&lock);
    return r;
}

static const run_kernel *emitted(const vir *k, gen_isa isa, tp_err *err)
{
    tp_err why = { 0 };
    run_kernel *r = (run_kernel *)exec_kernel_isa(k, isa, &why);
    if (r)
        return r;
    if (why.kind != ERR_memory && why.kind != ERR_notimpl) {
        if (err && !err_is_set(err))
            *err = why;
        return NULL;
    }
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        ev_log(EVC_inductor, EV_WARNING, NULL, "kernels are interpreted, which is slow: %s", why.msg);
    return interpreted(k, why.msg, err);
}

const run_kernel *exec_kernel(const vir *k, tp_err *err)
{
    gen_isa isa = gen_isa_host();
    return isa == ISA_none ? interpreted(k, "this machine has no AVX2 and FMA", err) : emitted(k, isa, err);
}

const run_kernel *exec_adopt(const gen_code *c, const char *name, uint64_t hash, tp_err *err)
{
    static map adopted; /* code -> run_kernel */
    pthread_mutex_lock(&lock);
    run_kernel *r = map_getn(&adopted, c->bytes, c->n);
    if (!r) {
        void *fn = gen_publish(c, name, err);
        if (fn) {
            r = mem_zalloc(sizeof *r);
            *r = (run_kernel){ .emitter = EMITTER_x64,
                               .name = mem_strdup(name),
                               .ncode = c->ncode,
                               .nbytes = c->n,
                               .leaf = c->leaf,
                               .hash = hash,
                               .cached = true };
            *(void **)&r->fn = fn;
            map_putn(&adopted, c->bytes, c->n, r);
        }
    }
    stats.hits += r != NULL;
    pthread_mutex_unlock(&lock);
    return r;
}

/* --- C
 * ------------------------------------------------------------------------------------------------------------- */
bool exec_build_c(const vir *const *k, int n, tp_err *why)
{
    strbuf key = { 0 };
    VEC(const vir *) missing = { 0 };
    map seen = { 0 };
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++) {
        key_of(k[i], TAG_c, &key);
        if (!map_getn(&cache, key.s, key.n) && !map_getn(&seen, key.s, key.n)) {
            map_putn(&seen, key.s, key.n, (void *)1);
            vec_push(&missing, k[i]);
        }
    }
    pthread_mutex_unlock(&lock);
    vir_fn *fn = mem_zalloc(sizeof *fn * MAX(missing.n, (size_t)1));
    double t0 = now_us();
    bool ok = !missing.n || cbuild_kernels(missing.at, (int)missing.n, fn, why);
    double us = (now_us() - t0) / (double)MAX(missing.n, (size_t)1);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; ok && i < missing.n; i++) {
        key_of(missing.at[i], TAG_c, &key);
        if (map_getn(&cache, key.s, key.n))
            continue; /* another thread was faster */
        run_kernel *r = mem_zalloc(sizeof *r);
        *r = (run_kernel){
            .fn = fn[i], .emitter = EMITTER_c, .name = mem_strdup(missing.at[i]->name), .compile_us = us
        };
        keep(missing.at[i], r, &key);
    }
    pthread_mutex_unlock(&lock);
    free(fn);
    vec_free(&missing);
    map_free(&seen);
    strbuf_free(&key);
    return ok;
}

static bool kernels_c(const vir *const *k, int n, const run_kernel **out, tp_err *err)
{
    tp_err why = { 0 };
    bool ok = exec_build_c(k, n, &why);
    if (!ok && why.kind == ERR_interrupt) {
        if (err && !err_is_set(err))
            *err = why;
        return false;
    }
    static atomic_bool said;
    if (!ok && !atomic_exchange(&said, true))
        ev_log(EVC_inductor, EV_WARNING, NULL,
               "kernels cannot be built as C and are interpreted, which is slow: %s", why.msg);
    strbuf key = { 0 };
    for (int i = 0; i < n; i++) {
        if (!ok) {
            if (!(out[i] = interpreted(k[i], why.msg, err)))
                break;
            continue;
        }
        key_of(k[i], TAG_c, &key);
        pthread_mutex_lock(&lock);
        out[i] = map_getn(&cache, key.s, key.n);
        pthread_mutex_unlock(&lock);
    }
    strbuf_free(&key);
    return !n || out[n - 1];
}

bool exec_kernels(const vir *const *k, int n, const run_options *o, const run_kernel **out, tp_err *err)
{
    static const gen_isa isas[] = { ISA_avx512, ISA_none, ISA_avx2,
                                    ISA_avx512 }; /* auto, base, avx2, avx512 */
    gen_isa isa = MIN(gen_isa_host(), isas[o->v[OPT_isa]]);
    int e = o->v[OPT_emitter];
    if (e == EMITTER_auto)
        e = isa != ISA_none ? EMITTER_x64 : EMITTER_c;
    if (e == EMITTER_c)
        return kernels_c(k, n, out, err);
    for (int i = 0; i < n; i++) {
        if (e == EMITTER_interpreter)
            out[i] = interpreted(k[i], "the options ask for it", err);
        else if (isa == ISA_none)
            out[i] = interpreted(k[i], "this machine has no AVX2 and FMA", err);
        else
            out[i] = emitted(k[i], isa, err);
        if (!out[i])
            return err_note(err, "building kernel '%s'", k[i]->name);
    }
    return true;
}
