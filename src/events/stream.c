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

/* --- one lock, also across fork ---------------------------------------------------------------------------
 */
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

static void digits(strbuf *out, int v, int n) /* exactly n of them */
{
    char t[8];
    for (int i = n; i-- > 0; v /= 10)
        t[i] = (char)('0' + v % 10);
    strbuf_addn(out, t, (size_t)n);
}

void ev_prefix(strbuf *out, char letter, const char *file, int line)
{
    static _Thread_local struct tm t; /* of the second last asked for: a burst of records needs it once */
    static _Thread_local time_t of = -1;
    int64_t ns = clock_wall_ns();
    time_t s = (time_t)(ns / 1000000000);

    if (s != of)
        localtime_r(&s, &t), of = s;
    strbuf_addc(out, letter);
    digits(out, t.tm_mon + 1, 2);
    digits(out, t.tm_mday, 2);
    strbuf_addc(out, ' ');
    digits(out, t.tm_hour, 2);
    strbuf_addc(out, ':');
    digits(out, t.tm_min, 2);
    strbuf_addc(out, ':');
    digits(out, t.tm_sec, 2);
    strbuf_addc(out, '.');
    digits(out, (int)(ns / 1000 % 1000000), 6);
    strbuf_addc(out, ' ');
    strbuf_int(out, ev_pid());
    strbuf_addc(out, ' ');
    strbuf_add(out, ev_short_file(file));
    strbuf_addc(out, ':');
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
