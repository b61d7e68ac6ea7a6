/* device.h - memory by kind of device: a table of operations.
 * Knows addresses and bytes. May not know tensors. The CPU and "meta" (no bytes at all) are always there; a device that a
 * target brings registers its row when the library is loaded. A row that was never registered refuses every request with
 * an error that says so. */
#ifndef TAPER_DEVICE_H
#define TAPER_DEVICE_H
#include "base/base.h"
#include "base/err.h"
#include "base/strbuf.h"

typedef enum { DEV_cpu, DEV_cuda, DEV_meta, DEV_COUNT } dev_kind;
typedef struct tp_device {
    int8_t kind;  /* dev_kind */
    int8_t index; /* -1: the current one */
} tp_device;
#define DEVICE_CPU ((tp_device){ DEV_cpu, -1 })
static inline bool device_eq(tp_device a, tp_device b) { return a.kind == b.kind && a.index == b.index; }
const char *device_name(dev_kind k);                           /* cpu, cuda, meta */
bool device_parse(const char *s, tp_device *out, tp_err *err); /* "cpu", "cuda:1" */
void device_print(strbuf *b, tp_device d);                     /* cpu, cuda:0 */

/* Work on a device's memory may be queued: alloc, free, copy and fill keep the order of its current queue, and a copy to the
 * host has happened when it returns. */
typedef struct
    device_queues { /* of one's own beside the current one, for libraries that give a device work */
    void *(*make)(tp_device d, tp_err *err); /* as the device's driver calls it */
    void (*free)(tp_device d, void *queue);
    void *(*mark)(tp_device d, void *queue,
                  tp_err *err); /* behind what it has been given; NULL: the current queue */
    bool (*follow)(tp_device d, void *queue, void *mark,
                   tp_err *err);                          /* what it is given next waits for the mark */
    int (*reached)(tp_device d, void *mark, tp_err *err); /* 1 yes, 0 not yet, -1 failed */
    void (*drop)(tp_device d, void *mark);
} device_queues;

typedef struct device_ops {
    const char *name;
    bool host; /* this process reads and writes its bytes at their addresses */
    /* At least 64-byte aligned; NULL with an error (ERR_memory where there is not enough). Not asked for 0 bytes, except where
     * count is 0: then it fails with the reason. A NULL function: the device has no bytes. */
    void *(*alloc)(tp_device d, int64_t nbytes, tp_err *err);
    void (*free)(tp_device d, void *p, int64_t nbytes);
    /* One of the two is this device; the other is this one, another index of it, or the host. */
    bool (*copy)(tp_device to, void *dst, tp_device from, const void *src, int64_t nbytes, tp_err *err);
    bool (*fill)(tp_device d, void *p, uint8_t byte, int64_t nbytes, tp_err *err);
    /* Waits until the device has done what it was given. False with what went wrong on it since the last time. */
    bool (*sync)(tp_device d, tp_err *err);
    int (*count)(void);            /* devices of this kind, 0 where there are none */
    int (*current)(void);          /* the index that -1 means; -1 where indices mean nothing */
    const device_queues *queues;   /* NULL: it has none */
    int64_t (*spare)(tp_device d); /* bytes that can be allocated now, about; NULL: nobody knows */
} device_ops;

extern const device_ops
    *device_table[DEV_COUNT]; /* by dev_kind, never NULL; changed by device_register alone */
static inline const device_ops *device_ops_of(tp_device d)
{
    return __atomic_load_n(&device_table[d.kind], __ATOMIC_RELAXED);
}
bool device_no_memory(int64_t nbytes, tp_err *err); /* false, with the message of a request that failed */
void device_register(dev_kind k, const device_ops *ops); /* once, before the first tensor of that kind */
bool device_sync(tp_device d, tp_err *err);
/* Between any two devices; through the host where neither knows the other. */
bool device_copy(tp_device to, void *dst, tp_device from, const void *src, int64_t nbytes, tp_err *err);
#endif
