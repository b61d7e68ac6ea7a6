/* gen_fuzz.h - random kernels over the vector IR and data for them. */
#ifndef TAPER_GEN_FUZZ_H
#define TAPER_GEN_FUZZ_H
#include "vir/vir.h"

typedef struct fuzz_case {
    uint64_t seed;
    vir *k;
    int64_t ints[4]; /* n, rows, stride, offset */
    double flts[2];
    void **bufs; /* elems elements each */
    size_t elems;
} fuzz_case;

void fuzz_make(fuzz_case *f, arena *a, uint64_t seed); /* an unfinished kernel */
void fuzz_data(fuzz_case *f, arena *a, int round);     /* sizes and buffers; call again for other sizes */
void **fuzz_clone(const fuzz_case *f, arena *a);       /* the buffers once more */
bool fuzz_same(const fuzz_case *f, void *const *got, void *const *want, const char *who);
#endif
