/* cpu.h - what the targets of the CPU share: threads, products, attention, and the numbers of its caches.
 * Knows code that this process can call. May not know how it was made. */
#ifndef TAPER_TARGET_CPU_H
#define TAPER_TARGET_CPU_H
#include "target/target.h"

/* Caps of code with vectors of 64 bytes over the caches of a server or a laptop. */
#define CPU_CAPS                                                                                           \
    .strip_far = 16, .strip_near = 64, .strip_fits = 1 << 15, .chunk = 4096, .column_chunk = 512,          \
    .scatter_chunk = 512, .park_bytes = 1 << 18, .share_worth = 65536, .share_rows = 32,                   \
    .share_rows_after = 4, .parts_worth = 1 << 18, .parts_most = 64, .parts_least = 8, .column_parts = 16, \
    .column_enough = 16, .lanes = 16
/* Where eager kernels are there too, and are better at some things than loops of vectors. */
#define CPU_LIBRARY_CAPS                                                                            \
    .gather_bytes = 4, .reverse_bytes = 4, .page_bytes = 4096, .slow_steps = true, .library = true, \
    .epilogues = true, .attends = true, .product_forms = 8
#define CPU_FUNCTIONS                                                                             \
    .launch = cpu_launch, .product = cpu_product, .convolve = cpu_convolve, .attend = cpu_attend, \
    .inside = cpu_inside

bool cpu_always(const target *t, const char **why); /* is available */
bool cpu_launch(const target_code *c, const target_args *a, tp_err *err);
bool cpu_product(const target_product *p, tp_err *err);
target_result cpu_convolve(const target_convolution *p, tp_err *err);
target_result cpu_attend(const target_attend *p, tp_err *err);
bool cpu_inside(const tp_tensor *index, int64_t lo, int64_t hi, target_late *late, bool *yes, int64_t *bad,
                tp_err *err);

/* Iterations lo to hi of the parallel loop, on this thread. */
static inline void cpu_run(const target_code *c, void *const *bufs, const int64_t *ints, const double *flts,
                           int64_t lo, int64_t hi)
{
    if (TP_LIKELY(c->fn != NULL))
        c->fn(bufs, ints, flts, lo, hi);
    else
        vir_interp(c->k, bufs, ints, flts, lo, hi, NULL);
}
#endif
