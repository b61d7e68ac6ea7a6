/* disk.c - the cache on disk. */
#define _GNU_SOURCE
#include "target/disk.h"
#include "base/envvars.h"
#include "base/file.h"
#include "base/map.h"
#include "base/pool.h"
#include "base/vec.h"
#include "events/events.h"
#include "taper.h"
#include <limits.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "taper cache 1 "
enum { ENTRY_LIMIT = 256 << 20, HEAD_LIMIT = 64 << 10, DEFAULT_MIB = 512 };

/* --- where
 * ---------------------------------------------------------------------------------------------------------- */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *made_for; /* the directory that was asked for, made and found private */
static char *dir;      /* ours inside it */
static char dir_why[DISK_WHY];
static atomic_bool put_failed;

static char *wanted(void) /* owned, or NULL */
{
    const char *d = env_get(ENV_cache_dir), *x = getenv("XDG_CACHE_HOME"), *h = getenv("HOME");
    if (d && *d)
        return mem_strdup(d);
    if (x && *x == '/')
        return path_join(x, "taper");
    return h && *h == '/' ? path_join(h, ".cache/taper") : NULL;
}

char *disk_dir(tp_err *err)
{
    char *w = wanted(), *d = w ? path_join(w, "v1") : NULL;
    if (!w)
        err_set(err, ERR_os, "there is no cache directory: neither TAPER_CACHE_DIR nor HOME is set");
    free(w);
    return d;
}

bool disk_on(char why[DISK_WHY])
{
    const char *off = env_get(ENV_cache);
    if (off && *off && !env_on(ENV_cache)) {
        snprintf(why, DISK_WHY, "%s=%.20s turns it off", env_name(ENV_cache), off);
        return false;
    }
    off = env_get(ENV_kernel_cache);
    if (off && *off && !env_on(ENV_kernel_cache)) {
        snprintf(why, DISK_WHY, "%s=%.20s turns it off", env_name(ENV_kernel_cache), off);
        return false;
    }
    char *w = wanted();
    if (!w) {
        snprintf(why, DISK_WHY, "neither TAPER_CACHE_DIR nor HOME is set");
        return false;
    }
    pthread_mutex_lock(&lock);
    if (!made_for || strcmp(made_for, w)) {
        tp_err err = { 0 };
        free(made_for);
        free(dir);
        made_for = w;
        w = NULL;
        dir = path_join(made_for, "v1");
        put_failed = false;
        dir_why[0] = 0;
        if (!file_private_dir(dir, &err)) {
            snprintf(dir_why, sizeof dir_why, "%.*s", (int)sizeof dir_why - 1, err.msg);
            ev_log(EVC_inductor, EV_WARNING, NULL, "the disk cache is not used: %s", dir_why);
        }
    }
    bool ok = !dir_why[0];
    if (!ok)
        snprintf(why, DISK_WHY, "%s", dir_why);
    pthread_mutex_unlock(&lock);
    free(w);
    return ok;
}

int64_t disk_limit(void) { return env_int(ENV_cache_size, DEFAULT_MIB) << 20; }

/* --- what it was made with
 * ------------------------------------------------------------------------------------------ */
static int find_build_id(struct dl_phdr_info *i, size_t size, void *data)
{
    char *out = data;
    uintptr_t here = (uintptr_t)&find_build_id;
    bool ours = false;
    for (int k = 0; k < i->dlpi_phnum; k++) {
        uintptr_t at = i->dlpi_addr + i->dlpi_phdr[k].p_vaddr;
        ours |= i->dlpi_phdr[k].p_type == PT_LOAD && here >= at && here < at + i->dlpi_phdr[k].p_memsz;
    }
    for (int k = 0; ours && k < i->dlpi_phnum; k++) {
        if (i->dlpi_phdr[k].p_type != PT_NOTE)
            continue;
        const char *p = (const char *)(i->dlpi_addr + i->dlpi_phdr[k].p_vaddr),
                   *e = p + i->dlpi_phdr[k].p_memsz;
        while (p + sizeof(ElfW(Nhdr)) <= e) {
            const ElfW(Nhdr) *n = (const ElfW(Nhdr) *)p;
            const unsigned char *d = (const unsigned char *)p + sizeof *n + ((n->n_namesz + 3u) & ~3u);
            if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && !memcmp(p + sizeof *n, "GNU", 4)) {
                for (unsigned b = 0; b < n->n_descsz && b < 20; b++)
                    sprintf(out + 2 * b, "%02x", d[b]);
                return 1;
            }
            p = (const char *)d + ((n->n_descsz + 3u) & ~3u);
        }
    }
    if (ours) { /* a library without the note: its file tells it from others */
        struct stat st;
        const char *path = i->dlpi_name && *i->dlpi_name ? i->dlpi_name : "/proc/self/exe";
        if (!stat(path, &st))
            snprintf(out, 64, "%llx-%llx.%lx", (unsigned long long)st.st_size,
                     (unsigned long long)st.st_mtim.tv_sec, (unsigned long)st.st_mtim.tv_nsec);
    }
    return ours;
}

static char build[64];
static void find_build(void) { dl_iterate_phdr(find_build_id, build); }

void disk_config(strbuf *b)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_build);
    strbuf_addf(b, "taper=%s\nbuild=%s\n", TP_VERSION, *build ? build : "unknown");
}

/* --- entries
 * -------------------------------------------------------------------------------------------------------- */
static void name_of(const disk_item *it, strbuf *b)
{
    strbuf_addf(b, "%s-%.32s-%016llx", it->kind, it->id,
                (unsigned long long)hash_bytes(it->config, strlen(it->config), 0));
}

static void add_line(strbuf *b, const char *name, const char *s)
{
    strbuf_addf(b, "%s=", name);
    for (; *s; s++)
        strbuf_addc(b, (unsigned char)*s < 32 ? ' ' : *s);
    strbuf_addc(b, '\n');
}

/* The whole file, if it may be trusted as far as its place goes; NULL with why. errno is 0 unless it was opened. */
static char *read_ours(int at, const char *file, size_t limit, size_t *n, struct stat *st, char why[DISK_WHY])
{
    int fd = openat(at, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    char *p = NULL;
    why[0] = 0;
    if (fd < 0) {
        if (errno == ELOOP)
            snprintf(why, DISK_WHY, "refused: it is a symbolic link");
        else if (errno != ENOENT)
            snprintf(why, DISK_WHY, "it cannot be read: %s", strerror(errno));
        return NULL;
    }
    if (fstat(fd, st))
        snprintf(why, DISK_WHY, "it cannot be read: %s", strerror(errno));
    else if (!S_ISREG(st->st_mode))
        snprintf(why, DISK_WHY, "refused: it is not a plain file");
    else if (st->st_uid != geteuid())
        snprintf(why, DISK_WHY, "refused: it belongs to user %u", (unsigned)st->st_uid);
    else if (st->st_mode & 022)
        snprintf(why, DISK_WHY, "refused: mode %04o lets others write to it",
                 (unsigned)(st->st_mode & 07777));
    else if (st->st_size > ENTRY_LIMIT)
        snprintf(why, DISK_WHY, "refused: %lld bytes are too many", (long long)st->st_size);
    else {
        size_t size = MIN((size_t)st->st_size, limit), got = 0;
        p = mem_alloc(size + 1);
        while (got < size) {
            ssize_t r = read(fd, p + got, size - got);
            if (r < 0 && errno == EINTR)
                continue;
            if (r <= 0)
                break;
            got += (size_t)r;
        }
        p[got] = 0;
        *n = got;
    }
    close(fd);
    return p;
}

/* 128 bits, not cryptographic: it finds damage. Who may write here is checked by owner and mode; whoever can forge an
 * entry could forge its checksum of any kind. */
static void checksum(const void *head, size_t nhead, const void *p, size_t n, char hex[33])
{
    uint64_t a = hash_bytes(p, n, hash_bytes(head, nhead, 1)),
             b = hash_bytes(p, n, hash_bytes(head, nhead, 2));
    snprintf(hex, 33, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
}

/* Checks magic and checksum of p[0..n): the head's first byte, or NULL with why. The head ends at an empty line, the
 * payload follows. */
static const char *check(const char *p, size_t n, bool deep, const char **payload, char why[DISK_WHY])
{
    char hex[33];
    size_t m = strlen(MAGIC), at = m + 32 + 1;
    if (n < at || memcmp(p, MAGIC, m) || p[m + 32] != '\n') {
        snprintf(why, DISK_WHY, "damaged: it does not begin as an entry does");
        return NULL;
    }
    const char *end = memmem(p + at, n - at, "\n\n", 2);
    if (!end) {
        snprintf(why, DISK_WHY, "damaged: its head has no end");
        return NULL;
    }
    *payload = end + 2;
    if (deep) {
        checksum(p + at, (size_t)(end + 2 - (p + at)), end + 2, n - (size_t)(end + 2 - p), hex);
        if (memcmp(hex, p + m, 32)) {
            snprintf(why, DISK_WHY, "damaged: its checksum does not fit its content");
            return NULL;
        }
    }
    return p + at;
}

static const char *line_of(const char *head, const char *name, size_t *n) /* its value */
{
    size_t len = strlen(name);
    for (const char *p = head; *p && *p != '\n';) {
        size_t l = strcspn(p, "\n");
        if (l > len && !strncmp(p, name, len) && p[len] == '=') {
            *n = l - len - 1;
            return p + len + 1;
        }
        p += l + (p[l] == '\n');
    }
    return NULL;
}

/* "made with cpu=avx2, now avx512": the first line of the configuration that another entry has otherwise. How many such
 * lines there are. */
static int other_config(const char *head, const char *config, char why[DISK_WHY])
{
    int count = 0;
    for (const char *p = config; *p; p += strcspn(p, "\n") + 1) {
        char name[40];
        size_t l = strcspn(p, "=\n"), n = 0, now = strcspn(p, "\n") - l - 1;
        snprintf(name, sizeof name, "%.*s", (int)l, p);
        const char *v = line_of(head, name, &n);
        if ((!v || n != now || strncmp(v, p + l + 1, n)) && !count++)
            snprintf(why, DISK_WHY, "it is there for %s=%.*s, but now %s is %.*s", name,
                     (int)MIN(n, (size_t)70), v ? v : "", name, (int)MIN(now, (size_t)70), p + l + 1);
    }
    return count;
}

static void explain_miss(int at, const disk_item *it, char why[DISK_WHY])
{
    strbuf prefix = { 0 };
    int others = 0, fd = dup(at), least = INT_MAX;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    strbuf_addf(&prefix, "%s-%.32s-", it->kind, it->id);
    why[0] = 0;
    if (d)
        rewinddir(d);
    for (struct dirent *e; d && (e = readdir(d));) { /* the entry that differs least tells best */
        others += !strncmp(e->d_name, it->kind, strlen(it->kind)) && e->d_name[strlen(it->kind)] == '-';
        if (strncmp(e->d_name, prefix.s, prefix.n))
            continue;
        size_t n = 0;
        struct stat st;
        char none[DISK_WHY], text[DISK_WHY];
        const char *payload;
        char *p = read_ours(at, e->d_name, HEAD_LIMIT, &n, &st, none);
        const char *head = p ? check(p, n, false, &payload, none) : NULL;
        int lines = head ? other_config(head, it->config, text) : 0;
        if (lines && lines < least) {
            least = lines;
            memcpy(why, text, DISK_WHY);
        }
        free(p);
    }
    if (d)
        closedir(d);
    if (!why[0])
        snprintf(why, DISK_WHY, "nothing like it was compiled before (%d other %s of this kind)", others,
                 others == 1 ? "entry" : "entries");
    strbuf_free(&prefix);
}

static int open_dir(void)
{
    pthread_mutex_lock(&lock);
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;
    pthread_mutex_unlock(&lock);
    return fd;
}

static void flush(const char *name);
static bool listening(void) { return ev_log_on(EVC_cache, EV_INFO) || ev_trace_on(EV_artifact); }

bool disk_get(const disk_item *it, strbuf *out, char why[DISK_WHY])
{
    strbuf name = { 0 }, want = { 0 };
    struct stat st;
    size_t n = 0;
    bool ok = false;
    char *p = NULL;
    why[0] = 0;
    if (!disk_on(why))
        return false;
    int at = open_dir();
    name_of(it, &name);
    flush(name.s);
    if (at < 0) {
        snprintf(why, DISK_WHY, "the cache directory is gone: %s", strerror(errno));
        goto done;
    }
    p = read_ours(at, name.s, ENTRY_LIMIT, &n, &st, why);
    if (!p) {
        if (!why[0] && listening())
            explain_miss(at, it, why);
        else if (!why[0])
            snprintf(why, DISK_WHY, "there is no entry");
        goto done;
    }
    const char *payload = NULL, *head = check(p, n, true, &payload, why);
    if (!head) {
        unlinkat(at, name.s, 0);
        goto done;
    }
    add_line(&want, "kind", it->kind);
    add_line(&want, "id", it->id);
    strbuf_add(&want, it->config);
    if ((size_t)(payload - head) < want.n || memcmp(head, want.s, want.n)) {
        snprintf(why, DISK_WHY, "refused: it was made for something else than its name says");
        unlinkat(at, name.s, 0);
        goto done;
    }
    strbuf_addn(out, payload, n - (size_t)(payload - p));
    utimensat(at, name.s, NULL, AT_SYMLINK_NOFOLLOW); /* used now */
    ok = true;
done:
    if (at >= 0)
        close(at);
    if (why[0] && (strstr(why, "refused") || strstr(why, "damaged")))
        ev_log(EVC_inductor, EV_WARNING, NULL, "entry %s of the disk cache is not used and made again; %s",
               strbuf_str(&name), why);
    free(p);
    strbuf_free(&name);
    strbuf_free(&want);
    return ok;
}

void disk_refuse(const disk_item *it, const char *why)
{
    strbuf name = { 0 };
    int at = open_dir();
    name_of(it, &name);
    flush(name.s);
    if (at >= 0) {
        unlinkat(at, name.s, 0);
        close(at);
    }
    ev_log(EVC_inductor, EV_WARNING, NULL, "entry %s of the disk cache is not used and made again; %s",
           strbuf_str(&name), why);
    strbuf_free(&name);
}

/* --- room
 * ----------------------------------------------------------------------------------------------------------- */
typedef struct aged {
    char *file;
    int64_t bytes, sec, nsec;
} aged;
typedef VEC(aged) aged_list;

static int by_age(const void *a, const void *b)
{
    const aged *x = a, *y = b;
    if (x->sec != y->sec)
        return x->sec < y->sec ? -1 : 1;
    return (x->nsec > y->nsec) - (x->nsec < y->nsec);
}

static int64_t list_dir(int at, aged_list *l) /* oldest first; the bytes */
{
    int fd = dup(at);
    int64_t sum = 0;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d)
        rewinddir(d);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(at, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        aged a = { mem_strdup(e->d_name), st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
        sum += a.bytes;
        vec_push(l, a);
    }
    if (d)
        closedir(d);
    if (l->n)
        qsort(l->at, l->n, sizeof *l->at, by_age);
    return sum;
}

static void list_free(aged_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->at[i].file);
    vec_free(l);
}

#define TMP ".tmp." /* in names of files that are being written */

/* The least recently used entries go until `more` bytes have room. */
static void make_room(int at, int64_t more)
{
    aged_list l = { 0 };
    int64_t sum = list_dir(at, &l), limit = disk_limit();
    for (size_t i = 0; i < l.n && sum + more > limit; i++)
        if (!unlinkat(at, l.at[i].file, 0))
            sum -= l.at[i].bytes;
    list_free(&l);
}

/* An entry on its way to the disk. The directory is the one of the moment when it was asked for. */
typedef struct entry {
    struct entry *next;
    int at;
    char *name, *head, *what;
    size_t nhead;
    const void *p; /* owned where it waits in the queue */
    size_t n;
} entry;

static bool entry_init(entry *x, const disk_item *it, const void *p, size_t n)
{
    strbuf name = { 0 }, head = { 0 };
    char why[DISK_WHY];
    *x = (entry){ .at = -1, .p = p, .n = n };
    if (put_failed || (int64_t)n > MIN(disk_limit(), (int64_t)ENTRY_LIMIT) || !disk_on(why) ||
        (x->at = open_dir()) < 0)
        return false;
    add_line(&head, "kind", it->kind);
    add_line(&head, "id", it->id);
    strbuf_add(&head, it->config);
    add_line(&head, "what", it->what ? it->what : "");
    strbuf_addc(&head, '\n');
    name_of(it, &name);
    x->nhead = head.n;
    x->head = strbuf_take(&head);
    x->name = strbuf_take(&name);
    x->what = mem_strdup(it->what ? it->what : "?");
    return true;
}

static void entry_end(entry *x)
{
    close(x->at);
    free(x->name);
    free(x->head);
    free(x->what);
}

static bool entry_write(const entry *x)
{
    static atomic_uint serial;
    strbuf tmp = { 0 };
    char hex[33];
    unsigned mine = serial++;
    if (!(mine % 32)) /* now and then */
        make_room(x->at, (int64_t)x->n);
    checksum(x->head, x->nhead, x->p, x->n, hex);
    strbuf_addf(&tmp, "%s" TMP "%d.%u", x->name, (int)getpid(), mine);
    int fd = openat(x->at, tmp.s, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool ok = fd >= 0 && fd_write_all(fd, MAGIC, strlen(MAGIC)) && fd_write_all(fd, hex, 32) &&
              fd_write_all(fd, "\n", 1) && fd_write_all(fd, x->head, x->nhead) &&
              fd_write_all(fd, x->p, x->n);
    int e = errno;
    if (fd >= 0 && close(fd) && ok) {
        ok = false;
        e = errno;
    }
    if (ok && renameat(x->at, tmp.s, x->at, x->name)) {
        ok = false;
        e = errno;
    }
    if (!ok) {
        if (fd >= 0)
            unlinkat(x->at, tmp.s, 0);
        if (!atomic_exchange(&put_failed, true))
            ev_log(EVC_inductor, EV_WARNING, NULL, "nothing more is written to the disk cache in '%s': %s",
                   dir, strerror(e));
    } else if (ev_log_on(EVC_cache, EV_INFO))
        ev_log(EVC_cache, EV_INFO, NULL, "disk cache: wrote %s for %s (%zu bytes)", x->name, x->what, x->n);
    strbuf_free(&tmp);
    return ok;
}

bool disk_put(const disk_item *it, const void *p, size_t n)
{
    entry x;
    if (!entry_init(&x, it, p, n))
        return false;
    bool ok = entry_write(&x);
    entry_end(&x);
    return ok;
}

/* --- later
 * ---------------------------------------------------------------------------------------------------------- */
/* Making a file takes longer than compiling a kernel, so a thread of its own does it while the program goes on. The process
 * does not end before what it asked for is written; whoever looks for an entry that waits, waits as well. */
enum { MOST_WAITING = 64, LINGER_MS = 200 };
static struct {
    pthread_mutex_t lock;
    pthread_cond_t more, done;
    entry *first, **last;
    int waiting;
    const entry *now; /* being written */
    bool runs;
} queue = { .lock = PTHREAD_MUTEX_INITIALIZER,
            .more = PTHREAD_COND_INITIALIZER,
            .done = PTHREAD_COND_INITIALIZER };

/* Under the lock, which is released meanwhile. */
static void write_first(void)
{
    entry *x = queue.first;
    queue.first = x->next;
    queue.waiting--;
    queue.now = x;
    pthread_mutex_unlock(&queue.lock);
    entry_write(x);
    pthread_mutex_lock(&queue.lock);
    queue.now = NULL;
    pthread_cond_broadcast(&queue.done);
    entry_end(x);
    free((void *)(uintptr_t)x->p);
    free(x);
}

static void *writer(void *unused)
{
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){ 0 });
    pthread_mutex_lock(&queue.lock);
    for (int rc = 0; queue.first || !rc;) {
        struct timespec t;
        if (queue.first && !queue.now) {
            write_first();
            continue;
        }
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += LINGER_MS * 1000000;
        t.tv_sec += t.tv_nsec / 1000000000;
        t.tv_nsec %= 1000000000;
        rc = pthread_cond_timedwait(&queue.more, &queue.lock, &t);
    }
    queue.runs = false;
    pthread_mutex_unlock(&queue.lock);
    return unused;
}

static void flush(const char *name) /* NULL: all of it */
{
    pthread_mutex_lock(&queue.lock);
    for (;;) {
        bool there = !name && (queue.first || queue.now);
        for (const entry *x = name ? queue.first : NULL; x; x = x->next)
            there |= !strcmp(x->name, name);
        there |= name && queue.now && !strcmp(queue.now->name, name);
        if (!there)
            break;
        if (queue.now)
            pthread_cond_wait(&queue.done, &queue.lock);
        else
            write_first();
    }
    pthread_mutex_unlock(&queue.lock);
}

static void fork_lock(void) { pthread_mutex_lock(&queue.lock); }
static void fork_unlock(void) { pthread_mutex_unlock(&queue.lock); }
static void fork_child(void) /* what waits is the parent's */
{
    pthread_mutex_init(&queue.lock, NULL);
    pthread_cond_init(&queue.more, NULL);
    pthread_cond_init(&queue.done, NULL);
    queue.first = NULL;
    queue.now = NULL;
    queue.waiting = 0;
    queue.runs = false;
}
static void flush_all(void) { flush(NULL); }
static void set_up(void)
{
    pthread_atfork(fork_lock, fork_unlock, fork_child);
    atexit(flush_all);
}

/* Under the lock. */
static bool writer_runs(void)
{
    if (!queue.runs)
        queue.runs = thread_apart(writer, NULL);
    return queue.runs;
}

void disk_put_later(const disk_item *it, strbuf *take)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    entry *x = mem_alloc(sizeof *x);
    size_t n = take->n;
    char *p = strbuf_take(take);
    if (!entry_init(x, it, p, n)) {
        free(p);
        free(x);
        return;
    }
    pthread_once(&once, set_up);
    pthread_mutex_lock(&queue.lock);
    /* in order where somebody reads along */
    bool now = listening() || pool_threads() < 2 || queue.waiting >= MOST_WAITING || !writer_runs();
    if (!now) {
        if (!queue.first)
            queue.last = &queue.first;
        *queue.last = x;
        queue.last = &x->next;
        queue.waiting++;
        pthread_cond_signal(&queue.more);
    }
    pthread_mutex_unlock(&queue.lock);
    if (!now)
        return;
    entry_write(x);
    entry_end(x);
    free(p);
    free(x);
}

/* --- for the command
 * ------------------------------------------------------------------------------------------------ */
static char *value(const char *head, const char *name) /* owned */
{
    size_t n = 0;
    const char *v = head ? line_of(head, name, &n) : NULL;
    return mem_strndup(v ? v : "", n);
}

static int open_private(tp_err *err) /* -1: there is none, or err is set */
{
    flush(NULL);
    char *d = disk_dir(err);
    int at = -1;
    if (d && file_exists(d) && file_private_dir(d, err)) {
        at = open(d, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (at < 0)
            err_set(err, ERR_os, "cannot open '%s': %s", d, strerror(errno));
    }
    free(d);
    return at;
}

bool disk_each(bool deep, void (*fn)(void *data, const disk_entry *e), void *data, tp_err *err)
{
    aged_list l = { 0 };
    int at = open_private(err);
    if (at < 0)
        return !err_is_set(err);
    list_dir(at, &l);
    for (size_t i = l.n; i-- > 0;) {
        char why[DISK_WHY] = "";
        size_t n = 0;
        struct stat st = { 0 };
        if (strstr(l.at[i].file,
                   TMP)) /* no entry yet, or never: somebody writes it, or was killed meanwhile */
            continue;
        const char *payload = NULL;
        char *p = read_ours(at, l.at[i].file, deep ? ENTRY_LIMIT : HEAD_LIMIT, &n, &st, why);
        const char *head = p ? check(p, n, deep, &payload, why) : NULL;
        char *config = head ? mem_strndup(head, (size_t)(payload - head)) : mem_strdup("");
        disk_entry e = {
            .file = l.at[i].file, .bytes = l.at[i].bytes, .used = l.at[i].sec, .config = config
        };
        char *kind = value(head, "kind"), *id = value(head, "id"), *what = value(head, "what");
        e.kind = kind;
        e.id = id;
        e.what = what;
        strbuf name = { 0 };
        strbuf_addf(&name, "%s-%.32s-", kind, id);
        if (head && strncmp(name.s, e.file, name.n))
            snprintf(why, sizeof why, "it was made for something else than its name says");
        e.bad = why[0] ? why : NULL;
        fn(data, &e);
        strbuf_free(&name);
        free(kind);
        free(id);
        free(what);
        free(config);
        free(p);
    }
    list_free(&l);
    close(at);
    return true;
}

bool disk_clear(int *n, int64_t *bytes, tp_err *err)
{
    aged_list l = { 0 };
    int at = open_private(err);
    bool ok = true;
    *n = 0;
    *bytes = 0;
    if (at < 0)
        return !err_is_set(err);
    list_dir(at, &l);
    for (size_t i = 0; i < l.n; i++) {
        if (unlinkat(at, l.at[i].file, 0)) {
            ok = err_set(err, ERR_os, "cannot remove '%s': %s", l.at[i].file, strerror(errno));
            continue;
        }
        ++*n;
        *bytes += l.at[i].bytes;
    }
    list_free(&l);
    close(at);
    return ok;
}
