/* code_log.h - what the last stage shows of a plan: the program as C text with the user's lines, kernels, the cache. */
#ifndef TAPER_CODE_LOG_H
#define TAPER_CODE_LOG_H
#include "loop/arena_plan.h"
#include "compile/options.h"
#include "run/kernel_cache.h"

void code_log_options(const run_options *o);       /* what the compile was asked for */
void code_log_begin(const ir_graph *g);            /* before planning */
void code_log_graph(const ir_graph *g);            /* planned: the graph as rewritten for it */
void code_log_program(const loop_plan *p);         /* planned: the program as C text */
void code_log_text(strbuf *b, const loop_plan *p); /* that text; equal kernels are written once */
void code_log_kernel(const loop_kernel *lk, const target_code *rk);  /* each kernel, when it is ready */
void code_log_plan(const loop_plan *p, const target_code *const *k); /* all of it; k by step */
void code_log_memory(const loop_plan *p, const loop_memory *m);      /* what is alive at each step */
#endif
