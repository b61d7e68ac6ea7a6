#define _GNU_SOURCE
#include "base/fault.h"
#include "base/vec.h"
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

typedef struct planted {
    char *op, *stage;
    fault_kind kind;
    bool dynamic; /* only where sizes are symbolic */
    bool met;     /* some stage met the operator */
    bool struck;  /* its own did */
} planted;
static VEC(planted) list;
static char *spec_now;
int fault_state = -1;
static _Thread_local bool paused;

static const char *const names[] = {
#define FAULT(name, what) #name,
#include "base/fault.def"
};

static void drop(void)
{
    for (size_t i = 0; i < list.n; i++) {
        free(list.at[i].op);
        free(list.at[i].stage);
    }
    list.n = 0;
}

static const char kinds[] = ""
#define FAULT(name, what) ", " #name
#include "base/fault.def"
    ;
static const char *const stages[] = { "capture", "aot", "lower", "fuse", "gen", "tune" };

static bool one(const char *s, size_t n, tp_err *err)
{
    size_t all = n;
    bool dynamic = n > strlen("/dynamic") &&
                   !memcmp(s + n - strlen("/dynamic"), "/dynamic", strlen("/dynamic"));
    if (dynamic)
        n -= strlen("/dynamic");
    const char *at = memchr(s, '@', n), *colon = at ? memrchr(s, ':', (size_t)(at - s)) : NULL;
    if (!colon || colon == s)
        return err_set(err, ERR_value, "TAPER_INJECT: '%.*s' is not of the form op:kind@stage", (int)all, s);
    size_t k0 = 0;
    while (k0 < COUNT(stages) &&
           (strlen(stages[k0]) != (size_t)(s + n - at - 1) || memcmp(stages[k0], at + 1, strlen(stages[k0]))))
        k0++;
    if (k0 == COUNT(stages))
        return err_set(
            err, ERR_value,
            "TAPER_INJECT: there is no stage '%.*s'; there are: capture, aot, lower, fuse, gen, tune",
            (int)(s + n - at - 1), at + 1);
    for (int k = 1; k < FAULT_COUNT; k++)
        if (strlen(names[k]) == (size_t)(at - colon - 1) &&
            !memcmp(names[k], colon + 1, (size_t)(at - colon - 1))) {
            planted p = { mem_strndup(s, (size_t)(colon - s)),
                          mem_strndup(at + 1, (size_t)(s + n - at - 1)),
                          (fault_kind)k,
                          dynamic,
                          false,
                          false };
            vec_push(&list, p);
            return true;
        }
    return err_set(err, ERR_value, "TAPER_INJECT: there is no kind of fault '%.*s'; there are: %s",
                   (int)(at - colon - 1), colon + 1, kinds + strlen(", none, "));
}

bool fault_set(const char *spec, tp_err *err)
{
    drop();
    free(spec_now);
    spec_now = spec && *spec ? mem_strdup(spec) : NULL;
    fault_state = 0;
    for (const char *s = spec; s && *s;) {
        size_t n = strcspn(s, ",");
        if (n && !one(s, n, err)) {
            drop();
            free(spec_now);
            spec_now = NULL;
            return false;
        }
        s += n + (s[n] == ',');
    }
    fault_state = list.n > 0;
    return true;
}

/* A fault that did nothing is easily taken for a tool that found nothing. */
static pid_t reader;
static void tell_idle(void)
{
    for (size_t i = 0; reader == getpid() && i < list.n; i++)
        if (!list.at[i].struck)
            fprintf(stderr, "taper: the planted fault %s:%s@%s%s never struck: %s\n", list.at[i].op,
                    names[list.at[i].kind], list.at[i].stage, list.at[i].dynamic ? "/dynamic" : "",
                    list.at[i].met ? "the operator did not reach that stage as code of its own"
                                   : "no operator of that name was compiled");
}

static void read_env(void)
{
    const char *spec = getenv("TAPER_INJECT");
    tp_err err = { 0 };
    if (!fault_set(spec, &err))
        fprintf(stderr, "taper: %s; no fault is planted\n", err.msg);
    else if (fault_state) {
        fprintf(stderr, "taper: faults are planted for testing (TAPER_INJECT=%s)\n", spec);
        reader = getpid();
        atexit(tell_idle);
    }
}

const char *fault_spec(void)
{
    if (fault_state < 0)
        read_env();
    return spec_now;
}

bool fault_pause(bool on)
{
    bool was = paused;
    paused = on;
    return was;
}

fault_kind fault_ask(const char *stage, const char *op) { return fault_ask_sized(stage, op, false); }

fault_kind fault_ask_sized(const char *stage, const char *op, bool dynamic)
{
    if (fault_state < 0)
        read_env();
    for (size_t i = 0; fault_state && !paused && i < list.n; i++)
        if (!strcmp(list.at[i].op, op)) {
            list.at[i].met = true;
            if (strcmp(list.at[i].stage, stage) || (list.at[i].dynamic && !dynamic))
                continue;
            list.at[i].struck = true;
            return list.at[i].kind;
        }
    return FAULT_none;
}

bool fault_later(const char *op)
{
    if (fault_state < 0)
        read_env();
    for (size_t i = 0; fault_state && !paused && i < list.n; i++)
        if (!strcmp(list.at[i].op, op) && strcmp(list.at[i].stage, "capture") &&
            strcmp(list.at[i].stage, "aot"))
            return list.at[i].met = true;
    return false;
}

bool fault_coin(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint32_t x = (uint32_t)t.tv_nsec * 2654435761u ^ (uint32_t)getpid() * 40503u;
    return x >> 16 & 1;
}

bool fault_strike(fault_kind k, const char *op, tp_err *err)
{
    switch (k) {
    case FAULT_runtime_error: return err_set(err, ERR_runtime, "planted fault: '%s' failed at run time", op);
    case FAULT_oom:
        return err_set(
            err, ERR_memory,
            "not enough memory: you tried to allocate %lld bytes. Error code 12 (Cannot allocate memory)",
            1LL << 50);
    case FAULT_segv: raise(SIGSEGV); return true;
    case FAULT_abort: abort();
    case FAULT_hang:
        for (;;)
            sleep(1);
    case FAULT_slow: usleep(1000); return true;
    default: return true;
    }
}
