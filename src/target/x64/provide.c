/* provide.c - see provide.h. */
#include "target/x64/provide.h"
#include "target/x64/conv.h"
#include "ops/conv_depth.h"
#include "target/x64/conv_half.h"
#include "target/x64/gemm.h"
#include "target/x64/int8.h"
#include "base/map.h"
#include "ops/provider.h"
#include <pthread.h>

/* --- matrix products: a plan for each shape, found again --------------------------------------------------------------- */
enum { NEAR = 64, MAX_PLANS = 4096 };
static _Thread_local struct {
    gemm_desc d;
    const gemm_plan *p;
} near[NEAR]; /* the shapes this thread used last */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static map cache;
const gemm_plan *gen_plan_for(const gemm_desc *d)
{
    uint64_t h = hash_bytes(d, sizeof *d, 0);
    int at = (int)(h % NEAR);
    if (near[at].p && !memcmp(&near[at].d, d, sizeof *d))
        return near[at].p;
    tp_err err = { 0 };
    pthread_mutex_lock(&lock);
    gemm_plan *p = map_getn(&cache, d, sizeof *d);
    if (!p && cache.n < MAX_PLANS && (p = gemm_plan_new(d, gen_isa_host(), &err)))
        map_putn(&cache, d, sizeof *d, p);
    pthread_mutex_unlock(&lock);
    if (p) {
        near[at].d = *d;
        near[at].p = p;
    }
    return p;
}

static vir_mem stored(dtype dt)
{
    return dt == DT_f64 ? VM_f64 : dt == DT_f16 ? VM_f16 : dt == DT_bf16 ? VM_bf16 : VM_f32;
}

static gemm_desc describe(dtype dt, dtype to, int64_t m, int64_t n, int64_t k, double alpha, mat a, mat b,
                          double beta, mat c)
{
    gemm_desc d;
    memset(&d, 0, sizeof d); /* its padding is part of the key */
    d.m = m, d.n = n, d.k = k, d.batch = 1;
    d.a.type = d.b.type = stored(dt);
    d.c.type = stored(to);
    d.a.row = a.rs, d.a.col = a.cs;
    d.b.row = b.rs, d.b.col = b.cs;
    d.c.row = c.rs, d.c.col = c.cs;
    d.alpha = alpha, d.beta = beta;
    return d;
}

static bool multiplies_bf16(void)
{
    const gen_units *u = gen_units_host();
    return gen_isa_host() == ISA_avx512 && (u->tile_bf16 || u->bf16);
}

const gemm_plan *gen_product_plan(dtype dt, dtype to, int64_t m, int64_t n, int64_t k, mat a, mat b, bool add,
                                  mat c)
{
    bool narrow = dt == DT_bf16 && (to == DT_f32 || to == DT_bf16) && multiplies_bf16();
    if (!(narrow || (dt == to && (dt == DT_f32 || dt == DT_f64))) || gen_isa_host() == ISA_none ||
        !ops_provider_now())
        return NULL;
    gemm_desc d = describe(dt, to, m, n, k, 1, a, b, add, c);
    return gen_plan_for(&d);
}

static bool product(bool rough, dtype dt, dtype to, int64_t m, int64_t n, int64_t k, double alpha, mat a,
                    mat b, double beta, mat c, int64_t batch, int64_t sa, int64_t sb, int64_t sc,
                    const void *bias, int nv, const gemm_epilogue *e)
{
    bool half = dt == DT_f16 || dt == DT_bf16;
    if ((dt != DT_f32 && dt != DT_f64 && !half) || gen_isa_host() == ISA_none)
        return false;
    if (!half && ((double)m * (double)n * (double)k < 16384 || MAX(m, n) < 16)) /* calls of BLAS cost less */
        return false;
    tp_err err = { 0 };
    gemm_desc d = describe(dt, to, m, n, k, alpha, a, b, beta, c);
    d.batch = batch;
    d.a.batch = sa, d.b.batch = sb, d.c.batch = sc;
    d.bias = bias != NULL;
    d.nv = nv;
    bool dots = m <= 4 && !(dt == DT_bf16 && gen_units_host()->bf16); /* they add no row */
    if (bias && (dt == DT_f64 || dots || !k))
        return false;
    d.rough = dt == DT_f32 && rough;
    const gemm_plan *p = gen_plan_for(&d);
    return p && gemm_run(p, a.p, b.p, bias, c.p, e, &err);
}

static bool gemm_own(dtype dt, dtype to, int64_t m, int64_t n, int64_t k, double alpha, mat a, mat b,
                     double beta, mat c, int64_t batch, int64_t sa, int64_t sb, int64_t sc, const void *bias)
{
    return product(ops_rough_products(), dt, to, m, n, k, alpha, a, b, beta, c, batch, sa, sb, sc, bias, 0,
                   NULL);
}
bool gen_product(dtype dt, dtype to, int64_t m, int64_t n, int64_t k, mat a, mat b, bool add, mat c,
                 int64_t batch, int64_t sa, int64_t sb, int64_t sc, const void *bias, int nv,
                 const gemm_epilogue *e)
{
    return ops_provider_now() &&
           product(ops_rough_products(), dt, to, m, n, k, 1, a, b, add, c, batch, sa, sb, sc, bias, nv, e);
}

/* --- convolutions ------------------------------------------------------------------------------------------------------ */

/* A window of one element: a product of matrices, of all images where channels lie side by side. */
static bool is_one(const conv_geom *g)
{
    bool one = g->groups == 1;
    for (int i = 0; i < 3; i++)
        one &= g->k[i] == 1 && g->s[i] == 1 && g->p[i] == 0;
    return one;
}
static bool is_product(const conv_geom *g) { return g->last && is_one(g); }
static int64_t places(const conv_geom *g) { return g->n * g->out[0] * g->out[1] * g->out[2]; }
static mat rows_of(const void *p, int64_t row) { return (mat){ (void *)(uintptr_t)p, row, 1 }; }
static mat cols_of(const void *p, int64_t col) { return (mat){ (void *)(uintptr_t)p, 1, col }; }

static bool conv_forward_own(dtype dt, const conv_geom *g, const void *x, const void *w, const void *bias,
                             void *y)
{
    if (dt == DT_bf16)
        return half_forward(g, x, w, bias, y);
    if (is_product(g) && product(false, dt, dt, places(g), g->o, g->c, 1, rows_of(x, g->c), cols_of(w, g->c),
                                 0, rows_of(y, g->o), 1, 0, 0, 0, bias, 0, NULL))
        return true;
    return conv_depth_forward(dt, g, x, w, bias, y) ||
           corr_forward(gen_isa_host(), dt, g, x, w, bias, y, NULL);
}
bool gen_convolution(dtype dt, const conv_geom *g, const void *x, const void *w, const void *bias, void *y,
                     const gemm_epilogue *e)
{
    return ops_provider_now() && corr_forward(gen_isa_host(), dt, g, x, w, bias, y, e);
}
static bool conv_grad_input_own(dtype dt, const conv_geom *g, const void *dy, const void *w, void *dx)
{
    if (dt == DT_bf16)
        return half_grad_input(g, dy, w, dx);
    if (is_product(g) && product(false, dt, dt, places(g), g->c, g->o, 1, rows_of(dy, g->o), rows_of(w, g->c),
                                 0, rows_of(dx, g->c), 1, 0, 0, 0, NULL, 0, NULL))
        return true;
    return conv_depth_grad_input(dt, g, dy, w, dx) || corr_grad_input(gen_isa_host(), dt, g, dy, w, dx);
}
static bool conv_grad_weight_own(dtype dt, const conv_geom *g, const void *x, const void *dy, void *dw)
{
    if (dt == DT_bf16)
        return half_grad_weight(g, x, dy, dw);
    if (is_product(g) && product(false, dt, dt, g->o, g->c, places(g), 1, cols_of(dy, g->o), rows_of(x, g->c),
                                 0, rows_of(dw, g->c), 1, 0, 0, 0, NULL, 0, NULL))
        return true;
    int64_t L = g->out[0] * g->out[1] * g->out[2], es = (int64_t)dtype_size(dt), i = 0;
    while (!g->last && is_one(g) && i < g->n && /* image by image */
           product(false, dt, dt, g->o, g->c, L, 1, rows_of((const char *)dy + i * g->o * L * es, L),
                   cols_of((const char *)x + i * g->c * L * es, L), i > 0, rows_of(dw, g->c), 1, 0, 0, 0,
                   NULL, 0, NULL))
        i++;
    if (i && i == g->n)
        return true;
    return conv_depth_grad_weight(dt, g, x, dy, dw) || corr_grad_weight(gen_isa_host(), dt, g, x, dy, dw);
}

/* The eager loops are compiled for the same sets in the same order. */
static int isa(void) { return (int)gen_isa_host(); }

static const ops_provider own = {
    "own",           gemm_own, conv_forward_own, conv_grad_input_own, conv_grad_weight_own,
    gen_linear_int8, isa,      multiplies_bf16
};

/* Eager programs call nothing here by name, so this is done when the library is loaded. */
__attribute__((constructor)) static void offer(void) { ops_provide(&own); }
