/* emit.c - graphs as plain C. Kernels come from target/c/c.h; what the plan leaves to library calls is written by emit_lib.c. Sizes that
 * are symbols become arguments of the function. */
#include "export/emit_int.h"
#include "loop/lower.h"
#include <stdio.h>

bool emit_cannot(emit *e, const ir_node *n, const char *why)
{
    const char *op = n->kind == IR_call ? op_row_of((op_id)n->op)->full : n->target;
    err_set(e->c->err, ERR_notimpl, "'%s' cannot be exported as C: %s", op ? op : n->name, why);
    return ir_err_place(e->c->err, n);
}

bool emit_contiguous(const tp_tensor *t)
{
    symint s = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->size[d] != 1 && t->stride[d] != s && !sym_known(SYM_eq, t->stride[d], s))
            return false;
        s = sym_mul(s, t->size[d]);
    }
    return true;
}

static symint bytes_of(const tp_tensor *t)
{
    symint b = 0;
    shape_storage_bytes((dtype)t->dt, t->ndim, t->size, t->stride, 0, &b, NULL);
    return b;
}

void emit_num(strbuf *b, symint v)
{
    if (sym_is_expr(v))
        sym_print_c(b, v);
    else
        strbuf_addf(b, "%lld", (long long)v);
}

void emit_list(strbuf *b, const symint *v, int n, bool more)
{
    for (int i = 0; i < n; i++) {
        emit_num(b, v[i]);
        strbuf_add(b, i + 1 < n || more ? ", " : "");
    }
}

static int slot_of(emit *e, const ir_node *n)
{
    return (int)(uintptr_t)map_geti(&e->p->slot_of, (uintptr_t)n) - 1;
}

/* --- places
 * ------------------------------------------------------------------------------------------------------------ */
static bool is_view(const ir_node *n)
{
    return n->kind == IR_call && op_row_of((op_id)n->op)->flags & OPF_VIEW && n->arg[0].kind == VAL_node &&
           ir_type(n->arg[0].node) && (!ir_type(n) || ir_type(n)->dt == ir_type(n->arg[0].node)->dt);
}

/* A call whose results all look at its first operand (split, unbind). */
static bool lists_views(const ir_node *n) { return is_view(n) && n->val.kind == VAL_tensors; }

/* The node whose memory n looks at, or NULL: it has its own. */
static const ir_node *looked_at(const ir_node *n)
{
    if (n->kind == IR_getitem)
        return lists_views(n->arg[0].node) ? n->arg[0].node->arg[0].node : NULL;
    return is_view(n) && ir_type(n) ? n->arg[0].node : NULL;
}

bool emit_slot(emit *e, strbuf *b, int i)
{
    const loop_slot *s = &e->p->slot.at[i];
    dtype dt = s->type ? (dtype)s->type->dt : DT_u8;
    if (s->reuses)
        return emit_slot(e, b, s->reuses - 1);
    if (e->direct[i])
        strbuf_addf(b, "out%d", e->direct[i] - 1);
    else if (s->kind == SLOT_input)
        strbuf_addf(b, "in%d", s->index);
    else if (s->kind == SLOT_const)
        strbuf_addf(b, "%s_w%d", e->name, i);
    else if (e->region[i] >= 0)
        strbuf_addf(b, "(%s *)(space + at%d)", gen_c_type(dt), e->region[i]);
    else {
        const ir_node *of = looked_at(s->node);
        if (!of)
            return emit_cannot(e, s->node, "its memory is not known before it runs");
        strbuf_add(b, "(");
        if (!emit_pointer(e, b, of))
            return false;
        strbuf_add(b, " + ");
        emit_num(b, sym_sub(s->type->offset, ir_type(of)->offset));
        strbuf_add(b, ")");
    }
    return true;
}

bool emit_pointer(emit *e, strbuf *b, const ir_node *n)
{
    int s = slot_of(e, n);
    if (s >= 0)
        return emit_slot(e, b, s);
    const ir_node *of = looked_at(n); /* a view that only another view uses */
    if (!of)
        return emit_cannot(e, n, "its memory is not known before it runs");
    strbuf_add(b, "(");
    bool ok = emit_pointer(e, b, of);
    strbuf_add(b, " + ");
    emit_num(b, sym_sub(ir_type(n)->offset, ir_type(of)->offset));
    strbuf_add(b, ")");
    return ok;
}

/* Whose life times do not meet share a part of the workspace: the one that fits best, or one of the same symbolic size. */
static void place(emit *e)
{
    loop_plan *p = e->p;
    VEC(int) last = { 0 }; /* by region: the step after which it is free */
    for (int step = -1; step <= (int)p->step.n; step++)
        for (int i = 0; i < (int)p->slot.n; i++) { /* in the order in which they are made */
            loop_slot *s = &p->slot.at[i];
            if (step < 0) {
                e->region[i] = -1;
                if (s->kind == SLOT_extern && s->index >= 0) /* a result of several */
                    s->first = p->slot.at[s->index].first;
                continue;
            }
            if (s->first != step || (s->kind != SLOT_buffer && s->kind != SLOT_extern) || s->reuses ||
                e->direct[i] || !s->type || looked_at(s->node))
                continue;
            symint need = bytes_of(s->type);
            int best = -1;
            s->last = MAX(s->last, s->first);
            for (int r = 0; r < (int)e->size.n; r++) {
                symint have = e->size.at[r];
                bool fits = have == need || sym_all_const((symint[]){ have, need }, 2);
                if (!fits || last.at[r] >= s->first)
                    continue;
                symint old = best < 0 ? 0 : e->size.at[best];
                if (best < 0 || have == need || (old < need ? have > old : have >= need && have < old))
                    best = r;
            }
            if (best < 0) {
                best = (int)e->size.n;
                vec_push(&e->size, need);
                vec_push(&last, 0);
            } else if (e->size.at[best] != need)
                e->size.at[best] = MAX(e->size.at[best], need);
            e->region[i] = best;
            last.at[best] = s->last;
        }
    vec_free(&last);
}

/* --- weights
 * -------------------------------------------------------------------------------------------------------------- */
static bool weights(emit *e)
{
    for (size_t i = 0; i < e->p->slot.n; i++) {
        const loop_slot *s = &e->p->slot.at[i];
        if (s->kind != SLOT_const)
            continue;
        const tp_tensor *k = s->konst;
        if (!k || tensor_is_fake(k))
            return emit_cannot(e, s->node, "its bytes are not beside the graph");
        dtype dt = (dtype)k->dt;
        int64_t n = bytes_of(s->type) / (int64_t)dtype_size(dt); /* a constant's sizes are numbers */
        tp_tensor *t = tensor_new_strided(dt, k->ndim, s->type->size, s->type->stride, DEVICE_CPU, e->c->err);
        if (!t || (n && !tensor_copy(t, k, e->c->err))) {
            tensor_unref(t);
            return false;
        }
        strbuf_addf(&e->data, "static const %s %s_w%d[%lld] = { /* %s */", gen_c_type(dt), e->name, (int)i,
                    (long long)MAX(n, 1), s->node->name);
        for (int64_t j = 0; j < n; j++) {
            strbuf_add(&e->data, j % 10 ? " " : "\n    ");
            gen_c_number(&e->data, dt, (const char *)t->storage->data + j * (int64_t)dtype_size(dt));
            strbuf_addc(&e->data, ',');
        }
        strbuf_add(&e->data, n ? "\n};\n" : "0 };\n");
        tensor_unref(t);
    }
    return true;
}

/* --- steps
 * ---------------------------------------------------------------------------------------------------------------- */
static bool call_kernel(emit *e, const loop_kernel *k)
{
    strbuf key = { 0 };
    bool ok = true;
    vir_key(k->k, &key);
    const char *name = map_getn(&e->kernels, key.s, key.n);
    if (!name) {
        name = arena_printf(&e->mem, "%s_%s", e->name, k->name);
        gen_c_kernel(&e->unit, k->k, name);
        map_putn(&e->kernels, key.s, key.n, (void *)name);
    }
    strbuf_free(&key);
    if (!sym_is_expr(k->par) && k->par <= 0)
        return true;
    strbuf_addf(&e->body, "    %s_run(%s, (void *[]){ ", e->name, name);
    for (int i = 0; i < k->nbuf && ok; i++) {
        strbuf_add(&e->body, i ? ", (void *)" : "(void *)");
        ok = emit_slot(e, &e->body, k->buf[i]);
    }
    strbuf_add(&e->body, " }, ");
    if (k->nint) {
        strbuf_add(&e->body, "(const int64_t[]){ ");
        emit_list(&e->body, k->ints, k->nint, false);
        strbuf_add(&e->body, " }");
    } else
        strbuf_add(&e->body, "NULL");
    strbuf_add(&e->body, ", ");
    emit_list(&e->body, (symint[]){ k->par, k->work }, 2, false);
    strbuf_add(&e->body, ");\n");
    return ok;
}

/* One matrix of a product by BLAS: true where both strides suit it. */
static bool blas_order(const tp_tensor *t, symint rows, symint cols, bool *trans, symint *ld)
{
    symint r = t->stride[t->ndim - 2], c = t->stride[t->ndim - 1];
    *trans = c != 1;
    *ld = *trans ? c : r;
    return *trans ? r == 1 && sym_known(SYM_ge, c, sym_max(rows, 1)) : sym_known(SYM_ge, r, sym_max(cols, 1));
}

static bool call_product(emit *e, const loop_step *s)
{
    const ir_node *n = s->node;
    const loop_slot *slot = &e->p->slot.at[s->slot];
    int first = lower_row(n)->factor - 1;
    const ir_node *an = n->arg[first].node, *bn = n->arg[first + 1].node;
    const tp_tensor *o = slot->type, *a = ir_type(an), *b = ir_type(bn), *row = NULL;
    if (first && !slot->reuses)
        row = ir_type(n->arg[0].node);
    int d = o->ndim - 2;
    symint m = o->size[d], w = o->size[d + 1], k = a->size[d + 1], batch = d ? o->size[0] : 1, lda, ldb, ldc;
    dtype dt = (dtype)a->dt;
    bool ta, tb, tc, ok, half = dt == DT_f16 || dt == DT_bf16;
    strbuf *t = &e->body;
    if (e->blas && !half && !row && m != 0 && w != 0 && k != 0 && blas_order(a, m, k, &ta, &lda) &&
        blas_order(b, k, w, &tb, &ldb) && blas_order(o, m, w, &tc, &ldc) && !tc) {
        const ir_node *at[2] = { an, bn };
        const tp_tensor *of[3] = { a, b, o };
        symint ld[3] = { lda, ldb, ldc };
        strbuf_add(t, "    for (int64_t z = 0; z < ");
        emit_num(t, batch);
        strbuf_addf(t, "; z++)\n        cblas_%cgemm(CblasRowMajor, %s, %s, ", dt == DT_f32 ? 's' : 'd',
                    ta ? "CblasTrans" : "CblasNoTrans", tb ? "CblasTrans" : "CblasNoTrans");
        emit_list(t, (symint[]){ m, w, k }, 3, true);
        strbuf_add(t, "1, ");
        ok = true;
        for (int i = 0; i < 3 && ok; i++) {
            ok = i < 2 ? emit_pointer(e, t, at[i]) : emit_slot(e, t, s->slot);
            strbuf_add(t, " + z * ");
            emit_list(t, (symint[]){ d ? of[i]->stride[0] : 0, ld[i] }, 2, i < 2);
            if (i == 1)
                strbuf_add(t, slot->reuses ? "1, " : "0, ");
        }
        strbuf_add(t, ");\n");
        return ok;
    }
    if (half)
        gen_c_halves(&e->unit);
    strbuf_addf(t, "    %s_run(%s, (void *[]){ (void *)", e->name,
                half ? emit_helper(e, "half_product", dt, (dtype)o->dt)
                     : emit_helper(e, "product", dt, DT_none));
    ok = emit_pointer(e, t, an);
    strbuf_add(t, ", (void *)");
    ok = ok && emit_pointer(e, t, bn);
    strbuf_add(t, ", (void *)");
    ok = ok && emit_slot(e, t, s->slot);
    strbuf_add(t, row ? ", (void *)" : ", NULL");
    if (row)
        ok = ok && emit_pointer(e, t, n->arg[0].node);
    strbuf_add(t, " }, (const int64_t[]){ ");
    emit_list(t, (symint[]){ m, w, k }, 3, true);
    const tp_tensor *of[3] = { a, b, o };
    for (int i = 0; i < 3; i++) {
        emit_list(t, (symint[]){ d ? of[i]->stride[0] : 0 }, 1, true);
        emit_list(t, of[i]->stride + d, 2, true);
    }
    strbuf_addf(t, "%d, ", slot->reuses ? 1 : 0);
    emit_num(t, row ? row->stride[0] : 0);
    strbuf_add(t, " }, ");
    emit_list(t, (symint[]){ sym_mul(batch, m), sym_mul(w, k) }, 2, false);
    strbuf_add(t, ");\n");
    return ok;
}

int emit_item(emit *e, int of, int64_t which)
{
    for (size_t i = 0; i < e->p->slot.n; i++) {
        const loop_slot *s = &e->p->slot.at[i];
        if (s->kind == SLOT_extern && s->index == of && s->node->kind == IR_getitem &&
            s->node->arg[1].i == which)
            return (int)i;
    }
    return -1;
}

static bool copy(emit *e, const char *from, const tp_tensor *ft, const char *to, const tp_tensor *tt)
{
    strbuf *b = &e->body;
    if (ft->numel == 0)
        return true;
    if (emit_contiguous(ft) && emit_contiguous(tt)) {
        strbuf_addf(b, "    memcpy(%s, %s, (size_t)(", to, from);
        emit_num(b, sym_mul(ft->numel, (int64_t)dtype_size((dtype)ft->dt)));
        strbuf_add(b, "));\n");
        return true;
    }
    symint row[TP_MAX_DIMS],
        s = 1; /* row-major of the same sizes: a reshape that copies reads in that order */
    for (int d = ft->ndim - 1; d >= 0; d--) {
        row[d] = s;
        s = sym_mul(s, ft->size[d]);
    }
    strbuf_addf(b, "    %s(%d, (const int64_t[]){ ", emit_helper(e, "copy", (dtype)ft->dt, DT_none),
                ft->ndim);
    emit_list(b, ft->size, ft->ndim, false);
    strbuf_addf(b, "%s }, %s, (const int64_t[]){ ", ft->ndim ? "" : "0", from);
    emit_list(b, ft->stride, ft->ndim, false);
    strbuf_addf(b, "%s }, %s, (const int64_t[]){ ", ft->ndim ? "" : "0", to);
    emit_list(b, emit_contiguous(tt) ? row : tt->stride, ft->ndim, false);
    strbuf_addf(b, "%s });\n", ft->ndim ? "" : "0");
    return true;
}

static bool call_library(emit *e, const loop_step *s)
{
    const ir_node *n = s->node;
    if (n->kind != IR_call || n->variant != OPV_fn)
        return emit_cannot(e, n, "it calls something outside the graph");
    bool known, ok = emit_library(e, s, &known);
    return known ? ok
                 : lists_views(n) || looked_at(n) || emit_cannot(e, n, "it runs as a library call of Taper");
}

void emit_each(strbuf *b, const tp_tensor *x, const char *type, const char *at)
{
    for (int d = 0; d < x->ndim; d++) {
        strbuf_addf(b, "        for (int64_t i%d = 0; i%d < ", d, d);
        emit_num(b, x->size[d]);
        strbuf_addf(b, "; i%d++)\n", d);
    }
    strbuf_addf(b, "        {\n            const %s v = (%s)%s[0", type, type, at);
    for (int d = 0; d < x->ndim; d++) {
        strbuf_addf(b, " + i%d * ", d);
        emit_num(b, x->stride[d]);
    }
    strbuf_add(b, "];\n");
}

/* Nothing is read with an index that lies outside. */
static bool call_check(emit *e, const loop_step *s)
{
    const tp_tensor *x = e->p->slot.at[s->slot].type;
    loop_gather g;
    if (!x || !loop_gather_of(s->node, &g))
        return emit_cannot(e, s->node, "its index is not known");
    symint size = ir_type(s->node->arg[0].node)->size[s->nslot];
    strbuf *b = &e->body;
    strbuf_addf(b, "    {\n        const %s *at = ", gen_c_type((dtype)x->dt));
    if (!emit_slot(e, b, s->slot))
        return false;
    strbuf_add(b, ";\n");
    emit_each(b, x, "int64_t", "at");
    strbuf_add(b, "            bad |= v < ");
    emit_num(b, g.wrap ? sym_sub(0, size) : 0);
    strbuf_add(b, " || v >= ");
    emit_num(b, size);
    strbuf_add(b, ";\n        }\n    }\n");
    strbuf_add(b, "    if (bad) {\n        free(space);\n        return bad;\n    }\n");
    return true;
}

static bool steps(emit *e)
{
    for (size_t i = 0; i < e->p->step.n; i++) {
        const loop_step *s = &e->p->step.at[i];
        const ir_loc *loc = ir_place(s->kind != STEP_kernel ? s->node
                                     : s->kernel->nodes.n   ? s->kernel->nodes.at[0]
                                                            : NULL);
        const char *code = loc ? ir_loc_code(loc) : NULL;
        if (code) { /* the user's line */
            strbuf_add(&e->body, "    /* ");
            for (const char *p = code; *p; p++)
                strbuf_addc(&e->body,
                            (*p == '*' && p[1] == '/') || (unsigned char)*p < 32 || *p == '\\' ? ' ' : *p);
            strbuf_add(&e->body, " */\n");
        }
        if (!(s->kind == STEP_kernel                     ? call_kernel(e, s->kernel)
              : s->kind == STEP_check                    ? call_check(e, s)
              : s->product && lower_row(s->node)->factor ? call_product(e, s)
                                                         : call_library(e, s)))
            return false;
    }
    return true;
}

/* --- results
 * ------------------------------------------------------------------------------------------------------------------ */
static int result_slot(const emit *e, int index) { return e->p->out[index]; }

static void choose_direct(emit *e)
{
    for (int i = 0, k = 0; i < e->u->nout; i++) {
        const aot_out *o = &e->u->out[i];
        if (o->kind == AOT_number)
            continue;
        int s = o->kind == AOT_value ? result_slot(e, o->index) : -1;
        if (s >= 0 && e->p->slot.at[s].kind == SLOT_buffer && !e->p->slot.at[s].reuses && !e->direct[s] &&
            emit_contiguous(e->p->slot.at[s].type))
            e->direct[s] = k + 1;
        k++;
    }
}

static void add_c_type(strbuf *b, const tp_tensor *t)
{
    strbuf_addf(b, "%s[", dtype_rows[t->dt].sname);
    for (int d = 0; d < t->ndim; d++) {
        strbuf_add(b, d ? ", " : "");
        sym_print(b, t->size[d]);
    }
    strbuf_addc(b, ']');
}

static bool results(emit *e, const ir_graph *g, strbuf *about)
{
    for (int i = 0, k = 0; i < e->u->nout; i++) {
        const aot_out *o = &e->u->out[i];
        strbuf from = { 0 };
        char to[32];
        const tp_tensor *t = NULL;
        bool ok = true;
        if (o->kind == AOT_number) {
            if (o->num.kind != VAL_none)
                return err_set(e->c->err, ERR_notimpl,
                               "result %d is a number: only tensors can be returned from C", i);
            continue;
        }
        snprintf(to, sizeof to, "out%d", k);
        int s = o->kind == AOT_value || o->kind == AOT_result_view ? result_slot(e, o->index) : -1;
        if (o->kind == AOT_value && s >= 0) {
            t = e->p->slot.at[s].type;
            ok = emit_slot(e, &from, s);
        } else if (o->kind == AOT_input) {
            t = ir_type(g->inputs.at[o->index]);
            strbuf_addf(&from, "in%d", o->index);
        } else if (o->type) {
            const tp_tensor *as = o->kind == AOT_view ? ir_type(g->inputs.at[o->index])
                                  : s >= 0            ? e->p->slot.at[s].type
                                                      : NULL;
            t = o->type;
            if (o->kind == AOT_view)
                strbuf_addf(&from, "in%d", o->index);
            else
                ok = s >= 0 && emit_slot(e, &from, s);
            if (ok && as && t) {
                strbuf_add(&from, " + ");
                emit_num(&from, sym_sub(t->offset, as->offset));
            }
        }
        if (!ok || !t) {
            strbuf_free(&from);
            return err_is_set(e->c->err)
                       ? false
                       : err_set(e->c->err, ERR_notimpl, "result %d has no fixed layout", i);
        }
        tp_tensor *row = tensor_new_fake((dtype)t->dt, t->ndim, t->size, NULL, DEVICE_CPU);
        if (!(s >= 0 && o->kind == AOT_value && e->direct[s] == k + 1))
            copy(e, strbuf_str(&from), t, to, row);
        strbuf_addf(&e->proto, "%s%s *out%d", e->proto.n ? ", " : "", gen_c_type((dtype)t->dt), k);
        strbuf_addf(about, " *   out%d: ", k);
        add_c_type(about, t);
        strbuf_add(about, "\n");
        tensor_unref(row);
        strbuf_free(&from);
        k++;
    }
    return true;
}

static bool inputs(emit *e, const ir_graph *g, strbuf *about)
{
    for (size_t i = 0; i < g->inputs.n; i++) {
        const ir_node *n = g->inputs.at[i];
        const tp_tensor *t = ir_type(n);
        if (!t)
            return err_set(e->c->err, ERR_notimpl, "input '%s' is not a tensor", n->name);
        if (!emit_contiguous(t))
            return err_set(e->c->err, ERR_notimpl, "input '%s' does not lie one element after the other",
                           n->name);
        strbuf_addf(&e->proto, "%sconst %s *in%zu", e->proto.n ? ", " : "", gen_c_type((dtype)t->dt), i);
        strbuf_addf(about, " *   in%zu:  ", i);
        add_c_type(about, t);
        strbuf_addf(about, "  %s\n", n->name);
    }
    return true;
}

/* Sizes that are symbols: arguments behind the others. What the graph assumes of them is checked. */
static void sizes(emit *e, const ir_graph *g, strbuf *about, strbuf *checks)
{
    int n = g->env ? sym_env_n_symbols(g->env) : 0, nguard = 0;
    for (int i = 0; i < n; i++) {
        symint v = sym_env_symbol_at(g->env, i);
        const char *name = sym_symbol_name(sym_expr_of(v));
        int64_t lo, hi;
        bool said = false;
        if (sym_is_replaced(v))
            continue;
        strbuf_addf(&e->proto, "%sint64_t %s", e->proto.n ? ", " : "", name);
        strbuf_addf(about, " *   %s:   ", name);
        for (size_t k = 0; k < g->inputs.n && !said; k++) {
            const tp_tensor *t = ir_type(g->inputs.at[k]);
            for (int d = 0; t && d < t->ndim && !said; d++)
                if (t->size[d] == v) {
                    strbuf_addf(about, "size %d of in%zu", d, k);
                    said = true;
                }
        }
        sym_declared(v, &lo, &hi);
        strbuf_addf(about, "%sat least %lld\n", said ? ", " : "", (long long)MAX(lo, 0));
        strbuf_addf(checks, "    if (%s < %lld)\n        return 3;\n", name, (long long)MAX(lo, 0));
        if (hi != SYM_OO)
            strbuf_addf(checks, "    if (%s > INT64_C(%lld))\n        return 3;\n", name, (long long)hi);
    }
    const sym_assumed *guard = n ? sym_env_guards(g->env, &nguard) : NULL;
    for (int i = 0; i < nguard; i++) {
        strbuf cond = { 0 };
        sym_print_c(&cond, guard[i].cond);
        if (strpbrk(strbuf_str(&cond), "su")) /* else it fixed a size, and only numbers are left */
            strbuf_addf(checks, "    if (!%s)\n        return 3;\n", strbuf_str(&cond));
        strbuf_free(&cond);
    }
}

/* Steps of a kernel or helper, shared by threads where the file is built with TAPER_THREADS. */
static const char runner[] =
    "typedef void N_fn(void *const *, const int64_t *, const double *, int64_t, int64_t);\n"
    "#if defined TAPER_THREADS && TAPER_THREADS > 1\n"
    "typedef struct N_job {\n    N_fn *fn;\n    void *const *p;\n    const int64_t *v;\n    int64_t lo, "
    "hi;\n} N_job;\n"
    "static void *N_part(void *arg)\n{\n    const N_job *j = arg;\n    j->fn(j->p, j->v, NULL, j->lo, "
    "j->hi);\n"
    "    return NULL;\n}\n"
    "#endif\n"
    "/* n steps of about `work` operations each; each is done by one thread, so results do not depend on "
    "their number */\n"
    "static void N_run(N_fn *fn, void *const *p, const int64_t *v, int64_t n, int64_t work)\n{\n"
    "#if defined TAPER_THREADS && TAPER_THREADS > 1\n"
    "    if (n > 1 && work > 262144 / n) {\n"
    "        pthread_t t[TAPER_THREADS];\n        N_job j[TAPER_THREADS];\n        int made[TAPER_THREADS] = "
    "{ 0 };\n"
    "        for (int i = TAPER_THREADS - 1; i >= 0; i--) {\n"
    "            j[i] = (N_job){ fn, p, v, n * i / TAPER_THREADS, n * (i + 1) / TAPER_THREADS };\n"
    "            made[i] = i && !pthread_create(&t[i], NULL, N_part, &j[i]);\n"
    "            if (!made[i]) /* the last one, or there are no more threads */\n"
    "                N_part(&j[i]);\n"
    "        }\n"
    "        for (int i = 1; i < TAPER_THREADS; i++)\n            if (made[i])\n                "
    "pthread_join(t[i], NULL);\n"
    "        return;\n    }\n"
    "#endif\n"
    "    (void)work;\n    fn(p, v, NULL, 0, n);\n}\n";

static void add_runner(const emit *e, strbuf *out)
{
    for (const char *p = runner; *p; p++)
        if (p[0] == 'N' && p[1] == '_') {
            strbuf_addf(out, "%s_", e->name);
            p++;
        } else
            strbuf_addc(out, *p);
}

bool emit_c(tp_comp *c, const ir_graph *g, const char *name, bool blas, strbuf *text, strbuf *header)
{
    emit e = { .c = c, .name = name, .blas = blas };
    strbuf about = { 0 }, kernels = { 0 }, checks = { 0 }, places = { 0 };
    bool ok = false, *needs = mem_zalloc(g->inputs.n + 1);
    if (ir_has_unbacked(g)) {
        err_set(c->err, ERR_notimpl, "the graph has sizes that only its run decides");
        goto done;
    }
    if (!inputs(&e, g, &about))
        goto done;
    c->target = &target_export;
    e.u = aot_trace(c, g, needs, false, AOT_decompose | AOT_min_cut, NULL);
    e.p = e.u ? loop_plan_new(c, e.u->fw) : NULL;
    if (!e.p)
        goto done;
    if (e.u->nmut) {
        err_set(c->err, ERR_notimpl, "the graph writes to its inputs");
        goto done;
    }
    e.region = arena_zalloc(&e.mem, sizeof *e.region * MAX(e.p->slot.n, (size_t)1));
    e.direct = arena_zalloc(&e.mem, sizeof *e.direct * MAX(e.p->slot.n, (size_t)1));
    choose_direct(&e);
    place(&e);
    if (!weights(&e) || !steps(&e) || !results(&e, g, &about))
        goto done;
    sizes(&e, g, &about, &checks);
    const char *type = "";
    if (e.draws) {
        strbuf_addf(&e.proto, "%staper_random *random", e.proto.n ? ", " : "");
        strbuf_add(&about, " *   random: where random numbers come from, moved on by the call\n");
        type = "#ifndef TAPER_RANDOM\n#define TAPER_RANDOM\n"
               "/* A sequence of random numbers: { seed, 0 } is where taper.manual_seed(seed) stands. */\n"
               "typedef struct taper_random {\n    uint64_t seed, offset;\n} taper_random;\n#endif\n";
    }
    for (size_t i = 0; i <= e.size.n; i++) {
        strbuf_addf(&places, i ? "    const int64_t at%zu = at%zu + ((" : "    const int64_t at%zu = 0;\n", i,
                    i - 1);
        if (i) {
            emit_num(&places, e.size.at[i - 1]);
            strbuf_add(&places, " + 63) & ~INT64_C(63));\n");
        }
    }
    gen_c_text(&e.unit, &kernels);
    const char *means = "/* 0: done; 1: an index was out of range; 2: no memory; 3: sizes that the graph was "
                        "not made for; 4: a probability outside [0, 1]. */\n";
    strbuf_addf(text,
                "/* %s: a graph that needs nothing but this file. Build with\n *   cc -O2 -ffp-contract=off "
                "-fno-strict-aliasing -fwrapv -c FILE.c, and link with -lm%s;\n * threads: -DTAPER_THREADS=4 "
                "-pthread\n%s */\n",
                name, blas ? " and a BLAS (-lblas or -lopenblas)" : "", strbuf_str(&about));
    strbuf_addf(text,
                "#include <stdint.h>\n#include <stdlib.h>\n%s#if defined TAPER_THREADS && TAPER_THREADS > "
                "1\n#include <pthread.h>\n#endif\n",
                blas ? "#include <cblas.h>\n" : "");
    strbuf_addf(text, "%s%s\n", checks.n ? sym_c_helpers : "", strbuf_str(&kernels));
    add_runner(&e, text);
    strbuf_addf(
        text,
        "%s\n%s%s/* May be called by several threads at once%s. */\nint %s(%s)\n{\n    int bad = 0;\n%s%s"
        "    char *space = malloc((size_t)at%zu + 64);\n    if (!space)\n        return 2;\n"
        "%s    free(space);\n    return bad;\n}\n",
        strbuf_str(&e.data), type, means, e.draws ? ", each with a sequence of its own" : "", name,
        e.proto.n ? strbuf_str(&e.proto) : "void", strbuf_str(&checks), strbuf_str(&places), e.size.n,
        strbuf_str(&e.body));
    strbuf_addf(
        header,
        "/* %s: generated by Taper. Memory is the caller's, elements in row-major order:\n%s */\n"
        "#ifndef TAPER_EXPORT_%s\n#define TAPER_EXPORT_%s\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern "
        "\"C\" {\n#endif\n%s%sint %s(%s);\n#ifdef __cplusplus\n}\n#endif\n#endif\n",
        name, strbuf_str(&about), name, name, type, means, name, e.proto.n ? strbuf_str(&e.proto) : "void");
    ok = true;
done:
    free(needs);
    gen_c_free(&e.unit);
    strbuf_free(&e.data);
    strbuf_free(&e.body);
    strbuf_free(&e.proto);
    strbuf_free(&about);
    strbuf_free(&kernels);
    strbuf_free(&checks);
    strbuf_free(&places);
    vec_free(&e.size);
    map_free(&e.kernels);
    map_free(&e.helpers);
    arena_free(&e.mem);
    loop_plan_free(e.p);
    aot_unit_free(e.u);
    return ok;
}
