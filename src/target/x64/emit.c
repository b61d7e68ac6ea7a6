/* emit.c - from the vector IR to machine instructions over virtual registers.
 * Floats, masks and lane-varying integers live in vector (or mask) registers; uniform integers in general
 * ones. */
#include "target/x64/mir.h"
#include <math.h>

typedef struct low {
    mir *m;
    const vir *k;
    tp_err *err;
    int L, copies;   /* lanes of a register; registers in flight in a vector loop */
    int32_t *map;    /* [copy * n + value]: register of a value */
    int32_t *vecmap; /* uniform integer values: their broadcast, where somebody needs it */
    uint8_t *needvec;
    int32_t (*strides)[2]; /* uniform strides known at run time: 0, s, 2s, ... in 64-bit lanes, second half */
    uint8_t *needstride;
    int32_t **red;       /* by reduction: [copy * 4 + part] */
    int tail;            /* mask register of active lanes, or 0 outside tails */
    int tailmask[16];    /* by copy, in tails */
    int cur;             /* the copy being written */
    int first;           /* the first copy of the region being written */
    int32_t (*drawn)[4]; /* by value: what four copies drew together */
    int upper_of, upper; /* index of a table, and its bit 3 as a mask */
    int ivar;            /* general register of the vector loop's variable */
    bool numbers;        /* no operand is NaN */
    bool failed;
} low;

static bool is_flt(int t) { return t == VT_f64 || t == VT_f32; }
static bool is_int(int t) { return t == VT_i64 || t == VT_i32; }
static bool wide(int t) { return t == VT_f64 || t == VT_i64; }
static bool in_gpr(const vir_ins *in) { return is_int(in->type) && !in->varying; }

static int vl_bytes(int bytes) { return bytes >= 64 ? 2 : bytes >= 32 ? 1 : 0; }
static int vl_of(const low *l, int t) { return vl_bytes(l->L * (wide(t) ? 8 : 4)); }
static int kwidth(const low *l) { return l->L == 16 ? 1 : 0; }
static int vclass(const low *l, int t) { return t == VT_mask && l->m->avx512 ? CLASS_k : CLASS_v; }

/* --- small writers
 * -------------------------------------------------------------------------------------------- */
static int v_rvm(low *l, x64_vop op, int vl, int a, int b)
{
    int d = mir_vreg(l->m, op >= XV_kcmpps && op <= XV_kcmpud ? CLASS_k : CLASS_v);
    mir_add(l->m, (mi){ .kind = MI_vec, .vop = op, .vl = (int8_t)vl, .d = d, .s1 = a, .s2 = b });
    return d;
}
static int v_rvmi(low *l, x64_vop op, int vl, int a, int b, int imm)
{
    int d = mir_vreg(l->m, op >= XV_kcmpps && op <= XV_kcmpud ? CLASS_k : CLASS_v);
    mir_add(l->m, (mi){ .kind = MI_vec, .vop = op, .vl = (int8_t)vl, .d = d, .s1 = a, .s2 = b, .imm = imm });
    return d;
}
static int v_rm(low *l, x64_vop op, int vl, int a, int imm)
{
    int d = mir_vreg(l->m, CLASS_v);
    mi i = { .kind = MI_vec, .vop = op, .vl = (int8_t)vl, .d = d, .imm = imm };
    if (x64_dst_is_rm(op))
        i.s1 = a;
    else
        i.s2 = a;
    mir_add(l->m, i);
    return d;
}
static int v_blend(low *l, int t, int mask, int yes, int no)
{
    int d = mir_vreg(l->m, CLASS_v);
    if (!l->m->avx512 && wide(t))
        mask = v_rm(l, XV_pmovsxdq, vl_of(l, t), mask, 0);
    mir_add(l->m, (mi){ .kind = MI_blend,
                        .vl = (int8_t)vl_of(l, t),
                        .wide = wide(t),
                        .d = d,
                        .s1 = no,
                        .s2 = yes,
                        .s3 = mask });
    return d;
}
static int v_fma(low *l, int t, int a, int b, int c)
{
    int d = mir_vreg(l->m, CLASS_v);
    mir_add(l->m, (mi){ .kind = MI_fma,
                        .vop = t == VT_f64 ? XV_fma231pd : XV_fma231ps,
                        .vl = (int8_t)vl_of(l, t),
                        .wide = wide(t),
                        .d = d,
                        .s1 = a,
                        .s2 = b,
                        .s3 = c });
    return d;
}
static void copy_to(low *l, int d, int s)
{
    mir_add(l->m, (mi){ .kind = l->m->v[d].cls == CLASS_g ? MI_gmov : MI_movv, .d = d, .s1 = s });
}
/* The same for a source nobody else reads: when it was made just now, make it in place. */
static void assign(low *l, int d, int s)
{
    mi *last = &l->m->code[l->m->n - 1];
    if (last->d == s && l->m->v[s].start == l->m->n - 1 && l->m->v[s].cls == l->m->v[d].cls &&
        (last->kind == MI_vec || last->kind == MI_fma || last->kind == MI_blend)) {
        mi i = *last;
        i.d = d;
        l->m->v[s].start = -1;
        l->m->n--;
        mir_add(l->m, i);
        return;
    }
    copy_to(l, d, s);
}
static int g_new(low *l) { return mir_vreg(l->m, CLASS_g); }
static int g_imm(low *l, int64_t v)
{
    int d = g_new(l);
    mir_add(l->m, (mi){ .kind = MI_gimm, .d = d, .imm = v });
    return d;
}
static int g_alu(low *l, x64_alu op, int a, int b)
{
    int d = g_new(l);
    mir_add(l->m, (mi){ .kind = MI_galu, .d = d, .s1 = a, .s2 = b, .imm = op });
    return d;
}
static int g_alui(low *l, x64_alu op, int a, int64_t v)
{
    int d = g_new(l);
    if (v != (int32_t)v)
        return g_alu(l, op, a, g_imm(l, v));
    mir_add(l->m, (mi){ .kind = MI_galui, .vop = (uint8_t)op, .d = d, .s1 = a, .imm = v });
    return d;
}
static int g_mul(low *l, int a, int b)
{
    int d = g_new(l);
    mir_add(l->m, (mi){ .kind = MI_gimul, .d = d, .s1 = a, .s2 = b });
    return d;
}
static int g_shift(low *l, int digit, int a, int n)
{
    int d = g_new(l);
    mir_add(l->m, (mi){ .kind = MI_gshift, .vop = (uint8_t)digit, .d = d, .s1 = a, .imm = n });
    return d;
}
static int g_muli(low *l, int a, int64_t v)
{
    if (v == 1)
        return a;
    if (v > 0 && (v & (v - 1)) == 0)
        return g_shift(l, 4, a, __builtin_ctzll((unsigned long long)v));
    if (v != (int32_t)v)
        return g_mul(l, a, g_imm(l, v));
    int d = g_new(l);
    mir_add(l->m, (mi){ .kind = MI_gimuli, .d = d, .s1 = a, .imm = v });
    return d;
}
static int g_sx(low *l, int a)
{
    int d = g_new(l);
    mir_add(l->m, (mi){ .kind = MI_gsx, .d = d, .s1 = a });
    return d;
}
static void label(low *l, int n) { mir_add(l->m, (mi){ .kind = MI_label, .imm = n }); }
static void jcc(low *l, x64_cc cc, int n)
{
    mir_add(l->m, (mi){ .kind = MI_jcc, .vop = (uint8_t)cc, .imm = n });
}

static int c_f(low *l, int t, double v)
{
    uint64_t bits = 0;
    float f = (float)v;
    if (t == VT_f64)
        memcpy(&bits, &v, 8);
    else
        memcpy(&bits, &f, 4);
    return mir_const(l->m, bits, t == VT_f64);
}
static int c_i(low *l, int t, int64_t v)
{
    return mir_const(l->m, t == VT_i64 || t == VT_f64 ? (uint64_t)v : (uint32_t)v, wide(t));
}

static int bcast_gpr(low *l, int t, int g)
{
    int d = mir_vreg(l->m, CLASS_v);
    mir_add(l->m, (mi){ .kind = MI_bcastg, .vl = (int8_t)vl_of(l, t), .wide = wide(t), .d = d, .s1 = g });
    return d;
}

/* 0, 1, 2, ... times step, starting at first. */
static int iota(low *l, int t, int64_t first, int64_t step)
{
    int64_t w[16];
    int32_t n[16];
    for (int i = 0; i < l->L; i++)
        w[i] = first + i * step, n[i] = (int32_t)w[i];
    return wide(t) ? mir_const_vec(l->m, w, 8 * l->L) : mir_const_vec(l->m, n, 4 * l->L);
}

/* --- masks
 * ---------------------------------------------------------------------------------------------------- */
static int mask_const(low *l, bool on)
{
    if (!l->m->avx512)
        return c_i(l, VT_i32, on ? -1 : 0);
    int d = mir_vreg(l->m, CLASS_k);
    mir_add(l->m, (mi){ .kind = MI_kfrom, .vl = (int8_t)kwidth(l), .d = d, .s1 = g_imm(l, on ? -1 : 0) });
    return d;
}
/* A general register holding 0 or 1 as a mask of all lanes. */
static int mask_of_gpr(low *l, int g)
{
    int d = mir_vreg(l->m, CLASS_g);
    mir_add(l->m, (mi){ .kind = MI_gun, .vop = 3, .d = d, .s1 = g });
    if (!l->m->avx512)
        return bcast_gpr(l, VT_i32, d);
    int k = mir_vreg(l->m, CLASS_k);
    mir_add(l->m, (mi){ .kind = MI_kfrom, .vl = (int8_t)kwidth(l), .d = k, .s1 = d });
    return k;
}
/* The mask's bits in a general register. */
static int mask_bits(low *l, int mask)
{
    int d = g_new(l);
    if (l->m->avx512)
        mir_add(l->m, (mi){ .kind = MI_kto, .vl = (int8_t)kwidth(l), .d = d, .s1 = mask });
    else
        mir_add(l->m, (mi){ .kind = MI_movmsk, .vl = (int8_t)vl_of(l, VT_i32), .d = d, .s1 = mask });
    return d;
}
/* Sets the flags: zero when no lane is on. */
static void mask_test(low *l, int mask)
{
    if (l->m->avx512)
        mir_add(l->m, (mi){ .kind = MI_kortest, .vl = (int8_t)kwidth(l), .s1 = mask });
    else
        mir_add(l->m, (mi){ .kind = MI_gtest, .s1 = mask_bits(l, mask) });
}
static int mask_op(low *l, int op, int a, int b) /* VIR_and, or, xor */
{
    int d = mir_vreg(l->m, vclass(l, VT_mask));
    if (l->m->avx512) {
        int kop = op == VIR_and ? K_and : op == VIR_or ? K_or : K_xor;
        mir_add(l->m, (mi){ .kind = MI_k3, .vl = (int8_t)kwidth(l), .d = d, .s1 = a, .s2 = b, .imm = kop });
        return d;
    }
    return v_rvm(l, op == VIR_and ? XV_andps : op == VIR_or ? XV_orps : XV_xorps, vl_of(l, VT_i32), a, b);
}
static int mask_not(low *l, int a)
{
    if (!l->m->avx512)
        return v_rvm(l, XV_xorps, vl_of(l, VT_i32), a, c_i(l, VT_i32, -1));
    int d = mir_vreg(l->m, CLASS_k);
    mir_add(l->m, (mi){ .kind = MI_knot, .vl = (int8_t)kwidth(l), .d = d, .s1 = a });
    return d;
}
/* AVX2 keeps masks as 32-bit lanes: a 64-bit comparison's result is narrowed. */
static int narrow64(low *l, int v)
{
    int hi = v_rm(l, XV_extracti128, 1, v, 1);
    return v_rvmi(l, XV_shufps, 0, v, hi, 0x88);
}

static int compare(low *l, int op, int t, int a, int b)
{
    static const uint8_t fimm[] = { 0x00, 0x04, 0x11, 0x12, 0x1e, 0x1d }; /* eq ne lt le gt ge, quiet */
    static const uint8_t iimm[] = { 0, 4, 1, 2, 6, 5 };
    int n = op - VIR_eq, vl = vl_of(l, t), r;
    if (l->m->avx512 && is_flt(t))
        return v_rvmi(l, wide(t) ? XV_kcmppd : XV_kcmpps, vl, a, b, fimm[n]);
    if (l->m->avx512)
        return v_rvmi(l, wide(t) ? XV_kcmpq : XV_kcmpd, vl, a, b, iimm[n]);
    if (is_flt(t)) {
        r = v_rvmi(l, wide(t) ? XV_cmppd : XV_cmpps, vl, a, b, fimm[n]);
        return wide(t) ? narrow64(l, r) : r;
    }
    bool eq = op == VIR_eq || op == VIR_ne, swap = op == VIR_lt || op == VIR_ge,
         inv = op == VIR_ne || op == VIR_le || op == VIR_ge;
    x64_vop row = eq ? (wide(t) ? XV_pcmpeqq : XV_pcmpeqd) : (wide(t) ? XV_pcmpgtq : XV_pcmpgtd);
    r = v_rvm(l, row, vl, swap ? b : a, swap ? a : b);
    r = wide(t) ? narrow64(l, r) : r;
    return inv ? mask_not(l, r) : r;
}

static int select_op(low *l, int t, int mask, int yes, int no)
{
    if (t != VT_mask)
        return v_blend(l, t, mask, yes, no);
    if (!l->m->avx512)
        return v_blend(l, VT_i32, mask, yes, no);
    return mask_op(l, VIR_or, mask_op(l, VIR_and, mask, yes), mask_op(l, VIR_and, mask_not(l, mask), no));
}

/* --- the helper
 * ----------------------------------------------------------------------------------------------- */
static void to_area(low *l, int area, int v, int t)
{
    mir_add(l->m, (mi){ .kind = MI_vec,
                        .vop = XV_movups_s,
                        .vl = (int8_t)vl_of(l, t),
                        .mem = true,
                        .base = MB_FRAME,
                        .disp = area,
                        .s1 = v });
}
static void from_area(low *l, int d, int area, int t)
{
    mir_add(l->m, (mi){ .kind = MI_vec,
                        .vop = XV_movups_l,
                        .vl = (int8_t)vl_of(l, t),
                        .mem = true,
                        .base = MB_FRAME,
                        .disp = area,
                        .d = d });
}

/* word's function of a (and b) where the mask is on (0: everywhere), `other` elsewhere. Nothing is called
 * when no lane is on. */
static int help(low *l, int64_t word, int t, int ta, int a, int b, int mask, int other)
{
    int d = mir_vreg(l->m, CLASS_v), skip = mir_label(l->m), bits;
    if (mask) {
        copy_to(l, d, other);
        bits = mask_bits(l, mask);
        mir_add(l->m, (mi){ .kind = MI_gtest, .s1 = bits });
        jcc(l, CC_e, skip);
        to_area(l, AREA2, other, t);
    } else {
        bits = g_imm(l, -1);
    }
    to_area(l, AREA0, a, ta);
    if (b)
        to_area(l, AREA1, b, ta);
    mir_add(l->m, (mi){ .kind = MI_call, .s1 = bits, .imm = word });
    from_area(l, d, AREA2, t);
    label(l, skip);
    return d;
}

/* --- arithmetic in lanes
 * --------------------------------------------------------------------------------------- */
static int vec_op(low *l, const vir *k, const vir_ins *in, int a, int b, int c, int d);
static int round_op(low *l, int t, int a, int imm);

static int v_logic(low *l, int op, int t, int a, int b)
{
    bool w = wide(t);
    x64_vop row = op == VIR_and  ? (w ? XV_andpd : XV_andps)
                  : op == VIR_or ? (w ? XV_orpd : XV_orps)
                                 : (w ? XV_xorpd : XV_xorps);
    return v_rvm(l, row, vl_of(l, t), a, b);
}
static int64_t sign_bit(int t) { return wide(t) ? INT64_MIN : INT32_MIN; }

static int min_max(low *l, int op, int t, int a, int b, bool a_is_number)
{
    bool w = wide(t), mn = op == VIR_min || op == VIR_fmin;
    int vl = vl_of(l, t);
    if (is_int(t)) {
        if (l->m->avx512 || !w)
            return v_rvm(l, mn ? (w ? XV_pminsq : XV_pminsd) : (w ? XV_pmaxsq : XV_pmaxsd), vl, a, b);
        int m = compare(l, VIR_gt, t, a, b);
        return mn ? v_blend(l, t, m, b, a) : v_blend(l, t, m, a, b);
    }
    x64_vop row = mn ? (w ? XV_minpd : XV_minps) : (w ? XV_maxpd : XV_maxps); /* b when unordered */
    bool ignore = op == VIR_fmin || op == VIR_fmax;
    a_is_number |= l->numbers;
    if (l->m->avx512 && !a_is_number && !ignore) { /* a stays where it is NaN */
        int number = v_rvmi(l, w ? XV_kcmppd : XV_kcmpps, vl, a, a, 7), d = mir_vreg(l->m, CLASS_v);
        copy_to(l, d, a);
        mir_add(l->m, (mi){ .kind = MI_vec,
                            .vop = row,
                            .vl = (int8_t)vl,
                            .d = d,
                            .s1 = a,
                            .s2 = b,
                            .k = number,
                            .dread = true });
        return d;
    }
    int r = v_rvm(l, row, vl, a, b);
    if (a_is_number)
        return r;

    int test = ignore ? b : a;
    return v_blend(l, t, compare(l, VIR_ne, t, test, test), a, r);
}

static int mul64(low *l, int a, int b)
{
    if (l->m->avx512)
        return v_rvm(l, XV_pmullq, 2, a, b);
    int vl = 1, lo = v_rvm(l, XV_pmuludq, vl, a, b);
    int ah = v_rm(l, XV_psrlqi, vl, a, 32), bh = v_rm(l, XV_psrlqi, vl, b, 32);
    int x = v_rvm(l, XV_paddq, vl, v_rvm(l, XV_pmuludq, vl, ah, b), v_rvm(l, XV_pmuludq, vl, a, bh));
    return v_rvm(l, XV_paddq, vl, lo, v_rm(l, XV_psllqi, vl, x, 32));
}

static int mulhu32(low *l, int a, int b)
{
    int vl = vl_of(l, VT_i32);
    int even = v_rvm(l, XV_pmuludq, vl, a, b);
    int odd = v_rvm(l, XV_pmuludq, vl, v_rm(l, XV_psrlqi, vl, a, 32), v_rm(l, XV_psrlqi, vl, b, 32));
    int lo = v_rm(l, XV_psrlqi, vl, even, 32);
    int hi = v_rvm(l, XV_andps, vl, odd, mir_const(l->m, 0xffffffff00000000ULL, true));
    return v_rvm(l, XV_orps, vl, lo, hi);
}

static int shift(low *l, const vir *k, const vir_ins *in, int a, int b)
{
    int t = in->type, vl = vl_of(l, t);
    bool w = wide(t);
    const vir_ins *cn = &k->ins[in->b];
    if (cn->op == VIR_const && (in->op != VIR_sra || l->m->avx512 || !w)) {
        int bits = w ? 64 : 32, n = (int)(cn->imm < 0 || cn->imm >= bits ? bits : cn->imm);
        x64_vop row = in->op == VIR_shl   ? (w ? XV_psllqi : XV_pslldi)
                      : in->op == VIR_shr ? (w ? XV_psrlqi : XV_psrldi)
                                          : (w ? XV_psraqi : XV_psradi);
        return v_rm(l, row, vl, a, n);
    }
    if (in->op == VIR_shl)
        return v_rvm(l, w ? XV_psllvq : XV_psllvd, vl, a, b);
    if (in->op == VIR_shr)
        return v_rvm(l, w ? XV_psrlvq : XV_psrlvd, vl, a, b);
    if (!w || l->m->avx512)
        return v_rvm(l, w ? XV_psravq : XV_psravd, vl, a, b);
    int neg = v_rvm(l, XV_pcmpgtq, vl, c_i(l, VT_i64, 0), a); /* all ones where negative */
    int x = v_rvm(l, XV_psrlvq, vl, v_rvm(l, XV_xorps, vl, a, neg), b);
    return v_rvm(l, XV_xorps, vl, x, neg);
}

/* Quotient towards zero of two i32 vectors of 8 (AVX-512) or 4 lanes through doubles, which hold them
 * exactly. */
static int quot_half(low *l, int a, int b)
{
    int vl = l->m->avx512 ? 2 : 1;
    int q = v_rvm(l, XV_divpd, vl, v_rm(l, XV_cvtdq2pd, vl, a, 0), v_rm(l, XV_cvtdq2pd, vl, b, 0));
    return v_rm(l, XV_cvttpd2dq, vl, q, 0);
}

static int div32(low *l, int op, int a, int b)
{
    int vl = vl_of(l, VT_i32), q, half = l->m->avx512 ? 8 : 4;
    if (l->L == half) {
        q = quot_half(l, a, b);
    } else {
        x64_vop ex = l->m->avx512 ? XV_extracti64x4 : XV_extracti128,
                insert = l->m->avx512 ? XV_inserti64x4 : XV_inserti128;
        int lo = quot_half(l, a, b), hi = quot_half(l, v_rm(l, ex, vl, a, 1), v_rm(l, ex, vl, b, 1));
        q = v_rvmi(l, insert, vl, lo, hi, 1);
    }
    int zero = c_i(l, VT_i32, 0);
    q = v_blend(l, VT_i32, compare(l, VIR_eq, VT_i32, b, zero), zero, q);
    if (op == VIR_divt)
        return q;
    int r = v_rvm(l, XV_psubd, vl, a, v_rvm(l, XV_pmulld, vl, q, b));
    if (op == VIR_modt)
        return r;
    int differs = compare(l, VIR_gt, VT_i32, zero, v_rvm(l, XV_xorps, vl, r, b));
    int fix = mask_op(l, VIR_and, compare(l, VIR_ne, VT_i32, r, zero), differs);
    fix = mask_op(l, VIR_and, fix, compare(l, VIR_ne, VT_i32, b, zero));
    if (op == VIR_modf)
        return v_blend(l, VT_i32, fix, v_rvm(l, XV_paddd, vl, r, b), r);
    return v_blend(l, VT_i32, fix, v_rvm(l, XV_paddd, vl, q, c_i(l, VT_i32, -1)), q);
}

/* Integers below 2**51 in magnitude to doubles and back: AVX2 has no such conversion, but adding 1.5 * 2**52 puts an
 * integer into a double's low bits. */
static int small_to_f64(low *l, int a)
{
    int magic = c_i(l, VT_i64, 0x4338000000000000LL);
    if (l->m->avx512)
        return v_rm(l, XV_cvtqq2pd, 2, a, 0);
    return v_rvm(l, XV_subpd, 1, v_rvm(l, XV_paddq, 1, a, magic), magic);
}
static int small_to_i64(low *l, int a)
{
    int magic = c_i(l, VT_i64, 0x4338000000000000LL);
    if (l->m->avx512)
        return v_rm(l, XV_cvttpd2qq, 2, a, 0);
    return v_rvm(l, XV_psubq, 1, v_rvm(l, XV_addpd, 1, a, magic), magic);
}

/* Floor division and remainder by the same positive number in all lanes, as index arithmetic has it: exact in doubles
 * while everything is small; other lanes are done one by one. */
static int div64_uniform(low *l, int op, int a, int b, const vir_ins *by)
{
    bool constant = by->op == VIR_const;
    int64_t lim = 1LL << 51;
    int vl = vl_of(l, VT_i64), sub = op == VIR_divf ? 1 : 3, zero = c_i(l, VT_i64, 0);
    int x = small_to_f64(l, a), y = constant ? c_f(l, VT_f64, (double)by->imm) : small_to_f64(l, b);
    int q = round_op(l, VT_f64, v_rvm(l, XV_divpd, vl, x, y), 1);
    int r = v_fma(l, VT_f64, v_logic(l, VIR_xor, VT_f64, q, c_i(l, VT_f64, INT64_MIN)), y, x);
    int under = compare(l, VIR_lt, VT_f64, r, zero); /* the quotient was rounded up to the next integer */
    int v = op == VIR_divf ? v_blend(l, VT_f64, under, v_rvm(l, XV_subpd, vl, q, c_f(l, VT_f64, 1)), q)
                           : v_blend(l, VT_f64, under, v_rvm(l, XV_addpd, vl, r, y), r);
    v = small_to_i64(l, v);
    int far = mask_op(l, VIR_or, compare(l, VIR_gt, VT_i64, a, c_i(l, VT_i64, lim)),
                      compare(l, VIR_gt, VT_i64, c_i(l, VT_i64, -lim), a));
    if (!constant) {
        int bad = mask_op(l, VIR_or, compare(l, VIR_gt, VT_i64, b, c_i(l, VT_i64, lim)),
                          compare(l, VIR_gt, VT_i64, c_i(l, VT_i64, 1), b));
        far = mask_op(l, VIR_or, far, bad);
    }
    return help(l, x64_help_word(HC_div64, sub, VT_i64, 0, l->L), VT_i64, VT_i64, a, b, far, v);
}

static int div64_op(low *l, int op, int a, int b)
{
    int sub = op == VIR_divt ? 0 : op == VIR_divf ? 1 : op == VIR_modt ? 2 : 3;
    if (!l->m->avx512)
        return help(l, x64_help_word(HC_div64, sub, VT_i64, 0, l->L), VT_i64, VT_i64, a, b, 0, 0);
    /* Through doubles where both are small enough to be exact there; the quotient may be one off. */
    int vl = 2, zero = c_i(l, VT_i64, 0), one = c_i(l, VT_i64, 1), lim = c_i(l, VT_i64, 1LL << 52);
    int q = v_rvm(l, XV_divpd, vl, v_rm(l, XV_cvtqq2pd, vl, a, 0), v_rm(l, XV_cvtqq2pd, vl, b, 0));
    q = v_rm(l, XV_cvttpd2qq, vl, q, 0);
    int r = v_rvm(l, XV_psubq, vl, a, mul64(l, q, b));
    /* towards minus infinity: r must have b's sign and be smaller */
    int ab = v_rm(l, XV_pabsq, vl, b, 0), sgn = v_rm(l, XV_psraqi, vl, b, 63);
    int rb = v_rvm(l, XV_psubq, vl, v_rvm(l, XV_xorpd, vl, r, sgn), sgn); /* r * sign(b) */
    int under = compare(l, VIR_lt, VT_i64, rb, zero), over = compare(l, VIR_ge, VT_i64, rb, ab);
    q = v_blend(l, VT_i64, under, v_rvm(l, XV_psubq, vl, q, one), q);
    r = v_blend(l, VT_i64, under, v_rvm(l, XV_paddq, vl, r, b), r);
    q = v_blend(l, VT_i64, over, v_rvm(l, XV_paddq, vl, q, one), q);
    r = v_blend(l, VT_i64, over, v_rvm(l, XV_psubq, vl, r, b), r);
    if (op == VIR_divt ||
        op == VIR_modt) { /* back towards zero where the signs differ and something is left */
        int differs = compare(l, VIR_lt, VT_i64, v_rvm(l, XV_xorpd, vl, a, b), zero);
        int fix = mask_op(l, VIR_and, differs, compare(l, VIR_ne, VT_i64, r, zero));
        q = v_blend(l, VT_i64, fix, v_rvm(l, XV_paddq, vl, q, one), q);
        r = v_blend(l, VT_i64, fix, v_rvm(l, XV_psubq, vl, r, b), r);
    }
    int big = mask_op(l, VIR_or, compare(l, VIR_ge, VT_i64, v_rm(l, XV_pabsq, vl, a, 0), lim),
                      compare(l, VIR_ge, VT_i64, ab, lim));
    int neg = mask_op(l, VIR_or, compare(l, VIR_lt, VT_i64, v_rm(l, XV_pabsq, vl, a, 0), zero),
                      compare(l, VIR_lt, VT_i64, ab, zero));
    int odd = mask_op(l, VIR_or, mask_op(l, VIR_or, big, neg), compare(l, VIR_eq, VT_i64, b, zero));
    return help(l, x64_help_word(HC_div64, sub, VT_i64, 0, l->L), VT_i64, VT_i64, a, b, odd,
                op == VIR_divt || op == VIR_divf ? q : r);
}

/* a * 2**b without vscalef: two factors, each a power of two in range. */
static int scale2(low *l, int t, int a, int b)
{
    int vl = vl_of(l, t);
    if (l->m->avx512)
        return v_rvm(l, wide(t) ? XV_scalefpd : XV_scalefps, vl, a, b);
    if (t == VT_f32) {
        int n = v_rm(l, XV_cvttps2dq, vl, b, 0), h = v_rm(l, XV_psradi, vl, n, 1),
            r = v_rvm(l, XV_psubd, vl, n, h);
        int bias = c_i(l, VT_i32, 127);
        int f = v_rm(l, XV_pslldi, vl, v_rvm(l, XV_paddd, vl, h, bias), 23);
        int g = v_rm(l, XV_pslldi, vl, v_rvm(l, XV_paddd, vl, r, bias), 23);
        return v_rvm(l, XV_mulps, vl, v_rvm(l, XV_mulps, vl, a, f), g);
    }
    int n = v_rm(l, XV_cvttpd2dq, vl, b, 0), h = v_rm(l, XV_psradi, 0, n, 1), r = v_rvm(l, XV_psubd, 0, n, h);
    int bias = c_i(l, VT_i32, 1023);
    int f = v_rm(l, XV_psllqi, vl, v_rm(l, XV_pmovsxdq, vl, v_rvm(l, XV_paddd, 0, h, bias), 0), 52);
    int g = v_rm(l, XV_psllqi, vl, v_rm(l, XV_pmovsxdq, vl, v_rvm(l, XV_paddd, 0, r, bias), 0), 52);
    return v_rvm(l, XV_mulpd, vl, v_rvm(l, XV_mulpd, vl, a, f), g);
}

static int convert(low *l, int to, int from, int a)
{
    int d;
    if (from == VT_mask) {
        int one = is_flt(to) ? c_f(l, to, 1) : c_i(l, to, 1);
        if (!l->m->avx512)
            return v_logic(l, VIR_and, to, wide(to) ? v_rm(l, XV_pmovsxdq, vl_of(l, to), a, 0) : a, one);
        d = mir_vreg(l->m, CLASS_v);
        mir_add(l->m, (mi){ .kind = MI_vec,
                            .vop = wide(to) ? XV_movapd : XV_movaps,
                            .vl = (int8_t)vl_of(l, to),
                            .d = d,
                            .s2 = one,
                            .k = a,
                            .z = true });
        return d;
    }
    if (to == VT_f64 && from == VT_f32)
        return v_rm(l, XV_cvtps2pd, vl_of(l, to), a, 0);
    if (to == VT_f32 && from == VT_f64)
        return v_rm(l, XV_cvtpd2ps, vl_of(l, from), a, 0);
    if (to == VT_f32 && from == VT_i32)
        return v_rm(l, XV_cvtdq2ps, vl_of(l, to), a, 0);
    if (to == VT_i32 && from == VT_f32)
        return v_rm(l, XV_cvttps2dq, vl_of(l, to), a, 0);
    if (to == VT_f64 && from == VT_i32)
        return v_rm(l, XV_cvtdq2pd, vl_of(l, to), a, 0);
    if (to == VT_i32 && from == VT_f64)
        return v_rm(l, XV_cvttpd2dq, vl_of(l, from), a, 0);
    if (to == VT_i64 && from == VT_i32)
        return v_rm(l, XV_pmovsxdq, vl_of(l, to), a, 0);
    if (to == VT_i32 && from == VT_i64)
        return l->m->avx512 ? v_rm(l, XV_pmovqd, vl_of(l, from), a, 0) : narrow64(l, a);
    if (l->m->avx512) {
        if (to == VT_f64)
            return v_rm(l, XV_cvtqq2pd, vl_of(l, to), a, 0);
        if (to == VT_f32)
            return v_rm(l, XV_cvtqq2ps, vl_of(l, from), a, 0);
        return v_rm(l, from == VT_f64 ? XV_cvttpd2qq : XV_cvttps2qq, vl_of(l, to), a, 0);
    }
    if (to == VT_f64 &&
        from == VT_i64) { /* halves as the low bits of 2**84 and 2**52; only the last step rounds */
        int vl = vl_of(l, to), hi = v_rm(l, XV_psrlqi, vl, a, 32);
        hi = v_rvm(l, XV_xorps, vl, hi, c_i(l, VT_i64, 0x4530000080000000));
        int lo = v_rvm(l, XV_andps, vl, a, c_i(l, VT_i64, 0xffffffff));
        lo = v_rvm(l, XV_orps, vl, lo, c_i(l, VT_i64, 0x4330000000000000));
        return v_rvm(l, XV_addpd, vl, v_rvm(l, XV_subpd, vl, hi, c_i(l, VT_i64, 0x4530000080100000)), lo);
    }
    return help(l, x64_help_word(HC_cvt, 0, to, from, l->L), to, from, a, 0, 0, 0);
}

static int bf16_bits(low *l, int a) /* the upper half, rounded, in the lower 16 bits of each lane */
{
    int vl = vl_of(l, VT_f32);
    int lsb = v_rvm(l, XV_andps, vl, v_rm(l, XV_psrldi, vl, a, 16), c_i(l, VT_i32, 1));
    int r = v_rvm(l, XV_paddd, vl, a, v_rvm(l, XV_paddd, vl, lsb, c_i(l, VT_i32, 0x7fff)));
    r = v_rm(l, XV_psrldi, vl, r, 16);
    return v_blend(l, VT_f32, compare(l, VIR_ne, VT_f32, a, a), c_i(l, VT_i32, 0x7fc0), r);
}

static int narrow(low *l, int mem, int a)
{
    int vl = vl_of(l, VT_f32);
    switch (mem) {
    case VM_f16: return v_rm(l, XV_cvtph2ps, vl, v_rm(l, XV_cvtps2ph, vl, a, 0), 0);
    case VM_bf16: return v_rm(l, XV_pslldi, vl, bf16_bits(l, a), 16);
    case VM_i16: return v_rm(l, XV_psradi, vl, v_rm(l, XV_pslldi, vl, a, 16), 16);
    case VM_i8: return v_rm(l, XV_psradi, vl, v_rm(l, XV_pslldi, vl, a, 24), 24);
    default: return v_rvm(l, XV_andps, vl, a, c_i(l, VT_i32, 255));
    }
}

/* Entry a mod 16 of a table: one permutation of a whole register, or two of its halves. */
static int table(low *l, int which, int a)
{
    const int32_t *t = vir_tables[which];
    if (l->m->avx512 && l->L == 16)
        return v_rvm(l, XV_permps, 2, a, mir_const_vec(l->m, t, 64));
    int lo = v_rvm(l, XV_permps, 1, a, mir_const_vec(l->m, t, 32)),
        hi = v_rvm(l, XV_permps, 1, a, mir_const_vec(l->m, t + 8, 32));
    if (l->upper_of != a) { /* bit 3 where the sign is; several tables are asked at one place */
        l->upper_of = a;
        l->upper = v_rm(l, XV_pslldi, vl_of(l, VT_i32), a, 28);
        if (l->m->avx512)
            l->upper = compare(l, VIR_lt, VT_i32, l->upper, c_i(l, VT_i32, 0));
    }
    return v_blend(l, VT_i32, l->upper, hi, lo);
}

/* Inlines a fragment; everything in it is a vector. */
static void inline_frag(low *l, const vir_frag *f, const int *in, int *out)
{
    const vir *k = f->k;
    int32_t *map = arena_alloc(l->m->a, sizeof *map * (size_t)k->n);
    map[0] = 0;
    for (vir_ref r = k->loops[0].first; r; r = k->ins[r].next) {
        const vir_ins *i = &k->ins[r];
        if (i->dead)
            continue;
        map[r] = i->op == VIR_input ? in[i->imm]
                                    : vec_op(l, k, i, map[i->a], map[i->b], map[i->c], map[i->d]);
    }
    for (int i = 0; i < f->nout; i++)
        out[i] = map[f->out[i]];
}

static int const_op(low *l, const vir_ins *in)
{
    if (in->type == VT_mask)
        return mask_const(l, in->imm);
    return is_flt(in->type) ? c_f(l, in->type, vir_const_f(in)) : c_i(l, in->type, in->imm);
}

static int round_op(low *l, int t, int a, int imm)
{
    if (l->m->avx512)
        return v_rm(l, wide(t) ? XV_rndscalepd : XV_rndscaleps, vl_of(l, t), a, imm | 8);
    return v_rm(l, wide(t) ? XV_roundpd : XV_roundps, vl_of(l, t), a, imm | 8);
}

static int float_op(low *l, const vir *k, const vir_ins *in, int a, int b, int c)
{
    int t = in->type, vl = vl_of(l, t);
    bool w = wide(t);
    switch (in->op) {
    case VIR_add: return v_rvm(l, w ? XV_addpd : XV_addps, vl, a, b);
    case VIR_sub: return v_rvm(l, w ? XV_subpd : XV_subps, vl, a, b);
    case VIR_mul: return v_rvm(l, w ? XV_mulpd : XV_mulps, vl, a, b);
    case VIR_div: return v_rvm(l, w ? XV_divpd : XV_divps, vl, a, b);
    case VIR_min:
    case VIR_max:
    case VIR_fmin:
    case VIR_fmax: {
        const vir_ins *x = &k->ins[in->a];
        bool num = (in->op == VIR_min || in->op == VIR_max) && x->op == VIR_const && !isnan(vir_const_f(x));
        return min_max(l, in->op, t, a, b, num);
    }
    case VIR_neg: return v_logic(l, VIR_xor, t, a, c_i(l, t, sign_bit(t)));
    case VIR_abs: return v_logic(l, VIR_and, t, a, c_i(l, t, ~sign_bit(t)));
    case VIR_fma: return v_fma(l, t, a, b, c);
    case VIR_sqrt: return v_rm(l, w ? XV_sqrtpd : XV_sqrtps, vl, a, 0);
    case VIR_floor: return round_op(l, t, a, 1);
    case VIR_ceil: return round_op(l, t, a, 2);
    case VIR_trunc: return round_op(l, t, a, 3);
    case VIR_round: return round_op(l, t, a, 0);
    case VIR_copysign:
        if (l->m->avx512) { /* bit by bit: b's where the sign is, a's elsewhere */
            int d = mir_vreg(l->m, CLASS_v);
            copy_to(l, d, a);
            mir_add(l->m, (mi){ .kind = MI_vec,
                                .vop = w ? XV_ternlogq : XV_ternlogd,
                                .vl = (int8_t)vl,
                                .d = d,
                                .s1 = b,
                                .s2 = c_i(l, t, sign_bit(t)),
                                .imm = 0xd8,
                                .dread = true });
            return d;
        }
        return v_logic(l, VIR_or, t, v_logic(l, VIR_and, t, a, c_i(l, t, ~sign_bit(t))),
                       v_logic(l, VIR_and, t, b, c_i(l, t, sign_bit(t))));
    case VIR_scale2: return scale2(l, t, a, b);
    default: l->failed = true; return a;
    }
}

static int lane_int_op(low *l, const vir *k, const vir_ins *in, int a, int b)
{
    int t = in->type, vl = vl_of(l, t);
    bool w = wide(t);
    switch (in->op) {
    case VIR_add: return v_rvm(l, w ? XV_paddq : XV_paddd, vl, a, b);
    case VIR_sub: return v_rvm(l, w ? XV_psubq : XV_psubd, vl, a, b);
    case VIR_mul: return w ? mul64(l, a, b) : v_rvm(l, XV_pmulld, vl, a, b);
    case VIR_min:
    case VIR_max: return min_max(l, in->op, t, a, b, true);
    case VIR_neg: return v_rvm(l, w ? XV_psubq : XV_psubd, vl, c_i(l, t, 0), a);
    case VIR_abs:
        if (!w || l->m->avx512)
            return v_rm(l, w ? XV_pabsq : XV_pabsd, vl, a, 0);
        {
            int s = v_rvm(l, XV_pcmpgtq, vl, c_i(l, t, 0), a);
            return v_rvm(l, XV_psubq, vl, v_rvm(l, XV_xorps, vl, a, s), s);
        }
    case VIR_divt:
    case VIR_divf:
    case VIR_modt:
    case VIR_modf: {
        const vir_ins *by = &k->ins[in->b];
        bool floors = in->op == VIR_divf || in->op == VIR_modf;
        if (floors && by->op == VIR_const && by->imm > 0 &&
            (by->imm & (by->imm - 1)) == 0) { /* a power of two */
            int n = __builtin_ctzll((unsigned long long)by->imm);
            if (in->op == VIR_modf)
                return v_logic(l, VIR_and, t, a, c_i(l, t, by->imm - 1));
            if (!w || l->m->avx512)
                return v_rm(l, w ? XV_psraqi : XV_psradi, vl, a, n);
        }
        if (w && floors && !by->varying && (by->op != VIR_const || (by->imm > 0 && by->imm < 1LL << 51)))
            return div64_uniform(l, in->op, a, b, by);
        return w ? div64_op(l, in->op, a, b) : div32(l, in->op, a, b);
    }
    case VIR_shl:
    case VIR_shr:
    case VIR_sra: return shift(l, k, in, a, b);
    case VIR_mulhu: return mulhu32(l, a, b);
    case VIR_and:
    case VIR_or:
    case VIR_xor: return v_logic(l, in->op, t, a, b);
    case VIR_not: return v_logic(l, VIR_xor, t, a, c_i(l, t, -1));
    default: l->failed = true; return a;
    }
}

/* One operation on vectors; operands are vector or mask registers. */
static int vec_op(low *l, const vir *k, const vir_ins *in, int a, int b, int c, int d)
{
    int t = in->type, ta = in->a ? k->ins[in->a].type : VT_none;
    switch (in->op) {
    case VIR_const: return const_op(l, in);
    case VIR_select: return select_op(l, t, a, b, c);
    case VIR_cvt: return convert(l, t, ta, a);
    case VIR_bitcast: return a;
    case VIR_narrow: return narrow(l, in->mem, a);
    case VIR_table: return table(l, (int)in->imm, a);
    case VIR_call: return help(l, x64_help_word(HC_call, (int)in->imm, t, 0, l->L), t, t, a, b, c, d);
    case VIR_eq:
    case VIR_ne:
    case VIR_lt:
    case VIR_le:
    case VIR_gt:
    case VIR_ge: return compare(l, in->op, ta, a, b);
    default: break;
    }
    if (vir_is_math((vir_op)in->op)) {
        int args[2] = { a, b }, out;
        inline_frag(l, vir_frag_math((vir_op)in->op, (vir_type)t), args, &out);
        return out;
    }
    if (t == VT_mask)
        return in->op == VIR_not ? mask_not(l, a) : mask_op(l, in->op, a, b);
    return is_flt(t) ? float_op(l, k, in, a, b, c) : lane_int_op(l, k, in, a, b);
}

/* --- uniform integers
 * ------------------------------------------------------------------------------------------ */
static int reg_of(low *l, vir_ref r) { return l->map[(l->k->ins[r].varying ? l->cur : 0) * l->k->n + r]; }
/* A value as a vector. */
static int vec_of(low *l, vir_ref r)
{
    if (!r)
        return 0;
    return in_gpr(&l->k->ins[r]) ? l->vecmap[r] : reg_of(l, r);
}

static int g_wrap(low *l, int t, int g) { return t == VT_i32 ? g_sx(l, g) : g; }

static int g_minmax(low *l, bool mn, int a, int b)
{
    int d = g_new(l);
    copy_to(l, d, a);
    mir_add(l->m, (mi){ .kind = MI_gcmp, .s1 = a, .s2 = b });
    mir_add(l->m, (mi){ .kind = MI_cmov, .vop = mn ? CC_g : CC_l, .d = d, .s1 = b, .dread = true });
    return d;
}

static int g_shift_op(low *l, const vir_ins *in, int a, int b)
{
    bool w = wide(in->type);
    int bits = w ? 64 : 32, pp = in->op == VIR_shl ? 1 : in->op == VIR_sra ? 2 : 3;
    const vir_ins *c = &l->k->ins[in->b];
    bool constant = c->op == VIR_const, ok = constant && c->imm >= 0 && c->imm < bits;
    if (constant && !ok && in->op != VIR_sra)
        return g_imm(l, 0);
    if (constant && (w || in->op == VIR_sra))
        return g_shift(l, pp == 1 ? 4 : pp == 2 ? 7 : 5, a, ok ? (int)c->imm : bits - 1);
    int n = b, d = g_new(l), r;
    if (!constant && in->op == VIR_sra) { /* counts outside become bits - 1 */
        n = g_new(l);
        copy_to(l, n, b);
        int top = g_imm(l, bits - 1);
        mir_add(l->m, (mi){ .kind = MI_gcmp, .s1 = b, .s2 = top });
        mir_add(l->m, (mi){ .kind = MI_cmov, .vop = CC_a, .d = n, .s1 = top, .dread = true });
    }
    mir_add(
        l->m,
        (mi){
            .kind = MI_gshx, .vop = (uint8_t)pp, .wide = w || in->op == VIR_sra, .d = d, .s1 = a, .s2 = n });
    r = g_wrap(l, in->type, d);
    if (!constant && in->op != VIR_sra) {
        int out = g_new(l), zero = g_imm(l, 0);
        copy_to(l, out, r);
        mir_add(l->m, (mi){ .kind = MI_gcmpi, .s1 = b, .imm = bits - 1 });
        mir_add(l->m, (mi){ .kind = MI_cmov, .vop = CC_a, .d = out, .s1 = zero, .dread = true });
        r = out;
    }
    return r;
}

static int g_div_op(low *l, const vir_ins *in, int a, int b)
{
    const vir_ins *c = &l->k->ins[in->b];
    if (c->op == VIR_const && c->imm > 0 && (c->imm & (c->imm - 1)) == 0) {
        if (in->op == VIR_divf)
            return g_shift(l, 7, a, __builtin_ctzll((unsigned long long)c->imm));
        if (in->op == VIR_modf)
            return g_alui(l, G_and, a, c->imm - 1);
    }
    int d = g_new(l), sub = in->op == VIR_divt ? 0 : in->op == VIR_divf ? 1 : in->op == VIR_modt ? 2 : 3;
    mir_add(l->m, (mi){ .kind = MI_gdiv, .wide = wide(in->type), .d = d, .s1 = a, .s2 = b, .imm = sub });
    return d;
}

/* Uniform conversion into an integer register. */
static int g_convert(low *l, const vir_ins *in)
{
    const vir_ins *src = &l->k->ins[in->a];
    int a = reg_of(l, in->a), d = g_new(l);
    if (is_int(src->type))
        return in->type == VT_i32 && src->type == VT_i64 ? g_sx(l, a) : a;
    if (src->type == VT_mask)
        return g_alui(l, G_and, mask_bits(l, a), 1);
    mir_add(l->m,
            (mi){ .kind = MI_2si, .wide = src->type == VT_f64, .vl = in->type == VT_i64, .d = d, .s1 = a });
    return d;
}

static int gpr_op(low *l, const vir_ins *in)
{
    const vir *k = l->k;
    int t = in->type, a = in->a ? reg_of(l, in->a) : 0, b = in->b ? reg_of(l, in->b) : 0, d;
    switch (in->op) {
    case VIR_const: return g_imm(l, in->imm);
    case VIR_iarg:
    case VIR_bufptr: {
        int base = g_new(l);
        d = g_new(l);
        mir_add(l->m, (mi){ .kind = MI_gload,
                            .vl = 8,
                            .d = base,
                            .base = MB_FRAME,
                            .disp = AREA_ARGS + (in->op == VIR_iarg ? 8 : 0) });
        mir_add(l->m,
                (mi){ .kind = MI_gload, .vl = 8, .d = d, .base = base, .disp = (int32_t)(8 * in->imm) });
        return d;
    }
    case VIR_ptr:
        d = g_new(l);
        if (in->imm == 1 || in->imm == 2 || in->imm == 4 || in->imm == 8)
            mir_add(l->m, (mi){ .kind = MI_glea, .d = d, .base = a, .index = b, .scale = (int8_t)in->imm });
        return d;
    case VIR_add:
        return g_wrap(l, t,
                      k->ins[in->b].op == VIR_const ? g_alui(l, G_add, a, k->ins[in->b].imm)
                                                    : g_alu(l, G_add, a, b));
    case VIR_sub: return g_wrap(l, t, g_alu(l, G_sub, a, b));
    case VIR_mul:
        return g_wrap(l, t, k->ins[in->b].op == VIR_const ? g_muli(l, a, k->ins[in->b].imm) : g_mul(l, a, b));
    case VIR_min: return g_minmax(l, true, a, b);
    case VIR_max: return g_minmax(l, false, a, b);
    case VIR_neg:
    case VIR_not:
        d = g_new(l);
        mir_add(l->m, (mi){ .kind = MI_gun, .vop = in->op == VIR_neg ? 3 : 2, .d = d, .s1 = a });
        return g_wrap(l, t, d);
    case VIR_abs: {
        int s = g_shift(l, 7, a, 63);
        return g_wrap(l, t, g_alu(l, G_sub, g_alu(l, G_xor, a, s), s));
    }
    case VIR_and: return g_alu(l, G_and, a, b);
    case VIR_or: return g_alu(l, G_or, a, b);
    case VIR_xor: return g_alu(l, G_xor, a, b);
    case VIR_shl:
    case VIR_shr:
    case VIR_sra: return g_shift_op(l, in, a, b);
    case VIR_divt:
    case VIR_divf:
    case VIR_modt:
    case VIR_modf: return g_div_op(l, in, a, b);
    case VIR_mulhu: {
        int m = g_imm(l, 0xffffffffLL);
        return g_sx(l, g_shift(l, 5, g_mul(l, g_alu(l, G_and, a, m), g_alu(l, G_and, b, m)), 32));
    }
    case VIR_select:
        d = g_new(l);
        copy_to(l, d, reg_of(l, in->c));
        mask_test(l, a);
        mir_add(l->m, (mi){ .kind = MI_cmov, .vop = CC_ne, .d = d, .s1 = b, .dread = true });
        return d;
    case VIR_cvt: return g_convert(l, in);
    case VIR_bitcast:
        d = g_new(l);
        mir_add(l->m, (mi){ .kind = MI_movd_from, .wide = wide(t), .d = d, .s1 = a });
        return d;
    case VIR_narrow: {
        int n = in->mem == VM_i16 ? 48 : 56;
        return g_shift(l, in->mem == VM_u8 ? 5 : 7, g_shift(l, 4, a, n), n);
    }
    default: l->failed = true; return a;
    }
}

static int bcast_lane0(low *l, int t, int v)
{
    if (t == VT_f64 || t == VT_i64)
        return v_rm(l, XV_bcastsd, MAX(vl_of(l, t), 1), v, 0);
    return v_rm(l, XV_bcastss, vl_of(l, t), v, 0);
}

/* --- random numbers
 * ----------------------------------------------------------------------------------------------- */
static int xor0(low *l, int a, int b, int t) /* 0: a zero */
{
    return !a ? b : !b ? a : v_rvm(l, XV_xorps, vl_of(l, t), a, b);
}

/* Both halves of the unsigned products of 32-bit lanes with a constant. */
static int mul_wide(low *l, int a, uint32_t by, int odd, int *lo)
{
    int vl = vl_of(l, VT_i32), m = c_i(l, VT_i32, by);
    int even = v_rm(l, XV_psrlqi, vl, v_rvm(l, XV_pmuludq, vl, a, m), 32);
    int rest = v_rvm(l, XV_pmuludq, vl, v_rm(l, XV_psrlqi, vl, a, 32), m);
    *lo = v_rvm(l, XV_pmulld, vl, a, m);
    return v_blend(l, VT_i32, odd, rest, even);
}

/* Philox blocks in the lanes, as many as four vectors of numbers have. Lane 4 q + e holds block e L / 4 + q: then
 * interleaving the four words inside 128 bits gives the numbers of vector e in their order. */
static void draw_blocks(low *l, const vir_ins *in, int copy, int32_t *out)
{
    int vl = vl_of(l, VT_i32), nl = l->L / 4, odd;
    int32_t n[16];
    for (int i = 0; i < l->L; i++)
        n[i] = i % 4 * nl + i / 4;
    int at = g_alu(l, G_add, reg_of(l, in->b), g_shift(l, 5, l->ivar, 2)), seed = reg_of(l, in->a);
    if (copy)
        at = g_alui(l, G_add, at, (int64_t)copy * nl);
    int hi = bcast_gpr(l, VT_i32, g_shift(l, 5, at, 32)), count = mir_const_vec(l->m, n, 4 * l->L);
    int k0 = bcast_gpr(l, VT_i32, seed), k1 = bcast_gpr(l, VT_i32, g_shift(l, 5, seed, 32));
    int c[4] = { v_rvm(l, XV_paddd, vl, bcast_gpr(l, VT_i32, at), count) };
    if (l->m->avx512) {
        int over = v_rvmi(l, XV_kcmpud, vl, c[0], count, 1);
        c[1] = v_blend(l, VT_i32, over, v_rvm(l, XV_paddd, vl, hi, c_i(l, VT_i32, 1)), hi);
        odd = mir_vreg(l->m, CLASS_k);
        mir_add(l->m, (mi){ .kind = MI_kfrom, .vl = (int8_t)kwidth(l), .d = odd, .s1 = g_imm(l, 0xaaaa) });
    } else {
        int sign = c_i(l, VT_i32, INT32_MIN);
        int over = v_rvm(l, XV_pcmpgtd, vl, v_rvm(l, XV_xorps, vl, count, sign),
                         v_rvm(l, XV_xorps, vl, c[0], sign));
        c[1] = v_rvm(l, XV_psubd, vl, hi, over);
        odd = mir_const(l->m, 0xffffffff00000000ULL, true);
    }
    for (int r = 0; r < 10; r++) {
        int lo0 = 0, lo1 = 0, hi0, hi1 = 0;
        if (r) {
            k0 = v_rvm(l, XV_paddd, vl, k0, c_i(l, VT_i32, 0x9E3779B9u));
            k1 = v_rvm(l, XV_paddd, vl, k1, c_i(l, VT_i32, 0xBB67AE85u));
            hi1 = mul_wide(l, c[2], 0xCD9E8D57u, odd, &lo1);
        }
        hi0 = mul_wide(l, c[0], 0xD2511F53u, odd, &lo0);
        c[0] = xor0(l, xor0(l, hi1, c[1], VT_i32), k0, VT_i32);
        c[2] = xor0(l, xor0(l, hi0, c[3], VT_i32), k1, VT_i32);
        c[1] = lo1;
        c[3] = lo0;
    }
    if (is_flt(in->type)) {
        inline_frag(l, vir_frag_normal(VT_f32), c, c);
        inline_frag(l, vir_frag_normal(VT_f32), c + 2, c + 2);
    }
    int a = v_rvm(l, XV_unpcklps, vl, c[0], c[1]), b = v_rvm(l, XV_unpcklps, vl, c[2], c[3]);
    out[0] = v_rvm(l, XV_unpcklpd, vl, a, b);
    out[1] = v_rvm(l, XV_unpckhpd, vl, a, b);
    a = v_rvm(l, XV_unpckhps, vl, c[0], c[1]);
    b = v_rvm(l, XV_unpckhps, vl, c[2], c[3]);
    out[2] = v_rvm(l, XV_unpcklpd, vl, a, b);
    out[3] = v_rvm(l, XV_unpckhpd, vl, a, b);
}

/* The same in lanes of 64 bits, whose upper halves hold what nobody reads: two numbers a block, two vectors. Lane 2 q + e holds
 * block e L / 2 + q. */
static void draw_wide(low *l, const vir_ins *in, int copy, int32_t *out)
{
    int vl = vl_of(l, VT_i64), nl = l->L / 2;
    int64_t n[8];
    for (int i = 0; i < l->L; i++)
        n[i] = i % 2 * nl + i / 2;
    int at = g_alu(l, G_add, reg_of(l, in->b), g_shift(l, 5, l->ivar, 1)), seed = reg_of(l, in->a);
    if (copy)
        at = g_alui(l, G_add, at, (int64_t)copy * nl);
    int k0 = bcast_gpr(l, VT_i64, seed), k1 = bcast_gpr(l, VT_i64, g_shift(l, 5, seed, 32));
    int c[4] = { v_rvm(l, XV_paddq, vl, bcast_gpr(l, VT_i64, at), mir_const_vec(l->m, n, 8 * l->L)) };
    c[1] = v_rm(l, XV_psrlqi, vl, c[0], 32);
    for (int r = 0; r < 10; r++) {
        int p = v_rvm(l, XV_pmuludq, vl, c[0], c_i(l, VT_i64, 0xD2511F53u)), q = 0, hi = 0;
        if (r) {
            k0 = v_rvm(l, XV_paddq, vl, k0, c_i(l, VT_i64, 0x9E3779B9u));
            k1 = v_rvm(l, XV_paddq, vl, k1, c_i(l, VT_i64, 0xBB67AE85u));
            q = v_rvm(l, XV_pmuludq, vl, c[2], c_i(l, VT_i64, 0xCD9E8D57u));
            hi = v_rm(l, XV_psrlqi, vl, q, 32);
        }
        c[0] = xor0(l, xor0(l, hi, c[1], VT_i64), k0, VT_i64);
        c[2] = xor0(l, xor0(l, v_rm(l, XV_psrlqi, vl, p, 32), c[3], VT_i64), k1, VT_i64);
        c[1] = q;
        c[3] = p;
    }
    for (int i = 0; i < 2; i++)
        c[i] = v_rvm(l, XV_orps, vl, v_rm(l, XV_psllqi, vl, c[2 * i], 32),
                     v_rvm(l, XV_andps, vl, c[2 * i + 1], c_i(l, VT_i64, 0xffffffff)));
    if (is_flt(in->type))
        inline_frag(l, vir_frag_normal(VT_f64), c, c);
    out[0] = v_rvm(l, XV_unpcklpd, vl, c[0], c[1]);
    out[1] = v_rvm(l, XV_unpckhpd, vl, c[0], c[1]);
}

static int draw_op(low *l, const vir_ins *in)
{
    int32_t *out = l->drawn[in - l->k->ins];
    int together = wide(in->type) ? 2 : 4, nth = l->cur % together;
    if (l->cur == l->first || !nth)
        (wide(in->type) ? draw_wide : draw_blocks)(l, in, l->cur - nth, out);
    return out[nth];
}

/* A pure value that is not a uniform integer, from kernel operands. */
static int kernel_vec_op(low *l, const vir_ins *in)
{
    const vir *k = l->k;
    const vir_ins *a = &k->ins[in->a];
    int d;
    if (in->op == VIR_draw)
        return draw_op(l, in);
    if (in->op == VIR_farg) {
        int base = g_new(l);
        d = mir_vreg(l->m, CLASS_v);
        mir_add(l->m, (mi){ .kind = MI_gload, .vl = 8, .d = base, .base = MB_FRAME, .disp = AREA_ARGS + 16 });
        mir_add(l->m, (mi){ .kind = MI_vec,
                            .vop = XV_bcastsd,
                            .vl = (int8_t)(l->m->avx512 ? 2 : 1),
                            .mem = true,
                            .d = d,
                            .base = base,
                            .disp = (int32_t)(8 * in->imm) });
        return in->type == VT_f64 ? d : bcast_lane0(l, VT_f32, v_rm(l, XV_cvtpd2ps, 0, d, 0));
    }
    if (in->op == VIR_loopvar) {
        int t = in->type, first = bcast_gpr(l, t, l->ivar);
        return v_rvm(l, t == VT_i64 ? XV_paddq : XV_paddd, vl_of(l, t), first,
                     iota(l, t, (int64_t)l->cur * l->L, 1));
    }
    if (!in->varying && in->a &&
        in_gpr(a)) { /* from uniform integers: one scalar operation, then all lanes */
        int x = reg_of(l, in->a);
        if (in->op == VIR_cvt && is_flt(in->type)) {
            d = mir_vreg(l->m, CLASS_v);
            mir_add(l->m, (mi){ .kind = MI_si2, .wide = in->type == VT_f64, .d = d, .s1 = x });
            return bcast_lane0(l, in->type, d);
        }
        if (in->op == VIR_bitcast)
            return bcast_gpr(l, in->type == VT_f64 ? VT_i64 : VT_i32, x);
        if (in->op >= VIR_eq && in->op <= VIR_ge) {
            static const uint8_t cc[] = { CC_e, CC_ne, CC_l, CC_le, CC_g, CC_ge };
            d = g_new(l);
            mir_add(l->m, (mi){ .kind = MI_gcmp, .s1 = x, .s2 = reg_of(l, in->b) });
            mir_add(l->m, (mi){ .kind = MI_setcc, .vop = cc[in->op - VIR_eq], .d = d });
            return mask_of_gpr(l, d);
        }
    }
    return vec_op(l, k, in, vec_of(l, in->a), vec_of(l, in->b), vec_of(l, in->c), vec_of(l, in->d));
}

/* --- memory
 * ----------------------------------------------------------------------------------------------------- */
static int both_masks(low *l, int a, int b) { return !a ? b : !b ? a : mask_op(l, VIR_and, a, b); }

static int mem_size(const vir_ins *in) { return (int)vir_mem_size((vir_mem)in->mem); }

/* The address of this copy's lane 0 in one register. */
static int lane0_address(low *l, const vir_ins *in)
{
    int size = mem_size(in), d = g_new(l), base = reg_of(l, in->a);
    mi i = { .kind = MI_glea, .d = d, .base = base, .scale = 1, .disp = (int32_t)in->imm };
    if (in->access == VA_unit) {
        i.index = l->ivar, i.scale = (int8_t)size, i.disp += l->cur * l->L * size;
    } else if (in->access == VA_strided) {
        int at = l->cur ? g_alui(l, G_add, l->ivar, (int64_t)l->cur * l->L) : l->ivar;
        const vir_ins *s = &l->k->ins[in->b];
        i.index = s->op == VIR_const ? g_muli(l, at, s->imm) : g_mul(l, at, reg_of(l, in->b));
        i.scale = (int8_t)size;
    } else if (in->access == VA_spread) {
        int at = l->cur ? g_alui(l, G_add, l->ivar, (int64_t)l->cur * l->L) : l->ivar;
        i.index = g_shift(l, 7, at, l->k->ins[in->b].imm == 2 ? 1 : 2);
        i.scale = (int8_t)size;
    }
    mir_add(l->m, i);
    return d;
}

static int steps_of(low *l, int by) /* 0, 0, 1, 1, ... */
{
    int32_t n[16];
    for (int i = 0; i < l->L; i++)
        n[i] = i / by;
    return mir_const_vec(l->m, n, 4 * l->L);
}

/* Through the frame, lane by lane: what the instruction set cannot do at once. op as in MI_lanes. */
static void lanes(low *l, const vir_ins *in, int op, int mask)
{
    int size = mem_size(in);
    mi i = { .kind = MI_lanes, .vl = (int8_t)size, .imm = op, .s1 = lane0_address(l, in) };
    if (in->access == VA_unit) {
        i.disp = size;
    } else if (in->access == VA_strided) {
        const vir_ins *s = &l->k->ins[in->b];
        if (s->op == VIR_const && s->imm * 16 * size == (int32_t)(s->imm * 16 * size))
            i.disp = (int32_t)(s->imm * size);
        else
            i.s2 = g_muli(l, reg_of(l, in->b), size);
    } else if (in->access == VA_gather) {
        int t = l->k->ins[in->b].type;
        to_area(l, AREA1, vec_of(l, in->b), t);
        i.scale = wide(t) ? 8 : 4;
    } else if (in->access == VA_spread) {
        to_area(l, AREA1, steps_of(l, (int)l->k->ins[in->b].imm), VT_i32);
        i.scale = 4;
    }
    if (mask)
        i.s3 = mask_bits(l, mask);
    mir_add(l->m, i);
}

/* Widens what stands at an address (memory form) to lanes. Returns 0 when the type needs no widening row. */
static x64_vop widen_row(int mem)
{
    switch (mem) {
    case VM_f64:
    case VM_i64: return XV_movupd_l;
    case VM_f32:
    case VM_i32: return XV_movups_l;
    case VM_f16: return XV_cvtph2ps;
    case VM_bf16: return XV_pmovzxwd;
    case VM_i16: return XV_pmovsxwd;
    case VM_i8: return XV_pmovsxbd;
    default: return XV_pmovzxbd;
    }
}
static int after_widen(low *l, int mem, int v)
{
    if (mem == VM_bf16)
        return v_rm(l, XV_pslldi, vl_of(l, VT_f32), v, 16);
    if (mem == VM_bool)
        return compare(l, VIR_ne, VT_i32, v, c_i(l, VT_i32, 0));
    return v;
}

/* A vector load from an address that is safe to read whole, or masked where the instruction set can. */
static int load_at(low *l, const vir_ins *in, mi addr, int kmask)
{
    int d = mir_vreg(l->m, CLASS_v);
    addr.kind = MI_vec, addr.vop = widen_row(in->mem),
    addr.vl = (int8_t)vl_of(l, in->type == VT_mask ? VT_i32 : in->type);
    addr.mem = true, addr.d = d;
    if (kmask && l->m->avx512)
        addr.k = kmask, addr.z = true;
    else if (kmask) {
        bool w = mem_size(in) == 8;
        addr.vop = w ? XV_maskmovpd_l : XV_maskmovps_l;
        addr.s1 = w ? v_rm(l, XV_pmovsxdq, vl_of(l, VT_i64), kmask, 0) : kmask;
    }
    mir_add(l->m, addr);
    return after_widen(l, in->mem, d);
}

static mi unit_address(low *l, const vir_ins *in)
{
    int size = mem_size(in);
    return (mi){ .base = reg_of(l, in->a),
                 .index = l->ivar,
                 .scale = (int8_t)size,
                 .disp = (int32_t)in->imm + l->cur * l->L * size };
}

static int load_lanes(low *l, const vir_ins *in, int mask)
{
    mi area = { .base = MB_FRAME, .disp = AREA0 };
    if (mask) /* lanes that are off read as zero */
        to_area(l, AREA0, c_i(l, VT_i32, 0), mem_size(in) == 8 ? VT_i64 : VT_i32);
    lanes(l, in, 0, mask);
    return load_at(l, in, area, 0);
}

/* One hardware gather of up to L lanes with i32 or i64 indices. */
static int gather(low *l, const vir_ins *in, int idx, int it, int mask)
{
    bool w = mem_size(in) == 8;
    int d = mir_vreg(l->m, CLASS_v);
    mi i = { .kind = MI_gather,
             .d = d,
             .s1 = idx,
             .s3 = mask,
             .scale = (int8_t)mem_size(in),
             .disp = (int32_t)in->imm };
    bool walks = in->access == VA_strided || in->access == VA_spread;
    i.base = walks ? lane0_address(l, in) : reg_of(l, in->a);
    if (walks)
        i.disp = 0;
    if (wide(it)) {
        i.vop = w ? XV_gatherqpd : XV_gatherqps;
        i.vl = (int8_t)vl_of(l, VT_i64);
    } else {
        i.vop = w ? XV_gatherdpd : XV_gatherdps;
        i.vl = (int8_t)vl_of(l, w ? VT_i64 : VT_i32);
    }
    if (!l->m->avx512 && mask && w)
        i.s3 = v_rm(l, XV_pmovsxdq, vl_of(l, VT_i64), mask, 0);
    mir_add(l->m, i);
    return d;
}

/* A stride known only at run time: full-width 64-bit indices, in two halves when there are more lanes than those. */
static int gather_stride(low *l, const vir_ins *in, int mask)
{
    int half = l->m->avx512 ? 8 : 4, vl = l->m->avx512 ? 2 : 1, base = lane0_address(l, in),
        part[2] = { 0, 0 };
    bool two = l->L > half, w = mem_size(in) == 8;
    for (int h = 0; h <= two; h++) {
        int d = mir_vreg(l->m, CLASS_v), m = mask;
        if (mask && l->m->avx512 && h) {
            m = mir_vreg(l->m, CLASS_k);
            mir_add(l->m,
                    (mi){ .kind = MI_kfrom, .vl = 1, .d = m, .s1 = g_shift(l, 5, mask_bits(l, mask), 8) });
        } else if (mask && h) {
            m = v_rm(l, XV_extracti128, 1, mask, 1);
        }
        if (mask && w && !l->m->avx512)
            m = v_rm(l, XV_pmovsxdq, 1, m, 0);
        mir_add(l->m, (mi){ .kind = MI_gather,
                            .vop = w ? XV_gatherqpd : XV_gatherqps,
                            .vl = (int8_t)vl,
                            .d = d,
                            .s1 = l->strides[in->b][h],
                            .s3 = m,
                            .scale = (int8_t)mem_size(in),
                            .base = base });
        part[h] = d;
    }
    return two ? v_rvmi(l, l->m->avx512 ? XV_inserti64x4 : XV_inserti128, vl, part[0], part[1], 1) : part[0];
}

static int load_masked(low *l, int base, int disp, int mask)
{
    int d = mir_vreg(l->m, CLASS_v);
    mir_add(l->m, (mi){ .kind = MI_vec,
                        .vop = XV_movups_l,
                        .vl = (int8_t)vl_of(l, VT_i32),
                        .mem = true,
                        .base = base,
                        .disp = disp,
                        .scale = 1,
                        .d = d,
                        .k = mask,
                        .z = mask != 0 });
    return d;
}

/* Every other element of 32 bits: two vectors, the second one element early so that nothing behind the last is touched. In a
 * tail of n lanes 2 n - 1 elements are: from n ones, (n ones + 1)^2 / 2 - 1 has that many. */
static int load_pairs(low *l, const vir_ins *in, int tail)
{
    int vl = vl_of(l, VT_i32), base = lane0_address(l, in), ka = 0, kb = 0;
    int32_t at[16];
    if (tail) {
        int g = g_alui(l, G_add, mask_bits(l, tail), 1);
        g = g_alui(l, G_add, g_shift(l, 5, g_mul(l, g, g), 1), -1);
        ka = mir_vreg(l->m, CLASS_k);
        kb = mir_vreg(l->m, CLASS_k);
        mir_add(l->m, (mi){ .kind = MI_kfrom, .vl = (int8_t)kwidth(l), .d = ka, .s1 = g });
        mir_add(l->m,
                (mi){ .kind = MI_kfrom, .vl = (int8_t)kwidth(l), .d = kb, .s1 = g_shift(l, 5, g, l->L - 1) });
    }
    int a = load_masked(l, base, 0, ka), b = load_masked(l, base, 4 * (l->L - 1), kb);
    int v = v_rvmi(l, XV_shufps, vl, a, b, 0xd8); /* 0, 2 of the one, 1, 3 of the other in each 128 bits */
    if (l->L == 4)
        return v;
    for (int o = 0; o < l->L; o++)
        at[o] = 4 * (o % (l->L / 2) / 2) + (o >= l->L / 2 ? 2 : 0) + o % 2;
    return v_rvm(l, XV_permps, vl, mir_const_vec(l->m, at, 4 * l->L), v);
}

/* Elements of 32 bits from the last to the first. */
static int load_back(low *l, const vir_ins *in)
{
    int vl = vl_of(l, VT_i32), v = load_masked(l, lane0_address(l, in), -4 * (l->L - 1), 0);
    if (l->L == 4)
        return v_rm(l, XV_pshufd, vl, v, 0x1b);
    return v_rvm(l, XV_permps, vl, iota(l, VT_i32, l->L - 1, -1), v);
}

/* Each element for `by` lanes: fewer are loaded, at least four, and dealt out. */
static int load_spread(low *l, const vir_ins *in, int by)
{
    int n = l->L / by, d = mir_vreg(l->m, CLASS_v), type = in->type == VT_mask ? VT_i32 : in->type;
    mir_add(l->m, (mi){ .kind = MI_vec,
                        .vop = widen_row(in->mem),
                        .vl = (int8_t)vl_bytes(4 * n),
                        .mem = true,
                        .base = lane0_address(l, in),
                        .scale = 1,
                        .d = d });
    int v = v_rvm(l, XV_permps, vl_of(l, type), steps_of(l, by), d);
    return after_widen(l, in->mem, v);
}

static int load_varying(low *l, const vir_ins *in)
{
    int size = mem_size(in), user = in->c ? vec_of(l, in->c) : 0, mask = both_masks(l, l->tail, user);
    if (in->access == VA_spread) {
        int by = (int)l->k->ins[in->b].imm;
        if (!mask && size <= 4 && l->L / by >= 4)
            return load_spread(l, in, by);
        return size < 4 ? load_lanes(l, in, mask) : gather(l, in, steps_of(l, by), VT_i32, mask);
    }
    if (in->access == VA_unit) {
        if (!l->m->avx512 && mask && size < 4)
            return load_lanes(l, in, mask);
        return load_at(l, in, unit_address(l, in), mask);
    }
    if (size < 4)
        return load_lanes(l, in, mask);
    if (in->access == VA_gather)
        return gather(l, in, vec_of(l, in->b), l->k->ins[in->b].type, mask);
    const vir_ins *s = &l->k->ins[in->b];
    if (s->op == VIR_const && s->imm == 2 && size == 4 && !user && (!l->tail || l->m->avx512))
        return load_pairs(l, in, l->tail);
    if (s->op == VIR_const && s->imm == -1 && size == 4 && !mask)
        return load_back(l, in);
    if (s->op == VIR_const && s->imm * 16 == (int32_t)(s->imm * 16))
        return gather(l, in, iota(l, VT_i32, 0, s->imm), VT_i32, mask);
    return gather_stride(l, in, mask);
}

/* Uniform address. A mask decides whether memory is touched at all. */
static int load_uniform_plain(low *l, const vir_ins *in, int d)
{
    mi addr = { .base = reg_of(l, in->a), .disp = (int32_t)in->imm, .scale = 1 };
    int size = mem_size(in);
    if (is_int(in->type) && l->m->v[d].cls == CLASS_g) {
        addr.kind = MI_gload, addr.vl = (int8_t)size, addr.z = in->mem != VM_u8, addr.d = d;
        mir_add(l->m, addr);
        return d;
    }
    if (in->mem == VM_f32 || in->mem == VM_f64) {
        addr.kind = MI_vec, addr.mem = true, addr.d = d;
        addr.vop = in->mem == VM_f64 ? XV_bcastsd : XV_bcastss;
        addr.vl = (int8_t)vl_of(l, in->type);
        mir_add(l->m, addr);
        return d;
    }
    int g = g_new(l), v;
    addr.kind = MI_gload, addr.vl = (int8_t)size, addr.z = false, addr.d = g;
    mir_add(l->m, addr);
    if (in->mem == VM_bool) {
        int one = g_new(l);
        mir_add(l->m, (mi){ .kind = MI_gtest, .s1 = g });
        mir_add(l->m, (mi){ .kind = MI_setcc, .vop = CC_ne, .d = one });
        v = mask_of_gpr(l, one);
    } else if (in->mem == VM_bf16) {
        v = bcast_gpr(l, VT_i32, g_shift(l, 4, g, 16));
    } else {
        int x = mir_vreg(l->m, CLASS_v);
        mir_add(l->m, (mi){ .kind = MI_movd, .d = x, .s1 = g });
        v = bcast_lane0(l, VT_f32, v_rm(l, XV_cvtph2ps, 0, x, 0));
    }
    copy_to(l, d, v);
    return d;
}

static int load_uniform(low *l, const vir_ins *in)
{
    bool g = is_int(in->type) && !in->varying;
    int d = mir_vreg(l->m, g ? CLASS_g : vclass(l, in->type));
    if (!in->c)
        return load_uniform_plain(l, in, d);
    int skip = mir_label(l->m), mask = vec_of(l, in->c);
    if (g)
        mir_add(l->m, (mi){ .kind = MI_gimm, .d = d });
    else
        copy_to(l, d, in->type == VT_mask ? mask_const(l, false) : c_i(l, VT_i32, 0));
    mask_test(l, mask);
    jcc(l, CC_e, skip);
    if (is_int(in->type) && !g) {
        int x = g_new(l);
        load_uniform_plain(l, in, x);
        copy_to(l, d, bcast_gpr(l, in->type, x));
    } else {
        load_uniform_plain(l, in, d);
    }
    label(l, skip);
    if (!l->k->ins[in->c].varying)
        return d;
    if (in->type == VT_mask)
        return mask_op(l, VIR_and, d, mask);
    return v_blend(l, in->type, mask, d, c_i(l, in->type, 0));
}

/* Lanes as they are stored: returns a vector whose low L * size bytes are the elements. */
static int pack_narrow(low *l, int mem, int v)
{
    int vl = vl_of(l, VT_i32), size = (int)vir_mem_size((vir_mem)mem);
    if (mem == VM_f16)
        return v_rm(l, XV_cvtps2ph, vl, v, 0);
    if (mem == VM_bf16)
        v = bf16_bits(l, v);
    if (mem == VM_bool)
        v = convert(l, VT_i32, VT_mask, v);
    if (l->m->avx512)
        return v_rm(l, size == 2 ? XV_pmovdw : XV_pmovdb, vl, v, 0);
    v = v_rvm(l, XV_andps, vl, v, c_i(l, VT_i32, size == 2 ? 0xffff : 0xff));
    int hi = vl ? v_rm(l, XV_extracti128, 1, v, 1) : v;
    v = v_rvm(l, XV_packusdw, 0, v, hi);
    return size == 2 ? v : v_rvm(l, XV_packuswb, 0, v, v);
}

static void store_lanes(low *l, const vir_ins *in, int v, int op, int mask)
{
    if (mem_size(in) < 4)
        v = pack_narrow(l, in->mem, v);
    to_area(l, AREA0, v, mem_size(in) == 8 ? VT_i64 : VT_i32);
    lanes(l, in, op, mask);
}

static void store_unit(low *l, const vir_ins *in, int v, int mask)
{
    int size = mem_size(in), bytes = l->L * size;
    mi s = unit_address(l, in);
    s.kind = MI_vec, s.mem = true, s.s1 = v;
    if (size >= 4) {
        s.vop = size == 8 ? XV_movupd_s : XV_movups_s;
        s.vl = (int8_t)vl_bytes(bytes);
        if (mask && l->m->avx512)
            s.k = mask;
        else if (mask) {
            s.vop = size == 8 ? XV_maskmovpd_s : XV_maskmovps_s;
            s.s2 = size == 8 ? v_rm(l, XV_pmovsxdq, vl_of(l, VT_i64), mask, 0) : mask;
        }
        mir_add(l->m, s);
        return;
    }
    if (mask && !l->m->avx512) {
        store_lanes(l, in, v, 1, mask);
        return;
    }
    s.s1 = pack_narrow(l, in->mem, v);
    if (bytes < 16 && !mask) { /* 8 or 4 bytes */
        s.vop = bytes == 8 ? XV_movsd_s : XV_movss_s, s.vl = 0;
        mir_add(l->m, s);
        return;
    }
    s.vl = (int8_t)vl_bytes(bytes);
    s.vop = XV_movups_s;
    if (mask) { /* AVX-512 masks bytes and words too; lanes past L are off in the mask */
        s.vop = size == 2 ? XV_movdqu16_s : XV_movdqu8_s;
        s.k = mask;
    } else if (bytes < 16) {
        s.vop = XV_movsd_s;
    }
    mir_add(l->m, s);
}

static void store_uniform(low *l, const vir_ins *in)
{
    const vir_ins *val = &l->k->ins[in->d];
    mi s = { .base = reg_of(l, in->a), .disp = (int32_t)in->imm, .scale = 1 };
    int size = mem_size(in), skip = 0;
    if (in->c) {
        skip = mir_label(l->m);
        mask_test(l, vec_of(l, in->c));
        jcc(l, CC_e, skip);
    }
    if (in->add) { /* uniform read-modify-write of lane 0 */
        if (in_gpr(val))
            mir_add(
                l->m,
                (mi){ .kind = MI_gstore, .vl = 8, .s1 = reg_of(l, in->d), .base = MB_FRAME, .disp = AREA0 });
        else
            to_area(l, AREA0, reg_of(l, in->d), wide(val->type) ? VT_i64 : VT_i32);
        int one = g_imm(l, 1);
        mir_add(l->m, (mi){ .kind = MI_lanes,
                            .vl = (int8_t)size,
                            .imm = is_flt(val->type) ? 3 : 2,
                            .s1 = lane0_address(l, in),
                            .s3 = one });
    } else if (in_gpr(val)) {
        s.kind = MI_gstore, s.vl = (int8_t)size, s.s1 = reg_of(l, in->d);
        mir_add(l->m, s);
    } else if (size >= 4) {
        s.kind = MI_vec, s.mem = true, s.vop = size == 8 ? XV_movsd_s : XV_movss_s, s.s1 = reg_of(l, in->d);
        mir_add(l->m, s);
    } else {
        int g = g_new(l);
        mir_add(l->m, (mi){ .kind = MI_movd_from, .d = g, .s1 = pack_narrow(l, in->mem, reg_of(l, in->d)) });
        s.kind = MI_gstore, s.vl = (int8_t)size, s.s1 = g;
        mir_add(l->m, s);
    }
    if (in->c)
        label(l, skip);
}

static void store(low *l, const vir_ins *in)
{
    bool inside = l->k->loops[in->region].vector != 0;
    if (in->access == VA_uniform && !(in->add && inside)) {
        if (inside && l->tail && l->cur) /* a uniform store in a vector loop: any copy writes the same */
            return;
        store_uniform(l, in);
        return;
    }
    int user = in->c ? vec_of(l, in->c) : 0, mask = both_masks(l, l->tail, user), v = vec_of(l, in->d);
    if (in->add)
        store_lanes(l, in, v, is_flt(l->k->ins[in->d].type) ? 3 : 2, mask);
    else if (in->access == VA_unit)
        store_unit(l, in, v, mask);
    else
        store_lanes(l, in, v, 1, mask);
}

/* --- reductions
 * --------------------------------------------------------------------------------------------------- */
static bool red_inside(const low *l, const vir_red_info *r) { return l->k->loops[r->loop].vector != 0; }

static void red_start(low *l, int n)
{
    const vir_red_info *r = &l->k->reds[n];
    arena *a = l->m->a;
    vir *tmp = vir_make(a, "identity");
    int first = red_inside(l, r) ? l->cur : 0, last = r->partials ? l->copies - 1 : first;
    if (!l->red[n])
        l->red[n] = arena_zalloc(a, sizeof(int32_t) * 4 * 16);
    for (int p = 0; p < vir_red_parts(r->kind); p++) {
        vir_ref id = vir_red_identity(tmp, r, p);
        for (int c = first; c <= last; c++) {
            int t = vir_red_part_type(r, p), d = mir_vreg(l->m, vclass(l, t));
            copy_to(l, d, const_op(l, &tmp->ins[id]));
            l->red[n][c * 4 + p] = d;
        }
    }
}

/* A mask of the lanes from `first` on. */
static int late_lanes(low *l, int first)
{
    int32_t on[16] = { 0 };
    for (int i = first; i < l->L; i++)
        on[i] = -1;
    if (!l->m->avx512)
        return mir_const_vec(l->m, on, 4 * l->L);
    int k = mir_vreg(l->m, CLASS_k);
    mir_add(l->m, (mi){ .kind = MI_kfrom, .vl = (int8_t)kwidth(l), .d = k, .s1 = g_imm(l, -(1 << first)) });
    return k;
}

/* Lane i takes the value that lane from[i] has; less than 0, which the first lanes have: what `other` has there. */
static int lanes_from(low *l, int t, int v, const int *from, int other)
{
    int32_t at[16] = { 0 };
    int each = wide(t) ? 2 : 1, n = l->L * each, first = 0;
    for (int i = 0; i < n; i++)
        at[i] = MAX(from[i / each], 0) * each + i % each;
    while (from[first] < 0)
        first++;
    int d = v_rvm(l, XV_permps, n > 8 ? 2 : 1, mir_const_vec(l->m, at, n > 8 ? 64 : 32), v);
    return first ? v_blend(l, t, late_lanes(l, first), d, other) : d;
}

/* A running result along the lanes. Behind the carried parts (one value in all lanes) stand those of each lane. */
static void scan_step(low *l, const vir_ins *in, const vir_red_info *r)
{
    const vir_frag *f = vir_frag_merge(r->kind, r->type, r->itype);
    int n = vir_red_parts(r->kind), args[8], cur[4], id[4], from[16];
    int32_t *carry = l->red[in->imm], *lanes = carry + 4;
    vir *tmp = vir_make(l->m->a, "identity");
    cur[0] = vec_of(l, in->a);
    cur[1] = vec_of(l, in->b);
    for (int p = 0; p < n; p++) {
        id[p] = const_op(l, &tmp->ins[vir_red_identity(tmp, r, p)]);
        if (l->tail) /* the loop around may go on with what is carried */
            cur[p] = select_op(l, vir_red_part_type(r, p), l->tail, cur[p], id[p]);
    }
    if (is_flt(r->type) && (r->kind == RED_sum || r->kind == RED_prod)) { /* in their order: lane by lane */
        int sum = carry[0], out = 0;
        for (int i = 0; i < l->L; i++) {
            for (int j = 0; j < l->L; j++)
                from[j] = i;
            args[0] = sum;
            args[1] = lanes_from(l, r->type, cur[0], from, 0);
            inline_frag(l, f, args, &sum);
            out = i ? v_blend(l, r->type, late_lanes(l, i), sum, out) : sum;
        }
        lanes[0] = out;
        copy_to(l, carry[0], sum);
        return;
    }
    for (int by = 1; by < l->L; by *= 2) {
        for (int j = 0; j < l->L; j++)
            from[j] = j - by;
        for (int p = 0; p < n; p++)
            args[p] = lanes_from(l, vir_red_part_type(r, p), cur[p], from, id[p]), args[n + p] = cur[p];
        inline_frag(l, f, args, cur);
    }
    for (int p = 0; p < n; p++)
        args[p] = carry[p], args[n + p] = cur[p];
    inline_frag(l, f, args, cur);
    for (int j = 0; j < l->L; j++)
        from[j] = l->L - 1;
    for (int p = 0; p < n; p++) {
        lanes[p] = cur[p];
        copy_to(l, carry[p], lanes_from(l, vir_red_part_type(r, p), cur[p], from, 0));
    }
}

static void red_step(low *l, const vir_ins *in)
{
    const vir_red_info *r = &l->k->reds[in->imm];
    if (r->scan && !red_inside(l, r) && l->k->loops[in->region].vector) {
        scan_step(l, in, r);
        return;
    }
    int n = vir_red_parts(r->kind), c = r->partials || red_inside(l, r) ? l->cur : 0, args[8], out[4];
    int32_t *part = &l->red[in->imm][c * 4];
    for (int p = 0; p < n; p++)
        args[p] = part[p];
    args[n] = vec_of(l, in->a);
    args[n + 1] = vec_of(l, in->b);
    inline_frag(l, vir_frag_step(r->kind, r->type, r->itype), args, out);
    for (int p = 0; p < n; p++) {
        int t = vir_red_part_type(r, p), v = out[p];
        if (l->tail && r->partials)
            v = select_op(l, t, l->tail, v, part[p]);
        assign(l, part[p], v);
    }
}

/* The upper half of the first w lanes, moved down. */
static int upper_half(low *l, int t, int v, int w)
{
    int bytes = w * (wide(t) ? 8 : 4);
    if (bytes == 64)
        return v_rm(l, XV_extracti64x4, 2, v, 1);
    if (bytes == 32)
        return v_rm(l, l->m->avx512 ? XV_extracti32x4 : XV_extracti128, 1, v, 1);
    return v_rm(l, XV_pshufd, 0, v, bytes == 16 ? 0x4e : 0xb1);
}

static int fold_mask(low *l, bool any, int mask)
{
    int bits = mask_bits(l, mask), one = g_new(l);
    if (any)
        mir_add(l->m, (mi){ .kind = MI_gtest, .s1 = bits });
    else
        mir_add(l->m, (mi){ .kind = MI_gcmpi, .s1 = bits, .imm = (1 << l->L) - 1 });
    mir_add(l->m, (mi){ .kind = MI_setcc, .vop = any ? CC_ne : CC_e, .d = one });
    return mask_of_gpr(l, one);
}

/* Lanes of the parts, joined by halves: lane 0 has the result. */
static void fold_lanes(low *l, const vir_red_info *r, const vir_frag *f, int *part)
{
    int np = vir_red_parts(r->kind), args[8];
    for (int w = l->L; w > 1; w /= 2) {
        for (int p = 0; p < np; p++)
            args[p] = part[p], args[np + p] = upper_half(l, vir_red_part_type(r, p), part[p], w);
        inline_frag(l, f, args, part);
    }
}

/* The next pass over a row waits for this, so NaN is looked for once and not in every step. */
static void fold_extreme(low *l, const vir_red_info *r, const vir_frag *f, int *part)
{
    int d = mir_vreg(l->m, CLASS_v), slow = mir_label(l->m), done = mir_label(l->m), with = part[0];
    mask_test(l, compare(l, VIR_ne, r->type, with, with));
    jcc(l, CC_ne, slow);
    l->numbers = true;
    fold_lanes(l, r, f, part);
    l->numbers = false;
    copy_to(l, d, part[0]);
    mir_add(l->m, (mi){ .kind = MI_jmp, .imm = done });
    label(l, slow);
    fold_lanes(l, r, f, &with);
    copy_to(l, d, with);
    label(l, done);
    part[0] = d;
}

static void red_fold(low *l, int n)
{
    const vir_red_info *r = &l->k->reds[n];
    const vir_frag *f = vir_frag_merge(r->kind, r->type, r->itype);
    int np = vir_red_parts(r->kind), cur[16][4], args[8];
    if (!r->partials)
        return;
    for (int c = 0; c < l->copies; c++)
        for (int p = 0; p < np; p++)
            cur[c][p] = l->red[n][c * 4 + p];
    for (int h = l->copies / 2; h; h /= 2)
        for (int c = 0; c < h; c++) {
            for (int p = 0; p < np; p++)
                args[p] = cur[c][p], args[np + p] = cur[c + h][p];
            inline_frag(l, f, args, cur[c]);
        }
    if (r->type == VT_mask) {
        l->red[n][0] = fold_mask(l, r->kind == RED_any, cur[0][0]);
        return;
    }
    if ((r->kind == RED_max || r->kind == RED_min) && is_flt(r->type))
        fold_extreme(l, r, f, cur[0]);
    else
        fold_lanes(l, r, f, cur[0]);
    for (int p = 0; p < np; p++)
        l->red[n][p] = bcast_lane0(l, vir_red_part_type(r, p), cur[0][p]);
}

/* --- the walk
 * ------------------------------------------------------------------------------------------------------ */
static void lower_region(low *l, int region, int first, int last);
static void lower_span(low *l, int region, vir_ref r, vir_ref end, int first, int last);

static void define_strides(low *l, vir_ref r, int reg)
{
    int half = l->m->avx512 ? 8 : 4, b = mir_vreg(l->m, CLASS_v);
    mir_add(l->m, (mi){ .kind = MI_bcastg, .vl = l->m->avx512 ? 2 : 1, .wide = true, .d = b, .s1 = reg });
    for (int h = 0; h <= (l->L > half); h++) {
        int64_t n[8];
        for (int i = 0; i < half; i++)
            n[i] = h * half + i;
        l->strides[r][h] = mul64(l, b, mir_const_vec(l->m, n, 8 * half));
    }
}

static void define(low *l, vir_ref r, int reg)
{
    const vir_ins *in = &l->k->ins[r];
    l->map[(in->varying ? l->cur : 0) * l->k->n + r] = reg;
    if (l->needvec[r] && in_gpr(in))
        l->vecmap[r] = in->op == VIR_const ? c_i(l, in->type, in->imm) : bcast_gpr(l, in->type, reg);
    if (l->needstride[r])
        define_strides(l, r, reg);
}

static void lower_part(low *l, vir_ref r, const vir_ins *in)
{
    const vir_red_info *rd = &l->k->reds[in->imm / 4];
    bool lanes = rd->scan && !red_inside(l, rd) && l->k->loops[in->region].vector;
    int v = l->red[in->imm / 4][(lanes ? 1 : red_inside(l, rd) ? l->cur : 0) * 4 + in->imm % 4];
    if (in_gpr(in)) {
        int g = g_new(l);
        mir_add(l->m, (mi){ .kind = MI_movd_from, .wide = wide(in->type), .d = g, .s1 = v });
        v = g;
    }
    define(l, r, v);
}

static void lower_ins(low *l, vir_ref r)
{
    const vir_ins *in = &l->k->ins[r];
    int d, src;
    switch (in->op) {
    case VIR_store: store(l, in); return;
    case VIR_load:
        if (in->access == VA_uniform)
            define(l, r, load_uniform(l, in));
        else
            define(l, r, load_varying(l, in));
        return;
    case VIR_var:
    case VIR_get:
        src = in->op == VIR_get            ? reg_of(l, in->a)
              : in->varying || !in_gpr(in) ? vec_of(l, in->a)
                                           : reg_of(l, in->a);
        d = mir_vreg(l->m, l->m->v[src].cls);
        copy_to(l, d, src);
        define(l, r, d);
        return;
    case VIR_set: {
        const vir_ins *var = &l->k->ins[in->a];
        copy_to(l, reg_of(l, in->a), in_gpr(var) ? reg_of(l, in->b) : vec_of(l, in->b));
        return;
    }
    case VIR_red: red_start(l, (int)in->imm); return;
    case VIR_step: red_step(l, in); return;
    case VIR_fold: red_fold(l, (int)in->imm); return;
    case VIR_part: lower_part(l, r, in); return;
    case VIR_loopvar:
        if (!in->varying || !in->uses)
            return;
        define(l, r, kernel_vec_op(l, in));
        return;
    default: define(l, r, in_gpr(in) ? gpr_op(l, in) : kernel_vec_op(l, in)); return;
    }
}

static int loop_bound(low *l, const vir_loop_info *lp, bool end)
{
    if (lp->kind != LOOP_parallel)
        return reg_of(l, end ? lp->end : lp->begin);
    int d = g_new(l);
    mir_add(l->m,
            (mi){ .kind = MI_gload, .vl = 8, .d = d, .base = MB_FRAME, .disp = AREA_ARGS + (end ? 32 : 24) });
    return d;
}

static void serial_loop(low *l, int n, int first, int last)
{
    const vir_loop_info *lp = &l->k->loops[n];
    int i = g_new(l), top = mir_label(l->m), out = mir_label(l->m), end = loop_bound(l, lp, true);
    copy_to(l, i, loop_bound(l, lp, false));
    mir_add(l->m, (mi){ .kind = MI_gcmp, .s1 = i, .s2 = end });
    jcc(l, CC_ge, out);
    mir_loop_begin(l->m);
    label(l, top);
    l->cur = first;
    define(l, lp->var, i);
    lower_region(l, n, first, last);
    mir_add(l->m, (mi){ .kind = MI_galui, .vop = G_add, .d = i, .s1 = i, .imm = 1 });
    mir_add(l->m, (mi){ .kind = MI_gcmp, .s1 = i, .s2 = end });
    jcc(l, CC_l, top);
    mir_loop_end(l->m);
    label(l, out);
}

static bool has_partials(const low *l, int loop)
{
    for (int i = 1; i < l->k->n; i++) {
        const vir_ins *in = &l->k->ins[i];
        if (in->op == VIR_step && !in->dead && l->k->loops[in->region].vector == loop &&
            l->k->reds[in->imm].partials)
            return true;
    }
    return false;
}
static bool has_child_loops(const low *l, int loop)
{
    for (int i = 1; i < l->k->nloops; i++)
        if (i != loop && l->k->loops[i].vector == loop)
            return true;
    return false;
}

static int buffer_of(const vir *k, const vir_ins *in)
{
    const vir_ins *p = &k->ins[in->a];
    return (int)(p->op == VIR_ptr ? &k->ins[p->a] : p)->imm;
}

/* --- rows ahead
 * A row in several passes (softmax: maximum, sum, product) waits between them: for memory at the start of the first, for the
 * joined results behind each. So the first pass of the next row runs in the loop of this row's last one, which mostly
 * stores. Rows are the iterations of the parallel loop, so they may overlap in any way. What is too large for the cache is
 * another matter: reads between writes of lines that memory has to give first, or between long calculations, come
 * too late (a third slower, measured), so there the last pass has to be light and write where an earlier one did. */
enum { CACHED = 16 << 20 }; /* bytes that a shared cache keeps from one kernel to the next */

typedef struct ahead {
    int row, first, last; /* the parallel loop, and the first and the last vector loop in it */
    vir_ref next;         /* the first loop behind `first` */
    vir_ref *vals;        /* values that are computed with the first pass and wanted later on */
    int nvals;
    uint8_t *early;     /* by value: computed with the first pass */
    int32_t (*now)[4];  /* by place in vals: registers in which later passes find them */
    int32_t (*then)[4]; /* ... and those of the next row */
} ahead;

static void ahead_get(const low *l, const ahead *h, int32_t (*to)[4])
{
    for (int i = 0; i < h->nvals; i++) {
        vir_ref r = h->vals[i];
        const int32_t regs[4] = { l->map[r], l->vecmap[r], l->strides[r][0], l->strides[r][1] };
        memcpy(to[i], regs, sizeof regs);
    }
}
static void ahead_use(low *l, const ahead *h, int32_t (*from)[4])
{
    for (int i = 0; i < h->nvals; i++) {
        vir_ref r = h->vals[i];
        l->map[r] = from[i][0], l->vecmap[r] = from[i][1];
        l->strides[r][0] = from[i][2], l->strides[r][1] = from[i][3];
    }
}

/* Whether nothing but its operands, the row and what nobody writes decides the value. */
static bool is_early(const low *l, const ahead *h, const vir_ins *in, const uint8_t *of_first)
{
    const vir_ref ops[4] = { in->a, in->b, in->c, in->d };
    switch (in->op) {
    case VIR_store:
    case VIR_var:
    case VIR_get:
    case VIR_set:
    case VIR_step:
    case VIR_call: return false;
    case VIR_red:
    case VIR_fold: return of_first[in->imm];
    case VIR_part: return of_first[in->imm / 4];
    case VIR_load:
        if (l->k->bufs[buffer_of(l->k, in)].flags != VIR_IN)
            return false;
        break;
    default: break;
    }
    for (int i = 0; i < 4; i++)
        if (ops[i] && l->k->ins[ops[i]].region == h->row && !h->early[ops[i]])
            return false;
    return true;
}

/* A first pass that is light and writes nothing. of_first: the reductions it steps. */
static bool is_light(const low *l, int loop, uint8_t *of_first)
{
    const vir *k = l->k;
    int n = 0;
    for (vir_ref r = k->loops[loop].first; r; r = k->ins[r].next) {
        const vir_ins *in = &k->ins[r];
        if (in->dead)
            continue;
        if (in->op == VIR_store || in->op == VIR_loop || in->op == VIR_var || in->op == VIR_get ||
            in->op == VIR_set || in->op == VIR_call || in->op == VIR_draw || vir_is_math((vir_op)in->op) ||
            (in->op == VIR_load && k->bufs[buffer_of(k, in)].flags != VIR_IN) || ++n > 16)
            return false;
        if (in->op == VIR_step)
            of_first[in->imm] = 1;
    }
    return true;
}

/* Bytes of the arrays that the row loop goes through once, 0 where they depend on sizes not known yet. */
static int64_t bytes_of_rows(const vir *k, int row)
{
    const vir_ins *rows = &k->ins[k->loops[row].end];
    uint64_t seen = 0;
    int64_t sum = 0;
    for (int i = 1; i < k->n && rows->op == VIR_const; i++) {
        const vir_ins *in = &k->ins[i];
        const vir_loop_info *lp = &k->loops[in->region];
        if (in->dead || (in->op != VIR_load && in->op != VIR_store) || lp->kind != LOOP_vector ||
            k->ins[in->a].region != row || k->ins[lp->end].op != VIR_const)
            continue;
        uint64_t bit = 1ull << (buffer_of(k, in) & 63);
        if (!(seen & bit))
            sum += rows->imm * k->ins[lp->end].imm * (int64_t)vir_mem_size((vir_mem)in->mem);
        seen |= bit;
    }
    return sum;
}

/* Whether the loop calculates little and writes only what an earlier one of its row wrote. */
static bool is_rewrite(const vir *k, int row, int loop)
{
    uint64_t before = 0;
    for (vir_ref r = k->loops[row].first; r; r = k->ins[r].next)
        for (vir_ref x = k->ins[r].op == VIR_loop ? k->loops[k->ins[r].imm].first : 0; x;
             x = k->ins[x].next) {
            const vir_ins *in = &k->ins[x];
            uint64_t bit = in->op == VIR_store ? 1ull << (buffer_of(k, in) & 63) : 0;
            if (in->dead)
                continue;
            if (in->region == loop && (vir_is_math((vir_op)in->op) || (bit & ~before)))
                return false;
            before |= bit;
        }
    return true;
}

static bool ahead_find(const low *l, int row, ahead *h)
{
    const vir *k = l->k;
    vir_ref head = 0, tail = 0;
    *h = (ahead){ .row = row };
    for (vir_ref r = k->loops[row].first; r; r = k->ins[r].next)
        if (k->ins[r].op == VIR_loop && !k->ins[r].dead) {
            h->next = head && !h->next ? r : h->next;
            head = head ? head : r;
            tail = r;
        }
    if (k->loops[row].kind != LOOP_parallel || head == tail)
        return false;
    h->first = (int)k->ins[head].imm, h->last = (int)k->ins[tail].imm;
    const vir_loop_info *a = &k->loops[h->first], *b = &k->loops[h->last];
    arena *mem = l->m->a;
    uint8_t *of_first = arena_zalloc(mem, (size_t)k->nreds + 1);
    if (a->kind != LOOP_vector || b->kind != LOOP_vector || a->begin != b->begin || a->end != b->end ||
        k->ins[a->begin].region || k->ins[a->end].region || has_child_loops(l, h->last) ||
        !is_light(l, h->first, of_first) || (bytes_of_rows(k, row) > CACHED && !is_rewrite(k, row, h->last)))
        return false;
    h->early = arena_zalloc(mem, (size_t)k->n);
    h->early[k->loops[row].var] = 1;
    bool behind = false;
    for (vir_ref r = k->loops[row].first; r != h->next; r = k->ins[r].next) {
        behind |= r == head;
        if (r == head || k->ins[r].dead)
            continue;
        h->early[r] = is_early(l, h, &k->ins[r], of_first);
        if (!behind && !h->early[r])
            return false;
    }
    /* what others want of it; a part of its results that is only read later would be that of the next row */
    uint8_t *wanted = arena_zalloc(mem, (size_t)k->n);
    for (int i = 1; i < k->n; i++) {
        const vir_ins *in = &k->ins[i];
        if (in->dead || h->early[i])
            continue;
        if ((in->op == VIR_step && of_first[in->imm] && in->region != h->first) ||
            (in->op == VIR_fold && of_first[in->imm]) || (in->op == VIR_part && of_first[in->imm / 4]))
            return false;
        if (in->region != h->first)
            wanted[in->a] = wanted[in->b] = wanted[in->c] = wanted[in->d] = 1;
    }
    for (int i = 1; i < k->nloops; i++)
        wanted[k->loops[i].begin] = wanted[k->loops[i].end] = 1;
    h->vals = arena_alloc(mem, sizeof *h->vals * (size_t)k->n);
    for (vir_ref r = 1; r < k->n; r++)
        if (h->early
                [r]) /* what only the first pass wants is in the list, too: it has to give way to the next row's */
            h->vals[h->nvals++] = r;
    h->now = arena_zalloc(mem, sizeof *h->now * (size_t)(h->nvals + 1));
    h->then = arena_zalloc(mem, sizeof *h->then * (size_t)(h->nvals + 1));
    for (int i = 0; i < h->nvals; i++)
        h->early[h->vals[i]] = wanted[h->vals[i]] ? 2 : 1;
    return true;
}

/* The straight code of the row loop in [r, end): what is early, or the rest. */
static void ahead_straight(low *l, const ahead *h, vir_ref r, vir_ref end, bool early)
{
    l->cur = l->first = 0;
    for (; r != end; r = l->k->ins[r].next)
        if (!l->k->ins[r].dead && l->k->ins[r].op != VIR_loop && (h->early[r] != 0) == early)
            lower_ins(l, r);
}

/* Later passes find their values in registers of their own, which the next row's are moved to. */
static void ahead_keep(low *l, const ahead *h, int32_t (*from)[4], bool fresh)
{
    for (int i = 0; i < h->nvals; i++)
        for (int x = 0; x < 4 && h->early[h->vals[i]] == 2; x++) {
            int32_t *to = &h->now[i][x];
            if (!from[i][x])
                continue;
            if (fresh)
                *to = mir_vreg(l->m, l->m->v[from[i][x]].cls);
            copy_to(l, *to, from[i][x]);
        }
}

static void vector_loop(low *l, int n, ahead *h);

static void rows_loop(low *l, ahead *h)
{
    const vir *k = l->k;
    const vir_loop_info *lp = &k->loops[h->row];
    vir_ref head = k->loops[h->first].ins, tail = k->loops[h->last].ins;
    int i = g_new(l), top = mir_label(l->m), out = mir_label(l->m), end = loop_bound(l, lp, true);
    copy_to(l, i, loop_bound(l, lp, false));
    mir_add(l->m, (mi){ .kind = MI_gcmp, .s1 = i, .s2 = end });
    jcc(l, CC_ge, out);
    int last = g_alui(l, G_sub, end, 1);
    l->cur = 0;
    define(l, lp->var, i);
    ahead_straight(l, h, lp->first, head, true);
    vector_loop(l, h->first, NULL);
    ahead_straight(l, h, head, h->next, true);
    ahead_get(l, h, h->then);
    ahead_keep(l, h, h->then, true);
    mir_loop_begin(l->m);
    label(l, top);
    ahead_use(l, h, h->now);
    ahead_straight(l, h, head, h->next, false);
    lower_span(l, h->row, h->next, tail, 0, 0);
    int next = g_minmax(l, true, g_alui(l, G_add, i, 1),
                        last); /* behind the last row: the last one again, for nothing */
    l->cur = 0;
    define(l, lp->var, next);
    ahead_straight(l, h, lp->first, head, true);
    ahead_get(l, h, h->then);
    vector_loop(l, h->last, h);
    ahead_use(l, h, h->now);
    lower_span(l, h->row, k->ins[tail].next, 0, 0, 0);
    ahead_use(l, h, h->then);
    ahead_straight(l, h, head, h->next, true);
    ahead_get(l, h, h->then);
    ahead_keep(l, h, h->then, false);
    mir_add(l->m, (mi){ .kind = MI_galui, .vop = G_add, .d = i, .s1 = i, .imm = 1 });
    mir_add(l->m, (mi){ .kind = MI_gcmp, .s1 = i, .s2 = end });
    jcc(l, CC_l, top);
    mir_loop_end(l->m);
    label(l, out);
}

static int tail_mask(low *l, int rem)
{
    if (l->m->avx512) {
        int g = g_new(l), k = mir_vreg(l->m, CLASS_k);
        mir_add(l->m, (mi){ .kind = MI_gbzhi, .d = g, .s1 = rem });
        mir_add(l->m, (mi){ .kind = MI_kfrom, .vl = (int8_t)kwidth(l), .d = k, .s1 = g });
        return k;
    }
    return v_rvm(l, XV_pcmpgtd, vl_of(l, VT_i32), bcast_gpr(l, VT_i32, rem), iota(l, VT_i32, 0, 1));
}

/* Tail of a loop whose reductions keep partial results: element j of the remainder belongs to partial j, so
 * each copy gets its own masked piece. */
static void tail_by_copies(low *l, int n, int i, int end, bool branches)
{
    int done = mir_label(l->m);
    mir_add(l->m, (mi){ .kind = MI_gcmp, .s1 = i, .s2 = end });
    jcc(l, CC_ge, done);
    int rem = g_alu(l, G_sub, end, i), zero = branches ? 0 : g_imm(l, 0);
    if (!branches) { /* all copies together, each under its own mask, possibly empty */
        for (int c = 0; c < l->copies; c++)
            l->tailmask[c] = tail_mask(
                l, g_minmax(l, false, c ? g_alui(l, G_add, rem, -(int64_t)c * l->L) : rem, zero));
        lower_region(l, n, 0, l->copies - 1);
    }
    for (int c = 0; branches && c < l->copies; c++) {
        int r = c ? g_alui(l, G_add, rem, -(int64_t)c * l->L) : rem;
        if (c) {
            mir_add(l->m, (mi){ .kind = MI_gcmpi, .s1 = r, .imm = 0 });
            jcc(l, CC_le, done);
        }
        l->tailmask[c] = tail_mask(l, r);
        lower_region(l, n, c, c);
    }
    label(l, done);
}

/* Tail of a loop without such reductions: one masked vector at a time. */
static void tail_by_vectors(low *l, int n, int i, int end)
{
    int top = mir_label(l->m), done = mir_label(l->m);
    mir_add(l->m, (mi){ .kind = MI_gcmp, .s1 = i, .s2 = end });
    jcc(l, CC_ge, done);
    mir_loop_begin(l->m);
    label(l, top);
    l->tailmask[0] = tail_mask(l, g_alu(l, G_sub, end, i));
    lower_region(l, n, 0, 0);
    mir_add(l->m, (mi){ .kind = MI_galui, .vop = G_add, .d = i, .s1 = i, .imm = l->L });
    mir_add(l->m, (mi){ .kind = MI_gcmp, .s1 = i, .s2 = end });
    jcc(l, CC_l, top);
    mir_loop_end(l->m);
    label(l, done);
}

static void vector_tail(low *l, int n, int i, int end)
{
    l->ivar = i;
    l->tail = 1; /* replaced copy by copy */
    if (has_partials(l, n))
        tail_by_copies(l, n, i, end, !has_child_loops(l, n));
    else
        tail_by_vectors(l, n, i, end);
    l->tail = 0;
    l->cur = 0;
}

/* h: with the first pass of the next row, or NULL. */
static void vector_loop(low *l, int n, ahead *h)
{
    const vir_loop_info *lp = &l->k->loops[n];
    int step = l->L * l->copies, i = g_new(l), end = loop_bound(l, lp, true), rest = i;
    int top = mir_label(l->m), out = mir_label(l->m);
    copy_to(l, i, loop_bound(l, lp, false));
    int last = g_alui(l, G_sub, end, step); /* the main loop runs while i <= last */
    l->ivar = i;
    mir_add(l->m, (mi){ .kind = MI_gcmp, .s1 = i, .s2 = last });
    jcc(l, CC_g, out);
    mir_loop_begin(l->m);
    label(l, top);
    if (h) {
        lower_region(l, h->first, 0, l->copies - 1);
        ahead_use(l, h, h->now);
    }
    lower_region(l, n, 0, l->copies - 1);
    mir_add(l->m, (mi){ .kind = MI_galui, .vop = G_add, .d = i, .s1 = i, .imm = step });
    mir_add(l->m, (mi){ .kind = MI_gcmp, .s1 = i, .s2 = last });
    jcc(l, CC_le, top);
    mir_loop_end(l->m);
    label(l, out);
    if (h) {
        rest = g_new(l);
        copy_to(l, rest, i);
    }
    vector_tail(l, n, i, end);
    if (h) {
        ahead_use(l, h, h->then);
        vector_tail(l, h->first, rest, end);
    }
}

/* Whether copies of the run may be mixed: no copy reads what another may have written, and no two of their stores meet. */
static bool copies_mix(const vir *k, vir_ref r, vir_ref stop)
{
    uint64_t stored = 0, read = 0;
    for (; r != stop; r = k->ins[r].next) {
        const vir_ins *in = &k->ins[r];
        if (in->dead || (in->op != VIR_load && in->op != VIR_store))
            continue;
        int buf = buffer_of(k, in);
        uint64_t bit = 1ull << (buf & 63);
        if (in->op == VIR_load) {
            read |= k->bufs[buf].flags == VIR_IN ? 0 : bit;
            continue;
        }
        if (in->access != VA_unit || in->add || (stored & bit))
            return false;
        stored |= bit;
    }
    return !(stored & read);
}

/* Instructions first..last copies wide: a run of straight-line code is written copy after copy, loops only once. Two copies at
 * a time are then mixed, because a processor sees too little of the next copy while it waits for this one. */
static void lower_span(low *l, int region, vir_ref r, vir_ref end, int first, int last)
{
    const vir *k = l->k;
    ahead h;
    while (r != end) {
        const vir_ins *in = &k->ins[r];
        if (in->op == VIR_loop) {
            if (k->loops[in->imm].kind == LOOP_vector)
                vector_loop(l, (int)in->imm, NULL);
            else if (ahead_find(l, (int)in->imm, &h))
                rows_loop(l, &h);
            else
                serial_loop(l, (int)in->imm, first, last);
            r = in->next;
            continue;
        }
        vir_ref stop = r;
        while (stop != end && k->ins[stop].op != VIR_loop)
            stop = k->ins[stop].next;
        bool mix = last > first && copies_mix(k, r, stop);
        int begin[2] = { 0, 0 };
        for (int c = first; c <= last; c++) {
            l->cur = c;
            l->first = first;
            if (l->tail)
                l->tail = l->tailmask[c];
            begin[(c - first) % 2] = l->m->n;
            for (vir_ref x = r; x != stop; x = k->ins[x].next) {
                const vir_ins *i = &k->ins[x];
                bool each = i->varying || i->op == VIR_store || i->op == VIR_set || i->op == VIR_step ||
                            (i->op == VIR_red && k->loops[region].vector) ||
                            (i->op == VIR_fold && k->loops[region].vector);
                if (!i->dead && (c == first || each))
                    lower_ins(l, x);
            }
            if (mix && (c - first) % 2)
                mir_zip(l->m, begin[0], begin[1], last - first + 1);
        }
        r = stop;
    }
}

static void lower_region(low *l, int region, int first, int last)
{
    lower_span(l, region, l->k->loops[region].first, 0, first, last);
}

/* Uniform integers that somebody needs in lanes. */
static void find_needvec(low *l)
{
    const vir *k = l->k;
    for (int i = 1; i < k->n; i++) {
        const vir_ins *in = &k->ins[i];
        bool lanes = in->varying || in->op == VIR_step || in->op == VIR_store || in->op == VIR_set ||
                     in->op == VIR_var;
        if (in->dead || in->op == VIR_loop || in->op == VIR_draw)
            continue;
        if (in->op == VIR_load || in->op == VIR_store) {
            if (in->access == VA_gather)
                l->needvec[in->b] = 1;
            const vir_ins *st = &k->ins[in->b];
            bool constant = st->op == VIR_const && st->imm * 16 == (int32_t)(st->imm * 16);
            if (in->op == VIR_load && in->access == VA_strided && !constant &&
                vir_mem_size((vir_mem)in->mem) >= 4)
                l->needstride[in->b] = 1;
            if (k->loops[in->region].vector && (in->add || in->access != VA_uniform))
                l->needvec[in->d] = 1;
            continue;
        }
        if ((in->op == VIR_var && !in->varying) || (in->op == VIR_set && !k->ins[in->a].varying))
            continue;
        if (lanes)
            l->needvec[in->a] = l->needvec[in->b] = l->needvec[in->c] = l->needvec[in->d] = 1;
    }
}

bool x64_lower(mir *m, const vir *k, tp_err *err)
{
    arena *a = m->a;
    m->L = m->avx512 ? k->lanes : k->lanes / 2;
    low l = { .m = m, .k = k, .err = err, .L = m->L, .copies = k->ways * (k->lanes / m->L) };
    l.map = arena_zalloc(a, sizeof *l.map * (size_t)k->n * (size_t)l.copies);
    l.vecmap = arena_zalloc(a, sizeof *l.vecmap * (size_t)k->n);
    l.needvec = arena_zalloc(a, (size_t)k->n);
    l.needstride = arena_zalloc(a, (size_t)k->n);
    l.strides = arena_zalloc(a, sizeof *l.strides * (size_t)k->n);
    l.red = arena_zalloc(a, sizeof *l.red * (size_t)(k->nreds + 1));
    l.drawn = arena_zalloc(a, sizeof *l.drawn * (size_t)k->n);
    find_needvec(&l);
    mir_add(m, (mi){ .kind = MI_label, .imm = mir_label(m) }); /* position 0: where constants come to life */
    lower_region(&l, 0, 0, 0);
    if (l.failed)
        return err_set(err, ERR_internal, "kernel '%s': an operation the x64 emitter does not know", k->name);
    return true;
}
