/* Accuracy of the vector math over the whole range of its arguments, measured on machine code.
 * TAPER_NUMERICS=FILE writes the table of maxima that stands in docs/numerics.md (and samples densely);
 * TAPER_NUMERICS_STRIDE=1 then looks at every float there is (`make numerics`). */
#include "test.h"
#include "base/pool.h"
#include "gen.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct {
    vir_op op;
    double (*ref)(double);
    long double (*refl)(long double);
    double bar64; /* bound in f64 */
} row;

static double sigmoid_d(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double rsqrt_d(double x) { return 1 / sqrt(x); }
static double recip_d(double x) { return 1 / x; }
static long double sigmoid_l(long double x) { return x >= 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x)); }
static long double rsqrt_l(long double x) { return 1 / sqrtl(x); }
static long double recip_l(long double x) { return 1 / x; }
static double expn(double x) { return exp(x); } /* up to 40: see below */
static long double expnl(long double x) { return expl(x); }
static double expns(double x) { return x < -131 ? 0 : exp(x) * 0x1p64; } /* between those: see below */
static long double expnsl(long double x) { return expl(x) * 0x1p64L; }
#define R(f, bar)             \
    {                         \
        VIR_##f, f, f##l, bar \
    }
static const row rows[] = {
    R(exp, 2),
    R(expn, 2),
    R(expns, 2),
    R(exp2, 2),
    R(expm1, 3),
    R(log, 2),
    R(log2, 2),
    R(log10, 2.5),
    R(log1p, 2.5),
    R(sin, 2),
    R(cos, 2),
    R(tan, 3),
    R(asin, 3),
    R(acos, 3),
    R(atan, 2.5),
    R(sinh, 3),
    R(cosh, 3),
    R(tanh, 3),
    R(asinh, 2),
    R(acosh, 2),
    R(atanh, 2),
    R(erf, 3),
    R(erfc, 8),
    R(cbrt, 4),
    { VIR_sigmoid, sigmoid_d, sigmoid_l, 3 },
    { VIR_rsqrt, rsqrt_d, rsqrt_l, 2 },
    { VIR_recip, recip_d, recip_l, 1 },
};

/* Where a function promises nothing. */
static bool outside(vir_op op, double x, bool wide)
{
    return ((op == VIR_expn || op == VIR_expns) && x > 40) ||
           (op == VIR_expns && (wide ? x < -600 : x < -131 && x > -133));
}

static const target_code *unary(arena *a, vir_op op, vir_type t, gen_isa isa, tp_err *err)
{
    vir *k = vir_make(a, vir_op_name[op]);
    vir_mem m = t == VT_f64 ? VM_f64 : VM_f32;
    int x = vir_buffer(k, m, VIR_IN, "x"), y = vir_buffer(k, m, VIR_OUT, "y");
    vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), vir_int_arg(k, "n"));
    vir_store(k, y, i, vir_op1(k, op, vir_load(k, x, i, 0)), 0);
    vir_end(k);
    return vir_finish(k, err) ? kernel_get(target_at(isa), k, err) : NULL;
}

/* Distance in units of the last place of the f32 (f64) nearest to the reference. */
static double ulps32(float got, double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : 1e9;
    if ((float)want == got)
        return fabs(want) <= 3.4028234663852886e38
                   ? fabs((double)got - want) / ldexp(1, MAX(ilogb(want == 0 ? 1e-45 : want), -126) - 23)
                   : 0;
    if (isinf(got) || isinf((float)want)) /* overflow: judged as if the range went on */
        return isinf(got) ? fabs(fabs(want) - 0x1p128) / 0x1p104 : fabs(fabs(got) - 0x1p128) / 0x1p104;
    return fabs((double)got - want) / ldexp(1, MAX(ilogb(want == 0 ? 1e-45 : want), -126) - 23);
}
static double ulps64(double got, long double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : 1e9;
    if ((double)want == got && (isinf(got) || got == 0))
        return 0;
    if (isinf(got) || isinf((double)want))
        return 1e6;
    return (double)(fabsl((long double)got - want) /
                    ldexpl(1, MAX(ilogbl(want == 0 ? 1e-310L : want), -1022) - 52));
}

enum { CHUNK = 4096 };

/* Every float is looked at in the exhaustive run, so all cores take part: each fetches the next chunk. */
typedef struct scan {
    const row *r;
    const target_code *f;
    uint32_t stride;
    _Atomic uint64_t next;
    pthread_mutex_t lock;
    double worst;
    float at;
} scan;

static void scan_chunks(void *arg, int64_t lo TP_UNUSED, int64_t hi TP_UNUSED)
{
    scan *s = arg;
    float x[CHUNK], y[CHUNK], at = 0;
    double worst = 0;
    for (uint64_t b; (b = atomic_fetch_add(&s->next, (uint64_t)CHUNK * s->stride)) < 1ull << 32;) {
        int n = 0;
        for (; n < CHUNK && b < 1ull << 32; n++, b += s->stride) {
            uint32_t u = (uint32_t)b;
            memcpy(&x[n], &u, 4);
        }
        cpu_run(s->f, (void *[]){ x, y }, (int64_t[]){ n }, NULL, 0, 0);
        for (int i = 0; i < n; i++) {
            double want = s->r->ref((double)x[i]), e;
            if (outside(s->r->op, x[i], false))
                continue;
            if (worst >= 0.5 && (float)want == y[i]) /* the nearest float is at most half a unit away */
                continue;
            if ((e = ulps32(y[i], want)) > worst)
                worst = e, at = x[i];
        }
    }
    pthread_mutex_lock(&s->lock);
    if (worst > s->worst)
        s->worst = worst, s->at = at;
    pthread_mutex_unlock(&s->lock);
}

static double worst32(const row *r, const target_code *f, uint32_t stride, float *at)
{
    scan s = { .r = r, .f = f, .stride = stride, .lock = PTHREAD_MUTEX_INITIALIZER };
    pool_for(pool_threads(), 1, scan_chunks, &s);
    *at = s.at;
    return s.worst;
}

static double worst64(const row *r, const target_code *f, int count, double *at)
{
    static double x[CHUNK], y[CHUNK];
    double worst = 0;
    uint64_t s = 12345;
    for (int done = 0; done < count; done += CHUNK) {
        for (int i = 0; i < CHUNK; i++) {
            s = s * 6364136223846793005ULL + 1442695040888963407ULL;
            uint64_t u = s ^ s >> 29;
            if (i & 1) /* half of them where functions are interesting */
                u = (u & 0x800fffffffffffffULL) | (uint64_t)(1023 - 12 + (int)(s >> 40) % 24) << 52;
            memcpy(&x[i], &u, 8);
        }
        void *bufs[] = { x, y };
        int64_t ints[] = { CHUNK };
        cpu_run(f, bufs, ints, NULL, 0, 0);
        for (int i = 0; i < CHUNK; i++) {
            double e = outside(r->op, x[i], true) ? 0 : ulps64(y[i], r->refl((long double)x[i]));
            if (e > worst)
                worst = e, *at = x[i];
        }
    }
    return worst;
}

TEST(gen_math_accuracy)
{
    const char *path = getenv("TAPER_NUMERICS");
    FILE *f = path ? fopen(path, "a") : NULL;
    const char *step = getenv("TAPER_NUMERICS_STRIDE");
    uint32_t stride = step && atoi(step) > 0 ? (uint32_t)atoi(step) : path ? 509 : 20011;
    if (gen_isa_host() == ISA_none)
        return;
    if (f)
        fprintf(
            f,
            "| function | f32 worst (ulp) | at | f64 worst (ulp) | at |\n| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < COUNT(rows); i++) {
        arena a = { 0 };
        tp_err err = { 0 };
        float at = 0;
        double at64 = 0, w, w64;
        const target_code *k = unary(&a, rows[i].op, VT_f32, gen_isa_host(), &err);
        const target_code *k64 = unary(&a, rows[i].op, VT_f64, gen_isa_host(), &err);
        CHECK(k && k64);
        if (k && k64) {
            w = worst32(&rows[i], k, stride, &at);
            w64 = worst64(&rows[i], k64, path ? 1 << 22 : 1 << 14, &at64);
            if (w > 2)
                test_fail(__FILE__, __LINE__, "%s f32: %.3f ulp at %a (%g)", vir_op_name[rows[i].op], w, at,
                          at);
            if (w64 > rows[i].bar64)
                test_fail(__FILE__, __LINE__, "%s f64: %.3f ulp at %a (%g)", vir_op_name[rows[i].op], w64,
                          at64, at64);
            if (f)
                fprintf(f, "| %s | %.2f | %.9g | %.2f | %.17g |\n", vir_op_name[rows[i].op], w, at, w64,
                        at64);
        }
        arena_free(&a);
    }
    if (f)
        fclose(f);
}

static double pow_ref(double x, double y) { return pow(x, y); }
static double atan2_ref(double x, double y) { return atan2(x, y); }
static double hypot_ref(double x, double y) { return hypot(x, y); }

TEST(gen_math_two_operands)
{
    static const struct {
        vir_op op;
        double (*ref)(double, double);
    } two[] = { { VIR_pow, pow_ref }, { VIR_atan2, atan2_ref }, { VIR_hypot, hypot_ref } };
    static const float odd[] = { 0,      -0.0f, 1,      -1,       2,         -2,  0.5f, -0.5f,       3,   -3,
                                 1e-40f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN, 1.5f, 16777216.0f, 2.5f };
    static float x[CHUNK], y[CHUNK], z[CHUNK];
    const char *path = getenv("TAPER_NUMERICS");
    FILE *f = path ? fopen(path, "a") : NULL;
    int rounds = path ? 20000 : 60;
    for (size_t o = 0; o < COUNT(two) && gen_isa_host() != ISA_none; o++) {
        arena a = { 0 };
        double worst = 0;
        float at[2] = { 0, 0 };
        tp_err err = { 0 };
        vir *k = vir_make(&a, "two");
        int bx = vir_buffer(k, VM_f32, VIR_IN, "x"), by = vir_buffer(k, VM_f32, VIR_IN, "y"),
            bz = vir_buffer(k, VM_f32, VIR_OUT, "z");
        vir_ref i = vir_loop(k, LOOP_vector, vir_int(k, 0), vir_int_arg(k, "n"));
        vir_store(k, bz, i, vir_op2(k, two[o].op, vir_load(k, bx, i, 0), vir_load(k, by, i, 0)), 0);
        vir_end(k);
        const target_code *r = vir_finish(k, &err) ? kernel_here(k, &err) : NULL;
        CHECK(r != NULL);
        uint32_t s = 1;
        for (int round = 0; r && round < rounds; round++) {
            for (int j = 0; j < CHUNK; j++) {
                uint32_t u = s = s * 1664525u + 1013904223u, v = s = s * 1664525u + 1013904223u;
                if (round & 1)
                    u = 0x3d000000u + u % 0x05000000u,
                    v = (v & 0x80000000u) | (0x3c000000u + v % 0x06000000u);
                memcpy(&x[j], &u, 4), memcpy(&y[j], &v, 4);
                if (round == 0)
                    x[j] = odd[j % COUNT(odd)], y[j] = odd[j / COUNT(odd) % COUNT(odd)];
            }
            void *bufs[] = { x, y, z };
            int64_t ints[] = { CHUNK };
            cpu_run(r, bufs, ints, NULL, 0, 0);
            for (int j = 0; j < CHUNK; j++) {
                double want = two[o].ref(x[j], y[j]), e = ulps32(z[j], want);
                if (e > 2 || (want == 0 && !signbit(want) != !signbit(z[j]))) {
                    test_fail(__FILE__, __LINE__, "%s(%g, %g) = %g, expected %g", vir_op_name[two[o].op],
                              x[j], y[j], z[j], want);
                    round = rounds;
                    break;
                }
                if (e > worst)
                    worst = e, at[0] = x[j], at[1] = y[j];
            }
        }
        if (f)
            fprintf(f, "| %s | %.2f | %.9g, %.9g | libm | |\n", vir_op_name[two[o].op], worst, at[0], at[1]);
        arena_free(&a);
    }
    if (f)
        fclose(f);
}
