#include "ops/gemm.h"
#include "ops/blas.h"
#include "ops/provider.h"
#include "base/pool.h"

/* ---- plain loops ---- */
#define PLAIN(name, T, A)                                                                           \
    static void plain_##name(int64_t m, int64_t n, int64_t k, A alpha, mat a, mat b, A beta, mat c) \
    {                                                                                               \
        for (int64_t i = 0; i < m; i++) {                                                           \
            const T *ar = (const T *)a.p + i * a.rs;                                                \
            T *cr = (T *)c.p + i * c.rs;                                                            \
            for (int64_t j = 0; j < n; j++)                                                         \
                cr[j * c.cs] = beta == 0 ? 0 : (T)(beta * (A)cr[j * c.cs]);                         \
            for (int64_t l = 0; l < k; l++) {                                                       \
                A x = alpha * (A)ar[l * a.cs];                                                      \
                const T *br = (const T *)b.p + l * b.rs;                                            \
                if (b.cs == 1 && c.cs == 1)                                                         \
                    for (int64_t j = 0; j < n; j++)                                                 \
                        cr[j] = (T)((A)cr[j] + x * (A)br[j]);                                       \
                else                                                                                \
                    for (int64_t j = 0; j < n; j++)                                                 \
                        cr[j * c.cs] = (T)((A)cr[j * c.cs] + x * (A)br[j * b.cs]);                  \
            }                                                                                       \
        }                                                                                           \
    }
PLAIN(f32, float, float)
PLAIN(f64, double, double)
PLAIN(i64, uint64_t, uint64_t)
PLAIN(i32, uint32_t, uint32_t)
PLAIN(i16, uint16_t, uint32_t)
PLAIN(i8, uint8_t, uint32_t)

static void plain(dtype dt, int64_t m, int64_t n, int64_t k, double alpha, mat a, mat b, double beta, mat c)
{
    int64_t ia = (int64_t)alpha, ib = (int64_t)beta;
    switch (dt) {
    case DT_f32: plain_f32(m, n, k, (float)alpha, a, b, (float)beta, c); break;
    case DT_f64: plain_f64(m, n, k, alpha, a, b, beta, c); break;
    case DT_i64: plain_i64(m, n, k, (uint64_t)ia, a, b, (uint64_t)ib, c); break;
    case DT_i32: plain_i32(m, n, k, (uint32_t)ia, a, b, (uint32_t)ib, c); break;
    case DT_i16: plain_i16(m, n, k, (uint32_t)ia, a, b, (uint32_t)ib, c); break;
    default: plain_i8(m, n, k, (uint32_t)ia, a, b, (uint32_t)ib, c);
    }
}

/* ---- BLAS ---- */
/* Column-major BLAS sees a row-major matrix as its transpose. Fills trans ('N': rows are runs) and ld. */
static bool layout(const mat *x, int64_t rows, int64_t cols, char *trans, int *ld)
{
    if ((x->cs == 1 || cols == 1) && (rows == 1 || x->rs >= MAX(cols, 1)) && x->rs < INT32_MAX) {
        *trans = 'N';
        *ld = (int)(rows == 1 ? MAX(cols, 1) : x->rs);
        return true;
    }
    if ((x->rs == 1 || rows == 1) && (cols == 1 || x->cs >= MAX(rows, 1)) && x->cs < INT32_MAX) {
        *trans = 'T';
        *ld = (int)(cols == 1 ? MAX(rows, 1) : x->cs);
        return true;
    }
    return false;
}

/* A copy of x with runs as rows; the caller frees p. */
static mat packed(dtype dt, const mat *x, int64_t rows, int64_t cols)
{
    mat r = { mem_alloc((size_t)(rows * cols) * dtype_size(dt)), cols, 1 };
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            if (dt == DT_f32)
                ((float *)r.p)[i * cols + j] = ((const float *)x->p)[i * x->rs + j * x->cs];
            else
                ((double *)r.p)[i * cols + j] = ((const double *)x->p)[i * x->rs + j * x->cs];
    return r;
}

/* c (m x 1, stride c.rs) = a (m x k) b (k x 1, stride b.rs) */
static void gemv(dtype dt, int64_t m, int64_t k, double alpha, mat a, char ta, int lda, mat b, double beta,
                 mat c)
{
    int mi = (int)m, ki = (int)k, ix = (int)MAX(b.rs, 1), iy = (int)MAX(c.rs, 1);
    char t = ta == 'N' ? 'T' : 'N'; /* seen column-major */
    int rows = ta == 'N' ? ki : mi, cols = ta == 'N' ? mi : ki;
    if (dt == DT_f32)
        blas_sgemv(&t, &rows, &cols, &(float){ (float)alpha }, a.p, &lda, b.p, &ix, &(float){ (float)beta },
                   c.p, &iy);
    else
        blas_dgemv(&t, &rows, &cols, &alpha, a.p, &lda, b.p, &ix, &beta, c.p, &iy);
}

static bool blas(dtype dt, int64_t m, int64_t n, int64_t k, double alpha, mat a, mat b, double beta, mat c)
{
    mat pa = { 0 }, pb = { 0 };
    char ta, tb, tc;
    int lda, ldb, ldc;
    if ((dt != DT_f32 && dt != DT_f64) || m >= INT32_MAX || n >= INT32_MAX || k >= INT32_MAX || !blas_ready())
        return false;
    if (!layout(&c, m, n, &tc, &ldc))
        return false;
    if (tc == 'T') { /* c' = b' a' has rows as runs */
        mat t = { a.p, a.cs, a.rs };
        a = (mat){ b.p, b.cs, b.rs };
        b = t;
        c = (mat){ c.p, c.cs, c.rs };
        int64_t x = m;
        m = n;
        n = x;
    }
    if (!layout(&a, m, k, &ta, &lda)) {
        a = pa = packed(dt, &a, m, k);
        layout(&a, m, k, &ta, &lda);
    }
    if (n == 1 && b.rs > 0 && b.rs < INT32_MAX && c.rs < INT32_MAX) {
        gemv(dt, m, k, alpha, a, ta, lda, b, beta, c);
        free(pa.p);
        return true;
    }
    if (!layout(&b, k, n, &tb, &ldb)) {
        b = pb = packed(dt, &b, k, n);
        layout(&b, k, n, &tb, &ldb);
    }
    int mi = (int)m, ni = (int)n, ki = (int)k;
    if (dt == DT_f32)
        blas_sgemm(&tb, &ta, &ni, &mi, &ki, &(float){ (float)alpha }, b.p, &ldb, a.p, &lda,
                   &(float){ (float)beta }, c.p, &ldc);
    else
        blas_dgemm(&tb, &ta, &ni, &mi, &ki, &alpha, b.p, &ldb, a.p, &lda, &beta, c.p, &ldc);
    free(pa.p);
    free(pb.p);
    return true;
}

void gemm_one(dtype dt, int64_t m, int64_t n, int64_t k, double alpha, mat a, mat b, double beta, mat c)
{
    if (m == 0 || n == 0)
        return;
    if (k == 0 || !blas(dt, m, n, k, alpha, a, b, beta, c))
        plain(dt, m, n, k, alpha, a, b, beta, c);
}

/* ---- split over the pool: by rows or by columns of c, whichever there is more of ---- */
typedef struct job {
    dtype dt;
    int64_t m, n, k;
    double alpha, beta;
    mat a, b, c;
    bool rows;
} job;

static mat moved(dtype dt, mat x, int64_t i, int64_t j)
{
    x.p = (char *)x.p + (i * x.rs + j * x.cs) * (int64_t)dtype_size(dt);
    return x;
}

static void part(void *arg, int64_t b, int64_t e)
{
    const job *j = arg;
    if (j->rows)
        gemm_one(j->dt, e - b, j->n, j->k, j->alpha, moved(j->dt, j->a, b, 0), j->b, j->beta,
                 moved(j->dt, j->c, b, 0));
    else
        gemm_one(j->dt, j->m, e - b, j->k, j->alpha, j->a, moved(j->dt, j->b, 0, b), j->beta,
                 moved(j->dt, j->c, 0, b));
}

/* ---- f16 and bf16: in float ---- */
static float widened(dtype dt, uint16_t h) { return dt == DT_f16 ? f16_to_f32(h) : bf16_to_f32(h); }
static mat wide_copy(dtype dt, mat x, int64_t rows, int64_t cols)
{
    mat w = { mem_alloc((size_t)MAX(rows * cols, 1) * sizeof(float)), cols, 1 };
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            ((float *)w.p)[i * cols + j] = widened(dt, ((const uint16_t *)x.p)[i * x.rs + j * x.cs]);
    return w;
}
void gemm_wide(dtype dt, int64_t m, int64_t n, int64_t k, double alpha, mat a, mat b, double beta, mat c)
{
    mat wa = wide_copy(dt, a, m, k), wb = wide_copy(dt, b, k, n);
    gemm(DT_f32, m, n, k, alpha, wa, wb, beta, c);
    free(wa.p), free(wb.p);
}
static void gemm_half(dtype dt, int64_t m, int64_t n, int64_t k, double alpha, mat a, mat b, double beta,
                      mat c)
{
    mat wc = wide_copy(dt, c, m, n);
    gemm_wide(dt, m, n, k, alpha, a, b, beta, wc);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float v = ((float *)wc.p)[i * n + j];
            ((uint16_t *)c.p)[i * c.rs + j * c.cs] = dt == DT_f16 ? f32_to_f16(v) : f32_to_bf16(v);
        }
    free(wc.p);
}

void gemm(dtype dt, int64_t m, int64_t n, int64_t k, double alpha, mat a, mat b, double beta, mat c)
{
    job j = { dt, m, n, k, alpha, beta, a, b, c, m >= n };
    int64_t len = j.rows ? m : n, other = j.rows ? n : m;
    const ops_provider *own = ops_provider_now();
    if (own && own->gemm(dt, dt, m, n, k, alpha, a, b, beta, c, 1, 0, 0, 0, NULL))
        return;
    if (dt == DT_f16 || dt == DT_bf16) {
        gemm_half(dt, m, n, k, alpha, a, b, beta, c);
        return;
    }
    int64_t work = 1 << 18; /* multiply-adds that are worth a thread */
    int64_t grain = MAX(16, work / MAX(1, other * k));
    grain = (grain + 15) & ~(int64_t)15;
    if (len <= grain || (double)m * (double)n * (double)k < 2.0 * (double)work)
        gemm_one(dt, m, n, k, alpha, a, b, beta, c);
    else
        pool_for(len, MAX(grain, (len / 64 + 15) & ~(int64_t)15), part, &j);
}
