#define _GNU_SOURCE
/* parse_note.c - comments that carry facts: places, symbols, constants, what is known of a node. */
#include "ir/parse.h"
#include "base/json.h"
#include <ctype.h>

/* ---- comments ---- */
const char *parse_line_end(const parser *p)
{
    const char *q = memchr(p->p, '\n', (size_t)(p->e - p->p));
    return q ? q : p->e;
}

/* A field of a place: quoted, or everything up to `end`. */
static bool field(parser *p, const char *end, const char **out)
{
    if (p->p < end && (*p->p == '\'' || *p->p == '"'))
        return parse_string(p, out);
    *out = arena_strndup(&p->g->mem, p->p, (size_t)(end - p->p));
    p->p = end;
    return true;
}

static const char *find_text(const char *s, const char *e, const char *t)
{
    return memmem(s, (size_t)(e - s), t, strlen(t));
}

/* FILE:LINE in FUNCTION, code: SOURCE. A comment that is not of this form is only a comment. */
static ir_loc *place(parser *p)
{
    const char *eol = parse_line_end(p), *f = p->p;
    ir_loc l = { 0 };
    int64_t line;

    while (eol > p->p && eol[-1] == '\r')
        eol--;
    if (f < eol && (*f == '\'' || *f == '"')) {
        if (!parse_string(p, &l.file))
            return NULL;
        f = p->p;
    } else {
        for (f = p->p; (f = find_text(f, eol, ":")); f++) {
            const char *q = f + 1;
            while (q < eol && isdigit((unsigned char)*q))
                q++;
            if (q > f + 1 && eol - q >= 4 && !memcmp(q, " in ", 4))
                break;
        }
        if (!f || !field(p, f, &l.file))
            return NULL;
    }
    if (p->p >= eol || *p->p != ':')
        return NULL;
    p->p++;
    if (!parse_digits_follow(p->p, eol) || !parse_whole(p, &line) || line > INT32_MAX || eol - p->p < 4 ||
        memcmp(p->p, " in ", 4))
        return NULL;
    p->p += 4;
    l.line = (int)line;
    const char *code = find_text(p->p, eol, ", code: ");
    if (p->p < eol && (*p->p == '\'' || *p->p == '"') ? !parse_string(p, &l.func)
                                                      : !field(p, code ? code : eol, &l.func))
        return NULL;
    if (eol - p->p >= 8 && !memcmp(p->p, ", code: ", 8)) {
        p->p += 8;
        if (!field(p, eol, &l.code))
            return NULL;
    }
    ir_loc *r = ARENA_NEW(&p->g->mem, ir_loc);
    *r = (ir_loc){ .file = arena_strdup(&p->g->mem, l.file),
                   .func = arena_strdup(&p->g->mem, l.func),
                   .code = l.code ? arena_strdup(&p->g->mem, l.code) : NULL,
                   .line = l.line };
    size_t n = p->library ? strlen(p->library) : 0;
    if (n && n <= INT32_MAX && !strncmp(l.file, p->library, n) && l.file[n] == '/')
        r->library = (int)n;
    return r;
}

static bool comment_is(parser *p, const char *key)
{
    size_t n = strlen(key);
    if ((size_t)(parse_line_end(p) - p->p) < n || memcmp(p->p, key, n))
        return false;
    p->p += n;
    return true;
}

/* A comment inside a body: where the following nodes come from. */
bool parse_body_comment(parser *p)
{
    ir_loc *l;
    if (comment_is(p, "# File: ")) {
        l = place(p);
        if (l)
            p->loc = l;
    } else if (comment_is(p, "#   called from: ")) {
        l = place(p);
        ir_loc *in = (ir_loc *)p->loc; /* ours until the node is made */
        while (in && in->outer)
            in = (ir_loc *)in->outer;
        if (in)
            in->outer = l;
    } else if (comment_is(p, "# No stacktrace found"))
        p->loc = NULL;
    p->p = parse_line_end(p);
    return !err_is_set(p->err);
}

/* # symbol: s0 = 5 in [2, int_oo] from "L['x'].size()[0]"; # symbol: u0 in [0, int_oo] size */
static bool bound(parser *p, int64_t *v)
{
    bool neg = parse_take(p, "-int_oo");
    if (neg || parse_take(p, "int_oo")) {
        *v = neg ? SYM_NEG_OO : SYM_OO;
        return true;
    }
    parse_space(p);
    return parse_whole(p, v);
}

static bool symbol_comment(parser *p)
{
    const char *w, *source = NULL;
    size_t n;
    int64_t hint = 0, lo = SYM_NEG_OO, hi = SYM_OO;
    tp_err e = { 0 };
    if (!parse_want_word(p, "a symbol", &w, &n))
        return false;
    bool hinted = parse_take(p, "=");
    parse_space(p);
    if (hinted && !parse_whole(p, &hint))
        return false;
    if (parse_take(p, "in") &&
        !(parse_want(p, "[") && bound(p, &lo) && parse_want(p, ",") && bound(p, &hi) && parse_want(p, "]")))
        return false;
    bool size = parse_take(p, "size");
    if (parse_take(p, "from") && !parse_want_string(p, "a source in quotes", &source))
        return false;
    if (!p->env) {
        p->env = sym_env_new(&(sym_env_opts){ .no_duck = true });
        p->env_refs = mem_alloc(sizeof *p->env_refs);
        *p->env_refs = 1;
    }
    if (!sym_env_declare(p->env, arena_strndup(&p->mem, w, n), hinted, hint, lo, hi, source, &e))
        return parse_fail_at(p, w, e.kind == ERR_none ? ERR_value : e.kind, "%s",
                             e.kind == ERR_none ? "this symbol cannot be declared" : e.msg);
    if (size)
        sym_env_size_like(sym_env_find(p->env, w, n));
    return true;
}

static bool relation_comment(parser *p)
{
    symint cond;
    const char *msg = NULL, *at;
    parse_space(p);
    at = p->p;
    p->raw = true;
    bool read = parse_expression(p, &cond);
    p->raw = false;
    if (!read || (parse_take(p, ",") && !parse_want_string(p, "a message in quotes", &msg)))
        return false;
    if (sym_is_expr(cond) ? !sym_is_bool(cond) : cond != 1)
        return parse_fail_at(p, at, ERR_value, "a relation that can hold was expected");
    if (sym_is_expr(cond) ? sym_env_restore(p->env, cond, msg) : sym_env_assert(p->env, cond, msg))
        return true;
    parse_fail_at(p, at, ERR_value, "this contradicts what is declared above");
    err_clear(sym_env_err(p->env));
    return false;
}

/* [1.0, 2.0], hex:..., sha256:... or ? */
static bool const_value(parser *p, konst *k)
{
    tp_tensor *ty = k->type.t;
    const char *start = p->p, *eol = parse_line_end(p);
    tp_err e = { 0 };

    if (parse_take(p, "?"))
        return true;
    if (parse_take(p, "sha256:")) {
        int n = 0;
        while (p->p + n < eol && parse_hex_digit(p->p[n]) >= 0)
            n++;
        if (n != 64)
            return parse_expected(p, "64 hexadecimal digits");
        k->digest = arena_strndup(&p->mem, p->p, 64);
        p->p += 64;
        return true;
    }
    if (sym_is_expr(ty->numel) || ty->numel > TEXT_MAX_LIST || !sym_all_const(ty->stride, ty->ndim))
        return parse_fail_at(p, start, ERR_value, "a constant written here has at most %d elements",
                             TEXT_MAX_LIST);
    size_t esz = dtype_size((dtype)ty->dt), need = (size_t)ty->numel * esz;
    tp_tensor *flat = tensor_new((dtype)ty->dt, ty->ndim, ty->size, &e);
    bool ok = flat != NULL;
    if (ok && parse_take(p, "hex:")) {
        unsigned char *d = tensor_host(flat);
        for (size_t i = 0; i < need && ok; i++, p->p += 2) {
            ok = eol - p->p >= 2 && parse_hex_digit(p->p[0]) >= 0 && parse_hex_digit(p->p[1]) >= 0;
            if (ok)
                d[i] = (unsigned char)(parse_hex_digit(p->p[0]) * 16 + parse_hex_digit(p->p[1]));
            if (ok && ty->dt == DT_bool)
                d[i] = d[i] != 0;
        }
        if (!ok)
            parse_fail_at(p, start, ERR_syntax, "%zu bytes in hexadecimal were expected", need);
    } else if (ok) {
        ok = parse_want(p, "[");
        for (int64_t i = 0; i < ty->numel && ok; i++) {
            tp_val v = vNone;
            ok = (!i || parse_want(p, ",")) && parse_value(p, &v);
            if (ok && (!val_is_number(&v) || (v.kind == VAL_int && sym_is_expr(v.i))))
                ok = parse_fail_at(p, start, ERR_type, "numbers were expected");
            if (!ok)
                break;
            char *d = (char *)tensor_host(flat) + (size_t)i * esz;
            double c[2];
            val_as_c(&v, c);
            dtype_is_exact((dtype)ty->dt) ? elem_set_i((dtype)ty->dt, d, val_as_i(&v))
                                          : elem_set_c((dtype)ty->dt, d, c);
        }
        ok = ok && parse_want(p, "]");
    }
    if (ok) {
        k->t = tensor_new_strided((dtype)ty->dt, ty->ndim, ty->size, ty->stride, DEVICE_CPU, &e);
        ok = k->t && tensor_copy(k->t, flat, &e);
    }
    tensor_unref(flat);
    return ok || parse_fail_at(p, start, e.kind == ERR_none ? ERR_syntax : e.kind, "%s", e.msg);
}

static bool const_comment(parser *p)
{
    const char *key, *text;
    size_t n;
    if (!parse_name_or_string(p, "the name of a constant", &key) || !parse_want(p, ":"))
        return false;
    const char *at = p->p;
    konst *k = ARENA_NEW(&p->mem, konst);
    if (!parse_annotation(p, &k->type, &text, &n))
        return false;
    if (map_get(&p->konsts, key)) {
        val_clear(&k->type);
        return parse_fail_at(p, at, ERR_syntax, "constant '%.100s' is declared twice", key);
    }
    map_put(&p->konsts, key, k); /* freed with the map from here on */
    if (k->type.kind != VAL_tensor)
        return parse_fail_at(p, at, ERR_type, "a constant is a tensor");
    bool wrapped = parse_take(p, "wrapped");
    if (!parse_want(p, "="))
        return false;
    parse_space(p);
    if (!const_value(p, k))
        return false;
    if (wrapped && k->t)
        k->t->flags |= TF_wrapped;
    return true;
}

/* A comment outside bodies: declarations; anything else is only a comment. */
bool parse_head_comment(parser *p)
{
    bool known = true, ok = true;
    if (comment_is(p, "# graph: "))
        ok = parse_name_or_string(p, "a name", &p->graph_name);
    else if (comment_is(p, "# library: "))
        ok = parse_want_string(p, "a directory in quotes", &p->library);
    else if (comment_is(p, "# symbol: "))
        ok = symbol_comment(p);
    else if (comment_is(p, "# guard: ") || comment_is(p, "# assert: "))
        ok = relation_comment(p);
    else if (comment_is(p, "# const: "))
        ok = const_comment(p);
    else if (comment_is(p, "# grad_mode: ")) {
        p->grad_mode = parse_take(p, "on");
        ok = p->grad_mode || parse_want(p, "off");
    } else
        known = false;
    if (!ok)
        return false;
    parse_space(p);
    if (known && p->p < parse_line_end(p))
        return parse_expected(p, "the end of the line");
    p->p = parse_line_end(p);
    return true;
}

/* # source: ..., # offset: ..., # alias: ..., # meta: {...} after a statement */
static bool set_offset(parser *p, ir_node *n, symint off)
{
    tp_tensor *t = ir_type(n), *r;
    if (!t || n->kind != IR_placeholder)
        return parse_fail_at(p, p->p, ERR_syntax, "only an input tensor has an offset");
    r = tensor_on(t->storage, (dtype)t->dt, t->ndim, t->size, t->stride, off);
    vec_push(&p->g->keep, r);
    n->val.t = r;
    return true;
}

static bool set_alias(parser *p, ir_node *n, ir_node *of)
{
    tp_tensor *t = ir_type(n), *o = ir_type(of), *r;
    if (!t || !o || n->kind != IR_placeholder || of->kind != IR_placeholder || of == n)
        return parse_fail_at(p, p->p, ERR_syntax, "only an input tensor shares memory with another");
    r = tensor_on(o->storage, (dtype)t->dt, t->ndim, t->size, t->stride, t->offset);
    vec_push(&p->g->keep, r);
    n->val.t = r;
    return true;
}

static bool meta_comment(parser *p, ir_node *n)
{
    const char *eol = parse_line_end(p), *start = p->p;
    arena tmp = { 0 };
    tp_err e = { 0 };
    while (eol > start && isspace((unsigned char)eol[-1]))
        eol--;
    const json_val *v = json_parse(&tmp, start, (size_t)(eol - start), &e);
    bool ok = json_is(v, JSON_obj);
    arena_free(&tmp);
    if (!ok)
        return parse_fail_at(p, start, ERR_syntax, "a JSON object was expected%s%s", *e.msg ? ": " : "",
                             e.msg);
    strbuf b = { 0 };
    text_meta(&b, arena_strndup(&p->mem, start, (size_t)(eol - start)));
    n->meta = arena_strndup(&p->g->mem, strbuf_str(&b), b.n);
    strbuf_free(&b);
    p->p = eol;
    return true;
}

bool parse_tail_comments(parser *p, ir_node *n)
{
    const char *s, *w;
    size_t k;
    symint off;
    for (parse_space(p); p->p < p->e && *p->p == '#'; parse_space(p)) {
        if (n && comment_is(p, "# source: ")) {
            if (!parse_want_string(p, "a source in quotes", &s))
                return false;
            n->target = arena_strdup(&p->g->mem, s);
        } else if (n && comment_is(p, "# offset: ")) {
            const char *at = p->p;
            tp_val v;
            if (!parse_value(p, &v))
                return false;
            off = v.i;
            if (v.kind != VAL_int || (!sym_is_expr(off) && off < 0))
                return parse_fail_at(p, at, ERR_value, "an offset is a number from 0 on");
            if (!set_offset(p, n, off))
                return false;
        } else if (n && comment_is(p, "# alias: ")) {
            ir_node *of;
            if (!parse_want_word(p, "an input", &w, &k) || !parse_use_var(p, w, k, &of) ||
                !set_alias(p, n, of))
                return false;
        } else if (n && comment_is(p, "# meta: "))
            return meta_comment(p, n);
        else
            p->p = parse_line_end(p);
    }
    return true;
}
