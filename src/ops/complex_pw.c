/* complex_pw.c - pointwise operators on complex numbers: blocks are converted to the width computed in, then the loop runs. */
#include "ops/complex.h"
#include "ops/iter.h"
#include "ops/pw.h"
#include <complex.h>
#include <float.h>
#include <math.h>
#undef I

#define T    float
#define C    float _Complex
#define F(g) g##f
#define N(n) c64_##n
#include "ops/complex_loops.h"
#define T    double
#define C    double _Complex
#define F(g) g
#define N(n) c128_##n
#include "ops/complex_loops.h"

typedef void loop_fn(int64_t n, void *o, const void *a, const void *b, const void *c, const double *p);
typedef enum { RES_number, RES_real, RES_truth } res_kind;
typedef struct loop_row {
    loop_fn *f[2];
    uint8_t nin;
    uint8_t res;
    bool mask; /* the first operand is a condition */
} loop_row;

enum { BLOCK = 256, MAX_IN = 3 };
typedef struct job {
    const loop_row *row;
    loop_fn *loop;
    const double *par;
    dtype work;            /* complex */
    dtype dt[MAX_IN + 1];  /* as stored; 0 is the result */
    dtype cdt[MAX_IN + 1]; /* as computed */
} job;

static void run_span(void *arg, int64_t n, char *const *p, const int64_t *st)
{
    const job *j = arg;
    _Alignas(64) double buf[MAX_IN + 1][2 * BLOCK];
    const void *in[MAX_IN] = { 0 };
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = MIN(n - at, BLOCK);
        for (int k = 1; k <= j->row->nin; k++) {
            const char *s = p[k] + at * st[k];
            in[k - 1] = s;
            if (j->dt[k] == j->cdt[k] && st[k] == (int64_t)dtype_size(j->dt[k]))
                continue;
            in[k - 1] = buf[k];
            if (st[k] || !at)
                special_convert(st[k] ? m : BLOCK, (char *)buf[k], j->cdt[k], (int64_t)dtype_size(j->cdt[k]),
                                s, j->dt[k], st[k]);
        }
        char *o = p[0] + at * st[0];
        bool direct = j->dt[0] == j->cdt[0] && st[0] == (int64_t)dtype_size(j->dt[0]);
        j->loop(m, direct ? (void *)o : (void *)buf[0], in[0], in[1], in[2], j->par);
        if (!direct)
            special_convert(m, o, j->dt[0], st[0], (const char *)buf[0], j->cdt[0],
                            (int64_t)dtype_size(j->cdt[0]));
    }
}

typedef struct input {
    tp_tensor *t; /* NULL: a number */
    const tp_val *num;
} input;

static bool apply(op_call *c, const loop_row *row, const input *in, const double *par)
{
    dtype join = (dtype)c->out[0].dt == DT_bool || row->res != RES_number ? pw_join(c) : (dtype)c->out[0].dt;
    job j = { .row = row, .par = par, .work = dtype_complex_of(join) };
    tp_tensor *out = c->res[0], *op[ITER_MAX] = { out };
    double num[MAX_IN][2];
    iter it;
    j.loop = row->f[j.work == DT_c128];
    j.dt[0] = (dtype)out->dt;
    j.cdt[0] = row->res == RES_number ? j.work : row->res == RES_real ? dtype_real_of(j.work) : DT_bool;
    for (int k = 0; k < row->nin; k++) {
        op[k + 1] = in[k].t;
        j.cdt[k + 1] = row->mask && !k ? DT_bool : j.work;
        j.dt[k + 1] = in[k].t ? (dtype)in[k].t->dt : DT_c128;
        if (!in[k].t)
            val_as_c(in[k].num, num[k]);
    }
    iter_init(&it, row->nin + 1, op);
    for (int k = 0; k < row->nin; k++)
        if (!in[k].t)
            it.data[k + 1] = (char *)num[k];
    iter_run(&it, run_span, &j, 0);
    return true;
}

/* Operands in the order of the Tensor parameters. */
static bool run_row(op_call *c, const loop_row *row, const double *par)
{
    const op_schema *s = &c->row->schema;
    input in[MAX_IN] = { 0 };
    int n = 0;
    for (int i = 0; i < s->nparam && n < row->nin; i++)
        if (s->param[i].type == PT_tensor && c->arg[i].kind != VAL_none)
            in[n++] = (input){ arg_t(c, i), &c->arg[i] };
    assert(n == row->nin);
    return apply(c, row, in, par);
}

#define ROW(name, nin, res) \
    static const loop_row row_##name = { { c64_pw_##name, c128_pw_##name }, nin, RES_##res, false };
#define PLAIN(name, nin, res) \
    ROW(name, nin, res)       \
    bool special_##name(op_call *c) { return run_row(c, &row_##name, NULL); }
/* With the number that is argument i. */
#define NUMBER(name, kernel, nin, i)         \
    ROW(kernel, nin, number)                 \
    bool special_##name(op_call *c)          \
    {                                        \
        double p[2];                         \
        val_as_c(&c->arg[i], p);             \
        return run_row(c, &row_##kernel, p); \
    }
PLAIN(mul, 2, number)
PLAIN(div, 2, number)
PLAIN(neg, 1, number)
PLAIN(conj, 1, number)
PLAIN(square, 1, number)
PLAIN(reciprocal, 1, number)
PLAIN(sgn, 1, number)
PLAIN(exp, 1, number)
PLAIN(exp2, 1, number)
PLAIN(expm1, 1, number)
PLAIN(log, 1, number)
PLAIN(log2, 1, number)
PLAIN(log10, 1, number)
PLAIN(log1p, 1, number)
PLAIN(sqrt, 1, number)
PLAIN(rsqrt, 1, number)
PLAIN(sin, 1, number)
PLAIN(cos, 1, number)
PLAIN(tan, 1, number)
PLAIN(asin, 1, number)
PLAIN(acos, 1, number)
PLAIN(atan, 1, number)
PLAIN(sinh, 1, number)
PLAIN(cosh, 1, number)
PLAIN(tanh, 1, number)
PLAIN(asinh, 1, number)
PLAIN(acosh, 1, number)
PLAIN(atanh, 1, number)
PLAIN(sinc, 1, number)
PLAIN(sigmoid, 1, number)
PLAIN(tanh_b, 2, number)
PLAIN(sigmoid_b, 2, number)
PLAIN(lerp, 3, number)
PLAIN(abs, 1, real)
PLAIN(isnan, 1, truth)
PLAIN(isinf, 1, truth)
PLAIN(isfinite, 1, truth)
PLAIN(eq, 2, truth)
PLAIN(ne, 2, truth)
PLAIN(not, 1, truth)
PLAIN(and, 2, truth)
PLAIN(or, 2, truth)
PLAIN(xor, 2, truth)
NUMBER(rsub, rsub, 2, 2)
NUMBER(lerp_s, lerp_number, 2, 2)
NUMBER(addcmul, addcmul, 3, 3)
NUMBER(addcdiv, addcdiv, 3, 3)
ROW(add, 2, number)
ROW(sub, 2, number)
ROW(axpy, 2, number)
ROW(pow, 2, number)
ROW(pow_number, 1, number)
ROW(number_pow, 1, number)
ROW(nan_to_num, 1, number)
static const loop_row row_where = { { c64_pw_where, c128_pw_where }, 3, RES_number, true };

static bool add_like(op_call *c, const loop_row *plain, double sign)
{
    double p[2];
    val_as_c(&c->arg[2], p);
    if (p[0] == 1 && p[1] == 0)
        return run_row(c, plain, NULL);
    p[0] *= sign;
    p[1] *= sign;
    return run_row(c, &row_axpy, p);
}
bool special_add(op_call *c) { return add_like(c, &row_add, 1); }
bool special_sub(op_call *c) { return add_like(c, &row_sub, -1); }

bool special_pow(op_call *c)
{
    double p[2];
    tp_tensor *x = arg_t(c, 0), *y = arg_t(c, 1);
    if (x && y)
        return run_row(c, &row_pow, NULL);
    val_as_c(&c->arg[x ? 1 : 0], p);
    return apply(c, x ? &row_pow_number : &row_number_pow, &(input){ x ? x : y, NULL }, p);
}

bool special_nan_to_num(op_call *c)
{
    bool wide = (dtype)c->out[0].dt == DT_c128;
    double most = wide ? DBL_MAX : (double)FLT_MAX;
    double p[3] = { arg_f(c, 1, 0), arg_f(c, 2, most), arg_f(c, 3, -most) };
    return run_row(c, &row_nan_to_num, p);
}

bool special_where(op_call *c)
{
    input in[3] = { { arg_t(c, 0), NULL }, { arg_t(c, 1), &c->arg[1] }, { arg_t(c, 2), &c->arg[2] } };
    return apply(c, &row_where, in, NULL);
}
bool special_masked_fill(op_call *c)
{
    input in[3] = { { arg_t(c, 1), NULL }, { arg_t(c, 2), &c->arg[2] }, { arg_t(c, 0), NULL } };
    return apply(c, &row_where, in, NULL);
}

/* A magnitude is real. */
bool special_abs_shape(op_call *c)
{
    if (!c->row->shape(c))
        return false;
    c->out[0].dt = (uint8_t)dtype_real_of((dtype)c->out[0].dt);
    return true;
}
