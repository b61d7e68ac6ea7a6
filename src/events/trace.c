/* trace.c - the sink for tools: one file per process, records that survive a crash.
 * A record is an envelope line and payload lines, written by one write(2) to a file opened for appending:
 * a killed process loses at most the record it was writing, and a forked child starts a file of its own. */
#define _GNU_SOURCE
#include "events/internal.h"
#include "events/metrics.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/envvars.h"
#include "base/file.h"
#include "base/intern.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Records of this thread that go out with one write: between ev_batch(true) and ev_batch(false). */
static _Thread_local strbuf *batch;

static struct {
    char *dir, *path;
    bool slow;
    int fd;
    pid_t pid;  /* who opened fd */
    int rank;   /* of the file; -1: none */
    bool wrote; /* anything, into this file */
    interns strings;
    char *last; /* of them */
    uint32_t last_id;
    int writing; /* atomic; threads that write to fd just now, without the lock */
} trace = { .fd = -1 };

uint8_t ev_trace_bits(ev_kind k)
{
    uint8_t f = ev_rows[k].flags;
    return trace.dir && f & EVF_trace && (trace.slow || !(f & EVF_slow)) ? EVF_trace : 0;
}

static void shut(void)
{
    while (trace.pid == ev_pid() && __atomic_load_n(&trace.writing, __ATOMIC_ACQUIRE))
        sched_yield(); /* a forked child has no such threads */
    trace.writing = 0;
    if (trace.fd >= 0 && trace.pid == ev_pid() && !trace.wrote)
        unlink(trace.path); /* made ready for a compile that never came */
    if (trace.fd >= 0)
        close(trace.fd);
    trace.fd = -1;
    trace.wrote = false;
    interns_free(&trace.strings);
    free(trace.last);
    trace.last = NULL;
    free(trace.path);
    trace.path = NULL;
}

void ev_trace_stop(void)
{
    ev_wait(NULL);
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    shut();
    free(trace.dir);
    trace.dir = NULL;
    ev_refresh();
    pthread_mutex_unlock(&ev_lock);
    ev_crash_watch(false);
}

bool ev_trace_start(const char *dir, bool slow, tp_err *err)
{
    ev_trace_stop();
    if (!file_mkdirs(dir, err))
        return false;
    if (access(dir, W_OK))
        return err_set(err, ERR_os, "cannot write to '%s': %s", dir, strerror(errno));
    pthread_mutex_lock(&ev_lock);
    trace.dir = mem_strdup(dir);
    trace.slow = slow;
    ev_refresh();
    pthread_mutex_unlock(&ev_lock);
    ev_later_ready();
    ev_crash_watch(true);
    return true;
}

const char *ev_trace_path(void) { return trace.path; }

/* Under the lock: the file, made now when it is not ours yet. */
static bool ensure_open(void)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    pid_t me = ev_pid();

    if (trace.fd >= 0 && trace.pid == me)
        return true;
    shut(); /* after a fork: the parent's file stays the parent's */
    for (int attempt = 0; attempt < 20 && trace.fd < 0; attempt++) {
        char name[9] = { 0 }, file[80];
        uint64_t seed = (uint64_t)clock_ns() * 0x9e3779b97f4a7c15ull ^ (uint64_t)me << 32 ^ (uint64_t)attempt;
        for (int i = 0; i < 8; i++, seed = seed * 6364136223846793005ull + 1442695040888963407ull)
            name[i] = letters[(seed >> 33) % (sizeof letters - 1)];
        char rank[24] = "";
        trace.rank = ev_rank();
        if (trace.rank >= 0)
            snprintf(rank, sizeof rank, "rank_%d_", trace.rank);
        snprintf(file, sizeof file, "dedicated_log_%s_trace_%s%s.log", env_torch_alias() ? "torch" : "taper",
                 rank, name);
        free(trace.path);
        trace.path = path_join(trace.dir, file);
        trace.fd = open(trace.path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    }
    trace.pid = me;
    return trace.fd >= 0;
}

static void add_payload(strbuf *b, const char *payload, size_t n)
{
    for (const char *p = payload, *end = payload + n;;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        strbuf_addc(b, '\t');
        strbuf_addn(b, p, (size_t)((nl ? nl : end) - p));
        strbuf_addc(b, '\n');
        if (!nl)
            return;
        p = nl + 1;
    }
}

/* A record as it stands in the file. cid: NULL when it belongs to no compile; then stack, rendered, or NULL. */
static void print_record(strbuf *b, const char *event, const char *file, int line, const char *metadata,
                         const ev_cid *cid, const char *stack, const char *payload)
{
    size_t n = payload ? strlen(payload) : 0;
    int rank = trace.fd >= 0 ? trace.rank : ev_rank();

    strbuf_grow(b, n + n / 8 + strlen(metadata) + 400);
    ev_prefix(b, 'V', file, line);
    strbuf_add(b, " {\"");
    strbuf_add(b, event);
    strbuf_add(b, "\": ");
    strbuf_add(b, metadata);
    if (rank >= 0) {
        strbuf_add(b, ", \"rank\": ");
        strbuf_int(b, rank);
    }
    if (cid) {
        strbuf_add(b, ", \"frame_id\": ");
        strbuf_int(b, cid->frame);
        strbuf_add(b, ", \"frame_compile_id\": ");
        strbuf_int(b, cid->compile);
        strbuf_add(b, ", \"attempt\": ");
        strbuf_int(b, cid->attempt);
    } else if (stack) {
        strbuf_add(b, ", \"stack\": ");
        strbuf_add(b, stack);
    }
    if (payload) {
        char md5[DIGEST_HEX];
        digest_of(DIGEST_md5, payload, n, md5);
        strbuf_add(b, ", \"has_payload\": \"");
        strbuf_add(b, md5);
        strbuf_addc(b, '"');
    }
    strbuf_add(b, "}\n");
    if (payload)
        add_payload(b, payload, n);
}

/* Under the lock. The last one asked for is mostly the next one, too. */
static uint32_t intern_file(const char *name)
{
    bool fresh;
    if (trace.last && !strcmp(trace.last, name))
        return trace.last_id;
    uint32_t id = intern_id(&trace.strings, name, strlen(name), &fresh);
    if (fresh) {
        strbuf b = { 0 };
        json_w w = { &b };
        json_arr(&w);
        json_str(&w, name);
        json_int(&w, id);
        json_end(&w);
        strbuf rec = { 0 };
        print_record(&rec, "str", __FILE__, __LINE__, b.s, NULL, NULL, NULL);
        fd_write_all(trace.fd, rec.s, rec.n); /* before anybody can use the number */
        trace.wrote = true;
        strbuf_free(&rec);
        strbuf_free(&b);
    }
    free(trace.last);
    trace.last = mem_strdup(name);
    return trace.last_id = id;
}

void ev_json_stack(json_w *w, const ev_frame *f, int n)
{
    json_arr(w);
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    for (int i = 0; i < n && trace.dir && ensure_open(); i++) {
        const char *name = f[i].name ? f[i].name : "";
        uint32_t file = intern_file(f[i].file ? f[i].file : "");
        strbuf_add(w->out, i ? ", {\"line\": " : "{\"line\": ");
        strbuf_int(w->out, f[i].line);
        strbuf_add(w->out, ", \"name\": ");
        json_quote(w->out, name, strlen(name));
        strbuf_add(w->out, ", \"filename\": ");
        strbuf_int(w->out, file);
        if (f[i].loc) {
            strbuf_add(w->out, ", \"loc\": ");
            json_quote(w->out, f[i].loc, strlen(f[i].loc));
        }
        strbuf_addc(w->out, '}');
    }
    pthread_mutex_unlock(&ev_lock);
    json_end(w);
}

void ev_json_user_stack(json_w *w)
{
    ev_frame f[64];
    int n = ev_user_stack(f, COUNT(f));
    ev_json_stack(w, f, n);
}

/* The write itself is not under the lock: a small record does not wait for a large one of another thread. */
static void write_out(const strbuf *b)
{
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    bool open = b->n && trace.dir && ensure_open();
    int fd = trace.fd;
    if (open) {
        trace.wrote = true;
        __atomic_fetch_add(&trace.writing, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&ev_lock);
    if (open) {
        fd_write_all(fd, b->s, b->n);
        __atomic_fetch_sub(&trace.writing, 1, __ATOMIC_RELEASE);
    }
}

void ev_trace_prepare(void)
{
    if (!ev_trace_on(EV_dynamo_start) || (trace.fd >= 0 && trace.pid == ev_pid()))
        return;
    pthread_mutex_lock(&ev_lock);
    if (trace.dir)
        ensure_open();
    pthread_mutex_unlock(&ev_lock);
}

/* At exit. */
void ev_trace_tidy(void)
{
    pthread_mutex_lock(&ev_lock);
    if (trace.fd >= 0 && !trace.wrote)
        shut();
    pthread_mutex_unlock(&ev_lock);
}

void ev_batch(bool on)
{
    if (on) {
        batch = ev_scratch();
        return;
    }
    write_out(batch);
    ev_scratch_done(batch);
    batch = NULL;
}

static _Thread_local int64_t spent;
int64_t ev_trace_spent(void) { return spent; }
void ev_trace_spend(int64_t ns) { spent += ns; }

void ev_json_at(ev_kind k, const ev_cid *cid, const char *file, int line, const char *metadata,
                const char *payload)
{
    strbuf stack = { 0 };

    if (!ev_trace_on(k))
        return;
    int64_t t0 = clock_ns();
    cid = ev_cid_or_now(cid);
    if (!cid && !(ev_rows[k].flags & EVF_free)) {
        json_w w = { &stack };
        ev_json_user_stack(&w);
    }
    strbuf *rec = batch ? batch : ev_scratch();
    print_record(rec, ev_rows[k].name, file, line, metadata, cid, stack.s, payload);
    if (rec != batch) {
        write_out(rec);
        ev_scratch_done(rec);
    }
    strbuf_free(&stack);
    spent += clock_ns() - t0;
}

void ev_artifact_at(const char *name, const char *encoding, const ev_cid *cid, const char *file, int line,
                    const char *payload)
{
    strbuf b = { 0 };
    json_w w = { &b };

    if (!ev_trace_on(EV_artifact))
        return;
    json_obj(&w);
    json_key(&w, "name");
    json_str(&w, name);
    json_key(&w, "encoding");
    json_str(&w, encoding);
    json_end(&w);
    ev_json_at(EV_artifact, cid, file, line, b.s, payload);
    strbuf_free(&b);
}

static int thread_id(void)
{
#ifdef SYS_gettid
    static _Thread_local pid_t of; /* a forked child asks again */
    static _Thread_local int id;
    if (of != ev_pid()) {
        of = ev_pid();
        id = (int)syscall(SYS_gettid);
    }
    return id;
#else
    return 0;
#endif
}

void ev_phase_at(const char *name, char ph, const ev_cid *cid, const char *file, int line, const char *args)
{
    strbuf b = { 0 };

    if (!ev_trace_on(EV_chromium_event))
        return;
    int64_t ns = clock_wall_ns();
    strbuf_grow(&b, 200);
    strbuf_add(&b, "{\"name\": ");
    json_quote(&b, name, strlen(name));
    strbuf_add(&b, ", \"ts\": ");
    strbuf_int(&b, ns / 1000);
    const char nanos[] = { '.', (char)('0' + ns / 100 % 10), (char)('0' + ns / 10 % 10),
                           (char)('0' + ns % 10) };
    strbuf_addn(&b, nanos, sizeof nanos);
    strbuf_add(&b, ", \"args\": ");
    strbuf_add(&b, args ? args : "{}");
    strbuf_add(&b, ", \"ph\": \"");
    strbuf_addc(&b, ph);
    strbuf_add(&b, "\", \"cat\": \"dynamo_timed\", \"tid\": ");
    strbuf_int(&b, thread_id());
    strbuf_add(&b, ", \"pid\": ");
    strbuf_int(&b, ev_pid());
    strbuf_add(&b, ph == 'i' ? ", \"s\": \"p\"}" : "}");
    ev_json_at(EV_chromium_event, cid, file, line, "{}", b.s);
    strbuf_free(&b);
}
