#include "base/err.h"
#include <stdio.h>

static const struct {
    const char *cls;
    int code;
} rows[] = {
#define ERR(name, cls, code) { cls, code },
#include "base/err.def"
};

const char *err_class(err_kind k) { return rows[k].cls; }
int err_exit_code(err_kind k) { return rows[k].code; }
void err_clear(tp_err *e) { e->kind = ERR_none, e->line = 0, e->file[0] = e->msg[0] = e->notes[0] = 0; }

static void cut(char *buf, size_t cap, int n)
{
    if (n >= 0 && (size_t)n >= cap)
        memcpy(buf + cap - 4, "...", 4);
}

bool err_setv(tp_err *e, err_kind k, const char *fmt, va_list ap)
{
    if (!e || e->kind != ERR_none)
        return false;
    err_clear(e);
    e->kind = k;
    cut(e->msg, sizeof e->msg, vsnprintf(e->msg, sizeof e->msg, fmt, ap));
    return false;
}

bool err_set(tp_err *e, err_kind k, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    err_setv(e, k, fmt, ap);
    va_end(ap);
    return false;
}

bool err_note(tp_err *e, const char *fmt, ...)
{
    if (!e)
        return false;
    size_t n = strlen(e->notes);
    if (n && n + 1 < sizeof e->notes)
        e->notes[n++] = '\n', e->notes[n] = 0;
    va_list ap;
    va_start(ap, fmt);
    cut(e->notes + n, sizeof e->notes - n, vsnprintf(e->notes + n, sizeof e->notes - n, fmt, ap));
    va_end(ap);
    return false;
}

bool err_place(tp_err *e, const char *file, int line, const char *func)
{
    if (e) {
        snprintf(e->func, sizeof e->func, "%s", func ? func : "");
        snprintf(e->file, sizeof e->file, "%s", file ? file : "");
        e->line = line;
    }
    return false;
}
