/* device.c - the row of tensor/device.h. */
#include "target/cuda/cuda.h"
#include "target/cuda/driver.h"

static void *row_alloc(tp_device d, int64_t nbytes, tp_err *err)
{
    return nbytes < 0 ? (err_set(err, ERR_oom, "a negative number of bytes"), NULL)
                      : cuda_alloc(d.index, (size_t)nbytes, err);
}
static void row_free(tp_device d, void *p, int64_t nbytes) { cuda_free(d.index, p); }
static bool row_copy(tp_device to, void *dst, tp_device from, const void *src, int64_t nbytes, tp_err *err)
{
    size_t n = (size_t)nbytes;
    if (to.kind != DEV_cuda)
        return cuda_copy_out(from.index, dst, src, n, err);
    if (from.kind != DEV_cuda)
        return cuda_copy_in(to.index, dst, src, n, err);
    int a = to.index < 0 ? cuda_current_device() : to.index,
        b = from.index < 0 ? cuda_current_device() : from.index;
    if (a != b && !cuda_sync(b, err)) /* what the other device was given comes first */
        return false;
    return cuda_copy(a, dst, src, n, err);
}
static bool row_fill(tp_device d, void *p, uint8_t byte, int64_t nbytes, tp_err *err)
{
    return cuda_fill(d.index, p, byte, (size_t)nbytes, err);
}
static bool row_sync(tp_device d, tp_err *err) { return cuda_sync(d.index, err); }
static int64_t row_spare(tp_device d)
{
    size_t left, total;
    cuda_pool_stats s;
    if (!cuda_memory(d.index, &left, &total, NULL))
        return 0;
    cuda_stats(d.index, &s);
    return (int64_t)(left + s.reserved - s.allocated);
}

static int index_of(tp_device d) { return d.index < 0 ? cuda_current_device() : d.index; }
static void *queue_make(tp_device d, tp_err *err)
{
    cuda_queue q = NULL;
    return cuda_queue_new(index_of(d), &q, err) ? q : NULL;
}
static void queue_free(tp_device d, void *q) { cuda_queue_free(index_of(d), q); }
static void *queue_mark(tp_device d, void *q, tp_err *err)
{
    cuda_event e = NULL;
    int i = index_of(d);
    if (!cuda_event_new(i, false, &e, err))
        return NULL;
    if (cuda_event_record(i, e, q ? q : cuda_current_queue(i), err))
        return e;
    cuda_event_free(i, e);
    return NULL;
}
static bool queue_follow(tp_device d, void *q, void *mark, tp_err *err)
{
    return cuda_queue_wait(index_of(d), q, mark, err);
}
static int mark_reached(tp_device d, void *mark, tp_err *err)
{
    bool done;
    return !cuda_event_done(index_of(d), mark, &done, err) ? -1 : done;
}
static void mark_drop(tp_device d, void *mark) { cuda_event_free(index_of(d), mark); }
static const device_queues queues = { queue_make,   queue_free,   queue_mark,
                                      queue_follow, mark_reached, mark_drop };

const device_ops cuda_device_ops = { "cuda",
                                     false,
                                     row_alloc,
                                     row_free,
                                     row_copy,
                                     row_fill,
                                     row_sync,
                                     cuda_device_count,
                                     cuda_current_device,
                                     &queues,
                                     row_spare };
