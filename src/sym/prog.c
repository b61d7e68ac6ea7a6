/* prog.c - expressions as straight-line code over registers, and the guards that run on every call. */
#include "sym/expr.h"
#include "sym/log.h"

typedef enum {
    I_load,
    I_const,
    I_madd,
    I_mul,
    I_pow,
    I_floordiv,
    I_mod,
    I_min,
    I_max,
    I_eq,
    I_ne,
    I_le,
    I_ge,
    I_and,
    I_or,
    I_out, /* out[a] = b */
    I_check_range,
    I_check_eq,
    I_check_const,
    I_check_true, /* a is the guard's number */
} opcode;
typedef struct {
    uint8_t op;
    int dst, a, b;
    int64_t k, k2;
} ins;
struct sym_prog {
    VEC(ins) code;
    int n_regs;
};

static int emit(sym_prog *p, opcode op, int a, int b, int64_t k, int64_t k2)
{
    ins i = { (uint8_t)op, p->n_regs, a, b, k, k2 };
    vec_push(&p->code, i);
    return p->n_regs++;
}

static symint child(const sym_expr *e, int i)
{
    return e->kind == SX_add || e->kind == SX_mul ? sym_of_expr(e->t[i].e) : e->a[i];
}
static int n_children(const sym_expr *e) { return e->kind == SX_sym ? 0 : e->n; }

static int reg_of(sym_prog *p, const map *regs, symint v)
{
    if (!sym_is_expr(v))
        return emit(p, I_const, 0, 0, v, 0);
    return (int)(intptr_t)map_geti(regs, (uint64_t)v) - 1;
}

/* The instruction(s) of e, whose children have registers. -1 when a symbol has no slot. */
static int emit_node(sym_prog *p, const map *regs, const sym_expr *e, const int *slot)
{
    int r;
    switch (e->kind) {
    case SX_sym:
        if (slot[e->s->index] < 0)
            return -1;
        return emit(p, I_load, slot[e->s->index], 0, 0, 0);
    case SX_add:
        r = emit(p, I_const, 0, 0, e->c, 0);
        for (int i = 0; i < e->n; i++)
            r = emit(p, I_madd, r, reg_of(p, regs, child(e, i)), e->t[i].k, 0);
        return r;
    case SX_mul:
        r = -1;
        for (int i = 0; i < e->n; i++) {
            int x = reg_of(p, regs, child(e, i));
            if (e->t[i].k != 1)
                x = emit(p, I_pow, x, 0, e->t[i].k, 0);
            r = r < 0 ? x : emit(p, I_mul, r, x, 0, 0);
        }
        return r;
    case SX_eq:
    case SX_ne:
    case SX_le:
    case SX_ge: return emit(p, I_eq + (e->kind - SX_eq), reg_of(p, regs, e->a[0]), 0, e->c, 0);
    default:
        r = reg_of(p, regs, e->a[0]);
        for (int i = 1; i < e->n; i++) {
            static const uint8_t ops[] = { [SX_floordiv] = I_floordiv, [SX_mod] = I_mod, [SX_min] = I_min,
                                           [SX_max] = I_max,           [SX_and] = I_and, [SX_or] = I_or };
            r = emit(p, ops[e->kind], r, reg_of(p, regs, e->a[i]), 0, 0);
        }
        return r;
    }
}

/* Registers for v and all below it, without recursion: expressions can be deep. */
static bool visit(sym_prog *p, map *regs, symint v, const int *slot)
{
    VEC(symint) stack = { 0 };
    bool ok = true;

    if (sym_is_expr(v))
        vec_push(&stack, v);
    while (stack.n && ok) {
        symint top = vec_last(&stack);
        const sym_expr *e = sym_expr_of(top);
        size_t before = stack.n;
        if (map_geti(regs, (uint64_t)top)) {
            (void)vec_pop(&stack);
            continue;
        }
        for (int i = 0; i < n_children(e); i++) {
            symint c = child(e, i);
            if (sym_is_expr(c) && !map_geti(regs, (uint64_t)c))
                vec_push(&stack, c);
        }
        if (stack.n > before)
            continue;
        int r = emit_node(p, regs, e, slot);
        ok = r >= 0;
        map_puti(regs, (uint64_t)top, (void *)(intptr_t)(r + 1));
        (void)vec_pop(&stack);
    }
    vec_free(&stack);
    return ok;
}

sym_prog *sx_prog_new(const symint *v, int n, const int *slot)
{
    sym_prog *p = mem_zalloc(sizeof *p);
    map regs = { 0 };
    bool ok = true;

    for (int i = 0; i < n && ok; i++) {
        ok = visit(p, &regs, v[i], slot);
        if (ok)
            emit(p, I_out, i, reg_of(p, &regs, v[i]), 0, 0);
    }
    map_free(&regs);
    if (!ok) {
        sym_prog_free(p);
        return NULL;
    }
    return p;
}

sym_prog *sym_prog_new(const symint *v, int n)
{
    sym_env *env = NULL;
    for (int i = 0; i < n && !env; i++)
        env = sym_env_of(v[i]);
    size_t m = env ? env->symbols.n : 0;
    int *slot = mem_alloc((m + 1) * sizeof *slot);
    for (size_t i = 0; i < m; i++)
        slot[i] = (int)i;
    sym_prog *p = sx_prog_new(v, n, slot);
    free(slot);
    return p;
}

void sym_prog_free(sym_prog *p)
{
    if (!p)
        return;
    vec_free(&p->code);
    free(p);
}

static bool power(int64_t x, int64_t n, int64_t *out)
{
    int64_t r = 1;
    if (x == 0 || x == 1 || x == -1)
        r = x == -1 && n % 2 == 0 ? 1 : x;
    else
        for (; n > 0; n--)
            if (__builtin_mul_overflow(r, x, &r))
                return false;
    *out = r;
    return true;
}

enum { OK = -1, BROKEN = -2 };
/* Overflow or a division by zero: a guard that needed the value does not hold. */
static int broken(const ins *i, const ins *end)
{
    for (; i < end; i++)
        if (i->op >= I_check_range)
            return i->a;
    return BROKEN;
}

/* OK, BROKEN, or the number of the guard that does not hold. */
static int run(const sym_prog *p, int64_t *r, const int64_t *values, int64_t *out)
{
    int64_t x;
    for (const ins *i = p->code.at, *end = i + p->code.n; i < end; i++) {
        int64_t *d = &r[i->dst];
        switch ((opcode)i->op) {
        case I_load: *d = values[i->a]; break;
        case I_const: *d = i->k; break;
        case I_madd:
            if (__builtin_mul_overflow(r[i->b], i->k, &x) || __builtin_add_overflow(r[i->a], x, d))
                return broken(i, end);
            break;
        case I_mul:
            if (__builtin_mul_overflow(r[i->a], r[i->b], d))
                return broken(i, end);
            break;
        case I_pow:
            if (!power(r[i->a], i->k, d))
                return broken(i, end);
            break;
        case I_floordiv:
        case I_mod:
            if (r[i->b] == 0 || (r[i->b] == -1 && r[i->a] == INT64_MIN))
                return broken(i, end);
            x = sx_floordiv(r[i->a], r[i->b]);
            *d = i->op == I_floordiv ? x : r[i->a] - x * r[i->b];
            break;
        case I_min: *d = MIN(r[i->a], r[i->b]); break;
        case I_max: *d = MAX(r[i->a], r[i->b]); break;
        case I_eq: *d = r[i->a] == i->k; break;
        case I_ne: *d = r[i->a] != i->k; break;
        case I_le: *d = r[i->a] <= i->k; break;
        case I_ge: *d = r[i->a] >= i->k; break;
        case I_and: *d = r[i->a] & r[i->b]; break;
        case I_or: *d = r[i->a] | r[i->b]; break;
        case I_out: out[i->a] = r[i->b]; break;
        case I_check_range:
            if (r[i->b] < i->k || r[i->b] > i->k2)
                return i->a;
            break;
        case I_check_eq:
            if (r[i->b] != r[i->k])
                return i->a;
            break;
        case I_check_const:
            if (r[i->b] != i->k)
                return i->a;
            break;
        case I_check_true:
            if (!r[i->b])
                return i->a;
            break;
        }
    }
    return OK;
}

static int run_with_registers(const sym_prog *p, const int64_t *values, int64_t *out)
{
    enum { ON_STACK = 512 };
    int64_t few[ON_STACK], *r = p->n_regs <= ON_STACK ? few : mem_alloc((size_t)p->n_regs * sizeof *r);
    int status = run(p, r, values, out);
    if (r != few)
        free(r);
    return status;
}

bool sym_prog_run(const sym_prog *p, const int64_t *values, int64_t *out)
{
    return run_with_registers(p, values, out) == OK;
}

/* --- guards
 * -------------------------------------------------------------------------------------------------- */
struct sym_guards {
    VEC(sym_guard_text) texts;
    VEC(const char *) sources;
    sym_prog check;
    arena mem;
};

typedef struct {
    sym_env *env;
    sym_guards *g;
    map regs, seen;
    int *slot;          /* of the root symbol, by symbol index */
    sx_range *range;    /* what guards and declarations demand of a root symbol, by index */
    const char **where; /* the line that narrowed it */
} emitter;

static int add_text(emitter *m, const char *text, const char *where, const char *why)
{
    sym_guard_text t = { text, arena_strdup(&m->g->mem, where ? where : ""), why };
    vec_push(&m->g->texts, t);
    return (int)m->g->texts.n - 1;
}

static const char *source_of(emitter *m, int slot) { return m->env->sources.at[slot].text; }
static int load(emitter *m, int slot) { return emit(&m->g->check, I_load, slot, 0, 0, 0); }

/* Sources that must agree with an earlier source or with a constant. */
static void emit_equalities(emitter *m)
{
    for (size_t i = 0; i < m->env->sources.n; i++) {
        const sx_source *s = &m->env->sources.at[i];
        if (!s->sym)
            continue;
        symint root = sx_root(s->sym);
        const char *where = s->sym->s->repl_where;
        if (!sym_is_expr(root)) {
            int n = add_text(m, arena_printf(&m->g->mem, "%s == %lld", s->text, (long long)root), where,
                             "specialized");
            emit(&m->g->check, I_check_const, n, load(m, (int)i), root, 0);
            continue;
        }
        int *first = &m->slot[sx_of(root)->s->index];
        if (*first < 0) {
            *first = (int)i;
            continue;
        }
        int n = add_text(m, arena_printf(&m->g->mem, "%s == %s", source_of(m, *first), s->text),
                         s->duck ? "" : where, s->duck ? "duck sizing" : "guard");
        int a = load(m, *first), b = load(m, (int)i);
        emit(&m->g->check, I_check_eq, n, a, b, 0);
    }
}

static void tighten(sx_range *r, sx_range by)
{
    r->lo = MAX(r->lo, by.lo);
    r->hi = MIN(r->hi, by.hi);
}

/* A relation in the user's terms: symbols print as the source that stands for their class. */
static void emit_condition(emitter *m, symint cond, const char *where)
{
    strbuf b = { 0 };
    VEC(sym_expr *) touched = { 0 };

    for (size_t i = 0; i < m->env->symbols.n; i++) {
        sym_expr *e = m->env->symbols.at[i];
        if (e->s->source < 0 && m->slot[i] >= 0) { /* an unbacked root that has sources of its class only */
            e->s->source = m->slot[i];
            vec_push(&touched, e);
        }
    }
    sym_print_source(&b, cond);
    for (size_t i = 0; i < touched.n; i++)
        touched.at[i]->s->source = -1;
    vec_free(&touched);
    if (visit(&m->g->check, &m->regs, cond, m->slot)) {
        int n = add_text(m, arena_strdup(&m->g->mem, strbuf_str(&b)), where, "guard");
        emit(&m->g->check, I_check_true, n, reg_of(&m->g->check, &m->regs, cond), 0, 0);
    }
    strbuf_free(&b);
}

/* Of several bounds on one expression only the tightest counts; it stands where the first stood. */
static bool is_superseded(emitter *m, const sym_expr *e)
{
    if (e->kind != SX_le && e->kind != SX_ge)
        return false;
    const sym_expr *best = map_geti(&m->seen, (uint64_t)e->a[0] * 2 + (e->kind == SX_ge));
    return best != e;
}

static void note_bound(emitter *m, const sym_expr *e)
{
    uint64_t key = (uint64_t)e->a[0] * 2 + (e->kind == SX_ge);
    const sym_expr *best = map_geti(&m->seen, key);
    if (!best || (e->kind == SX_le ? e->c < best->c : e->c > best->c))
        map_puti(&m->seen, key, (void *)e);
}

static void emit_guards(emitter *m)
{
    sym_env *env = m->env;
    VEC(symint) conds = { 0 };
    VEC(const char *) wheres = { 0 };
    map memo = { 0 }, done = { 0 };

    env->pure = true;
    for (size_t i = 0; i < env->guards.n; i++) {
        symint c = sx_rename(env->guards.at[i].cond, &memo, 0);
        const char *where = env->guards.at[i].where;
        if (c == 1 || map_geti(&done, (uint64_t)c))
            continue;
        if (!sym_is_expr(c)) { /* cannot hold together with the rest: never pass */
            int n = add_text(m, "False", where, "guard");
            emit(&m->g->check, I_check_true, n, emit(&m->g->check, I_const, 0, 0, 0, 0), 0, 0);
            continue;
        }
        map_puti(&done, (uint64_t)c, m);
        const sym_expr *e = sym_expr_of(c);
        if ((e->kind == SX_le || e->kind == SX_ge) && sx_is(e->a[0], SX_sym)) {
            int s = sx_of(e->a[0])->s->index;
            sx_range was = m->range[s];
            tighten(&m->range[s],
                    e->kind == SX_le ? (sx_range){ SYM_NEG_OO, e->c } : (sx_range){ e->c, SYM_OO });
            if (was.lo != m->range[s].lo || was.hi != m->range[s].hi)
                m->where[s] = where;
            continue;
        }
        if (e->kind == SX_le || e->kind == SX_ge)
            note_bound(m, e);
        vec_push(&conds, c);
        vec_push(&wheres, where);
    }
    for (size_t i = 0; i < conds.n; i++)
        if (!is_superseded(m, sym_expr_of(conds.at[i])))
            emit_condition(m, conds.at[i], wheres.at[i]);
    env->pure = false;
    map_free(&memo);
    map_free(&done);
    vec_free(&conds);
    vec_free(&wheres);
}

static void emit_ranges(emitter *m)
{
    for (size_t i = 0; i < m->env->symbols.n; i++) {
        sym_expr *e = m->env->symbols.at[i];
        sx_range r = m->range[i];
        if (m->slot[i] < 0 || (e->s->is_size && r.lo <= 0 && r.hi == SYM_OO) ||
            (r.lo == SYM_NEG_OO && r.hi == SYM_OO))
            continue;
        strbuf b = { 0 };
        if (r.lo != SYM_NEG_OO && !(e->s->is_size && r.lo <= 0))
            strbuf_addf(&b, "%lld <= ", (long long)r.lo);
        strbuf_add(&b, source_of(m, m->slot[i]));
        if (r.hi != SYM_OO)
            strbuf_addf(&b, " <= %lld", (long long)r.hi);
        int n = add_text(m, arena_strdup(&m->g->mem, b.s), m->where[i] ? m->where[i] : e->s->where, "range");
        emit(&m->g->check, I_check_range, n, load(m, m->slot[i]), r.lo, r.hi);
        strbuf_free(&b);
    }
}

sym_guards *sym_guards_new(sym_env *env)
{
    sym_guards *g = mem_zalloc(sizeof *g);
    size_t n = env->symbols.n + 1;
    emitter m = { env,
                  g,
                  { 0 },
                  { 0 },
                  mem_alloc(n * sizeof(int)),
                  mem_alloc(n * sizeof(sx_range)),
                  mem_zalloc(n * sizeof(char *)) };

    sx_log_produce(env);
    for (size_t i = 0; i < env->sources.n; i++)
        vec_push(&g->sources, arena_strdup(&g->mem, env->sources.at[i].text));
    for (size_t i = 0; i < env->symbols.n; i++) {
        m.slot[i] = -1;
        m.range[i] = env->symbols.at[i]->s->declared;
    }
    for (size_t i = 0; i < env->symbols.n; i++) { /* a class keeps to the ranges of all its members */
        symint root = sx_root(env->symbols.at[i]);
        if (sym_is_expr(root))
            tighten(&m.range[sx_of(root)->s->index], env->symbols.at[i]->s->declared);
    }
    emit_equalities(&m);
    emit_guards(&m);
    emit_ranges(&m);
    map_free(&m.regs);
    map_free(&m.seen);
    free(m.slot);
    free(m.range);
    free(m.where);
    return g;
}

void sym_guards_free(sym_guards *g)
{
    if (!g)
        return;
    vec_free(&g->texts);
    vec_free(&g->sources);
    vec_free(&g->check.code);
    arena_free(&g->mem);
    free(g);
}

int sym_guards_n(const sym_guards *g) { return (int)g->texts.n; }
const sym_guard_text *sym_guards_at(const sym_guards *g, int i) { return &g->texts.at[i]; }
int sym_guards_n_values(const sym_guards *g) { return (int)g->sources.n; }

int sym_guards_check(const sym_guards *g, const int64_t *values)
{
    return run_with_registers(&g->check, values, NULL);
}
