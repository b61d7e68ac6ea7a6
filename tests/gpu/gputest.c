/* gputest.c - kernels on a GPU against vir_interp: random ones, and one of each family with times.
 *   taper_gputest [--driver LIB] [--kernels N] [--seed S] [--small] [--flash]
 * Ends with 0 where all agree, 77 where there is no GPU. */
#include "gen_fuzz.h"
#include "gpu_flash.h"
#include "ptx_cases.h"
#include "target/cuda/driver.h"
#include "target/cuda/ptx.h"
#include "test.h"
#include "vir/math/vnum.h"
#include <math.h>
#include <stdarg.h>
#include <time.h>

static int failures;
void test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    if (++failures > 5)
        return;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int target_sm(void)
{
    tp_err err = { 0 };
    const cuda_props *p = cuda_props_of(0, &err);
    return p && p->major < 9 ? 80 : 90;
}

/* Some functions are the C library's on the CPU and Taper's own on the device, where the last bit may differ: sin, cos and tan of
 * large numbers, and a few of f64. */
static bool inexact(const vir *k)
{
    for (int i = 1; i < k->n; i++) {
        const vir_ins *in = &k->ins[i];
        if (in->dead || !vir_is_math((vir_op)in->op))
            continue;
        const vir *f = vir_frag_math((vir_op)in->op, (vir_type)in->type)->k;
        for (int j = 1; j < f->n; j++)
            if (!f->ins[j].dead && f->ins[j].op == VIR_call)
                return true;
    }
    return false;
}

/* --- random kernels --------------------------------------------------------------------------------- */
typedef struct made {
    fuzz_case f;
    ptx_kernel p;
    bool ok;
} made;

static bool run_fuzz(made *m, cuda_function fn, arena *a, int round, tp_err *err)
{
    fuzz_case *f = &m->f;
    const vir *k = f->k;
    uint64_t params[128];
    void *dev[64];
    bool ok = true;
    fuzz_data(f, a, round);
    void **want = fuzz_clone(f, a), **got = fuzz_clone(f, a);
    vir_interp(k, want, f->ints, f->flts, 0, f->ints[1], err);
    for (int i = 0; i < k->nbufs && ok; i++) {
        size_t n = f->elems * vir_mem_size(k->bufs[i].mem) + 64;
        ok = (dev[i] = cuda_alloc(0, n, err)) && cuda_copy_in(0, dev[i], got[i], n, err);
    }
    if (!ok)
        return false;
    ptx_params(&m->p, dev, f->ints, f->flts, 0, f->ints[1], params);
    ok = cuda_launch(0, fn, ptx_blocks(&m->p, f->ints, 0, f->ints[1]), m->p.threads, params,
                     ptx_nparams(&m->p), NULL, err);
    for (int i = 0; i < k->nbufs && ok; i++)
        ok = cuda_copy_out(0, got[i], dev[i], f->elems * vir_mem_size(k->bufs[i].mem) + 64, err);
    for (int i = 0; i < k->nbufs; i++)
        cuda_free(0, dev[i]);
    if (ok)
        fuzz_same(f, got, want, "GPU");
    return ok;
}

static bool random_kernels(int count, uint64_t seed, tp_err *err)
{
    enum { EACH = 8 };
    int ntexts = (count + EACH - 1) / EACH, left_out = 0, differ = 0, ran = 0;
    made *m = mem_zalloc(sizeof(made) * (size_t)(count + 1));
    char **texts = mem_zalloc(sizeof(char *) * (size_t)(ntexts + 1));
    cuda_cubin *code = mem_zalloc(sizeof(cuda_cubin) * (size_t)(ntexts + 1));
    arena a = { 0 };
    bool ok = true;
    double t = now();
    for (int i = 0; i < ntexts; i++) {
        ptx_unit u = { .opts = { .sm = target_sm(), .lift = i & 1 } };
        strbuf b = { 0 };
        for (int j = i * EACH; j < MIN(count, (i + 1) * EACH); j++) {
            tp_err own = { 0 };
            fuzz_make(&m[j].f, &a, seed + (uint64_t)j);
            m[j].ok = vir_finish(m[j].f.k, &own) &&
                      ptx_add(&u, m[j].f.k, arena_printf(&a, "k%d", j), &m[j].p, &own);
            left_out += !m[j].ok;
        }
        ptx_text(&u, &b);
        texts[i] = strbuf_take(&b);
        ptx_free(&u);
    }
    double written = now() - t;
    t = now();
    ok = cuda_assemble(0, (const char *const *)texts, ntexts, code, err);
    double assembled = now() - t;
    for (int i = 0; i < ntexts && ok; i++) {
        cuda_module mod;
        ok = cuda_load(0, code[i].p, &mod, err);
        for (int j = i * EACH; j < MIN(count, (i + 1) * EACH) && ok; j++) {
            cuda_function fn;
            if (!m[j].ok)
                continue;
            ok = cuda_find(0, mod, arena_printf(&a, "k%d", j), &fn, err);
            int before = failures;
            for (int round = 0; round < 3 && ok; round++) {
                arena data = { 0 };
                ok = run_fuzz(&m[j], fn, &data, round, err);
                arena_free(&data);
            }
            if (!ok)
                err_note(err, "random kernel of seed %llu", (unsigned long long)m[j].f.seed);
            if (failures > before && inexact(m[j].f.k))
                failures = before, differ++;
            ran++;
        }
        if (ok)
            cuda_unload(0, mod);
    }
    printf(
        "random kernels: %d ran, %d without a PTX form, %d with inexact functions differ, %d values wrong; "
        "text %.0f ms, assembled in %.0f ms\n",
        ran, left_out, differ, failures, written, assembled);
    for (int i = 0; i < ntexts; i++)
        free(texts[i]), free(code[i].p);
    free(texts), free(code), free(m);
    arena_free(&a);
    return ok;
}

/* --- families ---------------------------------------------------------------------------------------- */
static void fill(vir_mem m, void *p, size_t n)
{
    uint64_t s = 88172645463325252ULL;
    for (size_t i = 0; i < n; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        double d = (double)(s >> 40) / (1 << 22) - 2;
        switch (m) {
        case VM_f64: ((double *)p)[i] = d; break;
        case VM_f32: ((float *)p)[i] = (float)d; break;
        case VM_f16: ((uint16_t *)p)[i] = vnum_to_f16((float)d); break;
        case VM_bf16: ((uint16_t *)p)[i] = vnum_to_bf16((float)d); break;
        case VM_i64: ((int64_t *)p)[i] = (int64_t)(s >> 24); break;
        case VM_i32: ((int32_t *)p)[i] = 0; break;
        default: ((uint8_t *)p)[i] = s & 1; break;
        }
    }
}

/* Elements of a buffer that a case touches: rows of them where it is indexed by the row alone. */
static double touched(const ptx_case *c, const vir *k, int b, double rows, double n)
{
    const char *name = k->bufs[b].name;
    bool out_of_rows = !strncmp(c->name, "row_", 4) && !strcmp(name, "y");
    bool index = !strcmp(c->name, "gather") && !strcmp(name, "index");
    bool column = (!strcmp(c->name, "column_sum") && !strcmp(name, "y")) || !strcmp(name, "weight");
    return out_of_rows || index                              ? rows
           : column                                          ? n
           : !strcmp(c->name, "count") && !strcmp(name, "y") ? 16
                                                             : rows * n;
}

static bool family(const ptx_case *c, bool small, tp_err *err)
{
    arena a = { 0 };
    ptx_unit u = { .opts = { .sm = target_sm() } };
    strbuf text = { 0 };
    ptx_kernel p;
    vir *k = c->make(&a);
    bool ordered = !strncmp(c->name, "scatter", 7);
    int64_t rows = c->flat ? 1
                   : small ? 5
                           : 16384,
            n = ordered   ? 2000
                : small   ? 700
                : c->flat ? 1 << 24
                          : 4096;
    if (ordered && !c->flat) /* as many iterations look at all indices */
        rows = small ? 5 : 1024;
    if (!small && !strcmp(c->name, "column_sum")) /* all of it is compared */
        rows = 2048;
    if (!small && !strcmp(c->name, "count"))
        n = 1 << 22;
    if (!strcmp(c->name, "centre")) /* the kernel knows it */
        n = 96;
    int64_t ints[2] = { rows, n }, check_n = c->flat ? MIN(n, 100000) : n, check = MIN(rows, 3);
    size_t elems = (size_t)(rows * n);
    cuda_module mod;
    cuda_function fn;
    cuda_cubin code;
    cuda_event e[2];
    void *host[8], *dev[8];
    uint64_t params[64];
    double bytes = 0, t = now();
    float best = 1e30f;
    bool ok = vir_finish(k, err) && ptx_add(&u, k, c->name, &p, err);
    if (ok)
        ptx_text(&u, &text);
    const char *one = strbuf_str(&text);
    ok = ok && cuda_assemble(0, &one, 1, &code, err) && cuda_load(0, code.p, &mod, err) &&
         cuda_find(0, mod, c->name, &fn, err);
    double built = now() - t;
    for (int i = 0; i < k->nbufs && ok; i++) {
        size_t size = vir_mem_size(k->bufs[i].mem);
        host[i] = malloc(elems * size + 64);
        fill(k->bufs[i].mem, host[i], elems);
        ok = (dev[i] = cuda_alloc(0, elems * size + 64, err)) &&
             cuda_copy_in(0, dev[i], host[i], elems * size, err);
        bytes += touched(c, k, i, (double)rows, (double)n) * (double)size *
                 (k->bufs[i].flags == VIR_INOUT ? 2 : 1);
    }
    int np = ok ? ptx_nparams(&p) : 0;
    if (ok)
        ptx_params(&p, dev, ints, NULL, 0, rows, params);
    int64_t blocks = ok ? ptx_blocks(&p, ints, 0, rows) : 0;
    ok = ok && cuda_launch(0, fn, blocks, p.threads, params, np, NULL, err) && cuda_sync(0, err);
    for (int b = 0; b < k->nbufs && ok; b++) { /* before the timed launches add again */
        vir_mem m = k->bufs[b].mem;
        size_t size = vir_mem_size(m);
        if (k->bufs[b].flags == VIR_IN)
            continue;
        void *got = malloc(elems * size + 64);
        ok = cuda_copy_out(0, got, dev[b], elems * size, err);
        void *bufs[8];
        memcpy(bufs, host, sizeof bufs);
        void *want = bufs[b] = malloc(elems * size + 64);
        memcpy(want, host[b], elems * size);
        bool whole = k->bufs[b].flags == VIR_INOUT || !strcmp(c->name, "column_sum");
        int64_t part[2] = { rows, whole ? n : check_n };
        if (ok)
            vir_interp(k, bufs, part, NULL, 0, whole ? rows : check, err);
        size_t upto = whole                          ? (size_t)touched(c, k, b, (double)rows, (double)n)
                      : !strncmp(c->name, "row_", 4) ? (size_t)check
                                                     : (size_t)(check * check_n);
        fuzz_case f = { .k = k, .elems = upto, .ints = { n, rows } };
        void *g[8], *w[8];
        for (int i = 0; i < k->nbufs; i++)
            g[i] = w[i] = host[i];
        g[b] = got, w[b] = want;
        if (ok)
            fuzz_same(&f, g, w, c->name);
        free(got), free(want);
    }
    ok = ok && cuda_event_new(0, true, &e[0], err) && cuda_event_new(0, true, &e[1], err);
    int reps = small || ordered ? 1 : 20;
    for (int r = 0; r < 3 && ok; r++) {
        float ms;
        ok = cuda_event_record(0, e[0], NULL, err);
        for (int i = 0; i < reps && ok; i++)
            ok = cuda_launch(0, fn, blocks, p.threads, params, np, NULL, err);
        ok = ok && cuda_event_record(0, e[1], NULL, err) && cuda_event_wait(0, e[1], err) &&
             cuda_event_ms(0, e[0], e[1], &ms, err);
        best = MIN(best, ms / (float)reps);
    }
    if (ok)
        printf("%-12s %6lld x %-9lld %9.4f ms %7.0f GB/s   %lld blocks of %d, text to code %.1f ms\n",
               c->name, (long long)rows, (long long)n, best, bytes / best / 1e6, (long long)blocks, p.threads,
               built);
    for (int i = 0; i < k->nbufs && ok; i++)
        free(host[i]), cuda_free(0, dev[i]);
    if (ok)
        cuda_event_free(0, e[0]), cuda_event_free(0, e[1]), cuda_unload(0, mod), free(code.p);
    strbuf_free(&text);
    ptx_free(&u);
    arena_free(&a);
    return ok || err_note(err, "in %s", c->name);
}

static bool copy_speed(bool small, tp_err *err)
{
    size_t n = small ? 1 << 16 : (size_t)256 << 20;
    void *x = cuda_alloc(0, n, err), *y = x ? cuda_alloc(0, n, err) : NULL;
    cuda_event e[2];
    float ms = 1, best = 1e30f;
    bool ok = y && cuda_event_new(0, true, &e[0], err) && cuda_event_new(0, true, &e[1], err);
    for (int r = 0; r < 4 && ok; r++) {
        ok = cuda_event_record(0, e[0], NULL, err);
        for (int i = 0; i < 10 && ok; i++)
            ok = cuda_copy(0, y, x, n, err);
        ok = ok && cuda_event_record(0, e[1], NULL, err) && cuda_event_wait(0, e[1], err) &&
             cuda_event_ms(0, e[0], e[1], &ms, err);
        best = MIN(best, ms / 10);
    }
    if (ok)
        printf("device copy of %zu MiB: %.0f GB/s\n", n >> 20, 2 * (double)n / best / 1e6);
    cuda_free(0, x), cuda_free(0, y);
    return ok;
}

int main(int argc, char **argv)
{
    int count = 400;
    uint64_t seed = 1;
    bool small = false, flash = false, ok;
    tp_err err = { 0 };
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--driver") && i + 1 < argc)
            cuda_use_library(argv[++i]);
        else if (!strcmp(argv[i], "--kernels") && i + 1 < argc)
            count = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--small"))
            small = true;
        else if (!strcmp(argv[i], "--flash")) /* attention alone */
            flash = true, count = 0;
        else
            return printf(
                       "usage: taper_gputest [--driver LIB] [--kernels N] [--seed S] [--small] [--flash]\n"),
                   2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    double t = now();
    if (!cuda_init(&err) || !cuda_use(0, &err)) {
        printf("SKIP taper_gputest: %s\n", err.msg);
        return 77;
    }
    const cuda_props *p = cuda_props_of(0, &err);
    printf("%s, compute capability %d.%d, %d multiprocessors, %.1f GiB, driver for CUDA %d.%d; started in "
           "%.0f ms\n",
           p->name, p->major, p->minor, p->multiprocessors, (double)p->total_memory / (1 << 30),
           cuda_driver_version() / 1000, cuda_driver_version() % 1000 / 10, now() - t);
    ok = copy_speed(small, &err);
    for (int i = 0; i < nptx_cases && ok && !flash; i++)
        ok = family(&ptx_cases[i], small, &err);
    if (ok)
        gpu_flash(small);
    int of_families = failures;
    failures = 0;
    ok = ok && random_kernels(count, seed, &err);
    failures += of_families;
    cuda_pool_stats s;
    cuda_stats(0, &s);
    printf("memory: %zu bytes in use, %zu held, %lld requests\n", s.allocated, s.reserved,
           (long long)s.nalloc);
    if (!ok)
        printf("FAILED: %s%s%s\n", err.msg, err.notes[0] ? "\n" : "", err.notes);
    printf("%s\n", ok && !failures ? "all agree" : "there are differences");
    return ok && !failures ? 0 : 1;
}
