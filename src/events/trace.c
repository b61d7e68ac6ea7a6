/* trace.c - the sink for tools: one file per process, records that survive a crash.
 * A record is an envelope line and payload lines, written by one write(2) to a file opened for appending:
 * a killed process loses at most the record it was writing, and a forked child starts a file of its own. */
#define _GNU_SOURCE
#include "events/internal.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/envvars.h"
#include "base/file.h"
#include "base/intern.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Records of this thread that go out with one write: between ev_batch(true) and ev_batch(false). */
static _Thread_local strbuf batch;
static _Thread_local bool batching;

static struct {
    char *dir, *path;
    bool slow;
    int fd;
    pid_t pid; /* who opened fd */
    interns strings;
} trace = { .fd = -1 };

uint8_t ev_trace_bits(ev_kind k)
{
    uint8_t f = ev_rows[k].flags;
    return trace.dir && f & EVF_trace && (trace.slow || !(f & EVF_slow)) ? EVF_trace : 0;
}

static void shut(void)
{
    if (trace.fd >= 0)
        close(trace.fd);
    trace.fd = -1;
    interns_free(&trace.strings);
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
    return true;
}

const char *ev_trace_path(void) { return trace.path; }

/* Under the lock: the file, made now when it is not ours yet. */
static bool ensure_open(void)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    pid_t me = getpid();

    if (trace.fd >= 0 && trace.pid == me)
        return true;
    shut(); /* after a fork: the parent's file stays the parent's */
    for (int attempt = 0; attempt < 20 && trace.fd < 0; attempt++) {
        char name[9] = { 0 }, file[80];
        uint64_t seed = (uint64_t)clock_ns() * 0x9e3779b97f4a7c15ull ^ (uint64_t)me << 32 ^ (uint64_t)attempt;
        for (int i = 0; i < 8; i++, seed = seed * 6364136223846793005ull + 1442695040888963407ull)
            name[i] = letters[(seed >> 33) % (sizeof letters - 1)];
        char rank[24] = "";
        if (ev_rank() >= 0)
            snprintf(rank, sizeof rank, "rank_%d_", ev_rank());
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

/* A record as it stands in the file. ids: the compile id keys and, without one, the stack, already rendered. */
static void print_record(strbuf *b, const char *event, const char *file, int line, const char *metadata,
                         const char *ids, const char *payload)
{
    size_t n = payload ? strlen(payload) : 0;

    strbuf_grow(b, n + n / 8 + strlen(metadata) + 400);
    ev_prefix(b, 'V', file, line);
    strbuf_add(b, " {\"");
    strbuf_add(b, event);
    strbuf_add(b, "\": ");
    strbuf_add(b, metadata);
    int rank = ev_rank();
    if (rank >= 0)
        strbuf_addf(b, ", \"rank\": %d", rank);
    strbuf_add(b, ids);
    if (payload) {
        char md5[DIGEST_HEX];
        digest_of(DIGEST_md5, payload, n, md5);
        strbuf_addf(b, ", \"has_payload\": \"%s\"", md5);
    }
    strbuf_add(b, "}\n");
    if (payload)
        add_payload(b, payload, n);
}

static uint32_t intern_file(const char *name)
{
    bool fresh;
    uint32_t id = intern_id(&trace.strings, name, strlen(name), &fresh);
    if (fresh) {
        strbuf b = { 0 };
        json_w w = { &b };
        json_arr(&w);
        json_str(&w, name);
        json_int(&w, id);
        json_end(&w);
        strbuf rec = { 0 };
        print_record(&rec, "str", __FILE__, __LINE__, b.s, "", NULL);
        fd_write_all(trace.fd, rec.s, rec.n);
        strbuf_free(&rec);
        strbuf_free(&b);
    }
    return id;
}

void ev_json_stack(json_w *w, const ev_frame *f, int n)
{
    json_arr(w);
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    for (int i = 0; i < n && trace.dir && ensure_open(); i++) {
        json_obj(w);
        json_key(w, "line");
        json_int(w, f[i].line);
        json_key(w, "name");
        json_str(w, f[i].name ? f[i].name : "");
        json_key(w, "filename");
        json_int(w, intern_file(f[i].file ? f[i].file : ""));
        if (f[i].loc) {
            json_key(w, "loc");
            json_str(w, f[i].loc);
        }
        json_end(w);
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

static void write_out(const strbuf *b)
{
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    if (b->n && trace.dir && ensure_open())
        fd_write_all(trace.fd, b->s, b->n);
    pthread_mutex_unlock(&ev_lock);
}

void ev_batch(bool on)
{
    if (!on) {
        write_out(&batch);
        strbuf_free(&batch);
    }
    batching = on;
}

void ev_json_at(ev_kind k, const ev_cid *cid, const char *file, int line, const char *metadata,
                const char *payload)
{
    strbuf ids = { 0 };

    if (!ev_trace_on(k))
        return;
    cid = ev_cid_or_now(cid);
    if (cid)
        strbuf_addf(&ids, ", \"frame_id\": %d, \"frame_compile_id\": %d, \"attempt\": %d", cid->frame,
                    cid->compile, cid->attempt);
    else if (!(ev_rows[k].flags & EVF_free)) {
        json_w w = { &ids };
        strbuf_add(&ids, ", \"stack\": ");
        ev_json_user_stack(&w);
    }
    strbuf *rec = batching ? &batch : ev_scratch();
    print_record(rec, ev_rows[k].name, file, line, metadata, strbuf_str(&ids), payload);
    if (!batching) {
        write_out(rec);
        ev_scratch_done(rec);
    }
    strbuf_free(&ids);
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
    return (int)syscall(SYS_gettid);
#else
    return 0;
#endif
}

void ev_phase_at(const char *name, char ph, const ev_cid *cid, const char *file, int line, const char *args)
{
    strbuf b = { 0 };
    json_w w = { &b };

    if (!ev_trace_on(EV_chromium_event))
        return;
    int64_t ns = clock_wall_ns();
    strbuf_add(&b, "{\"name\": ");
    json_str(&w, name);
    strbuf_addf(&b, ", \"ts\": %lld.%03d, \"args\": ", (long long)(ns / 1000), (int)(ns % 1000));
    strbuf_add(&b, args ? args : "{}");
    strbuf_addf(&b, ", \"ph\": \"%c\", \"cat\": \"dynamo_timed\", \"tid\": %d, \"pid\": %d%s}", ph,
                thread_id(), (int)getpid(), ph == 'i' ? ", \"s\": \"p\"" : "");
    ev_json_at(EV_chromium_event, cid, file, line, "{}", b.s);
    strbuf_free(&b);
}
