/* pw_unary.c - the loops of pw_unary.def, once per instruction set. */
#define PW_NAME(nm, t) ISA_NAME(pw_##nm##_##t)
#include "ops/simd/pw_loops.h"
#include "ops/pw_unary.def"
