/* serve.h - pages of a running program, for a browser on this machine. */
#ifndef TAPER_CLI_SERVE_H
#define TAPER_CLI_SERVE_H
#include "base/err.h"

typedef struct serve_what {
    const char *const *paths;
    size_t n;
    bool redact;
} serve_what;
/* Answers until the process ends; port 0: any that is free. ready() is told the address. False: nothing can be served. */
bool serve(const serve_what *w, int port, void (*ready)(const char *url), tp_err *err);
#endif
