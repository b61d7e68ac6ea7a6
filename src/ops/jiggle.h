/* jiggle.h - TAPER_JIGGLE=SEED: what every eager kernel gives is moved by one rounding, up or down. How far results move then is how far
 * another order of operations may bring them. Off, a kernel costs one branch more. */
#ifndef TAPER_JIGGLE_H
#define TAPER_JIGGLE_H
#include "ops/op.h"
#include <stdatomic.h>

extern _Atomic int
    jiggle_reasons; /* to look further: the environment, until it was asked, and threads that have begun */
static inline bool jiggle_on(void)
{
    return atomic_load_explicit(&jiggle_reasons, memory_order_relaxed) != 0;
}
int jiggle_begin(int seed); /* on this thread alone, the same each time; 0: no more. What it was before */
void jiggle_results(const op_row *row, tp_tensor *const *res, int n);
#endif
