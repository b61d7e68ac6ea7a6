/* env.h - the shape environment: owns symbols and expressions, decides questions about them, remembers
 * what was assumed, and turns that into the runtime checks that make the assumptions true.
 * Knows nothing of tensors or Python: a symbol has a source string, which is only printed.
 *
 * One environment serves one compile and one thread at a time. Expressions are interned: equal polynomials
 * (up to 128 terms) are one pointer. Ranges use INT64_MIN and INT64_MAX as "-int_oo" and "int_oo". */
#ifndef TAPER_SYM_ENV_H
#define TAPER_SYM_ENV_H
#include "sym/sym.h"

#define SYM_NEG_OO INT64_MIN
#define SYM_OO     INT64_MAX

typedef struct sym_env_opts { /* zeroed is the default */
    bool no_duck;             /* equal sizes get symbols of their own */
    bool no_special_01;       /* sizes 0 and 1 become symbols too; ranges then start at 0 */
    /* Writes where in the user's program we are ("playground.py:5 in fn"); may be NULL. */
    void (*where)(void *data, strbuf *out);
    void *data;
} sym_env_opts;

sym_env *sym_env_new(const sym_env_opts *o); /* o may be NULL */
void sym_env_free(sym_env *env);             /* NULL is allowed */
void sym_env_ref(sym_env *env); /* for expressions that live longer: they are valid until sym_env_unref */
void sym_env_unref(sym_env *env);
/* The error slot that undecidable questions, zero divisors and overflow fill; check it after a run of
 * symbolic work and err_clear it when handled. */
tp_err *sym_env_err(sym_env *env);
sym_env *sym_env_of(symint v); /* NULL for a constant */

/* --- symbols ------------------------------------------------------------------------------------------ */
typedef enum {
    SYM_static,   /* a constant; the caller's own guard checks it */
    SYM_duck,     /* a symbol, shared with equal sizes seen before (unless no_duck) */
    SYM_dynamic,  /* a symbol of its own that must not end up constant (mark_dynamic) */
    SYM_unbacked, /* a symbol without hint (mark_unbacked) */
} sym_policy;
/* A size of an input; source as in "L['x'].size()[0]". Sizes 0 and 1 are constants under SYM_duck and
 * SYM_dynamic (unless no_special_01). */
symint sym_env_size(sym_env *env, int64_t hint, const char *source, sym_policy p);
/* The same with bounds, as mark_dynamic(min=, max=) gives them. */
symint sym_env_size_in(sym_env *env, int64_t hint, const char *source, sym_policy p, int64_t lo, int64_t hi);
/* A plain int of the program: any value, no duck sizing, never specialised by itself. */
symint sym_env_int(sym_env *env, int64_t hint, const char *source);
/* A value only the running program knows (.item(), nonzero): u0, u1, ... */
symint sym_env_unbacked(sym_env *env, int64_t lo, int64_t hi);
/* The same for a size that data decides. Shape rules (sym_eq and friends) may take it for neither 0 nor 1,
 * which they would treat specially; sym_truth, the user's own question, may not. */
symint sym_env_unbacked_size(sym_env *env, int64_t hi);
/* A graph is recorded again: the next unbacked symbols asked for are these, in this order, instead of new ones.
 * n 0 ends it. The array is the caller's. */
void sym_env_replay(sym_env *env, const symint *symbols, int n);
/* taper._check_is_size: v is used as a size, so shape rules may take it for neither 0 nor 1. */
void sym_env_size_like(symint v);
bool sym_is_size_like(symint v);
/* A symbol by name, as graph text declares it; ERR_value when the name is taken with other properties. */
symint sym_env_declare(sym_env *env, const char *name, bool has_hint, int64_t hint, int64_t lo, int64_t hi,
                       const char *source, tp_err *err);
int sym_env_n_symbols(const sym_env *env);
symint sym_env_symbol_at(const sym_env *env, int i); /* in order of creation, replaced ones too */
symint sym_env_find(const sym_env *env, const char *name, size_t n); /* 0 when there is none */
const char *sym_source(symint symbol);                               /* "" when it has none */
int sym_index(symint symbol);                                        /* its i above */
bool sym_is_unbacked(symint v);                                      /* holds an unbacked symbol */
void sym_range(symint v, int64_t *lo, int64_t *hi);                  /* from ranges and facts */
void sym_declared(symint symbol, int64_t *lo, int64_t *hi);          /* as it was declared, without facts */
void sym_range_print(strbuf *out, int64_t lo, int64_t hi);           /* [2, int_oo] */

/* --- booleans: symints that are 0, 1 or an expression --------------------------------------------------- */
symint sym_rel_of(sym_rel r, symint a, symint b);
symint sym_and(symint a, symint b);
symint sym_or(symint a, symint b);
symint sym_not(symint a);
bool sym_is_bool(symint v);    /* an expression that is a truth value */
bool sym_truth(symint cond);   /* like sym_eq and friends: may record a guard */
bool sym_is_true(symint cond); /* known without a guard */
symint sym_pow(symint a, int64_t n);
symint sym_simplify(symint v); /* with all that is known now */

/* --- what was assumed -------------------------------------------------------------------------------- */
/* taper._check: from here on cond holds. Known: nothing happens. About inputs: becomes a guard. About
 * unbacked symbols: a runtime assert. False when it is known not to hold: ERR_runtime with msg (or a text).
 */
bool sym_env_assert(sym_env *env, symint cond, const char *msg);
/* An assumption as text says it (a relation, not a constant): kept word for word, even where it is known already. */
bool sym_env_restore(sym_env *env, symint cond, const char *msg);
typedef struct sym_assumed {
    symint cond;
    const char *where; /* the user's line, "" when unknown */
    const char *msg;   /* asserts: the user's message or NULL */
} sym_assumed;
const sym_assumed *sym_env_guards(const sym_env *env, int *n);  /* in the order they were needed */
const sym_assumed *sym_env_asserts(const sym_env *env, int *n); /* to be checked in the graph */
/* A symbol that mark_dynamic asked for and that has become a constant: false, with a message saying why. */
bool sym_env_check_dynamic(sym_env *env, tp_err *err);
/* No more guards from here on: an undecided question becomes ERR_runtime (used after capture). */
void sym_env_freeze(sym_env *env);
/* How many symbolic numbers were read since then: what was made of them holds for the hints alone. */
int sym_env_late(const sym_env *env); /* env may be NULL */
/* While a graph with its types is read back: questions are answered from hints and remembered nowhere, since the text
 * says what was assumed when it was made. */
void sym_env_reading(sym_env *env, bool on);

/* --- runtime checks ---------------------------------------------------------------------------------------
 * Independent of the environment. Values are passed in the order of sources: one for each call of
 * sym_env_size or sym_env_int, constants included. */
typedef struct sym_guard_text {
    const char *text;  /* "2 <= L['x'].size()[0]" */
    const char *where; /* the user's line that needed it, or "" */
    const char *why;   /* "duck sizing", "specialized", "range", "guard" */
} sym_guard_text;
typedef struct sym_guards sym_guards;
sym_guards *sym_guards_new(sym_env *env); /* the minimal set; emits produce_guards */
void sym_guards_free(sym_guards *g);
int sym_guards_n(const sym_guards *g);
const sym_guard_text *sym_guards_at(const sym_guards *g, int i);
int sym_guards_n_values(const sym_guards *g);
/* -1 when all hold, else the index of the first that does not. Thread-safe, allocates nothing. */
int sym_guards_check(const sym_guards *g, const int64_t *values);

/* Expressions as a small program, to be evaluated often. Symbols are read from values[sym_index(s)]. */
typedef struct sym_prog sym_prog;
sym_prog *sym_prog_new(const symint *v, int n);
bool sym_prog_run(const sym_prog *p, const int64_t *values, int64_t *out); /* false: overflow or x // 0 */
void sym_prog_free(sym_prog *p);

/* --- text -------------------------------------------------------------------------------------------- */
/* Reads what sym_print writes, and Python's spelling of the same. ERR_syntax "column N: ...". */
bool sym_parse(sym_env *env, const char *text, size_t n, symint *out, tp_err *err);
/* The same, as if nothing were known of the symbols: a check stays a check, even where its outcome is declared. */
bool sym_parse_raw(sym_env *env, const char *text, size_t n, symint *out, tp_err *err);
void sym_print_source(strbuf *out, symint v); /* with sources for symbols and Python's operators */
/* As C over variables named as the symbols are, with the functions of sym_c_helpers; replaced symbols as what they became. */
void sym_print_c(strbuf *out, symint v);
extern const char sym_c_helpers[];
bool sym_is_replaced(symint symbol);
#endif
