/* vfunc.c - vector math: each function as a polynomial with its special cases, in the operations of the IR.
 */
#include "loop/vmath.h"
#include <math.h>

vir_ref vmath_build(vir *k, vir_op op, vir_ref x, vir_ref y)
{
    vir_type t = vir_type_of(k, x);
    vir_ref one = vir_flt(k, t, 1);
    switch (op) {
    case VIR_recip: return vir_div(k, one, x);
    case VIR_rsqrt: return vir_div(k, one, vir_sqrt(k, x));
    case VIR_sigmoid: return vir_div(k, one, vir_add(k, one, vir_exp(k, vir_neg(k, x))));
    default: return 0;
    }
}
