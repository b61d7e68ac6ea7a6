/* math.h - functions that the CPU takes from its C library, written in the vector IR. */
#ifndef TAPER_TARGET_CUDA_MATH_H
#define TAPER_TARGET_CUDA_MATH_H
#include "vir/vir.h"

/* f64: asinh, acosh, atanh, cbrt, hypot, pow; NULL: another one. Within 2 units of the last place. Made once, never freed. */
const vir_frag *cuda_math(const char *name);
#endif
