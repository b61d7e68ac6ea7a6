/* layout.h - the same graph with its convolutions, and what lies between them, in another memory layout. */
#ifndef TAPER_RUN_LAYOUT_H
#define TAPER_RUN_LAYOUT_H
#include "ir/decide.h"

/* A copy of g in which convolutions read and write `to`; inputs and results keep their layouts, and what changes them stands
 * at the ends of chains. NULL: there is nothing to change, or it cannot be done (err says why). */
ir_graph *layout_turn(const ir_graph *g, memfmt to, tp_err *err);
/* The same for a machine whose convolutions are faster so (caps.images_last), where that moves far fewer elements than those
 * convolutions would turn around by themselves; NULL: as it is. */
ir_graph *layout_choose(tp_comp *c, const ir_graph *g);
/* Of a convolution or its gradient: how many of its first arguments are images; 0: n is neither. */
int layout_images(const ir_node *n);
/* Its decomposition depends on the layout of its images: it waits until that is chosen. */
bool layout_waits(op_id op);
#endif
