/* product.h - a matrix product of a compiled program, into memory that the program planned. */
#ifndef TAPER_RUN_PRODUCT_H
#define TAPER_RUN_PRODUCT_H
#include "target/x64/gemm.h"
#include "ops/op.h"
#include "tensor/tensor.h"

/* o = a b, two or three dimensions; row: NULL, or one element per column, added to all rows; add: to what o holds; form: as
 * loop_step says; e: NULL,
 * or a kernel to run on the rows of o, counted through the batch. */
bool product_run(tp_tensor *o, const tp_tensor *row, const tp_tensor *a, const tp_tensor *b, bool add,
                 int form, const gemm_epilogue *e, tp_err *err);
/* y = convolution of x and w with the operator's arguments from stride on, all contiguous; e: on its planes. */
bool convolution_run(tp_tensor *y, const tp_tensor *x, const tp_tensor *w, const tp_tensor *bias,
                     const tp_val *arg, int form, const gemm_epilogue *e, tp_err *err);
#endif
