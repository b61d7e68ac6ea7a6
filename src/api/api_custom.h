/* api_custom.h - calls of custom operators built into a graph. */
#ifndef TAPER_API_CUSTOM_H
#define TAPER_API_CUSTOM_H
#include "base/json.h"
#include "ir/graph.h"
#include "ops/custom.h"

/* arg: in node form, all of them, in schema order. NULL with err. */
ir_node *custom_build(ir_graph *g, const op_custom *o, const tp_val *arg, int n, tp_err *err);
#endif
