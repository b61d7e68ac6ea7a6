/* vmath.c - the fragments: what math operations and reductions consist of, written once in the vector IR. */
#define _GNU_SOURCE
#include "vir/vir.h"
#include "vir/math/vmath.h"
#include <math.h>
#include <pthread.h>

/* --- libm, lane by lane: functions without a polynomial of their own, and the rare lanes of those that have
 * one -- */
#define ROW1(fn)                      \
    {                                 \
#fn, 1, fn, fn##f, NULL, NULL \
    }
#define ROW2(fn)                      \
    {                                 \
#fn, 2, NULL, NULL, fn, fn##f \
    }
const vir_call_row vir_calls[] = {
    ROW1(sin),   ROW1(cos),       ROW1(tan),       ROW1(asin),
    ROW1(acos),  ROW1(atan),      ROW1(sinh),      ROW1(cosh),
    ROW1(tanh),  ROW1(asinh),     ROW1(acosh),     ROW1(atanh),
    ROW1(exp),   ROW1(exp2),      ROW1(expm1),     ROW1(log),
    ROW1(log2),  ROW1(log10),     ROW1(log1p),     ROW1(erf),
    ROW1(erfc),  ROW1(cbrt),      ROW1(lgamma),    ROW1(tgamma),
    ROW1(round), ROW1(j0),        ROW1(j1),        ROW1(y0),
    ROW1(y1),    ROW2(pow),       ROW2(atan2),     ROW2(hypot),
    ROW2(fmod),  ROW2(nextafter), ROW2(remainder), { NULL, 0, NULL, NULL, NULL, NULL },
};
int vir_call_find(const char *name)
{
    for (int i = 0; vir_calls[i].name; i++)
        if (!strcmp(vir_calls[i].name, name))
            return i;
    return -1;
}

/* --- the table
 * ------------------------------------------------------------------------------------------------ */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* fragments use fragments */
static arena frag_arena; /* lives as long as the process: fragments are shared by every kernel */
static vir_frag *math_frags[VIR_COUNT][2];
static vir_frag *red_frags[2][RED_COUNT][VT_mask + 1][2];

static vir_ref input(vir *k, vir_type t, int n) { return vir_frag_input(k, t, n); }

static vir_frag *frag_start(const char *name, const char *what, vir_type t)
{
    vir_frag *f = ARENA_NEW(&frag_arena, vir_frag);
    f->name = arena_printf(&frag_arena, "%s%s_%s", name, what, vir_type_name(t));
    f->k = vir_make(&frag_arena, f->name);
    return f;
}

/* Fragments have no stores: everything reachable from the outputs is live, the rest is marked dead here. */
static vir_frag *frag_done(vir_frag *f)
{
    vir *k = f->k;
    bool wide = false;
    assert(!k->err);
    for (int i = 1; i < k->n; i++)
        k->ins[i].dead = 1, k->ins[i].uses = 0;
    for (int i = 0; i < f->nout; i++)
        k->ins[f->out[i]].dead = 0, k->ins[f->out[i]].uses++;
    for (int i = k->n - 1; i > 0; i--) { /* operands always precede: one pass is enough */
        vir_ins *in = &k->ins[i];
        vir_ref ops[4] = { in->a, in->b, in->c, in->d };
        for (int j = 0; j < 4 && !in->dead; j++)
            if (ops[j])
                k->ins[ops[j]].dead = 0, k->ins[ops[j]].uses++;
    }
    for (int i = 1; i < k->n; i++)
        wide |= !k->ins[i].dead &&
                (k->ins[i].type == VT_f64 || k->ins[i].type == VT_i64 ||
                 (vir_is_math((vir_op)k->ins[i].op) &&
                  vir_frag_math((vir_op)k->ins[i].op, (vir_type)k->ins[i].type)->k->lanes == 8));
    k->lanes = wide ? 8 : 16;
    k->ways = 1;
    return f;
}

static vir_frag *math_build(vir_op op, vir_type t)
{
    vir_frag *f = frag_start(vir_op_name[op], "", t);
    f->nin = op >= VIR_pow ? 2 : 1;
    f->nout = 1;
    vir_ref x = input(f->k, t, 0), y = f->nin == 2 ? input(f->k, t, 1) : 0;
    f->out[0] = vmath_build(f->k, op, x, y);
    if (!f->out[0])
        f->out[0] = vir_call(f->k, vir_op_name[op], x, y);
    return frag_done(f);
}

static vir_ref red_is_better(vir *k, vir_red_kind kind, vir_type t, vir_ref v, vir_ref i, vir_ref bv,
                             vir_ref bi)
{
    /* v beats the best so far: strictly better, or NaN over a number, or equal and earlier (of cum*: later). */
    bool max = kind == RED_argmax || kind == RED_cummax, late = kind == RED_cummax || kind == RED_cummin;
    vir_ref better = max ? vir_gt(k, v, bv) : vir_lt(k, v, bv);
    vir_ref same = vir_eq(k, v, bv);
    if (t == VT_f32 || t == VT_f64) {
        vir_ref nv = vir_ne(k, v, v), nb = vir_ne(k, bv, bv);
        better = vir_or(k, better, vir_and(k, nv, vir_not(k, nb)));
        same = vir_or(k, same, vir_and(k, nv, nb));
    }
    return vir_or(k, better, vir_and(k, same, late ? vir_gt(k, i, bi) : vir_lt(k, i, bi)));
}

/* Joins two Welford states. Counts of 0 divide 0 by 1 instead of 0 by 0. */
static void welford_join(vir *k, vir_type t, const vir_ref *p, vir_ref *out)
{
    vir_ref one = vir_flt(k, t, 1), n = vir_add(k, p[2], p[5]), d = vir_sub(k, p[3], p[0]);
    vir_ref w = vir_div(k, p[5], vir_max(k, n, one));
    out[0] = vir_fma(k, d, w, p[0]);
    out[1] = vir_fma(k, vir_mul(k, d, d), vir_mul(k, p[2], w), vir_add(k, p[1], p[4]));
    out[2] = n;
}

/* exp(x - m), 0 when x is -inf even though m may be -inf too. */
static vir_ref exp_from(vir *k, vir_type t, vir_ref x, vir_ref m)
{
    vir_ref e = vir_expn(k, vir_sub(k, x, m));
    return vir_select(k, vir_eq(k, x, vir_flt(k, t, -INFINITY)), vir_flt(k, t, 0), e);
}

/* log(e^v + e^x); equal infinities stay what they are */
static vir_ref log_add(vir *k, vir_type t, vir_ref v, vir_ref x)
{
    vir_ref up = vir_gt(k, x, v), hi = vir_select(k, up, x, v), lo = vir_select(k, up, v, x);
    vir_ref r = vir_add(k, hi, vir_log1p(k, vir_expn(k, vir_sub(k, lo, hi))));
    vir_ref equal = vir_and(k, vir_eq(k, hi, lo), vir_eq(k, vir_abs(k, hi), vir_flt(k, t, INFINITY)));
    vir_ref nan = vir_or(k, vir_ne(k, v, v), vir_ne(k, x, x));
    return vir_select(k, nan, vir_flt(k, t, NAN), vir_select(k, equal, hi, r));
}

static void red_build(vir_frag *f, bool merge, vir_red_kind kind, vir_type t, vir_type it)
{
    static const vir_op plain[] = { [RED_sum] = VIR_add, [RED_prod] = VIR_mul, [RED_min] = VIR_min,
                                    [RED_max] = VIR_max, [RED_any] = VIR_or,   [RED_all] = VIR_and };
    vir *k = f->k;
    int n = vir_red_parts(kind);
    vir_red_info r = { .kind = kind, .type = t, .itype = it };
    vir_ref p[8] = { 0 };
    bool arg = vir_red_places(kind);
    f->nin = merge ? 2 * n : n + (arg ? 2 : 1);
    f->nout = n;
    for (int i = 0; i < f->nin; i++)
        p[i] = input(k, vir_red_part_type(&r, i % n), i);
    if (kind <= RED_all) { /* of extremes the test for NaN falls on what comes in, which nobody waits for */
        f->out[0] = vir_op2(k, plain[kind], p[1], p[0]);
    } else if (arg) {
        vir_ref m = red_is_better(k, kind, t, p[2], p[3], p[0], p[1]);
        f->out[0] = vir_select(k, m, p[2], p[0]);
        f->out[1] = vir_select(k, m, p[3], p[1]);
    } else if (kind == RED_lse) {
        f->out[0] = log_add(k, t, p[0], p[1]);
    } else if (kind == RED_welford && merge) {
        welford_join(k, t, p, f->out);
    } else if (kind == RED_welford) {
        vir_ref cnt = vir_add(k, p[2], vir_flt(k, t, 1)), d = vir_sub(k, p[3], p[0]);
        f->out[0] = vir_add(k, p[0], vir_div(k, d, cnt));
        f->out[1] = vir_fma(k, d, vir_sub(k, p[3], f->out[0]), p[1]);
        f->out[2] = cnt;
    } else if (merge) { /* RED_softmax */
        vir_ref m = vir_max(k, p[0], p[2]);
        f->out[0] = m;
        f->out[1] = vir_add(k, vir_mul(k, p[1], exp_from(k, t, p[0], m)),
                            vir_mul(k, p[3], exp_from(k, t, p[2], m)));
    } else {
        vir_ref m = vir_max(k, p[0], p[2]);
        f->out[0] = m;
        f->out[1] = vir_fma(k, p[1], exp_from(k, t, p[0], m), exp_from(k, t, p[2], m));
    }
}

const vir_frag *vir_frag_math(vir_op op, vir_type t)
{
    vir_frag **slot = &math_frags[op][t == VT_f32], *f = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (f)
        return f;
    pthread_mutex_lock(&lock);
    f = *slot;
    if (!f)
        __atomic_store_n(slot, f = math_build(op, t), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return f;
}

const vir_frag *vir_frag_normal(vir_type t)
{
    static vir_frag *frags[2];
    vir_frag **slot = &frags[t == VT_f32], *f = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (f)
        return f;
    pthread_mutex_lock(&lock);
    f = *slot;
    if (!f) {
        vir_type it = t == VT_f32 ? VT_i32 : VT_i64;
        f = frag_start("normal", "", t);
        f->nin = f->nout = 2;
        vmath_normal(f->k, input(f->k, it, 0), input(f->k, it, 1), f->out);
        __atomic_store_n(slot, frag_done(f), __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return f;
}

static const vir_frag *red_frag(bool merge, vir_red_kind kind, vir_type t, vir_type it)
{
    static const char *const names[RED_COUNT] = { "sum",    "prod",   "min",    "max",     "any",
                                                  "all",    "argmin", "argmax", "welford", "softmax",
                                                  "cummin", "cummax", "lse" };
    vir_frag **slot = &red_frags[merge][kind][t][it == VT_i32], *f = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (f)
        return f;
    pthread_mutex_lock(&lock);
    f = *slot;
    if (!f) {
        f = frag_start(names[kind],
                       merge          ? it == VT_i32 ? "_merge32" : "_merge"
                       : it == VT_i32 ? "_step32"
                                      : "_step",
                       t);
        red_build(f, merge, kind, t, it);
        __atomic_store_n(slot, frag_done(f), __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return f;
}
const vir_frag *vir_frag_step(vir_red_kind kind, vir_type t, vir_type it)
{
    return red_frag(false, kind, t, it);
}
const vir_frag *vir_frag_merge(vir_red_kind kind, vir_type t, vir_type it)
{
    return red_frag(true, kind, t, it);
}
