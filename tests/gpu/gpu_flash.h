/* gpu_flash.h - attention in one kernel on a GPU against sums in double, with times. */
#ifndef TAPER_GPU_FLASH_H
#define TAPER_GPU_FLASH_H
#include <stdbool.h>

/* What differs is told by test_fail. small: without times. */
void gpu_flash(bool small);
#endif
