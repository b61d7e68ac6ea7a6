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

static void add_payload(strbuf *b, const char *payload)
{
    for (const char *p = payload;;) {
        const char *nl = strchr(p, '\n');
        strbuf_addc(b, '\t');
        strbuf_addn(b, p, nl ? (size_t)(nl - p) : strlen(p));
        strbuf_addc(b, '\n');
        if (!nl)
            return;
        p = nl + 1;
    }
}

/* Under the lock. ids: the compile id keys and, without one, the stack, already rendered. */
static void write_record(const char *event, const char *file, int line, const char *metadata, const char *ids,
                         const char *payload)
{
    strbuf b = { 0 };

    ev_prefix(&b, 'V', file, line);
    strbuf_addf(&b, " {\"%s\": ", event);
    strbuf_add(&b, metadata);
    if (ev_rank() >= 0)
        strbuf_addf(&b, ", \"rank\": %d", ev_rank());
    strbuf_add(&b, ids);
    if (payload) {
        char md5[DIGEST_HEX];
        digest_of(DIGEST_md5, payload, strlen(payload), md5);
        strbuf_addf(&b, ", \"has_payload\": \"%s\"", md5);
    }
    strbuf_add(&b, "}\n");
    if (payload)
        add_payload(&b, payload);
    fd_write_all(trace.fd, b.s, b.n);
    strbuf_free(&b);
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
        write_record("str", __FILE__, __LINE__, b.s, "", NULL);
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
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    if (trace.dir && ensure_open())
        write_record(ev_rows[k].name, file, line, metadata, strbuf_str(&ids), payload);
    pthread_mutex_unlock(&ev_lock);
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

void ev_phase_at(const char *name, char ph, const ev_cid *cid, const char *file, int line, const char *args)
{
    strbuf b = { 0 };
    json_w w = { &b };

    if (!ev_trace_on(EV_chromium_event))
        return;
    char ts[40];
    int64_t ns = clock_wall_ns();
    snprintf(ts, sizeof ts, "%lld.%03d", (long long)(ns / 1000), (int)(ns % 1000));
    json_obj(&w);
    json_key(&w, "name");
    json_str(&w, name);
    json_key(&w, "ts");
    json_raw(&w, ts);
    json_key(&w, "args");
    json_raw(&w, args ? args : "{}");
    json_key(&w, "ph");
    json_strn(&w, &ph, 1);
    json_key(&w, "cat");
    json_str(&w, "dynamo_timed");
    json_key(&w, "tid");
#ifdef SYS_gettid
    json_int(&w, (int64_t)syscall(SYS_gettid));
#else
    json_int(&w, 0);
#endif
    json_key(&w, "pid");
    json_int(&w, getpid());
    if (ph == 'i') {
        json_key(&w, "s");
        json_str(&w, "p");
    }
    json_end(&w);
    ev_json_at(EV_chromium_event, cid, file, line, "{}", b.s);
    strbuf_free(&b);
}
