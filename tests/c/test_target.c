/* test_target.c - the table of targets: which one options get, code as bytes and back, and the same results from all. */
#include "gen.h"
#include "test.h"

enum { N = 37 };

/* y[i] = exp(x[i]) / (n + i): math, integers, a division that the helper of machine code does. */
static vir *kernel(arena *a, tp_err *err)
{
    vir *k = vir_make(a, "target_sample");
    int x = vir_buffer(k, VM_f32, VIR_IN, "x"), y = vir_buffer(k, VM_f32, VIR_OUT, "y"),
        z = vir_buffer(k, VM_i64, VIR_OUT, "z");
    vir_ref n = vir_int_arg(k, "n"), i = vir_loop(k, LOOP_vector, vir_int(k, 0), n);
    vir_ref q = vir_add(k, n, i);
    vir_store(k, y, i, vir_div(k, vir_exp(k, vir_load(k, x, i, 0)), vir_cvt(k, VT_f32, q)), 0);
    vir_store(k, z, i, vir_divt(k, vir_mul(k, q, vir_int(k, 1000)), vir_add(k, i, vir_int(k, 3))), 0);
    vir_end(k);
    return vir_finish(k, err) ? k : NULL;
}

typedef struct sample {
    float x[N], y[N];
    int64_t z[N];
} sample;

static sample run(const target_code *c)
{
    sample s = { .y = { 0 } };
    tp_err err = { 0 };
    int64_t ints[] = { N };
    for (int i = 0; i < N; i++)
        s.x[i] = (float)i / 5 - 3;
    void *bufs[] = { s.x, s.y, s.z };
    target_args args = { .bufs = bufs, .ints = ints, .par = 1, .work = N };
    CHECK(c->on->launch(c, &args, &err));
    return s;
}

TEST(target_same_bits)
{
    arena a = { 0 };
    tp_err err = { 0 };
    const vir *k = kernel(&a, &err);
    static const char *const names[] = { "x64", "x64", "c", "interpreter" };
    static const char *const levels[] = { "avx512", "avx2", "auto", "auto" };
    const char *why;
    CHECK(k != NULL);
    const target_code *plain = kernel_get(&target_interp, k, &err);
    CHECK(plain && plain->k && !plain->fn);
    sample want = run(plain);
    for (size_t i = 0; i < COUNT(names); i++) {
        const target *t = target_named(DEV_cpu, names[i], levels[i], &why);
        const target_code *c = NULL;
        CHECK(kernels_get(t, NULL, &k, 1, &c, &err) && c);
        sample got = run(c);
        CHECK(!memcmp(&got, &want, sizeof got));
    }
    arena_free(&a);
}

/* Kernels of one call: equal ones are one, and the order of the answers is that of the questions. */
TEST(target_many_at_once)
{
    arena a = { 0 };
    tp_err err = { 0 };
    const vir *k[20];
    const target_code *c[20] = { 0 };
    for (int i = 0; i < 20; i++) {
        vir *m = vir_make(&a, "many_at_once");
        int y = vir_buffer(m, VM_i64, VIR_OUT, "y");
        vir_ref v = vir_loop(m, LOOP_vector, vir_int(m, 0), vir_int(m, 4));
        vir_store(m, y, v, vir_add(m, v, vir_int(m, 77000 + i % 7)), 0);
        vir_end(m);
        CHECK(vir_finish(m, &err));
        k[i] = m;
    }
    int64_t before = kernel_get_stats().kernels;
    CHECK(kernels_get(target_host(), NULL, k, 20, c, &err));
    CHECK_INT(kernel_get_stats().kernels - before, 7);
    for (int i = 0; i < 20; i++) {
        int64_t out[4] = { 0 };
        CHECK(c[i] && c[i] == c[i % 7]);
        cpu_run(c[i], (void *[]){ out }, NULL, NULL, 0, 0);
        CHECK_INT(out[3], 77003 + i % 7);
    }
    arena_free(&a);
}

TEST(target_names)
{
    const char *why;
    strbuf b = { 0 };
    const target *all[] = { &target_avx512, &target_avx2, &target_c, &target_interp };
    for (size_t i = 0; i < COUNT(all); i++) {
        strbuf_clear(&b);
        target_id(all[i], &b);
        CHECK(target_by_id(b.s, b.n) == all[i]);
        CHECK(!target_by_id(b.s, b.n - 1));
    }
    strbuf_clear(&b);
    target_key(&target_avx2, &b);
    CHECK_STR(strbuf_str(&b), "target=x64\ncpu=avx2\n");
    CHECK(target_named(DEV_cpu, "interpreter", "auto", &why) == &target_interp);
    CHECK(target_named(DEV_cpu, "auto", "auto", &why) == target_host());
    CHECK(target_named(DEV_cpu, "auto", "base", &why) == &target_c);
    CHECK(target_named(DEV_cpu, "x64", "base", &why) == &target_interp && *why);
    CHECK(!target_named(DEV_meta, "auto", "auto", &why) && !target_of(DEV_meta));
    if (target_avx2.available(&target_avx2, &why)) {
        CHECK(target_named(DEV_cpu, "auto", "avx2", &why) == &target_avx2);
        CHECK(!target_below(&target_avx2, "avx2"));
        CHECK(target_below(&target_avx512, "avx2") == &target_avx2);
    }
    strbuf_free(&b);
}

TEST(target_code_as_bytes)
{
    arena a = { 0 };
    tp_err err = { 0 };
    strbuf b = { 0 };
    const target *t = target_host();
    const vir *k = kernel(&a, &err);
    const target_code *c = kernel_get(t, k, &err), *d = NULL;
    CHECK(c != NULL);
    if (!t->save) /* no machine code here */
        goto done;
    CHECK(t->save(c, &b, &err));
    d = kernel_load(t, "again", 5, b.s, b.n, &err);
    CHECK(d && d != c && d->fn != c->fn && d->nbytes == c->nbytes);
    CHECK(d && kernel_load(t, "again", 5, b.s, b.n, &err) == d);
    sample x = run(c), y = d ? run(d) : x;
    CHECK(!memcmp(&x, &y, sizeof x));
    for (size_t n = 0; n < b.n; n += 1 + n / 3) { /* cut off anywhere: refused */
        tp_err bad = { 0 };
        CHECK(!t->load(t, "short", b.s, n, &bad) && err_is_set(&bad));
    }
    for (size_t i = 4; i < 16; i++) { /* sizes that do not fit */
        tp_err bad = { 0 };
        char *copy = mem_alloc(b.n);
        memcpy(copy, b.s, b.n);
        copy[i] ^= (char)0x55;
        CHECK(!t->load(t, "wrong", copy, b.n, &bad) && err_is_set(&bad));
        free(copy);
    }
    CHECK(!target_c.save && !kernel_load(&target_c, "c", 0, b.s, b.n, &(tp_err){ 0 }));
done:
    strbuf_free(&b);
    arena_free(&a);
}
