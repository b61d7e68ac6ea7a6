/* expr.h - private to src/sym/: how expressions are held.
 * sum      c + k0*e0 + k1*e1 ...   terms ordered by id; each e is a product or an atom
 * product  e0**k0 * e1**k1 ...     factors ordered by id; no coefficient
 * atoms    symbols, a//b, a%b, min, max; also a sum or product too big to be expanded
 * relation L ? c                   L a sum without constant, coefficients without common factor, the first
 * positive */
#ifndef TAPER_SYM_EXPR_H
#define TAPER_SYM_EXPR_H
#include "base/map.h"
#include "base/vec.h"
#include "sym/env.h"

typedef enum {
    SX_sym,
    SX_mul,
    SX_add,
    SX_floordiv,
    SX_mod,
    SX_min,
    SX_max,
    SX_eq,
    SX_ne,
    SX_le,
    SX_ge,
    SX_and,
    SX_or
} sx_kind;
typedef struct sx_range {
    int64_t lo, hi;
} sx_range;
typedef struct sx_term {
    const sym_expr *e;
    int64_t k; /* coefficient in a sum, power in a product */
} sx_term;

typedef struct sx_symbol {
    const char *name, *where;
    int index, source; /* source: slot of its first source, -1 */
    bool unbacked, strict, is_size, replaced;
    sx_range declared;
    sx_range guarded; /* declared, narrowed by guards on the bare symbol */
    symint repl;
    const char *repl_where;
} sx_symbol;

struct sym_expr {
    sym_env *env;
    uint8_t kind;
    bool unbacked, has_hint, fact; /* fact: a boolean known to hold */
    bool nonlinear;                /* holds a quotient, remainder, minimum or maximum */
    uint32_t refined_at;           /* the facts it was last simplified with in full */
    uint32_t id, hash;
    int n;
    union {
        const sx_term *t; /* sum, product */
        const symint *a;  /* the rest */
        sx_symbol *s;
    };
    int64_t c; /* constant of a sum, bound of a relation */
    int64_t hint;
    sx_range base, now;              /* from declared ranges alone; with facts */
    uint32_t ranged_at, resolved_at; /* versions for which now and resolved were computed */
    symint resolved;
};

typedef struct sx_source {
    const char *text;
    sym_expr *sym; /* NULL: a constant */
    int64_t value;
    bool duck;
} sx_source;

struct sym_env {
    arena mem;
    tp_err err;
    sym_env_opts o;
    sym_expr **table; /* interned, open addressing */
    size_t n_table, cap;
    VEC(sym_expr *) symbols;
    VEC(sx_source) sources;
    VEC(sym_assumed) guards;
    VEC(sym_assumed) asserts;
    map names, duck;
    uint32_t facts, substs; /* versions */
    int next_s, next_u;
    int holds;           /* beside the first */
    const symint *again; /* unbacked symbols to hand out once more */
    int nagain;
    int budget;   /* parts the current question may still look at */
    bool pure;    /* ranges come from declarations only (while emitting guards) */
    bool raw;     /* nothing is known (while text is read: it says what was not known when it was written) */
    bool reading; /* questions are answered from hints and not remembered: the text says what was assumed */
    bool frozen;
    int late; /* numbers asked for since then */
};

enum { SX_MAX_TERMS = 128, SX_MAX_ARGS = 64, SX_MAX_POWER = 1 << 20, SX_MAX_DEPTH = 1500 };

static inline sym_expr *sx_mut(const sym_expr *e) { return (sym_expr *)e; }
static inline sym_expr *sx_of(symint v) { return sx_mut(sym_expr_of(v)); }
static inline bool sx_is(symint v, sx_kind k) { return sym_is_expr(v) && sym_expr_of(v)->kind == k; }
static inline sym_env *sx_env(symint a, symint b) { return sym_is_expr(a) ? sx_of(a)->env : sx_of(b)->env; }
static inline bool sx_fits(int64_t c) { return c < SYM_LIMIT && c > -SYM_LIMIT; } /* may stand as a symint */
static inline bool sx_kind_is_bool(int k) { return k >= SX_eq; }

/* expr.c */
sym_expr *sx_intern(sym_env *env, sx_kind k, int n, const void *args, int64_t c);
sym_expr *sx_find(sym_env *env, sx_kind k, int n, const void *args, int64_t c); /* NULL when not made yet */
symint sx_value(sym_expr *e);             /* e, or the constant it is known to be */
symint sx_const(sym_env *env, int64_t v); /* v; ERR_overflow beyond the range of constants */
symint sx_overflow(sym_env *env);
sym_expr *sx_symbol_make(sym_env *env, const char *name, bool has_hint, int64_t hint, sx_range r);

/* range.c */
sx_range sx_range_of(symint v);
sx_range sx_range_big(symint v); /* the same if no unbacked size is 0 or 1 */
void sx_range_init(sym_expr *e);
bool sx_narrow(sym_expr *e, sx_range r);                   /* false when nothing is left */
sx_range sx_range_scale(sx_range r, int64_t k, int64_t c); /* k*r + c */
int64_t sx_floordiv(int64_t a, int64_t b); /* of any two integers, b not 0; sym.h's is for symints */
static inline int64_t sx_mod(int64_t a, int64_t b) { return a - sx_floordiv(a, b) * b; }

/* poly.c */
symint sx_linear(sym_env *env, symint a, int64_t ka, symint b, int64_t kb); /* ka*a + kb*b, or ERR_overflow */
bool sx_linear_fits(sym_env *env, symint a, int64_t ka, symint b, int64_t kb, symint *out);
/* v = k*L + c with L as in a relation; v is an expression. */
bool sx_split(sym_expr *e, sym_expr **L, int64_t *k, int64_t *c, bool make);
int sx_mono_cmp(const sym_expr *a, const sym_expr *b);           /* lexicographic: the order of printing */
symint sx_div_exact(sym_env *env, symint a, symint b, bool *ok); /* polynomial quotient when it divides */
symint sx_drop_factor(sym_expr *sum, sx_term f);        /* sum / e**k where every term has that factor */
bool sx_common_factor(const sym_expr *sum, sx_term *f); /* an atom, at least 1, with its least power */

/* rel.c */
symint sx_rel(sym_env *env, sx_kind k, symint L, int64_t bound); /* L as in a relation */
int sx_decide_big(symint cond);                                  /* by sx_range_big alone */
int sx_decide(symint cond);                                      /* 1, 0, or -1: not known */
bool sx_learn(sym_env *env, symint cond, const char *where);
symint sx_known_now(symint v); /* a number with every fact there is now */
symint sx_resolve(symint v, int depth);
/* cond with every symbol that was set equal to another one or to a constant replaced by that; nothing else
 * that was learned is used. */
symint sx_rename(symint v, map *memo, int depth);
symint sx_root(sym_expr *symbol);

/* prog.c */
sym_prog *sx_prog_new(const symint *v, int n, const int *slot_of_symbol);
#endif
