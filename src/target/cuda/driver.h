/* driver.h - the CUDA driver, loaded when it is first asked for (libcuda.so.1), with errors that say what to do.
 * Knows contexts, modules, queues (streams), events and memory. May not know kernels or tensors.
 *
 * Every function but cuda_available fails with an error where there is no driver or device. A thread needs no set-up: each
 * call makes the device's context current. */
#ifndef TAPER_TARGET_CUDA_DRIVER_H
#define TAPER_TARGET_CUDA_DRIVER_H
#include "base/err.h"
#include "target/cuda/pool.h"

enum { CUDA_MAX_DEVICES = 16, CUDA_LEAST_DRIVER = 12000 };

typedef struct cuda_props {
    char name[96];
    int major, minor; /* compute capability */
    int multiprocessors, max_threads, warp, clock_khz, l2_bytes, shared_optin;
    int pci_domain, pci_bus, pci_device;
    size_t total_memory;
} cuda_props;

/* Before anything else, for tests: another library in place of libcuda.so.1. */
void cuda_use_library(const char *path);
/* TAPER_CUDA_LIBRARY in the environment does the same. */
bool cuda_init(tp_err *err);   /* loads and initialises once; the first failure is remembered */
bool cuda_available(void);     /* the same, without an error */
int cuda_device_count(void);   /* 0 where there is none */
int cuda_driver_version(void); /* 13000; 0: no driver */
const cuda_props *cuda_props_of(int device, tp_err *err);
int cuda_current_device(void); /* of this thread */
bool cuda_set_device(int device, tp_err *err);
bool cuda_use(int device, tp_err *err); /* its context is this thread's; -1: the current device */

/* --- queues and events; a NULL queue is the device's first one ------------------------------------ */
typedef struct cuda_queue_s *cuda_queue; /* CUstream */
typedef struct cuda_event_s *cuda_event; /* CUevent  */
cuda_queue cuda_current_queue(int device);
void cuda_set_queue(int device, cuda_queue q);
bool cuda_queue_new(int device, cuda_queue *out, tp_err *err);
void cuda_queue_free(int device, cuda_queue q);
bool cuda_queue_sync(int device, cuda_queue q, tp_err *err);
bool cuda_sync(int device, tp_err *err); /* everything; what went wrong on the device since then */
void cuda_at_sync(
    bool (*found)(tp_err *err)); /* asked behind every wait: false with an error that kernels found */
bool cuda_event_new(int device, bool timing, cuda_event *out, tp_err *err);
void cuda_event_free(int device, cuda_event e);
bool cuda_event_record(int device, cuda_event e, cuda_queue q, tp_err *err);
bool cuda_event_wait(int device, cuda_event e, tp_err *err);               /* the host waits */
bool cuda_queue_wait(int device, cuda_queue q, cuda_event e, tp_err *err); /* the queue waits */
bool cuda_event_ms(int device, cuda_event from, cuda_event to, float *ms, tp_err *err);
bool cuda_event_done(int device, cuda_event e, bool *done, tp_err *err);
bool cuda_queue_done(int device, cuda_queue q, bool *done, tp_err *err);

/* --- recordings: what this thread gives a queue is remembered instead of run; later it runs as one launch ------ */
typedef struct cuda_graph_s *cuda_graph;                       /* CUgraphExec */
bool cuda_record_begin(int device, cuda_queue q, tp_err *err); /* q is not the first queue */
bool cuda_record_end(int device, cuda_queue q, cuda_graph *out, tp_err *err);
bool cuda_recording(void); /* this thread is between the two: nothing may wait for the device */
bool cuda_graph_launch(int device, cuda_graph g, cuda_queue q, tp_err *err);
void cuda_graph_free(int device, cuda_graph g);
/* Memory of a recording: what was allocated for its queue stays there until it is no longer kept. */
void cuda_keep_queue(int device, cuda_queue q, bool keep);
void cuda_recordings(int64_t *made, int64_t *run); /* how many so far */

/* --- memory ------------------------------------------------------------------------------------- */
void *cuda_alloc(int device, size_t n, tp_err *err); /* cached, in the order of the current queue */
void cuda_free(int device, void *p);
bool cuda_copy_in(int device, void *to, const void *host, size_t n,
                  tp_err *err); /* the host memory may change afterwards */
bool cuda_copy_out(int device, void *host, const void *from, size_t n,
                   tp_err *err);                                               /* done when it returns */
bool cuda_copy(int device, void *to, const void *from, size_t n, tp_err *err); /* on or between devices */
bool cuda_copy_queued(int device, void *to, const void *from, size_t n, int kind, cuda_queue q, tp_err *err);
enum { CUDA_TO_DEVICE, CUDA_TO_HOST, CUDA_ON_DEVICE };
bool cuda_fill(int device, void *p, uint8_t byte, size_t n, tp_err *err);
void *cuda_pinned(size_t n,
                  tp_err *err); /* host memory that copies reach without a detour; kept when it is freed */
void cuda_pinned_free(void *p);
bool cuda_is_pinned(const void *host);
bool cuda_copy_lazily(
    bool on); /* this thread's copies from pinned memory return at once; what it was before */
void *cuda_mapped(size_t n,
                  tp_err *err); /* zeros of the host that kernels reach at the same address; never freed */
bool cuda_memory(int device, size_t *free, size_t *total, tp_err *err);
bool cuda_stats(int device, cuda_pool_stats *out); /* zeros where nothing was allocated */
void cuda_empty_cache(int device);
void cuda_reset_peaks(int device);

/* --- code --------------------------------------------------------------------------------------- */
typedef struct cuda_cubin {
    void *p; /* the caller frees; NULL: see err */
    size_t n;
} cuda_cubin;
/* PTX -> machine code of the device, on threads. False with the assembler's first complaint. */
bool cuda_assemble(int device, const char *const *text, int n, cuda_cubin *out, tp_err *err);
int64_t cuda_assembled(void);                  /* texts so far */
typedef struct cuda_module_s *cuda_module;     /* CUmodule   */
typedef struct cuda_function_s *cuda_function; /* CUfunction */
bool cuda_load(int device, const void *cubin, cuda_module *out,
               tp_err *err); /* machine code, or PTX (slow: see cuda_assemble) */
void cuda_unload(int device, cuda_module m);
bool cuda_find(int device, cuda_module m, const char *name, cuda_function *out, tp_err *err);
/* params: as many 8-byte values as the kernel has parameters. */
bool cuda_launch(int device, cuda_function f, int64_t blocks, int threads, const uint64_t *params,
                 int nparams, cuda_queue q, tp_err *err);
#endif
