/* int8.c - linear layers with weights of eight bits: rows rounded to bytes, a product of bytes, results scaled. */
#include "target/x64/int8.h"
#include "target/x64/gemm_int.h"
#include "base/pool.h"
#include "ops/provider.h"
#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
/* As int8_row: the largest element, then everything times 127 of it. */
AVX2 static float row_to_bytes(const float *x, int64_t k, int8_t *q)
{
    __m256 top = _mm256_setzero_ps(), sign = _mm256_set1_ps(-0.0f), bad = top;
    int64_t whole = k / 32 * 32;
    for (int64_t i = 0; i < whole; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        bad = _mm256_or_ps(bad, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        top = _mm256_max_ps(top, _mm256_andnot_ps(sign, v));
    }
    float part[8], most = 0;
    _mm256_storeu_ps(part, top);
    for (int i = 0; i < 8; i++)
        most = part[i] > most ? part[i] : most;
    for (int64_t i = whole; i < k; i++)
        most = __builtin_fabsf(x[i]) > most ? __builtin_fabsf(x[i]) : most;
    float by = 127.0f / most;
    if (_mm256_movemask_ps(bad) || !(by > 0) || by > 3e38f || whole < k)
        return int8_row(x, k, q);
    __m256 f = _mm256_set1_ps(by);
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int64_t i = 0; i < whole; i += 32) {
        __m256i v[4];
        for (int j = 0; j < 4; j++)
            v[j] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * j), f));
        __m256i b = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
        _mm256_storeu_si256((__m256i *)(void *)(q + i), _mm256_permutevar8x32_epi32(b, order));
    }
    return most / 127.0f;
}

AVX2 static void scale_row(const int32_t *sum, int64_t n, float by, const float *scale, const float *bias,
                           float *y)
{
    __m256 f = _mm256_set1_ps(by);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)(const void *)(sum + i)));
        v = _mm256_mul_ps(v, _mm256_mul_ps(f, _mm256_loadu_ps(scale + i)));
        _mm256_storeu_ps(y + i, bias ? _mm256_add_ps(v, _mm256_loadu_ps(bias + i)) : v);
    }
    for (; i < n; i++) {
        float v = (float)sum[i] * (by * scale[i]);
        y[i] = bias ? v + bias[i] : v;
    }
}
#else
static float row_to_bytes(const float *x, int64_t k, int8_t *q) { return int8_row(x, k, q); }
static void scale_row(const int32_t *sum, int64_t n, float by, const float *scale, const float *bias,
                      float *y)
{
    for (int64_t i = 0; i < n; i++) {
        float v = (float)sum[i] * (by * scale[i]);
        y[i] = bias ? v + bias[i] : v;
    }
}
#endif

typedef struct job {
    int64_t m, n, k;
    const int8_t *w;
    const float *x, *scale, *bias;
    float *by, *y;
    int8_t *q;
    int32_t *sum;
} job;
static void to_bytes(void *arg, int64_t lo, int64_t hi)
{
    const job *j = arg;
    for (int64_t r = lo; r < hi; r++)
        j->by[r] = row_to_bytes(j->x + r * j->k, j->k, j->q + r * j->k);
}
static void from_sums(void *arg, int64_t lo, int64_t hi)
{
    const job *j = arg;
    for (int64_t r = lo; r < hi; r++)
        scale_row(j->sum + r * j->n, j->n, j->by[r], j->scale, j->bias, j->y + r * j->n);
}

/* Columns lo..hi of up to four rows at a time: the weight is read where it lies. */
static void columns(void *arg, int64_t lo, int64_t hi)
{
    const job *j = arg;
    for (int64_t r = 0; r < j->m; r += 4)
        gemm_few_i8(j->q + r * j->k, j->k, j->w, j->k, (int)MIN(4, j->m - r), lo, hi, j->k,
                    j->sum + r * j->n + lo, j->n);
}

bool gen_linear_int8(int64_t m, int64_t n, int64_t k, const float *x, const int8_t *w, const float *scale,
                     const float *bias, float *y)
{
    const gen_units *u = gen_units_host();
    if ((!u->vnni && !u->tile_int8) || !k || k > 1 << 16) /* sums of more might not fit */
        return false;
    gemm_desc d;
    memset(&d, 0, sizeof d);
    d.m = m, d.n = n, d.k = k, d.batch = 1, d.alpha = 1;
    d.a = (gemm_mat){ VM_i8, k, 1, 0 };
    d.b = (gemm_mat){ VM_i8, 1, k, 0 };
    d.c = (gemm_mat){ VM_i32, n, 1, 0 };
    bool few = m <= 16 && u->vnni;
    const gemm_plan *p = few ? NULL : gen_plan_for(&d);
    size_t nq = (size_t)(m * k + 63) / 64 * 64, ns = (size_t)(m * n) * sizeof(int32_t);
    if (!few && !p)
        return false;
    char *room = tmp_alloc((int64_t)(nq + ns + (size_t)m * sizeof(float)));
    job j = { m,
              n,
              k,
              w,
              x,
              scale,
              bias,
              (float *)(void *)(room + nq + ns),
              y,
              (int8_t *)room,
              (int32_t *)(void *)(room + nq) };
    tp_err err = { 0 };
    pool_for(m, MAX(1, 16384 / k), to_bytes, &j);
    if (few)
        pool_for(n, MAX(64, (1 << 18) / (k * m) / 4 * 4), columns, &j);
    bool ok = few || gemm_run(p, j.q, w, NULL, j.sum, NULL, &err);
    if (ok)
        pool_for(m, MAX(1, 16384 / n), from_sums, &j);
    tmp_free(room, (int64_t)(nq + ns + (size_t)m * sizeof(float)));
    return ok;
}
