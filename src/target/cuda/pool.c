/* pool.c - blocks in segments, split and joined again. Requests up to 1 MB share segments of 2 MB, those up to 10 MB segments
 * of 20 MB; larger ones get their own, of whole 2 MB. */
#include "target/cuda/pool.h"
#include "base/map.h"
#include <pthread.h>

enum { UNIT = 512 };
#define MB ((size_t)1 << 20)

typedef struct block {
    uint64_t at;
    size_t size;
    void *queue;
    bool used, small;
    struct block *prev, *next;           /* neighbours in the segment */
    struct block *free_prev, *free_next; /* in the list of free blocks  */
} block;
struct cuda_pool {
    cuda_pool_ops ops;
    void *ctx;
    pthread_mutex_t lock;
    map used;   /* address -> block */
    map kept;   /* queue -> how many recordings use its memory */
    block free; /* head of a ring  */
    cuda_pool_stats s;
};

cuda_pool *cuda_pool_new(const cuda_pool_ops *ops, void *ctx)
{
    cuda_pool *p = mem_zalloc(sizeof *p);
    p->ops = *ops, p->ctx = ctx;
    p->free.free_prev = p->free.free_next = &p->free;
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

static void unlist(block *b)
{
    b->free_prev->free_next = b->free_next;
    b->free_next->free_prev = b->free_prev;
}
static void enlist(cuda_pool *p, block *b)
{
    b->used = false;
    b->free_next = p->free.free_next, b->free_prev = &p->free;
    b->free_next->free_prev = b->free_prev->free_next = b;
}

/* The smallest free block of the queue that holds n bytes. A large one is not given to a small request. */
static block *find(cuda_pool *p, size_t n, bool small, void *queue)
{
    block *best = NULL;
    for (block *b = p->free.free_next; b != &p->free; b = b->free_next)
        if (b->queue == queue && b->small == small && b->size >= n && (!best || b->size < best->size))
            best = b;
    /* a segment of its own is not split for something much smaller */
    return best && !small && best->size > 20 * MB && best->size > 2 * n ? NULL : best;
}

static block *segment(cuda_pool *p, size_t n, bool small, void *queue)
{
    size_t size = small ? 2 * MB : n <= 10 * MB ? 20 * MB : (n + 2 * MB - 1) & ~(2 * MB - 1);
    uint64_t at = p->ops.alloc(p->ctx, size);
    if (!at)
        return NULL;
    block *b = mem_zalloc(sizeof *b);
    *b = (block){ .at = at, .size = size, .queue = queue, .small = small };
    p->s.reserved += size;
    p->s.reserved_peak = MAX(p->s.reserved_peak, p->s.reserved);
    p->s.nsegment++;
    enlist(p, b);
    return b;
}

static void empty(cuda_pool *p)
{
    p->ops.wait(p->ctx);
    for (block *b = p->free.free_next, *next; b != &p->free; b = next) {
        next = b->free_next;
        if (b->prev || b->next || (p->kept.n && map_getn(&p->kept, &b->queue, sizeof b->queue)))
            continue;
        unlist(b);
        p->ops.free(p->ctx, b->at);
        p->s.reserved -= b->size;
        p->s.nsegment--;
        free(b);
    }
}

static void split(cuda_pool *p, block *b, size_t n)
{
    if (b->size - n < (b->small ? (size_t)UNIT : MB))
        return;
    block *rest = mem_zalloc(sizeof *rest);
    *rest = (block){
        .at = b->at + n, .size = b->size - n, .queue = b->queue, .small = b->small, .prev = b, .next = b->next
    };
    if (b->next)
        b->next->prev = rest;
    b->next = rest;
    b->size = n;
    enlist(p, rest);
}

uint64_t cuda_pool_alloc(cuda_pool *p, size_t n, void *queue)
{
    if (n > (size_t)1 << 56)
        return 0;
    n = MAX((n + UNIT - 1) & ~(size_t)(UNIT - 1), (size_t)UNIT);
    bool small = n <= MB;
    pthread_mutex_lock(&p->lock);
    block *b = find(p, n, small, queue);
    if (!b)
        b = segment(p, n, small, queue);
    if (!b) {
        empty(p);
        p->s.nretry++;
        b = segment(p, n, small, queue);
    }
    uint64_t at = 0;
    if (b) {
        unlist(b);
        split(p, b, n);
        b->used = true;
        map_putn(&p->used, &b->at, sizeof b->at, b);
        p->s.allocated += b->size;
        p->s.allocated_peak = MAX(p->s.allocated_peak, p->s.allocated);
        p->s.nalloc++;
        at = b->at;
    } else
        p->s.noom++;
    pthread_mutex_unlock(&p->lock);
    return at;
}

/* b takes in its right neighbour. */
static void join(block *b)
{
    block *r = b->next;
    b->size += r->size;
    b->next = r->next;
    if (r->next)
        r->next->prev = b;
    free(r);
}

void cuda_pool_free(cuda_pool *p, uint64_t at)
{
    pthread_mutex_lock(&p->lock);
    block *b = map_deln(&p->used, &at, sizeof at);
    assert(b);
    if (b) {
        p->s.allocated -= b->size;
        p->s.nfree++;
        if (b->next && !b->next->used) {
            unlist(b->next);
            join(b);
        }
        if (b->prev && !b->prev->used) {
            b = b->prev;
            unlist(b);
            join(b);
        }
        enlist(p, b);
    }
    pthread_mutex_unlock(&p->lock);
}

size_t cuda_pool_size(cuda_pool *p, uint64_t at)
{
    pthread_mutex_lock(&p->lock);
    block *b = map_getn(&p->used, &at, sizeof at);
    size_t n = b ? b->size : 0;
    pthread_mutex_unlock(&p->lock);
    return n;
}

void cuda_pool_keep(cuda_pool *p, void *queue, bool keep)
{
    pthread_mutex_lock(&p->lock);
    intptr_t n = (intptr_t)map_getn(&p->kept, &queue, sizeof queue) + (keep ? 1 : -1);
    if (n > 0)
        map_putn(&p->kept, &queue, sizeof queue, (void *)n);
    else
        map_deln(&p->kept, &queue, sizeof queue);
    pthread_mutex_unlock(&p->lock);
}

void cuda_pool_empty(cuda_pool *p)
{
    pthread_mutex_lock(&p->lock);
    empty(p);
    pthread_mutex_unlock(&p->lock);
}

cuda_pool_stats cuda_pool_stats_of(cuda_pool *p)
{
    pthread_mutex_lock(&p->lock);
    cuda_pool_stats s = p->s;
    for (block *b = p->free.free_next; b != &p->free; b = b->free_next)
        s.inactive += b->prev || b->next ? b->size : 0;
    pthread_mutex_unlock(&p->lock);
    return s;
}

void cuda_pool_reset_peaks(cuda_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->s.allocated_peak = p->s.allocated, p->s.reserved_peak = p->s.reserved;
    pthread_mutex_unlock(&p->lock);
}

void cuda_pool_delete(cuda_pool *p)
{
    block *first = NULL; /* of every segment, linked through free_next */
    for (size_t i = 0; i < p->used.cap; i++)
        if (map_slot_live(&p->used.slots[i])) {
            block *b = p->used.slots[i].val;
            if (!b->prev)
                b->free_next = first, first = b;
        }
    for (block *b = p->free.free_next, *next; b != &p->free; b = next) {
        next = b->free_next;
        if (!b->prev)
            b->free_next = first, first = b;
    }
    for (block *s = first, *after; s; s = after) {
        after = s->free_next;
        p->ops.free(p->ctx, s->at);
        for (block *b = s, *next; b; b = next)
            next = b->next, free(b);
    }
    map_free(&p->used), map_free(&p->kept);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
