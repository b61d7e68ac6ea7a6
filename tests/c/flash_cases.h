/* flash_cases.h - attention of random numbers by the kernels of flash_text.h, however they are run, against sums in double. */
#ifndef TAPER_FLASH_CASES_H
#define TAPER_FLASH_CASES_H
#include "ptx_interp.h"
#include "target/cuda/flash_text.h"

typedef struct flash_case {
    dtype dt;
    int d, batch, m, n, reach; /* batch: heads of all its elements; reach 0: all */
    int gap;                   /* elements between rows that belong to somebody else */
    bool small;
    float grow; /* of q: larger scores */
    int check;  /* matrices that are compared; 0: all */
    int heads;  /* of an element of the batch; 0: 1 */
    int group;  /* so many share a head of k and v; 0: 1 */
    bool mixed; /* heads lie side by side in a row, as a projection has them */
    flash_mask mask;
    float drops; /* the share of the probabilities that is dropped */
    bool given;  /* the gradient is given the output */
    bool wide;   /* products of a warpgroup, where there is such a form */
} flash_case;

/* Runs a kernel on the buffers, which the parameters point to. False with an error. */
typedef bool flash_run(void *ctx, const flash_case *c, const flash_form *f, int64_t blocks,
                       const uint64_t *params, const ptx_buffer *bufs, int nbufs, tp_err *err);
/* All three kernels; what differs fails the test. */
void flash_check(const flash_case *c, flash_run *run, void *ctx);
#endif
