/* Matrix products against plain loops: shapes, strides, types, epilogue, both instruction sets. */
#include "test.h"
#include "target/x64/gemm.h"
#include "base/pool.h"
#include "target/x64/publish.h"
#include "vir/math/vnum.h"
#include <math.h>

static double get(vir_mem t, const void *p, int64_t i)
{
    return t == VM_f64   ? ((const double *)p)[i]
           : t == VM_f32 ? ((const float *)p)[i]
           : t == VM_f16 ? vnum_from_f16(((const uint16_t *)p)[i])
                         : vnum_from_bf16(((const uint16_t *)p)[i]);
}
static void set(vir_mem t, void *p, int64_t i, double v)
{
    if (t == VM_f64)
        ((double *)p)[i] = v;
    else if (t == VM_f32)
        ((float *)p)[i] = (float)v;
    else
        ((uint16_t *)p)[i] = t == VM_f16 ? vnum_to_f16((float)v) : vnum_to_bf16((float)v);
}

static gemm_mat mat(vir_mem t, int64_t rows, int64_t cols, int layout)
{
    gemm_mat m = { t, cols, 1, rows * cols };
    if (layout == 1)
        m.row = 1, m.col = rows;
    if (layout == 2)
        m.row = 2 * cols + 3, m.col = 2, m.batch = rows * (2 * cols + 3);
    return m;
}
static void *filled(vir_mem t, int64_t n, uint32_t seed)
{
    void *p = mem_zalloc((size_t)n * 8 + 64);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        set(t, p, i, (double)((int)(seed >> 16 & 255) - 128) / 64.0);
    }
    return p;
}

static void check(const gemm_desc *d, gen_isa isa)
{
    tp_err err = { 0 };
    gemm_plan *p = gemm_plan_new(d, isa, &err);
    CHECK(p != NULL);
    if (!p)
        return;
    int64_t na = d->batch * MAX(d->a.batch, 1) + 64, nb = d->batch * MAX(d->b.batch, 1) + 64,
            nc = d->batch * MAX(d->c.batch, 1) + 64;
    void *a = filled(d->a.type, na, 1), *b = filled(d->b.type, nb, 2), *c = filled(d->c.type, nc, 3),
         *old = filled(d->c.type, nc, 3);
    CHECK(gemm_run(p, a, b, NULL, c, NULL, &err));
    double worst = 0, eps = d->c.type == VM_f64   ? 1e-13
                            : d->c.type == VM_f32 ? 1e-5
                            : d->c.type == VM_f16 ? 2e-3
                                                  : 1e-2;
    uint8_t *touched = mem_zalloc((size_t)nc);
    for (int64_t x = 0; x < d->batch; x++)
        for (int64_t i = 0; i < d->m; i++)
            for (int64_t j = 0; j < d->n; j++) {
                int64_t at = x * d->c.batch + i * d->c.row + j * d->c.col;
                double s = 0, mag = 1;
                for (int64_t k = 0; k < d->k; k++) {
                    double u = get(d->a.type, a, x * d->a.batch + i * d->a.row + k * d->a.col) *
                               get(d->b.type, b, x * d->b.batch + k * d->b.row + j * d->b.col);
                    s += u, mag += fabs(u);
                }
                s = d->alpha * s + (d->beta != 0 ? d->beta * get(d->c.type, old, at) : 0);
                touched[at] = 1;
                worst = fmax(worst, fabs(get(d->c.type, c, at) - s) / mag);
            }
    bool outside = false;
    for (int64_t i = 0; i < nc; i++)
        outside |= !touched[i] && get(d->c.type, c, i) != get(d->c.type, old, i);
    if (!(worst < eps) || outside) {
        strbuf t = { 0 };
        gemm_describe(p, &t);
        test_fail(__FILE__, __LINE__, "%s: error %g%s (alpha %g beta %g)", strbuf_str(&t), worst,
                  outside ? ", wrote outside" : "", d->alpha, d->beta);
        strbuf_free(&t);
    }
    free(touched), free(a), free(b), free(c), free(old);
    gemm_plan_free(p);
}

TEST(gemm_shapes)
{
    static const int64_t sizes[][3] = { { 1, 1, 1 },        { 1, 17, 5 },     { 2, 100, 33 },
                                        { 5, 3, 64 },       { 13, 32, 7 },    { 14, 48, 20 },
                                        { 15, 49, 129 },    { 29, 31, 37 },   { 64, 64, 64 },
                                        { 33, 250, 70 },    { 128, 128, 32 }, { 70, 17, 700 },
                                        { 3, 5, 0 },        { 0, 4, 4 },      { 30, 1, 50 },
                                        { 100, 210, 1100 }, { 16, 200, 40 },  { 7, 65, 300 } };
    static const vir_mem types[] = { VM_f32, VM_f64, VM_bf16, VM_f16 };
    static const double ab[][2] = { { 1, 0 }, { 1, 1 }, { -0.5, 2 } };
    uint32_t r = 7;
    for (int isa = ISA_none; isa <= (int)gen_isa_host(); isa++)
        for (size_t s = 0; s < COUNT(sizes); s++)
            for (int layout = 0; layout < 4; layout++) {
                gemm_desc d = { sizes[s][0], sizes[s][1], sizes[s][2], 1 };
                r = r * 1664525u + 1013904223u;
                vir_mem t = layout < 2 ? VM_f32 : types[r >> 20 & 3];
                if (d.m * d.n * d.k > 5000000 && (layout > 1 || isa == ISA_none))
                    continue;
                d.batch = 1 + (r >> 8) % 3;
                d.a = mat(t, d.m, d.k, r >> 10 & 1 ? 0 : (int)(r >> 12) % 3);
                d.b = mat(t, d.k, d.n, layout % 3);
                d.c = mat(t, d.m, d.n, layout == 1 ? 0 : (int)(r >> 14) % 3);
                d.alpha = ab[(r >> 24) % 3][0], d.beta = ab[(r >> 24) % 3][1];
                check(&d, (gen_isa)isa);
            }
}

/* C = relu(A B + bias), the bias and the maximum in the epilogue. */
TEST(gemm_epilogue_rows)
{
    arena a = { 0 };
    tp_err err = { 0 };
    enum { M = 137, N = 153, K = 60, BATCH = 2 };
    int was = pool_threads();
    vir *k = vir_make(&a, "bias_relu");
    int c = vir_buffer(k, VM_f32, VIR_INOUT, "c"), bias = vir_buffer(k, VM_f32, VIR_IN, "bias");
    vir_ref n = vir_int_arg(k, "n"), m = vir_int_arg(k, "m");
    vir_ref r = vir_loop(k, LOOP_parallel, vir_int(k, 0), m), row = vir_mul(k, r, n);
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), n);
    vir_ref v = vir_add(k, vir_load(k, c, vir_add(k, row, i), 0), vir_load(k, bias, i, 0));
    vir_store(k, c, vir_add(k, row, i), vir_max(k, v, vir_flt(k, VT_f32, 0)), 0);
    vir_end(k);
    vir_end(k);
    CHECK(vir_finish(k, &err));
    float *x = filled(VM_f32, BATCH * M * K, 1), *w = filled(VM_f32, K * N, 2),
          *y = filled(VM_f32, BATCH * M * N, 3), *b = filled(VM_f32, N, 4);
    for (int at = 6; at < 6 * (int)(gen_isa_host() + 1); at++) { /* 1 or 7 threads, and how they share */
        int isa = at / 6;
        gen_code code;
        gemm_desc d = {
            M, N, K, BATCH, mat(VM_f32, M, K, 0), mat(VM_f32, K, N, 1), mat(VM_f32, M, N, 0), 1, 0
        };
        d.b.batch = 0;
        d.share = at % 3;
        pool_set_threads(at & 1 ? 7 : 1);
        gemm_plan *p = gemm_plan_new(&d, (gen_isa)isa, &err);
        CHECK(p && gen_x64(k, (gen_isa)isa, &code, NULL, &err));
        gemm_epilogue e = { .bufs = (void *[]){ y, b }, .ints = (int64_t[]){ N, BATCH * M } };
        *(void **)&e.fn = gen_publish(&code, "bias_relu", &err);
        CHECK(gemm_run(p, x, w, NULL, y, &e, &err));
        double worst = 0;
        for (int t = 0; t < BATCH; t++)
            for (int ii = 0; ii < M; ii++)
                for (int j = 0; j < N; j++) {
                    double s = b[j];
                    for (int q = 0; q < K; q++)
                        s += (double)x[(t * M + ii) * K + q] * w[j * K + q];
                    worst = fmax(worst, fabs(fmax(s, 0) - y[(t * M + ii) * N + j]));
                }
        CHECK(worst < 1e-4);
        gen_code_free(&code);
        gemm_plan_free(p);
    }
    pool_set_threads(was);
    free(x), free(w), free(y), free(b);
    arena_free(&a);
}

/* Any number of threads, sharing as they may: the bits of one thread. */
TEST(gemm_bits_do_not_depend_on_threads)
{
    static const int64_t sizes[][3] = {
        { 200, 300, 128 }, { 61, 512, 900 }, { 500, 70, 64 }, { 33, 1000, 300 }
    };
    int was = pool_threads();
    for (int isa = ISA_avx2; isa <= (int)gen_isa_host(); isa++)
        for (size_t s = 0; s < COUNT(sizes); s++)
            for (int layout = 0; layout < 3; layout++) {
                int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2], nc = 2 * m * (2 * n + 3);
                vir_mem t = layout == 1 ? VM_f64 : VM_f32;
                gemm_desc d = {
                    m, n, k, 1, mat(t, m, k, layout), mat(t, k, n, layout ^ 1), mat(t, m, n, layout)
                };
                d.alpha = layout == 2 ? 0.5 : 1, d.beta = layout == 1 ? 1 : 0;
                void *a = filled(t, 2 * d.a.batch, 1), *b = filled(t, 2 * d.b.batch, 2),
                     *first = filled(t, nc, 3);
                for (int threads = 1; threads <= 16; threads += 5)
                    for (d.share = threads > 1; d.share < 3; d.share++) {
                        tp_err err = { 0 };
                        void *c = filled(t, nc, 3);
                        pool_set_threads(threads);
                        gemm_plan *p = gemm_plan_new(&d, (gen_isa)isa, &err);
                        CHECK(p && gemm_run(p, a, b, NULL, threads == 1 ? first : c, NULL, &err));
                        CHECK(threads == 1 || !memcmp(c, first, (size_t)nc * vir_mem_size(t)));
                        gemm_plan_free(p);
                        free(c);
                        if (threads == 1)
                            break;
                    }
                free(a), free(b), free(first);
            }
    pool_set_threads(was);
}

TEST(gemm_adds_a_row)
{
    static const int64_t sizes[][3] = { { 37, 53, 21 }, { 16, 200, 900 }, { 5, 1, 3 }, { 64, 96, 64 } };
    for (int isa = ISA_none; isa <= (int)gen_isa_host(); isa++)
        for (size_t s = 0; s < COUNT(sizes); s++)
            for (int layout = 0; layout < 2; layout++) {
                int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
                tp_err err = { 0 };
                gemm_desc d = {
                    m, n, k, 1, mat(VM_f32, m, k, 0), mat(VM_f32, k, n, layout), mat(VM_f32, m, n, 0), 1, 0, 1
                };
                float *a = filled(VM_f32, m * k, 1), *b = filled(VM_f32, k * n, 2),
                      *row = filled(VM_f32, n, 3), *with = filled(VM_f32, m * n, 4),
                      *without = filled(VM_f32, m * n, 5);
                gemm_plan *p = gemm_plan_new(&d, (gen_isa)isa, &err);
                CHECK(p && gemm_run(p, a, b, row, with, NULL, &err));
                d.bias = 0;
                gemm_plan *q = gemm_plan_new(&d, (gen_isa)isa, &err);
                CHECK(q && gemm_run(q, a, b, NULL, without, NULL, &err));
                double worst = 0;
                for (int64_t i = 0; i < m * n; i++)
                    worst = fmax(worst, fabs(with[i] - (double)without[i] - row[i % n]));
                CHECK(worst < 1e-3);
                gemm_plan_free(p), gemm_plan_free(q);
                free(a), free(b), free(row), free(with), free(without);
            }
}

/* The first `part` columns of a product, products of the first `part` columns of A and rows of B, and the first rows. */
static bool some_of(const gemm_plan *p, const gemm_desc *d, const float *a, const float *b, void *packed,
                    int64_t part)
{
    double worst = 0;
    for (int which = 0; which < 3; which++) {
        float *c = filled(VM_f32, d->m * d->n, 3);
        int64_t cols = which ? d->n : part, k = which == 1 ? part : d->k,
                rows = which == 2 ? MIN(part, d->m) : d->m;
        if (!gemm_run_packed(p, a, b, packed, c, rows, cols, k, NULL))
            worst = 1e9;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) {
                double s = 0;
                for (int64_t x = 0; x < k; x++)
                    s += a[i * d->a.row + x * d->a.col] * (double)b[x * d->b.row + j * d->b.col];
                worst = fmax(worst, fabs(s - c[i * d->n + j]));
            }
        free(c);
    }
    return worst < 1e-3;
}

TEST(gemm_any_tile_gives_the_same_bits)
{
    static const int64_t shape[][3] = { { 7, 40, 33 }, { 64, 96, 70 }, { 50, 130, 500 }, { 200, 17, 20 } };
    for (size_t s = 0; s < COUNT(shape); s++)
        for (int isa = ISA_avx2; isa <= (int)gen_isa_host(); isa++)
            for (int layout = 0; layout < 2; layout++) {
                int64_t m = shape[s][0], n = shape[s][1], k = shape[s][2];
                gemm_desc d = {
                    m,         n, k, 1, mat(VM_f32, m, k, 0), mat(VM_f32, k, n, layout), mat(VM_f32, m, n, 0),
                    .alpha = 1
                };
                float *a = filled(VM_f32, m * k, 1), *b = filled(VM_f32, k * n, 2), *first = NULL;
                for (d.nv = 0; d.nv <= GEMM_WIDEST; d.nv++) {
                    tp_err err = { 0 };
                    gemm_plan *p = gemm_plan_new(&d, (gen_isa)isa, &err);
                    float *c = filled(VM_f32, m * n, 3), *e = filled(VM_f32, m * n, 4);
                    CHECK(p && gemm_run(p, a, b, NULL, c, NULL, &err));
                    CHECK(!first || !memcmp(c, first, sizeof *c * (size_t)(m * n)));
                    if (p && gemm_packs(p)) { /* and a B that was laid out before */
                        void *packed = mem_zalloc(gemm_packed_bytes(p) + 64);
                        gemm_pack_all(p, b, packed);
                        CHECK(gemm_run_packed(p, a, b, packed, e, m, n, k, NULL) &&
                              !memcmp(c, e, sizeof *c * (size_t)(m * n)));
                        for (int64_t part = 1; part < MIN(n, k);
                             part = part * 3 + 5) /* the first columns, the first terms */
                            CHECK(some_of(p, &d, a, b, packed, part));
                        free(packed);
                    }
                    gemm_plan_free(p);
                    free(e);
                    if (first)
                        free(c);
                    else
                        first = c;
                }
                free(first);
                free(a);
                free(b);
            }
}

TEST(executable_memory_runs_out_cleanly)
{
    tp_err err = { 0 };
    gemm_desc d = { 77, 77, 77, 1, mat(VM_f64, 77, 77, 0), mat(VM_f64, 77, 77, 0), mat(VM_f64, 77, 77, 0),
                    3,  0 };
    if (gen_isa_host() == ISA_none)
        return;
    gen_publish_limit(0);
    CHECK(gemm_plan_new(&d, gen_isa_host(), &err) == NULL);
    CHECK(strstr(err.msg, "out of executable memory") != NULL);
    gen_publish_limit(-1);
}
