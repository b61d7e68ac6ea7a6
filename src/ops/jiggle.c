/* jiggle.c - see jiggle.h. */
#include "ops/jiggle.h"
#include "base/envvars.h"
#include <math.h>
#include <stdlib.h>

_Atomic int jiggle_reasons = 1;
static _Atomic int everywhere = -1; /* the seed of the environment; -1: not asked yet */
static _Thread_local int mine;

static int digits(dtype dt) { return dt == DT_f64 ? 53 : dt == DT_f32 ? 24 : dt == DT_f16 ? 11 : 8; }

/* A whole number, or one whose last binary digits are zeros, was hardly rounded. */
static bool looks_exact(dtype dt, double v)
{
    int e;
    double m = ldexp(frexp(v, &e), digits(dt) - digits(dt) / 3);
    return v == rint(v) || m == rint(m);
}

static _Thread_local uint64_t rng;
int jiggle_begin(int seed)
{
    int was = mine;
    atomic_fetch_add(&jiggle_reasons, (seed != 0) - (was != 0));
    mine = seed;
    rng = (uint64_t)seed;
    return was;
}

static int of_environment(void)
{
    int seed = atomic_load(&everywhere), none = -1;
    if (seed >= 0)
        return seed;
    const char *s = env_get(ENV_jiggle);
    seed = s && *s ? MAX(atoi(s), 0) : 0;
    if (atomic_compare_exchange_strong(&everywhere, &none, seed) && !seed)
        atomic_fetch_sub(&jiggle_reasons, 1);
    return seed;
}

void jiggle_results(const op_row *row, tp_tensor *const *res, int n)
{
    int env = of_environment(), seed = mine ? mine : env;
    if (!seed || row->flags & (OPF_VIEW | OPF_RAND | OPF_CHEAP))
        return;
    rng += (uint64_t)seed;
    for (int i = 0; i < n; i++) {
        tp_tensor *t = res[i];
        if (!t || !dtype_is_float((dtype)t->dt) || tensor_device(t).kind != DEV_cpu || !tensor_is_dense(t))
            continue;
        for (int64_t k = 0; k < t->numel; k++) {
            void *p = tensor_elem(t, k);
            double v = elem_get_f((dtype)t->dt, p);
            rng = rng * 6364136223846793005ull + 1442695040888963407ull;
            if (isfinite(v) && !looks_exact((dtype)t->dt, v))
                elem_set_f((dtype)t->dt, p, v * (1 + ldexp(rng >> 63 ? 1.5 : -1.5, -digits((dtype)t->dt))));
        }
    }
}
