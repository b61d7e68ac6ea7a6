/* select_text.c - see select_text.h. */
#include "target/cuda/ptx_line.h"
#include "target/cuda/select_text.h"

typedef struct text {
    strbuf *b;
    select_form f;
    int es;              /* bytes of an element */
    const char *xb, *xu; /* registers that hold one: "b32", "u32" */
    const char *load;    /* "u8" */
} text;

static void ld_ptr(text *t, const char *reg, int param) { P(t, "ld.param.u64 %s, [arg%d]", reg, param); }
static void ld_int(text *t, const char *reg, int param)
{
    ld_ptr(t, "q0", param);
    P(t, "cvt.u32.u64 %s, q0", reg);
}

static void write_head(text *t)
{
    strbuf_add(t->b, ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry select(\n");
    for (int i = 0; i < SELECT_PARAMS; i++)
        strbuf_addf(t->b, "\t.param .u64 arg%d%s\n", i, i + 1 < SELECT_PARAMS ? "," : ")");
    strbuf_addf(t->b, ".reqntid %d, 1, 1\n{\n", SELECT_THREADS);
    P(t, ".shared .align 16 .b8 sh[64]");
    P(t, ".reg .pred p<6>, on<%d>, hasg, haso", SELECT_ROUNDS);
    P(t,
      ".reg .b32 tid, lane, warp, below, block, base, n, tiles, e, from, at, run, excl, all, carry, pos, "
      "flat, r<8>, v<%d>",
      SELECT_ROUNDS);
    P(t, ".reg .b64 q<10>, src");
    P(t, ".reg .%s x<6>", t->xb);
    P(t, ".reg .f32 f<2>");
    P(t, ".reg .f64 g<2>");
    P(t, "mov.u32 tid, %%tid.x");
    P(t, "and.b32 lane, tid, 31");
    P(t, "shr.u32 warp, tid, 5");
    P(t, "mov.u32 r0, 1");
    P(t, "shl.b32 r0, r0, lane");
    P(t, "sub.u32 below, r0, 1");
    P(t, "mov.u32 base, sh");
    P(t, "mov.u32 block, %%ctaid.x");
    ld_int(t, "n", SELECT_n);
    ld_int(t, "tiles", SELECT_tiles);
}

/* --- what is selected ------------------------------------------------------------------------------- */
/* All bits but the sign, and those of infinity; NULL: not a float. */
static const char *rest_of(dtype dt)
{
    return !dtype_is_float(dt) ? NULL
           : dt == DT_f64      ? "0x7fffffffffffffff"
           : dt == DT_f32      ? "0x7fffffff"
                               : "0x7fff";
}
static const char *inf_of(dtype dt)
{
    return dt == DT_f64   ? "0x7ff0000000000000"
           : dt == DT_f32 ? "0x7f800000"
           : dt == DT_f16 ? "0x7c00"
                          : "0x7f80";
}

/* p1 = the element in x0 is selected; `flat` is its number, src its address. Alters x and p2. */
static void write_selected(text *t)
{
    const char *rest = rest_of(t->f.dt);
    if (!t->f.runs) {
        if (rest)
            P(t, "and.%s x0, x0, %s", t->xb, rest);
        P(t, "setp.ne.%s p1, x0, 0", t->xu);
        return;
    }
    P(t, "mov.%s x1, x0", t->xb);
    P(t, "setp.ne.u32 p2, flat, 0");
    P(t, "@p2 ld.global.%s x1, [q1+-%d]", t->load, t->es);
    if (rest) { /* both zeros are equal, no NaN is */
        for (int i = 0; i < 2; i++) {
            P(t, "and.%s x2, x%d, %s", t->xb, i, rest);
            P(t, "setp.eq.%s p3, x2, 0", t->xu);
            P(t, "selp.%s x%d, 0, x%d, p3", t->xb, i, i);
        }
        P(t, "and.%s x2, x0, %s", t->xb, rest);
        P(t, "setp.gt.%s p3, x2, %s", t->xu, inf_of(t->f.dt));
    }
    P(t, "setp.ne.%s p1, x0, x1", t->xu);
    if (rest)
        P(t, "or.pred p1, p1, p3");
    P(t, "not.pred p2, p2"); /* the first one */
    P(t, "or.pred p1, p1, p2");
}

/* v: votes of each round, on: those of this thread; run: how many of the warp; excl: of the warps before; all: of the block. */
static void write_votes(text *t)
{
    P(t, "mul.lo.u32 from, block, %d", SELECT_TILE);
    P(t, "mad.lo.u32 e, warp, %d, lane", SELECT_ROUNDS * 32);
    P(t, "add.u32 e, e, from");
    ld_ptr(t, "src", SELECT_in);
    P(t, "mov.u32 run, 0");
    for (int j = 0; j < SELECT_ROUNDS; j++) {
        P(t, "add.u32 flat, e, %d", j * 32);
        P(t, "setp.lt.u32 p0, flat, n");
        P(t, "setp.ne.u32 p1, tid, tid");
        P(t, "@!p0 bra VOTE%d", j);
        P(t, "mul.wide.u32 q1, flat, %d", t->es);
        P(t, "add.u64 q1, q1, src");
        P(t, "ld.global.%s x0, [q1]", t->load);
        write_selected(t);
        LABEL(t, "VOTE%d:\n", j);
        P(t, "vote.sync.ballot.b32 v%d, p1, -1", j);
        P(t, "mov.pred on%d, p1", j);
        P(t, "popc.b32 r0, v%d", j);
        P(t, "add.u32 run, run, r0");
    }
    P(t, "setp.eq.u32 p0, lane, 0");
    P(t, "shl.b32 r0, warp, 2");
    P(t, "add.u32 r0, base, r0");
    P(t, "@p0 st.shared.u32 [r0], run");
    P(t, "bar.sync 0");
    P(t, "mov.u32 excl, 0");
    P(t, "mov.u32 all, 0");
    for (int w = 0; w < SELECT_THREADS / 32; w++) {
        P(t, "ld.shared.u32 r2, [base+%d]", w * 4);
        P(t, "setp.gt.u32 p0, warp, %d", w);
        P(t, "@p0 add.u32 excl, excl, r2");
        P(t, "add.u32 all, all, r2");
    }
}

/* --- kernels ---------------------------------------------------------------------------------------- */
static void write_count(text *t)
{
    write_votes(t);
    ld_ptr(t, "q1", SELECT_counts);
    P(t, "mul.wide.u32 q2, block, 4");
    P(t, "add.u64 q1, q1, q2");
    P(t, "setp.eq.u32 p0, tid, 0");
    P(t, "@p0 st.global.u32 [q1], all");
}

static void write_scan(text *t)
{
    ld_ptr(t, "q1", SELECT_counts);
    P(t, "mul.wide.u32 q2, tid, 4");
    P(t, "add.u64 q1, q1, q2");
    P(t, "mov.u32 carry, 0");
    P(t, "mov.u32 from, 0");
    LABEL(t, "LOOP:\n");
    P(t, "add.u32 at, from, tid");
    P(t, "setp.lt.u32 p1, at, tiles");
    P(t, "mov.u32 run, 0");
    P(t, "@p1 ld.global.u32 run, [q1]");
    P(t, "mov.u32 r1, run");
    for (int by = 1; by < 32; by *= 2) {
        P(t, "shfl.sync.up.b32 r2, r1, %d, 0, -1", by);
        P(t, "setp.ge.u32 p0, lane, %d", by);
        P(t, "@p0 add.u32 r1, r1, r2");
    }
    P(t, "setp.eq.u32 p0, lane, 31");
    P(t, "shl.b32 r0, warp, 2");
    P(t, "add.u32 r0, base, r0");
    P(t, "@p0 st.shared.u32 [r0], r1");
    P(t, "bar.sync 0");
    P(t, "sub.u32 excl, r1, run");
    P(t, "add.u32 excl, excl, carry");
    for (int w = 0; w < SELECT_THREADS / 32; w++) {
        P(t, "ld.shared.u32 r2, [base+%d]", w * 4);
        P(t, "setp.gt.u32 p0, warp, %d", w);
        P(t, "@p0 add.u32 excl, excl, r2");
        P(t, "add.u32 carry, carry, r2");
    }
    P(t, "@p1 st.global.u32 [q1], excl");
    P(t, "bar.sync 0");
    P(t, "add.u64 q1, q1, %d", SELECT_THREADS * 4);
    P(t, "add.u32 from, from, %d", SELECT_THREADS);
    P(t, "setp.lt.u32 p2, from, tiles");
    P(t, "@p2 bra LOOP");
    ld_ptr(t, "q1", SELECT_counts);
    P(t, "mul.wide.u32 q2, tiles, 4");
    P(t, "add.u64 q1, q1, q2");
    P(t, "setp.eq.u32 p0, tid, 0");
    P(t, "@p0 st.global.u32 [q1], carry");
}

/* Number `flat` as a position in the tensor, in row `pos` of the result. q2: the result, q3: its rows. */
static void write_position(text *t)
{
    P(t, "mov.u32 r1, flat");
    for (int d = t->f.ndim - 1; d >= 0; d--) {
        P(t, "mov.u32 r3, r1");
        if (d) {
            ld_int(t, "r2", SELECT_size + d);
            P(t, "div.u32 r4, r1, r2");
            P(t, "mul.lo.u32 r3, r4, r2");
            P(t, "sub.u32 r3, r1, r3");
            P(t, "mov.u32 r1, r4");
        }
        P(t, "cvt.u64.u32 q4, pos");
        P(t, "mad.lo.u64 q4, q3, %d, q4", d);
        P(t, "mad.lo.u64 q4, q4, 8, q2");
        P(t, "cvt.u64.u32 q5, r3");
        P(t, "st.global.u64 [q4], q5");
    }
}

/* The first element of run `pos`. q2: elements of the result, q3: where runs start. */
static void write_run(text *t)
{
    P(t, "mul.wide.u32 q4, flat, %d", t->es);
    P(t, "add.u64 q4, q4, src");
    P(t, "ld.global.%s x0, [q4]", t->load);
    P(t, "mul.wide.u32 q4, pos, %d", t->es);
    P(t, "add.u64 q4, q4, q2");
    P(t, "st.global.%s [q4], x0", t->load);
    P(t, "mul.wide.u32 q4, pos, 4");
    P(t, "add.u64 q4, q4, q3");
    P(t, "st.global.u32 [q4], flat");
}

/* The run of element `flat` is pos + 1 of those up to it. */
static void write_group(text *t, int j)
{
    P(t, "setp.lt.u32 p0, flat, n");
    P(t, "@!p0 bra NEXT%d", j);
    P(t, "cvt.u64.u32 q4, flat");
    P(t, "@!haso bra PLACE%d", j);
    P(t, "mad.lo.u64 q5, q4, 8, q7");
    P(t, "ld.global.u64 q4, [q5]");
    LABEL(t, "PLACE%d:\n", j);
    P(t, "mad.lo.u64 q5, q4, 8, q6");
    P(t, "selp.u32 r1, 0, 1, on%d", j); /* pos counts those before it */
    P(t, "sub.u32 r1, pos, r1");
    P(t, "cvt.u64.u32 q4, r1");
    P(t, "@hasg st.global.u64 [q5], q4");
    LABEL(t, "NEXT%d:\n", j);
}

static void write_write(text *t)
{
    write_votes(t);
    ld_ptr(t, "q1", SELECT_counts);
    P(t, "mul.wide.u32 q2, block, 4");
    P(t, "add.u64 q1, q1, q2");
    P(t, "ld.global.u32 r7, [q1]");
    P(t, "add.u32 r7, r7, excl"); /* found before this warp */
    ld_ptr(t, "q2", t->f.runs ? SELECT_values : SELECT_to);
    ld_ptr(t, "q3", t->f.runs ? SELECT_starts : SELECT_found);
    ld_ptr(t, "q6", SELECT_group);
    ld_ptr(t, "q7", SELECT_order);
    P(t, "setp.ne.u64 hasg, q6, 0");
    P(t, "setp.ne.u64 haso, q7, 0");
    for (int j = 0; j < SELECT_ROUNDS; j++) {
        P(t, "add.u32 flat, e, %d", j * 32);
        P(t, "and.b32 r1, v%d, below", j);
        P(t, "popc.b32 r1, r1");
        P(t, "add.u32 pos, r7, r1");
        P(t, "@!on%d bra SKIP%d", j, j);
        if (t->f.runs)
            write_run(t);
        else
            write_position(t);
        LABEL(t, "SKIP%d:\n", j);
        if (t->f.runs)
            write_group(t, j);
        P(t, "popc.b32 r1, v%d", j);
        P(t, "add.u32 r7, r7, r1");
    }
}

/* How long each run is: a thread a run. */
static void write_lengths(text *t)
{
    P(t, "mad.lo.u32 at, block, %d, tid", SELECT_THREADS);
    ld_int(t, "all", SELECT_found);
    P(t, "setp.ge.u32 p0, at, all");
    P(t, "@p0 bra END");
    ld_ptr(t, "q1", SELECT_starts);
    P(t, "mul.wide.u32 q2, at, 4");
    P(t, "add.u64 q1, q1, q2");
    P(t, "ld.global.u32 r0, [q1]");
    P(t, "mov.u32 r1, n");
    P(t, "add.u32 r2, at, 1");
    P(t, "setp.lt.u32 p0, r2, all");
    P(t, "@p0 ld.global.u32 r1, [q1+4]");
    P(t, "sub.u32 r1, r1, r0");
    P(t, "cvt.u64.u32 q2, r1");
    ld_ptr(t, "q1", SELECT_to);
    P(t, "mul.wide.u32 q3, at, 8");
    P(t, "add.u64 q1, q1, q3");
    P(t, "st.global.u64 [q1], q2");
    LABEL(t, "END:\n");
}

/* A thread a value: halves the range without looking whether the boundaries are in order, as the CPU does. */
static void write_search(text *t)
{
    const char *type = t->f.dt == DT_f32   ? "f32"
                       : t->f.dt == DT_f64 ? "f64"
                                           : "s64",
               *cmp = dtype_is_float(t->f.dt) ? (t->f.right ? "leu" : "ltu")
                      : t->f.right            ? "le"
                                              : "lt",
               *m = t->f.dt == DT_f32   ? "f0"
                    : t->f.dt == DT_f64 ? "g0"
                                        : "q8",
               *y = t->f.dt == DT_f32   ? "f1"
                    : t->f.dt == DT_f64 ? "g1"
                                        : "q9";
    P(t, "mad.lo.u32 at, block, %d, tid", SELECT_THREADS);
    ld_int(t, "all", SELECT_found);
    P(t, "setp.ge.u32 p0, at, all");
    P(t, "@p0 bra END");
    ld_ptr(t, "src", SELECT_in);
    ld_int(t, "r0", SELECT_per);
    P(t, "setp.eq.u32 p0, r0, 0");
    P(t, "@p0 bra LINE");
    P(t, "div.u32 r1, at, r0");
    P(t, "mul.wide.u32 q1, r1, n");
    P(t, "mad.lo.u64 src, q1, %d, src", t->es);
    LABEL(t, "LINE:\n");
    ld_ptr(t, "q1", SELECT_values);
    P(t, "mul.wide.u32 q2, at, %d", t->es);
    P(t, "add.u64 q1, q1, q2");
    P(t, "ld.global.%s %s, [q1]", type, y);
    P(t, "mov.u32 pos, 0");
    P(t, "mov.u32 run, n");
    P(t, "setp.eq.u32 p0, run, 0");
    P(t, "@p0 bra FOUND");
    LABEL(t, "HALF:\n"); /* of one boundary, too: half is 1 at the end */
    P(t, "shr.u32 r1, run, 1");
    P(t, "max.u32 r1, r1, 1");
    P(t, "add.u32 r2, pos, r1");
    P(t, "mul.wide.u32 q1, r2, %d", t->es);
    P(t, "add.u64 q1, q1, src");
    P(t, "ld.global.%s %s, [q1+-%d]", type, m, t->es);
    P(t, "setp.%s.%s p1, %s, %s", cmp, type, m, y);
    P(t, "@p1 mov.u32 pos, r2");
    P(t, "sub.u32 run, run, r1");
    P(t, "setp.gt.u32 p0, run, 0");
    P(t, "@p0 bra HALF");
    LABEL(t, "FOUND:\n");
    ld_ptr(t, "q1", SELECT_to);
    P(t, "mul.wide.u32 q2, at, %d", t->f.narrow ? 4 : 8);
    P(t, "add.u64 q1, q1, q2");
    P(t, "cvt.u64.u32 q2, pos");
    P(t, t->f.narrow ? "st.global.u32 [q1], pos" : "st.global.u64 [q1], q2");
    LABEL(t, "END:\n");
}

void select_text(strbuf *b, const select_form *f)
{
    static void (*const write[SELECT_KINDS])(text *) = { [SELECT_count] = write_count,
                                                         [SELECT_scan] = write_scan,
                                                         [SELECT_write] = write_write,
                                                         [SELECT_lengths] = write_lengths,
                                                         [SELECT_search] = write_search };
    text t = { .b = b, .f = *f, .es = (int)dtype_size(f->dt) };
    t.xb = t.es == 8 ? "b64" : "b32", t.xu = t.es == 8 ? "u64" : "u32";
    t.load = t.es == 1 ? "u8" : t.es == 2 ? "u16" : t.xb;
    write_head(&t);
    write[f->kind](&t);
    P(&t, "ret");
    strbuf_add(b, "}\n");
}
