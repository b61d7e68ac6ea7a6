/* cprint.c - expressions as C text over int64_t variables named as the symbols are. Quotients, remainders and extremes are calls
 * of functions that whoever writes the text defines (sym_c_helpers). */
#include "sym/expr.h"

const char sym_c_helpers[] =
    "static inline int64_t tp_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); "
    "}\n"
    "static inline int64_t tp_mod(int64_t a, int64_t b) { return a - tp_div(a, b) * b; }\n"
    "static inline int64_t tp_min(int64_t a, int64_t b) { return a < b ? a : b; }\n"
    "static inline int64_t tp_max(int64_t a, int64_t b) { return a > b ? a : b; }\n";

static void put(strbuf *b, symint v);

static void put_number(strbuf *b, int64_t v)
{
    strbuf_addf(b,
                v < INT32_MIN || v > INT32_MAX ? "INT64_C(%lld)"
                : v < 0                        ? "(%lld)"
                                               : "%lld",
                (long long)v);
}

static void put_call(strbuf *b, const char *fn, const symint *a, int n) /* of two at a time */
{
    for (int i = 1; i < n; i++)
        strbuf_addf(b, "%s(", fn);
    for (int i = 0; i < n; i++) {
        strbuf_add(b, i ? ", " : "");
        put(b, a[i]);
        strbuf_add(b, i ? ")" : "");
    }
}

static void put_list(strbuf *b, const char *sep, const symint *a, int n)
{
    strbuf_addc(b, '(');
    for (int i = 0; i < n; i++) {
        strbuf_add(b, i ? sep : "");
        put(b, a[i]);
    }
    strbuf_addc(b, ')');
}

static void put_sum(strbuf *b, const sym_expr *e)
{
    strbuf_addc(b, '(');
    for (int i = 0; i < e->n; i++) {
        strbuf_add(b, i ? " + " : "");
        if (e->t[i].k != 1) {
            put_number(b, e->t[i].k);
            strbuf_add(b, " * ");
        }
        put(b, sym_of_expr(e->t[i].e));
    }
    if (e->c || !e->n) {
        strbuf_add(b, e->n ? " + " : "");
        put_number(b, e->c);
    }
    strbuf_addc(b, ')');
}

static void put(strbuf *b, symint v)
{
    if (!sym_is_expr(v)) {
        put_number(b, v);
        return;
    }
    const sym_expr *e = sym_expr_of(v);
    static const char *const rel[] = {
        [SX_eq] = " == ", [SX_ne] = " != ", [SX_le] = " <= ", [SX_ge] = " >= "
    };
    switch ((sx_kind)e->kind) {
    case SX_sym:
        if (e->s->replaced)
            put(b, e->s->repl);
        else
            strbuf_add(b, e->s->name);
        return;
    case SX_add: put_sum(b, e); return;
    case SX_mul:
        for (int i = 0; i < e->n; i++)
            for (int64_t k = 0; k < e->t[i].k; k++) {
                strbuf_add(b, i || k ? " * " : "");
                put(b, sym_of_expr(e->t[i].e));
            }
        return;
    case SX_floordiv: put_call(b, "tp_div", e->a, e->n); return;
    case SX_mod: put_call(b, "tp_mod", e->a, e->n); return;
    case SX_min: put_call(b, "tp_min", e->a, e->n); return;
    case SX_max: put_call(b, "tp_max", e->a, e->n); return;
    case SX_and: put_list(b, " && ", e->a, e->n); return;
    case SX_or: put_list(b, " || ", e->a, e->n); return;
    case SX_eq:
    case SX_ne:
    case SX_le:
    case SX_ge:
        strbuf_addc(b, '(');
        put(b, e->a[0]);
        strbuf_add(b, rel[e->kind]);
        put_number(b, e->c);
        strbuf_addc(b, ')');
        return;
    }
}

void sym_print_c(strbuf *out, symint v)
{
    put(out, sym_is_bool(v) || !sym_is_expr(v) ? v : sx_known_now(sym_simplify(v)));
}
bool sym_is_replaced(symint symbol) { return sym_expr_of(symbol)->s->replaced; }
