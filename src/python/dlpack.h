/* dlpack.h - the structures of the DLPack specification, versions 0.8 and 1.x, and the table of functions (1.2) through which
 * libraries exchange tensors without calling Python. */
#ifndef TAPER_DLPACK_H
#define TAPER_DLPACK_H
#include "python/py.h"

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;
typedef struct dl_managed { /* "dltensor" */
    dl_tensor t;
    void *ctx;
    void (*deleter)(struct dl_managed *);
} dl_managed;
typedef struct dl_versioned { /* "dltensor_versioned" */
    struct {
        uint32_t major, minor;
    } version;
    void *ctx;
    void (*deleter)(struct dl_versioned *);
    uint64_t flags; /* bit 0: read-only, bit 1: a copy */
    dl_tensor t;
} dl_versioned;
enum {
    DL_cpu = 1,
    DL_cuda = 2,
    DL_int = 0,
    DL_uint = 1,
    DL_float = 2,
    DL_bfloat = 4,
    DL_complex = 5,
    DL_bool = 6,
    DL_f8e4m3fn = 10,
    DL_f8e5m2 = 12
};

/* What a class offers as __dlpack_c_exchange_api__, a capsule named "dlpack_exchange_api". Functions return 0, or -1 with a Python
 * exception set. */
typedef struct dl_exchange {
    struct {
        uint32_t major, minor;
    } version;
    struct dl_exchange *older;
    int (*allocate)(dl_tensor *like, dl_versioned **out, void *ctx,
                    void (*fail)(void *, const char *, const char *));
    int (*from_object)(void *o, dl_versioned **out);
    int (*to_object)(dl_versioned *m, void **out); /* takes m */
    int (*look)(void *o, dl_tensor *out);          /* borrowed while o lives; may be NULL */
    int (*stream)(int32_t device_type, int32_t device, void **out);
} dl_exchange;

void dl_describe(dl_tensor *d, tp_tensor *t); /* borrows t's sizes and strides */
dl_versioned *dl_export(tp_tensor *t);        /* takes t; ends by its deleter */
int dl_dtype(const dl_tensor *d);             /* DT_none: not one of ours */
#endif
