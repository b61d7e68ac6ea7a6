/* Convolutions by emitted kernels against patch matrices and BLAS: forward and both gradients, f32 and f64, both
 * instruction sets, any number of threads. */
#include "test.h"
#include "base/pool.h"
#include "target/x64/conv.h"
#include "ops/provider.h"
#include <math.h>

static void *filled(dtype dt, int64_t n, uint32_t seed)
{
    void *p = mem_zalloc((size_t)n * 8 + 64);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        double v = (double)((int)(seed >> 16 & 255) - 128) / 64.0;
        if (dt == DT_f64)
            ((double *)p)[i] = v;
        else
            ((float *)p)[i] = (float)v;
    }
    return p;
}

static double furthest(dtype dt, const void *a, const void *b, int64_t n)
{
    double worst = 0, top = 1e-9;
    for (int64_t i = 0; i < n; i++) {
        double x = dt == DT_f64 ? ((const double *)a)[i] : ((const float *)a)[i],
               y = dt == DT_f64 ? ((const double *)b)[i] : ((const float *)b)[i];
        worst = MAX(worst, fabs(x - y));
        top = MAX(top, fabs(y));
    }
    return worst / top;
}

static int64_t volume(const int64_t v[3]) { return v[0] * v[1] * v[2]; }

typedef bool three(gen_isa isa, dtype dt, const conv_geom *g, const void *a, const void *b, void *out);
static bool forward(gen_isa isa, dtype dt, const conv_geom *g, const void *x, const void *w, void *y)
{
    return corr_forward(isa, dt, g, x, w, NULL, y, NULL);
}
static bool slow(int which, dtype dt, const conv_geom *g, const void *a, const void *b, void *out)
{
    bool was = ops_provider_use(false);
    if (which == 0)
        conv_forward(dt, g, a, b, NULL, out);
    else if (which == 1)
        conv_grad_input(dt, g, a, b, out);
    else
        conv_grad_weight(dt, g, a, b, out);
    return ops_provider_use(was);
}

static int check(gen_isa isa, dtype dt, conv_geom g)
{
    for (int i = 0; i < 3; i++)
        g.out[i] = (g.in[i] + 2 * g.p[i] - g.d[i] * (g.k[i] - 1) - 1) / g.s[i] + 1;
    int64_t nx = g.n * g.c * volume(g.in), nw = g.o * (g.c / g.groups) * volume(g.k),
            ny = g.n * g.o * volume(g.out);
    void *x = filled(dt, nx, 1), *w = filled(dt, nw, 2), *dy = filled(dt, ny, 3);
    const void *a[3] = { x, dy, x }, *b[3] = { w, w, dy };
    int64_t n[3] = { ny, nx, nw };
    three *fn[3] = { forward, corr_grad_input, corr_grad_weight };
    int done = 0, threads = pool_threads();
    for (int i = 0; i < 3; i++) {
        void *want = filled(dt, n[i], 4), *got = filled(dt, n[i], 5), *again = filled(dt, n[i], 6);
        slow(i, dt, &g, a[i], b[i], want);
        pool_set_threads(1);
        if (fn[i](isa, dt, &g, a[i], b[i], got)) {
            done++;
            CHECK(furthest(dt, got, want, n[i]) < (dt == DT_f64 ? 1e-13 : 2e-5));
            for (int t = 2; t <= 4; t++) {
                pool_set_threads(t);
                fn[i](isa, dt, &g, a[i], b[i], again);
                CHECK(!memcmp(got, again, (size_t)n[i] * dtype_size(dt)));
            }
        }
        pool_set_threads(threads);
        free(want), free(got), free(again);
    }
    free(x), free(w), free(dy);
    return done;
}

TEST(conv_own_against_patches)
{
    static const conv_geom list[] = {
        { 2, 32, 32, 1, { 1, 16, 16 }, { 0 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
        { 3, 16, 64, 1, { 1, 9, 13 }, { 0 }, { 1, 3, 3 }, { 1, 2, 2 }, { 0, 1, 1 }, { 1, 1, 1 } },
        { 2, 17, 33, 1, { 1, 7, 7 }, { 0 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, { 1, 1, 1 } },
        { 1, 16, 48, 1, { 1, 8, 8 }, { 0 }, { 1, 1, 1 }, { 1, 2, 2 }, { 0, 0, 0 }, { 1, 1, 1 } },
        { 2, 32, 64, 2, { 1, 6, 11 }, { 0 }, { 1, 5, 3 }, { 1, 1, 3 }, { 0, 2, 0 }, { 1, 1, 2 } },
        { 1, 16, 16, 1, { 5, 6, 7 }, { 0 }, { 3, 2, 3 }, { 2, 1, 1 }, { 1, 0, 2 }, { 1, 2, 1 } },
        { 2, 24, 40, 1, { 1, 1, 150 }, { 0 }, { 1, 1, 7 }, { 1, 1, 2 }, { 0, 0, 3 }, { 1, 1, 1 } },
        { 1, 16, 32, 1, { 1, 12, 12 }, { 0 }, { 1, 7, 7 }, { 1, 4, 4 }, { 0, 3, 3 }, { 1, 1, 1 } },
        { 1, 64, 16, 1, { 1, 2, 2 }, { 0 }, { 1, 2, 2 }, { 1, 3, 3 }, { 0, 1, 1 }, { 1, 1, 1 } },
        { 4, 3, 32, 1, { 1, 40, 70 }, { 0 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
        /* few channels and channels on their own, lines of many lengths, layers */
        { 2, 12, 12, 12, { 1, 9, 31 }, { 0 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
        { 1, 3, 2, 1, { 1, 7, 17 }, { 0 }, { 1, 3, 5 }, { 1, 1, 1 }, { 0, 0, 0 }, { 1, 1, 1 } },
        { 2, 6, 9, 3, { 1, 5, 8 }, { 0 }, { 1, 1, 3 }, { 1, 1, 1 }, { 0, 0, 1 }, { 1, 1, 2 } },
        { 1, 4, 65, 1, { 1, 11, 64 }, { 0 }, { 1, 3, 3 }, { 1, 1, 1 }, { 0, 1, 1 }, { 1, 1, 1 } },
        { 2, 5, 7, 1, { 4, 6, 19 }, { 0 }, { 2, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } },
        { 1, 1, 1, 1, { 1, 1, 1000 }, { 0 }, { 1, 1, 9 }, { 1, 1, 1 }, { 0, 0, 4 }, { 1, 1, 1 } },
        { 3, 8, 30, 1, { 1, 1, 48 }, { 0 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, { 1, 1, 1 } },
    };
    int done = 0;
    if (gen_isa_host() == ISA_none)
        return;
    for (size_t i = 0; i < COUNT(list); i++)
        for (gen_isa isa = ISA_avx2; isa <= gen_isa_host(); isa++) {
            done += check(isa, DT_f32, list[i]);
            done += check(isa, DT_f64, list[i]);
        }
    CHECK(done > 40); /* most of them are not declined */
}

TEST(conv_own_declines)
{
    conv_geom g = {
        1, 4, 2, 1, { 1, 8, 8 }, { 1, 4, 4 }, { 1, 1, 1 }, { 1, 2, 2 }, { 0, 0, 0 }, { 1, 1, 1 }
    };
    float x[256], w[8], y[128];
    CHECK(!corr_forward(gen_isa_host(), DT_f32, &g, x, w, NULL, y,
                        NULL)); /* two channels fill no vector, steps leave gaps in lines */
    CHECK(!corr_forward(ISA_none, DT_f32, &g, x, w, NULL, y, NULL));
    g.o = 32, g.n = 0;
    CHECK(!corr_forward(gen_isa_host(), DT_f32, &g, x, w, NULL, y, NULL));
}
