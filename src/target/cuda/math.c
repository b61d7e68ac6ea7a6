#include "target/cuda/math.h"
#include "vir/math/vmath.h"
#include <math.h>
#include <pthread.h>

#define ADD(a, b)    vir_add(k, a, b)
#define SUB(a, b)    vir_sub(k, a, b)
#define MUL(a, b)    vir_mul(k, a, b)
#define DIV(a, b)    vir_div(k, a, b)
#define FMA(a, b, c) vir_fma(k, a, b, c)
#define SEL(p, a, b) vir_select(k, p, a, b)
#define C(v)         vir_flt(k, VT_f64, v)
#define LT(a, b)     vir_lt(k, a, b)
#define EQ(a, b)     vir_eq(k, a, b)
static const double LN2 = 0x1.62e42fefa39efp-1;

static vir_ref asinh_(vir *k, vir_ref x, vir_ref y)
{
    vir_ref a = vir_abs(k, x), a2 = MUL(a, a), root = vir_sqrt(k, ADD(a2, C(1)));
    vir_ref near = vir_log1p(k, ADD(a, DIV(a2, ADD(C(1), root)))), far = ADD(vir_log(k, a), C(LN2));
    return vir_copysign(k, SEL(LT(a, C(0x1p28)), near, far), x);
}
static vir_ref acosh_(vir *k, vir_ref x, vir_ref y)
{
    vir_ref t = SUB(x, C(1)), near = vir_log1p(k, ADD(t, vir_sqrt(k, MUL(t, ADD(t, C(2))))));
    vir_ref r = SEL(LT(x, C(0x1p28)), near, ADD(vir_log(k, x), C(LN2)));
    return SEL(LT(x, C(1)), C(NAN), r);
}
static vir_ref atanh_(vir *k, vir_ref x, vir_ref y)
{
    vir_ref a = vir_abs(k, x), a2 = ADD(a, a), near = ADD(a2, DIV(MUL(a2, a), SUB(C(1), a)));
    vir_ref arg = SEL(LT(a, C(0.5)), near, DIV(a2, SUB(C(1), a)));
    return vir_copysign(k, MUL(C(0.5), vir_log1p(k, arg)), x);
}
static vir_ref cbrt_(vir *k, vir_ref x, vir_ref y)
{
    vir_ref a = vir_abs(k, x), tiny = LT(a, C(1e-200)), s = SEL(tiny, MUL(a, C(0x1p600)), a);
    vir_ref g = vir_exp2(k, DIV(vir_log2(k, s), C(3))), g2 = MUL(g, g);
    vir_ref off = FMA(g2, g, vir_neg(k, s)); /* of the cube, then of its square's rounding */
    off = FMA(FMA(g, g, vir_neg(k, g2)), g, off);
    vir_ref r = SUB(g, DIV(off, MUL(C(3), g2)));
    r = vir_copysign(k, SEL(tiny, MUL(r, C(0x1p-200)), r), x);
    vir_ref plain = vir_and(k, LT(a, C(INFINITY)), vir_gt(k, a, C(0)));
    return SEL(plain, r, x);
}
static vir_ref hypot_(vir *k, vir_ref x, vir_ref y)
{
    vir_ref a = vir_abs(k, x), b = vir_abs(k, y), m = vir_max(k, a, b), n = vir_min(k, a, b);
    vir_ref big = vir_gt(k, m, C(0x1p500)), small = LT(m, C(0x1p-450));
    vir_ref s = SEL(big, C(0x1p-600), SEL(small, C(0x1p600), C(1)));
    vir_ref back = SEL(big, C(0x1p600), SEL(small, C(0x1p-600), C(1)));
    m = MUL(m, s), n = MUL(n, s);
    vir_ref r = MUL(vir_sqrt(k, FMA(m, m, MUL(n, n))), back);
    vir_ref inf = vir_or(k, EQ(a, C(INFINITY)), EQ(b, C(INFINITY)));
    return SEL(inf, C(INFINITY), r);
}

/* log of a positive number as a sum of two. */
static void log_two(vir *k, vir_ref a, vir_ref *hi, vir_ref *lo)
{
    vir_ref sub = LT(a, C(0x1p-1022)), n = SEL(sub, MUL(a, C(0x1p54)), a), bits = vir_bitcast(k, VT_i64, n);
    vir_ref e = vir_sra(k, SUB(bits, vir_int(k, 0x3fe6a09e667f3bcdLL)), vir_int(k, 52)); /* of sqrt(1/2) */
    vir_ref m = vir_bitcast(k, VT_f64, SUB(bits, vir_shl(k, e, vir_int(k, 52))));
    vir_ref ef = SUB(vir_cvt(k, VT_f64, e), SEL(sub, C(54), C(0)));
    vir_ref f = SUB(m, C(1)), d = ADD(m, C(1)), dl = SUB(m, SUB(d, C(1)));
    vir_ref s = DIV(f, d), ns = vir_neg(k, s), sl = DIV(FMA(ns, dl, FMA(ns, d, f)), d), z = MUL(s, s);
    vir_ref q = C(2.0 / 25);
    for (int j = 23; j >= 3; j -= 2)
        q = FMA(q, z, C(2.0 / j));
    vir_ref t = MUL(MUL(s, z), q), s2 = ADD(s, s), h = MUL(ef, C(0x1.62e42fee00000p-1));
    vir_ref sum = ADD(h, s2), bb = SUB(sum, h), err = ADD(SUB(h, SUB(sum, bb)), SUB(s2, bb));
    vir_ref rest = ADD(FMA(ef, C(0x1.a39ef35793c76p-33), t), ADD(ADD(sl, sl), err));
    *hi = ADD(sum, rest);
    *lo = ADD(SUB(sum, *hi), rest);
}

static vir_ref pow_(vir *k, vir_ref x, vir_ref y)
{
    vir_ref a = vir_abs(k, x), ay = vir_abs(k, y), zero = C(0), one = C(1), inf = C(INFINITY), hi, lo;
    log_two(k, a, &hi, &lo);
    vir_ref p = MUL(y, hi), e = FMA(y, lo, FMA(y, hi, vir_neg(k, p))), x1 = vir_exp(k, p);
    vir_ref usual = vir_and(k, LT(x1, inf), vir_gt(k, x1, zero)), r = SEL(usual, FMA(x1, e, x1), x1);
    vir_ref up = vir_gt(k, y, zero);
    vir_ref ends = vir_or(k, EQ(a, zero), EQ(a, inf)); /* grows without bound or vanishes */
    r = SEL(ends, SEL(vir_xor(k, EQ(a, zero), up), inf, zero), r);
    vir_ref far = SEL(vir_xor(k, LT(a, one), up), inf, zero);
    r = SEL(EQ(ay, inf), SEL(EQ(a, one), one, far), r);
    vir_ref whole = EQ(vir_trunc(k, y), y), half = MUL(y, C(0.5));
    vir_ref odd = vir_and(k, whole, vir_ne(k, vir_trunc(k, half), half));
    vir_ref minus = LT(vir_copysign(k, one, x), zero);
    r = SEL(vir_and(k, minus, odd), vir_neg(k, r), r);
    vir_ref none = vir_and(k, vir_and(k, LT(x, zero), LT(a, inf)), vir_not(k, whole));
    r = SEL(none, C(NAN), r);
    vir_ref nan = vir_or(k, vir_ne(k, x, x), vir_ne(k, y, y));
    r = SEL(nan, ADD(x, y), r);
    return SEL(vir_or(k, EQ(y, zero), EQ(x, one)), one, r);
}

static const struct {
    const char *name;
    int nargs;
    vir_ref (*build)(vir *k, vir_ref x, vir_ref y);
} rows[] = { { "asinh", 1, asinh_ }, { "acosh", 1, acosh_ }, { "atanh", 1, atanh_ },
             { "cbrt", 1, cbrt_ },   { "hypot", 2, hypot_ }, { "pow", 2, pow_ } };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static arena memory; /* lives as long as the process */
static vir_frag *made[COUNT(rows)];

const vir_frag *cuda_math(const char *name)
{
    size_t i = 0;
    while (i < COUNT(rows) && strcmp(rows[i].name, name))
        i++;
    if (i == COUNT(rows))
        return NULL;
    pthread_mutex_lock(&lock);
    if (!made[i]) {
        vir_frag *f = ARENA_NEW(&memory, vir_frag);
        f->k = vir_make(&memory, name);
        f->name = name, f->nin = rows[i].nargs, f->nout = 1;
        vir_ref x = vir_frag_input(f->k, VT_f64, 0), y = f->nin == 2 ? vir_frag_input(f->k, VT_f64, 1) : 0;
        f->out[0] = rows[i].build(f->k, x, y);
        assert(!f->k->err);
        made[i] = f;
    }
    pthread_mutex_unlock(&lock);
    return made[i];
}
