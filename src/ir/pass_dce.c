/* pass_dce.c - dead code. One walk backwards: by the time a node is met, its users are gone or stay. */
#include "ir/pass.h"

bool pass_dce(tp_comp *c, ir_graph *g)
{
    for (ir_node *n = g->last, *prev; n; n = prev) {
        prev = n->prev;
        if (!n->nuse && !ir_node_is_effect(n) && decide(c, DECIDE_dce, n))
            ir_erase(n);
    }
    return true;
}
