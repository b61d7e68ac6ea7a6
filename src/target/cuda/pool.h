/* pool.h - a cache of device memory: what is freed is handed out again without asking the driver.
 * Knows addresses, sizes and the queue (stream) that a block belongs to. May not know the driver: requests go through two
 * functions, so that it is tested without a device.
 *
 * A block that is freed may still be in use by work that its queue has not done yet; it is given to requests of the same
 * queue, which come later in its order. Requests of another queue get it only after everything was waited for (OOM, empty). */
#ifndef TAPER_TARGET_CUDA_POOL_H
#define TAPER_TARGET_CUDA_POOL_H
#include "base/base.h"

typedef struct cuda_pool cuda_pool;
typedef struct cuda_pool_ops {
    uint64_t (*alloc)(void *ctx, size_t n); /* 0: there is none */
    void (*free)(void *ctx, uint64_t p);
    void (*wait)(void *ctx); /* until all queues are done */
} cuda_pool_ops;
typedef struct cuda_pool_stats {
    size_t allocated, reserved; /* bytes in use; bytes taken from the device */
    size_t allocated_peak, reserved_peak;
    size_t inactive;       /* reserved, not in use, in pieces beside pieces in use */
    int64_t nalloc, nfree; /* requests */
    int64_t nsegment, nretry,
        noom; /* requests to the device now held; after emptying the cache; that failed */
} cuda_pool_stats;

cuda_pool *cuda_pool_new(const cuda_pool_ops *ops, void *ctx);
void cuda_pool_delete(cuda_pool *p); /* gives everything back, also what is in use */
uint64_t cuda_pool_alloc(cuda_pool *p, size_t n, void *queue); /* 512-byte aligned; 0: no memory */
void cuda_pool_free(cuda_pool *p, uint64_t at);
size_t cuda_pool_size(cuda_pool *p, uint64_t at); /* of a block in use; 0: none */
void cuda_pool_empty(cuda_pool *p);               /* what is not in use goes back to the device */
cuda_pool_stats cuda_pool_stats_of(cuda_pool *p);
/* What a queue freed does not go back to the device (cuda_pool_empty, no memory) while it is kept; counted. */
void cuda_pool_keep(cuda_pool *p, void *queue, bool keep);
void cuda_pool_reset_peaks(cuda_pool *p);
#endif
