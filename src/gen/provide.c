/* provide.c - see provide.h. */
#include "gen/provide.h"
#include "gen/corr.h"
#include "ops/provider.h"

static bool conv_forward_own(dtype dt, const conv_geom *g, const void *x, const void *w, const void *bias,
                             void *y)
{
    return corr_forward(gen_isa_host(), dt, g, x, w, bias, y);
}
static bool conv_grad_input_own(dtype dt, const conv_geom *g, const void *dy, const void *w, void *dx)
{
    return corr_grad_input(gen_isa_host(), dt, g, dy, w, dx);
}
static bool conv_grad_weight_own(dtype dt, const conv_geom *g, const void *x, const void *dy, void *dw)
{
    return corr_grad_weight(gen_isa_host(), dt, g, x, dy, dw);
}

static const ops_provider own = { "own", NULL, conv_forward_own, conv_grad_input_own, conv_grad_weight_own };

void gen_provide(void) { ops_provide(&own); }
