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

/* y = exp(x), two vectors in flight; x and y may be one buffer that is read and written. */
static vir *exp_kernel(arena *a, bool inout, tp_err *err)
{
    vir *k = vir_make(a, "exps");
    int y = vir_buffer(k, VM_f32, inout ? VIR_INOUT : VIR_OUT, "y"),
        x = inout ? y : vir_buffer(k, VM_f32, VIR_IN, "x");
    vir_ref n = vir_int_arg(k, "n"), i = vir_loop(k, LOOP_vector, vir_int(k, 0), n);
    vir_store(k, y, i, vir_exp(k, vir_load(k, x, i, 0)), 0);
    vir_end(k);
    k->ways = 2;
    CHECK(vir_finish(k, err));
    return k;
}

/* Two vectors take turns, so that one works while the other waits: the second is read before the first is written. Not
 * where one may read what the other has written. */
TEST(gen_vectors_take_turns)
{
    arena a = { 0 };
    tp_err err = { 0 };
    for (int inout = 0; inout < 2 && gen_isa_host() >= ISA_avx512; inout++) {
        vir *k = exp_kernel(&a, inout, &err);
        strbuf b = { 0 };
        gen_code c;
        CHECK(gen_x64(k, ISA_avx512, &c, &b, &err));
        gen_code_free(&c);
        const char *second = strstr(strbuf_str(&b), "*4+64]"),
                   *store = strstr(strbuf_str(&b), "vmovups zmmword ptr");
        CHECK(second && store);
        CHECK((second < store) == !inout);
        strbuf_free(&b);
    }
    for (int isa = ISA_avx2; isa <= (int)gen_isa_host(); isa++)
        for (int n = 0; n < 140; n += 1 + n / 9) {
            vir *k = exp_kernel(&a, false, &err);
            const run_kernel *r = exec_kernel_isa(k, (gen_isa)isa, &err);
            float in[140], out[140], ref[140];
            for (int j = 0; j < 140; j++)
                in[j] = (float)j * 0.37f - 40, out[j] = ref[j] = -7;
            void *b1[] = { out, in }, *b2[] = { ref, in };
            exec_run(r, b1, (int64_t[]){ n }, NULL, 0, 0);
            vir_interp(k, b2, (int64_t[]){ n }, NULL, 0, 0, &err);
            CHECK(!memcmp(out, ref, sizeof out));
        }
    arena_free(&a);
}
