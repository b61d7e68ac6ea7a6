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

/* The new call of a row: PUT(s, exp, ...) */
#define PUT(s, op, ...)        put(s, OP_##op, B_ARGS(__VA_ARGS__))
#define UNARY(s, op, x)        unary(s, OP_##op, x)
#define WITH(s, op, x, y)      with(s, OP_##op, x, y)
#define DRAWN(s, op, per, ...) drawn(s, OP_##op, per, B_ARGS(__VA_ARGS__))
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
    return x && ir_type(x)->dt != dt ? WITH(s, to_dtype, x, vDT(dt)) : x;
}

/* Numbers of the operator's sizes; `per` of them share a block of the sequence. */
static ir_node *drawn(sampler *s, op_id op, int per, const tp_val *more, int n)
{
    const tp_tensor *t = ir_type(s->at);
    symint blocks = sym_floordiv(sym_add(t->numel, per - 1), per);
    bool host = tensor_device(t).kind == DEV_cpu;
    ir_node *place = host ? PUT(s, _rng_reserve, vI(blocks))
                          : PUT(s, _rng_reserve, vI(blocks), vDev(tensor_device(t)));
    tp_val arg[8] = { node(place), vIs(t->size, t->ndim) };
    for (int i = 0; i < n; i++)
        arg[2 + i] = more[i];
    return place ? put(s, op, arg, 2 + n) : NULL;
}

/* a + b x: in the type of x, as the eager kernels do it */
static ir_node *moved(sampler *s, ir_node *x, double a, double b)
{
    if (a == 0 && b == 1)
        return x;
    return WITH(s, add_Tensor, WITH(s, mul_Tensor, x, vF(b)), vF(a));
}

static ir_node *uniform(sampler *s, dtype dt, double a, double b)
{
    return cast(s,
                moved(s, DRAWN(s, _philox_uniform, dt == DT_f64 ? 2 : 4, vDT(dt == DT_f64 ? DT_f64 : DT_f32)),
                      a, b - a),
                dt);
}
static ir_node *normal(sampler *s, dtype dt, double mean, double std)
{
    return cast(s,
                moved(s, DRAWN(s, _philox_normal, dt == DT_f64 ? 2 : 4, vDT(dt == DT_f64 ? DT_f64 : DT_f32)),
                      mean, std),
                dt);
}

/* Integers from lo to hi - 1, modulo 2**64. Spans that are neither small nor powers of two are divided by in the call alone. */
static ir_node *integers(sampler *s, dtype dt, int64_t lo, int64_t hi)
{
    uint64_t span = (uint64_t)hi - (uint64_t)lo;
    bool few = span && span <= 1ull << 32;
    int bits = few ? 0 : span ? __builtin_ctzll(span) : 64;
    if (span & (span - 1) && !few)
        return NULL;
    return DRAWN(s, _philox_int, few ? 4 : 2, vI(lo), vI(few ? (int64_t)span : 0), vI(bits), vDT(dt));
}

/* random_(): all that the type can hold. */
static int64_t beyond_type(dtype dt)
{
    static const int bits[DT_COUNT] = { 1, 8, 7, 15, 31, 63, 11, 8, 24, 53 };
    if (bits[dt] == 63)
        return (int64_t)((uint64_t)INT64_MAX + 1);
    return ((int64_t)1 << bits[dt]) + dtype_is_float(dt);
}

static ir_node *between(sampler *s, dtype dt, symint lo, symint hi)
{
    return sym_is_expr(lo) || sym_is_expr(hi) ? NULL : integers(s, dt, lo, hi);
}

/* Elements are 1 with the probability that each has in p: its range is checked first, as the eager kernel does. */
static ir_node *by_probability(sampler *s, tp_val p, dtype dt)
{
    const tp_tensor *t = ir_type(s->at);
    if (!PUT(s, _check_probability, p))
        return NULL;
    ir_node *wide = cast(s, p.node, DT_f64), *u = wide ? uniform(s, DT_f64, 0, 1) : NULL;
    if (u && !tensor_same_size(ir_type(wide), t))
        wide = WITH(s, expand, wide, vIs(t->size, t->ndim));
    return cast(s, wide ? WITH(s, lt_Tensor, u, node(wide)) : NULL, dt);
}

static double arg_of(const ir_node *n, int i) { return val_as_f(&n->arg[i]); }

/* --- the DRAW column: what stands for s->at, in its type. NULL without an error: it stays what it is. */
static ir_node *draw_rand(sampler *s, const ir_node *n, dtype dt) { return uniform(s, dt, 0, 1); }
static ir_node *draw_randn(sampler *s, const ir_node *n, dtype dt) { return normal(s, dt, 0, 1); }

static ir_node *draw_uniform(sampler *s, const ir_node *n, dtype dt)
{
    return uniform(s, dt, arg_of(n, 1), arg_of(n, 2));
}
static ir_node *draw_normal(sampler *s, const ir_node *n, dtype dt)
{
    return normal(s, dt, arg_of(n, 1), arg_of(n, 2));
}
static ir_node *draw_normal_numbers(sampler *s, const ir_node *n, dtype dt)
{
    return dtype_is_float(dt) ? normal(s, dt, arg_of(n, 0), arg_of(n, 1)) : NULL;
}
static ir_node *draw_normal_means(sampler *s, const ir_node *n, dtype dt)
{
    return cast(s, WITH(s, add_Tensor, normal(s, dt, 0, arg_of(n, 1)), n->arg[0]), dt);
}
static ir_node *draw_normal_tensors(sampler *s, const ir_node *n, dtype dt)
{
    ir_node *x = WITH(s, mul_Tensor, normal(s, dt, 0, 1), n->arg[1]);
    return cast(s, WITH(s, add_Tensor, x, n->arg[0]), dt);
}
static ir_node *draw_log_normal(sampler *s, const ir_node *n, dtype dt)
{
    return cast(s, UNARY(s, exp, normal(s, DT_f64, arg_of(n, 1), arg_of(n, 2))), dt);
}
static ir_node *draw_exponential(sampler *s, const ir_node *n, dtype dt)
{
    ir_node *x = UNARY(s, log1p, UNARY(s, neg, uniform(s, DT_f64, 0, 1)));
    return cast(s, WITH(s, div_Tensor, UNARY(s, neg, x), vF(arg_of(n, 1))), dt);
}
static ir_node *draw_cauchy(sampler *s, const ir_node *n, dtype dt)
{
    ir_node *x = WITH(s, mul_Tensor, WITH(s, sub_Tensor, uniform(s, DT_f64, 0, 1), vF(0.5)), vF(M_PI));
    return cast(s, moved(s, UNARY(s, tan, x), arg_of(n, 1), arg_of(n, 2)), dt);
}
static ir_node *draw_geometric(sampler *s, const ir_node *n, dtype dt)
{
    ir_node *x = UNARY(s, log1p, UNARY(s, neg, uniform(s, DT_f64, 0, 1)));
    x = UNARY(s, ceil, WITH(s, div_Tensor, x, vF(log1p(-arg_of(n, 1)))));
    return cast(s, WITH(s, clamp_min, x, vF(1)), dt);
}
static ir_node *draw_bernoulli_number(sampler *s, const ir_node *n, dtype dt)
{
    ir_node *x = uniform(s, dt == DT_f64 ? dt : DT_f32, 0, 1);
    return cast(s, WITH(s, lt_Tensor, x, vF(arg_of(n, 1))), dt);
}
static ir_node *draw_bernoulli(sampler *s, const ir_node *n, dtype dt)
{
    return dtype_is_float(dt) ? by_probability(s, n->arg[0], dt) : NULL;
}
static ir_node *draw_bernoulli_into(sampler *s, const ir_node *n, dtype dt)
{
    return by_probability(s, n->arg[1], dt);
}
static ir_node *draw_randint(sampler *s, const ir_node *n, dtype dt)
{
    return between(s, dt, 0, n->arg[0].i);
}
static ir_node *draw_randint_like(sampler *s, const ir_node *n, dtype dt)
{
    return between(s, dt, 0, n->arg[1].i);
}
static ir_node *draw_randint_low(sampler *s, const ir_node *n, dtype dt)
{
    return between(s, dt, n->arg[0].i, n->arg[1].i);
}
static ir_node *draw_randint_like_low(sampler *s, const ir_node *n, dtype dt)
{
    return between(s, dt, n->arg[1].i, n->arg[2].i);
}
static ir_node *draw_random(sampler *s, const ir_node *n, dtype dt)
{
    return between(s, dt, 0, beyond_type(dt));
}
static ir_node *draw_random_to(sampler *s, const ir_node *n, dtype dt)
{
    return between(s, dt, 0, n->arg[1].i);
}
static ir_node *draw_random_from(sampler *s, const ir_node *n, dtype dt)
{
    return between(s, dt, n->arg[1].i, n->arg[2].kind == VAL_int ? n->arg[2].i : beyond_type(dt));
}

typedef ir_node *draw_fn(sampler *s, const ir_node *n, dtype dt);
static draw_fn *const draws[OP_COUNT] = {
#define DRAW(id, token) [OP_##id] = draw_##token,
#include "ops/ops.def"
};

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
        if (!t || n->variant != OPV_fn || !draws[n->op] || !tensor_is_contiguous(t) || own_generator(n) ||
            !decide(c, DECIDE_decomp, n))
            continue;
        int since = g->next_id;
        ir_node *v = draws[n->op](&(sampler){ c, g, n }, n, (dtype)t->dt);
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
