/* columns_chance.c - see chance.h: the distribution function of each operator that draws random numbers, by the C library. A number
 * that was drawn and the distribution function of its element give one between 0 and 1; of right ones these are spread evenly. */
#include "debug/chance.h"
#include "debug/truth_loops.h"
#include "grad/grad.h"
#include "ops/random.h"

/* What is known of element k: the chance of a number below v, and of one up to v. They differ where v itself has a chance. */
typedef bool chance_fn(const tp_val *a, int64_t k, double v, double *below, double *upto);
#define CHANCE(name) \
    static bool chance_##name(const tp_val *a, int64_t k, double v, double *below, double *upto)

static bool smooth(double p, double *below, double *upto)
{
    *below = *upto = p;
    return !isnan(p);
}
static double normal(double v) { return 0.5 * erfc(-v * M_SQRT1_2); }
static double even(double v, double lo, double hi) { return fmin(fmax((v - lo) / (hi - lo), 0), 1); }
/* The parameter at a: a number, or that of the element. */
static double parameter(const tp_val *a, int64_t k)
{
    const tp_tensor *t = tensor_arg(a);
    return t ? t->numel ? get(t, t->numel == 1 ? 0 : k % t->numel) : NAN : number(a, NAN);
}
static bool one_of(double v, double p, double *below, double *upto) /* 1 with chance p, else 0 */
{
    *below = v > 0 ? 1 - p : 0;
    *upto = v > 0 ? 1 : 1 - p;
    return p >= 0 && p <= 1;
}
static bool whole(double v, double lo, double hi, double *below, double *upto)
{
    *below = even(v, lo, hi);
    *upto = even(v + 1, lo, hi);
    return hi > lo && v >= lo && v < hi;
}

CHANCE(uniform) { return smooth(even(v, 0, 1), below, upto); }
CHANCE(normal) { return smooth(normal(v), below, upto); }
CHANCE(uniform_of) { return smooth(even(v, number(&a[1], 0), number(&a[2], 1)), below, upto); }
static bool normal_by(double v, double m, double s, double *below, double *upto)
{
    return s > 0 && smooth(normal((v - m) / s), below, upto);
}
CHANCE(normal_of) { return normal_by(v, number(&a[1], 0), number(&a[2], 1), below, upto); }
CHANCE(normal_each) { return normal_by(v, parameter(&a[0], k), parameter(&a[1], k), below, upto); }
CHANCE(log_normal) { return v > 0 && normal_by(log(v), number(&a[1], 1), number(&a[2], 2), below, upto); }
CHANCE(exponential) { return v >= 0 && smooth(-expm1(-v * number(&a[1], 1)), below, upto); }
CHANCE(cauchy) { return smooth(0.5 + atan((v - number(&a[1], 0)) / number(&a[2], 1)) / M_PI, below, upto); }
CHANCE(geometric)
{
    double q = log1p(-number(&a[1], NAN));
    *below = -expm1((v - 1) * q);
    *upto = -expm1(v * q);
    return v >= 1 && !isnan(q);
}
CHANCE(bernoulli) { return one_of(v, parameter(&a[0], k), below, upto); }
CHANCE(bernoulli_p) { return one_of(v, parameter(&a[1], k), below, upto); }
CHANCE(randint) { return whole(v, 0, number(&a[0], NAN), below, upto); }
CHANCE(randint_from) { return whole(v, number(&a[0], NAN), number(&a[1], NAN), below, upto); }
CHANCE(randint_like) { return whole(v, 0, number(&a[1], NAN), below, upto); }
CHANCE(randint_like_from) { return whole(v, number(&a[1], NAN), number(&a[2], NAN), below, upto); }
CHANCE(multinomial)
{
    const tp_tensor *w = tensor_arg(&a[0]);
    int64_t n = w && w->ndim ? w->size[w->ndim - 1] : 0, many = number(&a[1], 0) > 0 ? a[1].i : 0;
    bool again = a[2].kind == VAL_bool && a[2].b;
    double all = 0, sum = 0;
    if (!n || !many || (!again && many > 1) || v < 0 || v >= (double)n)
        return false;
    const int64_t row = w->ndim > 1 ? k / many * n : 0;
    for (int64_t j = 0; j < n; j++)
        all += get(w, row + j);
    for (int64_t j = 0; j < (int64_t)v; j++)
        sum += get(w, row + j);
    *below = sum / all;
    *upto = (sum + get(w, row + (int64_t)v)) / all;
    return all > 0;
}
/* Of elements that are not 0: 0 with chance p, else larger by 1 / (1 - p). */
CHANCE(dropout)
{
    const tp_tensor *x = tensor_arg(&a[0]);
    double p = number(&a[1], NAN), was = x && k < x->numel ? get(x, k) : 0, to = was / (1 - p),
           near = x && (x->dt == DT_f16 || x->dt == DT_bf16) ? 0.02 : 1e-5;
    if (was == 0 || !(p > 0) || !(p < 1) || a[2].kind != VAL_bool || !a[2].b || !isfinite(was))
        return false;
    bool kept = v != 0;
    *below = kept ? p : 0;
    *upto = kept && fabs(v - to) <= near * fabs(to) ? 1 : kept ? NAN : p; /* another number than it may be */
    return true;
}

static chance_fn *const chances[OP_COUNT] = {
    [OP_rand] = chance_uniform,
    [OP_rand_like] = chance_uniform,
    [OP_randn] = chance_normal,
    [OP_randn_like] = chance_normal,
    [OP_uniform_] = chance_uniform_of,
    [OP_normal_] = chance_normal_of,
    [OP_normal_functional] = chance_normal_of,
    [OP_normal_float_float] = chance_normal_each,
    [OP_normal_Tensor_Tensor] = chance_normal_each,
    [OP_normal_Tensor_float] = chance_normal_each,
    [OP_normal_float_Tensor] = chance_normal_each,
    [OP_log_normal_] = chance_log_normal,
    [OP_exponential_] = chance_exponential,
    [OP_cauchy_] = chance_cauchy,
    [OP_geometric_] = chance_geometric,
    [OP_bernoulli] = chance_bernoulli,
    [OP_bernoulli_p] = chance_bernoulli_p,
    [OP_bernoulli__float] = chance_bernoulli_p,
    [OP_bernoulli__Tensor] = chance_bernoulli_p,
    [OP_randint] = chance_randint,
    [OP_randint_low] = chance_randint_from,
    [OP_randint_like] = chance_randint_like,
    [OP_randint_like_low_dtype] = chance_randint_like_from,
    [OP_multinomial] = chance_multinomial,
    [OP_dropout] = chance_dropout,
    [OP_native_dropout] = chance_dropout,
};

/* ---- many of them ---- */
enum { ENOUGH = 20000, MOST_CALLS = 4000 };
typedef struct sample {
    double *u; /* even, when the numbers are right */
    int64_t n;
    uint64_t rng;
    double outside; /* a number that cannot be drawn; NaN: there was none */
} sample;

static double toss(sample *s)
{
    s->rng = s->rng * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(s->rng >> 11) * 0x1p-53;
}

/* False: nothing is known of this call. */
static bool take(sample *s, chance_fn *fn, const tp_val *arg, const tp_tensor *t)
{
    bool any = false;
    for (int64_t k = 0; k < t->numel && s->n < ENOUGH; k++) {
        double v = get(t, k), below, upto;
        if (!fn(arg, k, v, &below, &upto))
            continue;
        any = true;
        if (isnan(upto))
            s->outside = v;
        else
            s->u[s->n++] = below + (upto - below) * toss(s);
    }
    return any;
}

/* What the call draws, or writes to its operand; owned, or NULL. */
static tp_tensor *drawn(op_ctx *cx, op_id op, const tp_val *arg)
{
    const op_row *row = op_row_of(op);
    tp_val own[OP_MAX_PARAMS], out[OP_MAX_RETURNS] = { 0 };
    memcpy(own, arg, sizeof *own * (size_t)row->schema.nparam);
    tp_tensor *written = NULL, *r = NULL;
    if (row->flags & OPF_MUT) {
        const tp_tensor *t = arg[0].t;
        written = tensor_new((dtype)t->dt, t->ndim, t->size, NULL);
        own[0] = vT(written);
    }
    bool ok = (!(row->flags & OPF_MUT) || written) && ops_call(cx, op, OPV_fn, own, out, NULL);
    tp_tensor *t = written ? written : out[0].kind == VAL_tensor ? out[0].t : NULL;
    if (ok && t)
        r = tensor_ref(t);
    for (int i = 0; i < row->schema.nret; i++)
        val_clear(&out[i]);
    tensor_unref(written);
    return r;
}

static bool draw_once(sample *s, op_ctx *cx, op_id op, const tp_val *arg, chance_fn *fn)
{
    tp_tensor *t = drawn(cx, op, arg);
    bool ok = t && take(s, fn, arg, t);
    tensor_unref(t);
    return ok;
}

/* The numbers of one seed are the same whatever was drawn before it was set. */
static bool seed_repeats(op_ctx *cx, op_id op, const tp_val *arg, strbuf *why)
{
    tp_tensor *t[2];
    bool same = true;
    for (int i = 0; i < 2; i++) {
        gen_seed(gen_default(), 20240229);
        t[i] = drawn(cx, op, arg);
    }
    for (int64_t k = 0; t[0] && t[1] && same && k < MIN(t[0]->numel, t[1]->numel); k++) {
        double x = get(t[0], k), y = get(t[1], k);
        same = x == y || (isnan(x) && isnan(y));
        if (!same)
            strbuf_addf(why, "of one seed eager draws %.6g, and when it is set again %.6g", x, y);
    }
    tensor_unref(t[0]);
    tensor_unref(t[1]);
    return same;
}

bool chance_wrong(op_ctx *cx, op_id op, const tp_val *arg, strbuf *why)
{
    chance_fn *fn = chances[op];
    tp_gen *g = gen_default();
    gen_state was = g->s;
    for (int i = 0; i < op_row_of(op)->schema.nparam; i++)
        if (arg[i].kind == VAL_gen) /* its own would go on */
            return false;
    if (!seed_repeats(cx, op, arg, why)) {
        g->s = was;
        return true;
    }
    g->s = was;
    if (!fn)
        return false;
    sample s = { .u = mem_alloc(sizeof *s.u * ENOUGH), .rng = 20240229, .outside = NAN };
    double most = 0, at = 0;
    for (int k = 0; k < MOST_CALLS && s.n < ENOUGH && isnan(s.outside); k++)
        if (!draw_once(&s, cx, op, arg, fn))
            break;
    g->s = was;
    qsort(s.u, (size_t)s.n, sizeof *s.u, rising);
    for (int64_t k = 0; k < s.n;
         k++) { /* the largest distance from the even distribution: Kolmogorov and Smirnov */
        double off = fmax(fabs(s.u[k] - (double)k / (double)s.n),
                          fabs(s.u[k] - (double)(k + 1) / (double)s.n));
        if (off > most)
            most = off, at = s.u[k];
    }
    bool wrong = s.n >= 500 && most > sqrt(10 / (double)s.n); /* chance 2 exp(-20) */
    if (!isnan(s.outside)) {
        strbuf_addf(why, "eager draws %.6g, which cannot be", s.outside);
        wrong = true;
    } else if (wrong)
        strbuf_addf(why, "of %lld numbers that eager draws, %.1f %% lie where %.1f %% should", (long long)s.n,
                    100 * (most + at > 1 ? at - most : at + most), 100 * at);
    free(s.u);
    return wrong;
}
