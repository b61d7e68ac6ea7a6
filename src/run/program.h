/* program.h - between the plan of a graph and the program that runs it, for what keeps plans on disk. */
#ifndef TAPER_RUN_PROGRAM_H
#define TAPER_RUN_PROGRAM_H
#include "loop/loop.h"
#include "compile/aot.h"
#include "run/kernel_cache.h"

/* Takes p, also when it fails. made: by step, borrowed; only those of kernels count. */
run_program *program_make(const aot_inner *in, tp_comp *c, loop_plan *p, const run_kernel **made);
/* The plan of a program made by program_make and kernel i of it; NULL for other programs. */
const loop_plan *program_plan(const run_program *p);
const run_kernel *program_kernel(const run_program *p, size_t step);

/* --- for who measures: a program of program_make that nobody else runs yet ----------------------------------------- */
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
void program_use(run_program *p, size_t step, loop_kernel *lk, const run_kernel *k);
#endif
