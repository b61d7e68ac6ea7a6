/* gemm_tile.c - machine code for one register tile of a matrix product. */
#include "target/x64/gemm_int.h"
#include "target/x64/tile.h"
#include <stdio.h>

/* Registers: rdi a, rsi b, rdx c, rcx k, r8 c_row, r9 {alpha, beta}. Accumulators come first, then the row of B. */
typedef struct tile {
    x64 e;
    const gemm_tile *t;
    int vl, vbytes, elem, bvec, avec, mask; /* mask: AVX2 mask register */
    int beta;
    bool z, two; /* AVX-512; room for two elements of A */
} tile;

static int acc(const tile *g, int i, int v) { return i * g->t->nv + v; }
static bool masked(const tile *g, int v) { return g->t->last && v == g->t->nv - 1; }

static void op_mem(tile *g, x64_vop op, int dst, int src1, x64_mem m, bool bcast)
{
    x64_v i = { .op = op,
                .vl = (int8_t)g->vl,
                .dst = (int8_t)dst,
                .src1 = (int8_t)src1,
                .bcast = bcast,
                .rm = { .is_mem = true, .m = m } };
    x64_vec(&g->e, &i);
}
static void op_reg(tile *g, x64_vop op, int dst, int src1, int src2)
{
    x64_vec(&g->e, &(x64_v){ .op = op,
                             .vl = (int8_t)g->vl,
                             .dst = (int8_t)dst,
                             .src1 = (int8_t)src1,
                             .rm.reg = (int8_t)src2 });
}

static void load_row(tile *g, int dst, x64_mem m, int v)
{
    bool w = g->t->wide;
    x64_v i = { .op = w ? XV_movupd_l : XV_movups_l,
                .vl = (int8_t)g->vl,
                .dst = (int8_t)dst,
                .rm = { .is_mem = true, .m = m } };
    if (masked(g, v) && g->z)
        i.k = 1, i.z = true;
    else if (masked(g, v))
        i.op = w ? XV_maskmovpd_l : XV_maskmovps_l, i.src1 = (int8_t)g->mask;
    x64_vec(&g->e, &i);
}
static void store_row(tile *g, int src, x64_mem m, int v)
{
    bool w = g->t->wide;
    x64_v i = { .op = w ? XV_movupd_s : XV_movups_s,
                .vl = (int8_t)g->vl,
                .dst = (int8_t)src,
                .rm = { .is_mem = true, .m = m } };
    if (masked(g, v) && g->z)
        i.k = 1;
    else if (masked(g, v))
        i.op = w ? XV_maskmovpd_s : XV_maskmovps_s, i.src1 = (int8_t)g->mask;
    x64_vec(&g->e, &i);
}

/* One k: a row of B, then every element of A's column against it. */
static void step(void *tile_of, int u)
{
    tile *g = tile_of;
    const gemm_tile *t = g->t;
    x64_vop fma = t->wide                  ? XV_fma231pd
                  : t->unit == GEMM_dpbf16 ? XV_dpbf16ps
                  : t->unit == GEMM_dpbusd ? XV_pdpbusd
                                           : XV_fma231ps;
    x64_vop bc = t->wide ? XV_bcastsd : XV_bcastss;
    for (int v = 0; v < t->nv; v++)
        load_row(g, g->bvec + v, (x64_mem){ RSI, X64_NOREG, 1, u * t->b_row + v * g->vbytes }, v);
    for (int i = 0; i < t->mr; i++) {
        x64_mem m = { RDI, X64_NOREG, 1, i * t->a_row + u * t->a_col };
        if (g->z && t->nv <= 2) { /* the broadcast rides in the multiplication */
            for (int v = 0; v < t->nv; v++)
                op_mem(g, fma, acc(g, i, v), g->bvec + v, m, true);
            continue;
        }
        int a = g->avec + (i & 1 & g->two);
        op_mem(g, bc, a, 0, m, false);
        for (int v = 0; v < t->nv; v++)
            op_reg(g, fma, acc(g, i, v), g->bvec + v, a);
    }
}

static void finish_row(tile *g, int i)
{
    const gemm_tile *t = g->t;
    bool w = t->wide;
    for (int v = 0; v < t->nv; v++) {
        x64_mem m = { RDX, X64_NOREG, 1, v * g->vbytes };
        int r = acc(g, i, v), tmp = g->bvec;
        if (t->scaled)
            op_reg(g, w ? XV_mulpd : XV_mulps, r, r, g->avec);
        if (t->mode) {
            load_row(g, tmp, t->mode == 3 ? (x64_mem){ R9, X64_NOREG, 1, v * g->vbytes } : m, v);
            if (t->mode == 2)
                op_reg(g, w ? XV_fma231pd : XV_fma231ps, r, tmp, g->beta);
            else
                op_reg(g, w ? XV_addpd : t->unit == GEMM_dpbusd ? XV_paddd : XV_addps, r, r, tmp);
        }
        store_row(g, r, m, v);
    }
}

static void emit(tile *g)
{
    const gemm_tile *t = g->t;
    x64 *e = &g->e;
    bool w = t->wide;
    int unroll = t->mr * t->nv >= 12 ? 4 : 8;
    while (unroll > 1 &&
           ((int64_t)unroll * t->b_row > INT32_MAX / 2 || (int64_t)unroll * t->a_col > INT32_MAX / 2))
        unroll /= 2;
    x64_push(e, RBP); /* the prologue every kernel has, for the unwinder */
    x64_mov(e, RBP, RSP);
    if (t->last && g->z) {
        x64_imm(e, RAX, (1 << t->last) - 1);
        x64_kmov_from_gpr(e, 2, 1, RAX);
    } else if (t->last) {
        op_mem(g, XV_movups_l, g->mask, 0, (x64_mem){ X64_RIP, X64_NOREG, 1, 0 }, false);
    }
    for (int i = 0; i < t->mr * t->nv; i++)
        x64_vec(e, &(x64_v){ .op = XV_xorps,
                             .vl = (int8_t)(i >= 16 ? g->vl : 0),
                             .dst = (int8_t)i,
                             .src1 = (int8_t)i,
                             .rm.reg = (int8_t)i });
    /* C is fetched while the sums are made: its rows lie far apart, and waiting for them cost a tenth. */
    x64_mov(e, RAX, RDX);
    for (int i = 0; i < t->mr; i++) {
        for (int at = 0; at < t->nv * g->vbytes; at += 64)
            x64_prefetch(e, (x64_mem){ RAX, X64_NOREG, 1, at }, true);
        if (i + 1 < t->mr)
            x64_alu_rr(e, G_add, RAX, R8);
    }
    tile_k_loop(e, unroll, step, g, (tile_go[]){ { RDI, t->a_col }, { RSI, t->b_row } }, 2);
    if (t->scaled)
        op_mem(g, w ? XV_bcastsd : XV_bcastss, g->avec, 0, (x64_mem){ R9, X64_NOREG, 1, 0 }, false);
    if (t->mode == 2)
        op_mem(g, w ? XV_bcastsd : XV_bcastss, g->beta, 0, (x64_mem){ R9, X64_NOREG, 1, g->elem }, false);
    for (int i = 0; i < t->mr; i++) {
        finish_row(g, i);
        x64_alu_rr(e, G_add, RDX, R8);
    }
    x64_pop(e, RBP);
    x64_vzeroupper(e);
    x64_ret(e);
}

static void *build(const void *tile_of, tp_err *err)
{
    const gemm_tile *t = tile_of;
    tile g = { .t = t, .z = t->isa == ISA_avx512, .elem = t->wide ? 8 : 4 };
    uint8_t mask[64] = { 0 };
    char name[64];
    g.vl = g.z ? 2 : 1;
    g.vbytes = g.z ? 64 : 32;
    g.e.avx512 = g.z;
    g.bvec = t->mr * t->nv;
    g.avec = g.bvec + t->nv;
    g.mask = 15;
    g.two = g.avec + 1 < (g.z ? 32 : t->last ? 15 : 16);
    g.beta = t->nv >= 2 ? g.bvec + 1 : g.avec + 1;
    assert(g.avec < (g.z ? 32 : t->last ? 15 : 16) && g.beta < (g.z ? 32 : t->last ? 15 : 16));
    memset(mask, 0xff, (size_t)t->last * (size_t)g.elem);
    emit(&g);
    snprintf(name, sizeof name, "gemm_%s_%dx%d",
             t->wide                  ? "f64"
             : t->unit == GEMM_dpbf16 ? "bf16"
             : t->unit == GEMM_dpbusd ? "i8"
                                      : "f32",
             t->mr, t->nv * g.vbytes / g.elem);
    return tile_publish(&g.e, mask, sizeof mask, name, err);
}

gemm_micro gemm_tile_get(const gemm_tile *t, tp_err *err)
{
    static tile_cache cache = TILE_CACHE;
    gemm_micro fn;
    *(void **)&fn = tile_get(&cache, t, sizeof *t, build, err);
    return fn;
}
