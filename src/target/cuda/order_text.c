/* order_text.c - see order_text.h.
 *
 * A warp takes 32 neighbours at a time. Lanes with the same digit find each other (match.any); the first of them advances the count of
 * that digit in the warp, and the rank of each is the count before plus the lanes before it: order is kept without atomics. Elements
 * beyond the end of a row have the largest key and come last, so that they end up beyond the end again. */
#include "target/cuda/ptx_line.h"
#include "target/cuda/order_text.h"
#include <stdio.h>

typedef struct text {
    strbuf *b;
    order_form f;
    bool wide;      /* keys of 64 bits */
    int rounds, es; /* elements of a thread; bytes of an element */
    const char *kb; /* "b32" */
} text;

/* Bytes of shared memory: counts by warp and digit, where a digit begins in the tile and where it goes, sums of warps (twice),
 * then keys and positions. */
enum {
    WARPS = 8,
    DIGITS = 256,
    S_LOCAL = 8192,
    S_BASE = 9216,
    S_SUM = 10240,
    S_SUM2 = 10272,
    S_KEYS = 10304
};

bool order_fits(dtype dt) { return dt <= DT_f64; }
int order_bits(dtype dt) { return (int)dtype_size(dt) * 8; }
int order_key_bytes(dtype dt) { return dtype_size(dt) == 8 ? 8 : 4; }
int order_rounds(dtype dt) { return dtype_size(dt) == 8 ? 8 : 16; } /* within 48 KB of shared memory */

static void ld_ptr(text *t, const char *reg, int param) { P(t, "ld.param.u64 %s, [arg%d]", reg, param); }
static void ld_int(text *t, const char *reg, int param)
{
    ld_ptr(t, "q0", param);
    P(t, "cvt.u32.u64 %s, q0", reg);
}

static void write_head(text *t)
{
    int tile = t->rounds * ORDER_THREADS, shared = S_KEYS;
    if (t->f.kind == ORDER_scatter || t->f.kind == ORDER_rows)
        shared += tile * ((t->wide ? 8 : 4) + 4);
    strbuf_add(t->b, ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry order(\n");
    for (int i = 0; i < ORDER_PARAMS; i++)
        strbuf_addf(t->b, "\t.param .u64 arg%d%s\n", i, i + 1 < ORDER_PARAMS ? "," : ")");
    strbuf_addf(t->b, ".reqntid %d, 1, 1\n{\n", ORDER_THREADS);
    P(t, ".shared .align 16 .b8 sh[%d]", shared);
    P(t, ".reg .pred p<4>, hasv, hasi, in<%d>", t->rounds);
    P(t,
      ".reg .b32 tid, lane, warp, below, block, row, tile, tiles, n, from, left, e, shift, keep, base, cw, "
      "d, run, excl, all, "
      "carry, dest, at, r<6>, i<%d>, s<%d>",
      t->rounds, t->rounds);
    P(t, ".reg .b64 q<8>, origin, src, kp, ip");
    P(t, ".reg .%s k<%d>, x<4>, flip", t->kb, t->rounds);
    P(t, "mov.u32 tid, %%tid.x");
    P(t, "and.b32 lane, tid, 31");
    P(t, "shr.u32 warp, tid, 5");
    P(t, "mov.u32 base, sh");
    P(t, "shl.b32 r0, warp, 10");
    P(t, "add.u32 cw, base, r0");
    P(t, "mov.u32 block, %%ctaid.x");
    ld_int(t, "n", ORDER_n);
    ld_int(t, "tiles", ORDER_tiles);
}

/* Which tile this block has, and its first element. */
static void write_place(text *t)
{
    int tile = t->rounds * ORDER_THREADS;
    P(t, "mov.u32 r0, 1");
    P(t, "shl.b32 r0, r0, lane");
    P(t, "sub.u32 below, r0, 1");
    if (t->f.kind == ORDER_rows) {
        P(t, "mov.u32 row, block");
        P(t, "mov.u32 tile, 0");
        P(t, "mov.u32 shift, 0");
    } else {
        P(t, "div.u32 row, block, tiles");
        P(t, "mul.lo.u32 r0, row, tiles");
        P(t, "sub.u32 tile, block, r0");
        ld_int(t, "shift", ORDER_shift);
    }
    P(t, "mul.lo.u32 from, tile, %d", tile);
    P(t, "sub.u32 left, n, from");
    P(t, "mul.wide.u32 origin, row, n");
    P(t, "mad.lo.u32 e, warp, %d, lane", t->rounds * 32);
    ld_ptr(t, "q0", ORDER_flip);
    P(t, t->wide ? "mov.b64 flip, q0" : "cvt.u32.u64 flip, q0");
    P(t, "cvt.u64.u32 q1, from");
    P(t, "add.u64 q1, q1, origin");
    P(t, "cvt.u64.u32 q2, e");
    P(t, "add.u64 q1, q1, q2"); /* of all rows, the thread's first */
    ld_ptr(t, "src", ORDER_in);
    if (t->f.first) {
        P(t, "mad.lo.u64 kp, q1, %d, src", t->es);
        return;
    }
    ld_ptr(t, "q2", ORDER_keys);
    P(t, "mad.lo.u64 kp, q1, %d, q2", t->wide ? 8 : 4);
    ld_ptr(t, "q2", ORDER_at);
    P(t, "mad.lo.u64 ip, q1, 4, q2");
}

/* --- elements and keys ------------------------------------------------------------------------------ */
typedef struct float_bits { /* of the bits of an element */
    const char *sign, *rest, *inf, *ones;
} float_bits;
static float_bits bits_of(dtype dt)
{
    switch (dt) {
    case DT_f16: return (float_bits){ "0x8000", "0x7fff", "0x7c00", "0xffff" };
    case DT_bf16: return (float_bits){ "0x8000", "0x7fff", "0x7f80", "0xffff" };
    case DT_f32: return (float_bits){ "0x80000000", "0x7fffffff", "0x7f800000", "0xffffffff" };
    default:
        return (float_bits){ "0x8000000000000000", "0x7fffffffffffffff", "0x7ff0000000000000",
                             "0xffffffffffffffff" };
    }
}

static const char *sign_of(dtype dt) /* of integers; NULL: unsigned */
{
    switch (dt) {
    case DT_i8: return "0x80";
    case DT_i16: return "0x8000";
    case DT_i32: return "0x80000000";
    case DT_i64: return "0x8000000000000000";
    default: return NULL;
    }
}

/* x1 = all ones where bit `top` of x0 is set, else 0. */
static void spread_sign(text *t)
{
    if (t->es == 2) {
        P(t, "shl.b32 x1, x0, 16");
        P(t, "shr.s32 x1, x1, 31");
    } else
        P(t, t->wide ? "shr.s64 x1, x0, 63" : "shr.s32 x1, x0, 31");
}

/* x0, the bits of an element, becomes its key. */
static void write_key(text *t)
{
    const char *kb = t->kb, *ku = t->wide ? "u64" : "u32", *sign = sign_of(t->f.dt);
    if (t->f.dt == DT_bool) {
        P(t, "setp.ne.u32 p0, x0, 0");
        P(t, "selp.b32 x0, 1, 0, p0");
    } else if (dtype_is_float(t->f.dt)) {
        float_bits f = bits_of(t->f.dt);
        P(t, "and.%s x1, x0, %s", kb, f.rest);
        P(t, "setp.gt.%s p0, x1, %s", ku, f.inf);
        P(t, "setp.eq.%s p1, x1, 0", ku);
        P(t, "selp.%s x0, 0, x0, p1", kb);
        spread_sign(t);
        P(t, "or.%s x1, x1, %s", kb, f.sign);
        if (t->es == 2)
            P(t, "and.b32 x1, x1, 0xffff");
        P(t, "xor.%s x0, x0, x1", kb);
        P(t, "selp.%s x0, %s, x0, p0", kb, f.ones);
    } else if (sign)
        P(t, "xor.%s x0, x0, %s", kb, sign);
    P(t, "xor.%s x0, x0, flip", kb);
}

/* x0, a key, becomes the bits of its element; zeros and NaN are read again, as several of them have one key. i: its position. */
static void write_element(text *t, int i)
{
    const char *kb = t->kb, *ku = t->wide ? "u64" : "u32", *sign = sign_of(t->f.dt);
    P(t, "xor.%s x0, x0, flip", kb);
    if (dtype_is_float(t->f.dt)) {
        float_bits f = bits_of(t->f.dt);
        P(t, "setp.eq.%s p0, x0, %s", ku, f.sign);
        P(t, "setp.eq.%s p1, x0, %s", ku, f.ones);
        P(t, "or.pred p0, p0, p1");
        spread_sign(t);
        P(t, "not.%s x1, x1", kb);
        P(t, "or.%s x1, x1, %s", kb, f.sign);
        if (t->es == 2)
            P(t, "and.b32 x1, x1, 0xffff");
        P(t, "xor.%s x0, x0, x1", kb);
        P(t, "cvt.u64.u32 q0, i%d", i);
        P(t, "add.u64 q0, q0, origin");
        P(t, "mad.lo.u64 q0, q0, %d, src", t->es);
        P(t, "@p0 ld.global.%s x0, [q0]", t->es == 2 ? "u16" : kb);
    } else if (sign)
        P(t, "xor.%s x0, x0, %s", kb, sign);
}

static const char *element_type(const text *t) { return t->es == 1 ? "u8" : t->es == 2 ? "u16" : t->kb; }

/* k and i of each round: those beyond the end of the row have the largest key. */
static void write_load(text *t)
{
    for (int j = 0; j < t->rounds; j++) {
        P(t, "add.u32 r0, e, %d", j * 32);
        P(t, "setp.lt.u32 in%d, r0, left", j);
        if (t->f.first) {
            P(t, "mov.%s k%d, 0", t->kb, j);
            P(t, "@in%d ld.global.%s k%d, [kp+%d]", j, element_type(t), j, j * 32 * t->es);
            P(t, "add.u32 i%d, r0, from", j);
        } else {
            P(t, "mov.%s k%d, -1", t->kb, j);
            P(t, "mov.b32 i%d, 0", j);
            P(t, "@in%d ld.global.%s k%d, [kp+%d]", j, t->kb, j, j * 32 * (t->wide ? 8 : 4));
            if (t->f.kind == ORDER_scatter)
                P(t, "@in%d ld.global.b32 i%d, [ip+%d]", j, j, j * 32 * 4);
        }
    }
    for (int j = 0; t->f.first && j < t->rounds; j++) {
        P(t, "mov.%s x0, k%d", t->kb, j);
        write_key(t);
        P(t, "selp.%s k%d, x0, -1, in%d", t->kb, j, j);
    }
}

/* d = digit of key `k`. */
static void write_digit(text *t, const char *k)
{
    if (t->wide) {
        P(t, "shr.u64 x1, %s, shift", k);
        P(t, "cvt.u32.u64 d, x1");
    } else
        P(t, "shr.u32 d, %s, shift", k);
    P(t, "and.b32 d, d, 255");
}
static void write_digit_of(text *t, int j)
{
    char k[16];
    snprintf(k, sizeof k, "k%d", j);
    write_digit(t, k);
}

static void write_zero_counts(text *t)
{
    P(t, "shl.b32 r0, tid, 2");
    P(t, "add.u32 r0, base, r0");
    for (int w = 0; w < WARPS; w++)
        P(t, "st.shared.u32 [r0+%d], 0", w * DIGITS * 4);
    P(t, "bar.sync 0");
}

/* s of each round: how many elements before it in the warp have its digit. */
static void write_ranks(text *t)
{
    for (int j = 0; j < t->rounds; j++) {
        write_digit_of(t, j);
        P(t, "match.any.sync.b32 r1, d, -1");
        P(t, "shl.b32 r0, d, 2");
        P(t, "add.u32 r0, cw, r0");
        P(t, "ld.shared.u32 r2, [r0]");
        P(t, "and.b32 r3, r1, below");
        P(t, "setp.eq.u32 p0, r3, 0");
        P(t, "popc.b32 r3, r3");
        P(t, "add.u32 s%d, r2, r3", j);
        P(t, "popc.b32 r3, r1");
        P(t, "add.u32 r2, r2, r3");
        P(t, "bar.warp.sync -1");
        P(t, "@p0 st.shared.u32 [r0], r2");
        P(t, "bar.warp.sync -1");
    }
    P(t, "bar.sync 0");
}

/* excl = sum of `run` over the threads before; all = over all threads. */
static void write_block_scan(text *t, int sums)
{
    P(t, "mov.u32 r1, run");
    for (int by = 1; by < 32; by *= 2) {
        P(t, "shfl.sync.up.b32 r2, r1, %d, 0, -1", by);
        P(t, "setp.ge.u32 p0, lane, %d", by);
        P(t, "@p0 add.u32 r1, r1, r2");
    }
    P(t, "setp.eq.u32 p0, lane, 31");
    P(t, "shl.b32 r0, warp, 2");
    P(t, "add.u32 r0, base, r0");
    P(t, "@p0 st.shared.u32 [r0+%d], r1", sums);
    P(t, "bar.sync 0");
    P(t, "sub.u32 excl, r1, run");
    P(t, "mov.u32 all, 0");
    for (int w = 0; w < WARPS; w++) {
        P(t, "ld.shared.u32 r2, [base+%d]", sums + w * 4);
        P(t, "setp.gt.u32 p0, warp, %d", w);
        P(t, "@p0 add.u32 excl, excl, r2");
        P(t, "add.u32 all, all, r2");
    }
}

/* Thread d: counts of digit d become those of the warps before, and S_LOCAL has where the digit begins in the tile. */
static void write_local(text *t)
{
    P(t, "shl.b32 r0, tid, 2");
    P(t, "add.u32 at, base, r0");
    P(t, "mov.u32 run, 0");
    for (int w = 0; w < WARPS; w++) {
        P(t, "ld.shared.u32 r1, [at+%d]", w * DIGITS * 4);
        P(t, "st.shared.u32 [at+%d], run", w * DIGITS * 4);
        P(t, "add.u32 run, run, r1");
    }
    write_block_scan(t, S_SUM);
    P(t, "st.shared.u32 [at+%d], excl", S_LOCAL);
}

/* S_BASE: what is added to a position in the tile for that in the row, by digit. */
static void write_base(text *t)
{
    P(t, "mov.u32 dest, excl");
    P(t, "shl.b32 r0, row, 8");
    P(t, "add.u32 r0, r0, tid"); /* row and digit */
    ld_ptr(t, "q1", ORDER_totals);
    P(t, "mul.wide.u32 q2, r0, 4");
    P(t, "add.u64 q1, q1, q2");
    P(t, "ld.global.u32 run, [q1]");
    ld_ptr(t, "q1", ORDER_counts);
    P(t, "mul.wide.u32 q2, r0, tiles");
    P(t, "cvt.u64.u32 q3, tile");
    P(t, "add.u64 q2, q2, q3");
    P(t, "mad.lo.u64 q1, q2, 4, q1");
    P(t, "ld.global.u32 r5, [q1]");
    write_block_scan(t, S_SUM2);
    P(t, "add.u32 excl, excl, r5");
    P(t, "sub.u32 excl, excl, dest");
    P(t, "st.shared.u32 [at+%d], excl", S_BASE);
}

static int keys_end(const text *t) { return S_KEYS + t->rounds * ORDER_THREADS * (t->wide ? 8 : 4); }

/* Keys and positions of the tile, in the order of the digit, in shared memory. */
static void write_exchange(text *t)
{
    P(t, "bar.sync 0");
    for (int j = 0; j < t->rounds; j++) {
        write_digit_of(t, j);
        P(t, "shl.b32 r0, d, 2");
        P(t, "add.u32 r1, cw, r0");
        P(t, "ld.shared.u32 r2, [r1]");
        P(t, "add.u32 r1, base, r0");
        P(t, "ld.shared.u32 r3, [r1+%d]", S_LOCAL);
        P(t, "add.u32 r2, r2, r3");
        P(t, "add.u32 r2, r2, s%d", j);
        P(t, "shl.b32 r3, r2, 2");
        P(t, "add.u32 r3, base, r3");
        P(t, "st.shared.b32 [r3+%d], i%d", keys_end(t), j);
        if (t->wide) {
            P(t, "shl.b32 r3, r2, 3");
            P(t, "add.u32 r3, base, r3");
        }
        P(t, "st.shared.%s [r3+%d], k%d", t->kb, S_KEYS, j);
    }
    P(t, "bar.sync 0");
}

/* k and i number j from shared memory; `reg`: their place in the tile. */
static void write_reload(text *t, const char *reg, int j)
{
    P(t, "shl.b32 r3, %s, 2", reg);
    P(t, "add.u32 r3, base, r3");
    P(t, "ld.shared.b32 i%d, [r3+%d]", j, keys_end(t));
    if (t->wide) {
        P(t, "shl.b32 r3, %s, 3", reg);
        P(t, "add.u32 r3, base, r3");
    }
    P(t, "ld.shared.%s k%d, [r3+%d]", t->kb, j, S_KEYS);
}

/* Element number j of the sorted row goes to `dest`. */
static void write_result(text *t, int j)
{
    P(t, "setp.ge.u32 p0, dest, keep");
    P(t, "@p0 bra SKIP%d", j);
    P(t, "mul.wide.u32 q1, row, keep");
    P(t, "cvt.u64.u32 q2, dest");
    P(t, "add.u64 q1, q1, q2");
    P(t, "@!hasi bra VALUE%d", j);
    P(t, "mad.lo.u64 q2, q1, 8, ip");
    P(t, "cvt.u64.u32 q3, i%d", j);
    P(t, "st.global.b64 [q2], q3");
    LABEL(t, "VALUE%d:\n", j);
    P(t, "@!hasv bra SKIP%d", j);
    P(t, "mov.%s x0, k%d", t->kb, j);
    write_element(t, j);
    P(t, "mad.lo.u64 q2, q1, %d, kp", t->es);
    P(t, "st.global.%s [q2], x0", element_type(t));
}

static void write_results(text *t)
{
    bool last = t->f.last;
    ld_ptr(t, "kp", last ? ORDER_values : ORDER_to_keys);
    ld_ptr(t, "ip", last ? ORDER_indices : ORDER_to_at);
    if (last) {
        ld_int(t, "keep", ORDER_keep);
        P(t, "setp.ne.u64 hasv, kp, 0");
        P(t, "setp.ne.u64 hasi, ip, 0");
    }
    for (int j = 0; j < t->rounds; j++) {
        P(t, "add.u32 at, tid, %d", j * ORDER_THREADS);
        P(t, "setp.ge.u32 p0, at, left");
        P(t, "@p0 bra SKIP%d", j);
        write_reload(t, "at", j);
        P(t, "mov.u32 dest, at");
        if (t->f.kind == ORDER_scatter) {
            write_digit_of(t, j);
            P(t, "shl.b32 r0, d, 2");
            P(t, "add.u32 r0, base, r0");
            P(t, "ld.shared.u32 r1, [r0+%d]", S_BASE);
            P(t, "add.u32 dest, at, r1");
        }
        if (last)
            write_result(t, j);
        else {
            P(t, "cvt.u64.u32 q1, dest");
            P(t, "add.u64 q1, q1, origin");
            P(t, "mad.lo.u64 q2, q1, %d, kp", t->wide ? 8 : 4);
            P(t, "st.global.%s [q2], k%d", t->kb, j);
            P(t, "mad.lo.u64 q2, q1, 4, ip");
            P(t, "st.global.b32 [q2], i%d", j);
        }
        LABEL(t, "SKIP%d:\n", j);
    }
}

/* --- kernels ---------------------------------------------------------------------------------------- */
static void write_count(text *t)
{
    write_place(t);
    write_zero_counts(t);
    write_load(t);
    for (int j = 0; j < t->rounds; j++) {
        write_digit_of(t, j);
        P(t, "shl.b32 r0, d, 2");
        P(t, "add.u32 r0, cw, r0");
        P(t, "@in%d red.shared.add.u32 [r0], 1", j);
    }
    P(t, "bar.sync 0");
    P(t, "shl.b32 r0, tid, 2");
    P(t, "add.u32 r0, base, r0");
    P(t, "mov.u32 run, 0");
    for (int w = 0; w < WARPS; w++) {
        P(t, "ld.shared.u32 r1, [r0+%d]", w * DIGITS * 4);
        P(t, "add.u32 run, run, r1");
    }
    P(t, "shl.b32 r0, row, 8");
    P(t, "add.u32 r0, r0, tid");
    ld_ptr(t, "q1", ORDER_counts);
    P(t, "mul.wide.u32 q2, r0, tiles");
    P(t, "cvt.u64.u32 q3, tile");
    P(t, "add.u64 q2, q2, q3");
    P(t, "mad.lo.u64 q1, q2, 4, q1");
    P(t, "st.global.u32 [q1], run");
}

/* A block has a row, a thread a digit. */
static void write_scan_few(text *t)
{
    P(t, "shl.b32 r0, block, 8");
    P(t, "add.u32 r0, r0, tid");
    ld_ptr(t, "q1", ORDER_counts);
    P(t, "mul.wide.u32 q2, r0, tiles");
    P(t, "mad.lo.u64 q1, q2, 4, q1");
    P(t, "mov.u32 run, 0");
    P(t, "mov.u32 at, 0");
    LABEL(t, "LOOP:\n");
    P(t, "ld.global.u32 r1, [q1]");
    P(t, "st.global.u32 [q1], run");
    P(t, "add.u32 run, run, r1");
    P(t, "add.u64 q1, q1, 4");
    P(t, "add.u32 at, at, 1");
    P(t, "setp.lt.u32 p0, at, tiles");
    P(t, "@p0 bra LOOP");
    ld_ptr(t, "q1", ORDER_totals);
    P(t, "mul.wide.u32 q2, r0, 4");
    P(t, "add.u64 q1, q1, q2");
    P(t, "st.global.u32 [q1], run");
}

static void write_scan(text *t)
{
    if (t->rounds == 1) {
        write_scan_few(t);
        return;
    }
    ld_ptr(t, "q1", ORDER_counts);
    P(t, "mul.wide.u32 q2, block, tiles");
    P(t, "mad.lo.u64 q1, q2, 4, q1");
    P(t, "mul.wide.u32 q2, tid, 4");
    P(t, "add.u64 q1, q1, q2");
    P(t, "mov.u32 carry, 0");
    P(t, "mov.u32 at, tid");
    P(t, "mov.u32 from, 0");
    LABEL(t, "LOOP:\n");
    P(t, "setp.lt.u32 p1, at, tiles");
    P(t, "mov.u32 run, 0");
    P(t, "@p1 ld.global.u32 run, [q1]");
    write_block_scan(t, S_SUM);
    P(t, "add.u32 excl, excl, carry");
    P(t, "@p1 st.global.u32 [q1], excl");
    P(t, "add.u32 carry, carry, all");
    P(t, "bar.sync 0");
    P(t, "add.u64 q1, q1, %d", ORDER_THREADS * 4);
    P(t, "add.u32 at, at, %d", ORDER_THREADS);
    P(t, "add.u32 from, from, %d", ORDER_THREADS);
    P(t, "setp.lt.u32 p2, from, tiles");
    P(t, "@p2 bra LOOP");
    P(t, "setp.eq.u32 p0, tid, 0");
    ld_ptr(t, "q1", ORDER_totals);
    P(t, "mul.wide.u32 q2, block, 4");
    P(t, "add.u64 q1, q1, q2");
    P(t, "@p0 st.global.u32 [q1], carry");
}

static void write_scatter(text *t)
{
    write_place(t);
    write_zero_counts(t);
    write_load(t);
    write_ranks(t);
    write_local(t);
    write_base(t);
    write_exchange(t);
    write_results(t);
}

static void write_rows(text *t)
{
    write_place(t);
    write_load(t);
    LABEL(t, "PASS:\n");
    write_zero_counts(t);
    write_ranks(t);
    write_local(t);
    write_exchange(t);
    P(t, "add.u32 shift, shift, 8");
    P(t, "setp.ge.u32 p3, shift, %d", order_bits(t->f.dt));
    P(t, "@p3 bra DONE");
    for (int j = 0; j < t->rounds; j++) {
        P(t, "add.u32 at, e, %d", j * 32);
        write_reload(t, "at", j);
    }
    P(t, "bra PASS");
    LABEL(t, "DONE:\n");
    write_results(t);
}

void order_text(strbuf *b, const order_form *f)
{
    text t = { .b = b,
               .f = *f,
               .wide = order_key_bytes(f->dt) == 8,
               .rounds = f->rounds,
               .es = (int)dtype_size(f->dt) };
    static void (*const write[ORDER_KINDS])(text *) = { [ORDER_count] = write_count,
                                                        [ORDER_scan] = write_scan,
                                                        [ORDER_scatter] = write_scatter,
                                                        [ORDER_rows] = write_rows };
    t.kb = t.wide ? "b64" : "b32";
    write_head(&t);
    write[f->kind](&t);
    P(&t, "ret");
    strbuf_add(b, "}\n");
}
