/* vjp_linalg.c - derivatives of products and decompositions. */
#include "grad/vjp.h"

const char vjp_file_linalg;

VJP(mm, "1?0 0?1")
{
    if (NEED(0))
        DXV(0, V(mm, DYV, V(t, Y)));
    if (NEED(1))
        DXV(1, V(mm, V(t, X), DYV));
    return true;
}
