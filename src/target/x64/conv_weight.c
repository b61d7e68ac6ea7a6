/* conv_weight.c - the gradient of a convolution's weight: for every window element and channel, the sum over all places
 * of image times output gradient. Output channels are lanes; the output gradient is transposed to have them so. */
#include "target/x64/conv.h"
#include "target/x64/conv_int.h"
#include "base/map.h"
#include "base/pool.h"
#include <pthread.h>

enum { PLACES = 1024, CHUNK_BYTES = 8 << 20, MAX_PLANS = 4096 };

typedef struct rowset { /* window elements of one tile */
    int64_t row0;       /* first of them, counted channel by channel */
    int64_t at;         /* its channel's plane */
    int mr;
    corr_micro fn;
} rowset;

typedef struct plan {
    gen_isa isa;
    vir_mem type;
    int64_t es, W, cg, og, K; /* channels in a group, size of the window */
    corr_image img;
    int64_t out[3], s[3];
    int nv;
    int64_t lanes, nblk, opad; /* lanes of a block, blocks, all of them */
    int64_t lines;             /* of output places taken together */
    int64_t *off;              /* lines * out[2] places, in bytes */
    rowset *set;
    int64_t nset;
} plan;

static void plan_free(plan *p)
{
    free(p->off);
    free(p->set);
    free(p);
}

static double step_cost(gen_isa isa, int64_t mr, int nv)
{
    double one = isa == ISA_avx512 ? 1.0 : 0.5, n = (double)mr, load = nv * one + n * 0.5;
    return MAX(MAX(n * nv * one, load), 4) + 0.4 + 0.5 * nv; /* the gradient streams from the second cache */
}

/* Rows of a tile: several channels' windows, or a part of one. */
static int64_t tile_rows(int64_t K, int64_t cg, int top)
{
    if (K <= top) {
        int64_t q = MIN(top / K, cg), tiles = (cg + q - 1) / q;
        return (cg + tiles - 1) / tiles * K;
    }
    int64_t parts = (K + top - 1) / top;
    return (K + parts - 1) / parts;
}

static void choose(plan *p)
{
    int64_t nvec = (p->og + p->W - 1) / p->W;
    double best = 1e300;
    for (int nv = 1; nv <= 4 && nv <= nvec; nv++) {
        int64_t mr = tile_rows(p->K, p->cg, corr_max_rows(p->isa, nv)), nblk = (nvec + nv - 1) / nv;
        int64_t tiles = p->K >= mr ? p->cg * ((p->K + mr - 1) / mr) : (p->cg * p->K + mr - 1) / mr;
        double cost = (double)(nblk * tiles) * step_cost(p->isa, mr, nv);
        if (tiles * nblk < 4) /* little to share among threads */
            cost *= 1.5;
        if (cost < best * 0.99)
            best = cost, p->nv = nv;
    }
    p->lanes = p->nv * p->W;
    p->nblk = (p->og + p->lanes - 1) / p->lanes;
    p->opad = p->nblk * p->lanes;
}

static bool make_set(plan *p, const int64_t *tap_at, int64_t row0, int64_t mr)
{
    tp_err err = { 0 };
    rowset *s = &p->set[p->nset++];
    int64_t c0 = row0 / p->K;
    *s = (rowset){ .row0 = row0, .at = corr_channel(&p->img, c0), .mr = (int)mr };
    corr_tile t = { .isa = (uint8_t)p->isa,
                    .wide = p->type == VM_f64,
                    .mr = (uint8_t)mr,
                    .nv = (uint8_t)p->nv,
                    .add = 1,
                    .b_row = (int32_t)(p->opad * p->es) };
    for (int64_t r = 0; r < mr; r++) {
        int64_t c = corr_channel(&p->img, (row0 + r) / p->K) - s->at,
                d = (c + tap_at[(row0 + r) % p->K]) * p->es;
        if (d > INT32_MAX)
            return false;
        t.disp[r] = (int32_t)d;
    }
    return (s->fn = corr_tile_get(&t, &err)) != NULL;
}

static bool make_sets(plan *p, const conv_geom *g)
{
    int64_t *at = mem_alloc(sizeof *at * (size_t)p->K), n = 0, rows = p->cg * p->K;
    for (int64_t a = 0; a < g->k[0]; a++)
        for (int64_t b = 0; b < g->k[1]; b++)
            for (int64_t c = 0; c < g->k[2]; c++)
                at[n++] = a * g->d[0] * p->img.layer + b * g->d[1] * p->img.pitch + c * g->d[2] * p->img.side;
    int64_t mr = tile_rows(p->K, p->cg, corr_max_rows(p->isa, p->nv));
    bool ok = true;
    p->set = mem_zalloc(sizeof *p->set * (size_t)(rows + 1));
    if (mr >= p->K)
        for (int64_t r = 0; r < rows && ok; r += mr)
            ok = make_set(p, at, r, MIN(mr, rows - r));
    else
        for (int64_t c = 0; c < p->cg; c++)
            for (int64_t t = 0; t < p->K && ok; t += mr)
                ok = make_set(p, at, c * p->K + t, MIN(mr, p->K - t));
    free(at);
    return ok;
}

static plan *plan_new(gen_isa isa, dtype dt, const conv_geom *g)
{
    plan *p = mem_zalloc(sizeof *p);
    p->isa = isa;
    p->type = dt == DT_f64 ? VM_f64 : VM_f32;
    p->es = (int64_t)dtype_size(dt);
    p->W = (isa == ISA_avx512 ? 64 : 32) / p->es;
    p->cg = g->c / g->groups;
    p->og = g->o / g->groups;
    p->K = corr_volume(g->k);
    memcpy(p->out, g->out, sizeof p->out);
    memcpy(p->s, g->s, sizeof p->s);
    for (int i = 0; i < 3; i++) {
        p->img.in[i] = g->in[i];
        p->img.lo[i] = g->p[i];
        p->img.size[i] = (g->out[i] - 1) * g->s[i] + (g->k[i] - 1) * g->d[i] + 1;
    }
    corr_image_init(&p->img, g, false, p->es);
    choose(p);
    p->lines = MAX(1, MIN(p->out[1], PLACES / p->out[2]));
    p->off = mem_alloc(sizeof *p->off * (size_t)(p->lines * p->out[2]));
    for (int64_t h = 0; h < p->lines; h++)
        for (int64_t w = 0; w < p->out[2]; w++)
            p->off[h * p->out[2] + w] = (h * p->s[1] * p->img.pitch + w * p->s[2] * p->img.side) * p->es;
    if (!make_sets(p, g)) {
        plan_free(p);
        return NULL;
    }
    return p;
}

typedef struct plan_key {
    int64_t isa, dt;
    conv_geom g;
} plan_key;

static plan *plan_get(gen_isa isa, dtype dt, const conv_geom *g, bool *own)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static map cache;
    plan_key key = { isa, dt, *g };
    key.g.n = 0; /* does not matter */
    *own = false;
    pthread_mutex_lock(&lock);
    plan *p = map_getn(&cache, &key, sizeof key);
    if (!p && (p = plan_new(isa, dt, g))) {
        if (cache.n < MAX_PLANS)
            map_putn(&cache, &key, sizeof key, p);
        else
            *own = true;
    }
    pthread_mutex_unlock(&lock);
    return p;
}

typedef struct run {
    const plan *p;
    int64_t n, groups;  /* images at hand */
    const char *x, *dy; /* images with zeros around; gradients as given */
    const char *b;      /* [image, group][place][opad]: t, or dy where it lies so */
    char *t;
    char *sum; /* [group][row][opad] */
    char *dw;
    bool w_last;
} run;

static void transpose_dy(void *arg, int64_t lo, int64_t hi)
{
    const run *r = arg;
    const plan *p = r->p;
    int64_t L = corr_volume(p->out);
    for (int64_t q = lo; q < hi; q++) {
        const char *side = r->dy + (q / r->groups * L * r->groups + q % r->groups) * p->og * p->es;
        for (int64_t i = 0; p->img.last && i < L; i++) {
            char *to = r->t + (q * L + i) * p->opad * p->es;
            memcpy(to, side + i * r->groups * p->og * p->es, (size_t)(p->og * p->es));
            memset(to + p->og * p->es, 0, (size_t)((p->opad - p->og) * p->es));
        }
        if (p->img.last)
            continue;
        gemm_pack_b(p->type, p->isa, r->dy + q * p->og * L * p->es, 1, L, (int)p->og, (int)p->opad, L,
                    r->t + q * L * p->opad * p->es);
    }
}

/* task = (group, block, row set); image after image, so that what is read stays in cache for all tasks */
static void sums(void *arg, int64_t lo, int64_t hi)
{
    const run *r = arg;
    const plan *p = r->p;
    int64_t es = p->es, L = corr_volume(p->out), line = p->out[2], rows = p->cg * p->K;
    for (int64_t i = 0; i < r->n; i++)
        for (int64_t d = 0; d < p->out[0]; d++)
            for (int64_t h = 0; h < p->out[1]; h += p->lines) {
                int64_t k = MIN(p->lines, p->out[1] - h) * line;
                int64_t a = d * p->s[0] * p->img.layer + h * p->s[1] * p->img.pitch,
                        b = (d * p->out[1] + h) * line * p->opad;
                for (int64_t q = lo; q < hi; q++) {
                    const rowset *s = &p->set[q % p->nset];
                    int64_t blk = q / p->nset % p->nblk, gi = q / p->nset / p->nblk, ig = i * r->groups + gi;
                    int64_t x = i * p->img.blocks * p->img.plane + corr_channel(&p->img, gi * p->cg) + s->at +
                                a;
                    s->fn(r->x + x * es, r->b + (ig * L * p->opad + b + blk * p->lanes) * es,
                          r->sum + ((gi * rows + s->row0) * p->opad + blk * p->lanes) * es, k, p->off,
                          p->opad * es);
                }
            }
}

static void put_dw(void *arg, int64_t lo, int64_t hi) /* output channels of all groups */
{
    const run *r = arg;
    const plan *p = r->p;
    int64_t rows = p->cg * p->K, down = r->w_last ? p->cg : 1, across = r->w_last ? 1 : p->K;
    for (int64_t q = lo; q < hi; q++) {
        int64_t gi = q / p->og, o = q % p->og;
        for (int64_t c = 0, i = 0; c < p->cg; c++)
            for (int64_t t = 0; t < p->K; t++, i++) {
                int64_t to = q * rows + c * across + t * down, from = (gi * rows + i) * p->opad + o;
                if (p->es == 4)
                    ((float *)(void *)r->dw)[to] = ((const float *)(void *)r->sum)[from];
                else
                    ((double *)(void *)r->dw)[to] = ((const double *)(void *)r->sum)[from];
            }
    }
}

bool corr_grad_weight(gen_isa isa, dtype dt, const conv_geom *g, const void *x, const void *dy, void *dw)
{
    if (!corr_worth(isa, dt, g, g->o / g->groups, g->c / g->groups))
        return false;
    bool own;
    plan *p = plan_get(isa, dt, g, &own);
    if (!p)
        return false;
    bool ok = false;
    int64_t es = p->es, L = corr_volume(p->out), rows = p->cg * p->K, sum = g->groups * rows * p->opad * es;
    int64_t each = g->groups * L * p->opad * es + (p->img.copy ? p->img.blocks * p->img.plane * es : 0);
    int64_t chunk = MAX(1, MIN(g->n, CHUNK_BYTES / MAX(each, 1)));
    run r = { .p = p, .groups = g->groups, .dw = dw, .w_last = g->w_last };
    r.sum = corr_scratch(1, sum + 64);
    bool direct = g->last && g->groups == 1 && p->opad == p->og;
    r.t = corr_scratch(2, direct ? 64 : chunk * g->groups * L * p->opad * es + 64);
    if (!r.sum || !r.t)
        goto done;
    memset(r.sum, 0, (size_t)sum);
    for (int64_t i = 0; i < g->n; i += chunk) {
        r.n = MIN(chunk, g->n - i);
        r.x = corr_pad(&p->img, (const char *)x + i * g->c * corr_volume(g->in) * es, r.n, es);
        r.dy = (const char *)dy + i * g->o * L * es;
        if (!r.x)
            goto done;
        r.b = direct ? r.dy : r.t;
        if (!direct)
            pool_for(r.n * g->groups, MAX(1, 16384 / MAX(1, L * p->og)), transpose_dy, &r);
        int64_t work = MAX(1, r.n * L * (p->set[0].mr * p->lanes));
        pool_for(g->groups * p->nblk * p->nset, MAX(1, (1 << 17) / work), sums, &r);
    }
    pool_for(g->o, MAX(1, 16384 / MAX(1, rows)), put_dw, &r);
    ok = true;
done:
    if (own)
        plan_free(p);
    return ok;
}
