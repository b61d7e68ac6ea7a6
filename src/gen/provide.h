/* provide.h - offers the emitted products and convolutions to the eager kernels (ops/provider.h). */
#ifndef TAPER_GEN_PROVIDE_H
#define TAPER_GEN_PROVIDE_H
void gen_provide(void);
#endif
