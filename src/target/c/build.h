/* build.h - kernels as C, built by the system's compiler: one process for all of a graph, one library. */
#ifndef TAPER_RUN_CBUILD_H
#define TAPER_RUN_CBUILD_H
#include "vir/vir.h"

/* fn[i] runs k[i] for the life of the process. Equal kernels must be given once. */
bool cbuild_kernels(const vir *const *k, int n, vir_fn *fn, tp_err *err);
/* What a library depends on beside its text: "processor=...\ncompiler=...\n". */
void cbuild_key(strbuf *out);
#endif
