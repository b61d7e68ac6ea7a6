/* pw_act.c - the loops of pw_act.def, once per instruction set. */
#define PW_NAME(nm, t) ISA_NAME(pw_##nm##_##t)
#include "ops/simd/pw_loops.h"

#include "ops/pw_act.def"
