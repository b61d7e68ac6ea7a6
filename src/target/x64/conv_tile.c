/* conv_tile.c - machine code for one register tile of a convolution. */
#include "target/x64/conv_int.h"
#include "target/x64/tile.h"
#include <stdio.h>

/* Registers: rdi a, rsi b, rdx c, rcx k, r8 off, r9 c_row, rax the offset of this k. Accumulators come first, then the
 * row of B, then broadcast elements of A. */
typedef struct tile {
    x64 e;
    const corr_tile *t;
    int vl, vbytes, bvec, avec, na;
    bool z, ride; /* AVX-512; the broadcast rides in the multiplication */
} tile;

int corr_max_rows(gen_isa isa, int nv)
{
    int regs = isa == ISA_avx512 ? 32 : 16;
    return MIN((regs - nv - (nv == 1 && isa == ISA_avx512 ? 0 : 1)) / nv, (int)CORR_ROWS);
}

static int acc(const tile *g, int r, int v) { return r * g->t->nv + v; }

static void vec_mem(tile *g, x64_vop op, int dst, int src1, x64_mem m, bool bcast)
{
    x64_vec(&g->e, &(x64_v){ .op = op,
                             .vl = (int8_t)g->vl,
                             .dst = (int8_t)dst,
                             .src1 = (int8_t)src1,
                             .bcast = bcast,
                             .rm = { .is_mem = true, .m = m } });
}

static void step(void *tile_of, int u)
{
    tile *g = tile_of;
    const corr_tile *t = g->t;
    x64_vop fma = t->wide ? XV_fma231pd : XV_fma231ps, bc = t->wide ? XV_bcastsd : XV_bcastss;
    x64_load(&g->e, RAX, (x64_mem){ R8, X64_NOREG, 1, u * 8 });
    for (int v = 0; v < t->nv; v++)
        vec_mem(g, t->wide ? XV_movupd_l : XV_movups_l, g->bvec + v, 0,
                (x64_mem){ RSI, X64_NOREG, 1, u * t->b_row + v * g->vbytes }, false);
    for (int r = 0; r < t->mr; r++) {
        x64_mem m = { RDI, RAX, 1, t->disp[r] };
        if (g->ride) {
            for (int v = 0; v < t->nv; v++)
                vec_mem(g, fma, acc(g, r, v), g->bvec + v, m, true);
            continue;
        }
        int a = g->avec + r % g->na;
        vec_mem(g, bc, a, 0, m, false);
        for (int v = 0; v < t->nv; v++)
            x64_vec(&g->e, &(x64_v){ .op = fma,
                                     .vl = (int8_t)g->vl,
                                     .dst = (int8_t)acc(g, r, v),
                                     .src1 = (int8_t)(g->bvec + v),
                                     .rm.reg = (int8_t)a });
    }
}

static void emit(tile *g)
{
    const corr_tile *t = g->t;
    x64 *e = &g->e;
    int unroll = t->mr * t->nv >= 12 ? 2 : 4;
    x64_push(e, RBP); /* the prologue every kernel has, for the unwinder */
    x64_mov(e, RBP, RSP);
    for (int i = 0; i < t->mr * t->nv; i++)
        x64_vec(e, &(x64_v){ .op = XV_xorps,
                             .vl = (int8_t)(i >= 16 ? g->vl : 0),
                             .dst = (int8_t)i,
                             .src1 = (int8_t)i,
                             .rm.reg = (int8_t)i });
    tile_k_loop(e, unroll, step, g, (tile_go[]){ { R8, 8 }, { RSI, t->b_row } }, 2);
    for (int r = 0; r < t->mr; r++) {
        for (int v = 0; v < t->nv; v++) {
            x64_mem m = { RDX, X64_NOREG, 1, v * g->vbytes };
            int x = acc(g, r, v);
            if (t->add)
                vec_mem(g, t->wide ? XV_addpd : XV_addps, x, x, m, false);
            vec_mem(g, t->wide ? XV_movupd_s : XV_movups_s, x, 0, m, false);
        }
        x64_alu_rr(e, G_add, RDX, R9);
    }
    x64_pop(e, RBP);
    x64_vzeroupper(e);
    x64_ret(e);
}

static void *build(const void *tile_of, tp_err *err)
{
    const corr_tile *t = tile_of;
    tile g = { .t = t, .z = t->isa == ISA_avx512 };
    char name[64];
    g.vl = g.z ? 2 : 1;
    g.vbytes = g.z ? 64 : 32;
    g.e.avx512 = g.z;
    g.bvec = t->mr * t->nv;
    g.avec = g.bvec + t->nv;
    g.na = MIN((g.z ? 32 : 16) - g.avec, 4);
    g.ride = g.z && t->nv == 1;
    assert(g.na >= 1 || g.ride);
    emit(&g);
    snprintf(name, sizeof name, "conv_%s_%dx%d", t->wide ? "f64" : "f32", t->mr,
             t->nv * g.vbytes / (t->wide ? 8 : 4));
    return tile_publish(&g.e, NULL, 0, name, err);
}

corr_micro corr_tile_get(const corr_tile *t, tp_err *err)
{
    static tile_cache cache = TILE_CACHE;
    corr_micro fn;
    *(void **)&fn = tile_get(&cache, t, sizeof *t, build, err);
    return fn;
}
