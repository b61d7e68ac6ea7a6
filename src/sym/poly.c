/* poly.c - arithmetic on canonical sums of products.
 * Products are expanded while the result has at most SX_MAX_TERMS terms and coefficients that fit; beyond that their
 * factors stay factors. A sum of too many terms takes an operand as an atom. So every operation is bounded, whatever
 * the program does, and only monsters lose the one-pointer property. A sum whose coefficients do not fit is an error:
 * its value could not be computed either. */
#include "sym/expr.h"

typedef struct {
    int64_t c;
    const sx_term *t;
    int n;
    sx_term one; /* what t points to when the value is a single product or atom */
} view;
typedef struct {
    int64_t c;
    int n, cap;
    sx_term *t;
    bool overflow, many; /* a number does not fit; more than SX_MAX_TERMS terms */
    sx_term room[24];
} poly;

static void view_opaque(view *v, symint x)
{
    v->one = (sx_term){ sym_expr_of(x), 1 };
    v->c = 0, v->t = &v->one, v->n = 1;
}

static void view_of(view *v, symint x)
{
    if (!sym_is_expr(x))
        v->c = x, v->t = NULL, v->n = 0;
    else if (sx_of(x)->kind == SX_add)
        v->c = sx_of(x)->c, v->t = sx_of(x)->t, v->n = sx_of(x)->n;
    else
        view_opaque(v, x);
}

static void poly_init(poly *p) { *p = (poly){ .t = p->room, .cap = COUNT(p->room) }; }
static void poly_free(poly *p)
{
    if (p->t != p->room)
        free(p->t);
}

static void poly_push(poly *p, const sym_expr *e, int64_t k)
{
    if (p->n == p->cap) {
        p->cap *= 2;
        if (p->t == p->room) {
            p->t = mem_alloc((size_t)p->cap * sizeof *p->t);
            memcpy(p->t, p->room, sizeof p->room);
        } else
            p->t = mem_realloc(p->t, (size_t)p->cap * sizeof *p->t);
    }
    p->t[p->n++] = (sx_term){ e, k };
    p->overflow |= !sx_fits(k); /* so that it can be negated, printed and read */
}

static void add_const(poly *p, int64_t k, int64_t v)
{
    int64_t x;
    p->overflow |= __builtin_mul_overflow(k, v, &x) || __builtin_add_overflow(p->c, x, &p->c) ||
                   !sx_fits(p->c);
}

/* ka*A + kb*B, terms in order. */
static void merge(poly *p, const view *a, int64_t ka, const view *b, int64_t kb)
{
    int i = 0, j = 0;

    add_const(p, ka, a->c);
    add_const(p, kb, b->c);
    while ((ka && i < a->n) || (kb && j < b->n)) {
        bool left = ka && i < a->n, right = kb && j < b->n;
        uint32_t ia = left ? a->t[i].e->id : UINT32_MAX, ib = right ? b->t[j].e->id : UINT32_MAX;
        int64_t k = 0, x = 0;
        const sym_expr *e = ia <= ib ? a->t[i].e : b->t[j].e;
        if (ia <= ib)
            p->overflow |= __builtin_mul_overflow(ka, a->t[i++].k, &k);
        if (ib <= ia)
            p->overflow |= __builtin_mul_overflow(kb, b->t[j++].k, &x) || __builtin_add_overflow(k, x, &k);
        if (k)
            poly_push(p, e, k);
    }
    p->many = p->n > SX_MAX_TERMS;
}

static symint make_sum(sym_env *env, const poly *p)
{
    if (p->n == 0)
        return sx_const(env, p->c);
    if (p->n == 1 && p->t[0].k == 1 && p->c == 0)
        return sx_value(sx_mut(p->t[0].e));
    return sx_value(sx_intern(env, SX_add, p->n, p->t, p->c));
}

bool sx_linear_fits(sym_env *env, symint a, int64_t ka, symint b, int64_t kb, symint *out)
{
    view va, vb;
    poly p;

    view_of(&va, a);
    view_of(&vb, b);
    poly_init(&p);
    merge(&p, &va, ka, &vb, kb);
    if (p.many && !p.overflow) {
        if (sym_is_expr(a))
            view_opaque(&va, a);
        if (sym_is_expr(b))
            view_opaque(&vb, b);
        poly_free(&p);
        poly_init(&p);
        merge(&p, &va, ka, &vb, kb);
    }
    bool fits = !p.overflow;
    *out = fits ? make_sum(env, &p) : 0;
    poly_free(&p);
    return fits;
}

symint sx_linear(sym_env *env, symint a, int64_t ka, symint b, int64_t kb)
{
    symint r;
    return sx_linear_fits(env, a, ka, b, kb, &r) ? r : sx_overflow(env);
}

/* --- products ------------------------------------------------------------------------------------------ */
static void factors(const sym_expr *e, const sx_term **t, int *n, sx_term *one)
{
    if (e->kind == SX_mul) {
        *t = e->t, *n = e->n;
        return;
    }
    *one = (sx_term){ e, 1 };
    *t = one, *n = 1;
}

static sym_expr *make_product(sym_env *env, const sx_term *t, int n)
{
    return n == 1 && t[0].k == 1 ? sx_mut(t[0].e) : sx_intern(env, SX_mul, n, t, 0);
}

static sym_expr *mono_mul(sym_env *env, const sym_expr *a, const sym_expr *b)
{
    const sx_term *ta, *tb;
    sx_term one_a, one_b, out[SX_MAX_ARGS];
    int na, nb, n = 0, i = 0, j = 0;

    factors(a, &ta, &na, &one_a);
    factors(b, &tb, &nb, &one_b);
    if (na + nb > SX_MAX_ARGS)
        goto opaque;
    while (i < na || j < nb) {
        uint32_t ia = i < na ? ta[i].e->id : UINT32_MAX, ib = j < nb ? tb[j].e->id : UINT32_MAX;
        sx_term t = ia <= ib ? ta[i] : tb[j];
        if (ia == ib)
            t.k += tb[j].k;
        if (t.k > SX_MAX_POWER)
            goto opaque;
        i += ia <= ib;
        j += ib <= ia;
        out[n++] = t;
    }
    return make_product(env, out, n);
opaque:
    if (a == b)
        return make_product(env, &(sx_term){ a, 2 }, 1);
    bool swap = a->id > b->id;
    return make_product(env, (sx_term[]){ { swap ? b : a, 1 }, { swap ? a : b, 1 } }, 2);
}

static int by_id(const void *pa, const void *pb)
{
    const sx_term *a = pa, *b = pb;
    return (a->e->id > b->e->id) - (a->e->id < b->e->id);
}

static void add_value(poly *p, symint v, int64_t k)
{
    if (sym_is_expr(v))
        poly_push(p, sym_expr_of(v), k);
    else
        add_const(p, k, v);
}

/* Sorts and joins equal terms. A product that is known to be a sum cannot occur: sx_value gives constants. */
static void tidy(poly *p)
{
    int n = 0;
    qsort(p->t, (size_t)p->n, sizeof *p->t, by_id);
    for (int i = 0; i < p->n;) {
        sx_term t = p->t[i++];
        for (; i < p->n && p->t[i].e == t.e; i++)
            p->overflow |= __builtin_add_overflow(t.k, p->t[i].k, &t.k);
        p->overflow |= !sx_fits(t.k);
        if (t.k)
            p->t[n++] = t;
    }
    p->n = n;
}

/* b already holds the sum a as an unexpanded factor: P * P**2 is P**3. */
static bool holds_factor(symint b, symint a)
{
    if (!sx_is(a, SX_add) || !sx_is(b, SX_mul))
        return false;
    for (int i = 0; i < sx_of(b)->n; i++)
        if (sx_of(b)->t[i].e == sx_of(a))
            return true;
    return false;
}

static symint multiply(sym_env *env, symint a, symint b)
{
    view va, vb;
    poly p;
    symint r;

    if (!sym_is_expr(a))
        return sx_linear(env, b, a, 0, 0);
    if (!sym_is_expr(b))
        return sx_linear(env, a, b, 0, 0);
    view_of(&va, a);
    view_of(&vb, b);
    if (((va.n + 1) * (vb.n + 1) > SX_MAX_TERMS && va.n > 1 && vb.n > 1) || holds_factor(a, b) ||
        holds_factor(b, a)) {
        view_opaque(&va, a);
        view_opaque(&vb, b);
    }
again:
    poly_init(&p);
    add_const(&p, va.c, vb.c);
    for (int i = 0; i < va.n; i++) {
        int64_t k;
        for (int j = 0; j < vb.n; j++) {
            p.overflow |= __builtin_mul_overflow(va.t[i].k, vb.t[j].k, &k);
            if (!p.overflow)
                add_value(&p, sx_value(mono_mul(env, va.t[i].e, vb.t[j].e)), k);
        }
        p.overflow |= __builtin_mul_overflow(va.t[i].k, vb.c, &k);
        if (k)
            poly_push(&p, va.t[i].e, k);
    }
    for (int j = 0; j < vb.n; j++) {
        int64_t k;
        p.overflow |= __builtin_mul_overflow(vb.t[j].k, va.c, &k);
        if (k)
            poly_push(&p, vb.t[j].e, k);
    }
    tidy(&p);
    p.many = p.n > SX_MAX_TERMS;
    bool sums = va.n + (va.c != 0) > 1 || vb.n + (vb.c != 0) > 1;
    if ((p.overflow || p.many) && sums && (va.t != &va.one || vb.t != &vb.one)) {
        poly_free(&p);
        view_opaque(&va, a);
        view_opaque(&vb, b);
        goto again;
    }
    r = p.overflow ? sx_overflow(env) : make_sum(env, &p);
    poly_free(&p);
    return r;
}

symint sym_pow(symint a, int64_t n)
{
    symint r = 1;
    while (n > 0) {
        if (n & 1)
            r = sym_mul(r, a);
        n >>= 1;
        if (n)
            a = sym_mul(a, a);
    }
    return r;
}

/* --- division ------------------------------------------------------------------------------------------- */
/* m / d as products; NULL when d does not divide it; *one when they are equal. */
static sym_expr *mono_div(sym_env *env, const sym_expr *m, const sym_expr *d, bool *one)
{
    const sx_term *tm, *td;
    sx_term one_m, one_d, out[SX_MAX_ARGS];
    int nm, nd, n = 0, j = 0;

    factors(m, &tm, &nm, &one_m);
    factors(d, &td, &nd, &one_d);
    *one = false;
    if (nm > SX_MAX_ARGS)
        return NULL;
    for (int i = 0; i < nm; i++) {
        sx_term t = tm[i];
        if (j < nd && td[j].e == t.e)
            t.k -= td[j++].k;
        if (t.k < 0)
            return NULL;
        if (t.k)
            out[n++] = t;
    }
    if (j < nd)
        return NULL;
    *one = n == 0;
    return n ? make_product(env, out, n) : NULL;
}

/* k*e / (kd*d) added to q; false, with q unchanged, when it does not divide. */
static bool term_div(sym_env *env, poly *q, sx_term t, sx_term d)
{
    bool one;
    if (t.k % d.k)
        return false;
    sym_expr *e = mono_div(env, t.e, d.e, &one);
    if (e)
        add_value(q, sx_value(e), t.k / d.k);
    else if (one)
        add_const(q, 1, t.k / d.k);
    return e || one;
}

int sx_mono_cmp(const sym_expr *a, const sym_expr *b)
{
    const sx_term *ta, *tb;
    sx_term one_a, one_b;
    int na, nb;

    factors(a, &ta, &na, &one_a);
    factors(b, &tb, &nb, &one_b);
    for (int i = 0; i < na && i < nb; i++) {
        if (ta[i].e != tb[i].e)
            return ta[i].e->id < tb[i].e->id ? -1 : 1;
        if (ta[i].k != tb[i].k)
            return ta[i].k > tb[i].k ? -1 : 1;
    }
    return nb - na;
}

static sx_term leading(const view *v)
{
    sx_term t = v->t[0];
    for (int i = 1; i < v->n; i++)
        if (sx_mono_cmp(v->t[i].e, t.e) < 0)
            t = v->t[i];
    return t;
}

symint sx_div_exact(sym_env *env, symint a, symint b, bool *ok)
{
    symint q = 0;
    view vb;

    *ok = false;
    view_of(&vb, b);
    if (vb.n == 0 || vb.n > 16 || env->err.kind != ERR_none)
        return 0;
    sx_term lead = leading(&vb);
    for (int round = 0; round < 40; round++) {
        view va;
        poly one;
        view_of(&va, a);
        if (va.n == 0) {
            *ok = a == 0;
            return q;
        }
        poly_init(&one);
        bool divides = term_div(env, &one, leading(&va), lead);
        symint x = divides && !one.overflow ? make_sum(env, &one) : 0;
        poly_free(&one);
        if (!divides)
            return 0;
        q = sym_add(q, x);
        a = sx_linear(env, a, 1, multiply(env, x, b), -1);
        if (env->err.kind !=
            ERR_none) { /* a step that does not fit is no quotient, and no fault of the caller */
            err_clear(&env->err);
            return 0;
        }
    }
    return 0;
}

/* a == b*q + rest with every term that b (a single product, or a constant d) divides in q. Also the
 * constant part: 0 <= constant of rest < d. */
static void divide_terms(sym_env *env, symint a, symint b, symint *q, symint *rest)
{
    view va, vb;
    poly pq, pr;
    bool constant = !sym_is_expr(b);

    view_of(&va, a);
    view_of(&vb, b);
    poly_init(&pq);
    poly_init(&pr);
    for (int i = 0; i < va.n; i++) {
        if (constant ? va.t[i].k % b == 0 : term_div(env, &pq, va.t[i], vb.t[0])) {
            if (constant)
                poly_push(&pq, va.t[i].e, va.t[i].k / b);
        } else
            poly_push(&pr, va.t[i].e, va.t[i].k);
    }
    pr.c = va.c;
    if (constant) {
        pq.c = sx_floordiv(va.c, b);
        pr.c = va.c - pq.c * b;
    }
    tidy(&pq);
    *q = make_sum(env, &pq);
    *rest = make_sum(env, &pr);
    poly_free(&pq);
    poly_free(&pr);
}

static bool nonzero(symint v)
{
    sx_range r = sx_range_of(v);
    return r.lo > 0 || r.hi < 0;
}

static int64_t gcd(int64_t a, int64_t b)
{
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    while (y) {
        uint64_t t = x % y;
        x = y;
        y = t;
    }
    return x > INT64_MAX ? 1 : (int64_t)x;
}

static int64_t coefficient_gcd(const view *v)
{
    int64_t g = 0;
    for (int i = 0; i < v->n; i++)
        g = gcd(g, v->t[i].k);
    return g ? g : 1;
}

/* (k*e... + c) with every coefficient and c divided by g; exact for the terms, floor for c. */
static symint reduce(sym_env *env, symint a, int64_t g)
{
    symint q, rest;
    divide_terms(env, a, g, &q, &rest);
    return q;
}

static symint floordiv(sym_env *env, symint a, symint b)
{
    symint q = 0, rest = a;
    bool ok;

    if (b == 1)
        return a;
    if (!sym_is_expr(b) && b < 0)
        return floordiv(env, sx_linear(env, a, -1, 0, 0), -b);
    if (!sym_is_expr(b) || nonzero(b)) {
        view vb;
        view_of(&vb, b);
        if (!sym_is_expr(b) || (vb.n == 1 && vb.c == 0))
            divide_terms(env, a, b, &q, &rest);
        else {
            q = sx_div_exact(env, a, b, &ok);
            if (ok)
                return q;
            q = 0;
        }
        sx_range r = sx_range_of(rest), d = sx_range_of(b);
        if (rest == 0 || (d.lo > 0 && r.lo >= 0 && r.hi < d.lo))
            return q;
    }
    if (!sym_is_expr(rest) && !sym_is_expr(b))
        return sym_add(q, sym_floordiv(rest, b));
    if (!sym_is_expr(b)) {
        view vr;
        view_of(&vr, rest);
        int64_t g = gcd(coefficient_gcd(&vr), b);
        if (g > 1) { /* (4*x + 2*y + 1) // 6 is (2*x + y) // 3 */
            rest = reduce(env, rest, g);
            b /= g;
        }
        sym_expr *e = sx_of(rest);
        int64_t bb;
        if (sx_is(rest, SX_floordiv) && !sym_is_expr(e->a[1]) && e->a[1] > 0 &&
            !__builtin_mul_overflow(e->a[1], b, &bb) && bb < SYM_LIMIT)
            return sym_add(q, floordiv(env, e->a[0], bb)); /* x//2//3 is x//6 */
    }
    return sym_add(q, sx_value(sx_intern(env, SX_floordiv, 2, (symint[]){ rest, b }, 0)));
}

static symint modulo(sym_env *env, symint a, symint b)
{
    symint q, rest = a;
    int64_t g = 1;
    bool ok;

    if (b == 1 || b == -1)
        return 0;
    if (!sym_is_expr(b) && b < 0) /* Python: the sign of the divisor */
        return sx_linear(env, modulo(env, sx_linear(env, a, -1, 0, 0), -b), -1, 0, 0);
    if (!sym_is_expr(b)) {
        view va;
        poly p;
        view_of(&va, a);
        poly_init(&p);
        for (int i = 0; i < va.n; i++)
            if (va.t[i].k % b)
                poly_push(&p, va.t[i].e, sx_mod(va.t[i].k, b));
        p.c = sx_mod(va.c, b);
        rest = make_sum(env, &p);
        poly_free(&p);
        if (!sym_is_expr(rest))
            return sym_mod(rest, b);
        view_of(&va, rest);
        g = gcd(gcd(coefficient_gcd(&va), va.c), b);
        if (g > 1) { /* (4*x) % 6 is 2*((2*x) % 3) */
            symint m = modulo(env, reduce(env, rest, g), b / g);
            return sx_linear(env, m, g, 0, 0);
        }
    } else if (nonzero(b)) {
        view vb;
        view_of(&vb, b);
        if (vb.n == 1 && vb.c == 0)
            divide_terms(env, a, b, &q, &rest);
        else {
            sx_div_exact(env, a, b, &ok);
            if (ok)
                return 0;
        }
    }
    sx_range r = sx_range_of(rest), d = sx_range_of(b);
    if (rest == 0 || (d.lo > 0 && r.lo >= 0 && r.hi < d.lo))
        return rest;
    return sx_value(sx_intern(env, SX_mod, 2, (symint[]){ rest, b }, 0));
}

/* --- minimum and maximum ----------------------------------------------------------------------------- */
static int by_value(const void *pa, const void *pb)
{
    symint a = *(const symint *)pa, b = *(const symint *)pb;
    if (!sym_is_expr(a) || !sym_is_expr(b)) /* the constant comes first */
        return sym_is_expr(a) - sym_is_expr(b);
    return (sx_of(a)->id > sx_of(b)->id) - (sx_of(a)->id < sx_of(b)->id);
}

static symint extreme(sym_env *env, sx_kind k, symint a, symint b)
{
    symint arg[2 * SX_MAX_ARGS], in[2] = { a, b };
    int n = 0, m = 0;

    for (int i = 0; i < 2; i++) {
        if (sx_is(in[i], k) && sx_of(in[i])->n < SX_MAX_ARGS) {
            memcpy(arg + n, sx_of(in[i])->a, (size_t)sx_of(in[i])->n * sizeof *arg);
            n += sx_of(in[i])->n;
        } else
            arg[n++] = in[i];
    }
    /* Drop what another argument is known to beat; of two equal ones the first stays. */
    for (int i = 0; i < n; i++) {
        bool beaten = false;
        for (int j = 0; j < n && !beaten; j++) {
            if (i == j || arg[j] == SYM_NEG_OO)
                continue;
            symint diff;
            if (!sx_linear_fits(env, arg[j], 1, arg[i], -1, &diff))
                continue;
            sx_range d = sx_range_of(diff);
            bool same = d.lo == 0 && d.hi == 0;
            beaten = same ? j < i : k == SX_max ? d.lo >= 0 : d.hi <= 0;
        }
        if (beaten)
            arg[i] = SYM_NEG_OO;
    }
    for (int i = 0; i < n; i++)
        if (arg[i] != SYM_NEG_OO)
            arg[m++] = arg[i];
    if (m == 1)
        return arg[0];
    qsort(arg, (size_t)m, sizeof *arg, by_value);
    if (m > SX_MAX_ARGS)
        return sx_value(sx_intern(env, k, 2, by_value(&a, &b) > 0 ? (symint[]){ b, a } : in, 0));
    return sx_value(sx_intern(env, k, m, arg, 0));
}

/* --- what a relation needs --------------------------------------------------------------------------- */
bool sx_split(sym_expr *e, sym_expr **L, int64_t *k, int64_t *c, bool make)
{
    view v;
    poly p;

    view_of(&v, sym_of_expr(e));
    *k = coefficient_gcd(&v) * (v.t[0].k < 0 ? -1 : 1);
    *c = v.c;
    if (*k == 1 && *c == 0) {
        *L = e;
        return true;
    }
    poly_init(&p);
    for (int i = 0; i < v.n; i++)
        poly_push(&p, v.t[i].e, v.t[i].k / *k);
    if (p.n == 1)
        *L = sx_mut(p.t[0].e); /* its coefficient is 1 now */
    else
        *L = (make ? sx_intern : sx_find)(e->env, SX_add, p.n, p.t, 0);
    poly_free(&p);
    return *L != NULL;
}

bool sx_common_factor(const sym_expr *sum, sx_term *f)
{
    const sx_term *t, *u;
    sx_term one, other;
    int n, m;

    if (sum->kind != SX_add || sum->c)
        return false;
    factors(sum->t[0].e, &t, &n, &one);
    for (int i = 0; i < n; i++) {
        bool everywhere = sx_range_of(sym_of_expr(t[i].e)).lo >= 1;
        *f = t[i];
        for (int j = 1; j < sum->n && everywhere; j++) {
            factors(sum->t[j].e, &u, &m, &other);
            everywhere = false;
            for (int l = 0; l < m; l++)
                if (u[l].e == f->e) {
                    everywhere = true;
                    f->k = MIN(f->k, u[l].k);
                }
        }
        if (everywhere)
            return true;
    }
    return false;
}

symint sx_drop_factor(sym_expr *sum, sx_term f)
{
    const sym_expr *d = make_product(sum->env, &f, 1);
    poly p;
    poly_init(&p);
    for (int i = 0; i < sum->n; i++)
        term_div(sum->env, &p, sum->t[i], (sx_term){ d, 1 });
    tidy(&p);
    symint r = p.overflow ? sx_overflow(sum->env) : make_sum(sum->env, &p);
    poly_free(&p);
    return r;
}

/* --- the operations of sym.h ------------------------------------------------------------------------- */
static sym_env *begin(symint *a, symint *b)
{
    sym_env *env = sx_env(*a, *b);
    assert(!sym_is_expr(*a) || !sym_is_expr(*b) || sx_of(*a)->env == sx_of(*b)->env);
    *a = sx_resolve(*a, 0);
    *b = sx_resolve(*b, 0);
    return env;
}

symint sym_add_slow(symint a, symint b)
{
    sym_env *env = begin(&a, &b);
    return sx_linear(env, a, 1, b, 1);
}
symint sym_sub_slow(symint a, symint b)
{
    sym_env *env = begin(&a, &b);
    return sx_linear(env, a, 1, b, -1);
}
symint sym_mul_slow(symint a, symint b)
{
    sym_env *env = begin(&a, &b);
    return multiply(env, a, b);
}
static symint divided(symint a, symint b, symint (*op)(sym_env *, symint, symint))
{
    sym_env *env = begin(&a, &b);
    if (b == 0) {
        err_set(&env->err, ERR_zerodiv, "integer division or modulo by zero");
        return 0;
    }
    return op(env, a, b);
}
symint sym_floordiv_slow(symint a, symint b) { return divided(a, b, floordiv); }
symint sym_mod_slow(symint a, symint b) { return divided(a, b, modulo); }
symint sym_min_slow(symint a, symint b)
{
    sym_env *env = begin(&a, &b);
    return extreme(env, SX_min, a, b);
}
symint sym_max_slow(symint a, symint b)
{
    sym_env *env = begin(&a, &b);
    return extreme(env, SX_max, a, b);
}
