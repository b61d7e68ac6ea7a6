/* sym.h - integers that may be symbolic.
 * A symint is an int64_t. Ordinary values stand for themselves; a value whose top 16 bits are SYM_TAG's is a
 * tagged pointer to an interned expression owned by a shape environment. So code that never meets
 * symbols works on plain integers, and shape rules written with the functions below work on both.
 * Sizes stay below SYM_LIMIT everywhere, which keeps the two apart; of the numbers that are elements of
 * tensors the 2^48 that look like tags cannot be passed as such and are refused. */
#ifndef TAPER_SYM_H
#define TAPER_SYM_H
#include "base/arena.h"
#include "base/err.h"
#include "base/strbuf.h"

typedef int64_t symint;
typedef struct sym_expr sym_expr;
typedef struct sym_env sym_env;

#define SYM_LIMIT ((int64_t)1 << 62)      /* sizes are below it, and sums of two do not overflow */
#define SYM_TAG   ((int64_t)0x5A5A << 48) /* numbers people write (2^62, 2^63 - 1) do not look like it */

static inline bool sym_is_expr(symint v) { return (uint64_t)v >> 48 == (uint64_t)SYM_TAG >> 48; }
static inline const sym_expr *sym_expr_of(symint v) { return (const sym_expr *)(uintptr_t)(v ^ SYM_TAG); }
static inline symint sym_of_expr(const sym_expr *e) { return (symint)(uintptr_t)e | SYM_TAG; }
static inline bool sym_all_const(const symint *v, int n)
{
    for (int i = 0; i < n; i++)
        if (sym_is_expr(v[i]))
            return false;
    return true;
}

/* Arithmetic with Python's meaning of // and %. Constant operands take the inline path; otherwise both
 * expressions must belong to the same environment (the one the expression was made in). */
symint sym_add_slow(symint a, symint b);
symint sym_sub_slow(symint a, symint b);
symint sym_mul_slow(symint a, symint b);
symint sym_floordiv_slow(symint a, symint b);
symint sym_mod_slow(symint a, symint b);
symint sym_min_slow(symint a, symint b);
symint sym_max_slow(symint a, symint b);
#define SYM_EITHER(a, b) TP_UNLIKELY(sym_is_expr(a) || sym_is_expr(b))
/* Constants stay out of the range of tags: absurd sizes stop at the largest number, and are refused later. */
static inline symint sym_clamp(symint v, bool over)
{
    return TP_UNLIKELY(over || v >= SYM_LIMIT) ? SYM_LIMIT - 1 : v;
}
static inline symint sym_add(symint a, symint b)
{
    symint r;
    if (SYM_EITHER(a, b))
        return sym_add_slow(a, b);
    bool over = __builtin_add_overflow(a, b, &r);
    return sym_clamp(r, over);
}
static inline symint sym_sub(symint a, symint b)
{
    symint r;
    if (SYM_EITHER(a, b))
        return sym_sub_slow(a, b);
    bool over = __builtin_sub_overflow(a, b, &r);
    return sym_clamp(r, over);
}
static inline symint sym_mul(symint a, symint b)
{
    symint r;
    if (SYM_EITHER(a, b))
        return sym_mul_slow(a, b);
    bool over = __builtin_mul_overflow(a, b, &r);
    return sym_clamp(r, over);
}
static inline symint sym_floordiv(symint a, symint b)
{
    if (SYM_EITHER(a, b))
        return sym_floordiv_slow(a, b);
    symint q = a / b; /* b != 0: the caller checks */
    return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
static inline symint sym_mod(symint a, symint b)
{
    if (SYM_EITHER(a, b))
        return sym_mod_slow(a, b);
    symint r = a % b;
    return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
static inline symint sym_min(symint a, symint b) { return SYM_EITHER(a, b) ? sym_min_slow(a, b) : MIN(a, b); }
static inline symint sym_max(symint a, symint b) { return SYM_EITHER(a, b) ? sym_max_slow(a, b) : MAX(a, b); }

/* Truth. Each asks the environment that owns the expressions: what the ranges and known facts decide is
 * answered at once; otherwise the answer for the hints is given and a guard is recorded with the user's
 * line. A question about an unbacked symbol that cannot be decided sets ERR_datadep in the environment's
 * error slot (sym_env_err) and answers false. Sizes that data decides count as neither 0 nor 1 here, since
 * these functions serve shape rules; a question of the user goes through sym_truth of env.h. */
typedef enum { SYM_eq, SYM_ne, SYM_lt, SYM_le, SYM_gt, SYM_ge } sym_rel;
bool sym_cmp_slow(sym_rel r, symint a, symint b);
static inline bool sym_eq(symint a, symint b)
{
    return a == b || (SYM_EITHER(a, b) && sym_cmp_slow(SYM_eq, a, b));
}
static inline bool sym_ne(symint a, symint b) { return !sym_eq(a, b); }
static inline bool sym_lt(symint a, symint b)
{
    return SYM_EITHER(a, b) ? sym_cmp_slow(SYM_lt, a, b) : a < b;
}
static inline bool sym_le(symint a, symint b)
{
    return SYM_EITHER(a, b) ? sym_cmp_slow(SYM_le, a, b) : a <= b;
}
static inline bool sym_gt(symint a, symint b) { return sym_lt(b, a); }
static inline bool sym_ge(symint a, symint b) { return sym_le(b, a); }

/* As above, but never guards: true only when it is known from ranges and facts. For optimisations. */
bool sym_known(sym_rel r, symint a, symint b);
/* The value for the hints (a constant is itself). Unbacked symbols have no hint: *ok becomes false. */
int64_t sym_hint(symint v, bool *ok);
/* The value under explicit bindings of every symbol; false when one is missing. */
typedef struct sym_bind {
    const sym_expr *symbol;
    int64_t value;
} sym_bind;
bool sym_eval(symint v, const sym_bind *b, int n, int64_t *out);
/* Fix v to its hint, recording the guard v == hint; returns the constant. */
int64_t sym_specialize(symint v);
/* The same for a number that becomes part of what is computed; sym_env_late counts those that no guard can hold. */
int64_t sym_number(symint v);

void sym_print(strbuf *out, symint v);          /* s0, 2*s0, s0*s1 + 3, (s0//2), Max(1, s0), 17 */
const char *sym_symbol_name(const sym_expr *e); /* for a plain symbol, else NULL */
bool sym_is_symbol(symint v);

#endif
