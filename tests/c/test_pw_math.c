/* Accuracy of eager operators: float against double libm over the whole range of bit patterns, double against 80-bit long double,
 * and special values one by one. TAPER_NUMERICS_EAGER=FILE samples densely and writes the table of maxima. */
#include "test.h"
#include "ops/op.h"
#include <math.h>

typedef struct {
    const char *name;
    op_id op;
    double (*ref)(double);
    long double (*refl)(long double);
    double bar32, bar64;
} row;

static double sigmoid_d(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static long double sigmoid_l(long double x) { return x >= 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x)); }
static double rsqrt_d(double x) { return 1 / sqrt(x); }
static long double rsqrt_l(long double x) { return 1 / sqrtl(x); }
#define R(f, bar32, bar64)                \
    {                                     \
#f, OP_##f, f, f##l, bar32, bar64 \
    }
static const row rows[] = {
    R(exp, 1.1, 1.1),
    R(exp2, 1.2, 1.1),
    R(expm1, 2, 2.6),
    R(log, 1, 1),
    R(log2, 1.8, 2),
    R(log10, 1.8, 1.6),
    R(log1p, 1.7, 2),
    R(sin, 1.6, 2),
    R(cos, 1.6, 2),
    R(tan, 1.7, 3.5),
    R(asin, 2, 2),
    R(acos, 1.4, 1.6),
    R(atan, 1.7, 2.4),
    R(sinh, 1.7, 3),
    R(cosh, 1.6, 3),
    R(tanh, 1.5, 3.5),
    R(asinh, 1, 3),
    R(acosh, 1, 3),
    R(atanh, 1, 3),
    R(erf, 1.6, 3),
    R(lgamma, 1, 5),
    R(sqrt, 0.51, 0.51),
    { "rsqrt", OP_rsqrt, rsqrt_d, rsqrt_l, 1.6, 1.6 },
    { "sigmoid", OP_sigmoid, sigmoid_d, sigmoid_l, 2.3, 2.3 },
};

static double ulps32(float got, double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : 1e9;
    if ((float)want == got && (isinf(got) || got == 0))
        return 0;
    if (isinf(got) || isinf((float)want)) /* overflow: judged as if the range went on */
        return fabs((isinf(got) ? fabs(want) : fabs((double)got)) - 0x1p128) / 0x1p104;
    return fabs((double)got - want) / ldexp(1, MAX(ilogb(want == 0 ? 1e-45 : want), -126) - 23);
}
static double ulps64(double got, long double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : 1e9;
    if ((double)want == got && (isinf(got) || got == 0))
        return 0;
    if (isinf(got) || isinf((double)want))
        return isinf(got) && fabsl(want) > 0x1.ffffffffffff0p1023L ? 0 : 1e9;
    return (double)(fabsl((long double)got - want) /
                    ldexpl(1, MAX(ilogbl(want == 0 ? 0x1p-1074L : want), -1022) - 52));
}

enum { N = 1024 };

static void apply(const row *r, dtype dt, int n, void *y, const void *x)
{
    tp_err err = { 0 };
    symint size = n, stride = 1;
    tp_tensor *t = tensor_new_strided(dt, 1, &size, &stride, DEVICE_CPU, &err);
    tp_val arg = vT(t), out = vNone;
    memcpy(tensor_host(t), x, dtype_size(dt) * (size_t)n);
    CHECK(ops_call(op_ctx_cur(), r->op, OPV_fn, &arg, &out, &err));
    memcpy(y, tensor_host(out.t), dtype_size(dt) * (size_t)n);
    tensor_unref(out.t);
    tensor_unref(t);
}

static double sweep32(const row *r, uint64_t step, float *at)
{
    float x[N], y[N];
    double worst = 0;
    for (uint64_t b = 0; b < 1ull << 32;) { /* in the order of bit patterns: neighbours take the same way */
        int n = 0;
        for (; n < N && b < 1ull << 32; b += step) {
            uint32_t u = (uint32_t)b;
            memcpy(&x[n++], &u, 4);
        }
        apply(r, DT_f32, n, y, x);
        for (int i = 0; i < n; i++) {
            double e = ulps32(y[i], r->ref((double)x[i]));
            if (e > worst)
                worst = e, *at = x[i];
        }
    }
    return worst;
}

static double sweep64(const row *r, int count, double *at)
{
    double x[N], y[N], worst = 0;
    uint64_t s = 88172645463325252ull;
    for (int done = 0; done < count; done += N) {
        int top = done / N % 16; /* magnitudes from 2^-40 to 2^20 around what functions are about */
        for (int i = 0; i < N; i++) {
            s ^= s << 13, s ^= s >> 7, s ^= s << 17;
            double m = 1 + (double)(s >> 12) * 0x1p-52;
            x[i] = (s & 1 ? -m : m) * ldexp(1, top < 10 ? 2 - top : top == 15 ? -40 : top - 4);
        }
        apply(r, DT_f64, N, y, x);
        for (int i = 0; i < N; i++) {
            double e = ulps64(y[i], r->refl((long double)x[i]));
            if (e > worst)
                worst = e, *at = x[i];
        }
    }
    return worst;
}

TEST(pw_math_accuracy)
{
    const char *path = getenv("TAPER_NUMERICS_EAGER");
    FILE *f = path ? fopen(path, "w") : NULL;
    for (const row *r = rows; r < rows + COUNT(rows); r++) {
        float at32 = 0;
        double at64 = 0, e32 = sweep32(r, f ? 509 : 65521, &at32),
               e64 = sweep64(r, f ? 4 << 20 : 16 << 10, &at64);
        if (e32 > r->bar32 || e64 > r->bar64)
            fprintf(stderr, "%s: %.2f ulp at %a (float), %.2f at %a (double)\n", r->name, e32, (double)at32,
                    e64, at64);
        CHECK(e32 <= r->bar32);
        CHECK(e64 <= r->bar64);
        if (f)
            fprintf(f, "| %s | %.2f | %.9g | %.2f | %.17g |\n", r->name, e32, (double)at32, e64, at64);
    }
    if (f)
        fclose(f);
}

/* One special value among ordinary ones, and by itself; the sign of zero counts. */
TEST(pw_math_special_values)
{
    static const double specials[] = { 0.0,
                                       -0.0,
                                       INFINITY,
                                       -INFINITY,
                                       NAN,
                                       1,
                                       -1,
                                       1e-45,
                                       -1e-45,
                                       1e-39,
                                       3.4028234663852886e38,
                                       -3.4028234663852886e38,
                                       1e10,
                                       -1e10,
                                       88.9,
                                       -88.9,
                                       -103.5,
                                       0.5,
                                       -0.5,
                                       1.5707963267948966 };
    for (const row *r = rows; r < rows + COUNT(rows); r++)
        for (int k = 0; k < (int)COUNT(specials); k++)
            for (int n = 1; n <= 33; n += 32) {
                float x[33], y[33];
                double u[33], v[33];
                for (int i = 0; i < n; i++)
                    u[i] = (double)(x[i] = i == n / 2 ? (float)specials[k] : 0.25f);
                apply(r, DT_f32, n, y, x);
                apply(r, DT_f64, n, v, u);
                double want = r->ref((double)x[n / 2]);
                bool ok = ulps32(y[n / 2], want) <= r->bar32 && ulps64(v[n / 2], r->refl(u[n / 2])) <= 4 &&
                          (want != 0 || isnan(want) || !signbit(want) == !signbit(y[n / 2]));
                if (!ok)
                    fprintf(stderr, "%s(%g): %g and %g, not %g\n", r->name, (double)x[n / 2],
                            (double)y[n / 2], v[n / 2], want);
                CHECK(ok);
            }
}
