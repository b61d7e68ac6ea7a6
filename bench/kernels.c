/* kernels.c - speed of generated code: fused kernels against the same kernels through gcc -O3, matrix products against
 * the measured peak and OpenBLAS, and the time from vector IR to callable code. Builds as build/taper_bench. */
#define _GNU_SOURCE
#include "base/pool.h"
#include "target/c/c.h"
#include "target/x64/conv.h"
#include "target/x64/gemm.h"
#include "run/kernel_cache.h"
#include "target/cpu/cpu.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

/* With one thread its own processor time counts, so that other work on the machine disturbs less. */
static clockid_t which = CLOCK_THREAD_CPUTIME_ID;
static double now(void)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The best of several runs of about 20 ms each: the machine may be shared. */
#define BEST(seconds, statement)                    \
    do {                                            \
        double best_ = 1e9, t_, one_;               \
        t_ = now();                                 \
        statement;                                  \
        one_ = now() - t_;                          \
        long n_ = (long)(0.02 / (one_ + 1e-7)) + 1; \
        for (int r_ = 0; r_ < 6; r_++) {            \
            t_ = now();                             \
            for (long i_ = 0; i_ < n_; i_++) {      \
                statement;                          \
            }                                       \
            t_ = (now() - t_) / (double)n_;         \
            best_ = t_ < best_ ? t_ : best_;        \
        }                                           \
        (seconds) = best_;                          \
    } while (0)

typedef struct {
    const char *name;
    vir *(*make)(arena *a);
    int64_t rows, n;
    double bytes; /* moved per element */
} fused;

static vir_ref at(vir *k, vir_ref r, vir_ref n, vir_ref i) { return vir_add(k, vir_mul(k, r, n), i); }

static vir *chain(arena *a) /* gelu(x * y + 1) */
{
    vir *k = vir_make(a, "chain");
    int x = vir_buffer(k, VM_f32, VIR_IN, "x"), y = vir_buffer(k, VM_f32, VIR_IN, "y"),
        z = vir_buffer(k, VM_f32, VIR_OUT, "z");
    vir_ref n = vir_int_arg(k, "n"), rows = vir_int_arg(k, "rows"),
            r = vir_loop(k, LOOP_parallel, vir_int(k, 0), rows);
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), n), j = at(k, r, n, i);
    vir_ref v = vir_fma(k, vir_load(k, x, j, 0), vir_load(k, y, j, 0), vir_flt(k, VT_f32, 1));
    vir_ref g = vir_erf(k, vir_mul(k, v, vir_flt(k, VT_f32, 0.70710678)));
    vir_store(k, z, j,
              vir_mul(k, vir_mul(k, v, vir_flt(k, VT_f32, 0.5)), vir_add(k, g, vir_flt(k, VT_f32, 1))), 0);
    vir_end(k), vir_end(k);
    return k;
}
static vir *axpy(arena *a)
{
    vir *k = vir_make(a, "axpy");
    int x = vir_buffer(k, VM_f32, VIR_IN, "x"), y = vir_buffer(k, VM_f32, VIR_IN, "y"),
        z = vir_buffer(k, VM_f32, VIR_OUT, "z");
    vir_ref n = vir_int_arg(k, "n"), rows = vir_int_arg(k, "rows"),
            r = vir_loop(k, LOOP_parallel, vir_int(k, 0), rows);
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), n), j = at(k, r, n, i);
    vir_store(k, z, j, vir_fma(k, vir_load(k, x, j, 0), vir_flt(k, VT_f32, 2), vir_load(k, y, j, 0)), 0);
    vir_end(k), vir_end(k);
    return k;
}
static vir *softmax(arena *a)
{
    vir *k = vir_make(a, "softmax");
    int x = vir_buffer(k, VM_f32, VIR_IN, "x"), unused = vir_buffer(k, VM_f32, VIR_IN, "unused"),
        z = vir_buffer(k, VM_f32, VIR_OUT, "z");
    vir_ref n = vir_int_arg(k, "n"), rows = vir_int_arg(k, "rows"), zero = vir_int(k, 0),
            r = vir_loop(k, LOOP_parallel, zero, rows);
    int mx = vir_red(k, RED_max, VT_f32), sum = vir_red(k, RED_sum, VT_f32);
    vir_ref i = vir_loop(k, LOOP_vector, zero, n);
    vir_step(k, mx, vir_load(k, x, at(k, r, n, i), 0), 0);
    vir_end(k);
    vir_ref top = vir_fold(k, mx);
    int out = vir_buffer(k, VM_f32, VIR_INOUT, "scratch");
    i = vir_loop(k, LOOP_vector, zero, n);
    vir_ref e = vir_exp(k, vir_sub(k, vir_load(k, x, at(k, r, n, i), 0), top));
    vir_step(k, sum, e, 0);
    vir_store(k, out, i, e, 0);
    vir_end(k);
    vir_ref inv = vir_div(k, vir_flt(k, VT_f32, 1), vir_fold(k, sum));
    i = vir_loop(k, LOOP_vector, zero, n);
    vir_store(k, z, at(k, r, n, i), vir_mul(k, vir_load(k, out, i, 0), inv), 0);
    vir_end(k), vir_end(k);
    (void)unused;
    return k;
}
static vir *layernorm(arena *a)
{
    vir *k = vir_make(a, "layernorm");
    int x = vir_buffer(k, VM_f32, VIR_IN, "x"), w = vir_buffer(k, VM_f32, VIR_IN, "w"),
        z = vir_buffer(k, VM_f32, VIR_OUT, "z");
    vir_ref n = vir_int_arg(k, "n"), rows = vir_int_arg(k, "rows"), zero = vir_int(k, 0),
            r = vir_loop(k, LOOP_parallel, zero, rows);
    vir_ref inv_n = vir_div(k, vir_flt(k, VT_f32, 1), vir_cvt(k, VT_f32, n));
    int sum = vir_red(k, RED_sum, VT_f32), sq = vir_red(k, RED_sum, VT_f32);
    vir_ref i = vir_loop(k, LOOP_vector, zero, n);
    vir_step(k, sum, vir_load(k, x, at(k, r, n, i), 0), 0);
    vir_end(k);
    vir_ref mean = vir_mul(k, vir_fold(k, sum), inv_n);
    i = vir_loop(k, LOOP_vector, zero, n);
    vir_ref d = vir_sub(k, vir_load(k, x, at(k, r, n, i), 0), mean);
    vir_step(k, sq, vir_mul(k, d, d), 0);
    vir_end(k);
    vir_ref rs = vir_rsqrt(k, vir_fma(k, vir_fold(k, sq), inv_n, vir_flt(k, VT_f32, 1e-5)));
    i = vir_loop(k, LOOP_vector, zero, n);
    d = vir_mul(k, vir_sub(k, vir_load(k, x, at(k, r, n, i), 0), mean), rs);
    vir_store(k, z, at(k, r, n, i), vir_mul(k, d, vir_load(k, w, i, 0)), 0);
    vir_end(k), vir_end(k);
    return k;
}
static vir *colsum(arena *a)
{
    vir *k = vir_make(a, "colsum");
    int x = vir_buffer(k, VM_f32, VIR_IN, "x"), w = vir_buffer(k, VM_f32, VIR_IN, "w"),
        z = vir_buffer(k, VM_f32, VIR_OUT, "z");
    vir_ref n = vir_int_arg(k, "n"), rows = vir_int_arg(k, "rows"), zero = vir_int(k, 0);
    vir_ref i = vir_loop(k, LOOP_vector, zero, n);
    int sum = vir_red(k, RED_sum, VT_f32);
    vir_ref r = vir_loop(k, LOOP_serial, zero, rows);
    vir_step(k, sum, vir_load(k, x, at(k, r, n, i), 0), 0);
    vir_end(k);
    vir_store(k, z, i, vir_fold(k, sum), 0);
    vir_end(k);
    (void)w;
    return k;
}

static void bench_fused(void)
{
    static const fused list[] = { { "x*2+y, 1M", axpy, 1024, 1024, 12 },
                                  { "gelu(x*y+1), 1M", chain, 1024, 1024, 12 },
                                  { "softmax 4096x1024", softmax, 4096, 1024, 8 },
                                  { "layer norm 4096x768", layernorm, 4096, 768, 8 },
                                  { "column sums 4096x768", colsum, 4096, 768, 4 },
                                  { "x*2+y, 16K (cache)", axpy, 16, 1024, 12 },
                                  { "gelu, 16K (cache)", chain, 16, 1024, 12 },
                                  { "softmax 16x1024 (cache)", softmax, 16, 1024, 8 } };
    printf("%-26s %10s %10s %10s %10s %8s %10s %12s\n", "fused kernel, one thread", "ours us", "avx2 us",
           "gcc -O3 us", "gcc/ours", "GB/s", "emit us", "callable us");
    float *x = aligned_alloc(64, 4096 * 1024 * 4), *y = aligned_alloc(64, 4096 * 1024 * 4),
          *z = aligned_alloc(64, 4096 * 1024 * 4), *s = aligned_alloc(64, 1 << 20);
    for (int i = 0; i < 4096 * 1024; i++)
        x[i] = (float)(i % 977) * 0.01f - 4, y[i] = (float)(i % 331) * 0.01f, z[i] = 0;
    for (size_t i = 0; i < COUNT(list); i++) {
        const fused *f = &list[i];
        arena a = { 0 };
        tp_err err = { 0 };
        gen_c_unit u = { 0 };
        strbuf text = { 0 };
        gen_lib lib = { 0 };
        vir *k = f->make(&a);
        if (!vir_finish(k, &err)) {
            printf("%s\n", err.msg);
            return;
        }
        gen_c_kernel(&u, k, "k");
        gen_c_text(&u, &text);
        gen_cc_load(strbuf_str(&text), "-O3", &lib, &err);
        void *bufs[] = { x, y, z, s };
        int64_t ints[] = { f->n, f->rows };
        double t, t2 = 0, tc = 0, comp = 1e9;
        gen_code code;
        for (int r = 0; r < 20; r++) {
            double c0 = now();
            gen_x64(k, gen_isa_host(), &code, NULL, &err);
            c0 = now() - c0;
            comp = MIN(comp, c0);
            gen_code_free(&code);
        }
        const target_code *r = kernel_get(target_host(), k, &err), *r2 = kernel_get(&target_avx2, k, &err);
        BEST(t, cpu_run(r, bufs, ints, NULL, 0, f->rows));
        BEST(t2, cpu_run(r2, bufs, ints, NULL, 0, f->rows));
        if (lib.dl) {
            vir_fn fn = gen_lib_find(&lib, "k");
            BEST(tc, fn(bufs, ints, NULL, 0, f->rows));
        }
        printf("%-26s %10.1f %10.1f %10.1f %10.2f %8.1f %10.1f %12.1f\n", f->name, t * 1e6, t2 * 1e6,
               tc * 1e6, tc / t, f->bytes * (double)f->rows * (double)f->n / t * 1e-9, comp * 1e6,
               r->compile_us);
        gen_lib_free(&lib);
        gen_c_free(&u);
        strbuf_free(&text);
        arena_free(&a);
    }
    double t;
    BEST(t, memcpy(z, x, 4096 * 1024 * 4));
    printf("copy of 16 MiB: %.1f GB/s read and written\n", 2.0 * 4096 * 1024 * 4 / t * 1e-9);
    free(x), free(y), free(z), free(s);
}

typedef void sgemm_fn(int, int, int, int, int, int, float, const float *, int, const float *, int, float,
                      float *, int);

static void bench_gemm(int threads)
{
    static const struct {
        int64_t m, n, k, batch;
        bool bt;
    } list[] = { { 512, 512, 2048, 1, 0 }, { 512, 2048, 512, 1, 0 }, { 256, 256, 256, 1, 0 },
                 { 128, 128, 32, 16, 0 },  { 512, 512, 512, 1, 0 },  { 1024, 1024, 1024, 1, 0 },
                 { 512, 512, 512, 1, 1 },  { 64, 768, 768, 1, 1 },   { 1, 768, 768, 1, 1 },
                 { 8, 1024, 1024, 1, 0 } };
    void *blas = dlopen("libopenblas.so.0", RTLD_NOW);
    sgemm_fn *sgemm = NULL;
    if (blas) {
        *(void **)&sgemm = dlsym(blas, "cblas_sgemm");
        void (*nt)(int);
        *(void **)&nt = dlsym(blas, "openblas_set_num_threads");
        if (nt)
            nt(threads);
    }
    pool_set_threads(threads);
    tp_err err = { 0 };
    float *a = aligned_alloc(64, 16 << 20), *b = aligned_alloc(64, 16 << 20),
          *c = aligned_alloc(64, 16 << 20);
    for (int i = 0; i < 4 << 20; i++)
        a[i] = (float)(i % 7) * 0.1f, b[i] = (float)(i % 5) * 0.1f, c[i] = 0;
    /* peak: a tile that stays in the first cache */
    gemm_desc pd = {
        14, 32, 256, 1, { VM_f32, 256, 1, 0 }, { VM_f32, 32, 1, 0 }, { VM_f32, 32, 1, 0 }, 1, 0
    };
    gemm_plan *pp = gemm_plan_new(&pd, gen_isa_host(), &err);
    double t, peak;
    BEST(t, gemm_run(pp, a, b, NULL, c, NULL, &err));
    peak = 2.0 * 14 * 32 * 256 / t * 1e-9 * threads;
    gemm_plan_free(pp);
    printf("\nmatrix product f32, %d thread(s), peak (tile in first cache) %.0f GFlop/s\n%-34s %8s %8s %8s "
           "%8s %9s\n",
           threads, peak, "shape", "ours", "% peak", "blas", "ours/blas", "plan us");
    for (size_t i = 0; i < COUNT(list); i++) {
        int64_t m = list[i].m, n = list[i].n, k = list[i].k, nb = list[i].batch;
        gemm_desc d = {
            m, n, k, nb, { VM_f32, k, 1, m * k }, { VM_f32, n, 1, k * n }, { VM_f32, n, 1, m * n }, 1, 0
        };
        if (list[i].bt)
            d.b.row = 1, d.b.col = k;
        double p0 = now();
        gemm_plan *p = gemm_plan_new(&d, gen_isa_host(), &err);
        p0 = now() - p0;
        double flops = 2.0 * (double)(m * n * k * nb), tb = 0;
        BEST(t, gemm_run(p, a, b, NULL, c, NULL, &err));
        if (sgemm)
            BEST(tb, for (int64_t x = 0; x < nb; x++)
                         sgemm(101, 111, list[i].bt ? 112 : 111, (int)m, (int)n, (int)k, 1, a + x * m * k,
                               (int)k, b + x * k * n, (int)(list[i].bt ? k : n), 0, c + x * m * n, (int)n));
        char name[64];
        snprintf(name, sizeof name, "%lldx%lldx%lld%s batch %lld", (long long)m, (long long)n, (long long)k,
                 list[i].bt ? " B^T" : "", (long long)nb);
        strbuf s = { 0 };
        gemm_describe(p, &s);
        printf("%-34s %8.1f %8.1f %8.1f %8.2f %9.1f  %s\n", name, flops / t * 1e-9,
               flops / t * 1e-9 / peak * 100, tb > 0 ? flops / tb * 1e-9 : 0, tb > 0 ? tb / t : 0, p0 * 1e6,
               strstr(strbuf_str(&s), "tile"));
        strbuf_free(&s);
        gemm_plan_free(p);
    }
    static const conv_geom cg = {
        4, 64, 64, 1, { 1, 32, 32 }, { 1, 32, 32 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 }
    };
    double cf = 2.0 * 4 * 64 * 1024 * 576, t2, t3;
    BEST(t, corr_forward(gen_isa_host(), DT_f32, &cg, a, b, NULL, c, NULL));
    BEST(t2, corr_grad_input(gen_isa_host(), DT_f32, &cg, a, b, c));
    BEST(t3, corr_grad_weight(gen_isa_host(), DT_f32, &cg, a, b, c));
    printf("convolution 4x64x32x32 3x3         %8.1f %8.1f   gradient of input %.1f, of weight %.1f %% of "
           "peak\n",
           cf / t * 1e-9, cf / t * 1e-9 / peak * 100, cf / t2 * 1e-9 / peak * 100,
           cf / t3 * 1e-9 / peak * 100);
    free(a), free(b), free(c);
}

int main(int argc, char **argv)
{
    if (argc < 2 || !strcmp(argv[1], "fused"))
        bench_fused();
    if (argc < 2 || !strcmp(argv[1], "gemm")) {
        bench_gemm(1);
        which = CLOCK_MONOTONIC;
        bench_gemm(2);
    }
    return 0;
}
