/* trace.c - the sink for tools: one file per process, records that survive a crash.
 * A record is an envelope line and payload lines, put into the file as soon as its text is made (tracefile.h): a killed
 * process loses at most the record it was making, and a forked child starts a file of its own. */
#define _GNU_SOURCE
#include "events/internal.h"
#include "events/metrics.h"
#include "events/tracefile.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/envvars.h"
#include "base/file.h"
#include "base/intern.h"
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Records of this thread that go out with one write: between ev_batch(true) and ev_batch(false). They have a time and a
 * compile in common. */
static _Thread_local strbuf *batch;
static _Thread_local struct {
    char head[48];
    size_t nhead;
    strbuf tail;
    int64_t since;
    const char *file, *short_file;
    size_t nfile;
} shared;

static struct {
    char *dir, *path;
    bool slow;
    tracefile file;
    pid_t pid; /* who opened it */
    int rank;  /* of the file; -1: none */
    interns strings, said;
    char *last; /* of them */
    uint32_t last_id;
} trace = { .file.fd = -1 };

static _Thread_local int64_t spent;

/* Digests of payloads take a third of the time that a large record takes. So a record that was handed over (ev_later) is
 * put first, with EV_NO_DIGEST, and the thread that writes computes its digest when it has nothing more urgent to do. */
typedef struct undigested {
    int64_t at, payload; /* places in the file */
    size_t n;            /* bytes of the payload as it stands there */
    int cut;             /* of the file */
} undigested;
static struct {
    undigested of[64]; /* under ev_lock, with n */
    int n;
    size_t done; /* bytes of the first one; this and the rest belong to the thread */
    bool line_start;
    digest sum;
} todo;

uint8_t ev_trace_bits(ev_kind k)
{
    uint8_t f = ev_rows[k].flags;
    return trace.dir && f & EVF_trace && (trace.slow || !(f & EVF_slow)) ? EVF_trace : 0;
}

static void shut(void)
{
    bool mine = trace.pid == ev_pid();
    if (trace.file.fd >= 0 && mine && !trace.file.used)
        unlink(trace.path); /* made ready for a compile that never came */
    tracefile_close(&trace.file, mine);
    todo.n = 0;
    todo.done = 0;
    interns_free(&trace.strings);
    interns_free(&trace.said);
    free(trace.last);
    trace.last = NULL;
    free(trace.path);
    trace.path = NULL;
}

void ev_trace_stop(void)
{
    ev_wait_chores();
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

    if (trace.file.fd >= 0 && trace.pid == me)
        return true;
    shut(); /* after a fork: the parent's file stays the parent's */
    for (int attempt = 0; attempt < 20 && trace.file.fd < 0; attempt++) {
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
        tracefile_open(&trace.file, trace.path);
    }
    trace.pid = me;
    return trace.file.fd >= 0;
}

static void add_payload(strbuf *b, const char *payload, size_t n)
{
    for (const char *p = payload, *end = payload + n;;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((nl ? nl : end) - p);
        strbuf_grow(b, len + 2);
        char *to = b->s + b->n;
        *to++ = '\t';
        memcpy(to, p, len);
        to += len;
        *to++ = '\n';
        b->n += len + 2;
        if (!nl)
            break;
        p = nl + 1;
    }
    b->s[b->n] = 0;
}

static void print_whose(strbuf *b, const ev_cid *cid, const char *stack)
{
    int rank = trace.file.fd >= 0 ? trace.rank : ev_rank();
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
}

/* A record as it stands in the file. cid: NULL when it belongs to no compile; then stack, rendered, or NULL. Gives back
 * where in b its digest is, which stays EV_NO_DIGEST when it is to be computed later. */
static size_t print_record(strbuf *b, const char *event, const char *file, int line, const char *metadata,
                           const ev_cid *cid, const char *stack, const char *payload, bool later)
{
    size_t n = payload ? strlen(payload) : 0;
    size_t digest_at = 0;

    strbuf_grow(b, n + n / 8 + strlen(metadata) + 400);
    ev_prefix(b, 'V', file, line);
    strbuf_add(b, " {\"");
    strbuf_add(b, event);
    strbuf_add(b, "\": ");
    strbuf_add(b, metadata);
    print_whose(b, cid, stack);
    if (payload) {
        char md5[DIGEST_HEX];
        if (!later)
            digest_of(DIGEST_md5, payload, n, md5);
        strbuf_add(b, ", \"has_payload\": \"");
        digest_at = b->n;
        strbuf_add(b, later ? EV_NO_DIGEST : md5);
        strbuf_addc(b, '"');
    }
    strbuf_add(b, "}\n");
    if (payload)
        add_payload(b, payload, n);
    return digest_at;
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
        print_record(&rec, "str", __FILE__, __LINE__, b.s, NULL, NULL, NULL, false);
        tracefile_fill(&trace.file, tracefile_take(&trace.file, rec.n), rec.s, rec.n);
        tracefile_let_go(&trace.file); /* it is there before anybody can use the number */
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

bool ev_trace_first(const char *what)
{
    bool first = false;
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    if (trace.dir && ensure_open())
        intern_id(&trace.said, what, strlen(what), &first);
    pthread_mutex_unlock(&ev_lock);
    return first;
}

/* digest_at: in b, when that is to be computed yet. */
static void put(const strbuf *b, size_t digest_at, const char *payload)
{
    int64_t at = 0;
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    bool open = b->n && trace.dir && ensure_open();
    if (open)
        at = tracefile_take(&trace.file, b->n);
    pthread_mutex_unlock(&ev_lock);
    if (!open)
        return;
    tracefile_fill(&trace.file, at, b->s, b->n);
    tracefile_let_go(&trace.file); /* before the lock: who has it may wait for this */
    if (!digest_at)
        return;
    size_t from = (size_t)(strchr(b->s + digest_at, '\n') + 1 - b->s);
    pthread_mutex_lock(&ev_lock);
    bool full = todo.n == (int)COUNT(todo.of);
    if (full)
        tracefile_hold(&trace.file);
    else
        todo.of[todo.n++] = (undigested){ at + (int64_t)digest_at, at + (int64_t)from, b->n - from,
                                          trace.file.cut };
    pthread_mutex_unlock(&ev_lock);
    if (!full) {
        ev_later_chores();
    } else {
        char md5[DIGEST_HEX];
        digest_of(DIGEST_md5, payload, strlen(payload), md5);
        tracefile_fill(&trace.file, at + (int64_t)digest_at, md5, strlen(EV_NO_DIGEST));
        tracefile_let_go(&trace.file);
    }
}

/* A part of a digest; true: that was the last. Held. The payload stands in the file with a tab before each line, and a
 * line's end after the last. */
static bool digest_some(undigested u)
{
    enum { PART = 8 << 10 };
    char raw[PART], text[PART], md5[DIGEST_HEX];
    size_t n = MIN((size_t)PART, u.n - todo.done), k = 0;
    if (!todo.done) {
        digest_init(&todo.sum, DIGEST_md5);
        todo.line_start = true;
    }
    bool ok = tracefile_read(&trace.file, u.payload + (int64_t)todo.done, raw, n);
    for (const char *p = raw, *end = raw + n; ok && p < end;) {
        p += todo.line_start;
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl + 1 : end;
        memcpy(text + k, p, (size_t)(stop - p));
        k += (size_t)(stop - p);
        todo.line_start = nl != NULL;
        p = stop;
    }
    todo.done += n;
    ok &= u.cut == __atomic_load_n(&trace.file.cut, __ATOMIC_RELAXED);
    bool last = !ok || todo.done == u.n;
    digest_add(&todo.sum, text, k - (last && k));
    if (last) {
        digest_hex(&todo.sum, md5);
        if (ok)
            tracefile_fill(&trace.file, u.at, md5, strlen(EV_NO_DIGEST));
        todo.done = 0;
    }
    return last;
}

bool ev_trace_chore(bool busy)
{
    pthread_mutex_lock(&ev_lock);
    bool mine = trace.file.fd >= 0 && trace.pid == ev_pid();
    bool grow = mine && tracefile_more(&trace.file, busy ? TRACEFILE_AHEAD / 4 : TRACEFILE_AHEAD, busy),
         digest = mine && todo.n;
    undigested u = todo.of[0];
    if (mine)
        tracefile_hold(&trace.file);
    pthread_mutex_unlock(&ev_lock);
    if (grow)
        tracefile_grow(&trace.file);
    bool digested = digest && digest_some(u);
    if (mine)
        tracefile_let_go(&trace.file);
    if (digested) {
        pthread_mutex_lock(&ev_lock);
        if (todo.n)
            memmove(todo.of, todo.of + 1, sizeof *todo.of * (size_t)--todo.n);
        pthread_mutex_unlock(&ev_lock);
    }
    return grow || digest;
}

bool ev_trace_mend(const void *fault) { return tracefile_mend(&trace.file, fault); }

void ev_trace_prepare(void)
{
    if (!ev_trace_on(EV_dynamo_start) || (trace.file.fd >= 0 && trace.pid == ev_pid()))
        return;
    pthread_mutex_lock(&ev_lock);
    bool open = trace.dir && ensure_open();
    pthread_mutex_unlock(&ev_lock);
    if (open)
        ev_later_chores();
}

/* At exit. */
void ev_trace_tidy(void)
{
    pthread_mutex_lock(&ev_lock);
    if (trace.file.fd >= 0 && !trace.file.used)
        shut();
    else if (trace.pid == ev_pid())
        tracefile_trim(&trace.file);
    pthread_mutex_unlock(&ev_lock);
}

void ev_batch(bool on)
{
    if (on) {
        strbuf head = { 0 };
        shared.since = clock_ns();
        batch = ev_scratch();
        ev_prefix(&head, 'V', "", 0);
        shared.nhead = MIN(head.n - strlen(":0]"), sizeof shared.head);
        memcpy(shared.head, head.s, shared.nhead);
        strbuf_free(&head);
        print_whose(&shared.tail, ev_cid_now(), NULL);
        strbuf_add(&shared.tail, "}\n");
        return;
    }
    put(batch, 0, NULL);
    ev_scratch_done(batch);
    strbuf_free(&shared.tail);
    batch = NULL;
    spent += clock_ns() - shared.since;
}

void ev_batch_json(ev_kind k, const char *file, int line, const strbuf *metadata)
{
    if (shared.file != file) {
        shared.file = file;
        shared.short_file = ev_short_file(file);
        shared.nfile = strlen(shared.short_file);
    }
    strbuf_grow(batch, shared.nhead + shared.nfile + metadata->n + shared.tail.n + 100);
    strbuf_addn(batch, shared.head, shared.nhead);
    strbuf_addn(batch, shared.short_file, shared.nfile);
    strbuf_addc(batch, ':');
    strbuf_int(batch, line);
    strbuf_add(batch, "] {\"");
    strbuf_add(batch, ev_rows[k].name);
    strbuf_add(batch, "\": ");
    strbuf_addn(batch, metadata->s, metadata->n);
    strbuf_addn(batch, shared.tail.s, shared.tail.n);
}

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
    strbuf *rec = ev_scratch();
    bool later = payload && ev_digest_later(strlen(payload));
    size_t digest_at = print_record(rec, ev_rows[k].name, file, line, metadata, cid, stack.s, payload, later);
    put(rec, later ? digest_at : 0, payload);
    ev_scratch_done(rec);
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
    strbuf_add(&b, "{\"name\": \"");
    strbuf_add(&b, name); /* one of ours: nothing in it is to be escaped */
    strbuf_add(&b, "\", \"ts\": ");
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
