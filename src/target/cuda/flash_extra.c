/* flash_extra.c - masks and dropout of attention's kernels. Both are looked at where the scores are, element by element. */
#include "target/cuda/flash_emit.h"
#include <stdio.h>

/* --- masks ---------------------------------------------------------------------------------------- */
/* mrow<r> = the mask at the lane's first column of row r, mstep = bytes from one column to the next. Rows beyond the last are the last. */
void flash_bias_start(text *t)
{
    bool across = t->f.kind == FLASH_columns;
    if (!t->f.mask)
        return;
    P(t, "ld.param.u64 q0, [arg%d]", FLASH_bias);
    for (int i = 0; i < 2; i++) {
        P(t, "ld.param.u64 q1, [arg%d]", i ? FLASH_bias_head : FLASH_bias_batch);
        P(t, "cvt.s64.s32 q2, %s", i ? "qhead" : "batch");
        P(t, "mad.lo.s64 q0, q2, q1, q0");
    }
    P(t, "ld.param.u64 q1, [arg%d]", across ? FLASH_bias_col : FLASH_bias_row);
    P(t, "ld.param.u64 mstep, [arg%d]", across ? FLASH_bias_row : FLASH_bias_col);
    P(t, "cvt.s64.s32 q2, t2");
    P(t, "mad.lo.s64 q0, q2, mstep, q0");
    P(t, "sub.s32 r0, limit, 1");
    for (int r = 0; r < 2 * t->f.tiles; r++) {
        P(t, "min.s32 r1, row%d, r0", r);
        P(t, "cvt.s64.s32 q2, r1");
        P(t, "mad.lo.s64 mrow%d, q2, q1, q0", r);
    }
}

/* f0 = the mask's number in m<e>. */
static void widen_mask(text *t, int e)
{
    if (t->f.dt == DT_bf16) {
        P(t, "shl.b32 r2, m%d, 16", e);
        P(t, "mov.b32 f0, r2");
    } else {
        P(t, "cvt.u16.u32 mh, m%d", e);
        P(t, "cvt.f32.f16 f0, mh");
    }
}

void flash_bias_tile(text *t)
{
    if (!t->f.mask)
        return;
    P(t, "sub.s32 r1, meets, col");
    P(t, "sub.s32 r1, r1, t2");
    P(t, "cvt.s64.s32 q1, col");
    for (int r = 0; r < 2 * t->f.tiles; r++) {
        P(t, "mad.lo.s64 ma, q1, mstep, mrow%d", r);
        for (int e = 0; e < 2 * t->nt; e++) {
            P(t, "setp.gt.s32 p3, r1, %d", column(e));
            P(t, "mad.lo.s64 q0, mstep, %d, ma", column(e));
            P(t, "mov.b32 m%d, 0", e);
            P(t, "@p3 ld.global.nc.u%d m%d, [q0]", t->f.mask == FLASH_bool ? 8 : 16, e);
        }
        for (int e = 0; e < 2 * t->nt; e++) {
            int s = score(t, r, e);
            if (t->f.mask == FLASH_bool) {
                P(t, "setp.ne.s32 p3, m%d, 0", e);
                P(t, "selp.f32 s%d, s%d, ninf, p3", s, s);
            } else {
                widen_mask(t, e);
                P(t, "fma.rn.f32 s%d, s%d, scale, f0", s, s);
            }
        }
    }
}

/* --- dropout -------------------------------------------------------------------------------------- */
void flash_drop_start(text *t) /* the keys of all rounds, which are those of the block */
{
    if (!t->f.drops)
        return;
    P(t, "ld.param.u64 q0, [arg%d]", FLASH_seed);
    P(t, "ld.global.nc.u64 q1, [q0]");
    P(t, "ld.global.nc.u64 first, [q0+8]");
    P(t, "cvt.u32.u64 ka0, q1");
    P(t, "shr.u64 q1, q1, 32");
    P(t, "cvt.u32.u64 kb0, q1");
    for (int i = 1; i < 10; i++) {
        P(t, "add.s32 ka%d, ka%d, 0x9E3779B9", i, i - 1);
        P(t, "add.s32 kb%d, kb%d, 0xBB67AE85", i, i - 1);
    }
    flash_ld_int(t, "r0", FLASH_keep);
    P(t, "mov.b32 keep, r0");
    flash_ld_int(t, "r0", FLASH_more);
    P(t, "mov.b32 more, r0");
    /* of the lanes that share blocks, which one it is: two neighbours, or of columns four rows */
    if (t->f.kind == FLASH_columns)
        P(t, "and.b32 mine, g, 3");
    else
        P(t, "and.b32 mine, lane, 1");
    P(t, "and.b32 r0, mine, 1");
    P(t, "setp.ne.s32 odd, r0, 0");
    P(t, "setp.eq.s32 even, r0, 0");
    P(t, "and.b32 r0, mine, 2");
    P(t, "setp.ne.s32 high, r0, 0");
    P(t, "setp.eq.s32 low, r0, 0");
}

/* line<r> = the number of row r's element at the lane's first column, among those of all probabilities; lines = from one column to the
 * next. */
void flash_drop_lines(text *t)
{
    bool across = t->f.kind == FLASH_columns;
    if (!t->f.drops)
        return;
    P(t, "ld.param.u64 q0, [arg%d]", FLASH_m);
    P(t, "ld.param.u64 q1, [arg%d]", FLASH_n);
    if (across)
        P(t, "mov.b64 lines, q1");
    else
        P(t, "mov.b64 lines, 1");
    for (int r = 0; r < 2 * t->f.tiles; r++) {
        char row[16];
        snprintf(row, sizeof row, "row%d", r);
        flash_matrix_number(t, "q2");
        P(t, "cvt.s64.s32 q3, %s", across ? "t2" : row);
        P(t, "mad.lo.s64 q2, q2, q0, q3");
        P(t, "cvt.s64.s32 q3, %s", across ? row : "t2");
        P(t, "mad.lo.s64 line%d, q2, q1, q3", r);
    }
}

/* v0 to v3 = the block that element idx is in: Philox 4x32, ten rounds. */
static void draw_block(text *t)
{
    P(t, "shr.u64 blk, idx, 2");
    P(t, "add.s64 blk, blk, first");
    P(t, "cvt.u32.u64 v0, blk");
    P(t, "shr.u64 blk, blk, 32");
    P(t, "cvt.u32.u64 v1, blk");
    P(t, "mov.b32 v2, 0");
    P(t, "mov.b32 v3, 0");
    for (int i = 0; i < 10; i++) {
        P(t, "mul.hi.u32 u0, v0, 0xD2511F53");
        P(t, "mul.lo.u32 u1, v0, 0xD2511F53");
        P(t, "mul.hi.u32 u2, v2, 0xCD9E8D57");
        P(t, "mul.lo.u32 u3, v2, 0xCD9E8D57");
        P(t, "xor.b32 v0, u2, v1");
        P(t, "xor.b32 v0, v0, ka%d", i);
        P(t, "xor.b32 v2, u0, v3");
        P(t, "xor.b32 v2, v2, kb%d", i);
        P(t, "mov.b32 v1, u3");
        P(t, "mov.b32 v3, u1");
    }
}

/* to = the word of v that the last two bits of a register say, by predicates of those. */
static void pick(text *t, const char *to, const char *from, const char *low, const char *high)
{
    P(t, "selp.b32 u0, %s1, %s0, %s", from, from, low);
    P(t, "selp.b32 u1, %s3, %s2, %s", from, from, low);
    P(t, "selp.b32 %s, u1, u0, %s", to, high);
}

/* Does the element whose word is in a register stay? Bit e of kept<r>. */
static void note(text *t, const char *word, int r, int e)
{
    P(t, "shr.u32 r0, %s, 8", word);
    P(t, "cvt.rn.f32.u32 f0, r0");
    P(t, "mul.rn.f32 f0, f0, 0f33800000");
    P(t, "setp.lt.f32 p3, f0, keep");
    P(t, "selp.b32 r0, %d, 0, p3", 1 << e);
    P(t, "or.b32 kept%d, kept%d, r0", r, r);
}

/* q4 = the number of row r's element at the tile's first column. */
static void draw_ragged(text *t, int r)
{
    for (int e = 0; e < 2 * t->nt; e++) {
        P(t, "mad.lo.s64 idx, lines, %d, q4", column(e));
        draw_block(t);
        P(t, "cvt.u32.u64 r0, idx");
        P(t, "and.b32 r1, r0, 1");
        P(t, "setp.ne.s32 p3, r1, 0");
        P(t, "and.b32 r1, r0, 2");
        P(t, "setp.ne.s32 p5, r1, 0");
        pick(t, "w0", "v", "p3", "p5");
        note(t, "w0", r, e);
    }
}

/* Two neighbouring lanes have the halves of a block in each of two tiles: each makes one block. */
static void draw_pairs(text *t, int r)
{
    P(t, "mul.lo.u32 r1, mine, 8");
    P(t, "cvt.u64.u32 q5, r1");
    P(t, "add.s64 q4, q4, q5");
    for (int e = 0; e < 2 * t->nt; e += 4) {
        P(t, "add.s64 idx, q4, %d", column(e));
        draw_block(t);
        for (int i = 0; i < 2; i++) {
            P(t, "selp.b32 u%d, v%d, v%d, odd", i, i, i + 2); /* what the other one has of mine */
            P(t, "selp.b32 w%d, v%d, v%d, odd", i, i + 2, i); /* what I have of mine */
            P(t, "shfl.sync.bfly.b32 u%d, u%d, 1, 31, 0xffffffff", i, i);
        }
        for (int i = 0; i < 2; i++) {
            P(t, "selp.b32 w2, u%d, w%d, odd", i, i);
            P(t, "selp.b32 w3, w%d, u%d, odd", i, i);
            note(t, "w2", r, e + i);
            note(t, "w3", r, e + 2 + i);
        }
    }
}

/* Four lanes, whose rows are neighbours, have one word each of a block in each of four columns: each makes one block. */
static void draw_fours(text *t, int r)
{
    P(t, "and.b32 r1, mine, 2");
    P(t, "mul.lo.u32 r1, r1, 4");
    P(t, "and.b32 r2, mine, 1");
    P(t, "add.s32 r1, r1, r2");
    P(t, "cvt.u64.u32 q5, r1");
    P(t, "mad.lo.s64 q4, lines, q5, q4");
    for (int e = 0; e < 2 * t->nt; e += 4) {
        P(t, "mad.lo.s64 idx, lines, %d, q4", column(e));
        draw_block(t);
        pick(t, "w0", "v", "odd", "high");
        for (int d = 1; d < 4; d++) { /* the word of the lane whose number is mine xor d */
            pick(t, "u2", "v", d & 1 ? "even" : "odd", d & 2 ? "low" : "high");
            P(t, "shfl.sync.bfly.b32 w%d, u2, %d, 31, 0xffffffff", d, 4 * d);
        }
        for (int i = 0; i < 4; i++) { /* w<d> is of column mine xor d */
            pick(t, "u2", "w", i & 1 ? "even" : "odd", i & 2 ? "low" : "high");
            note(t, "u2", r, e + i);
        }
    }
}

/* kept<r> = which of the tile's elements in row r stay, a bit each. */
void flash_draw_tile(text *t)
{
    if (!t->f.drops)
        return;
    for (int r = 0; r < 2 * t->f.tiles; r++) {
        P(t, "mov.b32 kept%d, 0", r);
        P(t, "cvt.s64.s32 q4, col");
        P(t, "mad.lo.s64 q4, q4, lines, line%d", r);
        (t->f.ragged ? draw_ragged : t->f.kind == FLASH_columns ? draw_fours : draw_pairs)(t, r);
    }
}

/* reg = 0 where element e of row r is dropped; else times `more` where that is asked for. */
void flash_drop(text *t, const char *reg, int s, int r, int e, bool more)
{
    if (!t->f.drops)
        return;
    P(t, "and.b32 r0, kept%d, %d", r, 1 << e);
    P(t, "setp.ne.s32 p3, r0, 0");
    if (more)
        P(t, "mul.rn.f32 %s%d, %s%d, more", reg, s, reg, s);
    P(t, "selp.f32 %s%d, %s%d, z, p3", reg, s, reg, s);
}
