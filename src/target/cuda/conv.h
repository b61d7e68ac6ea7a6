/* conv.h - convolutions of programs on the device, by cuDNN. */
#ifndef TAPER_TARGET_CUDA_CONV_H
#define TAPER_TARGET_CUDA_CONV_H
#include "target/target.h"

/* cuDNN 9 or 8 is loaded when it is first asked for: TAPER_CUDNN_LIBRARY, libcudnn.so.9, libcudnn.so.8, or in one of the folders that
 * cuda_packages was told of. TAPER_CONVOLUTIONS=own: it is not used. Without it convolutions are products of patches. */
int64_t cuda_cudnn_version(void); /* 91400; 0: there is none */
/* What ops/conv.h asks: f32 (never rounded to TF32), f16 and bf16, summed in f32, by algorithms that give the same bits every time. */
bool cuda_convolves(conv_kind k, dtype dt, const conv_geom *g, tp_device d);
int64_t cuda_convolve_bytes(const target_convolution *p);
target_result cuda_convolve(const target_convolution *p, tp_err *err);
int64_t cuda_convolved(void); /* calls of cuDNN so far */
/* Folders of Python packages with ':' between them. PyTorch's packages put the library in nvidia/cudnn/lib there, which is not on the
 * loader's path. Before the first convolution. */
void cuda_packages(const char *folders);
#endif
