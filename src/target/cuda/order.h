/* order.h - sorting, selecting and searching on the device, as ops/ondevice.h wants them. */
#ifndef TAPER_TARGET_CUDA_ORDER_H
#define TAPER_TARGET_CUDA_ORDER_H
#include "ops/ondevice.h"

own_result cuda_sort(tp_device d, const own_sort *s, tp_err *err);
int64_t cuda_select_room(int64_t n);
own_result cuda_select_count(tp_device d, own_select *s, tp_err *err);
bool cuda_select_write(tp_device d, const own_select *s, tp_err *err);
own_result cuda_search(tp_device d, const own_search *s, tp_err *err);
#endif
