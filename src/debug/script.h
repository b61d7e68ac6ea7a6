/* script.h - a repro as a Python script that needs only `import taper`, and as a C file that needs only a C compiler. */
#ifndef TAPER_SCRIPT_H
#define TAPER_SCRIPT_H
#include "debug/bundle.h"

typedef struct script_opts {
    const char *command; /* what it does without arguments: run, minify, minifier-query; NULL: run */
    const char *
        save_dir; /* the bundle whose bytes it reads; NULL: small inputs inside, random numbers for the rest */
    const char *tracing_mode; /* real, fake, symbolic; NULL: symbolic where sizes are */
    const char *check_str;    /* text the exception must contain, or NULL */
    const char *compiler;     /* a name for the comment on top, or NULL: the backend's */
    bool stable;              /* the same bytes from every run: nothing about the machine or its settings */
    bool no_data;             /* constants are random numbers, too */
} script_opts;
void script_python(strbuf *out, const repro *r, const signature *s, const script_opts *o);

/* The kernels that the backend makes of r, their inputs, the values eager gives, and a main() that exits with 1 and says
 * what differs. False with err when r makes no kernels (or data too big to hold): then nothing is appended. */
bool script_c(strbuf *out, const repro *r, const signature *s, tp_err *err);
#endif
