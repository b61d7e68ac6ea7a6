/* gemm.c - matrix products: choosing the tile, blocking for the caches, threads, epilogue. */
#include "target/x64/gemm_int.h"
#include "target/x64/publish.h"
#include "base/pool.h"
#include "vir/math/vnum.h"
#include "base/bytes.h"
#include <stdatomic.h>
#include <stdio.h>

/* Measured: 256 rows of B a block, and B blocks that fill the second cache. */
enum { KC_WHOLE = 384, KC = 256, TILE_KC_WHOLE = 640, TILE_KC = 512, B_BLOCK = 1 << 20 };
/* Packing an element of B takes as long as multiplying it with so many rows; A is packed in shorter runs. */
enum { PACK_COST = 20, PACK_A_COST = 10, TILE_PACK_COST = 100 };

struct gemm_plan {
    gemm_desc d; /* as computed: C's columns contiguous */
    gen_isa isa;
    bool wide, swapped; /* f64; C transposed = B transposed times A transposed */
    bool
        temp; /* C goes through rows of f32 (f64, i32): narrow type, whole tiles, or no contiguous direction */
    bool pack_a, pack_b;
    gemm_unit unit;
    int per;    /* elements along k that are multiplied at once: a group; k is counted in groups below */
    int64_t kg; /* groups; on tiles a multiple of 16 */
    gemm_amx amx;
    int W;                   /* lanes */
    int mr, nv;              /* register tile */
    int64_t mpan, mfull;     /* panels of rows: the first mfull have mr rows, the others mr - 1 */
    int64_t npan;            /* panels of columns, nv vectors each; the last may be narrower */
    int last_nv, last_lanes; /* of the last panel; lanes 0: all */
    int64_t kblocks, kc, nblocks, npan_block;
    gemm_micro fn[2][2][2]; /* [mr - 1 rows][last panel][not the first k block] */
    double ab_d[2];
    float ab_f[2];
    vir_fn few;     /* few rows, both operands contiguous along k: dot products */
    bool few_pairs; /* the same of bf16, by vdpbf16ps */
};

static bool on_tiles(const gemm_plan *p) { return p->unit == GEMM_tiles16 || p->unit == GEMM_tiles8; }
static int msize(vir_mem t) { return (int)vir_mem_size(t); }

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
    return p->d.a.row * msize(p->d.a.type) % 4096 == 0 && mr > 6 && p->d.k > 64;
}

/* The last panel of rows may need one of its two tiles. */
static void whole_tiles(gemm_plan *p)
{
    int64_t m = p->d.m, nvec = (p->d.n + 15) / 16, rest = m % 32;
    p->mr = m <= 16 ? 16 : 32;
    p->nv = nvec == 1 ? 1 : 2;
    p->mpan = (m + p->mr - 1) / p->mr;
    p->mfull = p->mpan - (p->mr == 32 && rest > 0 && rest <= 16);
    p->npan = (nvec + p->nv - 1) / p->nv;
    p->last_nv = (int)(nvec - (p->npan - 1) * p->nv);
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

/* Can A be read where it lies? Elements of a group must lie together, and on tiles nothing may be missing. */
static bool reads_a(const gemm_plan *p)
{
    const gemm_mat *a = &p->d.a;
    int64_t reach = (int64_t)p->mr * llabs(a->row) * msize(a->type) + 8 * llabs(a->col) * msize(a->type);
    if (p->unit == GEMM_fma)
        return (a->type == VM_f32 || a->type == VM_f64) && p->npan < 12 && reach <= INT32_MAX / 2;
    return msize(a->type) * p->per == 4 && a->col == 1 && a->row >= 0 && reach <= INT32_MAX / 2 &&
           p->npan < (on_tiles(p) ? 6 : 12) && p->d.k % (on_tiles(p) ? 16 * p->per : p->per) == 0 &&
           (!on_tiles(p) || p->d.m % 16 == 0);
}

static void choose_blocks(gemm_plan *p)
{
    int64_t k = p->kg, elem = p->wide ? 8 : 4, most = on_tiles(p) ? TILE_KC : KC;
    p->kblocks = k <= (on_tiles(p) ? TILE_KC_WHOLE : KC_WHOLE) ? 1 : (k + most - 1) / most;
    p->kc = (k + p->kblocks - 1) / p->kblocks;
    if (on_tiles(p))
        p->kc = (p->kc + 15) / 16 * 16, p->kblocks = (k + p->kc - 1) / p->kc;
    const gemm_mat *b = &p->d.b;
    bool b_same = p->unit == GEMM_fma && (b->type == VM_f32 || b->type == VM_f64);
    p->pack_a = !reads_a(p) || rows_collide(p, p->mr);
    bool near = b->row * elem * p->kc <= 24 << 10 && b->row > 0;
    p->pack_b = !b_same || b->col != 1 || (!near && p->mpan >= 3) ||
                llabs(b->row) * elem * 16 > INT32_MAX / 2;
    int64_t panel = p->kc * p->nv * p->W * elem;
    p->npan_block = p->pack_b ? MAX(1, MIN(p->npan, B_BLOCK / MAX(panel, 1))) : p->npan;
    p->nblocks = (p->npan + p->npan_block - 1) / MAX(p->npan_block, 1);
    p->npan_block = (p->npan + p->nblocks - 1) / MAX(p->nblocks, 1); /* the last is not much smaller */
}

/* Rows of A as the tile reads them. */
static void tile_strides(const gemm_plan *p, gemm_tile *t, int nv)
{
    int elem = p->wide ? 8 : 4;
    const gemm_mat *a = &p->d.a;
    t->a_row = p->pack_a ? (on_tiles(p) ? 64 : elem) : (int32_t)(a->row * msize(a->type));
    t->a_col = on_tiles(p)           ? (p->pack_a ? 64 * p->mr : 64)
               : p->pack_a           ? elem * p->mr
               : p->unit != GEMM_fma ? 4
                                     : (int32_t)(a->col * elem);
    t->b_row = p->pack_b ? elem * p->W * nv : (int32_t)(p->d.b.row * elem);
}

static bool make_tiles(gemm_plan *p, tp_err *err)
{
    for (int small = 0; small < 2; small++)
        for (int last = 0; last < 2; last++)
            for (int later = 0; later < 2; later++) {
                gemm_tile t = { .isa = (uint8_t)p->isa, .wide = p->wide, .unit = (uint8_t)p->unit };
                bool unused = (small && p->mfull == p->mpan) || (!small && p->mfull == 0) ||
                              (!last && p->npan == 1) || (later && p->kblocks == 1);
                t.mr = (uint8_t)(small && on_tiles(p) ? 16 : p->mr - small);
                if (unused || t.mr == 0)
                    continue;
                t.nv = (uint8_t)(last ? p->last_nv : p->nv);
                t.last = (uint8_t)(last ? p->last_lanes : 0);
                t.mode = later ? 1 : p->d.bias ? 3 : p->d.beta == 0 ? 0 : p->d.beta == 1 ? 1 : 2;
                t.scaled = p->d.alpha != 1;
                tile_strides(p, &t, t.nv);
                p->fn[small][last][later] = on_tiles(p) ? gemm_amx_get(&t, err) : gemm_tile_get(&t, err);
                if (!p->fn[small][last][later])
                    return false;
            }
    return !on_tiles(p) || gemm_amx_state(&p->amx, err);
}

/* --- few rows: memory-bound dot products, from the vector IR --------------------------------------------------- */
static bool few_rows(const gemm_plan *p)
{
    const gemm_desc *d = &p->d;
    bool plain = !p->temp || ((d->c.type == VM_f16 || d->c.type == VM_bf16) && d->c.col == 1);
    return d->m <= 4 && d->b.row == 1 && (d->a.col == 1 || d->m * d->k == 1) && d->k >= 16 && plain &&
           !d->bias && d->c.type != VM_i32;
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

/* The same in pairs of bf16, with a row to add as well. Tests ask for tiles of few rows by unit. */
static bool few_pairs(const gemm_plan *p)
{
    const gemm_desc *d = &p->d;
    return d->m <= 4 && d->a.type == VM_bf16 && d->b.type == VM_bf16 && d->c.type != VM_f16 &&
           d->b.row == 1 && (d->a.col == 1 || d->m * d->k == 1) && d->c.col == 1 && d->k >= 16 &&
           gen_units_host()->bf16 && p->isa == ISA_avx512 &&
           (p->unit == GEMM_dpbf16 || (p->unit == GEMM_tiles16 && !d->unit));
}

static gemm_mat flip(gemm_mat x) { return (gemm_mat){ x.type, x.col, x.row, x.batch }; }

static bool is_narrow(vir_mem t) { return t == VM_f16 || t == VM_bf16; }

static bool check(const gemm_desc *d, tp_err *err)
{
    const vir_mem t[3] = { d->a.type, d->b.type, d->c.type };
    int wide = 0;
    if (t[2] == VM_i32) {
        if (t[0] != VM_i8 || t[1] != VM_i8 || d->alpha != 1 || d->beta != 0 || d->bias)
            return err_set(err, ERR_notimpl, "such a matrix product of bytes");
        return true;
    }
    for (int i = 0; i < 3; i++) {
        if (t[i] != VM_f64 && t[i] != VM_f32 && !is_narrow(t[i]))
            return err_set(err, ERR_notimpl, "matrix product of %s", vir_mem_name(t[i]));
        wide += t[i] == VM_f64;
    }
    if (wide != 0 && wide != 3)
        return err_set(err, ERR_notimpl, "matrix product of f64 with another type");
    if (d->bias && (d->alpha != 1 || d->beta != 0 || wide == 3 || d->c.col != 1 || !d->k))
        return err_set(err, ERR_notimpl, "matrix product with such a row to add");
    if (d->m < 0 || d->n < 0 || d->k < 0 || d->batch < 0)
        return err_set(err, ERR_value, "matrix product with a negative size");
    return true;
}

/* GEMM_best: bytes without a unit for them, for plain loops. */
static gemm_unit choose_unit(const gemm_desc *d, gen_isa isa)
{
    const gen_units *u = gen_units_host();
    bool simple = d->alpha == 1 && (d->beta == 0 || d->beta == 1);
    bool pairs = d->a.type == VM_bf16 && d->b.type == VM_bf16;
    pairs |= d->rough && d->a.type == VM_f32 && d->b.type == VM_f32;
    if (d->unit)
        return (gemm_unit)d->unit;
    if (d->c.type == VM_i32)
        return isa != ISA_avx512 ? GEMM_best : u->tile_int8 ? GEMM_tiles8 : u->vnni ? GEMM_dpbusd : GEMM_best;
    if (!pairs || isa != ISA_avx512)
        return GEMM_fma;
    return u->tile_bf16 && simple ? GEMM_tiles16 : u->bf16 ? GEMM_dpbf16 : GEMM_fma;
}

/* Tile, blocks and their code. */
static bool plan_tiles(gemm_plan *p, tp_err *err)
{
    p->W = (p->isa == ISA_avx512 ? 64 : 32) / (p->wide ? 8 : 4);
    p->per = p->unit == GEMM_fma ? 1 : p->unit == GEMM_dpbf16 || p->unit == GEMM_tiles16 ? 2 : 4;
    p->kg = (p->d.k + p->per - 1) / p->per;
    if (on_tiles(p)) {
        p->kg = (p->kg + 15) / 16 * 16;
        whole_tiles(p);
    } else {
        choose_tile(p);
    }
    choose_blocks(p);
    return make_tiles(p, err);
}

gemm_plan *gemm_plan_new(const gemm_desc *d, gen_isa isa, tp_err *err)
{
    if (!check(d, err))
        return NULL;
    gemm_plan *p = mem_zalloc(sizeof *p);
    p->d = *d;
    p->isa = isa;
    p->unit = choose_unit(d, isa);
    if (p->unit == GEMM_best)
        p->isa = isa = ISA_none;
    p->wide = d->c.type == VM_f64;
    bool narrow = is_narrow(d->c.type);
    /* Few rows against a transposed matrix: its rows are read as they lie, and the small side is packed. */
    bool thin = d->m > 4 && d->m <= 32 && d->n >= 4 * d->m && d->b.row == 1 && d->b.col != 1 &&
                d->c.col == 1 && d->beta == 0 && !d->bias && d->c.type == VM_f32 && d->b.type == VM_f32 &&
                isa != ISA_none && p->unit == GEMM_fma;
    if ((d->c.col != 1 && d->c.row == 1 && d->n > 1 && !narrow && !d->bias && p->unit == GEMM_fma) || thin) {
        p->swapped = true;
        p->d.m = d->n, p->d.n = d->m;
        p->d.a = flip(d->b), p->d.b = flip(d->a), p->d.c = flip(d->c);
    }
    p->temp = narrow || (p->d.c.col != 1 && p->d.n > 1) || on_tiles(p) || p->unit == GEMM_dpbusd;
    p->ab_d[0] = d->alpha, p->ab_d[1] = d->beta;
    p->ab_f[0] = (float)d->alpha, p->ab_f[1] = (float)d->beta;
    if (isa == ISA_none || !d->m || !d->n || !d->k)
        return p;
    if ((p->few_pairs = few_pairs(p)))
        return p;
    bool few = few_rows(p);
    if (few)
        p->few = dot_kernel(p, err);
    if (few ? !p->few : !plan_tiles(p, err)) {
        free(p);
        return NULL;
    }
    return p;
}

void gemm_plan_free(gemm_plan *p) { free(p); }

void gemm_describe(const gemm_plan *p, strbuf *out)
{
    if (p->few || p->few_pairs) {
        strbuf_addf(out, "%s %lldx%lldx%lld: tile none, dot products along k", gen_isa_name(p->isa),
                    (long long)p->d.m, (long long)p->d.n, (long long)p->d.k);
        return;
    }
    static const char *const units[] = { "loops", "", " vdpbf16ps", " tdpbf16ps", " vpdpbusd", " tdpbssd" };
    strbuf_addf(out, "%s%s %s %lldx%lldx%lld batch %lld: tile %dx%d, k blocks of %lld, pack A %s, B %s%s",
                gen_isa_name(p->isa), units[p->unit], vir_mem_name(p->d.a.type), (long long)p->d.m,
                (long long)p->d.n, (long long)p->d.k, (long long)p->d.batch, p->mr, p->nv * p->W,
                (long long)(p->kc * p->per), p->pack_a ? "yes" : "no", p->pack_b ? "yes" : "no",
                p->swapped ? ", transposed" : "");
}

/* --- running --------------------------------------------------------------------------------------------------------- */
/* Scratch of a thread, kept for its next product. */
enum { FOR_A, FOR_B, FOR_C, FOR_ROWS, FOR_BIAS, FOR_ALL, SCRATCHES };
static _Thread_local bytes_kept scratch[SCRATCHES];
static void *scratch_get(int which, size_t n) { return bytes_keep(&scratch[which], (int64_t)n); }

typedef struct job {
    const gemm_plan *p;
    const char *a, *b, *bias;
    char *c;
    int64_t c_row;        /* elements */
    int64_t batch, kb;    /* block being worked on: of k, */
    int64_t first, np;    /* and of the panels of columns */
    int64_t depth;        /* groups of the sums; 0: all */
    int64_t down, across; /* parts of the rows and of the columns that threads take */
    _Atomic int *left;    /* of each part of the rows, how many parts are not finished */
    char *bpack;
    const char *apack; /* all panels of A, packed; NULL: each is packed when it is needed */
    const gemm_epilogue *e;
    char *user_c;           /* where temp rows go */
    bool failed, rows_done; /* rows_done: a panel's epilogue may run when its last block ends */
} job;

static int esize(const gemm_plan *p) { return p->wide ? 8 : 4; }
static int64_t panel_row(const gemm_plan *p, int64_t i) { return i * p->mr - MAX(0, i - p->mfull); }
static int panel_rows(const gemm_plan *p, int64_t i)
{
    return on_tiles(p) ? (int)MIN(p->mr, p->d.m - i * p->mr) : i < p->mfull ? p->mr : p->mr - 1;
}
/* Is a panel of rows finished when it is left, so that the temporary is one of rows? */
static bool panel_temp(const gemm_plan *p) { return p->temp && p->kblocks == 1; }
static int64_t temp_row(const gemm_plan *p) { return p->npan * p->nv * p->W; }

static void run_epilogue(const job *j, int64_t lo, int64_t hi)
{
    const gemm_epilogue *e = j->e;
    int64_t first = j->batch * (j->p->swapped ? j->p->d.n : j->p->d.m);
    e->fn(e->bufs, e->ints, e->flts, e->first + first + lo, e->first + first + hi);
}

/* A rectangle of C: where it begins, and where it lies in the temporary. */
typedef struct part_of_c {
    int64_t row, col, rows, cols;
    char *temp;
    int64_t temp_row;
} part_of_c;

/* vpdpbusd takes its second factor without sign: it was 128 too much. */
static int32_t too_much(const job *j, int64_t row)
{
    const gemm_mat *a = &j->p->d.a;
    int32_t sum = 0;
    const int8_t *x = (const int8_t *)j->a + row * a->row;
    if (a->col == 1)
        return 128 * gemm_sum_bytes(x, j->p->d.k);
    for (int64_t k = 0; k < j->p->d.k; k++)
        sum += x[k * a->col];
    return 128 * sum;
}

static void temp_out(const job *j, const part_of_c *c)
{
    const gemm_desc *d = &j->p->d;
    int64_t at = c->row * d->c.row + c->col * d->c.col;
    if (d->c.type == VM_f32 && d->c.row == 1 && d->c.col != 1) {
        gemm_turn_f32(j->p->isa, (float *)c->temp, c->temp_row, (int)c->rows, c->cols, d->c.col,
                      (float *)j->user_c + at);
        return;
    }
    for (int64_t r = 0; r < c->rows; r++, at += d->c.row) {
        const char *from = c->temp + r * c->temp_row * esize(j->p);
        if (d->c.col == 1 && is_narrow(d->c.type)) {
            gemm_narrow_row(d->c.type, j->p->isa, (const float *)from, c->cols, (uint16_t *)j->user_c + at);
            continue;
        }
        if (d->c.col == 1 && j->p->unit != GEMM_dpbusd) {
            memcpy(j->user_c + at * esize(j->p), from, (size_t)(c->cols * esize(j->p)));
            continue;
        }
        int32_t less = j->p->unit == GEMM_dpbusd ? too_much(j, c->row + r) : 0;
        for (int64_t i = 0; i < c->cols; i++) {
            int64_t to = at + i * d->c.col;
            switch (d->c.type) {
            case VM_f64: ((double *)j->user_c)[to] = ((double *)from)[i]; break;
            case VM_f16: ((uint16_t *)j->user_c)[to] = vnum_to_f16(((float *)from)[i]); break;
            case VM_bf16: ((uint16_t *)j->user_c)[to] = vnum_to_bf16(((float *)from)[i]); break;
            case VM_i32: ((int32_t *)j->user_c)[to] = ((int32_t *)from)[i] - less; break;
            default: ((float *)j->user_c)[to] = ((float *)from)[i]; break;
            }
        }
    }
}
/* And, where C is read, the other way. */
static void temp_in(const job *j, const part_of_c *c)
{
    const gemm_desc *d = &j->p->d;
    for (int64_t r = 0; r < c->rows; r++) {
        int64_t at = (c->row + r) * d->c.row + c->col * d->c.col;
        char *to = c->temp + r * c->temp_row * esize(j->p);
        if (d->c.col == 1 && is_narrow(d->c.type)) {
            gemm_widen_row(d->c.type, j->p->isa, (uint16_t *)j->user_c + at, c->cols, (float *)to);
            continue;
        }
        for (int64_t i = 0; i < c->cols; i++) {
            int64_t from = at + i * d->c.col;
            switch (d->c.type) {
            case VM_f64: ((double *)to)[i] = ((double *)j->user_c)[from]; break;
            case VM_f16: ((float *)to)[i] = vnum_from_f16(((uint16_t *)j->user_c)[from]); break;
            case VM_bf16: ((float *)to)[i] = vnum_from_bf16(((uint16_t *)j->user_c)[from]); break;
            default: ((float *)to)[i] = ((float *)j->user_c)[from]; break;
            }
        }
    }
}

static int64_t block_k(const gemm_plan *p, int64_t kb) { return MIN(p->kc, p->kg - kb * p->kc); }
static int64_t block_elems(const gemm_plan *p, int64_t kb) /* of k, those that exist */
{
    return MAX(0, MIN(p->kc * p->per, p->d.k - kb * p->kc * p->per));
}

/* k groups of rows of A, of which `elems` elements exist. */
static void pack_rows(const gemm_plan *p, const char *from, int rows, int64_t elems, int64_t k, char *dst)
{
    const gemm_mat *a = &p->d.a;
    if (on_tiles(p))
        gemm_pack_tiles(a->type, p->per, from, a->row, a->col, rows, p->mr, elems, dst);
    else if (p->unit == GEMM_fma)
        gemm_pack_a(a->type, p->isa, from, a->row, a->col, rows, p->mr, k, dst);
    else
        gemm_pack_groups(a->type, p->per, 0, from, a->row, a->col, rows, p->mr, elems, k, dst);
}
static void pack_cols(const gemm_plan *p, const char *from, int cols, int width, int64_t elems, int64_t k,
                      char *dst)
{
    const gemm_mat *b = &p->d.b;
    if (p->unit == GEMM_fma)
        gemm_pack_b(b->type, p->isa, from, b->row, b->col, cols, width, k, dst);
    else
        gemm_pack_groups(b->type, p->per, p->unit == GEMM_dpbusd ? 0x80808080 : 0, from, b->col, b->row, cols,
                         width, elems, k, dst);
}

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
        const char *from = j->b + (j->kb * p->kc * p->per * b->row + n0 * b->col) * msize(b->type);
        pack_cols(p, from, cols, width, block_elems(p, j->kb), k, dst);
    }
}

/* A panel of A's rows for the block of k; NULL: out of memory. */
static const char *rows_of_a(job *j, int64_t row, int rows, int64_t k)
{
    const gemm_plan *p = j->p;
    const gemm_mat *a = &p->d.a;
    const char *from = j->a + (row * a->row + j->kb * p->kc * p->per * a->col) * msize(a->type);
    if (!p->pack_a)
        return from;
    char *dst = scratch_get(FOR_A, (size_t)(p->kc * p->mr * esize(p)) + 64);
    if (!dst)
        j->failed = true;
    else
        pack_rows(p, from, rows, block_elems(p, j->kb), k, dst);
    return dst;
}

/* One panel of rows against column panels c0..c1 of the block, into c, where the row of the first begins. */
static void row_panel(job *j, const char *ap, int small, int64_t c0, int64_t c1, char *c, int64_t c_row,
                      int64_t k)
{
    const gemm_plan *p = j->p;
    int e = esize(p);
    const void *ab = p->wide ? (const void *)p->ab_d : (const void *)p->ab_f;
    for (int64_t n = c0; n < c1; n++) {
        int64_t n0 = (j->first + n) * p->nv * p->W;
        bool last = j->first + n == p->npan - 1;
        const char *bp = p->pack_b ? j->bpack + n * p->kc * p->nv * p->W * e
                                   : j->b + (j->kb * p->kc * p->d.b.row + n0) * e;
        const void *with = j->bias ? j->bias + n0 * e : ab;
        char *to = c + (n - c0) * p->nv * p->W * e;
        gemm_micro fn = p->fn[small][last][j->kb > 0];
        if (TP_UNLIKELY(on_tiles(p) && gemm_amx_instead))
            gemm_amx_instead(fn, ap, bp, to, k / 16, c_row * e, with);
        else
            fn(ap, bp, to, on_tiles(p) ? k / 16 : k, c_row * e, with);
    }
}

static void tiles_on(const gemm_plan *p, bool on)
{
    if (!on_tiles(p) || gemm_amx_instead)
        return;
    if (on)
        p->amx.on(&gemm_amx_all);
    else
        p->amx.off();
}

/* Row panels lo..hi against column panels c0..c1 of the block. */
static void tiles(job *j, int64_t lo, int64_t hi, int64_t c0, int64_t c1)
{
    const gemm_plan *p = j->p;
    int64_t k = block_k(p, j->kb), width = p->nv * p->W, col = (j->first + c0) * width;
    if (j->depth)
        k = MIN(k, j->depth - j->kb * p->kc);
    int64_t t_row = (c1 - c0) * width, last = j->depth ? (j->depth - 1) / p->kc : p->kblocks - 1;
    char *rows_temp = panel_temp(p) ? scratch_get(FOR_ROWS, (size_t)(t_row * p->mr * esize(p)) + 64) : NULL;
    if (panel_temp(p) && !rows_temp) {
        j->failed = true;
        return;
    }
    tiles_on(p, true);
    for (int64_t i = lo; i < hi; i++) {
        int64_t row = panel_row(p, i);
        int rows = panel_rows(p, i), small = i >= p->mfull;
        const char *ap = j->apack ? j->apack + i * p->kc * p->mr * esize(p) : rows_of_a(j, row, rows, k);
        if (!ap)
            break;
        char *c = rows_temp ? rows_temp : j->c + (row * j->c_row + col) * esize(p);
        int64_t c_row = rows_temp ? t_row : j->c_row;
        part_of_c part = { row, col, rows, MIN((c1 - c0) * width, p->d.n - col), c, c_row };
        if (p->temp && p->d.beta != 0 && j->kb == 0)
            temp_in(j, &part);
        row_panel(j, ap, small, c0, c1, c, c_row, k);
        if (p->temp && j->kb == last)
            temp_out(j, &part);
        if (j->rows_done && j->e && !p->swapped)
            run_epilogue(j, row, row + rows);
    }
    tiles_on(p, false);
}

/* Columns lo..hi of a few rows, 64 at a time. */
static void pairs_columns(const job *j, int64_t lo, int64_t hi)
{
    const gemm_desc *d = &j->p->d;
    enum { COLS = 64 };
    float sum[4 * COLS];
    for (; lo < hi; lo += COLS) {
        int64_t n = MIN(COLS, hi - lo);
        gemm_few_bf16((const uint16_t *)j->a, d->a.row, (const uint16_t *)j->b, d->b.col, (int)d->m, lo,
                      lo + n, d->k, sum, COLS);
        for (int64_t r = 0; r < d->m; r++)
            for (int64_t c = 0; c < n; c++) {
                int64_t at = r * d->c.row + lo + c;
                bool narrow = is_narrow(d->c.type);
                uint16_t *half = (uint16_t *)j->user_c + at;
                float v = sum[r * COLS + c] * (float)d->alpha, *whole = (float *)j->user_c + at;
                if (d->beta != 0)
                    v += (float)d->beta * (narrow ? vnum_from_bf16(*half) : *whole);
                if (j->bias)
                    v += narrow ? vnum_from_bf16(((const uint16_t *)j->bias)[lo + c])
                                : ((const float *)j->bias)[lo + c];
                if (narrow)
                    *half = vnum_to_bf16(v);
                else
                    *whole = v;
            }
    }
}

static void few_columns(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    if (j->p->few_pairs) {
        pairs_columns(j, lo, hi);
        return;
    }
    j->p->few((void *[]){ (void *)(uintptr_t)j->a, (void *)(uintptr_t)j->b, j->c }, NULL, NULL, lo, hi);
}

static bool get_bpack(job *j)
{
    const gemm_plan *p = j->p;
    if (p->pack_b)
        j->bpack = scratch_get(FOR_B, (size_t)(p->kc * p->npan_block * p->nv * p->W * esize(p)) + 64);
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
            j.rows_done = !j.left && j.first + j.np == p->npan && j.kb == p->kblocks - 1;
            if (p->pack_b)
                pack_b_panels(&j, 0, j.np);
            tiles(&j, lo, hi, 0, j.np);
        }
    if (j.failed)
        whole->failed = true;
}

/* The panels of part i. */
typedef struct part_of_all {
    int64_t down, r0, r1, c0, c1;
} part_of_all;
static part_of_all part_of(const job *j, int64_t i)
{
    const gemm_plan *p = j->p;
    int64_t r = i / j->across, c = i % j->across;
    return (part_of_all){ r, p->mpan * r / j->down, p->mpan * (r + 1) / j->down, p->npan * c / j->across,
                          p->npan * (c + 1) / j->across };
}
/* Whoever finishes the last part of some rows goes on with what follows on them. */
static void part_done(job *j, const part_of_all *t)
{
    const gemm_plan *p = j->p;
    if (j->left && atomic_fetch_sub_explicit(&j->left[t->down], 1, memory_order_acq_rel) == 1)
        run_epilogue(j, panel_row(p, t->r0), MIN(panel_row(p, t->r1), p->d.m));
}

static void own_parts(void *arg, int64_t lo, int64_t hi)
{
    job *j = arg;
    for (int64_t i = lo; i < hi; i++) {
        part_of_all t = part_of(j, i);
        own(j, t.r0, t.r1, t.c0, t.c1);
        part_done(j, &t);
    }
}

/* --- threads that pack together: nothing is packed twice, and parts are as small as balance wants them ----------------- */
enum {
    SLICE = 64,
    TOGETHER_MOST = 32 << 20
}; /* groups of k that are packed at once; bytes of a stretch of k */
typedef struct together {
    job *j;
    int64_t kb0, kb1;     /* blocks of k that are packed */
    int64_t a_kb, b_kb;   /* bytes of one, of A and of B */
    int64_t bundle, each; /* panels of A in a unit of work, units in a slice */
    char *a, *b;
} together;

static void pack_slice(const together *t, int64_t kb, int64_t slice, int64_t unit)
{
    const gemm_plan *p = t->j->p;
    int64_t g0 = slice * SLICE, k = MIN((int64_t)SLICE, block_k(p, kb) - g0), e = esize(p);
    int64_t elems = MAX(0, MIN(SLICE * p->per, block_elems(p, kb) - g0 * p->per));
    int64_t at = (kb * p->kc + g0) * p->per; /* the first element of k */
    if (k <= 0)
        return;
    if (p->pack_b && unit < p->npan) {
        const gemm_mat *b = &p->d.b;
        int64_t n0 = unit * p->nv * p->W;
        int width = (unit == p->npan - 1 ? p->last_nv : p->nv) * p->W;
        pack_cols(p, t->j->b + (at * b->row + n0 * b->col) * msize(b->type), (int)MIN(width, p->d.n - n0),
                  width, elems, k,
                  t->b + (kb - t->kb0) * t->b_kb + unit * p->kc * p->nv * p->W * e + g0 * width * e);
        return;
    }
    const gemm_mat *a = &p->d.a;
    int64_t first = (unit - (p->pack_b ? p->npan : 0)) * t->bundle;
    for (int64_t i = first; i < MIN(first + t->bundle, p->mpan); i++) {
        int64_t row = panel_row(p, i);
        pack_rows(p, t->j->a + (row * a->row + at * a->col) * msize(a->type), panel_rows(p, i), elems, k,
                  t->a + (kb - t->kb0) * t->a_kb + (i * p->kc + g0) * p->mr * e);
    }
}
static void pack_together(void *arg, int64_t lo, int64_t hi)
{
    const together *t = arg;
    int64_t slices = (t->j->p->kc + SLICE - 1) / SLICE;
    for (int64_t i = lo; i < hi; i++)
        pack_slice(t, t->kb0 + i / (slices * t->each), i % slices, i / slices % t->each);
}

static void together_parts(void *arg, int64_t lo, int64_t hi)
{
    const together *t = arg;
    const gemm_plan *p = t->j->p;
    for (int64_t i = lo; i < hi; i++) {
        part_of_all part = part_of(t->j, i);
        job j = *t->j;
        for (j.kb = t->kb0; j.kb < t->kb1; j.kb++) {
            j.bpack = t->b + (j.kb - t->kb0) * t->b_kb;
            j.apack = p->pack_a ? t->a + (j.kb - t->kb0) * t->a_kb : NULL;
            j.rows_done = !j.left && j.kb == p->kblocks - 1 && part.c1 - part.c0 == p->npan;
            tiles(&j, part.r0, part.r1, part.c0, part.c1);
        }
        if (j.failed)
            t->j->failed = true;
        if (t->kb1 == p->kblocks)
            part_done(t->j, &part);
    }
}

static void run_together(job *j)
{
    const gemm_plan *p = j->p;
    together t = { .j = j, .bundle = MAX(1, p->nv * p->W / p->mr) };
    t.a_kb = p->pack_a ? p->kc * p->mr * p->mpan * esize(p) : 0;
    t.b_kb = p->pack_b ? p->kc * p->npan * p->nv * p->W * esize(p) : 0;
    t.each = (p->pack_b ? p->npan : 0) + (p->pack_a ? (p->mpan + t.bundle - 1) / t.bundle : 0);
    int64_t blocks = MAX(1, MIN(p->kblocks, TOGETHER_MOST / MAX(t.a_kb + t.b_kb, 1)));
    if (t.each) {
        t.b = scratch_get(FOR_ALL, (size_t)(blocks * (t.a_kb + t.b_kb)) + 64);
        if (!t.b) {
            j->failed = true;
            return;
        }
        t.a = t.b + blocks * t.b_kb;
    }
    for (t.kb0 = 0; t.kb0 < p->kblocks; t.kb0 = t.kb1) {
        t.kb1 = MIN(t.kb0 + blocks, p->kblocks);
        pool_for((t.kb1 - t.kb0) * t.each * ((p->kc + SLICE - 1) / SLICE), 1, pack_together, &t);
        pool_each(j->down * j->across, together_parts, &t);
    }
}

static void epilogue_rows(void *arg, int64_t lo, int64_t hi) { run_epilogue(arg, lo, hi); }

/* --- sharing ------------------------------------------------------------------------------------------------------------ */
enum { MOST_DOWN = 256 };

/* How threads share a matrix, each way with what the busiest one has to do for a k: a unit is an element of B times a row.
 * Either everyone packs what its part needs, or all pack together and wait for one another once: true. */
static bool choose_sharing(job *j, int64_t threads)
{
    const gemm_plan *p = j->p;
    double cost = on_tiles(p) ? TILE_PACK_COST : PACK_COST * p->per, pack = p->pack_b ? cost : 0;
    double pack_a = p->pack_a ? cost * PACK_A_COST / PACK_COST : 0;
    double m = (double)p->d.m, n = (double)p->d.n;
    /* Units in the time that waiting takes, and that an element from another thread's cache does. */
    double rate = (on_tiles(p) ? 16 : p->per) * (p->wide ? 0.5 : 1), far = 3 * rate;
    double meet = rate * 60e3 * (3 + 0.3 * (double)threads) / (double)MAX(p->kg, 1);
    double packed = (pack * n + pack_a * m) / (double)threads + (pack + pack_a > 0 ? 2 : 1) * meet,
           best = 1e300;
    bool result = false;
    j->down = j->across = 1;
    for (int64_t down = 1; down <= MIN(MIN(8 * threads, p->mpan), (int64_t)MOST_DOWN); down++) {
        int64_t most = p->swapped && p->temp ? 1 : MIN(8 * threads / down, p->npan);
        for (int64_t across = 1; across <= most; across++) {
            double rows = (double)MIN((p->mpan + down - 1) / down * p->mr, p->d.m);
            double cols = (double)MIN((p->npan + across - 1) / across * p->nv * p->W, p->d.n);
            double turns = (double)((down * across + threads - 1) / threads);
            double now = turns * (cols * (pack + rows) + rows * pack_a) + (down * across > 1 ? meet : 0);
            if (down * across <= threads && now < best && p->d.share != 2)
                best = now, result = false, j->down = down, j->across = across;
            now = packed + turns * (rows * cols + far * (rows + cols));
            if (now < best && p->d.share != 1 && cols * (double)(p->kc * esize(p)) <= B_BLOCK)
                best = now, result = true, j->down = down, j->across = across;
        }
    }
    return result;
}

/* One matrix of the batch. */
static bool run_one(job *j, bool threads)
{
    const gemm_plan *p = j->p;
    if (p->few || p->few_pairs) {
        if (threads)
            pool_for(p->d.n, 64, few_columns, j);
        else
            few_columns(j, 0, p->d.n);
        if (j->e)
            run_epilogue(j, 0, p->swapped ? p->d.n : p->d.m);
        return true;
    }
    if (!threads || pool_threads() == 1) {
        own(j, 0, p->mpan, 0, p->npan);
        if (j->e && p->swapped)
            run_epilogue(j, 0, p->d.n);
        return !j->failed;
    }
    _Atomic int left[MOST_DOWN];
    bool all = choose_sharing(j, pool_threads());
    for (int64_t i = 0; i < j->down; i++)
        atomic_init(&left[i], (int)j->across);
    j->left = j->e && j->across > 1 && !p->swapped ? left : NULL;
    if (all)
        run_together(j);
    else
        pool_for(j->down * j->across, 1, own_parts, j);
    if (j->e && p->swapped)
        pool_for(p->d.n, 1, epilogue_rows, j);
    return !j->failed;
}

/* --- one B for many products ------------------------------------------------------------------------------------------ */
static int64_t packed_block(const gemm_plan *p) { return p->kc * p->npan_block * p->nv * p->W * esize(p); }

bool gemm_packs(const gemm_plan *p)
{
    bool plain = p->unit == GEMM_fma && !p->temp;
    return p->W && !p->few && !p->few_pairs && !p->swapped &&
           (plain || p->unit == GEMM_dpbf16 || p->unit == GEMM_tiles16);
}
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
            kblocks = MIN(p->kblocks, (depth + p->kc * p->per - 1) / (p->kc * p->per)),
            mpan = MIN(p->mpan, rows / p->mr);
    while (mpan < p->mpan && panel_row(p, mpan) < rows)
        mpan++;
    j.depth = (depth + p->per - 1) / p->per;
    if (on_tiles(p))
        j.depth = (j.depth + 15) / 16 * 16;
    if (p->temp && !panel_temp(p)) {
        j.c_row = temp_row(p);
        j.c = scratch_get(FOR_C, (size_t)(p->mpan * p->mr * j.c_row * esize(p)) + 64);
        if (!j.c)
            return false;
    }
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
           : t == VM_i8  ? (double)((const int8_t *)p)[i]
           : t == VM_f16 ? (double)vnum_from_f16(((const uint16_t *)p)[i])
                         : (double)vnum_from_bf16(((const uint16_t *)p)[i]);
}
static void put(vir_mem t, char *p, int64_t i, double v)
{
    switch (t) {
    case VM_f64: ((double *)p)[i] = v; break;
    case VM_f32: ((float *)p)[i] = (float)v; break;
    case VM_f16: ((uint16_t *)p)[i] = vnum_to_f16((float)v); break;
    case VM_i32: ((int32_t *)p)[i] = (int32_t)v; break;
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
        if (p->temp && !p->few && !p->few_pairs) {
            j.c_row = temp_row(p);
            j.c = panel_temp(p) ? NULL
                                : scratch_get(FOR_C, (size_t)(p->mpan * p->mr * j.c_row * esize(p)) + 64);
            if (!j.c && !panel_temp(p)) {
                bj->failed = true;
                continue;
            }
        }
        if (!run_one(&j, bj->threads))
            bj->failed = true;
    }
}

/* The row that is added, in float and as long as whole tiles are wide; NULL: out of memory. */
static const void *bias_row(const gemm_plan *p, const void *bias)
{
    int64_t n = p->d.n, all = p->npan * p->nv * p->W;
    float *row = scratch_get(FOR_BIAS, (size_t)all * sizeof *row + 64);
    if (!row)
        return NULL;
    if (is_narrow(p->d.c.type))
        gemm_widen_row(p->d.c.type, p->isa, bias, n, row);
    else
        memcpy(row, bias, sizeof *row * (size_t)n);
    memset(row + n, 0, sizeof *row * (size_t)(all - n));
    return row;
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
    if (bias && p->temp && !p->few_pairs && p->isa != ISA_none && d->k && !(bj.bias = bias_row(p, bias)))
        return err_set(err, ERR_oom, "out of memory in a matrix product");
    bool many = d->batch >= 2 * pool_threads() || (d->batch > 1 && work < 1e6);
    bj.threads = !many && work > 2e5;
    if (many && work > 1e6)
        pool_each(d->batch, run_batches, &bj);
    else if (many && work * (double)d->batch > 2e5)
        pool_for(d->batch, 1, run_batches, &bj);
    else
        run_batches(&bj, 0, d->batch);
    return bj.failed ? err_set(err, ERR_oom, "out of memory in a matrix product") : true;
}
