/* checked.h - a program that looks at its inputs first: for callers that have no guards (the C interface, a backend called
 * from Python). Compiled code is made for the types, sizes, strides and shared memory that the graph says, and for what was
 * assumed of its symbols; it does not look again. */
#ifndef TAPER_RUN_CHECKED_H
#define TAPER_RUN_CHECKED_H
#include "run/run.h"

/* Takes p, which was compiled from g; copies what it needs of g. A call that does not fit is ERR_type, with the name of the
 * input. */
run_program *checked_new(run_program *p, const ir_graph *g);
/* The inputs: a graph of placeholders, borrowed. */
const ir_graph *checked_inputs(const run_program *p);
#endif
