/* draws.c - random numbers in two steps: one reserves a place in the generator's sequence, in the order of the program; the
 * other draws there and is a pure function of the place. So kernels draw where numbers are used, and backward draws them again
 * instead of keeping a mask. What distributions make of uniform and normal numbers are ordinary operators. */
#include "aot/aot.h"
#include "ir/planted.h"
#include <math.h>

typedef struct sampler {
    tp_comp *c;
    ir_graph *g;
    ir_node *at; /* the operator that is replaced */
} sampler;

static tp_val node(ir_node *n) { return (tp_val){ .kind = VAL_node, .node = n }; }

static ir_node *put(sampler *s, op_id op, const tp_val *arg, int n)
{
    ir_node *r = ir_build(s->g, op, OPV_fn, arg, n, s->c->err);
    if (r) {
        ir_insert_before(s->g, s->at, r);
        r->loc = s->at->loc;
    }
    return r;
}
static ir_node *unary(sampler *s, op_id op, ir_node *x)
{
    return x ? put(s, op, &(tp_val[]){ node(x) }[0], 1) : NULL;
}
static ir_node *with(sampler *s, op_id op, ir_node *x, tp_val y)
{
    return x ? put(s, op, (tp_val[]){ node(x), y }, 2) : NULL;
}
static ir_node *cast(sampler *s, ir_node *x, dtype dt)
{
    return x && ir_type(x)->dt != dt ? with(s, OP_to_dtype, x, vDT(dt)) : x;
}

/* Numbers of the operator's sizes; `per` of them share a block of the sequence. */
static ir_node *drawn(sampler *s, op_id op, int per, const tp_val *more, int n)
{
    const tp_tensor *t = ir_type(s->at);
    symint blocks = sym_floordiv(sym_add(t->numel, per - 1), per);
    bool host = tensor_device(t).kind == DEV_cpu;
    ir_node *place = put(s, OP__rng_reserve, (tp_val[]){ vI(blocks), vDev(tensor_device(t)) }, host ? 1 : 2);
    tp_val arg[8] = { node(place), vIs(t->size, t->ndim) };
    for (int i = 0; i < n; i++)
        arg[2 + i] = more[i];
    return place ? put(s, op, arg, 2 + n) : NULL;
}
static ir_node *basic(sampler *s, op_id op, bool wide) /* uniform or normal */
{
    return drawn(s, op, wide ? 2 : 4, &vDT(wide ? DT_f64 : DT_f32), 1);
}

/* a + b x: in the type of x, as the eager kernels do it */
static ir_node *moved(sampler *s, ir_node *x, double a, double b)
{
    if (a == 0 && b == 1)
        return x;
    return with(s, OP_add_Tensor, with(s, OP_mul_Tensor, x, vF(b)), vF(a));
}

static ir_node *uniform(sampler *s, dtype dt, double a, double b)
{
    return cast(s, moved(s, basic(s, OP__philox_uniform, dt == DT_f64), a, b - a), dt);
}
static ir_node *normal(sampler *s, dtype dt, double mean, double std)
{
    return cast(s, moved(s, basic(s, OP__philox_normal, dt == DT_f64), mean, std), dt);
}

/* Integers from lo to hi - 1, modulo 2**64. Spans that are neither small nor powers of two are divided by in the call alone. */
static ir_node *integers(sampler *s, dtype dt, int64_t lo, int64_t hi)
{
    uint64_t span = (uint64_t)hi - (uint64_t)lo;
    bool few = span && span <= 1ull << 32;
    int bits = few ? 0 : span ? __builtin_ctzll(span) : 64;
    if (span & (span - 1) && !few)
        return NULL;
    return drawn(s, OP__philox_int, few ? 4 : 2,
                 (tp_val[]){ vI(lo), vI(few ? (int64_t)span : 0), vI(bits), vDT(dt) }, 4);
}

/* random_(), random_(to), random_(from, to): see the eager kernel. */
static ir_node *any_integers(sampler *s, dtype dt)
{
    const ir_node *n = s->at;
    static const int bits[DT_COUNT] = { 1, 8, 7, 15, 31, 63, 11, 8, 24, 53 };
    bool from = n->op == OP_random__from, to = n->op == OP_random__to;
    int64_t lo = from ? n->arg[1].i : 0, hi;
    if (to)
        hi = n->arg[1].i;
    else if (from && n->arg[2].kind == VAL_int)
        hi = n->arg[2].i;
    else if (bits[dt] == 63)
        hi = (int64_t)((uint64_t)INT64_MAX + 1);
    else
        hi = ((int64_t)1 << bits[dt]) + dtype_is_float(dt);
    return sym_is_expr(lo) || sym_is_expr(hi) ? NULL : integers(s, dt, lo, hi);
}

/* Elements are 1 with the probability that each has in p: its range is checked first, as the eager kernel does. */
static ir_node *by_probability(sampler *s, tp_val p, dtype dt)
{
    const tp_tensor *t = ir_type(s->at);
    if (!put(s, OP__check_probability, &p, 1))
        return NULL;
    ir_node *wide = cast(s, p.node, DT_f64), *u = wide ? uniform(s, DT_f64, 0, 1) : NULL;
    if (u && !tensor_same_size(ir_type(wide), t))
        wide = with(s, OP_expand, wide, vIs(t->size, t->ndim));
    return cast(s, wide ? with(s, OP_lt_Tensor, u, node(wide)) : NULL, dt);
}

static double arg_of(const ir_node *n, int i) { return val_as_f(&n->arg[i]); }

/* NULL without an error: it stays what it is. */
static ir_node *replacement(sampler *s)
{
    const ir_node *n = s->at;
    dtype dt = (dtype)ir_type(n)->dt;
    ir_node *x;
    switch ((op_id)n->op) {
    case OP_rand:
    case OP_rand_like: return uniform(s, dt, 0, 1);
    case OP_uniform:
    case OP_uniform_: return uniform(s, dt, arg_of(n, 1), arg_of(n, 2));
    case OP_randn:
    case OP_randn_like: return normal(s, dt, 0, 1);
    case OP_normal_float_float: return dtype_is_float(dt) ? normal(s, dt, arg_of(n, 0), arg_of(n, 1)) : NULL;
    case OP_normal_:
    case OP_normal_functional: return normal(s, dt, arg_of(n, 1), arg_of(n, 2));
    case OP_normal_Tensor_float:
        return cast(s, with(s, OP_add_Tensor, normal(s, dt, 0, arg_of(n, 1)), n->arg[0]), dt);
    case OP_normal_Tensor_Tensor:
    case OP_normal_float_Tensor:
        x = with(s, OP_mul_Tensor, normal(s, dt, 0, 1), n->arg[1]);
        return cast(s, with(s, OP_add_Tensor, x, n->arg[0]), dt);
    case OP_log_normal:
    case OP_log_normal_: return cast(s, unary(s, OP_exp, normal(s, DT_f64, arg_of(n, 1), arg_of(n, 2))), dt);
    case OP_exponential:
    case OP_exponential_:
        x = unary(s, OP_log1p, unary(s, OP_neg, uniform(s, DT_f64, 0, 1)));
        return cast(s, with(s, OP_div_Tensor, unary(s, OP_neg, x), vF(arg_of(n, 1))), dt);
    case OP_cauchy:
    case OP_cauchy_:
        x = with(s, OP_mul_Tensor, with(s, OP_sub_Tensor, uniform(s, DT_f64, 0, 1), vF(0.5)), vF(M_PI));
        return cast(s, moved(s, unary(s, OP_tan, x), arg_of(n, 1), arg_of(n, 2)), dt);
    case OP_geometric:
    case OP_geometric_:
        x = unary(s, OP_log1p, unary(s, OP_neg, uniform(s, DT_f64, 0, 1)));
        x = unary(s, OP_ceil, with(s, OP_div_Tensor, x, vF(log1p(-arg_of(n, 1)))));
        return cast(s, with(s, OP_clamp_min, x, vF(1)), dt);
    case OP_bernoulli_p:
    case OP_bernoulli__float:
        x = uniform(s, dt == DT_f64 ? dt : DT_f32, 0, 1);
        return cast(s, with(s, OP_lt_Tensor, x, vF(arg_of(n, 1))), dt);
    case OP_bernoulli:
    case OP_bernoulli__Tensor:
        return dtype_is_float(dt) || n->op != OP_bernoulli
                   ? by_probability(s, n->arg[n->op != OP_bernoulli], dt)
                   : NULL;
    case OP_randint: return sym_is_expr(n->arg[0].i) ? NULL : integers(s, dt, 0, n->arg[0].i);
    case OP_randint_like: return sym_is_expr(n->arg[1].i) ? NULL : integers(s, dt, 0, n->arg[1].i);
    case OP_randint_low:
    case OP_randint_like_low_dtype: {
        const tp_val *a = &n->arg[n->op != OP_randint_low];
        return sym_is_expr(a[0].i) || sym_is_expr(a[1].i) ? NULL : integers(s, dt, a[0].i, a[1].i);
    }
    case OP_random_:
    case OP_random__to:
    case OP_random__from: return any_integers(s, dt);
    default: return NULL;
    }
}

static bool own_generator(const ir_node *n) /* whose state the graph does not carry */
{
    for (int i = 0; i < n->narg; i++)
        if (n->arg[i].kind == VAL_gen)
            return true;
    return false;
}

bool aot_draws(tp_comp *c, ir_graph *g)
{
    IR_EACH_SAFE (n, g) {
        const tp_tensor *t = n->kind == IR_call && n->val.kind == VAL_tensor ? ir_type(n) : NULL;
        if (!t || n->variant != OPV_fn || !(op_row_of((op_id)n->op)->flags & OPF_RAND) ||
            n->op == OP__rng_reserve || !tensor_is_contiguous(t) || own_generator(n) ||
            !decide(c, DECIDE_decomp, n))
            continue;
        int since = g->next_id;
        ir_node *v = replacement(&(sampler){ c, g, n });
        if (!v && err_is_set(c->err))
            return false;
        if (!v)
            continue;
        if (TP_UNLIKELY(fault_state != 0))
            ir_pass_on(v, since, op_row_of((op_id)n->op)->name, n);
        ir_replace_uses(n, v);
        ir_erase(n);
    }
    return true;
}
