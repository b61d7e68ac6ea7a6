#include "sym/log.h"
#include "base/envvars.h"
#include "events/events.h"

void sx_log_env(sym_env *env)
{
    if (ev_log_on(EVC_dynamic, EV_INFO))
        ev_log(EVC_dynamic, EV_INFO, NULL, "create_env");
}

static void key_text(json_w *w, const char *key, symint v)
{
    strbuf b = { 0 };
    sym_print(&b, v);
    json_key(w, key);
    json_strn(w, b.s, b.n);
    strbuf_free(&b);
}

static void key_range(json_w *w, sx_range r)
{
    strbuf b = { 0 };
    sym_range_print(&b, r.lo, r.hi);
    json_key(w, "vr");
    json_strn(w, b.s, b.n);
    strbuf_free(&b);
}

/* user_stack: the program's frames alone; stack: with those of the library between and behind them. */
static void end_with_stacks(json_w *w)
{
    ev_frame all[64], own[64];
    int n = ev_user_stack(all, COUNT(all)), k = 0;
    for (int i = 0; i < n; i++)
        if (!all[i].library)
            own[k++] = all[i];
    if (!k && n) /* the library alone: the innermost, as elsewhere */
        own[k++] = all[n - 1];
    json_key(w, "user_stack");
    ev_json_stack(w, own, k);
    json_key(w, "stack");
    ev_json_stack(w, all, n);
    json_end(w);
}

static void key_sources(json_w *w, const char *key, const sym_env *env)
{
    json_key(w, key);
    json_obj(w);
    for (size_t i = 0; i < env->symbols.n; i++) {
        json_key(w, env->symbols.at[i]->s->name);
        json_str(w, sym_source(sym_of_expr(env->symbols.at[i])));
    }
    json_end(w);
}

/* {loc, locals, symbols}: the line that asked, what its function's variables are, where the symbols come from. */
static void key_locals(json_w *w, const sym_env *env)
{
    ev_frame f[64];
    int n = ev_user_stack(f, COUNT(f)), at = n - 1;
    while (at >= 0 && f[at].library)
        at--;
    json_key(w, "frame_locals");
    json_obj(w);
    json_key(w, "loc");
    json_str(w, at >= 0 ? f[at].loc : NULL);
    json_key(w, "locals");
    json_raw(w, at >= 0 && f[at].locals ? f[at].locals : "{}");
    key_sources(w, "symbols", env);
    json_end(w);
}

/* TAPER_EXTENDED_DEBUG_CREATE_SYMBOL="s0,s3": the whole stack for these. */
static bool is_extended(const char *name)
{
    const char *s = env_get(ENV_extended_symbol);
    size_t n = strlen(name);
    for (const char *p = s; p && (p = strstr(p, name)); p += n)
        if ((p == s || p[-1] == ',') && (p[n] == 0 || p[n] == ','))
            return true;
    return false;
}

static void add_stack(strbuf *b)
{
    ev_frame f[64];
    int n = ev_user_stack(f, COUNT(f));

    strbuf_add(b, "\nStack (most recent call last):");
    for (int i = 0; i < n; i++) {
        strbuf_addf(b, "\n  File \"%s\", line %d, in %s", f[i].file, f[i].line, f[i].name);
        if (f[i].loc)
            strbuf_addf(b, "\n    %s", f[i].loc);
    }
}

/* What an expression was made of: its parts with their numbers. A sum or product lists factor and part as written. */
static void parts_json(json_w *w, const sym_expr *e, bool ids)
{
    bool terms = e->kind == SX_add || e->kind == SX_mul;
    json_arr(w);
    for (int i = 0; i < e->n; i++) {
        symint part = terms ? sym_of_expr(e->t[i].e) : e->a[i];
        strbuf b = { 0 };
        sym_print(&b, part);
        if (terms && e->t[i].k != 1) {
            strbuf times = { 0 };
            if (e->kind == SX_add)
                strbuf_addf(&times, "%lld*%s", (long long)e->t[i].k, strbuf_str(&b));
            else
                strbuf_addf(&times, "%s**%lld", strbuf_str(&b), (long long)e->t[i].k);
            strbuf_free(&b);
            b = times;
        }
        if (!ids)
            json_strn(w, strbuf_str(&b), b.n);
        else if (sym_is_expr(part))
            json_int(w, sx_of(part)->id);
        strbuf_free(&b);
    }
    bool more = (e->kind == SX_add && e->c) || e->kind >= SX_eq;
    if (!ids && more && (e->kind == SX_add || e->n == 1))
        json_strf(w, "%lld", (long long)e->c);
    json_end(w);
}

void sx_log_made(const sym_expr *e)
{
    static const char *const method[] = { "sym", "mul", "add", "floordiv", "mod", "min", "max",
                                          "eq",  "ne",  "le",  "ge",       "and", "or" };
    static _Thread_local bool busy; /* printing may build expressions of its own */
    if (busy)
        return;
    busy = true;
    strbuf result = { 0 };
    sym_print(&result, sym_of_expr(e));
    if (ev_text_on(EV_sym_node)) {
        strbuf b = { 0 };
        json_w w = { &b };
        parts_json(&w, e, false);
        ev_text(EV_sym_node, NULL, "%s %s -> %s", method[e->kind], strbuf_str(&b), strbuf_str(&result));
        strbuf_free(&b);
    }
    if (ev_trace_on(EV_expression_created)) {
        strbuf b = { 0 };
        json_w w = { &b };
        json_obj(&w);
        json_key(&w, "method");
        json_str(&w, method[e->kind]);
        json_key(&w, "result");
        json_strn(&w, strbuf_str(&result), result.n);
        json_key(&w, "result_id");
        json_int(&w, e->id);
        json_key(&w, "arguments");
        parts_json(&w, e, false);
        json_key(&w, "argument_ids");
        parts_json(&w, e, true);
        end_with_stacks(&w);
        ev_json(EV_expression_created, NULL, b.s, NULL);
        strbuf_free(&b);
    }
    strbuf_free(&result);
    busy = false;
}

void sx_log_symbol(sym_expr *e)
{
    const sx_symbol *s = e->s;
    ev_kind kind = s->unbacked ? EV_create_unbacked_symbol : EV_create_symbol;

    if (ev_text_on(EV_trace_shape_events))
        ev_text(EV_trace_shape_events, NULL, "%s %s for %s",
                s->unbacked ? "create_unbacked_symbol" : "create_symbol", s->name,
                s->unbacked ? "a value that data decides" : sym_source(sym_of_expr(e)));

    if (ev_log_on(EVC_dynamic, EV_INFO)) {
        strbuf b = { 0 };
        if (s->unbacked)
            strbuf_addf(&b, "create_unbacked_symbol %s ", s->name);
        else
            strbuf_addf(&b, "create_symbol %s = %lld for %s ", s->name, (long long)e->hint,
                        sym_source(sym_of_expr(e)));
        sym_range_print(&b, s->declared.lo, s->declared.hi);
        if (*s->where)
            strbuf_addf(&b, " at %s", s->where);
        strbuf_addf(&b, " (sym/env.c in sym_env_%s), for more info run with %s=\"%s\"",
                    s->unbacked                    ? "unbacked"
                    : s->declared.lo == SYM_NEG_OO ? "int"
                                                   : "size",
                    env_name(ENV_extended_symbol), s->name);
        if (is_extended(s->name))
            add_stack(&b);
        ev_log(EVC_dynamic, EV_INFO, NULL, "%s", b.s);
        strbuf_free(&b);
    }
    if (ev_trace_on(kind)) {
        strbuf b = { 0 };
        json_w w = { &b };
        json_obj(&w);
        json_key(&w, "symbol");
        json_str(&w, s->name);
        json_key(&w, s->unbacked ? "node_id" : "val");
        if (s->unbacked)
            json_int(&w, s->index);
        else
            json_strf(&w, "%lld", (long long)e->hint);
        key_range(&w, s->declared);
        if (!s->unbacked) {
            json_key(&w, "source");
            json_str(&w, sym_source(sym_of_expr(e)));
        }
        end_with_stacks(&w);
        ev_json(kind, NULL, b.s, NULL);
        strbuf_free(&b);
    }
}

void sx_log_duck(sym_expr *e, const char *source)
{
    if (ev_log_on(EVC_dynamic, EV_DEBUG))
        ev_log(EVC_dynamic, EV_DEBUG, NULL, "create_symbol %s duck sized %s", e->s->name, source);
}

void sx_log_guard(sym_env *env, symint cond, const char *where, bool assertion)
{
    if (ev_log_on(EVC_dynamic, EV_INFO)) {
        strbuf b = { 0 };
        sym_print(&b, cond);
        ev_log(EVC_dynamic, EV_INFO, NULL, "%s %s [guard added]%s%s", assertion ? "runtime_assert" : "eval",
               b.s, *where ? " at " : "", where);
        strbuf_free(&b);
    }
    if (ev_text_on(EV_trace_shape_events)) {
        strbuf b = { 0 };
        sym_print(&b, cond);
        ev_text(EV_trace_shape_events, NULL, "%s %s%s%s", assertion ? "runtime_assert" : "guard_added",
                strbuf_str(&b), *where ? " at " : "", where);
        strbuf_free(&b);
    }
    if (!assertion && (ev_trace_on(EV_guard_added_fast) || ev_trace_on(EV_guard_added))) {
        strbuf b = { 0 };
        json_w w = { &b };
        json_obj(&w);
        key_text(&w, "expr", cond);
        end_with_stacks(&w);
        ev_json(EV_guard_added_fast, NULL, b.s, NULL);
        strbuf_clear(&b);
        w = (json_w){ &b };
        json_obj(&w);
        key_text(&w, "expr", cond);
        json_key(&w, "prefix");
        json_str(&w, "eval");
        json_key(&w, "expr_node_id");
        json_int(&w, sx_of(cond)->id);
        key_sources(&w, "symbol_to_sources", env);
        key_locals(&w, env);
        end_with_stacks(&w);
        ev_json(EV_guard_added, NULL, b.s, NULL);
        strbuf_free(&b);
    }
}

void sx_log_replaced(sym_expr *s, symint value, const char *where)
{
    if (ev_log_on(EVC_dynamic, EV_DEBUG)) {
        strbuf b = { 0 };
        sym_print(&b, value);
        ev_log(EVC_dynamic, EV_DEBUG, NULL, "set_replacement %s = %s%s%s", s->s->name, b.s,
               *where ? " at " : "", where);
        strbuf_free(&b);
    }
    if (ev_text_on(EV_trace_shape_events)) {
        strbuf b = { 0 };
        sym_print(&b, value);
        ev_text(EV_trace_shape_events, NULL, "set_replacement %s = %s%s%s", s->s->name, strbuf_str(&b),
                *where ? " at " : "", where);
        strbuf_free(&b);
    }
    if (!sym_is_expr(value) && ev_trace_on(EV_symbolic_shape_specialization)) {
        strbuf b = { 0 };
        json_w w = { &b };
        json_obj(&w);
        json_key(&w, "symbol");
        json_str(&w, s->s->name);
        json_key(&w, "sources");
        json_arr(&w);
        for (size_t i = 0; i < s->env->sources.n; i++)
            if (s->env->sources.at[i].sym == s)
                json_str(&w, s->env->sources.at[i].text);
        json_end(&w);
        json_key(&w, "value");
        json_strf(&w, "%lld", (long long)value);
        json_key(&w, "reason");
        json_strf(&w, "guard%s%s", *where ? " at " : "", where);
        end_with_stacks(&w);
        ev_json(EV_symbolic_shape_specialization, NULL, b.s, NULL);
        strbuf_free(&b);
    }
}

void sx_log_datadep(sym_env *env, symint cond)
{
    if (!ev_trace_on(EV_guard_on_data_dependent_error))
        return;
    strbuf b = { 0 };
    json_w w = { &b };
    json_obj(&w);
    key_text(&w, "expr", cond);
    key_text(&w, "unhinted_expr", cond);
    json_key(&w, "expr_id");
    json_int(&w, sx_of(cond)->id);
    end_with_stacks(&w);
    ev_json(EV_guard_on_data_dependent_error, NULL, b.s, NULL);
    strbuf_free(&b);
}

void sx_log_produce(sym_env *env)
{
    if (ev_log_on(EVC_dynamic, EV_INFO))
        ev_log(EVC_dynamic, EV_INFO, NULL, "produce_guards");
}
