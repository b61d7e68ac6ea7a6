/* random.c - generators, and the operators that draw. */
#include "ops/random.h"
#include "ops/pw.h"
#include "base/pool.h"
#include <math.h>

void philox(uint64_t seed, uint64_t offset, uint64_t index, uint32_t c[4])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint64_t at = offset + index;
    c[0] = (uint32_t)at;
    c[1] = (uint32_t)(at >> 32);
    c[2] = c[3] = 0;
    for (int r = 0; r < 10; r++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)p1;
        c[3] = (uint32_t)p0;
        c[0] = n0;
        c[2] = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

static tp_gen *gen_of(const op_call *c)
{
    for (int i = 0; i < c->row->schema.nparam; i++)
        if (c->arg[i].kind == VAL_gen)
            return c->arg[i].gen;
    return gen_default();
}

/* ---- filling ---- */
ISA_DECL(void, rand_f32, (int64_t n, uint64_t seed, uint64_t block, float *o, bool normal));
ISA_DECL(void, rand_f64, (int64_t n, uint64_t seed, uint64_t block, double *o, bool normal));
ISA_DECL(void, draw_shape, (int64_t n, draw_kind kind, double a, double b, const double *p, double *v));
ISA_DECL(void, rand_bits, (int64_t n, uint64_t seed, uint64_t block, uint64_t *o));
ISA_DECL(void, rand_below, (int64_t n, uint64_t seed, uint64_t block, uint64_t span, int64_t lo, int64_t *o));

typedef struct draw {
    draw_kind kind;
    double a, b;
    int64_t lo;
    uint64_t span;
    bool whole;      /* DRAW_int: all that the type holds */
    tp_tensor *prob; /* DRAW_bern_t: borrowed */
    /* set by draw_from and draw_in_turn */
    const double *p;
    dtype dt;
    char *data;
    uint64_t seed, block;
    bool wide, few; /* few: a word of 32 bits is enough */
    conv_fn *out;
    uint64_t mul; /* see rest_by */
    int sh1, sh2;
} draw;

/* r mod span by multiplication: Granlund and Montgomery's quotient of an unsigned number by a constant. */
static void rest_by(draw *d)
{
    int l = d->span > 1 ? 64 - __builtin_clzll(d->span - 1) : 0;
    unsigned __int128 top = ((unsigned __int128)1 << l) - d->span;
    d->mul = (uint64_t)((top << 64) / d->span + 1);
    d->sh1 = MIN(l, 1);
    d->sh2 = l - d->sh1;
}
static inline uint64_t rest_of(const draw *d, uint64_t r)
{
    uint64_t t = (uint64_t)((unsigned __int128)d->mul * r >> 64);
    return r - ((t + ((r - t) >> d->sh1)) >> d->sh2) * d->span;
}

enum { STEP = 1024 };
/* Elements [b, e): boundaries are multiples of STEP, so blocks are never shared. */
static void draw_span(void *arg, int64_t b, int64_t e)
{
    const draw *d = arg;
    size_t es = dtype_size(d->dt);
    bool normal = d->kind == DRAW_normal || d->kind == DRAW_lognormal;
    for (; b < e; b += STEP) {
        int64_t n = MIN(e - b, STEP);
        char *o = d->data + (size_t)b * es;
        if (d->few) {
            int64_t v[STEP], *to = d->dt == DT_i64 ? (int64_t *)o : v;
            ISA_PICK(rand_below)(n, d->seed, d->block + (uint64_t)b / 4, d->span, d->lo, to);
            if (to == v)
                d->out(n, o, v);
        } else if (d->kind == DRAW_int) {
            uint64_t v[STEP];
            ISA_PICK(rand_bits)(n, d->seed, d->block + (uint64_t)b / 2, v);
            for (int64_t i = 0; i < n; i++)
                v[i] = (uint64_t)d->lo + (d->span ? rest_of(d, v[i]) : v[i]);
            d->out(n, o, v);
        } else if (d->kind == DRAW_bern && !d->wide) {
            float v[STEP];
            ISA_PICK(rand_f32)(n, d->seed, d->block + (uint64_t)b / 4, v, false);
            for (int64_t i = 0; i < n; i++)
                v[i] = v[i] < (float)d->a;
            d->out(n, o, v);
        } else if (d->wide || d->kind > DRAW_normal) {
            double v[STEP];
            ISA_PICK(rand_f64)(n, d->seed, d->block + (uint64_t)b / 2, v, normal);
            if (d->kind > DRAW_normal || d->a != 0 || d->b != 1)
                ISA_PICK(draw_shape)(n, d->kind, d->a, d->b, d->p ? d->p + b : NULL, v);
            d->out(n, o, v);
        } else {
            float buf[STEP], *v = d->dt == DT_f32 ? (float *)o : buf;
            ISA_PICK(rand_f32)(n, d->seed, d->block + (uint64_t)b / 4, v, normal);
            float a = (float)d->a, s = (float)(normal ? d->b : d->b - d->a);
            if (a != 0 || s != 1)
                for (int64_t i = 0; i < n; i++)
                    v[i] = a + s * v[i];
            if (v == buf)
                d->out(n, o, buf);
        }
    }
}

/* The dimensions from the outermost in memory to the innermost, as PyTorch's loops order them. */
static void memory_order(const tp_tensor *t, int *order)
{
    for (int i = 0; i < t->ndim; i++)
        order[i] = t->ndim - 1 - i; /* innermost first, for now */
    for (int i = 1; i < t->ndim; i++)
        for (int at = i, k = i - 1; k >= 0; k--) {
            int64_t s0 = t->stride[order[k]], s1 = t->stride[order[at]];
            if (!s0 || !s1)
                continue;
            if (s0 < s1)
                break;
            if (s0 > s1 || t->size[order[k]] > t->size[order[at]]) {
                int was = order[k];
                order[k] = order[at];
                order[at] = was;
                at = k;
            }
        }
    for (int i = 0; i < t->ndim / 2; i++) {
        int was = order[i];
        order[i] = order[t->ndim - 1 - i];
        order[t->ndim - 1 - i] = was;
    }
}
static tp_tensor *permuted(tp_tensor *t, const int *order)
{
    symint size[TP_MAX_DIMS], stride[TP_MAX_DIMS];
    for (int i = 0; i < t->ndim; i++) {
        size[i] = t->size[order[i]];
        stride[i] = t->stride[order[i]];
    }
    return tensor_view(t, t->ndim, size, stride, t->offset);
}
/* Probabilities as doubles in a row, of p expanded to the sizes of t, in an order of its dimensions. Owned by the caller. */
static tp_tensor *in_a_row(op_call *c, const tp_tensor *p, const tp_tensor *t, const int *order)
{
    tp_tensor *wide = tensor_new(DT_f64, t->ndim, t->size, c->err);
    if (!wide || !tensor_copy(wide, p, c->err)) {
        tensor_unref(wide);
        return NULL;
    }
    tp_tensor *v = permuted(wide, order), *r = tensor_new(DT_f64, v->ndim, v->size, c->err);
    if (r && !tensor_copy(r, v, c->err)) {
        tensor_unref(r);
        r = NULL;
    }
    tensor_unref(v);
    tensor_unref(wide);
    return r;
}

/* Fills t by the counter. Numbers go to elements in logical order whatever the strides. */
static bool draw_from(op_call *c, tp_tensor *t, draw *d, tp_gen *g)
{
    static const int plain[TP_MAX_DIMS] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    tp_tensor *p = d->prob ? in_a_row(c, d->prob, t, plain) : NULL;
    tp_tensor *to = tensor_is_contiguous(t) ? tensor_ref(t)
                                            : tensor_new((dtype)t->dt, t->ndim, t->size, c->err);
    bool ok = to && (p || !d->prob);
    if (!ok)
        goto done;
    d->p = p ? tensor_host(p) : NULL;
    d->dt = (dtype)t->dt;
    d->wide = (d->dt == DT_f64 && !g->s.narrow) || (d->kind == DRAW_bern ? false : !dtype_is_float(d->dt));
    bool single = !d->wide && (d->kind <= DRAW_normal || d->kind == DRAW_bern);
    d->out = conv_of(d->dt, d->kind == DRAW_int ? DT_i64 : single ? DT_f32 : DT_f64);
    d->data = tensor_host(to);
    d->seed = g->s.seed;
    d->few = d->kind == DRAW_int && d->span && d->span <= 1ull << 32;
    if (d->kind == DRAW_int && d->span)
        rest_by(d);
    int per = d->few || (single && d->kind != DRAW_int) ? 4 : 2;
    d->block = gen_reserve(g, (uint64_t)(to->numel + per - 1) / (uint64_t)per);
    pool_for(to->numel, 8 * STEP, draw_span, d);
    if (to->storage != t->storage)
        ok = tensor_copy(t, to, c->err);
done:
    tensor_unref(p);
    tensor_unref(to);
    return ok;
}

/* ---- one after the other: PyTorch's numbers ---- */
static double next_number(const draw *d, tp_gen *g)
{
    double u;
    switch (d->kind) {
    case DRAW_normal: return fma(gen_normal(g), d->b, d->a); /* one rounding, as PyTorch compiles it */
    case DRAW_lognormal: return exp(fma(gen_normal(g), d->b, d->a));
    case DRAW_exp: return -1 / d->a * log1p(-gen_uniform(g));
    case DRAW_cauchy: return d->a + d->b * tan(M_PI * (gen_uniform(g) - 0.5));
    case DRAW_geom: return ceil(log(gen_uniform(g)) / log1p(-d->a));
    case DRAW_bern: return gen_uniform(g) < d->a;
    default: u = fma(gen_uniform(g), d->b - d->a, d->a); return u == d->b ? d->a : u;
    }
}
/* Spans from 2^28 on take 64 bits, so that the remainder favours small numbers by little. */
static uint64_t next_int(const draw *d, tp_gen *g)
{
    uint64_t r = d->wide ? gen_u64(g) : gen_u32(g);
    return (uint64_t)d->lo + (d->span ? r % d->span : r);
}
/* Rounding may give the upper end, which is not in the range: then it is the lower one. */
static float below(const draw *d, float v)
{
    uint16_t h, top;
    if (d->dt == DT_f32 || d->dt == DT_f64)
        return v == (float)d->b ? (float)d->a : v;
    conv_of(d->dt, DT_f32)(1, &h, &v);
    conv_of(d->dt, DT_f64)(1, &top, &d->b);
    return h == top ? (float)d->a : v;
}
/* n elements in a row, contiguous: all, or the next of those before. */
static void draw_some(const draw *d, tp_gen *g, int64_t n, int64_t at, char *o)
{
    union {
        uint64_t u[STEP];
        double d[STEP];
        float f[STEP];
    } v;
    for (int64_t i = 0; i < n; i++)
        if (d->kind == DRAW_int)
            v.u[i] = next_int(d, g);
        else if (d->kind == DRAW_bern_t)
            v.d[i] = (d->wide ? gen_uniform(g) : (double)gen_uniform_f32(g)) < d->p[at + i];
        else if (d->kind == DRAW_uniform && !d->wide)
            v.f[i] = below(d, fmaf(gen_uniform_f32(g), (float)d->b - (float)d->a, (float)d->a));
        else
            v.d[i] = next_number(d, g);
    d->out(n, o, &v);
}
/* Sixteen contiguous normal numbers or more have an algorithm of their own. */
static bool draw_normals(op_call *c, tp_tensor *t, const draw *d, tp_gen *g)
{
    if (t->dt == DT_f64 && !g->s.narrow) {
        gen_normals_f64(g, t->numel, tensor_host(t), d->a, d->b);
        return true;
    }
    tp_tensor *to = t->dt == DT_f32 ? tensor_ref(t) : tensor_new(DT_f32, t->ndim, t->size, c->err);
    if (to)
        gen_normals_f32(g, t->numel, tensor_host(to), (float)d->a, (float)d->b,
                        t->dt != DT_f32 && t->dt != DT_f64);
    bool ok = to && (to->storage == t->storage || tensor_copy(t, to, c->err));
    tensor_unref(to);
    return ok;
}
static bool draw_in_turn(op_call *c, tp_tensor *t, draw *d, tp_gen *g)
{
    if (d->kind == DRAW_normal && t->numel >= 16 && tensor_is_contiguous(t))
        return draw_normals(c, t, d, g);
    int order[TP_MAX_DIMS];
    dtype dt = (dtype)t->dt;
    bool double_word = dt == DT_f64 || dt == DT_i64;
    memory_order(t, order);
    tp_tensor *v = permuted(t, order), *p = d->prob ? in_a_row(c, d->prob, t, order) : NULL;
    tp_tensor *to = tensor_is_contiguous(v) ? tensor_ref(v) : tensor_new(dt, v->ndim, v->size, c->err);
    bool ok = to && (p || !d->prob);
    d->dt = dt;
    d->p = p ? tensor_host(p) : NULL;
    d->wide = d->kind == DRAW_int      ? d->whole ? double_word : !d->span || d->span >= 1ull << 28
              : g->s.narrow            ? false
              : d->kind == DRAW_bern_t ? d->prob->dt == DT_f64
                                       : dt == DT_f64;
    d->out = conv_of(dt, d->kind == DRAW_int                   ? DT_i64
                         : d->kind == DRAW_uniform && !d->wide ? DT_f32
                                                               : DT_f64);
    for (int64_t i = 0; ok && i < to->numel; i += STEP)
        draw_some(d, g, MIN(STEP, to->numel - i), i, (char *)tensor_host(to) + (size_t)i * dtype_size(dt));
    if (ok && to->storage != t->storage)
        ok = tensor_copy(v, to, c->err);
    tensor_unref(p);
    tensor_unref(to);
    tensor_unref(v);
    return ok;
}

/* A value of t's geometry without its gaps: does it lie in order? */
static bool in_order(const tp_tensor *t)
{
    symint dense[TP_MAX_DIMS], row[TP_MAX_DIMS];
    if (tensor_is_contiguous(t))
        return true;
    shape_pointwise_strides(t->ndim, t->size, 1, (tp_tensor *[]){ (tp_tensor *)t }, dense);
    shape_contiguous_strides(t->ndim, t->size, row);
    for (int d = 0; d < t->ndim; d++)
        if (t->size[d] > 1 && dense[d] != row[d])
            return false;
    return true;
}

/* Whether compiled code would draw this by its counter (aot/draws.c): into a value of its own, which is then copied. */
static bool counts(const tp_tensor *t, const draw *d, const tp_gen *g)
{
    bool plain = d->kind != DRAW_int || !(d->span & (d->span - 1)) || d->span <= 1ull << 32;
    return g->s.counted && g == gen_default() && plain && in_order(t);
}
static bool draw_fill(op_call *c, tp_tensor *t, draw *d)
{
    tp_gen *g = gen_of(c);
    return counts(t, d, g) ? draw_from(c, t, d, g) : draw_in_turn(c, t, d, g);
}

/* ---- checks ---- */
static bool float_only(op_call *c, dtype dt, const char *what)
{
    return dtype_is_float(dt) ||
           err_set(c->err, ERR_notimpl, "\"%s\" not implemented for '%s'", what, dtype_rows[dt].gname);
}
static bool int_range(op_call *c, dtype dt, int64_t lo, int64_t hi)
{
    static const int64_t min[] = { 0, 0, INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN };
    static const int64_t max[] = { 1, UINT8_MAX, INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX };
    static const char *const nm[] = { "bool", "unsigned char", "signed char", "short", "int", "long" };
    if (lo >= hi)
        return err_set(c->err, ERR_runtime,
                       "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
                       (long long)lo, (long long)hi);
    if (dtype_is_float(dt))
        return true;
    if (lo < min[dt] || lo > max[dt])
        return err_set(c->err, ERR_runtime, "from is out of bounds for %s", nm[dt]);
    if (hi - 1 > max[dt])
        return err_set(c->err, ERR_runtime, "to - 1 is out of bounds for %s", nm[dt]);
    return true;
}

/* ---- making: rand, randn, randint ---- */
bool shape_rand(op_call *c) /* size, generator, dtype */
{
    dtype dt = arg_dt(c, 2, c->cx->default_dtype);
    return float_only(c, dt, c->row->name[4] == 'n' ? "normal_kernel_cpu" : "check_uniform_bounds") &&
           out_new(c, dt, c->arg[0].n, c->arg[0].ints) != NULL;
}
bool eager_rand(op_call *c) { return draw_fill(c, c->res[0], &(draw){ .kind = DRAW_uniform, .b = 1 }); }
bool eager_randn(op_call *c) { return draw_fill(c, c->res[0], &(draw){ .kind = DRAW_normal, .b = 1 }); }

/* Draws in two steps, as compiled graphs have them: where to draw from, and what is drawn there. */
bool shape_rng_reserve(op_call *c)
{
    if (!sym_is_expr(c->arg[0].i) && c->arg[0].i < 0)
        return err_set(c->err, ERR_value, "_rng_reserve: %lld blocks", (long long)c->arg[0].i);
    return out_new(c, DT_i64, 1, (symint[]){ 2 }) != NULL;
}
bool eager_rng_reserve(op_call *c)
{
    tp_gen *g = gen_default();
    int64_t *o = tensor_host(c->res[0]);
    o[0] = (int64_t)g->s.seed;
    o[1] = (int64_t)gen_reserve(g, (uint64_t)c->arg[0].i);
    return true;
}
bool shape_philox(op_call *c) /* state, size, ..., dtype last */
{
    const tp_tensor *s = arg_t(c, 0);
    dtype dt = arg_dt(c, c->row->schema.nparam - 1, DT_f32);
    if (s->dt != DT_i64 || s->ndim != 1 || !sym_eq(s->size[0], 2))
        return err_set(c->err, ERR_type, "%s: expected what _rng_reserve gives", c->row->name);
    if (c->row->schema.nparam == 3 && dt != DT_f32 && dt != DT_f64)
        return err_set(c->err, ERR_type, "%s: draws float32 and float64, not %s", c->row->name,
                       dtype_rows[dt].sname);
    if (c->row->schema.nparam == 6 && (c->arg[3].i < 0 || c->arg[3].i > 1ll << 32 || c->arg[4].i < 0 ||
                                       c->arg[4].i > 64 || (c->arg[4].i ? c->arg[4].i <= 32 : !c->arg[3].i)))
        return err_set(c->err, ERR_value, "%s: draws from 1 to 2**32 numbers, or 33 to 64 bits",
                       c->row->name);
    return out_new(c, dt, c->arg[1].n, c->arg[1].ints) != NULL;
}
static bool draw_there(op_call *c, draw d)
{
    const tp_tensor *s = arg_t(c, 0);
    tp_gen g = { 1,
                 { .seed = (uint64_t) * (int64_t *)tensor_elem(s, 0),
                   .offset = (uint64_t) * (int64_t *)tensor_elem(s, 1) } };
    return draw_from(c, c->res[0], &d, &g);
}
bool eager_philox_uniform(op_call *c) { return draw_there(c, (draw){ .kind = DRAW_uniform, .b = 1 }); }
bool eager_philox_normal(op_call *c) { return draw_there(c, (draw){ .kind = DRAW_normal, .b = 1 }); }
bool eager_philox_int(op_call *c) /* bits, where not 0, say which power of two the span is */
{
    int64_t bits = c->arg[4].i;
    return draw_there(c, (draw){ .kind = DRAW_int,
                                 .lo = c->arg[2].i,
                                 .span = bits == 0   ? (uint64_t)c->arg[3].i
                                         : bits < 64 ? 1ull << bits
                                                     : 0 });
}

bool shape_randint(op_call *c) /* [low,] high, size, generator, dtype */
{
    int s = c->arg[1].kind == VAL_ints ? 1 : 2;
    dtype dt = arg_dt(c, s + 2, DT_i64);
    int64_t lo = s == 2 ? c->arg[0].i : 0, hi = c->arg[s - 1].i;
    if (!sym_is_expr(lo) && !sym_is_expr(hi) && !int_range(c, dt, lo, hi))
        return false;
    return out_new(c, dt, c->arg[s].n, c->arg[s].ints) != NULL;
}
static bool fill_ints(op_call *c, int64_t lo, int64_t hi)
{
    return draw_fill(c, c->res[0],
                     &(draw){ .kind = DRAW_int, .lo = lo, .span = (uint64_t)hi - (uint64_t)lo });
}
bool eager_randint(op_call *c)
{
    bool low = c->arg[1].kind != VAL_ints;
    return fill_ints(c, low ? c->arg[0].i : 0, c->arg[low].i);
}
bool shape_randint_like(op_call *c) /* self, [low,] high, generator, dtype, ... */
{
    bool low = !strcmp(c->row->schema.param[1].name, "low");
    tp_tensor *t = arg_t(c, 0);
    dtype dt = arg_dt(c, low ? 4 : 3, (dtype)t->dt);
    if (!int_range(c, dt, low ? c->arg[1].i : 0, c->arg[low ? 2 : 1].i))
        return false;
    out_dense(c, t, dt);
    return true;
}
bool eager_randint_like(op_call *c)
{
    bool low = !strcmp(c->row->schema.param[1].name, "low");
    return fill_ints(c, low ? c->arg[1].i : 0, c->arg[low ? 2 : 1].i);
}

bool shape_rand_like(op_call *c) /* self, generator, dtype, ..., memory_format */
{
    tp_tensor *t = arg_t(c, 0);
    dtype dt = arg_dt(c, 2, (dtype)t->dt);
    if (!float_only(c, dt, c->row->name[4] == 'n' ? "normal_kernel_cpu" : "check_uniform_bounds"))
        return false;
    out_dense(c, t, dt);
    return true;
}

bool shape_randperm(op_call *c) { return out_new(c, arg_dt(c, 2, DT_i64), 1, &c->arg[0].i) != NULL; }
bool eager_randperm(op_call *c)
{
    tp_tensor *o = c->res[0];
    int64_t n = o->numel;
    tp_gen *g = gen_of(c);
    int64_t *p = mem_alloc(sizeof *p * (size_t)MAX(n, 1));
    for (int64_t i = 0; i < n; i++)
        p[i] = i;
    for (int64_t i = 0; i < n - 1; i++) {
        uint64_t r = n < UINT32_MAX / 20 ? gen_u32(g) : gen_u64(g);
        int64_t j = i + (int64_t)(r % (uint64_t)(n - i)), was = p[i];
        p[i] = p[j];
        p[j] = was;
    }
    if (n)
        conv_of((dtype)o->dt, DT_i64)(n, tensor_host(o), p);
    free(p);
    return true;
}

/* ---- in place, and the same as functions of a tensor's shape ---- */
static tp_tensor *target(op_call *c) { return c->row->flags & OPF_MUT ? arg_t(c, 0) : c->res[0]; }
bool shape_like0(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    out_dense(c, t, (dtype)t->dt);
    return true;
}

/* The distributions' arguments are checked in their shape rules, so that wrong ones fail without data, too. */
bool shape_self0(op_call *c);
static bool drawn(op_call *c)
{
    if (!(c->row->flags & OPF_MUT))
        return shape_like0(c);
    return tensor_overlaps_itself(arg_t(c, 0)) ? ops_overlap_err(true, c->err) : shape_self0(c);
}
static bool continuous(op_call *c, const char *what)
{
    dtype dt = (dtype)arg_t(c, 0)->dt;
    return dtype_is_float(dt) || err_set(c->err, ERR_runtime,
                                         "%s distribution is a continuous probability distribution. dtype "
                                         "must be a floating point but you "
                                         "specified %s",
                                         what, dtype_rows[dt].gname);
}
#define ARG_F(i) val_as_f(&c->arg[i])
bool shape_uniform_(op_call *c)
{
    if (!float_only(c, (dtype)arg_t(c, 0)->dt, "check_uniform_bounds"))
        return false;
    if (ARG_F(1) > ARG_F(2))
        return err_set(c->err, ERR_runtime,
                       "uniform_ expects to return a [from, to) range, but found from=%g > to=%g", ARG_F(1),
                       ARG_F(2));
    return drawn(c);
}
bool shape_normal_(op_call *c)
{
    if (!float_only(c, (dtype)arg_t(c, 0)->dt, "normal_kernel_cpu"))
        return false;
    if (!(ARG_F(2) >= 0))
        return err_set(c->err, ERR_runtime, "normal expects std >= 0.0, but found std %g", ARG_F(2));
    return drawn(c);
}
bool shape_log_normal_(op_call *c)
{
    if (!float_only(c, (dtype)arg_t(c, 0)->dt, "log_normal_cpu"))
        return false;
    if (!(ARG_F(2) > 0))
        return err_set(c->err, ERR_runtime, "log_normal_ expects std > 0.0, but found std=%g", ARG_F(2));
    return drawn(c);
}
bool shape_exponential_(op_call *c)
{
    if (!continuous(c, "Exponential"))
        return false;
    if (!(ARG_F(1) > 0))
        return err_set(c->err, ERR_runtime, "exponential_ expects lambda > 0.0, but found lambda=%g",
                       ARG_F(1));
    return drawn(c);
}
bool shape_cauchy_(op_call *c)
{
    if (!continuous(c, "Cauchy"))
        return false;
    if (!(ARG_F(2) > 0))
        return err_set(c->err, ERR_runtime, "cauchy_ expects sigma > 0.0, but found sigma=%g", ARG_F(2));
    return drawn(c);
}
bool shape_geometric_(op_call *c)
{
    if (!(ARG_F(1) > 0 && ARG_F(1) < 1))
        return err_set(c->err, ERR_runtime, "geometric_ expects p to be in (0, 1), but got p=%g", ARG_F(1));
    return drawn(c);
}
static bool draw2(op_call *c, int kind, bool second)
{
    return draw_fill(c, target(c), &(draw){ .kind = kind, .a = ARG_F(1), .b = second ? ARG_F(2) : 0 });
}
bool eager_uniform_(op_call *c) { return draw2(c, DRAW_uniform, true); }
bool eager_normal_(op_call *c) { return draw2(c, DRAW_normal, true); }
bool eager_log_normal_(op_call *c) { return draw2(c, DRAW_lognormal, true); }
bool eager_exponential_(op_call *c) { return draw2(c, DRAW_exp, false); }
bool eager_cauchy_(op_call *c) { return draw2(c, DRAW_cauchy, true); }
bool eager_geometric_(op_call *c) { return draw2(c, DRAW_geom, false); }

/* bernoulli: with a probability for all, or one for each element */
#define IN_RANGE(T)                           \
    for (int64_t i = 0; i < t->numel; i++) {  \
        T v = ((const T *)tensor_host(t))[i]; \
        bad |= !(v >= 0 && v <= 1);           \
    }
static bool probabilities(op_call *c, tp_tensor *p)
{
    bool plain = tensor_is_contiguous(p) && (p->dt == DT_f32 || p->dt == DT_f64);
    tp_tensor *t = plain ? tensor_ref(p) : tensor_new(DT_f64, p->ndim, p->size, c->err);
    int bad = 0;
    if (!t || (!plain && !tensor_copy(t, p, c->err))) {
        tensor_unref(t);
        return false;
    }
    if (t->dt == DT_f32)
        IN_RANGE(float)
    else
        IN_RANGE(double)
    tensor_unref(t);
    return !bad || err_set(c->err, ERR_runtime, "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
}
bool shape_check_probability(op_call *c) { return true; }
bool eager_check_probability(op_call *c) { return probabilities(c, arg_t(c, 0)); }

static bool bern(op_call *c, tp_tensor *to, const tp_val *p)
{
    if (p->kind != VAL_tensor)
        return draw_fill(c, to, &(draw){ .kind = DRAW_bern, .a = val_as_f(p) });
    if (!probabilities(c, p->t))
        return false;
    return draw_fill(c, to, &(draw){ .kind = DRAW_bern_t, .prob = p->t });
}
bool shape_bernoulli_(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *p = c->arg[1].kind == VAL_tensor ? arg_t(c, 1) : NULL;
    if (!p && !(ARG_F(1) >= 0 && ARG_F(1) <= 1))
        return err_set(c->err, ERR_runtime, "bernoulli_ expects p to be in [0, 1], but got p=%g", ARG_F(1));
    return (!p || shape_fits(t, p, c->err)) && drawn(c);
}
bool shape_bernoulli(op_call *c) /* contiguous, whatever the probabilities' layout */
{
    const tp_tensor *t = arg_t(c, 0);
    return out_new(c, (dtype)t->dt, t->ndim, t->size) != NULL;
}
bool eager_bernoulli_(op_call *c) { return bern(c, target(c), &c->arg[1]); }
bool eager_bernoulli(op_call *c)
{
    return float_only(c, (dtype)arg_t(c, 0)->dt, "bernoulli_tensor_cpu_p_") && bern(c, c->res[0], &c->arg[0]);
}

/* random_(), random_(to), random_(from, to): first number and how many there are */
static bool random_span(op_call *c, int64_t *lo, uint64_t *span)
{
    dtype dt = (dtype)arg_t(c, 0)->dt;
    bool from = c->row->schema.nparam == 4, to = c->row->schema.nparam == 3;
    int64_t hi;
    *lo = from ? c->arg[1].i : 0;
    if (to)
        hi = c->arg[1].i;
    else if (from && c->arg[2].kind != VAL_none)
        hi = c->arg[2].i;
    else {
        static const int bits[DT_COUNT] = { 1, 8, 7, 15, 31, 63, 11, 8, 24, 53 };
        int k = bits[dt];
        if (k == 63) {
            *span = (uint64_t)INT64_MAX - (uint64_t)*lo + 1;
            return true;
        }
        hi = ((int64_t)1 << k) + (dtype_is_float(dt) ? 1 : 0);
    }
    *span = (uint64_t)hi - (uint64_t)*lo;
    return int_range(c, dt, *lo, hi);
}
bool shape_random_(op_call *c)
{
    int64_t lo;
    uint64_t span;
    return random_span(c, &lo, &span) && drawn(c);
}
bool eager_random_(op_call *c)
{
    draw d = { .kind = DRAW_int, .whole = c->row->schema.nparam == 2 };
    return random_span(c, &d.lo, &d.span) && draw_fill(c, target(c), &d);
}

/* ---- normal with tensors ---- */
bool shape_normal(op_call *c)
{
    tp_tensor *m = arg_t(c, 0), *s = arg_t(c, 1);
    symint size[TP_MAX_DIMS];
    tp_tensor *first = m ? m : s;
    int nd = first->ndim;
    memcpy(size, first->size, sizeof(symint) * (size_t)nd);
    if (m && s && !shape_broadcast(&nd, size, s->ndim, s->size, c->err))
        return false;
    if (!s && !(val_as_f(&c->arg[1]) >= 0))
        return err_set(c->err, ERR_runtime, "normal expects std >= 0.0, but found std %g",
                       val_as_f(&c->arg[1]));
    dtype dt = m && s ? dtype_promote((dtype)m->dt, (dtype)s->dt) : (dtype)first->dt;
    return float_only(c, dt, "normal_kernel_cpu") && out_new(c, dt, nd, size) != NULL;
}
bool eager_normal(op_call *c)
{
    bld b;
    tp_tensor *r = c->res[0];
    bld_init(&b, c->cx, c->err);
    bool each = arg_t(c, 1) != NULL; /* a deviation for each */
    bool ok = draw_fill(c, r, &(draw){ .kind = DRAW_normal, .b = each ? 1 : val_as_f(&c->arg[1]) });
    if (ok) {
        tp_tensor *v = each ? b_op(&b, mul_Tensor, vT(r), c->arg[1]) : r;
        v = b_op(&b, add_Tensor, vT(v), c->arg[0]);
        ok = v && tensor_copy(r, v, c->err);
    }
    bld_end(&b);
    return ok;
}
bool shape_normal_float(op_call *c) /* mean, std, size, generator, dtype */
{
    if (!(val_as_f(&c->arg[1]) >= 0))
        return err_set(c->err, ERR_runtime, "normal expects std >= 0.0, but found std %g",
                       val_as_f(&c->arg[1]));
    return out_new(c, arg_dt(c, 4, c->cx->default_dtype), c->arg[2].n, c->arg[2].ints) != NULL;
}
bool eager_normal_float(op_call *c)
{
    return draw_fill(c, c->res[0],
                     &(draw){ .kind = DRAW_normal, .a = val_as_f(&c->arg[0]), .b = val_as_f(&c->arg[1]) });
}

/* ---- multinomial ---- */
bool shape_multinomial(op_call *c)
{
    tp_tensor *t = arg_t(c, 0);
    symint n = c->arg[1].i;
    if (t->ndim < 1 || t->ndim > 2)
        return err_set(c->err, ERR_runtime, "prob_dist must be 1 or 2 dim");
    if (!dtype_is_float((dtype)t->dt))
        return err_set(c->err, ERR_runtime,
                       "multinomial only supports floating-point dtypes for input, got: %s",
                       dtype_rows[t->dt].gname);
    if (!sym_gt(n, 0))
        return err_set(c->err, ERR_runtime, "cannot sample n_sample <= 0 samples");
    if (!c->arg[2].b && sym_gt(n, t->size[t->ndim - 1]))
        return err_set(c->err, ERR_runtime,
                       "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    return out_new(c, DT_i64, t->ndim, (symint[]){ t->ndim == 2 ? t->size[0] : n, n }) != NULL;
}

/* The number of a line's category that u in [0, 1) falls on; at: sums of the probabilities, the last of them 1. */
static int64_t category(const double *at, int64_t m, double u)
{
    int64_t lo = 0, hi = m;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (at[mid] < u)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}
/* Sums are kept in the type that PyTorch keeps them in: float64 of float64, else float32. */
static void running_sums(const double *w, int64_t m, dtype dt, double *at)
{
    double sum = 0;
    for (int64_t i = 0; i < m; i++) {
        sum = dt == DT_f64 ? sum + w[i] : (double)((float)sum + (float)w[i]);
        at[i] = sum;
    }
    for (int64_t i = 0; i < m && sum > 0; i++)
        at[i] = dt == DT_f64 ? at[i] / sum : (double)((float)at[i] / (float)sum);
    at[m - 1] = 1;
}
static bool weights(op_call *c, const double *w, int64_t m)
{
    double sum = 0;
    for (int64_t i = 0; i < m; i++) {
        if (!(w[i] >= 0) || isinf(w[i]))
            return err_set(c->err, ERR_runtime,
                           "probability tensor contains either `inf`, `nan` or element < 0");
        sum += w[i];
    }
    return sum > 0 ||
           err_set(c->err, ERR_runtime, "invalid multinomial distribution (sum of probabilities <= 0)");
}
/* Without replacement, and for one sample: the largest of p / q, where q is exponential. */
static bool by_race(op_call *c, tp_tensor *t, int64_t k)
{
    bld b;
    bld_init(&b, c->cx, c->err);
    tp_tensor *q = tensor_new((dtype)t->dt, t->ndim, t->size, c->err), *r[2] = { NULL };
    bool ok = q && draw_in_turn(c, q, &(draw){ .kind = DRAW_exp, .a = 1 }, gen_of(c));
    if (ok) {
        tp_tensor *x = b_op(&b, div_Tensor, vT(t), vT(q));
        if (k == 1)
            r[1] = b_op(&b, argmax, vT(x), vI(-1), vB(true));
        else
            b_opn(&b, topk, r, 2, vT(x), vI(k), vI(-1), vB(true), vB(true));
        ok = r[1] && tensor_copy(c->res[0], r[1], c->err);
    }
    tensor_unref(q);
    bld_end(&b);
    return ok;
}
bool eager_multinomial(op_call *c)
{
    tp_tensor *t = arg_t(c, 0), *w = tensor_new(DT_f64, t->ndim, t->size, c->err);
    int64_t m = t->size[t->ndim - 1], k = c->arg[1].i, rows = t->ndim == 2 ? t->size[0] : 1;
    bool race = !c->arg[2].b || k == 1, ok = w && tensor_copy(w, t, c->err);
    double *at = mem_alloc(sizeof *at * (size_t)MAX(m, 1));
    int64_t *o = tensor_host(c->res[0]);
    for (int64_t r = 0; ok && r < rows; r++)
        ok = weights(c, (double *)tensor_host(w) + r * m, m);
    if (ok && race)
        ok = by_race(c, t, k);
    for (int64_t r = 0; ok && !race && r < rows; r++) {
        running_sums((double *)tensor_host(w) + r * m, m, (dtype)t->dt, at);
        for (int64_t i = 0; i < k; i++)
            o[r * k + i] = category(at, m, gen_uniform(gen_of(c)));
    }
    free(at);
    tensor_unref(w);
    return ok;
}
