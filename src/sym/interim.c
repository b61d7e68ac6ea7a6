/* interim.c - weak answers while no expression can exist yet; goes away with the expression code. */
#include "sym/sym.h"
#include <stdio.h>
#define WEAK __attribute__((weak))
#define OP2(name, e) \
    WEAK symint sym_##name##_slow(symint a, symint b) { return e; }
OP2(add, a + b)
OP2(sub, a - b)
OP2(mul, a *b)
OP2(floordiv, a / b)
OP2(mod, a % b)
OP2(min, MIN(a, b))
OP2(max, MAX(a, b))
WEAK bool sym_cmp_slow(sym_rel r, symint a, symint b) { return r == SYM_eq ? a == b : a < b; }
WEAK bool sym_eval(symint v, const sym_bind *b, int n, int64_t *out) { return false; }
WEAK void sym_print(strbuf *out, symint v) { strbuf_addf(out, "%lld", (long long)v); }
WEAK bool sym_is_symbol(symint v) { return false; }
WEAK int64_t sym_specialize(symint v) { return v; }
