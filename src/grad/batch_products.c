/* batch_products.c - the VMAP column: products, convolutions and indices, where the batch becomes a dimension of another kind. */
#include "grad/batch.h"
#include "ops/decomp.h"

#define CALL(id, ...) b_op(x->b, id, __VA_ARGS__)

/* The whole of argument i, or NULL where it is the same for all elements (also where one was repeated for the batch). */
static tp_tensor *differs(batch_call *x, int i)
{
    tp_tensor *w = x->whole[i];
    return w && sym_eq(w->stride[0], 0) && !sym_eq(x->n, 1) ? NULL : w;
}
static tp_tensor *alike(batch_call *x, int i) /* of one for which differs() is NULL: it, without the batch */
{
    return x->whole[i] ? CALL(select_int, vT(x->whole[i]), vI(0), vI(0)) : x->arg[i].t;
}
/* What a rule found alike though it came with a batch gets it back. */
static bool give_all(batch_call *x, tp_tensor *t)
{
    symint size[TP_MAX_DIMS];
    if (!t)
        return false;
    size[0] = x->n;
    memcpy(size + 1, t->size, sizeof *size * t->ndim);
    return batch_give(x, CALL(expand, vT(t), vIs(size, t->ndim + 1)));
}

/* ---- products ---- */
/* [n, a, b] as [n * a, b] */
static tp_tensor *join(batch_call *x, tp_tensor *t)
{
    symint size[TP_MAX_DIMS];
    if (!t)
        return NULL;
    size[0] = sym_mul(t->size[0], t->size[1]);
    memcpy(size + 1, t->size + 2, sizeof *size * (size_t)(t->ndim - 2));
    return batch_shape(x, t, t->ndim - 1, size);
}
static tp_tensor *column(batch_call *x, tp_tensor *t) { return t ? CALL(unsqueeze, vT(t), vI(-1)) : NULL; }

bool batch_mm(batch_call *x)
{
    tp_tensor *a = differs(x, 0), *b = differs(x, 1);
    if (a && !b)
        return batch_give(
            x, CALL(mm, vT(join(x, a)), vT(alike(x, 1)))); /* rows of one product; shaped at the end */
    symint inner = x->arg[0].t->size[1];
    if (a && b && !sym_is_expr(inner) && inner == 1) /* outer products: a gradient of each sample's weights */
        return batch_give(x, CALL(mul_Tensor, vT(a), vT(b)));
    if (!a && !b)
        return give_all(x, CALL(mm, vT(alike(x, 0)), vT(alike(x, 1))));
    return batch_give(x, CALL(bmm, vT(batch_lead(x, 0)), vT(batch_lead(x, 1))));
}

bool batch_bmm(batch_call *x)
{
    return batch_give(x, CALL(bmm, vT(join(x, batch_lead(x, 0))), vT(join(x, batch_lead(x, 1)))));
}

bool batch_mv(batch_call *x)
{
    tp_tensor *a = differs(x, 0), *v = differs(x, 1);
    if (a && !v)
        return batch_give(x, CALL(mv, vT(join(x, a)), vT(alike(x, 1))));
    if (v && !a)
        return batch_give(x, CALL(mm, vT(v), vT(CALL(t, vT(alike(x, 0))))));
    return batch_give(x, CALL(bmm, vT(batch_lead(x, 0)), vT(column(x, batch_lead(x, 1)))));
}

bool batch_dot(batch_call *x)
{
    tp_tensor *a = differs(x, 0), *b = differs(x, 1);
    if (a && !b)
        return batch_give(x, CALL(mv, vT(a), vT(alike(x, 1))));
    if (b && !a)
        return batch_give(x, CALL(mv, vT(b), vT(alike(x, 0))));
    if (dtype_size((dtype)x->arg[0].t->dt) < 4) /* a product sums in a wider type than its factors */
        return batch_give(
            x, CALL(bmm, vT(CALL(unsqueeze, vT(batch_lead(x, 0)), vI(1))), vT(column(x, batch_lead(x, 1)))));
    return batch_give(x,
                      CALL(sum_dim_IntList, vT(CALL(mul_Tensor, vT(batch_lead(x, 0)), vT(batch_lead(x, 1)))),
                           vIs((symint[]){ 1 }, 1)));
}

/* beta * self + alpha * product, by the rules of its parts. */
static bool added(batch_call *x, tp_tensor *product)
{
    const tp_val *beta = &x->arg[3], *alpha = &x->arg[4];
    tp_tensor *sum = val_is(beta, 0) ? NULL : x->arg[0].t;
    if (sum && !val_is(beta, 1))
        sum = IN_BATCH(x, mul_Tensor, vT(sum), *beta);
    if (!product)
        return false;
    if (sum)
        product = IN_BATCH(x, add_Tensor, vT(sum), vT(product), *alpha);
    else if (!val_is(alpha, 1))
        product = IN_BATCH(x, mul_Tensor, vT(product), *alpha);
    tp_tensor *w = product ? batch_spread(x->b->cx, product, x->level, x->b->err) : NULL;
    return batch_give(x, bld_keep(x->b, w));
}

bool batch_addmm(batch_call *x)
{
    if (differs(x, 1) && !differs(x, 0) && !differs(x, 2) &&
        x->arg[0].t->ndim < 2) /* a layer with weights for all */
        return batch_give(x, CALL(addmm, vT(alike(x, 0)), vT(join(x, differs(x, 1))), vT(alike(x, 2)),
                                  x->arg[3], x->arg[4]));
    return added(x, IN_BATCH(x, mm, x->arg[1], x->arg[2]));
}
bool batch_addmv(batch_call *x) { return added(x, IN_BATCH(x, mv, x->arg[1], x->arg[2])); }
bool batch_baddbmm(batch_call *x) { return added(x, IN_BATCH(x, bmm, x->arg[1], x->arg[2])); }

/* ---- convolutions ---- */
/* The batch moves behind the images, in front of the channels: [n, N, C, ...] as [N, n * C, ...]. */
static tp_tensor *as_groups(batch_call *x, tp_tensor *t)
{
    tp_tensor *m = batch_move(x, t, 0, 1);
    symint size[TP_MAX_DIMS];
    if (!m)
        return NULL;
    size[0] = m->size[0];
    size[1] = sym_mul(m->size[1], m->size[2]);
    memcpy(size + 2, m->size + 3, sizeof *size * (size_t)(m->ndim - 3));
    return batch_shape(x, m, m->ndim - 1, size);
}
static tp_tensor *from_groups(batch_call *x, tp_tensor *t, symint c)
{
    symint size[TP_MAX_DIMS];
    if (!t)
        return NULL;
    size[0] = t->size[0];
    size[1] = x->n;
    size[2] = c;
    memcpy(size + 3, t->size + 2, sizeof *size * (size_t)(t->ndim - 2));
    return batch_move(x, batch_shape(x, t, t->ndim + 1, size), 1, 0);
}
static tp_tensor *with_batch(batch_call *x, tp_tensor *t) /* [n * N, ...] as [n, N, ...] */
{
    symint size[TP_MAX_DIMS];
    if (!t)
        return NULL;
    size[0] = x->n;
    size[1] = sym_floordiv(t->size[0], x->n);
    memcpy(size + 2, t->size + 1, sizeof *size * (size_t)(t->ndim - 1));
    return batch_shape(x, t, t->ndim + 1, size);
}

bool batch_convolution(batch_call *x)
{
    const tp_val *a = x->arg;
    tp_tensor *in = differs(x, 0), *w = differs(x, 1), *bias = a[2].kind == VAL_tensor ? differs(x, 2) : NULL,
              *r;
    if (in && !w && !bias) {
        tp_val one = a[2].kind == VAL_tensor ? vT(alike(x, 2)) : vNone;
        return batch_give(
            x, CALL(convolution, vT(join(x, in)), vT(alike(x, 1)), one, a[3], a[4], a[5], a[6], a[7], a[8]));
    }
    /* A filter for each element: groups of their own. One image for all needs none where all channels belong to each filter. */
    bool shared = !in && !a[6].b && sym_eq(a[8].i, 1);
    tp_val bw = a[2].kind == VAL_tensor ? vT(CALL(reshape, vT(batch_lead(x, 2)), vIs((symint[]){ -1 }, 1)))
                                        : vNone;
    symint c = a[6].b ? sym_mul(a[1].t->size[1], a[8].i) : a[1].t->size[0];
    r = CALL(convolution, vT(shared ? alike(x, 0) : as_groups(x, batch_lead(x, 0))),
             vT(join(x, batch_lead(x, 1))), bw, a[3], a[4], a[5], a[6], a[7],
             vI(shared ? 1 : sym_mul(x->n, a[8].i)));
    return batch_give(x, from_groups(x, r, c));
}

bool batch_convolution_backward(batch_call *x)
{
    const tp_val *a =
        x->arg; /* grad, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask */
    const bool *mask = a[10].bools;
    bool dx = mask[0], dw = mask[1], db = mask[2], folds = dx && !differs(x, 2);
    tp_tensor *g = batch_lead(x, 0), *in = batch_lead(x, 1), *r[3] = { NULL };
    if (folds) {
        bool only[3] = { true, false, false };
        tp_val m = { .kind = VAL_bools, .n = 3, .bools = only };
        b_opn(x->b, convolution_backward, r, 1, vT(join(x, g)), vT(join(x, in)), vT(alike(x, 2)), vNone, a[4],
              a[5], a[6], a[7], a[8], a[9], m);
        x->out[0] = vT(r[0] ? tensor_ref(with_batch(x, r[0])) : NULL);
    }
    if (dw || (dx && !folds)) {
        bool both[3] = { dx && !folds, dw, false };
        tp_val m = { .kind = VAL_bools, .n = 3, .bools = both };
        if (!b_opn(x->b, convolution_backward, r, 2, vT(as_groups(x, g)), vT(as_groups(x, in)),
                   vT(join(x, batch_lead(x, 2))), vNone, a[4], a[5], a[6], a[7], a[8],
                   vI(sym_mul(x->n, a[9].i)), m))
            return false;
        tp_tensor *t = both[0] ? from_groups(x, r[0], a[1].t->size[1]) : NULL;
        if (t)
            x->out[0] = vT(tensor_ref(t));
        t = both[1] ? with_batch(x, r[1]) : NULL;
        if (t)
            x->out[1] = vT(tensor_ref(t));
    }
    if (db && g) {
        symint dims[TP_MAX_DIMS];
        int n = 0;
        for (int d = 1; d < g->ndim; d++)
            if (d != 2)
                dims[n++] = d;
        tp_tensor *t = CALL(sum_dim_IntList, vT(g), vIs(dims, n));
        x->out[2] = vT(t ? tensor_ref(t) : NULL);
    }
    return !x->b->failed;
}

/* ---- indices ---- */
/* 0, 1, ... n - 1 along the first of `rank` dimensions. */
static tp_tensor *counter(batch_call *x, int rank, const tp_tensor *like)
{
    symint size[TP_MAX_DIMS];
    for (int d = 0; d < rank; d++)
        size[d] = 1;
    size[0] = x->n;
    tp_tensor *t = CALL(arange, vI(x->n), vDT(DT_i64), vNone, vDev(tensor_device(like)));
    return batch_shape(x, t, rank, size);
}

typedef struct picks { /* the indices of x[...] with the batch's in front */
    tp_tensor *at[TP_MAX_DIMS];
    int n, rank, first; /* how many, the rank of what they make together, where the first one is */
    bool apart;         /* a dimension without index stands between them: what they make comes first */
} picks;

static bool picks_of(batch_call *x, picks *p)
{
    const tp_val *list = &x->arg[1];
    bool ended = false;
    *p = (picks){ .n = list->n + 1, .first = -1 };
    if (p->n > TP_MAX_DIMS)
        return false;
    for (int k = 0; k < list->n; k++) {
        const tp_tensor *t = list->ts[k];
        if (!t) {
            ended = p->first >= 0;
            continue;
        }
        if (t->dt == DT_bool || t->dt == DT_u8) /* how many it picks is in the data */
            return false;
        p->apart |= ended;
        p->first = p->first < 0 ? k : p->first;
        p->rank = MAX(p->rank, t->ndim);
    }
    for (int k = 0; k < list->n; k++)
        if (list->ts[k])
            p->at[k + 1] = x->list[k] ? batch_pad(x, x->list[k], p->rank) : list->ts[k];
    p->at[0] = counter(x, p->rank + 1, x->arg[0].t);
    return p->first >= 0 && !x->b->failed;
}

bool batch_index(batch_call *x)
{
    picks p;
    if (!picks_of(x, &p))
        return false;
    tp_tensor *r = CALL(index_Tensor, vT(batch_lead(x, 0)), vTs(p.at, p.n));
    /* The batch's index makes them stand apart, unless they begin with it: then what they make is in front, as with apart. */
    if (p.first > 0 && !p.apart && r) {
        symint perm[TP_MAX_DIMS];
        int n = 0;
        perm[n++] = 0;
        for (int d = 0; d < p.first; d++)
            perm[n++] = 1 + p.rank + d;
        for (int d = 0; d < p.rank; d++)
            perm[n++] = 1 + d;
        for (int d = 1 + p.rank + p.first; d < r->ndim; d++)
            perm[n++] = d;
        r = CALL(permute, vT(r), vIs(perm, n));
    }
    return batch_give(x, r);
}

bool batch_index_put(batch_call *x)
{
    picks p;
    if (!picks_of(x, &p) || (p.first > 0 && !p.apart))
        return false;
    int rank = x->arg[0].t->ndim - (p.n - 1) +
               p.rank; /* of x[...], with the dimensions that no index names */
    for (int k = 1; k < p.n; k++)
        rank += p.at[k] == NULL;
    tp_tensor *v = x->whole[2] ? batch_pad(x, x->whole[2], rank) : x->arg[2].t;
    return batch_give(x, CALL(index_put, vT(batch_lead(x, 0)), vTs(p.at, p.n), vT(v), x->arg[3]));
}

static int64_t dim_of(const batch_call *x, int i, int of)
{
    int64_t d = x->arg[i].i, n = MAX(x->arg[of].t->ndim, 1);
    return d < 0 ? d + n : d;
}

/* An index for each element along a dimension of self, as one for each number of self: for gather and scatter. */
static tp_tensor *index_for_all(batch_call *x, int i, int64_t dim, int rank, const symint *whole_size)
{
    symint size[TP_MAX_DIMS];
    tp_tensor *t = batch_lead(x, i);
    if (!t || rank < 1)
        return NULL;
    for (int d = 0; d <= rank; d++)
        size[d] = d == 0 ? x->n : d == dim + 1 ? x->arg[i].t->numel : 1;
    t = batch_shape(x, t, rank + 1, size);
    for (int d = 1; d <= rank; d++)
        size[d] = d == dim + 1 ? size[d] : whole_size[d];
    return t ? CALL(expand, vT(t), vIs(size, rank + 1)) : NULL;
}

bool batch_index_select(batch_call *x)
{
    int64_t dim = dim_of(x, 1, 0);
    if (!x->arg[0].t->ndim || x->arg[2].t->ndim > 1)
        return false;
    if (!differs(x, 2))
        return batch_give(x, CALL(index_select, vT(batch_lead(x, 0)), vI(dim + 1), vT(alike(x, 2))));
    if (dim == 0 && !differs(x, 0)) { /* rows of one table */
        tp_tensor *flat = CALL(reshape, vT(x->whole[2]), vIs((symint[]){ -1 }, 1));
        return batch_give(x, CALL(index_select, vT(alike(x, 0)), vI(0), vT(flat)));
    }
    tp_tensor *self = batch_lead(x, 0),
              *at = self ? index_for_all(x, 2, dim, x->arg[0].t->ndim, self->size) : NULL;
    return batch_give(x, CALL(gather, vT(self), vI(dim + 1), vT(at)));
}

/* index_copy and its like: the same places in every element. */
bool batch_index_dim(batch_call *x)
{
    tp_val a[OP_MAX_PARAMS];
    if (differs(x, 2) || !x->arg[0].t->ndim)
        return false;
    memcpy(a, x->arg, sizeof *a * (size_t)x->row->schema.nparam);
    a[0] = vT(batch_lead(x, 0));
    a[1] = vI(dim_of(x, 1, 0) + 1);
    a[2] = vT(alike(x, 2));
    if (a[3].kind == VAL_tensor) {
        if (a[3].t->ndim != x->arg[0].t->ndim)
            return false;
        a[3] = vT(batch_lead(x, 3));
    }
    return !x->b->failed && batch_run(x, x->op, a);
}

bool batch_index_add(batch_call *x)
{
    int64_t dim = x->arg[0].t->ndim ? dim_of(x, 1, 0) : 0;
    if (!differs(x, 2))
        return batch_index_dim(x);
    if (!x->arg[0].t->ndim || x->arg[3].t->ndim != x->arg[0].t->ndim)
        return false;
    tp_tensor *src = batch_lead(x, 3),
              *at = src ? index_for_all(x, 2, dim, x->arg[0].t->ndim, src->size) : NULL;
    if (src && !val_is(&x->arg[4], 1))
        src = CALL(mul_Tensor, vT(src), x->arg[4]);
    return batch_give(x, CALL(scatter_add, vT(batch_lead(x, 0)), vI(dim + 1), vT(at), vT(src)));
}

bool batch_gather(batch_call *x) /* and scatter: places along one dimension, for each element its own */
{
    for (int i = 0; i < x->row->schema.nparam; i++)
        if (x->arg[i].kind == VAL_tensor && x->arg[i].t->ndim != x->arg[0].t->ndim)
            return false;
    return batch_along(x);
}

bool batch_take(batch_call *x)
{
    return !differs(x, 0) && batch_give(x, CALL(take, vT(alike(x, 0)), vT(x->whole[1])));
}

bool batch_embedding(batch_call *x)
{
    const tp_val *a = x->arg;
    if (!differs(x, 0) && x->whole[1])
        return batch_give(x, CALL(embedding, vT(alike(x, 0)), vT(x->whole[1]), a[2], a[3], a[4]));
    return false;
}

/* A table for each element: one after another, and the indices point into theirs. */
bool batch_embedding_backward(batch_call *x)
{
    const tp_val *a = x->arg;
    if (a[4].b || (!sym_is_expr(a[3].i) && a[3].i >= 0))
        return false;
    tp_tensor *at = batch_lead(x, 1);
    tp_tensor *start = at ? CALL(mul_Tensor, vT(counter(x, at->ndim, at)), vI(a[2].i)) : NULL;
    at = start ? CALL(add_Tensor, vT(at), vT(start)) : NULL;
    return batch_give(x, CALL(embedding_dense_backward, vT(batch_lead(x, 0)), vT(at),
                              vI(sym_mul(x->n, a[2].i)), a[3], a[4]));
}
