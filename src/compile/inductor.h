/* inductor.h - pure graphs to programs of kernels. */
#ifndef TAPER_COMPILE_INDUCTOR_H
#define TAPER_COMPILE_INDUCTOR_H
#include "compile/backend.h"
#include "run/program.h"

extern const backend backend_inductor;
run_program *inductor_compile(tp_comp *c, const ir_graph *g); /* NULL with c->err */
/* The last part of it, for plans from the disk cache. Takes p, also when it fails. made: by step, borrowed; only those of
 * kernels count. */
run_program *inductor_program(tp_comp *c, loop_plan *p, const target_code *const *made);
#endif
