/* program.h - between the plan of a graph and the program that runs it, for what keeps plans on disk. */
#ifndef TAPER_RUN_PROGRAM_H
#define TAPER_RUN_PROGRAM_H
#include "loop/loop.h"
#include "run/backend_aot.h"
#include "run/exec.h"

/* Takes p, also when it fails. made: by step, borrowed; only those of kernels count. */
run_program *program_make(const aot_inner *in, tp_comp *c, loop_plan *p, const run_kernel **made);
/* The plan of a program made by program_make and kernel i of it; NULL for other programs. */
const loop_plan *program_plan(const run_program *p);
const run_kernel *program_kernel(const run_program *p, size_t step);
#endif
