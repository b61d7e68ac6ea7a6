/* vmath.h - how vir/math/vmath.c (the table of fragments) and vir/math/vfunc.c (the functions) meet. */
#ifndef TAPER_LOOP_VMATH_H
#define TAPER_LOOP_VMATH_H
#include "vir/vir.h"

vir_ref vir_frag_input(vir *k, vir_type t, int n);            /* a VIR_input leaf, counted as varying */
vir_ref vmath_build(vir *k, vir_op op, vir_ref x, vir_ref y); /* the value, or 0: call libm */
/* A pair of normal numbers from two random words (i32: f32; i64: f64). */
void vmath_normal(vir *k, vir_ref a, vir_ref b, vir_ref out[2]);
#endif
