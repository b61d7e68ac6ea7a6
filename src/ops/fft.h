/* fft.h - discrete Fourier transforms of one line, any length.
 * Lengths of small factors in stages of those; what is left is a convolution with a chirp (Bluestein) of a power of two. */
#ifndef TAPER_OPS_FFT_H
#define TAPER_OPS_FFT_H
#include "base/base.h"

typedef struct fft_plan fft_plan;
fft_plan *fft_plan_get(int64_t n, bool wide); /* wide: of doubles; one count */
void fft_plan_unref(fft_plan *p);
int64_t fft_plan_room(const fft_plan *p); /* complex numbers that a transform works in */
/* x: n complex numbers, transformed in place, without scaling; room as asked for. */
void fft_run(const fft_plan *p, void *x, void *room, bool forward);
#endif
