/* conv.c - see conv.h. Forward and input gradient are one loop: places of the result times channels of the result. The
 * input gradient of a strided convolution falls apart into one such loop for each residue of the stride. */
#include "target/x64/conv.h"
#include "target/x64/conv_int.h"
#include "base/map.h"
#include "base/pool.h"
#include "base/bytes.h"
#include <pthread.h>
#include <stdatomic.h>

/* Weights of a block of channels are used from the first cache for all results of a band, whose sums wait in a tile. */
enum {
    SEG = 64,
    CHUNK_BYTES = 8 << 20,
    MAX_PLANS = 4096,
    MAX_NV = 4,
    TILE_BYTES = 16 << 10,
    NEAR_BYTES = 16 << 10
};

/* Scratch of the calling thread, kept for its next call. */
static _Thread_local bytes_kept kept[3];
char *corr_scratch(int which, int64_t bytes) { return bytes_keep(&kept[which], bytes); }

/* --- the padded image ------------------------------------------------------------------------------------------------- */
void corr_image_init(corr_image *p, const conv_geom *g, bool grad, int64_t es)
{
    int64_t line = 64 / es;
    p->last = g->last;
    p->chans = grad ? g->o : g->c;
    p->copy = g->last && p->chans > 4 * line && corr_volume(g->k) > 1;
    for (int i = 0; i < 3; i++)
        p->copy |= p->lo[i] != 0 || p->size[i] > p->in[i];
    /* a group begins at the beginning of a block */
    bool blocks = p->copy && p->chans > line && (g->groups == 1 || p->chans / g->groups % line == 0);
    p->side = !g->last ? 1 : blocks ? line : p->chans;
    p->blocks = (p->chans + p->side - 1) / p->side;
    const int64_t *s = p->copy ? p->size : p->in;
    p->pitch = s[2] * p->side;
    p->layer = s[1] * p->pitch;
    p->plane = s[0] * p->layer;
}

typedef struct pad_job {
    const corr_image *p;
    const char *from;
    char *to;
    int64_t es;
} pad_job;

/* Rows are short: a call of memcpy costs more than the bytes do. */
typedef struct chunk {
    char b[32];
} chunk;
static void move_row(char *to, const char *from, int64_t n)
{
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        *(chunk *)(to + i) = *(const chunk *)(from + i);
    if (i < n && n >= 32)
        *(chunk *)(to + n - 32) = *(const chunk *)(from + n - 32);
    else if (i < n)
        memcpy(to + i, from + i, (size_t)(n - i));
}
static void clear_row(char *to, int64_t n, bool over) /* over: up to 31 bytes more may be written */
{
    static const chunk zero;
    if (!over || n > 64)
        memset(to, 0, (size_t)n);
    else
        for (int64_t i = 0; i < n; i += 32)
            *(chunk *)(to + i) = zero;
}

static void pad_planes(void *arg, int64_t b, int64_t e)
{
    const pad_job *j = arg;
    const corr_image *p = j->p;
    int64_t es = j->es, len = MIN(p->in[2], p->size[2] - p->lo[2]), left = p->lo[2] * es,
            right = (p->size[2] - p->lo[2] - len) * es;
    for (int64_t c = b; c < e; c++) {
        const char *from = j->from + c * corr_volume(p->in) * es;
        char *to = j->to + c * p->plane * es;
        for (int64_t d = 0; d < p->size[0]; d++)
            for (int64_t h = 0; h < p->size[1]; h++, to += p->pitch * es) {
                int64_t id = d - p->lo[0], ih = h - p->lo[1];
                if (id < 0 || id >= p->in[0] || ih < 0 || ih >= p->in[1] || len <= 0) {
                    memset(to, 0, (size_t)(p->pitch * es));
                    continue;
                }
                /* what is written too far comes before what belongs there, except at the end of a plane */
                clear_row(to, left, left + len * es + right >= ((left + 31) & ~(int64_t)31));
                move_row(to + left, from + (id * p->in[1] + ih) * p->in[2] * es, len * es);
                clear_row(to + left + len * es, right, p->pitch * es >= 32 && h + 1 < p->size[1]);
            }
    }
}

/* n pieces of `bytes`, those of the source `apart`. */
static void move_blocks(char *to, const char *from, int64_t n, int64_t bytes, int64_t apart, int64_t step)
{
    for (int64_t i = 0; bytes == 64 && i < n; i++) {
        ((chunk *)(to + i * step))[0] = ((const chunk *)(from + i * apart))[0];
        ((chunk *)(to + i * step))[1] = ((const chunk *)(from + i * apart))[1];
    }
    for (int64_t i = 0; bytes != 64 && i < n; i++)
        memcpy(to + i * step, from + i * apart, (size_t)bytes);
}

/* Lines of images with channels side by side, each to all blocks. */
static void pad_lines(void *arg, int64_t b, int64_t e)
{
    const pad_job *j = arg;
    const corr_image *p = j->p;
    int64_t es = j->es, len = MIN(p->in[2], p->size[2] - p->lo[2]), piece = p->side * es,
            left = p->lo[2] * piece, right = p->pitch * es - left - len * piece,
            all = p->size[0] * p->size[1];
    for (int64_t q = b; q < e; q++) {
        int64_t at = q % all, id = at / p->size[1] - p->lo[0], ih = at % p->size[1] - p->lo[1];
        bool out = id < 0 || id >= p->in[0] || ih < 0 || ih >= p->in[1] || len <= 0;
        const char *from = j->from + (((q / all * p->in[0] + id) * p->in[1] + ih) * p->in[2]) * p->chans * es;
        char *to = j->to + (q / all * p->blocks * p->plane + at * p->pitch) * es;
        for (int64_t c = 0; c < p->blocks; c++, to += p->plane * es) {
            if (out) {
                memset(to, 0, (size_t)(p->pitch * es));
                continue;
            }
            memset(to, 0, (size_t)left);
            memset(to + left + len * piece, 0, (size_t)right);
            if (p->side == p->chans)
                memcpy(to + left, from, (size_t)(len * piece));
            else
                move_blocks(to + left, from + c * piece, len, MIN(p->side, p->chans - c * p->side) * es,
                            p->chans * es, piece);
        }
    }
}

const char *corr_pad(const corr_image *p, const char *from, int64_t images, int64_t es)
{
    if (!p->copy)
        return from;
    int64_t lines = images * p->size[0] * p->size[1];
    pad_job j = { p, from, corr_scratch(0, images * p->blocks * p->plane * es + 64), es };
    if (!j.to)
        return NULL;
    if (p->last)
        pool_for(lines, MAX(1, 32768 / MAX(1, p->pitch * p->blocks)), pad_lines, &j);
    else
        pool_for(images * p->blocks, MAX(1, 32768 / MAX(1, p->plane)), pad_planes, &j);
    return j.to;
}

/* --- plans ------------------------------------------------------------------------------------------------------------ */
typedef struct phase { /* results first + step * i, from the window elements of tap[] */
    int64_t first[3], count[3];
    int ntap;
    int64_t *tap, *at; /* number in the window; place in the padded image relative to the result's */
    int64_t *off;      /* (channel, tap) in bytes */
    int64_t b_at;      /* where its packed weights start, in rows */
} phase;

typedef struct plan {
    conv_geom g;
    gen_isa isa;
    vir_mem type;
    bool grad;
    int64_t es, W;
    int64_t ca, cb; /* channels in a group: of the image that is read, of the result */
    corr_image img;
    int64_t out[3], step[3]; /* of the result; step: between results of a phase */
    int64_t go[3];           /* step in the image from one result to the next */
    int nv, nphase;
    int64_t lanes, nblk, seg, rows, depth; /* depth: rows of packed weights over all phases */
    int64_t near, band;                    /* channels of a chunk of weights; most rows of a band */
    corr_micro micro[2][CORR_ROWS + 1];    /* [added to what is there][rows] */
    /* lanes are places: lanes above is then the channels of a tile, seg the places, lines the lines of one */
    bool px;
    int64_t lines;
    corr_micro by_line[2][2][2]; /* [last channels][last places][one line] */
    phase *ph;
} plan;

static void plan_free(plan *p)
{
    for (int i = 0; i < p->nphase; i++) {
        free(p->ph[i].tap);
        free(p->ph[i].at);
        free(p->ph[i].off);
    }
    free(p->ph);
    free(p);
}

/* Cycles of one k: multiplications, loads, or the latency of the sums. */
static double step_cost(gen_isa isa, int mr, int nv)
{
    double one = isa == ISA_avx512 && !gen_two_wide_fma() ? 1.0 : 0.5, load = nv * one + mr * 0.5 + 0.5;
    return MAX(MAX(mr * nv * one, load), 4) + 0.4 + 0.1 * nv;
}

static int64_t seg_len(int64_t n)
{
    int64_t parts = (n + SEG - 1) / SEG;
    return parts > 1 ? MIN(SEG, ((n + parts - 1) / parts + 7) & ~(int64_t)7) : n;
}

static double choose_lanes(plan *p, int64_t cols)
{
    int64_t nvec = (p->cb + p->W - 1) / p->W;
    double best = 1e300;
    for (int nv = 1; nv <= MAX_NV && nv <= nvec; nv++) {
        int top = corr_max_rows(p->isa, nv);
        if (top < 1)
            break;
        int64_t pan = (cols + top - 1) / top, nblk = (nvec + nv - 1) / nv;
        double cost = (double)nblk * (double)pan * step_cost(p->isa, (int)((cols + pan - 1) / pan), nv);
        if (cost < best * 0.99)
            best = cost, p->nv = nv;
    }
    p->lanes = p->nv * p->W;
    p->nblk = (p->cb + p->lanes - 1) / p->lanes;
    return best;
}

static corr_micro micro_get(plan *p, int mr, bool add, tp_err *err)
{
    corr_tile t = { .isa = (uint8_t)p->isa,
                    .wide = p->type == VM_f64,
                    .mr = (uint8_t)mr,
                    .nv = (uint8_t)p->nv,
                    .add = add,
                    .b_row = (int32_t)(p->lanes * p->es) };
    for (int r = 0; r < mr; r++)
        t.disp[r] = (int32_t)(r * p->go[2] * p->img.side * p->es);
    return corr_tile_get(&t, err);
}

static bool make_micro(plan *p, int64_t cols)
{
    tp_err err = { 0 };
    int top = corr_max_rows(p->isa, p->nv);
    int64_t pan = (cols + top - 1) / top;
    if (cols <= 0)
        return true;
    for (int64_t mr = cols / pan; mr <= (cols + pan - 1) / pan; mr++)
        for (int add = 0; add < (p->near < p->ca ? 2 : 1); add++)
            if (!p->micro[add][mr] && !(p->micro[add][mr] = micro_get(p, (int)mr, add, &err)))
                return false;
    return true;
}

/* Lanes as places: results need no turning, and few channels fill vectors. Wants lines that fill vectors, too.
 * The cost is that of a line of results over all channels. */
static double px_cost(plan *p, bool choose)
{
    int64_t n = p->out[2];
    double best = 1e300;
    if (p->go[2] != 1 || p->step[2] != 1 || corr_volume(p->step) != 1)
        return best;
    for (int across = 1; across <= 4; across++)
        for (int lines = 1; lines * across <= 4 && (lines == 1 || (across * p->W >= n && p->out[1] >= lines));
             lines++) {
            int64_t segs = (n + across * p->W - 1) / (across * p->W), part = n % p->W;
            int top = corr_px_rows(p->isa, lines * across, part != 0), nv = lines * across;
            if (top < 1 || (int64_t)across * p->W >= n + p->W)
                continue;
            int64_t nblk = (p->cb + top - 1) / top, mr = (p->cb + nblk - 1) / nblk;
            double cost = (double)(segs * nblk) * step_cost(p->isa, (int)mr, nv) / lines;
            if (cost >= best)
                continue;
            best = cost;
            if (choose)
                p->lines = lines, p->seg = across * p->W, p->nv = nv, p->lanes = mr, p->nblk = nblk;
        }
    return best;
}

static bool make_px(plan *p)
{
    tp_err err = { 0 };
    int64_t rest = p->cb - (p->nblk - 1) * p->lanes, tail = p->out[2] % p->seg;
    for (int few = 0; few < 2; few++)
        for (int end = 0; end < 2; end++)
            for (int one = 0; one < 2; one++) {
                int64_t n = end ? tail : p->seg, across = (n + p->W - 1) / p->W;
                corr_px t = { .isa = (uint8_t)p->isa,
                              .wide = p->type == VM_f64,
                              .mr = (uint8_t)(few ? rest : p->lanes),
                              .nv = (uint8_t)(across * (one ? 1 : p->lines)),
                              .across = (uint8_t)across,
                              .last = (uint8_t)(n % p->W),
                              .a_row = (int32_t)(p->lanes * p->es),
                              .b_line = (int32_t)(p->go[1] * p->img.pitch * p->es),
                              .c_line = (int32_t)(p->out[2] * p->es) };
                if (n && !(p->by_line[few][end][one] = corr_px_get(&t, &err)))
                    return false;
            }
    return true;
}

static int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

/* Which window elements reach results first + s i, along one dimension: their places relative to i. */
static int taps_1d(const conv_geom *g, bool grad, int dim, int64_t first, int64_t *tap, int64_t *at)
{
    int n = 0;
    for (int64_t k = 0; k < g->k[dim]; k++) {
        if (!grad) {
            tap[n] = k;
            at[n++] = k * g->d[dim] - g->p[dim];
            continue;
        }
        int64_t x = first + g->p[dim] - k * g->d[dim];
        if (x - floor_div(x, g->s[dim]) * g->s[dim] == 0) {
            tap[n] = k;
            at[n++] = floor_div(x, g->s[dim]);
        }
    }
    return n;
}

/* The zeros needed around the image. */
static void plan_image(plan *p)
{
    const conv_geom *g = &p->g;
    int64_t *tap = mem_alloc(sizeof *tap * 2 * (size_t)(MAX(MAX(g->k[0], g->k[1]), g->k[2]) + 1));
    memcpy(p->img.in, p->grad ? g->out : g->in, sizeof p->img.in);
    for (int i = 0; i < 3; i++) {
        int64_t lo = 0, hi = 0, phases = p->grad ? MIN(g->s[i], p->out[i]) : 1, *at = tap + g->k[i];
        for (int64_t f = 0; f < phases; f++) {
            int64_t count = p->grad ? (p->out[i] - f + g->s[i] - 1) / g->s[i] : p->out[i];
            int n = taps_1d(g, p->grad, i, f, tap, at);
            for (int t = 0; t < n; t++) {
                lo = MIN(lo, at[t]);
                hi = MAX(hi, (count - 1) * p->go[i] + at[t]);
            }
        }
        p->img.lo[i] = -lo;
        p->img.size[i] = hi - lo + 1;
    }
    free(tap);
    corr_image_init(&p->img, g, p->grad, p->es);
}

static void make_phase(plan *p, phase *f)
{
    const conv_geom *g = &p->g;
    int64_t *tap[3], *at[3];
    int n[3], m = 0;
    for (int i = 0; i < 3; i++) {
        tap[i] = mem_alloc(sizeof(int64_t) * (size_t)g->k[i]);
        at[i] = mem_alloc(sizeof(int64_t) * (size_t)g->k[i]);
        n[i] = taps_1d(g, p->grad, i, f->first[i], tap[i], at[i]);
    }
    f->ntap = n[0] * n[1] * n[2];
    f->tap = mem_alloc(sizeof(int64_t) * (size_t)MAX(f->ntap, 1));
    f->at = mem_alloc(sizeof(int64_t) * (size_t)MAX(f->ntap, 1));
    for (int a = 0; a < n[0]; a++)
        for (int b = 0; b < n[1]; b++)
            for (int c = 0; c < n[2]; c++, m++) {
                f->tap[m] = (tap[0][a] * g->k[1] + tap[1][b]) * g->k[2] + tap[2][c];
                f->at[m] = (at[0][a] + p->img.lo[0]) * p->img.layer +
                           (at[1][b] + p->img.lo[1]) * p->img.pitch + (at[2][c] + p->img.lo[2]) * p->img.side;
            }
    f->off = mem_alloc(sizeof(int64_t) * (size_t)MAX(p->ca * f->ntap, 1));
    for (int64_t c = 0; c < p->ca; c++)
        for (int t = 0; t < f->ntap; t++)
            f->off[c * f->ntap + t] = (corr_channel(&p->img, c) + f->at[t]) * p->es;
    for (int i = 0; i < 3; i++) {
        free(tap[i]);
        free(at[i]);
    }
}

static void make_phases(plan *p)
{
    int64_t ns[3];
    for (int i = 0; i < 3; i++)
        ns[i] = p->grad ? MIN(p->step[i], p->out[i]) : 1;
    p->ph = mem_zalloc(sizeof *p->ph * (size_t)corr_volume(ns));
    for (int64_t a = 0; a < ns[0]; a++)
        for (int64_t b = 0; b < ns[1]; b++)
            for (int64_t c = 0; c < ns[2]; c++) {
                phase *f = &p->ph[p->nphase++];
                const int64_t first[3] = { a, b, c };
                for (int i = 0; i < 3; i++) {
                    f->first[i] = first[i];
                    f->count[i] = (p->out[i] - first[i] + p->step[i] - 1) / p->step[i];
                }
                make_phase(p, f);
                f->b_at = p->depth;
                p->rows += f->count[0] * f->count[1];
                p->depth += p->ca * f->ntap;
            }
}

static plan *plan_new(gen_isa isa, dtype dt, const conv_geom *g, bool grad)
{
    plan *p = mem_zalloc(sizeof *p);
    p->g = *g;
    p->isa = isa;
    p->type = dt == DT_f64 ? VM_f64 : VM_f32;
    p->grad = grad;
    p->es = (int64_t)dtype_size(dt);
    p->W = (isa == ISA_avx512 ? 64 : 32) / p->es;
    p->ca = (grad ? g->o : g->c) / g->groups;
    p->cb = (grad ? g->c : g->o) / g->groups;
    memcpy(p->out, grad ? g->in : g->out, sizeof p->out);
    for (int i = 0; i < 3; i++) {
        p->go[i] = grad ? 1 : g->s[i];
        p->step[i] = grad ? g->s[i] : 1;
    }
    plan_image(p);
    int64_t widest = (p->out[2] + p->step[2] - 1) / p->step[2];
    p->seg = seg_len(widest);
    double turned = choose_lanes(p, p->seg) * (double)((widest + p->seg - 1) / p->seg);
    double places = px_cost(p, false);
    p->px = !p->img.last && g->form != CONV_channels &&
            places < (g->form == CONV_places ? 1e300 : turned * 1.05);
    /* channels side by side are lanes; where planes do much better, whoever asks copies them there */
    if (p->img.last && (places < turned * 0.6 || p->go[2] * p->img.side >= 1 << 22)) {
        plan_free(p);
        return NULL;
    }
    if (p->px)
        px_cost(p, true);
    make_phases(p);
    if (p->px && make_px(p))
        return p;
    if (p->px) {
        plan_free(p);
        return NULL;
    }
    int64_t taps = 1;
    for (int i = 0; i < p->nphase; i++)
        taps = MAX(taps, p->ph[i].ntap);
    int64_t chunks = (p->ca * taps * p->lanes * p->es + NEAR_BYTES - 1) / NEAR_BYTES;
    p->near = (p->ca + chunks - 1) / chunks;
    p->band = MAX(1, TILE_BYTES / (p->seg * p->lanes * p->es));
    for (int i = 0; i < p->nphase; i++) {
        int64_t n = p->ph[i].count[2];
        if (!make_micro(p, MIN(n, p->seg)) || !make_micro(p, n % p->seg)) {
            plan_free(p);
            return NULL;
        }
    }
    return p;
}

typedef struct plan_key {
    int64_t kind, isa, dt;
    conv_geom g;
} plan_key;

/* From the cache, or made; *own: the caller frees it. */
static plan *plan_get(gen_isa isa, dtype dt, const conv_geom *g, bool grad, bool *own)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static map cache;
    plan_key key = { grad, isa, dt, *g };
    key.g.n = 0; /* does not matter */
    *own = false;
    pthread_mutex_lock(&lock);
    plan *p = map_getn(&cache, &key, sizeof key);
    bool full = cache.n >= MAX_PLANS;
    pthread_mutex_unlock(&lock);
    if (p)
        return p;
    p = plan_new(isa, dt, g, grad);
    if (!p || full) {
        *own = p != NULL;
        return p;
    }
    pthread_mutex_lock(&lock);
    plan *other = map_getn(&cache, &key, sizeof key);
    if (!other)
        map_putn(&cache, &key, sizeof key, p);
    pthread_mutex_unlock(&lock);
    if (other) {
        plan_free(p);
        p = other;
    }
    return p;
}

/* --- packed weights ---------------------------------------------------------------------------------------------------- */
typedef struct run {
    const plan *p;
    const char *a, *w, *bias;
    char *b, *y;
    int64_t band, nband; /* rows of a task, tasks of all phases */
    const gemm_epilogue *e;
    int64_t image;         /* the first one of this chunk */
    _Atomic int64_t *left; /* tasks to come of a set of planes that end together */
} run;

/* A task of those planes has ended. Whoever ends the last one runs the kernel on them while most are in cache. */
static void planes_ended(const run *r, int64_t set, int64_t tasks, int64_t first, int64_t n)
{
    if (!r->e || atomic_fetch_sub(&r->left[set], tasks) != tasks)
        return;
    first += r->e->first + r->image * r->p->g.groups * r->p->cb;
    r->e->fn(r->e->bufs, r->e->ints, r->e->flts, first, first + n);
}

/* Weights with channels side by side: a few channels of one tap at a time, each to its row. */
static void pack_last(const plan *p, const char *w, int cols, char *dst)
{
    enum { FEW = 64 };
    _Alignas(64) char some[FEW * MAX_NV * 64];
    int64_t K = corr_volume(p->g.k), row = p->lanes * p->es;
    for (int64_t t = 0; t < K; t++)
        for (int64_t c = 0; c < p->ca; c += FEW) {
            int64_t n = MIN(FEW, p->ca - c);
            gemm_pack_b(p->type, p->isa, w + (t * p->ca + c) * p->es, 1, p->depth, cols, (int)p->lanes, n,
                        some);
            for (int64_t i = 0; i < n; i++)
                memcpy(dst + ((c + i) * K + t) * row, some + i * row, (size_t)row);
        }
}

/* b[group, block][(channel, tap)][lane]; one task a group and block. */
static void pack_weights(void *arg, int64_t lo, int64_t hi)
{
    const run *r = arg;
    const plan *p = r->p;
    int64_t K = corr_volume(p->g.k), es = p->es;
    for (int64_t q = lo; q < hi; q++) {
        int64_t gi = q / p->nblk, c0 = q % p->nblk * p->lanes, cols = MIN(p->lanes, p->cb - c0);
        char *dst = r->b + q * (p->depth + p->px) * p->lanes * es;
        if (p->px) { /* what sums start from */
            memset(dst, 0, (size_t)(p->lanes * es));
            if (r->bias)
                memcpy(dst, r->bias + (gi * p->cb + c0) * es, (size_t)(cols * es));
            dst += p->lanes * es;
        }
        if (!p->grad && p->g.w_last) {
            pack_last(p, r->w + (gi * p->cb + c0) * p->depth * es, (int)cols, dst);
            continue;
        }
        if (!p->grad) {
            gemm_pack_b(p->type, p->isa, r->w + (gi * p->cb + c0) * p->depth * es, 1, p->depth, (int)cols,
                        (int)p->lanes, p->depth, dst);
            continue;
        }
        for (int f = 0; f < p->nphase; f++)
            for (int64_t o = 0; o < p->ca; o++)
                for (int t = 0; t < p->ph[f].ntap; t++, dst += p->lanes * es) {
                    const char *w = r->w + (((gi * p->ca + o) * p->cb + c0) * K + p->ph[f].tap[t]) * es;
                    memset(dst, 0, (size_t)(p->lanes * es));
                    if (p->g.w_last)
                        memcpy(dst, r->w + (((gi * p->ca + o) * K + p->ph[f].tap[t]) * p->cb + c0) * es,
                               (size_t)(cols * es));
                    else if (es == 4)
                        for (int64_t c = 0; c < cols; c++)
                            ((float *)dst)[c] = ((const float *)w)[c * K];
                    else
                        for (int64_t c = 0; c < cols; c++)
                            ((double *)dst)[c] = ((const double *)w)[c * K];
                }
    }
}

/* --- running ---------------------------------------------------------------------------------------------------------- */
/* dst[c * cstride + i * istride] = src[i * lanes + c] + bias[c] */
#define SPREAD(name, T)                                                                            \
    static void name(const T *src, int64_t lanes, int64_t n, int64_t chans, const T *bias, T *dst, \
                     int64_t cstride, int64_t istride)                                             \
    {                                                                                              \
        for (int64_t c = 0; c < chans; c++) {                                                      \
            T add = bias ? bias[c] : 0;                                                            \
            for (int64_t i = 0; i < n; i++)                                                        \
                dst[c * cstride + i * istride] = src[i * lanes + c] + add;                         \
        }                                                                                          \
    }
SPREAD(spread_f32, float)
SPREAD(spread_f64, double)

#if defined(__x86_64__)
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
/* The same for istride 1 and n >= 8: blocks of eight by eight; the last one may overlap its neighbour. */
AVX2 static void turn_f32(const float *src, int64_t lanes, int64_t n, int64_t chans, const float *bias,
                          float *dst, int64_t cstride)
{
    for (int64_t c = 0; c < chans; c += 8)
        for (int64_t i = 0; i < n; i += 8) {
            int64_t i0 = MIN(i, n - 8);
            __m256 r[8], t[8];
            for (int k = 0; k < 8; k++)
                r[k] = _mm256_loadu_ps(src + (i0 + k) * lanes + c);
            for (int k = 0; k < 8; k += 2) {
                t[k] = _mm256_unpacklo_ps(r[k], r[k + 1]);
                t[k + 1] = _mm256_unpackhi_ps(r[k], r[k + 1]);
            }
            for (int k = 0; k < 8; k += 4) {
                r[k] = _mm256_shuffle_ps(t[k], t[k + 2], 0x44);
                r[k + 1] = _mm256_shuffle_ps(t[k], t[k + 2], 0xee);
                r[k + 2] = _mm256_shuffle_ps(t[k + 1], t[k + 3], 0x44);
                r[k + 3] = _mm256_shuffle_ps(t[k + 1], t[k + 3], 0xee);
            }
            for (int k = 0; k < 4; k++) {
                t[k] = _mm256_permute2f128_ps(r[k], r[k + 4], 0x20);
                t[k + 4] = _mm256_permute2f128_ps(r[k], r[k + 4], 0x31);
            }
            int top = (int)MIN(8, chans - c);
            for (int k = 0; k < top; k++) {
                __m256 v = bias ? _mm256_add_ps(t[k], _mm256_set1_ps(bias[c + k])) : t[k];
                _mm256_storeu_ps(dst + (c + k) * cstride + i0, v);
            }
        }
}
#else
#define AVX2
static void turn_f32(const float *src, int64_t lanes, int64_t n, int64_t chans, const float *bias, float *dst,
                     int64_t cstride)
{
    spread_f32(src, lanes, n, chans, bias, dst, cstride, 1);
}
#endif

/* With channels side by side: dst[i * istride + c]. */
#define ROWS(name, T, lots)                                                                             \
    AVX2 static void name(const T *src, int64_t lanes, int64_t n, int64_t chans, const T *bias, T *dst, \
                          int64_t istride)                                                              \
    {                                                                                                   \
        for (int64_t i = 0; i < n; i++, src += lanes, dst += istride) {                                 \
            int64_t c = 0, step = (int64_t)(sizeof(lots) / sizeof(T));                                  \
            for (; c + step <= chans; c += step) {                                                      \
                lots v = *(const lots *)(src + c);                                                      \
                if (bias)                                                                               \
                    v += *(const lots *)(bias + c);                                                     \
                *(lots *)(dst + c) = v;                                                                 \
            }                                                                                           \
            for (; c < chans; c++)                                                                      \
                dst[c] = src[c] + (bias ? bias[c] : 0);                                                 \
        }                                                                                               \
    }
typedef float lots_f32 __attribute__((vector_size(32), aligned(4), may_alias));
typedef double lots_f64 __attribute__((vector_size(32), aligned(8), may_alias));
ROWS(rows_f32, float, lots_f32)
ROWS(rows_f64, double, lots_f64)

static void put(const plan *p, const char *src, int64_t n, int64_t chans, const char *bias, char *dst)
{
    const void *b = bias;
    int64_t cstride = corr_volume(p->out), side = p->cb * p->g.groups * p->step[2];
    if (p->img.last && p->es == 8)
        rows_f64((const double *)(const void *)src, p->lanes, n, chans, b, (double *)(void *)dst, side);
    else if (p->img.last)
        rows_f32((const float *)(const void *)src, p->lanes, n, chans, b, (float *)(void *)dst, side);
    else if (p->es == 8)
        spread_f64((const double *)(const void *)src, p->lanes, n, chans, b, (double *)(void *)dst, cstride,
                   p->step[2]);
    else if (n >= 8 && p->step[2] == 1)
        turn_f32((const float *)(const void *)src, p->lanes, n, chans, b, (float *)(void *)dst, cstride);
    else
        spread_f32((const float *)(const void *)src, p->lanes, n, chans, b, (float *)(void *)dst, cstride,
                   p->step[2]);
}

/* Rows row.. of a phase, places s..s + n of each: all channels that are read, chunk by chunk. */
static void band_sums(const run *r, const phase *f, const char *a, const char *b, int64_t row, int64_t nrow,
                      int64_t s, int64_t n, char *tile)
{
    const plan *p = r->p;
    int64_t es = p->es, top = corr_max_rows(p->isa, p->nv), pan = (n + top - 1) / top;
    for (int64_t c = 0; c < p->ca; c += p->near) {
        int64_t k = MIN(p->near, p->ca - c) * f->ntap;
        char *to = tile;
        for (int64_t i = row; i < row + nrow; i++) {
            const char *from = a + (i / f->count[1] * p->go[0] * p->img.layer +
                                    i % f->count[1] * p->go[1] * p->img.pitch + s * p->go[2] * p->img.side) *
                                       es;
            for (int64_t j = 0; j < pan; j++) {
                int64_t mr = n / pan + (j < n % pan);
                p->micro[c > 0][mr](from, b + c * f->ntap * p->lanes * es, to, k, f->off + c * f->ntap,
                                    p->lanes * es);
                from += mr * p->go[2] * p->img.side * es;
                to += mr * p->lanes * es;
            }
        }
    }
}

/* Bands of rows of results, one block of channels each: task = ((image, group), block, band). */
static void bands(void *arg, int64_t lo, int64_t hi)
{
    const run *r = arg;
    const plan *p = r->p;
    int64_t es = p->es, groups = p->g.groups;
    _Alignas(64) char tile[MAX((int)TILE_BYTES, SEG * MAX_NV * 64)];
    for (int64_t q = lo; q < hi; q++) {
        int64_t at = q % r->nband, blk = q / r->nband % p->nblk, ng = q / r->nband / p->nblk;
        int64_t c0 = blk * p->lanes, chans = MIN(p->lanes, p->cb - c0);
        const phase *f = p->ph;
        int64_t here;
        while (at >= (here = (f->count[0] * f->count[1] + r->band - 1) / r->band)) {
            at -= here;
            f++;
        }
        int64_t row = at * r->band, nrow = MIN(r->band, f->count[0] * f->count[1] - row);
        const char *a = r->a + (ng / groups * p->img.blocks * p->img.plane +
                                corr_channel(&p->img, ng % groups * p->ca)) *
                                   es;
        const char *b = r->b + ((ng % groups * p->nblk + blk) * p->depth + f->b_at) * p->lanes * es;
        const char *bias = r->bias ? r->bias + (ng % groups * p->cb + c0) * es : NULL;
        int64_t vol = corr_volume(p->out), side = p->img.last ? p->cb * groups : 1;
        char *y = r->y + (p->img.last ? (ng / groups * vol + f->first[2]) * side + ng % groups * p->cb + c0
                                      : (ng * p->cb + c0) * vol + f->first[2]) *
                             es;
        for (int64_t s = 0; s < f->count[2]; s += p->seg) {
            int64_t n = MIN(p->seg, f->count[2] - s);
            band_sums(r, f, a, b, row, nrow, s, n, tile);
            for (int64_t i = row; i < row + nrow; i++) {
                int64_t i0 = f->first[0] + i / f->count[1] * p->step[0],
                        i1 = f->first[1] + i % f->count[1] * p->step[1];
                put(p, tile + (i - row) * n * p->lanes * es, n, chans, bias,
                    y + ((i0 * p->out[1] + i1) * p->out[2] + s * p->step[2]) * side * es);
            }
        }
        planes_ended(r, ng * p->nblk + blk, 1, ng * p->cb + c0, chans);
    }
}

/* Lanes are places: task = ((image, group), lines of results). The lines of the image that they need stay in the first
 * cache while the weights of all channels pass by. */
static void lines(void *arg, int64_t lo, int64_t hi)
{
    const run *r = arg;
    const plan *p = r->p;
    const phase *f = p->ph;
    int64_t es = p->es, groups = p->g.groups, vol = corr_volume(p->out), k = p->ca * f->ntap;
    int64_t per = (p->out[1] + p->lines - 1) / p->lines, rest = p->cb - (p->nblk - 1) * p->lanes;
    for (int64_t q = lo; q < hi; q++) {
        int64_t i1 = q % per * p->lines, i0 = q / per % p->out[0], ng = q / per / p->out[0];
        int64_t have = MIN(p->lines, p->out[1] - i1);
        const char *a = r->a + (ng * p->ca * p->img.plane + i0 * p->go[0] * p->img.layer +
                                i1 * p->go[1] * p->img.pitch) *
                                   es;
        char *y = r->y + (ng * p->cb * vol + (i0 * p->out[1] + i1) * p->out[2]) * es;
        for (int64_t blk = 0; blk < p->nblk; blk++) {
            bool few = blk == p->nblk - 1 && rest < p->lanes;
            const char *w = r->b + ((ng % groups * p->nblk + blk) * (p->depth + 1) + 1) * p->lanes * es;
            for (int64_t s = 0; s < p->out[2]; s += p->seg) {
                bool end = s + p->seg > p->out[2];
                for (int64_t l = 0; l < have; l += have == p->lines ? have : 1)
                    p->by_line[few][end][have < p->lines](w, a + (l * p->go[1] * p->img.pitch + s) * es,
                                                          y + (blk * p->lanes * vol + l * p->out[2] + s) * es,
                                                          k, f->off, vol * es);
            }
        }
        planes_ended(r, ng, 1, ng * p->cb, p->cb);
    }
}

/* A window of one element that steps by one sees the image as one long row. */
static conv_geom flattened(const conv_geom *g)
{
    conv_geom f = *g;
    bool flat = true;
    for (int i = 0; i < 3; i++)
        flat &= g->k[i] == 1 && g->s[i] == 1 && g->p[i] == 0;
    if (flat) {
        f.in[2] = f.out[2] = corr_volume(g->in);
        f.in[0] = f.in[1] = f.out[0] = f.out[1] = 1;
        f.d[0] = f.d[1] = f.d[2] = 1;
    }
    return f;
}

/* Sizes that the tiles' 32-bit displacements and the tables can hold, and enough channels to fill vectors. */
bool corr_worth(gen_isa isa, dtype dt, const conv_geom *g, int64_t lanes_of, int64_t reads)
{
    int64_t W = (isa == ISA_avx512 ? 64 : 32) / (int64_t)dtype_size(dt);
    if (isa == ISA_none || (dt != DT_f32 && dt != DT_f64))
        return false;
    if (lanes_of < W / 2 || g->n == 0 || corr_volume(g->out) == 0 || corr_volume(g->in) == 0 || reads == 0)
        return false;
    return reads * corr_volume(g->k) < 1 << 20 && g->s[2] < 1 << 16 && corr_volume(g->k) < 4096;
}

/* Lines of results that fill vectors serve any number of channels. */
static bool px_worth(gen_isa isa, dtype dt, const conv_geom *g, const int64_t *out, int64_t reads)
{
    int64_t W = (isa == ISA_avx512 ? 64 : 32) / (int64_t)dtype_size(dt);
    return corr_volume(g->s) == 1 && out[2] >= W / 2 && corr_worth(isa, dt, g, W, reads);
}

/* Every set of planes waits for the same number of tasks. */
static void count_tasks(run *r, int64_t sets, int64_t tasks)
{
    for (int64_t i = 0; r->e && i < sets; i++)
        atomic_init(&r->left[i], tasks);
}

static bool run_all(const plan *p, const void *a, const void *w, const void *bias, void *y,
                    const gemm_epilogue *e)
{
    int64_t es = p->es, groups = p->g.groups, bytes = groups * p->nblk * (p->depth + p->px) * p->lanes * es;
    int64_t image = p->img.blocks * p->img.plane * es, n = p->g.n;
    int64_t chunk = p->img.copy ? MAX(1, MIN(n, CHUNK_BYTES / MAX(image, 1))) : n;
    run r = { .p = p, .w = w, .bias = bias, .b = corr_scratch(1, bytes + 64), .y = y, .band = 1, .e = e };
    if (!r.b || (e && !(r.left = malloc(sizeof *r.left * (size_t)(chunk * groups * p->nblk)))))
        return false;
    pool_for(groups * p->nblk, MAX(1, 16384 / MAX(1, p->depth * p->lanes)), pack_weights, &r);
    for (int64_t i = 0; i < n; i += chunk) {
        int64_t m = MIN(chunk, n - i);
        r.a = corr_pad(&p->img, (const char *)a + i * p->ca * groups * corr_volume(p->img.in) * es, m, es);
        if (!r.a) {
            free((void *)r.left);
            return false;
        }
        r.image = i;
        r.y = (char *)y + i * p->cb * groups * corr_volume(p->out) * es;
        if (p->px) {
            int64_t tasks = m * groups * p->out[0] * ((p->out[1] + p->lines - 1) / p->lines);
            count_tasks(&r, m * groups, tasks / (m * groups));
            pool_for(tasks, MAX(1, (1 << 17) / MAX(1, p->lines * p->out[2] * p->cb * p->depth)), lines, &r);
            continue;
        }
        int64_t work = m * groups * p->nblk,
                each = MAX(1, p->out[2] * p->lanes * p->depth / MAX(p->nphase, 1));
        r.band = MAX(1, MIN(p->band, work * p->rows / (4 * pool_threads()))); /* threads come before reuse */
        r.nband = 0;
        for (int k = 0; k < p->nphase; k++)
            r.nband += (p->ph[k].count[0] * p->ph[k].count[1] + r.band - 1) / r.band;
        count_tasks(&r, work, r.nband);
        pool_for(work * r.nband, MAX(1, (1 << 17) / (each * r.band)), bands, &r);
    }
    free((void *)r.left);
    return true;
}

static bool run_plan(gen_isa isa, dtype dt, const conv_geom *given, bool grad, const void *a, const void *w,
                     const void *bias, void *y, const gemm_epilogue *e)
{
    conv_geom g = flattened(given);
    bool own, ok;
    plan *p = plan_get(isa, dt, &g, grad, &own);
    if (!p)
        return false;
    plan q = *p; /* the cached one serves any batch */
    q.g.n = g.n;
    ok = run_all(&q, a, w, bias, y, e);
    if (own)
        plan_free(p);
    return ok;
}

bool corr_forward(gen_isa isa, dtype dt, const conv_geom *g, const void *x, const void *w, const void *bias,
                  void *y, const gemm_epilogue *e)
{
    int64_t c = g->c / g->groups, o = g->o / g->groups;
    return (corr_worth(isa, dt, g, o, c) || px_worth(isa, dt, g, g->out, c)) &&
           run_plan(isa, dt, g, false, x, w, bias, y, e);
}

bool corr_grad_input(gen_isa isa, dtype dt, const conv_geom *g, const void *dy, const void *w, void *dx)
{
    int64_t c = g->c / g->groups, o = g->o / g->groups;
    return (corr_worth(isa, dt, g, c, o) || px_worth(isa, dt, g, g->in, o)) &&
           run_plan(isa, dt, g, true, dy, w, NULL, dx, NULL);
}
