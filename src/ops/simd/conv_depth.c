/* simd/conv_depth.c - the loops of ops/conv_depth_loops.h, for one instruction set. */
#include "ops/conv_depth_loops.h"

#if defined(TP_ISA_avx512)
#include <immintrin.h>
typedef __m512 vec;
typedef __mmask16 mask;
enum { W = 16, ROWS = 8, SUMS = 12 };
#define LOAD(p)          _mm512_loadu_ps(p)
#define LOAD_M(p, m)     _mm512_maskz_loadu_ps(m, p)
#define STORE(p, v)      _mm512_storeu_ps(p, v)
#define STORE_M(p, m, v) _mm512_mask_storeu_ps(p, m, v)
#define SET(x)           _mm512_set1_ps(x)
#define MADD(a, b, c)    _mm512_fmadd_ps(a, b, c)
static mask first(int64_t n) { return (mask)((1u << n) - 1); }
static inline vec even(vec a, vec b)
{
    return _mm512_permutex2var_ps(
        a, _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0), b);
}
#define EVEN(a, b) even(a, b)
#elif defined(TP_ISA_avx2)
#include <immintrin.h>
typedef __m256 vec;
typedef __m256i mask;
enum { W = 8, ROWS = 4, SUMS = 6 };
#define LOAD(p)          _mm256_loadu_ps(p)
#define LOAD_M(p, m)     _mm256_maskload_ps(p, m)
#define STORE(p, v)      _mm256_storeu_ps(p, v)
#define STORE_M(p, m, v) _mm256_maskstore_ps(p, m, v)
#define SET(x)           _mm256_set1_ps(x)
#define MADD(a, b, c)    _mm256_fmadd_ps(a, b, c)
static mask first(int64_t n)
{
    static const int32_t ones[2 * W] = { -1, -1, -1, -1, -1, -1, -1, -1 };
    return _mm256_loadu_si256((const __m256i *)(const void *)(ones + W - n));
}
#define EVEN(a, b) \
    _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)), 0xd8))
#else
typedef float vec __attribute__((vector_size(16), aligned(4), may_alias));
typedef int64_t mask; /* how many */
enum { W = 4, ROWS = 4, SUMS = 6 };
#define LOAD(p)          (*(const vec *)(p))
#define LOAD_M(p, m)     load_few(p, m)
#define STORE(p, v)      (*(vec *)(p) = (v))
#define STORE_M(p, m, v) store_few(p, m, v)
#define SET(x)           ((vec){ x, x, x, x })
#define MADD(a, b, c)    ((a) * (b) + (c))
static inline vec load_few(const float *p, int64_t n)
{
    vec v = { 0 };
    for (int64_t i = 0; i < n; i++)
        v[i] = p[i];
    return v;
}
static inline void store_few(float *p, int64_t n, vec v)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = v[i];
}
static mask first(int64_t n) { return n; }
#define EVEN(a, b)       ((vec){ (a)[0], (a)[2], (b)[0], (b)[2] })
#endif
#define EACH static inline __attribute__((always_inline))

/* --- planes ----------------------------------------------------------------------------------------------------------- */
/* Copies n elements that are s apart. */
static void copy_row(float *to, const float *from, int64_t n, int64_t s)
{
    int64_t i = 0;
    if (s == 1) {
        for (; i + W <= n; i += W)
            STORE(to + i, LOAD(from + i));
        mask m = first(n - i);
        if (i < n)
            STORE_M(to + i, m, LOAD_M(from + i, m));
        return;
    }
    for (; s == 2 && i < n; i += W) {
        int64_t left = 2 * (n - i) - 1; /* the last one's neighbour may be nobody's */
        if (left >= 2 * W)
            STORE(to + i, EVEN(LOAD(from + 2 * i), LOAD(from + 2 * i + W)));
        else {
            vec a = LOAD_M(from + 2 * i, first(MIN(left, (int64_t)W)));
            vec b = LOAD_M(from + 2 * i + W, first(MAX(left - W, (int64_t)0)));
            STORE_M(to + i, first(MIN(n - i, (int64_t)W)), EVEN(a, b));
        }
    }
    for (; i < n; i++)
        to[i] = from[s * i];
}

/* Rows of a band as the results see them: zeros around, and the places that are a step apart side by side. clean: the zeros are
 * there from the plane before. */
static void fill(const depth_run *r, const float *plane, int64_t first_row, int64_t rows, float *to,
                 bool clean)
{
    const depth_axis *x = &r->x;
    int64_t s = x->step, b[DEPTH_STRIDE], n[DEPTH_STRIDE];
    for (int64_t f = 0; f < s; f++) { /* place m is column m s + f + least of the source */
        int64_t c0 = f + x->least, e = c0 < x->from ? (x->from - c0 + s - 1) / s : 0;
        b[f] = MIN(r->pitch, c0 < 0 ? (s - 1 - c0) / s : 0);
        n[f] = MAX(0, MIN(r->pitch, e) - b[f]);
    }
    if (!clean)
        memset(to, 0, (size_t)(rows * s * r->pitch) * sizeof *to);
    for (int64_t i = 0; i < rows; i++, to += s * r->pitch) {
        int64_t row = first_row + i + r->y.least;
        if (row >= 0 && row < r->y.from)
            for (int64_t f = 0; f < s; f++)
                copy_row(to + f * r->pitch + b[f], plane + row * x->from + b[f] * s + f + x->least, n[f], s);
    }
}

/* Where the elements of the window that two sets meet in begin in a band, and which they are. */
static int taps_of(const depth_run *r, const depth_set *y, const depth_set *x, int64_t *off, int *k)
{
    int n = 0;
    for (int i = 0; i < y->n; i++)
        for (int l = 0; l < x->n; l++, n++) {
            int64_t q = x->q[l] - r->x.least;
            off[n] = ((y->q[i] - r->y.least) * r->x.step + q % r->x.step) * r->pitch + q / r->x.step;
            k[n] = (int)(y->k[i] * r->across + x->k[l]);
        }
    return n;
}

EACH void few_rows(int n, const float *a, int64_t row, const int64_t *off, const float *w, int taps,
                   float start, float *to, int64_t to_row, int64_t cols)
{
    for (int64_t c = 0; c < cols; c += W) {
        vec sum[ROWS];
        for (int i = 0; i < n; i++)
            sum[i] = SET(start);
        for (int t = 0; t < taps; t++) {
            const float *p = a + off[t] + c;
            vec b = SET(w[t]);
            for (int i = 0; i < n; i++)
                sum[i] = MADD(b, LOAD(p + i * row), sum[i]);
        }
        mask m = first(MIN(cols - c, (int64_t)W));
        for (int i = 0; i < n; i++)
            if (cols - c >= W)
                STORE(to + i * to_row + c, sum[i]);
            else
                STORE_M(to + i * to_row + c, m, sum[i]);
    }
}

/* One set of rows and columns of a band. Where columns of the result are apart they wait in `side` for their neighbours. */
typedef struct part {
    int64_t off[DEPTH_TAPS];
    float w[DEPTH_TAPS];
    int k[DEPTH_TAPS];
    int taps;
} part;

static void rows_of(const depth_run *r, const part *p, const float *a, int64_t rows, float start, float *to,
                    int64_t to_row, int64_t cols)
{
    int64_t row = r->y.step * r->x.step * r->pitch, i = 0;
    for (; i + ROWS <= rows; i += ROWS)
        few_rows(ROWS, a + i * row, row, p->off, p->w, p->taps, start, to + i * to_row, to_row, cols);
    for (; i + 2 <= rows; i += 2)
        few_rows(2, a + i * row, row, p->off, p->w, p->taps, start, to + i * to_row, to_row, cols);
    for (; i < rows; i++)
        few_rows(1, a + i * row, row, p->off, p->w, p->taps, start, to + i * to_row, to_row, cols);
}

/* A row of results out of s rows `apart`, an element of each in turn. */
static void mix(float *to, int64_t n, int64_t s, const float *side, int64_t apart)
{
    for (int64_t f = 0; f < s; f++)
        for (int64_t i = f; i < n; i += s)
            to[i] = side[f * apart + i / s];
}
static void mix_two(float *to, int64_t n, const float *a, const float *b)
{
    for (int64_t i = 0; i < n / 2; i++) {
        to[2 * i] = a[i];
        to[2 * i + 1] = b[i];
    }
    if (n % 2)
        to[n - 1] = a[n / 2];
}

void ISA_NAME(depth_planes)(void *run, int64_t lo, int64_t hi)
{
    const depth_run *r = run;
    int64_t span = r->y.most - r->y.least + 1, high = (r->band - 1) * r->y.step + span;
    int64_t sy = r->y.res, sx = r->x.res, wide = r->x.set[0].count, top = r->y.set[0].count;
    float *a = mem_alloc((size_t)(high * r->x.step * r->pitch + sx * r->band * wide) * sizeof *a);
    float *side = a + high * r->x.step * r->pitch;
    part *parts = mem_alloc(sizeof *parts * (size_t)(sy * sx));
    for (int64_t i = 0; i < sy * sx; i++)
        parts[i].taps = taps_of(r, &r->y.set[i / sx], &r->x.set[i % sx], parts[i].off, parts[i].k);
    for (int64_t q = lo; q < hi; q++) {
        const float *w = r->w + q % r->c * r->K, *plane = r->from + q * r->y.from * r->x.from;
        float start = r->bias ? r->bias[q % r->c] : 0, *y = r->to + q * r->y.to * r->x.to;
        for (int64_t i = 0; i < sy * sx; i++)
            for (int t = 0; t < parts[i].taps; t++)
                parts[i].w[t] = w[parts[i].k[t]];
        for (int64_t j = 0; j < top; j += r->band) {
            int64_t rows = MIN(r->band, top - j);
            fill(r, plane, j * r->y.step, (rows - 1) * r->y.step + span, a, q > lo && r->band >= top);
            for (int64_t i = 0; i < sy; i++) {
                int64_t have = MIN(rows, r->y.set[i].count - j);
                float *to = y + (j * sy + i) * r->x.to;
                if (sx == 1) {
                    rows_of(r, &parts[i], a, have, start, to, sy * r->x.to, wide);
                    continue;
                }
                for (int64_t k = 0; k < sx; k++)
                    rows_of(r, &parts[i * sx + k], a, have, start, side + k * r->band * wide, wide,
                            r->x.set[k].count);
                for (int64_t h = 0; h < have; h++)
                    if (sx == 2)
                        mix_two(to + h * sy * r->x.to, r->x.to, side + h * wide, side + (r->band + h) * wide);
                    else
                        mix(to + h * sy * r->x.to, r->x.to, sx, side + h * wide, r->band * wide);
            }
        }
    }
    free(parts);
    free(a);
}

EACH void sum_few(int n, const float *a, int64_t row, const int64_t *off, const float *dy, int64_t rows,
                  int64_t cols, float *sums)
{
    vec sum[SUMS];
    mask m = first(cols % W);
    for (int t = 0; t < n; t++)
        sum[t] = LOAD(sums + t * W);
    for (int64_t i = 0; i < rows; i++, a += row, dy += cols) {
        int64_t c = 0;
        for (; c + W <= cols; c += W) {
            vec d = LOAD(dy + c);
            for (int t = 0; t < n; t++)
                sum[t] = MADD(d, LOAD(a + off[t] + c), sum[t]);
        }
        if (c < cols) { /* what lies behind is nobody's: an infinity there would meet a zero */
            vec d = LOAD_M(dy + c, m);
            for (int t = 0; t < n; t++)
                sum[t] = MADD(d, LOAD_M(a + off[t] + c, m), sum[t]);
        }
    }
    for (int t = 0; t < n; t++)
        STORE(sums + t * W, sum[t]);
}

static void sum_taps(int n, const float *a, int64_t row, const int64_t *off, const float *dy, int64_t rows,
                     int64_t cols, float *sums)
{
#define CASE(k) \
    case k: sum_few(k, a, row, off, dy, rows, cols, sums); return;
    switch (n) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
#if defined(TP_ISA_avx512)
        CASE(7)
        CASE(8)
        CASE(9)
        CASE(10)
        CASE(11)
        CASE(12)
#endif
    }
#undef CASE
}

/* Lanes are added in halves. */
static float across(float *v)
{
    for (int n = W / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            v[i] += v[i + n];
    return v[0];
}

void ISA_NAME(depth_plane_sums)(void *run, int64_t lo, int64_t hi)
{
    const depth_run *r = run;
    int64_t span = r->y.most - r->y.least + 1, high = (r->band - 1) * r->y.step + span,
            row = r->y.step * r->x.step * r->pitch, groups = (r->K + SUMS - 1) / SUMS;
    float *a = mem_alloc((size_t)(high * r->x.step * r->pitch + r->K * W) * sizeof *a);
    float *sums = a + high * r->x.step * r->pitch;
    part *p = mem_alloc(sizeof *p);
    taps_of(r, &r->y.set[0], &r->x.set[0], p->off, p->k);
    bool clean = false;
    for (int64_t q = lo; q < hi; q++) {
        int64_t begin = q / r->c * r->per, end = MIN(begin + r->per, r->n);
        memset(sums, 0, (size_t)(r->K * W) * sizeof *sums);
        for (int64_t image = begin; image < end; image++) {
            int64_t at = image * r->c + q % r->c;
            const float *plane = r->from + at * r->y.from * r->x.from, *dy = r->dy + at * r->y.to * r->x.to;
            for (int64_t j = 0; j < r->y.to; j += r->band) {
                int64_t rows = MIN(r->band, r->y.to - j);
                fill(r, plane, j * r->y.step, (rows - 1) * r->y.step + span, a, clean);
                for (int64_t g = 0; g < groups; g++) {
                    int64_t t0 = r->K * g / groups, t1 = r->K * (g + 1) / groups;
                    sum_taps((int)(t1 - t0), a, row, p->off + t0, dy + j * r->x.to, rows, r->x.to,
                             sums + t0 * W);
                }
            }
            clean = r->band >= r->y.to;
        }
        for (int64_t t = 0; t < r->K; t++)
            r->to[q * r->K + t] = across(sums + t * W);
    }
    free(p);
    free(a);
}

/* --- channels side by side -------------------------------------------------------------------------------------------- */
/* Of n places in a row, `step` apart in the source and `to_step` in the result, the channels that m says. */
EACH void few_places(int n, const float *a, int64_t step, const int64_t *off, const float *const *w, int taps,
                     vec start, float *to, int64_t to_step, bool all, mask m)
{
    vec sum[ROWS];
    for (int i = 0; i < n; i++)
        sum[i] = start;
    for (int t = 0; t < taps; t++) {
        vec b = all ? LOAD(w[t]) : LOAD_M(w[t], m);
        for (int i = 0; i < n; i++)
            sum[i] = MADD(b, all ? LOAD(a + off[t] + i * step) : LOAD_M(a + off[t] + i * step, m), sum[i]);
    }
    for (int i = 0; i < n; i++)
        if (all)
            STORE(to + i * to_step, sum[i]);
        else
            STORE_M(to + i * to_step, m, sum[i]);
}

/* Results j .. e of a set whose elements k0 .. k1 along the row are all there. */
static void places(const depth_run *r, int64_t row, const depth_set *sy, const depth_set *sx, int64_t x0,
                   int64_t j, int64_t e, int k0, int k1, const float *image, float *to, int64_t c)
{
    int64_t off[DEPTH_TAPS], left = r->c - c;
    const float *w[DEPTH_TAPS];
    int n = 0;
    bool all = left >= W;
    mask m = first(MIN(left, (int64_t)W));
    for (int i = 0; i < sy->n; i++) {
        int64_t y = row * r->y.step + sy->q[i];
        for (int k = k0; y >= 0 && y < r->y.from && k < k1; k++, n++) {
            off[n] = (y * r->x.from + sx->q[k]) * r->c;
            w[n] = r->w + (sy->k[i] * r->across + sx->k[k]) * r->c + c;
        }
    }
    vec start = !r->bias ? SET(0) : all ? LOAD(r->bias + c) : LOAD_M(r->bias + c, m);
    int64_t step = r->x.step * r->c, to_step = r->x.res * r->c;
    for (; j < e; j += ROWS) {
        const float *a = image + j * step + c;
        float *o = to + (j * r->x.res + x0) * r->c + c;
        if (j + ROWS <= e && all)
            few_places(ROWS, a, step, off, w, n, start, o, to_step, true, m);
        else
            for (int64_t i = 0; i < MIN(ROWS, e - j); i++)
                few_places(1, a + i * step, step, off, w, n, start, o + i * to_step, to_step, all, m);
    }
}

void ISA_NAME(depth_rows)(void *run, int64_t lo, int64_t hi)
{
    const depth_run *r = run;
    for (int64_t q = lo; q < hi; q++) {
        int64_t image = q / r->per, y = q % r->per;
        const float *a = r->from + image * r->y.from * r->x.from * r->c;
        float *to = r->to + q * r->x.to * r->c;
        const depth_set *sy = &r->y.set[y % r->y.res];
        for (int64_t c = 0; c < r->c; c += W)
            for (int64_t x0 = 0; x0 < r->x.res; x0++) {
                const depth_set *sx = &r->x.set[x0];
                for (int64_t j = 0; j < sx->count;) {
                    /* which elements are there for place j; all places as far as that stays so, together */
                    int k0 = 0, k1 = 0;
                    int64_t e = sx->count, x = j * r->x.step;
                    /* q rises (forward) or falls (gradient): the ones that are there are neighbours */
                    while (k0 < sx->n && (x + sx->q[k0] < 0 || x + sx->q[k0] >= r->x.from))
                        k0++;
                    for (k1 = k0; k1 < sx->n && x + sx->q[k1] >= 0 && x + sx->q[k1] < r->x.from; k1++)
                        ;
                    for (int k = 0; k < sx->n; k++) {
                        int64_t at = x + sx->q[k], s = r->x.step;
                        if (at < 0)
                            e = MIN(e, j + (-at + s - 1) / s);
                        else if (at < r->x.from)
                            e = MIN(e, j + (r->x.from - at + s - 1) / s);
                    }
                    places(r, y / r->y.res, sy, sx, x0, j, e, k0, k1, a, to, c);
                    j = e;
                }
            }
    }
}

EACH vec sum_places(const float *a, int64_t step, const float *dy, int64_t dy_step, int64_t n, bool all,
                    mask m, vec sum)
{
    vec s[4] = { sum, SET(0), SET(0), SET(0) };
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            s[k] = all ? MADD(LOAD(a + (i + k) * step), LOAD(dy + (i + k) * dy_step), s[k])
                       : MADD(LOAD_M(a + (i + k) * step, m), LOAD_M(dy + (i + k) * dy_step, m), s[k]);
    for (; i < n; i++)
        s[0] = all ? MADD(LOAD(a + i * step), LOAD(dy + i * dy_step), s[0])
                   : MADD(LOAD_M(a + i * step, m), LOAD_M(dy + i * dy_step, m), s[0]);
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* What an image adds to the sums of some channels. */
static void add_image(const depth_run *r, const float *a, const float *dy, bool all, mask m, float *sums)
{
    const depth_set *sy = &r->y.set[0], *sx = &r->x.set[0];
    int64_t s = r->x.step;
    for (int64_t y = 0; y < r->y.to; y++)
        for (int i = 0; i < sy->n; i++) {
            int64_t from = y * r->y.step + sy->q[i];
            for (int k = 0; from >= 0 && from < r->y.from && k < sx->n; k++) {
                int64_t p = sx->q[k], b = p < 0 ? (-p + s - 1) / s : 0;
                int64_t e = MIN(r->x.to, p < r->x.from ? (r->x.from - p + s - 1) / s : 0);
                float *to = sums + (sy->k[i] * r->across + sx->k[k]) * W;
                if (b < e)
                    STORE(to, sum_places(a + (from * r->x.from + p + b * s) * r->c, s * r->c,
                                         dy + (y * r->x.to + b) * r->c, r->c, e - b, all, m, LOAD(to)));
            }
        }
}

void ISA_NAME(depth_row_sums)(void *run, int64_t lo, int64_t hi)
{
    const depth_run *r = run;
    int64_t blocks = (r->c + DEPTH_LANES - 1) / DEPTH_LANES;
    float *sums = mem_alloc((size_t)(r->K * W) * sizeof *sums);
    for (int64_t q = lo; q < hi; q++) {
        int64_t begin = q / blocks * r->per, end = MIN(begin + r->per, r->n), c0 = q % blocks * DEPTH_LANES;
        for (int64_t c = c0; c < MIN(c0 + DEPTH_LANES, r->c); c += W) {
            bool all = r->c - c >= W;
            mask m = first(MIN(r->c - c, (int64_t)W));
            memset(sums, 0, (size_t)(r->K * W) * sizeof *sums);
            for (int64_t i = begin; i < end; i++)
                add_image(r, r->from + i * r->y.from * r->x.from * r->c + c,
                          r->dy + i * r->y.to * r->x.to * r->c + c, all, m, sums);
            for (int64_t t = 0; t < r->K; t++) {
                float *to = r->to + (q / blocks * r->K + t) * r->c + c;
                if (all)
                    STORE(to, LOAD(sums + t * W));
                else
                    STORE_M(to, m, LOAD(sums + t * W));
            }
        }
    }
    free(sums);
}
