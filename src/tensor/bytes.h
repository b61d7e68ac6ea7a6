/* bytes.h - the memory of tensors: where bytes come from and where they go.
 * Small blocks are recycled per thread, large ones lie side by side in regions of huge pages.
 * May not know tensors. */
#ifndef TAPER_TENSOR_BYTES_H
#define TAPER_TENSOR_BYTES_H
#include "base/base.h"

void *bytes_new(int64_t n);          /* 64-byte aligned, n > 0; NULL: out of memory */
void bytes_free(void *p, int64_t n); /* n as it was asked for */
size_t bytes_regions(void);          /* address space held in regions, for tests */
void bytes_trim(void);               /* gives back what is kept for later */
#endif
