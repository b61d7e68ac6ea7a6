/* expr.c - interning: structure in, the one pointer out. Hints and ranges are computed here, once. */
#include "sym/expr.h"
#include "events/events.h"
#include "sym/log.h"

static bool is_terms(sx_kind k) { return k == SX_mul || k == SX_add; }
static size_t args_size(sx_kind k, int n)
{
    return (size_t)n * (is_terms(k) ? sizeof(sx_term) : sizeof(symint));
}

symint sx_overflow(sym_env *env)
{
    err_set(&env->err, ERR_overflow, "a symbolic size does not fit in 62 bits");
    return 0;
}

symint sx_const(sym_env *env, int64_t v) { return sx_fits(v) ? v : sx_overflow(env); }

static sym_expr **slot(sym_env *env, uint32_t h, sx_kind k, int n, const void *args, int64_t c)
{
    size_t i = h & (env->cap - 1);
    for (;; i = (i + 1) & (env->cap - 1)) {
        sym_expr *e = env->table[i];
        if (!e ||
            (e->hash == h && e->kind == k && e->n == n && e->c == c && !memcmp(e->t, args, args_size(k, n))))
            return &env->table[i];
    }
}

static void grow(sym_env *env)
{
    sym_expr **old = env->table;
    size_t cap = env->cap;

    env->cap = cap ? cap * 2 : 256;
    env->table = mem_zalloc(env->cap * sizeof *env->table);
    for (size_t j = 0; j < cap; j++) {
        if (!old[j])
            continue;
        size_t i = old[j]->hash & (env->cap - 1);
        while (env->table[i])
            i = (i + 1) & (env->cap - 1);
        env->table[i] = old[j];
    }
    free(old);
}

static uint32_t hash_of(sx_kind k, int n, const void *args, int64_t c)
{
    return (uint32_t)hash_bytes(args, args_size(k, n), hash_mix((uint64_t)k, (uint64_t)c));
}

sym_expr *sx_find(sym_env *env, sx_kind k, int n, const void *args, int64_t c)
{
    return env->cap ? *slot(env, hash_of(k, n, args, c), k, n, args, c) : NULL;
}

static bool hint_of(symint v, int64_t *out)
{
    if (!sym_is_expr(v)) {
        *out = v;
        return true;
    }
    *out = sx_of(v)->hint;
    return sx_of(v)->has_hint;
}

static bool power(int64_t x, int64_t n, int64_t *out)
{
    int64_t r = 1;
    if (x == 0 || x == 1 || x == -1) {
        *out = x == -1 && n % 2 == 0 ? 1 : x;
        return true;
    }
    for (; n > 0; n--) /* at most 63 rounds before it overflows */
        if (__builtin_mul_overflow(r, x, &r))
            return false;
    *out = r;
    return true;
}

static bool compute_hint(const sym_expr *e, int64_t *out)
{
    int64_t acc = e->kind == SX_add ? e->c : e->kind == SX_mul || e->kind == SX_and ? 1 : 0, x, y;

    if (is_terms(e->kind)) {
        for (int i = 0; i < e->n; i++) {
            const sym_expr *t = e->t[i].e;
            if (!t->has_hint)
                return false;
            if (e->kind == SX_add
                    ? __builtin_mul_overflow(t->hint, e->t[i].k, &x) || __builtin_add_overflow(acc, x, &acc)
                    : !power(t->hint, e->t[i].k, &x) || __builtin_mul_overflow(acc, x, &acc))
                return false;
        }
        *out = acc;
        return true;
    }
    for (int i = 0; i < e->n; i++) {
        if (!hint_of(e->a[i], &x))
            return false;
        switch (e->kind) {
        case SX_min: acc = i ? MIN(acc, x) : x; break;
        case SX_max: acc = i ? MAX(acc, x) : x; break;
        case SX_and: acc &= x; break;
        case SX_or: acc |= x; break;
        case SX_eq: acc = x == e->c; break;
        case SX_ne: acc = x != e->c; break;
        case SX_le: acc = x <= e->c; break;
        case SX_ge: acc = x >= e->c; break;
        default:
            if (!hint_of(e->a[1], &y) || y == 0)
                return false;
            *out = e->kind == SX_mod ? sx_mod(x, y) : sx_floordiv(x, y);
            return true;
        }
    }
    *out = acc;
    return true;
}

static sym_expr *node(sym_env *env, sx_kind k)
{
    sym_expr *e = ARENA_NEW(&env->mem, sym_expr);
    /* The 16 top bits of a symint tag it, so addresses must stay below 2^48; they do on every machine we
     * know (unless asked for more), and a tagged pointer would be misread silently where they did not. */
    if ((uint64_t)(uintptr_t)e >> 48)
        abort();
    e->env = env;
    e->kind = (uint8_t)k;
    e->id = (uint32_t)env->n_table++;
    e->ranged_at = env->facts;
    e->resolved_at = e->refined_at = UINT32_MAX;
    return e;
}

static void place(sym_env *env, sym_expr *e)
{
    size_t i = e->hash & (env->cap - 1);
    while (env->table[i])
        i = (i + 1) & (env->cap - 1);
    env->table[i] = e;
}

sym_expr *sx_intern(sym_env *env, sx_kind k, int n, const void *args, int64_t c)
{
    uint32_t h = hash_of(k, n, args, c);
    if ((env->n_table + 1) * 2 > env->cap)
        grow(env);
    sym_expr *e = *slot(env, h, k, n, args, c);
    if (e)
        return e;
    e = node(env, k);
    e->hash = h;
    e->n = n;
    e->t = arena_dup(&env->mem, args, args_size(k, n));
    e->c = c;
    e->nonlinear = k >= SX_floordiv && k <= SX_max;
    for (int i = 0; i < n; i++) {
        symint part = is_terms(k) ? sym_of_expr(e->t[i].e) : e->a[i];
        e->unbacked |= sym_is_unbacked(part);
        e->nonlinear |= sym_is_expr(part) && sx_of(part)->nonlinear;
    }
    e->has_hint = !e->unbacked && compute_hint(e, &e->hint) && sx_fits(e->hint);
    sx_range_init(e);
    place(env, e);
    if (ev_on(EV_expression_created) || ev_on(EV_sym_node))
        sx_log_made(e);
    return e;
}

sym_expr *sx_symbol_make(sym_env *env, const char *name, bool has_hint, int64_t hint, sx_range r)
{
    if ((env->n_table + 1) * 2 > env->cap)
        grow(env);
    sym_expr *e = node(env, SX_sym);
    sx_symbol *s = ARENA_NEW(&env->mem, sx_symbol);
    s->name = arena_strdup(&env->mem, name);
    s->where = s->repl_where = "";
    s->index = (int)env->symbols.n;
    s->source = -1;
    s->unbacked = e->unbacked = !has_hint;
    s->declared = s->guarded = e->base = e->now = r;
    e->s = s;
    e->has_hint = has_hint;
    e->hint = hint;
    e->hash = (uint32_t)hash_u64(e->id);
    place(env, e); /* never found: its n of 0 and NULL arguments belong to no other kind */
    vec_push(&env->symbols, e);
    map_put(&env->names, name, e);
    return e;
}

symint sx_value(sym_expr *e)
{
    sx_range r = sx_range_of(sym_of_expr(e));
    return r.lo == r.hi && sx_fits(r.lo) ? r.lo : sym_of_expr(e);
}

bool sym_is_unbacked(symint v) { return sym_is_expr(v) && sx_of(v)->unbacked; }
bool sym_is_symbol(symint v) { return sx_is(v, SX_sym); }
bool sym_is_bool(symint v) { return sym_is_expr(v) && sx_kind_is_bool(sx_of(v)->kind); }
const char *sym_symbol_name(const sym_expr *e) { return e->kind == SX_sym ? e->s->name : NULL; }
sym_env *sym_env_of(symint v) { return sym_is_expr(v) ? sx_of(v)->env : NULL; }

int64_t sym_hint(symint v, bool *ok)
{
    int64_t h = 0;
    /* What was replaced may have gained a hint: u0 == s0. */
    bool have = hint_of(v, &h) || hint_of(sym_simplify(v), &h);
    if (ok)
        *ok = have;
    return have ? h : 0;
}
