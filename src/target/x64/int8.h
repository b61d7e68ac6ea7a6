/* int8.h - linear layers with weights of eight bits, for the provider.
 * Knows rows of floats and bytes. May not know tensors' graphs. */
#ifndef TAPER_GEN_INT8_H
#define TAPER_GEN_INT8_H
#include "target/x64/gemm.h"

/* See ops_provider.linear_int8; false: this machine has no unit for bytes. */
bool gen_linear_int8(int64_t m, int64_t n, int64_t k, const float *x, const int8_t *w, const float *scale,
                     const float *bias, float *y);
const gemm_plan *gen_plan_for(const gemm_desc *d); /* from the process-wide cache (provide.c) */
#endif
