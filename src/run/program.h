/* program.h - the program that runs a plan. */
#ifndef TAPER_RUN_PROGRAM_H
#define TAPER_RUN_PROGRAM_H
#include "loop/arena_plan.h"
#include "run/kernel_cache.h"
#include "run/run.h"

/* A call with nested graphs: each is a program of its own, or interpreted where it needs symbols that its inputs
 * do not tell. */
typedef struct program_nested {
    run_program *prog[2];
    ir_prog *interp[2];
    const ir_graph *g[2];
} program_nested;
void program_nested_free(program_nested *sub, size_t nstep); /* NULL is allowed */

typedef struct program_parts {
    loop_plan *plan;                  /* taken */
    const target *target;             /* that its kernels and products run on */
    loop_memory memory;               /* taken */
    const target_code *const *kernel; /* by step; only those of kernels count */
    const bool *alone;                /* by step: one thread runs all of the kernel */
    program_nested *nested;           /* by step, taken; NULL: no step has any */
    bool record;                      /* launches are recorded and replayed where the target can */
    bool keep_results; /* the memory of results is used again once the caller has let go of them */
} program_parts;
run_program *program_new(const program_parts *x);
/* The plan of a program made by program_new and kernel i of it; NULL for other programs. */
const loop_plan *program_plan(const run_program *p);
const target_code *program_kernel(const run_program *p, size_t step);

/* --- for who measures: a program of program_new that nobody else runs yet ----------------------------------------- */
typedef struct program_at program_at; /* in the middle of a run */
typedef struct program_visit { /* called before every step, and not for those that run with the one before */
    void (*fn)(void *data, program_at *at, size_t step);
    void *data;
} program_visit;
/* One run whose results nobody wants. */
bool program_look(run_program *p, op_ctx *cx, const tp_val *in, int nin, const program_visit *v, tp_err *err);
/* A kernel, a product or a row, with what runs with it, as the plan's flags and program_use say now; any number of times. */
bool program_at_run(program_at *at, size_t step, tp_err *err);
/* The memory that nstep steps write; of a row: that it wrote. */
typedef struct program_piece {
    void *p;
    int64_t bytes;
    dtype dt;
} program_piece;
int program_at_written(program_at *at, size_t step, size_t nstep, program_piece *out, int most);
/* Step i runs lk, which lies in the plan's memory, by code k. */
void program_use(run_program *p, size_t step, loop_kernel *lk, const target_code *k);
#endif
