/* kept.h - kernels whose text is written by hand: assembled when they are first used on a device, then kept, in the disk cache too.
 * Knows texts and the driver. May not know what the kernels do. */
#ifndef TAPER_TARGET_CUDA_KEPT_H
#define TAPER_TARGET_CUDA_KEPT_H
#include "base/strbuf.h"
#include "target/cuda/driver.h"

typedef struct cuda_kept {
    const char *entry;                         /* also the name of the family */
    void (*write)(strbuf *out, uint32_t form); /* one entry of that name */
    uint32_t form;                             /* which of the family */
} cuda_kept;
enum { CUDA_KEPT_MOST = 8 };
/* The functions of n kernels, at most CUDA_KEPT_MOST; those that are new are assembled at once, on threads. */
bool cuda_kept_get(int device, const cuda_kept *k, int n, cuda_function *out, tp_err *err);
#endif
