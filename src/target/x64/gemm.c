/* gemm.c - matrix products: choosing the tile, blocking for the caches, threads, epilogue. */
#include "target/x64/gemm_int.h"
#include "target/x64/publish.h"
#include "base/pool.h"
#include "vir/math/vnum.h"
#include "base/bytes.h"
#include <stdio.h>

/* Measured: 256 rows of B a block, and B blocks that fill the second cache. */
enum { KC_WHOLE = 384, KC = 256, B_BLOCK = 1 << 20 };
/* Packing an element of B takes as long as multiplying it with so many rows. */
enum { PACK_COST = 20 };

struct gemm_plan {
    gemm_desc d; /* as computed: C's columns contiguous */
    gen_isa isa;
    bool wide, swapped; /* f64; C transposed = B transposed times A transposed */
    bool temp;          /* C goes through rows of f32 (f64): narrow type or no contiguous direction */
    bool pack_a, pack_b;
    int W;                   /* lanes */
    int mr, nv;              /* register tile */
    int64_t mpan, mfull;     /* panels of rows: the first mfull have mr rows, the others mr - 1 */
    int64_t npan;            /* panels of columns, nv vectors each; the last may be narrower */
    int last_nv, last_lanes; /* of the last panel; lanes 0: all */
    int64_t kblocks, kc, nblocks, npan_block;
    gemm_micro fn[2][2][2]; /* [mr - 1 rows][last panel][not the first k block] */
    double ab_d[2];
    float ab_f[2];
    vir_fn few; /* few rows, both operands contiguous along k: dot products */
};

/* --- choosing -------------------------------------------------------------------------------------------------------- */
static int max_mr(gen_isa isa, int nv, bool mask)
{
    int regs = isa == ISA_avx512 ? 32 : 16 - mask;
    return MIN((regs - nv - (nv == 1 ? 2 : 1)) / nv, 24);
}

/* Cycles of one k step of a tile: multiplications, loads, or the latency of the sums; and where two wide
 * multiplications fit in a cycle, what bringing a row of B from the second cache costs beside them. */
static double step_cost(gen_isa isa, int mr, int nv)
{
    bool two = isa != ISA_avx512 || gen_two_wide_fma();
    double unit = two ? 0.5 : 1.0, l2 = two && isa == ISA_avx512 ? 0.25 * nv : 0;
    double loads = nv * unit + mr * (isa == ISA_avx512 && nv <= 2 ? nv : 1) * 0.5;
    return MAX(MAX(mr * nv * unit, loads), 4) + 0.4 + l2;
}

/* Do the rows of A that a tile reads lie in the same few lines of the first cache? They have to be packed then. */
static bool rows_collide(const gemm_plan *p, int mr)
{
    return p->d.a.row * (p->wide ? 8 : 4) % 4096 == 0 && mr > 6 && p->d.k > 64;
}

static void choose_tile(gemm_plan *p)
{
    int64_t m = p->d.m, nvec = (p->d.n + p->W - 1) / p->W;
    double best = 1e300;
    for (int nv = 1; nv <= GEMM_WIDEST; nv++) {
        int top = max_mr(p->isa, nv, p->d.n % p->W != 0);
        if (top < 1)
            break;
        if (p->d.nv && p->d.nv != nv && p->mr)
            continue;
        int64_t mpan = (m + top - 1) / top, mr = (m + mpan - 1) / mpan, full = nvec / nv, rest = nvec % nv;
        double cost = (double)mpan * ((double)full * step_cost(p->isa, (int)mr, nv) +
                                      (rest ? step_cost(p->isa, (int)mr, (int)rest) : 0));
        if (mr % 4) /* such panels pack slower */
            cost *= 1.004;
        if (rows_collide(p, (int)mr) && (nvec + nv - 1) / nv < 12) /* A is packed for no other reason */
            cost += (double)m;
        if (cost < best * 0.999 || p->d.nv == nv)
            best = cost, p->mr = (int)mr, p->nv = nv;
    }
    p->mpan = (m + p->mr - 1) / p->mr;
    p->mfull = m - p->mpan * (p->mr - 1);
    p->npan = (nvec + p->nv - 1) / p->nv;
    p->last_nv = (int)(nvec - (p->npan - 1) * p->nv);
    p->last_lanes = (int)(p->d.n % p->W);
}

static void choose_blocks(gemm_plan *p)
{
    int64_t k = p->d.k, elem = p->wide ? 8 : 4;
    p->kblocks = k <= KC_WHOLE ? 1 : (k + KC - 1) / KC;
    p->kc = p->kblocks ? (k + p->kblocks - 1) / p->kblocks : 0;
    const gemm_mat *a = &p->d.a, *b = &p->d.b;
    bool a_same = a->type == VM_f32 || a->type == VM_f64, b_same = b->type == VM_f32 || b->type == VM_f64;
    int64_t a_reach = (int64_t)p->mr * llabs(a->row) * elem + 8 * llabs(a->col) * elem;
    p->pack_a = !a_same || p->npan >= 12 || rows_collide(p, p->mr) || a_reach > INT32_MAX / 2;
    bool near = b->row * elem * p->kc <= 24 << 10 && b->row > 0;
    p->pack_b = !b_same || b->col != 1 || (!near && p->mpan >= 3) ||
                llabs(b->row) * elem * 16 > INT32_MAX / 2;
    int64_t panel = p->kc * p->nv * p->W * elem;
    p->npan_block = p->pack_b ? MAX(1, MIN(p->npan, B_BLOCK / MAX(panel, 1))) : p->npan;
    p->nblocks = (p->npan + p->npan_block - 1) / MAX(p->npan_block, 1);
}

static bool make_tiles(gemm_plan *p, tp_err *err)
{
    int elem = p->wide ? 8 : 4;
    for (int small = 0; small < 2; small++)
        for (int last = 0; last < 2; last++)
            for (int later = 0; later < 2; later++) {
                gemm_tile t = { .isa = (uint8_t)p->isa, .wide = p->wide, .mr = (uint8_t)(p->mr - small) };
                bool unused = (small && p->mfull == p->mpan) || (!small && p->mfull == 0) ||
                              (!last && p->npan == 1) || (later && p->kblocks == 1);
                if (unused || t.mr == 0)
                    continue;
                t.nv = (uint8_t)(last ? p->last_nv : p->nv);
                t.last = (uint8_t)(last ? p->last_lanes : 0);
                t.mode = later ? 1 : p->d.bias ? 3 : p->d.beta == 0 ? 0 : p->d.beta == 1 ? 1 : 2;
                t.scaled = p->d.alpha != 1;
                t.a_row = p->pack_a ? elem : (int32_t)(p->d.a.row * elem);
                t.a_col = p->pack_a ? elem * p->mr : (int32_t)(p->d.a.col * elem);
                t.b_row = p->pack_b ? elem * p->W * (last ? p->last_nv : p->nv)
                                    : (int32_t)(p->d.b.row * elem);
                p->fn[small][last][later] = gemm_tile_get(&t, err);
                if (!p->fn[small][last][later])
                    return false;
            }
    return true;
}

/* --- few rows: memory-bound dot products, from the vector IR --------------------------------------------------- */
static bool few_rows(const gemm_plan *p)
{
    const gemm_desc *d = &p->d;
    return d->m <= 4 && d->b.row == 1 && (d->a.col == 1 || d->m * d->k == 1) && d->k >= 16 && !p->temp &&
           !d->bias;
}

/* for j in columns: c[i][j] = alpha sum over k of a[i][k] b[j][k] + beta c[i][j], all rows in one pass over b. */
static vir_fn dot_kernel(const gemm_plan *p, tp_err *err)
{
    const gemm_desc *d = &p->d;
    arena ar = { 0 };
    gen_code code = { 0 };
    vir_fn fn = NULL;
    vir *k = vir_make(&ar, "gemm_few_rows");
    vir_type t = p->wide ? VT_f64 : VT_f32;
    int a = vir_buffer(k, d->a.type, VIR_IN, "a"), b = vir_buffer(k, d->b.type, VIR_IN, "b"),
        c = vir_buffer(k, d->c.type, VIR_INOUT, "c");
    int red[4];
    vir_ref zero = vir_int(k, 0), j = vir_loop(k, LOOP_parallel, zero, vir_int(k, d->n));
    for (int i = 0; i < d->m; i++)
        red[i] = vir_red(k, RED_sum, t);
    vir_ref x = vir_loop(k, LOOP_vector, zero, vir_int(k, d->k));
    vir_ref w = vir_load(k, b, vir_add(k, vir_mul(k, j, vir_int(k, d->b.col)), x), 0);
    for (int i = 0; i < d->m; i++)
        vir_step(k, red[i], vir_mul(k, vir_load(k, a, vir_add(k, vir_int(k, i * d->a.row), x), 0), w), 0);
    vir_end(k);
    for (int i = 0; i < d->m; i++) {
        vir_ref at = vir_add(k, vir_int(k, i * d->c.row), j), s = vir_fold(k, red[i]);
        if (d->alpha != 1)
            s = vir_mul(k, s, vir_flt(k, t, d->alpha));
        if (d->beta != 0)
            s = vir_fma(k, vir_load(k, c, at, 0), vir_flt(k, t, d->beta), s);
        vir_store(k, c, at, s, 0);
    }
    vir_end(k);
    if (vir_finish(k, err) && gen_x64(k, p->isa, &code, NULL, err))
        *(void **)&fn = gen_publish(&code, k->name, err);
    gen_code_free(&code);
    arena_free(&ar);
    return fn;
}

static gemm_mat flip(gemm_mat x) { return (gemm_mat){ x.type, x.col, x.row, x.batch }; }

static bool check(const gemm_desc *d, tp_err *err)
{
    const vir_mem t[3] = { d->a.type, d->b.type, d->c.type };
    int wide = 0;
    for (int i = 0; i < 3; i++) {
        if (t[i] != VM_f64 && t[i] != VM_f32 && t[i] != VM_f16 && t[i] != VM_bf16)
            return err_set(err, ERR_notimpl, "matrix product of %s", vir_mem_name(t[i]));
        wide += t[i] == VM_f64;
    }
    if (wide != 0 && wide != 3)
        return err_set(err, ERR_notimpl, "matrix product of f64 with another type");
    if (d->bias &&
        (d->alpha != 1 || d->beta != 0 || wide == 3 || d->c.type != VM_f32 || d->c.col != 1 || !d->k))
        return err_set(err, ERR_notimpl, "matrix product with such a row to add");
    if (d->m < 0 || d->n < 0 || d->k < 0 || d->batch < 0)
        return err_set(err, ERR_value, "matrix product with a negative size");
    return true;
}

gemm_plan *gemm_plan_new(const gemm_desc *d, gen_isa isa, tp_err *err)
{
    if (!check(d, err))
        return NULL;
    gemm_plan *p = mem_zalloc(sizeof *p);
    p->d = *d;
    p->isa = isa;
    p->wide = d->c.type == VM_f64;
    bool narrow = d->c.type == VM_f16 || d->c.type == VM_bf16;
    /* Few rows against a transposed matrix: its rows are read as they lie, and the small side is packed. */
    bool thin = d->m > 4 && d->m <= 32 && d->n >= 4 * d->m && d->b.row == 1 && d->b.col != 1 &&
                d->c.col == 1 && d->beta == 0 && !d->bias && d->c.type == VM_f32 && d->b.type == VM_f32 &&
                isa != ISA_none;
    if ((d->c.col != 1 && d->c.row == 1 && d->n > 1 && !narrow && !d->bias) || thin) {
        p->swapped = true;
        p->d.m = d->n, p->d.n = d->m;
        p->d.a = flip(d->b), p->d.b = flip(d->a), p->d.c = flip(d->c);
    }
    p->temp = narrow || (p->d.c.col != 1 && p->d.n > 1);
    p->ab_d[0] = d->alpha, p->ab_d[1] = d->beta;
    p->ab_f[0] = (float)d->alpha, p->ab_f[1] = (float)d->beta;
    if (isa == ISA_none || !d->m || !d->n || !d->k)
        return p;
    if (few_rows(p)) {
        p->few = dot_kernel(p, err);
        if (!p->few) {
            free(p);
            return NULL;
        }
        return p;
    }
    p->W = (isa == ISA_avx512 ? 64 : 32) / (p->wide ? 8 : 4);
    choose_tile(p);
    choose_blocks(p);
    if (!make_tiles(p, err)) {
        free(p);
        return NULL;
    }
    return p;
}

void gemm_plan_free(gemm_plan *p) { free(p); }

void gemm_describe(const gemm_plan *p, strbuf *out)
{
    if (p->few) {
        strbuf_addf(out, "%s %lldx%lldx%lld: tile none, dot products along k", gen_isa_name(p->isa),
                    (long long)p->d.m, (long long)p->d.n, (long long)p->d.k);
        return;
    }
    strbuf_addf(out, "%s %s %lldx%lldx%lld batch %lld: tile %dx%d, k blocks of %lld, pack A %s, B %s%s",
                gen_isa_name(p->isa), p->wide ? "f64" : "f32", (long long)p->d.m, (long long)p->d.n,
                (long long)p->d.k, (long long)p->d.batch, p->mr, p->nv * p->W, (long long)p->kc,
                p->pack_a ? "yes" : "no", p->pack_b ? "yes" : "no", p->swapped ? ", transposed" : "");
}

/* --- running --------------------------------------------------------------------------------------------------------- */
/* Scratch of a thread, kept for its next product. */
static _Thread_local bytes_kept scratch[3];
static void *scratch_get(int which, size_t n) { return bytes_keep(&scratch[which], (int64_t)n); }

typedef struct job {
    const gemm_plan *p;
    const char *a, *b, *bias;
    char *c;
    int64_t c_row;     /* elements */
    int64_t batch, kb; /* block being worked on: of k, */
    int64_t first, np; /* and of the panels of columns */
    int64_t depth;     /* terms of the sums; 0: all */
    int64_t parts;     /* shares of the whole, each with its own copy of B */
    char *bpack;
    const gemm_epilogue *e;
    char *user_c;           /* where temp rows go */
    bool failed, rows_done; /* rows_done: a panel's epilogue may run when its last block ends */
    bool e_later;           /* it runs when all is done */
} job;

static int esize(const gemm_plan *p) { return p->wide ? 8 : 4; }
static int64_t panel_row(const gemm_plan *p, int64_t i) { return i * p->mr - MAX(0, i - p->mfull); }
static int panel_rows(const gemm_plan *p, int64_t i) { return i < p->mfull ? p->mr : p->mr - 1; }

static void run_epilogue(const job *j, int64_t lo, int64_t hi)
{
    const gemm_epilogue *e = j->e;
    int64_t first = j->batch * (j->p->swapped ? j->p->d.n : j->p->d.m);
    e->fn(e->bufs, e->ints, e->flts, e->first + first + lo, e->first + first + hi);
}

/* Rows of the temporary to the user's C. */
static void temp_out(const job *j, int64_t lo, int64_t hi)
{
    const gemm_desc *d = &j->p->d;
    if (d->c.type == VM_f32 && d->c.row == 1) {
        gemm_turn_f32(j->p->isa, (float *)j->c + lo * j->c_row, j->c_row, (int)(hi - lo), d->n, d->c.col,
                      (float *)j->user_c + lo);
        return;
    }
    for (int64_t r = lo; r < hi; r++)
        for (int64_t c = 0; c < d->n; c++) {
            int64_t at = r * d->c.row + c * d->c.col, from = r * j->c_row + c;
            switch (d->c.type) {
            case VM_f64: ((double *)j->user_c)[at] = ((double *)j->c)[from]; break;
            case VM_f16: ((uint16_t *)j->user_c)[at] = vnum_to_f16(((float *)j->c)[from]); break;
            case VM_bf16: ((uint16_t *)j->user_c)[at] = vnum_to_bf16(((float *)j->c)[from]); break;
            default: ((float *)j->user_c)[at] = ((float *)j->c)[from]; break;
            }
        }
}
/* And, where C is read, the other way. */
static void temp_in(const job *j)
{
    const gemm_desc *d = &j->p->d;
    for (int64_t r = 0; r < d->m; r++)
        for (int64_t c = 0; c < d->n; c++) {
            int64_t at = r * d->c.row + c * d->c.col, to = r * j->c_row + c;
            switch (d->c.type) {
            case VM_f64: ((double *)j->c)[to] = ((double *)j->user_c)[at]; break;
            case VM_f16: ((float *)j->c)[to] = vnum_from_f16(((uint16_t *)j->user_c)[at]); break;
            case VM_bf16: ((float *)j->c)[to] = vnum_from_bf16(((uint16_t *)j->user_c)[at]); break;
            default: ((float *)j->c)[to] = ((float *)j->user_c)[at]; break;
            }
        }
}

static int64_t block_k(const gemm_plan *p, int64_t kb) { return MIN(p->kc, p->d.k - kb * p->kc); }

static void pack_b_panels(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    const gemm_plan *p = j->p;
    int64_t k = block_k(p, j->kb), first = j->first;
    for (int64_t i = lo; i < hi; i++) {
        int64_t n0 = (first + i) * p->nv * p->W;
        int width = (first + i == p->npan - 1 ? p->last_nv : p->nv) * p->W,
            cols = (int)MIN(width, p->d.n - n0);
        char *dst = j->bpack + i * p->kc * p->nv * p->W * esize(p);
        const gemm_mat *b = &p->d.b;
        gemm_pack_b(b->type, p->isa,
                    j->b + (j->kb * p->kc * b->row + n0 * b->col) * (int64_t)vir_mem_size(b->type), b->row,
                    b->col, cols, width, k, dst);
    }
}

/* Row panels lo..hi against column panels c0..c1 of the block. */
static void tiles(job *j, int64_t lo, int64_t hi, int64_t c0, int64_t c1)
{
    const gemm_plan *p = j->p;
    const gemm_mat *a = &p->d.a, *b = &p->d.b;
    int e = esize(p);
    int64_t k = block_k(p, j->kb), first = j->first;
    if (j->depth)
        k = MIN(k, j->depth - j->kb * p->kc);
    const void *ab = p->wide ? (const void *)p->ab_d : (const void *)p->ab_f;
    for (int64_t i = lo; i < hi; i++) {
        int64_t row = panel_row(p, i);
        int rows = panel_rows(p, i), small = rows != p->mr;
        const char *ap = j->a + (row * a->row + j->kb * p->kc * a->col) * (int64_t)vir_mem_size(a->type);
        if (p->pack_a) {
            char *dst = scratch_get(0, (size_t)(p->kc * p->mr * e) + 64);
            if (!dst) {
                j->failed = true;
                return;
            }
            gemm_pack_a(a->type, p->isa, ap, a->row, a->col, rows, p->mr, k, dst);
            ap = dst;
        }
        for (int64_t n = c0; n < c1; n++) {
            int64_t n0 = (first + n) * p->nv * p->W;
            bool last = first + n == p->npan - 1;
            const char *bp = p->pack_b ? j->bpack + n * p->kc * p->nv * p->W * e
                                       : j->b + (j->kb * p->kc * b->row + n0) * e;
            p->fn[small][last][j->kb > 0](ap, bp, j->c + (row * j->c_row + n0) * e, k, j->c_row * e,
                                          j->bias ? j->bias + n0 * e : ab);
        }
        if (j->rows_done) {
            if (p->temp)
                temp_out(j, row, row + rows);
            if (j->e && !p->swapped && !j->e_later)
                run_epilogue(j, row, row + rows);
        }
    }
}

static void by_rows(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    tiles(j, lo, hi, 0, j->np);
}
static void by_cols(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    tiles(j, 0, j->p->mpan, lo, hi);
}
static void temp_rows(void *arg, int64_t lo, int64_t hi) { temp_out(arg, lo, hi); }
static void epilogue_rows(void *arg, int64_t lo, int64_t hi) { run_epilogue(arg, lo, hi); }

static void spread(bool threads, int64_t n, pool_fn *fn, void *arg)
{
    if (threads && n > 1)
        pool_for(n, 1, fn, arg);
    else if (n > 0)
        fn(arg, 0, n);
}

static void few_columns(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    j->p->few((void *[]){ (void *)(uintptr_t)j->a, (void *)(uintptr_t)j->b, j->c }, NULL, NULL, lo, hi);
}

static bool get_bpack(job *j)
{
    const gemm_plan *p = j->p;
    if (p->pack_b)
        j->bpack = scratch_get(1, (size_t)(p->kc * p->npan_block * p->nv * p->W * esize(p)) + 64);
    return !p->pack_b || j->bpack;
}

/* A share of the product from start to end, without waiting for anybody: row panels lo..hi, column panels c0..c1.
 * What a thread packs stays in its own cache. */
static void own(job *whole, int64_t lo, int64_t hi, int64_t c0, int64_t c1)
{
    const gemm_plan *p = whole->p;
    job j = *whole;
    if (!get_bpack(&j)) {
        whole->failed = true;
        return;
    }
    for (j.first = c0; j.first < c1; j.first += p->npan_block)
        for (j.kb = 0; j.kb < p->kblocks; j.kb++) {
            j.np = MIN(p->npan_block, c1 - j.first);
            j.rows_done = j.first + j.np == p->npan && j.kb == p->kblocks - 1;
            if (p->pack_b)
                pack_b_panels(&j, 0, j.np);
            tiles(&j, lo, hi, 0, j.np);
        }
    if (j.failed)
        whole->failed = true;
}
static void own_rows(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    own(j, j->p->mpan * lo / j->parts, j->p->mpan * hi / j->parts, 0, j->p->npan);
}
static void own_cols(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    own(j, 0, j->p->mpan, j->p->npan * lo / j->parts, j->p->npan * hi / j->parts);
}

/* How threads share a matrix, each way with what the busiest one has to do: a unit is an element of B times a row.
 * Threads that pack together wait for one another at every block. */
typedef enum { SHARE_blocks, SHARE_rows, SHARE_cols } sharing;
static sharing choose_sharing(const gemm_plan *p, int64_t threads)
{
    double pack = p->pack_b ? PACK_COST : 0, n = (double)p->d.n, m = (double)p->d.m;
    double rows = (double)MIN((p->mpan + threads - 1) / threads * p->mr, p->d.m);
    double cols = (double)MIN((p->npan + threads - 1) / threads * p->nv * p->W, p->d.n);
    double by_blocks = n * (pack / (double)threads + rows) * 1.2,
           by_rows = p->mpan >= threads ? n * (pack + rows) : 1e300,
           by_cols = p->npan >= threads && !p->temp ? cols * (pack + m) : 1e300;
    return by_rows <= by_cols && by_rows <= by_blocks ? SHARE_rows
           : by_cols <= by_blocks                     ? SHARE_cols
                                                      : SHARE_blocks;
}

/* One matrix of the batch. */
static bool run_one(job *j, bool threads)
{
    const gemm_plan *p = j->p;
    if (p->few) {
        if (threads)
            pool_for(p->d.n, 64, few_columns, j);
        else
            few_columns(j, 0, p->d.n);
        if (j->e)
            run_epilogue(j, 0, p->swapped ? p->d.n : p->d.m);
        return true;
    }
    if (p->temp && p->d.beta != 0)
        temp_in(j);
    j->parts = pool_threads();
    sharing how = threads && j->parts > 1 ? choose_sharing(p, j->parts) : SHARE_blocks;
    if (how != SHARE_blocks) {
        j->e_later = j->e && (p->swapped || how == SHARE_cols); /* no thread has whole rows */
        pool_for(j->parts, 1, how == SHARE_rows ? own_rows : own_cols, j);
        if (j->e_later)
            spread(threads, p->swapped ? p->d.n : p->d.m, epilogue_rows, j);
        return !j->failed;
    }
    bool over_rows = p->mpan >= 2 * pool_threads() || p->mpan >= p->npan || !threads;
    if (!get_bpack(j))
        return false;
    for (j->first = 0; j->first < p->npan; j->first += p->npan_block)
        for (j->kb = 0; j->kb < p->kblocks; j->kb++) {
            j->np = MIN(p->npan_block, p->npan - j->first);
            j->rows_done = over_rows && j->first + j->np == p->npan && j->kb == p->kblocks - 1;
            if (p->pack_b)
                spread(threads, j->np, pack_b_panels, j);
            if (over_rows)
                spread(threads, p->mpan, by_rows, j);
            else
                spread(threads, j->np, by_cols, j);
        }
    if (p->temp && !over_rows)
        spread(threads, p->d.m, temp_rows, j);
    if (j->e && (p->swapped || !over_rows))
        spread(threads, p->swapped ? p->d.n : p->d.m, epilogue_rows, j);
    return !j->failed;
}

/* --- one B for many products ------------------------------------------------------------------------------------------ */
static int64_t packed_block(const gemm_plan *p) { return p->kc * p->npan_block * p->nv * p->W * esize(p); }

bool gemm_packs(const gemm_plan *p) { return p->W && !p->few && !p->swapped && !p->temp; }
size_t gemm_packed_bytes(const gemm_plan *p)
{
    return p->pack_b ? (size_t)(packed_block(p) * p->nblocks * p->kblocks) + 64 : 0;
}

void gemm_pack_all(const gemm_plan *p, const void *b, void *to)
{
    job j = { .p = p, .b = b, .bpack = to };
    for (j.first = 0; j.first < p->npan && p->pack_b; j.first += p->npan_block)
        for (j.kb = 0; j.kb < p->kblocks; j.kb++, j.bpack += packed_block(p))
            pack_b_panels(&j, 0, MIN(p->npan_block, p->npan - j.first));
}

bool gemm_run_packed(const gemm_plan *p, const void *a, const void *b, void *packed, void *c, int64_t rows,
                     int64_t cols, int64_t depth, const gemm_epilogue *e)
{
    job j = { .p = p, .a = a, .b = b, .bpack = packed, .c = c, .user_c = c, .c_row = p->d.c.row, .e = e };
    int64_t width = p->nv * p->W, npan = MIN(p->npan, (cols + width - 1) / width),
            kblocks = MIN(p->kblocks, (depth + p->kc - 1) / p->kc), mpan = MIN(p->mpan, rows / p->mr);
    while (mpan < p->mpan && panel_row(p, mpan) < rows)
        mpan++;
    j.depth = depth;
    for (j.first = 0; j.first < npan; j.first += p->npan_block)
        for (j.kb = 0; j.kb < p->kblocks; j.kb++, j.bpack += p->pack_b ? packed_block(p) : 0) {
            if (j.kb >= kblocks)
                continue;
            j.np = MIN(p->npan_block, npan - j.first);
            j.rows_done = j.first + j.np == npan && j.kb == kblocks - 1;
            tiles(&j, 0, mpan, 0, j.np);
        }
    return !j.failed;
}

/* --- without vectors: plain loops ------------------------------------------------------------------------------------- */
static double element(vir_mem t, const char *p, int64_t i)
{
    return t == VM_f64   ? ((const double *)p)[i]
           : t == VM_f32 ? (double)((const float *)p)[i]
           : t == VM_f16 ? (double)vnum_from_f16(((const uint16_t *)p)[i])
                         : (double)vnum_from_bf16(((const uint16_t *)p)[i]);
}
static void put(vir_mem t, char *p, int64_t i, double v)
{
    switch (t) {
    case VM_f64: ((double *)p)[i] = v; break;
    case VM_f32: ((float *)p)[i] = (float)v; break;
    case VM_f16: ((uint16_t *)p)[i] = vnum_to_f16((float)v); break;
    default: ((uint16_t *)p)[i] = vnum_to_bf16((float)v); break;
    }
}

static void plain(job *j)
{
    const gemm_desc *d = &j->p->d;
    for (int64_t r = 0; r < d->m; r++)
        for (int64_t c = 0; c < d->n; c++) {
            double s = 0, old = 0;
            int64_t at = r * d->c.row + c * d->c.col;
            for (int64_t k = 0; k < d->k; k++)
                s += element(d->a.type, j->a, r * d->a.row + k * d->a.col) *
                     element(d->b.type, j->b, k * d->b.row + c * d->b.col);
            if (d->beta != 0)
                old = d->beta * element(d->c.type, j->user_c, at);
            if (j->bias)
                old = element(d->c.type, j->bias, c);
            put(d->c.type, j->user_c, at, d->alpha * s + old);
        }
    if (j->e)
        run_epilogue(j, 0, j->p->swapped ? d->n : d->m);
}

typedef struct batch_job {
    const gemm_plan *p;
    const char *a, *b, *bias;
    char *c;
    const gemm_epilogue *e;
    bool threads, failed;
} batch_job;

static void run_batches(void *arg, int64_t lo, int64_t hi)
{
    batch_job *bj = arg;
    const gemm_plan *p = bj->p;
    const gemm_desc *d = &p->d;
    for (int64_t i = lo; i < hi; i++) {
        job j = { .p = p, .batch = i, .e = bj->e, .c_row = d->c.row, .bias = bj->bias };
        j.a = bj->a + i * d->a.batch * (int64_t)vir_mem_size(d->a.type);
        j.b = bj->b ? bj->b + i * d->b.batch * (int64_t)vir_mem_size(d->b.type) : NULL;
        j.c = j.user_c = bj->c + i * d->c.batch * (int64_t)vir_mem_size(d->c.type);
        if (p->isa == ISA_none || !d->k) {
            plain(&j);
            continue;
        }
        if (p->temp) {
            j.c = scratch_get(2, (size_t)(d->m * d->n * esize(p)) + 64);
            j.c_row = d->n;
        }
        if (!j.c || !run_one(&j, bj->threads))
            bj->failed = true;
    }
}

bool gemm_run(const gemm_plan *p, const void *a, const void *b, const void *bias, void *c,
              const gemm_epilogue *e, tp_err *err)
{
    const gemm_desc *d = &p->d;
    batch_job bj = { .p = p, .e = e, .bias = bias, .a = a, .b = b, .c = c };
    double work = (double)d->m * (double)d->n * (double)d->k;
    if (!d->m || !d->n || !d->batch)
        return true;
    if (p->swapped)
        bj.a = b, bj.b = a;
    bool many = d->batch >= 2 * pool_threads() || (d->batch > 1 && work < 1e6);
    bj.threads = !many && work > 2e5;
    if (many && work * (double)d->batch > 2e5)
        pool_for(d->batch, 1, run_batches, &bj);
    else
        run_batches(&bj, 0, d->batch);
    return bj.failed ? err_set(err, ERR_oom, "out of memory in a matrix product") : true;
}
