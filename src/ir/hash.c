/* hash.c - a graph's structure as one number: operators by name, operands by position, types, attributes,
 * constants by content. Names, places and spelling do not count. The same in every process. */
#include "ir/text.h"

typedef struct hasher {
    uint64_t h;
    map pos; /* node -> position + 1 */
    strbuf text;
} hasher;

static void add(hasher *s, uint64_t x) { s->h = hash_mix(s->h, x); }
static void add_text(hasher *s, const char *t, size_t n) { s->h = hash_bytes(t, n, s->h); }

static void add_sym(hasher *s, symint v)
{
    if (!sym_is_expr(v)) {
        add(s, (uint64_t)v);
        return;
    }
    strbuf_clear(&s->text);
    sym_print(&s->text, v);
    add_text(s, strbuf_str(&s->text), s->text.n);
}

static void add_tensor(hasher *s, const tp_tensor *t)
{
    if (!t) {
        add(s, 0);
        return;
    }
    add(s, 1 + (uint64_t)t->dt * 64 + t->ndim);
    add(s, (uint64_t)tensor_device(t).kind);
    for (int d = 0; d < t->ndim; d++) {
        add_sym(s, t->size[d]);
        add_sym(s, t->stride[d]);
    }
}

static void add_node(hasher *s, const ir_node *n)
{
    add(s, n ? (uint64_t)(uintptr_t)map_geti(&s->pos, (uintptr_t)n) : 0);
}

static void add_val(hasher *s, const tp_val *v)
{
    add(s, v->kind);
    switch (v->kind) {
    case VAL_none:
    case VAL_gen: break;
    case VAL_tensor: add_tensor(s, v->t); break;
    case VAL_int: add_sym(s, v->i); break;
    case VAL_float: add(s, v->f != v->f ? 1 : (uint64_t)v->i); break;
    case VAL_bool: add(s, v->b); break;
    case VAL_str: add_text(s, v->s, strlen(v->s)); break;
    case VAL_device: add(s, (uint64_t)v->dev.kind * 256 + (uint8_t)v->dev.index); break;
    case VAL_node: add_node(s, v->node); break;
    case VAL_graph: add(s, ir_hash(v->graph)); break;
    case VAL_ints:
    case VAL_floats:
    case VAL_complex:
    case VAL_bools:
    case VAL_nodes:
    case VAL_tensors:
        add(s, (uint64_t)v->n);
        for (int i = 0; i < v->n; i++) {
            if (v->kind == VAL_ints)
                add_sym(s, v->ints[i]);
            else if (v->kind == VAL_floats || v->kind == VAL_complex)
                add(s, v->floats[i] != v->floats[i] ? 1 : (uint64_t)v->ints[i]);
            else if (v->kind == VAL_bools)
                add(s, v->bools[i]);
            else if (v->kind == VAL_nodes)
                add_node(s, v->nodes[i]);
            else
                add_tensor(s, v->ts[i]);
        }
        break;
    default: add(s, (uint64_t)v->i); break;
    }
}

uint64_t ir_hash(const ir_graph *g)
{
    hasher s = { .h = 0x7461706572 };
    uintptr_t k = 0;

    add(&s, g->grad_mode);
    IR_EACH (n, g) {
        add(&s, n->kind);
        if (n->kind == IR_call) { /* the row's number changes with the table, its name does not */
            const op_row *r = op_row_of((op_id)n->op);
            add_text(&s, r->full, strlen(r->full));
            add(&s, n->variant);
        } else if (n->kind == IR_opaque)
            add_text(&s, n->target, strlen(n->target));
        else if (n->kind == IR_const) {
            const char *d = ir_const_digest(n);
            add_text(&s, d ? d : "", d ? strlen(d) : 0);
            add(&s, n->konst && n->konst->flags & TF_wrapped);
        }
        for (int i = 0; i < n->narg; i++)
            add_val(&s, &n->arg[i]);
        if (n->val.kind == VAL_float || n->val.kind == VAL_bool)
            add(&s, n->val.kind);
        else
            add_val(&s, &n->val);
        if (n->meta) {
            strbuf_clear(&s.text);
            text_meta(&s.text, n->meta);
            add_text(&s, strbuf_str(&s.text), s.text.n);
        }
        map_puti(&s.pos, (uintptr_t)n, (void *)++k);
    }
    map_free(&s.pos);
    strbuf_free(&s.text);
    return s.h;
}
