/* flash_wide.c - products of four warps (wgmma), the first factor in registers, the second in shared memory, and the forward kernel's loop
 * of them.
 *
 * What a lane holds of 64 rows is what it holds of 16 rows in the other form: warp w of four has rows 16 w and on. Tiles are
 * in rooms of shared memory whose rows are 128 bytes; in the forward kernel, keys and values follow one another through three of them: a tile of 128 elements a row is two halves, one
 * after the other. 16 bytes number c of row r lie at c xor r mod 8, as the hardware wants them. */
#include "target/cuda/flash_emit.h"
#include <stdio.h>

enum { ROOMS = 3, ROW = 128, SWIZZLE = 1 << 30, EIGHT_ROWS = 8 * ROW };

static int room_bytes(const text *t) { return t->f.cols * t->f.d * 2; }
static int half_bytes(const text *t) { return t->f.cols * ROW; } /* 64 elements of each row */

void flash_wide_head(text *t)
{
    P(t, ".shared .align 1024 .b8 sh[%d]", (t->f.kind == FLASH_forward ? ROOMS : 4) * room_bytes(t));
    P(t, ".reg .pred skip, again, spare");
    P(t, ".reg .b32 kroom, vroom, room, leftk, leftv, wgrow, mine_at, none, wa<%d>, wc<%d>", t->f.d / 4,
      t->f.d / 4);
    P(t, ".reg .b64 desc, step<8>");
}

int flash_wide_row(void) { return ROW; }

/* mine_at = where piece r1 of row r2 lies in a room; wgrow = the first row of the thread's four warps. */
void flash_wide_place(text *t)
{
    P(t, "and.b32 r5, r1, 7");
    P(t, "and.b32 r6, r2, 7");
    P(t, "xor.b32 r5, r5, r6");
    P(t, "mul.lo.u32 mine_at, r2, %d", ROW);
    P(t, "mad.lo.u32 mine_at, r5, 16, mine_at");
    P(t, "shr.u32 r1, r1, 3");
    P(t, "mad.lo.u32 mine_at, r1, %d, mine_at", half_bytes(t));
    P(t, "shr.u32 wgrow, warp, 2");
    P(t, "mul.lo.u32 wgrow, wgrow, 64");
    P(t, "add.s32 wgrow, wgrow, own0");
}

/* From column `col` on: xp and yp are the thread's pieces of keys and values, mine_at their place in a room. */
static void start(text *t)
{
    int chunks = flash_chunks_of(t), at_once = flash_rows_at_once(t);
    static const char *const to[2] = { "xp", "yp" }, *const step[2] = { "xstep", "ystep" },
                             *const all[2] = { "xtile", "ytile" };
    P(t, "and.b32 r1, tid, %d", chunks - 1);
    P(t, "shr.u32 r2, tid, %d", __builtin_ctz((unsigned)chunks));
    P(t, "setp.ge.u32 spare, r2, %d", t->f.cols % at_once); /* of the last rows of a tile */
    P(t, "add.s32 r3, col, r2");
    P(t, "sub.s32 leftk, meets, r3");
    P(t, "mov.b32 leftv, leftk");
    P(t, "shl.b32 r4, r1, 4");
    for (int i = 0; i < 2; i++) {
        flash_row_address(t, to[i], i ? FLASH_v : FLASH_k, "r3");
        P(t, "cvt.u64.u32 q3, r4");
        P(t, "add.s64 %s, %s, q3", to[i], to[i]);
        P(t, "mul.lo.s64 %s, q2, %d", step[i], at_once);
        P(t, "mul.lo.s64 %s, q2, %d", all[i], t->f.cols);
    }
    flash_wide_place(t);
    P(t, "mov.u32 kroom, sh");
    P(t, "add.u32 vroom, kroom, %d", room_bytes(t));
    P(t, "add.u32 room, vroom, %d", room_bytes(t));
}

/* The next tile of keys or values into a room; rows that are not there become zeros. */
static void copy(text *t, bool values, const char *to)
{
    int at_once = flash_rows_at_once(t);
    const char *left = values ? "leftv" : "leftk", *from = values ? "yp" : "xp",
               *step = values ? "ystep" : "xstep";
    P(t, "mov.b64 xa, %s", from);
    P(t, "add.u32 into, %s, mine_at", to);
    for (int r = 0; r < t->f.cols; r += at_once) {
        P(t, "setp.gt.s32 p0, %s, %d", left, r);
        P(t, "selp.b32 size, 16, 0, p0");
        P(t, "%scp.async.cg.shared.global [into+%d], [xa], 16, size",
          r + at_once > t->f.cols ? "@!spare " : "", r * ROW);
        if (r + at_once < t->f.cols)
            P(t, "add.s64 xa, xa, %s", step);
    }
    P(t, "add.s64 %s, %s, %s", from, from, values ? "ytile" : "xtile");
    P(t, "sub.s32 %s, %s, %d", left, left, t->f.cols);
}

/* All threads have their share of the older of two tiles, and nobody reads the tile before it any more. */
static void arrive(text *t)
{
    P(t, "cp.async.wait_group 1");
    P(t, "fence.proxy.async.shared::cta");
    P(t, "bar.sync 0");
}

/* desc = what describes a room, so many bytes further, to the hardware; far: bytes between blocks of 64 columns. */
static void describe(text *t, const char *room, int further, int far)
{
    P(t, "add.u32 r0, %s, %d", room, further);
    P(t, "and.b32 r0, r0, 0x3ffff");
    P(t, "shr.u32 r0, r0, 4");
    P(t, "or.b32 r0, r0, %d", far / 16 << 16);
    P(t, "cvt.u64.u32 desc, r0");
    P(t, "or.b64 desc, desc, 0x%llx", (unsigned long long)(SWIZZLE | EIGHT_ROWS / 16) << 32);
}

/* acc (n columns) += registers a times the room from `offset[i]` on, for i below steps. */
static void products(text *t, const char *acc, int n, const char *a, int steps,
                     int (*offset)(const text *, int), bool first, bool turned)
{
    for (int k = 0; k < steps; k++)
        P(t, "add.s64 step%d, desc, %d", k, offset(t, k) / 16);
    P(t, "wgmma.fence.sync.aligned");
    for (int k = 0; k < steps; k++) {
        strbuf_addf(t->b, "\twgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s {", n, t->half, t->half);
        for (int i = 0; i < n / 2; i++)
            strbuf_addf(t->b, "%s%s%d", i ? ", " : "", acc, i);
        strbuf_addf(t->b, "}, {%s%d, %s%d, %s%d, %s%d}, step%d, %d, 1, 1, %d;\n", a, 4 * k, a, 4 * k + 1, a,
                    4 * k + 2, a, 4 * k + 3, k, k || !first, turned);
    }
    P(t, "wgmma.commit_group.sync.aligned");
}
static int key_step(const text *t, int k)
{
    return k / 4 * half_bytes(t) + k % 4 * 32;
} /* 16 elements of a head */
static int value_step(const text *t, int k) { return k * 2 * EIGHT_ROWS; } /* 16 keys */

/* ptxas holds the first factor for used up where a product read it (seen in the code of ptxas 13.0 -O1: the registers were given to others
 * although the next round of the loop reads them), so each round reads copies, by a zero that it cannot know. */
void flash_wide_scores(text *t, const char *acc, const char *own, const char *room, int further)
{
    char copy[16];
    snprintf(copy, sizeof copy, "w%s", own);
    P(t, "shr.u32 none, col, 31");
    for (int i = 0; i < t->f.d / 4; i++)
        P(t, "xor.b32 %s%d, %s%d, none", copy, i, own, i);
    describe(t, room, further, 16);
    products(t, acc, t->f.cols, copy, t->f.d / 16, key_step, true, false);
}
void flash_wide_weigh(text *t, const char *acc, const char *probs, const char *room, int further)
{
    describe(t, room, further, half_bytes(t));
    products(t, acc, t->f.d, probs, t->f.cols / 16, value_step, false, true);
}
void flash_wide_wait(text *t) { P(t, "wgmma.wait_group.sync.aligned 0"); }

void flash_wide_forward(text *t)
{
    flash_find_columns(t);
    start(t);
    P(t, "setp.ge.s32 p1, col, end");
    P(t, "@p1 bra END1");
    copy(t, false, "kroom");
    P(t, "cp.async.commit_group");
    copy(t, true, "vroom");
    P(t, "cp.async.commit_group");
    LABEL(t, "LOOP1:\n");
    arrive(t);
    P(t, "add.s32 next, col, %d", t->f.cols);
    P(t, "setp.lt.s32 again, next, end");
    P(t, "@!again bra KEYS");
    copy(t, false, "room"); /* where the values were that were read last */
    LABEL(t, "KEYS:\n");
    P(t, "cp.async.commit_group");
    P(t, "add.s32 r0, wgrow, 63"); /* behind the last column of the last of the four warps' rows */
    P(t, "add.s32 r0, r0, reach");
    P(t, "setp.ge.s32 skip, col, r0");
    P(t, "setp.ge.or.s32 skip, wgrow, limit, skip");
    P(t, "@skip bra SCORES");
    flash_wide_scores(t, "s", "a", "kroom", 0);
    flash_wide_wait(t);
    t->loop = 1;
    flash_probabilities(t);
    LABEL(t, "SCORES:\n");
    arrive(t);
    P(t, "@!again bra VALUES");
    copy(t, true, "kroom"); /* all have their scores */
    LABEL(t, "VALUES:\n");
    P(t, "cp.async.commit_group");
    P(t, "@skip bra NEXT1");
    flash_wide_weigh(t, "x", "pa", "vroom", 0);
    flash_wide_wait(t);
    LABEL(t, "NEXT1:\n");
    P(t, "mov.b32 r0, vroom");
    P(t, "mov.b32 vroom, kroom");
    P(t, "mov.b32 kroom, room");
    P(t, "mov.b32 room, r0");
    P(t, "mov.b32 col, next");
    P(t, "@again bra LOOP1");
    LABEL(t, "END1:\n");
}
