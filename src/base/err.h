/* err.h - the one error type: kind, message, place, notes added on the way up. Held inline. */
#ifndef TAPER_ERR_H
#define TAPER_ERR_H
#include "base/base.h"
#include <stdarg.h>

typedef enum {
#define ERR(name, cls, code) ERR_##name,
#include "base/err.def"
    ERR_COUNT
} err_kind;

typedef struct tp_err {
    err_kind kind; /* ERR_none: nothing has failed */
    int line;      /* place in the user's file, 0 when unknown */
    char file[160];
    char func[64];   /* the function of that line; empty when unknown */
    char msg[1024];  /* longer messages end in "..." */
    char notes[512]; /* newline-separated, innermost first */
} tp_err;

/* Fill err (NULL allowed) and return false, so that `return err_set(...)` works. The first error wins. */
bool err_set(tp_err *e, err_kind k, const char *fmt, ...) TP_PRINTF(3, 4);
bool err_setv(tp_err *e, err_kind k, const char *fmt, va_list ap);
bool err_note(tp_err *e, const char *fmt, ...) TP_PRINTF(2, 3);          /* returns false */
bool err_place(tp_err *e, const char *file, int line, const char *func); /* func may be NULL; returns false */
void err_clear(tp_err *e);
const char *err_class(err_kind k); /* Python class name, e.g. "RuntimeError" */
int err_exit_code(err_kind k);
static inline bool err_is_set(const tp_err *e) { return e->kind != ERR_none; }
#endif
