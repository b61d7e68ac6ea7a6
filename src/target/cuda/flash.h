/* flash.h - attention in one kernel, its gradient in two: for f16 and bf16 where the kernel between the products is a softmax.
 * Knows tensors and launches; what the kernels do is in flash_text.h. */
#ifndef TAPER_TARGET_CUDA_FLASH_H
#define TAPER_TARGET_CUDA_FLASH_H
#include "target/target.h"

/* Is it for these kernels? */
bool cuda_flash_fits(const target_attend *a);
/* Memory that cuda_flash needs for one that fits; at least 1. */
int64_t cuda_flash_bytes(const target_attend *a);
bool cuda_flash(const target_attend *a, tp_err *err);
int64_t cuda_flashes(void); /* calls of cuda_flash so far */
#endif
