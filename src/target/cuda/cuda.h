/* cuda.h - the CUDA target's values: kernels through ptx.c and driver.c behind target.h, memory behind tensor/device.h. */
#ifndef TAPER_TARGET_CUDA_H
#define TAPER_TARGET_CUDA_H
#include "target/target.h"

extern const target target_cuda;
extern const device_ops cuda_device_ops;
#endif
