/* flash_text.c - see flash_text.h.
 *
 * Fragments of mma.m16n8k16: lane l has g = l / 4 and t = l % 4. Of a product's 16 x 8 it holds rows g and g + 8, columns 2t and 2t + 1;
 * two such tiles side by side, rounded, are the first factor of the next product. Tiles in shared memory have rows of d elements and
 * 16 bytes more: eight rows at one column then lie in different banks, whatever d is. */
#include "target/cuda/flash_emit.h"
#include <stdio.h>

bool flash_is_wide(flash_kind kind, int d) /* others have no registers left for it */
{
    return d == 64 || (d == 128 && kind == FLASH_forward);
}

flash_form flash_wide_of(flash_kind kind, dtype dt, int d)
{
    return (flash_form){ kind, dt, d, .warps = 8, .tiles = 1, .cols = 64, .wide = true };
}

flash_form flash_form_of(flash_kind kind, dtype dt, int d, bool small)
{
    flash_form f = { kind, dt, d, .warps = 4, .tiles = 1 };
    if (kind ==
        FLASH_forward) { /* two stages of two tiles within 48 KB; registers for several blocks at once */
        f.cols = d <= 80 ? 64 : d <= 112 ? 48 : 32;
        f.tiles = !small && d <= 64 ? 2 : 1;
    } else { /* two products more, and their factors, are in registers */
        f.cols = d <= 64 ? 32 : 16;
        f.warps = kind == FLASH_rows && !small && d <= 64 ? 8 : 4;
    }
    return f;
}

static void write_head(text *t)
{
    const flash_form *f = &t->f;
    strbuf_addf(t->b, ".version %s\n.target %s\n.address_size 64\n.visible .entry flash(\n",
                f->wide ? "8.0" : "7.8", f->wide ? "sm_90a" : "sm_80");
    for (int i = 0; i < FLASH_PARAMS; i++)
        strbuf_addf(t->b, "\t.param .u64 arg%d%s\n", i, i + 1 < FLASH_PARAMS ? "," : ")");
    strbuf_addf(t->b, ".reqntid %d, 1, 1\n{\n", 32 * f->warps);
    int rows = 2 * f->tiles, acc = 4 * f->tiles * t->nd, sc = 4 * f->tiles * t->nt, own = f->tiles * f->d / 4,
        probs = f->tiles * f->cols / 4;
    if (f->wide)
        flash_wide_head(t);
    else
        P(t, ".shared .align 16 .b8 sh[%d]", 4 * t->tile);
    P(t, ".reg .pred p<6>");
    P(t,
      ".reg .b32 tid, lane, warp, g, t2, block, batch, own0, wrow, limit, meets, reach, col, next, end, "
      "into, "
      "into_sum, nl, nl_sum, tl, tl_sum, left, size, qhead, khead, heads, group, r<12>, row<%d>, lo<%d>, "
      "hi<%d>",
      rows, rows, rows);
    P(t, ".reg .b64 q<12>, xp, yp, xstep, ystep, xtile, ytile, xa, ya, stat, at<%d>", rows);
    P(t, ".reg .b32 a<%d>, c<%d>, pa<%d>, pb<%d>, b<%d>", own, own, probs, probs, 8 * t->nt * t->nd + 16);
    P(t, ".reg .f32 z, ninf, by, scale, f<8>, top<%d>, sum<%d>, base<%d>, x<%d>, y<%d>, s<%d>, e<%d>", rows,
      rows, rows, acc, acc, sc, sc);
    if (f->mask) {
        P(t, ".reg .b64 mstep, ma, mrow<%d>", rows);
        P(t, ".reg .b32 m<%d>", 2 * t->nt);
        P(t, ".reg .b16 mh");
    }
    if (f->drops) {
        P(t, ".reg .b64 first, idx, blk, lines, line<%d>", rows);
        P(t, ".reg .b32 ka<10>, kb<10>, v<4>, w<4>, u<4>, kept<%d>, mine", rows);
        P(t, ".reg .pred odd, even, high, low");
        P(t, ".reg .f32 keep, more");
    }
    if (f->given)
        P(t, ".reg .b16 oh0, oh1");
}

/* reg = the address of row `row` (a register of 32 bits) of a matrix in the block's batch. */
void flash_row_address(text *t, const char *reg, int which, const char *row)
{
    P(t, "ld.param.u64 q0, [arg%d]", FLASH_q + which);
    P(t, "ld.param.u64 q1, [arg%d]", FLASH_batch + which);
    P(t, "ld.param.u64 q2, [arg%d]", FLASH_row + which);
    P(t, "cvt.s64.s32 q3, batch");
    P(t, "mad.lo.s64 q0, q3, q1, q0");
    bool of_keys = which == FLASH_k || which == FLASH_v ||
                   (t->f.kind == FLASH_columns && (which == FLASH_x || which == FLASH_y));
    P(t, "ld.param.u64 q1, [arg%d]", FLASH_head + which);
    P(t, "cvt.s64.s32 q3, %s", of_keys ? "khead" : "qhead");
    P(t, "mad.lo.s64 q0, q3, q1, q0");
    P(t, "cvt.s64.s32 q3, %s", row);
    P(t, "mad.lo.s64 %s, q3, q2, q0", reg);
}

/* reg = which of all matrices of q the block has. */
void flash_matrix_number(text *t, const char *reg)
{
    P(t, "mad.lo.u32 r11, batch, heads, qhead");
    P(t, "cvt.u64.u32 %s, r11", reg);
}

void flash_ld_int(text *t, const char *reg, int param)
{
    P(t, "ld.param.u64 q0, [arg%d]", param);
    P(t, "cvt.u32.u64 %s, q0", reg);
}

/* Where the block, its warp and its lane are. */
static void write_place(text *t)
{
    const flash_form *f = &t->f;
    bool across = f->kind == FLASH_columns;
    P(t, "mov.u32 tid, %%tid.x");
    P(t, "and.b32 lane, tid, 31");
    P(t, "shr.u32 warp, tid, 5");
    P(t, "shr.u32 g, lane, 2");
    P(t, "and.b32 t2, lane, 3");
    P(t, "shl.b32 t2, t2, 1"); /* the first of its two columns */
    P(t, "mov.u32 block, %%ctaid.x");
    flash_ld_int(t, "r0", FLASH_blocks);
    P(t, "div.u32 batch, block, r0");
    P(t, "mul.lo.u32 r1, batch, r0");
    P(t, "sub.u32 r1, block, r1");
    flash_ld_int(
        t, "heads",
        FLASH_heads); /* the number of a matrix is that of its element of the batch and of its head */
    flash_ld_int(t, "group", FLASH_group);
    P(t, "div.u32 r2, heads, group");
    P(t, "mov.u32 khead, batch");
    P(t, "div.u32 batch, khead, %s", across ? "r2" : "heads");
    P(t, "mul.lo.u32 r3, batch, %s", across ? "r2" : "heads");
    P(t, "sub.u32 khead, khead, r3");
    if (across)
        P(t, "mul.lo.u32 qhead, khead, group"); /* the first of them */
    else {
        P(t, "mov.u32 qhead, khead");
        P(t, "div.u32 khead, qhead, group");
    }
    if (!across) { /* the last rows meet most columns: they go first */
        P(t, "sub.u32 r1, r0, r1");
        P(t, "sub.u32 r1, r1, 1");
    }
    P(t, "mul.lo.u32 own0, r1, %d", flash_block_rows(f));
    P(t, "mul.lo.u32 r1, warp, %d", 16 * f->tiles);
    P(t, "add.s32 wrow, own0, r1");
    flash_ld_int(t, "limit", across ? FLASH_n : FLASH_m);
    flash_ld_int(t, "meets", across ? FLASH_m : FLASH_n);
    flash_ld_int(t, "reach", FLASH_reach);
    flash_ld_int(t, "r0", FLASH_scale);
    P(t, "mov.b32 scale, r0");
    if (t->exact)
        P(t, "mov.f32 by, " LOG2E);
    else
        P(t, "mul.rn.f32 by, scale, " LOG2E);
    P(t, "mov.f32 z, 0f00000000");
    P(t, "mov.f32 ninf, " NINF);
    for (int r = 0; r < 2 * f->tiles; r++) {
        P(t, "add.s32 row%d, wrow, g", r);
        P(t, "add.s32 row%d, row%d, %d", r, r, 8 * r);
        if (across) { /* columns [lo, hi) are met, counted from the lane's first */
            P(t, "sub.s32 lo%d, row%d, reach", r, r);
            P(t, "add.s32 lo%d, lo%d, 1", r, r);
            P(t, "sub.s32 lo%d, lo%d, t2", r, r);
            P(t, "sub.s32 hi%d, meets, t2", r);
        } else {
            P(t, "add.s32 hi%d, row%d, reach", r, r);
            P(t, "min.s32 hi%d, hi%d, meets", r, r);
            P(t, "sub.s32 hi%d, hi%d, t2", r, r);
        }
    }
}

/* Fragments of the block's own rows of a matrix: the first factor of scores. Rows beyond the last are the last again. */
static void load_own(text *t, const char *reg, int which)
{
    int ks = t->f.d / 16;
    for (int r = 0; r < 2 * t->f.tiles; r++) {
        P(t, "sub.s32 r0, limit, 1");
        P(t, "min.s32 r0, row%d, r0", r);
        flash_row_address(t, "q4", which, "r0");
        P(t, "mul.wide.u32 q5, t2, 2");
        P(t, "add.s64 q4, q4, q5");
        for (int k = 0; k < ks; k++)
            for (int h = 0; h < 2; h++)
                P(t, "ld.global.nc.b32 %s%d, [q4+%d]", reg, ((r / 2) * ks + k) * 4 + r % 2 + 2 * h,
                  k * 32 + h * 16);
    }
}

/* --- streaming ------------------------------------------------------------------------------------ */
int flash_chunks_of(
    const text *t) /* threads of a row: a power of two, of which some may have nothing to do */
{
    int n = 2;
    while (n * 8 < t->f.d)
        n *= 2;
    return n;
}
int flash_rows_at_once(const text *t) { return 32 * t->f.warps / flash_chunks_of(t); }

/* From column `col` on. p4: the thread has nothing to copy. */
static void stream_start(text *t, int x, int y)
{
    int chunks = flash_chunks_of(t), at_once = flash_rows_at_once(t);
    static const char *const to[2] = { "xp", "yp" }, *const step[2] = { "xstep", "ystep" },
                             *const all[2] = { "xtile", "ytile" };
    P(t, "and.b32 r1, tid, %d", chunks - 1);
    P(t, "shr.u32 r2, tid, %d", __builtin_ctz((unsigned)chunks));
    P(t, "setp.ge.u32 p4, r1, %d", t->f.d / 8);
    P(t, "setp.ge.or.u32 p4, r2, %d, p4", t->f.cols);
    P(t, "shl.b32 r1, r1, 4");
    P(t, "add.s32 r3, col, r2");
    P(t, "sub.s32 left, meets, r3");
    for (int i = 0; i < 2; i++) {
        flash_row_address(t, to[i], i ? y : x, "r3");
        P(t, "cvt.u64.u32 q3, r1");
        P(t, "add.s64 %s, %s, q3", to[i], to[i]);
        P(t, "mul.lo.s64 %s, q2, %d", step[i], at_once);
        P(t, "mul.lo.s64 %s, q2, %d", all[i], t->f.cols);
    }
    P(t, "mov.u32 r4, sh");
    if (t->f.wide) {
        P(t, "shr.u32 r1, r1, 4");
        flash_wide_place(t);
        P(t, "add.u32 into, r4, mine_at");
    } else {
        P(t, "mad.lo.u32 into, r2, %d, r1", t->pitch);
        P(t, "add.u32 into, into, r4");
    }
    /* rows of ldmatrix: as they lie, matrices follow each other along a row, then down; turned, down first */
    P(t, "and.b32 r1, lane, 7");
    P(t, "shr.u32 r2, lane, 4");
    P(t, "shr.u32 r3, lane, 3");
    P(t, "and.b32 r3, r3, 1");
    P(t, "mad.lo.u32 nl, r2, 8, r1");
    P(t, "mul.lo.u32 nl, nl, %d", t->pitch);
    P(t, "mad.lo.u32 nl, r3, 16, nl");
    P(t, "mad.lo.u32 tl, r3, 8, r1");
    P(t, "mul.lo.u32 tl, tl, %d", t->pitch);
    P(t, "mad.lo.u32 tl, r2, 16, tl");
    if (t->f.wide)
        P(t, "mov.b32 nl, 0"); /* rooms are read as a whole */
    P(t, "add.u32 nl, nl, r4");
    P(t, "add.u32 tl, tl, r4");
    static const char *const two[] = { "into", "nl", "tl" };
    for (int i = 0; i < 3; i++) { /* x = sum - x goes from one stage to the other */
        P(t, "add.u32 %s_sum, %s, %s", two[i], two[i], two[i]);
        P(t, "add.u32 %s_sum, %s_sum, %d", two[i], two[i], 2 * t->tile);
    }
}
static void turn(text *t, const char *reg) { P(t, "sub.u32 %s, %s_sum, %s", reg, reg, reg); }

/* Both tiles of the next columns; rows that are not there become zeros. */
static void copy_tiles(text *t)
{
    int at_once = flash_rows_at_once(t);
    const char *who = flash_chunks_of(t) * 8 == t->f.d && at_once <= t->f.cols ? "" : "@!p4 ";
    int pitch = t->f.wide ? flash_wide_row() : t->pitch;
    P(t, "mov.b64 xa, xp");
    P(t, "mov.b64 ya, yp");
    for (int r = 0; r < t->f.cols; r += at_once) {
        P(t, "setp.gt.s32 p0, left, %d", r);
        P(t, "selp.b32 size, 16, 0, p0");
        P(t, "%scp.async.cg.shared.global [into+%d], [xa], 16, size", who, r * pitch);
        P(t, "%scp.async.cg.shared.global [into+%d], [ya], 16, size", who, t->tile + r * pitch);
        if (r + at_once < t->f.cols) {
            P(t, "add.s64 xa, xa, xstep");
            P(t, "add.s64 ya, ya, ystep");
        }
    }
    P(t, "cp.async.commit_group");
    P(t, "add.s64 xp, xp, xtile");
    P(t, "add.s64 yp, yp, ytile");
    P(t, "sub.s32 left, left, %d", t->f.cols);
}

/* Columns [col, end) that the block meets; tiles begin at multiples of their size. */
void flash_find_columns(text *t)
{
    if (t->f.kind == FLASH_columns) {
        P(t, "sub.s32 col, own0, reach");
        P(t, "add.s32 col, col, 1");
        P(t, "max.s32 col, col, 0");
        P(t, "div.u32 col, col, %d", t->f.cols);
        P(t, "mul.lo.u32 col, col, %d", t->f.cols);
        P(t, "mov.b32 end, meets");
    } else {
        P(t, "mov.b32 col, 0");
        P(t, "add.s32 end, own0, %d", flash_block_rows(&t->f));
        P(t, "min.s32 end, end, limit");
        P(t, "sub.s32 end, end, 1");
        P(t, "add.s32 end, end, reach");
        P(t, "min.s32 end, end, meets");
    }
}

/* The head of the loop over tiles: this one is there, the next one is asked for. Warps that meet nothing of it skip it. */
static void loop_begin(text *t, int x, int y)
{
    int l = ++t->loop;
    const char *first = t->f.wide ? "wgrow" : "wrow"; /* of those that go together */
    flash_find_columns(t);
    stream_start(t, x, y);
    P(t, "setp.ge.s32 p1, col, end");
    P(t, "@p1 bra END%d", l);
    copy_tiles(t);
    LABEL(t, "LOOP%d:\n", l);
    P(t, "cp.async.wait_group 0");
    if (t->f.wide)
        P(t, "fence.proxy.async.shared::cta");
    P(t, "bar.sync 0");
    P(t, "add.s32 next, col, %d", t->f.cols);
    P(t, "setp.ge.s32 p1, next, end");
    P(t, "@p1 bra LAST%d", l);
    turn(t, "into");
    copy_tiles(t);
    LABEL(t, "LAST%d:\n", l);
    if (t->f.kind == FLASH_columns) {
        P(t, "sub.s32 r0, %s, reach", first); /* the first column of the warp's first row, less 1 */
        P(t, "setp.le.s32 p2, next, r0");
    } else {
        P(t, "add.s32 r0, %s, %d", first, t->f.wide ? 63 : 16 * t->f.tiles - 1);
        P(t, "add.s32 r0, r0, reach"); /* behind the last column of its last row */
        P(t, "setp.ge.s32 p2, col, r0");
    }
    P(t, "setp.ge.or.s32 p2, %s, limit, p2", first);
    P(t, "@p2 bra NEXT%d", l);
}
static void loop_end(text *t)
{
    LABEL(t, "NEXT%d:\n", t->loop);
    turn(t, "nl");
    turn(t, "tl");
    P(t, "mov.b32 col, next");
    P(t, "setp.lt.s32 p1, col, end");
    P(t, "@p1 bra LOOP%d", t->loop);
    LABEL(t, "END%d:\n", t->loop);
}

/* --- products --------------------------------------------------------------------------------------- */
static void mma(text *t, const char *acc, int at, const char *a, int a_at, int b_at, bool first)
{
    char from[96];
    snprintf(from, sizeof from, first ? "z, z, z, z" : "%s%d, %s%d, %s%d, %s%d", acc, at, acc, at + 1, acc,
             at + 2, acc, at + 3);
    P(t,
      "mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%s%d, %s%d, %s%d, %s%d}, {%s%d, %s%d, %s%d, %s%d}, "
      "{b%d, b%d}, {%s}",
      t->half, t->half, acc, at, acc, at + 1, acc, at + 2, acc, at + 3, a, a_at, a, a_at + 1, a, a_at + 2, a,
      a_at + 3, b_at, b_at + 1, from);
}
static int ldmatrix(text *t, const char *how, const char *at, int offset)
{
    int b = t->nb;
    t->nb += 4;
    P(t, "ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 {b%d, b%d, b%d, b%d}, [%s+%d]", how, b, b + 1, b + 2,
      b + 3, at, offset);
    return b;
}

/* acc = own rows times the streamed tile, transposed; second: the other of the two tiles. */
static void scores(text *t, const char *acc, const char *own, bool second)
{
    int ks = t->f.d / 16;
    if (t->f.wide) {
        flash_wide_scores(t, acc, own, "nl", second * t->tile);
        return;
    }
    for (int k = 0; k < ks; k++)
        for (int j = 0; j < t->nt; j += 2) {
            int b = ldmatrix(t, "", "nl", second * t->tile + j * 8 * t->pitch + k * 32);
            for (int i = 0; i < t->f.tiles; i++)
                for (int h = 0; h < 2; h++)
                    mma(t, acc, (i * t->nt + j + h) * 4, own, (i * ks + k) * 4, b + 2 * h, k == 0);
        }
}

/* Products are there. */
static void settle(text *t)
{
    if (t->f.wide)
        flash_wide_wait(t);
}

/* acc += probabilities (rounded, in pa or pb) times the streamed tile. */
static void weigh(text *t, const char *acc, const char *probs, bool second)
{
    int ks = t->f.cols / 16;
    if (t->f.wide) {
        flash_wide_weigh(t, acc, probs, "nl", second * t->tile);
        return;
    }
    for (int k = 0; k < ks; k++)
        for (int j = 0; j < t->nd; j += 2) {
            int b = ldmatrix(t, ".trans", "tl", second * t->tile + k * 16 * t->pitch + j * 16);
            for (int i = 0; i < t->f.tiles; i++)
                for (int h = 0; h < 2; h++)
                    mma(t, acc, (i * t->nd + j + h) * 4, probs, (i * ks + k) * 4, b + 2 * h, false);
        }
}

/* Scores as the first factor of the next product. */
void flash_pack(text *t, const char *to, const char *from)
{
    int ks = t->f.cols / 16;
    for (int i = 0; i < t->f.tiles; i++)
        for (int k = 0; k < ks; k++)
            for (int x = 0; x < 4; x++) {
                int at = (i * t->nt + 2 * k + x / 2) * 4 + x % 2 * 2;
                P(t, "cvt.rn.%sx2.f32 %s%d, %s%d, %s%d", t->half, to, (i * ks + k) * 4 + x, from, at + 1,
                  from, at);
            }
}

/* -inf for scores that do not count, in tiles where there are any. */
void flash_bounds(text *t)
{
    bool across = t->f.kind == FLASH_columns;
    int rows = 2 * t->f.tiles;
    if (across) {
        P(t, "setp.gt.s32 p2, next, meets");
        P(t, "add.s32 r0, wrow, %d", 16 * t->f.tiles);
        P(t, "sub.s32 r0, r0, reach"); /* the first column of the warp's last row */
        P(t, "setp.lt.or.s32 p2, col, r0, p2");
    } else {
        P(t, "add.s32 r0, wrow, reach");
        P(t, "min.s32 r0, r0, meets");
        P(t, "setp.gt.s32 p2, next, r0");
    }
    P(t, "@!p2 bra FREE%d", t->loop);
    for (int r = 0; r < rows; r++) {
        P(t, "sub.s32 r1, hi%d, col", r);
        if (across)
            P(t, "sub.s32 r2, lo%d, col", r);
        for (int e = 0; e < 2 * t->nt; e++) {
            int s = score(t, r, e);
            P(t, "setp.gt.s32 p3, r1, %d", column(e));
            P(t, "selp.f32 s%d, s%d, ninf, p3", s, s);
            if (across) {
                P(t, "setp.le.s32 p3, r2, %d", column(e));
                P(t, "selp.f32 s%d, s%d, ninf, p3", s, s);
            }
        }
    }
    LABEL(t, "FREE%d:\n", t->loop);
}

static void over_lanes(text *t, const char *op, const char *reg, int r) /* the four of a row */
{
    for (int by = 1; by <= 2; by++) {
        P(t, "shfl.sync.bfly.b32 f0, %s%d, %d, 31, 0xffffffff", reg, r, by);
        P(t, "%s %s%d, %s%d, f0", op, reg, r, reg, r);
    }
}

/* result = acc, times by<row> unless that is NULL, rounded: rows of the block that are there. */
static void store(text *t, const char *acc, int which, const char *by)
{
    for (int r = 0; r < 2 * t->f.tiles; r++) {
        flash_row_address(t, "q4", which, "row0");
        P(t, "cvt.s64.s32 q3, t2");
        P(t, "mad.lo.s64 q4, q3, 2, q4");
        P(t, "mad.lo.s64 q4, q2, %d, q4", 8 * r);
        P(t, "setp.lt.s32 p0, row%d, limit", r);
        for (int j = 0; j < t->nd; j++) {
            int at = (r / 2 * t->nd + j) * 4 + r % 2 * 2;
            if (by) {
                P(t, "mul.rn.f32 %s%d, %s%d, %s%d", acc, at, acc, at, by, r);
                P(t, "mul.rn.f32 %s%d, %s%d, %s%d", acc, at + 1, acc, at + 1, by, r);
            }
            P(t, "cvt.rn.%sx2.f32 r0, %s%d, %s%d", t->half, acc, at + 1, acc, at);
            P(t, "@p0 st.global.b32 [q4+%d], r0", j * 16);
        }
    }
}

/* at<r> = the address of row r's number among those of all rows, in an array of `size` bytes each. */
static void number_address(text *t, int r, int param, int size, const char *index)
{
    P(t, "ld.param.u64 q0, [arg%d]", param);
    P(t, "ld.param.u64 q1, [arg%d]", FLASH_m);
    flash_matrix_number(t, "q2");
    P(t, "cvt.s64.s32 q3, %s", index);
    P(t, "mad.lo.s64 q2, q2, q1, q3");
    P(t, "mad.lo.s64 at%d, q2, %d, q0", r, size);
}

static void clear(text *t, const char *reg, int n)
{
    for (int i = 0; i < n; i++)
        P(t, "mov.f32 %s%d, z", reg, i);
}

/* --- forward -------------------------------------------------------------------------------------- */
/* The maximum of each row so far, probabilities, and what was summed before on the new scale. */
static void softmax_tile(text *t)
{
    for (int r = 0; r < 2 * t->f.tiles; r++) {
        P(t, "mov.f32 f1, s%d", score(t, r, 0));
        for (int e = 1; e < 2 * t->nt; e++)
            P(t, "max.f32 f1, f1, s%d", score(t, r, e));
        for (int by = 1; by <= 2; by++) {
            P(t, "shfl.sync.bfly.b32 f0, f1, %d, 31, 0xffffffff", by);
            P(t, "max.f32 f1, f1, f0");
        }
        P(t, "max.f32 f1, f1, top%d", r);
        if (t->exact)
            P(t, "mov.f32 f2, f1");
        else
            P(t, "mul.rn.f32 f2, f1, by");
        P(t, "setp.eq.f32 p3, f1, ninf"); /* -inf alone so far: -inf less -inf would be NaN */
        P(t, "selp.f32 f2, z, f2, p3");
        if (t->exact) { /* differences first: products of large numbers would be infinite */
            P(t, "sub.rn.f32 f3, top%d, f2", r);
            P(t, "mul.rn.f32 f3, f3, by");
        } else {
            P(t, "neg.f32 f2, f2");
            P(t, "fma.rn.f32 f3, top%d, by, f2", r);
        }
        P(t, "ex2.approx.ftz.f32 f3, f3");
        P(t, "mov.f32 top%d, f1", r);
        P(t, "mul.rn.f32 sum%d, sum%d, f3", r, r);
        for (int e = 0; e < 2 * t->nt; e++) {
            int s = score(t, r, e);
            if (t->exact) {
                P(t, "sub.rn.f32 s%d, s%d, f2", s, s);
                P(t, "mul.rn.f32 s%d, s%d, by", s, s);
            } else
                P(t, "fma.rn.f32 s%d, s%d, by, f2", s, s);
            P(t, "ex2.approx.ftz.f32 s%d, s%d", s, s);
            P(t, "add.rn.f32 sum%d, sum%d, s%d", r, r, s);
        }
        for (int j = 0; j < t->nd; j++)
            for (int h = 0; h < 2; h++) {
                int at = (r / 2 * t->nd + j) * 4 + r % 2 * 2 + h;
                P(t, "mul.rn.f32 x%d, x%d, f3", at, at);
            }
    }
}

/* Of scores: rounded, as the factor of the next product. */
void flash_probabilities(text *t)
{
    flash_bias_tile(t);
    flash_bounds(t);
    softmax_tile(t);
    flash_draw_tile(t);
    for (int r = 0; r < 2 * t->f.tiles; r++)
        for (int e = 0; e < 2 * t->nt; e++)
            flash_drop(t, "s", score(t, r, e), r, e, false);
    flash_pack(t, "pa", "s");
}

static void write_forward(text *t)
{
    int rows = 2 * t->f.tiles;
    load_own(t, "a", FLASH_q);
    clear(t, "x", 4 * t->f.tiles * t->nd);
    clear(t, "sum", rows);
    for (int r = 0; r < rows; r++)
        P(t, "mov.f32 top%d, ninf", r);
    flash_bias_start(t);
    flash_drop_start(t);
    flash_drop_lines(t);
    if (t->f.wide)
        flash_wide_forward(t);
    else {
        loop_begin(t, FLASH_k, FLASH_v);
        scores(t, "s", "a", false);
        flash_probabilities(t);
        weigh(t, "x", "pa", true);
        loop_end(t);
    }
    for (int r = 0; r < rows; r++) {
        over_lanes(t, "add.rn.f32", "sum", r);
        P(t, "rcp.rn.f32 sum%d, sum%d", r, r);
        if (t->f.mask) { /* a row that meets nothing is zeros, and so are its gradients */
            P(t, "setp.eq.f32 p3, top%d, ninf", r);
            P(t, "selp.f32 sum%d, z, sum%d, p3", r, r);
            P(t, "selp.f32 top%d, z, top%d, p3", r, r);
        }
        if (t->f.drops)
            P(t, "mul.rn.f32 base%d, sum%d, more", r, r);
    }
    store(t, "x", FLASH_x, t->f.drops ? "base" : "sum");
    P(t, "setp.eq.u32 p1, t2, 0"); /* one lane of a row writes its numbers */
    P(t, "@!p1 bra DONE");
    for (int i = 0; i < 2; i++) {
        P(t, "ld.param.u64 q4, [arg%d]", i ? FLASH_part : FLASH_top);
        P(t, "setp.eq.u64 p2, q4, 0");
        P(t, "@p2 bra UNWANTED%d", i);
        for (int r = 0; r < rows; r++) {
            number_address(t, r, i ? FLASH_part : FLASH_top, 4, "row0");
            if (!i && !t->exact)
                P(t, "mul.rn.f32 top%d, top%d, scale", r, r);
            P(t, "setp.lt.s32 p0, row%d, limit", r);
            P(t, "@p0 st.global.f32 [at%d+%d], %s%d", r, 32 * r, i ? "sum" : "top", r);
        }
        LABEL(t, "UNWANTED%d:\n", i);
    }
    LABEL(t, "DONE:\n");
}

/* --- gradients ------------------------------------------------------------------------------------ */
/* base: p = 2^(by * score + base). Exact: p = 2^(by * (score - top)) * base. */
static void load_rows(text *t)
{
    for (int r = 0; r < 2 * t->f.tiles; r++) {
        P(t, "sub.s32 r0, limit, 1");
        P(t, "min.s32 r0, row%d, r0", r);
        number_address(t, r, FLASH_top, 4, "r0");
        P(t, "ld.global.f32 f0, [at%d]", r);
        number_address(t, r, FLASH_part, 4, "r0");
        P(t, "ld.global.f32 f1, [at%d]", r);
        if (t->exact) {
            P(t, "mov.f32 top%d, f0", r);
            P(t, "mov.f32 base%d, f1", r);
            continue;
        }
        P(t, "lg2.approx.ftz.f32 f1, f1");
        P(t, "neg.f32 f1, f1");
        P(t, "fma.rn.f32 base%d, f0, " LOG2E ", f1", r);
        P(t, "neg.f32 base%d, base%d", r, r);
    }
}

static void probability(text *t, int s, const char *base, int base_at, const char *top, int top_at)
{
    if (t->exact) {
        P(t, "sub.rn.f32 s%d, s%d, %s%d", s, s, top, top_at);
        P(t, "mul.rn.f32 s%d, s%d, by", s, s);
        P(t, "ex2.approx.ftz.f32 s%d, s%d", s, s);
        P(t, "mul.rn.f32 s%d, s%d, %s%d", s, s, base, base_at);
    } else {
        P(t, "fma.rn.f32 s%d, s%d, by, %s%d", s, s, base, base_at);
        P(t, "ex2.approx.ftz.f32 s%d, s%d", s, s);
    }
}

/* f0, f1 = the two numbers in a register. */
static void unpack(text *t, const char *reg)
{
    if (t->f.dt == DT_bf16) {
        P(t, "shl.b32 r2, %s, 16", reg);
        P(t, "mov.b32 f0, r2");
        P(t, "and.b32 r2, %s, 0xffff0000", reg);
        P(t, "mov.b32 f1, r2");
    } else {
        P(t, "cvt.u16.u32 oh0, %s", reg);
        P(t, "shr.u32 r2, %s, 16", reg);
        P(t, "cvt.u16.u32 oh1, r2");
        P(t, "cvt.f32.f16 f0, oh0");
        P(t, "cvt.f32.f16 f1, oh1");
    }
}

/* sum<r> = what the lane has of the sum of g o. */
static void delta_of(text *t)
{
    int ks = t->f.d / 16;
    for (int r = 0; r < 2 * t->f.tiles; r++) {
        P(t, "sub.s32 r0, limit, 1");
        P(t, "min.s32 r0, row%d, r0", r);
        flash_row_address(t, "q4", FLASH_y, "r0");
        P(t, "mul.wide.u32 q5, t2, 2");
        P(t, "add.s64 q4, q4, q5");
        for (int k = 0; k < ks; k++)
            for (int h = 0; h < 2; h++) {
                char g[16];
                snprintf(g, sizeof g, "c%d", ((r / 2) * ks + k) * 4 + r % 2 + 2 * h);
                P(t, "ld.global.nc.b32 r1, [q4+%d]", k * 32 + h * 16);
                unpack(t, "r1");
                P(t, "mov.f32 f2, f0");
                P(t, "mov.f32 f3, f1");
                unpack(t, g);
                P(t, "fma.rn.f32 sum%d, f0, f2, sum%d", r, r);
                P(t, "fma.rn.f32 sum%d, f1, f3, sum%d", r, r);
            }
    }
}

static void write_rows(text *t)
{
    int rows = 2 * t->f.tiles;
    load_own(t, "a", FLASH_q);
    load_own(t, "c", FLASH_g);
    load_rows(t);
    clear(t, "sum", rows);
    clear(t, "x", 4 * t->f.tiles * t->nd);
    flash_bias_start(t);
    flash_drop_start(t);
    flash_drop_lines(t);
    if (t->f.given) {
        delta_of(t);
        for (int r = 0; r < rows; r++)
            over_lanes(t, "add.rn.f32", "sum", r);
    }
    for (int pass = t->f.given; pass < 2; pass++) {
        if (pass && !t->f.given)
            P(t, "bar.sync 0"); /* all have read the last tile of the first pass */
        loop_begin(t, FLASH_k, FLASH_v);
        scores(t, "s", "a", false);
        scores(t, "e", "c", true);
        settle(t);
        flash_bias_tile(t);
        flash_bounds(t);
        flash_draw_tile(t);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < 2 * t->nt; i++) {
                int s = score(t, r, i);
                probability(t, s, "base", r, "top", r);
                flash_drop(t, "e", s, r, i, true);
                if (!pass) {
                    P(t, "fma.rn.f32 sum%d, s%d, e%d, sum%d", r, s, s, r);
                    continue;
                }
                P(t, "sub.rn.f32 e%d, e%d, sum%d", s, s, r);
                P(t, "mul.rn.f32 e%d, e%d, s%d", s, s, s);
                P(t, "mul.rn.f32 e%d, e%d, scale", s, s);
            }
        if (pass) {
            flash_pack(t, "pa", "e");
            weigh(t, "x", "pa", false);
            settle(t);
        }
        loop_end(t);
        for (int r = 0; r < rows && !pass; r++)
            over_lanes(t, "add.rn.f32", "sum", r);
    }
    store(t, "x", FLASH_x, NULL);
    P(t, "setp.ne.u32 p1, t2, 0");
    P(t, "@p1 bra DONE");
    for (int r = 0; r < rows; r++) {
        number_address(t, r, FLASH_stats, 8, "row0");
        P(t, "setp.lt.s32 p0, row%d, limit", r);
        P(t, "@p0 st.global.v2.f32 [at%d+%d], {base%d, sum%d}", r, 64 * r, r, r);
    }
    LABEL(t, "DONE:\n");
}

static void write_columns(text *t)
{
    int rows = 2 * t->f.tiles;
    load_own(t, "a", FLASH_k);
    load_own(t, "c", FLASH_v);
    clear(t, "x", 4 * t->f.tiles * t->nd);
    clear(t, "y", 4 * t->f.tiles * t->nd);
    flash_drop_start(t);
    LABEL(t, "HEAD:\n"); /* of q, one after the other */
    P(t, "mov.b32 r0, 0");
    number_address(t, 0, FLASH_stats, 8, "r0");
    P(t, "mov.b64 stat, at0");
    if (t->exact) {
        number_address(t, 0, FLASH_top, 4, "r0");
        number_address(t, 1, FLASH_part, 4, "r0");
    }
    flash_bias_start(t);
    flash_drop_lines(t);
    loop_begin(t, FLASH_q, FLASH_g);
    scores(t, "s", "a", false);
    scores(t, "e", "c", true);
    settle(t);
    flash_bias_tile(t);
    flash_bounds(t);
    flash_draw_tile(t);
    P(t, "add.s32 r1, col, t2");
    P(t, "sub.s32 r2, meets, 1");
    for (int i = 0; i < 2 * t->nt; i++) {
        P(t, "add.s32 r3, r1, %d", column(i));
        P(t, "min.s32 r3, r3, r2"); /* beyond the last: scores are -inf, any number does */
        P(t, "mul.wide.u32 q0, r3, 8");
        P(t, "add.s64 q0, q0, stat");
        P(t, "ld.global.v2.f32 {f4, f5}, [q0]");
        if (t->exact) {
            P(t, "mul.wide.u32 q0, r3, 4");
            P(t, "add.s64 q1, q0, at0");
            P(t, "add.s64 q0, q0, at1");
            P(t, "ld.global.f32 f6, [q1]");
            P(t, "ld.global.f32 f4, [q0]");
        }
        for (int r = 0; r < rows; r++) {
            int s = score(t, r, i);
            probability(t, s, "f", 4, "f", 6);
            flash_drop(t, "e", s, r, i, true);
            P(t, "sub.rn.f32 e%d, e%d, f5", s, s);
            P(t, "mul.rn.f32 e%d, e%d, s%d", s, s, s);
            P(t, "mul.rn.f32 e%d, e%d, scale", s, s);
            flash_drop(t, "s", s, r, i, true);
        }
    }
    flash_pack(t, "pa", "s");
    weigh(t, "y", "pa", true);
    flash_pack(t, "pb", "e");
    weigh(t, "x", "pb", false);
    settle(t);
    loop_end(t);
    P(t, "sub.s32 group, group, 1");
    P(t, "setp.le.s32 p1, group, 0");
    P(t, "@p1 bra ALL");
    P(t, "add.s32 qhead, qhead, 1");
    P(t, "bar.sync 0"); /* all have read the last tile of this head */
    P(t, "bra HEAD");
    LABEL(t, "ALL:\n");
    store(t, "x", FLASH_x, NULL);
    store(t, "y", FLASH_y, NULL);
}

void flash_text(strbuf *out, const flash_form *f)
{
    static void (*const body[FLASH_KINDS])(text *) = { write_forward, write_rows, write_columns };
    text t = { .b = out,
               .f = *f,
               .exact = f->mask == FLASH_add,
               .half = f->dt == DT_f16 ? "f16" : "bf16",
               .nd = f->d / 8,
               .nt = f->cols / 8,
               .pitch = f->d * 2 + 16 * !f->wide };
    t.tile = f->cols * t.pitch;
    write_head(&t);
    write_place(&t);
    body[f->kind](&t);
    P(&t, "ret");
    strbuf_add(out, "}\n");
}
