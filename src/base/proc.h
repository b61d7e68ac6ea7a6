/* proc.h - child processes: a program, or a function of ours in a forked child. Captured output, a time
 * limit, a memory limit, and nothing left running afterwards: each child leads its own process group, and
 * the whole group is killed when the child ends, whatever the reason. */
#ifndef TAPER_PROC_H
#define TAPER_PROC_H
#include "base/err.h"
#include "base/strbuf.h"

typedef struct proc proc;
typedef struct proc_spec {   /* zero means "the default" everywhere */
    const char *const *argv; /* program and arguments, NULL-terminated; searched in PATH */
    int (*fn)(void *arg);    /* or: called in a forked child; its result is the exit status */
    void *arg;
    const char *const *env; /* NAME=value..., NULL-terminated; default: inherited */
    const char *cwd;        /* default: ours */
    const char *input;      /* bytes for stdin; default: /dev/null */
    size_t n_input;
    int64_t timeout_ms;  /* default: none */
    size_t memory_limit; /* bytes of address space; default: none */
    int last_word; /* a signal to what is ended early, and a moment to say where it was; default: none */
    size_t output_limit; /* bytes kept of each output stream; default: 16 MiB; the rest is discarded */
    bool (*interrupted)(void *data); /* asked about every 50 ms: true ends the child (Ctrl-C) */
    void *data;
} proc_spec;

typedef struct proc_result {
    int status; /* exit status, or -signal */
    bool timed_out, interrupted, truncated;
    strbuf out, err; /* owned: proc_result_free */
    int64_t wall_ns;
} proc_result;

proc *proc_start(const proc_spec *s,
                 tp_err *err); /* s may go after the call, except input and argv strings */
/* Waits until one of n children has ended; its index, after which proc_end it. */
int proc_wait_any(proc **p, int n);
void proc_end(proc *p, proc_result *r); /* kills it if it still runs, fills r (may be NULL), frees p */
/* Start, wait, end. False with err set when it could not be started or was interrupted (ERR_interrupt); a
 * child that fails or times out is a result, not an error. */
bool proc_run(const proc_spec *s, proc_result *r, tp_err *err);
/* "exit status 3", "killed by signal 11 (Segmentation fault)", "no answer after 2.0 s" */
void proc_describe(strbuf *out, const proc_result *r);
void proc_result_free(proc_result *r);
#endif
