/* gen_fuzz.c - draws kernels: pointwise chains, reductions of every kind over inner, outer and all loops,
 * variables, gathers, masks, mixed types. */
#include "gen_fuzz.h"
#include "test.h"
#include "base/map.h"
#include "vir/math/vnum.h"
#include <math.h>

typedef struct {
    uint64_t s;
    vir *k;
    vir_ref pool[5][24]; /* values by type */
    int npool[5];
    int in[4], idx;                               /* buffers */
    vir_ref n, rows, stride, off, flt, one, i, r; /* i: vector variable or 0 */
    bool nested;                                  /* inside a serial loop inside the vector loop */
} gen;

static uint32_t rnd(gen *g, uint32_t n)
{
    g->s = g->s * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(hash_u64(g->s) >> 33) % n;
}

static vir_type types[5] = { VT_f64, VT_f32, VT_i64, VT_i32, VT_mask };

static void push(gen *g, vir_ref v)
{
    if (!v)
        return;
    int t = (int)vir_type_of(g->k, v) - 1;
    int at = g->npool[t] < 24 ? g->npool[t]++ : (int)rnd(g, 24);
    g->pool[t][at] = v;
}
static vir_ref pick(gen *g, vir_type t)
{
    int n = g->npool[t - 1];
    if (n && rnd(g, 8))
        return g
            ->pool[t - 1][rnd(g, 3) ? n - 1 - (int)rnd(g, (uint32_t)MIN(n, 4)) : (int)rnd(g, (uint32_t)n)];
    if (t == VT_mask)
        return vir_lt(g->k, pick(g, VT_f32), vir_flt(g->k, VT_f32, 0.5));
    if (t == VT_f32 || t == VT_f64) {
        static const double c[] = { 0, 1, -1, 0.5, 3.25, -2.75, 1e-3, 100 };
        return vir_flt(g->k, t, c[rnd(g, 8)]);
    }
    static const int64_t c[] = { 0, 1, -1, 2, 3, 7, 16, -5, 1000, 255, 65537 };
    return vir_imm(g->k, t, c[rnd(g, 11)]);
}

/* An index that stays inside the buffers: affine or computed. */
static vir_ref index_of(gen *g)
{
    vir *k = g->k;
    vir_ref row = g->r ? vir_mul(k, g->r, g->stride) : vir_int(k, 0), x;
    if (!g->i)
        return g->r && rnd(g, 2) ? g->r : vir_add(k, row, g->off);
    switch (rnd(g, 10)) {
    case 0: return vir_add(k, g->r ? g->r : g->off, vir_int(k, rnd(g, 3)));
    case 1: return vir_add(k, row, vir_mul(k, g->i, vir_int(k, 1 + rnd(g, 4))));
    case 2: return vir_add(k, vir_mul(k, g->i, g->stride), g->off); /* symbolic stride: at most n * stride */
    case 3: x = vir_modf(k, vir_add(k, g->i, g->off), vir_int(k, 5 + rnd(g, 9))); return vir_add(k, row, x);
    case 4: x = vir_divf(k, g->i, vir_int(k, 1 + rnd(g, 4))); return vir_add(k, row, x);
    case 5: return vir_cvt(k, VT_i64, vir_load(k, g->idx, g->i, 0)); /* gather by an index buffer */
    case 6: return vir_load(k, g->idx, g->i, 0);                     /* i32 indices */
    case 7: return vir_sub(k, vir_add(k, row, vir_int(k, 600)), g->i);
    default: return vir_add(k, vir_add(k, row, g->i), vir_int(k, rnd(g, 2)));
    }
}

static void some_load(gen *g)
{
    vir_ref mask = rnd(g, 6) == 0 ? pick(g, VT_mask) : 0;
    push(g, vir_load(g->k, g->in[rnd(g, 4)], index_of(g), mask));
}

static const vir_op arith[] = { VIR_add, VIR_sub, VIR_mul, VIR_min, VIR_max };
static const vir_op f2[] = { VIR_div, VIR_fmin, VIR_fmax, VIR_add, VIR_mul };
static const vir_op f1[] = { VIR_neg, VIR_abs, VIR_sqrt, VIR_floor, VIR_ceil, VIR_trunc, VIR_round };
static const vir_op ints[] = { VIR_divt, VIR_divf, VIR_modt, VIR_modf, VIR_shl,
                               VIR_shr,  VIR_sra,  VIR_and,  VIR_or,   VIR_xor };

static void some_op(gen *g)
{
    vir *k = g->k;
    vir_type t = types[rnd(g, 4)], u = types[rnd(g, 4)];
    if (rnd(g, 2)) /* keep many kernels narrow */
        t = t == VT_f64 ? VT_f32 : t == VT_i64 ? VT_i32 : t;
    bool flt = t == VT_f32 || t == VT_f64;
    switch (rnd(g, 16)) {
    case 0:
    case 1:
    case 2: push(g, vir_op2(k, arith[rnd(g, COUNT(arith))], pick(g, t), pick(g, t))); break;
    case 3:
        if (flt)
            push(g, vir_op2(k, f2[rnd(g, COUNT(f2))], pick(g, t), pick(g, t)));
        else
            push(g, vir_op2(k, ints[rnd(g, COUNT(ints))], pick(g, t), pick(g, t)));
        break;
    case 4:
        push(g, flt ? vir_op1(k, f1[rnd(g, COUNT(f1))], pick(g, t))
                    : vir_op1(k, rnd(g, 2) ? VIR_neg : VIR_abs, pick(g, t)));
        break;
    case 5:
        if (flt)
            push(g, vir_fma(k, pick(g, t), pick(g, t), pick(g, t)));
        else
            push(g, vir_not(k, pick(g, t)));
        break;
    case 6: push(g, vir_op2(k, (vir_op)(VIR_eq + rnd(g, 6)), pick(g, t), pick(g, t))); break;
    case 7: push(g, vir_select(k, pick(g, VT_mask), pick(g, t), pick(g, t))); break;
    case 8: push(g, vir_cvt(k, t, pick(g, u))); break;
    case 9: push(g, vir_cvt(k, t, pick(g, VT_mask))); break;
    case 10: push(g, vir_op2(k, (vir_op)(VIR_and + rnd(g, 3)), pick(g, VT_mask), pick(g, VT_mask))); break;
    case 11:
        push(g, rnd(g, 2) ? vir_not(k, pick(g, VT_mask))
                          : vir_select(k, pick(g, VT_mask), pick(g, VT_mask), pick(g, VT_mask)));
        break;
    case 12: {
        static const vir_mem fm[] = { VM_f16, VM_bf16 }, im[] = { VM_i16, VM_i8, VM_u8 };
        push(g, rnd(g, 2) ? vir_narrow(k, fm[rnd(g, 2)], pick(g, VT_f32))
                          : vir_narrow(k, im[rnd(g, 3)], pick(g, VT_i32)));
        break;
    }
    case 13:
        if (flt)
            push(g, vir_op1(k, (vir_op)(VIR_exp + rnd(g, VIR_cbrt - VIR_exp + 1)), pick(g, t)));
        else if (t == VT_i32)
            push(g, vir_mulhu(k, pick(g, t), pick(g, t)));
        break;
    case 14:
        if (g->i &&
            rnd(g, 3) == 0) { /* counted by the loop in whole blocks, or not; the block number may carry */
            vir_ref at = vir_mul(k, g->r ? g->r : g->off, vir_int(k, rnd(g, 2) ? 8 : 3));
            push(g, vir_draw(k, t, vir_int(k, 0x123456789abcdefLL), vir_int(k, 0xfffffff5LL),
                             vir_add(k, at, g->i)));
        } else if (flt && rnd(g, 2))
            push(g, vir_op2(k, (vir_op)(VIR_pow + rnd(g, 3)), pick(g, t), pick(g, t)));
        else if (flt)
            push(g, vir_call(k, rnd(g, 2) ? "fmod" : "nextafter", pick(g, t), pick(g, t)));
        break;
    default: some_load(g); break;
    }
}

static void some_ops(gen *g, int n)
{
    for (int i = 0; i < n; i++)
        some_op(g);
}

static vir_mem any_mem(gen *g)
{
    static const vir_mem m[] = { VM_f32, VM_f32, VM_f32, VM_f64, VM_f16, VM_bf16,
                                 VM_i64, VM_i32, VM_i16, VM_i8,  VM_u8,  VM_bool };
    return m[rnd(g, COUNT(m))];
}

/* A store to a new output: row-major for lanes, one element a row outside. */
static void some_store(gen *g)
{
    vir *k = g->k;
    vir_mem m = any_mem(g);
    bool add = rnd(g, 8) == 0 && vir_mem_size(m) >= 4;
    int out = vir_buffer(k, m, add ? VIR_INOUT : VIR_OUT, "out");
    vir_ref v = pick(g, vir_mem_type(m)), idx;
    if (!g->i)
        idx = g->r ? g->r : g->off;
    else if (add && !g->nested && rnd(g, 2))
        idx = vir_add(k, g->r ? vir_mul(k, g->r, vir_int(k, 3)) : vir_int(k, 0),
                      vir_modf(k, g->i, vir_int(k, 3)));
    else /* no two lanes write one element */
        idx = vir_add(k, g->r ? vir_mul(k, g->r, g->n) : vir_int(k, 0), g->i);
    if (g->i && !add && rnd(g, 6) == 0)
        idx = vir_mul(k, idx, vir_int(k, 2));
    vir_ref mask = rnd(g, 6) == 0 ? pick(g, VT_mask) : 0;
    if (add)
        vir_store_add(k, out, idx, v, mask);
    else
        vir_store(k, out, idx, v, mask);
}

static int start_red(gen *g, vir_type *t)
{
    vir_red_kind kind = (vir_red_kind)rnd(g, RED_COUNT);
    *t = kind == RED_any || kind == RED_all                              ? VT_mask
         : kind == RED_welford || kind == RED_softmax || kind == RED_lse ? (rnd(g, 3) ? VT_f32 : VT_f64)
                                                                         : types[rnd(g, 2) ? 1 : rnd(g, 4)];
    return vir_red(g->k, kind, *t);
}
/* A running result: its parts are read behind every step. */
static int start_scan(gen *g, vir_type *t)
{
    static const vir_red_kind kinds[] = { RED_sum,    RED_prod,   RED_min,   RED_max,
                                          RED_argmin, RED_cummin, RED_cummax };
    vir_red_kind kind = kinds[rnd(g, (int)COUNT(kinds))];
    *t = types[rnd(g, 4)];
    return vir_scan(g->k, kind, *t);
}
static void read_parts(gen *g, int red)
{
    for (int p = 0; p < vir_red_parts(g->k->reds[red].kind); p++)
        push(g, vir_part(g->k, red, p));
}
static void do_step(gen *g, int red, vir_type t, vir_ref idx)
{
    vir_red_kind kind = g->k->reds[red].kind;
    bool arg = vir_red_places(kind);
    if (arg && t != VT_f64 && t != VT_i64)
        idx = vir_cvt(g->k, VT_i32, idx);
    vir_step(g->k, red, pick(g, t), arg ? idx : 0);
}
static void end_red(gen *g, int red)
{
    push(g, vir_fold(g->k, red));
    for (int p = 1; p < vir_red_parts(g->k->reds[red].kind); p++)
        push(g, vir_part(g->k, red, p));
}

static void enter(gen *g, vir_ref i) { g->i = i; }
/* Values made inside a loop are gone after it: the pool of before comes back. */
typedef struct {
    vir_ref pool[5][24];
    int npool[5];
} snapshot;
static void save(gen *g, snapshot *s)
{
    memcpy(s->pool, g->pool, sizeof s->pool), memcpy(s->npool, g->npool, sizeof s->npool);
}
static void back(gen *g, const snapshot *s)
{
    memcpy(g->pool, s->pool, sizeof s->pool), memcpy(g->npool, s->npool, sizeof s->npool);
}

static void pointwise_loop(gen *g)
{
    snapshot s;
    save(g, &s);
    enter(g, vir_loop(g->k, LOOP_vector, vir_int(g->k, 0), g->n));
    if (rnd(g, 4) == 0)
        push(g, g->i);
    for (int i = 0; i < 2; i++)
        some_load(g);
    some_ops(g, 1 + (int)rnd(g, 14));
    some_store(g);
    if (rnd(g, 3) == 0)
        some_store(g);
    vir_end(g->k);
    enter(g, 0);
    back(g, &s);
}

static void inner_reduction(gen *g, bool two_loops)
{
    vir_type t[3];
    int red[3], n = 1 + (int)rnd(g, 3);
    bool runs = rnd(g, 4) == 0;
    snapshot s;
    for (int i = 0; i < n; i++)
        red[i] = runs ? start_scan(g, &t[i]) : start_red(g, &t[i]);
    save(g, &s);
    vir_ref outer = 0, keep = g->r;
    if (two_loops)
        outer = vir_loop(g->k, LOOP_serial, vir_int(g->k, 0), g->rows), g->r = outer;
    enter(g, vir_loop(g->k, LOOP_vector, vir_int(g->k, 0), g->n));
    some_load(g), some_load(g);
    some_ops(g, (int)rnd(g, 8));
    for (int i = 0; i < n; i++)
        do_step(g, red[i], t[i], outer ? vir_add(g->k, vir_mul(g->k, outer, g->n), g->i) : g->i);
    for (int i = 0; i < n && runs; i++)
        read_parts(g, red[i]);
    if (runs)
        some_ops(g, (int)rnd(g, 3)), some_store(g);
    vir_end(g->k);
    enter(g, 0);
    if (outer)
        vir_end(g->k);
    g->r = keep;
    back(g, &s);
    for (int i = 0; i < n && !runs; i++)
        end_red(g, red[i]);
    some_ops(g, (int)rnd(g, 3));
    some_store(g);
}

/* Lanes over columns, a serial loop over rows inside: reductions and variables per lane. */
static void outer_reduction(gen *g)
{
    vir *k = g->k;
    vir_type t[2];
    int red[2], n = 1 + (int)rnd(g, 2);
    bool runs = rnd(g, 4) == 0;
    snapshot s, in;
    save(g, &s);
    vir_ref keep = g->r;
    enter(g, vir_loop(k, LOOP_vector, vir_int(k, 0), g->n));
    some_load(g);
    for (int i = 0; i < n; i++)
        red[i] = runs ? start_scan(g, &t[i]) : start_red(g, &t[i]);
    vir_type vt = rnd(g, 2) ? VT_f32 : types[rnd(g, 4)];
    vir_ref var = vir_var(k, pick(g, vt));
    save(g, &in);
    g->r = vir_loop(k, LOOP_serial, vir_int(k, 0), g->rows);
    g->nested = true;
    some_load(g);
    push(g, vir_get(k, var));
    some_ops(g, 1 + (int)rnd(g, 5));
    for (int i = 0; i < n; i++)
        do_step(g, red[i], t[i], g->r);
    for (int i = 0; i < n && runs; i++)
        read_parts(g, red[i]);
    vir_set(k, var, pick(g, vt));
    if ((runs || rnd(g, 2)) && !keep) /* iterations of the parallel loop have no element in common */
        some_store(g);
    vir_end(k);
    back(g, &in);
    g->r = keep;
    g->nested = false;
    for (int i = 0; i < n && !runs; i++)
        end_red(g, red[i]);
    push(g, vir_get(k, var));
    some_ops(g, (int)rnd(g, 4));
    some_store(g);
    vir_end(k);
    enter(g, 0);
    back(g, &s);
}

/* A scan: one variable carried along a row, stored at each step. */
static void scan(gen *g)
{
    vir *k = g->k;
    snapshot s;
    vir_type t = types[rnd(g, 4)];
    vir_mem m = t == VT_f64 ? VM_f64 : t == VT_f32 ? VM_f32 : t == VT_i64 ? VM_i64 : VM_i32;
    int out = vir_buffer(k, m, VIR_OUT, "scan");
    vir_ref var = vir_var(k, pick(g, t)), keep = g->r;
    save(g, &s);
    vir_ref j = vir_loop(k, LOOP_serial, vir_int(k, 0), g->n);
    g->r = j;
    some_load(g), push(g, vir_get(k, var)), push(g, j);
    some_ops(g, 1 + (int)rnd(g, 4));
    vir_set(k, var, pick(g, t));
    g->r = keep;
    vir_store(k, out, g->r ? vir_add(k, vir_mul(k, g->r, g->n), j) : j, vir_get(k, var), 0);
    vir_end(k);
    back(g, &s);
    push(g, vir_get(k, var));
}

void fuzz_make(fuzz_case *f, arena *a, uint64_t seed)
{
    gen g = { .s = seed * 7919 + 13 };
    vir *k = g.k = f->k = vir_make(a, "fuzz");
    f->seed = seed;
    for (int i = 0; i < 4; i++)
        g.in[i] = vir_buffer(k, any_mem(&g), VIR_IN, "in");
    g.idx = vir_buffer(k, VM_i32, VIR_IN, "idx");
    g.n = vir_int_arg(k, "n"), g.rows = vir_int_arg(k, "rows");
    g.stride = vir_int_arg(k, "stride"), g.off = vir_int_arg(k, "off");
    push(&g, vir_float_arg(k, VT_f32, "f0"));
    push(&g, vir_float_arg(k, VT_f64, "f1"));
    if (rnd(&g, 4) == 0)
        push(&g, vir_cvt(k, VT_i32, g.n)), push(&g, g.off);
    k->ways = 1 << rnd(&g, 3);
    if (rnd(&g, 4) == 0)
        k->ways = 0;
    if (rnd(&g, 3))
        g.r = vir_loop(k, LOOP_parallel, vir_int(k, 0), g.rows);
    some_load(&g);
    some_ops(&g, (int)rnd(&g, 3));
    for (uint32_t i = 0, n = 1 + rnd(&g, 3); i < n; i++)
        switch (rnd(&g, 6)) {
        case 0:
        case 1: pointwise_loop(&g); break;
        case 2: inner_reduction(&g, false); break;
        case 3: inner_reduction(&g, g.r == 0); break;
        case 4: outer_reduction(&g); break;
        default: scan(&g); break;
        }
    if (g.r)
        vir_end(k);
}

static uint64_t roll(uint64_t *s)
{
    return hash_u64(*s = *s * 6364136223846793005ULL + 1442695040888963407ULL);
}

static void fill(vir_mem m, void *p, size_t n, uint64_t seed, bool special)
{
    static const double odd[] = { 0.0,     -0.0, INFINITY, -INFINITY, NAN,   1e-40,
                                  -1e-310, 3e38, 1e300,    65504,     65536, -1 };
    for (size_t i = 0; i < n; i++) {
        uint64_t r = roll(&seed);
        double d = (double)((int64_t)(r % 20001) - 10000) * (r & 1 << 20 ? 0.001 : 0.0625);
        if (special && r >> 40 & 1 && (r >> 41 & 3) == 0)
            d = odd[(r >> 45) % COUNT(odd)];
        int64_t v = special && (r >> 33 & 7) == 0 ? (int64_t)roll(&seed) : (int64_t)(r % 2001) - 1000;
        switch (m) {
        case VM_f64: ((double *)p)[i] = d; break;
        case VM_f32: ((float *)p)[i] = (float)d; break;
        case VM_f16: ((uint16_t *)p)[i] = vnum_to_f16((float)d); break;
        case VM_bf16: ((uint16_t *)p)[i] = vnum_to_bf16((float)d); break;
        case VM_i64: ((int64_t *)p)[i] = v; break;
        case VM_i32: ((int32_t *)p)[i] = (int32_t)v; break;
        case VM_i16: ((int16_t *)p)[i] = (int16_t)v; break;
        case VM_bool: ((uint8_t *)p)[i] = r & 1; break;
        default: ((uint8_t *)p)[i] = (uint8_t)v; break;
        }
    }
}

void fuzz_data(fuzz_case *f, arena *a, int round)
{
    static const int sizes[] = { 0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 100, 127, 129 };
    static const int rows[] = { 1, 3, 0, 2, 5, 4 };
    uint64_t s = f->seed * 31 + (uint64_t)round;
    f->ints[0] = round == 0 ? 37 : sizes[roll(&s) % COUNT(sizes)];
    f->ints[1] = round == 0 ? 3 : rows[roll(&s) % COUNT(rows)];
    f->ints[2] = 1 + (int64_t)(roll(&s) % 5);
    f->ints[3] = (int64_t)(roll(&s) % 6);
    f->flts[0] = 1.75, f->flts[1] = -0.3;
    f->elems = 1400; /* room for every index that index_of can form, gathers included */
    f->bufs = ARENA_ARR(a, void *, f->k->nbufs);
    for (int b = 0; b < f->k->nbufs; b++) {
        vir_mem m = f->k->bufs[b].mem;
        f->bufs[b] = arena_zalloc(a, f->elems * vir_mem_size(m) + 64);
        fill(m, f->bufs[b], f->elems, s + (uint64_t)b, round == 2);
        if (b == 4) /* the index buffer */
            for (size_t i = 0; i < f->elems; i++)
                ((int32_t *)f->bufs[b])[i] = (int32_t)(roll(&s) % 1000);
    }
}

void **fuzz_clone(const fuzz_case *f, arena *a)
{
    void **c = ARENA_ARR(a, void *, f->k->nbufs);
    for (int b = 0; b < f->k->nbufs; b++)
        c[b] = arena_dup(a, f->bufs[b], f->elems * vir_mem_size(f->k->bufs[b].mem) + 64);
    return c;
}

static bool same_bytes(vir_mem m, const void *x, const void *y, size_t i)
{
    size_t s = vir_mem_size(m);
    const char *p = (const char *)x + i * s, *q = (const char *)y + i * s;
    if (!memcmp(p, q, s))
        return true;
    if (m == VM_f64) {
        double a, b;
        memcpy(&a, p, 8), memcpy(&b, q, 8);
        return a != a && b != b;
    }
    if (m == VM_f32) {
        float a, b;
        memcpy(&a, p, 4), memcpy(&b, q, 4);
        return a != a && b != b;
    }
    uint16_t a, b;
    if (m == VM_f16 || m == VM_bf16) {
        memcpy(&a, p, 2), memcpy(&b, q, 2);
        uint16_t inf = m == VM_f16 ? 0x7c00 : 0x7f80;
        return (a & 0x7fff) > inf && (b & 0x7fff) > inf;
    }
    return false;
}

bool fuzz_same(const fuzz_case *f, void *const *got, void *const *want, const char *who)
{
    for (int b = 0; b < f->k->nbufs; b++) {
        vir_mem m = f->k->bufs[b].mem;
        for (size_t i = 0; i < f->elems; i++)
            if (!same_bytes(m, got[b], want[b], i)) {
                strbuf t = { 0 };
                size_t s = vir_mem_size(m);
                char hex[2][20] = { "", "" };
                for (size_t j = 0; j < s; j++) {
                    snprintf(hex[0] + 2 * j, 3, "%02x", ((uint8_t *)got[b])[i * s + s - 1 - j]);
                    snprintf(hex[1] + 2 * j, 3, "%02x", ((uint8_t *)want[b])[i * s + s - 1 - j]);
                }
                vir_print(f->k, &t);
                test_fail(__FILE__, __LINE__,
                          "seed %llu, %s, buffer %d element %zu: %s, expected %s (n %lld rows %lld)\n%s",
                          (unsigned long long)f->seed, who, b, i, hex[0], hex[1], (long long)f->ints[0],
                          (long long)f->ints[1], strbuf_str(&t));
                strbuf_free(&t);
                return false;
            }
    }
    return true;
}
