/* wrap.h - what stands around a backend while failures are hunted (docs/debugging.md). After capture it is put around the
 * whole backend, behind the autograd stage around the compiler of each forward and backward graph. */
#ifndef TAPER_WRAP_H
#define TAPER_WRAP_H
#include "debug/script.h"
#include "compile/backend.h"

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

enum { DUMP_graph = 1, DUMP_launcher = 2 };
/* Saves r: the bundle, and by `what` checkpoints/<n>.py with copies repro.py and repro.c in the working directory, or
 * minifier_launcher.py. The script to run (owned), or NULL after one warning when it cannot be written. */
char *debug_dump(const repro *r, const signature *s, int what, const char *compiler);
/* Where the last failure of this thread was saved; forgotten when taken. Owned by the caller; NULL: nothing was. */
char *debug_take_path(void);

/* Compiles g by b, saves what fails, and returns a program that does so when it runs; the program itself where nothing is
 * asked. what: "forward", "backward" or "inference" where b is the inner backend of another one; else NULL. NULL with
 * c->err, which stays what it was. Sets c->watch where settings ask for it. */
run_program *debug_compile(tp_comp *c, const backend *b, const ir_graph *g, const tp_val *example,
                           const char *what);
#endif
