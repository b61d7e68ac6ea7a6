/* provider.c - see provider.h. */
#include "ops/provider.h"
#include "base/envvars.h"
#include <stdatomic.h>

static const ops_provider *_Atomic given;
static _Atomic int off = -1; /* -1: the environment has not been asked */

static _Thread_local bool skipped;
static _Thread_local unsigned asked;

void ops_provide(const ops_provider *p) { atomic_store(&given, p); }

int ops_provided_isa(void)
{
    const ops_provider *p = atomic_load(&given);
    return p && p->isa ? p->isa() : 0;
}

bool ops_provided_bf16(void)
{
    const ops_provider *p = atomic_load(&given);
    return p && p->bf16 && p->bf16();
}

static bool is_off(void)
{
    int v = atomic_load_explicit(&off, memory_order_relaxed);
    if (v < 0) {
        const char *e = env_get(ENV_products);
        v = e && !strcmp(e, "blas");
        atomic_store(&off, v);
    }
    return v;
}

const ops_provider *ops_provider_now(void)
{
    asked++;
    return skipped || is_off() ? NULL : atomic_load_explicit(&given, memory_order_relaxed);
}

unsigned ops_provider_asked(void) { return asked; }

bool ops_provider_skip(bool on)
{
    bool was = skipped;
    skipped = on;
    return was;
}

static atomic_bool rough;
bool ops_rough_products(void) { return atomic_load_explicit(&rough, memory_order_relaxed); }
void ops_set_rough_products(bool on) { atomic_store(&rough, on); }

bool ops_provider_use(bool on)
{
    bool was = !is_off();
    atomic_store(&off, !on);
    return was;
}
