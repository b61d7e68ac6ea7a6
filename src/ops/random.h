/* random.h - Philox4x32-10 counter-based random numbers: element i of a draw depends on seed, offset and i
 * only, so results do not depend on the thread count. */
#ifndef TAPER_RANDOM_H
#define TAPER_RANDOM_H
#include "base/base.h"

typedef struct tp_gen {
    int refs;
    uint64_t seed;
    uint64_t offset; /* draws so far, in blocks of four 32-bit words */
} tp_gen;

typedef enum {
    DRAW_uniform,   /* a + u (b - a) */
    DRAW_normal,    /* a + b n */
    DRAW_lognormal, /* e^(a + b n) */
    DRAW_exp,       /* -log(1 - u) / a */
    DRAW_cauchy,    /* a + b tan(pi (u - 1/2)) */
    DRAW_geom,      /* trials until success of probability a */
    DRAW_bern,      /* u < a */
    DRAW_bern_t,    /* u < p[i] */
    DRAW_int,       /* lo + a number below span; span 0: all 64 bits */
} draw_kind;

tp_gen *gen_new(uint64_t seed);
tp_gen *gen_ref(tp_gen *g);
void gen_unref(tp_gen *g);
tp_gen *gen_default(void); /* the process-wide one; not thread-safe by itself, like Python's */
/* Reserves n blocks; returns the offset to draw from. */
uint64_t gen_reserve(tp_gen *g, uint64_t n);
/* Element-wise draws use blocks of four words: see simd/random.c for which element reads which word. */
void philox(uint64_t seed, uint64_t offset, uint64_t index, uint32_t out[4]);
static inline double u01_53(uint32_t a, uint32_t b)
{
    return (double)(((uint64_t)a << 21) ^ (b >> 11)) * 0x1p-53;
}
static inline float u01_24(uint32_t a) { return (float)(a >> 8) * 0x1p-24f; }
#endif
