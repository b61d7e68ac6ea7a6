#include "ops/random.h"
#include "ops/op.h"
#include "base/pool.h"
#include <math.h>

static tp_gen global = { 1, 0x7a9e5eedULL, 0 };

tp_gen *gen_new(uint64_t seed)
{
    tp_gen *g = mem_zalloc(sizeof *g);
    g->refs = 1;
    g->seed = seed;
    return g;
}
tp_gen *gen_ref(tp_gen *g)
{
    g->refs++;
    return g;
}
void gen_unref(tp_gen *g)
{
    if (g && !--g->refs)
        free(g);
}
tp_gen *gen_default(void) { return &global; }

uint64_t gen_reserve(tp_gen *g, uint64_t n)
{
    uint64_t at = g->offset;
    g->offset += n;
    return at;
}

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

typedef struct fill_job {
    tp_tensor *t;
    uint64_t seed, offset;
} fill_job;

static void normal_span(void *arg, int64_t b, int64_t e)
{
    fill_job *j = arg;
    char *p = tensor_data(j->t);
    size_t es = dtype_size((dtype)j->t->dt);
    for (int64_t i = b; i < e; i++) {
        uint32_t r[4];
        philox(j->seed, j->offset, (uint64_t)i, r);
        double u = u01_53(r[0], r[1]), v = u01_53(r[2], r[3]);
        elem_set_f((dtype)j->t->dt, p + (size_t)i * es, sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v));
    }
}

bool shape_randn(op_call *c)
{
    return out_new(c, arg_dt(c, 2, c->cx->default_dtype), c->arg[0].n, c->arg[0].ints) != NULL;
}

bool eager_randn(op_call *c)
{
    tp_gen *g = c->arg[1].kind == VAL_gen ? c->arg[1].gen : gen_default();
    fill_job j = { c->res[0], g->seed, gen_reserve(g, (uint64_t)c->res[0]->numel) };
    pool_for(c->res[0]->numel, 4096, normal_span, &j);
    return true;
}
