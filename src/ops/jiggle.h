/* jiggle.h - TAPER_JIGGLE=SEED: what every eager kernel gives is moved by one rounding, up or down. How far results move then is how far
 * another order of operations may bring them. Off, a kernel costs one branch more. */
#ifndef TAPER_JIGGLE_H
#define TAPER_JIGGLE_H
#include "ops/op.h"

extern int jiggle_state;    /* -1 not asked yet, 0 off, else the seed */
int jiggle_begin(int seed); /* from here on, on this thread the same each time; what it was before */
void jiggle_results(const op_row *row, tp_tensor *const *res, int n);
#endif
