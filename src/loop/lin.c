#include "loop/lin.h"

static int order(lin *a) /* by variable; drops zero terms */
{
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if (a->t[i].c != 0)
            a->t[n++] = a->t[i];
    a->n = n;
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && a->t[j - 1].var > a->t[j].var; j--) {
            __typeof__(a->t[0]) t = a->t[j];
            a->t[j] = a->t[j - 1];
            a->t[j - 1] = t;
        }
    return n;
}

bool lin_equal(const lin *a, const lin *b)
{
    if (a->opaque || b->opaque)
        return a->opaque && b->opaque && a->ref && a->ref == b->ref;
    if (a->n != b->n || a->k != b->k)
        return false;
    for (int i = 0; i < a->n; i++)
        if (a->t[i].var != b->t[i].var || a->t[i].c != b->t[i].c)
            return false;
    return true;
}

lin lin_add(lin a, const lin *b, bool *ok)
{
    if (a.opaque || b->opaque) {
        *ok = false;
        return a;
    }
    a.k = sym_add(a.k, b->k);
    for (int i = 0; i < b->n; i++) {
        int j = 0;
        while (j < a.n && a.t[j].var != b->t[i].var)
            j++;
        if (j < a.n)
            a.t[j].c = sym_add(a.t[j].c, b->t[i].c);
        else if (a.n < LIN_MAX)
            a.t[a.n++] = b->t[i];
        else
            *ok = false;
    }
    order(&a);
    return a;
}

bool lin_acc(lin *a, const lin *b, symint c)
{
    if (a->opaque || b->opaque || a->n + b->n > LIN_MAX)
        return false;
    a->k = sym_add(a->k, sym_mul(b->k, c));
    for (int i = 0; i < b->n; i++) {
        symint by = sym_mul(b->t[i].c, c);
        int at = a->n, var = b->t[i].var;
        if (by == 0)
            continue;
        while (at > 0 && a->t[at - 1].var > var)
            at--;
        if (at > 0 && a->t[at - 1].var == var) {
            symint sum = sym_add(a->t[at - 1].c, by);
            a->t[at - 1].c = sum;
            if (sum == 0)
                order(a);
            continue;
        }
        for (int j = a->n++; j > at; j--)
            a->t[j] = a->t[j - 1];
        a->t[at].var = var;
        a->t[at].c = by;
    }
    return true;
}

lin lin_scale(lin a, symint c)
{
    for (int i = 0; i < a.n; i++)
        a.t[i].c = sym_mul(a.t[i].c, c);
    a.k = sym_mul(a.k, c);
    order(&a);
    return a;
}

static bool divides(symint by, symint c) { return sym_known(SYM_eq, sym_mod(c, by), 0); }

/* Split a into the part that `by` divides and a rest known to lie in [0, by). */
static bool split(const lin *a, symint by, const symint *sizes, lin *even, lin *rest)
{
    symint top = 0; /* largest value of the rest */
    *even = *rest = lin_const(0);
    if (a->opaque)
        return false;
    for (int i = 0; i < a->n; i++) {
        if (divides(by, a->t[i].c))
            even->t[even->n++] = a->t[i];
        else {
            if (!sym_known(SYM_ge, a->t[i].c, 0))
                return false;
            rest->t[rest->n++] = a->t[i];
            top = sym_add(top, sym_mul(a->t[i].c, sym_sub(sizes[a->t[i].var], 1)));
        }
    }
    if (divides(by, a->k))
        even->k = a->k;
    else if (!sym_is_expr(a->k) && !sym_is_expr(by)) {
        rest->k = sym_mod(a->k, by);
        even->k = a->k - rest->k;
        top = sym_add(top, rest->k);
    } else {
        if (!sym_known(SYM_ge, a->k, 0))
            return false;
        rest->k = a->k;
        top = sym_add(top, a->k);
    }
    return sym_known(SYM_lt, top, by);
}

lin lin_div(const lin *a, symint by, const symint *sizes, bool *ok)
{
    lin even, rest;
    if (by == 1)
        return *a;
    if (by == 0) /* a size of an empty tensor, which nobody indexes */
        return lin_const(0);
    if (!split(a, by, sizes, &even, &rest)) {
        *ok = false;
        return *a;
    }
    for (int i = 0; i < even.n; i++)
        even.t[i].c = sym_floordiv(even.t[i].c, by);
    even.k = sym_floordiv(even.k, by);
    order(&even);
    return even;
}

lin lin_mod(const lin *a, symint by, const symint *sizes, bool *ok)
{
    lin even, rest;
    if (by == 1 || by == 0)
        return lin_const(0);
    if (!split(a, by, sizes, &even, &rest)) {
        *ok = false;
        return *a;
    }
    order(&rest);
    return rest;
}
