/* env.c - symbols, questions, guards. */
#include "sym/expr.h"
#include "sym/log.h"
#include "base/envvars.h"
#include <ctype.h>
#include <stdio.h>

sym_env *sym_env_new(const sym_env_opts *o)
{
    sym_env *env = mem_zalloc(sizeof *env);
    if (o)
        env->o = *o;
    sx_log_env(env);
    return env;
}

void sym_env_ref(sym_env *env) { env->holds++; }

void sym_env_unref(sym_env *env)
{
    if (env->holds-- > 0)
        return;
    free(env->table);
    vec_free(&env->symbols);
    vec_free(&env->sources);
    vec_free(&env->guards);
    vec_free(&env->asserts);
    map_free(&env->names);
    map_free(&env->duck);
    arena_free(&env->mem);
    free(env);
}

tp_err *sym_env_err(sym_env *env) { return &env->err; }
void sym_env_free(sym_env *env)
{
    if (!env)
        return;
    sym_env_freeze(env); /* for those who hold it longer */
    sym_env_unref(env);
}

void sym_env_freeze(sym_env *env)
{
    env->frozen = true;
    env->o.where = NULL; /* whoever answered is gone */
}

static const char *where_now(sym_env *env)
{
    strbuf b = { 0 };
    if (!env->o.where)
        return "";
    env->o.where(env->o.data, &b);
    const char *s = arena_strdup(&env->mem, strbuf_str(&b));
    strbuf_free(&b);
    return s;
}

/* --- symbols ------------------------------------------------------------------------------------------- */
static int add_source(sym_env *env, const char *text, sym_expr *sym, int64_t value, bool duck)
{
    sx_source s = { arena_strdup(&env->mem, text), sym, value, duck };
    vec_push(&env->sources, s);
    return (int)env->sources.n - 1;
}

static sym_expr *fresh(sym_env *env, bool has_hint, int64_t hint, const char *source, sx_range r)
{
    char name[32];
    do
        snprintf(name, sizeof name, "%c%d", has_hint ? 's' : 'u', has_hint ? env->next_s++ : env->next_u++);
    while (map_get(&env->names, name));
    sym_expr *e = sx_symbol_make(env, name, has_hint, hint, r);
    e->s->where = where_now(env);
    if (source)
        e->s->source = add_source(env, source, e, hint, false);
    sx_log_symbol(e);
    return e;
}

symint sym_env_size_in(sym_env *env, int64_t hint, const char *source, sym_policy p, int64_t lo, int64_t hi)
{
    int64_t least = env->o.no_special_01 ? 0 : 2;
    sx_range r = { MAX(lo, p == SYM_unbacked ? 0 : least), hi };
    sym_expr *e;

    if (hint < 0 || hint >= SYM_LIMIT) {
        err_set(&env->err, ERR_value, "size %lld of %s is out of range", (long long)hint, source);
        return 0;
    }
    if (p == SYM_static || (p != SYM_unbacked && hint < least)) {
        add_source(env, source, NULL, hint, false);
        return hint;
    }
    if (p != SYM_unbacked && (hint < r.lo || hint > r.hi)) {
        err_set(&env->err, ERR_value, "%s is %lld, outside the range that it was marked with", source,
                (long long)hint);
        add_source(env, source, NULL, hint, false);
        return hint;
    }
    if (p == SYM_duck && !env->o.no_duck && (e = map_geti(&env->duck, (uint64_t)hint))) {
        add_source(env, source, e, hint, true);
        sx_log_duck(e, source);
        return sx_resolve(sym_of_expr(e), 0);
    }
    e = fresh(env, p != SYM_unbacked, hint, source, r);
    e->s->is_size = true;
    e->s->strict = p == SYM_dynamic;
    if (p == SYM_duck)
        map_puti(&env->duck, (uint64_t)hint, e);
    return sx_value(e);
}

symint sym_env_size(sym_env *env, int64_t hint, const char *source, sym_policy p)
{
    return sym_env_size_in(env, hint, source, p, 0, SYM_OO);
}

symint sym_env_int(sym_env *env, int64_t hint, const char *source)
{
    if (hint >= SYM_LIMIT || hint <= -SYM_LIMIT) {
        err_set(&env->err, ERR_overflow, "%s is %lld, which does not fit in 62 bits", source,
                (long long)hint);
        return 0;
    }
    return sym_of_expr(fresh(env, true, hint, source, (sx_range){ SYM_NEG_OO, SYM_OO }));
}

void sym_env_replay(sym_env *env, const symint *symbols, int n)
{
    env->again = symbols;
    env->nagain = n;
}

static symint old_symbol(sym_env *env)
{
    env->nagain--;
    return *env->again++;
}

void sym_env_size_like(symint v)
{
    if (sym_is_symbol(v) && sx_of(v)->unbacked)
        sx_of(v)->s->is_size = true;
}

bool sym_is_size_like(symint v) { return sym_is_symbol(v) && sx_of(v)->unbacked && sx_of(v)->s->is_size; }

symint sym_env_unbacked(sym_env *env, int64_t lo, int64_t hi)
{
    if (env->nagain)
        return old_symbol(env);
    return sx_value(fresh(env, false, 0, NULL, (sx_range){ lo, hi }));
}

symint sym_env_unbacked_size(sym_env *env, int64_t hi)
{
    if (env->nagain)
        return old_symbol(env);
    sym_expr *e = fresh(env, false, 0, NULL, (sx_range){ 0, hi });
    e->s->is_size = true;
    return sx_value(e);
}

symint sym_env_declare(sym_env *env, const char *name, bool has_hint, int64_t hint, int64_t lo, int64_t hi,
                       const char *source, tp_err *err)
{
    static const char *const words[] = { "Max", "Min", "Eq",  "Ne",   "Mod",  "FloorDiv",
                                         "and", "or",  "not", "True", "False" };
    sym_expr *e = map_get(&env->names, name);
    bool good = isalpha((unsigned char)name[0]) || name[0] == '_';

    for (const char *p = name; *p; p++)
        good &= isalnum((unsigned char)*p) || *p == '_';
    for (size_t i = 0; i < COUNT(words); i++)
        good &= strcmp(name, words[i]) != 0;
    if (!good || strlen(name) > 64) {
        err_set(err, ERR_value, "'%.64s' cannot be the name of a symbol", name);
        return 0;
    }
    if (lo > hi || (has_hint && (hint < lo || hint > hi || hint >= SYM_LIMIT || hint <= -SYM_LIMIT))) {
        err_set(err, ERR_value, "symbol %s: its value is outside its range", name);
        return 0;
    }
    if (e) {
        if (e->has_hint == has_hint && (!has_hint || e->hint == hint) && e->s->declared.lo == lo &&
            e->s->declared.hi == hi)
            return sym_of_expr(e);
        err_set(err, ERR_value, "symbol %s is declared twice, differently", name);
        return 0;
    }
    e = sx_symbol_make(env, name, has_hint, hint, (sx_range){ lo, hi });
    if (source && *source)
        e->s->source = add_source(env, source, e, hint, false);
    return sym_of_expr(e);
}

int sym_env_n_symbols(const sym_env *env) { return (int)env->symbols.n; }
symint sym_env_symbol_at(const sym_env *env, int i) { return sym_of_expr(env->symbols.at[i]); }
symint sym_env_find(const sym_env *env, const char *name, size_t n)
{
    sym_expr *e = map_getn(&env->names, name, n);
    return e ? sym_of_expr(e) : 0;
}
int sym_index(symint symbol) { return sx_of(symbol)->s->index; }
const char *sym_source(symint symbol)
{
    sym_expr *e = sx_of(symbol);
    return e->s->source < 0 ? "" : e->env->sources.at[e->s->source].text;
}

/* --- questions --------------------------------------------------------------------------------------- */
static void record(sym_env *env, symint cond)
{
    sym_assumed g = { cond, where_now(env), NULL };
    vec_push(&env->guards, g);
    sx_log_guard(env, cond, g.where, false);
    sx_learn(env, cond, g.where);
}

static bool cannot_guard(sym_env *env, symint v)
{
    strbuf text = { 0 }, py = { 0 };
    const char *where = where_now(env), *us = env_torch_alias() ? "torch" : "taper";
    bool cond = sym_is_bool(v);

    sym_print(&text, v);
    sym_print_source(&py, v);
    strbuf_add(&py, cond ? "" : " == ...");
    err_set(
        &env->err, ERR_datadep,
        "Could not %s data-dependent expression %s%s%s. It holds a value that only the running program knows "
        "(an .item(), or a size that depends on data). If %s, say so first with %s._check(%s); if it is the "
        "size "
        "of an input, mark it with %s._dynamo.mark_dynamic instead of mark_unbacked; otherwise use %s.where "
        "or "
        "%s.cond instead of a Python branch.",
        cond ? "guard on" : "extract specialized integer from", strbuf_str(&text),
        *where ? ", asked at " : "", where, cond ? "it is always true" : "it always has one value", us,
        strbuf_str(&py), us, us, us);
    sx_log_datadep(env, v);
    strbuf_free(&text);
    strbuf_free(&py);
    return false;
}

void sym_env_reading(sym_env *env, bool on) { env->reading = on; }

bool sym_truth(symint cond)
{
    if (!sym_is_expr(cond))
        return cond != 0;
    sym_env *env = sx_of(cond)->env;
    if (!sym_is_bool(cond))
        cond = sym_rel_of(SYM_ne, cond, 0);
    cond = sx_resolve(cond, 0);
    if (!sym_is_expr(cond))
        return cond != 0;
    sym_expr *e = sx_of(cond);
    if (e->unbacked)
        return cannot_guard(env, cond);
    if (!e->has_hint) {
        sx_overflow(env);
        return false;
    }
    bool yes = e->hint != 0;
    if (env->reading)
        return yes;
    if (env->frozen) {
        strbuf text = { 0 };
        sym_print(&text, cond);
        err_set(&env->err, ERR_runtime, "a guard on %s is needed, but guards were already produced",
                strbuf_str(&text));
        strbuf_free(&text);
        return yes;
    }
    cond = yes ? cond : sym_not(cond);
    if (!sym_is_expr(cond)) /* the opposite is easier to see through at times */
        return cond ? yes : !yes;
    record(env, cond);
    return yes;
}

bool sym_cmp_slow(sym_rel r, symint a, symint b)
{
    symint cond = sx_resolve(sym_rel_of(r, a, b), 0);
    int big = sym_is_unbacked(cond) ? sx_decide_big(cond) : -1;
    return big < 0 ? sym_truth(cond) : big;
}

int64_t sym_specialize(symint v)
{
    v = sym_simplify(v);
    if (!sym_is_expr(v))
        return v;
    sym_expr *e = sx_of(v);
    if (e->unbacked) {
        cannot_guard(e->env, v);
        return 0;
    }
    if (!e->has_hint) {
        sx_overflow(e->env);
        return 0;
    }
    sym_eq(v, e->hint);
    return e->hint;
}

int64_t sym_number(symint v)
{
    v = sym_simplify(v);
    if (sym_is_expr(v) && sx_of(v)->env->frozen && !sx_of(v)->env->reading)
        sx_of(v)->env->late++;
    return sym_specialize(v);
}

int sym_env_late(const sym_env *env) { return env ? env->late : 0; }

bool sym_env_assert(sym_env *env, symint cond, const char *msg)
{
    int known = sym_is_expr(cond) ? sx_decide(cond) : cond != 0;
    strbuf text = { 0 };

    if (known == 1)
        return true;
    sym_print(&text, cond);
    if (known < 0) {
        cond = sx_resolve(cond, 0);
        if (!sym_is_bool(cond))
            cond = sym_rel_of(SYM_ne, cond, 0);
        sym_expr *e = sx_of(cond);
        if (!e->unbacked)
            known = sym_truth(cond); /* a guard when it holds for this call */
        else {
            sym_assumed a = { cond, where_now(env), msg ? arena_strdup(&env->mem, msg) : NULL };
            known = sx_learn(env, cond, a.where);
            if (known) {
                sx_log_guard(env, cond, a.where, true);
                vec_push(&env->asserts, a);
            }
        }
    }
    if (!known)
        err_set(&env->err, ERR_runtime, "%s%s%s", msg ? msg : "Expected ",
                msg                 ? ""
                : sym_is_expr(cond) ? text.s
                                    : "cond",
                msg ? "" : " to be True, but got False");
    strbuf_free(&text);
    return known;
}

bool sym_env_restore(sym_env *env, symint cond, const char *msg)
{
    sym_expr *e = sx_of(cond);
    int known = sx_decide(cond);
    if (known == 0 || (!e->unbacked && (!e->has_hint || !e->hint)))
        return false;
    sym_assumed a = { cond, where_now(env), msg ? arena_strdup(&env->mem, msg) : NULL };
    if (known < 0 && !sx_learn(env, cond, a.where))
        return false;
    if (e->unbacked)
        vec_push(&env->asserts, a);
    else
        vec_push(&env->guards, a);
    return true;
}

const sym_assumed *sym_env_guards(const sym_env *env, int *n)
{
    *n = (int)env->guards.n;
    return env->guards.at;
}
const sym_assumed *sym_env_asserts(const sym_env *env, int *n)
{
    *n = (int)env->asserts.n;
    return env->asserts.at;
}

bool sym_env_check_dynamic(sym_env *env, tp_err *err)
{
    for (size_t i = 0; i < env->symbols.n; i++) {
        sym_expr *e = env->symbols.at[i];
        symint r = sx_root(e);
        if (!e->s->strict || sym_is_expr(r))
            continue;
        const char *w = e->s->repl_where;
        return err_set(
            err, ERR_value,
            "%s was marked dynamic, but the program only works when it is %lld%s%s. Either remove the mark "
            "(or use maybe_mark_dynamic), or change the code that needs that value.",
            sym_source(sym_of_expr(e)), (long long)r, *w ? ": specialized at " : "", w);
    }
    return true;
}

bool sym_eval(symint v, const sym_bind *b, int n, int64_t *out)
{
    if (!sym_is_expr(v)) {
        *out = v;
        return true;
    }
    sym_env *env = sx_of(v)->env;
    int64_t *values = mem_zalloc((env->symbols.n + 1) * sizeof *values);
    bool *have = mem_zalloc(env->symbols.n + 1), ok = true;
    int *slot = mem_alloc((env->symbols.n + 1) * sizeof *slot);

    for (int i = 0; i < n; i++)
        if (sym_symbol_name(b[i].symbol)) {
            values[b[i].symbol->s->index] = b[i].value;
            have[b[i].symbol->s->index] = true;
        }
    for (size_t i = 0; i < env->symbols.n; i++)
        slot[i] = have[i] ? (int)i : -1;
    sym_prog *p = sx_prog_new(&v, 1, slot);
    ok = p && sym_prog_run(p, values, out);
    sym_prog_free(p);
    free(values);
    free(have);
    free(slot);
    return ok;
}
