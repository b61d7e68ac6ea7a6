/* flash.h - attention in one kernel, its gradient in two: for f16 and bf16. Rows of the table are calls of it, and so are products with a
 * kernel between them that is a softmax.
 * Knows tensors and launches; what the kernels do is in flash_text.h. */
#ifndef TAPER_TARGET_CUDA_FLASH_H
#define TAPER_TARGET_CUDA_FLASH_H
#include "ops/ondevice.h"
#include "target/target.h"

/* Is it for these kernels? */
bool cuda_flash_fits(const target_attend *a);
/* Memory that cuda_flash needs for one that fits; at least 1. */
int64_t cuda_flash_bytes(const target_attend *a);
bool cuda_flash(const target_attend *a, tp_err *err);
/* Rows of the table (ops/attention.h): has the device a kernel for such heads, and the call. */
bool cuda_attends(dtype dt, int64_t head, tp_device d);
bool cuda_attends_in_place(const tp_tensor *t); /* [batch, heads, rows, head] */
own_result cuda_attend_row(tp_device d, const own_attention *a, tp_err *err);
int64_t cuda_flashes(void); /* calls of cuda_flash so far */
#endif
