/* print.c - a graph as text: Python-like code (docs/graph.md), a table, or the sizes alone.
 * Reads the graph only; marks and scratch fields stay as they are. */
#include "ir/text.h"
#include "base/envvars.h"
#include "base/utf8.h"
#include <ctype.h>

static _Thread_local bool as_torch; /* while a log is printed for a program that calls us torch */
static const char *root_of(int style) { return style & IR_STYLE_torch || as_torch ? "torch" : "taper"; }

/* ---- types ---- */
/* A size; where it can only be one number by now, that. */
static void size_print(strbuf *b, symint v)
{
    int64_t lo = 0, hi = 1;
    if (sym_is_expr(v))
        sym_range(v, &lo, &hi);
    sym_print(b, sym_is_expr(v) && lo == hi ? lo : v);
}

static void dims_print(strbuf *b, int n, const symint *v)
{
    strbuf_addc(b, '[');
    for (int i = 0; i < n; i++) {
        if (i)
            strbuf_addn(b, ", ", 2);
        if (!sym_is_expr(v[i]))
            strbuf_int(b, v[i]);
        else
            size_print(b, v[i]);
    }
    strbuf_addc(b, ']');
}

/* Where the text holds which types already: a graph has few different ones. Only of one text, while its graph lives. */
typedef struct types {
    struct {
        const tp_tensor *t;
        size_t at, n;
    } seen[64];
} types;

static bool same_type(const tp_tensor *a, const tp_tensor *b)
{
    size_t n = sizeof(symint) * a->ndim;
    return a->dt == b->dt && a->ndim == b->ndim && tensor_device(a).kind == tensor_device(b).kind &&
           tensor_device(a).index == tensor_device(b).index && !memcmp(a->size, b->size, n) &&
           !memcmp(a->stride, b->stride, n);
}

static void tensor_type_print(strbuf *b, const tp_tensor *t, bool brief);

static void known_type_print(strbuf *b, const tp_tensor *t, types *known)
{
    uint64_t h = t->dt;
    for (int i = 0; i < t->ndim; i++)
        h = (h + (uint64_t)t->size[i]) * 0x9e3779b97f4a7c15u + (uint64_t)t->stride[i];
    size_t slot = (h ^ h >> 32) * 0x9e3779b97f4a7c15u >> 58;
    if (known->seen[slot].t && same_type(known->seen[slot].t, t)) {
        strbuf_grow(b, known->seen[slot].n);
        strbuf_addn(b, b->s + known->seen[slot].at, known->seen[slot].n);
        return;
    }
    size_t at = b->n;
    tensor_type_print(b, t, false);
    known->seen[slot].t = t;
    known->seen[slot].at = at;
    known->seen[slot].n = b->n - at;
}

static void tensor_type_print(strbuf *b, const tp_tensor *t, bool brief)
{
    if (!t) {
        strbuf_add(b, "None");
        return;
    }
    strbuf_add(b, dtype_rows[t->dt].sname);
    dims_print(b, t->ndim, t->size);
    if (brief)
        return;
    dims_print(b, t->ndim, t->stride);
    device_print(b, tensor_device(t));
}

static void type_print(strbuf *b, const tp_val *v, bool brief, types *known)
{
    switch (v->kind) {
    case VAL_tensor:
        if (v->t && known && !brief)
            known_type_print(b, v->t, known);
        else
            tensor_type_print(b, v->t, brief);
        break;
    case VAL_tensors:
        strbuf_addc(b, '(');
        for (int i = 0; i < v->n; i++) {
            strbuf_add(b, i ? ", " : "");
            tensor_type_print(b, v->ts[i], brief);
        }
        strbuf_add(b, v->n == 1 ? ",)" : ")");
        break;
    case VAL_int:
        strbuf_add(b, "Sym(");
        sym_print(b, v->i);
        strbuf_addc(b, ')');
        break;
    case VAL_float: strbuf_add(b, "float"); break;
    case VAL_complex: strbuf_add(b, "complex"); break;
    case VAL_bool: strbuf_add(b, "bool"); break;
    default: strbuf_add(b, "None"); break;
    }
}

void ir_type_print(strbuf *b, const tp_val *v) { type_print(b, v, false, NULL); }

/* ---- operands ---- */
static void node_or_none(strbuf *b, const ir_node *n) { strbuf_add(b, n ? n->name : "None"); }

static void memfmt_print(strbuf *b, int64_t f, const char *root)
{
    static const char *const names[] = { "contiguous_format", "preserve_format", "channels_last",
                                         "channels_last_3d" };
    strbuf_addf(b, "%s.%s", root, names[f >= 0 && f < 4 ? f : 0]);
}

static void int_print(strbuf *b, symint v)
{
    if (sym_is_expr(v))
        sym_print(b, v);
    else
        strbuf_int(b, v);
}

void ir_val_print(strbuf *b, const tp_val *v, int style)
{
    const char *root = root_of(style);
    switch (v->kind) {
    case VAL_none:
    case VAL_gen: strbuf_add(b, "None"); break;
    case VAL_node: node_or_none(b, v->node); break;
    case VAL_int: int_print(b, v->i); break;
    case VAL_float: strbuf_double(b, v->f); break;
    case VAL_complex:
        strbuf_add(b, "complex(");
        strbuf_double(b, v->floats[0]);
        strbuf_add(b, ", ");
        strbuf_double(b, v->floats[1]);
        strbuf_addc(b, ')');
        break;
    case VAL_bool: strbuf_add(b, v->b ? "True" : "False"); break;
    case VAL_str: strbuf_pyrepr(b, v->s, strlen(v->s)); break;
    case VAL_dtype: strbuf_addf(b, "%s.%s", root, dtype_name((dtype)v->i)); break;
    case VAL_layout: strbuf_addf(b, "%s.strided", root); break;
    case VAL_memfmt: memfmt_print(b, v->i, root); break;
    case VAL_device:
        strbuf_addf(b, "device(type='%s'", device_name((dev_kind)v->dev.kind));
        if (v->dev.index >= 0)
            strbuf_addf(b, ", index=%d", v->dev.index);
        strbuf_addc(b, ')');
        break;
    case VAL_graph: strbuf_addf(b, "self.%s", v->graph->name); break;
    case VAL_tensor: tensor_type_print(b, v->t, false); break; /* not in graphs; for messages */
    case VAL_tensors: type_print(b, v, false, NULL); break;
    default: {
        strbuf_addc(b, '[');
        for (int i = 0; i < v->n; i++) {
            strbuf_add(b, i ? ", " : "");
            if (v->kind == VAL_ints)
                int_print(b, v->ints[i]);
            else if (v->kind == VAL_floats)
                strbuf_double(b, v->floats[i]);
            else if (v->kind == VAL_bools)
                strbuf_add(b, v->bools[i] ? "True" : "False");
            else
                node_or_none(b, v->nodes[i]);
        }
        strbuf_addc(b, ']');
    }
    }
}

static void args_print(strbuf *b, const text_args *a, int from, int style)
{
    bool first = true;
    for (int i = from; i < a->npos; i++, first = false) {
        strbuf_add(b, first ? "" : ", ");
        ir_val_print(b, &a->pos[i], style);
    }
    for (int i = 0; i < a->nkw; i++, first = false) {
        strbuf_add(b, first ? "" : ", ");
        strbuf_add(b, a->kwname[i]);
        strbuf_addn(b, " = ", 3);
        ir_val_print(b, &a->kw[i], style);
    }
}

/* ---- calls ---- */
static void aten_name(strbuf *b, const ir_node *n)
{
    const op_row *r = op_row_of((op_id)n->op);
    strbuf_add(b, "aten.");
    op_full_name(b, (op_id)n->op, (op_variant)n->variant);
    if (!*r->overload && n->variant != OPV_out)
        strbuf_add(b, ".default");
}

static void call_print(strbuf *b, const ir_node *n)
{
    const op_row *r = op_row_of((op_id)n->op);
    int style = n->graph->style, how = SPELL_aten;
    text_args a;

    if (!(style & IR_STYLE_aten)) {
        spell_args(n, true, &a);
        how = spell_of(n, &a);
    }
    const infix *x;
    switch (how) {
    case SPELL_operator:
        x = infix_of(r);
        if (!x->unary) {
            ir_val_print(b, &a.pos[0], style);
            strbuf_addc(b, ' ');
            strbuf_add(b, x->sign);
            strbuf_addc(b, ' ');
            if (a.pos[1].kind == VAL_int && sym_is_expr(a.pos[1].i)) { /* x / (s0*s1) */
                strbuf right = { 0 };
                ir_val_print(&right, &a.pos[1], style);
                bool sum = strpbrk(strbuf_str(&right) + 1, "+-*/ (") != NULL;
                strbuf_addf(b, sum ? "(%s)" : "%s", strbuf_str(&right));
                strbuf_free(&right);
            } else
                ir_val_print(b, &a.pos[1], style);
        } else {
            strbuf_add(b, x->sign);
            ir_val_print(b, &a.pos[0], style);
        }
        return;
    case SPELL_method:
        strbuf_adds(b, a.pos[0].node->name, ".", r->name, n->variant == OPV_inplace ? "_(" : "(", NULL);
        args_print(b, &a, 1, style);
        break;
    case SPELL_function:
        spell_function(b, r, (op_variant)n->variant, root_of(style));
        strbuf_addc(b, '(');
        args_print(b, &a, 0, style);
        break;
    default:
        spell_args(n, false, &a);
        strbuf_addf(b, "%s.ops.", root_of(style));
        aten_name(b, n);
        strbuf_addc(b, '(');
        args_print(b, &a, 0, style);
    }
    strbuf_addc(b, ')');
}

static size_t word_len(const char *s) /* bytes of the identifier s begins with */
{
    size_t k = 0, n = strlen(s);
    while (k < n) {
        unsigned char c = (unsigned char)s[k];
        int w = c < 0x80 ? (isalpha(c) || c == '_' || (k && isdigit(c))) : utf8_decode(s + k, n - k, NULL);
        if (!w)
            break;
        k += (size_t)w;
    }
    return k;
}

static bool is_dotted(const char *s) /* a.b.c */
{
    bool word = false; /* within one */
    const char *p = s;
    for (;; word = *p++ != '.') {
        unsigned char c = (unsigned char)*p;
        if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '_' &&
            !(word && (c == '.' || (c >= '0' && c <= '9'))))
            break;
    }
    if (!*p)
        return word;
    for (;;) {
        size_t k = word_len(s);
        if (!k || (s[k] && s[k] != '.'))
            return false;
        if (!s[k])
            return true;
        s += k + 1;
    }
}

/* ops.<namespace>.<name> of anybody but us is a call the core does not know. */
static bool is_foreign_op(const char *t)
{
    return is_dotted(t) && !strncmp(t, "ops.", 4) && strncmp(t, "ops.aten.", 9);
}

static void opaque_print(strbuf *b, const ir_node *n)
{
    int style = n->graph->style;
    bool op = is_foreign_op(n->target);
    strbuf_addf(b, "%s.", root_of(style));
    if (op)
        strbuf_addf(b, "%s(", n->target);
    else {
        strbuf_add(b, "call(");
        strbuf_pyrepr(b, n->target, strlen(n->target));
    }
    for (int i = 0; i < n->narg; i++) {
        strbuf_add(b, i || !op ? ", " : "");
        ir_val_print(b, &n->arg[i], style);
    }
    strbuf_addc(b, ')');
}

static void output_print(strbuf *b, const ir_node *n)
{
    strbuf_add(b, "return (");
    for (int i = 0; i < n->narg; i++) {
        strbuf_add(b, i ? ", " : "");
        ir_val_print(b, &n->arg[i], n->graph->style);
    }
    strbuf_add(b, n->narg == 1 ? ",)" : ")");
}

static bool annotated(const ir_node *n)
{
    if (n->val.kind == VAL_tensors) /* what can be inferred from the row is left out */
        return n->kind == IR_opaque || (n->kind == IR_call && ir_row_is_dyn(op_row_of((op_id)n->op)));
    return n->val.kind != VAL_none;
}

static void node_print(strbuf *b, const ir_node *n, int what, types *known)
{
    if (n->kind == IR_output) {
        output_print(b, n);
        return;
    }
    strbuf_add(b, n->name);
    if (what & IR_PRINT_types && annotated(n)) {
        strbuf_addn(b, ": \"", 3);
        type_print(b, &n->val, what & IR_PRINT_short, known);
        strbuf_addc(b, '"');
    }
    strbuf_addn(b, " = ", 3);
    switch (n->kind) {
    case IR_placeholder: strbuf_add(b, n->name); break;
    case IR_const:
        if (is_dotted(n->target))
            strbuf_addf(b, "self.%s", n->target);
        else {
            strbuf_add(b, "getattr(self, ");
            strbuf_pyrepr(b, n->target, strlen(n->target));
            strbuf_addc(b, ')');
        }
        break;
    case IR_getitem:
        strbuf_adds(b, n->arg[0].node->name, "[", NULL);
        strbuf_int(b, n->arg[1].i);
        strbuf_addc(b, ']');
        break;
    case IR_opaque: opaque_print(b, n); break;
    default: call_print(b, n); break;
    }
}

/* ---- last uses ---- */
typedef struct frees {
    ir_node **seen; /* open addressing */
    size_t mask;
    VEC(ir_node *) dead; /* grouped by user, users backwards */
    size_t *end;         /* group of the i-th node from the back ends here */
} frees;

static bool first_seen(frees *f, ir_node *n)
{
    size_t i = hash_u64((uintptr_t)n) & f->mask;
    while (f->seen[i] && f->seen[i] != n)
        i = (i + 1) & f->mask;
    if (f->seen[i])
        return false;
    f->seen[i] = n;
    return true;
}

static void note_last(void *arg, ir_node *of)
{
    frees *f = arg;
    if (first_seen(f, of))
        vec_push(&f->dead, of);
}

static void frees_init(frees *f, const ir_graph *g)
{
    size_t cap = 16, k = 0;
    while (cap < (size_t)g->nnode * 2)
        cap *= 2;
    f->seen = mem_zalloc(sizeof *f->seen * cap);
    f->mask = cap - 1;
    f->end = mem_alloc(sizeof *f->end * (size_t)MAX(g->nnode, 1));
    memset(&f->dead, 0, sizeof f->dead);
    for (ir_node *n = g->last; n; n = n->prev) {
        ir_each_operand(n, note_last, f);
        if (n->kind == IR_output)
            f->dead.n = k ? f->end[k - 1] : 0; /* what is returned lives on */
        else if (n->kind != IR_placeholder && !n->nuse)
            vec_push(&f->dead, n);
        f->end[k++] = f->dead.n;
    }
}

static void frees_free(frees *f)
{
    free(f->seen);
    free(f->end);
    vec_free(&f->dead);
}

static void frees_print(strbuf *b, const frees *f, int back)
{
    size_t from = back ? f->end[back - 1] : 0, to = f->end[back];
    if (from == to)
        return;
    strbuf_add(b, ";  ");
    for (size_t i = from; i < to; i++) {
        strbuf_add(b, f->dead.at[i]->name);
        strbuf_addn(b, " = ", 3);
    }
    strbuf_add(b, "None");
}

/* ---- places ---- */
static bool has_control(const char *s, size_t n) /* below ' ', or 127 */
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    size_t i = 0;
    for (; n - i >= 8;
         i += 8) { /* a high bit stays where a byte was too small; those above 127 have it anyway */
        uint64_t w, del;
        memcpy(&w, s + i, 8);
        del = w ^ ones * 127;
        if ((((w - ones * 32) & ~w) | ((del - ones) & ~del)) & high)
            break; /* or a borrow from a neighbour: looked at one by one */
    }
    for (; i < n; i++)
        if ((unsigned char)s[i] < 32 || s[i] == 127)
            return true;
    return false;
}

static bool plain_field(const char *s, char kind)
{
    size_t n = strlen(s);
    if (!n || isspace((unsigned char)s[0]) || isspace((unsigned char)s[n - 1]) || *s == '\'' || *s == '"')
        return false;
    if (has_control(s, n))
        return false;
    if (kind == 'c')
        return true;
    if (kind == 'f') {
        for (const char *p = s; (p = strchr(p, ':'));) {
            const char *q = ++p;
            while (isdigit((unsigned char)*q))
                q++;
            if (q > p && !strncmp(q, " in ", 4))
                return false;
        }
        return true;
    }
    return !strstr(s, ", code: ");
}

static void field_print(strbuf *b, const char *s, char kind)
{
    if (plain_field(s, kind))
        strbuf_add(b, s);
    else
        strbuf_pyrepr(b, s, strlen(s));
}

static void place_print(strbuf *b, const ir_loc *l, int what)
{
    field_print(b, l->file ? l->file : "", 'f');
    strbuf_addc(b, ':');
    strbuf_int(b, l->line);
    strbuf_addn(b, " in ", 4);
    field_print(b, l->func ? l->func : "", 'n');
    const char *code = what & IR_PRINT_unread ? l->code : ir_loc_code(l);
    if (code) {
        strbuf_add(b, ", code: ");
        field_print(b, code, 'c');
    }
}

static bool same_str(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }
static bool same_loc(const ir_loc *a, const ir_loc *b, bool all)
{
    if (!all)
        a = ir_loc_user(a), b = ir_loc_user(b);
    for (; a != b; a = all ? a->outer : NULL, b = all ? b->outer : NULL)
        if (!a || !b || a->line != b->line || !same_str(a->file, b->file) || !same_str(a->func, b->func) ||
            !same_str(a->code, b->code))
            return false;
    return true;
}

/* All frames, or the one to name. */
static void loc_print(strbuf *b, const ir_loc *l, const char *pad, int what)
{
    bool all = what & IR_PRINT_head;
    if (!all)
        l = ir_loc_user(l);
    strbuf_addc(b, '\n');
    strbuf_add(b, pad);
    strbuf_addn(b, "# ", 2);
    if (!l)
        strbuf_add(b, "No stacktrace found for following nodes");
    for (const ir_loc *f = l; f; f = all ? f->outer : NULL) {
        if (f != l)
            strbuf_addc(b, '\n'), strbuf_add(b, pad), strbuf_add(b, "#   called from: ");
        else
            strbuf_add(b, "File: ");
        place_print(b, f, what);
    }
    strbuf_addc(b, '\n');
}

/* ---- what stands before the code ---- */
static void name_print(strbuf *b, const char *s)
{
    if (is_dotted(s))
        strbuf_add(b, s);
    else
        strbuf_pyrepr(b, s, strlen(s));
}

/* Does the text hold this name as a word? */
static bool says(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = text; (p = strstr(p, name)); p += n)
        if (!isalnum((unsigned char)p[n]) && p[n] != '_' &&
            (p == text || (!isalnum((unsigned char)p[-1]) && p[-1] != '_')))
            return true;
    return false;
}

static void relations_print(strbuf *b, const ir_graph *g, const char *pad)
{
    int n;
    const sym_assumed *a = sym_env_guards(g->env, &n);
    for (int i = 0; i < n; i++) {
        strbuf_addf(b, "%s# guard: ", pad);
        sym_print(b, a[i].cond);
        strbuf_addc(b, '\n');
    }
    a = sym_env_asserts(g->env, &n);
    for (int i = 0; i < n; i++) {
        strbuf_addf(b, "%s# assert: ", pad);
        sym_print(b, a[i].cond);
        if (a[i].msg) {
            strbuf_add(b, ", ");
            strbuf_pyrepr(b, a[i].msg, strlen(a[i].msg));
        }
        strbuf_addc(b, '\n');
    }
}

/* Unbacked symbols that nothing speaks of (a shape rule made them on its way) are left out. */
static void symbols_print(strbuf *b, const ir_graph *g, const char *pad, const char *code)
{
    if (!g->env)
        return;
    strbuf rel = { 0 };
    relations_print(&rel, g, pad);
    for (int i = 0; i < sym_env_n_symbols(g->env); i++) {
        symint s = sym_env_symbol_at(g->env, i);
        const char *name = sym_symbol_name(sym_expr_of(s));
        int64_t lo, hi;
        if (sym_is_unbacked(s) && !says(code, name) && !says(strbuf_str(&rel), name))
            continue;
        strbuf_addf(b, "%s# symbol: %s", pad, name);
        if (!sym_is_unbacked(s)) /* an unbacked one stays so, even where an equality has given it a value */
            strbuf_addf(b, " = %lld", (long long)sym_hint(s, NULL));
        sym_declared(s, &lo, &hi);
        strbuf_add(b, " in ");
        sym_range_print(b, lo, hi);
        if (sym_is_size_like(s))
            strbuf_add(b, " size");
        if (*sym_source(s)) {
            strbuf_add(b, " from ");
            strbuf_pyrepr(b, sym_source(s), strlen(sym_source(s)));
        }
        strbuf_addc(b, '\n');
    }
    strbuf_addn(b, strbuf_str(&rel), rel.n);
    strbuf_free(&rel);
}

/* A frame of the library, whose directory a reader of the text has to know: which frame to name depends on it. */
static const ir_loc *library_frame(const ir_graph *g)
{
    const ir_loc *l = NULL;
    for (size_t i = 0; i < g->subs.n && !l; i++)
        l = library_frame(g->subs.at[i]);
    IR_EACH (n, g) {
        if (l)
            break;
        for (l = n->loc; l && !l->library; l = l->outer)
            ;
    }
    return l;
}

static void file_head(strbuf *b, const ir_graph *g, const char *pad, const char *code, bool locs)
{
    if (strcmp(g->name, "forward")) {
        strbuf_addf(b, "%s# graph: ", pad);
        name_print(b, g->name);
        strbuf_addc(b, '\n');
    }
    const ir_loc *l = locs ? library_frame(g) : NULL;
    if (l) {
        strbuf_addf(b, "%s# library: ", pad);
        strbuf_pyrepr(b, l->file, (size_t)l->library);
        strbuf_addc(b, '\n');
    }
    symbols_print(b, g, pad, code);
}

static void graph_head(strbuf *b, const ir_graph *g, const char *pad, bool data)
{
    map done = { 0 };
    if (!g->grad_mode)
        strbuf_addf(b, "%s# grad_mode: off\n", pad);
    IR_EACH (n, g) {
        if (!data || n->kind != IR_const || map_put(&done, n->target, n))
            continue;
        strbuf_addf(b, "%s# const: ", pad);
        name_print(b, n->target);
        strbuf_add(b, ": ");
        const_print(b, n);
        strbuf_addc(b, '\n');
    }
    map_free(&done);
}

/* ---- inputs ---- */
void text_meta(strbuf *b, const char *meta)
{
    size_t n = strlen(meta);
    while (n && isspace((unsigned char)*meta))
        meta++, n--;
    while (n && isspace((unsigned char)meta[n - 1]))
        n--;
    for (size_t i = 0; i < n; i++) /* a raw newline can only be white space in JSON */
        strbuf_addc(b, meta[i] == '\n' || meta[i] == '\r' ? ' ' : meta[i]);
}

static void meta_print(strbuf *b, const char *meta)
{
    strbuf_add(b, "  # meta: ");
    text_meta(b, meta);
}

/* The parameter's name: the source with everything but letters and digits as underscores (L['x'] -> L_x_), or
 * the node's own name where that would be ambiguous. */
static void param_name(strbuf *b, const ir_graph *g, const ir_node *n, map *taken)
{
    size_t start = b->n;
    for (const char *s = n->target; *s; s++) {
        if (isalnum((unsigned char)*s) || *s == '_' || (unsigned char)*s >= 0x80)
            strbuf_addc(b, *s);
        else if (b->n == start || b->s[b->n - 1] != '_')
            strbuf_addc(b, '_');
    }
    bool bad = b->n == start || !is_dotted(b->s + start);
    if (!bad) {
        const ir_node *other = map_get(&g->names, b->s + start);
        bad = (other && other != n) || map_get(taken, b->s + start) || !strcmp(b->s + start, "self");
    }
    if (bad) {
        b->n = start;
        strbuf_add(b, n->name);
    }
    map_put(taken, b->s + start, (void *)n);
}

/* An earlier input that shares this one's storage. */
static const ir_node *alias_of(const ir_graph *g, size_t i)
{
    const tp_tensor *t = ir_type(g->inputs.at[i]);
    for (size_t k = 0; t && k < i && g->inputs.n < 1000; k++) {
        const tp_tensor *o = ir_type(g->inputs.at[k]);
        if (o && o->storage == t->storage)
            return g->inputs.at[k];
    }
    return NULL;
}

static void input_print(strbuf *b, const ir_graph *g, size_t i, const char *param, const char *pad, int what)
{
    const ir_node *n = g->inputs.at[i];
    const tp_tensor *t = ir_type(n);
    const ir_node *alias = what & IR_PRINT_head ? alias_of(g, i) : NULL;
    bool source = what & IR_PRINT_head && strcmp(n->target, param);
    bool offset = what & IR_PRINT_head && t && t->offset != 0;
    bool meta = what & IR_PRINT_head && n->meta;

    if (!strcmp(param, n->name) && !source && !offset && !alias && !meta)
        return;
    strbuf_adds(b, pad, n->name, " = ", param, NULL);
    if (source) {
        strbuf_add(b, "  # source: ");
        strbuf_pyrepr(b, n->target, strlen(n->target));
    }
    if (offset) {
        strbuf_add(b, "  # offset: ");
        sym_print(b, t->offset);
    }
    if (alias)
        strbuf_addf(b, "  # alias: %s", alias->name);
    if (meta)
        meta_print(b, n->meta);
    strbuf_addc(b, '\n');
}

/* ---- code ---- */
static void body_print(strbuf *b, const ir_graph *g, const char *pad, int what, types *known)
{
    const ir_loc *last = NULL;
    frees f;
    int back = g->nnode;

    if (what & IR_PRINT_frees)
        frees_init(&f, g);
    IR_EACH (n, g) {
        back--;
        if (n->kind == IR_placeholder)
            continue;
        if (what & IR_PRINT_locs && n->kind != IR_output && !same_loc(last, n->loc, what & IR_PRINT_head))
            loc_print(b, n->loc, pad, what);
        if (n->kind != IR_output)
            last = n->loc;
        strbuf_add(b, pad);
        node_print(b, n, what, known);
        if (what & IR_PRINT_frees)
            frees_print(b, &f, back);
        if (what & IR_PRINT_head && n->meta)
            meta_print(b, n->meta);
        strbuf_addc(b, '\n');
    }
    if (what & IR_PRINT_frees)
        frees_free(&f);
}

/* Nested graphs come before the one that uses them, in order of first use. */
static void code_print(strbuf *b, const ir_graph *g, int depth, int what);
static void subs_print(strbuf *b, const ir_graph *g, int depth, int what)
{
    map done = { 0 };
    if (!g->subs.n)
        return;
    IR_EACH (n, g)
        for (int i = 0; i < n->narg; i++) {
            const tp_val *v = &n->arg[i];
            if (v->kind != VAL_graph || v->graph->parent != g || map_puti(&done, (uintptr_t)v->graph, n))
                continue;
            code_print(b, v->graph, depth, what);
            strbuf_addc(b, '\n');
        }
    map_free(&done);
}

static void code_print(strbuf *b, const ir_graph *g, int depth, int what)
{
    static const char blanks[] = "                                ";
    const char *pad = blanks + sizeof blanks - 1 - 4 * depth, *in = pad - 4;
    map taken = { 0 };
    strbuf params = { 0 };
    VEC(size_t) at = { 0 };
    types known = { 0 };

    subs_print(b, g, depth, what);
    if (what & IR_PRINT_head)
        graph_head(b, g, pad, !(what & IR_PRINT_no_data));
    strbuf_addf(b, "%sdef %s(self", pad, g->parent ? g->name : "forward");
    for (size_t i = 0; i < g->inputs.n; i++) {
        const ir_node *n = g->inputs.at[i];
        vec_push(&at, params.n);
        param_name(&params, g, n, &taken);
        strbuf_adds(b, ", ", params.s + at.at[i], NULL);
        strbuf_addc(&params, 0);
        if (what & IR_PRINT_types && n->val.kind != VAL_none) {
            strbuf_add(b, ": \"");
            type_print(b, &n->val, what & IR_PRINT_short, &known);
            strbuf_addc(b, '"');
        }
    }
    strbuf_add(b, "):\n");
    for (size_t i = 0; i < g->inputs.n; i++)
        input_print(b, g, i, params.s + at.at[i], in, what);
    body_print(b, g, in, what, &known);
    vec_free(&at);
    strbuf_free(&params);
    map_free(&taken);
}

/* ---- table ---- */
static void list_print(strbuf *b, const tp_val *v, int n, int style)
{
    strbuf_addc(b, '(');
    for (int i = 0; i < n; i++) {
        strbuf_add(b, i ? ", " : "");
        ir_val_print(b, &v[i], style);
    }
    strbuf_add(b, n == 1 ? ",)" : ")");
}

static void cell_print(strbuf *b, const ir_node *n, int col)
{
    static const char *const kinds[] = { "placeholder",   "get_attr",      "call_function",
                                         "call_function", "call_function", "output" };
    int style = n->graph->style;
    text_args a = { 0 };

    if (n->kind == IR_call)
        spell_args(n, false, &a);
    switch (col) {
    case 0: strbuf_add(b, kinds[n->kind]); break;
    case 1: strbuf_add(b, n->name); break;
    case 2:
        if (n->kind == IR_call)
            aten_name(b, n);
        else
            strbuf_add(b, n->kind == IR_getitem ? "<built-in function getitem>"
                          : n->target           ? n->target
                                                : "output");
        break;
    case 3:
        if (n->kind == IR_call)
            list_print(b, a.pos, a.npos, style);
        else if (n->kind == IR_output) {
            strbuf_addc(b, '(');
            list_print(b, n->arg, n->narg, style);
            strbuf_add(b, ",)");
        } else
            list_print(b, n->arg, n->narg, style);
        break;
    default:
        strbuf_addc(b, '{');
        for (int i = 0; i < a.nkw; i++) {
            strbuf_addf(b, "%s'%s': ", i ? ", " : "", a.kwname[i]);
            ir_val_print(b, &a.kw[i], style);
        }
        strbuf_addc(b, '}');
    }
}

static void table_print(strbuf *b, const ir_graph *g)
{
    static const char *const heads[] = { "opcode", "name", "target", "args", "kwargs" };
    enum { NCOL = COUNT(heads) };
    size_t width[NCOL], start;
    strbuf cell = { 0 };

    for (int c = 0; c < NCOL; c++) {
        width[c] = strlen(heads[c]);
        IR_EACH (n, g) {
            strbuf_clear(&cell);
            cell_print(&cell, n, c);
            width[c] = MAX(width[c], utf8_count(strbuf_str(&cell), cell.n));
        }
    }
    for (int c = 0; c < NCOL; c++) {
        start = b->n;
        strbuf_add(b, heads[c]);
        if (c + 1 < NCOL)
            strbuf_pad(b, start, width[c] + 2);
    }
    strbuf_addc(b, '\n');
    for (int c = 0; c < NCOL; c++) {
        for (size_t i = 0; i < width[c]; i++)
            strbuf_addc(b, '-');
        strbuf_add(b, c + 1 < NCOL ? "  " : "\n");
    }
    IR_EACH (n, g) {
        for (int c = 0; c < NCOL; c++) {
            strbuf_clear(&cell);
            cell_print(&cell, n, c);
            strbuf_add(b, strbuf_str(&cell));
            for (size_t k = utf8_count(strbuf_str(&cell), cell.n); c + 1 < NCOL && k < width[c] + 2; k++)
                strbuf_addc(b, ' ');
        }
        strbuf_addc(b, '\n');
    }
    strbuf_free(&cell);
}

/* ---- sizes ---- */
static void tuple_print(strbuf *b, int n, const symint *v, bool concrete)
{
    bool ok;
    strbuf_addc(b, '(');
    for (int i = 0; i < n; i++) {
        strbuf_add(b, i ? ", " : "");
        sym_print(b, concrete && sym_is_expr(v[i]) ? sym_hint(v[i], &ok) : v[i]);
    }
    strbuf_add(b, n == 1 ? ",)" : ")");
}

static void sizes_print(strbuf *b, const ir_graph *g)
{
    strbuf_addf(b, "TRACED GRAPH TENSOR SIZES\n===== %s =====\n", g->name);
    IR_EACH (n, g) {
        const tp_tensor *t = ir_type(n);
        if (!t)
            continue;
        strbuf_addf(b, "%s: ", n->name);
        tuple_print(b, t->ndim, t->size, false);
        strbuf_addc(b, '\n');
        bool hinted = true;
        for (int d = 0; d < t->ndim && hinted; d++)
            if (sym_is_expr(t->size[d]))
                sym_hint(t->size[d], &hinted);
        if (sym_all_const(t->size, t->ndim) || !hinted)
            continue;
        strbuf_addf(b, "%s (concrete): ", n->name);
        tuple_print(b, t->ndim, t->size, true);
        strbuf_addc(b, '\n');
    }
}

static void print(strbuf *b, const ir_graph *g, int what)
{
    if (what & IR_PRINT_table)
        table_print(b, g);
    else if (what & IR_PRINT_sizes)
        sizes_print(b, g);
    else {
        bool in_class = what & IR_PRINT_class;
        if (in_class)
            strbuf_addf(b, "class GraphModule(%s.nn.Module):\n", root_of(g->style));
        if (!(what & IR_PRINT_head) || !g->env || !sym_env_n_symbols(g->env)) {
            if (what & IR_PRINT_head)
                file_head(b, g, in_class ? "    " : "", "", what & IR_PRINT_locs);
            code_print(b, g, in_class, what);
            return;
        }
        strbuf code = { 0 }; /* the head speaks of the symbols that the code holds */
        code_print(&code, g, in_class, what);
        file_head(b, g, in_class ? "    " : "", strbuf_str(&code), what & IR_PRINT_locs);
        strbuf_addn(b, strbuf_str(&code), code.n);
        strbuf_free(&code);
    }
}

void ir_print(strbuf *b, const ir_graph *g, int what)
{
    as_torch = what & IR_PRINT_brand && env_torch_alias();
    print(b, g, what);
    as_torch = false;
}
