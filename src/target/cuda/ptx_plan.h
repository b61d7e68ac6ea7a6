/* ptx_plan.h - how a row kernel shares its rows out over threads, before any text is written.
 * Knows vir. May not know PTX text. */
#ifndef TAPER_TARGET_CUDA_PTX_PLAN_H
#define TAPER_TARGET_CUDA_PTX_PLAN_H
#include "target/cuda/ptx.h"

enum {
    PTX_VEC = 8,
    PTX_OWN = 32,
    PTX_WARP = 32
}; /* most neighbours of a thread; most partial results of it; lanes */

typedef struct loop_facts {
    bool ordered;  /* iterations depend on one another                        */
    bool partials; /* steps of reductions with partial results                 */
    bool straight; /* no loops and variables inside, one step a reduction      */
    bool plain;    /* and no reductions                                        */
    bool loads, stores, inout;
    int size;   /* largest element of an access that counts with the loop, 0: none */
    int weight; /* instructions, about                                     */
} loop_facts;

/* How threads share a row: thread t takes elements (s * threads + t) * vec and their vec neighbours for s = 0, 1, ... Partial
 * result j of a reduction is where element j is, so a thread has `own` of them. */
typedef struct row_plan {
    int threads, vec, own;
    bool sums;     /* the kernel has reductions with partial results: else a loop is shared out plainly */
    int steps;     /* held: of each loop, so that values stay in registers; else 0      */
    int64_t n;     /* held: elements                                                    */
    bool warp;     /* a row is a warp's: no barriers of the block                       */
    vir_ref *same; /* held: by instruction, the earlier one that has its value          */
    bool *skip;    /* held: stores that a later loop overwrites                         */
    size_t weight; /* held: instructions of an element                                  */
} row_plan;

loop_facts ptx_facts(const vir *k, int loop, bool atomics); /* in ptx.c, which knows what it writes */
int ptx_buffer_of(const vir *k, const vir_ins *in);
bool ptx_is_unit(const vir *k, const vir_ins *in); /* an access of a whole vector at once */
/* Consecutive elements a thread takes in a loop without reductions. */
int ptx_elements(const loop_facts *f);
/* Steps of a row kernel's loop that are in flight at once. */
int ptx_steps(const loop_facts *f, int vec, int least);
/* So many elements, of `vec`, are aligned in every access of the loop whenever buffers are. */
int ptx_aligned_elements(const vir *k, int loop, int vec);
/* A kernel whose reductions have `part` partial results. Fills in threads and grid of p; plan->same and plan->skip are the
 * caller's to free. */
void ptx_plan_rows(const vir *k, const ptx_opts *o, ptx_kernel *p, int part, row_plan *plan);
#endif
