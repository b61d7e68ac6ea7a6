/* bytes.h - the memory of tensors, of arenas and of scratch: where bytes come from and where they go.
 * Small blocks are recycled per thread, large ones lie side by side in regions of huge pages. */
#ifndef TAPER_BYTES_H
#define TAPER_BYTES_H
#include "base/base.h"

void *bytes_new(int64_t n);          /* 64-byte aligned, n > 0; NULL: out of memory */
void bytes_free(void *p, int64_t n); /* n as it was asked for */

/* Memory that one user keeps for its next call, grown when more is asked for; what was in it is lost then. */
typedef struct bytes_kept {
    void *p;
    int64_t n;
} bytes_kept;
void *bytes_keep(bytes_kept *k, int64_t n); /* at least n bytes, or NULL: out of memory */

size_t bytes_regions(void); /* address space held in regions, for tests */
void bytes_trim(void);      /* gives back what is kept for later */
void bytes_settle(void);    /* waits for the thread that touches pages ahead, for tests */
#endif
