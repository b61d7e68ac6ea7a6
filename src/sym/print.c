/* print.c - expressions as text: s0*s1 + 3, (s0//2), Mod(s0, 2), Max(1, s0), Eq(s0, s1), s0 <= 9.
 * Shared parts are written out each time, so the text of a contrived expression could be exponentially
 * long; it ends in "..." after LIMIT bytes (a quarter in guards). */
#define _GNU_SOURCE
#include "sym/expr.h"
#include <string.h>

enum { LIMIT = 1 << 14, DEEP = 1000 };
typedef struct {
    strbuf *out;
    size_t stop;
    bool sources; /* Python with sources instead of symbols */
} printer;
typedef enum { P_or, P_and, P_rel, P_sum, P_product, P_atom } level;

static void put(printer *p, symint v, level need, int depth);

static bool full(printer *p, int depth)
{
    if (p->out->n < p->stop && depth < DEEP)
        return false;
    if (p->out->n < 3 || memcmp(p->out->s + p->out->n - 3, "...", 3))
        strbuf_add(p->out, "...");
    return true;
}

/* The order of terms and factors in the text: by what they are, not by which was made first, so that what is read back
 * prints alike. To sort the parts of parts of contrived expressions could take forever: there age decides. */
enum { NESTED = 2, FEW = 8 };
static _Thread_local int nested;
static int by_shape(const sym_expr *a, const sym_expr *b), by_parts(const sym_expr *a, const sym_expr *b);
/* Sums come first: what stands before them would be multiplied out when the text is read. */
static int by_factor(const void *pa, const void *pb)
{
    const sx_term *a = pa, *b = pb;
    bool sum = a->e->kind == SX_add;
    if (sum != (b->e->kind == SX_add))
        return sum ? -1 : 1;
    if (sum && (a->k == 1) != (b->k == 1))
        return a->k == 1 ? -1 : 1;
    return by_shape(a->e, b->e);
}
static sx_term *factors(const sym_expr *e, int *n) /* sorted; the caller's */
{
    const sx_term one = { e, 1 };
    *n = e->kind == SX_mul ? e->n : 1;
    sx_term *t = mem_alloc((size_t)*n * sizeof *t);
    memcpy(t, e->kind == SX_mul ? e->t : &one, (size_t)*n * sizeof *t);
    qsort(t, (size_t)*n, sizeof *t, by_factor);
    return t;
}
static int by_order(const void *a, const void *b)
{
    int n, m, r = 0;
    if (((const sx_term *)a)->e == ((const sx_term *)b)->e)
        return 0;
    sx_term *s = factors(((const sx_term *)a)->e, &n), *t = factors(((const sx_term *)b)->e, &m);
    for (int i = 0; i < n && i < m && !r; i++)
        r = s[i].e != t[i].e ? by_shape(s[i].e, t[i].e) : (t[i].k > s[i].k) - (t[i].k < s[i].k);
    free(s);
    free(t);
    return r ? r : m - n;
}
static int by_age(const void *a, const void *b)
{
    return sx_mono_cmp(((const sx_term *)a)->e, ((const sx_term *)b)->e);
}
static sx_term *terms(const sym_expr *e) /* likewise, of a sum */
{
    sx_term *t = mem_alloc((size_t)e->n * sizeof *t);
    memcpy(t, e->t, (size_t)e->n * sizeof *t);
    qsort(t, (size_t)e->n, sizeof *t, by_order);
    return t;
}
static int by_shape(const sym_expr *a, const sym_expr *b)
{
    int r = (int)a->kind - (int)b->kind;
    if (a == b || r)
        return r;
    if (a->kind == SX_sym)
        return strverscmp(a->s->name, b->s->name);
    if (nested >= NESTED || a->n > FEW || b->n > FEW)
        return a->id < b->id ? -1 : 1;
    nested++;
    r = by_parts(a, b);
    nested--;
    return r;
}
static int by_parts(const sym_expr *a, const sym_expr *b)
{
    int r = 0;
    if (a->kind == SX_mul)
        return by_order(&(sx_term){ a, 1 }, &(sx_term){ b, 1 });
    if (a->kind == SX_add) {
        sx_term *s = terms(a), *t = terms(b);
        for (int i = 0; i < a->n && i < b->n && !r; i++)
            r = s[i].e != t[i].e ? by_order(&s[i], &t[i]) : (s[i].k > t[i].k) - (s[i].k < t[i].k);
        free(s);
        free(t);
        return r ? r : a->n != b->n ? a->n - b->n : (a->c > b->c) - (a->c < b->c);
    }
    for (int i = 0; i < a->n && i < b->n && !r; i++) {
        symint x = a->a[i], y = b->a[i];
        r = sym_is_expr(x) && sym_is_expr(y)   ? by_shape(sym_expr_of(x), sym_expr_of(y))
            : sym_is_expr(x) != sym_is_expr(y) ? (sym_is_expr(x) ? 1 : -1)
                                               : (x > y) - (x < y);
    }
    return r ? r : a->n - b->n;
}

static void product(printer *p, const sym_expr *e, int64_t k, int depth)
{
    int n;
    sx_term *t = factors(e, &n);
    bool sums = e->kind == SX_mul && t[0].e->kind == SX_add;

    if (k == -1)
        strbuf_addc(p->out, '-');
    else if (k != 1)
        strbuf_addf(p->out, "%lld*", (long long)k);
    if (sums && k != 1)
        strbuf_addc(p->out, '(');
    for (int i = 0; i < n && !full(p, depth); i++) {
        if (i)
            strbuf_addc(p->out, '*');
        put(p, sym_of_expr(t[i].e), P_atom, depth);
        if (t[i].k != 1)
            strbuf_addf(p->out, "**%lld", (long long)t[i].k);
    }
    if (sums && k != 1)
        strbuf_addc(p->out, ')');
    free(t);
}

/* sign * (the terms of e whose coefficient has that sign, or all for sign 0) + c; "0" when there are none. */
static void sum(printer *p, const sym_expr *e, int sign, int64_t c, int depth)
{
    const sx_term one = { e, 1 }, *t = e->kind == SX_add ? e->t : &one;
    int n = e->kind == SX_add ? e->n : 1, m = 0;
    sx_term *sorted = mem_alloc((size_t)n * sizeof *sorted);

    for (int i = 0; i < n; i++)
        if (!sign || (t[i].k < 0) == (sign < 0))
            sorted[m++] = (sx_term){ t[i].e, sign < 0 ? -t[i].k : t[i].k };
    qsort(sorted, (size_t)m, sizeof *sorted, m > FEW ? by_age : by_order);
    for (int i = 0; i < m && !full(p, depth); i++) {
        int64_t k = sorted[i].k;
        if (i)
            strbuf_add(p->out, k < 0 ? " - " : " + ");
        product(p, sorted[i].e, i && k < 0 && k != INT64_MIN ? -k : k, depth + 1);
    }
    free(sorted);
    if (!m)
        strbuf_addf(p->out, "%lld", (long long)c);
    else if (c)
        strbuf_addf(p->out, " %c %llu", c < 0 ? '-' : '+',
                    (unsigned long long)(c < 0 ? 0 - (uint64_t)c : (uint64_t)c));
}

/* L ? c with the negative terms moved to the right, and the constant to where it is positive. */
static void relation(printer *p, const sym_expr *e, int depth)
{
    const sym_expr *L = sym_expr_of(e->a[0]);
    bool lone = true; /* nothing to move: the right side is the constant alone */
    int64_t c = e->c;
    const char *op = e->kind == SX_eq   ? " == "
                     : e->kind == SX_ne ? " != "
                     : e->kind == SX_le ? " <= "
                                        : " >= ";
    bool call = !p->sources && (e->kind == SX_eq || e->kind == SX_ne);

    for (int i = 0; L->kind == SX_add && i < L->n; i++)
        lone &= L->t[i].k > 0;
    if (!lone && ((e->kind == SX_le && c == -1) || (e->kind == SX_ge && c == 1))) {
        op = e->kind == SX_le ? " < " : " > ";
        c = 0;
    }
    bool left = !lone && c < 0 && c != INT64_MIN;
    if (call && !lone) { /* which term has which sign depends on who was made first: the text does not */
        strbuf *out = p->out, a = { 0 }, b = { 0 };
        p->out = &a;
        sum(p, L, 1, left ? -c : 0, depth);
        p->out = &b;
        sum(p, L, -1, left ? 0 : c, depth);
        p->out = out;
        bool swap = strcmp(strbuf_str(&a), strbuf_str(&b)) > 0;
        strbuf_addf(p->out, "%s(%s, %s)", e->kind == SX_eq ? "Eq" : "Ne", strbuf_str(swap ? &b : &a),
                    strbuf_str(swap ? &a : &b));
        strbuf_free(&a);
        strbuf_free(&b);
        return;
    }
    if (call)
        strbuf_add(p->out, e->kind == SX_eq ? "Eq(" : "Ne(");
    sum(p, L, 1, left ? -c : 0, depth);
    strbuf_add(p->out, call ? ", " : op);
    if (lone)
        strbuf_addf(p->out, "%lld", (long long)c);
    else
        sum(p, L, -1, left ? 0 : c, depth);
    if (call)
        strbuf_addc(p->out, ')');
}

static void list(printer *p, const sym_expr *e, const char *sep, level need, int depth)
{
    for (int i = 0; i < e->n && !full(p, depth); i++) {
        if (i)
            strbuf_add(p->out, sep);
        put(p, e->a[i], need, depth);
    }
}

static int by_shape_of(const void *a, const void *b)
{
    symint x = *(const symint *)a, y = *(const symint *)b;
    if (!sym_is_expr(x) || !sym_is_expr(y)) /* numbers first */
        return sym_is_expr(x) != sym_is_expr(y) ? (sym_is_expr(x) ? 1 : -1) : (x > y) - (x < y);
    return by_shape(sym_expr_of(x), sym_expr_of(y));
}

/* What a minimum is taken of lies in the order in which it was made: the text does not depend on that. */
static void choices(printer *p, const sym_expr *e, int depth)
{
    if (e->n > FEW) {
        list(p, e, ", ", P_or, depth);
        return;
    }
    symint in[FEW];
    memcpy(in, e->a, sizeof *in * (size_t)e->n);
    qsort(in, (size_t)e->n, sizeof *in, by_shape_of);
    for (int i = 0; i < e->n && !full(p, depth); i++) {
        strbuf_add(p->out, i ? ", " : "");
        put(p, in[i], P_or, depth);
    }
}

static level level_of(const printer *p, const sym_expr *e)
{
    switch (e->kind) {
    case SX_or: return P_or;
    case SX_and: return P_and;
    case SX_eq:
    case SX_ne: return p->sources ? P_rel : P_atom;
    case SX_le:
    case SX_ge: return P_rel;
    case SX_add: return e->n == 1 && e->c == 0 ? P_product : P_sum;
    case SX_mul: return P_product;
    default: return P_atom;
    }
}

static void put(printer *p, symint v, level need, int depth)
{
    if (full(p, depth))
        return;
    if (!sym_is_expr(v)) {
        strbuf_addf(p->out, v < 0 && need > P_sum ? "(%lld)" : "%lld", (long long)v);
        return;
    }
    const sym_expr *e = sym_expr_of(v);
    bool paren = level_of(p, e) < need;
    if (paren)
        strbuf_addc(p->out, '(');
    depth++;
    switch (e->kind) {
    case SX_sym:
        strbuf_add(p->out,
                   p->sources && e->s->source >= 0 ? e->env->sources.at[e->s->source].text : e->s->name);
        break;
    case SX_add: sum(p, e, 0, e->c, depth); break;
    case SX_mul: product(p, e, 1, depth); break;
    case SX_floordiv:
        strbuf_addc(p->out, '(');
        list(p, e, "//", P_atom, depth);
        strbuf_addc(p->out, ')');
        break;
    case SX_mod:
        strbuf_add(p->out, p->sources ? "(" : "Mod(");
        list(p, e, p->sources ? " % " : ", ", p->sources ? P_atom : P_or, depth);
        strbuf_addc(p->out, ')');
        break;
    case SX_min:
    case SX_max:
        strbuf_add(p->out, p->sources          ? (e->kind == SX_min ? "min(" : "max(")
                           : e->kind == SX_min ? "Min("
                                               : "Max(");
        choices(p, e, depth);
        strbuf_addc(p->out, ')');
        break;
    case SX_and: list(p, e, " and ", P_rel, depth); break;
    case SX_or: list(p, e, " or ", P_and, depth); break;
    default: relation(p, e, depth);
    }
    if (paren)
        strbuf_addc(p->out, ')');
}

static void print(strbuf *out, symint v, bool sources)
{
    printer p = { out, out->n + (sources ? LIMIT / 4 : LIMIT), sources };
    put(&p, v, P_or, 0);
}

/* A number prints as what is known of it now, so that reading the text under the same facts gives it back; a
 * relation prints as it was recorded, or it would be "1" as soon as it is known. */
void sym_print(strbuf *out, symint v)
{
    print(out, sym_is_bool(v) || !sym_is_expr(v) ? v : sx_known_now(sym_simplify(v)), false);
}
void sym_print_source(strbuf *out, symint v) { print(out, v, true); }
