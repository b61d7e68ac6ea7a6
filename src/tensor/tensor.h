/* tensor.h - a strided view of shared storage.
 * Knows dtypes, shapes and bytes. May not know graphs, gradients or Python; it carries three opaque marks
 * for those who do. A fake tensor is a tensor whose storage has no bytes; its sizes may be symbolic. */
#ifndef TAPER_TENSOR_H
#define TAPER_TENSOR_H
#include "base/base.h"
#include "base/err.h"
#include "base/strbuf.h"
#include "sym/sym.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

enum { TP_MAX_DIMS = 24 };

typedef enum { MF_contiguous, MF_preserve, MF_channels_last, MF_channels_last_3d } memfmt;

typedef struct tp_storage {
    int refs; /* atomic */
    uint8_t flags;
    tp_device device;
    void *data; /* in the memory of the device; NULL for fake storage and for zero bytes */
    symint nbytes;
    uint32_t version;                       /* counts in-place writes, shared by all views */
    void (*release)(void *ctx, void *data); /* foreign memory (NumPy, DLPack, mmap); NULL: ours */
    void *ctx;
    uint64_t id; /* unique; fake tensors that alias share it */
    void *mark;  /* for aot: what functionalisation knows of this storage; not owned */
} tp_storage;
/* device: this process cannot read the bytes. sparse: a fake that an object of Python stands for (taper/sparse); no kernel reads it.
 * batched: a fake that stands for one element of a batch (grad/batch.h). */
enum { ST_fake = 1, ST_readonly = 2, ST_device = 4, ST_sparse = 8, ST_batched = 16 };

typedef struct tp_tensor {
    int refs;   /* atomic */
    uint8_t dt; /* dtype */
    uint8_t ndim;
    uint8_t flags; /* TF_* */
    uint8_t spare;
    uint32_t ahead; /* of the storage's counter of writes: a tensor that is given other memory counts on */
    tp_storage *storage; /* one count */
    symint offset;       /* in elements */
    symint numel;
    symint *size, *stride; /* point into dims */
    /* Marks. */
    void *ag;               /* grad: autograd record, owned; freed through tensor_ag_free */
    void *py;               /* front: the Python object, borrowed, or owned when TF_owns_py */
    struct ir_node *node;   /* ir: the node whose value this fake tensor is, while recording */
    void *rec;              /* ir: the recorder that node belongs to */
    struct tp_tensor *base; /* the tensor this is a view of (one count), or NULL; always the root */
    symint dims[];          /* sizes then strides */
} tp_tensor;
enum {
    TF_wrapped = 1, /* a Python number that became a zero-dim tensor: weak in promotion */
    TF_owns_py = 2,
    TF_inference = 4, /* made under inference_mode */
    TF_watched = 16,  /* somebody remembers its metadata: changing that moves tensor_epoch */
};
/* Counts changes of the metadata (shape, dtype, device, requires_grad) of watched tensors, and their ends. */
extern uint64_t tensor_epoch;
static inline void tensor_changed(const tp_tensor *t)
{
    if (TP_UNLIKELY(t->flags & TF_watched))
        __atomic_add_fetch(&tensor_epoch, 1, __ATOMIC_RELEASE);
}

/* --- making ------------------------------------------------------------------------------------- */
tp_tensor *tensor_new(dtype dt, int ndim, const symint *size,
                      tp_err *err); /* contiguous, uninitialised, cpu */
tp_tensor *tensor_new_strided(dtype dt, int ndim, const symint *size, const symint *stride, tp_device dev,
                              tp_err *err);
/* No bytes; sizes may be symbolic. stride NULL: contiguous. */
tp_tensor *tensor_new_fake(dtype dt, int ndim, const symint *size, const symint *stride, tp_device dev);
/* A view of the same storage (checks nothing); base is set to the root of t. */
tp_tensor *tensor_view(tp_tensor *t, int ndim, const symint *size, const symint *stride, symint offset);
tp_tensor *tensor_alias(tp_tensor *t); /* same bytes, same shape, new header, no view relation */
tp_tensor *tensor_on(tp_storage *s, dtype dt, int ndim, const symint *size, const symint *stride,
                     symint offset);
tp_tensor *tensor_scalar(dtype dt, double f, int64_t i,
                         tp_err *err);         /* 0-dim; f for floats, else i; or NULL */
tp_tensor *tensor_fake_of(const tp_tensor *t); /* same metadata, new fake storage */
tp_tensor *tensor_ref(tp_tensor *t);
void tensor_unref(tp_tensor *t);         /* NULL is allowed */
extern void (*tensor_ag_free)(void *ag); /* set once by grad */
extern void (*tensor_py_free)(void *py); /* set once by front: gives up a reference to a Python object */
/* Make t look at other storage/metadata in place (set_, .data =, resize_). Takes nothing, refs s. */
bool tensor_reset(tp_tensor *t, tp_storage *s, dtype dt, int ndim, const symint *size, const symint *stride,
                  symint offset, tp_err *err);

/* --- storage ------------------------------------------------------------------------------------ */
tp_storage *storage_new(int64_t nbytes, tp_device dev, tp_err *err); /* 64-byte aligned */
tp_storage *storage_new_fake(symint nbytes, tp_device dev);
tp_storage *storage_wrap(void *data, int64_t nbytes, void (*release)(void *, void *), void *ctx);
tp_storage *storage_wrap_on(tp_device dev, void *data, int64_t nbytes, void (*release)(void *, void *),
                            void *ctx);
tp_storage *storage_ref(tp_storage *s);
void storage_unref(tp_storage *s);
/* Tests: the n-th storage allocation from now fails (0: never). Says how many were left to go. */
/* Memory for the time of one operation, from the blocks that storages leave behind; running out ends the process. */
void *tmp_alloc(int64_t nbytes);
void tmp_free(void *p, int64_t nbytes);
int64_t storage_fail_after(int64_t n);
int64_t storage_live_bytes(void); /* bytes of storage now alive, for memory tests */
int64_t storage_peak_bytes(bool reset);

/* --- questions ----------------------------------------------------------------------------------- */
static inline dtype tensor_dtype(const tp_tensor *t) { return (dtype)t->dt; }
static inline bool tensor_is_fake(const tp_tensor *t) { return t->storage->flags & ST_fake; }
static inline bool tensor_is_sparse(const tp_tensor *t) { return t->storage->flags & ST_sparse; }
static inline tp_device tensor_device(const tp_tensor *t) { return t->storage->device; }
/* The address of its first element in the memory of its device: for launches. */
static inline void *tensor_data(const tp_tensor *t)
{
    /* by number: empty storage has no address to count from */
    return (void *)((uintptr_t)t->storage->data + (uintptr_t)(t->offset * (int64_t)dtype_size((dtype)t->dt)));
}
/* The same where the caller reads or writes the bytes itself: they must be on the host. */
static inline void *tensor_host(const tp_tensor *t)
{
    assert(!(t->storage->flags & ST_device));
    return tensor_data(t);
}
/* The first element's bytes, copied to room where they are on a device. NULL with an error. */
const void *tensor_peek(const tp_tensor *t, uint64_t *room, tp_err *err);
/* The same values in the same layout on that device; a new count of t where it is there. */
tp_tensor *tensor_to(tp_tensor *t, tp_device dev, tp_err *err);
bool tensor_is_contiguous(const tp_tensor *t);
bool tensor_is_contiguous_as(const tp_tensor *t, memfmt f);
bool tensor_is_dense(const tp_tensor *t);        /* non-overlapping and dense: a permutation of contiguous */
bool tensor_overlaps_itself(const tp_tensor *t); /* some stride 0 with size > 1 */
/* May two elements lie at one address? Sorted by stride, each step must clear what lies below it. */
bool shape_may_overlap(int ndim, const symint *size, const symint *stride);
bool tensor_same_size(const tp_tensor *a, const tp_tensor *b);
memfmt tensor_suggest_memfmt(const tp_tensor *t);
memfmt tensor_stride_order(const tp_tensor *t); /* what its strides look like, dense or not */
/* How many writes it has seen: through other tensors on its memory, too. */
static inline uint32_t tensor_version(const tp_tensor *t) { return t->storage->version + t->ahead; }
static inline void tensor_bump(tp_tensor *t) { t->storage->version++; }

/* --- shapes --------------------------------------------------------------------------------------- */
symint shape_numel(int ndim, const symint *size);
void shape_contiguous_strides(int ndim, const symint *size, symint *stride);
bool shape_memfmt_strides(memfmt f, int ndim, const symint *size, symint *stride, tp_err *err);
/* Size in bytes of the storage that this geometry needs; false when it overflows or is negative. */
bool shape_storage_bytes(dtype dt, int ndim, const symint *size, const symint *stride, symint offset,
                         symint *out, tp_err *err);
void shape_print(strbuf *b, int ndim, const symint *size);         /* [2, 3] */
bool shape_check_sizes(int ndim, const symint *size, tp_err *err); /* no negative dimension, no overflow */

/* --- single elements (slow path: printing, item, tests) ------------------------------------------------ */
double elem_get_f(dtype dt, const void *p);
int64_t elem_get_i(dtype dt, const void *p); /* floats truncate */
void elem_set_f(dtype dt, void *p, double v);
void elem_set_i(dtype dt, void *p, int64_t v);
/* Real and imaginary part; of a real type the latter is 0. The four above know the real part only. */
void elem_get_c(dtype dt, const void *p, double v[2]);
void elem_set_c(dtype dt, void *p, const double v[2]);
/* The address of the k-th element in logical (row-major) order. */
void *tensor_elem(const tp_tensor *t, int64_t k);
#endif
