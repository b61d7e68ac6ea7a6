/* Random kernels: the interpreter and every emitter must give the same bits (any NaN equals any NaN).
 * TAPER_FUZZ_KERNELS=N draws N kernels (default small), TAPER_FUZZ_SEED=S starts elsewhere. */
#include "test.h"
#include "gen.h"
#include "gen_fuzz.h"
#include "target/c/c.h"
#include <math.h>

TEST(gen_fuzz_machine_code)
{
    const char *env = getenv("TAPER_FUZZ_KERNELS"), *senv = getenv("TAPER_FUZZ_SEED");
    int count = env ? atoi(env) : 400, bad = 0;
    uint64_t seed = senv ? strtoull(senv, NULL, 10) : 1;
    for (int c = 0; c < count && bad < 3; c++) {
        arena a = { 0 };
        tp_err err = { 0 };
        fuzz_case f;
        fuzz_make(&f, &a, seed + (uint64_t)c);
        if (!vir_finish(f.k, &err)) {
            test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)f.seed, err.msg);
            bad++;
            arena_free(&a);
            continue;
        }
        for (int s = 0; s < 3 && bad < 3; s++) {
            fuzz_data(&f, &a, s);
            void **want = fuzz_clone(&f, &a);
            vir_interp(f.k, want, f.ints, f.flts, 0, f.ints[1], &err);
            for (int isa = ISA_avx2; isa <= (int)gen_isa_host(); isa++) {
                void **got = fuzz_clone(&f, &a);
                const target_code *r = kernel_get(target_at(isa), f.k, &err);
                if (!r) {
                    test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)f.seed, err.msg);
                    bad++;
                    break;
                }
                cpu_run(r, got, f.ints, f.flts, 0, f.ints[1]);
                bad += !fuzz_same(&f, got, want, gen_isa_name((gen_isa)isa));
            }
        }
        arena_free(&a);
    }
}

/* The C emitter: a batch of kernels in one file, one compiler run. */
TEST(gen_fuzz_c)
{
    const char *env = getenv("TAPER_FUZZ_KERNELS"), *senv = getenv("TAPER_FUZZ_SEED");
    int count = env ? MIN(atoi(env), 400) : 24, bad = 0;
    uint64_t seed = senv ? strtoull(senv, NULL, 10) : 1;
    arena a = { 0 };
    tp_err err = { 0 };
    gen_c_unit u = { 0 };
    gen_lib lib = { 0 };
    strbuf text = { 0 };
    fuzz_case *f = ARENA_ARR(&a, fuzz_case, count);
    if (system("command -v cc >/dev/null 2>&1")) {
        fprintf(stderr, "SKIP gen_fuzz_c: no C compiler\n");
        return;
    }
    for (int c = 0; c < count; c++) {
        fuzz_make(&f[c], &a, seed + (uint64_t)c);
        CHECK(vir_finish(f[c].k, &err));
        gen_c_kernel(&u, f[c].k, arena_printf(&a, "k%d", c));
    }
    gen_c_text(&u, &text);
    const char *keep = getenv("TAPER_FUZZ_C_FILE");
    if (keep) {
        FILE *o = fopen(keep, "w");
        fputs(strbuf_str(&text), o);
        fclose(o);
    }
    if (!gen_cc_load(strbuf_str(&text), "-O1", &lib, &err)) {
        test_fail(__FILE__, __LINE__, "%s", err.msg);
        count = 0;
    }
    for (int c = 0; c < count && bad < 3; c++)
        for (int s = 0; s < 3 && bad < 3; s++) {
            fuzz_data(&f[c], &a, s);
            void **want = fuzz_clone(&f[c], &a), **got = fuzz_clone(&f[c], &a);
            vir_fn fn = gen_lib_find(&lib, arena_printf(&a, "k%d", c));
            vir_interp(f[c].k, want, f[c].ints, f[c].flts, 0, f[c].ints[1], &err);
            fn(got, f[c].ints, f[c].flts, 0, f[c].ints[1]);
            bad += !fuzz_same(&f[c], got, want, "C");
        }
    gen_lib_free(&lib);
    gen_c_free(&u);
    strbuf_free(&text);
    arena_free(&a);
}
