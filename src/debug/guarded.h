/* guarded.h - are the inputs of a graph those that it was compiled for? What its guards let pass though they must not. */
#ifndef TAPER_GUARDED_H
#define TAPER_GUARDED_H
#include "ir/graph.h"

#define GUARDED_TEXT "a guard let pass what it must not" /* how such a finding begins */
/* False: why gets "GUARDED_TEXT: L['x'] (l_x_) is float64, ...". */
bool guarded(const ir_graph *g, const tp_val *in, int nin, strbuf *why);
#endif
