/* order.h - sorting on the device (ops/ondevice.h). */
#ifndef TAPER_TARGET_CUDA_ORDER_H
#define TAPER_TARGET_CUDA_ORDER_H
#include "ops/ondevice.h"

own_result cuda_sort(tp_device d, const own_sort *s, tp_err *err);
#endif
