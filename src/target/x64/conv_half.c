/* conv_half.c - convolutions of bf16 as products of patch matrices, a block of places of an image at a time. */
#include "target/x64/conv_half.h"
#include "target/x64/int8.h"
#include "base/bytes.h"
#include "base/pool.h"
#include "vir/math/vnum.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { PLACES = 512, PARTS = 8 };
static _Thread_local bytes_kept patches, framed;

typedef struct job {
    const conv_geom *g;
    const uint16_t *x, *w, *bias, *dy;
    uint16_t *y;
    float *sum; /* gradients of the weight, one of each part */
    int64_t parts;
    bool failed;
} job;

static int64_t volume(const int64_t v[3]) { return v[0] * v[1] * v[2]; }
static bool is_flat(const conv_geom *g)
{
    return volume(g->k) == 1 && volume(g->s) == 1 && !g->p[0] && !g->p[1] && !g->p[2];
}
static int64_t depth(const conv_geom *g) { return g->c * volume(g->k); }

/* Is it worth the matrix of patches? There must be a unit for bf16, and enough to multiply with each of its elements. */
static bool worth(const conv_geom *g)
{
    const gen_units *u = gen_units_host();
    return (u->bf16 || u->tile_bf16) && g->groups == 1 && !g->last && !g->w_last && g->o >= 16 &&
           depth(g) >= 16 && g->n && volume(g->out);
}

static bool multiply(int64_t m, int64_t n, int64_t k, gemm_mat a, gemm_mat b, double beta, gemm_mat c,
                     const void *pa, const void *pb, void *pc)
{
    gemm_desc d;
    tp_err err = { 0 };
    memset(&d, 0, sizeof d);
    d.m = m, d.n = n, d.k = k, d.batch = 1, d.alpha = 1, d.beta = beta;
    d.a = a, d.b = b, d.c = c;
    const gemm_plan *p = gen_plan_for(&d);
    return p && gemm_run(p, pa, pb, NULL, pc, NULL, &err);
}

/* Blocks are whole rows of an image where those are short. */
static int64_t block_of(const conv_geom *g)
{
    int64_t row = g->out[2], places = row <= PLACES ? PLACES / row * row : PLACES;
    return MIN(places, volume(g->out));
}

#if defined(__x86_64__)
/* Rows of n elements, `from` and `to` apart. */
__attribute__((target("avx512f,avx512bw"))) static inline void
copy_rows(const uint16_t *src, int64_t from, uint16_t *dst, int64_t to, int64_t rows, int64_t n)
{
    __mmask32 m = (__mmask32)((1ull << n % 32) - 1);
    for (int64_t r = 0; r < rows; r++, src += from, dst += to) {
        int64_t i = 0;
        for (; i + 32 <= n; i += 32)
            _mm512_storeu_si512(dst + i, _mm512_loadu_si512(src + i));
        if (m)
            _mm512_mask_storeu_epi16(dst + i, m, _mm512_maskz_loadu_epi16(m, src + i));
    }
}
#else
static inline void copy_rows(const uint16_t *src, int64_t from, uint16_t *dst, int64_t to, int64_t rows,
                             int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(dst + r * to, src + r * from, (size_t)n * 2);
}
#endif

/* Whole rows of a flat image with steps of one along them: what the block needs is put into a frame of zeros, and the rows of
 * the patch matrix are copies out of it. False: out of memory. */
static bool framed_patches(const conv_geom *g, const uint16_t *x, int64_t l0, int64_t n, uint16_t *col)
{
    int64_t H = g->in[1], W = g->in[2], OW = g->out[2], rows = n / OW, wide = W + 2 * g->p[2];
    int64_t first = l0 / OW * g->s[1] - g->p[1], high = (rows - 1) * g->s[1] + g->d[1] * (g->k[1] - 1) + 1;
    uint16_t *frame = bytes_keep(&framed, g->c * high * wide * 2 + 64);
    if (!frame)
        return false;
    memset(frame, 0, (size_t)(g->c * high * wide) * 2);
    int64_t top = MAX(0, -first), end = MIN(high, H - first);
    for (int64_t c = 0; c < g->c && top < end; c++)
        copy_rows(x + (c * H + first + top) * W, W, frame + (c * high + top) * wide + g->p[2], wide,
                  end - top, W);
    for (int64_t c = 0; c < g->c; c++)
        for (int64_t kh = 0; kh < g->k[1]; kh++)
            for (int64_t kw = 0; kw < g->k[2]; kw++, col += n)
                copy_rows(frame + (c * high + kh * g->d[1]) * wide + kw * g->d[2], wide * g->s[1], col, OW,
                          rows, OW);
    return true;
}

/* Columns of the patch matrix of an image, places l0 on; *ld: between its rows. NULL: out of memory. */
static const uint16_t *patch(const conv_geom *g, const uint16_t *x, int64_t l0, int64_t n, int64_t *ld)
{
    *ld = is_flat(g) ? volume(g->in) : n;
    if (is_flat(g))
        return x + l0;
    uint16_t *col = bytes_keep(&patches, depth(g) * n * 2 + 64);
    if (col && g->in[0] == 1 && g->k[0] == 1 && g->s[2] == 1 && n % g->out[2] == 0 && l0 % g->out[2] == 0)
        return framed_patches(g, x, l0, n, col) ? col : NULL;
    if (col)
        conv_im2col(DT_bf16, g, g->c, x, col, n, l0, l0 + n);
    return col;
}

static void forward_blocks(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    const conv_geom *g = j->g;
    int64_t L = volume(g->out), block = block_of(g), each = (L + block - 1) / block, K = depth(g), ld;
    for (int64_t t = lo; t < hi; t++) {
        int64_t image = t / each, l0 = t % each * block, n = MIN(block, L - l0);
        uint16_t *y = j->y + image * g->o * L + l0;
        const uint16_t *col = patch(g, j->x + image * g->c * volume(g->in), l0, n, &ld);
        for (int64_t o = 0; j->bias && o < g->o; o++)
            for (int64_t i = 0; i < n; i++)
                y[o * L + i] = j->bias[o];
        if (!col || !multiply(g->o, n, K, (gemm_mat){ VM_bf16, K, 1, 0 }, (gemm_mat){ VM_bf16, ld, 1, 0 },
                              j->bias != NULL, (gemm_mat){ VM_bf16, L, 1, 0 }, j->w, col, y))
            j->failed = true;
    }
}

bool half_forward(const conv_geom *g, const void *x, const void *w, const void *bias, void *y)
{
    job j = { .g = g, .x = x, .w = w, .bias = bias, .y = y };
    if (!worth(g))
        return false;
    int64_t block = block_of(g);
    pool_for(g->n * ((volume(g->out) + block - 1) / block), 1, forward_blocks, &j);
    return !j.failed;
}

/* With stride 1: a convolution of dy with the weight turned round, its channels exchanged. */
bool half_grad_input(const conv_geom *g, const void *dy, const void *w, void *dx)
{
    conv_geom back = *g;
    const uint16_t *from = w;
    int64_t kv = volume(g->k);
    back.c = g->o, back.o = g->c;
    for (int i = 0; i < 3; i++) {
        back.in[i] = g->out[i], back.out[i] = g->in[i];
        back.p[i] = g->d[i] * (g->k[i] - 1) - g->p[i];
        if (g->s[i] != 1 || back.p[i] < 0)
            return false;
    }
    if (!worth(&back) || g->groups != 1)
        return false;
    uint16_t *turned = tmp_alloc(g->o * g->c * kv * 2);
    for (int64_t o = 0; o < g->o; o++)
        for (int64_t c = 0; c < g->c; c++)
            for (int64_t i = 0; i < kv; i++)
                turned[(c * g->o + o) * kv + kv - 1 - i] = from[(o * g->c + c) * kv + i];
    bool ok = half_forward(&back, dy, turned, NULL, dx);
    tmp_free(turned, g->o * g->c * kv * 2);
    return ok;
}

static void weight_parts(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    const conv_geom *g = j->g;
    int64_t L = volume(g->out), K = depth(g), block = block_of(g), ld;
    for (int64_t p = lo; p < hi; p++) {
        float *sum = j->sum + p * g->o * K;
        int64_t first = g->n * p / j->parts;
        for (int64_t image = first; image < g->n * (p + 1) / j->parts; image++)
            for (int64_t l0 = 0; l0 < L; l0 += block) {
                int64_t n = MIN(block, L - l0);
                const uint16_t *col = patch(g, j->x + image * g->c * volume(g->in), l0, n, &ld);
                if (!col || !multiply(g->o, K, n, (gemm_mat){ VM_bf16, L, 1, 0 },
                                      (gemm_mat){ VM_bf16, 1, ld, 0 }, image > first || l0 > 0,
                                      (gemm_mat){ VM_f32, K, 1, 0 }, j->dy + image * g->o * L + l0, col, sum))
                    j->failed = true;
            }
    }
}

/* As many parts whatever the thread count, summed in their order. */
bool half_grad_weight(const conv_geom *g, const void *x, const void *dy, void *dw)
{
    int64_t n = g->o * depth(g), parts = MIN(g->n, PARTS);
    uint16_t *to = dw;
    if (!worth(g))
        return false;
    job j = { .g = g, .x = x, .dy = dy, .parts = parts, .sum = tmp_alloc(parts * n * 4) };
    pool_for(parts, 1, weight_parts, &j);
    for (int64_t i = 0; i < n && !j.failed; i++) {
        float s = j.sum[i];
        for (int64_t p = 1; p < parts; p++)
            s += j.sum[p * n + i];
        to[i] = vnum_to_bf16(s);
    }
    tmp_free(j.sum, parts * n * 4);
    return !j.failed;
}
