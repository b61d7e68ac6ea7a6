/* target.c - the interpreter of the vector IR as a target: runs everywhere, and is what all others must agree with. */
#include "target/cpu/cpu.h"

static bool interp_compile(const target *t, const vir *const *k, int n, target_code **out, tp_err *err)
{
    for (int i = 0; i < n; i++) {
        out[i] = target_code_new(t, k[i]->name, sizeof **out);
        out[i]->k = vir_copy(k[i]);
    }
    return true;
}

const target target_interp = {
    .name = "interpreter",
    .level = "",
    .device = DEV_cpu,
    .caps = { CPU_CAPS, CPU_LIBRARY_CAPS },
    .available = cpu_always,
    .compile = interp_compile,
    CPU_FUNCTIONS,
};
