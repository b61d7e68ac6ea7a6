/* wrap.h - what stands around a backend while failures are hunted (docs/debugging.md). After capture it is put around the
 * whole backend, behind the autograd stage around the compiler of each forward and backward graph. */
#ifndef TAPER_WRAP_H
#define TAPER_WRAP_H
#include "debug/script.h"
#include "compile/aot.h"

typedef enum { AFTER_none, AFTER_dynamo, AFTER_aot, AFTER_wrong } debug_after;
typedef struct debug_config {
    uint8_t after; /* debug_after */
    int level;     /* 1 graph, 2 launcher on failure, 3 always, 4 on wrong results */
    bool forward_only, ignore_non_fp, no_fp64;
    double tol;
    char wrong[64]; /* AFTER_wrong: the value that was given */
} debug_config;
/* The settings now: the front end's where it has installed itself, else the environment's. */
debug_config debug_config_now(void);
extern void (*debug_config_read)(debug_config *c);

enum { DUMP_graph = 1, DUMP_launcher = 2 };
/* Saves r: the bundle, and by `what` checkpoints/<n>.py with copies repro.py and repro.c in the working directory, or
 * minifier_launcher.py. The script to run (owned), or NULL after one warning when it cannot be written. */
char *debug_dump(const repro *r, const signature *s, int what, const char *compiler);
/* Where the last failure of this thread was saved; forgotten when taken. Owned by the caller; NULL: nothing was. */
char *debug_take_path(void);

/* Compiles g by b (inner NULL) or by inner, saves what fails, and returns a program that does so when it runs; the program
 * itself where nothing is asked. in: real inputs, or NULL. NULL with c->err, which stays what it was. */
run_program *debug_compile(tp_comp *c, const backend *b, const aot_inner *inner, const ir_graph *g,
                           const tp_val *in, int nin, const char *what);
void debug_install(
    void); /* puts the wrapper behind the autograd stage, once settings ask for it; cheap to repeat */
#endif
