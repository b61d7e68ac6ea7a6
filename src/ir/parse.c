#define _GNU_SOURCE /* memmem */
/* parse.c - text to graph: recursive descent over untrusted text, one statement a line.
 * Indentation carries no meaning: a body ends at its return. Types are inferred by the shape rules and compared
 * with the annotations, so what is read is consistent or refused. */
#include "ir/parse.h"

/* ---- statements ---- */
static bool end_line(parser *p)
{
    parse_space(p);
    if (p->p < p->e && *p->p != '\n')
        return parse_expected(p, "the end of the line");
    p->p += p->p < p->e;
    return true;
}

/* ;  a = b = None */
static bool freed(parser *p)
{
    const char *w;
    size_t n;
    while (parse_take(p, ";")) {
        for (;;) {
            ir_node *v;
            if (!parse_want_word(p, "a name", &w, &n))
                return false;
            if (parse_word_is(w, n, "None"))
                break;
            if (!parse_use_var(p, w, n, &v) || !parse_want(p, "="))
                return false;
            v->mark = 1;
        }
    }
    return true;
}

static bool define(parser *p, const char *w, size_t n, ir_node *v)
{
    map_putn(&p->vars, w, n, v);
    return true;
}

static bool returned(parser *p)
{
    tp_val one;
    size_t from = p->list.n;
    bool ok = false, tuple;
    parse_space(p);
    const char *at = p->p;
    tuple = parse_take(p, "(");
    for (bool first = true; !(tuple && parse_take(p, ")")); first = false) {
        if (!first && !parse_comma_or(p, ")"))
            goto done;
        if (!first && tuple && parse_take(p, ")"))
            break;
        if (!parse_value(p, &one))
            goto done;
        if (one.kind == VAL_graph || p->list.n - from >= TEXT_MAX_LIST) {
            parse_fail_at(p, at, ERR_syntax, "this cannot be returned");
            goto done;
        }
        vec_push(&p->list, one);
        if (!tuple)
            break;
    }
    ir_set_output(p->g, p->list.at + from, (int)(p->list.n - from));
    ok = true;
done:
    p->list.n = from;
    return ok;
}

static bool assignment(parser *p, const char *w, size_t n)
{
    stmt s = { .name = w, .n_name = n };
    ir_node *node = NULL, *old = parse_var(p, w, n);
    bool ok = false;
    const char *w2;
    size_t n2;

    if (old && old->kind != IR_placeholder)
        return parse_fail_at(p, w, ERR_syntax, "'%.*s' is defined twice", (int)MIN(n, 100), w);
    if (parse_take(p, ":") && !parse_annotation(p, &s.type, &s.type_text, &s.n_type))
        return false;
    if (!parse_want(p, "="))
        goto done;
    parse_space(p);
    const char *rhs = p->p;
    if (s.type.kind == VAL_none && parse_word(p, &w2, &n2) && parse_var(p, w2, n2) &&
        parse_var(p, w2, n2)->kind == IR_placeholder) {
        parse_space(p);
        if (p->p >= p->e || *p->p == '\n' || *p->p == '#') { /* l_x_ = L_x_ */
            node = parse_var(p, w2, n2);
            if (old && old != node) {
                parse_fail_at(p, w, ERR_syntax, "'%.*s' is defined twice", (int)MIN(n, 100), w);
                goto done;
            }
            if (!old) {
                char *name = arena_strndup(&p->mem, w, n);
                bool plain = !strcmp(node->target, node->name);
                ir_rename(node, name);
                if (plain)
                    node->target = arena_strndup(&p->g->mem, w2, n2);
                define(p, w, n, node);
            }
            ok = parse_tail_comments(p, node);
            goto done;
        }
    }
    p->p = rhs;
    if (old) {
        parse_fail_at(p, w, ERR_syntax, "'%.*s' is defined twice", (int)MIN(n, 100), w);
        goto done;
    }
    if (!parse_right_side(p, &s, &node))
        goto done;
    define(p, w, n, node);
    ok = freed(p) && parse_tail_comments(p, node);
done:
    val_clear(&s.type);
    return ok;
}

static bool keyword(const char *w, size_t n)
{
    static const char *const words[] = { "def", "class", "return", "None",   "True", "False", "self",
                                         "inf", "nan",   "lambda", "import", "from", "if",    "else",
                                         "for", "while", "in",     "is",     "not",  "and",   "or" };
    for (size_t i = 0; i < COUNT(words); i++)
        if (parse_word_is(w, n, words[i]))
            return true;
    return false;
}

static bool body(parser *p)
{
    const char *w;
    size_t n;
    for (;;) {
        parse_space(p);
        if (p->p >= p->e)
            return parse_expected(p, "'return'");
        if (*p->p == '\n') {
            p->p++;
            continue;
        }
        if (*p->p == '#') {
            if (!parse_body_comment(p))
                return false;
            continue;
        }
        if (!parse_want_word(p, "a statement", &w, &n))
            return false;
        if (parse_word_is(w, n, "return"))
            return returned(p) && freed(p) && parse_tail_comments(p, NULL) && end_line(p);
        if (keyword(w, n)) {
            p->p = w;
            return parse_expected(p, "a statement");
        }
        if (!assignment(p, w, n) || !end_line(p))
            return false;
    }
}

/* ---- definitions ---- */
static bool parameters(parser *p)
{
    const char *w, *text;
    size_t n, k;
    if (!parse_want(p, "(") || !parse_want(p, "self"))
        return false;
    while (!parse_take(p, ")")) {
        tp_val type = vNone;
        if (!parse_comma_or(p, ")"))
            return false;
        if (parse_take(p, ")"))
            break;
        if (!parse_want_word(p, "a parameter", &w, &n))
            return false;
        if (parse_var(p, w, n) || keyword(w, n))
            return parse_fail_at(p, w, ERR_syntax, "'%.*s' cannot be a parameter (again)", (int)MIN(n, 100),
                                 w);
        if (parse_take(p, ":") && !parse_annotation(p, &type, &text, &k))
            return false;
        char *name = arena_strndup(&p->mem, w, n);
        ir_node *node = ir_add_placeholder_val(p->g, name, name, type);
        define(p, w, n, node);
    }
    return parse_want(p, ":");
}

/* Nodes that are spelled as the style says need no mark of their own. */
static void settle_style(parser *p, ir_graph *g)
{
    bool aten = p->n_aten && !p->n_python;
    text_args a;
    g->style = (uint8_t)((aten ? IR_STYLE_aten : 0) | (p->torch ? IR_STYLE_torch : 0));
    IR_EACH (n, g) {
        n->mark = 0;
        if (n->kind != IR_call)
            continue;
        if (aten) {
            n->spell = SPELL_auto;
            continue;
        }
        uint8_t as = n->spell;
        n->spell = SPELL_auto;
        spell_args(n, true, &a);
        if (spell_of(n, &a) != as)
            n->spell = as;
    }
    for (size_t i = 0; i < g->subs.n; i++)
        settle_style(p, g->subs.at[i]);
}

static void konsts_clear(parser *p)
{
    for (size_t i = 0; i < p->konsts.cap; i++)
        if (map_slot_live(&p->konsts.slots[i])) {
            konst *k = p->konsts.slots[i].val;
            tensor_unref(k->t);
            val_clear(&k->type);
        }
    map_free(&p->konsts);
}

static void drop_pending(parser *p, ir_graph *g)
{
    for (size_t i = 0; i < p->pending.n; i++)
        if (p->pending.at[i] == g)
            p->pending.at[i] = p->pending.at[--p->pending.n];
}

/* Those that found a parent go with it. */
static void free_pending(parser *p)
{
    size_t k = 0;
    for (size_t i = 0; i < p->pending.n; i++)
        if (!p->pending.at[i]->parent)
            p->pending.at[k++] = p->pending.at[i];
    for (size_t i = 0; i < k; i++)
        ir_graph_free(p->pending.at[i]);
}

static bool definition(parser *p, bool *last)
{
    const char *w;
    size_t n;
    if (!parse_want_word(p, "a name", &w, &n))
        return false;
    ir_graph *old = map_getn(&p->graphs, w, n);
    *last = parse_word_is(w, n, "forward");
    if (p->pending.n >= TEXT_MAX_SUBGRAPHS || (old && !old->parent))
        return parse_fail_at(p, w, ERR_syntax, old ? "this graph is defined twice" : "too many graphs");
    const char *name = *last && p->graph_name ? p->graph_name : arena_strndup(&p->mem, w, n);
    p->g = ir_graph_new(name);
    vec_push(&p->pending, p->g);
    p->g->env = p->env;
    p->g->env_refs = p->env_refs;
    if (p->env_refs)
        ++*p->env_refs;
    p->g->grad_mode = p->grad_mode;
    p->loc = NULL;
    if (!parameters(p) || !parse_tail_comments(p, NULL) || !end_line(p) || !body(p))
        return false;
    if (!*last)
        map_putn(&p->graphs, w, n, p->g);
    for (size_t i = 0; i < p->g->subs.n; i++)
        drop_pending(p, p->g->subs.at[i]);
    if (*last && p->pending.n > 1)
        return parse_fail_at(p, w, ERR_syntax, "graph '%.100s' is defined but not used",
                             p->pending.at[p->pending.at[0] == p->g]->name);
    map_free(&p->vars);
    konsts_clear(p);
    p->grad_mode = true;
    return true;
}

static bool file(parser *p)
{
    const char *w;
    size_t n;
    bool last = false;
    for (;;) {
        parse_space(p);
        if (p->p >= p->e)
            return last || parse_expected(p, "'def forward(self, ...):'");
        if (*p->p == '\n') {
            p->p++;
            continue;
        }
        if (*p->p == '#') {
            if (last)
                p->p = parse_line_end(p);
            else if (!parse_head_comment(p))
                return false;
            continue;
        }
        const char *at = p->p;
        if (last)
            return parse_expected(p, "the end of the file");
        if (parse_word(p, &w, &n) && parse_word_is(w, n, "class")) { /* class GraphModule(taper.nn.Module): */
            if (!parse_want_word(p, "a name", &w, &n) || !parse_want(p, "("))
                return false;
            if (!parse_dotted(p, &w, &n))
                return parse_expected(p, "a class");
            if (!parse_want(p, ")") || !parse_want(p, ":") || !end_line(p))
                return false;
            continue;
        }
        p->p = at;
        if (!parse_want(p, "def") || !definition(p, &last))
            return false;
    }
}

ir_graph *ir_parse(const char *text, size_t n, const char *name, sym_env *env, tp_err *err)
{
    tp_err own = { 0 };
    parser p = { .s = text,
                 .p = text,
                 .e = text + n,
                 .file = name ? name : "<text>",
                 .err = err ? err : &own,
                 .env = env,
                 .grad_mode = true,
                 .typed = memmem(text, n, "\" = ", 4) != NULL };
    ir_graph *g = NULL;

    err_clear(p.err);
    vec_reserve(&p.list, 16);
    if (n > TEXT_MAX_BYTES)
        err_set(p.err, ERR_syntax, "%s: longer than %d bytes", p.file, TEXT_MAX_BYTES);
    else if (file(&p)) {
        g = p.g;
        drop_pending(&p, g);
        settle_style(&p, g);
    }
    free_pending(&p);
    vec_free(&p.pending);
    vec_free(&p.list);
    konsts_clear(&p);
    map_free(&p.vars);
    map_free(&p.graphs);
    arena_free(&p.mem);
    if (p.env_refs && !--*p.env_refs) {
        sym_env_free(p.env);
        free(p.env_refs);
    }
    return g;
}
