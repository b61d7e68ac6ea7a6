/* range.c - interval arithmetic with infinities, and ranges that tighten as facts arrive.
 * A cached range is never wrong, only wider than need be, since facts only narrow; so refreshing it may
 * stop early and no question costs more than a fixed amount of work. */
#include "sym/expr.h"

enum { REFRESH_DEPTH = 40, REFRESH_PARTS = 1000 };
static const sx_range everything = { SYM_NEG_OO, SYM_OO };

static bool is_finite(int64_t x) { return x != SYM_OO && x != SYM_NEG_OO; }
static int64_t add(int64_t a, int64_t b, int64_t toward) /* an undefined sum is as wide as can be */
{
    int64_t r;
    if (!is_finite(a) || !is_finite(b)) {
        bool plus = a == SYM_OO || b == SYM_OO, minus = a == SYM_NEG_OO || b == SYM_NEG_OO;
        return plus && minus ? toward : plus ? SYM_OO : SYM_NEG_OO;
    }
    return !__builtin_add_overflow(a, b, &r) ? r : a > 0 ? SYM_OO : SYM_NEG_OO;
}
static int64_t mul(int64_t a, int64_t b)
{
    int64_t r;
    if (a == 0 || b == 0)
        return 0;
    if (is_finite(a) && is_finite(b) && !__builtin_mul_overflow(a, b, &r) && is_finite(r))
        return r;
    return (a < 0) == (b < 0) ? SYM_OO : SYM_NEG_OO;
}
static sx_range sum(sx_range a, sx_range b)
{
    return (sx_range){ add(a.lo, b.lo, SYM_NEG_OO), add(a.hi, b.hi, SYM_OO) };
}
static sx_range product(sx_range a, sx_range b)
{
    int64_t p[4] = { mul(a.lo, b.lo), mul(a.lo, b.hi), mul(a.hi, b.lo), mul(a.hi, b.hi) };
    return (sx_range){ MIN(MIN(p[0], p[1]), MIN(p[2], p[3])), MAX(MAX(p[0], p[1]), MAX(p[2], p[3])) };
}
sx_range sx_range_scale(sx_range r, int64_t k, int64_t c)
{
    return sum(product(r, (sx_range){ k, k }), (sx_range){ c, c });
}

static int64_t raise(int64_t x, int64_t n)
{
    int64_t r = 1;
    if (x == 0 || x == 1 || x == -1)
        return x == -1 && n % 2 == 0 ? 1 : x;
    for (; n > 0 && is_finite(r); n--)
        r = mul(r, x);
    return is_finite(r) ? r : x < 0 && n % 2 ? mul(r, -1) : r;
}
static sx_range power(sx_range r, int64_t n)
{
    if (n == 1)
        return r;
    int64_t a = raise(r.lo, n), b = raise(r.hi, n);
    if (r.lo >= 0)
        return (sx_range){ a, b };
    if (n % 2 == 0)
        return (sx_range){ r.hi < 0 ? MIN(a, b) : 0, MAX(a, b) };
    return (sx_range){ a, b };
}

int64_t sx_floordiv(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
static int64_t div_end(int64_t a, int64_t b) /* b > 0 */
{
    if (b == SYM_OO)
        return a < 0 ? -1 : 0;
    return is_finite(a) ? sx_floordiv(a, b) : a;
}
static sx_range quotient(sx_range a, sx_range b)
{
    if (b.lo <= 0)
        return everything;
    int64_t p[4] = { div_end(a.lo, b.lo), div_end(a.lo, b.hi), div_end(a.hi, b.lo), div_end(a.hi, b.hi) };
    return (sx_range){ MIN(p[0], p[1]), MAX(p[2], p[3]) };
}
static sx_range remainder_of(sx_range a, sx_range b)
{
    if (b.lo > 0) {
        int64_t top = b.hi == SYM_OO ? SYM_OO : b.hi - 1;
        return (sx_range){ 0, a.lo >= 0 ? MIN(top, a.hi) : top };
    }
    if (b.hi < 0)
        return (sx_range){ b.lo == SYM_NEG_OO ? SYM_NEG_OO : b.lo + 1, 0 };
    return everything;
}

typedef enum { NOW, BASE, BIG } mode; /* BIG: unbacked sizes are neither 0 nor 1 */
static sx_range refresh(sym_expr *e, int depth);
static sx_range derive(const sym_expr *e, mode m, int depth);

static sx_range part(symint v, mode m, int depth)
{
    if (!sym_is_expr(v))
        return (sx_range){ v, v };
    sym_expr *e = sx_of(v);
    if (m == BASE)
        return e->base;
    if (--e->env->budget < 0 || depth > REFRESH_DEPTH)
        return e->now;
    return m == NOW ? refresh(e, depth) : derive(e, BIG, depth + 1);
}

static sx_range meet(sx_range a, sx_range b) { return (sx_range){ MAX(a.lo, b.lo), MIN(a.hi, b.hi) }; }

/* From the parts of e alone. */
static sx_range derive(const sym_expr *e, mode m, int depth)
{
    sx_range r = { e->c, e->c };
    switch (e->kind) {
    case SX_sym:
        if (m == BIG && e->unbacked && e->s->is_size)
            return (sx_range){ MAX(e->now.lo, 2), MAX(e->now.hi, 2) };
        return m == BASE ? e->base : e->now;
    case SX_add:
        for (int i = 0; i < e->n; i++)
            r = sum(r, sx_range_scale(part(sym_of_expr(e->t[i].e), m, depth), e->t[i].k, 0));
        return r;
    case SX_mul:
        r = (sx_range){ 1, 1 };
        for (int i = 0; i < e->n; i++)
            r = product(r, power(part(sym_of_expr(e->t[i].e), m, depth), e->t[i].k));
        return r;
    case SX_floordiv: return quotient(part(e->a[0], m, depth), part(e->a[1], m, depth));
    case SX_mod: return remainder_of(part(e->a[0], m, depth), part(e->a[1], m, depth));
    case SX_min:
    case SX_max:
        r = part(e->a[0], m, depth);
        for (int i = 1; i < e->n; i++) {
            sx_range x = part(e->a[i], m, depth);
            r = e->kind == SX_min ? (sx_range){ MIN(r.lo, x.lo), MIN(r.hi, x.hi) }
                                  : (sx_range){ MAX(r.lo, x.lo), MAX(r.hi, x.hi) };
        }
        return r;
    default: return (sx_range){ 0, 1 };
    }
}

void sx_range_init(sym_expr *e)
{
    e->base = derive(e, BASE, 0);
    e->ranged_at = e->env->facts - 1;
    e->now = e->base;
}

static sx_range refresh(sym_expr *e, int depth)
{
    sym_env *env = e->env;
    sym_expr *L;
    int64_t k, c;

    if (e->ranged_at == env->facts || depth > REFRESH_DEPTH || env->budget < 0)
        return e->now;
    e->ranged_at = env->facts; /* first: a node met again meanwhile uses the range it has */
    sx_range r = meet(e->now, derive(e, NOW, depth + 1));
    /* What is known of s0 - s1 also bounds 2*s1 - 2*s0 + 3. */
    if (e->kind == SX_add && sx_split(e, &L, &k, &c, false) && L != e)
        r = meet(r, sx_range_scale(refresh(L, depth + 1), k, c));
    if (r.lo <= r.hi) /* contradictory facts say nothing */
        e->now = r;
    return e->now;
}

sx_range sx_range_of(symint v)
{
    if (!sym_is_expr(v))
        return (sx_range){ v, v };
    sym_expr *e = sx_of(v);
    if (e->env->raw)
        return (sx_range){ SYM_NEG_OO, SYM_OO };
    if (e->env->pure)
        return e->base;
    e->env->budget = REFRESH_PARTS;
    return refresh(e, 0);
}

sx_range sx_range_big(symint v)
{
    if (sym_is_expr(v))
        sx_of(v)->env->budget = REFRESH_PARTS;
    return part(v, BIG, 0);
}

bool sx_narrow(sym_expr *e, sx_range r)
{
    sx_range m = meet(sx_range_of(sym_of_expr(e)), r);
    if (m.lo > m.hi)
        return false;
    if (m.lo == e->now.lo && m.hi == e->now.hi)
        return true;
    e->now = m;
    e->env->facts++;
    e->ranged_at = e->env->facts;
    return true;
}

void sym_range(symint v, int64_t *lo, int64_t *hi)
{
    sx_range r = sx_range_of(sym_simplify(v));
    *lo = r.lo;
    *hi = r.hi;
}

void sym_declared(symint symbol, int64_t *lo, int64_t *hi)
{
    sx_range r = sx_of(symbol)->s->declared;
    *lo = r.lo;
    *hi = r.hi;
}

void sym_range_print(strbuf *out, int64_t lo, int64_t hi)
{
    strbuf_addc(out, '[');
    if (lo == SYM_NEG_OO)
        strbuf_add(out, "-int_oo");
    else
        strbuf_addf(out, "%lld", (long long)lo);
    if (hi == SYM_OO)
        strbuf_add(out, ", int_oo]");
    else
        strbuf_addf(out, ", %lld]", (long long)hi);
}
