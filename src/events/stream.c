/* stream.c - who listens, and what all sinks share: tables, compile ids, stacks, prefixes. */
#define _GNU_SOURCE
#include "events/internal.h"
#include "base/clock.h"
#include "base/envvars.h"
#include <stdio.h>
#include <unistd.h>

enum { D = EV_DEBUG, I = EV_INFO, W = EV_WARNING };
const ev_row ev_rows[EV_COUNT] = {
#define EV(name, component, level, flags, help) { #name, help, EVC_##component, level, flags },
#include "events/events.def"
};
#define EVM(c) (1u << EVC_##c)
const ev_crow ev_crows[EVC_COUNT] = {
#define EV_COMPONENT(name, implies, help) { #name, help, implies },
#include "events/events.def"
};
_Static_assert(EVC_COUNT <= 32, "implied components are a 32-bit mask");

uint8_t ev_mask[EV_COUNT];
/* Warnings show before anything was set. */
uint8_t ev_levels[EVC_COUNT] = { [0 ... EVC_COUNT - 1] = EV_WARNING };

/* --- one lock, also across fork ---------------------------------------------------------------------- */
pthread_mutex_t ev_lock = PTHREAD_MUTEX_INITIALIZER;
static void lock(void) { pthread_mutex_lock(&ev_lock); }
static void unlock(void) { pthread_mutex_unlock(&ev_lock); }
static pid_t pid; /* asked for once: a record needs it several times, and each time is a system call */
static void renew(void)
{
    pthread_mutex_init(&ev_lock, NULL);
    pid = getpid();
}
static void at_fork(void)
{
    pid = getpid();
    pthread_atfork(lock, unlock, renew);
}
void ev_lock_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, at_fork);
}
pid_t ev_pid(void)
{
    ev_lock_init();
    return pid;
}

void ev_refresh(void)
{
    for (int c = 0; c < EVC_COUNT; c++)
        __atomic_store_n(&ev_levels[c], (uint8_t)(ev_listened ? EV_DEBUG : ev_component_level(c)),
                         __ATOMIC_RELAXED);
    for (int k = 0; k < EV_COUNT; k++)
        __atomic_store_n(&ev_mask[k],
                         (uint8_t)((ev_listened || ev_text_wants(k) ? EVF_log : 0) | ev_trace_bits(k)),
                         __ATOMIC_RELAXED);
}

/* --- compile ids
 * --------------------------------------------------------------------------------------------- */
static _Thread_local ev_cid current;
static _Thread_local bool in_compile;

void ev_cid_set(const ev_cid *c)
{
    in_compile = c != NULL;
    if (c)
        current = *c;
}
const ev_cid *ev_cid_now(void) { return in_compile ? &current : NULL; }
const ev_cid *ev_cid_or_now(const ev_cid *c) { return c ? c : ev_cid_now(); }

void ev_cid_print(strbuf *out, const ev_cid *c)
{
    strbuf_addf(out, "%d/%d", c->frame, c->compile);
    if (c->attempt)
        strbuf_addf(out, "_%d", c->attempt);
}

/* --- the user's stack
 * ---------------------------------------------------------------------------------------- */
static ev_stack_fn *stack_fn;
static void *stack_data;
void ev_set_stack_source(ev_stack_fn *fn, void *data)
{
    stack_fn = fn;
    stack_data = data;
}
int ev_user_stack(ev_frame *f, int max) { return stack_fn ? stack_fn(stack_data, f, max) : 0; }

/* --- prefixes
 * --------------------------------------------------------------------------------------------------- */
const char *ev_short_file(const char *file)
{
    const char *best = NULL, *slash = strrchr(file, '/');
    for (const char *p = file; (p = strstr(p, "src/"));)
        best = p += 4;
    return best ? best : *file == '/' ? slash + 1 : file;
}

char ev_letter(int level)
{
    return level >= EV_CRITICAL  ? 'C'
           : level >= EV_ERROR   ? 'E'
           : level >= EV_WARNING ? 'W'
           : level >= EV_INFO    ? 'I'
                                 : 'V';
}

/* Most of it is the same for many records in a row: the second, the process, the place that speaks. */
void ev_prefix(strbuf *out, char letter, const char *file, int line)
{
    static _Thread_local struct {
        time_t second;
        pid_t pid;
        char text[24]; /* "1115 10:20:30." */
        char tail[16]; /* " 4711 " */
        size_t n_tail;
        const char *file, *short_file;
        size_t n_file;
    } last = { .second = -1 };
    int64_t ns = clock_wall_ns();
    time_t s = (time_t)(ns / 1000000000);

    if (s != last.second) {
        struct tm t;
        localtime_r(&s, &t);
        const int field[] = { t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec };
        static const char between[] = { 0, ' ', ':', ':', '.' };
        char *p = last.text;
        for (size_t i = 0; i < COUNT(field); i++) {
            *p++ = (char)('0' + field[i] / 10 % 10);
            *p++ = (char)('0' + field[i] % 10);
            if (between[i])
                *p++ = between[i];
        }
        last.second = s;
    }
    if (last.pid != ev_pid()) {
        last.pid = ev_pid();
        last.n_tail = (size_t)snprintf(last.tail, sizeof last.tail, " %d ", (int)last.pid);
    }
    if (last.file != file) {
        last.file = file;
        last.short_file = ev_short_file(file);
        last.n_file = strlen(last.short_file);
    }
    strbuf_grow(out, 64 + last.n_file);
    char *p = out->s + out->n;
    *p++ = letter;
    memcpy(p, last.text, 14);
    p += 14;
    int64_t us = ns / 1000 % 1000000;
    for (int i = 5; i >= 0; i--, us /= 10)
        p[i] = (char)('0' + us % 10);
    p += 6;
    memcpy(p, last.tail, last.n_tail);
    p += last.n_tail;
    memcpy(p, last.short_file, last.n_file);
    p += last.n_file;
    *p++ = ':';
    out->n = (size_t)(p - out->s);
    strbuf_int(out, line);
    strbuf_addc(out, ']');
}

int ev_rank(void)
{
    int64_t r = env_int(ENV_rank, -1);
    return r >= 0 && r < INT32_MAX ? (int)r : -1;
}

const char *ev_component_name(int i) { return i < EVC_COUNT ? ev_crows[i].name : NULL; }
const char *ev_artifact_name(int i)
{
    for (int k = 0; k < EV_COUNT; k++)
        if (ev_rows[k].flags & EVF_log && !i--)
            return ev_rows[k].name;
    return NULL;
}
