/* tune.h - mode="max-autotune": the same graph compiled in several ways, the fastest kept. */
#ifndef TAPER_RUN_TUNE_H
#define TAPER_RUN_TUNE_H
#include "compile/backend.h"

typedef run_program *tune_fn(tp_comp *c, const ir_graph *g);
/* `once` with different options, measured on made-up inputs; what won is remembered in the disk cache. c->target is set, and each
 * is compiled for the target and the caps that its options ask for. Graphs with symbolic sizes are compiled as they are. */
run_program *tune_compile(tune_fn *once, tp_comp *c, const ir_graph *g);
#endif
