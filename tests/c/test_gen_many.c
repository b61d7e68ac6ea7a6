/* Kernels with very many inputs, and very long straight-line code. */
#include "test.h"
#include "gen.h"
#include "target/c/c.h"
#include "ir/graph.h"
#include "target/x64/publish.h"
#include <sys/mman.h>

/* The sum of thousands of buffers, all loads before the first addition: registers of both kinds spill. */
TEST(gen_thousands_of_inputs)
{
    enum { N = 3000, LEN = 21 };
    arena a = { 0 };
    tp_err err = { 0 };
    vir *k = vir_make(&a, "many");
    vir_ref n = vir_int_arg(k, "n"), *v = ARENA_ARR(&a, vir_ref, N);
    for (int i = 0; i < N; i++)
        vir_buffer(k, VM_f32, VIR_IN, "x");
    int y = vir_buffer(k, VM_f32, VIR_OUT, "y");
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), n);
    for (int b = 0; b < N; b++)
        v[b] = vir_load(k, b, i, 0);
    vir_ref s = v[0];
    for (int b = 1; b < N; b++)
        s = vir_add(k, s, v[b]);
    vir_store(k, y, i, s, 0);
    vir_end(k);
    CHECK(vir_finish(k, &err));
    void **bufs = ARENA_ARR(&a, void *, N + 1);
    float out[LEN], ref[LEN];
    for (int b = 0; b < N; b++) {
        float *p = arena_alloc(&a, sizeof(float) * LEN);
        for (int j = 0; j < LEN; j++)
            p[j] = (float)((b * 31 + j) % 17) * 0.25f;
        bufs[b] = p;
    }
    int64_t ints[] = { LEN };
    bufs[N] = ref;
    CHECK(vir_interp(k, bufs, ints, NULL, 0, 0, &err));
    for (int isa = ISA_avx2; isa <= (int)gen_isa_host(); isa++) {
        const target_code *r = kernel_get(target_at(isa), k, &err);
        CHECK(r != NULL);
        bufs[N] = out;
        if (r)
            cpu_run(r, bufs, ints, NULL, 0, 0);
        CHECK(!memcmp(out, ref, sizeof out));
    }
    arena_free(&a);
}

/* Equal kernels share code; a kernel without machine code is interpreted. */
TEST(kernel_cache_and_fallback)
{
    arena a = { 0 };
    tp_err err = { 0 };
    const target_code *r[3];
    for (int c = 0; c < 3; c++) {
        vir *k = vir_make(&a, c ? "second" : "first");
        int x = vir_buffer(k, VM_f64, VIR_IN, "x"), y = vir_buffer(k, VM_f64, VIR_OUT, "y");
        vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), vir_int_arg(k, "n"));
        vir_store(k, y, i, vir_mul(k, vir_load(k, x, i, 0), vir_flt(k, VT_f64, 1.25)), 0);
        vir_end(k);
        CHECK(vir_finish(k, &err));
        r[c] = kernel_get(target_at(c == 2 ? ISA_none : gen_isa_host()), k, &err);
        CHECK(r[c] != NULL);
    }
    CHECK(r[0] == r[1]);
    double in[5] = { 1, 2, 3, 4, 5 }, out[5] = { 0 };
    void *bufs[] = { in, out };
    int64_t ints[] = { 5 };
    CHECK(r[2]->fn == NULL);
    arena_free(&a); /* the cache keeps what it needs */
    cpu_run(r[2], bufs, ints, NULL, 0, 0);
    CHECK(out[4] == 6.25);
    CHECK(kernel_get_stats().hits > 0);
}

/* No executable memory: the kernel still runs, and says why it is slow. */
TEST(kernel_without_executable_memory)
{
    arena a = { 0 };
    tp_err err = { 0 };
    vir *k = vir_make(&a, "no_memory");
    int y = vir_buffer(k, VM_i64, VIR_OUT, "y");
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), vir_int(k, 9));
    vir_store(k, y, i, vir_mul(k, i, vir_int(k, 12345)), 0);
    vir_end(k);
    CHECK(vir_finish(k, &err));
    gen_publish_limit(0);
    const target_code *r = kernel_here(k, &err);
    gen_publish_limit(-1);
    int64_t out[9];
    CHECK(r && !r->fn);
    CHECK(strstr(r->why, gen_isa_host() == ISA_none ? "AVX2" : "executable memory") != NULL);
    cpu_run(r, (void *[]){ out }, NULL, NULL, 0, 0);
    CHECK_INT(out[8], 8 * 12345);
    arena_free(&a);
}

/* Indices beyond 32 bits: rows three billion elements apart, unit, strided and gathered. */
TEST(gen_far_indices)
{
    const int64_t far = 3000000000;
    char *big = mmap(NULL, (size_t)far * 2 + 8192, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    arena a = { 0 };
    tp_err err = { 0 };
    if (big == MAP_FAILED) {
        fprintf(stderr, "SKIP gen_far_indices: no address space\n");
        return;
    }
    vir *k = vir_make(&a, "far");
    int x = vir_buffer(k, VM_i8, VIR_IN, "x"), y = vir_buffer(k, VM_i32, VIR_OUT, "y");
    vir_ref s = vir_int_arg(k, "stride"), r = vir_loop(k, LOOP_parallel, vir_int(k, 0), vir_int(k, 3));
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), vir_int(k, 3)), row = vir_mul(k, r, vir_int(k, far));
    vir_ref u = vir_load(k, x, vir_add(k, row, i), 0), v = vir_load(k, x, vir_mul(k, i, s), 0);
    vir_ref w = vir_load(k, x, vir_mul(k, vir_modf(k, vir_add(k, i, r), vir_int(k, 3)), s), 0);
    vir_ref sum = vir_add(
        k, u, vir_add(k, vir_mul(k, v, vir_imm(k, VT_i32, 100)), vir_mul(k, w, vir_imm(k, VT_i32, 10000))));
    vir_store(k, y, vir_add(k, vir_mul(k, r, vir_int(k, 3)), i), sum, 0);
    vir_end(k);
    vir_end(k);
    CHECK(vir_finish(k, &err));
    for (int j = 0; j < 3; j++)
        for (int c = 0; c < 3; c++)
            big[j * far + c] = (char)(1 + 3 * j + c);
    int32_t want[9], got[9];
    int64_t ints[] = { far };
    vir_interp(k, (void *[]){ big, want }, ints, NULL, 0, 3, &err);
    CHECK_INT(want[4], 5 + 100 * 4 + 10000 * 7);
    for (int isa = ISA_avx2; isa <= (int)gen_isa_host(); isa++) {
        const target_code *f = kernel_get(target_at(isa), k, &err);
        CHECK(f != NULL);
        memset(got, 0, sizeof got);
        cpu_run(f, (void *[]){ big, got }, ints, NULL, 0, 3);
        CHECK(!memcmp(got, want, sizeof got));
    }
    munmap(big, (size_t)far * 2 + 8192);
    arena_free(&a);
}

/* Notes reach the C text and cannot break out of their comment. */
TEST(gen_c_notes)
{
    arena a = { 0 };
    tp_err err = { 0 };
    gen_c_unit u = { 0 };
    strbuf t = { 0 };
    vir *k = vir_make(&a, "noted");
    int y = vir_buffer(k, VM_f32, VIR_OUT, "y; } evil");
    vir_ref n = vir_int_arg(k, "n");
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), n);
    ir_loc line = { .file = "/some/model.py",
                    .line = 7,
                    .code = "y = x */ system(\"\") /* \n #include \"x\"\\" };
    vir_note(k, &line);
    vir_store(k, y, i, vir_exp(k, vir_cvt(k, VT_f32, i)), 0);
    vir_end(k);
    CHECK(vir_finish(k, &err));
    gen_c_kernel(&u, k, "noted");
    gen_c_text(&u, &t);
    CHECK(strstr(strbuf_str(&t), "/* model.py:7 y = x ") != NULL);
    CHECK(strstr(strbuf_str(&t), "*/ system") == NULL);
    CHECK(strstr(strbuf_str(&t), "evil;") == NULL);
    CHECK(strstr(strbuf_str(&t), "tp_exp_f32(") != NULL);
    gen_c_free(&u);
    strbuf_free(&t);
    arena_free(&a);
}

#if defined(__x86_64__) && defined(__linux__)
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>

static void *page, *frames[32];
static int nframes;

static void on_fault(int sig)
{
    nframes = backtrace(frames, 32);
    mprotect(page, 4096, PROT_READ | PROT_WRITE); /* the load is tried again and succeeds */
}

__attribute__((noinline)) static int run_through(const target_code *r, void **bufs, const int64_t *ints)
{
    cpu_run(r, bufs, ints, NULL, 0, 0);
    return nframes; /* a use after the call: the frame stays */
}

/* A fault inside a kernel: the unwinder finds its way back to the caller. */
TEST(gen_backtrace_through_a_kernel)
{
    arena a = { 0 };
    tp_err err = { 0 };
    void *warm[2];
    if (gen_isa_host() == ISA_none)
        return;
    vir *k = vir_make(&a, "faulting");
    int x = vir_buffer(k, VM_f32, VIR_IN, "x"), y = vir_buffer(k, VM_f32, VIR_OUT, "y");
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), vir_int_arg(k, "n"));
    vir_store(k, y, i, vir_neg(k, vir_load(k, x, i, 0)), 0);
    vir_end(k);
    CHECK(vir_finish(k, &err));
    const target_code *r = kernel_here(k, &err);
    backtrace(warm, 2); /* loads the unwinder before the handler needs it */
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction act = { .sa_handler = on_fault }, old;
    sigaction(SIGSEGV, &act, &old);
    float out[40];
    void *bufs[] = { page, out };
    int64_t ints[] = { 40 };
    run_through(r, bufs, ints);
    sigaction(SIGSEGV, &old, NULL);
    bool kernel = false, caller = false;
    for (int f = 0; f < nframes; f++) {
        uintptr_t p = (uintptr_t)frames[f], code = (uintptr_t)(void *)r->fn,
                  me = (uintptr_t)(void *)run_through;
        kernel |= p >= code && p < code + r->ncode;
        caller |= kernel && p > me && p < me + 256;
    }
    CHECK(kernel);
    CHECK(caller);
    munmap(page, 4096);
    arena_free(&a);
}
#endif
