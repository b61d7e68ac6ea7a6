/* parse_call.c - the right side of an assignment: which row is meant, with which arguments, of what type. */
#include "ir/parse.h"
#include "ir/hop.h"
#include "ops/custom.h"

/* ---- calls ---- */

/* After "(": fills a; positional arguments beyond its room go to p->list when `more`. */
static bool arguments(parser *p, text_args *a, bool more)
{
    a->nkw = 0;
    for (bool first = true; !parse_take(p, ")"); first = false) {
        if (!first && !parse_comma_or(p, ")"))
            return false;
        if (!first && parse_take(p, ")"))
            break;
        const char *w, *start;
        size_t n;
        parse_space(p);
        start = p->p;
        tp_val v;
        if (parse_word(p, &w, &n) && parse_next_is(p, "=") && !parse_next_is(p, "==")) {
            p->p++;
            if (more)
                return parse_fail_at(p, start, ERR_syntax, "keywords are not allowed here");
            if (a->nkw == OP_MAX_PARAMS)
                return parse_fail_at(p, start, ERR_syntax, "too many arguments");
            a->kwname[a->nkw] = arena_strndup(&p->mem, w, n);
            if (!parse_value(p, &v))
                return false;
            a->kw[a->nkw++] = v;
            continue;
        }
        p->p = start;
        if (a->nkw)
            return parse_fail_at(p, start, ERR_syntax, "a positional argument follows a keyword");
        if (!parse_value(p, &v))
            return false;
        if (more) {
            if (p->list.n >= TEXT_MAX_LIST)
                return parse_fail_at(p, start, ERR_syntax, "too many arguments");
            vec_push(&p->list, v);
        } else if (a->npos == (int)COUNT(a->pos))
            return parse_fail_at(p, start, ERR_syntax, "too many arguments");
        else
            a->pos[a->npos++] = v;
    }
    return true;
}

static void name_next(parser *p, const stmt *s) { p->g->wanted = arena_strndup(&p->mem, s->name, s->n_name); }

static ir_node *placed(parser *p, ir_node *n)
{
    n->loc = p->loc;
    return n;
}

/* Does the annotation say what was inferred? Text first: nearly always equal. */
static bool type_agrees(const stmt *s, const tp_val *val)
{
    strbuf b = { 0 };
    ir_type_print(&b, val);
    bool ok = b.n == s->n_type && !memcmp(strbuf_str(&b), s->type_text, b.n);
    strbuf_free(&b);
    return ok || ir_type_equal(&s->type, val);
}

static bool type_clash(parser *p, const stmt *s, const tp_val *val, const char *what)
{
    strbuf b = { 0 };
    ir_type_print(&b, val);
    parse_fail_at(p, s->type_text, ERR_type, "the annotation of '%.*s' says %.*s, but %s gives %s",
                  (int)MIN(s->n_name, 60), s->name, (int)MIN(s->n_type, 200), s->type_text, what,
                  strbuf_str(&b));
    strbuf_free(&b);
    return false;
}

/* Strides that nothing is ever multiplied with, those of sizes 1 and of tensors without elements, may be said in any way:
 * they stay as written. */
static void idle_strides(const stmt *s, tp_val *val)
{
    if (s->type.kind != VAL_tensor || val->kind != VAL_tensor || s->type.t->ndim != val->t->ndim)
        return;
    const tp_tensor *said = s->type.t;
    tp_tensor *t = val->t;
    bool empty = false;
    for (int i = 0; i < t->ndim; i++)
        empty |= t->size[i] == 0;
    for (int i = 0; i < t->ndim; i++)
        if (said->size[i] == t->size[i] && (empty || t->size[i] == 1))
            t->stride[i] = said->stride[i];
}

static tp_val take_type(stmt *s)
{
    tp_val t = s->type;
    s->type = vNone;
    return t;
}

static bool add_call(parser *p, stmt *s, op_id op, op_variant v, const tp_val *full, int spell, ir_node **out)
{
    const op_row *row = op_row_of(op);
    tp_err e = { 0 };
    tp_val val = vNone;

    for (int i = 0; i < row->schema.nparam; i++)
        if (!ir_check_arg(row, i, &full[i], &e))
            return parse_fail_at(p, s->at, e.kind, "%s", e.msg);
    symint again[16];
    int nagain = ir_decided_by(&s->type, full, row->schema.nparam, again, COUNT(again));
    bool ok = true;
    p->typed |= s->type.kind != VAL_none;
    if (p->env)
        sym_env_reading(p->env, p->typed && (s->type.kind != VAL_none || row->schema.nret != 1 ||
                                             row->schema.ret_list)); /* lists have no types beside them */
    if (nagain && p->env)
        sym_env_replay(p->env, again, nagain);
    if (s->type.kind != VAL_none && ir_row_is_dyn(row))
        val = take_type(s); /* data decided it */
    else
        ok = ir_infer(p->g, op, v, full, &val, &e);
    if (nagain && p->env)
        sym_env_replay(p->env, NULL, 0);
    if (p->env)
        sym_env_reading(p->env, false);
    if (!ok)
        return parse_fail_at(p, s->at, e.kind, "%s", e.msg);
    if (p->env && err_is_set(sym_env_err(p->env))) {
        parse_fail_at(p, s->at, sym_env_err(p->env)->kind, "%s", sym_env_err(p->env)->msg);
        err_clear(sym_env_err(p->env));
        val_clear(&val);
        return false;
    }
    if (s->type.kind == VAL_tensor && p->env && val.kind == VAL_tensor && ir_types_alike(&s->type, &val)) {
        memcpy(val.t->size, s->type.t->size,
               sizeof(symint) * val.t->ndim); /* a size may be said in two ways: as written */
        memcpy(val.t->stride, s->type.t->stride, sizeof(symint) * val.t->ndim);
    }
    idle_strides(s, &val);
    if (s->type.kind != VAL_none && !type_agrees(s, &val)) {
        type_clash(p, s, &val, row->full);
        val_clear(&val);
        return false;
    }
    name_next(p, s);
    *out = placed(p, ir_add_call(p->g, op, v, full, row->schema.nparam, val));
    (*out)->spell = (uint8_t)spell;
    spell == SPELL_aten ? p->n_aten++ : p->n_python++;
    return true;
}

static bool python_call(parser *p, stmt *s, char space_, const char *name, size_t n, const text_args *a,
                        int spell, ir_node **out)
{
    tp_val full[OP_MAX_PARAMS];
    op_id op;
    op_variant v;
    tp_err e = { 0 };
    if (!spell_resolve(&p->mem, space_, name, n, a, &op, &v, full, &e))
        return parse_fail_at(p, s->at, e.kind, "%s", e.msg);
    return add_call(p, s, op, v, full, spell, out);
}

/* ops.aten.add.Tensor */
static bool aten_call(parser *p, stmt *s, const char *name, size_t n, ir_node **out)
{
    static const char dflt[] = ".default";
    tp_val full[OP_MAX_PARAMS];
    text_args a = { 0 };
    op_id op;
    op_variant v;
    tp_err e = { 0 };
    size_t k = n;

    if (n > sizeof dflt - 1 && !memcmp(name + n - (sizeof dflt - 1), dflt, sizeof dflt - 1))
        k = n - (sizeof dflt - 1);
    if (!op_find(name, k, &op, &v))
        return parse_fail_at(p, s->at, ERR_syntax, "there is no operator 'aten.%.*s'", (int)MIN(n, 100),
                             name);
    bool was = p->raw;
    p->raw |= (op_row_of(op)->flags & OPF_CHECK) != 0; /* what is checked stays as it is written */
    bool read = parse_want(p, "(") && arguments(p, &a, false);
    p->raw = was;
    if (!read)
        return false;
    if (!spell_bind(&p->mem, op_row_of(op), &a, full, &e))
        return parse_fail_at(p, s->at, e.kind, "%s", e.msg);
    return add_call(p, s, op, v, full, SPELL_aten, out);
}

static bool opaque_call(parser *p, stmt *s, const char *target, ir_node **out)
{
    text_args a = { 0 };
    size_t from = p->list.n;
    bool was = p->raw;
    p->raw |= !strcmp(
        target,
        ir_hop_target(HOP_cond)); /* what decides stays a question, even where a guard has answered it */
    bool read = arguments(p, &a, true);
    p->raw = was;
    if (!read) {
        p->list.n = from;
        return false;
    }
    name_next(p, s);
    *out = placed(
        p, ir_add_opaque(p->g, target, NULL, p->list.at + from, (int)(p->list.n - from), take_type(s)));
    p->list.n = from;
    return true;
}

/* ops.mylib.scale: any name, for what registers it may be loaded later. But no library registers operators in these
 * namespaces: they are the compiler's own, and there is none of that name. */
static bool library_call(parser *p, stmt *s, const char *target, ir_node **out)
{
    static const char *const own[] = { "prims.",    "prim.",           "higher_order.",
                                       "rngprims.", "inductor_prims.", "debugprims." };
    const char *name = target + 4;
    bool known = custom_find(target, NULL) != NULL;
    for (int k = HOP_cond; k <= HOP_function; k++)
        known |= !strcmp(target, ir_hop_target((hop_kind)k));
    for (size_t i = 0; i < COUNT(own) && !known; i++)
        if (!strncmp(name, own[i], strlen(own[i])))
            return parse_fail_at(p, s->at, ERR_syntax, "there is no operator '%.100s'", name);
    return parse_want(p, "(") && opaque_call(p, s, target, out);
}

/* After "taper." */
static bool root_call(parser *p, stmt *s, ir_node **out)
{
    static const struct {
        const char *pre;
        char space;
    } spaces[] = { { "nn.functional.", 'n' }, { "linalg.", 'l' }, { "special.", 's' }, { "", 't' } };
    const char *w;
    size_t n;
    text_args a = { 0 };

    parse_space(p);
    s->at = p->p;
    if (!parse_dotted(p, &w, &n))
        return parse_expected(p, "an operator");
    if (n > 9 && !memcmp(w, "ops.aten.", 9))
        return aten_call(p, s, w + 9, n - 9, out);
    if (n > 4 && !memcmp(w, "ops.", 4))
        return library_call(p, s, arena_strndup(&p->mem, w, n), out);
    if (parse_word_is(w, n, "call")) {
        const char *target;
        if (!parse_want(p, "(") || !parse_want_string(p, "the name of what is called, in quotes", &target))
            return false;
        if (!parse_next_is(p, ")") && !parse_want(p, ","))
            return false;
        return opaque_call(p, s, target, out);
    }
    if (!parse_want(p, "(") || !arguments(p, &a, false))
        return false;
    for (size_t i = 0; i < COUNT(spaces); i++) {
        size_t k = strlen(spaces[i].pre);
        if (n > k && !memcmp(w, spaces[i].pre, k))
            return python_call(p, s, spaces[i].space, w + k, n - k, &a, SPELL_function, out);
    }
    return parse_expected(p, "an operator");
}

/* self.weight, getattr(self, 'a b') */
static bool constant(parser *p, stmt *s, const char *key, ir_node **out)
{
    konst *k = map_get(&p->konsts, key);
    tp_val type;
    if (!k && s->type.kind != VAL_tensor)
        return parse_fail_at(
            p, s->at, ERR_syntax,
            "constant '%.100s' is not declared ('# const: %.100s: ...') and has no annotation", key, key);
    if (k && s->type.kind != VAL_none && !type_agrees(s, &k->type))
        return type_clash(p, s, &k->type, "its declaration");
    name_next(p, s);
    if (k && k->t) {
        *out = ir_add_const(p->g, s->name, k->t);
    } else { /* the bytes come later, or never */
        type = k ? vT(tensor_ref(k->type.t)) : take_type(s);
        tp_tensor *fake = type.t;
        *out = ir_add_const(p->g, s->name, fake);
        (*out)->konst = NULL;
        tensor_unref(fake);
    }
    placed(p, *out);
    (*out)->target = arena_strdup(&p->g->mem, key);
    if (k && k->digest)
        (*out)->digest = arena_strdup(&p->g->mem, k->digest);
    return true;
}

static bool item(parser *p, stmt *s, ir_node *of, ir_node **out)
{
    int64_t i;
    tp_val val = vNone;
    parse_space(p);
    const char *at = p->p;
    if (!parse_whole(p, &i) || !parse_want(p, "]"))
        return false;
    if (of->val.kind != VAL_tensors)
        return parse_fail_at(p, s->at, ERR_type, "'%s' is one value, not several", of->name);
    if (i < 0 || i >= of->val.n)
        return parse_fail_at(p, at, ERR_index, "'%s' has %d results", of->name, of->val.n);
    if (of->val.ts[i])
        val = vT(tensor_ref(of->val.ts[i]));
    idle_strides(s, &val);
    if (s->type.kind != VAL_none && !type_agrees(s, &val)) {
        type_clash(p, s, &val, "that result");
        val_clear(&val);
        return false;
    }
    name_next(p, s);
    *out = ir_add_getitem(p->g, of, (int)i, val);
    (*out)->loc = p->loc;
    return true;
}

static bool infix_call(parser *p, stmt *s, const tp_val *left, ir_node **out)
{
    text_args a = { .npos = 2, .pos = { *left } };
    const infix *x = NULL;
    parse_space(p);
    for (size_t n = 2; n && !x; n--)
        if ((size_t)(p->e - p->p) >= n && (x = infix_by_sign(p->p, n, false)))
            p->p += n;
    if (!x)
        return parse_expected(p, "an operator, '.' or '['");
    return parse_value(p, &a.pos[1]) && python_call(p, s, 'm', x->op, strlen(x->op), &a, SPELL_operator, out);
}

static bool method_call(parser *p, stmt *s, ir_node *self, ir_node **out)
{
    text_args a = { .npos = 1, .pos = { { .kind = VAL_node, .node = self } } };
    const char *w;
    size_t n;
    return parse_want_word(p, "a method", &w, &n) && parse_want(p, "(") && arguments(p, &a, false) &&
           python_call(p, s, 'm', w, n, &a, SPELL_method, out);
}

static bool unary_call(parser *p, stmt *s, ir_node **out)
{
    text_args a = { .npos = 1 };
    const infix *x = infix_by_sign(p->p++, 1, true);
    return parse_value(p, &a.pos[0]) && python_call(p, s, 'm', x->op, strlen(x->op), &a, SPELL_operator, out);
}

static bool right_side(parser *p, stmt *s, ir_node **out)
{
    const char *w, *key;
    size_t n;
    tp_val left = { .kind = VAL_node };

    parse_space(p);
    s->at = p->p;
    if (p->p < p->e && (*p->p == '-' || *p->p == '~'))
        return unary_call(p, s, out);
    if (!parse_word(p, &w, &n))
        return parse_expected(p, "a call");
    if (!parse_var(p, w, n)) {
        if (parse_is_root(w, n) && parse_take(p, ".")) {
            p->torch = *w == 't' && w[1] == 'o';
            return root_call(p, s, out);
        }
        if (parse_word_is(w, n, "self") && parse_take(p, ".")) {
            if (!parse_dotted(p, &w, &n))
                return parse_expected(p, "an attribute");
            return constant(p, s, arena_strndup(&p->mem, w, n), out);
        }
        if (parse_word_is(w, n, "getattr") && parse_take(p, "("))
            return parse_want(p, "self") && parse_want(p, ",") &&
                   parse_want_string(p, "an attribute in quotes", &key) && parse_want(p, ")") &&
                   constant(p, s, key, out);
    }
    if (!parse_use_var(p, w, n, &left.node))
        return false;
    if (parse_take(p, "."))
        return method_call(p, s, left.node, out);
    if (parse_take(p, "["))
        return item(p, s, left.node, out);
    return infix_call(p, s, &left, out);
}

/* Guards that the text declares were not all known when its nodes were made: where it has types, their arguments are
 * read as they stand. */
bool parse_right_side(parser *p, stmt *s, ir_node **out)
{
    p->raw = p->typed;
    bool ok = right_side(p, s, out);
    p->raw = false;
    return ok;
}
