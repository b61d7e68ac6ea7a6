/* kernel_cache.c - the kernel cache. */
#include "run/kernel_cache.h"
#include "base/clock.h"
#include "base/envvars.h"
#include "base/map.h"
#include "events/events.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static map cache; /* key bytes + target -> target_code; entries live as long as the process */
static map named; /* kernel name -> how many of that name were compiled, for the reason of a miss */
static kernel_stats stats;

kernel_stats kernel_get_stats(void)
{
    pthread_mutex_lock(&lock);
    kernel_stats s = stats;
    pthread_mutex_unlock(&lock);
    return s;
}

/* Under the lock: why no kernel could be reused. */
static void log_miss(const vir *k, const target_code *r)
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

static void key_of(const target *t, const vir *k, strbuf *key)
{
    strbuf_clear(key);
    vir_key(k, key);
    strbuf_addn(key, (const char *)&t, sizeof t);
}

/* Under the lock. Code that could not be finished is made anew. */
static target_code *kept(const strbuf *key)
{
    tp_err why = { 0 };
    target_code *r = map_getn(&cache, key->s, key->n);
    return r && r->on->ready && !r->on->ready(r, false, &why) && err_is_set(&why) ? NULL : r;
}

/* Under the lock. */
static target_code *find(const vir *k, const strbuf *key)
{
    target_code *r = kept(key);
    if (!r)
        return NULL;
    stats.hits++;
    r->cached = true;
    if (ev_log_on(EVC_cache, EV_INFO))
        ev_log(EVC_cache, EV_INFO, NULL, "kernel cache hit: %s runs the code of %s (key %016llx)", k->name,
               r->name, (unsigned long long)r->hash);
    return r;
}

/* Under the lock. */
static void keep(const vir *k, target_code *r, const strbuf *key)
{
    r->hash = hash_bytes(key->s, key->n, 0);
    map_putn(&cache, key->s, key->n, r);
    stats.kernels++;
    stats.code_bytes += (int64_t)r->ncode;
    stats.compile_us += r->compile_us;
    log_miss(k, r);
}

/* TAPER_KERNEL_CACHE=0 */
static bool every_one_anew(void)
{
    const char *s = env_get(ENV_kernel_cache);
    return s && *s && !env_on(ENV_kernel_cache);
}

/* Those of k that out has nothing for, each once: how many. first[i]: the number of the kernel that i is equal to. */
static int find_all(const target *t, const vir *const *k, int n, const target_code **out, const vir **missing,
                    int *first)
{
    strbuf key = { 0 };
    map seen = { 0 };
    bool own = every_one_anew(); /* each kernel is made anew */
    int count = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++) {
        key_of(t, k[i], &key);
        uintptr_t had = own ? 0 : (uintptr_t)map_getn(&seen, key.s, key.n);
        first[i] = had ? (int)had - 1 : -1;
        if (had || (!own && (out[i] = find(k[i], &key))))
            continue;
        map_putn(&seen, key.s, key.n, (void *)(uintptr_t)(count + 1));
        first[i] = count;
        missing[count++] = k[i];
    }
    pthread_mutex_unlock(&lock);
    map_free(&seen);
    strbuf_free(&key);
    return count;
}

/* Compiles, and puts what was made into the cache: made[i] is then the code of k[i], or NULL where that cannot be. later: it may be
 * finished afterwards. */
static bool compile_all(const target *t, const vir *const *k, int n, bool later, target_code **made,
                        tp_err *err)
{
    strbuf key = { 0 };
    int64_t t0 = clock_ns();
    bool ok = (later && t->begin ? t->begin : t->compile)(t, k, n, made, err);
    double us = (double)(clock_ns() - t0) / 1000 / n;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++) {
        if (!made[i])
            continue;
        key_of(t, k[i], &key);
        target_code *other = kept(&key);
        if (made[i]->compile_us == 0)
            made[i]->compile_us = us;
        if (other && !every_one_anew()) /* another thread was faster */
            made[i] = other;
        else if (!other)
            keep(k[i], made[i], &key);
    }
    pthread_mutex_unlock(&lock);
    strbuf_free(&key);
    return ok;
}

static bool find_or_compile(const target *t, const vir *const *k, int n, bool later, const target_code **out,
                            tp_err *err)
{
    enum { FEW = 16 };
    const vir *few_k[FEW], **missing = n <= FEW ? few_k : mem_alloc(sizeof *missing * (size_t)n);
    target_code *few_c[FEW], **made = n <= FEW ? few_c : mem_alloc(sizeof *made * (size_t)n);
    int few_i[FEW], *first = n <= FEW ? few_i : mem_alloc(sizeof *first * (size_t)n);
    int count = find_all(t, k, n, out, missing, first);
    memset(made, 0, sizeof *made * (size_t)count);
    bool ok = !count || compile_all(t, missing, count, later, made, err);
    for (int i = 0; i < n; i++)
        if (first[i] >= 0)
            out[i] = made[first[i]];
    if (n > FEW) {
        free(missing);
        free(made);
        free(first);
    }
    return ok;
}

/* Code of other compiles may not be finished yet. False with the first that never will be, which is NULL in out then. */
static bool wait_for(const target *t, int n, const target_code **out, tp_err *err)
{
    bool ok = true;
    for (int i = 0; i < n && t->ready; i++)
        if (out[i] && !t->ready(out[i], true, ok ? err : NULL)) {
            ok = false;
            out[i] = NULL;
        }
    return ok;
}

bool kernels_all(const target *t, const vir *const *k, int n, const target_code **out, tp_err *err)
{
    bool all = find_or_compile(t, k, n, false, out, err);
    return wait_for(t, n, out, all ? err : NULL) && all;
}

bool kernels_begin(const target *t, const vir *const *k, int n, const target_code **out, tp_err *err)
{
    return find_or_compile(t, k, n, true, out, err);
}

/* The reason stays with the code, for hints. */
static void say_why(const target_code *c, const char *why)
{
    target_code *r = (target_code *)(uintptr_t)c;
    pthread_mutex_lock(&lock);
    if (!r->why[0])
        snprintf(r->why, sizeof r->why, "%.*s", (int)sizeof r->why - 1, why);
    pthread_mutex_unlock(&lock);
}

void kernels_say_interpreted(const char *why)
{
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        ev_log(EVC_inductor, EV_WARNING, NULL, "kernels are interpreted, which is slow: %s", why);
}

/* What t could not compile, and why. */
static const target_code *fall_back(const target *t, const vir *k, const tp_err *why, tp_err *err)
{
    const target_code *r = NULL;
    if (!t->fallback || why->kind == ERR_interrupt || why->kind == ERR_internal) {
        if (err && !err_is_set(err))
            *err = *why;
        return NULL;
    }
    kernels_say_interpreted(why->msg);
    kernels_get(t->fallback, why->msg, &k, 1, &r, err);
    return r;
}

bool kernels_get(const target *t, const char *why, const vir *const *k, int n, const target_code **out,
                 tp_err *err)
{
    tp_err bad = { 0 };
    bool all = kernels_all(t, k, n, out, &bad);
    for (int i = 0; i < n && !all; i++)
        if (!out[i] && !(out[i] = fall_back(t, k[i], &bad, err)))
            return err_note(err, "building kernel '%s'", k[i]->name);
    for (int i = 0; i < n && why && *why; i++)
        say_why(out[i], why);
    return true;
}

const target_code *kernel_get(const target *t, const vir *k, tp_err *err)
{
    const target_code *r = NULL;
    return kernels_all(t, &k, 1, &r, err) ? r : NULL;
}

const target_code *kernel_load(const target *t, const char *name, uint64_t hash, const void *p, size_t n,
                               tp_err *err)
{
    static map loaded; /* saved bytes -> target_code */
    if (!t->load) {
        err_set(err, ERR_notimpl, "code of target '%s' cannot be loaded", t->name);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    target_code *r = map_getn(&loaded, p, n);
    if (!r && (r = t->load(t, name, p, n, err))) {
        r->hash = hash;
        r->cached = true;
        map_putn(&loaded, p, n, r);
    }
    stats.hits += r != NULL;
    pthread_mutex_unlock(&lock);
    return r;
}
