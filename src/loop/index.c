/* index.c - arithmetic on indices: linear where it can be, emitted instructions where it cannot.
 * Also what the other files ask of sizes and of arguments that are numbers. */
#include "loop/internal.h"

int64_t hint(symint v)
{
    bool ok = true;
    int64_t h = sym_hint(v, &ok);
    return ok ? h : 4096;
}

/* Is a dimension of size `from` broadcast to `to`? A guard fixed the answer when the shape was made, by hint; the sizes
 * themselves need not be simple enough to see it. */
bool is_spread(symint from, symint to)
{
    return from != to && (from == 1 || (sym_is_expr(from) && hint(from) == 1 && hint(to) != 1));
}

bool same_sizes(int nd, const symint *a, int nd2, const symint *b)
{
    if (nd != nd2)
        return false;
    for (int i = 0; i < nd; i++)
        if (a[i] != b[i] && !sym_known(SYM_eq, a[i], b[i]))
            return false;
    return true;
}

void lins_set(lin *to, const lin *from, int n)
{
    for (int d = 0; d < n; d++)
        lin_set(&to[d], &from[d]);
}

lin opaque(walk *w, vir_ref r) { return (lin){ .opaque = true, .ref = r }; }

void use_raw(walk *w, const lin *a)
{
    if (w->dry)
        vec_push(&w->seen, ((access){ .at = *a, .raw = true }));
}

/* Arithmetic that falls back to emitted instructions where it is not linear. */
lin ladd(walk *w, lin a, lin b)
{
    bool ok = true;
    lin r = lin_add(a, &b, &ok);
    if (ok)
        return r;
    use_raw(w, &a);
    use_raw(w, &b);
    return opaque(w, w->dry ? 0 : vir_add(w->k, emit_lin(w, &a), emit_lin(w, &b)));
}

lin lscale(walk *w, lin a, symint c)
{
    if (!a.opaque)
        return lin_scale(a, c);
    return opaque(w, w->dry ? 0 : vir_mul(w->k, emit_lin(w, &a), emit_int(w, c)));
}

static void lacc(walk *w, lin *a, const lin *b, symint c) /* a += c b */
{
    if (!lin_acc(a, b, c))
        *a = ladd(w, *a, lscale(w, *b, c));
}

/* A quotient by `by` that does not come out: v = q * in + r would, where a term c v has c in = by. */
static void want_split(walk *w, const lin *a, symint by)
{
    if (!w->dry || a->opaque || w->split_var >= 0 || !sym_known(SYM_eq, sym_mod(a->k, by), 0))
        return;
    for (int i = 0; i < a->n; i++) {
        symint c = a->t[i].c, size = w->vsize[a->t[i].var];
        if (!sym_known(SYM_gt, c, 0) || sym_known(SYM_eq, sym_mod(c, by), 0) ||
            !sym_known(SYM_eq, sym_mod(by, c), 0))
            continue;
        symint in = sym_floordiv(by, c);
        if (!sym_known(SYM_eq, sym_mod(size, in), 0) || (a->n > 1 && !sym_known(SYM_gt, size, in)))
            continue;
        w->split_var = a->t[i].var;
        w->split_in = in;
        return;
    }
}

/* An opaque quotient or remainder, with what address() needs to see that one of each make up the whole. */
static lin divided(walk *w, const lin *a, symint by, bool rest, vir_ref ref)
{
    lin *of = arena_alloc(&w->pl->tmp, sizeof *of);
    lin_set(of, a);
    return (lin){ .opaque = true, .ref = ref, .rest = rest, .by = by, .of = of };
}

static lin lquot(walk *w, const lin *a, symint by)
{
    bool ok = true;
    lin r = lin_div(a, by, w->vsize, &ok);
    if (ok)
        return r;
    want_split(w, a, by);
    use_raw(w, a);
    return divided(w, a, by, false, w->dry ? 0 : vir_divf(w->k, emit_lin(w, a), emit_int(w, by)));
}

lin lrest(walk *w, const lin *a, symint by)
{
    bool ok = true;
    lin r = lin_mod(a, by, w->vsize, &ok);
    if (ok)
        return r;
    want_split(w, a, by);
    use_raw(w, a);
    return divided(w, a, by, true, w->dry ? 0 : vir_modf(w->k, emit_lin(w, a), emit_int(w, by)));
}

/* Index of a tensor of sizes `from` at idx -> index of the same elements seen with sizes `to`. */
void reshape_index(walk *w, int nf, const symint *from, const lin *idx, int nt, const symint *to, lin *out)
{
    int i = nf - 1, j = nt - 1;
    while (i >= 0 || j >= 0) { /* blocks of dimensions with equal products, from the right */
        while (i >= 0 && from[i] == 1)
            i--;
        while (j >= 0 && to[j] == 1)
            lin_set_const(&out[j--], 0);
        if (j < 0)
            break;
        int i0 = i, j0 = j;
        symint pf = i >= 0 ? from[i] : 1, pt = to[j];
        while (i > 0 || j > 0) {
            if (pf == pt || sym_known(SYM_eq, pf, pt))
                break;
            if (j > 0 && (i <= 0 || (hint(pt) <= hint(pf))))
                pt = sym_mul(pt, to[--j]);
            else
                pf = sym_mul(pf, from[--i]);
        }
        if (i == i0 && j == j0 && i >= 0) { /* one dimension as it was */
            lin_set(&out[j--], &idx[i--]);
            continue;
        }
        lin flat;
        symint s = 1;
        lin_set_const(&flat, 0);
        for (int d = i0; d >= i && d >= 0; d--) {
            lacc(w, &flat, &idx[d], s);
            s = sym_mul(s, from[d]);
        }
        s = 1;
        for (int d = j0; d >= j; d--) {
            lin q;
            if (s == 1)
                lin_set(&q, &flat);
            else
                q = lquot(w, &flat, s);
            if (d == j)
                lin_set(&out[d], &q);
            else
                out[d] = lrest(w, &q, to[d]);
            s = sym_mul(s, to[d]);
        }
        i--;
        j--;
    }
    for (; j >= 0; j--)
        lin_set_const(&out[j], 0);
}

symint int_arg(const ir_node *n, int i, symint none)
{
    return n->arg[i].kind == VAL_int ? n->arg[i].i : none;
}

int dim_arg_of(symint v, int nd)
{
    int d = 0;
    dim_wrap(v, nd, &d, NULL);
    return d;
}

int dim_arg(const ir_node *n, int i, int nd) { return dim_arg_of(n->arg[i].i, nd); }

/* The first dimension of those up to e whose indices are parts of one value (its remainder, remainders of its quotients, and the
 * quotient that is left), where steps in memory are those of that value. *span: 0 when they are all of it, else they are its
 * remainder by span. */
static int taken_apart(const tp_tensor *t, const lin *idx, int e, symint *span)
{
    const lin *r = &idx[e];
    int first = e;
    if (!r->opaque || !r->of || !r->rest)
        return e;
    *span = r->by;
    for (int d = e - 1; d >= 0; d--) {
        const lin *q = &idx[d], *in = q->of;
        if (t->size[d] == 1)
            continue;
        if (!q->opaque || !in || !sym_known(SYM_eq, t->stride[d], sym_mul(*span, t->stride[e])))
            break;
        if (!q->rest) {
            if (q->by != *span || !lin_equal(in, r->of))
                break;
            *span = 0;
            return d;
        }
        if (!in->opaque || !in->of || in->rest || in->by != *span || !lin_equal(in->of, r->of))
            break;
        *span = sym_mul(*span, q->by);
        first = d;
    }
    return first;
}

/* The last of the dimensions from d on that are parts of one value, which then is whole in *at; d: there are none. */
static int put_together(walk *w, const tp_tensor *t, const lin *idx, int d, lin *at)
{
    if (!idx[d].opaque || !idx[d].of || t->size[d] == 1)
        return d;
    for (int e = t->ndim - 1; e > d; e--) {
        bool ok = true;
        symint span = 0;
        if (taken_apart(t, idx, e, &span) != d)
            continue;
        if (span == 0)
            lin_set(at, idx[e].of);
        else
            *at = lin_mod(idx[e].of, span, w->vsize, &ok);
        if (ok)
            return e;
    }
    return d;
}

lin address(walk *w, const tp_tensor *t, const lin *idx)
{
    lin a, whole;
    lin_set_const(&a, 0);
    for (int d = 0; d < t->ndim; d++) {
        int e = put_together(w, t, idx, d, &whole);
        if (e > d)
            lacc(w, &a, &whole, t->stride[e]);
        else if (t->size[d] != 1)
            lacc(w, &a, &idx[d], t->stride[d]);
        d = e;
    }
    return a;
}

lin linear_part(walk *w, const tp_tensor *t, const lin *idx)
{
    lin a;
    lin_set_const(&a, 0);
    for (int d = 0; d < t->ndim; d++)
        if (t->size[d] != 1 && !idx[d].opaque)
            lacc(w, &a, &idx[d], t->stride[d]);
    return a;
}

symint stride_in(const lin *a, int var)
{
    for (int i = 0; i < a->n; i++)
        if (a->t[i].var == var)
            return a->t[i].c;
    return 0;
}
