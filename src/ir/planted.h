/* planted.h - faults planted on operators that earlier stages replace by others (base/fault.h): the node whose value stands
 * for such an operator says so in its meta, which copies and text keep. Nothing here happens unless a fault is planted. */
#ifndef TAPER_PLANTED_H
#define TAPER_PLANTED_H
#include "base/fault.h"
#include "ir/graph.h"

/* n's value is from now on what `op` gave, for planted faults; "": no operator's, not even its own. */
void ir_stand_for(ir_node *n, const char *op);
/* The same for the result of a call of `op`, or of what the node `from` (may be NULL) stood for, where a stage still to come
 * has a fault for it and the call made the result: nodes from number `since` on. */
void ir_pass_on(ir_node *result, int since, const char *op, const ir_node *from);
/* The operator n stands for: what was said, else its own row's name; "" for nodes that call nothing. */
const char *ir_stands_for(const ir_node *n, char *buf, size_t cap);
bool ir_is_marked(const ir_node *n); /* it was said what it stands for */
fault_kind ir_fault_at(const char *stage, const ir_node *n);
#endif
