/* rel.c - truth: relations in one normal form, what is known of them, what follows when one is learned. */
#include "sym/expr.h"
#include "sym/log.h"

static bool holds(sym_rel r, int64_t a, int64_t b)
{
    switch (r) {
    case SYM_eq: return a == b;
    case SYM_ne: return a != b;
    case SYM_lt: return a < b;
    case SYM_le: return a <= b;
    case SYM_gt: return a > b;
    default: return a >= b;
    }
}

static sym_rel rel_of_kind(sx_kind k)
{
    return k == SX_eq ? SYM_eq : k == SX_ne ? SYM_ne : k == SX_le ? SYM_le : SYM_ge;
}

static sx_kind opposite(sx_kind k, int64_t *bound)
{
    if (k == SX_le || k == SX_ge) {
        *bound += k == SX_le ? 1 : -1;
        return k == SX_le ? SX_ge : SX_le;
    }
    return k == SX_eq ? SX_ne : SX_eq;
}

static int by_range(sx_kind k, sx_range r, int64_t b)
{
    switch (k) {
    case SX_le: return r.hi <= b ? 1 : r.lo > b ? 0 : -1;
    case SX_ge: return r.lo >= b ? 1 : r.hi < b ? 0 : -1;
    case SX_eq: return r.lo == b && r.hi == b ? 1 : b < r.lo || b > r.hi ? 0 : -1;
    default: return r.lo == b && r.hi == b ? 0 : b < r.lo || b > r.hi ? 1 : -1;
    }
}

/* d*(x//d) - x is -(x % d): both ways to say "divisible" become one. */
static bool as_remainder(sym_env *env, sym_expr *L, symint *out)
{
    if (L->kind != SX_add)
        return false;
    for (int i = 0; i < L->n; i++) {
        const sym_expr *f = L->t[i].e;
        int64_t k = L->t[i].k, d;
        if (f->kind != SX_floordiv || sym_is_expr(f->a[1]) || k % (d = f->a[1]))
            continue;
        symint rest, c;
        if (!sx_linear_fits(env, sym_of_expr(L), 1, sym_of_expr(f), -k, &rest) ||
            !sx_linear_fits(env, rest, 1, f->a[0], k / d, &c) || sym_is_expr(c))
            continue;
        *out = sx_linear(env, sym_mod(f->a[0], d), -(k / d), c, 1);
        return true;
    }
    return false;
}

symint sx_rel(sym_env *env, sx_kind k, symint v, int64_t bound)
{
    sym_expr *L = sx_of(v), *e;
    sx_term f;
    symint other;

    /* No value reaches 2^62, so a bound out there decides by its sign. */
    int known = sx_fits(bound) ? by_range(k, sx_range_of(v), bound)
                               : (k == SX_eq   ? 0
                                  : k == SX_ne ? 1
                                               : (k == SX_le) == (bound > 0));
    if (known >= 0)
        return known;
    if (bound == 0 && sx_common_factor(L, &f))
        return sym_rel_of(rel_of_kind(k), sx_drop_factor(L, f), 0);
    if (((k == SX_le && bound == -1) || (k == SX_ge && bound == 1)) && sx_common_factor(L, &f))
        return sym_rel_of(k == SX_le ? SYM_lt : SYM_gt, sx_drop_factor(L, f), 0); /* s0*s1 - s0 < 0 */
    if (as_remainder(env, L, &other))
        return sym_rel_of(rel_of_kind(k), other, bound);
    if (!env->pure) {
        int64_t b = bound;
        sx_kind o = opposite(k, &b);
        if ((e = sx_find(env, o, 1, &v, b)) && e->fact)
            return 0;
    }
    e = sx_intern(env, k, 1, &v, bound);
    return e->fact && !env->pure ? 1 : sym_of_expr(e);
}

symint sym_rel_of(sym_rel r, symint a, symint b)
{
    sym_expr *L;
    int64_t k, c;

    if (!SYM_EITHER(a, b))
        return holds(r, a, b);
    sym_env *env = sx_env(a, b);
    symint d = sx_linear(env, sx_resolve(a, 0), 1, sx_resolve(b, 0), -1);
    if (!sym_is_expr(d))
        return holds(r, d, 0);
    sx_split(sx_of(d), &L, &k, &c, true);
    symint l = sym_of_expr(L);
    if (r == SYM_eq || r == SYM_ne)
        return c % k ? r == SYM_ne : sx_rel(env, r == SYM_eq ? SX_eq : SX_ne, l, -c / k);
    if (r == SYM_lt || r == SYM_gt) { /* k*L + c < 0 is k*L + c + 1 <= 0 */
        if (__builtin_add_overflow(c, r == SYM_lt ? 1 : -1, &c))
            return sx_overflow(env);
        r = r == SYM_lt ? SYM_le : SYM_ge;
    }
    if (c == INT64_MIN)
        return sx_overflow(env);
    if (k < 0) { /* -k*L - c >= 0 */
        k = -k, c = -c;
        r = r == SYM_le ? SYM_ge : SYM_le;
    }
    if (r == SYM_le)
        return sx_rel(env, SX_le, l, sx_floordiv(-c, k));
    return sx_rel(env, SX_ge, l, -sx_floordiv(c, k));
}

/* --- and, or, not ------------------------------------------------------------------------------------ */
static int by_id(const void *pa, const void *pb)
{
    const sym_expr *a = sym_expr_of(*(const symint *)pa), *b = sym_expr_of(*(const symint *)pb);
    return (a->id > b->id) - (a->id < b->id);
}

static symint junction(sx_kind k, symint a, symint b)
{
    symint arg[2 * SX_MAX_ARGS], in[2] = { a, b };
    int n = 0, m = 0;
    int64_t absorbs = k == SX_or;

    for (int i = 0; i < 2; i++) {
        if (!sym_is_expr(in[i])) {
            if ((in[i] != 0) == absorbs)
                return absorbs;
        } else if (sx_of(in[i])->kind == k && sx_of(in[i])->n < SX_MAX_ARGS) {
            memcpy(arg + n, sx_of(in[i])->a, (size_t)sx_of(in[i])->n * sizeof *arg);
            n += sx_of(in[i])->n;
        } else
            arg[n++] = in[i];
    }
    if (n == 0)
        return !absorbs;
    qsort(arg, (size_t)n, sizeof *arg, by_id);
    for (int i = 0; i < n; i++)
        if (!m || arg[i] != arg[m - 1])
            arg[m++] = arg[i];
    for (int i = 0; i < m; i++) { /* x and not x */
        sym_expr *e = sx_of(arg[i]);
        int64_t c = e->c;
        if (e->kind < SX_eq || e->kind > SX_ge)
            continue;
        sx_kind o = opposite(e->kind, &c);
        sym_expr *neg = sx_find(e->env, o, 1, e->a, c);
        for (int j = 0; neg && j < m; j++)
            if (arg[j] == sym_of_expr(neg))
                return absorbs;
    }
    if (m == 1)
        return arg[0];
    if (m > SX_MAX_ARGS) {
        symint pair[2] = { MIN(a, b), MAX(a, b) };
        return sym_of_expr(sx_intern(sx_env(a, b), k, 2, pair, 0));
    }
    sym_expr *e = sx_intern(sx_of(arg[0])->env, k, m, arg, 0);
    return e->fact && !e->env->pure ? 1 : sym_of_expr(e);
}

symint sym_and(symint a, symint b) { return junction(SX_and, a, b); }
symint sym_or(symint a, symint b) { return junction(SX_or, a, b); }

static symint negate(symint v, int depth)
{
    if (!sym_is_expr(v))
        return !v;
    sym_expr *e = sx_of(v);
    if (e->kind == SX_and || e->kind == SX_or) {
        symint r = e->kind == SX_or;
        for (int i = 0; i < e->n && depth < SX_MAX_DEPTH; i++)
            r = junction(e->kind == SX_and ? SX_or : SX_and, r, negate(e->a[i], depth + 1));
        return r;
    }
    if (!sx_kind_is_bool(e->kind))
        return sym_rel_of(SYM_eq, v, 0);
    int64_t c = e->c;
    sx_kind k = opposite(e->kind, &c);
    return sx_rel(e->env, k, e->a[0], c);
}
symint sym_not(symint a) { return negate(a, 0); }

/* --- rewriting with what is known -------------------------------------------------------------------- */
typedef symint rewrite(symint v, void *ctx, int depth);

/* again: also where no part changed, since facts may decide a minimum or a quotient now. */
static symint rebuild(sym_expr *e, rewrite *f, void *ctx, int depth, bool again)
{
    bool terms = e->kind == SX_add || e->kind == SX_mul, same = true;
    symint room[16], *x = e->n <= 16 ? room : mem_alloc((size_t)e->n * sizeof *x), r;

    for (int i = 0; i < e->n; i++) {
        symint old = terms ? sym_of_expr(e->t[i].e) : e->a[i];
        x[i] = f(old, ctx, depth + 1);
        same &= x[i] == old;
    }
    if (same && !(e->kind >= SX_eq) && !(again && e->kind >= SX_floordiv)) {
        r = sx_value(e);
        goto done;
    }
    switch (e->kind) {
    case SX_add:
        r = e->c;
        for (int i = 0; i < e->n; i++)
            r = sx_linear(e->env, r, 1, x[i], e->t[i].k);
        break;
    case SX_mul:
        r = 1;
        for (int i = 0; i < e->n; i++)
            r = sym_mul(r, sym_pow(x[i], e->t[i].k));
        break;
    case SX_floordiv:
    case SX_mod:
        if (x[1] == 0)
            r = sym_floordiv_slow(sym_of_expr(e), 0); /* sets the error */
        else
            r = e->kind == SX_mod ? sym_mod(x[0], x[1]) : sym_floordiv(x[0], x[1]);
        break;
    case SX_min:
    case SX_max:
        r = x[0];
        for (int i = 1; i < e->n; i++)
            r = e->kind == SX_min ? sym_min(r, x[i]) : sym_max(r, x[i]);
        break;
    case SX_and:
    case SX_or:
        r = e->kind == SX_and;
        for (int i = 0; i < e->n; i++)
            r = junction(e->kind, r, x[i]);
        break;
    default: r = e->fact && !e->env->pure ? 1 : sym_rel_of(rel_of_kind(e->kind), x[0], e->c);
    }
done:
    if (x != room)
        free(x);
    return r;
}

static symint resolve(symint v, void *ctx, int depth) { return sx_resolve(v, depth); }

symint sx_resolve(symint v, int depth)
{
    if (!sym_is_expr(v))
        return v;
    sym_expr *e = sx_of(v);
    if (e->env->pure || depth > SX_MAX_DEPTH)
        return v;
    if (sx_kind_is_bool(e->kind))
        return rebuild(e, resolve, NULL, depth, false); /* depends on every fact: not remembered */
    if (e->resolved_at != e->env->substs) {
        uint32_t version = e->env->substs;
        e->resolved = e->kind == SX_sym ? (e->s->replaced ? sx_resolve(e->s->repl, depth + 1) : sx_value(e))
                                        : rebuild(e, resolve, NULL, depth, false);
        e->resolved_at = version;
    }
    return e->resolved;
}

static symint refine(symint v, void *memo, int depth)
{
    if (!sym_is_expr(v) || !sx_of(v)->nonlinear || depth > SX_MAX_DEPTH)
        return v;
    symint *known = map_geti(memo, (uint64_t)v);
    if (known)
        return *known;
    symint *r = arena_alloc(&sx_of(v)->env->mem, sizeof *r);
    *r = rebuild(sx_of(v), refine, memo, depth, true);
    map_puti(memo, (uint64_t)v, r);
    return *r;
}

static symint again(symint v, void *memo, int depth)
{
    if (!sym_is_expr(v) || depth > SX_MAX_DEPTH)
        return v;
    symint *known = map_geti(memo, (uint64_t)v);
    if (known)
        return *known;
    symint *r = arena_alloc(&sx_of(v)->env->mem, sizeof *r);
    *r = rebuild(sx_of(v), again, memo, depth, true);
    map_puti(memo, (uint64_t)v, r);
    return *r;
}

/* What sx_resolve remembers may be older than the newest facts; this looks at all parts again. */
symint sx_known_now(symint v)
{
    map memo = { 0 };
    symint r = sym_is_expr(v) && !sx_of(v)->env->pure ? again(v, &memo, 0) : v;
    map_free(&memo);
    return r;
}

symint sym_simplify(symint v)
{
    v = sx_resolve(v, 0);
    if (!sym_is_expr(v) || !sx_of(v)->nonlinear || sx_of(v)->env->pure ||
        sx_of(v)->refined_at == sx_of(v)->env->facts)
        return v;
    map memo = { 0 };
    symint r = refine(v, &memo, 0);
    map_free(&memo);
    if (sym_is_expr(r))
        sx_of(r)->refined_at = sx_of(r)->env->facts;
    return r;
}

symint sx_root(sym_expr *symbol)
{
    symint r = sx_resolve(sym_of_expr(symbol), 0);
    return !sym_is_expr(r) || sx_of(r)->kind == SX_sym ? r : sym_of_expr(symbol);
}

static symint rename_step(symint v, void *memo, int depth) { return sx_rename(v, memo, depth); }

symint sx_rename(symint v, map *memo, int depth)
{
    if (!sym_is_expr(v) || depth > SX_MAX_DEPTH)
        return v;
    sym_expr *e = sx_of(v);
    symint *known = map_geti(memo, (uint64_t)v);
    if (known)
        return *known;
    symint *r = arena_alloc(&e->env->mem, sizeof *r);
    if (e->kind == SX_sym) {
        e->env->pure = false;
        *r = sx_root(e);
        e->env->pure = true;
    } else
        *r = rebuild(e, rename_step, memo, depth, false);
    map_puti(memo, (uint64_t)v, r);
    return *r;
}

int sx_decide_big(symint cond)
{
    if (!sym_is_expr(cond))
        return cond != 0;
    sym_expr *e = sx_of(cond);
    if (e->kind != SX_and && e->kind != SX_or)
        return sx_kind_is_bool(e->kind) ? by_range(e->kind, sx_range_big(e->a[0]), e->c) : -1;
    int r = e->kind == SX_and;
    for (int i = 0; i < e->n; i++) {
        int d = sx_decide_big(e->a[i]);
        if (d == (e->kind == SX_or))
            return d;
        if (d < 0)
            r = -1;
    }
    return r;
}

int sx_decide(symint cond)
{
    symint v = sx_resolve(cond, 0);
    return sym_is_expr(v) ? -1 : v != 0;
}
bool sym_is_true(symint cond) { return sx_decide(cond) == 1; }
bool sym_known(sym_rel r, symint a, symint b) { return sym_is_true(sym_rel_of(r, a, b)); }

/* --- learning
 * ------------------------------------------------------------------------------------------------ */
static bool occurs(const sym_expr *s, const sym_expr *e, int *budget)
{
    if (e == s || --*budget < 0) /* out of budget: say yes, which only forgoes a substitution */
        return true;
    if (e->kind == SX_sym)
        return false;
    for (int i = 0; i < e->n; i++) {
        symint v = e->kind == SX_add || e->kind == SX_mul ? sym_of_expr(e->t[i].e) : e->a[i];
        if (sym_is_expr(v) && occurs(s, sym_expr_of(v), budget))
            return true;
    }
    return false;
}

/* The symbol that L == bound determines best: unbacked before backed, newest first. */
static const sx_term *solvable(const sym_expr *L)
{
    const sx_term *best = NULL;
    if (L->n > 32)
        return NULL;
    for (int i = 0; i < L->n; i++) {
        const sx_term *t = &L->t[i];
        int budget = 500;
        if (t->e->kind != SX_sym || (t->k != 1 && t->k != -1) || (L->unbacked && !t->e->unbacked))
            continue;
        for (int j = 0; j < L->n; j++)
            if (j != i && occurs(t->e, L->t[j].e, &budget))
                goto next;
        best = t; /* terms come in order of id: the last is the newest */
    next:;
    }
    return best;
}

static bool narrow_value(symint v, sx_range r)
{
    sym_expr *L;
    int64_t k, c;

    if (!sym_is_expr(v))
        return v >= r.lo && v <= r.hi;
    sx_split(sx_of(v), &L, &k, &c, true);
    /* k*L + c in r: L in (r - c) / k, rounded inwards */
    sx_range q = sx_range_scale(r, 1, -c), out = { SYM_NEG_OO, SYM_OO };
    if (k < 0) {
        q = sx_range_scale(q, -1, 0);
        k = -k;
    }
    if (q.lo != SYM_NEG_OO && q.lo != SYM_OO)
        out.lo = -sx_floordiv(-q.lo, k);
    if (q.hi != SYM_NEG_OO && q.hi != SYM_OO)
        out.hi = sx_floordiv(q.hi, k);
    return sx_narrow(L, out);
}

static void set_symbol(sym_env *env, sym_expr *s, symint value, const char *where)
{
    s->s->replaced = true;
    s->s->repl = value;
    s->s->repl_where = where;
    env->substs++;
    env->facts++;
    sx_log_replaced(s, value, where);
    narrow_value(value, s->now);
}

static void substitute(sym_env *env, sym_expr *L, int64_t bound, const char *where)
{
    if (L->kind == SX_sym) {
        set_symbol(env, L, bound, where);
        return;
    }
    const sx_term *t = L->kind == SX_add ? solvable(L) : NULL;
    if (!t)
        return;
    symint rest = sx_linear(env, sym_of_expr(L), 1, sym_of_expr(t->e), -t->k);
    set_symbol(env, sx_mut(t->e), sx_linear(env, rest, -t->k, t->k * bound, 1), where);
}

/* A bound on a short sum bounds its terms: s0 + s1 <= 10 and s1 >= 2 give s0 <= 8. */
static void propagate(sym_env *env, sym_expr *L)
{
    if (L->kind != SX_add || L->n > 8)
        return;
    for (int i = 0; i < L->n; i++) {
        sx_range rest = sx_range_of(sym_of_expr(L));
        for (int j = 0; j < L->n; j++) {
            sx_range r = sx_range_of(sym_of_expr(L->t[j].e));
            if (j != i) { /* rest - k*r */
                r = sx_range_scale(r, L->t[j].k, 0);
                r = sx_range_scale(r, -1, 0);
                rest.lo = rest.lo == SYM_NEG_OO || r.lo == SYM_NEG_OO ? SYM_NEG_OO
                                                                      : sx_range_scale(r, 1, rest.lo).lo;
                rest.hi = rest.hi == SYM_OO || r.hi == SYM_OO ? SYM_OO : sx_range_scale(r, 1, rest.hi).hi;
            }
        }
        if (rest.lo <= rest.hi)
            narrow_value(sx_linear(env, sym_of_expr(L->t[i].e), L->t[i].k, 0, 0), rest);
    }
}

static bool learn_one(sym_env *env, sym_expr *e, const char *where, int depth)
{
    if (e->kind == SX_and) {
        bool ok = true;
        for (int i = 0; i < e->n && depth < SX_MAX_DEPTH; i++)
            if (sym_is_expr(e->a[i]))
                ok &= learn_one(env, sx_of(e->a[i]), where, depth + 1);
        e->fact = true;
        return ok;
    }
    e->fact = true;
    env->facts++;
    if (e->kind == SX_or || !sx_kind_is_bool(e->kind))
        return true;
    sym_expr *L = sx_of(e->a[0]);
    sx_range r = sx_range_of(e->a[0]), n = r;
    switch (e->kind) {
    case SX_le: n.hi = MIN(n.hi, e->c); break;
    case SX_ge: n.lo = MAX(n.lo, e->c); break;
    case SX_eq: n = (sx_range){ e->c, e->c }; break;
    default: n.lo += r.lo == e->c; n.hi -= r.hi == e->c;
    }
    if (!sx_narrow(L, n))
        return false;
    n = sx_range_of(e->a[0]);
    propagate(env, L);
    if (n.lo == n.hi)
        substitute(env, L, n.lo, where);
    return true;
}

/* What was known in terms of a symbol must be known in terms of its replacement too. */
static void relearn(sym_env *env)
{
    for (uint32_t seen = env->substs - 1; seen != env->substs;) {
        seen = env->substs;
        for (size_t i = 0; i < env->guards.n + env->asserts.n; i++) {
            const sym_assumed *g = i < env->guards.n ? &env->guards.at[i]
                                                     : &env->asserts.at[i - env->guards.n];
            sym_expr *e = sx_of(g->cond);
            bool was = e->fact;
            e->fact = false; /* else it would simply resolve to true */
            symint v = sx_resolve(g->cond, 0);
            e->fact = was;
            if (sym_is_expr(v) && v != g->cond)
                learn_one(env, sx_of(v), g->where, 0);
        }
    }
}

bool sx_learn(sym_env *env, symint cond, const char *where)
{
    uint32_t before = env->substs;
    if (!sym_is_expr(cond))
        return cond != 0;
    bool ok = learn_one(env, sx_of(cond), where, 0);
    if (env->substs != before)
        relearn(env);
    return ok;
}
