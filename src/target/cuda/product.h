/* product.h - products of programs on the device. */
#ifndef TAPER_TARGET_CUDA_PRODUCT_H
#define TAPER_TARGET_CUDA_PRODUCT_H
#include "target/target.h"

/* By cuBLASLt where it is found (libcublasLt.so.13 or .12, loaded at the first product), else by a kernel of one element a
 * thread. TAPER_CUDA_PRODUCTS=own: always the latter. Large products of 16-bit matrices whose sizes or rows are no multiples of 16
 * bytes are made of copies that are; TAPER_CUDA_PRODUCTS=straight: small ones, too. */
bool cuda_product(const target_product *p, tp_err *err);
bool cuda_product_allocates(const tp_tensor *o, const tp_tensor *a, const tp_tensor *b);
#endif
