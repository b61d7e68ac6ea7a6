/* Kernels by interpreter and by machine code agree. */
#include "test.h"
#include "run/exec.h"
#include <math.h>

static void show(const vir *k, gen_isa isa)
{
    strbuf b = { 0 };
    gen_code c;
    tp_err err = { 0 };
    vir_print(k, &b);
    if (gen_x64(k, isa, &c, &b, &err))
        gen_code_free(&c);
    fprintf(stderr, "%s\n%s\n", strbuf_str(&b), err.msg);
    strbuf_free(&b);
}

TEST(gen_pointwise)
{
    static const int sizes[] = { 0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 257 };
    arena a = { 0 };
    tp_err err = { 0 };
    vir *k = vir_make(&a, "pointwise");
    int x = vir_buffer(k, VM_f32, VIR_IN, "x"), y = vir_buffer(k, VM_f32, VIR_OUT, "y");
    vir_ref n = vir_int_arg(k, "n"), f = vir_float_arg(k, VT_f32, "f");
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), n);
    vir_ref v = vir_load(k, x, i, 0);
    vir_store(k, y, i, vir_add(k, vir_mul(k, v, f), vir_flt(k, VT_f32, 1.5)), 0);
    vir_end(k);
    CHECK(vir_finish(k, &err));
    if (getenv("SHOW"))
        show(k, ISA_avx512), show(k, ISA_avx2);
    for (int isa = ISA_avx2; isa <= (int)gen_isa_host(); isa++) {
        const run_kernel *r = exec_kernel_isa(k, (gen_isa)isa, &err);
        CHECK(r != NULL);
        for (size_t s = 0; r && s < COUNT(sizes); s++) {
            float in[300], out[300], ref[300];
            for (int j = 0; j < 300; j++)
                in[j] = (float)j * 0.37f - 40, out[j] = ref[j] = -7;
            void *b1[] = { in, out }, *b2[] = { in, ref };
            int64_t ints[] = { sizes[s] };
            double flts[] = { 2.25 };
            exec_run(r, b1, ints, flts, 0, 0);
            vir_interp(k, b2, ints, flts, 0, 0, &err);
            CHECK(!memcmp(out, ref, sizeof out));
        }
    }
    arena_free(&a);
}
