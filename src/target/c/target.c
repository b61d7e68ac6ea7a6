/* target.c - C through the system's compiler as a target, and C for others to compile. */
#include "target/c/build.h"
#include "target/cpu/cpu.h"

static bool c_compile(const target *t, const vir *const *k, int n, target_code **out, tp_err *err)
{
    vir_fn *fn = mem_zalloc(sizeof *fn * (size_t)MAX(n, 1));
    bool ok = cbuild_kernels(k, n, fn, err);
    for (int i = 0; i < n; i++) {
        out[i] = ok ? target_code_new(t, k[i]->name, sizeof **out) : NULL;
        if (ok)
            out[i]->fn = fn[i];
    }
    free(fn);
    return ok;
}

static void c_key(const target *t, strbuf *out) { cbuild_key(out); }

const target target_c = {
    .name = "c",
    .level = "",
    .device = DEV_cpu,
    .caps = { CPU_CAPS, CPU_LIBRARY_CAPS },
    .fallback = &target_interp,
    .available = cpu_always,
    .compile = c_compile,
    CPU_FUNCTIONS,
    .key = c_key,
};

static bool no_compile(const target *t, const vir *const *k, int n, target_code **out, tp_err *err)
{
    return err_set(err, ERR_internal, "code for other machines is written as text, not compiled");
}

/* Everything that can be a loop is one: there is nothing to call. */
const target target_export = {
    .name = "export",
    .level = "",
    .device = DEV_cpu,
    .caps = { CPU_CAPS, .gather_bytes = 1, .epilogues = true, .attends = true },
    .available = cpu_always,
    .compile = no_compile,
};
