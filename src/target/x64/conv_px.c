/* conv_px.c - machine code for a tile of a convolution whose lanes are places along a row: mr channels by nv vectors,
 * which are written where they belong. */
#include "target/x64/conv_int.h"
#include "target/x64/tile.h"
#include <stdio.h>

/* Registers: rdi weights, rsi image, rdx result, rcx k, r8 off, r9 bytes between channels of the result, rax the offset of
 * this k. Accumulators come first, then vectors of the image, then broadcast weights, then the mask of AVX2. */
typedef struct tile {
    x64 e;
    const corr_px *t;
    int vl, vbytes, elem, bvec, avec, na, mask;
    bool z;
} tile;

static int vec_regs(gen_isa isa, bool last) { return isa == ISA_avx512 ? 32 : 16 - last; }

int corr_px_rows(gen_isa isa, int nv, bool last)
{
    return MIN((vec_regs(isa, last) - nv - 1) / nv, (int)CORR_ROWS);
}

static int acc(const tile *g, int r, int v) { return r * g->t->nv + v; }
static bool masked(const tile *g, int v) { return g->t->last && v % g->t->across == g->t->across - 1; }

static void move(tile *g, bool store, int reg, x64_mem m, int v)
{
    bool w = g->t->wide;
    x64_v i = { .vl = (int8_t)g->vl, .dst = (int8_t)reg, .rm = { .is_mem = true, .m = m } };
    i.op = store ? w ? XV_movupd_s : XV_movups_s : w ? XV_movupd_l : XV_movups_l;
    if (masked(g, v) && g->z)
        i.k = 1, i.z = !store;
    else if (masked(g, v)) {
        i.op = store ? w ? XV_maskmovpd_s : XV_maskmovps_s : w ? XV_maskmovpd_l : XV_maskmovps_l;
        i.src1 = (int8_t)g->mask;
    }
    x64_vec(&g->e, &i);
}

static void bcast(tile *g, int reg, int64_t at)
{
    x64_vec(&g->e, &(x64_v){ .op = g->t->wide ? XV_bcastsd : XV_bcastss,
                             .vl = (int8_t)g->vl,
                             .dst = (int8_t)reg,
                             .rm = { .is_mem = true, .m = { RDI, X64_NOREG, 1, (int32_t)at } } });
}

static void step(void *tile_of, int u)
{
    tile *g = tile_of;
    const corr_px *t = g->t;
    x64_load(&g->e, RAX, (x64_mem){ R8, X64_NOREG, 1, u * 8 });
    for (int v = 0; v < t->nv; v++)
        move(g, false, g->bvec + v,
             (x64_mem){ RSI, RAX, 1, v / t->across * t->b_line + v % t->across * g->vbytes }, v);
    for (int r = 0; r < t->mr; r++) {
        if (g->z && t->nv == 1) { /* the broadcast rides in the multiplication */
            x64_vec(&g->e, &(x64_v){ .op = t->wide ? XV_fma231pd : XV_fma231ps,
                                     .vl = (int8_t)g->vl,
                                     .dst = (int8_t)acc(g, r, 0),
                                     .src1 = (int8_t)g->bvec,
                                     .bcast = true,
                                     .rm = { .is_mem = true,
                                             .m = { RDI, X64_NOREG, 1, u * t->a_row + r * g->elem } } });
            continue;
        }
        int a = g->avec + r % g->na;
        bcast(g, a, (int64_t)u * t->a_row + r * g->elem);
        for (int v = 0; v < t->nv; v++)
            x64_vec(&g->e, &(x64_v){ .op = t->wide ? XV_fma231pd : XV_fma231ps,
                                     .vl = (int8_t)g->vl,
                                     .dst = (int8_t)acc(g, r, v),
                                     .src1 = (int8_t)(g->bvec + v),
                                     .rm.reg = (int8_t)a });
    }
}

static void emit(tile *g)
{
    const corr_px *t = g->t;
    x64 *e = &g->e;
    int unroll = t->mr * t->nv >= 12 ? 2 : 4;
    x64_push(e, RBP); /* the prologue every kernel has, for the unwinder */
    x64_mov(e, RBP, RSP);
    if (t->last && g->z) {
        x64_imm(e, RAX, (1 << t->last) - 1);
        x64_kmov_from_gpr(e, 2, 1, RAX);
    } else if (t->last)
        x64_vec(e, &(x64_v){ .op = XV_movups_l,
                             .vl = (int8_t)g->vl,
                             .dst = (int8_t)g->mask,
                             .rm = { .is_mem = true, .m = { X64_RIP, X64_NOREG, 1, 0 } } });
    for (int r = 0; r < t->mr; r++) /* the row before the weights is what sums start from */
        for (int v = 0; v < t->nv; v++)
            bcast(g, acc(g, r, v), (int64_t)r * g->elem - t->a_row);
    tile_k_loop(e, unroll, step, g, (tile_go[]){ { R8, 8 }, { RDI, t->a_row } }, 2);
    for (int r = 0; r < t->mr; r++) {
        for (int v = 0; v < t->nv; v++)
            move(g, true, acc(g, r, v),
                 (x64_mem){ RDX, X64_NOREG, 1, v / t->across * t->c_line + v % t->across * g->vbytes }, v);
        x64_alu_rr(e, G_add, RDX, R9);
    }
    x64_pop(e, RBP);
    x64_vzeroupper(e);
    x64_ret(e);
}

static void *build(const void *tile_of, tp_err *err)
{
    const corr_px *t = tile_of;
    tile g = { .t = t, .z = t->isa == ISA_avx512, .elem = t->wide ? 8 : 4 };
    uint8_t mask[64] = { 0 };
    char name[64];
    g.vl = g.z ? 2 : 1;
    g.vbytes = g.z ? 64 : 32;
    g.e.avx512 = g.z;
    g.bvec = t->mr * t->nv;
    g.avec = g.bvec + t->nv;
    g.mask = 15;
    g.na = MIN(vec_regs((gen_isa)t->isa, t->last != 0) - g.avec, 4);
    assert(g.na >= 1);
    memset(mask, 0xff, (size_t)t->last * (size_t)g.elem);
    emit(&g);
    snprintf(name, sizeof name, "conv_%s_%dc_x%d", t->wide ? "f64" : "f32", t->mr, t->nv * g.vbytes / g.elem);
    return tile_publish(&g.e, mask, sizeof mask, name, err);
}

corr_micro corr_px_get(const corr_px *t, tp_err *err)
{
    static tile_cache cache = TILE_CACHE;
    corr_micro fn;
    *(void **)&fn = tile_get(&cache, t, sizeof *t, build, err);
    return fn;
}
