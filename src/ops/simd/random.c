/* random.c - packed uniform and normal numbers from Philox blocks, once per instruction set.
 * Float element i comes from word i % 4 of block i / 4, double element i from words 2 (i % 2) and the next of
 * block i / 2; normal numbers pair up neighbours. So a number depends on its index alone. */
#include "ops/pw.h"
#include "ops/simd/vmath.h"
#include "ops/random.h"
#include <math.h>

enum { BLOCKS = 64 };

/* 64 blocks, word by word */
static void philox_many(uint64_t seed, uint64_t at, uint32_t w[4][BLOCKS])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < BLOCKS; i++) {
        w[0][i] = (uint32_t)(at + (uint64_t)i);
        w[1][i] = (uint32_t)((at + (uint64_t)i) >> 32);
        w[2][i] = w[3][i] = 0;
    }
    for (int r = 0; r < 10; r++) {
        for (int i = 0; i < BLOCKS; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * w[0][i], p1 = (uint64_t)0xCD9E8D57u * w[2][i];
            uint32_t n0 = (uint32_t)(p1 >> 32) ^ w[1][i] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ w[3][i] ^ k1;
            w[1][i] = (uint32_t)p1;
            w[3][i] = (uint32_t)p0;
            w[0][i] = n0;
            w[2][i] = n2;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Elements [4 * block, 4 * block + n) */
void ISA_NAME(rand_f32)(int64_t n, uint64_t seed, uint64_t block, float *o, bool normal)
{
    uint32_t w[4][BLOCKS];
    float v[4][BLOCKS];
    for (; n > 0; n -= 4 * BLOCKS, block += BLOCKS, o += 4 * BLOCKS) {
        philox_many(seed, block, w);
        if (normal)
            for (int h = 0; h < 4; h += 2)
                for (int i = 0; i < BLOCKS; i++)
                    normal_pair_f32((int32_t)(w[h][i] >> 8), (int32_t)(w[h + 1][i] >> 8), &v[h][i],
                                    &v[h + 1][i]);
        else
            for (int h = 0; h < 4; h++)
                for (int i = 0; i < BLOCKS; i++)
                    v[h][i] = (float)(int32_t)(w[h][i] >> 8) * 0x1p-24f;
        int64_t m = MIN(n, 4 * BLOCKS), i = 0;
        for (; i + 4 <= m; i += 4)
            for (int h = 0; h < 4; h++)
                o[i + h] = v[h][i / 4];
        for (; i < m; i++)
            o[i] = v[i % 4][i / 4];
    }
}

/* Elements [2 * block, 2 * block + n) */
void ISA_NAME(rand_f64)(int64_t n, uint64_t seed, uint64_t block, double *o, bool normal)
{
    uint32_t w[4][BLOCKS];
    double v[2][BLOCKS];
    int64_t bits[2][BLOCKS];
    for (; n > 0; n -= 2 * BLOCKS, block += BLOCKS, o += 2 * BLOCKS) {
        philox_many(seed, block, w);
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < BLOCKS; i++) /* 53 bits: 32 of one word, 21 of the next */
                bits[h][i] = (int64_t)(((uint64_t)w[2 * h][i] << 21) ^ (w[2 * h + 1][i] >> 11));
        if (normal)
            for (int i = 0; i < BLOCKS; i++)
                normal_pair_f64(bits[0][i], bits[1][i], &v[0][i], &v[1][i]);
        else
            for (int h = 0; h < 2; h++)
                for (int i = 0; i < BLOCKS; i++)
                    v[h][i] = (double)bits[h][i] * 0x1p-53;
        int64_t m = MIN(n, 2 * BLOCKS);
        for (int64_t i = 0; i < m; i++)
            o[i] = v[i % 2][i / 2];
    }
}

/* 64 bits each, elements [2 * block, 2 * block + n) as of rand_f64 */
void ISA_NAME(rand_bits)(int64_t n, uint64_t seed, uint64_t block, uint64_t *o);
void ISA_NAME(rand_bits)(int64_t n, uint64_t seed, uint64_t block, uint64_t *o)
{
    uint32_t w[4][BLOCKS];
    for (; n > 0; n -= 2 * BLOCKS, block += BLOCKS, o += 2 * BLOCKS) {
        philox_many(seed, block, w);
        int64_t m = MIN(n, 2 * BLOCKS);
        for (int64_t i = 0; i < m; i++)
            o[i] = (uint64_t)w[2 * (i % 2)][i / 2] << 32 | w[2 * (i % 2) + 1][i / 2];
    }
}

/* lo + a number below span <= 2^32 each: the top of word times span. Elements [4 * block, 4 * block + n) */
void ISA_NAME(rand_below)(int64_t n, uint64_t seed, uint64_t block, uint64_t span, int64_t lo, int64_t *o);
void ISA_NAME(rand_below)(int64_t n, uint64_t seed, uint64_t block, uint64_t span, int64_t lo, int64_t *o)
{
    uint32_t w[4][BLOCKS];
    for (; n > 0; n -= 4 * BLOCKS, block += BLOCKS, o += 4 * BLOCKS) {
        philox_many(seed, block, w);
        int64_t m = MIN(n, 4 * BLOCKS), i = 0;
        for (; i + 4 <= m; i += 4)
            for (int h = 0; h < 4; h++)
                o[i + h] = (int64_t)((uint64_t)lo + (w[h][i / 4] * span >> 32));
        for (; i < m; i++)
            o[i] = (int64_t)((uint64_t)lo + (w[i % 4][i / 4] * span >> 32));
    }
}

/* Uniform (or normal) numbers become those of another distribution. p: a probability for each, of DRAW_bern_t. */
void ISA_NAME(draw_shape)(int64_t n, draw_kind kind, double a, double b, const double *p, double *v);
void ISA_NAME(draw_shape)(int64_t n, draw_kind kind, double a, double b, const double *p, double *v)
{
    double none;
#define EACH(e)                       \
    for (int64_t i = 0; i < n; i++) { \
        double u = v[i];              \
        v[i] = (e);                   \
    }                                 \
    break
    switch (kind) {
    case DRAW_lognormal: EACH(m_exp_f64(a + b * u));
    case DRAW_exp: EACH(-m_log1p_f64(-u) / a);
    case DRAW_cauchy: EACH(a + b * v_tan_f64(M_PI * (u - 0.5)));
    case DRAW_geom:
        none = m_log1p_f64(-a);
        for (int64_t i = 0; i < n; i++) {
            double k = __builtin_ceil(m_log1p_f64(-v[i]) / none);
            v[i] = k < 1 ? 1 : k;
        }
        break;
    case DRAW_bern: EACH(u < a);
    case DRAW_bern_t: EACH(u < p[i]);
    case DRAW_normal: EACH(a + b * u);
    default: EACH(a + u * (b - a));
    }
#undef EACH
}

/* ---- PyTorch's eager normal numbers ---- */
/* log, sin and cos in float by the polynomials of the Cephes library, with products and sums in one rounding: PyTorch's
 * vectors compute them so, and the results are the same bit for bit. */
static inline float log_f32(float x)
{
    static const float p[] = { 7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                               -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                               2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f };
    uint32_t bits;
    memcpy(&bits, &x, 4);
    float e = (float)((int)(bits >> 23) - 127) + 1;
    bits = (bits & ~0x7f800000u) | 0x3f000000u; /* now in [0.5, 1) */
    memcpy(&x, &bits, 4);
    bool low = x < 0.707106781186547524f;
    float m = low ? x : 0;
    x = x - 1 + m;
    e -= low;
    float z = x * x, y = p[0];
    for (int i = 1; i < 9; i++)
        y = fmaf(y, x, p[i]);
    y *= x;
    y = fmaf(y, z, e * -2.12194440e-4f);
    y = fmaf(-z, 0.5f, y);
    return fmaf(e, 0.693359375f, x + y);
}
static inline void sin_cos_f32(float x, float *s, float *c) /* of 0 <= x < 2 pi */
{
    int j = ((int)(x * 1.27323954473516f) + 1) & ~1; /* octants */
    float y = (float)j;
    x = fmaf(y, -0.78515625f, x);
    x = fmaf(y, -2.4187564849853515625e-4f, x);
    x = fmaf(y, -3.77489497744594108e-8f, x);
    float z = x * x, a = 2.443315711809948e-5f, b = -1.9515295891e-4f;
    a = fmaf(a, z, -1.388731625493765e-3f);
    a = fmaf(a, z, 4.166664568298827e-2f) * z;
    a = fmaf(a, z, -(z * 0.5f)) + 1; /* cos of the rest */
    b = fmaf(b, z, 8.3321608736e-3f);
    b = fmaf(b, z, -1.6666654611e-1f) * z;
    b = fmaf(b, x, x); /* sin of it */
    bool plain = !(j & 2);
    *s = plain ? b : a;
    *c = plain ? a : b;
    *s = j & 4 ? -*s : *s;
    *c = (j - 2) & 4 ? *c : -*c;
}
/* n times sixteen uniform numbers become normal ones: element i pairs with element i + 8. */
void ISA_NAME(normal_sixteens)(int64_t n, float *x, float mean, float std);
void ISA_NAME(normal_sixteens)(int64_t n, float *x, float mean, float std)
{
    for (; n > 0; n--, x += 16)
        for (int i = 0; i < 8; i++) {
            float r = sqrtf(-2 * log_f32(1 - x[i])), s, c;
            sin_cos_f32((float)(2 * M_PI) * x[i + 8], &s, &c);
            x[i] = fmaf(r * c, std, mean);
            x[i + 8] = fmaf(r * s, std, mean);
        }
}
