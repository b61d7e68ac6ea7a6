/* gen.h - kernels for tests: each instruction set as a target, the interpreter for none. */
#ifndef TAPER_TEST_GEN_H
#define TAPER_TEST_GEN_H
#include "run/kernel_cache.h"
#include "target/cpu/cpu.h"
#include "target/x64/x64.h"

static inline const target *target_at(int isa)
{
    return isa == ISA_avx512 ? &target_avx512 : isa == ISA_avx2 ? &target_avx2 : &target_interp;
}
/* For this machine, with what it falls back to. */
static inline const target_code *kernel_here(const vir *k, tp_err *err)
{
    const target_code *r = NULL;
    const char *why = "";
    const target *t = target_named(DEV_cpu, "x64", "auto", &why);
    return kernels_get(t, why, &k, 1, &r, err) ? r : NULL;
}
#endif
