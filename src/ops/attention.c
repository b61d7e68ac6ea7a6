/* attention.c - see attention.h. Formulas compute in f32 where tensors are narrow. */
#include "ops/attention.h"
#include "ops/decomp.h"
#include "ops/ondevice.h"
#include <math.h>

#define MUL(x, y) b_op(b, mul_Tensor, vT(x), y)
#define SUB(x, y) b_op(b, sub_Tensor, vT(x), vT(y))

static attention_offer *offers[DEV_COUNT];
void attention_on_device(dev_kind k, attention_offer *offer) { offers[k] = offer; }

/* --- formulas --------------------------------------------------------------------------------------- */
static dtype wide_type(const tp_tensor *t)
{
    return t->dt == DT_f16 || t->dt == DT_bf16 ? DT_f32 : (dtype)t->dt;
}
static tp_tensor *wide(bld *b, tp_tensor *t)
{
    return t && wide_type(t) != t->dt ? b_op(b, to_dtype, vT(t), vDT(wide_type(t))) : t;
}
static tp_tensor *narrow(bld *b, tp_tensor *t, const tp_tensor *like)
{
    return t && t->dt != like->dt ? b_op(b, to_dtype, vT(t), vDT(like->dt)) : t;
}
static tp_tensor *turned(bld *b, tp_tensor *t)
{
    return t ? b_op(b, transpose_int, vT(t), vI(-2), vI(-1)) : NULL;
}
static symint group_of(const attention_args *a) { return sym_floordiv(a->q->size[1], a->k->size[1]); }

/* Keys or values, wide, a head for each of the queries. */
static tp_tensor *spread(bld *b, const attention_args *a, tp_tensor *t)
{
    t = wide(b, t);
    return sym_eq(a->q->size[1], a->k->size[1])
               ? t
               : b_op(b, repeat_interleave_self_int, vT(t), vI(group_of(a)), vI(1));
}
static tp_tensor *gathered(bld *b, const attention_args *a, tp_tensor *t) /* the gradient of that */
{
    static const symint middle = 2;
    if (!t || sym_eq(a->q->size[1], a->k->size[1]))
        return t;
    symint size[5] = { t->size[0], a->k->size[1], group_of(a), t->size[2], t->size[3] };
    return b_op(b, sum_dim_IntList, vT(b_op(b, reshape, vT(t), vIs(size, 5))), vIs(&middle, 1), vB(false),
                vNone);
}

/* Scores with their mask, and the rows that meet nothing (NULL: each meets something). */
static tp_tensor *scores_of(bld *b, const attention_args *a, tp_tensor **none)
{
    tp_tensor *s = b_op(b, matmul, vT(wide(b, a->q)), vT(turned(b, spread(b, a, a->k))));
    s = MUL(s, vF(a->scale));
    *none = NULL;
    if (a->causal) {
        symint size[2] = { a->q->size[2], a->k->size[2] };
        tp_tensor *all = b_op(b, ones, vIs(size, 2), vDT(DT_bool), vNone, vDev(tensor_device(a->q)));
        s = b_op(b, where_self, vT(b_op(b, tril, vT(all))), vT(s), vF(-INFINITY));
    }
    if (a->mask)
        s = a->mask->dt == DT_bool ? b_op(b, where_self, vT(a->mask), vT(s), vF(-INFINITY))
                                   : b_op(b, add_Tensor, vT(s), vT(wide(b, a->mask)));
    if (a->mask)
        *none = b_op(b, all_dim, vT(b_op(b, eq_Tensor, vT(s), vF(-INFINITY))), vI(-1), vB(true));
    return s;
}

/* Probabilities, before dropout. */
static tp_tensor *probabilities(bld *b, const attention_args *a)
{
    tp_tensor *none, *s = scores_of(b, a, &none);
    if (none) /* what such a row holds is of no account, but it must have a derivative */
        s = b_op(b, where_self, vT(none), vF(0), vT(s));
    tp_tensor *p = b_op(b, softmax_int, vT(s), vI(-1));
    return none ? b_op(b, where_self, vT(none), vF(0), vT(p)) : p;
}

/* What dropout multiplies probabilities by; NULL: there is none. */
static tp_tensor *kept(bld *b, const attention_args *a)
{
    if (!a->state)
        return NULL;
    symint size[4] = { a->q->size[0], a->q->size[1], a->q->size[2], a->k->size[2] };
    tp_tensor *u = b_op(b, _philox_uniform, vT(a->state), vIs(size, 4), vDT(DT_f32));
    tp_tensor *k = b_op(b, to_dtype, vT(b_op(b, lt_Tensor, vT(u), vF(1 - a->p))), vDT(wide_type(a->q)));
    return MUL(k, vF(1 / (1 - a->p)));
}

bool attention_gradient(bld *b, const attention_args *a, tp_tensor *go, const bool want[4], tp_tensor *d[4])
{
    tp_tensor *p = probabilities(b, a), *keep = kept(b, a), *drop = keep ? MUL(p, vT(keep)) : p;
    tp_tensor *q = wide(b, a->q), *k = spread(b, a, a->k), *v = spread(b, a, a->v);
    static const symint last = -1;
    go = wide(b, go);
    tp_tensor *dp = b_op(b, matmul, vT(go), vT(turned(b, v)));
    if (keep)
        dp = MUL(dp, vT(keep));
    tp_tensor *delta = b_op(b, sum_dim_IntList, vT(MUL(p, vT(dp))), vIs(&last, 1), vB(true), vNone);
    tp_tensor *ds = MUL(p, vT(SUB(dp, delta))), *scaled = MUL(ds, vF(a->scale));
    d[0] = want[0] ? narrow(b, b_op(b, matmul, vT(scaled), vT(k)), a->q) : NULL;
    d[1] = want[1] ? narrow(b, gathered(b, a, b_op(b, matmul, vT(turned(b, scaled)), vT(q))), a->k) : NULL;
    d[2] = want[2] ? narrow(b, gathered(b, a, b_op(b, matmul, vT(turned(b, drop)), vT(go))), a->v) : NULL;
    d[3] = want[3] ? narrow(b, ds, a->mask) : NULL;
    return !b->failed;
}

/* --- the rows --------------------------------------------------------------------------------------- */
attention_args
attention_of(const tp_val *arg) /* query, key, value, attn_mask, state, dropout_p, is_causal, scale */
{
    return (attention_args){ .q = val_t(&arg[0]),
                             .k = val_t(&arg[1]),
                             .v = val_t(&arg[2]),
                             .mask = val_t(&arg[3]),
                             .state = val_t(&arg[4]),
                             .p = val_as_f(&arg[5]),
                             .causal = val_b(&arg[6], false),
                             .scale = val_as_f(&arg[7]) };
}

static bool fits(op_call *c, const attention_args *a)
{
    bool ok = a->q->ndim == 4 && a->k->ndim == 4 && a->v->ndim == 4 && a->q->dt == a->k->dt &&
              a->q->dt == a->v->dt && dtype_is_float((dtype)a->q->dt);
    for (int d = 0; ok && d < 4; d++)
        ok = sym_eq(a->k->size[d], a->v->size[d]) &&
             (d == 1 || d == 2 || sym_eq(a->q->size[d], a->k->size[d]));
    ok = ok && sym_lt(0, a->k->size[1]) && sym_eq(sym_mod(a->q->size[1], a->k->size[1]), 0);
    if (ok && a->mask)
        ok = a->mask->ndim == 4 && (a->mask->dt == DT_bool || a->mask->dt == a->q->dt) && !a->causal &&
             sym_eq(a->mask->size[0], a->q->size[0]) && sym_eq(a->mask->size[1], a->q->size[1]) &&
             sym_eq(a->mask->size[2], a->q->size[2]) && sym_eq(a->mask->size[3], a->k->size[2]);
    if (ok && a->state)
        ok = a->state->dt == DT_i64 && a->state->ndim == 1 && sym_eq(a->state->size[0], 2);
    return ok ||
           err_set(c->err, ERR_runtime,
                   "%s: expected query, key and value of one type, [batch, heads, rows, head], and a mask of "
                   "[batch, heads, rows of query, rows of key]",
                   c->row->name);
}

bool shape_flash(op_call *c)
{
    attention_args a = attention_of(c->arg);
    if (!fits(c, &a) || !out_like(c, a.q, (dtype)a.q->dt))
        return false;
    symint size[4] = { 2, a.q->size[0], a.q->size[1], a.q->size[2] };
    return out_new(c, wide_type(a.q), 4, size) != NULL;
}
/* grad_out, query, ..., scale, stats, out: the gradient of the query, and two numbers a row for the other one, which reads them. */
bool shape_flash_grad_query(op_call *c)
{
    attention_args a = attention_of(c->arg + 1);
    if (!fits(c, &a) || !out_like(c, a.q, (dtype)a.q->dt))
        return false;
    symint size[4] = { a.q->size[0], a.q->size[1], a.q->size[2], 2 };
    return out_new(c, wide_type(a.q), 4, size) != NULL;
}
bool shape_flash_grad_key(op_call *c) /* grad_out, query, ..., scale, stats, rows */
{
    attention_args a = attention_of(c->arg + 1);
    return fits(c, &a) && out_like(c, a.k, (dtype)a.k->dt) && out_like(c, a.v, (dtype)a.v->dt);
}

/* Maxima of the scores and 1 / sums of exp(score - maximum); zeros where a row meets nothing. */
static tp_tensor *stats_of(bld *b, const attention_args *a)
{
    static const symint last = -1;
    tp_tensor *none, *s = scores_of(b, a, &none), *top = b_op(b, amax, vT(s), vIs(&last, 1), vB(true));
    tp_tensor *e = b_op(b, exp, vT(SUB(s, top)));
    tp_tensor *part = b_op(b, reciprocal,
                           vT(b_op(b, sum_dim_IntList, vT(e), vIs(&last, 1), vB(true), vNone)));
    if (none) {
        top = b_op(b, where_self, vT(none), vF(0), vT(top));
        part = b_op(b, where_self, vT(none), vF(0), vT(part));
    }
    tp_tensor *both[2] = { top ? b_op(b, squeeze_dim, vT(top), vI(-1)) : NULL,
                           part ? b_op(b, squeeze_dim, vT(part), vI(-1)) : NULL };
    return both[0] && both[1] ? b_op(b, stack, vTs(both, 2), vI(0)) : NULL;
}

bool eager_flash(op_call *c)
{
    attention_args a = attention_of(c->arg);
    bld built, *b = &built;
    bld_init(b, c->cx, c->err);
    tp_tensor *p = probabilities(b, &a), *keep = kept(b, &a);
    tp_tensor *o = b_op(b, matmul, vT(keep ? MUL(p, vT(keep)) : p), vT(spread(b, &a, a.v)));
    tp_tensor *stats = stats_of(b, &a);
    bool ok = o && stats && tensor_copy(c->res[0], o, c->err) && tensor_copy(c->res[1], stats, c->err);
    bld_end(b);
    return ok;
}
/* Of each row: what its exponents begin with, which a mask of numbers has no room for (then 1 / sum), and the sum of g o. */
static tp_tensor *rows_of(bld *b, const attention_args *a, tp_tensor *go, tp_tensor *out, tp_tensor *stats)
{
    static const symint last = -1;
    tp_tensor *top = b_op(b, select_int, vT(stats), vI(0), vI(0)),
              *part = b_op(b, select_int, vT(stats), vI(0), vI(1));
    tp_tensor *both[2] = { part, b_op(b, sum_dim_IntList, vT(MUL(wide(b, go), vT(wide(b, out)))),
                                      vIs(&last, 1), vB(false), vNone) };
    if (!a->mask || a->mask->dt == DT_bool)
        both[0] = SUB(b_op(b, log2, vT(part)), MUL(top, vF(M_LOG2E)));
    return both[0] && both[1] ? b_op(b, stack, vTs(both, 2), vI(-1)) : NULL;
}
bool eager_flash_grad_query(op_call *c)
{
    attention_args a = attention_of(c->arg + 1);
    tp_tensor *d[4];
    bld b;
    bld_init(&b, c->cx, c->err);
    tp_tensor *rows = rows_of(&b, &a, arg_t(c, 0), arg_t(c, 10), arg_t(c, 9));
    bool ok = rows && attention_gradient(&b, &a, arg_t(c, 0), (const bool[4]){ true }, d) &&
              tensor_copy(c->res[0], d[0], c->err) && tensor_copy(c->res[1], rows, c->err);
    bld_end(&b);
    return ok;
}
bool eager_flash_grad_key(op_call *c)
{
    attention_args a = attention_of(c->arg + 1);
    tp_tensor *d[4];
    bld b;
    bld_init(&b, c->cx, c->err);
    bool ok = attention_gradient(&b, &a, arg_t(c, 0), (const bool[4]){ false, true, true }, d) &&
              tensor_copy(c->res[0], d[1], c->err) && tensor_copy(c->res[1], d[2], c->err);
    bld_end(&b);
    return ok;
}

static own_attention own_of(const attention_args *a)
{
    return (own_attention){ .q = a->q,
                            .k = a->k,
                            .v = a->v,
                            .mask = a->mask,
                            .state = a->state,
                            .p = a->p,
                            .scale = a->scale,
                            .causal = a->causal };
}
static own_result run_on_device(op_call *c, const own_attention *a)
{
    const own_kernels *own = ops_owner(tensor_device(a->q));
    return own->attend ? own->attend(tensor_device(a->q), a, c->err) : OWN_declined;
}
own_result device_flash(op_call *c)
{
    attention_args a = attention_of(c->arg);
    own_attention x = own_of(&a);
    x.kind = OWN_attention, x.o = c->res[0], x.stats = c->res[1];
    return run_on_device(c, &x);
}
own_result device_flash_grad_query(op_call *c)
{
    attention_args a = attention_of(c->arg + 1);
    own_attention x = own_of(&a);
    x.kind = OWN_grad_query, x.g = arg_t(c, 0), x.stats = arg_t(c, 9), x.o = arg_t(c, 10);
    x.dq = c->res[0], x.rows = c->res[1];
    return run_on_device(c, &x);
}
own_result device_flash_grad_key(op_call *c)
{
    attention_args a = attention_of(c->arg + 1);
    own_attention x = own_of(&a);
    x.kind = OWN_grad_key, x.g = arg_t(c, 0), x.stats = arg_t(c, 9), x.rows = arg_t(c, 10);
    x.dk = c->res[0], x.dv = c->res[1];
    return run_on_device(c, &x);
}

/* --- scaled_dot_product_attention ------------------------------------------------------------------- */
static bool suits(const attention_args *a, bool gqa)
{
    const tp_tensor *q = a->q, *k = a->k, *v = a->v;
    int n = q->ndim;
    symint e = q->size[n - 1];
    bool ok = n >= 2 && n <= 4 && k->ndim == n && v->ndim == n && !sym_is_expr(e) &&
              sym_eq(k->size[n - 1], e) && sym_eq(v->size[n - 1], e) &&
              sym_eq(k->size[n - 2], v->size[n - 2]) && a->scale > 0 && isfinite(a->scale) && a->p >= 0 &&
              a->p < 1;
    for (int d = 0; ok && d < n - 2; d++)
        ok = sym_eq(k->size[d], v->size[d]) &&
             (sym_eq(q->size[d], k->size[d]) || (gqa && d == n - 3 && n == 4 && sym_lt(0, k->size[d]) &&
                                                 sym_eq(sym_mod(q->size[d], k->size[d]), 0)));
    ok = ok && !sym_eq(q->numel, 0) && !sym_eq(k->numel, 0) && (!a->mask || a->mask->ndim <= n);
    tp_device d = tensor_device(q);
    return ok && offers[d.kind] && offers[d.kind]((dtype)q->dt, e, d);
}

tp_tensor *attention_in_one(bld *b, const attention_args *from, bool gqa)
{
    attention_args a = *from;
    int n = a.q->ndim;
    if (!suits(&a, gqa))
        return NULL;
    if (a.mask) {
        symint size[4];
        memcpy(size, a.q->size, sizeof *size * (size_t)n);
        size[n - 1] = a.k->size[n - 2];
        a.mask = b_op(b, expand, vT(a.mask), vIs(size, n));
    }
    tp_tensor **all[4] = { &a.q, &a.k, &a.v, &a.mask };
    for (int i = 0; i < 4; i++)
        for (int d = n; d < 4 && *all[i]; d++) /* [rows, head] and [batch, rows, head]: one head */
            *all[i] = b_op(b, unsqueeze, vT(*all[i]), vI(d == 2 ? 0 : 1));
    if (b->failed)
        return NULL;
    if (a.p > 0) {
        symint numbers = sym_mul(sym_floordiv(a.q->numel, a.q->size[3]), a.k->size[2]);
        a.state = b_op(b, _rng_reserve, vI(sym_floordiv(sym_add(numbers, 3), 4)), vDev(tensor_device(a.q)));
        if (!a.state)
            return NULL;
    }
    tp_tensor *o[2];
    if (!b_opn(b, _flash_attention, o, 2, vT(a.q), vT(a.k), vT(a.v), a.mask ? vT(a.mask) : vNone,
               a.state ? vT(a.state) : vNone, vF(a.p), vB(a.causal), vF(a.scale)))
        return NULL;
    for (int d = 3; d >= n && o[0]; d--)
        o[0] = b_op(b, select_int, vT(o[0]), vI(d == 2 ? 0 : 1), vI(0));
    return o[0];
}
