/* ptx_interp.h - runs PTX on the CPU: the instructions that target/cuda/ptx.c writes, thread after thread, with barriers and
 * shuffles. Reports accesses outside of the buffers, misaligned ones, barriers that not all threads reach, and two threads that
 * touch the same byte without a barrier between them. */
#ifndef TAPER_PTX_INTERP_H
#define TAPER_PTX_INTERP_H
#include "base/err.h"

typedef struct ptx_module ptx_module;
typedef struct ptx_buffer {
    void *p;
    size_t size;
} ptx_buffer;

ptx_module *ptx_parse(const char *text, tp_err *err);
void ptx_module_free(ptx_module *m);
/* libm: functions that are not exact are the C library's, so that results can be compared bit for bit. */
bool ptx_run(ptx_module *m, const char *entry, int64_t blocks, int threads, const uint64_t *params,
             const ptx_buffer *bufs, int nbufs, bool libm, tp_err *err);
int ptx_entry_params(const ptx_module *m, const char *entry); /* -1: there is no such kernel */
/* A function of one or two numbers. */
bool ptx_call(ptx_module *m, const char *name, const uint64_t *args, uint64_t *out, tp_err *err);
#endif
