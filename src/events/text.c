/* text.c - the sink for people: lines on standard error and in TAPER_LOGS_OUT. */
#define _GNU_SOURCE
#include "events/internal.h"
#include "base/envvars.h"
#include "base/file.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int out_fd = -1;
static char *format, *filter; /* NULL: not set */
static void (*writer)(void *, const char *, size_t);
static void *writer_data;

static char *copy_of(env_var v)
{
    const char *s = env_get(v);
    return s && *s ? mem_strdup(s) : NULL;
}

void ev_text_init(void)
{
    const char *out = env_get(ENV_logs_out);
    free(format);
    free(filter);
    format = copy_of(ENV_logs_format);
    filter = copy_of(ENV_logs_filter);
    if (out_fd >= 0)
        close(out_fd);
    out_fd = out && *out ? open(out, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (out && *out && out_fd < 0)
        fprintf(stderr, "%s: cannot open '%s': %m\n", env_name(ENV_logs_out), out);
}

void ev_set_writer(void (*write)(void *, const char *, size_t), void *data)
{
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    writer = write;
    writer_data = data;
    pthread_mutex_unlock(&ev_lock);
}

/* "[0/0],[1/0]" holds "[<id>]" of this compile. Lines outside any compile pass. */
static bool passes(const ev_cid *cid)
{
    strbuf id = { 0 };
    if (!filter || !cid)
        return true;
    strbuf_addc(&id, '[');
    ev_cid_print(&id, cid);
    strbuf_addc(&id, ']');
    bool hit = strstr(filter, id.s) != NULL;
    strbuf_free(&id);
    return hit;
}

static const char *level_name(int l)
{
    return l >= EV_CRITICAL  ? "CRITICAL"
           : l >= EV_ERROR   ? "ERROR"
           : l >= EV_WARNING ? "WARNING"
           : l >= EV_INFO    ? "INFO"
                             : "DEBUG";
}

typedef struct {
    int level;
    const char *component, *artifact, *file;
    int line;
    const ev_cid *cid;
    const char *text;
    bool bare;
} message;

/* "%(name)s" and its kin; anything else stands for itself. */
static void custom(strbuf *b, const char *f, const message *m)
{
    while (*f) {
        const char *end = f[0] == '%' && f[1] == '(' ? strchr(f, ')') : NULL;
        if (!end || !end[1]) {
            f += f[0] == '%' && f[1] == '%';
            strbuf_addc(b, *f++);
            continue;
        }
        const char *field = f + 2, *slash = strrchr(m->file, '/');
        size_t n = (size_t)(end - field);
#define IS(s) (n == strlen(s) && !memcmp(field, s, n))
        if (IS("levelname"))
            strbuf_add(b, level_name(m->level));
        else if (IS("levelno"))
            strbuf_addf(b, "%d", m->level);
        else if (IS("message"))
            strbuf_add(b, m->text);
        else if (IS("pathname"))
            strbuf_add(b, ev_short_file(m->file));
        else if (IS("filename"))
            strbuf_add(b, slash ? slash + 1 : m->file);
        else if (IS("lineno"))
            strbuf_addf(b, "%d", m->line);
        else if (IS("name"))
            strbuf_addf(b, "%s.%s%s%s", env_torch_alias() ? "torch" : "taper", m->component,
                        m->artifact ? ".__" : "", m->artifact ? m->artifact : "");
        else
            strbuf_addn(b, f, (size_t)(end + 2 - f));
#undef IS
        f = end + 2; /* past the conversion letter */
    }
    strbuf_addc(b, '\n');
}

static void prefixed(strbuf *b, const message *m)
{
    strbuf p = { 0 };
    const char *s = m->text;
    size_t n = strlen(s);

    if (!m->bare) {
        if (ev_rank() >= 0)
            strbuf_addf(&p, "[rank%d]:", ev_rank());
        ev_prefix(&p, ev_letter(m->level), m->file, m->line);
        if (m->cid) {
            strbuf_add(&p, " [");
            ev_cid_print(&p, m->cid);
            strbuf_addc(&p, ']');
        }
        if (m->artifact)
            strbuf_addf(&p, " [__%s]", m->artifact);
        strbuf_addc(&p, ' ');
    }
    if (n && s[n - 1] == '\n')
        n--; /* the end of the last line, not one more */
    for (size_t i = 0; i <= n;) {
        const char *nl = memchr(s + i, '\n', n - i);
        size_t len = nl ? (size_t)(nl - s) - i : n - i;
        strbuf_add(b, strbuf_str(&p));
        strbuf_addn(b, s + i, len);
        strbuf_addc(b, '\n');
        i += len + 1;
    }
    strbuf_free(&p);
}

static ev_relay_fn *relay;
void ev_relay(ev_relay_fn *fn) { relay = fn; }

static void show(const message *m)
{
    strbuf b = { 0 };
    bool wanted = !relay || relay(m->level, m->component, m->artifact, m->file, m->line, m->text);

    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    if (passes(m->cid)) {
        if (format && !m->bare)
            custom(&b,
                   !strcmp(format, "short") || !strcmp(format, "basic") ? "%(levelname)s:%(name)s:%(message)s"
                                                                        : format,
                   m);
        else
            prefixed(&b, m);
        if (writer)
            writer(writer_data, b.s, b.n);
        else if (wanted)
            fd_write_all(STDERR_FILENO, b.s, b.n);
        if (out_fd >= 0)
            fd_write_all(out_fd, b.s, b.n);
    }
    pthread_mutex_unlock(&ev_lock);
    strbuf_free(&b);
}

bool ev_listened;
static ev_listener *listener;
static void *listener_data;

void ev_listen(ev_listener *fn, void *data)
{
    ev_lock_init();
    pthread_mutex_lock(&ev_lock);
    listener = fn;
    listener_data = data;
    ev_listened = fn != NULL;
    ev_refresh();
    pthread_mutex_unlock(&ev_lock);
}

/* The listener may speak itself: not to itself. */
static void tell(const char *component, const char *artifact, const ev_cid *cid, const char *text)
{
    static _Thread_local bool telling;
    ev_listener *fn = listener;
    if (!fn || telling)
        return;
    telling = true;
    fn(listener_data, component, artifact, cid, text);
    telling = false;
}

void ev_text_at(ev_kind k, const ev_cid *cid, const char *file, int line, const char *fmt, ...)
{
    const ev_row *r = &ev_rows[k];
    strbuf b = { 0 };
    va_list ap;

    if (!ev_text_on(k))
        return;
    ev_settle();
    va_start(ap, fmt);
    strbuf_addv(&b, fmt, ap);
    va_end(ap);
    if (TP_UNLIKELY(ev_listened))
        tell(ev_crows[r->component].name, r->name, ev_cid_or_now(cid), strbuf_str(&b));
    if (!ev_listened || ev_text_wants(k))
        show(&(message){ r->level, ev_crows[r->component].name, r->name, file, line, ev_cid_or_now(cid),
                         strbuf_str(&b), r->flags & EVF_bare });
    strbuf_free(&b);
}

void ev_log_at(ev_component c, ev_level l, const ev_cid *cid, const char *file, int line, const char *fmt,
               ...)
{
    strbuf b = { 0 };
    va_list ap;

    if (!ev_log_on(c, l))
        return;
    ev_settle();
    va_start(ap, fmt);
    strbuf_addv(&b, fmt, ap);
    va_end(ap);
    if (TP_UNLIKELY(ev_listened))
        tell(ev_crows[c].name, NULL, ev_cid_or_now(cid), strbuf_str(&b));
    if (!ev_listened || (int)l >= ev_component_level(c))
        show(&(message){ l, ev_crows[c].name, NULL, file, line, ev_cid_or_now(cid), strbuf_str(&b), false });
    strbuf_free(&b);
}
