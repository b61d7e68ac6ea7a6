/* ptx.c - the PTX emitter. See ptx.h for how a kernel is laid out on the grid. */
#include "target/cuda/ptx.h"
#include "target/cuda/math.h"
#include "target/cuda/ptx_func.h"
#include "target/cuda/ptx_plan.h"
#include <math.h>
#include <stdio.h>

enum {
    VMAX = PTX_VEC,
    OWN = PTX_OWN,
    NCLS = 6,
    WARP = PTX_WARP,
    SCAN = 4 /* warps of iterations that a scan looks at */,
    HITS = 4 /* iterations whose loads are in flight together */
};
static const char cls_letter[NCLS] = { 'f', 'd', 'r', 'q', 'p', 'h' };
static const char *const cls_type[NCLS] = { "f32", "f64", "b32", "b64", "pred", "b16" };
enum { C_f, C_d, C_r, C_q, C_p, C_h };

typedef struct {
    char s[28];
} text; /* an operand as it is written */

typedef struct pw {
    ptx_unit *u;
    const vir *k;
    strbuf *o;
    text *reg;      /* [ref * width + lane]: where a value is              */
    const text *in; /* inputs of a fragment                                */
    text *red;      /* [(red * 4 + part) * OWN + which of the thread's]    */
    text *loopvar;  /* [loop * width + lane]                               */
    int width;      /* most lanes that are written at once                 */
    int *count;     /* [NCLS] registers so far, shared with fragments      */
    int *label;     /* labels so far, shared with fragments                */
    tp_err *err;
    const char *name;
    ptx_kernel *p;
    text tid, lane, zero_p;  /* thread number, lane of the warp, "this is the first thread of the row" */
    text me;                 /* thread number in its row                                  */
    int lanes, u_now, vloop; /* neighbours, the current one, the vector loop they belong to */
    int lane0, gap;          /* lanes of the steps before this one; elements from step to step */
    bool wide;               /* lanes are written                                         */
    const row_plan *plan;
    bool held;    /* this text keeps values of a loop for later ones */
    bool edge;    /* lanes have guards of their own: accesses are single ones */
    text *guard;  /* edge: of the lanes; else one of the step; NULL: none */
    text *shift;  /* by reduction: element 0 belongs to partial result 0 of which thread, "" for the first */
    size_t rooms; /* bytes in shared memory of joins, + 1; 0: none yet */
    bool per_thread;         /* inside code that differs between threads                      */
    bool touched;            /* memory was accessed since the last barrier                    */
    int ordered;             /* number of the vector loop that runs in order, 0: none */
    text ordered_first;      /* its first iteration                                   */
    size_t room;             /* bytes of shared memory so far                         */
    text shared;             /* its address                                           */
    text scan_on;            /* this lane's iteration of a scan stores; empty: outside */
    text *lifted;            /* by instruction: constants that are parameters; NULL: none */
    int npart;               /* P                                                     */
    int words_first;         /* of a fragment: the tables that were looked up last, + 1; 0: none */
    text words_at, words[8]; /* the index, and what was found */
} pw;

/* --- text ------------------------------------------------------------------------------------ */
static bool is_flt(int t) { return t == VT_f64 || t == VT_f32; }
static int cls_of(int t)
{
    return t == VT_f32 ? C_f : t == VT_f64 ? C_d : t == VT_i64 ? C_q : t == VT_i32 ? C_r : C_p;
}
static const char *num(int t)
{
    return t == VT_f64 ? "f64" : t == VT_f32 ? "f32" : t == VT_i64 ? "s64" : "s32";
}
static const char *bits(int t) { return t == VT_f64 || t == VT_i64 ? "b64" : t == VT_mask ? "pred" : "b32"; }

static text new_reg(pw *w, int cls)
{
    text t;
    snprintf(t.s, sizeof t.s, "%%%c%d", cls_letter[cls], w->count[cls]++);
    return t;
}
static text new_label(pw *w)
{
    text t;
    snprintf(t.s, sizeof t.s, "L%d", w->label[0]++);
    return t;
}
TP_PRINTF(2, 3) static void E(pw *w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    strbuf_addc(w->o, '\t');
    strbuf_addv(w->o, fmt, ap);
    strbuf_add(w->o, ";\n");
    va_end(ap);
}
static void put_label(pw *w, text l)
{
    strbuf_adds(w->o, l.s, ":\n", NULL);
    w->touched = true; /* what other ways here did is not known */
}

static text imm_float(int t, double v)
{
    text x;
    if (t == VT_f32) {
        float f = (float)v;
        uint32_t b;
        memcpy(&b, &f, 4);
        snprintf(x.s, sizeof x.s, "0f%08X", b);
    } else {
        uint64_t b;
        memcpy(&b, &v, 8);
        snprintf(x.s, sizeof x.s, "0d%016llX", (unsigned long long)b);
    }
    return x;
}
static text imm_int(int64_t v)
{
    text x;
    if (v == INT64_MIN)
        snprintf(x.s, sizeof x.s, "0x8000000000000000");
    else
        snprintf(x.s, sizeof x.s, "%lld", (long long)v);
    return x;
}

static text loopvar(pw *w, int loop)
{
    return w->loopvar[loop * w->width + (w->wide && loop == w->vloop ? w->lane0 + w->u_now : 0)];
}

static text *slot(pw *w, vir_ref r)
{
    if (w->held)
        r = w->plan->same[r];
    int at = w->k->ins[r].region, loop = w->k->loops[at].vector;
    bool mine = w->wide && (at == w->vloop || (loop && (w->held || loop == w->vloop)));
    return &w->reg[r * w->width + (mine ? w->lane0 + w->u_now : 0)];
}

/* A constant as a register: what takes no immediate operand. */
static text in_reg(pw *w, int t, text x)
{
    if (x.s[0] == '%')
        return x;
    text r = new_reg(w, cls_of(t));
    E(w, "mov.%s %s, %s", t == VT_mask ? "pred" : bits(t), r.s, x.s);
    return r;
}

static text val(pw *w, vir_ref r)
{
    const vir_ins *in = &w->k->ins[r];
    if (in->op == VIR_input)
        return w->in[in->imm];
    if (in->op == VIR_const && is_flt(in->type))
        return w->lifted && w->lifted[r].s[0] ? w->lifted[r] : imm_float(in->type, vir_const_f(in));
    if (in->op == VIR_const && in->type == VT_mask) {
        text i = new_reg(w, C_r), p = new_reg(w, C_p);
        E(w, "mov.b32 %s, %d", i.s, in->imm != 0);
        E(w, "setp.ne.s32 %s, %s, 0", p.s, i.s);
        return p;
    }
    if (in->op == VIR_const)
        return imm_int(in->imm);
    if (in->op == VIR_loopvar && in->type == VT_i64)
        return loopvar(w, (int)in->imm);
    return *slot(w, r);
}
static text val_reg(pw *w, vir_ref r) { return in_reg(w, w->k->ins[r].type, val(w, r)); }

/* --- pure operations -------------------------------------------------------------------------- */
static void frag(pw *w, const vir_frag *f, const text *in, text *out);
static text pure(pw *w, const vir_ins *in);

static text op1(pw *w, int cls, const char *op, text a)
{
    text d = new_reg(w, cls);
    E(w, "%s %s, %s", op, d.s, a.s);
    return d;
}
static text op2(pw *w, int cls, const char *op, text a, text b)
{
    text d = new_reg(w, cls);
    E(w, "%s %s, %s, %s", op, d.s, a.s, b.s);
    return d;
}
static text op3(pw *w, int cls, const char *op, text a, text b, text c)
{
    text d = new_reg(w, cls);
    E(w, "%s %s, %s, %s, %s", op, d.s, a.s, b.s, c.s);
    return d;
}
static text typed1(pw *w, const char *op, int t, text a)
{
    char name[40];
    snprintf(name, sizeof name, "%s.%s", op, num(t));
    return op1(w, cls_of(t), name, a);
}
static text typed2(pw *w, const char *op, int t, text a, text b)
{
    char name[40];
    snprintf(name, sizeof name, "%s.%s", op, num(t));
    return op2(w, cls_of(t), name, a, b);
}
static text test2(pw *w, const char *op, int t, text a, text b) /* a comparison */
{
    char name[40];
    snprintf(name, sizeof name, "setp.%s.%s", op, num(t));
    return op2(w, C_p, name, in_reg(w, t, a), b);
}
static text choose(pw *w, int t, text p, text a, text b) /* p ? a : b */
{
    if (t != VT_mask) {
        text d = new_reg(w, cls_of(t));
        E(w, "selp.%s %s, %s, %s, %s", is_flt(t) ? num(t) : bits(t), d.s, a.s, b.s, p.s);
        return d;
    }
    text x = op2(w, C_p, "and.pred", p, a), n = op1(w, C_p, "not.pred", p), y = op2(w, C_p, "and.pred", n, b);
    return op2(w, C_p, "or.pred", x, y);
}

/* a where it is smaller (greater) than b or where `nan` is NaN, else b: the zeros and NaN of vnum.h. */
static text extreme(pw *w, const char *cmp, int t, text a, text b, text nan)
{
    text q = new_reg(w, C_p), p = new_reg(w, C_p);
    nan = in_reg(w, t, nan), a = in_reg(w, t, a);
    E(w, "setp.nan.%s %s, %s, %s", num(t), q.s, nan.s, nan.s);
    E(w, "setp.%s.or.%s %s, %s, %s, %s", cmp, num(t), p.s, a.s, b.s, q.s);
    return choose(w, t, p, a, b);
}

static text float_op(pw *w, const vir_ins *in)
{
    int t = in->type;
    text a = val(w, in->a), b = in->b ? val(w, in->b) : a;
    char name[32];
    switch (in->op) {
    case VIR_add: return typed2(w, "add.rn", t, a, b);
    case VIR_sub: return typed2(w, "sub.rn", t, a, b);
    case VIR_mul: return typed2(w, "mul.rn", t, a, b);
    case VIR_div: return typed2(w, "div.rn", t, a, b);
    case VIR_min: return extreme(w, "lt", t, a, b, a);
    case VIR_max: return extreme(w, "gt", t, a, b, a);
    case VIR_fmin: return extreme(w, "lt", t, a, b, b);
    case VIR_fmax: return extreme(w, "gt", t, a, b, b);
    case VIR_neg: return typed1(w, "neg", t, a);
    case VIR_abs: return typed1(w, "abs", t, a);
    case VIR_sqrt: return typed1(w, "sqrt.rn", t, a);
    case VIR_copysign: return typed2(w, "copysign", t, b, a); /* PTX: the sign of the first */
    case VIR_fma:
        snprintf(name, sizeof name, "fma.rn.%s", num(t));
        return op3(w, cls_of(t), name, a, b, val(w, in->c));
    case VIR_floor:
    case VIR_ceil:
    case VIR_trunc:
    case VIR_round:
        snprintf(name, sizeof name, "cvt.r%ci.%s.%s",
                 in->op == VIR_floor   ? 'm'
                 : in->op == VIR_ceil  ? 'p'
                 : in->op == VIR_trunc ? 'z'
                                       : 'n',
                 num(t), num(t));
        return op1(w, cls_of(t), name, in_reg(w, t, a));
    case VIR_scale2: { /* two factors: 2**b need not be a number */
        bool d = t == VT_f64;
        int c = d ? C_q : C_r;
        text i = op1(w, c, d ? "cvt.rzi.s64.f64" : "cvt.rzi.s32.f32", in_reg(w, t, b)), one = imm_int(1);
        text h = op2(w, c, d ? "shr.s64" : "shr.s32", i, one), l = op2(w, c, d ? "sub.s64" : "sub.s32", i, h);
        text bias = imm_int(d ? 1023 : 127), by = imm_int(d ? 52 : 23), f[2] = { h, l };
        for (int j = 0; j < 2; j++) {
            f[j] = op2(w, c, d ? "add.s64" : "add.s32", f[j], bias);
            f[j] = op2(w, c, d ? "shl.b64" : "shl.b32", f[j], by);
            f[j] = op1(w, cls_of(t), d ? "mov.b64" : "mov.b32", f[j]);
            a = typed2(w, "mul.rn", t, a, f[j]);
        }
        return a;
    }
    default: assert(!"float operation"); return a;
    }
}

/* Division and remainder: a divisor of 0 or -1 is set aside, as the machine leaves those open. */
static text divide(pw *w, const vir_ins *in)
{
    int t = in->type;
    text a = val_reg(w, in->a), b = val(w, in->b), zero = imm_int(0), one = imm_int(1);
    bool known = w->k->ins[in->b].op == VIR_const, mod = in->op == VIR_modt || in->op == VIR_modf;
    int64_t c = w->k->ins[in->b].imm;
    bool floor = in->op == VIR_divf || in->op == VIR_modf;
    if (known && c == 0)
        return mod ? a : in_reg(w, t, zero);
    if (known && c == -1)
        return mod ? in_reg(w, t, zero) : typed1(w, "neg", t, a);
    if (known && floor && c > 0 && !(c & (c - 1))) { /* a power of two */
        char op[16];
        if (mod) {
            snprintf(op, sizeof op, "and.%s", bits(t));
            return op2(w, cls_of(t), op, a, imm_int(c - 1));
        }
        return typed2(w, "shr", t, a, imm_int(__builtin_ctzll((uint64_t)c)));
    }
    text is0 = { "" }, is1 = { "" }, safe = b;
    if (!known) {
        b = in_reg(w, t, b);
        is0 = test2(w, "eq", t, b, zero), is1 = test2(w, "eq", t, b, imm_int(-1));
        text odd = op2(w, C_p, "or.pred", is0, is1);
        safe = choose(w, t, odd, one, b);
    }
    text q = typed2(w, "div", t, a, safe), r;
    {
        text m = typed2(w, "mul.lo", t, q, safe);
        r = typed2(w, "sub", t, a, m);
    }
    if (floor) { /* one less where signs differ and something is left */
        char op[16];
        snprintf(op, sizeof op, "xor.%s", bits(t));
        text x = op2(w, cls_of(t), op, r, safe), neg = test2(w, "lt", t, x, zero),
             some = test2(w, "ne", t, r, zero);
        text fix = op2(w, C_p, "and.pred", neg, some);
        if (mod)
            r = choose(w, t, fix, typed2(w, "add", t, r, safe), r);
        else
            q = choose(w, t, fix, typed2(w, "sub", t, q, one), q);
    }
    if (known)
        return mod ? r : q;
    if (mod)
        return choose(w, t, is0, a, choose(w, t, is1, zero, r));
    return choose(w, t, is0, zero, choose(w, t, is1, typed1(w, "neg", t, a), q));
}

static text shift(pw *w, const vir_ins *in)
{
    int t = in->type;
    text a = val_reg(w, in->a), b = val(w, in->b);
    const char *op = in->op == VIR_shl ? "shl.b" : in->op == VIR_shr ? "shr.u" : "shr.s";
    char name[16];
    if (t == VT_i64) { /* counts are 32-bit and clamp; so does a negative one, taken as unsigned */
        b = op2(w, C_q, "min.u64", in_reg(w, t, b), imm_int(64));
        b = op1(w, C_r, "cvt.u32.u64", b);
    } else
        b = in_reg(w, t, b);
    snprintf(name, sizeof name, "%s%d", op, t == VT_i64 ? 64 : 32);
    return op2(w, cls_of(t), name, a, b);
}

static text int_op(pw *w, const vir_ins *in)
{
    int t = in->type;
    char name[16];
    if (in->op == VIR_divt || in->op == VIR_divf || in->op == VIR_modt || in->op == VIR_modf)
        return divide(w, in);
    if (in->op == VIR_shl || in->op == VIR_shr || in->op == VIR_sra)
        return shift(w, in);
    text a = val_reg(w, in->a), b = in->b ? val(w, in->b) : a;
    switch (in->op) {
    case VIR_add: return typed2(w, "add", t, a, b);
    case VIR_sub: return typed2(w, "sub", t, a, b);
    case VIR_mul: return typed2(w, "mul.lo", t, a, b);
    case VIR_min: return typed2(w, "min", t, a, b);
    case VIR_max: return typed2(w, "max", t, a, b);
    case VIR_neg: return typed1(w, "neg", t, a);
    case VIR_abs: {
        text n = typed1(w, "neg", t, a);
        return choose(w, t, test2(w, "lt", t, a, imm_int(0)), n, a);
    }
    case VIR_mulhu: return op2(w, C_r, "mul.hi.u32", a, b);
    default: break;
    }
    snprintf(name, sizeof name, "%s.%s",
             in->op == VIR_and   ? "and"
             : in->op == VIR_or  ? "or"
             : in->op == VIR_xor ? "xor"
                                 : "not",
             bits(t));
    return in->op == VIR_not ? op1(w, cls_of(t), name, a) : op2(w, cls_of(t), name, a, in_reg(w, t, b));
}

static text convert(pw *w, int to, int from, text a)
{
    char name[32];
    a = in_reg(w, from, a);
    if (from == VT_mask) {
        text one = is_flt(to) ? imm_float(to, 1) : imm_int(1),
             zero = is_flt(to) ? imm_float(to, 0) : imm_int(0);
        return choose(w, to, a, one, zero);
    }
    if (is_flt(from) &&
        !is_flt(to)) { /* the machine saturates; what does not fit is the smallest integer here */
        snprintf(name, sizeof name, "cvt.rzi.%s.%s", num(to), num(from));
        text x = op1(w, cls_of(to), name, a);
        text big = test2(w, "geu", from, a, imm_float(from, to == VT_i64 ? 0x1p63 : 0x1p31));
        return choose(w, to, big, imm_int(to == VT_i64 ? INT64_MIN : INT32_MIN), x);
    }
    snprintf(name, sizeof name, "cvt.%s%s.%s",
             is_flt(to) && !(to == VT_f64 && from == VT_f32) && !(to == VT_f64 && from == VT_i32) ? "rn."
                                                                                                  : "",
             num(to), num(from));
    if (to == VT_f64 && from == VT_i32)
        snprintf(name, sizeof name, "cvt.rn.f64.s32");
    return op1(w, cls_of(to), name, a);
}

static text widen16(pw *w, vir_mem m, text h)
{
    if (m == VM_f16)
        return op1(w, C_f, "cvt.f32.f16", h);
    text r = new_reg(w, C_r);
    E(w, "cvt.u32.u16 %s, %s", r.s, h.s);
    return op1(w, C_f, "mov.b32", op2(w, C_r, "shl.b32", r, imm_int(16)));
}
static text narrow16(pw *w, vir_mem m, text f)
{
    return op1(w, C_h, m == VM_f16 ? "cvt.rn.f16.f32" : "cvt.rn.bf16.f32", in_reg(w, VT_f32, f));
}

static text narrow(pw *w, const vir_ins *in)
{
    text a = val_reg(w, in->a);
    vir_mem m = (vir_mem)in->mem;
    if (m == VM_f16 || m == VM_bf16)
        return widen16(w, m, narrow16(w, m, a));
    if (m == VM_u8)
        return op2(w, C_r, "and.b32", a, imm_int(255));
    text n = imm_int(m == VM_i16 ? 16 : 24);
    return op2(w, C_r, "shr.s32", op2(w, C_r, "shl.b32", a, n), n);
}

/* Tables that are looked up together at one index: an entry has its words of all of them, 8 where they are more than one. */
static const struct {
    int first, n;
} tables[] = { { VIR_TABLE_exp, 1 }, { VIR_TABLE_erf, 6 }, { VIR_TABLE_tanh, 8 } };

/* Entry %15 of `at` of those tables: a word, or eight. */
static void entry(pw *w, int first, int n, text at, text *word)
{
    char key[32];
    snprintf(key, sizeof key, "tp_table%d", first);
    if (!map_get(&w->u->seen, key)) {
        strbuf_addf(&w->u->head, ".global .align 16 .b32 %s[%d] = {", key, n == 1 ? 16 : 128);
        for (int i = 0; i < 16; i++)
            for (int t = 0; t < (n == 1 ? 1 : 8); t++)
                strbuf_addf(&w->u->head, "%s%u", i + t ? ", " : "",
                            t < n ? (uint32_t)vir_tables[first + t][i] : 0);
        strbuf_add(&w->u->head, "};\n");
        map_put(&w->u->seen, key, (void *)1);
    }
    text i = op2(w, C_r, "and.b32", at, imm_int(15)), q = new_reg(w, C_q), base = new_reg(w, C_q);
    E(w, "mul.wide.u32 %s, %s, %d", q.s, i.s, n == 1 ? 4 : 32);
    E(w, "mov.u64 %s, %s", base.s, key);
    q = op2(w, C_q, "add.s64", q, base);
    for (int t = 0; t < (n == 1 ? 1 : 8); t++)
        word[t] = new_reg(w, C_r);
    if (n == 1)
        E(w, "ld.global.nc.b32 %s, [%s]", word[0].s, q.s);
    for (int t = 0; n > 1 && t < 8; t += 4)
        E(w, "ld.global.nc.v4.b32 {%s, %s, %s, %s}, [%s+%d]", word[t].s, word[t + 1].s, word[t + 2].s,
          word[t + 3].s, q.s, 4 * t);
}

static text table(pw *w, const vir_ins *in)
{
    text at = val_reg(w, in->a);
    size_t f = 0;
    while (in->imm >= tables[f].first + tables[f].n)
        f++;
    if (!w->words_first || w->words_first != tables[f].first + 1 || strcmp(w->words_at.s, at.s)) {
        entry(w, tables[f].first, tables[f].n, at, w->words);
        w->words_first = tables[f].first + 1;
        w->words_at = at;
    }
    return w->words[in->imm - tables[f].first];
}

/* tp_NAME_f64 from its fragment. */
static bool func_from_vir(ptx_unit *u, const char *name)
{
    char op[32];
    size_t n = strlen(name);
    if (n < 8 || n > sizeof op || strcmp(name + n - 4, "_f64"))
        return false;
    snprintf(op, sizeof op, "%.*s", (int)n - 7, name + 3);
    const vir_frag *f = cuda_math(op);
    int count[NCLS] = { 0 }, label = 0;
    strbuf body = { 0 };
    text in[2] = { { "x" }, { "y" } }, out[4];
    pw w = { .u = u, .k = f ? f->k : NULL, .o = &body, .count = count, .label = &label, .lanes = 1 };
    if (!f)
        return false;
    frag(&w, f, in, out);
    strbuf regs = { 0 };
    for (int c = 0; c < NCLS; c++)
        if (count[c])
            strbuf_addf(&regs, "\t.reg .%s %%%c<%d>;\n", cls_type[c], cls_letter[c], count[c]);
    strbuf_add(&regs, strbuf_str(&body));
    strbuf_addf(&regs, "\tmov.f64 r, %s;\n", out[0].s);
    ptx_func_add(&u->head, name, f->nin, strbuf_str(&regs));
    strbuf_free(&regs);
    strbuf_free(&body);
    map_put(&u->seen, name, (void *)1);
    return true;
}

bool ptx_function(ptx_unit *u, const char *name)
{
    return ptx_func_need(&u->seen, &u->head, name) || func_from_vir(u, name);
}

/* A function of the C library that has a body here. */
static text call(pw *w, const vir_ins *in)
{
    int t = in->type;
    const vir_call_row *row = &vir_calls[in->imm];
    text a = val_reg(w, in->a), b = in->b ? val_reg(w, in->b) : a, r = new_reg(w, cls_of(t)), skip = { "" };
    char name[48];
    snprintf(name, sizeof name, "tp_%s_%s", row->name, num(t));
    if (!ptx_function(w->u, name)) {
        err_set(w->err, ERR_notimpl, "'%s' of %s has no CUDA kernel", row->name, num(t));
        return r;
    }
    if (in->c) {
        skip = new_label(w);
        text m = val_reg(w, in->c);
        E(w, "mov.%s %s, %s", bits(t), r.s, val(w, in->d).s);
        E(w, "@!%s bra %s", m.s, skip.s);
    }
    const char *ty = num(t);
    strbuf_add(w->o, "\t{\n");
    E(w, ".param .%s p0", ty);
    if (in->b)
        E(w, ".param .%s p1", ty);
    E(w, ".param .%s q", ty);
    E(w, "st.param.%s [p0], %s", ty, a.s);
    if (in->b)
        E(w, "st.param.%s [p1], %s", ty, b.s);
    E(w, in->b ? "call (q), %s, (p0, p1)" : "call (q), %s, (p0)", name);
    E(w, "ld.param.%s %s, [q]", ty, r.s);
    strbuf_add(w->o, "\t}\n");
    if (in->c) {
        bool was = w->touched;
        put_label(w, skip);
        w->touched = was;
    }
    return r;
}

static void philox(pw *w, text seed, text block, text c[4])
{
    text k0 = new_reg(w, C_r), k1 = new_reg(w, C_r), zero = imm_int(0), m0 = imm_int(0xD2511F53),
         m1 = imm_int(0xCD9E8D57);
    c[0] = new_reg(w, C_r), c[1] = new_reg(w, C_r), c[2] = c[3] = in_reg(w, VT_i32, zero);
    E(w, "mov.b64 {%s, %s}, %s", k0.s, k1.s, seed.s);
    E(w, "mov.b64 {%s, %s}, %s", c[0].s, c[1].s, block.s);
    for (int r = 0; r < 10; r++) {
        text ph = op2(w, C_r, "mul.hi.u32", c[0], m0), pl = op2(w, C_r, "mul.lo.u32", c[0], m0);
        text qh = op2(w, C_r, "mul.hi.u32", c[2], m1), ql = op2(w, C_r, "mul.lo.u32", c[2], m1);
        text x = op2(w, C_r, "xor.b32", op2(w, C_r, "xor.b32", qh, c[1]), k0);
        text y = op2(w, C_r, "xor.b32", op2(w, C_r, "xor.b32", ph, c[3]), k1);
        c[1] = ql, c[3] = pl, c[0] = x, c[2] = y;
        if (r < 9)
            k0 = op2(w, C_r, "add.u32", k0, imm_int(0x9E3779B9)),
            k1 = op2(w, C_r, "add.u32", k1, imm_int(0xBB67AE85));
    }
}

static text draw(pw *w, const vir_ins *in)
{
    int t = in->type, loop = w->k->loops[in->region].vector;
    bool wide = t == VT_i64 || t == VT_f64;
    text i = loopvar(w, loop), c[4], pair[2];
    text at = op2(w, C_q, "add.s64", op2(w, C_q, "shr.u64", i, imm_int(wide ? 1 : 2)), val(w, in->b));
    text low = op1(w, C_r, "cvt.u32.u64", i), odd = new_reg(w, C_p), late = new_reg(w, C_p);
    philox(w, in_reg(w, VT_i64, val(w, in->a)), at, c);
    text b0 = op2(w, C_r, "and.b32", low, imm_int(1)), b1 = op2(w, C_r, "and.b32", low, imm_int(2));
    E(w, "setp.ne.s32 %s, %s, 0", odd.s, b0.s);
    E(w, "setp.ne.s32 %s, %s, 0", late.s, b1.s);
    for (int j = 0; j < 2; j++)
        if (wide) {
            pair[j] = new_reg(w, C_q);
            E(w, "mov.b64 %s, {%s, %s}", pair[j].s, c[2 * j + 1].s, c[2 * j].s);
        } else
            pair[j] = choose(w, VT_i32, late, c[2 + j], c[j]);
    if (is_flt(t)) {
        text out[4];
        frag(w, vir_frag_normal((vir_type)t), pair, out);
        pair[0] = out[0], pair[1] = out[1];
    }
    return choose(w, t, odd, pair[1], pair[0]);
}

static text pure(pw *w, const vir_ins *in)
{
    static const char *const cmps[] = { "eq", "ne", "lt", "le", "gt", "ge" };
    int t = in->type, ta = w->k->ins[in->a].type;
    if (in->op >= VIR_eq && in->op <= VIR_ge) {
        const char *c = in->op == VIR_ne && is_flt(ta) ? "neu" : cmps[in->op - VIR_eq];
        text a = val(w, in->a);
        return test2(w, c, ta, a, val(w, in->b));
    }
    if (vir_is_math((vir_op)in->op)) {
        text args[2], out[4];
        args[0] = val(w, in->a);
        if (in->b)
            args[1] = val(w, in->b);
        frag(w, vir_frag_math((vir_op)in->op, (vir_type)t), args, out);
        return out[0];
    }
    switch (in->op) {
    case VIR_loopvar: return op1(w, C_r, "cvt.u32.u64", loopvar(w, (int)in->imm));
    case VIR_ptr: {
        text b = val(w, in->b), a = val(w, in->a);
        return op3(w, C_q, "mad.lo.s64", in_reg(w, VT_i64, b), imm_int(in->imm), a);
    }
    case VIR_select: {
        text p = val(w, in->a), a = val(w, in->b), b = val(w, in->c);
        return choose(w, t, p, a, b);
    }
    case VIR_cvt: return convert(w, t, ta, val(w, in->a));
    case VIR_bitcast:
        return op1(w, cls_of(t), t == VT_f64 || t == VT_i64 ? "mov.b64" : "mov.b32", val(w, in->a));
    case VIR_narrow: return narrow(w, in);
    case VIR_table: return table(w, in);
    case VIR_call: return call(w, in);
    case VIR_draw: return draw(w, in);
    default: break;
    }
    return is_flt(t) ? float_op(w, in) : int_op(w, in);
}

static void frag(pw *w, const vir_frag *f, const text *in, text *out)
{
    text own[8], *reg = mem_alloc(sizeof(text) * VMAX * (size_t)f->k->n);
    pw s = *w;
    for (int i = 0; i < f->nin; i++)
        own[i] = in[i];
    for (int i = 1; i < f->k->n; i++) /* inputs of operations that take no immediates */
        if (f->k->ins[i].op == VIR_input && !f->k->ins[i].dead)
            own[f->k->ins[i].imm] = in_reg(w, f->k->ins[i].type, own[f->k->ins[i].imm]);
    s.k = f->k, s.reg = reg, s.in = own, s.lanes = 1, s.u_now = 0, s.lifted = NULL;
    s.wide = s.held = false, s.width = VMAX, s.words_first = 0;
    for (vir_ref r = f->k->loops[0].first; r; r = f->k->ins[r].next) {
        const vir_ins *i = &f->k->ins[r];
        if (!i->dead && i->op != VIR_const && i->op != VIR_input)
            reg[r * VMAX] = pure(&s, i);
    }
    for (int i = 0; i < f->nout; i++)
        out[i] = val(&s, f->out[i]);
    w->touched = s.touched;
    free(reg);
}

/* --- memory ----------------------------------------------------------------------------------- */
static void barrier(pw *w)
{
    if (w->p->scan || w->plan->warp) /* a block is a warp, or a row is a warp's */
        E(w, "bar.warp.sync -1");
    else if (w->p->grid != PTX_threads && w->p->grid != PTX_flat && w->p->grid != PTX_tiles)
        E(w, "bar.sync 0");
    w->touched = false;
}

/* The register of an access; its displacement is in->imm. */
static text address(pw *w, const vir_ins *in)
{
    int loop = w->k->loops[in->region].vector;
    text q = val(w, in->a), size = imm_int((int64_t)vir_mem_size((vir_mem)in->mem));
    text i = loop ? loopvar(w, loop) : q;
    if (in->access == VA_unit)
        q = op3(w, C_q, "mad.lo.s64", i, size, q);
    else if (in->access == VA_strided)
        q = op3(w, C_q, "mad.lo.s64", op2(w, C_q, "mul.lo.s64", i, val(w, in->b)), size, q);
    else if (in->access == VA_spread)
        q = op3(w, C_q, "mad.lo.s64", op2(w, C_q, "shr.s64", i, imm_int(w->k->ins[in->b].imm == 4 ? 2 : 1)),
                size, q);
    else if (in->access == VA_gather) {
        int t = w->k->ins[in->b].type;
        text x = val_reg(w, in->b);
        q = op3(w, C_q, "mad.lo.s64", t == VT_i32 ? op1(w, C_q, "cvt.s64.s32", x) : x, size, q);
    }
    return q;
}

static const struct {
    const char *name;
    int cls;
} mem_form[] = { [VM_f64] = { "f64", C_d },  [VM_f32] = { "f32", C_f }, [VM_f16] = { "b16", C_h },
                 [VM_bf16] = { "b16", C_h }, [VM_i64] = { "s64", C_q }, [VM_i32] = { "s32", C_r },
                 [VM_i16] = { "s16", C_r },  [VM_i8] = { "s8", C_r },   [VM_u8] = { "u8", C_r },
                 [VM_bool] = { "u8", C_r } };

/* From what memory holds to the compute type, and back. */
static text from_mem(pw *w, vir_mem m, text x)
{
    if (m == VM_f16 || m == VM_bf16)
        return widen16(w, m, x);
    return m == VM_bool ? test2(w, "ne", VT_i32, x, imm_int(0)) : x;
}
static text to_mem(pw *w, vir_mem m, text x)
{
    if (m == VM_f16 || m == VM_bf16)
        return narrow16(w, m, x);
    if (m == VM_bool)
        return choose(w, VT_i32, x, imm_int(1), imm_int(0));
    return in_reg(w, vir_mem_type(m), x);
}

/* The predicate of the lane, "" where it needs none. */
static text guard_now(pw *w)
{
    if (!w->guard)
        return (text){ "" };
    return w->guard[w->edge ? w->u_now : 0];
}

/* What an access that does not happen gives. */
static text zero_reg(pw *w, vir_mem m)
{
    text x = new_reg(w, mem_form[m].cls);
    if (mem_form[m].cls == C_f || mem_form[m].cls == C_d)
        E(w, "mov.%s %s, %s", mem_form[m].name, x.s, imm_float(m == VM_f64 ? VT_f64 : VT_f32, 0).s);
    else
        E(w, "mov.%s %s, 0", cls_type[mem_form[m].cls], x.s);
    return x;
}

static text load(pw *w, const vir_ins *in)
{
    vir_mem m = (vir_mem)in->mem;
    text at = address(w, in), g = guard_now(w),
         x = in->c || g.s[0] ? zero_reg(w, m) : new_reg(w, mem_form[m].cls);
    w->touched = true;
    if (in->c || g.s[0]) {
        text c = in->c ? val_reg(w, in->c) : g;
        if (in->c && g.s[0])
            c = op2(w, C_p, "and.pred", c, g);
        E(w, "@%s ld.global.%s %s, [%s+%lld]", c.s, mem_form[m].name, x.s, at.s, (long long)in->imm);
    } else
        E(w, "ld.global.%s %s, [%s+%lld]", mem_form[m].name, x.s, at.s, (long long)in->imm);
    return from_mem(w, m, x);
}

static bool distinct(const vir_ins *in) { return in->access == VA_unit || in->access == VA_strided; }

/* v to memory, or added to what is there. */
static void put(pw *w, const vir_ins *in, const char *guard, text at, text v)
{
    vir_mem m = (vir_mem)in->mem;
    int t = vir_mem_type(m);
    if (in->add) {
        text old = new_reg(w, mem_form[m].cls);
        E(w, "mov.%s %s, %s", bits(t), old.s, is_flt(t) ? imm_float(t, 0).s : "0");
        E(w, "%sld.global.%s %s, [%s+%lld]", guard, mem_form[m].name, old.s, at.s, (long long)in->imm);
        v = typed2(w, is_flt(t) ? "add.rn" : "add", t, old, v);
    }
    v = to_mem(w, m, v);
    E(w, "%sst.global.%s [%s+%lld], %s", guard, mem_form[m].name, at.s, (long long)in->imm, v.s);
}

/* Each lane has an iteration of a scan: those that go to one place follow in their order, the others go at once. */
static void store_in_order(pw *w, const vir_ins *in)
{
    text on = w->scan_on, at = address(w, in), v = in_reg(w, vir_mem_type((vir_mem)in->mem), val(w, in->d));
    text key = choose(w, VT_i64, on, at, imm_int(0)), peers = new_reg(w, C_r), round = new_reg(w, C_r),
         more = new_label(w), any = new_reg(w, C_p);
    char guard[40];
    E(w, "match.any.sync.b64 %s, %s, -1", peers.s, key.s);
    text below = op2(w, C_r, "shl.b32", in_reg(w, VT_i32, imm_int(-1)), w->lane);
    text rank = op1(w, C_r, "popc.b32",
                    op2(w, C_r, "and.b32", peers, op1(w, C_r, "not.b32", below))); /* of this place's lanes */
    E(w, "mov.b32 %s, 0", round.s);
    put_label(w, more);
    text mine = op2(w, C_p, "and.pred", test2(w, "eq", VT_i32, rank, round), on);
    snprintf(guard, sizeof guard, "@%s ", mine.s);
    put(w, in, guard, at, v);
    barrier(w);
    E(w, "add.s32 %s, %s, 1", round.s, round.s);
    text left = op2(w, C_p, "and.pred", test2(w, "ge", VT_i32, rank, round), on);
    E(w, "vote.sync.any.pred %s, %s, -1", any.s, left.s);
    E(w, "@%s bra %s", any.s, more.s);
}

static void store(pw *w, const vir_ins *in)
{
    int t = vir_mem_type((vir_mem)in->mem);
    text on = { "" };
    char guard[40] = "";
    if (w->scan_on.s[0]) {
        store_in_order(w, in);
        return;
    }
    if (in->c)
        on = val_reg(w, in->c);
    text g = guard_now(w);
    if (g.s[0])
        on = in->c ? op2(w, C_p, "and.pred", on, g) : g;
    if (!w->per_thread) { /* thread 0 stores, after everybody has loaded */
        if (w->touched)
            barrier(w);
        on = in->c ? op2(w, C_p, "and.pred", on, w->zero_p) : w->zero_p;
    }
    if (on.s[0])
        snprintf(guard, sizeof guard, "@%s ", on.s);
    text v = val(w, in->d), at = address(w, in);
    v = in_reg(w, t, v);
    if (in->add && w->per_thread && !distinct(in) && (!is_flt(t) || w->u->opts.atomics))
        E(w, "%sred.global.add.%s [%s+%lld], %s", guard, t == VT_i64 ? "u64" : num(t), at.s,
          (long long)in->imm, v.s);
    else
        put(w, in, guard, at, v);
    if (!w->per_thread && w->k->bufs[ptx_buffer_of(w->k, in)].flags == VIR_INOUT)
        barrier(w);
}

/* How many elements of a type move in one access when a thread takes `lanes`. */
static int group(vir_mem m, int lanes) { return MIN(MIN(lanes, 4), 16 / (int)vir_mem_size(m)); }

static void list(const text *x, int n, char *out, size_t size)
{
    size_t at = 0;
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? ", " : "", x[i].s);
}

/* What a wide access of the step starts with, "@p ". c: its own condition, or 0. */
static void wide_guard(pw *w, vir_ref c, char *out, size_t size)
{
    text g = guard_now(w);
    if (c)
        g = g.s[0] ? op2(w, C_p, "and.pred", val_reg(w, c), g) : val_reg(w, c);
    snprintf(out, size, g.s[0] ? "@%s " : "%s", g.s);
}

/* `at` is the address of the first element of the loop's first step; `off` bytes from there. */
/* Two neighbours of bf16 in one register are the upper halves of two floats. */
static void halves(pw *w, vir_ref r, const text *part)
{
    for (w->u_now = 0; w->u_now < w->lanes; w->u_now++) {
        text x = w->u_now & 1 ? op2(w, C_r, "and.b32", part[w->u_now / 2], imm_int(-65536))
                              : op2(w, C_r, "shl.b32", part[w->u_now / 2], imm_int(16));
        *slot(w, r) = op1(w, C_f, "mov.b32", x);
    }
    w->u_now = 0;
    w->touched = true;
}

static void load_wide(pw *w, vir_ref r, text at, int64_t off)
{
    const vir_ins *in = &w->k->ins[r];
    vir_mem m = (vir_mem)in->mem;
    int size = (int)vir_mem_size(m), n = group(m, w->lanes);
    text x[VMAX], part[4];
    char names[160], on[40];
    off += in->imm;
    wide_guard(w, in->c, on, sizeof on);
    if (size == 2 && w->lanes == 8) {
        for (int i = 0; i < 4; i++)
            part[i] = in->c ? zero_reg(w, VM_i32) : new_reg(w, C_r);
        list(part, 4, names, sizeof names);
        E(w, "%sld.global.v4.b32 {%s}, [%s+%lld]", on, names, at.s, (long long)off);
        if (m == VM_bf16) {
            halves(w, r, part);
            return;
        }
        for (int i = 0; i < 4; i++) {
            x[2 * i] = new_reg(w, C_h), x[2 * i + 1] = new_reg(w, C_h);
            E(w, "mov.b32 {%s, %s}, %s", x[2 * i].s, x[2 * i + 1].s, part[i].s);
        }
        if (mem_form[m].cls == C_r)
            for (int i = 0; i < 8; i++)
                x[i] = op1(w, C_r, "cvt.s32.s16", x[i]);
    } else
        for (int b = 0; b < w->lanes; b += n) {
            for (int i = 0; i < n; i++)
                x[b + i] = in->c ? zero_reg(w, m) : new_reg(w, mem_form[m].cls);
            list(x + b, n, names, sizeof names);
            if (n == 1)
                E(w, "%sld.global.%s %s, [%s+%lld]", on, mem_form[m].name, names, at.s,
                  (long long)off + b * size);
            else
                E(w, "%sld.global.v%d.%s {%s}, [%s+%lld]", on, n, mem_form[m].name, names, at.s,
                  (long long)off + b * size);
        }
    for (w->u_now = 0; w->u_now < w->lanes; w->u_now++)
        *slot(w, r) = from_mem(w, m, x[w->u_now]);
    w->u_now = 0;
    w->touched = true;
}

/* What a store of 16-bit floats rounds: where its value was rounded to the same type just before, what it was then. */
static vir_ref unrounded(const pw *w, const vir_ins *st)
{
    const vir_ins *v = &w->k->ins[st->d];
    bool here = v->op == VIR_narrow && v->mem == st->mem && v->region == st->region &&
                !(w->held && (w->plan->same[st->d] != st->d || w->plan->skip[st->d]));
    return here ? v->a : st->d;
}

static void store_wide(pw *w, vir_ref r, text at, int64_t off)
{
    const vir_ins *in = &w->k->ins[r];
    vir_mem m = (vir_mem)in->mem;
    int size = (int)vir_mem_size(m), n = group(m, w->lanes);
    text x[VMAX], part[4];
    char names[160], on[40];
    off += in->imm;
    wide_guard(w, in->c, on, sizeof on);
    bool pairs = (m == VM_f16 || m == VM_bf16) && w->lanes == 8;
    for (w->u_now = 0; w->u_now < w->lanes; w->u_now++)
        x[w->u_now] = pairs ? in_reg(w, VT_f32, val(w, unrounded(w, in))) : to_mem(w, m, val(w, in->d));
    w->u_now = 0;
    for (int i = 0; i < 4 && pairs; i++) /* the first operand becomes the upper half */
        part[i] = op2(w, C_r, m == VM_f16 ? "cvt.rn.f16x2.f32" : "cvt.rn.bf16x2.f32", x[2 * i + 1], x[2 * i]);
    if (size == 2 && w->lanes == 8) {
        for (int i = 0; i < 8 && mem_form[m].cls == C_r; i++)
            x[i] = op1(w, C_h, "cvt.u16.u32", x[i]);
        for (int i = 0; i < 4 && !pairs; i++) {
            part[i] = new_reg(w, C_r);
            E(w, "mov.b32 %s, {%s, %s}", part[i].s, x[2 * i].s, x[2 * i + 1].s);
        }
        list(part, 4, names, sizeof names);
        E(w, "%sst.global.v4.b32 [%s+%lld], {%s}", on, at.s, (long long)off, names);
        return;
    }
    for (int b = 0; b < w->lanes; b += n) {
        list(x + b, n, names, sizeof names);
        if (n == 1)
            E(w, "%sst.global.%s [%s+%lld], %s", on, mem_form[m].name, at.s, (long long)off + b * size,
              names);
        else
            E(w, "%sst.global.v%d.%s [%s+%lld], {%s}", on, n, mem_form[m].name, at.s,
              (long long)off + b * size, names);
    }
}

/* --- reductions ------------------------------------------------------------------------------- */
/* Where a part of the reduction is: of the partial result that the current lane belongs to. */
static text *red_at(pw *w, int n, int part)
{
    return &w->red[(n * 4 + part) * OWN +
                   (w->wide && w->k->reds[n].partials ? (w->lane0 + w->u_now) % w->plan->own : 0)];
}

static void red_start(pw *w, int n)
{
    const vir_red_info *r = &w->k->reds[n];
    arena a = { 0 };
    vir *tmp = vir_make(&a, "identity");
    for (int p = 0; p < vir_red_parts(r->kind); p++) {
        int t = vir_red_part_type(r, p);
        pw id = *w;
        id.k = tmp, id.lanes = 1, id.wide = id.held = false;
        text x = val(&id, vir_red_identity(tmp, r, p)), *to = red_at(w, n, p);
        for (int o = 0; o < (r->partials ? w->plan->own : 1); o++) {
            if (!to[o].s[0])
                to[o] = new_reg(w, cls_of(t));
            E(w, "mov.%s %s, %s", bits(t), to[o].s, x.s);
        }
    }
    arena_free(&a);
}

static void red_set(pw *w, int n, const text *out)
{
    const vir_red_info *r = &w->k->reds[n];
    char on[40];
    wide_guard(w, 0, on, sizeof on);
    for (int p = 0; p < vir_red_parts(r->kind); p++)
        E(w, "%smov.%s %s, %s", on, bits(vir_red_part_type(r, p)), red_at(w, n, p)->s, out[p].s);
}

static void red_step(pw *w, const vir_ins *in)
{
    int n = (int)in->imm;
    const vir_red_info *r = &w->k->reds[n];
    int np = vir_red_parts(r->kind);
    text args[6], out[4], skip = { "" };
    for (int p = 0; p < np; p++)
        args[p] = *red_at(w, n, p);
    args[np] = val(w, in->a);
    if (in->b)
        args[np + 1] = val(w, in->b);
    if (r->partials &&
        w->ordered) { /* every thread is here: only the one that holds this partial result steps */
        text i = w->loopvar[w->ordered * w->width], d = op2(w, C_q, "sub.s64", i, w->ordered_first),
             q = new_reg(w, C_p);
        text j = op2(w, C_r, "and.b32", op1(w, C_r, "cvt.u32.u64", d), imm_int(w->npart - 1));
        skip = new_label(w);
        E(w, "setp.ne.s32 %s, %s, %s", q.s, j.s, w->tid.s);
        E(w, "@%s bra %s", q.s, skip.s);
    }
    frag(w, vir_frag_step(r->kind, r->type, r->itype), args, out);
    red_set(w, n, out);
    if (skip.s[0])
        put_label(w, skip);
}

static text shuffle(pw *w, const char *mode, int t, text x, int by)
{
    if (t == VT_mask) {
        text i = choose(w, VT_i32, x, imm_int(1), imm_int(0));
        return test2(w, "ne", VT_i32, shuffle(w, mode, VT_i32, i, by), imm_int(0));
    }
    if (t == VT_f64 || t == VT_i64) {
        text lo = new_reg(w, C_r), hi = new_reg(w, C_r), d = new_reg(w, cls_of(t));
        E(w, "mov.b64 {%s, %s}, %s", lo.s, hi.s, x.s);
        lo = shuffle(w, mode, VT_i32, lo, by), hi = shuffle(w, mode, VT_i32, hi, by);
        E(w, "mov.b64 %s, {%s, %s}", d.s, lo.s, hi.s);
        return d;
    }
    text d = new_reg(w, cls_of(t));
    E(w, "shfl.sync.%s.b32 %s, %s, %d, 31, -1", mode, d.s, x.s, by);
    return d;
}

static void merge(pw *w, const vir_red_info *r, text *a, const text *b)
{
    int np = vir_red_parts(r->kind);
    text args[8];
    for (int p = 0; p < np; p++)
        args[p] = a[p], args[np + p] = b[p];
    frag(w, vir_frag_merge(r->kind, r->type, r->itype), args, a);
}

/* How a part lies in shared memory. */
static int shared_type(const vir_red_info *r, int p)
{
    int t = vir_red_part_type(r, p);
    return t == VT_mask ? VT_i32 : t;
}
static int shared_size(const vir_red_info *r, int p)
{
    int t = shared_type(r, p);
    return t == VT_f64 || t == VT_i64 ? 8 : 4;
}
static int red_bytes(const vir_red_info *r)
{
    int n = 0;
    for (int p = 0; p < vir_red_parts(r->kind); p++)
        n += shared_size(r, p);
    return n;
}
static int most_bytes(const vir *k) /* of the reductions of a kernel */
{
    int most = 0;
    for (int i = 0; i < k->nreds; i++)
        if (k->reds[i].partials)
            most = MAX(most, red_bytes(&k->reds[i]));
    return most;
}
static text to_shared(pw *w, int t, text x)
{
    return t == VT_mask ? choose(w, VT_i32, x, imm_int(1), imm_int(0)) : x;
}
static text from_shared(pw *w, int t, text x)
{
    return t == VT_mask ? test2(w, "ne", VT_i32, x, imm_int(0)) : x;
}

/* Room for a join of the reductions of a kernel, one after the other: first partial results of all threads, then one of each
 * thread. A second barrier lies between two uses of either. */
static size_t join_room(pw *w)
{
    if (!w->rooms) {
        int rows = w->plan->warp ? w->p->threads / WARP : 1, most = most_bytes(w->k);
        w->rooms = w->room + 1;
        w->room += (size_t)(most * (w->npart * rows + (w->plan->threads > WARP ? w->plan->threads : 0)));
    }
    return w->rooms - 1;
}

/* The partial results of one thread, as it holds them, to shared memory in their order; `at` is the row's room. */
static void own_out(pw *w, int n, int p, text at, size_t room)
{
    const vir_red_info *r = &w->k->reds[n];
    const row_plan *l = w->plan;
    int t = vir_red_part_type(r, p), st = shared_type(r, p), size = shared_size(r, p);
    int g = w->shift[n].s[0] ? 1 : MIN(l->vec, 16 / size);
    text x[OWN], mine = op2(w, C_r, "mul.lo.u32", w->me, imm_int(l->vec)), to = at;
    char names[160], vec[8] = "";
    if (g > 1)
        snprintf(vec, sizeof vec, ".v%d", g);
    if (w->shift[n].s[0])
        mine = op2(w, C_r, "sub.s32", mine, w->shift[n]);
    else
        to = op3(w, C_r, "mad.lo.u32", mine, imm_int(size), at);
    for (int o = 0; o < l->own; o++)
        x[o] = to_shared(w, t, w->red[(n * 4 + p) * OWN + o]);
    for (int o = 0; o < l->own; o += g) {
        int first = o / l->vec * l->threads * l->vec + o % l->vec;
        size_t off = room + (size_t)(first * size);
        if (w->shift[n].s[0]) {
            text j = op2(w, C_r, "add.s32", mine, imm_int(first));
            j = op2(w, C_r, "and.b32", j, imm_int(w->npart - 1));
            to = op3(w, C_r, "mad.lo.u32", j, imm_int(size), at), off = room;
        }
        list(x + o, g, names, sizeof names);
        E(w, g > 1 ? "st.shared%s.%s [%s+%zu], {%s}" : "st.shared%s.%s [%s+%zu], %s", vec, bits(st), to.s,
          off, names);
    }
}

/* Of `count` partial results in shared memory, thread `me` of `threads` gets every threads-th, joined. */
static void joined_in(pw *w, int n, text me, int threads, int count, text at, size_t room, text *out)
{
    const vir_red_info *r = &w->k->reds[n];
    int np = vir_red_parts(r->kind), groups = count / threads;
    text got[OWN][4];
    for (int p = 0; p < np; p++) {
        int size = shared_size(r, p), t = vir_red_part_type(r, p), st = shared_type(r, p);
        text from = op3(w, C_r, "mad.lo.u32", me, imm_int(size), at);
        for (int g = 0; g < groups; g++) {
            text y = new_reg(w, cls_of(st));
            E(w, "ld.shared.%s %s, [%s+%zu]", bits(st), y.s, from.s, room + (size_t)(g * threads * size));
            got[g][p] = from_shared(w, t, y);
        }
        room += (size_t)(count * size);
    }
    for (int h = groups / 2; h; h /= 2)
        for (int g = 0; g < h; g++)
            merge(w, r, got[g], got[g + h]);
    for (int p = 0; p < np; p++)
        out[p] = got[0][p];
}

/* Partial results of a thread: afterwards it has one, that of its number. */
static void join_own(pw *w, int n, text *x)
{
    const vir_red_info *r = &w->k->reds[n];
    size_t room = join_room(w), off = room;
    text at = w->shared;
    if (w->plan->warp)
        at = op3(w, C_r, "mad.lo.u32", op2(w, C_r, "shr.u32", w->tid, imm_int(5)),
                 imm_int(w->npart * most_bytes(w->k)), at);
    if (w->plan->threads == WARP) /* nothing else keeps the room's last readers apart from this */
        barrier(w);
    for (int p = 0; p < vir_red_parts(r->kind); p++) {
        own_out(w, n, p, at, off);
        off += (size_t)(w->npart * shared_size(r, p));
    }
    barrier(w);
    joined_in(w, n, w->me, w->plan->threads, w->npart, at, room, x);
}

/* One of each thread: afterwards every warp has them all, joined to one a lane. */
static void join_warps(pw *w, int n, text *x)
{
    const vir_red_info *r = &w->k->reds[n];
    int threads = w->plan->threads, bytes = red_bytes(r);
    bool again = w->plan->own == 1 && r->loop != 0 &&
                 w->k->loops[r->loop].kind != LOOP_parallel; /* in a serial loop: the room is used again */
    size_t room = w->room, off;
    if (again)
        barrier(w);
    if (w->plan->own > 1)
        room = join_room(w) + (size_t)(most_bytes(w->k) * w->npart);
    else if (w->room + (size_t)(threads * bytes) > 40 * 1024) { /* a block has 48 KB: the first ones' again */
        if (!again)
            barrier(w);
        room = 0;
    } else
        w->room += (size_t)(threads * bytes);
    off = room;
    for (int p = 0; p < vir_red_parts(r->kind); p++) {
        int size = shared_size(r, p);
        text to = op3(w, C_r, "mad.lo.u32", w->tid, imm_int(size), w->shared),
             y = to_shared(w, vir_red_part_type(r, p), x[p]);
        E(w, "st.shared.%s [%s+%zu], %s", bits(shared_type(r, p)), to.s, off, y.s);
        off += (size_t)(threads * size);
    }
    barrier(w);
    joined_in(w, n, w->lane, WARP, threads, w->shared, room, x);
}

static void red_fold(pw *w, int n)
{
    const vir_red_info *r = &w->k->reds[n];
    int np = vir_red_parts(r->kind);
    text x[4], b[4];
    if (!r->partials)
        return;
    for (int p = 0; p < np; p++)
        x[p] = *red_at(w, n, p);
    if (w->plan->own > 1)
        join_own(w, n, x);
    if (w->plan->threads > WARP)
        join_warps(w, n, x);
    for (int h = MIN(w->npart, WARP) / 2; h; h /= 2) {
        for (int p = 0; p < np; p++)
            b[p] = shuffle(w, "down", vir_red_part_type(r, p), in_reg(w, vir_red_part_type(r, p), x[p]), h);
        merge(w, r, x, b);
    }
    for (int p = 0; p < np; p++)
        b[p] = shuffle(w, "idx", vir_red_part_type(r, p), in_reg(w, vir_red_part_type(r, p), x[p]), 0);
    red_set(w, n, b);
}

/* --- loops ------------------------------------------------------------------------------------ */
static void region(pw *w, int n);
static void statement(pw *w, vir_ref r);

static bool inside(const vir *k, int region, int loop)
{
    for (; region; region = k->loops[region].parent)
        if (region == loop)
            return true;
    return false;
}

static bool from_memory(const vir *k, vir_ref r, int deep)
{
    const vir_ins *in = &k->ins[r];
    if (!r || in->op == VIR_load)
        return r != 0;
    if (in->op == VIR_get || in->op == VIR_part || deep > 40)
        return true;
    if (in->op == VIR_const || in->op == VIR_iarg || in->op == VIR_farg || in->op == VIR_loopvar ||
        in->op == VIR_bufptr)
        return false;
    return from_memory(k, in->a, deep + 1) || from_memory(k, in->b, deep + 1) ||
           from_memory(k, in->c, deep + 1);
}

loop_facts ptx_facts(const vir *k, int loop, bool atomics)
{
    loop_facts f = { .plain = true, .straight = true };
    for (int i = 1; i < k->n; i++) {
        const vir_ins *in = &k->ins[i];
        if (in->dead || !inside(k, in->region, loop))
            continue;
        f.weight += vir_is_math((vir_op)in->op) ? 25 : in->op == VIR_draw ? 90 : in->op == VIR_call ? 8 : 1;
        f.weight += (in->op == VIR_div || in->op == VIR_sqrt)  ? 8
                    : in->op >= VIR_divt && in->op <= VIR_modf ? 12
                                                               : 0;
        f.straight &= in->op != VIR_loop && in->op != VIR_red && in->op != VIR_var && in->op != VIR_get &&
                      in->op != VIR_set && in->op != VIR_part && in->op != VIR_fold;
        f.plain &= f.straight && in->op != VIR_step;
        if (in->op == VIR_step) {
            const vir_frag *step = vir_frag_step(k->reds[in->imm].kind, k->reds[in->imm].type,
                                                 k->reds[in->imm].itype);
            for (int j = i + 1; j < k->n; j++)
                if (k->ins[j].op == VIR_step && k->ins[j].imm == in->imm && !k->ins[j].dead)
                    f.straight = false;
            for (int j = 1; j < step->k->n; j++)
                f.weight += vir_is_math((vir_op)step->k->ins[j].op) ? 25 : 1;
            f.partials |= k->reds[in->imm].partials;
            f.ordered |= k->reds[in->imm].scan && !inside(k, k->reds[in->imm].loop, loop);
        }
        if (in->op != VIR_load && in->op != VIR_store)
            continue;
        if (ptx_is_unit(k, in))
            f.size = MAX(f.size, (int)vir_mem_size((vir_mem)in->mem));
        f.inout |= k->bufs[ptx_buffer_of(k, in)].flags == VIR_INOUT;
        f.stores |= in->op == VIR_store;
        f.loads |= in->op == VIR_load;
        if (in->op != VIR_store || in->region != loop ||
            distinct(in)) /* in loops inside, lanes have no element in common */
            continue;
        if (in->add)
            f.ordered |= is_flt(vir_mem_type((vir_mem)in->mem)) && !atomics;
        else
            f.ordered |= in->access == VA_uniform || from_memory(k, in->b, 0);
    }
    return f;
}

/* for (var = first; var < end; var += step) */
static void loop_text(pw *w, int n, text first, text end, text step)
{
    text var = w->loopvar[n * w->width], head = new_label(w), out = new_label(w);
    E(w, "mov.b64 %s, %s", var.s, first.s);
    put_label(w, head);
    text p = test2(w, "ge", VT_i64, var, end);
    E(w, "@%s bra %s", p.s, out.s);
    region(w, n);
    E(w, "add.s64 %s, %s, %s", var.s, var.s, step.s);
    E(w, "bra %s", head.s);
    put_label(w, out);
}

/* Something in the loop needs its variable for every lane. */
static bool counts(const vir *k, int n)
{
    for (int i = 1; i < k->n; i++) {
        const vir_ins *in = &k->ins[i];
        if (in->dead || in->region != n)
            continue;
        if (in->op == VIR_loopvar || in->op == VIR_draw)
            return true;
        if ((in->op == VIR_load || in->op == VIR_store) && in->access != VA_uniform &&
            in->access != VA_gather && !ptx_is_unit(k, in))
            return true;
    }
    return false;
}

/* The loop's variable for the lanes of `steps` steps. */
static void lane_vars(pw *w, int n, text base, int steps)
{
    bool all = w->edge || counts(w->k, n);
    for (int s = 0; s < (all ? steps : 1); s++)
        for (int u = 0; u < (all ? w->lanes : 1); u++) {
            text *var = &w->loopvar[n * w->width + s * w->lanes + u];
            if (!var->s[0])
                *var = new_reg(w, C_q);
            E(w, "add.s64 %s, %s, %d", var->s, base.s, s * w->gap + u);
        }
}

static void wide_ins(pw *w, vir_ref r, text at, int64_t off)
{
    const vir_ins *in = &w->k->ins[r];
    w->u_now = 0;
    if (at.s[0] && in->op == VIR_load)
        load_wide(w, r, at, off);
    else if (at.s[0])
        store_wide(w, r, at, off);
    else
        for (w->u_now = 0; w->u_now < w->lanes; w->u_now++) {
            if (in->op == VIR_store)
                store(w, in);
            else if (in->op == VIR_step)
                red_step(w, in);
            else {
                text x = in->op == VIR_load ? load(w, in) : pure(w, in);
                *slot(w, r) = x;
            }
        }
    w->u_now = 0;
}

/* `steps` times w->lanes elements of a loop, instruction by instruction; or of it what is late, or what is not. tail: predicate
 * of the last step, "" for none. */
static void wide_part(pw *w, int n, int steps, text tail, const bool *late, bool which)
{
    text *guard = w->guard;
    for (vir_ref r = w->k->loops[n].first; r; r = w->k->ins[r].next) {
        const vir_ins *in = &w->k->ins[r];
        text at = { "" };
        if ((late && late[r] != which) || in->dead || in->op == VIR_const ||
            (in->op == VIR_loopvar && in->type == VT_i64) ||
            (w->held && (w->plan->same[r] != r || w->plan->skip[r])))
            continue;
        if (ptx_is_unit(w->k, in) && !w->edge)
            at = address(w, in);
        for (int s = 0; s < steps; s++) {
            w->lane0 = s * w->lanes;
            if (tail.s[0])
                w->guard = s == steps - 1 ? &tail : NULL;
            wide_ins(w, r, at, (int64_t)s * w->gap * (int64_t)(at.s[0] ? vir_mem_size((vir_mem)in->mem) : 0));
        }
        w->lane0 = 0;
        w->guard = guard;
    }
}

static void wide_body(pw *w, int n, int steps, text tail) { wide_part(w, n, steps, tail, NULL, false); }

/* Every address that moves with the loop is a multiple of the access, for the first element, or, where `shift` is asked for,
 * that many elements before it: a predicate. */
static text aligned(pw *w, int n, text begin, text *shift)
{
    text all = { "" };
    int worst = 1;
    for (vir_ref r = w->k->loops[n].first; r; r = w->k->ins[r].next) {
        const vir_ins *in = &w->k->ins[r];
        if (in->dead || !ptx_is_unit(w->k, in))
            continue;
        vir_mem m = (vir_mem)in->mem;
        int size = (int)vir_mem_size(m), bytes = size == 2 && w->lanes == 8 ? 16 : size * group(m, w->lanes);
        text at = op3(w, C_q, "mad.lo.s64", begin, imm_int(size), val(w, in->a));
        if (in->imm)
            at = op2(w, C_q, "add.s64", at, imm_int(in->imm));
        if (shift && !shift->s[0]) { /* the first one decides how far rows are from a multiple */
            *shift = op2(w, C_q, "shr.u64", at, imm_int(__builtin_ctz((unsigned)size)));
            *shift = op2(w, C_q, "and.b64", *shift, imm_int(w->lanes - 1));
        }
        if (shift)
            at = op2(w, C_q, "sub.s64", at, op2(w, C_q, "mul.lo.s64", *shift, imm_int(size)));
        if (bytes < 16) /* its own multiple, moved to the place of 16's */
            at = op2(w, C_q, "shl.b64", at, imm_int(__builtin_ctz(16 / (unsigned)bytes)));
        all = all.s[0] ? op2(w, C_q, "or.b64", all, at) : at;
        worst = 16;
    }
    all = op2(w, C_q, "and.b64", all, imm_int(worst - 1));
    return test2(w, "eq", VT_i64, all, imm_int(0));
}

/* Threads take `per` elements in a row; where that many are not left or not aligned, one after the other. */
static void wide_loop(pw *w, int n, text begin, text end, text first, text step, int per)
{
    text base = new_reg(w, C_q), stop = new_reg(w, C_q), head = new_label(w), slow = new_label(w),
         next = new_label(w), out = new_label(w), one = imm_int(1), none = { "" }, ok;
    w->lanes = per, w->vloop = n, w->wide = true;
    begin = in_reg(w, VT_i64, begin);
    ok = aligned(w, n, begin, NULL);
    E(w, "mov.b64 %s, %s", base.s, first.s);
    put_label(w, head);
    text p = test2(w, "ge", VT_i64, base, end);
    E(w, "@%s bra %s", p.s, out.s);
    E(w, "add.s64 %s, %s, %d", stop.s, base.s, per);
    text q = test2(w, "le", VT_i64, stop, end);
    E(w, "min.s64 %s, %s, %s", stop.s, stop.s, end.s);
    q = op2(w, C_p, "and.pred", q, ok);
    E(w, "@!%s bra %s", q.s, slow.s);
    lane_vars(w, n, base, 1);
    wide_body(w, n, 1, none);
    E(w, "bra %s", next.s);
    put_label(w, slow);
    w->lanes = 1, w->wide = false;
    loop_text(w, n, base, stop, one);
    put_label(w, next);
    E(w, "add.s64 %s, %s, %s", base.s, base.s, step.s);
    E(w, "bra %s", head.s);
    put_label(w, out);
}

/* Partial results move on by `by` places: the next elements belong to those. */
static void rotate(pw *w, int n, int by)
{
    int own = w->plan->own;
    for (vir_ref r = w->k->loops[n].first; r; r = w->k->ins[r].next) {
        const vir_ins *in = &w->k->ins[r];
        if (in->dead || in->op != VIR_step || !w->k->reds[in->imm].partials)
            continue;
        const vir_red_info *red = &w->k->reds[in->imm];
        for (int p = 0; p < vir_red_parts(red->kind); p++) {
            int t = vir_red_part_type(red, p);
            text *x = &w->red[(in->imm * 4 + p) * OWN], old[VMAX];
            for (int o = 0; o < by; o++) {
                old[o] = new_reg(w, cls_of(t));
                E(w, "mov.%s %s, %s", bits(t), old[o].s, x[o].s);
            }
            for (int o = 0; o < own; o++)
                E(w, "mov.%s %s, %s", bits(t), x[o].s, (o + by < own ? x[o + by] : old[o + by - own]).s);
        }
    }
}

/* w->lanes elements from `base`, those of them that are inside, one access each. */
static void edge_body(pw *w, int n, text base, text begin, text end, bool early)
{
    text guard[VMAX], none = { "" };
    w->edge = true;
    lane_vars(w, n, base, 1);
    for (int u = 0; u < w->lanes; u++) {
        text i = w->loopvar[n * w->width + u];
        guard[u] = test2(w, "lt", VT_i64, i, end);
        if (early)
            guard[u] = op2(w, C_p, "and.pred", guard[u], test2(w, "ge", VT_i64, i, begin));
    }
    w->guard = guard;
    wide_body(w, n, 1, none);
    w->guard = NULL, w->edge = false;
}

/* A loop of a row: several steps at once while all of them are inside, and the edges step by step. Rows that do not start at a
 * multiple of an access are taken as if they started at the one before. */
static void steps_loop(pw *w, int n, const loop_facts *f, text begin, text end)
{
    const row_plan *l = w->plan;
    bool partials = f->partials, slow = l->steps != 0;
    int vec = partials ? l->vec : ptx_elements(f), chunks = partials ? l->own / vec : 1;
    int steps = slow ? chunks : ptx_steps(f, vec, chunks);
    bool odd = !slow && vec > 1 && ptx_aligned_elements(w->k, n, vec) < vec;
    text base = new_reg(w, C_q), at = new_reg(w, C_q), head = new_label(w), edge = new_label(w),
         again = new_label(w), next = new_label(w), out = new_label(w), shift = { "" }, ok = { "" },
         none = { "" };
    w->lanes = vec, w->gap = l->threads * vec, w->vloop = n, w->wide = true;
    if (vec > 1 && !slow)
        ok = aligned(w, n, begin, odd ? &shift : NULL);
    text first = op3(w, C_q, "mad.lo.s64", op1(w, C_q, "cvt.u64.u32", w->me), imm_int(vec), begin);
    E(w, odd ? "sub.s64 %s, %s, %s" : "mov.b64 %s, %s", base.s, first.s, shift.s);
    put_label(w, head);
    if (!slow) {
        E(w, "add.s64 %s, %s, %d", at.s, base.s, (steps - 1) * w->gap + vec);
        text p = test2(w, "le", VT_i64, at, end);
        if (ok.s[0])
            p = op2(w, C_p, "and.pred", p, ok);
        if (odd)
            p = op2(w, C_p, "and.pred", p, test2(w, "ge", VT_i64, base, begin));
        E(w, "@!%s bra %s", p.s, edge.s);
        lane_vars(w, n, base, steps);
        wide_body(w, n, steps, none);
        E(w, "bra %s", next.s);
        put_label(w, edge);
    }
    text p = test2(w, "ge", VT_i64, base, end);
    E(w, "@%s bra %s", p.s, out.s);
    E(w, "mov.b64 %s, %s", at.s, base.s);
    if (steps > 1)
        put_label(w, again);
    edge_body(w, n, at, begin, end, odd);
    if (chunks > 1)
        rotate(w, n, vec);
    if (steps > 1) { /* whole rounds of partial results, or as far as there are elements */
        text stop = op2(w, C_q, "add.s64", base, imm_int((int64_t)steps * w->gap));
        if (chunks == 1)
            stop = op2(w, C_q, "min.s64", stop, end);
        E(w, "add.s64 %s, %s, %d", at.s, at.s, w->gap);
        text q = test2(w, "lt", VT_i64, at, stop);
        E(w, "@%s bra %s", q.s, again.s);
    }
    put_label(w, next);
    E(w, "add.s64 %s, %s, %d", base.s, base.s, steps * w->gap);
    E(w, "bra %s", head.s);
    put_label(w, out);
    w->lanes = 1, w->wide = false;
    text by = odd && partials ? op1(w, C_r, "cvt.u32.u64", shift) : none;
    for (vir_ref r = w->k->loops[n].first; r && partials; r = w->k->ins[r].next)
        if (w->k->ins[r].op == VIR_step && !w->k->ins[r].dead)
            w->shift[w->k->ins[r].imm] = by;
}

/* The same where all loops of the row have few steps: written out, and values wait in registers for later loops. */
static void held_loop(pw *w, int n, text begin)
{
    const row_plan *l = w->plan;
    text base, tail = { "" };
    w->lanes = l->vec, w->gap = l->threads * l->vec, w->vloop = n, w->wide = true;
    base = op3(w, C_q, "mad.lo.s64", op1(w, C_q, "cvt.u64.u32", w->me), imm_int(l->vec), begin);
    if (l->n % w->gap) {
        int64_t left = l->n - (int64_t)(l->steps - 1) * w->gap;
        tail = test2(w, "lt", VT_i32, w->me, imm_int(left / l->vec));
    }
    lane_vars(w, n, base, l->steps);
    wide_body(w, n, l->steps, tail);
    for (vir_ref r = w->k->loops[n].first; r; r = w->k->ins[r].next)
        if (w->k->ins[r].op == VIR_step && !w->k->ins[r].dead)
            w->shift[w->k->ins[r].imm] = (text){ "" };
    w->lanes = 1, w->wide = false;
}

/* A loop of one thread that takes elements one after the other, as a sum of columns does. */
static int serial_ways(const pw *w, int n)
{
    loop_facts f = ptx_facts(w->k, n, w->u->opts.atomics);
    int ways = w->per_thread && !w->wide && f.straight && !f.stores && f.loads ? VMAX : 1;
    while (ways > 1 && ways * f.weight > 200)
        ways /= 2;
    return ways;
}

/* Such a loop, `ways` iterations in flight: their loads come first. Reductions take their elements in the same order. */
static void ways_loop(pw *w, int n, text begin, text end, int ways)
{
    text base = new_reg(w, C_q), last = new_reg(w, C_q), head = new_label(w), rest = new_label(w),
         none = { "" };
    int outer = w->vloop;
    w->lanes = ways, w->vloop = n, w->wide = w->edge = true; /* lanes are no neighbours */
    E(w, "mov.b64 %s, %s", base.s, begin.s);
    put_label(w, head);
    E(w, "add.s64 %s, %s, %d", last.s, base.s, ways - 1);
    text p = test2(w, "ge", VT_i64, last, end);
    E(w, "@%s bra %s", p.s, rest.s);
    lane_vars(w, n, base, 1);
    wide_body(w, n, 1, none);
    E(w, "add.s64 %s, %s, %d", base.s, base.s, ways);
    E(w, "bra %s", head.s);
    put_label(w, rest);
    w->lanes = 1, w->vloop = outer, w->wide = w->edge = false;
    loop_text(w, n, base, end, imm_int(1));
}

/* The loop stores something when this text is run. */
static bool stores_now(pw *w, int n)
{
    for (vir_ref r = w->k->loops[n].first; r; r = w->k->ins[r].next)
        if (w->k->ins[r].op == VIR_store && !w->k->ins[r].dead && !(w->held && w->plan->skip[r]))
            return true;
    return false;
}

/* --- scans: loops over indices, most of whose iterations are another warp's --- */
/* A block is one warp. Its lanes look at an iteration each, and a vote says which have something to do; those follow in
 * order. Either the loop is a serial one around a vector loop that is empty where `on` is false: the whole warp takes an
 * iteration and shares out the vector loop. Or it is a vector loop that stores, where `on`, to places that may be one
 * place: a lane takes an iteration. */
typedef struct {
    bool is, lanes; /* lanes: the second form */
    int vector;     /* the vector loop of either */
    vir_ref on;     /* 0: always */
} scan_facts;

static bool reads_only(const vir *k, const vir_ins *in)
{
    switch (in->op) {
    case VIR_loop:
    case VIR_store:
    case VIR_var:
    case VIR_get:
    case VIR_set:
    case VIR_red:
    case VIR_step:
    case VIR_fold:
    case VIR_part: return false;
    case VIR_load: return k->bufs[ptx_buffer_of(k, in)].flags == VIR_IN;
    default: return true;
    }
}

static scan_facts scan_of(const vir *k, int n, bool atomics)
{
    const vir_loop_info *l = &k->loops[n];
    scan_facts s = { 0 }, no = { 0 };
    vir_ref effect = 0;
    if (l->kind == LOOP_parallel || (l->kind == LOOP_serial && l->vector))
        return no;
    for (vir_ref r = l->first; r; r = k->ins[r].next) {
        if (k->ins[r].dead || reads_only(k, &k->ins[r]))
            continue;
        if (effect)
            return no;
        effect = r;
    }
    if (!effect)
        return no;
    s.lanes = l->kind == LOOP_vector;
    s.vector = s.lanes ? n : (int)k->ins[effect].imm;
    if (k->ins[effect].op != (s.lanes ? VIR_store : VIR_loop) || k->loops[s.vector].kind != LOOP_vector)
        return no;
    loop_facts f = ptx_facts(k, s.vector, atomics);
    if (!f.plain || f.partials || f.ordered != s.lanes)
        return no;
    if (s.lanes)
        s.on = k->ins[effect].c;
    else {
        const vir_ins *end = &k->ins[k->loops[s.vector].end];
        if (end->op != VIR_select || end->c != k->loops[s.vector].begin)
            return no;
        s.on = end->a;
    }
    s.is = true;
    return s;
}

/* Writes what r is made of in loop n. */
static void scan_value(pw *w, int n, vir_ref r, bool *done)
{
    const vir_ins *in = &w->k->ins[r];
    if (!r || done[r] || in->region != n)
        return;
    done[r] = true;
    const vir_ref from[] = { in->a, in->b, in->c, in->d };
    for (int i = 0; i < 4; i++)
        scan_value(w, n, from[i], done);
    statement(w, r);
}

/* Bits of the iterations from `at` on that have something to do, a warp of them in each of mask. */
static void scan_look(pw *w, int n, const scan_facts *s, text at, text lane, text end, text last, text *mask)
{
    bool *done = mem_alloc((size_t)w->k->n);
    text on[SCAN];
    for (int u = 0; u < SCAN; u++) { /* loads first, then votes */
        text i = op2(w, C_q, "add.s64", at, lane);
        if (u)
            i = op2(w, C_q, "add.s64", i, imm_int(u * WARP));
        on[u] = test2(w, "lt", VT_i64, i, end);
        E(w, "min.s64 %s, %s, %s", w->loopvar[n * w->width].s, i.s, last.s); /* loads stay inside */
        memset(done, 0, (size_t)w->k->n);
        scan_value(w, n, s->on, done);
        if (s->on)
            on[u] = op2(w, C_p, "and.pred", on[u], val_reg(w, s->on));
    }
    for (int u = 0; u < SCAN; u++)
        E(w, "vote.sync.ballot.b32 %s, %s, -1", mask[u].s, on[u].s);
    free(done);
}

static text any_of(pw *w, const text *mask, int n)
{
    text all = mask[0];
    for (int u = 1; u < n; u++)
        all = op2(w, C_r, "or.b32", all, mask[u]);
    return test2(w, "ne", VT_i32, all, imm_int(0));
}

/* to - lo where it is a known number. */
static int64_t apart(const vir *k, vir_ref lo, vir_ref to)
{
    const vir_ins *a = &k->ins[lo], *b = &k->ins[to];
    if (a->op == VIR_const && b->op == VIR_const)
        return b->imm - a->imm;
    for (int i = 0; i < 2 && b->op == VIR_add; i++)
        if ((i ? b->b : b->a) == lo && k->ins[i ? b->a : b->b].op == VIR_const)
            return k->ins[i ? b->a : b->b].imm;
    return INT64_MAX;
}

/* May the whole warp take several iterations at once? Then a lane has its elements of a row in one access. */
static bool scan_several(const vir *k, int n, const scan_facts *s, bool atomics)
{
    loop_facts f = ptx_facts(k, s->vector, atomics);
    vir_ref lo = k->loops[s->vector].begin, hi = k->ins[k->loops[s->vector].end].b;
    const vir_ins *to = &k->ins[hi];
    int64_t most = apart(k, lo, hi);
    int per = ptx_elements(&f);
    if (to->op == VIR_min)
        most = MIN(apart(k, lo, to->a), apart(k, lo, to->b));
    return per > 1 && per * f.weight * HITS <= 1000 && most <= per * WARP && k->ins[lo].region != n &&
           to->region != n;
}

/* What a vector loop computes from memory that it writes, and its stores. */
static void mark_late(const vir *k, int n, bool *late)
{
    for (vir_ref r = k->loops[n].first; r; r = k->ins[r].next) {
        const vir_ins *in = &k->ins[r];
        late[r] = in->op == VIR_store ||
                  (in->op == VIR_load && k->bufs[ptx_buffer_of(k, in)].flags != VIR_IN) || late[in->a] ||
                  late[in->b] || late[in->c] || late[in->d];
    }
}

/* Takes the lowest bit out of mask; its iteration. */
static void scan_next(pw *w, text var, text at, text mask)
{
    text bit = op1(w, C_r, "clz.b32", op1(w, C_r, "brev.b32", mask));
    E(w, "add.s64 %s, %s, %s", var.s, at.s, op1(w, C_q, "cvt.u64.u32", bit).s);
    E(w, "and.b32 %s, %s, %s", mask.s, mask.s, op2(w, C_r, "add.s32", mask, imm_int(-1)).s);
}

/* HITS iterations of mask: what they read of memory that nobody writes comes first, then each in its turn. */
static void scan_hits(pw *w, int n, const scan_facts *s, text at, text mask)
{
    const vir_loop_info *l = &w->k->loops[s->vector];
    loop_facts f = ptx_facts(w->k, s->vector, w->u->opts.atomics);
    int v = s->vector, per = ptx_elements(&f);
    size_t size = sizeof(text) * (size_t)w->width * (size_t)w->k->n;
    text *was = w->reg, *reg[HITS], var[HITS], whole = { "" }, own = w->loopvar[n * w->width], none = { "" };
    text begin = val_reg(w, l->begin), end = val_reg(w, w->k->ins[l->end].b), ahead = new_label(w);
    text base = op3(w, C_q, "mad.lo.s64", op1(w, C_q, "cvt.u64.u32", w->lane), imm_int(per), begin);
    text stop = op2(w, C_q, "add.s64", base, imm_int(per));
    bool *late = mem_zalloc((size_t)w->k->n);
    mark_late(w->k, v, late);
    whole = test2(w, "le", VT_i64, stop, end);
    stop = op2(w, C_q, "min.s64", stop, end);
    w->vloop = v;
    for (int u = 0; u < HITS; u++) {
        w->reg = reg[u] = memcpy(mem_alloc(size), was, size);
        w->loopvar[n * w->width] = var[u] = new_reg(w, C_q);
        scan_next(w, var[u], at, mask);
        for (vir_ref r = w->k->loops[n].first; r; r = w->k->ins[r].next)
            if (!w->k->ins[r].dead && w->k->ins[r].op != VIR_loop)
                statement(w, r);
        w->lanes = per;
        whole = op2(w, C_p, "and.pred", whole, aligned(w, v, begin, NULL));
        w->lanes = 1;
    }
    w->lanes = per, w->wide = w->per_thread = true;
    lane_vars(w, v, base, 1);
    E(w, "@!%s bra %s", whole.s, ahead.s);
    for (int u = 0; u < HITS; u++) {
        w->reg = reg[u], w->loopvar[n * w->width] = var[u];
        wide_part(w, v, 1, none, late, false);
    }
    put_label(w, ahead);
    barrier(w);
    for (int u = 0; u < HITS; u++) {
        text one = new_label(w), next = new_label(w);
        w->reg = reg[u], w->loopvar[n * w->width] = var[u];
        E(w, "@!%s bra %s", whole.s, one.s);
        w->lanes = per, w->wide = true;
        wide_part(w, v, 1, none, late, true);
        w->lanes = 1, w->wide = false;
        E(w, "bra %s", next.s);
        put_label(w, one);
        loop_text(w, v, base, stop, imm_int(1));
        put_label(w, next);
        barrier(w);
        free(reg[u]);
    }
    w->reg = was, w->loopvar[n * w->width] = own, w->per_thread = false;
    free(late);
}

/* The iterations from `at` on whose bits are in mask, of which there are some; then out. */
static void scan_body(pw *w, int n, const scan_facts *s, text at, text lane, text last, text mask, text out)
{
    text var = w->loopvar[n * w->width];
    if (s->lanes) {
        E(w, "min.s64 %s, %s, %s", var.s, op2(w, C_q, "add.s64", at, lane).s, last.s);
        text bit = op2(w, C_r, "and.b32", op2(w, C_r, "shr.u32", mask, w->lane), imm_int(1));
        w->scan_on = test2(w, "ne", VT_i32, bit, imm_int(0));
        region(w, n);
        w->scan_on.s[0] = 0;
        return;
    }
    text next = new_label(w), turn = new_label(w), over = new_label(w);
    if (scan_several(w->k, n, s, w->u->opts.atomics)) {
        put_label(w, turn);
        text few = test2(w, "lt", VT_i32, op1(w, C_r, "popc.b32", mask), imm_int(HITS));
        E(w, "@%s bra %s", few.s, over.s);
        scan_hits(w, n, s, at, mask);
        E(w, "bra %s", turn.s);
        put_label(w, over);
        text none = test2(w, "eq", VT_i32, mask, imm_int(0));
        E(w, "@%s bra %s", none.s, out.s);
    }
    put_label(w, next);
    scan_next(w, var, at, mask);
    region(w, n);
    text more = test2(w, "ne", VT_i32, mask, imm_int(0));
    E(w, "@%s bra %s", more.s, next.s);
}

static void scan_loop(pw *w, int n, const scan_facts *s)
{
    const vir_loop_info *l = &w->k->loops[n];
    text first = new_reg(w, C_q), at = new_reg(w, C_q), mask[SCAN], head = new_label(w), turn = new_label(w),
         over = new_label(w), out = new_label(w);
    text begin = val(w, l->begin), end = val_reg(w, l->end), last = op2(w, C_q, "sub.s64", end, imm_int(1)),
         lane = op1(w, C_q, "cvt.u64.u32", w->lane);
    for (int u = 0; u < SCAN; u++)
        mask[u] = new_reg(w, C_r);
    E(w, "mov.b64 %s, %s", first.s, begin.s);
    put_label(w, head);
    text p = test2(w, "ge", VT_i64, first, end);
    E(w, "@%s bra %s", p.s, out.s);
    scan_look(w, n, s, first, lane, end, last, mask);
    E(w, "mov.b64 %s, %s", at.s, first.s);
    E(w, "add.s64 %s, %s, %d", first.s, first.s, SCAN * WARP);
    p = any_of(w, mask, SCAN);
    E(w, "@!%s bra %s", p.s, head.s);
    put_label(w, turn);
    p = any_of(w, mask, 1);
    E(w, "@!%s bra %s", p.s, over.s);
    scan_body(w, n, s, at, lane, last, mask[0], over);
    put_label(w, over);
    E(w, "add.s64 %s, %s, %d", at.s, at.s, WARP);
    for (int u = 0; u < SCAN; u++)
        E(w, "mov.b32 %s, %s", mask[u].s, u < SCAN - 1 ? mask[u + 1].s : "0");
    p = any_of(w, mask, SCAN - 1);
    E(w, "@%s bra %s", p.s, turn.s);
    E(w, "bra %s", head.s);
    put_label(w, out);
}

static void vector_loop(pw *w, int n)
{
    const vir_loop_info *l = &w->k->loops[n];
    loop_facts f = ptx_facts(w->k, n, w->u->opts.atomics);
    text begin = val_reg(w, l->begin), end = val(w, l->end), one = imm_int(1);
    if (w->per_thread) {
        loop_text(w, n, begin, end, one);
        return;
    }
    if (w->p->scan && f.ordered) {
        scan_facts s = scan_of(w->k, n, w->u->opts.atomics);
        scan_loop(w, n, &s);
        return;
    }
    if (f.ordered) {
        w->ordered = n, w->ordered_first = begin;
        loop_text(w, n, begin, end, one);
        w->ordered = 0;
        return;
    }
    if (w->touched && (w->held ? stores_now(w, n) : f.stores))
        barrier(w);
    bool rows = w->plan->threads && w->plan->sums;
    if (rows && f.straight && (!f.partials || w->npart >= w->plan->threads)) {
        w->per_thread = true;
        if (w->held)
            held_loop(w, n, begin);
        else
            steps_loop(w, n, &f, begin, end);
        w->per_thread = false;
        w->touched = true;
        if (f.inout && !w->held)
            barrier(w);
        return;
    }
    bool tiles = w->p->grid == PTX_tiles && !rows;
    int per = rows ? 1 : ptx_elements(&f), threads = rows    ? w->plan->threads
                                                     : tiles ? w->p->tile
                                                             : w->p->threads;
    if (f.partials)
        threads = MIN(threads, w->npart);
    text mine = tiles ? op2(w, C_r, "and.b32", w->tid, imm_int(threads - 1)) : w->me;
    text me = op1(w, C_q, "cvt.u64.u32", mine), step = imm_int((int64_t)threads * per), over = { "" };
    if (w->p->grid == PTX_flat) {
        text b = new_reg(w, C_r), g = new_reg(w, C_r), x = new_reg(w, C_q);
        E(w, "mov.u32 %s, %%ctaid.x", b.s);
        E(w, "mov.u32 %s, %%nctaid.x", g.s);
        E(w, "mul.wide.u32 %s, %s, %d", x.s, b.s, threads);
        me = op2(w, C_q, "add.s64", me, x);
        step = new_reg(w, C_q);
        E(w, "mul.wide.u32 %s, %s, %d", step.s, g.s, threads * per);
    }
    text first = op3(w, C_q, "mad.lo.s64", me, imm_int(per), begin);
    if (f.partials && w->plan->threads > w->npart) { /* the others have nothing to do */
        over = new_label(w);
        text p = test2(w, "ge", VT_i32, w->me, imm_int(w->npart));
        E(w, "@%s bra %s", p.s, over.s);
    }
    w->per_thread = true;
    if (per > 1)
        wide_loop(w, n, begin, end, first, step, per);
    else
        loop_text(w, n, first, end, step);
    w->per_thread = false;
    if (over.s[0])
        put_label(w, over);
    w->touched = true;
    if (f.inout)
        barrier(w);
}

/* The iteration that is this block's or this thread's; those that have none go to out. */
static void take_iteration(pw *w, int n, text out)
{
    text r = w->loopvar[n * w->width], lo = new_reg(w, C_q), hi = new_reg(w, C_q), b = new_reg(w, C_r);
    E(w, "ld.param.s64 %s, [%s_lo]", lo.s, w->name);
    E(w, "ld.param.s64 %s, [%s_hi]", hi.s, w->name);
    E(w, "mov.u32 %s, %%ctaid.x", b.s);
    if (w->p->grid == PTX_threads) {
        text x = new_reg(w, C_q), t = op1(w, C_q, "cvt.u64.u32", w->tid);
        E(w, "mul.wide.u32 %s, %s, %d", x.s, b.s, w->p->threads);
        E(w, "add.s64 %s, %s, %s", r.s, x.s, t.s);
    } else if (w->p->grid == PTX_tiles) { /* of several rows; whole warps leave where a warp has one */
        text x = new_reg(w, C_q),
             t = op2(w, C_r, "shr.u32", w->tid, imm_int(__builtin_ctz((unsigned)w->p->tile)));
        E(w, "mul.wide.u32 %s, %s, %d", x.s, b.s, w->p->threads / w->p->tile);
        E(w, "add.s64 %s, %s, %s", r.s, x.s, op1(w, C_q, "cvt.u64.u32", t).s);
    } else
        E(w, "cvt.u64.u32 %s, %s", r.s, b.s);
    E(w, "add.s64 %s, %s, %s", r.s, r.s, lo.s);
    text p = test2(w, "ge", VT_i64, r, hi);
    E(w, "@%s bra %s", p.s, out.s);
}

/* Buffers that held loops walk through are aligned: a predicate, "" where any address will do. */
static text held_here(pw *w)
{
    const vir *k = w->k;
    text all = { "" };
    bool seen[256] = { false };
    for (int i = 1; i < k->n && w->plan->vec > 1; i++) {
        const vir_ins *in = &k->ins[i];
        if (in->dead || !ptx_is_unit(k, in) || !k->loops[in->region].vector)
            continue;
        const vir_ins *p = &k->ins[in->a];
        vir_ref base = p->op == VIR_ptr ? p->a : in->a;
        int b = ptx_buffer_of(k, in);
        if (b < (int)COUNT(seen) && seen[b])
            continue;
        if (b < (int)COUNT(seen))
            seen[b] = true;
        text x = val(w, base);
        all = all.s[0] ? op2(w, C_q, "or.b64", all, x) : x;
    }
    if (!all.s[0])
        return all;
    return test2(w, "eq", VT_i64, op2(w, C_q, "and.b64", all, imm_int(15)), imm_int(0));
}

static void parallel_loop(pw *w, int n)
{
    text out = new_label(w);
    if (w->p->grid != PTX_threads)
        take_iteration(w, n, out);
    w->per_thread = w->p->grid == PTX_threads;
    if (w->plan->steps) {
        text slow = new_label(w), p = held_here(w);
        if (p.s[0])
            E(w, "@!%s bra %s", p.s, slow.s);
        w->held = true;
        region(w, n);
        w->held = false;
        if (p.s[0]) {
            E(w, "bra %s", out.s);
            put_label(w, slow);
            region(w, n);
        }
    } else
        region(w, n);
    w->per_thread = false;
    if (w->p->grid != PTX_threads)
        put_label(w, out);
}

static void loop(pw *w, int n)
{
    const vir_loop_info *l = &w->k->loops[n];
    scan_facts s = w->p->scan && l->kind == LOOP_serial ? scan_of(w->k, n, w->u->opts.atomics)
                                                        : (scan_facts){ 0 };
    if (l->kind == LOOP_parallel)
        parallel_loop(w, n);
    else if (s.is)
        scan_loop(w, n, &s);
    else if (l->kind == LOOP_vector)
        vector_loop(w, n);
    else {
        text begin = val_reg(w, l->begin), end = val(w, l->end);
        int ways = serial_ways(w, n);
        if (ways > 1)
            ways_loop(w, n, begin, end, ways);
        else
            loop_text(w, n, begin, end, imm_int(1));
    }
}

static void statement(pw *w, vir_ref r)
{
    const vir_ins *in = &w->k->ins[r];
    text x;
    switch (in->op) {
    case VIR_const:
    case VIR_iarg:
    case VIR_farg:
    case VIR_bufptr: return;
    case VIR_loopvar:
        if (in->type == VT_i64)
            return;
        break;
    case VIR_loop: loop(w, (int)in->imm); return;
    case VIR_store: store(w, in); return;
    case VIR_load: *slot(w, r) = load(w, in); return;
    case VIR_var:
        x = new_reg(w, cls_of(in->type));
        E(w, "mov.%s %s, %s", bits(in->type), x.s, val(w, in->a).s);
        *slot(w, r) = x;
        return;
    case VIR_get:
    case VIR_part: /* a copy: the variable goes on */
        x = new_reg(w, cls_of(in->type));
        E(w, "mov.%s %s, %s", bits(in->type), x.s,
          in->op == VIR_get ? val(w, in->a).s : w->red[in->imm * OWN].s);
        *slot(w, r) = x;
        return;
    case VIR_set:
        E(w, "mov.%s %s, %s", bits(w->k->ins[in->b].type), val(w, in->a).s, val(w, in->b).s);
        return;
    case VIR_red: red_start(w, (int)in->imm); return;
    case VIR_step: red_step(w, in); return;
    case VIR_fold: red_fold(w, (int)in->imm); return;
    default: break;
    }
    x = pure(w, in);
    *slot(w, r) = x;
}

static void region(pw *w, int n)
{
    for (vir_ref r = w->k->loops[n].first; r; r = w->k->ins[r].next)
        if (!w->k->ins[r].dead)
            statement(w, r);
}

/* --- kernels ---------------------------------------------------------------------------------- */
static ptx_count count_of(const vir *k, int loop);

/* The most elements that a loop has, where its text says so: from lo to a number, or to min(lo + a number, the end). -1: any. */
static int64_t most_elements(const vir *k, int loop)
{
    vir_ref first = k->loops[loop].begin;
    const vir_ins *lo = &k->ins[first], *hi = &k->ins[k->loops[loop].end];
    if (lo->op == VIR_const && hi->op == VIR_const)
        return hi->imm - lo->imm;
    for (int i = 0; i < 2 && hi->op == VIR_min; i++) {
        const vir_ins *sum = &k->ins[i ? hi->b : hi->a];
        if (sum->op != VIR_add || (sum->a != first && sum->b != first))
            continue;
        const vir_ins *n = &k->ins[sum->a == first ? sum->b : sum->a];
        if (n->op == VIR_const)
            return n->imm;
    }
    return -1;
}

/* Threads that an iteration of a short vector loop keeps busy; 0: not known, or a block of them. */
static int tile_of(const vir *k, int loop, int per, int threads)
{
    int64_t most = most_elements(k, loop), n = most < 0 ? threads : (most + per - 1) / per;
    int tile = 1;
    while (tile < n && tile < threads)
        tile *= 2;
    return tile < threads ? tile : 0;
}

static int width_of(const row_plan *l) { return l->threads ? MAX(32, l->steps * l->vec) : VMAX; }

static ptx_kernel lay_out(const vir *k, const ptx_opts *o, row_plan *l)
{
    ptx_kernel p = { .threads = o->threads ? o->threads : 256, .per = 1, .grid = PTX_one };
    int vectors = 0, shared_out = 0, partials = 0, shared_loop = 0, scans = 0;
    bool parallel = false, outer_store = false, serial = false, inout = false;
    *l = (row_plan){ .vec = 1, .own = 1 };
    for (int i = 1; i < k->nloops; i++) {
        if (k->ins[k->loops[i].ins].dead)
            continue;
        parallel |= k->loops[i].kind == LOOP_parallel;
        serial |= k->loops[i].kind == LOOP_serial && !k->loops[i].vector;
        scans += scan_of(k, i, o->atomics).is;
        if (k->loops[i].kind != LOOP_vector)
            continue;
        loop_facts f = ptx_facts(k, i, o->atomics);
        vectors++;
        partials += f.partials;
        shared_out += !f.ordered;
        inout |= f.inout;
        if (!f.ordered)
            shared_loop = i, p.per = ptx_elements(&f);
    }
    for (int i = 1; i < k->n; i++)
        outer_store |= !k->ins[i].dead && k->ins[i].op == VIR_store && !k->loops[k->ins[i].region].vector;
    p.scan = scans && scans == vectors; /* every vector loop is part of one */
    /* one loop of elements that have nothing to do with one another */
    if (!p.scan && parallel && vectors == 1 && shared_out == 1 && !partials && !outer_store &&
        !(serial && inout))
        p.tile = tile_of(k, shared_loop, p.per, p.threads);
    if (parallel)
        p.grid = p.tile ? PTX_tiles : partials || shared_out || p.scan ? PTX_rows : PTX_threads;
    else if (vectors == 1 && shared_out == 1 && !partials && !outer_store && !serial)
        p.grid = PTX_flat;
    if (partials)
        ptx_plan_rows(k, o, &p, k->lanes * k->ways, l);
    else if (p.scan || (p.grid == PTX_one && !shared_out))
        p.threads = WARP;
    if (!l->threads && !p.scan && (p.grid == PTX_rows || p.grid == PTX_one))
        l->threads = p.threads;
    l->sums = partials > 0;
    if (p.grid == PTX_flat)
        p.count = count_of(k, shared_loop);
    p.nbufs = k->nbufs, p.nints = k->nints, p.nflts = k->nflts;
    return p;
}

static void parameters(pw *w)
{
    const vir *k = w->k;
    bool first = true;
    strbuf_addf(w->o, ".visible .entry %s(", w->name);
    for (int i = 0; i < k->nbufs; i++, first = false)
        strbuf_addf(w->o, "%s\n\t.param .u64 %s_b%d", first ? "" : ",", w->name, i);
    for (int i = 0; i < k->nints; i++, first = false)
        strbuf_addf(w->o, "%s\n\t.param .s64 %s_i%d", first ? "" : ",", w->name, i);
    for (int i = 0; i < k->nflts; i++, first = false)
        strbuf_addf(w->o, "%s\n\t.param .f64 %s_f%d", first ? "" : ",", w->name, i);
    for (int i = 0; i < w->p->nlifted; i++, first = false)
        strbuf_addf(w->o, "%s\n\t.param .f64 %s_c%d", first ? "" : ",", w->name, i);
    strbuf_addf(w->o, "%s\n\t.param .s64 %s_lo,\n\t.param .s64 %s_hi)\n", first ? "" : ",", w->name, w->name);
    strbuf_addf(w->o, ".reqntid %d, 1, 1\n{\n", w->p->threads);
}

/* Zero, one and what is no number stay where they are: code for them is often another. */
static bool lifts(const pw *w, const vir_ins *in)
{
    double v = in->op == VIR_const && is_flt(in->type) ? vir_const_f(in) : 0;
    return w->lifted && v != 0 && v != 1 && isfinite(v) && w->p->nlifted < (int)COUNT(w->p->lifted);
}

static void arguments(pw *w)
{
    const vir *k = w->k;
    for (int i = 1; i < k->n; i++) {
        const vir_ins *in = &k->ins[i];
        if (in->dead)
            continue;
        text x = { "" };
        if (in->op == VIR_bufptr) {
            x = new_reg(w, C_q);
            E(w, "ld.param.u64 %s, [%s_b%lld]", x.s, w->name, (long long)in->imm);
            E(w, "cvta.to.global.u64 %s, %s", x.s, x.s);
        } else if (in->op == VIR_iarg) {
            x = new_reg(w, C_q);
            E(w, "ld.param.s64 %s, [%s_i%lld]", x.s, w->name, (long long)in->imm);
        } else if (in->op == VIR_farg) {
            x = new_reg(w, C_d);
            E(w, "ld.param.f64 %s, [%s_f%lld]", x.s, w->name, (long long)in->imm);
            if (in->type == VT_f32)
                x = op1(w, C_f, "cvt.rn.f32.f64", x);
        } else if (lifts(w, in)) {
            x = new_reg(w, C_d);
            E(w, "ld.param.f64 %s, [%s_c%d]", x.s, w->name, w->p->nlifted);
            w->p->lifted[w->p->nlifted++] = vir_const_f(in);
            w->lifted[i] = in->type == VT_f32 ? op1(w, C_f, "cvt.rn.f32.f64", x) : x;
            continue;
        } else
            continue;
        w->reg[i * w->width] = x;
    }
}

bool ptx_add(ptx_unit *u, const vir *k, const char *name, ptx_kernel *out, tp_err *err)
{
    int count[NCLS] = { 0 }, label = 0;
    strbuf body = { 0 };
    tp_err own = { 0 };
    if (!k->lanes)
        return err_set(err, ERR_internal, "kernel '%s' was not finished", k->name);
    row_plan plan;
    *out = lay_out(k, &u->opts, &plan);
    pw w = { .u = u,
             .k = k,
             .o = &body,
             .count = count,
             .label = &label,
             .err = &own,
             .name = name,
             .p = out,
             .plan = &plan,
             .lanes = 1 };
    w.npart = k->lanes * k->ways;
    w.width = width_of(&plan);
    w.reg = mem_zalloc(sizeof(text) * (size_t)w.width * (size_t)k->n);
    w.shift = mem_zalloc(sizeof(text) * (size_t)(k->nreds + 1));
    w.lifted = u->opts.lift ? mem_zalloc(sizeof(text) * (size_t)k->n) : NULL;
    w.red = mem_zalloc(sizeof(text) * 4 * OWN * (size_t)(k->nreds + 1));
    w.loopvar = mem_zalloc(sizeof(text) * (size_t)w.width * (size_t)k->nloops);
    for (int i = 1; i < k->nloops; i++)
        w.loopvar[i * w.width] = new_reg(&w, C_q);
    w.tid = new_reg(&w, C_r), w.lane = new_reg(&w, C_r), w.zero_p = new_reg(&w, C_p),
    w.shared = new_reg(&w, C_r);
    E(&w, "mov.u32 %s, %%tid.x", w.tid.s);
    E(&w, "and.b32 %s, %s, 31", w.lane.s, w.tid.s);
    w.me = plan.warp ? w.lane : w.tid;
    E(&w, "setp.eq.s32 %s, %s, 0", w.zero_p.s, w.me.s);
    arguments(&w);
    size_t mark = body.n; /* the address of shared memory goes here when there is some */
    /* threads without an iteration read nothing: what is read ahead of the loop may be written in it */
    text idle = out->grid == PTX_threads ? new_label(&w) : (text){ "" };
    for (int i = 1; i < k->nloops && out->grid == PTX_threads; i++)
        if (k->loops[i].kind == LOOP_parallel)
            take_iteration(&w, i, idle);
    region(&w, 0);
    if (out->grid == PTX_threads)
        put_label(&w, idle);
    E(&w, "ret");
    if (!err_is_set(&own)) {
        pw head = w;
        head.o = &u->kernels;
        strbuf_addc(head.o, '\n');
        parameters(&head);
        for (int c = 0; c < NCLS; c++)
            if (count[c])
                strbuf_addf(head.o, "\t.reg .%s %%%c<%d>;\n", cls_type[c], cls_letter[c], count[c]);
        if (w.room)
            strbuf_addf(head.o, "\t.shared .align 16 .b8 %s_shared[%zu];\n", name, w.room);
        strbuf_addn(head.o, strbuf_str(&body), mark);
        if (w.room)
            E(&head, "mov.u32 %s, %s_shared", w.shared.s, name);
        strbuf_add(head.o, strbuf_str(&body) + mark);
        strbuf_add(head.o, "}\n");
    } else if (err)
        *err = own;
    strbuf_free(&body);
    free(w.reg), free(w.red), free(w.loopvar), free(w.lifted), free(w.shift);
    free(plan.same), free(plan.skip);
    return !err_is_set(&own);
}

void ptx_text(const ptx_unit *u, strbuf *out)
{
    strbuf_addf(out, ".version 7.8\n.target sm_%d\n.address_size 64\n\n", u->opts.sm ? u->opts.sm : 90);
    strbuf_add(out, strbuf_str(&u->head));
    strbuf_add(out, strbuf_str(&u->kernels));
}

void ptx_free(ptx_unit *u)
{
    strbuf_free(&u->head);
    strbuf_free(&u->kernels);
    map_free(&u->seen);
}

/* --- launching -------------------------------------------------------------------------------- */
/* Appends the value of a uniform integer that depends on arguments alone. */
static bool count_add(const vir *k, vir_ref r, ptx_count *c)
{
    const vir_ins *in = &k->ins[r];
    bool leaf = in->op == VIR_const || in->op == VIR_iarg;
    bool two = in->op == VIR_add || in->op == VIR_sub || in->op == VIR_mul || in->op == VIR_min ||
               in->op == VIR_max || in->op == VIR_divf;
    if (in->type != VT_i64 || (!leaf && (!two || !count_add(k, in->a, c) || !count_add(k, in->b, c))) ||
        c->n == COUNT(c->at))
        return false;
    c->at[c->n].op = in->op, c->at[c->n++].imm = in->imm;
    return true;
}

static ptx_count count_of(const vir *k, int loop)
{
    ptx_count c = { 0 };
    if (count_add(k, k->loops[loop].end, &c) && count_add(k, k->loops[loop].begin, &c) && c.n < COUNT(c.at))
        c.at[c.n++].op = VIR_sub;
    else
        c.n = 0;
    return c;
}

static bool count_value(const ptx_count *c, const int64_t *ints, int64_t *out)
{
    int64_t s[COUNT(c->at)];
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        if (c->at[i].op == VIR_const || c->at[i].op == VIR_iarg) {
            s[n++] = c->at[i].op == VIR_const ? c->at[i].imm : ints[c->at[i].imm];
            continue;
        }
        uint64_t x = (uint64_t)s[n - 2], y = (uint64_t)s[n - 1];
        int64_t a = s[n - 2], b = s[n - 1];
        n--;
        switch (c->at[i].op) {
        case VIR_add: s[n - 1] = (int64_t)(x + y); break;
        case VIR_sub: s[n - 1] = (int64_t)(x - y); break;
        case VIR_mul: s[n - 1] = (int64_t)(x * y); break;
        case VIR_min: s[n - 1] = MIN(a, b); break;
        case VIR_max: s[n - 1] = MAX(a, b); break;
        default:
            if (b <= 0)
                return false;
            s[n - 1] = a / b - (a % b < 0);
        }
    }
    *out = n ? s[0] : 0;
    return n == 1;
}

void ptx_params(const ptx_kernel *p, void *const *bufs, const int64_t *ints, const double *flts, int64_t lo,
                int64_t hi, uint64_t *out)
{
    for (int i = 0; i < p->nbufs; i++)
        *out++ = (uint64_t)(uintptr_t)bufs[i];
    for (int i = 0; i < p->nints; i++)
        *out++ = (uint64_t)ints[i];
    for (int i = 0; i < p->nflts; i++)
        memcpy(out++, &flts[i], sizeof *flts);
    for (int i = 0; i < p->nlifted; i++)
        memcpy(out++, &p->lifted[i], sizeof *p->lifted);
    out[0] = (uint64_t)lo, out[1] = (uint64_t)hi;
}

int64_t ptx_blocks(const ptx_kernel *p, const int64_t *ints, int64_t lo, int64_t hi)
{
    int64_t n, each = (int64_t)p->threads * p->per;
    switch (p->grid) {
    case PTX_rows: return MAX(hi - lo, 0);
    case PTX_tiles: each = p->threads / p->tile; return hi > lo ? (hi - lo + each - 1) / each : 0;
    case PTX_threads: return hi > lo ? (hi - lo + p->threads - 1) / p->threads : 0;
    case PTX_flat:
        if (!count_value(&p->count, ints, &n))
            return 1024; /* the loop strides over the grid */
        return n > 0 ? MIN((n + each - 1) / each, INT32_MAX) : 0;
    default: return 1;
    }
}
