/* jiggle.c - see jiggle.h. */
#include "ops/jiggle.h"
#include "base/envvars.h"
#include <math.h>
#include <stdlib.h>

int jiggle_state = -1;

static double rounding(dtype dt)
{
    return dt == DT_f64 ? 0x1p-53 : dt == DT_f32 ? 0x1p-24 : dt == DT_f16 ? 0x1p-11 : 0x1p-8;
}

static _Thread_local uint64_t rng;
int jiggle_begin(int seed)
{
    int was = jiggle_state;
    jiggle_state = seed;
    rng = (uint64_t)seed;
    return was;
}

void jiggle_results(const op_row *row, tp_tensor *const *res, int n)
{
    if (jiggle_state < 0) {
        const char *s = env_get(ENV_jiggle);
        jiggle_state = s && *s ? MAX(atoi(s), 0) : 0;
    }
    if (!jiggle_state || row->flags & (OPF_VIEW | OPF_RAND | OPF_CHEAP))
        return;
    rng += (uint64_t)jiggle_state;
    for (int i = 0; i < n; i++) {
        tp_tensor *t = res[i];
        if (!t || !dtype_is_float((dtype)t->dt) || tensor_device(t).kind != DEV_cpu || !tensor_is_dense(t))
            continue;
        for (int64_t k = 0; k < t->numel; k++) {
            void *p = tensor_elem(t, k);
            double v = elem_get_f((dtype)t->dt, p);
            rng = rng * 6364136223846793005ull + 1442695040888963407ull;
            if (isfinite(v) && v != rint(v)) /* whole numbers are mostly exact */
                elem_set_f((dtype)t->dt, p, v * (1 + (rng >> 63 ? 1.5 : -1.5) * rounding((dtype)t->dt)));
        }
    }
}
