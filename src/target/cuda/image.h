/* image.h - machine code of modules by their text: assembled at once on the pool, or later on threads apart.
 * Knows texts and the driver. May not know kernels. */
#ifndef TAPER_TARGET_CUDA_IMAGE_H
#define TAPER_TARGET_CUDA_IMAGE_H
#include "target/cuda/driver.h"

typedef struct cuda_image {               /* shared by the kernels of equal texts; never freed */
    cuda_cubin bin;                       /* once it is ready */
    cuda_module module[CUDA_MAX_DEVICES]; /* loaded where it was launched */
    int state;                            /* private, as what follows */
    int pid;                              /* of the process that assembles it */
    tp_err why;
} cuda_image;

/* Equal texts have one image. Constants and names of kernels are not in a text: another number, or another size of a tensor whose
 * sizes are arguments, finds its code. */
/* Those that are new are assembled, on the pool. False with the first complaint; out[i] is NULL where there is none. */
bool cuda_images(const char *const *text, int n, cuda_image **out, tp_err *err);
/* The same without waiting. */
void cuda_images_later(const char *const *text, int n, cuda_image **out);
/* Is there code? wait: waits until it is known. False with an error where there will be none; false without one: not yet. */
bool cuda_image_ready(cuda_image *m, bool wait, tp_err *err);
/* An image of code that another process assembled; takes p. */
cuda_image *cuda_image_of(void *p, size_t n);
#endif
