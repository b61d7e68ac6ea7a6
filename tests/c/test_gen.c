/* Kernels by interpreter and by machine code agree. */
#include "test.h"
#include "gen.h"
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
        const target_code *r = kernel_get(target_at(isa), k, &err);
        CHECK(r != NULL);
        for (size_t s = 0; r && s < COUNT(sizes); s++) {
            float in[300], out[300], ref[300];
            for (int j = 0; j < 300; j++)
                in[j] = (float)j * 0.37f - 40, out[j] = ref[j] = -7;
            void *b1[] = { in, out }, *b2[] = { in, ref };
            int64_t ints[] = { sizes[s] };
            double flts[] = { 2.25 };
            cpu_run(r, b1, ints, flts, 0, 0);
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
            const target_code *r = kernel_get(target_at(isa), k, &err);
            float in[140], out[140], ref[140];
            for (int j = 0; j < 140; j++)
                in[j] = (float)j * 0.37f - 40, out[j] = ref[j] = -7;
            void *b1[] = { out, in }, *b2[] = { ref, in };
            cpu_run(r, b1, (int64_t[]){ n }, NULL, 0, 0);
            vir_interp(k, b2, (int64_t[]){ n }, NULL, 0, 0, &err);
            CHECK(!memcmp(out, ref, sizeof out));
        }
    arena_free(&a);
}

/* Rows in three passes: the largest (stored, perhaps with its place), a sum of what is written on the way, and that times
 * something of the row. */
static vir *rows_kernel(arena *a, bool place, tp_err *err)
{
    vir *k = vir_make(a, "rows");
    int x = vir_buffer(k, VM_f32, VIR_IN, "x"), w = vir_buffer(k, VM_f32, VIR_IN, "w"),
        y = vir_buffer(k, VM_f32, VIR_INOUT, "y"), at = vir_buffer(k, VM_i32, VIR_OUT, "at"),
        tops = vir_buffer(k, VM_f32, VIR_OUT, "tops");
    vir_ref n = vir_int_arg(k, "n"), rows = vir_int_arg(k, "rows"), zero = vir_int(k, 0);
    vir_ref r = vir_loop(k, LOOP_parallel, zero, rows), base = vir_mul(k, r, n);
    vir_ref scale = vir_load(k, w, r, 0);
    int m = vir_red(k, place ? RED_argmax : RED_max, VT_f32);
    vir_ref i = vir_loop(k, LOOP_vector, zero, n);
    vir_step(k, m, vir_mul(k, vir_load(k, x, vir_add(k, base, i), 0), scale),
             place ? vir_cvt(k, VT_i32, i) : 0);
    vir_end(k);
    vir_ref top = vir_fold(k, m);
    vir_store(k, tops, r, top, 0);
    if (place)
        vir_store(k, at, r, vir_part(k, m, 1), 0);
    int s = vir_red(k, RED_sum, VT_f32);
    i = vir_loop(k, LOOP_vector, zero, n);
    vir_ref e = vir_sub(k, vir_load(k, x, vir_add(k, base, i), 0), top);
    vir_step(k, s, e, 0);
    vir_store(k, y, vir_add(k, base, i), e, 0);
    vir_end(k);
    vir_ref f = vir_add(k, vir_fold(k, s), vir_cvt(k, VT_f32, r));
    i = vir_loop(k, LOOP_vector, zero, n);
    vir_ref at_i = vir_add(k, base, i);
    vir_store(k, y, at_i,
              vir_add(k, vir_mul(k, vir_load(k, y, at_i, 0), f), vir_add(k, scale, vir_cvt(k, VT_f32, r))),
              0);
    vir_end(k);
    vir_end(k);
    CHECK(vir_finish(k, err));
    return k;
}

/* The first pass of the next row runs in the last loop of this one: there is a loop that takes maxima and writes. */
TEST(gen_rows_ahead)
{
    enum { ROWS = 6, N = 70 };
    arena a = { 0 };
    tp_err err = { 0 };
    strbuf b = { 0 };
    gen_code c;
    if (gen_isa_host() >= ISA_avx512 && gen_x64(rows_kernel(&a, false, &err), ISA_avx512, &c, &b, &err)) {
        bool both = false;
        gen_code_free(&c);
        for (char *p = (char *)strbuf_str(&b), *next; p; p = next) {
            next = strstr(p, "\n.L");
            if (next)
                *next++ = 0;
            both |= strstr(p, "vmaxps") && strstr(p, "vmovups zmmword ptr");
        }
        CHECK(both);
    }
    strbuf_free(&b);
    for (int place = 0; place < 2; place++) {
        vir *k = rows_kernel(&a, place, &err);
        for (int isa = ISA_avx2; isa <= (int)gen_isa_host(); isa++) {
            const target_code *r = kernel_get(target_at(isa), k, &err);
            CHECK(r != NULL);
            for (int n = 1; r && n <= N; n += 1 + n / 5)
                for (int same = 0; same < 4; same++) /* the same memory; NaN in some rows */
                    for (int lo = 0; lo < 3; lo++) {
                        float in[ROWS * N], in2[ROWS * N], out[ROWS * N], ref[ROWS * N], w[ROWS];
                        int32_t at[ROWS] = { 0 }, at2[ROWS] = { 0 };
                        float top[ROWS] = { 0 }, top2[ROWS] = { 0 };
                        for (int j = 0; j < ROWS * N; j++)
                            in[j] = in2[j] = (float)(j * 37 % 101) * 0.37f - 10, out[j] = ref[j] = -7;
                        for (int j = same & 2 ? n + n / 2 : ROWS * N; j < ROWS * N; j += 2 * n + 3)
                            in[j] = in2[j] = NAN;
                        for (int j = 0; j < ROWS; j++)
                            w[j] = 1 - 0.3f * (float)j;
                        int64_t ints[] = { n, ROWS }, hi = lo == 2 ? lo : ROWS - lo;
                        cpu_run(r, (void *[]){ in, w, same & 1 ? in : out, at, top }, ints, NULL, lo, hi);
                        vir_interp(k, (void *[]){ in2, w, same & 1 ? in2 : ref, at2, top2 }, ints, NULL, lo,
                                   hi, &err);
                        CHECK(!memcmp(in, in2, sizeof in) && !memcmp(out, ref, sizeof out) &&
                              !memcmp(at, at2, sizeof at) && !memcmp(top, top2, sizeof top));
                    }
        }
    }
    arena_free(&a);
}
