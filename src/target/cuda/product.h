/* product.h - products of programs on the device. */
#ifndef TAPER_TARGET_CUDA_PRODUCT_H
#define TAPER_TARGET_CUDA_PRODUCT_H
#include "target/target.h"

/* By cuBLASLt where it is found (libcublasLt.so.13 or .12, loaded at the first product), else by a kernel of one element a
 * thread. TAPER_PRODUCTS=own: always the latter. Large products of 16-bit matrices whose rows do not begin at multiples of 16
 * bytes are made of copies that do; TAPER_PRODUCTS=straight: small ones, too. */
bool cuda_product(const target_product *p, tp_err *err);
#endif
