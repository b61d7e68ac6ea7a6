/* gemm_amx.c - machine code for products on AMX tiles: one or two tiles of sixteen rows against one or two of sixteen columns. */
#include "target/x64/gemm_int.h"
#include "target/x64/tile.h"
#include <stdio.h>

/* Registers as in gemm_tile.c: rdi a, rsi b, rdx c, rcx steps, r8 c_row, r9 a row to add. Tiles: 0..3 the sums, 4 and 5 rows
 * of A, 6 and 7 columns of B; a step takes 64 bytes of every row. */
typedef struct amx {
    x64 e;
    const gemm_tile *t;
} amx;
enum { A_ROW = RAX, B_ROW = R10, LOWER = R11 };

static void step(void *tile_of, int u)
{
    amx *g = tile_of;
    const gemm_tile *t = g->t;
    x64_tdp dot = t->unit == GEMM_tiles8 ? TDP_bssd : TDP_bf16ps;
    int mt = t->mr / 16;
    for (int i = 0; i < mt; i++) {
        x64_tile_load(&g->e, 4 + i, (x64_mem){ RDI, A_ROW, 1, u * t->a_col + i * 16 * t->a_row });
        for (int j = 0; j < t->nv; j++) {
            if (i == 0)
                x64_tile_load(&g->e, 6 + j, (x64_mem){ RSI, B_ROW, 1, u * 16 * t->b_row + j * 64 });
            x64_tile_dot(&g->e, dot, i * t->nv + j, 4 + i, 6 + j);
        }
    }
}

static void sums(amx *g, bool store)
{
    const gemm_tile *t = g->t;
    for (int i = 0; i < t->mr / 16; i++)
        for (int j = 0; j < t->nv; j++) {
            x64_mem m = { (int8_t)(i ? LOWER : RDX), R8, 1, j * 64 };
            if (store)
                x64_tile_store(&g->e, m, i * t->nv + j);
            else if (t->mode == 1)
                x64_tile_load(&g->e, i * t->nv + j, m);
            else if (t->mode == 3) /* rows zero bytes apart: the same one sixteen times */
                x64_tile_load(&g->e, i * t->nv + j, (x64_mem){ R9, LOWER, 1, j * 64 });
            else
                x64_tile_zero(&g->e, i * t->nv + j);
        }
}

static void emit(amx *g)
{
    const gemm_tile *t = g->t;
    x64 *e = &g->e;
    assert(t->mode == 0 || t->mode == 1 || t->mode == 3);
    x64_push(e, RBP);
    x64_mov(e, RBP, RSP);
    x64_imm(e, A_ROW, t->a_row);
    x64_imm(e, B_ROW, t->b_row);
    if (t->mode == 3) {
        x64_imm(e, LOWER, 0);
        sums(g, false);
    }
    x64_mov(e, LOWER, R8);
    x64_shift_i(e, 4, LOWER, 4);
    x64_alu_rr(e, G_add, LOWER, RDX);
    if (t->mode != 3)
        sums(g, false);
    tile_k_loop(e, 1, step, g, (tile_go[]){ { RDI, t->a_col }, { RSI, 16 * t->b_row } }, 2);
    sums(g, true);
    x64_pop(e, RBP);
    x64_ret(e);
}

static void *build(const void *tile_of, tp_err *err)
{
    amx g = { .t = tile_of };
    char name[64];
    g.e.avx512 = true;
    emit(&g);
    snprintf(name, sizeof name, "gemm_%s_%dx%d", g.t->unit == GEMM_tiles8 ? "tiles_i8" : "tiles_bf16",
             g.t->mr, g.t->nv * 16);
    return tile_publish(&g.e, NULL, 0, name, err);
}

gemm_micro gemm_amx_get(const gemm_tile *t, tp_err *err)
{
    static tile_cache cache = TILE_CACHE;
    gemm_micro fn;
    *(void **)&fn = tile_get(&cache, t, sizeof *t, build, err);
    return fn;
}

/* --- the state of a thread: eight tiles of sixteen rows of 64 bytes ----------------------------------------------------- */
static void *build_state(const void *key, tp_err *err)
{
    x64 e = { 0 };
    bool on = *(const uint8_t *)key;
    if (on)
        x64_tile_config(&e, (x64_mem){ RDI, X64_NOREG, 1, 0 });
    else
        x64_tile_release(&e);
    x64_ret(&e);
    return tile_publish(&e, NULL, 0, on ? "tiles_on" : "tiles_off", err);
}
bool gemm_amx_state(gemm_amx *s, tp_err *err)
{
    static tile_cache cache = TILE_CACHE;
    *(void **)&s->on = tile_get(&cache, &(uint8_t){ 1 }, 1, build_state, err);
    *(void **)&s->off = s->on ? tile_get(&cache, &(uint8_t){ 0 }, 1, build_state, err) : NULL;
    return s->off != NULL;
}

/* Palette 1, then bytes of a row and rows of each tile. */
const gemm_amx_config gemm_amx_all = { .palette = 1,
                                       .bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
                                       .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };
gemm_interpret *gemm_amx_instead;
