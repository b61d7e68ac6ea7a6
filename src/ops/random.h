/* random.h - random numbers. A generator has two sequences under one seed. Eager operators draw PyTorch's numbers from a
 * Mersenne Twister, one after the other (generator.c). Compiled code draws from Philox4x32-10, a function of seed, offset
 * and index, so that kernels draw where numbers are used, and results do not depend on the thread count. */
#ifndef TAPER_RANDOM_H
#define TAPER_RANDOM_H
#include "base/base.h"

enum { GEN_WORDS = 624, GEN_STATE_BYTES = 5056 };
#define GEN_SEED 67280421310721ull /* of generators that nobody seeded */

typedef struct gen_state { /* may be copied and put back */
    uint64_t seed;
    uint64_t offset; /* of compiled code: draws so far, in blocks of four 32-bit words */
    uint64_t rounds; /* how often the words were replaced */
    double normal;   /* the second normal number of a pair, where has_normal */
    bool has_normal, seeded;
    bool counted; /* eager operators draw as compiled code does: where a graph that ran compiled runs again */
    bool narrow;  /* float64 tensors get the numbers of float32 ones: where a graph runs again in float64 */
    int left, next;
    uint32_t word[GEN_WORDS];
} gen_state;

typedef struct tp_gen {
    int refs;
    gen_state s;
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
void gen_seed(tp_gen *g, uint64_t seed);
uint64_t gen_position(const tp_gen *g); /* another number after every draw */
uint32_t gen_u32(tp_gen *g);
uint64_t gen_u64(tp_gen *g);
double gen_uniform(tp_gen *g); /* in [0, 1), of 53 bits */
float gen_uniform_f32(tp_gen *g);
double gen_normal(tp_gen *g);
/* n >= 16 normal numbers: another algorithm than gen_normal's. round: for a 16-bit type. */
void gen_normals_f32(tp_gen *g, int64_t n, float *o, float mean, float std, bool round);
void gen_normals_f64(tp_gen *g, int64_t n, double *o, double mean, double std);
void gen_pack(const tp_gen *g, void *to);     /* GEN_STATE_BYTES, PyTorch's layout */
bool gen_unpack(tp_gen *g, const void *from); /* false: these bytes are no state */
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
