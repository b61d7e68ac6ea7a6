/* crumb.h - what the process is doing, kept in a file that outlives it: TAPER_CRUMBS=FILE. After a crash or a hang somebody
 * else reads there which stage, and which pass, kernel or call of it, was the last, at which node and line, and where the address
 * lies that was touched. Off, a crumb costs one branch. */
#ifndef TAPER_CRUMB_H
#define TAPER_CRUMB_H
#include "base/base.h"
#include "base/strbuf.h"

enum { CRUMB_BUFFERS = 12 };
#define CRUMB_PROGRAM "program"           /* a stage: between compiled functions */
#define CRUMB_BACKEND "backend in Python" /* a stage: code of the program's runs, or of a package */
#define CRUMB_TAPE    "backward"          /* an operator: gradients go from step to step */
typedef struct crumb {
    uint64_t n;         /* how many were dropped: it stands still while nothing goes on */
    char stage[40];     /* "graph pass", "kernel", ...; empty: none yet */
    char what[120];     /* its name */
    char function[160]; /* the compiled function that was called last, NAME@FILE:LINE, or empty */
    char node[80];      /* the node or instruction that it works on, or empty */
    char file[200];     /* the user's line */
    int line;
    char eager[80]; /* between compiled functions: the operator that runs, or empty */
    int nbuf;       /* memory that a kernel was given */
    struct {
        uint64_t at, bytes;
        char name[24];
    } buf[CRUMB_BUFFERS];
    int signal;       /* that ended the process, 0: none did */
    uint64_t address; /* which it touched */
    uint64_t code;    /* where the instruction lies */
} crumb;

extern int crumb_state; /* private: -1 not asked yet, 0 off, 1 on */
void crumb_put(const char *stage, const char *what);
void crumb_put_function(const char *name); /* the one that is called now */
void crumb_put_eager(const char *op);
void crumb_put_node(const char *name, const char *file, int line);
void crumb_put_buffer(const char *name, const void *at, size_t bytes);
static inline void crumb_drop(const char *stage, const char *what)
{
    if (TP_UNLIKELY(crumb_state))
        crumb_put(stage, what);
}
/* What the stage that was dropped last is at. */
static inline void crumb_node(const char *name, const char *file, int line)
{
    if (TP_UNLIKELY(crumb_state > 0))
        crumb_put_node(name, file, line);
}
/* An operator begins, or ends (NULL); noted between compiled functions only, whose own crumbs say more. */
static inline void crumb_eager(const char *op)
{
    if (TP_UNLIKELY(crumb_state))
        crumb_put_eager(op);
}
const char *crumb_put_between(const char *what);
/* What goes on between operators from now on (CRUMB_TAPE), or NULL: code of the program's. Returns what did before. */
static inline const char *crumb_between(const char *what)
{
    return TP_UNLIKELY(crumb_state) ? crumb_put_between(what) : NULL;
}
static inline bool crumb_on(void) { return TP_UNLIKELY(crumb_state > 0); }
bool crumb_read(const char *path, crumb *out); /* false: there is none */
/* "address 0x7f.. is 64 bytes behind the end of buffer 'x' (4096 bytes)", or nothing when no address is known. */
void crumb_describe(const crumb *c, strbuf *out);
#endif
